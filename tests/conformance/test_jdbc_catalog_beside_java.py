"""Java's JDBC catalog and ours on one database: each lists, reads, alters and drops what the other
made. On S3 each waits for the lock of the other, so Java replaces no snapshot of ours.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, PaimonTable, SchemaChange, catalog, errors
from paimon_stream.catalogs import jdbc
from paimon_stream.catalogs.jdbc import LockedStorage
from paimon_stream.catalogs.opening import open_table_folder
from paimon_stream.runtime import Clock, Runtime
from paimon_stream.table.table import load_table
from tests.kits.java_catalogs import WAIT, Beside, JavaJdbcCatalog, java_with_s3
from tests.kits.stores import StoreServer, started
from tests.servers import postgres
from tests.servers.fault_proxy import FaultProxy, Rule

pytest.importorskip("sqlalchemy")

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING"), ("dt", "STRING NOT NULL")]
KEYED: dict[str, Any] = {
    "primary_keys": ["dt", "id"],
    "partition_keys": ["dt"],
    "options": {"bucket": "2"},
}
LONG_FOR_JAVA = 3
"""Seconds; without a lock it commits in a fraction of one."""
NEXT = iter(range(1, 1000))


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": one, "name": f"n{one}", "dt": "x"} for one in ids]


def arrow(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(
        rows(*ids), pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.string())])
    )


@pytest.fixture(scope="module")
def proxy(s3_server: StoreServer) -> Iterator[FaultProxy]:
    """What Java's requests go through."""
    with s3_server.proxied() as found:
        yield found


@pytest.fixture(scope="module")
def java_db(java: Any, s3_server: StoreServer, proxy: FaultProxy) -> Any:
    return java_with_s3(java, s3_server.options(proxy), databases=True)


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Postgres]:
    pytest.importorskip("psycopg")
    with started(postgres.start) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"])
def options(request: Any, tmp_path: Path) -> dict[str, str]:
    """A catalog on a disk, with the lock."""
    if request.param == "sqlite":
        with sqlite3.connect(
            tmp_path / "c.db"
        ) as made:  # else an open cursor of Java's keeps others from writing
            made.execute("PRAGMA journal_mode=WAL")
        found = {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path}/c.db",
            "jdbc.user": "u",
            "jdbc.password": "p",
        }
    else:
        found = {**request.getfixturevalue("server").options, "catalog-key": f"k{next(NEXT)}"}
    return {**found, "warehouse": str(tmp_path / "wh"), "lock.enabled": "true"}


def ask(options: dict[str, str], statement: str) -> list[Any]:
    """The rows of the catalog's database that a statement finds, or changes."""
    if "sqlite" in options["uri"]:
        with sqlite3.connect(options["uri"].removeprefix("jdbc:sqlite:")) as connection:
            return connection.execute(statement).fetchall()
    import psycopg

    port = options["uri"].rpartition(":")[2].partition("/")[0]
    text = f"host=127.0.0.1 port={port} user={postgres.USER} password={postgres.PASSWORD} dbname={postgres.DATABASE}"
    with psycopg.connect(text) as connection:
        connection.execute("SET client_encoding TO utf8")
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


@pytest.mark.parametrize("options", ["postgresql"], indirect=True)
def test_names_that_are_too_long_are_said_to_be_so(options: dict[str, str]) -> None:
    catalog(options).create_database("db")
    with pytest.raises(errors.StorageError, match=r"Take shorter names") as found:
        catalog(options).create_table(f"db.{250 * 'x'}", COLUMNS)
    assert not isinstance(found.value, errors.Unavailable)


@pytest.mark.parametrize("options", ["postgresql"], indirect=True)
def test_the_time_of_a_lock_follows_the_zone_of_the_machine_through_the_year(
    options: dict[str, str], monkeypatch: Any
) -> None:
    for zone, hours in (("<winter>-1", 1), ("<summer>-2", 2), ("<winter>-1", 1)):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        [(found,)] = jdbc.ask(options, "SELECT EXTRACT(TIMEZONE_HOUR FROM NOW())")
        assert found == hours
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("options", "first"),
    # On SQLite Java leaves a cursor open if it finds the tables, and cannot write after others
    # then.
    [
        ("sqlite", "java"),
        pytest.param("postgresql", "java", marks=pytest.mark.full),
        ("postgresql", "ours"),
    ],
    indirect=["options"],
)
def test_each_works_with_the_tables_that_the_other_made(
    java_db: Any, options: dict[str, str], first: str
) -> None:
    if first == "ours":
        catalog(options).list_databases()  # makes the tables of the database
    theirs = JavaJdbcCatalog(java_db, options)
    ours = catalog(options)
    ours.create_database("ours")
    theirs.createDatabase("javas", False)
    assert ours.list_databases() == sorted(theirs.listDatabases()) == ["javas", "ours"]
    with pytest.raises(
        Exception, match=r"DatabaseAlreadyExist|exceptionString"
    ):  # the latter beside a session of Spark
        theirs.createDatabase("ours", False)
    with pytest.raises(errors.AlreadyExists):
        ours.create_database("javas")
    ours.create_table("ours.t", COLUMNS, **KEYED).append(arrow(1, 2))
    theirs.create_table("javas.t", COLUMNS, **KEYED)
    theirs.write("javas.t", rows(1, 2), 1)
    assert list(theirs.listTables("ours")) == ours.list_tables("javas") == ["t"]
    copied = f"SELECT property_key, property_value FROM paimon_table_properties WHERE catalog_key = '{key_of(options)}'"
    of_ours, of_javas = (
        sorted(ask(options, f"{copied} AND database_name = '{one}'")) for one in ("ours", "javas")
    )
    assert of_ours == of_javas
    with pytest.raises(Exception, match="TableAlreadyExist"):
        theirs.create_table("ours.t", COLUMNS)
    with pytest.raises(errors.AlreadyExists):
        ours.create_table("javas.t", COLUMNS)
    for name in ("ours.t", "javas.t"):
        theirs.write(name, rows(3), 2)
        ours.get_table(name).append(arrow(4))
        assert (
            theirs.read(name)
            == ours.get_table(name).to_arrow().sort_by("id").to_pylist()
            == rows(1, 2, 3, 4)
        )
    ours.alter_table("javas.t", [SchemaChange.set_option("snapshot.num-retained.max", "15")])
    theirs.alterTable(
        theirs.named("ours.t"), [theirs.change.setOption("snapshot.num-retained.max", "15")], False
    )
    of_ours, of_javas = (
        sorted(ask(options, f"{copied} AND database_name = '{one}'")) for one in ("ours", "javas")
    )
    assert of_ours == of_javas
    assert ("snapshot.num-retained.max", "15") in of_ours
    assert dict(theirs.table("javas.t").options())["snapshot.num-retained.max"] == "15"
    ours.rename_table("javas.t", "ours.u")
    assert sorted(theirs.listTables("ours")) == ["t", "u"]
    theirs.renameTable(theirs.named("ours.t"), theirs.named("ours.v"), False)
    assert ours.list_tables("ours") == ["u", "v"]
    ours.drop_table("ours.v")
    theirs.dropTable(theirs.named("ours.u"), False)
    assert ours.list_tables("ours") == list(theirs.listTables("ours")) == []
    ours.drop_database("javas")
    theirs.dropDatabase("ours", False, False)
    assert ours.list_databases() == list(theirs.listDatabases()) == []
    assert ask(options, "SELECT * FROM paimon_distributed_locks") == []


def key_of(options: dict[str, str]) -> str:
    return options.get("catalog-key", "jdbc")


def test_each_sees_the_age_of_the_others_lock(java_db: Any, options: dict[str, str]) -> None:
    """PostgreSQL keeps local times, those of the session that took the lock."""
    ours = catalog(options)
    ours.create_database("db")
    ours.create_table("db.t", COLUMNS, options={"commit.max-retries": "1"})
    lock = f"{key_of(options)}.db.t"
    theirs = JavaJdbcCatalog(
        java_db, {**options, "lock-acquire-timeout": "1 s", "lock-check-max-sleep": "100 ms"}
    )
    table = catalog({**options, "lock-acquire-timeout": "1 s"}).get_table("db.t")
    held = LockedStorage(load_table(table._table.storage).storage, dict(options), lock)
    taken = held._acquire(lock)
    with pytest.raises(Exception, match="Acquire lock failed"):
        theirs.write("db.t", rows(1), 1)
    with pytest.raises(errors.CommitContended, match=lock):
        table.append(arrow(1))
    age = "-481 seconds"
    older = (
        f"datetime(acquired_at, '{age}')"
        if "sqlite" in options["uri"]
        else f"acquired_at + INTERVAL '{age}'"
    )
    ask(
        options,
        f"UPDATE paimon_distributed_locks SET acquired_at = {older} WHERE lock_id = '{lock}'",
    )
    theirs.write("db.t", rows(1), 2)
    held._acquire(lock)
    ask(
        options,
        f"UPDATE paimon_distributed_locks SET acquired_at = {older} WHERE lock_id = '{lock}'",
    )
    table.append(arrow(2))
    assert theirs.read("db.t") == rows(1, 2)
    assert taken is not None
    assert ask(options, f"SELECT * FROM paimon_distributed_locks WHERE lock_id = '{lock}'") == []


class OnS3:
    """A table on S3 in a catalog on SQLite, Java's requests behind the proxy, ours not."""

    def __init__(self, java: Any, s3: StoreServer, proxy: FaultProxy, folder: Path) -> None:
        self.proxy, self.s3 = proxy, s3
        self.own = {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/c.db",
            "warehouse": f"s3://bucket/jdbc{next(NEXT)}",
        }
        self.own |= {"jdbc.user": "u", "jdbc.password": "p"}
        self.theirs = JavaJdbcCatalog(java, {**self.own, **s3.options(proxy)})
        self.ours: PaimonCatalog = catalog({**self.own, **s3.options()})
        self.ours.create_database("db")
        self.ours.create_table("db.t", COLUMNS).append(arrow(0))

    def table(self, clock: Clock, proxy: FaultProxy | None = None) -> PaimonTable:
        """Ours, with a clock that notes when we wait."""
        whole = open_table_folder(self.ours.location("db.t"), self.s3.options(proxy))
        return PaimonTable(
            load_table(LockedStorage(whole, self.own, "jdbc.db.t", Runtime(clock=clock)))
        )  # type: ignore[arg-type]

    def users(self) -> list[str]:
        found = self.ours.get_table("db.t").snapshots()
        return ["java" if one.commit_user == "java" else "ours" for one in found]


@pytest.fixture
def on_s3(
    java_db: Any, s3_server: StoreServer, proxy: FaultProxy, tmp_path: Path
) -> Iterator[OnS3]:
    proxy.rules = []
    proxy.struck.clear()
    yield OnS3(java_db, s3_server, proxy, tmp_path)
    proxy.release()
    proxy.rules = []


class Noted(Clock):
    def __init__(self) -> None:
        self.waits = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.waits.set()
        super().sleep(seconds)


def test_we_wait_while_java_is_between_its_look_and_its_copy(on_s3: OnS3) -> None:
    on_s3.proxy.add(Rule("hold", method="PUT", path="snapshot/snapshot-", head="x-amz-copy-source"))
    java = Beside(lambda: on_s3.theirs.write("db.t", rows(1), 1))
    assert on_s3.proxy.struck.wait(WAIT), "Java does not copy"
    clock = Noted()
    ours = Beside(lambda: on_s3.table(clock).append(arrow(2)))
    assert clock.waits.wait(WAIT), "we do not wait"
    assert on_s3.users() == ["ours"]
    on_s3.proxy.release()
    java.end()
    ours.end()
    assert on_s3.users() == ["ours", "java", "ours"]
    assert on_s3.theirs.read("db.t") == rows(0, 1, 2)


def test_java_waits_while_our_snapshot_is_under_way(on_s3: OnS3) -> None:
    before = len(on_s3.proxy.log)
    with on_s3.s3.proxied() as own:
        own.add(Rule("hold", method="PUT", path="snapshot/snapshot-2"))
        ours = Beside(lambda: on_s3.table(Clock(), own).append(arrow(1)))
        assert own.struck.wait(WAIT), "we do not put"
        on_s3.proxy.add(Rule("delay", method="PUT", path="manifest/manifest-list-", seconds=0))
        java = Beside(lambda: on_s3.theirs.write("db.t", rows(2), 1))
        assert on_s3.proxy.struck.wait(WAIT), "Java does not commit"
        java.join(LONG_FOR_JAVA)
        assert java.is_alive(), java.failed
        since = on_s3.proxy.log[before:]
        assert not [
            one for one in since if "snapshot-2" in one.path and "x-amz-copy-source" in one.headers
        ]
        own.release()
        ours.end()
        java.end()
    assert on_s3.users() == ["ours", "ours", "java"]
    assert on_s3.theirs.read("db.t") == rows(0, 1, 2)


@pytest.mark.full
def test_no_commit_is_lost_where_java_and_we_commit_at_once(on_s3: OnS3) -> None:
    # Between Java's look whether a snapshot is there and its copy.
    on_s3.proxy.add(
        Rule("delay", method="HEAD", path="snapshot/snapshot-", times=None, seconds=0.1)
    )
    table = on_s3.ours.get_table("db.t")
    java = Beside(lambda: [on_s3.theirs.write("db.t", rows(one), one) for one in range(1, 7)])
    mine = 0
    while java.is_alive():
        mine += 1
        table.append(arrow(100 + mine))
        java.join(1.5)  # else we are always faster than Java, and it gives up
    java.end()
    assert on_s3.theirs.read("db.t") == rows(*range(7), *range(101, 101 + mine))
    assert sorted(on_s3.users()) == ["java"] * 6 + ["ours"] * (mine + 1)
    assert table.verify().healthy
    assert ask(on_s3.own, "SELECT * FROM paimon_distributed_locks") == []


def test_a_stream_is_not_warned_of_java_where_both_take_the_lock(on_s3: OnS3, caplog: Any) -> None:
    on_s3.theirs.write("db.t", rows(1), 1)
    on_s3.ours.get_table("db.t").append(arrow(2))
    assert "another engine" not in caplog.text
    PaimonTable.load(on_s3.ours.location("db.t"), storage_options=on_s3.s3.options()).append(
        arrow(3)
    )
    on_s3.theirs.write("db.t", rows(4), 2)
    PaimonTable.load(on_s3.ours.location("db.t"), storage_options=on_s3.s3.options()).append(
        arrow(5)
    )
    assert "another engine" in caplog.text
    assert "JDBC catalog" in caplog.text
