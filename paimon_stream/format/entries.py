"""The values that manifests and commit messages contain (format.md §4.2–§4.4, §8.2). Partitions,
keys and the rows of statistics are *serialized* BinaryRows as on disk: four bytes of arity, big
endian, then the row (format.md §5.6).
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from operator import attrgetter
from typing import Final, NamedTuple

from paimon_stream.format.unknown_fields import UnknownFields

EMPTY_ROW: Final = bytes(12)
"""The serialized row without fields: the partition of an unpartitioned table, the key of append
files.
"""


class FileKind(IntEnum):
    """What a manifest entry does to a file."""

    ADD = 0
    DELETE = 1


class FileSource(IntEnum):
    """Who wrote a data file: a writer, or a compaction."""

    APPEND = 0
    COMPACT = 1


class SimpleStats(NamedTuple):
    """Bounds and null counts of columns. The bounds are two serialized rows. There is one count per
    column, which is None if it is not known.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...]


EMPTY_STATS: Final = SimpleStats(min_values=EMPTY_ROW, max_values=EMPTY_ROW, null_counts=())


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileMeta:
    """A data file. format.md §4.4 gives the order and the meaning of the fields.

    Attributes:
        file_name: the name, without folders.
        file_size: the size in bytes.
        row_count: the number of all rows, including rows that delete.
        min_key: the key of the first row without the partition columns, as a serialized row; the
            empty row if the table has no key.
        max_key: the key of the last row, in the same form.
        key_stats: the statistics of the key columns.
        value_stats: the statistics of the columns of `value_stats_cols`.
        min_sequence_number: the smallest sequence number of the rows.
        max_sequence_number: the largest sequence number of the rows.
        schema_id: the schema that the file was written with.
        level: the level in the merge tree; 0 for new files.
        extra_files: the names of files that belong to this one.
        creation_time: the time of the local wall clock, in milliseconds since 1970.
        delete_row_count: the number of rows that delete; None if it is not known.
        embedded_file_index: the content of a small file index.
        file_source: a `FileSource`; None if it is not known.
        value_stats_cols: the columns that the statistics cover; None for all.
        external_path: the path of a file outside of the table.
        first_row_id: the id of the first row, of tables with row tracking.
        write_cols: the columns that the file has; None for all.
        unknown: the fields of its manifest entry that this release does not know.
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes = EMPTY_ROW
    max_key: bytes = EMPTY_ROW
    key_stats: SimpleStats = EMPTY_STATS
    value_stats: SimpleStats = EMPTY_STATS
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int = 0
    extra_files: tuple[str, ...] = ()
    creation_time: int | None
    delete_row_count: int | None = 0
    embedded_file_index: bytes | None = None
    file_source: int | None = FileSource.APPEND
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    unknown: UnknownFields = ()

    @property
    def known(self) -> "DataFileMeta":
        """This file without unknown fields, for messages that are read and not committed."""
        return replace(self, unknown=()) if self.unknown else self

    def numbered(self, first: int, last: int) -> "DataFileMeta":
        """This file with other sequence numbers, from `first` to `last`. The method is faster than
        `dataclasses.replace`.
        """
        file = object.__new__(DataFileMeta)
        for name in _ATTRIBUTES:
            object.__setattr__(file, name, getattr(self, name))
        object.__setattr__(file, "min_sequence_number", first)
        object.__setattr__(file, "max_sequence_number", last)
        return file


_ATTRIBUTES: Final = tuple(attribute.name for attribute in fields(DataFileMeta))


class DeletionRange(NamedTuple):
    """The place of one data file's deletion vector in an index file.

    Attributes:
        data_file: the name of the data file.
        offset: where the vector begins, in bytes.
        length: the bytes of the vector, as the entry of the index file counts them.
        cardinality: how many rows the vector deletes; None if that is not known.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None


class GlobalIndexMeta(NamedTuple):
    """The rows and the column that a global index file covers.

    Attributes:
        row_range_start: the id of the first row.
        row_range_end: the id of the last row.
        index_field_id: the id of the column.
        extra_field_ids: the ids of further columns.
        index_meta: bytes that only the index understands.
        source_meta: bytes about the source of the index, which only the index understands. Messages
            have them from version 12 on.
    """

    row_range_start: int
    row_range_end: int
    index_field_id: int
    extra_field_ids: tuple[int, ...] | None
    index_meta: bytes | None
    source_meta: bytes | None = None


HASH: Final = "HASH"
"""The type of index files that hold the hashes of a dynamic bucket's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFileMeta:
    """An index file: bucket hashes, deletion vectors, or a global index.

    Attributes:
        index_type: the type of the index, such as `HASH`.
        file_name: the name, without folders.
        file_size: the size in bytes.
        row_count: how many hashes or vectors the file has.
        deletions: the places of its deletion vectors; None for another type.
        external_path: the path of a file outside of the table.
        global_index: what a global index covers; None for another type.
    """

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletions: tuple[DeletionRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndexMeta | None = None


class FileIdentity(NamedTuple):
    """The identity of a file in manifest entries. Two entries with equal identities mean the same
    file (format.md §1.2). The level of the file is part of its identity.
    """

    partition: bytes
    bucket: int
    level: int
    file_name: str
    extra_files: tuple[str, ...]
    embedded_file_index: bytes | None
    external_path: str | None


_OF_FILE: Final = attrgetter(*FileIdentity._fields[2:])


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class ManifestEntry:
    """One change of one file, as a manifest records it.

    The class has an `__init__` of its own, because commits and scans make an entry for each file.
    The `__init__` of a frozen dataclass looks up each slot again, and takes one and a half times as
    long.

    Attributes:
        kind: whether the file is added or deleted.
        partition: the partition as a serialized row.
        bucket: the number of the bucket.
        total_buckets: the bucket count that the file was written for.
        file: the file.
    """

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: "DataFileMeta"

    def __init__(
        self,
        *,
        kind: FileKind,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        file: "DataFileMeta",
    ) -> None:
        _SET_KIND(self, kind)
        _SET_PARTITION(self, partition)
        _SET_BUCKET(self, bucket)
        _SET_TOTAL_BUCKETS(self, total_buckets)
        _SET_FILE(self, file)

    @property
    def identity(self) -> FileIdentity:
        """The identity of the file that the entry adds or deletes."""
        return FileIdentity(self.partition, self.bucket, *_OF_FILE(self.file))


_SET_KIND, _SET_PARTITION, _SET_BUCKET, _SET_TOTAL_BUCKETS, _SET_FILE = (
    vars(ManifestEntry)[slot].__set__ for slot in ManifestEntry.__slots__
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifestEntry:
    """One live index file, as an index manifest records it. `partition` is a serialized row.
    `unknown` has the fields of the entry that this release does not know.
    """

    partition: bytes
    bucket: int
    file: IndexFileMeta
    unknown: UnknownFields = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFileMeta:
    """A manifest, as a manifest list records it. `file_size` is exact. The ranges of buckets,
    levels and row ids are None if the writer did not record them. `unknown` has the fields of the
    list's entry that this release does not know.
    """

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None
    unknown: UnknownFields = ()
