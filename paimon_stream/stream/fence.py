"""The fence: can another run have published a batch where snapshots have expired? (exactly-once.md
§5).
"""

from collections.abc import Callable
from dataclasses import dataclass

from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.replay_errors import ReplayErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFence:
    """Whether another run can have published one batch where snapshots have expired since the batch
    was judged on `seen`. The committer calls it where it finds such a gap. The own claim excludes
    later runs, but not earlier ones (exactly-once.md §5; docs/architecture.md, What a stream
    keeps). `attempted`: an earlier run may have attempted the batch. `live` counts the files of
    known earlier attempts that are part of the table.
    """

    claims: Claims
    refuse: ReplayErrors
    seen: SnapshotRef | None
    attempted: bool
    live: Callable[[], int]

    def __call__(self) -> bool:
        """Whether nobody else can have published the batch in the gap. Raises `SharedCheckpoint` if
        an earlier run has, `HistoryUnknown` if one may have and no operator has decided to
        continue, `StorageError`, `FormatError`.
        """
        if self.attempted and self.live():
            raise self.refuse.published_by_earlier_run()
        if not self.claims.holds():
            return False
        if self.attempted:
            after = 0 if self.seen is None else self.seen.id
            self.refuse.history_unknown(
                f"snapshots after {after} expired while this run worked on it, and an earlier run of "
                "this stream may have published it in one of them"
            )
        return True
