"""The flights of January 2013 as a stream of changes, and the rows that must be left at the end.

Every flight is one row that changes: scheduled (`c`), delayed, departed, arrived or diverted (`u`),
or cancelled (`d`). The changes come in daily files, in the order in which they were received. A few
changes are received a day late, after newer changes of the same flight. `changed_at` decides which
change counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from flights_data import day_starts

KEY = ("origin", "time_hour", "carrier", "flight")

TABLE_COLUMNS = [
    ("flight_date", "DATE NOT NULL"),
    ("time_hour", "TIMESTAMP(6) WITH LOCAL TIME ZONE NOT NULL"),
    ("carrier", "STRING NOT NULL"),
    ("flight", "INT NOT NULL"),
    ("origin", "STRING NOT NULL"),
    ("dest", "STRING"),
    ("tailnum", "STRING"),
    ("status", "STRING NOT NULL"),
    ("dep_delay", "INT"),
    ("arr_delay", "INT"),
    ("air_time", "INT"),
    ("changed_at", "TIMESTAMP(6) WITH LOCAL TIME ZONE NOT NULL"),
]
"""The columns of the Paimon table."""

TABLE = {
    "schema": TABLE_COLUMNS,
    "partition_keys": ["origin"],
    "primary_keys": list(KEY),
    "options": {"bucket": "2", "sequence.field": "changed_at"},
}
"""The arguments of `PaimonTable.create`. Of each flight, the row with the newest `changed_at`
counts.
"""

OPERATION = "op"
"""The column that says what a change does. The table does not have it."""

_ARROW = {
    "DATE": pa.date32(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "TIMESTAMP(6)": pa.timestamp("us", tz="UTC"),
}
ARROW_SCHEMA = pa.schema([(name, _ARROW[text.split()[0]]) for name, text in TABLE_COLUMNS])
"""The same columns in Arrow."""

SPARK_SCHEMA = f"{OPERATION} STRING, " + ", ".join(
    f"{name} {'TIMESTAMP' if text.startswith('TIMESTAMP') else text.split()[0]}"
    for name, text in TABLE_COLUMNS
)
"""The columns of the files of changes in Spark's DDL."""

_MINUTE = 60 * 10**6
_DAY = 24 * 60 * _MINUTE
_LATE = 40


def changes_of(flights: pa.Table) -> pa.Table:
    """All changes of these flights, in the order in which they are received.

    The columns are `op`, the table's columns, and `received`, the day. One in 40 changes is
    received a day late.
    """
    hour = flights["time_hour"].cast(pa.int64()).to_numpy()
    due = hour + flights["minute"].to_numpy().astype(np.int64) * _MINUTE
    waited = pc.fill_null(flights["dep_delay"], 0).to_numpy().astype(np.int64) * _MINUTE
    flown = pc.fill_null(flights["air_time"], 60).to_numpy().astype(np.int64) * _MINUTE
    left = pc.is_valid(flights["dep_time"])
    diverted = pc.and_(left, pc.is_null(flights["arr_delay"]))
    delayed = pc.and_(left, pc.greater(pc.fill_null(flights["dep_delay"], 0), 30))
    arrived = pc.if_else(diverted, "diverted", "arrived")
    everyone = pa.array(np.ones(len(due), bool))
    parts = [
        _change(flights, everyone, "c", "scheduled", due - _DAY, ()),
        _change(flights, delayed, "u", "delayed", due - 30 * _MINUTE, ("dep_delay",)),
        _change(flights, left, "u", "departed", due + waited, ("tailnum", "dep_delay")),
        _change(flights, left, "u", arrived, due + waited + flown, _KNOWN),
        _change(flights, pc.invert(left), "d", "cancelled", due - 5 * _MINUTE, ()),
    ]
    changes = pa.concat_tables(parts)
    at = changes["changed_at"].cast(pa.int64()).to_numpy()
    late = (changes["flight"].to_numpy() * 7 + at // _MINUTE) % _LATE == 0
    received = pa.array(at + late * _DAY, pa.int64())
    day = received.cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    changes = changes.append_column("at", received).append_column("received", day)
    return changes.sort_by(
        [(name, "ascending") for name in ("at", *KEY, "changed_at")]
    ).drop_columns(["at"])


_KNOWN = ("tailnum", "dep_delay", "arr_delay", "air_time")


def _change(
    flights: pa.Table, which: Any, op: str, status: Any, at: Any, known: Iterable[str]
) -> pa.Table:
    """One change of some flights. Of the columns that become known over time, only those in `known`
    have values.
    """
    columns = {name: flights[name] for name in ARROW_SCHEMA.names if name in flights.column_names}
    unknown = [name for name in _KNOWN if name not in known]
    columns |= {name: pa.nulls(flights.num_rows, ARROW_SCHEMA.field(name).type) for name in unknown}
    columns["status"] = pa.repeat(status, flights.num_rows) if isinstance(status, str) else status
    columns["changed_at"] = pa.array(at, pa.int64())
    made = pa.table({name: columns[name] for name in ARROW_SCHEMA.names}).cast(ARROW_SCHEMA)
    made = made.add_column(0, OPERATION, pa.repeat(op, flights.num_rows))
    return made.filter(which)


def left_over(changes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows that a table must hold after these changes, found with a dict by key and without
    Paimon.
    """
    newest: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for change in changes:
        key = tuple(change[name] for name in KEY)
        if key not in newest or change["changed_at"] >= newest[key]["changed_at"]:
            newest[key] = change
    return [
        {name: change[name] for name in ARROW_SCHEMA.names}
        for change in newest.values()
        if change[OPERATION] != "d"
    ]


def write_daily_changes(changes: pa.Table, folder: Path) -> int:
    """Writes one file for each day on which changes were received. Returns the number of files."""
    folder.mkdir(parents=True)
    starts, names = day_starts(changes["received"])
    for number, (start, name) in enumerate(zip(starts, names, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else changes.num_rows
        path = folder / f"changes-{name}.parquet"
        pq.write_table(changes.slice(start, end - start).drop_columns(["received"]), path)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    return len(starts)
