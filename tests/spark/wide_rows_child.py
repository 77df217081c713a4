"""Rows of 1 MB in a JVM of 1 GB. Prints one line of JSON for each case: the rows of each batch, and
how many MB the driver's Python process grew.

python wide_rows_child.py <folder> [<case> …]
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from paimon_stream import CommitReport, PaimonSink, PaimonTable

COLUMNS = [("id", "BIGINT NOT NULL"), ("text", "STRING")]
KEYED: dict[str, Any] = {"primary_keys": ["id"], "options": {"bucket": "2"}}
UNCOMPACTED = {"paimon-stream.compact": "off"}
OFF = {"paimon-stream.small-batch": "off"}
WIDE, NARROW, MANY, BOUNDED = 1_300, 6, 20_000, 20_001
"""The rows of batches. Those of `WIDE` rows have rows of 1 MB, and those of `BOUNDED` rows have rows
just below the bound of the guard, 8 KB in Arrow batches of 8,192 rows.
"""

SIZE = f"if(rows = {WIDE}, 1000000, if(rows = {BOUNDED}, 8000, 1))"
"""The size of a text, by the rows of its batch."""

CASES = (
    "append",
    "first_batch_keys",
    "burst_after_small_batches",
    "burst_in_tasks",
    "burst_after_narrow_rows",
    "burst_below_the_bound",
    "compacted_keys",
)


def widened(ids: DataFrame, size: str) -> DataFrame:
    """The ids with a text of this size, an SQL expression."""
    return ids.selectExpr("id", f"repeat(cast(id % 10 as string), {size}) text")


class Cases:
    """The cases by name. Each has a table of its own below `root`."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root

    def append(self) -> list[int]:
        """A batch write."""
        table = PaimonTable.create(str(self.root / "append"), COLUMNS)
        report = table.append(widened(self.spark.range(0, WIDE, 1, 2), "1000000"))
        return [report.rows]

    def first_batch_keys(self) -> list[int]:
        """The first batch of a stream into a table with a primary key."""
        return self._stream("first_batch_keys", [WIDE, NARROW], create=KEYED, options=UNCOMPACTED)

    def compacted_keys(self) -> list[int]:
        """The same, compacted by threads of the driver. It comes last, because it needs more
        memory.
        """
        return self._stream("compacted_keys", [WIDE, NARROW], create=KEYED)

    def burst_after_small_batches(self) -> list[int]:
        """Batches that the driver writes are followed by one of many wide rows."""
        return self._stream("burst_after_small_batches", [NARROW, NARROW, WIDE, NARROW])

    def burst_in_tasks(self) -> list[int]:
        """Batches of narrow rows that tasks write are followed by one of wide rows."""
        return self._stream("burst_in_tasks", [NARROW, WIDE, NARROW], options=OFF)

    def burst_after_narrow_rows(self) -> list[int]:
        """Batches of many narrow rows, which come in large Arrow batches, are followed by a batch of
        wide rows.
        """
        return self._stream("burst_after_narrow_rows", [MANY, MANY, WIDE, MANY], options=OFF)

    def burst_below_the_bound(self) -> list[int]:
        """The same with rows that are just narrow enough not to be refused."""
        return self._stream("burst_below_the_bound", [MANY, MANY, BOUNDED, MANY], options=OFF)

    def _stream(
        self,
        name: str,
        sizes: list[int],
        *,
        options: Mapping[str, str] | None = None,
        create: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Runs a stream of batches of these numbers of rows."""
        folder, reports = self.root / f"{name}-source", list[CommitReport]()
        folder.mkdir()
        for number, size in enumerate(sizes):
            ids = pa.table(
                {"id": range(number * BOUNDED, number * BOUNDED + size), "rows": [size] * size}
            )
            pq.write_table(ids, folder / f"{number}.parquet")
            os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)
        table = PaimonTable.create(str(self.root / name), COLUMNS, **(create or {}))
        source = self.spark.readStream.schema("id bigint, rows bigint").option(
            "maxFilesPerTrigger", 1
        )
        frame = widened(source.parquet(str(folder)).repartition(2), SIZE)
        sink = PaimonSink(table.location, options=options, on_commit=reports.append)
        query = sink.start(
            frame, checkpoint=str(self.root / f"{name}-cp"), trigger={"availableNow": True}
        )
        query.awaitTermination()
        assert len(table.to_arrow(columns=["id"])) == sum(sizes)
        return [report.rows for report in reports]


def memory() -> int:
    """The most megabytes that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(root: Path, names: list[str]) -> None:
    conf = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    cases, before = Cases(spark, root), memory()
    for name in names or CASES:
        rows = getattr(cases, name)()
        print(json.dumps({"case": name, "rows": rows, "grown": memory() - before}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
