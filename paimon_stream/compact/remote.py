"""Rewrites units in other processes, which have the table's storage and no more (compaction.md RC12.1).

A unit travels as Java's commit message, with the files of its bucket as those before a compaction. The other
process plans the bucket again. It finds the same unit, because a plan depends on files and thresholds only.
Its answer is a message, too: the files that were replaced, and those that replace them. Files of an answer
that does not arrive, or comes a second time, are orphans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from paimon_stream.compact.append_plan import Thresholds
from paimon_stream.compact.keyed_plan import KeyedThresholds, next_unit
from paimon_stream.compact.keyed_rewrite import KeyedRewriter
from paimon_stream.compact.record_expiry import RecordExpiry
from paimon_stream.compact.rewrite import Rewriter, Rewritten, Stopped
from paimon_stream.compact.units import KeyedUnit, Unit
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime
from paimon_stream.table.layout import Layout
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table
from paimon_stream.write.task import WriteSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTask:
    """Rewrites one unit in any process. Can be pickled. `limits` lack the expiry of records; rows before
    `since` expire, in seconds since 1970."""

    spec: WriteSpec
    limits: Thresholds | KeyedThresholds
    since: int | None
    full: bool
    message: bytes = b""

    @classmethod
    def of(cls, scan: Scan, limits: Thresholds | KeyedThresholds, runtime: Runtime, *, full: bool) -> UnitTask:
        """What all units of a plan have in common."""
        table, expiry = scan.table, None
        if isinstance(limits, KeyedThresholds):
            limits, expiry = replace(limits, expiry=None), limits.expiry
        spec = WriteSpec(storage=table.storage, schema=scan.schema, options=table.options, runtime=runtime)
        return cls(spec=spec, limits=limits, since=None if expiry is None else expiry.since, full=full)

    def taking(self, unit: Unit) -> UnitTask:
        """The same for one unit."""
        first = unit.files[0]
        message = CommitMessage(
            partition=first.partition,
            bucket=first.bucket,
            total_buckets=first.total_buckets,
            compact_before=tuple(one.file for one in _known(unit)),
        )
        return replace(self, message=message.serialize())

    def __call__(self) -> CommitMessage:
        """Rewrites the unit. Raises what `Rewriter.rewrite` raises."""
        spec, asked = self.spec, CommitMessage.deserialize(self.message)
        table = Table(
            storage=spec.storage, schema=spec.schema, options=spec.options, layout=Layout.of(spec.schema, spec.options)
        )
        keyed = bool(spec.schema.primary_keys)
        merge = MergeSpec.of(spec.schema, spec.options, table=table.location) if keyed else None
        files = tuple(
            ManifestEntry(
                kind=FileKind.ADD,
                partition=asked.partition,
                bucket=asked.bucket,
                total_buckets=asked.total_buckets or -1,
                file=file,
            )
            for file in asked.compact_before
        )
        scan = Scan(
            table=table, schema=spec.schema, columns=spec.schema.fields, snapshot=None, files=files, merge=merge
        )
        made = self._keyed(scan) if keyed else Rewriter(scan, spec.runtime, silent, ()).rewrite(Unit(files))
        return replace(asked, compact_before=tuple(one.file for one in made.unit.files), compact_after=made.files)

    def _keyed(self, scan: Scan) -> Rewritten:
        assert scan.merge is not None
        assert isinstance(self.limits, KeyedThresholds)
        limits, schemas = self.limits, SchemaStore(scan.table.storage)
        if self.since is not None:
            expiry = RecordExpiry.of(scan.schema, scan.table.options, schemas, 0)
            limits = replace(limits, expiry=None if expiry is None else replace(expiry, since=self.since))
        types = [scan.schema.field(name).type for name in scan.merge.keys]
        unit = next_unit(scan.files, scan.merge, types, limits, full=self.full)
        if unit is None:
            raise PaimonStreamError(
                f"{scan.table.location}: bucket {scan.files[0].bucket} needs no compaction where it was to be "
                "rewritten. Install the same release of paimon-stream on the driver and the executors.",
                table=scan.table.location,
            )
        return KeyedRewriter(scan, self.spec.runtime, silent, [unit], limits).rewrite(unit)


class Elsewhere(Protocol):
    """Other processes that carry out units."""

    def at_once(self, units: Sequence[Unit]) -> int:
        """How many of these units are rewritten at the same time; 0 if this process does it as well."""
        ...

    def run(self, task: UnitTask) -> CommitMessage:
        """The answer of the task, from the one attempt that counts. Raises what the task raises, and `Stopped`
        once `cancel` was called."""
        ...

    def cancel(self) -> None:
        """Gives up all that runs."""
        ...


class RemoteRewriter(Rewriter):
    """Has units rewritten elsewhere."""

    def __init__(
        self, scan: Scan, progress: Progress, units: Iterable[Unit], task: UnitTask, elsewhere: Elsewhere
    ) -> None:
        """Raises `ConfigError`s."""
        super().__init__(scan, task.spec.runtime, progress, units)
        self._task = task
        self._elsewhere = elsewhere

    def rewrite(self, unit: Unit) -> Rewritten:
        """See `Rewriter.rewrite`."""
        if self._stopped.is_set():
            raise Stopped
        answer = self._elsewhere.run(self._task.taking(unit))
        self._report(unit.size)
        before, after = ({one.file_name for one in some} for some in (answer.compact_before, answer.compact_after))
        replaced = tuple(one for one in _known(unit) if one.file.file_name in before)
        upgrades = tuple(one for one in replaced if one.file.file_name in after)
        return Rewritten(replace(unit, files=replaced, upgrades=upgrades), answer.compact_after)

    def stop(self) -> None:
        """Ends the rewriting everywhere."""
        super().stop()
        self._elsewhere.cancel()


def _known(unit: Unit) -> tuple[ManifestEntry, ...]:
    """The files from which the unit was planned."""
    return unit.in_bucket if isinstance(unit, KeyedUnit) else unit.files
