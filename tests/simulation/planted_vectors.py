"""Small changes to the compaction of tables with deletion vectors that the simulation must
catch.
"""

from __future__ import annotations

from paimon_stream.commit.vectors import VectorChanges
from paimon_stream.compact import publish
from paimon_stream.compact.rewrite import KeyedRewriter
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.vectors import KIND


@bug(
    "A compaction writes no vectors for the rows that it has replaced.",
    KIND,
    "compactor",
    rule=rules.EACH_KEY_ONCE,
    why="The replaced rows are still shown.",
    seed=1,
)
def vectors_are_forgotten(patch: Patch) -> None:
    patch.setattr(KeyedRewriter, "_write_index", lambda *given: ())


@bug(
    "A new index file has only the vectors that have changed.",
    KIND,
    "compactor",
    rule=rules.EACH_KEY_ONCE,
    why="Rows that were marked are shown again.",
    seed=12,
)
def other_vectors_are_lost(patch: Patch) -> None:
    patch.setattr(VectorChanges, "_kept", lambda *given: iter(()))


@bug(
    "Nobody looks whether others have compacted the bucket and changed its vectors.",
    KIND,
    "compactor",
    "second compactor",
    "batch writer",
    rule=rules.EACH_KEY_ONCE,
    why="Rows that another compaction marked are shown again.",
    seed=4,
)
def vectors_of_others_are_lost(patch: Patch) -> None:
    patch.setattr(publish, "_is_alone", lambda *given: True)
    patch.setattr(publish.CompactionSource, "_is_as_read", lambda *given: True)
