"""Which files something still refers to: every snapshot and tag that is left, and every journal."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_stream.errors import CorruptMetadata, NotFound
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot
from paimon_stream.storage.base import Storage
from paimon_stream.table.journal import Journal
from paimon_stream.table.layout import OWN_FOLDER, TAG_FOLDER
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["journalled_names", "names_in_use"]


def names_in_use(storage: Storage, table: Table, snapshots: SnapshotStore) -> frozenset[str]:
    """The names of all data files, extra files too, of all changelog and index files, that are or were part
    of a snapshot or tag that is left, or that a journal notes. Reads every manifest of the table once; for
    rare use.

    Raises `CorruptMetadata`, `StorageError`: then nothing is known to be unused.
    """
    names = set(_committed(storage, table, snapshots))
    names.update(journalled_names(storage))
    return frozenset(names)


def _committed(storage: Storage, table: Table, snapshots: SnapshotStore) -> Iterator[str]:
    manifests = ManifestStore(storage, table.options)
    read: set[str] = set()
    for snapshot in _all_snapshots(storage, snapshots):
        try:
            for meta in (*manifests.base_and_delta(snapshot), *manifests.changelog(snapshot)):
                if meta.file_name not in read:
                    entries = manifests.read(meta)
                    read.add(meta.file_name)
                    for entry in entries:
                        yield from (entry.file.file_name, *entry.file.extra_files)
            if snapshot.index_manifest is not None and snapshot.index_manifest not in read:
                read.add(snapshot.index_manifest)
                for index in manifests.index_entries(snapshot.index_manifest):
                    yield index.file.file_name
        except CorruptMetadata:
            if snapshots.find(snapshot.id) == snapshot:
                raise
            # else it expired while it was read


def _all_snapshots(storage: Storage, snapshots: SnapshotStore) -> Iterator[Snapshot]:
    for snapshot_id in snapshots.ids():
        found = snapshots.find(snapshot_id)
        if found is not None:
            yield found
    for stat in storage.list_files(TAG_FOLDER, "tag-"):
        try:
            yield decode_snapshot(storage.read(stat.path), stat.path)
        except NotFound:
            continue  # deleted since it was listed


def journalled_names(storage: Storage) -> Iterator[str]:
    """The names of all data, changelog and index files, extra files too, that a journal notes. Raises
    `CorruptMetadata`, `StorageError`."""
    for folder in storage.list_folders(OWN_FOLDER):
        journal = Journal.in_folder(storage, f"{OWN_FOLDER}/{folder}")
        for batch in journal.batches():
            entry = journal.read(batch)
            for message in entry.messages if entry is not None else ():
                yield from _names(message)


def _names(message: CommitMessage) -> Iterator[str]:
    """All files a message speaks of, those it takes away too: they may be part of the table still."""
    for files in (
        message.new_files,
        message.deleted_files,
        message.changelog_files,
        message.compact_before,
        message.compact_after,
        message.compact_changelog_files,
    ):
        for file in files:
            yield from (file.file_name, *file.extra_files)
    for indexes in (
        message.new_index_files,
        message.deleted_index_files,
        message.compact_new_index_files,
        message.compact_deleted_index_files,
    ):
        yield from (index.file_name for index in indexes)
