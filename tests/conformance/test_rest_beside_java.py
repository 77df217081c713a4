"""The REST catalog of Java's own test server: our commits beside Java's client, DDL both ways, and
lost answers.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kits.steps import run_batch

pytest.importorskip("urllib3")

from paimon_stream import PaimonCatalog, PaimonTable, SchemaChange, catalog, errors
from paimon_stream.catalogs import rest
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits.params import few
from tests.kits.seeds import examples
from tests.kits.stores import started
from tests.kits.tables import write_rows
from tests.servers import rest_paimon
from tests.servers.fault_proxy import FaultProxy, Rule

COLUMNS = [("id", "BIGINT"), ("p", "STRING")]
NAMES = (f"db{one}" for one in itertools.count())


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with started(rest_paimon.start) as running:
        yield running


@pytest.fixture
def proxy(server: Any) -> Iterator[FaultProxy]:
    with FaultProxy(f"127.0.0.1:{server.port}") as made:
        yield made


@pytest.fixture
def options(server: Any, proxy: FaultProxy) -> dict[str, str]:
    login = {"token.provider": "bear", "token": server.token}
    return {"metastore": "rest", "uri": proxy.url, "warehouse": server.warehouse, **login}


@pytest.fixture
def cat(options: dict[str, str]) -> PaimonCatalog:
    return catalog(options)


@pytest.fixture
def db(cat: PaimonCatalog) -> str:
    name = next(NAMES)
    cat.create_database(name)
    return name


@pytest.fixture
def table(cat: PaimonCatalog, db: str) -> PaimonTable:
    return cat.create_table(f"{db}.t", COLUMNS, partition_keys=["p"])


@pytest.fixture
def javas(java: Any, options: dict[str, str]) -> Any:
    """Java's client of the catalog. It takes a table's name where the oracle takes a path."""

    class Client(type(java)):  # type: ignore[misc]
        def __init__(self) -> None:
            self.__dict__.update(java.__dict__)
            given = java._paimon.options.Options()
            for key, value in options.items():
                given.set(key, value)
            context = java._paimon.catalog.CatalogContext.create(given)
            self.catalog = java._paimon.catalog.CatalogFactory.createCatalog(context)
            self.named = java._paimon.catalog.Identifier.fromString

        def _table(self, path: Any, options: Mapping[str, str] | None = None) -> Any:
            found = self.catalog.getTable(self.named(path))
            return found.copy(dict(options)) if options else found

        def _latest_snapshot_id(self, path: Any) -> int:
            return int(self._table(path).snapshotManager().latestSnapshotId())

    return Client()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "p": ["a"] * len(ids)})


def ids_of(table: PaimonTable) -> list[int]:
    return sorted(row["id"] for row in table.to_arrow().to_pylist())


def test_databases_and_tables_are_the_same_for_javas_client(
    cat: PaimonCatalog, javas: Any, db: str, java: Any
) -> None:
    keyed = cat.create_table(
        f"{db}.ours",
        [("id", "BIGINT NOT NULL"), ("n", "INT"), ("s", "ROW<a INT, b ARRAY<STRING>>")],
        primary_keys=["id"],
        options={"bucket": "2"},
        comment="mine",
    )
    javas.catalog.createTable(
        javas.named(f"{db}.javas"), java._java_schema(COLUMNS, ["p"], [], {}), False
    )
    assert cat.list_tables(db) == sorted(javas.catalog.listTables(db)) == ["javas", "ours"]
    assert (
        javas.catalog.getTable(javas.named(f"{db}.ours")).comment().get()
        == keyed.schema.comment
        == "mine"
    )
    assert java.schema(keyed.location)["fields"] == [one.to_json() for one in keyed.schema.fields]
    assert cat.get_table(f"{db}.javas").schema.partition_keys == ("p",)
    for raised in (
        lambda: cat.create_table(f"{db}.javas", COLUMNS),
        lambda: cat.create_database(db),
    ):
        with pytest.raises(errors.AlreadyExists):
            raised()
    cat.rename_table(f"{db}.javas", f"{db}.u")
    assert sorted(javas.catalog.listTables(db)) == ["ours", "u"]
    with pytest.raises(errors.InvalidOption, match="cascade"):
        cat.drop_database(db)
    cat.drop_table(f"{db}.u")
    cat.drop_database(db, cascade=True)
    assert db not in cat.list_databases()
    for gone in (
        lambda: cat.list_tables(db),
        lambda: cat.get_table(f"{db}.t"),
        lambda: cat.drop_database(db),
    ):
        with pytest.raises(errors.NotFound):
            gone()


CHANGES = {
    "an option": [SchemaChange.set_option("write-only", "true")],
    "no option": [
        SchemaChange.set_option("consumer-id", "x"),
        SchemaChange.remove_option("consumer-id"),
    ],
    "the comment": [SchemaChange.update_comment("new")],
    "a column": [SchemaChange.add_column("x", "DECIMAL(10, 2)", "why")],
    "a nested column": [SchemaChange.add_column("x", "ROW<a INT, b ARRAY<STRING>>")],
    "a name": [SchemaChange.rename_column("n", "m")],
    "no column": [SchemaChange.drop_column("n")],
    "a type": [SchemaChange.update_column_type("n", "BIGINT")],
    "a type that is NOT NULL": [SchemaChange.update_column_type("k", "BIGINT")],
    "nullability": [SchemaChange.update_column_nullability("k", True)],
    "a column's comment": [SchemaChange.update_column_comment("n", "c")],
    "many": [
        SchemaChange.add_column("x", "INT"),
        SchemaChange.rename_column("x", "y"),
        SchemaChange.drop_column("n"),
    ],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_the_server_makes_the_schema_that_we_would_make(
    cat: PaimonCatalog, db: str, tmp_path: Path, changes: list[SchemaChange]
) -> None:
    columns, own = (
        [("id", "BIGINT"), ("n", "INT"), ("k", "INT NOT NULL")],
        catalog({"warehouse": str(tmp_path)}),
    )
    own.create_database(db)
    found = []
    for one in (cat, own):
        one.create_table(f"{db}.t", columns)
        one.alter_table(f"{db}.t", changes)
        schema = one.get_table(f"{db}.t").schema
        options = {key: value for key, value in schema.options.items() if key != "path"}
        found.append((schema.fields, options, schema.comment))
    assert found[0] == found[1]


def test_commits_of_both_take_turns(
    cat: PaimonCatalog, javas: Any, table: PaimonTable, db: str, java: Any
) -> None:
    for number in range(0, 6, 2):
        table.append(rows(number))
        javas.write(f"{db}.t", [{"id": number + 1, "p": "a"}])
    assert ids_of(table) == list(range(6))
    assert sorted(row["id"] for row in javas.read(f"{db}.t")) == list(range(6))
    assert sorted(row["id"] for row in java.read(table.location)) == list(range(6))
    assert [one.id for one in table.snapshots()] == list(range(1, 7))


def test_commits_of_both_at_once_lose_nothing(cat: PaimonCatalog, javas: Any, db: str) -> None:
    name, each = f"{db}.busy", examples(3, 8)
    cat.create_table(
        name, COLUMNS, options={"commit.max-retries": "200", "commit.timeout": "5 min"}
    )
    failed: list[Exception] = []

    def write(writer: int) -> None:
        try:
            mine = cat.get_table(name)
            for number in range(each):
                if writer == 0:
                    javas.write(
                        name, [{"id": number, "p": "a"}], options={"commit.max-retries": "200"}
                    )
                else:
                    mine.append(rows(writer * each + number))
        except Exception as why:  # noqa: BLE001 - of either client
            failed.append(why)

    threads = [threading.Thread(target=write, args=(one,)) for one in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    table = cat.get_table(name)
    assert ids_of(table) == list(range(4 * each))
    assert [one.id for one in table.snapshots()] == list(range(1, 4 * each + 1))
    assert sorted(row["id"] for row in javas.read(name)) == list(range(4 * each))


FAULTS = {
    "drop_answer": Rule("drop_answer", method="POST", path="/commit$"),
    "answer_after": Rule("answer_after", method="POST", path="/commit$", status=503),
    "half_answer": Rule("half_answer", method="POST", path="/commit$"),
    "answer": Rule("answer", method="POST", path="/commit$", status=503),
    "refuse": Rule("refuse", method="POST", path="/commit$"),
    "cut_body": Rule("cut_body", method="POST", path="/commit$"),
    "late": Rule("late", method="POST", path="/commit$", seconds=0.5),
    "hang": Rule("hang", method="POST", path="/commit$", seconds=2),
    "look": Rule("drop_answer", method="GET", path="/snapshots/"),
}


@pytest.mark.parametrize("fault", few(FAULTS, lambda fault: fault in ("drop_answer", "look")))
def test_a_stream_writes_a_batch_once_whatever_happens_to_the_answer(
    cat: PaimonCatalog,
    table: PaimonTable,
    proxy: FaultProxy,
    fault: str,
    db: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rest, "COMMIT_SECONDS", 1.0)
    run = Run(cat, f"{db}.t")
    run.batch(0)
    proxy.add(FAULTS[fault])
    run.batch(1)
    assert proxy.fired == 1
    run.batch(2)
    again = Run(cat, f"{db}.t", run=2)  # a restart that replays the last batch
    assert again.batch(2) == "already committed"
    again.batch(3)
    assert ids_of(table) == [0, 1, 2, 3]
    assert [one.commit_identifier for one in table.snapshots()] == [0, 1, 2, 3]


class Run:
    """One run of a stream whose batch n has the row n."""

    def __init__(self, cat: PaimonCatalog, name: str, run: int = 1) -> None:
        location, options = cat.found(name)  # type: ignore[misc]
        identity = WriterIdentity(user="me", query_id="q", run_id=f"r{run}", token=f"t{run}")
        self.writer = StreamWriter(
            storage=open_storage(location, options), identity=identity, options={}
        )

    def batch(self, number: int) -> str:
        batch = Batch(batch_id=number, offsets_hash=str(number), previous_done_millis=None)
        given = rows(number).to_pylist()
        return run_batch(self.writer, batch, lambda judged: write_rows(judged.table, given)).outcome


def test_orders_of_the_server(cat: PaimonCatalog, table: PaimonTable, server: Any, db: str) -> None:
    server.order("lose")
    assert table.append(rows(1)).snapshot_id == 1
    assert ids_of(table) == [1]
    server.order(f"forbid {db}.t")
    with pytest.raises(errors.PermissionDenied, match="403"):
        table.append(rows(2))
    with pytest.raises(errors.PermissionDenied):
        cat.drop_table(f"{db}.t")


def test_a_data_token_of_the_server_opens_the_store(
    options: dict[str, str], table: PaimonTable, server: Any, db: str
) -> None:
    server.order(
        f"token {db}.t 4102444800000 fs.s3a.access.key=AKID fs.s3a.secret.key=s3cr3t-never-shown"
    )
    tokened = catalog({**options, "data-token.enabled": "true"})
    tokened.get_table(f"{db}.t").append(
        rows(1)
    )  # on disk the token opens nothing, and does no harm
    assert ids_of(table) == [1]


def test_a_table_that_was_created_again_is_another_one(
    cat: PaimonCatalog, table: PaimonTable, db: str
) -> None:
    table.append(rows(1))
    cat.drop_table(f"{db}.t")
    cat.create_table(f"{db}.t", COLUMNS, partition_keys=["p"])
    with pytest.raises(errors.TableReplaced):
        table.append(rows(2))
    assert cat.get_table(f"{db}.t").latest_snapshot() is None
