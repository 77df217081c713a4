"""Planted bugs that show where somebody changes the history of the table: rollbacks and fast
forwards before an outage, branches that are made again, renamed sinks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from paimon_stream.api import doctor
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import MARK_PREFIX
from paimon_stream.maintenance import rollback
from paimon_stream.maintenance.branches import _Forward
from paimon_stream.runtime import Runtime
from paimon_stream.storage import branch
from paimon_stream.storage.base import Storage
from paimon_stream.stream import (
    beginnings,
    branch_origin,
    dead_attempts,
    gather,
    memory,
    old_names,
    own_history,
    recommit,
)
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.table import fate, removals, table
from paimon_stream.table.removals import RemovalNotes, Removals, Removed, read_removals
from paimon_stream.table.snapshots import SnapshotStore
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.cast import HISTORIES, HISTORY, NAMESAKE

ALL = (HISTORY, *sorted(HISTORIES))
DOCTOR = (HISTORY, "doctor")


@bug(
    "Nobody reads the notes of removed snapshots.",
    HISTORY,
    "rollback",
    "long outage",
    rule=rules.LOSSES_REPORTED,
    why="What was rolled back counts as expired once everything of the time has expired.",
)
def notes_of_removals_are_not_read(patch: Patch) -> None:
    for module in (gather, fate):
        patch.setattr(module, "read_removals", lambda storage: Removals())


@bug(
    "A rollback notes nothing before it removes snapshots.",
    HISTORY,
    "rollback",
    "long outage",
    rule=rules.LOSSES_REPORTED,
    why="What was rolled back counts as expired once everything of the time has expired.",
)
def a_rollback_notes_nothing(patch: Patch) -> None:
    patch.setattr(RemovalNotes, "announce", lambda self, removed: True)
    patch.setattr(RemovalNotes, "complete", lambda self: None)


@bug(
    "A rollback to an expired target does not look for batches that have expired above it.",
    HISTORY,
    "rollback",
    "tagger",
    "long outage",
    rule=rules.LOSSES_REPORTED,
    why="Their rows go with the rollback, and later their absence looks like an expiry.",
)
def expired_batches_are_not_noted(patch: Patch) -> None:
    patch.setattr(rollback, "_expired_above", lambda *given: [])


@bug(
    "A fast forward does not note what main loses.",
    HISTORY,
    "fast forward",
    "maker of branches",
    "long outage",
    rule=rules.LOSSES_REPORTED,
    why="Main's streams go on over the batches that the branch lacks.",
)
def a_fast_forward_notes_nothing(patch: Patch) -> None:
    patch.setattr(_Forward, "lost", lambda *given: [])


@bug(
    "A batch that had expired is put back with any snapshot, also with one below it.",
    HISTORY,
    "fast forward",
    "maker of branches",
    "long outage",
    "tagger",
    rule=rules.LOSSES_REPORTED,
    why="The second fast forward to a branch takes such a batch, and puts back the one before it.",
    within=1,
    script=[[0, 0, 0], [], [0], [7], [8, 0, 0, 1], [6], [9], [0, 15], [6], [10], [9], [0]],
)
def what_had_expired_is_put_back_with_what_lies_below(patch: Patch) -> None:
    real = removals._is_back

    def is_back(removed: Sequence[Removed], nonces: set[str]) -> list[bool]:
        are_back = list(zip(removed, real(removed, nonces), strict=True))
        is_any_back = any(back for entry, back in are_back if entry.snapshot is not None)
        return [is_any_back if entry.snapshot is None else back for entry, back in are_back]

    patch.setattr(removals, "_is_back", is_back)


@bug(
    "A fast forward leaves out what the branch's streams keep.",
    HISTORY,
    "fast forward",
    "maker of branches",
    "long outage",
    "tagger",
    "batch writer",
    rule=rules.ONCE,
    seed=256,
    why="A branch made from main has a batch that nothing says the stream had published.",
)
def registers_of_the_branch_stay_there(patch: Patch) -> None:
    patch.setattr(_Forward, "copy_streams", lambda *given: None)


@bug(
    "What came with a branch from main does not count as committed.",
    *ALL,
    rule=rules.ONCE,
    seed=142,
    why="The stream of a branch writes a batch again that came back with the branch.",
)
def what_came_with_a_branch_is_written_again(patch: Patch) -> None:
    patch.setattr(branch_origin, "_came_as", lambda found: None)
    patch.setattr(branch_origin, "_may_have_come_as", lambda found: None)


@bug(
    "A branch that was deleted and made again counts as the same one.",
    HISTORY,
    "maker of branches",
    rule=rules.LOSSES_REPORTED,
    why="Its streams go on in the new branch, which lacks their rows.",
)
def a_branch_has_no_identity(patch: Patch) -> None:
    patch.setattr(gather, "made_millis", lambda *given: 0)
    patch.setattr(StreamRefusals, "table_replaced", lambda *given: None)


@bug(
    "A checkpoint ahead of a branch is accepted where the branch has a snapshot of the stream.",
    HISTORY,
    "maker of branches",
    "mover of streams",
    "tagger",
    rule=rules.LOSSES_REPORTED,
    why="The branch lacks the batches between.",
)
def a_checkpoint_ahead_of_a_branch_is_accepted(patch: Patch) -> None:
    patch.setattr(StreamRefusals, "checkpoint_ahead", lambda *given: None)


@bug(
    "A renamed sink is not told from a new one.",
    HISTORY,
    "renamer",
    "long outage",
    rule=rules.ONCE,
    why="It writes the batch again that it had published under its old name.",
)
def a_renamed_sink_begins_anew(patch: Patch) -> None:
    patch.setattr(old_names, "_may_have_published", lambda *given: False)
    patch.setattr(own_history, "_is_published_as_another", lambda *given: False)


@bug(
    "A renamed sink does not ask what became of the batches of its old name.",
    HISTORY,
    "renamer",
    "rollback",
    rule=rules.LOSSES_REPORTED,
    why="It goes on over those that were rolled back.",
)
def a_renamed_sink_forgets_its_batches(patch: Patch) -> None:
    patch.setattr(old_names, "_which_lost", lambda *given: None)


@bug(
    "Options of the sink that another engine stored in the table count.",
    HISTORY,
    "setter of options",
    "rollback",
    rule=rules.LOSSES_REPORTED,
    why="paimon-stream.on-table-change = continue lets every stream pass.",
)
def options_in_the_table_count(patch: Patch) -> None:
    patch.setattr(table.opt, "of_table", dict)


@bug(
    "The clocks of two machines are expected to agree.",
    HISTORY,
    "rollback",
    rule=rules.NO_FALSE_ALARM,
    why="A table that was made a minute ahead counts as younger than its stream's batches.",
)
def clocks_agree(patch: Patch) -> None:
    patch.setattr(beginnings, "CLOCKS_DIFFER_MILLIS", 0)


@bug(
    "Marks count wherever they are, also where another engine has copied them.",
    HISTORY,
    "copier of marks",
    rule=rules.ADVICE,
    why="The snapshot that replaced a batch counts as one of this package, so recommit refuses the batch that is lost.",
)
def copied_marks_count(patch: Patch) -> None:
    patch.setattr(recommit, "is_ours", has_marks)


def has_marks(snapshot: Snapshot) -> bool:
    """Whether a snapshot has properties of this package, for whichever snapshot they were."""
    return any(key.startswith(MARK_PREFIX) for key in snapshot.properties)


@bug(
    "The clean-up of a dead attempt looks only at tags of the attempt's own snapshot.",
    HISTORY,
    "rollback",
    "tagger",
    "maker of branches",
    rule=rules.WHOLE,
    seed=41,
    why="The attempt was published and rolled back, and a branch still refers to the files that go.",
)
def roots_beside_the_history_are_not_asked(patch: Patch) -> None:
    def kept(storage: Storage, runtime: Runtime, names: Collection[str]) -> frozenset[str]:
        tags = SnapshotStore(storage, runtime).tags()
        tagged = any(tag.delta_manifest_list in names for tag in tags)
        return frozenset(names) if tagged else frozenset()

    patch.setattr(dead_attempts, "names_kept_beside_history", kept)


@bug(
    "The note of a branch lies where the commit user branch-<name> has its folder.",
    HISTORY,
    "maker of branches",
    NAMESAKE,
    rule=rules.NO_REASON,
    why="Once such a stream has begun, the branch cannot be deleted, because no file can be written at the path of a folder.",
)
def a_note_lies_in_the_folder_of_a_user(patch: Patch) -> None:
    patch.setattr(branch, "branch_note", branch.older_branch_note)


@bug(
    "The doctor does not read the notes of removed snapshots.",
    *DOCTOR,
    "rollback",
    "long outage",
    rule=rules.DOCTOR,
    why="What a rollback took counts as expired, so the batch is to be written, and the sink, which reads them, stops.",
)
def the_doctor_reads_no_notes(patch: Patch) -> None:
    real = doctor.gather

    def gather(*asked: Any, **known: Any) -> Any:
        return replace(real(*asked, **known), removals=Removals)

    patch.setattr(doctor, "gather", gather)


@bug(
    "The doctor does not read the registers of the query's other commit users.",
    *DOCTOR,
    "renamer",
    "long outage",
    rule=rules.DOCTOR,
    seed=39,
    why="A renamed sink counts as a new one whose restart is safe, and the sink, which reads them, stops.",
)
def the_doctor_knows_no_other_user(patch: Patch) -> None:
    real = doctor.gather

    def gather(*asked: Any, **known: Any) -> Any:
        evidence = real(*asked, **known)
        return replace(evidence, others=replace(evidence.others, registers=tuple))

    patch.setattr(doctor, "gather", gather)


@bug(
    "A note of removed snapshots that cannot be read counts as none.",
    HISTORY,
    "rollback",
    "long outage",
    "damager of notes",
    rule=rules.LOSSES_REPORTED,
    why="What was rolled back counts as expired once everything of the time has expired.",
)
def damaged_notes_count_as_none(patch: Patch) -> None:
    for module in (gather, fate):
        patch.setattr(module, "read_removals", without_doubts)


def without_doubts(storage: Storage) -> Removals:
    """What the notes say that can be read."""
    return replace(read_removals(storage), doubts=())


@bug(
    "A run that has published nothing does not look whether what it has seen still stands.",
    HISTORY,
    "long outage",
    "maker of branches",
    "fast forward",
    "renamer",
    "batch writer",
    rule=rules.LOSSES_REPORTED,
    why="What it has seen has expired, and it goes on over a batch of its old name that main loses.",
    within=1,
    script=[
        *([0, 0, 1], [], [1], [7], [1], [1], [2], [11], [1], [9, 0, 1]),
        *([10], [1], [6], [8]),
    ],
)
def a_run_without_batches_misses_none(patch: Patch) -> None:
    patch.setattr(memory, "_still_sees", lambda *_: True)
