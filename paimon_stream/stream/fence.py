"""Whether another run can have published a batch where snapshots have expired since the batch was judged.

A later run ends the claims of earlier ones before it judges, so the own claim excludes later runs. It does
not exclude earlier ones. A paused run, or a put that a dead run had sent, can take effect while the next run
works on the same batch. That is possible until a run has published a batch: from then on an earlier run that
is still alive finds the batch published, and stops (exactly-once.md §5).
"""

from collections.abc import Callable

from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.replay_errors import ReplayErrors


class RunFence:
    """The fence of one batch. The committer calls it where it finds a gap in the snapshots."""

    def __init__(
        self,
        claims: Claims,
        refuse: ReplayErrors,
        *,
        seen: SnapshotRef | None,
        attempted: bool,
        live: Callable[[], int],
    ) -> None:
        """`seen` is the snapshot on which the batch was judged. `attempted` says that an earlier run may have
        attempted the batch. `live` returns how many files of known earlier attempts are part of the table."""
        self._claims = claims
        self._refuse = refuse
        self._after = 0 if seen is None else seen.id
        self._attempted = attempted
        self._live = live
        self.gap_seen = False

    def __call__(self) -> bool:
        """Whether nobody else can have published the batch in the gap. Raises `SharedCheckpoint` if an earlier run has,
        `HistoryUnknown` if one may have and no operator has decided to continue, `StorageError`, `FormatError`."""
        self.gap_seen = True
        if self._attempted and self._live():
            raise self._refuse.published_by_earlier_run()
        if not self._claims.holds():
            return False
        if self._attempted:
            self._refuse.history_unknown(
                f"snapshots after {self._after} expired while this run worked on it, and an earlier run of "
                "this stream may have published it in one of them"
            )
        return True
