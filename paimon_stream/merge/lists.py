"""listagg, collect and merge_map: texts, lists and maps of all keys at once, element by element.

Equal elements get equal numbers. What happens to an element then depends only on the rows of its
key that hold an equal element. A retraction removes the first equal element of a list; if there is
none, it does nothing. So of all elements added, the last n are left: n is the final difference
between elements added and elements retracted, minus the lowest value (at most 0) that this running
difference ever had.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.merge import key_runs
from paimon_stream.merge.key_runs import Flags, Ints, RowActions, nulls, ranks, run_starts


def joined(column: pa.Array, actions: RowActions, delimiter: str, *, distinct: bool) -> pa.Array:
    """The texts of each key, joined by the delimiter. Empty texts are left out unless all are
    empty. With `distinct`, the first text stays as it is. Of the other texts, only parts that are
    new are added.
    """
    actions = actions.since_set
    runs, wanted = actions.runs, actions.valid(column)
    some = np.logical_or.reduceat(wanted, runs.starts)
    length = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    places = _in_order(actions, wanted & (length > 0)[runs.order])
    texts, owner = column.take(pa.array(runs.order[places])), runs.key_of[places]
    if distinct:
        texts, owner = _parts(texts, owner, delimiter)
    lists = pa.ListArray.from_arrays(_offsets(owner, len(some)), texts)
    made = pc.binary_join(lists, delimiter).cast(column.type)
    return made if some.all() else pc.if_else(pa.array(some), made, pa.scalar(None, column.type))


def _in_order(actions: RowActions, wanted: Flags) -> Ints:
    """The wanted places. The places of a key's older rows come first, in reverse order."""
    places = np.flatnonzero(wanted)
    older = actions.codes[places] == key_runs.OUT_OF_ORDER
    if not older.any():
        return places
    return places[
        np.lexsort((np.where(older, -places, places), ~older, actions.runs.key_of[places]))
    ]


def _parts(texts: pa.Array, owner: Ints, delimiter: str) -> tuple[pa.Array, Ints]:
    """For each owner its first text, and those parts of its other texts that did not occur
    before.
    """
    lists = pc.split_pattern(texts, delimiter)
    parts, bounds = lists.values, lists.offsets.to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(len(texts)), np.diff(bounds))
    first = np.zeros(len(texts), np.bool_)
    if len(texts):
        first[run_starts([owner])] = True
    length = pc.binary_length(parts).to_numpy(zero_copy_only=False)
    order, starts = _same(equals(parts), owner[row])
    kept = np.sort(order[starts])
    kept = kept[~first[row[kept]] & (length[kept] > 0)]
    whole = np.flatnonzero(first)
    at = np.concatenate((whole, row[kept]))
    order = np.argsort(at, kind="stable")
    both = pa.concat_arrays([texts.take(pa.array(whole)), parts.take(pa.array(kept))])
    return both.take(pa.array(order)), owner[at[order]]


class _Elements(NamedTuple):
    """Elements of a column in the order of their rows: `at`, the position of each among all,
    `owner`, its key, and `place`, that of its row along the order.
    """

    at: Ints
    owner: Ints
    place: Ints

    def select(self, wanted: Flags) -> "_Elements":
        return _Elements(self.at[wanted], self.owner[wanted], self.place[wanted])


def _elements(column: pa.Array, actions: RowActions, places: Ints) -> "_Elements":
    rows = actions.runs.order[places]
    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.diff(bounds)[rows]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    at = np.arange(total) + np.repeat(bounds[:-1][rows] - (ends - counts), counts)
    place = np.repeat(places, counts)
    return _Elements(at, actions.runs.key_of[place], place)


def collected(
    column: pa.Array, actions: RowActions, *, distinct: bool, older_first: bool
) -> pa.Array:
    """All elements of a key's lists, one list after the other; with `distinct`, each one once. With
    `older_first`, the list of an older row is put before the others, as in Java if the column
    ignores retractions.
    """
    actions = actions.since_set
    wanted = actions.valid(column)
    some = np.logical_or.reduceat(wanted & ~actions.retracts, actions.runs.starts)
    if distinct and pa.types.is_nested(column.type.value_type):
        return _lists(column, _one_by_one(column, actions, older_first=older_first), some)
    found = _elements(
        column, actions, _in_order(actions, wanted) if older_first else np.flatnonzero(wanted)
    )
    if not distinct and not actions.retracts.any():
        return _lists(column, found, some)
    numbers = equals(column.values)
    if not distinct:
        return _lists(column, found.select(_left(found, numbers, actions)), some)
    begin = actions.runs.first(actions.adds)
    # The value of a SET may have equal elements. The first row that adds removes the duplicates.
    early = (begin < 0)[found.owner] | (found.place < begin[found.owner])
    stays = ~early
    stays[early] = _left(found.select(early), numbers, actions)
    found = found.select(stays)
    adding = begin[found.owner] >= 0
    stays = ~adding
    stays[adding] = _left_once(found.select(adding), numbers, actions)
    return _lists(column, found.select(stays), some)


def _one_by_one(column: pa.Array, actions: RowActions, *, older_first: bool) -> "_Elements":
    """The distinct elements of lists of nested values. As in Java, only the elements that come
    second are compared with the others. So equal elements of a list that a SET has left, or of an
    older list that is put first, all stay.
    """
    found = _elements(column, actions, np.flatnonzero(actions.valid(column)))
    numbers = equals(column.values)
    bounds = np.searchsorted(found.place, np.arange(len(actions.codes) + 1))
    held: dict[int, list[int]] = {}
    for place, (key, code) in enumerate(
        zip(actions.runs.key_of.tolist(), actions.codes.tolist(), strict=True)
    ):
        new, old = found.at[bounds[place] : bounds[place + 1]].tolist(), held.get(key, [])
        if code == key_runs.SET:
            held[key] = new
        elif code == key_runs.RETRACT:
            gone = [numbers[at] for at in new]
            held[key] = [at for at in old if not _removed(gone, numbers[at])]
        elif code == key_runs.OUT_OF_ORDER and older_first:
            held[key] = _joined_once(new, old, numbers)
        elif code != key_runs.SKIP:
            held[key] = _joined_once(old, new, numbers)
    at = [one for key in sorted(held) for one in held[key]]
    owner = np.repeat(np.array(sorted(held), np.int64), [len(held[key]) for key in sorted(held)])
    return _Elements(np.array(at, np.int64), owner, np.zeros(len(at), np.int64))


def _removed(gone: list[int], number: int) -> bool:
    if number not in gone:
        return False
    gone.remove(number)
    return True


def _joined_once(first: list[int], then: list[int], numbers: Ints) -> list[int]:
    there, new = {numbers[at] for at in first}, dict[int, int]()
    for at in then:
        new.setdefault(numbers[at], at)
    return first + [at for number, at in new.items() if number not in there]


def _left(found: "_Elements", numbers: Ints, actions: RowActions) -> Flags:
    """Which elements are left in the end if equal elements are all kept."""
    kept: Flags = actions.codes[found.place] != key_runs.RETRACT
    if kept.all() or not len(kept):
        return kept
    order, starts = _same(numbers[found.at], found.owner)
    sizes = np.diff(np.append(starts, len(order)))
    puts = kept[order]
    height = np.cumsum(np.where(puts, 1, -1))
    height -= np.repeat(height[starts] - np.where(puts[starts], 1, -1), sizes)
    lowest = np.minimum(np.minimum.reduceat(height, starts), 0)
    put = np.cumsum(puts)
    total = put[starts + sizes - 1]
    left = height[starts + sizes - 1] - lowest
    stays = puts & (put > np.repeat(total - left, sizes))
    made = np.empty(len(order), np.bool_)
    made[order] = stays
    return made


def _left_once(found: "_Elements", numbers: Ints, actions: RowActions) -> Flags:
    """Which elements are left in the end if only the first of equal elements is kept."""
    made = np.zeros(len(found.at), np.bool_)
    if not len(made):
        return made
    order, starts = _same(numbers[found.at], found.owner)
    at, _ = _since_retract(actions.codes[found.place[order]], starts)
    made[order[at[at >= 0]]] = True
    return made


def maps_merged(column: pa.Array, actions: RowActions) -> pa.Array:
    """A key's entries. Of those with one map key, the last counts, at the first's place; an older
    row's only alone.
    """
    actions = actions.since_set
    wanted = actions.valid(column)
    some = np.logical_or.reduceat(wanted & ~actions.retracts, actions.runs.starts)
    found = _elements(column, actions, np.flatnonzero(wanted))
    if not len(found.at):
        return _lists(column, found, some)
    order, starts = _same(equals(column.keys)[found.at], found.owner)
    codes = actions.codes[found.place[order]]
    first, live = _since_retract(codes, starts)
    newer = live & (codes != key_runs.OUT_OF_ORDER)
    last = np.maximum.reduceat(np.where(newer, np.arange(len(order)), -1), starts)
    chosen = np.where(last < 0, first, last)
    there = chosen >= 0
    chosen, first = order[chosen[there]], order[first[there]]
    chosen = chosen[np.argsort(first, kind="stable")]
    return _lists(
        column, _Elements(found.at[chosen], found.owner[chosen], found.place[chosen]), some
    )


def _since_retract(codes: npt.NDArray[np.int8], starts: Ints) -> tuple[Ints, Flags]:
    """For each run, the first place after its last RETRACT, or -1; and a flag for each such
    place.
    """
    places, retract = np.arange(len(codes)), codes == key_runs.RETRACT
    ends = np.append(starts[1:], len(codes))
    begin = starts
    live = ~retract
    if retract.any():
        begin = np.maximum(np.maximum.reduceat(np.where(retract, places + 1, 0), starts), starts)
        live = places >= np.repeat(begin, ends - starts)
    return np.where(begin < ends, begin, -1), live


def _same(numbers: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """An order that puts equal elements of one owner together, in their own order; and where such
    runs begin.
    """
    order = np.lexsort((numbers, owner))
    return order, run_starts([owner[order], numbers[order]])


def _lists(column: pa.Array, found: "_Elements", some: Flags) -> pa.Array:
    """Lists or maps of these elements, in the column's type. NULL for a key where `some` is
    false.
    """
    offsets = _offsets(found.owner, len(some))
    at = pa.array(found.at)
    if pa.types.is_map(column.type):
        child = pa.StructArray.from_arrays(
            [column.keys.take(at), column.items.take(at)],
            fields=[column.type.key_field, column.type.item_field],
        )
    else:
        child = column.values.take(at)
    bits = None if some.all() else pa.array(some).buffers()[1]
    return pa.Array.from_buffers(
        column.type, len(some), [bits, offsets.buffers()[1]], int((~some).sum()), 0, [child]
    )


def _offsets(owner: Ints, owners: int) -> pa.Array:
    return pa.array(
        np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=owners)))).astype(np.int32)
    )


def equals(values: pa.Array, *, plain: bool = False) -> Ints:
    """A number for each value, the same for equal values; NULL equals NULL. With `plain`, values
    are compared as Java compares rows: NaN equals nothing, -0.0 equals 0.0, maps have no order, and
    lists and maps with NULL equal none.
    """
    type_ = values.type
    if pa.types.is_struct(type_):
        words = np.stack(
            [equals(values.field(at), plain=plain) for at in range(type_.num_fields)], 1
        )
        words[values.is_null().to_numpy(zero_copy_only=False)] = -1
        return _numbered(words.ravel(), np.arange(len(values) + 1) * words.shape[1], None)
    if pa.types.is_nested(type_):
        inner = [values.keys, values.items] if pa.types.is_map(type_) else [values.values]
        words = np.stack([equals(one, plain=plain) for one in inner], 1)
        bounds = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        if plain:
            words[:, -1] = _unlike(words[:, -1], inner[-1].is_null())
        if plain and len(inner) > 1:
            words = words[
                np.lexsort((words[:, 0], np.repeat(np.arange(len(values)), np.diff(bounds))))
            ]
        return _numbered(words.ravel(), bounds * len(inner), nulls(values))
    nan = pc.is_nan(values) if plain and pa.types.is_floating(type_) else None
    if pa.types.is_floating(type_):
        values = pa.array(
            ranks(pc.add(values, 0.0).cast(type_) if plain else values), mask=nulls(values)
        )
    encoded = values.dictionary_encode(null_encoding="encode")
    made: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return made if nan is None else _unlike(made, nan)


def _unlike(numbers: Ints, which: pa.Array) -> Ints:
    """These numbers. Each for which `which` is true is replaced by one that no other value has."""
    return np.where(
        which.fill_null(False).to_numpy(zero_copy_only=False), -2 - np.arange(len(numbers)), numbers
    )


def _numbered(words: Ints, bounds: npt.NDArray[Any], null: Flags | None) -> Ints:
    """A number for each run of words, as `equals` gives. `bounds` are the ends of the runs."""
    offsets = pa.py_buffer(np.ascontiguousarray(bounds, np.int64) * 8)
    data = pa.py_buffer(np.ascontiguousarray(words))
    bits = None if null is None else pa.array(~null).buffers()[1]
    return equals(pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, [bits, offsets, data]))
