"""What the tests of reading share: converts rows of Arrow tables to the JSON form of the golden
tables.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.binary_columns import column_values
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.write.task import WriteSpec, write_task

EPOCH = datetime(1970, 1, 1)
WIDE = Context(prec=76)
INT = DataType(root=TypeRoot.INT)


def wire_rows(table: pa.Table, fields: Sequence[DataField]) -> list[list[Any]]:
    """The rows in the form of expected.json."""
    table.validate(full=True)
    columns = []
    for one in fields:
        column = table.column(one.name).combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        columns.append([wire(one.type, value) for value in column_values(column, one.type)])
    return [list(row) for row in zip(*columns, strict=True)]


def wire(type_: DataType, value: Any) -> Any:
    """An internal value in its JSON form."""
    match type_.root, value:
        case _, None:
            return None
        case TypeRoot.ARRAY, list():
            assert type_.element is not None
            return [wire(type_.element, one) for one in value]
        case TypeRoot.MAP | TypeRoot.MULTISET, list():
            key, element = (type_.key, type_.element) if type_.key else (type_.element, INT)
            assert key is not None and element is not None
            pairs = [[wire(key, one), wire(element, other)] for one, other in value]
            return sorted(pairs, key=lambda pair: json.dumps(pair[0]))
        case TypeRoot.ROW, tuple():
            return [wire(one.type, item) for one, item in zip(type_.fields, value, strict=True)]
        case TypeRoot.DECIMAL, Decimal():
            return format(value, "f")
        case TypeRoot.DATE, int():
            return (EPOCH + timedelta(days=value)).date().isoformat()
        case TypeRoot.TIME, int():
            return (EPOCH + timedelta(milliseconds=value)).time().isoformat(timespec="milliseconds")
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, int():
            seconds, nanos = divmod(value, 1_000_000_000)
            return f"{(EPOCH + timedelta(seconds=seconds)).isoformat()}.{nanos:09d}"
        case TypeRoot.BINARY | TypeRoot.VARBINARY, bytes():
            return value.hex()
        case TypeRoot.FLOAT | TypeRoot.DOUBLE, float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def assert_rows(
    table: pa.Table, fields: Sequence[DataField], expected: Iterable[Sequence[Any]]
) -> None:
    """Checks that the table has exactly the expected rows, in any order."""
    got = Counter(json.dumps(row, ensure_ascii=False) for row in wire_rows(table, fields))
    want = Counter(json.dumps(list(row), ensure_ascii=False) for row in expected)
    assert got == want


def java_rows(java: Any, table: PaimonTable, snapshot_id: int | None = None) -> list[list[Any]]:
    """The rows that Java reads, in the same form."""
    import java_paimon

    schema = [(one.name, sql(one.type)) for one in table.schema.fields]
    read = java.read(table.location, snapshot_id)
    rows: list[list[Any]] = java_paimon.encode_rows(schema, read)
    return rows


def sql(type_: DataType) -> str:
    """The type as the oracle reads it."""
    return str(type_)


def batch_of(schema: TableSchema, rows: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Rows of Python values as a batch of the table's columns."""
    rows = list(rows)
    columns = [
        pa.array([arrow_value(one.type, row[i]) for row in rows], arrow_type(one.type))
        for i, one in enumerate(schema.fields)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(schema.field_names))


def arrow_value(type_: DataType, value: Any) -> Any:
    """A value of the golden steps, converted for `pyarrow.array`."""
    match type_.root, value:
        case _, None:
            return None
        case TypeRoot.ARRAY, list():
            assert type_.element is not None
            return [arrow_value(type_.element, one) for one in value]
        case TypeRoot.MAP, dict():
            assert type_.key is not None and type_.element is not None
            return [
                (arrow_value(type_.key, k), arrow_value(type_.element, v)) for k, v in value.items()
            ]
        case TypeRoot.ROW, dict():
            return {one.name: arrow_value(one.type, value[one.name]) for one in type_.fields}
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, str():
            text, _, fraction = value.partition(".")
            seconds = (datetime.fromisoformat(text) - EPOCH) // timedelta(seconds=1)
            return seconds * 1_000_000_000 + int(fraction.ljust(9, "0"))
        case TypeRoot.DECIMAL, Decimal():
            return value.quantize(Decimal(1).scaleb(-type_.scale), context=WIDE)
    return value


def append(table: PaimonTable, rows: Iterable[Sequence[Any]], user: str, identifier: int) -> None:
    """Appends rows with our own writer and committer."""
    inner = table._table
    spec = WriteSpec(storage=inner.storage, schema=inner.schema, options=inner.options)
    result = write_task(spec, [batch_of(inner.schema, rows)])
    table.new_commit(user).commit(identifier, result.messages)
