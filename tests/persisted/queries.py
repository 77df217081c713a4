"""The queries of the streams that were killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from paimon_stream import PaimonSink
from tests.persisted.streams import SOURCE, Stream

FORMAT = "paimon_stream"
EACH_SNAPSHOT = {
    "scan.mode": "from-snapshot",
    "scan.snapshot-id": "1",
    "read.stream.max-snapshots-per-trigger": "1",
}


def sink_of(stream: Stream, root: Path, name: str | None = None, **given: Any) -> PaimonSink:
    """The sink of that name, with further arguments."""
    return PaimonSink(stream.location(root), mode=stream.mode, name=name, **given)


def start(spark: SparkSession, stream: Stream, root: Path, *sinks: PaimonSink) -> StreamingQuery:
    """Starts the query of the stream in this folder. It ends by itself after all of its source.

    Without sinks it is written by `format("paimon_stream")`, which must be registered.
    """
    writer = (
        _rows(spark, stream, root).writeStream.outputMode(stream.mode).trigger(availableNow=True)
    )
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    if not sinks:
        return writer.format(FORMAT).start(stream.location(root))

    def write(rows: DataFrame, batch: int) -> None:
        first, *others = sinks
        first(rows, batch)
        for other in others:
            other(rows.withColumn("n", -rows["n"]), batch)

    return writer.foreachBatch(write).start()


def _rows(spark: SparkSession, stream: Stream, root: Path) -> DataFrame:
    """The rows of the source: of one file or snapshot in each batch."""
    if stream.by_format:
        return spark.readStream.format(FORMAT).options(**EACH_SNAPSHOT).load(str(root / "source"))
    rows = (
        spark.readStream.schema(SOURCE).option("maxFilesPerTrigger", 1).json(str(root / "source"))
    )
    if stream.mode == "complete":
        return rows.groupBy("id").agg(functions.sum("n").alias("n"))
    return rows.select("id", "n") if stream.primary_keys else rows
