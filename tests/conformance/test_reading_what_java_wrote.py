"""Tables Java makes here and now: changed schemas, every file format, time zones, tags and
branches.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import CorruptMetadata, UnsupportedFeature
from tests.kits.params import each_once
from tests.kits.reading import append, assert_rows, java_rows

FORMATS = ["parquet", "orc", "avro"]
UTC = dt.timezone.utc
NAN = float("nan")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db.db" / "t"


def same_as_java(java: Any, path: Path) -> PaimonTable:
    """The table, after both have read the same rows from it."""
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))
    return table


def changed(java: Any, path: Path, *changes: Any) -> None:
    java._schema_manager(path).commitChanges(list(changes))


def names(java: Any, *parts: str) -> Any:
    made = java._gateway.new_array(java._jvm.java.lang.String, len(parts))
    for position, part in enumerate(parts):
        made[position] = part
    return made


# -- schemas --------------------------------------------------------------------------------------

CASTS: list[tuple[str, str, list[Any]]] = [
    ("TINYINT", "BIGINT", [1, -128, None]),
    ("INT", "BIGINT", [1, -5, 2**31 - 1]),
    ("BIGINT", "INT", [1, 2**40 + 7, -(2**63), None]),
    ("INT", "TINYINT", [300, -1, 127]),
    ("INT", "DOUBLE", [5, None]),
    ("INT", "FLOAT", [16777217]),
    ("BIGINT", "DOUBLE", [2**53 + 1]),
    ("FLOAT", "DOUBLE", [0.1, NAN]),
    ("DOUBLE", "FLOAT", [1e300, 0.1, NAN, None]),
    ("DOUBLE", "INT", [1.9, -1.9, 1e20, -1e20, NAN, None]),
    ("DOUBLE", "BIGINT", [1.9, 1e20, -1e20, NAN]),
    ("DOUBLE", "SMALLINT", [40000.5, -1.0]),
    ("INT", "DECIMAL(5, 2)", [1, 1000, -999, None]),
    ("BIGINT", "DECIMAL(38, 2)", [2**63 - 1, -(2**63)]),
    ("DECIMAL(10, 2)", "DECIMAL(12, 4)", [Decimal("1.25"), None]),
    ("DECIMAL(38, 0)", "DECIMAL(38, 2)", [Decimal(10**37), Decimal(5)]),
    (
        "DECIMAL(10, 4)",
        "DECIMAL(6, 2)",
        [Decimal("1.2351"), Decimal("99999.9999"), Decimal("-1.2350")],
    ),
    ("DECIMAL(10, 2)", "INT", [Decimal("1.99"), Decimal("-1.99"), None]),
    ("DECIMAL(20, 0)", "INT", [Decimal(2**40 + 7), Decimal(-(2**35) - 1)]),
    ("DECIMAL(10, 2)", "DOUBLE", [Decimal("1.99")]),
    ("STRING", "VARCHAR(3)", ["abcdef", "ä😀xyz", None]),
    ("VARCHAR(3)", "STRING", ["abc"]),
    ("CHAR(3)", "CHAR(5)", ["ab"]),
    ("VARCHAR(3)", "CHAR(5)", ["ab", "ä😀x"]),
    ("CHAR(5)", "STRING", ["ab"]),
    ("BYTES", "VARBINARY(2)", [b"abcd", b"a", None]),
    ("BINARY(2)", "BYTES", [b"ab"]),
    ("TIMESTAMP(3)", "TIMESTAMP(6)", [dt.datetime(1969, 12, 31, 23, 59, 59, 999000)]),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None]),
    ("TIMESTAMP(6)", "TIMESTAMP(0)", [dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    ("TIMESTAMP(6)", "DATE", [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(2024, 2, 29, 5)]),
    ("DATE", "TIMESTAMP(3)", [dt.date(1969, 12, 31), None]),
    ("INT", "STRING", [5, -5, None]),
    ("BIGINT", "VARCHAR(2)", [123]),
    ("BOOLEAN", "STRING", [True, False, None]),
    ("BOOLEAN", "INT", [True, False]),
    ("INT", "BOOLEAN", [5, 0]),
]


def test_values_of_a_changed_type_are_those_java_reads(java: Any, path: Path) -> None:
    """Each change has a column."""
    columns = {f"{old} to {new}": old for old, new, _ in CASTS}
    java.create_table(path, [("k", "INT"), *columns.items()])
    rows = zip_longest(*(values for _, _, values in CASTS))
    java.write(path, [(k, *values) for k, values in enumerate(rows)])
    java.alter_table(path, *(("type", f"{old} to {new}", new) for old, new, _ in CASTS))
    same_as_java(java, path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"),
        ("DOUBLE", "STRING"),
        ("STRING", "TIMESTAMP_LTZ(3)"),
        ("FLOAT", "STRING"),
        ("TIMESTAMP_LTZ(3)", "DATE"),
    ],
)
def test_a_change_that_depends_on_more_than_the_value_is_refused(
    java: Any, path: Path, old: str, new: str
) -> None:
    java.create_table(path, [("k", "INT"), ("v", old)])
    java.write(path, [(1, None)])
    java.alter_table(path, ("type", "v", new))
    table = PaimonTable.load(str(path))
    with pytest.raises(UnsupportedFeature, match="'v' was"):
        table.to_arrow()
    assert table.to_arrow(columns=["k"]).num_rows == 1


@pytest.mark.parametrize("file_format", FORMATS)
def test_nested_members_come_and_go_and_move(java: Any, path: Path, file_format: str) -> None:
    schema = [
        ("k", "INT"),
        ("r", "ROW<a INT, b STRING, c ROW<d INT>>"),
        ("l", "ARRAY<ROW<x INT>>"),
        ("m", "MAP<STRING, ROW<y INT>>"),
        ("i", "MAP<INT, ARRAY<INT>>"),
    ]
    java.create_table(path, schema, options={"file.format": file_format})
    row = {"a": 1, "b": "x", "c": {"d": 4}}
    java.write(
        path,
        [
            (1, row, [{"x": 1}, None], {"q": {"y": 2}, "p": None}, {3: [1, None], 4: None, 5: []}),
            (2, None, None, None, None),
            (3, {"a": None, "b": None, "c": None}, [], {}, {}),
        ],
    )
    change, type_ = java._paimon.schema.SchemaChange, java._java_type
    changed(java, path, change.addColumn(names(java, "r", "e"), type_("BIGINT"), None, None))
    changed(java, path, change.renameColumn(names(java, "r", "a"), "a2"))
    changed(java, path, change.updateColumnType(names(java, "r", "a2"), type_("BIGINT"), False))
    changed(java, path, change.dropColumn(names(java, "r", "b")))
    changed(
        java, path, change.addColumn(names(java, "l", "element", "z"), type_("STRING"), None, None)
    )
    changed(
        java, path, change.addColumn(names(java, "m", "value", "w"), type_("STRING"), None, None)
    )
    changed(java, path, change.updateColumnPosition(change.Move.first("m")))
    java.write(
        path,
        [
            {
                "k": 4,
                "r": {"a2": 2**40, "e": 6, "c": {"d": 1}},
                "l": [{"x": 1, "z": "z"}],
                "m": {"q": {"y": 2, "w": "w"}},
                "i": {1: [1]},
            }
        ],
    )
    table = same_as_java(java, path)
    append(table, [({"n": None}, 5, None, [{"x": 2, "z": None}], [])], "ours", 1)
    table = same_as_java(java, path)
    assert table.to_arrow().num_rows == 5
    assert [one.id for one in table.schemas()] == list(range(8))


def test_a_name_used_again_is_another_column(java: Any, path: Path) -> None:
    java.create_table(path, [("k", "INT"), ("a", "STRING"), ("b", "STRING")])
    java.write(path, [(1, "old a", "old b")])
    java.alter_table(path, ("drop", "a"))
    java.alter_table(path, ("add", "a", "INT"))
    java.alter_table(path, ("rename", "b", "c"), ("add", "b", "INT"))
    java.write(path, [(2, "old b", 7, 8)])
    table = same_as_java(java, path)
    assert table.to_arrow(columns=["a", "c"]).to_pylist() == [
        {"a": None, "c": "old b"},
        {"a": 7, "c": "old b"},
    ]


def test_a_default_value_is_not_given_to_rows_of_old(java: Any, path: Path) -> None:
    java.create_table(path, [("k", "INT")])
    java.write(path, [(1,)])
    java.alter_table(path, ("add", "v", "INT"))
    change = java._paimon.schema.SchemaChange
    changed(java, path, change.updateColumnDefaultValue(names(java, "v"), "42"))
    java.write(path, [(2, None)])
    table = same_as_java(java, path)
    assert sorted(table.to_arrow().column("v").to_pylist(), key=str) == [42, None]


@pytest.mark.parametrize(
    ("file_format", "type_"), [("parquet", "ROW<z INT>"), ("orc", "ROW<y INT>")]
)
def test_names_may_be_anything(java: Any, path: Path, file_format: str, type_: str) -> None:
    """Java cannot write Avro with such names, nor Parquet with a member that is called like a
    column.
    """
    schema = [("a b", "INT"), ("x.y", "STRING"), ("x", type_), ("größe", "INT")]
    java.create_table(path, schema, options={"file.format": file_format})
    java.write(path, [(1, "dot", {type_[4]: 2}, 3)])
    table = same_as_java(java, path)
    assert table.to_arrow(columns=["x.y"]).to_pylist() == [{"x.y": "dot"}]
    assert table.to_arrow(columns=["x"]).to_pylist() == [{"x": {type_[4]: 2}}]


@pytest.mark.parametrize("file_format", FORMATS)
def test_multisets_and_empty_and_null_containers(java: Any, path: Path, file_format: str) -> None:
    schema = [
        ("k", "INT NOT NULL"),
        ("m", "MULTISET<STRING>"),
        ("n", "MAP<BIGINT, STRING> NOT NULL"),
        ("a", "ARRAY<ARRAY<DECIMAL(20, 3)>>"),
        ("t", "ARRAY<TIMESTAMP(3)>"),
    ]
    java.create_table(path, schema, options={"file.format": file_format})
    moment = dt.datetime(1969, 1, 1, 0, 0, 0, 1000)
    java.write(
        path,
        [
            (
                1,
                {"a": 2, "b": 1},
                {5: "x", 6: None},
                [[Decimal("1.5"), None], [], None],
                [moment, None],
            ),
            (2, None, {}, None, None),
            (3, {}, {1: ""}, [], []),
        ],
    )
    same_as_java(java, path)


# -- formats --------------------------------------------------------------------------------------


@contextmanager
def in_zone(java: Any, zone: str) -> Iterator[None]:
    """The JVM as if it stood there."""
    zones = java._jvm.java.util.TimeZone
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(zones.getTimeZone("UTC"))


@pytest.mark.parametrize(
    ("year", "legacy", "zone"),
    each_once(
        [2024, 2100, 2300],
        ["true", "false"],
        ["UTC", "Asia/Tokyo", "America/New_York"],
        keep=lambda year, legacy, zone: (
            zone == "America/New_York" and (year == 2100 or (year, legacy) == (2300, "true"))
        ),
    ),
)
def test_orc_timestamps_are_what_was_written_wherever_java_stood(
    java: Any, path: Path, zone: str, legacy: str, year: int
) -> None:
    schema = [
        ("k", "INT"),
        ("n", "TIMESTAMP(6)"),
        ("z", "TIMESTAMP_LTZ(6)"),
        ("z3", "TIMESTAMP_LTZ(3)"),
    ]
    options = {"file.format": "orc", "orc.timestamp-ltz.legacy.type": legacy}
    java.create_table(path, schema, options=options)
    moments = [
        dt.datetime(year, 1 + i % 12, 1 + i % 28, i % 24, i, 59, i * 1000 + 7) for i in range(60)
    ]
    moments += [dt.datetime(1999, 3, 4, 5, 6, 7, 8), dt.datetime(1971, 1, 1)]
    rows = [
        (
            i,
            one,
            one.replace(tzinfo=UTC),
            one.replace(microsecond=i * 1000, tzinfo=UTC) if i % 7 else None,
        )
        for i, one in enumerate(moments)
    ]
    with in_zone(java, zone):
        java.write(path, rows)
    table = PaimonTable.load(str(path))
    got = table.to_arrow().sort_by("k")
    for column, name in enumerate(("n", "z", "z3"), start=1):
        assert got.column(name).cast(pa.timestamp("us", got.column(name).type.tz)).to_pylist() == [
            row[column] for row in rows
        ]


def test_orc_timestamps_of_any_shape_are_decoded_as_java_does(java: Any, path: Path) -> None:
    """Runs that repeat, that rise evenly, that are noise, that have outliers: each has its own
    encoding.
    """
    java.create_table(path, [("k", "INT"), ("n", "TIMESTAMP(6)")], options={"file.format": "orc"})
    start = dt.datetime(2300, 1, 1)
    moments: list[dt.datetime | None] = [start] * 50
    moments += [start + dt.timedelta(seconds=60 * i) for i in range(700)]
    moments += [start - dt.timedelta(seconds=i * i * i, microseconds=i) for i in range(700)]
    moments += [start + dt.timedelta(seconds=(i * 7919) % 1000) for i in range(300)]
    moments += [
        start + dt.timedelta(days=100_000 * (i % 97 == 0), milliseconds=i) for i in range(600)
    ]
    moments += [None, start, None, None] * 20
    moments += [dt.datetime(1900, 1, 2, 3), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]
    java.write(path, list(enumerate(moments)))
    same_as_java(java, path)


def test_nested_orc_timestamps_out_of_range_are_refused_by_name(java: Any, path: Path) -> None:
    schema = [("k", "INT"), ("l", "ARRAY<TIMESTAMP(3)>")]
    java.create_table(path, schema, options={"file.format": "orc"})
    java.write(path, [(1, [dt.datetime(9999, 1, 1)])])
    table = PaimonTable.load(str(path))
    with pytest.raises(UnsupportedFeature, match="'l'"):
        table.to_arrow()
    assert table.to_arrow(columns=["k"]).num_rows == 1


def test_parquet_nanoseconds_out_of_range_are_refused_by_name(java: Any, path: Path) -> None:
    java.create_table(path, [("k", "INT"), ("n", "TIMESTAMP(9)"), ("m", "TIMESTAMP_LTZ(7)")])
    java.write(
        path,
        [(1, "2262-04-11T00:00:00.123456789", "1969-12-31T23:59:59.999999900"), (2, None, None)],
    )
    table = same_as_java(java, path)
    java.write(path, [(1, "2300-01-01T00:00:00.123456789", None)])
    with pytest.raises(UnsupportedFeature, match=r"TIMESTAMP\(9\)"):
        table.to_arrow()
    assert table.to_arrow(columns=["k", "m"]).num_rows == 3


def test_files_of_several_formats_live_in_one_table(java: Any, path: Path) -> None:
    java.create_table(path, [("k", "INT"), ("c", "CHAR(4)"), ("t", "TIME(3)")])
    for number, file_format in enumerate(FORMATS):
        options = {"file.format": file_format, "file.suffix.include.compression": "true"}
        java.write(path, [(number, "ab", dt.time(1, 2, 3, 4000))], options=options)
    table = same_as_java(java, path)
    assert len({Path(file.path).suffix for file in table.files()}) == 3


def test_an_index_that_does_not_say_where_its_deletion_vectors_are_is_refused(
    java: Any, path: Path
) -> None:
    """Rows that are marked as deleted must not come back."""
    java.create_table(path, [("k", "INT")])
    java.write(path, [(1,), (2,)])
    table = PaimonTable.load(str(path))
    assert table.to_arrow().num_rows == 2
    for index_type, refused in (("HASH", False), ("DELETION_VECTORS", True)):
        write_index_manifest(path / "manifest" / "index-manifest-x-0", index_type)
        file = path / "snapshot" / "snapshot-1"
        snapshot = json.loads(file.read_text())
        file.write_text(json.dumps({**snapshot, "indexManifest": "index-manifest-x-0"}))
        if refused:
            with pytest.raises(CorruptMetadata, match="where its deletion vectors are"):
                table.to_arrow()
        else:
            assert table.to_arrow().num_rows == 2


def write_index_manifest(file: Path, index_type: str) -> None:
    """One with a single entry, of that type."""
    entry = {
        "_VERSION": 1,
        "_KIND": 0,
        "_PARTITION": bytes(12),
        "_BUCKET": 0,
        "_INDEX_TYPE": index_type,
        "_FILE_NAME": "index-x",
        "_FILE_SIZE": 1,
        "_ROW_COUNT": 1,
    }
    types = {int: "long", str: "string", bytes: "bytes"}
    fields = [{"name": name, "type": types[type(value)]} for name, value in entry.items()]
    with file.open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "record", "fields": fields}, [entry])


# -- what else lies in a table's folder -----------------------------------------------------------


def test_tags_branches_and_consumers_of_java_stay_as_they_are(java: Any, path: Path) -> None:
    java.create_table(path, [("k", "INT")], options={"file.format": "parquet"})
    java.write(path, [(1,)], "java", 1)
    java.write(path, [(2,)], "java", 2)
    inner = java._table(path)
    inner.createTag("first", 1)
    inner.createBranch("dev", "first")
    java.write(path, [(100,)], "java", 3, options={"branch": "dev"})
    consumers = java._paimon.consumer.ConsumerManager(inner.fileIO(), inner.location(), "main")
    consumers.resetConsumer("reader", java._paimon.consumer.Consumer(2))
    (path / "changelog").mkdir()
    (path / "changelog" / "changelog-1").write_bytes(
        (path / "snapshot" / "snapshot-1").read_bytes()
    )
    before = everything_beside(path)
    assert {"tag", "branch", "consumer", "changelog"} <= {Path(name).parts[0] for name in before}

    table = PaimonTable.load(str(path))
    for identifier in range(5):
        append(table, [(10 + identifier,)], "ours", identifier)
    assert everything_beside(path) == before
    assert [one.id for one in table.snapshots()] == list(range(1, 8))
    assert table.to_arrow(tag="first").column("k").to_pylist() == [1]
    assert {name: one.id for name, one in table.tags().items()} == {"first": 1}
    assert sorted(row["k"] for row in java.read(path)) == [1, 2, 10, 11, 12, 13, 14]
    java.expire_snapshots(path, retain_max=1)
    # The consumer holds snapshot 2 for its reader; our commits are those of any other writer to it.
    assert java.snapshots(path)[0]["id"] == 2
    assert table.to_arrow(tag="first").column("k").to_pylist() == [1]


def everything_beside(path: Path) -> dict[str, bytes]:
    """All files of the folders that no append has a business in."""
    folders = ("tag", "branch", "consumer", "changelog", "schema", "statistics", "index")
    return {
        str(file.relative_to(path)): file.read_bytes()
        for folder in folders
        for file in sorted((path / folder).rglob("*"))
        if file.is_file()
    }


def test_what_a_newer_paimon_wrote_into_a_snapshot_is_kept(java: Any, path: Path) -> None:
    java.create_table(path, [("k", "INT")])
    java.write(path, [(1,)], "java", 1)
    write_index_manifest(path / "manifest" / "index-manifest-x-0", "HASH")
    (path / "statistics").mkdir()
    statistics = {"snapshotId": 1, "schemaId": 0, "mergedRecordCount": 1}
    (path / "statistics" / "stat-x-0").write_text(json.dumps(statistics))
    file = path / "snapshot" / "snapshot-1"
    newer = {
        "uuid": "2cf6a2d4-6e1c-4f0e-9f6e-0d1f5a0f9c11",
        "operation": "WRITE",
        "indexManifest": "index-manifest-x-0",
        "statistics": "stat-x-0",
        "nextRowId": 77,
        "watermark": 123,
        "logOffsets": {},
        "somethingOfTomorrow": {"a": [1]},
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), **newer}))
    table = PaimonTable.load(str(path))
    (first,) = table.snapshots()
    assert (first.uuid, first.operation, first.next_row_id) == (newer["uuid"], "WRITE", 77)
    append(table, [(2,)], "ours", 1)
    made = json.loads((path / "snapshot" / "snapshot-2").read_text())
    for key in ("indexManifest", "statistics", "nextRowId", "watermark"):
        assert made[key] == newer[key], key
    # These are of one snapshot alone.
    assert not {"uuid", "operation", "logOffsets", "somethingOfTomorrow"} & made.keys()
    assert table.to_arrow().num_rows == 2

    java.alter_table(path, ("add", "v", "INT"))
    append(PaimonTable.load(str(path)), [(3, 4)], "ours", 2)
    made = json.loads((path / "snapshot" / "snapshot-3").read_text())
    assert "statistics" not in made, "statistics are of one schema"
    assert (made["indexManifest"], made["nextRowId"]) == ("index-manifest-x-0", 77)
