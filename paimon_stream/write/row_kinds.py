"""The kind of each row: +I, -U, +U or -D, and which kinds a table accepts (semantics.md §6.2)."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import ROWS, BadRowKind, IncompatibleSchema, InvalidOption
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
_OWN_WORDS: Final = (
    f"Set {OPERATION_MAPPING.key} to what the values mean, such as c=+I,u=+U,d=-D, or fix them."
)
_STORED_WORDS: Final = (
    f"Fix the values; where they are other words, use {OPERATION_COLUMN.key} with {OPERATION_MAPPING.key} "
    "instead of the table's option rowkind.field."
)

Kinds = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

_WORDS: Final = {
    **_TOKENS,
    **dict.fromkeys(("I", "c", "r", "insert", "INSERT"), spec.INSERT),
    **dict.fromkeys(("U", "u", "update", "UPDATE"), spec.UPDATE_AFTER),
    **dict.fromkeys(("D", "d", "delete", "DELETE"), spec.DELETE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """A column of the rows, not of the table, that says what each row does. Can be pickled. `kinds`
    maps each value of the column, a token, to its kind.
    """

    column: str
    kinds: dict[str, int]

    @classmethod
    def of(cls, column: str, mapping: Mapping[str, str] | None = None) -> "Operations":
        """The column with the meaning of its values: the row kinds (`+I`, `-U`, `+U`, `-D`) by
        token, or the words that are known without a mapping.
        """
        kinds = (
            _WORDS if mapping is None else {token: _TOKENS[kind] for token, kind in mapping.items()}
        )
        return cls(column=column, kinds=dict(kinds))

    def check(
        self, schema: TableSchema, options: Options, table: str, fold: Callable[[str], str] = str
    ) -> None:
        """Raises `InvalidOption` if that table cannot use such a column. `fold` gives equal names
        the same text.
        """
        if not schema.primary_keys:
            wrong = f"needs a primary key, and {table} has none: its rows are never replaced. Leave it out"
        elif fold(self.column) in map(fold, schema.field_names):
            wrong = f"is a column of {table}. Set the table's option 'rowkind.field' for one that is stored"
        elif options.is_set(ROWKIND_FIELD):
            wrong = f"contradicts 'rowkind.field' of {table}, which says where the kinds are. Leave it out"
        else:
            return
        text = f"{OPERATION_COLUMN.key} = {self.column!r} {wrong}."
        raise InvalidOption(text, option=OPERATION_COLUMN.key, table=table)

    def only(self, found: int, table: str) -> None:
        """Raises `IncompatibleSchema` unless `found`, the number of such columns in the rows, is
        1.
        """
        if found == 1:
            return
        if found:
            wrong = f"have {found} columns of that name. Drop or rename the others"
        else:
            wrong = "have no such column. Select it beside the table's columns"
        text = (
            f"{OPERATION_COLUMN.key} is {self.column!r}, but the rows {wrong}. Nothing was written."
        )
        raise IncompatibleSchema(text, column=self.column).of_table(table)


def kinds_of_tokens(
    tokens: pa.Array, known: dict[str, int], column: str, table: str, cure: str = _OWN_WORDS
) -> Kinds:
    """The kinds of a column's tokens. Raises `BadRowKind`, with the text of `cure`, for NULL and
    for unknown tokens.
    """
    at = pc.index_in(tokens.cast(pa.string()), value_set=pa.array(list(known), pa.string()))
    if at.null_count:
        wrong = pc.unique(tokens.filter(at.is_null()).cast(pa.string())).to_pylist()
        why = f"but in {ROWS} its value is not one of {', '.join(known)}; it is {_listed(wrong)}. {cure}"
        text = f"Column {column!r} says what each row for {table} does, {why}"
        raise BadRowKind(
            text, table=table, column=column, count=at.null_count, tokens=tuple(wrong[:_SHOWN])
        )
    kinds = np.fromiter(known.values(), np.int8)
    found: Kinds = kinds[at.to_numpy(zero_copy_only=False)]
    return found


def _listed(tokens: list[str | None]) -> str:
    shown = ["NULL" if one is None else repr(one) for one in tokens[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(tokens) > _SHOWN else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnRule:
    """A column that cannot take some values back: those of a sequence group whose function takes
    none back, or, if `only_zero` is set, 0 as a factor of a product. A -D that removes the row can
    be merged, and so can a row of a sequence group whose `ordering` columns (empty without a group)
    are all NULL. Every -D removes the row if `deletes_remove` is set, else by one of the groups
    with the ordering columns `removers`. As in Java, a group removes the row before the column is
    merged only if one of its ordering columns comes before the column in the table.
    """

    column: str
    why: str
    only_zero: bool
    ordering: tuple[str, ...]
    deletes_remove: bool
    removers: tuple[tuple[str, ...], ...]

    def refuses(self, kinds: Kinds, rows: pa.RecordBatch) -> Flags:
        """Which rows no reader could merge."""
        removed = np.full(len(kinds), self.deletes_remove)
        for ordering in self.removers:
            removed |= _any_there(rows, ordering)
        refused: Flags = (kinds == spec.UPDATE_BEFORE) | ((kinds == spec.DELETE) & ~removed)
        if self.ordering:
            refused &= _any_there(rows, self.ordering)
        if self.only_zero and refused.any():
            zero = pc.equal(pc.sign(rows.column(self.column)), 0)
            refused &= zero.fill_null(False).to_numpy(zero_copy_only=False)
        return refused


def _any_there(rows: pa.RecordBatch, columns: tuple[str, ...]) -> Flags:
    found = np.zeros(rows.num_rows, bool)
    for name in columns:
        found |= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """How a table treats row kinds. `field` is `rowkind.field`. Rows of the kinds `dropped` are
    ignored; `refused` ones could not be merged (R6.5), and `refusal` says why. `columns` refuse
    only some rows of these kinds.
    """

    table: str
    field: str | None
    dropped: tuple[int, ...]
    refused: tuple[int, ...] = ()
    refusal: str = ""
    columns: tuple[_ColumnRule, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema, options: Options, merge: spec.MergeSpec) -> "KindRules":
        """The rules of that table."""
        field = options.value(ROWKIND_FIELD) if options.is_set(ROWKIND_FIELD) else None
        dropped = (spec.UPDATE_BEFORE, spec.DELETE) if merge.ignore_delete else ()
        refused, refusal = _refused(merge)
        return cls(
            table=merge.table,
            field=field,
            dropped=dropped
            or ((spec.UPDATE_BEFORE,) if options.value(IGNORE_UPDATE_BEFORE) else ()),
            refused=refused,
            refusal=refusal,
            columns=tuple(_column_rules(schema, merge)),
        )

    @property
    def late_deletes(self) -> tuple[str, ...]:
        """The columns by which a -D that is accepted, and then turns out to be older than its row,
        cannot be merged.
        """
        return tuple(one.column for one in self.columns if one.removers and not one.only_zero)

    def kinds(self, rows: pa.RecordBatch, given: pa.Array | None) -> Kinds | None:
        """The kind of each row: from `rowkind.field`, else as given; None if all are +I. Raises
        `BadRowKind`.
        """
        if self.field is not None:
            return kinds_of_tokens(
                rows.column(self.field), _TOKENS, self.field, self.table, _STORED_WORDS
            )
        return (
            None
            if given is None
            else given.to_numpy(zero_copy_only=False).astype(np.int8, copy=False)
        )

    def kept(self, kinds: Kinds, rows: pa.RecordBatch) -> Flags:
        """Which of the rows the table accepts. Raises `BadRowKind` for rows that readers could not
        merge.
        """
        dropped = np.isin(kinds, self.dropped)
        self._refuse(np.isin(kinds, self.refused) & ~dropped, self.refused, self.refusal)
        for one in self.columns:
            refused = one.refuses(kinds, rows) & ~dropped
            self._refuse(refused, np.unique(kinds[refused]), one.why)
        return ~dropped

    def _refuse(self, rows: Flags, kinds: Collection[int], why: str) -> None:
        if not rows.any():
            return
        names = ", ".join(name for name, kind in _TOKENS.items() if kind in kinds)
        cure = "Set ignore-delete, or another option of the merge engine that says what a delete means."
        text = f"cannot merge rows that delete or take back ({names}), and {ROWS} of the batch did: {why}. {cure}"
        raise BadRowKind(text, count=int(rows.sum())).of_table(self.table, subject=True)


def _refused(merge: spec.MergeSpec) -> tuple[tuple[int, ...], str]:
    """The kinds on which the merge engine always fails if a key has more than one row, and why."""
    both = (spec.UPDATE_BEFORE, spec.DELETE)
    if merge.engine == spec.FIRST_ROW:
        return both, "first-row keeps the first row of a key for good"
    if merge.engine == spec.PARTIAL_UPDATE and not (merge.remove_on_delete or merge.groups):
        return both, "partial-update cannot take back what a row has set"
    if merge.engine == spec.AGGREGATION:
        for name, rule in merge.rules.items():
            if _takes_nothing_back(rule):
                if merge.remove_on_delete:
                    return (
                        spec.UPDATE_BEFORE,
                    ), f"{rule.function} of column {name!r} takes no value back"
                return both, _why_not(name, rule)
    return (), ""


def _takes_nothing_back(rule: spec.ColumnRule) -> bool:
    return rule.function not in spec.RETRACTABLE and not rule.ignore_retract


def _why_not(column: str, rule: spec.ColumnRule) -> str:
    return f"{rule.function} of column {column!r} takes no value back (fields.{column}.ignore-retract = true helps)"


def _column_rules(schema: TableSchema, merge: spec.MergeSpec) -> Iterator[_ColumnRule]:
    place = {name: position for position, name in enumerate(schema.field_names)}
    removing = [group.ordering for group in merge.groups if group.deletes]
    for name, rule in merge.rules.items():
        grouped = () if rule.group is None else merge.groups[rule.group].ordering
        only_zero = rule.function == "product" and not schema.field(name).type.is_float
        if rule.ignore_retract or not (only_zero or (grouped and _takes_nothing_back(rule))):
            continue
        yield _ColumnRule(
            column=name,
            why=f"the product of column {name!r} cannot be divided by 0"
            if only_zero
            else _why_not(name, rule),
            only_zero=only_zero,
            ordering=grouped,
            deletes_remove=merge.remove_on_delete,
            removers=tuple(
                ordering
                for ordering in removing
                if min(map(place.__getitem__, ordering)) < place[name]
            ),
        )
