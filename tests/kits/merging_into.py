"""A model of MERGE: small, slow and obvious. Rows are dicts, and conditions are functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Holds = Callable[[Row, Row], bool | None]


class SeveralRows(Exception):
    """Several rows of the source would change one row."""


@dataclass(frozen=True)
class ModelClause:
    """A clause. The functions get a target row and a source row; what a clause has not is `{}`.

    Attributes:
        when: matched, not_matched or not_matched_by_source.
        holds: the condition.
        values: makes the new row; None for a deletion.
    """

    when: str
    holds: Holds
    values: Callable[[Row, Row], Row] | None


def _first(clauses: Sequence[ModelClause], when: str, target: Row, source: Row) -> Any:
    for clause in clauses:
        if clause.when == when and clause.holds(target, source) is True:
            return clause
    return None


def merged(
    target: Sequence[Row], source: Sequence[Row], on: Holds, clauses: Sequence[ModelClause]
) -> tuple[dict[int, Row], list[int], list[Row]]:
    """The updated rows by their places, the places of the deleted rows, and the inserted rows."""
    updated: dict[int, Row] = {}
    deleted: list[int] = []
    met = set()
    for place, row in enumerate(target):
        matches = [number for number, other in enumerate(source) if on(row, other) is True]
        met |= set(matches)
        if matches:
            found = [(_first(clauses, "matched", row, source[n]), source[n]) for n in matches]
        else:
            found = [(_first(clauses, "not_matched_by_source", row, {}), {})]
        acting = [(clause, other) for clause, other in found if clause is not None]
        if len(acting) > 1:
            raise SeveralRows
        for clause, other in acting:
            if clause.values is None:
                deleted.append(place)
            else:
                updated[place] = clause.values(row, other)
    inserted = []
    for number, other in enumerate(source):
        clause = None if number in met else _first(clauses, "not_matched", {}, other)
        if clause is not None:
            inserted.append(clause.values({}, other))
    return updated, deleted, inserted
