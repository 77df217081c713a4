"""What tests of races share: a storage that runs an action at a chosen operation, and work that
stops before a chosen operation until the test lets it continue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paimon_stream.errors import PaimonStreamError
from paimon_stream.storage.base import PutResult, Storage


@dataclass
class Meanwhile:
    """Passes all calls on to `inner`, and calls `what` just before operation number `at`."""

    inner: Storage
    at: int
    what: Callable[[], None]
    seen: int = 0

    def __getattr__(self, name: str) -> object:
        made = getattr(self.inner, name)
        if not callable(made):
            return made

        def call(*args: object) -> object:
            self.seen += 1
            if self.seen == self.at:
                self.what()
            return made(*args)

        return call

    @property
    def happened(self) -> bool:
        """Whether that operation was reached."""
        return self.seen >= self.at


class OncePublished:
    """Passes all calls on to `inner`, and calls `what` just after a snapshot was put, before its
    writer confirms it: the snapshot with the id `snapshot_id`, or else the first one.
    """

    def __init__(
        self, inner: Storage, what: Callable[[], object], snapshot_id: int | None = None
    ) -> None:
        self.inner = inner
        self._prefix = "snapshot/snapshot-"
        if snapshot_id is not None:
            self._prefix += str(snapshot_id)
        self._what: Callable[[], object] | None = what

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_if_absent(self, path: str, content: bytes) -> PutResult:
        result = self.inner.put_if_absent(path, content)
        what = self._what
        if what is not None and path.startswith(self._prefix):
            self._what = None
            what()
        return result


class Stopped:
    """Work in a thread of its own that stops before operation number `at` of its storage.

    The constructor returns once the work has stopped there or has ended. `finish` lets it run to
    its end.
    """

    def __init__(self, storage: Storage, at: int, work: Callable[[Storage], object]) -> None:
        self.error: BaseException | None = None
        self._reached, self._go_on = threading.Event(), threading.Event()
        self._storage = Meanwhile(storage, at, self._stop)
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()
        assert self._reached.wait(900)

    @property
    def happened(self) -> bool:
        """Whether that operation was reached."""
        return self._storage.happened

    def finish(self) -> None:
        """Lets the work continue, and waits for its end. It may be called again."""
        self._go_on.set()
        self._thread.join(900)
        assert not self._thread.is_alive()

    def _stop(self) -> None:
        self._reached.set()
        assert self._go_on.wait(900)

    def _run(self, work: Callable[[Storage], object]) -> None:
        try:
            work(self._storage)  # type: ignore[arg-type]
        except PaimonStreamError as error:
            self.error = error
        finally:
            self._reached.set()
