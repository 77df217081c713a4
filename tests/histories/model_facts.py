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
    AttemptPrepared,
    AttemptsJournalled,
    BaseHeld,
    BatchAfter,
    BatchFirst,
    BatchInherited,
    EarlierElsewhere,
    EarlierNoted,
    FilesLive,
    FinishedKnown,
    GapLeft,
    HistoryWhole,
    IdentityShared,
    JournalVouches,
    LastHeld,
    LaterPrepared,
    NotesAsked,
    OldNameWrote,
    OthersFollowed,
    OthersPublished,
    OursBeside,
    OwnStands,
    PreviousHeld,
    RememberedHeld,
    SeenHeld,
    SinkNew,
    TableCreated,
    TableSame,
    UserRegistered,
    WindowWhole,
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
        TableSame: TableSame.SAME,
        UserRegistered: UserRegistered.OURS,
        IdentityShared: IdentityShared.NONE,
        OldNameWrote: OldNameWrote.NONE,
        NotesAsked: NotesAsked.NOT_ASKED,
        TableCreated: TableCreated.EARLIER,
        EarlierElsewhere: EarlierElsewhere.NO,
        OursBeside: OursBeside.NONE,
        BatchInherited: BatchInherited.NOT,
        SinkNew: SinkNew.NOT_NEW,
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
        return (self.own_batch, own.ref) if own and self.ask(OwnStands) is OwnStands.BELOW else None

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
    def _own_stands(self) -> OwnStands:
        own, passed_over = self.own, self.state.passed_over
        if own is None:
            return OwnStands.NONE
        if self.own_batch < self.batch:
            return OwnStands.BELOW
        if self.own_batch == self.batch:
            return OwnStands.THIS_BATCH
        if passed_over is not None and passed_over[0] <= self.batch and passed_over[1] == own.ref:
            return OwnStands.PASSED_OVER
        return OwnStands.ABOVE

    def _last_held(self) -> LastHeld:
        last, value = self.last, self.ask(OwnStands)
        if value is OwnStands.BELOW:
            return self._last_above()
        if last is None or value not in (OwnStands.NONE, OwnStands.PASSED_OVER):
            return LastHeld.NONE
        noted = self._noted_fate(last)
        if noted is not Fate.EXPIRED and self._is_live(last):
            noted = Fate.IN_TABLE
        if noted in (Fate.ROLLED_BACK, Fate.UNKNOWN):
            return LastHeld.ROLLED_BACK if noted is Fate.ROLLED_BACK else LastHeld.CANNOT_BE_KNOWN
        base = last.newest or last.base
        if base is not None and is_replaced(self.state, base):
            return LastHeld.ROLLED_BACK
        if is_whole_after(self.state, base):
            return LastHeld.ROLLED_BACK
        return LastHeld.HELD if self._is_live(last) else LastHeld.UNPROVEN

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

    def _last_above(self) -> LastHeld:
        entry, last, state = self.entry, self.last, self.state
        previous = None if entry is None else entry.previous
        known = max(-1 if last is None else last.batch, -1 if previous is None else previous[0])
        if self.own_batch >= known:
            return LastHeld.NONE
        lost = previous if previous is not None and previous[0] == known else None
        if self._is_proven_gone(lost, last, known):
            return LastHeld.ROLLED_BACK
        if lost is not None and (kept := state.at(lost[1][0])) is not None:
            return LastHeld.BESIDE_THE_LINE if kept.ref == lost[1] else LastHeld.REPLACED
        return LastHeld.ROLLED_BACK

    def _is_proven_gone(
        self, lost: tuple[int, Ref] | None, last: model_state.Entry | None, batch: int
    ) -> bool:
        notes = [] if lost is None else [note_of_nonce(self.state, lost[1][1])]
        if last is not None and last.batch == batch:
            notes.append(note_of_uuid(self.state, last.uuids[0]))
        return any(one is not None and one[1].certain for one in notes)

    def _previous_held(self) -> PreviousHeld:
        previous = None if self.entry is None else self.entry.previous
        if previous is None:
            return PreviousHeld.NONE
        if is_replaced(self.state, previous[1]):
            is_proven = self._is_proven_gone(previous, self.last, previous[0])
            return PreviousHeld.ROLLED_BACK if is_proven else PreviousHeld.REPLACED
        if self.last is not None:
            return PreviousHeld.HELD
        noted = judge_note(note_of_nonce(self.state, previous[1][1]))
        if noted is Fate.EXPIRED:
            return PreviousHeld.HELD
        return (
            PreviousHeld.ROLLED_BACK if noted is Fate.ROLLED_BACK else PreviousHeld.CANNOT_BE_KNOWN
        )

    def _gap_left(self) -> GapLeft:
        if self.own and self.own_batch + 1 < self.batch:
            return GapLeft.BATCHES
        return GapLeft.WRITTEN_AGAIN if self._may_have_written_again else GapLeft.NONE

    def _earlier_noted(self) -> EarlierNoted:
        noted = EarlierNoted.NOTHING
        if self.ask(GapLeft) is not GapLeft.WRITTEN_AGAIN:
            noted = self._noted_in_gap()
        is_lost_again = noted is EarlierNoted.NOTHING and self._is_lost_again()
        return EarlierNoted.MAY_BE_REMOVED if is_lost_again else noted

    @property
    def doubts_written_again(self) -> bool:
        """Whether what a note may have taken is only what was written again above our snapshot."""
        is_in_gap = self.ask(GapLeft) is not GapLeft.WRITTEN_AGAIN and (
            self._noted_in_gap() is not EarlierNoted.NOTHING
        )
        return not is_in_gap and self._is_lost_again()

    @property
    def _may_have_written_again(self) -> bool:
        own, passed_over = self.own, self.state.passed_over
        if own is None or passed_over is None or own.id > passed_over[1][0]:
            return False
        return self.ask(OwnStands) in (OwnStands.BELOW, OwnStands.THIS_BATCH)

    def _is_lost_again(self) -> bool:
        own = self.own
        if own is None or not self._may_have_written_again:
            return False
        batches = range(min(self.own_batch + 1, self.batch))
        return any(
            one.snapshot is not None and one.snapshot[0] > own.id and not self._is_older(note)
            for _, note, one in self._noted_batches(batches)
        )

    def _noted_in_gap(self) -> EarlierNoted:
        missing = self._unjournalled(
            self.own_batch if self.ask(OwnStands) is OwnStands.BELOW else -1
        )
        if all(self._is_let_go(one) for one in missing):
            return EarlierNoted.NOTHING
        noted = [
            (batch, one.certain)
            for batch, note, one in self._noted_batches(missing)
            if not self._is_older(note)
        ]
        if noted:
            return EarlierNoted.REMOVED if max(noted)[1] else EarlierNoted.MAY_BE_REMOVED
        done = self.state.done_millis
        for note, _ in self.state.removed:
            if note.took_expired and not is_before(note, done) and not self._is_older(note):
                return EarlierNoted.MAY_BE_REMOVED
        return EarlierNoted.NOTHING

    def _is_older(self, note: Note) -> bool:
        own = self.own
        if own is None:
            return False
        restored = frozenset().union(*(one.restored for one in self.state.notes))
        is_above = note.target[0] < own.id and own.nonce not in restored
        return (note.by == ROLLBACK and is_above) or is_before(note, own.millis)

    def _later_prepared(self) -> LaterPrepared:
        is_given_up = any(last >= self.batch for _, last in self.state.let_go)
        has_expired = self.ask(HistoryWhole) is HistoryWhole.EXPIRED
        is_later = self.later is not None or (is_given_up and has_expired)
        return LaterPrepared.PREPARED if is_later else LaterPrepared.NONE

    def _attempt_prepared(self) -> AttemptPrepared:
        return AttemptPrepared.NONE if self.entry is None else AttemptPrepared.PREPARED

    def _base_held(self) -> BaseHeld:
        if self.entry is None or self.entry.base is None:
            return BaseHeld.NONE
        if self.cut is not None:
            return BaseHeld.CUT
        is_above = self.entry.base[0] > self.state.main[-1].id
        return BaseHeld.ROLLED_BACK if is_above else BaseHeld.NOT_ABOVE

    def _window_whole(self) -> WindowWhole:
        entry, state = self.entry, self.state
        if entry is None:
            return WindowWhole.NONE
        if self.cut is not None and is_whole_after(state, self.cut):
            return WindowWhole.ALL_SINCE_CUT
        if is_whole_after(state, entry.base):
            base = entry.base
            if base is None or fate_of(state, base, state.main[-1]).is_held:
                return WindowWhole.ALL_SINCE_BASE
            if is_whole_after(state, None):
                return WindowWhole.ALL_SINCE_BASE
        return WindowWhole.MISSING

    def _files_live(self) -> FilesLive:
        return (
            FilesLive.LIVE
            if self.entry is not None and self._is_live(self.entry)
            else FilesLive.NONE
        )

    def _batch_first(self) -> BatchFirst:
        return BatchFirst.FIRST if self.batch == 0 else BatchFirst.LATER

    def _journal_vouches(self) -> JournalVouches:
        since = self.state.since
        vouches = since is not None and since <= self.batch
        return JournalVouches.VOUCHES if vouches else JournalVouches.SAYS_NOTHING

    def _history_whole(self) -> HistoryWhole:
        is_whole = self.own is not None or self.state.main[0].id == 1
        return HistoryWhole.WHOLE if is_whole else HistoryWhole.EXPIRED


_FINDERS: Final[Mapping[type[Enum], Callable[[Facts], Enum]]] = MappingProxyType(
    {
        OwnStands: Facts._own_stands,
        LastHeld: Facts._last_held,
        PreviousHeld: Facts._previous_held,
        GapLeft: Facts._gap_left,
        EarlierNoted: Facts._earlier_noted,
        LaterPrepared: Facts._later_prepared,
        AttemptPrepared: Facts._attempt_prepared,
        BaseHeld: Facts._base_held,
        WindowWhole: Facts._window_whole,
        FilesLive: Facts._files_live,
        BatchFirst: Facts._batch_first,
        JournalVouches: Facts._journal_vouches,
        HistoryWhole: Facts._history_whole,
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

    def _batch_after(self) -> BatchAfter:
        return BatchAfter.AFTER if self.batch > self.run.batch else BatchAfter.NOT_AFTER

    def _finished_known(self) -> FinishedKnown:
        return FinishedKnown.HAD_EXPIRED if self.run.has_expired else FinishedKnown.KNOWN

    def _remembered_held(self) -> RememberedHeld:
        own = self.run.own
        if own is None:
            return RememberedHeld.NONE
        batch, ref = own

        def took_it(one: Removed) -> bool:
            return one.batch is not None and one.batch <= batch

        fate = fate_of(self.state, ref, self.latest, stood=self.run.stood, took_it=took_it).fate
        if fate in (Fate.IN_TABLE, Fate.EXPIRED):
            return RememberedHeld.STANDS if fate is Fate.IN_TABLE else RememberedHeld.EXPIRED
        if fate is Fate.REPLACED:
            return RememberedHeld.REPLACED
        if self.latest.id <= ref[0]:
            return RememberedHeld.ROLLED_BACK
        return RememberedHeld.NOTED if fate is Fate.ROLLED_BACK else RememberedHeld.DOUBTED

    def _attempts_journalled(self) -> AttemptsJournalled:
        return (
            AttemptsJournalled.JOURNALLED
            if self.state.setting.journal
            else AttemptsJournalled.NOT_JOURNALLED
        )

    def _seen_held(self) -> SeenHeld:
        own, seen = self.run.own, self.run.seen
        if seen is None or (own is not None and seen == own[1]):
            return SeenHeld.HELD
        is_held = fate_of(self.state, seen, self.latest).is_held is True
        return SeenHeld.HELD if is_held else SeenHeld.NOT_HELD

    def _others_followed(self) -> OthersFollowed:
        if not self.run.follows:
            return OthersFollowed.NOBODY
        seen = self.run.seen
        if self.run.own is None and seen is not None and not self.state.stands(seen):
            return OthersFollowed.MAY_HAVE_MISSED
        return OthersFollowed.NOTHING_MISSED

    def _others_published(self) -> OthersPublished:
        seen = 0 if self.run.seen is None else self.run.seen[0]
        newer = [one for one in self.state.main if one.id > seen]
        if any(one.batch is not None and one.batch >= self.batch for one in newer):
            return OthersPublished.THE_BATCH
        is_whole = is_whole_after(self.state, self.run.seen)
        return OthersPublished.NOT_THE_BATCH if is_whole else OthersPublished.MISSING


_NEXT_FINDERS: Final[Mapping[type[Enum], Callable[[NextFacts], Enum]]] = MappingProxyType(
    {
        BatchAfter: NextFacts._batch_after,
        FinishedKnown: NextFacts._finished_known,
        RememberedHeld: NextFacts._remembered_held,
        AttemptsJournalled: NextFacts._attempts_journalled,
        SeenHeld: NextFacts._seen_held,
        OthersFollowed: NextFacts._others_followed,
        OthersPublished: NextFacts._others_published,
    }
)
