"""The columns of scalars inside a column of any type."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

__all__ = ["leaf_columns"]


def leaf_columns(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Each leaf of the column with its path in Parquet files, in file order. Only elements that belong to
    these rows are in them; members of NULL rows are anything."""
    type_ = column.type
    if pa.types.is_map(type_):
        start, length = _span(column)
        yield from leaf_columns(f"{name}.key_value.key", column.keys.slice(start, length))
        yield from leaf_columns(f"{name}.key_value.value", column.items.slice(start, length))
    elif pa.types.is_list(type_):
        yield from leaf_columns(f"{name}.list.element", column.values.slice(*_span(column)))
    elif pa.types.is_struct(type_):
        for position, one in enumerate(type_):
            yield from leaf_columns(f"{name}.{one.name}", column.field(position))
    else:
        yield name, column


def _span(column: pa.Array) -> tuple[int, int]:
    """Where the elements of these rows begin among those of the whole array, and how many they are."""
    if not len(column):
        return 0, 0
    start = column.offsets[0].as_py()
    return start, column.offsets[len(column)].as_py() - start
