"""The job of `kafka_stream.py`, which kills itself where `kafka.py` says.

    python kafka_killed.py '{"source": "HOST:PORT TOPICS", "table": …, "checkpoint": …,
                             "kill": ["FINISHED", 2]}'

It reports each batch as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flights_stream import emit_report, killed_at, local_spark
from kafka_data import PER_BATCH
from kafka_stream import NO_SPARK, records_of, start
from pyspark.errors import PySparkRuntimeError


def main() -> None:
    """Streams all records that are there and ends, or is killed before that."""
    task = json.loads(sys.argv[1])
    brokers, topics = task["source"].split()
    try:
        spark = local_spark("kafka")
    except PySparkRuntimeError:
        sys.exit(NO_SPARK)
    query, _ = start(
        records_of(spark, brokers, topics, PER_BATCH),
        str(Path(task["table"]).parent),
        task["checkpoint"],
        None,
        on_commit=emit_report,
        **killed_at(spark, task["kill"]),
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
