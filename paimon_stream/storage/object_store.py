"""Stores tables in object stores: S3 and stores with its interface, Google Cloud Storage, and
Azure's blobs.

stores.md §2 says what a folder is in an object store, and §3 has the requests of each operation.

Invariants: every write is atomic, and is durable when the store has answered. The atomic create is
a PUT on the condition that there is no object (`If-None-Match: *`, Google's generation 0). The
client does not repeat that request by itself, because only the caller knows what a repetition
means. If the effect of a failure is not known, the error is `Unavailable`. The answer "exists
already" is never believed without reading the object (stores.md §4). Another writer may have been
first, or an earlier try may have taken effect without an answer. Another request for the key may
also be under way, so that nothing was written.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar, cast

from paimon_stream import errors
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import (
    MOST_BYTES,
    FileStat,
    PutResult,
    Storage,
    check_size,
    checked_path,
    delete_each,
)
from paimon_stream.storage.store_client import Client, Handle, client_of, is_right, trust
from paimon_stream.storage.store_errors import Request as Asked
from paimon_stream.storage.store_files import Upload, open_source
from paimon_stream.storage.store_open import StoreSettings
from paimon_stream.storage.together import Request, RequestTally, at_once

T = TypeVar("T")

_PAGE: Final = 1000
"""The most keys that S3 lists or deletes with one request."""
_CONFLICTS: Final = 5
"""How often a put that meets another request for its key is repeated, at most."""
_WAIT_MILLIS: Final = 50
_LARGE: Final = 1 << 20
"""A put of more bytes gets more time."""
_MOST_KEY_BYTES: Final = 1024
_KINDS: Final = {"read": "GET", "head": "HEAD", "list": "LIST", "delete": "DELETE"}
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True, repr=False)
class ObjectStorage(Storage):
    """A folder in a bucket. The store is opened when it is first used, in each process. A pickle
    contains the settings with their secrets, because executors need them. `repr` shows no secrets.

    Attributes:
        settings: the settings with which the store is opened.
        runtime: the clock and the random numbers for the waits before repetitions.
        tally: counts the requests that this object sends.
    """

    has_folders = False
    answers_late = True
    settings: StoreSettings
    runtime: Runtime = field(default_factory=system, kw_only=True, compare=False)
    tally: RequestTally = field(default_factory=RequestTally, kw_only=True, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.settings, is_right(self.settings))

    def __repr__(self) -> str:
        return f"ObjectStorage({self.location!r})"

    @property
    def location(self) -> str:
        """The location of the folder, with the scheme that the user gave."""
        return self.settings.location

    def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
        """The whole content of a file. Raises `NotFound`. Raises `CorruptMetadata` for a file of
        more than `limit` bytes, before its content is read.
        """
        full = f"{self.location}/{path}"

        def body(answer: Any) -> bytes:
            check_size(full, int(answer.meta["size"]), limit)
            return bytes(answer.bytes())

        return self.get(path, body)

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces the file."""
        conflict = None
        for attempt in range(_CONFLICTS):
            try:
                return self._put("write", path, data, "overwrite", _handle_for(data))
            except errors.AlreadyExists as busy:  # another request for the key is under way
                conflict = busy
                self._wait(attempt)
            except errors.NoSpace as full:
                # The client may have repeated the request, and the first one took effect.
                if self._read_back(path, full) != data:
                    raise
                return None
        raise _unknown("write", f"{self.location}/{path}", conflict)

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Writes the files in parallel. If a path comes twice, its last content counts. The first
        error is raised when all writes have ended.
        """
        last = dict(files)
        for path in last:
            self.key(path)  # raises for a wrong path, before anything is written
        at_once([partial(self.write, path, data) for path, data in last.items()])

    def put_if_absent(self, path: str, data: bytes, *, repeated: bool = False) -> PutResult:
        """Creates the file, or leaves an existing one unchanged.

        Args:
            path: the path of the file.
            data: the content of the file.
            repeated: whether only one writer uses the name. If so, the client repeats a failed
                request, and an object with the same bytes counts as created. If not, a failure with
                an unknown effect is raised, because only the caller knows what a repetition means.

        Raises:
            Unavailable: it is unknown whether the file was created.
            NoSpace: the store is full, and there is no such object.
        """
        handle = _handle_for(data) if repeated else Handle.ONCE
        sent_before = repeated  # whether an existing object may come from an earlier request
        refusal: errors.PaimonStreamError | None = None
        for attempt in range(_CONFLICTS + 1):
            try:
                self._put("create", path, data, "create", handle)
                return PutResult.CREATED
            except errors.Unavailable:
                if not repeated and self.client.right:
                    # This waits until the store answers. So the caller, who counts repetitions,
                    # repeats only once.
                    with suppress(errors.PaimonStreamError):
                        self.head(path)
                raise
            except (errors.AlreadyExists, errors.NoSpace) as refused:
                refusal = refused
                content = self._read_back(path, refused)
            is_full = isinstance(refusal, errors.NoSpace)
            if content is not None:
                is_ours = content == data and (sent_before or is_full)
                return PutResult.CREATED if is_ours else PutResult.EXISTS
            if is_full:
                raise refusal
            sent_before = True
            if attempt < _CONFLICTS:
                self._wait(attempt)
        raise _unknown("create", f"{self.location}/{path}", refusal)

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        """Lists files, as in `Storage.list_files`."""
        start, listing = self.listed(folder)
        objects = {
            entry["path"][len(start) :]: entry
            for entry in listing["objects"]
            if entry["path"].startswith(start)
        }
        shows_hidden = prefix.startswith(".")
        names = sorted(
            name
            for name in objects
            if name.startswith(prefix) and (shows_hidden or not name.startswith("."))
        )
        above = f"{folder}/" if folder else ""
        return [_file_stat(above + name, objects[name]) for name in names]

    def list_folders(self, folder: str) -> list[str]:
        """Lists folders, as in `Storage.list_folders`."""
        start, listing = self.listed(folder)
        names = {key[len(start) :].rstrip("/") for key in listing["common_prefixes"]}
        return sorted(name for name in names if name and not name.startswith("."))

    def list_below(self, folder: str) -> Iterator[list[FileStat]]:
        """All files below the folder, 1,000 at a time: there is one request for each page, in the
        order of the store, regardless of folders. After a failure, the listing continues after the
        last key.
        """
        key = self.key(folder) if folder else self.settings.prefix
        start = f"{key}/"
        above = f"{folder}/" if folder else ""
        last: str | None = None
        unfinished: Any = None  # the store's listing; None if a new one has to begin

        def next_page(obstore: Any, store: Any) -> Any:
            nonlocal unfinished
            listing = unfinished
            unfinished = None  # a listing that has failed is not used again
            if listing is None:
                listing = obstore.list(store, prefix=key, offset=last, chunk_size=_PAGE)
            page = next(listing, None)
            unfinished = listing
            return page

        while page := self.ask("list", folder, next_page):
            last = page[-1]["path"]
            yield [
                _file_stat(above + entry["path"][len(start) :], entry)
                for entry in page
                if _is_shown_below(start, entry["path"])
            ]

    def stat(self, path: str) -> FileStat:
        """The size and modification time of a file. Raises `NotFound`."""
        return _file_stat(path, self.head(path))

    def delete(self, path: str) -> None:
        """Deletes the file. A missing file is no error."""
        with suppress(errors.NotFound):
            self.call("delete", path, "delete")

    def delete_all(self, paths: Sequence[str]) -> dict[str, errors.PaimonStreamError]:
        """Deletes files. On S3 one request deletes up to 1,000 files, and on other stores several
        requests are sent at once (stores.md §7). If the store refuses a request for several files,
        each file is deleted by itself, so that the error of each file is known. If the store is
        down or denies the right to delete, all files of the request have that error.
        """
        if self.settings.kind != "s3":
            return self._delete_alone(paths)
        unique_paths = dict.fromkeys(paths)
        # This deletes nothing. It finds the paths that cannot be keys, because `key` raises an
        # error for them.
        failed = delete_each(self.key, unique_paths)
        good = [path for path in unique_paths if path not in failed]
        groups = [good[start : start + _PAGE] for start in range(0, len(good), _PAGE)]
        for failed_of_group in self.together(
            [partial(self._delete_together, group) for group in groups]
        ):
            failed.update(failed_of_group)
        return failed

    def is_link(self, path: str) -> bool:
        """False, because object stores have no links. Raises `InvalidOption` if the path cannot be
        a key.
        """
        self.key(path)
        return False

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream for a new file, which appears when the context ends without an exception. Raises
        `AlreadyExists` at the end, or before the first part of a file of more than 8 MiB is sent.
        """
        return cast("AbstractContextManager[BinaryIO]", Upload(self, path))

    def open_input(self, path: str) -> AbstractContextManager[Any]:
        """An Arrow file for random access. Raises `NotFound`."""
        return cast("AbstractContextManager[Any]", open_source(self, path))

    def together(self, requests: Sequence[Request]) -> list[Any]:
        """The results of the requests. They are in flight at the same time."""
        return at_once(requests)

    def _delete_together(self, paths: Sequence[str]) -> dict[str, errors.PaimonStreamError]:
        """Deletes files with one request. Returns the errors of files that could not be deleted, by
        path.
        """
        keys = [self.key(path) for path in paths]
        try:
            self.ask("delete", paths[0], lambda obstore, store: obstore.delete(store, keys))
        except (errors.StorageError, errors.InvalidOption) as refused:
            is_denied = refused.context.get("status") in (401, 403)
            if isinstance(refused, errors.Unavailable) or is_denied:
                return dict.fromkeys(paths, refused)  # a request for each file would get it, too
            return self._delete_alone(paths)
        return {}

    def _delete_alone(self, paths: Sequence[str]) -> dict[str, errors.PaimonStreamError]:
        """Deletes files with one request for each file. Returns the errors of files that could not
        be deleted, by path.
        """
        failures = self.together([partial(delete_each, self.delete, (path,)) for path in paths])
        return {path: error for failed in failures for path, error in failed.items()}

    @property
    def client(self) -> Client:
        """The connections of this process. Raises `ConfigError` after a fork, and
        `MissingExtra`.
        """
        return client_of(self.settings, Client)

    def key(self, path: str) -> str:
        """The key of a file in the bucket. Raises `InvalidOption` for a path outside the root, and
        for a path that stores refuse.
        """
        checked_path(path)
        key = f"{self.settings.prefix}/{path}"
        if _CONTROL.search(key):
            raise self._no_key(
                path, "has a control character, or bytes that are not text. Use another name."
            )
        size = len(key.encode())
        if size > _MOST_KEY_BYTES:
            raise self._no_key(
                path,
                f"makes a key of {size:,} bytes, and a store takes {_MOST_KEY_BYTES:,} at most. "
                "Use a shorter location.",
            )
        if self.settings.kind == "azure" and "\\" in path:
            raise self._no_key(
                path, "has a backslash, which Azure takes for a slash. Use another name."
            )
        return key

    def _no_key(self, path: str, problem: str) -> errors.InvalidOption:
        return errors.InvalidOption(
            f"The path {path!r} below {self.location} {problem}", path=f"{self.location}/{path}"
        )

    def ask(
        self, verb: str, path: str, effect: Callable[[Any, Any], T], handle: Handle = Handle.CALM
    ) -> T:
        """The result of a request to an open store.

        Args:
            verb: `read`, `head`, `list`, `write`, `create` or `delete`. In messages, `head` is
                `read`.
            path: the file or folder, for messages.
            effect: sends the request. It is called with the module obstore and the open store.
            handle: the connection that serves the request.
        """
        client = self.client
        self.tally.add(_KINDS.get(verb, "PUT"))
        verb_shown = "read" if verb == "head" else verb
        request = Asked(verb=verb_shown, location=self.settings.location, path=path)
        return client.ask(request, self.runtime, lambda store: effect(client.module, store), handle)

    def call(
        self,
        verb: str,
        path: str,
        name: str,
        *arguments: Any,
        handle: Handle = Handle.CALM,
        **named_arguments: Any,
    ) -> Any:
        """The result of the function `name` of obstore for the key of a file and the other
        arguments.
        """
        key = self.key(path)
        return self.ask(
            verb,
            path,
            lambda obstore, store: getattr(obstore, name)(
                store, key, *arguments, **named_arguments
            ),
            handle,
        )

    def get(
        self, path: str, use: Callable[[Any], T], *, options: dict[str, Any] | None = None
    ) -> T:
        """Requests a file, calls `use` with the answer, and returns the result of `use`. When `use`
        is called, the body of the answer has not been read yet. Raises `NotFound`.
        """
        key = self.key(path)
        return self.ask(
            "read",
            path,
            lambda obstore, store: use(obstore.get(store, key, options=options)),
            Handle.LARGE,
        )

    def ranged(self, path: str, start: int, end: int) -> bytes:
        """The bytes of a file from `start` up to, but not including, `end`. There are fewer at the
        end of the file.
        """
        return bytes(
            self.call("read", path, "get_range", start=start, end=end, handle=Handle.LARGE)
        )

    def head(self, path: str) -> dict[str, Any]:
        """Obstore's metadata of an object. Raises `NotFound`."""
        facts: dict[str, Any] = self.call("head", path, "head")
        return facts

    def listed(self, folder: str) -> tuple[str, dict[str, Any]]:
        """The beginning of all keys in a folder, and obstore's listing of the files and folders
        directly in it.
        """
        key = self.key(folder) if folder else self.settings.prefix
        return f"{key}/", self.ask(
            "list", folder, lambda obstore, store: obstore.list_with_delimiter(store, key)
        )

    def _put(self, verb: str, path: str, data: bytes, mode: str, handle: Handle) -> None:
        self.call(verb, path, "put", data, mode=mode, use_multipart=False, handle=handle)

    def _read_back(self, path: str, refused: errors.PaimonStreamError) -> bytes | None:
        """Reads the object after a put that was refused. None if there is no object. Raises
        `Unavailable` if the object cannot be read, because in that case the effect of the put is
        not known.
        """
        try:
            return self.get(path, lambda answer: bytes(answer.bytes()))
        except errors.NotFound:
            return None
        except errors.PaimonStreamError as failed:
            unreadable = failed
        # The error is raised outside of the handler, so that no other error is its context.
        raise errors.Unavailable(
            f"{refused.message} Reading the file back failed, "
            f"so it is unknown whether it was written: {unreadable.message}",
            path=f"{self.location}/{path}",
        )

    def _wait(self, attempt: int) -> None:
        """Waits before a repetition. Each wait is twice as long as the one before, plus a random
        part of up to a half.
        """
        millis = _WAIT_MILLIS * 2**attempt
        self.runtime.clock.sleep((millis + self.runtime.rng.below(millis // 2)) / 1000)


def _unpickled(settings: StoreSettings, right: bool) -> ObjectStorage:
    """The storage that another process pickled. `right` says whether that process knew that the
    settings of the store are correct.
    """
    if right:
        trust(settings)
    return ObjectStorage(settings)


def _is_shown_below(start: str, key: str) -> bool:
    """Whether `list_below` shows an object. It does if the object is below `start` and in no hidden
    folder.
    """
    name = key[len(start) :]
    folder, _, _ = name.rpartition("/")
    is_in_hidden_folder = "/." in f"/{folder}"
    return key.startswith(start) and name != "" and not is_in_hidden_folder


def _file_stat(path: str, facts: Any) -> FileStat:
    # The time is cut to whole seconds, because some stores list finer times than they return for a
    # single object.
    millis = int(facts["last_modified"].timestamp()) * 1000
    return FileStat(path=path, size=int(facts["size"]), modified_millis=millis)


def _handle_for(data: bytes) -> Handle:
    return Handle.LARGE if len(data) > _LARGE else Handle.CALM


def _unknown(verb: str, full: str, refusal: errors.PaimonStreamError | None) -> errors.Unavailable:
    """The error of a put for which, at each try, another request for the same key was under way."""
    answer = ""
    if refusal is not None:
        status_and_code = (refusal.context.get("status"), refusal.context.get("code"))
        answer = " ".join(str(part) for part in status_and_code if part)
    shown_answer = f" ({answer})" if answer else ""
    return errors.Unavailable(
        f"Cannot {verb} {full}: "
        f"other requests for it were under way at each try{shown_answer}. Try again.",
        path=full,
    )
