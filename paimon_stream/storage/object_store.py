"""Tables in object stores: S3 and what speaks its language, Google Cloud Storage, and Azure's blobs.

Such a store has keys and no folders. A folder is what the keys below it have in common: creating or deleting
one is nothing, and an empty one is not listed. An object whose key ends with a slash is the mark of a folder,
as other engines write it, and is not a file. Every write is atomic, and durable when it is answered. The
atomic create is a PUT on the condition that there is no object (`If-None-Match: *`, Google's generation 0).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, cast

from paimon_stream.errors import NotFound
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import MOST_BYTES, FileStat, PutResult, check_size, is_there
from paimon_stream.storage.store_files import Upload, open_source
from paimon_stream.storage.store_requests import Requests
from paimon_stream.storage.store_settings import StoreSettings

__all__ = ["ObjectStorage"]

_TOGETHER: Final = 16
_NAME: Final = operator.itemgetter(0)


@dataclass(frozen=True, slots=True, repr=False)
class ObjectStorage:
    """A folder in a bucket. The store is opened when it is first used, in each process.

    A pickle holds the settings with their secrets, because executors need them. `repr` shows the location
    only.
    """

    settings: StoreSettings
    runtime: Runtime = field(default_factory=system, kw_only=True, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self.settings,)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.location!r})"

    @property
    def location(self) -> str:
        """The folder, with its scheme as it was given."""
        return self.settings.location

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """The whole content. Raises `NotFound`, and `CorruptMetadata` before the body is read."""
        full = f"{self.location}/{path}"

        def body(found: Any) -> bytes:
            check_size(full, int(found.meta["size"]), limit)
            return bytes(found.bytes())

        return self._requests.get(path, body)

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""
        self._requests.replace(path, data)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes the files in parallel. The last content of a path counts. If some fail, the first error is
        raised when all have ended."""
        last = dict(files)
        for path in last:
            self._requests.key(path)
        if len(last) < 2:
            for path, data in last.items():
                self.write(path, data)
            return
        with ThreadPoolExecutor(min(_TOGETHER, len(last))) as pool:
            running = [pool.submit(self.write, path, data) for path, data in last.items()]
        for one in running:
            one.result()

    def write_hint(self, path: str, data: bytes) -> None:
        """Like `write`."""
        self.write(path, data)

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Creates the file, or leaves an existing one unchanged. Nothing is repeated whose effect is
        unknown."""
        return self._requests.create(path, data)

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """The files directly in the folder (`""` is the root) by name, without those that begin with a dot
        unless `prefix` does; [] for a folder without files."""
        start, found = self._requests.listed(folder)
        kept = _visible(found["objects"], start, prefix)
        return [_file_stat(f"{folder}/{name}" if folder else name, one) for name, one in kept]

    def list_names(self, folder: str, prefix: str = "") -> list[str]:
        """The names of the files that `list_files` finds, sorted."""
        start, found = self._requests.listed(folder)
        return [name for name, _ in _visible(found["objects"], start, prefix)]

    def list_folders(self, folder: str) -> list[str]:
        """The names of the folders directly in the folder (`""` is the root) with anything in them, without
        those that begin with a dot."""
        start, found = self._requests.listed(folder)
        names = {key[len(start) :].rstrip("/") for key in found["common_prefixes"]}
        return sorted(name for name in names if name and not name.startswith("."))

    def stat(self, path: str) -> FileStat:
        """The size and modification time. Raises `NotFound`."""
        return _file_stat(path, self._requests.head(path))

    def exists(self, path: str) -> bool:
        """Whether there is a file."""
        return is_there(self, path)

    def delete(self, path: str) -> None:
        """Deletes the file. It is no error if it is missing."""
        key = self._requests.key(path)
        try:
            self._requests.ask("delete", path, lambda obstore, store: obstore.delete(store, key))
        except NotFound:
            return

    def is_link(self, path: str) -> bool:
        """False, because there are no links."""
        self._requests.key(path)
        return False

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream for a new file, which appears when the context ends without an exception.

        Raises `AlreadyExists` at the end, or before the first part of a file of more than 8 MiB is sent.
        """
        return Upload(self._requests, path)

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """An Arrow file for random access. Raises `NotFound`."""
        return cast("AbstractContextManager[Any]", open_source(self._requests, path))

    @property
    def _requests(self) -> Requests:
        return Requests(self.settings, self.runtime)


def _visible(objects: Iterable[Any], start: str, prefix: str) -> list[tuple[str, Any]]:
    """Names and facts of the files among objects, by name."""
    hidden = prefix.startswith(".")
    named = ((one["path"][len(start) :], one) for one in objects if one["path"].startswith(start))
    return sorted(
        (
            (name, one)
            for name, one in named
            if name.startswith(prefix) and (hidden or not name.startswith("."))
        ),
        key=_NAME,
    )


def _file_stat(path: str, found: Any) -> FileStat:
    # In whole seconds: some stores list finer times than they answer for a single object.
    millis = int(found["last_modified"].timestamp()) * 1000
    return FileStat(path=path, size=int(found["size"]), modified_millis=millis)
