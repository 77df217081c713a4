"""Every argument of every public call refuses a wrong type. The error names the table and the
argument.
"""

from __future__ import annotations

import datetime as dt
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import CommitMessage, PaimonCatalog, PaimonSink, PaimonTable, catalog
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import IncompatibleSchema, InvalidOption
from paimon_stream.options import Arguments
from paimon_stream.storage.memory import MemoryStorage

LOCATION = "memory://arguments/t"
ROWS = pa.table({"id": [1], "dt": ["a"]})
PAIRS = [("id", "BIGINT"), ("dt", "STRING")]
LIKE_TO_ARROW = ("to_pandas", "to_polars", "to_duckdb")
"""They take the arguments of `to_arrow`, and pass them on."""
OF_TABLE: dict[str, dict[str, Any]] = {
    "files": {},
    "to_arrow": {},
    "to_batches": {},
    **{name: {} for name in LIKE_TO_ARROW},
    "append": {"df": ROWS},
    "overwrite": {"df": ROWS},
    "drop_partitions": {"partitions": [{"dt": "a"}]},
    "delete": {"where": pc.field("id") == 1},
    "update": {"where": "id = 1", "new_values": {"id": 2}},
    "merge": {"source": ROWS, "on": ["id"]},
    "new_commit": {"commit_user": "me"},
    "expire_snapshots": {},
    "expire_partitions": {},
    "create_tag": {"name": "y"},
    "to_spark": {"spark": type("Session", (), {"createDataFrame": None})()},
    "create_automatic_tags": {},
    "delete_tag": {"name": "x"},
    "create_branch": {"name": "y"},
    "delete_branch": {"name": "x"},
    "fast_forward": {"name": "x"},
    "rollback_to": {"target": 1},
    "recommit": {},
    "remove_orphan_files": {},
    "report": {},
    "verify": {},
    "compact_manifests": {},
    "rebuild_index": {},
    "drop_lost_files": {},
    "compact": {},
}
OF_COMMIT: dict[str, dict[str, Any]] = {
    "commit": {"identifier": 1, "messages": []},
    "filter_and_commit": {"committables": {1: []}},
    "overwrite": {},
    "drop_partitions": {"partitions": [{"dt": "a"}]},
    "abort": {"messages": []},
}
OF_CATALOG: dict[str, dict[str, Any]] = {
    "location": {"identifier": "db.t"},
    "found": {"identifier": "db.t"},
    "create_database": {"name": "new"},
    "alter_database": {"name": "db", "changes": {}},
    "drop_database": {"name": "db"},
    "list_tables": {"database": "db"},
    "get_table": {"identifier": "db.t"},
    "create_table": {"identifier": "db.t", "schema": PAIRS},  # and what PaimonTable.create takes
    "alter_table": {"identifier": "db.t", "changes": []},
    "drop_table": {"identifier": "db.t"},
    "rename_table": {"source": "db.t", "target": "db.u"},
}
INTERNAL = {"append", "clear", "numbers"}
"""Methods of `TableCommit` that only this package calls."""


def methods(kind: type) -> set[str]:
    return {
        name
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(value).parameters) > 1
    }


def cases(kind: type, calls: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [
        (name, argument)
        for name in calls
        for argument in inspect.signature(
            getattr(kind, "to_arrow" if name in LIKE_TO_ARROW else name)
        ).parameters
        if argument not in ("self", "described")
    ]


@pytest.fixture(scope="module")
def table() -> Iterator[PaimonTable]:
    """A table that no refused call may change."""
    made = PaimonTable.create(LOCATION, schema=PAIRS, partition_keys=["dt"])
    made.append(pa.table({"id": [1, 2], "dt": ["a", "b"]}))
    made.create_tag("x")
    yield made
    assert len(made.snapshots()) == 1
    assert list(made.tags()) == ["x"]
    MemoryStorage("arguments").clear()


def refused(
    call: Callable[..., Any], given: Mapping[str, Any], argument: str, value: object
) -> str:
    with pytest.raises((InvalidOption, IncompatibleSchema)) as caught:
        call(**{**given, argument: value})
    message = str(caught.value)
    assert argument in message or argument in ("df", "source", "partition", "location"), message
    return message


def test_every_public_call_with_arguments_is_covered() -> None:
    assert methods(PaimonTable) == set(OF_TABLE)
    assert methods(PaimonCatalog) == set(OF_CATALOG)
    assert methods(TableCommit) - INTERNAL == set(OF_COMMIT)


@pytest.mark.parametrize(("name", "argument"), cases(PaimonTable, OF_TABLE))
def test_a_call_of_a_table_refuses_a_value_of_another_type(
    table: PaimonTable, name: str, argument: str
) -> None:
    if name in LIKE_TO_ARROW:
        pytest.importorskip(name.removeprefix("to_"))
    for value in (object(), 1.5):
        assert LOCATION in refused(getattr(table, name), OF_TABLE[name], argument, value)


@pytest.mark.parametrize(("name", "argument"), cases(TableCommit, OF_COMMIT))
def test_a_call_of_a_commit_refuses_a_value_of_another_type(
    table: PaimonTable, name: str, argument: str
) -> None:
    for value in (object(), 1.5):
        assert LOCATION in refused(
            getattr(table.new_commit("me"), name), OF_COMMIT[name], argument, value
        )


@pytest.mark.parametrize("argument", list(inspect.signature(PaimonTable.create).parameters))
def test_create_refuses_a_value_of_another_type(argument: str) -> None:
    given = {"location": "memory://arguments/other", "schema": PAIRS}
    message = refused(PaimonTable.create, given, argument, object())
    assert "memory://arguments/other" in message or argument == "location"
    assert not MemoryStorage("arguments").list_folders("other")


@pytest.mark.parametrize("argument", list(inspect.signature(PaimonSink).parameters))
def test_a_sink_refuses_a_value_of_another_type_when_it_is_made(argument: str) -> None:
    pytest.importorskip("pyspark.sql", reason="needs pyspark")
    message = refused(PaimonSink, {"location": LOCATION}, argument, object())
    assert LOCATION in message or argument in ("location", "catalog")


@pytest.mark.parametrize("argument", ["df", "checkpoint", "trigger", "query_name"])
def test_the_start_of_a_sink_refuses_a_value_of_another_type(argument: str) -> None:
    pytest.importorskip("pyspark.sql", reason="needs pyspark")

    class Frame:
        writeStream = None

    refused(PaimonSink(LOCATION).start, {"df": Frame()}, argument, object())


@pytest.mark.parametrize(("name", "argument"), cases(PaimonCatalog, OF_CATALOG))
def test_a_call_of_a_catalog_refuses_a_value_of_another_type(name: str, argument: str) -> None:
    shop = catalog({"warehouse": "memory://arguments"})
    shop.create_database("db", ignore_if_exists=True)
    for value in (object(), 1.5):
        with pytest.raises((InvalidOption, IncompatibleSchema)):
            getattr(shop, name)(**{**OF_CATALOG[name], argument: value})
    assert MemoryStorage("arguments").list_folders("db.db") == []


# -- values that look right
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("overwrite", {"df": ROWS, "dynamic": "yes"}),
        ("overwrite", {"df": ROWS, "partition": ""}),
        ("drop_partitions", {"partitions": "dt=a"}),
        ("new_commit", {"commit_user": " "}),
        ("remove_orphan_files", {"dry_run": "no"}),
        ("remove_orphan_files", {"dry_run": None}),
        ("rollback_to", {"target": True}),
        ("expire_snapshots", {"retain_max": True}),
        ("compact_manifests", {"dry_run": 0}),
        ("rebuild_index", {"dry_run": 0}),
        ("drop_lost_files", {"dry_run": 0}),
        ("compact", {"full": 1}),
        ("compact", {"partitions": {"dt": "a"}}),
        ("to_batches", {"batch_rows": True}),
        ("to_arrow", {"columns": "id"}),
    ],
)
def test_a_value_that_python_would_accept_is_refused(
    table: PaimonTable, call: str, given: dict[str, Any]
) -> None:
    with pytest.raises((InvalidOption, IncompatibleSchema), match=list(given)[-1]):
        getattr(table, call)(**given)


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ([b"bytes"], r"messages\[0\] is b'bytes'.*Give a list of CommitMessage as messages"),
        ("text", "messages is 'text'"),
        ({"a": 1}, "messages is of type dict"),
        (
            CommitMessage(partition=b"", bucket=0, total_buckets=1),
            "messages is of type CommitMessage",
        ),
    ],
)
def test_what_is_no_list_of_messages_is_refused(
    table: PaimonTable, messages: Any, shown: str
) -> None:
    with pytest.raises(InvalidOption, match=shown):
        table.new_commit("me").commit(1, messages)


@pytest.mark.parametrize("identifier", ["7", True, None, 2**63])
def test_an_identifier_is_a_number_that_java_can_read(table: PaimonTable, identifier: Any) -> None:
    with pytest.raises(InvalidOption, match=rf"identifier is .*at most {2**63 - 1}"):
        table.new_commit("me").commit(identifier, [])


def test_a_branch_is_named_by_text() -> None:
    for wrong in (7, b"x", "", ["x"]):
        for opened in (PaimonTable.load, PaimonSink):
            with pytest.raises(InvalidOption, match=rf"{LOCATION}: .*branch"):
                opened(LOCATION, branch=wrong)  # type: ignore[operator]


def test_secrets_among_storage_options_are_not_shown() -> None:
    for wrong in ("key=hunter2", [("key", "hunter2")], {"key": "hunter2"}):
        with pytest.raises(InvalidOption, match=r"storage.options") as caught:
            PaimonTable.load(LOCATION, storage_options=wrong)  # type: ignore[arg-type]
        assert "hunter2" not in str(caught.value)


# -- numbers and flags of numpy
# --------------------------------------------------------------------------


def test_numbers_and_flags_of_numpy_are_stored_as_plain_ones() -> None:
    made = PaimonTable.create(
        "memory://arguments-4/t", PAIRS, comment=None, if_not_exists=np.bool_(True)
    )
    commit = made.new_commit("me")
    given: Any = np.int64
    assert commit.filter_and_commit({given(4): []}, given(9)) == 0
    report = commit.overwrite({}, identifier=given(5), watermark=given(9), dynamic=np.bool_(False))
    assert json.loads(json.dumps(report.identifier)) == 5
    snapshot = made.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.commit_identifier, snapshot.watermark) == (5, 9)
    assert type(commit.commit(given(6), [], given(10)).identifier) is int
    assert type(made.create_tag("x", given(1)).snapshot) is int
    made.append(ROWS)
    assert sum(len(one) for one in made.to_batches(given(2), batch_rows=given(1))) == 1
    assert made.verify(sample=given(1)).checked
    assert made.remove_orphan_files(dry_run=np.bool_(True), max_paths=given(5)).dry_run is True
    expired = made.expire_snapshots(
        given(2), given(1), max_deletes=given(1), dry_run=np.bool_(True)
    )
    assert expired.dry_run is True
    assert type(made.rollback_to(given(1), dry_run=np.bool_(False)).snapshot) is int
    MemoryStorage("arguments-4").clear()


def test_the_instant_of_an_expiry_may_be_a_number_of_numpy() -> None:
    made = PaimonTable.create(
        "memory://arguments-5/t", PAIRS, options={"snapshot.num-retained.min": "1"}
    )
    for _ in range(3):
        made.append(ROWS)
    second = made.snapshots()[1].time_millis
    for given in (second, np.int64(second)):
        assert made.expire_snapshots(older_than=given, dry_run=True).snapshots == (1,)
    MemoryStorage("arguments-5").clear()


@pytest.mark.parametrize("instant", [2**63, np.bool_(True), True, dt.datetime.min, np.float64(5)])
def test_an_instant_that_cannot_be_is_refused(table: PaimonTable, instant: Any) -> None:
    refused(table.expire_snapshots, {"dry_run": True}, "older_than", instant)


def test_numbers_and_flags_of_numpy_do_not_stand_for_each_other(table: PaimonTable) -> None:
    wrong: Any
    for wrong in (np.bool_(True), np.float64(5), np.uint64(2**63), np.array([1])):
        with pytest.raises(InvalidOption, match="identifier is"):
            table.new_commit("me").commit(wrong, [])
    for wrong in (np.int64(1), 1, "yes"):
        with pytest.raises(InvalidOption, match="dry_run is"):
            table.compact_manifests(dry_run=wrong)


# -- iterators
# -------------------------------------------------------------------------------------------


def test_partitions_of_an_iterator_are_dropped() -> None:
    made = PaimonTable.create("memory://arguments-2/t", schema=PAIRS, partition_keys=["dt"])
    made.append(pa.table({"id": [1, 2, 3], "dt": ["a", "b", "c"]}))
    assert made.drop_partitions({"dt": name} for name in "ab").rows == 0
    assert made.to_arrow().to_pydict() == {"id": [3], "dt": ["c"]}
    made.new_commit("me").drop_partitions(iter([{"dt": "c"}]))
    assert made.to_arrow().num_rows == 0


def test_columns_of_an_iterator_are_read() -> None:
    made = PaimonTable.create("memory://arguments-3/t", schema=PAIRS)
    made.append(ROWS)
    columns: Any = (name for name in ("dt", "id"))
    assert made.to_arrow(columns=columns).column_names == ["dt", "id"]


def test_a_copy_is_taken_of_what_the_caller_may_change_later() -> None:
    options = {"bucket": "2", "bucket-key": "id"}
    taken = Arguments(LOCATION).mapping("options", options, "{}")
    options["bucket"] = "3"
    assert taken["bucket"] == "2"
