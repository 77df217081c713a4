"""Divides a planned read into splits, which tasks of Spark read. A split holds the manifest entries
of its files. Each is a commit message, in the same versioned bytes as in a commit, with the place
of the file's deletion vector. Tasks plan nothing, and only read files.

Invariants: files of a bucket whose keys overlap (a section, `read/merged.py`) are in one split, in
the order of the scan. That is the order of commits, which decides which of two rows with the same
sequence number is older. In a read of changes, the files of a bucket are read one after the other,
so they are in one split. In a read of the difference between two snapshots, a split has all files
that the two snapshots have in its buckets. Files that hold columns of the same rows are also in one
split.
"""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from paimon_stream.errors import InvalidData
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import (
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
)
from paimon_stream.format.types import DataField, DataType
from paimon_stream.options import DATA_EVOLUTION
from paimon_stream.options.option import size
from paimon_stream.read.convert import convert, normalize
from paimon_stream.read.merged import buckets, files_of_buckets
from paimon_stream.read.rows import read_batches, sections_of
from paimon_stream.read.scan import Scan, row_range
from paimon_stream.table.vectors import Vector

SPLIT_BYTES: Final = "128 mb"
_LEAST_BYTES: Final = 4 << 20
"""A file counts as at least this many bytes, like `source.split.open-file-cost` in Paimon."""
_UTC: Final = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_of(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark expects rows of a Spark schema."""
    return to_arrow_schema(schema, **_UTC)


def splits_of(scan: Scan, split_bytes: int) -> list[bytes]:
    """The scan's files, divided into splits of about `split_bytes` bytes. Raises `FormatError` if
    the keys in a manifest cannot be read.
    """
    before = scan.before
    older_files = files_of_buckets(() if before is None else before.files)
    splits = []
    for files in _packed(_units(scan), split_bytes):
        messages = _messages(scan, files)
        if before is not None:
            places = dict.fromkeys((entry.partition, entry.bucket) for entry in files)
            older = [entry for place in places for entry in older_files.get(place, [])]
            messages += [_as_removed(message) for message in _messages(before, older)]
        splits.append(CommitMessage.serialize_all(messages))
    return splits


def split_bytes_for(scan: Scan, tasks: int) -> int:
    """About how many bytes a split may have, so that this many tasks share the scan evenly. As in
    Spark's own reader of files, it is at most 128 MB, and not less than one small file counts.
    """
    share = -(-sum(map(_weight, scan.files)) // max(1, tasks))
    return min(size(SPLIT_BYTES), max(_LEAST_BYTES, share))


def without_files(scan: Scan) -> Scan:
    """The scan without its files. A task needs it in addition to its split."""
    before = None if scan.before is None else without_files(scan.before)
    return replace(scan, files=(), vectors={}, before=before)


def rows_of_split(
    scan: Scan, arrow: pa.Schema, data: bytes, version: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a split.

    Args:
        scan: says which columns are read and how, as `without_files` returns it.
        arrow: the types of the columns in the batches, and which of them are NOT NULL.
        data: the files of the split, encoded.
        version: the version of the encoding.

    Raises:
        PaimonStreamError: what `read_batches` raises.
        InvalidData: a column has a NULL that `arrow` forbids.
    """
    types = [_micros(column.type) for column in scan.columns]
    for batch in read_batches(scan_of_split(scan, data, version)):
        for array, field in zip(batch.columns, arrow, strict=True):
            if array.null_count and not field.nullable:
                raise InvalidData(
                    f"column {field.name!r} is NOT NULL in Spark, but some of its rows hold NULL. "
                    "They may be older than the column's NOT NULL. Read with .schema(...), in "
                    "which the column may be NULL.",
                    column=field.name,
                ).of_table(scan.table.location)
        arrays = [
            _in_spark(array, column, micros, field.type)
            for array, column, micros, field in zip(
                batch.columns, scan.columns, types, arrow, strict=True
            )
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def scan_of_split(scan: Scan, data: bytes, version: int) -> Scan:
    """The scan with the files of a split. The arguments are those of `rows_of_split`."""
    return _decoded(scan, CommitMessage.deserialize_all(data, version))


def _in_spark(
    array: pa.Array, column: DataField, micros: DataType, wanted: pa.DataType
) -> pa.Array:
    """The values of a column in the Arrow type that Spark expects. `micros` is the column's type
    with microseconds. Values that Spark has as they are have been checked when they were read, and
    are not looked at again.
    """
    if micros != column.type:
        array = convert(array, column.type, micros, normalize, column.name)
    return array if array.type.equals(wanted) else array.cast(wanted)


def _units_of_rows(scan: Scan) -> Iterable[list[ManifestEntry]]:
    """Divides the files into lists. Files whose rows are merged or joined are in one list, and
    every other file is in a list of its own. The order of files is that of the scan.
    """
    if scan.merge is not None:
        sections = [
            section for files in buckets(scan.files) for section in sections_of(scan, files)
        ]
        return [
            sorted(section.files, key=lambda entry: section.ages[entry.file.file_name])
            for section in sections
        ]
    if scan.table.options.value(DATA_EVOLUTION):
        return [list(files) for _, files in groupby(scan.files, row_range)]
    return [[entry] for entry in scan.files]


def _units(scan: Scan) -> Iterable[list[ManifestEntry]]:
    """Lists of files that must be in one split. If rows have a key, that is the whole bucket in two
    cases: changes of a bucket are read one after the other, and the difference between two
    snapshots compares whole buckets.
    """
    if scan.merge is not None and (scan.are_changes or scan.before is not None):
        return buckets(scan.files)
    return _units_of_rows(scan)


def _packed(
    units: Iterable[list[ManifestEntry]], split_bytes: int
) -> Iterator[list[ManifestEntry]]:
    """The files of each split. The files of one unit are in the same split."""
    split: list[ManifestEntry] = []
    bytes_left = split_bytes
    for files in units:
        weight = sum(map(_weight, files))
        if split and weight > bytes_left:
            yield split
            split = []
            bytes_left = split_bytes
        split += files
        bytes_left -= weight
    if split:
        yield split


def _weight(entry: ManifestEntry) -> int:
    """The bytes that a file counts in a split."""
    return max(entry.file.file_size, _LEAST_BYTES)


def _messages(scan: Scan, files: Iterable[ManifestEntry]) -> list[CommitMessage]:
    """One message for each file, with the place of the file's deletion vector."""
    messages = []
    for entry in files:
        vector = scan.vectors.get(entry.file.file_name)
        index_files: tuple[IndexFileMeta, ...] = ()
        if vector is not None:
            index, place = vector
            index_files = (replace(index.file, deletions=(place,)),)
        messages.append(
            CommitMessage(
                partition=entry.partition,
                bucket=entry.bucket,
                total_buckets=entry.total_buckets,
                new_files=(entry.file.known,),
                new_index_files=index_files,
            )
        )
    return messages


def _as_removed(message: CommitMessage) -> CommitMessage:
    """The message of a file that only the older of two snapshots has."""
    return replace(
        message,
        new_files=(),
        new_index_files=(),
        deleted_files=message.new_files,
        deleted_index_files=message.new_index_files,
    )


def _decoded(scan: Scan, messages: Iterable[CommitMessage]) -> Scan:
    """The scan, as a task reads it, with the files of its split."""
    messages = list(messages)
    before = scan.before
    if before is not None:
        older = [
            replace(
                message,
                new_files=message.deleted_files,
                new_index_files=message.deleted_index_files,
            )
            for message in messages
        ]
        before = _with_files(before, older)
    return replace(_with_files(scan, messages), before=before)


def _with_files(scan: Scan, messages: Iterable[CommitMessage]) -> Scan:
    files: list[ManifestEntry] = []
    vectors: dict[str, Vector] = {}
    for message in messages:
        for file in message.new_files:
            files.append(
                ManifestEntry(
                    kind=FileKind.ADD,
                    partition=message.partition,
                    bucket=message.bucket,
                    total_buckets=message.total_buckets or 0,
                    file=file,
                )
            )
        for index_file in message.new_index_files:
            index = IndexManifestEntry(
                partition=message.partition, bucket=message.bucket, file=index_file
            )
            for place in index_file.deletions or ():
                vectors[place.data_file] = (index, place)
    return replace(scan, files=tuple(files), vectors=vectors)


def _micros(type_: DataType) -> DataType:
    """The type with at most the digits of microseconds, because Spark has no finer times."""
    if type_.is_timestamp:
        return replace(type_, precision=min(type_.precision, 6))
    key = None if type_.key is None else _micros(type_.key)
    element = None if type_.element is None else _micros(type_.element)
    return replace(
        type_,
        key=key,
        element=element,
        fields=tuple(replace(member, type=_micros(member.type)) for member in type_.fields),
    )
