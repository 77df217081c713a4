"""The JDBC catalog on SQLite: databases and tables as rows, and the lock around what is
published.
"""

from __future__ import annotations

import logging
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, PaimonTable, SchemaChange, catalog, errors
from paimon_stream.catalogs.jdbc import LockedStorage, open_table
from paimon_stream.catalogs.opening import open_table_folder
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage

pytest.importorskip("sqlalchemy")

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING")]
ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})
SECRET = "s3cr3t-never-shown"
TABLES = (
    "paimon_tables",
    "paimon_database_properties",
    "paimon_table_properties",
    "paimon_distributed_locks",
)
SNAPSHOT = "snapshot/snapshot-1"


class Shop:
    """A catalog on SQLite, and its rows."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder, self.file = folder, str(folder / "catalog.db")
        self.options = {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{self.file}",
            "warehouse": str(folder / "wh"),
            "jdbc.user": "user",
            "jdbc.password": SECRET,
            "lock.enabled": "true",
            **{key.replace("_", "-"): value for key, value in more.items()},
        }

    @property
    def catalog(self) -> PaimonCatalog:
        return catalog(self.options)

    def ask(self, statement: str, *values: Any) -> list[Any]:
        with sqlite3.connect(self.file) as connection:
            return connection.execute(statement, values).fetchall()

    def rows(self, table: str) -> list[Any]:
        return sorted(self.ask(f"SELECT * FROM {table}"))

    def hold(self, lock: str = "jdbc.db.t", age: int = 0, lasts: int = 480) -> None:
        """Somebody takes the lock, some seconds ago."""
        self.ask(
            "INSERT INTO paimon_distributed_locks VALUES (?, datetime('now', ?), ?)",
            lock,
            f"{-age:+d} seconds",
            lasts,
        )

    def log_locks(self) -> None:
        self.ask("CREATE TABLE taken(id TEXT, lasts INT)")
        self.ask(
            "CREATE TRIGGER note AFTER INSERT ON paimon_distributed_locks BEGIN INSERT INTO taken VALUES "
            "(new.lock_id, new.expire_time_seconds); END"
        )

    def locked(
        self, clock: SimulatedClock | None = None, whole: Storage | None = None, **more: str
    ) -> LockedStorage:
        """The files of db.t in memory, under the lock."""
        options = {**self.options, **{key.replace("_", "-"): value for key, value in more.items()}}
        runtime = simulated(1, clock or SimulatedClock())
        return LockedStorage(
            whole or MemoryStorage(f"locked-{self.folder.name}"), options, "jdbc.db.t", runtime
        )


@contextmanager
def others_first(shop: Shop, begin: str) -> Iterator[list[Any]]:
    """Somebody else does first what a statement with this beginning is about to do."""
    import sqlalchemy

    done: list[Any] = []

    def first(*given: Any) -> None:
        statement, values = given[2:4]
        if statement.startswith(begin) and (statement, values) not in done:
            done.append((statement, values))
            shop.ask(statement, *values)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", first)
    try:
        yield done
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", first)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.catalog.create_database("db")
    return made


# -- rows
# -------------------------------------------------------------------------------------------------


def test_databases_and_tables_are_rows_as_in_java(shop: Shop) -> None:
    made = shop.catalog
    assert shop.rows("paimon_database_properties") == [
        ("jdbc", "db", "exists", "true"),
        ("jdbc", "db", "location", f"{shop.folder}/wh/db.db"),
    ]
    keyed: Any = {
        "primary_keys": ["name", "id"],
        "partition_keys": ["name"],
        "options": {"bucket": "2"},
    }
    table = made.create_table("db.t", COLUMNS, **keyed)
    assert isinstance(made, PaimonCatalog)
    assert table.location == f"{shop.folder}/wh/db.db/t"
    assert shop.rows("paimon_tables") == [("jdbc", "db", "t")]
    properties = {"bucket": "2", "bucket-key": "id", "partition": "name", "primary-key": "name,id"}
    assert shop.rows("paimon_table_properties") == [
        ("jdbc", "db", "t", *one) for one in sorted(properties.items())
    ]
    table.append(ROWS)
    assert made.get_table("db.t").to_arrow().num_rows == 2
    made.alter_table(
        "db.t",
        [
            SchemaChange.set_option("snapshot.num-retained.max", "15"),
            SchemaChange.add_column("x", "INT"),
        ],
    )
    assert ("jdbc", "db", "t", "snapshot.num-retained.max", "15") in shop.rows(
        "paimon_table_properties"
    )
    assert made.get_table("db.t").schema.field_names == ("id", "name", "x")
    made.drop_table("db.t")
    assert [shop.rows(one) for one in TABLES if "database" not in one] == [[], [], []]
    assert not os.path.exists(f"{shop.folder}/wh/db.db/t")
    made.drop_database("db")
    assert (made.list_databases(), shop.rows("paimon_database_properties")) == ([], [])


def test_catalogs_with_other_keys_do_not_see_each_other(shop: Shop) -> None:
    other = Shop(shop.folder, catalog_key="other", warehouse=str(shop.folder / "wh2")).catalog
    assert other.list_databases() == []
    other.create_database("db")
    other.create_table("db.u", COLUMNS)
    assert (shop.catalog.list_tables("db"), other.list_tables("db")) == ([], ["u"])


def test_a_table_is_known_by_its_row_and_not_by_its_files(shop: Shop) -> None:
    made = shop.catalog
    PaimonTable.create(f"{shop.folder}/wh/db.db/t", COLUMNS)
    for call in (made.get_table, made.drop_table):
        with pytest.raises(errors.NotFound, match=r"no table 'db\.t' in the catalog"):
            call("db.t")
    with pytest.raises(errors.NotFound, match="in the catalog"):
        made.alter_table("db.t", [SchemaChange.add_column("x", "INT")])
    made.drop_table("db.t", ignore_if_not_exists=True)
    with pytest.raises(errors.AlreadyExists):
        made.create_table("db.t", COLUMNS)
    made.create_table("db.t", COLUMNS, ignore_if_exists=True)  # what a killed creation needs
    assert made.list_tables("db") == ["t"]
    made.create_table("db.t", COLUMNS, ignore_if_exists=True)
    with pytest.raises(errors.AlreadyExists):
        made.create_table("db.t", COLUMNS)
    for call in (made.list_tables, made.drop_database):
        with pytest.raises(errors.NotFound, match="no database 'none'"):
            call("none")
    with pytest.raises(errors.NotFound, match="no database 'none'"):
        made.create_table("none.t", COLUMNS)


def test_databases_are_created_once_and_dropped_with_their_tables(shop: Shop) -> None:
    made = shop.catalog
    made.create_database("db", ignore_if_exists=True)
    with pytest.raises(errors.AlreadyExists, match="'db'"):
        made.create_database("db")
    with pytest.raises(errors.InvalidOption, match="'sys' is reserved"):
        made.create_database("sys")
    made.create_table("db.t", COLUMNS)
    with pytest.raises(errors.InvalidOption, match="has 1 tables"):
        made.drop_database("db")
    made.drop_database("db", cascade=True)
    made.drop_database("db", ignore_if_not_exists=True)
    assert made.list_databases() == []
    assert [shop.rows(one) for one in TABLES] == [[]] * 4


def test_a_rename_changes_rows_and_folder_or_neither(shop: Shop) -> None:
    made = shop.catalog
    made.create_database("other")
    made.create_table("db.t", COLUMNS).append(ROWS)
    made.create_table("db.u", COLUMNS)
    for source, target, error in (
        ("db.none", "db.new", errors.NotFound),
        ("db.t", "none.t", errors.NotFound),
        ("db.t", "db.u", errors.AlreadyExists),
    ):
        with pytest.raises(error):
            made.rename_table(source, target)
    Path(f"{shop.folder}/wh/other.db/t").mkdir(parents=True)
    Path(f"{shop.folder}/wh/other.db/t/file").touch()
    with pytest.raises(errors.StorageError):
        made.rename_table("db.t", "other.t")
    assert shop.rows("paimon_tables") == [("jdbc", "db", "t"), ("jdbc", "db", "u")]
    made.rename_table("db.t", "other.u")
    assert (made.list_tables("db"), made.list_tables("other")) == (["u"], ["u"])
    assert made.get_table("other.u").to_arrow().num_rows == 2


def test_options_of_tables_become_rows_only_if_they_shall(tmp_path: Path) -> None:
    shop = Shop(tmp_path, sync_all_properties="false")
    shop.catalog.create_database("db")
    shop.catalog.create_table("db.t", COLUMNS, options={"bucket": "2", "bucket-key": "id"})
    assert shop.rows("paimon_table_properties") == []


def test_two_processes_may_make_the_tables_of_the_database_at_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with others_first(shop, "CREATE TABLE") as made:
        shop.catalog.create_database("db")
    assert len(made) == len(TABLES)
    assert shop.catalog.list_databases() == ["db"]


def test_of_two_who_create_a_database_at_once_one_is_told_so(shop: Shop) -> None:
    with others_first(shop, "INSERT INTO paimon_database_properties"):
        shop.catalog.create_database("x", ignore_if_exists=True)
        with pytest.raises(errors.AlreadyExists, match="There is a database 'y'"):
            shop.catalog.create_database("y")
    assert shop.catalog.list_databases() == ["db", "x", "y"]


def test_a_table_that_another_alters_at_the_same_time_is_altered(shop: Shop) -> None:
    shop.catalog.create_table("db.t", COLUMNS)
    shop.ask(
        "CREATE TRIGGER other BEFORE INSERT ON paimon_table_properties BEGIN INSERT INTO paimon_table_properties "
        "VALUES (new.catalog_key, new.database_name, new.table_name, new.property_key, 'theirs'); END"
    )
    shop.catalog.alter_table("db.t", [SchemaChange.set_option("snapshot.num-retained.max", "15")])
    assert shop.catalog.get_table("db.t").schema.options["snapshot.num-retained.max"] == "15"


# -- the lock
# ---------------------------------------------------------------------------------------------


def test_what_publishes_a_snapshot_or_a_schema_takes_the_lock(shop: Shop) -> None:
    made = shop.catalog
    made.create_table("db.first", COLUMNS)
    shop.log_locks()
    table = made.create_table("db.t", COLUMNS)
    table.append(ROWS)
    made.alter_table("db.t", [SchemaChange.add_column("x", "INT")])
    table.create_tag("one")
    assert shop.ask("SELECT * FROM taken") == [("jdbc.db.t", 480)] * 3
    table.create_branch("b")
    shop.ask("DELETE FROM taken")
    branch = made.get_table("db.t$branch_b")
    branch.append(pa.table({"id": [3], "name": ["c"], "x": pa.array([1], pa.int32())}))
    assert shop.ask("SELECT * FROM taken") == [("jdbc.db.t$branch_b", 480)]
    assert branch.to_arrow().num_rows == 1
    shop.ask("DELETE FROM taken")
    storage = table._storage
    storage.write("snapshot/snapshot-1", storage.read("snapshot/snapshot-1"))  # as a rollback does
    assert shop.ask("SELECT * FROM taken") == [("jdbc.db.t", 480)]
    assert shop.rows("paimon_distributed_locks") == []


@pytest.mark.parametrize(("enabled", "locks"), [("false", 0), ("true", 1)])
def test_a_catalog_can_be_without_lock(tmp_path: Path, enabled: str, locks: int) -> None:
    shop = Shop(tmp_path, **{"lock.enabled": enabled})
    shop.catalog.create_database("db")
    shop.log_locks()
    shop.catalog.create_table("db.t", COLUMNS)
    assert len(shop.ask("SELECT * FROM taken")) == locks


@pytest.mark.parametrize("kind", ["JDBC", " Jdbc "])
def test_a_kind_in_capital_letters_takes_the_lock_too(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path, metastore=kind)
    shop.catalog.create_database("db")
    shop.ask("CREATE TABLE taken(id TEXT)")
    note = "BEGIN INSERT INTO taken VALUES (new.lock_id); END"
    shop.ask(f"CREATE TRIGGER note AFTER INSERT ON paimon_distributed_locks {note}")
    shop.catalog.create_table("db.t", COLUMNS, primary_keys=["id"], options={"bucket": "1"}).append(
        ROWS
    )
    assert set(shop.ask("SELECT * FROM taken")) == {("jdbc.db.t",)}


@pytest.mark.parametrize(
    ("location", "given", "locked"),
    [
        ("/w/db.db/t", {}, False),
        ("s3://bucket/w/db.db/t", {}, True),
        ("s3://bucket/w/db.db/t", {"lock.enabled": "false"}, False),
        ("/w/db.db/t", {"lock.enabled": "TRUE"}, True),
    ],
)
def test_there_is_a_lock_by_default_on_object_stores(
    location: str, given: dict[str, str], locked: bool
) -> None:
    options = {"metastore": "jdbc", "uri": "jdbc:sqlite:/c.db", "fs.s3a.region": "us-east-1"}
    found = open_table(location, {**options, **given}, lambda *_: MemoryStorage("no-lock"))
    assert isinstance(found, LockedStorage) is locked


def test_a_held_lock_is_waited_for_as_in_java(shop: Shop) -> None:
    waits: list[float] = []

    class Clock(SimulatedClock):
        def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            super().sleep(seconds)
            if len(waits) == 9:
                shop.ask("DELETE FROM paimon_distributed_locks")

    shop.hold()
    storage = shop.locked(Clock())
    assert storage.put_if_absent(SNAPSHOT, b"{}") is PutResult.CREATED
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8, 8]
    assert shop.rows("paimon_distributed_locks") == []
    assert storage.put_if_absent(SNAPSHOT, b"{}") is PutResult.EXISTS
    assert storage.read(SNAPSHOT) == b"{}"


def test_a_lock_that_stays_held_is_contention_and_nothing_is_put(shop: Shop) -> None:
    shop.hold()
    storage = shop.locked(lock_acquire_timeout="3 s", lock_check_max_sleep="1 s")
    with pytest.raises(
        errors.CommitContended, match=r"The lock 'jdbc\.db\.t' .* another writer's for 3 s"
    ) as found:
        storage.put_if_absent(SNAPSHOT, b"{}")
    assert found.value.context["table"] == storage.location
    assert not storage.exists(SNAPSHOT)
    assert len(shop.rows("paimon_distributed_locks")) == 1
    assert (
        storage.put_if_absent("manifest/manifest-1", b"") is PutResult.CREATED
    )  # nobody else has that name


def test_a_commit_that_does_not_get_the_lock_publishes_nothing_and_can_be_repeated(
    shop: Shop,
) -> None:
    shop.catalog.create_table("db.t", COLUMNS)
    shop.options["lock-acquire-timeout"] = "1 ms"
    table = shop.catalog.get_table("db.t")
    shop.hold()
    with pytest.raises(errors.CommitContended, match="lock-acquire-timeout"):
        table.append(ROWS)
    assert table.latest_snapshot() is None
    assert not list(Path(table.location).rglob("manifest-*"))
    shop.ask("DELETE FROM paimon_distributed_locks")
    shop.options["lock-acquire-timeout"] = "8 min"
    shop.catalog.get_table("db.t").append(ROWS)
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("age", "lasts", "taken"), [(481, 480, True), (470, 480, False), (5, 3, True)]
)
def test_the_lock_of_a_dead_holder_expires_by_the_clock_of_the_database(
    shop: Shop, age: int, lasts: int, taken: bool
) -> None:
    shop.hold(age=age, lasts=lasts)
    shop.hold(lock="jdbc.db.other", age=1000)
    storage = shop.locked(lock_acquire_timeout="1 s")
    if taken:
        assert storage.put_if_absent(SNAPSHOT, b"{}") is PutResult.CREATED
    else:
        with pytest.raises(errors.CommitContended):
            storage.put_if_absent(SNAPSHOT, b"{}")
    assert ("jdbc.db.other" in {one[0] for one in shop.rows("paimon_distributed_locks")}) is True
    assert len(shop.rows("paimon_distributed_locks")) == 1 + (not taken)


class Meanwhile(MemoryStorage):
    """Something happens while a file is created."""

    happens: Callable[[], object]

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        Meanwhile.happens()
        return super().put_if_absent(path, data)


def test_the_lock_of_another_is_never_freed(shop: Shop) -> None:
    def taken_over() -> None:
        shop.ask("DELETE FROM paimon_distributed_locks")
        shop.hold(age=-1)

    Meanwhile.happens = staticmethod(taken_over)  # type: ignore[assignment]
    storage = shop.locked(whole=Meanwhile("taken-over"))
    assert storage.put_if_absent(SNAPSHOT, b"{}") is PutResult.CREATED
    assert len(shop.rows("paimon_distributed_locks")) == 1


def test_a_lock_is_freed_after_an_error_and_a_failed_release_is_no_error(
    shop: Shop, caplog: Any
) -> None:
    def fails() -> None:
        raise errors.Unavailable("the store is gone")

    storage = shop.locked(whole=Meanwhile("fails"))
    Meanwhile.happens = staticmethod(fails)  # type: ignore[assignment]
    with pytest.raises(errors.Unavailable, match="the store is gone"):
        storage.put_if_absent(SNAPSHOT, b"{}")
    assert shop.rows("paimon_distributed_locks") == []
    Meanwhile.happens = staticmethod(lambda: shop.ask("DROP TABLE paimon_distributed_locks"))  # type: ignore[assignment]
    assert storage.put_if_absent(SNAPSHOT, b"{}") is PutResult.CREATED
    assert "the lock 'jdbc.db.t' was not released, and expires by itself" in caplog.text


def test_a_lock_that_a_pause_has_made_old_is_not_used(shop: Shop) -> None:
    class Paused(SimulatedClock):
        """Between two looks at it, minutes pass."""

        def monotonic(self) -> float:
            self.advance(421_000)
            return super().monotonic()

    with pytest.raises(errors.CommitContended):
        shop.locked(Paused()).put_if_absent(SNAPSHOT, b"{}")
    assert not MemoryStorage(f"locked-{shop.folder.name}").exists(SNAPSHOT)


def test_a_broken_database_is_not_a_held_lock(shop: Shop) -> None:
    storage = shop.locked()
    shop.catalog.create_table("db.t", COLUMNS, options={"commit.max-retries": "1"})
    shop.ask("DROP TABLE paimon_distributed_locks")
    with pytest.raises(
        errors.Unavailable, match=r"The catalog's database, sqlite:.*, failed \(OperationalError"
    ):
        storage.put_if_absent(SNAPSHOT, b"{}")
    assert not storage.exists(SNAPSHOT)
    table = shop.catalog.get_table("db.t")
    with pytest.raises(errors.CommitUnknown, match="catalog's database"):
        table.append(ROWS)
    assert list(Path(table.location).rglob("*.parquet"))  # nothing was deleted


# -- options
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "sqlite:/x.db",
        "jdbc:oracle:thin:user/" + SECRET + "@host:1521/x",
        "jdbc:postgresql://user:" + SECRET + "@host/db",
        "jdbc:sqlite:",
    ],
)
def test_what_names_no_database_is_refused(tmp_path: Path, uri: str) -> None:
    with pytest.raises(errors.InvalidOption, match="Give jdbc:postgresql://host/database") as found:
        Shop(tmp_path, uri=uri).catalog.list_databases()
    assert SECRET not in str(found.value)


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(errors.MissingExtra, match="pip install psycopg"):
        Shop(tmp_path, uri="jdbc:postgresql://localhost:1/db").catalog.list_databases()
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(errors.MissingExtra, match="extra 'jdbc'"):
        Shop(tmp_path).catalog.list_databases()


def test_tls_is_never_left_out_in_silence(tmp_path: Path) -> None:
    pytest.importorskip("pymysql")
    with pytest.raises(errors.UnsupportedFeature, match="usessl"):
        Shop(tmp_path, uri="jdbc:mysql://localhost:1/db?useSSL=true").catalog.list_databases()


def test_no_connection_is_an_error_with_a_cure_and_without_secrets(
    tmp_path: Path, caplog: Any
) -> None:
    shop = Shop(tmp_path, uri=f"jdbc:sqlite:{tmp_path}/none/c.db?password={SECRET}")
    storage = shop.locked()
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(errors.StorageError, match=r"OperationalError.*Check that it runs") as found,
    ):
        storage.put_if_absent(SNAPSHOT, b"{}")
    assert not isinstance(found.value, errors.Unavailable)  # so nothing was published
    shown = (
        repr(shop.catalog)
        + repr(storage)
        + str(found.value)
        + repr(found.value.context)
        + caplog.text
    )
    assert SECRET not in shown


def test_the_options_of_a_catalog_travel_with_its_tables_and_ask_nothing(shop: Shop) -> None:
    made = catalog({**shop.options, "cache-enabled": "true", "table-default.bucket": "2"})
    assert made.storage_options == shop.options
    storage = open_table_folder(made.location("db.t"), made.storage_options)
    again = pickle.loads(pickle.dumps(storage))
    assert (again.location, again.lock_name, again.options) == (
        storage.location,
        "jdbc.db.t",
        shop.options,
    )
    for location, named in (
        ("s3a://other/x/my.db.db/t/", "jdbc.my.db.t"),
        (f"file:{shop.folder}/wh/db.db/t", "jdbc.db.t"),
    ):
        assert open_table(location, shop.options, lambda *_: storage).lock_name == named  # type: ignore[attr-defined]
    assert isinstance(open_table_folder(made.warehouse, shop.options), LocalStorage)
    with pytest.raises(errors.InvalidOption, match="not a table of a JDBC catalog"):
        open_table_folder(f"{shop.folder}/elsewhere", shop.options)
    with pytest.raises(errors.InvalidOption, match=r"lock\.enabled"):
        open_table_folder(made.location("db.t"), {**shop.options, "lock.enabled": "maybe"})


def test_an_executor_needs_no_access_to_the_database(shop: Shop) -> None:
    storage = pickle.dumps(open_table_folder(shop.catalog.location("db.t"), shop.options))
    program = (
        "import pickle, sys; storage = pickle.loads(bytes.fromhex(sys.argv[1])); storage.write('bucket-0/x', b'1');"
        "assert storage.read('bucket-0/x') == b'1'; assert 'sqlalchemy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, storage.hex()], check=True)
