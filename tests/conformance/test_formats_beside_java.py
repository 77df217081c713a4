"""Our files continue Java's own tables in every format, with the ids, schemas, defaults and options
of Java.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import NullInNotNull, UnsupportedFeature
from tests.kits.avro_files import read_file
from tests.kits.files import Columns, Row, commit, opened, same, write
from tests.kits.seeds import examples

HERE = Path(__file__).parent.parent
LTZ = "orc.timestamp-ltz.legacy.type"
Golden = Callable[[str], tuple[Path, dict[str, Any]]]


def recorded_rows(name: str) -> tuple[Columns, list[Row]]:
    """The columns of a golden table, and the rows that its steps write."""
    import casekit

    case, expected = casekit.load(HERE / "golden" / name)
    rows = [tuple(row) for step in case.steps for row in step.get("rows", ())]
    return [(column, sql) for column, sql in expected["schema"]], rows


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["all_types", "all_types_avro", "append_orc", "append_avro", "all_types_orc"]
)
def test_what_java_wrote_and_what_we_append_is_read_together(
    java: Any, golden: Golden, name: str
) -> None:
    table, _ = golden(name)
    columns, rows = recorded_rows(name)
    if name == "all_types_orc":
        with pytest.raises(UnsupportedFeature, match=LTZ):
            write(table, rows)
        java.alter_table(table, ("set", LTZ, "false"))
    before = java.read(table)
    result = write(table, rows)
    commit(java, table, result)
    assert same(columns, java.read(table), [*before, *rows])
    assert {file["schemaId"] for file in java.files(table)} <= {0, opened(table).schema.id}


NESTED: Columns = [
    ("k", "INT"),
    ("r", "ROW<a ROW<b INT, c INT NOT NULL>, d ARRAY<MAP<STRING, ARRAY<INT>>>>"),
    ("m", "MAP<STRING NOT NULL, ROW<e INT>> NOT NULL"),
    ("z", "ARRAY<ARRAY<DATE>>"),
    ("s", "MULTISET<STRING>"),
    ("t", "TIME(3) NOT NULL"),
    ("u", "TIMESTAMP(3)"),
    ("v", "TIMESTAMP_LTZ(6)"),
    ("w", "MAP<INT, MULTISET<DECIMAL(10, 2) NOT NULL>>"),
    ("x", "CHAR(3)"),
    ("y", "BINARY(2)"),
    ("q", "DECIMAL(20, 0)"),
]
ROW: Row = (
    1,
    ((2, 3), [{"a": [1]}]),
    {"k": (1,)},
    [[dt.date(2024, 1, 1)]],
    {"a": 1},
    dt.time(1),
    dt.datetime(2024, 1, 1),
    dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),
    {1: {Decimal("1.50"): 2}},
    "abc",
    b"ab",
    Decimal(5),
)


def only_file(table: Path) -> Path:
    (found,) = (table / "bucket-0").iterdir()
    return found


def test_parquet_files_have_the_schema_of_javas_with_all_ids(java: Any, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for table in (ours, theirs):
        java.create_table(table, NESTED)
    write(ours, [ROW])
    java.write(theirs, [ROW])
    mine, its = (parquet_schema(only_file(table)) for table in (ours, theirs))
    assert mine == its


def parquet_schema(path: Path) -> list[str]:
    """The columns. On the repeated groups of maps Java puts a mark that is obsolete, and Arrow
    none.
    """
    text = str(pq.ParquetFile(path).schema).replace("key_value (Map) {", "key_value {")
    return text.splitlines()[2:]


def test_avro_files_have_the_schema_of_javas(java: Any, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    columns, row = NESTED[:8] + NESTED[9:], ROW[:8] + ROW[9:]
    for table in (ours, theirs):
        java.create_table(
            table, columns, options={"file.format": "avro", "file.compression": "null"}
        )
    write(ours, [row])
    java.write(theirs, [row])
    mine, its = (read_file(only_file(table).read_bytes(), "a file") for table in (ours, theirs))
    assert json.loads(mine.schema) == json.loads(its.schema)
    assert mine.blocks == its.blocks


DEFAULTS = [
    ("BOOLEAN", "true", True),
    ("BOOLEAN", "no", False),
    ("INT", "-5", -5),
    ("TINYINT", "7", 7),
    ("BIGINT NOT NULL", "12", 12),
    ("DOUBLE", "1.5e3", 1500.0),
    ("FLOAT", "0.5", 0.5),
    ("DECIMAL(10, 2)", "1.5", Decimal("1.50")),
    ("STRING", "a 'b'", "a 'b'"),
    ("STRING", "'quoted'", "quoted"),
    ("VARCHAR(3)", "abc", "abc"),
    ("BYTES", "xy", b"xy"),
    ("DATE", "2024-02-29", dt.date(2024, 2, 29)),
    ("TIME(3)", "01:02:03.004", dt.time(1, 2, 3, 4000)),
    ("TIMESTAMP(3)", "2024-02-29 01:02:03.004", dt.datetime(2024, 2, 29, 1, 2, 3, 4000)),
    ("TIMESTAMP(6)", "2024-02-29 01:02:03", dt.datetime(2024, 2, 29, 1, 2, 3)),
]


def test_nulls_become_the_default_that_java_makes_of_them(java: Any, tmp_path: Path) -> None:
    named = {f"c{number}": default for number, default in enumerate(DEFAULTS)}
    columns = [("id", "INT")]
    columns += [(name, sql.removesuffix(" NOT NULL")) for name, (sql, _, _) in named.items()]
    values = tuple(value for _, _, value in DEFAULTS)
    nulls = (None,) * len(values)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    rows: list[Row] = [(1, *nulls), (2, *values), (3, *nulls)]
    for table in (ours, theirs):
        java.create_table(table, columns)
        set_defaults(java, table, {name: text for name, (_, text, _) in named.items()})
    commit(java, ours, write(ours, rows))
    java.write(theirs, rows)
    assert same(columns, java.read(ours), [(1, *values), (2, *values), (3, *values)])
    assert same(columns, java.read(ours), java.read(theirs))


def set_defaults(java: Any, table: Path, defaults: dict[str, str]) -> None:
    changes = []
    for column, text in defaults.items():
        names = java._gateway.new_array(java._jvm.java.lang.String, 1)
        names[0] = column
        changes.append(java._paimon.schema.SchemaChange.updateColumnDefaultValue(names, text))
    java._schema_manager(table).commitChanges(changes)


def test_a_default_fills_not_null_columns_too(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "t"
    columns = [("id", "INT NOT NULL"), ("c", "INT NOT NULL")]
    java.create_table(table, columns)
    with pytest.raises(NullInNotNull):
        write(table, [(1, None)])
    set_defaults(java, table, {"c": "7"})
    commit(java, table, write(table, [(1, None)]))
    assert same(columns, java.read(table), [(1, 7)])


def test_java_finds_a_short_char_by_our_bounds_in_orc(java: Any, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    rows: list[Row] = [("a",), ("b",)]
    for table in (ours, theirs):
        java.create_table(table, [("c", "CHAR(3)")], options={"file.format": "orc"})
    commit(java, ours, write(ours, rows))
    java.write(theirs, rows)
    assert java.read_where(ours, ("=", "c", "a")) == [{"c": "a"}]
    assert java.read_where(theirs, ("=", "c", "a")) == []  # its own bounds are padded with blanks


def test_a_filter_finds_a_short_char_beside_one_with_a_tab_in_java_s_orc(
    java: Any, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    java.create_table(table, [("c", "CHAR(5)")], options={"file.format": "orc"})
    java.write(table, [("abc",), ("abc\t",)])
    found = PaimonTable.load(str(table)).to_arrow(filter=pc.field("c") == "abc")
    assert found.to_pylist() == [{"c": "abc"}]


def test_java_finds_what_its_own_orc_bounds_hide(java: Any, tmp_path: Path) -> None:
    table = tmp_path / "t"
    java.create_table(table, [("d", "DOUBLE")], options={"file.format": "orc"})
    commit(java, table, write(table, [(float("nan"),), (1.0,), (-0.0,)]))
    (file,) = java.files(table)
    assert str(file["valueStats"]["d"]) == "{'min': -0.0, 'max': nan, 'nullCount': 0}"


OLD = [
    dt.datetime(1, 1, 1),
    dt.datetime(1500, 1, 1),
    dt.datetime(1582, 10, 10),
    dt.datetime(9999, 12, 31),
]


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_java_reads_our_dates_and_times_of_any_year(
    java: Any, tmp_path: Path, format_: str
) -> None:
    columns = [
        ("d", "DATE"),
        ("s", "TIMESTAMP(3)"),
        ("t", "TIMESTAMP(6)"),
        ("z", "TIMESTAMP_LTZ(6)"),
    ]
    table = tmp_path / "t"
    java.create_table(table, columns, options={"file.format": format_, LTZ: "false"})
    rows = [(one.date(), one, one, one.replace(tzinfo=dt.timezone.utc)) for one in OLD]
    commit(java, table, write(table, rows))
    assert same(columns, java.read(table), rows)


def test_java_itself_moves_old_timestamps_in_orc(java: Any, tmp_path: Path) -> None:
    columns = [("t", "TIMESTAMP(6)")]
    java.create_table(tmp_path / "t", columns, options={"file.format": "orc"})
    java.write(tmp_path / "t", [(OLD[1],)])
    assert not same(columns, java.read(tmp_path / "t"), [(OLD[1],)])


def test_fine_timestamps_of_parquet_keep_coarse_ones_of_any_year(java: Any, tmp_path: Path) -> None:
    columns = [("f", "TIMESTAMP(9)"), ("t", "TIMESTAMP(6)"), ("a", "ARRAY<TIMESTAMP_LTZ(8)>")]
    java.create_table(tmp_path / "t", columns)
    rows: list[Row] = [
        ("1677-09-22T00:00:00.000000001", one, ["2262-04-11T00:00:00.123456780", None])
        for one in OLD
    ]
    commit(java, tmp_path / "t", write(tmp_path / "t", rows))
    assert same(columns, java.read(tmp_path / "t"), rows)


PARQUET = {
    "parquet.page.size": "4 kb",
    "parquet.dictionary.page.size": "8 kb",
    "parquet.page.row.count.limit": "100",
    "parquet.enable.dictionary": "false",
    "parquet.writer.version": "PARQUET_2_0",
    "file.compression.zstd-level": "9",
    "file.block-size": "32 kb",
}
ORC = {
    "file.format": "orc",
    "orc.stripe.size": "64 kb",
    "orc.compress.size": "16 kb",
    "orc.row.index.stride": "1000",
    "orc.dictionary.key.threshold": "0.8",
    "orc.compression.strategy": "compression",
    "orc.write.batch-size": "500",
}


AVRO = {"file.format": "avro", "file.compression.zstd-level": "5"}


@pytest.mark.parametrize("options", [PARQUET, ORC, AVRO], ids=["parquet", "orc", "avro"])
def test_java_reads_files_of_every_option(
    java: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    columns = [("i", "BIGINT"), ("s", "STRING"), ("a", "ARRAY<INT>")]
    java.create_table(tmp_path / "t", columns, options=options)
    rows: list[Row] = [
        (i * 7919, f"text {i % 50}", [i, None] if i % 3 else None)
        for i in range(examples(6_000, 20_000))
    ]
    commit(java, tmp_path / "t", write(tmp_path / "t", rows))
    assert same(columns, java.read(tmp_path / "t"), rows)
