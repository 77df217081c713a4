"""Makes incoming Arrow batches fit the table exactly: columns by name, the table's types, NULLs
checked. Spark has already selected and cast the columns. They are verified once more, because a
wrong name or unit in a data file is later read, without an error, as NULLs or wrong values
(format.md §7.1, §7.4; docs/format-notes.md).

ARRAY, MAP, MULTISET and ROW are taken apart, cast and put together again. Elements of NULL arrays
and members of NULL rows may hold anything in Arrow, so only the elements and members of rows that
are not NULL are checked.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import IncompatibleSchema, InvalidData, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.options import MISSING_COLUMNS
from paimon_stream.write.cast_scalar import Place, cast_scalar, check_nulls
from paimon_stream.write.file_stats import file_schema

_WORDS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """What every batch of a table looks like. `table` is for messages. `defaults` replace NULLs;
    None leaves them.
    """

    table: str
    fields: tuple[DataField, ...]
    arrow: pa.Schema
    defaults: tuple[pa.Scalar | None, ...]

    @classmethod
    def of(cls, schema: TableSchema, table: str = "") -> "ColumnPlan":
        """The plan for that schema. Raises `UnsupportedFeature` for defaults that `default_of`
        refuses.
        """
        defaults = tuple(default_of(one, table) for one in schema.fields)
        return cls(table=table, fields=schema.fields, arrow=file_schema(schema), defaults=defaults)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the table's columns in order and in exactly the types of `file_schema`;
        fitting columns are not copied. A column's default replaces NULL. Types are converted where
        no value can change: wider integers and decimals, any time zone to UTC, other units of the
        same instant, large and dictionary-encoded strings, integers to TIME. Raises
        `IncompatibleSchema` for missing, unknown and ambiguous columns and for other types,
        `NumericOverflow`, `ValueTooLong` and `NullInNotNull`, each with table, column and count.
        """
        parts = zip(
            self._positions(batch.schema.names),
            self.fields,
            self.arrow.types,
            self.defaults,
            strict=True,
        )
        columns = [self._cast(batch.column(position), *others) for position, *others in parts]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _cast(
        self, column: pa.Array, one: DataField, target: pa.DataType, default: pa.Scalar | None
    ) -> pa.Array:
        place = Place(table=self.table, column=one.name)
        column = _cast_nested(column, one.type, target, place)
        if default is not None and column.null_count:
            column = column.fill_null(default)
        check_nulls(column, one.type, place)
        return column

    def _positions(self, names: Sequence[str]) -> Sequence[int]:
        wanted = self.arrow.names
        if names == wanted:
            return range(len(names))
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise self._misfit(
                f"have {_listed(twice)} more than once. Name every column once", twice[0]
            )
        missing = [name for name in wanted if name not in names]
        if missing:
            cure = f"Select every column of the table, or set {MISSING_COLUMNS.key} = null if they may be NULL"
            raise self._misfit(f"lack {_listed(missing)}. {cure}", missing[0])
        extra = [name for name in names if name not in wanted]
        if extra:
            raise self._misfit(
                f"have {_listed(extra)}, which the table does not have. Drop it", extra[0]
            )
        return [names.index(name) for name in wanted]

    def _misfit(self, what: str, column: str) -> IncompatibleSchema:
        return IncompatibleSchema(
            f"The rows for {self.table or 'the table'} {what}.", table=self.table, column=column
        )


def _listed(names: Sequence[str]) -> str:
    return "column " + ", ".join(repr(name) for name in names)


def _cast_nested(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    """The column as `target`, the Arrow type of `type_`. Its own NULLs are not checked. Raises what
    `cast_scalar` raises, and `NullInNotNull` for NULLs in keys, elements, values and members of NOT
    NULL types.
    """
    source = column.type
    if pa.types.is_null(source):
        return pa.nulls(len(column), target)
    if pa.types.is_dictionary(source):
        return _cast_nested(column.dictionary_decode(), type_, target, place)
    if not type_.is_nested:
        return cast_scalar(column, type_, target, place)
    if type_.root is TypeRoot.ROW and pa.types.is_struct(source):
        return _cast_row(column, type_, target, place)
    is_list = (
        pa.types.is_list(source)
        or pa.types.is_large_list(source)
        or pa.types.is_fixed_size_list(source)
    )
    if type_.root is TypeRoot.ARRAY and is_list:
        return _cast_array(column, type_, target, place)
    if type_.root in (TypeRoot.MAP, TypeRoot.MULTISET) and pa.types.is_map(source):
        return _cast_map(column, type_, target, place)
    text = f"{place} is {type_}; rows bring {source}, which cannot be stored there. Cast the column first."
    raise IncompatibleSchema(
        text, **place.context(len(column) - column.null_count), type=str(source)
    )


def _cast_inner(column: pa.Array, type_: DataType, field: pa.Field, place: Place) -> pa.Array:
    made = _cast_nested(column, type_, field.type, place)
    check_nulls(made, type_, place)
    return made


def _cast_array(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    if not pa.types.is_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    offsets, (elements,) = _alive(column, column.values)
    elements = _cast_inner(elements, type_.items, target.value_field, place.inside("element"))
    return pa.ListArray.from_arrays(offsets, elements, type=target)


def _cast_map(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    key, value = type_.entry
    offsets, (keys, items) = _alive(column, column.keys, column.items)
    keys = _cast_inner(keys, key.with_nullable(False), target.key_field, place.inside("key"))
    items = _cast_inner(items, value, target.item_field, place.inside("value"))
    return pa.MapArray.from_arrays(offsets, keys, items, type=target)


def _alive(column: pa.Array, *children: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """New offsets of lists or maps, from 0, NULL where the row is; and the elements of the rows
    that are not NULL.
    """
    if not len(column):
        return pa.array([0], pa.int32()), [child.slice(0, 0) for child in children]
    bounds = np.asarray(column.offsets)
    lengths, null = np.diff(bounds), np.asarray(column.is_null())
    parts = [child.slice(bounds[0], bounds[-1] - bounds[0]) for child in children]
    if lengths[null].any():
        keep = pa.array(np.repeat(~null, lengths))
        parts = [part.filter(keep) for part in parts]
        lengths[null] = 0
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.array(offsets, mask=np.append(null, False) if null.any() else None), parts


def _cast_row(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    names = [one.name for one in column.type]
    wanted = [one.name for one in type_.fields]
    if sorted(names) != sorted(wanted):
        cure = "Make the struct with these members."
        text = f"{place} has the members {', '.join(wanted)}; rows bring {', '.join(names)}. {cure}"
        raise IncompatibleSchema(
            text, **place.context(len(column) - column.null_count), type=str(column.type)
        )
    valid = np.asarray(column.is_valid()) if column.null_count else None
    members = []
    for one, field in zip(type_.fields, target, strict=True):
        member = column.field(names.index(one.name))
        if valid is not None:
            member = member.filter(pa.array(valid))
        member = _cast_inner(member, one.type, field, place.inside(one.name))
        members.append(member if valid is None else _spread(member, field, valid))
    return pa.StructArray.from_arrays(
        members, fields=list(target), mask=None if valid is None else pa.array(~valid)
    )


def _spread(member: pa.Array, field: pa.Field, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """The members of the rows that are not NULL, moved to their places among all rows. The places
    of NULL rows hold NULL. If the member is NOT NULL, they hold an arbitrary value instead, because
    writers insist on one.
    """
    if not field.nullable and not len(member):
        return pa.repeat(pa.scalar(_zero(field.type), field.type), len(valid))
    places = np.maximum(np.cumsum(valid) - 1, 0)
    return member.take(pa.array(places, mask=~valid if field.nullable else None))


def _zero(type_: pa.DataType) -> Any:
    """A value of the type without content."""
    if pa.types.is_struct(type_):
        return {one.name: _zero(one.type) for one in type_}
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        return []
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return b""
    return False if pa.types.is_boolean(type_) else 0


def default_of(one: DataField, table: str = "") -> pa.Scalar | None:
    """The value that replaces NULLs of the column; None without a default. The text is parsed as
    Java casts a string to the type, without its quotes. Raises `UnsupportedFeature` if it is no
    such value, and for nested columns.
    """
    text = one.default_value
    if text is None:
        return None
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    target = arrow_type(one.type)
    place = Place(table=table, column=one.name)
    try:
        if not one.type.is_nested:
            return cast_scalar(_parsed(text, one.type.root, target), one.type, target, place)[0]
        why = "defaults of nested columns are not supported"
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        KeyError,
        InvalidData,
        IncompatibleSchema,
    ):
        why = "that is not a value of its type"
    text = f"{place} is {one.type} with the default {one.default_value!r}: {why}. Remove or change the default."
    raise UnsupportedFeature(text, table=table, column=one.name, value=one.default_value)


def _parsed(text: str, root: TypeRoot, target: pa.DataType) -> pa.Array:
    column = pa.array([text])
    match root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return column
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return column.cast(pa.binary())
        case TypeRoot.BOOLEAN:
            return pa.array([_WORDS[text.strip().lower()]])
        case TypeRoot.TIME:
            return pa.array([f"1970-01-01 {text.strip()}"]).cast(pa.timestamp("ms")).cast(target)
        case TypeRoot.TIMESTAMP_LTZ:
            # Java reads such a text in the JVM's time zone; here every zone is UTC.
            return pa.array([text.strip()]).cast(pa.timestamp(target.unit)).cast(target)
    return pa.array([text.strip()]).cast(target)
