"""How the columns of a DataFrame become those of a table. Columns, and members of structs at any
depth, match by name according to `spark.sql.caseSensitive`. Columns that the DataFrame lacks get
their default when rows are written, or are NULL if that is allowed (semantics.md R12.2). Types are
converted only by up-casts.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql import types as st

from paimon_stream.errors import IncompatibleSchema
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import MERGE_SCHEMA, MISSING_COLUMNS, OPERATION_COLUMN
from paimon_stream.spark.types import (
    can_up_cast,
    named,
    nullable_everywhere,
    same_but_nulls,
    spark_type,
)
from paimon_stream.table.table import Table
from paimon_stream.write.conform import default_of

Fold = Callable[[str], str]
"""Maps names that count as the same name to one text."""


def fold_of(case_sensitive: bool) -> Fold:
    """The folding of names for that value of `spark.sql.caseSensitive`."""
    return str if case_sensitive else str.lower


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How a DataFrame becomes the table's columns, in the table's order. `columns` are these, each
    with the DataFrame's column from which it is made, None for all NULL. A default replaces these
    NULLs when rows are written.
    """

    columns: tuple[tuple[DataField, st.StructField | None], ...]
    case_sensitive: bool = False

    def changes_nothing_in(self, names: Sequence[str]) -> bool:
        """Whether a DataFrame with these column names has the table's columns already."""
        return len(names) == len(self.columns) and all(
            source is not None
            and name == source.name == one.name
            and same_but_nulls(source.dataType, spark_type(one.type))
            for name, (one, source) in zip(names, self.columns, strict=True)
        )


def align(
    frame: st.StructType,
    schema: TableSchema,
    *,
    case_sensitive: bool,
    location: str,
    missing_are_null: bool = False,
) -> Alignment:
    """How a DataFrame with this schema is written to the table. A column that the DataFrame lacks
    gets its default. With `missing_are_null`, a nullable column without a default is NULL
    (semantics.md R12.2). A missing nullable member of a struct is always NULL. Raises
    `IncompatibleSchema`, with all reasons in one message: a missing column, a column that the table
    does not have, an ambiguous name, or a type whose conversion could lose values.
    """
    judge = _Judge(fold_of(case_sensitive), missing_are_null)
    keys = {*schema.partition_keys, *schema.primary_keys, *schema.bucket_keys}
    sources = judge.sources(frame, schema.fields, "", keys)
    if judge.problems:
        new = judge.unknown and all(path in judge.unknown for path in judge.problems)
        cure = (
            f", or set {MERGE_SCHEMA.key} = add to add what the table does not have" if new else ""
        )
        if new and schema.primary_keys:
            cure += f", or {OPERATION_COLUMN.key} if the column says what a row does"
        if judge.missing and all(path in judge.missing for path in judge.problems):
            cure = (
                f", or set {MISSING_COLUMNS.key} = null to write NULL where the rows lack a column"
            )
        what = f"the rows do not fit the table: {'; '.join(judge.problems.values())}. Nothing was written."
        cure = f"Select, rename or cast the columns of the DataFrame to those of the table{cure}."
        columns = tuple(judge.problems)
        error = IncompatibleSchema(
            f"{what}{_last_change(schema)} {cure}", column=columns[0], columns=columns
        )
        raise error.of_table(location)
    return Alignment(
        columns=tuple(zip(schema.fields, sources, strict=True)), case_sensitive=case_sensitive
    )


def _last_change(schema: TableSchema) -> str:
    """When the table was last altered, for the user of a stream whose columns fitted before."""
    if schema.id == 0:
        return ""
    moment = datetime.fromtimestamp(schema.time_millis // 1000, timezone.utc)
    return f" The table was last altered at {moment:%Y-%m-%d %H:%M:%S} UTC (schema {schema.id})."


class _Judge:
    """Collects the problems of a DataFrame's columns by path."""

    def __init__(self, fold: Fold, missing_are_null: bool) -> None:
        self._fold = fold
        self._missing_are_null = missing_are_null
        self.problems: dict[str, str] = {}
        self.missing: set[str] = set()
        self.unknown: set[str] = set()

    def sources(
        self, frame: st.StructType, fields: Sequence[DataField], inside: str, keys: set[str]
    ) -> list[st.StructField | None]:
        """For each of the table's columns, the DataFrame's column, or None if the DataFrame lacks
        it.
        """
        whose = f"of {inside[:-1]!r} " if inside else ""
        targets = self._named([one.name for one in fields], f"The table {whose}".strip(), inside)
        given: dict[str, st.StructField] = {}
        for name in self._named(frame.names, f"The DataFrame {whose}".strip(), inside).values():
            if self._fold(name) in targets:
                given[self._fold(name)] = next(one for one in frame.fields if one.name == name)
            else:
                self._unknown(name, targets, inside)
        found = [given.get(self._fold(one.name)) for one in fields]
        for one, source in zip(fields, found, strict=True):
            self._judge(one, source, inside, one.name in keys)
        return found

    def _named(self, names: Sequence[str], whose: str, inside: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in names:
            if self._fold(name) in found:
                both = f"{found[self._fold(name)]!r} and {name!r}"
                text = f"{whose} has the columns {both}, which are one name here (spark.sql.caseSensitive)"
                self.problems.setdefault(inside + name, text)
            found.setdefault(self._fold(name), name)
        return found

    def _unknown(self, name: str, targets: dict[str, str], inside: str) -> None:
        near = difflib.get_close_matches(self._fold(name), targets, n=1, cutoff=0.6)
        hint = f" (did you mean {inside + targets[near[0]]!r}?)" if near else ""
        self.unknown.add(inside + name)
        self.problems.setdefault(inside + name, f"the table has no column {inside + name!r}{hint}")

    def _judge(
        self, one: DataField, source: st.StructField | None, inside: str, is_key: bool
    ) -> None:
        path = inside + one.name
        if source is not None:
            self._type(source.dataType, one.type, path)
        elif is_key:
            self.problems.setdefault(
                path, f"the DataFrame lacks the key column {path!r} ({one.type})"
            )
        elif one.default_value is not None:
            return
        elif one.type.nullable and not inside and not self._missing_are_null:
            self.missing.add(path)
            self.problems.setdefault(path, f"the DataFrame lacks column {path!r} ({one.type})")
        elif not one.type.nullable:
            self.problems.setdefault(
                path, f"the DataFrame lacks column {path!r}, which is {one.type}"
            )

    def _type(self, source: st.DataType, target: DataType, path: str) -> None:
        match source, target:
            case st.StructType(), DataType(root=TypeRoot.ROW):
                self.sources(source, target.fields, f"{path}.", set())
            case st.ArrayType(), DataType(root=TypeRoot.ARRAY, element=DataType() as element):
                self._type(source.elementType, element, f"{path}.element")
            case st.MapType(), DataType(
                root=TypeRoot.MAP, key=DataType() as key, element=DataType() as value
            ):
                self._type(source.keyType, key, f"{path}.key")
                self._type(source.valueType, value, f"{path}.value")
            case _ if not can_up_cast(source, spark_type(target)):
                self.problems.setdefault(path, _misfit(source, target, path))


def _misfit(source: st.DataType, target: DataType, path: str) -> str:
    why = f"column {path!r} is {source.simpleString()}, the table's is {target}"
    if {type(source), type(spark_type(target))} == {st.TimestampType, st.TimestampNTZType}:
        return f"{why}: timestamps with and without time zone are not converted silently, cast it yourself"
    return f"{why}, and a cast could lose values"


def project(frame: DataFrame, alignment: Alignment, *others: Column) -> DataFrame:
    """The DataFrame, lazily, with exactly the table's columns followed by `others`. A DataFrame
    that has them already is returned unchanged, because Spark would analyse the same selection
    again for every batch.
    """
    if not others and alignment.changes_nothing_in(frame.columns):
        return frame
    fold = fold_of(alignment.case_sensitive)
    return frame.select(
        *(_expression(*column, named, fold) for column in alignment.columns), *others
    )


def _expression(
    one: DataField, source: st.StructField | None, get: Callable[[str], Any], fold: Fold
) -> Any:
    """A column of the table, or a member of a struct. `get` gives those of the DataFrame by
    name.
    """
    if source is None:
        return functions.lit(None).cast(nullable_everywhere(spark_type(one.type))).alias(one.name)
    return _rebuilt(get(source.name), source.dataType, one.type, fold).alias(one.name)


def _rebuilt(value: Any, source: st.DataType, target: DataType, fold: Fold) -> Any:
    """The value with the members of the table's structs, in the table's order, cast where
    needed.
    """
    wanted = spark_type(target)
    if same_but_nulls(source, wanted):
        return value
    if can_up_cast(source, wanted):
        return value.cast(nullable_everywhere(wanted))
    match source, target:
        case st.StructType(), DataType(root=TypeRoot.ROW):
            given = {fold(other.name): other for other in source.fields}
            members = ((one, given.get(fold(one.name))) for one in target.fields)
            made = functions.struct(
                *(_expression(*member, value.getField, fold) for member in members)
            )
            return functions.when(value.isNotNull(), made)
        case st.ArrayType(), DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return functions.transform(
                value, lambda one: _rebuilt(one, source.elementType, element, fold)
            )
        case st.MapType(), DataType(
            root=TypeRoot.MAP, key=DataType() as key, element=DataType() as item
        ):
            value = functions.transform_values(
                value, lambda _, v: _rebuilt(v, source.valueType, item, fold)
            )
            if same_but_nulls(source.keyType, spark_type(key)):
                return value
            return functions.transform_keys(
                value, lambda k, _: _rebuilt(k, source.keyType, key, fold)
            )
    raise AssertionError(f"{source} does not become {wanted}")  # `align` has refused it


def with_key_defaults(frame: DataFrame, table: Table) -> DataFrame:
    """The rows, with NULLs in partition and key columns replaced by the columns' defaults, if any.
    In other columns that happens when rows are written. In a key column it must happen earlier,
    because the key decides to which task a row is moved and how rows are sorted.
    """
    schema = table.schema
    for name in dict.fromkeys((*schema.partition_keys, *schema.primary_keys)):
        one = schema.field(name)
        default = default_of(one, table.location)
        if default is not None:
            frame = frame.withColumn(
                name, functions.coalesce(named(name), literal(one.type, default))
            )
    return frame


def literal(type_: DataType, value: pa.Scalar) -> Column:
    """The value as a column; timestamps, dates and decimals go as text, which no time zone or
    rounding changes.
    """
    plain: Any = None
    if value.is_valid:
        target = value.type
        if pa.types.is_time(target):
            plain = value.cast(pa.int32()).as_py()
        elif pa.types.is_timestamp(target):
            naive = (
                value.cast(pa.timestamp("us", target.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
            )
            plain = naive.as_py().isoformat() + ("Z" if target.tz else "")
        elif pa.types.is_date(target) or pa.types.is_decimal(target):
            plain = str(value.as_py())
        else:
            plain = value.as_py()
    return functions.lit(plain).cast(spark_type(type_))
