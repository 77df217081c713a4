"""Timestamps before 1970 that Arrow spoils: it leaves a negative rest where Java expects none."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import InvalidData
from paimon_stream.format.types import DataType
from paimon_stream.write.leaf_columns import leaf_columns

__all__ = ["check_old_times", "holds_timestamps"]

_PER_SECOND: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def holds_timestamps(type_: DataType) -> bool:
    """Whether there is a timestamp anywhere in the type."""
    inner = [one for one in (type_.key, type_.element) if one is not None]
    inner += [one.type for one in type_.fields]
    return type_.is_timestamp or any(map(holds_timestamps, inner))


def check_old_times(name: str, column: pa.Array, seconds: int, what: str) -> None:
    """Raises `InvalidData` for timestamps before 1970 that are not whole multiples of so many seconds.

    `what` says, for the message, which ones these are, and what they cannot be written to.
    """
    for path, leaf in leaf_columns(name, column):
        if not pa.types.is_timestamp(leaf.type):
            continue
        values, step = leaf.view(pa.int64()), seconds * _PER_SECOND[leaf.type.unit]
        whole = pc.equal(pc.multiply(pc.divide(values, step), step), values)
        broken = pc.sum(pc.and_not(pc.less(values, 0), whole)).as_py() or 0
        if broken:
            raise InvalidData(
                f"Column {path!r} has {broken:,} timestamps before 1970 {what}.", column=path, count=broken
            )
