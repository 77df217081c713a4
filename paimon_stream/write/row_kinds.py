"""Finds the kind of each row (+I, -U, +U or -D), and checks which kinds a table accepts
(semantics.md §6.2).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import ROWS, BadChangeEvent, BadRowKind, IncompatibleSchema, InvalidOption
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.merge import spec
from paimon_stream.options import (
    IGNORE_UPDATE_BEFORE,
    OPERATION_COLUMN,
    OPERATION_MAPPING,
    ROWKIND_FIELD,
    Options,
)

_TOKENS: Final = {
    "+I": spec.INSERT,
    "-U": spec.UPDATE_BEFORE,
    "+U": spec.UPDATE_AFTER,
    "-D": spec.DELETE,
}
_SHOWN: Final = 3
_MAP_TOKENS: Final = (
    f"Set {OPERATION_MAPPING.key} to what the values mean, such as c=+I,u=+U,d=-D, or fix them."
)
"""What to do about unknown tokens in the column of `Operations`."""

REFUSED: Final = "refused: "
"""Begins the values of an operation column that say why a record could not be made a row."""

_FIX_TOKENS: Final = (
    f"Fix the values. If the column has other words for these operations, use {OPERATION_COLUMN.key} with "
    f"{OPERATION_MAPPING.key} instead of the table's option rowkind.field."
)
"""What to do about unknown tokens in the column of `rowkind.field`."""

Kinds = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

_EMPTYING: Final = {"last_value", "last_non_null_value", "of_group"}
"""Functions that leave NULL in a column when a row takes its value back."""

_WORDS: Final = {
    **_TOKENS,
    **dict.fromkeys(("I", "c", "r", "insert", "INSERT"), spec.INSERT),
    **dict.fromkeys(("U", "u", "update", "UPDATE"), spec.UPDATE_AFTER),
    **dict.fromkeys(("D", "d", "delete", "DELETE"), spec.DELETE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """A column that incoming rows have and the table does not have. It says what each row does.
    This class can be pickled.

    Attributes:
        column: the name of the column.
        kinds: the row kind of each token. A token is a value of the column.
    """

    column: str
    kinds: dict[str, int]

    @classmethod
    def of(cls, column: str, mapping: Mapping[str, str] | None = None) -> "Operations":
        """The column with the meaning of its values. `mapping` has the row kind of each token
        (`+I`, `-U`, `+U` or `-D`). Without a mapping, common words are recognized.
        """
        kinds = dict(_WORDS)
        if mapping is not None:
            kinds = {token: _TOKENS[kind] for token, kind in mapping.items()}
        return cls(column=column, kinds=kinds)

    def check(
        self, schema: TableSchema, options: Options, table: str, fold: Callable[[str], str] = str
    ) -> None:
        """Checks that a table can use such a column.

        Args:
            schema: the columns and keys of the table.
            options: the options of the table.
            table: the table, for messages.
            fold: a function that returns the same text for names that count as equal.

        Raises:
            InvalidOption: if the table cannot use the column.
        """
        if not schema.primary_keys:
            raise InvalidOption(
                f"{OPERATION_COLUMN.key} = {self.column!r} needs a primary key, and {table} has none: its rows are "
                "never replaced. Leave it out.",
                option=OPERATION_COLUMN.key,
                table=table,
            )
        if fold(self.column) in map(fold, schema.field_names):
            raise InvalidOption(
                f"{OPERATION_COLUMN.key} = {self.column!r} is a column of {table}. Set the table's option "
                "'rowkind.field' for a column that is stored.",
                option=OPERATION_COLUMN.key,
                table=table,
            )
        if options.is_set(ROWKIND_FIELD):
            raise InvalidOption(
                f"{OPERATION_COLUMN.key} = {self.column!r} contradicts 'rowkind.field' of {table}, which says where "
                "the kinds are. Leave it out.",
                option=OPERATION_COLUMN.key,
                table=table,
            )

    def only(self, count: int, table: str) -> None:
        """Raises `IncompatibleSchema` unless `count`, the number of such columns in the rows, is
        1.
        """
        if count > 1:
            raise IncompatibleSchema(
                f"{OPERATION_COLUMN.key} is {self.column!r}, but the rows have {count} columns of that name. Drop or "
                "rename the others. Nothing was written.",
                column=self.column,
            ).of_table(table)
        if count == 0:
            raise IncompatibleSchema(
                f"{OPERATION_COLUMN.key} is {self.column!r}, but the rows have no such column. Select it beside the "
                "table's columns. Nothing was written.",
                column=self.column,
            ).of_table(table)


def kinds_of_tokens(
    tokens: pa.Array, known: dict[str, int], column: str, table: str, advice: str = _MAP_TOKENS
) -> Kinds:
    """The kinds of a column's tokens.

    Args:
        tokens: the values of the column.
        known: the kind of each known token.
        column: its name, for messages.
        table: the table, for messages.
        advice: the sentence that says what to do about unknown tokens.

    Raises:
        BadChangeEvent: for tokens that say why a record has no row.
        BadRowKind: for NULL and for other unknown tokens.
    """
    positions = pc.index_in(tokens.cast(pa.string()), value_set=pa.array(list(known), pa.string()))
    if positions.null_count:
        unknown = pc.unique(tokens.filter(positions.is_null()).cast(pa.string())).to_pylist()
        _raise_refused(unknown, table)
        raise BadRowKind(
            f"Column {column!r} says what each row for {table} does, but in {ROWS} its value is not one of "
            f"{', '.join(known)}; it is {_listed(unknown)}. {advice}",
            table=table,
            column=column,
            count=positions.null_count,
            tokens=tuple(unknown[:_SHOWN]),
        )
    kind_of_token = np.fromiter(known.values(), np.int8)
    kinds: Kinds = kind_of_token[positions.to_numpy(zero_copy_only=False)]
    return kinds


def _raise_refused(tokens: list[str | None], table: str) -> None:
    """Raises `BadChangeEvent` if any of the tokens says why a record has no row."""
    reasons = [
        token.removeprefix(REFUSED) for token in tokens if token and token.startswith(REFUSED)
    ]
    if reasons:
        raise BadChangeEvent(
            f"A change event for {table} cannot be made a row. Nothing of the batch was written. {reasons[0]} "
            f"({len(reasons):,} such events were seen.)",
            table=table,
            reasons=tuple(reasons[:_SHOWN]),
        )


def _listed(tokens: list[str | None]) -> str:
    shown = ["NULL" if token is None else repr(token) for token in tokens[:_SHOWN]]
    if len(tokens) > _SHOWN:
        shown.append("…")
    return ", ".join(shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnRule:
    """A column from which some values cannot be retracted. A -D that removes the whole row can
    still be merged. As in Java, a sequence group removes the row before the column is merged only
    if one of its ordering columns comes before the column in the table.

    Attributes:
        column: the name of the column.
        reason: why these values cannot be retracted, for messages.
        only_zero: whether 0 is the only value that cannot be retracted, because it was a factor of
            a product. If False, no value can be retracted, because the column's function has no
            retraction.
        ordering: the ordering columns of its sequence group; empty without such a group. A row in
            which they are all NULL can be merged.
        deletes_remove: whether every -D removes the row.
        removers: the ordering columns of each sequence group that removes the row with a -D.
    """

    column: str
    reason: str
    only_zero: bool
    ordering: tuple[str, ...]
    deletes_remove: bool
    removers: tuple[tuple[str, ...], ...]

    def refuses(self, kinds: Kinds, rows: pa.RecordBatch | pa.Table) -> Flags:
        """Says which rows no reader would be able to merge."""
        is_removed = np.full(len(kinds), self.deletes_remove)
        for ordering in self.removers:
            is_removed |= _any_valid(rows, ordering)
        is_delete = kinds == spec.DELETE
        is_refused: Flags = (kinds == spec.UPDATE_BEFORE) | (is_delete & ~is_removed)
        if self.ordering:
            is_refused &= _any_valid(rows, self.ordering)
        if self.only_zero and is_refused.any():
            is_zero = pc.equal(pc.sign(rows.column(self.column)), 0)
            is_refused &= is_zero.fill_null(False).to_numpy(zero_copy_only=False)
        return is_refused


def _any_valid(rows: pa.RecordBatch | pa.Table, columns: tuple[str, ...]) -> Flags:
    """For each row, whether one of the columns is not NULL."""
    is_valid = np.zeros(rows.num_rows, bool)
    for name in columns:
        is_valid |= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    return is_valid


class _Refusal(NamedTuple):
    """Kinds whose rows cannot be merged.

    Attributes:
        kinds: the kinds.
        reason: why their rows cannot be merged, for messages.
    """

    kinds: tuple[int, ...]
    reason: str


_NO_REFUSAL: Final = _Refusal((), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """How a table treats row kinds.

    Attributes:
        table: the table, for messages.
        field: the option `rowkind.field`; None if it is not set.
        dropped: the kinds whose rows are ignored.
        refusal: the kinds whose rows cannot be merged (R6.5).
        columns: the columns that refuse only some rows of a kind.
        not_null: the columns that are NOT NULL and not part of the key. With each comes the reason
            why a row that leaves NULL there is refused.
        emptied: the columns of `not_null` that become NULL if the last row of a key takes a value
            back.
    """

    table: str
    field: str | None
    dropped: tuple[int, ...]
    refusal: _Refusal = _NO_REFUSAL
    columns: tuple[_ColumnRule, ...] = ()
    not_null: tuple[tuple[str, str], ...] = ()
    emptied: tuple[_ColumnRule, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema, options: Options, merge: spec.MergeSpec) -> "KindRules":
        """The rules of that table."""
        field = options.value(ROWKIND_FIELD) if options.is_set(ROWKIND_FIELD) else None
        dropped: tuple[int, ...] = ()
        if merge.ignore_delete:
            dropped = (spec.UPDATE_BEFORE, spec.DELETE)
        elif options.value(IGNORE_UPDATE_BEFORE):
            dropped = (spec.UPDATE_BEFORE,)
        return cls(
            table=merge.table,
            field=field,
            dropped=dropped,
            refusal=_refusal(merge),
            columns=tuple(_column_rules(schema, merge)),
            not_null=tuple(
                (name, _null_left(name, merge.rules[name])) for name in _not_null(schema, merge)
            ),
            emptied=tuple(_emptied(schema, merge)),
        )

    @property
    def late_deletes(self) -> tuple[str, ...]:
        """The columns that cannot be merged with a late -D. A late -D was accepted. Only when
        readers merge it, it turns out to be older than the row of its key.
        """
        return tuple(rule.column for rule in self.columns if rule.removers and not rule.only_zero)

    def kinds(self, rows: pa.RecordBatch, incoming: pa.Array | None) -> Kinds | None:
        """The kind of each row: the value of `rowkind.field` if that option is set, otherwise the
        kind with which the row came. None if all rows are +I. Raises `BadRowKind`.
        """
        if self.field is not None:
            return kinds_of_tokens(
                rows.column(self.field), _TOKENS, self.field, self.table, _FIX_TOKENS
            )
        if incoming is None:
            return None
        kinds: Kinds = incoming.to_numpy(zero_copy_only=False)
        return kinds.astype(np.int8, copy=False)

    def kept(self, kinds: Kinds, rows: pa.RecordBatch) -> Flags:
        """Says for each row whether it is written. Other rows are ignored. Raises `BadRowKind` for
        rows that readers could not merge.
        """
        is_dropped = np.isin(kinds, self.dropped)
        refusal = self.refusal
        self._refuse(np.isin(kinds, refusal.kinds) & ~is_dropped, refusal.kinds, refusal.reason)
        for rule in self.columns:
            is_refused = rule.refuses(kinds, rows) & ~is_dropped
            self._refuse(is_refused, np.unique(kinds[is_refused]), rule.reason)
        return ~is_dropped

    def check_merged(self, rows: pa.Table) -> None:
        """Checks the rows of a batch after they were merged to one row per key. Raises `BadRowKind`
        if these rows leave NULL in a column that is NOT NULL. It is also raised if they will do so
        when readers merge them with older rows. Java Paimon fails on such rows.
        """
        for name, reason in self.not_null:
            nulls = rows.column(name).is_null().to_numpy()
            self._refuse(nulls, (spec.UPDATE_BEFORE, spec.DELETE), reason)
        kinds = rows.column(spec.KIND).to_numpy()
        for rule in self.emptied:
            is_refused = rule.refuses(kinds, rows)
            self._refuse(is_refused, np.unique(kinds[is_refused]), rule.reason)

    def _refuse(self, refused: Flags, kinds: Collection[int], reason: str) -> None:
        """Raises `BadRowKind` if any row is refused. `kinds` are the kinds of such rows."""
        if not refused.any():
            return
        names = ", ".join(name for name, kind in _TOKENS.items() if kind in kinds)
        raise BadRowKind(
            f"cannot merge rows that delete or take back ({names}), and {ROWS} of the batch did: {reason}. "
            "Set ignore-delete, or another option of the merge engine that says what a delete means.",
            count=int(refused.sum()),
        ).of_table(self.table, subject=True)


def _refusal(merge: spec.MergeSpec) -> _Refusal:
    """The kinds on which the merge engine always fails if a key has more than one row."""
    takes_back = (spec.UPDATE_BEFORE, spec.DELETE)
    if merge.engine == spec.FIRST_ROW:
        return _Refusal(takes_back, "first-row keeps the first row of a key for good")
    can_take_back = merge.remove_on_delete or bool(merge.groups)
    if merge.engine == spec.PARTIAL_UPDATE and not can_take_back:
        return _Refusal(takes_back, "partial-update cannot take back what a row has set")
    if merge.engine == spec.AGGREGATION:
        for name, rule in merge.rules.items():
            if not _takes_nothing_back(rule):
                continue
            if merge.remove_on_delete:
                reason = f"{rule.function} of column {name!r} takes no value back"
                return _Refusal((spec.UPDATE_BEFORE,), reason)
            return _Refusal(takes_back, _no_value_back(name, rule))
    return _NO_REFUSAL


def _takes_nothing_back(rule: spec.ColumnRule) -> bool:
    return rule.function not in spec.RETRACTABLE and not rule.ignore_retract


def _no_value_back(column: str, rule: spec.ColumnRule) -> str:
    """The reason why the column refuses rows that retract a value, and the option that helps."""
    return f"{rule.function} of column {column!r} takes no value back (fields.{column}.ignore-retract = true would allow it)"


def _null_left(column: str, rule: spec.ColumnRule) -> str:
    """The reason why a row is refused that leaves NULL in the column, and what helps."""
    option = f"fields.{column}.ignore-retract = true"
    if rule.function == "of_group":
        # If the column has no function of its own, Java ignores the option.
        option = f"fields.{column}.aggregate-function = last_value with {option}"
    return (
        f"column {column!r} is NOT NULL, and taking its value back leaves NULL there (its new value "
        f"in the same batch, {option}, or a column that may be NULL helps)"
    )


def _not_null(schema: TableSchema, merge: spec.MergeSpec) -> tuple[str, ...]:
    """The NOT NULL columns that are not part of the key. Only a merge of rows can make them
    NULL.
    """
    return tuple(
        name
        for name in merge.rules
        if not schema.field(name).type.nullable and name not in schema.primary_keys
    )


def _emptied(schema: TableSchema, merge: spec.MergeSpec) -> Iterator[_ColumnRule]:
    """The rules for those NOT NULL columns whose function has no older value that it can
    return to.
    """
    ordering = {name for group in merge.groups for name in group.ordering}
    position_of = _positions(schema)
    for name in _not_null(schema, merge):
        rule = merge.rules[name]
        if rule.function in _EMPTYING and not rule.ignore_retract and name not in ordering:
            yield _column_rule(position_of, merge, name, _null_left(name, rule))


def _positions(schema: TableSchema) -> dict[str, int]:
    """The position of each column in the table."""
    return {name: position for position, name in enumerate(schema.field_names)}


def _column_rule(
    position_of: Mapping[str, int],
    merge: spec.MergeSpec,
    name: str,
    reason: str,
    *,
    only_zero: bool = False,
) -> _ColumnRule:
    """The rule of a column, with the sequence groups whose deletes remove its row. `position_of`
    has the position of each column in the table. `reason` and `only_zero` are as in `_ColumnRule`.
    """
    group = merge.rules[name].group
    removers = []
    for sequence_group in merge.groups:
        first_position = min(position_of[field] for field in sequence_group.ordering)
        if sequence_group.deletes and first_position < position_of[name]:
            removers.append(sequence_group.ordering)
    ordering: tuple[str, ...] = ()
    if group is not None:
        ordering = merge.groups[group].ordering
    return _ColumnRule(
        column=name,
        reason=reason,
        only_zero=only_zero,
        ordering=ordering,
        deletes_remove=merge.remove_on_delete,
        removers=tuple(removers),
    )


def _column_rules(schema: TableSchema, merge: spec.MergeSpec) -> Iterator[_ColumnRule]:
    position_of = _positions(schema)
    for name, rule in merge.rules.items():
        only_zero = rule.function == "product" and not schema.field(name).type.is_float
        if rule.ignore_retract:
            continue
        if only_zero:
            reason = f"the product of column {name!r} cannot be divided by 0"
            yield _column_rule(position_of, merge, name, reason, only_zero=True)
        elif rule.group is not None and _takes_nothing_back(rule):
            yield _column_rule(position_of, merge, name, _no_value_back(name, rule))
