"""Files that are written together, because nothing refers to any of them before all of them exist."""

from __future__ import annotations

from typing import Final, Protocol

from paimon_stream.storage.base import Storage

__all__ = ["Bundle", "FileSink"]

_HELD_BYTES: Final = 16 << 20


class FileSink(Protocol):
    """Receives whole files: a storage, or a bundle for one."""

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""


class Bundle:
    """Holds files back, up to 16 MiB of them, to write them with fewer syncs.

    Callers may rely on the files only after `flush` has returned. A bundle that is dropped before that may
    leave some of them, or none.
    """

    __slots__ = ("_files", "_held", "_storage")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: list[tuple[str, bytes]] = []
        self._held = 0

    def write(self, path: str, data: bytes) -> None:
        """Adds the file. Raises `StorageError` if files must be written to make room and that fails."""
        self._files.append((path, data))
        self._held += len(data)
        if self._held > _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the held files; then all files added so far are durable. Raises `StorageError`."""
        files, self._files, self._held = self._files, [], 0
        if files:
            self._storage.write_all(files)
