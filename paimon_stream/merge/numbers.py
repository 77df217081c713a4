"""Sums and products, for all keys at a time.

Whole numbers wrap around as Java 1.4.2's do. Floats are taken in merge order, one after the other, so that
the last bit is Java's; products from which values are taken back too, for a quotient is rounded before it is
multiplied again. There the first rows of all keys are taken at a time, then the second ones, and so on; what
keys of very many rows have left then is done number by number, for each needs the result before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData
from paimon_stream.merge.decimals import decimal_products, decimal_sums
from paimon_stream.merge.order import Flags, Ints, Part, run_starts
from paimon_stream.merge.steps import BACK, SET, Steps

__all__ = ["multiplied", "summed"]

_ROUNDS: Final = 32
"""So many rows of each key are taken side by side with those of all other keys."""


def summed(table: str, name: str, column: pa.Array, steps: Steps) -> pa.Array:
    """Sums; values taken back are subtracted. NULL where there is no value. Raises `NumericOverflow`."""
    steps = steps.since_set
    wanted = steps.valid(column)
    if pa.types.is_decimal128(column.type):
        return decimal_sums(table, name, column, steps, wanted)
    values = _values(column, steps)
    values = np.where(steps.backs, -values, values)
    return _folded(column, values, steps, wanted, np.add)


def multiplied(table: str, name: str, column: pa.Array, steps: Steps) -> pa.Array:
    """Products; what is held is divided by values taken back. NULL where there is no value. Raises
    `InvalidData` for what cannot be divided."""
    backs = steps.valid(column) & steps.backs
    if pa.types.is_decimal128(column.type):
        return decimal_products(column, steps, _no_quotient(table, name))
    if backs.any():
        return _with_quotients(column, steps, _no_quotient(table, name))
    steps = steps.since_set
    return _folded(column, _values(column, steps), steps, steps.valid(column) & ~steps.backs, np.multiply)


def _values(column: pa.Array, steps: Steps) -> Part:
    values: Part = column.fill_null(0).to_numpy(zero_copy_only=False)[steps.runs.order]
    return values


def _folded(column: pa.Array, values: Part, steps: Steps, wanted: Flags, fold: np.ufunc) -> pa.Array:
    runs = steps.runs
    none = ~np.logical_or.reduceat(wanted, runs.starts)
    if pa.types.is_floating(column.type):
        made = _in_order(values, wanted, steps, fold)
    else:
        values = np.where(wanted, values, values.dtype.type(fold.identity))
        with np.errstate(over="ignore"):
            made = fold.reduceat(values, runs.starts, dtype=values.dtype)
    return pa.array(made, column.type, mask=none)


def _in_order(values: Part, wanted: Flags, steps: Steps, fold: np.ufunc) -> Part:
    """Floats one after the other: sums of three numbers depend on the order."""
    made = np.full(len(steps.runs.starts), 1.0 if fold is np.multiply else -0.0, values.dtype)
    rounds = _Rounds(np.flatnonzero(wanted), steps)
    with np.errstate(all="ignore"):
        for keys, places in rounds:
            made[keys] = fold(made[keys], values[places])
        for key, places in rounds.rest():
            made[key] = fold.accumulate(np.append(made[key], values[places]))[-1]
    return made


class _Rounds:
    """These places along the order: the first of each key, the second of each key, and so on."""

    def __init__(self, places: Ints, steps: Steps) -> None:
        keys = steps.runs.run_of[places]
        self._places = places
        self._starts = run_starts([keys])
        self._sizes = np.diff(np.append(self._starts, len(keys)))
        self._keys = keys[self._starts]

    def __iter__(self) -> Iterator[tuple[Ints, Ints]]:
        """Keys, and a place of each."""
        starts, sizes, keys = self._starts, self._sizes, self._keys
        for step in range(_ROUNDS):
            longer = sizes > step
            if not longer.all():
                starts, sizes, keys = starts[longer], sizes[longer], keys[longer]
            if not len(keys):
                return
            yield keys, self._places[starts + step]

    def rest(self) -> Iterator[tuple[Any, Ints]]:
        """Each key that has places left, and these."""
        for at in np.flatnonzero(self._sizes > _ROUNDS):
            start = self._starts[at]
            yield self._keys[at], self._places[start + _ROUNDS : start + self._sizes[at]]


# -- products from which values are taken back --------------------------------------------------------


def _with_quotients(column: pa.Array, steps: Steps, wrong: Callable[[Any, Any], InvalidData]) -> pa.Array:
    values, does, backs = _values(column, steps), steps.does, steps.backs
    valid = steps.valid(column)
    rounds = _Rounds(np.flatnonzero(valid | (does == SET)), steps)
    held = np.ones(len(steps.runs.starts), values.dtype)
    there = np.zeros(len(held), np.bool_)
    divide = _float_quotients if pa.types.is_floating(column.type) else _quotients
    with np.errstate(all="ignore"):
        for keys, places in rounds:
            old, new, had = held[keys], values[places], there[keys]
            back = backs[places]
            fresh = ~had | (does[places] == SET)
            made = np.where(fresh, new, old * new)
            divided = back & had
            made[divided] = divide(old[divided], new[divided], wrong)
            stays = back & ~had
            held[keys] = np.where(stays, old, made)
            there[keys] = np.where(fresh, valid[places] & ~back, had)
        for key, places in rounds.rest():
            last = held[key] if there[key] else None
            one = _one_by_one(last, values[places], does[places], valid[places], divide, wrong)
            there[key] = one is not None
            held[key] = held[key] if one is None else one
    return pa.array(held, column.type, mask=~there)


def _one_by_one(
    held: Any, values: Part, does: Part, valid: Flags, divide: Callable[..., Any], wrong: Callable[..., Any]
) -> Any:
    for value, what, is_valid in zip(values, does.tolist(), valid.tolist(), strict=True):
        if what == SET:
            held = value if is_valid else None
        elif what == BACK:
            held = None if held is None else divide(held, value, wrong)
        else:
            held = value if held is None else held * value
    return held


def _float_quotients(old: Part, new: Part, _wrong: Callable[[Any, Any], InvalidData]) -> Part:
    made: Part = old / new
    return made


def _quotients(old: Part, new: Part, wrong: Callable[[Any, Any], InvalidData]) -> Part:
    """Rounded to zero, as Java does."""
    if not np.all(new):
        raise wrong(np.ravel(old)[np.ravel(new) == 0][0], 0)
    floor = old // new
    made: Part = floor + ((floor * new != old) & ((old < 0) != (new < 0)))
    return made


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
