"""A streaming job for a cluster. Spark's `spark-submit` starts it: it knows nothing but the
package.

    spark-submit … job.py '{"table": …, "storage_options": …, "checkpoint": …, "batches": 4, "rows": 400, …}'

The rows come from executors, because there is no folder that they share with the driver. In the
batches that are `visited`, each task that has passed on its rows, and the driver at each phase,
visit the URL `visits`. At the end the driver `compacts` the table, after a visit.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from paimon_stream import PaimonSink
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.compact.job import compact
from paimon_stream.spark.compaction import SparkExecutors
from paimon_stream.table.table import load_table

ENOUGH = "enough batches"


def visit(url: str, place: str, **facts: object) -> None:
    """Returns when the test lets it."""
    urllib.request.urlopen(f"{url}/{place}?{urlencode(facts)}", timeout=900).read()


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class Visiting:
    """Passes rows on, and then visits. The parent of a Python worker is its daemon, and its parent
    the executor.
    """

    url: str
    batch: int

    def __call__(self, batches: Any) -> Any:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        visit(
            self.url,
            "task",
            batch=self.batch,
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
            executor=parent_of(os.getppid()),
            folder=os.getcwd(),
        )


@dataclass(frozen=True)
class Phases:
    """The observer that visits."""

    url: str
    visited: tuple[int, ...]

    def reached(self, phase: Any, identifier: int) -> None:
        if identifier in self.visited:
            visit(self.url, "driver", batch=identifier, phase=phase.value)


@dataclass(frozen=True)
class Writing:
    """The function of `foreachBatch`."""

    sink: PaimonSink
    task: dict[str, Any]

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        if batch_id >= self.task["batches"]:
            raise RuntimeError(ENOUGH)
        keys = self.task["keys"]
        df = df.selectExpr(f"value % {keys} id" if keys else "value id", "1L n")
        df = df.selectExpr("id", "concat('d', id % 2) day", "n")
        if batch_id in self.task["visited"]:
            df = df.mapInArrow(Visiting(self.task["visits"], batch_id), df.schema)
        self.sink(df, batch_id)


class Chosen(SparkExecutors):
    """The executors, although the table is small."""

    def at_once(self, units: Any) -> int:
        return self.cores()


def compact_on_executors(spark: SparkSession, task: dict[str, Any]) -> None:
    visit(task["visits"], "driver", phase="compacts")
    storage = open_storage(task["table"], task["storage_options"])
    elsewhere = Chosen(spark, load_table(storage))
    compact(lambda: load_table(storage), full=True, elsewhere=elsewhere)


def main() -> None:
    task = json.loads(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    sink = PaimonSink(
        task["table"],
        storage_options=task["storage_options"],
        options={"paimon-stream.small-batch": "off"},  # the tasks write, not the driver
        observer=Phases(task["visits"], tuple(task["visited"])),
    )
    rows = spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
    query = (
        rows.option("rowsPerBatch", task["rows"])
        .load()
        .writeStream.foreachBatch(Writing(sink, task))
        .option("checkpointLocation", task["checkpoint"])
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as ended:
        if ENOUGH not in str(ended):
            raise
    if task["compacts"]:
        compact_on_executors(spark, task)
    spark.stop()


if __name__ == "__main__":
    main()
