"""Keys whose rows are folded one after the other: where a result depends on what was there at each step.

These are few: keys with deletes under sequence groups, retracted products, lists and maps, texts joined
without repeats, decimals that may overflow. Values are taken from Arrow as far as a function computes with
them; of all others only the row is noted. A fold is Java's aggregator of that name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream.errors import InvalidData, NumericOverflow
from paimon_stream.merge.folds import equals
from paimon_stream.merge.order import ranks
from paimon_stream.merge.spec import ColumnRule

__all__ = ["Fold", "cannot_retract", "fold_of"]

_WIDE: Final = Context(prec=100)
_COMPACT_DECIMAL: Final = 18
_LONG: Final = 2**63


def cannot_retract(table: str, column: str, function: str) -> InvalidData:
    """The error of a -U or -D row whose column cannot be taken back."""
    return InvalidData(
        f"{table} has -U or -D rows, and column {column!r} is aggregated by {function!r}, which cannot take "
        f"a value back. Filter them out, or set fields.{column}.ignore-retract or ignore-delete to true.",
        table=table,
        column=column,
        function=function,
    )


class Fold(ABC):
    """Folds the values of one column, key after key. A value is what `value` gives for a row, None for
    NULL."""

    def __init__(self, table: str, name: str, column: pa.Array, rule: ColumnRule) -> None:
        self.table = table
        self.name = name
        self.column = column
        self.rule = rule
        self._null = column.is_null().to_numpy(zero_copy_only=False)

    def value(self, row: int) -> Any:
        """The column's value in that row of the table."""
        return None if self._null[row] else row

    def reset(self) -> None:  # noqa: B027 - most functions have nothing to forget
        """Begins a key."""

    @abstractmethod
    def add(self, held: Any, new: Any) -> Any:
        """What is held after a row."""

    def add_older(self, held: Any, new: Any) -> Any:
        """What is held after a row of a sequence group that is older than what is held."""
        return self.add(new, held)

    def retract(self, held: Any, new: Any) -> Any:
        """What is held after a -U or -D row."""
        if self.rule.ignore_retract:
            return held
        return self.take_back(held, new)

    def take_back(self, held: Any, new: Any) -> Any:
        """As `retract`, where the column does not ignore it."""
        raise cannot_retract(self.table, self.name, self.rule.function)

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Values, one per key, as an array of the column's type."""
        return self.column.take(pa.array(values, pa.int64()))


class _Last(Fold):
    def add(self, held: Any, new: Any) -> Any:
        return new

    def take_back(self, held: Any, new: Any) -> Any:
        return None


class _Key(_Last):
    def take_back(self, held: Any, new: Any) -> Any:
        return new


class _LastNonNull(Fold):
    def add(self, held: Any, new: Any) -> Any:
        return held if new is None else new

    def take_back(self, held: Any, new: Any) -> Any:
        return held if new is None else None


class _First(Fold):
    _begun = False

    def reset(self) -> None:
        self._begun = False

    def add(self, held: Any, new: Any) -> Any:
        if self._begun:
            return held
        self._begun = True
        return new


class _FirstNonNull(_First):
    def add(self, held: Any, new: Any) -> Any:
        if self._begun or new is None:
            return held
        self._begun = True
        return new


class _Ranked(Fold):
    """max and min, also of booleans."""

    def __init__(self, table: str, name: str, column: pa.Array, rule: ColumnRule, numbers: Any) -> None:
        super().__init__(table, name, column, rule)
        self._numbers = numbers
        self._sign = -1 if rule.function in ("min", "bool_and") else 1

    def add(self, held: Any, new: Any) -> Any:
        if held is None or new is None:
            return new if held is None else held
        return new if self._sign * (self._numbers[held] - self._numbers[new]) < 0 else held


class _Computed(Fold):
    """Functions that make new values: `value` is the value itself."""

    def value(self, row: int) -> Any:
        return None if self._null[row] else self.column[row].as_py()

    def build(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self.column.type)


class _Number(_Computed):
    """Sums and products."""

    def add(self, held: Any, new: Any) -> Any:
        if held is None or new is None:
            return new if held is None else held
        return self._fit(self._plus(held, new))

    def take_back(self, held: Any, new: Any) -> Any:
        if self.rule.function == "product":
            return held if held is None or new is None else self._fit(self._over(held, new))
        if new is None:
            return held
        return self._fit(-new if held is None else self._plus(held, -new))

    def _plus(self, held: Any, new: Any) -> Any:
        if self.rule.function == "product":
            return _WIDE.multiply(held, new) if isinstance(held, Decimal) else held * new
        return _WIDE.add(held, new) if isinstance(held, Decimal) else held + new

    def _over(self, held: Any, new: Any) -> Any:
        if isinstance(held, float):
            with np.errstate(all="ignore"):
                return float(np.float64(held) / np.float64(new))
        if not new:
            raise self._no_quotient(held, new)
        if isinstance(held, Decimal):
            quotient = _WIDE.divide(held, new)
            if _WIDE.multiply(quotient, new) != held:
                raise self._no_quotient(held, new)
            return quotient
        size = abs(held) // abs(new)
        return size if (held < 0) == (new < 0) else -size

    def _no_quotient(self, held: Any, new: Any) -> InvalidData:
        return InvalidData(
            f"Column {self.name!r} of {self.table} is a product of {held}, and a row takes back {new}, by "
            "which it cannot be divided exactly. Correct the row, or set "
            f"fields.{self.name}.ignore-retract to true.",
            table=self.table,
            column=self.name,
        )

    def _fit(self, value: Any) -> Any:
        """The value in the column's type, as Java has it there."""
        type_ = self.column.type
        if pa.types.is_integer(type_):
            bits = type_.bit_width
            return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        if pa.types.is_float32(type_):
            with np.errstate(all="ignore"):
                return float(np.float32(value))
        if isinstance(value, Decimal):
            return self._fit_decimal(value, type_)
        return value

    def _fit_decimal(self, value: Decimal, type_: pa.DataType) -> Decimal | None:
        """Decimals that overflow are NULL; sums of small ones are checked at the end only."""
        value = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP, _WIDE)
        unscaled = abs(int(value.scaleb(type_.scale, _WIDE)))
        if unscaled < 10**type_.precision:
            return value
        compact = type_.precision <= _COMPACT_DECIMAL and self.rule.function == "sum"
        return value if compact and unscaled < _LONG else None

    def build(self, values: Sequence[Any]) -> pa.Array:
        type_ = self.column.type
        if pa.types.is_decimal128(type_):
            for one in values:
                if one is not None and abs(one.scaleb(type_.scale, _WIDE)) >= 10**type_.precision:
                    raise NumericOverflow(
                        f"Column {self.name!r} of {self.table} sums up to {one}, which is more than {type_} "
                        "holds. Widen the column's type.",
                        table=self.table,
                        column=self.name,
                        value=str(one),
                    )
        return super().build(values)


class _Joined(_Computed):
    """listagg."""

    def add(self, held: Any, new: Any) -> Any:
        if held is None or new is None:
            return new if held is None else held
        if not new or not held:
            return held or new
        delimiter = self.rule.delimiter
        if not self.rule.distinct:
            return held + delimiter + new
        tokens = dict.fromkeys(held.split(delimiter))
        fresh = [one for one in dict.fromkeys(new.split(delimiter)) if one and one not in tokens]
        return delimiter.join([held, *fresh])


class _Elements(Fold):
    """collect: a value is the places of its elements."""

    def __init__(self, table: str, name: str, column: pa.Array, rule: ColumnRule) -> None:
        super().__init__(table, name, column, rule)
        is_map = pa.types.is_map(column.type)
        self._equal = equals(column.keys if is_map else column.values).tolist()
        self._bounds = column.offsets.to_pylist()

    def value(self, row: int) -> Any:
        return None if self._null[row] else tuple(range(self._bounds[row], self._bounds[row + 1]))

    def add_older(self, held: Any, new: Any) -> Any:
        return self.add(held, new)

    def add(self, held: Any, new: Any) -> Any:
        if self.rule.distinct:
            if held is None and new is None:
                return None
            found: dict[int, int] = {}
            for at in (held or ()) + (new or ()):
                found.setdefault(self._equal[at], at)
            return tuple(found.values())
        if held is None or new is None:
            return new if held is None else held
        return held + new

    def take_back(self, held: Any, new: Any) -> Any:
        if not held or not new:
            return held
        gone = [self._equal[at] for at in new]
        kept = []
        for at in held:
            if self._equal[at] in gone:
                gone.remove(self._equal[at])
            else:
                kept.append(at)
        return tuple(kept)

    def build(self, values: Sequence[Any]) -> pa.Array:
        elements = pa.array([at for one in values for at in one or ()], pa.int64())
        counts = [len(one or ()) for one in values]
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        child = self._child(elements)
        there = pa.array([one is not None for one in values], pa.bool_())
        nones = sum(one is None for one in values)
        buffers = [there.buffers()[1], offsets.buffers()[1]]
        return pa.Array.from_buffers(self.column.type, len(values), buffers, nones, 0, [child])

    def _child(self, elements: pa.Array) -> pa.Array:
        return self.column.values.take(elements)


class _Entries(_Elements):
    """merge_map: a value is the places of its entries."""

    def add_older(self, held: Any, new: Any) -> Any:
        return self.add(new, held)

    def add(self, held: Any, new: Any) -> Any:
        if held is None or new is None:
            return new if held is None else held
        return tuple({self._equal[at]: at for at in held + new}.values())

    def take_back(self, held: Any, new: Any) -> Any:
        if not held or not new:
            return held
        gone = {self._equal[at] for at in new}
        return tuple(at for at in held if self._equal[at] not in gone)

    def _child(self, elements: pa.Array) -> pa.Array:
        type_ = self.column.type
        parts = [self.column.keys.take(elements), self.column.items.take(elements)]
        return pa.StructArray.from_arrays(parts, fields=[type_.key_field, type_.item_field])


_KINDS: Final[dict[str, type[Fold]]] = {
    "key": _Key,
    "non_null": _LastNonNull,
    "of_group": _Last,
    "last_value": _Last,
    "last_non_null_value": _LastNonNull,
    "first_value": _First,
    "first_non_null_value": _FirstNonNull,
    "sum": _Number,
    "product": _Number,
    "listagg": _Joined,
    "collect": _Elements,
    "merge_map": _Entries,
}


def fold_of(table: str, name: str, column: pa.Array, rule: ColumnRule) -> Fold:
    """The fold of a column by its rule."""
    if rule.function in _KINDS:
        return _KINDS[rule.function](table, name, column, rule)
    return _Ranked(table, name, column, rule, ranks(column).tolist())
