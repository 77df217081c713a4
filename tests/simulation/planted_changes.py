"""Small changes to the change of rows that the simulation must catch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paimon_stream.change import anew
from paimon_stream.change.keyed import _FilesOfOthers
from paimon_stream.change.matching import FoundRows, MatchingRows
from paimon_stream.commit.premises import Premises
from paimon_stream.commit.sequence import Numbering
from paimon_stream.compact.publish import CompactionSource
from paimon_stream.errors import ChangedMeanwhile, CommitUnknown
from paimon_stream.options import SEQUENCE_FIELD
from paimon_stream.stream import one_batch, writer
from paimon_stream.stream.judging import judge_batch
from paimon_stream.stream.merged_batch import MergeSource, merge_batch
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.publishing import publish_batch
from paimon_stream.stream.run import StreamRun
from paimon_stream.stream.settling import settle
from paimon_stream.stream.standing import Standing
from paimon_stream.stream.steps import JudgedBatch, PublishedBatch, SettledBatch
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.changing import BY_REWRITING, BY_VECTORS, WITH_KEYS, WITH_SEQUENCE


@bug(
    "Nobody looks what others have done since an update has read its rows.",
    BY_REWRITING,
    "updater",
    "batch writer",
    rule=rules.CHANGED,
    why="Rows that somebody has added meanwhile fulfil the condition and stay as they are.",
    seed=1,
)
def a_stale_update_is_published(patch: Patch) -> None:
    patch.setattr(Premises, "check", lambda *given: None)


@bug(
    "Nobody looks what others have done since a merge has read the rows of its keys.",
    WITH_KEYS,
    "merger",
    "batch writer",
    rule=rules.CHANGED,
    why="The new row of a key is made of a row that somebody has replaced meanwhile.",
    seed=1,
)
def a_stale_merge_is_published(patch: Patch) -> None:
    patch.setattr(Premises, "check", lambda *given: None)


@bug(
    "With a sequence field, rows that others add are no conflict, because the field says which is newer.",
    WITH_SEQUENCE,
    "updater",
    "second updater",
    "batch writer",
    rule=rules.CHANGED,
    why="Of two updates of a row, both of which have read the same values, one is lost.",
)
def updates_under_a_sequence_field_are_lost(patch: Patch) -> None:
    def may_hold(self: _FilesOfOthers, files: Any) -> bool:
        return not self.table.options.is_set(SEQUENCE_FIELD) and real(self, files)

    real = _FilesOfOthers.may_hold
    patch.setattr(_FilesOfOthers, "may_hold", may_hold)


@bug(
    "A compaction does not look whether rows were deleted from its files since it has read them.",
    BY_VECTORS,
    "deleter of rows",
    "compactor",
    "batch writer",
    rule=rules.COMPACTED,
    why="The rewritten file has rows that a deletion has marked in the old one.",
    seed=10,
)
def deletions_in_rewritten_files_are_lost(patch: Patch) -> None:
    patch.setattr(CompactionSource, "_is_as_read", lambda *given: True)


@bug(
    "An update does not look whether its rows were deleted since it has read them.",
    BY_VECTORS,
    "updater",
    "deleter of rows",
    "batch writer",
    rule=rules.CHANGED,
    why="The new values of a row are appended after somebody has deleted it.",
    seed=2,
)
def updated_rows_come_back(patch: Patch) -> None:
    def premises(self: MatchingRows, found: FoundRows, vectors: Any) -> Premises:
        return real(self, found, ())

    real = MatchingRows.premises
    patch.setattr(MatchingRows, "premises", premises)


@bug(
    "Rows that others add to keys whose rows an update changes are no conflict without the condition.",
    WITH_KEYS,
    "updater",
    "batch writer",
    rule=rules.CHANGED,
    why="A row that no longer fulfils the condition is replaced by the update of the row before it.",
    seed=12,
)
def new_rows_of_updated_keys_are_replaced(patch: Patch) -> None:
    def matters(self: _FilesOfOthers, *given: Any) -> bool:
        return real(replace(self, keys=self.keys.slice(0, 0)), *given)

    real = _FilesOfOthers._matters
    patch.setattr(_FilesOfOthers, "_matters", matters)


@bug(
    "A change that got no answer counts as a conflict, and is computed anew.",
    BY_REWRITING,
    "updater",
    "second updater",
    "deleter of rows",
    "merger",
    rule=rules.CHANGED,
    why="The change was published, and its updater reports that it has failed, or makes it once more.",
    seed=19,
)
def a_change_without_an_answer_is_made_again(patch: Patch) -> None:
    def publish(*given: Any) -> Any:
        try:
            return real(*given)
        except CommitUnknown as unknown:
            raise ChangedMeanwhile(str(unknown)) from unknown

    real = anew._publish
    patch.setattr(anew, "_publish", publish)


@bug(
    "A merging stream that is started again publishes the files that its dead run had prepared.",
    WITH_KEYS,
    "merging stream",
    "batch writer",
    rule=rules.CHANGED,
    why="They were computed from rows that others have replaced since.",
    seed=1,
)
def a_dead_merge_is_published(patch: Patch) -> None:
    def merge(judged: JudgedBatch, source: MergeSource) -> PublishedBatch:
        entry = judged.run.journal.read(judged.batch.batch_id)
        if entry is None or entry.base is None:
            return real(judged, source)
        numbering = Numbering(numbered_on=entry.base, may_be_shared=True)
        written = judged.written(entry.messages, numbering=numbering)
        return publish_batch(written, source.before_commit)

    real = one_batch.merge_batch
    patch.setattr(one_batch, "merge_batch", merge)


@bug(
    "A merging stream that is started again does not look whether its batch is in the table.",
    BY_REWRITING,
    "merging stream",
    rule=rules.CHANGED,
    why="The batch is merged into the rows that it has already changed.",
    seed=19,
)
def a_batch_is_merged_again(patch: Patch) -> None:
    def merged(
        run: StreamRun, standing: Standing, batch: Batch, rows: Rows | MergeSource
    ) -> SettledBatch:
        if not isinstance(rows, MergeSource):
            return real(run, standing, batch, rows)
        judged = judge_batch(run, standing, batch)
        if isinstance(judged.verdict, AlreadyCommitted):
            judged = replace(judged, verdict=Fresh(seen=judged.verdict.seen))
        return settle(merge_batch(judged, rows))

    real = writer.one_batch
    patch.setattr(writer, "one_batch", merged)
