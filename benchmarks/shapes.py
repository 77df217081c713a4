"""How the cost of each step grows with the shape of a table, one axis at a time.

    python benchmarks/shapes.py --results build/shapes.jsonl
    python benchmarks/shapes.py --results build/shapes.jsonl --axes columns,partitions,terms

Each size of an axis is measured in a fresh process: CPU seconds and the peak of memory, in MiB, of
each step. A measurement is a line of JSON in the results. What is there already is not measured
again, so a run that was stopped goes on where it was. With --rounds, each size is measured that
often, and the least CPU counts: other work on the machine only adds to it. At the end the exponent of growth over the
last decade of each axis is printed: 1 is linear. `benchmarks/unit_costs.py` makes the unit costs of
docs/scale.md from the results.

- Files of the axes `files` and `snapshots` hold no rows, so no step reads them.
- `expire` comes last: it takes 50 snapshots at most, of a small table most of them.
- Nothing is synced while a table is made. Steps sync as always.
- pypaimon reads the same tables before the first step, in a Python of its own (--pypaimon). Where it
  fails, its step is left out, and the reason is in the results.
- Of the axis `partitions`, Arrow also writes the rows of the step `append` into as many partitions,
  into new folders. It syncs nothing. Folders that were removed in the last seconds make new ones
  slower on ext4, so nothing is removed before the end.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial, reduce
from importlib import metadata
from itertools import islice
from operator import or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from many_files import make_table, most_memory

from paimon_stream.api.table import PaimonTable
from paimon_stream.read.scan import plan_scan

HERE = Path(__file__).resolve().parent
AXES = {
    "columns": [10, 100, 500, 1_000, 2_000, 5_000],
    "partitions": [1, 10, 100, 1_000, 2_000, 5_000, 10_000],
    "terms": [1, 10, 100, 1_000],
    "buckets": [1, 10, 100, 1_000],
    "row-kilobytes": [1, 10, 100, 1_000, 10_000],
    "nesting": [1, 5, 10, 25, 50],
    "streams": [1, 5, 10, 25, 50, 500],
    "files": [1, 10, 100, 1_000, 10_000, 100_000],
    "snapshots": [1, 10, 100, 1_000, 10_000, 100_000],
}
WITHOUT_ROWS = ("files", "snapshots")
LONGEST_SECONDS = 900
"""After this, a process that measures is given up, and the larger sizes of its axis with it."""
PYPAIMON = """
import json, sys, time
from pypaimon import CatalogFactory
table = CatalogFactory.create({"warehouse": sys.argv[1]}).get_table("db.t")
builder = table.new_read_builder()
began = time.process_time()
splits = builder.new_scan().plan().splits()
planned = time.process_time()
builder.new_read().to_arrow(splits)
print(json.dumps({"plan": planned - began, "read": time.process_time() - planned}))
"""

Row = dict[str, Any]


@dataclass
class Shape:
    """A table that is made, and what is done with it.

    Attributes:
        rows: what an append adds.
        schema: the columns.
        made: how often the rows are appended before the steps.
        options: the table's.
        partition_keys: the table's.
        where: the condition of the step `filter`.
        streams: how many commit users commit in turn.
    """

    rows: pa.Table
    schema: list[tuple[str, str]]
    made: int = 4
    options: dict[str, str] = field(default_factory=dict)
    partition_keys: list[str] = field(default_factory=list)
    where: pc.Expression = field(default_factory=lambda: pc.field("id") == 3)
    streams: int = 1


def main() -> None:
    """Measures what is missing, and prints the exponents."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--results", type=Path, default=Path("build/shapes.jsonl"))
    parser.add_argument("--axes", default=",".join(AXES), help="separated by commas")
    parser.add_argument("--largest", type=int, default=10**9, help="the largest size")
    parser.add_argument("--smallest", type=int, default=0, help="the smallest size")
    parser.add_argument("--rounds", type=int, default=1, help="how often a size is measured")
    parser.add_argument("--pypaimon", type=Path, default=HERE.parent / ".venv-readers/bin/python")
    parser.add_argument("--measure", nargs=2, metavar=("AXIS", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure[0], int(given.measure[1]), given.pypaimon)
        return
    given.results.parent.mkdir(parents=True, exist_ok=True)
    for axis in given.axes.split(","):
        for size in AXES[axis]:
            rounds = given.rounds if given.smallest <= size <= given.largest else 0
            while ended(given.results, axis, size) < rounds:
                in_fresh_process(given.results, axis, size, given.pypaimon)
    print_exponents(least(read(given.results)), given.axes.split(","))


def in_fresh_process(results: Path, axis: str, size: int, pypaimon: Path) -> None:
    """Measures one size, and adds its lines to the results, the last one when all steps are done."""
    command = [sys.executable, __file__, "--measure", axis, str(size), "--pypaimon", str(pypaimon)]
    print(f"{axis} {size:,} …", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
        lines = done.stdout.splitlines()
        end: Row = {"step": "end", "failed": done.stderr[-400:] if done.returncode else None}
    except subprocess.TimeoutExpired:
        lines = []
        end = {"step": "end", "failed": f"took more than {LONGEST_SECONDS} s"}
    end |= {"date": date.today().isoformat(), "with": versions()}
    with results.open("a") as file:
        for line in [*lines, json.dumps({"axis": axis, "size": size, **end})]:
            file.write(line + "\n")


def versions() -> dict[str, str]:
    """The versions of Python and of what the steps use."""
    distributions = {name: metadata.version(name) for name in ("pyarrow", "numpy")}
    return {"python": platform.python_version(), **distributions}


def ended(results: Path, axis: str, size: int) -> int:
    """How often this size has been measured."""
    return sum(
        (row["axis"], row["size"], row["step"]) == (axis, size, "end") for row in read(results)
    )


def least(rows: list[Row]) -> list[Row]:
    """Of each step at each size, the measurement with the least CPU; and all that failed."""
    by_step: dict[tuple[str, int, str], Row] = {}
    for row in rows:
        key = (row["axis"], row["size"], row["step"])
        if "cpu" in row and row["cpu"] < by_step.get(key, {"cpu": math.inf})["cpu"]:
            by_step[key] = row
    return [*by_step.values(), *(row for row in rows if row.get("failed"))]


def read(results: Path) -> list[Row]:
    """All measurements."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


def print_exponents(rows: list[Row], axes: list[str]) -> None:
    """Prints the costs of each step at the ends of the last decade, and the exponent."""
    for axis in axes:
        steps = dict.fromkeys(row["step"] for row in rows if row["axis"] == axis)
        print(f"\n{axis:24} {'from':>9} {'to':>9} {'CPU s':>9} {'CPU s':>9} {'MiB':>7}  exponent")
        for step in steps:
            costs = {
                row["size"]: row
                for row in rows
                if (row["axis"], row["step"]) == (axis, step) and "cpu" in row
            }
            if len(costs) < 2:
                continue
            largest = max(costs)
            smaller = [size for size in costs if size < largest]
            decade = [size for size in smaller if size * 10 >= largest]
            start = min(decade) if decade else max(smaller)
            first, last = costs[start]["cpu"], costs[largest]["cpu"]
            exponent = math.log(max(last, 1e-4) / max(first, 1e-4)) / math.log(largest / start)
            memory = costs[largest].get("memory")
            shown = "-" if memory is None else f"{memory:.0f}"
            print(
                f"  {step:22} {start:9,} {largest:9,} {first:9.3f} {last:9.3f} {shown:>7}  {exponent:.2f}"
            )
        for row in rows:
            if row["axis"] == axis and row.get("failed"):
                print(f"  {row['step']} at {row['size']:,} failed: {row['failed']}")


def measure(axis: str, size: int, pypaimon: Path) -> None:
    """Makes the table, does each step once, and prints its costs."""
    warm_up()
    with tempfile.TemporaryDirectory(prefix="shapes-") as folder:
        location = Path(folder) / "db.db" / "t"
        if axis in WITHOUT_ROWS:
            with unsynced():
                commits = size if axis == "snapshots" else min(size, 50)
                make_table(location, size, orphans=0, commits=commits)
            steps = steps_without_rows(str(location))
        else:
            shape = shape_of(axis, size)
            with unsynced():
                make(shape, str(location))
            steps = steps_of(shape, str(location))
        if axis not in WITHOUT_ROWS:
            beside_pypaimon(axis, size, folder, pypaimon)
        for name, step in steps.items():
            report(axis, size, name, step)
            if (axis, name) == ("partitions", "append"):
                report(axis, size, "Arrow's append", partial(arrow_append, shape, folder))


def arrow_append(shape: Shape, folder: str) -> None:
    """Writes the rows of an append by Arrow alone."""
    keys = pa.schema([shape.rows.schema.field(name) for name in shape.partition_keys])
    files = pds.ParquetFileFormat()
    pds.write_dataset(
        shape.rows,
        f"{folder}/arrow",
        format=files,
        partitioning=pds.partitioning(keys, flavor="hive"),
        max_partitions=len(shape.rows),
        file_options=files.make_write_options(compression="zstd"),
    )


def warm_up() -> None:
    """Imports what the first use of each step imports."""
    with tempfile.TemporaryDirectory(prefix="shapes-") as folder, unsynced():
        shape = Shape(numbers(10), [("id", "INT")], made=2)
        make(shape, f"{folder}/db.db/t")
        for step in steps_of(shape, f"{folder}/db.db/t").values():
            step()


@contextmanager
def unsynced() -> Any:
    """Within this context, nothing is synced."""
    sync = os.fsync
    os.fsync = lambda _: None
    try:
        yield
    finally:
        os.fsync = sync


def report(axis: str, size: int, name: str, step: Callable[[], object]) -> None:
    """Prints what a step costs, or why it failed."""
    row: Row = {"axis": axis, "size": size, "step": name}
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    before = time.process_time()
    try:
        step()
        row |= {"cpu": round(time.process_time() - before, 4), "memory": round(most_memory(), 1)}
    except Exception as error:  # noqa: BLE001 – the other steps are measured all the same
        row["failed"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(row), flush=True)


def beside_pypaimon(axis: str, size: int, warehouse: str, python: Path) -> None:
    """Prints what pypaimon's plan and read of the table cost."""
    if not python.exists():
        return
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", PYPAIMON, warehouse], capture_output=True, text=True, env=environment
    )
    row: Row = {"axis": axis, "size": size}
    if done.returncode:
        last = (done.stderr.splitlines() or ["it said nothing"])[-1]
        print(json.dumps(row | {"step": "pypaimon", "failed": last[:300]}), flush=True)
        return
    for step, seconds in json.loads(done.stdout.splitlines()[-1]).items():
        print(
            json.dumps(row | {"step": f"pypaimon's {step}", "cpu": round(seconds, 4)}), flush=True
        )


def numbers(count: int) -> pa.Table:
    """Rows of one column, `id`."""
    return pa.table({"id": pa.array(range(count), pa.int32())})


def shape_of(axis: str, size: int) -> Shape:
    """The table of a size of an axis."""
    match axis:
        case "columns":
            names = ["id", *(f"c{number}" for number in range(size - 1))]
            rows = pa.table({name: pa.array(range(5), pa.int32()) for name in names})
            return Shape(rows, [(name, "INT") for name in names])
        case "partitions":
            rows = numbers(5 * size).append_column("p", pa.array(range(5 * size), pa.int32()))
            rows = rows.set_column(1, "p", pc.divide(rows["p"], 5))
            return Shape(rows, [("id", "INT"), ("p", "INT")], made=1, partition_keys=["p"])
        case "terms":
            where = reduce(or_, [pc.field("id") == 31 * number for number in range(size)])
            return Shape(numbers(1_000), [("id", "INT")], made=50, where=where)
        case "buckets":
            options = {"bucket": str(size), "bucket-key": "id"}
            return Shape(numbers(20 * size), [("id", "INT")], made=2, options=options)
        case "row-kilobytes":
            texts = pa.array([chr(97 + number) * size * 1_000 for number in range(5)])
            rows = numbers(5).append_column("text", texts)
            return Shape(rows, [("id", "INT"), ("text", "STRING")])
        case "nesting":
            arrow, text = pa.int32(), "INT"
            value: Any = 1
            for _ in range(size):
                arrow, text = pa.struct([("a", arrow)]), f"ROW<a {text}>"
                value = {"a": value}
            rows = numbers(5).append_column("deep", pa.array([value] * 5, arrow))
            return Shape(rows, [("id", "INT"), ("deep", text)])
        case "streams":
            return Shape(numbers(100), [("id", "INT")], streams=size)
    raise ValueError(axis)


def make(shape: Shape, location: str) -> None:
    """Makes the table with its rows."""
    options = {"compaction.min.file-num": "2", **shape.options}
    table = PaimonTable.create(
        location, shape.schema, partition_keys=shape.partition_keys, options=options
    )
    for _ in range(shape.made):
        table.append(shape.rows)


def steps_of(shape: Shape, location: str) -> dict[str, Callable[[], object]]:
    """The steps, in their order."""

    def loaded() -> PaimonTable:
        return PaimonTable.load(location)

    writers = [loaded() for _ in range(shape.streams)]
    few = shape.rows.slice(0, 5)
    return {
        "append": lambda: loaded().append(shape.rows),
        "first commit": lambda: loaded().append(few),
        "commit": lambda: [writer.append(few) for writer in writers],
        "plan": lambda: plan_scan(loaded()._table),
        "plan by filter": lambda: plan_scan(loaded()._table, filter=shape.where),
        "read": lambda: loaded().to_arrow(),
        "head": lambda: list(islice(loaded().to_batches(), 1)),
        "filter": lambda: loaded().to_arrow(columns=["id"], filter=shape.where),
        "verify": lambda: loaded().verify(),
        "compact": lambda: loaded().compact(),
        "orphans": lambda: loaded().remove_orphan_files(),
        "expire": lambda: loaded().expire_snapshots(retain_max=1, retain_min=1),
    }


def steps_without_rows(location: str) -> dict[str, Callable[[], object]]:
    """The steps that read no data file."""

    def loaded() -> PaimonTable:
        return PaimonTable.load(location)

    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"], "dt": ["p1"]})
    writer = loaded()
    return {
        "first commit": lambda: loaded().append(rows),
        "commit": lambda: writer.append(rows),
        "plan": lambda: plan_scan(loaded()._table),
        "plan by filter": lambda: plan_scan(loaded()._table, filter=pc.field("id") == 3),
        "verify": lambda: loaded().verify(),
        "orphans": lambda: loaded().remove_orphan_files(),
        "expire": lambda: loaded().expire_snapshots(retain_max=1, retain_min=1),
    }


if __name__ == "__main__":
    main()
