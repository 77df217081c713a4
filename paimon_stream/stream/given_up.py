"""Which batches an operator has given up, under the commit user of a sink and under its old names
(exactly-once.md §8).
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from paimon_stream.stream.evidence import Evidence
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.register import RegisteredWriter

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Batches as pairs of the first and the last one, as in `RegisteredWriter`."""


def is_given_up(batch_id: int, given_up: Ranges) -> bool:
    """Whether one of the ranges has the batch."""
    return any(first <= batch_id <= last for first, last in given_up)


def last_not_given_up(batches: range, given_up: Ranges) -> int | None:
    """The last of the batches that no operator has given up; None if there is none."""
    last = batches.stop - 1
    for first_of_range, last_of_range in sorted(given_up, reverse=True):
        if first_of_range <= last <= last_of_range:
            last = first_of_range - 1
    return last if last in batches else None


def without_given_up(entry: JournalEntry | None, given_up: Ranges) -> JournalEntry | None:
    """The entry, unless an operator has given its batch up, and without the batch before, if that
    was given up: the run that removes these entries may have been killed.
    """
    if entry is None or is_given_up(entry.batch_id, given_up):
        return None
    previous = entry.previous
    if previous is not None and is_given_up(previous.batch_id, given_up):
        return replace(entry, previous=None)
    return entry


def given_up_as(evidence: Evidence, user: str, old: Collection[RegisteredWriter]) -> Ranges:
    """What was given up of the batches of a commit user, under it or under another name of its
    sink: an operator who has decided under one is not asked again under the other. The user is that
    of this stream, or one of the `old` names that it may have had. What was given up under this
    stream's own name counts for each.
    """
    is_mine = user == evidence.identity.user
    names = _names_of_this_sink(evidence, old) if is_mine else _names_of(user, old)
    return (*evidence.given_up, *chain.from_iterable(one.given_up for one in names))


def _names_of_this_sink(
    evidence: Evidence, old: Collection[RegisteredWriter]
) -> list[RegisteredWriter]:
    """The old names that count as names of this sink. Where the query has other sinks, one does
    only if it was in a run with each of them, as this one was: it may be a new name of one of
    those.
    """
    mine = evidence.runs_of(evidence.identity.user)
    beside = [one for one in evidence.siblings if not mine.isdisjoint(one.runs)]
    return [one for one in old if not any(one.runs.isdisjoint(other.runs) for other in beside)]


def _names_of(user: str, old: Collection[RegisteredWriter]) -> Iterator[RegisteredWriter]:
    """The old name itself, and those that may be later names of it. One that was in a run with it
    is another sink.
    """
    for one in (name for name in old if name.user == user):
        yield from (name for name in old if name is one or name.runs.isdisjoint(one.runs))
