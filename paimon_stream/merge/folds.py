"""What a column becomes by its rule, when it is known what each row does to it; for all keys at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from paimon_stream.merge.choices import (
    best,
    first_non_null_value,
    first_value,
    last_non_null_value,
    last_value,
)
from paimon_stream.merge.functions import TAKES_BACK, ColumnRule, cannot_retract
from paimon_stream.merge.lists import collected, joined, maps_merged
from paimon_stream.merge.numbers import multiplied, summed
from paimon_stream.merge.steps import NOTHING, Steps, picked

__all__ = ["folded"]


def folded(table: str, name: str, column: pa.Array, rule: ColumnRule, steps: Steps) -> pa.Array:
    """One value per key; `table` and `name` are for messages. Raises `InvalidData` for values taken back by
    a function that cannot, `NumericOverflow`."""
    if rule.ignore_retract:
        steps = Steps(steps.runs, np.where(steps.backs, NOTHING, steps.does))
    elif rule.function not in TAKES_BACK and steps.backs.any():
        raise cannot_retract(table, name, rule.function)
    match rule.function:
        case "sum":
            return summed(table, name, column, steps)
        case "product":
            return multiplied(table, name, column, steps)
        case "listagg":
            return joined(column, steps, rule.delimiter, distinct=rule.distinct)
        case "collect":
            return collected(column, steps, distinct=rule.distinct)
        case "merge_map":
            return maps_merged(column, steps)
        case "key":
            places = steps.runs.last(steps.does != NOTHING)
        case "last_value" | "of_group":
            places = last_value(steps)
        case "last_non_null_value" | "non_null":
            places = last_non_null_value(steps, column)
        case "first_value":
            places = first_value(steps)
        case "first_non_null_value":
            places = first_non_null_value(steps, column)
        case _:
            places = best(steps, column, largest=rule.function in ("max", "bool_or"))
    return picked(column, steps.runs, places)
