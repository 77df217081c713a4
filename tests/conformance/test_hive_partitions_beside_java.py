"""The partitions that the Hive Metastore is told of where `metastore.partitioned-table` or
`metastore.tag-to-partition` is set: those of our commits and tags are the ones of Java's, and none is
forgotten if the metastore is away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, PaimonTable, SchemaChange, catalog
from paimon_stream.catalogs import hive_client, hive_table
from paimon_stream.catalogs.hive_client import HiveClient, Struct, struct_of
from paimon_stream.table.table import alter_table
from tests.kits.hive import Door, HiveMetastore
from tests.kits.java_catalogs import JavaJdbcCatalog

pytestmark = pytest.mark.hive

COLUMNS = [("id", "BIGINT"), ("name", "STRING")]
KEY: Final = "metastore.partitioned-table"
TOLD: dict[str, Any] = {"partition_keys": ["name"], "options": {"bucket": "-1", KEY: "true"}}
VALUES = ("a", "b=c/d e%", "ü:{", " ")
OF_TAGS: dict[str, Any] = {"options": {"bucket": "-1", "metastore.tag-to-partition": "Day"}}
NUMBERS = count(1)
NOTES = "_paimon_stream/partitions.*"


@pytest.fixture
def database() -> str:
    return f"parts{os.getpid()}_{next(NUMBERS)}"


@pytest.fixture
def ours(hive_metastore: HiveMetastore, database: str) -> PaimonCatalog:
    shop = catalog(hive_metastore.options)
    shop.create_database(database)
    return shop


@pytest.fixture(scope="module")
def theirs(java_of_hive: Any, hive_metastore: HiveMetastore) -> JavaJdbcCatalog:
    return JavaJdbcCatalog(java_of_hive, hive_metastore.options)


@pytest.fixture
def client(hive_metastore: HiveMetastore, monkeypatch: Any) -> HiveClient:
    monkeypatch.setitem(
        hive_client._RAISED, "get_partitions", ("NoSuchObjectException", "MetaException")
    )
    return HiveClient(hive_metastore.uri)


@pytest.fixture
def door(hive_metastore: HiveMetastore) -> Iterator[Door]:
    way = Door(hive_metastore.port)
    yield way
    way.close()


def rows(*names: str | None) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(len(names)), pa.int64()), "name": pa.array(names, pa.string())}
    )


def partitions(client: HiveClient, database: str, name: str) -> list[Struct]:
    arguments = struct_of({1: database, 2: name})
    arguments.fields[3] = 6, -1  # all of them
    _, found = client.ask("get_partitions", arguments)
    return list(found)


def values(client: HiveClient, database: str, name: str) -> list[str]:
    found = partitions(client, database, name)
    return sorted(value.decode() for partition in found for value in partition.items(1))


def comparable(partition: Struct) -> tuple[Any, ...]:
    """A partition without its times and its table's name, with the end of its location."""
    storage = partition.struct(6)
    _, _, folder = storage.text(hive_table.LOCATION).rpartition("/")
    scheme, _, _ = storage.text(hive_table.LOCATION).partition("/")
    of_storage = {k: v for k, v in storage.fields.items() if k != hive_table.LOCATION}
    fields = {k: v for k, v in partition.fields.items() if k not in (3, 4, 5, 6, 7)}
    keys = sorted(partition.texts(7))
    return scheme, folder, of_storage, fields, keys


def notes(table: PaimonTable) -> list[str]:
    return [path.name for path in Path(table.location).glob(NOTES)]


def test_the_metastore_keeps_the_same_partitions_of_ours_as_of_java_s(
    ours: PaimonCatalog,
    theirs: JavaJdbcCatalog,
    java_of_hive: Any,
    client: HiveClient,
    database: str,
) -> None:
    table = ours.create_table(f"{database}.ours", COLUMNS, **TOLD)
    theirs.create_table(f"{database}.javas", COLUMNS, **TOLD)
    for number, value in enumerate(VALUES):
        java_of_hive.written(theirs.table(f"{database}.javas"), number, value)
    table.append(rows(*VALUES))
    table.append(rows("a", "b=c/d e%"))
    of_ours, of_java = (
        [comparable(one) for one in partitions(client, database, name)]
        for name in ("ours", "javas")
    )
    assert len(of_java) == len(VALUES)
    assert of_ours == of_java
    assert notes(table) == []
    listed = [dict(one.spec()) for one in theirs.listPartitions(theirs.named(f"{database}.ours"))]
    assert sorted(one["name"] for one in listed) == values(client, database, "javas")
    java_of_hive.written(theirs.table(f"{database}.ours"), 9, "of java")
    ours.get_table(f"{database}.javas").append(rows("of ours"))
    assert "of java" in values(client, database, "ours")
    assert "of ours" in values(client, database, "javas")
    ours.alter_table(f"{database}.ours", [SchemaChange.add_column("extra", "INT")])
    theirs.alterTable(
        theirs.named(f"{database}.javas"),
        [theirs.change.addColumn("extra", theirs.java._java_type("INT"))],
        False,
    )


def test_what_was_written_while_the_metastore_was_away_is_told_at_the_next_open(
    ours: PaimonCatalog, client: HiveClient, door: Door, database: str, caplog: Any
) -> None:
    name = f"{database}.t"
    table = ours.create_table(name, COLUMNS, **TOLD)
    through_door = catalog({**ours.storage_options, "uri": f"thrift://127.0.0.1:{door.port}"})
    behind_door = through_door.get_table(name)
    door.state = "shut"
    behind_door.append(rows("mon", None))
    assert "the metastore lacks 2 partitions" in caplog.text
    assert (values(client, database, "t"), len(notes(table))) == ([], 1)
    door.state = "open"
    assert through_door.get_table(name).to_arrow().num_rows == 2
    assert values(client, database, "t") == ["__DEFAULT_PARTITION__", "mon"]
    assert notes(table) == []


def test_a_partition_that_expires_leaves_the_metastore(
    ours: PaimonCatalog, client: HiveClient, database: str
) -> None:
    name = f"{database}.t"
    options = {**TOLD["options"], "partition.expiration-time": "7 d"}
    table = ours.create_table(name, COLUMNS, partition_keys=["name"], options=options)
    table.append(rows("2020-01-01", "9000-01-01"))
    assert values(client, database, "t") == ["2020-01-01", "9000-01-01"]
    table.expire_partitions()
    assert values(client, database, "t") == ["9000-01-01"]


def test_a_table_without_partition_columns_in_the_metastore_is_written_with_a_warning(
    ours: PaimonCatalog, database: str, caplog: Any
) -> None:
    name = f"{database}.t"
    table = ours.create_table(name, COLUMNS, partition_keys=["name"])
    alter_table(table._table.storage, [SchemaChange.set_option(KEY, "true")])  # not by the catalog
    ours.get_table(name).append(rows("mon"))
    assert "without partition columns, so it takes no partitions" in caplog.text
    assert ours.get_table(name).to_arrow().num_rows == 1


def test_the_metastore_keeps_the_same_partitions_of_our_tags_as_of_java_s(
    ours: PaimonCatalog,
    theirs: JavaJdbcCatalog,
    java_of_hive: Any,
    client: HiveClient,
    database: str,
) -> None:
    table = ours.create_table(f"{database}.ours", COLUMNS, **OF_TAGS)
    theirs.create_table(f"{database}.javas", COLUMNS, **OF_TAGS)
    of_java = theirs.table(f"{database}.javas")
    java_of_hive.written(of_java, 1, "a")
    table.append(rows("a"))
    for tag in ("2026-11-30", "b=c d%ü"):
        java_of_hive.tagged(of_java, tag)
        table.create_tag(tag)
    keys = [
        [(column.text(1), column.text(2)) for column in stored.items(hive_table.PARTITION_KEYS)]
        for name in ("ours", "javas")
        if (stored := client.ask("get_table", struct_of({1: database, 2: name})))
    ]
    assert keys == [[("day", "string")]] * 2
    kept = [
        [comparable(one) for one in partitions(client, database, name)]
        for name in ("ours", "javas")
    ]
    assert len(kept[1]) == 2
    assert kept[0] == kept[1]
    listed = [dict(one.spec()) for one in theirs.listPartitions(theirs.named(f"{database}.ours"))]
    assert listed == [
        dict(one.spec()) for one in theirs.listPartitions(theirs.named(f"{database}.javas"))
    ]
    java_of_hive.tagged(theirs.table(f"{database}.ours"), "of java")
    by_name = ours.get_table(f"{database}.javas")
    by_name.create_tag("of ours")
    java_of_hive.untagged(theirs.table(f"{database}.ours"), "2026-11-30")
    by_name.delete_tag("2026-11-30")
    assert values(client, database, "ours") == ["b=c d%ü", "of java"]
    assert values(client, database, "javas") == ["b=c d%ü", "of ours"]
    java_of_hive.untagged(of_java, "of ours")
    table.delete_tag("of java")
    assert values(client, database, "ours") == values(client, database, "javas") == ["b=c d%ü"]
    assert notes(table) == notes(by_name) == []


def test_the_tag_of_the_present_period_is_told_by_each_commit_as_java_does(
    ours: PaimonCatalog,
    theirs: JavaJdbcCatalog,
    java_of_hive: Any,
    client: HiveClient,
    database: str,
) -> None:
    options = {**OF_TAGS["options"], "metastore.tag-to-partition.preview": "process-time"}
    for formatter in ("with_dashes", "without_dashes"):
        of_both = {"options": {**options, "tag.period-formatter": formatter}}
        table = ours.create_table(f"{database}.ours_{formatter}", COLUMNS, **of_both)
        theirs.create_table(f"{database}.javas_{formatter}", COLUMNS, **of_both)
        java_of_hive.written(theirs.table(f"{database}.javas_{formatter}"), 1, "a")
        table.append(rows("a"))
        told = values(client, database, f"javas_{formatter}")
        assert len(told) == 1
        assert values(client, database, f"ours_{formatter}") == told
        assert table.to_arrow().num_rows == 1


def test_tags_that_changed_while_the_metastore_was_away_are_told_at_the_next_open(
    ours: PaimonCatalog, client: HiveClient, door: Door, database: str, caplog: Any
) -> None:
    name = f"{database}.t"
    table = ours.create_table(name, COLUMNS, **OF_TAGS)
    table.append(rows("a"))
    table.create_tag("old")
    through_door = catalog({**ours.storage_options, "uri": f"thrift://127.0.0.1:{door.port}"})
    behind_door = through_door.get_table(name)
    door.state = "shut"
    behind_door.create_tag("new")
    behind_door.delete_tag("old")
    assert "the metastore was not told of tags" in caplog.text
    assert (values(client, database, "t"), len(notes(table))) == (["old"], 2)
    door.state = "open"
    through_door.get_table(name)
    assert (values(client, database, "t"), notes(table)) == (["new"], [])
