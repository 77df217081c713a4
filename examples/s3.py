"""Demo of an object store: flights are streamed into a table on S3. The job survives `kill -9`.

1. A server that speaks S3 (moto) is started on this machine. It keeps its bucket in memory.
2. A job streams the flights of January to March 2013 into a table in that bucket. The job and its
   JVM are killed with SIGKILL at the four moments of `flights.py`. Each time the job is started
   again.
3. Java Paimon, pypaimon and paimon_stream itself read the table from the bucket. The row count, the
   sums and a checksum of each day must equal those of the source.

The environment names the store and its keys, as it would on a machine that works with AWS. Nothing
else in the job is different from a table on a disk. Each run works in a new folder under
`demo-data/`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HOME = Path(__file__).parent.parent
NEEDED = {"moto": "moto[s3,server]", "obstore": ".[store]"}
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if missing:
    packages = " ".join(f"'{NEEDED[name]}'" for name in dict.fromkeys(missing))
    sys.exit(
        f"This demo needs packages that are not installed: {', '.join(missing)}.\n"
        f"In the checkout, run: pip install {packages}"
    )

import pyarrow.compute as pc  # noqa: E402 - the message above comes first
from flights import (  # noqa: E402
    KILLS,
    DemoFailed,
    Room,
    independent_readers,
    new_room,
    print_agreement,
    print_runs,
    run_and_report,
    stream_through_kills,
)
from flights_check import summarize  # noqa: E402
from flights_data import TABLE, load_flights, write_daily_files  # noqa: E402
from flights_stream import FILES_PER_BATCH  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402

sys.path.insert(0, str(HOME))
from tests.servers import s3_moto  # noqa: E402

MONTHS = 3
KILLED = tuple(replace(kill, batch=2 * number + 1) for number, kill in enumerate(KILLS))
SUMMED = ("distance", "air_time")


@dataclass(frozen=True)
class BucketRoom(Room):
    """The table is in the bucket; the source, the checkpoint and the log are on this machine."""

    @property
    def table(self) -> str:
        """The table's location."""
        return f"s3://{s3_moto.BUCKET}/warehouse/demo.db/{self.name}"


def name_the_store(server: Any) -> None:
    """Writes the endpoint and the keys into the environment, for the job and for all readers."""
    os.environ.update(
        AWS_ENDPOINT_URL=server.url,
        AWS_ACCESS_KEY_ID=server.access_key,
        AWS_SECRET_ACCESS_KEY=server.secret_key,
        AWS_REGION="us-east-1",
    )
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        os.environ.pop(name, None)


def run_demo(room: Room) -> int:
    """Runs all three steps. Returns the exit code."""
    started = time.monotonic()
    flights = load_flights()
    flights = flights.filter(pc.less_equal(flights["month"], MONTHS))
    source = summarize("source", flights)
    days = write_daily_files(flights, room.source)
    batches = -(-days // FILES_PER_BATCH)
    print(f"{flights.num_rows:,} flights in {days} daily files, {FILES_PER_BATCH} per micro-batch.")
    with s3_moto.start(room.folder) as server:
        name_the_store(server)
        print(f"The table is {room.table}\nin a bucket of {server.url}.")
        PaimonTable.create(room.table, **TABLE)
        runs = stream_through_kills(room, batches, KILLED)
        print_runs(runs)
        table = PaimonTable.load(room.table)
        found = [snapshot.commit_identifier for snapshot in table.snapshots()]
        if found != list(range(batches)):
            raise DemoFailed(
                f"The snapshots are of batches {found}, not of 0 to {batches - 1}, each once."
            )
        readers = [
            *independent_readers(room, room.table),
            summarize("paimon_stream", table.to_arrow()),
        ]
        agreed = print_agreement(source, readers, SUMMED)
        healthy = table.verify().healthy
    print(
        f"\nThe demo took {time.monotonic() - started:.0f} s. The bucket is gone with its server."
    )
    if not (agreed and healthy):
        print("FAILED: the table does not hold what the source holds.")
        return 1
    print(
        f"OK: {source.rows:,} rows in the source and in the bucket, after {len(KILLED)} kills. Every"
    )
    print("day's checksum is equal: each row exactly once.")
    return 0


if __name__ == "__main__":
    sys.exit(run_and_report(BucketRoom(new_room("s3").folder, "flights"), run_demo))
