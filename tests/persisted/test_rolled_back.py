"""Streams that stopped, and whose tables were rolled back, or lost all snapshots that the stream
remembers.

`rolled_back.py` made the states with the code of each release. Here is what a restart makes of
them: a stream never goes on over rows that were taken out of the table, and goes on after a plain
outage.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.errors import CommitLost, HistoryUnknown, ReplayError, TableRolledBack
from paimon_stream.options import ON_TABLE_CHANGE, ON_UNKNOWN_HISTORY
from tests.persisted.archive import Killed, all_rolled_back
from tests.persisted.restart import Restart
from tests.persisted.rolled_back import OTHERS, STATES
from tests.persisted.streams import FILES, STREAMS, ordered

LATER = timedelta(minutes=1)
CONTINUE = {ON_TABLE_CHANGE.key: "continue", ON_UNKNOWN_HISTORY.key: "continue"}

# By state, the errors of which one must stop the stream. It must go on where there is none.
STOPS: dict[str, tuple[type[ReplayError], ...]] = {
    "gone": (TableRolledBack,),
    "gone-damaged": (TableRolledBack, HistoryUnknown),
    "followed": (TableRolledBack, CommitLost),
    "followed-damaged": (TableRolledBack, CommitLost, HistoryUnknown),
    "expired": (TableRolledBack, HistoryUnknown),
    "expired-damaged": (HistoryUnknown,),
    "expired-emptied": (HistoryUnknown,),
    "killed": (TableRolledBack, HistoryUnknown),
    "killed-expired": (),  # nothing is left that says what the killed run had removed
    "outage": (),
    "others": (),
    "others-damaged": (),  # the snapshot of the stream is there, so no note matters
    "others-outage": (),
    "others-outage-damaged": (),  # a live file of batch 1 outweighs every note
}
HOLES = {state for state in STATES if not state.startswith(("outage", "others"))}
"""The states in which batch 1 was taken back."""


def cases(*states: str) -> list[Any]:
    """The states in each archive. `make test` takes those that the newest Spark has made."""
    newest = max(stopped.spark for stopped in all_rolled_back())
    return [
        pytest.param(
            stopped,
            state,
            id=f"{stopped.name}-{state}",
            marks=() if stopped.spark == newest else pytest.mark.full,
        )
        for stopped in all_rolled_back()
        for state in states
    ]


def unpacked(stopped: Killed, state: str, folder: Path) -> Path:
    (root,) = stopped.unpack(folder, [state])
    return root


def own_rows(restart: Restart) -> list[dict[str, Any]]:
    """The rows that the stream has in the table, or that were there before it."""
    return ordered(row for row in restart.table().to_arrow().to_pylist() if row["n"] != OTHERS)


def without_hole(stopped: Killed, state: str, batches: int) -> list[dict[str, Any]]:
    """The rows of this many batches, without those of batch 1 if they were taken back."""
    stream = STREAMS[stopped.stream]
    gone = stream.batch(1) if state in HOLES else []
    return [row for row in stream.expected(batches) if row not in gone]


@pytest.mark.parametrize("stopped", all_rolled_back(), ids=lambda stopped: stopped.name)
def test_each_archive_has_all_states(stopped: Killed) -> None:
    assert stopped.points() == set(STATES) == set(STOPS)


@pytest.mark.parametrize(("stopped", "state"), cases(*(state for state in STATES if STOPS[state])))
def test_a_stream_does_not_go_on_over_rows_that_may_be_gone(
    stopped: Killed, state: str, tmp_path: Path
) -> None:
    restart = Restart(unpacked(stopped, state, tmp_path), STREAMS[stopped.stream], LATER)
    assert restart.first_batch == 2
    before = restart.table().snapshots()
    with pytest.raises(STOPS[state]):
        restart.run(2)
    assert restart.table().snapshots() == before


@pytest.mark.parametrize(
    ("stopped", "state"), cases(*(state for state in STATES if not STOPS[state]))
)
def test_a_stream_goes_on_after_an_outage_or_beside_rollbacks_of_others(
    stopped: Killed, state: str, tmp_path: Path
) -> None:
    restart = Restart(unpacked(stopped, state, tmp_path), STREAMS[stopped.stream], LATER)
    assert restart.first_batch == 2
    (report,) = restart.run(2)
    assert report.outcome == "committed"
    assert own_rows(restart) == without_hole(stopped, state, FILES)


@pytest.mark.parametrize(("stopped", "state"), cases(*(state for state in STATES if STOPS[state])))
def test_after_the_operators_decision_no_restart_stops_again(
    stopped: Killed, state: str, tmp_path: Path
) -> None:
    root, stream = unpacked(stopped, state, tmp_path), STREAMS[stopped.stream]
    (report,) = Restart(root, stream, LATER, options=CONTINUE).run(2)
    assert report.outcome == "committed"
    next_run = Restart(root, stream, LATER, run_id="the-run-after-it")
    (report,) = next_run.run(3)
    assert report.outcome == "committed"
    assert own_rows(next_run) == without_hole(stopped, state, 4)
