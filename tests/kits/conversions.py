"""The matrix of changes of a column's type: which of them Java reads, with which values, and what
of it is refused or differs here. It runs beside Java in `tests/conformance`, and the page on
formats has its differences. Written into the page, and counted, with some types only or with all:

.venv/bin/python -m tests.kits.conversions [TYPE ...]
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Collection, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import TypeRoot, parse_type
from paimon_stream.read.convert import REFUSED, check_evolution
from tests.kits.pages import written_into

PAGE: Final = Path(__file__).parents[2] / "docs" / "format-notes.md"

Pair = tuple[str, str]
Change = tuple[str, str, list[Any]]

_UTC: Final = dt.timezone.utc
_MOMENTS: Final = [
    dt.datetime(2024, 2, 29, 1, 2, 3, 456_000),
    dt.datetime(1970, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_000),
]
_BEFORE_1970: Final = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_000), dt.datetime(1, 1, 1)]
_SECONDS: Final = [1, -1, 0, 253402300799, -62135596800]
_INTEGERS: Final = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_FLOATS: Final = [0.1, -1.5, 0.5, 1e10, -1e-7, 16777216.0, 0.0]
_CLOCKS: Final = [dt.time(1, 2, 3, 450_000), dt.time(0), dt.time(23, 59, 59, 999_000)]

VALUES: Final[dict[str, list[Any]]] = {
    "BOOLEAN": [True, False],
    **{
        name: [1, 0, -1, 2**bits - 1, -(2**bits), 42]  # the last is one of the values kept by CHAR
        for name, bits in _INTEGERS.items()
    },
    "FLOAT": _FLOATS,
    "DOUBLE": [*_FLOATS, 123456.785, -0.005, 1e300, 99999999.995],
    "DECIMAL(10, 2)": [Decimal(text) for text in ("0.05", "-99999999.99", "1.50", "300.00")],
    "DECIMAL(38, 4)": [Decimal(text) for text in ("0.0005", "-" + "9" * 34 + ".9999", "1")],
    "CHAR(5)": ["a", "äö", ""],
    "VARCHAR(5)": ["a", "äöüß€", ""],
    "STRING": ["a", "äöüß€ and more", ""],
    "BINARY(5)": [b"abcde"],
    "VARBINARY(5)": [b"abc", b""],
    "BYTES": [b"abcdefg", "ä€".encode(), b""],
    "DATE": [dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(1, 1, 1)],
    "TIME(0)": [time.replace(microsecond=0) for time in _CLOCKS],
    "TIME(3)": _CLOCKS,
    "TIMESTAMP(3)": [*_MOMENTS, *_BEFORE_1970],
    "TIMESTAMP(6)": [*_MOMENTS, *_BEFORE_1970],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [one.replace(tzinfo=_UTC) for one in _MOMENTS],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [one.replace(tzinfo=_UTC) for one in _MOMENTS],
    "ARRAY<INT>": [[1, None, -2], []],
    "ARRAY<ROW<d DATE, m MAP<STRING, DECIMAL(5, 2)>>>": [
        [{"d": dt.date(2024, 2, 29), "m": {"a": Decimal("-1.50"), "": None}}, None],
        [{"d": None, "m": {}}, {"d": None, "m": None}],
    ],
    "MAP<STRING, BOOLEAN>": [{"ä": True, "b": None}, {}],
    "MAP<INT, ARRAY<BYTES>>": [{1: [b"a", None], 2: []}],
    "MULTISET<STRING>": [{"a": 1}],
    "ROW<a INT, t TIME(3)>": [{"a": 1, "t": _CLOCKS[0]}, {"a": None, "t": None}],
    "ROW<a TIMESTAMP(6), r ROW<b STRING>>": [{"a": _MOMENTS[0], "r": {"b": "x, {y}"}}],
}
"""Values of each type, extremes among them."""

PARSED: Final[dict[str, list[str]]] = {
    **{key: ["1", "-7", "+5", "1.9", ".5", "007", "."] for key in _INTEGERS},
    "FLOAT": ["1.5", "-.5", "NaN", "\t1f"],
    "DOUBLE": ["1.5", "1e9", "1e-9", "1.5D\n"],
    "DECIMAL": ["1.005", "-9.99", "1e3"],
    "BOOLEAN": ["true", "F", "1", "no"],
    "DATE": ["2024-2-9", "19782", "-1", " 7", "7-\t2", "24 t"],
    "TIME": ["1:2:3", "01:02", "1:2:3.", "1:2:3.4", "0:0:0.1", "86399", " 5", "1:\t2", "1:60"],
    "TIMESTAMP": ["2024-2-9", "0", "-1"],
}
"""Texts that parse as values of a kind; none is longer than CHAR(5) holds, if that can be."""

LONGER: Final[dict[str, list[str]]] = {
    "DATE": [
        "2024-02-29",
        "0001-01-01",
        "2024-02-29\t",
        " \n2024 - 02 -29 ",
        "\t2024-002-029 T",
        "2024 -02-29",
        "2024-02",
    ],
    "TIME": [
        "01:02:03.4",
        "23:59:59.9994",
        "1:2:3.9996",
        "00:00:00.12345",
        "\t01 :02: 03 . 5\n",
        "0:90:120",
    ],
    "TIMESTAMP": [
        "2024-02-29 01:02:03.123456",
        "0001-01-01",
        "1709168523123",
        "-62135596800000",
        "2024-02-29 01:02:03.",
        "2021-02-31 01:02:03",
        "2024-4-31",
        "2023-12-31 24:00:0.0",
        "2024-2- :2:",
    ],
}
"""Longer ones, for STRING."""

_NUMBERS: Final = "TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL"
_TEXTS: Final = "CHAR VARCHAR"
_ANY_MOMENT: Final = "TIMESTAMP TIMESTAMP_LTZ"
_OF_TEXT: Final = f"BOOLEAN {_NUMBERS} {_TEXTS} BINARY VARBINARY DATE TIME {_ANY_MOMENT}"
JAVA_CONVERTS: Final[dict[str, str]] = {
    "BOOLEAN": f"BOOLEAN {_NUMBERS} {_TEXTS}",
    "TINYINT": f"BOOLEAN {_NUMBERS} {_TEXTS}",
    "SMALLINT": f"BOOLEAN {_NUMBERS} {_TEXTS}",
    "INT": f"BOOLEAN {_NUMBERS} {_TEXTS} {_ANY_MOMENT}",
    "BIGINT": f"BOOLEAN {_NUMBERS} {_TEXTS} {_ANY_MOMENT}",
    "FLOAT": f"{_NUMBERS} {_TEXTS}",
    "DOUBLE": f"{_NUMBERS} {_TEXTS}",
    "DECIMAL": f"{_NUMBERS} {_TEXTS}",
    "CHAR": _OF_TEXT,
    "VARCHAR": _OF_TEXT,
    "BINARY": f"BINARY VARBINARY {_TEXTS}",
    "VARBINARY": f"BINARY VARBINARY {_TEXTS}",
    "DATE": f"DATE {_ANY_MOMENT} STRING",
    "TIME": f"{_ANY_MOMENT} STRING",
    "TIMESTAMP": f"INT BIGINT DATE TIME {_ANY_MOMENT} STRING",
    "TIMESTAMP_LTZ": f"INT BIGINT DATE TIME {_ANY_MOMENT} STRING",
    "ARRAY": _TEXTS,
    "MAP": _TEXTS,
    "MULTISET": "",
    "ROW": _TEXTS,
}
"""To what Java changes each kind of type, and reads it then. STRING is VARCHAR without a limit."""


def java_reads(old: str, new: str) -> bool:
    """Whether Java changes one type of `VALUES` to another one, and reads it then."""
    kinds = JAVA_CONVERTS[parse_type(old).root.name].split()
    return parse_type(new).root.name in kinds or new in kinds


def is_read(old: str, new: str) -> bool:
    """Whether this package reads values of one type as another."""
    try:
        check_evolution("c", parse_type(old), parse_type(new))
    except UnsupportedFeature:
        return False
    return True


def pairs(types: Collection[str] = VALUES) -> Iterator[Pair]:
    """All pairs of types, without those of two nested types, whose members are changed instead."""
    for old in types:
        for new in types:
            both_nested = parse_type(old).is_nested and parse_type(new).is_nested
            if old != new and not both_nested:
                yield old, new


def every_change() -> list[Change]:
    """Each pair that Java and this package read, with values that both read alike."""
    return [
        (old, new, values_of(old, new))
        for old, new in pairs()
        if java_reads(old, new) and is_read(old, new)
    ]


def values_of(old: str, new: str) -> list[Any]:
    """Values of a type that another type may have."""
    kind = parse_type(new).root.name
    if parse_type(old).is_string and kind in PARSED:
        return [*PARSED[kind], *(LONGER.get(kind, []) if old == "STRING" else [])]
    if parse_type(old).is_timestamp and kind == "TIME":
        return _MOMENTS
    if old == "BIGINT" and parse_type(new).is_timestamp:
        return _SECONDS
    return VALUES[old]


class Difference(NamedTuple):
    """A value that Java and this package read differently.

    Attributes:
        old: the type that the value was written with.
        new: the type that it is read as.
        value: the value.
        java: what Java 1.4.2 reads, in the form of the golden tables; FAILS if it fails.
        ours: what is read here, or the name of the error.
        of_old_java: whether Java reads this only up to version 18 of its runtime.
    """

    old: str
    new: str
    value: Any
    java: Any
    ours: Any
    of_old_java: bool = False


FAILS: Final = "fails"
DIFFERENCES: Final = [
    Difference("DATE", "STRING", "+12345-01-02", "2345-01-02", "12345-01-02"),
    Difference(
        "TIMESTAMP(0)",
        "STRING",
        "+12345-01-02T00:00:00.000000000",
        "2345-01-02 00:00:00",
        "12345-01-02 00:00:00",
    ),
    Difference("TIMESTAMP(3)", "TIME(3)", dt.datetime(1969, 12, 31, 23), FAILS, "23:00:00.000"),
    Difference(
        "TIMESTAMP(3)",
        "TIMESTAMP(9)",
        dt.datetime(9999, 12, 31),
        "9999-12-31T00:00:00.000000000",
        "UnsupportedFeature",
    ),
    Difference(
        "DOUBLE",
        "DECIMAL(38, 0)",
        2e23,
        "199999999999999980000000",
        "200000000000000000000000",
        of_old_java=True,
    ),
    Difference("STRING", "DOUBLE", "0x1p3", 8.0, "InvalidData"),
    Difference("STRING", "DECIMAL(5, 2)", "1e99", None, "InvalidData"),
    Difference("STRING", "TIME(3)", "01:02:03+01:00", "02:02:03.000", "InvalidData"),
    Difference("STRING", "TIME(3)", "1:2:3.4x", "01:02:03.400", "InvalidData"),
    Difference(
        "STRING", "TIMESTAMP(3)", "2024-02-011", "2024-02-01T00:00:00.000000000", "InvalidData"
    ),
]
"""What differs on purpose."""


def refused_in_words() -> str:
    """A table of the conversions that Java reads and this package refuses. Raises `ValueError` if
    the package refuses more of them, or fewer, than it has reasons for.
    """
    refused = {
        (parse_type(old).root, parse_type(new).root)
        for old, new in pairs()
        if java_reads(old, new) and not is_read(old, new)
    }
    with_reason = {
        (old, new)
        for olds, news, _ in REFUSED
        for old in olds
        for new in news
        if any(
            java_reads(one, other)
            for one, other in pairs()
            if (parse_type(one).root, parse_type(other).root) == (old, new)
        )
    }
    if refused != with_reason:
        raise ValueError(f"refused without a reason, or with one and read: {refused ^ with_reason}")
    lines = ["| from | to | why |", "| --- | --- | --- |"]
    lines += [f"| {_names(olds)} | {_names(news)} | {why} |" for olds, news, why in REFUSED]
    return "\n".join(lines)


def _names(roots: set[TypeRoot]) -> str:
    names = [
        root.name.replace("_LTZ", " WITH LOCAL TIME ZONE") for root in TypeRoot if root in roots
    ]
    if TypeRoot.VARCHAR in roots:
        names.insert(names.index("VARCHAR") + 1, "STRING")
    return ", ".join(names)


def differences_in_words() -> str:
    """A table of the values that differ."""
    lines = ["| from | to | value | Java 1.4.2 | here |", "| --- | --- | --- | --- | --- |"]
    for one in DIFFERENCES:
        java = f"{_cell(one.java)} up to Java 18" if one.of_old_java else _cell(one.java)
        lines.append(f"| {one.old} | {one.new} | {_cell(one.value)} | {java} | {_cell(one.ours)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if value == FAILS else f"`{value}`"


def figures_in_words(types: Collection[str]) -> str:
    """How many of the changes among these types Java reads, and this package."""
    of_java = [pair for pair in pairs(types) if java_reads(*pair)]
    refused = sum(not is_read(*pair) for pair in of_java)
    return (
        f"{len(types)} types: Java reads {len(of_java)} changes of one to another; of these, "
        f"{len(of_java) - refused} are read here, and {refused} are refused with a reason."
    )


def rendered(page: str) -> str:
    """The page on formats with the tables of the matrix."""
    page = written_into(page, "refused conversions", refused_in_words())
    return written_into(page, "conversions that differ", differences_in_words())


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
    print(figures_in_words(sys.argv[1:] or VALUES))
