"""Which cases of a parametrized test `make test` runs. The others are `full`: `make test-full` runs
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def few(cases: Iterable[Any], chosen: Callable[..., bool]) -> list[Any]:
    """The cases of a parametrized test. Those that are not `chosen` are `full`. A case of several
    parameters is a tuple, and `chosen` gets them one by one.
    """
    return [
        pytest.param(*values, marks=() if chosen(*values) else pytest.mark.full)
        for values in (case if isinstance(case, tuple) else (case,) for case in cases)
    ]


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """The cases of a parametrized test that are all of one kind. The first of each `step` of them
    runs in `make test`.
    """
    every = list(cases)
    chosen = every[::step]
    return few(every, lambda *values: (values if len(values) > 1 else values[0]) in chosen)


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
