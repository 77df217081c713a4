"""A storage that fails where a test plans it: a double to test what a failure leaves behind.

    storage = FaultyStorage(MemoryStorage(), [Fault(at=7, moment=Moment.AFTER)])

Here the seventh operation takes effect and then raises `Unavailable`, as if its answer got lost.
The usual test fails operation 1, 2, 3, … in turn, until a run ends with `storage.fired` still
false.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar, cast

from paimon_stream.errors import NoSpace, PermissionDenied, StorageError, Unavailable
from paimon_stream.storage.base import Storage
from paimon_stream.storage.together import Request

T = TypeVar("T")

_WRITE: Final = "output.write"
_CLOSE: Final = "output.close"


class Moment(Enum):
    """Whether the failing operation has taken effect."""

    BEFORE = "before"
    AFTER = "after"


class Killed(BaseException):
    """Raised by the storage of a dead process. It is not an `Exception`, so that tested code cannot
    handle it.
    """


class Operation(NamedTuple):
    """One call. `verb` is the method's name; a stream adds `output.write` and `output.close`."""

    verb: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fails one operation.

    `at` counts, from 1, the operations that match `verb` and `path` (a part of the path); ""
    matches all. `error` is the class that is raised. `stop` makes every later operation of this
    storage fail as well, without effect, as if the process had died there. The default error is
    then `Killed`, and an open stream leaves what it has written. `cut` is the number of bytes of
    the failing `output.write` that are still written.
    """

    at: int
    moment: Moment = Moment.BEFORE
    error: type[BaseException] | None = None
    stop: bool = False
    cut: int | None = None
    verb: str = ""
    path: str = ""

    def fits(self, operation: Operation) -> bool:
        """Whether `at` counts the operation."""
        return self.verb in ("", operation.verb) and self.path in operation.path

    def raised(self, operation: Operation) -> BaseException:
        """The error; its message says that it was planned."""
        kind = self.error or (Killed if self.stop else Unavailable)
        text = f"Planned fault {self.moment.value} {operation.verb} of {operation.path!r}."
        return kind(text, path=operation.path) if issubclass(kind, StorageError) else kind(text)


LOST_SNAPSHOT: Final = Fault(
    at=1,
    verb="put_if_absent",
    path="snapshot/",
    moment=Moment.AFTER,
    stop=True,
    error=Unavailable,
)
"""The first snapshot is put, and from then on the storage does not answer."""


@dataclass
class _Record:
    """What has happened so far. Pickled copies start with a record of their own."""

    seen: list[int]
    operations: list[Operation] = field(default_factory=list)
    fired: list[Fault] = field(default_factory=list)
    stopped: Fault | None = None
    abandoned: list[object] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def _counted(method: str, verb: str = "") -> Any:
    """The inner storage's method, counted as an operation `verb`, or else under its own name."""

    def call(self: FaultyStorage, path: str, *args: Any, **named: Any) -> Any:
        return self._run(
            verb or method, path, lambda: getattr(self.inner, method)(path, *args, **named)
        )

    return call


class FaultyStorage(Storage):
    """Another storage, with planned faults and a log of all operations. Safe to use from many
    threads.

    Every method call is one operation, and so is each write and the close of an output stream.
    Calls for many files are an operation for each file. Reads from an `open_input` are not counted.

    >>> from paimon_stream.storage.memory import MemoryStorage
    >>> storage = FaultyStorage(MemoryStorage(), [Fault(at=2)])
    >>> storage.write("a", b"1")
    >>> storage.read("a")
    Traceback (most recent call last):
    paimon_stream.errors.Unavailable: Planned fault before read of 'a'.
    >>> storage.fired
    True
    """

    __slots__ = ("_record", "inner", "plan")

    def __init__(self, inner: Storage, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self.plan = tuple(plan)
        self._record = _Record(seen=[0] * len(self.plan))

    def __reduce__(self) -> tuple[Any, ...]:
        return FaultyStorage, (self.inner, self.plan)

    def __repr__(self) -> str:
        return f"FaultyStorage({self.inner!r}, {self.plan!r})"

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All calls so far, including failed ones."""
        with self._record.lock:
            return tuple(self._record.operations)

    @property
    def fired(self) -> bool:
        """Whether any fault has occurred."""
        return bool(self._record.fired)

    @property
    def stopped(self) -> bool:
        """Whether a fault with `stop` has occurred, so that nothing works any more."""
        return self._record.stopped is not None

    @property
    def location(self) -> str:
        """The location of the inner storage."""
        return self.inner.location

    @property
    def has_folders(self) -> bool:
        """That of the inner storage."""
        return self.inner.has_folders

    @property
    def answers_late(self) -> bool:
        """That of the inner storage."""
        return self.inner.answers_late

    read = _counted("read")
    write = _counted("write")
    put_if_absent = _counted("put_if_absent")

    @property
    def roots(self) -> tuple[str, ...]:
        """The external paths that the inner storage shows."""
        return cast("tuple[str, ...]", getattr(self.inner, "roots"))  # noqa: B009 - a `Storage` need not have them

    list_files = _counted("list_files")
    list_names = _counted("list_names", verb="list_files")
    list_folders = _counted("list_folders")
    list_below = _counted("list_below", verb="list_files")
    stat = _counted("stat")
    exists = _counted("exists", verb="stat")
    delete = _counted("delete")
    is_link = _counted("is_link", verb="stat")
    open_input = _counted("open_input")

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Like the inner storage. A planned fault occurs when the context is entered."""
        return _FaultyOutput(self, path)

    def together(self, requests: Sequence[Request]) -> list[Any]:
        """Like the inner storage. What the requests do is counted, not this call."""
        return self.inner.together(requests)

    def _run(self, verb: str, path: str, effect: Callable[[], T]) -> T:
        operation = Operation(verb, path)
        fault = self._due(operation)
        if fault is None:
            return effect()
        if fault.moment is Moment.AFTER:
            effect()
        raise fault.raised(operation)

    def _due(self, operation: Operation) -> Fault | None:
        """Counts the operation. Returns the fault that occurs now, if any."""
        record = self._record
        with record.lock:
            record.operations.append(operation)
            if record.stopped is not None:
                raise record.stopped.raised(operation)
            due = None
            for position, fault in enumerate(self.plan):
                if fault.fits(operation):
                    record.seen[position] += 1
                    due = fault if due is None and record.seen[position] == fault.at else due
            if due is not None:
                record.fired.append(due)
                record.stopped = due if due.stop else None
            return due

    def _abandon(self, stream: object) -> None:
        """Keeps an inner stream from being closed or collected, because nobody does that for a dead
        process.
        """
        with self._record.lock:
            self._record.abandoned.append(stream)


class _FaultyOutput:
    """The context of `open_output`."""

    def __init__(self, storage: FaultyStorage, path: str) -> None:
        self.storage = storage
        self.path = path
        self.context = storage.inner.open_output(path)

    def __enter__(self) -> BinaryIO:
        operation = Operation("open_output", self.path)
        fault = self.storage._due(operation)
        if fault is None:
            return cast(
                "BinaryIO", _FaultyStream(self.storage, self.path, self.context.__enter__())
            )
        if fault.moment is Moment.AFTER:
            self.storage._abandon((self.context, self.context.__enter__()))
        raise fault.raised(operation)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._give_up(kind, error, trace)
            return
        operation = Operation(_CLOSE, self.path)
        try:
            fault = self.storage._due(operation)
        except BaseException:
            self.storage._abandon(self.context)
            raise
        if fault is None:
            self.context.__exit__(None, None, None)
            return
        planned = fault.raised(operation)
        if fault.moment is Moment.AFTER:
            self.context.__exit__(None, None, None)
        else:
            self._give_up(type(planned), planned, None)
        raise planned

    def _give_up(
        self, kind: type[BaseException] | None, error: BaseException, trace: TracebackType | None
    ) -> None:
        if self.storage.stopped:
            self.storage._abandon(self.context)
            return
        # The inner context raises the error again when it is done; the caller raises it, too.
        try:
            self.context.__exit__(kind, error, trace)
        except BaseException as again:
            if again is not error:
                raise


class _FaultyStream:
    """The stream of an `open_output`. It counts writes and passes everything else on."""

    def __init__(self, storage: FaultyStorage, path: str, inner: BinaryIO) -> None:
        self.storage = storage
        self.path = path
        self.inner = inner

    def write(self, data: Any) -> int:
        """Writes all of the data, or as much as the fault permits."""
        operation = Operation(_WRITE, self.path)
        fault = self.storage._due(operation)
        if fault is None:
            return self.inner.write(data)
        if fault.moment is Moment.AFTER or fault.cut is not None:
            self.inner.write(memoryview(data).cast("B")[: fault.cut])
            self.inner.flush()
        raise fault.raised(operation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


FAULTS: Final[dict[str, dict[str, Any]]] = {
    "before": {"moment": Moment.BEFORE},
    "after": {"moment": Moment.AFTER},
    "refused": {"moment": Moment.BEFORE, "error": PermissionDenied},
    "disk full": {"moment": Moment.BEFORE, "error": NoSpace},
    "killed before": {"moment": Moment.BEFORE, "stop": True},
    "killed after": {"moment": Moment.AFTER, "stop": True},
}
"""The ways in which an operation fails, as arguments of `Fault`."""
OFTEN_FAULTS: Final = ("refused", "killed after")
"""The two that differ most: nothing has happened and the process goes on; all has, and it is gone."""
