"""What one Spark task does for a table with primary keys. The task takes rows and writes sorted,
merged files (semantics.md §6.4).

Rows get sequence numbers in the order in which they come, from `first_sequence` on. The table's
merge engine merges them before they are written, so a key occurs once in a file. All rows of a
bucket come to one task, or each task has its own range of sequence numbers (`spark/tasks.py`). In
the second case, files of a bucket may have the same keys, but never the same numbers.

Rows that come sorted by partition, bucket and key are written piece by piece into one sorted run.
So the memory in use is limited, however large the bucket is. Rows in any other order are held until
they exceed `buffer_bytes`. They are then written as a separate sorted run.

Rows that change what a table has (`merge/changing.py`) may come in two forms: one for data files, and
one for the changelog, which has the whole rows before and after. `ONLY_LOGGED` tells them apart.

Rows of a postponed table are written to bucket -2 as they come, neither sorted nor merged, with -1
as their sequence number (table-kinds.md §4.1).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import NullInNotNull
from paimon_stream.format.arrow_types import from_flags, from_numbers, to_flags
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.merge.rows import adding, merge_rows, sort_rows
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec
from paimon_stream.options import BUCKET, CHANGELOG_PRODUCER
from paimon_stream.write.key_value import KeyValueSettings, KeyValueWriter
from paimon_stream.write.routing import GroupIds, split
from paimon_stream.write.row_kinds import Flags, KindRules, Kinds, Operations, kinds_of_tokens
from paimon_stream.write.task import NewFiles, Task, TaskResult, WriteSpec

_PIECE_BYTES: Final = 64 * 2**20

ONLY_LOGGED: Final = "_ONLY_LOGGED"
"""The column that says which rows are for changelog files only. Where rows have this column, all
other rows are for data files only.
"""


def write_keyed_task(
    spec: WriteSpec,
    batches: Iterable[pa.RecordBatch],
    *,
    first_sequence: int,
    is_sorted: bool = False,
    operations: Operations | None = None,
) -> TaskResult:
    """Writes all rows of a table with primary keys. The files are durable when this function
    returns. Before any error, the task's files are removed (best effort).

    Args:
        spec: what to write, and where.
        batches: The rows, in the table's columns. They may also have `_VALUE_KIND` (int8: 0 +I, 1
            -U, 2 +U, 3 -D) or the column that `operations` names, and `ONLY_LOGGED` (bool).
        first_sequence: a number above every sequence number in the table.
        is_sorted: whether the rows are sorted by partition and bucket, then by primary key in
            Paimon's order, then in the order in which they apply.
        operations: the column that says what each row does, if there is one.

    Returns:
        One commit message per (partition, bucket), in the order of their first rows.

    Raises:
        NullInNotNull: for NULL in the primary key and in other columns that do not allow it.
        BadRowKind: for rows of a kind that the table does not accept.
        InvalidData: for rows that the merge engine refuses.

    It also raises what `write_task` raises.
    """
    return _KeyedTask(
        spec, first_sequence=first_sequence, is_sorted=is_sorted, operations=operations
    ).run(batches)


@dataclass(slots=True)
class _Bucket:
    """The rows of one (partition, bucket).

    Attributes:
        data: the writer of data files.
        changelog: the writer of changelog files, if the table has them.
        next_sequence: the sequence number of the next row.
        waiting: the rows that wait, with sequence numbers and kinds.
        waiting_bytes: the size of the waiting rows.
    """

    data: KeyValueWriter
    changelog: KeyValueWriter | None
    next_sequence: int
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0


class _KeyedTask(Task):
    """A task that writes to a table with primary keys.

    Attributes:
        first_sequence: the sequence number of the first row of each bucket.
        is_sorted: whether rows come sorted.
        operations: the column that says what each row does, if there is one.
        is_postponed: whether rows are written to bucket -2 in the order in which they come.
        merge: how rows are merged.
        kinds: how row kinds are treated.
        settings: the settings of the data files.
        changelog: the settings of the changelog files, if the table has such files.
        buckets: the buckets by group number.
        waiting_bytes: the size of the rows that wait in all buckets.
        current: the group number of the rows that came last.
    """

    def __init__(
        self,
        spec: WriteSpec,
        *,
        first_sequence: int,
        is_sorted: bool,
        operations: Operations | None,
    ) -> None:
        super().__init__(spec)
        table = spec.storage.location
        self.first_sequence = first_sequence
        self.is_sorted = is_sorted
        self.operations = operations
        self.is_postponed = spec.options.value(BUCKET) == POSTPONE_BUCKET
        self.merge = MergeSpec.of(spec.schema, spec.options, table=table)
        self.kinds = KindRules.of(spec.schema, spec.options, self.merge)
        self.settings = KeyValueSettings.of(spec.schema, spec.options, table)
        self.changelog: KeyValueSettings | None = None
        if self.is_postponed:
            self.settings = KeyValueSettings.of_waiting(spec.schema, spec.options, spec.user, table)
        elif spec.options.value(CHANGELOG_PRODUCER) == "input":
            self.changelog = KeyValueSettings.of(spec.schema, spec.options, table, changelog=True)
        self.buckets: list[_Bucket] = []
        self.waiting_bytes = 0
        self.current: int | None = None

    def take(self, rows: pa.RecordBatch, numbers: int | GroupIds) -> None:
        if isinstance(numbers, int):
            self._hold(numbers, rows)
            return
        parts = _pieces(rows, numbers) if self.is_sorted else split(rows, numbers)
        for number, part in parts:
            self._hold(number, part)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the table's columns, each with its kind. Rows that the table ignores are left
        out.
        """
        is_logged = None
        if ONLY_LOGGED in batch.schema.names:
            is_logged = batch.column(ONLY_LOGGED)
            batch = batch.drop_columns([ONLY_LOGGED])
        columns, incoming_kinds = self._without_kinds(batch)
        try:
            rows = self.columns.conform(columns)
        except NullInNotNull as error:
            if error.context.get("column") not in self.spec.schema.primary_keys:
                raise
            raise NullInNotNull(
                f"{error.pattern} It is part of the primary key.", **error.context
            ) from None
        kinds = self.kinds.kinds(rows, incoming_kinds)
        if kinds is None:
            return rows.append_column(KIND, from_numbers(np.zeros(rows.num_rows, np.int8)))
        with_kinds = rows.append_column(KIND, from_numbers(kinds))
        if is_logged is None:
            is_kept = self.kinds.kept(kinds, rows)
        else:
            is_kept = self._kept_of_two_forms(rows, kinds, to_flags(is_logged))
            with_kinds = with_kinds.append_column(ONLY_LOGGED, is_logged)
        return with_kinds if is_kept.all() else with_kinds.filter(from_flags(is_kept))

    def _kept_of_two_forms(self, rows: pa.RecordBatch, kinds: Kinds, is_logged: Flags) -> Flags:
        """Says for each row whether it is written. Rows for the changelog only are never merged, so
        the table accepts them whatever their kinds are. Raises `BadRowKind`.
        """
        is_kept = is_logged & ~np.isin(kinds, self.kinds.dropped)
        is_data = ~is_logged
        is_kept[is_data] = self.kinds.kept(kinds[is_data], rows.filter(from_flags(is_data)))
        return is_kept

    def _without_kinds(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The table's columns, and the kind of each row. The kinds are None if the batch has no
        column with kinds.
        """
        if self.operations is not None:
            name = self.operations.column
            kinds = kinds_of_tokens(
                batch.column(name), self.operations.kinds, name, self.spec.storage.location
            )
            return batch.drop_columns([name]), pa.array(kinds)
        if KIND in batch.schema.names:
            return batch.drop_columns([KIND]), batch.column(KIND)
        return batch, None

    def _hold(self, number: int, rows: pa.RecordBatch) -> None:
        """Holds rows of the group with this number. Writes waiting rows if too many rows wait, or
        if sorted rows begin another bucket.
        """
        while len(self.buckets) <= number:
            self.buckets.append(self._new_bucket(len(self.buckets)))
        if self.is_sorted and self.current is not None and self.current != number:
            self._end_bucket(self.buckets[self.current])
        self.current = number
        bucket = self.buckets[number]
        sequence = self._take_sequence_numbers(bucket, rows.num_rows)
        bucket.waiting.append(rows.append_column(SEQUENCE, sequence))
        self._count(bucket, rows.nbytes + sequence.nbytes)
        if self.is_sorted:
            if bucket.waiting_bytes >= min(_PIECE_BYTES, self.spec.buffer_bytes):
                self._flush_piece(bucket)
        elif self.waiting_bytes > self.spec.buffer_bytes:
            self._end_bucket(max(self.buckets, key=lambda bucket: bucket.waiting_bytes))

    def _take_sequence_numbers(self, bucket: _Bucket, rows: int) -> pa.Array:
        """Takes the sequence numbers of the bucket's next rows."""
        first = bucket.next_sequence
        bucket.next_sequence += rows
        if self.is_postponed:
            return from_numbers(np.full(rows, -1, np.int64))
        return from_numbers(np.arange(first, bucket.next_sequence, dtype=np.int64))

    def _new_bucket(self, number: int) -> _Bucket:
        """The bucket of a group. Its writers are among the writers of the task."""
        changelog = None if self.changelog is None else self._writer(self.changelog, number)
        data = self._writer(self.settings, number)
        self.writers.append(data)
        if changelog is not None:
            self.writers.append(changelog)
        return _Bucket(data=data, changelog=changelog, next_sequence=self.first_sequence)

    def _writer(self, settings: KeyValueSettings, number: int) -> KeyValueWriter:
        folder = self.folder(number)
        return KeyValueWriter(settings, self.spec.storage, self.spec.runtime, folder)

    def _count(self, bucket: _Bucket, change: int) -> None:
        """Counts the bytes by which a bucket has grown. The number is negative if the bucket has
        shrunk.
        """
        bucket.waiting_bytes += change
        self.waiting_bytes += change

    def _flush_piece(self, bucket: _Bucket) -> None:
        """Writes the rows of all keys except the last key, because more rows of that key may
        follow.
        """
        rows = pa.Table.from_batches(bucket.waiting).combine_chunks()
        last_key_start = self._last_key_start(rows)
        if not last_key_start:
            return
        self._count(bucket, -bucket.waiting_bytes)
        rest = rows.slice(last_key_start).combine_chunks()
        bucket.waiting = rest.to_batches()
        self._count(bucket, rest.nbytes)
        self._write(bucket, rows.slice(0, last_key_start))

    def _last_key_start(self, rows: pa.Table) -> int:
        """The number of rows before the first row with the key of the last row."""
        is_last_key = None
        for name in self.merge.keys:
            column = rows.column(name)
            is_equal = pc.equal(column, column[-1])
            is_last_key = is_equal if is_last_key is None else pc.and_(is_last_key, is_equal)
        return max(0, int(pc.index(pc.fill_null(is_last_key, False), True).as_py()))

    def _end_bucket(self, bucket: _Bucket) -> None:
        """Writes all rows of the bucket and ends the sorted run."""
        if bucket.waiting:
            rows = pa.Table.from_batches(bucket.waiting)
            bucket.waiting = []
            self._count(bucket, -bucket.waiting_bytes)
            self._write(bucket, rows)
        for writer in (bucket.data, bucket.changelog):
            if writer is not None:
                writer.write_all()
                writer.end_file()

    def _write(self, bucket: _Bucket, rows: pa.Table) -> None:
        logged = rows
        if ONLY_LOGGED in rows.column_names:
            is_logged = rows.column(ONLY_LOGGED)
            logged = rows.filter(is_logged)
            rows = rows.filter(pc.invert(is_logged))
        if bucket.changelog is not None and logged.num_rows:
            bucket.changelog.add_rows(sort_rows(self.merge, logged))
        if rows.num_rows:
            self._write_data(bucket, rows)

    def _write_data(self, bucket: _Bucket, rows: pa.Table) -> None:
        # Only rows that retract a value can leave NULL in a column.
        must_check = bool(self.kinds.not_null) and not adding(rows).all()
        merged = rows
        if must_check or not self.is_postponed:
            merged = merge_rows(self.merge, self._in_order(rows), keep_deletes=True)
        if must_check:
            self.kinds.check_merged(merged)
        # Postponed rows are merged only for a check. They are written in the order in which they
        # came.
        if self.is_postponed:
            bucket.data.add_rows(rows)
        else:
            bucket.data.add_rows(merged)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """The rows with sequence numbers that say in which order they apply. Postponed rows come
        without such numbers, so this method gives them some.
        """
        if not self.is_postponed:
            return rows
        place = rows.column_names.index(SEQUENCE)
        return rows.set_column(place, SEQUENCE, from_numbers(np.arange(rows.num_rows)))

    def finish(self) -> Iterable[NewFiles]:
        self.hold_last_files()
        for bucket in self.buckets:
            self._end_bucket(bucket)
            changelog = () if bucket.changelog is None else bucket.changelog.close()
            yield NewFiles(bucket.data.close(), changelog)


def _pieces(rows: pa.RecordBatch, numbers: GroupIds) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each group, by group number. The rows are sorted by group, so nothing is
    copied.
    """
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    start = 0
    for end in (*cuts.tolist(), len(numbers)):
        yield int(numbers[start]), rows.slice(start, end - start)
        start = end
