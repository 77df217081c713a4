"""What only a real file system can show: processes, durability, and many kinds of failure."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.errors import (
    AlreadyExists,
    CorruptMetadata,
    InvalidOption,
    NoSpace,
    NotAtomic,
    NotFound,
    PermissionDenied,
    StorageError,
    Unavailable,
)
from paimon_stream.storage.base import PutResult, parents
from paimon_stream.storage.local import LocalStorage

PROCESSES = 4
NOBODY = 65534


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "table"))


def all_names(storage: LocalStorage) -> list[str]:
    """Every file and folder below the root, hidden ones too."""
    return sorted(str(path.relative_to(storage.root)) for path in Path(storage.root).rglob("*"))


# -- processes ----------------------------------------------------------------------------------


def _create_all(
    storage: LocalStorage, number: int, keys: list[str], barrier: Barrier, won: Any
) -> None:
    barrier.wait()
    for key in keys:
        if storage.put_if_absent(key, b"%d" % number * 5000) is PutResult.CREATED:
            won.put((key, number))
    won.put(None)


def test_of_many_processes_exactly_one_creates_each_file(storage: LocalStorage) -> None:
    context = multiprocessing.get_context("spawn")
    keys = [f"snapshot/snapshot-{n}" for n in range(40)]
    barrier, won = context.Barrier(PROCESSES), context.Queue()
    workers = [
        context.Process(target=_create_all, args=(storage, number, keys, barrier, won))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    winners: dict[str, int] = {}
    open_workers = PROCESSES
    while open_workers:
        message = won.get(timeout=900)
        if message is None:
            open_workers -= 1
        else:
            key, number = message
            assert key not in winners
            winners[key] = number
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert sorted(winners) == sorted(keys)
    for key, number in winners.items():
        assert storage.read(key) == b"%d" % number * 5000
    assert all_names(storage) == ["snapshot", *sorted(keys)]


def run_child(
    code: str, storage: LocalStorage, *, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh process, with the storage as `storage`."""
    start = "import pickle, sys, os, resource\nstorage = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
    if user is not None:
        start += f"os.setgroups([]); os.setgid({user}); os.setuid({user})\n"
    return subprocess.run(
        [sys.executable, "-c", start + code, pickle.dumps(storage).hex()],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_at_the_link_leaves_the_whole_file_or_none(
    storage: LocalStorage, moment: str
) -> None:
    done = run_child(
        "real = os.link\n"
        "def link(*names):\n"
        f"    {'real(*names)' if moment == 'after' else 'pass'}\n"
        "    os.kill(os.getpid(), 9)\n"
        "os.link = link\n"
        "storage.put_if_absent('snapshot/snapshot-1', b'whole' * 1000)\n",
        storage,
    )
    assert done.returncode == -signal.SIGKILL
    left = [path for path in all_names(storage) if path.endswith(".tmp")]
    assert len(left) == 1
    assert left[0].startswith("snapshot/.snapshot-1.")
    if moment == "after":
        assert storage.read("snapshot/snapshot-1") == b"whole" * 1000
        assert storage.put_if_absent("snapshot/snapshot-1", b"x") is PutResult.EXISTS
    else:
        assert storage.list_files("snapshot") == []
        assert storage.put_if_absent("snapshot/snapshot-1", b"x") is PutResult.CREATED


def test_a_process_killed_while_it_replaces_leaves_the_old_file(storage: LocalStorage) -> None:
    storage.write("snapshot/LATEST", b"1")
    done = run_child(
        "os.replace = lambda *names: os.kill(os.getpid(), 9)\nstorage.write('snapshot/LATEST', b'2')",
        storage,
    )
    assert done.returncode == -signal.SIGKILL
    assert storage.read("snapshot/LATEST") == b"1"
    assert [file.name for file in storage.list_files("snapshot")] == ["LATEST"]


# -- durability ---------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The order of the calls that make a file durable. Each call is real."""
    log: list[str] = []
    root = f"{tmp_path}/"

    def shown(name: str) -> str:
        name = name.removeprefix(root)
        return "TEMP" if name.endswith(".tmp") else name

    def watch(verb: str, names: Callable[..., list[str]]) -> None:
        real = getattr(os, verb)

        def call(*args: Any, **kwargs: Any) -> Any:
            log.append(" ".join([verb, *(shown(name) for name in names(*args))]))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, verb, call)

    watch("fsync", lambda descriptor: [os.readlink(f"/proc/self/fd/{descriptor}")])
    watch("link", lambda source, target: [source, target])
    watch("replace", lambda source, target: [source, target])
    watch("mkdir", lambda folder, mode=0o777: [folder])
    return log


def test_a_create_syncs_file_then_name_and_every_new_folder(
    storage: LocalStorage, calls: list[str]
) -> None:
    storage.write("there", b"")
    calls.clear()
    storage.put_if_absent("a/b/c", b"data")
    assert calls == [
        "mkdir table/a",
        "fsync table",
        "mkdir table/a/b",
        "fsync table/a",
        "fsync TEMP",
        "link TEMP table/a/b/c",
        "fsync table/a/b",
    ]


def test_a_replace_syncs_file_then_name(storage: LocalStorage, calls: list[str]) -> None:
    storage.write("f/a", b"")
    calls.clear()
    storage.write("f/a", b"data")
    assert calls == ["fsync TEMP", "replace TEMP table/f/a", "fsync table/f"]


def test_files_written_together_are_synced_each_and_their_folders_once_at_the_end(
    storage: LocalStorage, calls: list[str]
) -> None:
    storage.write("f/old", b"")
    calls.clear()
    storage.write_all([("f/a", b"1"), ("f/b", b"2")])
    assert calls == ["fsync table/f/a", "fsync table/f/b", "fsync table", "fsync table/f"]


def test_many_new_folders_written_together_are_synced_once_for_each_group_of_files(
    storage: LocalStorage, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("there", b"")
    calls.clear()
    monkeypatch.setattr("paimon_stream.storage.local._OPEN_TOGETHER", 20)
    paths = [f"p={number}/bucket-0/data" for number in range(40)]
    storage.write_all([(path, b"1") for path in paths])
    folders = {f"table/{folder}" for path in paths for folder in parents(path)}
    synced = Counter(call for call in calls if call.startswith("fsync"))
    assert synced == {
        "fsync table": 2,
        **{f"fsync {folder}": 1 for folder in folders},
        **{f"fsync table/{path}": 1 for path in paths},
    }
    # The second group begins when the first one is durable.
    begin_of_second = calls.index("mkdir table/p=20")
    assert sum(call.startswith("fsync") for call in calls[:begin_of_second]) == 20 * 3 + 1


def test_files_written_together_are_open_in_groups(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    most_open = 0
    real = os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal most_open
        most_open = max(most_open, len(os.listdir("/proc/self/fd")) - open_before)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.write_all([(f"f/{number}", b"1") for number in range(700)])
    assert 200 < most_open < 300
    assert len(storage.list_names("f")) == 700


def test_files_are_written_together_by_a_process_that_may_open_few(storage: LocalStorage) -> None:
    code = """
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
storage.write_all([(f"p={number}/data", b"1") for number in range(100)])
"""
    child = run_child(code, storage)
    assert child.stderr == ""
    assert {storage.read(f"p={number}/data") for number in range(100)} == {b"1"}


def test_files_are_synced_by_a_process_that_cannot_start_threads(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr("paimon_stream.storage.os_files._QUICK_SYNC_SECONDS", 0)
    storage.write_all([(f"p={number}/data", b"1") for number in range(9)])
    assert {storage.read(f"p={number}/data") for number in range(9)} == {b"1"}


def test_the_names_of_folders_that_a_killed_writer_left_are_synced(
    storage: LocalStorage, calls: list[str]
) -> None:
    os.makedirs(f"{storage.root}/p=1/bucket-0")
    storage.write_all([("p=1/bucket-0/data", b"1")])
    assert {"fsync table", "fsync table/p=1", "fsync table/p=1/bucket-0"} <= set(calls)


def test_the_names_of_new_folders_are_synced_also_where_a_file_in_them_is_given_up(
    storage: LocalStorage, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_whole(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    storage.write("there", b"")
    calls.clear()
    with monkeypatch.context() as patch:
        patch.setattr("paimon_stream.storage.os_files.write_whole", write_whole)
        with contextlib.suppress(OSError):
            storage.write_all([("p=1/bucket-0/data", b"1")])
    assert {"fsync table", "fsync table/p=1", "fsync table/p=1/bucket-0"} <= set(calls)


def test_a_file_that_exists_is_never_seen_in_part_by_who_writes_files_together(
    storage: LocalStorage, calls: list[str]
) -> None:
    storage.write("f/old", b"1")
    calls.clear()
    storage.write_all([("f/old", b"2"), ("f/new", b"3")])
    assert calls == [
        "fsync TEMP",
        "replace TEMP table/f/old",
        "fsync table/f",
        "fsync table/f/new",
        "fsync table",
        "fsync table/f",
    ]
    assert (storage.read("f/old"), storage.read("f/new")) == (b"2", b"3")


def test_none_of_the_files_stays_where_one_cannot_be_synced(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("f/other", b"")

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(Unavailable) as raised:
        storage.write_all([(f"f/{n}", b"1") for n in range(6)])
    assert raised.value.context["path"].startswith(f"{storage.root}/f/")
    assert os.listdir(f"{storage.root}/f") == ["other"]


def test_a_hint_is_replaced_without_syncs(storage: LocalStorage, calls: list[str]) -> None:
    storage.write("f/LATEST", b"1")
    calls.clear()
    storage.write_hint("f/LATEST", b"2")
    assert calls == ["replace TEMP table/f/LATEST"]
    assert storage.read("f/LATEST") == b"2"


def test_a_stream_is_synced_once_when_it_ends(storage: LocalStorage, calls: list[str]) -> None:
    storage.write("f/other", b"")
    calls.clear()
    with storage.open_output("f/a") as stream:
        stream.write(b"data" * 1_000_000)
        assert calls == []
    assert calls == ["fsync table/f/a", "fsync table/f"]


def test_a_name_that_cannot_be_synced_may_be_there(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("f/other", b"")
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for call in (storage.write, storage.put_if_absent):
        # NoSpace would claim that nothing happened.
        with pytest.raises(Unavailable, match="could not be synced"):
            call(f"f/{call.__name__}", b"data")
        assert storage.read(f"f/{call.__name__}") == b"data"


# -- links --------------------------------------------------------------------------------------


def refuse_links(monkeypatch: pytest.MonkeyPatch, number: int, *, after: bool = False) -> None:
    real = os.link

    def link(source: str, target: str) -> None:
        if after:
            real(source, target)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links_is_refused_with_the_cure(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_links(monkeypatch, number)
    with pytest.raises(NotAtomic, match=r"paimon-stream\.unsafe-single-writer=true"):
        storage.put_if_absent("snapshot/snapshot-1", b"data")
    assert all_names(storage) == ["snapshot"]


def test_a_single_writer_may_do_without_links(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, errno.EPERM)
    unsafe = LocalStorage(storage.root, unsafe_single_writer=True)
    assert unsafe.put_if_absent("snapshot/snapshot-1", b"data") is PutResult.CREATED
    assert unsafe.put_if_absent("snapshot/snapshot-1", b"other") is PutResult.EXISTS
    assert unsafe.read("snapshot/snapshot-1") == b"data"
    assert all_names(unsafe) == ["snapshot", "snapshot/snapshot-1"]


def test_a_link_whose_answer_was_lost_counts(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS sends the request again, and the second one finds what the first one made."""
    for number in (errno.EEXIST, errno.EIO):
        with monkeypatch.context() as patch:
            refuse_links(patch, number, after=True)
            assert storage.put_if_absent(f"f/{number}", b"data") is PutResult.CREATED
        assert storage.read(f"f/{number}") == b"data"


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EACCES, PermissionDenied), (errno.ENOSPC, NoSpace), (errno.EIO, Unavailable)],
)
def test_other_link_errors_say_what_they_are(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    refuse_links(monkeypatch, number)
    with pytest.raises(kind) as raised:
        storage.put_if_absent("f/a", b"data")
    assert type(raised.value) is kind
    assert raised.value.context["path"] == f"{storage.root}/f/a"
    assert all_names(storage) == ["f"]


def test_a_file_that_is_missing_needs_no_right_to_delete(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux refuses to delete anything on a read-only file system, also what is not there."""

    def refuse(path: str, *, dir_fd: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    storage.write("f/there", b"data")
    monkeypatch.setattr(os, "unlink", refuse)
    storage.delete("f/missing")
    storage.delete("missing/missing")
    with pytest.raises(PermissionDenied):
        storage.delete("f/there")


# -- full, forbidden, broken --------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[LocalStorage]:
    """A file system of 256 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield LocalStorage(str(folder))
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_no_space_and_leaves_nothing(tiny_disk: LocalStorage) -> None:
    data = b"x" * 1_000_000
    for call in (tiny_disk.write, tiny_disk.put_if_absent):
        with pytest.raises(NoSpace, match="Free space") as raised:
            call("f/a", data)
        assert raised.value.context["path"] == f"{tiny_disk.root}/f/a"
    with pytest.raises(NoSpace):
        with tiny_disk.open_output("f/a") as stream:
            stream.write(data)
    with pytest.raises(NoSpace):
        # This one fits into the buffer, and fails when the context ends.
        with tiny_disk.open_output("f/a") as stream:
            stream.write(b"x" * 300_000)
    assert all_names(tiny_disk) == ["f"]
    assert tiny_disk.put_if_absent("f/a", b"small") is PutResult.CREATED


def test_a_file_size_limit_is_no_space(storage: LocalStorage) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
    done = run_child(limit + "storage.put_if_absent('f/a', b'x' * 5000)", storage)
    assert "NoSpace" in done.stderr
    assert all_names(storage) == ["f"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize(
    "call",
    [
        "storage.put_if_absent('f/new', b'')",
        "storage.write('f/new', b'')",
        "storage.write('f/kept', b'')",
        "storage.put_if_absent('g/new', b'')",
        "storage.open_output('f/new').__enter__()",
        "storage.delete('f/kept')",
        "storage.read('f/secret')",
        "storage.open_input('f/secret')",
        "storage.list_files('hidden')",
        "storage.list_folders('hidden')",
        "storage.stat('hidden/a')",
    ],
)
def test_what_is_forbidden_is_permission_denied(storage: LocalStorage, call: str) -> None:
    for path in ("f/kept", "f/secret", "hidden/a"):
        storage.write(path, b"kept")
    Path(storage.root, "f/secret").chmod(0o600)
    Path(storage.root, "hidden").chmod(0o700)
    for folder in (Path(storage.root), *Path(storage.root).parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    before = all_names(storage)
    done = run_child(
        f"from paimon_stream.errors import PermissionDenied\ntry:\n    {call}\n"
        "except PermissionDenied as denied:\n    print(denied.context['path'])\n",
        storage,
        user=NOBODY,
    )
    assert done.stdout.startswith(storage.root), done.stderr
    assert all_names(storage) == before
    assert storage.read("f/kept") == b"kept"


def test_a_read_only_file_system_is_permission_denied(storage: LocalStorage) -> None:
    storage.write("f/a", b"kept")
    bind = ["mount", "--bind", storage.root, storage.root]
    if subprocess.run(bind, check=False, capture_output=True).returncode != 0:
        pytest.skip("a read-only mount needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", storage.root], check=True)
        for call in (storage.write, storage.put_if_absent):
            with pytest.raises(PermissionDenied, match="read-only"):
                call("f/b", b"")
        with pytest.raises(PermissionDenied):
            storage.delete("f/a")
        assert storage.read("f/a") == b"kept"
    finally:
        subprocess.run(["umount", storage.root], check=True)


def test_a_file_where_a_folder_is_needed_is_named(storage: LocalStorage) -> None:
    storage.write("f", b"")
    for call in (storage.write, storage.put_if_absent):
        with pytest.raises(AlreadyExists, match="is a file, where a folder is needed"):
            call("f/a", b"")
    with pytest.raises(AlreadyExists):
        storage.open_output("f/a").__enter__()
    assert storage.list_files("f") == []
    assert storage.list_folders("f") == []
    storage.delete("f/a")
    assert storage.read("f") == b""


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, Unavailable),
        (errno.ETIMEDOUT, Unavailable),
        (errno.ESTALE, Unavailable),
        (errno.EMFILE, Unavailable),
        (errno.EROFS, PermissionDenied),
        (errno.EDQUOT, NoSpace),
    ],
)
def test_every_other_error_of_the_system_is_a_storage_error(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    storage.write("f/a", b"kept")

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    monkeypatch.setattr(os, "unlink", fail)
    monkeypatch.setattr(os, "scandir", fail)
    for call in (
        lambda: storage.write("f/b", b""),
        lambda: storage.put_if_absent("f/b", b""),
        lambda: storage.open_output("f/b").__enter__(),
        lambda: storage.delete("f/a"),
        lambda: storage.list_files("f"),
        lambda: storage.list_names("f"),
        lambda: storage.read("f/a"),
    ):
        with pytest.raises(StorageError) as raised:
            call()
        assert type(raised.value) is kind
        assert storage.root in str(raised.value)
    monkeypatch.undo()
    assert storage.read("f/a") == b"kept"


# -- links, and names that are too long -----------------------------------------------------------


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A folder outside the table, with a file."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "canary").write_bytes(b"alive")
    return outside


def test_nothing_is_deleted_through_a_link(storage: LocalStorage, canary: Path) -> None:
    storage.write("a/b/file", b"")
    os.symlink(canary, f"{storage.root}/a/link")
    for path in ("a/link/canary", "a/link/deeper/file"):
        assert storage.is_link(path)
        with pytest.raises(StorageError, match="its folder link is a symbolic link") as raised:
            storage.delete(path)
        assert raised.value.context["path"] == f"{storage.root}/{path}"
        assert type(raised.value) is StorageError
    assert storage.read("a/link/canary") == b"alive"
    assert [file.name for file in storage.list_files("a/link")] == ["canary"]


def test_of_a_link_to_a_file_only_the_link_is_deleted(storage: LocalStorage, canary: Path) -> None:
    storage.write("a/b/file", b"")
    os.symlink(canary / "canary", f"{storage.root}/a/link")
    os.symlink("nowhere", f"{storage.root}/a/dangling")
    for path in ("a/link", "a/dangling"):
        assert storage.is_link(path)
        storage.delete(path)
    assert not storage.is_link("a/b/file")
    assert all_names(storage) == ["a", "a/b", "a/b/file"]
    assert (canary / "canary").read_bytes() == b"alive"


def test_a_link_to_a_folder_stays_however_empty(storage: LocalStorage, canary: Path) -> None:
    storage.write("a/file", b"")
    (canary / "empty").mkdir()
    os.symlink(canary / "empty", f"{storage.root}/a/link")
    storage.delete("a/link")
    assert os.path.islink(f"{storage.root}/a/link")
    assert (canary / "empty").is_dir()


def test_a_root_that_is_a_link_or_behind_one_is_a_root_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "real" / "db").mkdir(parents=True)
    os.symlink(tmp_path / "real", tmp_path / "behind")
    os.symlink(tmp_path / "real" / "db", tmp_path / "link")
    for root in ("behind/db", "link"):
        storage = LocalStorage(str(tmp_path / root))
        storage.write("a/file", b"data")
        assert not storage.is_link("a/file")
        storage.delete("a/file")
        storage.delete("a")
        assert all_names(storage) == []


def test_links_that_lead_to_each_other_are_missing_files_and_cannot_be_written(
    storage: LocalStorage,
) -> None:
    storage.write("a/file", b"")
    os.symlink("loop", f"{storage.root}/a/loop")
    assert [file.name for file in storage.list_files("a")] == ["file"]
    assert storage.list_names("a") == ["file"]
    assert storage.list_folders("a") == []
    assert storage.list_files("a/loop") == []
    assert not storage.exists("a/loop/file")
    for call in (storage.read, storage.stat, storage.open_input):
        with pytest.raises(NotFound, match="links lead to each other"):
            call("a/loop")
    with pytest.raises(StorageError, match="Remove the links") as raised:
        storage.write("a/loop/file", b"")
    assert type(raised.value) is StorageError
    with pytest.raises(StorageError, match="a symbolic link"):
        storage.delete("a/loop/file")
    storage.delete("a/loop")
    assert all_names(storage) == ["a", "a/file"]


@pytest.mark.parametrize("path", ["a/" + "x" * 300, "y" * 300 + "/b"])
def test_a_name_that_is_too_long_is_a_missing_file_and_cannot_be_written(
    storage: LocalStorage, path: str
) -> None:
    storage.write("a/file", b"")
    storage.delete(path)
    assert not storage.exists(path)
    assert not storage.is_link(path)
    assert storage.list_files(path) == []
    with pytest.raises(NotFound, match="too long"):
        storage.read(path)
    with pytest.raises(StorageError, match="Use shorter names") as raised:
        storage.write(path, b"")
    assert type(raised.value) is StorageError


def test_a_folder_tidied_up_by_another_engine_is_made_again(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, removed = os.open, []

    def open_after_removal(path: str, *args: Any) -> int:
        if path.endswith(".tmp") and not removed:
            removed.append(path)
            os.rmdir(os.path.dirname(path))
        return real(path, *args)

    monkeypatch.setattr(os, "open", open_after_removal)
    assert storage.put_if_absent("p=1/bucket-0/a", b"data") is PutResult.CREATED
    assert removed


def test_files_that_vanish_while_listing_are_left_out(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        storage.write(f"f/{name}", b"")
    real = os.scandir

    def scandir(path: str) -> Any:
        entries = list(real(path))
        os.unlink(f"{path}/b")
        return contextlib.nullcontext(entries)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [file.name for file in storage.list_files("f")] == ["a", "c"]


# -- values -------------------------------------------------------------------------------------


def test_a_relative_root_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert LocalStorage("db.db/t/").location == f"{tmp_path}/db.db/t"
    assert LocalStorage("db.db/t") == LocalStorage(f"{tmp_path}/db.db/t")
    assert not (tmp_path / "db.db").exists()


def test_an_empty_root_is_refused() -> None:
    for root in ("", "a\0b"):
        with pytest.raises(InvalidOption):
            LocalStorage(root)


def test_a_storage_is_an_immutable_value(storage: LocalStorage) -> None:
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert hash(copy) == hash(storage)
    with pytest.raises(AttributeError):
        storage.root = "/elsewhere"  # type: ignore[misc]
    assert "root" in repr(storage)


def test_files_get_the_permissions_the_process_asks_for(storage: LocalStorage) -> None:
    old = os.umask(0o027)
    try:
        storage.write("a", b"")
        storage.put_if_absent("b", b"")
        with storage.open_output("c"):
            pass
    finally:
        os.umask(old)
    assert [Path(storage.root, name).stat().st_mode & 0o777 for name in "abc"] == [0o640] * 3


def test_a_root_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"")
    storage = LocalStorage(str(tmp_path / "t"))
    assert storage.list_files("snapshot") == []
    with pytest.raises(NotFound):
        storage.read("snapshot/snapshot-1")
    with pytest.raises(AlreadyExists):
        storage.put_if_absent("snapshot/snapshot-1", b"")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir])
def test_what_is_no_regular_file_is_missing_and_nobody_waits_for_it(
    storage: LocalStorage, make: Callable[[str], None]
) -> None:
    storage.write("f/b", b"")
    make(f"{storage.root}/f/a")
    for ask in (storage.read, storage.stat, storage.open_input):
        with pytest.raises(NotFound) as raised:
            ask("f/a")
        assert raised.value.context["path"] == f"{storage.root}/f/a"
    assert not storage.exists("f/a")
    assert storage.list_names("f") == ["b"]


def test_a_sparse_file_is_refused_before_it_is_read(storage: LocalStorage) -> None:
    storage.write("f/a", b"")
    os.truncate(f"{storage.root}/f/a", 100 << 30)
    with pytest.raises(CorruptMetadata, match="107,374,182,400 bytes"):
        storage.read("f/a")
