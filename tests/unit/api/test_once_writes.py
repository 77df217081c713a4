"""`append` and `overwrite` with an identity, with rows of Arrow, pandas and polars."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonSink, PaimonTable
from paimon_stream.errors import (
    IdentityUsed,
    IncompatibleSchema,
    InvalidOption,
    OutsidePartition,
    UnsupportedFeature,
)

NUMBERS = count()


def new_table(**arguments: Any) -> PaimonTable:
    location = f"memory://once-writes-{next(NUMBERS)}/shop.db/orders"
    schema = [("id", "BIGINT"), ("dt", "STRING")]
    return PaimonTable.create(location, schema=schema, **arguments)


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array([dt] * len(ids))})


def frame_of(library: str) -> Any:
    """The same rows as a DataFrame. The oldest dependencies are tested without these libraries."""
    return pytest.importorskip(library).DataFrame({"id": [1, 2], "dt": ["a", "a"]})


def ids(table: PaimonTable) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    "form",
    [
        lambda: rows(1, 2),
        lambda: rows(1, 2).to_batches()[0],
        lambda: rows(1, 2).to_reader(),
        lambda: frame_of("pandas"),
        lambda: frame_of("polars"),
    ],
    ids=["table", "batch", "reader", "pandas", "polars"],
)
def test_rows_in_any_form_are_appended_once(form: Callable[[], Any]) -> None:
    table = new_table()
    outcomes = [table.append(form(), identity="load").outcome for _ in range(3)]
    assert outcomes == ["committed", "already committed", "already committed"]
    assert ids(table) == [1, 2]


def test_identities_do_not_hinder_each_other_or_other_writes() -> None:
    table = new_table()
    table.append(rows(1), identity="a")
    table.append(rows(1))
    table.append(rows(1), identity="b")
    assert ids(table) == [1, 1, 1]


def test_a_table_with_a_primary_key_takes_the_rows_once() -> None:
    table = new_table(primary_keys=["id"], options={"bucket": "1"})
    table.append(rows(1, dt="first"), identity="load 1")
    table.append(rows(1, dt="second"), identity="load 2")
    assert table.append(rows(1, dt="first"), identity="load 1").outcome == "already committed"
    assert table.to_arrow()["dt"].to_pylist() == ["second"]


def test_a_table_that_only_a_stream_compacts_is_refused_as_without_an_identity() -> None:
    table = new_table(
        primary_keys=["id"], options={"bucket": "1", "deletion-vectors.enabled": "true"}
    )
    messages = []
    for identity in ({}, {"identity": "load"}):
        with pytest.raises(UnsupportedFeature) as raised:
            table.append(rows(1), **identity)  # type: ignore[arg-type]
        messages.append(raised.value.message)
    assert messages[0] == messages[1]


@pytest.mark.parametrize("keys", [[], ["id", "dt"]])
def test_overwrites_take_effect_once(keys: list[str]) -> None:
    options = {"bucket": "1", "bucket-key": "id"}
    table = new_table(partition_keys=["dt"], primary_keys=keys, options=options)
    table.append(pa.concat_tables([rows(1, dt="a"), rows(2, dt="b")]))
    without_dt = pa.table({"id": pa.array([3], pa.int64())})
    calls: list[tuple[dict[str, Any], list[int]]] = [
        ({"df": without_dt, "partition": {"dt": "a"}, "identity": "named"}, [2, 3]),
        ({"df": rows(4, dt="b"), "dynamic": True, "identity": "dynamic"}, [3, 4]),
        ({"df": rows(5, dt="c"), "dynamic": False, "identity": "whole"}, [5]),
        ({"df": rows(), "partition": {"dt": "c"}, "identity": "cleared"}, []),
    ]
    for arguments, expected in calls:
        assert table.overwrite(**arguments).outcome == "committed"
        assert ids(table) == expected
    table.append(rows(6, dt="a"))
    for arguments, _ in calls:
        assert table.overwrite(**arguments).outcome == "already committed"
    assert ids(table) == [6]
    with pytest.raises(
        IdentityUsed, match="partition dt='a', and this call replaces the whole table"
    ):
        table.overwrite(without_dt, {}, identity="named")


@pytest.mark.parametrize("keys", [[], ["dt"]])
def test_a_whole_table_is_the_same_in_each_form_of_the_call(keys: list[str]) -> None:
    table = new_table(partition_keys=keys)
    assert table.overwrite(rows(1), {}, identity="load").outcome == "committed"
    assert table.overwrite(rows(1), dynamic=False, identity="load").outcome == "already committed"


def test_other_rows_under_one_identity_are_refused() -> None:
    table = new_table()
    table.append(rows(1, 2), identity="load")
    others = {
        "2 rows, and now there are 1": rows(1),
        "other columns; the difference is 'dt'": rows(1, 2).select(["id"]),
    }
    for message, other in others.items():
        with pytest.raises(IdentityUsed, match=message) as raised:
            table.append(other, identity="load")
        assert raised.value.context["table"] == table.location
        assert raised.value.context["identity"] == "load"
    assert ids(table) == [1, 2]


def test_a_call_that_failed_can_be_repeated_with_other_rows() -> None:
    table = new_table(partition_keys=["dt"])
    with pytest.raises(IncompatibleSchema):
        table.append(pa.table({"id": ["text"], "dt": ["a"]}), identity="load")
    with pytest.raises(OutsidePartition):
        table.overwrite(rows(1, dt="b"), {"dt": "a"}, identity="load")
    with pytest.raises(IncompatibleSchema):
        table.append([1, 2], identity="load")  # type: ignore[arg-type]
    assert table.append(rows(1), identity="load").outcome == "committed"
    assert ids(table) == [1]


def test_a_reader_that_a_failed_call_has_begun_is_not_taken_for_the_rows_that_are_left() -> None:
    class LostConnection:
        """Four batches, and an error after the second."""

        read = 0

        def __iter__(self) -> LostConnection:
            return self

        def __next__(self) -> pa.RecordBatch:
            self.read += 1
            if self.read == 3:
                raise OSError("the connection is lost")
            if self.read > 5:
                raise StopIteration
            return rows(self.read).to_batches()[0]

    table = new_table()
    reader = pa.RecordBatchReader.from_batches(rows(1).schema, LostConnection())
    with pytest.raises(OSError, match="the connection is lost"):
        table.append(reader, identity="load")
    with pytest.raises(InvalidOption, match="Give a new reader"):
        table.append(reader, identity="load")
    assert table.append(rows(1, 2).to_reader(), identity="load").outcome == "committed"
    assert table.append(reader, identity="load").outcome == "already committed"
    assert ids(table) == [1, 2]


def test_a_partition_of_null_is_another_than_one_of_its_word() -> None:
    table = new_table(partition_keys=["dt"])
    table.overwrite(rows(1).select(["id"]), {"dt": None}, identity="load")
    with pytest.raises(IdentityUsed, match="partition dt=null, and this call replaces partition"):
        table.overwrite(rows(1).select(["id"]), {"dt": "None"}, identity="load")


@pytest.mark.parametrize("identity", ["", "  ", 7, "a\ud800"])
def test_what_is_no_identity_is_refused_before_anything_is_written(identity: Any) -> None:
    table = new_table()
    for write in (table.append, table.overwrite):
        with pytest.raises(InvalidOption, match="identity"):
            write(rows(1), identity=identity)
    assert table.snapshots() == ()


def test_the_commit_user_of_an_identity_is_no_other_writers() -> None:
    pytest.importorskip("pyspark", reason="a sink needs pyspark")
    table = new_table()
    table.append(rows(1), identity="load")
    with pytest.raises(InvalidOption, match=r"commit_user is 'once:load'.*write with identity="):
        table.new_commit("once:load")
    with pytest.raises(InvalidOption, match="commit_user is 'once:load'"):
        PaimonSink(table.location, commit_user="once:load")
