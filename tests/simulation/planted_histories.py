"""Planted bugs that show where somebody changes the history of the table: rollbacks and fast
forwards before an outage, branches that are made again, renamed sinks.
"""

from __future__ import annotations

from paimon_stream.maintenance import rollback
from paimon_stream.maintenance.branches import _Forward
from paimon_stream.stream import evidence, ledger
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.table import fate, table
from paimon_stream.table.removals import RemovalNotes, Removals
from tests.simulation import rules
from tests.simulation.bug import Patch, bug
from tests.simulation.cast import HISTORIES, HISTORY

ALL = (HISTORY, *sorted(HISTORIES))


@bug(
    "Nobody reads the notes of removed snapshots.",
    HISTORY,
    "rollback",
    "long outage",
    rule=rules.LOSSES_REPORTED,
    why="What was rolled back counts as expired once everything of the time has expired.",
)
def notes_of_removals_are_not_read(patch: Patch) -> None:
    for module in (evidence, fate):
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
    patch.setattr(_Forward, "copy_streams", lambda self: None)


@bug(
    "What came with a branch from main does not count as committed.",
    *ALL,
    rule=rules.ONCE,
    seed=142,
    why="The stream of a branch writes a batch again that came back with the branch.",
)
def what_came_with_a_branch_is_written_again(patch: Patch) -> None:
    patch.setattr(ledger, "_came_with_branch", lambda found: None)
    patch.setattr(ledger, "_may_have_come_with_branch", lambda found: None)


@bug(
    "A branch that was deleted and made again counts as the same one.",
    HISTORY,
    "maker of branches",
    rule=rules.LOSSES_REPORTED,
    why="Its streams go on in the new branch, which lacks their rows.",
)
def a_branch_has_no_identity(patch: Patch) -> None:
    patch.setattr(evidence, "made_millis", lambda *given: 0)
    patch.setattr(ReplayErrors, "table_replaced", lambda *given: None)


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
    patch.setattr(ReplayErrors, "checkpoint_ahead", lambda *given: None)


@bug(
    "A renamed sink is not told from a new one.",
    HISTORY,
    "renamer",
    "long outage",
    rule=rules.ONCE,
    why="It writes the batch again that it had published under its old name.",
)
def a_renamed_sink_begins_anew(patch: Patch) -> None:
    patch.setattr(ledger, "_may_have_published", lambda *given: False)
    patch.setattr(ledger, "_is_sibling", lambda *given: False)


@bug(
    "A renamed sink does not ask what became of the batches of its old name.",
    HISTORY,
    "renamer",
    "rollback",
    rule=rules.LOSSES_REPORTED,
    why="It goes on over those that were rolled back.",
)
def a_renamed_sink_forgets_its_batches(patch: Patch) -> None:
    patch.setattr(ledger, "_judge_renamed", lambda *given: None)


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
    patch.setattr(ledger, "CLOCKS_DIFFER_MILLIS", 0)
