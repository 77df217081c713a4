"""Numbers, flags and bytes become Arrow arrays, and numbers and flags come back, as by pyarrow's own
functions, which import pandas.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from paimon_stream.format.arrow_types import (
    from_bytes,
    from_flags,
    from_numbers,
    to_flags,
    to_numbers,
)

_NUMBERS = [
    np.arange(5, dtype=dtype)
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint64, np.float32, np.float64)
]


@pytest.mark.parametrize("numbers", [*_NUMBERS, np.arange(9)[::2], np.arange(3)[1:], np.arange(0)])
def test_numbers_become_an_array_and_come_back(numbers: npt.NDArray[Any]) -> None:
    array = from_numbers(numbers)
    array.validate(full=True)
    assert array.equals(pa.array(numbers))
    np.testing.assert_array_equal(to_numbers(array), numbers, strict=True)


def test_numbers_of_a_slice_are_those_of_its_rows() -> None:
    array = from_numbers(np.arange(10, dtype=np.int32))
    assert to_numbers(array.slice(3, 4)).tolist() == [3, 4, 5, 6]
    assert to_numbers(array.slice(3, 0)).tolist() == []


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_flags_become_an_array_and_come_back(count: int) -> None:
    flags = np.random.default_rng(count).random(count) < 0.5
    array = from_flags(flags)
    array.validate(full=True)
    assert array.equals(pa.array(flags))
    np.testing.assert_array_equal(to_flags(array), flags, strict=True)


def test_flags_of_a_slice_are_those_of_its_rows() -> None:
    flags = np.random.default_rng(1).random(40) < 0.5
    np.testing.assert_array_equal(to_flags(from_flags(flags).slice(3, 21)), flags[3:24])
    assert to_flags(from_flags(flags).slice(3, 0)).tolist() == []


@pytest.mark.parametrize("value", [b"", b"a", bytes(range(256))])
def test_bytes_become_an_array_of_one_value(value: bytes) -> None:
    array = from_bytes(value)
    array.validate(full=True)
    assert array.equals(pa.array([value], pa.binary()))
