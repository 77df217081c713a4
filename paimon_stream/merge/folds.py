"""Merges a column by its rule, for all keys at once. The actions of the rows on the column are
given.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from math import gcd
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import InvalidData, NumericOverflow
from paimon_stream.merge import merge_order
from paimon_stream.merge.lists import collected, joined, maps_merged
from paimon_stream.merge.merge_order import Flags, Ints, OrderedRows, RowActions, picked, ranks
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


@dataclass(frozen=True, slots=True)
class _ColumnName:
    """The name of a column, for messages about its values."""

    table: str
    column: str


def merged_columns(
    spec: MergeSpec,
    columns: Mapping[str, pa.Array],
    ordered: OrderedRows,
    newest: Ints,
    deleted: Flags,
    actions_of: ActionsOf,
) -> list[pa.Array]:
    """The columns with one row per key.

    Args:
        spec: the rules. A column with a rule is merged by this rule. The value of any other column
            comes from one row.
        columns: the columns by name.
        ordered: the rows in merge order.
        newest: for each key, the place of the row that gives the columns without a rule.
        deleted: for each key, whether its row is a -D.
        actions_of: what the rows do to a column with a rule.

    Raises:
        InvalidData: as `folded` does.
        NumericOverflow: as `folded` does.
    """
    merged = []
    for name, column in columns.items():
        rule = spec.rules.get(name)
        if name == KIND:
            merged.append(pa.array(np.where(deleted, DELETE, INSERT), column.type))
        elif name == SEQUENCE:
            merged.append(picked(column, ordered, newest).fill_null(0))
        elif rule is None:
            merged.append(picked(column, ordered, newest))
        else:
            merged.append(folded(spec.table, name, column, rule, actions_of(name, rule)))
    return merged


def folded(
    table: str, name: str, column: pa.Array, rule: ColumnRule, actions: RowActions
) -> pa.Array:
    """The column merged by its rule: one value per key.

    Args:
        table: the table, for messages.
        name: the name of the column.
        column: the values of the column.
        rule: the rule by which the values are merged.
        actions: what each row does to the column.

    Raises:
        InvalidData: if the function does not support a retraction.
        NumericOverflow: if a sum is too large for the column.
    """
    if rule.ignore_retract:
        actions = RowActions(
            actions.ordered, np.where(actions.retracts, merge_order.SKIP, actions.codes)
        )
    elif rule.function not in RETRACTABLE and actions.retracts.any():
        raise InvalidData(
            f"has -U or -D rows, and column {name!r} is aggregated by {rule.function!r}, which cannot take a value "
            f"back. Filter them out, or set fields.{name}.ignore-retract or ignore-delete to true.",
            column=name,
            function=rule.function,
        ).of_table(table, subject=True)
    column_name = _ColumnName(table, name)
    match rule.function:
        case "sum":
            return _summed(column_name, column, actions)
        case "product":
            return _multiplied(column_name, column, actions)
        case "listagg":
            return joined(column, actions, rule.delimiter, distinct=rule.distinct)
        case "collect":
            return collected(
                column, actions, distinct=rule.distinct, older_first=rule.ignore_retract
            )
        case "merge_map":
            return maps_merged(column, actions)
    return picked(column, actions.ordered, _chosen(rule.function, column, actions))


# -- functions that choose one of a key's rows and use its value as it is -------------------------
#
# Each of these functions finds the rows that change the held value. The last of these rows is
# chosen. If this row retracts, the value is NULL.


def _chosen(function: str, column: pa.Array, actions: RowActions) -> Ints:
    """For each key, the place of the row whose value the function chooses; -1 for NULL."""
    ordered = actions.ordered
    codes = actions.codes
    match function:
        case "key":
            return ordered.last(codes != merge_order.SKIP)
        case "last_value" | "of_group":
            return _held(actions, (codes != merge_order.SKIP) & (codes != merge_order.OUT_OF_ORDER))
        case "last_non_null_value" | "non_null":
            return _last_non_null(actions, column)
        case "first_value":  # once there is a first value, an older row replaces that value
            return _first(actions, ordered.first(actions.adds))
        case "first_non_null_value":
            return _first_non_null(actions, column)
        case "max" | "bool_or":
            return _extreme(actions, column, largest=True)
    return _extreme(actions, column, largest=False)


def _last_non_null(actions: RowActions, column: pa.Array) -> Ints:
    """The place of the last value that is not NULL; -1 for NULL. The value of an older row is taken
    only if no value is held yet.
    """
    is_valid = actions.valid(column)
    changes = is_valid | (actions.codes == merge_order.SET)
    is_older = is_valid & (actions.codes == merge_order.OUT_OF_ORDER)
    if is_older.any():
        before = actions.previous(changes)
        is_held = (before >= 0) & is_valid[before] & ~actions.retracts[before]
        changes &= ~(is_older & is_held)
    return _held(actions, changes)


def _first_non_null(actions: RowActions, column: pa.Array) -> Ints:
    """The place of the first value that is not NULL; -1 for NULL. Older rows are treated as for
    `first_value`. As long as there is no first value, an older row or a SET does not change the
    held value. The next older row makes this held value the first value.
    """
    is_valid = actions.valid(column)
    is_older = actions.codes == merge_order.OUT_OF_ORDER
    begins = is_valid & (actions.codes == merge_order.ADD)
    if is_older.any():
        before = actions.previous(is_older | (actions.codes == merge_order.SET))
        begins |= is_older & (before >= 0) & is_valid[before]
    return _first(actions, actions.ordered.first(begins))


def _first(actions: RowActions, begin: Ints) -> Ints:
    """The place of each key's held value; -1 for NULL. `begin` has one place for each key. It is
    the place of the row that gives the key its first value, or -1 if there is no such row.
    """
    codes = actions.codes
    is_beginning = np.zeros(len(codes), np.bool_)
    is_beginning[begin[begin >= 0]] = True
    # At `begin`, a new value becomes the first value, and an older row makes the held value the
    # first value. At all other places, an older row replaces the held value, and a new value
    # changes nothing.
    is_added = np.where(is_beginning, codes == merge_order.ADD, codes == merge_order.OUT_OF_ORDER)
    return _held(actions, (codes == merge_order.SET) | is_added)


def _extreme(actions: RowActions, column: pa.Array, *, largest: bool) -> Ints:
    """The place of the largest or smallest value; -1 if all values are NULL."""
    ordered = actions.ordered
    is_valid = actions.since_set.valid(column)
    numbers = ranks(column)[ordered.order]
    least = np.iinfo(np.int64).min
    if not largest:
        numbers = ~numbers  # in the opposite order
    greatest = np.maximum.reduceat(np.where(is_valid, numbers, least), ordered.starts)
    return ordered.first(is_valid & (numbers == greatest[ordered.key_of]))


def _held(actions: RowActions, changes: Flags) -> Ints:
    """The place of each key's last row that changes the held value. It is -1 if there is no such
    row, or if this row retracts.
    """
    places = actions.ordered.last(changes)
    is_retracted = (places >= 0) & (actions.codes[places] == merge_order.RETRACT)
    return np.where(is_retracted, -1, places)


# -- sums and products ----------------------------------------------------------------------------
#
# Integers wrap around, as in Java Paimon 1.4.2. Floats are added in merge order, one after the
# other, so that even the last bit is the same as in Java. Decimals are exact. As in Java, they
# become NULL if a step overflows. Two kinds of products are computed value by value, because each
# step is rounded before the next one: products of decimals, and products from which values are
# retracted.


def _summed(column_name: _ColumnName, column: pa.Array, actions: RowActions) -> pa.Array:
    """The sums of added values, minus the retracted values. NULL if a key has no value. Raises
    `NumericOverflow`.
    """
    actions = actions.since_set
    is_valid = actions.valid(column)
    if pa.types.is_decimal128(column.type):
        return _decimal_sums(column_name, column, actions, is_valid)
    values = _values(column, actions)
    return _reduced(column, np.where(actions.retracts, -values, values), actions, is_valid, np.add)


def _multiplied(column_name: _ColumnName, column: pa.Array, actions: RowActions) -> pa.Array:
    """The products of added values, divided by the retracted values. NULL if a key has no value.
    Raises `InvalidData` if a division is impossible.
    """
    if pa.types.is_decimal128(column.type):
        return _products(column, actions, _DecimalArithmetic(column_name, column.type))
    if (actions.valid(column) & actions.retracts).any():
        return _products(column, actions, _Arithmetic(column_name))
    actions = actions.since_set
    is_valid = actions.valid(column)
    return _reduced(column, _values(column, actions), actions, is_valid, np.multiply)


def _values(column: pa.Array, actions: RowActions) -> npt.NDArray[Any]:
    """The numbers in merge order, with 0 for NULL."""
    numbers: npt.NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers[actions.ordered.order]


def _reduced(
    column: pa.Array,
    values: npt.NDArray[Any],
    actions: RowActions,
    wanted: Flags,
    operation: np.ufunc,
) -> pa.Array:
    """The sum or product of each key's wanted values, in the column's type. NULL if a key has no
    such value. `operation` is `np.add` or `np.multiply`.
    """
    ordered = actions.ordered
    is_null = ~np.logical_or.reduceat(wanted, ordered.starts)
    with np.errstate(all="ignore"):
        if pa.types.is_floating(column.type):  # the sum of floats depends on their order
            # If a sum began with 0.0, then -0.0 would become 0.0.
            neutral = 1.0 if operation is np.multiply else -0.0
            totals = np.full(len(ordered.starts), neutral, values.dtype)
            operation.at(totals, ordered.key_of[wanted], values[wanted])
        else:
            values = np.where(wanted, values, values.dtype.type(operation.identity))
            totals = operation.reduceat(values, ordered.starts, dtype=values.dtype)
    return pa.array(totals, column.type, mask=is_null)


def _decimal_sums(
    column_name: _ColumnName, column: pa.Array, actions: RowActions, wanted: Flags
) -> pa.Array:
    """The sums of decimals. A sum is NULL if the key has no value, or if the last step overflows.
    After a step that overflows, the next value begins a new sum. Sums in which no step can overflow
    are computed together, and the others step by step. Raises `NumericOverflow` where Java returns
    a number that is too large for the type.
    """
    ordered = actions.ordered
    type_ = column.type
    keys = ordered.key_of[wanted]
    values = column.take(pa.array(ordered.order[wanted]))
    if actions.retracts.any():
        values = pc.if_else(pa.array(actions.retracts[wanted]), pc.negate(values), values)
    limit = 10.0 ** (type_.precision - type_.scale)
    sizes = np.abs(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    # No step can overflow if the sum of all absolute values is below the limit. Floats are not
    # exact.
    is_safe_key = np.bincount(keys, sizes, len(ordered.starts)) < 0.999 * limit
    is_safe = is_safe_key[keys]
    stepwise: dict[int, Decimal | None] = {}
    for key in np.unique(keys[~is_safe]).tolist():
        first, last = np.searchsorted(keys, [key, key + 1])
        stepwise[key] = _total(column_name, values[first:last])
    sums = pa.table({"key": keys, "value": values}).filter(pa.array(is_safe))
    sums = sums.group_by("key", use_threads=False).aggregate([("value", "sum")]).combine_chunks()
    together = sums.column("value_sum").cast(type_).chunks
    totals = pa.concat_arrays([*together, pa.array(stepwise.values(), type_, size=len(stepwise))])
    total_of_key = np.full(len(ordered.starts), -1)
    total_of_key[sums.column("key").to_numpy()] = np.arange(sums.num_rows)
    total_of_key[list(stepwise)] = sums.num_rows + np.arange(len(stepwise))
    return totals.take(pa.array(total_of_key, mask=total_of_key < 0))


def _total(column_name: _ColumnName, values: pa.Array) -> Decimal | None:
    """The sum of one key's decimals, computed step by step. None of the values is NULL."""
    type_ = values.type
    bound = 10**type_.precision
    if type_.precision <= _COMPACT:
        lowest = -(2**63)
        highest = 2**63 - 1
    else:
        lowest = 1 - bound
        highest = bound - 1
    held: int | None = None
    for value in values.to_pylist():
        unscaled = int(value.scaleb(type_.scale, _WIDE))
        held = unscaled if held is None else held + unscaled
        if not lowest <= held <= highest:
            held = None  # as in Java, the sum is NULL then, and the next value begins a new one
    if held is None:
        return None
    total = _decimal(held, type_.scale)
    if abs(held) >= bound:
        raise NumericOverflow(
            f"The sum of column {column_name.column!r} of {column_name.table} is {total}, which is too large for "
            f"{type_}. Widen the column's type.",
            table=column_name.table,
            column=column_name.column,
            value=str(total),
        )
    return total


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, _WIDE)


class _Arithmetic:
    """Multiplies and divides floats and integers, which wrap around, as Java does. Values are
    scalars of numpy.
    """

    def __init__(self, column_name: _ColumnName) -> None:
        self._column_name = column_name

    def load(self, column: pa.Array) -> list[Any]:
        """The values of a column, with None for NULL."""
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        return [
            value if is_valid else None
            for value, is_valid in zip(values, column.is_valid().to_pylist(), strict=True)
        ]

    def store(self, values: list[Any], type_: pa.DataType) -> pa.Array:
        """A column of these values, with NULL for None."""
        return pa.array(values, type_)

    def times(self, held: Any, new: Any) -> Any:
        """The product; None if it does not fit the type."""
        return held * new

    def over(self, held: Any, new: Any) -> Any:
        """The quotient. For integers, it is rounded towards zero. Raises `InvalidData` for a
        division by zero.
        """
        if not isinstance(held, np.integer):
            return held / new
        if not new:
            raise self._no_quotient(held, new)
        floor = held // new
        is_exact = floor * new == held
        is_negative = (held < 0) != (new < 0)
        if is_negative and not is_exact:
            return floor + held.dtype.type(1)
        return floor

    def _no_quotient(self, held: Any, new: Any) -> InvalidData:
        table = self._column_name.table
        column = self._column_name.column
        return InvalidData(
            f"Column {column!r} of {table} is a product of {held}, and a row retracts {new}: the product "
            f"cannot be divided by it exactly. Correct the row, or set fields.{column}.ignore-retract to "
            "true.",
            table=table,
            column=column,
        )


class _DecimalArithmetic(_Arithmetic):
    """Multiplies and divides unscaled decimals of one type. Each step is rounded half up to the
    scale of the type.
    """

    def __init__(self, column_name: _ColumnName, type_: pa.DataType) -> None:
        super().__init__(column_name)
        self._scale = type_.scale
        self._one = 10**type_.scale
        self._bound = 10**type_.precision

    def load(self, column: pa.Array) -> list[Any]:
        return [
            None if value is None else int(value.scaleb(self._scale, _WIDE))
            for value in column.to_pylist()
        ]

    def store(self, values: list[Any], type_: pa.DataType) -> pa.Array:
        decimals = [None if value is None else _decimal(value, self._scale) for value in values]
        return pa.array(decimals, type_)

    def times(self, held: int, new: int) -> int | None:
        product = (abs(held * new) + self._one // 2) // self._one
        has_other_sign = (held < 0) != (new < 0)
        return self._fitting(-product if has_other_sign else product)

    def over(self, held: int, new: int) -> int | None:
        if not new:
            raise self._no_decimal_quotient(held, new)
        divisor = abs(new) // gcd(held, new)
        if 10**128 % divisor:  # the quotient has infinitely many digits
            raise self._no_decimal_quotient(held, new)
        quotient = (2 * abs(held) * self._one + abs(new)) // (2 * abs(new))
        has_other_sign = (held < 0) != (new < 0)
        return self._fitting(-quotient if has_other_sign else quotient)

    def _no_decimal_quotient(self, held: int, new: int) -> InvalidData:
        return self._no_quotient(_decimal(held, self._scale), _decimal(new, self._scale))

    def _fitting(self, unscaled: int) -> int | None:
        """The value; None if it has more digits than the type."""
        return unscaled if abs(unscaled) < self._bound else None


def _products(column: pa.Array, actions: RowActions, arithmetic: _Arithmetic) -> pa.Array:
    """The product of each key's values, computed value by value. NULL if a key has no value."""
    ordered = actions.ordered
    codes = actions.codes
    places = np.flatnonzero(actions.valid(column) | (codes == merge_order.SET))
    values = arithmetic.load(column.take(pa.array(ordered.order[places])))
    products: list[Any] = [None] * len(ordered.starts)
    with np.errstate(all="ignore"):
        for key, code, value in zip(
            ordered.key_of[places].tolist(), codes[places].tolist(), values, strict=True
        ):
            held = products[key]
            if code == merge_order.SET:
                products[key] = value
            elif code == merge_order.RETRACT:
                if held is not None:
                    products[key] = arithmetic.over(held, value)
            else:
                products[key] = value if held is None else arithmetic.times(held, value)
    return arithmetic.store(products, column.type)
