"""Files that are written together, because nothing refers to any of them before all are there."""

from __future__ import annotations

from typing import Final, Protocol

from paimon_stream.storage.base import Storage

__all__ = ["Bundle", "FileSink"]

_HELD_BYTES: Final = 16 << 20


class FileSink(Protocol):
    """What takes whole files: a storage, or a bundle for one."""

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""


class Bundle:
    """Holds files back, up to 16 MiB of them, to write them with fewer syncs.

    None of them may be relied on before `flush` has returned; a bundle that is dropped instead leaves
    some of them, or none.
    """

    __slots__ = ("_files", "_held", "_storage")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: list[tuple[str, bytes]] = []
        self._held = 0

    def write(self, path: str, data: bytes) -> None:
        """Takes the file. Raises `StorageError` where others are written to make room."""
        self._files.append((path, data))
        self._held += len(data)
        if self._held > _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is held: then all files taken so far are there and durable. Raises `StorageError`."""
        files, self._files, self._held = self._files, [], 0
        if files:
            self._storage.write_all(files)
