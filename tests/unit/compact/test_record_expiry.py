"""Which rows and files `record-level.expire-time` concerns. Java's answers are in
`conformance/test_keyed_compaction_beside_java.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.compact.older_rows import RecordExpiry
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.schema_json import decode_schema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.read.scan import plan_scan
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import load_table

NOW = 1_700_000_000
DAY = 86_400
OPTIONS = {
    "bucket": "1",
    "write-only": "true",
    "record-level.expire-time": "1 d",
    "record-level.time-field": "t",
}


def expiry_of(table: PaimonTable) -> RecordExpiry:
    loaded = load_table(LocalStorage(table.location))
    schemas = SchemaStore(loaded.storage)
    found = RecordExpiry.of(loaded.schema, loaded.options, schemas, NOW * 1000 + 999)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("type_", "arrow", "per_second"),
    [
        ("INT", pa.int32(), 1),
        ("BIGINT", pa.int64(), 1),
        ("BIGINT", pa.int64(), 1000),
        ("TIMESTAMP(3)", pa.timestamp("ms"), 10**3),
        ("TIMESTAMP(6)", pa.timestamp("us"), 10**6),
        ("TIMESTAMP(9)", pa.timestamp("ns"), 10**9),
        ("TIMESTAMP_LTZ(6)", pa.timestamp("us", "UTC"), 10**6),
    ],
)
def test_a_row_stays_until_its_last_second_is_over(
    type_: str, arrow: pa.DataType, per_second: int, tmp_path: Path
) -> None:
    columns = [("k", "INT NOT NULL"), ("t", type_)]
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=OPTIONS)
    expiry, last = expiry_of(table), (NOW - DAY) * per_second
    times = pa.array([last - 1, last, None, last + per_second], pa.int64())
    times = times.cast(pa.int32()) if arrow == pa.int32() else times.view(arrow)
    batch = pa.record_batch({"k": pa.array(range(4), pa.int32()), "t": times})
    assert expiry.fresh(batch)["k"].to_pylist() == [1, 2, 3]
    for keys, due in (([1, 2, 3], False), ([0, 3], True), ([2], False)):
        table.append(pa.table({"k": pa.array(keys, pa.int32()), "t": times.take(pa.array(keys))}))
        newest = max(table.files(), key=lambda one: one.meta.max_sequence_number)
        entries = load_entries(table)
        due = due and type_ != "TIMESTAMP(9)"  # whose statistics have no minimum
        assert [expiry.is_due(one) for one in entries if one.file == newest.meta] == [due]


def load_entries(table: PaimonTable) -> list[ManifestEntry]:
    return list(plan_scan(load_table(LocalStorage(table.location))).files)


def test_statistics_are_those_of_the_column_under_its_earlier_name_and_type(tmp_path: Path) -> None:
    columns = [("k", "INT NOT NULL"), ("earlier", "INT"), ("u", "INT")]
    options = {key: value for key, value in OPTIONS.items() if "record" not in key}
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=options)
    for number, (time, other) in enumerate([(5, NOW), (NOW, 5)]):
        values = {"k": number, "earlier": time, "u": other}
        table.append(
            pa.table({key: pa.array([value], pa.int32()) for key, value in values.items()})
        )
    first = Path(table.location) / "schema" / "schema-0"
    text = first.read_text().replace('"id" : 0,\n  "fields"', '"id" : 1,\n  "fields"', 1)
    text = re.sub(r'"earlier",(\s*"type" : )"INT"', r'"t",\1"BIGINT"', text)
    pairs = ",".join(f'"{key}" : "{value}"' for key, value in OPTIONS.items() if "record" in key)
    first.with_name("schema-1").write_text(
        text.replace('"options" : {', f'"options" : {{ {pairs},', 1)
    )
    assert decode_schema(first.with_name("schema-1").read_bytes(), "schema-1").field(
        "t"
    ) == DataField(id=1, name="t", type=parse_type("BIGINT"))
    expiry = expiry_of(table)
    assert {one.file.min_sequence_number: expiry.is_due(one) for one in load_entries(table)} == {
        0: True,
        1: False,
    }
