"""What every storage promises."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_stream.errors import (
    AlreadyExists,
    CorruptMetadata,
    InvalidOption,
    NotFound,
    StorageError,
)
from paimon_stream.runtime import simulated, system
from paimon_stream.storage.base import Bundle, PutResult, Storage
from paimon_stream.storage.branch import BranchStorage
from paimon_stream.storage.store_client import probe_atomic_create
from tests.contract.conftest import the_store_decides

pytestmark = pytest.mark.lowest

THREADS = 8
ESCAPES = ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/.", "a\0b", "a\ud800b"]


@pytest.fixture(autouse=True)
def _eager_thread_switches() -> Iterator[None]:
    """Makes the interpreter change threads as often as it can, so that races happen."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def run_together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Runs it in several threads that start at the same moment. The first error fails the test."""
    barrier = threading.Barrier(threads)
    errors: list[BaseException] = []

    def one(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  (raised again below)
            errors.append(error)

    workers = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def test_every_kind_is_a_storage(storage: Storage) -> None:
    assert isinstance(storage, Storage)


def test_an_empty_storage_finds_nothing(storage: Storage) -> None:
    assert storage.list_files("") == []
    assert storage.list_folders("") == []
    assert storage.list_files("snapshot", "snapshot-") == []
    assert storage.list_folders("no/such") == []
    storage.delete("snapshot/snapshot-1")
    assert not storage.is_link("snapshot/snapshot-1")


@the_store_decides
def test_what_was_written_is_read_back(storage: Storage) -> None:
    for data in (b"", b"x", bytes(range(256)) * 5000):
        storage.write("a/b/c", data)
        assert storage.read("a/b/c") == data
        assert storage.stat("a/b/c").size == len(data)
    assert storage.stat("a/b/c").path == "a/b/c"
    assert storage.stat("a/b/c").name == "c"


def test_a_file_that_is_larger_than_its_limit_is_refused_by_name(storage: Storage) -> None:
    storage.write("f/a", b"12345")
    assert storage.read("f/a", 5) == b"12345"
    with pytest.raises(CorruptMetadata, match="f/a has 5 bytes") as raised:
        storage.read("f/a", 4)
    assert raised.value.context["path"].endswith("f/a")


@the_store_decides
def test_the_second_create_changes_nothing(storage: Storage) -> None:
    assert storage.put_if_absent("snapshot/snapshot-1", b"first") is PutResult.CREATED
    assert storage.put_if_absent("snapshot/snapshot-1", b"second") is PutResult.EXISTS
    assert storage.read("snapshot/snapshot-1") == b"first"
    storage.delete("snapshot/snapshot-1")
    assert storage.put_if_absent("snapshot/snapshot-1", b"third") is PutResult.CREATED
    assert storage.read("snapshot/snapshot-1") == b"third"


@the_store_decides
def test_a_file_that_write_made_is_not_created_again(storage: Storage) -> None:
    storage.write("LATEST", b"1")
    assert storage.put_if_absent("LATEST", b"2") is PutResult.EXISTS
    assert storage.read("LATEST") == b"1"


@the_store_decides
def test_of_many_threads_exactly_one_creates_each_file(storage: Storage) -> None:
    keys = [f"snapshot/snapshot-{n}" for n in range(20)]
    created: dict[str, list[int]] = {key: [] for key in keys}

    def race(number: int) -> None:
        for key in keys:
            if storage.put_if_absent(key, b"%d" % number * 1000) is PutResult.CREATED:
                created[key].append(number)

    run_together(race)
    for key in keys:
        assert len(created[key]) == 1
        assert storage.read(key) == b"%d" % created[key][0] * 1000
    assert [file.name for file in storage.list_files("snapshot")] == sorted(key[9:] for key in keys)


def test_increments_by_create_lose_none(storage: Storage) -> None:
    """Compare-and-set as a committer does it: a thread counts by creating the next number."""
    each = 10

    def count(number: int) -> None:
        done = 0
        while done < each:
            following = len(storage.list_files("n")) + 1
            if storage.put_if_absent(f"n/{following:05}", b"%d" % number) is PutResult.CREATED:
                done += 1

    run_together(count)
    assert len(storage.list_files("n")) == THREADS * each


@the_store_decides
def test_a_created_file_is_seen_whole_or_not_at_all(storage: Storage) -> None:
    content = b"0123456789abcdef" * 65536
    finished = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for n in range(20):
                storage.put_if_absent(f"f/{n}", content)
            finished.set()
            return
        while not finished.is_set():
            for file in storage.list_files("f"):
                assert file.size == len(content)
                assert storage.read(file.path) == content

    run_together(work, threads=3)


def test_files_are_written_together_and_hints_replaced(storage: Storage) -> None:
    storage.write_all([])
    storage.write_all([("m/a", b"1"), ("m/b", b"2"), ("n", b"3"), ("m/a", b"4")])
    storage.write_hint("m/b", b"5")
    assert [storage.read(path) for path in ("m/a", "m/b", "n")] == [b"4", b"5", b"3"]
    with pytest.raises(InvalidOption):
        storage.write_all([("fine", b""), ("../x", b"")])


def test_a_bundle_writes_when_it_is_flushed_and_when_it_holds_much(storage: Storage) -> None:
    bundle = Bundle(storage)
    bundle.write("a", b"1")
    assert storage.list_files("") == []
    bundle.write("b", bytes(16 << 20))
    assert [stat.path for stat in storage.list_files("")] == ["a", "b"]
    bundle.write("c", b"3")
    bundle.flush()
    bundle.flush()
    assert storage.read("c") == b"3"
    for _ in range(3):
        bundle.write("d", bytes(10 << 20))
        assert bundle.drop("d")
    assert not bundle.drop("d")
    bundle.write("e", b"5")
    assert not storage.exists("e"), "what was dropped does not count as held"


def test_a_replaced_file_is_seen_old_or_new(storage: Storage) -> None:
    contents = {bytes([letter]) * 200_000 for letter in b"abc"}
    storage.write("LATEST", next(iter(contents)))
    finished = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for _ in range(15):
                for content in contents:
                    storage.write("LATEST", content)
            finished.set()
            return
        while not finished.is_set():
            assert storage.read("LATEST") in contents

    run_together(work, threads=3)


@pytest.mark.parametrize("path", ESCAPES)
def test_a_path_that_leaves_the_root_is_refused(storage: Storage, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.read(path),
        lambda: storage.write(path, b""),
        lambda: storage.put_if_absent(path, b""),
        lambda: storage.stat(path),
        lambda: storage.exists(path),
        lambda: storage.delete(path),
        lambda: storage.is_link(path),
        lambda: storage.open_input(path),
        lambda: storage.open_output(path).__enter__(),
    ]
    if path:
        calls += [lambda: storage.list_files(path), lambda: storage.list_folders(path)]
        calls.append(lambda: storage.list_names(path))
    for call in calls:
        with pytest.raises(InvalidOption, match="leave the table's folder"):
            call()


@the_store_decides
def test_a_missing_file_is_not_found(storage: Storage) -> None:
    storage.write("folder/file", b"")
    calls: tuple[Callable[[str], object], ...] = (storage.read, storage.stat, storage.open_input)
    for path in ("missing", "folder", "folder/missing", "folder/file/below"):
        for call in calls:
            with pytest.raises(NotFound) as raised:
                call(path)
            assert path in str(raised.value)
            assert raised.value.context["path"].endswith(path)
        assert not storage.exists(path)
    assert storage.exists("folder/file")


@the_store_decides
def test_files_are_listed_by_name_and_prefix(storage: Storage) -> None:
    for name in ("snapshot-10", "snapshot-9", "LATEST", "snapshot-2", "snap"):
        storage.write(f"snapshot/{name}", b"xy")
    storage.write("snapshot/deeper/snapshot-3", b"")
    listed = storage.list_files("snapshot", "snapshot-")
    assert [file.path for file in listed] == [
        "snapshot/snapshot-10",
        "snapshot/snapshot-2",
        "snapshot/snapshot-9",
    ]
    assert [file.size for file in listed] == [2, 2, 2]
    assert listed[0] == storage.stat("snapshot/snapshot-10")
    assert [file.name for file in storage.list_files("snapshot")] == [
        "LATEST",
        "snap",
        "snapshot-10",
        "snapshot-2",
        "snapshot-9",
    ]
    for folder, prefix in (("snapshot", "snapshot-"), ("snapshot", ""), ("", ""), ("none", "")):
        names = [file.name for file in storage.list_files(folder, prefix)]
        assert storage.list_names(folder, prefix) == names


@the_store_decides
def test_folders_are_listed_by_name(storage: Storage) -> None:
    storage.write("dt=2024-01-02/bucket-0/f", b"")
    storage.write("dt=2024-01-01/bucket-0/f", b"")
    storage.write("dt=2024-01-01/bucket-1/f", b"")
    storage.write("file", b"")
    assert storage.list_folders("") == ["dt=2024-01-01", "dt=2024-01-02"]
    assert storage.list_folders("dt=2024-01-01") == ["bucket-0", "bucket-1"]
    assert storage.list_folders("dt=2024-01-01/bucket-0") == []
    assert [file.path for file in storage.list_files("")] == ["file"]


def test_hidden_names_are_not_listed(storage: Storage) -> None:
    if isinstance(storage, BranchStorage):
        pytest.skip("its root is that of the whole table")
    storage.write("snapshot/.snapshot-1.uuid.tmp", b"cut o")
    storage.write(".hidden/file", b"")
    assert storage.list_files("snapshot") == []
    assert storage.list_folders("") == ["snapshot"]
    assert storage.read("snapshot/.snapshot-1.uuid.tmp") == b"cut o"


@the_store_decides
def test_hidden_files_are_listed_where_the_prefix_asks_for_them(storage: Storage) -> None:
    for name in (".a.tmp", ".b", "c"):
        storage.write(f"folder/{name}", b"12")
    assert [(one.path, one.size) for one in storage.list_files("folder", ".")] == [
        ("folder/.a.tmp", 2),
        ("folder/.b", 2),
    ]
    assert [one.name for one in storage.list_files("folder", ".b")] == [".b"]


def test_nothing_but_the_file_itself_is_left_behind(storage: Storage) -> None:
    storage.write("f/a", b"1")
    storage.put_if_absent("f/b", b"1")
    storage.put_if_absent("f/b", b"2")
    storage.delete("f/a")
    storage.delete("f/b")
    storage.delete("f")
    assert storage.list_folders("") == []


@the_store_decides
def test_deleting_a_folder_that_holds_something_does_nothing(storage: Storage) -> None:
    storage.write("folder/file", b"kept")
    storage.delete("folder")
    assert storage.read("folder/file") == b"kept"


@the_store_decides
def test_a_stream_makes_a_file(storage: Storage) -> None:
    with storage.open_output("p=1/bucket-0/data-1.bin") as stream:
        stream.write(b"ab")
        assert stream.tell() == 2
        stream.write(b"c" * 3_000_000)
    assert storage.read("p=1/bucket-0/data-1.bin") == b"ab" + b"c" * 3_000_000


def test_a_stream_that_its_user_closes_makes_a_file_too(storage: Storage) -> None:
    with storage.open_output("a") as stream:
        stream.write(b"data")
        stream.close()
    assert storage.read("a") == b"data"


@the_store_decides
def test_a_stream_that_ends_with_an_exception_leaves_no_file(storage: Storage) -> None:
    for error in (KeyError("ours"), KeyboardInterrupt()):
        with pytest.raises(type(error)):  # noqa: PT012
            with storage.open_output("a/b") as stream:
                stream.write(b"half")
                raise error
    assert storage.list_files("a") == []
    assert storage.put_if_absent("a/b", b"") is PutResult.CREATED


@the_store_decides
def test_a_stream_does_not_replace_a_file(storage: Storage) -> None:
    storage.write("a", b"kept")
    with pytest.raises(AlreadyExists):  # at its start or at its end
        with storage.open_output("a") as stream:
            stream.write(b"new")
    assert storage.read("a") == b"kept"


@the_store_decides
def test_of_many_streams_to_one_name_one_wins(storage: Storage) -> None:
    winners: list[int] = []

    def work(number: int) -> None:
        try:
            with storage.open_output("same") as stream:
                stream.write(b"%d" % number * 100)
        except AlreadyExists:
            return
        winners.append(number)

    run_together(work)
    assert len(winners) == 1
    assert storage.read("same") == b"%d" % winners[0] * 100


@the_store_decides
def test_arrow_writes_and_reads_parquet_through_it(storage: Storage) -> None:
    table = pa.table({"id": list(range(10_000)), "name": [str(n) for n in range(10_000)]})
    with storage.open_output("data.parquet") as stream:
        pq.write_table(table, stream)
    with storage.open_input("data.parquet") as source:
        assert pq.ParquetFile(source).read(columns=["name"]).equals(table.select(["name"]))


def test_modification_times_do_not_go_back(storage: Storage) -> None:
    storage.write("a", b"1")
    first = storage.stat("a").modified_millis
    storage.write("a", b"2")
    assert storage.stat("a").modified_millis >= first > 1_500_000_000_000


@the_store_decides
def test_a_pickled_copy_sees_the_same_files(storage: Storage) -> None:
    storage.write("a", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.location == storage.location
    assert copy.read("a") == b"1"
    copy.write("b", b"2")
    assert storage.read("b") == b"2"


def test_the_location_says_where_without_secrets(storage: Storage) -> None:
    assert storage.location
    assert not storage.location.endswith("/")


@the_store_decides
def test_the_probe_proves_atomic_creates_and_leaves_nothing(storage: Storage) -> None:
    if isinstance(storage, BranchStorage):
        pytest.skip("its root is that of the whole table")
    probe_atomic_create(storage, "snapshot", system().ids)
    probe_atomic_create(storage, "snapshot", simulated(1).ids)
    probe_atomic_create(storage, "snapshot", simulated(1).ids)
    assert storage.list_files("snapshot") == []
    storage.delete("snapshot")
    assert storage.list_folders("") == []


def test_errors_are_storage_errors_with_the_path(storage: Storage) -> None:
    with pytest.raises(StorageError) as raised:
        storage.read("no/such")
    assert pickle.loads(pickle.dumps(raised.value)).context == raised.value.context


@the_store_decides
def test_many_files_are_deleted_at_once(storage: Storage) -> None:
    names = [f"f/{n}" for n in range(40)]
    storage.write_all([(name, b"") for name in [*names, "f/kept", "other/kept"]])
    assert storage.delete_all([*names, "f/missing", "f/0"]) == {}
    assert storage.list_names("f") == ["kept"]
    assert storage.list_names("other") == ["kept"]
    assert storage.delete_all([]) == {}


def test_files_that_cannot_be_deleted_are_reported_and_the_others_go(storage: Storage) -> None:
    storage.write_all([("a", b""), ("b", b"")])
    failed = storage.delete_all(["a", "../x", "b"])
    assert {path: type(why) for path, why in failed.items()} == {"../x": InvalidOption}
    assert storage.list_names("") == []


def test_a_folder_that_holds_something_is_not_deleted_with_others(storage: Storage) -> None:
    storage.write_all([("folder/file", b"kept"), ("gone", b"")])
    assert storage.delete_all(["folder", "gone"]) == {}
    assert storage.read("folder/file") == b"kept"


@the_store_decides
def test_all_files_below_a_folder_are_listed_in_pages(storage: Storage) -> None:
    inside = ["t/a", "t/x=1/bucket-0/b", "t/x=1/bucket-0/.hidden", "t/x=2/bucket-1/c"]
    outside = ["t2/d", "t/.hidden/e", "u"]
    storage.write_all([(path, b"12") for path in (*inside, *outside)])
    found = [stat for page in storage.list_below("t") for stat in page]
    assert sorted(stat.path for stat in found) == sorted(inside)
    assert storage.stat("t/a") in found
    assert [one for page in storage.list_below("none") for one in page] == []
    direct = [stat.path for page in storage.list_pages("t/x=1/bucket-0") for stat in page]
    assert sorted(direct) == ["t/x=1/bucket-0/.hidden", "t/x=1/bucket-0/b"]
    assert [one for page in storage.list_pages("none") for one in page] == []
    everything = {stat.path for page in storage.list_below("") for stat in page}
    assert everything == {*inside, "t2/d", "u"}
