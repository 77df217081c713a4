"""A batch write with an identity takes effect once: after kills, expiries and rollbacks, and beside
other calls.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from paimon_stream.api.doctor import examine
from paimon_stream.api.streams import StreamWatch
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport, Phase
from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import (
    CommitUnknown,
    HistoryUnknown,
    IdentityUsed,
    SharedCheckpoint,
    StorageError,
    TableRolledBack,
)
from paimon_stream.maintenance.branches import create_branch, fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.stream.batch_write import WHOLE_TABLE, Replaced, WrittenRows
from paimon_stream.stream.once import OnceWrite, write_once
from paimon_stream.table.receipts import AskedWrite, read_receipt
from paimon_stream.table.register import registered_writers
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.verify.verifying import verify
from tests.kits.commits import Bench
from tests.kits.faults import LOST_SNAPSHOT, FaultyStorage
from tests.kits.streams import At, PowerCut, Stream

LOAD = "load-2026-11-28"
FILES = count()


@dataclass
class Job:
    """Calls of a batch write with an identity. Each call that writes rows writes another file."""

    bench: Bench
    identity: str = LOAD
    kind: str = "append"
    replaced: Replaced | None = None
    dt: str | None = None
    rows: int | None = 10
    storage: Storage | None = None
    written: int = 0
    maintained: int = 0
    options: dict[str, str] = field(default_factory=dict)
    may_write_again: bool = True

    def call(
        self,
        observer: BatchObserver = NO_OBSERVER,
        storage: Storage | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> CommitReport:
        """One call. `meanwhile` happens while the rows are written."""
        bench = self.bench

        def write_rows(table: Table, numbering: Numbering | None, user: str) -> WrittenRows:
            self.written += 1
            messages = ()
            if self.rows != 0:
                name = f"data-{next(FILES)}"
                messages = (bench.message(name, rows=self.rows or 10, dt=self.dt),)
            meanwhile()
            return WrittenRows(table=table, messages=messages, numbering=numbering, millis=1.0)

        def maintain(table: Table, snapshot: object) -> None:
            self.maintained += 1

        asked = AskedWrite(
            kind=self.kind,
            replaced=None if self.dt is None or self.replaced is None else f"dt={self.dt}",
            dynamic=None,
            columns=("dt", "id"),
            rows=self.rows,
        )
        return write_once(
            OnceWrite(
                identity=self.identity,
                asked=asked,
                storage=storage or self.storage or bench.storage,
                options=self.options,
                replaced=self.replaced,
                write_rows=write_rows,
                may_write_again=self.may_write_again,
                after_commit=maintain,
                runtime=bench.runtime,
                observer=observer,
            )
        )

    def cut(self, phase: Phase) -> None:
        """A call that is killed at this point."""
        with pytest.raises(PowerCut):
            self.call(At(phase, Stream.cut))

    def has_receipt(self) -> bool:
        storage = self.storage or self.bench.storage
        return read_receipt(storage, self.identity, SchemaStore(storage)) is not None


def own_files(bench: Bench) -> list[str]:
    """The files of streams and of writes with an identity."""
    folder = "_paimon_stream"
    storage = bench.storage
    return sorted(
        stat.path
        for name in storage.list_folders(folder)
        for stat in storage.list_files(f"{folder}/{name}")
    )


def rows_of(bench: Bench) -> int:
    latest = bench.snapshots.latest()
    return 0 if latest is None else latest.total_record_count or 0


def expire_all_but_the_newest(bench: Bench) -> None:
    """Others commit, and all older snapshots expire."""
    Stream(bench, user="other", query_id="other", checkpoint="/ck/other").batches(3)
    bench.expire(bench.latest().id - 1)


def test_a_repeated_call_writes_nothing_and_says_so() -> None:
    bench = Bench()
    job = Job(bench)
    first = job.call()
    assert (first.outcome, first.snapshot_id, first.rows) == ("committed", 1, 10)
    again = job.call()
    assert (again.outcome, again.snapshot_id) == ("already committed", 1)
    assert (job.written, job.maintained, rows_of(bench)) == (1, 1, 10)


def test_only_the_receipt_is_left_of_a_write_that_is_done() -> None:
    bench = Bench()
    Job(bench).call()
    assert own_files(bench) == [f"_paimon_stream/once.receipts/{LOAD}.json"]
    assert registered_writers(bench.storage) == ()


def test_the_receipt_outlives_the_snapshot() -> None:
    bench = Bench()
    job = Job(bench)
    job.call()
    expire_all_but_the_newest(bench)
    report = job.call()
    assert (report.outcome, report.snapshot_id, job.written) == ("already committed", None, 1)


@pytest.mark.parametrize(
    "phase", [Phase.JUDGED, Phase.WRITTEN, Phase.JOURNALED, Phase.STAGED, Phase.PUBLISHED]
)
def test_a_call_after_one_that_was_killed_writes_the_rows_once(phase: Phase) -> None:
    bench = Bench()
    job = Job(bench)
    job.cut(phase)
    assert not job.has_receipt()
    report = job.call()
    assert rows_of(bench) == 10
    assert report.outcome == ("already committed" if phase is Phase.PUBLISHED else "committed")
    assert job.has_receipt()
    assert job.call().outcome == "already committed"
    assert rows_of(bench) == 10


def test_files_that_a_killed_call_had_prepared_are_published_by_the_next() -> None:
    bench = Bench()
    job = Job(bench)
    job.cut(Phase.STAGED)
    report = job.call()
    assert (report.outcome, report.reused, job.written) == ("committed", True, 1)


def test_a_call_that_was_killed_before_its_receipt_is_found_when_its_snapshot_has_expired() -> None:
    bench = Bench()
    job = Job(bench)
    job.cut(Phase.PUBLISHED)
    expire_all_but_the_newest(bench)
    assert job.call().outcome == "already committed"
    assert job.written == 1


def test_two_calls_at_once_have_one_effect() -> None:
    bench = Bench()
    first, second = Job(bench), Job(bench)
    reports: list[CommitReport] = []
    reports.append(first.call(meanwhile=lambda: reports.append(second.call())))
    assert [report.outcome for report in reports] == ["committed", "already committed"]
    assert rows_of(bench) == 10
    assert len(own_files(bench)) == 1


@pytest.mark.parametrize("phase", [Phase.WRITTEN, Phase.BASE_READ, Phase.CHECKED, Phase.STAGED])
def test_a_call_that_was_paused_before_its_put_publishes_nothing(phase: Phase) -> None:
    bench = Bench()
    first, second = Job(bench), Job(bench)

    def other() -> None:
        second.call()
        expire_all_but_the_newest(bench)

    report: CommitReport | None = None
    with suppress(HistoryUnknown, SharedCheckpoint):
        report = first.call(At(phase, other))
    assert report is None or report.outcome == "already committed"
    assert rows_of(bench) == 10 + 30
    assert first.call().outcome == "already committed"


def test_a_call_that_was_judged_when_all_was_removed_finds_the_receipt_before_it_commits() -> None:
    bench = Bench()
    first, second = Job(bench), Job(bench)

    def other() -> None:
        second.call()
        expire_all_but_the_newest(bench)

    # The other call ends between the first look for a receipt and the judgement.
    report = first.call(At(Phase.BATCH_STARTED, other))
    assert report.outcome == "already committed"
    assert rows_of(bench) == 40
    assert len(own_files(bench)) == 1 + len([f for f in own_files(bench) if "/other/" in f])


def test_rows_that_can_be_read_once_are_not_taken_for_no_rows() -> None:
    bench = Bench()
    Stream(bench, user="other", query_id="other", checkpoint="/ck/other").batches(1)
    no_reuse = {"paimon-stream.journal.reuse": "false"}
    first = Job(bench, may_write_again=False, options=no_reuse)

    class Meanwhile:
        """Another call publishes and is killed, and a rollback takes its rows."""

        judgements = 0

        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is Phase.JUDGED:
                self.judgements += 1
                if self.judgements == 1:
                    Job(bench).cut(Phase.PUBLISHED)
            if phase is Phase.BATCH_STARTED and self.judgements == 1:
                rollback_to(bench.table, 1, runtime=bench.runtime)

    with pytest.raises(SharedCheckpoint, match="Repeat the call"):
        first.call(Meanwhile())
    assert (first.written, rows_of(bench)) == (1, 10)
    assert Job(bench).call().outcome == "committed"
    assert rows_of(bench) == 20


def test_rows_that_were_rolled_back_are_an_error_and_do_not_come_back() -> None:
    bench = Bench()
    Stream(bench, user="other", query_id="other").batches(1)
    job = Job(bench)
    job.call()
    rollback_to(bench.table, 1, runtime=bench.runtime)
    for _ in range(2):
        with pytest.raises(TableRolledBack, match="another identity") as raised:
            job.call()
        assert raised.value.context["identity"] == LOAD
    assert Job(bench, identity="load-again").call().outcome == "committed"
    with pytest.raises(TableRolledBack):
        job.call()  # its snapshot's id was used again
    assert rows_of(bench) == 20


def test_expired_rows_that_a_rollback_took_are_an_error() -> None:
    bench = Bench()
    other = Stream(bench, user="other", query_id="other", checkpoint="/ck/other")
    other.batches(1)
    create_tag(bench.table, "before", 1, runtime=bench.runtime)
    job = Job(bench)
    job.call()
    other.batches(3)
    expire_snapshots(bench.table, retain_max=1, retain_min=1, runtime=bench.runtime)
    assert 2 not in bench.snapshots.ids()
    rollback_to(bench.table, "before", runtime=bench.runtime)
    with pytest.raises((TableRolledBack, HistoryUnknown), match=LOAD):
        job.call()
    assert rows_of(bench) == 10


OTHERS: dict[str, dict[str, Any]] = {
    "10 rows, and now there are 7": {"rows": 7},
    "was an append, and this is an overwrite": {"kind": "overwrite", "replaced": WHOLE_TABLE},
}


@pytest.mark.parametrize("difference", OTHERS)
def test_other_rows_under_an_identity_are_an_error(difference: str) -> None:
    bench = Bench()
    Job(bench).call()
    other = replace(Job(bench), **OTHERS[difference])
    with pytest.raises(IdentityUsed, match=difference):
        other.call()
    assert (other.written, rows_of(bench)) == (0, 10)


@pytest.mark.parametrize("difference", OTHERS)
def test_other_rows_are_an_error_before_there_is_a_receipt(difference: str) -> None:
    bench = Bench()
    Job(bench).cut(Phase.PUBLISHED)
    other = replace(Job(bench), **OTHERS[difference])
    with pytest.raises(IdentityUsed, match="used before, with other rows"):
        other.call()
    assert (other.written, rows_of(bench)) == (0, 10)


def test_a_number_of_rows_that_is_not_known_is_no_difference() -> None:
    bench = Bench()
    Job(bench).call()
    assert Job(bench, rows=None).call().outcome == "already committed"


def test_without_rows_there_is_a_receipt_and_no_snapshot() -> None:
    bench = Bench()
    job = Job(bench, rows=0)
    assert job.call().outcome == "empty"
    assert bench.snapshots.ids() == []
    assert (job.call().outcome, job.written) == ("already committed", 1)


def test_an_overwrite_that_is_repeated_leaves_what_came_after_it() -> None:
    bench = Bench(partitioned=True)
    named = Replaced(partition={"dt": "a"}, dynamic=None)
    Job(bench, identity="old a", dt="a").call()
    Job(bench, identity="old b", dt="b").call()
    job = Job(bench, kind="overwrite", replaced=named, dt="a", rows=5)
    assert job.call().outcome == "committed"
    assert rows_of(bench) == 15
    Job(bench, identity="later", dt="a", rows=1).call()
    assert job.call().outcome == "already committed"
    assert rows_of(bench) == 16
    with pytest.raises(IdentityUsed, match="partition dt=a, and this call replaces partition dt=b"):
        replace(job, dt="b", replaced=Replaced(partition={"dt": "b"}, dynamic=None)).call()


def test_a_killed_overwrite_of_a_partition_goes_on_with_its_files() -> None:
    bench = Bench(partitioned=True)
    Job(bench, identity="old a", dt="a").call()
    Job(bench, identity="old b", dt="b").call()
    named = Replaced(partition={"dt": "a"}, dynamic=None)
    job = Job(bench, kind="overwrite", replaced=named, dt="a", rows=5)
    job.cut(Phase.STAGED)
    assert (job.call().reused, rows_of(bench), job.written) == (True, 15, 1)


def test_an_answer_that_is_lost_is_found_by_the_repeated_call() -> None:
    bench = Bench(options={"commit.max-retries": "0", "commit.max-retry-wait": "1 ms"})
    job = Job(bench)
    lost = replace(LOST_SNAPSHOT, path="snapshot/snapshot-")
    with pytest.raises(CommitUnknown, match="Repeat the call"):
        job.call(storage=FaultyStorage(bench.storage, [lost]))
    assert job.call().outcome == "already committed"
    assert rows_of(bench) == 10


def test_orphan_removal_verify_and_expiry_keep_receipts() -> None:
    bench = Bench()
    job = Job(bench)
    job.call()
    expire_all_but_the_newest(bench)
    bench.clock.advance(40 * 86_400_000)
    report = remove_orphan_files(
        bench.table, timedelta(hours=1), dry_run=False, runtime=bench.runtime
    )
    assert not [path for path in report.paths if "once" in path]
    assert job.has_receipt()
    assert verify(bench.table).healthy
    assert job.call().outcome == "already committed"


def test_a_write_with_an_identity_is_no_stream_that_has_stopped() -> None:
    bench = Bench()
    watch = StreamWatch(bench.storage)
    Job(bench).cut(Phase.PUBLISHED)
    assert watch.look(bench.clock.now_millis()).state == "no stream"
    stream = Stream(bench)
    stream.batches(3)
    Job(bench).call()
    Job(bench, identity="another").call()
    state = watch.look(bench.clock.now_millis())
    assert (state.state, state.user, state.batch) == ("well", "me", 2)


def test_the_doctor_does_not_ask_for_the_checkpoint_of_an_identity() -> None:
    bench = Bench()
    Job(bench, identity="done").call()
    Job(bench).cut(Phase.PUBLISHED)
    assert examine(bench.storage) == ()
    Stream(bench).batches(1)
    (diagnosis,) = examine(bench.storage)
    assert (diagnosis.user, [writer.user for writer in diagnosis.known]) == ("me", [])


def test_a_table_that_was_created_again_does_not_know_the_identity() -> None:
    bench = Bench()
    Job(bench).call()
    receipt = bench.storage.read(f"_paimon_stream/once.receipts/{LOAD}.json")
    anew = Bench(seed=1, options={"bucket": "-1"})
    anew.storage.write(f"_paimon_stream/once.receipts/{LOAD}.json", receipt)
    job = Job(anew)
    assert [job.call().outcome, job.call().outcome] == ["committed", "already committed"]


@pytest.mark.parametrize(
    "identity", ["x" * 300, "a/../b", "Zoë's 朝の load", "42", "writer", ".", "a.json", "A" * 5000]
)
def test_any_text_is_an_identity(identity: str) -> None:
    bench = Bench()
    job = Job(bench, identity=identity)
    assert [job.call().outcome, job.call().outcome] == ["committed", "already committed"]
    assert Job(bench, identity=f"{identity}x").call().outcome == "committed"


def test_a_branch_knows_what_came_with_it_and_main_what_it_was_forwarded_to() -> None:
    bench = Bench()
    Job(bench).call()
    create_tag(bench.table, "t", 1, runtime=bench.runtime)
    create_branch(bench.table, "b", "t", runtime=bench.runtime)
    branch = branch_storage(bench.storage, "b")
    in_branch = Job(bench, storage=branch)
    assert (in_branch.call().outcome, in_branch.written) == ("already committed", 0)
    assert Job(bench, identity="in main").call().outcome == "committed"
    assert Job(bench, identity="in branch", storage=branch).call().outcome == "committed"
    assert Job(bench, identity="in main", storage=branch, rows=3).call().outcome == "committed"
    fast_forward(bench.table, "b", runtime=bench.runtime)
    for identity, rows in ((LOAD, 10), ("in branch", 10), ("in main", 3)):
        job = Job(bench, identity=identity, rows=rows)
        assert job.call().outcome == "already committed"
    assert rows_of(bench) == 23


def _branched(bench: Bench) -> Storage:
    """A branch of the newest snapshot."""
    create_tag(bench.table, "t", bench.latest().id, runtime=bench.runtime)
    create_branch(bench.table, "b", "t", runtime=bench.runtime)
    return branch_storage(bench.storage, "b")


def test_a_branch_does_not_take_what_main_wrote_after_a_rollback_for_its_own() -> None:
    bench = Bench()
    Job(bench, identity="shared").call()
    Job(bench, identity="in the branch alone").call()
    branch = _branched(bench)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    Job(bench).call()  # its snapshot has the id of the snapshot that the branch was made from
    Job(bench, identity="above the branch").call()
    with pytest.raises(HistoryUnknown, match="main was rolled back"):
        Job(bench, storage=branch).call()
    for identity, outcome in (("shared", "already committed"), ("above the branch", "committed")):
        assert Job(bench, identity=identity, storage=branch).call().outcome == outcome


@pytest.mark.parametrize("others", [0, 3])
def test_rows_that_a_branch_kept_and_main_wrote_again_are_not_doubled_in_the_branch(
    others: int,
) -> None:
    bench = Bench()
    Job(bench, identity="shared").call()
    Job(bench).cut(Phase.PUBLISHED)
    Job(bench, identity="after it").call()
    branch = _branched(bench)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    for number in range(others):
        Job(bench, identity=f"other {number}").call()
    assert Job(bench).call().outcome == "committed"
    in_branch = Job(bench, storage=branch)
    with suppress(HistoryUnknown):
        in_branch.call()
    newest = SnapshotStore(branch).latest()
    assert newest is not None
    assert (newest.total_record_count, in_branch.written) == (30, 0)


def test_a_receipt_that_cannot_be_written_fails_no_call() -> None:
    bench = Bench()
    job = Job(bench)

    class NoReceipts(FaultyStorage):
        def put_if_absent(self, path: str, data: bytes) -> Any:
            if "once.receipts" in path:
                raise StorageError("the disk is full", path=path)
            return super().put_if_absent(path, data)

    assert job.call(storage=NoReceipts(bench.storage, [])).outcome == "committed"
    assert not job.has_receipt()
    assert job.call().outcome == "already committed"
    assert job.has_receipt()
