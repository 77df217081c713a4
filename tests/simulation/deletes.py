"""Rows that are deleted from append tables by deletion vectors: how they are found, and what must
hold. The index files are real. A deletion means the row at one position in every file, because no
simulated file holds any rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_stream.format.index_manifest import DELETION_VECTORS
from tests.simulation import rules
from tests.simulation.state import State, Violation
from tests.simulation.vectors import marked

if TYPE_CHECKING:
    from tests.simulation.world import World

KIND = "deletes"
"""Its name among those who take part."""

OPTIONS = {"deletion-vectors.enabled": "true"}
RULE = rules.DELETES


def check_deletes(world: World, before: State | None, state: State) -> None:
    """No commit takes a mark away, only rows that somebody wanted to delete are marked, and a
    vector is of a live file. `before` is the state on which a commit was built; None after a
    rollback.
    """
    for name, entry in state.live.items():
        now = set(marked(world, state, entry).tolist())
        if now - world.asked.get(name, set()):
            raise Violation(
                RULE,
                f"snapshot {state.id} lacks rows {sorted(now)} of {name}, which nobody deleted",
            )
        was = before.live.get(name) if before is not None else None
        if (
            before is not None
            and was is not None
            and set(marked(world, before, was).tolist()) - now
        ):
            raise Violation(RULE, f"snapshot {state.id} has rows of {name} again that were deleted")
    for index in state.index:
        of = {one.data_file for one in index.file.deletions or ()} - state.live.keys()
        if index.file.index_type == DELETION_VECTORS and of:
            raise Violation(
                RULE, f"snapshot {state.id} has vectors of {sorted(of)}, which are not live"
            )
