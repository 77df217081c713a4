"""The one Spark action of a batch: every task writes data files and answers with what it wrote.

Rows go to Python as Arrow batches, in the tasks that hold them: no shuffle, unless the table has a primary
key or the files would be too many, and no row-at-a-time Python. A task's answer is one row of typed bytes;
Spark hands back exactly one answer per partition, that of the attempt that succeeded (spark.md §2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from paimon_stream.errors import InvalidData, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import SHUFFLE
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.key_defaults import with_key_defaults
from paimon_stream.spark.shuffle import check_shuffle, gather_keys, gather_packets
from paimon_stream.spark.tasks import ANSWER, KeyedTask, WriteTask
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.table import Table
from paimon_stream.write.result import TaskFailure, TaskResult, decode_result
from paimon_stream.write.row_kinds import Operations
from paimon_stream.write.task import WriteSpec, with_total

__all__ = ["messages_of", "run_write_job", "write_task_of"]

_LIMIT: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str(2**31 - 1)
_PACKED_BYTES: Final = 128 * 2**20
"""What a task holds of packed rows: to sort and merge them takes as much again, twice for a moment."""

_TASK_FAILURES: Final = "spark.task.maxFailures"


def run_write_job(
    frame: DataFrame,
    table: Table,
    *,
    wide_rows: bool = False,
    first_sequence: int = 0,
    operations: Operations | None = None,
    in_memory: bool = False,
    gathered: bool = False,
) -> tuple[CommitMessage, ...]:
    """Writes all rows of the DataFrame, which has exactly the table's columns; the messages come in the
    order of Spark's partitions. Nothing is published.

    For a table with a primary key `first_sequence` is above all sequence numbers in it, and `operations` says
    which column, one more than the table's, tells what each row does. `wide_rows` keeps Spark's limit of
    bytes per Arrow batch, which costs time on every row. `in_memory` expects the rows of a table with a
    primary key to fit into the memory of its tasks, which sort them then; else Spark does. If they do not fit
    they make more files, no more. `gathered` brings the rows of each (partition, bucket) of another table to
    one task, too, as `paimon-stream.shuffle = bucket` does.

    Where a task fails for a reason of ours, the files of the other tasks are removed and its error is raised:
    those of `write_task` and `write_keyed_task`. What else fails in the plan is raised as Spark raises it.
    """
    check_shuffle(table)
    keyed = bool(table.schema.primary_keys)
    packed = in_memory if keyed else gathered or table.options.value(SHUFFLE) == "bucket"
    placed, is_sorted = frame, False
    if packed:
        placed = gather_packets(frame, _spec(table))
    elif keyed:
        placed, is_sorted = gather_keys(with_key_defaults(frame, table), table)
    task = write_task_of(
        frame,
        table,
        first_sequence=first_sequence,
        is_sorted=is_sorted,
        operations=operations,
        packed=packed,
    )
    with _batches_of_any_size(frame, wide_rows):
        rows = placed.mapInArrow(task, f"{ANSWER} binary").collect()
    return messages_of([decode_result(bytes(row[ANSWER])) for row in rows], table)


def write_task_of(
    frame: DataFrame,
    table: Table,
    *,
    first_sequence: int,
    is_sorted: bool,
    operations: Operations | None,
    packed: bool = False,
) -> WriteTask:
    """What each task does with its rows. `is_sorted` is as for `write_keyed_task`; `packed` rows come as
    packets."""
    spec = replace(_spec(table), buffer_bytes=_PACKED_BYTES) if packed else _spec(table)
    attempts = 1 if is_connect(frame) else _attempts(frame.sparkSession)
    if not table.schema.primary_keys:
        return WriteTask(spec=spec, attempts=attempts, packed=packed)
    return KeyedTask(
        spec=spec,
        attempts=attempts,
        first_sequence=first_sequence,
        is_sorted=is_sorted,
        operations=operations,
        packed=packed,
    )


def _spec(table: Table) -> WriteSpec:
    return WriteSpec(storage=table.storage, schema=table.schema, options=table.options)


def messages_of(answers: Iterable[TaskResult | TaskFailure], table: Table) -> tuple[CommitMessage, ...]:
    """The messages of all tasks, in the order of Spark's partitions.

    Where one failed, the files of the others are removed and its error is raised.
    """
    answers = sorted(answers, key=lambda one: one.partition_id)
    results = [answer for answer in answers if isinstance(answer, TaskResult)]
    messages = tuple(message for result in results for message in result.messages)
    trouble = _failure(answers, table)
    if trouble is not None:
        remove_files(table.storage, data_files(table.layout, messages))
        raise trouble
    return messages


def _attempts(session: SparkSession) -> int:
    context = session.sparkContext
    master = context.master
    if master is not None and master.startswith("local"):
        inner = master.partition("[")[2].rstrip("]").partition(",")[2]
        return int(inner) if inner.strip().isdigit() else 1
    return int(context.getConf().get(_TASK_FAILURES, "4") or 4)


def _failure(answers: list[TaskResult | TaskFailure], table: Table) -> PaimonStreamError | None:
    errors = [answer.error for answer in answers if isinstance(answer, TaskFailure)]
    if errors:
        first, *others = errors
        invalid = (error for error in others if isinstance(error, InvalidData))
        return with_total(first, invalid) if isinstance(first, InvalidData) else first
    twice = [one for one, count in Counter(answer.partition_id for answer in answers).items() if count > 1]
    if not twice:
        return _torn_bucket(answers, table) if table.schema.primary_keys else None
    return PaimonStreamError(
        f"Spark handed back more than one result for partitions {twice} of a write to {table.location}, so "
        "rows would be there twice. Nothing was published. Restart the query; if it happens again, turn "
        "speculation off and report it.",
        table=table.location,
        partitions=tuple(twice),
    )


def _torn_bucket(answers: list[TaskResult | TaskFailure], table: Table) -> PaimonStreamError | None:
    """Two tasks number the rows of a bucket alike, so which of two rows is the newer could not be told."""
    results = (answer for answer in answers if isinstance(answer, TaskResult))
    homes = Counter((one.partition, one.bucket) for result in results for one in result.messages)
    torn = [bucket for (_, bucket), count in homes.items() if count > 1]
    if not torn:
        return None
    return PaimonStreamError(
        f"Rows of {len(torn)} buckets of {table.location} came to more than one Spark task, bucket {torn[0]} "
        "among them. Nothing was published. Report it, with the table's keys.",
        table=table.location,
        bucket=torn[0],
    )


@contextmanager
def _batches_of_any_size(frame: DataFrame, wide_rows: bool) -> Iterator[None]:
    """Lifts the limit of bytes per Arrow batch for one action: Spark 4 checks it by asking every vector
    for its size after every row, which triples the cost of the way to Python; only this value skips that
    (spark.md §4). What remains is the limit of rows per batch, as in Spark 3.5.

    A limit the user has set stays. On Connect the session is the user's own, so nothing is changed there;
    in a `foreachBatch` on classic Spark it is the stream's clone.
    """
    conf = frame.sparkSession.conf
    if wide_rows or is_connect(frame) or conf.get(_LIMIT, None) is not None:
        yield
        return
    conf.set(_LIMIT, _NO_LIMIT)
    try:
        yield
    finally:
        conf.unset(_LIMIT)
