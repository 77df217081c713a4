"""Nodes of an HDFS die and come back, and the name node refuses. What was acknowledged is there once,
and an error names the cure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import AlreadyExists, StorageError
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.uri import open_folder
from tests.kits.hdfs import MiniHdfs
from tests.kits.seeds import examples
from tests.kits.stores import started

pytestmark = pytest.mark.hdfs

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING")]
IMPATIENT = {"paimon-stream.store.max-outage": "0 s"}


NOTICES_SOON = {
    "dfs.replication": "2",
    "dfs.namenode.avoid.write.stale.datanode": "true",
    "dfs.namenode.stale.datanode.interval": "3000",
    "dfs.namenode.write.stale.datanode.ratio": "1.0",
}
"""The name node offers a data node no longer that has been silent for three seconds."""


@pytest.fixture(scope="module")
def of_three() -> Iterator[MiniHdfs]:
    """An HDFS of three data nodes."""
    with started(lambda _: MiniHdfs(NOTICES_SOON, data_nodes=3), "hdfs_native") as server:
        yield server


def row(n: int) -> pa.Table:
    return pa.table({"id": pa.array([n], pa.int64()), "name": [f"n{n}"]})


def ids(table: PaimonTable) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def path_of(location: str) -> str:
    """The path of a location, as the orders of the server name it."""
    return "/" + location.split("/", 3)[3]


class Puts(threading.Thread):
    """Creates files one after the other, until it is told to stop."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(daemon=True)
        self.storage, self.results = storage, []  # type: ignore[var-annotated]
        self.first, self.ending = threading.Event(), threading.Event()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                content = f"content {len(self.results)}".encode()
                path = f"put/{len(self.results)}"
                self.results.append(self.storage.put_if_absent(path, content))
                self.first.set()
        except BaseException as failed:  # noqa: BLE001 (the test says what it was)
            self.failed = failed
        self.first.set()


def test_a_name_node_that_dies_in_the_middle_of_puts_costs_time_only(
    hdfs_server: MiniHdfs,
) -> None:
    """It comes back with the same port. A put that it has carried out without an answer is a success
    of the writer, though the name is taken by then."""
    storage = hdfs_server.storage()
    puts = Puts(storage)
    puts.start()
    assert puts.first.wait(60)
    for _ in range(examples(2, 12)):
        hdfs_server.tell("kill-name-node 0")
        before = len(puts.results)
        hdfs_server.tell("start-name-node 0")
        while len(puts.results) < before + 3 and puts.is_alive():
            puts.join(0.05)
    puts.ending.set()
    puts.join(60)
    assert puts.failed is None
    assert set(puts.results) == {PutResult.CREATED}
    for number in range(len(puts.results)):
        assert storage.read(f"put/{number}") == f"content {number}".encode()
    assert storage.list_files("put", ".") == []


@pytest.mark.full
def test_a_stream_goes_on_while_a_data_node_dies(of_three: MiniHdfs) -> None:
    location, options = of_three.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    table.append(row(0))
    of_three.tell("kill-data-node")
    try:
        for n in (1, 2, 3):
            table.append(row(n))
        assert ids(table) == [0, 1, 2, 3]
    finally:
        of_three.tell("start-data-nodes")
    assert table.verify().healthy


@contextmanager
def restored(hdfs: MiniHdfs, order: str, undone: str) -> Iterator[None]:
    hdfs.tell(order)
    try:
        yield
    finally:
        hdfs.tell(undone)


def test_safe_mode_is_named_and_nothing_is_changed(hdfs_server: MiniHdfs) -> None:
    location, options = hdfs_server.place()
    PaimonTable.create(location, COLUMNS, storage_options=options).append(row(0))
    table = PaimonTable.load(location, storage_options={**options, **IMPATIENT})
    with restored(hdfs_server, "safe-mode on", "safe-mode off"):
        with pytest.raises(StorageError, match="safe mode"):
            table.append(row(1))
        assert ids(table) == [0]
    table.append(row(2))
    assert ids(table) == [0, 2]
    assert [one.id for one in table.snapshots()] == [1, 2]


@pytest.mark.parametrize("limits", ["3 -", "- 1000"], ids=["names", "bytes"])
def test_a_quota_that_is_used_up_is_named_and_nothing_is_published(
    hdfs_server: MiniHdfs, limits: str
) -> None:
    location, options = hdfs_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    table.append(row(0))
    path = path_of(location)
    with (
        restored(hdfs_server, f"quota {path} {limits}", f"quota {path} - -"),
        pytest.raises(StorageError, match="quota"),
    ):
        table.append(row(1))
    table.append(row(2))
    assert ids(table) == [0, 2]
    assert [one.id for one in table.snapshots()] == [1, 2]


def test_another_user_is_told_what_is_forbidden(hdfs_server: MiniHdfs) -> None:
    """In the words of the command, which ends with an error and without a trace."""
    location, options = hdfs_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    table.append(row(0))
    path = path_of(location)
    hdfs_server.tell(f"chmod {path} 700")
    command = [sys.executable, "-m", "paimon_stream", "snapshots", location]
    run = subprocess.run(
        command,
        env={**os.environ, "HADOOP_USER_NAME": "eve"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode != 0
    assert "Traceback" not in run.stderr
    assert "PermissionDenied: Cannot list hdfs:" in run.stderr
    assert "permission denied to the user eve (AccessControlException)" in run.stderr


def doctor(location: str, user: str | None = None) -> str:
    """What the command prints of a table that it cannot judge."""
    command = [sys.executable, "-m", "paimon_stream", "doctor", location]
    for option, value in IMPATIENT.items():
        command += ["--storage-option", f"{option}={value}"]
    who = {"HADOOP_USER_NAME": user} if user else {}
    run = subprocess.run(
        command, env={**os.environ, **who}, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 4
    assert "Traceback" not in run.stderr
    return run.stdout + run.stderr


def test_the_doctor_names_a_wrong_host_and_missing_rights(hdfs_server: MiniHdfs) -> None:
    location, options = hdfs_server.place()
    PaimonTable.create(location, COLUMNS, storage_options=options).append(row(0))
    hdfs_server.tell(f"chmod {path_of(location)} 700")
    assert "a node refuses connections" in doctor("hdfs://127.0.0.1:9/wh/t")
    denied = doctor(location, "eve")
    assert "PermissionDenied" in denied and location in denied


def test_orphans_of_a_killed_writer_are_removed_and_nothing_else(hdfs_server: MiniHdfs) -> None:
    """A data file and the temporary file of a writer that was killed, both older than an hour."""
    location, options = hdfs_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    table.append(row(0))
    storage = open_folder(location, options)
    orphans = ["bucket-0/data-0-0.parquet", "bucket-0/.data-1-0.parquet.0.tmp"]
    for orphan in orphans:
        storage.write(orphan, b"half of it")
    before = {file.path for page in storage.list_below("") for file in page}
    assert table.remove_orphan_files("1 h", dry_run=False).count == 0
    for orphan in orphans:
        hdfs_server.tell(f"modified {path_of(location)}/{orphan} 1700000000000")
    assert sorted(table.remove_orphan_files("1 h").paths) == sorted(orphans)
    assert sorted(table.remove_orphan_files("1 h", dry_run=False).paths) == sorted(orphans)
    after = {file.path for page in storage.list_below("") for file in page}
    assert after == before - set(orphans)
    assert ids(table) == [0]
    assert table.verify().healthy


@pytest.mark.parametrize("content", ["d/file", None], ids=["full", "empty"])
def test_a_file_with_the_name_of_a_folder_is_refused_at_once(
    hdfs_server: MiniHdfs, content: str | None
) -> None:
    storage = hdfs_server.storage()
    storage.write("d/file", b"1")
    if content is None:
        storage.delete("d/file")
    waits = storage.tally.requests()["PUT"]  # type: ignore[attr-defined]
    with pytest.raises(AlreadyExists, match="a folder has this name"):
        storage.write("d", b"2")
    assert storage.put_if_absent("d", b"2") is PutResult.EXISTS
    assert storage.tally.requests()["PUT"] == waits + 4  # type: ignore[attr-defined]
    assert storage.list_files("", ".") == []


def test_a_name_node_that_is_not_there_is_named_in_seconds(hdfs_server: MiniHdfs) -> None:
    storage = open_folder("hdfs://127.0.0.1:9/wh/t", IMPATIENT)
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9"):
        storage.exists("schema/schema-0")


GIVES_UP = """
import sys
from paimon_stream.errors import Unavailable
from paimon_stream.storage.uri import open_folder
options = {"paimon-stream.store.timeout": "300 ms", "paimon-stream.store.max-outage": "0 s"}
storage = open_folder(sys.argv[1], options)
storage.write("a", b"content")

def given_up() -> None:
    try:
        storage.read("a")
    except Unavailable:
        return
    raise AssertionError("the name node has answered")

print("written", flush=True)
sys.stdin.readline()
storage.together([given_up] * 8)
print("ends", flush=True)
"""


def test_a_process_ends_well_while_calls_return_that_it_has_given_up(hdfs_server: MiniHdfs) -> None:
    location, _ = hdfs_server.place()
    assert hdfs_server.child is not None
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", GIVES_UP, location],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "written\n"
        hdfs_server.child.send_signal(signal.SIGSTOP)
        try:
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ends\n"
        finally:
            hdfs_server.child.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0


FORKS = """
import os, sys
from paimon_stream.storage.uri import open_folder
storage = open_folder(sys.argv[1])
storage.write("a", b"content")
child = os.fork()
if child == 0:
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_was_forked_after_hdfs_was_used_ends(hdfs_server: MiniHdfs) -> None:
    location, _ = hdfs_server.place()
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS, location],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.communicate(timeout=30)[0] == "3\n"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
