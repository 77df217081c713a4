"""The refusals of the ledger. Each raises its error, or only logs a warning if an operator has decided to
continue.
"""

from __future__ import annotations

from paimon_stream.commit.refusals import Refusals
from paimon_stream.errors import (
    CheckpointReset,
    CheckpointRewound,
    CommitLost,
    HistoryUnknown,
    SharedCheckpoint,
    TableReplaced,
    TableRolledBack,
)
from paimon_stream.format.journal_entry import PreviousBatch
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.options import ON_CHECKPOINT_RESET, ON_TABLE_CHANGE, ON_UNKNOWN_HISTORY

__all__ = ["ReplayErrors"]


class ReplayErrors(Refusals):
    """The refusals for one batch of one stream, as the options say."""

    __slots__ = ()

    def checkpoint_reset(self, other_query: str | None, where: str) -> None:
        """Another checkpoint of this stream wrote here."""
        who = "a writer that left no query id" if other_query is None else f"query {other_query}"
        self.decide(
            ON_CHECKPOINT_RESET,
            CheckpointReset,
            f"{who} wrote here before under this stream's identity ({where}), so this checkpoint is new or "
            "the commit user is shared, and rows may be read from the source a second time",
            "Restore the old checkpoint; or, if the rows may be written again or the source was moved past "
            "them, let it continue",
        )

    def checkpoint_rewound(self, cause: str) -> None:
        """The table is ahead of the checkpoint."""
        self.decide(
            ON_CHECKPOINT_RESET,
            CheckpointRewound,
            f"{cause}, so the checkpoint was restored from an older copy, or two queries use copies of it",
            "Restore the newest checkpoint; or, if the rows may be written again, let it continue",
        )

    def published_by_earlier_run(self) -> SharedCheckpoint:
        """The error for a batch of which an earlier attempt has live files, and whose snapshot expired."""
        return SharedCheckpoint(
            f"{self.location}: while commit user {self.user!r} worked on batch {self.batch_id}, an earlier "
            "run of this stream, or another query on its checkpoint, published it: files that it had "
            "prepared are part of the table, and the snapshot has expired since. That batch stays, and this "
            "run published nothing. If the other run is still alive, stop it. Then start the query again: it "
            "continues after this batch.",
            table=self.location,
            user=self.user,
            batch=self.batch_id,
        )

    def later_run_began(self) -> SharedCheckpoint:
        """The error for a run that lives on after a later run of the stream has begun."""
        return SharedCheckpoint(
            f"{self.location}: a later run of commit user {self.user!r} has begun, so this run stops before "
            f"batch {self.batch_id}. It published nothing of that batch. Two queries run on one checkpoint, "
            "or share a commit user. Stop one.",
            table=self.location,
            user=self.user,
            batch=self.batch_id,
        )

    def table_replaced(self, cause: str) -> None:
        """The table is not the one the stream wrote to."""
        self.decide(
            ON_TABLE_CHANGE,
            TableReplaced,
            f"{cause}: it was dropped and created again, and rows of earlier batches are not in it",
            "Start a new checkpoint to write everything again; or let it continue with this batch",
        )

    def maybe_rolled_back(self, batch_id: int) -> None:
        """Manifest lists are missing that would show whether an earlier batch of ours is in the table."""
        self.decide(
            ON_UNKNOWN_HISTORY,
            HistoryUnknown,
            f"batch {batch_id} was committed, and its snapshot is gone. The manifest lists are missing that "
            "would show whether it has expired or was rolled back, so its rows may not be in the table",
            f"Look for the rows of batch {batch_id} and of earlier ones, and write again what is missing. "
            "Then let it continue with this batch",
        )

    def commit_lost(self, lost: PreviousBatch, there: Snapshot, *, proven: bool = True) -> None:
        """Another commit has the id of one of our snapshots. Unless it is `proven` to lie in the lineage, it
        may have been created there after ours had expired."""
        if not proven:
            return self.maybe_rolled_back(lost.batch_id)
        self.decide(
            ON_TABLE_CHANGE,
            CommitLost,
            f"snapshot {lost.snapshot.id}, in which batch {lost.batch_id} of this stream was committed, now "
            f"holds commit {there.commit_identifier} of user {there.commit_user!r}: a writer that does not "
            "publish atomically replaced it, or the table was rolled back and written again. The rows of "
            f"batch {lost.batch_id} are not in the table",
            "Write those rows again from the source, and let other engines write only through a catalog with "
            "a lock; or let it continue with this batch",
        )

    def beside_the_line(self, lost: PreviousBatch, latest: Snapshot) -> None:
        """Our snapshot still exists, but the table's snapshots were not built on it."""
        self.decide(
            ON_TABLE_CHANGE,
            TableRolledBack,
            f"batch {lost.batch_id} of this stream was committed as snapshot {lost.snapshot.id}, which still "
            f"stands, but the table's newest snapshot, {latest.id}, was not built upon it. This is no "
            "rollback: the file LATEST named an old snapshot when that batch was committed, so the batch "
            "lies beside the table's line of snapshots",
            f"Read the rows of snapshot {lost.snapshot.id} with PaimonTable.to_arrow(snapshot_id=…), write "
            "what is missing in the table again, and correct the hint with 'paimon-stream repair-hints "
            "--yes'. Then let it continue with this batch",
        )

    def table_rolled_back(self, cause: str) -> None:
        """Our last snapshot is gone from the lineage."""
        self.decide(
            ON_TABLE_CHANGE,
            TableRolledBack,
            f"{cause}: the table was rolled back, or a writer that does not publish atomically replaced a "
            "snapshot, and rows of earlier batches are not in it",
            "Write those rows again from the source (a new checkpoint); or let it continue with this batch",
        )
