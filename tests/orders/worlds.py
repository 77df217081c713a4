"""The worlds, each declared once."""

from __future__ import annotations

from tests.orders.cast import OneLeft, batches, beside, commits, in_turn, others
from tests.orders.setting import Setting
from tests.simulation.actors.compactors import Compactor
from tests.simulation.actors.writers import BatchWriter

WORLDS: list[Setting] = [
    Setting(
        "batch writer × batch writer",
        "Two batch commits at once.",
        others(BatchWriter, BatchWriter),
        commits(1),
        quick=True,
    ),
    Setting(
        "stream × batch writer",
        "A stream begins a run and writes a batch, beside a batch commit.",
        beside(BatchWriter),
        batches(1),
        quick=True,
    ),
    Setting(
        "stream × expiry",
        "A stream begins a run and writes a batch, while all other snapshots expire.",
        beside(OneLeft),
        in_turn(commits(2), batches(1)),
        quick=True,
    ),
    Setting(
        "stream × compaction",
        "A stream begins a run and writes a batch, while the files of its table are compacted.",
        beside(Compactor),
        in_turn(commits(2), batches(1)),
        flags={"compacted": True},
        quick=True,
    ),
    Setting(
        "compaction × compaction",
        "Two compactions of the same files.",
        others(Compactor, Compactor),
        commits(2),
        flags={"compacted": True},
        quick=True,
    ),
]

BY_NAME = {one.name: one for one in WORLDS}
