"""The connections of this process to object stores.

A store is opened when it is first used, once in each process, and is shared by all tables with the same
bucket and settings. obstore is imported then. A process that forks after that leaves children in which every
request would wait forever, so any use there is an error.

Three connections serve one store. The *calm* one repeats what failed. The *large* one does, too, and gives
large bodies more time. The *once* one repeats nothing: whether a conditional create took effect is unknown
after a repetition.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, TypeVar

from paimon_stream.errors import ConfigError, Unavailable
from paimon_stream.extras import require
from paimon_stream.runtime import Runtime
from paimon_stream.storage.store_errors import (
    BROKEN,
    NO_CREDENTIALS,
    NO_ROLE,
    TIMED_OUT,
    Failure,
    Request,
    failure_of,
)
from paimon_stream.storage.store_open import open_store
from paimon_stream.storage.store_settings import StoreSettings

__all__ = ["Client", "Handle", "client_of"]

T = TypeVar("T")

_TRIES: Final = 3
_WAIT_SECONDS: Final = 0.3
_REPEATED: Final = (("list", BROKEN), ("delete", TIMED_OUT))
"""What obstore itself does not repeat, though it may be: an answer that is cut off, or does not come."""


class Handle(Enum):
    """Which connection serves a request."""

    CALM = "calm"
    LARGE = "large"
    ONCE = "once"


class _Process:
    """Whether this process may use stores."""

    used: bool = False
    forked: bool = False

    @classmethod
    def mark_child(cls) -> None:
        """Called in each child of a fork."""
        cls.forked = cls.forked or cls.used


@dataclass(slots=True)
class Client:
    """One store, as this process uses it. `answered`: it has answered before, so its settings are right."""

    settings: StoreSettings
    obstore: Any
    answered: bool = False
    _handles: dict[Handle, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(
        self,
        request: Request,
        runtime: Runtime,
        effect: Callable[[Any], T],
        handle: Handle = Handle.CALM,
    ) -> T:
        """The result of the effect on an open store. Raises this package's errors, without obstore's as their
        context, because its texts hold URLs and answers.

        Until the store has answered once, small requests are repeated for about a second only: a misspelt
        endpoint is reported at once.
        """
        small = handle is Handle.CALM or (handle is Handle.LARGE and request.verb == "read")
        for left in reversed(range(_TRIES if small else 1)):
            first = small and not self.answered
            failure = None
            try:
                result = effect(self._handle(Handle.ONCE if first else handle))
            except self._errors() as failed:
                failure = _failure(failed, self.answered)
            if failure is None:
                self.answered = True
                return result
            self.answered = self.answered or failure.answered
            again = (first and failure.rule.kind is Unavailable) or (request.verb, failure.rule) in _REPEATED
            if not (again and left):
                break
            runtime.clock.sleep(_WAIT_SECONDS)
        assert failure is not None
        raise failure.error(request)

    def _errors(self) -> tuple[type[Exception], ...]:
        """What obstore raises. Streams raise `OSError`, paths that no store can hold `ValueError`."""
        return (self.obstore.exceptions.BaseError, OSError, ValueError)

    def _handle(self, handle: Handle) -> Any:
        """The open store of a handle. It is opened at the first call."""
        found = self._handles.get(handle)
        if found is None:
            with self._lock:
                found = self._handles[handle] = self._handles.get(handle) or self._open(handle)
        return found

    def _open(self, handle: Handle) -> Any:
        retries = 0 if handle is Handle.ONCE else self.settings.max_retries
        return open_store(self.settings, max_retries=retries, bulk=handle is Handle.LARGE)


_CLIENTS: Final[dict[StoreSettings, Client]] = {}
_LOCK: Final = threading.Lock()
os.register_at_fork(after_in_child=_Process.mark_child)


def _failure(failed: Exception, answered: bool) -> Failure:
    """What obstore's error says. Where a store has answered before, a machine's role that gives no
    credentials will give them again."""
    found = failure_of(failed)
    return replace(found, rule=NO_ROLE) if answered and found.rule is NO_CREDENTIALS else found


def client_of(settings: StoreSettings) -> Client:
    """The client of a store, the same for all tables in it. Raises `ConfigError` in a child that was forked
    after its parent had used a store, and `MissingExtra`."""
    if _Process.forked:
        raise ConfigError(
            f"This process was forked after object stores were used in its parent, so {settings.location} "
            "cannot be used here. Start the process by 'spawn', or fork before a table is opened.",
            location=settings.location,
        )
    shared = replace(settings, location="", prefix="")
    client = _CLIENTS.get(shared)
    if client is None:
        obstore = require("obstore", "store", f"The location {settings.location}")
        with _LOCK:
            _Process.used = True
            client = _CLIENTS.setdefault(shared, Client(settings, obstore))
    return client
