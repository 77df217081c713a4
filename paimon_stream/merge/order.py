"""Orders rows as Java does: turns a column into numbers that sort as its values do, and finds runs of equal keys.

Numbers and decimals are compared by value, text (UTF-8) and bytes by unsigned bytes, and times by instant; false comes
before true. -0.0 equals 0.0. All NaN are equal and larger than any other number. NULL comes before all values, also in
descending order (semantics.md §6.4)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import UnsupportedFeature

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Part = npt.NDArray[Any]
"""Numbers of any width, one per row."""

_SMALL_DECIMAL = 18


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    made = column.combine_chunks()
    return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made


def nulls(column: pa.Array) -> Flags | None:
    """Where the column is NULL; None if nowhere."""
    if not column.null_count:
        return None
    found: Flags = column.is_null().to_numpy(zero_copy_only=False)
    return found


def sort_columns(column: pa.Array, *, descending: bool = False) -> list[Part]:
    """Arrays that, compared one by one, order rows as the column does. Raises `UnsupportedFeature` for nested types."""
    null = nulls(column)
    parts = _parts(column, exact=False)
    if descending:
        parts = [~part for part in parts]
    if null is None:
        return parts
    for part in parts:
        part[null] = 0
    return [~null, *parts]


def ranks(column: pa.Array) -> Ints:
    """One number per row, in the order of the column; equal if the values are. For NULL, it has no meaning."""
    parts = _parts(column, exact=True)
    if len(parts) == 1 and parts[0].dtype != np.uint64:
        return parts[0].astype(np.int64)
    return dense_ranks(parts)


def dense_ranks(parts: Sequence[Part]) -> Ints:
    """One number per row, from 0, that orders rows by these parts. Rows with equal parts have equal numbers."""
    order = np.lexsort(parts[::-1])
    made = np.empty(len(order), np.int64)
    starts = np.zeros(len(order), np.int64)
    starts[run_starts([part[order] for part in parts])[1:]] = 1
    made[order] = np.cumsum(starts)
    return made


def run_starts(parts: Sequence[Part]) -> Ints:
    """The places where runs of equal rows begin, in one or more sorted columns."""
    rows = len(parts[0])
    if not rows:
        return np.zeros(0, np.int64)
    changed = np.zeros(rows, np.bool_)
    changed[0] = True
    for part in parts:
        changed[1:] |= part[1:] != part[:-1]
    return np.flatnonzero(changed)


def _parts(column: pa.Array, exact: bool) -> list[Part]:
    """New arrays of integers, with anything for NULL. With `exact`, -0.0 is below 0.0, as `max` and `min` require."""
    type_ = column.type
    if pa.types.is_boolean(type_):
        return [column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int8)]
    if pa.types.is_integer(type_):
        return [np.array(column.fill_null(0).to_numpy(zero_copy_only=False))]
    if pa.types.is_floating(type_):
        return [_float_bits(column, exact)]
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return [np.array(column.view(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False))]
    if pa.types.is_timestamp(type_):
        return [np.array(column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))]
    if pa.types.is_decimal128(type_):
        return _decimal_words(column)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return [_text_ranks(column)]
    raise UnsupportedFeature(f"Values of type {type_} cannot be ordered.", type=str(type_))


def _float_bits(column: pa.Array, exact: bool) -> Part:
    """The bits of floats, changed so that they sort as the numbers do."""
    wide = pa.types.is_float64(column.type)
    floats = np.array(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    if not exact:
        floats += 0.0
    floats[np.isnan(floats)] = np.nan
    bits = floats.view(np.int64 if wide else np.int32)
    if np.isnan(floats).any():
        bits = np.where(np.isnan(floats), np.iinfo(bits.dtype).max, bits)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _decimal_words(column: pa.Array) -> list[Part]:
    data = column.buffers()[1]
    pairs = np.frombuffer(data, np.int64, 2 * (column.offset + len(column)))[2 * column.offset :].reshape(-1, 2)
    if column.type.precision <= _SMALL_DECIMAL:
        return [pairs[:, 0].copy()]
    return [pairs[:, 1].copy(), pairs[:, 0].copy().view(np.uint64)]


def _text_ranks(column: pa.Array) -> Part:
    """Dense ranks of texts. Each distinct text is compared only once. Arrow compares texts by bytes."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64)
    found = column.dictionary_encode()
    ranked = pc.rank(found.dictionary, sort_keys="ascending", tiebreaker="dense")
    places = found.indices.fill_null(0).to_numpy(zero_copy_only=False)
    made: Ints = ranked.to_numpy(zero_copy_only=False).astype(np.int64)[places]
    return made
