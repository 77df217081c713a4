"""Row kinds, and the aggregate functions of this release: their names, their types, and whether they can retract."""

from dataclasses import dataclass
from typing import Final

from paimon_stream.format.types import MAX_LENGTH, DataType, TypeRoot

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

FUNCTIONS: Final = (
    "sum", "product", "max", "min", "last_value", "last_non_null_value", "first_value",
    "first_non_null_value", "bool_and", "bool_or", "listagg", "collect", "merge_map",
)  # fmt: skip
"""The functions by the names that they have in Java."""

RETRACTABLE: Final = frozenset(
    {"key", "non_null", "of_group", "last_value", "last_non_null_value", "sum", "product", "collect"} | {"merge_map"}
)
"""Functions that can process a -U or -D row. The others refuse it."""

_NUMERIC: Final = {
    TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.FLOAT, TypeRoot.DOUBLE,
    TypeRoot.DECIMAL,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRule:
    """How a column is merged. `function` is one of `FUNCTIONS`, or `key`, or `non_null` (each value that is not NULL
    replaces the value before it), or `of_group` (the value of the row that the sequence group chooses). `group` is the
    position of the column's sequence group, None if it has none."""

    function: str
    ignore_retract: bool = False
    distinct: bool = False
    delimiter: str = ","
    group: int | None = None


def fits(function: str, type_: DataType) -> bool:
    """Whether the function accepts values of that type."""
    match function:
        case "sum" | "product":
            return type_.root in _NUMERIC
        case "max" | "min":
            return not type_.is_nested and type_.root is not TypeRoot.BOOLEAN
        case "bool_and" | "bool_or":
            return type_.root is TypeRoot.BOOLEAN
        case "listagg":
            return type_.root is TypeRoot.VARCHAR and type_.precision == MAX_LENGTH
        case "collect":
            return type_.root is TypeRoot.ARRAY
        case "merge_map":
            return type_.root is TypeRoot.MAP
    return True
