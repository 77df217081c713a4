"""Tables with a primary key that Java writes: we read the rows that Java reads, and those a dict
says.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidData
from tests.kits.merging import COLUMNS, ENGINES, Change, changes
from tests.kits.params import each_once, few, one_in
from tests.kits.reading import java_rows, wire_rows
from tests.kits.seeds import examples

ALONE = {"bucket": "2", "write-only": "true"}
LEVELS = ALONE | {
    # Compactions take the files of level 0 alone, and leave the levels below as they are.
    "bucket": "1",
    "compaction.force-up-level-0": "true",
    "compaction.size-ratio": "-100",
    "compaction.max-size-amplification-percent": "1000000",
}


def write(java: Any, path: Path, batch: list[Change], identifier: int) -> None:
    kinds, rows = zip(*batch, strict=True)
    java.write(path, list(rows), "java", identifier, kinds=list(kinds))


def assert_same_rows(java: Any, path: Path, unordered: int | None = None) -> PaimonTable:
    """We read what Java reads. `unordered` is a column of lists whose order Java does not
    define.
    """
    table = PaimonTable.load(str(path))
    ours = _counted(wire_rows(table.to_arrow(), table.schema.fields), unordered)
    assert ours == _counted(java_rows(java, table), unordered)
    return table


def unordered_in(options: dict[str, str]) -> int | None:
    """The column for `assert_same_rows` of a table of an engine with these options."""
    return [name for name, _ in COLUMNS].index("a") if "fields.a.distinct" in options else None


def _counted(rows: list[list[Any]], unordered: int | None) -> Counter[str]:
    if unordered is not None:
        for row in rows:
            row[unordered] = row[unordered] and sorted(row[unordered], key=str)
    return Counter(map(repr, rows))


@pytest.mark.parametrize("engine", one_in(3, ENGINES))
def test_every_engine_gives_the_rows_that_java_reads(
    engine: str, tmp_path: Path, java: Any
) -> None:
    options, kinds = ENGINES[engine]
    random = Random(engine)
    path = tmp_path / "db.db" / "t"
    java.create_table(path, COLUMNS, [], ["k"], ALONE | options)
    for identifier in range(examples(3, 5)):
        write(java, path, changes(random, kinds, 80, keys=50), identifier)
        if identifier == 1:
            java.compact(path, True, "java", 100)
    table = assert_same_rows(java, path, unordered_in(options))
    whole = table.to_arrow()
    for name in ("i", "a"):
        assert table.to_arrow(columns=[name]).equals(whole.select([name]))


LOOKED_UP = [name for name in ENGINES if "merge-engine" in ENGINES[name][0]]


@pytest.mark.parametrize("engine", few(LOOKED_UP, lambda engine: engine in LOOKED_UP[::3]))
def test_with_lookup_every_engine_gives_the_rows_of_several_levels_that_java_reads(
    engine: str, tmp_path: Path, java: Any
) -> None:
    options, kinds = ENGINES[engine]
    random, path = Random(engine), tmp_path / "db.db" / "t"
    java.create_table(path, COLUMNS, [], ["k"], LEVELS | {"changelog-producer": "lookup"} | options)
    for identifier in range(3):
        write(java, path, changes(random, kinds, 60, keys=50), identifier)
        if identifier < 2:
            java.compact(path, False, "java", 100 + identifier)
    table = assert_same_rows(java, path, unordered_in(options))
    assert sorted(file.meta.level for file in table.files()) == [0, 4, 5]


KEYS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, -1, 0, 5, 127],
    "BIGINT": [-(2**63), -1, 0, 2**63 - 1],
    "DOUBLE": [-1e300, -1.5, 0.0, 1e-300, 2.5],
    "DECIMAL(9, 3)": [Decimal("-1.500"), Decimal("0.000"), Decimal("999999.999")],
    "DECIMAL(30, 5)": [Decimal(-(10**20)), Decimal("-0.00001"), Decimal(10**20), Decimal("7.5")],
    "STRING": ["", "a", "aa", "b", "ä", "\U0001f600", "\uffff", "zz" * 20],
    "BYTES": [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00", b"\xff" * 20],
    "DATE": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "TIME(3)": [dt.time(0), dt.time(12, 30, 0, 5000), dt.time(23, 59, 59)],
    "TIMESTAMP(3)": [
        dt.datetime(1900, 1, 1),
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 1, 1, 0, 0, 1),
    ],
    "TIMESTAMP(9)": ["1969-12-31T23:59:59.999999999", "2024-01-01T00:00:00.000000001"],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [
        dt.datetime(1960, 1, 1, tzinfo=dt.timezone.utc),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),
    ],
}


@pytest.mark.parametrize("type_", one_in(3, KEYS))
def test_keys_of_every_type_are_found_again(type_: str, tmp_path: Path, java: Any) -> None:
    """Changes of composite keys, the type's column first and last, as a dict keeps them."""
    random, path, rows = Random(type_), tmp_path / "db.db" / "t", {}
    schema = [("n", "INT NOT NULL"), ("v", "STRING"), ("key", f"{type_} NOT NULL")]
    keys = ["key", "n"] if random.random() < 0.5 else ["n", "key"]
    java.create_table(path, schema, [], keys, ALONE)
    for identifier in range(3):
        batch = []
        for number in range(40):
            row = {
                "n": random.randint(0, 2),
                "v": f"{identifier}-{number}",
                "key": random.choice(KEYS[type_]),
            }
            kind = random.choice(["+I", "+U", "-D"])
            batch.append((kind, row))
            rows.pop((row["n"], row["key"]), None)
            if kind != "-D":
                rows[row["n"], row["key"]] = row["v"]
        write(java, path, batch, identifier)
    table = assert_same_rows(java, path)
    read = table.to_arrow(columns=["v"])["v"].to_pylist()
    assert sorted(read) == sorted(rows.values())


@pytest.mark.parametrize(
    ("thin", "format_"), each_once(["true", "false"], ["parquet", "orc", "avro"])
)
def test_files_of_every_format_are_merged_with_and_without_key_columns(
    format_: str, thin: str, tmp_path: Path, java: Any
) -> None:
    random, path = Random(format_), tmp_path / "db.db" / "t"
    options = ALONE | {"file.format": format_, "data-file.thin-mode": thin, "sequence.field": "g"}
    java.create_table(path, COLUMNS, ["b"], ["b", "k"], options)
    for identifier in range(3):
        batch = [
            (kind, row | {"b": row["k"] % 2 == 0})
            for kind, row in changes(random, "ID", 60, keys=40)
        ]
        write(java, path, batch, identifier)
    table = assert_same_rows(java, path)
    some = table.to_arrow(partition={"b": True}, columns=["k", "b"])
    assert some.num_rows and set(some["b"].to_pylist()) == {True}


def test_columns_that_differ_by_case_have_options_of_their_own(tmp_path: Path, java: Any) -> None:
    path = tmp_path / "db.db" / "t"
    schema = [("k", "INT NOT NULL"), ("a", "INT"), ("A", "INT")]
    options = {"merge-engine": "aggregation", "fields.A.aggregate-function": "sum"}
    java.create_table(path, schema, [], ["k"], ALONE | options)
    for identifier in (1, 2):
        write(java, path, [("+I", {"k": 1, "a": 1, "A": 1})], identifier)
    assert assert_same_rows(java, path).to_arrow().to_pylist() == [{"k": 1, "a": 1, "A": 2}]


def test_a_first_row_table_shows_what_a_compaction_has_taken_up(tmp_path: Path, java: Any) -> None:
    path = tmp_path / "db.db" / "t"
    schema = [("k", "INT NOT NULL"), ("v", "INT")]
    java.create_table(path, schema, [], ["k"], ALONE | {"merge-engine": "first-row"})
    write(java, path, [("+I", {"k": 1, "v": 1}), ("+I", {"k": 1, "v": 2})], 1)
    assert assert_same_rows(java, path).to_arrow().num_rows == 0
    java.compact(path, True, "java", 2)
    write(java, path, [("+I", {"k": 1, "v": 3}), ("+I", {"k": 2, "v": 4})], 3)
    assert assert_same_rows(java, path).to_arrow().to_pylist() == [{"k": 1, "v": 1}]


@pytest.mark.parametrize(("switched", "total", "warned"), [(2, 111, False), (3, 110, True)])
def test_a_table_that_gets_a_lookup_between_its_levels_loses_the_older_one_and_verify_warns(
    switched: int, total: int, warned: bool, tmp_path: Path, java: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    sums = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    java.create_table(path, [("k", "INT NOT NULL"), ("v", "INT")], [], ["k"], LEVELS | sums)
    for number, value in enumerate((1, 10, 100), 1):
        if number == switched:
            java.alter_table(path, ("set", "changelog-producer", "lookup"))
        write(java, path, [("+I", {"k": 1, "v": value})], 2 * number)
        if number < 3:
            java.compact(path, False, "java", 2 * number + 1)
    table = assert_same_rows(java, path)
    assert sorted(file.meta.level for file in table.files()) == [0, 4, 5]
    assert table.to_arrow()["v"].to_pylist() == [total]
    assert [one.code for one in table.verify().findings] == ["levels-without-lookup"] * warned


def test_deletes_that_an_engine_does_not_accept_stop_the_read_as_they_stop_java(
    tmp_path: Path, java: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    schema = [("k", "INT NOT NULL"), ("v", "INT")]
    java.create_table(path, schema, [], ["k"], ALONE | {"merge-engine": "partial-update"})
    write(java, path, [("+I", {"k": 1, "v": 1})], 1)
    write(java, path, [("-D", {"k": 1, "v": 1})], 2)
    with pytest.raises(Exception, match="can not accept delete"):
        java.read(path)
    with pytest.raises(InvalidData, match="ignore-delete") as raised:
        PaimonTable.load(str(path)).to_arrow()
    assert raised.value.context["table"] == str(path)


def test_old_schemas_are_merged_with_new_ones(tmp_path: Path, java: Any) -> None:
    random, path = Random(5), tmp_path / "db.db" / "t"
    schema = [("k", "INT NOT NULL"), ("v", "INT"), ("w", "INT"), ("x", "STRING")]
    options = ALONE | {"merge-engine": "partial-update", "sequence.field": "v"}
    java.create_table(path, schema, [], ["k"], options)

    def batch(names: str) -> list[Change]:
        numbers = [None, *range(10)]
        made = []
        for _ in range(30):
            row = {"k": random.randint(1, 20)} | {name: random.choice(numbers) for name in names}
            made.append(("+I", row))
        return made

    write(java, path, [(kind, row | {"x": "old"}) for kind, row in batch("vw")], 1)
    java.alter_table(
        path, ("rename", "w", "u"), ("add", "n", "DOUBLE"), ("type", "v", "BIGINT"), ("drop", "x")
    )
    write(java, path, batch("vun"), 2)
    java.alter_table(path, ("add", "x", "INT"))
    write(java, path, batch("vunx"), 3)
    assert_same_rows(java, path)


def test_of_equal_sequence_numbers_java_and_we_take_the_row_committed_first(
    tmp_path: Path, java: Any
) -> None:
    """Two writers that start from the same snapshot give out the same numbers. (Of several such
    keys Java takes the row of one file here and of the other there, as its tree of files happens to
    stand.)
    """
    path = tmp_path / "db.db" / "t"
    java.create_table(path, [("k", "INT NOT NULL"), ("v", "STRING")], [], ["k"], ALONE)
    users = ("first", "second")
    prepared = [
        java.prepare_commit_bytes(path, [{"k": 1, "v": user}], user, 1).messages for user in users
    ]
    for messages, user in zip(reversed(prepared), reversed(users), strict=True):
        java.commit_messages(path, messages, user, 1)
    assert assert_same_rows(java, path).to_arrow()["v"].to_pylist() == ["second"]


def test_with_deletion_vectors_compacted_files_are_read_without_their_rows(
    tmp_path: Path, java: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    options = ALONE | {"bucket": "1", "deletion-vectors.enabled": "true"}
    java.create_table(path, [("k", "INT NOT NULL"), ("v", "INT")], [], ["k"], options)
    write(java, path, [("+I", {"k": key, "v": 1}) for key in range(5)], 1)
    assert assert_same_rows(java, path).to_arrow().num_rows == 0
    java.compact(path, True, "java", 2)
    write(java, path, [("+U", {"k": 1, "v": 2})], 3)
    assert assert_same_rows(java, path).to_arrow().num_rows == 5
    java.compact(path, False, "java", 4)
    assert assert_same_rows(java, path).to_arrow()["v"].to_pylist() == [1, 2, 1, 1, 1]
    java.compact(
        path, True, "java", 5
    )  # leaves an index file without vectors, or with those of old files
    assert java.index_files(path)
    assert assert_same_rows(java, path).to_arrow()["v"].to_pylist() == [1, 2, 1, 1, 1]
