"""What a run remembers between two batches. The run judges a later batch by this memory, by one
or two snapshot files, and by the snapshots that others have published since (exactly-once.md §2).
This module writes nothing.
"""

from dataclasses import dataclass
from functools import partial

from paimon_stream.commit.window import is_held
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.options import JOURNAL
from paimon_stream.stream.claims import duplicate_writer
from paimon_stream.stream.facts import (
    AttemptsJournalled,
    BatchAfter,
    FinishedKnown,
    OthersFollowed,
    OthersPublished,
    RememberedHeld,
    SeenHeld,
)
from paimon_stream.stream.finding import Finding, Findings, Say, walk
from paimon_stream.stream.identity import WriterIdentity, is_own
from paimon_stream.stream.judgement import NEXT_ROWS, Outcome
from paimon_stream.stream.own_history import refuse_duplicate
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.stream.verdicts import Fresh
from paimon_stream.table.fate import Fate, fate_of
from paimon_stream.table.journal import PreviousBatch
from paimon_stream.table.lineage import newest_of, published_after
from paimon_stream.table.removals import Removed
from paimon_stream.table.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run remembers between batches.

    Attributes:
        batch_id: the last batch that the run finished.
        own: the last batch of the stream that became a snapshot, if there is one.
        seen: the snapshot up to which the run knows who published what; None for the empty table.
        own_stood_millis: a time at which the snapshot of `own` stood (epoch milliseconds).
        has_expired: whether the last batch was found committed, with its snapshot expired. If so,
            later batches may have been committed and have expired, too.
    """

    batch_id: int
    own: PreviousBatch | None
    seen: SnapshotRef | None
    own_stood_millis: int | None = None
    has_expired: bool = False


def judge_next(
    snapshots: SnapshotStore,
    memory: Memory,
    refuse: StreamRefusals,
    *,
    latest: Snapshot | None,
    follows: bool = False,
) -> Fresh | None:
    """Judges a later batch of a run on the latest snapshot. The batch is fresh if three conditions
    hold. The batch is new. Our last snapshot is in the lineage or has expired. Nobody else has
    published the batch since the run last looked.

    If snapshots since the run last looked have expired, and an earlier run may be at this batch,
    the storage must decide. If no earlier run can be at this batch, `seen` stays where it was, and
    the commit asks the fence.

    Args:
        snapshots: the snapshots of the table.
        memory: what the run remembers.
        refuse: the refusals for this batch.
        latest: the latest snapshot.
        follows: whether an earlier run may be at this batch. A run that follows another and has no
            batch of its own would not notice that the table has lost the other run's batches. So
            the storage also decides once the newest snapshot that such a run has seen is gone.

    Returns:
        The verdict. None if the storage must decide, because the memory no longer fits the table or
        says nothing of later batches.

    Raises:
        CommitLost: another engine has replaced our last snapshot.
        ReplayError: exactly-once cannot be proven.
    """
    facts = _NextFacts(snapshots, memory, refuse, latest, follows=follows)
    if walk(facts, NEXT_ROWS, refuse) is Outcome.STORAGE:
        return None
    newest = SnapshotRef.of_optional(latest)
    own_stands = facts.ask(RememberedHeld) is RememberedHeld.STANDS
    if facts.ask(OthersPublished) is OthersPublished.MISSING:
        return Fresh(seen=memory.seen, newest=newest, own=memory.own, own_stands=own_stands)
    return Fresh(seen=newest, own=memory.own, own_stands=own_stands)


class _NextFacts(Findings):
    """The facts of a later batch, by what the run remembers and by a few snapshot files."""

    def __init__(
        self,
        snapshots: SnapshotStore,
        memory: Memory,
        refuse: StreamRefusals,
        latest: Snapshot | None,
        *,
        follows: bool,
    ) -> None:
        super().__init__(
            {
                BatchAfter: self._batch_after,
                FinishedKnown: self._finished_known,
                RememberedHeld: self._remembered_held,
                AttemptsJournalled: self._attempts_journalled,
                SeenHeld: self._seen_held,
                OthersFollowed: self._others_followed,
                OthersPublished: self._others_published,
            }
        )
        self._snapshots = snapshots
        self._memory = memory
        self._latest = latest
        self._follows = follows
        self._user = refuse.user
        self._batch_id = refuse.batch_id
        self._journals = bool(refuse.options.value(JOURNAL))

    def _batch_after(self) -> Finding[BatchAfter]:
        if self._batch_id > self._memory.batch_id:
            return Finding(BatchAfter.AFTER)
        return Finding(BatchAfter.NOT_AFTER, refuse_duplicate)

    def _finished_known(self) -> Finding[FinishedKnown]:
        if self._memory.has_expired:
            return Finding(FinishedKnown.HAD_EXPIRED)
        return Finding(FinishedKnown.KNOWN)

    def _remembered_held(self) -> Finding[RememberedHeld]:
        """What became of the last snapshot of the stream that the run remembers."""
        remembered = self._memory.own
        if remembered is None:
            return Finding(RememberedHeld.NONE)
        snapshots = self._snapshots
        answer = fate_of(
            snapshots,
            remembered.snapshot,
            self._latest,
            stood_millis=self._memory.own_stood_millis,
            removed_it=partial(self._removed_batch, remembered.batch_id),
        )
        if answer.fate is Fate.IN_TABLE:
            return Finding(RememberedHeld.STANDS)
        if answer.is_held:
            return Finding(RememberedHeld.EXPIRED)
        newest_id = 0 if self._latest is None else self._latest.id
        if answer.fate is Fate.REPLACED:
            there = snapshots.find(remembered.snapshot.id)
            if there is not None:
                return Finding(
                    RememberedHeld.REPLACED,
                    lambda refuse: refuse.commit_lost(remembered, there, snapshots.storage),
                )
        elif newest_id <= remembered.snapshot.id:
            return Finding(
                RememberedHeld.ROLLED_BACK,
                lambda refuse: refuse.table_rolled_back(_gone_from_top(remembered, newest_id)),
            )
        value = RememberedHeld.DOUBTED
        if answer.fate is Fate.ROLLED_BACK:
            value = RememberedHeld.NOTED
        return Finding(value, lambda refuse: refuse.gone(remembered.batch_id, answer))

    def _removed_batch(self, batch_id: int, removed: Removed) -> bool:
        """Whether a removal removed a batch of this stream. A removal takes all later snapshots,
        too, so its note may name an earlier batch.
        """
        is_ours = removed.user == self._user and removed.is_of_stream
        return is_ours and removed.identifier is not None and removed.identifier <= batch_id

    def _attempts_journalled(self) -> Finding[AttemptsJournalled]:
        if self._journals:
            return Finding(AttemptsJournalled.JOURNALLED)
        return Finding(AttemptsJournalled.NOT_JOURNALLED)

    def _seen_held(self) -> Finding[SeenHeld]:
        if _has_seen(self._snapshots, self._memory, self._latest):
            return Finding(SeenHeld.HELD)
        return Finding(SeenHeld.NOT_HELD)

    def _others_followed(self) -> Finding[OthersFollowed]:
        if not self._follows:
            return Finding(OthersFollowed.NOBODY)
        if self._memory.own is None and not _still_sees(
            self._snapshots, self._memory.seen, self._latest
        ):
            return Finding(OthersFollowed.MAY_HAVE_MISSED)
        return Finding(OthersFollowed.NOTHING_MISSED)

    def _others_published(self) -> Finding[OthersPublished]:
        seen = self._memory.seen
        latest = self._latest
        seen_id = 0 if seen is None else seen.id
        if latest is None or latest.id <= seen_id:
            return Finding(OthersPublished.NOT_THE_BATCH)
        window = published_after(self._snapshots, seen, latest)
        for snapshot in window.snapshots:
            is_ours = snapshot.commit_user == self._user
            is_of_batch_write = snapshot.commit_identifier == BATCH_IDENTIFIER
            if not is_ours or is_of_batch_write:
                continue
            if snapshot.commit_identifier >= self._batch_id:
                return Finding(OthersPublished.THE_BATCH, _refuse_shared(snapshot))
        if not window.complete:
            return Finding(OthersPublished.MISSING)
        return Finding(OthersPublished.NOT_THE_BATCH)


def _gone_from_top(lost: PreviousBatch, newest_id: int) -> str:
    """The cause of a refusal: the snapshot of our last batch is gone, and no snapshot is above
    it.
    """
    if newest_id == 0:
        return (
            f"snapshot {lost.snapshot.id}, the last one of this stream (batch {lost.batch_id}), "
            "is gone, and the table has no snapshot"
        )
    return (
        f"snapshot {lost.snapshot.id}, the last one of this stream (batch {lost.batch_id}), "
        f"is gone, and snapshot {newest_id} is the newest one"
    )


def _refuse_shared(snapshot: Snapshot) -> Say:
    def say(refuse: StreamRefusals) -> None:
        raise refuse.shared_checkpoint(snapshot)

    return say


def require_absent(
    snapshots: SnapshotStore, identity: WriterIdentity, refuse: StreamRefusals
) -> None:
    """Raises `SharedCheckpoint` if a run of this stream has the batch or a later one in the table's
    lineage.
    """
    latest = snapshots.latest()
    if latest is None:
        return
    newest, _ = newest_of(snapshots, latest, lambda snapshot: is_own(snapshot, identity))
    if newest is not None and newest.commit_identifier >= refuse.batch_id:
        raise refuse.shared_checkpoint(newest)


def superseded(
    snapshot: Snapshot, identity: WriterIdentity, refuse: StreamRefusals
) -> PaimonStreamError:
    """The error for a batch that somebody else published as this snapshot after it was judged."""
    run_id = Marks.of(own_properties(snapshot)).run_id
    if run_id is not None and run_id == identity.run_id:
        return duplicate_writer(refuse.location, refuse.user)
    return refuse.shared_checkpoint(snapshot)


def _has_seen(snapshots: SnapshotStore, memory: Memory, latest: Snapshot | None) -> bool:
    """Whether the newest snapshot that the run has seen is part of the table's lineage, or has
    expired.
    """
    seen = memory.seen
    if seen is None or (memory.own is not None and seen == memory.own.snapshot):
        return True
    return is_held(snapshots, seen, latest) is True


def _still_sees(
    snapshots: SnapshotStore, seen: SnapshotRef | None, latest: Snapshot | None
) -> bool:
    """Whether the newest snapshot that a run has seen stands, so that nothing below it was
    removed.
    """
    if seen is None or (latest is not None and SnapshotRef.of(latest) == seen):
        return True
    return snapshots.stands(seen)
