"""The job of docs/kafka.md on a real Kafka: kills, bad input, and Avro."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions

from paimon_stream import PaimonTable
from tests.kits.spark_jobs import Job
from tests.servers.kafka import KafkaBroker, KafkaUnavailable, avro, connector

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import kafka_stream
from kafka_data import REJECTED

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2),
        reason="these tests know the connector of Spark 4.2, which 4.3 takes, too",
    ),
]
ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "kafka_stream.py"

EVENT = b'{"id": %d, "user": "ann", "amount": 1.50, "at": "2026-11-20T10:00:00Z"}'
MANY_SECONDS = 1800


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    """A Kafka for all tests of this file."""
    try:
        with KafkaBroker() as running:
            yield running
    except KafkaUnavailable as why:
        if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
            raise
        pytest.skip(str(why))


def run(
    folder: Path,
    *words: str | Path,
    jars: list[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a folder, as a user does, with these jars, or with the connector."""
    jars = connector() if jars is None else jars
    spark = f"--master local[2] --conf spark.ui.enabled=false --jars {','.join(jars)} pyspark-shell"
    if not jars:
        spark = spark.replace("--jars ", "")
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": spark},
        capture_output=True,
        text=True,
        timeout=MANY_SECONDS,
    )


def ends_with_one_message(done: subprocess.CompletedProcess[str], message: str) -> None:
    """The job has failed, and says why without a trace of Python, py4j or Java."""
    assert done.returncode == 1, done.stderr
    assert message in done.stderr, done.stderr
    for trace in ("Traceback", "py4j", "\tat ", "Exception"):
        assert trace not in done.stderr, done.stderr


def ids(folder: Path) -> list[int]:
    rows = PaimonTable.load(str(folder / "warehouse" / "shop.db" / "events")).to_arrow()
    return sorted(rows["id"].to_pylist())


def test_each_record_is_there_once_after_four_kills() -> None:
    done = run(ROOT, ROOT / "examples" / "kafka.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in no table 0 · in more than one row 0" in done.stdout
    assert max(map(len, done.stdout.replace("\r", "\n").splitlines())) <= 80, done.stdout


def test_a_topic_that_is_missing_is_named_and_the_same_command_goes_on(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create("is-there")
    kafka.send("is-there", [(None, EVENT % 1)])
    command = (JOB, kafka.address, "is-there,is-missing")
    ends_with_one_message(run(tmp_path, *command), "has not all of these topics")
    kafka.create("is-missing", partitions=2)
    kafka.send("is-missing", [(None, EVENT % 2)])
    done = run(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert ids(tmp_path) == [1, 2]
    assert "is most behind has 0 more records" in done.stdout


def test_every_record_that_is_no_event_is_kept_as_it_came(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create("rejected")
    kafka.send("rejected", [(None, EVENT % 1), *((b"key", value) for value in REJECTED)])
    done = run(tmp_path, JOB, kafka.address, "rejected")
    assert done.returncode == 0, done.stderr
    rejected = PaimonTable.load(str(tmp_path / "warehouse" / "shop.db" / "events_rejected"))
    rows = rejected.to_arrow().sort_by("offset")
    assert rows["value"].to_pylist() == list(REJECTED)
    assert None not in rows["reason"].to_pylist()
    assert ids(tmp_path) == [1]


def test_what_is_no_event_is_kept_before_the_events_are_published(
    job: Job,
) -> None:
    """So a record is in one of the tables, even if the job is corrected after a crash in between and
    takes it for an event.
    """
    place = {"topic": "events", "partition": 0, "offset": 0}
    (job.root / "topic").mkdir()
    (job.root / "topic" / "1.json").write_text(json.dumps({"value": '{"id": 1}', **place}))
    record = (
        "key binary, value string, timestamp timestamp, topic string, partition int, offset bigint"
    )
    records = job.spark.readStream.schema(record).json(str(job.root / "topic"))
    records = records.withColumn("value", functions.col("value").cast("binary"))
    folder, checkpoint = str(job.root / "shop.db"), str(job.root / "checkpoint")
    PaimonTable.create(f"{folder}/events", schema=[("id", "INT")])
    query, _ = kafka_stream.start(records, folder, checkpoint, None)
    with pytest.raises(StreamingQueryException, match="IncompatibleSchema"):
        query.awaitTermination(MANY_SECONDS)
    (kept,) = PaimonTable.load(f"{folder}/events_rejected").to_arrow().to_pylist()
    assert (kept["reason"], kept["value"]) == ("no id, or no time", b'{"id": 1}')


def test_without_the_connector_the_job_says_how_to_name_it(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    done = run(tmp_path, JOB, kafka.address, "events", jars=[])
    ends_with_one_message(done, "This Spark has no connector for Kafka.")


def test_a_table_that_does_not_fit_is_one_message_of_the_sink(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create("other-table")
    kafka.send("other-table", [(None, EVENT % 1)])
    location = tmp_path / "warehouse" / "shop.db" / "events"
    PaimonTable.create(str(location), schema=[("id", "BIGINT")])
    done = run(tmp_path, JOB, kafka.address, "other-table")
    ends_with_one_message(done, "amount")


def test_the_blocks_of_the_page_run(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create("events", partitions=3)
    kafka.send("events", [(b"%d" % number, EVENT % number) for number in range(20)])
    kafka.create("avro")
    child = ROOT / "tests" / "spark" / "kafka_page_child.py"
    done = run(tmp_path, child, kafka.address, jars=[*connector(), *avro()])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["columns"] == "amount double, at string, id bigint, user string\n"
    assert "missing: 0" in found["audit"] and "missing: 1" not in found["audit"]
    at = "2026-11-25 09:46:40+00:00"
    assert found["avro"] == [[1, None, at], [2, "ann", at]]
    unknown, broken = "not Avro of a known schema", "not Avro of its schema"
    assert found["others"] == [unknown, broken, "no value"]
