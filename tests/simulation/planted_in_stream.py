"""Small changes to the compaction by streams that the simulation must catch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paimon_stream.commit.plan import Changes
from paimon_stream.commit.request import Published
from paimon_stream.commit.watched_files import WatchedFiles
from paimon_stream.errors import CommitUnknown
from paimon_stream.format.entries import FileKind
from paimon_stream.stream.compacting import Compacted, StreamCompaction
from paimon_stream.stream.steps import SettledBatch
from tests.simulation import rules
from tests.simulation.bug import Patch, bug

STREAM = "compacting stream"


def with_id(patch: Patch, step: int) -> None:
    """Compactions by streams have the id of the last batch plus `step`."""

    def publish(self: SettledBatch, source: Any) -> Any:
        memory = self.standing.memory
        if memory is None or memory.own is None:
            return real(self, source)
        other = max(0, memory.own.batch_id + step)
        moved = replace(memory, own=replace(memory.own, batch_id=other))
        return real(replace(self, standing=replace(self.standing, memory=moved)), source)

    real = SettledBatch.publish_compaction
    patch.setattr(SettledBatch, "publish_compaction", publish)


@bug(
    "A compaction by a stream has the id of the batch that comes next.",
    STREAM,
    rule=rules.NO_FALSE_ALARM,
    why="The running stream finds its next batch under its own user, and takes that for a second run of itself.",
)
def a_compaction_takes_the_next_id(patch: Patch) -> None:
    with_id(patch, 1)


@bug(
    "A compaction by a stream has the id of an earlier batch, though a later one is published.",
    STREAM,
    rule=rules.NO_FALSE_ALARM,
    why="The newest snapshot of the stream has the id of an earlier batch, so the run takes its last batch for lost.",
)
def a_compaction_keeps_an_old_id(patch: Patch) -> None:
    with_id(patch, -1)


@bug(
    "The watched files do not learn what others have removed.",
    STREAM,
    "compactor",
    "overwriter",
    rule=rules.ONCE,
    why="It takes files for live that another compaction has replaced, and the new file has their rows once more.",
)
def removals_of_others_are_overlooked(patch: Patch) -> None:
    def take(self: WatchedFiles, entries: Any) -> None:
        real(self, [one for one in entries if one.kind is FileKind.ADD])

    real = WatchedFiles.take
    patch.setattr(WatchedFiles, "take", take)


@bug(
    "The new files of a compaction by a stream are removed although they may be published.",
    STREAM,
    "batch writer",
    rule=rules.WHOLE,
    why="The snapshot that refers to them may stand.",
    seed=192,
)
def new_files_of_streams_go_in_doubt(patch: Patch) -> None:
    def publish(self: StreamCompaction, settled: Any) -> Compacted:
        pending = list(self._pending._tasks)
        try:
            return real(self, settled)
        except CommitUnknown:
            for one in pending:
                if one.future.done() and one.future.exception() is None:
                    one.rewriter.remove([one.future.result()])
            raise

    real = StreamCompaction._publish_done_units
    patch.setattr(StreamCompaction, "_publish_done_units", publish)


@bug(
    "A compaction by a stream of which nothing is known counts as published.",
    STREAM,
    rule=rules.ACKNOWLEDGED,
    why="The compaction is promised, and no snapshot of the table has it.",
    seed=175,
)
def an_unknown_compaction_by_a_stream_is_done(patch: Patch) -> None:
    def publish(self: SettledBatch, source: Any) -> Any:
        try:
            return real(self, source)
        except CommitUnknown:
            entries = tuple(entry for one in source._results for entry in one.deleted())
            done = Changes(entries=entries)
            newest = self.standing.newest
            assert newest is not None
            return Published(snapshot=newest, attempts=1, phases={}, compact_changes=done)

    real = SettledBatch.publish_compaction
    patch.setattr(SettledBatch, "publish_compaction", publish)
