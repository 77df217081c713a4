"""The streaming job: it reads daily files and writes a Paimon table, one snapshot for each
micro-batch.

    python flights_stream.py '{"source": …, "table": …, "checkpoint": …, "kill": ["PUBLISHED", 15]}'

`flights.py` runs it as a process of its own, because it is killed while it runs. It reports each
batch as one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

from flights_data import SPARK_SCHEMA
from pyspark.sql import DataFrame, SparkSession

from paimon_stream import CommitReport, PaimonSink
from paimon_stream.commit.report import Phase

FILES_PER_BATCH = 9


def local_spark(name: str) -> SparkSession:
    """A small local Spark that prints errors only."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        # The process lives only for seconds, so a fast start matters more than speed in the long
        # run.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def daily_files(spark: SparkSession, source: str, per_batch: int = FILES_PER_BATCH) -> DataFrame:
    """The folder of daily files as a stream."""
    reader = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", per_batch)
    return reader.parquet(source)


def emit(**event: Any) -> None:
    """Writes one line to the process that started this one."""
    print(json.dumps(event), flush=True)


def emit_report(report: CommitReport) -> None:
    """Reports a batch that took effect, now or in an earlier run."""
    emit(
        batch=report.identifier,
        outcome=report.outcome,
        rows=report.rows,
        files=report.files,
        reused=report.reused,
    )


@dataclass(frozen=True)
class KillAt:
    """Kills Spark's JVM and then this process with SIGKILL when a batch reaches a phase."""

    phase: Phase
    batch: int
    jvm: int

    def reached(self, phase: Phase, identifier: int) -> None:
        """Called by the sink at each phase of each batch."""
        if phase is self.phase and identifier == self.batch:
            emit(killed=identifier, phase=phase.name)
            os.kill(self.jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(spark: SparkSession, kill: tuple[str, int] | None) -> dict[str, KillAt]:
    """The arguments that make `PaimonSink` kill the job at that phase of that batch."""
    if not kill:
        return {}
    phase, batch = kill
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    return {"observer": KillAt(Phase[phase], batch, jvm)}


def main() -> None:
    """Streams all available files and ends, or is killed before that."""
    task = json.loads(sys.argv[1])
    spark = local_spark("flights")
    sink = PaimonSink(task["table"], on_commit=emit_report, **killed_at(spark, task["kill"]))
    query = sink.start(
        daily_files(spark, task["source"]),
        checkpoint=task["checkpoint"],
        trigger={"availableNow": True},
        query_name="flights",
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
