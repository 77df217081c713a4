"""Tables that were rolled back below what a stream had written, or that look like it.

Each state is made of the folder of a stream that stopped after two batches, with the commands that
a user would give. The batches that the stream has done are 0 and 1, so a rollback to batch 0 takes
the rows of batch 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.table.table import load_table
from tests.kits.faults import Fault, FaultyStorage, Killed

STREAMS = ("unaware", "branch")
NOTE = "_paimon_stream/rolled-back.json"
OTHERS = -9
"""The `n` of all rows that others commit, which no row of the stream has."""


def snapshot_of(location: str, batch: int) -> int:
    """The id of the snapshot that has this batch of the stream."""
    found = [
        one for one in PaimonTable.load(location).snapshots() if one.commit_identifier == batch
    ]
    assert len(found) == 1, found
    return found[0].id


def roll_back(location: str) -> None:
    """Takes batch 1 out of the table."""
    PaimonTable.load(location).rollback_to(snapshot_of(location, 0))


def kill_rollback(location: str) -> None:
    """The same, but the process is killed when the snapshots are gone and nothing is noted yet."""
    storage = FaultyStorage(open_storage(location), [Fault(at=1, path=NOTE, stop=True)])
    try:
        rollback_to(load_table(storage), snapshot_of(location, 0))
    except Killed:
        return
    raise AssertionError("the rollback has not come to its note")


def commit_others(location: str) -> None:
    """Others commit so often that the ids of all snapshots that are gone are used again."""
    for number in range(4):
        rows = [{"id": 100 + number, "day": "d0", "n": OTHERS}]
        PaimonTable.load(location).append(pa.Table.from_pylist(rows))


def take_back_others(location: str) -> None:
    """Takes what others have committed after batch 1 out of the table."""
    PaimonTable.load(location).rollback_to(snapshot_of(location, 1))


def expire(location: str) -> None:
    """Only the newest snapshot is left, as after an outage that lasted longer than everything is
    kept.
    """
    table = PaimonTable.load(location)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="1 ms", protect_streams=False)
    left = PaimonTable.load(location).snapshots()
    assert [one.commit_identifier for one in left] == [BATCH_IDENTIFIER], left


def damage_note(location: str) -> None:
    """One byte of the note is another one."""
    storage = open_storage(location)
    data = storage.read(NOTE)
    place = data.rindex(b"-")
    storage.write(NOTE, data[:place] + b"+" + data[place + 1 :])


def empty_note(location: str) -> None:
    """The note has no bytes, as a power failure may leave it."""
    open_storage(location).write(NOTE, b"")


Step = Callable[[str], None]

STATES: dict[str, Sequence[Step]] = {
    # Batch 1 is gone.
    "gone": (roll_back,),
    "gone-damaged": (roll_back, damage_note),
    "followed": (roll_back, commit_others),
    "followed-damaged": (roll_back, commit_others, damage_note),
    "expired": (roll_back, commit_others, expire),
    "expired-damaged": (roll_back, commit_others, expire, damage_note),
    "expired-emptied": (roll_back, commit_others, expire, empty_note),
    "killed": (kill_rollback,),
    "killed-expired": (kill_rollback, roll_back, commit_others, expire),
    # Nothing of the stream was taken back.
    "outage": (commit_others, expire),
    "others": (commit_others, take_back_others),
    "others-damaged": (commit_others, take_back_others, damage_note),
    "others-outage": (commit_others, take_back_others, commit_others, expire),
    "others-outage-damaged": (commit_others, take_back_others, commit_others, expire, damage_note),
}


def bring_about(state: str, location: str) -> None:
    """Brings the table of a stopped stream into the state."""
    for step in STATES[state]:
        step(location)


def own_note(root: Path, branch: str | None) -> Path:
    """The file of the note in a folder that was unpacked."""
    table = root / "table"
    return (table if branch is None else table / "branch" / f"branch-{branch}") / NOTE
