"""The four steps of one batch: judge, rows, publish, settle (exactly-once.md). `foreachBatch` and
the data source both use them, and they need no Spark.

    judge_batch ──► rows.write ──► publish_batch ──► settle  each takes what the one before hands on
     judging.py                  publishing.py  settling.py   (steps.py)

A batch that is merged into the rows of the table has its own way from the second step to the third
(merged_batch.py).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from paimon_stream.commit.sequence import MOST_REWRITES
from paimon_stream.errors import SequenceConflict
from paimon_stream.stream.judging import judge_batch
from paimon_stream.stream.merged_batch import MergeSource, merge_batch
from paimon_stream.stream.publishing import BeforeCommit, publish_batch
from paimon_stream.stream.run import StreamRun
from paimon_stream.stream.sequence_conflicts import rewrites
from paimon_stream.stream.settling import settle, settle_found
from paimon_stream.stream.standing import Standing
from paimon_stream.stream.steps import JudgedBatch, PublishedBatch, SettledBatch, WrittenBatch
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Reuse

_LOG = logging.getLogger(__name__)


def _no_rows() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How the rows of a batch get into files, by `foreachBatch` or by the data source.

    Attributes:
        write: writes the data files of a judged batch, or names files that are there, because an
            earlier run prepared them or tasks wrote them before the judgement. Publishes nothing,
            except a schema that the rows need.
        drain: called in place of `write` if the batch is in the table.
        again: whether `write` can be called once more.
        before_commit: the user's function, which can veto.
    """

    write: Callable[[JudgedBatch], WrittenBatch]
    drain: Callable[[], object] = _no_rows
    again: bool = True
    before_commit: BeforeCommit | None = None


def one_batch(
    run: StreamRun, standing: Standing, batch: Batch, rows: Rows | MergeSource
) -> SettledBatch:
    """Takes one batch through all of its steps, so that it is committed exactly once. Returns the
    batch, with how the run stands after it. If the batch fails, the run stands as before. Raises
    what the steps raise, and what `rows` raise.
    """
    judged = judge_batch(run, standing, batch)  # §1 who, §2 judge
    if isinstance(judged.verdict, AlreadyCommitted):
        rows.drain()
        return settle_found(judged, judged.verdict)  # §6 after
    if isinstance(rows, MergeSource):
        published = merge_batch(judged, rows)
    else:
        published = _write_and_publish(judged, rows)
    return settle(published)  # §6 after


def _write_and_publish(judged: JudgedBatch, rows: Rows) -> PublishedBatch:
    """Writes the rows of a batch and publishes them. They are written again if others have used
    their sequence numbers. Raises what the steps raise, and what `rows` raise.
    """
    rewritten = 0
    while True:
        written = rows.write(judged)  # §3 write
        try:
            return publish_batch(written, rows.before_commit)  # §4 journal, §5 commit
        except SequenceConflict as conflict:
            may_go_on = rows.again and rewritten < MOST_REWRITES
            if not (may_go_on and _is_written_again(written, conflict)):
                raise
            _LOG.info("%s The batch is written again.", conflict.message)
        judged = written.anew()
        rewritten += 1


def _is_written_again(written: WrittenBatch, conflict: SequenceConflict) -> bool:
    """Whether a batch is to be written again because others have used its sequence numbers. A batch
    whose files an earlier run prepared always is.
    """
    return isinstance(written.verdict, Reuse) or rewrites(written.judged.table, conflict)
