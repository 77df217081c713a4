"""The refusals of the ledger: each raises its error, or lets pass with a warning where an operator has
decided to continue. One place for the wording, so that every text names table, user, batch, cause and cure.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from paimon_stream.errors import (
    CheckpointReset,
    CheckpointRewound,
    HistoryUnknown,
    ReplayError,
    SharedCheckpoint,
    TableReplaced,
    TableRolledBack,
)
from paimon_stream.options import (
    ON_CHECKPOINT_RESET,
    ON_TABLE_CHANGE,
    ON_UNKNOWN_HISTORY,
    Option,
    Options,
)

__all__ = ["Refusals"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """Raises for one batch of one stream, as the options say."""

    location: str
    user: str
    batch_id: int
    options: Options

    def checkpoint_reset(self, other_query: str | None, where: str) -> None:
        """Another checkpoint of this stream wrote here."""
        who = "a writer that left no query id" if other_query is None else f"query {other_query}"
        self._decide(
            ON_CHECKPOINT_RESET,
            CheckpointReset,
            f"{who} wrote here before under this stream's identity ({where}), so this checkpoint is new or "
            "the commit user is shared, and rows may be read from the source a second time",
            "Restore the old checkpoint; or, if the rows may be written again or the source was moved past "
            "them, let it continue",
        )

    def checkpoint_rewound(self, cause: str) -> None:
        """The table is ahead of the checkpoint."""
        self._decide(
            ON_CHECKPOINT_RESET,
            CheckpointRewound,
            f"{cause}, so the checkpoint was restored from an older copy, or two queries use copies of it",
            "Restore the newest checkpoint; or, if the rows may be written again, let it continue",
        )

    def history_unknown(self, cause: str) -> None:
        """Nothing tells whether the batch was committed."""
        self._decide(
            ON_UNKNOWN_HISTORY,
            HistoryUnknown,
            f"whether the batch was committed cannot be told: {cause}",
            "Look for the batch's rows in the table. If they are missing, let it continue; keep snapshots "
            "longer than a stream may be down (snapshot.time-retained, snapshot.num-retained.min)",
        )

    def table_replaced(self, cause: str) -> None:
        """The table is not the one the stream wrote to."""
        self._decide(
            ON_TABLE_CHANGE,
            TableReplaced,
            f"{cause}: it was dropped and created again, and rows of earlier batches are not in it",
            "Start a new checkpoint to write everything again; or let it continue with this batch",
        )

    def table_rolled_back(self, cause: str) -> None:
        """Our last snapshot is gone from the lineage."""
        self._decide(
            ON_TABLE_CHANGE,
            TableRolledBack,
            f"{cause}: the table was rolled back, or a writer that does not publish atomically replaced a "
            "snapshot, and rows of earlier batches are not in it",
            "Write those rows again from the source (a new checkpoint); or let it continue with this batch",
        )

    def shared_checkpoint(self, snapshot_id: int, identifier: int, run_id: str | None) -> SharedCheckpoint:
        """The error for a batch that another run has published meanwhile."""
        who = f"run {run_id}" if run_id else "another writer"
        return SharedCheckpoint(
            f"{self.location}: while commit user {self.user!r} worked on batch {self.batch_id}, {who} "
            f"published batch {identifier} under the same user (snapshot {snapshot_id}). Its data stands and "
            "this batch was not published. Two queries run on one checkpoint or share a commit user: stop "
            "one.",
            table=self.location,
            user=self.user,
            batch=self.batch_id,
            snapshot=snapshot_id,
        )

    def _decide(self, option: Option[str], kind: type[ReplayError], cause: str, cure: str) -> None:
        what = f"{self.location}, batch {self.batch_id} of commit user {self.user!r}: {cause}."
        if self.options.value(option) == "continue":
            _LOG.warning("%s Continuing, because %s = continue.", what, option.key)
            return
        raise kind(
            f"{what} Nothing was written. {cure}: option {option.key!r} = 'continue'.",
            table=self.location,
            user=self.user,
            batch=self.batch_id,
            option=option.key,
        )
