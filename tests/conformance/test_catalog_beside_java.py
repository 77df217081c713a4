"""Java's filesystem catalog and ours share a warehouse: each lists, reads, alters and drops what
the other made.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonCatalog, SchemaChange, catalog, errors
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import alter_table

COLUMNS = [("id", "BIGINT NOT NULL"), ("n", "INT"), ("name", "STRING"), ("dt", "STRING NOT NULL")]
KEYED: dict[str, Any] = {
    "primary_keys": ["dt", "id"],
    "partition_keys": ["dt"],
    "options": {"bucket": "2"},
}
ROWS = pa.table(
    {"id": [1, 2], "n": pa.array([3, 4], pa.int32()), "name": ["a", "b"], "dt": ["x", "y"]}
)


class JavaCatalog:
    """Java's `FileSystemCatalog` on a warehouse."""

    def __init__(self, java: Any, warehouse: Path) -> None:
        paimon = java._paimon
        context = paimon.catalog.CatalogContext.create(paimon.fs.Path(str(warehouse)))
        self.java = paimon.catalog.CatalogFactory.createCatalog(context)
        self.identifier = paimon.catalog.Identifier.fromString

    def __getattr__(self, name: str) -> Any:
        return getattr(self.java, name)


@pytest.fixture
def both(java: Any, tmp_path: Path) -> tuple[PaimonCatalog, JavaCatalog]:
    return catalog({"warehouse": str(tmp_path)}), JavaCatalog(java, tmp_path)


def test_each_finds_reads_and_drops_what_the_other_made(
    both: tuple[PaimonCatalog, JavaCatalog], java: Any, tmp_path: Path
) -> None:
    ours, theirs = both
    ours.create_database("ours")
    theirs.createDatabase("javas", False)
    assert ours.list_databases() == sorted(theirs.listDatabases()) == ["javas", "ours"]
    with pytest.raises(Exception, match="DatabaseAlreadyExist"):
        theirs.createDatabase("ours", False)
    with pytest.raises(errors.AlreadyExists):
        ours.create_database("javas")
    assert list(theirs.listTables("ours")) == ours.list_tables("javas") == []
    table = ours.create_table("ours.t", COLUMNS, **KEYED)
    table.append(ROWS)
    schema = java._java_schema(COLUMNS, ["dt"], ["dt", "id"], {"bucket": "2"})
    theirs.createTable(theirs.identifier("javas.t"), schema, False)
    java.write(tmp_path / "javas.db/t", ROWS.to_pylist())
    assert list(theirs.listTables("ours")) == ours.list_tables("javas") == ["t"]
    assert (
        theirs.getTable(theirs.identifier("ours.t")).location().toUri().getPath() == table.location
    )
    for name in ("ours", "javas"):
        found = ours.get_table(f"{name}.t").to_arrow().sort_by("id").to_pylist()
        assert (
            sorted(java.read(tmp_path / f"{name}.db/t"), key=lambda one: one["id"])
            == found
            == ROWS.to_pylist()
        )
    with pytest.raises(Exception, match="TableAlreadyExist"):
        theirs.createTable(theirs.identifier("ours.t"), schema, False)
    with pytest.raises(errors.AlreadyExists):
        ours.create_table("javas.t", COLUMNS)
    ours.rename_table("ours.t", "ours.u")
    assert list(theirs.listTables("ours")) == ["u"]
    ours.drop_database("javas", cascade=True)
    theirs.dropTable(theirs.identifier("ours.u"), False)
    assert ours.list_tables("ours") == list(theirs.listTables("ours")) == []
    theirs.dropDatabase("ours", False, False)
    assert ours.list_databases() == list(theirs.listDatabases()) == []


CHANGES = {
    "set": (SchemaChange.set_option, "setOption"),
    "unset": (SchemaChange.remove_option, "removeOption"),
    "add": (SchemaChange.add_column, "addColumn"),
    "rename": (SchemaChange.rename_column, "renameColumn"),
    "drop": (SchemaChange.drop_column, "dropColumn"),
    "type": (SchemaChange.update_column_type, "updateColumnType"),
    "null": (SchemaChange.update_column_nullability, "updateColumnNullability"),
    "comment": (SchemaChange.update_column_comment, "updateColumnComment"),
    "about": (SchemaChange.update_comment, "updateComment"),
}


def of_java(java: Any, kind: str, *arguments: Any) -> Any:
    change = java._paimon.schema.SchemaChange
    if kind in ("add", "type"):
        name, type_, *rest = arguments
        arguments = (name, java._java_type(type_), *rest)
    if kind == "null":
        names = java._gateway.new_array(java._jvm.java.lang.String, 1)
        names[0] = arguments[0]
        arguments = (names, arguments[1])
    return getattr(change, CHANGES[kind][1])(*arguments)


@pytest.fixture(scope="module")
def tables_of_java(java: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Two tables of Java's, by whether they are used. Tests alter copies."""
    tables = {}
    for used in (True, False):
        path = tables[used] = tmp_path_factory.mktemp("altered") / "t"
        options = {"bucket": "2", "sequence.field": "n", "snapshot.num-retained.max": "20"}
        java.create_table(path, [*COLUMNS, ("s", "ROW<a INT>")], ["dt"], ["dt", "id"], options)
        if used:
            java.write(path, [{**row, "s": {"a": 1}} for row in ROWS.to_pylist()])
    return tables


def both_alter(
    java: Any,
    tables_of_java: dict[bool, Path],
    tmp_path: Path,
    used: bool,
    *changes: tuple[Any, ...],
    also_set: tuple[str, str] | None = None,
    read: bool = True,
) -> tuple[Any, Any]:
    """The schemas that Java and we make of one table, as JSON; None where it was refused.
    `also_set` is an option that the table has before. With `read`, Java then reads a used table.
    """
    found = []
    for who in ("java", "ours"):
        path = tmp_path / f"{who}-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(tables_of_java[used], path)
        if also_set is not None:
            java.alter_table(path, ("set", *also_set))
        before = SchemaStore(LocalStorage(str(path))).ids()
        refused: tuple[type[Exception], ...] = (errors.PaimonStreamError,)
        if who == "java":
            from py4j.protocol import Py4JJavaError

            refused = (Py4JJavaError,)
        with contextlib.suppress(*refused):
            if who == "java":
                java._schema_manager(path).commitChanges([of_java(java, *one) for one in changes])
            else:
                alter_table(
                    LocalStorage(str(path)), [CHANGES[kind][0](*given) for kind, *given in changes]
                )
        if SchemaStore(LocalStorage(str(path))).ids() == before:
            found.append(None)
            continue
        newest = encode_schema(SchemaStore(LocalStorage(str(path))).latest())
        found.append({**json.loads(newest), "timeMillis": 0})
        if used and read:
            rows = [[one["id"], one["dt"]] for one in java.read(path)]
            assert sorted(rows) == [[1, "x"], [2, "y"]]
    return found[0], found[1]


@pytest.mark.parametrize(
    "changes",
    [
        [
            ("add", "x", "ROW<a INT, b ARRAY<ROW<c INT>>>", "new"),
            ("add", "y", "INT"),
            ("drop", "s"),
        ],
        [("rename", "name", "title"), ("rename", "s", "name"), ("comment", "title", "of a book")],
        [
            ("type", "name", "STRING"),
            ("null", "name", True),
            ("add", "x", "SMALLINT"),
            ("type", "x", "BIGINT"),
        ],
        [("null", "name", False)],
        [
            ("set", "target-file-size", "1 mb"),
            ("unset", "snapshot.num-retained.max"),
            ("about", "a table"),
        ],
        [("set", "bucket", "4"), ("set", "deletion-vectors.modifiable", "true")],
    ],
    ids=["add", "rename", "type", "not-null", "options", "bucket"],
)
def test_java_and_we_make_the_same_of_one_change(
    java: Any, tables_of_java: dict[bool, Path], tmp_path: Path, changes: list[tuple[Any, ...]]
) -> None:
    allowed = ("alter-column-null-to-not-null.disabled", "false")
    also_set = allowed if changes[0][0] == "null" else None
    javas, ours = both_alter(java, tables_of_java, tmp_path, True, *changes, also_set=also_set)
    assert javas == ours
    assert ours is not None


GROUPED = {"merge-engine": "partial-update", "fields.n,m.sequence-group": "name,v"}
AGGREGATED = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
NAMED = {
    "sequence field": ({"sequence.field": "n,m"}, "n", True),
    "ordering of a group": (GROUPED, "m", True),
    "member of a group": (GROUPED, "v", True),
    "aggregate function": (AGGREGATED, "v", True),
    "its other options": (
        {
            **AGGREGATED,
            "fields.v.ignore-retract": "true",
            "fields.v.distinct": "true",
            "fields.v.list-agg-delimiter": ";",
        },
        "v",
        True,
    ),
    "no option": (AGGREGATED, "name", True),
    "statistics": ({"fields.v.stats-mode": "full"}, "v", False),
    "time field": ({"record-level.time-field": "n", "record-level.expire-time": "1 d"}, "n", False),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_column_that_options_name_is_renamed_as_in_java_or_refused_where_java_refuses(
    java: Any, tmp_path: Path, case: str
) -> None:
    options, name, renamed = NAMED[case]
    columns = [("k", "INT NOT NULL"), ("n", "INT"), ("m", "INT"), ("name", "INT"), ("v", "STRING")]
    java.create_table(tmp_path / "t", columns, (), ["k"], {"bucket": "1", **options})
    java.write(tmp_path / "t", [(1, 2_000_000_000, 2, 3, "a")])
    change = ("rename", name, "renamed")
    javas, ours = both_alter(java, {True: tmp_path / "t"}, tmp_path, True, change, read=False)
    assert javas == ours
    assert (ours is not None) is renamed


def test_a_rename_that_would_make_javas_option_lose_its_effect_is_refused(
    java: Any, tmp_path: Path
) -> None:
    """Java renames the column and not the option, which then names no column."""
    options = {
        "bucket": "1",
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "v",
    }
    java.create_table(tmp_path / "t", [("k", "INT"), ("v", "INT")], (), ["k"], options)
    table = LocalStorage(str(tmp_path / "t"))
    with pytest.raises(errors.InvalidOption, match="keeps the old name there") as refused:
        alter_table(table, [SchemaChange.rename_column("v", "w")])
    assert "row-deduplicate-ignore-fields" in str(refused.value)
    java.alter_table(tmp_path / "t", ("rename", "v", "w"))
    kept = java.schema(tmp_path / "t")["options"]
    assert kept["changelog-producer.row-deduplicate-ignore-fields"] == "v"


@pytest.mark.parametrize(
    "change",
    [
        ("drop", "id"),
        ("drop", "dt"),
        ("drop", "none"),
        ("drop", "n"),
        ("add", "name", "INT"),
        ("add", "z", "INT NOT NULL"),
        ("add", "_KEY_z", "INT"),
        ("rename", "dt", "day"),
        ("rename", "name", "n"),
        ("type", "id", "INT"),
        ("type", "dt", "CHAR(3)"),
        ("null", "name", False),
        ("null", "id", True),
        ("set", "merge-engine", "first-row"),
        ("set", "bucket", "-1"),
        ("unset", "bucket"),
        ("set", "bucket-key", "id"),
        ("set", "deletion-vectors.enabled", "true"),
        ("set", "sequence.field", "none"),
    ],
    ids=lambda one: "-".join(map(str, one)),
)
def test_what_java_refuses_to_change_is_refused(
    java: Any, tables_of_java: dict[bool, Path], tmp_path: Path, change: tuple[Any, ...]
) -> None:
    assert both_alter(java, tables_of_java, tmp_path, True, change) == (None, None)


@pytest.mark.parametrize(
    "change",
    [("set", "merge-engine", "first-row"), ("set", "bucket", "-1"), ("set", "bucket", "3")],
)
def test_what_java_changes_only_in_a_table_without_snapshots(
    java: Any, tables_of_java: dict[bool, Path], tmp_path: Path, change: Any
) -> None:
    change = (
        [("unset", "sequence.field"), change]
        if change[0] == "set" and "merge" in change[1]
        else [change]
    )
    javas, ours = both_alter(java, tables_of_java, tmp_path, False, *change)
    assert javas == ours
    assert ours is not None
