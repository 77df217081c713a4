"""A small streaming job: a folder of Parquet files, a table, a checkpoint, and its results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from paimon_stream import CommitReport, PaimonSink, PaimonTable

COLUMNS = (("id", "BIGINT"), ("day", "STRING"))
ROWS_PER_FILE = 6
TIMEOUT_SECONDS = 900


@dataclass
class Job:
    """A streaming job whose files are all below `root`. Each source file is one batch."""

    spark: SparkSession
    root: Path
    schema: str = "id bigint, day string"
    reports: list[CommitReport] = field(default_factory=list)

    @property
    def table(self) -> Path:
        return self.root / "shop.db" / "orders"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    def create(self, columns: Iterable[tuple[str, str]] = COLUMNS, **arguments: Any) -> PaimonTable:
        return PaimonTable.create(str(self.table), schema=list(columns), **arguments)

    def load(self) -> PaimonTable:
        return PaimonTable.load(str(self.table))

    def add_files(self, count: int) -> None:
        """Adds files of six rows with consecutive ids. Spark reads them in this order."""
        folder = self.root / "source"
        folder.mkdir(exist_ok=True)
        for number in range(len(list(folder.iterdir())), len(list(folder.iterdir())) + count):
            ids = list(range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE))
            self.write_source(number, pa.table({"id": ids, "day": [f"d{i % 2}" for i in ids]}))

    def write_source(self, number: int, rows: pa.Table) -> None:
        folder = self.root / "source"
        folder.mkdir(exist_ok=True)
        path = folder / f"{number:04d}.parquet"
        pq.write_table(rows, path)
        seconds = 1_700_000_000 + number
        os.utime(path, (seconds, seconds))

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.root / "source"))

    def sink(self, **arguments: Any) -> PaimonSink:
        return PaimonSink(str(self.table), **{"on_commit": self.reports.append, **arguments})

    def run(
        self,
        function: Any = None,
        *,
        frame: DataFrame | None = None,
        output_mode: str = "append",
        checkpoint: Path | None = None,
        name: str | None = None,
    ) -> Any:
        """Runs a query with plain foreachBatch over all existing files, to its end."""
        writer = (self.stream() if frame is None else frame).writeStream.outputMode(output_mode)
        if name is not None:
            writer = writer.queryName(name)
        query = (
            writer.foreachBatch(self.sink() if function is None else function)
            .option("checkpointLocation", str(checkpoint or self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_SECONDS), "the query hangs"
        finally:
            query.stop()
        return query

    def run_failing(self, function: Any = None, **arguments: Any) -> str:
        """Runs a query that must fail. Returns the text that its user reads."""
        with pytest.raises(StreamingQueryException) as caught:
            self.run(function, **arguments)
        return str(caught.value)

    def forget_last_batch(self) -> int:
        """Removes the newest entry of Spark's commit log, so that a restart replays it."""
        return forget(self.checkpoint / "commits")

    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of the table, read from its live files."""
        found: list[Mapping[str, Any]] = []
        for file in self.load().files():
            found.extend(pq.ParquetFile(file.path).read().to_pylist())
        return found

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def data_files(self) -> set[str]:
        """All data files on disk, live or not."""
        return {path.name for path in self.table.rglob("data-*")}

    def identifiers(self) -> list[int]:
        return [snapshot.commit_identifier for snapshot in self.load().snapshots()]


def forget(log: Path) -> int:
    """Removes the newest entry of one of Spark's logs. Returns its batch id."""
    newest = max(int(path.name) for path in log.iterdir() if path.name.isdigit())
    (log / str(newest)).unlink()
    (log / f".{newest}.crc").unlink(missing_ok=True)
    return newest


def copy_folder(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
