"""Rewrites units in other processes. These processes share only the table's storage with this
process (compaction.md RC12.1).

A unit is sent as a commit message of Java. In this message, the files of the bucket are the files
before a compaction. The other process plans the bucket again. It gets the same unit, because a plan
depends only on files and thresholds. The answer is also a commit message. If an answer does not
arrive, or arrives a second time, the new files of that answer are orphans.
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
    """Rewrites one unit in any process. It can be pickled.

    Attributes:
        spec: how files are written.
        limits: the thresholds that decide which files are rewritten. The expiry of keyed thresholds
            is left out, because it cannot be pickled.
        full: whether this is a full compaction.
        since: rows before this time expire, in seconds since 1970. None if rows do not expire.
        message: the unit, as a serialized `CommitMessage`.
    """

    spec: WriteSpec
    limits: Thresholds | KeyedThresholds
    full: bool
    since: int | None = None
    message: bytes = b""

    def taking(self, unit: Unit, vectors: Mapping[str, Vector]) -> "UnitTask":
        """A copy of the task for this unit. `vectors` are the deletion vectors of its files."""
        partition, bucket, total_buckets = unit.bucket
        index_files = {entry.file.file_name: entry.file for entry, _ in vectors.values()}
        message = CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=total_buckets,
            compact_before=tuple(entry.file for entry in unit.known),
            compact_deleted_index_files=tuple(index_files.values()),
        )
        return replace(self, message=message.serialize())

    def __call__(self) -> CommitMessage:
        """The files that were replaced, and the files that replace them. Raises the errors of
        `Rewriter.rewrite`.
        """
        spec = self.spec
        schema = spec.schema
        options = spec.options
        message = CommitMessage.deserialize(self.message)
        layout = layout_of(spec.storage, schema, options)
        table = Table(storage=spec.storage, schema=schema, options=options, layout=layout)
        scan = Scan(
            table=table,
            schema=schema,
            columns=schema.fields,
            snapshot=None,
            files=_files_of(message),
            vectors=_vectors_of(message),
        )
        if schema.primary_keys:
            rewritten = self._rewritten_keyed(scan)
        else:
            rewriter = Rewriter(scan, spec.runtime, silent, ())
            rewritten = rewriter.rewrite(Unit(scan.files))
        return replace(
            message,
            compact_before=tuple(entry.file for entry in rewritten.unit.files),
            compact_after=rewritten.files,
            compact_changelog_files=rewritten.changelog,
            compact_new_index_files=rewritten.index,
            compact_deleted_index_files=(),
        )

    def _rewritten_keyed(self, scan: Scan) -> Rewritten:
        """Carries out the unit for a table with a primary key."""
        limits = self.limits
        table = scan.table
        schema = scan.schema
        assert isinstance(limits, KeyedThresholds)
        if self.since is not None:
            expiry = RecordExpiry.of(schema, table.options, SchemaStore(table.storage), 0)
            if expiry is not None:
                limits = replace(limits, expiry=replace(expiry, since=self.since))
        spec = MergeSpec.of(schema, table.options, table=table.location)
        types = [schema.field(column).type for column in spec.keys]
        unit = next_unit(scan.files, spec, types, limits, full=self.full, vectors=scan.vectors)
        assert unit is not None, (
            "the executors have another release of paimon-stream than the driver"
        )
        keyed_scan = replace(scan, merge=spec)
        rewriter = KeyedRewriter(keyed_scan, self.spec.runtime, silent, [unit], limits)
        return rewriter.rewrite(unit)


def _files_of(message: CommitMessage) -> tuple[ManifestEntry, ...]:
    """The files of the bucket, from the message of a unit."""
    assert message.total_buckets is not None
    return tuple(
        ManifestEntry(
            kind=FileKind.ADD,
            partition=message.partition,
            bucket=message.bucket,
            total_buckets=message.total_buckets,
            file=file,
        )
        for file in message.compact_before
    )


def _vectors_of(message: CommitMessage) -> dict[str, Vector]:
    """The deletion vectors in a message, by the name of the data file."""
    names = {file.file_name for file in message.compact_before}
    vectors: dict[str, Vector] = {}
    for index_file in message.compact_deleted_index_files:
        entry = IndexManifestEntry(
            partition=message.partition, bucket=message.bucket, file=index_file
        )
        for record in index_file.deletions or ():
            if record.data_file in names:
                vectors[record.data_file] = (entry, record)
    return vectors


class Elsewhere(Protocol):
    """Other processes that carry out units."""

    def at_once(self, units: Sequence[Unit]) -> int:
        """How many of these units are rewritten at the same time; 0 if this process has to rewrite
        them.
        """

    def run(self, task: UnitTask) -> CommitMessage:
        """Runs the task and returns its answer. Raises what the task raises. If the task was
        cancelled, this method raises an error of any class.
        """

    def cancel(self) -> None:
        """Cancels all tasks that run."""


class RemoteRewriter(Rewriter):
    """Has units rewritten in other processes."""

    def __init__(
        self,
        scan: Scan,
        task: UnitTask,
        progress: Progress,
        units: Iterable[Unit],
        elsewhere: Elsewhere,
    ) -> None:
        """See `Rewriter`. `task` has everything that is the same for all units."""
        super().__init__(scan, task.spec.runtime, progress, units)
        limits = task.limits
        if isinstance(limits, KeyedThresholds) and limits.expiry is not None:
            task = replace(task, limits=replace(limits, expiry=None), since=limits.expiry.since)
        self._task = task
        self._elsewhere = elsewhere

    def rewrite(self, unit: Unit) -> Rewritten:
        """See `Rewriter.rewrite`."""
        if self._stopped.is_set():
            raise Stopped
        applied = self._applied(unit)
        answer = self._elsewhere.run(self._task.taking(unit, applied))
        self._report(unit.size)
        names_before = {file.file_name for file in answer.compact_before}
        names_after = {file.file_name for file in answer.compact_after}
        replaced = tuple(entry for entry in unit.known if entry.file.file_name in names_before)
        upgrades = tuple(entry for entry in replaced if entry.file.file_name in names_after)
        unit = replace(unit, files=replaced, upgrades=upgrades)
        return Rewritten(
            unit,
            answer.compact_after,
            changelog=answer.compact_changelog_files,
            vectors=applied,
            index=answer.compact_new_index_files,
        )

    def stop(self) -> None:
        """Ends the rewriting everywhere."""
        super().stop()
        self._elsewhere.cancel()
