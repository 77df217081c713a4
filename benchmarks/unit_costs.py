"""The unit costs from which docs/scale.md is computed.

    python benchmarks/unit_costs.py --results build/shapes.jsonl > benchmarks/unit-costs.txt

CPU seconds and memory are those that `benchmarks/shapes.py` has measured. Requests are counted on a
storage in memory, which counts as an object store does. So they do not depend on the machine.

A line has a kind and then its values, with tabs between them:

- `step`: axis, step, size, CPU seconds, and the peak of memory in MiB.
- `requests`: what was done, how often, trips, and the requests by kind.
- `seconds`: what was done, how often, and the CPU seconds of all together.
- `bytes`: what has them, of how many files, and the bytes.
- `measured`, `version`, `machine`: when, with what, and on what.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from many_files import BUCKETS, TYPES, file_of  # noqa: E402
from shapes import AXES, least, read, unsynced  # noqa: E402

from paimon_stream.api.table import PaimonTable  # noqa: E402
from paimon_stream.format.binary_row import serialize  # noqa: E402
from paimon_stream.format.commit_message import CommitMessage  # noqa: E402
from paimon_stream.maintenance.expire import expire_snapshots  # noqa: E402
from paimon_stream.storage.uri import open_folder  # noqa: E402
from paimon_stream.stream.verdicts import Batch  # noqa: E402
from paimon_stream.table.manifests import ManifestStore  # noqa: E402
from paimon_stream.table.snapshots import SnapshotStore  # noqa: E402
from tests.kits import steps  # noqa: E402
from tests.kits.commits import Bench  # noqa: E402
from tests.kits.streams import Stream  # noqa: E402
from tests.kits.trips import Trips, TripStorage  # noqa: E402

KINDS = ("GET", "HEAD", "PUT", "LIST", "DELETE")
SNAPSHOTS = (100, 300)
"""Below how many snapshots a run begins, and how many expire."""
BATCHES = 300
"""The batches whose CPU is measured."""
ROUNDS = 5
"""How often. The least counts, because other work on the machine only adds to it."""
FILES = 10_000
"""The files of the table whose manifests are weighed."""


def main() -> None:
    """Prints the unit costs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--results", type=Path, default=Path("build/shapes.jsonl"))
    rows = read(parser.parse_args().results)
    print("# Unit costs: python benchmarks/unit_costs.py > benchmarks/unit-costs.txt")
    for line in (*circumstances(rows), *costs_of_steps(rows)):
        print(*line, sep="\t")
    line_of("a steady batch", 1, steady_batch())
    for snapshots in SNAPSHOTS:
        line_of("the first batch of a run", snapshots, first_batch(snapshots))
    for snapshots in SNAPSHOTS:
        line_of("expiry", snapshots, expiry(snapshots))
    print("seconds", "a steady batch", BATCHES, seconds_of_batches(), sep="\t")
    print("bytes", "live manifests", FILES, bytes_of_manifests(), sep="\t")


def circumstances(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """When the steps were measured, with which versions, and on what machine."""
    ends = [row for row in rows if "date" in row]
    versions = sorted({pair for row in ends for pair in row["with"].items()})
    return [
        *(("measured", day) for day in sorted({row["date"] for row in ends})),
        *(("version", name, version) for name, version in versions),
        ("machine", os.cpu_count(), f"{platform.system()} {platform.machine()}"),
    ]


def costs_of_steps(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """What each step of this package cost at each size, by axes and sizes."""
    measured = [row for row in least(rows) if "cpu" in row and "memory" in row]
    measured.sort(key=lambda row: (list(AXES).index(row["axis"]), row["size"]))
    return [
        ("step", row["axis"], row["step"], row["size"], row["cpu"], row["memory"])
        for row in measured
        if row["step"] != "Arrow's append"
    ]


def line_of(what: str, count: int, sent: Trips) -> None:
    """Prints what was sent."""
    kinds = (f"{kind}={sent.kinds[kind]}" for kind in KINDS)
    print("requests", what, count, sent.trips, *kinds, sep="\t")


def steady_batch() -> Trips:
    """A batch of a stream that goes on. The tests' kit writes its data file, so that is not
    counted.
    """
    stream = Stream(Bench())
    storage = TripStorage(stream.bench.storage)
    stream.start(storage=storage)
    stream.batches(5)
    with storage.counted() as sent:
        stream.batch()
    return sent


def seconds_of_batches() -> float:
    """CPU seconds of a stream's batches on a disk, with journal and judgement, without rows: the
    kit writes a data file of four bytes for each.
    """
    rounds = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="unit-costs-") as folder:
            stream = Stream(Bench(storage=open_folder(f"{folder}/db.db/t")))
            stream.batches(20)
            before = time.process_time()
            stream.batches(BATCHES)
            rounds.append(time.process_time() - before)
    return round(min(rounds), 4)


def first_batch(snapshots: int) -> Trips:
    """The judgement of the first batch of a new stream below snapshots of another one."""
    bench = Bench()
    Stream(bench, user="other", query_id="q2", checkpoint="/ck/other").batches(snapshots)
    storage = TripStorage(bench.storage)
    stream = Stream(bench)
    stream.start(storage=storage)
    assert stream.writer is not None
    with storage.counted() as sent:
        steps.judge(stream.writer, Batch(batch_id=0, offsets_hash="0"))
    return sent


def expiry(snapshots: int) -> Trips:
    """An expiry that removes a number of snapshots at once. None of them has replaced a data file."""
    bench = Bench(options={"write-only": "true"})
    Stream(bench).batches(snapshots + 1)
    bench.clock.advance(2 * 24 * 3600 * 1000)
    storage = TripStorage(bench.storage)
    with storage.counted() as sent:
        report = expire_snapshots(
            bench.on(storage),
            retain_max=1,
            retain_min=1,
            max_deletes=snapshots,
            protect_streams=False,
            runtime=bench.runtime,
        )
    assert len(report.snapshots) == snapshots
    return sent


def bytes_of_manifests() -> int:
    """The bytes of the manifests of a table, whose files have names as a writer gives them."""
    names = [f"data-{uuid.uuid4()}-0.parquet" for _ in range(FILES)]
    files = tuple(file_of(name, number) for number, name in enumerate(names))
    message = CommitMessage(
        partition=serialize([TYPES[2]], ["p0"]), bucket=0, total_buckets=BUCKETS, new_files=files
    )
    with tempfile.TemporaryDirectory(prefix="unit-costs-") as folder, unsynced():
        table = PaimonTable.create(
            f"{folder}/db.db/t",
            schema=[("id", "BIGINT"), ("name", "STRING"), ("dt", "STRING")],
            partition_keys=["dt"],
            options={"bucket": str(BUCKETS), "bucket-key": "id"},
        )
        table.new_commit("benchmark").commit(0, [message])
        storage = table._table.storage
        latest = SnapshotStore(storage).latest()
        assert latest is not None
        metas = ManifestStore(storage).base_and_delta(latest)
        return sum(meta.file_size for meta in metas)


if __name__ == "__main__":
    main()
