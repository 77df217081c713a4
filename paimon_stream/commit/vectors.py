"""Changes of deletion vectors: the index files that follow when data files go, or when rows of them
are deleted (table-kinds.md §1.3).

An index file never changes. If a data file goes or gets another vector, the index file that has its
vector is replaced by new ones, which have the other vectors byte for byte. Invariant: a new index
file belongs to nobody until a snapshot names it, and is removed only after a commit that is surely
not published. An attempt that lost may leave its index files as orphans.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from paimon_stream.commit.plan import IndexChange
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from paimon_stream.format.deletion_vectors import VERSION, Positions, encode_vector, record_of
from paimon_stream.format.entries import DeletionRange, FileKind, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS
from paimon_stream.options import BITMAP64, VECTORS_TARGET_SIZE
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import IndexFiles

_LOG: Final = logging.getLogger(__name__)

DataFile: TypeAlias = tuple[bytes, int, str]
"""A data file: its partition as a serialized row, its bucket, its name."""

Marked: TypeAlias = Mapping[DataFile, Positions]

_Record: TypeAlias = tuple[bytes, DeletionRange]
"""The vector of a data file, as index files have it, and its entry in the index file that had it,
if there is one.
"""


class VectorChanges:
    """The changes of deletion vectors by one commit, and the index files written for them."""

    def __init__(self, table: Table, uuid: str) -> None:
        """`uuid` is part of the names of the new index files."""
        self._table = table
        self._uuid = uuid
        self._written: list[str] = []
        self._made: dict[tuple[object, ...], tuple[IndexChange, ...]] = {}
        self._files = IndexFiles(table)
        self._bits64, self._target = (
            table.options.value(BITMAP64),
            table.options.value(VECTORS_TARGET_SIZE),
        )
        self._bucketed = not table.is_bucket_unaware

    def at(
        self,
        entries: Iterable[IndexManifestEntry],
        gone: Collection[DataFile],
        marked: Marked | None = None,
    ) -> tuple[IndexChange, ...]:
        """The changes that make the snapshot's index files with vectors, `entries`, forget the data
        files that are `gone`, and mark rows of others: all deleted positions of each, ascending.
        Writes the new index files, which are durable on return. The same question has the same
        answer. Raises `CorruptMetadata`, `StorageError`.
        """
        marked = marked or {}
        named = {*gone, *marked}
        touched: dict[tuple[bytes, int], list[IndexManifestEntry]] = {
            (one, bucket): [] for one, bucket, _ in marked
        }
        for one in entries:
            if any(
                (one.partition, one.bucket, of.data_file) in named
                for of in one.file.deletions or ()
            ):
                touched.setdefault((one.partition, one.bucket), []).append(one)
            elif self._bucketed and (one.partition, one.bucket) in touched:
                touched[one.partition, one.bucket].append(one)  # a new file replaces the bucket's
        key = tuple(one.file.file_name for old in touched.values() for one in old), frozenset(named)
        if key not in self._made:
            self._made[key] = tuple(
                change
                for where, old in touched.items()
                for change in self._replaced(where, old, named, marked)
            )
        return self._made[key]

    @contextmanager
    def owned(self) -> Iterator[None]:
        """For the time of a commit. If it is surely not published, the index files that were
        written are removed.
        """
        try:
            yield
        except CommitUnknown:
            raise
        except PaimonStreamError:
            self._remove()
            raise

    def _remove(self) -> None:
        for path, why in self._table.storage.delete_all(self._written).items():
            _LOG.warning(
                "%s: could not remove %s. It stays as an orphan: %s",
                self._table.location,
                path,
                why,
            )
        self._written, self._made = [], {}

    def _replaced(
        self,
        where: tuple[bytes, int],
        old: Collection[IndexManifestEntry],
        named: Collection[DataFile],
        marked: Marked,
    ) -> Iterator[IndexChange]:
        records = [one for entry in old for one in self._kept(entry, named)]
        for (*place, name), positions in marked.items():
            if (*place,) == where:
                data, length = encode_vector(positions, bits64=self._bits64)
                records.append((data, DeletionRange(name, 0, length, len(positions))))
        if not self._bucketed:
            yield from (IndexChange(kind=FileKind.DELETE, entry=one) for one in old)
        for some in self._rolled(records):
            file = self._write(where, some)
            entry = IndexManifestEntry(partition=where[0], bucket=where[1], file=file)
            yield IndexChange(kind=FileKind.ADD, entry=entry)

    def _kept(self, entry: IndexManifestEntry, named: Collection[DataFile]) -> Iterator[_Record]:
        """The vectors of the other data files in an index file."""
        kept = [
            of
            for of in entry.file.deletions or ()
            if (entry.partition, entry.bucket, of.data_file) not in named
        ]
        if not kept:
            return
        content, path = self._files.read(entry), self._files.path(entry)
        for one in kept:
            yield record_of(content, one, path), one

    def _rolled(self, records: list[_Record]) -> Iterator[list[_Record]]:
        """The vectors of each new file. A bucket has one file, even if it has no vector any
        more.
        """
        if self._bucketed:
            yield records
            return
        some: list[_Record] = []
        size = 0
        for one in records:
            some.append(one)
            size += len(one[0])
            if size >= self._target:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _write(self, where: tuple[bytes, int], records: Iterable[_Record]) -> IndexFileMeta:
        content, ranges = bytearray(VERSION), []
        for data, known in records:
            ranges.append(known._replace(offset=len(content)))
            content += data
        name, places, size = f"index-{self._uuid}-{len(self._written)}", tuple(ranges), len(content)
        file = IndexFileMeta(
            index_type=DELETION_VECTORS,
            file_name=name,
            file_size=size,
            row_count=len(places),
            deletions=places,
        )
        path = self._table.layout.index_file(*where, file)
        self._written.append(path)
        self._table.storage.write(path, bytes(content))
        return file
