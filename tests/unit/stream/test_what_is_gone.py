"""A stream comes back and its last snapshot is gone: expired, rolled back, or not to be known."""

from __future__ import annotations

import logging

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CommitLost,
    HistoryUnknown,
    TableReplaced,
    TableRolledBack,
)
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.maintenance.branches import create_branch, delete_branch, fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.manifest_compaction import compact_manifests
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.table.fate import Fate, fate_of_batch
from paimon_stream.table.removals import Removals, Removed, read_removals
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS, Fault, FaultyStorage, Killed
from tests.kits.java_forward import forward_as_java
from tests.kits.places import STORE, following
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.stream.test_branch_streams import of_branch

RESTARTED = pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "live"])
NO_JOURNAL = {"paimon-stream.journal": "false"}
CONTINUE = {"paimon-stream.on-table-change": "continue"}


def stream_of(batches: int, **given: object) -> Stream:
    stream = Stream(Bench(), **given)  # type: ignore[arg-type]
    stream.batches(batches)
    return stream


def outage(bench: Bench, commits: int = 4) -> None:
    """Others go on, and everything old expires."""
    other = TableCommit(bench.table, "other", runtime=bench.runtime)
    base = bench.snapshots.latest_id() or 0
    for number in range(commits):
        other.commit(base + number, [bench.message(f"other-{base + number}")])
    expire(bench)


def expire(bench: Bench) -> None:
    bench.clock.advance(3_600_000)
    expire_snapshots(bench.table, 1, 1, 1, protect_streams=False, runtime=bench.runtime)


def removed_by_another_engine(bench: Bench, *ids: int) -> None:
    for one in ids:
        bench.storage.delete(f"snapshot/snapshot-{one}")
    bench.storage.write("snapshot/LATEST", str(min(ids) - 1).encode())


def note_paths(bench: Bench) -> list[str]:
    names = bench.storage.list_names("_paimon_stream", "removed.")
    return [f"_paimon_stream/{name}" for name in names]


# -- rollbacks
# ----------------------------------------------------------------------------


@RESTARTED
def test_a_rollback_is_not_forgotten_once_snapshots_have_expired(restarted: bool) -> None:
    stream = stream_of(5)
    assert rollback_to(stream.bench.table, 3, runtime=stream.bench.runtime).streams == {"me": 3}
    outage(stream.bench)
    if restarted:
        stream.start()
    with pytest.raises(TableRolledBack, match=r"batch 4 was committed, and .* removed snapshot 5"):
        stream.batch()


@RESTARTED
def test_batches_that_had_expired_before_a_rollback_to_a_tag_are_lost_too(restarted: bool) -> None:
    stream = stream_of(1)
    bench = stream.bench
    create_tag(bench.table, "t", runtime=bench.runtime)
    stream.batches(2)
    outage(bench)
    dry = rollback_to(bench.table, "t", dry_run=True, runtime=bench.runtime)
    assert rollback_to(bench.table, "t", runtime=bench.runtime).streams["me"] == 1
    assert dry.streams["me"] == 1
    bench.storage.delete("tag/tag-t")
    outage(bench)
    if restarted:
        stream.start()
    with pytest.raises(TableRolledBack, match=r"batch 2 was committed"):
        stream.batch()


def test_a_rollback_to_a_tag_notes_no_batch_that_the_tag_has() -> None:
    stream = stream_of(3)
    bench = stream.bench
    create_tag(bench.table, "t", runtime=bench.runtime)
    outage(bench)
    assert "me" not in rollback_to(bench.table, "t", runtime=bench.runtime).streams
    bench.storage.delete("tag/tag-t")
    outage(bench)
    stream.start()
    stream.batch()


def test_a_note_of_another_snapshot_with_the_batch_leaves_open_whether_it_is_there() -> None:
    """As where `recommit` published the batch from its lists, and a rollback took that."""
    note = Removed(
        snapshot=SnapshotRef(id=9, nonce="again"), user="me", identifier=4, millis=50_000
    )
    removals = Removals(removed=(note,))
    alone = fate_of_batch(removals, ["attempt"], 10_000)
    assert alone.fate is Fate.EXPIRED
    noted = fate_of_batch(removals, ["attempt"], 10_000, lambda one: one is note)
    assert noted.fate is Fate.UNKNOWN
    assert "removed snapshot 9" in noted.why
    later = fate_of_batch(removals, ["attempt"], 10_000_000, lambda one: one is note)
    assert later.fate is Fate.EXPIRED


@pytest.mark.parametrize("before", [0, 1], ids=["none left", "one left"])
@pytest.mark.parametrize("forwarded", [True, False])
def test_without_a_journal_what_had_expired_before_a_rollback_or_forward_is_asked_about(
    before: int, forwarded: bool
) -> None:
    bench = Bench()
    TableCommit(bench.table, "first", runtime=bench.runtime).commit(0, [bench.message("first")])
    stream = Stream(bench, options=NO_JOURNAL)
    stream.batches(before)
    create_tag(bench.table, "t", runtime=bench.runtime)
    create_branch(bench.table, "x", "t", runtime=bench.runtime)
    stream.batch()
    outage(bench)
    if forwarded:
        fast_forward(bench.table, "x", runtime=bench.runtime)
    else:
        rollback_to(bench.table, "t", runtime=bench.runtime)
    for _ in range(2):
        stream.start()
        with pytest.raises(HistoryUnknown, match=f"batch {before} .* taken snapshots that had exp"):
            stream.batch()
    bench.clock.advance(600_000)  # clocks may differ: what is done within five minutes says nothing
    stream.options = {**NO_JOURNAL, "paimon-stream.on-unknown-history": "continue"}
    stream.start()
    stream.batch()
    stream.options = NO_JOURNAL
    for _ in range(2):
        stream.start()
        stream.batch(rows=0)


@RESTARTED
def test_a_plain_outage_stops_nothing(restarted: bool) -> None:
    stream = stream_of(5)
    outage(stream.bench)
    if restarted:
        stream.start()
    stream.batches(2)


@pytest.mark.parametrize("expired", [True, False])
def test_a_writer_without_spark_does_not_go_on_over_commits_that_were_rolled_back(
    expired: bool,
) -> None:
    bench = Bench()
    writer = TableCommit(bench.table, "w", runtime=bench.runtime)
    for number in range(5):
        writer.commit(number, [bench.message(f"w-{number}")])
    rollback_to(bench.table, 3, runtime=bench.runtime)
    outage(bench, 4 if expired else 1)
    with pytest.raises(TableRolledBack):
        writer.commit(5, [bench.message("w-5")])


def test_a_stream_without_a_journal_is_stopped_by_the_note_of_its_batch() -> None:
    stream = stream_of(5, options=NO_JOURNAL)
    rollback_to(stream.bench.table, 3, runtime=stream.bench.runtime)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 4 was committed"):
        stream.batch()


@RESTARTED
def test_after_the_operators_decision_the_note_never_stops_the_stream_again(
    restarted: bool,
) -> None:
    stream = stream_of(5)
    rollback_to(stream.bench.table, 3, runtime=stream.bench.runtime)
    outage(stream.bench)
    stream.options = {"paimon-stream.on-table-change": "continue"}
    stream.start()
    stream.batch()
    stream.options = {}
    if restarted:
        stream.start()
    outage(stream.bench)
    stream.batch()
    stream.start()
    outage(stream.bench)
    stream.batch()


@pytest.mark.parametrize("running", [True, False], ids=["the same run", "a new run"])
@pytest.mark.parametrize("journal", ["true", "false"])
def test_what_an_operator_gave_up_is_never_asked_about_again(journal: str, running: bool) -> None:
    without = {} if journal == "true" else NO_JOURNAL
    stream = stream_of(5, options={**without, **(CONTINUE if running else {})})
    rollback_to(stream.bench.table, 4, runtime=stream.bench.runtime)
    stream.options = {**without, **CONTINUE}
    if not running:
        stream.start()
    stream.batch(rows=0)
    stream.options = without
    for _ in range(3):
        stream.start()
        stream.batch(rows=0)
    stream.start()
    stream.batch()
    outage(stream.bench)
    if not without:
        stream.start()
        stream.batch()


@pytest.mark.parametrize("running", [True, False], ids=["the same run", "a new run"])
@pytest.mark.parametrize("journal", ["true", "false"])
@pytest.mark.parametrize("with_rows", [True, False])
def test_a_later_rollback_stops_the_stream_also_after_an_operators_decision(
    with_rows: bool, journal: str, running: bool
) -> None:
    """Of batches that were in the table then, and of those after it."""
    without = {} if journal == "true" else NO_JOURNAL
    stream = stream_of(5, options={**without, **(CONTINUE if running else {})})
    bench = stream.bench
    rollback_to(bench.table, 4, runtime=bench.runtime)
    stream.options = {**without, **CONTINUE}
    if not running:
        stream.start()
    stream.batch(rows=0)
    stream.options = without
    stream.start()
    stream.batch(rows=10 if with_rows else 0)
    assert rollback_to(bench.table, 2, runtime=bench.runtime).streams == {"me": 2}
    lost = 6 if with_rows else 3
    for _ in range(2):
        stream.start()
        with pytest.raises(TableRolledBack, match=f"batch {lost} was committed"):
            stream.batch()
    stream.options = {**without, **CONTINUE}
    stream.start()
    stream.batch(rows=0)
    stream.options = without
    stream.start()
    stream.batch(rows=0)
    stream.start()
    stream.batch()


def test_a_decision_about_a_gap_in_a_table_that_does_not_know_the_stream_holds() -> None:
    stream = stream_of(5)
    bench = stream.bench
    rollback_to(bench.table, 4, runtime=bench.runtime)
    for page in bench.storage.list_below("_paimon_stream/me"):
        for stat in page:
            bench.storage.delete(stat.path)
    stream.start()
    with pytest.raises(HistoryUnknown, match="batch 4 is not known here"):
        stream.batch()
    stream.options = {"paimon-stream.on-unknown-history": "continue"}
    stream.start()
    stream.batch(rows=0)
    stream.options = {}
    for rows in (0, 10):
        stream.start()
        stream.batch(rows=rows)


@pytest.mark.parametrize("rows", [0, 10])
def test_a_rollback_of_all_batches_stops_a_stream_without_a_journal(rows: int) -> None:
    stream = Stream(Bench(), options=NO_JOURNAL)
    bench = stream.bench
    other = TableCommit(bench.table, "other", runtime=bench.runtime)
    other.commit(0, [bench.message("other-0")])
    stream.batches(3)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    other.commit(1, [bench.message("other-1")])
    for _ in range(2):
        stream.start()
        with pytest.raises(TableRolledBack, match="batch 2 was committed"):
            stream.batch()
    stream.options = {**NO_JOURNAL, **CONTINUE}
    stream.start()
    stream.batch(rows=rows)
    stream.options = NO_JOURNAL
    stream.start()
    stream.batch()


def test_a_new_checkpoint_is_not_stopped_by_notes_of_the_old_one() -> None:
    stream = stream_of(3, options=NO_JOURNAL)
    bench = stream.bench
    rollback_to(bench.table, 1, runtime=bench.runtime)
    reset = {"paimon-stream.on-checkpoint-reset": "continue"}
    again = Stream(bench, query_id="q2", options={**NO_JOURNAL, **reset}, written=9)
    again.batch()
    again.options = NO_JOURNAL
    again.batch(rows=0)
    again.start()
    again.batch(rows=0)
    again.start()
    again.batch()


def test_a_batch_that_the_checkpoint_runs_again_is_not_given_up_any_more() -> None:
    stream = stream_of(5, options=NO_JOURNAL)
    bench = stream.bench
    rollback_to(bench.table, 4, runtime=bench.runtime)
    stream.options = {**NO_JOURNAL, **CONTINUE}
    stream.start()
    stream.batch(rows=0)
    stream.options = NO_JOURNAL
    stream.next_batch = 4  # the operator puts the checkpoint back after all
    stream.start()
    stream.batch()
    stream.batch(rows=0)
    rollback_to(bench.table, 4, runtime=bench.runtime)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 4 was committed"):
        stream.batch()


def test_a_batch_that_was_rolled_back_and_published_again_is_not_taken_for_lost() -> None:
    stream = stream_of(5)
    rollback_to(stream.bench.table, 4, runtime=stream.bench.runtime)
    stream.bench.clock.advance(600_000)
    stream.next_batch = 4
    stream.start()
    stream.batch()
    removed = read_removals(stream.bench.storage)
    assert [one.identifier for one in removed.removed if one.user] == [4]
    outage(stream.bench)
    stream.start()
    stream.batch()


def test_files_that_were_published_again_after_a_rollback_are_not_taken_for_lost() -> None:
    """The run takes over the files of a killed one. They are older than the rollback, their second
    publication is younger.
    """
    stream = stream_of(4)
    bench = stream.bench
    stream.start(At(Phase.HINTED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    rollback_to(bench.table, 4, runtime=bench.runtime)
    bench.clock.advance(3_600_000)
    stream.start()
    assert stream.batch().reused
    outage(bench)
    names = [name for name in bench.live_names() if name.startswith("me-4")]
    compacted = bench.compaction(*names, into="c")
    bench.committer().commit(bench.request(0, [compacted], user="c"))
    expire(bench)
    stream.start()
    stream.batch()


def test_an_attempt_within_five_minutes_of_the_rollback_leaves_the_order_open() -> None:
    stream = stream_of(5)
    rollback_to(stream.bench.table, 4, runtime=stream.bench.runtime)
    stream.next_batch = 4
    stream.start()
    stream.batch()
    outage(stream.bench)
    names = [name for name in stream.bench.live_names() if name.startswith("me-4")]
    compacted = stream.bench.compaction(*names, into="c")
    stream.bench.committer().commit(stream.bench.request(0, [compacted], user="c"))
    expire(stream.bench)
    stream.start()
    with pytest.raises(HistoryUnknown, match="whether the batch was published again"):
        stream.batch()


def test_a_live_file_outweighs_the_note() -> None:
    stream = stream_of(5)
    rollback_to(stream.bench.table, 4, runtime=stream.bench.runtime)
    rescue = TableCommit(stream.bench.table, "operator", runtime=stream.bench.runtime)
    rescue.commit(0, [stream.bench.message("me-4-5")])
    outage(stream.bench)
    stream.start()
    stream.batch()


def test_what_another_engine_rolled_back_and_let_expire_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = stream_of(5)
    removed_by_another_engine(stream.bench, 5, 4)
    stream.bench.snapshots.look_at_hint()
    outage(stream.bench)
    stream.start()
    with caplog.at_level(logging.WARNING):
        stream.batch()
    said = [
        one.getMessage()
        for one in caplog.records
        if "mention none of the files" in one.getMessage()
    ]
    assert len(said) == 1
    assert "batch 4" in said[0]
    assert "me-4-5" in said[0]


def test_an_outage_without_a_loss_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stream = stream_of(5)
    outage(stream.bench)
    stream.start()
    with caplog.at_level(logging.INFO):
        stream.batch()
    assert "mention none" not in caplog.text


# -- what the notes are
# ---------------------------------------------------------------------


def test_no_note_is_dropped() -> None:
    stream = stream_of(3)
    bench = stream.bench
    nonces = [one.nonce for one in bench.snapshots.walk_down(3)]
    for number in range(5):
        rollback_to(bench.table, 1, runtime=bench.runtime)
        TableCommit(bench.table, "o", runtime=bench.runtime).commit(
            number, [bench.message(f"o-{number}")]
        )
    removals = read_removals(bench.storage)
    assert all(removals.of_nonce(one) for one in nonces[:2])
    assert len(note_paths(bench)) == 5


@pytest.mark.parametrize("content", [b"", b"damaged", None], ids=["empty", "damaged", "newer"])
@pytest.mark.parametrize("which", ["new", "old"])
def test_a_note_that_cannot_be_read_is_a_doubt(content: bytes | None, which: str) -> None:
    stream = stream_of(5)
    bench = stream.bench
    rollback_to(bench.table, 3, runtime=bench.runtime)
    outage(bench)
    path = note_paths(bench)[0] if which == "new" else "_paimon_stream/rolled-back.json"
    for one in note_paths(bench):
        if which == "old":
            bench.storage.delete(one)
    data = bench.storage.read(path)
    newer = data.replace(b" 1 sha256", b" 9 sha256", 1)
    bench.storage.write(path, newer if content is None else content)
    if which == "new":
        bench.storage.delete("_paimon_stream/rolled-back.json")
    stream.start()
    with pytest.raises(HistoryUnknown, match="cannot be read"):
        stream.batch()
    stream.options = {"paimon-stream.on-unknown-history": "continue"}
    stream.start()
    stream.batch()


def test_what_an_older_release_has_noted_is_still_read() -> None:
    stream = stream_of(5)
    bench = stream.bench
    rollback_to(bench.table, 3, runtime=bench.runtime)
    for path in note_paths(bench):
        bench.storage.delete(path)
    outage(bench)
    stream.start()
    with pytest.raises(TableRolledBack):
        stream.batch()


@pytest.mark.parametrize("kind", ["killed before", "killed after"])
def test_a_rollback_that_was_killed_anywhere_hides_no_loss(kind: str) -> None:
    at, fired, stopped = 0, True, 0
    while fired:
        at = following(at)
        stream = stream_of(5)
        bench = stream.bench
        storage = FaultyStorage(bench.storage, [Fault(at=at, **FAULTS[kind])])  # type: ignore[arg-type]
        try:
            rollback_to(bench.on(storage), 3, runtime=bench.runtime)
        except Killed:
            rollback_to(bench.table, 3, take_over=True, runtime=bench.runtime)
        fired = storage.fired
        outage(bench)
        stream.start()
        with pytest.raises((TableRolledBack, HistoryUnknown)):
            stream.batch()
        stopped += 1
    assert stopped > (1 if STORE else 3)  # in a store few of the operations are tried


def test_an_announced_snapshot_that_still_stands_is_in_the_table() -> None:
    stream = stream_of(5)
    bench = stream.bench
    storage = FaultyStorage(
        bench.storage,
        [Fault(at=1, verb="delete", path="snapshot/snapshot-", **FAULTS["killed before"])],
    )
    with pytest.raises(Killed):
        rollback_to(bench.on(storage), 3, runtime=bench.runtime)
    for stat in bench.storage.list_files("tag"):  # somebody gave the rollback up
        bench.storage.delete(stat.path)
    assert len(note_paths(bench)) == 1
    stream.start()
    stream.batch()
    outage(bench)
    stream.start()
    stream.batch()  # batch 5 was not announced


def test_a_snapshot_that_was_announced_and_is_gone_cannot_be_known() -> None:
    stream = stream_of(5)
    bench = stream.bench
    storage = FaultyStorage(
        bench.storage,
        [Fault(at=1, verb="delete", path="snapshot/snapshot-", **FAULTS["killed before"])],
    )
    with pytest.raises(Killed):
        rollback_to(bench.on(storage), 3, runtime=bench.runtime)
    for stat in bench.storage.list_files("tag"):
        bench.storage.delete(stat.path)
    outage(bench)
    bench.committer().commit(bench.request(0, [bench.compaction("me-4-5", into="c")], user="c"))
    stream.start()
    with pytest.raises(HistoryUnknown, match="had begun to remove snapshot 5"):
        stream.batch()


def test_a_rollback_that_cannot_note_says_first_which_streams_will_not_be_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = stream_of(5)
    bench = stream.bench
    full = FaultyStorage(
        bench.storage, [Fault(at=1, verb="put_if_absent", path="_paimon_stream/removed.")]
    )
    with caplog.at_level(logging.WARNING):
        rollback_to(bench.on(full), 3, runtime=bench.runtime)
    said = [one.getMessage() for one in caplog.records]
    assert "will not be stopped" in said[0]
    assert "'me' from batch 3 on" in said[0]
    assert bench.snapshots.ids() == [1, 2, 3]


# -- branches
# -------------------------------------------------------------------------------


def apart(bench: Bench, *, expired: bool) -> tuple[Stream, Stream]:
    """Main and a branch with a stream each, which have gone apart after snapshot 3."""
    main = Stream(bench, user="m", query_id="qm")
    main.batches(3)
    create_tag(bench.table, "v1", runtime=bench.runtime)
    create_branch(bench.table, "x", "v1", runtime=bench.runtime)
    bench.storage.delete("tag/tag-v1")
    branch = Stream(of_branch(bench), user="b", query_id="qb", checkpoint="/ck/b")
    branch.batches(4)
    main.batches(2)
    if expired:
        branch.bench.storage.delete("tag/tag-v1")
        expire(branch.bench)
    return main, branch


@RESTARTED
@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_a_fast_forward_hides_no_lost_batches(restarted: bool, expired: bool, later: bool) -> None:
    bench = Bench()
    main, branch = apart(bench, expired=expired)
    assert fast_forward(bench.table, "x", runtime=bench.runtime).streams == {"m": 3}
    if later:
        outage(bench)
    if restarted:
        main.start()
    with pytest.raises(TableRolledBack):
        main.batch()
    del branch


def test_batches_that_had_expired_before_a_fast_forward_are_lost_too() -> None:
    bench = Bench()
    main, _ = apart(bench, expired=True)
    outage(bench)
    assert fast_forward(bench.table, "x", runtime=bench.runtime).streams["m"] <= 4
    main.start()
    with pytest.raises(TableRolledBack):
        main.batch()


def test_what_main_and_the_branch_share_is_not_noted() -> None:
    bench = Bench()
    main = Stream(bench, user="m", query_id="qm")
    main.batches(3)
    create_tag(bench.table, "v1", runtime=bench.runtime)
    create_branch(bench.table, "x", "v1", runtime=bench.runtime)
    branch = Stream(of_branch(bench), user="b", query_id="qb", checkpoint="/ck/b")
    branch.batches(3)
    branch.bench.storage.delete("tag/tag-v1")
    expire(branch.bench)
    assert fast_forward(bench.table, "x", runtime=bench.runtime).streams == {}
    outage(bench)
    main.start()
    main.batch()


def test_without_a_branch_point_a_fast_forward_leaves_what_cannot_be_known() -> None:
    bench = Bench()
    main, branch = apart(bench, expired=True)
    branch.bench.storage.delete("_paimon_stream/identity.json")
    fast_forward(bench.table, "x", runtime=bench.runtime)
    main.start()
    with pytest.raises(HistoryUnknown, match="where the branch was made is not known"):
        main.batch()


@pytest.mark.parametrize("later", [True, False])
def test_a_branchs_stream_goes_on_in_main_after_a_fast_forward(later: bool) -> None:
    """Also with ten batches without rows, which leave nothing."""
    bench = Bench()
    _, branch = apart(bench, expired=True)
    for _ in range(10):
        branch.batch(rows=0)
    fast_forward(bench.table, "x", runtime=bench.runtime)
    if later:
        outage(bench)
    branch.bench = bench
    branch.start()
    branch.batch()


def test_ten_batches_without_rows_and_a_restart_go_on(caplog: pytest.LogCaptureFixture) -> None:
    stream = stream_of(2)
    for _ in range(10):
        stream.batch(rows=0)
    stream.start()
    with caplog.at_level(logging.INFO, logger="paimon_stream"):
        stream.batch()
    said = [
        one
        for one in caplog.records
        if "records batches 2 to 11 as done, but no snapshot" in one.message
    ]
    assert [one.levelname for one in said] == ["INFO"]


@pytest.mark.parametrize("registered", [True, False])
def test_a_checkpoint_ahead_of_a_branch_is_not_accepted(registered: bool) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batches(2)
    create_tag(bench.table, "v1", runtime=bench.runtime)
    stream.batches(2)
    create_branch(bench.table, "x", "v1", runtime=bench.runtime)
    stream.bench = of_branch(bench)
    stream.done_millis = None
    stream.start()
    with pytest.raises(HistoryUnknown, match="batches 2 to 3 are not known here"):
        stream.batch()
    if registered:
        stream.options = {"paimon-stream.on-unknown-history": "continue"}
        stream.start()
        stream.batch()
        stream.options = {}
        stream.start()
        stream.batch()


@RESTARTED
@pytest.mark.parametrize("tagged", [True, False])
def test_a_branch_that_was_deleted_and_made_again_is_recognised(
    restarted: bool, tagged: bool
) -> None:
    bench = Bench()
    for number in range(3):
        bench.committer().commit(bench.request(number, [bench.message(f"o{number}")], user="o"))
    tag = "v1" if tagged else None
    if tagged:
        create_tag(bench.table, "v1", runtime=bench.runtime)
    create_branch(bench.table, "x", tag, runtime=bench.runtime)
    stream = Stream(of_branch(bench))
    stream.batches(3)
    delete_branch(bench.table, "x")
    bench.clock.advance(1000)
    create_branch(bench.table, "x", tag, runtime=bench.runtime)
    if restarted:
        stream.start()
    with pytest.raises(TableReplaced):
        stream.batch()


# -- snapshots that had expired before a rollback
# ----------------------------------------------------------------------


def rolled_back_below(bench: Bench) -> None:
    """All of the others and of the stream goes, by a rollback to a tag on the first snapshot."""
    rollback_to(bench.table, "t", runtime=bench.runtime)
    bench.storage.delete("tag/tag-t")
    outage(bench, 12)


def above_a_tag(**given: object) -> Stream:
    stream = Stream(Bench(), **given)  # type: ignore[arg-type]
    bench = stream.bench
    TableCommit(bench.table, "first", runtime=bench.runtime).commit(0, [bench.message("first")])
    create_tag(bench.table, "t", runtime=bench.runtime)
    return stream


@pytest.mark.parametrize("idle", [0, 1], ids=["at once", "after a batch without rows"])
@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_live_stream_whose_snapshots_had_expired_before_a_rollback_does_not_go_on(
    journal: str, idle: int
) -> None:
    """Compactions and merged manifests hide that the batch was part of what was removed."""
    stream = above_a_tag(options={"paimon-stream.journal": journal})
    bench = stream.bench
    stream.batches(3)
    names = [name for name in bench.live_names() if name.startswith("me-")]
    compacted = bench.compaction(*names, into="compacted")
    bench.committer().commit(bench.request(0, [compacted], user="c"))
    compact_manifests(bench.table, runtime=bench.runtime)
    outage(bench)
    for _ in range(idle):
        stream.batch(rows=0)
    rolled_back_below(bench)
    with pytest.raises(HistoryUnknown, match=r"batch 2 was committed"):
        stream.batch()
    stream.options = {**stream.options, "paimon-stream.on-unknown-history": "continue"}
    stream.start()
    stream.batch()


def test_a_writer_without_spark_whose_snapshot_had_expired_before_a_rollback_does_not_go_on() -> (
    None
):
    bench = above_a_tag().bench
    writer = TableCommit(bench.table, "w", runtime=bench.runtime)
    writer.commit(0, [bench.message("w")])
    outage(bench)
    rolled_back_below(bench)
    with pytest.raises(HistoryUnknown, match="may have taken snapshot 2, which had expired"):
        writer.commit(1, [bench.message("w-1")])


@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_live_stream_that_published_after_a_rollback_goes_on_once_that_has_expired(
    journal: str,
) -> None:
    stream = above_a_tag(options={"paimon-stream.journal": journal})
    bench = stream.bench
    outage(bench)
    rollback_to(bench.table, "t", runtime=bench.runtime)
    stream.batch()
    bench.clock.advance(600_000)
    stream.batch(rows=0)  # finds the snapshot of batch 0 to stand
    outage(bench)
    stream.batches(2)


def test_a_decision_about_earlier_batches_does_not_show_that_this_one_is_new() -> None:
    """The run that published it died, and its snapshot has expired. Without a journal, the table
    does not show that batch 1 was run again after the rollback, either.
    """
    stream = stream_of(2, options=dict(NO_JOURNAL))
    bench = stream.bench
    rollback_to(bench.table, 1, runtime=bench.runtime)
    stream.next_batch = 1
    stream.start()
    stream.batch()
    stream.start(At(Phase.HINTED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    outage(bench)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 1 was committed"):
        stream.batch()
    stream.options |= CONTINUE
    stream.start()
    with pytest.raises(HistoryUnknown, match="no snapshot of this stream"):
        stream.batch()
    stream.options["paimon-stream.on-unknown-history"] = "continue"
    stream.start()
    stream.batch()


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
def test_a_live_stream_notices_a_forward_that_took_its_expired_batch(
    options: dict[str, str],
) -> None:
    """Main and the branch share no snapshot any more."""
    stream = stream_of(1, options=options)
    bench = stream.bench
    create_tag(bench.table, "v1", runtime=bench.runtime)
    create_branch(bench.table, "x", "v1", runtime=bench.runtime)
    outage(of_branch(bench))
    stream.batch()
    outage(bench)
    fast_forward(bench.table, "x", runtime=bench.runtime)
    with pytest.raises((TableRolledBack, HistoryUnknown), match="batch 1 was committed"):
        stream.batch()


# -- Java's fast forward
# ----------------------------------------------------------------------------


def forwarded_by_java(options: dict[str, str], *, commits: int, expired: bool) -> Stream:
    """A stream whose batch 1 main has lost to a branch with so many commits of its own."""
    stream = stream_of(1, options=options)
    bench = stream.bench
    create_tag(bench.table, "t", runtime=bench.runtime)
    create_branch(bench.table, "x", "t", runtime=bench.runtime)
    stream.batch()
    branch = of_branch(bench)
    for number in range(commits):
        branch.committer().commit(branch.request(number, [branch.message(f"b-{number}")], user="b"))
    if expired:
        expire(branch)
    forward_as_java(bench.storage, "x")
    return stream


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_javas_forward_is_seen_while_a_snapshot_of_the_stream_is_there(commits: int) -> None:
    """Another engine wrote to the branch. If this package did, the loss is that of a rollback."""
    stream = forwarded_by_java({}, commits=commits, expired=False)
    for _ in range(2):
        with pytest.raises(CommitLost if commits else TableRolledBack, match="batch 1"):
            stream.batch()
        stream.start()


@pytest.mark.parametrize("commits", [3, 5])
@pytest.mark.parametrize("left", [True, False])
def test_after_javas_forward_a_warning_names_the_batch_once_nothing_of_the_stream_is_left(
    caplog: pytest.LogCaptureFixture, commits: int, left: bool
) -> None:
    """With `left`, Java leaves main's snapshots below the branch's oldest one."""
    stream = forwarded_by_java({}, commits=commits, expired=left)
    if not left:
        outage(stream.bench)
    stream.start()
    with caplog.at_level(logging.WARNING):
        stream.batch()
    assert "mention none of the files of batch 1, the last one that was journalled: me-1-2" in (
        caplog.text
    )


def test_without_a_journal_javas_forward_is_not_seen_below_an_earlier_snapshot() -> None:
    """Its batches may have had no rows. Once none of the stream is left, that is asked."""
    stream = forwarded_by_java(NO_JOURNAL, commits=3, expired=False)
    stream.start()
    stream.batch()
    stream = forwarded_by_java(NO_JOURNAL, commits=3, expired=False)
    outage(stream.bench)
    stream.start()
    with pytest.raises(HistoryUnknown):
        stream.batch()
