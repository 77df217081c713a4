"""Reading with a filter: the rows are those of a full read, filtered; files without such rows stay
closed.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import IncompatibleSchema, InvalidData, InvalidOption, NotFound
from paimon_stream.format.stats import ColumnStats
from paimon_stream.read.predicate import Predicate
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.table.table import load_table
from tests.kits.faults import FaultyStorage
from tests.kits.filters import assert_same, random_filter
from tests.kits.params import one_in

_NUMBER = count()
SCHEMA = [
    ("id", "INT"),
    ("p", "STRING"),
    ("n", "BIGINT"),
    ("price", "DECIMAL(9, 2)"),
    ("at", "TIMESTAMP(3)"),
]


def made(schema: list[tuple[str, str]] = SCHEMA, **more: Any) -> PaimonTable:
    return PaimonTable.create(f"memory://filters-{next(_NUMBER)}/db.db/t", schema, **more)


def rows(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "p": ["ab"[one % 2] for one in ids],
            "n": pa.array([None if one % 3 else one for one in ids], pa.int64()),
            "price": pa.array([Decimal(one) for one in ids], pa.decimal128(9, 2)),
            "at": pa.array(
                [dt.datetime(2024, 1, 1) + dt.timedelta(days=one) for one in ids],
                pa.timestamp("ms"),
            ),
        }
    )


@pytest.fixture(scope="module")
def table() -> PaimonTable:
    """Four commits of ten ids each, in two partitions."""
    made_once = made(partition_keys=["p"])
    for start in range(0, 40, 10):
        made_once.append(rows(range(start, start + 10)))
    return made_once


def read(table: PaimonTable, where: pc.Expression, **more: Any) -> tuple[pa.Table, int, int]:
    """The rows, and how many data files and manifests were opened."""
    storage = FaultyStorage(table._table.storage)
    scan = plan_scan(load_table(storage), filter=where, **more)
    found = pa.Table.from_batches(read_batches(scan), schema=pa.schema(table.to_arrow().schema))
    names = [
        one.path.rpartition("/")[2]
        for one in storage.operations
        if one.verb in ("read", "open_input")
    ]
    files = {name for name in names if name.startswith("data-")}
    manifests = {name for name in names if name.startswith("manifest-") and "list" not in name}
    return found, len(files), len(manifests)


@pytest.mark.parametrize(
    ("where", "found", "files", "manifests"),
    [
        (pc.field("id") == 17, 1, 2, 4),
        (pc.field("id") > 17, 22, 6, 4),
        ((pc.field("id") > 17) & (pc.field("p") == "b"), 11, 3, 4),
        (pc.field("p").isin(["b", "x"]), 20, 4, 4),
        (pc.field("p") == "x", 0, 0, 0),
        (pc.field("p").is_null(), 0, 0, 0),
        (pc.starts_with(pc.field("p"), "a"), 20, 4, 4),
        (pc.field("n") == 9, 1, 1, 4),  # although the file has NULLs, too
        (pc.field("n").is_null(), 26, 8, 4),
        (~(pc.field("n") <= 30), 3, 2, 4),
        (pc.field("price") >= pa.scalar(Decimal("31.00"), pa.decimal128(9, 2)), 9, 2, 4),
        (pc.field("at") < dt.datetime(2024, 1, 3), 2, 2, 4),
        ((pc.field("id") == 3) | (pc.field("at") > dt.datetime(2024, 2, 8)), 2, 3, 4),
        (pc.field("id") + 1 == 18, 1, 8, 4),  # Arrow concludes nothing from this
        (pc.scalar(False), 0, 0, 0),
        (pc.scalar(True), 40, 8, 4),
    ],
)
def test_files_and_manifests_without_such_rows_stay_closed(
    table: PaimonTable, where: pc.Expression, found: int, files: int, manifests: int
) -> None:
    got, opened, of_manifests = read(table, where)
    assert_same(got, table.to_arrow().filter(where))
    assert (got.num_rows, opened, of_manifests) == (found, files, manifests)


def test_a_filter_goes_with_columns_partitions_batches_and_snapshots(table: PaimonTable) -> None:
    where = (pc.field("id") > 5) & (pc.field("n") < 30)
    assert table.to_arrow(columns=["p"], filter=where).schema == pa.schema([("p", pa.string())])
    assert sorted(table.to_arrow(filter=where, partition={"p": "b"})["id"].to_pylist()) == [
        9,
        15,
        21,
        27,
    ]
    assert sorted(
        table.to_arrow(snapshot_id=2, filter=where, columns=["id"])["id"].to_pylist()
    ) == [6, 9, 12, 15, 18]
    batches = list(table.to_batches(filter=pc.field("id") < 25, batch_rows=2, columns=["id"]))
    assert sum(one.num_rows for one in batches) == 25
    assert max(one.num_rows for one in batches) <= 2
    assert min(one.num_rows for one in batches) > 0


def test_a_manifest_is_left_closed_by_its_partitions() -> None:
    table = made(partition_keys=["p"])
    for start in (0, 1):
        table.append(rows(range(start, 20, 2)))
    assert read(table, pc.field("p") == "b")[1:] == (1, 1)
    assert read(table, (pc.field("p") > "a") & (pc.field("id") < 50))[1:] == (1, 1)


def test_a_condition_may_meet_a_replaced_row_of_a_key_that_it_rules_out() -> None:
    """The file with the newer row stays closed (docs/reading.md)."""
    schema = [("id", "INT NOT NULL"), ("s", "STRING")]
    table = made(schema, primary_keys=["id"], options={"bucket": "1", "write-only": "true"})
    table.append(pa.table({"id": pa.array(range(1, 9), pa.int32()), "s": ["x", *"2345678"]}))
    table.append(pa.table({"id": pa.array([1], pa.int32()), "s": ["1"]}))
    is_number = pc.field("s").cast(pa.int64()) > 0
    assert table.to_arrow(filter=is_number).num_rows == 8
    with pytest.raises(InvalidData, match="Failed to parse string: 'x'"):
        table.to_arrow(filter=(pc.field("id") != 1) & is_number)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_an_old_row_of_a_key_does_not_come_back(engine: str) -> None:
    table = made(
        primary_keys=["id"], options={"bucket": "1", "merge-engine": engine, "write-only": "true"}
    )
    table.append(rows(range(10)))
    table.append(rows(range(5, 15)).set_column(2, "n", pa.array([100] * 10, pa.int64())))
    table.append(rows(range(20, 30)))
    if engine == "first-row":
        table.compact(full=True)
    whole = table.to_arrow()
    for where in (
        pc.field("n") < 50,
        pc.field("n") == 100,
        pc.field("n").is_null(),
        pc.field("p") == "a",
    ):
        assert_same(table.to_arrow(filter=where), whole.filter(where))
    if engine != "first-row":
        assert read(table, pc.field("id") < 5)[1] == 1
        assert read(table, pc.field("id") > 16)[1] == 1
        assert read(table, pc.field("n") > 1000)[1] == 2  # keys of the third file are in no other
        assert read(table, pc.field("n") > 1000)[0].num_rows == 0


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_random_filters_on_random_keyed_tables_keep_what_a_full_read_keeps(seed: int) -> None:
    random = Random(seed)
    options = {
        "bucket": random.choice("12"),
        "merge-engine": random.choice(["deduplicate", "partial-update"]),
    }
    partitioned = random.random() < 0.5
    columns = [
        ("k", "INT NOT NULL"),
        ("p", "STRING NOT NULL"),
        ("v", "INT"),
        ("s", "STRING"),
        ("d", "DOUBLE"),
    ]
    keys = ["k", "p"] if partitioned else ["k"]
    table = made(
        columns,
        primary_keys=keys,
        partition_keys=["p"] * partitioned,
        options={**options, "write-only": "true"},
    )
    for _ in range(5):
        low = random.randint(0, 30)
        some = [random.randint(low, low + 12) for _ in range(8)]
        table.append(
            pa.table(
                {
                    "k": pa.array(some, pa.int32()),
                    "p": [random.choice("ab") for _ in some],
                    "v": pa.array([random.choice([None, 1, 5, 9]) for _ in some], pa.int32()),
                    "s": [random.choice([None, "x", "yy", "z" * 20]) for _ in some],
                    "d": [random.choice([None, 0.5, -0.0, float("nan"), 7.0]) for _ in some],
                }
            )
        )
        if random.random() < 0.2:
            table.compact(full=True)
    whole = table.to_arrow()
    for _ in range(25):
        where = random_filter(random, whole)
        assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        ("id = 7", InvalidOption, "filter is 'id = 7'. Give a pyarrow.compute.Expression"),
        (
            pc.field("nope") == 1,
            IncompatibleSchema,
            r"no column 'nope'\. The columns are: id, p, n, price, at",
        ),
        (pc.field("id") == "x", IncompatibleSchema, "does not fit the columns"),
        (pc.field("id") + 1, IncompatibleSchema, "must evaluate to bool"),
        (
            pc.scalar(1) / (pc.field("id") - 20) == 1,
            InvalidData,
            "cannot be computed for a row: divide by zero",
        ),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    table: PaimonTable, where: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        table.to_arrow(filter=where)
    assert table.location in str(caught.value)
    if error is not InvalidData:
        with pytest.raises(error):
            table.to_batches(filter=where)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    "where",
    [
        pc.field("x").is_null(nan_is_null=True),
        pc.field("x").isin([-0.0]),
        pc.field("x").isin([0.0]),
        pc.divide(pc.scalar(1.0), pc.field("x")) < 0,
    ],
)
def test_nan_and_negative_zero_are_found_where_bounds_do_not_show_them(
    where: pc.Expression, file_format: str
) -> None:
    table = made([("x", "DOUBLE")], options={"file.format": file_format})
    for values in ([float("nan"), 1.0], [0.0], [-0.0], [None], [2.0]):
        table.append(pa.table({"x": pa.array(values, pa.float64())}))
    wanted = table.to_arrow().filter(where)
    assert 0 < wanted.num_rows < 6
    assert_same(table.to_arrow(filter=where), wanted)


def test_columns_are_not_named_by_position_because_reads_have_other_positions() -> None:
    table = made([("a", "INT"), ("b", "ROW<c INT>")], options={"deletion-vectors.enabled": "true"})
    table.append(
        pa.table(
            {"a": pa.array([1, 9], pa.int32()), "b": [{"c": 9}, {"c": 1}]},
            schema=table.to_arrow().schema,
        )
    )
    for where in (pc.field(0) > 5, pc.field((1, "c")) > 5, pc.add(pc.field("a"), pc.field(0)) > 5):
        with pytest.raises(InvalidOption, match="by its position"):
            table.to_arrow(filter=where, columns=["b"])
        with pytest.raises(InvalidOption, match="by its position"):
            table.delete(where)
    assert table.to_arrow(filter=pc.field(("b", 0)) > 5)["a"].to_pylist() == [1]
    assert table.to_arrow(filter=pc.field("a").cast(pa.string()) == '"FieldPath(0)').num_rows == 0


def test_an_empty_table_has_no_such_rows() -> None:
    assert made().to_arrow(filter=pc.field("id") > 1).schema == rows(range(1)).schema


def test_what_arrow_cannot_fold_prunes_nothing(table: PaimonTable) -> None:
    predicate = Predicate.of(pc.scalar(1) / pc.field("id") == 1, table.schema, "t")
    zero = {"id": ColumnStats(min=0, max=0, null_count=0)}
    assert predicate.possible([(zero, 1), ({}, None)]) == [True, True]


def test_an_upper_bound_in_which_java_lost_a_character_prunes_nothing(tmp_path: Path) -> None:
    """Java cuts a text between the halves of a character, and writes the rest as `?`."""
    table = PaimonTable.create(str(tmp_path / "t"), [("s", "STRING")])
    predicate = Predicate.of(pc.field("s") == "ab\U0001f600", table.schema, "t")
    known = [({"s": ColumnStats("a", high, 0)}, 5) for high in ("ab?", "abz", "ab\U0001f601")]
    assert predicate.possible(known) == [True, False, True]


# -- time travel
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["abc", "abc\t", "ab", "ab\t\t\t", "abd"])
def test_a_padded_lower_bound_leaves_out_no_value_that_ends_below_the_blank(value: str) -> None:
    """ORC pads CHAR before it compares, and then a tab comes before a blank."""
    where = Predicate.of(pc.field("c") == value, made([("c", "CHAR(5)")])._table.schema, "t")
    for other in ("abc", "abc\t", "ab", "ab\t\t\t", "abd"):
        low, high = sorted(text.ljust(5) for text in (value, other))
        assert where.possible([({"c": ColumnStats(low, high, 0)}, 2)]) == [True], other
    assert where.possible([({"c": ColumnStats("b    ", "c    ", 0)}, 2)]) == [False]


def test_a_time_chooses_the_newest_snapshot_that_is_not_younger(table: PaimonTable) -> None:
    times = [one.time_millis for one in table.snapshots()]
    for at in (times[1], times[-1], times[-1] + 10_000):
        wanted = 10 * sum(one <= at for one in times)
        moment = dt.datetime.fromtimestamp(at / 1000, dt.timezone.utc)
        for given in (at, moment, moment.isoformat()):
            assert table.to_arrow(timestamp=given).num_rows == wanted
    with pytest.raises(
        NotFound,
        match=r"no snapshot of 2001-01-01T00:00:00.000Z or before: the oldest one left is of",
    ):
        table.to_arrow(timestamp="2001-01-01T00:00Z")
    for given in ({"tag": "x"}, {"snapshot_id": 1}):
        with pytest.raises(InvalidOption, match="timestamp are both given"):
            table.to_batches(timestamp=times[0], **given)
    with pytest.raises(InvalidOption, match="timestamp is 'soon'"):
        table.to_arrow(timestamp="soon")
    with pytest.raises(NotFound, match="there is none"):
        made().to_arrow(timestamp=dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc))


@pytest.mark.parametrize("text", ["20261125", "1795653282788", " 86400000 "])
def test_a_long_number_without_a_unit_is_neither_a_time_nor_an_age(
    table: PaimonTable, text: str
) -> None:
    with pytest.raises(InvalidOption, match=r"timestamp is .* not an age or a time"):
        table.to_arrow(timestamp=text)
    with pytest.raises(InvalidOption, match=r"older_than is .* not an age or a time"):
        table.expire_snapshots(older_than=text)
    assert table.to_arrow(timestamp="0").num_rows == 40
