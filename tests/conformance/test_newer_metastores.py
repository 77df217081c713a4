"""Our Hive catalog on real metastores of Hive 3.1 and 4.0. Java's catalog is beside ours on that of 2.3
(`test_hive_catalog_beside_java.py`): Java 1.2.0 asks 4.0 for methods that it does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, SchemaChange, catalog, errors
from paimon_stream.catalogs import hive_client, hive_table
from paimon_stream.catalogs.hive import stored_table
from paimon_stream.catalogs.hive_client import HiveClient, struct_of
from tests.kits.hive import NEWER, HiveMetastore

pytestmark = [pytest.mark.hive, pytest.mark.full]

OF_HIVE_4 = "4.0.1"
COLUMNS = [("id", "BIGINT"), ("name", "STRING")]
UNORDERED = {"bucket": "-1"}


@pytest.fixture(scope="module", params=sorted(NEWER))
def metastore(request: pytest.FixtureRequest) -> Iterator[HiveMetastore]:
    with HiveMetastore(version=request.param) as server:
        yield server


@pytest.fixture
def shop(metastore: HiveMetastore, request: pytest.FixtureRequest) -> Iterator[PaimonCatalog]:
    hive = catalog(metastore.options)
    hive.create_database("shop")
    yield hive
    hive.drop_database("shop", cascade=True)
    assert "shop" not in hive.list_databases()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids]})


def columns(metastore: HiveMetastore, name: str) -> list[str]:
    stored = stored_table(HiveClient(metastore.uri), "shop", name)
    assert stored is not None
    return [column.text(1) for column in stored.struct(hive_table.STORAGE).items(1)]


def partitions(metastore: HiveMetastore, name: str, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setitem(hive_client._RAISED, "get_partition_names", ("NoSuchObjectException",))
    arguments = struct_of({1: "shop", 2: name})
    arguments.fields[3] = 6, -1  # all of them
    _, names = HiveClient(metastore.uri).ask("get_partition_names", arguments)
    return sorted(name.decode() for name in names)


def test_tables_are_created_altered_renamed_and_dropped(
    shop: PaimonCatalog, metastore: HiveMetastore
) -> None:
    shop.create_table("shop.t", COLUMNS, options=UNORDERED).append(rows(1, 2))
    assert shop.list_tables("shop") == ["t"]
    shop.alter_table("shop.t", [SchemaChange.add_column("extra", "INT")])
    assert columns(metastore, "t") == ["id", "name", "extra"]
    shop.rename_table("shop.t", "shop.u")
    assert shop.list_tables("shop") == ["u"]
    assert shop.get_table("shop.u").to_arrow()["id"].to_pylist() == [1, 2]
    location = shop.get_table("shop.u").location
    shop.drop_table("shop.u")
    assert shop.list_tables("shop") == []
    assert Path(location, "schema", "schema-0").exists() == (metastore.version == OF_HIVE_4)


def test_partitions_and_tags_are_told(
    shop: PaimonCatalog, metastore: HiveMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**UNORDERED, "metastore.partitioned-table": "true"}
    parted = shop.create_table("shop.p", COLUMNS, partition_keys=["name"], options=options)
    parted.append(rows(1, 2))
    assert partitions(metastore, "p", monkeypatch) == ["name=n1", "name=n2"]
    options = {**UNORDERED, "metastore.tag-to-partition": "day"}
    tagged = shop.create_table("shop.g", COLUMNS, options=options)
    tagged.append(rows(1))
    for name in ("mon", "tue"):
        tagged.create_tag(name)
    tagged.delete_tag("mon")
    assert partitions(metastore, "g", monkeypatch) == ["day=tue"]


def test_a_comment_of_a_database_is_taken(shop: PaimonCatalog, metastore: HiveMetastore) -> None:
    shop.alter_database("shop", {"team": "sales", "comment": "of the shop", "owner": "ann"})
    shop.alter_database("shop", {"team": None})


def test_commits_take_the_lock_or_the_error_says_what_the_metastore_lacks(
    shop: PaimonCatalog, metastore: HiveMetastore
) -> None:
    """The tables of the locks of 4.0.1 come from scripts that are in no jar."""
    locking = catalog({**metastore.options, "lock.enabled": "true"})
    if metastore.version == OF_HIVE_4:
        with pytest.raises(errors.Unavailable, match=r"lacks the tables of locks, .* schematool"):
            locking.create_table("shop.l", COLUMNS, options=UNORDERED)
        assert shop.list_tables("shop") == []
        return
    table = locking.create_table("shop.l", COLUMNS, options=UNORDERED)
    table.append(rows(1))
    table.append(rows(2))
    assert table.to_arrow().num_rows == 2
    locks = HiveClient(metastore.uri).ask(
        "show_locks", hive_client.Struct({1: (12, struct_of({}))})
    )
    assert locks.items(1) == []
