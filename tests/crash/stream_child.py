"""A streaming job in a process of its own, which dies at a given point.

    python stream_child.py <source> <table> <checkpoint> <where> [<batch> [<schema> [<mode>]]]

`where` is a phase of the batch ("judged", "published", …), or
  worker        in a Python worker, after it has written part of the batch's rows
  data          when the driver opens the first data file of a small batch for writing
  manifest      when the driver opens its first manifest for writing
  link          between the synced temporary file of the snapshot and its link
  answer        after that link, before the call that made it has answered
  rewriting     when a compaction behind the batch opens its new file for writing
  never         runs to the end
With the prefix "compact:" a phase is that of the compaction behind the batch.
It kills the whole process group with SIGKILL, or, with the prefix "pause:", stops itself with SIGSTOP
at that phase until somebody continues it. The batch's files are JSON lines with `id` and `day`, or with the
columns of the schema, in Spark's DDL. In the modes update and complete the job counts the rows of each
`id` and sums up their `n`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from paimon_stream import PaimonSink
from paimon_stream.commit.report import Phase


def die() -> None:
    """SIGKILL for the driver and its JVM, which share the process group."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


@dataclass(frozen=True)
class StopAt:
    """The observer that does it."""

    where: str
    batch: int
    finished: list[int] = field(default_factory=list)

    def reached(self, phase: Phase, identifier: int) -> None:
        if identifier != self.batch:
            return
        if phase.value == self.where or (self.finished and f"compact:{phase.value}" == self.where):
            die()
        if phase is Phase.FINISHED:
            self.finished.append(identifier)
        if f"pause:{phase.value}" == self.where:
            os.kill(os.getpid(), signal.SIGSTOP)


def install_audit_hook(where: str, armed: list[bool]) -> None:
    """Dies at a system call of the driver, seen by Python's own audit events."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not armed[0]:
            return
        if where == "link" and event == "os.link" and "/snapshot/snapshot-" in str(args[1]):
            die()
        if where == "answer" and event == "os.remove" and "/snapshot/.snapshot-" in str(args[0]):
            die()
        if where == "data" and event == "open" and "/data-" in str(args[0]):
            die()
        compacts = threading.current_thread().name == "paimon-stream-compact"
        if where == "rewriting" and event == "open" and compacts and args[2] & os.O_CREAT:
            die()
        if where == "manifest" and event == "open" and "/manifest/" in str(args[0]):
            die()

    sys.addaudithook(hook)


@dataclass(frozen=True)
class ArmedSink:
    """Arms the audit hook for one batch, and lets a worker die in the middle of it."""

    sink: PaimonSink
    where: str
    batch: int
    armed: list[bool]

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.armed[0] = batch_id == self.batch
        if self.where == "worker" and batch_id == self.batch:
            group = os.getpgid(0)

            def kill_driver(batches: Any) -> Any:
                yield from batches
                os.killpg(group, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

            df = df.mapInArrow(kill_driver, df.schema)
        self.sink(df, batch_id)


def main(
    source: str,
    table: str,
    checkpoint: str,
    where: str,
    batch: str = "-1",
    schema: str = "id bigint, day string",
    mode: str = "append",
) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    stop_at = StopAt(where, int(batch))
    by_tasks = {"paimon-stream.small-batch": "off"} if where == "worker" else {}
    sink = PaimonSink(table, mode=mode, checkpoint=checkpoint, options=by_tasks, observer=stop_at)
    armed = [False]
    install_audit_hook(where, armed)
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(source)
    if mode != "append":
        stream = stream.groupBy("id").agg(
            functions.count("*").alias("rows"), functions.sum("n").alias("n")
        )
    query = (
        stream.writeStream.outputMode(mode)
        .foreachBatch(ArmedSink(sink, where, int(batch), armed))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
