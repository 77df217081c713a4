"""Tables in a folder of this machine, or of anything mounted like a local folder.

The atomic create is a hard link: the content goes to a synced temporary file beside the target, which is then
linked to its name. Unlike a rename, a link never replaces a file (semantics.md R2.3). Temporary files are
named `.<name>.<uuid>.tmp`. Names that begin with a dot are never listed, so a file left by a killed process
does no harm.
"""

from __future__ import annotations

import contextlib
import errno
import io
import operator
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from paimon_stream.errors import (
    AlreadyExists,
    InvalidOption,
    NoSpace,
    NotAtomic,
    NotFound,
    PermissionDenied,
    StorageError,
    Unavailable,
)
from paimon_stream.runtime import IdSource, system
from paimon_stream.storage.base import FileStat, PutResult, checked_path

__all__ = ["LocalStorage"]

_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PATH: Final = operator.attrgetter("path")
_BUFFER_BYTES: Final = 1 << 20
_CREATE_ATTEMPTS: Final = 3
_SYNCED_TOGETHER: Final = 4
_QUICK_SYNC_SECONDS: Final = 0.001

_KINDS: Final[dict[int, tuple[type[StorageError], str]]] = {
    errno.ENOENT: (NotFound, "it does not exist. Check the table's location"),
    errno.EEXIST: (AlreadyExists, "it already exists. Remove it, or write under another name"),
    errno.ENOTDIR: (
        AlreadyExists,
        "{file} is a file, where a folder is needed. Remove that file, or use another location",
    ),
    errno.EACCES: (PermissionDenied, "permission denied. Allow this process to read and write the folder"),
    errno.EPERM: (PermissionDenied, "not permitted. Allow this process to read and write the folder"),
    errno.EROFS: (PermissionDenied, "the file system is read-only. Mount it writable"),
    errno.ENAMETOOLONG: (StorageError, "the path, or a name in it, is too long. Use shorter names"),
    errno.ENOSPC: (NoSpace, "the disk is full. Free space and try again"),
    errno.EDQUOT: (NoSpace, "the disk quota is used up. Free space or raise the quota, and try again"),
    errno.EFBIG: (NoSpace, "the file is larger than the process or file system allows. Raise that limit"),
}


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A folder of the local file system. It need not exist: reads find nothing, and the first write creates
    it.

    `unsafe_single_writer` applies where hard links are unsupported: files are created exclusively under their
    final names instead of raising `NotAtomic`. A reader may then see half a file, and a killed process may
    leave one, so this is safe only for one writer at a time.

    Raises `InvalidOption` for an empty root.

    >>> LocalStorage("/tmp/warehouse/db.db/orders").location
    '/tmp/warehouse/db.db/orders'
    """

    root: str
    unsafe_single_writer: bool = field(default=False, kw_only=True)
    ids: IdSource = field(default_factory=lambda: system().ids, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.root or "\0" in self.root:
            raise InvalidOption(f"{self.root!r} is not a folder. Give the path of the table.", path=self.root)
        object.__setattr__(self, "root", os.path.abspath(self.root))

    @property
    def location(self) -> str:
        """The folder's absolute path."""
        return self.root

    def read(self, path: str) -> bytes:
        """The whole content. Raises `NotFound`, also for a folder."""
        full = self._full(path)
        with _reading(full), open(full, "rb") as source:
            return source.read()

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file by renaming a synced temporary file over it."""
        full = self._full(path)
        with self._temporary(full, data) as temporary:
            with _writing(full):
                os.replace(temporary, full)
            _sync_folder_of(full)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Like `write` for each file, but new files get their names at once, because nothing refers to them
        yet. They are synced in parallel, and their folders once, at the end."""
        paths = [self._full(path) for path, _ in files]
        created: list[_CheckedFile] = []
        try:
            for full, (path, data) in zip(paths, files, strict=True):
                with _writing(full):
                    try:
                        created.append(_CheckedFile(full))
                    except FileExistsError:
                        self.write(path, data)
                        continue
                created[-1].write_whole(data)
            _close_files(created)
        except BaseException:
            for file in created:
                file.remove()
            raise
        for full in {os.path.dirname(full): full for full in paths}.values():
            _sync_folder_of(full)

    def write_hint(self, path: str, data: bytes) -> None:
        """Creates or replaces the file by renaming a temporary file over it. Nothing is synced."""
        full = self._full(path)
        with self._temporary(full, data, synced=False) as temporary, _writing(full):
            os.replace(temporary, full)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Creates the file with all of its content, or leaves an existing one unchanged.

        Raises `NotAtomic` if the file system has no hard links.
        """
        full = self._full(path)
        with self._temporary(full, data) as temporary:
            try:
                os.link(temporary, full)
            except OSError as refused:
                if not _linked_nevertheless(temporary):
                    return self._judge_link(refused, full, data)
            _sync_folder_of(full)
        return PutResult.CREATED

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """The files directly in the folder (`""` is the root) by name, without those that begin with a dot
        unless `prefix` does; [] for a missing folder."""
        found = []
        for entry in self._entries(folder, prefix):
            try:  # contexts only where needed, because folders may hold very many files
                if entry.is_file():
                    found.append(_file_stat(f"{folder}/{entry.name}" if folder else entry.name, entry.stat()))
            except FileNotFoundError:
                continue
            except OSError:
                with _reading(entry.path):
                    raise
        return sorted(found, key=_PATH)  # all are in one folder, so this sorts by name

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        """The names of the files that `list_files` finds, sorted."""
        found = []
        for entry in self._entries(folder, prefix):
            try:
                if entry.is_file():
                    found.append(entry.name)
            except OSError:
                with _reading(entry.path):
                    raise
        return sorted(found)

    def list_folders(self, folder: str) -> list[str]:
        """The names of the folders directly in the folder (`""` is the root), without those that begin with a
        dot; [] for a missing folder."""
        found = []
        for entry in self._entries(folder, ""):
            with _reading(entry.path):
                if entry.is_dir():
                    found.append(entry.name)
        return sorted(found)

    def stat(self, path: str) -> FileStat:
        """The size and modification time. Raises `NotFound`, also for a folder."""
        full = self._full(path)
        with _reading(full):
            found = os.stat(full)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder", full)
            return _file_stat(path, found)

    def exists(self, path: str) -> bool:
        """Whether there is a file; False for a folder."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def delete(self, path: str) -> None:
        """Deletes the file, or an empty folder. Does nothing if it is missing or if the folder is not
        empty."""
        full = self._full(path)
        try:
            os.unlink(full)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as failed:
            if not os.path.isdir(full):
                if _is_missing(full):
                    return  # a read-only file system reports that before it looks for the file
                raise _translated(failed, full, "delete") from None
            with contextlib.suppress(OSError):
                os.rmdir(full)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A buffered stream for a new file; see `Storage.open_output`. The name is taken at once."""
        return _Output(self._full(path))

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """An Arrow file for random access. Raises `NotFound`."""
        full = self._full(path)
        with _reading(full):
            if os.path.isdir(full):
                raise IsADirectoryError(errno.EISDIR, "is a folder", full)
            return cast("AbstractContextManager[Any]", pa.OSFile(full, "rb"))

    def _full(self, path: str) -> str:
        return f"{self.root}/{checked_path(path)}"

    def _entries(self, folder: str, prefix: str) -> Iterator[os.DirEntry[str]]:
        full = self._full(folder) if folder else self.root
        hidden = prefix.startswith(".")
        try:
            with os.scandir(full) as entries:
                for entry in entries:
                    if entry.name.startswith(prefix) and (hidden or not entry.name.startswith(".")):
                        yield entry
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as failed:
            raise _translated(failed, full, "list") from None

    @contextlib.contextmanager
    def _temporary(self, full: str, data: bytes, *, synced: bool = True) -> Iterator[str]:
        """A synced file beside the target; it is removed afterwards."""
        folder, name = os.path.split(full)
        temporary = f"{folder}/.{name}.{self.ids.uuid()}.tmp"
        try:
            with _writing(full):
                _write_new(temporary, data, synced=synced)
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def _judge_link(self, refused: OSError, full: str, data: bytes) -> PutResult:
        if isinstance(refused, FileExistsError):
            return PutResult.EXISTS
        if refused.errno not in _NO_LINKS:
            raise _translated(refused, full, "create") from None
        if self.unsafe_single_writer:
            return _put_exclusively(full, data)
        raise NotAtomic(
            f"Cannot create {full} atomically: this file system has no hard links. Use a location that has "
            "them, or, if nobody else ever writes this table, set paimon-stream.unsafe-single-writer=true.",
            path=full,
        ) from None


class _CheckedFile(io.FileIO):
    """A new file that raises this package's errors and is synced when it is closed, by whomever."""

    def __init__(self, full: str) -> None:
        self.full = full
        self.abandoned = False
        super().__init__(_open_new(full), "wb")

    def write(self, data: Any, /) -> int:
        with _writing(self.full):
            return super().write(data)

    def write_whole(self, data: bytes) -> None:
        """Writes all of the data."""
        _write_whole(self.write, data)

    def close(self) -> None:
        if self.closed:
            return
        with _writing(self.full):
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


class _Output:
    """The context of `open_output`. It is a class and not a generator, so that an object dropped half-way, as
    in a killed process, leaves the file as it is."""

    def __init__(self, full: str) -> None:
        self.full = full

    def __enter__(self) -> BinaryIO:
        with _writing(self.full):
            self.raw = _CheckedFile(self.full)
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
            _sync_folder_of(self.full)
        except BaseException:
            self.raw.remove()
            raise


def _is_missing(full: str) -> bool:
    """Whether the file certainly does not exist."""
    try:
        os.lstat(full)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _file_stat(path: str, found: os.stat_result) -> FileStat:
    return FileStat(path=path, size=found.st_size, modified_millis=found.st_mtime_ns // 1_000_000)


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


def _write_new(full: str, data: bytes, *, synced: bool = True) -> None:
    descriptor = _open_new(full)
    try:
        _write_whole(partial(os.write, descriptor), data)
        if synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_exclusively(full: str, data: bytes) -> PutResult:
    try:
        _write_new(full, data)
    except FileExistsError:
        return PutResult.EXISTS
    except OSError as failed:
        with contextlib.suppress(OSError):
            os.unlink(full)
        raise _translated(failed, full, "create") from None
    _sync_folder_of(full)
    return PutResult.CREATED


def _linked_nevertheless(temporary: str) -> bool:
    """Whether a link that reported an error was made after all. A network file system repeats a request whose
    answer was lost, and the repetition reports "exists"; the link count shows it (man 2 open, O_EXCL)."""
    try:
        return os.stat(temporary).st_nlink > 1
    except OSError:
        return False


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _close_files(files: Sequence[_CheckedFile]) -> None:
    """Closes, and so syncs, all files. If the disk is busy and the first sync is slow, the others are synced
    several at a time, so that the file system commits its journal once for all of them. The threads are
    short-lived, because a pool would not survive a fork."""
    failed: list[StorageError] = []

    def close(file: _CheckedFile) -> None:
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


def _sync_folder_of(full: str) -> None:
    """Makes a name durable. The file already exists, so a failure proves nothing: it raises `Unavailable`."""
    try:
        _sync(os.path.dirname(full))
    except OSError as failed:
        raise Unavailable(
            f"Created {full}, but its folder could not be synced ({failed.strerror}); it may be lost if the "
            "machine stops now. Check the disk.",
            path=full,
        ) from None


@contextlib.contextmanager
def _reading(full: str) -> Iterator[None]:
    try:
        yield
    except (IsADirectoryError, NotADirectoryError):
        raise NotFound(f"There is no file {full}. Check the table's location.", path=full) from None
    except OSError as failed:
        raise _translated(failed, full, "read") from None


@contextlib.contextmanager
def _writing(full: str) -> Iterator[None]:
    try:
        yield
    except OSError as failed:
        raise _translated(failed, full, "write") from None


def _translated(failed: OSError, full: str, verb: str) -> StorageError:
    kind, why = _KINDS.get(
        failed.errno or 0,
        (Unavailable, f"{failed.strerror or failed}. Check the disk or mount and try again"),
    )
    return kind(f"Cannot {verb} {full}: {why.replace('{file}', _file_above(full))}.", path=full)


def _file_above(full: str) -> str:
    """The nearest file among the parent folders of a path."""
    above = os.path.dirname(full)
    while not os.path.exists(above) and above not in ("", "/"):
        above = os.path.dirname(above)
    return above
