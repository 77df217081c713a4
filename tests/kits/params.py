"""Which values of a parametrized test `make test` runs. The others are `full`: `make test-full` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def kept_if(keep: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """The values for `pytest.mark.parametrize`; those that are not to be kept are `full`."""
    return [
        value if keep(value) else pytest.param(value, marks=pytest.mark.full) for value in values
    ]


def each_once(*axes: Iterable[Any], keep: Callable[..., bool] = lambda *_: False) -> list[Any]:
    """Every combination of the axes, for `pytest.mark.parametrize` with as many names. `make test` runs as many
    as the longest axis is long, in which each value of each axis occurs, and those that `keep` accepts. The
    others are `full`.
    """
    values: list[Sequence[Any]] = [list(axis) for axis in axes]
    longest = max(map(len, values))
    diagonal = {tuple(row % len(axis) for axis in values) for row in range(longest)}
    combinations = []
    for positions in product(*(range(len(axis)) for axis in values)):
        chosen = [axis[position] for axis, position in zip(values, positions, strict=True)]
        marks = [] if positions in diagonal or keep(*chosen) else [pytest.mark.full]
        combinations.append(pytest.param(*chosen, marks=marks))
    return combinations
