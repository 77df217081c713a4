"""A planned read in splits, which tasks of Spark read. A split holds the manifest entries of its
files, as commit messages, one for each file, with the place of its deletion vector: the same
versioned bytes as in a commit. Tasks plan nothing; they read files.

Invariants: files of a bucket whose keys overlap (a section, `read/merged.py`) are in one split, in
the order of the scan. That is the order of commits, which decides which of two rows with one number
is the older. Files of changelogs are read one after the other, so those of a bucket stay together.
So do files that hold columns of the same rows.
"""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from paimon_stream.errors import InvalidData
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, IndexManifestEntry, ManifestEntry
from paimon_stream.format.types import DataType
from paimon_stream.options import DATA_EVOLUTION
from paimon_stream.read.convert import convert, normalize
from paimon_stream.read.merged import buckets
from paimon_stream.read.rows import read_batches, sections_of
from paimon_stream.read.scan import Scan, row_range
from paimon_stream.table.vectors import Vector

SPLIT_BYTES: Final = "128 mb"
_LEAST_BYTES: Final = 4 << 20  # of a file in a split, as `source.split.open-file-cost` in Paimon
_UTC: Final = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_of(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes such rows."""
    return to_arrow_schema(schema, **_UTC)


def splits_of(scan: Scan, split_bytes: int, *, changes: bool = False) -> list[bytes]:
    """The scan's files in splits of about that many bytes. The files of `changes` of a bucket,
    which are read one after the other, stay together. Raises `FormatError` for keys in a manifest
    that cannot be read.
    """
    return [_encoded(scan, files) for files in _packed(scan, split_bytes, changes)]


def without_files(scan: Scan) -> Scan:
    """What a task needs to know of the scan beside its split."""
    return replace(scan, files=(), vectors={})


def rows_of_split(
    scan: Scan, arrow: pa.Schema, data: bytes, version: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a split in the scan's columns, in the types of `arrow`. Raises as `read_batches`,
    and `InvalidData` for a NULL that `arrow` forbids.
    """
    for batch in read_batches(_decoded(scan, CommitMessage.deserialize_all(data, version))):
        for array, field in zip(batch.columns, arrow, strict=True):
            if array.null_count and not field.nullable:
                text = f"column {field.name!r} is NOT NULL in Spark, but holds NULL, maybe of before it was altered"
                text += ". Read with .schema(...), without NOT NULL there."
                raise InvalidData(text, column=field.name).of_table(scan.table.location)
        arrays = [
            convert(array, one.type, _micros(one.type), normalize, one.name).cast(field.type)
            for array, one, field in zip(batch.columns, scan.columns, arrow, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _packed(scan: Scan, split_bytes: int, changes: bool) -> Iterator[list[ManifestEntry]]:
    """The files of each split. Files whose rows are merged or joined stay together, in the scan's
    order.
    """
    units: Iterable[list[ManifestEntry]] = ([one] for one in scan.files)
    if scan.merge is not None:
        units = buckets(scan.files)
        if not changes:
            found = [one for files in units for one in sections_of(scan, files)]
            units = (
                sorted(one.files, key=lambda file: one.ages[file.file.file_name]) for one in found
            )
    elif scan.table.options.value(DATA_EVOLUTION):
        units = (list(files) for _, files in groupby(scan.files, row_range))
    held, left = list[ManifestEntry](), split_bytes
    for files in units:
        weight = sum(max(one.file.file_size, _LEAST_BYTES) for one in files)
        if held and weight > left:
            yield held
            held, left = [], split_bytes
        held, left = [*held, *files], left - weight
    if held:
        yield held


def _encoded(scan: Scan, files: Iterable[ManifestEntry]) -> bytes:
    """Each file as a message, with the place of its deletion vector."""
    messages = []
    for one in files:
        vector = scan.vectors.get(one.file.file_name)
        index = () if vector is None else (replace(vector[0].file, deletions=(vector[1],)),)
        where: dict[str, Any] = {
            "partition": one.partition,
            "bucket": one.bucket,
            "total_buckets": one.total_buckets,
        }
        messages.append(CommitMessage(**where, new_files=(one.file,), new_index_files=index))
    return CommitMessage.serialize_all(messages)


def _decoded(scan: Scan, messages: Iterable[CommitMessage]) -> Scan:
    files, vectors = list[ManifestEntry](), dict[str, Vector]()
    for one in messages:
        where: dict[str, Any] = {"partition": one.partition, "bucket": one.bucket}
        total = one.total_buckets or 0
        files += [
            ManifestEntry(kind=FileKind.ADD, **where, total_buckets=total, file=file)
            for file in one.new_files
        ]
        for index in one.new_index_files:
            vectors |= {
                at.data_file: (IndexManifestEntry(**where, file=index), at)
                for at in index.deletions or ()
            }
    return replace(scan, files=tuple(files), vectors=vectors)


def _micros(type_: DataType) -> DataType:
    """The type without digits beyond microseconds, which Spark does not have."""
    if type_.is_timestamp:
        return replace(type_, precision=min(type_.precision, 6))
    key, element = (None if one is None else _micros(one) for one in (type_.key, type_.element))
    members = tuple(replace(one, type=_micros(one.type)) for one in type_.fields)
    return replace(type_, key=key, element=element, fields=members)
