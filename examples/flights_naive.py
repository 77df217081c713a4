"""The same crash with two sinks: one that appends every batch that it gets, and PaimonSink.

    python flights_naive.py SOURCE FOLDER CHECKPOINTS

The crash comes after the sink has returned and before Spark has noted that. It is reproduced here
as users have reported it for other sinks: let the stream end, remove the newest entry of
`<checkpoint>/commits`, start again. Spark then runs the last batch a second time, with the same
rows and the same batch id.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
from flights_data import TABLE
from flights_stream import daily_files, emit, local_spark
from pyspark.sql import DataFrame

from paimon_stream import PaimonSink, PaimonTable


def start_naive(stream: DataFrame, checkpoint: Path, target: Path) -> None:
    """Appends each batch to a folder of Parquet files."""

    def append(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("append").parquet(str(target))

    writer = stream.writeStream.foreachBatch(append).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def start_ours(stream: DataFrame, checkpoint: Path, target: Path) -> None:
    """Commits each batch to a Paimon table."""
    sink = PaimonSink(str(target))
    sink.start(
        stream, checkpoint=str(checkpoint), trigger={"availableNow": True}
    ).awaitTermination()


def forget_last_batch(checkpoint: Path) -> int:
    """Removes the newest entry of Spark's commit log. Returns its batch id."""
    commits = checkpoint / "commits"
    newest = max(int(entry.name) for entry in commits.iterdir() if entry.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    return newest


def main() -> None:
    """Takes both sinks through the crash and reports how many rows the naive one holds."""
    source, folder, checkpoints = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    naive, ours = folder / "naive", folder / "warehouse" / "demo.db" / "replayed"
    PaimonTable.create(str(ours), **TABLE)
    spark = local_spark("naive")
    sinks: tuple[tuple[Callable[[DataFrame, Path, Path], None], Path], ...]
    sinks = ((start_naive, naive), (start_ours, ours))
    for start, target in sinks:
        checkpoint = checkpoints / f"{folder.name}-{target.name}"
        start(daily_files(spark, source, per_batch=1), checkpoint, target)
        batch = forget_last_batch(checkpoint)
        start(daily_files(spark, source, per_batch=1), checkpoint, target)
    emit(replayed=batch, naive=pyarrow.dataset.dataset(str(naive)).count_rows(), ours=str(ours))
    spark.stop()


if __name__ == "__main__":
    main()
