"""The size of a row as Arrow: the part that the column types fix, and the rest as a Spark expression."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.spark.types import named

_NULL: Final = 1
"""Bytes for the bit that says whether a value is NULL. Arrow rounds the vectors of bits up."""

_OFFSET: Final = 4


def fixed_row_bytes(schema: TableSchema) -> int | None:
    """The size of each row of the table in bytes; None if the values of a column differ in size."""
    if any(_varies(one.type) for one in schema.fields):
        return None
    return sum(_fixed(one.type) for one in schema.fields)


def row_bytes(fields: Sequence[DataField]) -> Column:
    """The size of a row with these columns in bytes, a BIGINT. It is slightly more than Arrow needs."""
    fixed = F.lit(sum(_fixed(one.type) for one in fields)).cast("long")
    varying = [_varying(named(one.name), one.type) for one in fields if _varies(one.type)]
    return reduce(Column.__add__, varying, fixed)


def _varies(type_: DataType) -> bool:
    if type_.root is TypeRoot.ROW:
        return any(_varies(one.type) for one in type_.fields)
    return _width(type_) is None


def _fixed(type_: DataType) -> int:
    """The bytes that each value takes, even if it is NULL."""
    if type_.root is TypeRoot.ROW:
        return _NULL + sum(_fixed(one.type) for one in type_.fields)
    return _NULL + (_width(type_) or _OFFSET)


def _width(type_: DataType) -> int | None:
    """The bytes that Arrow takes for each value; None if that depends on the value."""
    arrow = arrow_type(type_)
    fixed = pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow)
    return max(1, arrow.bit_width // 8) if fixed else None


def _varying(value: Any, type_: DataType) -> Column:
    """The bytes that the value takes in addition to the fixed ones."""
    match type_:
        case DataType(root=TypeRoot.ROW):
            members = [one for one in type_.fields if _varies(one.type)]
            return reduce(Column.__add__, (_varying(value.getField(one.name), one.type) for one in members))
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return _of_elements(value, element)
        case DataType(root=TypeRoot.MAP | TypeRoot.MULTISET):
            key, element = type_.entry
            return _of_elements(F.map_keys(value), key) + _of_elements(F.map_values(value), element)
    return F.coalesce(F.octet_length(value).cast("long"), F.lit(0).cast("long"))


def _of_elements(values: Column, element: DataType) -> Column:
    nothing = F.lit(0).cast("long")
    found = F.coalesce(F.array_size(values).cast("long"), nothing) * F.lit(_fixed(element))
    if not _varies(element):
        return found
    varying = F.aggregate(values, nothing, lambda sum_, one: sum_ + _varying(one, element))
    return found + F.coalesce(varying, nothing)
