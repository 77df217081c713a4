"""Converts the columns of a DataFrame to those of a table. Columns, and members of structs at any
depth, match by name according to `spark.sql.caseSensitive`. A column that the DataFrame lacks gets
the table's default when rows are written, or is NULL if that is allowed (semantics.md R12.2). Types
are converted only by up-casts.
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
    SPARK_TIME,
    can_up_cast,
    named,
    nullable_everywhere,
    same_but_nulls,
    spark_type,
    written_type,
)
from paimon_stream.table.table import Table
from paimon_stream.write.conform import default_of

Fold = Callable[[str], str]
"""Maps names that count as the same name to one text."""


def fold_of(*, case_sensitive: bool) -> Fold:
    """The function that folds names, for a value of `spark.sql.caseSensitive`."""
    return str if case_sensitive else str.lower


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the columns of a DataFrame become the columns of a table.

    Attributes:
        columns: the table's columns in the table's order, each with the column of the DataFrame
            that fills it. None stands for a column of NULLs. If the table's column has a default,
            the default replaces these NULLs when rows are written.
        case_sensitive: whether names that differ only by case are two names.
    """

    columns: tuple[tuple[DataField, st.StructField | None], ...]
    case_sensitive: bool = False

    def changes_nothing_in(self, names: Sequence[str]) -> bool:
        """Whether a DataFrame with these column names has the table's columns already."""
        return len(names) == len(self.columns) and all(
            source is not None
            and name == source.name == field.name
            and same_but_nulls(source.dataType, written_type(field.type, source.dataType))
            for name, (field, source) in zip(names, self.columns, strict=True)
        )


def align(
    frame: st.StructType,
    schema: TableSchema,
    *,
    case_sensitive: bool,
    location: str,
    missing_are_null: bool = False,
) -> Alignment:
    """How a DataFrame is written to the table. A column that the DataFrame lacks gets the table's
    default. A missing nullable member of a struct is always NULL.

    Args:
        frame: the schema of the DataFrame.
        schema: the table's schema.
        case_sensitive: whether names that differ only by case are two names.
        location: the table's location, for errors.
        missing_are_null: whether a missing nullable column without a default is NULL (semantics.md
            R12.2). If not, it is an error.

    Raises:
        IncompatibleSchema: a column is missing, the table does not have a column, a name is
            ambiguous, or the conversion of a type could lose values. One message has all reasons.
    """
    fold = fold_of(case_sensitive=case_sensitive)
    judge = _Judge(fold, missing_are_null=missing_are_null)
    keys = {*schema.partition_keys, *schema.primary_keys, *schema.bucket_keys}
    sources = judge.sources(frame, schema.fields, "", keys)
    if judge.problems:
        columns = tuple(judge.problems)
        raise IncompatibleSchema(
            f"the rows do not fit the table: {'; '.join(judge.problems.values())}. "
            f"Nothing was written.{_last_change(schema)} Select, rename or cast the columns of the "
            f"DataFrame to those of the table{_options_that_help(judge, schema)}.",
            column=columns[0],
            columns=columns,
        ).of_table(location)
    return Alignment(
        columns=tuple(zip(schema.fields, sources, strict=True)), case_sensitive=case_sensitive
    )


def _options_that_help(judge: "_Judge", schema: TableSchema) -> str:
    """The end of the sentence that says what the user can do. It names the options with which the
    rows would fit, and is empty if no option solves all problems.
    """
    if judge.problems.keys() <= judge.missing:
        return f", or set {MISSING_COLUMNS.key} = null to write NULL where the rows lack a column"
    if not judge.problems.keys() <= judge.unknown:
        return ""
    if schema.primary_keys:
        return (
            f", or set {MERGE_SCHEMA.key} = add to add what the table does not have, "
            f"or {OPERATION_COLUMN.key} if the column says what a row does"
        )
    return f", or set {MERGE_SCHEMA.key} = add to add what the table does not have"


def _last_change(schema: TableSchema) -> str:
    """A text that says when the table was last altered. It is for the user of a stream whose
    columns fitted before.
    """
    if schema.id == 0:
        return ""
    moment = datetime.fromtimestamp(schema.time_millis // 1000, timezone.utc)
    return f" The table was last altered at {moment:%Y-%m-%d %H:%M:%S} UTC (schema {schema.id})."


class _Judge:
    """Collects the problems of a DataFrame's columns.

    Attributes:
        problems: the problem of each column, by the column's path.
        missing: paths of the table's columns that the DataFrame lacks and that could be NULL.
        unknown: paths of the DataFrame's columns that the table does not have.
    """

    def __init__(self, fold: Fold, *, missing_are_null: bool) -> None:
        self._fold = fold
        self._missing_are_null = missing_are_null
        self.problems: dict[str, str] = {}
        self.missing: set[str] = set()
        self.unknown: set[str] = set()

    def sources(
        self, frame: st.StructType, fields: Sequence[DataField], inside: str, keys: set[str]
    ) -> list[st.StructField | None]:
        """For each of the table's columns, the DataFrame's column, or None if the DataFrame lacks
        it. `inside` is the path of the struct that has the columns as members, with a dot at the
        end. It is empty for the columns of the table.
        """
        of_struct = f" of {inside[:-1]!r}" if inside else ""
        targets = self._by_folded_name(
            [field.name for field in fields], f"The table{of_struct}", inside
        )
        columns = self._by_folded_name(frame.names, f"The DataFrame{of_struct}", inside)
        by_name = {column.name: column for column in reversed(frame.fields)}
        sources: dict[str, st.StructField] = {}
        for folded, name in columns.items():
            if folded in targets:
                sources[folded] = by_name[name]
            else:
                self._judge_unknown(name, targets, inside)
        source_of_each = [sources.get(self._fold(field.name)) for field in fields]
        for field, source in zip(fields, source_of_each, strict=True):
            if source is None and field.name in keys:
                self._refuse_missing_key(field, inside)
            elif source is None:
                self._judge_missing(field, inside)
            elif field.name in keys and isinstance(source.dataType, SPARK_TIME):
                self.problems.setdefault(
                    field.name,
                    f"key column {field.name!r} is {source.dataType.simpleString()}, the table's "
                    f"is {field.type}: Spark cannot tell the partition or bucket of its TIME. Give "
                    "the milliseconds of the day as an integer",
                )
            else:
                self._judge_type(source.dataType, field.type, inside + field.name)
        return source_of_each

    def _by_folded_name(self, names: Sequence[str], whose: str, inside: str) -> dict[str, str]:
        """Maps each folded name to the first name that folds to it. Every further such name is
        added to the problems.
        """
        first: dict[str, str] = {}
        for name in names:
            folded = self._fold(name)
            if folded in first:
                self.problems.setdefault(
                    inside + name,
                    f"{whose} has the columns {first[folded]!r} and {name!r}, which are one name "
                    "here (spark.sql.caseSensitive)",
                )
            else:
                first[folded] = name
        return first

    def _judge_unknown(self, name: str, targets: dict[str, str], inside: str) -> None:
        near = difflib.get_close_matches(self._fold(name), targets, n=1, cutoff=0.6)
        suggestion = f" (did you mean {inside + targets[near[0]]!r}?)" if near else ""
        self.unknown.add(inside + name)
        self.problems.setdefault(
            inside + name, f"the table has no column {inside + name!r}{suggestion}"
        )

    def _refuse_missing_key(self, field: DataField, inside: str) -> None:
        path = inside + field.name
        self.problems.setdefault(
            path, f"the DataFrame lacks the key column {path!r} ({field.type})"
        )

    def _judge_missing(self, field: DataField, inside: str) -> None:
        path = inside + field.name
        if field.default_value is not None:
            return
        if field.type.nullable and not inside and not self._missing_are_null:
            self.missing.add(path)
            self.problems.setdefault(path, f"the DataFrame lacks column {path!r} ({field.type})")
        elif not field.type.nullable:
            self.problems.setdefault(
                path, f"the DataFrame lacks column {path!r}, which is {field.type}"
            )

    def _judge_type(self, source: st.DataType, target: DataType, path: str) -> None:
        match source, target:
            case st.StructType(), DataType(root=TypeRoot.ROW):
                # The call adds the problems of the members. No member of a ROW is a key.
                self.sources(source, target.fields, inside=f"{path}.", keys=set())
            case st.ArrayType(), DataType(root=TypeRoot.ARRAY, element=DataType() as element):
                self._judge_type(source.elementType, element, f"{path}.element")
            case st.MapType(), DataType(
                root=TypeRoot.MAP, key=DataType() as key, element=DataType() as value
            ):
                self._judge_type(source.keyType, key, f"{path}.key")
                self._judge_type(source.valueType, value, f"{path}.value")
            case _ if not can_up_cast(source, written_type(target, source)):
                self.problems.setdefault(path, _misfit(source, target, path))


def _misfit(source: st.DataType, target: DataType, path: str) -> str:
    if {type(source), type(spark_type(target))} == {st.TimestampType, st.TimestampNTZType}:
        return (
            f"column {path!r} is {source.simpleString()}, the table's is {target}: timestamps with "
            "and without time zone are not converted silently, cast it yourself"
        )
    return (
        f"column {path!r} is {source.simpleString()}, the table's is {target}, and a cast could "
        "lose values"
    )


def project(frame: DataFrame, alignment: Alignment, *others: Column) -> DataFrame:
    """The DataFrame with exactly the table's columns followed by `others`. Nothing is computed yet.
    A DataFrame that has these columns already is returned unchanged, because Spark would analyse
    the same selection again for every batch.
    """
    if not others and alignment.changes_nothing_in(frame.columns):
        return frame
    fold = fold_of(case_sensitive=alignment.case_sensitive)
    columns = [_expression(field, source, named, fold) for field, source in alignment.columns]
    return frame.select(*columns, *others)


def _expression(
    field: DataField, source: st.StructField | None, get: Callable[[str], Any], fold: Fold
) -> Any:
    """The expression for a column of the table, or for a member of a struct. `get` returns a column
    or member of the DataFrame by its name.
    """
    if source is None:
        null = functions.lit(None).cast(nullable_everywhere(spark_type(field.type)))
        return null.alias(field.name)
    return _rebuilt(get(source.name), source.dataType, field.type, fold).alias(field.name)


def _rebuilt(value: Any, source: st.DataType, target: DataType, fold: Fold) -> Any:
    """The expression for a value of the table's type `target`. A struct gets the table's members in
    the table's order. Values of other types are cast.
    """
    wanted = written_type(target, source)
    if same_but_nulls(source, wanted):
        return value
    if can_up_cast(source, wanted):
        return value.cast(nullable_everywhere(wanted))
    match source, target:
        case st.StructType(), DataType(root=TypeRoot.ROW):
            sources = {fold(member.name): member for member in source.fields}
            members = [
                _expression(field, sources.get(fold(field.name)), value.getField, fold)
                for field in target.fields
            ]
            return functions.when(value.isNotNull(), functions.struct(*members))
        case st.ArrayType(), DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return functions.transform(
                value, lambda item: _rebuilt(item, source.elementType, element, fold)
            )
        case st.MapType(), DataType(
            root=TypeRoot.MAP, key=DataType() as key, element=DataType() as item
        ):
            value = functions.transform_values(
                value, lambda _, v: _rebuilt(v, source.valueType, item, fold)
            )
            if same_but_nulls(source.keyType, written_type(key, source.keyType)):
                return value
            return functions.transform_keys(
                value, lambda k, _: _rebuilt(k, source.keyType, key, fold)
            )
    raise AssertionError(f"{source} does not become {wanted}")  # `align` has refused it


def with_key_defaults(frame: DataFrame, table: Table) -> DataFrame:
    """The rows, with NULLs in partition and key columns replaced by the defaults of these columns,
    if there are any. In other columns, NULLs are replaced when rows are written. In a key column,
    NULLs must be replaced earlier, because the key decides to which task a row is moved and how
    rows are sorted.
    """
    schema = table.schema
    for name in dict.fromkeys((*schema.partition_keys, *schema.primary_keys)):
        field = schema.field(name)
        default = default_of(field, table.location)
        if default is not None:
            frame = frame.withColumn(
                name, functions.coalesce(named(name), literal(field.type, default))
            )
    return frame


def literal(type_: DataType, value: pa.Scalar) -> Column:
    """The value as a column. Timestamps, dates and decimals are passed as text, which no time zone
    or rounding changes.
    """
    plain: Any = None
    if value.is_valid:
        target = value.type
        if pa.types.is_time(target):
            plain = value.cast(pa.int32()).as_py()
        elif pa.types.is_timestamp(target):
            # Spark and Python's `datetime` count microseconds. The integer is the moment in UTC,
            # without a zone. So no zone is looked up here, and the text gets its Z below.
            naive = (
                value.cast(pa.timestamp("us", target.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
            )
            plain = naive.as_py().isoformat() + ("Z" if target.tz else "")
        elif pa.types.is_date(target) or pa.types.is_decimal(target):
            plain = str(value.as_py())
        else:
            plain = value.as_py()
    return functions.lit(plain).cast(spark_type(type_))
