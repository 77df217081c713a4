"""Converts the values of the vector files to the internal form of `binary_row` and to Arrow
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from paimon_stream.format.types import DataType, TypeRoot, arrow_type

KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
NANOS_PER = {"ms": 1_000_000, "us": 1_000, "ns": 1}


def internal(type_: DataType, text: str | None) -> Any:
    """The internal form of a value. `_meta.value_encoding` of the vector files describes the
    text.
    """
    if text is None:
        return None
    match type_.root:
        case TypeRoot.BOOLEAN:
            return text == "true"
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return float(text)
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return text
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return bytes.fromhex(text.removeprefix("0x"))
        case TypeRoot.DECIMAL:
            return Decimal(text)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            millis, _, nanos = text.partition(":")
            return int(millis) * 1_000_000 + int(nanos or 0)
        case _:
            return int(text)


def arrow_column(type_: DataType, values: Sequence[Any]) -> pa.Array:
    """The internal values as an Arrow column of their type."""
    wanted = arrow_type(type_)
    if type_.is_timestamp:
        per = NANOS_PER[wanted.unit]
        return pa.array([None if v is None else v // per for v in values], pa.int64()).cast(wanted)
    if type_.root in (TypeRoot.DATE, TypeRoot.TIME):
        return pa.array(values, pa.int32()).cast(wanted)
    return pa.array(values, wanted)
