"""What the tests of whole tables with primary keys share: tables with several engines, changes for
them, and models with dicts that know the expected rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.merge.spec import KIND
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.table import Table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.task import TaskResult, WriteSpec
from tests.kits.tables import batch_of

Row = Mapping[str, Any]
Change = tuple[str, Row]
KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}

# -- writing --------------------------------------------------------------------------------------


def next_number(table: Table) -> int:
    """A sequence number above all sequence numbers in the table."""
    return max((one.meta.max_sequence_number for one in PaimonTable(table).files()), default=-1) + 1


def write_changes(
    table: Table,
    changes: Sequence[Change],
    *,
    pieces: int = 1,
    first_sequence: int | None = None,
    runtime: Runtime | None = None,
    **more: Any,
) -> TaskResult:
    """Writes data files in one of our tasks, which gets the changes in `pieces` batches."""
    batch = batch_of(table.schema, [row for _, row in changes])
    batch = batch.append_column(
        KIND, pa.array(np.array([KINDS[kind] for kind, _ in changes], np.int8))
    )
    spec = WriteSpec(
        storage=table.storage,
        schema=table.schema,
        options=table.options,
        runtime=runtime or system(),
        **{name: more.pop(name) for name in ("buffer_bytes", "index") if name in more},
    )
    size = -(-len(changes) // pieces) or 1
    parts = [batch.slice(start, size) for start in range(0, len(changes), size)]
    first = next_number(table) if first_sequence is None else first_sequence
    return write_keyed_task(spec, parts, first_sequence=first, **more)


def commit_changes(
    table: PaimonTable, changes: Sequence[Change], identifier: int, user: str = "ours"
) -> None:
    """Writes and commits the changes as one snapshot."""
    table.new_commit(user).commit(identifier, write_changes(table._table, changes).messages)


# -- the expected rows ----------------------------------------------------------------------------


@dataclass
class Model:
    """What a table with `keys` holds: the last row of each key."""

    keys: Sequence[str] = ("k",)
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def take(self, changes: Sequence[Change]) -> None:
        """Applies the changes, one after the other."""
        for kind, row in changes:
            self.change(tuple(row[name] for name in self.keys), kind, dict(row))

    def change(self, key: tuple[Any, ...], kind: str, row: dict[str, Any]) -> None:
        """Applies one change to a key."""
        self.rows.pop(key, None)
        if kind in ("+I", "+U"):
            self.rows[key] = row

    def compacted(self) -> None:
        """Applies a full compaction. The rows stay the same; deletes are forgotten."""

    def found(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        return list(map(dict, self.rows.values()))


@dataclass
class BySequence(Model):
    """Keeps, for each key, the row with the highest values in `fields`, or the lowest if
    `descending`.

    Of equal rows, the later one is kept. NULL loses against every value.
    """

    fields: ClassVar[Sequence[str]] = ("s",)
    descending: ClassVar[bool] = False
    deleted: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def change(self, key: tuple[Any, ...], kind: str, row: dict[str, Any]) -> None:
        held = self.rows.get(key) or self.deleted.get(key)
        if held is not None and self.place(row) < self.place(held):
            return
        self.rows.pop(key, None)
        self.deleted.pop(key, None)
        (self.rows if kind in ("+I", "+U") else self.deleted)[key] = row

    def place(self, row: dict[str, Any]) -> list[tuple[bool, int]]:
        """The sort key for the rows of a key."""
        ranks = [_rank(row[name]) for name in self.fields]
        return [(there, -value) for there, value in ranks] if self.descending else ranks

    def compacted(self) -> None:
        self.deleted.clear()


class ByTwo(BySequence):
    """The model of `sequence.field` = s,n."""

    fields = ("s", "n")


class Descending(ByTwo):
    """The same in descending order: the lowest values win."""

    descending = True


def _rank(value: int | None) -> tuple[bool, int]:
    return (value is not None, value or 0)


@dataclass
class Sums(Model):
    """Sums up `n` and subtracts it for deletes. Keeps the highest `s` and the last `v` that ever
    occurred.
    """

    def change(self, key: tuple[Any, ...], kind: str, row: dict[str, Any]) -> None:
        held = self.rows.setdefault(
            key, {**dict.fromkeys(row), **dict(zip(self.keys, key, strict=True))}
        )
        adds = kind in ("+I", "+U")
        if row["n"] is not None:
            held["n"] = (held["n"] or 0) + (row["n"] if adds else -row["n"])
        if adds:
            held["s"] = max(held["s"], row["s"], key=_rank)
            held["v"] = held["v"] if row["v"] is None else row["v"]


@dataclass
class Partial(Model):
    """Keeps the last value of each column that is not NULL."""

    def change(self, key: tuple[Any, ...], kind: str, row: dict[str, Any]) -> None:
        if kind in ("+I", "+U"):
            held = self.rows.setdefault(key, dict.fromkeys(row))
            held.update({name: value for name, value in row.items() if value is not None})


@dataclass
class SumsInGroups(Model):
    """Sums up `n` over all rows with an `s`. Keeps the highest `s` and the last `v` that is not
    NULL.

    If a key has only one row, the row stays as it is.
    """

    alone: set[tuple[Any, ...]] = field(default_factory=set)

    def change(self, key: tuple[Any, ...], kind: str, row: dict[str, Any]) -> None:
        if key not in self.rows:
            self.alone.add(key)
            self.rows[key] = row
            return
        if key in self.alone:
            self.alone.remove(key)
            first = self.rows[key]
            self.rows[key] = {**dict.fromkeys(row), **dict(zip(self.keys, key, strict=True))}
            self._fold(self.rows[key], first)
        self._fold(self.rows[key], row)

    def _fold(self, held: dict[str, Any], row: dict[str, Any]) -> None:
        held["v"] = held["v"] if row["v"] is None else row["v"]
        if row["s"] is not None:
            held["s"] = max(held["s"], row["s"], key=_rank)
            held["n"] = held["n"] if row["n"] is None else (held["n"] or 0) + row["n"]


@dataclass(frozen=True)
class Engine:
    """A table's options, the model of its rows, the kinds of its changes, and whether any key may
    be deleted.

    With `once`, Java's own writer gives a wrong result if a batch has a key twice.
    """

    options: Mapping[str, str]
    model: type[Model]
    free_deletes: bool = True
    kinds: Sequence[str] = ("+I", "+I", "+U", "-U", "-D")
    once: bool = False


COLUMNS = [("v", "STRING"), ("k", "INT NOT NULL"), ("n", "BIGINT"), ("s", "INT")]
ENGINES: Mapping[str, Engine] = {
    "deduplicate": Engine({}, Model),
    "by sequence": Engine({"sequence.field": "s"}, BySequence),
    "by two": Engine({"sequence.field": "s,n"}, ByTwo),
    "descending": Engine(
        {"sequence.field": "s,n", "sequence.field.sort-order": "descending"}, Descending, once=True
    ),
    "aggregation": Engine(
        {
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "fields.s.aggregate-function": "max",
            "fields.s.ignore-retract": "true",
            "fields.v.aggregate-function": "last_non_null_value",
            "fields.v.ignore-retract": "true",
        },
        Sums,
        free_deletes=False,
    ),
    "partial-update": Engine({"merge-engine": "partial-update", "ignore-delete": "true"}, Partial),
    "sums in groups": Engine(
        {
            "merge-engine": "partial-update",
            "fields.s.sequence-group": "n",
            "fields.n.aggregate-function": "sum",
        },
        SumsInGroups,
        kinds=("+I", "+U"),
    ),
}


def some_changes(
    random: Random,
    engine: Engine,
    model: Model,
    count: int,
    keys: int,
    more: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> list[Change]:
    """Random changes of the keys from 0 to below `keys`, some with late sequence values.

    `more` are further columns of the key and their values. If `engine` adds up values, only keys
    that exist are retracted.
    """
    made: list[Change] = []
    there = set(model.rows)
    for _ in range(count):
        row = {
            "k": random.randrange(keys),
            **{name: random.choice(some) for name, some in more.items()},
        }
        key = tuple(row[name] for name in model.keys)
        kind = random.choice(engine.kinds)
        if kind in ("-D", "-U") and not engine.free_deletes and key not in there:
            kind = "+I"
        there.add(key)
        values = {
            "v": random.choice([None, f"v{random.random():.6f}"]),
            "n": random.choice([None, 1, 5, -7, 2**40]),
            "s": random.choice([None, *range(6)]),
        }
        made.append((kind, {**row, **values}))
    return made
