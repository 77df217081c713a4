"""Tables with a primary key and deletion vectors: what readers must see. The index files are real.
Each file that a writer writes has a key of its own, so no file loses all of its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paimon_stream.format.deletion_vectors import Positions, deleted_positions
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.index_manifest import DELETION_VECTORS
from tests.simulation import rules
from tests.simulation.rewriting import pieces_of, unmarked
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

KIND = "deletion vectors"
"""Its name among those who take part."""

OPTIONS = {"deletion-vectors.enabled": "true"}
RULE = rules.EACH_KEY_ONCE


def check_vectors(world: World, state: State) -> None:
    """Of the files from level 1 on, every key has one row that is not marked, and that is its
    newest.
    """
    newest: dict[tuple[bytes, int], int] = {}
    seen: dict[tuple[bytes, int], int] = {}
    for entry in (one for one in state.live.values() if one.file.level > 0):
        for piece in pieces_of(world, entry):
            for key in piece.values:
                place = entry.partition, key
                newest[place] = max(newest.get(place, -1), piece.number)
        for piece in unmarked(world, entry, marked(world, state, entry)):
            for key in piece.values:
                if (entry.partition, key) in seen:
                    raise Violation(
                        RULE,
                        f"snapshot {state.id} shows key {key} twice, also in {entry.file.file_name}",
                    )
                seen[entry.partition, key] = piece.number
    if seen != newest:
        wrong = sorted(key for (_, key), number in newest.items() if seen.get((_, key)) != number)
        raise Violation(RULE, f"snapshot {state.id} does not show the newest rows of keys {wrong}")


def marked(world: World, state: State, entry: ManifestEntry) -> Positions:
    """The positions of the rows of a live file that are deleted."""
    for index in state.index:
        for one in index.file.deletions or ():
            if index.file.index_type == DELETION_VECTORS and one.data_file == entry.file.file_name:
                name = index.file.file_name
                if name not in world.truth.archive.indexes:
                    raise Violation(rules.WHOLE, f"snapshot {state.id} names {name}")
                return deleted_positions(
                    world.truth.archive.indexes[name], one, entry.file.row_count, name
                )
    return np.empty(0, np.int64)
