"""A job on Spark Connect, which needs a process without a classic session. Prints the results.

python connect_child.py <folder>
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, PaimonTable, register
from tests.kits.spark_jobs import forget


def main(root: Path) -> None:
    # An answer that the server has and does not send comes when the client asks anew, which it does
    # when a stream of answers ends: after two minutes, if nothing else is set.
    builder = SparkSession.builder.remote("local[2]")
    builder.config("spark.connect.execute.reattachable.senderMaxStreamDuration", "5s")
    spark = builder.getOrCreate()
    for first in (0, 5):
        spark.range(first, first + 5).coalesce(1).write.mode("append").parquet(str(root / "in"))

    def table(name: str) -> str:
        return PaimonTable.create(str(root / "shop.db" / name), [("id", "BIGINT")]).location

    def run(
        function: Any, checkpoint: str, location: str | None = None, source: str | None = None
    ) -> str:
        """By `foreachBatch`, or, with a location, by `format()`; from files, or from a table."""
        stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
        rows = (
            spark.readStream.format("paimon_stream").load(source)
            if source
            else stream.parquet(str(root / "in"))
        )
        writer = rows.writeStream
        writer = writer.format("paimon_stream") if location else writer.foreachBatch(function)
        writer = writer.option("checkpointLocation", str(root / checkpoint)).trigger(
            availableNow=True
        )
        query = writer.start(location)
        try:
            query.awaitTermination()
        except PySparkException as failed:
            return str(failed)
        return ""

    def report(location: str, text: str) -> None:
        snapshots = PaimonTable.load(location).snapshots()
        print(json.dumps({"rows": [one.total_record_count for one in snapshots], "error": text}))

    replayed = table("replayed")
    sink = PaimonSink(replayed, checkpoint=str(root / "one"))
    report(replayed, run(sink, "one"))
    forget(root / "one" / "commits")
    report(replayed, run(sink, "one"))

    register(spark)
    by_name = table("by_name")
    for _ in range(2):
        report(by_name, run(None, "four", by_name))
        forget(root / "four" / "commits")

    copied, twice = table("copied"), table("twice")
    sink = PaimonSink(twice, checkpoint=str(root / "six"))
    errors = [run(None, "five", copied, source=by_name)]
    forget(root / "five" / "commits")
    PaimonTable.load(by_name).append(pa.table({"id": [77]}))
    for _ in range(
        1 + pyspark.__version__.startswith(("4.0", "4.1"))
    ):  # these end after a batch that is run again
        errors.append(run(None, "five", copied, source=by_name))
    errors.append(run(sink, "six", source=copied))
    ids = [sorted(PaimonTable.load(one).to_arrow()["id"].to_pylist()) for one in (copied, twice)]
    print(json.dumps({"copied": ids, "error": "".join(errors)}))

    shared = table("shared")
    first, second = (PaimonSink(shared, checkpoint=str(root / "two")) for _ in range(2))

    def both(df: Any, batch_id: int) -> None:
        first(df, batch_id)
        second(df, batch_id)

    report(shared, run(both, "two"))

    options = {"paimon-stream.operation-column": "op"}
    columns = [("id", "BIGINT NOT NULL")]
    keyed = [
        PaimonTable.create(
            str(root / "shop.db" / f"keyed{n}"), columns, primary_keys=["id"], options={"bucket": n}
        )
        for n in ("2", "-1")
    ]
    sinks = [
        PaimonSink(one.location, checkpoint=str(root / "three"), options=options) for one in keyed
    ]

    def changed(df: Any, batch_id: int) -> None:
        """Three keys of a batch, of which the next one deletes the first."""
        for sink in sinks:
            sink(
                df.selectExpr("id % 3 + id div 5 as id", "if(id % 5 = 4, 'd', 'c') as op"), batch_id
            )

    error = run(changed, "three")
    for one in keyed:
        report(one.location, error)
        print(
            json.dumps(
                {"keys": sorted(one.to_arrow()["id"].to_pylist()), "healthy": one.verify().healthy}
            )
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
