"""Makes incoming Arrow batches fit the table exactly. Columns are matched by name and get the
table's types, and NULLs are checked. Spark has already selected and cast the columns. They are
verified once more, because a wrong name or unit in a data file is later read, without an error, as
NULLs or wrong values (format.md §7.1, §7.4; docs/format-notes.md).

ARRAY, MAP, MULTISET and ROW are taken apart, cast and put together again. In Arrow, elements of
NULL arrays and members of NULL rows may have any value. So elements and members are checked only if
the row around them is not NULL.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import IncompatibleSchema, InvalidData, UnsupportedFeature
from paimon_stream.format.arrow_types import from_numbers, to_numbers
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, TypeRoot, arrow_type
from paimon_stream.options import MISSING_COLUMNS
from paimon_stream.write.cast_scalar import CastTarget, Place, cast_scalar, check_nulls
from paimon_stream.write.file_stats import file_schema

_WORDS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
"""The texts of BOOLEAN defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """The columns that every batch of a table must have.

    Attributes:
        table: the table, for messages.
        fields: the columns.
        arrow: the Arrow schema of the batches.
        defaults: for each column, the value that replaces NULLs; None if NULLs stay.
    """

    table: str
    fields: tuple[DataField, ...]
    arrow: pa.Schema
    defaults: tuple[pa.Scalar | None, ...]

    @classmethod
    def of(cls, schema: TableSchema, table: str = "") -> "ColumnPlan":
        """Makes the plan for a schema. Raises `UnsupportedFeature` for defaults that `default_of`
        refuses.
        """
        defaults = tuple(default_of(field, table) for field in schema.fields)
        return cls(table=table, fields=schema.fields, arrow=file_schema(schema), defaults=defaults)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the table's columns in order and in exactly the types of `file_schema`.
        Columns that already fit are not copied. A column's default replaces NULL. Types are
        converted where no value can change: wider integers and decimals, any time zone to UTC,
        other units of the same instant, large and dictionary-encoded strings, integers to TIME.

        Raises:
            IncompatibleSchema: for missing, unknown and ambiguous columns, and for types that do
                not fit.
            NumericOverflow: for numbers out of range.
            ValueTooLong: for text and bytes that are too long.
            NullInNotNull: for NULL in columns that do not allow it.
            InvalidData: for text that is not UTF-8.

        Each error names the table, the column and the number of rows.
        """
        columns = [
            self._cast(batch.column(position), field, arrow, default)
            for position, field, arrow, default in zip(
                self._positions(batch.schema.names),
                self.fields,
                self.arrow.types,
                self.defaults,
                strict=True,
            )
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _cast(
        self, column: pa.Array, field: DataField, arrow: pa.DataType, default: pa.Scalar | None
    ) -> pa.Array:
        place = Place(table=self.table, column=field.name)
        column = _cast_nested(column, CastTarget(type=field.type, arrow=arrow, place=place))
        if default is not None and column.null_count:
            column = column.fill_null(default)
        check_nulls(column, field.type, place)
        return column

    def _positions(self, names: Sequence[str]) -> Sequence[int]:
        """The position of each of the table's columns in a batch whose columns have these names.
        Raises `IncompatibleSchema`.
        """
        wanted = self.arrow.names
        if names == wanted:
            return range(len(names))
        table = self.table or "the table"
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise IncompatibleSchema(
                f"The rows for {table} have {_listed(twice)} more than once. Name every column once.",
                table=self.table,
                column=twice[0],
            )
        position_of = {name: position for position, name in enumerate(names)}
        missing = [name for name in wanted if name not in position_of]
        if missing:
            raise IncompatibleSchema(
                f"The rows for {table} lack {_listed(missing)}. Select every column of the table, or set "
                f"{MISSING_COLUMNS.key} = null if they may be NULL.",
                table=self.table,
                column=missing[0],
            )
        known = set(wanted)
        extra = [name for name in names if name not in known]
        if extra:
            raise IncompatibleSchema(
                f"The rows for {table} have {_listed(extra)}, which the table does not have. Drop it.",
                table=self.table,
                column=extra[0],
            )
        return [position_of[name] for name in wanted]


def _listed(names: Sequence[str]) -> str:
    return "column " + ", ".join(repr(name) for name in names)


def _cast_nested(column: pa.Array, target: CastTarget) -> pa.Array:
    """The column in the Arrow type of the target. Its own NULLs are not checked. Raises what
    `cast_scalar` raises, and `NullInNotNull` for NULLs in keys, elements, values and members of NOT
    NULL types.
    """
    source = column.type
    if pa.types.is_null(source):
        return pa.nulls(len(column), target.arrow)
    if pa.types.is_dictionary(source):
        return _cast_nested(column.dictionary_decode(), target)
    if not target.type.is_nested:
        return cast_scalar(column, target)
    match target.type.root:
        case TypeRoot.ROW if pa.types.is_struct(source):
            return _cast_row(column, target)
        case TypeRoot.ARRAY if _is_list(source):
            return _cast_array(column, target)
        case TypeRoot.MAP | TypeRoot.MULTISET if pa.types.is_map(source):
            return _cast_map(column, target)
    raise IncompatibleSchema(
        f"{target.place} is {target.type}; the rows have {source} there, which cannot be stored. Cast the column first.",
        **target.place.context(len(column) - column.null_count),
        type=str(source),
    )


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    )


def _cast_inner(column: pa.Array, target: CastTarget) -> pa.Array:
    """The members, elements, keys or values in the Arrow type of the target. NULLs in them are
    checked.
    """
    cast = _cast_nested(column, target)
    check_nulls(cast, target.type, target.place)
    return cast


def _cast_array(column: pa.Array, target: CastTarget) -> pa.Array:
    if not pa.types.is_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    offsets, (elements,) = _without_null_rows(column, [column.values])
    inner = target.inside("element", target.type.items, target.arrow.value_type)
    return pa.ListArray.from_arrays(offsets, _cast_inner(elements, inner), type=target.arrow)


def _cast_map(column: pa.Array, target: CastTarget) -> pa.Array:
    key_type, value_type = target.type.entry
    key = target.inside("key", key_type.with_nullable(False), target.arrow.key_type)
    value = target.inside("value", value_type, target.arrow.item_type)
    offsets, (keys, items) = _without_null_rows(column, [column.keys, column.items])
    keys = _cast_inner(keys, key)
    items = _cast_inner(items, value)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target.arrow)


def _without_null_rows(
    column: pa.Array, children: Sequence[pa.Array]
) -> tuple[pa.Array, list[pa.Array]]:
    """Lists or maps in which NULL rows have no elements.

    Args:
        column: the lists or maps. The array of them may be a slice.
        children: the elements, or the keys and the values, of the whole array.

    Returns:
        New offsets, which begin with 0 and are NULL for NULL rows. Then, for each child, its
        elements in the rows that are not NULL.
    """
    if not len(column):
        return pa.array([0], pa.int32()), [child.slice(0, 0) for child in children]
    bounds = to_numbers(column.offsets)
    elements = [child.slice(bounds[0], bounds[-1] - bounds[0]) for child in children]
    if not column.null_count:
        return from_numbers(bounds - bounds[0]), elements
    lengths = np.diff(bounds)
    is_null = np.asarray(column.is_null())
    if lengths[is_null].any():
        is_kept = pa.array(np.repeat(~is_null, lengths))
        elements = [child.filter(is_kept) for child in elements]
        lengths[is_null] = 0
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.array(offsets, mask=np.append(is_null, False)), elements


def _cast_row(column: pa.Array, target: CastTarget) -> pa.Array:
    incoming = [member.name for member in column.type]
    wanted = [member.name for member in target.type.fields]
    if sorted(incoming) != sorted(wanted):
        raise IncompatibleSchema(
            f"{target.place} has the members {', '.join(wanted)}; the rows have "
            f"{', '.join(incoming)}. Make the struct with these members.",
            **target.place.context(len(column) - column.null_count),
            type=str(column.type),
        )
    is_valid = np.asarray(column.is_valid()) if column.null_count else None
    position_of = {name: position for position, name in enumerate(incoming)}
    members = []
    for field, arrow_field in zip(target.type.fields, target.arrow, strict=True):
        member = column.field(position_of[field.name])
        if is_valid is not None:
            member = member.filter(pa.array(is_valid))
        member = _cast_inner(member, target.inside(field.name, field.type, arrow_field.type))
        if is_valid is not None:
            member = _spread(member, arrow_field, is_valid)
        members.append(member)
    mask = None if is_valid is None else pa.array(~is_valid)
    return pa.StructArray.from_arrays(members, fields=list(target.arrow), mask=mask)


def _spread(member: pa.Array, field: pa.Field, is_valid: npt.NDArray[np.bool_]) -> pa.Array:
    """The members of the rows that are not NULL, moved to their places among all rows. The places
    of NULL rows hold NULL. If the member is NOT NULL, these places hold an arbitrary value instead,
    because writers need a value.
    """
    if not field.nullable and not len(member):
        return pa.repeat(pa.scalar(_zero(field.type), field.type), len(is_valid))
    # Each row takes the member of the nearest row at or before it that is not NULL. If there is no
    # such row, it takes the first member.
    positions = np.maximum(np.cumsum(is_valid) - 1, 0)
    mask = ~is_valid if field.nullable else None
    return member.take(pa.array(positions, mask=mask))


def _zero(type_: pa.DataType) -> Any:
    """An empty or zero value of the type."""
    if pa.types.is_struct(type_):
        return {member.name: _zero(member.type) for member in type_}
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        return []
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return b""
    return False if pa.types.is_boolean(type_) else 0


def default_of(field: DataField, table: str = "") -> pa.Scalar | None:
    """The value that replaces NULLs of a column. The schema stores the default as a text. The text
    is parsed without its quotes, as Java casts a string to the type.

    Args:
        field: the column.
        table: the table, for messages.

    Returns:
        The value; None if the column has no default.

    Raises:
        UnsupportedFeature: if the default is not a value of the type, and for nested columns.
    """
    literal = field.default_value
    if literal is None:
        return None
    if len(literal) > 1 and literal.startswith("'") and literal.endswith("'"):
        literal = literal[1:-1]
    place = Place(table=table, column=field.name)
    context = {"table": table, "column": field.name, "value": field.default_value}
    target = CastTarget(type=field.type, arrow=arrow_type(field.type), place=place)
    if field.type.is_nested:
        raise UnsupportedFeature(
            f"{place} is {field.type} with the default {field.default_value!r}: defaults of nested columns are not "
            "supported. Remove or change the default.",
            **context,
        )
    try:
        return cast_scalar(_parsed(literal, field.type.root, target.arrow), target)[0]
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        KeyError,
        InvalidData,
        IncompatibleSchema,
    ):
        raise UnsupportedFeature(
            f"{place} is {field.type} with the default {field.default_value!r}: that is not a value of its type. "
            "Remove or change the default.",
            **context,
        ) from None


def _parsed(literal: str, root: TypeRoot, arrow: pa.DataType) -> pa.Array:
    """The value of a default in an array of one row. Raises errors of Arrow and `KeyError`."""
    match root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return pa.array([literal])
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return pa.array([literal]).cast(pa.binary())
        case TypeRoot.BOOLEAN:
            return pa.array([_WORDS[literal.strip().lower()]])
        case TypeRoot.TIME:
            return pa.array([f"1970-01-01 {literal.strip()}"]).cast(pa.timestamp("ms")).cast(arrow)
        case TypeRoot.TIMESTAMP_LTZ:
            # Java reads such a literal in the JVM's time zone. In this package, every zone is UTC.
            return pa.array([literal.strip()]).cast(pa.timestamp(arrow.unit)).cast(arrow)
    return pa.array([literal.strip()]).cast(arrow)
