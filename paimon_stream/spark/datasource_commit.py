"""The driver's part of a write by `format("paimon_stream")`: its options, the plan before the tasks, and the commit
after them.

A batch of a stream is judged and committed as by `PaimonSink`. But its rows are written before it is judged, so the
files of a batch that is not committed are removed. Their names are new, and nobody else knows them until the writer has
noted them. A batch cannot be written again from here: after a `SequenceConflict` the restart of the query does that.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from pyspark.sql import types as st

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.sequence import Numbering, Sequences
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.commit.table_commit import TableCommit, batch_user
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Marks, Snapshot, SnapshotRef
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.metrics.log import log_report
from paimon_stream.runtime import system
from paimon_stream.spark.align import align, fold_of
from paimon_stream.spark.batch import Run, Runs, batch_of
from paimon_stream.spark.datasource import divided
from paimon_stream.spark.datasource_write import Answers, Basis, Numbers, Plan
from paimon_stream.spark.identity import QueryFacts, commit_user
from paimon_stream.spark.sink import SinkSettings
from paimon_stream.spark.tasks import WriteTask
from paimon_stream.spark.types import same_but_nulls, spark_type
from paimon_stream.spark.write_job import spec_of, written_by
from paimon_stream.stream.identity import BatchSummary
from paimon_stream.stream.ledger import AlreadyCommitted, Batch, Reuse
from paimon_stream.stream.writable import check_writable, warn_of_merging, warn_of_work_left
from paimon_stream.stream.writer import replaced_meanwhile
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, load_table
from paimon_stream.write.result import TaskResult, decode_result
from paimon_stream.write.row_kinds import Operations

_LOG = logging.getLogger(__name__)

_OF_STREAMS: Final = ("commit-user", "name", "checkpoint")
_OF_BATCHES: Final = ("commit-user", "commit-identifier")
_IDENTIFIER: Final = opt.Option("commit-identifier", opt.integer, None, "The id of a write that is made once only.")
_NUMBERS: Final = 2**26
"""The sequence numbers of each task. At a batch a second with 200 tasks they last for ten years."""

_RECENT: Final = 20
_SINK: Final = "Use PaimonSink with foreachBatch for a stream, and PaimonTable.append or overwrite for other rows."
_RUNS: Final[dict[tuple[str, str], Runs]] = {}
"""By query id and location. Spark commits the batches of several queries in one process, which lives on."""

Given = Mapping[str, str]


def settings_of(options: Given, *, overwrite: bool, is_stream: bool) -> tuple[SinkSettings, Given]:
    """The settings of a sink that would do the same, and the options of the door itself. Raises `InvalidOption`,
    `UnsupportedFeature`."""
    given = divided(options, _OF_STREAMS if is_stream else _OF_BATCHES)
    own = given.own
    sink = SinkSettings(
        location=given.location,
        token=f"format {own.get('name', '')}",  # the same in each process that commits for a query
        commit_user=own.get("commit-user"),
        name=own.get("name"),
        options=given.table,
        storage_options=given.storage,
        mode="complete" if overwrite else "append",
        checkpoint=own.get("checkpoint", own.get("checkpointlocation")),
    )
    sink.check()
    if not is_stream and ("commit-identifier" in own) != ("commit-user" in own):
        raise errors.InvalidOption(
            "commit-user and commit-identifier together say that rows are written once only. Give both or neither.",
            option="commit-identifier",
        ).of_table(given.location)
    _identifier(own, given.location)
    return sink, own


def _identifier(own: Given, location: str) -> int | None:
    given = opt.Options(own, location=location)
    return given.value(_IDENTIFIER) if given.is_set(_IDENTIFIER) else None


# -- before the tasks ---------------------------------------------------------------------------------


def plan(columns: st.StructType, options: Given, *, overwrite: bool, is_stream: bool) -> Plan:
    """The plan of a batch with these columns. Raises what `load_table` and `check_writable` raise, `UnsupportedFeature`
    for tables and options that only `PaimonSink` can write, and `IncompatibleSchema` for columns that do not fit."""
    sink, _ = settings_of(options, overwrite=overwrite, is_stream=is_stream)
    table, runtime = load_table(sink.open_storage(), sink.options), system()
    digest = SchemaStore(table.storage).first_digest()
    check_writable(table, in_stream=is_stream and not overwrite)
    _check_door(table)
    operations = Operations.of(table.options)
    sources = _columns(columns, table, operations)
    snapshots = SnapshotStore(table.storage)
    latest, numbering = snapshots.latest(), None
    if table.schema.primary_keys and not table.is_postponed:
        numbering = Sequences(table, TableCache(table, snapshots)).next(latest, replaces=overwrite)
    if is_stream:
        user = commit_user(QueryFacts(query_id="{}"), sink.commit_user, sink.name, sink.prefix)
    else:
        user = sink.commit_user or batch_user(table.options, runtime.ids)
    numbers: Numbers = None
    if numbering is not None:
        base = numbering.base
        numbers = (numbering.first, None, "") if base is None else (numbering.first, base.id, base.nonce)
    return Plan(
        task=WriteTask(
            spec=spec_of(table, None, user),
            attempts=sys.maxsize,  # Spark knows how many there are
            first_sequence=0 if numbering is None else numbering.first,
            operations=operations,
            numbers=None if numbering is None else _NUMBERS,
        ),
        columns=sources,
        names=(*table.schema.field_names, *(() if operations is None else (operations.column,))),
        user=user,
        recent=_recent(snapshots, latest) if is_stream else {},
        basis=(digest, runtime.clock.now_millis(), numbers),
    )


def _check_door(table: Table) -> None:
    """Raises for what needs more than tasks that write the rows that they have."""
    option: opt.Option[Any]
    if table.has_dynamic_buckets:
        option, why = opt.BUCKET, "the rows of a key must come to one task, which looks up its bucket"
    elif table.options.value(opt.SHUFFLE) == "bucket":
        option, why = opt.SHUFFLE, "a data source cannot ask Spark to move rows"
    elif table.options.value(opt.MERGE_SCHEMA) != "off":
        option, why = opt.MERGE_SCHEMA, "the schema would change before the batch is judged"
    else:
        return
    text = table.options.get(option.key, option.default)
    raise errors.UnsupportedFeature(
        f'cannot be written by format("paimon_stream") with {option.key} = {text}: {why}. Nothing was written. {_SINK}',
        option=option.key,
    ).of_table(table.location, subject=True)


def _columns(columns: st.StructType, table: Table, operations: Operations | None) -> tuple[str | None, ...]:
    """The column of the rows for each column of the table, and for the one that says what a row does."""
    beside: tuple[str, ...] = ()
    if operations is not None:
        fold = fold_of(False)
        operations.check(table.schema, table.options, table.location, fold)
        beside = tuple(name for name in columns.names if fold(name) == fold(operations.column))
        operations.only(len(beside), table.location)
        columns = st.StructType([one for one in columns.fields if one.name not in beside])
    may_lack = table.options.value(opt.MISSING_COLUMNS) == "null"
    aligned = align(
        columns, table.schema, case_sensitive=False, location=table.location, missing_are_null=may_lack
    ).columns
    for one, source in aligned:
        if source is not None and not _is_cast_by_arrow(source.dataType, spark_type(one.type)):
            raise errors.IncompatibleSchema(
                f"column {one.name!r} is {source.dataType.simpleString()}, the table's is {one.type}, and here only "
                "numbers become wider. Nothing was written. Cast the column in the DataFrame; a struct needs the "
                "table's members in their order.",
                column=one.name,
            ).of_table(table.location)
    return (*(None if source is None else source.name for _, source in aligned), *beside)


def _is_cast_by_arrow(source: st.DataType, target: st.DataType) -> bool:
    """Whether an up-cast needs no Spark."""
    texts = isinstance(source, st.StringType) and isinstance(target, st.StringType)
    numbers = isinstance(source, st.NumericType) and isinstance(target, st.NumericType)
    return texts or numbers or isinstance(source, st.NullType) or same_but_nulls(source, target)


def _recent(snapshots: SnapshotStore, latest: Snapshot | None) -> dict[tuple[str, str | None], int]:
    """The newest batch of each stream among the last snapshots, by commit user and query id."""
    found: dict[tuple[str, str | None], int] = {}
    last = () if latest is None else chain([latest], snapshots.walk_down(latest.id - 1))
    for one in islice(last, _RECENT):
        if one.commit_identifier != BATCH_IDENTIFIER:
            found.setdefault((one.commit_user, Marks.of(one.properties).query_id), one.commit_identifier)
    return found


# -- after the tasks ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Written:
    """What the tasks have written. Until `kept` is set, an error inside `removed_unless_kept` removes it."""

    sink: SinkSettings
    answers: Answers
    kept: bool = False

    def table(self) -> Table:
        """The table as it is now."""
        return load_table(self.sink.open_storage(), self.sink.options)

    def messages(self) -> tuple[CommitMessage, ...]:
        """The commit messages of the tasks that have written something."""
        results = [decode_result(one.result) for one in self.answers if one is not None and one.result is not None]
        return tuple(message for one in results if isinstance(one, TaskResult) for message in one.messages)

    def checked(self, table: Table) -> tuple[CommitMessage, ...]:
        """The same, if no task failed and each has answered once. Raises the error of a task."""
        results = [decode_result(one.result) for one in self.answers if one is not None and one.result is not None]
        return written_by(results, table, gathered=False).messages

    def remove(self, table: Table) -> None:
        """Removes the files."""
        remove_files(table.storage, data_files(table.layout, self.messages()))

    @contextmanager
    def removed_unless_kept(self) -> Iterator[None]:
        """Removes the files if an error is raised."""
        try:
            yield
        except BaseException:
            if not self.kept and self.messages():
                self.remove(self.table())
            raise


def commit_batch(answers: Answers, batch_id: int, options: Given, *, overwrite: bool, is_stream: bool) -> None:
    """Commits a batch of a stream, unless it is in the table. Raises what `PaimonSink` raises."""
    sink, own = settings_of(options, overwrite=overwrite, is_stream=is_stream)
    first = next((one for one in answers if one is not None), None)
    if first is None and not overwrite:
        return  # the rows had no partition, so no task ran
    if first is None or first.ids is None:
        raise errors.IdentityUnknown(
            f"No task has run for batch {batch_id}, so it is not known of which query it is. Nothing was published. "
            "Restart the query."
        ).of_table(sink.location)
    query_id, run_id, _ = first.ids
    runs, written = _RUNS.setdefault((query_id, sink.location), Runs()), _Written(sink, answers)
    with runs.reporting_failures(sink.location, batch_id):
        checkpoint = None if sink.checkpoint is None else sink.open_checkpoint(sink.checkpoint)
        name = own.get("queryname")
        facts = QueryFacts(query_id=query_id, run_id=run_id, name=name, checkpoint=checkpoint)
        user = commit_user(facts, sink.commit_user, sink.name, sink.prefix)
        with written.removed_unless_kept(), runs.run_of(facts, sink, user, after=batch_id - 1) as run:
            runs.finish(run, _committed(run, batch_of(facts, batch_id), written, first.basis), sink)


def _committed(run: Run, batch: Batch, written: _Written, basis: Basis) -> CommitReport:
    writer = run.writer
    verdict = writer.judge(batch)
    if isinstance(verdict, AlreadyCommitted):
        written.remove(writer.table)
        return writer.already(batch, verdict)
    if any(one is not None and one.result is None for one in written.answers):
        raise errors.TableRolledBack(
            f"batch {batch.batch_id} was in the table when it was planned, and is not there any more. Nothing was "
            "published. Restart the query: it judges the batch again."
        ).of_table(writer.table.location)
    messages = written.checked(writer.table)
    if isinstance(verdict, Reuse):
        verdict = writer.again(verdict)  # the tasks have written the rows anew
    digest, millis, numbers = basis
    writer.take_rows(digest, _numbering(numbers))
    written.kept = True  # from here on the writer decides what becomes of the files
    return writer.commit(batch, verdict, messages, phases={"write": _since(millis)})


def _since(millis: int) -> float:
    return float(max(0, system().clock.now_millis() - millis))


def _numbering(numbers: Numbers) -> Numbering | None:
    if numbers is None:
        return None
    first, base, nonce = numbers
    return Numbering(first=first, base=None if base is None else SnapshotRef(id=base, nonce=nonce))


def commit_rows(planned: Plan, answers: Answers, options: Given, *, overwrite: bool, is_stream: bool) -> None:
    """Commits the rows of a DataFrame; with a commit identifier, once only. Raises the errors of `TableCommit`."""
    sink, own = settings_of(options, overwrite=overwrite, is_stream=is_stream)
    written, identifier = _Written(sink, answers), _identifier(own, sink.location)
    digest, millis, numbers = planned.basis
    with written.removed_unless_kept():
        table = written.table()
        rows = written.checked(table)
        if SchemaStore(table.storage).first_digest() != digest:
            raise replaced_meanwhile(table.location)
        warn_of_work_left(table)
        warn_of_merging(table)
        summary = BatchSummary.of_messages(rows, write_millis=_since(millis), reused=False).properties()
        commit = TableCommit(table, planned.user, after_commit=AfterCommit(batch=True))
        try:
            if overwrite:
                given = opt.Options(sink.options)
                dynamic = given.is_set(opt.DYNAMIC_OVERWRITE) and given.value(opt.DYNAMIC_OVERWRITE)
                report = commit.overwrite(None, rows, identifier, dynamic=dynamic, properties=summary)
            else:
                report = commit.append(rows, _numbering(numbers), summary, identifier)
        except errors.CommitUnknown:
            written.kept = True
            raise
        if report.outcome == "already committed":
            written.remove(table)
    log_report(report)


def abort(answers: Answers, options: Given, *, overwrite: bool, is_stream: bool) -> None:
    """Removes what tasks have written if others did not answer. If all have, `commit` was called, and has removed what
    may be removed. Raises no error of this package, because Spark tells why the write failed."""
    try:
        written = _Written(settings_of(options, overwrite=overwrite, is_stream=is_stream)[0], answers)
        if None in answers and (messages := written.messages()):
            TableCommit(written.table(), "abort").abort(messages)
    except errors.PaimonStreamError as why:
        _LOG.warning("Files of a write that has failed were not removed, and stay as orphans: %s", why)
