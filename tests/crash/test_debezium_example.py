"""A table of PostgreSQL, through Debezium and Kafka: a stream that is killed, and a slot that is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.clusters import wait_until
from tests.kits.stores import started
from tests.servers import postgres
from tests.servers.debezium import Debezium
from tests.servers.kafka import KafkaBroker

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from debezium_data import CREATE, SOURCE, TOPIC, Database, insert  # noqa: E402


@pytest.mark.full
@pytest.mark.parametrize("kills", [0, 4])
def test_the_table_has_the_rows_of_the_database_after_kills(kills: int) -> None:
    command = [sys.executable, str(EXAMPLES / "debezium.py"), "--kills", str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if "cannot run here" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert f"Kills of the stream: {kills}, of Debezium: 1." in done.stdout


@pytest.mark.full
def test_debezium_names_a_slot_that_is_gone_and_sends_no_change_behind_the_gap(
    tmp_path: Path,
) -> None:
    with (
        started(lambda folder: postgres.start(folder, "wal_level=logical")) as server,
        started(lambda _: KafkaBroker(), "pyspark") as kafka,
    ):
        database = Database(postgres.program("psql"), server.conninfo)
        database.wait()
        database.run(CREATE + insert(1, 3))
        kafka.create(TOPIC)
        folder = tmp_path / "debezium"
        with Debezium(folder, server, kafka.address, [SOURCE]) as debezium:
            wait_until(lambda: kafka.ends(TOPIC) == {0: 3}, "the snapshot")
            database.run(insert(4, 1))
            wait_until(lambda: kafka.ends(TOPIC) == {0: 4}, "the change")
            wait_until((folder / "offsets").exists, "the noted position")
            debezium.kill()
            in_use = "SELECT count(*) FROM pg_replication_slots WHERE active"
            wait_until(lambda: database.run(in_use).strip() == "0", "the end of the connection")
            database.run("SELECT pg_drop_replication_slot('debezium')")
            database.run(insert(5, 1))
            debezium.start()
            wait_until(lambda: not debezium.is_running, "Debezium's end")
        said = debezium.log.read_text()
        assert "The connector is trying to read change stream starting at" in said
        assert "no longer available on the server" in said
        assert kafka.ends(TOPIC) == {0: 4}
