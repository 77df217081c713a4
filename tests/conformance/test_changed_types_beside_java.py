"""Java changes the types of columns. Its rows, ours, and what a deletion, a merge and a compaction of
ours leave behind are the same: at the top, inside ROW, ARRAY and MAP, in every file format.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from decimal import Decimal
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JJavaError

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidData, UnsupportedFeature
from paimon_stream.format.types import parse_type
from paimon_stream.read.convert import convert, normalize
from tests.kits.conversions import (
    DIFFERENCES,
    FAILS,
    Change,
    every_change,
    java_reads,
    pairs,
)
from tests.kits.params import few
from tests.kits.reading import assert_rows, java_rows, wire_rows
from tests.kits.seeds import examples

FORMATS = ["parquet", "orc", "avro"]
ONE_OF_KEYS = {"bucket": "1", "write-only": "true"}


def decimals(*texts: str) -> list[Decimal]:
    return [Decimal(one) for one in texts]


CHANGES: list[tuple[str, str, list[Any]]] = [
    # A digit more than the old type has, after rounding.
    ("DECIMAL(4, 1)", "DECIMAL(10, 0)", decimals("999.9", "-999.9", "99.9", "0.5", "-0.5", "1.4")),
    ("DECIMAL(4, 1)", "DECIMAL(38, 0)", decimals("999.9", "-999.9", "1.5")),
    ("DECIMAL(4, 2)", "DECIMAL(10, 1)", decimals("99.99", "9.95", "-0.05")),
    ("DECIMAL(18, 3)", "DECIMAL(20, 2)", decimals("999999999999999.999", "1.005")),
    ("DECIMAL(20, 2)", "DECIMAL(38, 1)", decimals("999999999999999999.99", "-0.05")),
    ("DECIMAL(38, 2)", "DECIMAL(38, 0)", decimals("9" * 36 + ".99", "-" + "9" * 36 + ".50", "1.5")),
    # All digits are cut, or none is left before the point.
    ("DECIMAL(4, 4)", "DECIMAL(1, 0)", decimals("0.9999", "0.4999", "-0.5000")),
    ("DECIMAL(38, 38)", "DECIMAL(38, 0)", decimals("0." + "9" * 38, "0." + "4" * 38)),
    ("DECIMAL(38, 38)", "DECIMAL(1, 1)", decimals("0.94", "0.95", "-0.96")),
    ("DECIMAL(38, 0)", "DECIMAL(38, 38)", decimals("0", "1")),
    # What does not fit is NULL, also if only rounding makes it so.
    ("DECIMAL(4, 1)", "DECIMAL(3, 0)", decimals("999.9", "999.4", "-999.5")),
    ("DECIMAL(38, 2)", "DECIMAL(36, 0)", decimals("9" * 36 + ".99", "9" * 36 + ".49")),
    ("BIGINT", "DECIMAL(18, 0)", [2**63 - 1, -(10**18), 10**18 - 1]),
    # The nearest DOUBLE; with up to 18 digits, what Java makes of two DOUBLEs.
    ("DECIMAL(10, 2)", "DOUBLE", decimals("0.07", "4.35", "-70368744.17", "1.99")),
    (
        "DECIMAL(18, 6)",
        "DOUBLE",
        decimals("999999999999.999999", "0.000001", "123456789012.345678"),
    ),
    ("DECIMAL(9, 3)", "FLOAT", decimals("0.001", "16777.217", "999999.999")),
    (
        "DECIMAL(38, 10)",
        "DOUBLE",
        decimals("0.1", "-1234567890123456789.0123456789", "0.0000000001"),
    ),
    ("DECIMAL(38, 0)", "FLOAT", decimals("9" * 38, "16777217")),
    ("DECIMAL(38, 38)", "DOUBLE", decimals("0." + "0" * 37 + "1", "0." + "3" * 38)),
    ("DECIMAL(38, 2)", "BIGINT", decimals("9" * 36 + ".99", "-1.99")),
    # Padded with blanks and zeros.
    ("INT", "CHAR(4)", [1, -22, 12345]),
    ("BIGINT", "CHAR(3)", [1]),
    ("BOOLEAN", "CHAR(8)", [True, False]),
    ("BOOLEAN", "CHAR(2)", [True, False]),
    ("BYTES", "BINARY(4)", [b"a", b"", b"abcdef", b"ab\0d"]),
    ("BINARY(2)", "BINARY(4)", [b"ab"]),
    ("BINARY(4)", "VARBINARY(6)", [b"abcd"]),
]
_MOMENTS = [dt.datetime(2024, 2, 29, 1, 2, 3), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23)]
_BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59)
OTHER_KINDS: list[tuple[str, str, list[Any]]] = [
    ("DECIMAL(10, 3)", "STRING", decimals("0", "-0.001", "1234567.890", "-5")),
    ("DECIMAL(10, 3)", "VARCHAR(5)", decimals("-0.001", "1234567.890")),
    ("DECIMAL(10, 3)", "CHAR(12)", decimals("-0.001", "1234567.890")),
    ("DECIMAL(38, 38)", "STRING", decimals("0." + "9" * 38, "-0." + "0" * 37 + "1", "0")),
    ("DECIMAL(5, 0)", "STRING", decimals("5", "-99999")),
    ("DATE", "STRING", [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    ("TIMESTAMP(0)", "STRING", [*_MOMENTS, _BEFORE_1970]),
    ("TIMESTAMP(1)", "STRING", [_BEFORE_1970.replace(microsecond=900_000), *_MOMENTS]),
    ("TIMESTAMP(3)", "STRING", [_BEFORE_1970.replace(microsecond=999_000), *_MOMENTS]),
    ("TIMESTAMP(4)", "STRING", [_BEFORE_1970.replace(microsecond=999_900), *_MOMENTS]),
    ("TIMESTAMP(6)", "STRING", [_BEFORE_1970.replace(microsecond=1), *_MOMENTS]),
    ("TIMESTAMP(9)", "STRING", ["1969-12-31T23:59:59.999999999", "2024-02-29T01:02:03.120000000"]),
    ("BYTES", "STRING", [b"abc", "ä😀".encode(), b""]),
    ("BYTES", "VARCHAR(2)", [b"abc"]),
    ("BINARY(3)", "CHAR(5)", [b"abc"]),
    ("STRING", "BYTES", ["abc", "ä😀", ""]),
    ("STRING", "BINARY(5)", ["abc", "ä😀", ""]),
    ("CHAR(3)", "VARBINARY(2)", ["ab", "ä😀x"]),
    ("INT", "TIMESTAMP(3)", [0, -1, 2**31 - 1, -(2**31)]),
    ("BIGINT", "TIMESTAMP(6)", [1, -1, 253402300799, -62135596800]),
    ("BIGINT", "TIMESTAMP_LTZ(0)", [1, -1, 253402300799]),
    ("TIMESTAMP(3)", "INT", [_BEFORE_1970.replace(microsecond=999_000), *_MOMENTS]),
    ("TIMESTAMP(6)", "BIGINT", [_BEFORE_1970.replace(microsecond=1), *_MOMENTS]),
    ("TIMESTAMP_LTZ(6)", "BIGINT", [one.replace(tzinfo=dt.timezone.utc) for one in _MOMENTS]),
    ("BOOLEAN", "FLOAT", [True, False]),
    ("BOOLEAN", "DOUBLE", [True, False]),
    ("BOOLEAN", "DECIMAL(3, 1)", [True, False]),
    ("BOOLEAN", "DECIMAL(1, 1)", [True, False]),
    ("STRING", "INT", ["1", "-1", "+5", "1.9", "-1.9", "007", "1.", ".5", "-.5", "-2147483648"]),
    ("STRING", "TINYINT", ["127", "-128.9"]),
    ("VARCHAR(30)", "BIGINT", ["9223372036854775807", "-9223372036854775808.0"]),
    ("STRING", "DOUBLE", ["1.5", " 2 ", "1e3", "+.5E-3", "NaN", "-Infinity", "1e400", "-0", "1."]),
    ("STRING", "FLOAT", ["0.1", "16777217", "1e39", "-1e-50"]),
    ("STRING", "DECIMAL(5, 2)", ["1.005", "-1.005", "1000", "1e2", "999.995", "+1", "1E-3", ".5"]),
    ("STRING", "DECIMAL(38, 38)", ["0." + "9" * 38, "1"]),
    ("STRING", "BOOLEAN", ["true", "T", "yes", "1", "y", "FALSE", "0", "no", "n", "f"]),
    (
        "STRING",
        "DATE",
        ["2024-02-29", "2024-2-9", "2024-02-29 10:00:00", " 2024-02-29", "0001-01-01"],
    ),
    (
        "STRING",
        "TIMESTAMP(3)",
        [
            "2024-02-29 01:02:03.123456",
            "1969-12-31 23:59:59.999999",
            "2024-02-29",
            "2024-2-9 1:2:3",
            "2024-02-29 01:02:03.1",
        ],
    ),
    ("STRING", "TIMESTAMP(0)", ["2024-02-29 01:02:03.9", "1969-12-31 23:59:59.9"]),
    (
        "CHAR(30)",
        "TIMESTAMP(9)",
        ["2024-02-29 01:02:03.123456789", "2024-02-29 01:02:03", "2262-04-11 23:47:16.854775807"],
    ),
]
NOT_PARSED = {
    "INT": ["abc", "", " 7 ", "2147483648", "1e3", "-", "0x1", "1_0"],
    "TINYINT": ["128"],
    "DOUBLE": ["abc", "", "inf"],
    "DECIMAL(5, 2)": ["abc", "", " 1.5 "],
    "BOOLEAN": ["abc", "", " true "],
    "DATE": [
        "2024-02-30",
        "abc",
        "",
        "10000-01-01",
        "-0001-01-01",
        " 2024-02-29 01:02:03",
        "2024-02-29t01:02:03",
        "2024-02-29-1",
        "\u00a02024-02-29",
    ],
    "TIME(3)": ["abc", "", "1:2:x", "1:2:3:4", "-", "1.5", "\u00a01:2"],
    "TIMESTAMP(3)": [
        "abc",
        "",
        "2024-02-29T01:02:03",
        "2024-02-29t01:02:03",
        "2024-02-29 01:02",
        "2024-02-29 01:02:03Z",
        " 2024-02-29 01:02:03",
        "2024-02-29 01:02:03 ",
        "2024-02-29\t01:02:03",
        "2024-02-29  01:02:03",
        "2024-02-32",
        "2024--02",
        "2024-02-29 24:00:01",
    ],
    "TIMESTAMP(1)": ["0", "-1"],
    "TIMESTAMP(6)": ["0000-01-01", "0000-12-31 23:59:59"],
}
"""Texts on which Java fails."""
TABLES = {
    "a share": [*CHANGES[::4], *OTHER_KINDS[::8]],
    "the same kind": CHANGES,
    "other kinds": OTHER_KINDS,
    **{f"every ninth pair from {first}": every_change()[first::9] for first in range(9)},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db.db" / "t"


def names_of(java: Any, *parts: str) -> Any:
    made = java._gateway.new_array(java._jvm.java.lang.String, len(parts))
    for position, part in enumerate(parts):
        made[position] = part
    return made


def retype(java: Any, path: Path, *changes: tuple[tuple[str, ...], str]) -> None:
    """Java changes these columns, or what is inside them, to other types."""
    change = java._paimon.schema.SchemaChange
    java._schema_manager(path).commitChanges(
        [
            change.updateColumnType(names_of(java, *place), java._java_type(type_), False)
            for place, type_ in changes
        ]
    )


def nested_table(java: Any, path: Path, file_format: str, wanted: list[Change]) -> PaimonTable:
    """A table that has each change of a type at the top, in a ROW, an ARRAY and a MAP."""
    schema = [("k", "INT")]
    for number, (old, _, _) in enumerate(wanted):
        schema += [(f"c{number}", old), (f"r{number}", f"ROW<v {old}>")]
        schema += [(f"a{number}", f"ARRAY<{old}>"), (f"m{number}", f"MAP<STRING, {old}>")]
    options = {"file.format": file_format, "bucket": "-1", "compaction.min.file-num": "2"}
    options["orc.timestamp-ltz.legacy.type"] = "false"
    java.create_table(path, schema, options=options)
    rows = []
    for key, values in enumerate(zip_longest(*(values for _, _, values in wanted))):
        row: list[Any] = [key]
        for value in values:
            row += [value, {"v": value}, [value, None, value], {"x": value, "y": None}]
        rows.append(row)
    rows.append([-1, *[None] * (4 * len(wanted))])
    java.write(path, rows)
    java.write(path, rows[:1])
    changes: list[tuple[tuple[str, ...], str]] = []
    for number, (_, new, _) in enumerate(wanted):
        changes += [((f"c{number}",), new), ((f"r{number}", "v"), new)]
        changes += [((f"a{number}", "element"), new), ((f"m{number}", "value"), new)]
    retype(java, path, *changes)
    return PaimonTable.load(str(path))


@pytest.mark.parametrize(
    ("file_format", "kinds"),
    few(product(FORMATS, TABLES), lambda *chosen: chosen == ("parquet", "a share")),
)
def test_changed_types_are_read_filtered_and_compacted_as_java_reads_them(
    java: Any, path: Path, file_format: str, kinds: str
) -> None:
    changes = TABLES[kinds]
    if file_format == "orc":  # Arrow reads and writes not all moments there
        changes = [one for one in changes if "TIMESTAMP" not in one[0] + one[1]]
        changes = [one for one in changes if not is_cut_by_orc(*one[:2])]
    if file_format == "avro":  # Java writes no nanoseconds there
        changes = [one for one in changes if "TIMESTAMP(9)" not in one[:2]]
    table = nested_table(java, path, file_format, changes)
    fields, before = table.schema.fields, java_rows(java, table)
    read = table.to_arrow()
    ours = wire_rows(read, fields)
    for place, one in enumerate(fields):  # one column at a time, so that a failure names it
        number = one.name.lstrip("kcram")
        got = sorted(str(row[place]) for row in ours)
        what = f"{one.name}: {changes[int(number)][:2] if number else ''}"
        assert (what, got) == (what, sorted(str(row[place]) for row in before))
    for place, one in enumerate(fields):
        if one.name[0] == "c":
            scalar = next(cell for cell in read.column(one.name) if cell.is_valid)
            chosen = pa.table({one.name: pa.array([scalar.as_py()], scalar.type)})
            value = wire_rows(chosen, [one])[0][0]
            found = table.to_arrow(columns=["k"], filter=pc.field(one.name) == scalar)
            same = sorted(row[0] for row in before if row[place] == value)
            assert (one.name, value, sorted(found["k"].to_pylist())) == (one.name, value, same)
    assert table.compact(full=True).snapshot_id == 3
    after = java_rows(java, PaimonTable.load(str(path)))
    if file_format == "orc":  # ORC does not keep the blanks at the end of CHAR, nor does Java's
        before, after = [[blankless(row) for row in rows] for rows in (before, after)]
    for place, one in enumerate(fields):
        left, there = ([str(row[place]) for row in rows] for rows in (after, before))
        assert (one.name, sorted(left)) == (one.name, sorted(there))


def flat_table(java: Any, path: Path, changes: list[Change]) -> PaimonTable:
    """A table with a column for each change of a type."""
    columns = [(f"c{place}", old) for place, (old, _, _) in enumerate(changes)]
    java.create_table(path, columns, options={"bucket": "-1"})
    java.write(path, list(zip_longest(*(values for _, _, values in changes))))
    retype(java, path, *(((f"c{at}",), new) for at, (_, new, _) in enumerate(changes)))
    return PaimonTable.load(str(path))


def test_values_that_became_another_type_are_those_that_java_reads(java: Any, path: Path) -> None:
    changes = [*OTHER_KINDS, *every_change()]
    table = flat_table(java, path, changes)
    read, expected = table.to_arrow(), java_rows(java, table)
    for place, got in enumerate(zip(*wire_rows(read, table.schema.fields), strict=True)):
        there = [row[place] for row in expected]
        assert (changes[place][:2], str(list(got))) == (changes[place][:2], str(there))


def test_java_changes_the_types_that_the_matrix_says(java: Any) -> None:
    casting = java._paimon.casting.CastExecutors
    may = java._paimon.types.DataTypeCasts.supportsCast
    types = {text: java._java_type(text) for pair in pairs() for text in pair}
    there = {
        pair: may(types[pair[0]], types[pair[1]], True)
        and casting.resolve(types[pair[0]], types[pair[1]]) is not None
        for pair in pairs()
    }
    assert there == {pair: java_reads(*pair) for pair in pairs()}


@pytest.mark.parametrize("fails", [False, True])
def test_what_differs_on_purpose_differs_as_the_page_says(
    java: Any, path: Path, fails: bool
) -> None:
    """The page has what Java 17 reads; later versions print DOUBLEs otherwise."""
    version = int(java._jvm.java.lang.System.getProperty("java.specification.version"))
    chosen = [
        one
        for one in DIFFERENCES
        if (one.java == FAILS) is fails and not (one.of_old_java and version > 18)
    ]
    table = flat_table(java, path, [(one.old, one.new, [one.value]) for one in chosen])
    if fails:
        with pytest.raises(Py4JJavaError):
            java.read(path)
    else:
        assert java_rows(java, table) == [[one.java for one in chosen]]
    assert [ours_of(table, place) for place in range(len(chosen))] == [one.ours for one in chosen]


def ours_of(table: PaimonTable, place: int) -> Any:
    """The value in this column, or the name of the error."""
    column = table.schema.fields[place]
    try:
        return wire_rows(table.to_arrow(columns=[column.name]), [column])[0][0]
    except (InvalidData, UnsupportedFeature) as error:
        return type(error).__name__


@pytest.mark.parametrize("old", ["FLOAT", "DOUBLE"])
def test_random_floats_become_the_decimals_of_java(java: Any, path: Path, old: str) -> None:
    """Few digits stay, so that the 17th digit, which depends on the version of Java, does not
    count. NaN and infinities are refused, as Java fails on them.
    """
    rng = random.Random(55)
    targets = ["DECIMAL(10, 2)", "DECIMAL(38, 12)", "DECIMAL(5, 5)", "DECIMAL(18, 0)"]
    values = [
        rng.choice([1, -1]) * rng.randrange(10**7) / 10 ** rng.randrange(9) for _ in range(500)
    ]
    values += [1e-300 if old == "DOUBLE" else 1e-40, 5e-39, 1e30, 3e38, -0.0, 0.5, 2.5, 1.005]
    table = flat_table(java, path, [(old, new, values) for new in targets])
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))
    for value in (float("nan"), float("inf")):
        with pytest.raises(InvalidData, match="NaN or infinities"):
            convert(
                pa.array([1.0, value]), parse_type("DOUBLE"), parse_type(targets[0]), normalize, "c"
            )


def test_text_on_which_java_fails_is_refused_by_name(java: Any, path: Path) -> None:
    """Each text is tried alone, by Java, too."""
    columns = {f"c{at}": text for at, text in enumerate(NOT_PARSED)}
    java.create_table(path, [("k", "INT"), *((name, "STRING") for name in columns)])
    rows = list(zip_longest(*NOT_PARSED.values()))
    java.write(path, [(key, *row) for key, row in enumerate(rows)])
    retype(java, path, *(((name,), new) for name, new in columns.items()))
    table = PaimonTable.load(str(path))
    with pytest.raises(Py4JJavaError, match="Failed to cast value"):
        java.read(path)
    assert table.to_arrow(columns=["k"]).num_rows == len(rows)
    for name in columns:
        with pytest.raises(InvalidData, match=f"'{name}' was STRING") as refused:
            table.to_arrow(columns=[name])
        assert refused.value.context["count"] >= 1
    for new, texts in NOT_PARSED.items():
        for text in texts:
            with pytest.raises(Py4JJavaError):
                java_cast(java, text, new)
            with pytest.raises(InvalidData):
                convert(pa.array([text]), parse_type("STRING"), parse_type(new), normalize, "c")


def java_cast(java: Any, text: str, new: str) -> Any:
    """What Java makes of one text."""
    cast = java._paimon.casting.CastExecutors.resolve(
        java._java_type("STRING"), java._java_type(new)
    )
    return cast.cast(java._paimon.data.BinaryString.fromString(text))


@pytest.mark.parametrize("new", ["DATE", "TIME(3)", "TIMESTAMP(3)"])
def test_blanks_and_digits_anywhere_in_a_text_count_as_in_java(java: Any, new: str) -> None:
    """Java takes a number with zeros in front of it in a TIMESTAMP, if its last digits say the same
    again (`DIFFERENCES`); such texts are not drawn.
    """
    rng = random.Random(55)
    drawn = ["0", " ", "\t", "t", "T", ":", "\0", "\u3000"]
    for _ in range(examples(60, 2000)):
        text = rng.choice(["2024-2-9", "2024-02-29 01:02:03.5", "2021-2-31", "1:2:3.4567", "9:0"])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(drawn) + text[at + rng.randrange(2) :]
        if new == "TIMESTAMP(3)" and re.search("[-: ][0-9]{3}", text):
            continue
        if new == "TIME(3)" and re.search(r"-|\..*[^0-9]", text):
            continue
        try:
            of_java = java_cast(java, text, new)
        except Py4JJavaError:
            of_java = None
        try:
            values = convert(
                pa.array([text]), parse_type("STRING"), parse_type(new), normalize, "c"
            )
            (ours,) = values.view(pa.int64() if "STAMP" in new else pa.int32()).to_pylist()
        except InvalidData:
            ours = None
        if of_java is not None and "STAMP" in new:
            of_java = of_java.getMillisecond()
        if new == "TIME(3)" and of_java is not None and not 0 <= of_java < 86_400_000:
            of_java = None  # Java prints no such time
        assert (text, ours) == (text, of_java)


def is_cut_by_orc(old: str, new: str) -> bool:
    """Whether only ORC cuts texts. Java does not cut bytes and nested values that became VARCHAR(n),
    nor text that is written into CHAR(n), and every writer of ORC does.
    """
    before, now = parse_type(old), parse_type(new)
    if now.is_string and new != "STRING":
        return before.is_binary or before.is_nested
    return before.is_string and old != "STRING" and new == "DATE"


def blankless(value: Any) -> Any:
    if isinstance(value, list):
        return [blankless(one) for one in value]
    return value.rstrip(" ") if isinstance(value, str) else value


@pytest.mark.parametrize("file_format", FORMATS)
def test_random_decimals_become_the_floats_and_decimals_of_java(
    java: Any, path: Path, file_format: str
) -> None:
    """Many digits, so that a rounding of ours that is not Java's shows."""
    rng = random.Random(55)
    pairs = [
        ("DECIMAL(10, 2)", "DOUBLE"),
        ("DECIMAL(18, 6)", "DOUBLE"),
        ("DECIMAL(18, 17)", "FLOAT"),
        ("DECIMAL(9, 3)", "FLOAT"),
        ("DECIMAL(38, 10)", "DOUBLE"),
        ("DECIMAL(30, 20)", "FLOAT"),
        ("DECIMAL(38, 19)", "DECIMAL(20, 3)"),
        ("DECIMAL(19, 9)", "DECIMAL(12, 2)"),
    ]
    schema = [("k", "INT"), *((f"c{place}", old) for place, (old, _) in enumerate(pairs))]
    java.create_table(path, schema, options={"bucket": "-1", "file.format": file_format})
    sizes = [tuple(map(int, old[8:-1].split(","))) for old, _ in pairs]
    rows = [
        [
            key,
            *(
                Decimal((rng.getrandbits(1), digits_of(rng, precision), -scale))
                for precision, scale in sizes
            ),
        ]
        for key in range(500)
    ]
    java.write(path, rows)
    retype(java, path, *(((f"c{place}",), new) for place, (_, new) in enumerate(pairs)))
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))


def digits_of(rng: random.Random, most: int) -> tuple[int, ...]:
    return tuple(rng.randrange(10) for _ in range(rng.randint(1, most)))


def test_a_deletion_leaves_rows_that_only_the_rounding_of_the_old_type_made_zero(
    java: Any, path: Path
) -> None:
    options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
    java.create_table(path, [("id", "INT"), ("d", "DECIMAL(4, 1)")], options=options)
    java.write(path, [(1, Decimal("999.9")), (2, Decimal("0.0")), (3, Decimal("5.0"))])
    java.alter_table(path, ("type", "d", "DECIMAL(10, 0)"))
    assert PaimonTable.load(str(path)).delete(pc.field("d") == Decimal(0)).rows == 1
    left = sorted((row["id"], row["d"]) for row in java.read(path))
    assert left == [(1, Decimal(1000)), (3, Decimal(5))]


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_rows_of_before_and_after_a_change_merge_as_in_java(
    java: Any, path: Path, engine: str
) -> None:
    """A sum is one of the numbers that are rounded, not the rounded sum."""
    options = {**ONE_OF_KEYS, "merge-engine": engine, "fields.d.aggregate-function": "sum"}
    if engine == "deduplicate":
        del options["fields.d.aggregate-function"]
    schema = [("k", "INT NOT NULL"), ("d", "DECIMAL(4, 1)"), ("f", "DECIMAL(10, 2)")]
    java.create_table(path, schema, (), ["k"], options)
    old = [(k, Decimal("999.9"), Decimal("4.35")) for k in range(4)]
    java.write(path, old, "java", 1)
    java.write(path, old[1:], "java", 2)
    java.alter_table(path, ("type", "d", "DECIMAL(10, 0)"), ("type", "f", "DOUBLE"))
    java.write(path, [(k, Decimal(1), 0.1) for k in (2, 3, 4)], "java", 3)
    table = PaimonTable.load(str(path))
    before = java_rows(java, table)
    assert_rows(table.to_arrow(), table.schema.fields, before)
    for number in {row[1] for row in before}:
        found = table.to_arrow(filter=pc.field("d") == Decimal(number)).num_rows
        assert (number, found) == (number, sum(row[1] == number for row in before))
    table.compact(full=True)
    assert sorted(java_rows(java, PaimonTable.load(str(path)))) == sorted(before)


FINER = [
    ("TIMESTAMP(3)", "TIMESTAMP(9)", dt.datetime(9999, 12, 31)),
    ("TIMESTAMP(6)", "TIMESTAMP(7)", dt.datetime(1, 1, 1)),
    ("DATE", "TIMESTAMP(9)", dt.date(9999, 12, 31)),
    ("STRING", "TIMESTAMP(9)", "9999-12-31"),
    ("BIGINT", "TIMESTAMP(9)", 253402300799),
]


@pytest.mark.parametrize(("old", "new", "moment"), FINER)
def test_moments_beyond_nanoseconds_are_refused_by_name_and_verify_sees_them(
    java: Any, path: Path, old: str, new: str, moment: Any
) -> None:
    java.create_table(path, [("k", "INT"), ("until", old), ("l", f"ARRAY<{old}>")])
    java.write(path, [(1, moment, [moment]), (2, None, None)])
    retype(java, path, (("until",), new), (("l", "element"), new))
    table = PaimonTable.load(str(path))
    assert len(java.read(path)) == 2
    for name in ("until", "l"):
        with pytest.raises(UnsupportedFeature, match=f"'{name}") as refused:
            table.to_arrow(columns=[name])
        assert "change the column's type" in str(refused.value)
        assert "backup" not in str(refused.value)
    assert table.to_arrow(columns=["k"]).num_rows == 2
    findings = [one for one in table.verify(sample=10).findings if one.code == "column-not-read"]
    assert [(one.severity, "backup" in one.cure) for one in findings] == [("warning", False)] * 2
    retype(java, path, (("until",), "TIMESTAMP(6)"), (("l", "element"), "TIMESTAMP(6)"))
    assert len(java.read(path)) == 2
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))
    assert table.verify(sample=10).findings == ()


@pytest.mark.parametrize("file_format", few(FORMATS, lambda name: name == "parquet"))
def test_text_of_deleted_rows_need_not_parse(kinds: Any, path: Path, file_format: str) -> None:
    """Whoever deletes the rows that do not parse, and then changes the type, can read the table."""
    options = {"bucket": "-1", "deletion-vectors.enabled": "true", "file.format": file_format}
    columns = [("id", "INT"), ("n", "STRING"), ("l", "ARRAY<STRING>")]
    kinds.create_table(path, columns, options=options)
    kinds.write(path, [(1, "7", ["7"]), (2, "x", ["8", "y"]), (3, None, [None]), (4, "9", [])])
    kinds.delete_rows(path, lambda row: row["id"] == 2)
    retype(kinds, path, (("n",), "INT"), (("l", "element"), "INT"))
    table = PaimonTable.load(str(path))
    before = java_rows(kinds, table)
    assert sorted(row[0] for row in before) == [1, 3, 4]
    assert_rows(table.to_arrow(), table.schema.fields, before)
    assert table.to_arrow(filter=pc.field("n") > 7)["id"].to_pylist() == [4]
    assert table.compact(full=True).snapshot_id is not None
    assert sorted(java_rows(kinds, PaimonTable.load(str(path)))) == sorted(before)
