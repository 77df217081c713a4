"""Every storage that the contract suite runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from tests.kits.faults import FaultyStorage
from tests.kits.marks import marks_folder
from tests.kits.stores import StoreServer
from tests.servers.fault_proxy import Rule

T = TypeVar("T", bound=Callable[..., object])

_marks_folder = marks_folder(__file__, pytest.mark.bare)

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
_QUICK: Final = {"local", "memory", "branch-in-memory", "faulty-memory-without-faults"}
"""The storages on which `make test` tries every rule of the contract."""
_IN_THE_STORE: Final[set[str]] = set()


def the_store_decides(test: T) -> T:
    """For a rule of the contract that holds because the store keeps it, and not because our code
    does before it asks the store. `make test` tries it on S3, Azure and Google Cloud Storage, and
    the other rules on local storages only. `make test-full` tries every rule on every storage.
    """
    _IN_THE_STORE.add(test.__name__)
    return test


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _marks_folder(items)
    for item in items:
        if item.path.parent != Path(__file__).parent or not isinstance(item, pytest.Function):
            continue
        if _is_full(item.originalname, getattr(item, "callspec", None)):
            item.add_marker(pytest.mark.full)


def _is_full(name: str, case: Any) -> bool:
    """Whether another case in `make test` shows the same."""
    given = {} if case is None else case.params
    storage, kind, rule = (given.get(one) for one in ("storage", "store_server", "rule"))
    if storage not in (None, "hdfs"):
        is_direct_store = storage in STORES and "-" not in storage
        return storage not in _QUICK and not (is_direct_store and name in _IN_THE_STORE)
    return kind in ("azure", "gcs") and rule is not None and not _is_typical(rule)


def _is_typical(rule: Rule) -> bool:
    """Whether clients of different stores may take the failure differently."""
    answered = rule.action.startswith("answer") and rule.status in (403, 404, 409, 412, 503)
    return rule.times == 1 and (answered or rule.action == "drop_answer")


@pytest.fixture(params=[*sorted(STORAGES), *STORES, pytest.param("hdfs", marks=pytest.mark.hdfs)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """An empty storage of each kind. The one of GCS is always behind a proxy."""
    if request.param in STORAGES:
        yield STORAGES[request.param](tmp_path)
        return
    kind, _, proxied = request.param.partition("-")
    if kind == "hdfs":
        yield request.getfixturevalue("hdfs_server").storage()
        return
    server: StoreServer = request.getfixturevalue(f"{kind}_server")
    if not proxied:
        yield server.storage()
        return
    with server.proxied() as proxy:
        yield server.storage(proxy)
