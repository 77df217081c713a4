"""Maps Spark's types to Paimon's, and says which Spark type may be written as which other type. A
column of another type is converted only if Spark itself calls that an up-cast. Up-casts that rest
on an assumption are refused: between timestamps with and without time zone, between numbers and
timestamps, and from bytes to text (format.md §2.5).
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql import types as st

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import MAX_LENGTH, DataField, DataType, TypeRoot

SparkFrame: TypeAlias = DataFrame
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
SPARK_TIME: Final[type[st.DataType] | tuple[()]] = getattr(st, "TimeType", ())
"""Spark's TIME, for `isinstance`; Spark has it from 4.1 on."""
_MILLI_DIGITS: Final = 3
_LENGTHS: Final = {TypeRoot.VARCHAR: MAX_LENGTH, TypeRoot.VARBINARY: MAX_LENGTH}
_TIMESTAMPS: Final = {TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
# For each class of Spark's types, the type root that a column of a new table gets.
_ROOTS: Final[Mapping[type[st.DataType], TypeRoot]] = {
    spark_class: root
    for root, spark_class in _PLAIN.items()
    if root not in (TypeRoot.CHAR, TypeRoot.BINARY, TypeRoot.TIME)
}


def to_data_fields(struct: st.StructType) -> tuple[DataField, ...]:
    """The columns of a new table with the schema of a DataFrame; comments become descriptions. Ids
    are positions: `reassign_ids` gives the final ones. Raises `UnsupportedFeature` for types that
    Paimon does not have (intervals, variants, user-defined types).
    """
    return tuple(
        DataField(
            id=position,
            name=field.name,
            type=paimon_type(field.dataType, field.name).with_nullable(field.nullable),
            description=(field.metadata or {}).get("comment"),
        )
        for position, field in enumerate(struct.fields)
    )


def paimon_type(type_: st.DataType, column: str) -> DataType:
    """The Paimon type of a new column, which is nullable. `column` is its name, for the message of
    `UnsupportedFeature`.
    """
    match type_:
        case st.VarcharType():
            return DataType(root=TypeRoot.VARCHAR, precision=type_.length)
        case st.CharType():
            return DataType(root=TypeRoot.CHAR, precision=type_.length)
        case st.DecimalType():
            return DataType(root=TypeRoot.DECIMAL, precision=type_.precision, scale=type_.scale)
        case st.ArrayType():
            element = paimon_type(type_.elementType, column).with_nullable(type_.containsNull)
            return DataType(root=TypeRoot.ARRAY, element=element)
        case st.MapType():
            value = paimon_type(type_.valueType, column).with_nullable(type_.valueContainsNull)
            key = paimon_type(type_.keyType, column).with_nullable(False)
            return DataType(root=TypeRoot.MAP, key=key, element=value)
        case st.StructType():
            return DataType(root=TypeRoot.ROW, fields=to_data_fields(type_))
    if isinstance(type_, SPARK_TIME):
        # Paimon's TIME holds milliseconds, even if its precision is higher.
        return DataType(root=TypeRoot.TIME, precision=min(type_.precision, _MILLI_DIGITS))
    root = _ROOTS.get(type(type_))
    if root is None:
        raise UnsupportedFeature(
            f"Column {column!r} is of Spark type {type_.simpleString()}, which Paimon does not "
            "have. Convert or drop it.",
            column=column,
            type=type_.simpleString(),
        )
    if root in _TIMESTAMPS:
        return DataType(root=root, precision=6)
    return DataType(root=root, precision=_LENGTHS.get(root, 0))


def spark_type(type_: DataType) -> st.DataType:
    """The Spark type of a column in a DataFrame (format.md §2.5). CHAR and VARCHAR, which Spark has
    only in tables, are strings.
    """
    match type_:
        case DataType(root=TypeRoot.DECIMAL):
            return st.DecimalType(type_.precision, type_.scale)
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return st.ArrayType(spark_type(element), element.nullable)
        case DataType(root=TypeRoot.MAP | TypeRoot.MULTISET):
            key, value = type_.entry
            return st.MapType(spark_type(key), spark_type(value), value.nullable)
        case DataType(root=TypeRoot.ROW):
            return st.StructType(
                [
                    st.StructField(field.name, spark_type(field.type), field.type.nullable)
                    for field in type_.fields
                ]
            )
    return _PLAIN[type_.root]()


def written_type(type_: DataType, source: st.DataType) -> st.DataType:
    """The type that a column of a DataFrame gets before it is written: the type that `spark_type`
    returns. Only Spark's TIME stays as it is, also inside arrays, maps and structs, because Spark
    cannot cast it. When rows are written, Arrow converts it to Paimon's TIME. A time that is not
    whole milliseconds is an error.
    """
    match type_, source:
        case DataType(root=TypeRoot.TIME), _ if isinstance(source, SPARK_TIME):
            return source
        case DataType(root=TypeRoot.ARRAY), st.ArrayType():
            element = written_type(type_.items, source.elementType)
            return st.ArrayType(element, type_.items.nullable)
        case DataType(root=TypeRoot.MAP), st.MapType():
            key, value = type_.entry
            return st.MapType(
                written_type(key, source.keyType),
                written_type(value, source.valueType),
                value.nullable,
            )
        case DataType(root=TypeRoot.ROW), st.StructType():
            types = {member.name: member.dataType for member in source.fields}
            return st.StructType(
                [
                    st.StructField(
                        field.name,
                        written_type(field.type, types.get(field.name, st.NullType())),
                        field.type.nullable,
                    )
                    for field in type_.fields
                ]
            )
    return spark_type(type_)


# Spark's up-casts between numbers, without those that silently round large numbers.
_WIDER: Final[Mapping[type[st.DataType], tuple[type[st.DataType], ...]]] = {
    st.ByteType: (st.ShortType, st.IntegerType, st.LongType, st.FloatType, st.DoubleType),
    st.ShortType: (st.IntegerType, st.LongType, st.FloatType, st.DoubleType),
    st.IntegerType: (st.LongType, st.DoubleType),
    st.FloatType: (st.DoubleType,),
}
_DIGITS: Final[Mapping[type[st.DataType], int]] = {
    st.ByteType: 3,
    st.ShortType: 5,
    st.IntegerType: 10,
    st.LongType: 20,
}
_TEXT_FROM: Final = (
    st.BooleanType,
    st.NumericType,
    st.DateType,
    st.TimestampType,
    st.TimestampNTZType,
)


def can_up_cast(source: st.DataType, target: st.DataType) -> bool:
    """Whether a column of one Spark type may be written as another. These are Spark's up-casts
    (`Cast.canUpCast`) except timestamp ↔ timestamp_ntz, timestamp ↔ bigint, binary → string, and
    integers into a FLOAT or DOUBLE that cannot hold all of their values. NULLs inside arrays, maps
    and structs are checked when the rows are written.
    """
    match source, target:
        case (st.NullType(), _) | (st.StringType(), st.StringType()):
            return True
        case st.DecimalType(), st.DecimalType():
            fits_before = _digits_before(source) <= _digits_before(target)
            return fits_before and int(source.scale) <= int(target.scale)
        case st.DecimalType(), _ if type(target) in _DIGITS:
            # As in Spark's `isTighterThan`, every value of the source type must certainly fit.
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
            return can_up_cast(source.keyType, target.keyType) and can_up_cast(
                source.valueType, target.valueType
            )
        case st.StructType(), st.StructType():
            return source.names == target.names and all(
                can_up_cast(member.dataType, wanted.dataType)
                for member, wanted in zip(source.fields, target.fields, strict=True)
            )
    return type(target) in _WIDER.get(type(source), ()) or same_but_nulls(source, target)


def _digits_before(type_: st.DecimalType) -> int:
    return int(type_.precision) - int(type_.scale)


def same_but_nulls(source: st.DataType, target: st.DataType) -> bool:
    """Whether the types are equal apart from nullability, which is checked value by value."""
    return bool(nullable_everywhere(source) == nullable_everywhere(target))


def nullable_everywhere(type_: st.DataType) -> st.DataType:
    """The type with all its parts nullable. Spark casts only to such types; NULLs are checked
    later.
    """
    match type_:
        case st.ArrayType():
            return st.ArrayType(nullable_everywhere(type_.elementType), True)
        case st.MapType():
            return st.MapType(
                nullable_everywhere(type_.keyType), nullable_everywhere(type_.valueType), True
            )
        case st.StructType():
            return st.StructType(
                [
                    st.StructField(field.name, nullable_everywhere(field.dataType), True)
                    for field in type_.fields
                ]
            )
    return type_


def named(name: str) -> Column:
    """The DataFrame's column with exactly that name."""
    return functions.col("`" + name.replace("`", "``") + "`")
