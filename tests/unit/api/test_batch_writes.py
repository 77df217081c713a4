"""`append`, `overwrite`, `truncate` and `drop_partitions` of a table, with rows of Arrow."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import (
    BucketCountChanged,
    IncompatibleSchema,
    InvalidOption,
    NullInNotNull,
    OutsidePartition,
    PaimonStreamError,
    TableReplaced,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.table.schema import SchemaStore

NUMBERS = count()


def made(
    columns: Any = (("id", "BIGINT"), ("dt", "STRING")),
    keys: tuple[str, ...] = ("dt",),
    **options: str,
) -> PaimonTable:
    location = f"memory://batch-writes-{next(NUMBERS)}/shop.db/orders"
    return PaimonTable.create(location, schema=list(columns), partition_keys=keys, options=options)


def rows(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.table(
        {"id": pa.array([p[0] for p in pairs], pa.int64()), "dt": [p[1] for p in pairs]}
    )


def ids(table: PaimonTable, **where: Any) -> list[int]:
    return sorted(table.to_arrow(**where)["id"].to_pylist())


def data_files(table: PaimonTable) -> int:
    def below(folder: str) -> int:
        files = sum(stat.name.startswith("data-") for stat in table._storage.list_files(folder))
        return files + sum(
            below(f"{folder}/{name}") for name in table._storage.list_folders(folder)
        )

    return sum(below(name) for name in table._storage.list_folders("") if name.startswith("dt="))


def test_a_snapshot_of_a_batch_write_has_its_summary() -> None:
    table = made()
    table.append(rows((1, "a"), (2, "b")))
    table.overwrite(rows((3, "a")), {"dt": "a"})
    summaries = [BatchSummary.of(one.properties) for one in table.snapshots()]
    assert [(one.files, one.rows, one.partitions) for one in summaries] == [(2, 2, 2), (1, 1, 1)]
    assert all(one.write_millis is not None and one.reused is None for one in summaries)


def test_errors_of_overwrites_and_dropped_partitions_name_the_table() -> None:
    table = made((("id", "BIGINT"), ("dt", "STRING"), ("hr", "INT")), keys=("dt", "hr"))
    refused: list[Callable[[], object]] = [
        *(
            lambda bad=bad: table.drop_partitions(bad)
            for bad in ([], "dt=a", ["dt"], [{"id": 1}], [{"hr": "x"}])
        ),
        *(lambda bad=bad: table.overwrite(rows(), bad) for bad in ({"id": 1}, {"hr": "x"}, "dt=a")),
        lambda: table.overwrite(rows(), {"hr": 1}, dynamic=True),
    ]
    for call in refused:
        with pytest.raises(PaimonStreamError) as raised:
            call()
        assert table.location in raised.value.message
        assert raised.value.context["table"] == table.location
    assert table.snapshots() == ()


def test_batch_commits_expire_old_snapshots_unless_other_jobs_do() -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}
    for write_only, left in (("false", 3), ("true", 7)):
        table = made(**options, **{"write-only": write_only})
        for number in range(4):
            table.append(rows((number, "a")))
        table.overwrite(rows((7, "b")), {"dt": "b"})
        table.drop_partitions([{"dt": "a"}])
        table.truncate()
        assert len(table.snapshots()) == left
        assert table.latest_snapshot().id == 7  # type: ignore[union-attr]


def test_rows_of_a_table_a_batch_or_a_reader_are_appended_as_one_batch_commit() -> None:
    table = made()
    some = rows((1, "a"), (2, "b"))
    for given in (some, some.to_batches()[0], some.to_reader()):
        report = table.append(given)
        assert (report.outcome, report.rows, report.identifier) == (
            "committed",
            2,
            BATCH_IDENTIFIER,
        )
    assert ids(table) == [1, 1, 1, 2, 2, 2]
    assert len({one.commit_user for one in table.snapshots()}) == 3
    assert {one.commit_kind for one in table.snapshots()} == {CommitKind.APPEND}


def test_without_rows_there_is_no_snapshot() -> None:
    table = made()
    assert table.append(rows()).outcome == "empty"
    assert table.overwrite(rows()).outcome == "empty"
    assert table.snapshots() == ()


@pytest.mark.parametrize("keys", [(), ("id",)], ids=["append table", "keyed table"])
@pytest.mark.parametrize("form", ["table", "batch", "reader"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": pa.int64()}, "'v'"),
        ({"id": pa.int64(), "v": pa.string(), "w": pa.int64()}, "'w'"),
        ({"id": pa.int64(), "v": pa.int64()}, "'v' .* is STRING, but the rows have int64"),
        (
            {"id": pa.int64(), "v": pa.list_(pa.string())},
            "'v' .* is STRING, but the rows have list",
        ),
    ],
    ids=repr,
)
def test_rows_are_checked_even_if_there_are_none(
    keys: tuple[str, ...], form: str, columns: dict[str, pa.DataType], message: str
) -> None:
    location = f"memory://batch-writes-{next(NUMBERS)}/shop.db/orders"
    options = {"bucket": "1"} if keys else {}
    pairs = [("id", "BIGINT NOT NULL"), ("v", "STRING")]
    table = PaimonTable.create(location, pairs, primary_keys=keys, options=options)
    table.append(pa.table({"id": [1], "v": ["kept"]}))
    forms = {"table": lambda one: one, "batch": _only_batch, "reader": pa.Table.to_reader}

    def nothing(schema: Any) -> Any:
        return forms[form](pa.schema(schema).empty_table())

    for write in (table.append, table.overwrite):
        with pytest.raises(IncompatibleSchema, match=message):
            write(nothing(columns))
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "kept"}]
    assert table.append(nothing({"id": pa.int64(), "v": pa.null()})).snapshot_id is None
    table.overwrite(nothing({"v": pa.string(), "id": pa.int32()}))
    assert table.to_arrow().num_rows == 0


def _only_batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=rows.schema)


def test_columns_that_may_be_null_may_be_left_out_where_that_is_asked_for_and_others_not() -> None:
    table = made([("id", "BIGINT NOT NULL"), ("v", "DOUBLE"), ("dt", "STRING")])
    with pytest.raises(IncompatibleSchema, match=r"lack column 'v'.*missing-columns = null"):
        table.append(pa.table({"dt": ["a"], "id": [1]}))
    table.append(pa.table({"dt": ["a"], "id": [1]}), missing_columns="null")
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": None, "dt": "a"}]
    with pytest.raises(IncompatibleSchema, match="lack column 'id'"):
        table.append(pa.table({"dt": ["a"]}))
    with pytest.raises(IncompatibleSchema, match="lack column 'v', 'dt'"):
        table.append(pa.table({"id": [1]}))
    with pytest.raises(IncompatibleSchema, match="not as list"):
        table.append([{"id": 1}])  # type: ignore[arg-type]


def test_a_column_of_the_key_or_the_partition_is_never_left_out() -> None:
    for table in (made(), made(keys=(), **{"bucket": "2", "bucket-key": "dt"})):
        with pytest.raises(IncompatibleSchema, match="lack column 'dt'"):
            table.append(pa.table({"id": [1]}), missing_columns="null")
        assert not table.snapshots()


def test_a_dynamic_overwrite_replaces_the_partitions_that_get_rows() -> None:
    table = made()
    table.append(rows((1, "a"), (2, "b"), (3, None)))
    report = table.overwrite(rows((4, "b")))
    assert (report.rows, report.snapshot_id) == (1, 2)
    assert ids(table) == [1, 3, 4]
    newest = table.latest_snapshot()
    assert newest is not None
    assert (newest.commit_kind, newest.commit_identifier) == (
        CommitKind.OVERWRITE,
        BATCH_IDENTIFIER,
    )
    assert (newest.delta_record_count, newest.total_record_count) == (0, 3)
    assert ids(table, snapshot_id=1) == [1, 2, 3]  # old files stay readable


def test_dynamic_off_by_argument_or_option_replaces_the_whole_table() -> None:
    table = made()
    table.append(rows((1, "a"), (2, "b")))
    table.overwrite(rows((3, "b")), dynamic=False)
    assert ids(table) == [3]
    other = made(**{"dynamic-partition-overwrite": "false"})
    other.append(rows((1, "a"), (2, "b")))
    other.overwrite(rows((3, "b")), dynamic=True)
    assert ids(other) == [1, 3]
    other.overwrite(rows((4, "c")))
    assert ids(other) == [4]


def test_a_static_overwrite_fills_the_columns_it_fixes() -> None:
    table = made()
    table.append(rows((1, "a"), (2, "b")))
    table.overwrite(pa.table({"id": [7, 8]}), {"dt": "a"})
    assert ids(table) == [2, 7, 8]
    table.overwrite(rows((9, "a")), {"dt": "a"})  # they may be there, if they agree
    assert ids(table) == [2, 9]
    table.overwrite(pa.table({"id": pa.array([], pa.int64())}), {"dt": "b"})
    assert ids(table) == [9]
    table.overwrite(pa.table({"id": [5]}), {"dt": None})
    assert ids(table, partition={"dt": None}) == [5]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("DATE", "2024-02-29", dt.date(2024, 2, 29)),
        ("TIMESTAMP(6)", "2024-02-29 01:02:03.000004", dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
        ("TIMESTAMP(9)", "2024-02-29T01:02:03.5", dt.datetime(2024, 2, 29, 1, 2, 3, 500_000)),
        ("TIME(3)", "01:02:03.004", dt.time(1, 2, 3, 4000)),
        ("DECIMAL(8, 3)", "1.5", Decimal("1.500")),
        ("SMALLINT", "-7", -7),
        ("BOOLEAN", "true", True),
        ("DOUBLE", "0.1", 0.1),
    ],
)
def test_fixed_values_have_the_columns_type(type_: str, text: str, value: Any) -> None:
    table = made([("id", "BIGINT"), ("p", type_)], ("p",))
    table.overwrite(pa.table({"id": [1]}), {"p": text})
    table.overwrite(pa.table({"id": [2]}), {"p": value})
    found = table.to_arrow().to_pylist()
    assert [row["id"] for row in found] == [2]
    assert found[0]["p"] == value or found[0]["p"].to_pydatetime() == value


def test_a_partial_spec_replaces_all_that_it_fits() -> None:
    table = made([("id", "BIGINT"), ("dt", "STRING"), ("h", "INT")], ("dt", "h"))
    table.append(
        pa.table(
            {
                "id": [1, 2, 3, 4],
                "dt": ["a", "a", "b", "b"],
                "h": pa.array([1, 2, 1, 2], pa.int32()),
            }
        )
    )
    table.overwrite(pa.table({"id": [5], "h": pa.array([9], pa.int32())}), {"dt": "a"})
    assert ids(table) == [3, 4, 5]
    table.drop_partitions([{"h": 1}, {"dt": "a", "h": 9}])
    assert ids(table) == [4]


def test_rows_outside_of_the_partition_change_nothing_and_leave_no_files() -> None:
    table = made()
    table.append(rows((1, "a")))
    with pytest.raises(OutsidePartition, match="dt=b"):
        table.overwrite(rows((2, "a"), (3, "b")), {"dt": "a"})
    assert (ids(table), len(table.snapshots()), data_files(table)) == ([1], 1, 1)


def test_both_a_partition_and_dynamic_are_refused_before_anything_is_written() -> None:
    table = made()
    with pytest.raises(InvalidOption):
        table.overwrite(rows((1, "a")), {"dt": "a"}, dynamic=True)
    assert data_files(table) == 0


def test_bad_rows_leave_no_files() -> None:
    table = made([("id", "BIGINT NOT NULL"), ("dt", "STRING")])
    with pytest.raises(NullInNotNull):
        table.overwrite(pa.table({"id": [1, None], "dt": ["a", "b"]}))
    assert data_files(table) == 0


def test_truncate_clears_and_repeats() -> None:
    table = made()
    table.append(rows((1, "a"), (2, None)))
    for number in (2, 3):
        report = table.truncate()
        assert (report.snapshot_id, report.rows, report.identifier) == (number, 0, BATCH_IDENTIFIER)
    assert ids(table) == []
    first, second = (one.delta_record_count for one in table.snapshots()[1:])
    assert (first, second) == (-2, 0)
    assert ids(table, snapshot_id=1) == [1, 2]
    assert len({one.commit_user for one in table.snapshots()}) == 3


def test_dropping_a_partition_that_is_not_there_makes_a_snapshot_of_nothing() -> None:
    table = made()
    table.append(rows((1, "a")))
    assert table.drop_partitions([{"dt": "zz"}]).snapshot_id == 2
    assert ids(table) == [1]
    with pytest.raises(InvalidOption):
        table.drop_partitions([])


def test_only_an_overwrite_changes_the_bucket_count() -> None:
    table = made(**{"bucket": "2", "bucket-key": "id"})
    some = rows(*((n, "ab"[n % 2]) for n in range(20)))
    table.append(some)
    rescaled = replace(table.schema, id=1, options={**table.options, "bucket": "3"})
    assert SchemaStore(table._storage).create(rescaled)
    with pytest.raises(BucketCountChanged):
        table.append(some)
    table.overwrite(rows(*((n, "a") for n in range(20))))
    assert buckets(table, "a") == {0, 1, 2}
    assert buckets(table, "b") <= {0, 1}  # untouched
    table.append(rows((100, "a")))
    assert ids(table) == sorted([*range(20), *range(1, 20, 2), 100])
    assert ids(table, snapshot_id=1) == list(range(20))


def buckets(table: PaimonTable, dt: str) -> set[int]:
    return {file.bucket for file in table.files() if file.partition["dt"] == dt}


@pytest.mark.parametrize("what", ["append", "overwrite"])
def test_rows_never_go_into_a_table_that_was_made_anew_while_they_were_written(
    tmp_path: Path, what: str
) -> None:
    location = str(tmp_path / "t")
    PaimonTable.create(location, schema=[("id", "BIGINT")])

    def replacing() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": [1]})
        shutil.rmtree(location)
        PaimonTable.create(location, schema=[("id", "BIGINT")])

    some = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), replacing())
    with pytest.raises(TableReplaced):
        getattr(PaimonTable.load(location), what)(some)
    assert not PaimonTable.load(location).snapshots()
