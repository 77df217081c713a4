"""The identity of a stream, and which snapshots of a table are the stream's own (semantics.md R1.1,
R1.2, R1.5; exactly-once.md §1).
"""

from dataclasses import dataclass

from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.format.snapshot_marks import MARK_PREFIX, ONCE_PREFIX, Marks, own_properties
from paimon_stream.options import Arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterIdentity:
    """The identity of a streaming writer in one run. A value that Spark did not report is None.

    Attributes:
        user: the commit user.
        query_id: the id of the query; a query with a new checkpoint has a new id.
        run_id: the id of the run; each start of the query has a new id.
        checkpoint: the path of the checkpoint.
        query_name: the name that the user gave the query.
        token: distinguishes the writers of one run.
    """

    user: str
    query_id: str | None
    run_id: str | None
    checkpoint: str | None = None
    query_name: str | None = None
    token: str

    def properties(self, batch_id: int, offsets_hash: str | None) -> dict[str, str]:
        """The marks for the snapshot of a batch. A value that is not known has no mark."""
        marks = {
            "query-id": self.query_id,
            "run-id": self.run_id,
            "batch-id": str(batch_id),
            "checkpoint": self.checkpoint,
            "query-name": self.query_name,
            "offsets-hash": offsets_hash,
        }
        return {MARK_PREFIX + key: value for key, value in marks.items() if value is not None}


def check_user(arguments: Arguments, user: object, *, optional: bool = False) -> None:
    """Checks the commit user of a writer. The commit users of batch writes with an identity are not
    allowed: a repeated write removes the files that are kept for such a user. Raises
    `InvalidOption`.
    """
    arguments.text("commit_user", user, optional=optional)
    if isinstance(user, str) and user.startswith(ONCE_PREFIX):
        allowed = (
            f"text that does not begin with {ONCE_PREFIX!r}, as commit users of writes with identity= do, "
            "or write with identity="
        )
        raise arguments.wrong("commit_user", user, allowed)


def is_own(snapshot: Snapshot, identity: WriterIdentity) -> bool:
    """Whether the snapshot was made by a batch of this stream: it has the stream's user, and is not
    known to be another query's. A batch commit of that user does not count, because its identifier
    says nothing about batches of the stream (semantics.md R1.2).
    """
    if snapshot.commit_user != identity.user or snapshot.commit_identifier == BATCH_IDENTIFIER:
        return False
    return is_of_query(Marks.of(own_properties(snapshot)).query_id, identity)


def is_of_query(query_id: str | None, identity: WriterIdentity) -> bool:
    """Whether a query id is that of this stream's query, or one of the two ids is not known."""
    return None in (query_id, identity.query_id) or query_id == identity.query_id
