"""What must hold of every compaction of data files."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from paimon_stream.format.binary_row import deserialize
from paimon_stream.format.entries import ManifestEntry
from tests.kits.commits import FIELDS
from tests.simulation import rules
from tests.simulation.rewriting import pieces_of
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

OURS = ("compactor", "second compactor", "stream")
UNCHANGED = rules.COMPACTED


def check_compaction(world: World, before: State | None, after: State) -> None:
    """The snapshot of a compaction has the rows of the one before, in the same partitions. This
    package also keeps columns and, in fixed buckets of append tables, the order of rows. With keys,
    no two files of a level share keys.
    """
    if before is None or (before.live.keys() == after.live.keys() and not world.keyed):
        return
    old, new = _places(world, before), _places(world, after)
    if old != new:
        differ = sorted({one for one, _ in old.items() ^ new.items()})
        raise Violation(
            UNCHANGED, f"snapshot {after.id} has other rows of {differ} than {before.id}"
        )
    ours = after.made_by is not None and after.made_by.actor.kind in OURS
    if ours:
        _check_columns(world, before, after)
    if world.keyed:
        _check_levels(after)
    elif world.buckets > 0 and ours:
        for place in set(old.values()):
            _check_order(world, place, before, after)


def _places(world: World, state: State) -> dict[str, tuple[bytes, int]]:
    return {
        piece.file: (entry.partition, entry.bucket)
        for entry in state.live.values()
        for piece in pieces_of(world, entry)
    }


def _check_columns(world: World, before: State, after: State) -> None:
    schema_of = {
        one.file: entry.file.schema_id
        for entry in before.live.values()
        for one in pieces_of(world, entry)
    }
    for entry in after.live.values():
        for piece in pieces_of(world, entry):
            if schema_of[piece.file] > entry.file.schema_id:
                what = (
                    f"{piece.file} loses columns in {entry.file.file_name} of snapshot {after.id}"
                )
                raise Violation(UNCHANGED, what)


def _check_levels(state: State) -> None:
    levels: dict[tuple[bytes, int, int], list[tuple[int, int, str]]] = {}
    for entry in state.live.values():
        file = entry.file
        if file.level:
            low, high = (
                deserialize([FIELDS[0].type], key)[0] for key in (file.min_key, file.max_key)
            )
            run = levels.setdefault((entry.partition, entry.bucket, file.level), [])
            run.append((low, high, file.file_name))
    for (_, _, level), run in levels.items():
        for one, other in pairwise(sorted(run)):
            if one[1] >= other[0]:
                what = f"{one[2]} and {other[2]} of snapshot {state.id} share keys on level {level}"
                raise Violation(rules.LEVELS, what)


def _check_order(world: World, place: tuple[bytes, int], before: State, after: State) -> None:
    """Files that begin at the same number were in no order before."""
    was = {
        one.file: entry.file.min_sequence_number
        for entry in _in_order(before, place)
        for one in pieces_of(world, entry)
    }
    now = [one.file for entry in _in_order(after, place) for one in pieces_of(world, entry)]
    for one, other in pairwise(now):
        if was[one] > was[other]:
            raise Violation(UNCHANGED, f"{one} comes before {other} in snapshot {after.id}")


def _in_order(state: State, place: tuple[bytes, int]) -> list[ManifestEntry]:
    """The files of a bucket in the order in which rows are returned."""
    here = [one for one in state.live.values() if (one.partition, one.bucket) == place]
    return sorted(here, key=lambda one: one.file.min_sequence_number)
