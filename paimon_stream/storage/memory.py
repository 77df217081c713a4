"""A storage in this process's memory. It is the storage of `memory://` tables. It fulfils the whole
contract, and so is a public double for tests. Other processes, such as Spark's Python workers, see
an empty storage.
"""

import io
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import InitVar, dataclass, field
from functools import lru_cache, partial
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from paimon_stream.errors import AlreadyExists, NotFound
from paimon_stream.runtime import Clock, system
from paimon_stream.storage.base import (
    MOST_BYTES,
    FileStat,
    PutResult,
    Storage,
    check_size,
    checked_path,
)


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    modified_millis: int


@dataclass
class _Store:
    """Files by folder and name. All storages of the same name share them."""

    clock: Clock
    lock: threading.Lock = field(default_factory=threading.Lock)
    folders: dict[str, dict[str, _File]] = field(default_factory=dict)


# Through these mappings, copies of one storage, also pickled ones, see the same files. A store with
# a name stays until the process ends. A store without a name ends with its last storage.
_NAMED: dict[str, _Store] = {}
_ALIVE: weakref.WeakValueDictionary[str, _Store] = weakref.WeakValueDictionary()
_REGISTRY_LOCK = threading.Lock()
_PRIVATE: Final = "private-"


def _shared_store(name: str, clock: Clock | None) -> _Store:
    """The store of that name. If there is none yet, it is made with this clock."""
    with _REGISTRY_LOCK:
        store = _ALIVE.get(name)
        if store is None:
            store = _Store(clock or system().clock)
            _ALIVE[name] = store
        if not name.startswith(_PRIVATE):
            _NAMED[name] = store
        return store


@dataclass(frozen=True, slots=True, repr=False)
class MemoryStorage(Storage):
    """Files in memory, for many threads. Every `MemoryStorage` of the same name in this process
    sees the same files, and so do pickled copies. Without a name, only copies share the files, as
    long as copies exist.

    Args:
        name: the name that storages with the same files share; None for a new, private name.
        root: the folder of the store that this storage shows.
        clock: the clock for modification times. The clock of the first storage of a name is used.

    >>> storage = MemoryStorage()
    >>> storage.put_if_absent("snapshot/snapshot-1", b"{}")
    <PutResult.CREATED: 'created'>
    >>> storage.put_if_absent("snapshot/snapshot-1", b"other")
    <PutResult.EXISTS: 'exists'>
    >>> storage.list_folders("")
    ['snapshot']
    """

    has_folders = False
    answers_late = True  # as in the object store that it stands for
    name: str | None = None
    root: str = field(default="", kw_only=True)
    clock: InitVar[Clock | None] = field(default=None, kw_only=True)
    _store: _Store = field(init=False, compare=False)

    def __post_init__(self, clock: Clock | None) -> None:
        name = self.name or _PRIVATE + system().ids.uuid()
        object.__setattr__(self, "name", name)
        root = checked_path(self.root) if self.root else ""
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "_store", _shared_store(name, clock))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(MemoryStorage, self.name, root=self.root), ()

    def __repr__(self) -> str:
        return f"MemoryStorage({self.location!r})"

    @property
    def location(self) -> str:
        """The location `memory://<name>/<root>`."""
        return f"memory://{self.name}/{self.root}".rstrip("/")

    def clear(self) -> None:
        """Deletes every file of the store, including those outside this storage's root."""
        with self._store.lock:
            self._store.folders.clear()

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """The whole content of a file. Raises `NotFound`, and `CorruptMetadata` for a file of more
        than `limit` bytes.
        """
        data = self._file(path).data
        if len(data) > limit:  # asked first, because most calls need no text of the path
            check_size(f"{self.location}/{path}", len(data), limit)
        return data

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""
        folder, name = _place_of(self.root, path)
        with self._store.lock:
            self._keep(folder, name, data)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Creates the file, or leaves an existing one unchanged."""
        folder, name = _place_of(self.root, path)
        with self._store.lock:
            if name in self._store.folders.get(folder, {}):
                return PutResult.EXISTS
            self._keep(folder, name, data)
        return PutResult.CREATED

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """Lists files, as in `Storage.list_files`."""
        with self._store.lock:
            files = sorted(self._store.folders.get(self._folder(folder), {}).items())
        start = f"{folder}/" if folder else ""
        return [
            _file_stat(start + name, file)
            for name, file in files
            if name.startswith(prefix) and (prefix or not name.startswith("."))
        ]

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        """Lists the names of files, as in `Storage.list_names`."""
        with self._store.lock:
            names = sorted(self._store.folders.get(self._folder(folder), ()))
        return [
            name
            for name in names
            if name.startswith(prefix) and (prefix or not name.startswith("."))
        ]

    def list_folders(self, folder: str) -> list[str]:
        """Lists folders, as in `Storage.list_folders`."""
        key = self._folder(folder)
        start = f"{key}/" if key else ""
        with self._store.lock:
            inside = [path[len(start) :] for path in self._store.folders if path.startswith(start)]
        names = {path.partition("/")[0] for path in inside}
        return sorted(name for name in names if name and not name.startswith("."))

    def stat(self, path: str) -> FileStat:
        """The size and modification time of a file. Raises `NotFound`."""
        return _file_stat(path, self._file(path))

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        return self._file_if_there(path) is not None

    def delete(self, path: str) -> None:
        """Deletes the file. A missing file is no error."""
        folder, name = _place_of(self.root, path)
        with self._store.lock:
            files = self._store.folders.get(folder, {})
            if files.pop(name, None) is not None and not files:
                del self._store.folders[folder]

    def is_link(self, path: str) -> bool:
        """False, because there are no links. Raises `InvalidOption` for a path outside the root."""
        checked_path(path)
        return False

    @contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        """A stream for a new file, which appears when the context ends without an exception. Raises
        `AlreadyExists`, at the start or, if another writer was faster, at the end.
        """
        folder, name = _place_of(self.root, path)
        with self._store.lock:
            if name in self._store.folders.get(folder, {}):
                raise self._exists(path)
        stream = _MemoryStream()
        yield cast("BinaryIO", stream)
        stream.close()
        if self.put_if_absent(path, stream.content) is PutResult.EXISTS:
            raise self._exists(path)

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """An Arrow file for random access. Raises `NotFound`."""
        return cast("AbstractContextManager[Any]", pa.BufferReader(self._file(path).data))

    def _folder(self, folder: str) -> str:
        inside = checked_path(folder) if folder else ""
        return f"{self.root}/{inside}".strip("/") if self.root else inside

    def _keep(self, folder: str, name: str, data: bytes) -> None:
        self._store.folders.setdefault(folder, {})[name] = _File(
            bytes(data), self._store.clock.now_millis()
        )

    def _file_if_there(self, path: str) -> _File | None:
        folder, name = _place_of(self.root, path)
        with self._store.lock:
            return self._store.folders.get(folder, {}).get(name)

    def _file(self, path: str) -> _File:
        file = self._file_if_there(path)
        if file is None:
            raise NotFound(
                f"There is no file {self.location}/{path}. Check the table's location.", path=path
            )
        return file

    def _exists(self, path: str) -> AlreadyExists:
        return AlreadyExists(
            f"{self.location}/{path} exists already. Remove it, or use another name.", path=path
        )


class _MemoryStream(io.BytesIO):
    """A stream that keeps its content after it is closed, by any caller."""

    content: bytes = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


@lru_cache(1 << 14)
def _place_of(root: str, path: str) -> tuple[str, str]:
    """The folder of a path below the root, and the name in it. Raises `InvalidOption` for a path
    outside the root.
    """
    folder, _, name = checked_path(path).rpartition("/")
    return f"{root}/{folder}".strip("/"), name


def _file_stat(path: str, file: _File) -> FileStat:
    return FileStat(path=path, size=len(file.data), modified_millis=file.modified_millis)
