"""The job of docs/kafka.md on a real Kafka: kills, bad input, records that are gone, and Avro."""

from __future__ import annotations

import json
import os
import signal
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
from tests.kits.stores import started
from tests.servers._process import free_port
from tests.servers.kafka import KafkaBroker, avro, connector

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
    with started(lambda _: KafkaBroker(), "pyspark") as running:
        yield running


def environment(jars: list[str]) -> dict[str, str]:
    """The variables of a job whose Spark has these jars."""
    named = f"--jars {','.join(jars)} " if jars else ""
    spark = f"--master local[2] --conf spark.ui.enabled=false {named}pyspark-shell"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": spark}


def run(
    folder: Path,
    *words: str | Path,
    jars: list[str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a folder, as a user does, with these jars, or with the connector."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment(connector() if jars is None else jars),
        capture_output=True,
        text=True,
        timeout=MANY_SECONDS,
    )


def ends_with_one_message(done: subprocess.CompletedProcess[str], message: str) -> None:
    """The job has failed, and says why without a trace of Python, py4j or Java."""
    assert done.returncode == 1, done.stderr
    assert message in done.stderr, done.stderr
    for trace in ("Traceback", "py4j", "Py4J", "\tat ", "Exception", "[Stage"):
        assert trace not in done.stderr, done.stderr


def ids(folder: Path) -> list[int]:
    rows = PaimonTable.load(str(folder / "warehouse" / "shop.db" / "events")).to_arrow()
    return sorted(rows["id"].to_pylist())


def test_each_record_is_there_once_after_four_kills() -> None:
    done = run(ROOT, ROOT / "examples" / "kafka.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in no table 0 · in more than one row 0" in done.stdout
    assert max(map(len, done.stdout.replace("\r", "\n").splitlines())) <= 80, done.stdout


def test_a_broker_that_tells_an_address_where_nobody_answers_is_explained(tmp_path: Path) -> None:
    with started(
        lambda _: KafkaBroker(advertised=f"127.0.0.1:{free_port()}"), "pyspark"
    ) as misleading:
        misleading.create("events")
        misleading.send("events", [(None, EVENT % 1)])
        job = run(tmp_path, JOB, misleading.address, "events")
        demo = run(tmp_path, ROOT / "examples" / "kafka.py", "--brokers", misleading.address)
    for done in (job, demo):
        ends_with_one_message(done, "Look at advertised.listeners of the broker")
    assert ids(tmp_path) == []


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


def test_a_package_that_cannot_be_had_is_said_below_what_spark_prints(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    job = subprocess.run(
        [sys.executable, JOB, kafka.address, "events"],
        cwd=tmp_path,
        env={
            **environment([]),
            "PYSPARK_SUBMIT_ARGS": "--packages org.example:none:1 pyspark-shell",
        },
        capture_output=True,
        text=True,
        timeout=MANY_SECONDS,
    )
    assert job.returncode == 1
    assert job.stderr.endswith(f"{kafka_stream.NO_SPARK}\n"), job.stderr
    assert "org.example#none;1: not found" in job.stderr and "Traceback" not in job.stderr


def test_a_table_that_does_not_fit_is_one_message_of_the_sink(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create("other-table")
    kafka.send("other-table", [(None, EVENT % 1)])
    location = tmp_path / "warehouse" / "shop.db" / "events"
    PaimonTable.create(str(location), schema=[("id", "BIGINT")])
    done = run(tmp_path, JOB, kafka.address, "other-table")
    ends_with_one_message(done, "amount")


def test_records_that_are_gone_are_named_and_the_job_goes_on_behind_them(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create("gone")
    kafka.send("gone", [(None, EVENT % number) for number in range(10)])
    command = (JOB, kafka.address, "gone")
    assert run(tmp_path, *command).returncode == 0
    kafka.send("gone", [(None, EVENT % number) for number in range(10, 20)])
    kafka.drop("gone", 0, before=15)
    place = "topic gone, partition 0, some of the offsets 10 to 19."
    ends_with_one_message(run(tmp_path, *command), place)
    assert ids(tmp_path) == list(range(10))
    done = run(tmp_path, *command, "--skip-deleted")
    assert done.returncode == 0, done.stderr
    assert ids(tmp_path) == [*range(10), *range(15, 20)]


@pytest.mark.parametrize("how", ["Ctrl-C", "no Java"])
def test_a_job_that_is_ended_says_so_in_a_sentence(
    kafka: KafkaBroker, tmp_path: Path, how: str
) -> None:
    topic = how.lower().replace(" ", "-")
    kafka.create(topic)
    kafka.send(topic, [(None, EVENT % 1)])
    job = subprocess.Popen(
        [sys.executable, JOB, kafka.address, topic, "--every", "1 second"],
        cwd=tmp_path,
        env={**environment(connector()), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert job.stdout is not None
    assert job.stdout.readline()
    if how == "Ctrl-C":
        os.killpg(job.pid, signal.SIGINT)
    else:
        os.kill(jvm_of(job.pid), signal.SIGKILL)
    out, err = job.communicate(timeout=MANY_SECONDS)
    done = subprocess.CompletedProcess(job.args, job.returncode, out, err)
    if how == "Ctrl-C":
        assert done.returncode == 0, err
        assert out.endswith("Stopped. The same command goes on where this run ended.\n")
        # Stopped within a batch, a thread of Spark prints a StackOverflowError of its own.
        assert "Traceback" not in err and "py4j" not in err, err
    else:
        assert done.returncode == 1, err
        # Threads of pyspark print traces of their own before it.
        assert err.splitlines()[-2].startswith("Spark's Java process has ended, or was killed"), err
    assert ids(tmp_path) == [1]


def jvm_of(process: int) -> int:
    """The JVM that this process has started."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    (jvm,) = (int(child) for child in children if is_java(child))
    return jvm


def is_java(process: str) -> bool:
    return Path(f"/proc/{process}/comm").read_text() == "java\n"


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
