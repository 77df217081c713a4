"""Commit messages: what a writer reports to the committer about one bucket of one partition.

The bytes are those of Java Paimon, so either side can commit what the other wrote (format.md §8).
Version 11 is written; versions 11 and 12 are read. The version is not part of the bytes; it travels beside
them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Final, TypeVar

from paimon_stream.errors import FormatError, InvalidData, UnknownVersion
from paimon_stream.format.data_input import INT, DataInput
from paimon_stream.format.entries import DataFileMeta, IndexFileMeta
from paimon_stream.format.file_rows import (
    decode_data_file,
    decode_index_file,
    encode_data_file,
    encode_index_file,
)

__all__ = ["CommitMessage", "MessageInput"]

_READABLE: Final = (11, 12)
_SMALLEST_PARTITION: Final = 12
# The length, then the header and the slots of the row.
_SMALLEST_FILE: Final = 4 + 8 + 20 * 8
_SMALLEST_INDEX: Final = 4 + 8 + 7 * 8
_T = TypeVar("_T")
_FILE_FIELDS: Final = (
    "new_files", "deleted_files", "changelog_files", "new_index_files", "deleted_index_files",
    "compact_before", "compact_after", "compact_changelog_files", "compact_new_index_files",
    "compact_deleted_index_files",
)  # fmt: skip
_FILES_OF: Final = attrgetter(*_FILE_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMessage:
    """The changes of one bucket. `partition` is a serialized row. `total_buckets` is the bucket count that
    the files were written for, None if the writer did not record it. The `compact_` fields belong to a
    compaction, the others to a write. A message that was read keeps its bytes, and they are written again
    unchanged."""

    VERSION: ClassVar[int] = 11

    partition: bytes
    bucket: int
    total_buckets: int | None
    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    compact_changelog_files: tuple[DataFileMeta, ...] = ()
    compact_new_index_files: tuple[IndexFileMeta, ...] = ()
    compact_deleted_index_files: tuple[IndexFileMeta, ...] = ()
    _read_from: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Takes lists and iterators of files once, as tuples. Raises `InvalidData` for anything else."""
        if {type(one) for one in _FILES_OF(self)} == {tuple}:
            return
        for name in _FILE_FIELDS:
            kind = IndexFileMeta if "index" in name else DataFileMeta
            given = getattr(self, name)
            files = tuple(given) if isinstance(given, Iterable) else (given,)
            if not all(isinstance(one, kind) for one in files):
                raise InvalidData(f"{name} of a CommitMessage is wrong. Give a list of {kind.__name__}.")
            object.__setattr__(self, name, files)

    def file_names(self) -> Iterator[str]:
        """The names of all files that the message adds or removes, of those beside them, and of its index
        files."""
        for file in chain(
            self.new_files,
            self.deleted_files,
            self.changelog_files,
            self.compact_before,
            self.compact_after,
            self.compact_changelog_files,
        ):
            yield file.file_name
            yield from file.extra_files
        for index in chain(
            self.new_index_files,
            self.deleted_index_files,
            self.compact_new_index_files,
            self.compact_deleted_index_files,
        ):
            yield index.file_name

    def serialize(self) -> bytes:
        """The message in version 11. Raises `InvalidData` for what that version cannot hold."""
        out: list[bytes] = []
        _write(self, out)
        return b"".join(out)

    @staticmethod
    def deserialize(data: bytes, version: int = VERSION) -> CommitMessage:
        """The message that makes up all of these bytes. Raises `FormatError`, `UnknownVersion`."""
        source = MessageInput(data, version)
        message = _read(source)
        source.finish()
        return message

    @staticmethod
    def serialize_all(messages: Iterable[CommitMessage]) -> bytes:
        """The number of messages, then the messages one after the other. Raises `InvalidData`."""
        out: list[bytes] = [b""]
        count = 0
        for message in messages:
            _write(message, out)
            count += 1
        out[0] = INT.pack(count)
        return b"".join(out)

    @staticmethod
    def deserialize_all(data: bytes, version: int = VERSION) -> tuple[CommitMessage, ...]:
        """The messages in the bytes that `serialize_all` made. Raises `FormatError`, `UnknownVersion`."""
        source = MessageInput(data, version)
        messages = source.messages()
        source.finish()
        return messages


_SMALLEST_MESSAGE: Final = 4 + _SMALLEST_PARTITION + 4 + 1 + 10 * 4
_EMPTY_INCREMENT: Final = bytes(5 * 4)
_DataFiles = tuple[DataFileMeta, ...]
_IndexFiles = tuple[IndexFileMeta, ...]
_Increment = tuple[_DataFiles, _DataFiles, _DataFiles, _IndexFiles, _IndexFiles]
_NO_INCREMENT: Final[_Increment] = ((), (), (), (), ())


def _write(message: CommitMessage, out: list[bytes]) -> None:
    if message._read_from is not None:
        out.append(message._read_from)
        return
    try:
        out.append(INT.pack(len(message.partition)))
        out.append(message.partition)
        out.append(INT.pack(message.bucket))
        total = message.total_buckets
        out.append(b"\0" if total is None else b"\1" + INT.pack(total))
    except struct.error as why:
        raise InvalidData(f"Bucket {message.bucket} does not fit into a commit message: {why}.") from None
    data = (message.new_files, message.deleted_files, message.changelog_files)
    _write_increment(data, (message.new_index_files, message.deleted_index_files), out)
    data = (message.compact_before, message.compact_after, message.compact_changelog_files)
    _write_increment(data, (message.compact_new_index_files, message.compact_deleted_index_files), out)


def _write_increment(
    data_files: Sequence[Sequence[DataFileMeta]],
    index_files: Sequence[Sequence[IndexFileMeta]],
    out: list[bytes],
) -> None:
    if not any(data_files) and not any(index_files):
        out.append(_EMPTY_INCREMENT)
        return
    for files in data_files:
        _write_rows(files, encode_data_file, out)
    for indexes in index_files:
        _write_rows(indexes, encode_index_file, out)


def _write_rows(values: Sequence[_T], encode: Callable[[_T], bytes], out: list[bytes]) -> None:
    out.append(INT.pack(len(values)))
    for value in values:
        row = encode(value)
        out.append(INT.pack(len(row)))
        out.append(row)


class MessageInput(DataInput):
    """Bytes that hold messages of one version. Raises `UnknownVersion` for a version that cannot be read."""

    __slots__ = ("_version",)

    def __init__(self, data: bytes, version: int, what: str = "commit message") -> None:
        super().__init__(data, what)
        self.version = version

    @property
    def version(self) -> int:
        """The version of the messages."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        if version not in _READABLE:
            raise UnknownVersion(
                f"Commit messages of version {version} cannot be read; versions 11 and 12 can. Commit them "
                "with the release that made them.",
                version=version,
            )
        self._version = version

    def messages(self) -> tuple[CommitMessage, ...]:
        """The number of messages, then the messages one after the other. Raises `FormatError`."""
        return tuple([_read(self) for _ in range(self.count(_SMALLEST_MESSAGE))])

    def increment(self) -> _Increment:
        """The five lists of a data or compact increment. Raises `FormatError`."""
        if self.take_if(_EMPTY_INCREMENT):
            return _NO_INCREMENT
        return (
            self._data_files(),
            self._data_files(),
            self._data_files(),
            self._index_files(),
            self._index_files(),
        )

    def _data_files(self) -> _DataFiles:
        return tuple([decode_data_file(self.take(self.number())) for _ in range(self.count(_SMALLEST_FILE))])

    def _index_files(self) -> _IndexFiles:
        rows = [self.take(self.number()) for _ in range(self.count(_SMALLEST_INDEX))]
        return tuple([decode_index_file(row, self._version) for row in rows])


def _read(source: MessageInput) -> CommitMessage:
    start = source.position
    partition = source.take(source.number())
    if len(partition) < _SMALLEST_PARTITION:
        raise FormatError(f"A commit message has a partition of {len(partition)} bytes.")
    bucket = source.number()
    total_buckets = source.number() if source.flag() else None
    new, deleted, changelog, new_index, deleted_index = source.increment()
    before, after, compact_changelog, compact_new_index, compact_deleted_index = source.increment()
    message = CommitMessage(
        partition=partition,
        bucket=bucket,
        total_buckets=total_buckets,
        new_files=new,
        deleted_files=deleted,
        changelog_files=changelog,
        new_index_files=new_index,
        deleted_index_files=deleted_index,
        compact_before=before,
        compact_after=after,
        compact_changelog_files=compact_changelog,
        compact_new_index_files=compact_new_index,
        compact_deleted_index_files=compact_deleted_index,
    )
    if source.version == CommitMessage.VERSION:
        object.__setattr__(message, "_read_from", source.since(start))
    return message
