"""The demo: a job streams a year of flights into a Paimon table through `kill -9`. Others check the
table.

1. The 336,776 flights of 2013 become 365 daily files. A stream reads them in 41 micro-batches.
2. The job that streams them is a process of its own. It and its JVM are killed with SIGKILL at four
   moments at which other sinks lose or duplicate rows. Each time the job is started again.
3. pypaimon and Java Paimon read the table. The row count, the sums and a checksum of each day must
   equal those of the source.
4. A naive sink and PaimonSink go through the same crash, side by side.

Run it with `make demo`. Each run works in a new folder under `demo-data/` and leaves it there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from flights_check import NOT_HERE, SUMMED, Summary, summarize
from flights_data import TABLE, load_flights, write_daily_files
from flights_stream import FILES_PER_BATCH
from tqdm import tqdm

from paimon_stream import PaimonTable

HERE = Path(__file__).parent
HOME = HERE.parent
READERS_PYTHON = HOME / ".venv-readers" / "bin" / "python"
DAYS_FOR_NAIVE = 4


@dataclass(frozen=True)
class Kill:
    """One SIGKILL: the phase and the batch at which it comes, and what has happened by then."""

    phase: str
    batch: int
    meaning: str


KILLS = (
    Kill("JOURNALED", 7, "files written, nothing committed"),
    Kill("PUBLISHED", 15, "snapshot published, not acknowledged"),
    Kill("STAGED", 23, "commit prepared, snapshot not published"),
    Kill("FINISHED", 31, "sink returned, Spark has not noted it"),
)


@dataclass
class Run:
    """One run of the streaming process, as it reported."""

    kill: Kill | None
    batches: list[dict[str, Any]] = field(default_factory=list)

    @property
    def first(self) -> str:
        """The outcome of the run's first batch. After a kill, that is the interrupted batch."""
        if not self.batches or self.batches[0]["batch"] == 0:
            return ""
        first = self.batches[0]
        if first["outcome"] == "already committed":
            return f"batch {first['batch']} was in the table: skipped"
        if first["reused"]:
            return f"batch {first['batch']}: {first['files']} prepared files committed"
        return f"batch {first['batch']} written again"


@dataclass(frozen=True)
class Room:
    """The folders and files of one run of the demo."""

    folder: Path
    name: str = "flights"

    @property
    def source(self) -> Path:
        """The daily files."""
        return self.folder / "daily"

    @property
    def table(self) -> Path | str:
        """The table: `<warehouse>/<database>.db/<table>`."""
        return self.folder / "warehouse" / "demo.db" / self.name

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return HOME / "checkpoints" / self.folder.name

    @property
    def log(self) -> Path:
        """The file for the output of Spark and the readers."""
        return self.folder / "log.txt"


class DemoFailed(Exception):
    """A step of the demo did not give the promised result."""


def new_room(name: str = "flights") -> Room:
    """A new folder, named after the time."""
    folder = HOME / "demo-data" / time.strftime(f"{name}-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    return Room(folder, name)


def python(
    room: Room, script: str, *arguments: str, interpreter: str = sys.executable
) -> Iterator[Any]:
    """Runs one of the scripts beside this one and yields its reports, line by line. The last item
    is its exit code.
    """
    command = [interpreter, str(HERE / script), *arguments]
    with room.log.open("a") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=room.folder
        )
        assert process.stdout
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        yield process.wait()


def stream_through_kills(
    room: Room, total: int, kills: Sequence[Kill] = KILLS, script: str = "flights_stream.py"
) -> list[Run]:
    """Starts the streaming process again after each kill, until it has read the whole stream."""
    runs = []
    pace = 0.2 if sys.stdout.isatty() else 10.0
    with tqdm(total=total, unit="batch", file=sys.stdout, ncols=80, mininterval=pace) as bar:
        for kill in (*kills, None):
            run = Run(kill)
            runs.append(run)
            task = {
                "source": str(room.source),
                "table": str(room.table),
                "checkpoint": str(room.checkpoint),
                "kill": None if kill is None else (kill.phase, kill.batch),
            }
            code = None
            for event in python(room, script, json.dumps(task)):
                if isinstance(event, int):
                    code = event
                elif "batch" in event:
                    run.batches.append(event)
                    bar.update()
            if code != (0 if kill is None else -signal.SIGKILL):
                raise DemoFailed(
                    f"The streaming process ended with the unexpected exit code {code}."
                )
            if kill is not None:
                bar.write(
                    f"  kill -9 in batch {kill.batch:>2}, after {kill.phase:<9} ({kill.meaning})"
                )
    return runs


def print_what_happened(room: Room, runs: list[Run], seconds: float) -> None:
    """Prints a short table of the runs, and the totals."""
    print("\nrun  batches  first batch                              end")
    for number, run in enumerate(runs, 1):
        end = f"killed in batch {run.kill.batch}, {run.kill.phase}" if run.kill else "done"
        print(f"{number:>3}  {len(run.batches):>7}  {run.first or 'batch 0':<40} {end}")
    events = [event for run in runs for event in run.batches]
    reused = [event for event in events if event["reused"]]
    skipped = [event for event in events if event["outcome"] == "already committed"]
    snapshots = PaimonTable.load(str(room.table)).snapshots()
    kills = sum(run.kill is not None for run in runs)
    print(
        f"\nbatches {len(events)} · snapshots {len(snapshots)} · kills {kills} · replays skipped"
        f" {len(skipped)} · prepared files reused {sum(event['files'] for event in reused)}"
        f" (of {len(reused)} batches) · {seconds:.0f} s"
    )


def print_runs(runs: list[Run]) -> None:
    """Prints what each run of the job did first, and how it ended, in 80 columns."""
    print("\nrun  batches  first batch                            end")
    for number, run in enumerate(runs, 1):
        end = f"killed after {run.kill.phase}" if run.kill else "done"
        print(f"{number:>3}  {len(run.batches):>7}  {run.first or 'batch 0':<37}  {end}")


def independent_readers(
    room: Room, table: Path | str, script: str = "flights_check.py"
) -> list[Summary]:
    """What pypaimon and Java Paimon find in the table. Prints the name of a reader that is not
    installed.
    """
    found = []
    readers = {"pypaimon": str(READERS_PYTHON), "java": sys.executable}
    for reader, interpreter in readers.items():
        if not Path(interpreter).exists():
            print(f"{reader} is not installed: make demo installs it")
            continue
        *events, code = python(room, script, reader, str(table), interpreter=interpreter)
        if code == 0:
            found.append(Summary(**events[-1]))
        elif (
            reader == "java" and code == NOT_HERE and os.environ.get("PAIMON_REQUIRE_ORACLE") != "1"
        ):
            print("Java Paimon is not installed (no jar, or no Java): it does not check this table")
        else:
            raise DemoFailed(f"{reader} could not read {table}.")
    if not found:
        raise DemoFailed("No independent reader is installed.")
    return found


def print_agreement(
    source: Summary, readers: list[Summary], summed: Sequence[str] = SUMMED
) -> bool:
    """Prints the source and the readers in a table. Returns whether they all agree."""
    print(
        f"\n{'':<20}{'rows':>10}"
        + "".join(f"{'sum ' + name:>17}" for name in summed)
        + "   equal days"
    )
    for one in (source, *readers):
        equal = sum(source.days.get(day) == sum_ for day, sum_ in one.days.items())
        sums = "".join(f"{one.sums[name]:>17,}" for name in summed)
        print(f"{one.reader:<20}{one.rows:>10,}{sums}   {equal} of {len(source.days)}")
    return all(
        (one.rows, one.sums, one.days) == (source.rows, source.sums, source.days) for one in readers
    )


def compare_with_naive(room: Room) -> bool:
    """Takes a naive sink and ours through the same crash. Returns whether our table holds each row
    once.
    """
    few = room.folder / "few-days"
    few.mkdir()
    for path in sorted(room.source.iterdir())[:DAYS_FOR_NAIVE]:
        shutil.copy2(path, few)
    rows = sum(pq.read_metadata(path).num_rows for path in few.iterdir())
    checkpoints = room.checkpoint.parent
    *events, code = python(room, "flights_naive.py", str(few), str(room.folder), str(checkpoints))
    if code != 0:
        raise DemoFailed("The comparison with a naive sink failed.")
    ours = independent_readers(room, Path(events[-1]["ours"]))
    print(
        f"\nThe same crash with two sinks: {DAYS_FOR_NAIVE} daily files, one per batch; then the newest entry"
        f"\nof Spark's commit log is removed, as if the driver had died before writing it, and the query is"
        f"\nstarted again: Spark runs batch {events[-1]['replayed']} a second time."
        f"\n  source                                        {rows:>6,} rows"
        f"\n  df.write.mode('append') in foreachBatch       {events[-1]['naive']:>6,} rows"
        f" ({events[-1]['naive'] - rows:+,}: the batch was written twice)"
    )
    for one in ours:
        print(f"  PaimonSink, read by {one.reader:<26}{one.rows:>6,} rows ({one.rows - rows:+,})")
    return events[-1]["naive"] > rows and all(one.rows == rows for one in ours)


def run_and_report(room: Room, run: Callable[[Room], int]) -> int:
    """Runs a demo and reports a failure. Returns the exit code, 0 if everything was as promised."""
    sys.stdout.reconfigure(line_buffering=True)
    try:
        return run(room)
    except DemoFailed as failed:
        print(f"{failed} The last lines of {room.log}:", file=sys.stderr)
        print("\n".join(room.log.read_text().splitlines()[-30:]), file=sys.stderr)
        return 1


def run_demo(room: Room) -> int:
    """Runs all four steps. Returns the exit code."""
    started = time.monotonic()
    flights = load_flights()
    source = summarize("source", flights)
    days = write_daily_files(flights, room.source)
    batches = -(-days // FILES_PER_BATCH)
    print(
        f"{flights.num_rows:,} flights of 2013 in {days} daily files, {FILES_PER_BATCH} per micro-batch."
    )
    PaimonTable.create(str(room.table), **TABLE)
    runs = stream_through_kills(room, batches)
    print_what_happened(room, runs, time.monotonic() - started)
    agreed = print_agreement(source, independent_readers(room, room.table))
    ours_holds = compare_with_naive(room)
    print(f"\nThe table stays at {room.table}")
    print(f"The demo took {time.monotonic() - started:.0f} s.")
    if not (agreed and ours_holds):
        print("FAILED: the table does not hold what the source holds.")
        return 1
    print(
        f"OK: {source.rows:,} rows in the source, {source.rows:,} in the table after {len(KILLS)} kills,"
        f" every day's checksum equal: each row exactly once."
    )
    return 0


if __name__ == "__main__":
    sys.exit(run_and_report(new_room(), run_demo))
