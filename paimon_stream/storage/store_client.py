"""The connections of this process to object stores (stores.md §1, §5).

A store is opened when it is first used, once in each process, and is shared by all tables with the
same bucket and settings. obstore is imported then. A child that is forked after that gets an error,
because the client would hang there. Spark's daemon forks its workers before any use.

Four connections serve one store (`Handle`). The *calm* one repeats what failed. The *large* one
does, too, and gives large bodies more time. The *parts* one, for the parts of a file, goes on until
an outage counts as one. The *once* one repeats nothing: whether a conditional create took effect is
unknown after a repetition.

The outage of a store that has answered once (the driver, for executors) is waited for, up to
`max_outage_millis`.

Here is also the check that a storage creates files atomically, at the start of a stream and before
a process's first commit to a store. Some gateways and mounts accept a conditional create and then
overwrite the file: two commits could take the same id, and one be lost silently (semantics.md
R2.3).
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, TypeVar

from paimon_stream.errors import (
    ConfigError,
    NotAtomic,
    PaimonStreamError,
    StorageError,
    Unavailable,
)
from paimon_stream.extras import require
from paimon_stream.options import STORE_MAX_OUTAGE
from paimon_stream.runtime import IdSource, Runtime
from paimon_stream.storage import store_errors
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.branch import is_served, whole_of
from paimon_stream.storage.store_open import StoreSettings, open_store

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_TRIES: Final = 3
_WAIT_SECONDS: Final = 0.3
_LONGEST_WAIT_SECONDS: Final = 10
_RETRY_SECONDS: Final = 60
_SAY_AGAIN_SECONDS: Final = 60
_REPEATED: Final = (("list", store_errors.BROKEN), ("delete", store_errors.TIMED_OUT))
"""What obstore itself does not repeat, though it may be: an answer that is cut off, or does not
come.
"""


class Handle(Enum):
    """Which connection serves a request."""

    CALM = "calm"
    LARGE = "large"
    PARTS = "parts"
    ONCE = "once"


_LASTING: Final = (Handle.CALM, Handle.LARGE)
"""The connections whose requests may be repeated here. A part of a file is repeated by obstore."""


@dataclass(slots=True)
class Client:
    """One store, as this process uses it. `answered`: something has answered at its endpoint.
    `right`: the store has done what it was asked, so its settings are right. `atomic`: a probe has
    shown that it creates files atomically.
    """

    settings: StoreSettings
    obstore: Any
    answered: bool = False
    right: bool = False
    atomic: bool = False
    _outage: tuple[float, float] | None = (
        None  # seconds of the clock: when it began, and when the log last said so
    )
    _handles: dict[Handle, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(
        self,
        request: store_errors.Request,
        runtime: Runtime,
        effect: Callable[[Any], T],
        handle: Handle = Handle.CALM,
    ) -> T:
        """The result of the effect on an open store. Raises this package's errors, without
        obstore's as their context, because its texts hold URLs and answers. Until the store has
        answered once, small requests are repeated for about a second only. Credentials that the
        store does not take any more are read again once.
        """
        small = handle is Handle.CALM or (handle is Handle.LARGE and request.verb == "read")
        began, left, waits, renewed = runtime.clock.monotonic(), _TRIES, 0, False
        while True:
            first = small and not self.answered
            failure = None
            try:
                result = effect(self._handle(Handle.ONCE if first else handle))
            except BaseException as failed:
                # Streams raise `OSError`, paths that no store can hold `ValueError`.
                known = (self.obstore.exceptions.BaseError, OSError, ValueError)
                if not (isinstance(failed, known) or store_errors.is_panic(failed)):
                    raise
                failure = store_errors.failure_of(failed)
                if (
                    self.answered and failure.rule is store_errors.NO_CREDENTIALS
                ):  # the machine's role gives them again
                    failure = replace(failure, rule=store_errors.NO_ROLE)
            if failure is None:
                self.answered = self.right = True
                if self._outage is not None:
                    self._say_that_it_ended(runtime)
                return result
            self.answered = self.answered or failure.answered
            down = failure.rule.kind is Unavailable
            left -= small
            dated = self.right and failure.dated
            if dated:
                self._handles.clear()  # the next ones read the credentials anew
            if dated and not renewed and handle is not Handle.PARTS:
                renewed = True
            elif (
                small
                and left > 0
                and ((first and down) or (request.verb, failure.rule) in _REPEATED)
            ):
                runtime.clock.sleep(_WAIT_SECONDS)
            elif down and self.right and handle in _LASTING:
                took = runtime.clock.monotonic() - began
                if took * 1000 >= self.settings.max_outage_millis:
                    waited = (
                        f"It was repeated for {took:.0f} s ({STORE_MAX_OUTAGE.key})."
                        if waits
                        else ""
                    )
                    raise failure.error(request, waited)
                self._say_that_it_lasts(failure.error(request), began, runtime)
                runtime.clock.sleep(min(2**waits, _LONGEST_WAIT_SECONDS))
                waits += 1
            else:
                raise failure.error(request)

    def _say_that_it_lasts(self, why: PaimonStreamError, began: float, runtime: Runtime) -> None:
        """Logs a warning when an outage is noticed, and one each minute, whatever the number of
        requests that wait.
        """
        now = runtime.clock.monotonic()
        with self._lock:
            since, said = self._outage or (began, None)
            if said is not None and now - said < _SAY_AGAIN_SECONDS:
                return
            self._outage = since, now
        text = "%s The store has failed for %.0f s. Its requests are repeated for up to %d s (%s)."
        _LOG.warning(
            text, why, now - since, self.settings.max_outage_millis // 1000, STORE_MAX_OUTAGE.key
        )

    def _say_that_it_ended(self, runtime: Runtime) -> None:
        with self._lock:
            outage, self._outage = self._outage, None
        if outage is not None:
            took = runtime.clock.monotonic() - outage[0]
            _LOG.info("%s: the store answers again, after %.0f s.", self.settings.location, took)

    def _handle(self, handle: Handle) -> Any:
        """The open store of a handle. It is opened at the first call."""
        found = self._handles.get(handle)
        if found is None:
            with self._lock:
                found = self._handles[handle] = self._handles.get(handle) or self._open(handle)
        return found

    def _open(self, handle: Handle) -> Any:
        retries = 0 if handle is Handle.ONCE else self.settings.max_retries
        seconds = self.settings.max_outage_millis / 1000
        if handle is Handle.PARTS and seconds > _RETRY_SECONDS:
            return open_store(self.settings, max_retries=round(seconds), seconds=seconds, bulk=True)
        return open_store(
            self.settings, max_retries=retries, bulk=handle in (Handle.LARGE, Handle.PARTS)
        )


_CLIENTS: Final[dict[StoreSettings, Client]] = {}
_RIGHT: Final[set[StoreSettings]] = set()
"""The stores that another process says are right."""
_LOCK: Final = threading.Lock()
_USED_BY_PARENT: Final[set[StoreSettings]] = set()
os.register_at_fork(after_in_child=lambda: _USED_BY_PARENT.update(_CLIENTS))


def client_of(settings: StoreSettings) -> Client:
    """The client of a store, the same for all tables in it. Raises `ConfigError` in a child that
    was forked after its parent had used a store, and `MissingExtra`.
    """
    if _USED_BY_PARENT:
        why = f"so {settings.location} cannot be used here"
        cure = "Start the process by 'spawn', or fork before a table is opened."
        text = f"This process was forked after object stores were used in its parent, {why}. {cure}"
        raise ConfigError(text, location=settings.location)
    shared = shared_settings(settings)
    client = _CLIENTS.get(shared)
    if client is None:
        obstore = require("obstore", "store", f"The location {settings.location}")
        with _LOCK:
            right = shared in _RIGHT
            client = _CLIENTS.setdefault(
                shared, Client(settings, obstore, answered=right, right=right)
            )
    return client


def shared_settings(settings: StoreSettings) -> StoreSettings:
    """What all tables in one bucket with the same settings have in common."""
    return replace(settings, location="", prefix="")


def is_right(settings: StoreSettings) -> bool:
    """Whether the store has answered what this process, or the one that it works for, asked it."""
    shared = shared_settings(settings)
    client = _CLIENTS.get(shared)
    return shared in _RIGHT if client is None else client.right


def trust(settings: StoreSettings) -> None:
    """Takes another process's word that the store is right. Opens nothing."""
    _RIGHT.add(shared_settings(settings))


_CONTENTS: Final = (b"first", b"second")
_PROBES: Final = 5
"""In a store that has answered this process before. Each waits until the store answers."""


def probe_atomic_create(storage: Storage, folder: str, ids: IdSource) -> None:
    """Creates a new file in the folder twice, and removes it. The second create must change nothing
    and report that; else `NotAtomic` is raised. In a store, each process does so once for a bucket.
    A dot hides the file. If the store fails for a moment, the check is made again. Also raises what
    the storage raises if it cannot write.
    """
    client = _client(storage)
    if (client is not None and client.atomic) or is_served(storage):
        return
    for left in reversed(range(_PROBES)):
        try:
            _probe(storage, f"{folder}/.probe-{ids.uuid()}" if folder else f".probe-{ids.uuid()}")
            break
        except (
            Unavailable
        ):  # the effect of a create is unknown, so only another name shows anything
            if not left or client is None or not client.right:
                raise
    if client is not None:
        client.atomic = True


def _probe(storage: Storage, path: str) -> None:
    results = []
    try:
        results = [storage.put_if_absent(path, data) for data in _CONTENTS]
        kept = storage.read(path)
    finally:
        with suppress(StorageError):  # a hidden file that is left behind is never read
            storage.delete(path)
    if results != [PutResult.CREATED, PutResult.EXISTS] or kept != _CONTENTS[0]:
        harm = f"{path} could be created twice, so two commits could overwrite each other. Use a storage that can."
        trust = "a PaimonSink with the option paimon-stream.commit.guard=trust may write it"
        cure = f"If nobody else ever writes this table, {trust}."
        text = f"{storage.location} does not create files atomically: {harm} {cure}"
        raise NotAtomic(text, path=path, location=storage.location)


def is_unproven(storage: Storage) -> bool:
    """Whether this is a store that this process has not probed yet. Streams probe a disk, too."""
    client = _client(storage)
    return client is not None and not client.atomic and not is_served(storage)


def _client(storage: Storage) -> Client | None:
    settings = getattr(whole_of(storage), "settings", None)
    return client_of(settings) if isinstance(settings, StoreSettings) else None
