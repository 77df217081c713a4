"""The queries of the streams that were killed."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming import StreamingQuery

from paimon_stream import PaimonSink
from tests.persisted.streams import SOURCE, Stream


def start(spark: SparkSession, stream: Stream, root: Path, sink: PaimonSink) -> StreamingQuery:
    """Starts the query of the stream in this folder. It ends by itself after all files of its
    source.
    """
    rows = (
        spark.readStream.schema(SOURCE).option("maxFilesPerTrigger", 1).json(str(root / "source"))
    )
    if stream.mode == "complete":
        rows = rows.groupBy("id").agg(functions.sum("n").alias("n"))
    elif stream.primary_keys:
        rows = rows.select("id", "n")
    writer = rows.writeStream.outputMode(stream.mode).foreachBatch(sink)
    return (
        writer.option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
