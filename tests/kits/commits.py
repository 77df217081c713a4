"""What the tests of commits share: small tables, messages, committers, and the audit.

Data files here hold a few meaningless bytes. A committer checks whether they exist, but never reads
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paimon_stream.commit.committer import CommitRequest, Committer
from paimon_stream.commit.overwrite import plan_overwrite
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import (
    EMPTY_ROW,
    DataFileMeta,
    FileSource,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.runtime import Runtime, SimulatedClock, simulated
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, create_table
from tests.kits.places import new_storage

FIELDS = (
    DataField(id=0, name="id", type=parse_type("BIGINT")),
    DataField(id=1, name="dt", type=parse_type("STRING")),
)


def forget_removals(storage: Storage) -> None:
    """Deletes all notes of removed snapshots, as if another engine had removed them."""
    storage.delete("_paimon_stream/rolled-back.json")
    for stat in storage.list_files("_paimon_stream", "removed."):
        storage.delete(stat.path)


@dataclass
class Bench:
    """A table on a storage, and everything that a test does with it.

    The bench's own operations bypass the storage that the committers under test use, so planned
    faults affect only the committers.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    partitioned: bool = False
    keys: Sequence[str] = ()
    seed: int = 0
    storage: Storage = field(default_factory=new_storage)

    def __post_init__(self) -> None:
        self.clock = SimulatedClock()
        self.runtime = simulated(self.seed, self.clock)
        made = create_table(
            self.storage,
            FIELDS,
            partition_keys=("dt",) if self.partitioned else (),
            primary_keys=tuple(self.keys),
            options=dict(self.options),
            runtime=self.runtime,
        )
        assert made is not None
        self.table = made
        self.manifests = ManifestStore(self.storage)
        self._metas: dict[str, tuple[ManifestFileMeta, ...]] = {}
        self.snapshots = SnapshotStore(self.storage, self.runtime)

    @property
    def buckets(self) -> int:
        return int(self.options.get("bucket", "-1"))

    def on(self, storage: Storage | None) -> Table:
        """The table on another storage, such as one with faults; None is its own."""
        return replace(self.table, storage=storage or self.storage)

    def committer(
        self,
        storage: Storage | None = None,
        observer: BatchObserver = NO_OBSERVER,
        runtime: Runtime | None = None,
    ) -> Committer:
        return Committer(self.on(storage), runtime or self.runtime, observer)

    def message(
        self,
        name: str,
        *,
        rows: int = 10,
        dt: str | None = None,
        bucket: int = 0,
        total: int | None = None,
    ) -> CommitMessage:
        """A message with one new file, which is written to the storage."""
        partition = serialize([FIELDS[1].type], [dt]) if self.partitioned else EMPTY_ROW
        path = self.table.layout.data_file(partition, bucket, name)
        self.storage.put_if_absent(path, b"data")
        return CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=self.buckets if total is None else total,
            new_files=(data_file(name, rows),),
        )

    def compaction(self, *names: str, into: str, **changed: Any) -> CommitMessage:
        """A message that rewrites live files of one bucket as one new file, written to the
        storage.
        """
        before = [entry for entry in self.live() if entry.file.file_name in names]
        assert len(before) == len(names), f"not all of {names} are live"
        first = before[0]
        self.storage.put_if_absent(
            self.table.layout.data_file(first.partition, first.bucket, into), b"data"
        )
        rows = sum(entry.file.row_count for entry in before)
        return CommitMessage(
            partition=first.partition,
            bucket=first.bucket,
            total_buckets=first.total_buckets,
            compact_before=tuple(entry.file for entry in before),
            compact_after=(
                replace(data_file(into, rows), file_source=FileSource.COMPACT, **changed),
            ),
        )

    def overwriting(
        self,
        identifier: int,
        messages: Iterable[CommitMessage] = (),
        *,
        user: str = "me",
        dt: str | None = None,
    ) -> CommitRequest:
        """A request to replace a partition, or the whole table if `dt` is None."""
        partition = {} if dt is None else {"dt": dt}
        plan = plan_overwrite(self.table, self.manifests, messages, partition=partition)
        return self.request(
            identifier,
            plan.messages,
            user=user,
            source=plan.source,
            kind=CommitKind.OVERWRITE,
            force_snapshot=plan.always,
        )

    def request(
        self,
        identifier: int,
        messages: Iterable[CommitMessage] = (),
        *,
        user: str = "me",
        seen: Snapshot | str | None = "latest",
        **more: object,
    ) -> CommitRequest:
        """A request judged on the latest snapshot, unless `seen` is another one."""
        on = self.snapshots.latest() if isinstance(seen, str) else seen
        return CommitRequest(
            user=user,
            identifier=identifier,
            messages=tuple(messages),
            seen=None if on is None else SnapshotRef.of(on),
            stage_uuid=self.runtime.ids.uuid(),
            **more,  # type: ignore[arg-type]
        )

    def latest(self) -> Snapshot:
        found = self.snapshots.latest()
        assert found is not None
        return found

    def live(self) -> list[ManifestEntry]:
        """The live files of the latest snapshot. A file that is listed twice occurs twice."""
        latest = self.snapshots.latest()
        if latest is None:
            return []
        return live_files(self.manifests, self.metas_of(latest), self.table.partition_types)

    def metas_of(self, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
        """All manifests of a snapshot. They are read once, because lists never change."""
        if snapshot.nonce not in self._metas:
            self._metas[snapshot.nonce] = self.manifests.base_and_delta(snapshot)
        return self._metas[snapshot.nonce]

    def names_of(self, snapshot: Snapshot) -> list[str]:
        """The names of the live files of a snapshot. A file that is listed twice occurs twice."""
        entries = live_files(self.manifests, self.metas_of(snapshot), self.table.partition_types)
        return sorted(entry.file.file_name for entry in entries)

    def live_names(self) -> list[str]:
        return sorted(entry.file.file_name for entry in self.live())

    def changelogs(self) -> list[ManifestEntry]:
        """The changelog files of all snapshots."""
        snapshots = map(self.snapshots.get, self.snapshots.ids())
        return [
            e
            for one in snapshots
            for meta in self.manifests.changelog(one)
            for e in self.manifests.read(meta)
        ]

    def indexes(self) -> list[IndexManifestEntry]:
        """The live index files of the latest snapshot."""
        latest = self.snapshots.latest()
        if latest is None or latest.index_manifest is None:
            return []
        return list(self.manifests.index_entries(latest.index_manifest))

    def put(self, name: str, *, dt: str | None = None, rows: int = 10) -> DataFileMeta:
        """Writes a data or changelog file of bucket 0, to be used in a message."""
        return self.message(name, rows=rows, dt=dt).new_files[0]

    def put_index(self, name: str) -> IndexFileMeta:
        """Writes an index file."""
        self.storage.put_if_absent(f"index/{name}", b"index")
        return IndexFileMeta(index_type="bitmap", file_name=name, file_size=5, row_count=1)

    def expire(self, upto: int) -> None:
        """Deletes the snapshot files up to the id `upto`, and the metadata that only they use."""
        kept: set[str] = set()
        dropped: set[str] = set()
        for snapshot_id in self.snapshots.ids():
            (dropped if snapshot_id <= upto else kept).update(self.metadata_of(snapshot_id))
        for snapshot_id in self.snapshots.ids():
            if snapshot_id <= upto:
                self.storage.delete(f"snapshot/snapshot-{snapshot_id}")
        for name in dropped - kept:
            self.storage.delete(manifest_path(name))

    def metadata_of(self, snapshot_id: int) -> set[str]:
        """The names of all metadata files to which a snapshot refers."""
        snapshot = self.snapshots.get(snapshot_id)
        lists = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        others = {snapshot.changelog_manifest_list, snapshot.index_manifest} - {None}
        changelog = {meta.file_name for meta in self.manifests.changelog(snapshot)}
        return lists | {meta.file_name for meta in self.metas_of(snapshot)} | others | changelog

    def metadata_files(self) -> set[str]:
        """The names of all metadata files that exist."""
        return {stat.name for stat in self.storage.list_files("manifest")}

    def orphans(self) -> set[str]:
        """The metadata files to which no snapshot refers."""
        used = (self.metadata_of(one) for one in self.snapshots.ids())
        return self.metadata_files() - set().union(*used)

    def audit(self, expected: Sequence[str], *, orphans: bool = False) -> None:
        """Checks the invariant of every test: each expected file is live once, every referenced
        file exists, ids have no gap, and counts add up. With `orphans`, no other metadata file
        exists.
        """
        live = self.live()
        assert sorted(entry.file.file_name for entry in live) == sorted(expected)
        layout = self.table.layout
        for entry in (*live, *self.changelogs()):
            self.storage.stat(layout.data_file(entry.partition, entry.bucket, entry.file.file_name))
        for index in self.indexes():
            self.storage.stat(layout.index_file(index.partition, index.bucket, index.file))
        ids = self.snapshots.ids()
        assert ids == list(range(ids[0], ids[-1] + 1)) if ids else True
        total = None
        for one in ids:
            snapshot = self.snapshots.get(one)
            for name in self.metadata_of(one):
                self.storage.stat(manifest_path(name))
            if total is not None:
                assert snapshot.total_record_count == total + snapshot.delta_record_count
            total = snapshot.total_record_count
        if ids:
            assert total == sum(entry.file.row_count for entry in live)
        if orphans:
            assert self.orphans() == set()


def data_file(name: str, rows: int = 10, first: int = 0) -> DataFileMeta:
    return DataFileMeta(
        file_name=name,
        file_size=4,
        row_count=rows,
        min_sequence_number=first,
        max_sequence_number=first + rows - 1,
        schema_id=0,
        creation_time=SimulatedClock().local_millis(),
        value_stats_cols=(),
    )


def java_latest(storage: Storage) -> int | None:
    """The newest snapshot as Java finds it. Java believes LATEST if there is no next one
    (semantics.md §2.4).
    """
    names = [stat.name for stat in storage.list_files("snapshot")]
    ids = [int(name.removeprefix("snapshot-")) for name in names if name.startswith("snapshot-")]
    hint = storage.read("snapshot/LATEST").decode().strip() if "LATEST" in names else ""
    if hint.isdigit() and int(hint) > 0 and int(hint) + 1 not in ids:
        return int(hint)
    return max(ids, default=None)
