"""Threads that carry out units beside a stream, and do not keep the process alive."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class DaemonThreads(Executor):
    """Runs at most `most` calls at a time. Unlike those of a `ThreadPoolExecutor`, its threads end with the
    process, and there is none while nothing is to be done."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor.submit`. Raises `RuntimeError` if a thread is needed and none can begin."""
        future: Future[Any] = Future()
        with self._lock:
            self._calls.append((future, lambda: fn(*args, **kwargs)))
            begins = self._threads < self._most
            self._threads += begins
        if begins:
            try:
                threading.Thread(target=self._work, name="paimon-stream-compact", daemon=True).start()
            except RuntimeError:  # the system has no more threads now
                future.cancel()
                with self._lock:
                    self._threads -= 1
                raise
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._threads -= 1
                    return
                future, call = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as why:  # noqa: BLE001  whoever asks for the result judges it
                future.set_exception(why)
            else:
                future.set_result(result)
