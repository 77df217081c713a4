"""What a task and the driver's plan both need to know about the Arrow batches that Spark passes to
a task: how many rows make a useful batch, and how wide the rows are.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

JOINED_ROWS: Final = 8_192
"""A batch costs as much to write as a thousand rows, so a task joins batches up to this."""

JOINED_BYTES: Final = 4 * 2**20

NULL_BYTES: Final = 1
"""Bytes for the bit that says whether a value is NULL. Arrow rounds the vectors of bits up."""

OFFSET_BYTES: Final = 4

_Sizes = npt.NDArray[np.int64]


class RowTooWide(Exception):
    """A row is wider than the driver has allowed, so it came as NULL. The batch must be written
    again without that limit. Only the tasks and the driver of this package see this error.
    """


def widest_row(batch: pa.RecordBatch) -> int:
    """The size of the widest row in bytes, slightly more than Arrow needs; 0 without rows."""
    if not batch.num_rows:
        return 0
    fixed = 0
    varying = np.zeros(batch.num_rows + 1, np.int64)
    places = np.arange(batch.num_rows + 1)
    for column in batch.columns:
        width = fixed_width(column.type)
        if width is None:
            varying += _bytes_before(column, places)
        else:
            fixed += NULL_BYTES + width
    return fixed + int(np.diff(varying).max())


def fixed_width(kind: pa.DataType) -> int | None:
    """The number of bytes that Arrow uses for each value of the type; None if this depends on the
    value.
    """
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return max(1, int(kind.bit_width) // 8)
    return 0 if pa.types.is_null(kind) else None


def _bytes_before(column: pa.Array, places: _Sizes) -> _Sizes:
    """For each of these places in a column, the number of bytes that the values before it take. The
    places are in ascending order.
    """
    kind = column.type
    width = fixed_width(kind)
    if width is not None:
        return places * (NULL_BYTES + width)
    sizes: _Sizes = places * NULL_BYTES
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            sizes = sizes + _bytes_before(column.field(number), places)
        return sizes
    bounds = _bounds(column)[places].astype(np.int64)
    sizes = sizes + places * OFFSET_BYTES
    if pa.types.is_map(kind):
        return sizes + _bytes_before(column.keys, bounds) + _bytes_before(column.items, bounds)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return sizes + _bytes_before(column.values, bounds)
    return sizes + bounds


def _bounds(column: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    """The positions in the column's data at which the value of each row begins, and the position at
    which the last value ends.
    """
    if not len(column):
        return np.zeros(1, np.int64)
    kind = column.type
    is_large = (
        pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_list(kind)
    )
    count = column.offset + len(column) + 1
    dtype = np.int64 if is_large else np.int32
    return np.frombuffer(column.buffers()[1], dtype, count)[column.offset :]
