"""The storage protocol: the few operations on which the commit protocol is built.

A `Storage` is bound to one folder, its *root* (a table, or a Spark checkpoint). Paths are relative
to the root, with `/` between names. A path that would leave the root is refused. Every
implementation passes `tests/contract`.

Invariants:

- The only atomic operation is `put_if_absent`: it creates a file that is absent, with all of its
  content, or changes nothing. Everything depends on this operation, because it lets exactly one
  writer have a snapshot id. A storage without it is refused (`NotAtomic`). All other operations may
  be repeated.
- Files of `write` and `write_all` are durable when the call returns, so they are durable before a
  snapshot that refers to them. Only hints need not be durable (`write_hint`), because nobody
  believes a hint without a proof.
- All errors are `StorageError`s, with three exceptions. `read` raises `CorruptMetadata` for a file
  that is too large for its kind. A path that is refused raises `InvalidOption`. An object store
  raises a `ConfigError` if its settings are wrong (no such bucket), or if this process may not use
  the store. `Unavailable` means that the operation may have taken effect. All other errors prove
  that the operation has not taken effect.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, BinaryIO, Final, Protocol, cast, runtime_checkable

from paimon_stream.errors import (
    CorruptMetadata,
    InvalidOption,
    NotFound,
    PaimonStreamError,
    StorageError,
)
from paimon_stream.storage.together import Request, in_turn

MOST_BYTES: Final = 1 << 30
"""The most bytes that `Storage.read` reads. The largest files that are read whole are manifests (8
MB by default, format.md §4) and the journal of a batch (about 1 KB for each of its files).
"""


class PutResult(Enum):
    """The result of `put_if_absent`."""

    CREATED = "created"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """A file, as a storage lists it.

    Attributes:
        path: the path, relative to the root.
        size: the size in bytes.
        modified_millis: when the file was modified, in epoch milliseconds.
    """

    path: str
    size: int
    modified_millis: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@runtime_checkable
class Storage(Protocol):
    """One folder of a storage. Implementations are immutable, and can be pickled to be sent to
    executors. Some methods of this class have a body that calls other methods. An implementation
    that has a faster way overrides these methods.
    """

    __slots__ = ()

    @property
    def location(self) -> str:
        """The root, in the form in which users write it, without credentials. It is for
        messages.
        """

    @property
    def has_folders(self) -> bool:
        """Whether folders exist by themselves, so that they can be empty, or links. A storage
        without such folders lists many folders as cheaply as one.
        """

    @property
    def answers_late(self) -> bool:
        """Whether answers come over a network. Then requests that do not depend on each other are
        sent together (`together`), also those for what is read only later.
        """
        return False

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """The whole content of the file. Raises `NotFound`. Raises `CorruptMetadata` for a file of
        more than `limit` bytes, without reading it: no file of its kind is so large.
        """

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file. Readers see the old or the new content, and never a part of
        it. The file is durable when the call returns. Creates missing folders.
        """

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes each path with its content, as `write` does, in any order. All files are whole and
        durable when the call returns. Before that, and if the call raises an error, some files may
        exist, and new files may be incomplete. So the method is for files to which nothing refers
        yet.
        """
        for path, data in files:
            self.write(path, data)

    def write_hint(self, path: str, data: bytes) -> None:
        """Writes a hint, as `write` does, but need not make it durable. If the machine stops before
        another file of the same folder is written durably, the hint may have its old content, be
        empty, or be missing.
        """
        self.write(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Creates the file with all of its content in one atomic step, or changes nothing. The file
        is durable when the call returns CREATED. Creates missing folders.
        """

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """The files directly in the folder (`""` is the root) whose names start with `prefix`,
        sorted by name; [] for a missing folder. Files that vanish in the meantime are left out.
        Names that begin with a dot are left out, too, unless `prefix` begins with a dot: such names
        are those of temporary files.
        """

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        """The sorted names of the files that `list_files` finds. A storage may save the requests
        for sizes and times.
        """
        return [file.name for file in self.list_files(folder, prefix)]

    def list_folders(self, folder: str) -> list[str]:
        """The sorted names of the folders directly in the folder (`""` is the root); [] for a
        missing folder. Names that begin with a dot are left out. A storage without real folders
        returns folders with at least one file.
        """

    def list_pages(self, folder: str) -> Iterator[list[FileStat]]:
        """The files directly in the folder, in any order, a page at a time; nothing for a missing
        folder. These include files whose names begin with a dot.
        """
        yield [*self.list_files(folder), *self.list_files(folder, ".")]

    def list_below(self, folder: str) -> Iterator[list[FileStat]]:
        """All files below the folder at any depth, in any order, a page at a time. These include
        files whose names begin with a dot. They do not include files in folders whose names begin
        with a dot, or behind a symbolic link.
        """
        yield from self.list_pages(folder)
        for name in self.list_folders(folder):
            inner = f"{folder}/{name}" if folder else name
            if not self.is_link(inner):
                yield from self.list_below(inner)

    def stat(self, path: str) -> FileStat:
        """Path, size and modification time of the file. Raises `NotFound`."""

    def exists(self, path: str) -> bool:
        """Whether there is a file; False for a folder. Raises the errors of `stat` other than
        `NotFound`.
        """
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def delete(self, path: str) -> None:
        """Deletes the file, or an empty folder. A missing file is no error. Never deletes a folder
        that is not empty. If the path is a symbolic link to a file, the link is deleted, and the
        file behind it stays. A link to a folder stays. A path through a link below the root is
        refused (`StorageError`), because the files behind the link may belong to others.
        """

    def delete_all(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        """Deletes each path, as `delete` does, in any order. Returns the `StorageError` or
        `InvalidOption` of each path that could not be deleted. All other paths are gone (stores.md
        §7).
        """
        return delete_each(self.delete, paths)

    def is_link(self, path: str) -> bool:
        """Whether the path, or a folder above it that is below the root, is a symbolic link; False
        for every path in a storage without links. All reading and listing follows links.
        """

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream for a new file of any size, under a name that is used once. `AlreadyExists` is
        raised for an existing file, when the context begins or ends. If the context ends without an
        exception, the file is complete and durable. If it ends with an exception, the file is
        removed as far as possible. Creates missing folders.
        """

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """A source with random access, from which pyarrow reads. Raises `NotFound`."""

    def together(self, requests: Sequence[Request]) -> list[Any]:
        """The results of functions that use this storage and do not depend on each other, in the
        order of the functions. If `answers_late`, all functions run at the same time in several
        threads, and the first error is raised when all have ended. In other storages the functions
        run one after the other, up to the first failure.
        """
        return in_turn(requests)


def delete_each(
    delete: Callable[[str], object], paths: Iterable[str]
) -> dict[str, PaimonStreamError]:
    """Implements `delete_all` for storages that delete each file by itself. The files are deleted
    in the order of the paths.
    """
    failed: dict[str, PaimonStreamError] = {}
    for path in paths:
        try:
            delete(path)
        except (StorageError, InvalidOption) as error:
            failed[path] = error
    return failed


def delete_below(storage: Storage, folder: str, last: Sequence[str] = ()) -> None:
    """Deletes a folder with its content, but nothing behind links. `last` names inner folders that
    are deleted last. Raises the `StorageError` or `InvalidOption` of the first file that cannot be
    deleted.
    """
    # In a storage without real folders, there are no empty folders to delete. Inner folders matter
    # only for the order.
    names = storage.list_folders(folder) if last or storage.has_folders else []
    others = (
        name for name in names if name not in last and not storage.is_link(f"{folder}/{name}")
    )
    for name in (*others, *last):
        delete_below(storage, f"{folder}/{name}")
    for page in storage.list_below(folder):
        failed = storage.delete_all([file.path for file in page])
        if failed:
            raise next(iter(failed.values()))
    if storage.has_folders:
        storage.delete(folder)


_OUTSIDE: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|\0")
"""A part of a path that is empty, `.` or `..`, or a NUL character."""


def checked_path(path: str) -> str:
    """The path, if it stays inside the root. Raises `InvalidOption` for empty, absolute and
    backward paths (`a/../b`), for NUL, and for text that no file system can hold (a lone surrogate
    that stands for no byte).
    """
    is_text = path.isascii() or _is_text(path)
    if _OUTSIDE.search(path) or not is_text:
        raise InvalidOption(
            f"The path {path!r} would leave the table's folder, or is none.", path=path
        )
    return path


def _is_text(path: str) -> bool:
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def read_if_there(read: Callable[..., bytes], *arguments: Any) -> bytes | None:
    """The result of the function `read` of a storage for these arguments; None if there is no such
    file.
    """
    try:
        return read(*arguments)
    except NotFound:
        return None


def check_size(path: str, size: int, limit: int) -> None:
    """Raises `CorruptMetadata` for a file of more than `limit` bytes."""
    if size > limit:
        raise CorruptMetadata(
            f"{path} has {size:,} bytes, so it is not what it should be: "
            f"files of its kind have at most {limit:,}. It was not read. "
            "Restore it from a backup.",
            path=path,
        )


def parents(path: str) -> Iterator[str]:
    """The folders above a path, nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


_HELD_BYTES: Final = 16 << 20


class FileSink(Protocol):
    """The interface of an object to which whole files are written: a storage, or a bundle."""

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""


class Bundle:
    """Holds up to 16 MiB of files back, so that they are written with fewer syncs. Nothing may
    refer to any of the files before all of them exist. The files certainly exist only after `flush`
    has returned. If the bundle is dropped before, some of the files may exist, or none.
    """

    __slots__ = ("_files", "_held", "_in_doubt", "_storage")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: dict[str, bytes] = {}
        self._held = 0  # the bytes of these files
        self._in_doubt = False  # whether a flush that failed may have left files

    def write(self, path: str, data: bytes) -> None:
        """Adds the file. Raises `StorageError` if files have to be written to make room, and
        writing them fails.
        """
        replaced = self._files.pop(path, b"")
        self._held += len(data) - len(replaced)
        self._files[path] = data
        if self._held > _HELD_BYTES:
            self.flush()

    def drop(self, path: str) -> bool:
        """Drops a file if it is still held. Returns whether it is certain that nothing of the file
        was sent: it was held, and no flush has failed since the last successful one.
        """
        data = self._files.pop(path, None)
        self._held -= len(data or b"")
        return data is not None and not self._in_doubt

    def flush(self) -> None:
        """Writes the held files. After that, all added files are durable. After a `StorageError`,
        the files are still held.
        """
        if self._files:
            self._in_doubt = True
            self._storage.write_all([*self._files.items()])
        self._files = {}
        self._held = 0
        self._in_doubt = False


class BufferedOutputs:
    """A storage whose new files are held in memory until `flush`, up to 16 MiB of them. Closing the
    stream of such a file sends nothing. A file of more than 16 MiB is not held: it is written to
    the storage while its stream is open. All other requests go to the storage itself.

    Attributes:
        storage: the storage itself.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._bundle = Bundle(storage)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.storage, name)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream for a new file under a name that is used once. At its end, the stream raises
        `StorageError` if files have to be written to make room, and writing them fails.
        """
        return _HeldOutput(self, path)

    def hold(self, path: str, data: bytes) -> None:
        """Holds a file that is complete. Raises `StorageError` if files have to be written to make
        room, and writing them fails. In that case this file is removed as far as possible, as by
        `Storage.open_output`.
        """
        try:
            self._bundle.write(path, data)
        except BaseException:
            with suppress(StorageError):
                self.delete(path)
            raise

    def delete(self, path: str) -> None:
        """Deletes the file, or drops it if it was not sent. Raises `StorageError`."""
        if not self._bundle.drop(path):
            self.storage.delete(path)

    def flush(self) -> None:
        """Writes the held files. After that, all files are durable. Raises `StorageError`."""
        self._bundle.flush()


class _HeldOutput:
    """The context of a file of `BufferedOutputs`, and its stream."""

    def __init__(self, outputs: BufferedOutputs, path: str) -> None:
        self._outputs = outputs
        self._path = path
        self._held = bytearray()
        self._context = ExitStack()
        self._stream: BinaryIO | None = None
        """The storage's stream, for a file that is too large to be held."""

    def __enter__(self) -> BinaryIO:
        return cast("BinaryIO", self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stream is not None:
            self._context.__exit__(kind, error, trace)
        elif error is None:
            self._outputs.hold(self._path, bytes(self._held))

    def write(self, data: Any) -> int:
        """Holds the data, or passes it to the storage. Returns the number of bytes."""
        if self._stream is None and len(self._held) + len(data) > _HELD_BYTES:
            self._stream = self._context.enter_context(
                self._outputs.storage.open_output(self._path)
            )
            self._stream.write(self._held)
            self._held = bytearray()
        if self._stream is not None:
            return self._stream.write(data)
        self._held += data
        return len(data)
