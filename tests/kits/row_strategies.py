"""Random types, and random values for them in the internal form of `binary_row`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from paimon_stream.format.types import DataField, DataType, TypeRoot

INTS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
MICRO = 1_000
DAY = 86_400_000
# The range of Python's datetime, because the oracle gets datetimes.
FIRST_MICRO = int((dt.datetime(1, 1, 1) - dt.datetime(1970, 1, 1)) / dt.timedelta(microseconds=1))
LAST_MICRO = int(
    (dt.datetime(9999, 12, 31) - dt.datetime(1970, 1, 1)) / dt.timedelta(microseconds=1)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text("ab", max_size=9)


def scalar_types() -> st.SearchStrategy[DataType]:
    def made(root: TypeRoot, precision: int = 0, scale: int = 0) -> DataType:
        return DataType(root=root, precision=precision, scale=scale)

    plain = [TypeRoot.BOOLEAN, TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DATE, *INTS]
    decimals = st.integers(1, 38).flatmap(
        lambda p: st.builds(made, st.just(TypeRoot.DECIMAL), st.just(p), st.integers(0, p))
    )
    others = [
        made(TypeRoot.VARCHAR, 2**31 - 1),
        made(TypeRoot.VARBINARY, 2**31 - 1),
        made(TypeRoot.VARCHAR, 50),
        made(TypeRoot.TIME, 3),
        *(
            made(root, p)
            for root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
            for p in (0, 3, 6)
        ),
    ]
    return st.sampled_from([made(root) for root in plain] + others) | decimals


def nested(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    def row(members: list[DataType]) -> DataType:
        fields = tuple(DataField(id=i, name=f"m{i}", type=one) for i, one in enumerate(members))
        return DataType(root=TypeRoot.ROW, fields=fields)

    return (
        types.map(lambda element: DataType(root=TypeRoot.ARRAY, element=element))
        | st.builds(
            lambda k, v: DataType(root=TypeRoot.MAP, key=k, element=v), scalar_types(), types
        )
        | st.lists(types, min_size=1, max_size=3).map(row)
    )


def all_types() -> st.SearchStrategy[DataType]:
    return st.recursive(scalar_types(), nested, max_leaves=4)


def values(type_: DataType, nullable: bool = True) -> st.SearchStrategy[Any]:
    return st.none() | present(type_) if nullable else present(type_)


def present(type_: DataType) -> st.SearchStrategy[Any]:
    match type_.root:
        case TypeRoot.BOOLEAN:
            return st.booleans()
        case TypeRoot.FLOAT:
            return st.floats(width=32)
        case TypeRoot.DOUBLE:
            return st.floats()
        case TypeRoot.DATE:
            return st.integers(FIRST_MICRO // (DAY * 1000), LAST_MICRO // (DAY * 1000))
        case TypeRoot.TIME:
            return st.integers(0, DAY - 1)
        case TypeRoot.DECIMAL:
            most = 10**type_.precision - 1
            small = st.integers(0, type_.precision).flatmap(
                lambda p: st.integers(-(10**p) + 1, 10**p - 1)
            )
            return (small | st.sampled_from([most, -most, 0, -1])).map(
                lambda unscaled: Decimal(f"{unscaled}E-{type_.scale}")
            )
        case TypeRoot.VARCHAR:
            return TEXT
        case TypeRoot.VARBINARY:
            return st.binary(max_size=40)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            step = 10 ** (6 - type_.precision)
            micros = st.integers(FIRST_MICRO // step + 1, LAST_MICRO // step).map(
                lambda n: n * step
            )
            return micros.map(lambda n: n * MICRO)
        case TypeRoot.ARRAY:
            assert type_.element is not None
            return st.lists(values(type_.element), max_size=5)
        case TypeRoot.MAP:
            assert type_.element is not None and type_.key is not None
            pair = st.tuples(present(type_.key), values(type_.element))
            # 0.0 and -0.0 are two keys in Java, but only one in the dict into which the map is
            # read.
            return st.lists(pair, max_size=3, unique_by=lambda one: repr(one[0] or 0))
        case TypeRoot.ROW:
            return st.tuples(*(values(one.type) for one in type_.fields))
        case root:
            bits = INTS[root]
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def rows(types: st.SearchStrategy[DataType], max_columns: int = 5) -> st.SearchStrategy[Any]:
    """Types, and some rows with these types."""
    return st.lists(types, min_size=1, max_size=max_columns).flatmap(
        lambda some: st.tuples(
            st.just(tuple(some)), st.lists(st.tuples(*map(values, some)), min_size=1, max_size=40)
        )
    )


def natural(type_: DataType, value: Any) -> Any:
    """Converts an internal value for the oracle and Arrow."""
    if value is None:
        return None
    match type_.root:
        case TypeRoot.DATE:
            return dt.date(1970, 1, 1) + dt.timedelta(days=value)
        case TypeRoot.TIME:
            return (dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=value)).time()
        case TypeRoot.TIMESTAMP:
            return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value // MICRO)
        case TypeRoot.TIMESTAMP_LTZ:
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value // MICRO)
            return moment.replace(tzinfo=dt.timezone.utc)
        case TypeRoot.ARRAY:
            assert type_.element is not None
            return [natural(type_.element, one) for one in value]
        case TypeRoot.MAP:
            assert type_.element is not None and type_.key is not None
            return [(natural(type_.key, k), natural(type_.element, v)) for k, v in value]
        case TypeRoot.ROW:
            return natural_row([one.type for one in type_.fields], value)
        case _:
            return value


def natural_row(types: Sequence[DataType], row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(natural(type_, value) for type_, value in zip(types, row, strict=True))
