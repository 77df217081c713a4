"""A commit message is what a writer reports to the committer about one bucket of one partition. The
bytes are those of Java Paimon and pypaimon, so each side can commit what another wrote (format.md
§8). Versions 11 to 14 are read and written. Messages that this package keeps for itself have
version 11. The bytes do not contain the version, so it is stored and sent together with them.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

from paimon_stream.errors import FormatError, InvalidData, UnknownVersion
from paimon_stream.format.entries import DataFileMeta, IndexFileMeta
from paimon_stream.format.file_rows import (
    decode_data_file,
    decode_index_file,
    encode_data_file,
    encode_index_file,
)
from paimon_stream.format.raw_bytes import ByteCursor

_INT: Final = struct.Struct(">i")  # numbers are big endian, as in Java's DataOutput
_LONG: Final = struct.Struct(">q")
_VERSIONS: Final = (11, 12, 13, 14)
_WITH_CHECK: Final = 14
"""The first version that can hold `check_from_snapshot`."""
_SMALLEST_PARTITION: Final = 12
# Each has the length in 4 bytes, the header and the slots of the row.
_SMALLEST_FILE: Final = 4 + 8 + 20 * 8
_SMALLEST_INDEX: Final = 4 + 8 + 7 * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMessage:
    """The changes of one bucket. A message that was read keeps its bytes. If it is written again in
    the same version, the bytes are the same.

    Attributes:
        partition: the partition as a serialized row.
        bucket: the number of the bucket.
        total_buckets: the bucket count that the files were written for; None if the writer did not
            record it.
        new_files: data files that a write adds.
        deleted_files: data files that a write removes.
        changelog_files: changelog files that a write adds.
        new_index_files: index files that a write adds.
        deleted_index_files: index files that a write removes.
        compact_before: data files that a compaction removes.
        compact_after: data files that a compaction adds.
        compact_changelog_files: changelog files that a compaction adds.
        compact_new_index_files: index files that a compaction adds.
        compact_deleted_index_files: index files that a compaction removes.
        check_from_snapshot: the id of the newest snapshot that the writer has seen, if the changes
            hold only as long as no later snapshot touches the same rows. Messages have it from
            version 14 on. This package does not commit such a message.
    """

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
    check_from_snapshot: int | None = None
    _as_read: "_AsRead | None" = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Turns lists and iterators of files into tuples. Raises `InvalidData` for anything
        else.
        """
        if {type(files) for files in _FILES_OF(self)} == {tuple}:
            return
        for name in _FILE_FIELDS:
            kind = IndexFileMeta if "index" in name else DataFileMeta
            argument = getattr(self, name)
            files = tuple(argument) if isinstance(argument, Iterable) else (argument,)
            if not all(isinstance(file, kind) for file in files):
                raise InvalidData(
                    f"{name} of a CommitMessage is wrong. Give a list of {kind.__name__}."
                )
            object.__setattr__(self, name, files)

    def is_more_than_new_files(self) -> bool:
        """Whether the message has files in lists other than `new_files`. Most messages have
        none.
        """
        return _BESIDE_NEW_FILES(self) != _NO_FILES

    def file_names(self) -> Iterator[str]:
        """The names of all data files, extra files and index files that the message adds or
        removes.
        """
        files: Iterable[DataFileMeta | IndexFileMeta] = self.new_files
        if self.is_more_than_new_files():
            files = chain.from_iterable(_FILES_OF(self))
        for file in files:
            yield file.file_name
            if isinstance(file, DataFileMeta) and file.extra_files:
                yield from file.extra_files

    def serialize(self, version: int = VERSION) -> bytes:
        """The bytes of the message in a version from 11 to 14. Raises `InvalidData` if that version
        has no room for a value, and `UnknownVersion`.
        """
        _require_known(version)
        if self._as_read is not None and self._as_read.version == version:
            return self._as_read.data
        if self.check_from_snapshot is not None and version < _WITH_CHECK:
            raise InvalidData(
                f"Messages of version {version} cannot say from which snapshot on conflicts are looked for, and this "
                f"one says {self.check_from_snapshot}. Write version {_WITH_CHECK}."
            )
        try:
            pieces = [_INT.pack(len(self.partition)), self.partition, _INT.pack(self.bucket)]
            if self.total_buckets is None:
                pieces.append(b"\0")
            else:
                pieces += (b"\1", _INT.pack(self.total_buckets))
            check = self._check(version)
        except struct.error as error:
            raise InvalidData(
                f"Bucket {self.bucket} does not fit into a commit message: {error}."
            ) from None
        lists = _FILES_OF(self)
        of_write = lists[: len(_ENCODERS)]
        of_compaction = lists[len(_ENCODERS) :]
        for increment in (of_write, of_compaction):
            if not any(increment):
                pieces.append(_EMPTY_INCREMENT)
                continue
            for files, encode in zip(increment, _ENCODERS, strict=True):
                pieces.append(_INT.pack(len(files)))
                for file in files:
                    row = encode(file, version)
                    pieces += (_INT.pack(len(row)), row)
        pieces.append(check)
        return b"".join(pieces)

    def _check(self, version: int) -> bytes:
        """The bytes at the end of the message, which have `check_from_snapshot`."""
        if version < _WITH_CHECK:
            return b""
        if self.check_from_snapshot is None:
            return b"\0"
        return b"\1" + _LONG.pack(self.check_from_snapshot)

    @staticmethod
    def deserialize(
        data: bytes,
        version: int = VERSION,
    ) -> "CommitMessage":
        """The message in some bytes. The bytes must have the given version, 11 to 14, and contain
        nothing else. Raises `FormatError` and `UnknownVersion`.
        """
        source = _Input(data, version)
        message = _read(source)
        source.finish()
        return message

    @staticmethod
    def serialize_all(messages: "Iterable[CommitMessage]", version: int = VERSION) -> bytes:
        """The bytes of several messages: their number, followed by the messages. Raises the errors
        of `serialize`.
        """
        _require_known(version)
        serialized = [message.serialize(version) for message in messages]
        return b"".join((_INT.pack(len(serialized)), *serialized))

    @staticmethod
    def deserialize_all(
        data: bytes,
        version: int = VERSION,
    ) -> "tuple[CommitMessage, ...]":
        """The messages in bytes that `serialize_all` returned. Raises the errors of
        `deserialize`.
        """
        source = _Input(data, version)
        messages = tuple([_read(source) for _ in range(source.count(_SMALLEST_MESSAGE))])
        source.finish()
        return messages


class _AsRead(NamedTuple):
    """The bytes from which a message was read.

    Attributes:
        version: the version of the bytes.
        data: the bytes.
    """

    version: int
    data: bytes


# The lists of files in the order of the bytes: the lists of the write, followed by those of the
# compaction.
_FILE_FIELDS: Final = tuple(
    attribute.name for attribute in fields(CommitMessage) if attribute.default == ()
)
_FILES_OF: Final = attrgetter(*_FILE_FIELDS)
_BESIDE_NEW_FILES: Final = attrgetter(*(name for name in _FILE_FIELDS if name != "new_files"))
_NO_FILES: Final = ((),) * (len(_FILE_FIELDS) - 1)


class _Input(ByteCursor):
    """Bytes that hold messages of one version, and the current position. Before a method creates a
    value, it checks that enough bytes are left. It raises `FormatError` if there are too few.
    """

    cut_off = "A commit message is cut off: {size} bytes at {at} of {length}."

    def __init__(self, data: bytes, version: int) -> None:
        _require_known(version)
        super().__init__(data)
        self.version = version

    def flag(self) -> bool:
        """The next byte as a flag: False if it is zero."""
        return self.take(1) != b"\0"

    def number(self) -> int:
        """The next number."""
        value: int = _INT.unpack(self.take(_INT.size))[0]
        return value

    def long_number(self) -> int:
        """The next number of 64 bits."""
        value: int = _LONG.unpack(self.take(_LONG.size))[0]
        return value

    def count(self, smallest: int) -> int:
        """The number of entries that follow, each of at least `smallest` bytes. If the entries need
        more bytes than are left, the number is refused before any entry is read.
        """
        count = self.number()
        if count < 0 or count * smallest > len(self.raw) - self.at:
            raise FormatError(
                f"A commit message of {len(self.raw)} bytes cannot hold {count} entries."
            )
        return count

    def rows(self, smallest: int) -> list[bytes]:
        """A list of rows of at least `smallest` bytes, each with its length."""
        return [self.take(self.number()) for _ in range(self.count(smallest))]

    def finish(self) -> None:
        """Raises `FormatError` if bytes are left after the message."""
        if self.at != len(self.raw):
            raise FormatError(
                f"{len(self.raw) - self.at} bytes follow the end of a commit message."
            )


def _require_known(version: int) -> None:
    """Raises `UnknownVersion` for a version of messages that this release does not know."""
    if version not in _VERSIONS:
        raise UnknownVersion(
            f"Commit messages of version {version} are not known here; versions {_VERSIONS[0]} to {_VERSIONS[-1]} are. "
            "Commit them with the release that made them.",
            version=version,
        )


_SMALLEST_MESSAGE: Final = 4 + _SMALLEST_PARTITION + 4 + 1 + 10 * 4

# The encoders of the lists of files of an increment.
_ENCODERS: Final[tuple[Callable[[Any, int], bytes], ...]] = (
    *[encode_data_file] * 3,
    *[encode_index_file] * 2,
)
_EMPTY_INCREMENT: Final = bytes(4 * len(_ENCODERS))
"""An increment is the lists of files of a write or of a compaction. Here all are empty."""

_Increment = tuple[tuple[Any, ...], ...]
_NO_INCREMENT: Final[_Increment] = ((),) * len(_ENCODERS)


def _read(source: _Input) -> "CommitMessage":
    """Reads the next message."""
    start = source.at
    partition = source.take(source.number())
    if len(partition) < _SMALLEST_PARTITION:
        raise FormatError(f"A commit message has a partition of {len(partition)} bytes.")
    bucket = source.number()
    has_total_buckets = source.flag()
    total_buckets = source.number() if has_total_buckets else None
    of_write = _increment(source)
    of_compaction = _increment(source)
    files: dict[str, Any] = dict(zip(_FILE_FIELDS, (*of_write, *of_compaction), strict=True))
    has_check = source.version >= _WITH_CHECK and source.flag()
    message = CommitMessage(
        partition=partition,
        bucket=bucket,
        total_buckets=total_buckets,
        check_from_snapshot=source.long_number() if has_check else None,
        **files,
    )
    as_read = _AsRead(version=source.version, data=source.raw[start : source.at])
    object.__setattr__(message, "_as_read", as_read)
    return message


def _increment(source: _Input) -> _Increment:
    """The five lists of files of a write, or of a compaction."""
    if source.raw.startswith(_EMPTY_INCREMENT, source.at):
        source.at += len(_EMPTY_INCREMENT)
        return _NO_INCREMENT
    decode_data = partial(decode_data_file, version=source.version)
    data = [tuple(map(decode_data, source.rows(_SMALLEST_FILE))) for _ in range(3)]
    decode_index = partial(decode_index_file, version=source.version)
    index = [tuple(map(decode_index, source.rows(_SMALLEST_INDEX))) for _ in range(2)]
    return (*data, *index)
