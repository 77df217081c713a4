"""The streaming job of `cdc.py`: it reads files of changes and writes a table with a primary key.

    python cdc_stream.py '{"source": …, "table": …, "checkpoint": …, "kill": ["PUBLISHED", 6]}'

It runs as a process of its own, because it is killed while it runs. It reports each batch as one
line of JSON.
"""

from __future__ import annotations

import json
import sys

from cdc_data import OPERATION, SPARK_SCHEMA
from flights_stream import emit_report, killed_at, local_spark

from paimon_stream import PaimonSink

FILES_PER_BATCH = 2


def main() -> None:
    """Streams all available files and ends, or is killed before that."""
    task = json.loads(sys.argv[1])
    spark = local_spark("cdc")
    sink = PaimonSink(
        task["table"],
        options={"paimon-stream.operation-column": OPERATION},
        on_commit=emit_report,
        **killed_at(spark, task["kill"]),
    )
    changes = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH)
    query = sink.start(
        changes.parquet(task["source"]),
        checkpoint=task["checkpoint"],
        trigger={"availableNow": True},
        query_name="cdc",
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
