"""On S3, Java Paimon looks whether a snapshot is there, and copies its own to that name later. If
it is held in between, its copy replaces a commit of ours that was published and reported. The
stream says so, the command commits the batch again, and Java reads each row once.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from paimon_stream import CommitReport, PaimonSink, PaimonTable
from paimon_stream.cli.app import cli
from paimon_stream.errors import CommitLost, PaimonStreamError
from tests.kits.java_catalogs import java_with_s3
from tests.kits.spark_jobs import ROWS_PER_FILE, Job
from tests.kits.stores import StoreServer
from tests.servers.fault_proxy import FaultProxy, Rule

COLUMNS = [("id", "BIGINT NOT NULL"), ("day", "STRING NOT NULL")]
WAIT = 60
OF_JAVA = 1000


@dataclass
class HeldJava:
    """Java Paimon whose requests pass through a proxy, which holds its first copy."""

    paimon: Any
    proxy: FaultProxy
    failed: list[BaseException]
    thread: threading.Thread | None = None

    def begin(self, location: str) -> None:
        """Lets Java commit one row, up to the copy that makes its snapshot visible."""
        self.proxy.add(
            Rule("hold", method="PUT", path="snapshot/snapshot-", head="x-amz-copy-source")
        )
        row = {"id": OF_JAVA, "day": "java"}
        self.thread = threading.Thread(target=self._write, args=(location, row))
        self.thread.start()
        assert self.proxy.struck.wait(WAIT), "Java does not copy"

    def finish(self) -> None:
        """Lets the copy go on, and waits for Java's success."""
        assert self.thread is not None
        self.proxy.release()
        self.thread.join(WAIT)
        assert not self.failed and not self.thread.is_alive()

    def _write(self, location: str, row: dict[str, Any]) -> None:
        try:
            self.paimon.write(location, [row], "java", 1)
        except BaseException as failed:  # noqa: BLE001 - the test reports it
            self.failed.append(failed)


@pytest.fixture
def held_java(java: Any, s3_server: StoreServer) -> Iterator[HeldJava]:
    with s3_server.proxied() as proxy:
        yield HeldJava(java_with_s3(java, s3_server.options(proxy)), proxy, [])


@dataclass
class Shop:
    """A stream of Spark into a table on S3."""

    job: Job
    location: str
    options: dict[str, str]
    sink: PaimonSink | None = None

    @property
    def table(self) -> PaimonTable:
        return PaimonTable.load(self.location, storage_options=self.options)

    def run(self, on_commit: Any = None) -> None:
        """Runs all batches that the source has."""

        def committed(report: CommitReport) -> None:
            self.job.reports.append(report)
            if on_commit is not None:
                on_commit(report)

        self.sink = PaimonSink(self.location, storage_options=self.options, on_commit=committed)
        self.job.run(self.sink)

    def run_to_the_loss(self, on_commit: Any = None) -> PaimonStreamError:
        with pytest.raises(Exception, match="CommitLost"):
            self.run(on_commit)
        assert self.sink is not None and isinstance(self.sink.last_error, CommitLost)
        return self.sink.last_error

    def command(self, error: PaimonStreamError, *more: str) -> Any:
        """Runs the command that the error names."""
        words = shlex.split(error.context["command"])
        given = [
            part for one in self.options.items() for part in ("--storage-option", "=".join(one))
        ]
        return CliRunner().invoke(cli, [*words[1:], *given, *more])


@pytest.fixture
def shop(spark_session: SparkSession, tmp_path: Path, s3_server: StoreServer) -> Shop:
    spark_session.sparkContext.setLogLevel("OFF")
    location, options = s3_server.place()
    PaimonTable.create(location, COLUMNS, storage_options=options)
    return Shop(Job(spark_session, tmp_path), location, options)


@pytest.mark.full
@pytest.mark.parametrize("seen", ["by the running stream", "at a restart"])
def test_java_replaces_our_commit_and_the_rows_come_back(
    shop: Shop, held_java: HeldJava, seen: str
) -> None:
    shop.job.add_files(1)
    shop.run()
    held_java.begin(shop.location)
    shop.job.add_files(2 if seen == "by the running stream" else 1)
    if seen == "by the running stream":
        lost = shop.run_to_the_loss(lambda report: held_java.finish())  # right after batch 1
    else:
        shop.run()
        held_java.finish()
        shop.job.add_files(1)
        lost = shop.run_to_the_loss()
    assert [report.snapshot_id for report in shop.job.reports] == [1, 2]
    assert shop.table.latest_snapshot().commit_user == "java"
    ids = sorted(row["id"] for row in held_java.paimon.read(shop.location))
    assert ids == [*range(ROWS_PER_FILE), OF_JAVA]  # rows that we had reported are gone
    for part in (f"{ROWS_PER_FILE} in ", "'java'", "paimon-stream recommit"):
        assert part in str(lost)

    tried = shop.command(lost)
    assert (tried.exit_code, shop.table.latest_snapshot().id) == (5, 2), tried.output
    assert f"{ROWS_PER_FILE} rows would be committed again. All of them exist." in tried.stdout
    done = shop.command(lost, "--yes")
    assert (done.exit_code, shop.table.latest_snapshot().id) == (0, 3), done.output
    again = shop.command(lost, "--yes")
    assert "There is nothing to do" in again.stdout
    assert shop.table.latest_snapshot().id == 3

    shop.job.add_files(1)
    shop.run()
    assert [report.identifier for report in shop.job.reports] == [0, 1, 2, 3]
    expected = [*range(4 * ROWS_PER_FILE), OF_JAVA]
    assert sorted(row["id"] for row in held_java.paimon.read(shop.location)) == expected
    assert sorted(shop.table.to_arrow()["id"].to_pylist()) == expected
    assert shop.table.verify().healthy
