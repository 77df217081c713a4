"""Random tables with a primary key, and random changes for them: every merge engine, sequence
group, function, option and row kind.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from tests.kits.merging import Change

_NUMBERS = ["sum", "product", "max", "min"]
_ANY = ["last_value", "last_non_null_value", "first_value", "first_non_null_value"]
_ORDERED = ["max", "min"]

TYPES: Mapping[str, tuple[list[str], Callable[[Random], Any]]] = {
    "TINYINT": (_NUMBERS, lambda r: r.choice([1, 2, -3, 127, -128])),
    "SMALLINT": (_NUMBERS, lambda r: r.choice([1, 2, 7, -32768, 32767])),
    "INT": (_NUMBERS, lambda r: r.choice([0, 1, 2, 3, -5, 2**31 - 1])),
    "BIGINT": (_NUMBERS, lambda r: r.choice([0, 1, 2, 7, -(2**63), 2**63 - 1])),
    "FLOAT": (_NUMBERS, lambda r: r.choice([0.5, 0.1, -3.25, 0.0, -0.0])),
    "DOUBLE": (_NUMBERS, lambda r: r.choice([0.1, 0.2, 0.3, 1e16, -1e16, 0.0, -0.0])),
    "DECIMAL(4, 1)": (
        _NUMBERS,
        lambda r: Decimal(r.choice(["1.5", "-2.0", "999.9", "-999.9", "0.1"])),
    ),
    "DECIMAL(18, 3)": (
        _NUMBERS,
        lambda r: Decimal(r.choice(["1.500", "-2.000", "999999999999999.999"])),
    ),
    "DECIMAL(20, 2)": (
        _NUMBERS,
        lambda r: Decimal(r.choice(["1.50", "-3.00", "999999999999999999.99"])),
    ),
    "DECIMAL(38, 0)": (_NUMBERS, lambda r: Decimal(r.choice([1, -7, 10**38 - 1, 10**37]))),
    "STRING": (
        [*_ORDERED, "listagg"],
        lambda r: r.choice(["", "a", "b", "ä", "zz", "b,a,b", ",ä,,a"]),
    ),
    "BOOLEAN": (["bool_and", "bool_or"], lambda r: r.random() < 0.5),
    "DATE": (_ORDERED, lambda r: dt.date(1969, 12, 30) + dt.timedelta(r.randint(0, 4))),
    "TIMESTAMP(6)": (
        _ORDERED,
        lambda r: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=r.randint(0, 5)),
    ),
    "BYTES": ([*_ORDERED], lambda r: r.choice([b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"])),
    "ARRAY<INT>": (
        ["collect"],
        lambda r: [r.choice([1, 2, 3, None]) for _ in range(r.randint(0, 4))],
    ),
    "ARRAY<ROW<x INT, y STRING>>": (
        ["collect"],
        lambda r: [
            {"x": r.choice([1, 2, None]), "y": r.choice("ab")} for _ in range(r.randint(0, 3))
        ],
    ),
    "MAP<STRING, INT>": (
        ["merge_map"],
        lambda r: {r.choice("xyz"): r.choice([1, None, 3]) for _ in range(r.randint(0, 3))},
    ),
}
"""Types with their own functions, and a function that makes a random value."""

_ORDERING = [
    "INT",
    "BIGINT",
    "STRING",
    "DATE",
    "TIMESTAMP(6)",
    "DECIMAL(4, 1)",
    "TINYINT",
    "DOUBLE",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a table is created from. `keys` are the primary key, the first of them perhaps the
    partition key. `unordered` are the columns whose lists Java leaves in any order.
    """

    columns: list[tuple[str, str]]
    keys: list[str]
    partition: list[str]
    options: dict[str, str]

    @property
    def unordered(self) -> set[str]:
        options = self.options
        return {
            name for name, _ in self.columns if options.get(f"fields.{name}.distinct") == "true"
        }


def definition(random: Random) -> Definition:
    """A random table. Its options may contradict each other."""
    keys = random.choice([["k"], ["k"], ["p", "k"], ["k", "q"]])
    ordering = [f"o{n}" for n in range(random.randint(0, 4))]
    values = [f"v{n}" for n in range(random.randint(1, 7))]
    types = dict.fromkeys(keys, "INT NOT NULL")
    types |= {name: random.choice(_ORDERING) for name in ordering}
    types |= {name: random.choice(sorted(TYPES)) for name in values}
    columns = list(types.items())
    if random.random() < 0.6:
        random.shuffle(columns)
    options = {"bucket": random.choice(["1", "2"]), "write-only": "true"}
    engines = ["deduplicate", "aggregation", "aggregation", *["partial-update"] * 3, "first-row"]
    engine = random.choice(engines)
    options["merge-engine"] = engine
    if random.random() < 0.3:
        options["file.format"] = random.choice(["orc", "avro"])
    for key, share in (
        ("data-file.thin-mode", 0.2),
        ("ignore-delete", 0.15),
        ("ignore-update-before", 0.15),
        ("aggregation.remove-record-on-delete" if engine == "aggregation" else "", 0.25),
        ("partial-update.remove-record-on-delete" if engine == "partial-update" else "", 0.15),
    ):
        if key and random.random() < share:
            options[key] = "true"
    if engine != "first-row" and random.random() < 0.15:
        options["changelog-producer"] = "input"
    if engine == "partial-update" and ordering and random.random() < 0.8:
        ordering = _add_groups(random, options, ordering, values)
    share = {"first-row": 0.0, "partial-update": 0.1}.get(engine, 0.4)
    if ordering and random.random() < share:
        chosen = random.sample(ordering, min(len(ordering), random.randint(1, 2)))
        options["sequence.field"] = ",".join(chosen)
        if random.random() < 0.3:
            options["sequence.field.sort-order"] = "descending"
    _add_functions(random, options, types, values)
    partition = ["p"] if "p" in keys and random.random() < 0.7 else []
    return Definition(columns=columns, keys=keys, partition=partition, options=options)


def _add_groups(
    random: Random, options: dict[str, str], ordering: list[str], values: list[str]
) -> list[str]:
    """Adds sequence groups. Returns the columns that order none."""
    left, members, heads = list(ordering), list(values), []
    while left and random.random() < 0.8:
        head = [left.pop() for _ in range(min(len(left), random.choice([1, 1, 2])))]
        mine = [name for name in members if random.random() < 0.6]
        members = [name for name in members if name not in mine]
        if mine:
            options[f"fields.{','.join(head)}.sequence-group"] = ",".join(mine)
            heads += head[:1]
    if heads and random.random() < 0.4:
        deleting = random.sample(heads, random.randint(1, len(heads)))
        options["partial-update.remove-record-on-sequence-group"] = ",".join(deleting)
    return left


def _add_functions(
    random: Random, options: dict[str, str], types: Mapping[str, str], values: list[str]
) -> None:
    engine = options["merge-engine"]
    grouped = {
        one
        for key, of in options.items()
        if key.endswith("sequence-group")
        for one in of.split(",")
    }
    if engine == "aggregation" and random.random() < 0.2:
        options["fields.default-aggregate-function"] = random.choice([*_ANY, *_ANY, "sum"])
    for name in values:
        own = f"fields.{name}."
        functions = TYPES[types[name]][0]
        if engine == "aggregation" or (engine == "partial-update" and name in grouped):
            if random.random() < 0.75:
                options[f"{own}aggregate-function"] = random.choice([*functions * 2, *_ANY])
        elif engine == "partial-update" and random.random() < 0.2:
            options[f"{own}aggregate-function"] = random.choice(["last_non_null_value", "max"])
        if random.random() < 0.25:
            options[f"{own}ignore-retract"] = "true"
        if (
            options.get(f"{own}aggregate-function") in ("listagg", "collect")
            and random.random() < 0.4
        ):
            options[f"{own}distinct"] = "true"
        if options.get(f"{own}aggregate-function") == "listagg" and random.random() < 0.3:
            options[f"{own}list-agg-delimiter"] = random.choice(["|", "b", ", "])
    for name in options.get("sequence.field", "").split(","):
        if name and random.random() < 0.2:
            options[f"fields.{name}.ignore-retract"] = "true"


_PRODUCERS: list[dict[str, str]] = [
    {"changelog-producer": "lookup"},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
    {"force-lookup": "true"},
]
_FORMATS: list[dict[str, str]] = [
    {},
    {},
    {"file.format.per.level": "0:avro"},
    {"file.format.per.level": "5:orc,0:parquet"},
    {"changelog-file.format": "avro"},
]


def looking_up(random: Random, ways: list[dict[str, str]]) -> Definition:
    """A table whose compactions look up older values, or write a changelog."""
    made = definition(random)
    options = made.options
    options.pop("changelog-producer", None)
    first = options["merge-engine"] == "first-row"
    options.update(random.choice([_PRODUCERS[0], {}]) if first else random.choice(_PRODUCERS))
    options.update(random.choice(ways) | random.choice(_FORMATS))
    sums = any(type_ in ("FLOAT", "DOUBLE") for _, type_ in made.columns)
    if "changelog-producer" in options and random.random() < 0.4 and not sums:
        options["changelog-producer.row-deduplicate"] = "true"
        if random.random() < 0.5:
            ignored = random.sample(
                [name for name, _ in made.columns], random.randint(1, len(made.columns))
            )
            options["changelog-producer.row-deduplicate-ignore-fields"] = ",".join(ignored)
    return made


def batches(random: Random, table: Definition) -> list[list[Change]]:
    """Some batches of random changes. With a descending sequence field, each key occurs once in a
    batch, because Java sorts the rows of a batch ascending.
    """
    once = table.options.get("sequence.field.sort-order") == "descending"
    kinds = random.choice(
        [["+I"], ["+I", "+I", "+U"], ["+I", "+I", "+U", "-U", "-D"], ["+I", "+I", "-D"]]
    )
    nulls = random.choice([0.1, 0.3, 0.6])
    made = []
    for _ in range(random.randint(1, 4)):
        batch: list[Change] = []
        seen = set()
        for _ in range(random.randint(1, 25)):
            row = {name: _value(random, table, name, type_, nulls) for name, type_ in table.columns}
            key = tuple(row[name] for name in table.keys)
            if not (once and key in seen):
                batch.append((random.choice(kinds), row))
            seen.add(key)
        made.append(batch)
    return made


def _value(random: Random, table: Definition, name: str, type_: str, nulls: float) -> Any:
    if name in table.keys:
        return random.randint(0, 4 if name == "k" else 1)
    if random.random() < nulls:
        return None
    value = TYPES[type_][1](random)
    # Java's write buffer sorts -0.0 before 0.0, and its readers take the two as equal.
    return value + 0.0 if name.startswith("o") and isinstance(value, float) else value
