"""Worlds without a stream."""

from __future__ import annotations

from tests.orders.cast import OneLeft, OtherDeleter, TagOfFirst, TwoLeft, commits, others
from tests.orders.setting import Setting
from tests.simulation.actors.compactors import Compactor
from tests.simulation.actors.readers import Reader
from tests.simulation.actors.writers import BatchWriter, Deleter, Overwriter
from tests.simulation.deletes import OPTIONS as DELETES
from tests.simulation.dynamic import OPTIONS as DYNAMIC

COMPACTED = {"compacted": True}

OTHERS = [
    Setting(
        "batch writer × batch writer",
        "Two batch commits at once.",
        others(BatchWriter, BatchWriter),
        commits(1),
        quick=True,
    ),
    Setting(
        "batch writers with requests in flight",
        "The same on a store, where independent requests are under way at once.",
        others(BatchWriter, BatchWriter),
        commits(1),
        flags={"on_store": True, "in_flight": True},
    ),
    Setting(
        "batch writers of an empty table, requests in flight",
        "Two batch commits at once make the first two snapshots of a table on a store.",
        others(BatchWriter, BatchWriter),
        commits(0),
        flags={"on_store": True, "in_flight": True},
        quick=True,
    ),
    Setting(
        "batch writer × expiry",
        "A batch commit while all other snapshots expire.",
        others(BatchWriter, OneLeft),
        commits(2),
        quick=True,
    ),
    Setting(
        "overwriter × batch writer",
        "Somebody replaces the rows of the table beside a batch commit.",
        others(Overwriter, BatchWriter),
        commits(1),
    ),
    Setting(
        "compaction × compaction",
        "Two compactions of the same files.",
        others(Compactor, Compactor),
        commits(2),
        flags=COMPACTED,
        quick=True,
    ),
    Setting(
        "deleter × deleter",
        "Two delete one row of each file, not the same, by deletion vectors.",
        others(Deleter, OtherDeleter),
        commits(2),
        options=DELETES,
        flags={"deletes": True},
    ),
    Setting(
        "expiry × expiry",
        "One keeps one snapshot of four, the other two.",
        others(OneLeft, TwoLeft),
        commits(4),
        most=2,
        most_with_fault=1,
    ),
    Setting(
        "expiry × reader",
        "Somebody plans a read and looks for its files while their snapshot expires.",
        others(OneLeft, Reader),
        commits(2),
        quick=True,
    ),
    Setting(
        "expiry × tag",
        "Somebody tags the first snapshot while it expires.",
        others(OneLeft, TagOfFirst),
        commits(3),
        may=("tagger gets NotFound",),
        quick=True,
    ),
    Setting(
        "dynamic-bucket assigners",
        "Two batch writers give keys their buckets at once.",
        others(BatchWriter, BatchWriter),
        commits(1),
        options=DYNAMIC,
        may=("batch writer 1 gets IndexConflict", "batch writer 2 gets IndexConflict"),
        table={"keyed": True},
        flags={"dynamic": True},
    ),
]
