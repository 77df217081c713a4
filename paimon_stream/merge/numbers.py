"""Sums and products, for all keys at a time.

Whole numbers wrap around as Java 1.4.2's do. Floats are taken in merge order, one after the other, so that
the last bit is Java's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData
from paimon_stream.merge.decimals import decimal_products, decimal_sums
from paimon_stream.merge.order import Flags, Part
from paimon_stream.merge.rounds import Arithmetic, Rounds, products
from paimon_stream.merge.row_actions import RowActions

__all__ = ["multiplied", "summed"]


def summed(table: str, name: str, column: pa.Array, actions: RowActions) -> pa.Array:
    """Sums; values taken back are subtracted. NULL where there is no value. Raises `NumericOverflow`."""
    actions = actions.since_set
    wanted = actions.valid(column)
    if pa.types.is_decimal128(column.type):
        return decimal_sums(table, name, column, actions, wanted)
    values = _values(column, actions)
    values = np.where(actions.retracts, -values, values)
    return _folded(column, values, actions, wanted, np.add)


def multiplied(table: str, name: str, column: pa.Array, actions: RowActions) -> pa.Array:
    """Products; what is held is divided by values taken back. NULL where there is no value. Raises
    `InvalidData` for what cannot be divided."""
    retracts = actions.valid(column) & actions.retracts
    if pa.types.is_decimal128(column.type):
        return decimal_products(column, actions, _no_quotient(table, name))
    if retracts.any():
        numbers = _Plain(_no_quotient(table, name), whole=pa.types.is_integer(column.type))
        with np.errstate(all="ignore"):
            made, there = products(_values(column, actions), actions, actions.valid(column), numbers)
        return pa.array(made, column.type, mask=~there)
    actions = actions.since_set
    return _folded(
        column, _values(column, actions), actions, actions.valid(column) & ~actions.retracts, np.multiply
    )


def _values(column: pa.Array, actions: RowActions) -> Part:
    values: Part = column.fill_null(0).to_numpy(zero_copy_only=False)[actions.runs.order]
    return values


def _folded(column: pa.Array, values: Part, actions: RowActions, wanted: Flags, fold: np.ufunc) -> pa.Array:
    runs = actions.runs
    none = ~np.logical_or.reduceat(wanted, runs.starts)
    if pa.types.is_floating(column.type):
        made = _in_order(values, wanted, actions, fold)
    else:
        values = np.where(wanted, values, values.dtype.type(fold.identity))
        with np.errstate(over="ignore"):
            made = fold.reduceat(values, runs.starts, dtype=values.dtype)
    return pa.array(made, column.type, mask=none)


def _in_order(values: Part, wanted: Flags, actions: RowActions, fold: np.ufunc) -> Part:
    """Floats one after the other: sums of three numbers depend on the order."""
    made = np.full(len(actions.runs.starts), 1.0 if fold is np.multiply else -0.0, values.dtype)
    rounds = Rounds(np.flatnonzero(wanted), actions)
    with np.errstate(all="ignore"):
        for keys, places in rounds:
            made[keys] = fold(made[keys], values[places])
        for key, places in rounds.rest():
            made[key] = fold.accumulate(np.append(made[key], values[places]))[-1]
    return made


class _Plain(Arithmetic):
    """Whole numbers, which wrap around, and floats."""

    def __init__(self, wrong: Callable[[Any, Any], InvalidData], *, whole: bool) -> None:
        self._wrong = wrong
        self._whole = whole

    def times(self, held: Part, new: Part) -> tuple[Part, Flags]:
        return held * new, np.ones(len(held), np.bool_)

    def over(self, held: Part, new: Part) -> tuple[Part, Flags]:
        return self.single_over(held, new), np.ones(len(held), np.bool_)

    def singles(self, values: Part) -> Part:
        return values

    def stored(self, single: Any) -> Any:
        return single

    def single_times(self, held: Any, new: Any) -> Any:
        return held * new

    def single_over(self, held: Any, new: Any) -> Any:
        """Whole numbers are rounded to zero."""
        if not self._whole:
            return held / new
        if not np.all(new):
            raise self._wrong(np.ravel(held)[np.ravel(new) == 0][0], 0)
        floor = held // new
        return floor + ((floor * new != held) & ((held < 0) != (new < 0)))


def _no_quotient(table: str, name: str) -> Callable[[Any, Any], InvalidData]:
    """Makes the error of a product that cannot be divided by a value taken back."""

    def made(held: Any, new: Any) -> InvalidData:
        return InvalidData(
            f"Column {name!r} of {table} is a product of {held}, and a row takes back {new}, by which it "
            f"cannot be divided exactly. Correct the row, or set fields.{name}.ignore-retract to true.",
            table=table,
            column=name,
        )

    return made
