"""Finds in the evidence the facts of a batch that is judged from the storage. A fact is found when
it is asked for.
"""

from functools import cached_property
from types import MappingProxyType
from typing import Final

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.stream.beginnings import (
    has_begun_here,
    which_created,
    which_registered,
    which_shared,
    which_sink,
    which_table,
)
from paimon_stream.stream.branch_origin import which_inherited
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import (
    AttemptPrepared,
    BaseHeld,
    BatchFirst,
    BatchInherited,
    EarlierElsewhere,
    EarlierNoted,
    FilesLive,
    GapLeft,
    HistoryWhole,
    IdentityShared,
    JournalVouches,
    LastHeld,
    LaterPrepared,
    NotesAsked,
    OldNameWrote,
    OursBeside,
    OwnStands,
    PreviousHeld,
    SinkNew,
    TableCreated,
    TableSame,
    UserRegistered,
    WindowWhole,
)
from paimon_stream.stream.finding import Finding, Findings
from paimon_stream.stream.given_up import given_up_as, without_given_up
from paimon_stream.stream.identity import is_of_query
from paimon_stream.stream.last_batch import which_last, which_last_above, which_previous
from paimon_stream.stream.missing_batches import (
    unjournalled,
    which_elsewhere,
    which_noted,
    which_written_again,
)
from paimon_stream.stream.old_names import which_old_name
from paimon_stream.stream.own_history import (
    OwnHistory,
    may_lack_what_was_written_again,
    walk_down_to_own,
    which_own,
    with_rows,
)
from paimon_stream.stream.prepared_attempt import (
    cut_above_ours,
    which_base,
    which_live,
    which_window,
)
from paimon_stream.table.journal import JournalEntry


class Facts(Findings):
    """The facts that the evidence of a batch shows. `journals` says whether the journal of the
    stream is on.
    """

    def __init__(self, evidence: Evidence, *, journals: bool) -> None:
        super().__init__(
            {
                TableSame: self._table_same,
                UserRegistered: self._user_registered,
                OwnStands: self._own_stands,
                IdentityShared: self._identity_shared,
                OldNameWrote: self._old_name_wrote,
                NotesAsked: self._notes_asked,
                TableCreated: self._table_created,
                LastHeld: self._last_held,
                GapLeft: self._gap_left,
                EarlierNoted: self._earlier_noted,
                EarlierElsewhere: self._earlier_elsewhere,
                LaterPrepared: self._later_prepared,
                OursBeside: self._ours_beside,
                FilesLive: self._files_live,
                AttemptPrepared: self._attempt_prepared,
                PreviousHeld: self._previous_held,
                BaseHeld: self._base_held,
                WindowWhole: self._window_whole,
                BatchInherited: self._batch_inherited,
                BatchFirst: self._batch_first,
                SinkNew: self._sink_new,
                JournalVouches: self._journal_vouches,
                HistoryWhole: self._history_whole,
            }
        )
        self.evidence = evidence
        self.journals = journals

    # -- what several facts use -------------------------------------------------------------------
    @cached_property
    def history(self) -> OwnHistory:
        """The stream's snapshots, down to its newest one in the lineage."""
        return walk_down_to_own(self.evidence)

    @property
    def own(self) -> Snapshot | None:
        """The stream's newest snapshot, even if an operator let the checkpoint continue despite
        it.
        """
        return self.history.own

    @cached_property
    def own_with_rows(self) -> Snapshot | None:
        """The snapshot with the rows of our newest batch; None if that batch is not earlier than
        the judged one.
        """
        own = self.own
        is_below = self.ask(OwnStands) is OwnStands.BELOW
        if own is None or not is_below:
            return None
        return with_rows(self.evidence.snapshots, own)

    @cached_property
    def _attempts(self) -> tuple[JournalEntry | None, JournalEntry | None]:
        """The journal's entries of the judged batch and of the newest earlier batch. An entry is
        None if it is missing, if it belongs to another query or table, or if an operator has given
        its batch up.
        """
        evidence = self.evidence
        entry = without_given_up(_of_this_table(evidence.entry, evidence), evidence.given_up)
        last = without_given_up(_of_this_table(evidence.last_entry, evidence), evidence.given_up)
        if last is not None and self.history.own_id < last.batch_id:
            given_up = given_up_as(evidence, evidence.identity.user, evidence.old_names)
            entry = without_given_up(entry, given_up)
            last = without_given_up(last, given_up)
        return entry, last

    @property
    def entry(self) -> JournalEntry | None:
        """The journalled attempt at the judged batch; None if `_attempts` has none."""
        return self._attempts[0]

    @property
    def last_entry(self) -> JournalEntry | None:
        """The newest journalled attempt at an earlier batch; None if `_attempts` has none."""
        return self._attempts[1]

    @cached_property
    def cut(self) -> SnapshotRef | None:
        """The lowest target of the rollbacks that removed the attempt's base, as `cut_above_ours`
        finds it; None without an attempt.
        """
        entry = self.entry
        if entry is None:
            return None
        return cut_above_ours(self.evidence, entry, self.last_entry)

    # -- who and where ----------------------------------------------------------------------------
    def _table_same(self) -> Finding[TableSame]:
        evidence = self.evidence
        entry = _of_this_query(evidence.entry, evidence)
        last = _of_this_query(evidence.last_entry, evidence)
        return which_table(evidence, entry, last)

    def _user_registered(self) -> Finding[UserRegistered]:
        return which_registered(self.evidence)

    def _identity_shared(self) -> Finding[IdentityShared]:
        return which_shared(self.evidence, self.history)

    def _own_stands(self) -> Finding[OwnStands]:
        return which_own(self.evidence, self.own)

    def _old_name_wrote(self) -> Finding[OldNameWrote]:
        last = _of_this_table(self.evidence.last_entry, self.evidence)
        return which_old_name(self.evidence, self.history, last, journals=self.journals)

    # -- what is gone -----------------------------------------------------------------------------
    def _notes_asked(self) -> Finding[NotesAsked]:
        registered = self.evidence.registered
        if registered is None or not registered.asks_notes:
            return Finding(NotesAsked.NOT_ASKED)
        noted = self._noted_of(range(self.evidence.batch.batch_id), None)
        return Finding(_ASKED[noted.value], noted.say)

    def _earlier_noted(self) -> Finding[EarlierNoted]:
        own = self.own
        evidence = self.evidence
        noted = Finding(EarlierNoted.NOTHING)
        if self.ask(GapLeft) is not GapLeft.WRITTEN_AGAIN:
            above = -1
            if self.ask(OwnStands) is OwnStands.BELOW:
                above = self.history.own_id
            noted = self._noted_of(unjournalled(evidence, above), own)
        if noted.value is not EarlierNoted.NOTHING or own is None:
            return noted
        if not self._may_have_written_again:
            return noted
        given_up = given_up_as(evidence, evidence.identity.user, evidence.old_names)
        return which_written_again(evidence, given_up, own)

    @property
    def _may_have_written_again(self) -> bool:
        """Whether batches up to that of our newest snapshot may have been written again above the
        snapshot, and be lost. False if that snapshot has a later batch than the judged one.
        """
        own = self.own
        if own is None or not may_lack_what_was_written_again(self.evidence, own):
            return False
        return self.ask(OwnStands) in (OwnStands.BELOW, OwnStands.THIS_BATCH)

    def _noted_of(self, missing: range, own: Snapshot | None) -> Finding[EarlierNoted]:
        if not missing:
            return Finding(EarlierNoted.NOTHING)
        evidence = self.evidence
        return which_noted(
            evidence,
            evidence.identity.user,
            given_up_as(evidence, evidence.identity.user, evidence.old_names),
            missing,
            own=own,
            doubts_count=evidence.registered is not None,
        )

    def _table_created(self) -> Finding[TableCreated]:
        own = self.own_with_rows
        if own is None and has_begun_here(self.evidence, self.last_entry):
            return Finding(TableCreated.EARLIER)
        return which_created(self.evidence, own)

    def _last_held(self) -> Finding[LastHeld]:
        own = self.own
        evidence = self.evidence
        last = self.last_entry
        own_stands = self.ask(OwnStands)
        if own is not None and own_stands is OwnStands.BELOW:
            return which_last_above(evidence, own, self.entry, last)
        if last is None or own_stands not in (OwnStands.NONE, OwnStands.PASSED_OVER):
            return Finding(LastHeld.NONE)
        return which_last(evidence, evidence.identity.user, last)

    def _gap_left(self) -> Finding[GapLeft]:
        own = self.own
        batch_id = self.evidence.batch.batch_id
        if own is None or own.commit_identifier + 1 >= batch_id:
            if self._may_have_written_again:
                return Finding(GapLeft.WRITTEN_AGAIN)
            return Finding(GapLeft.NONE)
        if self.evidence.registered is None:
            return Finding(GapLeft.BATCHES, lambda refuse: refuse.checkpoint_ahead(own))
        first = own.commit_identifier + 1
        return Finding(GapLeft.BATCHES, lambda refuse: refuse.left_nothing(first, batch_id - 1))

    def _earlier_elsewhere(self) -> Finding[EarlierElsewhere]:
        evidence = self.evidence
        last = self.last_entry
        registered = evidence.registered
        if registered is None:
            return Finding(EarlierElsewhere.NO)
        above = -1
        if last is not None:
            above = last.batch_id
        if self.ask(OwnStands) is OwnStands.BELOW:
            above = self.history.own_id
        return which_elsewhere(evidence, registered, evidence.given_up, above)

    # -- this batch -------------------------------------------------------------------------------
    def _later_prepared(self) -> Finding[LaterPrepared]:
        later = _of_this_table(self.evidence.later_entry, self.evidence)
        if later is not None:
            return Finding(
                LaterPrepared.PREPARED,
                lambda refuse: refuse.checkpoint_rewound(
                    f"this stream had already prepared batch {later.batch_id} for the table"
                ),
            )
        last_given_up = max((last for _, last in self.evidence.given_up), default=-1)
        # An operator gave the batch up so that a later batch could go on. Of the later batch, only
        # the rows may be left.
        if last_given_up < self.evidence.batch.batch_id or self.history.complete:
            return Finding(LaterPrepared.NONE)
        return Finding(
            LaterPrepared.PREPARED,
            lambda refuse: refuse.checkpoint_rewound(
                f"an operator had let this stream go on without batch {last_given_up}, and the "
                "table may have later batches, whose snapshots have expired"
            ),
        )

    def _ours_beside(self) -> Finding[OursBeside]:
        snapshot = self.history.beside
        if snapshot is None or snapshot.commit_identifier < self.evidence.batch.batch_id:
            return Finding(OursBeside.NONE)
        # The snapshot's id may have been used again after it had expired, or lists are missing.
        return Finding(
            OursBeside.THIS_OR_LATER,
            lambda refuse: refuse.history_unknown(
                f"snapshot {snapshot.id} has batch {snapshot.commit_identifier} of this stream, "
                "but the next snapshot does not show that it was built on it"
            ),
        )

    def _files_live(self) -> Finding[FilesLive]:
        return which_live(self.evidence, self.entry)

    def _attempt_prepared(self) -> Finding[AttemptPrepared]:
        if self.entry is None:
            return Finding(AttemptPrepared.NONE)
        return Finding(AttemptPrepared.PREPARED)

    def _previous_held(self) -> Finding[PreviousHeld]:
        return which_previous(self.evidence, self.entry, self.last_entry)

    def _base_held(self) -> Finding[BaseHeld]:
        return which_base(self.evidence, self.entry, self.cut)

    def _window_whole(self) -> Finding[WindowWhole]:
        return which_window(self.evidence, self.entry, self.cut)

    def _batch_inherited(self) -> Finding[BatchInherited]:
        return which_inherited(self.evidence)

    def _batch_first(self) -> Finding[BatchFirst]:
        if self.evidence.batch.batch_id == 0:
            return Finding(BatchFirst.FIRST)
        return Finding(BatchFirst.LATER)

    def _sink_new(self) -> Finding[SinkNew]:
        return which_sink(self.evidence, journals=self.journals)

    def _journal_vouches(self) -> Finding[JournalVouches]:
        since = self.evidence.journal_since
        if since is not None and self.evidence.batch.batch_id >= since:
            return Finding(JournalVouches.VOUCHES)
        return Finding(JournalVouches.SAYS_NOTHING)

    def _history_whole(self) -> Finding[HistoryWhole]:
        if self.history.complete:
            return Finding(HistoryWhole.WHOLE)
        return Finding(
            HistoryWhole.EXPIRED,
            lambda refuse: refuse.history_unknown(
                "no snapshot of this stream or journal of this batch is left, and older ones expired"
            ),
        )


def _of_this_query(entry: JournalEntry | None, evidence: Evidence) -> JournalEntry | None:
    """The journal entry, unless another query wrote it under the same commit user."""
    if entry is None or not is_of_query(entry.query_id, evidence.identity):
        return None
    return entry


def _of_this_table(entry: JournalEntry | None, evidence: Evidence) -> JournalEntry | None:
    """The journal entry, unless it belongs to another query, or to another table that was at this
    location.
    """
    entry = _of_this_query(entry, evidence)
    if entry is None or entry.schema_digest != evidence.schema_digest:
        return None
    return entry


_ASKED: Final = MappingProxyType(
    {
        EarlierNoted.NOTHING: NotesAsked.NOTHING,
        EarlierNoted.REMOVED: NotesAsked.REMOVED,
        EarlierNoted.MAY_BE_REMOVED: NotesAsked.MAY_BE_REMOVED,
    }
)
