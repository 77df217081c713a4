"""Java Paimon and we work on the same tables on S3, in turns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import CommitMessage, PaimonTable, SchemaChange, catalog, errors
from tests.kits.seeds import examples
from tests.kits.stores import StoreServer

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING"), ("dt", "STRING NOT NULL")]
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "keyed": {"primary_keys": ["dt", "id"], "options": {"bucket": "2"}},
}


def row(n: int, name: str) -> dict[str, Any]:
    return {"id": n, "name": name, "dt": f"2024-01-0{1 + n % 2}"}


def ours(*rows: dict[str, Any]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.string())])
    return pa.Table.from_pylist(list(rows), schema)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda one: one["id"])


@pytest.mark.full
@pytest.mark.parametrize("first", ["ours", "java"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_reads_and_continues_what_the_other_wrote(
    java_on_s3: Any, s3_server: StoreServer, kind: str, first: str
) -> None:
    location, options = s3_server.place()
    how = KINDS[kind]
    if first == "ours":
        PaimonTable.create(location, COLUMNS, partition_keys=["dt"], storage_options=options, **how)
    else:
        java_on_s3.create_table(
            location,
            COLUMNS,
            ["dt"],
            how.get("primary_keys", []),
            how.get("options", {"bucket": "-1"}),
        )
    table = PaimonTable.load(location, storage_options=options)
    expected, turns = [], examples(2, 3)
    for turn in range(turns):
        expected += [row(4 * turn + n, f"{turn}.{n}") for n in range(4)]
        table.append(ours(*expected[-4:-2]))
        java_on_s3.write(location, expected[-2:], commit_identifier=turn + 1)
    assert by_id(java_on_s3.read(location)) == expected
    assert by_id(table.to_arrow().to_pylist()) == expected
    assert [one["id"] for one in java_on_s3.snapshots(location)] == list(range(1, 2 * turns + 1))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=0)
    assert by_id(java_on_s3.read(location)) == expected
    java_on_s3.expire_snapshots(location, retain_max=1)
    assert by_id(table.to_arrow().to_pylist()) == expected
    assert table.verify().healthy


def test_we_commit_files_that_java_wrote(java_on_s3: Any, s3_server: StoreServer) -> None:
    location, options = s3_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options, partition_keys=["dt"])
    prepared = java_on_s3.prepare_commit_bytes(location, [row(1, "of java")])
    table.new_commit("ours").commit(
        1, [CommitMessage.deserialize(one) for one in prepared.messages]
    )
    assert table.to_arrow().to_pylist() == java_on_s3.read(location) == [row(1, "of java")]
    assert java_on_s3.last_commit_of(location, "ours") == 1


@pytest.mark.full
def test_each_finds_reads_and_drops_the_databases_and_tables_of_the_other(
    java_on_s3: Any, s3_server: StoreServer, caplog: pytest.LogCaptureFixture
) -> None:
    location, options = s3_server.place()
    given = java_on_s3._paimon.options.Options()
    for key, value in {**options, "warehouse": location}.items():
        given.set(key, value)
    context = java_on_s3._paimon.catalog.CatalogContext.create(given)
    javas = java_on_s3._paimon.catalog.CatalogFactory.createCatalog(context)
    named = java_on_s3._paimon.catalog.Identifier.fromString
    made = catalog({**options, "warehouse": location, "lock.enabled": "false"})
    made.create_database("ours")
    javas.createDatabase("javas", False)
    assert made.list_databases() == sorted(javas.listDatabases()) == ["javas", "ours"]
    assert list(javas.listTables("ours")) == made.list_tables("javas") == []
    with pytest.raises(Exception, match="DatabaseAlreadyExist"):
        javas.createDatabase("ours", False)
    with pytest.raises(errors.AlreadyExists):
        made.create_database("javas")
    made.create_table("ours.t", COLUMNS).append(ours(row(1, "a")))
    made.alter_table("ours.t", [SchemaChange.rename_column("name", "title")])
    java_schema = java_on_s3._java_schema(COLUMNS, [], [], {"bucket": "-1"})
    javas.createTable(named("javas.t"), java_schema, False)
    java_on_s3.write(f"{location}/javas.db/t", [row(2, "b")])
    assert list(javas.listTables("ours")) == made.list_tables("javas") == ["t"]
    assert java_on_s3.read(f"{location}/ours.db/t") == [{"id": 1, "title": "a", "dt": "2024-01-02"}]
    assert made.get_table("javas.t").to_arrow().to_pylist() == [row(2, "b")]
    with pytest.raises(errors.UnsupportedFeature):
        made.rename_table("javas.t", "javas.u")
    made.drop_table("javas.t")
    javas.dropTable(named("ours.t"), False)
    assert list(javas.listTables("javas")) == made.list_tables("ours") == []
    made.drop_database("javas")
    assert "the empty key javas.db/ of another engine stays" in caplog.text
    javas.dropDatabase("javas", False, False)
    made.drop_database("ours")
    assert made.list_databases() == list(javas.listDatabases()) == []
