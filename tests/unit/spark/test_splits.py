"""Splits of tables with a primary key: sections of a bucket are read alone, and give the rows of a
full read.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from paimon_stream import PaimonTable
from paimon_stream.errors import (
    BadRowKind,
    FormatError,
    InvalidData,
    InvalidOption,
    NumericOverflow,
)
from paimon_stream.format.arrow_types import arrow_schema
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.read.merged import sections
from paimon_stream.read.scan import plan_scan
from paimon_stream.spark.splits import rows_of_split, split_bytes_for, splits_of, without_files
from tests.kits.keyed import commit_changes
from tests.kits.random_tables import batches, definition
from tests.kits.reading import wire_rows
from tests.kits.seeds import seeds


def of_splits(table: PaimonTable, split_bytes: int = 1) -> tuple[pa.Table, int]:
    """The rows that tasks read, and how many splits there are."""
    scan = plan_scan(table._table)
    arrow, splits = arrow_schema(scan.columns), splits_of(scan, split_bytes)
    version, of_task = CommitMessage.VERSION, without_files(scan)
    rows = [rows for one in splits for rows in rows_of_split(of_task, arrow, one, version)]
    return pa.Table.from_batches(rows, schema=arrow), len(splits)


def counted(rows: pa.Table, table: PaimonTable) -> Counter[str]:
    return Counter(map(repr, wire_rows(rows, table.schema.fields)))


def number_of_sections(table: PaimonTable) -> int:
    scan = plan_scan(table._table)
    types = [table.schema.field(name).type for name in scan.merge.keys] if scan.merge else []
    places = {(one.partition, one.bucket) for one in scan.files}
    return sum(
        len(sections([one for one in scan.files if (one.partition, one.bucket) == at], types))
        for at in places
    )


def numbers(*ids: int, value: int = 0) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int32()), "n": pa.array([value + one for one in ids], pa.int32())}
    )


KEYED: dict[str, Any] = {"primary_keys": ["id"]}
COLUMNS = [("id", "INT NOT NULL"), ("n", "INT")]


def made(path: Path, **options: str) -> PaimonTable:
    return PaimonTable.create(str(path / "t"), COLUMNS, **KEYED, options={"bucket": "1", **options})


def test_files_of_a_bucket_without_common_keys_are_splits_of_their_own(tmp_path: Path) -> None:
    table = made(tmp_path, **{"write-only": "true"})
    for start in range(0, 100, 10):
        table.append(numbers(*range(start, start + 10)))
    assert of_splits(table)[1] == 10
    assert of_splits(table, 2**40)[1] == 1
    table.append(numbers(5, 15, value=100))  # joins the first two
    rows, splits = of_splits(table)
    assert splits == 9
    assert counted(rows, table) == counted(table.to_arrow(), table)


@pytest.mark.parametrize(("tasks", "splits"), [(1, 1), (2, 2), (4, 4), (100, 8)])
def test_a_small_table_is_shared_among_the_tasks(tmp_path: Path, tasks: int, splits: int) -> None:
    table = made(tmp_path, bucket="8")
    for _ in range(2):
        table.append(numbers(*range(200)))
    share = split_bytes_for(plan_scan(table._table), tasks)
    assert of_splits(table, share)[1] == splits
    assert share == max(2**26 // tasks, 2**22)  # each of the 16 files counts as 4 MB


def test_the_newer_row_wins_whatever_the_order_of_the_keys(tmp_path: Path) -> None:
    """Rows with the same number: the order of commits decides, which a split must keep."""
    table = made(tmp_path, **{"write-only": "true", "sequence.field": "n"})
    for ids in ((7, 9), (1, 8), (3, 7), (0, 1), (7, 20), (30, 31)):
        table.append(pa.table({"id": pa.array(ids, pa.int32()), "n": pa.array([5, 5], pa.int32())}))
    rows, splits = of_splits(table)
    assert splits == 2
    assert counted(rows, table) == counted(table.to_arrow(), table)


def assert_same_rows(table: PaimonTable) -> int:
    """Checks the rows, and the number of splits, which is returned."""
    rows, splits = of_splits(table)
    assert counted(rows, table) == counted(table.to_arrow(), table)
    assert splits == number_of_sections(table)
    return splits


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "by sequence": {"sequence.field": "a", "bucket": "2"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "sums": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "fields.b.aggregate-function": "max",
    },
    "sums, lookup": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "sum",
        "force-lookup": "true",
    },
    "partial": {"merge-engine": "partial-update", "fields.a.sequence-group": "b"},
    "first-row": {"merge-engine": "first-row"},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_splits_have_the_rows_of_a_full_read_with_every_engine(engine: str, tmp_path: Path) -> None:
    random, most = Random(engine), 0
    columns = [("k", "INT NOT NULL"), ("a", "INT"), ("b", "STRING")]
    # With such a target, compactions leave several files.
    options = {"bucket": "1", "write-only": "true", "target-file-size": "1 kb", **ENGINES[engine]}
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=options)
    kinds = ["+I", "+I", "+U", "-D"] if "merge-engine" not in options else ["+I"]
    for identifier in range(1, 9):
        low = 20 * random.choice([0, 1, 2, identifier])
        keys = random.sample(range(low, low + 20), 8)
        rows = [
            {"k": one, "a": random.choice([None, 1, 2, 9]), "b": random.choice([None, "x", "y"])}
            for one in keys
        ]
        commit_changes(table, [(random.choice(kinds), row) for row in rows], identifier)
        if identifier % 2 == 0:
            table.compact(full=random.random() < 0.2)
        most = max(most, assert_same_rows(table))
    assert most > 2


def read_a_random_table(root: Path, seed: int) -> str:
    """Returns what happened to the table of this seed."""
    random = Random(seed)
    made = definition(random)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = PaimonTable.create(
                str(root / "t"),
                made.columns,
                partition_keys=made.partition,
                primary_keys=made.keys,
                options=made.options,
            )
    except InvalidOption:
        return "refused"
    try:
        for identifier, batch in enumerate(
            (one for _ in range(3) for one in batches(random, made)), 1
        ):
            low = random.choice([0, 0, 10, 20, 30])
            commit_changes(
                table, [(kind, {**row, "k": row["k"] + low}) for kind, row in batch], identifier
            )
            if random.random() < 0.3:
                table.compact(full=random.random() < 0.3)
        table.to_arrow()
    except (InvalidData, BadRowKind, NumericOverflow):
        return "not readable"
    return "read" if assert_same_rows(table) > 2 else "few sections"


def test_splits_of_random_tables_have_the_rows_of_a_full_read(tmp_path: Path) -> None:
    ends = Counter(read_a_random_table(tmp_path / str(seed), seed) for seed in seeds(5, 500))
    assert ends["read"] + ends["few sections"], ends


def test_keys_that_cannot_be_read_end_the_planning_with_the_cure(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.append(numbers(1, 2))
    scan = plan_scan(table._table)
    broken = [replace(one, file=replace(one.file, min_key=b"\0\0\0\1")) for one in scan.files]
    with pytest.raises(
        FormatError, match=r"keys that a manifest gives for a file cannot be read"
    ) as caught:
        splits_of(replace(scan, files=tuple(broken)), 1)
    assert table.location in str(caught.value)
