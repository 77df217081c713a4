"""Row actions: what each row of a key does to one column, for all keys at a time.

The action of a row depends on row kinds and sequence groups only, never on the column's values, so it is
known before any value is read. Rows of a key before its last `SET` matter only to the functions that remember
their first value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.merge.key_runs import KeyRuns
from paimon_stream.merge.order import Flags, Ints, nulls

__all__ = ["ADD", "RETRACT", "SKIP", "OUT_OF_ORDER", "SET", "ActionCodes", "RowActions", "picked"]

ActionCodes = npt.NDArray[np.int8]
"""For each row one of the five below."""

SKIP: Final = np.int8(0)
"""The row does not change this column."""

SET: Final = np.int8(1)
"""The row's value replaces what is held, NULL included."""

ADD: Final = np.int8(2)
"""The row's value is added after what is held."""

OUT_OF_ORDER: Final = np.int8(3)
"""The row's value is added before what is held: its sequence group has seen a newer row."""

RETRACT: Final = np.int8(4)
"""The row's value is retracted."""


@dataclass(frozen=True)
class RowActions:
    """Rows of a table along `runs`, and the action of each."""

    runs: KeyRuns
    codes: ActionCodes

    @cached_property
    def since_set(self) -> RowActions:
        """The same, where rows before a key's last `SET` are skipped."""
        sets = self.codes == SET
        if not sets.any():
            return self
        live = np.arange(len(sets)) >= self.runs.last(sets)[self.runs.key_of]
        return RowActions(self.runs, np.where(live, self.codes, SKIP))

    @cached_property
    def adds(self) -> Flags:
        """Along the order, where a value is added, before or after what is held."""
        made: Flags = (self.codes == ADD) | (self.codes == OUT_OF_ORDER)
        return made

    @cached_property
    def retracts(self) -> Flags:
        """Along the order, where a value is retracted."""
        made: Flags = self.codes == RETRACT
        return made

    def valid(self, column: pa.Array) -> Flags:
        """Along the order, where a value that is not NULL is set, added or retracted."""
        null = nulls(column)
        counts: Flags = self.codes != SKIP
        if null is not None:
            counts &= ~null[self.runs.order]
        return counts

    def previous(self, wanted: Flags) -> Ints:
        """Along the order, the last place of the same key before this one where `wanted` holds, or -1."""
        found = np.full(len(wanted), -1)
        np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1)[:-1], out=found[1:])
        made: Ints = np.where(found < self.runs.starts[self.runs.key_of], -1, found)
        return made


def picked(column: pa.Array, runs: KeyRuns, places: Ints) -> pa.Array:
    """The values at these places along the order, NULL for -1."""
    missing = places < 0
    rows = runs.order[places]
    return column.take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))
