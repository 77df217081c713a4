"""Casts columns of any type: ARRAY, MAP, MULTISET and ROW are taken apart, cast and put together again.

Elements of NULL arrays and members of NULL rows may hold anything in Arrow, so they are left out. Only the
elements and members of rows that are not NULL are checked. All functions work on whole columns.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import IncompatibleSchema
from paimon_stream.format.types import DataType, TypeRoot
from paimon_stream.write.cast_scalar import Place, cast_scalar, check_nulls


def cast_nested(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    """The column as `target`, the Arrow type of `type_`. NULLs on the top level are not checked. Raises what
    `cast_scalar` raises, and `NullInNotNull` for keys, elements, values and members that are NULL although their type
    is NOT NULL."""
    source = column.type
    if pa.types.is_null(source):
        return pa.nulls(len(column), target)
    if pa.types.is_dictionary(source):
        return cast_nested(column.dictionary_decode(), type_, target, place)
    if not type_.is_nested:
        return cast_scalar(column, type_, target, place)
    if type_.root is TypeRoot.ROW and pa.types.is_struct(source):
        return _cast_row(column, type_, target, place)
    if type_.root is TypeRoot.ARRAY and _is_list(source):
        return _cast_array(column, type_, target, place)
    if type_.root in (TypeRoot.MAP, TypeRoot.MULTISET) and pa.types.is_map(source):
        return _cast_map(column, type_, target, place)
    raise IncompatibleSchema(
        f"{place} is {type_}; rows bring {source}, which cannot be stored there. Cast the column first.",
        **place.context(len(column) - column.null_count),
        type=str(source),
    )


def _cast_inner(column: pa.Array, type_: DataType, field: pa.Field, place: Place) -> pa.Array:
    made = cast_nested(column, type_, field.type, place)
    check_nulls(made, type_, place)
    return made


# -- ARRAY, MAP, MULTISET -----------------------------------------------------------------------------


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_))


def _cast_array(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    assert type_.element is not None
    if not pa.types.is_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    offsets, (elements,) = _alive(column, column.values)
    elements = _cast_inner(elements, type_.element, target.value_field, place.inside("element"))
    return pa.ListArray.from_arrays(offsets, elements, type=target)


def _cast_map(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    key, value = type_.entry
    offsets, (keys, items) = _alive(column, column.keys, column.items)
    keys = _cast_inner(keys, key.with_nullable(False), target.key_field, place.inside("key"))
    items = _cast_inner(items, value, target.item_field, place.inside("value"))
    return pa.MapArray.from_arrays(offsets, keys, items, type=target)


def _alive(column: pa.Array, *children: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """New offsets of lists or maps, and the elements that they point to. The offsets begin at 0 and are NULL where the
    row is NULL. The elements are those of rows that are not NULL."""
    if not len(column):
        return pa.array([0], pa.int32()), [child.slice(0, 0) for child in children]
    bounds = np.asarray(column.offsets)
    lengths, null = np.diff(bounds), _flags(column.is_null())
    parts = [child.slice(bounds[0], bounds[-1] - bounds[0]) for child in children]
    if lengths[null].any():
        keep = pa.array(np.repeat(~null, lengths))
        parts = [part.filter(keep) for part in parts]
        lengths[null] = 0
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.array(offsets, mask=np.append(null, False) if null.any() else None), parts


# -- ROW ----------------------------------------------------------------------------------------------


def _cast_row(column: pa.Array, type_: DataType, target: pa.DataType, place: Place) -> pa.Array:
    names = [one.name for one in column.type]
    wanted = [one.name for one in type_.fields]
    if sorted(names) != sorted(wanted):
        raise IncompatibleSchema(
            f"{place} has the members {', '.join(wanted)}; rows bring {', '.join(names)}. Make the struct "
            "with these members.",
            **place.context(len(column) - column.null_count),
            type=str(column.type),
        )
    valid = _flags(column.is_valid()) if column.null_count else None
    members = []
    for one, field in zip(type_.fields, target, strict=True):
        member = column.field(names.index(one.name))
        if valid is not None:
            member = member.filter(pa.array(valid))
        member = _cast_inner(member, one.type, field, place.inside(one.name))
        members.append(member if valid is None else _spread(member, field, valid))
    mask = None if valid is None else pa.array(~valid)
    return pa.StructArray.from_arrays(members, fields=list(target), mask=mask)


def _spread(member: pa.Array, field: pa.Field, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """The members of the rows that are not NULL, moved to their places among all rows. The places of NULL rows hold
    NULL. If the member is NOT NULL, they hold an arbitrary value instead, because writers insist on one."""
    if not field.nullable and not len(member):
        return _zeros(field.type, len(valid))
    places = np.maximum(np.cumsum(valid) - 1, 0)
    return member.take(pa.array(places, mask=~valid if field.nullable else None))


def _zeros(type_: pa.DataType, rows: int) -> pa.Array:
    """Rows that are not NULL and have no content."""
    if pa.types.is_struct(type_):
        return pa.Array.from_buffers(type_, rows, [None], children=[_zeros(one.type, rows) for one in type_])
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        offsets = pa.array(np.zeros(rows + 1, np.int32))
        if pa.types.is_list(type_):
            return pa.ListArray.from_arrays(offsets, _zeros(type_.value_type, 0), type=type_)
        keys, items = _zeros(type_.key_type, 0), _zeros(type_.item_type, 0)
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return pa.array([b""], pa.binary()).take(pa.array(np.zeros(rows, np.int64))).cast(type_)
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(bytes(rows * type_.bit_width // 8 + 1))])


def _flags(column: Any) -> npt.NDArray[np.bool_]:
    made: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return made
