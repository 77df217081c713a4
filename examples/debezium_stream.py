"""The streaming job of `debezium.py`: it reads change events from Kafka and writes a table with a
primary key.

    python debezium_stream.py '{"source": "HOST:PORT", "table": …, "checkpoint": …,
                                "kill": ["PUBLISHED", 3]}'

It runs as a process of its own, because it is killed while it runs. It reports each batch as one
line of JSON.
"""

from __future__ import annotations

import json
import sys

from debezium_data import PER_BATCH, TOPIC
from flights_stream import emit_report, killed_at, local_spark

from paimon_stream import PaimonSink, PaimonTable, cdc


def main() -> None:
    """Streams all events that are there and ends, or is killed before that."""
    task = json.loads(sys.argv[1])
    spark = local_spark("debezium")
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task["source"])
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .load()
    )
    table = PaimonTable.load(task["table"])
    sink = PaimonSink(
        table.location,
        options={"paimon-stream.operation-column": "op"},
        on_commit=emit_report,
        **killed_at(spark, task["kill"]),
    )
    query = sink.start(
        cdc.debezium(records, table),
        checkpoint=task["checkpoint"],
        trigger={"availableNow": True},
        query_name="debezium",
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
