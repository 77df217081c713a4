"""The part of `PaimonTable` that writes: batch writes, and commits without Spark."""

from collections.abc import Iterable, Mapping
from typing import Any

from paimon_stream.api.batch_write import Rows, append_rows, batch_commit, overwrite_rows
from paimon_stream.api.table_reading import LoadedTable
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.maintenance.delete_rows import DeleteReport, delete_rows
from paimon_stream.reports import Progress, silent
from paimon_stream.stream.writable import warn_of_work_left


class TableWriting(LoadedTable):
    """Writes rows and clears partitions, each in one snapshot, and commits files that are already written."""

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
        """Appends the rows of a Spark DataFrame (not a streaming one), of a `pyarrow.Table`, `RecordBatch` or
        `RecordBatchReader`, or of a DataFrame of pandas (its index is left out, NaN is NULL) or polars, in one
        snapshot. Without rows there is no snapshot.

        Columns match by name. The table's newest schema and options apply. This is a batch commit: if you repeat it, a
        table without a primary key has the rows twice. In a table with a primary key, each row replaces the row with
        its key or is merged into it. Among given rows with the same key, the last one counts.

        - `missing_columns` (see `paimon-stream.missing-columns`) is `error` by default: rows that lack one of the
          table's columns are refused. With `null` the rows may lack nullable columns.
        - `merge_schema` (see `paimon-stream.merge-schema`), only for a DataFrame, is `off`, `add` or `widen`.
        - `operation_column` (see `paimon-stream.operation-column`), only with a primary key, names a column of the
          rows, not of the table, that says what each row does. `operation_mapping`, such as `"new=+I,gone=-D"`, says
          what its values mean.

        Raises `IncompatibleSchema`, `InvalidData`, `UnsupportedFeature`, `StorageError`, `CommitConflict`,
        `CommitContended`, and `SequenceConflict` if others kept writing to the same buckets of a table with a primary
        key; then nothing is in the table, and the written files are removed. Raises `CommitUnknown` if the rows may be
        in the table. Other errors in Spark's plan are raised as Spark raises them."""
        operations = {"operation_column": operation_column, "operation_mapping": operation_mapping}
        return append_rows(self._newest(merge_schema=merge_schema, missing_columns=missing_columns, **operations), df)

    def overwrite(
        self,
        df: Rows,
        partition: Mapping[str, Any] | None = None,
        dynamic: bool | None = None,
        *,
        merge_schema: str | None = None,
        missing_columns: str | None = None,
    ) -> CommitReport:
        """Replaces rows of the table with the given rows, in one snapshot. `append` says which rows it takes.

        - With a `partition` such as `{"dt": "2024-02-29"}` it replaces all matching partitions; `{}` matches the whole
          table. The rows may leave out the columns of `partition`; otherwise their values must agree with it. Without
          rows, the matching partitions are cleared.
        - With `dynamic=True` it replaces the partitions that get rows. Without rows, nothing happens.
        - With `dynamic=False` it replaces the whole table.
        - With neither, Spark's `spark.sql.sources.partitionOverwriteMode` decides if it is set, else the table's option
          `dynamic-partition-overwrite`. A table without partitions is replaced as a whole.

        Earlier snapshots keep their rows until they expire. The new files may have another bucket count. `merge_schema`
        and `missing_columns` are the same as for `append`.

        Raises `InvalidOption` if both `partition` and `dynamic` are given, `OutsidePartition` for rows of other
        partitions, and the errors of `append`."""
        table = self._newest(merge_schema=merge_schema, missing_columns=missing_columns)
        return overwrite_rows(table, df, partition, dynamic)

    def truncate(self) -> CommitReport:
        """Clears the whole table in one snapshot. Raises the errors of `append`."""
        return batch_commit(self._newest()).truncate()

    def drop_partitions(self, partitions: Iterable[Mapping[str, Any]]) -> CommitReport:
        """Clears in one snapshot all partitions that match one of the specs, such as `[{"dt": "2024-02-29"}]`. Raises
        `InvalidOption` if no spec is given, and the errors of `overwrite`."""
        return batch_commit(self._newest()).drop_partitions(partitions)

    def delete(self, where: Any, *, dry_run: bool = False, progress: Progress = silent) -> DeleteReport:
        """Deletes the rows that fulfil a condition, in one snapshot, by deletion vectors: no data file changes. For
        append tables with `deletion-vectors.enabled` = `true`. A dry run writes nothing and counts the rows.

        `where` is a `pyarrow.compute.Expression`, such as `(pc.field("id") > 7) & pc.field("name").is_null()`. A row
        for which it is NULL stays. Rows that others append meanwhile stay, too. Only files that may have such rows are
        read, and only the columns that `where` names. Compactions leave deleted rows out.

        Raises `InvalidOption` for anything but an expression, `IncompatibleSchema` for one that the columns do not fit,
        `UnsupportedFeature` for other tables, `InvalidData` for a value that `where` cannot be computed for,
        `DeletedFiles` if others kept replacing the files, and the errors of reading and of `append`. Then no row was
        deleted, except for `CommitUnknown`."""
        dry_run = self._given.flag("dry_run", dry_run)
        self._given.function("progress", progress)
        return delete_rows(self._newest, where, dry_run=dry_run, progress=progress)

    def new_commit(self, commit_user: str) -> TableCommit:
        """A `TableCommit` under this user. Raises `InvalidOption` for a blank one, `UnsupportedFeature`."""
        self._given.text("commit_user", commit_user)
        warn_of_work_left(self._table)
        return TableCommit(self._table, commit_user, after_commit=AfterCommit())
