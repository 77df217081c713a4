"""Demo of changes: each flight of January 2013 is one row that changes. The job survives `kill -9`.

1. Departures, delays, arrivals and cancellations become a stream of changes: inserts, updates,
   deletes.
2. A job streams them into a table with a primary key. The job and its JVM are killed with SIGKILL
   at four moments. Each time the job is started again.
3. Java Paimon, pypaimon and paimon_stream itself read the table. Their results must equal those of
   a dict to which all changes were applied.

Each run works in a new folder under `demo-data/` and leaves it there.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
from cdc_check import SUMMED
from cdc_data import ARROW_SCHEMA, OPERATION, TABLE, changes_of, left_over, write_daily_changes
from cdc_stream import FILES_PER_BATCH
from flights import (
    DemoFailed,
    Kill,
    Room,
    independent_readers,
    new_room,
    print_agreement,
    print_what_happened,
    run_and_report,
    stream_through_kills,
)
from flights_check import Summary, summarize
from flights_data import load_flights

from paimon_stream import PaimonTable

MONTH = 1
KILLS = (
    Kill("WRITTEN", 3, "files written, nothing noted"),
    Kill("JOURNALED", 6, "files written and noted, nothing committed"),
    Kill("PUBLISHED", 10, "snapshot published, not acknowledged"),
    Kill("FINISHED", 13, "sink returned, Spark has not noted it"),
)
_OPERATIONS = {"c": "inserts", "u": "updates", "d": "deletes"}


def expected(changes: pa.Table) -> Summary:
    """What the table must hold."""
    rows = left_over(changes.to_pylist())
    return summarize(
        "the changes, in a dict", pa.Table.from_pylist(rows, ARROW_SCHEMA), ARROW_SCHEMA, SUMMED
    )


def our_own(table: PaimonTable) -> Summary:
    """What paimon_stream reads."""
    return summarize("paimon_stream", table.to_arrow(), ARROW_SCHEMA, SUMMED)


def check_snapshots(table: PaimonTable, batches: int) -> None:
    """Each batch must have become one snapshot. A compaction follows some of them."""
    found = [
        one.commit_identifier for one in table.snapshots() if one.commit_kind.value != "COMPACT"
    ]
    if found != list(range(batches)):
        raise DemoFailed(
            f"The snapshots are of batches {found}; expected 0 to {batches - 1}, each once."
        )


def run_demo(room: Room) -> int:
    """Runs all three steps. Returns the exit code."""
    started = time.monotonic()
    flights = load_flights()
    flights = flights.filter(pc.equal(flights["month"], MONTH))
    changes = changes_of(flights)
    files = write_daily_changes(changes, room.source)
    batches = -(-files // FILES_PER_BATCH)
    counts = Counter(changes[OPERATION].to_pylist())
    counted = ", ".join(f"{counts[op]:,} {name}" for op, name in _OPERATIONS.items())
    print(
        f"{flights.num_rows:,} flights of January 2013 make {changes.num_rows:,} changes: {counted};"
    )
    print(f"{files} daily files, {FILES_PER_BATCH} per micro-batch.")
    table = PaimonTable.create(str(room.table), **TABLE)
    runs = stream_through_kills(room, batches, KILLS, "cdc_stream.py")
    print_what_happened(room, runs, time.monotonic() - started)
    check_snapshots(table, batches)
    source = expected(changes)
    readers = [*independent_readers(room, room.table, "cdc_check.py"), our_own(table)]
    agreed = print_agreement(source, readers, SUMMED)
    print(f"\nThe table stays at {room.table}")
    print(f"The demo took {time.monotonic() - started:.0f} s.")
    if not agreed:
        print("FAILED: the table does not hold the result of the changes.")
        return 1
    print(
        f"OK: {source.rows:,} flights left of {flights.num_rows:,} after {counts['d']:,} cancellations and"
        f" {len(KILLS)} kills, every day's checksum equal: each change exactly once."
    )
    return 0


if __name__ == "__main__":
    sys.exit(run_and_report(new_room("cdc"), run_demo))
