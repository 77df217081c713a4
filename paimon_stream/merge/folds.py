"""Merges a column by its rule, given the action of each row, for all keys at once."""

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from math import gcd
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import InvalidData, NumericOverflow
from paimon_stream.merge import key_runs
from paimon_stream.merge.key_runs import Flags, Ints, KeyRuns, Part, RowActions, picked, ranks
from paimon_stream.merge.lists import collected, joined, maps_merged
from paimon_stream.merge.spec import (
    DELETE,
    INSERT,
    KIND,
    RETRACTABLE,
    SEQUENCE,
    ColumnRule,
    MergeSpec,
)

_WIDE: Final = Context(prec=100)
_COMPACT: Final = 18
"""Java holds decimals of up to 18 digits as 64-bit numbers. Their intermediate sums may have more
digits.
"""


ActionsOf = Callable[[str, ColumnRule], RowActions]
"""Gives the row actions of the column of that name."""


def merged_columns(
    spec: MergeSpec,
    columns: Mapping[str, pa.Array],
    runs: KeyRuns,
    newest: Ints,
    deleted: Flags,
    actions_of: ActionsOf,
) -> list[pa.Array]:
    """The columns with one row per key: each column with a rule as its rows' actions say, the
    others from the row at the key's place in `newest`. `deleted` are the keys whose row is a -D.
    Raises what `folded` raises.
    """
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


def folded(
    table: str, name: str, column: pa.Array, rule: ColumnRule, actions: RowActions
) -> pa.Array:
    """One value per key. Raises `InvalidData` for retractions that the function cannot take, and
    `NumericOverflow`.
    """
    if rule.ignore_retract:
        actions = RowActions(actions.runs, np.where(actions.retracts, key_runs.SKIP, actions.codes))
    elif rule.function not in RETRACTABLE and actions.retracts.any():
        text = (
            f"has -U or -D rows, and column {name!r} is aggregated by {rule.function!r}, which cannot take a value "
            f"back. Filter them out, or set fields.{name}.ignore-retract or ignore-delete to true."
        )
        raise InvalidData(text, column=name, function=rule.function).of_table(table, subject=True)
    match rule.function:
        case "sum":
            return summed(table, name, column, actions)
        case "product":
            return multiplied(table, name, column, actions)
        case "listagg":
            return joined(column, actions, rule.delimiter, distinct=rule.distinct)
        case "collect":
            return collected(
                column, actions, distinct=rule.distinct, older_first=rule.ignore_retract
            )
        case "merge_map":
            return maps_merged(column, actions)
        case "key":
            places = actions.runs.last(actions.codes != key_runs.SKIP)
        case "last_value" | "of_group":
            places = _held(
                actions, (actions.codes != key_runs.SKIP) & (actions.codes != key_runs.OUT_OF_ORDER)
            )
        case "last_non_null_value" | "non_null":
            places = _last_non_null_value(actions, column)
        case "first_value":  # once there is a first value, an older row replaces it
            places = _first(actions, actions.runs.first(actions.adds))
        case "first_non_null_value":
            places = _first_non_null_value(actions, column)
        case _:
            places = _best(actions, column, largest=rule.function in ("max", "bool_or"))
    return picked(column, actions.runs, places)


# -- functions that choose one of a key's rows and take its value as it is
# -------------------------------
#
# Each function finds the rows that change the held value. The last is chosen; the value is NULL if
# it retracts.


def _last_non_null_value(actions: RowActions, column: pa.Array) -> Ints:
    """The place of the last value that is not NULL, -1 for NULL. An older row counts if no value is
    held.
    """
    valid = actions.valid(column)
    changes = valid | (actions.codes == key_runs.SET)
    older = valid & (actions.codes == key_runs.OUT_OF_ORDER)
    if older.any():
        before = actions.previous(changes)
        held = (before >= 0) & valid[before] & ~actions.retracts[before]
        changes &= ~(older & held)
    return _held(actions, changes)


def _first_non_null_value(actions: RowActions, column: pa.Array) -> Ints:
    """The place of the first value that is not NULL, -1 for NULL. Older rows count as for
    `first_value`. Until there is a first value, the value that an older row or a SET has left is
    held. The next older row makes it the first.
    """
    valid = actions.valid(column)
    older = actions.codes == key_runs.OUT_OF_ORDER
    begins = valid & (actions.codes == key_runs.ADD)
    if older.any():
        before = actions.previous(older | (actions.codes == key_runs.SET))
        begins |= older & (before >= 0) & valid[before]
    return _first(actions, actions.runs.first(begins))


def _first(actions: RowActions, begin: Ints) -> Ints:
    """The place of the held value, -1 for NULL. There is a first value from the place `begin`
    on.
    """
    begins = np.zeros(len(actions.codes), np.bool_)
    begins[begin[begin >= 0]] = True
    codes = actions.codes
    added = np.where(begins, codes == key_runs.ADD, codes == key_runs.OUT_OF_ORDER)
    return _held(actions, (codes == key_runs.SET) | added)


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
    return np.where((places >= 0) & (actions.codes[places] == key_runs.RETRACT), -1, places)


# -- sums and products
# ----------------------------------------------------------------------------------
#
# Integers wrap around, as in Java Paimon 1.4.2. Floats are added in merge order, one after the
# other, so that even the last bit is the same as in Java. Decimals are exact; as in Java, they
# become NULL if a step overflows. Products of decimals, and products with retracted values, are
# computed value by value: each step is rounded before the next.


def summed(table: str, name: str, column: pa.Array, actions: RowActions) -> pa.Array:
    """Sums, from which retracted values are subtracted. NULL if a key has no value. Raises
    `NumericOverflow`.
    """
    actions = actions.since_set
    wanted = actions.valid(column)
    if pa.types.is_decimal128(column.type):
        return _decimal_sums(table, name, column, actions, wanted)
    values = _values(column, actions)
    return _folded(column, np.where(actions.retracts, -values, values), actions, wanted, np.add)


def multiplied(table: str, name: str, column: pa.Array, actions: RowActions) -> pa.Array:
    """Products; retractions divide. NULL if a key has no value. Raises `InvalidData` for an
    impossible division.
    """
    if pa.types.is_decimal128(column.type):
        return _products(column, actions, _DecimalArithmetic(table, name, column.type))
    if (actions.valid(column) & actions.retracts).any():
        return _products(column, actions, _Arithmetic(table, name))
    actions = actions.since_set
    return _folded(column, _values(column, actions), actions, actions.valid(column), np.multiply)


def _values(column: pa.Array, actions: RowActions) -> Part:
    values: Part = column.fill_null(0).to_numpy(zero_copy_only=False)[actions.runs.order]
    return values


def _folded(
    column: pa.Array, values: Part, actions: RowActions, wanted: Flags, fold: np.ufunc
) -> pa.Array:
    runs = actions.runs
    none = ~np.logical_or.reduceat(wanted, runs.starts)
    with np.errstate(all="ignore"):
        if pa.types.is_floating(column.type):  # one after the other: the sum depends on the order
            made = np.full(len(runs.starts), 1.0 if fold is np.multiply else -0.0, values.dtype)
            fold.at(made, runs.key_of[wanted], values[wanted])
        else:
            values = np.where(wanted, values, values.dtype.type(fold.identity))
            made = fold.reduceat(values, runs.starts, dtype=values.dtype)
    return pa.array(made, column.type, mask=none)


def _decimal_sums(
    table: str, name: str, column: pa.Array, actions: RowActions, wanted: Flags
) -> pa.Array:
    """The sums of decimals. NULL if a key has no value or the last step overflows. After a step
    that overflows, the next value begins a new sum. Sums in which no step can overflow are computed
    together, the others step by step. Raises `NumericOverflow` where Java returns a number that is
    too large for the type.
    """
    runs, type_ = actions.runs, column.type
    owner = runs.key_of[wanted]
    values = column.take(pa.array(runs.order[wanted]))
    if actions.retracts.any():
        values = pc.if_else(pa.array(actions.retracts[wanted]), pc.negate(values), values)
    limit = 10.0 ** (type_.precision - type_.scale)
    sizes = np.abs(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    safe = np.bincount(owner, sizes, len(runs.starts)) < 0.999 * limit
    totals: dict[int, Decimal | None] = {}
    for key in np.unique(owner[~safe[owner]]).tolist():
        first, last = np.searchsorted(owner, [key, key + 1])
        totals[key] = _total(table, name, type_, _unscaled(values[first:last]))
    sums = pa.table({"key": owner, "value": values}).filter(pa.array(safe[owner]))
    sums = sums.group_by("key", use_threads=False).aggregate([("value", "sum")]).combine_chunks()
    places = np.full(len(runs.starts), -1)
    places[sums.column("key").to_numpy()] = np.arange(sums.num_rows)
    parts = sums.column("value_sum").cast(type_).chunks
    made = pa.concat_arrays([*parts, pa.array(totals.values(), type_, size=len(totals))])
    places[list(totals)] = sums.num_rows + np.arange(len(totals))
    return made.take(pa.array(places, mask=places < 0))


def _total(table: str, name: str, type_: pa.DataType, values: list[Any]) -> Decimal | None:
    """The sum of one key's unscaled values, step by step."""
    bound = 10**type_.precision
    lowest, highest = (
        (-(2**63), 2**63 - 1) if type_.precision <= _COMPACT else (1 - bound, bound - 1)
    )
    held: int | None = None
    for value in values:
        held = value if held is None else held + value
        if not lowest <= held <= highest:
            held = None
    if held is None:
        return None
    total = _decimal(held, type_.scale)
    if abs(held) >= bound:
        text = f"The sum of column {name!r} of {table} is {total}, which is too large for {type_}."
        raise NumericOverflow(
            f"{text} Widen the column's type.", table=table, column=name, value=str(total)
        )
    return total


def _unscaled(column: pa.Array) -> list[int | None]:
    """The unscaled values of decimals, None for NULL."""
    scale = column.type.scale
    return [None if one is None else int(one.scaleb(scale, _WIDE)) for one in column.to_pylist()]


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, _WIDE)


class _Arithmetic:
    """Multiplies and divides floats and integers, which wrap around, as Java does."""

    def __init__(self, table: str, name: str) -> None:
        self._table = table
        self._name = name

    def load(self, column: pa.Array) -> list[Any]:
        """The values, None for NULL."""
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        return [
            one if valid else None
            for one, valid in zip(values, column.is_valid().to_pylist(), strict=True)
        ]

    def store(self, values: list[Any], type_: pa.DataType) -> pa.Array:
        return pa.array(values, type_)

    def times(self, held: Any, new: Any) -> Any:
        """The product, None if it does not fit."""
        return held * new

    def over(self, held: Any, new: Any) -> Any:
        """The quotient; for integers, rounded towards zero. Raises `InvalidData` if there is
        none.
        """
        if not isinstance(held, np.integer):
            return held / new
        if not new:
            raise self._no_quotient(held, new)
        floor = held // new
        return floor + held.dtype.type(floor * new != held and (held < 0) != (new < 0))

    def _no_quotient(self, held: Any, new: Any) -> InvalidData:
        text = (
            f"Column {self._name!r} of {self._table} is a product of {held}, and a row retracts {new}, by which it "
            f"cannot be divided exactly. Correct the row, or set fields.{self._name}.ignore-retract to true."
        )
        return InvalidData(text, table=self._table, column=self._name)


class _DecimalArithmetic(_Arithmetic):
    """Multiplies and divides unscaled decimals of one type. Each step is rounded half up to its
    scale.
    """

    def __init__(self, table: str, name: str, type_: pa.DataType) -> None:
        super().__init__(table, name)
        self._scale = type_.scale
        self._one = 10**type_.scale
        self._bound = 10**type_.precision

    def load(self, column: pa.Array) -> list[Any]:
        return _unscaled(column)

    def store(self, values: list[Any], type_: pa.DataType) -> pa.Array:
        return pa.array(
            [None if one is None else _decimal(one, self._scale) for one in values], type_
        )

    def times(self, held: int, new: int) -> int | None:
        return self._fit((abs(held * new) + self._one // 2) // self._one, (held < 0) != (new < 0))

    def over(self, held: int, new: int) -> int | None:
        rest = new and abs(new) // gcd(held, new)
        if not rest or 10**128 % rest:  # the quotient has infinitely many digits
            raise self._no_quotient(_decimal(held, self._scale), _decimal(new, self._scale))
        size = (2 * abs(held) * self._one + abs(new)) // (2 * abs(new))
        return self._fit(size, (held < 0) != (new < 0))

    def _fit(self, size: int, negative: bool) -> int | None:
        return None if size >= self._bound else -size if negative else size


def _products(column: pa.Array, actions: RowActions, arithmetic: _Arithmetic) -> pa.Array:
    runs, codes = actions.runs, actions.codes
    places = np.flatnonzero(actions.valid(column) | (codes == key_runs.SET))
    values = arithmetic.load(column.take(pa.array(runs.order[places])))
    made: list[Any] = [None] * len(runs.starts)
    with np.errstate(all="ignore"):
        for key, code, value in zip(
            runs.key_of[places].tolist(), codes[places].tolist(), values, strict=True
        ):
            held = made[key]
            if code == key_runs.SET or (held is None and code != key_runs.RETRACT):
                made[key] = value
            elif held is not None:
                made[key] = (
                    arithmetic.over(held, value)
                    if code == key_runs.RETRACT
                    else arithmetic.times(held, value)
                )
    return arithmetic.store(made, column.type)
