"""The bucket of a row as a Spark expression, for keys where the result is exactly Paimon's.

Spark's `hash` of bytes is Paimon's hash of a serialized row (format.md §6.3), so the expression builds the bytes of the
row. It exists for keys of BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, DATE, CHAR, VARCHAR and STRING columns, including
NULLs, and for the function `mod`. `write/bucket.py` assigns the buckets of all other keys.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from paimon_stream.format.types import DataField, TypeRoot
from paimon_stream.spark.types import named

_INTEGER_BITS: Final = {
    TypeRoot.BOOLEAN: 8, TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.DATE: 32,
    TypeRoot.BIGINT: 64,
}  # fmt: skip
_HEADER_BITS: Final = 8
_MOST_FIELDS: Final = 56
"""Rows with more fields have a longer header."""

_SLOT: Final = 8
_INLINE: Final = 7
"""Text of up to 7 bytes is stored in its slot, with its length in the last byte."""


def bucket_expression(keys: Sequence[DataField], num_buckets: int, function: str) -> Column | None:
    """The bucket of each row of a DataFrame with the table's columns, an INT from 0 to `num_buckets` - 1.

    None if there is no exact expression. `keys` are the bucket key columns in order.
    """
    if function == "mod" and len(keys) == 1 and keys[0].type.root in (TypeRoot.INT, TypeRoot.BIGINT):
        value = F.coalesce(named(keys[0].name).cast("long"), F.lit(0))
        return F.pmod(value, F.lit(num_buckets)).cast("int")
    if function != "default" or not 0 < len(keys) <= _MOST_FIELDS:
        return None
    if not all(one.type.root in _INTEGER_BITS or one.type.is_string for one in keys):
        return None
    hashed = F.hash(_row(keys))
    return F.abs(hashed % F.lit(num_buckets)).cast("int")


def _row(keys: Sequence[DataField]) -> Column:
    """The bytes of a BinaryRow of the keys: the NULL bits, a slot for each key, then the longer texts."""
    nulls = F.lit(0).cast("long")
    for position, field in enumerate(keys):
        bit = F.lit(1 << (_HEADER_BITS + position)).cast("long")
        nulls = nulls + F.when(named(field.name).isNull(), bit).otherwise(F.lit(0).cast("long"))
    slots, texts = [_eight_bytes(nulls)], []
    offset = F.lit(_SLOT + _SLOT * len(keys)).cast("long")
    for field in keys:
        if field.type.is_string:
            data = F.coalesce(named(field.name).cast("binary"), F.lit(b""))
            length = F.length(data)
            is_long = length > F.lit(_INLINE)
            padded = (F.ceil(length / F.lit(_SLOT)) * F.lit(_SLOT)).cast("int")
            place = F.shiftleft(offset, 32).bitwiseOR(length.cast("long"))
            last = F.unhex(F.hex((length + F.lit(0x80)).cast("long")))  # from 128 to 255, one byte
            inline = F.concat(_padded(data, F.lit(_INLINE)), last)
            kept = F.when(is_long, _eight_bytes(place)).otherwise(inline)
            slots.append(F.when(named(field.name).isNull(), F.lit(bytes(_SLOT))).otherwise(kept))
            texts.append(F.when(is_long, _padded(data, padded)).otherwise(F.lit(b"")))
            offset = offset + F.when(is_long, padded).otherwise(F.lit(0)).cast("long")
        else:
            slots.append(_eight_bytes(_number(field)))
    return F.concat(*slots, *texts)


def _number(field: DataField) -> Column:
    """The bits of the value as a long; zero for NULL."""
    column = named(field.name)
    value = F.unix_date(column) if field.type.root is TypeRoot.DATE else column.cast("int")
    if field.type.root is TypeRoot.BIGINT:
        value = column
    mask = (1 << _INTEGER_BITS[field.type.root]) - 1
    whole = F.coalesce(value.cast("long"), F.lit(0).cast("long"))
    return whole if mask == (1 << 64) - 1 else whole.bitwiseAND(F.lit(mask).cast("long"))


def _eight_bytes(value: Column) -> Column:
    """A long as eight bytes, little endian."""
    turned = F.lit(0).cast("long")
    for byte in range(_SLOT):
        lowest = F.shiftright(value, 8 * byte).bitwiseAND(F.lit(0xFF).cast("long"))
        turned = turned.bitwiseOR(F.shiftleft(lowest, 8 * (_SLOT - 1 - byte)))
    return F.unhex(F.lpad(F.hex(turned), 2 * _SLOT, "0"))


def _padded(data: Column, size: Column) -> Column:
    """The bytes, padded with zeros to that size."""
    return F.call_function("rpad", data, size, F.lit(b"\0"))
