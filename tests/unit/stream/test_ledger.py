"""The ledger: every verdict, from storage alone. There is one test for each rule, named after what
it proves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paimon_stream.errors import (
    CheckpointReset,
    CheckpointRewound,
    CommitLost,
    DuplicateWriter,
    HistoryUnknown,
    ReplayError,
    SharedCheckpoint,
    TableReplaced,
    TableRolledBack,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta
from paimon_stream.format.manifest_avro import encode_manifest_list
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    CommitKind,
    Snapshot,
    SnapshotId,
    SnapshotRef,
    encode_snapshot,
)
from paimon_stream.options import ON_TABLE_CHANGE, Options
from paimon_stream.runtime import simulated
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.evidence import Evidence, JournalledBatches, OtherStreams
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.ledger import judge_evidence
from paimon_stream.stream.memory import Memory, judge_next
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh, Reuse, Verdict
from paimon_stream.table.journal import JournalEntry, PreviousBatch
from paimon_stream.table.register import RegisteredWriter
from paimon_stream.table.removals import Removals, Removed, read_removals
from paimon_stream.table.snapshots import SnapshotStore

NO_MANIFESTS = encode_manifest_list((), compression="null", level=1)

ME = WriterIdentity(
    user="paimon-stream_q1",
    query_id="q1",
    run_id="run-2",
    checkpoint="/ck/a",
    query_name=None,
    token="t",
)


NOTHING_JOURNALLED = JournalledBatches(newest=None, since=None)


def message(name: str = "data-x-0.parquet") -> CommitMessage:
    file = DataFileMeta(
        file_name=name,
        file_size=1,
        row_count=1,
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        creation_time=0,
    )
    return CommitMessage(partition=bytes(12), bucket=0, total_buckets=-1, new_files=(file,))


def entry(batch_id: int, base: SnapshotRef | None = None, **changed: Any) -> JournalEntry:
    made = JournalEntry(
        batch_id=batch_id,
        messages=(message(),),
        stage_uuids=("u",),
        query_id="q1",
        run_id="run-1",
        checkpoint="/ck/a",
        query_name=None,
        offsets_hash="h",
        schema_digest="d",
        schema_id=0,
        total_buckets=-1,
        base=base,
        previous=None,
        prepared_millis=0,
    )
    return replace(made, **changed)


def registered(**changed: Any) -> RegisteredWriter:
    made = RegisteredWriter(
        user=ME.user,
        query_id="q1",
        checkpoint="/ck/a",
        query_name=None,
        schema_digest="d",
        journal_since=None,
    )
    return replace(made, **changed)


@dataclass
class World:
    """A table's snapshots, and what else the judge may look at."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    identity: WriterIdentity = ME
    entry: JournalEntry | None = None
    last_entry: JournalEntry | None = None
    registered: RegisteredWriter | None = None
    others: tuple[RegisteredWriter, ...] = ()
    journalled: JournalledBatches = NOTHING_JOURNALLED
    last_of: Mapping[str, JournalEntry] = field(default_factory=dict)
    offsets_hash: str | None = "h"
    previous_done_millis: int | None = None
    created_millis: int = 1000
    live: int = 0
    removed: tuple[Removed, ...] = ()
    claimed: bool = True
    runs: frozenset[str] = frozenset({"run-1"})
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def snapshots(self) -> SnapshotStore:
        return SnapshotStore(self.storage, simulated(1))

    def publish(
        self,
        id_: int,
        user: str,
        identifier: int,
        nonce: str = "",
        time_millis: int = 0,
        **marks: str,
    ) -> Snapshot:
        snapshot = Snapshot(
            id=SnapshotId(id_),
            schema_id=0,
            base_manifest_list="base",
            delta_manifest_list=nonce or f"delta-{id_}",
            commit_user=user,
            commit_identifier=identifier,
            commit_kind=CommitKind.APPEND,
            time_millis=time_millis,
            total_record_count=0,
            delta_record_count=0,
            properties={
                "paimon-stream." + key.replace("_", "-"): value for key, value in marks.items()
            },
        )
        self.storage.write(f"snapshot/snapshot-{id_}", encode_snapshot(snapshot))
        for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
            self.storage.write(f"manifest/{name}", NO_MANIFESTS)
        return snapshot

    def mine(self, id_: int, identifier: int, **marks: Any) -> Snapshot:
        return self.publish(
            id_, ME.user, identifier, **{"query_id": "q1", "run_id": "run-1", **marks}
        )

    def expire(self, *ids: int) -> None:
        for id_ in ids:
            self.storage.delete(f"snapshot/snapshot-{id_}")

    def refusals(self, batch_id: int) -> StreamRefusals:
        return StreamRefusals(
            location="memory:t",
            user=self.identity.user,
            batch_id=batch_id,
            options=Options(self.options),
        )

    def judge(self, batch_id: int) -> Verdict:
        evidence = Evidence(
            identity=self.identity,
            batch=Batch(
                batch_id=batch_id,
                offsets_hash=self.offsets_hash,
                previous_done_millis=self.previous_done_millis,
            ),
            schema_digest="d",
            made_millis=self.created_millis,
            branch=None,
            snapshots=self.snapshots,
            latest=self.snapshots.latest(),
            entry=self.entry,
            last_entry=self.last_entry,
            later_entry=None,
            entries_of_main={},
            left_in_main=lambda user, entry: True,
            registered=self.registered,
            others=OtherStreams(
                registers=lambda: self.others,
                journalled_by=lambda _: self.journalled,
                last_of=lambda other: self.last_of.get(other.user),
                entry_of=lambda other, number: (
                    found
                    if (found := self.last_of.get(other.user)) and found.batch_id == number
                    else None
                ),
            ),
            files_live=lambda snapshot, messages: self.live,
            files_mentioned=lambda snapshot, messages: self.live,
            removals=lambda: (
                Removals(removed=self.removed) if self.removed else read_removals(self.storage)
            ),
            claimed=lambda user: self.claimed,
            elsewhere=lambda written_as, missing: None,
            runs=self.runs,
        )
        return judge_evidence(evidence, self.refusals(batch_id))


@pytest.fixture
def world() -> World:
    return World()


# -- streams that may go on
# ---------------------------------------------------------------------------


def test_the_first_batch_on_an_empty_table_is_fresh(world: World) -> None:
    assert world.judge(0) == Fresh(seen=None)


def test_a_batch_after_our_last_one_is_fresh(world: World) -> None:
    own = world.mine(1, 0)
    other = world.publish(2, "java", 7)
    published = PreviousBatch(batch_id=0, snapshot=SnapshotRef.of(own))
    assert world.judge(1) == Fresh(seen=SnapshotRef.of(other), own=published)


def test_batches_without_rows_leave_gaps_that_are_no_alarm(world: World) -> None:
    world.registered = registered(journal_since=0)
    world.mine(1, 0)
    assert isinstance(world.judge(9), Fresh)


def test_our_last_batch_again_is_already_committed(world: World) -> None:
    own = world.mine(1, 4, offsets_hash="h")
    world.publish(2, "java", 7)
    verdict = world.judge(4)
    assert isinstance(verdict, AlreadyCommitted)
    assert verdict.snapshot == own


def test_a_batch_commit_under_our_user_is_not_a_batch_of_ours(world: World) -> None:
    own = world.mine(1, 3)
    world.publish(2, ME.user, BATCH_IDENTIFIER)
    verdict = world.judge(3)
    assert isinstance(verdict, AlreadyCommitted)
    assert verdict.snapshot == own
    assert isinstance(world.judge(4), Fresh)


def test_another_user_with_our_batch_id_does_not_count(world: World) -> None:
    world.publish(1, "somebody", 0)
    assert isinstance(world.judge(0), Fresh)


def test_a_later_batch_of_an_unknown_stream_on_a_whole_history_is_fresh(world: World) -> None:
    world.publish(1, "java", 0)
    assert isinstance(world.judge(5), Fresh)


# -- what a killed run prepared
# ----------------------------------------------------------------------


def test_a_prepared_batch_that_was_not_published_is_reused(world: World) -> None:
    own = world.mine(1, 0)
    world.entry = entry(1, SnapshotRef.of(own))
    verdict = world.judge(1)
    assert isinstance(verdict, Reuse)
    assert verdict.entry is world.entry


def test_a_prepared_first_batch_is_reused_on_an_empty_table(world: World) -> None:
    world.entry = entry(0)
    assert isinstance(world.judge(0), Reuse)


def test_a_prepared_batch_is_reused_when_every_snapshot_since_is_there(world: World) -> None:
    base = world.publish(3, "java", 1)
    world.publish(4, "java", 2)
    world.entry = entry(6, SnapshotRef.of(base))
    world.registered = registered()
    assert isinstance(world.judge(6), Reuse)


def test_a_prepared_batch_whose_snapshot_expired_is_found_by_its_live_files(world: World) -> None:
    world.entry = entry(6, SnapshotRef(id=3, nonce="delta-3"))
    world.registered = registered()
    world.publish(9, "java", 1)
    world.live = 1
    verdict = world.judge(6)
    assert isinstance(verdict, AlreadyCommitted)
    assert verdict.snapshot is None


def test_a_prepared_batch_with_expired_history_and_no_live_files_is_unknown(world: World) -> None:
    world.entry = entry(6, SnapshotRef(id=3, nonce="delta-3"))
    world.registered = registered()
    world.publish(9, "java", 1)
    with pytest.raises(HistoryUnknown, match="on-unknown-history"):
        world.judge(6)


def test_an_entry_of_another_query_under_our_user_is_not_reused(world: World) -> None:
    world.entry = entry(0, query_id="q0")
    assert isinstance(world.judge(0), Fresh)


# -- checkpoints that are not what they were
# ----------------------------------------------------------


def test_a_table_ahead_of_the_checkpoint_is_a_rewound_checkpoint(world: World) -> None:
    world.mine(1, 7)
    with pytest.raises(CheckpointRewound, match=r"batch 3 .*holds batch 7") as caught:
        world.judge(3)
    assert caught.value.context["option"] == "paimon-stream.on-checkpoint-reset"


def test_our_batch_with_other_offsets_is_a_rewound_checkpoint(world: World) -> None:
    world.mine(1, 4, offsets_hash="other")
    with pytest.raises(CheckpointRewound, match="other source offsets"):
        world.judge(4)


def test_unknown_offsets_do_not_stop_a_replay(world: World) -> None:
    world.mine(1, 4, offsets_hash="other")
    world.offsets_hash = None
    assert isinstance(world.judge(4), AlreadyCommitted)


@pytest.mark.parametrize("identifier", [0, 3, 9])
def test_a_named_user_under_another_query_is_a_reset_checkpoint(
    world: World, identifier: int
) -> None:
    world.identity = replace(ME, user="orders")
    world.publish(1, "orders", identifier, query_id="q0", run_id="run-0")
    with pytest.raises(CheckpointReset, match="query q0 wrote here before"):
        world.judge(3)


def test_a_named_user_is_known_by_its_register_when_its_snapshots_are_gone(world: World) -> None:
    world.identity = replace(ME, user="orders")
    world.registered = registered(user="orders", query_id="q0")
    with pytest.raises(CheckpointReset):
        world.judge(0)


def test_a_new_query_on_a_wiped_checkpoint_path_is_a_reset_checkpoint(world: World) -> None:
    world.publish(1, "paimon-stream_q0", 5, query_id="q0", checkpoint="/ck/a")
    with pytest.raises(CheckpointReset, match="query q0"):
        world.judge(0)


def test_a_new_query_of_the_same_name_is_a_reset_checkpoint(world: World) -> None:
    world.identity = replace(ME, checkpoint="/ck/new", query_name="orders")
    world.others = (registered(user="paimon-stream_q0", query_id="q0", query_name="orders"),)
    with pytest.raises(CheckpointReset, match="paimon-stream_q0"):
        world.judge(0)


def test_two_sinks_of_one_query_are_no_reset(world: World) -> None:
    world.identity = replace(ME, user="paimon-stream_q1_second")
    world.publish(1, "paimon-stream_q1_first", 0, query_id="q1", checkpoint="/ck/a")
    assert isinstance(world.judge(0), Fresh)


def test_a_new_sink_of_a_query_that_wrote_this_batch_as_nobody_in_this_run_may_be_renamed(
    world: World,
) -> None:
    world.identity = replace(ME, user="paimon-stream_q1_second")
    world.publish(1, "paimon-stream_q1", 3, query_id="q1", checkpoint="/ck/a")
    world.claimed = False
    with pytest.raises(HistoryUnknown, match="old name"):
        world.judge(3)
    assert isinstance(world.judge(4), Fresh), "a batch that nobody wrote cannot be doubled"


SECOND = replace(ME, user="paimon-stream_q1_second")


def renamed(world: World, *, newest: int | None, since: int | None = 0) -> None:
    """The query has written as another user, whose snapshots have expired, and whose journal shows
    this.
    """
    world.identity = SECOND
    world.claimed = False
    world.others = (registered(),)
    world.journalled = JournalledBatches(newest=newest, since=since)
    world.publish(8, "java", 7)
    world.publish(9, "java", 8)


@pytest.mark.parametrize(
    ("batch", "newest", "since"), [(0, 0, 0), (3, 3, 0), (3, 4, 0), (3, 2, 4), (0, None, None)]
)
def test_a_batch_that_this_query_may_have_published_as_nobody_in_this_run_may_be_renamed(
    world: World, batch: int, newest: int | None, since: int | None
) -> None:
    renamed(world, newest=newest, since=since)
    with pytest.raises(HistoryUnknown, match="old name"):
        world.judge(batch)
    world.claimed = True
    assert isinstance(world.judge(batch), Fresh), "the other sink is one of this run"


@pytest.mark.parametrize("called_first", [True, False])
@pytest.mark.parametrize("batch", [0, 3])
def test_a_query_gets_another_sink_although_all_its_snapshots_have_expired(
    world: World, batch: int, called_first: bool
) -> None:
    renamed(world, newest=batch - 1 if batch else None)
    world.claimed = not called_first
    world.previous_done_millis = 999
    assert isinstance(world.judge(batch), Fresh)


def test_a_snapshot_of_an_earlier_batch_shows_that_the_other_user_has_no_later_one(
    world: World,
) -> None:
    renamed(world, newest=None, since=None)
    world.publish(10, ME.user, 2, query_id="q1")
    world.publish(11, "java", 9)
    assert isinstance(world.judge(3), Fresh)
    with pytest.raises(HistoryUnknown, match="old name"):
        world.judge(2)


def test_a_claim_alone_shows_no_batch(world: World) -> None:
    """The run died before it registered. It had committed nothing."""
    renamed(world, newest=2)
    world.runs = frozenset({"run-1", "run-2"})
    assert isinstance(world.judge(3), Fresh)


@pytest.mark.parametrize("noted", [True, False])
def test_a_sink_whose_register_was_moved_away_is_no_new_one(world: World, noted: bool) -> None:
    renamed(world, newest=2)
    world.runs = frozenset({"run-1", "run-2"})  # the claim of an earlier run stands
    if noted:
        world.removed = (Removed(snapshot=None, user=SECOND.user, query="q1", identifier=7),)
    else:
        world.options = {"paimon-stream.journal": "false"}
    with pytest.raises(HistoryUnknown, match="no snapshot of this stream"):
        world.judge(3)


@pytest.mark.parametrize("changed", [{"query_id": "q0"}, {"schema_digest": "older"}])
def test_another_query_or_another_table_says_nothing_of_our_batches(
    world: World, changed: dict[str, Any]
) -> None:
    renamed(world, newest=5)
    world.others = (registered(**{"checkpoint": "/ck/b", **changed}),)
    assert isinstance(world.judge(0), Fresh)


def test_a_reset_that_was_let_in_is_known_from_then_on(world: World) -> None:
    world.publish(1, "paimon-stream_q0", 5, query_id="q0", checkpoint="/ck/a")
    world.registered = registered()
    assert isinstance(world.judge(0), Fresh)


def test_a_used_identifier_without_marks_cannot_be_distinguished_from_ours(world: World) -> None:
    world.identity = replace(ME, user="orders")
    world.publish(1, "orders", 3)
    with pytest.raises(CheckpointReset, match="left no query id"):
        world.judge(3)


@pytest.mark.parametrize("batch_id", [2, 3])
def test_an_operator_can_let_a_reset_or_rewound_checkpoint_continue(
    world: World, batch_id: int
) -> None:
    world.mine(1, 3, offsets_hash="other")
    world.options = {"paimon-stream.on-checkpoint-reset": "continue"}
    assert isinstance(world.judge(batch_id), Fresh)


@pytest.mark.parametrize("batch_id", [2, 3])
def test_the_files_of_a_published_batch_are_not_dead_when_it_is_let_in_again(
    world: World, batch_id: int
) -> None:
    world.mine(1, 3, offsets_hash="other")
    world.entry = entry(batch_id)
    world.options = {"paimon-stream.on-checkpoint-reset": "continue"}
    assert world.judge(batch_id) == Fresh(seen=SnapshotRef(id=1, nonce="delta-1"))


# -- history that is gone
# ----------------------------------------------------------------------------


def test_a_later_batch_with_expired_history_and_no_journal_is_unknown(world: World) -> None:
    world.publish(8, "java", 0)
    with pytest.raises(HistoryUnknown):
        world.judge(5)


def test_even_the_first_batch_is_unknown_when_the_stream_was_here_before(world: World) -> None:
    world.publish(8, "java", 0)
    world.registered = registered()
    with pytest.raises(HistoryUnknown):
        world.judge(0)


def test_no_entry_in_an_unbroken_journal_proves_a_batch_fresh(world: World) -> None:
    world.publish(8, "java", 0)
    world.registered = registered(journal_since=2)
    assert isinstance(world.judge(5), Fresh)
    assert isinstance(world.judge(2), Fresh)


def test_a_register_proves_something_only_if_its_run_was_the_newest(world: World) -> None:
    world.publish(8, "java", 0)
    world.registered = registered(journal_since=2, run="run-1")
    assert isinstance(world.judge(5), Fresh)
    world.registered = registered(journal_since=2, run="run-0")
    with pytest.raises(HistoryUnknown):
        world.judge(5)


def test_a_journal_that_began_later_proves_nothing(world: World) -> None:
    world.publish(8, "java", 0)
    world.registered = registered(journal_since=6)
    with pytest.raises(HistoryUnknown):
        world.judge(5)


def test_an_operator_can_let_an_unknown_history_continue(world: World) -> None:
    world.publish(8, "java", 0)
    world.options = {"paimon-stream.on-unknown-history": "continue"}
    assert isinstance(world.judge(5), Fresh)


# -- tables that are not what they were
# ---------------------------------------------------------------


def test_another_first_schema_is_a_replaced_table(world: World) -> None:
    world.registered = registered(schema_digest="older")
    with pytest.raises(TableReplaced, match="on-table-change"):
        world.judge(3)


def test_a_replaced_tables_old_journal_is_not_believed(world: World) -> None:
    world.registered = registered(schema_digest="older")
    world.entry = entry(3, SnapshotRef(id=70, nonce="x"))
    world.options = {"paimon-stream.on-table-change": "continue"}
    assert world.judge(3) == Fresh(seen=None)


@pytest.mark.parametrize("which", ["entry", "last_entry"])
def test_a_journal_that_a_running_stream_wrote_into_its_tables_successor_reveals_it(
    world: World, which: str
) -> None:
    setattr(world, which, entry(3, schema_digest="older"))
    with pytest.raises(TableReplaced):
        world.judge(3)


@pytest.mark.parametrize("which", ["entry", "last_entry"])
def test_an_entry_of_the_table_before_is_not_asked_about_again_once_the_stream_is_registered(
    world: World, which: str
) -> None:
    world.registered = registered(journal_since=4)
    setattr(world, which, entry(3, SnapshotRef(id=70, nonce="x"), schema_digest="older"))
    assert world.judge(4) == Fresh(seen=None)


def test_a_table_younger_than_our_previous_batch_is_a_replaced_table(world: World) -> None:
    world.previous_done_millis = 999
    with pytest.raises(TableReplaced, match="created after"):
        world.judge(3)


def test_a_table_older_than_our_previous_batch_is_not(world: World) -> None:
    world.previous_done_millis = 1001
    assert isinstance(world.judge(3), Fresh)


def test_a_batch_that_a_copy_of_the_checkpoint_published_in_a_younger_table_is_not_our_previous_one(
    world: World,
) -> None:
    world.registered = registered(journal_since=0)
    world.created_millis = 999 + 5 * 60_000
    world.previous_done_millis = 999
    with pytest.raises(
        TableReplaced, match="created after"
    ):  # the copy has registered, and goes on
        world.judge(1)
    world.registered = registered(journal_since=1)  # an operator has let batch 1 continue
    assert isinstance(world.judge(1), Fresh)
    world.mine(1, 0, time_millis=999 + 5 * 60_000)
    with pytest.raises(TableReplaced, match="created after"):
        world.judge(1)
    world.options = {ON_TABLE_CHANGE.key: "continue"}
    assert isinstance(world.judge(1), Fresh)


@pytest.mark.parametrize("millis", [990, 1001, 90_000])
def test_a_clock_ahead_where_the_table_was_created_hides_no_batch_that_we_have_finished(
    world: World, millis: int
) -> None:
    """Or the clock of the driver went back before Spark noted that the batch was done."""
    world.mine(1, 0, time_millis=millis)
    world.previous_done_millis = 999
    verdict = world.judge(1)
    assert isinstance(verdict, Fresh) and verdict.own is not None


@pytest.mark.parametrize("apart", [1, 60_000, 5 * 60_000 - 1])
def test_a_table_in_which_our_query_has_registered_is_not_replaced_by_clocks_that_differ(
    world: World, apart: int
) -> None:
    world.previous_done_millis = 1000 - apart
    world.registered = registered(journal_since=0)
    assert isinstance(world.judge(1), Fresh)


@pytest.mark.parametrize("changed", [{"query_id": None}, {"schema_digest": "older"}])
def test_only_our_own_register_of_this_very_table_allows_for_clocks_that_differ(
    world: World, changed: dict[str, Any]
) -> None:
    world.previous_done_millis = 999
    world.registered = registered(journal_since=0, **changed)
    with pytest.raises(TableReplaced):
        world.judge(1)


def test_a_replaced_table_is_reported_with_the_times_of_both_clocks(world: World) -> None:
    world.previous_done_millis, world.created_millis = 1_700_000_000_123, 1_700_000_060_123
    with pytest.raises(TableReplaced) as caught:
        world.judge(3)
    for part in ("60.000 s later", "2023-11-14T22:14:20.123Z", "2023-11-14T22:13:20.123Z", "clock"):
        assert part in str(caught.value)


def test_a_journalled_batch_missing_from_the_lineage_is_a_rollback(world: World) -> None:
    world.mine(1, 0)
    world.last_entry = entry(2)
    with pytest.raises(TableRolledBack, match="batch 2 was committed"):
        world.judge(3)


def test_a_rollback_behind_all_our_snapshots_is_seen(world: World) -> None:
    world.publish(1, "java", 0)
    world.last_entry = entry(2, SnapshotRef(id=1, nonce="delta-1"))
    world.registered = registered(journal_since=0)
    with pytest.raises(TableRolledBack):
        world.judge(3)


def test_a_rollback_is_seen_by_the_entry_of_the_batch_itself(world: World) -> None:
    world.publish(1, "java", 0)
    world.entry = entry(3, SnapshotRef(id=5, nonce="delta-5"))
    with pytest.raises(TableRolledBack, match="snapshot 5"):
        world.judge(3)


def test_a_rollback_is_seen_by_what_the_entry_says_of_the_batch_before(world: World) -> None:
    own = world.mine(1, 0)
    previous = PreviousBatch(batch_id=2, snapshot=SnapshotRef(id=3, nonce="delta-3"))
    world.entry = entry(3, SnapshotRef.of(own), previous=previous)
    with pytest.raises(TableRolledBack, match="batch 2 was committed"):
        world.judge(3)


def test_a_lost_commit_is_seen_by_what_the_entry_says_of_the_batch_before(world: World) -> None:
    own = world.mine(1, 0)
    world.publish(3, "java", 7, nonce="other")
    world.publish(2, "java", 6)
    previous = PreviousBatch(batch_id=2, snapshot=SnapshotRef(id=3, nonce="delta-3"))
    world.entry = entry(3, SnapshotRef.of(own), previous=previous)
    with pytest.raises(CommitLost, match="snapshot 3, in which batch 2"):
        world.judge(3)


def test_a_lost_commit_is_seen_where_no_other_snapshot_of_the_stream_is_left(world: World) -> None:
    world.publish(2, "java", 6)
    world.publish(3, "java", 7, nonce="other")
    previous = PreviousBatch(batch_id=2, snapshot=SnapshotRef(id=3, nonce="delta-3"))
    world.entry = entry(3, SnapshotRef(id=2, nonce="delta-2"), previous=previous)
    with pytest.raises(CommitLost, match="snapshot 3, in which batch 2"):
        world.judge(3)


def test_a_rollback_is_recognized_by_the_base_of_the_batch_before(world: World) -> None:
    own = world.mine(3, 5)
    previous = PreviousBatch(batch_id=5, snapshot=SnapshotRef.of(own))
    world.entry = entry(8, SnapshotRef.of(own), previous=previous)
    world.last_entry = entry(7)
    with pytest.raises(TableRolledBack, match="batch 7 was committed") as caught:
        world.judge(8)
    assert "beside the table's line" not in str(caught.value)


def test_batches_that_a_stale_hint_led_beside_the_line_are_named_as_such(world: World) -> None:
    for number in range(11, 14):
        world.mine(number, number - 11)
    beside = world.mine(6, 3)
    previous = PreviousBatch(batch_id=3, snapshot=SnapshotRef.of(beside))
    world.entry = entry(4, SnapshotRef.of(beside), previous=previous)
    with pytest.raises(
        TableRolledBack, match="batch 3 of this stream was committed as snapshot 6"
    ) as caught:
        world.judge(4)
    for part in (
        "beside the table's line",
        "not part of the table",
        "LATEST",
        "newest snapshot, 13",
        "repair-hints",
    ):
        assert part in str(caught.value)


def test_expired_snapshots_of_a_journalled_stream_are_no_rollback(world: World) -> None:
    world.publish(8, "java", 0)
    world.last_entry = entry(2, SnapshotRef(id=3, nonce="delta-3"))
    world.registered = registered(journal_since=0)
    assert isinstance(world.judge(3), Fresh)


def test_an_operator_can_let_a_rolled_back_table_continue(world: World) -> None:
    world.mine(1, 0)
    world.last_entry = entry(2)
    world.options = {"paimon-stream.on-table-change": "continue"}
    assert isinstance(world.judge(3), Fresh)


# -- two writers of one run
# ---------------------------------------------------------------------------


def test_our_batch_published_by_our_own_run_is_a_second_sink(world: World) -> None:
    world.mine(1, 3, run_id="run-2")
    with pytest.raises(DuplicateWriter, match="name="):
        world.judge(3)


# -- later batches of a run
# ---------------------------------------------------------------------------


def remembered(world: World, own: Snapshot, batch_id: int) -> Memory:
    seen = SnapshotRef.of(own)
    return Memory(batch_id=batch_id, own=PreviousBatch(batch_id=batch_id, snapshot=seen), seen=seen)


def test_the_next_batch_is_fresh_while_our_last_snapshot_stands(world: World) -> None:
    own = world.mine(1, 3)
    verdict = judge_next(
        world.snapshots,
        remembered(world, own, 3),
        world.refusals(4),
        latest=world.snapshots.latest(),
    )
    assert verdict.seen == SnapshotRef.of(own)


def test_the_next_batch_is_fresh_when_our_last_snapshot_expired(world: World) -> None:
    own = world.mine(1, 3)
    world.publish(2, "java", 0)
    world.expire(1)
    verdict = judge_next(
        world.snapshots,
        remembered(world, own, 3),
        world.refusals(4),
        latest=world.snapshots.latest(),
    )
    assert verdict.seen == SnapshotRef(id=2, nonce="delta-2")


@pytest.mark.parametrize("identifier", [4, 6])
def test_the_next_batch_published_by_another_run_before_it_was_judged_is_shared(
    world: World, identifier: int
) -> None:
    own = world.mine(1, 3)
    world.publish(2, "java", 0)
    world.mine(3, identifier, run_id="run-9")
    world.publish(4, "java", 1)
    with pytest.raises(SharedCheckpoint, match="run-9"):
        judge_next(
            world.snapshots,
            remembered(world, own, 3),
            world.refusals(4),
            latest=world.snapshots.latest(),
        )


def test_a_gap_since_the_run_last_looked_is_left_for_the_commit_to_judge(world: World) -> None:
    own = world.mine(1, 3)
    world.publish(3, "java", 0)
    memory = remembered(world, own, 3)
    assert (
        judge_next(world.snapshots, memory, world.refusals(4), latest=world.snapshots.latest()).seen
        == memory.seen
    )


def test_the_same_batch_twice_in_a_run_is_a_second_sink(world: World) -> None:
    own = world.mine(1, 3)
    with pytest.raises(DuplicateWriter):
        judge_next(
            world.snapshots,
            remembered(world, own, 3),
            world.refusals(3),
            latest=world.snapshots.latest(),
        )


def test_our_last_snapshot_with_another_nonce_is_a_lost_commit_that_names_both_causes(
    world: World,
) -> None:
    own = world.mine(2, 3)
    world.publish(1, "java", 0)
    memory = remembered(world, own, 3)
    world.publish(2, "java", 1, nonce="other")
    with pytest.raises(CommitLost, match="snapshot 2, in which batch 3") as caught:
        judge_next(world.snapshots, memory, world.refusals(4), latest=world.snapshots.latest())
    for part in ("'java'", "replaced it", "rolled back and written again", "on-table-change"):
        assert part in str(caught.value)
    world.options = {"paimon-stream.on-table-change": "continue"}
    assert (
        judge_next(world.snapshots, memory, world.refusals(4), latest=world.snapshots.latest())
        is None
    )  # storage must decide


def test_a_snapshot_under_another_nonce_above_which_others_went_on_is_a_lost_commit(
    world: World,
) -> None:
    own = world.mine(2, 3)
    memory = remembered(world, own, 3)
    world.publish(2, "java", 1, nonce="other")
    world.publish(3, "java", 2)
    with pytest.raises(CommitLost):
        judge_next(world.snapshots, memory, world.refusals(4), latest=world.snapshots.latest())


def test_our_last_snapshot_above_the_latest_is_a_rollback(world: World) -> None:
    world.publish(1, "java", 0)
    own = world.mine(2, 3)
    memory = remembered(world, own, 3)
    world.expire(2)
    with pytest.raises(TableRolledBack):
        judge_next(world.snapshots, memory, world.refusals(4), latest=world.snapshots.latest())


def test_every_refusal_names_table_user_batch_and_option(world: World) -> None:
    world.mine(1, 7)
    with pytest.raises(ReplayError) as caught:
        world.judge(3)
    for part in (
        "memory:t",
        ME.user,
        "batch 3",
        "paimon-stream.on-checkpoint-reset",
        "Nothing was written",
    ):
        assert part in str(caught.value)
