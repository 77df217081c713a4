"""Stores tables in a folder of this machine, or in a mounted folder.

A file is created atomically by a hard link. The content is written to a synced temporary file
beside the target. After that, the target's name is linked to this file. Unlike a rename, a hard
link never replaces a file (semantics.md R2.3). Temporary files are named `.<name>.<uuid>.tmp`.
Listings leave out names that begin with a dot unless they are asked for, so a file that a killed
process has left does no harm.

Invariant: nothing is deleted behind a symbolic link. A deletion opens one folder after the other,
and refuses a symbolic link on the way.
"""

import contextlib
import errno
import operator
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from paimon_stream.errors import InvalidOption, NotAtomic, NotFound, StorageError
from paimon_stream.runtime import IdSource, system
from paimon_stream.storage import os_files
from paimon_stream.storage.base import (
    MOST_BYTES,
    FileStat,
    PutResult,
    Storage,
    check_size,
    checked_path,
    parents,
)

_OPEN_TOGETHER: Final = 256
"""How many new files of `write_all` are open at once. A process may have 1,024 or more."""

_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_PATH: Final = operator.attrgetter("path")


@dataclass(frozen=True, slots=True)
class LocalStorage(Storage):
    """A folder of the local file system. The folder need not exist: reads find nothing, and the
    first write creates it. Raises `InvalidOption` for an empty root.

    If the file system has no hard links, `put_if_absent` raises `NotAtomic`. With
    `unsafe_single_writer`, it creates files directly under their final names. In that case readers
    may find half a file, and a kill may leave one. So the option is safe only for one writer at a
    time.

    >>> LocalStorage("/tmp/warehouse/db.db/orders").location
    '/tmp/warehouse/db.db/orders'
    """

    has_folders = True
    root: str
    unsafe_single_writer: bool = field(default=False, kw_only=True)
    ids: IdSource = field(
        default_factory=lambda: system().ids, kw_only=True, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.root or "\0" in self.root:
            raise InvalidOption(
                f"{self.root!r} is not a folder. Give the path of the table.", path=self.root
            )
        object.__setattr__(self, "root", os.path.abspath(self.root))

    @property
    def location(self) -> str:
        """The folder's absolute path."""
        return self.root

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """The whole content of the file, as in `Storage.read`. Raises `NotFound` also for a folder,
        a pipe or a device.
        """
        full = self._full(path)
        with os_files.reading(full), open(full, "rb", opener=_without_waiting) as source:
            size = _regular(full, os.fstat(source.fileno())).st_size
            check_size(full, size, limit)
            data = source.read(size + 1)
            if len(data) > size:  # the file has grown since
                data += source.read(limit - size)
                check_size(full, len(data), limit)
            return data

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file by renaming a synced temporary file over it."""
        full = self._full(path)
        with self._temporary(full, data) as temporary:
            with os_files.writing(full):
                os.replace(temporary, full)
            os_files.sync_folder_of(full)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes each file, as `write` does, but new files get their names at once, because nothing
        refers to them yet. Several files are open at the same time. They are synced, several at
        once if that takes long. After that, each of their folders and the folders above it are
        synced once, from the root downwards. A writer that was killed, or is at work, may have
        created such a folder without syncing its name.
        """
        waiting = [(self._full(path), path, data) for path, data in files]
        created: list[os_files.CheckedFile] = []
        try:
            while waiting:
                written = self._write_together(waiting[:_OPEN_TOGETHER], created)
                waiting = waiting[written:]
        except BaseException:
            for file in created:
                file.remove()
            raise

    def _write_together(
        self,
        files: Sequence[tuple[str, str, bytes]],
        created: list[os_files.CheckedFile],
    ) -> int:
        """Writes the first of the files, at least one, as `write_all` does. Returns their number.
        Some files are left if the process may not open more files at once.

        Args:
            files: the absolute path, the path and the content of each file.
            created: gets each new file, even if an error follows.
        """
        first = len(created)
        folders: dict[str, str] = {}  # each folder to sync, and the path of a file below it
        written = 0
        try:
            for full, path, data in files:
                note = partial(_note_folder, folders, full)
                with os_files.writing(full):
                    try:
                        created.append(os_files.CheckedFile(full, note))
                    except OSError as failed:
                        if failed.errno == errno.EMFILE and len(created) > first:
                            break  # the open files are closed, and then there is room again
                        if failed.errno != errno.EEXIST:
                            raise
                        self.write(path, data)
                        written += 1
                        continue
                for folder in ("", *parents(path)):
                    note(self._full(folder) if folder else self.root)
                os_files.write_whole(created[-1].write, data)
                written += 1
            os_files.close_files(created[first:])
        except BaseException:
            # New folders stay, and other methods do not sync the names of existing folders.
            for folder, full in folders.items():
                with contextlib.suppress(StorageError):
                    os_files.sync_folders({folder: full})
            raise
        os_files.sync_folders(folders)
        return written

    def write_hint(self, path: str, data: bytes) -> None:
        """Creates or replaces the file by renaming a temporary file over it. Nothing is synced."""
        full = self._full(path)
        with self._temporary(full, data, synced=False) as temporary, os_files.writing(full):
            os.replace(temporary, full)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Creates a file atomically, as in `Storage.put_if_absent`. Raises `NotAtomic` if the file
        system has no hard links.
        """
        full = self._full(path)
        with self._temporary(full, data) as temporary:
            try:
                os.link(temporary, full)
            except OSError as refused:
                if not _linked_nevertheless(temporary):
                    return self._judge_link(refused, full, data)
            os_files.sync_folder_of(full)
        return PutResult.CREATED

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """Lists files, as in `Storage.list_files`."""
        files = []
        for entry in self._entries(folder, prefix):
            # `os_files.reading` is entered only after an error, because a folder may have very many
            # files.
            try:
                if entry.is_file():
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    files.append(_file_stat(path, entry.stat()))
            except OSError as failed:
                if failed.errno in NO_SUCH_FILE:
                    continue
                with os_files.reading(entry.path):
                    raise
        return sorted(files, key=_PATH)  # all files are in one folder, so this sorts by name

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        """The names of the files that `list_files` finds, sorted."""
        return sorted(
            entry.name
            for entry in self._entries(folder, prefix)
            if _is_of_kind(entry, entry.is_file)
        )

    def list_folders(self, folder: str) -> list[str]:
        """Lists folders, as in `Storage.list_folders`."""
        return sorted(
            entry.name for entry in self._entries(folder, "") if _is_of_kind(entry, entry.is_dir)
        )

    def stat(self, path: str) -> FileStat:
        """The size and modification time of a file. Raises `NotFound`, also for a folder, a pipe or
        a device.
        """
        full = self._full(path)
        with os_files.reading(full):
            return _file_stat(path, _regular(full, os.stat(full)))

    def delete(self, path: str) -> None:
        """Deletes a file or an empty folder, as in `Storage.delete`."""
        full = self._full(path)
        try:
            delete_below(self.root, path)
        except OSError as failed:
            # A read-only file system reports first that it is read-only, even if the file is
            # missing.
            is_gone = failed.errno in NO_SUCH_FILE or _is_missing(full)
            if not is_gone:
                raise os_files.translated(failed, full, "delete") from None

    def rename(self, source: str, target: str) -> None:
        """Renames a folder in one step. Raises `StorageError` if the folder is missing, or if the
        target exists and has files.
        """
        full = self._full(target)
        with os_files.writing(full):
            os.rename(self._full(source), full)
        os_files.sync_folder_of(full)

    def free_bytes(self) -> int | None:
        """The bytes that this process may still write on the disk; None if that is not known."""
        try:
            disk = os.statvfs(self.root)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize

    def is_link(self, path: str) -> bool:
        """Whether the path, or a folder above it that is below the root, is a symbolic link."""
        self._full(path)  # raises for a path outside the root
        return any(os.path.islink(f"{self.root}/{above}") for above in (path, *parents(path)))

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A buffered stream for a new file, as in `Storage.open_output`. The file is created at
        once.
        """
        return os_files.Output(self._full(path))

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """An Arrow file for random access. Raises `NotFound`."""
        full = self._full(path)
        with os_files.reading(full):
            _regular(full, os.stat(full))  # opening a pipe would wait for its writer
            return cast("AbstractContextManager[Any]", pa.OSFile(full, "rb"))

    def _full(self, path: str) -> str:
        return f"{self.root}/{checked_path(path)}"

    def _entries(self, folder: str, prefix: str) -> Iterator[os.DirEntry[str]]:
        full = self._full(folder) if folder else self.root
        hides_dots = prefix == ""
        try:
            with os.scandir(full) as entries:
                for entry in entries:
                    is_hidden = hides_dots and entry.name.startswith(".")
                    if entry.name.startswith(prefix) and not is_hidden:
                        yield entry
        except OSError as failed:
            if failed.errno not in NO_SUCH_FILE:
                raise os_files.translated(failed, full, "list") from None

    @contextlib.contextmanager
    def _temporary(self, full: str, data: bytes, *, synced: bool = True) -> Iterator[str]:
        """A context with a temporary file that contains the data. The file is in the folder of the
        target `full`. It is synced unless `synced` is False, and is removed at the end.
        """
        folder, name = os.path.split(full)
        temporary = f"{folder}/.{name}.{self.ids.uuid()}.tmp"
        try:
            with os_files.writing(full):
                os_files.write_new(temporary, data, synced=synced)
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def _judge_link(self, refused: OSError, full: str, data: bytes) -> PutResult:
        """The result of a put after its hard link was refused."""
        if isinstance(refused, FileExistsError):
            return PutResult.EXISTS
        if refused.errno not in _NO_LINKS:
            raise os_files.translated(refused, full, "create") from None
        if self.unsafe_single_writer:
            return _put_exclusively(full, data)
        raise NotAtomic(
            f"Cannot create {full} atomically: this file system has no hard links. "
            "Use a location that has them, or, if nobody else ever writes this table, "
            "set paimon-stream.unsafe-single-writer=true.",
            path=full,
        ) from None


def _note_folder(folders: dict[str, str], full: str, folder: str) -> None:
    """Notes a folder that is to be synced for the file `full`."""
    folders.setdefault(folder, full)


def _without_waiting(full: str, flags: int) -> int:
    """Opens a file, as `open` needs it. A pipe without a writer does not make the caller wait."""
    return os.open(full, flags | os.O_NONBLOCK)


def _regular(full: str, status: os.stat_result) -> os.stat_result:
    """Returns the status if it is the status of a regular file. Raises `IsADirectoryError` for a
    folder, and `NotFound` for a pipe, a socket or a device.
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder", full)
    if not stat.S_ISREG(status.st_mode):
        raise NotFound(
            f"{full} is not a file, but a pipe, a socket or a device, which is not read. Remove it.",
            path=full,
        )
    return status


def _is_of_kind(entry: os.DirEntry[str], is_kind: Callable[[], bool]) -> bool:
    """The answer of `is_kind`, a method of the entry such as `is_file`; False for a link that leads
    nowhere.
    """
    try:
        return is_kind()
    except OSError as failed:
        if failed.errno in NO_SUCH_FILE:
            return False
        raise os_files.translated(failed, entry.path, "read") from None


def _is_missing(full: str) -> bool:
    """Whether the file certainly does not exist."""
    try:
        os.lstat(full)
    except OSError as failed:
        return failed.errno in NO_SUCH_FILE
    return False


def _file_stat(path: str, status: os.stat_result) -> FileStat:
    return FileStat(path=path, size=status.st_size, modified_millis=status.st_mtime_ns // 1_000_000)


def _put_exclusively(full: str, data: bytes) -> PutResult:
    try:
        os_files.write_new(full, data)
    except FileExistsError:
        return PutResult.EXISTS
    except OSError as failed:
        with contextlib.suppress(OSError):
            os.unlink(full)
        raise os_files.translated(failed, full, "create") from None
    os_files.sync_folder_of(full)
    return PutResult.CREATED


def _linked_nevertheless(temporary: str) -> bool:
    """Whether a hard link was made although the system reported an error. A network file system
    repeats a request whose answer was lost, and the repetition reports "exists". The number of
    links of the file shows that the link was made (man 2 open, O_EXCL).
    """
    try:
        return os.stat(temporary).st_nlink > 1
    except OSError:
        return False


# -- deleting without following symbolic links -----------------------------------------------------
#
# A deletion follows its path from one open folder to the next, and refuses a link on the way. So
# nothing outside the root is deleted, even if a folder is replaced by a link meanwhile. The root
# itself may be a link or lie behind one.

NO_SUCH_FILE: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))
"""The errors of the system for a path at which there can be no file."""

_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def delete_below(root: str, path: str) -> None:
    """Deletes the file at the path below the root, or an empty folder. For a symbolic link to a
    file, the link is deleted, and never the file behind it. A folder that is not empty, and a link
    to a folder, stay. Raises `OSError`, and `StorageError` for a path through a symbolic link.
    """
    *folders, name = path.split("/")
    parent = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = _inner(parent, folder, f"{root}/{path}")
            os.close(parent)
            parent = inner
        _delete(parent, name)
    finally:
        os.close(parent)


def _inner(parent: int, folder: str, full: str) -> int:
    """Opens a folder inside the open folder `parent`. Raises `StorageError` for a symbolic link."""
    try:
        return os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as failed:
        if failed.errno in NO_SUCH_FILE and stat.S_ISLNK(_mode(parent, folder)):
            raise StorageError(
                f"Cannot delete {full}: its folder {folder} is a symbolic link, "
                "and nothing is deleted through links. "
                "Delete the file by hand, or move the folder to where the link is.",
                path=full,
            ) from None
        raise


def _delete(parent: int, name: str) -> None:
    """Deletes a file, or an empty folder, in the open folder `parent`."""
    mode = _mode(parent, name)
    if stat.S_ISDIR(mode):
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=parent)
        return
    is_link_to_folder = stat.S_ISLNK(mode) and stat.S_ISDIR(_mode(parent, name, follow=True))
    if not is_link_to_folder:
        os.unlink(name, dir_fd=parent)


def _mode(parent: int, name: str, *, follow: bool = False) -> int:
    """The type and rights of a file in the open folder `parent`; 0 if they are not known."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=follow).st_mode
    except OSError:
        return 0
