"""The connections of this process to object stores.

Nothing else imports obstore. A store is opened when it is first used, once in each process, and is shared by
all tables with the same bucket and settings. A process that forks after that leaves children in which every
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
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, Final, TypeVar

from paimon_stream.errors import ConfigError, InvalidOption, Unavailable
from paimon_stream.extras import require
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.store_errors import (
    BROKEN,
    NO_CREDENTIALS,
    NO_ROLE,
    TIMED_OUT,
    Failure,
    Request,
    failure_of,
)
from paimon_stream.storage.store_settings import StoreSettings

__all__ = ["AwsProfile", "Client", "Handle", "client_of"]

T = TypeVar("T")

_CLASSES: Final = {"s3": "S3Store", "gcs": "GCSStore", "azure": "AzureStore"}
_TIMEOUT: Final = "10s"
_LARGE_TIMEOUT: Final = "60s"
_CONNECT_TIMEOUT: Final = "5s"
_BACKOFF: Final = {
    "init_backoff": timedelta(milliseconds=100),
    "max_backoff": timedelta(seconds=10),
    "base": 2,
}
_RETRY_TIMEOUT: Final = timedelta(seconds=60)
_TRIES: Final = 3
_WAIT_SECONDS: Final = 0.3
_REPEATED: Final = (("list", BROKEN), ("delete", TIMED_OUT))
"""What obstore itself does not repeat, though it may be: an answer that is cut off, or does not come."""
_PROFILE_SECONDS: Final = 600


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

        Until the store has answered once, requests are repeated for about a second only: a misspelt endpoint
        is reported at once.
        """
        first = handle is Handle.CALM and not self.answered
        for left in reversed(range(_TRIES if handle is Handle.CALM else 1)):
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
        given = self.settings
        timeout = _LARGE_TIMEOUT if handle is Handle.LARGE else _TIMEOUT
        options: dict[str, Any] = {
            "config": dict(given.config),
            "client_options": {"timeout": timeout, "connect_timeout": _CONNECT_TIMEOUT, **given.client},
            "retry_config": {
                "max_retries": 0 if handle is Handle.ONCE else given.max_retries,
                "backoff": dict(_BACKOFF),
                "retry_timeout": _RETRY_TIMEOUT,
            },
        }
        if given.profile is not None:
            options["credential_provider"] = AwsProfile(given)
        kind = getattr(require("obstore.store", "store", given.location), _CLASSES[given.kind])
        try:
            return kind(given.bucket, **options)
        except self._errors():
            why = f"The options of the store {given.location} are not accepted"
        raise InvalidOption(f"{why}. Check them against docs/stores.md.", location=given.location)


_CLIENTS: Final[dict[StoreSettings, Client]] = {}
_LOCK: Final = threading.Lock()
os.register_at_fork(after_in_child=_Process.mark_child)


class AwsProfile:
    """Gives the credentials of an AWS profile to obstore, and renews them. boto3 renews credentials at least
    ten minutes before they expire, so each answer is good for that long."""

    def __init__(self, settings: StoreSettings) -> None:
        boto3 = require("boto3", "aws", f"The AWS profile of {settings.location}")
        self._location = settings.location
        why = ""
        try:
            self._found = boto3.Session(profile_name=settings.profile or None).get_credentials()
        except require("botocore.exceptions", "aws", "An AWS profile").BotoCoreError as failed:
            self._found, why = None, f" ({type(failed).__name__})"
        if self._found is None:
            raise InvalidOption(
                f"The AWS profile of {settings.location} gives no credentials{why}. Check the profile's "
                "name, and log in if it needs that.",
                location=settings.location,
            )

    def __call__(self) -> dict[str, Any]:
        """The credentials of now, in obstore's form."""
        found = self._found.get_frozen_credentials()
        until = system().clock.now_millis() / 1000 + _PROFILE_SECONDS
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.fromtimestamp(until, timezone.utc),
        }


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
            "cannot be used here. Start the process with the method 'spawn', or fork before a table is opened.",
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
