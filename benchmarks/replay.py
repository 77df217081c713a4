"""The time to run a batch again, with and without the files that its first run prepared.

    python benchmarks/replay.py [--rows 200000] [--rounds 5] [--json FILE]

A stream of 3 batches is killed (SIGKILL) in its last batch, after the files were written and before
they were committed. The state that it leaves is kept and restored for each round. Then the query is
started again, in a process that has run such streams before. `reused`: the files are checked and
committed. `written again`: the same with `paimon-stream.journal.reuse=false`. For comparison, the
last batch of a stream that is not killed. Rounds alternate, figures are medians, and the table is
read after each round.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from peers.child import session_of  # noqa: E402
from peers.data import expected, make_data, sums_of  # noqa: E402
from peers.loads import DDL, LOADS, load_from  # noqa: E402
from peers.machine import machine, today  # noqa: E402
from peers.processes import cpu_seconds, kill_session  # noqa: E402
from peers.systems import Ours  # noqa: E402

from paimon_stream import PaimonSink, PaimonTable  # noqa: E402
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, Phase  # noqa: E402

_LAST = 2
_LIMIT = 300


@dataclass(frozen=True)
class KillAtLast:
    """Kills the whole process group when the last batch has noted its files in the journal."""

    def reached(self, phase: Phase, identifier: int) -> None:
        """Kills the process group at that point."""
        if (phase, identifier) == (Phase.JOURNALED, _LAST):
            os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given, *given.child)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="bench-replay-", ignore_cleanup_errors=True) as folder:
        load = replace(LOADS["L1"], batches=_LAST + 1, warm_up=0, rows_per_batch=given.rows)
        source = make_data(load, Path(folder) / "data")
        (Path(folder) / "order.json").write_text(
            json.dumps({"load": load.as_json(), "source": str(source)})
        )
        print("running a stream until it is killed", flush=True)
        done = in_process(given, "kill", folder)
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
        print("running the killed batch again", flush=True)
        done = in_process(given, "replay", folder)
        assert done.returncode == 0, done.stderr[-3000:]
        show(json.loads(done.stdout.splitlines()[-1]), given)


def in_process(
    given: argparse.Namespace, what: str, folder: str
) -> subprocess.CompletedProcess[str]:
    """Runs this script as a child that leads a session, and ends all processes left in the
    session.
    """
    command = [sys.executable, __file__, "--rows", str(given.rows), "--rounds", str(given.rounds)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")]),
        "PYSPARK_PYTHON": sys.executable,
    }
    process = subprocess.Popen(
        [*command, "--child", what, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=_LIMIT)
    finally:
        kill_session(process.pid)
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def child(given: argparse.Namespace, what: str, text: str) -> None:
    """Runs one of the two child processes."""
    folder = Path(text)
    order = json.loads((folder / "order.json").read_text())
    load, source = load_from(order["load"]), Path(order["source"])
    system = Ours(folder / "warehouse", {})
    spark = session_of(system, folder / what, "2g", [])

    def stream(options: dict[str, str], observer: BatchObserver) -> dict[str, Any]:
        """Runs the query until all files are read."""
        rows = (
            spark.readStream.schema(DDL)
            .option("maxFilesPerTrigger", load.files_per_batch)
            .parquet(str(source))
        )
        sink = PaimonSink(str(system.location("t")), options=options, observer=observer)
        cpu = cpu_seconds(os.getsid(0))
        query = sink.start(
            rows, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True}
        )
        query.awaitTermination()
        cpu = cpu_seconds(os.getsid(0)) - cpu
        table = PaimonTable.load(str(system.location("t")))
        assert sums_of(table.to_arrow(columns=["id", "quantity", "amount"])) == expected(source)
        report = sink.last_report
        assert report is not None
        times = [one["durationMs"]["addBatch"] for one in map(_plain, query.recentProgress)]
        return {"ms": times[-1], "cpu": cpu, "reused": report.reused, "batches": len(times)}

    if what == "kill":
        system.create(spark, "t", load)
        stream({}, KillAtLast())
        raise AssertionError("the stream was not killed")
    found: dict[str, list[dict[str, Any]]] = {"whole": [], "reused": [], "again": []}
    for number in range(given.rounds + 1):
        for how, answers in found.items():
            restore(folder, killed=how != "whole")
            if how == "whole":
                system.create(spark, "t", load)
            off = {"paimon-stream.journal.reuse": "false"} if how == "again" else {}
            answer = stream(off, NO_OBSERVER)
            assert how == "whole" or answer["reused"] == (how == "reused"), (how, answer)
            answers += [answer] if number else []
    print(json.dumps(found))


def restore(folder: Path, killed: bool) -> None:
    """Restores the files that the killed process left, or, without `killed`, removes them."""
    kept = folder / "kept"
    for name in ("warehouse", "checkpoint"):
        if not (kept / name).exists():
            kept.mkdir(exist_ok=True)
            shutil.copytree(folder / name, kept / name)
        shutil.rmtree(folder / name, ignore_errors=True)
        if killed:
            shutil.copytree(kept / name, folder / name)


def _plain(progress: Any) -> dict[str, Any]:
    found: dict[str, Any] = progress if isinstance(progress, dict) else json.loads(progress.json)
    return found


def show(found: dict[str, list[dict[str, Any]]], given: argparse.Namespace) -> None:
    """Prints the medians as a table, and writes them as JSON."""

    def middle(how: str, name: str) -> float:
        return float(statistics.median(one[name] for one in found[how]))

    whole, reused, again = (middle(how, "ms") for how in ("whole", "reused", "again"))
    print(f"\na batch of {given.rows:,} rows, medians of {given.rounds}")
    print(f"{'run for the first time, ms':<40}{whole:>8,.0f}")
    print(
        f"{'run again, files reused, ms':<40}{reused:>8,.0f}{middle('reused', 'cpu'):>8.2f} CPU s"
    )
    print(f"{'run again, written again, ms':<40}{again:>8,.0f}{middle('again', 'cpu'):>8.2f} CPU s")
    print(f"{'reused / written again':<40}{reused / again:>8.2f}")
    if given.json is None:
        return
    rows = [
        {"name": name, "unit": unit, "systems": {"ours": value}, "note": note}
        for name, unit, value, note in (
            ("a batch run for the first time", "ms", whole, ""),
            ("run again, its files reused", "ms", reused, f"{reused / again:.2f} × written again"),
            ("run again, written again", "ms", again, "`paimon-stream.journal.reuse=false`"),
            ("CPU of a query that runs it again, reused", "s", middle("reused", "cpu"), ""),
            ("CPU of a query that runs it again, written again", "s", middle("again", "cpu"), ""),
        )
    ]
    result = {
        "kind": "rows",
        "section": "replay",
        "title": f"A batch of {given.rows:,} rows, killed between its files and its commit",
        "date": today(),
        "machine": machine(),
        "note": f"Medians of {given.rounds} rounds in a warm process; the time is of Spark's `addBatch`.",
        "rows": rows,
    }
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
