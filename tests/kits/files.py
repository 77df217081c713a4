"""What the tests of data files share: rows of natural Python values, written by us and committed by
Java.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from paimon_stream.format.schema_json import TableSchema, decode_schema
from paimon_stream.format.types import DataType, TypeRoot, arrow_type
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.write.task import TaskResult, WriteSpec, write_task

Row = tuple[Any, ...]
Columns = list[tuple[str, str]]
EPOCH = dt.datetime(1970, 1, 1)


def opened(path: Path, overrides: Mapping[str, str] | None = None) -> WriteSpec:
    storage = LocalStorage(str(path))
    newest = max(
        int(file.name.removeprefix("schema-")) for file in (path / "schema").glob("schema-*")
    )
    schema = decode_schema(storage.read(f"schema/schema-{newest}"), "a schema")
    return WriteSpec(storage=storage, schema=schema, options=Options(schema.options, overrides))


def batch_of(schema: TableSchema, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [
        pa.array([in_arrow(one.type, row[i]) for row in rows], arrow_type(one.type))
        for i, one in enumerate(schema.fields)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(schema.field_names))


def in_arrow(type_: DataType, value: Any) -> Any:
    """Converts a value from the oracle's form to Arrow's. In the oracle's form, the finest
    timestamps are text, and rows are tuples.
    """
    if value is None:
        return None
    match type_:
        case DataType(root=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ) if isinstance(value, str):
            whole, _, fraction = value.partition(".")
            seconds = (dt.datetime.fromisoformat(whole) - EPOCH) // dt.timedelta(seconds=1)
            return seconds * 10**9 + int(fraction.ljust(9, "0"))
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return [in_arrow(element, one) for one in value]
        case DataType(root=TypeRoot.MAP, key=DataType() as key, element=DataType() as element):
            return [(in_arrow(key, k), in_arrow(element, v)) for k, v in _pairs(value)]
        case DataType(root=TypeRoot.MULTISET, element=DataType() as element):
            return [(in_arrow(element, k), v) for k, v in _pairs(value)]
        case DataType(root=TypeRoot.ROW):
            members = value.values() if isinstance(value, Mapping) else value
            return {
                f.name: in_arrow(f.type, one) for f, one in zip(type_.fields, members, strict=True)
            }
    return value


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, Mapping) else value


def write(path: Path, rows: Sequence[Row], batch_rows: int = 1000, **overrides: str) -> TaskResult:
    spec = opened(path, {key.replace("__", "."): value for key, value in overrides.items()})
    chunks = [rows[i : i + batch_rows] for i in range(0, len(rows), batch_rows)]
    return write_task(spec, [batch_of(spec.schema, chunk) for chunk in chunks])


def commit(java: Any, path: Path, result: TaskResult, identifier: int = 1) -> None:
    java.commit_messages(
        path, [message.serialize() for message in result.messages], "ours", identifier
    )


def same(schema: Columns, left: Any, right: Any) -> bool:
    import java_paimon

    return bool(java_paimon.canonical(schema, left) == java_paimon.canonical(schema, right))


def stats(java: Any, path: Path) -> str:
    (file,) = java.files(path)
    return json.dumps([file["valueStats"], file["valueStatsCols"], file["rowCount"]], default=repr)
