"""Strict mode: option `commit.strict-mode.last-safe-snapshot` (semantics.md 2.9).

Invariant: the last safe snapshot only moves forward, to a base whose whole way there was looked at.
"""

from __future__ import annotations

from paimon_stream.commit.base import Base
from paimon_stream.commit.conflicts import Scene, check_strict_mode, check_strict_overwrite
from paimon_stream.errors import HistoryUnknown
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.options import STRICT_MODE, Options
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore

__all__ = ["StrictMode"]


class StrictMode:
    """What others did since the last safe snapshot, looked at before each attempt. Does nothing where the
    option is not set; −1 is the latest snapshot at the first commit."""

    def __init__(self, options: Options, snapshots: SnapshotStore, manifests: ManifestStore) -> None:
        self._snapshots = snapshots
        self._manifests = manifests
        self._last_safe = options.value(STRICT_MODE) if options.is_set(STRICT_MODE) else None

    def check(self, scene: Scene, base: Base) -> None:
        """Looks at the snapshots up to the base, which is the last safe one from then on.

        Raises `StrictModeViolated`, and `HistoryUnknown` where some of them have expired.
        """
        if self._last_safe is None:
            return
        if self._last_safe < 0:
            self._last_safe = base.id
        window = self._snapshots.window(self._last_safe, base.id)
        if not window.complete:
            raise HistoryUnknown(
                f"{scene}: snapshots since {self._last_safe}, the last safe one of option "
                f"{STRICT_MODE.key!r}, have expired, so what others did cannot be checked. Nothing was "
                f"published. Set the option to a snapshot that exists, or to -1 for the latest ({base.id}).",
                **scene.facts(),
            )
        check_strict_mode(scene, window.snapshots, self._last_safe)
        if scene.kind is CommitKind.OVERWRITE:
            check_strict_overwrite(scene, window.snapshots, self._last_safe, self._adds_files)
        self._last_safe = max(self._last_safe, base.id)

    def _adds_files(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot's delta has files in real buckets: from 0 up, as postponed ones have none."""
        return any(
            meta.num_added_files + meta.num_deleted_files > 0
            and (meta.max_bucket is None or meta.max_bucket >= 0)
            for meta in self._manifests.delta(snapshot)
        )
