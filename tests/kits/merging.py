"""What the tests of merging share: random changes, tables with every engine, and models of Java's
engines (PartialUpdateMergeFunction, AggregateMergeFunction and their aggregators), which take one
row at a time.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact
from random import Random
from typing import Any

Row = dict[str, Any]
Change = tuple[str, Row]

VALUES: Mapping[str, tuple[str, Callable[[Random], Any]]] = {
    "i": ("INT", lambda r: r.choice([1, 2, 3, -5, 2**31 - 1])),
    "l": ("BIGINT", lambda r: r.choice([1, 2, 7, 2**63 - 1])),
    "t": ("TINYINT", lambda r: r.randint(-128, 127)),
    "d": ("DOUBLE", lambda r: r.choice([0.1, 0.2, 0.3, 1e16, -1e16])),
    "f": ("FLOAT", lambda r: r.choice([0.1, 0.5, 3.25])),
    "c": (
        "DECIMAL(20, 2)",
        lambda r: Decimal(r.choice(["1.50", "2.25", "-3.00", "999999999999999999.99"])),
    ),
    "s": ("STRING", lambda r: r.choice(["", "a", "b", "ä", "zz", "b|a|b", "|ä||a"])),
    "b": ("BOOLEAN", lambda r: r.random() < 0.5),
    "ts": (
        "TIMESTAMP(6)",
        lambda r: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=r.randint(0, 5)),
    ),
    "a": ("ARRAY<INT>", lambda r: [r.choice([1, 2, 3, None]) for _ in range(r.randint(0, 3))]),
    "m": (
        "MAP<STRING, INT>",
        lambda r: {r.choice("xyz"): r.choice([1, None, 3]) for _ in range(r.randint(0, 3))},
    ),
    "g": ("INT", lambda r: r.randint(1, 4)),
    "h": ("INT", lambda r: r.randint(1, 4)),
}
"""Columns of every kind by name, each with its type and a function that makes a random value."""

COLUMNS = [("k", "INT NOT NULL"), *((name, type_) for name, (type_, _) in VALUES.items())]
KINDS = {"I": ["+I", "+U"], "U": ["-U"], "D": ["-D"]}


def changes(random: Random, kinds: str, rows: int, keys: int) -> list[Change]:
    """Random changes of these kinds. Most of them are inserts."""
    choices = [one for kind in kinds for one in KINDS[kind]] + ["+I"] * 3
    made = []
    for _ in range(rows):
        row = {
            name: None if random.random() < 0.3 else value(random)
            for name, (_, value) in VALUES.items()
        }
        made.append((random.choice(choices), {"k": random.randint(1, keys), **row}))
    return made


def _functions(**of: str) -> dict[str, str]:
    return {f"fields.{column}.aggregate-function": function for column, function in of.items()}


def _ignoring(columns: str) -> dict[str, str]:
    return {f"fields.{column}.ignore-retract": "true" for column in columns.split()}


_AGGREGATION = {"merge-engine": "aggregation"}
_PARTIAL = {"merge-engine": "partial-update"}
_ORDER = "sequence.field.sort-order"

ENGINES: Mapping[str, tuple[dict[str, str], str]] = {
    "deduplicate": ({}, "IUD"),
    "deduplicate by sequence": ({"sequence.field": "g,h"}, "IUD"),
    "deduplicate descending": ({"sequence.field": "g,h", _ORDER: "descending"}, "IUD"),
    "deduplicate without deletes": ({"ignore-delete": "true"}, "IUD"),
    "last non-null": (_AGGREGATION, "IUD"),
    "sums": (
        {**_AGGREGATION, **_functions(**dict.fromkeys("iltdfc", "sum"))}
        | {"fields.default-aggregate-function": "last_value"},
        "IUD",
    ),
    "lists and maps": ({**_AGGREGATION, **_functions(a="collect", m="merge_map")}, "IUD"),
    "inserts": (
        {
            **_AGGREGATION,
            **_functions(
                i="product",
                f="product",
                l="max",
                t="min",
                d="max",
                c="min",
                s="listagg",
                b="bool_and",
                ts="first_value",
                g="first_non_null_value",
                a="collect",
                h="last_value",
            ),
            "fields.a.distinct": "true",
        },
        "I",
    ),
    "inserts by sequence": (
        {
            **_AGGREGATION,
            **_functions(
                i="min", c="product", s="listagg", b="bool_or", ts="max", d="min", f="max"
            ),
            "sequence.field": "g",
            "fields.s.distinct": "true",
            "fields.s.list-agg-delimiter": "|",
        },
        "I",
    ),
    "ignored retracts": (
        {
            **_AGGREGATION,
            **_functions(
                i="max", l="product", s="listagg", b="bool_or", ts="first_value", a="collect"
            ),
            **_ignoring("i l s b ts a"),
        },
        "IUD",
    ),
    "products taken back": (
        {
            **_AGGREGATION,
            **_functions(i="product", l="product", d="product", f="product", a="collect"),
            "fields.a.distinct": "true",
        },
        "IUD",
    ),
    "removed aggregates": (
        {
            **_AGGREGATION,
            **_functions(
                i="sum", l="max", s="first_value", ts="first_non_null_value", a="collect", d="sum"
            ),
            "aggregation.remove-record-on-delete": "true",
        },
        "ID",
    ),
    "partial": (_PARTIAL, "I"),
    "partial without deletes": ({**_PARTIAL, "ignore-delete": "true"}, "IUD"),
    "partial removed": ({**_PARTIAL, "partial-update.remove-record-on-delete": "true"}, "IUD"),
    "groups": (
        {**_PARTIAL, "fields.g.sequence-group": "i,l,s,a", "fields.h,b.sequence-group": "t,d,m,ts"},
        "IUD",
    ),
    "aggregates in groups": (
        {
            **_PARTIAL,
            "fields.g.sequence-group": "i,l,s,a,d,f",
            "fields.h.sequence-group": "t,m,ts,c,b",
            **_functions(
                i="sum",
                l="last_non_null_value",
                s="listagg",
                a="collect",
                d="sum",
                f="last_value",
                t="first_value",
                m="merge_map",
                ts="first_non_null_value",
                c="max",
                b="bool_and",
            ),
        },
        "I",
    ),
    "retracts in groups": (
        {
            **_PARTIAL,
            "fields.g.sequence-group": "i,l,a",
            "fields.h.sequence-group": "t,m",
            **_functions(i="sum", l="last_non_null_value", a="collect", m="merge_map"),
        },
        "IUD",
    ),
    "removed by either group": (
        {
            **_PARTIAL,
            "fields.g.sequence-group": "i,l,a",
            "fields.h.sequence-group": "t,m",
            "partial-update.remove-record-on-sequence-group": "g,h",
            **_functions(i="product", t="first_value", a="collect"),
            **_ignoring("t"),
        },
        "IUD",
    ),
    "removed by group": (
        {
            **_PARTIAL,
            "fields.g.sequence-group": "i,l,a",
            "fields.h.sequence-group": "t,m",
            "partial-update.remove-record-on-sequence-group": "g",
        },
        "ID",
    ),
}
"""Options of tables by subject, with the kinds of rows that such tables accept."""


# -- the engines, on plain values
# ----------------------------------------------------------------------


class Refused(Exception):
    """Java raises an error at this point."""


Stored = tuple[int, int, Row]
"""A row as files hold it: sequence number, kind (0 +I, 1 -U, 2 +U, 3 -D), values."""

_NUMBERS = {"TINYINT": 8, "INT": 32, "BIGINT": 64}
WIDE = Context(prec=200)
"""A context for decimals without rounding."""


def model(
    options: Mapping[str, str], rows: list[Stored], columns: Mapping[str, str]
) -> list[Stored]:
    """One row per `k`, sorted. `columns` maps the columns' names to their types. Raises
    `Refused`.
    """
    order = [name for name in options.get("sequence.field", "").split(",") if name]
    descending = options.get("sequence.field.sort-order") == "descending"

    def place(row: Stored) -> list[Any]:
        values = [row[2][name] for name in order]
        return [
            *((v is not None, -v if descending and v is not None else v or 0) for v in values),
            row[0],
        ]

    made = []
    for key in sorted({row[2]["k"] for row in rows}):
        mine = sorted((row for row in rows if row[2]["k"] == key), key=place)
        if len(mine) == 1:
            made.append(mine[0])
            continue
        match options.get("merge-engine", "deduplicate"):
            case "deduplicate":
                ignored = options.get("ignore-delete") == "true"
                kept = [row for row in mine if not ignored or row[1] in (0, 2)]
                made += kept[-1:]
            case "aggregation":
                made.append(_aggregated(options, mine, columns))
            case "partial-update":
                made.append(_updated(options, mine, columns))
    return made


def _aggregated(
    options: Mapping[str, str], rows: list[Stored], columns: Mapping[str, str]
) -> Stored:
    folds = {name: _Fold(options, name, columns[name], "last_non_null_value") for name in columns}
    for name in filter(None, options.get("sequence.field", "").split(",")):
        folds[name].function = "last_value"
    folds["k"].function = "key"
    held: Row = dict.fromkeys(columns)
    kind = 0
    for _, row_kind, row in rows:
        kind = 0
        if row_kind == 3 and options.get("aggregation.remove-record-on-delete") == "true":
            held, kind = dict(row), 3
            continue
        for name, fold in folds.items():
            change = fold.retract if row_kind in (1, 3) else fold.add
            held[name] = change(held[name], row[name])
    return rows[-1][0], kind, held


def _updated(options: Mapping[str, str], rows: list[Stored], columns: Mapping[str, str]) -> Stored:
    groups = {}
    for key, value in options.items():
        if key.endswith(".sequence-group"):
            ordering = key.split(".")[1].split(",")
            groups |= dict.fromkeys([*value.split(","), *ordering], tuple(ordering))
    ordering_columns = {name for ordering in groups.values() for name in ordering}
    folds = {
        name: _Fold(options, name, columns[name], None)
        for name in columns
        if name not in ordering_columns
    }
    folds["k"].function = "key"
    removing = options.get("partial-update.remove-record-on-sequence-group", "").split(",")
    held: Row = dict.fromkeys(columns)
    begun = inserted = deleted = False
    sequence = 0

    def rank(row: Row, ordering: tuple[str, ...]) -> list[Any]:
        return [(row[name] is not None, row[name] or 0) for name in ordering]

    for number, kind, row in rows:
        deleted = False
        retracts = kind in (1, 3)
        if retracts and not begun:
            held = dict(row)
        begun = True
        if retracts and options.get("ignore-delete") == "true":
            continue
        sequence = number
        if retracts and not groups:
            if options.get("partial-update.remove-record-on-delete") != "true":
                raise Refused
            if kind == 3:
                held, deleted = dict(row), True
            continue
        before = dict(held)
        there = {one for one in groups.values() if any(row[name] is not None for name in one)}
        newer = {one for one in there if rank(row, one) >= rank(before, one)}
        if kind == 3 and any(name in removing for one in newer for name in one):
            held, deleted = dict(row), True
            continue
        inserted |= not retracts
        for name in columns:
            ordering = groups.get(name)
            fold = folds.get(name)
            plain = fold is None or fold.function is None
            if ordering is None:
                if not retracts and (row[name] is not None or not plain):
                    held[name] = row[name] if plain else fold.add(held[name], row[name])
            elif ordering in newer and name in ordering:
                held[name] = row[name]
            elif ordering in newer and plain:
                held[name] = None if retracts else row[name]
            elif ordering in there and not plain:
                change = (
                    fold.retract if retracts else fold.add if ordering in newer else fold.add_older
                )
                held[name] = change(held[name], row[name])
    return sequence, 3 if deleted or not inserted else 0, held


def fold_steps(
    options: Mapping[str, str], name: str, type_: str, steps: list[tuple[str, Any]]
) -> Any:
    """The value of a column after these steps. Each step sets, adds, adds as older, or retracts one
    value. Raises `Refused`.
    """
    fold, held = _Fold(options, name, type_, None), None
    for what, value in steps:
        match what:
            case "set":
                held = value
            case "add":
                held = fold.add(held, value)
            case "older":
                held = fold.add_older(held, value)
            case "back":
                held = fold.retract(held, value)
    return held


class _Fold:
    """Models all field aggregators of Java. `function` says which one applies."""

    def __init__(
        self, options: Mapping[str, str], name: str, type_: str, default: str | None
    ) -> None:
        default = options.get("fields.default-aggregate-function", default)
        self.function = options.get(f"fields.{name}.aggregate-function", default)
        self.name, self.type = name, type_
        self.ignores = options.get(f"fields.{name}.ignore-retract") == "true"
        self.distinct = options.get(f"fields.{name}.distinct") == "true"
        self.delimiter = options.get(f"fields.{name}.list-agg-delimiter", ",")
        self.begun = False

    def add(self, held: Any, new: Any) -> Any:
        match self.function:
            case "key" | "last_value":
                return new
            case "last_non_null_value":
                return held if new is None else new
            case "first_value":
                held, self.begun = held if self.begun else new, True
                return held
            case "first_non_null_value":
                if self.begun or new is None:
                    return held
                self.begun = True
                return new
            case "collect" if self.distinct and (held is not None or new is not None):
                return list(dict.fromkeys([*(held or []), *(new or [])]))
        if held is None or new is None:
            return new if held is None else held
        match self.function:
            case "sum":
                return self.fit(WIDE.add(held, new) if isinstance(held, Decimal) else held + new)
            case "product":
                return self.fit(
                    WIDE.multiply(held, new) if isinstance(held, Decimal) else held * new
                )
            case "max" | "bool_or":
                return max(held, new)
            case "min" | "bool_and":
                return min(held, new)
            case "listagg":
                if not held or not new:
                    return held or new
                tokens = dict.fromkeys(held.split(self.delimiter))
                fresh = [
                    one
                    for one in dict.fromkeys(new.split(self.delimiter))
                    if one and one not in tokens
                ]
                return self.delimiter.join([held, *(fresh if self.distinct else [new])])
            case "collect":
                return held + new
            case "merge_map":
                return held | new
        raise AssertionError(self.function)

    def add_older(self, held: Any, new: Any) -> Any:
        appends = self.function == "collect" and not self.ignores
        return self.add(held, new) if appends else self.add(new, held)

    def retract(self, held: Any, new: Any) -> Any:
        if self.ignores:
            return held
        match self.function:
            case "key":
                return new
            case "last_value":
                return None
            case "last_non_null_value":
                return held if new is None else None
            case "sum":
                minus = (
                    WIDE.minus(new) if isinstance(new, Decimal) else new if new is None else -new
                )
                return (
                    held
                    if new is None
                    else self.fit(minus)
                    if held is None
                    else self.add(held, minus)
                )
            case "product":
                return held if held is None or new is None else self.divide(held, new)
            case "collect" if held is not None:
                gone, kept = list(new or []), []
                for one in held:
                    if one in gone:
                        gone.remove(one)
                    else:
                        kept.append(one)
                return kept
            case "merge_map" if held is not None:
                return {key: value for key, value in held.items() if key not in (new or {})}
            case "collect" | "merge_map":
                return None
        raise Refused

    def divide(self, held: Any, new: Any) -> Any:
        if isinstance(held, float):
            if new:
                return held / new
            same = math.copysign(1, held) == math.copysign(1, new)
            return math.nan if not held or math.isnan(held) else math.inf if same else -math.inf
        if not new:
            raise Refused
        if isinstance(held, Decimal):
            try:
                return self.fit(Context(prec=200, traps=[Inexact]).divide(held, new))
            except Inexact:
                raise Refused from None
        return self.fit(int(abs(held) // abs(new)) * (1 if (held < 0) == (new < 0) else -1))

    def fit(self, value: Any) -> Any:
        """The value in the column's type, computed as in Java."""
        if self.type in _NUMBERS:
            half = 1 << _NUMBERS[self.type] - 1
            return (value + half) % (2 * half) - half
        if isinstance(value, Decimal):
            precision, scale = map(int, re.findall(r"\d+", self.type))
            value = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, WIDE)
            unscaled = int(value.scaleb(scale, WIDE))
            long = precision <= 18 and self.function == "sum" and -(2**63) <= unscaled < 2**63
            return value if long or abs(unscaled) < 10**precision else None
        return value
