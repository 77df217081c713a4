"""What is particular to storages on object stores."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import (
    InvalidOption,
    MissingExtra,
    NotAtomic,
    PermissionDenied,
    Unavailable,
)
from paimon_stream.runtime import system
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.object_store import ObjectStorage
from paimon_stream.storage.store_client import probe_atomic_create
from tests.kits.seeds import MANY, examples
from tests.kits.store_streams import RowStream
from tests.kits.stores import SECRETS, StoreServer, WaitingClock, opened
from tests.servers import azurite
from tests.servers.fault_proxy import Rule

pytestmark = pytest.mark.lowest

WRITERS = 16


def test_of_sixteen_writers_one_creates_each_file(store_server: StoreServer) -> None:
    storage, rounds = store_server.storage(), examples(5, 200)
    created: list[list[int]] = [[] for _ in range(rounds)]
    barrier = threading.Barrier(WRITERS)

    def write(number: int) -> None:
        copy = pickle.loads(pickle.dumps(storage))
        for turn in range(rounds):
            barrier.wait()
            if copy.put_if_absent(f"snapshot/snapshot-{turn}", b"%d" % number) is PutResult.CREATED:
                created[turn].append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn, winners in enumerate(created):
        assert [storage.read(f"snapshot/snapshot-{turn}")] == [b"%d" % one for one in winners]


def test_a_gateway_that_ignores_the_condition_is_refused(store_server: StoreServer) -> None:
    def ignore(headers: dict[str, str]) -> None:
        usual(headers)
        headers.pop("if-none-match", None)

    with store_server.proxied() as proxy:
        usual = proxy.translate or (lambda headers: None)
        proxy.translate = ignore
        settings = store_server.settings(proxy)
        if store_server.kind == "azure":  # a key's signature would cover the condition
            kept = {name: value for name, value in settings.config.items() if name != "account_key"}
            settings = replace(settings, config={**kept, "sas_key": azurite.signature()})
        storage = opened(settings)
        for _ in range(2):  # the refusal is not remembered as a proof
            with pytest.raises(NotAtomic, match=r"paimon-stream\.commit\.guard=trust") as raised:
                probe_atomic_create(storage, "snapshot", system().ids)
        assert storage.location in str(raised.value)
        if store_server.kind != "azure":  # Azurite answers 500 to deletions with such a signature
            assert storage.list_files("snapshot", ".") == []


def test_a_stream_behind_such_a_gateway_is_refused_before_it_writes(s3_server: StoreServer) -> None:
    with s3_server.proxied() as proxy:
        proxy.translate = lambda headers: headers.pop("if-none-match", None)
        stream = RowStream(s3_server, proxy)
        with pytest.raises(NotAtomic, match=r"paimon-stream\.commit\.guard=trust"):
            stream.batch(restarts=0)
        assert stream.direct.latest_snapshot() is None
        assert stream.storage.list_folders("") == ["_paimon_stream", "schema"]  # the run's claim
        proxy.translate = None
        stream.batch()
        stream.audit()


def test_a_commit_behind_such_a_gateway_is_refused_before_it_is_published(
    s3_server: StoreServer,
) -> None:
    with s3_server.proxied() as proxy:
        proxy.translate = lambda headers: headers.pop("if-none-match", None)
        location, options = s3_server.place(proxy)
        table = PaimonTable.create(location, [("id", "BIGINT")], storage_options=options)
        rows = pa.table({"id": pa.array([1], pa.int64())})
        with pytest.raises(NotAtomic, match=r"paimon-stream\.commit\.guard=trust"):
            table.append(rows)
        with pytest.raises(NotAtomic, match=r"paimon-stream\.commit\.guard=trust"):
            table.overwrite(rows)
        assert table.latest_snapshot() is None
        proxy.translate = None
        table.append(rows)
        puts = [one for one in proxy.log if "/.probe-" in one.path and one.method == "PUT"]
        table.append(rows)
        assert [
            one for one in proxy.log if "/.probe-" in one.path and one.method == "PUT"
        ] == puts, "once"
        assert table.to_arrow()["id"].to_pylist() == [1, 1]


def test_marks_of_folders_are_no_files(s3_server: StoreServer) -> None:
    storage = s3_server.storage()
    storage.write("snapshot/snapshot-1", b"1")
    for folder in ("snapshot", "empty", "a/b"):
        put_mark(s3_server, f"{storage.settings.prefix}/{folder}/")
    put_mark(s3_server, f"{storage.settings.prefix}/")
    assert storage.list_names("snapshot") == ["snapshot-1"]
    assert storage.list_names("") == storage.list_names("empty") == storage.list_names("a") == []
    assert storage.list_folders("") == ["a", "empty", "snapshot"]
    assert storage.list_folders("a") == ["b"]
    assert not storage.exists("empty")


def put_mark(server: StoreServer, key: str) -> None:
    """What other engines write to make a folder. obstore writes no such key."""
    signed = (
        f"AWS4-HMAC-SHA256 Credential={server.server.access_key}/20200101/us-east-1/s3/aws4_request"
    )
    url = f"{server.server.url}/bucket/{key}"
    put = urllib.request.Request(url, b"", {"Authorization": signed}, method="PUT")
    urllib.request.urlopen(put, timeout=900).read()


def test_folders_of_more_than_a_page_are_listed_whole(s3_server: StoreServer) -> None:
    with s3_server.proxied() as proxy:
        storage = s3_server.storage(proxy)
        files = [(f"f/{n:04}", b"") for n in range(1100)]
        storage.write_all(files)
        proxy.clear()
        assert [file.path for file in storage.list_files("f")] == [path for path, _ in files]
        assert len(proxy.log) == 2


def test_of_files_written_together_the_first_error_is_raised_when_all_have_ended(
    store_server: StoreServer,
) -> None:
    with store_server.proxied() as proxy:
        storage = store_server.storage(proxy)
        for number, status in ((3, 403), (5, 400)):
            proxy.add(Rule("answer", "PUT", rf"b(%2F|/){number}(\?|$)", status=status))  # not b/30
        with pytest.raises(PermissionDenied, match="/b/3"):
            storage.write_all([(f"b/{n}", b"") for n in range(40)])
        assert len(storage.list_names("b")) == 38


@pytest.mark.parametrize("name", ["a b", "ü%2F", "dt=1+2", "#?&=~*<>|:\"'", " lead", "trail ", "é"])
def test_names_come_back_as_they_were_given(store_server: StoreServer, name: str) -> None:
    storage = store_server.storage()
    storage.write(f"k/{name}/{name}", b"1")
    assert storage.list_folders("k") == [name]
    assert [file.path for file in storage.list_files(f"k/{name}")] == [f"k/{name}/{name}"]
    assert storage.read(f"k/{name}/{name}") == b"1"
    storage.delete(f"k/{name}/{name}")
    assert not storage.exists(f"k/{name}/{name}")


@pytest.mark.parametrize("name", ["x\ny", "x\x7f", "x\udc80", "y" * 1100])
def test_names_that_no_store_holds_are_refused(store_server: StoreServer, name: str) -> None:
    storage = store_server.storage()
    for call in (
        storage.read,
        storage.stat,
        storage.delete,
        lambda path: storage.put_if_absent(path, b""),
    ):
        with (
            pytest.raises((InvalidOption, Unavailable))
            if len(name) > 1000
            else pytest.raises(InvalidOption)
        ):
            call(f"k/{name}")


def test_azure_would_take_a_backslash_for_a_slash(azure_server: StoreServer) -> None:
    with pytest.raises(InvalidOption, match="backslash"):
        azure_server.storage().write("a\\b", b"")


def verbs(storage: ObjectStorage) -> dict[str, Callable[[], object]]:
    def upload() -> None:
        with storage.open_output("large") as stream:
            stream.write(bytes(9 << 20))

    return {
        "read": lambda: storage.read("a"),
        "list": lambda: storage.list_files(""),
        "folders": lambda: storage.list_folders("a"),
        "write": lambda: storage.write("a", b""),
        "hint": lambda: storage.write_hint("a", b""),
        "together": lambda: storage.write_all([("a", b""), ("b", b"")]),
        "create": lambda: storage.put_if_absent("a", b""),
        "delete": lambda: storage.delete("a"),
        "upload": upload,
    }


def test_a_missing_bucket_is_named_by_each_verb(store_server: StoreServer) -> None:
    storage = opened(store_server.settings(bucket="nosuchbucket"), WaitingClock())
    for verb, call in verbs(storage).items():
        with pytest.raises(InvalidOption, match=r"no such bucket or container") as raised:
            call()
        assert storage.location in str(raised.value), verb


def test_a_misspelt_endpoint_is_reported_at_once(s3_server: StoreServer) -> None:
    for endpoint, why in (
        ("http://127.0.0.1:1", "nothing answers"),
        ("http://no.invalid", "host name is unknown"),
    ):
        settings = s3_server.settings(max_retries=10)
        clock = WaitingClock()
        storage = opened(replace(settings, config={**settings.config, "endpoint": endpoint}), clock)
        began = time.monotonic()
        for call in (storage.list_files, storage.read, storage.stat):
            with pytest.raises(Unavailable, match=why):
                call("a")
        assert time.monotonic() - began < 20
        assert clock.waits == 6


@pytest.mark.parametrize(
    ("status", "code", "error", "cure"),
    [
        (400, "ExpiredToken", PermissionDenied, "have expired"),
        (403, "InvalidAccessKeyId", PermissionDenied, "does not know these credentials"),
        (403, "SignatureDoesNotMatch", PermissionDenied, "Correct the key and its secret"),
        (403, "RequestTimeTooSkewed", PermissionDenied, "Set the clock"),
        (
            403,
            "AccessDenied",
            PermissionDenied,
            "Allow these credentials to list, read, write and delete",
        ),
        (400, "AuthorizationHeaderMalformed", PermissionDenied, "another region"),
        (400, "KMS.DisabledException", PermissionDenied, "encryption"),
        (400, "RequestTimeout", Unavailable, "the store failed"),
        (400, "Whatever", InvalidOption, "refuses it"),
        (500, "InternalError", Unavailable, "the store failed"),
    ],
)
def test_the_stores_code_decides_what_to_do(
    s3_server: StoreServer, status: int, code: str, error: type[Exception], cure: str
) -> None:
    with s3_server.proxied() as proxy:
        storage = opened(s3_server.settings(proxy, max_retries=0), WaitingClock())
        key = storage.settings.config["access_key_id"]
        body = f"<Error><Code>{code}</Code><AWSAccessKeyId>{key}</AWSAccessKeyId></Error>"
        proxy.add(Rule("answer", status=status, body=body, times=None))
        for verb in ("read", "list", "create"):
            with pytest.raises(error, match=cure) as raised:
                verbs(storage)[verb]()
            assert f"({status}" in str(raised.value)
            assert raised.value.context["code"] in (code, None if status == 500 else code)
            assert key not in repr(raised.value) + repr(raised.value.context)
            assert raised.value.context["status"] == status


def test_a_storage_shows_no_secrets(store_server: StoreServer) -> None:
    storage = store_server.storage()
    shown = f"{storage!r} {storage} {storage.location} {storage.settings!r}"
    assert not any(secret in shown for secret in SECRETS)
    assert repr(storage) == f"ObjectStorage({storage.location!r})"
    assert pickle.loads(pickle.dumps(storage)) == storage


def test_a_storage_cannot_be_changed(store_server: StoreServer) -> None:
    with pytest.raises(AttributeError):
        store_server.storage().settings = None


def test_without_obstore_the_extra_is_named(
    s3_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match="store"):
        opened(s3_server.settings(bucket="never-opened")).exists("a")


def test_obstore_is_imported_with_the_first_store_only() -> None:
    code = (
        "import sys, paimon_stream, paimon_stream.storage.object_store, paimon_stream.storage.uri\n"
        "sys.exit(any(name.split('.')[0] == 'obstore' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FORKS = """
import os, pickle, sys
from paimon_stream.errors import ConfigError
storage = pickle.load(sys.stdin.buffer)
def child():
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os._exit(10 + storage.exists("there"))
    except ConfigError as error:
        os._exit(20 if "forked" in str(error) and storage.location in str(error) else 30)
before = child()
assert storage.exists("there")
print(before, child())
"""


def test_a_fork_after_the_store_was_used_is_an_error_and_not_a_hang(
    store_server: StoreServer,
) -> None:
    storage = store_server.storage()
    storage.write("there", b"")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        input=pickle.dumps(storage),
        capture_output=True,
        timeout=900,
    )
    assert done.stdout.split() == [b"11", b"20"], done.stderr.decode()


UPLOAD = """
import pickle, sys
storage, mebibytes = pickle.load(sys.stdin.buffer)
def used():  # the peak of this program; getrusage also counts the process that began it
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) >> 10
piece = bytes(range(256)) * (1 << 12)
def upload(name, count):
    with storage.open_output(name) as stream:
        for _ in range(count):
            stream.write(piece)
def read(name, count):
    with storage.open_input(name) as source:
        assert source.size() == count << 20
        for _ in range(count):
            assert source.read(1 << 20) == piece
for work in (upload, read):
    work("warm", 9)
    before = used()
    work("large", mebibytes)
    print(used() - before)
"""


@pytest.mark.parametrize("mebibytes", [128, *([160, 1024] if MANY else [])])
def test_memory_does_not_grow_with_the_file(s3_server: StoreServer, mebibytes: int) -> None:
    storage = s3_server.storage(millis=60_000)
    done = subprocess.run(
        [sys.executable, "-c", UPLOAD],
        input=pickle.dumps((storage, mebibytes)),
        capture_output=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr.decode()
    written, read = map(int, done.stdout.split())
    print(
        f"{mebibytes} MiB: the peak of memory grew by {written} MiB in writing, {read} MiB in reading"
    )
    assert written < 96
    assert read < 64
    assert storage.stat("large").size == mebibytes << 20
    storage.delete("large")


def test_a_file_of_parts_that_fails_leaves_no_parts(store_server: StoreServer) -> None:
    with store_server.proxied() as proxy:
        storage = store_server.storage(proxy)
        with pytest.raises(KeyError):  # noqa: PT012
            with storage.open_output("f/large") as stream:
                stream.write(bytes(20 << 20))
                raise KeyError("ours")
        assert storage.list_names("f") == []
        if store_server.kind != "azure":  # which drops parts by itself after a week
            assert [entry.sent for entry in proxy.log if entry.method == "DELETE"] == [204]


def test_a_small_file_is_read_in_one_request(store_server: StoreServer) -> None:
    reads = requests_to_read(store_server, rows=10_000)
    assert reads == (2 if store_server.kind == "azure" else 1)


def test_a_large_file_is_read_in_few_requests(store_server: StoreServer) -> None:
    """11 MB: its end, and blocks that grow. Azure says its size first."""
    assert requests_to_read(store_server, rows=700_000) <= 6


def requests_to_read(server: StoreServer, rows: int) -> int:
    table = pa.table({"id": range(rows), "name": [f"{n * 7919 % 1000003}" for n in range(rows)]})
    with server.proxied() as proxy:
        storage = server.storage(proxy)
        with storage.open_output("data.parquet") as stream:
            pq.write_table(table, stream, compression="none")
        proxy.clear()
        with storage.open_input("data.parquet") as source:
            assert pq.ParquetFile(source, pre_buffer=False).read().equals(table)
        return len(proxy.log)


def test_random_access_gives_the_bytes_of_every_range(store_server: StoreServer) -> None:
    storage, data = store_server.storage(), bytes(range(251)) * 20_000
    storage.write("a", data)
    storage.write("empty", b"")
    rng = system().rng
    with storage.open_input("a") as source:
        assert source.size() == len(data)
        for _ in range(60):
            start = rng.below(len(data))
            length = rng.below(1 << (1 + rng.below(22)))
            source.seek(start)
            assert source.read(length) == data[start : start + length]
        source.seek(0)
        assert source.read() == data
        assert source.read(1) == b""
    with storage.open_input("empty") as source:
        assert source.read() == b""
