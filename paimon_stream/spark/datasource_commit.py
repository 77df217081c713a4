"""The driver's part of a write by `format("paimon_stream")`: its options, the plan that is made
before the tasks run, and the commit after the tasks.

A batch of a stream is judged and committed as `PaimonSink` does it. The rows, however, are written
before the batch is judged. So the files of a batch that is not committed are removed, unless the
journal may name them. The commit process cannot write a batch again. After a `SequenceConflict`,
the restarted query does that.

Invariants:

- A file of a task has a new name, and nobody knows it before `publish_batch`
  (`stream/publishing.py`) has journalled it. Until then, any code that ends the batch may remove
  the file. Afterwards only `publish_batch` may. Spark calls `abort` in two cases. After a `commit`
  that raised, it passes the answers of all tasks. If `commit` was never called, it passes None for
  each task that failed, and only in this case `abort` removes files.
- The process keeps the run of each query in its memory. It uses the run only if the run's newest
  batch is the one right before this batch. Otherwise the batch is judged from storage, as the first
  batch of a run. All writers of a run have one token.
- After a kill, the data source writes the batch again: it never publishes files of an earlier run.
  `PaimonSink` on the same checkpoint may do so, if the rows need no sequence numbers.
"""

import logging
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from pyspark.sql import types as st

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.sequence import first_number
from paimon_stream.commit.table_commit import TableCommit, batch_user
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.metrics.commits import log_report
from paimon_stream.runtime import system
from paimon_stream.spark.align import align, fold_of
from paimon_stream.spark.batch import QueryRun, Runs, batch_of
from paimon_stream.spark.checkpoint import Checkpoint
from paimon_stream.spark.datasource_options import divided
from paimon_stream.spark.datasource_task import Plan, TaskAnswer
from paimon_stream.spark.identity import ObservedQuery, check_checkpoint, commit_user
from paimon_stream.spark.sink_settings import SinkSettings
from paimon_stream.spark.tasks import NUMBERS, WriteTask
from paimon_stream.spark.types import same_but_nulls, written_type
from paimon_stream.spark.write_job import spec_of, written_by
from paimon_stream.stream.batch_write import BatchWrite, Replaced, WrittenRows
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.operations import operations_of
from paimon_stream.stream.sequence_conflicts import fresh_numbering
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch
from paimon_stream.stream.verdicts import Reuse
from paimon_stream.stream.writable import check_writable, warn_of_merging, warn_of_work_left
from paimon_stream.table.register import registered_writers
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, load_table
from paimon_stream.write.row_kinds import Operations
from paimon_stream.write.task import Answer, TaskResult, decode_result

_LOG = logging.getLogger(__name__)


def _identifier(text: str) -> int:
    number = opt.integer(text)
    if number == BATCH_IDENTIFIER:
        raise ValueError(
            "the number that stands for writes without one, so a repetition could not be recognised"
        )
    return number


_IDENTIFIER: Final = opt.Option(
    "commit-identifier", _identifier, None, "The id of a write that is made once only."
)
_RECENT: Final = 20
_READ: Final[dict[str, list[Snapshot]]] = {}
"""By location, the newest snapshots that this process has read, newest first."""
_RUNS: Final[dict[tuple[str, str], Runs]] = {}
"""The runs by query id and location. Spark commits the batches of several queries in one process,
which outlives them.
"""

Answers: TypeAlias = Sequence[TaskAnswer | None]


def settings_of(
    options: Mapping[str, str], *, overwrite: bool, is_stream: bool
) -> tuple[SinkSettings, opt.Options, int | None]:
    """Returns three values. The first is the settings of a sink that would write the same. The
    second is the options of the write itself. The third is the commit identifier of a batch write
    that takes effect only once; None if there is no such identifier. `overwrite` says whether the
    rows replace those of the table, and `is_stream` whether a streaming query writes. Raises
    `InvalidOption`, `UnsupportedFeature`.
    """
    own_keys = (
        ("commit-user", "name", "checkpoint") if is_stream else ("commit-user", _IDENTIFIER.key)
    )
    source = divided(options, own_keys)
    of_write = opt.Options(source.own, location=source.location)
    sink = SinkSettings(
        location=source.location,
        # The token is the same in each process that commits for a query.
        token=f"format {of_write.get('name', '')}",
        commit_user=of_write.get("commit-user"),
        name=of_write.get("name"),
        options=source.table,
        storage_options=source.storage,
        mode="complete" if overwrite else "append",
        checkpoint=of_write.get("checkpoint", of_write.get("checkpointlocation")),
    )
    sink.check()
    if not is_stream and of_write.is_set(_IDENTIFIER) != (sink.commit_user is not None):
        raise errors.InvalidOption(
            "commit-user and commit-identifier together say that rows are written once only. Give "
            "both or neither.",
            option=_IDENTIFIER.key,
        ).of_table(source.location)
    identifier = of_write.value(_IDENTIFIER) if of_write.is_set(_IDENTIFIER) else None
    return sink, of_write, identifier


# -- before the tasks -----------------------------------------------------------------------------
def plan(
    columns: st.StructType, options: Mapping[str, str], *, overwrite: bool, is_stream: bool
) -> Plan:
    """The plan of a batch with these columns. `overwrite` says whether the rows replace those of
    the table, and `is_stream` whether a streaming query writes. Raises what `load_table` and
    `check_writable` raise, `UnsupportedFeature` for tables and options that only `PaimonSink` can
    write, and `IncompatibleSchema` for columns that do not fit.
    """
    sink, *_ = settings_of(options, overwrite=overwrite, is_stream=is_stream)
    storage = sink.open_storage()
    # The digest is read first. If the table is replaced after that, the commit notices it.
    digest = SchemaStore(storage).first_digest()
    table = load_table(storage, sink.options)
    check_writable(table, in_stream=is_stream and not overwrite)
    _check_door(table)
    operations = operations_of(table.options)
    sources = _columns(columns, table, operations)
    snapshots = SnapshotStore(table.storage)
    latest = snapshots.latest()
    committer = Committer(table, snapshots=snapshots, digest=digest)
    numbering = fresh_numbering(table, committer, latest, replaces=overwrite)
    user = sink.commit_user or batch_user(table.options, system().ids)
    if is_stream:
        user = commit_user(ObservedQuery(query_id="{}"), sink.commit_user, sink.name, sink.prefix)
    numbers = None
    if numbering is not None:
        numbers = NUMBERS
    recent: dict[tuple[str, str | None], int] = {}
    if is_stream and not _may_be_written_again(table):
        recent = _recent(sink.location, snapshots, latest)
    return Plan(
        task=WriteTask(
            spec=spec_of(table, user, numbering=None),  # only dynamic buckets need it
            attempts=sys.maxsize,  # only Spark knows the limit
            first_sequence=first_number(numbering),
            operations=operations,
            numbers=numbers,
        ),
        columns=sources,
        user=user,
        recent=recent,
        for_commit=pickle.dumps((digest, numbering)),
    )


def _check_door(table: Table) -> None:
    """Raises `UnsupportedFeature` for a table or an option with which tasks would have to do more
    than write the rows that they have. It is called before a batch is judged.
    """
    options = table.options
    option: opt.Option[Any] | None = None
    if options.value(opt.SHUFFLE) == "bucket":
        option = opt.SHUFFLE
    elif options.value(opt.MERGE_SCHEMA) != "off":
        option = opt.MERGE_SCHEMA
    elif table.has_dynamic_buckets:
        option = opt.BUCKET
    if option is not None:
        value = options.get(option.key, option.default)
        raise errors.UnsupportedFeature(
            f'cannot be written by format("paimon_stream") with {option.key} = {value}: its tasks '
            "write only the rows that Spark hands to them, and cannot shuffle rows, change the "
            "table's schema or assign dynamic buckets. Nothing was written. Use PaimonSink with "
            "foreachBatch for a stream, and PaimonTable.append or overwrite for other rows.",
            option=option.key,
        ).of_table(table.location, subject=True)


def _columns(
    columns: st.StructType, table: Table, operations: Operations | None
) -> tuple[tuple[str, str | None], ...]:
    """Each of the table's columns by name, with the name of the DataFrame's column that fills it,
    or None if the DataFrame lacks it. The last pair, if there is one, is the column that says what
    each row does.
    """
    of_operations: list[tuple[str, str]] = []
    if operations is not None:
        fold = fold_of(case_sensitive=False)
        operations.check(table.schema, table.options, table.location, fold)
        of_operations = [
            (operations.column, name)
            for name in columns.names
            if fold(name) == fold(operations.column)
        ]
        operations.only(len(of_operations), table.location)
        _, set_apart = of_operations[0]
        columns = st.StructType([column for column in columns.fields if column.name != set_apart])
    may_lack = table.options.value(opt.MISSING_COLUMNS) == "null"
    aligned = align(
        columns,
        table.schema,
        case_sensitive=False,
        location=table.location,
        missing_are_null=may_lack,
    )
    for field, source in aligned.columns:
        if source is None:
            continue
        if not _is_cast_by_arrow(source.dataType, written_type(field.type, source.dataType)):
            raise errors.IncompatibleSchema(
                f"column {field.name!r} is {source.dataType.simpleString()}, the table's is "
                f"{field.type}, and here only numbers become wider. Nothing was written. Cast the "
                "column in the DataFrame; a struct needs the table's members in their order.",
                column=field.name,
            ).of_table(table.location)
    sources = (
        (field.name, None if source is None else source.name) for field, source in aligned.columns
    )
    return (*sources, *of_operations)


def _is_cast_by_arrow(source: st.DataType, target: st.DataType) -> bool:
    """Whether Arrow can make this up-cast, without Spark."""
    texts = isinstance(source, st.StringType) and isinstance(target, st.StringType)
    numbers = isinstance(source, st.NumericType) and isinstance(target, st.NumericType)
    return texts or numbers or isinstance(source, st.NullType) or same_but_nulls(source, target)


def _may_be_written_again(table: Table) -> bool:
    """Whether an operator has decided that a batch that is already in the table may be written
    again. If so, the tasks must write every batch.
    """
    decisions = (opt.ON_CHECKPOINT_RESET, opt.ON_TABLE_CHANGE, opt.ON_UNKNOWN_HISTORY)
    return any(table.options.value(decision) == "continue" for decision in decisions)


def _recent(
    location: str, snapshots: SnapshotStore, latest: Snapshot | None
) -> dict[tuple[str, str | None], int]:
    """The newest batch of each stream among the last snapshots, by commit user and query id. A
    snapshot that this process has read for an earlier plan, and those below it, are not read again.
    """
    known = _READ.get(location, [])
    newest_known = known[0] if known else None
    downwards: Iterable[Snapshot] = () if latest is None else snapshots.walk_down(latest)
    recent: list[Snapshot] = []
    for snapshot in downwards:
        if snapshot == newest_known:
            recent += known
            break
        recent.append(snapshot)
        if len(recent) == _RECENT:
            break
    recent = recent[:_RECENT]
    _READ[location] = recent
    batches: dict[tuple[str, str | None], int] = {}
    for snapshot in reversed(recent):  # so that a newer batch replaces an older one
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            query_id = Marks.of(own_properties(snapshot)).query_id
            batches[snapshot.commit_user, query_id] = snapshot.commit_identifier
    return batches


# -- after the tasks ------------------------------------------------------------------------------
def commit_batch(
    answers: Answers, batch_id: int, options: Mapping[str, str], *, overwrite: bool, is_stream: bool
) -> None:
    """Commits a batch of a stream, unless the table has it already. Raises what `PaimonSink`
    raises.
    """
    sink, of_write, _ = settings_of(options, overwrite=overwrite, is_stream=is_stream)
    first = next((answer for answer in answers if answer is not None), None)
    name = of_write.get("queryname")
    checkpoint = _checkpoint_of(sink, name, first)
    if first is None:
        # The DataFrame had no partition, so no task ran. In that case Spark passes a single None.
        if len(answers) > 1 or (checkpoint is not None and checkpoint.is_continuous(batch_id)):
            raise errors.UnsupportedFeature(
                f"no task has seen the rows of batch {batch_id}: with a continuous trigger, Spark "
                "passes none to Python. Nothing was published. Stop the query, and start it with "
                "trigger(processingTime=…)."
            ).of_table(sink.location)
        if overwrite:
            raise errors.IdentityUnknown(
                f"the query of batch {batch_id} is not known, because no task has reported it. "
                "Nothing was published. Restart the query."
            ).of_table(sink.location)
        return
    runs = _RUNS.setdefault((first.query_id, sink.location), Runs())
    with runs.reporting_failures(sink.location, batch_id), ExitStack() as unless_kept:
        # `TaskRows.write` calls `pop_all` last. From then on only `publish_batch` removes the
        # files.
        unless_kept.callback(_remove, sink, answers)
        query_id = first.query_id
        for_commit = first.for_commit
        query = ObservedQuery(
            query_id=query_id, run_id=first.run_id, name=name, checkpoint=checkpoint
        )
        check_checkpoint(checkpoint, query_id)
        user = commit_user(query, sink.commit_user, sink.name, sink.prefix)

        def rows_of(run: QueryRun) -> Rows:
            if run.newest_batch is None and checkpoint is None:
                _check_known(sink, query_id, batch_id)
            rows = TaskRows(
                sink=sink, answers=answers, for_commit=for_commit, run=run, keep=unless_kept.pop_all
            )
            return Rows(write=rows.write, again=False)

        batch = batch_of(query, batch_id)
        runs.run_batch(batch, query, sink, user, rows_of, after=batch_id - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """The rows of one batch of the data source, which its tasks have written before it is judged.

    Attributes:
        sink: the settings of a sink that would do the same.
        answers: the answers of the tasks.
        for_commit: what the commit needs of the plan, encoded.
        run: the run of the query.
        keep: is called at the moment from which on the caller must not remove the files.
    """

    sink: SinkSettings
    answers: Answers
    for_commit: bytes
    run: QueryRun
    keep: Callable[[], object]

    def write(self, judged: JudgedBatch) -> WrittenBatch:
        """The batch with the files that the tasks have written. Raises what `written_by` raises.
        Raises `TableRolledBack` if a task found the batch in the table, and `TableReplaced` if the
        tasks have written to another table.
        """
        if any(answer is not None and answer.result is None for answer in self.answers):
            raise errors.TableRolledBack(
                f"batch {judged.batch.batch_id} was in the table when Spark planned it, but is no "
                "longer there. Nothing was published. Restart the query: it judges the batch again."
            ).of_table(self.sink.location)
        messages = written_by(_results(self.answers), judged.table, gathered=False).messages
        digest, numbering = pickle.loads(self.for_commit)
        judged.require_same_table(digest)
        if isinstance(judged.verdict, Reuse):
            judged = judged.anew()  # the tasks wrote new files
        written = judged.written(messages, numbering=numbering)
        self._tell_compaction(written)
        self.keep()  # last: until then a failure leaves the files to the caller
        return written

    def _tell_compaction(self, written: WrittenBatch) -> None:
        """Tells the compaction when the previous batch was committed. Otherwise a run that begins
        with this batch would not know the time. If the snapshot of the previous batch cannot be
        read, the failure is logged, and the batch goes on.
        """
        compaction = self.run.compaction
        last_of_stream = written.verdict.own
        if self.run.newest_batch is not None or last_of_stream is None or compaction is None:
            return
        store = SnapshotStore(written.judged.table.storage)
        try:
            snapshot = store.find(last_of_stream.snapshot.id)
        except errors.PaimonStreamError as error:
            _LOG.warning(
                "%s: the compaction does not know when the batch before was committed: %s",
                self.sink.location,
                error,
            )
            return
        if snapshot is None:
            compaction.follows(system().clock.now_millis())
        else:
            compaction.follows(snapshot.time_millis)


def _checkpoint_of(
    sink: SinkSettings, query_name: str | None, answer: TaskAnswer | None
) -> Checkpoint | None:
    """The query's checkpoint; None if it is not known. The options may name it. If they do not, it
    is the folder with the query's name below the session's folder of checkpoints, if that folder
    belongs to this query. A query without a name has such a folder, too, but each of its starts is
    a new query.
    """
    if sink.checkpoint is not None:
        return sink.open_checkpoint(sink.checkpoint)
    if answer is None or not answer.checkpoints or not query_name:
        return None
    checkpoint = sink.open_checkpoint(f"{answer.checkpoints.rstrip('/')}/{query_name}")
    return checkpoint if checkpoint.query_id() == answer.query_id else None


def _check_known(sink: SinkSettings, query_id: str, batch_id: int) -> None:
    """Raises `IdentityUnknown` for a later batch of a query that has not registered in the table,
    if the query's checkpoint is not known. Only the checkpoint would show whether the table was
    dropped and created again since the query's last batch.
    """
    decision = opt.Options(sink.options, location=sink.location).value(opt.ON_TABLE_CHANGE)
    if batch_id == 0 or decision == "continue":
        return
    writers = registered_writers(sink.open_storage())
    if any(writer.query_id == query_id for writer in writers):
        return
    raise errors.IdentityUnknown(
        f"batch {batch_id} is not the first batch of query {query_id}, but this table has no "
        "record of that query, and the location of the query's checkpoint is not known. So the "
        "table may have been dropped and created again. Nothing was published. Set "
        '.option("checkpoint", …) to the folder of the query\'s checkpoint, or let the query '
        f"continue with this batch: option {opt.ON_TABLE_CHANGE.key!r} = 'continue'."
    ).of_table(sink.location)


def commit_rows(
    planned: Plan, answers: Answers, options: Mapping[str, str], *, overwrite: bool, is_stream: bool
) -> None:
    """Commits the rows of a DataFrame as one snapshot. With a commit identifier, they are committed
    only once. Raises the errors of `TableCommit`.
    """
    sink, _, identifier = settings_of(options, overwrite=overwrite, is_stream=is_stream)
    table = load_table(sink.open_storage(), sink.options)
    messages = written_by(_results(answers), table, gathered=False).messages
    warn_of_work_left(table)
    warn_of_merging(table)
    digest, numbering = pickle.loads(planned.for_commit)
    replaced = None
    if overwrite:
        of_sink = opt.Options(sink.options)
        dynamic = of_sink.is_set(opt.DYNAMIC_OVERWRITE) and of_sink.value(opt.DYNAMIC_OVERWRITE)
        replaced = Replaced(partition=None, dynamic=dynamic)
    write = BatchWrite(
        user=planned.user,
        digest=digest,
        after_commit=AfterCommit(protect=protect_last_snapshot, batch=True),
        replaced=replaced,
        identifier=identifier,
    )
    rows = WrittenRows(table=table, messages=messages, numbering=numbering, millis=None)
    log_report(write.publish_rows(rows, partial(_remove, sink, answers)))


def abort(
    answers: Answers, options: Mapping[str, str], *, overwrite: bool, is_stream: bool
) -> None:
    """Removes the files that tasks have written, if some tasks did not answer. If all tasks
    answered, `commit` was called, and has removed the files that may be removed.
    """
    if None in answers:
        sink, *_ = settings_of(options, overwrite=overwrite, is_stream=is_stream)
        _remove(sink, answers)


def _results(answers: Answers) -> list[Answer]:
    return [
        decode_result(answer.result)
        for answer in answers
        if answer is not None and answer.result is not None
    ]


def _remove(sink: SinkSettings, answers: Answers) -> None:
    """Removes the files that tasks have written and that nothing refers to. If the removal fails,
    its error is only logged: the caller raises the error for which the files are removed.
    """
    results = (result for result in _results(answers) if isinstance(result, TaskResult))
    messages = [message for result in results for message in result.messages]
    try:
        if messages:
            TableCommit(load_table(sink.open_storage(), sink.options), "abort").abort(messages)
    except errors.PaimonStreamError as failed:
        _LOG.warning(
            "Files of a write that is not published were not removed, and stay as orphans: %s",
            failed,
        )
