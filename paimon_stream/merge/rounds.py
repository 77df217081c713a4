"""Folds of which each step needs the result before it: the first rows of all keys at a time, then the second
ones, and so on.

Products with retracted values are such folds, for a quotient is rounded before it is multiplied again; so are
all that overflow on the way. Rows beyond the first rounds of a key are taken value by value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from paimon_stream.merge.order import Flags, Ints, Part, run_starts
from paimon_stream.merge.row_actions import RETRACT, SET, RowActions

__all__ = ["Arithmetic", "Rounds", "products"]

_ROUNDS: Final = 32
"""So many rows of each key are taken side by side with those of all other keys."""


class Rounds:
    """These places along the order: the first of each key, the second of each key, and so on."""

    def __init__(self, places: Ints, actions: RowActions) -> None:
        keys = actions.runs.key_of[places]
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


class Arithmetic(ABC):
    """How numbers of a type are multiplied and divided, as Java does it. Results that do not fit are NULL."""

    @abstractmethod
    def times(self, held: Part, new: Part) -> tuple[Part, Flags]:
        """Products, and which of them fit."""

    @abstractmethod
    def over(self, held: Part, new: Part) -> tuple[Part, Flags]:
        """Quotients, and which of them fit. Raises `InvalidData` where there is none."""

    @abstractmethod
    def singles(self, values: Part) -> Any:
        """The same numbers one after the other, for the two below."""

    @abstractmethod
    def stored(self, single: Any) -> Any:
        """Back again."""

    @abstractmethod
    def single_times(self, held: Any, new: Any) -> Any:
        """A product, or None."""

    @abstractmethod
    def single_over(self, held: Any, new: Any) -> Any:
        """A quotient, or None. Raises `InvalidData` if there is none."""


def products(values: Part, actions: RowActions, valid: Flags, numbers: Arithmetic) -> tuple[Part, Flags]:
    """The product of each key's values along the order, and where there is one; what is held is divided by
    values retracted."""
    codes, retracts = actions.codes, actions.retracts
    rounds = Rounds(np.flatnonzero(valid | (codes == SET)), actions)
    held = np.ones((len(actions.runs.starts), *values.shape[1:]), values.dtype)
    there = np.zeros(len(held), np.bool_)
    for keys, places in rounds:
        old, made, had, retract = held[keys], values[places], there[keys], retracts[places]
        fits = valid[places] & (had | ~retract)
        divided = np.flatnonzero(had & retract)
        times = np.flatnonzero(had & ~retract & (codes[places] != SET))
        made[times], fits[times] = numbers.times(old[times], made[times])
        if len(divided):
            made[divided], fits[divided] = numbers.over(old[divided], made[divided])
        held[keys], there[keys] = made, fits
    for key, places in rounds.rest():
        one = numbers.singles(held[[key]])[0] if there[key] else None
        for value, what, is_valid in zip(
            numbers.singles(values[places]), codes[places].tolist(), valid[places].tolist(), strict=True
        ):
            if what == SET:
                one = value if is_valid else None
            elif one is None:
                one = None if what == RETRACT else value
            else:
                one = numbers.single_over(one, value) if what == RETRACT else numbers.single_times(one, value)
        there[key] = one is not None
        if one is not None:
            held[key] = numbers.stored(one)
    return held, there
