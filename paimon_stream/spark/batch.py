"""Takes one micro-batch from Spark's DataFrame to a published snapshot. The order of the steps
matters. First the stream is identified. Next the batch is judged. After that the rows are written,
mostly by one Spark action. The snapshot is published last (exactly-once.md). `stream/one_batch.py`
keeps this order. This module has the parts that need Spark.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from weakref import WeakSet

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from paimon_stream import errors
from paimon_stream.commit.report import CommitReport
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.metrics.commits import CommitMetrics, log_report, report_to_all
from paimon_stream.options import SMALL_BATCH, integer_of
from paimon_stream.runtime import Clock, Runtime, system
from paimon_stream.spark.identity import (
    ObservedQuery,
    commit_user,
    is_connect,
    keeps_state,
    observe_query,
)
from paimon_stream.spark.limit_expressions import LimitExpressions
from paimon_stream.spark.merge_source import check_source, collected_rows
from paimon_stream.spark.schema_fit import check_rows, fit_rows
from paimon_stream.spark.sink_settings import SinkSettings
from paimon_stream.spark.small_batch import write_small
from paimon_stream.spark.trigger import start_with
from paimon_stream.spark.write_job import WriteOrder, run_write_job
from paimon_stream.spark.write_plan import WritePlan
from paimon_stream.stream.batch_write import WHOLE_TABLE
from paimon_stream.stream.compacting import StreamCompaction
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.stream.merged_batch import MergeSource
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.operations import operations_of
from paimon_stream.stream.steps import JudgedBatch, SettledBatch, WrittenBatch, for_driver
from paimon_stream.stream.verdicts import Batch, Reuse
from paimon_stream.stream.writable import check_mergeable, check_writable
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.table import Table, load_table

_PACKAGE_LOG: Final = logging.getLogger("paimon_stream")
_PY4J: Final = ("py4j.clientserver", "py4j.java_gateway")
_NAMED_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"


class _AlreadyLogged(logging.Filter):
    """Drops records about errors that this package has logged in one line. py4j logs each error of
    a function that Spark calls, with its traceback, and Spark logs it again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.logged: WeakSet[errors.PaimonStreamError] = WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the log record is kept."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        return not isinstance(error, errors.PaimonStreamError) or error not in self.logged


_ALREADY_LOGGED: Final = _AlreadyLogged()


def _leave_out_of_py4j_log(error: BaseException) -> None:
    """Lets py4j's loggers drop an error that this package has logged."""
    if isinstance(error, errors.PaimonStreamError):
        _ALREADY_LOGGED.logged.add(error)
        for name in _PY4J:
            logging.getLogger(name).addFilter(_ALREADY_LOGGED)  # a logger keeps it only once


@dataclass(slots=True, kw_only=True)
class QueryRun:
    """One run of one query, as this sink sees it.

    Attributes:
        run_id: Spark's id of the run; None if it is not known.
        user: the commit user of the stream.
        writer: judges and publishes the batches of the run.
        after_commit: what follows a commit, such as the expiry of snapshots.
        compaction: the compaction of the stream; None if each batch replaces the table.
        plan: how the next batch is written.
        limit_expressions: Spark's expressions for rows that are left out.
        stateless: whether the query is known to keep no state; None before Spark was asked.
    """

    run_id: str | None
    user: str
    writer: StreamWriter
    after_commit: AfterCommit
    compaction: StreamCompaction | None
    plan: WritePlan = field(default_factory=WritePlan)
    limit_expressions: LimitExpressions = field(default_factory=LimitExpressions)
    stateless: bool | None = None

    @property
    def newest_batch(self) -> int | None:
        """The newest batch that this run has finished."""
        memory = self.writer.standing.memory
        return None if memory is None else memory.batch_id

    def is_for_driver(self, frame: DataFrame, table: Table, query: ObservedQuery) -> bool:
        """Whether the driver may try to write this batch itself."""
        if table.options.value(SMALL_BATCH) == "off" or self.plan.most_rows(table) is None:
            return False
        return self.may_repeat(frame, query)

    def may_repeat(self, frame: DataFrame, query: ObservedQuery) -> bool:
        """Whether Spark may evaluate a batch twice, because the query is known to keep no state. On
        Spark Connect, the answer is always False.
        """
        if is_connect(frame):
            return False
        if self.stateless is None:
            self.stateless = keeps_state(frame, query) is False
        return self.stateless

    def close(self) -> None:
        """Gives up the compaction of the run, if there is one."""
        if self.compaction is not None:
            self.compaction.close()

    def maintain(self, settled: SettledBatch) -> None:
        """Compacts and expires after a batch, even one without rows. Failures of these two do not
        fail the batch. If the table had the batch already, nothing expires.
        """
        if self.compaction is not None:
            self.writer.compact(self.compaction, settled)
        newest = self.writer.standing.newest
        if settled.report.outcome == "empty":
            self.after_commit.after_nothing(settled.table)
        elif settled.report.outcome == "committed" and newest is not None:
            self.after_commit(settled.table, newest)  # the call maintains the table


@dataclass(slots=True)
class Runs:
    """The runs of the queries that use one sink. A sink remembers nothing else. The runs are never
    pickled.

    Attributes:
        last_report: the newest report; None before the first batch.
        last_error: the error of the newest batch; None if it did not fail.
        metrics: counts what the runs do.
    """

    last_report: CommitReport | None = None
    last_error: BaseException | None = None
    metrics: CommitMetrics = field(default_factory=CommitMetrics)

    # The ids of the reporters that failed at the last batch.
    _failing: set[int] = field(default_factory=set)
    # The newest run of each commit user.
    _by_user: dict[str, QueryRun] = field(default_factory=dict)
    # The query of the last batch. The key is the location that the sink was given for the
    # checkpoint.
    _queries: dict[str | None, ObservedQuery] = field(default_factory=dict)
    _runtime: Runtime = field(default_factory=system)

    def write_frame(self, frame: DataFrame, batch_id: int, settings: SinkSettings) -> None:
        """Writes one batch of `foreachBatch`. Every error of this package names the table and the
        batch.
        """
        with self.reporting_failures(settings.location, batch_id):
            batch_id = _checked_batch_id(batch_id)
            settings = replace(settings, session=frame.sparkSession)
            last = self._queries.get(settings.checkpoint)
            query = observe_query(frame, settings.checkpoint, last, opened=settings.open_checkpoint)
            self._queries[settings.checkpoint] = query
            user = commit_user(query, settings.commit_user, settings.name, settings.prefix)

            def rows_of(run: QueryRun) -> Rows | MergeSource:
                rows = FrameRows(frame=frame, query=query, run=run, clock=self._runtime.clock)
                if settings.merge is not None:
                    return MergeSource(
                        read=partial(collected_rows, frame, settings.location, batch_id),
                        drain=rows.drain,
                        before_commit=settings.before_commit,
                    )
                return Rows(
                    write=rows.write, drain=rows.drain, before_commit=settings.before_commit
                )

            self.run_batch(batch_of(query, batch_id), query, settings, user, rows_of)

    def run_batch(
        self,
        batch: Batch,
        query: ObservedQuery,
        settings: SinkSettings,
        user: str,
        rows_of: Callable[[QueryRun], Rows | MergeSource],
        after: int | None = None,
    ) -> None:
        """Runs one batch in the run of this query, reports it, and maintains the table. If the
        batch fails, the run is forgotten.

        Args:
            batch: the batch.
            query: what is known of the query.
            settings: the settings of the sink.
            user: the commit user.
            rows_of: returns the rows of the batch, for the run that writes them: those of
                `FrameRows`, or of `TaskRows` for the data source; or the source of a merge.
            after: the batch that must be the newest one of the run. If another batch is the newest,
                or if this process knows no run, a new run begins. None if any batch may be the
                newest.
        """
        run = self._by_user.pop(user, None)
        if run is not None and (
            run.run_id != query.run_id or after not in (None, run.newest_batch)
        ):
            run.close()
            run = None
        if run is None:
            table = load_table(settings.open_storage(), settings.options)
            settings.check_mode(table)
            _check_output_mode(query, settings, table)
            run = self._bind(query, settings, user)
        try:
            settled = run.writer.write(batch, rows_of(run))
        except BaseException:
            run.close()
            raise
        self._by_user[user] = run
        self.last_report = settled.report
        listeners: list[Callable[[CommitReport], object]] = [self.metrics.report, log_report]
        if settings.on_commit is not None:
            listeners.append(settings.on_commit)
        report_to_all(listeners, settled.report, self._failing)
        run.maintain(settled)

    @contextmanager
    def reporting_failures(self, location: str, batch_id: int) -> Iterator[None]:
        """Keeps, counts and logs the error of a failed batch, and raises it without the frames of
        inner calls. The log has the error as one line, because Spark and py4j surround each error
        with a hundred lines of their own.
        """
        try:
            yield
        except BaseException as raised:
            error = _surfacing(raised, location, batch_id)
            self.last_error = error
            self.metrics.failed(error)
            _PACKAGE_LOG.error("%s", _in_one_line(error, location, batch_id))
            _leave_out_of_py4j_log(error)
            if error is raised:
                raise
            raise error from raised.__cause__
        self.last_error = None

    def _bind(self, query: ObservedQuery, settings: SinkSettings, user: str) -> QueryRun:
        """Makes a new run of the query."""
        checkpoint = None if query.checkpoint is None else query.checkpoint.root
        writer = StreamWriter(
            storage=settings.open_storage(),
            identity=WriterIdentity(
                user=user,
                query_id=query.query_id,
                run_id=query.run_id,
                checkpoint=checkpoint,
                query_name=query.name,
                token=settings.token,
            ),
            options=settings.options,
            replaced=WHOLE_TABLE if settings.overwrites else None,
            merge=settings.merge,
            runtime=self._runtime,
            observer=settings.observer,
        )
        after_commit = AfterCommit(
            protect=protect_last_snapshot, runtime=self._runtime, on_expiry=self.metrics.expired
        )
        compaction = None
        if not settings.overwrites:
            compaction = StreamCompaction(self._runtime, count=self.metrics.compacted)
        return QueryRun(
            run_id=query.run_id,
            user=user,
            writer=writer,
            after_commit=after_commit,
            compaction=compaction,
        )

    def start(
        self,
        frame: DataFrame,
        sink: Callable[[DataFrame, int], None],
        settings: SinkSettings,
        trigger: Mapping[str, Any],
        query_name: str | None,
    ) -> StreamingQuery:
        """Checks everything that can be checked without rows, then starts the query."""
        if not frame.isStreaming:
            raise errors.InvalidOption(
                "PaimonSink.start needs a DataFrame of spark.readStream.", option="df"
            )
        if settings.checkpoint is None and not frame.sparkSession.conf.get(
            _NAMED_CHECKPOINTS, None
        ):
            raise errors.InvalidOption(
                "PaimonSink.start needs checkpoint=…, the folder where Spark notes which batches "
                "are done. Without it, the stream would begin again at each start.",
                option="checkpoint",
            )
        settings = replace(settings, session=frame.sparkSession)
        table = load_table(settings.open_storage(), settings.options)
        check_writable(table, in_stream=not settings.overwrites)
        settings.check_mode(table)
        if settings.merge is None:
            check_rows(frame, table)
        else:
            check_mergeable(table, settings.merge)
            check_source(frame, settings.merge, table)
        writer = frame.writeStream.foreachBatch(sink).outputMode(settings.mode)
        if settings.checkpoint is not None:
            writer = writer.option("checkpointLocation", settings.checkpoint)
        if query_name is not None:
            writer = writer.queryName(query_name)
        return start_with(writer, trigger, table.location)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRows:
    """The rows of one batch of `foreachBatch`. Tasks (`write_job.py`) or the driver write them."""

    frame: DataFrame
    query: ObservedQuery
    run: QueryRun
    clock: Clock

    def write(self, judged: JudgedBatch) -> WrittenBatch:
        """Writes the rows. If an earlier run has prepared the files, the rows are only drained.
        Publishes nothing, except a new schema if the rows need one and the options allow it.
        """
        began = self.clock.monotonic()
        if isinstance(judged.verdict, Reuse):
            self.drain()
            written = judged.written(judged.verdict.entry.messages)
        else:
            written = self._write_rows(judged)
        millis = (self.clock.monotonic() - began) * 1000
        phases = {**judged.phases, "write": judged.phases.get("write", 0.0) + millis}
        return replace(written, phases=phases)

    def drain(self) -> None:
        """Runs the batch's plan and discards the rows, unless the query is known to keep no state.
        The state stores of a query must see each batch. Spark 4 refuses a batch that did not
        advance the state, and Spark 3.5 would lose the state (spark.md §5).
        """
        if keeps_state(self.frame, self.query) is not False:
            self.frame.write.format("noop").mode("overwrite").save()

    def _write_rows(self, judged: JudgedBatch) -> WrittenBatch:
        run = self.run
        operations = operations_of(judged.table.options)
        table, rows = fit_rows(self.frame, judged.table, judged.evolve, judged.run.runtime)
        judged = judged.on(table)
        numbering = judged.numbers()
        may_repeat = run.may_repeat(self.frame, self.query)
        order = WriteOrder(
            plan=run.plan,
            user=run.user,
            numbering=numbering,
            operations=operations,
            limit_expressions=run.limit_expressions if may_repeat else None,
        )
        if run.is_for_driver(self.frame, judged.table, self.query):
            buffered = judged.buffered()
            small = write_small(
                rows,
                judged.table,
                order,
                limit_expressions=run.limit_expressions,
                target=for_driver(judged.table, buffered),
            )
            if small is not None:
                return judged.written(small.messages, numbering=numbering, buffered=buffered)
        written = run_write_job(rows, judged.table, order)
        return judged.written(written.messages, numbering=numbering)


def _checked_batch_id(batch_id: int) -> int:
    """The batch id. Spark counts from 0, but a direct caller of the sink may pass anything. No
    reader accepts a number above `BATCH_IDENTIFIER`, which stands for batch writes.
    """
    number = integer_of(batch_id)
    if number is not None and 0 <= number < BATCH_IDENTIFIER:
        return number
    raise errors.InvalidOption(
        f"The batch id is {batch_id!r}. Give the number that Spark passes to foreachBatch, 0 or "
        "more. Nothing was written.",
        option="batch_id",
        value=batch_id,
    )


def batch_of(query: ObservedQuery, batch_id: int) -> Batch:
    """The batch, with what the checkpoint says about it."""
    checkpoint = query.checkpoint
    if checkpoint is None:
        return Batch(batch_id=batch_id)
    return Batch(
        batch_id=batch_id,
        offsets_hash=checkpoint.offsets_hash(batch_id),
        watermark=checkpoint.watermark(batch_id),
        previous_done_millis=checkpoint.last_done_millis(batch_id),
    )


def _check_output_mode(query: ObservedQuery, settings: SinkSettings, table: Table) -> None:
    """Refuses output modes with which the table would have wrong rows. An append table cannot
    replace a row without a merge, so every update would add another row. A table with a primary key
    accepts updates like new rows, but keeps rows that a complete result no longer has; so does a merge. If the sink replaces the
    whole table, each batch must be the whole result. Otherwise the rest would be lost.
    """
    keyed = bool(table.schema.primary_keys)
    if query.output_mode in (None, settings.mode):
        return
    replaces_rows = keyed or settings.merge is not None
    if replaces_rows and not settings.overwrites and query.output_mode in ("append", "update"):
        return
    if settings.overwrites:
        danger = "replaces the whole table with each batch: rows of earlier batches would be lost"
    elif settings.merge is not None:
        danger = "merges: rows that the result no longer has would stay in the table"
    elif keyed:
        danger = "upserts: rows that the result no longer has would stay in the table"
    else:
        danger = "appends: rows that the query updates later would be in the table again and again"
    another_mode = ""
    if query.output_mode == "complete":
        another_mode = (
            ", or give the sink mode='complete', which replaces the table with each batch"
        )
    raise errors.UnsupportedFeature(
        f"The query runs in output mode {query.output_mode!r}, but the sink {danger}. Nothing was "
        f"written. Start the query with .outputMode({settings.mode!r}), or use sink.start(), which "
        f"sets it{another_mode}.",
        table=settings.location,
        option="mode",
        value=query.output_mode,
    )


def _surfacing(error: BaseException, location: str, batch_id: int) -> BaseException:
    """The error as users should see it. Its message names the table and the batch. An error of
    Spark or of the user's code stays as it is.
    """
    if isinstance(error, errors.PaimonStreamError):
        message = error.message
        if "batch" not in error.context and location in message:
            message = f"Batch {batch_id}: {message}"
        elif "batch" not in error.context:
            message = f"Batch {batch_id} of {location}: {message}"
        return type(error)(message, **{"table": location, "batch": batch_id, **error.context})
    if isinstance(error, Exception):
        return error
    # Spark waits forever for a function that raises anything but an `Exception`.
    return errors.WriteInterrupted(
        f"Batch {batch_id} of {location} was interrupted by {type(error).__name__}. Nothing "
        "half-written is visible. When the query is restarted, it replays the batch.",
        table=location,
        batch=batch_id,
    )


def _in_one_line(error: BaseException, location: str, batch_id: int) -> str:
    """A text of one line with the error's type, the table, the batch, and what to do."""
    if isinstance(error, errors.PaimonStreamError):
        message = " ".join(error.message.split())
        if location in message and f"atch {batch_id}" in message:
            return f"{type(error).__name__}: {message}"
        return f"{type(error).__name__}: Batch {batch_id} of {location}: {message}"
    first_line = next(iter(str(error).splitlines()), "")
    return (
        f"{type(error).__name__}: Batch {batch_id} of {location} failed in Spark or in your own "
        f"code: {first_line} The batch may have been published. When the query is restarted, it "
        "looks for the batch in the table before it writes it."
    )
