"""The Arrow schema of data files, with Parquet's field ids (format.md §7.1), and the leaf columns of any column."""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot, arrow_type

_INNER_IDS: Final = 536870911
_IDS_PER_FIELD: Final = 1024


def file_schema(schema: TableSchema) -> pa.Schema:
    """The columns in table order, each with its field id; NOT NULL columns are not nullable. Members of ROWs have field
    ids of their own. The ids of elements, keys and values are derived from the field around them."""
    return pa.schema([_field(one) for one in schema.fields])


def _field(one: DataField) -> pa.Field:
    return _made(one.name, _type(one.type, one.id, 1), one.type.nullable, one.id)


def _made(name: str, type_: pa.DataType, nullable: bool, id_: int) -> pa.Field:
    return pa.field(name, type_, nullable=nullable, metadata={b"PARQUET:field_id": str(id_).encode()})


def _type(type_: DataType, field: int, depth: int) -> pa.DataType:
    """The type inside the field whose id is `field`; `depth` counts nested collections from 1."""
    above = _INNER_IDS + _IDS_PER_FIELD * field + depth
    match type_:
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return pa.list_(_made("element", _type(element, field, depth + 1), element.nullable, above))
        case DataType(root=TypeRoot.MAP | TypeRoot.MULTISET):
            key, value = type_.entry
            below = _INNER_IDS - _IDS_PER_FIELD * field - depth
            return pa.map_(
                _made("key", _type(key, field, depth + 1), False, below),
                _made("value", _type(value, field, depth + 1), value.nullable, above),
            )
        case DataType(root=TypeRoot.ROW):
            return pa.struct([_field(one) for one in type_.fields])
    return arrow_type(type_)


def with_leaves(field: pa.Field, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """The field with the type of each leaf changed, at any depth."""
    type_ = field.type
    if pa.types.is_map(type_):
        made = pa.map_(with_leaves(type_.key_field, change), with_leaves(type_.item_field, change))
    elif pa.types.is_list(type_):
        made = pa.list_(with_leaves(type_.value_field, change))
    elif pa.types.is_struct(type_):
        made = pa.struct([with_leaves(one, change) for one in type_])
    else:
        made = change(type_)
    return field.with_type(made)


def leaf_types(field: pa.Field) -> list[tuple[str, pa.DataType]]:
    """The leaves of such a column, with their paths in Parquet files, in file order."""
    return [(path, leaf.type) for path, leaf in leaf_columns(field.name, pa.nulls(0, field.type))]


def leaf_columns(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Each leaf of the column for these rows, in file order, with its path. Members of NULL rows may hold anything."""
    type_ = column.type
    if pa.types.is_map(type_):
        yield from leaf_columns(f"{name}.key_value.key", own_elements(column, column.keys))
        yield from leaf_columns(f"{name}.key_value.value", own_elements(column, column.items))
    elif pa.types.is_list(type_):
        yield from leaf_columns(f"{name}.list.element", own_elements(column, column.values))
    elif pa.types.is_struct(type_):
        for position, one in enumerate(type_):
            yield from leaf_columns(f"{name}.{one.name}", column.field(position))
    else:
        yield name, column


def own_elements(column: pa.Array, children: pa.Array) -> pa.Array:
    """The elements, out of those of the whole array, that belong to these rows of lists or maps."""
    if not len(column):
        return children.slice(0, 0)
    start = column.offsets[0].as_py()
    return children.slice(start, column.offsets[len(column)].as_py() - start)
