"""Spark's types and Paimon's, and how the columns of a DataFrame become those of a table.

Columns match by name, under `spark.sql.caseSensitive`. A column of another type is converted only where
Spark itself calls that an up-cast; of those, the ones that guess (timestamps with and without time zone
into each other, numbers and timestamps, bytes and text) are refused (design, Spark; format.md §2.5).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, functions
from pyspark.sql import types as st

from paimon_stream.errors import IncompatibleSchema, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot

__all__ = ["Alignment", "SparkStruct", "align", "can_up_cast", "project", "spark_type", "to_data_fields"]

SparkStruct: TypeAlias = st.StructType

_PLAIN: Final[Mapping[TypeRoot, type[st.DataType]]] = {
    TypeRoot.BOOLEAN: st.BooleanType,
    TypeRoot.TINYINT: st.ByteType,
    TypeRoot.SMALLINT: st.ShortType,
    TypeRoot.INT: st.IntegerType,
    TypeRoot.BIGINT: st.LongType,
    TypeRoot.FLOAT: st.FloatType,
    TypeRoot.DOUBLE: st.DoubleType,
    TypeRoot.CHAR: st.StringType,
    TypeRoot.VARCHAR: st.StringType,
    TypeRoot.BINARY: st.BinaryType,
    TypeRoot.VARBINARY: st.BinaryType,
    TypeRoot.DATE: st.DateType,
    TypeRoot.TIME: st.IntegerType,
    TypeRoot.TIMESTAMP: st.TimestampNTZType,
    TypeRoot.TIMESTAMP_LTZ: st.TimestampType,
}
_LENGTHS: Final = {TypeRoot.VARCHAR: MAX_LENGTH, TypeRoot.VARBINARY: MAX_LENGTH}
_TIMESTAMPS: Final = {TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
# The first root of each Spark class is the one a new table gets.
_ROOTS: Final[Mapping[type[st.DataType], TypeRoot]] = {
    made: root for root, made in _PLAIN.items() if root not in (TypeRoot.CHAR, TypeRoot.BINARY, TypeRoot.TIME)
}


def to_data_fields(struct: st.StructType) -> tuple[DataField, ...]:
    """The columns of a new table with the schema of a DataFrame; comments become descriptions.

    Ids are positions: `reassign_ids` gives the final ones. Raises `UnsupportedFeature` for types that
    Paimon does not have (intervals, variants, times, user-defined types).
    """
    return tuple(
        DataField(
            id=position,
            name=field.name,
            type=_paimon_type(field.dataType, field.name).with_nullable(field.nullable),
            description=field.metadata.get("comment") if field.metadata else None,
        )
        for position, field in enumerate(struct.fields)
    )


def _paimon_type(type_: st.DataType, column: str) -> DataType:
    match type_:
        case st.VarcharType():
            return DataType(root=TypeRoot.VARCHAR, precision=type_.length)
        case st.CharType():
            return DataType(root=TypeRoot.CHAR, precision=type_.length)
        case st.DecimalType():
            return DataType(root=TypeRoot.DECIMAL, precision=type_.precision, scale=type_.scale)
        case st.ArrayType():
            element = _paimon_type(type_.elementType, column).with_nullable(type_.containsNull)
            return DataType(root=TypeRoot.ARRAY, element=element)
        case st.MapType():
            value = _paimon_type(type_.valueType, column).with_nullable(type_.valueContainsNull)
            key = _paimon_type(type_.keyType, column).with_nullable(False)
            return DataType(root=TypeRoot.MAP, key=key, element=value)
        case st.StructType():
            return DataType(root=TypeRoot.ROW, fields=to_data_fields(type_))
    root = _ROOTS.get(type(type_))
    if root is None:
        raise UnsupportedFeature(
            f"Column {column!r} is of Spark type {type_.simpleString()}, which Paimon does not have. "
            "Convert or drop it.",
            column=column,
            type=type_.simpleString(),
        )
    return DataType(root=root, precision=6 if root in _TIMESTAMPS else _LENGTHS.get(root, 0))


def spark_type(type_: DataType) -> st.DataType:
    """What a Paimon type is in a DataFrame (format.md §2.5). Lengths of CHAR and VARCHAR are left out:
    Spark has no such types outside of tables."""
    match type_:
        case DataType(root=TypeRoot.DECIMAL):
            return st.DecimalType(type_.precision, type_.scale)
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return st.ArrayType(spark_type(element), element.nullable)
        case DataType(root=TypeRoot.MAP, key=DataType() as key, element=DataType() as value):
            return st.MapType(spark_type(key), spark_type(value), value.nullable)
        case DataType(root=TypeRoot.MULTISET, element=DataType() as element):
            return st.MapType(spark_type(element), st.IntegerType(), False)
        case DataType(root=TypeRoot.ROW):
            return st.StructType(
                [st.StructField(f.name, spark_type(f.type), f.type.nullable) for f in type_.fields]
            )
    return _PLAIN[type_.root]()


_WIDTH: Final[Mapping[type[st.DataType], int]] = {
    st.ByteType: 0,
    st.ShortType: 1,
    st.IntegerType: 2,
    st.LongType: 3,
    st.FloatType: 4,
    st.DoubleType: 5,
}
# Up-casts of Spark's that round large numbers in silence.
_ROUNDED: Final = {
    (st.IntegerType, st.FloatType),
    (st.LongType, st.FloatType),
    (st.LongType, st.DoubleType),
}
_DIGITS: Final[Mapping[type[st.DataType], int]] = {
    st.ByteType: 3,
    st.ShortType: 5,
    st.IntegerType: 10,
    st.LongType: 20,
}
_TEXT_FROM: Final = (
    st.BooleanType, st.NumericType, st.DateType, st.TimestampType, st.TimestampNTZType,
)  # fmt: skip


def can_up_cast(source: st.DataType, target: st.DataType) -> bool:
    """Whether a column of one Spark type may be written as another.

    These are Spark's up-casts (`Cast.canUpCast`) without timestamp ↔ timestamp_ntz, timestamp ↔ bigint,
    binary → string, and whole numbers into a FLOAT or DOUBLE that cannot hold all of them. NULLs inside of
    arrays, maps and structs are judged where the rows are written.
    """
    match source, target:
        case st.NullType(), _:
            return True
        case st.StringType(), st.StringType():
            return True
        case st.DecimalType(), st.DecimalType():
            wide_enough = _digits_before(source) <= _digits_before(target)
            return wide_enough and int(source.scale) <= int(target.scale)
        case st.DecimalType(), _ if type(target) in _DIGITS:
            # As Spark's `isTighterThan`: a type with exactly as many digits as fit for certain.
            return int(source.scale) == 0 and int(source.precision) < _DIGITS[type(target)]
        case _, st.DecimalType() if type(source) in _DIGITS:
            return _digits_before(target) >= _DIGITS[type(source)]
        case st.DateType(), st.TimestampType() | st.TimestampNTZType():
            return True
        case _, st.StringType():
            return isinstance(source, _TEXT_FROM)
        case st.ArrayType(), st.ArrayType():
            return can_up_cast(source.elementType, target.elementType)
        case st.MapType(), st.MapType():
            keys = can_up_cast(source.keyType, target.keyType)
            return keys and can_up_cast(source.valueType, target.valueType)
        case st.StructType(), st.StructType():
            return source.names == target.names and all(
                can_up_cast(one.dataType, other.dataType)
                for one, other in zip(source.fields, target.fields, strict=True)
            )
    if (type(source), type(target)) in _ROUNDED:
        return False
    if type(source) in _WIDTH and type(target) in _WIDTH:
        return _WIDTH[type(source)] <= _WIDTH[type(target)]
    return _same(source, target)


def _digits_before(type_: st.DecimalType) -> int:
    return int(type_.precision) - int(type_.scale)


def _same(source: st.DataType, target: st.DataType) -> bool:
    """Equal but for nullability, which is judged value by value."""
    match source, target:
        case st.ArrayType(), st.ArrayType():
            return _same(source.elementType, target.elementType)
        case st.MapType(), st.MapType():
            return _same(source.keyType, target.keyType) and _same(source.valueType, target.valueType)
        case st.StructType(), st.StructType():
            return len(source.fields) == len(target.fields) and all(
                one.name == other.name and _same(one.dataType, other.dataType)
                for one, other in zip(source.fields, target.fields, strict=True)
            )
    return bool(source == target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """How one column of the table is made: from which column of the DataFrame (None: all NULL, which is
    where a default comes in when rows are written), and the Spark type to cast it to (None: as it is)."""

    target: str
    source: str | None
    cast: st.DataType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How a DataFrame becomes the table's columns, in the table's order."""

    columns: tuple[_Column, ...]


def align(frame: st.StructType, schema: TableSchema, *, case_sensitive: bool, location: str) -> Alignment:
    """How a DataFrame with this schema is written to the table.

    A nullable column that the DataFrame lacks gets its default, else NULL (semantics.md R12.2). Raises
    `IncompatibleSchema`, with all reasons in one message: a missing NOT NULL or key column, a column the
    table does not have, an ambiguous name, a type that would lose something.
    """
    fold: Callable[[str], str] = str if case_sensitive else str.lower
    problems: dict[str, str] = {}
    sources: dict[str, st.StructField] = {}
    targets = _named(schema.field_names, fold, "The table", problems)
    for name in _named(frame.names, fold, "The DataFrame", problems).values():
        field = next(one for one in frame.fields if one.name == name)
        if fold(name) in targets:
            sources[fold(name)] = field
        else:
            near = difflib.get_close_matches(fold(name), targets, n=1, cutoff=0.6)
            hint = f" (did you mean {targets[near[0]]!r}?)" if near else ""
            problems.setdefault(name, f"the table has no column {name!r}{hint}")
    keys = {*schema.partition_keys, *schema.primary_keys, *schema.bucket_keys}
    columns = []
    for field in schema.fields:
        source = sources.get(fold(field.name))
        why = _why_not(field, source, field.name in keys)
        if why is not None:
            problems.setdefault(field.name, why)
        columns.append(_column(field, source))
    if problems:
        raise IncompatibleSchema(
            f"{location}: the rows do not fit the table: {'; '.join(problems.values())}. Nothing was "
            "written. Select, rename or cast the columns of the DataFrame to those of the table.",
            table=location,
            column=next(iter(problems)),
            columns=tuple(problems),
        )
    return Alignment(columns=tuple(columns))


def _named(
    names: list[str] | tuple[str, ...], fold: Callable[[str], str], whose: str, problems: dict[str, str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        if fold(name) in found:
            problems.setdefault(
                name,
                f"{whose} has the columns {found[fold(name)]!r} and {name!r}, which are one name here "
                "(spark.sql.caseSensitive)",
            )
        found.setdefault(fold(name), name)
    return found


def _why_not(field: DataField, source: st.StructField | None, is_key: bool) -> str | None:
    if source is None:
        if is_key:
            return f"the DataFrame lacks the key column {field.name!r} ({field.type})"
        if not field.type.nullable and field.default_value is None:
            return f"the DataFrame lacks column {field.name!r}, which is {field.type}"
        return None
    target = spark_type(field.type)
    if can_up_cast(source.dataType, target):
        return None
    found = source.dataType.simpleString()
    why = f"column {field.name!r} is {found}, the table's is {field.type}"
    pair = {type(source.dataType), type(target)}
    if pair == {st.TimestampType, st.TimestampNTZType}:
        return f"{why}: timestamps with and without time zone are not converted silently, cast it yourself"
    return f"{why}, and a cast could lose values"


def _column(field: DataField, source: st.StructField | None) -> _Column:
    target = spark_type(field.type)
    as_it_is = source is not None and _same(source.dataType, target)
    return _Column(
        target=field.name,
        source=None if source is None else source.name,
        cast=None if as_it_is else _nullable(target),
    )


def _nullable(type_: st.DataType) -> st.DataType:
    """The type with NULLs everywhere: Spark casts to no other, and what may be NULL is checked later."""
    match type_:
        case st.ArrayType():
            return st.ArrayType(_nullable(type_.elementType), True)
        case st.MapType():
            return st.MapType(_nullable(type_.keyType), _nullable(type_.valueType), True)
        case st.StructType():
            return st.StructType([st.StructField(f.name, _nullable(f.dataType), True) for f in type_.fields])
    return type_


def project(frame: DataFrame, alignment: Alignment) -> DataFrame:
    """The DataFrame with exactly the table's columns, lazily."""
    return frame.select(*(_expression(column) for column in alignment.columns))


def _expression(column: _Column) -> Any:
    made = functions.lit(None) if column.source is None else functions.col(_quoted(column.source))
    if column.cast is not None:
        made = made.cast(column.cast)
    return made.alias(column.target)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
