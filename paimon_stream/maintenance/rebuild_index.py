"""Rebuilds the hash index of a table with dynamic buckets from its data files (table-kinds.md
§2.1).

Invariants: nothing is published if a key is in two buckets, or if the index changes meanwhile.
After a rebuild, the index has the keys of all live files, also the keys of rows that delete. A
correct hash index stays as it is. If the newest snapshot is no batch of this package, a snapshot is
published although the index is correct: writers look for keys that another engine has taken out of
the index from the newest batch of this package on (`commit/index_losses.py`). A wrong index that can
be read keeps its hashes, except hashes that another bucket has. No row changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from paimon_stream import errors
from paimon_stream.commit.index_losses import begins_search
from paimon_stream.commit.sequence import MOST_REWRITES, Numbering
from paimon_stream.commit.table_commit import TableCommit, batch_user
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import (
    HASH,
    FileIdentity,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from paimon_stream.format.index_manifest import encode_index_manifest
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.options import (
    BUCKET,
    DELETION_VECTORS,
    MANIFEST_COMPRESSION,
    ZSTD_LEVEL,
    Options,
)
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress, Report, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import PutResult
from paimon_stream.table.hash_index import (
    NO_HASHES,
    Hashes,
    hashes_of,
    in_several,
    index_file,
    read_index_file,
)
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import remove_files
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.write.routing import key_hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltIndexReport(Report):
    """What was rebuilt, or would be rebuilt in a dry run.

    Attributes:
        location: the location of the table.
        snapshot_id: the snapshot with the new index; None if nothing was wrong and the newest snapshot
            is a batch of this package, if a lost index manifest was written again, or in a dry run.
        dry_run: whether nothing was written.
        checked: how many buckets were checked.
        buckets: the folders of the buckets whose hash index was wrong.
        keys: how many hashes the new index files of these buckets have.
        is_behind_others: whether the newest snapshot was no batch of this package. Then a new
            snapshot ends the search for lost keys, also if nothing is wrong.
        manifest: the lost index manifest that was written again under its own name; None if none
            was lost.
    """

    location: str
    snapshot_id: int | None = None
    dry_run: bool
    checked: int = 0
    buckets: tuple[str, ...] = ()
    keys: int = 0
    is_behind_others: bool = False
    manifest: str | None = None


def rebuild_index(
    table: Table,
    *,
    dry_run: bool = True,
    progress: Progress = silent,
    runtime: Runtime | None = None,
) -> RebuiltIndexReport:
    """Rebuilds the hash index of a table, where it differs from the keys of the files. Raises the
    errors of `PaimonTable.rebuild_index`.
    """
    if not table.has_dynamic_buckets:
        raise errors.UnsupportedFeature(
            "has no hash index, because only tables with a primary key and dynamic buckets "
            f"({BUCKET.key} = -1) have one, so there is nothing to rebuild."
        ).of_table(table.location, subject=True)
    running = runtime or system()
    snapshots = SnapshotStore(table.storage, running)
    for tried in count():
        latest = snapshots.latest()
        if latest is None:
            break
        rebuild = _Rebuild(table, running, snapshots, latest, dry_run)
        try:
            return rebuild.run(progress)
        except errors.CommitUnknown:
            raise
        except errors.PaimonStreamError as error:
            remove_files(table.storage, tuple(rebuild.written))
            expired = (
                isinstance(error, (errors.NotFound, errors.CorruptMetadata))
                and snapshots.latest() != latest
            )
            may_repeat = expired or isinstance(error, errors.SequenceConflict)
            if tried == MOST_REWRITES or not may_repeat:
                raise
    return RebuiltIndexReport(location=table.location, dry_run=dry_run)


@dataclass(slots=True)
class _Rebuild:
    """One attempt to rebuild the hash index, on one snapshot.

    Attributes:
        table: the table.
        runtime: gives ids.
        snapshots: the snapshots of the table.
        latest: the newest snapshot, on which the index is rebuilt.
        dry_run: whether nothing is written.
        listed: the hash indexes that the snapshot's index manifest names, by partition and bucket.
        written: the paths of the index files that were written.
        messages: the changes of the buckets whose index was wrong.
    """

    table: Table
    runtime: Runtime
    snapshots: SnapshotStore
    latest: Snapshot
    dry_run: bool
    listed: dict[bytes, dict[int, tuple[IndexFileMeta, ...]]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    messages: list[CommitMessage] = field(default_factory=list)

    def run(self, progress: Progress) -> RebuiltIndexReport:
        entries = self._entries()
        lost = self.latest.index_manifest if entries is None else None
        for entry in entries or ():
            if entry.file.index_type == HASH:
                listed = self.listed.setdefault(entry.partition, {})
                listed[entry.bucket] = (*listed.get(entry.bucket, ()), entry.file)
        files: dict[bytes, dict[int, list[ManifestEntry]]] = {
            partition: {} for partition in self.listed
        }
        for file in self._live(lost):
            if file.bucket >= 0:
                by_bucket = files.setdefault(file.partition, {})
                by_bucket.setdefault(file.bucket, []).append(file)
        uuid = self.runtime.ids.uuid()
        checked = 0
        for done, (partition, by_bucket) in enumerate(files.items()):
            checked += len(by_bucket.keys() | self.listed.get(partition, {}).keys())
            for bucket, hashes in self._wrong(partition, by_bucket).items():
                self._write(partition, bucket, hashes, f"index-{uuid}-{len(self.messages)}")
            progress("partitions", done + 1, len(files))
        is_behind_others = not begins_search(self.latest)
        snapshot_id = None
        if not self.dry_run and lost is not None:
            self._write_again(lost)
        elif not self.dry_run and (self.messages or is_behind_others):
            snapshot_id = self._publish_index_files()
        return RebuiltIndexReport(
            location=self.table.location,
            snapshot_id=snapshot_id,
            dry_run=self.dry_run,
            checked=checked,
            buckets=tuple(
                self.table.layout.bucket_folder(message.partition, message.bucket)
                for message in self.messages
            ),
            keys=sum(file.row_count for _, file in self._new_files()),
            is_behind_others=is_behind_others,
            manifest=lost,
        )

    def _new_files(self) -> list[tuple[CommitMessage, IndexFileMeta]]:
        """The new index files. Each comes after the message of its bucket."""
        return [(message, file) for message in self.messages for file in message.new_index_files]

    def _entries(self) -> tuple[IndexManifestEntry, ...] | None:
        """The entries of the index manifest; None if it is missing or cannot be read. Raises
        `CorruptMetadata` if a lost index manifest cannot be made anew.
        """
        name = self.latest.index_manifest
        try:
            return ManifestStore(self.table.storage).index_entries(name)
        except errors.CorruptMetadata as error:
            schemas = SchemaStore(self.table.storage)
            if any(
                Options(schemas.get(schema_id).options).value(DELETION_VECTORS)
                for schema_id in schemas.ids()
            ):
                raise errors.CorruptMetadata(
                    f"{error.message} It cannot be rebuilt, because it also named the deletion "
                    "vectors, and no other file says which rows are deleted. Nothing was written.",
                    **error.context,
                ) from None
            return None

    def _live(self, lost: str | None) -> Iterable[ManifestEntry]:
        """The live files. If the index manifest is lost, these are the live files of all snapshots
        and tags that have that index manifest.
        """
        snapshots = [self.latest]
        if lost is not None:
            kept = [
                *filter(None, map(self.snapshots.find, self.snapshots.ids())),
                *self.snapshots.tags(),
            ]
            snapshots += [snapshot for snapshot in kept if snapshot.index_manifest == lost]
        files: dict[FileIdentity, ManifestEntry] = {}
        for snapshot in snapshots:
            for file in snapshot_files(self.table, snapshot):
                files[file.identity] = file
        return files.values()

    def _wrong(self, partition: bytes, files: dict[int, list[ManifestEntry]]) -> dict[int, Hashes]:
        """The correct hashes of each bucket whose index is wrong. `files` are the files of the
        partition, by bucket. Raises `CorruptMetadata` if a key is in two buckets.
        """
        keys = {bucket: self._keys(files_of_bucket) for bucket, files_of_bucket in files.items()}
        twice = in_several(keys.values())
        if len(twice):
            buckets = sorted(
                bucket for bucket, hashes in keys.items() if np.isin(twice, hashes).any()
            )
            where = self.table.layout.partition(partition) or "()"
            raise errors.CorruptMetadata(
                f"{len(twice):,} keys of partition {where} have rows in several of the buckets "
                f"{buckets}, so readers return them twice, and no index is right. Nothing was "
                "written. Overwrite the partition with the right rows, which makes its index, too; "
                "then run this again.",
                partition=where,
            ).of_table(self.table.location)
        present = {
            bucket: self._present(partition, bucket) for bucket in self.listed.get(partition, {})
        }
        every = {
            bucket: (keys.get(bucket, NO_HASHES), present.get(bucket))
            for bucket in sorted(keys.keys() | present.keys())
        }
        with_old = {}
        for bucket, (live_keys, old) in every.items():
            with_old[bucket] = live_keys
            if old is not None:
                with_old[bucket] = np.union1d(live_keys, old)
        shared = in_several(with_old.values())
        wrong = {}
        for bucket, (live_keys, old) in every.items():
            right = np.setdiff1d(with_old[bucket], np.setdiff1d(shared, live_keys))
            if old is None or not np.array_equal(np.sort(old), right):
                wrong[bucket] = right
        return wrong

    def _keys(self, files: Iterable[ManifestEntry]) -> Hashes:
        """The hashes of all keys in the files, also the keys of rows that delete."""
        schema = self.table.schema
        fields = tuple(map(schema.field, schema.bucket_keys))
        scan = Scan(
            table=self.table,
            schema=schema,
            columns=fields,
            snapshot=self.latest,
            files=tuple(files),
        )
        hashes = [
            np.unique(key_hashes(rows, [column.type for column in fields]))
            for rows in read_batches(scan)
        ]
        return np.unique(np.concatenate([NO_HASHES, *hashes]))

    def _present(self, partition: bytes, bucket: int) -> Hashes | None:
        """The hashes in a bucket's index file; None if the file is missing or cannot be read, or if
        the bucket has two index files.
        """
        file, *others = self.listed[partition][bucket]
        try:
            data = read_index_file(self.table.storage, self.table.layout, partition, bucket, file)
        except errors.CorruptMetadata:
            return None
        if others:
            return None
        return hashes_of(data)

    def _write(self, partition: bytes, bucket: int, hashes: Hashes, name: str) -> None:
        """Writes a bucket's new index file. If there are no keys, removes the bucket's entry."""
        content = hashes.astype(">i4").tobytes()
        file = index_file(name, content)
        gone: tuple[IndexFileMeta, ...] = ()
        if not len(hashes):
            gone = self.listed.get(partition, {}).get(bucket, ())
        new_files: tuple[IndexFileMeta, ...] = ()
        if not gone:
            new_files = (file,)
        if not (gone or self.dry_run):
            path = self.table.layout.index_file(partition, bucket, file)
            self.written.append(path)
            self.table.storage.write(path, content)
        self.messages.append(
            CommitMessage(
                partition=partition,
                bucket=bucket,
                total_buckets=-1,
                new_index_files=new_files,
                deleted_index_files=gone,
            )
        )

    def _publish_index_files(self) -> int | None:
        """Publishes the new index files. Returns the id of the snapshot."""
        table = self.table
        numbering = Numbering(
            numbered_on=SnapshotRef.of(self.latest), index=self.latest.index_manifest
        )
        commit = TableCommit(
            table, batch_user(table.options, self.runtime.ids), runtime=self.runtime
        )
        # With an identifier, there is a snapshot without changes, too.
        identifier = None if self.messages else 0
        return commit.append(tuple(self.messages), numbering, identifier=identifier).snapshot_id

    def _write_again(self, lost: str) -> None:
        """Writes a lost index manifest again under its name, because all snapshots with that index
        refer to it. Raises `IndexConflict` if another process has written it meanwhile.
        """
        table = self.table
        entries = [
            IndexManifestEntry(partition=message.partition, bucket=message.bucket, file=file)
            for message, file in self._new_files()
        ]
        path = manifest_path(lost)
        data = encode_index_manifest(
            entries,
            compression=table.options.value(MANIFEST_COMPRESSION),
            level=table.options.value(ZSTD_LEVEL),
        )
        exists = table.storage.exists(path)
        self.written.clear()  # if writing fails, the manifest may name them nevertheless
        if exists:
            table.storage.write(path, data)
        elif table.storage.put_if_absent(path, data) is PutResult.EXISTS:
            raise errors.IndexConflict(f"somebody else has written {path}.").of_table(
                table.location
            )
