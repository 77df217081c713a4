"""PaimonTable: creating, loading, looking into a table."""

from __future__ import annotations

import doctest
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import paimon_stream.api.table
from paimon_stream import SchemaChange, catalog
from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import (
    AlreadyExists,
    ConfigError,
    CorruptMetadata,
    IncompatibleSchema,
    InvalidOption,
    NotFound,
    PaimonStreamError,
    UnsupportedFeature,
)

PAIRS = [("id", "BIGINT NOT NULL"), ("dt", "STRING")]


def test_the_examples_run() -> None:
    assert doctest.testmod(paimon_stream.api.table).failed == 0
    assert doctest.testmod(paimon_stream.api.table).attempted > 0


def test_a_created_table_is_loaded_with_all_it_was_given(tmp_path: Path) -> None:
    location = str(tmp_path / "db.db" / "t")
    made = PaimonTable.create(
        location,
        schema=PAIRS,
        partition_keys=["dt"],
        options={"bucket": 2, "bucket-key": "id"},
        comment="orders",
    )
    loaded = PaimonTable.load(location)
    assert loaded.schema == made.schema
    assert (loaded.location, loaded.partition_keys, loaded.primary_keys) == (location, ("dt",), ())
    assert dict(loaded.options) == {"bucket": "2", "bucket-key": "id"}
    assert loaded.schema.comment == "orders"
    assert repr(loaded) == f"PaimonTable({location!r}, 2 columns, partitioned by dt)"


def test_a_primary_key_table_can_be_created(tmp_path: Path) -> None:
    made = PaimonTable.create(
        str(tmp_path / "t"), schema=PAIRS, primary_keys=["dt"], options={"bucket": "1"}
    )
    assert "primary key dt" in repr(made)
    assert not made.schema.field("dt").type.nullable


def test_an_arrow_schema_is_taken(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", pa.timestamp("us", "Europe/Berlin")),
            pa.field("local", pa.timestamp("us")),
            pa.field("name", pa.large_string()),
        ]
    )
    made = PaimonTable.create(str(tmp_path / "t"), schema=schema)
    assert [str(one.type) for one in made.schema.fields] == [
        "BIGINT NOT NULL",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "TIMESTAMP(6)",
        "STRING",
    ]
    with pytest.raises(UnsupportedFeature, match="uint8"):
        PaimonTable.create(str(tmp_path / "u"), schema=pa.schema([("x", pa.uint8())]))


def test_a_spark_schema_is_taken(tmp_path: Path) -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="needs pyspark")
    struct = types.StructType(
        [
            types.StructField("id", types.LongType(), nullable=False),
            types.StructField("at", types.TimestampType()),
            types.StructField("amount", types.DecimalType(10, 2)),
        ]
    )
    made = PaimonTable.create(str(tmp_path / "t"), schema=struct)
    assert [f"{one.id} {one.name} {one.type}" for one in made.schema.fields] == [
        "0 id BIGINT NOT NULL",
        "1 at TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "2 amount DECIMAL(10, 2)",
    ]


@pytest.mark.parametrize(
    "schema", [{"id": "INT"}, ["id"], 7, [("id", "INT", "x", "y")], "id INT", [], [("id", 7)]]
)
def test_anything_else_is_no_schema(schema: object, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleSchema, match="pairs such as"):
        PaimonTable.create(str(tmp_path / "t"), schema=schema)  # type: ignore[arg-type]
    assert not (tmp_path / "t").exists()


def test_a_type_that_is_none_names_its_column(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleSchema, match=r"Column 'x': .*'INTT'.*as in SQL") as caught:
        PaimonTable.create(str(tmp_path / "t"), schema=[("x", "INTT")])
    assert caught.value.context["column"] == "x"
    with pytest.raises(UnsupportedFeature, match="VARIANT"):
        PaimonTable.create(str(tmp_path / "t"), schema=[("x", "VARIANT")])


def test_creating_twice_is_an_error_unless_asked_otherwise(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    first = PaimonTable.create(location, schema=PAIRS)
    with pytest.raises(AlreadyExists, match=r"already.*if_not_exists"):
        PaimonTable.create(location, schema=PAIRS)
    again = PaimonTable.create(location, schema=[("other", "INT")], if_not_exists=True)
    assert again.schema == first.schema


def test_loading_nothing_says_where_and_how_to_create_it(tmp_path: Path) -> None:
    location = str(tmp_path / "nothing")
    with pytest.raises(NotFound) as caught:
        PaimonTable.load(location)
    assert location in str(caught.value) and "PaimonTable.create(" in str(caught.value)
    assert not (tmp_path / "nothing").exists()


def test_loading_a_broken_table_names_the_file(tmp_path: Path) -> None:
    PaimonTable.create(str(tmp_path / "t"), schema=PAIRS)
    schema = tmp_path / "t" / "schema" / "schema-0"
    schema.write_bytes(schema.read_bytes()[:50])
    with pytest.raises(CorruptMetadata, match=str(schema)):
        PaimonTable.load(str(tmp_path / "t"))


def test_a_new_table_holds_nothing(tmp_path: Path) -> None:
    made = PaimonTable.create(str(tmp_path / "t"), schema=PAIRS)
    assert (made.snapshots(), made.latest_snapshot(), made.files(), made.tags()) == (
        (),
        None,
        (),
        {},
    )


def test_a_snapshot_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    made = PaimonTable.create(str(tmp_path / "t"), schema=PAIRS)
    with pytest.raises(NotFound, match=r"no snapshot 3: .*none yet"):
        made.files(3)


def test_what_others_prepared_is_committed_to_tables_whose_commits_are_known(
    tmp_path: Path,
) -> None:
    append = PaimonTable.create(str(tmp_path / "a"), schema=PAIRS)
    assert append.new_commit("me").commit(1, ()).snapshot_id is None
    keyed = PaimonTable.create(
        str(tmp_path / "k"), schema=PAIRS, primary_keys=["id"], options={"bucket": 1}
    )
    assert keyed.new_commit("me").commit(1, ()).snapshot_id is None
    tracked = PaimonTable.create(
        str(tmp_path / "n"), schema=PAIRS, options={"row-tracking.enabled": "true"}
    )
    assert tracked.new_commit("me").commit(1, ()).snapshot_id is None
    evolved = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    partial = PaimonTable.create(str(tmp_path / "e"), schema=PAIRS, options=evolved)
    assert partial.new_commit("me").commit(1, ()).snapshot_id is None


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (
            {"options": {"bucket": "three"}},
            InvalidOption,
            "Option 'bucket' is 'three': not a whole number",
        ),
        ({"options": {"merge-schema": "add"}}, InvalidOption, "Give it to PaimonSink: options="),
        ({"schema": [("a", "WHAT")]}, IncompatibleSchema, "Not a data type: 'WHAT'"),
        ({"schema": "id BIGINT"}, IncompatibleSchema, "A schema is"),
        (
            {"primary_keys": ["nope"]},
            IncompatibleSchema,
            "primary key names 'nope', which is not a column",
        ),
        ({"partition_keys": "dt"}, IncompatibleSchema, "Give a list of names"),
        ({"primary_keys": None}, IncompatibleSchema, "primary_keys is None. Give a list of names"),
        ({"options": ["bucket"]}, InvalidOption, r"options is of type list\..*Give a dict"),
        (
            {"schema": pa.schema([("a", pa.duration("s"))])},
            UnsupportedFeature,
            r"Column 'a': Arrow type duration",
        ),
    ],
)
def test_errors_of_a_creation_name_the_table(
    tmp_path: Path, given: dict[str, Any], kind: type[PaimonStreamError], text: str
) -> None:
    location = str(tmp_path / "db.db" / "t")
    with pytest.raises(kind, match=text) as raised:
        PaimonTable.create(location, **{"schema": PAIRS, **given})
    assert str(raised.value).startswith(f"{location}: ")
    assert raised.value.context["table"] == location


def test_a_primary_key_of_all_partitions_is_warned_of_when_created_and_refused_when_written(
    tmp_path: Path,
) -> None:
    location = str(tmp_path / "t")
    with pytest.warns(
        UserWarning, match=r"was created, but .* cannot write it.*or without partitions"
    ) as caught:
        made = PaimonTable.create(
            location, schema=PAIRS, primary_keys=["id"], partition_keys=["dt"]
        )
    assert len(caught) == 1 and caught[0].filename == __file__
    with pytest.raises(UnsupportedFeature, match="or without partitions"):
        made.append(pa.table({"id": [1], "dt": ["a"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PaimonTable.create(
            location, schema=PAIRS, primary_keys=["id"], partition_keys=["dt"], if_not_exists=True
        )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"options": {"file.compression": "winrar"}}, "'winrar' is not a compression"),
        ({"schema": [("id", "INT"), ("b", "BYTES")], "partition_keys": ["b"]}, "Partition key 'b'"),
        (
            {
                "primary_keys": ["id"],
                "options": {
                    "bucket": 1,
                    "merge-engine": "aggregation",
                    "fields.dt.aggregate-function": "average",
                },
            },
            "aggregate function 'average'",
        ),
    ],
)
def test_what_this_release_cannot_write_is_said_when_it_is_created(
    tmp_path: Path, given: dict[str, Any], text: str
) -> None:
    location = str(tmp_path / "t")
    with pytest.warns(
        UserWarning, match=rf"The table was created, but this release cannot write it\. .*{text}"
    ) as caught:
        made = PaimonTable.create(location, **{"schema": PAIRS, **given})
    assert caught[0].filename == __file__
    assert location in str(caught[0].message)
    with pytest.raises(ConfigError, match=text):
        made.append(pa.table({"id": [1], "dt": ["a"]}))


def test_an_unknown_option_is_warned_of_at_the_users_own_line(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Unknown option 'buckets'") as caught:
        PaimonTable.create(str(tmp_path / "t"), schema=PAIRS, options={"buckets": "3"})
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda t: t.to_arrow("1"), InvalidOption, "snapshot_id is '1'.*whole number"),
        (lambda t: t.to_arrow(1, tag="x"), InvalidOption, "snapshot_id and tag are both given"),
        (lambda t: t.to_arrow(partition=["dt"]), IncompatibleSchema, r"A partition is \['dt'\]"),
        (
            lambda t: t.to_arrow(partition={"zz": 1}),
            IncompatibleSchema,
            "'zz' is not a partition column",
        ),
        (lambda t: t.to_arrow(partition="zz"), IncompatibleSchema, "'zz' "),
        (lambda t: t.files("x"), InvalidOption, "snapshot_id is 'x'.*whole number"),
        (lambda t: t.to_batches(batch_rows=0), InvalidOption, "batch_rows is 0"),
        (lambda t: t.to_batches(batch_rows="x"), InvalidOption, "batch_rows is 'x'"),
        (lambda t: t.verify(sample=1.5), InvalidOption, "sample is 1.5"),
    ],
)
def test_arguments_of_wrong_types_are_refused_with_the_table_and_their_name(
    tmp_path: Path, call: Any, kind: type[PaimonStreamError], text: str
) -> None:
    made = PaimonTable.create(str(tmp_path / "t"), schema=PAIRS, partition_keys=["dt"])
    with pytest.raises(kind, match=text) as raised:
        call(made)
    assert str(raised.value).startswith(f"{made.location}: ")


def test_a_folder_that_was_a_table_is_not_offered_for_a_new_one(tmp_path: Path) -> None:
    made = PaimonTable.create(str(tmp_path / "t"), schema=PAIRS)
    made.append(pa.table({"id": [1], "dt": ["a"]}))
    (tmp_path / "t" / "schema" / "schema-0").unlink()
    with pytest.raises(
        NotFound, match=r"it holds snapshots, so it was a table.*do not create a table here"
    ):
        PaimonTable.load(str(tmp_path / "t"))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for location in (tmp_path / "file", tmp_path / "file" / "db.db" / "t"):
        with pytest.raises(
            AlreadyExists, match=f"{tmp_path}/file is a file, where a folder is needed"
        ) as raised:
            PaimonTable.create(str(location), schema=PAIRS)
        assert raised.value.__suppress_context__


def test_loading_a_warehouse_or_a_database_names_its_tables(tmp_path: Path) -> None:
    tables = [f"{tmp_path}/shop.db/t{i}" for i in range(7)]
    for location in tables:
        PaimonTable.create(location, schema=PAIRS)
    (tmp_path / "other").mkdir()
    (tmp_path / "shop.db" / "empty").mkdir()
    named = ", ".join(tables[:5])
    for folder in (tmp_path, tmp_path / "shop.db"):
        with pytest.raises(NotFound) as raised:
            PaimonTable.load(str(folder))
        hint = f"It is a folder of tables: {named} and 2 more. Give the folder of one table."
        assert hint in str(raised.value)
        assert "create" not in str(raised.value)
        assert [f"{folder}/{one}" for one in raised.value.context["tables"]] == tables
    with pytest.raises(NotFound, match=r"Create the table with PaimonTable\.create"):
        PaimonTable.load(str(tmp_path / "other"))


def test_a_loaded_table_follows_when_another_one_alters_it(tmp_path: Path) -> None:
    paimon = catalog({"warehouse": str(tmp_path)})
    paimon.create_database("d")
    table = paimon.create_table("d.t", [("id", "BIGINT")])
    table.append(pa.table({"id": [1]}))
    paimon.alter_table("d.t", [SchemaChange.add_column("x", "INT")])
    assert table.to_arrow().to_pydict() == {"id": [1], "x": [None]}
    assert table.schema.field_names == ("id", "x")
    paimon.alter_table("d.t", [SchemaChange.rename_column("x", "y")])
    table.append(pa.table({"id": [2], "y": pa.array([5], pa.int32())}), missing_columns="null")
    assert table.schema.field_names == ("id", "y")
    assert "paimon-stream.missing-columns" not in dict(table._table.options)
    assert table.to_arrow(snapshot_id=1).to_pydict() == {"id": [1]}
