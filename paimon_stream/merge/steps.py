"""What happens to one column of a key, row after row, for all keys at a time.

Which rows count, and how, depends on row kinds and sequence groups only, never on the column; so it is known
before any value is looked at. A key's rows up to its last `SET` count for nothing but the functions that
remember their first value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.merge.order import Flags, Ints, nulls
from paimon_stream.merge.runs import Runs

__all__ = ["ADD", "BACK", "NOTHING", "OLDER", "SET", "Does", "Steps", "picked"]

Does = npt.NDArray[np.int8]
"""One of the five below per row."""

NOTHING: Final = np.int8(0)
"""The row is not for this column."""

SET: Final = np.int8(1)
"""The row's value is held from here, whatever was before."""

ADD: Final = np.int8(2)
"""The row's value comes behind what is held."""

OLDER: Final = np.int8(3)
"""The row's value comes before what is held: its sequence group has seen a newer row."""

BACK: Final = np.int8(4)
"""The row's value is taken back."""


@dataclass(frozen=True)
class Steps:
    """Rows of a table along `runs`, and what each does to the column."""

    runs: Runs
    does: Does

    @cached_property
    def since_set(self) -> Steps:
        """The same, where rows before a key's last `SET` do nothing."""
        sets = self.does == SET
        if not sets.any():
            return self
        live = np.arange(len(sets)) >= self.runs.last(sets)[self.runs.run_of]
        return Steps(self.runs, np.where(live, self.does, NOTHING))

    @cached_property
    def adds(self) -> Flags:
        """Along the order, where a value is added, in front or behind."""
        made: Flags = (self.does == ADD) | (self.does == OLDER)
        return made

    @cached_property
    def backs(self) -> Flags:
        """Along the order, where a value is taken back."""
        made: Flags = self.does == BACK
        return made

    def valid(self, column: pa.Array) -> Flags:
        """Along the order, where a value that is not NULL is set, added or taken back."""
        null = nulls(column)
        counts: Flags = self.does != NOTHING
        if null is not None:
            counts &= ~null[self.runs.order]
        return counts

    def previous(self, wanted: Flags) -> Ints:
        """Along the order, the last place of the same key before this one where `wanted` holds, or -1."""
        found = np.full(len(wanted), -1)
        np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1)[:-1], out=found[1:])
        made: Ints = np.where(found < self.runs.starts[self.runs.run_of], -1, found)
        return made


def picked(column: pa.Array, runs: Runs, places: Ints) -> pa.Array:
    """The values at these places along the order, NULL for -1."""
    missing = places < 0
    rows = runs.order[places]
    return column.take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))
