"""The rows of a batch as the source of a merge: one table of Arrow in the driver."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from paimon_stream.change.merge_clauses import MergeWords, plan_merge
from paimon_stream.errors import UnsupportedFeature, naming
from paimon_stream.spark.small_batch import as_arrow
from paimon_stream.spark.types import paimon_type
from paimon_stream.table.table import Table

_PACKED: Final = "rows BINARY"


def collected_rows(frame: DataFrame, location: str, batch_id: int) -> pa.Table:
    """All rows of a batch. Spark evaluates them once. Raises `UnsupportedFeature` if they are more
    than Spark lets a driver collect.

    Args:
        frame: the rows.
        location: where the table is, for the message.
        batch_id: the id of the batch, for the message.
    """
    batches = as_arrow(frame) if _brings_arrow(frame) else _unpacked(frame)
    if batches is None:
        raise UnsupportedFeature(
            f"batch {batch_id}: its rows are more than spark.driver.maxResultSize, and a merge needs all of them in the "
            "driver. Nothing was written. Let batches be smaller, for example by maxFilesPerTrigger or "
            "maxOffsetsPerTrigger, or raise that limit.",
            batch=batch_id,
        ).of_table(location)
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(frame.schema))


def _brings_arrow(frame: DataFrame) -> bool:
    """Whether this Spark returns rows as Arrow. Spark Connect does so from Spark 4 on."""
    return hasattr(frame, "_collect_as_arrow") or hasattr(frame, "toArrow")


def _unpacked(frame: DataFrame) -> list[pa.RecordBatch]:
    """All rows, which tasks send as bytes."""
    packed = frame.mapInArrow(_packed, _PACKED).collect()
    return [batch for row in packed for batch in pa.ipc.open_stream(row[0])]


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as the bytes of one row."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()])], ["rows"])


def check_source(frame: DataFrame, merge: MergeWords, table: Table) -> None:
    """Raises what `plan_merge` raises if the merge does not fit the columns of the rows and of the
    table, and `UnsupportedFeature` for a column of a type that Paimon does not have.
    """
    columns = {}
    for field in frame.schema.fields:
        of_table = table.schema.by_name.get(field.name)
        type_ = paimon_type(field.dataType, field.name)
        is_nested = of_table is not None and type_.is_nested and of_table.type.is_nested
        columns[field.name] = of_table.type if of_table is not None and is_nested else type_
    with naming(table.location):
        plan_merge(merge, table.schema, columns)
