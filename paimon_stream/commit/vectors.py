"""Changes deletion vectors: writes new index files when data files are removed, or when rows of
data files are deleted (table-kinds.md §1.3).

An index file never changes. If a data file is removed or gets another vector, new index files
replace the one that has the data file's vector. The new index files have the other vectors byte for
byte.

Invariant: a new index file belongs to nobody until a snapshot names it. Such a file is removed only
if the commit is certainly not published. A lost attempt may leave its index files as orphans.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from paimon_stream.commit.plan import IndexChange
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from paimon_stream.format.deletion_vectors import (
    VERSION,
    Positions,
    encode_vector_32,
    encode_vector_64,
    record_of,
)
from paimon_stream.format.entries import DeletionRange, FileKind, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.options import BITMAP64, VECTORS_TARGET_SIZE
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import IndexFiles

_LOG: Final = logging.getLogger(__name__)

DataFile: TypeAlias = tuple[bytes, int, str]
"""A data file: its partition as a serialized row, its bucket, its name."""

Deletions: TypeAlias = Mapping[DataFile, Positions]

_Record: TypeAlias = tuple[bytes, DeletionRange]
"""The vector of a data file, as index files have it, and its entry in the index file that had it,
if there is one.
"""


class VectorChanges:
    """The changes of deletion vectors by one commit, and the index files written for them."""

    def __init__(self, table: Table, uuid: str) -> None:
        """Prepares the changes. `uuid` is part of the names of the new index files."""
        self._table = table
        self._uuid = uuid
        self._written: list[str] = []
        """The paths of the index files that were written, until they are removed."""
        self._answers: dict[tuple[object, ...], tuple[IndexChange, ...]] = {}
        """The answers of `at`, until the index files that they name are removed."""
        self._files = IndexFiles(table)
        self._encode = encode_vector_64 if table.options.value(BITMAP64) else encode_vector_32
        self._target = table.options.value(VECTORS_TARGET_SIZE)
        self._bucketed = not table.is_bucket_unaware

    def at(
        self,
        entries: Iterable[IndexManifestEntry],
        gone: Collection[DataFile],
        deletions: Deletions | None = None,
    ) -> tuple[IndexChange, ...]:
        """The changes of a snapshot's index files when data files are removed, or when rows of data
        files are deleted. Writes the new index files, which are durable on return. A second call
        with the same arguments returns the same files.

        Args:
            entries: the index files with vectors that the snapshot has.
            gone: data files that no longer have a vector.
            deletions: all deleted positions of other data files, ascending.

        Raises:
            CorruptMetadata, StorageError: an index file cannot be read or written.
        """
        deletions = deletions or {}
        named = {*gone, *deletions}
        touched: dict[tuple[bytes, int], list[IndexManifestEntry]] = {
            (partition, bucket): [] for partition, bucket, _ in deletions
        }
        for entry in entries:
            place = (entry.partition, entry.bucket)
            if any(_data_file(entry, range_) in named for range_ in entry.file.deletions or ()):
                touched.setdefault(place, []).append(entry)
            elif self._bucketed and place in touched:
                touched[place].append(entry)  # a new file replaces the bucket's old file
        replaced_names = (entry.file.file_name for entries in touched.values() for entry in entries)
        key = (*replaced_names, frozenset(named))
        if key not in self._answers:
            self._answers[key] = tuple(
                change
                for place, replaced in touched.items()
                for change in self._replacements(place, replaced, named, deletions)
            )
        return self._answers[key]

    @contextmanager
    def owned(self) -> Iterator[None]:
        """A context for a commit. If the commit is certainly not published, the index files that
        were written are removed.
        """
        try:
            yield
        except CommitUnknown:
            raise
        except PaimonStreamError:
            self._remove()
            raise

    def _remove(self) -> None:
        """Removes the index files that were written."""
        for path, error in self._table.storage.delete_all(self._written).items():
            _LOG.warning(
                "%s: could not remove %s. It stays as an orphan: %s",
                self._table.location,
                path,
                error,
            )
        self._written = []
        self._answers = {}

    def _replacements(
        self,
        place: tuple[bytes, int],
        replaced: Collection[IndexManifestEntry],
        named: Collection[DataFile],
        deletions: Deletions,
    ) -> Iterator[IndexChange]:
        """The changes of one bucket. `place` is the bucket's partition and number. `replaced` are
        the bucket's index files that are replaced. `named` are the data files whose old vectors no
        longer hold.
        """
        records = [record for entry in replaced for record in self._kept(entry, named)]
        for (partition, bucket, name), positions in deletions.items():
            if (partition, bucket) == place:
                data, length = self._encode(positions)
                records.append((data, DeletionRange(name, 0, length, len(positions))))
        if not self._bucketed:
            for entry in replaced:
                yield IndexChange(kind=FileKind.DELETE, entry=entry)
        for file_records in self._rolled(records):
            file = self._write(place, file_records)
            entry = IndexManifestEntry(partition=place[0], bucket=place[1], file=file)
            yield IndexChange(kind=FileKind.ADD, entry=entry)

    def _kept(self, entry: IndexManifestEntry, named: Collection[DataFile]) -> Iterator[_Record]:
        """The deletion vectors in an index file, without those of the data files `named`."""
        ranges = [
            range_
            for range_ in entry.file.deletions or ()
            if _data_file(entry, range_) not in named
        ]
        if not ranges:
            return
        content = self._files.read(entry)
        path = self._files.path(entry)
        for range_ in ranges:
            yield record_of(content, range_, path), range_

    def _rolled(self, records: list[_Record]) -> Iterator[list[_Record]]:
        """Divides the vectors among new files. In a table with buckets, a bucket has one file, even
        if there is no vector.
        """
        if self._bucketed:
            yield records
            return
        file_records: list[_Record] = []
        size = 0
        for record in records:
            file_records.append(record)
            size += len(record[0])
            if size >= self._target:
                yield file_records
                file_records = []
                size = 0
        if file_records:
            yield file_records

    def _write(self, place: tuple[bytes, int], records: Iterable[_Record]) -> IndexFileMeta:
        """Writes an index file with these vectors."""
        content = bytearray(VERSION)
        ranges = []
        for data, range_ in records:
            ranges.append(range_._replace(offset=len(content)))
            content += data
        file = IndexFileMeta(
            index_type=DELETION_VECTORS,
            file_name=f"index-{self._uuid}-{len(self._written)}",
            file_size=len(content),
            row_count=len(ranges),
            deletions=tuple(ranges),
        )
        path = self._table.layout.index_file(*place, file)
        self._written.append(path)
        self._table.storage.write(path, bytes(content))
        return file


def _data_file(entry: IndexManifestEntry, range_: DeletionRange) -> DataFile:
    """The data file to which a vector in an index file belongs."""
    return entry.partition, entry.bucket, range_.data_file
