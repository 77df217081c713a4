"""The batches that an operator has given up, under a sink's commit user and under its old names
(exactly-once.md §8).
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from paimon_stream.stream.evidence import Evidence
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.register import RegisteredWriter

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Batches as pairs of the first and the last one, as in `RegisteredWriter`."""


def is_given_up(batch_id: int, given_up: Ranges) -> bool:
    """Whether the batch lies in one of the ranges."""
    return any(first <= batch_id <= last for first, last in given_up)


def last_not_given_up(batches: range, given_up: Ranges) -> int | None:
    """The last of the batches that no operator has given up; None if there is none."""
    candidate = batches.stop - 1
    for first, last in sorted(given_up, reverse=True):
        if first <= candidate <= last:
            candidate = first - 1
    if candidate not in batches:
        return None
    return candidate


def without_given_up(entry: JournalEntry | None, given_up: Ranges) -> JournalEntry | None:
    """The journal entry; None if an operator has given its batch up. If an operator has given up
    the previous batch, the returned entry does not name that batch. The journal may still have
    entries of batches that were given up, because the run that removes them may have been killed.
    """
    if entry is None or is_given_up(entry.batch_id, given_up):
        return None
    previous = entry.previous
    if previous is not None and is_given_up(previous.batch_id, given_up):
        return replace(entry, previous=None)
    return entry


def given_up_as(evidence: Evidence, user: str, old: Collection[RegisteredWriter]) -> Ranges:
    """The batches of a commit user that an operator has given up. Names of the same sink count
    together: an operator who has decided under one name is not asked again under the other. Batches
    that were given up under this stream's own name count for every name.

    Args:
        evidence: what the storage holds.
        user: this stream's commit user, or one of the old names.
        old: the names that this stream may have had.
    """
    if user == evidence.identity.user:
        registers = names_of_this_sink(evidence, old)
    else:
        registers = _names_of(user, old)
    return (
        *evidence.given_up,
        *chain.from_iterable(register.given_up for register in registers),
    )


def names_of_this_sink(
    evidence: Evidence, old: Collection[RegisteredWriter]
) -> list[RegisteredWriter]:
    """The old names that count as names of this sink. If the query has other sinks, a name counts
    only if it was in a run with each of these sinks, as this sink was. A name that was not may be a
    new name of another sink.
    """
    runs = evidence.runs_of(evidence.identity.user)
    other_sinks = [sibling for sibling in evidence.siblings if not runs.isdisjoint(sibling.runs)]

    def was_beside_all_sinks(name: RegisteredWriter) -> bool:
        return not any(name.runs.isdisjoint(sink.runs) for sink in other_sinks)

    return list(filter(was_beside_all_sinks, old))


def _names_of(user: str, old: Collection[RegisteredWriter]) -> list[RegisteredWriter]:
    """The old name `user`, and the names that the same sink may have had later. A name that was in
    a run together with the old name belongs to another sink.
    """
    names: list[RegisteredWriter] = []
    for old_name in old:
        if old_name.user == user:
            names += [
                name for name in old if name is old_name or name.runs.isdisjoint(old_name.runs)
            ]
    return names
