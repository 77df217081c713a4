"""Rewrites units in other processes, which have the table's storage and no more (compaction.md
RC12.1).

A unit travels as Java's commit message, with the files of its bucket as those before a compaction.
The other process plans the bucket again, and finds the same unit, because a plan depends on files
and thresholds only. Its answer is a message, too. Files of an answer that does not arrive, or comes
a second time, are orphans.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from paimon_stream.compact.keyed_plan import KeyedThresholds, next_unit
from paimon_stream.compact.older_rows import RecordExpiry
from paimon_stream.compact.planning import Thresholds
from paimon_stream.compact.rewrite import KeyedRewriter, Rewriter, Rewritten, Stopped
from paimon_stream.compact.units import Unit
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, IndexManifestEntry, ManifestEntry
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress, silent
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table, layout_of
from paimon_stream.table.vectors import Vector
from paimon_stream.write.task import WriteSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTask:
    """Rewrites one unit, which is in `message`, in any process. Can be pickled: the expiry of the
    `limits` stays behind, and `since` says which rows expire, in seconds since 1970.
    """

    spec: WriteSpec
    limits: Thresholds | KeyedThresholds
    full: bool
    since: int | None = None
    message: bytes = b""

    def taking(self, unit: Unit, vectors: Mapping[str, Vector]) -> "UnitTask":
        """The same for this unit, whose files have these deletion vectors."""
        where, bucket, total = unit.bucket
        old = tuple(one.file for one in unit.known)
        index = tuple({entry.file.file_name: entry.file for entry, _ in vectors.values()}.values())
        message = CommitMessage(
            partition=where,
            bucket=bucket,
            total_buckets=total,
            compact_before=old,
            compact_deleted_index_files=index,
        )
        return replace(self, message=message.serialize())

    def __call__(self) -> CommitMessage:
        """The files that were replaced, and those that replace them. Raises what `Rewriter.rewrite`
        raises.
        """
        spec, asked = self.spec, CommitMessage.deserialize(self.message)
        schema, options = spec.schema, spec.options
        layout = layout_of(spec.storage, schema, options)
        table = Table(storage=spec.storage, schema=schema, options=options, layout=layout)
        where, bucket, total = asked.partition, asked.bucket, asked.total_buckets
        assert total is not None
        files = tuple(
            ManifestEntry(
                kind=FileKind.ADD, partition=where, bucket=bucket, total_buckets=total, file=one
            )
            for one in asked.compact_before
        )
        names = {one.file_name for one in asked.compact_before}
        vectors = {
            one.data_file: (IndexManifestEntry(partition=where, bucket=bucket, file=index), one)
            for index in asked.compact_deleted_index_files
            for one in index.deletions or ()
            if one.data_file in names
        }
        scan = Scan(
            table=table,
            schema=schema,
            columns=schema.fields,
            snapshot=None,
            files=files,
            vectors=vectors,
        )
        keyed = bool(schema.primary_keys)
        made = (
            self._keyed(scan)
            if keyed
            else Rewriter(scan, spec.runtime, silent, ()).rewrite(Unit(files))
        )
        gone, new, log = tuple(one.file for one in made.unit.files), made.files, made.changelog
        answer = replace(asked, compact_before=gone, compact_after=new, compact_changelog_files=log)
        return replace(answer, compact_new_index_files=made.index, compact_deleted_index_files=())

    def _keyed(self, scan: Scan) -> Rewritten:
        limits, table, schema = self.limits, scan.table, scan.schema
        assert isinstance(limits, KeyedThresholds)
        if self.since is not None:
            expiry = RecordExpiry.of(schema, table.options, SchemaStore(table.storage), 0)
            limits = replace(limits, expiry=expiry and replace(expiry, since=self.since))
        spec = MergeSpec.of(schema, table.options, table=table.location)
        types = [schema.field(one).type for one in spec.keys]
        unit = next_unit(scan.files, spec, types, limits, full=self.full, vectors=scan.vectors)
        assert unit is not None, (
            "the executors have another release of paimon-stream than the driver"
        )
        return KeyedRewriter(
            replace(scan, merge=spec), self.spec.runtime, silent, [unit], limits
        ).rewrite(unit)


class Elsewhere(Protocol):
    """Other processes that carry out units."""

    def at_once(self, units: Sequence[Unit]) -> int:
        """How many of these units are rewritten at the same time; 0 if this process shall do it."""

    def run(self, task: UnitTask) -> CommitMessage:
        """The answer of the task. Raises what the task raises, and any error if it was
        cancelled.
        """

    def cancel(self) -> None:
        """Gives up all that runs now."""


class RemoteRewriter(Rewriter):
    """Has units rewritten elsewhere. `task` is what they have in common."""

    def __init__(
        self,
        scan: Scan,
        task: UnitTask,
        progress: Progress,
        units: Iterable[Unit],
        there: Elsewhere,
    ) -> None:
        """Raises `ConfigError`s."""
        super().__init__(scan, task.spec.runtime, progress, units)
        limits = task.limits
        if isinstance(limits, KeyedThresholds) and limits.expiry is not None:
            task = replace(task, limits=replace(limits, expiry=None), since=limits.expiry.since)
        self._task, self._elsewhere = task, there

    def rewrite(self, unit: Unit) -> Rewritten:
        """See `Rewriter.rewrite`."""
        if self._stopped.is_set():
            raise Stopped
        applied = self._applied(unit)
        answer = self._elsewhere.run(self._task.taking(unit, applied))
        self._report(unit.size)
        before, after = (
            {one.file_name for one in some}
            for some in (answer.compact_before, answer.compact_after)
        )
        replaced = tuple(one for one in unit.known if one.file.file_name in before)
        upgrades = tuple(one for one in replaced if one.file.file_name in after)
        unit = replace(unit, files=replaced, upgrades=upgrades)
        log, index = answer.compact_changelog_files, answer.compact_new_index_files
        return Rewritten(unit, answer.compact_after, log, applied, index)

    def stop(self) -> None:
        """Ends the rewriting everywhere."""
        super().stop()
        self._elsewhere.cancel()
