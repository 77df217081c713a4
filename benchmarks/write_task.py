"""How fast one task writes, how much memory it takes, and how close its files come to the target
size.

    python benchmarks/write_task.py                          # 2 million rows, no partitions, no buckets
    python benchmarks/write_task.py --rows 10000000 --buckets 8 --partitions 5 --target "16 mb"

Rows have eight columns: BIGINT, two INT, DOUBLE, two STRING, TIMESTAMP, DECIMAL(18, 2). They are
made batch by batch. The CPU seconds shown do not include the time to make them, as far as it can be
measured apart.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.write.task import WriteSpec, write_task

COLUMNS = (
    ("id", "BIGINT NOT NULL"),
    ("part", "INT"),
    ("quantity", "INT"),
    ("price", "DOUBLE"),
    ("name", "STRING"),
    ("note", "STRING"),
    ("at", "TIMESTAMP(6)"),
    ("total", "DECIMAL(18, 2)"),
)


class Source:
    """Batches of rows, and the CPU seconds that it took to make them."""

    def __init__(self, rows: int, batch: int, partitions: int) -> None:
        self.rows, self.batch, self.partitions = rows, batch, partitions
        self.cpu = 0.0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(7)
        names = pa.array([f"customer{i:02d}" for i in range(100)])
        for start in range(0, self.rows, self.batch):
            before = time.process_time()
            made = self._made(random, names, start, min(self.batch, self.rows - start))
            self.cpu += time.process_time() - before
            yield made

    def _made(
        self, random: np.random.Generator, names: pa.Array, start: int, count: int
    ) -> pa.RecordBatch:
        cents = random.integers(0, 10**7, count)
        letters = np.frombuffer(random.bytes(count * 16).hex().encode(), np.uint8)
        offsets = np.arange(count + 1, dtype=np.int32) * 32
        notes = pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        )
        return pa.record_batch(
            {
                "id": np.arange(start, start + count),
                "part": random.integers(0, self.partitions, count, dtype=np.int32),
                "quantity": random.integers(1, 50, count, dtype=np.int32),
                "price": random.random(count) * 100,
                "name": names.take(pa.array(random.integers(0, 100, count))),
                "note": notes,
                "at": pa.array(
                    1_700_000_000_000_000 + start + np.arange(count), pa.timestamp("us")
                ),
                "total": pa.array(cents).cast(pa.decimal128(20, 0)).cast(pa.decimal128(18, 2)),
            }
        )


def main() -> None:
    """Runs once, and prints one line per figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=10_000, help="rows per batch")
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--buckets", type=int, default=-1)
    parser.add_argument("--target", default="256 mb", help="target-file-size")
    parser.add_argument("--buffer", type=int, default=256, help="MiB of rows a task may hold")
    given = parser.parse_args()
    options = {"bucket": str(given.buckets), "target-file-size": given.target}
    if given.buckets > 0:
        options["bucket-key"] = "id"
    schema = TableSchema(
        id=0,
        fields=tuple(
            DataField(id=i, name=n, type=parse_type(t)) for i, (n, t) in enumerate(COLUMNS)
        ),
        highest_field_id=len(COLUMNS) - 1,
        partition_keys=("part",) if given.partitions else (),
        options=MappingProxyType(options),
    )
    source = Source(given.rows, given.batch, max(1, given.partitions))
    with tempfile.TemporaryDirectory() as folder:
        spec = WriteSpec(
            storage=LocalStorage(folder),
            schema=schema,
            options=Options(options),
            buffer_bytes=given.buffer * 2**20,
        )
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        wall, cpu = time.perf_counter(), time.process_time()
        result = write_task(spec, source)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu - source.cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    files = [file for message in result.messages for file in message.new_files]
    sizes, rows = [file.file_size for file in files], sum(file.row_count for file in files)
    print(f"rows {rows:,}  files {len(files)}  messages {len(result.messages)}")
    print(f"bytes {sum(sizes):,}  ({sum(sizes) / max(1, rows):.1f} per row)")
    print(
        f"file size: median {statistics.median(sizes):,.0f}  least {min(sizes):,}  most {max(sizes):,}"
    )
    print(f"CPU {cpu:.2f} s ({cpu * 1e6 / rows:.2f} us per row), with the source {wall:.2f} s wall")
    print(f"peak memory {peak / 1024:,.0f} MiB, {(peak - base) / 1024:,.0f} above the start")


if __name__ == "__main__":
    main()
