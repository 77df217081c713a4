"""Rows as frames of pandas, polars and DuckDB, and how tables and their history look."""

from __future__ import annotations

import datetime as dt
import sys
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import IncompatibleSchema, InvalidData, InvalidOption, MissingExtra

_NUMBER = count()
SCHEMA = [("id", "BIGINT"), ("name", "STRING"), ("at", "TIMESTAMP(6)"), ("tags", "ARRAY<INT>")]
ROWS = pa.table(
    {
        "id": [1, None, 2**60 + 1],
        "name": ["a", "<b>", None],
        "at": pa.array(
            [dt.datetime(2024, 1, 1), None, dt.datetime(1969, 12, 31, 23, 59)], pa.timestamp("us")
        ),
        "tags": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    }
)


def made(**more: Any) -> PaimonTable:
    return PaimonTable.create(f"memory://frames-{next(_NUMBER)}/db.db/t", SCHEMA, **more)


def test_pandas_gets_the_chosen_rows_and_is_appended() -> None:
    pandas = pytest.importorskip("pandas")
    table = made()
    table.append(ROWS.slice(0, 2))
    frame = table.to_pandas(columns=["name"], filter=pc.field("id") == 1)
    assert frame.to_dict("list") == {"name": ["a"]}
    small = pandas.DataFrame(
        {"id": [1.0, float("nan")], "name": ["x", None], "tags": [[1, 2], None]}, index=[7, 8]
    )
    small["at"] = pandas.to_datetime(["2024-01-01", None])
    table.append(small)
    assert table.to_arrow(snapshot_id=2).slice(2).to_pylist() == [
        {"id": 1, "name": "x", "at": dt.datetime(2024, 1, 1), "tags": [1, 2]},
        {"id": None, "name": None, "at": None, "tags": None},
    ]
    table.overwrite(table.to_arrow().slice(0, 1).to_pandas())
    assert table.to_arrow().to_pylist() == ROWS.slice(0, 1).to_pylist()
    with pytest.raises(InvalidData, match="column 'id' cannot be converted"):
        table.append(pandas.DataFrame({"id": [1.5], "name": ["x"], "tags": [None], "at": [None]}))
    with pytest.raises(IncompatibleSchema, match="nope"):
        table.append(
            pandas.DataFrame({"id": [1], "name": ["x"], "tags": [None], "at": [None], "nope": [1]})
        )
    assert len(table.snapshots()) == 3


def test_polars_gets_the_chosen_rows_and_is_appended() -> None:
    polars = pytest.importorskip("polars")
    table = made()
    table.append(polars.from_arrow(ROWS))
    assert table.to_arrow().to_pylist() == ROWS.to_pylist()
    frame = table.to_polars(filter=pc.field("name").is_null())
    assert isinstance(frame, polars.DataFrame)
    assert frame.rows() == [(2**60 + 1, None, dt.datetime(1969, 12, 31, 23, 59), None)]
    named = frame.with_columns(polars.Series("name", ["q"], dtype=polars.Categorical))
    table.append(named)
    assert table.to_arrow(filter=pc.field("name") == "q").num_rows == 1


def test_duckdb_gets_a_relation_of_the_chosen_rows() -> None:
    duckdb = pytest.importorskip("duckdb")
    table = made()
    table.append(ROWS)
    relation = table.to_duckdb(columns=["id", "name"], filter=pc.field("id") < 5)
    assert relation.aggregate("count(*), max(name)").fetchall() == [(1, "a")]
    with duckdb.connect() as own:
        assert table.to_duckdb(connection=own).count("*").fetchall() == [(3,)]
    with pytest.raises(InvalidOption, match="connection is of type object"):
        table.to_duckdb(connection=object())


@pytest.mark.parametrize("name", ["pandas", "polars", "duckdb"])
def test_a_library_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"to_{name} needs {name}, .* pip install {name}"):
        getattr(made(), f"to_{name}")()


def test_rows_of_something_else_are_refused_with_what_is_taken() -> None:
    with pytest.raises(IncompatibleSchema, match="DataFrame of Spark, pandas or polars"):
        made().append([{"id": 1}])


def test_the_history_is_newest_first_and_says_who_did_what() -> None:
    table = made()
    assert repr(table.history()) == "History(0 snapshots)"
    table.append(ROWS)
    table.new_commit("a <user>").filter_and_commit({7: []})
    table.append(ROWS.slice(0, 1))
    newest, *_, oldest = table.history()
    snapshots = table.snapshots()
    assert [one.id for one in table.history()] == [one.id for one in reversed(snapshots)]
    assert (newest.rows_added, newest.rows, newest.kind, newest.identifier) == (
        1,
        4,
        "APPEND",
        None,
    )
    assert (oldest.rows_added, oldest.batch.rows, oldest.marks.query_id) == (3, 3, None)
    moment = dt.datetime.fromisoformat(oldest.time.replace("Z", "+00:00"))
    assert round(moment.timestamp() * 1000) == snapshots[0].time_millis
    assert repr(table.history()).startswith(
        f"History({len(snapshots)} snapshots, the newest {newest.id} of 2"
    )


def test_what_a_notebook_shows_is_escaped_and_one_line_elsewhere() -> None:
    columns = [("<id>", "BIGINT NOT NULL"), ("p", "STRING")]
    table = PaimonTable.create(
        "memory://frames/db.db/html", columns, partition_keys=["p"], if_not_exists=True
    )
    table.new_commit("<script>").overwrite()
    table.append(pa.table({"<id>": [1], "p": ["x"]}))
    for shown in (table._repr_html_(), table.schema._repr_html_(), table.history()._repr_html_()):
        assert "<table>" in shown
        assert "<id>" not in shown
        assert "<script>" not in shown
        assert len(shown) < 2_000
    assert "&lt;id&gt;" in table._repr_html_()
    assert repr(table.schema) == "TableSchema(0: <id> BIGINT NOT NULL, p STRING)"
    assert "\n" not in repr(table) + repr(table.history()) + repr(table.latest_snapshot())
