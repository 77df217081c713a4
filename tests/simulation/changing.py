"""Tables whose rows are updated, deleted and merged. Their files are real, and a model has the rows
after each commit.

The model takes the snapshots one after another. A change of rows is applied to the rows of the
snapshot on which it was published, once. What the table holds then is read by pyarrow from all live
files, with the marks of their deletion vectors; in a table with a primary key the newest row of each
key is chosen here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.change.merge_clauses import Action, Clause, MergeWords, When
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.format.types import DataField, parse_type
from tests.simulation import rules
from tests.simulation.real_files import (
    APART,
    FIELDS_WITH_VALUE,
    KIND_OF_ROW,
    SEQUENCE,
    stored_columns,
)
from tests.simulation.state import State, Violation
from tests.simulation.vectors import marked

if TYPE_CHECKING:
    from tests.simulation.world import World

BY_REWRITING: Final = "rows changed in files"
BY_VECTORS: Final = "rows changed by vectors"
WITH_KEYS: Final = "rows changed by keys"
WITH_SEQUENCE: Final = "rows changed under a sequence field"

_KEYED: Final = {"bucket": "1", "write-only": "true"}
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    BY_REWRITING: {},
    BY_VECTORS: {"deletion-vectors.enabled": "true"},
    WITH_KEYS: _KEYED,
    WITH_SEQUENCE: _KEYED | {"sequence.field": "s"},
}
"""The kinds of tables, with their options. Their names are among those who take part."""

FROM: Final = 90_000
"""Earlier seeds were found without such tables, and keep their meaning."""

FIELDS_OF_CHANGES: Final = (
    *FIELDS_WITH_VALUE,
    DataField(id=3, name="s", type=parse_type("BIGINT")),
)
"""The columns: changes set `v`, and `s` may say which row of a key is the newest."""
_NAMES: Final = tuple(one.name for one in FIELDS_OF_CHANGES)
HIGHEST: Final = 9_000
"""The `s` of merged rows. No other row has a higher one."""
_DELETES: Final = (1, 3)
"""The kinds of rows that delete: -U and -D."""

Row = tuple[int, str, int, int]
"""The values of `FIELDS_OF_CHANGES`."""
Key = tuple[Any, ...]


def kind_of(seed: int, only: Collection[str], *, drawn: bool) -> str:
    """The kind of table whose rows are changed; empty in most schedules."""
    if only:
        return next((one for one in OPTIONS if one in only), "")
    dice = random.Random(f"changed rows {seed}")
    if not drawn or seed < FROM or dice.randrange(8):
        return ""
    return dice.choice(tuple(OPTIONS))


def has_keys(kind: str) -> bool:
    """Whether such a table has a primary key."""
    return kind in (WITH_KEYS, WITH_SEQUENCE)


@dataclass(frozen=True)
class Rows:
    """What a snapshot holds: a row for each key that has one, and the rows that deletes of other
    keys have left, which are not forgotten yet. `numbers` are the sequence numbers of both.
    """

    rows: Mapping[Key, Row] = field(default_factory=dict)
    deletes: Mapping[Key, Row] = field(default_factory=dict)
    numbers: Mapping[Key, int] = field(default_factory=dict)


# -- changes
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """A condition on rows, for the package and for the model."""

    words: str
    expression: Any
    holds: Callable[[Row], bool]


CONDITIONS: Final = (
    Condition("id is even", pc.bit_wise_and(pc.field("id"), 1) == 0, lambda row: row[0] % 2 == 0),
    Condition("id is odd", pc.bit_wise_and(pc.field("id"), 1) == 1, lambda row: row[0] % 2 == 1),
    Condition("v is even", pc.bit_wise_and(pc.field("v"), 1) == 0, lambda row: row[2] % 2 == 0),
    Condition("dt is 'x'", pc.field("dt") == "x", lambda row: row[1] == "x"),
)


class Change:
    """A change of rows, as the model knows it."""

    def at(self, world: World, rows: Mapping[Key, Row]) -> dict[Key, Row | None]:
        """What it does to these rows: the new row of each key that changes, None if that goes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Update(Change):
    """Adds a number to `v` of the rows that fulfil a condition."""

    where: Condition
    number: int

    def at(self, world: World, rows: Mapping[Key, Row]) -> dict[Key, Row | None]:
        return {
            key: (row[0], row[1], row[2] + self.number, row[3])
            for key, row in rows.items()
            if self.where.holds(row)
        }


@dataclass(frozen=True)
class Deletion(Change):
    """Deletes the rows that fulfil a condition."""

    where: Condition

    def at(self, world: World, rows: Mapping[Key, Row]) -> dict[Key, Row | None]:
        return {key: None for key, row in rows.items() if self.where.holds(row)}


MERGE_CLAUSES: Final = (
    Clause(when=When.MATCHED, action=Action.DELETE, predicate="source.v = 1"),
    Clause(when=When.MATCHED, action=Action.UPDATE, updates={"v": "target.v + source.v"}),
    Clause(
        when=When.NOT_MATCHED,
        action=Action.INSERT,
        updates={name: f"source.{name}" for name in _NAMES},
    ),
)
"""A source row with v = 1 deletes the row that it meets, any other one adds its v. What meets none
is inserted.
"""


@dataclass(frozen=True)
class Merge(Change):
    """Merges rows by their keys."""

    source: tuple[Row, ...]

    def at(self, world: World, rows: Mapping[Key, Row]) -> dict[Key, Row | None]:
        return {
            key_of(world, row): self._met(rows.get(key_of(world, row)), row) for row in self.source
        }

    def _met(self, target: Row | None, row: Row) -> Row | None:
        if target is None:
            return row
        return None if row[2] == 1 else (target[0], target[1], target[2] + row[2], target[3])

    def words(self, world: World) -> MergeWords:
        """The merge for the package."""
        on = ["id", "dt"] if world.partitioned else ["id"]
        return MergeWords(on=on, clauses=MERGE_CLAUSES)

    def table(self) -> pa.Table:
        """The source for the package."""
        types = (pa.int64(), pa.string(), pa.int64(), pa.int64())
        columns = [
            pa.array([row[at] for row in self.source], type_) for at, type_ in enumerate(types)
        ]
        return pa.Table.from_arrays(columns, names=list(_NAMES))


def drawn_source(world: World, rows: Rows | None, added: int) -> tuple[Row, ...]:
    """Rows to merge into these rows: some have keys that are there, and others not."""
    world.files += 1
    if world.keyed:
        dt = world.choices.pick(("x", "y"))
        keys = {world.source.randrange(8) for _ in range(3)}
        return tuple((key, dt, added + key % 2, HIGHEST) for key in sorted(keys))
    there = [] if rows is None else sorted(rows.rows.values())
    met = world.source.sample(there, min(2, len(there)))
    old = ((row[0], row[1], added + row[0] % 2, HIGHEST) for row in met)
    return (*old, (APART * world.files, "x", 0, HIGHEST))


def key_of(world: World, row: Row) -> Key:
    """What a row is known by."""
    return row[:2] if world.partitioned else row[:1]


# -- the model
# ------------------------------------------------------------------------------------------


def follow(world: World, before: Rows, state: State) -> Rows:
    """The rows of a snapshot that was built on another one. Of two rows of a key the one that is
    committed later is the newer one. With a sequence field it is the one with the greater value; of
    equal ones that with the higher number, which a writer may have taken long ago.
    """
    change = world.changes.get(state.commit) if state.commit is not None else None
    if change is not None:
        return _changed(world, before, change.at(world, before.rows))
    if state.snapshot.commit_kind is CommitKind.COMPACT:
        return before
    rows, deletes = dict(before.rows), dict(before.deletes)
    for name in sorted(state.live.keys() - state.base):
        numbers = {
            key_of(world, row): number for row, number, _ in _rows_in(world, state.live[name])
        }
        for row in world.stored_rows[name]:
            key = key_of(world, row)
            held = rows.get(key) or deletes.get(key)
            is_ordered = held is not None and world.changing == WITH_SEQUENCE
            if is_ordered and (held[3], before.numbers[key]) > (row[3], numbers[key]):
                continue
            deletes.pop(key, None)
            rows[key] = row
    return Rows(rows, deletes)


def _changed(world: World, before: Rows, changed: Mapping[Key, Row | None]) -> Rows:
    rows, deletes = dict(before.rows), dict(before.deletes)
    for key, row in changed.items():
        if row is not None:
            deletes.pop(key, None)
            rows[key] = row
        elif world.keyed:
            deletes[key] = rows.pop(key)
        else:
            del rows[key]
    return Rows(rows, deletes)


# -- what the table holds
# ------------------------------------------------------------------------------------------


def check_changed(world: World, before: State | None, state: State, *, is_built: bool) -> None:
    """The table holds the rows of the model. `before` is the snapshot on which this one was built,
    if it was: None is an empty table.
    """
    if state.files - world.truth.paths:
        return  # whoever looks whether it is whole judges that
    actual = _held(world, state)
    if not is_built or (before is not None and before.rows is None):
        state.rows = state.rows or _as_rows(world, actual)
        return
    expected = follow(
        world, Rows() if before is None or before.rows is None else before.rows, state
    )
    held = _as_rows(world, actual)
    is_compaction = state.snapshot.commit_kind is CommitKind.COMPACT
    if is_compaction and world.changing == WITH_SEQUENCE:
        expected = _without_forgotten(expected, held)
    read = sorted(one.row for one in actual if not one.deletes)
    if sorted(expected.rows.values()) != read:
        what = f"snapshot {state.id} reads as {read}, not {sorted(expected.rows.values())}"
        raise Violation(_rule(world, state), what)
    left = held.deletes
    if left != expected.deletes and not (
        is_compaction and left.items() <= expected.deletes.items()
    ):
        what = f"snapshot {state.id} has the deletes {left}, not {expected.deletes}"
        raise Violation(_rule(world, state), what)
    state.rows = held


def _without_forgotten(expected: Rows, held: Rows) -> Rows:
    """What is expected, and rows that a compaction lets come back. It forgets deletes, as Java's
    does. A row that was committed later than a delete, with a lower value of the sequence field, was
    hidden by that delete if the compaction has not read it.
    """
    back = {
        key: row
        for key, row in held.rows.items()
        if key in expected.deletes and held.numbers[key] > expected.numbers[key]
    }
    return replace(expected, rows={**expected.rows, **back})


def _rule(world: World, state: State) -> str:
    """The rule that a snapshot with wrong rows breaks."""
    if state.commit in world.changes:
        return rules.CHANGED
    if state.snapshot.commit_kind is CommitKind.COMPACT:
        return rules.COMPACTED
    return rules.READERS


def check_once(world: World, state: State, below: Collection[Any]) -> None:
    """A change of rows is in the table at most once. `below` are those that must not come again."""
    if state.commit in world.changes and state.commit in below:
        raise Violation(
            rules.CHANGED, f"snapshot {state.id} makes the change of {state.commit} again"
        )


class Held(NamedTuple):
    """A row that a snapshot holds, or the newest delete of a key."""

    row: Row
    number: int
    deletes: bool


def _as_rows(world: World, held: Iterable[Held]) -> Rows:
    some = {key_of(world, one.row): one for one in held}
    return Rows(
        {key: one.row for key, one in some.items() if not one.deletes},
        {key: one.row for key, one in some.items() if one.deletes},
        {key: one.number for key, one in some.items()},
    )


def _held(world: World, state: State) -> list[Held]:
    """The rows of a snapshot, and with a primary key the newest deletes."""
    if not world.keyed:
        held: list[Held] = []
        for entry in state.live.values():
            gone = set(marked(world, state, entry).tolist())
            rows = enumerate(_rows_in(world, entry))
            held += [one for at, one in rows if at not in gone]
        return held
    newest: dict[Key, Held] = {}
    for entry in state.live.values():
        for one in _rows_in(world, entry):
            key = key_of(world, one.row)
            if key not in newest or _rank(world, newest[key]) < _rank(world, one):
                newest[key] = one
    return list(newest.values())


def _rank(world: World, held: Held) -> tuple[int, int]:
    return (held.row[3] if world.changing == WITH_SEQUENCE else 0), held.number


def _rows_in(world: World, entry: ManifestEntry) -> list[Held]:
    """The rows in a live file."""
    known, name = world.truth.archive.rows, entry.file.file_name
    if name not in known:
        path = world.table.layout.data_file(entry.partition, entry.bucket, name)
        columns = [*_NAMES, *((SEQUENCE, KIND_OF_ROW) if world.keyed else ())]
        read = stored_columns(world.disk.read(path), columns).to_pylist()
        known[name] = [
            Held(
                (one["id"], one["dt"], one["v"], one["s"]),
                one.get(SEQUENCE, 0),
                one.get(KIND_OF_ROW, 0) in _DELETES,
            )
            for one in read
        ]
    return known[name]
