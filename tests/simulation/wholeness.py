"""Whether a snapshot, a tag or a branch is readable whole; and if not, whether the pages exclude
that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_stream.table.layout import snapshot_path
from tests.simulation import rules
from tests.simulation.limits import LATE_PUT, TAG_OF_ROLLBACK, TAGGED_SLEEPER, UNSURE_TAG, Limit
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.truth import Truth

Key = tuple[str, object]
"""`snapshot` and its id, or `tag` or `branch` and its path."""


def is_whole(truth: Truth, key: Key, state: State) -> bool:
    """Whether all files are there. False if its maker has still to look. Raises `Limit`,
    `Violation`.
    """
    missing = state.files - truth.paths
    if not missing:
        return True
    if any(one.putting is state for one in truth.world.processes if one.alive_at_work):
        return False
    limit = _limit(truth, key, state)
    if limit is not None:
        raise Limit(limit)
    raise Violation(rules.WHOLE, f"{key[0]} {key[1]} lacks {sorted(missing)}")


def _limit(truth: Truth, key: Key, state: State) -> str | None:
    if _is_unsure(truth, key):
        return UNSURE_TAG
    if state.rolled_back:
        return TAG_OF_ROLLBACK
    maker = state.made_by
    if key[0] == "snapshot" and state.slept:
        late = snapshot_path(state.id) in truth.late or maker is None or maker.dead
        if late:
            return LATE_PUT
    if (key[0] != "snapshot" and state.slept) or (maker is not None and maker.drops != truth.drops):
        return TAGGED_SLEEPER
    return None


def _is_unsure(truth: Truth, key: Key) -> bool:
    """Whether this is a tag whose maker could not look afterwards whether its snapshot still
    stood.
    """
    if key[0] != "tag":
        return False
    maker = truth.tags[str(key[1])][1]
    return key[1] in truth.late or key[1] in truth.unsure or maker.dead or maker.error is not None
