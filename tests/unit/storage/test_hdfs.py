"""HDFS where its name node or its client fails: on a double of hdfs-native."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from paimon_stream import errors
from paimon_stream.runtime import simulated
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.hdfs_client import HdfsClient
from paimon_stream.storage.hdfs_sources import hdfs_settings_of
from paimon_stream.storage.location import hdfs_location
from paimon_stream.storage.store_client import Handle
from paimon_stream.storage.uri import open_folder
from tests.kits.hdfs_double import (
    PAGE,
    HdfsDouble,
    lost_answer,
    lost_for_good,
    lost_request,
    refused,
)

QUICK = {"paimon-stream.store.timeout": "200 ms", "paimon-stream.store.max-outage": "3 s"}


def names(hdfs: HdfsDouble) -> set[str]:
    return {path.rpartition("/")[2] for path in hdfs.files}


@pytest.mark.parametrize("fault", [lost_answer, lost_for_good, lost_request])
def test_a_create_whose_answer_is_lost_has_created_the_file(fault: Any) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))
    hdfs.fail("rename", fault)
    assert storage.put_if_absent("snapshot/snapshot-1", b"ours") is PutResult.CREATED
    assert storage.read("snapshot/snapshot-1") == b"ours"
    assert names(hdfs) == {"snapshot-1"}


@pytest.mark.parametrize("verb", ["put_if_absent", "write"])
def test_a_file_whose_temporary_file_was_removed_is_not_taken_for_written(verb: str) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))

    def removed(call: Callable[[], Any]) -> Any:
        hdfs.files.clear()
        return call()

    hdfs.fail("rename", removed)
    with pytest.raises(errors.Unavailable, match="Whether it was written nevertheless cannot be"):
        getattr(storage, verb)("manifest/manifest-1", b"ours")


def test_a_file_of_another_writer_is_not_taken_for_ours_whose_temporary_file_was_removed() -> None:
    """The table was dropped and made again while our writer was paused, or orphans were removed."""
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))

    def made_again(call: Callable[[], Any]) -> Any:
        hdfs.files.clear()
        assert storage.put_if_absent("schema/schema-0", b"theirs") is PutResult.CREATED
        return call()

    hdfs.fail("rename", made_again)
    assert storage.put_if_absent("schema/schema-0", b"ours") is PutResult.EXISTS
    assert storage.read("schema/schema-0") == b"theirs"


@pytest.mark.parametrize("fault", [lost_answer, lost_for_good, lost_request])
def test_a_create_after_another_writers_finds_that_the_file_exists(fault: Any) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))
    storage.write("snapshot/snapshot-1", b"theirs")

    def late(call: Callable[[], Any]) -> Any:
        with pytest.raises(FileExistsError):
            call()
        return fault(call)

    hdfs.fail("rename", late)
    assert storage.put_if_absent("snapshot/snapshot-1", b"ours") is PutResult.EXISTS
    assert storage.read("snapshot/snapshot-1") == b"theirs"
    assert names(hdfs) == {"snapshot-1"}


def test_a_create_in_an_outage_that_lasts_is_unavailable_and_cannot_come_late() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(QUICK, runtime=simulated(1))
    hdfs.fail("rename", *[lost_request] * 9)
    with pytest.raises(errors.Unavailable, match=r"a node refuses connections.*max-outage"):
        storage.put_if_absent("snapshot/snapshot-1", b"ours")
    assert names(hdfs) == set()  # without the temporary file, no late rename takes effect


@pytest.mark.parametrize("call", ["close", "rename"])
def test_a_put_that_is_given_up_removes_its_file_when_the_name_node_is_back(call: str) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(QUICK, runtime=simulated(1))
    hdfs.fail(call, *[lost_request] * 9)
    hdfs.fail("delete", *[lost_request] * 9)
    with pytest.raises(errors.Unavailable, match="a node refuses connections"):
        storage.put_if_absent("snapshot/snapshot-1", b"ours")
    assert names(hdfs)
    hdfs.heal()
    assert not storage.exists("snapshot/snapshot-1")
    assert names(hdfs) == set()


def test_what_this_user_may_not_delete_is_not_tried_again() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(QUICK, runtime=simulated(1))
    storage.write("manifest/m", b"theirs")
    hdfs.fail("delete", lost_request, refused("org.apache.hadoop.security.AccessControlException"))
    assert storage.put_if_absent("manifest/m", b"ours") is PutResult.EXISTS
    assert storage.exists("manifest/m")
    assert storage.exists("manifest/m")
    assert hdfs.calls.count("delete") == 2


def test_a_try_that_is_carried_out_after_the_put_was_given_up_leaves_no_file() -> None:
    """The name node was silent. It creates the file when its deletion is long answered."""
    hdfs = HdfsDouble()
    storage = hdfs.storage({**QUICK, "paimon-stream.store.max-outage": "0 s"})
    storage.write("a", b"1")
    answers = threading.Event()

    def late(call: Callable[[], Any]) -> Any:
        answers.wait(30)
        return call()

    hdfs.fail("create", late)
    with pytest.raises(errors.Unavailable, match="did not answer in time"):
        storage.put_if_absent("b", b"2")
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "paimon-stream-hdfs":
            thread.join(30)
    assert len(names(hdfs)) == 2
    assert not storage.exists("b")
    assert names(hdfs) == {"a"}


def test_a_replaced_file_whose_answer_is_lost_is_replaced() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage()
    storage.write("snapshot/LATEST", b"1")
    hdfs.fail("rename", lost_answer)
    storage.write("snapshot/LATEST", b"2")
    assert storage.read("snapshot/LATEST") == b"2"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (name, fault)
        for name in ("create", "write", "hsync", "close")
        for fault in (lost_answer, lost_for_good, lost_request)
        if (name, fault) != ("write", lost_answer)  # hdfs-native repeats no writing
    ],
)
def test_each_try_to_write_has_a_temporary_file_of_its_own(name: str, fault: Any) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))
    hdfs.fail(name, fault)
    storage.write("manifest/m", b"content")
    assert storage.read("manifest/m") == b"content"
    assert names(hdfs) == {"m"}


def test_a_file_that_is_being_written_is_not_listed() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage()
    with storage.open_output("bucket-0/data-1.parquet") as stream:
        stream.write(b"x" * (9 << 20))
        assert storage.list_files("bucket-0") == []
        assert [file.size for file in storage.list_files("bucket-0", ".")] == [8 << 20]
    assert [file.size for file in storage.list_files("bucket-0")] == [9 << 20]


@pytest.mark.parametrize("call", ["create", "write"])
def test_a_large_file_waits_for_the_end_of_an_outage_in_which_it_begins(call: str) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))
    hdfs.fail(call, *[lost_request] * 3)
    content = bytes(range(256)) * (40 << 10)
    with storage.open_output("bucket-0/data-1.parquet") as stream:
        for start in range(0, len(content), 1 << 20):
            stream.write(content[start : start + (1 << 20)])
    assert storage.read("bucket-0/data-1.parquet") == content
    assert names(hdfs) == {"data-1.parquet"}


def test_a_large_file_that_fails_later_leaves_nothing() -> None:
    """What was sent is not held, so nobody could send it again."""
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))
    refusal = pytest.raises(errors.Unavailable, match="a node refuses connections")
    with refusal, storage.open_output("bucket-0/data-1.parquet") as stream:
        stream.write(b"x" * (9 << 20))
        hdfs.fail("write", lost_request)
        stream.write(b"x" * (9 << 20))
    assert names(hdfs) == set()


def test_a_silent_name_node_is_unavailable_in_time_and_gets_a_new_connection() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage({**QUICK, "paimon-stream.store.max-outage": "0 s"})
    storage.write("a", b"1")
    answers = threading.Event()
    hdfs.fail("get_file_info", lambda call: answers.wait(30))
    with pytest.raises(errors.Unavailable, match="did not answer in time"):
        storage.exists("a")
    assert storage.exists("a")
    assert hdfs.opened == 2
    answers.set()


def test_before_the_first_answer_nothing_is_waited_for() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage({"paimon-stream.store.connect-timeout": "100 ms"})
    client = storage.client
    assert isinstance(client, HdfsClient)
    client.answered = client.right = False
    answers = threading.Event()
    hdfs.fail("list_status", lambda call: answers.wait(30))
    with pytest.raises(errors.Unavailable, match="did not answer in time"):
        storage.list_files("")
    assert hdfs.calls == ["list_status"]
    answers.set()


def with_files(hdfs: HdfsDouble, storage: Any, count: int) -> list[str]:
    """Puts files into a folder. Returns their paths."""
    paths = [f"bucket-0/{n:06}" for n in range(count)]
    hdfs.files.update({f"{storage.settings.prefix}/{path}": b"" for path in paths})
    return paths


def test_a_folder_is_listed_a_page_at_a_time() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage()
    paths = with_files(hdfs, storage, 2 * PAGE + 1)
    pages = storage.list_pages("bucket-0")
    assert [file.path for file in next(pages)] == paths[:PAGE]
    assert hdfs.calls == ["list_status"]
    assert [file.path for page in pages for file in page] == paths[PAGE:]
    assert hdfs.calls == ["list_status"] * 3
    assert storage.tally.requests()["LIST"] == 3
    assert [file.path for page in storage.list_below("bucket-0") for file in page] == paths
    assert [file.path for file in storage.list_files("bucket-0", f"{PAGE:06}")] == [paths[PAGE]]


@pytest.mark.parametrize("fault", [lost_request, lost_for_good])
def test_a_listing_that_fails_goes_on_after_its_last_name(fault: Any) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage(runtime=simulated(1))
    paths = with_files(hdfs, storage, 3 * PAGE)
    pages = storage.list_pages("bucket-0")
    listed = [*next(pages), *next(pages)]
    hdfs.fail("list_status", fault)
    before = f"{storage.settings.prefix}/bucket-0/!"
    hdfs.files[before] = b""  # moves all pages, and is passed over, because others come after it
    listed += [file for page in pages for file in page]
    assert [file.path for file in listed] == paths


def test_a_page_that_comes_late_is_listed_again_and_what_it_brings_is_not_used() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage({**QUICK, "paimon-stream.store.timeout": "20 ms"}, runtime=simulated(1))
    paths = with_files(hdfs, storage, 3 * PAGE + 1)
    pages = storage.list_pages("bucket-0")
    listed = [*next(pages)]
    answers = threading.Event()

    def late(call: Callable[[], Any]) -> Any:
        answers.wait(30)
        return call()

    hdfs.fail("list_status", late)
    listed += next(pages)
    answers.set()
    listed += [file for page in pages for file in page]
    assert [file.path for file in listed] == paths


def test_a_file_is_closed_before_hdfs_native_asks_again() -> None:
    hdfs = HdfsDouble(knows_blocks=False)
    storage = hdfs.storage()
    hdfs.fail("recover_lease", lambda call: (_ for _ in ()).throw(FileExistsError("committed")))
    storage.write("a", b"content")
    assert storage.read("a") == b"content"
    assert hdfs.calls.count("recover_lease") == 2
    assert "close" not in hdfs.calls
    hdfs.released.set()


def test_a_file_that_is_shorter_than_its_content_is_not_taken_for_closed() -> None:
    hdfs = HdfsDouble(knows_blocks=False)
    runtime = simulated(1)
    storage = hdfs.storage(runtime=runtime)
    began = runtime.clock.monotonic()

    def cut(call: Callable[[], Any]) -> Any:
        (path,) = hdfs.open_files
        hdfs.files[path] = b"con"
        hdfs.released.set()
        hdfs.fail("close", refused("org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"))
        return call()

    hdfs.fail("recover_lease", cut)
    storage.write("a", b"content")
    assert storage.read("a") == b"content"
    assert names(hdfs) == {"a"}
    assert hdfs.calls.count("recover_lease") == 1
    assert runtime.clock.monotonic() == began, "that is no outage"


def test_where_data_nodes_are_slow_leases_are_recovered_later_and_then_never() -> None:
    hdfs = HdfsDouble(knows_blocks=False)
    storage = hdfs.storage(runtime=simulated(1))

    def under_way(call: Callable[[], Any]) -> Any:
        hdfs.released.set()
        return False

    waits = []
    while (patience := storage.client.pace.patience) < 0.4:
        waits.append(patience)
        hdfs.released.clear()
        hdfs.fail("recover_lease", under_way)
        storage.write(f"a{len(waits)}", b"content")
    assert waits == [0.02, 0.04, 0.08, 0.16, 0.32]
    hdfs.released.clear()
    threading.Timer(0.4, hdfs.released.set).start()
    storage.write("b", b"content")
    assert hdfs.calls.count("recover_lease") == len(waits)
    assert len(names(hdfs)) == len(waits) + 1


def test_files_that_are_written_at_once_are_closed_one_after_another() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage()
    second = threading.Event()
    was_alone = []

    def first_close(call: Callable[[], Any]) -> Any:
        was_alone.append(not second.wait(0.01))
        return call()

    def second_close(call: Callable[[], Any]) -> Any:
        second.set()
        return call()

    hdfs.fail("close", first_close, second_close)
    storage.write_all([("a", b"content"), ("b", b"content")])
    assert was_alone == [True]
    assert names(hdfs) == {"a", "b"}


def test_a_file_whose_content_is_gone_is_closed_without_recovering_its_lease() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage()
    closing = threading.Event()

    def slowly(call: Callable[[], Any]) -> Any:
        threading.Timer(0.3, closing.set).start()
        closing.wait(30)
        return call()

    hdfs.fail("close", slowly)
    with storage.open_output("a") as stream:
        stream.write(bytes(9 << 20))
    assert "recover_lease" not in hdfs.calls
    assert names(hdfs) == {"a"}


HDFS = "org.apache.hadoop.hdfs."
ANSWERS = [
    ("org.apache.hadoop.security.AccessControlException", errors.PermissionDenied, "permission"),
    (HDFS + "protocol.NSQuotaExceededException", errors.NoSpace, "setQuota"),
    (HDFS + "protocol.DSQuotaExceededException", errors.NoSpace, "setSpaceQuota"),
    (HDFS + "protocol.FSLimitException$MaxDirectoryItemsExceededException", errors.NoSpace, "max-"),
    (HDFS + "server.namenode.SafeModeException", errors.Unavailable, "safe mode"),
    ("org.apache.hadoop.ipc.StandbyException", errors.Unavailable, "no name node is active"),
    (HDFS + "server.namenode.LeaseExpiredException", errors.Unavailable, "closed the file"),
    ("org.apache.hadoop.HadoopIllegalArgumentException", errors.InvalidOption, r"\.snapshot"),
    (HDFS + "protocol.FSLimitException$PathComponentTooLongException", errors.StorageError, "long"),
    ("org.apache.hadoop.fs.InvalidPathException", errors.InvalidOption, "colon"),
    ("org.apache.hadoop.fs.ParentNotDirectoryException", errors.AlreadyExists, "a file is where"),
    ("java.lang.NullPointerException", errors.Unavailable, "HDFS failed"),
]


@pytest.mark.parametrize(("exception", "kind", "words"), ANSWERS)
def test_each_answer_of_the_name_node_is_an_error_with_its_cure(
    exception: str, kind: type[errors.PaimonStreamError], words: str
) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage({"paimon-stream.store.max-outage": "0 s"})
    hdfs.fail("create", refused(exception))
    with pytest.raises(kind, match=words) as raised:
        storage.write("a/b", b"x")
    assert type(raised.value) is kind
    assert f"{storage.location}/a/b" in str(raised.value)
    assert "SECRET" not in str(raised.value)
    assert raised.value.__context__ is None


def test_a_refusal_names_the_user_whom_the_name_node_has_seen_and_nothing_else_of_it() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage()
    why = 'user=eve/host@REALM, access=WRITE, inode=\\"/SECRET\\":root:root:drwx------'

    def denied(call: Callable[[], Any]) -> Any:
        kind = "org.apache.hadoop.security.AccessControlException"
        raise RuntimeError(f'RPCError("{kind}", "Permission denied: {why}")')

    hdfs.fail("create", denied)
    with pytest.raises(
        errors.PermissionDenied, match="denied to the user eve/host@REALM "
    ) as raised:
        storage.write("a", b"x")
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (RuntimeError('InvalidArgument("No NameNode hosts found")'), errors.InvalidOption, "CONF"),
        (OSError("Connection refused (os error 111)"), errors.Unavailable, "refuses connections"),
        (OSError("failed to lookup address information"), errors.Unavailable, "host"),
        (RuntimeError('BlocksNotFound("/a")'), errors.Unavailable, "data node"),
        (RuntimeError("NoSASLMechanism"), errors.Unavailable, "kinit"),
        (RuntimeError('OperationFailed("?")'), errors.Unavailable, "connection broke"),
        (NotImplementedError("encryption"), errors.UnsupportedFeature, "does not support"),
    ],
)
def test_failures_of_hdfs_native_are_errors_with_their_cures(
    failure: Exception, kind: type[errors.PaimonStreamError], words: str
) -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage({"paimon-stream.store.max-outage": "0 s"})

    def fails(call: Callable[[], Any]) -> Any:
        raise failure

    hdfs.fail("get_file_info", fails)
    with pytest.raises(kind, match=words):
        storage.exists("a")


def test_observers_are_never_read() -> None:
    """They may know an older state, in which a temporary file is still there."""
    hdfs = HdfsDouble()
    provider = "dfs.client.failover.proxy.provider.ns"
    observers = "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider"
    settings = hdfs_settings_of(hdfs_location("hdfs://ns/t"), {provider: observers}, environment={})
    HdfsClient(settings, hdfs)._open(Handle.CALM)
    assert hdfs.config[provider].endswith(".ConfiguredFailoverProxyProvider")


@pytest.mark.lowest
def test_hdfs_native_itself_says_that_nobody_is_there() -> None:
    pytest.importorskip("hdfs_native")
    impatient = {"paimon-stream.store.max-outage": "0 s"}
    storage = open_folder("hdfs://127.0.0.1:9/wh/t", impatient)
    with pytest.raises(errors.Unavailable, match="a node refuses connections"):
        storage.exists("a")


def test_a_login_that_never_worked_is_refused_at_once() -> None:
    hdfs = HdfsDouble()
    storage = hdfs.storage()
    storage.client.right = False
    hdfs.fail("get_file_info", refused("javax.security.sasl.SaslException"))
    with pytest.raises(errors.PermissionDenied, match="kinit"):
        storage.exists("a")


@pytest.mark.parametrize("path", ["a:b", "x/c:d/e", "a\nb"])
def test_names_that_hdfs_refuses_are_refused_before_it_is_asked(path: str) -> None:
    hdfs = HdfsDouble()
    with pytest.raises(errors.InvalidOption, match="colon"):
        hdfs.storage().write(path, b"")
    assert hdfs.calls == []


@pytest.mark.parametrize("letters", [1, 200, 255])
def test_a_temporary_name_is_no_longer_than_names_may_be(letters: int) -> None:
    storage = HdfsDouble().storage()
    folder, _, name = storage.temporary_of(f"tag/{'n' * letters}").rpartition("/")
    assert folder == "tag"
    assert name.startswith(".")
    assert name.endswith(".tmp")
    assert len(name) <= 255
