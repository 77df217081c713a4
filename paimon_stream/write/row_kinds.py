"""The kind of each row: +I, -U, +U or -D, and which kinds a table accepts (semantics.md §6.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import BadRowKind, IncompatibleSchema, InvalidOption
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.merge.functions import RETRACTABLE
from paimon_stream.merge.spec import AGGREGATION, FIRST_ROW, PARTIAL_UPDATE, MergeSpec
from paimon_stream.options import (
    IGNORE_UPDATE_BEFORE,
    OPERATION_COLUMN,
    OPERATION_MAPPING,
    ROWKIND_FIELD,
    Options,
)

__all__ = [
    "DELETE",
    "INSERT",
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
    "KindRules",
    "Operations",
    "kinds_of_tokens",
]

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

_TOKENS: Final = {"+I": INSERT, "-U": UPDATE_BEFORE, "+U": UPDATE_AFTER, "-D": DELETE}
_SHOWN: Final = 3
_OWN_WORDS: Final = (
    f"Set {OPERATION_MAPPING.key} to what the values mean, such as c=+I,u=+U,d=-D, or fix them."
)
_STORED_WORDS: Final = (
    f"Fix the values; where they are other words, use {OPERATION_COLUMN.key} with {OPERATION_MAPPING.key} "
    "instead of the table's option rowkind.field."
)

Kinds = npt.NDArray[np.int8]

_WORDS: Final = {
    **_TOKENS,
    **dict.fromkeys(("I", "c", "r", "insert", "INSERT"), INSERT),
    **dict.fromkeys(("U", "u", "update", "UPDATE"), UPDATE_AFTER),
    **dict.fromkeys(("D", "d", "delete", "DELETE"), DELETE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """A column of the rows, not of the table, that says what each row does. Can be pickled.

    `kinds` maps each value of the column, a token, to its kind.
    """

    column: str
    kinds: dict[str, int]

    @classmethod
    def of(cls, options: Options) -> Operations | None:
        """The column that the sink's options name, or None if they name none. Raises `InvalidOption`."""
        if not options.is_set(OPERATION_COLUMN):
            if options.is_set(OPERATION_MAPPING):
                raise InvalidOption(
                    f"{OPERATION_MAPPING.key} is set, but {OPERATION_COLUMN.key} is not, so there is nothing "
                    "to map. Name the column, or leave the mapping out.",
                    option=OPERATION_MAPPING.key,
                )
            return None
        mapping = options.value(OPERATION_MAPPING) if options.is_set(OPERATION_MAPPING) else None
        kinds = _WORDS if mapping is None else {token: _TOKENS[kind] for token, kind in mapping.items()}
        return cls(column=options.value(OPERATION_COLUMN), kinds=dict(kinds))

    def check(
        self, schema: TableSchema, options: Options, table: str, fold: Callable[[str], str] = str
    ) -> None:
        """Raises `InvalidOption` if that table cannot use such a column. `fold` gives names that count as
        equal the same text."""
        if not schema.primary_keys:
            wrong = f"needs a primary key, and {table} has none: its rows are never replaced. Leave it out"
        elif fold(self.column) in map(fold, schema.field_names):
            wrong = f"is a column of {table}. Set the table's option 'rowkind.field' for one that is stored"
        elif options.is_set(ROWKIND_FIELD):
            wrong = f"contradicts 'rowkind.field' of {table}, which says where the kinds are. Leave it out"
        else:
            return
        raise InvalidOption(
            f"{OPERATION_COLUMN.key} = {self.column!r} {wrong}.", option=OPERATION_COLUMN.key, table=table
        )

    def only(self, found: int, table: str) -> None:
        """Raises `IncompatibleSchema` unless `found`, the number of such columns in the rows, is 1."""
        if found == 1:
            return
        if found:
            wrong = f"have {found} columns of that name. Drop or rename the others"
        else:
            wrong = "have no such column. Select it beside the table's columns"
        raise IncompatibleSchema(
            f"{table}: {OPERATION_COLUMN.key} is {self.column!r}, but the rows {wrong}. Nothing was written.",
            table=table,
            column=self.column,
        )


def kinds_of_tokens(
    tokens: pa.Array, known: dict[str, int], column: str, table: str, cure: str = _OWN_WORDS
) -> Kinds:
    """The kinds of a column's tokens. Raises `BadRowKind`, with the text of `cure`, for NULL and for unknown
    tokens."""
    at = pc.index_in(tokens.cast(pa.string()), value_set=pa.array(list(known), pa.string()))
    if at.null_count:
        wrong = pc.unique(tokens.filter(at.is_null()).cast(pa.string())).to_pylist()
        raise BadRowKind(
            f"Column {column!r} says what each row for {table} does, but in {{rows}} its value is not one of "
            f"{', '.join(known)}; it is {_listed(wrong)}. {cure}",
            table=table,
            column=column,
            count=at.null_count,
            tokens=tuple(wrong[:_SHOWN]),
        )
    kinds = np.fromiter(known.values(), np.int8)
    found: Kinds = kinds[at.to_numpy(zero_copy_only=False)]
    return found


def _listed(tokens: list[str | None]) -> str:
    """The first of the tokens, as text for people."""
    shown = ["NULL" if one is None else repr(one) for one in tokens[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(tokens) > _SHOWN else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """How a table treats row kinds.

    `field` is the column of `rowkind.field`, None if the option is not set. `refused` are the kinds that
    readers could not merge (R6.5), and `refusal` says why.
    """

    table: str
    field: str | None
    ignore_delete: bool
    ignore_update_before: bool
    refused: tuple[int, ...] = ()
    refusal: str = ""

    @classmethod
    def of(cls, schema: TableSchema, options: Options, merge: MergeSpec) -> KindRules:
        """The rules of that table."""
        field = options.value(ROWKIND_FIELD) if options.is_set(ROWKIND_FIELD) else None
        refused, refusal = _refused(merge)
        return cls(
            table=merge.table,
            field=field,
            ignore_delete=merge.ignore_delete,
            ignore_update_before=options.value(IGNORE_UPDATE_BEFORE),
            refused=refused,
            refusal=refusal,
        )

    def kinds(self, rows: pa.RecordBatch, given: pa.Array | None) -> Kinds | None:
        """The kind of each row: from `rowkind.field`, else as given; None if all are +I. Raises
        `BadRowKind`."""
        if self.field is not None:
            tokens = rows.column(self.field)
            return kinds_of_tokens(tokens, _TOKENS, self.field, self.table, _STORED_WORDS)
        return None if given is None else given.to_numpy(zero_copy_only=False).astype(np.int8, copy=False)

    def kept(self, kinds: Kinds) -> npt.NDArray[np.bool_]:
        """Which rows the table accepts. Raises `BadRowKind` for rows that readers could not merge."""
        dropped = np.zeros(len(kinds), bool)
        if self.ignore_delete:
            dropped |= (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        if self.ignore_update_before:
            dropped |= kinds == UPDATE_BEFORE
        if self.refused:
            taking = int(np.isin(kinds[~dropped], self.refused).sum())
            if taking:
                names = ", ".join(name for name, kind in _TOKENS.items() if kind in self.refused)
                raise BadRowKind(
                    f"{self.table} cannot merge rows that delete or take back ({names}), and {{rows}} of the "
                    f"batch did: {self.refusal}. Set ignore-delete, or another option of the merge engine "
                    "that says what a delete means.",
                    table=self.table,
                    count=taking,
                )
        return ~dropped


def _refused(merge: MergeSpec) -> tuple[tuple[int, ...], str]:
    """The kinds on which the merge engine always fails if a key has more than one row, and why."""
    both = (UPDATE_BEFORE, DELETE)
    if merge.engine == FIRST_ROW:
        return both, "first-row keeps the first row of a key for good"
    if merge.engine == PARTIAL_UPDATE and not (merge.remove_on_delete or merge.groups):
        return both, "partial-update cannot take back what a row has set"
    if merge.engine == AGGREGATION:
        for name, rule in merge.rules.items():
            if rule.function not in RETRACTABLE and not rule.ignore_retract:
                why = f"{rule.function} of column {name!r} takes no value back"
                if merge.remove_on_delete:
                    return (UPDATE_BEFORE,), why
                return both, f"{why} (fields.{name}.ignore-retract = true lets the column be)"
    return (), ""
