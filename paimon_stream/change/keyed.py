"""Changes rows of tables with a primary key, by newer rows that delete and replace them
(`merge/changing.py`).

    read what is there ──► which rows go, which come ──► rows that do that ──► files of level 0

`KeyedChange` is a `RowChange`. A deletion, an update and a merge only say which rows go and which
come (`KeyedChange.wanted`). They read by `KeyedRows`, which remembers what was read: a condition,
or keys. So it is known which commits of others are a conflict.

Invariants:

- All committed rows are read, also those of level 0 that other readers do not see before a
  compaction. Otherwise a row that changes a key would be made of an older row.
- A commit of others is a conflict if it has a row that fulfils the condition, a row of a key that
  was read or is written, or if that is not known. The rows of its files are looked at, because the
  first and last keys of files that lie side by side say little.

If only the sequence numbers were taken meanwhile, the rows stay, and are written once more under
higher numbers. Each time they get as much room above the numbers of others as others have used
while they were written. So the change ends beside a writer that commits all the time.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import compress
from operator import and_
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.change.anew import ComputedChange, RowChange, RowCounts, carry_out
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.premises import Premises
from paimon_stream.commit.request import Published
from paimon_stream.commit.sequence import Numbering, first_number
from paimon_stream.commit.table_commit import AfterPublishing
from paimon_stream.errors import NotFound, UnsupportedFeature, naming
from paimon_stream.format.arrow_types import arrow_schema, from_flags
from paimon_stream.format.entries import FileIdentity, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.format.types import DataField
from paimon_stream.merge.changing import (
    ChangedRows,
    Operation,
    changed_rows,
    has_key,
    refusal,
    refusal_of_cut_keys,
)
from paimon_stream.merge.spec import KIND, ROW_KIND, ROW_KIND_COLUMN, MergeSpec
from paimon_stream.options import CHANGELOG_PRODUCER, ROWKIND_FIELD
from paimon_stream.read import merged as merging
from paimon_stream.read.condition_text import condition_in_text
from paimon_stream.read.predicate import Predicate
from paimon_stream.read.rows import read_batches, section_batches, sections_of
from paimon_stream.read.scan import (
    NEWEST,
    Scan,
    check_open_to_readers,
    find_snapshot,
    known_of,
    scan_without_files,
    with_files,
)
from paimon_stream.reports import Progress, silent
from paimon_stream.runtime import Runtime
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.table.table import Table
from paimon_stream.write.key_task import ONLY_LOGGED, write_keyed_task
from paimon_stream.write.task import WriteSpec

_BATCH_ROWS: Final = 65_536
_DEDUPLICATE: Final = "deduplicate"


def refuse_operations(table: Table, operations: Iterable[tuple[Operation, str | None]]) -> None:
    """Raises `UnsupportedFeature` if rows of a table with a primary key cannot be changed in one of
    these ways. Each comes with the column that is set, or None.
    """
    spec = MergeSpec.of(table.schema, table.options, table=table.location)
    for operation, column in operations:
        reason = refusal(table.schema, table.options, spec, operation, column)
        if reason is not None:
            raise UnsupportedFeature(
                f"{reason}. Nothing was written. docs/changing-keyed-rows.md says what works where.",
                operation=operation.value,
                column=column,
            ).of_table(table.location, subject=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows of a table with a primary key a change wants to go, and which to come. A row that
    gets other values goes and comes. All have the table's columns.

    Attributes:
        before: the rows that go, as `KeyedRows` has read them.
        after: the rows that come, as they are stored: new ones with the defaults of columns. If one of them has a key that is not among the rows that go, its
            key must be new.
    """

    before: pa.Table
    after: pa.Table


class Decision(NamedTuple):
    """Which of the rows that fulfil a condition matter for a change.

    Attributes:
        columns: the columns that decide it.
        concerns: whether one of these rows matters.
    """

    columns: Sequence[DataField]
    concerns: Callable[[pa.Table], bool]


class _Condition(NamedTuple):
    """A condition that was read.

    Attributes:
        scan: what was read for it.
        decision: which of its rows matter; None if all do.
    """

    scan: Scan
    decision: Decision | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that say whether a row matters."""
        where = self.scan.where
        read = () if where is None else where.columns
        decisive = () if self.decision is None else self.decision.columns
        return tuple(column.name for column in (*read, *decisive))

    def holds_for_one(self, rows: pa.RecordBatch) -> bool:
        """Whether one of the rows matters. They have at least these columns."""
        where = self.scan.where
        kept = rows if where is None else where.kept(rows, self.scan.table.location)
        if not kept.num_rows or self.decision is None:
            return bool(kept.num_rows)
        return self.decision.concerns(pa.Table.from_batches([kept]))


class KeyedRows:
    """The rows of a table with a primary key at its newest snapshot, with all that is committed. It
    remembers what was read.

    Attributes:
        table: the table.
        spec: how its rows are merged.
        snapshot: the snapshot; None for an empty table.
    """

    def __init__(self, table: Table) -> None:
        """Looks for the newest snapshot. Raises `UnsupportedFeature`, `StorageError`."""
        self.table = table
        self.spec = MergeSpec.of(table.schema, table.options, table=table.location)
        check_open_to_readers(table)
        self.snapshot: Snapshot | None = find_snapshot(table, NEWEST)
        self._read: dict[FileIdentity, ManifestEntry] = {}
        self._conditions: list[_Condition] = []
        self._keys: list[pa.Table] = []

    @property
    def empty(self) -> pa.Table:
        """No rows, in the table's columns."""
        return arrow_schema(self.table.schema.fields).empty_table()

    @property
    def files_read(self) -> int:
        """How many data files were read."""
        return len(self._read)

    def matching(
        self, where: Any, progress: Progress = silent, decision: Decision | None = None
    ) -> pa.Table:
        """The rows that fulfil a condition. Raises the errors of `plan_scan` and `read_batches`.

        Args:
            where: an expression of Arrow, or a condition as SQL text.
            progress: is told how many bytes of files were read.
            decision: which of these rows matter; None if all do.
        """
        table = self.table
        if isinstance(where, str):
            with naming(table.location):
                where = condition_in_text(where, table.schema, "where")
        Predicate.of(where, table.schema, table.location)  # its errors name the argument
        scan = self._planned(where)
        self._conditions.append(_Condition(scan, decision))
        if self.snapshot is None:
            return self.empty
        rows = pa.Table.from_batches(read_batches(scan), self.empty.schema)
        size = sum(entry.file.file_size for entry in scan.files)
        progress("bytes", size, size)
        return rows

    def note_keys(self, rows: pa.Table) -> None:
        """Notes that it matters what others do to rows with the keys of these rows."""
        self._keys.append(rows.select(self.table.schema.primary_keys))

    def of_keys(self, keys: pa.Table) -> pa.Table:
        """What the table holds of some keys, with `_VALUE_KIND` after the table's columns: rows,
        and deletes that are not forgotten yet. It may also have rows of other keys. Raises the
        errors of `matching`.

        Args:
            keys: the columns of the primary key. They may have a key twice.
        """
        keys = keys.select(self.table.schema.primary_keys)
        self.note_keys(keys)
        schema = self.empty.schema.append(pa.field(KIND, pa.int8()))
        if self.snapshot is None or not keys.num_rows:
            return schema.empty_table()
        scan = self._planned(_any_of(keys))
        parts = [rows.select(schema.names).cast(schema) for rows in _with_deletes(scan)]
        return pa.Table.from_batches(parts, schema)

    def premises(self, written: Sequence[pa.Table]) -> Premises:
        """What was read. `written` are the keys that are written."""
        keys = [part.select(self.table.schema.primary_keys) for part in (*self._keys, *written)]
        new_files = _FilesOfOthers(
            table=self.table,
            spec=self.spec,
            conditions=tuple(self._conditions),
            keys=pa.concat_tables(keys),
        )
        return Premises(
            self.table, self.snapshot, read=self._read.values(), may_hold=new_files.may_hold
        )

    def _planned(self, where: Any) -> Scan:
        """A scan of the files that may hold rows for the condition. Raises `UnsupportedFeature` if
        one of them waits for a bucket, or has cut keys.
        """
        table = self.table
        scan = scan_without_files(table, table.schema, table.schema.fields, self.snapshot, where)
        if self.snapshot is None:
            return scan
        scan = with_files(scan, self.snapshot, None, hidden=True)
        if any(entry.bucket < 0 for entry in scan.files):
            raise UnsupportedFeature(
                "has rows that wait in bucket -2, and nobody knows which of them is the row of a key. Nothing was "
                "written. Compact the table first."
            ).of_table(table.location, subject=True)
        formats = {entry.file.file_name.rpartition(".")[2] for entry in scan.files}
        cut = refusal_of_cut_keys(table.schema, formats)
        if cut is not None:
            raise UnsupportedFeature(f"{cut}. Nothing was written.").of_table(
                table.location, subject=True
            )
        self._read |= {entry.identity: entry for entry in scan.files}
        return scan


def _any_of(keys: pa.Table) -> Any:
    """A condition that holds for rows with these keys, and for others. None if it would hold for
    all rows. Floats are left out: NaN and -0.0 are equal to more values than the condition says.
    """
    conditions = [
        pc.field(name).isin(pc.unique(keys.column(name)))
        for name in keys.column_names
        if not pa.types.is_floating(keys.schema.field(name).type)
    ]
    return reduce(and_, conditions) if conditions else None


def _with_deletes(scan: Scan) -> Iterator[pa.RecordBatch]:
    """The rows of a scan with `_VALUE_KIND`, and deletes. Only keys that fulfil the condition."""
    for files in merging.buckets(scan.files):
        for rows in section_batches(scan, sections_of(scan, files), keep_deletes=True):
            yield rows if scan.where is None else scan.where.kept(rows, scan.table.location)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FilesOfOthers:
    """Decides whether files that others have added matter for a change.

    Attributes:
        table: the table.
        spec: how its rows are merged.
        conditions: the conditions that were read.
        keys: the keys that were read or are written.
    """

    table: Table
    spec: MergeSpec
    conditions: tuple[_Condition, ...]
    keys: pa.Table

    def may_hold(self, files: Sequence[ManifestEntry]) -> bool:
        """Whether one of the files may hold a row that fulfils a condition, or a row of one of the
        keys. Raises the errors of `read_batches`.
        """
        if any(entry.file.schema_id > self.table.schema.id for entry in files):
            return True  # the change has to be computed with the newer columns
        possible = [_possible(condition.scan, files) for condition in self.conditions]
        try:
            return any(
                self._matters(entry, list(compress(self.conditions, of_entry)))
                for entry, *of_entry in zip(files, *possible, strict=True)
            )
        except NotFound:
            return True  # the file was compacted and has expired since

    def _matters(self, entry: ManifestEntry, conditions: Sequence[_Condition]) -> bool:
        """Whether a file has a row that matters. `conditions` are those that its rows may fulfil."""
        if entry.bucket < 0 or not all(map(self._is_decided_by_row, conditions)):
            return True
        schema = self.table.schema
        names = dict.fromkeys(schema.primary_keys)
        for condition in conditions:
            names |= dict.fromkeys(condition.columns)
        columns = (*map(schema.field, names), ROW_KIND_COLUMN)
        scan = Scan(
            table=self.table,
            schema=schema,
            columns=columns,
            snapshot=None,
            files=(entry,),
            merge=self.spec,
            are_changes=True,
        )
        for rows in read_batches(scan):
            if has_key(self.keys, pa.Table.from_batches([rows])).any():
                return True
            adding = rows.filter(pc.is_in(rows.column(ROW_KIND), pa.array(["+I", "+U"])))
            counted = adding if self.spec.engine == _DEDUPLICATE else rows
            if any(condition.holds_for_one(counted) for condition in conditions):
                return True
        return False

    def _is_decided_by_row(self, condition: _Condition) -> bool:
        """Whether a new row alone says if the row of its key fulfils the condition. Where rows are
        merged column by column, only the key is known.
        """
        if self.spec.engine == _DEDUPLICATE:
            return True
        return set(condition.columns) <= set(self.table.schema.primary_keys)


def _possible(scan: Scan, files: Sequence[ManifestEntry]) -> list[bool]:
    """Says for each file whether its keys may fulfil the condition of a scan."""
    where = scan.where
    if where is None:
        return [True] * len(files)
    return where.possible(known_of(scan, files, where))


class KeyedChange(RowChange):
    """A change of rows in a table with a primary key. A subclass has `wanted`.

    Attributes:
        read: what was read for the last computation; None before the first one.
        changed: the rows that make the change, as they were computed last; None if there are none.
    """

    def __init__(self, load: Callable[[], Table], runtime: Runtime) -> None:
        """Prepares a change. `load` returns the table as it is at the time of the call."""
        self._load = load
        self._runtime = runtime
        self._written: ComputedChange | None = None
        self._room = 0
        """How far above the numbers of others our numbers begin."""
        self.read: KeyedRows | None = None
        self.changed: ChangedRows | None = None

    @abstractmethod
    def wanted(self, rows: KeyedRows) -> Wanted:
        """Which rows go and come, decided on what `rows` reads. Raises the errors of the caller."""

    def plan(self) -> tuple[KeyedRows, ChangedRows | None]:
        """Computes the change on the newest snapshot, and writes nothing. Returns what was read,
        and the rows that make the change; None if nothing changes. A dry run needs no more.
        """
        rows = KeyedRows(self._load())
        self.read = rows
        self.changed = None
        wanted = self.wanted(rows)
        if not wanted.before.num_rows and not wanted.after.num_rows:
            return rows, None
        table = rows.table
        kind_field = None
        if table.options.is_set(ROWKIND_FIELD):
            kind_field = table.options.value(ROWKIND_FIELD)
        keys = table.schema.primary_keys
        keeps_key = has_key(wanted.before.select(keys), wanted.after.select(keys))
        held = None
        if not keeps_key.all():
            held = rows.of_keys(wanted.after.select(keys).filter(from_flags(~keeps_key)))
        self.changed = changed_rows(
            rows.spec, table.schema, wanted.before, wanted.after, held, kind_field=kind_field
        )
        return rows, self.changed

    def compute(self) -> ComputedChange | None:
        """The change with its files. After a conflict of sequence numbers alone, the same rows are
        written again.
        """
        earlier = self._written
        self.abandon()
        if earlier is not None and self.changed is not None:
            table = self._load()
            if table.schema.id == earlier.table.schema.id and not earlier.premises.broken:
                return self._write(table, self.changed, earlier.premises, earlier.numbering)
        rows, changed = self.plan()
        if changed is None:
            return None
        return self._write(rows.table, changed, rows.premises([changed.data]), None)

    def _write(
        self, table: Table, changed: ChangedRows, premises: Premises, last: Numbering | None
    ) -> ComputedChange:
        """Writes the rows under new sequence numbers. `last` is the numbering of the writing before
        this one.
        """
        numbering = Committer(table, runtime=self._runtime).numbers()
        first = first_number(numbering)
        self._room = 0
        if last is not None:
            self._room = 2 * max(0, first - first_number(last))
        spec = WriteSpec(
            storage=table.storage,
            schema=table.schema.without_defaults,  # new rows have got theirs (`Wanted`)
            options=table.options,
            index=None if numbering is None else numbering.index,
            runtime=self._runtime,
        )
        has_log = table.options.value(CHANGELOG_PRODUCER) == "input"
        batches = _in_two_forms(changed) if has_log else changed.data.to_batches(_BATCH_ROWS)
        result = write_keyed_task(spec, batches, first_sequence=first + self._room)
        self._written = ComputedChange(
            table=table,
            premises=premises,
            uuid=self._runtime.ids.uuid(),
            messages=result.messages,
            kind=CommitKind.APPEND,
            numbering=numbering,
            counts=self.counts,
        )
        return self._written

    @property
    def counts(self) -> RowCounts:
        """How many rows the last computation changes; a subclass that counts them says it."""
        return RowCounts()

    def abandon(self) -> None:
        """Removes the files that were written."""
        written = self._written
        self._written = None
        if written is not None:
            table = written.table
            remove_files(table.storage, data_files(table.layout, written.messages))


def change_keys(
    change: KeyedChange,
    runtime: Runtime,
    *,
    dry_run: bool,
    after_commit: AfterPublishing | None,
) -> tuple[KeyedRows, Published | None]:
    """Carries out a change, or only computes it in a dry run. Returns what was read, and what was
    published. Raises the errors of `carry_out`.
    """
    published = None
    if dry_run:
        change.plan()
    else:
        published = carry_out(change, runtime, after_commit)
    assert change.read is not None
    return change.read, published


def _in_two_forms(changed: ChangedRows) -> Iterator[pa.RecordBatch]:
    """The rows for data files and those for changelog files, as `write_keyed_task` takes them."""
    for rows, is_logged in ((changed.data, False), (changed.log, True)):
        for batch in rows.to_batches(_BATCH_ROWS):
            flags = pa.array(np.full(batch.num_rows, is_logged))
            yield batch.append_column(ONLY_LOGGED, flags)
