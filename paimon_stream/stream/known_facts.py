"""The facts of a run's first batch, found in the evidence as they are asked for."""

from functools import cached_property
from types import MappingProxyType
from typing import Final

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.stream.beginnings import (
    has_begun_here,
    which_created,
    which_incarnation,
    which_query,
    which_sink,
    which_table,
)
from paimon_stream.stream.branch_origin import which_branch
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import (
    Asked,
    Base,
    Beside,
    Branch,
    Created,
    Elsewhere,
    Entry,
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
    Own,
    Previous,
    Query,
    Sink,
    Table,
    Window,
)
from paimon_stream.stream.finding import Finding, Findings
from paimon_stream.stream.given_up import given_up_as, without_given_up
from paimon_stream.stream.identity import is_of_query
from paimon_stream.stream.last_batch import which_last, which_last_above, which_previous
from paimon_stream.stream.noted_batches import unjournalled, which_elsewhere, which_noted
from paimon_stream.stream.old_names import which_old_name
from paimon_stream.stream.own_history import OwnHistory, walk_down_to_own, which_own, with_rows
from paimon_stream.stream.prepared_attempt import (
    cut_above_ours,
    which_base,
    which_live,
    which_window,
)
from paimon_stream.table.journal import JournalEntry


class Facts(Findings):
    """The facts that the evidence of a first batch shows. `journals` is whether the stream's journal
    is on.
    """

    def __init__(self, evidence: Evidence, *, journals: bool) -> None:
        super().__init__(
            {
                Table: self._table,
                Query: self._query,
                Own: self._own,
                Incarnation: self._incarnation,
                OldName: self._old_name,
                Asked: self._asked,
                Created: self._created,
                Last: self._last,
                Gap: self._gap,
                Noted: self._noted,
                Elsewhere: self._elsewhere,
                Later: self._later,
                Beside: self._beside,
                Live: self._live,
                Entry: self._entry,
                Previous: self._previous,
                Base: self._base,
                Window: self._window,
                Branch: self._branch,
                Number: self._number,
                Sink: self._sink,
                Journal: self._journal,
                History: self._history,
            }
        )
        self.evidence = evidence
        self.journals = journals

    # -- what several facts use -------------------------------------------------------------------
    @cached_property
    def history(self) -> OwnHistory:
        """What stands of the stream, down to our newest snapshot."""
        return walk_down_to_own(self.evidence)

    @property
    def own(self) -> Snapshot | None:
        """Our newest snapshot, also if an operator has let the stream continue over it."""
        return self.history.own

    @cached_property
    def own_with_rows(self) -> Snapshot | None:
        """The snapshot with the rows of our newest batch, if that is an earlier one."""
        own = self.own
        is_below = self.ask(Own) is Own.BELOW
        return with_rows(self.evidence.snapshots, own) if own is not None and is_below else None

    @cached_property
    def _attempts(self) -> tuple[JournalEntry | None, JournalEntry | None]:
        """The journal's entries of this batch and of the newest earlier one, of this query and
        table, less what an operator has given up.
        """
        evidence = self.evidence
        entry, last = (
            without_given_up(_of_this_table(one, evidence), evidence.given_up)
            for one in (evidence.entry, evidence.last_entry)
        )
        if last is not None and self.history.own_id < last.batch_id:
            given_up = given_up_as(evidence, evidence.identity.user, evidence.old_names)
            entry, last = (without_given_up(one, given_up) for one in (entry, last))
        return entry, last

    @property
    def entry(self) -> JournalEntry | None:
        """The attempt at this batch that counts."""
        return self._attempts[0]

    @property
    def last_entry(self) -> JournalEntry | None:
        """The newest attempt at an earlier batch that counts."""
        return self._attempts[1]

    @cached_property
    def cut(self) -> SnapshotRef | None:
        """Where the rollbacks ended that took the base of the attempt, as in `cut_above_ours`."""
        entry = self.entry
        return None if entry is None else cut_above_ours(self.evidence, entry, self.last_entry)

    # -- who and where ----------------------------------------------------------------------------
    def _table(self) -> Finding[Table]:
        evidence = self.evidence
        entries = (_of_this_query(one, evidence) for one in (evidence.entry, evidence.last_entry))
        return which_table(evidence, *entries)

    def _query(self) -> Finding[Query]:
        return which_query(self.evidence)

    def _incarnation(self) -> Finding[Incarnation]:
        return which_incarnation(self.evidence, self.history)

    def _own(self) -> Finding[Own]:
        return which_own(self.evidence, self.own)

    def _old_name(self) -> Finding[OldName]:
        last = _of_this_table(self.evidence.last_entry, self.evidence)
        return which_old_name(self.evidence, self.history, last)

    # -- what is gone -----------------------------------------------------------------------------
    def _asked(self) -> Finding[Asked]:
        registered = self.evidence.registered
        if registered is None or not registered.asks_notes:
            return Finding(Asked.NOT_ASKED)
        noted = self._noted_of(range(self.evidence.batch.batch_id), None)
        return Finding(_ASKED[noted.value], noted.say)

    def _noted(self) -> Finding[Noted]:
        is_below = self.ask(Own) is Own.BELOW
        above = self.history.own_id if is_below else -1
        return self._noted_of(unjournalled(self.evidence, above), self.own)

    def _noted_of(self, missing: range, own: Snapshot | None) -> Finding[Noted]:
        if not missing:
            return Finding(Noted.NOTHING)
        evidence = self.evidence
        return which_noted(
            evidence,
            evidence.identity.user,
            given_up_as(evidence, evidence.identity.user, evidence.old_names),
            missing,
            own=own,
            doubts_count=evidence.registered is not None,
        )

    def _created(self) -> Finding[Created]:
        own = self.own_with_rows
        if own is None and has_begun_here(self.evidence, self.last_entry):
            return Finding(Created.EARLIER)
        return which_created(self.evidence, own)

    def _last(self) -> Finding[Last]:
        own, evidence, last = self.own, self.evidence, self.last_entry
        value = self.ask(Own)
        if own is not None and value is Own.BELOW:
            return which_last_above(evidence, own, self.entry, last)
        if last is None or value not in (Own.NONE, Own.PASSED_OVER):
            return Finding(Last.NONE)
        return which_last(evidence, evidence.identity.user, last)

    def _gap(self) -> Finding[Gap]:
        own, batch_id = self.own, self.evidence.batch.batch_id
        if own is None or own.commit_identifier + 1 >= batch_id:
            return Finding(Gap.NONE)
        if self.evidence.registered is None:
            return Finding(Gap.BATCHES, lambda refuse: refuse.checkpoint_ahead(own))
        first = own.commit_identifier + 1
        return Finding(Gap.BATCHES, lambda refuse: refuse.left_nothing(first, batch_id - 1))

    def _elsewhere(self) -> Finding[Elsewhere]:
        evidence, last = self.evidence, self.last_entry
        registered = evidence.registered
        if registered is None:
            return Finding(Elsewhere.NO)
        above = -1 if last is None else last.batch_id
        if self.ask(Own) is Own.BELOW:
            above = self.history.own_id
        return which_elsewhere(evidence, registered, evidence.given_up, above)

    # -- this batch -------------------------------------------------------------------------------
    def _later(self) -> Finding[Later]:
        later = _of_this_table(self.evidence.later_entry, self.evidence)
        if later is None:
            return Finding(Later.NONE)
        why = f"this stream had already prepared batch {later.batch_id} for the table"
        return Finding(Later.PREPARED, lambda refuse: refuse.checkpoint_rewound(why))

    def _beside(self) -> Finding[Beside]:
        beside = self.history.beside
        if beside is None or beside.commit_identifier < self.evidence.batch.batch_id:
            return Finding(Beside.NONE)
        # Its id may have been created again after it had expired, or lists are missing.
        unproven = "but the next snapshot does not show that it was built on it"
        why = (
            f"snapshot {beside.id} has batch {beside.commit_identifier} of this stream, {unproven}"
        )
        return Finding(Beside.THIS_OR_LATER, lambda refuse: refuse.history_unknown(why))

    def _live(self) -> Finding[Live]:
        return which_live(self.evidence, self.entry)

    def _entry(self) -> Finding[Entry]:
        return Finding(Entry.NONE if self.entry is None else Entry.PREPARED)

    def _previous(self) -> Finding[Previous]:
        return which_previous(self.evidence, self.entry, self.last_entry)

    def _base(self) -> Finding[Base]:
        return which_base(self.evidence, self.entry, self.cut)

    def _window(self) -> Finding[Window]:
        return which_window(self.evidence, self.entry, self.cut)

    def _branch(self) -> Finding[Branch]:
        return which_branch(self.evidence)

    def _number(self) -> Finding[Number]:
        return Finding(Number.FIRST if self.evidence.batch.batch_id == 0 else Number.LATER)

    def _sink(self) -> Finding[Sink]:
        return which_sink(self.evidence, journals=self.journals)

    def _journal(self) -> Finding[Journal]:
        since = self.evidence.journal_since
        vouches = since is not None and self.evidence.batch.batch_id >= since
        return Finding(Journal.VOUCHES if vouches else Journal.SAYS_NOTHING)

    def _history(self) -> Finding[History]:
        if self.history.complete:
            return Finding(History.WHOLE)
        why = "no snapshot of this stream or journal of this batch is left, and older ones expired"
        return Finding(History.EXPIRED, lambda refuse: refuse.history_unknown(why))


def _of_this_query(entry: JournalEntry | None, evidence: Evidence) -> JournalEntry | None:
    """The entry, unless another query wrote it under a commit user that was given to both."""
    is_mine = entry is not None and is_of_query(entry.query_id, evidence.identity)
    return entry if is_mine else None


def _of_this_table(entry: JournalEntry | None, evidence: Evidence) -> JournalEntry | None:
    """The same, unless it belongs to another table that was at this location."""
    mine = _of_this_query(entry, evidence)
    return None if mine is None or mine.schema_digest != evidence.schema_digest else mine


_ASKED: Final = MappingProxyType(
    {
        Noted.NOTHING: Asked.NOTHING,
        Noted.TAKEN: Asked.TAKEN,
        Noted.MAY_BE_TAKEN: Asked.MAY_BE_TAKEN,
    }
)
