"""What the tests with whole tables share: writes and commits rows without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataType, arrow_type
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import Table, load_table
from paimon_stream.write.task import WriteSpec, write_task

Row = Mapping[str, Any]
EPOCH = dt.datetime(1970, 1, 1)


def batch_of(schema: TableSchema, rows: Sequence[Row]) -> pa.RecordBatch:
    """A batch of the rows in the table's Arrow types. The rows are dicts of values in the oracle's
    form.
    """
    columns = [
        pa.array([_arrow_value(one.type, row.get(one.name)) for row in rows], arrow_type(one.type))
        for one in schema.fields
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(schema.field_names))


def _arrow_value(type_: DataType, value: Any) -> Any:
    """The value for Arrow. Timestamps finer than Python's are ISO text in the oracle's form."""
    if type_.is_timestamp and isinstance(value, str):
        whole, _, fraction = value.partition(".")
        since = dt.datetime.fromisoformat(whole) - EPOCH
        return (since // dt.timedelta(seconds=1)) * 10**9 + int(fraction.ljust(9, "0"))
    return value


def write_rows(table: Table, rows: Sequence[Row]) -> tuple[CommitMessage, ...]:
    """Writes data files in one of our tasks. Returns its messages."""
    spec = WriteSpec(storage=table.storage, schema=table.schema, options=table.options)
    return write_task(spec, [batch_of(table.schema, rows)]).messages


def append(path: Path | str, rows: Sequence[Row], identifier: int = 1, user: str = "ours") -> None:
    """Writes and commits the rows as one snapshot."""
    table = load_table(LocalStorage(str(path)))
    PaimonTable.load(str(path)).new_commit(user).commit(identifier, write_rows(table, rows))
