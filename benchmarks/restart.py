"""What the first batch of a restarted stream costs on a table of 100,000 snapshots and a million files.

    python benchmarks/restart.py
    python benchmarks/restart.py --snapshots 10000 --files 100000 --kind keyed
    python benchmarks/restart.py --json restart.json

One snapshot in a hundred is a commit, which has the files of all hundred. The other 99 are copies of it
under the next ids: no batch reads the manifests of an old snapshot, but listings have the names, and
searches read the files. The data files themselves are left out. Nothing is synced while the table is
made; batches sync as always. Each round is a new process, which runs two batches of one new file each.
The time of its imports does not count.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from growth import FIELDS, PARTITIONS, TYPES, Counting, identity_of, message

from paimon_stream.commit.committer import CommitRequest, Committer
from paimon_stream.commit.request import Published
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.snapshot_json import Snapshot, SnapshotId, SnapshotRef, encode_snapshot
from paimon_stream.format.types import parse_type
from paimon_stream.runtime import system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch
from paimon_stream.stream.verdicts import Batch, Reuse
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, create_table

USER = "bench"
EACH = 100
"""How many snapshots a commit stands for."""

KINDS = ("append", "keyed")
GOAL = "≤ 1000 ms"
Times = dict[str, float]


def new_table(storage: LocalStorage, kind: str) -> Table:
    """An empty table that keeps its snapshots."""
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1000000"}
    is_keyed = kind == "keyed"
    key = replace(FIELDS[0], type=parse_type("BIGINT NOT NULL"))
    table = create_table(
        storage,
        (key, *FIELDS[1:]) if is_keyed else FIELDS,
        partition_keys=("dt",),
        primary_keys=("id", "dt") if is_keyed else (),
        options=options | ({"bucket": "1", "write-only": "true"} if is_keyed else {}),
    )
    assert table is not None
    return table


def fill(table: Table, kind: str, snapshots: int, files: int) -> None:
    """Makes the snapshots and their files."""
    committer, marks, seen = Committer(table), identity_of(USER), None
    store = SnapshotStore(table.storage)
    for number in range(0, snapshots, EACH):
        made = one_message(number, files * EACH // snapshots, kind)
        request = CommitRequest(
            user=USER,
            identifier=number,
            messages=(made,),
            properties=marks.properties(number, None),
            seen=seen,
            stage_uuid=system().ids.uuid(),
        )
        outcome = committer.commit(request)
        assert isinstance(outcome, Published)
        last = outcome.snapshot
        for later in range(number + 1, min(number + EACH, snapshots)):
            last = copied(last, later, marks.properties(later, None))
            table.storage.put_if_absent(store.path(last.id), encode_snapshot(last))
        table.storage.write_hint(f"{store.folder}/LATEST", str(last.id).encode())
        committer, seen = Committer(table), SnapshotRef.of(last)


def copied(snapshot: Snapshot, number: int, marks: dict[str, str]) -> Snapshot:
    """The snapshot again, as that of the next batch."""
    return replace(
        snapshot,
        id=SnapshotId(snapshot.id + 1),
        commit_identifier=number,
        properties={**snapshot.properties, **marks},
    )


def one_message(number: int, files: int, kind: str) -> CommitMessage:
    """New files of one partition, which follow those of earlier numbers."""
    partition = serialize(TYPES[1:], [f"2024-{number % PARTITIONS:03d}"])
    made = message(number, files, partition)
    if kind != "keyed":
        return made
    low, high = (serialize(TYPES[:1], [key]) for key in (number, number + 1))
    keys = SimpleStats(min_values=low, max_values=high, null_counts=(0,))
    new_files = tuple(
        replace(file, min_key=low, max_key=high, key_stats=keys) for file in made.new_files
    )
    return replace(made, total_buckets=1, new_files=new_files)


def first_batches(location: str, kind: str) -> Times:
    """Runs two batches of a new run. Returns the milliseconds of each, and of the CPU."""
    storage = LocalStorage(location)
    latest = SnapshotStore(storage).latest()
    assert latest is not None
    times: Times = {}
    writer: StreamWriter | None = None
    for name, number in (("first batch", latest.id), ("second batch", latest.id + 1)):

        def written(judged: JudgedBatch, number: int = number) -> WrittenBatch:
            if isinstance(judged.verdict, Reuse):
                raise AssertionError("no earlier run has prepared this batch")
            return judged.written((one_message(number, 1, kind),))

        wall, cpu = time.perf_counter(), time.process_time()
        writer = writer or StreamWriter(
            storage=storage, identity=replace(identity_of(USER), token=USER), options={}
        )
        writer.write(Batch(batch_id=number), Rows(write=written))
        times[name] = 1000 * (time.perf_counter() - wall)
        times[f"CPU of the {name}"] = 1000 * (time.process_time() - cpu)
    return times


def in_new_process(location: str, kind: str) -> Times:
    """What `first_batches` returns there."""
    command = [sys.executable, __file__, "--kind", kind, "--measure", location]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    times: Times = json.loads(done.stdout)
    return times


def measured(kind: str, snapshots: int, files: int, rounds: int, folder: str) -> Times:
    """The medians of new processes on a table of that kind. The first process is dropped: it
    registers the stream.
    """
    location = f"{folder}/db.db/{kind}"
    fill(new_table(Counting(location), kind), kind, snapshots, files)
    all_times = [in_new_process(location, kind) for _ in range(rounds + 1)][1:]
    return {name: statistics.median(times[name] for times in all_times) for name in all_times[0]}


def main() -> None:
    """Makes the tables, and prints a column for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--snapshots", type=int, default=100_000, help="snapshots (100,000)")
    parser.add_argument("--files", type=int, default=1_000_000, help="live files (1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured processes (3)")
    parser.add_argument("--kind", choices=KINDS, help="measure one kind only")
    parser.add_argument("--folder", type=Path, help="where the tables are made")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--measure", metavar="LOCATION", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(first_batches(given.measure, given.kind)))
        return
    kinds = [given.kind] if given.kind else list(KINDS)
    folder = tempfile.mkdtemp(prefix="bench-restart-", dir=given.folder)
    try:
        found = {
            kind: measured(kind, given.snapshots, given.files, given.rounds, folder)
            for kind in kinds
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'milliseconds':24}" + "".join(f"{kind:>12}" for kind in kinds))
    for name in found[kinds[0]]:
        print(f"{name:24}" + "".join(f"{found[kind][name]:12.1f}" for kind in kinds))
    if given.json:
        given.json.write_text(
            json.dumps(rows(found, given.snapshots, given.files), indent=2) + "\n"
        )


def rows(found: dict[str, Times], snapshots: int, files: int) -> list[dict[str, object]]:
    """The rows for the page."""
    return [
        {
            "name": f"a restart on {snapshots:,} snapshots and {files:,} files, {kind}",
            "unit": "ms",
            "systems": {"ours": times},
            "goal": GOAL,
            "note": "",
        }
        for kind, times in found.items()
    ]


if __name__ == "__main__":
    main()
