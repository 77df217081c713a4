"""Compactors of data files: the job of this package, and a dedicated compaction as Java does it."""

from __future__ import annotations

from dataclasses import replace

from paimon_stream.compact.job import compact
from paimon_stream.compact.publish import CompactReport
from paimon_stream.compact.units import Bucket, bucket_of
from paimon_stream.errors import (
    CommitConflict,
    CommitContended,
    FormatError,
    NotFound,
    PaimonStreamError,
)
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.table import Table, load_table
from tests.simulation import rules
from tests.simulation.actors.base import TAKEN_AWAY, Actor, Work
from tests.simulation.actors.java import TRIES, JavaCommitter
from tests.simulation.rewriting import compacted, merged, pieces_of
from tests.simulation.state import Violation

SOON = {"compaction.min.file-num": "2", "num-sorted-run.compaction-trigger": "2"}
MANNERS: tuple[tuple[bool, dict[str, str]], ...] = (
    (False, SOON),
    (True, SOON),
    (True, {}),
    (
        False,
        SOON | {"target-file-size": "1 kb"},
    ),  # in tables without buckets, each pair of files is a unit
    (True, {"target-file-size": "1 b"}),  # no file is small
    (False, SOON | {"target-file-size": "10 b"}),  # only what writers have written is small
)
"""Whether the compaction is full, and its options."""
ALONE = {
    "compaction.size-ratio": "-100",
    "compaction.max-size-amplification-percent": "100000",
    "num-sorted-run.compaction-trigger": "9",
    "num-levels": "6",
}
STACKING = (*MANNERS[:2], *[(False, ALONE)] * 6)
"""With deletion vectors: most take level 0 alone, so that several levels have vectors."""
TOP = 5


class Compactor(Actor):
    """Compacts data files with this package, in one of several manners."""

    kind = "compactor"
    writes = True
    owes = True
    expects = (CommitConflict, FormatError, *TAKEN_AWAY)

    @property
    def exposed(self) -> bool:
        return True

    def begin(self) -> Work:
        process = self.ready()
        manners = STACKING if self.world.vectors else MANNERS[:3] if self.world.real else MANNERS
        full, options = self.world.choices.pick(manners)
        given = ", ".join(f"{key}={value}" for key, value in options.items())
        self.doing = f"{'a full' if full else 'a'} compaction ({given})"
        return lambda: compact(
            lambda: load_table(process.storage, options), full=full, runtime=process.runtime
        )

    def succeeded(self, result: object) -> None:
        assert isinstance(result, CompactReport)
        if result.snapshot_id is not None:
            self.truth.acknowledge(self.commit, self.ready())

    def failed(self, error: PaimonStreamError) -> None:
        """What others do beside it is no failure, unless it takes away rows."""
        process, truth = self.ready(), self.world.truth
        if process.upsets != truth.upsets or process.drops != truth.drops:
            return
        damaged = isinstance(error, (NotFound, FormatError)) and "bucket-" in str(
            error.context.get("path")
        )
        if damaged or isinstance(error, CommitConflict):
            raise Violation(rules.NO_FALSE_ALARM, f"{self.name}: {error!r}")


class SecondCompactor(Compactor):
    """Another one at the same time. What both have rewritten must be published once."""

    kind = "second compactor"


class JavaCompactor(JavaCommitter):
    """Java's dedicated compaction. It looks whether its files are still live, and then renames. It
    gives up if they are not.
    """

    kind = "Java compactor"
    writes = True

    @property
    def exposed(self) -> bool:
        return True

    def begin(self) -> Work:
        self.doing = "a compaction of Java's"
        self.ready()
        return self.work

    def work(self) -> object:
        storage, table = self.ready().storage, self.table()
        planned = self.newest()
        buckets: dict[Bucket, list[ManifestEntry]] = {}
        for entry in () if planned is None else self._live(table, planned):
            buckets.setdefault(bucket_of(entry), []).append(entry)
        several = [files for files in buckets.values() if len(files) > 1]
        if not several:
            return None
        old = self.world.choices.pick(several)
        if not self.world.keyed:
            old = old[: self.world.choices.pick((len(old), 2))]
        paths = [table.layout.data_file(e.partition, e.bucket, e.file.file_name) for e in old]
        for path in paths:
            storage.read(path)
        new = self._rewritten(old, table.schema.id)
        made = [f"{paths[0].rpartition('/')[0]}/{file.file_name}" for file in new]
        for path in made:
            storage.write(path, b"rows")
        changes = [replace(one, kind=FileKind.DELETE) for one in old]
        changes += [replace(old[0], file=file) for file in new]
        rows = sum(file.row_count for file in new) - sum(one.file.row_count for one in old)
        for _ in range(TRIES):
            latest = self.newest()
            if latest is None or not self._fits(table, latest, old):
                break
            snapshot = self.commit(latest, table, changes, rows, CommitKind.COMPACT)
            if snapshot is not None:
                return snapshot
        for path in made:
            storage.delete(path)
        raise CommitContended("Java gives up")

    def _live(self, table: Table, snapshot: Snapshot) -> list[ManifestEntry]:
        manifests = ManifestStore(self.ready().storage)
        return live_files(manifests, manifests.base_and_delta(snapshot), table.partition_types)

    def _fits(self, table: Table, latest: Snapshot, old: list[ManifestEntry]) -> bool:
        """Whether the old files are live, and no other lies on a level."""
        there = {
            one.identity for one in self._live(table, latest) if bucket_of(one) == bucket_of(old[0])
        }
        known = {one.identity for one in old}
        return known <= there and not any(one.level for one in there - known)

    def _rewritten(self, old: list[ManifestEntry], schema_id: int) -> list[DataFileMeta]:
        """The new files. In append tables each begins at the same number, as Java 1.4.2 numbers
        them.
        """
        world = self.world
        pieces = [piece for entry in old for piece in pieces_of(world, entry)]
        if world.keyed:
            return [replace(compacted(world, merged(pieces), schema_id=schema_id), level=TOP)]
        half = len(pieces) // 2 if world.choices.once_in(3) else 0
        first = min(one.file.min_sequence_number for one in old)
        files = [
            compacted(world, some, schema_id=schema_id)
            for some in (pieces[:half], pieces[half:])
            if some
        ]
        return [one.numbered(first, first + one.row_count - 1) for one in files]
