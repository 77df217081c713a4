"""Batch writes: one Spark action writes a DataFrame into a table's data files."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from paimon_stream.errors import InvalidOption
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.spark.align import fold_of
from paimon_stream.spark.key_defaults import literal
from paimon_stream.spark.schema_fit import fit_rows, is_case_sensitive
from paimon_stream.spark.write_job import run_write_job
from paimon_stream.spark.write_plan import WritePlan
from paimon_stream.table.table import Table, evolve
from paimon_stream.write.row_kinds import Operations

_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


def overwrites_dynamically(frame: DataFrame) -> bool | None:
    """Whether the session makes overwrites without a partition dynamic; None if the option is not set."""
    mode = frame.sparkSession.conf.get(_OVERWRITE_MODE, None)
    return None if mode is None else str(mode).strip().lower() == "dynamic"


def write_frame(
    frame: DataFrame, table: Table, fixed: Mapping[str, pa.Scalar], first_sequence: int = 0, index: str | None = None
) -> tuple[Table, tuple[CommitMessage, ...]]:
    """Writes all rows. Returns the table to commit to, and the messages.

    Nothing is published except, if `merge-schema` allows it, the schema that the rows need. `fixed` are
    columns that the DataFrame may lack. `first_sequence` and `index` are as for `run_write_job`.

    Raises `InvalidOption` for a streaming DataFrame, and what `fit_rows` and `run_write_job` raise.
    """
    if frame.isStreaming:
        raise InvalidOption(
            f"{table.location}: this is a streaming DataFrame. Write it with PaimonSink, or give a DataFrame "
            "from spark.read.",
            table=table.location,
            option="df",
        )
    whole = _completed(frame, table.schema, fixed)
    operations = Operations.of(table.options)
    table, rows = fit_rows(whole, table, partial(evolve, table), beside=operations)
    plan = WritePlan(streaming=False)
    written = run_write_job(rows, table, plan=plan, first_sequence=first_sequence, index=index, operations=operations)
    return table, written.messages


def _completed(frame: DataFrame, schema: TableSchema, fixed: Mapping[str, pa.Scalar]) -> DataFrame:
    fold = fold_of(is_case_sensitive(frame))
    there = set(map(fold, frame.columns))
    for name, value in fixed.items():
        if fold(name) not in there:
            frame = frame.withColumn(name, literal(schema.field(name).type, value))
    return frame
