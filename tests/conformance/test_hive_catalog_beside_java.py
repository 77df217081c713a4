"""Java's HiveCatalog and ours on one Hive Metastore: each lists, reads, alters and drops what the
other made, each waits for the lock of the other, and neither loses what others keep there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, PaimonTable, SchemaChange, catalog, errors
from paimon_stream.api.doctor import leftovers
from paimon_stream.catalogs import hive_table
from paimon_stream.catalogs.hive import change_table, stored_table
from paimon_stream.catalogs.hive_client import STRUCT, HiveClient, Struct
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.table import alter_table
from tests.kits.hive import Door, HiveMetastore
from tests.kits.java_catalogs import Beside, JavaJdbcCatalog
from tests.kits.steps import Messages, run_batch
from tests.kits.tables import write_rows

pytestmark = pytest.mark.hive

COLUMNS = [("id", "BIGINT"), ("name", "STRING")]
OF_ALL_TYPES = [
    ("id", "BIGINT NOT NULL"),
    ("day", "STRING NOT NULL"),
    ("c", "CHAR(300)"),
    ("v", "VARCHAR(3)"),
    ("d", "DECIMAL(10, 2)"),
    ("a", "ARRAY<ROW<x INT, y VARCHAR(3)>>"),
    ("m", "MAP<STRING, DOUBLE>"),
    ("s", "MULTISET<INT>"),
    ("z", "TIMESTAMP_LTZ(3)"),
    ("t", "TIMESTAMP(3)"),
    ("ti", "TIME(3)"),
    ("b", "BYTES"),
]
KEYED: dict[str, Any] = {
    "primary_keys": ["day", "id"],
    "partition_keys": ["day"],
    "options": {"bucket": "2"},
}
TIMES = {3: "owner", 4: "createTime", 5: "lastAccessTime"}
OF_STATISTICS = {"totalSize", "numFiles", hive_table.CHANGED_AT}
NUMBERS = count(1)


@pytest.fixture
def database() -> str:
    return f"db{os.getpid()}_{next(NUMBERS)}"


@pytest.fixture
def ours(hive_metastore: HiveMetastore, database: str) -> PaimonCatalog:
    hive = catalog(hive_metastore.options)
    hive.create_database(database)
    return hive


@pytest.fixture(scope="module")
def theirs(java_of_hive: Any, hive_metastore: HiveMetastore) -> JavaJdbcCatalog:
    return JavaJdbcCatalog(java_of_hive, hive_metastore.options)


@pytest.fixture
def client(hive_metastore: HiveMetastore) -> HiveClient:
    return HiveClient(hive_metastore.uri)


def arrow(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def stored(client: HiveClient, database: str, name: str) -> Struct:
    table = stored_table(client, database, name)
    assert table is not None
    return table


def columns(client: HiveClient, database: str, name: str) -> list[tuple[str, str]]:
    descriptor = stored(client, database, name).struct(hive_table.STORAGE)
    return [(column.text(1), column.text(2)) for column in descriptor.items(1)]


def parameters(client: HiveClient, database: str, name: str) -> dict[str, str]:
    return stored(client, database, name).texts(hive_table.PARAMETERS)


def comparable(table: Struct) -> dict[int, Any]:
    """The fields of a table, without its name, its place and the times."""
    fields = {number: value for number, value in table.fields.items() if number not in (2, *TIMES)}
    of_table = table.texts(hive_table.PARAMETERS)
    fields[9] = 13, {key: value for key, value in of_table.items() if key not in OF_STATISTICS}
    table.struct(hive_table.STORAGE).fields.pop(hive_table.LOCATION)
    return fields


def test_the_metastore_keeps_the_same_of_our_table_as_of_java_s(
    ours: PaimonCatalog, theirs: JavaJdbcCatalog, client: HiveClient, database: str
) -> None:
    ours.create_table(f"{database}.ours", OF_ALL_TYPES, **KEYED)
    theirs.create_table(f"{database}.javas", OF_ALL_TYPES, **KEYED)
    of_ours, of_java = (comparable(stored(client, database, name)) for name in ("ours", "javas"))
    of_ours.pop(hive_table.NAME), of_java.pop(hive_table.NAME)
    assert of_ours == of_java


def test_each_works_with_the_tables_that_the_other_made(
    ours: PaimonCatalog,
    theirs: JavaJdbcCatalog,
    java: Any,
    java_of_hive: Any,
    client: HiveClient,
    database: str,
) -> None:
    theirs.createDatabase(f"{database}_java", False)
    assert {database, f"{database}_java"} <= set(ours.list_databases())
    ours.create_table(f"{database}.ours", COLUMNS).append(arrow(1))
    theirs.create_table(f"{database}.javas", COLUMNS)
    java_of_hive.written(theirs.table(f"{database}.javas"), 1, "n1")
    both = ["javas", "ours"]
    assert ours.list_tables(database) == sorted(theirs.listTables(database)) == both
    for name in both:
        java_of_hive.written(theirs.table(f"{database}.{name}"), 2, "n2")
        table = ours.get_table(f"{database}.{name}")
        table.append(arrow(3))
        rows = sorted(java.read(table.location), key=lambda row: row["id"])
        assert rows == table.to_arrow().sort_by("id").to_pylist() == arrow(1, 2, 3).to_pylist()
    changes = [
        SchemaChange.add_column("extra", "INT"),
        SchemaChange.set_option("tag.num-retained-max", "5"),
    ]
    ours.alter_table(f"{database}.javas", changes)
    field_type = theirs.java._java_type("INT")
    theirs.alterTable(
        theirs.named(f"{database}.ours"), [theirs.change.addColumn("extra", field_type)], False
    )
    assert columns(client, database, "javas") == columns(client, database, "ours")
    assert columns(client, database, "ours")[-1] == ("extra", "int")
    assert parameters(client, database, "javas")["tag.num-retained-max"] == "5"
    ours.alter_table(f"{database}.javas", [SchemaChange.remove_option("tag.num-retained-max")])
    assert "tag.num-retained-max" not in parameters(client, database, "javas")
    ours.rename_table(f"{database}.javas", f"{database}.moved")
    assert sorted(theirs.listTables(database)) == ["moved", "ours"]
    assert theirs.table(f"{database}.moved").rowType().getFieldCount() == 3
    folder = Path(ours.location(f"{database}.ours"))
    theirs.dropTable(theirs.named(f"{database}.ours"), False)
    assert not folder.exists()
    folder = Path(ours.location(f"{database}.moved"))
    ours.drop_table(f"{database}.moved")
    assert not folder.exists()
    assert ours.list_tables(database) == list(theirs.listTables(database)) == []
    ours.drop_database(f"{database}_java")
    theirs.dropDatabase(database, False, False)
    assert not {database, f"{database}_java"} & set(ours.list_databases())


def test_names_that_exist_or_are_missing_are_said_to_be_so(
    ours: PaimonCatalog, database: str
) -> None:
    ours.create_table(f"{database}.t", COLUMNS)
    ours.create_database(database, ignore_if_exists=True)
    with pytest.raises(errors.AlreadyExists, match=database):
        ours.create_database(database)
    with pytest.raises(errors.AlreadyExists):
        ours.create_table(f"{database}.t", COLUMNS)
    assert ours.create_table(f"{database}.t", COLUMNS, ignore_if_exists=True).schema.id == 0
    for missing in (ours.get_table, ours.drop_table):
        with pytest.raises(errors.NotFound, match=rf"no table '{database}\.none' in the Hive"):
            missing(f"{database}.none")
    ours.drop_table(f"{database}.none", ignore_if_not_exists=True)
    for call in (ours.list_tables, ours.drop_database):
        with pytest.raises(errors.NotFound, match="no database 'nowhere' in the Hive"):
            call("nowhere")
    with pytest.raises(errors.NotFound, match="no database 'nowhere' in the Hive"):
        ours.create_table("nowhere.t", COLUMNS)
    with pytest.raises(errors.InvalidOption, match="pass cascade=True"):
        ours.drop_database(database)
    ours.drop_database(database, cascade=True)


def test_a_name_in_upper_case_is_refused_with_the_one_to_give(
    ours: PaimonCatalog, database: str
) -> None:
    with pytest.raises(errors.InvalidOption, match=f"Give '{database}.orders'"):
        ours.create_table(f"{database}.Orders", COLUMNS)
    with pytest.raises(errors.InvalidOption, match="Give 'shop'"):
        ours.create_database("Shop")


def test_a_table_of_hive_is_not_taken_for_one_of_paimon(
    ours: PaimonCatalog, client: HiveClient, database: str
) -> None:
    ours.create_table(f"{database}.t", COLUMNS)
    table = stored(client, database, "t")
    table.set_text(hive_table.NAME, "of_hive")
    descriptor = table.struct(hive_table.STORAGE)
    descriptor.set_text(3, "org.apache.hadoop.mapred.TextInputFormat")
    descriptor.set_text(hive_table.LOCATION, f"{ours.location(f'{database}.t')}_of_hive")
    client.ask("create_table", Struct({1: (STRUCT, table)}))
    assert ours.list_tables(database) == ["t"]
    for call in (ours.get_table, ours.drop_table, lambda name: ours.create_table(name, COLUMNS)):
        with pytest.raises(errors.UnsupportedFeature, match="no table of Paimon"):
            call(f"{database}.of_hive")
    with pytest.raises(errors.UnsupportedFeature, match="views of Hive, such as of_hive"):
        ours.drop_database(database, cascade=True)
    assert ours.list_tables(database) == ["t"]


def test_a_table_whose_folder_is_gone_is_named_and_can_be_dropped(
    ours: PaimonCatalog, database: str
) -> None:
    shutil.rmtree(ours.create_table(f"{database}.t", COLUMNS).location)
    with pytest.raises(errors.NotFound, match=rf"drop_table\('{database}\.t'\)"):
        ours.get_table(f"{database}.t")
    ours.drop_table(f"{database}.t")
    assert ours.list_tables(database) == []


def test_a_killed_creation_is_finished_by_the_next_one(
    ours: PaimonCatalog, theirs: JavaJdbcCatalog, database: str
) -> None:
    name = f"{database}.t"
    PaimonTable.create(ours.location(name), COLUMNS)  # the files, and nothing in the metastore
    assert ours.list_tables(database) == []
    with pytest.raises(errors.AlreadyExists, match=r"db/t has the files of .* does not know"):
        ours.create_table(name, COLUMNS)
    ours.create_table(name, COLUMNS, ignore_if_exists=True)
    assert ours.list_tables(database) == list(theirs.listTables(database)) == ["t"]


def test_a_creation_that_the_metastore_refuses_says_where_the_files_are(
    ours: PaimonCatalog, database: str
) -> None:
    folder = f"{ours.warehouse}/{database}.db/my-table"
    with pytest.raises(
        errors.StorageError, match=rf"not a valid object name.* files are in {folder}"
    ):
        ours.create_table(f"{database}.my-table", COLUMNS)
    with pytest.raises(errors.IncompatibleSchema, match=r"'a' and 'A' have one name"):
        ours.create_table(f"{database}.t", [("a", "INT"), ("A", "INT")])
    assert ours.list_tables(database) == []
    with pytest.raises(errors.InvalidOption, match=r"'warehouse' is 'here'.*from the root"):
        catalog({**ours.storage_options, "warehouse": "here"}).create_database(f"{database}_2")


def test_the_files_of_an_external_table_stay(
    ours: PaimonCatalog, theirs: JavaJdbcCatalog, client: HiveClient, database: str
) -> None:
    external = catalog({**ours.storage_options, "table.type": "external"})
    table = external.create_table(f"{database}.t", COLUMNS)
    assert parameters(client, database, "t")["EXTERNAL"] == "TRUE"
    theirs.create_table(f"{database}.javas", COLUMNS, options={"bucket": "-1", "external": "true"})
    location = ours.location(f"{database}.javas")
    for name in ("t", "javas"):
        ours.drop_table(f"{database}.{name}")
    assert Path(table.location, "schema", "schema-0").exists()
    assert Path(location, "schema", "schema-0").exists()


def test_a_folder_that_is_another_table_s_gets_no_second_name(
    ours: PaimonCatalog, database: str
) -> None:
    external = catalog({**ours.storage_options, "table.type": "external"})
    external.create_table(f"{database}.t", COLUMNS).append(arrow(1))
    ours.rename_table(f"{database}.t", f"{database}.u")
    with pytest.raises(
        errors.AlreadyExists, match=rf"{database}\.t would be in .*of the table {database}\.u in"
    ):
        ours.create_table(f"{database}.t", COLUMNS, ignore_if_exists=True)
    assert ours.list_tables(database) == ["u"]
    assert (
        ours.create_table(f"{database}.u", COLUMNS, ignore_if_exists=True).to_arrow().num_rows == 1
    )


@pytest.mark.parametrize("cascade", [False, True])
def test_the_files_of_an_external_table_stay_when_its_database_is_dropped(
    ours: PaimonCatalog, database: str, caplog: Any, cascade: bool
) -> None:
    external = catalog({**ours.storage_options, "table.type": "external"})
    table = external.create_table(f"{database}.t", COLUMNS)
    table.append(arrow(1))
    if not cascade:
        ours.drop_table(f"{database}.t")
    ours.drop_database(database, cascade=cascade)
    assert database not in ours.list_databases()
    assert PaimonTable.load(table.location).to_arrow().num_rows == 1
    assert f"the database {database} is dropped from the Hive Metastore, and its folder stays" in (
        caplog.text
    )


def test_the_folder_of_an_empty_database_is_deleted_with_it(
    ours: PaimonCatalog, database: str, caplog: Any
) -> None:
    folder = Path(ours.create_table(f"{database}.t", COLUMNS).location).parent
    ours.drop_database(database, cascade=True)
    assert not folder.exists()
    ours.create_database(database)
    shutil.rmtree(folder)
    ours.drop_database(database)
    assert "stays" not in caplog.text


def test_options_that_choose_the_partition_columns_of_the_metastore_are_set_at_creation(
    ours: PaimonCatalog, database: str
) -> None:
    name, key = f"{database}.t", "metastore.tag-to-partition"
    with pytest.raises(errors.InvalidOption, match="for tables without partitions"):
        ours.create_table(name, COLUMNS, partition_keys=["name"], options={key: "day"})
    with pytest.raises(errors.InvalidOption, match="names the column 'NAME'"):
        ours.create_table(name, COLUMNS, options={key: "NAME"})
    ours.create_table(name, COLUMNS)
    for option in (key, "metastore.partitioned-table"):
        with pytest.raises(errors.UnsupportedFeature, match="does not change partition columns"):
            ours.alter_table(name, [SchemaChange.set_option(option, "true")])


def test_a_stream_whose_table_is_renamed_stops_and_goes_on_under_the_new_name(
    ours: PaimonCatalog, database: str
) -> None:
    old, new = f"{database}.t", f"{database}.u"
    columns = [("id", "BIGINT NOT NULL"), ("name", "STRING")]
    location = ours.create_table(old, columns, options={"bucket": "-1"}).location

    def writer(name: str, run: str) -> StreamWriter:
        identity = WriterIdentity(user="me", query_id="q", run_id=run, token=run)
        storage = ours.get_table(name)._table.storage
        return StreamWriter(storage=storage, identity=identity, options={})

    def run(stream: StreamWriter, number: int) -> None:
        def written(judged: JudgedBatch) -> Messages:
            return write_rows(judged.table, [{"id": number, "name": f"n{number}"}])

        run_batch(stream, Batch(batch_id=number, offsets_hash=f"offsets-{number}"), written)

    stream = writer(old, "r1")
    run(stream, 0)
    ours.rename_table(old, new)
    with pytest.raises(errors.NotFound, match="There is no Paimon table at"):
        run(stream, 1)
    again = writer(new, "r2")
    run(again, 1)
    assert sorted(ours.get_table(new).to_arrow()["id"].to_pylist()) == [0, 1]
    assert not list(Path(location).rglob("snapshot-*"))


def test_java_sees_the_properties_of_a_database_that_were_changed(
    ours: PaimonCatalog, theirs: JavaJdbcCatalog, database: str
) -> None:
    def properties() -> dict[str, str]:
        return dict(theirs.getDatabase(database).options())

    ours.alter_database(database, {"team": "sales", "old": "x", "owner": "ann"})
    assert {"team": "sales", "old": "x", "owner": "ann"}.items() <= properties().items()
    ours.alter_database(database, {"team": "orders", "old": None, "none": None})
    assert {"team": "orders", "owner": "ann"}.items() <= properties().items()
    assert "old" not in properties()
    with pytest.raises(errors.UnsupportedFeature, match=r"did not take .*: comment"):
        ours.alter_database(database, {"comment": "of the shop"})
    with pytest.raises(errors.InvalidOption, match="Leave 'location' out"):
        ours.alter_database(database, {"location": "/elsewhere"})
    with pytest.raises(errors.NotFound, match="no database 'none'"):
        ours.alter_database("none", {"team": "sales"})


def test_the_doctor_names_what_the_metastore_does_not_know_of_a_table(
    ours: PaimonCatalog, door: Door, database: str
) -> None:
    name = f"{database}.t"
    storage = ours.create_table(name, COLUMNS, options={"bucket": "-1"})._table.storage
    behind_door = catalog({**ours.storage_options, "uri": f"thrift://127.0.0.1:{door.port}"})
    of_door = behind_door.get_table(name)._table.storage
    assert leftovers(storage, 0) == ()
    alter_table(storage.wrapped, [SchemaChange.add_column("extra", "INT")])  # type: ignore[attr-defined]
    [text] = leftovers(storage, 0)
    assert text.startswith(f"schema/schema-1: the Hive Metastore has an older schema of {name}")
    assert "Opening the table by its name tells it again." in text
    door.state = "shut"
    [text] = leftovers(of_door, 0)
    assert text.startswith(f"What the Hive Metastore has of {name} is not known: ")
    ours.get_table(name)
    assert leftovers(storage, 0) == ()


def test_what_another_client_changes_meanwhile_is_kept(
    ours: PaimonCatalog, client: HiveClient, database: str
) -> None:
    ours.create_table(f"{database}.t", COLUMNS)
    seen = list[str]()

    def of_another(table: Struct) -> bool:
        """What Hive's ALTER TABLE … SET TBLPROPERTIES does."""
        table.set_texts(9, {**table.texts(9), "of_another": "kept"})
        return True

    def of_ours(table: Struct) -> bool:
        if not seen:
            change_table(client, database, "t", of_another)
        seen.append(table.texts(9).get("of_another", ""))
        table.set_texts(9, {**table.texts(9), "of_ours": "kept"})
        return True

    age(client, database, "t")
    change_table(client, database, "t", of_ours)
    assert seen == ["", "kept"]
    of_table = parameters(client, database, "t")
    assert (of_table["of_another"], of_table["of_ours"]) == ("kept", "kept")
    ours.alter_table(f"{database}.t", [SchemaChange.add_column("extra", "INT")])
    assert parameters(client, database, "t")["of_another"] == "kept"


def age(client: HiveClient, database: str, name: str) -> None:
    """The table was last changed long ago: the metastore counts seconds."""
    table = stored(client, database, name)
    of_table = table.texts(hive_table.PARAMETERS)
    table.set_texts(hive_table.PARAMETERS, {**of_table, hive_table.CHANGED_AT: "1"})
    arguments = Struct()
    arguments.set_text(1, database)
    arguments.set_text(2, name)
    arguments.fields |= {3: (STRUCT, table), 4: (STRUCT, Struct())}
    client.ask("alter_table_with_environment_context", arguments)


@pytest.fixture
def door(hive_metastore: HiveMetastore) -> Iterator[Door]:
    way = Door(hive_metastore.port)
    yield way
    way.close()


def test_a_schema_is_published_while_the_metastore_is_away_and_the_next_open_tells_it(
    ours: PaimonCatalog, client: HiveClient, door: Door, database: str, caplog: Any
) -> None:
    name = f"{database}.t"
    ours.create_table(name, COLUMNS)
    through_door = catalog({**ours.storage_options, "uri": f"thrift://127.0.0.1:{door.port}"})
    table = through_door.get_table(name)
    door.state = "shut"
    with pytest.raises(errors.Unavailable, match="gave no answer to get_table"):
        through_door.get_table(name)
    alter_table(table._table.storage, [SchemaChange.add_column("extra", "INT")])
    assert "still has an older schema" in caplog.text
    assert columns(client, database, "t") == [("id", "bigint"), ("name", "string")]
    door.state = "open"
    assert through_door.get_table(name).schema.field_names == ("id", "name", "extra")
    assert columns(client, database, "t")[-1] == ("extra", "int")


def test_a_type_that_the_metastore_refuses_is_in_the_files_and_a_warning_says_so(
    ours: PaimonCatalog, client: HiveClient, database: str, caplog: Any
) -> None:
    name = f"{database}.t"
    ours.create_table(name, [("id", "BIGINT"), ("text", "STRING"), ("number", "INT")])
    ours.alter_table(name, [SchemaChange.drop_column("text")])
    assert ours.get_table(name).schema.field_names == ("id", "number")
    assert "disallow.incompatible.col.type.changes" in caplog.text
    assert columns(client, database, "t")[1] == ("text", "string")


def test_each_waits_for_the_lock_of_the_other(
    ours: PaimonCatalog, java: Any, java_of_hive: Any, hive_metastore: HiveMetastore, database: str
) -> None:
    locking = {**hive_metastore.options, "lock.enabled": "true", "lock-check-max-sleep": "100 ms"}
    short = {**locking, "lock-acquire-timeout": "1 s"}
    mine, name = catalog(locking), f"{database}.t"
    mine.create_table(name, COLUMNS, options={"commit.max-retries": "1"})
    held = mine.get_table(name)._table.storage
    lock = held._acquire(database, "t")  # type: ignore[attr-defined]
    impatient = JavaJdbcCatalog(java_of_hive, short)
    with pytest.raises(Exception, match="Acquire lock failed"):
        java_of_hive.written(impatient.table(name), 1, "n1")
    with pytest.raises(errors.CommitContended, match=rf"lock of {database}\.t in the Hive"):
        catalog(short).get_table(name).append(arrow(1))
    patient = JavaJdbcCatalog(java_of_hive, locking)
    javas = Beside(lambda: java_of_hive.written(patient.table(name), 1, "n1"))
    own = Beside(lambda: mine.get_table(name).append(arrow(2)))
    javas.join(1)
    assert javas.is_alive() and own.is_alive()
    held._release(lock, name)  # type: ignore[attr-defined]
    javas.end()
    own.end()
    rows = sorted(java.read(ours.location(name)), key=lambda row: row["id"])
    assert rows == arrow(1, 2).to_pylist()


def test_a_lock_whose_answer_is_lost_stops_nobody(
    ours: PaimonCatalog, door: Door, database: str, caplog: Any
) -> None:
    ours.create_table(f"{database}.t", COLUMNS)
    locking = {"lock.enabled": "true", "lock-acquire-timeout": "1 s"}
    address = {"uri": f"thrift://127.0.0.1:{door.port}"}
    table = catalog({**ours.storage_options, **locking, **address}).get_table(f"{database}.t")
    door.lost = "lock"
    table.append(arrow(1))
    assert door.lost == ""
    table.append(arrow(2))
    assert table.to_arrow().num_rows == 2
    assert not caplog.records
