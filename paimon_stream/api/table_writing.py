"""The part of `PaimonTable` that writes: batch writes, and commits without Spark.

Rows become data files, and the files become one snapshot or nothing. Spark's executors write the
rows of a DataFrame. Rows from Arrow are written here, in bounded memory. If a write ends in an
error that says nothing was published, its files are removed. If that is not known, the files stay.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from paimon_stream import errors
from paimon_stream.api.table_reading import LoadedTable
from paimon_stream.commit.overwrite import is_dynamic, static_spec
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.sequence import MOST_REWRITES, Numbering
from paimon_stream.commit.table_commit import TableCommit, batch_user
from paimon_stream.extras import require
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import arrow_type
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.maintenance.delete_rows import DeleteReport, delete_rows
from paimon_stream.options import (
    COMMIT_GUARD,
    MERGE_SCHEMA,
    MISSING_COLUMNS,
    ON_UNKNOWN_HISTORY,
    PROTECT_LAST_SNAPSHOT,
    check_sink_options,
)
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import system
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.stream.operations import operations_of
from paimon_stream.stream.sequence_conflicts import rewrites
from paimon_stream.stream.writable import check_writable, warn_of_merging, warn_of_work_left
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table, table_of
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.row_kinds import Operations
from paimon_stream.write.task import WriteSpec, write_task

if TYPE_CHECKING:
    from paimon_stream.spark.types import SparkFrame

Rows: TypeAlias = "SparkFrame | pa.Table | pa.RecordBatch | pa.RecordBatchReader"

_BATCH_ROWS: Final = 65_536
_OF_COMMITS: Final = (COMMIT_GUARD, ON_UNKNOWN_HISTORY, PROTECT_LAST_SNAPSHOT)
"""The sink options that a writer without a stream has, too."""


def append_rows(
    table: Table,
    rows: Rows,
) -> CommitReport:
    """Appends the rows as one batch commit. Raises as `PaimonTable.append`."""
    digest, user = _check(table), batch_user(table.options, system().ids)
    for rewritten in count():
        numbering = _numbers(table)
        try:
            table, messages, summary = _write(table, rows, {}, numbering, user)
            with _removed_if_refused(table, messages):
                return batch_commit(table, user, digest).append(messages, numbering, summary)
        except errors.SequenceConflict as conflict:
            read_once = isinstance(rows, pa.RecordBatchReader)
            if read_once or rewritten == MOST_REWRITES or not rewrites(table, conflict):
                raise
    raise AssertionError("unreachable")


def _check(table: Table) -> str:
    """Refuses a table that cannot be written, and says what users must know about one that can.
    Returns the digest of its first schema, by which the commit sees whether it is still this table.
    """
    check_writable(table)
    warn_of_work_left(table)
    warn_of_merging(table)
    return SchemaStore(table.storage).first_digest()


def _numbers(table: Table, *, replaces: bool = False) -> Numbering | None:
    """Where the sequence numbers of rows begin; None for a table without primary key."""
    return batch_commit(table).numbers(replaces=replaces) if table.schema.primary_keys else None


def overwrite_rows(
    table: Table,
    rows: Rows,
    partition: Mapping[str, Any] | None,
    dynamic: bool | None,
) -> CommitReport:
    """Overwrites with the rows as one batch commit. Raises as `PaimonTable.overwrite`."""
    digest = _check(table)
    if partition is None and dynamic is None and _is_spark(rows):
        dynamic = _frames().overwrites_dynamically(rows)
    replaces_some = is_dynamic(table, partition, dynamic)
    fixed = static_spec(table, partition).scalars if partition else {}
    numbering, user = _numbers(table, replaces=True), batch_user(table.options, system().ids)
    table, messages, summary = _write(table, rows, fixed, numbering, user)
    said = None if partition is not None else replaces_some
    with _removed_if_refused(table, messages):
        return batch_commit(table, user, digest).overwrite(
            partition, messages, dynamic=said, properties=summary
        )


@contextmanager
def _removed_if_refused(table: Table, messages: tuple[CommitMessage, ...]) -> Iterator[None]:
    """Removes the files of the messages if nothing of them was published."""
    try:
        yield
    except errors.CommitUnknown:
        raise  # it may be published, so no file may be removed
    except errors.PaimonStreamError:
        remove_files(table.storage, data_files(table.layout, messages))
        raise


def batch_commit(
    table: Table,
    user: str | None = None,
    digest: str | None = None,
) -> TableCommit:
    """Commits one batch, by default under a new commit user. For `digest` see `TableCommit`."""
    user = user or batch_user(table.options, system().ids)
    return TableCommit(
        table,
        user,
        after_commit=AfterCommit(protect=protect_last_snapshot, batch=True),
        digest=digest,
    )


def _is_spark(rows: Any) -> bool:
    return type(rows).__module__.partition(".")[0] == "pyspark"


def _frames() -> Any:
    return require("paimon_stream.spark.write_job", "spark", "Writing a DataFrame of Spark")


def _write(
    table: Table, rows: Any, fixed: Mapping[str, pa.Scalar], numbering: Numbering | None, user: str
) -> tuple[Table, tuple[CommitMessage, ...], dict[str, str]]:
    """The table to commit to, the messages, and their summary as a snapshot's properties. The
    table's schema has new or wider columns if `merge_schema` allowed the rows of a DataFrame to
    change it.
    """
    clock = system().clock
    started = clock.monotonic()
    table, messages = _write_files(table, rows, fixed, numbering, user)
    millis = (clock.monotonic() - started) * 1000
    return (
        table,
        messages,
        BatchSummary.of_messages(messages, millis=millis, reused=False).properties(),
    )


def _write_files(
    table: Table, rows: Any, fixed: Mapping[str, pa.Scalar], numbering: Numbering | None, user: str
) -> tuple[Table, tuple[CommitMessage, ...]]:
    first, index = (0, None) if numbering is None else (numbering.first, numbering.index)
    if _is_spark(rows):
        grown: tuple[Table, tuple[CommitMessage, ...]] = _frames().write_frame(
            rows, table, fixed, first, index, user
        )
        return grown
    if table.options.value(MERGE_SCHEMA) != "off":
        cure = "the columns of Arrow rows are not merged into a table's. Leave it out, and alter the table first."
        text = f"merge_schema needs a DataFrame of Spark; {cure}"
        raise errors.UnsupportedFeature(text, option="merge_schema").of_table(table.location)
    spec = WriteSpec(
        storage=table.storage, schema=table.schema, options=table.options, index=index, user=user
    )
    operations = operations_of(table.options)
    if operations is not None:
        operations.check(table.schema, table.options, table.location)
    may_lack = table.options.value(MISSING_COLUMNS) == "null"
    batches = _completed(
        _batches(table, rows, operations), table.schema, fixed, missing_are_null=may_lack
    )
    if table.schema.primary_keys:
        return table, write_keyed_task(
            spec, batches, first_sequence=first, operations=operations
        ).messages
    return table, write_task(spec, batches).messages


def _batches(table: Table, rows: Any, operations: Operations | None) -> Iterator[pa.RecordBatch]:
    """An empty batch, which has columns and types checked even without rows; then the rows, with
    their operations.
    """
    rows = _of_frame(table, rows)
    match rows:
        case pa.Table():
            batches: Iterable[pa.RecordBatch] = rows.to_batches(max_chunksize=_BATCH_ROWS)
        case pa.RecordBatch():
            batches = (rows,)
        case pa.RecordBatchReader():
            batches = rows
        case _:
            kinds = "a DataFrame of Spark, pandas or polars, a pyarrow.Table, RecordBatch or RecordBatchReader"
            text = f"rows come as {kinds}, not as {type(rows).__name__}. Nothing was written."
            raise errors.IncompatibleSchema(text).of_table(table.location)
    if operations is not None:
        operations.only(rows.schema.names.count(operations.column), table.location)
    yield pa.RecordBatch.from_arrays(
        [pa.nulls(0, one.type) for one in rows.schema], schema=rows.schema
    )
    yield from batches


def _of_frame(table: Table, rows: Any) -> Any:
    """A DataFrame of pandas or polars as a `pyarrow.Table`; anything else as it is. Raises
    `InvalidData`.
    """
    library = type(rows).__module__.partition(".")[0]
    if type(rows).__name__ != "DataFrame" or library not in ("pandas", "polars"):
        return rows
    if library == "polars":
        return rows.to_arrow()
    types = {one.name: arrow_type(one.type) for one in table.schema.fields}
    names, columns = list(map(str, rows.columns)), []
    for place, name in enumerate(names):
        series, wanted = rows.iloc[:, place], types.get(name, pa.null())
        try:
            # pandas has whole numbers with NULL as floats, and nested values as Python objects
            exact = pa.types.is_nested(wanted) or (
                pa.types.is_integer(wanted) and series.dtype.kind == "f"
            )
            columns.append(pa.Array.from_pandas(series, type=wanted if exact else None))
        except (pa.ArrowException, OverflowError) as why:
            text = f"column {name!r} cannot be converted: {str(why).splitlines()[0].rstrip('.')}. Nothing was written."
            raise errors.InvalidData(text, column=name).of_table(table.location) from None
    return pa.Table.from_arrays(columns, names=names)


def _completed(
    batches: Iterable[pa.RecordBatch],
    schema: TableSchema,
    fixed: Mapping[str, pa.Scalar],
    *,
    missing_are_null: bool,
) -> Iterator[pa.RecordBatch]:
    """With the columns they lack: fixed ones, those with a default, and, with `missing_are_null`,
    nullable ones.
    """
    keys = {*schema.partition_keys, *schema.primary_keys, *schema.bucket_keys}
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if len(columns) < batch.num_columns:
            yield batch  # a name twice: refused further on
            continue
        for one in schema.fields:
            if one.name in columns:
                continue
            if one.name in fixed:
                columns[one.name] = pa.repeat(fixed[one.name], batch.num_rows)
            elif one.name not in keys and (
                one.default_value is not None or (missing_are_null and one.type.nullable)
            ):
                columns[one.name] = pa.nulls(batch.num_rows, arrow_type(one.type))
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


class TableWriting(LoadedTable):
    """Writes rows and clears partitions, each in one snapshot, and commits files that are already
    written.
    """

    __slots__ = ()

    def append(
        self,
        df: Rows,
        *,
        merge_schema: str | None = None,
        operation_column: str | None = None,
        operation_mapping: str | None = None,
        missing_columns: str | None = None,
    ) -> CommitReport:
        """Appends the rows of a Spark DataFrame (not a streaming one), of a `pyarrow.Table`,
        `RecordBatch` or `RecordBatchReader`, or of a DataFrame of pandas (its index is left out,
        NaN is NULL) or polars, in one snapshot. Without rows there is no snapshot.

        Columns match by name. The table's newest schema and options apply. This is a batch commit:
        if you repeat it, a table without a primary key has the rows twice. In a table with a
        primary key, each row replaces the row with its key or is merged into it. Among given rows
        with the same key, the last one counts.

        - `missing_columns` (see `paimon-stream.missing-columns`) is `error` by default: rows that
          lack one of the table's columns are refused. With `null` the rows may lack nullable
          columns.
        - `merge_schema` (see `paimon-stream.merge-schema`), only for a DataFrame, is `off`, `add`
          or `widen`.
        - `operation_column` (see `paimon-stream.operation-column`), only with a primary key, names
          a column of the rows, not of the table, that says what each row does. `operation_mapping`,
          such as `"new=+I,gone=-D"`, says what its values mean.

        Raises `IncompatibleSchema`, `InvalidData`, `UnsupportedFeature`, `StorageError`,
        `CommitConflict`, `CommitContended`, and `SequenceConflict` if others kept writing to the
        same buckets of a table with a primary key; then nothing is in the table, and the written
        files are removed. Raises `CommitUnknown` if the rows may be in the table. Other errors in
        Spark's plan are raised as Spark raises them.
        """
        operations = {"operation_column": operation_column, "operation_mapping": operation_mapping}
        return append_rows(
            self._newest(merge_schema=merge_schema, missing_columns=missing_columns, **operations),
            df,
        )

    def overwrite(
        self,
        df: Rows,
        partition: Mapping[str, Any] | None = None,
        dynamic: bool | None = None,
        *,
        merge_schema: str | None = None,
        missing_columns: str | None = None,
    ) -> CommitReport:
        """Replaces rows of the table with the given rows, in one snapshot. `append` says which rows
        it takes.

        - With a `partition` such as `{"dt": "2024-02-29"}` it replaces all matching partitions;
          `{}` matches the whole table. The rows may leave out the columns of `partition`; otherwise
          their values must agree with it. Without rows, the matching partitions are cleared.
        - With `dynamic=True` it replaces the partitions that get rows. Without rows, nothing
          happens.
        - With `dynamic=False` it replaces the whole table.
        - With neither, Spark's `spark.sql.sources.partitionOverwriteMode` decides if it is set,
          else the table's option `dynamic-partition-overwrite`. A table without partitions is
          replaced as a whole.

        Earlier snapshots keep their rows until they expire. The new files may have another bucket
        count. `merge_schema` and `missing_columns` are the same as for `append`.

        Raises `InvalidOption` if both `partition` and `dynamic` are given, `OutsidePartition` for
        rows of other partitions, and the errors of `append`.
        """
        table = self._newest(merge_schema=merge_schema, missing_columns=missing_columns)
        return overwrite_rows(table, df, partition, dynamic)

    def truncate(self) -> CommitReport:
        """Clears the whole table in one snapshot. Raises the errors of `append`."""
        return batch_commit(self._newest()).truncate()

    def drop_partitions(self, partitions: Iterable[Mapping[str, Any]]) -> CommitReport:
        """Clears in one snapshot all partitions that match one of the specs, such as `[{"dt":
        "2024-02-29"}]`. Raises `InvalidOption` if no spec is given, and the errors of `overwrite`.
        """
        return batch_commit(self._newest()).drop_partitions(partitions)

    def delete(
        self,
        where: Any,
        *,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> DeleteReport:
        """Deletes the rows that fulfil a condition, in one snapshot, by deletion vectors: no data
        file changes. For append tables with `deletion-vectors.enabled` = `true`. A dry run writes
        nothing and counts the rows.

        `where` is a `pyarrow.compute.Expression`, such as `(pc.field("id") > 7) &
        pc.field("name").is_null()`. A row for which it is NULL stays. Rows that others append
        meanwhile stay, too. Only files that may have such rows are read, and only the columns that
        `where` names. Compactions leave deleted rows out.

        Raises `InvalidOption` for anything but an expression, `IncompatibleSchema` for one that the
        columns do not fit, `UnsupportedFeature` for other tables, `InvalidData` for a value that
        `where` cannot be computed for, `DeletedFiles` if others kept replacing the files, and the
        errors of reading and of `append`. Then no row was deleted, except for `CommitUnknown`.
        """
        dry_run = self._given.flag("dry_run", dry_run)
        self._given.function("progress", progress)
        return delete_rows(self._newest, where, dry_run=dry_run, progress=progress)

    def new_commit(
        self,
        commit_user: str,
        *,
        options: Mapping[str, str] | None = None,
    ) -> TableCommit:
        """A `TableCommit` under this user. `options` are those of a sink that such a writer has,
        too: `paimon-stream.commit.guard`, `paimon-stream.on-unknown-history` and
        `paimon-stream.protect-last-snapshot`. Raises `InvalidOption` for a blank user and other
        options, `UnsupportedFeature`.
        """
        self._given.text("commit_user", commit_user)
        asked = self._of_call(options, _OF_COMMITS)
        with errors.naming(self.location):
            check_sink_options(asked)
        table = table_of(self._storage, self._table.schema, asked)
        warn_of_work_left(table)
        return TableCommit(
            table, commit_user, after_commit=AfterCommit(protect=protect_last_snapshot)
        )
