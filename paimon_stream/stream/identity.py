"""The identity of one streaming writer, and the marks that it leaves on its snapshots.

A stream is identified by its commit user. A *run* of it is one start of its Spark query. With the marks
(snapshot properties), a later run distinguishes its own snapshots from those of another query that was given
the same commit user (semantics.md R1.1, R1.5; exactly-once.md §1).
"""

from dataclasses import dataclass

from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, MARK_PREFIX, Marks, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterIdentity:
    """One run of one streaming writer. A value is None if Spark did not report it.

    `user` is the commit user. `query_id` survives restarts of the query and changes when its checkpoint is
    wiped. `run_id` changes at each start. `token` distinguishes the writers of one run.
    """

    user: str
    query_id: str | None
    run_id: str | None
    checkpoint: str | None = None
    query_name: str | None = None
    token: str

    def properties(self, batch_id: int, offsets_hash: str | None) -> dict[str, str]:
        """The marks for the snapshot of one batch, without unknown values."""
        marks = {
            "query-id": self.query_id,
            "run-id": self.run_id,
            "batch-id": str(batch_id),
            "checkpoint": self.checkpoint,
            "query-name": self.query_name,
            "offsets-hash": offsets_hash,
        }
        return {MARK_PREFIX + key: value for key, value in marks.items() if value is not None}


def is_own(snapshot: Snapshot, identity: WriterIdentity) -> bool:
    """Whether a batch of this stream made the snapshot.

    The snapshot has the stream's user, and it is not known to be of another query. A batch commit under that
    user is not the stream's: its identifier says nothing about batches (semantics.md R1.2).
    """
    if snapshot.commit_user != identity.user or snapshot.commit_identifier == BATCH_IDENTIFIER:
        return False
    theirs = Marks.of(snapshot.properties).query_id
    return theirs is None or identity.query_id is None or theirs == identity.query_id
