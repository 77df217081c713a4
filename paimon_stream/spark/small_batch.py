"""Small batches, written by the driver: an action without Python workers takes half the time of one with.

The rows come to the driver as Arrow and go through the very functions that a task runs, so files, messages
and errors are those of `write_job`. The plan (write_plan.py) decides which batches come so, by those before.

How large the next batch is, nobody knows before it is read, and it must not hurt the driver. So each
partition hands over a share: one row more than the whole batch may have, of a bounded size each. If no more
rows came in all, and none was too wide, nothing is missing, and that one action was the only one. Else what
came is dropped before any of it is written, and the tasks write the batch from their own evaluation of the
plan: the rows of a batch are never of two evaluations. All shares together are what the driver may hold; the
number of partitions is asked of the plan. Where that makes the shares too small, the tasks write the batch.

Rows beyond the share are left out by a filter on the place of a row in its partition, because that

- evaluates all partitions to their end and side by side, as a write does. A limit would leave partitions
  out, or bring all into one task, however costly the plan;
- keeps the order of rows, which decides between those of one key. A limit over several partitions shuffles;
- is made of public functions, and costs a third of what caching the batch would, which alone could save the
  second evaluation of a batch that was too large.

A row that is too wide comes as NULL: the rows are members of one struct column, which is NULL for such a row.
`spark.driver.maxResultSize` does not bound rows, for it is the driver's own memory that Spark collects into
before it has counted them.

A query that keeps state is never written so, for its operators must see a batch once; nor is one of which
that is not known, nor any on Spark Connect, where the rows would go through the server's channel to its
clients.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import monotonically_increasing_id, struct, when

from paimon_stream.errors import Unavailable
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot
from paimon_stream.spark.identity import NOT_AS_KNOWN
from paimon_stream.spark.key_defaults import with_key_defaults
from paimon_stream.spark.named import named
from paimon_stream.spark.release_memory import release_memory
from paimon_stream.spark.row_size import fixed_row_bytes, row_bytes
from paimon_stream.spark.shuffle import check_shuffle
from paimon_stream.spark.tasks import WriteTask
from paimon_stream.spark.write_job import write_task_of, written_by
from paimon_stream.spark.write_plan import Share, Way, WritePlan, Written
from paimon_stream.table.table import Table
from paimon_stream.write.result import TaskFailure, TaskResult, decode_result, encode_result
from paimon_stream.write.row_kinds import Operations

__all__ = ["Cuts", "partitions_of", "write_small"]

_LOG = logging.getLogger(__name__)

_ROW: Final = "row"
_TEXT: Final = DataType(root=TypeRoot.VARCHAR, precision=MAX_LENGTH)
_PLACE_BITS: Final = 2**33 - 1
"""Of `monotonically_increasing_id`: how many rows of its partition are before a row."""

_NARROW: Final = frozenset({"Project", "Filter"})
"""Of Spark's operators those that do not change the number of partitions, and are common here."""

_TOO_MUCH: Final = "spark.driver.maxResultSize"


@dataclass(slots=True)
class Cuts:
    """Spark's expressions of the shares that came up so far: Spark takes one that is there in half the time.
    `partitions` is how many the newest batch had."""

    partitions: int = 1
    _places: dict[int, Column] = field(default_factory=dict)
    _rows: dict[tuple[Share, int, str | None], Column] = field(default_factory=dict)

    def cut(self, frame: DataFrame, share: Share, schema: TableSchema, beside: str | None) -> Any:
        """The share of each partition of the frame."""
        shortened = frame.where(self.places(share))
        rows = self.narrow_rows(share, schema, beside)
        return shortened if rows is None else shortened.select(rows)

    def places(self, share: Share) -> Column:
        """Whether a row is one of the share's, or the one after them."""
        if share.rows not in self._places:
            self._places[share.rows] = _place() <= share.rows
        return self._places[share.rows]

    def narrow_rows(self, share: Share, schema: TableSchema, beside: str | None) -> Column | None:
        """The row as a struct, NULL where it is too wide; None where no row of the table can be. `beside` is
        the column besides the table's, which is text."""
        fixed = fixed_row_bytes(schema)
        if beside is None and fixed is not None and fixed <= min(share.usual_bytes, share.other_bytes):
            return None
        key = (share, schema.id, beside)
        if key not in self._rows:
            others = () if beside is None else (DataField(id=-1, name=beside, type=_TEXT),)
            fields = (*schema.fields, *others)
            most = when(_place() < share.usual, share.usual_bytes).otherwise(share.other_bytes)
            whole = struct(*(named(one.name) for one in fields))
            self._rows[key] = when(row_bytes(fields) <= most, whole).alias(_ROW)
        return self._rows[key]


def _place() -> Column:
    """The number of rows of its partition before a row."""
    return monotonically_increasing_id().bitwiseAND(_PLACE_BITS)


def write_small(
    frame: DataFrame,
    table: Table,
    *,
    plan: WritePlan,
    cuts: Cuts,
    first_sequence: int = 0,
    operations: Operations | None = None,
) -> Written | None:
    """What `run_write_job` does, by the driver: None if the batch is more than the plan allows, or this Spark
    does not count its partitions or cannot hand over Arrow; nothing is written then, and the plan has learnt
    of it. Raises as `run_write_job`."""
    check_shuffle(table)
    rows = _collected(frame, table, plan, cuts, operations)
    if rows is None:
        plan.refused()
        return None
    task = write_task_of(frame, table, first_sequence=first_sequence, is_sorted=False, operations=operations)
    answer, size = _answer(task, rows), _bytes_of(rows)
    del rows
    release_memory(size)
    written = written_by([answer], table)
    plan.learn(Way.DRIVER, written, table)
    return written


def _collected(
    frame: DataFrame, table: Table, plan: WritePlan, cuts: Cuts, operations: Operations | None
) -> Sequence[pa.RecordBatch] | None:
    """All rows, in the order of Spark's partitions; None if there are more than may come."""
    given = with_key_defaults(frame, table) if table.schema.primary_keys else frame
    beside = None if operations is None else operations.column
    expected = plan.share(table, cuts.partitions) or plan.share(table, 1)
    if expected is None:
        return None
    cut = cuts.cut(given, expected, table.schema, beside)
    partitions = partitions_of(given, cut)
    share = None if partitions is None else plan.share(table, partitions)
    if share is None or partitions is None:
        return None
    if share != expected:
        cuts.partitions, cut = partitions, cuts.cut(given, share, table.schema, beside)
    try:
        if hasattr(cut, "_collect_as_arrow"):  # what toArrow does on classic Spark, and there in 3.5, too
            batches = cut._collect_as_arrow()
        elif hasattr(cut, "toArrow"):
            batches = cut.toArrow().to_batches()
        else:
            return None
    except PySparkException as error:
        if _TOO_MUCH in str(error):
            return None
        raise
    if cuts.narrow_rows(share, table.schema, beside) is not None:
        if any(batch.column(0).null_count for batch in batches):
            return None
        batches = [pa.RecordBatch.from_struct_array(batch.column(0)) for batch in batches]
    return batches if sum(batch.num_rows for batch in batches) <= share.rows else None


def _bytes_of(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.get_total_buffer_size() for batch in batches)


def partitions_of(frame: Any, cut: Any) -> int | None:
    """The most partitions that the frame has; None where Spark does not say. Spark gives each batch as an
    RDD, which knows them. Other plans are counted in `cut`, which is the one that Spark will run, though that
    takes some milliseconds."""
    try:
        plan = frame._jdf.queryExecution().analyzed()
        while (name := plan.nodeName()) in _NARROW:
            plan = plan.child()
        rdd = plan.rdd() if name == "LogicalRDD" else cut._jdf.queryExecution().toRdd()
        return int(rdd.getNumPartitions())
    except NOT_AS_KNOWN:
        _LOG.debug("The partitions of a batch cannot be counted.", exc_info=True)
        return None


def _answer(task: WriteTask, rows: Sequence[pa.RecordBatch]) -> TaskResult | TaskFailure:
    """What the task answers, tried as often as Spark would try it; an error is what would come from afar."""
    for attempt in range(task.attempts):
        try:
            answer = task.answer(rows, 0, attempt)
        except Unavailable:
            continue
        return answer if isinstance(answer, TaskResult) else decode_result(encode_result(answer))
    raise AssertionError("the last attempt answers")
