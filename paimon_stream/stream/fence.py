"""The fence: can another run have published a batch where snapshots have expired? (exactly-once.md
§5)

A run's own claim excludes later runs. It does not exclude earlier ones: a paused run, or a put that
a dead run had sent, can take effect while the next run works on the same batch. That is possible
until the next run has published a batch. From then on an earlier run that is still alive finds the
batch published, and stops.
"""

from collections.abc import Callable
from dataclasses import dataclass

from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.replay_errors import StreamRefusals


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFence:
    """Whether another run can have published one batch where snapshots have expired since the batch
    was judged. The committer calls the fence when it finds such a gap.

    Attributes:
        claims: the claims of this run.
        refuse: the refusals for the batch.
        seen: the snapshot on which the batch was judged; None for the empty table.
        attempted: whether an earlier run may have attempted the batch.
        live: counts the files of known earlier attempts that are part of the table.
    """

    claims: Claims
    refuse: StreamRefusals
    seen: SnapshotRef | None
    attempted: bool
    live: Callable[[], int]

    def __call__(self) -> bool:
        """Whether nobody else can have published the batch in the expired snapshots. Raises
        `SharedCheckpoint` if an earlier run has published it. Raises `HistoryUnknown` if an earlier
        run may have published it, and no operator has decided to continue. Raises `StorageError`,
        `FormatError`.
        """
        if self.attempted and self.live():
            raise self.refuse.published_by_earlier_run()
        if not self.claims.holds():
            return False
        if self.attempted:
            seen_id = 0 if self.seen is None else self.seen.id
            self.refuse.history_unknown(
                f"snapshots after {seen_id} expired while this run worked on it, and an earlier run of "
                "this stream may have published it in one of them"
            )
        return True
