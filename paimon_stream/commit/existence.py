"""Whether the files that a commit adds are there: a table that names a file that is not cannot be read.

Data, changelog and index files alike, and the extra files of each; what a commit removes need not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from paimon_stream.commit.plan import Changes
from paimon_stream.errors import NotFound
from paimon_stream.format.entries import FileKind
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import Layout

__all__ = ["missing_files"]


def missing_files(storage: Storage, layout: Layout, *changes: Changes) -> list[str]:
    """The paths of added files that are not on storage, which is asked for each. Raises `StorageError`."""
    return [path for one in changes for path in _added(layout, one) if not _exists(storage, path)]


def _added(layout: Layout, changes: Changes) -> Iterator[str]:
    for entry in (*changes.entries, *changes.changelog):
        if entry.kind is FileKind.ADD:
            for name in (entry.file.file_name, *entry.file.extra_files):
                yield layout.data_file(entry.partition, entry.bucket, name)
    for change in changes.index:
        if change.kind is FileKind.ADD and change.entry.file.external_path is None:
            yield layout.index_file(change.entry.partition, change.entry.bucket, change.entry.file)


def _exists(storage: Storage, path: str) -> bool:
    try:
        storage.stat(path)
    except NotFound:
        return False
    return True
