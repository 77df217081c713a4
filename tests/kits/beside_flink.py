"""A table that a Flink (`kits/flink.py`) and this package share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import CommitUnknown
from tests.kits.flink import Flink, Job

COLUMNS: Final = [("id", "BIGINT NOT NULL"), ("v", "INT"), ("s", "STRING")]
LIVE: Final = "'continuous.discovery-interval' = '200 ms'"
LONGEST: Final = 300
"""What has not come after this number of seconds does not come."""

Rows = Counter[tuple[Any, ...]]


class Shared:
    """A new table in Flink's warehouse."""

    def __init__(
        self,
        flink: Flink,
        name: str,
        keys: Sequence[str] = (),
        partitions: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.flink = flink
        self.name = f"db.{name}"
        self.location = f"{flink.warehouse}/db.db/{name}"
        PaimonTable.create(
            self.location,
            schema=COLUMNS,
            primary_keys=keys,
            partition_keys=partitions,
            options=dict(options or {}),
        )

    @property
    def table(self) -> PaimonTable:
        return PaimonTable.load(self.location)

    def append(
        self,
        ids: Iterable[int],
        v: int = 0,
        kind: str | None = None,
        identity: str | None = None,
    ) -> None:
        """We append a row of each id, whose column v has `v` and the id. With a kind, such as -D,
        the table gets changes of that kind. With an identity, the same call can be repeated.
        """
        keys = list(ids)
        columns = {
            "id": pa.array(keys, pa.int64()),
            "v": pa.array([v + key for key in keys], pa.int32()),
            "s": pa.array([f"p{key % 3}" for key in keys]),
        }
        if kind is None:
            self.table.append(pa.table(columns), missing_columns="null", identity=identity)
        else:
            columns["kind"] = pa.array([kind] * len(keys))
            self.table.append(pa.table(columns), operation_column="kind", identity=identity)

    def ours(self) -> Rows:
        """The rows that we read."""
        return Counter(tuple(row.values()) for row in self.table.to_arrow().to_pylist())

    def flinks(self) -> Rows:
        """The rows that Flink reads."""
        return Counter(self.flink.rows(f"SELECT * FROM {self.name}"))

    def ids(self) -> Counter[int]:
        """The ids that we read."""
        return Counter(self.table.to_arrow(columns=["id"]).column("id").to_pylist())

    def codes(self) -> set[str]:
        """What `verify` finds."""
        findings = self.table.verify(sample=1000).findings
        return {finding.code for finding in findings if finding.severity != "info"}

    def fill(self, job: str, first: int, count: int, a_second: int = 150) -> Job:
        """Flink begins to append rows with consecutive ids, as a stream that ends. `job` is the name
        of its source.
        """
        self.flink.define(
            f"CREATE TEMPORARY TABLE {job} (id BIGINT, v INT, s STRING) WITH ('connector' = 'datagen', "
            f"'rows-per-second' = '{a_second}', 'fields.id.kind' = 'sequence', 'fields.id.start' = '{first}', "
            f"'fields.id.end' = '{first + count - 1}', 'fields.s.length' = '3')"
        )
        return self.flink.start(f"INSERT INTO {self.name} SELECT * FROM {job}")


def repeated(write: Callable[[], object]) -> None:
    """Makes a write that can be repeated until it is known to be there. Flink does not publish
    atomically on a local disk. It may replace our snapshot, and then a commit can end unknown.
    """
    while True:
        try:
            write()
        except CommitUnknown:
            continue
        else:
            return


def wait_until(met: Callable[[], object], job: Job) -> None:
    """Waits until the condition holds, while the job goes on."""
    end = time.monotonic() + LONGEST
    while not met():
        assert time.monotonic() < end, job.status()
        assert "FAILED" not in job.status(), job.status()
        time.sleep(0.1)
