"""A driver of a stream without Spark, in a process of its own: it plans, judges, writes and commits
batches as the sink does, compacts and expires behind them, and keeps a checkpoint as Spark does.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from paimon_stream.catalogs.opening import open_storage
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.runtime import system
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.compacting import StreamCompaction
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch, for_driver
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kills.deaths import AT_A_POINT, BETWEEN, MOST_BATCHES, Death, Diary, die
from tests.kills.streams import Stream
from tests.kits.keyed import write_changes
from tests.kits.steps import numbered, rows
from tests.kits.tables import write_rows
from tests.servers._process import die_with_parent

CHECKPOINT, DIARY, ERROR = "checkpoint", "diary", "error"


@dataclass(frozen=True)
class Life:
    """What a process of a stream is told. `batches` is the number of batches in the checkpoint
    after which it ends; None for one that is to be killed.
    """

    number: int
    run: int
    root: str
    location: str
    storage_options: dict[str, str] = field(repr=False)
    death: Death
    batches: int | None = None


def live(life: Life, driver: type[Driver] | None = None) -> None:
    """Runs batches until this process is killed, or at its end. An error is left in a file."""
    die_with_parent()
    try:
        (driver or Driver)(life).run()
    except BaseException:
        (Path(life.root) / ERROR).write_text(traceback.format_exc())
        raise


class Driver:
    """A run of a stream."""

    def __init__(self, life: Life) -> None:
        self.life, self.stream = life, Stream.of(life.number)
        last_point = life.death.at if life.death.how == AT_A_POINT else None
        self.diary = Diary(Path(life.root) / DIARY, last_point)
        self.checkpoint = open_checkpoint(str(Path(life.root) / CHECKPOINT))
        self.log = LocalStorage(self.checkpoint.root)
        if self.checkpoint.query_id() is None:
            self.log.write("metadata", json.dumps({"id": f"query-{life.number}"}).encode())
        storage = life.death.arm(open_storage(life.location, life.storage_options))
        self.writer = StreamWriter(
            storage=storage,
            identity=self.identity(),
            options=dict(self.stream.kind.sink_options),
            observer=self.diary,
        )
        self.compaction = StreamCompaction()
        self.after_commit = AfterCommit(protect=protect_last_snapshot)

    def identity(self) -> WriterIdentity:
        """Who writes. All runs of a stream have the same user."""
        query = self.checkpoint.query_id()
        return WriterIdentity(
            user=f"paimon-stream_{query}",
            query_id=query,
            run_id=f"run-{self.life.run}",
            checkpoint=self.checkpoint.root,
            token=f"sink-{self.life.run}",
        )

    def run(self) -> None:
        """Runs the batches that are left, the first of them again if it was planned."""
        for begun in count():
            done = self.checkpoint.done_batch()
            batch_id = 0 if done is None else done + 1
            if self.life.batches is None:
                if begun == MOST_BATCHES and self.life.death.seconds is None:
                    self.diary.write(BETWEEN)
                    die()
            elif batch_id >= self.life.batches:
                break
            self.plan(batch_id)
            self.batch(batch_id)
            self.acknowledge(batch_id)
        self.compaction.close()

    def plan(self, batch_id: int) -> None:
        """Notes the batch before it is run, as Spark does. One that is noted stays as it is."""
        if self.checkpoint.offsets_hash(batch_id) is None:
            at = system().clock.now_millis()
            facts = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": at})
            self.log.write(f"offsets/{batch_id}", f"v1\n{facts}\n{batch_id}".encode())

    def acknowledge(self, batch_id: int) -> None:
        """Notes the batch as done."""
        self.log.write(f"commits/{batch_id}", b"v1\n{}")

    def batch(self, batch_id: int) -> None:
        """Judges, writes and commits one batch, and does what follows."""
        writer = self.writer
        batch = Batch(
            batch_id=batch_id,
            offsets_hash=self.checkpoint.offsets_hash(batch_id),
            previous_done_millis=self.checkpoint.last_done_millis(batch_id),
        )
        settled = writer.write(batch, rows(self.write))
        writer.compact(self.compaction, settled)
        if settled.report.outcome == "committed" and writer.standing.newest is not None:
            self.after_commit(writer.table, writer.standing.newest)

    def write(self, judged: JudgedBatch) -> WrittenBatch:
        """Writes the data files of a batch: as the sink's driver does, or as its tasks do."""
        changes = self.stream.kind.changes(judged.batch.batch_id)
        numbering, first, index = numbered(judged)
        buffered = judged.buffered() if self.stream.by_driver else None
        table = for_driver(judged.table, buffered)
        if not self.stream.kind.primary_keys:
            made = write_rows(table, [row for _, row in changes])
            return judged.written(made, buffered=buffered)
        made = write_changes(table, changes, first_sequence=first, index=index).messages
        return judged.written(made, numbering=numbering, buffered=buffered)
