"""Every storage that the contract suite runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from tests.kits.faults import FaultyStorage
from tests.kits.marks import marks_folder
from tests.kits.stores import StoreServer

pytest_collection_modifyitems = marks_folder(__file__, pytest.mark.bare)

STORAGES: dict[str, Callable[[Path], Storage]] = {
    "local": lambda folder: LocalStorage(str(folder / "not" / "there" / "yet")),
    "memory": lambda folder: MemoryStorage(),
    "memory-below-a-root": lambda folder: MemoryStorage(root="warehouse/db.db/t"),
    "branch-in-memory": lambda folder: branch_storage(MemoryStorage(), "x"),
    "branch-on-disk": lambda folder: branch_storage(LocalStorage(str(folder / "table")), "x"),
    "faulty-local-without-faults": lambda folder: FaultyStorage(
        LocalStorage(str(folder / "table"))
    ),
    "faulty-memory-without-faults": lambda folder: FaultyStorage(MemoryStorage()),
}


STORES = ("s3", "azure", "gcs", "s3-behind-the-proxy", "azure-behind-the-proxy")


@pytest.fixture(params=[*sorted(STORAGES), *STORES])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """An empty storage of each kind. The one of GCS is always behind a proxy."""
    if request.param in STORAGES:
        yield STORAGES[request.param](tmp_path)
        return
    kind, _, proxied = request.param.partition("-")
    server: StoreServer = request.getfixturevalue(f"{kind}_server")
    if not proxied:
        yield server.storage()
        return
    with server.proxied() as proxy:
        yield server.storage(proxy)
