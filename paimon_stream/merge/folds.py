"""Merges a column by its rule, given the action of each row, for all keys at once."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData
from paimon_stream.merge.functions import DELETE, INSERT, RETRACTABLE, ColumnRule
from paimon_stream.merge.key_runs import ADD, OUT_OF_ORDER, RETRACT, SET, SKIP, KeyRuns, RowActions, picked
from paimon_stream.merge.lists import collected, joined, maps_merged
from paimon_stream.merge.numbers import multiplied, summed
from paimon_stream.merge.order import Flags, Ints, ranks
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec


def merged_columns(
    spec: MergeSpec,
    columns: Mapping[str, pa.Array],
    runs: KeyRuns,
    newest: Ints,
    deleted: Flags,
    actions_of: Callable[[str, ColumnRule], RowActions],
) -> list[pa.Array]:
    """The columns with one row per key: each column with a rule as its rows' actions say, the others from the row at
    the key's place in `newest`. `deleted` are the keys whose row is a -D. Raises what `folded` raises."""
    made = []
    for name, column in columns.items():
        rule = spec.rules.get(name)
        if name == KIND:
            made.append(pa.array(np.where(deleted, DELETE, INSERT), column.type))
        elif name == SEQUENCE:
            made.append(picked(column, runs, newest).fill_null(0))
        elif rule is None:
            made.append(picked(column, runs, newest))
        else:
            made.append(folded(spec.table, name, column, rule, actions_of(name, rule)))
    return made


def folded(table: str, name: str, column: pa.Array, rule: ColumnRule, actions: RowActions) -> pa.Array:
    """One value per key; `table` and `name` are for messages. Raises `InvalidData` if rows retract values and the
    function cannot, and `NumericOverflow`."""
    if rule.ignore_retract:
        actions = RowActions(actions.runs, np.where(actions.retracts, SKIP, actions.codes))
    elif rule.function not in RETRACTABLE and actions.retracts.any():
        raise InvalidData(
            f"{table} has -U or -D rows, and column {name!r} is aggregated by {rule.function!r}, which cannot take "
            f"a value back. Filter them out, or set fields.{name}.ignore-retract or ignore-delete to true.",
            table=table,
            column=name,
            function=rule.function,
        )
    match rule.function:
        case "sum":
            return summed(table, name, column, actions)
        case "product":
            return multiplied(table, name, column, actions)
        case "listagg":
            return joined(column, actions, rule.delimiter, distinct=rule.distinct)
        case "collect":
            return collected(column, actions, distinct=rule.distinct, older_first=rule.ignore_retract)
        case "merge_map":
            return maps_merged(column, actions)
        case "key":
            places = actions.runs.last(actions.codes != SKIP)
        case "last_value" | "of_group":
            places = _held(actions, (actions.codes != SKIP) & (actions.codes != OUT_OF_ORDER))
        case "last_non_null_value" | "non_null":
            places = _last_non_null_value(actions, column)
        case "first_value":  # once there is a first value, an older row replaces it
            places = _first(actions, actions.runs.first(actions.adds))
        case "first_non_null_value":
            places = _first_non_null_value(actions, column)
        case _:
            places = _best(actions, column, largest=rule.function in ("max", "bool_or"))
    return picked(column, actions.runs, places)


# -- functions that choose one of a key's rows and take its value as it is -------------------------------
#
# Each function finds the rows that change the held value. The last of them is chosen. If that row retracts,
# the value is NULL.


def _last_non_null_value(actions: RowActions, column: pa.Array) -> Ints:
    """The place of the last value that is not NULL, -1 for NULL. An older row counts if no value is held."""
    valid = actions.valid(column)
    changes = valid | (actions.codes == SET)
    older = valid & (actions.codes == OUT_OF_ORDER)
    if older.any():
        before = actions.previous(changes)
        held = (before >= 0) & valid[before] & ~actions.retracts[before]
        changes &= ~(older & held)
    return _held(actions, changes)


def _first_non_null_value(actions: RowActions, column: pa.Array) -> Ints:
    """The place of the first value that is not NULL, -1 for NULL. Older rows count as for `first_value`. Until there is
    a first value, the value that an older row or a SET has left is held. The next older row makes it the first."""
    valid = actions.valid(column)
    older = actions.codes == OUT_OF_ORDER
    begins = valid & (actions.codes == ADD)
    if older.any():
        before = actions.previous(older | (actions.codes == SET))
        begins |= older & (before >= 0) & valid[before]
    return _first(actions, actions.runs.first(begins))


def _first(actions: RowActions, begin: Ints) -> Ints:
    """The place of the held value, -1 for NULL. There is a first value from the place `begin` on."""
    begins = np.zeros(len(actions.codes), np.bool_)
    begins[begin[begin >= 0]] = True
    changes = (actions.codes == SET) | ((actions.codes == OUT_OF_ORDER) & ~begins) | ((actions.codes == ADD) & begins)
    return _held(actions, changes)


def _best(actions: RowActions, column: pa.Array, *, largest: bool) -> Ints:
    """The place of the largest or smallest value, -1 if all are NULL."""
    runs, wanted = actions.runs, actions.since_set.valid(column)
    numbers = ranks(column)[runs.order]
    least = np.iinfo(np.int64).min
    if not largest:
        numbers = ~numbers
    top = np.maximum.reduceat(np.where(wanted, numbers, least), runs.starts)
    return runs.first(wanted & (numbers == top[runs.key_of]))


def _held(actions: RowActions, changes: Flags) -> Ints:
    places = actions.runs.last(changes)
    return np.where((places >= 0) & (actions.codes[places] == RETRACT), -1, places)
