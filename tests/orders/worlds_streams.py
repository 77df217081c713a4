"""Worlds in which a stream begins a run and writes a batch. Its checkpoint has one batch before
that, so the run judges what the table has of it.
"""

from __future__ import annotations

from tests.orders.cast import (
    Busy,
    Cleaner,
    OneLeft,
    TagOfNewest,
    ToTheFirst,
    batches,
    beside,
    branched,
    commits,
    in_turn,
    killed,
    twins,
)
from tests.orders.setting import Setting
from tests.simulation.actors.compactors import Compactor
from tests.simulation.actors.histories import Forwarder
from tests.simulation.actors.java import JavaUnderLock, JavaWithoutLock, JavaWriter
from tests.simulation.actors.writers import BatchWriter, Committer, Deleter
from tests.simulation.catalogs import JDBC, REST
from tests.simulation.deletes import OPTIONS as DELETES
from tests.simulation.dynamic import OPTIONS as DYNAMIC
from tests.simulation.scheduler import DAY

COMPACTED = {"compacted": True}

STREAMS = [
    Setting(
        "stream × batch writer",
        "Beside a batch commit.",
        beside(BatchWriter),
        batches(1),
        quick=True,
    ),
    Setting(
        "stream × batch writer, requests in flight",
        "The same on a store, where independent requests are under way at once.",
        beside(BatchWriter),
        batches(1),
        flags={"on_store": True, "in_flight": True},
    ),
    Setting(
        "stream × committer",
        "Beside somebody who commits under numbers of his own.",
        beside(Committer),
        batches(1),
    ),
    Setting(
        "stream × compaction",
        "While the files of its table are compacted.",
        beside(Compactor),
        in_turn(commits(2), batches(1)),
        flags=COMPACTED,
        quick=True,
    ),
    Setting(
        "stream × deleter",
        "While somebody deletes rows by deletion vectors.",
        beside(Deleter),
        in_turn(commits(1), batches(1)),
        options=DELETES,
        flags={"deletes": True},
    ),
    Setting(
        "stream × expiry",
        "While all other snapshots expire.",
        beside(OneLeft),
        in_turn(commits(2), batches(1)),
        quick=True,
    ),
    Setting(
        "stream × orphan removal",
        "It takes the files of a run that died two days ago, before it published them.",
        beside(Cleaner),
        in_turn(batches(1), killed("snapshot/", 2 * DAY)),
        most=3,
        most_with_fault=1,
    ),
    Setting(
        "stream × tag",
        "While somebody tags the newest snapshot.",
        beside(TagOfNewest),
        batches(1),
        quick=True,
    ),
    Setting(
        "stream × rollback",
        "While the table is rolled back, which the pages exclude.",
        beside(ToTheFirst),
        in_turn(commits(2), batches(1)),
        may=None,
        most=2,
        most_with_fault=0,
        flags={"disturbed": True},
        limits=True,
    ),
    Setting(
        "stream × Java's writer",
        "Java's rename fails where a file is there.",
        beside(JavaWriter),
        batches(1),
        quick=True,
    ),
    Setting(
        "stream × Java's writer without a lock",
        "Java's rename replaces a file that is there.",
        beside(JavaWithoutLock),
        batches(1),
        limits=True,
    ),
    Setting(
        "stream × Java's writer under the lock",
        "Both hold the lock of a JDBC catalog to publish.",
        beside(JavaUnderLock),
        batches(1),
        catalog=JDBC,
    ),
    Setting(
        "stream × batch writer by a REST server",
        "The server of a REST catalog publishes for both.",
        beside(BatchWriter),
        batches(1),
        catalog=REST,
    ),
    Setting(
        "twins",
        "A second driver runs on the same checkpoint.",
        twins,
        batches(1),
        may=("stream gets SharedCheckpoint", "twin gets SharedCheckpoint"),
        most=2,
        most_with_fault=1,
    ),
    Setting(
        "stream × its own successor",
        "It is killed at each change, which may still arrive while its successor runs.",
        beside(),
        batches(1),
        kills=True,
    ),
    Setting(
        "stream × fast forward",
        "While the table becomes what a branch is, which the pages exclude.",
        beside(Forwarder),
        in_turn(batches(1), branched),
        may=None,
        most=2,
        most_with_fault=0,
        flags={"disturbed": True, "history": True},
        limits=True,
    ),
    Setting(
        "stream × busy table",
        "While two batches are committed, and then all other snapshots expire.",
        beside(Busy),
        batches(1),
        may=("stream gets HistoryUnknown", "stream gets CorruptMetadata"),
        most=2,
        most_with_fault=1,
    ),
    Setting(
        "stream with dynamic buckets × batch writer",
        "Both give keys their buckets at once.",
        beside(BatchWriter),
        batches(1),
        may=("stream gets IndexConflict", "batch writer gets IndexConflict"),
        options=DYNAMIC,
        table={"keyed": True},
        flags={"dynamic": True},
    ),
    Setting(
        "stream of a table with a key × batch writer",
        "Both number their rows.",
        beside(BatchWriter),
        batches(1),
        may=("stream gets SequenceConflict", "batch writer gets SequenceConflict"),
        options={"bucket": "1", "write-only": "true"},
        table={"keyed": True},
    ),
]
