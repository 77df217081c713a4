"""The connections of this process to object stores (stores.md §1, §5), and what those to HDFS have
in common with them (hdfs_client.py).

A store is opened when it is first used, once in each process, and is shared by all tables with the
same bucket and settings. The library obstore is imported at that time. A child that is forked later
gets an error, because the client would hang in the child. Spark's daemon forks its workers before
any use.

Four connections serve one store (`Handle`). CALM repeats failed requests. LARGE does the same, and
gives large bodies more time. PARTS sends the parts of a file. It repeats them for as long as
requests wait for the end of an outage. ONCE repeats nothing, because after a repetition it would
not be known whether a conditional create took effect.

After a store has answered once, requests wait for the end of an outage, up to `max_outage_millis`.
On executors, requests wait if the store has answered the driver.

This module also checks that a storage creates files atomically. The check is made at the start of a
stream, and before a process's first commit to a store. Some gateways and mounts accept a
conditional create and then overwrite the file: two commits could get the same id, and one would be
lost silently (semantics.md R2.3).
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Final, TypeVar, cast

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
from paimon_stream.storage.client_settings import ClientSettings
from paimon_stream.storage.store_open import open_store

T = TypeVar("T")
Settings = TypeVar("Settings", bound=ClientSettings)
ClientKind = TypeVar("ClientKind", bound="Client")

_LOG = logging.getLogger(__name__)

_TRIES: Final = 3
"""The most times that a small request is sent to a store that has not answered yet."""
_WAIT_SECONDS: Final = 0.3
"""The wait between those requests."""
_LONGEST_WAIT_SECONDS: Final = 10
"""The longest wait between two requests in an outage."""
_RETRY_SECONDS: Final = 60
"""How long obstore repeats a request, if an outage is not waited for longer."""
_SAY_AGAIN_SECONDS: Final = 60
"""The seconds between two messages of the log that an outage lasts."""
_REPEATED: Final = (("list", store_errors.BROKEN), ("delete", store_errors.TIMED_OUT))
"""Failed requests that may be repeated although obstore itself does not repeat them: a listing
whose answer is cut off, and a deletion without an answer.
"""


class Handle(Enum):
    """The connection that serves a request."""

    CALM = "calm"
    LARGE = "large"
    PARTS = "parts"
    ONCE = "once"


_LASTING: Final = (Handle.CALM, Handle.LARGE)
"""The connections whose requests wait here for the end of an outage. obstore itself repeats the
parts of a file.
"""


@dataclass(frozen=True, slots=True)
class _Outage:
    """A time in which a store does not answer.

    Attributes:
        began: when the first request that met the outage began, in seconds of the clock.
        said: when a warning about the outage was last logged, in seconds of the clock.
    """

    began: float
    said: float


@dataclass(slots=True)
class Client:
    """One store, as this process uses it.

    Attributes:
        settings: the settings with which the store is opened.
        module: obstore, as a module.
        answered: whether the store's endpoint has answered.
        right: whether the settings are proven correct, because the store has carried out a request.
        atomic: whether a probe has shown that the store creates files atomically.
    """

    needs: ClassVar[tuple[str, str]] = ("obstore", "store")
    """The module, and the extra that installs it."""

    settings: Any
    module: Any
    answered: bool = False
    right: bool = False
    atomic: bool = False
    _outage: _Outage | None = None
    """The outage that requests wait for now."""
    _handles: dict[Handle, Any] = field(default_factory=dict)
    """The open stores."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(
        self,
        request: store_errors.Request,
        runtime: Runtime,
        effect: Callable[[Any], T],
        handle: Handle = Handle.CALM,
    ) -> T:
        """Sends a request to an open store, and returns its result.

        Until the store has answered once, small requests are repeated for about a second only. If
        the store no longer accepts the credentials, they are read again once, and the request is
        repeated unless it sends a part of a file.

        Args:
            request: the description of the request, for messages.
            runtime: the clock that waits.
            effect: sends the request. It is called with the open store.
            handle: the connection that serves the request.

        Raises:
            PaimonStreamError: the request failed. The error does not have obstore's error as its
                context, because obstore's texts contain URLs and answers.
        """
        asking = Asking(request, runtime, handle, began=runtime.clock.monotonic())
        while True:
            is_first = asking.is_small and not self.answered
            handle_used = Handle.ONCE if is_first else handle
            failure = None
            try:
                result = self._run(effect, handle_used)
            except BaseException as failed:
                failure = self._failure(failed)
                if failure is None:
                    raise
            if failure is None:
                self.answered = True
                self.right = True
                if self._outage is not None:
                    self._say_that_it_ended(runtime)
                return result
            self.answered = self.answered or failure.answered
            self._prepare_repetition(asking, failure, is_first=is_first)

    def _run(self, effect: Callable[[Any], T], handle: Handle) -> T:
        """The result of an effect on the open store of a handle."""
        return effect(self._handle(handle))

    def _prepare_repetition(
        self, asking: "Asking", failure: store_errors.Failure, *, is_first: bool
    ) -> None:
        """Waits, or forgets the credentials, before a failed request is sent again. `is_first` says
        whether the request is small and the store has not answered before. If the request must not
        be sent again, raises the failure as an error.
        """
        request = asking.request
        clock = asking.runtime.clock
        is_down = failure.rule.kind is Unavailable
        if asking.is_small:
            asking.tries_left -= 1
        are_credentials_old = self.right and failure.may_be_of_old_credentials
        if are_credentials_old:
            self._handles.clear()  # the next requests read the credentials anew
        may_renew = not asking.renewed and asking.handle is not Handle.PARTS
        may_repeat = (is_first and is_down) or (request.verb, failure.rule) in _REPEATED
        if are_credentials_old and may_renew:
            asking.renewed = True
        elif asking.is_small and asking.tries_left > 0 and may_repeat:
            clock.sleep(_WAIT_SECONDS)
        elif is_down and self.right and asking.handle in _LASTING:
            took = clock.monotonic() - asking.began
            if took * 1000 >= self.settings.max_outage_millis:
                if asking.waits == 0:
                    raise failure.error(request)
                raise failure.error(
                    request, f"It was repeated for {took:.0f} s ({STORE_MAX_OUTAGE.key})."
                )
            self._say_that_it_lasts(failure.error(request), asking.began, asking.runtime)
            clock.sleep(min(2**asking.waits, _LONGEST_WAIT_SECONDS))
            asking.waits += 1
        else:
            raise failure.error(request)

    def _failure(self, failed: BaseException) -> store_errors.Failure | None:
        """The meaning of a request's error; None if the error does not come from the store."""
        # obstore's streams raise `OSError`. For a path that no store can hold, obstore raises
        # `ValueError`.
        errors_of_store = (self.module.exceptions.BaseError, OSError, ValueError)
        is_of_store = isinstance(failed, errors_of_store) or store_errors.is_panic(failed)
        if not is_of_store:
            return None
        failure = store_errors.failure_of(failed)
        if self.answered and failure.rule is store_errors.NO_CREDENTIALS:
            # The store accepted credentials before, so the role of the machine can be expected to
            # give new ones.
            return replace(failure, rule=store_errors.NO_ROLE)
        return failure

    def _say_that_it_lasts(
        self, failure: PaimonStreamError, began: float, runtime: Runtime
    ) -> None:
        """Logs a warning when an outage is noticed, and after that once a minute, for all waiting
        requests together.
        """
        now = runtime.clock.monotonic()
        with self._lock:
            if self._outage is None:
                self._outage = _Outage(began, now)
            elif now - self._outage.said < _SAY_AGAIN_SECONDS:
                return
            else:
                self._outage = replace(self._outage, said=now)
            since = self._outage.began
        _LOG.warning(
            "%s The store has failed for %.0f s. Its requests are repeated for up to %d s (%s).",
            failure,
            now - since,
            self.settings.max_outage_millis // 1000,
            STORE_MAX_OUTAGE.key,
        )

    def _say_that_it_ended(self, runtime: Runtime) -> None:
        with self._lock:
            outage = self._outage
            self._outage = None
        if outage is not None:
            took = runtime.clock.monotonic() - outage.began
            _LOG.info("%s: the store answers again, after %.0f s.", self.settings.location, took)

    def _handle(self, handle: Handle) -> Any:
        """The open store of a handle. It is opened at the first call."""
        store = self._handles.get(handle)
        if store is None:
            with self._lock:
                store = self._handles.get(handle) or self._open(handle)
                self._handles[handle] = store
        return store

    def keep_forever(self) -> None:
        """Called in a child that was forked, for each client of its parent. obstore needs
        nothing.
        """

    def _open(self, handle: Handle) -> Any:
        max_retries = 0 if handle is Handle.ONCE else self.settings.max_retries
        seconds = self.settings.max_outage_millis / 1000
        if handle is Handle.PARTS and seconds > _RETRY_SECONDS:
            return open_store(self.settings, max_retries=round(seconds), seconds=seconds, bulk=True)
        is_bulk = handle in (Handle.LARGE, Handle.PARTS)
        return open_store(self.settings, max_retries=max_retries, bulk=is_bulk)


@dataclass(slots=True)
class Asking:
    """One request, and how often it was repeated.

    Attributes:
        request: the description of the request, for messages.
        runtime: the clock that waits.
        handle: the connection that serves the request.
        began: when the request was first sent, in seconds of the clock.
        tries_left: how many more tries a small request has within about a second.
        waits: how often the request has waited for the end of an outage.
        renewed: whether the credentials were read again for this request.
    """

    request: store_errors.Request
    runtime: Runtime
    handle: Handle
    began: float
    tries_left: int = _TRIES
    waits: int = 0
    renewed: bool = False

    @property
    def is_small(self) -> bool:
        """Whether the request is small. While the store has not answered yet, such a request is
        repeated only for about a second.
        """
        is_read = self.handle is Handle.LARGE and self.request.verb == "read"
        return is_read or self.handle is Handle.CALM


_CLIENTS: Final[dict[ClientSettings, Client]] = {}
_RIGHT: Final[set[ClientSettings]] = set()
"""The stores that another process says are right."""
_LOCK: Final = threading.Lock()
_USED_BY_PARENT: Final[set[ClientSettings]] = set()
"""The stores that the parent of this process had used before it forked. Their clients hang here."""


def _give_up_clients() -> None:
    """Refuses the clients of the parent in a child that was forked."""
    _USED_BY_PARENT.update(_CLIENTS)
    for client in _CLIENTS.values():
        client.keep_forever()


os.register_at_fork(after_in_child=_give_up_clients)


def client_of(settings: ClientSettings, kind: type[ClientKind]) -> ClientKind:
    """The client of a store. All tables in the store share it. Raises `ConfigError` in a child that
    was forked after its parent had used a store, and `MissingExtra`.

    Args:
        settings: what opens the store.
        kind: the class of the client, the same for all settings of a kind of store.
    """
    if _USED_BY_PARENT:
        raise ConfigError(
            "This process was forked after object stores or HDFS were used in its parent, "
            f"so {settings.location} cannot be used here. "
            "Start the process by 'spawn', or fork before a table is opened.",
            location=settings.location,
        )
    shared = shared_settings(settings)
    client = _CLIENTS.get(shared)
    if client is None:
        module = require(*kind.needs, f"The location {settings.location}")
        with _LOCK:
            right = shared in _RIGHT
            client = _CLIENTS.setdefault(
                shared, kind(settings, module, answered=right, right=right)
            )
    return cast("ClientKind", client)


def shared_settings(settings: Settings) -> Settings:
    """The settings without the folder of the table. Tables with equal results share a client."""
    return replace(settings, location="", prefix="")


def is_right(settings: ClientSettings) -> bool:
    """Whether the store has carried out a request of this process or of its driver."""
    shared = shared_settings(settings)
    client = _CLIENTS.get(shared)
    return shared in _RIGHT if client is None else client.right


def trust(settings: ClientSettings) -> None:
    """Notes that another process knows the settings to be correct. No store is opened."""
    _RIGHT.add(shared_settings(settings))


_CONTENTS: Final = (b"first", b"second")
_PROBES: Final = 5
"""The most times that a store is probed that has answered this process before. Each probe waits
until the store answers.
"""


def probe_atomic_create(storage: Storage, folder: str, ids: IdSource) -> None:
    """Proves that a storage creates files atomically: creates a new file in the folder twice, and
    then removes it. The second create must change nothing, and must report that the file exists.

    In an object store or HDFS, each process does this once for each client. If the server of a catalog
    publishes the snapshots, the check is left out. If the store fails for a moment, the check is
    repeated. The name of the file begins with a dot, so that listings do not show it.

    Args:
        storage: the storage.
        folder: the folder in which the file is created; "" for the root.
        ids: the source of the file's name.

    Raises:
        NotAtomic: the file could be created twice.
        StorageError: the storage cannot write.
    """
    client = _client(storage)
    was_proven = client is not None and client.atomic
    if was_proven or is_served(storage):
        return
    above = f"{folder}/" if folder else ""
    for probes_left in reversed(range(_PROBES)):
        try:
            # Each probe has a name of its own. After a failure, the file may exist or not, so the
            # same name would prove nothing.
            _probe(storage, f"{above}.probe-{ids.uuid()}")
            break
        except Unavailable:
            may_probe_again = probes_left > 0 and client is not None and client.right
            if not may_probe_again:
                raise
    if client is not None:
        client.atomic = True


def _probe(storage: Storage, path: str) -> None:
    results = []
    try:
        results = [storage.put_if_absent(path, data) for data in _CONTENTS]
        content = storage.read(path)
    finally:
        with suppress(StorageError):  # a hidden file that is left behind is never read
            storage.delete(path)
    if results != [PutResult.CREATED, PutResult.EXISTS] or content != _CONTENTS[0]:
        raise NotAtomic(
            f"{storage.location} does not create files atomically: {path} could be created twice, "
            "so two commits could overwrite each other. Use a storage that can. "
            "If nobody else ever writes this table, a PaimonSink with the option "
            "paimon-stream.commit.guard=trust may write it.",
            path=path,
            location=storage.location,
        )


def is_unproven(storage: Storage) -> bool:
    """Whether the storage is an object store or in HDFS, and this process has not checked it yet.
    On a disk, only streams make the check.
    """
    client = _client(storage)
    return client is not None and not client.atomic and not is_served(storage)


def _client(storage: Storage) -> Client | None:
    client = getattr(whole_of(storage), "client", None)
    return client if isinstance(client, Client) else None
