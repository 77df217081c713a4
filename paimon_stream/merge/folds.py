"""What columns become when all rows of a key are known, for many keys at a time.

Most functions choose one of a key's rows, whose value is taken as it is; sums, products and lists make a
new value. Whole numbers wrap around as Java 1.4.2's do; floats are added up row by row in merge order, so
that the last bit is Java's.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.merge.order import Flags, Ints, Part, nulls, ranks, run_starts
from paimon_stream.merge.runs import Runs

__all__ = ["best", "collected", "equals", "joined", "maps_merged", "picked", "summed", "valid"]

_SMALL: Final = 32
"""Keys with up to so many rows are folded side by side, those with more one by one."""


def valid(column: pa.Array, runs: Runs) -> Flags:
    """Along the order, whether the column has a value."""
    null = nulls(column)
    return np.ones(len(runs.order), np.bool_) if null is None else ~null[runs.order]


def picked(column: pa.Array, runs: Runs, places: Ints) -> pa.Array:
    """The values at these places along the order, NULL for -1."""
    missing = places < 0
    rows = runs.order[places]
    return column.take(pa.array(rows, mask=missing) if missing.any() else pa.array(rows))


def best(column: pa.Array, runs: Runs, wanted: Flags, *, largest: bool) -> Ints:
    """The place of the largest or smallest value among those wanted, -1 where none is. `wanted` is where
    the column has a value, or less."""
    numbers = ranks(column)[runs.order]
    least = np.iinfo(np.int64).min
    if not largest:
        numbers = ~numbers
    top = np.maximum.reduceat(np.where(wanted, numbers, least), runs.starts)
    return runs.first(wanted & (numbers == top[runs.run_of]))


# -- sums and products ------------------------------------------------------------------------------


def summed(column: pa.Array, runs: Runs, wanted: Flags, *, product: bool = False) -> tuple[pa.Array, Flags]:
    """Sums, or products, of the values wanted, NULL where there are none; and for which keys that is not
    known to be what Java has (decimals that may overflow on the way, all products of decimals). In sums, rows
    that retract are taken off."""
    none = ~np.logical_or.reduceat(wanted, runs.starts)
    sure = np.zeros(len(runs.starts), np.bool_)
    if pa.types.is_decimal128(column.type):
        return _decimal_sums(column, runs, wanted, none, product)
    unit = 1 if product else 0
    values = column.fill_null(0).to_numpy(zero_copy_only=False)[runs.order]
    if not product:
        values = np.where(runs.retracts, -values, values)
    values = np.where(wanted, values, values.dtype.type(unit))
    if pa.types.is_integer(column.type):
        with np.errstate(over="ignore"):
            fold = np.multiply if product else np.add
            made = fold.reduceat(values, runs.starts, dtype=values.dtype)
    else:
        made = _in_order(values, wanted, runs, product)
    return pa.array(made, column.type, mask=none), sure


def _in_order(values: Part, wanted: Flags, runs: Runs, product: bool) -> Part:
    """Floats one after the other: sums of three numbers depend on the order."""
    fold = np.multiply if product else np.add
    made = np.full(len(runs.starts), 1.0 if product else -0.0, values.dtype)
    values, run_of = values[wanted], runs.run_of[wanted]
    starts = run_starts([run_of])
    sizes = np.diff(np.append(starts, len(run_of)))
    with np.errstate(all="ignore"):
        for start, size in zip(starts[sizes > _SMALL], sizes[sizes > _SMALL], strict=True):
            made[run_of[start]] = fold.accumulate(values[start : start + size])[-1]
        starts, sizes = starts[sizes <= _SMALL], sizes[sizes <= _SMALL]
        for step in range(_SMALL):
            starts, sizes = starts[sizes > step], sizes[sizes > step]
            at = run_of[starts]
            made[at] = fold(made[at], values[starts + step])
    return made


def _decimal_sums(
    column: pa.Array, runs: Runs, wanted: Flags, none: Flags, product: bool
) -> tuple[pa.Array, Flags]:
    type_ = column.type
    if product:
        return pa.nulls(len(runs.starts), type_), ~none
    words = np.frombuffer(column.buffers()[1], np.uint32, 4 * (column.offset + len(column)))
    limbs = words[4 * column.offset :].reshape(-1, 4)[runs.order].astype(np.int64)
    limbs[:, 3] = limbs[:, 3].astype(np.uint32).view(np.int32)
    limbs[~wanted] = 0
    # No prefix of a sum is larger than the sum of sizes, in floating point with room for its error.
    sizes = np.abs(limbs @ np.array([1.0, 2.0**32, 2.0**64, 2.0**96]))
    unsure = np.add.reduceat(sizes, runs.starts) > 0.999 * 10.0**type_.precision
    limbs[runs.retracts] *= -1
    totals = np.add.reduceat(limbs, runs.starts, axis=0)
    for low in range(3):
        totals[:, low + 1] += totals[:, low] >> 32
        totals[:, low] &= 0xFFFFFFFF
    data = np.ascontiguousarray(totals & 0xFFFFFFFF).astype(np.uint32)
    bits = pa.array(~none).buffers()[1]
    return pa.Array.from_buffers(
        type_, len(runs.starts), [bits, pa.py_buffer(data.tobytes())]
    ), unsure & ~none


# -- texts, lists, maps -----------------------------------------------------------------------------


def joined(column: pa.Array, runs: Runs, wanted: Flags, delimiter: str) -> pa.Array:
    """Texts with the delimiter between; empty ones are left out, unless there is nothing else."""
    texts = column.take(pa.array(runs.order))
    full = wanted & (pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False) > 0)
    counts = np.add.reduceat(full.astype(np.int64), runs.starts)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), texts.filter(pa.array(full)))
    made = pc.binary_join(lists, delimiter).cast(column.type)
    any_ = np.logical_or.reduceat(wanted, runs.starts)
    return made if any_.all() else pc.if_else(pa.array(any_), made, pa.scalar(None, column.type))


def collected(column: pa.Array, runs: Runs, wanted: Flags, *, distinct: bool) -> pa.Array:
    """All elements of a key's lists, one list after the other; with `distinct` each once."""
    rows, run_of = runs.order[wanted], runs.run_of[wanted]
    elements, owner = _elements(column, rows, run_of)
    if distinct:
        kept = _first_of_each(equals(column.values)[elements], owner)
        elements, owner = elements[kept], owner[kept]
    any_ = np.logical_or.reduceat(wanted, runs.starts)
    return _lists(column, elements, owner, any_)


def maps_merged(column: pa.Array, runs: Runs, wanted: Flags) -> pa.Array:
    """The entries of a key's maps; of entries with the same key the last, at the place of the first."""
    rows, run_of = runs.order[wanted], runs.run_of[wanted]
    entries, owner = _elements(column, rows, run_of)
    keys = equals(column.keys)[entries]
    order = np.lexsort((np.arange(len(keys)), keys, owner))
    starts = run_starts([owner[order], keys[order]]) if len(order) else order
    ends = np.append(starts[1:], len(order))
    first, last = order[starts], order[ends - 1] if len(starts) else order
    by_place = np.argsort(first, kind="stable")
    any_ = np.logical_or.reduceat(wanted, runs.starts)
    return _lists(column, entries[last][by_place], owner[first][by_place], any_)


def _elements(column: pa.Array, rows: Ints, run_of: Ints) -> tuple[Ints, Ints]:
    """Where the elements of these rows are among all elements, and the key each belongs to."""
    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.diff(bounds)[rows]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    at = np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(bounds[:-1][rows], counts)
    return at, np.repeat(run_of, counts)


def _first_of_each(numbers: Ints, owner: Ints) -> Ints:
    order = np.lexsort((np.arange(len(numbers)), numbers, owner))
    starts = run_starts([owner[order], numbers[order]]) if len(order) else order
    kept: Ints = np.sort(order[starts])
    return kept


def equals(values: pa.Array) -> Ints:
    """Numbers that are equal where the values are; NULL equals NULL."""
    if pa.types.is_nested(values.type):
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(repr(one), len(seen)) for one in values.to_pylist()], np.int64)
    if pa.types.is_floating(values.type):
        values = pa.array(ranks(values), mask=nulls(values))
    encoded = values.dictionary_encode(null_encoding="encode")
    made: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return made


def _lists(column: pa.Array, elements: Ints, owner: Ints, any_: Flags) -> pa.Array:
    """Lists, or maps, of these elements of the column, in the column's type."""
    counts = np.bincount(owner, minlength=len(any_))
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    at = pa.array(elements)
    is_map = pa.types.is_map(column.type)
    if is_map:
        child = pa.StructArray.from_arrays(
            [column.keys.take(at), column.items.take(at)],
            fields=[column.type.key_field, column.type.item_field],
        )
    else:
        child = column.values.take(at)
    bits = None if any_.all() else pa.array(any_).buffers()[1]
    nones = int((~any_).sum())
    return pa.Array.from_buffers(column.type, len(any_), [bits, offsets.buffers()[1]], nones, 0, [child])
