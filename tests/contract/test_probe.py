"""The probe refuses storages that only seem to create atomically."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paimon_stream.errors import NotAtomic, PermissionDenied, Unavailable
from paimon_stream.runtime import simulated
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.storage.store_client import probe_atomic_create
from tests.kits.faults import Fault, FaultyStorage, Moment


class Overwriting(MemoryStorage):
    """A gateway that ignores the condition and replaces."""

    __slots__ = ()

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        self.write(path, data)
        return PutResult.CREATED


class Lying(MemoryStorage):
    """Says that the file exists, and has replaced it nevertheless."""

    __slots__ = ()

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        result = super().put_if_absent(path, data)
        self.write(path, data)
        return result


class Forgetful(MemoryStorage):
    """Keeps the first file, and says that it made the second one, too."""

    __slots__ = ()

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        super().put_if_absent(path, data)
        return PutResult.CREATED


@pytest.mark.parametrize("kind", [Overwriting, Lying, Forgetful])
def test_a_storage_that_is_not_atomic_is_refused_with_the_cure(
    kind: Callable[[], MemoryStorage],
) -> None:
    storage = kind()
    with pytest.raises(NotAtomic, match=r"paimon-stream\.commit\.guard=trust") as raised:
        probe_atomic_create(storage, "snapshot", simulated(1).ids)
    assert raised.value.context["location"] == storage.location
    assert storage.list_folders("") == []


def test_a_storage_that_cannot_be_written_says_so() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=1, error=PermissionDenied)])
    with pytest.raises(PermissionDenied):
        probe_atomic_create(storage, "", simulated(1).ids)


def test_the_key_is_removed_whatever_fails() -> None:
    for at in (1, 2, 3):
        storage = FaultyStorage(MemoryStorage(), [Fault(at=at, moment=Moment.AFTER)])
        with pytest.raises(Unavailable):
            probe_atomic_create(storage, "snapshot", simulated(1).ids)
        assert storage.inner.list_folders("") == []


def test_a_key_that_cannot_be_removed_is_no_failure() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=1, verb="delete")])
    probe_atomic_create(storage, "snapshot", simulated(1).ids)
    assert storage.fired
    assert storage.list_files("snapshot") == []
