"""A small batch beside pypaimon and Java Paimon, on the same server: a section of
`benchmarks/stores.py`.

Each system writes one data file of 100 rows and commits it, again and again, to an append table of
its own. The systems take turns, first without and then with the delay. Requests are those of the
batch with the median number of them. Each keeps its writer and its committer from batch to batch,
as a stream does. pypaimon runs in a Python of its own and times itself. Java runs in a JVM with
both compilers and is timed from here, so each of its batches includes some calls by py4j, of about
a millisecond together.

"ours, stream" is what the sink does with a batch, judgement and journal included; the judgement
counts as part of the commit. "ours, new_commit" is `PaimonTable.new_commit`, which does what the
others do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.write.task import WriteSpec, write_task

ROOT = Path(__file__).resolve().parent.parent
PYPAIMON = ROOT / ".venv-readers" / "bin" / "python"
ROWS, WARM = 100, 3
SETTLED = 0.15
"""Seconds to wait for requests that a system sends after its commit has returned."""

Run: TypeAlias = Callable[[int], tuple[float, float]]
"""Writes and commits batch n. Returns the seconds of both together, and those of the commit
alone.
"""

CHILD = """
import json, os, sys, time
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import pyarrow as pa
from pypaimon import CatalogFactory
options, name, rows = json.loads(sys.argv[1])
builder = CatalogFactory.create(options).get_table(name).new_stream_write_builder()
write, commit = builder.new_write(), builder.new_commit()
data = pa.table({"id": pa.array(range(rows), pa.int64()), "name": ["x" * 20] * rows})
for line in sys.stdin:
    began = time.perf_counter()
    write.write_arrow(data)
    messages = write.prepare_commit(int(line))
    written = time.perf_counter()
    commit.commit(messages, int(line))
    done = time.perf_counter()
    print(json.dumps([done - began, done - written]), file=out, flush=True)
"""


def peers(place: Any) -> None:
    """A small batch by each system, in turns."""
    print(
        f"\npeers: {place.batches} batches of one file of {ROWS} rows, ms; x is the ratio to new_commit"
    )
    print(
        f"{'':<17}{'no delay':^15} {f'{place.delay * 1000:.0f} ms a request':^20}{'commit alone':^17}"
    )
    print(
        f"{'':<17}{'min':>5}{'p50':>5}{'max':>5} {'min':>5}{'p50':>5}{'max':>5}{'x':>5}{'p50':>11}{'x':>5}"
    )
    with _systems(place) as systems:
        took: dict[str, dict[float, list[Any]]] = {name: {} for name in systems}
        for number in range(WARM):
            for run in systems.values():
                run(number)
        for at, delay in enumerate((0.0, place.delay)):
            for number in range(WARM + at * place.batches, WARM + (at + 1) * place.batches):
                for name, run in systems.items():
                    with place.delayed(delay):
                        spent = run(number)
                        time.sleep(SETTLED)
                        took[name].setdefault(delay, []).append((*spent, place.kinds()))
    ours = took["ours, new_commit"][place.delay]
    for name, by_delay in took.items():
        _show(place, name, by_delay[0.0], by_delay[place.delay], ours)


def _show(place: Any, name: str, plain: list[Any], slow: list[Any], ours: list[Any]) -> None:
    quick, whole, alone = _spread(plain, 0), _spread(slow, 0), _spread(slow, 1)
    ratios = whole[1] / _spread(ours, 0)[1], alone[1] / _spread(ours, 1)[1]
    kinds = dict(
        sorted(sorted((one[2] for one in slow), key=Counter.total)[len(slow) // 2].items())
    )
    quick_text, whole_text = (
        "".join(f"{one * 1000:>5.0f}" for one in some) for some in (quick, whole)
    )
    print(
        f"{name:<17}{quick_text} {whole_text}{ratios[0]:>5.1f}{alone[1] * 1000:>11.0f}{ratios[1]:>5.1f}"
    )
    print(f"  {sum(kinds.values())} requests: {kinds}", flush=True)
    keys = ("no delay", "delayed", "commit alone", "ratios", "requests")
    place.figures[f"peers: {name}"] = dict(
        zip(keys, (quick, whole, alone, ratios, kinds), strict=True)
    )


def _spread(batches: list[Any], which: int) -> tuple[float, float, float]:
    seconds = [one[which] for one in batches]
    return min(seconds), statistics.median(seconds), max(seconds)


@contextmanager
def _systems(place: Any) -> Iterator[dict[str, Run]]:
    """The systems, each with a table of its own."""
    sys.path.insert(0, str(ROOT / "tests" / "oracle"))
    import java_paimon

    given = place.server.options(place.proxy)
    mine = {"warehouse": "s3://bucket/wh", "s3.region": "us-east-1", **given}
    command = [
        PYPAIMON,
        "-c",
        CHILD,
        json.dumps([mine, f"db.{_table(place)[0].rsplit('/', 1)[1]}", ROWS]),
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        java_paimon.JavaPaimonOnS3(given, quick_start=False) as java,
        subprocess.Popen(command, text=True, **pipes) as child,
    ):
        yield {
            "ours, stream": stream_run(_table(place)[1]),
            "ours, new_commit": commit_run(_table(place)[1]),
            "pypaimon 2.1": partial(_other, child),
            f"Java {java_paimon.PAIMON_VERSION}": java_run(java, _table(place)[0]),
        }


def _other(child: subprocess.Popen[str], number: int) -> Any:
    assert child.stdin is not None and child.stdout is not None
    print(number, file=child.stdin, flush=True)
    return json.loads(child.stdout.readline())


def _table(place: Any) -> tuple[str, PaimonTable]:
    return new_table(*place.server.place(place.proxy))


def new_table(location: str, options: dict[str, str]) -> tuple[str, PaimonTable]:
    """A new table: its location, and the table."""
    columns = [("id", "BIGINT"), ("name", "STRING")]
    return location, PaimonTable.create(location, schema=columns, storage_options=options)


def _timed(
    write: Callable[[int], Any], commit: Callable[[int, Any], Any], number: int
) -> tuple[float, float]:
    began = time.perf_counter()
    messages = write(number)
    written = time.perf_counter()
    commit(number, messages)
    done = time.perf_counter()
    return done - began, done - written


def _file(table: PaimonTable, _number: int) -> Any:
    inner = table._table
    spec = WriteSpec(storage=inner.storage, schema=inner.schema, options=inner.options)
    return write_task(
        spec, pa.table({"id": range(ROWS), "name": ["x" * 20] * ROWS}).to_batches()
    ).messages


def commit_run(table: PaimonTable) -> Run:
    """What runs a batch by `PaimonTable.new_commit`."""
    return partial(_timed, partial(_file, table), table.new_commit("bench").commit)


def stream_run(table: PaimonTable) -> Run:
    """What runs a batch as the sink does."""
    identity = WriterIdentity(
        user="bench", query_id="q", run_id="r", checkpoint="/ck", token="sink"
    )
    writer = StreamWriter(storage=table._table.storage, identity=identity, options={})

    def commit(number: int, messages: Any) -> None:
        batch = Batch(batch_id=number, offsets_hash=str(number))
        settled = writer.write(batch, Rows(write=lambda judged: judged.written(messages)))
        assert settled.report.outcome == "committed"

    return partial(_timed, partial(_file, table), commit)


def java_run(java: Any, location: str) -> Run:
    """What runs a batch by Java."""
    table = java.table(location)
    rows, type_ = json.dumps([[one, "x" * 20] for one in range(ROWS)]), table.rowType()
    writer, committer = (
        table.newWrite("bench").withIOManager(java._io_manager()),
        table.newCommit("bench"),
    )

    def write(number: int) -> Any:
        java._bridge.writeRows(writer, type_, rows, None)
        return writer.prepareCommit(True, number)

    return partial(_timed, write, committer.commit)
