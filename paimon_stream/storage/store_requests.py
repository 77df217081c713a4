"""The requests that a storage on an object store is made of, one key at a time.

A conditional create is answered "exists already" in more cases than one: another writer was first, an earlier
try of this one took effect and its answer was lost, or another request for the key is under way and nothing
was written. So the answer is never believed without reading the object (stores.md §4).
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from paimon_stream.errors import AlreadyExists, InvalidOption, NoSpace, NotFound, PaimonStreamError, Unavailable
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import PutResult, checked_path
from paimon_stream.storage.store_client import Client, Handle, client_of
from paimon_stream.storage.store_errors import Request
from paimon_stream.storage.store_open import StoreSettings
from paimon_stream.storage.together import Tally

T = TypeVar("T")

PAGE: Final = 1000
"""The most keys that S3 lists or deletes with one request."""
_CONFLICTS: Final = 5
_WAIT_MILLIS: Final = 50
_LARGE: Final = 1 << 20
_MOST_KEY_BYTES: Final = 1024
_KINDS: Final = {"read": "GET", "head": "HEAD", "list": "LIST", "delete": "DELETE"}
_CONTROL: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests below one root. Paths are relative to it. All raise this package's errors."""

    settings: StoreSettings
    runtime: Runtime
    tally: Tally = field(default_factory=Tally)

    @property
    def client(self) -> Client:
        """The connections of this process. Raises `ConfigError` after a fork, and `MissingExtra`."""
        return client_of(self.settings)

    def key(self, path: str) -> str:
        """The key of a file in the bucket.

        Raises `InvalidOption` for a path that leaves the root, or that a store would refuse or change."""
        checked_path(path)
        key = f"{self.settings.prefix}/{path}"
        why, cure = None, "Use another name."
        if _CONTROL.search(key):
            why = "has a control character, or bytes that are no text"
        elif len(key.encode()) > _MOST_KEY_BYTES:
            why = f"makes a key of {len(key.encode()):,} bytes, and a store takes {_MOST_KEY_BYTES:,} at most"
            cure = "Use a shorter location."
        elif self.settings.kind == "azure" and "\\" in path:
            why = "has a backslash, which Azure takes for a slash"
        if why is not None:
            full = f"{self.settings.location}/{path}"
            raise InvalidOption(f"The path {path!r} below {self.settings.location} {why}. {cure}", path=full)
        return key

    def ask(self, verb: str, path: str, effect: Callable[[Any, Any], T], handle: Handle = Handle.CALM) -> T:
        """The result of an effect on obstore and an open store. The verb `head` is a `read` in messages."""
        client = self.client
        self.tally.add(_KINDS.get(verb, "PUT"))
        request = Request(verb="read" if verb == "head" else verb, location=self.settings.location, path=path)
        return client.ask(request, self.runtime, lambda store: effect(client.obstore, store), handle)

    def call(self, verb: str, path: str, name: str, *given: Any, handle: Handle = Handle.CALM, **named: Any) -> Any:
        """The result of the function of obstore with that name, for the file's key and the other arguments."""
        key = self.key(path)
        return self.ask(verb, path, lambda obstore, store: getattr(obstore, name)(store, key, *given, **named), handle)

    def get(self, path: str, use: Callable[[Any], T], *, options: dict[str, Any] | None = None) -> T:
        """What `use` makes of the answer, whose body has not been read yet. Raises `NotFound`."""
        key = self.key(path)
        return self.ask(
            "read", path, lambda obstore, store: use(obstore.get(store, key, options=options)), Handle.LARGE
        )

    def ranged(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, or fewer at the end of the file."""
        return bytes(self.call("read", path, "get_range", start=start, end=end, handle=Handle.LARGE))

    def head(self, path: str) -> dict[str, Any]:
        """Obstore's facts about the object. Raises `NotFound`."""
        found: dict[str, Any] = self.call("head", path, "head")
        return found

    def listed(self, folder: str) -> tuple[str, dict[str, Any]]:
        """What all keys of a folder begin with, and what obstore finds directly in it."""
        key = self.key(folder) if folder else self.settings.prefix
        found = self.ask("list", folder, lambda obstore, store: obstore.list_with_delimiter(store, key))
        return f"{key}/", found

    def below(self, folder: str) -> Iterator[tuple[str, Any]]:
        """What all keys below a folder begin with, and a page of obstore's facts about them, in the store's
        order. After a failure the listing goes on behind the last key."""
        key = self.key(folder) if folder else self.settings.prefix
        last: str | None = None
        stream: Any = None

        def following(obstore: Any, store: Any) -> Any:
            nonlocal stream
            source, stream = stream, None  # one that fails is not used again
            source = source or obstore.list(store, prefix=key, offset=last, chunk_size=PAGE)
            found = next(source, None)
            stream = source
            return found

        while page := self.ask("list", folder, following):
            last = page[-1]["path"]
            yield f"{key}/", page

    def replace(self, path: str, data: bytes) -> None:
        """Creates or replaces the object."""
        why = None
        for attempt in range(_CONFLICTS):
            try:
                return self._put("write", path, data, "overwrite", _handle_for(data))
            except AlreadyExists as busy:  # another request for the key is under way
                why = busy
                self._wait(attempt)
            except NoSpace as full:
                if self._held(path, full) != data:
                    raise
                return None
        raise _unknown("write", f"{self.settings.location}/{path}", why)

    def create(self, path: str, data: bytes, *, repeated: bool = False) -> PutResult:
        """Creates the object, or leaves an existing one unchanged.

        With `repeated`, for names that only one writer uses, the client repeats a request that failed, and an
        object with the same bytes counts as created. Without, each failure whose effect is unknown is raised
        (`Unavailable`), because only the caller knows what a repetition means.
        """
        sent, handle = repeated, _handle_for(data) if repeated else Handle.ONCE
        why: PaimonStreamError | None = None
        for attempt in range(_CONFLICTS + 1):
            try:
                self._put("create", path, data, "create", handle)
                return PutResult.CREATED
            except Unavailable:
                if not repeated and self.client.right:
                    # Waits for the store, so that the caller, who counts repetitions, repeats only once.
                    with suppress(PaimonStreamError):
                        self.head(path)
                raise
            except (AlreadyExists, NoSpace) as refused:
                why = refused
                held = self._held(path, refused)
            if held is not None:
                ours = held == data and (sent or isinstance(why, NoSpace))
                return PutResult.CREATED if ours else PutResult.EXISTS
            if isinstance(why, NoSpace):
                raise why
            sent = True
            if attempt < _CONFLICTS:
                self._wait(attempt)
        raise _unknown("create", f"{self.settings.location}/{path}", why)

    def _put(self, verb: str, path: str, data: bytes, mode: str, handle: Handle) -> None:
        self.call(verb, path, "put", data, mode=mode, use_multipart=False, handle=handle)

    def _held(self, path: str, refused: PaimonStreamError) -> bytes | None:
        """What the object holds after a put that was refused; None if there is none. If that cannot be read,
        the effect of the put is unknown."""
        try:
            return self.get(path, lambda found: bytes(found.bytes()))
        except NotFound:
            return None
        except PaimonStreamError as unreadable:
            why = unreadable
        raise Unavailable(
            f"{refused.message} Reading the file back failed, so it is unknown whether it was written: {why.message}",
            path=f"{self.settings.location}/{path}",
        )

    def _wait(self, attempt: int) -> None:
        """Waits before a repetition: twice as long each time, and up to a half more by chance."""
        millis = _WAIT_MILLIS * 2**attempt
        self.runtime.clock.sleep((millis + self.runtime.rng.below(millis // 2)) / 1000)


def _handle_for(data: bytes) -> Handle:
    return Handle.LARGE if len(data) > _LARGE else Handle.CALM


def _unknown(verb: str, full: str, why: PaimonStreamError | None) -> Unavailable:
    said = () if why is None else (why.context.get("status"), why.context.get("code"))
    what = " ".join(str(part) for part in said if part)
    answer = f" ({what})" if what else ""
    return Unavailable(
        f"Cannot {verb} {full}: other requests for it were under way at each try{answer}. Try again.", path=full
    )
