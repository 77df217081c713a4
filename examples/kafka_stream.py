"""Streams JSON events from Kafka into a Paimon table, each exactly once. A record that is no event
goes to a second table.

    python kafka_stream.py localhost:9092 events

Without --every it reads what is there and ends. The same command goes on where the last run ended.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import socket
import sys
import threading
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from paimon_stream import CommitReport, PaimonSink, PaimonTable
from paimon_stream.errors import PaimonStreamError

EVENT = "id BIGINT, user STRING, amount DECIMAL(10, 2), at TIMESTAMP"
STOPPED = "Stopped. The same command goes on where this run ended."
NO_SPARK = (
    "Spark's Java process does not start. The lines above say why. Often there is no Java,\n"
    "or a package in PYSPARK_SUBMIT_ARGS cannot be had; docs/kafka.md names packages."
)


def records_of(
    spark: SparkSession, brokers: str, topics: str, per_batch: int, skip_deleted: bool = False
) -> DataFrame:
    """The topics as a stream, from their beginning."""
    options = {
        "kafka.bootstrap.servers": brokers,
        "subscribe": topics,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": per_batch,
        "failOnDataLoss": not skip_deleted,
    }
    return spark.readStream.format("kafka").options(**options).load()


def with_reason(records: DataFrame) -> DataFrame:
    """The records with their events, and the reason if a record is no event."""
    text = "CAST(value AS STRING)"
    # As an item with NULL behind it, because from_json passes over what follows an object.
    items = f.expr(f"""concat('{{"items":[', {text}, ',null]}}')""")
    schema = f"items ARRAY<STRUCT<{EVENT}>>, broken STRING"
    parsed = f.from_json(items, schema, {"columnNameOfCorruptRecord": "broken"})
    records = records.withColumn("parsed", parsed)
    records = records.withColumn("read", f.expr("struct(try_element_at(parsed.items, 1) AS event)"))
    # Spark reads bytes that are no UTF-8 as U+FFFD, which good text may have, too.
    no_utf8 = f"replace({text}, '\ufffd', '?') RLIKE '\ufffd'"
    is_one = "size(parsed.items) = 2 AND try_element_at(parsed.items, 2) IS NULL"
    names = f"json_object_keys({text})"
    reason = (
        f.when(f.col("value").isNull(), "no value")
        .when(f.expr(no_utf8), "not UTF-8")
        .when(
            f.expr(f"parsed.broken IS NOT NULL OR NOT ({is_one})"),
            "not JSON, or a value of another type",
        )
        .when(f.expr(f"size(array_distinct({names})) < size({names})"), "a field twice")
        .when(f.expr("read.event.id IS NULL OR read.event.at IS NULL"), "no id, or no time")
    )
    return records.withColumn("reason", reason)


def events_in(records: DataFrame) -> DataFrame:
    """The rows of the table of events. They know their places in Kafka."""
    columns = ("read.event.*", "to_date(read.event.at) AS day", "topic", "partition", "offset")
    return records.where("reason IS NULL").selectExpr(*columns)


def others_in(records: DataFrame) -> DataFrame:
    """The rows of the second table: the bytes as they came, and the reason."""
    columns = ("reason", "key", "value", "timestamp", "topic", "partition", "offset")
    return records.where("reason IS NOT NULL").select(*columns)


def start(records: DataFrame, folder: str, checkpoint: str, every: str | None, **more: Any) -> Any:
    """Starts the query. Returns it with its two sinks."""
    records = with_reason(records)
    events, others = f"{folder}/events", f"{folder}/events_rejected"
    columns = events_in(records).schema
    PaimonTable.create(events, schema=columns, partition_keys=["day"], if_not_exists=True)
    PaimonTable.create(others, schema=others_in(records).schema, if_not_exists=True)
    # The sinks are made once, not in each batch.
    to_events, to_others = PaimonSink(events, **more), PaimonSink(others)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()  # both sinks read it
        try:
            # In this order, because a corrected job finds fewer of them after a crash in between.
            to_others(others_in(batch), number)
            to_events(events_in(batch), number)
        finally:
            batch.unpersist()

    writer = records.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    trigger = {"processingTime": every} if every else {"availableNow": True}
    return writer.trigger(**trigger).start(), (to_events, to_others)


def stop_without_broker(brokers: str) -> None:
    """Ends the job if no broker answers. Spark would look for one for minutes."""
    tried = []
    for broker in brokers.split(","):
        host, _, port = broker.strip().rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
            return
        except (OSError, ValueError) as error:
            tried.append(f"{broker}: {error}")
    sys.exit(
        f"No broker of Kafka answers ({'; '.join(tried)}).\n"
        "Start Kafka, or mend the address, HOST:PORT. Nothing was written."
    )


def explained(error: Exception, brokers: str, topics: str) -> str:
    """What went wrong in Kafka or its connector, and what to do."""
    text = str(error)
    if "Failed to find data source: kafka" in text or "find the data source: kafka" in text:
        return (
            "This Spark has no connector for Kafka. Before the start, name it in\n"
            "PYSPARK_SUBMIT_ARGS, or use spark-submit --packages. docs/kafka.md has both."
        )
    if "exception: org/apache/spark/" in text:
        return (
            "The connector for Kafka is of a newer Spark, and lacks a class of that Spark.\n"
            "Take the release that `pip show pyspark` names, or the newest one before it."
        )
    if "UnknownTopicOrPartition" in text:
        return (
            f"Kafka at {brokers} has not all of these topics: {topics}.\n"
            "Create what is missing, or mend the name, and start the job again."
        )
    if "TimeoutException" in text:
        return (
            f"A broker answers at {brokers}, but not at the address that it tells\n"
            "its clients. Look at advertised.listeners of the broker, and start again."
        )
    if "data may have been" in text or "DATA_LOSS" in text:
        return (
            "Kafka deleted records before this job read them, or a topic was made anew:\n"
            f"{gap_in(text)}\n"
            "All that was read is in the tables. Note the gap, as docs/kafka.md says. Then\n"
            "start the same command once with --skip-deleted: it goes on behind the gap."
        )
    return text.splitlines()[0]


def gap_in(text: str) -> str:
    """What Spark says is lost, in a line."""
    place = re.search(r"in offset \[(\d+), (\d+)\) for topic partition (\S+)-(\d+)", text)
    if place:
        first, end, topic, partition = place.groups()
        return (
            f"topic {topic}, partition {partition}, some of the offsets {first} to {int(end) - 1}."
        )
    reason = re.search(r"Reason: (.+)", text) or re.search(r"(Cannot fetch .+)", text)
    return reason[1] if reason else text.splitlines()[0]


def wait(query: Any) -> bool:
    """Waits until the query has ended, or for Ctrl-C. Returns whether the query has ended."""
    # Spark's own handler calls Spark within another call, and that fails with a trace.
    pressed = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    while not pressed.is_set():
        if query.awaitTermination(1):
            return True
    return False


def say(report: CommitReport) -> None:
    """Prints what a batch has done."""
    print(f"Batch {report.identifier} {report.outcome}: {report.rows:,} events.", flush=True)


def run(arguments: argparse.Namespace) -> str:
    """Streams until the query ends. Returns what to print last."""
    settings = {"spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    # Errors come as exceptions, and the job prints them once.
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("paimon_stream").addFilter(lambda record: record.levelno < logging.ERROR)
    sinks: tuple[PaimonSink, ...] = ()
    query = None
    try:
        records = records_of(
            spark,
            arguments.brokers,
            arguments.topics,
            arguments.per_batch,
            skip_deleted=arguments.skip_deleted,
        )
        query, sinks = start(
            records, arguments.folder, arguments.checkpoint, arguments.every, on_commit=say
        )
        if not wait(query):
            return STOPPED
    except (AnalysisException, PaimonStreamError, StreamingQueryException) as error:
        errors = [error, *(sink.last_error for sink in sinks)]
        known = [each for each in errors if isinstance(each, PaimonStreamError)]
        sys.exit(str(known[0]) if known else explained(error, arguments.brokers, arguments.topics))
    finally:
        if query:
            query.stop()
    # A batch that an earlier run has begun has no metrics.
    progress = query.lastProgress
    metrics = progress["sources"][0]["metrics"] if progress else {}
    if "maxOffsetsBehindLatest" not in metrics:
        return "Done. The tables have all that Kafka had at the start."
    lag = metrics["maxOffsetsBehindLatest"]
    return f"Done. The partition that is most behind has {lag} more records."


def main() -> None:
    """Reads the arguments, and streams."""
    parser = argparse.ArgumentParser(description="Streams JSON events from Kafka into a table.")
    parser.add_argument("brokers", help="HOST:PORT of a broker, or of several, with commas")
    parser.add_argument("topics", help="a topic, or several, with commas")
    parser.add_argument("--folder", default="warehouse/shop.db", help="where the tables are")
    parser.add_argument("--checkpoint", default="checkpoints/events", help="keep this folder")
    parser.add_argument("--every", help="such as '10 seconds'; without it, the job ends")
    parser.add_argument("--per-batch", type=int, default=1_000_000, help="records at most")
    parser.add_argument(
        "--skip-deleted", action="store_true", help="go on behind records that Kafka has deleted"
    )
    arguments = parser.parse_args()
    stop_without_broker(arguments.brokers)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers use it, too
    try:
        print(run(arguments))
    except KeyboardInterrupt:
        print(STOPPED)
    except PySparkRuntimeError as error:
        sys.exit(NO_SPARK if "JAVA_GATEWAY_EXITED" in str(error) else str(error))
    except (ConnectionError, Py4JError):
        sys.exit(
            "Spark's Java process has ended, or was killed; often the machine had no memory left.\n"
            "Start the same command again: it goes on where this run ended."
        )


if __name__ == "__main__":
    main()
