"""Sums up a table of flights in a few numbers, with an independent reader.

    python flights_check.py pypaimon|java TABLE     prints the numbers as JSON

The readers share no code with paimon_stream. pypaimon is the official Python reader and runs in a
venv of its own. `java` is Java Paimon itself. Both must find what the source holds. For a table on
S3, the environment names the store and its keys.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from flights_data import ARROW_SCHEMA, day_starts

NOT_HERE = 3
"""The exit code if the reader itself is not installed."""

SUMMED = ("distance", "air_time", "dep_delay", "arr_delay")


@dataclass(frozen=True)
class Summary:
    """The row count, the sums, and for each day a checksum over all columns of its rows, in any
    order.
    """

    reader: str
    rows: int
    sums: dict[str, int]
    days: dict[str, str]


def summarize(
    reader: str,
    flights: pa.Table,
    schema: pa.Schema = ARROW_SCHEMA,
    summed: Sequence[str] = SUMMED,
    day: str = "flight_date",
) -> Summary:
    """The summary of these rows. A lost, duplicated or altered row changes the checksum of its
    day, which the column `day` has.
    """
    flights = flights.select(schema.names).cast(schema)
    texts = [_as_text(flights[name]) for name in schema.names]
    rows = pc.binary_join_element_wise(
        *texts, "|", null_handling="replace", null_replacement="NULL"
    )
    ordered = pa.table({"day": flights[day], "row": rows}).sort_by(
        [("day", "ascending"), ("row", "ascending")]
    )
    starts, names = day_starts(ordered["day"])
    days = {}
    for number, (start, name) in enumerate(zip(starts, names, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else ordered.num_rows
        text = "\n".join(ordered["row"].slice(start, end - start).to_pylist())
        days[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    sums = {name: pc.sum(flights[name]).as_py() for name in summed}
    return Summary(reader=reader, rows=flights.num_rows, sums=sums, days=days)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.string())


def store_options(table: str) -> dict[str, str]:
    """Where the table's store is, and its keys, under the names that both readers know. Empty for a
    table on a disk.
    """
    if not table.startswith("s3://"):
        return {}
    names = {
        "s3.endpoint": "AWS_ENDPOINT_URL",
        "s3.access-key": "AWS_ACCESS_KEY_ID",
        "s3.secret-key": "AWS_SECRET_ACCESS_KEY",
        "s3.region": "AWS_REGION",
    }
    return {
        **{name: os.environ[one] for name, one in names.items()},
        "s3.path.style.access": "true",
    }


def read_with_pypaimon(
    table: str,
    schema: pa.Schema = ARROW_SCHEMA,
    summed: Sequence[str] = SUMMED,
    day: str = "flight_date",
) -> Summary:
    """Reads the newest snapshot with pypaimon."""
    from pypaimon.table.file_store_table import FileStoreTable

    builder = FileStoreTable.from_path(table, store_options(table)).new_read_builder()
    flights = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return summarize(f"pypaimon {metadata.version('pypaimon')}", flights, schema, summed, day)


def read_with_java(
    table: str,
    schema: pa.Schema = ARROW_SCHEMA,
    summed: Sequence[str] = SUMMED,
    day: str = "flight_date",
) -> Summary:
    """Reads the newest snapshot with Java Paimon."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracle"))
    import java_paimon

    try:
        options = store_options(table)
        java = (
            java_paimon.JavaPaimonOnS3(options)
            if options
            else java_paimon.JavaPaimon(max_heap="2g")
        )
    except java_paimon.OracleUnavailable as why:
        print(why, file=sys.stderr)
        sys.exit(NOT_HERE)
    with java:
        rows = java.read(table)
    flights = pa.Table.from_pylist(rows, schema=schema)
    return summarize(f"Java Paimon {java_paimon.PAIMON_VERSION}", flights, schema, summed, day)


READERS = {"pypaimon": read_with_pypaimon, "java": read_with_java}

if __name__ == "__main__":
    print(json.dumps(asdict(READERS[sys.argv[1]](sys.argv[2]))))
