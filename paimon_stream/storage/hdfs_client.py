"""The connections of this process to HDFS, by hdfs-native (stores.md §11).

Outages are waited for, forks refused and logins trusted as for object stores (store_client.py).
Calls differ in two ways:

- hdfs-native has no deadline for a name node or a data node that is silent. So each call runs in a
  daemon thread, and its caller stops waiting when the time is over: the call then counts as failed
  with unknown effect. The thread does not keep the process from ending. The next call gets a new
  connection, because the old one may wait for ever.
- hdfs-native repeats a call whose connection broke, and says nothing of it. So "it exists" and
  "there is no such file" may be answers to a repetition of a call that took effect. Callers look at
  what only they can have made (hdfs.py).
"""

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from paimon_stream.errors import PaimonStreamError, Unavailable
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage import hdfs_errors, store_errors
from paimon_stream.storage.hdfs_sources import HdfsSettings
from paimon_stream.storage.store_client import Asking, Client, Handle

T = TypeVar("T")

_LARGE: Final = 6
"""How many times longer a call with much content may take."""
_TRIES: Final = {
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}
"""The waits of hdfs-native between two name nodes. The waits of an outage are our own."""
_PROVIDER: Final = "dfs.client.failover.proxy.provider."
_ACTIVE_ONLY: Final = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
"""With a provider for observers, hdfs-native reads from a node that may know an older state. Then a
temporary file could seem to be there whose rename has taken effect."""

_LEAST_CLOSING_SECONDS: Final = 0.02
"""How long closing a file may take, beside syncs, before its lease is recovered."""
_MOST_CLOSING_SECONDS: Final = 0.4
"""Leases are not recovered so late: hdfs-native asks again after 0.5."""
_SYNCS: Final = 4
"""Closing a file may take as long as this number of syncs in addition."""
_MOST_AT_EXIT_SECONDS: Final = 1.0
_THREAD: Final = "paimon-stream-hdfs"


@dataclass(slots=True)
class Pace:
    """How files are closed (`finish`).

    Attributes:
        patience: how many seconds closing a file may take, beside syncs, before its lease is
            recovered. They double for the whole process when that did not close a file: then the
            data nodes are slower than expected. With `_MOST_CLOSING_SECONDS` no lease is recovered.
    """

    patience: float = _LEAST_CLOSING_SECONDS
    _closing: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The time in which one thread closes its file. A data node tells of the blocks of files
        that are closed at once in one message after another, and is asked too early for most.
        """
        has_turn = self._closing.acquire(timeout=_LEAST_CLOSING_SECONDS)
        try:
            yield
        finally:
            if has_turn:
                self._closing.release()

    def was_too_short(self, patience: float) -> None:
        """Doubles this patience, once for all files that were closed with it at the same time."""
        self.patience = max(self.patience, min(2 * patience, _MOST_CLOSING_SECONDS))


UNHURRIED: Final = Pace(_MOST_CLOSING_SECONDS)
"""For a file whose content is not held: if its writer failed, nobody could write it again."""


@dataclass(slots=True)
class HdfsClient(Client):
    """One file system, as this process uses it.

    Attributes:
        pace: how files are closed.
        left_behind: the paths in HDFS of temporary files that nobody needs and that could not be
            deleted in an outage. The next call that HDFS answers deletes them.
    """

    needs: ClassVar[tuple[str, str]] = ("hdfs_native", "hdfs")

    settings: HdfsSettings
    pace: Pace = field(default_factory=Pace)
    left_behind: set[str] = field(default_factory=set)

    def ask(
        self,
        request: store_errors.Request,
        runtime: Runtime,
        effect: Callable[[Any], T],
        handle: Handle = Handle.CALM,
    ) -> T:
        """See `Client.ask`. When HDFS has answered, what was left behind can go."""
        try:
            result = Client.ask(self, request, runtime, effect, handle)
        except Unavailable:
            raise
        except PaimonStreamError:
            self._delete_left_behind()
            raise
        self._delete_left_behind()
        return result

    def _delete_left_behind(self) -> None:
        """Deletes the files of `left_behind`, as far as HDFS answers."""
        with suppress(KeyError):  # raised when none is left, perhaps by another thread
            while True:
                full = self.left_behind.pop()
                try:
                    self._run(partial(_delete, full), Handle.ONCE)
                except Exception as failed:
                    failure = self._failure(failed)
                    if failure is None:
                        raise
                    if failure.rule.kind is Unavailable:
                        self.left_behind.add(full)
                        return

    def _run(self, effect: Callable[[Any], T], handle: Handle) -> T:
        # All handles share one connection: what each of them asks for is done here, not by
        # hdfs-native.
        store = self._handle(Handle.CALM)
        try:
            return Call(lambda: effect(store)).result(self._seconds(handle))
        except hdfs_errors.Late:
            self._handles.clear()
            raise

    def _seconds(self, handle: Handle) -> float:
        """How long a call may take."""
        if not self.answered:
            return self.settings.connect_timeout_millis / 1000
        is_large = handle in (Handle.LARGE, Handle.PARTS)
        return self.settings.timeout_millis * (_LARGE if is_large else 1) / 1000

    def _prepare_repetition(
        self, asking: Asking, failure: store_errors.Failure, *, is_first: bool
    ) -> None:
        if is_first and failure.rule is hdfs_errors.LATE:
            raise failure.error(asking.request)  # nobody would wait for it three times
        Client._prepare_repetition(self, asking, failure, is_first=is_first)

    def _failure(self, failed: BaseException) -> store_errors.Failure | None:
        is_of_hdfs = isinstance(failed, (OSError, RuntimeError, ValueError, NotImplementedError))
        if not (is_of_hdfs or store_errors.is_panic(failed)):
            return None
        return hdfs_errors.failure_of(failed, right=self.right)

    def _open(self, handle: Handle) -> Any:
        config = dict(self.settings.config)
        nodes = [name for name in config if name.startswith("dfs.namenode.rpc-address.")]
        attempts = {"dfs.client.failover.max.attempts": str(max(1, len(nodes)))}
        # Also in place of what hdfs-native itself finds in the files of this machine.
        service = self.settings.url.removeprefix("hdfs://").partition(":")[0]
        provider = {_PROVIDER + service: _ACTIVE_ONLY}
        return self.module.Client(
            self.settings.url, {**config, **_TRIES, **attempts, **provider}, **self.settings.login
        )

    def keep_forever(self) -> None:
        """Keeps hdfs-native's clients from being freed in a child that was forked. That would wait
        for their threads, which only the parent has, and the child would never end.
        """
        # Only here, because each worker of Spark imports this module, and few processes fork.
        import ctypes

        for native in self._handles.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))


class Call(Generic[T]):
    """A call that runs in a daemon thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._results: list[T] = []
        self._failures: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, name=_THREAD, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as failed:  # noqa: BLE001  it is raised in the thread that waits
            self._failures.append(failed)

    def result(self, seconds: float | None) -> T:
        """What the call returns, or raises. Raises `Late` if it has not ended in time: then it may
        still take effect. None waits for as long as it takes.
        """
        self.thread.join(seconds)
        if self._failures:
            raise self._failures[0]
        if not self._results:
            raise hdfs_errors.Late("the call has not ended in time")
        return self._results[0]


class WriterBroken(Exception):
    """The lease of a file was recovered too early, so its writer has failed. The content goes to
    another file.
    """


def _delete(full: str, hdfs: Any) -> None:
    hdfs.delete(full, False)


def finish(hdfs: Any, writer: Any, full: str, size: int, pace: Pace) -> None:
    """Makes a new file durable and closes it. The data nodes bring the content to their disks
    before. They cannot do that for erasure-coded files, whose content is on several of them.

    A name node closes a file only when a data node has told it of the last block. Often that comes
    a few milliseconds after hdfs-native has asked, which asks again after half a second. Recovering
    the lease closes the file at once if its last block is known by then, and changes nothing if the
    name node has been asked and the block is not known yet. So it saves most of that time, for a
    file that nobody else knows. If the content is still under way, it makes the writer fail, and
    the caller writes another file. So it comes later where the data nodes took long to sync, or not
    at all. Raises `WriterBroken` then.

    Args:
        hdfs: hdfs-native's client.
        writer: its writer, which has got all of the content.
        full: the path of the file, which only this writer knows.
        size: the bytes of the content.
        pace: when the lease is recovered.
    """
    if size == 0:
        writer.close()
        return
    clock = system().clock
    began = clock.monotonic()
    with suppress(NotImplementedError):
        writer.hsync()
    synced = _SYNCS * (clock.monotonic() - began)
    with pace.turn():
        closing = Call(writer.close)
        with suppress(hdfs_errors.Late):
            closing.result(_LEAST_CLOSING_SECONDS + synced)
            return
    patience = pace.patience
    wait = patience - _LEAST_CLOSING_SECONDS
    while patience + synced < _MOST_CLOSING_SECONDS:
        with suppress(hdfs_errors.Late):
            closing.result(wait)
            return
        recovery = _recovery(hdfs, full, size)
        if recovery is _Recovery.CLOSED:
            return  # the thread ends when hdfs-native has asked again
        if recovery is _Recovery.TOO_EARLY:
            pace.was_too_short(patience)
            _end(closing)
            return
        wait = _LEAST_CLOSING_SECONDS
    closing.result(None)


class _Recovery(Enum):
    """What recovering the lease of a file has done.

    Members:
        NOTHING: nothing, because the name node does not know the last block yet.
        CLOSED: it has closed the file.
        TOO_EARLY: perhaps it has made the writer fail.
    """

    NOTHING = "nothing"
    CLOSED = "closed"
    TOO_EARLY = "too early"


def _recovery(hdfs: Any, full: str, size: int) -> _Recovery:
    """Recovers the lease of a file with this number of bytes."""
    try:
        is_closed = hdfs.recover_lease(full) and hdfs.get_file_info(full).length == size
    except FileExistsError:
        return _Recovery.NOTHING
    except (OSError, RuntimeError):
        return _Recovery.TOO_EARLY  # what failed is seen when the file is closed
    return _Recovery.CLOSED if is_closed else _Recovery.TOO_EARLY


def _end(closing: Call[None]) -> None:
    """Waits for a writer that may have been broken."""
    try:
        closing.result(None)
    except (OSError, RuntimeError) as failed:
        raise WriterBroken from failed


@atexit.register
def _await_calls() -> None:
    """Waits for the calls that nobody waits for any more: those that were given up, and those that
    close files of which hdfs-native does not know yet that they are closed. A call of hdfs-native
    that ended while the interpreter ends would abort the process.
    """
    clock = system().clock
    end = clock.monotonic() + _MOST_AT_EXIT_SECONDS
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join(max(0.0, end - clock.monotonic()))
