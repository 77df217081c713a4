"""Assigns rows to buckets. The bucket depends on the bucket key alone and is the same in every engine.

format.md §6.3 defines the functions and their rules. All functions here work on whole columns.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import InvalidOption
from paimon_stream.format.binary_columns import encode_columns
from paimon_stream.format.murmur import hash_rows
from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.write.hive_hash import hive_hashes

Buckets = npt.NDArray[np.int32]

_BLOCK: Final = 1 << 15
"""Rows hashed at once. Their words fit into the processor's cache."""


def assign_buckets(
    batch: pa.RecordBatch, types: Sequence[DataType], num_buckets: int, function: str = "default"
) -> Buckets:
    """The bucket of every row, 0 to `num_buckets` - 1.

    The columns of `batch` are the bucket key columns, in the order of the option `bucket-key`. `types` are
    the types of these columns. `function` is the option `bucket-function.type`: `default`, `mod` or `hive`.

    Raises `UnsupportedFeature` for nested types, `InvalidOption` if the key does
    not suit the function, and `InvalidData` for columns that do not fit their type.
    """
    if function == "mod":
        return _mod(batch, types, num_buckets)
    bucket_of = _default if function == "default" else _hive
    buckets = np.empty(batch.num_rows, np.int32)
    for start in range(0, batch.num_rows, _BLOCK):
        block = batch.slice(start, _BLOCK)
        buckets[start : start + block.num_rows] = bucket_of(block, types, num_buckets)
    return buckets


def key_hashes(keys: pa.RecordBatch, types: Sequence[DataType]) -> Buckets:
    """Paimon's hash of every row. The columns are those of the key, and `types` their types."""
    blocks = (keys.slice(start, _BLOCK) for start in range(0, keys.num_rows, _BLOCK))
    return np.concatenate([hash_rows(encode_columns(one.columns, types)) for one in blocks] or [np.zeros(0, np.int32)])


def _default(block: pa.RecordBatch, types: Sequence[DataType], num_buckets: int) -> Buckets:
    hashes = hash_rows(encode_columns(block.columns, types))
    # As in Java, the remainder has the sign of the hash, and its absolute value is the bucket.
    rest: Buckets = np.fmod(hashes, np.int32(num_buckets))
    return np.abs(rest, out=rest)


def _hive(block: pa.RecordBatch, types: Sequence[DataType], num_buckets: int) -> Buckets:
    hashes = hive_hashes(block.columns, types)
    hashes &= np.uint32(0x7FFFFFFF)
    hashes %= np.uint32(num_buckets)
    return hashes.view(np.int32)


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
