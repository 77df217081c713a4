"""Whether the files that a commit adds still exist. A table that names a missing file cannot be read.

An orphan cleaner may delete a file of a certain age that nothing refers to. So a commit checks the files that may be
that old, by its own wall clock as Java does (semantics.md R9.1). A commit of fresh files makes no request.
"""

from collections.abc import Iterator
from typing import Final

from paimon_stream.commit.plan import Changes
from paimon_stream.format.entries import FileKind
from paimon_stream.runtime import Clock
from paimon_stream.storage.base import Storage
from paimon_stream.storage.external import shown
from paimon_stream.table.layout import Layout

LONGEST_UNCHECKED_MILLIS: Final = 30 * 60_000
"""Younger files need no check: the snapshot is published within another half hour, and our orphan cleaner
deletes no file that is younger than an hour."""


def missing_files(storage: Storage, layout: Layout, *changes: Changes, now: int | None = None) -> list[str]:
    """The paths of added files that do not exist. Covers data, changelog and index files, and their extra
    files. Makes one request to the storage per file. Files that a commit removes need not exist. With the time
    `now`, only for files that may be older than `LONGEST_UNCHECKED_MILLIS`. Index files have no time; they are as
    old as the oldest data file of the same changes. Raises `StorageError`."""
    return [shown(path) for one in changes for path in _added(layout, one, now) if not storage.exists(path)]


def adds_old_files(layout: Layout, clock: Clock, changes: Changes) -> bool:
    """Whether `missing_files` would look for any now."""
    return any(True for _ in _added(layout, changes, clock.local_millis()))


def _added(layout: Layout, changes: Changes, now: int | None = None) -> Iterator[str]:
    """The paths of added files; with the time `now`, only of those that may be old."""
    files = [one for one in (*changes.entries, *changes.changelog) if one.kind is FileKind.ADD]
    times = ((one, one.file.creation_time) for one in files)
    chosen = [one for one, at in times if now is None or at is None or abs(now - at) > LONGEST_UNCHECKED_MILLIS]
    for entry in chosen:
        for name in (entry.file.file_name, *entry.file.extra_files):
            yield layout.data_file(entry.partition, entry.bucket, name, entry.file.external_path)
    if chosen or not files:
        for change in changes.index:
            if change.kind is FileKind.ADD:
                yield layout.index_file(change.entry.partition, change.entry.bucket, change.entry.file)
