"""A run of something for each operation of the storage that it makes, which then fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tests.kits.faults import Fault, FaultyStorage
from tests.kits.places import following

T = TypeVar("T")


def attempts(
    make: Callable[[], T], fault: Mapping[str, Any], least: int = 10
) -> Iterator[tuple[T, FaultyStorage]]:
    """A fresh case for each operation, and its storage (`case.bench.storage`) with that operation
    failing. Ends with a run in which nothing failed, which must come after more than `least`
    operations.
    """
    at, fired = 0, True
    while fired:
        at = following(at)
        case: Any = make()
        storage = FaultyStorage(case.bench.storage, [Fault(at=at, **fault)])
        yield case, storage
        fired = storage.fired
    assert at > least, "there are more operations than that"
