"""`examples/kafka_stream.py` is the job of docs/kafka.md, and its messages name the cure."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.servers._process import free_port
from tests.servers.kafka import connector_name

pytest.importorskip("pyspark")
pytest.importorskip("tqdm")

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "examples"))
from kafka import connector_arguments  # noqa: E402 - not without pyspark
from kafka_data import EVENTS, REJECTED, events, records  # noqa: E402
from kafka_stream import explained, stop_without_broker  # noqa: E402

PAGE = (ROOT / "docs" / "kafka.md").read_text()


def test_the_page_shows_the_job_as_it_is() -> None:
    job = (ROOT / "examples" / "kafka_stream.py").read_text()
    assert f"```python\n{job}```" in PAGE


def test_the_page_names_the_connector_that_tests_read_with() -> None:
    assert f"`{connector_name()}`" in PAGE


def test_the_demo_names_the_connector_to_spark_as_the_page_does() -> None:
    assert connector_arguments("") == f"--packages {connector_name()}"
    assert connector_arguments("org.example:mine:1") == "--packages org.example:mine:1"


def test_without_a_broker_the_job_ends_with_each_address_that_was_tried() -> None:
    closed = f"127.0.0.1:{free_port()}"
    with pytest.raises(SystemExit) as ended:
        stop_without_broker(f"nowhere,{closed}")
    assert "nowhere" in str(ended.value) and closed in str(ended.value)
    assert "Start Kafka, or mend the address, HOST:PORT. Nothing was written." in str(ended.value)


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka.", "docs/kafka.md"),
        (
            "terminated with exception: org/apache/spark/sql/SupportsRealTimeMode",
            "pip show pyspark",
        ),
        ("…errors.UnknownTopicOrPartitionException: This server…", "Create what is missing"),
        ("…errors.TimeoutException: Timed out waiting for a node", "advertised.listeners"),
        ("Some data may have been lost because they are not…", "--skip-deleted"),
    ],
)
def test_an_error_of_kafka_names_the_cure_within_80_columns(said: str, cure: str) -> None:
    message = explained(RuntimeError(said), "127.0.0.1:9092", "events")
    assert cure in message
    assert max(len(line) for line in message.splitlines()) <= 80


LOST = "[KAFKA_DATA_LOSS] Some data may have been lost.\nReason: "


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (
            f"{LOST}Could not read records in offset [20, 30) for topic partition my-events-0\nwith",
            "topic my-events, partition 0, some of the offsets 20 to 29.",
        ),
        (
            f"{LOST}Partition events-1 offset was changed from 20 to 5.",
            "Partition events-1 offset was changed from 20 to 5.",
        ),
        (
            "An error\nIllegalStateException: Cannot fetch offset 20 (TopicPartition: events-0).\n"
            "Some data may have been lost because they are not available in Kafka any more",
            "Cannot fetch offset 20 (TopicPartition: events-0).",
        ),
    ],
)
def test_records_that_are_gone_are_named_in_a_line(said: str, place: str) -> None:
    assert f"made anew:\n{place}\n" in explained(RuntimeError(said), "127.0.0.1:9092", "events")


def test_another_error_is_its_first_line() -> None:
    assert explained(RuntimeError("It is late.\nat java.lang"), "b", "t") == "It is late."


def test_the_events_that_are_sent_are_those_of_the_table_and_every_kind_of_other_record() -> None:
    sent = [value for _, value in records()]
    assert len(sent) > EVENTS and set(REJECTED) <= set(sent)
    matches = [re.match(rb'\{"id": (\d+), "user": ', value or b"") for value in sent]
    assert [int(event[1]) for event in matches if event] == events()["id"].to_pylist()
