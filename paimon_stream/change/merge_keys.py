"""Finds the rows of the source that have the keys of target rows.

Keys become numbers: each column's values are numbered as the source has them, and the numbers of
several columns are combined. So values of any type are compared once, and rows beside them are not
touched. As in SQL, NULL equals nothing, unless the condition says `<=>`; as in Spark, NaN equals NaN,
and -0.0 equals 0.0.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

NO_KEY: Final = -1
"""The number of a key that no row of the source has, and of NULL."""
_NUMBERS: Final = {
    1: pa.int8(),
    2: pa.int16(),
    4: pa.int32(),
    8: pa.int64(),
}


def as_numbers(column: pa.Array) -> Ints | None:
    """Equal values as equal numbers, NULL as any number; None if the type has no numbers of 64
    bits.
    """
    type_ = column.type
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    elif pa.types.is_floating(type_):
        floats = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        floats[np.isnan(floats)] = np.nan
        numbers: Ints = floats.view(np.int64)
        return numbers
    elif not (pa.types.is_integer(type_) or pa.types.is_temporal(type_)):
        return None
    plain = column.view(_NUMBERS[column.type.bit_width // 8]).fill_null(0)
    widened: Ints = plain.to_numpy(zero_copy_only=False).astype(np.int64)
    return widened


def _places(sorted_values: Ints, values: Ints) -> Ints:
    """The place of each value among sorted values; `NO_KEY` if it is not there."""
    if not len(sorted_values):
        return np.full(len(values), NO_KEY, np.int64)
    places = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return np.where(sorted_values[places] == values, places, NO_KEY)


class _KeyColumn:
    """The values that one key column has in the source, numbered."""

    def __init__(self, column: pa.Array, *, null_equals_null: bool) -> None:
        self._null_equals_null = null_equals_null
        valid = column.drop_null()
        self._numbers: Ints | None = as_numbers(valid)
        self._values: pa.Array | None = None
        if self._numbers is None:
            self._values = pc.unique(valid)
            self.size = len(self._values) + 1
        else:
            self._numbers = np.unique(self._numbers)
            self.size = len(self._numbers) + 1

    def numbered(self, column: pa.Array) -> Ints:
        """The number of each value, below `size`."""
        if self._numbers is not None:
            numbers = as_numbers(column)
            assert numbers is not None
            places = _places(self._numbers, numbers)
        else:
            found = pc.index_in(column, value_set=self._values, skip_nulls=True)
            places = found.fill_null(NO_KEY).to_numpy(zero_copy_only=False).astype(np.int64)
        if column.null_count:
            is_null = column.is_null().to_numpy(zero_copy_only=False)
            places[is_null] = self.size - 1 if self._null_equals_null else NO_KEY
        return places


class SourceKeys:
    """The keys of the source's rows.

    Attributes:
        numbers: the number of each row's key; `NO_KEY` for a key with NULL.
    """

    def __init__(self, columns: Sequence[pa.Array], null_equals_null: Sequence[bool]) -> None:
        """`columns` are the key columns of the source. `null_equals_null` says for each of them
        whether NULL matches NULL.
        """
        self._columns = [
            _KeyColumn(column, null_equals_null=equals)
            for column, equals in zip(columns, null_equals_null, strict=True)
        ]
        self._combined: list[Ints] = []
        self.numbers = self._first_numbers(columns)
        order = np.argsort(self.numbers, kind="stable")
        self._rows = order[np.searchsorted(self.numbers[order], 0) :]
        """The rows that have a key, those with the same key next to each other."""
        # A target row may have a number that no row of the source has: that of NULL.
        count = len(self._combined[-1]) if self._combined else self._columns[0].size
        self._counts = np.bincount(self.numbers[self._rows], minlength=count)
        self._starts = np.cumsum(self._counts) - self._counts

    def _first_numbers(self, columns: Sequence[pa.Array]) -> Ints:
        """The numbers of the source's keys. Notes which combinations of columns it has."""
        numbers = self._columns[0].numbered(columns[0])
        for column, values in zip(self._columns[1:], columns[1:], strict=True):
            combined = _combine(numbers, column.numbered(values), column.size)
            known = np.unique(combined[combined != NO_KEY])
            self._combined.append(known)
            numbers = _places(known, combined)
        return numbers

    def numbered(self, columns: Sequence[pa.Array]) -> Ints:
        """The number of each target row's key; `NO_KEY` for a key that the source does not have.
        `columns` are the key columns of the target rows.
        """
        numbers = self._columns[0].numbered(columns[0])
        following = zip(self._columns[1:], columns[1:], self._combined, strict=True)
        for column, values, known in following:
            numbers = _places(known, _combine(numbers, column.numbered(values), column.size))
        return numbers

    def counts(self, numbers: Ints) -> Ints:
        """How many rows of the source have the key of each target row. `numbers` are those of the
        target rows.
        """
        counts = np.zeros(len(numbers), np.int64)
        has_number = numbers != NO_KEY
        counts[has_number] = self._counts[numbers[has_number]]
        return counts

    def pairs(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The target rows and the source rows that have the same keys, ascending by target row.
        `numbers` are those of the target rows.
        """
        (rows,) = np.nonzero(numbers != NO_KEY)
        counts = self._counts[numbers[rows]]
        target = np.repeat(rows, counts)
        ends = np.cumsum(counts)
        within = np.arange(len(target)) - np.repeat(ends - counts, counts)
        source = self._rows[np.repeat(self._starts[numbers[rows]], counts) + within]
        return target, source


def _combine(first: Ints, second: Ints, size: int) -> Ints:
    """One number for each pair of numbers. Both are below the number of the source's rows."""
    return np.where((first == NO_KEY) | (second == NO_KEY), NO_KEY, first * size + second)
