"""New files of the local file system: how they are created, written, synced and closed."""

import contextlib
import errno
import io
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, BinaryIO, Final, cast

from paimon_stream.errors import StorageError, Unavailable
from paimon_stream.runtime import system
from paimon_stream.storage.os_errors import writing

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_BUFFER_BYTES: Final = 1 << 20
_CREATE_ATTEMPTS: Final = 3
_SYNCED_TOGETHER: Final = 4
_QUICK_SYNC_SECONDS: Final = 0.001


class CheckedFile(io.FileIO):
    """A new file that raises this package's errors and is synced when it is closed, by whomever."""

    def __init__(self, full: str) -> None:
        self.full = full
        self.abandoned = False
        super().__init__(_open_new(full), "wb")

    def write(self, data: Any, /) -> int:
        """Writes some of the data, and returns the number of bytes."""
        with writing(self.full):
            return super().write(data)

    def write_whole(self, data: bytes) -> None:
        """Writes all of the data."""
        _write_whole(self.write, data)

    def close(self) -> None:
        """Syncs the file, unless it is being removed, and closes it."""
        if self.closed:
            return
        with writing(self.full):
            try:
                if not self.abandoned:
                    os.fsync(self.fileno())
            finally:
                super().close()

    def remove(self) -> None:
        """Closes the file and deletes it, as far as possible."""
        self.abandoned = True
        with contextlib.suppress(StorageError):
            self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.full)


class Output:
    """The context of `open_output`. It is a class and not a generator, so that an object dropped half-way, as
    in a killed process, leaves the file as it is."""

    def __init__(self, full: str) -> None:
        self.full = full

    def __enter__(self) -> BinaryIO:
        with writing(self.full):
            self.raw = CheckedFile(self.full)
        self.stream = io.BufferedWriter(self.raw, _BUFFER_BYTES)
        return cast("BinaryIO", self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.raw.remove()
            return
        try:
            self.stream.close()
            sync_folder_of(self.full)
        except BaseException:
            self.raw.remove()
            raise


def close_files(files: Sequence[CheckedFile]) -> None:
    """Closes, and so syncs, all files. If the disk is busy and the first sync is slow, the others are synced
    several at a time, so that the file system commits its journal once for all of them. The threads are
    short-lived, because a pool would not survive a fork."""
    failed: list[StorageError] = []

    def close(file: CheckedFile) -> None:
        try:
            file.close()
        except StorageError as why:
            failed.append(why)

    waiting = list(files)
    clock, together = system().clock, 1
    while waiting and not failed:
        began = clock.monotonic()
        some, waiting = waiting[:together], waiting[together:]
        threads = [threading.Thread(target=close, args=(file,)) for file in some[1:]]
        for thread in threads:
            thread.start()
        close(some[0])
        for thread in threads:
            thread.join()
        together = 1 if clock.monotonic() - began < _QUICK_SYNC_SECONDS else _SYNCED_TOGETHER
    if failed:
        raise failed[0]


def write_new(full: str, data: bytes, *, synced: bool = True) -> None:
    """Creates a file with the data, and syncs it if `synced`. Raises `OSError` untranslated."""
    descriptor = _open_new(full)
    try:
        _write_whole(partial(os.write, descriptor), data)
        if synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder_of(full: str) -> None:
    """Makes a name durable. The file already exists, so a failure proves nothing: it raises `Unavailable`."""
    try:
        _sync(os.path.dirname(full))
    except OSError as failed:
        raise Unavailable(
            f"Created {full}, but its folder could not be synced ({failed.strerror}); it may be lost if the "
            "machine stops now. Check the disk.",
            path=full,
        ) from None


def _open_new(full: str) -> int:
    """A descriptor of a file that did not exist. A cleaner of empty folders may remove a new folder before
    its first file is created; then the folder is created again."""
    for _ in range(_CREATE_ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):
            return os.open(full, _NEW_FILE, 0o666)
        _make_folder(os.path.dirname(full))
    return os.open(full, _NEW_FILE, 0o666)


def _make_folder(folder: str) -> None:
    if os.path.isdir(folder):
        return
    _make_folder(os.path.dirname(folder))
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", folder) from None
    _sync(os.path.dirname(folder))


def _write_whole(write: Callable[[memoryview], int], data: bytes) -> None:
    """Writes all of the data, however little the system accepts at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[write(rest) :]


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
