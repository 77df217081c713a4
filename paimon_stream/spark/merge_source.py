"""The rows of a batch as the source of a merge: one table of Arrow in the driver."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from paimon_stream.change.merge_clauses import MergeWords, plan_merge
from paimon_stream.errors import UnsupportedFeature, naming
from paimon_stream.spark.merge_job import rows_by_tasks
from paimon_stream.spark.small_batch import as_arrow
from paimon_stream.spark.types import paimon_type
from paimon_stream.table.table import Table


def collected_rows(frame: DataFrame, location: str, batch_id: int) -> pa.Table:
    """All rows of a batch. Spark evaluates them once. Raises `UnsupportedFeature` if they are more
    than Spark lets a driver collect.

    Args:
        frame: the rows.
        location: where the table is, for the message.
        batch_id: the id of the batch, for the message.
    """
    if not _brings_arrow(frame):
        return rows_by_tasks(frame)
    batches = as_arrow(frame)
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
