"""Converts the columns of a file to columns of the table: by field id, through nested types, in today's types.

A file has the names and types of the schema that it was written with. Each of today's columns, and each
member of a ROW, is found in the file by its id, because its name, position or type may have changed. A column
that the file does not have is NULL. Java does the same: a column's default value applies to rows written
without the column, not to rows that are older than the column (tried on 1.4.2).
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import PLACES, FormatError, InvalidData, UnsupportedFeature
from paimon_stream.format.arrow_types import count_not_utf8, with_elements, with_entries
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type
from paimon_stream.read.casts import can_cast, cast, floor_to

Leaf = Callable[[pa.Array, DataType], pa.Array]
"""Turns an array that a file format gives for a type that is not nested into the type's Arrow type."""


class Chunk(NamedTuple):
    """Some rows of a file: their number, the columns found, and the function that turns those into values."""

    rows: int
    columns: Mapping[str, pa.Array]
    leaf: Leaf


def nothing_but_rows(rows: int, batch_rows: int) -> Iterator[Chunk]:
    """Chunks of at most `batch_rows` rows without any column."""
    for start in range(0, rows, batch_rows):
        yield Chunk(min(batch_rows, rows - start), MappingProxyType({}), normalize)


def check_evolution(column: str, source: DataType, target: DataType) -> None:
    """Raises `UnsupportedFeature` if values of `source` cannot be read as `target`. `column` is for the message."""
    if source.is_nested != target.is_nested or (source.is_nested and source.root is not target.root):
        raise _no_way(column, source, target)
    if not target.is_nested:
        if not can_cast(source, target):
            raise _no_way(column, source, target)
        return
    for old, new in zip(_parameters(source), _parameters(target), strict=True):
        check_evolution(column, old, new)
    for member in target.fields:
        before = _member(source, member.id)
        if before is not None:
            check_evolution(f"{column}.{member.name}", before.type, member.type)


def _no_way(column: str, source: DataType, target: DataType) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"Column {column!r} was {source} in files of the table and is {target} now; this release does not "
        "convert between them. Select other columns, or read with an engine on the JVM.",
        column=column,
        type=str(target),
    )


def _parameters(type_: DataType) -> list[DataType]:
    return [one for one in (type_.key, type_.element) if one is not None]


def _member(type_: DataType, id_: int) -> DataField | None:
    return next((one for one in type_.fields if one.id == id_), None)


def convert(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    """The array in `target`'s Arrow type. Its Arrow type may be any that the file format gives for `source`. `column`
    is its name, for messages. Raises `FormatError` for an array that does not hold `source`, `InvalidData` for text
    that is not UTF-8, which Java writes (tried on 1.4.2)."""
    if not target.is_nested:
        values = leaf(array, source)
        if target.is_string and (source.is_string or source.is_binary):
            _check_text(values, column)
        made = cast(values, source, target)
        wanted = arrow_type(target)
        return made if made.type.equals(wanted) else made.cast(wanted)
    if target.root is TypeRoot.ROW:
        return _row(array, source, target, leaf, column)
    if target.root is TypeRoot.ARRAY:
        return _array(array, source, target, leaf, column)
    return _map(array, source, target, leaf, column)


def _check_text(values: pa.Array, column: str) -> None:
    broken = count_not_utf8(values)
    if broken:
        raise InvalidData(
            f"column {column!r} holds text that is not UTF-8, in at least {PLACES}. Another engine wrote it; Java "
            "Paimon keeps such bytes as they are. Select other columns, or repair the rows with an engine on the JVM",
            column=column,
            count=broken,
        )


def _row(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _misfit(array, source)
    wanted = arrow_type(target)
    members = []
    for member in target.fields:
        before = _member(source, member.id)
        if before is None:
            members.append(pa.nulls(len(array), arrow_type(member.type)))
            continue
        position = array.type.get_field_index(before.name)
        if position < 0:
            raise _misfit(array, source)
        inner = f"{column}.{member.name}"
        members.append(convert(array.field(position), before.type, member.type, leaf, inner))
    mask = array.is_null() if array.null_count else None
    if not members:
        return pa.Array.from_buffers(wanted, len(array), [None if mask is None else pc.invert(mask).buffers()[1]])
    return pa.StructArray.from_arrays(members, fields=list(wanted), mask=mask)


def _array(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if not pa.types.is_list(array.type) or source.element is None or target.element is None:
        raise _misfit(array, source)
    values = convert(array.values, source.element, target.element, leaf, f"{column}.element")
    return with_elements(array, arrow_type(target), values)


def _map(array: pa.Array, source: DataType, target: DataType, leaf: Leaf, column: str) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _misfit(array, source)
    (old_key, old_value), (new_key, new_value) = source.entry, target.entry
    keys = convert(array.keys, old_key, new_key, leaf, f"{column}.key")
    items = convert(array.items, old_value, new_value, leaf, f"{column}.value")
    return with_entries(array, arrow_type(target), keys, items)


def _misfit(array: pa.Array, type_: DataType) -> FormatError:
    return FormatError(f"its schema says {type_}, but it holds {array.type}")


def normalize(array: pa.Array, type_: DataType) -> pa.Array:
    """The `Leaf` for Arrow arrays that hold values of `type_` in any width, unit and encoding. Raises `FormatError` for
    arrays that hold something else."""
    wanted = arrow_type(type_)
    if array.type.equals(wanted):
        return array
    try:
        if type_.is_timestamp:
            return floor_to(array, wanted)
        if type_.root in (TypeRoot.TIME, TypeRoot.DATE) and pa.types.is_int32(array.type):
            return array.view(wanted)
        return array.cast(wanted)
    except (pa.ArrowException, KeyError, AttributeError, TypeError, ValueError):
        raise _misfit(array, type_) from None
