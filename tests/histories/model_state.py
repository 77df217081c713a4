"""What the model has in the place of files, and what can be read from that: what became of a snapshot,
and what notes say (exactly-once.md §8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from paimon_stream.table.fate import CLOCKS_DIFFER_MILLIS, Answer, Fate
from paimon_stream.table.removals import ROLLBACK
from tests.histories.world import Setting

Ref: TypeAlias = tuple[int, int]
"""The id and the nonce of a snapshot. The nonce is the number of the attempt that made it."""


@dataclass(frozen=True)
class Snap:
    """A snapshot. `batch` is None if another engine made it, and `files` has the files of the query
    that are live in it, with their batches. Nothing is compacted, so its manifests mention no others.
    """

    id: int
    nonce: int
    batch: int | None
    files: frozenset[tuple[int, int]]
    millis: int

    @property
    def ref(self) -> Ref:
        """Its id and nonce."""
        return self.id, self.nonce


@dataclass(frozen=True)
class Entry:
    """An entry of the journal. `uuids` are the attempts at the batch, the newest first, and `file` is
    what they wrote.
    """

    batch: int
    uuids: tuple[int, ...]
    file: int
    base: Ref | None
    previous: tuple[int, Ref] | None = None
    millis: int = 0
    newest: Ref | None = None


@dataclass(frozen=True)
class Removed:
    """What a run has removed: a snapshot, or the attempts at a batch. `batch` is None for a commit of
    another engine.
    """

    snapshot: Ref | None
    uuids: tuple[int, ...] = ()
    batch: int | None = None
    certain: bool = True
    stood: bool = False

    @classmethod
    def of(cls, snapshot: Snap, *, certain: bool = True) -> Removed:
        """A snapshot that goes."""
        return cls(snapshot=snapshot.ref, batch=snapshot.batch, certain=certain, stood=True)


@dataclass(frozen=True)
class Note:
    """What one run has noted. Each ends."""

    by: str
    target: Ref
    millis: int
    took_expired: bool
    removed: tuple[Removed, ...]
    restored: frozenset[int] = frozenset()

    def without(self, nonces: set[int]) -> tuple[Note, set[int]]:
        """The note once snapshots with these nonces are back, and the nonces that are back with
        them.
        """
        back = self._is_back(nonces)
        moved = [one for one in self.removed if back(one)]
        if not moved:
            return self, set()
        named = {one.snapshot[1] for one in moved if one.snapshot is not None}
        left = tuple(one for one in self.removed if not back(one))
        base = {self.target[1]} if self.by == ROLLBACK else set()
        return replace(self, removed=left, restored=self.restored | named), base | named

    def _is_back(self, nonces: set[int]) -> Callable[[Removed], bool]:
        stood = {one.snapshot: one.stood for one in self.removed if one.snapshot is not None}
        themselves = [one for one in stood if one[1] in nonces]
        newest = max((one[0] for one in themselves), default=-1)
        ids = Counter(one[0] for one in stood)
        has_all_expired = max(ids.values(), default=1) == 1 and any(map(stood.get, themselves))

        def is_back(one: Removed) -> bool:
            if one.snapshot is None:
                return has_all_expired or not nonces.isdisjoint(one.uuids)
            is_below = one.snapshot[0] <= newest and ids[one.snapshot[0]] == 1
            return is_below or one.snapshot[1] in nonces

        return is_back


@dataclass(frozen=True)
class Run:
    """What the run that is alive remembers: its last batch, the last one of the stream that became a
    snapshot, with a time at which that stood, and the newest snapshot that it has seen. `has_expired`
    and `follows` are as in the package, and `goes_back` says that the journal has later batches.
    """

    batch: int
    own: tuple[int, Ref] | None
    seen: Ref | None
    stood: int
    has_expired: bool = False
    follows: bool = True
    goes_back: bool = False


@dataclass(frozen=True)
class State:
    """A table and its query. `main` and `branch` are snapshots, ascending. `since`, `let_go` and
    `passed_over` are what the register says, and `run` is what a run remembers that is alive. `rows`, `done`, `given_up` and `again` are the truth, as
    in `World`.
    """

    setting: Setting
    now: int = 0
    main: tuple[Snap, ...] = ()
    branch: tuple[Snap, ...] = ()
    tag: Snap | None = None
    journal: tuple[Entry, ...] = ()
    since: int | None = None
    let_go: tuple[tuple[int, int], ...] = ()
    passed_over: tuple[int, Ref] | None = None
    notes: tuple[Note, ...] = ()
    run: Run | None = None
    attempts: int = 0
    next_batch: int = 0
    done_millis: int = 0
    rows: tuple[tuple[int, bool], ...] = ()
    done: frozenset[int] = frozenset()
    given_up: frozenset[int] = frozenset()
    again: tuple[tuple[int, int], ...] = ()

    # -- the truth --------------------------------------------------------------------------------
    def copies(self, batch: int) -> int:
        """How often the table has the rows of a batch."""
        return sum(number == batch for number, _ in self.main[-1].files)

    def missing(self) -> frozenset[int]:
        """As in `World`."""
        rows = dict(self.rows)
        had_rows = [one for one in range(self.next_batch) if one in self.done and rows[one]]
        return frozenset(one for one in had_rows if not self.copies(one)) - self.given_up

    # -- the storage ------------------------------------------------------------------------------
    def at(self, snapshot_id: int) -> Snap | None:
        """The snapshot of main with this id."""
        return next((one for one in self.main if one.id == snapshot_id), None)

    def stands(self, ref: Ref) -> bool:
        """Whether main has this very snapshot."""
        return any(one.ref == ref for one in self.main)

    def entry(self, batch: int) -> Entry | None:
        """The journal's entry of a batch."""
        return next((one for one in self.journal if one.batch == batch), None)

    def with_entry(self, entry: Entry) -> State:
        """With this entry in the place of one of the same batch."""
        others = [one for one in self.journal if one.batch != entry.batch]
        entries = sorted([*others, entry], key=lambda one: one.batch)
        return replace(self, journal=tuple(entries))

    def trimmed(self, batch: int) -> State:
        """With the entries from the last one before this batch on."""
        kept = max((one.batch for one in self.journal if one.batch < batch), default=-1)
        return replace(self, journal=tuple(one for one in self.journal if one.batch >= kept))

    @property
    def removed(self) -> Iterator[tuple[Note, Removed]]:
        """All that notes say was removed."""
        for note in self.notes:
            for one in note.removed:
                yield note, one


def is_before(note: Note, millis: int) -> bool:
    """Whether this was surely removed before that time."""
    return note.millis + CLOCKS_DIFFER_MILLIS < millis


def _best(found: list[tuple[Note, Removed]]) -> tuple[Note, Removed] | None:
    return next((one for one in found if one[1].certain), found[0] if found else None)


def note_of_nonce(state: State, nonce: int) -> tuple[Note, Removed] | None:
    """The note of a snapshot, a certain one if there is one."""
    return _best(
        [
            (note, one)
            for note, one in state.removed
            if nonce in one.uuids or (one.snapshot is not None and one.snapshot[1] == nonce)
        ]
    )


def note_of_uuid(state: State, uuid: int) -> tuple[Note, Removed] | None:
    """The note of an attempt: its number is that of its snapshot."""
    return note_of_nonce(state, uuid)


def judge_note(noted: tuple[Note, Removed] | None) -> Fate:
    """What a note says became of what it names."""
    if noted is None:
        return Fate.EXPIRED
    return Fate.ROLLED_BACK if noted[1].certain else Fate.UNKNOWN


def is_replaced(state: State, ref: Ref) -> bool:
    """Whether another snapshot has the id."""
    kept = state.at(ref[0])
    return kept is not None and kept.ref != ref


def is_whole_after(state: State, ref: Ref | None) -> bool:
    """Whether all snapshots above that one stand."""
    after, lowest, latest = 0 if ref is None else ref[0], state.main[0].id, state.main[-1].id
    return after >= latest or lowest <= after + 1


def fate_of(
    state: State,
    ref: Ref,
    latest: Snap,
    *,
    stood: int | None = None,
    took_it: Callable[[Removed], bool] = lambda _: False,
) -> Answer:
    """What became of a snapshot that was part of the table, and `stood` at that time."""
    if state.stands(ref):
        return Answer(fate=Fate.IN_TABLE)
    noted = judge_note(note_of_nonce(state, ref[1]))
    if noted is Fate.ROLLED_BACK:
        return Answer(fate=noted)
    if latest.id <= ref[0] and not is_replaced(state, ref):
        return Answer(fate=Fate.ROLLED_BACK)
    if is_replaced(state, ref):
        return Answer(fate=Fate.REPLACED)
    for note, one in state.removed if stood is not None and noted is Fate.EXPIRED else ():
        is_later = not is_before(note, stood or 0)
        if is_later and (note.target[0] < ref[0] or note.took_expired or took_it(one)):
            return Answer(fate=Fate.UNKNOWN)
    return Answer(fate=noted)


def cut_below(state: State, gone: Ref, *, stood: int | None = None) -> Ref | None:
    """The lowest target of the rollbacks that took a snapshot, and of those since."""

    def took_it(note: Note, one: Removed) -> bool:
        if one.snapshot is not None and one.snapshot[1] == gone[1]:
            return True
        return stood is not None and note.target[0] < gone[0] and not is_before(note, stood)

    since = min((note.millis for note, one in state.removed if took_it(note, one)), default=None)
    if since is None:
        return None
    runs = [note for note, _ in state.removed if note.millis >= since]
    if any(note.by != ROLLBACK for note in runs):
        return None
    cut = min((note.target for note in runs), key=lambda target: target[0])
    return cut if fate_of(state, cut, state.main[-1]).is_held else None
