"""Merges with the functions listagg, collect and merge_map. Texts, lists and maps of all keys are
merged at once, element by element.

Equal elements get equal numbers. What happens to an element then depends only on those rows of its
key that hold an equal element. A retraction removes the first equal element of a list. If there is
none, the retraction does nothing. So the last n of all added elements are left. To find n, take the
running difference between added and retracted elements. n is its final value, minus the lowest
value (at most 0) that it ever had.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.merge import merge_order
from paimon_stream.merge.merge_order import (
    ActionCodes,
    Flags,
    Ints,
    RowActions,
    nulls,
    ranks,
    starts_of_equal,
)


def joined(column: pa.Array, actions: RowActions, delimiter: str, *, distinct: bool) -> pa.Array:
    """The texts of each key, joined by the delimiter. Empty texts are left out, unless all texts
    are empty.

    Args:
        column: the texts.
        actions: what each row does to the column.
        delimiter: the text between two joined texts.
        distinct: whether parts that the result of a key already has are left out of its later
            texts. The first text of a key stays as it is.
    """
    actions = actions.since_set
    ordered = actions.ordered
    valid = actions.valid(column)
    has_text = np.logical_or.reduceat(valid, ordered.starts)
    lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    places = _older_first(actions, valid & (lengths > 0)[ordered.order])
    texts = column.take(pa.array(ordered.order[places]))
    keys = ordered.key_of[places]
    if distinct:
        texts, keys = _distinct_parts(texts, keys, delimiter)
    lists = pa.ListArray.from_arrays(_offsets(keys, len(has_text)), texts)
    joined_texts = pc.binary_join(lists, delimiter).cast(column.type)
    if has_text.all():
        return joined_texts
    return pc.if_else(pa.array(has_text), joined_texts, pa.scalar(None, column.type))


def _older_first(actions: RowActions, wanted: Flags) -> Ints:
    """The places that `wanted` marks. The places of a key's older rows come first, in reverse
    order.
    """
    places = np.flatnonzero(wanted)
    is_older = actions.codes[places] == merge_order.OUT_OF_ORDER
    if not is_older.any():
        return places
    within_key = np.where(is_older, -places, places)
    return places[np.lexsort((within_key, ~is_older, actions.ordered.key_of[places]))]


def _distinct_parts(texts: pa.Array, keys: Ints, delimiter: str) -> tuple[pa.Array, Ints]:
    """Splits the texts at the delimiter. For each key, returns the first text as a whole, and then
    those parts of the other texts that are not empty and did not occur before. Also returns the key
    of each of these texts and parts.
    """
    lists = pc.split_pattern(texts, delimiter)
    parts = lists.values
    bounds = lists.offsets.to_numpy(zero_copy_only=False)
    text_of_part = np.repeat(np.arange(len(texts)), np.diff(bounds))
    is_first_text = np.zeros(len(texts), np.bool_)
    if len(texts):
        is_first_text[starts_of_equal([keys])] = True
    lengths = pc.binary_length(parts).to_numpy(zero_copy_only=False)
    order, starts = _equal_together(equality_numbers(parts), keys[text_of_part])
    new_parts = np.sort(order[starts])
    new_parts = new_parts[~is_first_text[text_of_part[new_parts]] & (lengths[new_parts] > 0)]
    first_texts = np.flatnonzero(is_first_text)
    # This restores the order of the texts. The sort is stable, so parts of one text keep their
    # order.
    sources = np.concatenate((first_texts, text_of_part[new_parts]))
    order = np.argsort(sources, kind="stable")
    kept = pa.concat_arrays([texts.take(pa.array(first_texts)), parts.take(pa.array(new_parts))])
    return kept.take(pa.array(order)), keys[sources[order]]


class _Elements(NamedTuple):
    """Elements of a column, in the order of their rows.

    Attributes:
        positions: the position of each element among all elements of the column.
        keys: the key of each element.
        places: the place of each element's row along the merge order.
    """

    positions: Ints
    keys: Ints
    places: Ints

    def select(self, wanted: Flags | Ints) -> "_Elements":
        """The elements that `wanted` marks, or the elements with these indexes."""
        return _Elements(self.positions[wanted], self.keys[wanted], self.places[wanted])


def _elements(column: pa.Array, actions: RowActions, places: Ints) -> _Elements:
    """The elements of the rows at these places."""
    rows = actions.ordered.order[places]
    bounds = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.diff(bounds)[rows]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    # The number of each element within its list, plus the position in the column at which that list
    # begins.
    positions = np.arange(total) + np.repeat(bounds[:-1][rows] - (ends - counts), counts)
    place_of_element = np.repeat(places, counts)
    return _Elements(positions, actions.ordered.key_of[place_of_element], place_of_element)


def collected(
    column: pa.Array, actions: RowActions, *, distinct: bool, older_first: bool
) -> pa.Array:
    """All elements of a key's lists, list after list.

    Args:
        column: the lists.
        actions: what each row does to the column.
        distinct: whether each element is collected only once.
        older_first: whether the list of an older row is put before the other lists. Java does so if
            the column ignores retractions.
    """
    actions = actions.since_set
    valid = actions.valid(column)
    has_list = np.logical_or.reduceat(valid & ~actions.retracts, actions.ordered.starts)
    if distinct and pa.types.is_nested(column.type.value_type):
        return _lists(column, _one_by_one(column, actions, older_first=older_first), has_list)
    places = _older_first(actions, valid) if older_first else np.flatnonzero(valid)
    elements = _elements(column, actions, places)
    if not distinct and not actions.retracts.any():
        return _lists(column, elements, has_list)
    numbers = equality_numbers(column.values)
    if not distinct:
        return _lists(column, elements.select(_left(elements, numbers, actions)), has_list)
    begin = actions.ordered.first(actions.adds)
    # The value of a SET may have equal elements. The first row that adds to it removes the
    # duplicates.
    is_early = (begin < 0)[elements.keys] | (elements.places < begin[elements.keys])
    is_kept = ~is_early
    is_kept[is_early] = _left(elements.select(is_early), numbers, actions)
    elements = elements.select(is_kept)
    is_added = begin[elements.keys] >= 0
    is_kept = ~is_added
    is_kept[is_added] = _left_once(elements.select(is_added), numbers, actions)
    return _lists(column, elements.select(is_kept), has_list)


def _one_by_one(column: pa.Array, actions: RowActions, *, older_first: bool) -> _Elements:
    """The distinct elements of lists of nested values. As in Java, only the elements of the second
    list are compared with the other elements. So if equal elements are in a list that a SET has
    left, or in an older list that is put first, all of them stay.
    """
    elements = _elements(column, actions, np.flatnonzero(actions.valid(column)))
    numbers = equality_numbers(column.values)
    bounds = np.searchsorted(elements.places, np.arange(len(actions.codes) + 1))
    held_by_key: dict[int, list[int]] = {}
    for place, (key, code) in enumerate(
        zip(actions.ordered.key_of.tolist(), actions.codes.tolist(), strict=True)
    ):
        new = elements.positions[bounds[place] : bounds[place + 1]].tolist()
        held = held_by_key.get(key, [])
        if code == merge_order.SET:
            held_by_key[key] = new
        elif code == merge_order.RETRACT:
            retracted = [numbers[position] for position in new]
            held_by_key[key] = [
                position for position in held if not _remove(retracted, numbers[position])
            ]
        elif code == merge_order.OUT_OF_ORDER and older_first:
            held_by_key[key] = _joined_once(new, held, numbers)
        elif code != merge_order.SKIP:
            held_by_key[key] = _joined_once(held, new, numbers)
    keys = sorted(held_by_key)
    positions = [position for key in keys for position in held_by_key[key]]
    return _Elements(
        np.array(positions, np.int64),
        np.repeat(np.array(keys, np.int64), [len(held_by_key[key]) for key in keys]),
        np.zeros(len(positions), np.int64),
    )


def _remove(numbers: list[int], number: int) -> bool:
    """Removes the number from the list. Returns whether the list had it."""
    if number not in numbers:
        return False
    numbers.remove(number)
    return True


def _joined_once(first: list[int], second: list[int], numbers: Ints) -> list[int]:
    """The positions in `first`, followed by those positions in `second` whose elements are new."""
    numbers_of_first = {numbers[position] for position in first}
    position_of_number: dict[int, int] = {}
    for position in second:
        position_of_number.setdefault(numbers[position], position)
    return first + [
        position
        for number, position in position_of_number.items()
        if number not in numbers_of_first
    ]


def _left(elements: _Elements, numbers: Ints, actions: RowActions) -> Flags:
    """The elements that are left at the end if all equal elements are kept."""
    is_added: Flags = actions.codes[elements.places] != merge_order.RETRACT
    if is_added.all() or not len(is_added):
        return is_added
    order, starts = _equal_together(numbers[elements.positions], elements.keys)
    sizes = np.diff(np.append(starts, len(order)))
    ends = starts + sizes - 1
    adds = is_added[order]
    # The running difference between added and retracted elements, separately for each group of
    # equal elements.
    difference = np.cumsum(np.where(adds, 1, -1))
    difference -= np.repeat(difference[starts] - np.where(adds[starts], 1, -1), sizes)
    lowest = np.minimum(np.minimum.reduceat(difference, starts), 0)
    added_so_far = np.cumsum(adds)
    left_count = difference[ends] - lowest
    is_left = np.empty(len(order), np.bool_)
    is_left[order] = adds & (added_so_far > np.repeat(added_so_far[ends] - left_count, sizes))
    return is_left


def _left_once(elements: _Elements, numbers: Ints, actions: RowActions) -> Flags:
    """The elements that are left at the end if only the first of equal elements is kept."""
    is_left = np.zeros(len(elements.positions), np.bool_)
    if not len(is_left):
        return is_left
    order, starts = _equal_together(numbers[elements.positions], elements.keys)
    first, _ = _since_retract(actions.codes[elements.places[order]], starts)
    is_left[order[first[first >= 0]]] = True
    return is_left


def maps_merged(column: pa.Array, actions: RowActions) -> pa.Array:
    """The entries of a key's maps. Of several entries with the same map key, the last one stays, at
    the place of the first one. The entry of an older row stays only if no newer row has its map
    key.
    """
    actions = actions.since_set
    valid = actions.valid(column)
    has_map = np.logical_or.reduceat(valid & ~actions.retracts, actions.ordered.starts)
    entries = _elements(column, actions, np.flatnonzero(valid))
    if not len(entries.positions):
        return _lists(column, entries, has_map)
    order, starts = _equal_together(equality_numbers(column.keys)[entries.positions], entries.keys)
    codes = actions.codes[entries.places[order]]
    first, is_live = _since_retract(codes, starts)
    is_newer = is_live & (codes != merge_order.OUT_OF_ORDER)
    last = np.maximum.reduceat(np.where(is_newer, np.arange(len(order)), -1), starts)
    chosen = np.where(last < 0, first, last)
    is_left = chosen >= 0
    chosen_entries = order[chosen[is_left]]
    first_entries = order[first[is_left]]
    chosen_entries = chosen_entries[np.argsort(first_entries, kind="stable")]
    return _lists(column, entries.select(chosen_entries), has_map)


def _since_retract(codes: ActionCodes, starts: Ints) -> tuple[Ints, Flags]:
    """Finds the elements after the last RETRACT. Equal elements are next to each other. `starts`
    has the places at which they begin.

    Returns:
        For each start, the first place after the last RETRACT of these equal elements, or -1 if
        there is none. Then, for each place, whether it comes after that RETRACT.
    """
    places = np.arange(len(codes))
    is_retract = codes == merge_order.RETRACT
    ends = np.append(starts[1:], len(codes))
    begin = starts
    is_live = ~is_retract
    if is_retract.any():
        after_retract = np.maximum.reduceat(np.where(is_retract, places + 1, 0), starts)
        begin = np.maximum(after_retract, starts)
        is_live = places >= np.repeat(begin, ends - starts)
    return np.where(begin < ends, begin, -1), is_live


def _equal_together(numbers: Ints, keys: Ints) -> tuple[Ints, Ints]:
    """Puts equal elements of the same key next to each other.

    Returns:
        The order in which equal elements are next to each other. Equal elements keep their own
        order.
        Also the places in this order at which equal elements begin.
    """
    order = np.lexsort((numbers, keys))
    return order, starts_of_equal([keys[order], numbers[order]])


def _lists(column: pa.Array, elements: _Elements, has_value: Flags) -> pa.Array:
    """Lists or maps of these elements, in the column's type. The list of a key is NULL if
    `has_value` is false for the key.
    """
    offsets = _offsets(elements.keys, len(has_value))
    positions = pa.array(elements.positions)
    if pa.types.is_map(column.type):
        child = pa.StructArray.from_arrays(
            [column.keys.take(positions), column.items.take(positions)],
            fields=[column.type.key_field, column.type.item_field],
        )
    else:
        child = column.values.take(positions)
    validity = None if has_value.all() else pa.array(has_value).buffers()[1]
    return pa.Array.from_buffers(
        column.type,
        len(has_value),
        [validity, offsets.buffers()[1]],
        null_count=int((~has_value).sum()),
        children=[child],
    )


def _offsets(keys: Ints, key_count: int) -> pa.Array:
    """The offsets of lists, one for each key. `keys` are the keys of the elements, in their
    order.
    """
    ends = np.cumsum(np.bincount(keys, minlength=key_count))
    return pa.array(np.concatenate(([0], ends)).astype(np.int32))


def equality_numbers(values: pa.Array, *, as_rows: bool = False) -> Ints:
    """A number for each value. Equal values have the same number. NULL equals NULL.

    Args:
        values: values of any type.
        as_rows: whether values are compared as Java compares rows. In this case, NaN equals
            nothing, -0.0 equals 0.0, the entries of maps have no order, and a list or map that
            holds NULL equals no other.
    """
    type_ = values.type
    if pa.types.is_struct(type_):
        return _struct_numbers(values, as_rows=as_rows)
    if pa.types.is_nested(type_):
        return _list_numbers(values, as_rows=as_rows)
    is_nan = None
    if pa.types.is_floating(type_):
        floats = values
        if as_rows:
            is_nan = pc.is_nan(values)
            floats = pc.add(values, 0.0).cast(type_)  # turns -0.0 into 0.0
        values = pa.array(ranks(floats), mask=nulls(values))
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers if is_nan is None else _unlike(numbers, is_nan)


def _struct_numbers(values: pa.Array, *, as_rows: bool) -> Ints:
    """The numbers that `equality_numbers` gives to structs. Equal structs have equal members."""
    members = [
        equality_numbers(values.field(position), as_rows=as_rows)
        for position in range(values.type.num_fields)
    ]
    words = np.stack(members, 1)
    words[values.is_null().to_numpy(zero_copy_only=False)] = -1  # no value has this number
    return _word_numbers(words.ravel(), np.arange(len(values) + 1) * words.shape[1], None)


def _list_numbers(values: pa.Array, *, as_rows: bool) -> Ints:
    """The numbers that `equality_numbers` gives to lists and maps."""
    is_map = pa.types.is_map(values.type)
    children = [values.keys, values.items] if is_map else [values.values]
    words = np.stack([equality_numbers(child, as_rows=as_rows) for child in children], 1)
    bounds = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    if as_rows:
        words[:, -1] = _unlike(words[:, -1], children[-1].is_null())
    if as_rows and is_map:
        map_of_entry = np.repeat(np.arange(len(values)), np.diff(bounds))
        words = words[np.lexsort((words[:, 0], map_of_entry))]
    return _word_numbers(words.ravel(), bounds * len(children), nulls(values))


def _unlike(numbers: Ints, is_unlike: pa.Array) -> Ints:
    """The numbers. Where `is_unlike` is true, the number is replaced by a number that no other
    value has.
    """
    replaced = is_unlike.fill_null(False).to_numpy(zero_copy_only=False)
    return np.where(replaced, -2 - np.arange(len(numbers)), numbers)


def _word_numbers(words: Ints, bounds: npt.NDArray[Any], null: Flags | None) -> Ints:
    """A number for each value, as `equality_numbers` gives it. `bounds` are the places in `words`
    at which the words of each value begin, and the end of the last value. `null` says which values
    are NULL.
    """
    offsets = pa.py_buffer(np.ascontiguousarray(bounds, np.int64) * 8)
    data = pa.py_buffer(np.ascontiguousarray(words))
    validity = None if null is None else pa.array(~null).buffers()[1]
    buffers = [validity, offsets, data]
    return equality_numbers(pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers))
