"""Another engine replaces a snapshot that we have published: what the stream reports, at once and
after a restart, and how the batch is committed again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CheckpointRewound,
    CommitContended,
    CommitLost,
    CommitUnknown,
    DeletedFiles,
    HistoryUnknown,
    InvalidOption,
    NotFound,
    PaimonStreamError,
    SequenceConflict,
    TableRolledBack,
    Unavailable,
    UnsupportedFeature,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.recommit import RecommitReport, recommit
from tests.kits.commits import Bench, forget_removals
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.maintained import tried
from tests.kits.places import following
from tests.kits.races import Meanwhile
from tests.kits.rivals import Replacing
from tests.kits.streams import At, AtBatch, PowerCut, Stream
from tests.unit.commit.test_guard import At as Elsewhere

pytestmark = pytest.mark.s3

NO_CATALOG = "only read this table"


def lose(bench: Bench, name: str = "java-1") -> Snapshot:
    """Another engine staged its commit before ours was there, and copies it over ours
    afterwards.
    """
    return Replacing(bench).copy_over(bench.latest().id, name)


def started(bench: Bench, batches: int) -> Stream:
    stream = Stream(bench)
    stream.batches(batches)
    return stream


def test_the_next_batch_of_a_run_says_what_was_lost_by_whom_and_how_to_commit_it_again() -> None:
    bench = Bench()
    stream = started(bench, 3)
    lost = bench.latest()
    lose(bench)
    with pytest.raises(CommitLost) as caught:
        stream.batch()
    said, facts = str(caught.value), caught.value.context
    for part in (
        "snapshot 3, in which batch 2",
        "user 'java'",
        "10 in 1 file",
        NO_CATALOG,
        lost.nonce,
    ):
        assert part in said
    assert (facts["lost_batch"], facts["snapshot"], facts["by"]) == (2, 3, "java")
    assert (facts["rows"], facts["files"]) == (10, 1)
    assert facts["command"] in said
    assert facts["command"] == (
        f"paimon-stream recommit --user me --batch 2 --snapshot 3 --delta-list {lost.nonce} {bench.storage.location}"
    )


@pytest.mark.parametrize("batches", [1, 3])
def test_a_restart_says_so_too(batches: int) -> None:
    """It knows only from the journal that the batch was committed."""
    bench = Bench()
    stream = started(bench, batches)
    lose(bench)
    stream.start()
    with pytest.raises(
        CommitLost, match=f"batch {batches - 1} of this stream was committed"
    ) as caught:
        stream.batch()
    assert (
        f"paimon-stream recommit --user me --batch {batches - 1} {bench.storage.location}"
        in str(caught.value)
    )
    assert (caught.value.context["by"], caught.value.context["rows"]) == ("java", 10)


@pytest.mark.parametrize("place", ["s3://bucket/db.db/t", "/data/db.db/t"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_error_says_what_the_command_needs_besides(place: str, restarted: bool) -> None:
    """Without the storage options it does not find the store, and without --yes it commits
    nothing.
    """
    bench = Bench(storage=Elsewhere(place))
    stream = started(bench, 2)
    lose(bench)
    if restarted:
        stream.start()
    with pytest.raises(CommitLost, match="--yes") as caught:
        stream.batch()
    assert ("--storage-option" in str(caught.value)) is place.startswith("s3")


def test_a_restart_finds_a_loss_above_which_others_went_on() -> None:
    bench = Bench()
    stream = started(bench, 2)
    lose(bench)
    TableCommit(bench.table, "java", runtime=bench.runtime).commit(9, [bench.message("java-9")])
    stream.start()
    with pytest.raises(CommitLost):
        stream.batch()


def test_a_restart_at_the_lost_batch_itself_commits_its_files_again() -> None:
    bench = Bench()
    stream = started(bench, 2)
    lose(bench)
    stream.next_batch = 1  # Spark had not recorded it as done
    stream.start()
    assert stream.batch().reused
    bench.audit(["java-1", "me-0-1", "me-1-2"], orphans=True)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_rollback_is_no_loss(restarted: bool) -> None:
    bench = Bench()
    stream = started(bench, 3)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    if restarted:
        stream.start()
    with pytest.raises(TableRolledBack):
        stream.batch()


def test_a_snapshot_that_was_created_beside_the_line_is_no_loss() -> None:
    """Ours was already built upon, so the rows of the other engine are missing, and none of
    ours.
    """
    bench = Bench()
    stream = started(bench, 2)
    Replacing(bench).copy_over(1, "java-1")
    assert stream.batch().snapshot_id == 3
    bench.audit(["me-0-1", "me-1-2", "me-2-3"])


def test_a_lost_batch_whose_manifests_are_gone_is_reported_without_numbers() -> None:
    bench = Bench()
    stream = started(bench, 2)
    bench.storage.delete(f"manifest/{bench.latest().nonce}")
    lose(bench)
    with pytest.raises(CommitLost, match="its manifests are gone"):
        stream.batch()


# -- committed again
# -----------------------------------------------------------------------------------


def again(bench: Bench, *args: Any, yes: bool = True, **how: Any) -> RecommitReport:
    return recommit(bench.table, *args, dry_run=not yes, runtime=bench.runtime, **how)


@pytest.mark.parametrize("is_tagged", [True, False], ids=["tagged", "not tagged"])
@pytest.mark.parametrize("later", [0, 1], ids=["replaced", "replaced and built upon"])
def test_a_batch_that_fails_after_its_snapshot_was_tagged_and_replaced_keeps_its_files(
    later: int, is_tagged: bool
) -> None:
    bench = Bench(options={"commit.max-retries": "0"})
    stream = Stream(bench, options={"paimon-stream.journal": "false"})
    stream.batch()

    def tag_and_replace() -> None:
        if is_tagged:
            create_tag(bench.table, "lost", runtime=bench.runtime)
        lose(bench)
        for number in range(later):
            message = bench.message(f"java-{number + 2}")
            bench.committer().commit(bench.request(number, [message], user="java"))

    stream.start(At(Phase.PUBLISHED, tag_and_replace))
    error = CommitUnknown if is_tagged or not later else CommitContended
    with pytest.raises(error):
        stream.batch()
    kept = is_tagged or not later
    assert bench.storage.exists("bucket-0/me-1-2") is kept
    stream.start()
    stream.batches(2)


@pytest.mark.parametrize("is_journalled", [True, False], ids=["journalled", "without a journal"])
def test_a_tag_that_is_deleted_beside_a_recommit_takes_no_file_of_the_batch(
    is_journalled: bool,
) -> None:
    """The tag is of the snapshot that was replaced, and the stream goes on at once."""
    at, met = 0, True
    while met:
        at = following(at)
        bench = Bench()
        stream = Stream(bench, options={"paimon-stream.journal": str(is_journalled).lower()})
        stream.batches(2)
        facts = {"snapshot": 2, "delta_list": bench.latest().nonce}
        create_tag(bench.table, "lost", runtime=bench.runtime)
        lose(bench)

        def commit_again(
            bench: Bench = bench, stream: Stream = stream, facts: dict[str, Any] = facts
        ) -> None:
            assert again(bench, "me", 1, **facts).snapshot == 3
            stream.start()
            stream.batches(2)

        storage = Meanwhile(bench.storage, at, commit_again)
        delete_tag(bench.on(storage), "lost", runtime=bench.runtime)  # type: ignore[arg-type]
        met = storage.happened
        for entry in bench.live():
            assert bench.storage.exists(bench.table.layout.file_of(entry)), at
    assert at > 10


def lost_without_a_journal() -> tuple[Bench, dict[str, Any]]:
    """A table that has lost a batch two days ago which no journal has, and what the command needs."""
    clock = SimulatedClock()
    bench = Bench(storage=MemoryStorage(clock=clock))
    bench.clock, bench.runtime = clock, simulated(0, clock)
    Stream(bench, options={"paimon-stream.journal": "false"}).batches(2)
    facts = {"snapshot": 2, "delta_list": bench.latest().nonce}
    lose(bench)
    bench.clock.advance(2 * 86_400_000)
    return bench, facts


def check_whole(bench: Bench) -> None:
    for entry in bench.live():
        assert bench.storage.exists(bench.table.layout.file_of(entry))


def test_an_orphan_removal_takes_no_file_of_a_batch_that_is_committed_again_beside_it() -> None:
    """No journal has the batch. Whoever comes second is refused, or finds the files gone."""
    at, met, refused = 0, True, 0
    while met:
        at = following(at)
        bench, facts = lost_without_a_journal()
        ends: list[object] = []

        def commit_again(
            bench: Bench = bench, facts: dict[str, Any] = facts, ends: list[object] = ends
        ) -> None:
            ends.append(tried(lambda: again(bench, "me", 1, **facts)))

        storage = Meanwhile(bench.storage, at, commit_again)
        remove_orphan_files(bench.on(storage), dry_run=False, runtime=bench.runtime)  # type: ignore[arg-type]
        met = storage.happened
        check_whole(bench)
        refused += any(isinstance(end, CommitContended) for end in ends)
    assert at > 10
    assert refused


def test_no_orphan_removal_begins_while_a_batch_is_committed_again_that_no_journal_has() -> None:
    at, met, refused = 0, True, 0
    while met:
        at = following(at)
        bench, facts = lost_without_a_journal()
        ends: list[object] = []

        def remove(bench: Bench = bench, ends: list[object] = ends) -> None:
            ends.append(
                tried(
                    lambda: remove_orphan_files(bench.table, dry_run=False, runtime=bench.runtime)
                )
            )

        storage = Meanwhile(bench.storage, at, remove)
        again_on = bench.on(storage)  # type: ignore[arg-type]
        end = tried(
            lambda table=again_on, bench=bench, facts=facts: recommit(
                table, "me", 1, dry_run=False, runtime=bench.runtime, **facts
            )
        )
        met = storage.happened
        assert end is None or isinstance(end, DeletedFiles | NotFound), at
        check_whole(bench)
        refused += any(isinstance(one, CommitContended) for one in ends)
    assert at > 10
    assert refused


def notes(bench: Bench) -> list[str]:
    stats = bench.storage.list_files("_paimon_stream")
    return [one.path for one in stats if one.name.startswith(("recommit.", "orphan-removal."))]


def test_a_killed_removal_keeps_the_command_away_until_its_note_is_deleted_or_a_day_old() -> None:
    for ends_by in ("deletion", "time"):
        bench, facts = lost_without_a_journal()
        fault = Fault(at=1, verb="read", path="snapshot/", moment=Moment.BEFORE, stop=True)
        storage = FaultyStorage(bench.storage, [fault])
        killed = tried(
            lambda storage=storage, bench=bench: remove_orphan_files(
                bench.on(storage), dry_run=False, runtime=bench.runtime
            )
        )
        assert isinstance(killed, Killed)
        (note,) = notes(bench)
        with pytest.raises(
            CommitContended, match=rf"Nothing was published.* delete its note first: {note}"
        ):
            again(bench, "me", 1, **facts)
        assert notes(bench) == [note]
        if ends_by == "deletion":
            bench.storage.delete(note)
        else:
            bench.clock.advance(26 * 3_600_000)
        assert again(bench, "me", 1, **facts).snapshot == 3
        remove_orphan_files(bench.table, dry_run=False, runtime=bench.runtime)
        assert notes(bench) == []
        check_whole(bench)


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("whose", ["removal", "recommit"])
def test_a_note_goes_whatever_fails_but_its_own_deletion(whose: str, moment: Moment) -> None:
    at, fired, in_the_way = 0, True, 0
    while fired:
        at += 1
        bench, facts = lost_without_a_journal()
        fault = Fault(at=at, path="_paimon_stream", moment=moment)
        storage = FaultyStorage(bench.storage, [fault])
        table = bench.on(storage)
        if whose == "removal":
            end = tried(
                lambda table=table, bench=bench: remove_orphan_files(
                    table, dry_run=False, runtime=bench.runtime
                )
            )
        else:
            end = tried(
                lambda table=table, bench=bench, facts=facts: recommit(
                    table, "me", 1, dry_run=False, runtime=bench.runtime, **facts
                )
            )
        fired = storage.fired
        in_the_way += isinstance(end, Unavailable)
        assert notes(bench) == [] or end is None, at
    assert in_the_way > 1


def test_a_removal_whose_note_is_deleted_deletes_nothing_more() -> None:
    bench, _ = lost_without_a_journal()

    def delete_note(bench: Bench = bench) -> None:
        for path in notes(bench):
            bench.storage.delete(path)

    left = [stat.path for stat in bench.storage.list_files("bucket-0")]
    storage = Meanwhile(bench.storage, 12, delete_note)
    with pytest.raises(CommitContended, match="so it stops here"):
        remove_orphan_files(bench.on(storage), dry_run=False, runtime=bench.runtime)  # type: ignore[arg-type]
    assert [stat.path for stat in bench.storage.list_files("bucket-0")] == left


def test_files_that_go_while_a_batch_is_committed_again_are_an_error_that_names_them() -> None:
    bench, facts = lost_without_a_journal()

    def delete(bench: Bench = bench) -> None:
        if bench.storage.exists("snapshot/snapshot-3"):
            bench.storage.delete("bucket-0/me-1-2")

    at, end = 0, None
    while not isinstance(end, NotFound):
        at += 1
        bench, facts = lost_without_a_journal()
        storage = Meanwhile(bench.storage, at, lambda bench=bench: delete(bench))
        end = tried(
            lambda storage=storage, bench=bench, facts=facts: recommit(
                bench.on(storage), "me", 1, dry_run=False, runtime=bench.runtime, **facts
            )
        )
    assert "published again as snapshot 3" in end.message
    assert "bucket-0/me-1-2" in end.message


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("found", ["in the run", "at a restart"])
def test_the_files_of_a_lost_batch_are_committed_again_and_the_stream_goes_on(
    batches: int, found: str
) -> None:
    bench = Bench()
    stream = started(bench, batches)
    lose(bench)
    if found == "at a restart":
        stream.start()
    with pytest.raises(CommitLost):
        stream.batch()
    seen = again(bench, yes=False)
    assert (seen.user, seen.batch, seen.replaced, seen.by) == ("me", batches - 1, batches, "java")
    assert (seen.rows, seen.files, seen.snapshot, seen.found) == (10, 1, None, False)
    assert bench.latest().commit_user == "java"
    done = again(bench)
    assert (done.snapshot, done.found) == (batches + 1, False)
    for _ in range(2):
        repeated = again(bench)
        assert (repeated.snapshot, repeated.found) == (batches + 1, True)
    stream.start()
    stream.batches(2)
    files = [f"me-{n}-{n + 1}" for n in range(batches + 2)]
    assert stream.written == batches + 2
    bench.audit(sorted(["java-1", *files]))


@pytest.mark.parametrize("named", [False, True], ids=["by its user", "by its snapshot"])
def test_a_lost_batch_is_found_although_its_commit_merged_the_manifests_of_its_base(
    named: bool,
) -> None:
    bench = Bench(options={"manifest.merge-min-count": "2", "write-only": "true"})
    stream, beside = Stream(bench), Stream(bench, user="b", query_id="q2", checkpoint="/ck/b")
    stream.start(AtBatch(2, At(Phase.WRITTEN, beside.batch)))
    stream.batch()
    beside.batch()
    stream.batches(2)
    lost = bench.latest()
    lose(bench)
    stream.start()
    with pytest.raises(CommitLost):
        stream.batch()
    which = {"snapshot": lost.id, "delta_list": lost.nonce} if named else {}
    done = again(bench, "me", 2, **which)
    assert (done.replaced, done.snapshot, done.rows) == (lost.id, lost.id + 1, 10)
    stream.batch()
    bench.audit(sorted(["java-1", "b-0-1", "b-1-2", "me-0-1", "me-1-2", "me-2-3", "me-3-4"]))


def test_the_lost_batch_is_found_by_spark_if_it_comes_again() -> None:
    bench = Bench()
    stream = started(bench, 2)
    lose(bench)
    again(bench, "me", 1)
    stream.next_batch = 1
    stream.start()
    assert stream.batch().outcome == "already committed"
    stream.batch()
    bench.audit(["java-1", "me-0-1", "me-1-2", "me-2-3"])


def test_a_batch_that_was_prepared_when_the_loss_was_seen_is_used_afterwards() -> None:
    """The loss of batch 1 is seen by the commit of batch 2, whose files are written and journalled.
    Its snapshot was put on the lost one, so whether it was published is not known in that run.
    """
    bench = Bench()
    stream = Stream(bench)
    stream.start(At(Phase.JOURNALED, lambda: None))
    stream.batches(2)
    assert stream.writer is not None
    seen = At(Phase.JOURNALED, lambda: lose(bench))
    stream.writer.run = replace(stream.writer.run, observer=seen)
    with pytest.raises(CommitUnknown) as caught:
        stream.batch()
    assert isinstance(caught.value.__cause__, CommitLost)
    stream.start()
    with pytest.raises(CommitLost):
        stream.batch()
    assert again(bench).batch == 1
    stream.start()
    assert stream.batch().reused
    bench.audit(["java-1", "me-0-1", "me-1-2", "me-2-3"])


def test_without_a_journal_the_command_of_the_error_names_the_files() -> None:
    bench = Bench()
    stream = Stream(bench, options={"paimon-stream.journal": "false"})
    stream.batches(2)
    lose(bench)
    with pytest.raises(CommitLost) as caught:
        stream.batch()
    with pytest.raises(NotFound, match="delta list"):
        again(bench)
    assert run_command(bench, caught.value, yes=True).snapshot == 3
    assert run_command(bench, caught.value, yes=True).found
    stream.start()
    stream.batch()
    bench.audit(["java-1", "me-0-1", "me-1-2", "me-2-3"])


def test_the_command_names_the_batch_although_an_earlier_one_was_given_up() -> None:
    """An operator had written the rows of batch 1 again and let the stream continue. Then batch 2
    is lost.
    """
    bench = Bench()
    stream = started(bench, 2)
    lose(bench)
    stream.options = {"paimon-stream.on-table-change": "continue"}
    stream.start()
    stream.batch()
    lose(bench, "java-2")
    stream.options = {}
    stream.start()
    with pytest.raises(CommitLost) as caught:
        stream.batch()
    assert run_command(bench, caught.value, yes=True).batch == 2
    bench.audit(["java-1", "java-2", "me-0-1", "me-2-3"])


def test_a_batch_whose_rows_are_there_without_its_snapshot_does_not_hide_a_lost_one() -> None:
    """The snapshot of batch 1 is replaced after batch 2 was built on it, and batch 2 is lost."""
    bench = Bench()
    started(bench, 3)
    lose(bench, "java-2")
    there = bench.storage.read("snapshot/snapshot-2")
    bench.storage.write("snapshot/snapshot-2", there.replace(b'"me"', b'"it"'))
    report = again(bench, "me")
    assert (report.batch, report.found) == (2, False)


@pytest.mark.parametrize("identifier", [5, BATCH_IDENTIFIER])
def test_a_commit_without_a_stream_is_committed_again_as_its_error_says(identifier: int) -> None:
    bench = Bench(options={"bucket": "2", "bucket-key": "id"})
    commit = TableCommit(bench.table, "batches", runtime=bench.runtime)
    for name in ("one", "two"):
        messages = [bench.message(f"{name}-{bucket}", bucket=bucket) for bucket in (0, 1)]
        commit.commit(identifier + (name == "two" and identifier == 5), messages)
    lose(bench)
    with pytest.raises(CommitLost) as caught:
        commit.commit(identifier, [bench.message("late")])
    assert (caught.value.context["rows"], caught.value.context["files"]) == (20, 2)
    assert run_command(bench, caught.value, yes=False).replaced == 2
    for found in (False, True, True):
        done = run_command(bench, caught.value, yes=True)
        assert (done.snapshot, done.found) == (3, found)
    TableCommit(bench.table, "batches", runtime=bench.runtime).commit(9, [bench.message("late")])
    bench.audit(["java-1", "late", "one-0", "one-1", "two-0", "two-1"])


def test_the_rows_of_a_batch_that_is_committed_again_get_ids_that_nobody_has() -> None:
    bench = Bench(options={"row-tracking.enabled": "true"})
    commit = TableCommit(bench.table, "batches", runtime=bench.runtime)
    for identifier in (5, 6):
        commit.commit(identifier, [bench.message(f"our-{identifier}")])
    lose(bench)
    with pytest.raises(CommitLost) as caught:
        commit.commit(7, [bench.message("late")])
    assert run_command(bench, caught.value, yes=True).snapshot == 3
    ids = {entry.file.file_name: entry.file.first_row_id for entry in bench.live()}
    assert ids == {"our-5": 0, "java-1": 10, "our-6": 20}
    numbers = {entry.file.file_name: entry.file.max_sequence_number for entry in bench.live()}
    assert numbers == {"our-5": 1, "java-1": 2, "our-6": 3}
    assert bench.latest().next_row_id == 30


def run_command(bench: Bench, error: CommitLost, *, yes: bool) -> RecommitReport:
    """Does what the command that an error names does."""
    words = shlex.split(error.context["command"])
    given = {
        key.removeprefix("--"): value
        for key, value in zip(words[2:-1:2], words[3:-1:2], strict=True)
    }
    snapshot = int(given["snapshot"]) if "snapshot" in given else None
    return again(
        bench,
        given["user"],
        int(given["batch"]),
        snapshot=snapshot,
        delta_list=given.get("delta-list"),
        yes=yes,
    )


# -- refused
# -------------------------------------------------------------------------------------------


def refused(bench: Bench, kind: type[PaimonStreamError], match: str, *args: Any) -> None:
    before = bench.snapshots.ids()
    for yes in (False, True):
        with pytest.raises(kind, match=match) as caught:
            again(bench, *args, yes=yes)
        assert "Nothing was published" in str(caught.value)
    assert bench.snapshots.ids() == before


def test_what_a_rollback_took_is_not_committed_again() -> None:
    bench = Bench()
    stream = started(bench, 3)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    refused(bench, TableRolledBack, "no snapshot of another engine stands in place")
    rollback_to(bench.table, 1, runtime=bench.runtime)
    refused(bench, TableRolledBack, "as new as the one on which it was made", "me", 2)
    TableCommit(bench.table, "other", runtime=bench.runtime).commit(0, [bench.message("other")])
    refused(bench, TableRolledBack, "is another one now", "me", 2)
    del stream


def test_what_a_rollback_took_is_not_committed_again_although_we_wrote_since() -> None:
    """This package never replaces a snapshot, so where one of ours stands, there was a rollback."""
    bench = Bench()
    started(bench, 3)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    TableCommit(bench.table, "other", runtime=bench.runtime).commit(0, [bench.message("other")])
    refused(bench, TableRolledBack, "no snapshot of another engine stands in place")


def test_what_a_rollback_took_is_not_committed_again_although_another_engine_wrote_at_once() -> (
    None
):
    bench = Bench()
    started(bench, 3)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    Replacing(bench).copy_over(3, "java-1")
    refused(bench, TableRolledBack, "a rollback has removed its snapshot")
    again_rolled = bench.storage.read("_paimon_stream/rolled-back.json")
    rollback_to(bench.table, 1, runtime=bench.runtime)
    assert len(bench.storage.read("_paimon_stream/rolled-back.json")) > len(again_rolled)


def test_what_a_rollback_took_is_not_committed_again_although_another_engine_wrote_an_hour_later() -> (
    None
):
    clock = SimulatedClock()
    bench = Bench(storage=MemoryStorage(clock=clock))
    bench.clock = clock
    bench.runtime = simulated(0, clock)
    started(bench, 3)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    forget_removals(bench.storage)  # as after a rollback of another engine
    clock.advance(3_600_000)
    Replacing(bench).copy_over(3, "java-1")
    refused(bench, TableRolledBack, "snapshot 3 in its place was made long after it")


def test_what_a_rollback_took_that_failed_halfway_is_not_committed_again() -> None:
    bench = Bench()
    started(bench, 3)
    failing = FaultyStorage(bench.storage, [Fault(at=2, verb="list_files", path="snapshot")])
    with pytest.raises(Unavailable):
        rollback_to(bench.on(failing), 2, runtime=bench.runtime)
    assert bench.snapshots.ids() == [1, 2]
    rollback_to(bench.table, 2, runtime=bench.runtime)
    Replacing(bench).copy_over(3, "java-1")
    refused(bench, TableRolledBack, "a rollback has removed its snapshot")


def test_files_that_are_gone_are_not_committed_again() -> None:
    bench = Bench()
    started(bench, 2)
    lose(bench)
    bench.storage.delete("bucket-0/me-1-2")
    refused(bench, DeletedFiles, "bucket-0/me-1-2")


def test_columns_of_rows_that_were_there_are_not_committed_again_as_other_rows() -> None:
    bench = Bench(options={"row-tracking.enabled": "true", "data-evolution.enabled": "true"})
    TableCommit(bench.table, "me", runtime=bench.runtime).commit(1, [bench.message("rows")])
    message = bench.message("columns")
    columns = replace(message.new_files[0], first_row_id=0, write_cols=("id",))
    update = bench.request(2, [replace(message, new_files=(columns,))], user="pypaimon")
    bench.committer().commit(update)
    lost = bench.latest()
    lose(bench)
    for yes in (False, True):
        with pytest.raises(UnsupportedFeature, match=r"columns of rows.*Nothing was published"):
            again(bench, "pypaimon", 2, snapshot=2, delta_list=lost.nonce, yes=yes)
    assert bench.snapshots.ids() == [1, 2]


def test_a_stream_that_went_on_has_its_batches_in_order() -> None:
    bench = Bench()
    stream = started(bench, 2)
    lost = bench.latest()
    lose(bench)
    stream.options = {"paimon-stream.on-table-change": "continue"}
    stream.start()
    stream.batch()
    with pytest.raises(CheckpointRewound, match="has gone on to batch 2"):
        again(bench, "me", 1, snapshot=2, delta_list=lost.nonce)


class Interrupted(MemoryStorage):
    """Runs what is in `MEANWHILE`, once, just before a snapshot is published."""

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        """Like that of `MemoryStorage`."""
        if MEANWHILE and path.startswith("snapshot/"):
            MEANWHILE.pop()()
        return super().put_if_absent(path, data)


MEANWHILE: list[Callable[[], object]] = []


def test_a_stream_that_goes_on_at_the_same_time_has_its_batches_in_order() -> None:
    """A later batch of the stream is no proof that the lost one is in the table."""
    bench = Bench(storage=Interrupted())
    stream = started(bench, 2)
    lose(bench)
    stream.options = {"paimon-stream.on-table-change": "continue"}
    stream.start()
    MEANWHILE.append(stream.batch)
    with pytest.raises(
        CheckpointRewound, match=r"has gone on to batch 2 \(snapshot 3\).*Nothing was publ"
    ):
        again(bench, "me", 1)
    bench.audit(["java-1", "me-0-1", "me-2-3"])


def test_two_calls_at_once_commit_the_files_of_a_batch_commit_once() -> None:
    bench = Bench(storage=Interrupted())
    commit = TableCommit(bench.table, "batches", runtime=bench.runtime)
    commit.commit(BATCH_IDENTIFIER, [bench.message("one")])
    lose(bench)
    with pytest.raises(CommitLost) as caught:
        commit.commit(BATCH_IDENTIFIER, [bench.message("late")])
    MEANWHILE.append(lambda: run_command(bench, caught.value, yes=True))
    with pytest.raises(DeletedFiles, match="in the table already"):
        run_command(bench, caught.value, yes=True)
    bench.audit(["java-1", "one"])


def test_a_batch_whose_later_snapshots_expired_is_not_committed_again() -> None:
    bench = Bench()
    started(bench, 2)
    lose(bench)
    for number in range(4):
        TableCommit(bench.table, "other", runtime=bench.runtime).commit(
            number, [bench.message(f"o{number}")]
        )
    bench.expire(3)
    refused(bench, HistoryUnknown, "are gone", "me", 1)


def test_a_batch_whose_files_are_in_the_table_is_found_by_them() -> None:
    bench = Bench()
    started(bench, 2)
    for number in range(4):
        TableCommit(bench.table, "other", runtime=bench.runtime).commit(
            number, [bench.message(f"o{number}")]
        )
    bench.expire(4)
    report = again(bench, "me", 1)
    assert (report.found, report.snapshot) == (True, None)
    assert again(bench).found


def test_keys_whose_numbers_were_used_since_are_written_again() -> None:
    bench = Bench(options={"bucket": "1"}, keys=["id"])
    started(bench, 2)
    lose(bench)
    refused(bench, SequenceConflict, "to bucket 0 with sequence numbers")


def test_keys_in_buckets_that_nobody_touched_are_committed_again() -> None:
    bench = Bench(options={"bucket": "2"}, keys=["id"])
    commit = TableCommit(bench.table, "keyed", runtime=bench.runtime)
    commit.commit(0, [bench.message("first")])
    commit.commit(1, [bench.message("other-bucket", bucket=1)])
    lose(bench)
    with pytest.raises(CommitLost) as caught:
        commit.commit(2, [bench.message("late")])
    assert run_command(bench, caught.value, yes=True).snapshot == 3
    bench.audit(["first", "java-1", "other-bucket"])


def test_what_replaced_the_table_is_not_committed_again() -> None:
    bench = Bench()
    stream = Stream(bench, overwrites=True)
    stream.batches(2)
    lose(bench)
    refused(bench, UnsupportedFeature, "it replaces what is in the table", "me")


def test_a_table_without_lost_batches_says_so() -> None:
    bench = Bench()
    with pytest.raises(NotFound, match="the journal does not know a batch of any stream"):
        again(bench)
    started(bench, 2)
    assert (again(bench).found, again(bench).snapshot) == (True, 2)


def test_batches_of_two_streams_are_told_apart() -> None:
    bench = Bench()
    for user in ("me", "you"):
        Stream(bench, user=user, query_id=user, checkpoint=f"/ck/{user}").batches(1)
        lose(bench, f"java-{user}")
    with pytest.raises(InvalidOption, match="me, you"):
        again(bench)
    assert [again(bench, one).snapshot for one in ("me", "you")] == [3, 4]
    bench.audit(["java-me", "java-you", "me-0-1", "you-0-1"])


def test_a_stream_beside_it_that_replaces_the_whole_table_is_passed_over() -> None:
    bench = Bench()
    Stream(bench, user="all", query_id="all", checkpoint="/ck/all", overwrites=True).batches(1)
    started(bench, 1)
    lose(bench)
    assert again(bench).user == "me"


def test_what_was_prepared_before_the_query_went_on_under_another_name_is_not_committed() -> None:
    bench = Bench()
    first = started(bench, 2)
    first.start(At(Phase.JOURNALED, Stream.cut))
    with pytest.raises(PowerCut):
        first.batch()
    TableCommit(bench.table, "java", runtime=bench.runtime).commit(0, [bench.message("java-0")])
    lose(bench)
    second = Stream(bench, user="renamed", next_batch=2, runs=9, done_millis=first.done_millis)
    second.batches(2)
    refused(bench, CheckpointRewound, "the query went on without user 'me'", "me", 2)


def test_the_lost_batch_of_one_of_two_sinks_is_committed_again() -> None:
    """The other sink has gone on, in runs in which this one was, too."""
    bench = Bench()
    first, second = (Stream(bench, user=user) for user in ("me", "you"))
    for _ in range(2):
        second.batch()
        first.batch()
    lose(bench)
    second.writer = first.writer = None
    second.batch()
    with pytest.raises(CommitLost):
        first.batch()
    assert again(bench, "me", 1).snapshot == 6
    first.writer = None
    assert first.batch().outcome == "committed"
