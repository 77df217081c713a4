"""The engine aggregation: every column by its function (semantics.md §6.5).

With `aggregation.remove-record-on-delete` a -D replaces all that came before by its own values, on which
later rows build (Java does the same).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from paimon_stream.merge.folds import best, collected, joined, maps_merged, picked, summed, valid
from paimon_stream.merge.one_by_one import Fold, cannot_retract, fold_of
from paimon_stream.merge.order import Flags, Ints, flat
from paimon_stream.merge.runs import Runs
from paimon_stream.merge.spec import KIND, SEQUENCE, ColumnRule, MergeSpec

__all__ = ["aggregated", "folded", "patched"]

_INSERT, _DELETE = 0, 3
_TAKES_BACK = {"sum", "product", "collect", "merge_map"}


def aggregated(spec: MergeSpec, table: pa.Table, runs: Runs) -> list[pa.Array]:
    """The table's columns, one row per key; every key has several rows. Raises `InvalidData`."""
    deleted = np.zeros(len(runs.starts), np.bool_)
    built = runs
    if spec.remove_on_delete and runs.deletes.any():
        deleted = runs.deletes[runs.ends - 1]
        built = _since_delete(runs)
    columns = []
    for name in table.column_names:
        column = flat(table.column(name))
        rule = spec.rules.get(name)
        if name == KIND:
            columns.append(pa.array(np.where(deleted, _DELETE, _INSERT), column.type))
        elif name == SEQUENCE or rule is None:
            columns.append(picked(column, runs, runs.ends - 1))
        else:
            columns.append(_column(spec, name, column, rule, runs, built))
    return columns


def _since_delete(runs: Runs) -> Runs:
    """From each key's last -D on, which then counts as an insert."""
    begin = np.maximum(runs.last(runs.deletes), runs.starts)
    kinds = np.where(runs.deletes, np.int8(_INSERT), runs.kinds)
    kept = np.arange(len(runs.order)) >= begin[runs.run_of]
    return Runs(runs.order, runs.starts, kinds).select(kept)


def _column(
    spec: MergeSpec, name: str, column: pa.Array, rule: ColumnRule, runs: Runs, built: Runs
) -> pa.Array:
    made, unsure = folded(spec.table, name, column, rule, built)
    if built is not runs and rule.function.startswith("first_"):
        unsure = unsure | np.logical_or.reduceat(runs.deletes, runs.starts)
    if not unsure.any():
        return made
    fold = fold_of(spec.table, name, column, rule)
    at = np.flatnonzero(unsure)
    return patched(made, at, fold.build([_fold(fold, spec, runs, run) for run in at]))


def _fold(fold: Fold, spec: MergeSpec, runs: Runs, run: Any) -> Any:
    fold.reset()
    held = None
    for place in range(runs.starts[run], runs.ends[run]):
        new = fold.value(runs.order[place])
        if spec.remove_on_delete and runs.deletes[place]:
            held = new
        elif runs.retracts[place]:
            held = fold.retract(held, new)
        else:
            held = fold.add(held, new)
    return held


def patched(made: pa.Array, at: Ints, values: pa.Array) -> pa.Array:
    """The array with these values in these places."""
    places = np.arange(len(made))
    places[at] = len(made) + np.arange(len(at))
    return pa.concat_arrays([made, values]).take(pa.array(places))


def folded(table: str, name: str, column: pa.Array, rule: ColumnRule, runs: Runs) -> tuple[pa.Array, Flags]:
    """What a column becomes, and for which keys it has to be folded row by row. Raises `InvalidData`."""
    unsure = np.zeros(len(runs.starts), np.bool_)
    counts = ~runs.retracts if rule.ignore_retract else np.ones(len(runs.order), np.bool_)
    retracted = runs.retracts & counts
    wanted = valid(column, runs) & counts
    if retracted.any() and rule.function in ("product", "collect", "merge_map"):
        unsure |= np.logical_or.reduceat(retracted, runs.starts)
    match rule.function:
        case "key":
            return picked(column, runs, runs.ends - 1), unsure
        case "last_value" | "of_group":
            return picked(column, runs, _unless(retracted, runs.last(counts))), unsure
        case "last_non_null_value" | "non_null":
            return picked(column, runs, _unless(retracted, runs.last(wanted))), unsure
        case "sum" | "product":
            made, overflow = summed(column, runs, wanted, product=rule.function == "product")
            return made, unsure | overflow
        case "collect":
            return collected(column, runs, wanted, distinct=rule.distinct), unsure
        case "merge_map":
            return maps_merged(column, runs, wanted), unsure
    if retracted.any():
        raise cannot_retract(table, name, rule.function)
    match rule.function:
        case "first_value":
            return picked(column, runs, runs.first(counts)), unsure
        case "first_non_null_value":
            return picked(column, runs, runs.first(wanted)), unsure
        case "listagg":
            return joined(column, runs, wanted, rule.delimiter), unsure | rule.distinct
    largest = rule.function in ("max", "bool_or")
    return picked(column, runs, best(column, runs, wanted, largest=largest)), unsure


def _unless(retracted: Flags, places: Ints) -> Ints:
    """The places, -1 where the row there retracts."""
    return np.where((places >= 0) & retracted[places], -1, places)
