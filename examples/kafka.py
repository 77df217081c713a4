"""Demo of Kafka: JSON events become the rows of a table, each exactly once. The job survives
`kill -9`.

    python kafka.py [--brokers HOST:PORT] [--packages [NAME]] [--kills 0 to 4]

1. A Kafka is started on this machine, unless another one is named. Two topics with three partitions
   each get 12,000 events as JSON, and some records that are no events.
2. The job of `kafka_stream.py` streams both topics into a table with a partition for each day. What
   is no event goes to a second table. The job and its JVM are killed with SIGKILL, one of the times
   between the commits of the two tables. Each time the job is started again.
3. Java Paimon, pypaimon and paimon_stream itself read the events. The row count, the sum of the ids
   and a checksum of each day must equal those of what was sent. Each offset of Kafka must be in one
   row of one of the two tables.

Spark gets the jars of its connector from Maven's repository. With --packages it fetches them itself,
as docs/kafka.md says: the connector of this Spark, or the one that is named.

Each run works in a new folder under `demo-data/` and leaves it there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parent.parent
sys.path.insert(0, str(HOME))

from flights import (  # noqa: E402 - the checkout has the servers of the tests
    Kill,
    Room,
    independent_readers,
    new_room,
    print_agreement,
    print_runs,
    run_and_report,
    stream_through_kills,
)
from flights_check import summarize  # noqa: E402
from kafka_check import SUMMED  # noqa: E402
from kafka_data import ARROW_SCHEMA, PER_BATCH, events, records  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402
from tests.servers.kafka import (  # noqa: E402
    KafkaBroker,
    KafkaClient,
    KafkaUnavailable,
    connector,
    connector_name,
)

KILLS = (
    Kill("FINISHED", 1, "both tables committed, not acknowledged"),
    Kill("JOURNALED", 2, "the other table committed, events not"),
    Kill("PUBLISHED", 3, "snapshot published, not acknowledged"),
    Kill("STAGED", 4, "commit prepared, snapshot not published"),
)


@dataclass(frozen=True)
class KafkaRoom(Room):
    """The source is two topics of Kafka; the tables and the checkpoint are on this machine."""

    brokers: str = ""

    @property
    def topics(self) -> tuple[str, str]:
        """The names of the topics, which no other run uses."""
        return f"{self.folder.name}-eu", f"{self.folder.name}-us"

    @property
    def source(self) -> str:  # type: ignore[override]
        """Where the job reads."""
        return f"{self.brokers} {','.join(self.topics)}"

    @property
    def table(self) -> Path:
        """The table of events."""
        return self.folder / "warehouse" / "demo.db" / "events"

    @property
    def rejected(self) -> Path:
        """The table of the other records."""
        return self.table.with_name("events_rejected")


def send_all(kafka: KafkaClient, topics: tuple[str, ...]) -> int:
    """Creates the topics, and sends each of them a half of the records. Returns how many."""
    sent = list(records())
    for number, topic in enumerate(topics):
        kafka.create(topic, partitions=3)
        kafka.send(topic, sent[number :: len(topics)])
    return len(sent)


def each_offset_once(kafka: KafkaClient, room: KafkaRoom) -> bool:
    """Whether each offset of the topics is in one row of the two tables. Prints what is found."""
    place = ["topic", "partition", "offset"]
    rows: Counter[tuple[str, int, int]] = Counter()
    for table in (room.table, room.rejected):
        columns = PaimonTable.load(str(table)).to_arrow(columns=place)
        rows.update(zip(*(columns[name].to_pylist() for name in place), strict=True))
    sent = {
        (topic, partition, offset)
        for topic in room.topics
        for partition, end in kafka.ends(topic).items()
        for offset in range(end)
    }
    lost, doubled = len(sent - set(rows)), sum(count > 1 for count in rows.values())
    print(f"\nOffsets in Kafka {len(sent):,} · in no table {lost} · in more than one row {doubled}")
    return set(rows) == sent and doubled == 0


def print_rejected(room: KafkaRoom) -> int:
    """Prints the reasons of the records that are no events. Returns their number."""
    reasons = Counter(PaimonTable.load(str(room.rejected)).to_arrow()["reason"].to_pylist())
    print(f"\n{sum(reasons.values())} records are no events. The second table keeps their bytes:")
    for reason, count in reasons.most_common():
        print(f"  {count:>4}  {reason}")
    return sum(reasons.values())


def run_demo(room: KafkaRoom, kafka: KafkaClient, kills: tuple[Kill, ...]) -> int:
    """Runs all three steps. Returns the exit code."""
    began = time.monotonic()
    count = send_all(kafka, room.topics)
    print(f"{count:,} records are in two topics of Kafka at {kafka.address}.")
    runs = stream_through_kills(room, -(-count // PER_BATCH), kills, "kafka_killed.py")
    print_runs(runs)
    source = summarize("sent to Kafka", events(), ARROW_SCHEMA, SUMMED, "day")
    own = PaimonTable.load(str(room.table)).to_arrow()
    readers = [
        *independent_readers(room, room.table, "kafka_check.py"),
        summarize("paimon_stream", own, ARROW_SCHEMA, SUMMED, "day"),
    ]
    agreed = print_agreement(source, readers, SUMMED)
    rejected = print_rejected(room)
    once = each_offset_once(kafka, room)
    print(f"\nThe tables stay in {room.table.parent.relative_to(HOME)}")
    print(f"The demo took {time.monotonic() - began:.0f} s.")
    if not (agreed and once):
        print("FAILED: the tables do not hold what was sent.")
        return 1
    print(f"OK: {source.rows:,} events in one table and {rejected} other records in the second,")
    print(f"after {len(kills)} kill{'s' * (len(kills) != 1)}: each record of Kafka exactly once.")
    return 0


def connector_arguments(packages: str | None) -> str:
    """What tells Spark its connector: `packages`, or jars without it. Empty for that of this Spark."""
    if packages is None:
        return f"--jars {','.join(connector())}"
    return f"--packages {packages or connector_name()}"


def main() -> int:
    """Reads the arguments, and runs the demo. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Streams Kafka into a table, through kill -9.")
    parser.add_argument(
        "--brokers", metavar="HOST:PORT", help="a Kafka that is there; two topics stay in it"
    )
    parser.add_argument(
        "--packages",
        metavar="NAME",
        nargs="?",
        const="",
        help="let Spark fetch its connector, that of this Spark or this one",
    )
    parser.add_argument(
        "--kills", type=int, default=4, choices=range(5), help="how many, at most 4"
    )
    arguments = parser.parse_args()
    if arguments.brokers:
        from kafka_stream import explained, stop_without_broker

        stop_without_broker(arguments.brokers)
    try:
        named = connector_arguments(arguments.packages)
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{named} pyspark-shell"
        with KafkaClient(arguments.brokers) if arguments.brokers else KafkaBroker() as kafka:
            room = KafkaRoom(new_room("kafka").folder, "events", kafka.address)
            return run_and_report(room, lambda _: run_demo(room, kafka, KILLS[: arguments.kills]))
    except KafkaUnavailable as why:
        if arguments.brokers and "TimeoutException" in str(why):
            print(explained(why, arguments.brokers, ""), file=sys.stderr)
            return 1
        print(f"Kafka, or its connector, cannot be had here: {why}", file=sys.stderr)
        return 1 if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1" or arguments.brokers else 0


if __name__ == "__main__":
    sys.exit(main())
