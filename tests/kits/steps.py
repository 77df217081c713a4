"""Batches of a stream without Spark: whole, or step by step for tests that do something in between."""

from __future__ import annotations

from collections.abc import Callable

from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.sequence import Numbering
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.stream.judging import judge_batch
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.publishing import publish_batch
from paimon_stream.stream.settling import settle, settle_found
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Reuse
from paimon_stream.stream.writer import StreamWriter

Messages = tuple[CommitMessage, ...]


def rows(write: Callable[[JudgedBatch], WrittenBatch | Messages], *, again: bool = True) -> Rows:
    """The rows of a batch that `write` writes, unless an earlier run has prepared its files."""

    def written(judged: JudgedBatch) -> WrittenBatch:
        if isinstance(judged.verdict, Reuse):
            return judged.written(judged.verdict.entry.messages)
        made = write(judged)
        return made if isinstance(made, WrittenBatch) else judged.written(made)

    return Rows(write=written, again=again)


def numbered(judged: JudgedBatch) -> tuple[Numbering | None, int, str | None]:
    """The numbering of rows that are about to be written, the first number, and the index manifest
    by which keys get their dynamic buckets.
    """
    numbering = judged.numbers()
    return (None, 0, None) if numbering is None else (numbering, numbering.first, numbering.index)


def run_batch(
    writer: StreamWriter,
    batch: Batch,
    write: Callable[[JudgedBatch], WrittenBatch | Messages],
) -> CommitReport:
    """Runs one batch as the sink does."""
    return writer.write(batch, rows(write)).report


def judge(writer: StreamWriter, batch: Batch) -> JudgedBatch:
    """Only judges the batch."""
    return judge_batch(writer.run, writer.standing, batch)


def commit(writer: StreamWriter, written: WrittenBatch) -> CommitReport:
    """Publishes a batch that is written, and ends it."""
    settled = settle(publish_batch(written))
    writer.standing = settled.standing
    return settled.report


def already(writer: StreamWriter, judged: JudgedBatch) -> CommitReport:
    """Ends a batch that an earlier run has committed."""
    assert isinstance(judged.verdict, AlreadyCommitted)
    settled = settle_found(judged, judged.verdict)
    writer.standing = settled.standing
    return settled.report
