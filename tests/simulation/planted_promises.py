"""Small changes after which a batch commit, an overwrite, a deletion or a compaction promises what
is not in the table.
"""

from __future__ import annotations

from typing import Any

from paimon_stream.change import anew
from paimon_stream.commit.overwrite import OverwriteSource
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.request import Published
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.compact.publish import CompactionSource, PublishedUnits
from paimon_stream.errors import CommitUnknown
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.deletes import KIND


def unknown_is_done(patch: Patch, name: str) -> None:
    """This method of `TableCommit` takes a commit of which nothing is known for done."""

    def commit(self: TableCommit, *given: Any, **more: Any) -> CommitReport:
        try:
            return real(self, *given, **more)  # type: ignore[no-any-return]
        except CommitUnknown:
            where = self._storage.location
            return CommitReport(location=where, user=self._user, identifier=0, outcome="committed")

    real = getattr(TableCommit, name)
    patch.setattr(TableCommit, name, commit)


@bug(
    "A batch commit of which nothing is known counts as done.",
    "batch writer",
    rule=rules.ACKNOWLEDGED,
    why="Its rows are promised, and are not in the table.",
    seed=9,
)
def an_unknown_batch_commit_is_done(patch: Patch) -> None:
    unknown_is_done(patch, "append")


@bug(
    "An overwrite of which nothing is known counts as done.",
    "overwriter",
    rule=rules.ACKNOWLEDGED,
    why="Its rows are promised, and are not in the table.",
    seed=35,
)
def an_unknown_overwrite_is_done(patch: Patch) -> None:
    unknown_is_done(patch, "overwrite")


@bug(
    "A deletion of which nothing is known counts as done.",
    KIND,
    "deleter",
    "second deleter",
    rule=rules.ACKNOWLEDGED,
    why="The deletion is promised, and no snapshot of the table has it.",
)
def an_unknown_deletion_is_done(patch: Patch) -> None:
    def publish(computed: Any, *more: Any) -> Any:
        try:
            return real(computed, *more)
        except CommitUnknown:
            return Published(snapshot=computed.premises.snapshot, attempts=1, phases={})

    real = anew._publish
    patch.setattr(anew, "_publish", publish)


@bug(
    "A compaction of which nothing is known counts as published.",
    "compactor",
    rule=rules.ACKNOWLEDGED,
    why="The compaction is promised, and no snapshot of the table has it.",
    seed=30,
)
def an_unknown_compaction_is_done(patch: Patch) -> None:
    def publish(self: CompactionSource, committer: Any, planned: Any, user: str) -> Any:
        try:
            return real(self, committer, planned, user)
        except CommitUnknown:
            return PublishedUnits(planned, range(len(self._results)))

    real = CompactionSource.publish_rewritten
    patch.setattr(CompactionSource, "publish_rewritten", publish)


@bug(
    "An overwrite removes what its first attempt had found, whatever came since.",
    "overwriter",
    "batch writer",
    rule=rules.REPLACED,
    why="Rows that others have written between two attempts stay.",
)
def an_overwrite_looks_once(patch: Patch) -> None:
    def live(self: OverwriteSource, base: Any) -> Any:
        if not hasattr(self, "once"):
            self.once = real(self, base)  # type: ignore[attr-defined]
        return self.once  # type: ignore[attr-defined]

    real = OverwriteSource._live
    patch.setattr(OverwriteSource, "_live", live)
