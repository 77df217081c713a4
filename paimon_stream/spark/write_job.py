"""The one Spark action of a batch: every task writes data files and answers with what it wrote.
Rows go to Python as Arrow batches, in the tasks that hold them, without a shuffle unless the table
has a primary key or there would be too many files. A task's answer is one row of typed bytes. Spark
returns exactly one answer per partition, from the attempt that succeeded (spark.md §2).
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_stream.errors import (
    ConfigError,
    InvalidData,
    InvalidOption,
    PaimonStreamError,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.options import BUCKET
from paimon_stream.spark.align import fold_of, literal, with_key_defaults
from paimon_stream.spark.identity import NOT_AS_KNOWN, is_connect
from paimon_stream.spark.map_arrow import arrow_batches_of, fixed_row_bytes, map_arrow
from paimon_stream.spark.schema_fit import fit_rows, is_case_sensitive
from paimon_stream.spark.shuffle import assigners, check_shuffle, gather_keys, gather_packets
from paimon_stream.spark.tasks import ANSWER, NUMBERS, WriteTask
from paimon_stream.spark.write_plan import Way, WritePlan, Written
from paimon_stream.stream.operations import operations_of
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.table import Table, evolve
from paimon_stream.write.row_kinds import Operations
from paimon_stream.write.task import TaskFailure, TaskResult, WriteSpec, decode_result, with_total

_LOG = logging.getLogger(__name__)

_PACKED_BYTES: Final = 128 * 2**20
"""Bytes of packed rows that a task holds. Sorting and merging takes as much again, and briefly
twice as much.
"""

_NARROW: Final = frozenset({"Project", "Filter"})
"""Common operators of Spark that do not change the number of partitions."""

_NUMBERS_OF_FEW: Final = 2**34
"""The sequence numbers of a batch's tasks together, if they are few. No batch of theirs has as many
rows.
"""

_TASK_FAILURES: Final = "spark.task.maxFailures"
_NOT_SHIPPED: Final = "No module named 'paimon_stream'"
_LOCAL: Final = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


def run_write_job(
    frame: DataFrame,
    table: Table,
    *,
    plan: WritePlan,
    first_sequence: int = 0,
    index: str | None = None,
    user: str = "",
    operations: Operations | None = None,
) -> Written:
    """Writes all rows of the DataFrame, which has exactly the table's columns, in the way that the
    plan chooses, and teaches the plan. The messages are in the order of Spark's partitions. Nothing
    is published.

    For a table with a primary key, `first_sequence` is above all sequence numbers in it, and
    `index` names the index manifest by which keys get their dynamic buckets. `user` is the commit
    user. `operations` names a column, in addition to the table's, that says what each row does. If
    a task fails with an error of this package (of `write_task` or `write_keyed_task`), the files of
    the other tasks are removed, and it is raised. Spark raises other failures in the plan.
    """
    check_shuffle(table)
    tasks = partitions_of(frame) if table.schema.primary_keys else None  # of no use to others
    way = plan.way_of_tasks(table, tasks)
    placed, is_sorted, spec = frame, False, spec_of(table, index, user)
    if way is Way.PACKETS:
        several = assigners(frame, table) if table.has_dynamic_buckets else 1
        spec = replace(spec, buffer_bytes=_PACKED_BYTES, assigners=several)
        placed = gather_packets(frame, spec)
    elif way is Way.SPARK_SORT:
        placed, is_sorted = gather_keys(with_key_defaults(frame, table), table)
    spread = way is Way.TASKS and bool(table.schema.primary_keys) and not table.is_postponed
    task = WriteTask(
        spec=spec,
        attempts=1 if is_connect(frame) else task_attempts(frame.sparkSession),
        packed=way is Way.PACKETS,
        first_sequence=first_sequence,
        is_sorted=is_sorted,
        operations=operations,
        numbers=max(NUMBERS, _NUMBERS_OF_FEW // (tasks or _NUMBERS_OF_FEW)) if spread else None,
    )
    size = plan.arrow_batches(fixed_row_bytes(table.schema) if operations is None else None)
    with arrow_batches_of(size, frame):
        written = answers_of(
            map_arrow(placed, task, f"{ANSWER} binary"), table, gathered=not spread
        )
    plan.learn(way, written, table)
    return written


def partitions_of(frame: Any, cut: Any = None) -> int | None:
    """The number of partitions of the frame, or an upper bound; None if Spark does not report it.
    Spark passes each batch as an RDD, which knows its partitions. For other plans, the partitions
    of `cut`, the plan that Spark will run, are counted, which takes a few milliseconds; without
    `cut` it is None.
    """
    try:
        plan = frame._jdf.queryExecution().analyzed()
        while (name := plan.nodeName()) in _NARROW:
            plan = plan.child()
        if name != "LogicalRDD" and cut is None:
            return None
        rdd = plan.rdd() if name == "LogicalRDD" else cut._jdf.queryExecution().toRdd()
        return int(rdd.getNumPartitions())
    except NOT_AS_KNOWN:
        _LOG.debug("The partitions of a batch cannot be counted.", exc_info=True)
        return None


def answers_of(answers: DataFrame, table: Table, *, gathered: bool = True) -> Written:
    """Runs the tasks whose answers are the rows of the frame. Returns and raises as
    `written_by`.
    """
    try:
        rows = answers.collect()
    except PySparkException as failed:
        if _NOT_SHIPPED not in str(failed):
            raise
        ship = "or ship it with the job, by --py-files or --archives (docs/clusters.md)"
        cure = f"Install it in the Python that runs on the executors, {ship}."
        what = f"Spark's executors do not have the package paimon_stream, so nothing was written to {table.location}."
        raise ConfigError(f"{what} {cure}", table=table.location) from failed
    return written_by((decode_result(bytes(row[ANSWER])) for row in rows), table, gathered=gathered)


def spec_of(table: Table, index: str | None, user: str) -> WriteSpec:
    """What tasks need to know. `index` and `user` are as for `run_write_job`."""
    return WriteSpec(
        storage=table.storage, schema=table.schema, options=table.options, index=index, user=user
    )


def written_by(
    answers: Iterable[TaskResult | TaskFailure], table: Table, *, gathered: bool = True
) -> Written:
    """What all tasks wrote, in the order of Spark's partitions. `gathered`: all rows of a bucket of
    a table with a primary key must have come to one task. If a task failed, the others' files are
    removed and its error is raised.
    """
    answers = sorted(answers, key=lambda one: one.partition_id)
    results = [answer for answer in answers if isinstance(answer, TaskResult)]
    messages = tuple(message for result in results for message in result.messages)
    trouble = _failure(answers, table, gathered=gathered)
    if trouble is not None:
        remove_files(table.storage, data_files(table.layout, messages))
        raise trouble
    sizes = [result.row_bytes for result in results if result.messages]
    return Written(messages=messages, row_bytes=max(sizes) if sizes and all(sizes) else None)


def task_attempts(session: SparkSession) -> int:
    """How often the session's Spark tries a task."""
    context = session.sparkContext
    return attempts_of(context.master, context.getConf().get(_TASK_FAILURES, None))


def attempts_of(master: str | None, failures: str | None) -> int:
    """How often Spark tries a task: `local[2,3]` says so itself; for clusters, even local ones,
    `failures` does.
    """
    local = _LOCAL.fullmatch(master or "")
    return int((local[1] or 1) if local else (failures or 4))


def is_local(master: str | None) -> bool:
    """Whether tasks run in the driver's own process."""
    return _LOCAL.fullmatch(master or "") is not None


def _failure(
    answers: list[TaskResult | TaskFailure], table: Table, *, gathered: bool
) -> PaimonStreamError | None:
    errors = [answer.error for answer in answers if isinstance(answer, TaskFailure)]
    if errors:
        first, *others = errors
        invalid = (error for error in others if isinstance(error, InvalidData))
        return with_total(first, invalid) if isinstance(first, InvalidData) else first
    twice = [
        one
        for one, count in Counter(answer.partition_id for answer in answers).items()
        if count > 1
    ]
    if not twice:
        return _torn_bucket(answers, table) if gathered and table.schema.primary_keys else None
    what = (
        f"Spark returned more than one result for partitions {twice} of a write to {table.location}"
    )
    cure = "Restart the query; if it happens again, turn speculation off and report it."
    text = f"{what}, so rows would be in the table twice. Nothing was published. {cure}"
    return PaimonStreamError(text, table=table.location, partitions=tuple(twice))


def _torn_bucket(answers: list[TaskResult | TaskFailure], table: Table) -> PaimonStreamError | None:
    """The error for a bucket whose rows came to several tasks: with equal sequence numbers, the
    newer of two rows is unknown. Of dynamic buckets, only new keys must come to one task. Rows of
    bucket -2 may come to any.
    """
    fixed = table.options.value(BUCKET) > 0
    results = (answer for answer in answers if isinstance(answer, TaskResult))
    messages = (
        one for result in results for one in result.messages if fixed or one.new_index_files
    )
    homes = Counter((one.partition, one.bucket) for one in messages)
    torn = [bucket for (_, bucket), count in homes.items() if count > 1]
    if not torn:
        return None
    torn_ones = f"Rows of {len(torn)} buckets of {table.location}, including bucket {torn[0]}"
    cure = "Nothing was published. Report it, with the table's keys."
    text = f"{torn_ones}, came to more than one Spark task. {cure}"
    return PaimonStreamError(text, table=table.location, bucket=torn[0])


def overwrites_dynamically(frame: DataFrame) -> bool | None:
    """Whether the session makes overwrites without a partition dynamic; None if the option is not
    set.
    """
    mode = frame.sparkSession.conf.get(_OVERWRITE_MODE, None)
    return None if mode is None else str(mode).strip().lower() == "dynamic"


def write_frame(
    frame: DataFrame,
    table: Table,
    fixed: Mapping[str, pa.Scalar],
    first_sequence: int,
    index: str | None,
    user: str,
) -> tuple[Table, tuple[CommitMessage, ...]]:
    """Writes all rows. Returns the table to commit to, and the messages. Nothing is published
    except, if `merge-schema` allows it, the schema that the rows need. `fixed` are columns that the
    DataFrame may lack. `first_sequence`, `index` and `user` are as for `run_write_job`. Raises
    `InvalidOption` for a streaming DataFrame, and what `fit_rows` and `run_write_job` raise.
    """
    if frame.isStreaming:
        text = "this is a streaming DataFrame. Write it with PaimonSink, or give a DataFrame from spark.read."
        raise InvalidOption(text, option="df").of_table(table.location)
    whole = _completed(frame, table.schema, fixed)
    operations = operations_of(table.options)
    table, rows = fit_rows(whole, table, partial(evolve, table))
    plan, run = (
        WritePlan(streaming=False),
        partial(run_write_job, rows, table, operations=operations, user=user),
    )
    return table, run(plan=plan, first_sequence=first_sequence, index=index).messages


def _completed(frame: DataFrame, schema: TableSchema, fixed: Mapping[str, pa.Scalar]) -> DataFrame:
    fold = fold_of(is_case_sensitive(frame))
    there = set(map(fold, frame.columns))
    for name, value in fixed.items():
        if fold(name) not in there:
            frame = frame.withColumn(name, literal(schema.field(name).type, value))
    return frame
