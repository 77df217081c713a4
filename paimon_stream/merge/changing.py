"""Which rows of a table with a primary key can be deleted and updated, and by which rows that is
done (docs/changing-keyed-rows.md).

A table with a primary key is changed by rows that are newer than those that it has. What such a row
does to the row of its key is the merge engine's business: it replaces the row, or fills some of its
columns, or is added to it, or is ignored. So some operations work only with some engines and
options (`refusal`), and some only on some rows (`changed_rows`).

Invariant: after the changes, readers see exactly the rows that were asked for. Before anything is
written, each key is merged once, its row with the row that changes it. If the result is not the row
that was asked for, nothing is written.

A row that deletes has only what it needs, where later rows of its key build on its values: the key,
the columns that order rows, and the columns that cannot be NULL. Otherwise a sum that is inserted
later would begin at the sum that was deleted.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import InvalidData
from paimon_stream.format.arrow_types import arrow_schema, from_flags, from_numbers, to_flags
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import TypeRoot
from paimon_stream.merge.merge_order import (
    Flags,
    Ints,
    dense_ranks,
    flat,
    in_merge_order,
    sort_columns,
)
from paimon_stream.merge.rows import adding, differ, merge_rows, one_chunk
from paimon_stream.merge.spec import (
    AGGREGATION,
    DELETE,
    FIRST_ROW,
    INSERT,
    KIND,
    PARTIAL_UPDATE,
    SEQUENCE,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ColumnRule,
    MergeSpec,
)
from paimon_stream.options import (
    BUCKET,
    FILE_FORMAT,
    FILE_FORMAT_PER_LEVEL,
    ROWKIND_FIELD,
    Options,
)

_SHOWN: Final = 3
_SETTABLE: Final = frozenset({"non_null", "of_group", "last_value", "last_non_null_value"})
"""The functions of columns that a newer row sets."""

_ADDING: Final = frozenset({"sum", "product", "listagg", "collect"})
"""The functions that change a column if its own value is added once more, unless equal elements
count once. NULL leaves the column as it is.
"""

KIND_TEXTS: Final = {INSERT: "+I", UPDATE_BEFORE: "-U", UPDATE_AFTER: "+U", DELETE: "-D"}
"""The texts of row kinds in the column of `rowkind.field`."""


class Operation(Enum):
    """What is done to a row of a table with a primary key."""

    INSERT = "insert"
    """A row with a key that the table does not have."""
    SET = "set"
    """A column that is not part of the key gets another value."""
    MOVE = "move"
    """A column of the primary key gets another value: the row goes, and comes with its new key."""
    DELETE = "delete"
    """The row goes."""


def refusal(
    schema: TableSchema,
    options: Options,
    spec: MergeSpec,
    operation: Operation,
    column: str | None = None,
) -> str | None:
    """Why rows of a table with a primary key cannot be changed so; None if they can.

    Args:
        schema: the columns and keys of the table.
        options: the options of the table.
        spec: how rows are merged.
        operation: what is done.
        column: the column that is set; only for `Operation.SET`.

    Returns:
        Half a sentence, which follows the name of the table.
    """
    if options.value(BUCKET) == POSTPONE_BUCKET:
        return (
            f"has bucket = {POSTPONE_BUCKET}, so rows wait unmerged until a compaction gives them a bucket, and nobody "
            "knows the row of a key"
        )
    if options.value(BUCKET) < 0 and not set(schema.partition_keys) <= set(schema.primary_keys):
        return (
            "has a primary key without all partition keys and no fixed buckets (cross-partition), which this release "
            "does not write"
        )
    per_level = options.value(FILE_FORMAT_PER_LEVEL).values()
    cut = refusal_of_cut_keys(schema, {options.value(FILE_FORMAT), *per_level})
    if cut is not None:
        return cut
    match operation:
        case Operation.INSERT:
            return None
        case Operation.SET:
            if options.is_set(ROWKIND_FIELD) and options.value(ROWKIND_FIELD) == column:
                return f"has rowkind.field = {column}, so column {column!r} says what a row does and cannot be set"
            return _refusal_to_set(spec, column)
        case Operation.DELETE | Operation.MOVE:
            return _refusal_to_delete(spec)


def refusal_of_cut_keys(schema: TableSchema, formats: Collection[str]) -> str | None:
    """Why rows of a table cannot be changed whose files have these formats; None if they can. The
    bucket of a row is that of its key with blanks, so a key that has lost them may be in another.
    """
    if "orc" not in formats:
        return None
    for name in schema.primary_keys:
        if schema.field(name).type.root is TypeRoot.CHAR:
            return (
                f"has the CHAR column {name!r} in its primary key and ORC files, which cut blanks off its values, so "
                "nobody knows the bucket of a row"
            )
    return None


def _refusal_to_delete(spec: MergeSpec) -> str | None:
    if spec.ignore_delete:
        return "has ignore-delete = true, so a -D is ignored and the row stays"
    if spec.engine == FIRST_ROW:
        return "has the merge engine first-row, which keeps the first row of a key for good"
    removes = spec.remove_on_delete or any(group.deletes for group in spec.groups)
    if spec.engine == PARTIAL_UPDATE and not removes:
        return (
            "has the merge engine partial-update, in which a -D removes no row without partial-update."
            "remove-record-on-delete or partial-update.remove-record-on-sequence-group"
        )
    if spec.engine == AGGREGATION and not removes:
        return (
            "has the merge engine aggregation, in which a -D takes values back and removes no row without aggregation."
            "remove-record-on-delete"
        )
    return None


def _refusal_to_set(spec: MergeSpec, column: str | None) -> str | None:
    if spec.engine == FIRST_ROW:
        return "has the merge engine first-row, which keeps the first row of a key for good"
    rule = None if column is None else spec.rules.get(column)
    if rule is not None and rule.function not in _SETTABLE:
        return (
            f"merges column {column!r} by the function {rule.function}, so a new value is combined with the value "
            "that is there and does not replace it"
        )
    return None


def _adds(rule: ColumnRule | None) -> bool:
    """Whether a column changes if its own value comes once more."""
    return rule is not None and rule.function in _ADDING and not rule.distinct


def has_key(keys: pa.Table, rows: pa.Table) -> Flags:
    """Says for each of these rows whether its key is one of `keys`. The rows have the columns of
    `keys`, and perhaps others.
    """
    may_have = np.ones(rows.num_rows, np.bool_)
    for name in keys.column_names:
        if not pa.types.is_floating(
            keys.schema.field(name).type
        ):  # NaN and -0.0 are compared below
            values = pc.unique(keys.column(name))
            may_have &= to_flags(flat(pc.is_in(rows.column(name), value_set=values)))
    places = np.flatnonzero(may_have)
    if not len(places):
        return may_have
    candidates = rows.select(keys.column_names).take(from_numbers(places))
    numbers = _numbers([keys, candidates.cast(keys.schema)])
    may_have[places] = np.isin(numbers[keys.num_rows :], numbers[: keys.num_rows])
    return may_have


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """The rows that change a table with a primary key. All have the table's columns and
    `_VALUE_KIND`.

    Attributes:
        data: the rows for data files, one for each key that changes.
        log: the rows for changelog files of `changelog-producer` = `input`: -U with the whole old
            row and +U with the whole new row, -D with the whole old row, +I with the whole new row.
            The old row of a key comes before its new row.
        updated: how many keys keep a row and get another one.
        deleted: how many keys have no row any more.
        inserted: how many keys had no row.
    """

    data: pa.Table
    log: pa.Table
    updated: int
    deleted: int
    inserted: int


def changed_rows(
    spec: MergeSpec,
    schema: TableSchema,
    before: pa.Table,
    after: pa.Table,
    held: pa.Table | None = None,
    *,
    kind_field: str | None = None,
) -> ChangedRows:
    """The rows that replace some rows of a table by others. A key of both is updated, a key of
    `before` alone is deleted, and a key of `after` alone is inserted.

    Args:
        spec: how rows are merged.
        schema: the columns and keys of the table.
        before: the rows that go, as readers of all committed rows see them; one for each key.
        after: the rows that come.
        held: what the table holds of the keys of `after`, with `_VALUE_KIND`: rows, and deletes
            that are not forgotten yet. None: it holds nothing of keys that `before` does not have.
        kind_field: the column of `rowkind.field`, which gets the kinds as text; None without one.

    Raises:
        InvalidData: if the rows cannot be changed in this way: two rows come with one key, a row
            with a new key of `after` is there, or readers would see another row than the one that
            comes. The message names keys.
    """
    changes = _Changes.of(spec, schema, before, after, held)
    if kind_field is not None:
        changes = changes.with_kind_texts(kind_field)
    changes.check_keys()
    data = changes.data()
    changes.check_result(data)
    return ChangedRows(
        data=data,
        log=changes.log(),
        updated=len(changes.updated),
        deleted=len(changes.deleted),
        inserted=len(changes.inserted),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """The rows that go and come, sorted out by key.

    Attributes:
        spec: how rows are merged, with the whole primary key as its key.
        schema: the columns and keys of the table.
        before: the rows that go.
        after: the rows that come.
        held: what the table holds of keys of `after`.
        updated: the positions in `before` and in `after` of each key that has both.
        deleted: the positions in `before` of keys that `after` does not have.
        inserted: the positions in `after` of keys that `before` does not have.
        twice: the positions in `after` of rows whose key an earlier row has.
        taken: the positions in `after` of inserted rows whose key has a row.
        tombstones: the positions in `held` of deletes whose keys are inserted.
        kind_field: the column that has the kinds of rows as text; None without one.
    """

    spec: MergeSpec
    schema: TableSchema
    before: pa.Table
    after: pa.Table
    held: pa.Table
    updated: Ints
    deleted: Ints
    inserted: Ints
    twice: Ints
    taken: Ints
    tombstones: Ints
    kind_field: str | None = None

    @classmethod
    def of(
        cls,
        spec: MergeSpec,
        schema: TableSchema,
        before: pa.Table,
        after: pa.Table,
        held: pa.Table | None,
    ) -> "_Changes":
        """Sorts the rows out. The arguments are those of `changed_rows`."""
        keys = schema.primary_keys
        columns = arrow_schema(schema.fields)
        before = _fitted(before, columns)
        after = _fitted(after, columns)
        if held is None:
            held = before.slice(0, 0).append_column(KIND, pa.array([], pa.int8()))
        held = _fitted(held, columns.append(pa.field(KIND, pa.int8())))
        numbers = _numbers([table.select(keys) for table in (before, after, held)])
        of_before, of_after, of_held = np.split(
            numbers, np.cumsum([before.num_rows, after.num_rows])
        )
        count = int(numbers.max(initial=-1)) + 1
        place_before = _places(of_before, count)
        place_after = _places(of_after, count)
        place_held = _places(of_held, count)
        has_both = (place_before >= 0) & (place_after >= 0)
        is_inserted = (place_before < 0) & (place_after >= 0)
        is_held = is_inserted & (place_held >= 0)
        has_row = np.zeros(count, np.bool_)
        has_row[of_held] = adding(held)
        return cls(
            spec=replace(spec, keys=keys, lookup=False),
            schema=schema,
            before=before,
            after=after,
            held=held,
            updated=np.column_stack((place_before[has_both], place_after[has_both])),
            deleted=place_before[(place_before >= 0) & (place_after < 0)],
            inserted=place_after[is_inserted],
            twice=np.flatnonzero(place_after[of_after] != np.arange(after.num_rows)),
            taken=place_after[is_held & has_row],
            tombstones=place_held[is_held & ~has_row],
        )

    def with_kind_texts(self, kind_field: str) -> "_Changes":
        """The same changes. The rows that are written have their kinds in the column of that name,
        and so have the rows that readers see afterwards.
        """
        kinds = np.full(self.after.num_rows, INSERT, np.int8)
        kinds[self.updated[:, 1]] = UPDATE_AFTER
        after = _with_texts(self.after, kind_field, kinds)
        return replace(self, after=after, kind_field=kind_field)

    def check_keys(self) -> None:
        """Raises `InvalidData` if two rows come with one key, or a row with a key that is there."""
        if len(self.twice):
            raise InvalidData(
                f"{len(self.twice)} of the rows would get a primary key that another of them gets, such as "
                f"{self._shown(self.twice)}. Nothing was written. Set the key so that it stays unique.",
                rows=len(self.twice),
            ).of_table(self.spec.table)
        if len(self.taken):
            raise InvalidData(
                f"{len(self.taken)} of the rows would get a primary key that a row of the table has, such as "
                f"{self._shown(self.taken)}. Nothing was written. Delete these rows first, or set other keys.",
                rows=len(self.taken),
            ).of_table(self.spec.table)

    def data(self) -> pa.Table:
        """The rows for data files, sorted by what they do: update, delete, insert."""
        updates = self._taken(self.after, self.updated[:, 1])
        for name, rule in self.spec.rules.items():
            if _adds(rule) and self.schema.field(name).type.nullable:
                updates = _with_nulls(updates, name)
        deletes = self._taken(self.before, self.deleted)
        if self.spec.engine in (PARTIAL_UPDATE, AGGREGATION):
            needed = {*self.spec.keys, *self.spec.sequence_fields}
            needed.update(name for group in self.spec.groups for name in group.ordering)
            for field in self.schema.fields:
                if field.type.nullable and field.name not in needed:
                    deletes = _with_nulls(deletes, field.name)
        inserts = self._taken(self.after, self.inserted)
        return pa.concat_tables(
            [
                self._of_kind(updates, UPDATE_AFTER),
                self._of_kind(deletes, DELETE),
                self._of_kind(inserts, INSERT),
            ]
        )

    def log(self) -> pa.Table:
        """The rows for changelog files."""
        parts = (
            (self.before, self.updated[:, 0], UPDATE_BEFORE),
            (self.before, self.deleted, DELETE),
            (self.after, self.updated[:, 1], UPDATE_AFTER),
            (self.after, self.inserted, INSERT),
        )
        return pa.concat_tables(
            [self._of_kind(self._taken(table, positions), kind) for table, positions, kind in parts]
        )

    def check_result(self, data: pa.Table) -> None:
        """Merges the row of each key with the row that changes it. Raises `InvalidData` if the
        result is not the row that comes.
        """
        old = pa.concat_tables(
            [_with_kind(self.before, INSERT), self._taken(self.held, self.tombstones)]
        )
        rows = one_chunk(pa.concat_tables([old, data]))
        rows = rows.append_column(
            SEQUENCE, from_numbers(np.repeat([0, 1], [old.num_rows, data.num_rows]))
        )
        self._check_order(rows, old.num_rows)
        wanted = pa.concat_tables(
            [
                self._of_kind(self._taken(self.after, self.updated[:, 1]), UPDATE_AFTER),
                self._of_kind(self._taken(self.before, self.deleted), DELETE),
                self._of_kind(self._taken(self.after, self.inserted), INSERT),
            ]
        )
        sequence = from_numbers(np.zeros(wanted.num_rows, np.int64))
        order = in_merge_order(self.spec, wanted.append_column(SEQUENCE, sequence)).order
        wanted = one_chunk(wanted).take(from_numbers(order))
        try:
            merged = one_chunk(merge_rows(self.spec, rows, keep_deletes=True))
        except InvalidData as error:
            raise InvalidData(
                f"some of the rows cannot be deleted: a -D with their values would not remove them, and nobody could read "
                f"it. Nothing was written. The reason: {error.message}"
            ).of_table(self.spec.table) from None
        self._check_kinds(merged, wanted)
        self._check_values(merged, wanted)

    def _check_order(self, rows: pa.Table, old: int) -> None:
        """Raises `InvalidData` if a row of the table is newer than the row that comes. `old` is how
        many of the rows the table has; they are the first ones.
        """
        if not rows.num_rows or not self.spec.sequence_fields:
            return
        ordered = in_merge_order(self.spec, rows)
        newest = ordered.order[ordered.ends - 1]
        lost = newest[newest < old]
        if len(lost):
            fields = ", ".join(self.spec.sequence_fields)
            highest = "lowest" if self.spec.descending else "highest"
            raise InvalidData(
                f"has sequence.field = {fields}, by which the row with the {highest} value wins, and {len(lost)} of "
                f"the rows would lose against what the table has of their keys, such as {_shown(rows, lost, self.spec)}. "
                f"Nothing was written. Set {fields} so that the new row wins.",
                rows=len(lost),
            ).of_table(self.spec.table, subject=True)

    def _check_kinds(self, merged: pa.Table, wanted: pa.Table) -> None:
        """Raises `InvalidData` if a row would not go, or not come. Both tables are sorted by
        key.
        """
        is_wrong = adding(merged) != adding(wanted)
        if is_wrong.any():
            positions = np.flatnonzero(is_wrong)
            raise InvalidData(
                f"{len(positions)} of the rows cannot be changed in this table, because its merge engine would not let "
                f"them go or come, such as {_shown(wanted, positions, self.spec)}. A -D removes a row of a sequence group "
                "only if one of the columns that order the group is not NULL. Nothing was written.",
                rows=len(positions),
            ).of_table(self.spec.table)

    def _check_values(self, merged: pa.Table, wanted: pa.Table) -> None:
        """Raises `InvalidData` if a row would get other values. Both tables are sorted by key."""
        is_there = from_flags(adding(wanted))
        merged = merged.filter(is_there)
        wanted = wanted.filter(is_there)
        for name in self.schema.field_names:
            is_wrong = differ(merged, wanted, [name], as_rows=False)
            if not is_wrong.any():
                continue
            positions = np.flatnonzero(is_wrong)
            nulls = wanted.column(name).is_null().to_numpy()
            reason = "merges it with the value that is there"
            if nulls[positions].all():
                reason = "does not replace a value by NULL"
            rule = self.spec.rules.get(name)
            if rule is not None and rule.group is not None:
                ordering = ", ".join(self.spec.groups[rule.group].ordering)
                reason += f", and changes it only with a value of {ordering} that is not NULL and not lower"
            raise InvalidData(
                f"column {name!r} of {len(positions)} rows would not get the wanted value, because the table's merge "
                f"engine {self.spec.engine} {reason}; the first keys: {_shown(wanted, positions, self.spec)}. Nothing "
                "was written. Leave these rows or this column out.",
                rows=len(positions),
                column=name,
            ).of_table(self.spec.table)

    def _shown(self, positions: Ints) -> str:
        return _shown(self.after, positions, self.spec)

    def _of_kind(self, rows: pa.Table, kind: int) -> pa.Table:
        """The rows with this kind, also as text."""
        if self.kind_field is not None:
            rows = _with_texts(rows, self.kind_field, np.full(rows.num_rows, kind, np.int8))
        return _with_kind(rows, kind)

    def _taken(self, table: pa.Table, positions: Ints) -> pa.Table:
        return table.take(from_numbers(np.ascontiguousarray(positions)))


def _fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """The rows with these columns, each of which is one array."""
    arrays = [rows.column(name) for name in columns.names]
    return one_chunk(pa.Table.from_arrays(arrays, schema=columns))


def _numbers(keys: Sequence[pa.Table]) -> Ints:
    """A number for each row of these tables, one table after the other. Rows with equal keys have
    equal numbers.
    """
    together = pa.concat_tables(keys)
    if not together.num_rows:
        return np.zeros(0, np.int64)
    return dense_ranks(
        [number for column in together.columns for number in sort_columns(flat(column))]
    )


def _places(numbers: Ints, count: int) -> Ints:
    """For each number, the first place at which it stands; -1 if it does not."""
    places = np.full(count, -1, np.int64)
    places[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return places


def _with_kind(rows: pa.Table, kind: int) -> pa.Table:
    return rows.append_column(KIND, from_numbers(np.full(rows.num_rows, kind, np.int8)))


def _with_nulls(rows: pa.Table, name: str) -> pa.Table:
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place)
    return rows.set_column(place, field, pa.nulls(rows.num_rows, field.type))


def _with_texts(rows: pa.Table, name: str, kinds: Any) -> pa.Table:
    """The rows with the texts of these kinds in that column."""
    texts = pa.array([KIND_TEXTS[kind] for kind in range(len(KIND_TEXTS))])
    place = rows.schema.get_field_index(name)
    field = rows.schema.field(place)
    return rows.set_column(place, field, texts.take(pa.array(kinds)).cast(field.type))


def _shown(rows: pa.Table, positions: Iterable[int], spec: MergeSpec) -> str:
    """The keys of some rows, for messages."""
    keys = rows.select(spec.keys).take(pa.array(list(positions)[:_SHOWN], pa.int64()))
    return "; ".join(
        "(" + ", ".join(f"{name} = {value!r}" for name, value in row.items()) + ")"
        for row in keys.to_pylist()
    )
