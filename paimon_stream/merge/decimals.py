"""Sums and products of decimals: exact, and NULL where a step overflows, as in Java.

Numbers are 32-bit limbs in 64-bit words, the lowest first, so that many can be added up before any is
carried. A sum of which no step can overflow is added up at once; where one may, all steps are looked at, and
only keys in which one does are taken number by number: each restart depends on the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from math import gcd
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData, NumericOverflow
from paimon_stream.merge.order import Flags, Ints
from paimon_stream.merge.steps import BACK, SET, Steps

__all__ = ["decimal_products", "decimal_sums"]

_COMPACT: Final = 18
_WIDE: Final = Context(prec=50)
_LONG: Final = 2**63
_LOW: Final = 0xFFFFFFFF
_WEIGHTS: Final = np.array([1.0, 2.0**32, 2.0**64, 2.0**96])


def decimal_sums(table: str, name: str, column: pa.Array, steps: Steps, wanted: Flags) -> pa.Array:
    """Sums of the values wanted, NULL where there are none, or where the last step overflows; a value behind
    that begins anew. Raises `NumericOverflow` where Java gives a number that is too large for the type."""
    runs, type_ = steps.runs, column.type
    limbs = _limbs(column, runs.order)
    limbs[~wanted] = 0
    # No prefix of a sum is larger than the sum of sizes, in floating point with room for its error.
    sizes = np.abs(limbs @ _WEIGHTS)
    bound = 10**type_.precision
    unsure = np.add.reduceat(sizes, runs.starts) > 0.999 * bound
    limbs[steps.backs] *= -1
    there = np.logical_or.reduceat(wanted, runs.starts)
    totals = _carried(np.add.reduceat(limbs, runs.starts, axis=0))
    if unsure.any():
        lowest, highest = (-_LONG, _LONG - 1) if type_.precision <= _COMPACT else (1 - bound, bound - 1)
        for key in _overflowing(limbs, steps, unsure, lowest, highest):
            places = np.arange(runs.starts[key], runs.ends[key])
            value = _restarted(_integers(limbs[places[wanted[places]]]), lowest, highest)
            there[key] = value is not None
            totals[key] = _limbs_of(value or 0)
        large = there & (_below(totals, 1 - bound) | ~_below(totals, bound))
        if large.any():
            raise _too_large(table, name, type_, _integers(totals[large][:1])[0])
    return _array(totals, type_, there)


def _overflowing(limbs: Ints, steps: Steps, unsure: Flags, lowest: int, highest: int) -> Ints:
    """Of the keys that are unsure those where a step of the sum is below the lowest or above the highest."""
    runs = steps.runs
    chosen = unsure[runs.run_of]
    mine, owner = limbs[chosen], runs.run_of[chosen]
    steps_ = np.cumsum(mine, axis=0)
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    sizes = np.diff(np.append(starts, len(owner)))
    steps_ -= np.repeat(steps_[starts] - mine[starts], sizes, axis=0)
    steps_ = _carried(steps_)
    outside = _below(steps_, lowest) | ~_below(steps_, highest + 1)
    keys: Ints = np.unique(owner[outside])
    return keys


def _restarted(values: Iterable[int], lowest: int, highest: int) -> int | None:
    held: int | None = None
    for value in values:
        held = value if held is None else held + value
        if not lowest <= held <= highest:
            held = None
    return held


def _too_large(table: str, name: str, type_: pa.DataType, unscaled: int) -> NumericOverflow:
    value = Decimal(unscaled).scaleb(-type_.scale, _WIDE)
    return NumericOverflow(
        f"Column {name!r} of {table} sums up to {value}, which is more than {type_} holds. Widen the "
        "column's type.",
        table=table,
        column=name,
        value=str(value),
    )


# -- products ---------------------------------------------------------------------------------------


def decimal_products(column: pa.Array, steps: Steps, wrong: Callable[[Any, Any], InvalidData]) -> pa.Array:
    """Products, each step rounded half up to the column's scale. NULL where there is no value, or where the
    last step overflows."""
    runs, type_ = steps.runs, column.type
    places = np.flatnonzero(steps.valid(column) | (steps.does == SET))
    valid = steps.valid(column)[places]
    values = _integers(_limbs(column, runs.order[places]))
    one, bound = 10**type_.scale, 10**type_.precision
    half = one // 2
    owner = runs.run_of[places]
    made: list[int | None] = [None] * len(runs.starts)
    for key, value, what, is_valid in zip(
        owner.tolist(), values, steps.does[places].tolist(), valid.tolist(), strict=True
    ):
        held = made[key]
        if what == SET:
            made[key] = value if is_valid else None
        elif held is None:
            made[key] = None if what == BACK else value
        else:
            if what == BACK:
                size = _quotient(held, value, type_.scale, wrong)
            else:
                size = (abs(held * value) + half) // one
            made[key] = None if size >= bound else size if (held < 0) == (value < 0) else -size
    there = np.array([value is not None for value in made], np.bool_)
    limbs = np.array([_limbs_of(value or 0) for value in made], np.int64).reshape(-1, 4)
    return _array(limbs, type_, there)


def _quotient(held: int, value: int, scale: int, wrong: Callable[[Any, Any], InvalidData]) -> int:
    """The size of the quotient, which has to have an end."""
    rest = value and abs(value) // gcd(held, value)
    if not rest or 10**128 % rest:
        raise wrong(Decimal(held).scaleb(-scale, _WIDE), Decimal(value).scaleb(-scale, _WIDE))
    made: int = (2 * abs(held) * 10**scale + abs(value)) // (2 * abs(value))
    return made


# -- limbs ------------------------------------------------------------------------------------------


def _limbs(column: pa.Array, rows: Ints) -> Ints:
    """Four per row, the highest with the sign."""
    words = np.frombuffer(column.buffers()[1], np.uint32, 4 * (column.offset + len(column)))
    limbs: Ints = words[4 * column.offset :].reshape(-1, 4)[rows].astype(np.int64)
    limbs[:, 3] = limbs[:, 3].astype(np.uint32).view(np.int32)
    return limbs


def _carried(limbs: Ints) -> Ints:
    """The same numbers, where all limbs but the highest are within 32 bits."""
    for low in range(3):
        limbs[:, low + 1] += limbs[:, low] >> 32
        limbs[:, low] &= _LOW
    return limbs


def _below(limbs: Ints, bound: int) -> Flags:
    """Whether carried numbers are smaller than that."""
    less = np.zeros(len(limbs), np.bool_)
    for position, limb in enumerate(_limbs_of(bound)):
        mine = limbs[:, position]
        less = (mine < limb) | ((mine == limb) & less)
    return less


def _limbs_of(value: int) -> list[int]:
    return [value & _LOW, value >> 32 & _LOW, value >> 64 & _LOW, value >> 96]


def _integers(limbs: Ints) -> list[int]:
    """The unscaled values."""
    data = np.ascontiguousarray(_carried(limbs.copy()) & _LOW).astype(np.uint32).tobytes()
    return [int.from_bytes(data[at : at + 16], "little", signed=True) for at in range(0, len(data), 16)]


def _array(limbs: Ints, type_: pa.DataType, there: Flags) -> pa.Array:
    data = np.ascontiguousarray(limbs & _LOW).astype(np.uint32)
    bits = pa.array(there).buffers()[1]
    return pa.Array.from_buffers(type_, len(limbs), [bits, pa.py_buffer(data.tobytes())])
