"""What a walk down the table's snapshots shows of a stream, above all its newest snapshot
(exactly-once.md §2).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.stream.claims import duplicate_writer
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import OwnStands
from paimon_stream.stream.finding import Finding
from paimon_stream.stream.identity import WriterIdentity, is_of_query, is_own
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.stream.verdicts import Batch
from paimon_stream.table.layout import escape_user
from paimon_stream.table.lineage import Descent
from paimon_stream.table.register import RegisteredWriter
from paimon_stream.table.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHistory:
    """What a walk down the table's snapshots found of a stream. "Our" snapshots are those of this
    stream.

    Attributes:
        own: our newest snapshot.
        complete: whether the walk found `own`, or reached the table's first snapshot.
        of_another_query: the newest snapshot that another query published from our checkpoint path,
            or under our name or commit user.
        published_as: the newest snapshot of the judged batch or a later one that our query
            published under another commit user, by that user.
        newest_of: the newest snapshot of a batch, by commit user.
        beside: a snapshot of ours that is not known to lie in the lineage.
    """

    own: Snapshot | None
    complete: bool
    of_another_query: Snapshot | None
    published_as: Mapping[str, Snapshot]
    newest_of: Mapping[str, Snapshot]
    beside: Snapshot | None = None

    @property
    def own_id(self) -> int:
        """The batch of our newest snapshot; -1 if there is none."""
        if self.own is None:
            return -1
        return self.own.commit_identifier


def walk_down_to_own(evidence: Evidence) -> OwnHistory:
    """What stands of the stream, down to our newest snapshot. Raises `StorageError`,
    `CorruptMetadata`, `UnknownVersion`.
    """
    snapshots = evidence.snapshots
    latest = evidence.latest
    of_another_query = None
    lowest: Snapshot | None = None
    beside: Snapshot | None = None
    published_as: dict[str, Snapshot] = {}
    newest_of: dict[str, Snapshot] = {}
    complete = latest is None
    if latest is not None:
        descent = Descent(snapshots, latest)
        for snapshot in descent:
            if is_own(snapshot, evidence.identity):
                if not descent.ends_in_lineage():
                    beside = snapshot  # all below has expired
                    break
                return OwnHistory(
                    own=snapshot,
                    complete=True,
                    of_another_query=of_another_query,
                    published_as=published_as,
                    newest_of=newest_of,
                )
            lowest = snapshot
            if snapshot.commit_identifier != BATCH_IDENTIFIER:
                newest_of.setdefault(snapshot.commit_user, snapshot)
            marks = Marks.of(own_properties(snapshot))
            if of_another_query is None and is_of_another_query(
                evidence.identity, snapshot.commit_user, marks
            ):
                of_another_query = snapshot
            if _is_published_as_another(evidence, snapshot):
                published_as.setdefault(snapshot.commit_user, snapshot)
        if lowest is not None and lowest.id == 1:
            complete = descent.ends_in_lineage() is True
    return OwnHistory(
        own=None,
        complete=complete,
        of_another_query=of_another_query,
        published_as=published_as,
        newest_of=newest_of,
        beside=beside,
    )


def _is_published_as_another(evidence: Evidence, snapshot: Snapshot) -> bool:
    """Whether our query published the judged batch, or a later one, as this snapshot under another
    commit user.
    """
    query_id = Marks.of(own_properties(snapshot)).query_id
    return (
        query_id is not None
        and query_id == evidence.identity.query_id
        and snapshot.commit_user != evidence.identity.user
        and evidence.batch.batch_id <= snapshot.commit_identifier < BATCH_IDENTIFIER
    )


def is_of_another_query(
    identity: WriterIdentity, user: str, record: Marks | RegisteredWriter
) -> bool:
    """Whether another query has written from our checkpoint path, or under our name or commit user.
    The `record` is what the commit user `user` has left.
    """
    if is_of_query(record.query_id, identity):
        return False
    return user == identity.user or shares_path_or_name(identity, record)


def shares_path_or_name(identity: WriterIdentity, record: Marks | RegisteredWriter) -> bool:
    """Whether the writer that has left the record has our checkpoint path or our query's name. A
    path or name that is not known counts as not shared.
    """
    shares_path = record.checkpoint is not None and record.checkpoint == identity.checkpoint
    shares_name = record.query_name is not None and record.query_name == identity.query_name
    return shares_path or shares_name


def which_own(evidence: Evidence, own: Snapshot | None) -> Finding[OwnStands]:
    """How our newest snapshot compares with the batch."""
    if own is None:
        return Finding(OwnStands.NONE)
    batch_id = evidence.batch.batch_id
    own_id = own.commit_identifier
    marks = Marks.of(own_properties(own))
    if _is_passed_over(evidence, own):
        return Finding(OwnStands.PASSED_OVER)
    if own_id < batch_id:
        return Finding(OwnStands.BELOW)
    if marks.query_id is None and evidence.identity.query_id:
        return Finding(
            OwnStands.UNMARKED,
            lambda refuse: refuse.checkpoint_reset(None, f"snapshot {own.id} (batch {own_id})"),
        )
    if own_id > batch_id:
        return Finding(
            OwnStands.ABOVE,
            lambda refuse: refuse.checkpoint_rewound(
                f"the table holds batch {own_id} of this stream (snapshot {own.id})"
            ),
        )
    if marks.run_id is not None and marks.run_id == evidence.identity.run_id:
        return Finding(OwnStands.THIS_RUN, refuse_duplicate)
    if _is_ahead(evidence.batch, own):
        return Finding(
            OwnStands.OTHER_OFFSETS,
            lambda refuse: refuse.checkpoint_rewound(
                f"batch {batch_id} was committed (snapshot {own.id}) with other source offsets than "
                "this checkpoint's"
            ),
        )
    return Finding(OwnStands.THIS_BATCH)


def refuse_duplicate(refuse: StreamRefusals) -> None:
    """Raises the error for a batch that another sink of this run has."""
    raise duplicate_writer(refuse.location, refuse.user)


def _is_passed_over(evidence: Evidence, own: Snapshot) -> bool:
    """Whether an operator has let the checkpoint continue over our newest snapshot, which would
    otherwise refuse the judged batch. The operator did so with this batch or an earlier one. All
    that was written since then stands above the snapshot, or was removed. A batch with the very
    same source offsets still counts as committed: the newest checkpoint may have been put back
    after that decision.
    """
    if evidence.passed_over is None or not _is_ahead(evidence.batch, own):
        return False
    first, snapshot = evidence.passed_over
    return first <= evidence.batch.batch_id and SnapshotRef.of(own) == snapshot


def may_lack_what_was_written_again(evidence: Evidence, own: Snapshot) -> bool:
    """Whether batches up to that of our newest snapshot may have been written again above the
    snapshot, and be lost since. An operator has let the checkpoint continue over this snapshot, or
    over a later one that is gone. So this snapshot does not show that those batches are in the
    table.
    """
    return evidence.passed_over is not None and own.id <= evidence.passed_over[1].id


def _is_ahead(batch: Batch, own: Snapshot) -> bool:
    """Whether a snapshot of ours has a later batch than the judged one, or the same batch with
    other source offsets.
    """
    if own.commit_identifier != batch.batch_id:
        return own.commit_identifier > batch.batch_id
    offsets_hash = Marks.of(own_properties(own)).offsets_hash
    return None not in (offsets_hash, batch.offsets_hash) and offsets_hash != batch.offsets_hash


def with_rows(snapshots: SnapshotStore, newest: Snapshot) -> Snapshot:
    """The snapshot that has the rows of a batch. `newest` is the newest snapshot of the batch, and
    is returned if the snapshot with the rows has expired. The compactions behind a batch change no
    row. So if another engine replaces the snapshot of a compaction, no batch is lost.
    """
    if newest.commit_kind is not CommitKind.COMPACT:
        return newest
    for snapshot in snapshots.walk_down(newest.id - 1):
        if snapshot.commit_user != newest.commit_user:
            continue
        if snapshot.commit_identifier != newest.commit_identifier:
            break
        if snapshot.commit_kind is not CommitKind.COMPACT:
            return snapshot
    return newest


def is_of_run_without(
    snapshot: Snapshot,
    query_id: str | None,
    batches: range,
    runs_of_sink: Callable[[], frozenset[str]],
) -> bool:
    """Whether a run of the query published one of the batches as this snapshot while the sink was
    not in that run. `runs_of_sink` gives the runs in which the sink has written.
    """
    marks = Marks.of(own_properties(snapshot))
    if None in (query_id, marks.run_id) or marks.query_id != query_id:
        return False
    if snapshot.commit_identifier not in batches:
        return False
    return escape_user(str(marks.run_id)) not in runs_of_sink()
