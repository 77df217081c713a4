"""Planned faults happen exactly where they are planned."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from paimon_stream.errors import NoSpace, NotFound, StorageError, Unavailable
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment


def run_all(storage: Storage) -> None:
    """Each operation once."""
    storage.write("w", b"1")
    storage.put_if_absent("p", b"2")
    with storage.open_output("o") as stream:
        stream.write(b"3")
        stream.write(b"4")
    with storage.open_input("o") as source:
        source.read()
    storage.read("w")
    storage.stat("w")
    storage.list_files("")
    storage.list_folders("")
    storage.delete("w")


ALL = [
    ("write", "w"),
    ("put_if_absent", "p"),
    ("open_output", "o"),
    ("output.write", "o"),
    ("output.write", "o"),
    ("output.close", "o"),
    ("open_input", "o"),
    ("read", "w"),
    ("stat", "w"),
    ("list_files", ""),
    ("list_folders", ""),
    ("delete", "w"),
]


def test_every_operation_is_logged_in_order() -> None:
    storage = FaultyStorage(MemoryStorage())
    run_all(storage)
    assert list(storage.operations) == ALL
    assert not storage.fired


@pytest.mark.parametrize("moment", list(Moment))
def test_failing_each_operation_in_turn_ends_with_a_clean_run(moment: Moment) -> None:
    for at, (verb, path) in enumerate(ALL, start=1):
        storage = FaultyStorage(MemoryStorage(), [Fault(at=at, moment=moment)])
        with pytest.raises(Unavailable) as raised:
            run_all(storage)
        assert str(raised.value) == f"Planned fault {moment.value} {verb} of {path!r}."
        assert raised.value.context == {"path": path}
        assert len(storage.operations) == at
    storage = FaultyStorage(MemoryStorage(), [Fault(at=len(ALL) + 1, moment=moment)])
    run_all(storage)
    assert not storage.fired


def test_before_means_without_effect_and_after_with_it() -> None:
    for moment, there in ((Moment.BEFORE, False), (Moment.AFTER, True)):
        storage = FaultyStorage(MemoryStorage(), [Fault(at=1, moment=moment)])
        with pytest.raises(Unavailable):
            storage.put_if_absent("a", b"1")
        expected = PutResult.EXISTS if there else PutResult.CREATED
        assert storage.put_if_absent("a", b"2") is expected


def test_an_error_class_can_be_planned() -> None:
    storage = FaultyStorage(
        MemoryStorage(), [Fault(at=1, error=NoSpace), Fault(at=2, error=KeyboardInterrupt)]
    )
    with pytest.raises(NoSpace):
        storage.write("a", b"")
    with pytest.raises(KeyboardInterrupt):
        storage.write("a", b"")
    storage.write("a", b"")


def test_faults_count_only_what_they_are_about() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=2, verb="put_if_absent", path="snapshot/")])
    storage.put_if_absent("schema/schema-0", b"")
    storage.put_if_absent("snapshot/snapshot-1", b"")
    storage.read("snapshot/snapshot-1")
    with pytest.raises(Unavailable):
        storage.put_if_absent("snapshot/snapshot-2", b"")
    assert storage.inner.list_files("snapshot", "snapshot-2") == []


def test_a_real_error_of_the_inner_storage_wins_over_a_later_fault() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=1, moment=Moment.AFTER)])
    with pytest.raises(NotFound):
        storage.read("missing")


def test_after_stop_nothing_works_and_nothing_changes() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=2, moment=Moment.AFTER, stop=True)])
    storage.write("a", b"1")
    with pytest.raises(Killed):
        storage.write("b", b"2")
    assert storage.stopped
    for call in (
        lambda: storage.write("c", b""),
        lambda: storage.delete("a"),
        lambda: storage.list_files(""),
    ):
        with pytest.raises(Killed):
            call()
    with pytest.raises(Killed):
        storage.open_output("d").__enter__()
    assert [file.name for file in storage.inner.list_files("")] == ["a", "b"]


def test_killed_is_not_handled_by_who_handles_exceptions() -> None:
    assert not issubclass(Killed, Exception)


def test_a_stop_may_raise_a_storage_error_instead() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=1, stop=True, error=Unavailable)])
    for _ in range(3):
        with pytest.raises(Unavailable):
            storage.read("a")


def test_a_stopped_stream_leaves_what_it_wrote(tmp_path: Path) -> None:
    plan = [Fault(at=2, verb="output.write", cut=3, stop=True)]
    storage = FaultyStorage(LocalStorage(str(tmp_path)), plan)
    with pytest.raises(Killed):  # noqa: PT012
        with storage.open_output("a") as stream:
            stream.write(b"whole,")
            stream.write(b"cut here")
    assert storage.inner.read("a") == b"whole,cut"
    with pytest.raises(Killed):
        storage.delete("a")


def test_a_cut_stream_of_a_living_process_is_removed(tmp_path: Path) -> None:
    storage = FaultyStorage(LocalStorage(str(tmp_path)), [Fault(at=1, verb="output.write", cut=3)])
    with pytest.raises(Unavailable):
        with storage.open_output("a") as stream:
            stream.write(b"cut here")
    assert storage.list_files("") == []


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("local", [True, False])
def test_only_a_closed_stream_counts_as_written(
    tmp_path: Path, at: int, moment: Moment, local: bool
) -> None:
    inner = LocalStorage(str(tmp_path)) if local else MemoryStorage()
    storage = FaultyStorage(inner, [Fault(at=at, moment=moment)])
    with pytest.raises(StorageError):  # noqa: PT012
        with storage.open_output("a") as stream:
            stream.write(b"1")
            stream.write(b"2")
    if at == 4 and moment is Moment.AFTER:
        assert storage.read("a") == b"12"
    elif not (local and at == 1 and moment is Moment.AFTER):
        assert storage.list_files("") == []


def test_a_killed_process_never_finishes_its_stream() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=1, verb="read", stop=True)])
    with pytest.raises(Killed):  # noqa: PT012
        with storage.open_output("a") as stream:
            stream.write(b"1")
            with pytest.raises(Killed):
                storage.read("other")
    assert storage.inner.list_files("") == []


def test_a_pickled_copy_starts_with_its_own_count() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=2)])
    storage.write("a", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.read("a") == b"1"
    with pytest.raises(Unavailable):
        copy.read("a")
    assert not storage.fired
