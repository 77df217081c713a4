"""Row actions: what each row of a key does to one column, for all keys at once.

The action of a row depends only on row kinds and sequence groups, never on the column's values. So it is known before
any value is read. The rows of a key before its last `SET` matter only to functions that remember their first value.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.merge.key_runs import KeyRuns
from paimon_stream.merge.order import Flags, Ints, nulls

ActionCodes = npt.NDArray[np.int8]
"""For each row, one of the five codes below."""

SKIP: Final = np.int8(0)
"""The row does not change this column."""

SET: Final = np.int8(1)
"""The row's value replaces the held value, even if it is NULL."""

ADD: Final = np.int8(2)
"""The row's value is added after the held value."""

OUT_OF_ORDER: Final = np.int8(3)
"""The row's value is added before the held value, because its sequence group has seen a newer row."""

RETRACT: Final = np.int8(4)
"""The row's value is retracted."""


@dataclass(frozen=True)
class RowActions:
    """Rows of a table in the order of `runs`, and the action of each."""

    runs: KeyRuns
    codes: ActionCodes

    @cached_property
    def since_set(self) -> "RowActions":
        """The same actions, but rows before a key's last `SET` are skipped."""
        sets = self.codes == SET
        if not sets.any():
            return self
        live = np.arange(len(sets)) >= self.runs.last(sets)[self.runs.key_of]
        return RowActions(self.runs, np.where(live, self.codes, SKIP))

    @cached_property
    def adds(self) -> Flags:
        """For each row along the order, whether its value is added, before or after the held value."""
        made: Flags = (self.codes == ADD) | (self.codes == OUT_OF_ORDER)
        return made

    @cached_property
    def retracts(self) -> Flags:
        """For each row along the order, whether its value is retracted."""
        made: Flags = self.codes == RETRACT
        return made

    def valid(self, column: pa.Array) -> Flags:
        """For each row along the order, whether a value that is not NULL is set, added or retracted."""
        null = nulls(column)
        counts: Flags = self.codes != SKIP
        if null is not None:
            counts &= ~null[self.runs.order]
        return counts

    def previous(self, wanted: Flags) -> Ints:
        """For each row along the order, the last earlier place of its key where `wanted` is true, or -1."""
        found = np.full(len(wanted), -1)
        np.maximum.accumulate(np.where(wanted, np.arange(len(wanted)), -1)[:-1], out=found[1:])
        made: Ints = np.where(found < self.runs.starts[self.runs.key_of], -1, found)
        return made


def picked(column: pa.Array, runs: KeyRuns, places: Ints) -> pa.Array:
    """The values at these places along the order; NULL for -1."""
    missing = places < 0
    rows = runs.order[places]
    return column.take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))
