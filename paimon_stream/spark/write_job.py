"""Runs the Spark action of a batch, in which every task writes data files and returns what it
wrote. Further actions are rare: a row was too wide for its Arrow batch, a batch was too large for
the driver, or other commits used the same sequence numbers. Rows go to Python as Arrow batches, in
the tasks that hold them. They are shuffled only if the table has a primary key, there would be too
many files, or the option `shuffle` asks for it. A task's answer is one row of typed bytes. Spark
returns exactly one answer per partition, from the attempt that succeeded (spark.md §2).
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_stream.commit.sequence import Numbering, first_number
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
from paimon_stream.spark.limit_expressions import LimitExpressions
from paimon_stream.spark.map_arrow import (
    arrow_batches_of,
    fixed_row_bytes,
    map_arrow,
    may_choose,
    may_guard,
    runs_python,
)
from paimon_stream.spark.schema_fit import fit_rows, is_case_sensitive
from paimon_stream.spark.shuffle import assigners, check_shuffle, gather_keys, gather_packets
from paimon_stream.spark.tasks import ANSWER, NUMBERS, WriteTask
from paimon_stream.spark.write_plan import ArrowBatches, Way, WritePlan, Written
from paimon_stream.stream.operations import operations_of
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.table import Table, evolve
from paimon_stream.write.arrow_batches import RowTooWide
from paimon_stream.write.row_kinds import Operations
from paimon_stream.write.task import (
    Answer,
    TaskFailure,
    TaskResult,
    TaskTooWide,
    WriteSpec,
    decode_result,
    with_total,
)

_LOG = logging.getLogger(__name__)

_PACKED_BYTES: Final = 128 * 2**20
"""The bytes of packed rows that a task holds. Sorting and merging take as much again, and briefly
twice as much.
"""

_NARROW: Final = frozenset({"Project", "Filter"})
"""Common operators of Spark that do not change the number of partitions."""

_NUMBERS_OF_FEW: Final = 2**34
"""The sequence numbers that all tasks of a batch have together, if there are at most 256 tasks. No
batch with at most 256 tasks has as many rows.
"""

_TASK_FAILURES: Final = "spark.task.maxFailures"
_NOT_SHIPPED: Final = "No module named 'paimon_stream'"
_LOCAL: Final = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOrder:
    """How the rows of one batch are written, by tasks or by the driver.

    Attributes:
        plan: the plan of the stream's run, or of this write. The plan learns from the write.
        user: the commit user.
        numbering: the numbering of the rows; None for a table without a primary key, and for a
            table whose rows get their numbers later.
        operations: a column, in addition to the table's, that says what each row does; None if
            there is none.
        limit_expressions: Spark's expressions that earlier batches of the run have used. None if
            Spark must not evaluate the rows twice, so that no row may be refused as too wide.
    """

    plan: WritePlan
    user: str
    numbering: Numbering | None
    operations: Operations | None
    limit_expressions: LimitExpressions | None = None


def run_write_job(frame: DataFrame, table: Table, order: WriteOrder) -> Written:
    """Writes all rows of a DataFrame in the way that the plan chooses. The plan learns from the
    result. Nothing is published.

    Args:
        frame: the rows, in exactly the table's columns.
        table: the table.
        order: how the rows are written.

    Returns:
        The messages, in the order of Spark's partitions.

    Raises:
        PaimonStreamError: a task failed with this error (of `write_task` or `write_keyed_task`).
            The files of the other tasks are removed. Other failures are raised when Spark runs the
            query.
    """
    check_shuffle(table)
    plan = order.plan
    tasks = partitions_of(frame) if table.schema.primary_keys else None
    way = plan.way_of_tasks(table, tasks)
    fixed = None
    guardable = False
    if may_choose(frame) and not runs_python(frame):
        fixed = fixed_row_bytes(table.schema) if order.operations is None else None
        guardable = order.limit_expressions is not None and may_guard(table.schema)
    size = plan.arrow_batches(way, fixed, guardable=guardable)
    try:
        written = _write(frame, table, order, way, tasks, size)
    except RowTooWide:
        plan.row_was_too_wide()
        _LOG.info(
            "%s: a row of the batch has more than %d bytes, too many for Arrow batches of %d rows. "
            "The batch is written once more, and the next batches in the way for wide rows.",
            table.location,
            size.most_row_bytes,
            size.records,
        )
        written = _write(frame, table, order, way, tasks, plan.arrow_batches(way))
    plan.learn(way, written, table)
    return written


def _write(
    frame: DataFrame,
    table: Table,
    order: WriteOrder,
    way: Way,
    tasks: int | None,
    size: ArrowBatches,
) -> Written:
    """Runs the job once, for the rows of a DataFrame.

    Args:
        frame: the rows, in exactly the table's columns.
        table: the table.
        order: how the rows are written.
        way: the way that the plan has chosen.
        tasks: how many tasks have the rows; None if that is not known.
        size: the size of the Arrow batches.

    Raises:
        RowTooWide: a guarded row was too wide. The files of all tasks are removed.
        PaimonStreamError: the errors of `run_write_job`.
    """
    guarded = size.most_row_bytes is not None
    if size.most_row_bytes is not None:
        assert order.limit_expressions is not None
        operation = None if order.operations is None else order.operations.column
        frame = order.limit_expressions.guarded(frame, size.most_row_bytes, table.schema, operation)
    spec = spec_of(table, order.user, order.numbering)
    placed = _placed(frame, table, spec, way, guarded=guarded)
    is_spread = way is Way.TASKS and bool(table.schema.primary_keys) and not table.is_postponed
    attempts = 1 if is_connect(frame) else task_attempts(frame.sparkSession)
    numbers = _numbers_of_task(tasks) if is_spread else None
    task = WriteTask(
        spec=placed.spec,
        attempts=attempts,
        packed=way is Way.PACKETS,
        guarded=guarded,
        first_sequence=first_number(order.numbering),
        is_sorted=placed.is_sorted,
        operations=order.operations,
        numbers=numbers,
    )
    with arrow_batches_of(size, frame):
        answers = map_arrow(placed.frame, task, f"{ANSWER} binary")
        return answers_of(answers, table, gathered=not is_spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Rows that have been moved to the tasks that write them.

    Attributes:
        frame: the rows, or packets of them.
        spec: the description of the table for the tasks.
        is_sorted: whether the rows of each bucket are sorted by key.
    """

    frame: DataFrame
    spec: WriteSpec
    is_sorted: bool


def _placed(frame: DataFrame, table: Table, spec: WriteSpec, way: Way, *, guarded: bool) -> _Placed:
    """Moves the rows to the tasks that write them, in the way that `way` names. `guarded` says
    whether one more column shows which rows are too wide.
    """
    if way is Way.PACKETS:
        of_keys = assigners(frame, table) if table.has_dynamic_buckets else 1
        spec = replace(spec, buffer_bytes=_PACKED_BYTES, assigners=of_keys)
        packets = gather_packets(frame, spec, guarded=guarded)
        return _Placed(frame=packets, spec=spec, is_sorted=False)
    if way is Way.SPARK_SORT:
        sorted_rows, is_sorted = gather_keys(with_key_defaults(frame, table), table)
        return _Placed(frame=sorted_rows, spec=spec, is_sorted=is_sorted)
    return _Placed(frame=frame, spec=spec, is_sorted=False)


def _numbers_of_task(tasks: int | None) -> int:
    """The number of sequence numbers that each task has. `tasks` is the number of tasks; None if it
    is not known.
    """
    return max(NUMBERS, _NUMBERS_OF_FEW // (tasks or _NUMBERS_OF_FEW))


def partitions_of(frame: Any, planned: Any = None) -> int | None:
    """The number of partitions of a frame, or an upper bound; None if Spark does not report it.
    Spark passes each batch as an RDD, which knows its partitions.

    Args:
        frame: the rows.
        planned: the plan that Spark will run for these rows. If the frame is not an RDD, the
            partitions of this plan are counted, which takes a few milliseconds. If it is None, the
            answer for such a frame is None.
    """
    try:
        plan = frame._jdf.queryExecution().analyzed()
        name = plan.nodeName()
        while name in _NARROW:
            plan = plan.child()
            name = plan.nodeName()
        if name == "LogicalRDD":
            return int(plan.rdd().getNumPartitions())
        if planned is None:
            return None
        return int(planned._jdf.queryExecution().toRdd().getNumPartitions())
    except NOT_AS_KNOWN:
        _LOG.debug("The partitions of a batch cannot be counted.", exc_info=True)
        return None


def answers_of(answers: DataFrame, table: Table, *, gathered: bool = True) -> Written:
    """Runs the tasks whose answers are the rows of the frame. Returns and raises what `written_by`
    does, which explains `gathered`.
    """
    try:
        rows = answers.collect()
    except PySparkException as failed:
        # The files of tasks that have ended stay until `remove_orphan_files`. The names of these
        # files were in the answers, which are lost with the job. Other tasks may still be writing,
        # because Spark does not wait for them, so their files cannot be distinguished from files of
        # other writers.
        if _NOT_SHIPPED not in str(failed):
            raise
        raise ConfigError(
            "Spark's executors do not have the package paimon_stream, so nothing was written to "
            f"{table.location}. Install it in the Python that runs on the executors, or ship it "
            "with the job, by --py-files or --archives (docs/clusters.md).",
            table=table.location,
        ) from failed
    return written_by((decode_result(bytes(row[ANSWER])) for row in rows), table, gathered=gathered)


def spec_of(table: Table, user: str, numbering: Numbering | None) -> WriteSpec:
    """The description of the table for tasks. `user` is the commit user, and `numbering` is that of
    the rows.
    """
    index = None if numbering is None else numbering.index
    return WriteSpec(
        storage=table.storage,
        schema=table.schema,
        options=table.options,
        index=index,
        user=user,
    )


def written_by(answers: Iterable[Answer], table: Table, *, gathered: bool = True) -> Written:
    """What all tasks wrote, in the order of Spark's partitions.

    Args:
        answers: the answers of all tasks.
        table: the table.
        gathered: whether all rows of a bucket of a table with a primary key must have come to one
            task.

    Raises:
        PaimonStreamError: a task failed with this error, or the answers contradict each other.
        RowTooWide: a guarded row was too wide.

    In both cases, the files of the tasks that succeeded are removed.
    """
    answers = sorted(answers, key=lambda answer: answer.partition_id)
    results = [answer for answer in answers if isinstance(answer, TaskResult)]
    messages = tuple(message for result in results for message in result.messages)
    failure: Exception | None = _failure(answers, table, gathered=gathered)
    if failure is None and any(isinstance(answer, TaskTooWide) for answer in answers):
        failure = RowTooWide()
    if failure is not None:
        remove_files(table.storage, data_files(table.layout, messages))
        raise failure
    with_rows = [result for result in results if result.messages]
    return Written(
        messages=messages,
        row_bytes=_largest([result.row_bytes for result in with_rows]),
        widest_row=_largest([result.widest_row for result in with_rows]),
    )


def _largest(sizes: list[int]) -> int | None:
    """The largest of the sizes; None if a size is not known, or if there are none."""
    return max(sizes) if sizes and all(sizes) else None


def task_attempts(session: SparkSession) -> int:
    """The number of times that the session's Spark tries a task."""
    return attempts_of(session.sparkContext.master, of_context(session, _TASK_FAILURES))


def of_context(session: SparkSession, key: str) -> str | None:
    """The value of a setting of the session's SparkContext, None if it is not set. A session's own
    configuration may have another value: `getOrCreate` writes a builder's values into it, where
    they change nothing. `getConf` is not used, because it copies all values, with a call of the JVM
    for each.
    """
    value: str | None = session.sparkContext._conf.get(key, None)
    return value


def attempts_of(master: str | None, failures: str | None) -> int:
    """How often Spark tries a task. A master such as `local[2,3]` contains the number. For
    clusters, even local ones, the number is `failures`, the value of `spark.task.maxFailures`.
    """
    local = _LOCAL.fullmatch(master or "")
    if local is not None:
        return int(local[1] or 1)
    return int(failures or 4)


def is_local(master: str | None) -> bool:
    """Whether tasks run in the driver's own process."""
    return _LOCAL.fullmatch(master or "") is not None


def _failure(answers: list[Answer], table: Table, *, gathered: bool) -> PaimonStreamError | None:
    errors = [answer.error for answer in answers if isinstance(answer, TaskFailure)]
    if errors:
        first, *others = errors
        invalid = (error for error in others if isinstance(error, InvalidData))
        return with_total(first, invalid) if isinstance(first, InvalidData) else first
    answers_of_partition = Counter(answer.partition_id for answer in answers)
    twice = [partition for partition, count in answers_of_partition.items() if count > 1]
    if twice:
        return PaimonStreamError(
            f"Spark returned more than one result for partitions {twice} of a write to "
            f"{table.location}, so rows would be in the table twice. Nothing was published. "
            "Restart the query; if it happens again, turn speculation off and report it.",
            table=table.location,
            partitions=tuple(twice),
        )
    return _torn_bucket(answers, table) if gathered and table.schema.primary_keys else None


def _torn_bucket(answers: list[Answer], table: Table) -> PaimonStreamError | None:
    """The error for a bucket whose rows came to several tasks; None if there is none. If two rows
    of a key had equal sequence numbers, it would not be known which row is newer. With dynamic
    buckets, only the rows of new keys must come to one task. Rows of bucket -2 may come to any
    task.
    """
    is_fixed = table.options.value(BUCKET) > 0
    results = (answer for answer in answers if isinstance(answer, TaskResult))
    tasks_of_bucket = Counter(
        (message.partition, message.bucket)
        for result in results
        for message in result.messages
        if is_fixed or message.new_index_files
    )
    torn = [bucket for (_, bucket), tasks in tasks_of_bucket.items() if tasks > 1]
    if not torn:
        return None
    return PaimonStreamError(
        f"Rows of {len(torn)} buckets of {table.location}, including bucket {torn[0]}, came to "
        "more than one Spark task. Nothing was published. Report it, with the table's keys.",
        table=table.location,
        bucket=torn[0],
    )


def overwrites_dynamically(frame: DataFrame) -> bool | None:
    """Whether overwrites without a partition are dynamic in this session; None if Spark's option
    for that is not set.
    """
    mode = frame.sparkSession.conf.get(_OVERWRITE_MODE, None)
    return None if mode is None else str(mode).strip().lower() == "dynamic"


def write_frame(
    frame: DataFrame,
    table: Table,
    fixed: Mapping[str, pa.Scalar],
    numbering: Numbering | None,
    user: str,
) -> tuple[Table, tuple[CommitMessage, ...]]:
    """Writes all rows of a batch write. Nothing is published except, if `merge-schema` allows it,
    the schema that the rows need.

    Args:
        frame: the rows.
        table: the table.
        fixed: values of columns that the DataFrame may lack, by name.
        numbering: the numbering of the rows; None without a primary key.
        user: the commit user.

    Returns:
        The table to commit to, and the messages.

    Raises:
        InvalidOption: the DataFrame is a streaming one.
        PaimonStreamError: what `fit_rows` and `run_write_job` raise.
    """
    if frame.isStreaming:
        raise InvalidOption(
            "this is a streaming DataFrame. Write it with PaimonSink, or give a DataFrame from "
            "spark.read.",
            option="df",
        ).of_table(table.location)
    completed = _with_fixed_columns(frame, table.schema, fixed)
    order = WriteOrder(
        plan=WritePlan(streaming=False),
        user=user,
        numbering=numbering,
        operations=operations_of(table.options),
    )
    table, rows = fit_rows(completed, table, partial(evolve, table))
    return table, run_write_job(rows, table, order).messages


def _with_fixed_columns(
    frame: DataFrame, schema: TableSchema, fixed: Mapping[str, pa.Scalar]
) -> DataFrame:
    fold = fold_of(case_sensitive=is_case_sensitive(frame))
    names = set(map(fold, frame.columns))
    for name, value in fixed.items():
        if fold(name) not in names:
            frame = frame.withColumn(name, literal(schema.field(name).type, value))
    return frame
