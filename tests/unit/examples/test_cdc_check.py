"""The changes that `examples/cdc.py` makes of flights, and the rows that they leave, are as
intended.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
from cdc_data import ARROW_SCHEMA, SPARK_SCHEMA, changes_of, left_over, write_daily_changes
from flights_data import ARROW_SCHEMA as FLIGHTS

HOUR = dt.datetime(2013, 1, 1, 10, tzinfo=dt.timezone.utc)
DAY = dt.timedelta(days=1)


def flight(number: int, **known: Any) -> dict[str, Any]:
    row = {
        "flight_date": HOUR.date(),
        "time_hour": HOUR,
        "minute": 30,
        "carrier": "UA",
        "flight": number,
        "origin": "EWR",
        "dest": "IAH",
        "tailnum": "N1",
    }
    return {**row, **known}


ON_TIME = {"dep_time": 1031, "dep_delay": 1, "arr_delay": -5, "air_time": 100}
FLIGHTS_OF_A_DAY = pa.Table.from_pylist(
    [
        flight(1, **ON_TIME),
        flight(2, dep_time=1145, dep_delay=75, arr_delay=60, air_time=90),
        flight(3),
        flight(4, dep_time=1030, dep_delay=0),
    ],
    FLIGHTS,
)


def history(number: int) -> list[tuple[str, str]]:
    rows = [row for row in changes_of(FLIGHTS_OF_A_DAY).to_pylist() if row["flight"] == number]
    return [(row["op"], row["status"]) for row in sorted(rows, key=lambda row: row["changed_at"])]


def test_a_flight_is_scheduled_leaves_and_arrives() -> None:
    assert history(1) == [("c", "scheduled"), ("u", "departed"), ("u", "arrived")]


def test_a_long_delay_is_a_change_a_cancellation_deletes_and_a_flight_may_end_elsewhere() -> None:
    assert history(2) == [("c", "scheduled"), ("u", "delayed"), ("u", "departed"), ("u", "arrived")]
    assert history(3) == [("c", "scheduled"), ("d", "cancelled")]
    assert history(4)[-1] == ("u", "diverted")


def test_what_is_left_are_the_flights_that_were_not_cancelled_as_they_ended() -> None:
    left = left_over(changes_of(FLIGHTS_OF_A_DAY).to_pylist())
    assert {row["flight"]: (row["status"], row["arr_delay"]) for row in left} == {
        1: ("arrived", -5),
        2: ("arrived", 60),
        4: ("diverted", None),
    }
    assert pa.Table.from_pylist(left, ARROW_SCHEMA)["dep_delay"].to_pylist() == [
        {1: 1, 2: 75, 4: 0}[row["flight"]] for row in left
    ]


@pytest.mark.parametrize("late", ["c", "u", "d"])
def test_a_change_that_comes_late_does_not_undo_a_newer_one(late: str) -> None:
    key = {"origin": "EWR", "time_hour": HOUR, "carrier": "UA", "flight": 1}
    empty = dict.fromkeys(ARROW_SCHEMA.names)
    newer = {**empty, **key, "op": "u", "status": "arrived", "changed_at": HOUR}
    older = {**empty, **key, "op": late, "status": "?", "changed_at": HOUR - DAY}
    assert [row["status"] for row in left_over([newer, older])] == ["arrived"]
    assert left_over([{**newer, "op": "d"}, older]) == []


def test_some_changes_are_received_a_day_late_and_every_file_is_in_the_order_of_receipt(
    tmp_path: Path,
) -> None:
    import pyarrow.parquet as pq

    changes = changes_of(
        pa.Table.from_pylist([flight(number, **ON_TIME) for number in range(200)], FLIGHTS)
    )
    days = [row["received"] - row["changed_at"].date() for row in changes.to_pylist()]
    assert set(days) == {DAY, DAY * 0} and days.count(DAY) < len(days) / 10
    count = write_daily_changes(changes, tmp_path / "daily")
    files = sorted((tmp_path / "daily").iterdir())
    assert len(files) == count == 3
    read = pa.concat_tables([pq.read_table(path) for path in files])
    assert read.equals(changes.drop_columns(["received"]))
    assert [column.split()[0] for column in SPARK_SCHEMA.split(", ")] == read.column_names
