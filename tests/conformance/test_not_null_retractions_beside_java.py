"""Rows that take a value back from a column that is NOT NULL. Java fails where NULL would stay; here
such a batch is refused, so no table comes to be that Java cannot read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import BadRowKind
from tests.kits.reading import assert_rows, java_rows

COLUMNS = [("k", "INT NOT NULL"), ("g", "INT"), ("t", "INT NOT NULL"), ("n", "BIGINT")]
AGGREGATED = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
LAST_VALUE = {**AGGREGATED, "fields.t.aggregate-function": "last_value"}
SUM = {**AGGREGATED, "fields.t.aggregate-function": "sum"}
PARTIAL = {"merge-engine": "partial-update", "fields.g.sequence-group": "t,n"}

Row = tuple[str, int, int]
"""The kind of a row, its key and its value."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db.db" / "t"


def created(java: Any, path: Path, options: dict[str, str]) -> PaimonTable:
    java.create_table(path, COLUMNS, (), ["k"], {"bucket": "1", "write-only": "true", **options})
    return PaimonTable.load(str(path))


def wrote(table: PaimonTable, rows: list[Row]) -> None:
    kinds, keys, values = (list(one) for one in zip(*rows, strict=True))
    numbers = pa.array(values, pa.int32())
    columns = {"k": pa.array(keys, pa.int32()), "g": numbers, "t": numbers}
    columns |= {"n": numbers.cast(pa.int64()), "op": pa.array(kinds)}
    table.append(pa.table(columns), operation_column="op")


REFUSED = {
    "last value": (LAST_VALUE, [("+I", 4, 10), ("-U", 4, 11)]),
    "the default, last value that is not NULL": (AGGREGATED, [("+I", 4, 10), ("-D", 4, 10)]),
    "member of a sequence group": (PARTIAL, [("+I", 4, 10), ("-U", 4, 11)]),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("batches", [1, 2])
def test_null_is_never_left_in_a_not_null_column(
    java: Any, path: Path, case: str, batches: int
) -> None:
    """Java's writer fails, too, where both rows are in one batch; in two, its readers fail."""
    options, rows = REFUSED[case]
    table = created(java, path, options)
    if batches == 2:
        wrote(table, rows[:1])
    with pytest.raises(BadRowKind, match="column 't' is NOT NULL") as refused:
        wrote(table, rows[batches - 1 :])
    assert refused.value.context["count"] == 1
    assert [row["t"] for row in java.read(path)] == [10] * (batches - 1)
    kinds, values = [row[0] for row in rows], [(k, v, v, v) for _, k, v in rows]
    if batches == 1:
        with pytest.raises(Py4JJavaError, match="expected not null but found null"):
            java.write(path, values, "java", 1, kinds=kinds)
        return
    java.write(path, values[1:], "java", 1, kinds=kinds[1:])
    with pytest.raises(Py4JJavaError, match="null"):
        java.read(path)


ACCEPTED = {
    "a later row sets it": (LAST_VALUE, [("-U", 4, 11), ("+U", 4, 12)]),
    "a sum": (SUM, [("-U", 4, 1), ("-D", 4, 2), ("+I", 5, 1)]),
    "ignored": ({**LAST_VALUE, "fields.t.ignore-retract": "true"}, [("-U", 4, 11)]),
    "ignored at all": ({**LAST_VALUE, "ignore-delete": "true"}, [("-U", 4, 11), ("-D", 4, 1)]),
    "the row is removed": (
        {**LAST_VALUE, "aggregation.remove-record-on-delete": "true"},
        [("-D", 4, 11)],
    ),
    "the group removes the row": (
        {**PARTIAL, "partial-update.remove-record-on-sequence-group": "g"},
        [("-D", 4, 11)],
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_leaves_a_value_or_no_row_is_accepted(java: Any, path: Path, case: str) -> None:
    options, rows = ACCEPTED[case]
    table = created(java, path, options)
    wrote(table, [("+I", 4, 10), ("+I", 6, 10)])
    wrote(table, rows)
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))


@pytest.mark.parametrize("case", REFUSED)
def test_a_pair_that_two_batches_share_breaks_java_in_between_and_the_named_option_helps(
    java: Any, path: Path, case: str
) -> None:
    """Java takes the first half, cannot read or compact the table until the other half comes, and
    reads it then. So the half is refused here, and the error names the option by which both read it.
    """
    options, rows = REFUSED[case]
    halves = [(rows[1][0], 4, 11), ("+U" if rows[1][0] == "-U" else "+I", 4, 12)]
    there = path.with_name("there")
    java.create_table(there, COLUMNS, (), ["k"], {"bucket": "1", "write-only": "true", **options})
    java.write(there, [(4, 10, 10, 10)], "java", 1)
    java.write(there, [(4, 11, 11, 11)], "java", 2, kinds=[halves[0][0]])
    with pytest.raises(Py4JJavaError, match="null"):
        java.read(there)
    with pytest.raises(Py4JJavaError, match="null"):
        java.compact(there)
    java.write(there, [(4, 12, 12, 12)], "java", 3, kinds=[halves[1][0]])
    assert [row["t"] for row in java.read(there)] == [12]

    table = created(java, path, options)
    wrote(table, rows[:1])
    with pytest.raises(BadRowKind, match=r"same batch.*fields\.t\.ignore-retract = true"):
        wrote(table, halves[:1])
    helping = [("set", "fields.t.ignore-retract", "true")]
    if options is PARTIAL:
        helping.append(("set", "fields.t.aggregate-function", "last_value"))
    java.alter_table(path, *helping)
    table = PaimonTable.load(str(path))
    for half in halves:
        wrote(table, [half])
        assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))
    assert [row["t"] for row in java.read(path)] == [12]


def test_rows_that_wait_for_their_buckets_are_refused_before_they_wait(
    java: Any, path: Path
) -> None:
    table = created(java, path, {**LAST_VALUE, "bucket": "-2"})
    with pytest.raises(BadRowKind, match="'t' is NOT NULL"):
        wrote(table, [("+I", 4, 10), ("-U", 4, 11)])
    wrote(table, [("+I", 4, 10), ("-U", 4, 10), ("+U", 4, 12)])
    table.compact()
    assert [row["t"] for row in java.read(path)] == [12]
