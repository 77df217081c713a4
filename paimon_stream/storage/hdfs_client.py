"""The connections of this process to HDFS, by hdfs-native (stores.md §HDFS).

Outages are waited for, forks refused and logins trusted as for object stores (store_client.py). Calls
differ in two ways:

- hdfs-native has no deadline for a name node or a data node that is silent. So each call runs in a
  daemon thread, and its caller stops waiting when the time is over: the call then counts as failed
  with unknown effect. The thread does not keep the process from ending. The next call gets a new
  connection, because the old one may wait for ever.
- hdfs-native repeats a call whose connection broke, and says nothing of it. So "it exists" and
  "there is no such file" may be answers to a repetition of a call that took effect. Callers look at
  what only they can have made (hdfs.py).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

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


@dataclass(slots=True)
class HdfsClient(Client):
    """One file system, as this process uses it."""

    needs: ClassVar[tuple[str, str]] = ("hdfs_native", "hdfs")

    settings: HdfsSettings

    def _run(self, effect: Callable[[Any], T], handle: Handle) -> T:
        # All handles share one connection: what each of them asks for is done here, not by hdfs-native.
        store = self._handle(Handle.CALM)
        try:
            return within(self._seconds(handle), lambda: effect(store))
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
        return self.module.Client(
            self.settings.url, {**config, **_TRIES, **attempts}, **self.settings.login
        )


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call that runs in a daemon thread. Raises what it raises, and `Late` if it has
    not ended in time. Then it may still take effect.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as failed:  # noqa: BLE001  it is raised in the thread that waits
            failures.append(failed)

    thread = threading.Thread(target=run, name="paimon-stream-hdfs", daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise hdfs_errors.Late("the call has not ended in time")
    return results[0]
