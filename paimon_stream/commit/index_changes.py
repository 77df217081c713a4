"""The index files of the next snapshot: those of its base with the changes applied.

The rules are Java's. HASH indexes, and deletion vectors of tables with buckets, have at most one
file per bucket: a new file replaces the old one. All other indexes, and deletion vectors of tables
without buckets, are identified by file name. In the latter, no data file has two deletion vectors.
"""

from collections.abc import Hashable, Iterable, Sequence

from paimon_stream.commit.plan import IndexChange
from paimon_stream.errors import DeletedFiles
from paimon_stream.format.entries import (
    HASH,
    FileKind,
    IndexManifestEntry,
)
from paimon_stream.format.index_manifest import DELETION_VECTORS


def apply_index_changes(
    present: Iterable[IndexManifestEntry],
    changes: Sequence[IndexChange],
    *,
    bucketed: bool,
    location: str,
) -> tuple[IndexManifestEntry, ...]:
    """The live index files after the changes. `bucketed` says whether the table has buckets. Raises
    `DeletedFiles` if deletion vectors of a table without buckets contradict those present: another
    writer has changed them meanwhile.
    """
    _check_deletion_vectors(present := tuple(present), changes, bucketed, location)
    live = {_key(entry, bucketed): entry for entry in present}
    for change in changes:
        if change.kind is FileKind.DELETE:
            live.pop(_key(change.entry, bucketed), None)
    for change in changes:
        if change.kind is FileKind.ADD:
            live[_key(change.entry, bucketed)] = change.entry
    return tuple(live.values())


def _key(entry: IndexManifestEntry, bucketed: bool) -> Hashable:
    type_ = entry.file.index_type
    if type_ == HASH or (type_ == DELETION_VECTORS and bucketed):
        return type_, entry.partition, entry.bucket
    return type_, entry.file.file_name


def _check_deletion_vectors(
    present: Iterable[IndexManifestEntry],
    changes: Sequence[IndexChange],
    bucketed: bool,
    location: str,
) -> None:
    """Java's rule for tables without buckets, in the order of the changes."""
    if bucketed or not any(change.entry.file.index_type == DELETION_VECTORS for change in changes):
        return
    vectors = [entry for entry in present if entry.file.index_type == DELETION_VECTORS]
    files = {entry.file.file_name for entry in vectors}
    covered = {name for entry in vectors for name in _covered(entry)}
    for change in changes:
        if change.entry.file.index_type != DELETION_VECTORS:
            continue
        name, data_files = change.entry.file.file_name, _covered(change.entry)
        if change.kind is FileKind.ADD:
            if name in files or covered & data_files:
                raise _contradiction(location, name, "adds deletion vectors that already exist")
            files.add(name)
            covered |= data_files
        else:
            if name not in files or not covered >= data_files:
                raise _contradiction(location, name, "removes deletion vectors that do not exist")
            files.remove(name)
            covered -= data_files


def _covered(entry: IndexManifestEntry) -> set[str]:
    return {one.data_file for one in entry.file.deletions or ()}


def _contradiction(location: str, name: str, what: str) -> DeletedFiles:
    cure = "Nothing was published. Run the job again on the current state."
    text = f"the index file {name} {what}: another writer has deleted rows of the same data files meanwhile. {cure}"
    return DeletedFiles(text, files=(name,)).of_table(location)
