"""Counts what is maintained after commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.maintenance.expire import ExpireReport
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.table.table import Table


@dataclass(slots=True, kw_only=True)
class CountedAfterCommit(AfterCommit):
    """Counts the snapshots that expired, and the failures."""

    protect: Callable[[Table, Snapshot], object] = protect_last_snapshot
    expired: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        told = self.on_expiry

        def count(report: ExpireReport | None) -> None:
            if report is None:
                self.failures += 1
            else:
                self.expired += len(report.snapshots)
            if told is not None:
                told(report)

        self.on_expiry = count
