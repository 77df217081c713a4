"""Writes new data files to object stores by streams, and reads data files with random access for
pyarrow (stores.md §6).
"""

import io
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from paimon_stream.errors import (
    AlreadyExists,
    InvalidOption,
    NotFound,
    PaimonStreamError,
    Unavailable,
)
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.store_client import Handle
from paimon_stream.storage.store_open import StoreSettings

_PART: Final = 8 << 20
"""A file of at most this size is sent in one request. A larger file is sent in parts of this
size.
"""
_TOGETHER: Final = 4
"""How many parts of a file are sent at once."""
_HELD_WITH_PARTS: Final = 1 << 20
"""How many bytes of a file in parts are held before obstore gets them."""
LEAST_READ: Final = 1 << 20
"""The least bytes of a request, unless the file ends."""
_MOST_AHEAD: Final = 8 << 20
"""The most bytes that are read ahead for a reader that goes on where it stopped."""
_MOST_READ: Final = 32 << 20
"""The most bytes of a request."""
T = TypeVar("T")


class _RangedStore(Protocol):
    """What reading asks of a store."""

    def ranged(self, path: str, start: int, end: int) -> bytes: ...


class _AskedStore(Protocol):
    """The part of `ObjectStorage` that these files use. Its methods are described there."""

    @property
    def settings(self) -> StoreSettings: ...

    @property
    def location(self) -> str: ...

    def key(self, path: str) -> str: ...

    def exists(self, path: str) -> bool: ...

    def head(self, path: str) -> dict[str, Any]: ...

    def put_if_absent(self, path: str, data: bytes, *, repeated: bool = False) -> PutResult: ...

    def ranged(self, path: str, start: int, end: int) -> bytes: ...

    def ask(self, verb: str, path: str, effect: Callable[[Any, Any], T], handle: Handle) -> T: ...

    def get(
        self, path: str, use: Callable[[Any], T], *, options: dict[str, Any] | None = None
    ) -> T: ...


class HeldOutput(io.RawIOBase):
    """The stream of `open_output` for a storage that creates a small file in one call. The data is
    held until the file has more than `whole_bytes`. After that, `_open` gives a writer, and `_send`
    hands the held data to it whenever there are `sent_bytes`. A subclass has both, and creates the
    file when the context ends.

    Args:
        location: the location of the storage.
        path: the path of the file.
        piece_bytes: how many bytes are taken at once.
        whole_bytes: the most bytes of a file that is created in one call.
        sent_bytes: how many bytes are held before they are sent.
    """

    def __init__(
        self, location: str, path: str, *, piece_bytes: int, whole_bytes: int, sent_bytes: int
    ) -> None:
        super().__init__()
        self._location = location
        self._path = path
        self._piece_bytes = piece_bytes
        self._whole_bytes = whole_bytes
        self._sent_bytes = sent_bytes
        # The client's writer, for a file of more than `whole_bytes`.
        self._writer: Any = None
        self._held = bytearray()  # what was not sent yet
        self._size = 0  # the number of bytes written so far

    def writable(self) -> bool:
        """Whether the stream can be written to."""
        return True

    def tell(self) -> int:
        """The number of bytes that were written so far."""
        return self._size

    def write(self, data: Any, /) -> int:
        """Accepts all of the data, and sends some whenever there is enough of it."""
        if self.closed:
            raise ValueError("The stream is closed.")
        view = memoryview(data).cast("B")
        for start in range(0, len(view), self._piece_bytes):
            self._take(view[start : start + self._piece_bytes])
        return len(view)

    def _take(self, piece: memoryview) -> None:
        if self._writer is None and len(self._held) + len(piece) > self._whole_bytes:
            self._writer = self._open()
        self._held += piece
        self._size += len(piece)
        if self._writer is not None and len(self._held) >= self._sent_bytes:
            self._send()

    @abstractmethod
    def _open(self) -> Any:
        """The client's writer of a file that is not created in one call."""

    @abstractmethod
    def _send(self) -> None:
        """Hands the held data to the writer."""

    def _exists(self) -> AlreadyExists:
        full = f"{self._location}/{self._path}"
        return AlreadyExists(
            f"{full} exists already. Remove it, or write under another name.", path=full
        )


class Upload(HeldOutput):
    """The context and the stream of `open_output`. Only a few parts are held in memory, even for a
    large file. A file of one part is created on the condition that there is no such object. obstore
    cannot send this condition with several parts. So before the first of several parts is sent, a
    request asks whether there is such an object. No name may be used twice.
    """

    def __init__(self, store: _AskedStore, path: str) -> None:
        super().__init__(
            store.location,
            path,
            piece_bytes=_PART,
            whole_bytes=_PART,
            sent_bytes=_HELD_WITH_PARTS,
        )
        self._key = store.key(path)
        self._store = store

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if error is not None:
            self._held.clear()
            self._abort(error)
        elif self._writer is not None:
            self._complete()
        elif (
            self._store.put_if_absent(self._path, bytes(self._held), repeated=True)
            is PutResult.EXISTS
        ):
            raise self._exists()

    def _open(self) -> Any:
        """The writer of obstore, which sends parts. The file appears when the writer completes it."""
        if self._store.exists(self._path):
            raise self._exists()
        writer_options = {"buffer_size": _PART, "max_concurrency": _TOGETHER}
        return self._ask(
            lambda obstore, store: obstore.open_writer(store, self._key, **writer_options)
        )

    def _send(self) -> None:
        """Hands the held data to obstore, which sends a part as soon as it has enough data."""
        data = bytes(self._held)
        self._ask(lambda obstore, store: self._writer.write(data))
        self._held.clear()

    def _complete(self) -> None:
        """Sends the remaining data, and completes the file. If the answer was lost, the size of the
        file shows that the file is complete.
        """
        try:
            self._send()
            self._ask(lambda obstore, store: self._writer.__exit__(None, None, None))
        except PaimonStreamError as failed:
            failure = failed
            self._abort(failed)
        else:
            return
        try:
            if self._store.head(self._path)["size"] == self._size:
                return
        except NotFound:
            # The file does not exist. After one of these two errors, it may still appear.
            if not isinstance(failure, (AlreadyExists, Unavailable)):
                raise failure from None
        except PaimonStreamError:
            pass
        full = f"{self._store.location}/{self._path}"
        raise Unavailable(
            f"It is unknown whether {full} was completed. {failure.message} "
            "Write it under another name.",
            path=full,
        ) from None

    def _abort(self, error: BaseException) -> None:
        """Removes the parts that were sent, if there are any. Errors are ignored."""
        if self._writer is not None:
            with suppress(PaimonStreamError):
                self._ask(lambda obstore, store: self._writer.__exit__(type(error), error, None))

    def _ask(self, effect: Callable[[Any, Any], Any]) -> Any:
        return self._store.ask("write", self._path, effect, Handle.PARTS)


def open_source(store: _AskedStore, path: str) -> Any:
    """A source for pyarrow. A file of at most 1 MiB is read in one request. For a larger file, the
    end is read first, because file formats have their indexes at the end. Raises `NotFound`.
    """
    return source_of(store, path, _read_tail(store, path))


def source_of(store: "_RangedStore", path: str, tail: "Block") -> Any:
    """A source for pyarrow, given the last bytes of the file."""
    if tail.start == 0:
        return pa.BufferReader(tail.data)
    return pa.PythonFile(_Ranges(store, path, tail), mode="r")


class Block(NamedTuple):
    """A block of bytes of a file.

    Attributes:
        start: the position in the file at which the block begins.
        data: the bytes.
    """

    start: int
    data: bytes

    @property
    def end(self) -> int:
        """The position in the file after the last byte of the block."""
        return self.start + len(self.data)


def _read_tail(store: _AskedStore, path: str) -> Block:
    """The last bytes of a file, or the whole of a small file."""
    # Azure has no ranges that count from the end.
    if store.settings.kind != "azure":
        try:
            return store.get(path, _block_of, options={"range": {"suffix": LEAST_READ}})
        except InvalidOption:
            # An empty file has no last bytes, so stores refuse the request.
            size = int(store.head(path)["size"])
            if size:
                raise
            return Block(0, b"")
    size = int(store.head(path)["size"])
    start = max(0, size - LEAST_READ)
    return Block(start, store.ranged(path, start, size) if size else b"")


def _block_of(answer: Any) -> Block:
    """The block in the answer to a request for the last bytes of a file."""
    start, _ = answer.range
    return Block(int(start), bytes(answer.bytes()))


class _Ranges(io.RawIOBase):
    """A file with random access, which is read by ranges. The last bytes of the file, and the block
    that was read last, are kept. A reader that goes on where it stopped gets larger blocks.
    """

    def __init__(self, store: _RangedStore, path: str, tail: Block) -> None:
        """`tail` has the last bytes of the file."""
        super().__init__()
        self._store = store
        self._path = path
        self._size = tail.end
        self._at = 0  # where the next read begins
        self._tail = tail
        self._block = Block(0, b"")  # the bytes that were read last

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads the next bytes. There are fewer than `size` only at the end of the file."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        pieces = []
        while self._at < end:
            piece = self._cached(end) or self._fetch(end)
            if not piece:
                break
            self._at += len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _cached(self, end: int) -> bytes:
        """The next bytes up to the position `end`, as far as they are held in memory."""
        for block in (self._tail, self._block):
            if block.start <= self._at < block.end:
                return block.data[self._at - block.start : end - block.start]
        return b""

    def _fetch(self, end: int) -> bytes:
        """Requests the next bytes, and returns the bytes up to the position `end`. The request may
        ask for more bytes, which are held for the next read.
        """
        ahead = LEAST_READ
        goes_on = self._block.end == self._at
        if goes_on:
            ahead = min(2 * max(len(self._block.data), LEAST_READ), _MOST_AHEAD)
        stop = min(max(end, self._at + ahead), self._at + _MOST_READ, self._tail.start)
        self._block = Block(self._at, self._store.ranged(self._path, self._at, stop))
        return self._cached(end)
