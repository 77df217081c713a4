"""What one Spark task does for a table with primary keys: it takes rows and writes sorted, merged
files (semantics.md §6.4).

Rows get sequence numbers in the order in which they come, from `first_sequence` on. The table's
merge engine merges them before they are written, so a key occurs once in a file. All rows of a
bucket come to one task, or each task has numbers of its own (`spark/tasks.py`): then files of a
bucket may overlap in keys, but never in numbers.

Rows that come sorted by partition, bucket and key are flushed piece by piece into one sorted run,
so the memory in use is bounded, however large the bucket is. Rows in any other order are held until
they exceed `buffer_bytes`; each flush is then a sorted run of its own.

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
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.merge.rows import adding, merge_rows, sort_rows
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec
from paimon_stream.options import BUCKET, CHANGELOG_PRODUCER
from paimon_stream.write.key_value import KeyValueSettings, KeyValueWriter
from paimon_stream.write.routing import GroupIds, split
from paimon_stream.write.row_kinds import KindRules, Operations, kinds_of_tokens
from paimon_stream.write.task import NewFiles, Task, TaskResult, WriteSpec

_PIECE_BYTES: Final = 64 * 2**20


def write_keyed_task(
    spec: WriteSpec,
    batches: Iterable[pa.RecordBatch],
    *,
    first_sequence: int,
    is_sorted: bool = False,
    operations: Operations | None = None,
) -> TaskResult:
    """Writes all rows. Returns one commit message per (partition, bucket), in the order of their
    first rows.

    The batches have the table's columns. They may also have `_VALUE_KIND` (int8: 0 +I, 1 -U, 2 +U,
    3 -D) or the column that `operations` names. `first_sequence` is above every sequence number in
    the table. `is_sorted` promises rows sorted by partition and bucket, then by primary key in
    Paimon's order, then in the order in which they apply. Files are durable when this returns;
    before any error, the task's files are removed (best effort). Raises what `write_task` raises,
    and `NullInNotNull`, `BadRowKind` and `InvalidData` for rows that the merge engine refuses.
    """
    return _KeyedTask(spec, first_sequence, is_sorted, operations).run(batches)


@dataclass(slots=True)
class _Bucket:
    """The waiting rows of one (partition, bucket), with sequence numbers and kinds, and its
    writers.
    """

    data: KeyValueWriter
    changelog: KeyValueWriter | None
    next_sequence: int
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class _KeyedTask(Task):
    def __init__(
        self, spec: WriteSpec, first_sequence: int, is_sorted: bool, operations: Operations | None
    ) -> None:
        super().__init__(spec)
        table = spec.storage.location
        self.first_sequence = first_sequence
        self.is_sorted = is_sorted
        self.operations = operations
        self.merge = MergeSpec.of(spec.schema, spec.options, table=table)
        self.kinds = KindRules.of(spec.schema, spec.options, self.merge)
        self.settings = KeyValueSettings.of(spec.schema, spec.options, table)
        self.changelog: KeyValueSettings | None = None
        self.waits = spec.options.value(BUCKET) == POSTPONE_BUCKET
        if self.waits:
            self.settings = KeyValueSettings.of_waiting(spec.schema, spec.options, spec.user, table)
        elif spec.options.value(CHANGELOG_PRODUCER) == "input":
            self.changelog = KeyValueSettings.of(spec.schema, spec.options, table, changelog=True)
        self.buckets: list[_Bucket] = []
        self.bytes = 0
        self.current: int | None = None

    def take(self, rows: pa.RecordBatch, numbers: int | GroupIds) -> None:
        if isinstance(numbers, int):
            self._give(numbers, rows)
            return
        for number, part in (_pieces if self.is_sorted else split)(rows, numbers):
            self._give(number, part)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the table's columns, with a kind for each row, without rows that the table
        ignores.
        """
        own, given = self._without_kinds(batch)
        try:
            rows = self.columns.conform(own)
        except NullInNotNull as wrong:
            if wrong.context.get("column") not in self.spec.schema.primary_keys:
                raise
            raise NullInNotNull(
                f"{wrong.pattern} It is part of the primary key.", **wrong.context
            ) from None
        kinds = self.kinds.kinds(rows, given)
        if kinds is None:
            return rows.append_column(KIND, pa.array(np.zeros(rows.num_rows, np.int8)))
        kept = self.kinds.kept(kinds, rows)
        made = rows.append_column(KIND, pa.array(kinds))
        return made if kept.all() else made.filter(pa.array(kept))

    def _without_kinds(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The table's columns, and the kind of each row if the batch has a column for it, else
        None.
        """
        if self.operations is not None:
            name = self.operations.column
            tokens, table = batch.column(name), self.spec.storage.location
            return batch.drop_columns([name]), pa.array(
                kinds_of_tokens(tokens, self.operations.kinds, name, table)
            )
        if KIND in batch.schema.names:
            return batch.drop_columns([KIND]), batch.column(KIND)
        return batch, None

    def _give(self, number: int, rows: pa.RecordBatch) -> None:
        while len(self.buckets) <= number:
            self.buckets.append(self._bucket(len(self.buckets)))
        if self.is_sorted and self.current not in (None, number):
            self._end_bucket(self.buckets[self.current or 0])
        self.current = number
        bucket = self.buckets[number]
        first = bucket.next_sequence
        bucket.next_sequence += rows.num_rows
        numbers = np.arange(first, bucket.next_sequence, dtype=np.int64)
        sequence = pa.array(np.full_like(numbers, -1) if self.waits else numbers)
        bucket.waiting.append(rows.append_column(SEQUENCE, sequence))
        self._count(bucket, rows.nbytes + sequence.nbytes)
        if self.is_sorted:
            if bucket.bytes >= min(_PIECE_BYTES, self.spec.buffer_bytes):
                self._flush_piece(bucket)
        elif self.bytes > self.spec.buffer_bytes:
            self._end_bucket(max(self.buckets, key=lambda one: one.bytes))

    def _bucket(self, number: int) -> _Bucket:
        where = self.spec.storage, self.spec.runtime, self.folder(number)
        changelog = None if self.changelog is None else KeyValueWriter(self.changelog, *where)
        data = KeyValueWriter(self.settings, *where)
        self.writers += [data] if changelog is None else [data, changelog]
        return _Bucket(data=data, changelog=changelog, next_sequence=self.first_sequence)

    def _count(self, bucket: _Bucket, more: int) -> None:
        bucket.bytes += more
        self.bytes += more

    def _flush_piece(self, bucket: _Bucket) -> None:
        """Writes the rows of all keys but the last, because more rows of that key may follow."""
        rows = pa.Table.from_batches(bucket.waiting).combine_chunks()
        ends = self._last_key_start(rows)
        if not ends:
            return
        self._count(bucket, -bucket.bytes)
        rest = rows.slice(ends).combine_chunks()
        bucket.waiting = rest.to_batches()
        self._count(bucket, rest.nbytes)
        self._write(bucket, rows.slice(0, ends))

    def _last_key_start(self, rows: pa.Table) -> int:
        """How many rows come before those that have the key of the last row."""
        same = None
        for name in self.merge.keys:
            column = rows.column(name)
            equal = pc.equal(column, column[-1])
            same = equal if same is None else pc.and_(same, equal)
        return max(0, int(pc.index(pc.fill_null(same, False), True).as_py()))

    def _end_bucket(self, bucket: _Bucket) -> None:
        """Writes everything and ends the sorted run."""
        if bucket.waiting:
            rows = pa.Table.from_batches(bucket.waiting)
            bucket.waiting = []
            self._count(bucket, -bucket.bytes)
            self._write(bucket, rows)
        for writer in (bucket.data, bucket.changelog):
            if writer is not None:
                writer.write_all()
                writer.end_file()

    def _write(self, bucket: _Bucket, rows: pa.Table) -> None:
        checked = bool(self.kinds.not_null) and not adding(rows).all()
        merged = rows
        if checked or not self.waits:
            merged = merge_rows(self.merge, self._in_order(rows), keep_deletes=True)
        if checked:
            self.kinds.check_merged(merged)
        if bucket.changelog is not None:
            bucket.changelog.add_rows(sort_rows(self.merge, rows))
        bucket.data.add_rows(rows if self.waits else merged)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """Rows with numbers in the order in which they apply; those that wait have none."""
        if not self.waits:
            return rows
        place = rows.column_names.index(SEQUENCE)
        return rows.set_column(place, SEQUENCE, pa.array(np.arange(rows.num_rows)))

    def finish(self) -> Iterable[NewFiles]:
        for bucket in self.buckets:
            self._end_bucket(bucket)
            changelog = () if bucket.changelog is None else bucket.changelog.close()
            yield bucket.data.close(), changelog


def _pieces(rows: pa.RecordBatch, numbers: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cuts rows that are sorted by group where the group changes. Nothing is copied."""
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    start = 0
    for end in (*cuts.tolist(), len(numbers)):
        yield int(numbers[start]), rows.slice(start, end - start)
        start = end
