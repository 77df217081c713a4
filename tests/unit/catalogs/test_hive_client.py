"""The requests to a Hive Metastore: what comes back of metastores that are dead, silent, or none."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream import catalog, errors
from paimon_stream.catalogs import hive_client, hive_table
from paimon_stream.catalogs.hive import HiveStorage
from paimon_stream.catalogs.hive_client import (
    BOOL,
    I32,
    I64,
    LIST,
    MAP,
    STRING,
    STRUCT,
    HiveClient,
    Struct,
    struct_of,
)
from paimon_stream.catalogs.hive_table import hive_type
from paimon_stream.format.types import parse_type
from paimon_stream.runtime import Clock, simulated
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.memory import MemoryStorage

OPTIONS = {"metastore": "hive", "uri": "thrift://127.0.0.1:1"}


class Answers:
    """A server that answers the first bytes of each connection with these bytes, or with silence."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"thrift://127.0.0.1:{self.listener.getsockname()[1]}"
        self.clients = list[socket.socket]()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                client, _ = self.listener.accept()
                self.clients.append(client)
                if self.answer is not None:
                    client.recv(4096)
                    client.sendall(self.answer)
                    client.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture
def short(monkeypatch: Any) -> None:
    pytest.importorskip("thrift")
    monkeypatch.setattr(hive_client, "_SECONDS", 0.5)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="silence"),
        pytest.param(b"", id="a closed connection"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="HTTP"),
        pytest.param(
            b"\x80\x01\x00\x02\x00\x00\x00\x07set_ugi\x00\x00\x00\x00\x63", id="an unknown type"
        ),
        pytest.param(
            b"\x80\x01\x00\x02\x00\x00\x00\x07set_ugi\x00\x00\x00\x00" + 99 * b"\x0c\x00\x01",
            id="deep objects",
        ),
    ],
)
def test_what_is_no_metastore_ends_in_an_error_of_ours(short: None, answer: bytes | None) -> None:
    server = Answers(answer)
    with pytest.raises(errors.Unavailable, match=r"gave no answer to get_all_databases .*Kerberos"):
        HiveClient(server.uri).ask("get_all_databases", Struct())
    server.listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid:1", "a..b:1"])
def test_a_dead_metastore_is_named_with_the_option_and_no_trace_is_logged(
    short: None, caplog: Any, host: str
) -> None:
    with pytest.raises(
        errors.Unavailable, match=rf"thrift://{host} cannot be reached.*'uri'"
    ) as raised:
        catalog({**OPTIONS, "uri": f"thrift://{host}"}).list_databases()
    assert not caplog.records
    assert all(str(fact) in str(raised.value) for fact in raised.value.context.values())


class Dripping(Clock):
    """A clock of a connection on which one byte comes every five seconds."""

    def __init__(self, server: socket.socket) -> None:
        self.server, self.seconds = server, 0.0

    def monotonic(self) -> float:
        self.server.sendall(b"x")
        self.seconds += 5
        return self.seconds


def test_an_answer_that_drips_is_not_waited_for_longer_than_one_that_does_not_come() -> None:
    client, server = socket.socketpair()
    clock = Dripping(server)
    connection = hive_client._Connection(client, clock)
    with client, server, pytest.raises(TimeoutError):
        connection.readAll(1_000_000)
    assert clock.seconds < 100


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Struct({0: (I32, 5)}), id="a number for a list"),
        pytest.param(Struct(), id="nothing"),
        pytest.param(Struct({1: (STRING, b"x")}), id="a text for an exception"),
    ],
)
def test_a_result_of_another_type_is_no_answer(short: None, answer: Struct) -> None:
    server = Metastore({"get_all_databases": answer})
    with pytest.raises(errors.Unavailable, match="gave no answer to get_all_databases"):
        catalog({**OPTIONS, "uri": server.uri}).list_databases()
    server.listener.close()


def test_the_second_address_is_asked_if_the_first_is_dead(short: None) -> None:
    server = Answers(b"")
    with pytest.raises(errors.Unavailable, match="gave no answer"):
        HiveClient(f"thrift://127.0.0.1:1, {server.uri}").ask("get_all_databases", Struct())


@pytest.mark.parametrize(
    "uri", ["", "thrift://", "http://host:9083", "thrift://host:x", "thrift://u@h"]
)
def test_an_address_that_is_none_is_refused(uri: str) -> None:
    pytest.importorskip("thrift")
    with pytest.raises(errors.InvalidOption, match="thrift://host:9083"):
        catalog({**OPTIONS, "uri": uri}).list_databases()


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("thrift://a:1,thrift://b:2", "thrift://a:1,thrift://b:2"),
        ("thrift://me:secret@b:2", "thrift://b:2"),
        ("thrift://a:1, thrift://me:secret@b:2", "thrift://b:2"),
        ("thrift://me:sec,ret@b:2", "thrift://b:2"),
        ("thrift://me:sec#ret@b:2?token=x", "thrift://b:2"),
        ("//me:secret@b:2", "b:2"),
        ("me:secret@b:2", "b:2"),
    ],
)
def test_a_message_names_the_addresses_without_a_login(uri: str, shown: str) -> None:
    assert catalog({**OPTIONS, "uri": uri})._shown == f"the Hive Metastore {shown}"  # type: ignore[attr-defined]
    assert HiveClient(uri)._shown == shown


def test_an_address_of_ipv6_needs_no_port() -> None:
    addresses = hive_client._addresses("thrift://[::1],thrift://[::1]:1,thrift://host")
    assert addresses == [("::1", 9083), ("::1", 1), ("host", 9083)]


@pytest.mark.parametrize(
    "key", ["hive-conf-dir", "location-in-properties", "hive.metastore.use.ssl"]
)
def test_an_option_whose_effect_is_missing_is_refused(key: str) -> None:
    with pytest.raises(errors.UnsupportedFeature, match=key):
        catalog({**OPTIONS, key: "true"})


def test_without_thrift_the_extra_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "thrift", None)
    with pytest.raises(errors.MissingExtra, match=r"\.\[hive\]"):
        catalog(OPTIONS).list_databases()


def test_an_object_that_is_read_is_written_with_the_fields_that_nobody_here_knows() -> None:
    pytest.importorskip("thrift")
    from thrift.protocol.TBinaryProtocol import TBinaryProtocol
    from thrift.transport.TTransport import TMemoryBuffer

    table = struct_of({1: "orders"})
    table.set_texts(9, {"a": "b"})
    table.fields |= {
        14: (BOOL, True),
        19: (I64, -1),
        90: (LIST, (STRUCT, [Struct({1: (MAP, (STRING, LIST, [(b"\xff", (STRING, [b"x"]))]))})])),
    }
    buffer = TMemoryBuffer()
    hive_client._write(TBinaryProtocol(buffer), STRUCT, table)
    read = hive_client._read(TBinaryProtocol(TMemoryBuffer(buffer.getvalue())), STRUCT)
    assert read == table
    again = TMemoryBuffer()
    hive_client._write(TBinaryProtocol(again), STRUCT, read)
    assert again.getvalue() == buffer.getvalue()


class Metastore(Answers):
    """Answers in Thrift. It knows some methods only, as metastores of Hive 4 do.

    Attributes:
        results: the results by method.
        asked: the methods that were asked for.
        seconds: how long a lock takes, on this clock.
    """

    seconds = 0.0
    clock: Clock

    def __init__(self, results: dict[str, Struct]) -> None:
        self.results = {"set_ugi": Struct(), **results}
        self.asked = list[str]()
        super().__init__(b"")

    def _serve(self) -> None:
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport, TTransportException

        try:
            while True:
                client = TSocket()
                client.setHandle(self.listener.accept()[0])
                protocol = TBinaryProtocol(TBufferedTransport(client))
                with contextlib.suppress(TTransportException):
                    while True:
                        self._answer_one(protocol)
        except OSError:
            return

    def _answer_one(self, protocol: Any) -> None:
        method, _, number = protocol.readMessageBegin()
        hive_client._read(protocol, STRUCT)
        self.asked.append(method)
        if method == "lock" and self.seconds:
            self.clock.sleep(self.seconds)
        unknown = struct_of({1: f"Invalid method name: '{method}'"})
        unknown.fields[2] = I32, 1
        protocol.writeMessageBegin(method, 2 if method in self.results else 3, number)
        hive_client._write(protocol, STRUCT, self.results.get(method, unknown))
        protocol.trans.flush()


def test_a_metastore_without_the_older_methods_is_asked_by_the_newer_ones(short: None) -> None:
    table = struct_of({1: "t", 2: "db"})
    hive_table.set_up(table, "file:/nowhere/db.db/t")
    read = Struct({0: (STRUCT, Struct({1: (STRUCT, table)}))})
    several = Struct({0: (STRUCT, Struct({1: (LIST, (STRUCT, [table]))}))})
    names = Struct({0: (LIST, (STRING, [b"t", b"u"]))})
    server = Metastore(
        {
            "get_table_req": read,
            "get_table_objects_by_name_req": several,
            "get_all_tables": names,
            "get_database": Struct({0: (STRUCT, struct_of({1: "db", 3: "file:/nowhere/db.db"}))}),
        }
    )
    newer = catalog({**OPTIONS, "uri": server.uri})
    assert newer.location("db.t") == "/nowhere/db.db/t"
    assert newer.list_tables("db") == ["t"]
    assert {"get_table", "get_table_req", "get_table_objects_by_name_req"} <= set(server.asked)
    with pytest.raises(
        errors.UnsupportedFeature, match=r"does not know the method .*Hive 2\.3 to 4"
    ):
        newer.list_databases()
    server.listener.close()


def test_a_table_whose_folder_cannot_be_opened_stays_in_the_metastore(short: None) -> None:
    table = struct_of({1: "t", 2: "db"})
    hive_table.set_up(table, "s3://bucket/t")  # a bucket alone is no folder
    server = Metastore({"get_table": Struct({0: (STRUCT, table)}), "drop_table": Struct()})
    with pytest.raises(errors.InvalidOption, match="bucket"):
        catalog({**OPTIONS, "uri": server.uri, "s3.endpoint": "http://127.0.0.1:1"}).drop_table(
            "db.t"
        )
    assert "drop_table" not in server.asked
    server.listener.close()


def lock_of(state: int) -> Struct:
    """An answer about a lock: 1 is acquired, 2 is waiting."""
    return Struct({0: (STRUCT, Struct({1: (I64, 7), 2: (I32, state)}))})


@pytest.mark.parametrize(
    ("state", "seconds"),
    [pytest.param(2, 0.0, id="its holder has died"), pytest.param(1, 61.0, id="it came too late")],
)
def test_nothing_is_put_under_a_lock_that_is_not_ours(
    short: None, state: int, seconds: float
) -> None:
    runtime = simulated(1)
    server = Metastore({"lock": lock_of(state), "check_lock": lock_of(state), "unlock": Struct()})
    server.clock, server.seconds = runtime.clock, seconds
    files = MemoryStorage(f"lock-{state}")
    options = {"uri": server.uri, "catalog.table": "db.t", "lock-acquire-timeout": "30 s"}
    storage = HiveStorage(files, options, True, runtime)
    with pytest.raises(errors.CommitContended, match=r"lock of db\.t in the Hive Metastore"):
        storage.put_if_absent("snapshot/snapshot-1", b"{}")
    assert not files.exists("snapshot/snapshot-1")
    assert server.asked[-1] == "unlock"
    server.listener.close()


class Stopped(Clock):
    """A clock on which somebody presses Ctrl-C while something waits."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("check", "clock", "error"),
    [
        pytest.param(lock_of(2), Stopped(), KeyboardInterrupt, id="Ctrl-C"),
        pytest.param(
            Struct({1: (STRUCT, struct_of({1: "away"}))}), None, errors.Unavailable, id="no answer"
        ),
    ],
)
def test_a_lock_that_waits_is_taken_back_when_the_wait_ends_in_an_error(
    short: None, check: Struct, clock: Clock | None, error: type[BaseException]
) -> None:
    server = Metastore({"lock": lock_of(2), "check_lock": check, "unlock": Struct()})
    runtime = simulated(1)
    runtime = replace(runtime, clock=clock or runtime.clock)
    options = {"uri": server.uri, "catalog.table": "db.t"}
    storage = HiveStorage(MemoryStorage("waits"), options, True, runtime)
    with pytest.raises(error):
        storage.put_if_absent("snapshot/snapshot-1", b"{}")
    assert server.asked[-1] == "unlock"
    server.listener.close()


def test_a_lock_without_an_answer_is_found_by_its_mark_and_released(short: None) -> None:
    of_ours = struct_of({13: f"paimon-stream {simulated(1).ids.uuid()}"})
    of_another = struct_of({13: "Unknown"})
    of_ours.fields[1], of_another.fields[1] = (I64, 7), (I64, 8)
    shown = Struct({1: (LIST, (STRUCT, [of_another, of_ours]))})
    away = Struct({1: (STRUCT, struct_of({1: "away"}))})
    server = Metastore(
        {"lock": away, "show_locks": Struct({0: (STRUCT, shown)}), "unlock": Struct()}
    )
    files = MemoryStorage("marked")
    storage = HiveStorage(files, {"uri": server.uri, "catalog.table": "db.t"}, True, simulated(1))
    with pytest.raises(errors.Unavailable, match="refused lock"):
        storage.put_if_absent("snapshot/snapshot-1", b"{}")
    assert [method for method in server.asked if method != "set_ugi"] == [
        *("lock", "show_locks", "unlock")
    ]
    server.listener.close()


def test_no_lock_is_looked_for_if_the_metastore_was_not_reached(short: None, caplog: Any) -> None:
    options = {"uri": "thrift://127.0.0.1:1", "catalog.table": "db.t"}
    storage = HiveStorage(MemoryStorage("unsent"), options, True, simulated(1))
    with pytest.raises(errors.Unavailable, match="cannot be reached for lock"):
        storage.put_if_absent("snapshot/snapshot-1", b"{}")
    assert not caplog.records


def test_a_lock_that_expires_while_it_waits_is_a_commit_to_try_again(short: None) -> None:
    gone = Struct({3: (STRUCT, struct_of({1: "No such lock lockid:7"}))})
    server = Metastore({"lock": lock_of(2), "check_lock": gone})
    files = MemoryStorage("expires")
    storage = HiveStorage(files, {"uri": server.uri, "catalog.table": "db.t"}, True, simulated(1))
    with pytest.raises(errors.CommitContended, match=r"db\.t in the Hive .*or has expired"):
        storage.put_if_absent("snapshot/snapshot-1", b"{}")
    assert not files.exists("snapshot/snapshot-1")
    server.listener.close()


def test_what_was_put_stays_if_the_lock_cannot_be_released(short: None, caplog: Any) -> None:
    server = Metastore({"lock": lock_of(1)})
    files = MemoryStorage("released")
    storage = HiveStorage(files, {"uri": server.uri, "catalog.table": "db.t"}, True, simulated(1))
    server.results["unlock"] = Struct({1: (STRUCT, struct_of({1: "no such lock"}))})
    assert storage.put_if_absent("snapshot/snapshot-1", b"{}") is PutResult.CREATED
    assert "was not released, and expires by itself" in caplog.text
    server.listener.close()


@pytest.mark.parametrize(
    ("text", "kind", "advice"),
    [
        ("Permission denied: user=me", errors.PermissionDenied, "HADOOP_USER_NAME"),
        ("the database is away", errors.Unavailable, "Look whether it was done"),
    ],
)
def test_an_exception_of_the_metastore_becomes_one_of_ours(
    short: None, text: str, kind: type[Exception], advice: str
) -> None:
    server = Metastore({"get_all_databases": Struct({1: (STRUCT, struct_of({1: text}))})})
    with pytest.raises(kind, match=f"refused get_all_databases: MetaException: {text}.*{advice}"):
        catalog({**OPTIONS, "uri": server.uri}).list_databases()
    server.listener.close()


@pytest.mark.parametrize(
    ("paimon", "hive"),
    [
        ("DECIMAL(10, 2)", "decimal(10,2)"),
        ("CHAR(255)", "char(255)"),
        ("CHAR(256)", "string"),
        ("VARCHAR(65536)", "string"),
        ("TIME(3)", "string"),
    ],
)
def test_types_have_the_names_that_java_gives_them(paimon: str, hive: str) -> None:
    assert hive_type(parse_type(paimon)) == hive
