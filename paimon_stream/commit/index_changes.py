"""Computes the index files of the next snapshot: the index files of its base, with the changes
applied.

The rules are Java's. HASH indexes, and deletion vectors of tables with buckets, have at most one
file per bucket: a new file replaces the old one. All other indexes, and deletion vectors of tables
without buckets, are identified by file name. In a table without buckets, no data file has two
deletion vectors.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence

from paimon_stream.commit.plan import IndexChange
from paimon_stream.errors import DeletedFiles, UnsupportedFeature
from paimon_stream.format.entries import (
    HASH,
    FileKind,
    IndexManifestEntry,
)
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.format.unknown_fields import names_of


def apply_index_changes(
    present: Iterable[IndexManifestEntry],
    changes: Sequence[IndexChange],
    *,
    bucketed: bool,
    location: str,
) -> tuple[IndexManifestEntry, ...]:
    """The live index files after the changes.

    Args:
        present: the live index files before the changes.
        changes: the index files that the commit adds or removes.
        bucketed: whether the table has buckets.
        location: the table, for the error.

    Raises:
        DeletedFiles: in a table without buckets, another writer has changed the deletion vectors
            meanwhile.
        UnsupportedFeature: a new file takes the place of one whose entry has unknown fields.
    """
    entries = tuple(present)
    if not bucketed:
        _check_deletion_vectors(entries, changes, location)
    key = _key_with_buckets if bucketed else _key_without_buckets
    live = {key(entry): entry for entry in entries}
    for change in changes:
        if change.kind is FileKind.DELETE:
            live.pop(key(change.entry), None)
    for change in changes:
        if change.kind is FileKind.ADD:
            live[key(change.entry)] = change.entry
    _check_unknown(entries, live.values(), changes, location)
    return tuple(live.values())


def _check_unknown(
    before: Iterable[IndexManifestEntry],
    after: Collection[IndexManifestEntry],
    changes: Iterable[IndexChange],
    location: str,
) -> None:
    """Refuses to replace an index file whose entry has fields that a new entry would lack. Such a
    file may be removed if no new file replaces it. Raises `UnsupportedFeature`.
    """
    newer = [entry for entry in before if entry.unknown and entry not in after]
    if not newer:
        return
    added = {_place(change.entry) for change in changes if change.kind is FileKind.ADD}
    for entry in newer:
        if _place(entry) in added:
            raise UnsupportedFeature(
                f"the index manifest's entry of {entry.file.file_name} has fields that this release does not "
                f"know ({names_of(entry.unknown)}), and the entry of a new index file would lack them. Nothing "
                "was published. Write the table with the engine that wrote the index, or with a newer release of "
                "paimon-stream.",
                index=entry.file.file_name,
            ).of_table(location)


def _place(entry: IndexManifestEntry) -> Hashable:
    return entry.file.index_type, entry.partition, entry.bucket


def _key_with_buckets(entry: IndexManifestEntry) -> Hashable:
    """The key of an index file in a table with buckets. A new file replaces the file with the same
    key.
    """
    if entry.file.index_type == DELETION_VECTORS:
        return entry.file.index_type, entry.partition, entry.bucket
    return _key_without_buckets(entry)


def _key_without_buckets(entry: IndexManifestEntry) -> Hashable:
    """The key of an index file in a table without buckets. A new file replaces the file with the
    same key.
    """
    if entry.file.index_type == HASH:
        return entry.file.index_type, entry.partition, entry.bucket
    return entry.file.index_type, entry.file.file_name


def _check_deletion_vectors(
    present: Iterable[IndexManifestEntry],
    changes: Sequence[IndexChange],
    location: str,
) -> None:
    """Checks Java's rule for deletion vectors in tables without buckets, change by change. Raises
    `DeletedFiles`.
    """
    if not any(change.entry.file.index_type == DELETION_VECTORS for change in changes):
        return
    vectors = [entry for entry in present if entry.file.index_type == DELETION_VECTORS]
    files = {entry.file.file_name for entry in vectors}
    covered = {name for entry in vectors for name in _covered(entry)}
    for change in changes:
        if change.entry.file.index_type != DELETION_VECTORS:
            continue
        name = change.entry.file.file_name
        data_files = _covered(change.entry)
        if change.kind is FileKind.ADD:
            if name in files or covered & data_files:
                raise DeletedFiles(
                    f"the index file {name} adds deletion vectors that already exist: another writer has deleted rows "
                    "of the same data files meanwhile. Nothing was published. Run the job again on the current state.",
                    files=(name,),
                ).of_table(location)
            files.add(name)
            covered |= data_files
        else:
            if name not in files or not covered >= data_files:
                raise DeletedFiles(
                    f"the index file {name} removes deletion vectors that do not exist: another writer has deleted rows "
                    "of the same data files meanwhile. Nothing was published. Run the job again on the current state.",
                    files=(name,),
                ).of_table(location)
            files.remove(name)
            covered -= data_files


def _covered(entry: IndexManifestEntry) -> set[str]:
    """The data files that have a deletion vector in an index file."""
    return {vector.data_file for vector in entry.file.deletions or ()}
