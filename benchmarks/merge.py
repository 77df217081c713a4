"""How many rows per second are merged in memory, and read from a table with a primary key compared
with Java.

    python benchmarks/merge.py                               # 2 million rows, half as many keys
    python benchmarks/merge.py --rows 8000000 --read-rows 0  # merging only

Merging: rows of random keys in the order of their sequence numbers, once for each engine. Reading:
a table of two buckets that Java wrote in several batches without compaction, so every row is
merged. Java runs in a JVM of its own through tests/oracle, with the first compiler only
(-XX:TieredStopAtLevel=1), and its rows stay there. `peak` is the memory that reading adds to this
process.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.merge.rows import merge_rows
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.options import Options

COLUMNS = (
    ("id", "BIGINT NOT NULL"),
    ("name", "STRING NOT NULL"),
    ("amount", "BIGINT"),
    ("price", "DOUBLE"),
    ("total", "DECIMAL(20, 2)"),
    ("note", "STRING"),
)
SUMS = MappingProxyType({"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"})
ENGINES = (
    ("deduplicate", {}, ("id",)),
    ("deduplicate, key of text", {}, ("name",)),
    ("deduplicate, sequence.field", {"sequence.field": "amount"}, ("id",)),
    ("sum of BIGINT", SUMS, ("id",)),
    (
        "sum of DOUBLE, DECIMAL",
        {
            "merge-engine": "aggregation",
            "fields.price.aggregate-function": "sum",
            "fields.total.aggregate-function": "sum",
        },
        ("id",),
    ),
    ("partial-update", {"merge-engine": "partial-update"}, ("id",)),
    (
        "partial-update, group",
        {
            "merge-engine": "partial-update",
            "fields.amount.sequence-group": "price,total,note",
        },
        ("id",),
    ),
)


def spec_of(options: dict[str, str], keys: tuple[str, ...]) -> MergeSpec:
    """The spec of a table with these columns."""
    fields = tuple(
        DataField(id=i, name=name, type=parse_type(text)) for i, (name, text) in enumerate(COLUMNS)
    )
    schema = TableSchema(
        id=0, fields=fields, highest_field_id=9, primary_keys=keys, options=options
    )
    return MergeSpec.of(schema, Options(options))


def rows_of(rows: int, keys: int, random: np.random.Generator) -> pa.Table:
    """Random rows with `keys` different keys at most."""
    ids = random.integers(0, keys, rows)
    numbers = pa.array(ids).cast(pa.string())
    cents = pa.array(random.integers(0, 10**6, rows))
    return pa.table(
        {
            "id": ids,
            "name": numbers,
            "amount": random.integers(0, 100, rows),
            "price": random.random(rows),
            "total": cents.cast(pa.decimal128(20, 0)).cast(pa.decimal128(20, 2)),
            "note": numbers,
            "_SEQUENCE_NUMBER": np.arange(rows),
            "_VALUE_KIND": np.zeros(rows, np.int8),
        }
    )


def best_of(times: int, work: Callable[[], object]) -> float:
    """The wall clock seconds of the fastest run."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def merging(rows: int) -> None:
    """Prints a line for each engine."""
    table = rows_of(rows, max(rows // 2, 1), np.random.default_rng(7))
    print(f"{'engine':30} {'rows/s':>12} {'of deduplicate':>15}")
    first = 0.0
    for name, options, keys in ENGINES:
        spec = spec_of(dict(options), keys)
        speed = rows / best_of(3, lambda spec=spec: merge_rows(spec, table, keep_deletes=True))
        first = first or speed
        print(f"{name:30} {speed:12,.0f} {speed / first:14.2f}x")


def reading(rows: int, batches: int) -> None:
    """Prints the speed of this package and of Java for the same table."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "oracle"))
    import java_paimon

    java = java_paimon.shared()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/db.db/t"
        java.create_table(path, list(COLUMNS), [], ["id"], {"bucket": "2", "write-only": "true"})
        random = np.random.default_rng(7)
        for number in range(batches):
            made = rows_of(rows // batches, max(rows // 2, 1), random).drop_columns(
                ["_SEQUENCE_NUMBER", "_VALUE_KIND"]
            )
            java.write(path, [tuple(row.values()) for row in made.to_pylist()], "java", number)
        table = PaimonTable.load(path)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ours = best_of(3, lambda: sum(one.num_rows for one in table.to_batches()))
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        theirs = best_of(3, lambda: java.count(path))
        keys = table.to_arrow(columns=["id"]).num_rows
        print(f"\nreading {rows:,} rows in {batches} batches: {keys:,} keys, peak +{peak:.0f} MiB")
        print(f"{'ours':30} {rows / ours:12,.0f} rows/s")
        print(f"{'Java':30} {rows / theirs:12,.0f} rows/s {theirs / ours:14.2f}x is ours")


def main() -> None:
    """Runs once, and prints two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="rows to merge in memory; 0 for none"
    )
    parser.add_argument(
        "--read-rows", type=int, default=200_000, help="rows that Java writes; 0 for none"
    )
    parser.add_argument("--batches", type=int, default=8, help="batches in which Java writes them")
    given = parser.parse_args()
    if given.rows:
        merging(given.rows)
    if given.read_rows:
        reading(given.read_rows, given.batches)


if __name__ == "__main__":
    main()
