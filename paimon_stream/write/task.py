"""What one Spark task does. The task takes rows, writes data files, and returns the commit messages
of these files.

Invariants: a task never lists the table or commits. It deletes only its own files, and only when it
fails. At that time, nothing refers to these files yet. The names of its files are new, so a task
that runs twice leaves at most orphans.

Its result goes to the driver as bytes with a version and a type. The result is never pickled, so
the task and the driver may run different releases. All numbers are big endian:

    "PSTR" | u8 version | u8 kind | i32 partition id | i64 unused | body
    kind 0, a result:   i64 widest row | i64, i32 unused | i32 message version | i64 row bytes
                        | i32 count, messages; version 1 has neither widest row nor row bytes
    kind 1, a failure:  JSON of {"error": class name, "message": text, "context": {name: value}}
    kind 2, too wide:   nothing
"""

import json
import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from paimon_stream.errors import (
    FormatError,
    InvalidData,
    PaimonStreamError,
    StorageError,
    UnknownVersion,
    by_name,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, IndexFileMeta
from paimon_stream.format.json_text import BROKEN
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.options import BUCKET, Options
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import BufferedOutputs, Storage
from paimon_stream.table.layout import Layout
from paimon_stream.table.message_files import remove_files
from paimon_stream.write.conform import ColumnPlan
from paimon_stream.write.data_file import BucketWriter, DataFileSettings
from paimon_stream.write.dynamic_buckets import Assigner
from paimon_stream.write.routing import UNAWARE, Group, GroupIds, Router, split

_MAGIC: Final = b"PSTR"
_VERSION: Final = 2
_RESULT: Final = 0
_FAILURE: Final = 1
_TOO_WIDE: Final = 2
_HEAD: Final = struct.Struct(">4sBBiq")
_COUNTS: Final = struct.Struct(">qqii")
_ROW_BYTES: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task wrote.

    Attributes:
        messages: a commit message per (partition, bucket).
        row_bytes: the mean Arrow size of a row, in the batch where this mean is largest; 0 if it is
            unknown.
        widest_row: the Arrow size of the widest row; 0 if it is unknown.
        partition_id: the number of the task.
    """

    messages: tuple[CommitMessage, ...]
    row_bytes: int = 0
    widest_row: int = 0
    partition_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """How a task failed. The task has already removed its files.

    Attributes:
        error: the error that the driver raises.
        partition_id: the number of the task.
    """

    error: PaimonStreamError
    partition_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTooWide:
    """A row of the task was too wide (`RowTooWide`). The task has already removed its files.

    Attributes:
        partition_id: the number of the task.
    """

    partition_id: int = 0


Answer = TaskResult | TaskFailure | TaskTooWide


def encode_result(result: Answer) -> bytes:
    """The bytes of an answer. The context of an error is sent as JSON, and values that JSON cannot
    represent are sent as text.
    """
    match result:
        case TaskResult():
            kind = _RESULT
            body = _COUNTS.pack(result.widest_row, 0, 0, CommitMessage.VERSION)
            body += _ROW_BYTES.pack(result.row_bytes)
            body += CommitMessage.serialize_all(result.messages)
        case TaskFailure(error=error):
            kind = _FAILURE
            fields = {
                "error": type(error).__name__,
                "message": error.pattern,
                "context": error.context,
            }
            body = json.dumps(fields, default=str).encode()
        case TaskTooWide():
            kind = _TOO_WIDE
            body = b""
    return _HEAD.pack(_MAGIC, _VERSION, kind, result.partition_id, 0) + body


def decode_result(data: bytes) -> Answer:
    """The answer that `encode_result` encoded. If the class of an error is unknown, the error
    becomes a `PaimonStreamError`.

    Raises:
        UnknownVersion: if the bytes come from a newer release.
        FormatError: if the bytes are not an answer.
    """
    if len(data) < _HEAD.size or data[: len(_MAGIC)] != _MAGIC:
        raise FormatError(
            f"These {len(data)} bytes are not the result of a write task. "
            "Install the same release of paimon-stream on the driver and the executors."
        )
    _, version, kind, partition_id, _ = _HEAD.unpack_from(data)
    if version > _VERSION or kind not in (_RESULT, _FAILURE, _TOO_WIDE):
        raise UnknownVersion(
            f"A task result has version {version} and kind {kind}; this release reads version {_VERSION}. "
            "Upgrade paimon-stream on the driver.",
            version=version,
        )
    if kind == _TOO_WIDE:
        return TaskTooWide(partition_id=partition_id)
    try:
        if kind == _FAILURE:
            fields = json.loads(data[_HEAD.size :])
            error = by_name(str(fields["error"]))(str(fields["message"]), **fields["context"])
            return TaskFailure(error=error, partition_id=partition_id)
        widest_row, *_, message_version = _COUNTS.unpack_from(data, _HEAD.size)
        messages_start = _HEAD.size + _COUNTS.size
        row_bytes = 0
        if version > 1:
            (row_bytes,) = _ROW_BYTES.unpack_from(data, messages_start)
            messages_start += _ROW_BYTES.size
        else:
            widest_row = 0  # early releases had another number there
    except BROKEN:
        raise FormatError(
            f"The result of task {partition_id} is broken ({len(data)} bytes)."
        ) from None
    messages = CommitMessage.deserialize_all(data[messages_start:], message_version)
    return TaskResult(
        messages=tuple(messages),
        row_bytes=row_bytes,
        widest_row=widest_row,
        partition_id=partition_id,
    )


logger = logging.getLogger(__name__)


class NewFiles(NamedTuple):
    """The new files of one (partition, bucket)."""

    data: tuple[DataFileMeta, ...]
    changelog: tuple[DataFileMeta, ...] = ()


_BUFFER_BYTES: Final = 256 * 2**20

# It is faster to split rows while they fit into the processor's cache.
_LEAST_STAGE_BYTES: Final = 4 * 2**20
_MOST_STAGE_BYTES: Final = 32 * 2**20
_STAGE_BYTES_PER_GROUP: Final = 128 * 2**10

_WORTH_HOLDING: Final = 8
"""From this many writers on, the files that a task ends last are held and written together. Then
fewer syncs of a disk, or requests to a store, are waited for one after the other.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSpec:
    """Everything that a task needs to know. This class can be pickled for executors.

    Attributes:
        storage: the storage of the table.
        schema: the table's columns and keys.
        options: the table's options, with the overrides of the sink.
        runtime: the clock, the random numbers and the ids that the task uses.
        buffer_bytes: the largest size in bytes of the rows that a task holds in memory. If more
            rows wait, they are written in smaller row groups.
        index: with dynamic buckets, the index manifest that says which bucket each key has; None if
            there is none.
        assigners: with dynamic buckets, the number of tasks that give keys their buckets.
        user: the commit user, for the names of files of bucket -2.
    """

    storage: Storage
    schema: TableSchema
    options: Options
    runtime: Runtime = field(default_factory=system)
    buffer_bytes: int = _BUFFER_BYTES
    index: str | None = None
    assigners: int = 1
    user: str = ""

    @property
    def is_dynamic(self) -> bool:
        """Whether the bucket of a key is found by an index."""
        return bool(self.schema.primary_keys) and self.options.value(BUCKET) == UNAWARE


def write_task(spec: WriteSpec, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Writes all rows of a table without primary keys. The rows of a (partition, bucket) keep their
    order. Their sequence numbers count from 0; the driver renumbers those of fixed buckets. The
    files are durable when this function returns. Before any error, the task's files are removed
    (best effort).

    Args:
        spec: what to write, and where.
        batches: the rows.

    Returns:
        A commit message per (partition, bucket), in the order of their first rows. There are none
        if there are no rows.

    Raises:
        UnsupportedFeature: for a table that cannot be written.
        IncompatibleSchema: for rows that do not fit the table's columns.
        InvalidData: for values that do not fit the columns' types.
        StorageError: if the storage fails.

    Errors that `batches` raises are raised unchanged.
    """
    return _AppendTask(spec).run(batches)


def with_total(first: InvalidData, others: Iterable[InvalidData]) -> InvalidData:
    """The first error. It also counts the errors of the same kind in other batches.

    Args:
        first: the error that is raised.
        others: errors of other batches. Errors of the same class in the same column are counted.
    """
    column = first.context.get("column")
    alike = [
        error
        for error in others
        if type(error) is type(first) and error.context.get("column") == column
    ]
    if not alike:
        return first
    return first.recounted(sum(error.context.get("count", 1) for error in (first, *alike)))


class Task(ABC):
    """What one task does, for tables with and without primary keys.

    Attributes:
        spec: the table and the settings of the write.
        columns: the columns that the batches must have.
        layout: where the files of the table are.
        assigner: the assigner that gives keys their buckets; None if buckets are not dynamic.
        router: the router that finds the groups and gives them numbers.
        writers: all writers of the task.
        held: the storage that holds files which are written together at the end.
        indexes: the paths of the index files that the task has written.
    """

    def __init__(self, spec: WriteSpec) -> None:
        table = spec.storage.location
        self.spec = spec
        self.columns = ColumnPlan.of(spec.schema, table)
        self.layout = Layout.of(spec.schema, spec.options)
        self.assigner: Assigner | None = None
        if spec.is_dynamic:
            self.assigner = Assigner(
                spec.storage,
                self.layout,
                spec.options,
                index=spec.index,
                tasks=spec.assigners,
                uuid=spec.runtime.ids.uuid(),
            )
        self.router = Router(spec.schema, spec.options, table, self.assigner)
        self.writers: list[BucketWriter] = []
        self.held = BufferedOutputs(spec.storage)
        self.indexes: list[str] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Writes all rows. Before any error is raised, the task's files are removed (best
        effort).
        """
        incoming = iter(batches)
        try:
            for batch in incoming:
                rows = self.conform(batch)
                if rows.num_rows:
                    self.take(rows, self.router.assign(rows))
            return self._result(self.finish())
        except InvalidData as error:
            self._abort(error)
            raise with_total(error, self._errors_of(incoming)) from None
        except BaseException as error:
            self._abort(error)
            raise

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the form in which they are written. Raises `InvalidData` and
        `IncompatibleSchema`.
        """
        return self.columns.conform(batch)

    @abstractmethod
    def take(self, rows: pa.RecordBatch, numbers: int | GroupIds) -> None:
        """Adds rows. `numbers` is the group number of each row, or one number for all rows."""

    @abstractmethod
    def finish(self) -> Iterable[NewFiles]:
        """Writes the remaining rows and ends all files. Returns the files of each group, by group
        number.
        """

    def hold_last_files(self) -> None:
        """Makes writers hold new files from now on, if there are many writers. Subclasses call this
        method when no more rows come.
        """
        is_held_by_driver = isinstance(self.spec.storage, BufferedOutputs)
        if len(self.writers) >= _WORTH_HOLDING and not is_held_by_driver:
            for writer in self.writers:
                writer.storage = cast("Storage", self.held)

    def folder(self, number: int) -> str:
        """The folder of a group."""
        group = self.router.groups[number]
        return self.layout.bucket_folder(group.partition, group.bucket)

    def _result(self, files: Iterable[NewFiles]) -> TaskResult:
        messages = tuple(
            CommitMessage(
                partition=group.partition,
                bucket=group.bucket,
                total_buckets=self.router.total_buckets,
                new_files=new.data,
                changelog_files=new.changelog,
                new_index_files=self._write_index(group),
            )
            for group, new in zip(self.router.groups, files, strict=True)
        )
        self.held.flush()
        return TaskResult(messages=messages)

    def _write_index(self, group: Group) -> tuple[IndexFileMeta, ...]:
        """Writes the group's next index file if the group has new keys."""
        if self.assigner is None:
            return ()
        files = self.assigner.write(group.partition, group.bucket)
        self.indexes += [
            self.layout.index_file(group.partition, group.bucket, file) for file in files
        ]
        return files

    def _errors_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[InvalidData]:
        """The errors in the values of batches that are no longer written."""
        for batch in batches:
            try:
                rows = self.conform(batch)
                self.router.assign(rows)  # only called for its errors
            except InvalidData as error:
                yield error

    def _abort(self, error: BaseException) -> None:
        """Removes the task's files (best effort)."""
        remove_files(self.spec.storage, tuple(self.indexes))
        for writer in self.writers:
            try:
                for path in writer.abort(error):
                    self.held.delete(path)
            except StorageError as failed:
                logger.warning("A file of a failed task could not be removed: %s", failed)


class _AppendTask(Task):
    """A task that writes to a table without primary keys. It has one writer for each group.

    Attributes:
        settings: the settings of the task's files.
        open: the numbers of the writers with an open file, least recently used first.
        waiting_bytes: the size of the rows that wait in the writers.
        staged: the rows that are not yet split by group, with the group number of each row.
        staged_bytes: the size of the staged rows.
    """

    def __init__(self, spec: WriteSpec) -> None:
        super().__init__(spec)
        self.settings = DataFileSettings.of(spec.schema, spec.options, spec.storage.location)
        self.open: dict[int, None] = {}
        self.waiting_bytes = 0
        self.staged: list[tuple[pa.RecordBatch, GroupIds]] = []
        self.staged_bytes = 0

    def take(self, rows: pa.RecordBatch, numbers: int | GroupIds) -> None:
        """Adds rows. A batch of one group is passed on without a copy. Batches with rows of several
        groups are staged. They are later split together.
        """
        if isinstance(numbers, int):
            self._split_staged()
            self._write(numbers, rows)
            return
        self.staged.append((rows, numbers))
        self.staged_bytes += rows.nbytes
        stage_bytes = max(_LEAST_STAGE_BYTES, len(self.router.groups) * _STAGE_BYTES_PER_GROUP)
        if self.staged_bytes >= min(stage_bytes, _MOST_STAGE_BYTES, self.spec.buffer_bytes):
            self._split_staged()

    def finish(self) -> Iterable[NewFiles]:
        self._split_staged()
        self.hold_last_files()
        return [NewFiles(writer.close()) for writer in self.writers]

    def _split_staged(self) -> None:
        if not self.staged:
            return
        numbers = np.concatenate([numbers for _, numbers in self.staged])
        rows = pa.Table.from_batches([batch for batch, _ in self.staged]).combine_chunks()
        self.staged = []
        self.staged_bytes = 0
        start = 0
        for batch in rows.to_batches():
            end = start + batch.num_rows
            for number, part in split(batch, numbers[start:end]):
                self._write(number, part)
            start = end

    def _write(self, number: int, rows: pa.RecordBatch) -> None:
        """Passes rows of the group with this number on to its writer. While too many rows wait in
        all writers together, the writer with the most waiting rows writes its rows.
        """
        while len(self.writers) <= number:
            folder = self.folder(len(self.writers))
            self.writers.append(
                BucketWriter(self.settings, self.spec.storage, self.spec.runtime, folder)
            )
        writer = self.writers[number]
        bytes_before = writer.waiting_bytes
        writer.add(rows)
        self.waiting_bytes += writer.waiting_bytes - bytes_before
        self._note_open(number)
        while self.waiting_bytes > self.spec.buffer_bytes:
            largest = max(
                range(len(self.writers)), key=lambda number: self.writers[number].waiting_bytes
            )
            self.waiting_bytes -= self.writers[largest].waiting_bytes
            self.writers[largest].write_all()
            self._note_open(largest)

    def _note_open(self, number: int) -> None:
        """Notes whether the writer with this number has an open file. While too many files are
        open, ends the file whose last write is the longest ago.
        """
        self.open.pop(number, None)
        if self.writers[number].is_open:
            self.open[number] = None
        while len(self.open) > self.settings.format.most_open:
            oldest = next(iter(self.open))
            del self.open[oldest]
            self.writers[oldest].end_file()
