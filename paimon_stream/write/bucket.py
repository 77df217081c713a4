"""Assigns rows to buckets. The bucket depends on the bucket key alone and is the same in every engine. format.md §6.3
defines the functions and their rules. All functions here work on whole columns."""

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import InvalidData, InvalidOption, UnsupportedFeature
from paimon_stream.format.binary_columns import encode_columns
from paimon_stream.format.murmur import Hashes, hash_rows
from paimon_stream.format.types import DataType, TypeRoot, arrow_type

Buckets = npt.NDArray[np.int32]

_BLOCK: Final = 1 << 15
"""Rows hashed at once. Their words fit into the processor's cache."""
_FACTOR: Final = 31
_MASK: Final = 0xFFFFFFFF
_WIDE: Final = Context(prec=50)


def assign_buckets(
    batch: pa.RecordBatch, types: Sequence[DataType], num_buckets: int, function: str = "default"
) -> Buckets:
    """The bucket of every row, 0 to `num_buckets` - 1. `batch` has the columns of `bucket-key`, in its order, with
    these `types`. `function` is the option `bucket-function.type`. Raises `UnsupportedFeature` for nested types,
    `InvalidOption` if the key does not suit the function, `InvalidData` for columns that do not fit their type."""
    if function == "mod":
        return _mod(batch, types, num_buckets)
    if function == "hive":
        return _hive(batch, types, num_buckets)
    # As in Java, the remainder has the sign of the hash, and its absolute value is the bucket.
    rest: Buckets = np.fmod(key_hashes(batch, types), np.int32(num_buckets))
    return np.abs(rest, out=rest)


def key_hashes(keys: pa.RecordBatch, types: Sequence[DataType]) -> Buckets:
    """Paimon's hash of every row. The columns are those of the key, and `types` their types."""
    blocks = (keys.slice(start, _BLOCK) for start in range(0, keys.num_rows, _BLOCK))
    return np.concatenate([hash_rows(encode_columns(one.columns, types)) for one in blocks] or [np.zeros(0, np.int32)])


def _mod(batch: pa.RecordBatch, types: Sequence[DataType], num_buckets: int) -> Buckets:
    """Floor modulo of the one key column; NULL counts as 0."""
    if len(types) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT):
        raise InvalidOption(
            "bucket-function.type = mod needs one bucket key column of type INT or BIGINT, not "
            f"{', '.join(str(type_) for type_ in types) or 'none'}.",
            option="bucket-function.type",
            value="mod",
        )
    values = np.asarray(batch.column(0).cast(pa.int64()).fill_null(0))
    buckets: Buckets = np.mod(values, num_buckets).astype(np.int32)
    return buckets


def _hive(batch: pa.RecordBatch, types: Sequence[DataType], num_buckets: int) -> Buckets:
    """By the hash of every row for the function `hive`; NULL hashes to 0. Raises `UnsupportedFeature` for timestamps
    and nested types, and `InvalidData` for columns that do not fit their type."""
    h = np.zeros(batch.num_rows, np.uint32)
    for column, type_ in zip(batch.columns, types, strict=True):
        h *= np.uint32(_FACTOR)
        h += _column(column, type_)
    h &= np.uint32(0x7FFFFFFF)
    h %= np.uint32(num_buckets)
    return h.view(np.int32)


def _column(column: pa.Array, type_: DataType) -> Hashes:
    if type_.is_timestamp or type_.is_nested:
        raise UnsupportedFeature(f"bucket-function.type = hive does not take {type_} as a bucket key.", type=str(type_))
    if not column.type.equals(arrow_type(type_)):
        raise InvalidData(f"A bucket key of type {type_} came as {column.type}.", type=str(type_))
    if type_.is_string or type_.is_binary:
        return _bytes(column.cast(pa.binary()).fill_null(b""))
    if type_.root is TypeRoot.DECIMAL:
        found = column.dictionary_encode()
        hashes = np.array([_decimal(one, type_.scale) for one in found.dictionary.to_pylist()] + [0], np.uint32)
        decimals: Hashes = hashes[found.indices.fill_null(len(hashes) - 1).to_numpy()]
        return decimals
    if type_.root in (TypeRoot.DATE, TypeRoot.TIME):
        column = column.view(pa.int32())
    values = column.cast(pa.int8() if type_.root is TypeRoot.BOOLEAN else column.type).fill_null(0)
    numbers = values.to_numpy(zero_copy_only=False)
    if type_.is_float:
        kind = numbers.dtype.type
        numbers = np.where(numbers == 0, kind(0), numbers)  # -0.0 is 0.0
        numbers = np.where(np.isnan(numbers), kind(np.nan), numbers)  # Java knows one NaN
        numbers = numbers.view(np.int64 if type_.root is TypeRoot.DOUBLE else np.int32)
    if numbers.dtype == np.int64:
        numbers = numbers ^ (numbers.view(np.uint64) >> np.uint64(32)).view(np.int64)
    made: Hashes = numbers.astype(np.int32, casting="unsafe").view(np.uint32)
    return made


def _bytes(column: pa.Array) -> Hashes:
    """The hash of the signed bytes, h = 31 * h + byte. Rows of the same length are hashed together."""
    made = np.zeros(len(column), np.uint32)
    lengths = pc.binary_length(column).to_numpy()
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        fixed = column.take(pa.array(rows)).cast(pa.binary(length))
        values = np.frombuffer(fixed.buffers()[1], np.int8).reshape(-1, length).astype(np.uint32)
        weights = np.full(length, _FACTOR, np.uint32)
        weights[0] = 1
        made[rows] = (values * np.cumprod(weights, dtype=np.uint32)[::-1]).sum(axis=1, dtype=np.uint32)
    return made


def _decimal(value: Decimal, scale: int) -> int:
    """Java's `BigDecimal.hashCode` of the value without trailing zeros in its fraction."""
    unscaled = int(value.scaleb(scale, _WIDE))
    while scale and unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    h = 0
    for shift in (96, 64, 32, 0):
        h = _FACTOR * h + (abs(unscaled) >> shift & _MASK)
    return (_FACTOR * (-h if unscaled < 0 else h) + scale) & _MASK
