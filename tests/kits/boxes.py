"""Walks the rows of a judgement with boxes in place of facts: a box has a set of values for each fact,
and is split where a row asks, so that all combinations are walked without counting them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from paimon_stream.stream.judgement import NextStep, Outcome, Row, Step

Box = Mapping[type[Enum], frozenset[Enum]]
"""The values of each fact; a fact that is not named may have any value."""


def box_of(*values: Enum) -> dict[type[Enum], frozenset[Enum]]:
    """The box in which each fact has one of these values."""
    box: dict[type[Enum], frozenset[Enum]] = {}
    for value in values:
        box[type(value)] = box.get(type(value), frozenset()) | {value}
    return box


def every(facts: Sequence[type[Enum]]) -> dict[type[Enum], frozenset[Enum]]:
    """The box of all combinations."""
    return {fact: frozenset(fact) for fact in facts}


def size(box: Box) -> int:
    """The number of combinations in a box that names each fact."""
    return math.prod(len(values) for values in box.values())


def within(box: Box, other: Box) -> bool:
    """Whether all combinations of a box that names each fact are in the other box."""
    return all(box[fact] <= values for fact, values in other.items())


def common(box: Box, other: Box) -> dict[type[Enum], frozenset[Enum]] | None:
    """What two boxes share; None if that is nothing."""
    shared = dict(box)
    for fact, values in other.items():
        shared[fact] = shared.get(fact, frozenset(fact)) & values
        if not shared[fact]:
            return None
    return shared


def any_left(box: Box, others: Sequence[Box]) -> dict[type[Enum], frozenset[Enum]] | None:
    """A part of a box that is outside all others; None if there is none."""
    for n, other in enumerate(others):
        if common(box, other) is None:
            continue
        rest = dict(box)
        for fact, values in other.items():
            outside = rest[fact] - values
            if outside:
                left = any_left({**rest, fact: outside}, others[n + 1 :])
                if left is not None:
                    return left
            rest[fact] = rest[fact] & values
        return None
    return dict(box)


@dataclass(frozen=True, slots=True)
class End:
    """Where the walk of a box ends. `met` are the rows that it met, the last of which answers;
    `outcome` is what is answered, None if no row fits. `is_let_in` says that an operator let the
    batch continue.
    """

    box: Box
    met: tuple[Row, ...]
    outcome: Outcome | None
    is_let_in: bool

    @property
    def goes_on(self) -> bool:
        """Whether the batch is written, or its files are used, and nobody was asked."""
        return self.outcome in (Outcome.FRESH, Outcome.REUSE) and not self.is_let_in


def ends(
    rows: Sequence[Row], facts: Sequence[type[Enum]], impossible: Sequence[Box] = ()
) -> Iterator[End]:
    """All ends of the walk of these rows, of all combinations, less those boxes of which all is
    impossible.
    """
    starts: dict[Step | NextStep, int] = {}
    for number, row in enumerate(rows):
        starts.setdefault(row.step, number)
    by_fact = {fact: [box for box in impossible if fact in box] for fact in facts}

    def walk(
        box: dict[type[Enum], frozenset[Enum]], number: int, met: tuple[Row, ...], let_in: bool
    ) -> Iterator[End]:
        while number < len(rows):
            row, fits = rows[number], True
            for fact, values in row.when.items():
                outside = box[fact] - values
                if not outside:
                    continue
                rest = {**box, fact: outside}
                fits = bool(box[fact] & values)
                if not any(within(rest, one) for one in by_fact[fact]):
                    if not fits:
                        break
                    yield from walk(rest, number + 1, met, let_in)
                elif not fits:
                    return
                box = {**box, fact: box[fact] & values}
                if any(within(box, one) for one in by_fact[fact]):
                    return
            if not fits:
                number += 1
                continue
            met = (*met, row)
            if row.outcome.is_verdict:
                yield End(box, met, row.outcome, let_in)
                return
            if row.outcome is not Outcome.WARNING:
                yield End(box, met, row.outcome, let_in)
                if row.then is None:
                    return
                let_in = True
            if isinstance(row.then, Outcome):
                yield End(box, met, row.then, let_in)
                return
            assert row.then is not None
            number = starts[row.then]
        yield End(box, met, None, let_in)

    yield from walk(every(facts), 0, (), False)
