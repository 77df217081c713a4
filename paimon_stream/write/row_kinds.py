"""The kind of each row: +I, -U, +U or -D, and which kinds a table takes (semantics.md §6.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import BadRowKind, InvalidOption
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.merge.spec import FIRST_ROW, PARTIAL_UPDATE, MergeSpec
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

Kinds = npt.NDArray[np.int8]

_WORDS: Final = {
    **_TOKENS,
    **dict.fromkeys(("I", "c", "r", "insert", "INSERT"), INSERT),
    **dict.fromkeys(("U", "u", "update", "UPDATE"), UPDATE_AFTER),
    **dict.fromkeys(("D", "d", "delete", "DELETE"), DELETE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """A column of the rows, not of the table, that says what each row does: by which tokens, and which kind
    each of them is. Pickles."""

    column: str
    kinds: dict[str, int]

    @classmethod
    def of(cls, options: Options) -> Operations | None:
        """As the sink's options say; None where they name no column. Raises `InvalidOption`."""
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


def kinds_of_tokens(tokens: pa.Array, known: dict[str, int], column: str, table: str) -> Kinds:
    """The kinds that the tokens of a column stand for. Raises `BadRowKind` for NULL and unknown ones."""
    at = pc.index_in(tokens.cast(pa.string()), value_set=pa.array(list(known), pa.string()))
    if at.null_count:
        wrong = pc.unique(tokens.filter(at.is_null()).cast(pa.string())).to_pylist()
        raise BadRowKind(
            f"Column {column!r} of the rows for {table} is to say what a row does; in {at.null_count:,} of "
            f"{len(tokens):,} rows it is {', '.join(map(repr, wrong[:_SHOWN]))}, which is none of "
            f"{', '.join(known)}. Fix the values.",
            table=table,
            column=column,
            count=at.null_count,
            tokens=tuple(wrong[:_SHOWN]),
        )
    kinds = np.fromiter(known.values(), np.int8)
    found: Kinds = kinds[at.to_numpy(zero_copy_only=False)]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """What a table makes of row kinds. `field` is the column of `rowkind.field`, None where there is none;
    `refusal` says why deletes cannot be merged, "" where they can."""

    table: str
    field: str | None
    ignore_delete: bool
    ignore_update_before: bool
    refusal: str

    @classmethod
    def of(cls, schema: TableSchema, options: Options, merge: MergeSpec) -> KindRules:
        """The rules of that table."""
        field = options.value(ROWKIND_FIELD) if options.is_set(ROWKIND_FIELD) else None
        refusal = ""
        if merge.engine == FIRST_ROW:
            refusal = "first-row keeps the first row of a key for good"
        elif merge.engine == PARTIAL_UPDATE and not (merge.remove_on_delete or merge.groups):
            refusal = "partial-update cannot take back what a row has set"
        return cls(
            table=merge.table,
            field=field,
            ignore_delete=merge.ignore_delete,
            ignore_update_before=options.value(IGNORE_UPDATE_BEFORE),
            refusal=refusal,
        )

    def kinds(self, rows: pa.RecordBatch, given: pa.Array | None) -> Kinds | None:
        """The kind of each row: by `rowkind.field`, else as given; None where all are +I. Raises
        `BadRowKind`."""
        if self.field is not None:
            return kinds_of_tokens(rows.column(self.field), _TOKENS, self.field, self.table)
        return None if given is None else given.to_numpy(zero_copy_only=False).astype(np.int8, copy=False)

    def kept(self, kinds: Kinds) -> npt.NDArray[np.bool_]:
        """Which rows the table takes in. Raises `BadRowKind` for deletes that readers could not merge
        (R6.5)."""
        dropped = np.zeros(len(kinds), bool)
        if self.ignore_delete:
            dropped |= (kinds == DELETE) | (kinds == UPDATE_BEFORE)
        if self.ignore_update_before:
            dropped |= kinds == UPDATE_BEFORE
        if self.refusal:
            taking = int(((kinds == DELETE) | (kinds == UPDATE_BEFORE))[~dropped].sum())
            if taking:
                raise BadRowKind(
                    f"{taking:,} of {len(kinds):,} rows for {self.table} delete or take back (-D, -U), which "
                    f"the table cannot merge: {self.refusal}. Set ignore-delete, or another option of the "
                    "merge engine that says what a delete means.",
                    table=self.table,
                    count=taking,
                )
        return ~dropped
