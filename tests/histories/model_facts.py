"""The facts on which the next batch of the model is judged, by the words of `stream/facts.py`. One
query writes main under one name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeVar, cast

from paimon_stream.stream.facts import (
    FIRST_BATCH,
    LATER_BATCH,
    Asked,
    Attempts,
    Base,
    Beside,
    Branch,
    Created,
    Elsewhere,
    Entry,
    Finished,
    Followed,
    Gap,
    History,
    Incarnation,
    Journal,
    Last,
    Later,
    Live,
    Noted,
    Number,
    OldName,
    Order,
    Own,
    Previous,
    Query,
    Remembered,
    Seen,
    Since,
    Sink,
    Table,
    Window,
)
from paimon_stream.table.fate import Fate
from paimon_stream.table.removals import ROLLBACK
from tests.histories import model_state
from tests.histories.model_state import (
    Note,
    Ref,
    Removed,
    Run,
    Snap,
    State,
    cut_below,
    fate_of,
    is_before,
    is_replaced,
    is_whole_after,
    judge_note,
    note_of_nonce,
    note_of_uuid,
)

Fact = TypeVar("Fact", bound=Enum)
CONSTANT: Final[Mapping[type[Enum], Enum]] = MappingProxyType(
    {
        Table: Table.SAME,
        Query: Query.OURS,
        Incarnation: Incarnation.NONE,
        OldName: OldName.NONE,
        Asked: Asked.NOT_ASKED,
        Created: Created.EARLIER,
        Elsewhere: Elsewhere.NO,
        Beside: Beside.NONE,
        Branch: Branch.NOT,
        Sink: Sink.NOT_NEW,
    }
)
"""What one query under one name in one branch cannot change."""


class Facts:
    """The facts of the next batch of a state."""

    def __init__(self, state: State) -> None:
        self.state, self.batch = state, state.next_batch

    def ask(self, fact: type[Fact]) -> Fact:
        """The value of a fact."""
        value = CONSTANT[fact] if fact in CONSTANT else _FINDERS[fact](self)
        return cast("Fact", value)

    def all(self) -> tuple[Enum, ...]:
        """The values of all facts."""
        return tuple([self.ask(fact) for fact in FIRST_BATCH])

    # -- what several facts use -------------------------------------------------------------------
    @cached_property
    def own(self) -> Snap | None:
        """Our newest snapshot."""
        return next((one for one in reversed(self.state.main) if one.batch is not None), None)

    @property
    def own_batch(self) -> int:
        """Its batch."""
        return -1 if self.own is None or self.own.batch is None else self.own.batch

    @property
    def published(self) -> tuple[int, Ref] | None:
        """Our newest published batch, if it is an earlier one."""
        own = self.own
        return (self.own_batch, own.ref) if own and self.ask(Own) is Own.BELOW else None

    @cached_property
    def entry(self) -> model_state.Entry | None:
        """The attempt at this batch that counts."""
        return self._counting(self.state.entry(self.batch))

    @cached_property
    def last(self) -> model_state.Entry | None:
        """The newest attempt at an earlier batch that counts."""
        earlier = [one for one in self.state.journal if one.batch < self.batch]
        return self._counting(earlier[-1] if earlier else None)

    @property
    def later(self) -> model_state.Entry | None:
        """An attempt at a later batch."""
        return next((one for one in self.state.journal if one.batch > self.batch), None)

    def _counting(self, entry: model_state.Entry | None) -> model_state.Entry | None:
        if entry is None or self._is_let_go(entry.batch):
            return None
        if entry.previous is not None and self._is_let_go(entry.previous[0]):
            return replace(entry, previous=None)
        return entry

    def _is_let_go(self, batch: int) -> bool:
        return any(first <= batch <= last for first, last in self.state.let_go)

    def _is_live(self, entry: model_state.Entry) -> bool:
        return (entry.batch, entry.file) in self.state.main[-1].files

    def _noted_batches(self, batches: range) -> list[tuple[int, Note, Removed]]:
        return [
            (one.batch, note, one)
            for note, one in self.state.removed
            if one.batch is not None and one.batch in batches and not self._is_let_go(one.batch)
        ]

    def first_taken(self, batches: range) -> int | None:
        """The first of these batches that a note surely names."""
        noted = self._noted_batches(batches)
        return min((batch for batch, _, one in noted if one.certain), default=None)

    @cached_property
    def cut(self) -> Ref | None:
        """Where the rollbacks ended that took the base of the attempt and none of our batches."""
        entry, state = self.entry, self.state
        if entry is None or entry.base is None:
            return None
        if fate_of(state, entry.base, state.main[-1]).is_held:
            return None
        cut = cut_below(state, entry.base, stood=entry.millis)
        if cut is None:
            return None
        if entry.previous is not None:
            is_ours_below = entry.previous[1][0] <= cut[0]
        elif self.last is not None:
            is_ours_below = self._is_live(self.last)
        else:
            is_ours_below = not self._unjournalled(-1)
        return cut if is_ours_below else None

    def _unjournalled(self, above: int) -> range:
        since = None if self.later is not None else self.state.since
        return range(above + 1, self.batch if since is None else min(since, self.batch))

    # -- the facts --------------------------------------------------------------------------------
    def _own(self) -> Own:
        own, passed_over = self.own, self.state.passed_over
        if own is None:
            return Own.NONE
        if self.own_batch < self.batch:
            return Own.BELOW
        if self.own_batch == self.batch:
            return Own.THIS_BATCH
        if passed_over is not None and passed_over[0] <= self.batch and passed_over[1] == own.ref:
            return Own.PASSED_OVER
        return Own.ABOVE

    def _last(self) -> Last:
        last, value = self.last, self.ask(Own)
        if value is Own.BELOW:
            return self._last_above()
        if last is None or value not in (Own.NONE, Own.PASSED_OVER):
            return Last.NONE
        noted = self._noted_fate(last)
        if noted is not Fate.EXPIRED and self._is_live(last):
            noted = Fate.IN_TABLE
        if noted in (Fate.ROLLED_BACK, Fate.UNKNOWN):
            return Last.ROLLED_BACK if noted is Fate.ROLLED_BACK else Last.CANNOT_BE_KNOWN
        base = last.newest or last.base
        if base is not None and is_replaced(self.state, base):
            return Last.ROLLED_BACK
        if is_whole_after(self.state, base):
            return Last.ROLLED_BACK
        return Last.HELD if self._is_live(last) else Last.UNPROVEN

    def _noted_fate(self, last: model_state.Entry) -> Fate:
        newest, *earlier = last.uuids
        noted = note_of_uuid(self.state, newest)
        if noted is not None:
            return judge_note(noted)
        others = [found for uuid in earlier if (found := note_of_uuid(self.state, uuid))]
        others += [
            (note, one)
            for note, one in self.state.removed
            if one.batch is not None and one.batch <= last.batch and not self._is_let_go(one.batch)
        ]
        is_open = any(not is_before(note, last.millis) for note, _ in others)
        return Fate.UNKNOWN if is_open else Fate.EXPIRED

    def _last_above(self) -> Last:
        entry, last, state = self.entry, self.last, self.state
        previous = None if entry is None else entry.previous
        known = max(-1 if last is None else last.batch, -1 if previous is None else previous[0])
        if self.own_batch >= known:
            return Last.NONE
        lost = previous if previous is not None and previous[0] == known else None
        if self._is_proven_gone(lost, last, known):
            return Last.ROLLED_BACK
        if lost is not None and (kept := state.at(lost[1][0])) is not None:
            return Last.BESIDE_THE_LINE if kept.ref == lost[1] else Last.REPLACED
        return Last.ROLLED_BACK

    def _is_proven_gone(
        self, lost: tuple[int, Ref] | None, last: model_state.Entry | None, batch: int
    ) -> bool:
        notes = [] if lost is None else [note_of_nonce(self.state, lost[1][1])]
        if last is not None and last.batch == batch:
            notes.append(note_of_uuid(self.state, last.uuids[0]))
        return any(one is not None and one[1].certain for one in notes)

    def _previous(self) -> Previous:
        previous = None if self.entry is None else self.entry.previous
        if previous is None:
            return Previous.NONE
        if is_replaced(self.state, previous[1]):
            is_proven = self._is_proven_gone(previous, self.last, previous[0])
            return Previous.ROLLED_BACK if is_proven else Previous.REPLACED
        if self.last is not None:
            return Previous.HELD
        noted = judge_note(note_of_nonce(self.state, previous[1][1]))
        if noted is Fate.EXPIRED:
            return Previous.HELD
        return Previous.ROLLED_BACK if noted is Fate.ROLLED_BACK else Previous.CANNOT_BE_KNOWN

    def _gap(self) -> Gap:
        return Gap.BATCHES if self.own and self.own_batch + 1 < self.batch else Gap.NONE

    def _noted(self) -> Noted:
        missing = self._unjournalled(self.own_batch if self.ask(Own) is Own.BELOW else -1)
        if all(self._is_let_go(one) for one in missing):
            return Noted.NOTHING
        noted = [
            (batch, one.certain)
            for batch, note, one in self._noted_batches(missing)
            if not self._is_older(note)
        ]
        if noted:
            return Noted.TAKEN if max(noted)[1] else Noted.MAY_BE_TAKEN
        done = self.state.done_millis
        for note, _ in self.state.removed:
            if note.took_expired and not is_before(note, done) and not self._is_older(note):
                return Noted.MAY_BE_TAKEN
        return Noted.NOTHING

    def _is_older(self, note: Note) -> bool:
        own = self.own
        if own is None:
            return False
        restored = frozenset().union(*(one.restored for one in self.state.notes))
        is_above = note.target[0] < own.id and own.nonce not in restored
        return (note.by == ROLLBACK and is_above) or is_before(note, own.millis)

    def _later(self) -> Later:
        return Later.NONE if self.later is None else Later.PREPARED

    def _entry(self) -> Entry:
        return Entry.NONE if self.entry is None else Entry.PREPARED

    def _base(self) -> Base:
        if self.entry is None or self.entry.base is None:
            return Base.NONE
        if self.cut is not None:
            return Base.CUT
        is_above = self.entry.base[0] > self.state.main[-1].id
        return Base.ROLLED_BACK if is_above else Base.NOT_ABOVE

    def _window(self) -> Window:
        entry, state = self.entry, self.state
        if entry is None:
            return Window.NONE
        if self.cut is not None and is_whole_after(state, self.cut):
            return Window.ALL_SINCE_CUT
        if is_whole_after(state, entry.base):
            base = entry.base
            if base is None or fate_of(state, base, state.main[-1]).is_held:
                return Window.ALL_SINCE_BASE
            if is_whole_after(state, None):
                return Window.ALL_SINCE_BASE
        return Window.MISSING

    def _live(self) -> Live:
        return Live.LIVE if self.entry is not None and self._is_live(self.entry) else Live.NONE

    def _number(self) -> Number:
        return Number.FIRST if self.batch == 0 else Number.LATER

    def _journal(self) -> Journal:
        since = self.state.since
        vouches = since is not None and since <= self.batch
        return Journal.VOUCHES if vouches else Journal.SAYS_NOTHING

    def _history(self) -> History:
        is_whole = self.own is not None or self.state.main[0].id == 1
        return History.WHOLE if is_whole else History.EXPIRED


_FINDERS: Final[Mapping[type[Enum], Callable[[Facts], Enum]]] = MappingProxyType(
    {
        Own: Facts._own,
        Last: Facts._last,
        Previous: Facts._previous,
        Gap: Facts._gap,
        Noted: Facts._noted,
        Later: Facts._later,
        Entry: Facts._entry,
        Base: Facts._base,
        Window: Facts._window,
        Live: Facts._live,
        Number: Facts._number,
        Journal: Facts._journal,
        History: Facts._history,
    }
)


class NextFacts:
    """The facts of the next batch of the run that is alive."""

    def __init__(self, state: State, run: Run) -> None:
        self.state, self.run, self.batch = state, run, state.next_batch
        self.latest = state.main[-1]

    def ask(self, fact: type[Fact]) -> Fact:
        """The value of a fact."""
        return cast("Fact", _NEXT_FINDERS[fact](self))

    def all(self) -> tuple[Enum, ...]:
        """The values of all facts."""
        return tuple([self.ask(fact) for fact in LATER_BATCH])

    def _order(self) -> Order:
        return Order.AFTER if self.batch > self.run.batch else Order.NOT_AFTER

    def _finished(self) -> Finished:
        return Finished.HAD_EXPIRED if self.run.has_expired else Finished.KNOWN

    def _remembered(self) -> Remembered:
        own = self.run.own
        if own is None:
            return Remembered.NONE
        batch, ref = own

        def took_it(one: Removed) -> bool:
            return one.batch is not None and one.batch <= batch

        fate = fate_of(self.state, ref, self.latest, stood=self.run.stood, took_it=took_it).fate
        if fate in (Fate.IN_TABLE, Fate.EXPIRED):
            return Remembered.STANDS if fate is Fate.IN_TABLE else Remembered.EXPIRED
        if fate is Fate.REPLACED:
            return Remembered.REPLACED
        if self.latest.id <= ref[0]:
            return Remembered.ROLLED_BACK
        return Remembered.NOTED if fate is Fate.ROLLED_BACK else Remembered.DOUBTED

    def _attempts(self) -> Attempts:
        return Attempts.JOURNALLED if self.state.setting.journal else Attempts.NOT_JOURNALLED

    def _seen(self) -> Seen:
        own, seen = self.run.own, self.run.seen
        if seen is None or (own is not None and seen == own[1]):
            return Seen.HELD
        is_held = fate_of(self.state, seen, self.latest).is_held is True
        return Seen.HELD if is_held else Seen.NOT_HELD

    def _followed(self) -> Followed:
        if not self.run.follows:
            return Followed.NOBODY
        seen = self.run.seen
        if self.run.own is None and seen is not None and not self.state.stands(seen):
            return Followed.MAY_HAVE_MISSED
        return Followed.NOTHING_MISSED

    def _since(self) -> Since:
        seen = 0 if self.run.seen is None else self.run.seen[0]
        newer = [one for one in self.state.main if one.id > seen]
        if any(one.batch is not None and one.batch >= self.batch for one in newer):
            return Since.THE_BATCH
        is_whole = is_whole_after(self.state, self.run.seen)
        return Since.NOT_THE_BATCH if is_whole else Since.MISSING


_NEXT_FINDERS: Final[Mapping[type[Enum], Callable[[NextFacts], Enum]]] = MappingProxyType(
    {
        Order: NextFacts._order,
        Finished: NextFacts._finished,
        Remembered: NextFacts._remembered,
        Attempts: NextFacts._attempts,
        Seen: NextFacts._seen,
        Followed: NextFacts._followed,
        Since: NextFacts._since,
    }
)
