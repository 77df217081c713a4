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
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import InvalidData, NumericOverflow
from paimon_stream.merge.order import Flags, Ints, Part
from paimon_stream.merge.rounds import Arithmetic, Rounds, products
from paimon_stream.merge.row_actions import RowActions

__all__ = ["decimal_products", "decimal_sums"]

_COMPACT: Final = 18
_WIDE: Final = Context(prec=50)
_LONG: Final = 2**63
_LOW: Final = 0xFFFFFFFF
_WORD: Final = np.uint64(_LOW)
_HALF: Final = np.uint64(32)
_WEIGHTS: Final = np.array([1.0, 2.0**32, 2.0**64, 2.0**96])


def decimal_sums(table: str, name: str, column: pa.Array, actions: RowActions, wanted: Flags) -> pa.Array:
    """Sums of the values wanted, NULL where there are none, or where the last step overflows; a value behind
    that begins anew. Raises `NumericOverflow` where Java gives a number that is too large for the type."""
    runs, type_ = actions.runs, column.type
    limbs = _limbs(column, runs.order)
    limbs[~wanted] = 0
    # No prefix of a sum is larger than the sum of sizes, in floating point with room for its error.
    sizes = np.abs(limbs @ _WEIGHTS)
    bound = 10**type_.precision
    unsure = np.add.reduceat(sizes, runs.starts) > 0.999 * bound
    limbs[actions.retracts] *= -1
    there = np.logical_or.reduceat(wanted, runs.starts)
    totals = _carried(np.add.reduceat(limbs, runs.starts, axis=0))
    if unsure.any():
        lowest, highest = (-_LONG, _LONG - 1) if type_.precision <= _COMPACT else (1 - bound, bound - 1)
        restarts = np.zeros(len(there), np.bool_)
        restarts[_overflowing(limbs, actions, unsure, lowest, highest)] = True
        totals[restarts] = 0
        rounds = Rounds(np.flatnonzero(wanted & restarts[runs.key_of]), actions)
        for keys, places in rounds:
            made = _carried(totals[keys] + limbs[places])
            there[keys] = ~_below(made, lowest) & _below(made, highest + 1)
            totals[keys] = np.where(there[keys, None], made, 0)
        for key, places in rounds.rest():
            first = _integers(totals[[key]])[0] if there[key] else None
            last = _restarted(first, _integers(limbs[places]), lowest, highest)
            there[key], totals[key] = last is not None, _limbs_of(last or 0)
        large = there & (_below(totals, 1 - bound) | ~_below(totals, bound))
        if large.any():
            raise _too_large(table, name, type_, _integers(totals[large][:1])[0])
    return _array(totals, type_, there)


def _overflowing(limbs: Ints, actions: RowActions, unsure: Flags, lowest: int, highest: int) -> Ints:
    """Of the keys that are unsure those where a step of the sum is below the lowest or above the highest."""
    runs = actions.runs
    chosen = unsure[runs.key_of]
    mine, owner = limbs[chosen], runs.key_of[chosen]
    steps_ = np.cumsum(mine, axis=0)
    starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    sizes = np.diff(np.append(starts, len(owner)))
    steps_ -= np.repeat(steps_[starts] - mine[starts], sizes, axis=0)
    steps_ = _carried(steps_)
    outside = _below(steps_, lowest) | ~_below(steps_, highest + 1)
    keys: Ints = np.unique(owner[outside])
    return keys


def _restarted(held: int | None, values: Iterable[int], lowest: int, highest: int) -> int | None:
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


def decimal_products(
    column: pa.Array, actions: RowActions, wrong: Callable[[Any, Any], InvalidData]
) -> pa.Array:
    """Products, each step rounded half up to the column's scale. NULL where there is no value, or where the
    last step overflows."""
    limbs, valid = _limbs(column, actions.runs.order), actions.valid(column)
    made, there = products(limbs, actions, valid, _Decimals(column.type, wrong))
    return _array(made, column.type, there)


class _Decimals(Arithmetic):
    """Decimals of one type, as limbs. Quotients, of numbers that have up to 76 digits, are done as whole
    numbers of Python."""

    def __init__(self, type_: pa.DataType, wrong: Callable[[Any, Any], InvalidData]) -> None:
        self._scale = type_.scale
        self._one = 10**type_.scale
        self._bound = 10**type_.precision
        self._wrong = wrong

    def times(self, held: Part, new: Part) -> tuple[Part, Flags]:
        negative = (held[:, 3] < 0) != (new[:, 3] < 0)
        words = _rounded(_multiplied(_sizes(held), _sizes(new)), self._scale)
        fits = np.logical_and.reduce([word == 0 for word in words[4:]]) if words[4:] else np.True_
        sizes = np.zeros_like(held)
        for position, word in enumerate(words[:4]):
            sizes[:, position] = word.astype(np.int64)
        fits = fits & _below(sizes, self._bound)
        return _carried(np.where(negative[:, None], -sizes, sizes)), fits

    def over(self, held: Part, new: Part) -> tuple[Part, Flags]:
        made = [self.single_over(*pair) for pair in zip(self.singles(held), self.singles(new), strict=True)]
        fits = np.array([one is not None for one in made], np.bool_)
        return np.array([_limbs_of(one or 0) for one in made], np.int64), fits

    def singles(self, values: Part) -> list[int]:
        return _integers(values)

    def stored(self, single: int) -> list[int]:
        return _limbs_of(single)

    def single_times(self, held: int, new: int) -> int | None:
        return self._fit((abs(held * new) + self._one // 2) // self._one, (held < 0) != (new < 0))

    def single_over(self, held: int, new: int) -> int | None:
        rest = new and abs(new) // gcd(held, new)
        if not rest or 10**128 % rest:  # the quotient has no end
            raise self._wrong(*(Decimal(one).scaleb(-self._scale, _WIDE) for one in (held, new)))
        size = (2 * abs(held) * self._one + abs(new)) // (2 * abs(new))
        return self._fit(size, (held < 0) != (new < 0))

    def _fit(self, size: int, negative: bool) -> int | None:
        return None if size >= self._bound else -size if negative else size


Words = list[npt.NDArray[np.uint64]]
"""Sizes of many numbers: their lowest 32 bits, the next, and so on."""


def _sizes(limbs: Ints) -> Words:
    """Without sign, and without words that are 0 everywhere."""
    sizes = _carried(np.where(limbs[:, 3:] < 0, -limbs, limbs)).astype(np.uint64)
    words = [np.ascontiguousarray(sizes[:, position]) for position in range(4)]
    while len(words) > 1 and not words[-1].any():
        words.pop()
    return words


def _multiplied(left: Words, right: Words) -> Words:
    made = [np.zeros_like(left[0]) for _ in range(len(left) + len(right))]
    for low, one in enumerate(left):
        carry = np.zeros_like(one)
        for high, other in enumerate(right):
            both = one * other + made[low + high] + carry
            made[low + high], carry = both & _WORD, both >> _HALF
        made[low + len(right)] = carry
    return made


def _rounded(words: Words, scale: int) -> Words:
    """Divided by 10 to the power of `scale`, half up."""
    if not scale:
        return words
    digits = scale - 1
    while digits:
        words, _ = _divided(words, 10 ** min(digits, 9))
        digits -= min(digits, 9)
    words, last = _divided(words, 10)
    carry = (last >= 5).astype(np.uint64)
    for position, word in enumerate(words):
        both = word + carry
        words[position], carry = both & _WORD, both >> _HALF
    return [*words, carry]


def _divided(words: Words, by: int) -> tuple[Words, npt.NDArray[np.uint64]]:
    """By a number of one word: quotients, remainders."""
    divisor, rest = np.uint64(by), np.zeros_like(words[0])
    made = []
    for word in reversed(words):
        both = (rest << _HALF) | word
        quotient = both // divisor
        rest = both - quotient * divisor
        made.append(quotient)
    return made[::-1], rest


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
