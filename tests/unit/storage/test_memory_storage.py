"""The properties of a storage in memory that the contract does not cover."""

from __future__ import annotations

import pickle

import pytest

from paimon_stream.errors import InvalidOption
from paimon_stream.runtime import SimulatedClock
from paimon_stream.storage.memory import MemoryStorage


def test_storages_of_one_name_share_their_files() -> None:
    MemoryStorage("shared").write("a", b"1")
    try:
        assert MemoryStorage("shared").read("a") == b"1"
        assert MemoryStorage("other").list_files("") == []
        assert MemoryStorage("shared") == MemoryStorage("shared")
    finally:
        MemoryStorage("shared").clear()
    assert MemoryStorage("shared").list_files("") == []


def test_nameless_storages_share_nothing() -> None:
    one, two = MemoryStorage(), MemoryStorage()
    one.write("a", b"1")
    assert two.list_files("") == []
    assert one != two


def test_a_root_is_a_folder_of_the_store() -> None:
    store = MemoryStorage()
    table = MemoryStorage(store.name, root="db.db/t")
    table.write("snapshot/LATEST", b"1")
    assert store.read("db.db/t/snapshot/LATEST") == b"1"
    assert store.list_folders("db.db") == ["t"]
    assert table.list_files("snapshot")[0].path == "snapshot/LATEST"
    assert table.location == f"{store.location}/db.db/t"
    with pytest.raises(InvalidOption):
        MemoryStorage(root="../up")


def test_times_come_from_the_given_clock() -> None:
    clock = SimulatedClock(millis=1000)
    storage = MemoryStorage(clock=clock)
    storage.write("a", b"")
    clock.advance(5)
    copy = pickle.loads(pickle.dumps(storage))
    copy.write("b", b"")
    assert [file.modified_millis for file in storage.list_files("")] == [1000, 1005]


def test_a_storage_is_an_immutable_value() -> None:
    storage = MemoryStorage()
    with pytest.raises(AttributeError, match="cannot assign"):
        storage.root = "elsewhere"
    copy = pickle.loads(pickle.dumps(storage))
    assert (copy, hash(copy)) == (storage, hash(storage))
    assert repr(storage) == f"MemoryStorage({storage.location!r})"


def test_data_is_copied_in() -> None:
    storage = MemoryStorage()
    data = bytearray(b"before")
    storage.write("a", data)
    data[:] = b"after!"
    assert storage.read("a") == b"before"
