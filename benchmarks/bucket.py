"""How fast rows are assigned to buckets, compared with hashing them one by one with mmh3.

    python benchmarks/bucket.py [ROWS]

Prints rows per second on one core, for whole columns and for one row at a time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import mmh3
import numpy as np
import pyarrow as pa

from paimon_stream.format.binary_columns import column_values
from paimon_stream.format.binary_row import encode_row
from paimon_stream.format.types import DataType, parse_type
from paimon_stream.write.routing import assign_buckets

BUCKETS = 16
REPEATS = 3
ROWS_ONE_BY_ONE = 20_000


def columns(rows: int) -> dict[str, tuple[list[str], list[pa.Array]]]:
    """Key columns by name: their types and their values."""
    rng = np.random.default_rng(1)
    numbers = pa.array(rng.integers(-(2**62), 2**62, rows))
    moments = pa.array(rng.integers(0, 2**51, rows)).cast(pa.timestamp("us"))
    decimals = pa.array(rng.integers(-(10**15), 10**15, rows)).cast(pa.decimal128(38, 10))
    fixed = pa.array([f"customer-{i % 10**11:011d}" for i in range(rows)])
    lengths = rng.integers(0, 40, rows).tolist()
    mixed = pa.array(["x" * length for length in lengths])
    holed = pa.array([None if i % 3 == 0 else i for i in range(rows)], pa.int64())
    return {
        "BIGINT": (["BIGINT"], [numbers]),
        "BIGINT, a third NULL": (["BIGINT"], [holed]),
        "TIMESTAMP(6)": (["TIMESTAMP(6)"], [moments]),
        "DECIMAL(38, 10)": (["DECIMAL(38, 10)"], [decimals]),
        "STRING of 20 bytes": (["STRING"], [fixed]),
        "STRING of 0 to 39 bytes": (["STRING"], [mixed]),
        "BIGINT + STRING of 20": (["BIGINT", "STRING"], [numbers, fixed]),
    }


def rate(rows: int, work: Callable[[], object]) -> float:
    """Millions of rows per second in the fastest of three runs."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return rows / best / 1e6


def one_by_one(batch: pa.RecordBatch, types: Sequence[DataType]) -> list[int]:
    """The buckets, computed by a loop over the rows; the hash itself is in C."""
    values = [
        column_values(column, type_) for column, type_ in zip(batch.columns, types, strict=True)
    ]
    hashes = [
        mmh3.hash(encode_row(types, row), 42, signed=True) for row in zip(*values, strict=True)
    ]
    return [abs(int(np.fmod(h, BUCKETS))) for h in hashes]


def main(rows: int) -> None:
    """Prints the table."""
    print(f"{rows:,} rows into {BUCKETS} buckets; million rows per second")
    print(f"{'bucket key':26}{'columns':>10}{'one by one':>12}")
    for name, (texts, arrays) in columns(rows).items():
        types = [parse_type(text) for text in texts]
        batch = pa.record_batch(arrays, names=[f"f{i}" for i in range(len(arrays))])
        few = batch.slice(0, min(rows, ROWS_ONE_BY_ONE))
        assert assign_buckets(few, types, BUCKETS).tolist() == one_by_one(few, types)
        fast = rate(rows, lambda batch=batch, types=types: assign_buckets(batch, types, BUCKETS))
        slow = rate(few.num_rows, lambda few=few, types=types: one_by_one(few, types))
        print(f"{name:26}{fast:10.1f}{slow:12.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
