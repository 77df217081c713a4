"""The demo's own check finds what it must find."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
from flights_check import summarize
from flights_data import ARROW_SCHEMA, TABLE_COLUMNS


def flight(day: int, number: int, tailnum: str | None = "N1") -> dict[str, object]:
    row: dict[str, object] = {
        name: number if text.startswith("INT") else "x" for name, text in TABLE_COLUMNS
    }
    moment = dt.datetime(2013, 1, day, 10, tzinfo=dt.timezone.utc)
    return {**row, "flight_date": dt.date(2013, 1, day), "time_hour": moment, "tailnum": tailnum}


ROWS = [flight(1, 1), flight(1, 2, None), flight(2, 1)]


def days(rows: list[dict[str, object]]) -> dict[str, str]:
    return summarize("test", pa.Table.from_pylist(rows, schema=ARROW_SCHEMA)).days


def test_the_order_of_rows_does_not_matter() -> None:
    assert days(ROWS) == days(ROWS[::-1])


@pytest.mark.parametrize(
    "rows",
    [
        [*ROWS, ROWS[0]],
        ROWS[1:],
        [flight(1, 3), *ROWS[1:]],
        [flight(1, 1, "N2"), *ROWS[1:]],
        [ROWS[0], flight(1, 2, "N1"), ROWS[2]],
    ],
    ids=["doubled", "lost", "another number", "another text", "no longer null"],
)
def test_a_doubled_lost_or_altered_row_changes_its_day_only(rows: list[dict[str, object]]) -> None:
    assert days(rows)["2013-01-01"] != days(ROWS)["2013-01-01"]
    assert days(rows)["2013-01-02"] == days(ROWS)["2013-01-02"]


def test_a_day_moved_to_another_changes_both() -> None:
    assert set(days([*ROWS[:2], flight(3, 1)])) == {"2013-01-01", "2013-01-03"}


def test_counts_and_sums_are_those_of_the_rows() -> None:
    summary = summarize("test", pa.Table.from_pylist(ROWS, schema=ARROW_SCHEMA))
    assert summary.rows == 3
    assert summary.sums == {"distance": 4, "air_time": 4, "dep_delay": 4, "arr_delay": 4}
