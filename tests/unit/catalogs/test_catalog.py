"""Catalogs: databases and tables by name, on disk and in a store without folders."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable, SchemaChange, catalog, errors
from paimon_stream.catalogs.filesystem import FilesystemCatalog, catalog_arguments, names_of
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage

COLUMNS = [("id", "BIGINT"), ("name", "STRING")]
ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})


@pytest.fixture(params=["disk", "store"])
def warehouse(request: Any, tmp_path: Path) -> Iterator[str]:
    if request.param == "disk":
        yield str(tmp_path / "warehouse")
    else:
        yield "memory://catalogs/warehouse"
        MemoryStorage("catalogs").clear()


# -- names
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("db.t", ("db", "t")),
        (("db", "t"), ("db", "t")),
        ("`my.db`.`a.b`", ("my.db", "a.b")),
        ("db.`t`", ("db", "t")),
        (("a.b", "c.d"), ("a.b", "c.d")),
        ("db.t$branch_x", ("db", "t$branch_x")),
    ],
)
def test_a_table_is_named_as_in_paimon(given: Any, meant: tuple[str, str]) -> None:
    assert names_of(given) == meant
    location = FilesystemCatalog(**catalog_arguments({"warehouse": "/w/"})).location(given)
    assert location == f"/w/{meant[0]}.db/{meant[1]}"


@pytest.mark.parametrize(
    "given", ["t", "a.b.c", "a/b.c", "..t", "sys.t", ".a.b", "", None, ("a",), ("a", 1), ["a", "b"]]
)
def test_what_names_no_table_is_refused(given: Any) -> None:
    with pytest.raises(errors.InvalidOption, match=r"Give it as 'database\.table'"):
        names_of(given)


@pytest.mark.parametrize("given", ["db.t$snapshots", "db.t$branch_b$files", "sales.orders$"])
def test_a_system_table_is_refused_by_name(given: str) -> None:
    with pytest.raises(errors.UnsupportedFeature, match="system table"):
        catalog({"warehouse": "memory://catalogs"}).get_table(given)


# -- options
# ----------------------------------------------------------------------------------------------


def test_a_catalog_of_another_kind_says_which_there_are() -> None:
    with pytest.raises(errors.InvalidOption, match="'filesystem', 'hive', 'jdbc' or 'rest'"):
        catalog({"warehouse": "/w", "metastore": "glue"})


@pytest.mark.parametrize(
    "options", [{}, {"warehouse": " "}, {"warehouse": "/w", "metastore": "files"}]
)
def test_a_catalog_needs_a_warehouse_and_a_known_kind(options: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidOption, match="Set it to"):
        catalog(options)


@pytest.mark.parametrize("options", [None, 7, {"warehouse": 1}, {1: "x"}, "no_such_catalog"])
def test_options_are_texts(options: Any) -> None:
    with pytest.raises(errors.InvalidOption, match=r"catalog|warehouse"):
        catalog(options)


def test_options_are_divided_and_secrets_are_not_shown(caplog: Any) -> None:
    given = {
        "warehouse": "s3://bucket/wh/",
        "s3.access-key": "AKIA",
        "s3.secret-key": "hunter2",
        "token": "hunter3",
        "lock.type": "zookeeper",
        "table-default.bucket": "4",
        "cache-enabled": "true",
    }
    with caplog.at_level(logging.DEBUG, "paimon_stream"):
        made = catalog(given)
    assert made.location("db.t") == "s3://bucket/wh/db.db/t"
    assert made.storage_options == {"s3.access-key": "AKIA", "s3.secret-key": "hunter2"}
    assert made.table_defaults == {"bucket": "4"}
    assert "takes no lock, and does not use lock.type" in caplog.text
    assert "hunter" not in caplog.text + repr(made)
    assert pickle.loads(pickle.dumps(made)).warehouse == made.warehouse


# -- databases
# --------------------------------------------------------------------------------------------


def test_databases_are_created_listed_and_dropped(warehouse: str) -> None:
    made = catalog({"warehouse": warehouse})
    assert made.list_databases() == []
    made.create_database("b")
    made.create_database("a")
    made.create_database("a", ignore_if_exists=True)
    assert made.list_databases() == ["a", "b"]
    assert made.list_tables("a") == []
    with pytest.raises(errors.AlreadyExists, match="'a'"):
        made.create_database("a")
    with pytest.raises(errors.InvalidOption, match="'sys' is reserved"):
        made.create_database("sys")
    made.create_table("a.t", COLUMNS).append(ROWS)
    with pytest.raises(errors.InvalidOption, match="has 1 tables"):
        made.drop_database("a")
    made.drop_database("a", cascade=True)
    made.drop_database("a", ignore_if_not_exists=True)
    assert made.list_databases() == ["b"]
    for call in (made.list_tables, made.drop_database):
        with pytest.raises(errors.NotFound, match="no database 'a'"):
            call("a")


def test_a_folder_that_another_engine_made_is_a_database(tmp_path: Path) -> None:
    (tmp_path / "empty.db").mkdir()
    (tmp_path / "no_database").mkdir()
    made = catalog({"warehouse": str(tmp_path)})
    assert made.list_databases() == ["empty"]
    assert made.list_tables("empty") == []
    made.drop_database("empty")
    assert os.listdir(tmp_path) == ["no_database"]


# -- tables
# -----------------------------------------------------------------------------------------------


class WithAnEmptyKey(MemoryStorage):
    """A store in which another engine has made the key `java.db/`, which nobody can delete."""

    def list_folders(self, folder: str) -> list[str]:
        return sorted({*super().list_folders(folder), *([] if folder else ["java.db"])})


def test_a_key_that_another_engine_leaves_of_a_database_is_named(caplog: Any) -> None:
    store = WithAnEmptyKey("empty")
    shop = FilesystemCatalog(warehouse="memory://empty", opened=lambda *_: store)
    assert shop.list_databases() == ["java"]
    shop.drop_database("java")
    assert "the empty key java.db/ of another engine stays" in caplog.text


def test_tables_are_created_loaded_listed_and_dropped(warehouse: str) -> None:
    made = catalog(
        {"warehouse": warehouse, "table-default.bucket": "2", "table-default.bucket-key": "id"}
    )
    made.create_database("db")
    table = made.create_table("db.t", COLUMNS, options={"bucket": "3"}, comment="mine")
    assert dict(table.options) == {"bucket": "3", "bucket-key": "id"}
    assert table.schema.comment == "mine"
    table.append(ROWS)
    table.create_branch("b")
    assert made.get_table("db.t").to_arrow().num_rows == 2
    assert made.get_table("db.t$branch_b").location == f"{warehouse}/db.db/t$branch_b"
    assert made.create_table("db.t", [("id", "INT")], ignore_if_exists=True).schema.field_names == (
        "id",
        "name",
    )
    with pytest.raises(errors.AlreadyExists):
        made.create_table("db.t", COLUMNS)
    assert made.list_tables("db") == ["t"]
    made.drop_table("db.t")
    made.drop_table("db.t", ignore_if_not_exists=True)
    assert made.list_tables("db") == []
    storage = (
        LocalStorage(warehouse)
        if warehouse.startswith("/")
        else MemoryStorage("catalogs", root="warehouse")
    )
    assert [one.path for page in storage.list_below("db.db") for one in page] == ["db.db/.database"]
    assert storage.list_folders("db.db") == []
    for call in (made.get_table, made.drop_table):
        with pytest.raises(errors.NotFound, match="no Paimon table"):
            call("db.t")


@pytest.mark.parametrize(
    ("name", "how", "error"),
    [
        ("nowhere.t", {}, errors.NotFound),
        ("db.t$branch_b", {}, errors.InvalidOption),
        ("db.t", {"options": {"path": "/x"}}, errors.InvalidOption),
        ("db.t", {"options": 7}, errors.InvalidOption),
        ("db.t", {"partition_keys": ["no"]}, errors.IncompatibleSchema),
    ],
)
def test_a_table_that_cannot_be_created_leaves_nothing(
    name: str, how: Any, error: Any, tmp_path: Path
) -> None:
    made = catalog({"warehouse": str(tmp_path)})
    made.create_database("db")
    with pytest.raises(error):
        made.create_table(name, COLUMNS, **how)
    assert made.list_tables("db") == []
    assert made.list_databases() == ["db"]


class Cut(MemoryStorage):
    """A store that stops to delete after some files."""

    left = 0

    def delete(self, path: str) -> None:
        if Cut.left == 0:
            raise errors.Unavailable("the store is gone", path=path)
        Cut.left -= 1
        super().delete(path)

    def delete_all(self, paths: Any) -> Any:
        return {path: why for path in paths if (why := self._failed(path))}

    def _failed(self, path: str) -> errors.PaimonStreamError | None:
        try:
            self.delete(path)
        except errors.Unavailable as why:
            return why
        return None


def test_a_drop_that_was_cut_short_leaves_no_table_that_looks_whole() -> None:
    name, wholes = "cut-short", 0
    arguments = catalog_arguments({"warehouse": f"memory://{name}"})
    cat = FilesystemCatalog(
        **arguments,
        opened=lambda location, _: Cut(
            name, root=location.removeprefix(f"memory://{name}").strip("/")
        ),
    )
    for count in range(100):
        table = PaimonTable.create(f"memory://{name}/db.db/t", COLUMNS)
        for _ in range(3):
            table.append(ROWS)
        Cut.left = count
        try:
            cat.drop_table("db.t")
        except errors.Unavailable:
            assert cat.list_tables("db") == ["t"]
            found = PaimonTable.load(f"memory://{name}/db.db/t")
            if count and found.snapshots():
                with pytest.raises(errors.PaimonStreamError):
                    found.to_arrow()
            wholes += bool(found.snapshots())
            Cut.left = 1000
            cat.drop_table("db.t")
            assert not [one for page in MemoryStorage(name).list_below("") for one in page]
        else:
            break
    assert 10 < count < 99
    assert wholes > 5


def test_a_table_that_cannot_be_understood_is_dropped_nevertheless(
    tmp_path: Path, caplog: Any
) -> None:
    made = catalog({"warehouse": str(tmp_path)})
    made.create_database("db")
    made.create_table("db.t", COLUMNS)
    (tmp_path / "db.db/t/schema/schema-0").write_text("{")
    made.drop_table("db.t")
    assert "cannot be understood" in caplog.text
    assert made.list_tables("db") == []


def test_a_drop_deletes_external_paths_and_follows_no_links(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").write_text("of others")
    made = catalog({"warehouse": str(tmp_path / "w")})
    made.create_database("db")
    external = {
        "data-file.external-paths": f"file://{tmp_path}/outside",
        "data-file.external-paths.strategy": "round-robin",
    }
    made.create_table("db.t", COLUMNS, options=external).append(ROWS)
    assert list((tmp_path / "outside").rglob("*.parquet"))
    made.drop_table("db.t")
    assert os.listdir(tmp_path / "outside") == []
    made.create_table("db.t", COLUMNS)
    (tmp_path / "w/db.db/t/link").symlink_to(tmp_path / "others")
    made.drop_table("db.t")
    assert (tmp_path / "others" / "file").read_text() == "of others"
    assert made.list_tables("db") == []


@pytest.mark.parametrize("inner", ["", "/w", "/w/db.db"])
def test_a_drop_leaves_what_is_beside_the_table_in_its_external_path(
    tmp_path: Path, inner: str, caplog: Any
) -> None:
    made = catalog({"warehouse": str(tmp_path / "w")})
    for name in ("db", "other"):
        made.create_database(name)
        made.create_table(f"{name}.kept", COLUMNS).append(ROWS)
    external = {
        "data-file.external-paths": f"file://{tmp_path}{inner}",
        "data-file.external-paths.strategy": "round-robin",
    }
    made.create_table("db.t", COLUMNS, options=external).append(ROWS)
    made.drop_table("db.t")
    assert "is inside its own external path" in caplog.text
    assert made.list_tables("db") == ["kept"]
    assert [made.get_table(f"{name}.kept").to_arrow().num_rows for name in ("db", "other")] == [
        2,
        2,
    ]


def test_the_list_of_external_paths_stays_as_long_as_files_lie_there(tmp_path: Path) -> None:
    key = "data-file.external-paths"
    made = catalog({"warehouse": str(tmp_path / "w")})
    made.create_database("db")
    external = {key: f"file://{tmp_path}/o", f"{key}.strategy": "round-robin"}
    made.create_table("db.t", COLUMNS, options=external).append(ROWS)
    for change in (SchemaChange.remove_option(key), SchemaChange.set_option(key, " ")):
        with pytest.raises(errors.InvalidOption, match=r"strategy' to 'none'"):
            made.alter_table("db.t", [change])
    made.alter_table("db.t", [SchemaChange.set_option(f"{key}.strategy", "none")])
    assert made.get_table("db.t").to_arrow().num_rows == 2


def test_a_table_is_renamed_on_disk_and_not_in_a_store(tmp_path: Path) -> None:
    made = catalog({"warehouse": str(tmp_path)})
    made.create_database("db")
    made.create_database("other")
    made.create_table("db.t", COLUMNS).append(ROWS)
    made.rename_table("db.t", "other.u")
    assert (made.list_tables("db"), made.list_tables("other")) == ([], ["u"])
    assert made.get_table("other.u").to_arrow().num_rows == 2
    made.create_table("db.t", COLUMNS)
    for source, target in (("other.u", "db.t"), ("db.none", "db.new"), ("db.t", "none.t")):
        with pytest.raises(errors.StorageError):
            made.rename_table(source, target)
    with pytest.raises(errors.NotFound, match=r"no Paimon table at .*none"):
        made.rename_table("db.none", "db.new")
    assert (made.list_tables("db"), made.list_tables("other")) == (["t"], ["u"])
    store = catalog({"warehouse": "memory://catalogs-2"})
    store.create_database("db")
    with pytest.raises(errors.UnsupportedFeature, match="cannot be renamed in one step"):
        store.rename_table("db.t", "db.u")
    MemoryStorage("catalogs-2").clear()


# -- changes
# ----------------------------------------------------------------------------------------------


def test_a_table_is_altered_in_one_new_schema(warehouse: str) -> None:
    made = catalog({"warehouse": warehouse})
    made.create_database("db")
    made.create_table("db.t", COLUMNS).append(ROWS)
    made.alter_table(
        "db.t",
        [
            SchemaChange.add_column("x", "ROW<a INT, b ARRAY<INT>>", "new"),
            SchemaChange.rename_column("name", "title"),
            SchemaChange.set_option("snapshot.num-retained.max", "15"),
            SchemaChange.update_comment("a table"),
        ],
    )
    table = made.get_table("db.t")
    assert (table.schema.id, table.schema.comment) == (1, "a table")
    assert table.options == {"snapshot.num-retained.max": "15"}
    assert table.to_arrow().to_pylist() == [
        {"id": 1, "title": "a", "x": None},
        {"id": 2, "title": "b", "x": None},
    ]
    made.alter_table("db.t", [SchemaChange.update_comment("a table")])
    assert len(made.get_table("db.t").schemas()) == 2
    with pytest.raises(errors.NotFound):
        made.alter_table("db.none", [SchemaChange.drop_column("x")])
    for wrong in (SchemaChange.drop_column("x"), ["drop"], 7, "x"):
        with pytest.raises(errors.InvalidOption, match="changes"):
            made.alter_table("db.t", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("warehouse", ["memory://misspelt", "s3://bucket/warehouse"])
@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("s3.acces-key", "s3.access-key"),
        ("s3.end-point", "s3.endpoint"),
        ("gs.service-acount-key", "gs.service-account-key"),
        ("paimon-stream.store.tiemout", ""),
    ],
)
def test_a_misspelt_option_of_a_store_is_refused_without_its_value(
    warehouse: str, key: str, meant: str
) -> None:
    with pytest.raises(errors.InvalidOption) as raised:
        catalog({"warehouse": warehouse, key: "hunter2"})
    assert f"'{key}' is not known" in str(raised.value)
    assert meant in str(raised.value)
    assert "hunter2" not in f"{raised.value} {raised.value.context}"


@pytest.mark.parametrize("warehouse", ["memory://tuned", "s3://bucket/warehouse"])
@pytest.mark.parametrize(
    "key", ["s3.connection.maximum", "s3.fast.upload", "s3.connection.timeout"]
)
def test_an_option_that_tunes_the_store_of_java_is_only_warned_of(
    warehouse: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened = catalog({"warehouse": warehouse, key: "9"})
    assert key not in opened.storage_options
    (record,) = caplog.records
    assert f"{key!r} is not known, and has no effect" in record.message


def test_another_unknown_option_is_warned_of_and_the_known_ones_are_taken_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog({"warehouse": "memory://known", "warehose": "x", "fs.s3a.conection.maximum": "9"})
    assert [record.message.split(": ", 1)[1] for record in caplog.records] == [
        "the catalog's option 'fs.s3a.conection.maximum' is not known, and has no effect. ",
        "the catalog's option 'warehose' is not known, and has no effect. "
        "Did you mean 'warehouse'?",
    ]
    caplog.clear()
    known = {"cache-enabled": "false", "table-default.bucket": "1", "s3.access-key": "a"}
    catalog({"warehouse": "memory://known", "metastore": "filesystem", **known})
    catalog({"warehouse": "s3://bucket/warehouse", "s3.endpoint": "http://localhost:1", **known})
    assert not caplog.records
