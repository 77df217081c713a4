"""Files that are written together, because nothing refers to any of them before all of them exist."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Protocol

from paimon_stream.storage.base import Storage

_HELD_BYTES: Final = 16 << 20


class FileSink(Protocol):
    """Receives whole files: a storage, or a bundle for one."""

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""


class Bundle:
    """Holds files back, up to 16 MiB of them, to write them with fewer syncs. They can be relied on only after `flush`
    has returned. A bundle dropped before that may leave some of them, or none."""

    __slots__ = ("_files", "_held", "_in_doubt", "_storage")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: dict[str, bytes] = {}
        self._held = 0
        self._in_doubt = False  # a flush that failed may have left files

    def write(self, path: str, data: bytes) -> None:
        """Adds the file. Raises `StorageError` if files must be written to make room and that fails."""
        self._held += len(data) - len(self._files.pop(path, b""))
        self._files[path] = data
        if self._held > _HELD_BYTES:
            self.flush()

    def drop(self, path: str) -> bool:
        """Forgets a file that is still held. Returns whether it was, and nothing of it was sent."""
        data = self._files.pop(path, None)
        self._held -= len(data or b"")
        return data is not None and not self._in_doubt

    def flush(self) -> None:
        """Writes the held files; then all added files are durable. After a `StorageError` the files are still held."""
        if self._files:
            self._in_doubt = True
            self._storage.write_all([*self._files.items()])
        self._files, self._held, self._in_doubt = {}, 0, False


class HeldOutputs:
    """A storage whose new files are held in memory until `flush`, up to 16 MiB of them. Streams of such files
    end at once. All other requests go to the storage itself."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._bundle = Bundle(storage)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    @contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        """A stream for a new file under a name that is used once. When it ends, it raises `StorageError` if
        files must be written to make room and that fails."""
        stream = io.BytesIO()
        yield stream
        self._bundle.write(path, stream.getvalue())

    def delete(self, path: str) -> None:
        """Deletes the file, or drops it if it was not sent. Raises `StorageError`."""
        if not self._bundle.drop(path):
            self._storage.delete(path)

    def flush(self) -> None:
        """Writes the held files; then all files are durable. Raises `StorageError`."""
        self._bundle.flush()
