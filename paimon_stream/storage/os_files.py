"""Creates, writes, syncs and closes new files of the local file system. Also turns errors of the
operating system into this package's errors, which name the file and say what to do.
"""

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, Final, cast

from paimon_stream.errors import (
    AlreadyExists,
    NoSpace,
    NotFound,
    PermissionDenied,
    StorageError,
    Unavailable,
)
from paimon_stream.runtime import system

_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_BUFFER_BYTES: Final = 1 << 20
_CREATE_ATTEMPTS: Final = 3
_SYNCED_TOGETHER: Final = 4
"""How many files are synced at once if that takes long."""
_QUICK_SYNC_SECONDS: Final = 0.001
"""If all syncs together take less, threads would not make them quicker."""


class CheckedFile(io.FileIO):
    """A new file that raises this package's errors. It is synced when any caller closes it."""

    def __init__(self, full: str, sync: Callable[[str], object] | None = None) -> None:
        """Creates the file. Raises `OSError` untranslated.

        Args:
            full: the absolute path of the file.
            sync: is called with each folder in which a new folder was made for the file. None: each
                such folder is synced.
        """
        self.full = full
        super().__init__(_open_new(full, sync or _sync), "wb")

    def write(self, data: Any, /) -> int:
        """Writes some of the data, and returns the number of bytes."""
        with writing(self.full):
            return super().write(data)

    def close(self) -> None:
        """Syncs the file and closes it."""
        if self.closed:
            return
        with writing(self.full):
            try:
                os.fsync(self.fileno())
            finally:
                super().close()

    def remove(self) -> None:
        """Closes the file without a sync and deletes it. Errors are ignored."""
        with contextlib.suppress(OSError):
            super().close()
        with contextlib.suppress(OSError):
            os.unlink(self.full)


class Output:
    """The context that `open_output` returns. It is not a generator. In the simulation of a kill, a
    generator that is dropped half-way would still run to its end and change the file.
    """

    def __init__(self, full: str) -> None:
        self.full = full

    def __enter__(self) -> BinaryIO:
        with writing(self.full):
            self.raw = CheckedFile(self.full)
        self.stream = io.BufferedWriter(self.raw, _BUFFER_BYTES)
        return cast("BinaryIO", self.stream)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
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
    """Closes all files, which syncs them. If that takes long, several are closed at once."""
    _sync_each([file.close for file in files])


def sync_folders(folders: Mapping[str, str]) -> None:
    """Makes the names in the folders durable, in several of them at once if that takes long. Raises
    what `sync_folder_of` raises.

    Args:
        folders: each folder, with the path of a new file for which a name was made in it.
    """
    _sync_each([partial(_sync_names, folder, full) for folder, full in folders.items()])


def _sync_each(syncs: Sequence[Callable[[], object]]) -> None:
    """Calls functions that sync a file or a folder. If the first call shows that all others would
    take long, several are called at a time, so that the file system commits its journal once for
    several calls. The threads are short-lived, because a permanent pool would not survive a fork.
    The error of a call is raised when no call is under way.
    """
    clock = system().clock
    waiting = iter(syncs)
    for left, sync in zip(reversed(range(len(syncs))), waiting, strict=True):
        began = clock.monotonic()
        sync()
        if (clock.monotonic() - began) * left > _QUICK_SYNC_SECONDS:
            break
    else:
        return
    with ThreadPoolExecutor(_SYNCED_TOGETHER) as pool:
        # Each thread takes the next call from the same iterator.
        threads = []
        with contextlib.suppress(RuntimeError):  # raised where no more threads can be started
            for _ in range(_SYNCED_TOGETHER):
                threads.append(pool.submit(_call_each, waiting))
        if not threads:
            _call_each(waiting)
        for thread in threads:
            thread.result()


def _call_each(waiting: Iterator[Callable[[], object]]) -> None:
    for sync in waiting:
        sync()


def write_new(full: str, data: bytes, *, synced: bool = True) -> None:
    """Creates a file with the data, and syncs it if `synced`. Raises the `OSError` of the
    system.
    """
    descriptor = _open_new(full, _sync)
    try:
        write_whole(partial(os.write, descriptor), data)
        if synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder_of(full: str) -> None:
    """Makes the name of a file durable. Raises `Unavailable` if that fails, because the file
    already exists and may stay.
    """
    _sync_names(os.path.dirname(full), full)


def _sync_names(folder: str, full: str) -> None:
    """Makes the names of new files in a folder durable. `full` is such a file, for messages. Raises
    what `sync_folder_of` raises.
    """
    try:
        _sync(folder)
    except OSError as failed:
        raise Unavailable(
            f"Created {full}, but its folder could not be synced ({failed.strerror}); "
            "it may be lost if the machine stops now. Check the disk.",
            path=full,
        ) from None


def _open_new(full: str, sync: Callable[[str], object]) -> int:
    """Creates a file that does not exist yet, and returns its descriptor. A cleaner of empty
    folders may remove a new folder before its first file is created. In that case the folder is
    created again. `sync` is called with each folder in which a new folder was made.
    """
    for _ in range(_CREATE_ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):
            return os.open(full, _NEW_FILE, 0o666)
        _make_folder(os.path.dirname(full), sync)
    return os.open(full, _NEW_FILE, 0o666)


def _make_folder(folder: str, sync: Callable[[str], object]) -> None:
    if os.path.isdir(folder):
        return
    _make_folder(os.path.dirname(folder), sync)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", folder) from None
    sync(os.path.dirname(folder))


def write_whole(write: Callable[[memoryview], int], data: bytes) -> None:
    """Writes all of the data, even if the system accepts only a part of it at a time."""
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[write(unwritten) :]


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_NO_FOLDER: Final = (
    "{file} is a file, where a folder is needed. Remove that file, or use another location"
)
_TOO_MANY: Final = (
    "this process has too many files open. "
    "Raise its limit (ulimit -n), or close files, and try again"
)
_KINDS: Final[dict[int, tuple[type[StorageError], str]]] = {
    errno.ENOENT: (NotFound, "it does not exist. Check the table's location"),
    errno.EEXIST: (AlreadyExists, "it already exists. Remove it, or write under another name"),
    errno.ENOTDIR: (AlreadyExists, _NO_FOLDER),
    errno.EACCES: (
        PermissionDenied,
        "permission denied. Allow this process to read and write the folder",
    ),
    errno.EPERM: (
        PermissionDenied,
        "not permitted. Allow this process to read and write the folder",
    ),
    errno.EROFS: (PermissionDenied, "the file system is read-only. Mount it writable"),
    errno.ENAMETOOLONG: (StorageError, "the path, or a name in it, is too long. Use shorter names"),
    errno.ELOOP: (StorageError, "its symbolic links lead to each other. Remove the links"),
    errno.EMFILE: (Unavailable, _TOO_MANY),
    errno.ENOSPC: (NoSpace, "the disk is full. Free space and try again"),
    errno.EDQUOT: (
        NoSpace,
        "the disk quota is used up. Free space or raise the quota, and try again",
    ),
    errno.EFBIG: (
        NoSpace,
        "the file is larger than the process or file system allows. Raise that limit",
    ),
}


@contextlib.contextmanager
def reading(full: str) -> Iterator[None]:
    """A context that turns the `OSError` of a read into this package's error. That error is
    `NotFound` also for a folder in place of the file, and for an impossible path. A path is
    impossible if a name is too long, or if links lead to each other.
    """
    try:
        yield
    except (IsADirectoryError, NotADirectoryError):
        raise NotFound(f"There is no file {full}. Check the table's location.", path=full) from None
    except OSError as failed:
        error = translated(failed, full, "read")
        if failed.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise NotFound(error.message, path=full) from None
        raise error from None


@contextlib.contextmanager
def writing(full: str) -> Iterator[None]:
    """A context that turns the `OSError` of a write into this package's error."""
    try:
        yield
    except OSError as failed:
        raise translated(failed, full, "write") from None


def translated(failed: OSError, full: str, verb: str) -> StorageError:
    """This package's error for an `OSError`. `verb` says what was done to the file, such as
    "read".
    """
    unexplained = f"{failed.strerror or failed}. Check the disk or mount and try again"
    kind, reason = _KINDS.get(failed.errno or 0, (Unavailable, unexplained))
    shown_reason = reason.replace("{file}", _file_above(full))
    return kind(f"Cannot {verb} {full}: {shown_reason}.", path=full)


def _file_above(full: str) -> str:
    """The nearest file among the parents of a path. A folder was expected in its place."""
    above = os.path.dirname(full)
    while not os.path.exists(above) and above not in ("", "/"):
        above = os.path.dirname(above)
    return above
