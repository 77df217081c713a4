"""Rows of random types in every file format: Java reads back what was written, and the same
statistics.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_stream.format.types import DataType, TypeRoot
from tests.kits.files import commit, same, stats, write
from tests.kits.row_strategies import all_types, natural_row, rows, scalar_types
from tests.kits.seeds import examples

pytestmark = pytest.mark.lowest

SECOND = 10**9
FORMATS = {
    "parquet": {},
    "orc": {"file.format": "orc", "orc.timestamp-ltz.legacy.type": "false"},
    "avro": {"file.format": "avro"},
}
SETTINGS = settings(
    max_examples=examples(12, 200),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NUMBERS = itertools.count()
TARGETS = st.sampled_from(["256 mb", "3 kb"])


def storable(format_: str, type_: DataType, value: Any) -> Any:
    """The value as files of the format hold it: ORC has no fractions of seconds before 1970, and
    Java's reader of ORC takes -0.0 for 0.0.
    """
    if value is None or format_ != "orc":
        return value
    match type_:
        case DataType(root=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ) if value < 0:
            return value // SECOND * SECOND
        case DataType(root=TypeRoot.FLOAT | TypeRoot.DOUBLE):
            return value + 0.0
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return [storable(format_, element, one) for one in value]
        case DataType(root=TypeRoot.MAP, key=DataType() as key, element=DataType() as element):
            pairs = [(storable(format_, key, k), storable(format_, element, v)) for k, v in value]
            return list({repr(key): (key, one) for key, one in pairs}.values())
        case DataType(root=TypeRoot.ROW):
            return tuple(
                storable(format_, one.type, member)
                for one, member in zip(type_.fields, value, strict=True)
            )
    return value


def tables(
    folder: Path, java: Any, types: tuple[DataType, ...], options: dict[str, str]
) -> tuple[Any, Path]:
    columns = [(f"f{i}", str(one)) for i, one in enumerate(types)]
    table = folder / f"t{next(NUMBERS)}"
    java.create_table(table, columns, options=options)
    return columns, table


@pytest.mark.parametrize("format_", FORMATS)
def test_java_reads_rows_of_any_types(java: Any, format_: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)

        @SETTINGS
        @given(case=rows(all_types()), batch_rows=st.sampled_from([1, 7, 1000]), target=TARGETS)
        def holds(case: Any, batch_rows: int, target: str) -> None:
            types, internal = case
            options = {**FORMATS[format_], "target-file-size": target}
            columns, table = tables(folder, java, types, options)
            kept = [
                tuple(storable(format_, t, v) for t, v in zip(types, row, strict=True))
                for row in internal
            ]
            natural = [natural_row(types, row) for row in kept]
            commit(java, table, write(table, natural, batch_rows))
            assert same(columns, java.read(table), natural)

        holds()


@pytest.mark.parametrize("format_", FORMATS)
def test_statistics_equal_those_java_keeps(java: Any, format_: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)

        @SETTINGS
        @given(
            case=rows(scalar_types()), mode=st.sampled_from(["truncate(16)", "truncate(1)", "full"])
        )
        def holds(case: Any, mode: str) -> None:
            types, internal = case
            options = {**FORMATS[format_], "metadata.stats-mode": mode}
            kept = [
                tuple(storable(format_, t, v) for t, v in zip(types, row, strict=True))
                for row in internal
            ]
            if format_ == "orc":  # Java's own bounds are wrong for NaN
                kept = [tuple(None if _is_nan(v) else v for v in row) for row in kept]
            natural = [natural_row(types, row) for row in kept]
            _, ours = tables(folder, java, types, options)
            _, theirs = tables(folder, java, types, options)
            commit(java, ours, write(ours, natural))
            java.write(theirs, natural)
            assert json.loads(stats(java, ours)) == json.loads(stats(java, theirs))

        holds()


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
