"""Tables in object stores: S3 and what speaks its language, Google Cloud Storage, and Azure's blobs.

stores.md §2 says what a folder is there, and §3 has the requests of each verb. Every write is atomic, and
durable when it is answered. The atomic create is a PUT on the condition that there is no object
(`If-None-Match: *`, Google's generation 0).
"""

import operator
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, cast

from paimon_stream.errors import InvalidOption, NotFound, PaimonStreamError, StorageError, Unavailable
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import MOST_BYTES, FileStat, OneByOne, PutResult, check_size, delete_each
from paimon_stream.storage.store_client import is_right, trust
from paimon_stream.storage.store_files import Upload, open_source
from paimon_stream.storage.store_open import StoreSettings
from paimon_stream.storage.store_requests import PAGE, Requests
from paimon_stream.storage.together import Request, Tally, at_once

_NAME: Final = operator.itemgetter(0)


@dataclass(frozen=True, slots=True, repr=False)
class ObjectStorage(OneByOne):
    """A folder in a bucket. The store is opened when it is first used, in each process.

    A pickle holds the settings with their secrets, because executors need them. `repr` shows the location
    only. `tally` counts what this object sends.
    """

    has_folders = False
    settings: StoreSettings
    runtime: Runtime = field(default_factory=system, kw_only=True, compare=False)
    tally: Tally = field(default_factory=Tally, kw_only=True, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.settings, is_right(self.settings))

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
        at_once([partial(self.write, path, data) for path, data in last.items()])

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Creates the file, or leaves an existing one unchanged. Nothing is repeated whose effect is unknown."""
        return self._requests.create(path, data)

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """See `Storage.list_files`."""
        start, found = self._requests.listed(folder)
        named = ((one["path"][len(start) :], one) for one in found["objects"] if one["path"].startswith(start))
        kept = [one for one in named if one[0].startswith(prefix) and (prefix or not one[0].startswith("."))]
        return [_file_stat(f"{folder}/{name}" if folder else name, one) for name, one in sorted(kept, key=_NAME)]

    def list_folders(self, folder: str) -> list[str]:
        """See `Storage.list_folders`."""
        start, found = self._requests.listed(folder)
        names = {key[len(start) :].rstrip("/") for key in found["common_prefixes"]}
        return sorted(name for name in names if name and not name.startswith("."))

    def list_below(self, folder: str) -> Iterator[list[FileStat]]:
        """All files below the folder, 1,000 at a time: one request for each page of the store, whatever
        folders there are."""
        for start, page in self._requests.below(folder):
            above = f"{folder}/" if folder else ""
            named = ((one["path"][len(start) :], one) for one in page if one["path"].startswith(start))
            yield [
                _file_stat(above + name, one)
                for name, one in named
                if name and "/." not in f"/{name.rpartition('/')[0]}"
            ]

    def stat(self, path: str) -> FileStat:
        """The size and modification time. Raises `NotFound`."""
        return _file_stat(path, self._requests.head(path))

    def delete(self, path: str) -> None:
        """Deletes the file. It is no error if it is missing."""
        with suppress(NotFound):
            self._requests.call("delete", path, "delete")

    def delete_all(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        """Deletes files: on S3 up to 1,000 with one request, elsewhere some at once (stores.md §7). If a request for
        many is refused, each of its files is deleted by itself, so that the error of each is known."""
        if self.settings.kind != "s3":
            return self._deleted_alone(paths)
        every = dict.fromkeys(paths)
        failed = delete_each(self._requests.key, every)  # deletes nothing: finds the paths that are no keys
        good = [path for path in every if path not in failed]
        groups = [good[start : start + PAGE] for start in range(0, len(good), PAGE)]
        for found in self.together([partial(self._deleted_together, group) for group in groups]):
            failed.update(found)
        return failed

    def is_link(self, path: str) -> bool:
        """False, because there are no links."""
        self._requests.key(path)
        return False

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream for a new file, which appears when the context ends without an exception. Raises `AlreadyExists` at
        the end, or before the first part of a file of more than 8 MiB is sent."""
        return cast("AbstractContextManager[BinaryIO]", Upload(self._requests, path))

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """An Arrow file for random access. Raises `NotFound`."""
        return cast("AbstractContextManager[Any]", open_source(self._requests, path))

    def together(self, requests: Sequence[Request]) -> list[Any]:
        """The results of the requests, which are in flight at once."""
        return at_once(requests)

    def _deleted_together(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        keys = [self._requests.key(path) for path in paths]
        try:
            self._requests.ask("delete", paths[0], lambda obstore, store: obstore.delete(store, keys))
        except (StorageError, InvalidOption) as why:
            if isinstance(why, Unavailable) or why.context.get("status") in (401, 403):
                return dict.fromkeys(paths, why)  # it is the same for all
            return self._deleted_alone(paths)
        return {}

    def _deleted_alone(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
        found = self.together([partial(delete_each, self.delete, (path,)) for path in paths])
        return {path: why for one in found for path, why in one.items()}

    @property
    def _requests(self) -> Requests:
        return Requests(self.settings, self.runtime, self.tally)


def _unpickled(settings: StoreSettings, right: bool) -> ObjectStorage:
    """A storage of another process, for which the store was `right` or is not known to be."""
    if right:
        trust(settings)
    return ObjectStorage(settings)


def _file_stat(path: str, found: Any) -> FileStat:
    # In whole seconds: some stores list finer times than they answer for a single object.
    millis = int(found["last_modified"].timestamp()) * 1000
    return FileStat(path=path, size=int(found["size"]), modified_millis=millis)
