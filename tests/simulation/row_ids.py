"""Tables with row tracking: what must hold of the ids that commits give to rows."""

from __future__ import annotations

from paimon_stream.format.entries import FileSource
from tests.simulation import rules
from tests.simulation.state import State, Violation

KIND = "row tracking"
"""Its name among those who take part."""

OPTIONS = {"row-tracking.enabled": "true"}

RULE = rules.ROW_IDS


def check_row_ids(state: State) -> None:
    """Every file that was written has ids, no two files have the same, and the next commit's are
    above them. The ids of compacted rows are in their files, which hold nothing here.
    """
    end = 0
    written = [one.file for one in state.live.values() if one.file.file_source == FileSource.APPEND]
    for file in sorted(written, key=lambda one: one.first_row_id or 0):
        if file.first_row_id is None:
            raise Violation(RULE, f"{file.file_name} of snapshot {state.id} has no ids")
        if file.first_row_id < end:
            raise Violation(
                RULE, f"{file.file_name} of snapshot {state.id} has the ids of another file"
            )
        end = file.first_row_id + file.row_count
    if end > (state.snapshot.next_row_id or 0):
        raise Violation(
            RULE,
            f"snapshot {state.id} gives the ids from {state.snapshot.next_row_id} on, below {end}",
        )
