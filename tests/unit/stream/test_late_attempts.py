"""An attempt of an earlier run takes effect late: while the next run works on the same batch, or
after the table was rolled back below it. The batch is in the table once, and no live file is
deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.errors import (
    CheckpointRewound,
    HistoryUnknown,
    SharedCheckpoint,
    TableRolledBack,
)
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.options import JOURNAL, JOURNAL_REUSE, ON_CHECKPOINT_RESET, ON_UNKNOWN_HISTORY
from paimon_stream.storage.base import MOST_BYTES, FileStat
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from tests.kits import steps
from tests.kits.commits import Bench
from tests.kits.faults import Fault, FaultyStorage
from tests.kits.streams import At, AtBatch, PowerCut, Stream

pytestmark = pytest.mark.s3

WRITTEN_AGAIN = {JOURNAL_REUSE.key: "false"}
NO_JOURNAL = {JOURNAL.key: "false"}
RESET = {ON_CHECKPOINT_RESET.key: "continue"}
CONTINUE = {ON_UNKNOWN_HISTORY.key: "continue"}


def others(bench: Bench, *numbers: int) -> None:
    """Another engine commits."""
    for number in numbers:
        bench.committer().commit(
            bench.request(number, [bench.message(f"java-{number}")], user="java")
        )


def readable(bench: Bench) -> list[str]:
    """The names of the live files. Each of them must exist."""
    for entry in bench.live():
        bench.storage.stat(
            bench.table.layout.data_file(entry.partition, entry.bucket, entry.file.file_name)
        )
    return bench.live_names()


class Overtaken:
    """Batch 1 of a stream: the earlier run stops at a phase, the next run judges the batch, and
    then the earlier run publishes it. Its snapshot expires before the next run commits.
    """

    def __init__(
        self, options: dict[str, str], *, phase: Phase = Phase.STAGED, lands: bool = True
    ) -> None:
        self.bench = Bench()
        first = Stream(self.bench)
        first.batch()
        others(self.bench, 1)
        earlier = Stream(self.bench, next_batch=1, runs=10)
        self.next = Stream(
            self.bench,
            next_batch=1,
            runs=20,
            options=options,
            done_millis=first.done_millis,
            written=1,
        )
        self.judged: JudgedBatch | None = None
        earlier.start(At(phase, lambda: self._judge(lands)))
        if lands:
            assert earlier.batch().snapshot_id == 3
        else:
            with pytest.raises(KeyboardInterrupt):
                earlier.batch()
        others(self.bench, 2, 3, 4, 5)
        self.bench.clock.advance(3_600_000)
        self.bench.expire(self.bench.latest().id - 2)

    def _judge(self, lands: bool) -> None:
        self.next.start()
        assert self.next.writer is not None
        self.judged = steps.judge(self.next.writer, self.batch)
        if not lands:
            raise KeyboardInterrupt

    @property
    def batch(self) -> Batch:
        return Batch(batch_id=1, offsets_hash="q1-1", previous_done_millis=self.next.done_millis)

    def commit(self) -> None:
        assert self.next.writer is not None
        assert self.judged is not None
        rows = steps.rows(lambda judged: (self.bench.message("me-1-2"),))
        steps.commit(self.next.writer, rows.write(self.judged))


@pytest.mark.parametrize(
    "options", [WRITTEN_AGAIN, NO_JOURNAL, {}], ids=["written again", "no journal", "reused"]
)
def test_a_batch_that_an_earlier_run_published_unseen_is_known_by_its_live_files(
    options: dict[str, str],
) -> None:
    table = Overtaken(options)
    expected = ["java-1", "java-2", "java-3", "java-4", "java-5", "me-0-1", "me-1-1"]
    with pytest.raises(
        SharedCheckpoint, match=r"batch 1, an earlier run .* published it"
    ) as caught:
        table.commit()
    assert caught.value.context["batch"] == 1
    assert readable(table.bench) == expected
    table.next.start()
    assert table.next.batch().outcome == "already committed"
    if (
        options == NO_JOURNAL
    ):  # the checkpoint may have been put back behind batches that nothing shows
        with pytest.raises(HistoryUnknown, match="batch 2 of"):
            table.next.batch()
        return
    table.next.batch()
    assert readable(table.bench) == [*expected, "me-2-2"]


def test_a_batch_that_an_earlier_run_may_have_published_unseen_is_unknown_until_an_operator_decides() -> (
    None
):
    table = Overtaken(WRITTEN_AGAIN, lands=False)
    with pytest.raises(HistoryUnknown, match="snapshots after 2 expired") as caught:
        table.commit()
    assert ON_UNKNOWN_HISTORY.key in str(caught.value)
    table.next.start()
    with pytest.raises(HistoryUnknown):
        table.next.batch()
    table.next.options = CONTINUE
    table.next.start()
    table.next.batch()
    assert readable(table.bench)[-2:] == ["me-0-1", "me-1-2"]


def test_an_operator_can_let_such_a_batch_continue_at_its_commit_and_nothing_in_doubt_is_removed() -> (
    None
):
    table = Overtaken({**WRITTEN_AGAIN, **CONTINUE}, lands=False)
    table.commit()
    assert readable(table.bench)[-2:] == ["me-0-1", "me-1-2"]
    assert table.bench.storage.exists("bucket-0/me-1-1")
    table.next.start()
    assert table.next.batch().outcome == "already committed"
    assert table.bench.storage.exists("bucket-0/me-1-1")


def test_the_first_run_of_a_stream_goes_on_where_snapshots_expired_during_its_first_batch() -> None:
    bench = Bench()
    others(bench, 1)

    def expire() -> None:
        others(bench, 2, 3, 4)
        bench.expire(3)

    stream = Stream(bench)
    stream.start(At(Phase.WRITTEN, expire))
    assert stream.batch().outcome == "committed"


def test_a_later_batch_of_a_run_goes_on_where_snapshots_expired_during_it() -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batch()
    stream.start()
    stream.batch()
    others(bench, 2, 3, 4)
    bench.expire(4)
    assert stream.batch().outcome == "committed"


# -- rollbacks
# -----------------------------------------------------------------------------------------


def test_a_batch_that_another_run_published_below_reused_ids_is_found_before_it_is_written_again() -> (
    None
):
    bench = Bench()
    stream = Stream(bench)
    stream.batch()
    others(bench, 1, 2, 3, 4)
    stream.batch(rows=0)  # the run has now seen snapshot 5, and its own is 1
    rollback_to(bench.table, 3, runtime=bench.runtime)
    other = Stream(bench, next_batch=2, runs=5)
    assert other.batch().snapshot_id == 4
    others(bench, 5, 6)
    with pytest.raises(SharedCheckpoint, match=r"q1-run-6 published batch 2 .*snapshot 4"):
        stream.batch()
    assert readable(bench) == ["java-1", "java-2", "java-5", "java-6", "me-0-1", "me-2-1"]


@pytest.mark.parametrize("committed", [1, 2])
def test_a_run_goes_on_after_a_rollback_that_took_none_of_its_batches(committed: int) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batches(committed)
    others(bench, 1, 2, 3, 4)
    stream.batch(rows=0)
    rollback_to(bench.table, committed + 2, runtime=bench.runtime)
    assert stream.batch().snapshot_id == committed + 3
    others(bench, 5)
    assert stream.batch().snapshot_id == committed + 5


def test_a_rollback_is_noticed_by_a_run_whose_own_snapshots_had_expired() -> None:
    bench = Bench()
    others(bench, 1)
    create_tag(bench.table, "kept", runtime=bench.runtime)
    Stream(bench).batches(2)
    others(bench, 2, 3, 4)
    for number in range(1, 5):
        bench.storage.delete(f"snapshot/snapshot-{number}")
    stream = Stream(bench, next_batch=2, runs=9, done_millis=bench.clock.now_millis())
    stream.batch(rows=0)
    rollback_to(bench.table, "kept", runtime=bench.runtime)
    with pytest.raises(TableRolledBack, match="batch 1 was committed"):
        stream.batch()
    assert readable(bench) == ["java-1"]


def test_a_rollback_of_a_batch_is_noticed_although_the_snapshot_that_its_run_had_seen_had_expired() -> (
    None
):
    bench = Bench()
    stream = Stream(bench)
    stream.batch()
    others(bench, 1, 2, 3, 4)
    bench.expire(2)
    assert stream.batch().snapshot_id == 6  # the run has seen snapshot 1, which has expired
    rollback_to(bench.table, 5, runtime=bench.runtime)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 1 was committed"):
        stream.batch()
    assert readable(bench) == ["java-1", "java-2", "java-3", "java-4", "me-0-1"]


def test_a_rollback_of_a_batch_with_files_of_an_earlier_run_is_noticed_where_their_base_had_expired() -> (
    None
):
    bench = Bench({"bucket": "2"}, keys=("id",))
    stream = Stream(bench)
    stream.batch()
    stream.start(At(Phase.JOURNALED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    for number in range(4):
        message = bench.message(f"java-{number}", bucket=1)
        bench.committer().commit(bench.request(number, [message], user="java"))
    stream.start()
    assert stream.batch().reused
    bench.expire(2)
    rollback_to(bench.table, 5, runtime=bench.runtime)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 1 was committed"):
        stream.batch()


@pytest.mark.parametrize("options", [WRITTEN_AGAIN, {}], ids=["written again", "reused"])
def test_a_paused_run_whose_files_were_removed_as_dead_takes_its_snapshot_back_after_a_rollback(
    options: dict[str, str],
) -> None:
    bench = Bench()
    Stream(bench).batch()
    others(bench, 1)
    later = Stream(bench, next_batch=1, runs=20, written=1, options=options)

    def overtake() -> None:
        assert later.batch().snapshot_id == 3
        rollback_to(bench.table, 2, runtime=bench.runtime)
        bench.clock.advance(5_000)

    paused = Stream(bench, next_batch=1, runs=10)
    paused.start(At(Phase.STAGED, overtake))
    with pytest.raises(SharedCheckpoint, match=r"removed \d of its files .* withdrawn"):
        paused.batch()
    assert bench.snapshots.ids() == [1, 2]
    assert readable(bench) == ["java-1", "me-0-1"]


def test_a_paused_run_whose_files_are_all_there_publishes_although_a_later_run_has_begun() -> None:
    bench = Bench()
    later = Stream(bench, runs=20, written=1)

    def overtake() -> None:
        later.start()
        assert later.writer is not None
        steps.judge(later.writer, Batch(batch_id=0, offsets_hash="q1-0"))
        bench.clock.advance(5_000)

    paused = Stream(bench)
    paused.start(At(Phase.STAGED, overtake))
    assert paused.batch().snapshot_id == 1
    assert later.batch().outcome == "already committed"
    assert readable(bench) == ["me-0-1"]


@pytest.mark.parametrize(("pause", "asked"), [(1_000, 1), (1_001, 2)])
def test_only_a_slow_put_asks_again_whether_a_later_run_has_begun(pause: int, asked: int) -> None:
    """The first judgement has asked already."""
    bench = Bench()
    storage = FaultyStorage(bench.storage)
    stream = Stream(bench)
    stream.start(At(Phase.STAGED, lambda: bench.clock.advance(pause)), storage)
    stream.batch()
    assert sum(one.verb == "stat" and "claim-" in one.path for one in storage.operations) == asked


def test_files_of_a_dead_attempt_stay_where_the_batch_was_rolled_back_before_the_clean_up() -> None:
    """The dead attempt may be a paused one, and it can publish again after the rollback."""
    bench = Bench()
    Stream(bench).batch()
    dead = Stream(bench, next_batch=1, runs=10)
    dead.start(At(Phase.STAGED, dead.cut))
    with pytest.raises(PowerCut):
        dead.batch()
    stream = Stream(bench, next_batch=1, runs=20, written=1, options=WRITTEN_AGAIN)
    stream.start(At(Phase.HINTED, lambda: bench.storage.delete("snapshot/snapshot-2")))
    assert stream.batch().removed_files == 0
    assert bench.storage.exists("bucket-0/me-1-1")
    stream.start()
    with pytest.raises(TableRolledBack):
        stream.batch()


# -- the files of a run that was overtaken
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "options"),
    [(Phase.WRITTEN, {}), (Phase.WRITTEN, NO_JOURNAL), (Phase.STAGED, NO_JOURNAL)],
    ids=["before its journal entry", "without a journal", "without a journal, at its put"],
)
def test_files_of_an_overtaken_run_that_no_journal_names_are_removed_at_once(
    phase: Phase, options: dict[str, str]
) -> None:
    bench = Bench()
    Stream(bench, options=options).batch()
    later = Stream(bench, next_batch=1, runs=20, written=1, options=options)
    overtaken = Stream(bench, next_batch=1, runs=10, options=options)

    def overtake() -> None:
        later.batch()
        bench.clock.advance(5_000)  # so that the commit looks at the table before it stages

    overtaken.start(At(phase, overtake))
    with pytest.raises(SharedCheckpoint, match="published batch 1"):
        overtaken.batch()
    assert readable(bench) == ["me-0-1", "me-1-2"]
    assert not bench.storage.exists("bucket-0/me-1-1")


def test_files_of_an_overtaken_run_stay_while_its_own_put_may_still_count() -> None:
    """A writer that replaces snapshots does not prove that nobody has built on ours."""
    bench = Bench()
    Stream(bench).batch()
    overtaken = Stream(bench, next_batch=1, runs=10, options=NO_JOURNAL)

    def replace_ours() -> None:
        bench.storage.delete("snapshot/snapshot-2")
        bench.committer().commit(bench.request(1, [bench.message("twin")], user="me"))

    overtaken.start(At(Phase.PUBLISHED, replace_ours))
    with pytest.raises(SharedCheckpoint):
        overtaken.batch()
    assert readable(bench) == ["me-0-1", "twin"]
    assert bench.storage.exists("bucket-0/me-1-1")


# -- the journal
# ---------------------------------------------------------------------------------------


def test_a_paused_run_that_records_its_batch_late_hides_no_later_batch() -> None:
    bench = Bench()
    Stream(bench).batch()
    later = Stream(bench, next_batch=1, runs=20, written=1)
    paused = Stream(bench, next_batch=1, runs=10)
    paused.start(At(Phase.WRITTEN, lambda: later.batches(3)))
    with pytest.raises(SharedCheckpoint):
        paused.batch()
    others(bench, 1, 2, 3)
    bench.expire(bench.latest().id - 1)
    before = readable(bench)
    again = Stream(bench, next_batch=3, runs=30, written=9, done_millis=later.done_millis)
    assert again.batch().outcome == "already committed"
    assert readable(bench) == before


def test_after_a_rewound_checkpoint_was_let_in_the_entries_of_its_later_batches_are_gone() -> None:
    bench = Bench()
    Stream(bench).batches(5)
    rewound = Stream(bench, next_batch=2, runs=10, written=5, options=RESET)
    rewound.batch()
    rewound.options = {}
    rewound.start()
    rewound.batches(2)
    assert readable(bench) == [
        "me-0-1",
        "me-1-2",
        "me-2-3",
        "me-2-6",
        "me-3-4",
        "me-3-7",
        "me-4-5",
        "me-4-8",
    ]


@pytest.mark.parametrize("rows", [0, 10], ids=["without rows", "already committed"])
def test_a_run_that_has_published_nothing_finds_the_batch_of_an_earlier_run_that_is_alive(
    rows: int,
) -> None:
    bench = Bench()
    earlier, at = Stream(bench), At(Phase.JUDGED, lambda: later.batch(rows))
    earlier.start(AtBatch(2, at))
    earlier.batch()
    later = Stream(bench, next_batch=1, runs=10, done_millis=earlier.done_millis)
    earlier.batch(rows)
    earlier.batch()
    assert at.done
    others(bench, 1, 2, 3)
    bench.expire(bench.latest().id - 2)
    with pytest.raises(SharedCheckpoint, match=r"batch 2, an earlier run .* published it"):
        later.batch()
    assert readable(bench).count(f"me-2-{earlier.written}") == 1
    later.start()
    assert later.batch().outcome == "already committed"


def test_the_files_of_a_batch_that_was_branched_and_rolled_back_stay() -> None:
    bench = Bench()
    stream = Stream(bench, options=WRITTEN_AGAIN)
    stream.batch()
    stream.start(At(Phase.PUBLISHED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    bench.storage.write(
        "branch/branch-b/snapshot/snapshot-2", bench.storage.read("snapshot/snapshot-2")
    )
    needed = bench.metadata_of(2)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    stream.start()
    stream.batch()
    assert readable(bench) == ["me-0-1", "me-1-3"]
    assert needed <= bench.metadata_files()
    assert bench.storage.exists("bucket-0/me-1-2")


@pytest.mark.parametrize("merged", [False, True], ids=["its own manifests", "merged manifests"])
def test_the_files_of_a_batch_stay_that_a_tag_on_a_later_snapshot_needs(merged: bool) -> None:
    """Another engine rolls the table back and keeps the tag."""
    bench = Bench(options={"manifest.merge-min-count": "2"} if merged else {})
    stream = Stream(bench, options=WRITTEN_AGAIN)
    stream.batches(2)
    stream.start(At(Phase.PUBLISHED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    others(bench, 1, 2)
    create_tag(bench.table, "kept", snapshot_id=5, runtime=bench.runtime)
    needed = bench.metadata_of(5)
    for number in (5, 4, 3):
        bench.storage.delete(f"snapshot/snapshot-{number}")
    stream.start()
    stream.batch()
    assert readable(bench) == ["me-0-1", "me-1-2", "me-2-4"]
    assert needed <= bench.metadata_files()
    assert bench.storage.exists("bucket-0/me-2-3")


def test_the_files_of_a_dead_attempt_go_where_a_tag_does_not_need_them() -> None:
    bench = Bench()
    stream = Stream(bench, options=WRITTEN_AGAIN)
    stream.batches(2)
    create_tag(bench.table, "kept", snapshot_id=1, runtime=bench.runtime)
    stream.start(At(Phase.STAGED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.start()
    stream.batch()
    assert readable(bench) == ["me-0-1", "me-1-2", "me-2-4"]
    assert not bench.storage.exists("bucket-0/me-2-3")


def stopped_before_its_put(bench: Bench) -> tuple[threading.Thread, threading.Event]:
    """The first batch of a stream in a thread of its own, which waits until the event before its
    put.
    """
    stream, reached, go_on = Stream(bench), threading.Event(), threading.Event()

    def stop() -> None:
        reached.set()
        assert go_on.wait(900)

    stream.start(At(Phase.STAGED, stop))
    thread = threading.Thread(target=stream.batch)
    thread.start()
    assert reached.wait(900)
    return thread, go_on


def test_an_attempt_with_the_files_of_a_published_one_does_not_remove_the_manifests_of_that() -> (
    None
):
    """Its late put creates the expired snapshot again, and the next snapshot does hold its
    files.
    """
    bench = Bench()
    thread, go_on = stopped_before_its_put(bench)
    later = Stream(bench, runs=10)

    def overtake() -> None:
        go_on.set()
        thread.join(900)
        others(bench, 1, 2)
        bench.expire(1)

    later.start(At(Phase.STAGED, overtake))
    assert later.batch().removed_files == 0
    for snapshot_id in (2, 3):
        assert bench.metadata_of(snapshot_id) <= bench.metadata_files()
    assert readable(bench) == ["java-1", "java-2", "me-0-1"]


def test_a_run_stops_before_its_next_batch_when_a_later_run_has_begun() -> None:
    bench = Bench()
    earlier = Stream(bench)
    earlier.batch()
    later = Stream(bench, next_batch=1, runs=10)
    later.batch(rows=0)
    earlier.next_batch = 2
    with pytest.raises(
        SharedCheckpoint, match="a later run of commit user 'me' has begun"
    ) as caught:
        earlier.batch()
    assert caught.value.context["batch"] == 2
    later.batch()
    assert readable(bench) == ["me-0-1", "me-2-2"]


class Meanwhile(FaultyStorage):
    """A storage that calls `action` after the journal was listed for the first time."""

    __slots__ = ("action",)

    def __init__(self, bench: Bench, action: Callable[[], object]) -> None:
        super().__init__(bench.storage)
        self.action: Callable[[], object] | None = action

    def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
        found = super().list_files(folder, prefix)
        if prefix == "" and self.action is not None:
            action, self.action = self.action, None
            action()
        return found


def test_a_run_that_sleeps_while_it_gathers_evidence_does_not_write_what_a_later_run_has_written() -> (
    None
):
    bench = Bench()
    earlier, later = Stream(bench), Stream(bench, runs=10)

    def overtake() -> None:
        later.batches(3)
        others(bench, 1)
        bench.expire(3)

    earlier.start(storage=Meanwhile(bench, overtake))
    with pytest.raises(SharedCheckpoint, match="a later run of commit user 'me' has begun"):
        earlier.batch()
    later.batch()
    assert readable(bench) == ["java-1", "me-0-1", "me-1-2", "me-2-3", "me-3-4"]


def test_a_run_whose_last_snapshot_expires_while_it_looks_at_it_goes_on() -> None:
    bench = Bench()
    stream = Stream(bench)

    class Expiring(FaultyStorage):
        """The newest snapshot expires after it was read, because others have committed."""

        def read(self, path: str, limit: int = MOST_BYTES) -> bytes:
            found = super().read(path, limit)
            if (
                path == "snapshot/snapshot-1"
                and bench.snapshots.ids() == [1]
                and stream.next_batch == 1
            ):
                others(bench, 1, 2)
                bench.expire(2)
            return found

    stream.start(storage=Expiring(bench.storage))
    stream.batches(2)
    assert readable(bench) == ["java-1", "java-2", "me-0-1", "me-1-2"]


def test_a_run_whose_table_is_created_again_while_it_gathers_evidence_meets_no_later_run() -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.start(
        storage=Meanwhile(bench, lambda: bench.storage.delete("_paimon_stream/me/claim-q1-run-1"))
    )
    stream.batch()
    assert readable(bench) == ["me-0-1"]


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
def test_behind_a_batch_that_has_expired_the_journal_shows_that_the_next_is_new(
    options: dict[str, str],
) -> None:
    bench = Bench()
    stream, other = Stream(bench), Stream(bench, user="other", query_id="q2", checkpoint="/ck/b")
    stream.batches(4)
    stream.next_batch -= 1  # Spark was killed before it had recorded the batch
    other.batches(6)
    bench.expire(7)
    stream.options = options
    stream.start()
    assert [stream.batch().outcome, stream.batch().outcome] == ["already committed", "committed"]


def test_a_run_that_ends_before_it_registers_takes_no_proof_away() -> None:
    bench = Bench()
    stream, other = Stream(bench), Stream(bench, user="other", query_id="q2", checkpoint="/ck/b")
    stream.batches(3)
    other.batches(6)
    bench.expire(7)
    for _ in range(2):
        stream.start()
        stream.writer.run.claims.acquire()  # then it is killed
    stream.start()
    assert stream.batch().outcome == "committed"


def test_what_an_operator_has_given_up_proves_nothing_of_earlier_batches() -> None:
    bench = Bench()
    stream, other = Stream(bench), Stream(bench, user="other", query_id="q2", checkpoint="/ck/b")
    stream.batches(3)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    stream.options = {"paimon-stream.on-table-change": "continue"}
    stream.start()
    steps.judge(stream.writer, Batch(batch_id=3))  # it is killed before its journal entry
    other.batches(6)
    bench.expire(7)
    stream.options, stream.next_batch = {}, 0  # somebody has put the checkpoint back
    stream.start()
    with pytest.raises(CheckpointRewound, match="go on without batch 2"):
        stream.batch()


def test_a_batch_does_not_fail_because_old_entries_of_a_stream_without_a_journal_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.start(At(Phase.STAGED, stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.options = NO_JOURNAL
    fault = Fault(at=1, verb="delete", path="_paimon_stream/me/0")
    stream.start(storage=FaultyStorage(bench.storage, [fault]))
    assert stream.batch().outcome == "committed"
    assert "old entries of the journal stay" in caplog.text
    assert stream.batch().outcome == "committed"
    assert bench.storage.exists("_paimon_stream/me/0")
    stream.start()
    stream.batch()
    assert not bench.storage.exists("_paimon_stream/me/0")
    assert len(readable(bench)) == 3


def test_entries_of_later_batches_that_could_not_be_removed_go_with_the_next_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    Stream(bench).batches(4)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    stream = Stream(bench, next_batch=2, runs=10, written=5)
    fault = Fault(at=1, verb="delete", path="_paimon_stream/me/3")
    stream.start(storage=FaultyStorage(bench.storage, [fault]))
    assert stream.batch().outcome == "committed"
    assert "old entries of the journal stay" in caplog.text
    assert bench.storage.exists("_paimon_stream/me/3")
    stream.batch(rows=0)
    assert not bench.storage.exists("_paimon_stream/me/3")
    stream.batch()
    assert len(readable(bench)) == 4
