"""Default values of columns: the text in the schema, as one value of the column's type."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from paimon_stream.errors import InvalidData, SchemaError, UnsupportedFeature
from paimon_stream.format.types import DataField, TypeRoot, arrow_type
from paimon_stream.write.cast_scalar import Place, cast_scalar

__all__ = ["default_of"]

_WORDS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def default_of(one: DataField, table: str = "") -> pa.Scalar | None:
    """What NULLs of the column become when they are written; None where there is no default.

    The text is read as Java casts a string to the type; quotes around it are taken off. Raises
    `UnsupportedFeature` for a text that is no value of the type, and for defaults of nested columns.
    """
    text = one.default_value
    if text is None:
        return None
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    target = arrow_type(one.type)
    place = Place(table=table, column=one.name)
    try:
        if not one.type.is_nested:
            return cast_scalar(_parsed(text, one.type.root, target), one.type, target, place)[0]
        why = "defaults of nested columns are not supported"
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, InvalidData, SchemaError):
        why = "that is no value of its type"
    raise UnsupportedFeature(
        f"{place} is {one.type} with the default {one.default_value!r}: {why}. Remove or change the default.",
        table=table,
        column=one.name,
        value=one.default_value,
    )


def _parsed(text: str, root: TypeRoot, target: pa.DataType) -> pa.Array:
    column = pa.array([text])
    match root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return column
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return column.cast(pa.binary())
        case TypeRoot.BOOLEAN:
            return pa.array([_WORDS[text.strip().lower()]])
        case TypeRoot.TIME:
            return pa.array([f"1970-01-01 {text.strip()}"]).cast(pa.timestamp("ms")).cast(target)
        case TypeRoot.TIMESTAMP_LTZ:
            # Java reads such a text in its own time zone; here every zone is UTC.
            return pa.array([text.strip()]).cast(pa.timestamp(target.unit)).cast(target)
    return pa.array([text.strip()]).cast(target)
