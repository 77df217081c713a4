"""Functions that choose one of a key's rows, whose value is taken as it is, for all keys at a time.

Each says which rows change what is held; the last of these is the row, and a row that takes a value back
leaves NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from paimon_stream.merge.order import Flags, Ints, ranks
from paimon_stream.merge.steps import ADD, BACK, NOTHING, OLDER, SET, Steps

__all__ = ["best", "first_non_null_value", "first_value", "last_non_null_value", "last_value"]


def last_value(steps: Steps) -> Ints:
    """The place of the value that came last, -1 for NULL."""
    return _held(steps, (steps.does != NOTHING) & (steps.does != OLDER))


def last_non_null_value(steps: Steps, column: pa.Array) -> Ints:
    """The place of the last value that is not NULL, -1 for NULL. An older row counts if nothing is held."""
    valid = steps.valid(column)
    changes = valid | (steps.does == SET)
    older = valid & (steps.does == OLDER)
    if older.any():
        before = steps.previous(changes)
        held = (before >= 0) & valid[before] & ~steps.backs[before]
        changes &= ~(older & held)
    return _held(steps, changes)


def first_value(steps: Steps) -> Ints:
    """The place of the first value, -1 for NULL. An older row is taken for the first once there is one."""
    return _first(steps, steps.runs.first(steps.adds))


def first_non_null_value(steps: Steps, column: pa.Array) -> Ints:
    """The place of the first value that is not NULL, -1 for NULL; older rows as with `first_value`. Until
    there is a first, the value that an older row or a SET has left is held, and the next older row makes it
    the first."""
    valid = steps.valid(column)
    older = steps.does == OLDER
    begins = valid & (steps.does == ADD)
    if older.any():
        before = steps.previous(older | (steps.does == SET))
        begins |= older & (before >= 0) & valid[before]
    return _first(steps, steps.runs.first(begins))


def _first(steps: Steps, begin: Ints) -> Ints:
    """The place of what is held where the first value is there from `begin` on."""
    begins = np.zeros(len(steps.does), np.bool_)
    begins[begin[begin >= 0]] = True
    changes = (steps.does == SET) | ((steps.does == OLDER) & ~begins) | ((steps.does == ADD) & begins)
    return _held(steps, changes)


def best(steps: Steps, column: pa.Array, *, largest: bool) -> Ints:
    """The place of the largest or smallest value, -1 where all are NULL."""
    runs, wanted = steps.runs, steps.since_set.valid(column)
    numbers = ranks(column)[runs.order]
    least = np.iinfo(np.int64).min
    if not largest:
        numbers = ~numbers
    top = np.maximum.reduceat(np.where(wanted, numbers, least), runs.starts)
    return runs.first(wanted & (numbers == top[runs.run_of]))


def _held(steps: Steps, changes: Flags) -> Ints:
    places = steps.runs.last(changes)
    return np.where((places >= 0) & (steps.does[places] == BACK), -1, places)
