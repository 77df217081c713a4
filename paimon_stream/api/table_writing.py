"""The part of `PaimonTable` that writes: batch writes, and commits without Spark.

Rows become data files, and the files become one snapshot or nothing. Spark's executors write the
rows of a DataFrame. Rows from Arrow are written in this process, in bounded memory. If a write ends
in an error, its files are removed. The files stay only if it is not known whether they were
published.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

import pyarrow as pa

from paimon_stream import errors
from paimon_stream.api.merging import TableMerge
from paimon_stream.api.table_reading import LoadedTable
from paimon_stream.change.delete_rows import DeleteReport, delete_rows
from paimon_stream.change.merge_clauses import MergeWords
from paimon_stream.change.merge_distant import DistantSource
from paimon_stream.change.update_rows import UpdateReport, update_rows
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.overwrite import is_dynamic, static_spec
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.sequence import MOST_REWRITES, Numbering, first_number
from paimon_stream.commit.table_commit import TableCommit, batch_user
from paimon_stream.extras import require
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import arrow_type
from paimon_stream.maintenance.after_commit import AfterCommit
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
from paimon_stream.stream.batch_write import BatchWrite, Replaced, WrittenRows
from paimon_stream.stream.identity import check_user
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.stream.once import OnceWrite, write_once
from paimon_stream.stream.operations import operations_of
from paimon_stream.stream.sequence_conflicts import fresh_numbering, rewrites
from paimon_stream.stream.writable import check_writable, warn_of_merging, warn_of_work_left
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.receipts import AskedWrite
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
"""The sink options that also apply to a writer without a stream."""
_BEGUN_READERS: Final[WeakSet[pa.RecordBatchReader]] = WeakSet()
"""The readers that calls with an identity have begun to read, as long as their callers hold
them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """The arguments with which a batch write takes effect only once.

    Attributes:
        identity: the identity of the write.
        options: the options of a sink that the caller has given.
    """

    identity: str
    options: Mapping[str, str]


def append_rows(
    table: Table,
    rows: Rows,
    once: Once | None = None,
) -> CommitReport:
    """Appends the rows as one batch commit. With `once`, a repeated call does not write them again.
    Raises what `PaimonTable.append` raises.
    """
    if once is not None:
        asked = AskedWrite(kind="append", replaced=None, dynamic=None, **_known_of(rows))
        return _write_once(table, rows, once, asked, replaced=None)
    write = BatchWrite(
        digest=_check_and_warn(table),
        user=batch_user(table.options, system().ids),
        after_commit=_after_commit(),
    )
    for rewrites_done in count():
        numbering = _numbers(table, write)
        try:
            written = _write(table, rows, {}, numbering, write.user)
            table = written.table
            return write.publish_rows(written, partial(_remove, written))
        except errors.SequenceConflict as conflict:
            is_read_once = isinstance(rows, pa.RecordBatchReader)
            is_last_attempt = is_read_once or rewrites_done == MOST_REWRITES
            if is_last_attempt or not rewrites(table, conflict):
                raise
    raise AssertionError("unreachable")


def _write_once(
    table: Table, rows: Rows, once: Once, asked: AskedWrite, replaced: Replaced | None
) -> CommitReport:
    """Writes the rows, unless an earlier call with the same identity has written them. `asked` and
    `replaced` are those of `OnceWrite`. Raises what `write_once` raises.
    """
    check_writable(table)
    fixed: Mapping[str, pa.Scalar] = {}
    if replaced is not None and replaced.partition:
        fixed = static_spec(table, replaced.partition).scalars

    def write_rows(target: Table, numbering: Numbering | None, user: str) -> WrittenRows:
        if isinstance(rows, pa.RecordBatchReader):
            _begin(rows, target, once.identity)
        return _write(target, rows, fixed, numbering, user)

    return write_once(
        OnceWrite(
            identity=once.identity,
            asked=asked,
            storage=table.storage,
            options=once.options,
            replaced=replaced,
            write_rows=write_rows,
            may_write_again=not isinstance(rows, pa.RecordBatchReader),
            after_commit=_after_commit(),
            runtime=system(),
        )
    )


def _begin(reader: pa.RecordBatchReader, table: Table, identity: str) -> None:
    """Notes that this call reads the reader. Raises `InvalidOption` if an earlier call has begun to
    read it, because the remaining rows would count as all rows of this identity.
    """
    if reader in _BEGUN_READERS:
        raise errors.InvalidOption(
            f"identity {identity!r}: an earlier call, which failed, has begun to read this RecordBatchReader, and rows "
            "that it has read would be missing. Nothing was written. Give a new reader, or a pyarrow.Table.",
            identity=identity,
        ).of_table(table.location)
    _BEGUN_READERS.add(reader)


def _known_of(rows: Any) -> dict[str, Any]:
    """What `AskedWrite` says of rows that are not written yet: their columns and, if it is known,
    their number. Rows in a form that cannot be written have no columns.
    """
    columns: Iterable[object] = ()
    count_of_rows = None
    if isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        columns = rows.schema.names
    elif type(rows).__name__ == "DataFrame":
        columns = rows.columns
    if isinstance(rows, pa.Table | pa.RecordBatch):
        count_of_rows = rows.num_rows
    elif type(rows).__module__.partition(".")[0] in ("pandas", "polars"):
        count_of_rows = len(rows)
    return {"columns": tuple(sorted(map(str, columns))), "rows": count_of_rows}


def _check_and_warn(table: Table) -> str:
    """Refuses a table that cannot be written, and warns of what users must know about the table.
    Returns the digest of its first schema, by which the commit sees whether the table is still the
    same.
    """
    check_writable(table)
    warn_of_work_left(table)
    warn_of_merging(table)
    return SchemaStore(table.storage).first_digest()


def _check_changeable(table: Table) -> None:
    """Refuses a table with a primary key that cannot be written, before its rows are changed."""
    if table.schema.primary_keys:
        check_writable(table)
        warn_of_merging(table)


def _numbers(table: Table, write: BatchWrite) -> Numbering | None:
    """The numbering of rows that are about to be written."""
    committer = Committer(table, digest=write.digest)
    return fresh_numbering(table, committer, replaces=write.replaced is not None)


def _remove(written: WrittenRows) -> None:
    """Removes the files of rows that were not published."""
    remove_files(written.table.storage, data_files(written.table.layout, written.messages))


def overwrite_rows(
    table: Table,
    rows: Rows,
    partition: Mapping[str, Any] | None,
    dynamic: bool | None,
    once: Once | None = None,
) -> CommitReport:
    """Overwrites the table, or a part of it, with the rows as one batch commit. With `once`, a
    repeated call does not write them again. Raises what `PaimonTable.overwrite` raises.
    """
    if partition is None and dynamic is None and _is_spark(rows):
        dynamic = _frames().overwrites_dynamically(rows)
    replaces_some = is_dynamic(table, partition, dynamic)
    dynamic_of_whole = None
    if partition is None:
        dynamic_of_whole = replaces_some
    replaced = Replaced(partition=partition, dynamic=dynamic_of_whole)
    fixed = static_spec(table, partition).scalars if partition else {}
    if once is not None:
        asked = AskedWrite(
            kind="overwrite",
            replaced=_shown(partition) if partition else None,
            dynamic=None if partition else replaces_some,
            **_known_of(rows),
        )
        return _write_once(table, rows, once, asked, replaced)
    write = BatchWrite(
        digest=_check_and_warn(table),
        user=batch_user(table.options, system().ids),
        after_commit=_after_commit(),
        replaced=replaced,
    )
    written = _write(table, rows, fixed, _numbers(table, write), write.user)
    return write.publish_rows(written, partial(_remove, written))


def _shown(partition: Mapping[str, Any]) -> str:
    """A text for a partition spec. Equal specs have equal texts, and different specs have different
    texts.
    """
    values = {
        name: "null" if value is None else repr(str(value)) for name, value in partition.items()
    }
    return ", ".join(f"{name}={values[name]}" for name in sorted(values))


def batch_commit(table: Table) -> TableCommit:
    """A `TableCommit` that commits one batch without rows, under a new user."""
    user = batch_user(table.options, system().ids)
    return TableCommit(table, user, after_commit=_after_commit())


def _after_commit() -> AfterCommit:
    return AfterCommit(protect=protect_last_snapshot, batch=True)


def _is_spark(rows: Any) -> bool:
    return _library_of(rows) == "pyspark"


def _frames() -> Any:
    return require("paimon_stream.spark.write_job", "spark", "Writing a DataFrame of Spark")


def _write(
    table: Table, rows: Any, fixed: Mapping[str, pa.Scalar], numbering: Numbering | None, user: str
) -> WrittenRows:
    """Writes the rows of a batch write. If `merge_schema` allows that, the rows of a DataFrame may
    add columns to the table or widen them.

    Args:
        table: the table to which the rows are written.
        rows: the rows, in one of the forms of `Rows`.
        fixed: the values of the columns that the rows may leave out.
        numbering: the numbering of the rows; None for a table without a primary key.
        user: the commit user.
    """
    clock = system().clock
    started = clock.monotonic()
    if _is_spark(rows):
        table, messages = _frames().write_frame(rows, table, fixed, numbering, user)
    else:
        messages = _write_arrow(table, rows, fixed, numbering, user)
    millis = (clock.monotonic() - started) * 1000
    return WrittenRows(table=table, messages=messages, numbering=numbering, millis=millis)


def _write_arrow(
    table: Table, rows: Any, fixed: Mapping[str, pa.Scalar], numbering: Numbering | None, user: str
) -> tuple[CommitMessage, ...]:
    """Writes rows that do not come from Spark. The arguments are those of `_write`."""
    if table.options.value(MERGE_SCHEMA) != "off":
        raise errors.UnsupportedFeature(
            "merge_schema needs a DataFrame of Spark; the columns of Arrow rows are not merged into a table's. "
            "Leave it out, and alter the table first.",
            option="merge_schema",
        ).of_table(table.location)
    index = None if numbering is None else numbering.index
    spec = WriteSpec(
        storage=table.storage,
        schema=table.schema,
        options=table.options,
        index=index,
        user=user,
    )
    operations = operations_of(table.options)
    if operations is not None:
        operations.check(table.schema, table.options, table.location)
    may_lack = table.options.value(MISSING_COLUMNS) == "null"
    batches = _completed(
        _batches(table, rows, operations), table.schema, fixed, missing_are_null=may_lack
    )
    if table.schema.primary_keys:
        first = first_number(numbering)
        task = write_keyed_task(spec, batches, first_sequence=first, operations=operations)
        return task.messages
    return write_task(spec, batches).messages


def _batches(table: Table, rows: Any, operations: Operations | None) -> Iterator[pa.RecordBatch]:
    """Yields an empty batch first, so that columns and types are checked even if there are no rows.
    After that, yields the rows, with their operations.
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
            raise _no_rows(rows, table.location)
    if operations is not None:
        operations.only(rows.schema.names.count(operations.column), table.location)
    without_rows = [pa.nulls(0, column.type) for column in rows.schema]
    yield pa.RecordBatch.from_arrays(without_rows, schema=rows.schema)
    yield from batches


def _check_form(rows: Any, location: str) -> None:
    """Raises `IncompatibleSchema` unless an object can have rows."""
    is_arrow = isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader)
    if not is_arrow and not _is_spark(rows) and not _is_frame(rows):
        raise _no_rows(rows, location)


def _no_rows(rows: Any, location: str) -> errors.IncompatibleSchema:
    return errors.IncompatibleSchema(
        "rows come as a DataFrame of Spark, pandas or polars, a pyarrow.Table, RecordBatch or "
        f"RecordBatchReader, not as {type(rows).__name__}. Nothing was written."
    ).of_table(location)


def _source_of(table: Table, rows: Any) -> pa.Table | DistantSource:
    """The rows of the source of a merge: in memory, or those of a DataFrame, kept by Spark. Raises
    `IncompatibleSchema`, `InvalidData` and `InvalidOption`.
    """
    if _is_spark(rows):
        module = require("paimon_stream.spark.merge_job", "spark", "Merging a DataFrame of Spark")
        source: pa.Table | DistantSource = module.source_of(rows, table.location)
        return source
    first, *batches = _batches(table, rows, None)
    return pa.Table.from_batches([first, *batches])


def _is_frame(rows: Any) -> bool:
    """Whether the rows are a DataFrame of pandas or polars."""
    return type(rows).__name__ == "DataFrame" and _library_of(rows) in ("pandas", "polars")


def _library_of(rows: Any) -> str:
    """The package that has the object's class."""
    return type(rows).__module__.partition(".")[0]


def _of_frame(table: Table, rows: Any) -> Any:
    """A DataFrame of pandas or polars as a `pyarrow.Table`; any other object as it is. Raises
    `InvalidData` for a column that cannot be converted.
    """
    if not _is_frame(rows):
        return rows
    if _library_of(rows) == "polars":
        return rows.to_arrow()
    types = {field.name: arrow_type(field.type) for field in table.schema.fields}
    names = list(map(str, rows.columns))
    columns = []
    for place, name in enumerate(names):
        series = rows.iloc[:, place]
        try:
            columns.append(_of_series(series, types.get(name, pa.null())))
        except (pa.ArrowException, OverflowError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise errors.InvalidData(
                f"column {name!r} cannot be converted: {reason}. Nothing was written.", column=name
            ).of_table(table.location) from None
    return pa.Table.from_arrays(columns, names=names)


def _of_series(series: Any, type_: pa.DataType) -> pa.Array:
    """A column of pandas as an array. It gets the type of the table's column if pandas does not
    keep that type: pandas has whole numbers with NULL as floats, and nested values as Python
    objects.
    """
    is_float_for_integer = pa.types.is_integer(type_) and series.dtype.kind == "f"
    needs_type = pa.types.is_nested(type_) or is_float_for_integer
    if not needs_type:
        return pa.Array.from_pandas(series)
    return pa.Array.from_pandas(series, type=type_)


def _completed(
    batches: Iterable[pa.RecordBatch],
    schema: TableSchema,
    fixed: Mapping[str, pa.Scalar],
    *,
    missing_are_null: bool,
) -> Iterator[pa.RecordBatch]:
    """The batches, with the columns that they lacked. Columns of `fixed` and columns with a default
    are added. With `missing_are_null`, nullable columns are added, too.
    """
    keys = {*schema.partition_keys, *schema.primary_keys, *schema.bucket_keys}
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if len(columns) < batch.num_columns:
            yield batch  # a name comes twice, which is refused later
            continue
        for field in schema.fields:
            if field.name in columns:
                continue
            may_lack = field.default_value is not None or (missing_are_null and field.type.nullable)
            if field.name in fixed:
                columns[field.name] = pa.repeat(fixed[field.name], batch.num_rows)
            elif field.name not in keys and may_lack:
                columns[field.name] = pa.nulls(batch.num_rows, arrow_type(field.type))
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
        identity: str | None = None,
        merge_schema: str | None = None,
        operation_column: str | None = None,
        operation_mapping: str | None = None,
        missing_columns: str | None = None,
    ) -> CommitReport:
        """Appends rows in one snapshot. If there are no rows, there is no snapshot.

        Columns match by name. The table's newest schema and options apply. Without an `identity`
        this is a batch commit: if you repeat it, a table without a primary key has the rows twice.
        With an `identity`, the call takes effect only once, and can be repeated after any error. In
        a table with a primary key, each row replaces the row with its key or is merged into it.
        Rows of `df` with the same key apply in their order. If an error other than `CommitUnknown`
        is raised, no row is in the table, and the written files are removed. Errors in Spark's plan
        are raised as Spark raises them.

        Args:
            df: the rows. They are a DataFrame of Spark (not a streaming DataFrame), a
                `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`, or a DataFrame of pandas (its
                index is left out, NaN is NULL) or polars.
            identity: the name of this write, such as `"load-2026-11-28"`. If a call with this
                identity has written its rows, nothing is written, and the report's `outcome` is
                `already committed`.
            merge_schema: `off`, `add` or `widen`, only for a DataFrame of Spark (see
                `paimon-stream.merge-schema`).
            operation_column: only for tables with a primary key: a column of `df`, not of the
                table, that says what each row does (see `paimon-stream.operation-column`).
            operation_mapping: what the values of that column mean, such as `"new=+I,gone=-D"`.
            missing_columns: `error`, the default, refuses rows that lack a column of the table
                without a default. With `null`, rows may lack nullable columns (see
                `paimon-stream.missing-columns`).

        Raises:
            IncompatibleSchema: for rows with other columns or types.
            InvalidData: for values that a column cannot have.
            UnsupportedFeature: for a table or a type of `df` that this release does not support.
            InvalidOption: for an argument with a wrong value, for a streaming DataFrame, and for
                options of the table that contradict each other.
            StorageError: if the storage fails.
            CommitConflict: if others have changed the table in a way that forbids the commit.
            CommitContended: if others keep committing.
            SequenceConflict: if others kept writing to the same buckets of a table with a primary
                key.
            TableReplaced: if the table was dropped and created again meanwhile.
            CommitUnknown: if the rows may be in the table.
            IdentityUsed: if a call with this identity had other rows, as far as that can be seen.
            TableRolledBack: if the rows of this identity are not in the table any more.
            HistoryUnknown: if it is not known whether the rows of this identity are in the table.
            SharedCheckpoint: if another call with this identity works at the same time.
        """
        options = self._sink_options(
            merge_schema=merge_schema,
            missing_columns=missing_columns,
            operation_column=operation_column,
            operation_mapping=operation_mapping,
        )
        once = self._once(identity, options)
        return append_rows(self._newest_with(options), df, once)

    def overwrite(
        self,
        df: Rows,
        partition: Mapping[str, Any] | None = None,
        dynamic: bool | None = None,
        *,
        identity: str | None = None,
        merge_schema: str | None = None,
        missing_columns: str | None = None,
    ) -> CommitReport:
        """Replaces rows of the table with the given rows, in one snapshot.

        - With a `partition`, all matching partitions are replaced. If there are no rows, these
          partitions are cleared.
        - With `dynamic=True`, the partitions that get rows are replaced. If there are no rows,
          nothing happens.
        - With `dynamic=False`, the whole table is replaced.
        - With neither, Spark's `spark.sql.sources.partitionOverwriteMode` decides if it is set, and
          otherwise the table's option `dynamic-partition-overwrite`. A table without partitions is
          replaced as a whole.

        Earlier snapshots keep their rows until they expire. The new files may have a bucket count
        other than that of the old files.

        Args:
            df: the rows, as for `append`.
            partition: the values of partition columns, such as `{"dt": "2024-02-29"}`; `{}` matches
                the whole table. The rows may lack these columns. If they have them, their values
                must agree.
            dynamic: replace only the partitions that get rows.
            identity: as for `append`. A repeated call replaces nothing, not even rows that others
                have written since.
            merge_schema: as for `append`.
            missing_columns: as for `append`.

        Raises:
            InvalidOption: if both `partition` and `dynamic` are given.
            OutsidePartition: for rows outside the `partition`.
            PaimonStreamError: the errors of `append`.
        """
        options = self._sink_options(merge_schema=merge_schema, missing_columns=missing_columns)
        once = self._once(identity, options)
        return overwrite_rows(self._newest_with(options), df, partition, dynamic, once)

    def _once(self, identity: str | None, options: Mapping[str, str]) -> Once | None:
        """The arguments with which a write takes effect only once; None without an identity. Raises
        `InvalidOption`.
        """
        if identity is None:
            return None
        self._arguments.text("identity", identity)
        if not identity.isascii() and identity != identity.encode("utf-8", "replace").decode():
            raise self._arguments.wrong("identity", identity, "text without lone surrogates")
        return Once(identity=identity, options=options)

    def truncate(self) -> CommitReport:
        """Clears the whole table in one snapshot. Raises the errors of `append`."""
        return batch_commit(self._newest()).truncate()

    def drop_partitions(self, partitions: Iterable[Mapping[str, Any]]) -> CommitReport:
        """Clears in one snapshot all partitions that match one of the specs.

        Args:
            partitions: the specs, such as `[{"dt": "2024-02-29"}]`.

        Raises:
            InvalidOption: if no spec is given.
            PaimonStreamError: the errors of `overwrite`.
        """
        return batch_commit(self._newest()).drop_partitions(partitions)

    def delete(
        self,
        where: Any,
        *,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> DeleteReport:
        """Deletes the rows that fulfil a condition, in one snapshot.

        In a table with a primary key, rows of kind -D delete them. In an append table with
        `deletion-vectors.enabled` = `true`, deletion vectors mark the rows, and no data file
        changes; compactions leave the rows out. In other append tables, each file that has such
        rows is replaced by one with the rows that stay. Only files that may have matching rows are
        read, also files of a table with a primary key that readers do not see before a compaction.

        The rows are those of the newest snapshot at the time of publishing. If others meanwhile add
        such rows, or replace files that were read, the deletion is computed anew. What others do to
        other rows does not matter. If an error other than `CommitUnknown` is raised, no row was
        deleted.

        Args:
            where: a `pyarrow.compute.Expression`, such as `(pc.field("id") > 7) &
                pc.field("name").is_null()`, or SQL text, such as `"id > 7 AND name IS NULL"`. A row
                for which it is NULL stays.
            dry_run: write nothing, and count the rows.
            progress: is called with what is done.

        Raises:
            InvalidOption: for anything but an expression or a text that can be computed.
            IncompatibleSchema: for an expression that the columns do not fit.
            UnsupportedFeature: for a table whose rows cannot be deleted (docs/changing-keyed-rows.md).
            InvalidData: for a value for which `where` cannot be computed, and for a row that the
                table's merge engine would not let go.
            ChangedMeanwhile: if others kept changing the same rows.
            PaimonStreamError: the errors of reading and of `append`.
        """
        dry_run = self._arguments.flag("dry_run", dry_run)
        self._arguments.function("progress", progress)
        _check_changeable(self._newest())
        return delete_rows(
            self._newest,
            where,
            dry_run=dry_run,
            progress=progress,
            after_commit=_after_commit(),
        )

    def update(
        self,
        where: Any,
        updates: Mapping[str, Any] | None = None,
        new_values: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        progress: Progress = silent,
    ) -> UpdateReport:
        """Gives columns of the rows that fulfil a condition new values, in one snapshot.

        In a table with a primary key, a newer row replaces each of them. If its key changes, the
        row with the old key is deleted, and the new key must not be in the table. In an append
        table with `deletion-vectors.enabled` = `true`, the old rows are marked as deleted and the
        new rows are appended. In other append tables, each file that has such rows is replaced by
        one with the rows that stay, and the new rows are written to other files. A row whose
        partition or bucket changes moves there. Conflicts and errors are as for `delete`.

        Args:
            where: the condition, as for `delete`.
            updates: for each column that changes, SQL text such as `"amount * 2"`, or a
                `pyarrow.compute.Expression` such as `pc.field("amount") * 2`. All are computed with
                the old row.
            new_values: for each column that changes, a plain value such as `"north"` or None.
            dry_run: write nothing, and count the rows.
            progress: is called with what is done.

        Raises:
            InvalidOption: for a condition or a text that cannot be computed, and if no column is
                named or one is named twice.
            IncompatibleSchema: for an unknown column, and for an expression that the columns do not
                fit.
            UnsupportedFeature: for a column that cannot be set in this table
                (docs/changing-keyed-rows.md).
            InvalidData: for a value that cannot be computed, or that its column cannot have; for a
                key that is in the table; and for a row that the table's merge engine would not let
                win.
            ChangedMeanwhile: if others kept changing the same rows.
            PaimonStreamError: the errors of reading and of `append`.
        """
        dry_run = self._arguments.flag("dry_run", dry_run)
        self._arguments.function("progress", progress)
        _check_changeable(self._newest())
        return update_rows(
            self._newest,
            where,
            updates=updates,
            new_values=new_values,
            dry_run=dry_run,
            progress=progress,
            after_commit=_after_commit(),
        )

    def merge(
        self,
        source: Rows,
        on: Sequence[str] | str,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
    ) -> TableMerge:
        """Describes a merge of the rows of a source into the table, as MERGE of SQL and deltalake
        do it. Nothing happens before `execute`:

            table.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all().execute()

        The source is read when the merge is executed, and held in memory or by Spark. Old rows are deleted and
        new rows are written as in `update`; in a table with a primary key, that depends on its merge
        engine. A row whose key is
        NULL matches nothing. Texts are compared by their bytes, trailing blanks of a CHAR do not
        count, and NaN equals NaN.

        Args:
            source: the rows of the source, in a form that `append` takes.
            on: the columns whose values are equal in a match, or a condition as SQL text, such as
                `"source.id = target.id AND target.day >= '2026-01-01'"`. It needs at least one
                equality between the source and the table. `<=>` also lets NULL match NULL.
            source_alias: the name of the source in SQL texts.
            target_alias: the name of the table in SQL texts.

        Raises:
            InvalidOption: for a value of another type.
            IncompatibleSchema: for a source that has no rows.
        """
        _check_form(source, self.location)
        if not isinstance(on, str):
            on = self._arguments.items("on", on, str, "column names, or a condition as SQL text")
        self._arguments.text("source_alias", source_alias)
        self._arguments.text("target_alias", target_alias)
        words = MergeWords(on=on, source_alias=source_alias, target_alias=target_alias)
        return TableMerge(
            self._newest,
            lambda: _source_of(self._newest(), source),
            words,
            _after_commit(),
        )

    def new_commit(
        self,
        commit_user: str,
        *,
        options: Mapping[str, str] | None = None,
    ) -> TableCommit:
        """A `TableCommit` under a commit user.

        Args:
            commit_user: the commit user of the writer. It must belong to this writer alone.
            options: the options of a sink that also apply to such a writer:
                `paimon-stream.commit.guard`, `paimon-stream.on-unknown-history` and
                `paimon-stream.protect-last-snapshot`.

        Raises:
            InvalidOption: for a user that is blank or begins with `once:`, for other options, and
                for an option with a wrong value.
            UnsupportedFeature: for a table that this release cannot write.
        """
        check_user(self._arguments, commit_user)
        sink_options = self._of_call(options, _OF_COMMITS)
        with errors.naming(self.location):
            check_sink_options(sink_options)
        table = table_of(self._storage, self._newest().schema, sink_options)
        warn_of_work_left(table)
        return TableCommit(
            table, commit_user, after_commit=AfterCommit(protect=protect_last_snapshot)
        )
