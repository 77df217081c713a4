"""Every storage that the contract suite runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_stream.storage.base import Storage
from paimon_stream.storage.faults import FaultyStorage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage

STORAGES: dict[str, Callable[[Path], Storage]] = {
    "local": lambda folder: LocalStorage(str(folder / "not" / "there" / "yet")),
    "memory": lambda folder: MemoryStorage(),
    "memory-below-a-root": lambda folder: MemoryStorage(root="warehouse/db.db/t"),
    "faulty-local-without-faults": lambda folder: FaultyStorage(LocalStorage(str(folder / "table"))),
    "faulty-memory-without-faults": lambda folder: FaultyStorage(MemoryStorage()),
}


@pytest.fixture(params=sorted(STORAGES))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    return STORAGES[request.param](tmp_path)
