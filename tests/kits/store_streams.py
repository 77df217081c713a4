"""Streams of rows to tables in object stores, without Spark, and readers that share no code with
us.
"""

from __future__ import annotations

import json
import subprocess
import traceback
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import PaimonStreamError
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.location import store_location
from paimon_stream.storage.object_store import ObjectStorage
from paimon_stream.storage.store_sources import settings_of
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits.other_engines import PYTHON
from tests.kits.steps import Messages, run_batch
from tests.kits.stores import SECRETS, StoreServer
from tests.kits.tables import write_rows
from tests.servers.fault_proxy import FaultProxy
from tests.servers.gateway import Gateway

QUICK = {
    "paimon-stream.store.timeout": "1 s",
    "paimon-stream.store.max-retries": "2",
    "paimon-stream.store.max-outage": "0 s",
}


@dataclass
class RowStream:
    """A stream that writes the rows 2n and 2n+1 in its batch n, to a new table behind a proxy.
    After a failure a new run repeats the batch, as after a restart of its query.
    """

    server: StoreServer
    proxy: FaultProxy | Gateway
    store: dict[str, str] = field(default_factory=lambda: dict(QUICK))
    table: dict[str, Any] = field(default_factory=dict)
    runtime: Runtime = field(default_factory=system)
    location: str = ""
    user: str = "me"
    next_batch: int = 0
    runs: int = 0
    errors: list[PaimonStreamError] = field(default_factory=list)
    writer: StreamWriter | None = None

    def __post_init__(self) -> None:
        options = self.server.options()
        if not self.location:
            self.location, _ = self.server.place()
            columns = [("id", "BIGINT NOT NULL"), ("name", "STRING")]
            PaimonTable.create(self.location, columns, storage_options=options, **self.table)
        self.direct = PaimonTable.load(self.location, storage_options=options)
        made = settings_of(
            store_location(self.location), {**self.server.options(self.proxy), **self.store}
        )
        self.storage = ObjectStorage(made, runtime=self.runtime)

    def start(self) -> StreamWriter:
        """Begins a new run."""
        self.runs += 1
        identity = WriterIdentity(
            user=self.user, query_id="q", run_id=f"r{self.runs}", token=f"t{self.runs}"
        )
        self.writer = StreamWriter(
            storage=self.storage, identity=identity, options={}, runtime=self.runtime
        )
        return self.writer

    def batch(self, restarts: int = 6) -> None:
        """Runs the next batch, in new runs after failures."""
        for left in reversed(range(restarts + 1)):
            try:
                self._try()
                break
            except PaimonStreamError as failed:
                self.errors.append(failed)
                self.writer = None
                check_silent(failed)
                if not left:
                    raise
        self.next_batch += 1

    def _try(self) -> None:
        writer = self.writer or self.start()
        batch = Batch(batch_id=self.next_batch, offsets_hash=f"offsets-{self.next_batch}")

        def written(judged: JudgedBatch) -> Messages:
            table = replace(judged.table, storage=self.storage)
            ids = (2 * self.next_batch, 2 * self.next_batch + 1)
            return write_rows(table, [{"id": n, "name": f"n{n}"} for n in ids])

        run_batch(writer, batch, written)

    @property
    def expected(self) -> list[int]:
        """The ids of all batches that are done."""
        return list(range(2 * self.next_batch))

    def check(self) -> None:
        """Nothing is lost, nothing is there twice. This is cheap enough for each batch."""
        latest = self.direct.latest_snapshot()
        assert latest is not None
        assert latest.total_record_count == 2 * self.next_batch, f"batch {self.next_batch - 1}"

    def audit(self) -> None:
        """Each row is there once, and no file is missing that a snapshot refers to."""
        assert sorted(self.direct.to_arrow()["id"].to_pylist()) == self.expected
        assert [one.id for one in self.direct.snapshots()] == list(range(1, self.next_batch + 1))
        found = self.direct.verify()
        assert found.healthy, found


def check_silent(error: BaseException | None) -> None:
    """No secret, no address and no word of the server is in an error, or in what hangs on it."""
    while error is not None:
        shown = repr((error, error.args, vars(error), traceback.format_exception(error)))
        assert not any(
            text in shown for text in (*SECRETS, "http://", "planned fault", "<Error")
        ), shown
        error = error.__cause__ or error.__context__


class OtherReader:
    """pypaimon, in a process of its own, which reads tables on S3."""

    def __init__(self, server: StoreServer) -> None:
        if not PYTHON.exists():
            pytest.skip("other readers have a venv of their own: make .venv-readers/.ready")
        given = {name: value for name, value in server.options().items() if name.startswith("s3.")}
        options = {"warehouse": "s3://bucket/wh", "s3.region": "us-east-1", **given}
        self._child = subprocess.Popen(
            [PYTHON, "-c", _READER, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ids(self, location: str) -> list[int]:
        """The ids in a table, sorted."""
        assert self._child.stdin is not None and self._child.stdout is not None
        print(f"db.{location.rsplit('/', 1)[1]}", file=self._child.stdin, flush=True)
        return sorted(json.loads(self._child.stdout.readline()))

    def close(self) -> None:
        """Ends the process."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(900)


_READER = """
import json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from pypaimon import CatalogFactory
catalog = CatalogFactory.create(json.loads(sys.argv[1]))
for line in sys.stdin:
    builder = catalog.get_table(line.strip()).new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    print(json.dumps(rows["id"].to_pylist()), file=out, flush=True)
"""
