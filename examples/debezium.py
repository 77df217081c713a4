"""Demo of changes: a table of PostgreSQL and its Paimon table have the same rows at the end.

    python debezium.py [--kills 0 to 4]

1. A PostgreSQL, a Kafka and Debezium are started on this machine. Orders are inserted, updated and
   deleted, and some get other primary keys. Debezium reads the changes from the log and sends them
   to Kafka. It is killed in the middle, and sends its last events again.
2. A job streams the events into a table with a primary key, which was made without options. The job
   and its JVM are killed with SIGKILL at up to four moments. Each time the job is started again.
   The stream compacts the table meanwhile.
3. Java Paimon, pypaimon and paimon_stream itself read the table. Row count, sums and a checksum of
   each day must equal those of the rows that the database has.

Each run works in a new folder under `demo-data/` and leaves the table there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parent.parent
sys.path.insert(0, str(HOME))

from debezium_data import (  # noqa: E402 - the checkout has the servers of the tests
    ARROW_SCHEMA,
    CREATE,
    END,
    FINISH,
    FIRST_ROWS,
    PER_BATCH,
    ROUNDS,
    SOURCE,
    SUMMED,
    TABLE,
    TOPIC,
    Database,
    insert,
    rounds,
)
from flights import (  # noqa: E402
    DemoFailed,
    Kill,
    Room,
    independent_readers,
    new_room,
    print_agreement,
    print_what_happened,
    run_and_report,
    stream_through_kills,
)
from flights_check import summarize  # noqa: E402

from paimon_stream import PaimonTable  # noqa: E402
from tests.servers import postgres  # noqa: E402
from tests.servers.debezium import Debezium, DebeziumUnavailable, jars  # noqa: E402
from tests.servers.kafka import KafkaBroker, KafkaUnavailable, connector  # noqa: E402

KILLS = (
    Kill("PUBLISHED", 1, "snapshot published, not acknowledged"),
    Kill("JOURNALED", 3, "files written, nothing committed"),
    Kill("WRITTEN", 4, "files written, nothing noted"),
    Kill("FINISHED", 5, "sink returned, Spark has not noted it"),
)
MOST_SECONDS = 300


@dataclass(frozen=True)
class ChangesRoom(Room):
    """The source is a topic of Kafka; the table and the checkpoint are on this machine."""

    brokers: str = ""

    @property
    def source(self) -> str:  # type: ignore[override]
        """Where the job reads."""
        return self.brokers


def wait_for(kafka: KafkaBroker, debezium: Debezium, topic: str, records: int) -> int:
    """Waits until a topic has at least this number of records. Returns the number that it has."""
    deadline = time.monotonic() + MOST_SECONDS
    while (count := sum(kafka.ends(topic).values())) < records:
        if not debezium.is_running or time.monotonic() > deadline:
            raise DemoFailed(f"{topic} has {count} records of {records}. {debezium.said()}")
        time.sleep(0.2)
    return count


def make_changes(
    database: Database, kafka: KafkaBroker, folder: Path, server: postgres.Postgres
) -> int:
    """Changes the orders while Debezium reads. Returns the number of records in Kafka."""
    kafka.create(TOPIC, partitions=3)
    kafka.create(f"shop.{END}")
    database.run(CREATE + insert(1, FIRST_ROWS))
    with Debezium(folder, server, kafka.address, [SOURCE, END]) as debezium:
        wait_for(kafka, debezium, TOPIC, FIRST_ROWS)
        for number, statements in enumerate(rounds()):
            database.run(statements)
            if number == ROUNDS // 2:
                debezium.kill()
                debezium.start()
        database.run(FINISH)
        wait_for(kafka, debezium, f"shop.{END}", 1)
        return wait_for(kafka, debezium, TOPIC, FIRST_ROWS)


def run_demo(
    room: ChangesRoom, kafka: KafkaBroker, server: postgres.Postgres, kills: tuple[Kill, ...]
) -> int:
    """Runs all three steps. Returns the exit code."""
    began = time.monotonic()
    database = Database(postgres.program("psql"), server.conninfo)
    database.wait()
    count = make_changes(database, kafka, room.folder / "debezium", server)
    print(f"{count:,} events of {SOURCE} are in Kafka; Debezium was killed once.")
    table = PaimonTable.create(str(room.table), schema=TABLE, primary_keys=["id"])
    runs = stream_through_kills(room, -(-count // PER_BATCH), kills, "debezium_stream.py")
    print_what_happened(room, runs, time.monotonic() - began)
    source = summarize("PostgreSQL", database.orders(), ARROW_SCHEMA, SUMMED, "placed")
    readers = [
        *independent_readers(room, room.table, "debezium_check.py"),
        summarize("paimon_stream", table.to_arrow(), ARROW_SCHEMA, SUMMED, "placed"),
    ]
    agreed = print_agreement(source, readers, SUMMED)
    compactions = sum(snapshot.commit_kind.value == "COMPACT" for snapshot in table.snapshots())
    print(f"\nThe stream has compacted the table {compactions} times.")
    print(f"The table stays in {Path(str(room.table)).relative_to(HOME)}")
    print(f"The demo took {time.monotonic() - began:.0f} s.")
    if not agreed or not compactions:
        print("FAILED: the table does not hold what the database holds, or was not compacted.")
        return 1
    print(f"OK: {source.rows:,} rows in PostgreSQL and in the table, every day's checksum equal,")
    print(f"deletes included. Kills of the stream: {len(kills)}, of Debezium: 1.")
    return 0


def main() -> int:
    """Reads the arguments, and runs the demo. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Follows a table of PostgreSQL, through kill -9.")
    parser.add_argument(
        "--kills", type=int, default=4, choices=range(5), help="how many, at most 4"
    )
    kills = KILLS[: parser.parse_args().kills]
    sys.stdout.reconfigure(line_buffering=True)
    try:
        jars()
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(connector())} pyspark-shell"
        with (
            tempfile.TemporaryDirectory() as folder,
            postgres.start(Path(folder), "wal_level=logical") as server,
            KafkaBroker() as kafka,
        ):
            room = ChangesRoom(new_room("debezium").folder, "orders", kafka.address)
            return run_and_report(room, lambda _: run_demo(room, kafka, server, kills))
    except (DebeziumUnavailable, KafkaUnavailable, RuntimeError) as why:
        print(f"This demo cannot run here: {why}", file=sys.stderr)
        return 1 if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1" else 0


if __name__ == "__main__":
    sys.exit(main())
