"""A rollback keeps its target by a pin; what others say of it, and what becomes of one that was
killed.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from paimon_stream.errors import (
    CommitContended,
    InvalidOption,
    NoSpace,
    NotFound,
    PaimonStreamError,
)
from paimon_stream.format.json_text import encode_checksummed
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.branches import create_branch, fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.pins import pin_path, put_pin, read_pins
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, expire_tags, read_tags
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.removals import read_removals
from paimon_stream.table.table import create_table, load_table
from paimon_stream.verify.verifying import verify
from tests.kits.commits import FIELDS, Bench
from tests.kits.expiries import CountedAfterCommit
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.maintained import Case, tried
from tests.kits.places import emptied, following
from tests.kits.races import Meanwhile

NOTHING = dt.timedelta(0)


def killed(
    target: int | str = 5, *, path: str = "snapshot/snapshot-6", verb: str = "delete"
) -> Case:
    """A table with seven snapshots, and a rollback that was killed before one of its operations."""
    case = Case.make()
    fault = Fault(at=1, verb=verb, path=path, moment=Moment.BEFORE, stop=True)
    storage = FaultyStorage(case.bench.storage, [fault])
    failed = tried(lambda: rollback_to(case.bench.on(storage), target, runtime=case.bench.runtime))
    assert isinstance(failed, Killed)
    assert len(read_pins(case.bench.storage)) == 1
    return case


DELETING: dict[str, Callable[[Case], object]] = {
    "expiry": lambda case: case.expire(),
    "deletion of a tag": lambda case: delete_tag(
        case.bench.table, "kept", runtime=case.bench.runtime
    ),
    "orphan removal": lambda case: remove_orphan_files(
        case.bench.table, dry_run=False, runtime=case.bench.runtime
    ),
    "another rollback": lambda case: rollback_to(case.bench.table, 3, runtime=case.bench.runtime),
}


@pytest.mark.parametrize("work", DELETING.values(), ids=DELETING.keys())
def test_what_deletes_is_refused_while_a_rollback_is_under_way(
    work: Callable[[Case], object],
) -> None:
    case = killed()
    before = case.files()
    with pytest.raises(
        CommitContended, match=r"a rollback to snapshot 5 is under way .* began at 20\d\d-"
    ):
        work(case)
    assert case.files() == before


def test_the_same_rollback_completes_one_that_was_killed() -> None:
    case = killed()
    report = rollback_to(case.bench.table, 5, runtime=case.bench.runtime)
    assert (report.snapshots, case.bench.snapshots.ids()) == ((6,), [1, 2, 3, 4, 5])
    assert read_pins(case.bench.storage) == []
    assert case.expire().snapshots == (1, 2, 3)


def test_another_rollback_may_take_over_from_one_that_was_killed() -> None:
    case = killed()
    report = rollback_to(case.bench.table, "kept", take_over=True, runtime=case.bench.runtime)
    assert (report.snapshots, case.bench.snapshots.latest_id()) == ((5, 6), 4)
    assert read_pins(case.bench.storage) == []


def test_after_a_take_over_that_was_killed_the_error_says_how_to_go_on() -> None:
    case = killed()
    table, runtime = case.bench.table, case.bench.runtime
    fault = Fault(at=1, verb="list_files", path="_paimon_stream", moment=Moment.BEFORE, stop=True)
    storage = FaultyStorage(case.bench.storage, [fault])
    assert isinstance(
        tried(
            lambda: rollback_to(replace(table, storage=storage), 3, take_over=True, runtime=runtime)
        ),
        Killed,
    )
    assert len(read_pins(case.bench.storage)) == 2
    for target in (3, 5):
        with pytest.raises(
            CommitContended, match=r"one of the snapshots 3, 5, or to another, with take_over"
        ):
            rollback_to(table, target, runtime=runtime)
    assert rollback_to(table, 5, take_over=True, runtime=runtime).snapshot == 5
    assert not read_pins(case.bench.storage)


def test_where_another_snapshot_has_the_targets_id_the_error_says_how_to_go_on() -> None:
    case = Case.make()
    table, storage, runtime = case.bench.table, case.bench.storage, case.bench.runtime
    there = case.bench.snapshots.get(5)
    before = replace(there, delta_manifest_list="manifest-list-before")
    put_pin(storage, pin_path(before, runtime), before)
    with pytest.raises(
        CommitContended, match="roll back to snapshot 5, or to another, with take_over"
    ):
        rollback_to(table, 5, runtime=runtime)
    assert rollback_to(table, 5, take_over=True, runtime=runtime).snapshot == 5
    assert case.bench.latest().nonce == there.nonce


@pytest.mark.parametrize("is_dry", [True, False], ids=["dry", "real"])
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "completed"])
def test_no_rollback_to_a_tag_writes_over_a_snapshot_that_has_taken_its_id(
    is_killed: bool, is_dry: bool
) -> None:
    bench = tagged_meanwhile(is_killed=is_killed)
    before = list(bench.storage.list_below(""))
    with pytest.raises(
        NotFound, match=r"another snapshot 2 now, of user 'b'.* Nothing was changed"
    ):
        rollback_to(bench.table, "java", take_over=True, dry_run=is_dry, runtime=bench.runtime)
    assert list(bench.storage.list_below("")) == before


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "completed"])
def test_the_error_of_a_tag_whose_id_is_taken_says_how_to_have_its_rows(is_killed: bool) -> None:
    """The fast forward needs `take_over` if the killed rollback has left its pin, and only then."""
    bench = tagged_meanwhile(is_killed=is_killed)
    with_take_over = r" with take_over \(--take-over\)" if is_killed else ""
    with pytest.raises(
        NotFound, match=rf"create a branch from the tag and fast-forward to it{with_take_over}\.$"
    ):
        rollback_to(bench.table, "java", take_over=True, runtime=bench.runtime)
    replaced = bench.latest()
    create_branch(bench.table, "again", "java", runtime=bench.runtime)
    if is_killed:
        with pytest.raises(CommitContended, match="nothing was forwarded"):
            fast_forward(bench.table, "again", runtime=bench.runtime)
    fast_forward(bench.table, "again", take_over=is_killed, runtime=bench.runtime)
    assert bench.live_names() == ["f0", "f1"]
    assert read_removals(bench.storage).of_nonce(replaced.nonce) is not None
    assert read_pins(bench.storage) == []


def tagged_meanwhile(*, is_killed: bool) -> Bench:
    """A table that is rolled back to snapshot 1 while Java tags snapshot 2, as it may. The
    rollback is killed once snapshot 2 is gone, or Java writes the tag after it has ended. Then
    another user commits snapshot 2.
    """
    bench = Bench()
    for number in range(2):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")], user="a"))
    tag = bench.storage.read("snapshot/snapshot-2")
    faults = []
    if is_killed:
        path = "snapshot/snapshot-2"
        faults.append(Fault(at=1, verb="delete", path=path, moment=Moment.AFTER, stop=True))
    tried(lambda: rollback_to(bench.on(FaultyStorage(bench.storage, faults)), 1))
    assert (len(read_pins(bench.storage)), bench.snapshots.ids()) == (int(is_killed), [1])
    bench.storage.write("tag/tag-java", tag)
    bench.committer().commit(bench.request(0, [bench.message("other")], user="b"))
    return bench


def test_a_killed_rollback_to_a_tag_that_somebody_deleted_is_completed_by_the_snapshots_id() -> (
    None
):
    case = Case.make()
    bench = case.bench
    case.expire()  # only the tag keeps snapshot 4
    fault = Fault(at=1, verb="delete", path="snapshot/snapshot-7", stop=True)
    dying = FaultyStorage(bench.storage, [fault])
    wanted = read_tags(bench.storage)["kept"]
    assert isinstance(
        tried(lambda: rollback_to(bench.on(dying), "kept", runtime=bench.runtime)), Killed
    )
    bench.storage.delete("tag/tag-kept")
    assert rollback_to(bench.table, 4, dry_run=True, runtime=bench.runtime).snapshot == 4
    rollback_to(bench.table, 4, runtime=bench.runtime)
    assert bench.snapshots.latest() == wanted
    assert read_pins(bench.storage) == []


def test_deleting_a_tag_that_stood_still_leaves_the_files_of_a_rollback_that_was_killed_and_completed() -> (
    None
):
    """The rollback was killed before it looked whether its tag still existed. Only its pin keeps
    the target.
    """
    at, met, broken = 0, True, 0
    while met:
        at = following(at)
        case = Case.make()
        bench, tag = case.bench, read_tags(case.bench.storage)["kept"]
        case.expire_to(6)

        def complete(bench: Bench = bench, tag: Snapshot = tag) -> None:
            put_pin(bench.storage, pin_path(tag, bench.runtime), tag)
            tried(lambda: rollback_to(bench.table, tag.id, runtime=bench.runtime))

        storage = Meanwhile(bench.storage, at, complete)
        delete_tag(bench.on(storage), "kept", runtime=bench.runtime)  # type: ignore[arg-type]
        met = storage.happened
        broken += any(case.broken(bench.snapshots.get(one)) for one in bench.snapshots.ids())
    assert broken <= 1  # between the last look and the first deletion


def test_a_rollback_stops_when_another_has_taken_over() -> None:
    case = Case.make()
    bench = case.bench
    storage = Meanwhile(
        bench.storage,
        24,  # it has looked whether its target stands
        lambda: rollback_to(bench.table, 3, take_over=True, runtime=bench.runtime),
    )
    with pytest.raises(
        CommitContended, match="another one has taken over, or the table was dropped"
    ):
        rollback_to(bench.on(storage), 5, runtime=bench.runtime)  # type: ignore[arg-type]
    assert bench.snapshots.ids() == [1, 2, 3]
    assert bench.storage.read("snapshot/LATEST") == b"3"


@pytest.mark.parametrize("commits", [0, 1])
def test_a_rollback_puts_no_snapshot_into_a_table_that_was_created_again_meanwhile(
    commits: int,
) -> None:
    """Whenever the table is dropped and created, the first snapshot of the new one stays as it is, or
    stays away. Only a hint may come after it, if the rollback slept between its last look and that.
    """
    at, met = 0, True
    while met:
        at += 1
        bench = Bench()
        for number in range(3):
            bench.committer().commit(bench.request(number, [bench.message(f"old-{number}")]))

        def create_again(bench: Bench = bench) -> None:
            emptied(bench.storage)
            bench.clock.advance(1000)
            assert create_table(bench.storage, FIELDS, runtime=bench.runtime) is not None
            for number in range(commits):
                bench.committer().commit(bench.request(number, [bench.message(f"new-{number}")]))

        storage = Meanwhile(bench.storage, at, create_again)
        table = bench.on(storage)  # type: ignore[arg-type]
        tried(partial(rollback_to, table, 1, runtime=bench.runtime))
        met = storage.happened
        if met:
            assert bench.snapshots.ids() == [1][:commits]
            if commits:
                assert bench.live_names() == ["new-0"]


def test_a_target_that_only_a_pin_keeps_is_restored_if_it_is_whole_and_else_refused() -> None:
    """Its snapshot was deleted after the kill, as an engine does that does not know pins."""
    for whole in (True, False):
        case = killed()
        bench = case.bench
        for number in range(1, 6):
            bench.storage.delete(f"snapshot/snapshot-{number}")
        if whole:
            rollback_to(bench.table, 5, runtime=bench.runtime)
            assert bench.snapshots.ids() == [5]
            assert not case.broken(bench.snapshots.get(5))
        else:
            case.bench.storage.delete(next(path for path in case.files() if path.endswith("/f3")))
            with pytest.raises(NotFound, match="lost files"):
                rollback_to(bench.table, 5, runtime=bench.runtime)
            assert bench.snapshots.ids() == [6]


@pytest.mark.parametrize("stands", [True, False], ids=["that stands", "that only tags keep"])
@pytest.mark.parametrize("tagged", [True, False], ids=["with a tag", "without a tag"])
def test_the_refusal_of_a_killed_rollback_s_target_that_has_lost_files_says_how_to_take_another(
    stands: bool, tagged: bool
) -> None:
    case = killed()
    bench, lost = case.bench, case.bench.snapshots.get(5)
    if tagged:
        create_tag(bench.table, "old", 5, runtime=bench.runtime)
    for number in range(1, 6) if not stands else ():
        bench.storage.delete(f"snapshot/snapshot-{number}")
    bench.storage.delete(manifest_path(lost.delta_manifest_list))
    for target in (5, "old") if tagged else (5,):
        with pytest.raises(
            NotFound, match=r"Roll back to another target with take_over \(--take-over\)"
        ):
            rollback_to(bench.table, target, runtime=bench.runtime)
    assert rollback_to(bench.table, 6, take_over=True, runtime=bench.runtime).snapshot == 6
    assert read_pins(bench.storage) == []


def test_a_pin_of_a_table_that_was_created_again_goes_with_a_rollback_to_its_first_snapshot() -> (
    None
):
    case = killed()
    bench = case.bench
    for path in case.files():
        if not path.startswith(("tag/tag-paimon-stream", "schema/")):
            bench.storage.delete(path)
    with pytest.raises(NotFound, match="When it has a snapshot, roll back to it with take_over"):
        rollback_to(bench.table, 5, runtime=bench.runtime)
    case.append(20)
    assert rollback_to(bench.table, 1, take_over=True, runtime=bench.runtime).snapshot == 1
    assert read_pins(bench.storage) == []


def test_a_kill_after_the_target_was_restored_leaves_no_earliest_hint_that_hides_it() -> None:
    case = Case.make()
    bench = case.bench
    case.expire_to(6)  # only the tag keeps snapshot 4
    fault = Fault(
        at=1, verb="put_if_absent", path="snapshot/snapshot-4", moment=Moment.AFTER, stop=True
    )
    storage = FaultyStorage(bench.storage, [fault])
    failed = tried(lambda: rollback_to(bench.on(storage), "kept", runtime=bench.runtime))
    assert isinstance(failed, Killed)
    assert bench.snapshots.earliest_id() == 4


@pytest.mark.parametrize("content", [b"", b'{"version": 9}'], ids=["empty", "of a newer version"])
def test_a_later_snapshot_that_cannot_be_read_is_removed_with_a_warning(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case.make()
    bench = case.bench
    bench.storage.write("snapshot/snapshot-6", content)
    for dry_run in (True, False):
        caplog.clear()
        report = rollback_to(bench.table, 5, dry_run=dry_run, runtime=bench.runtime)
        assert report.snapshots == (6, 7)
        assert [
            one for one in caplog.messages if "the later snapshot 6 cannot be read" in one
        ] != []
    assert bench.snapshots.ids() == [1, 2, 3, 4, 5]
    assert read_pins(bench.storage) == []


def test_a_pin_is_no_tag_of_the_user() -> None:
    case = killed()
    bench = case.bench
    name = read_pins(bench.storage)[0].path.removeprefix("tag/tag-")
    assert set(read_tags(bench.storage)) == {"kept"}
    assert expire_tags(bench.table, runtime=bench.runtime) == ()
    with pytest.raises(InvalidOption, match="those of rollbacks"):
        create_tag(bench.table, name, runtime=bench.runtime)
    codes = {one.code for one in verify(bench.table, sample=0).findings}
    assert "rollback-unfinished" in codes


def test_a_rollback_waits_for_the_expiry_of_its_target_and_then_gives_up() -> None:
    case = Case.make()
    bench = case.bench
    ExpiringNotes(bench.storage).write(bench.snapshots.get(5), bench.snapshots.get(6))
    with pytest.raises(CommitContended, match="snapshot 5 is being expired"):
        rollback_to(bench.table, 5, runtime=bench.runtime)
    assert read_pins(bench.storage) == []
    bench.clock.advance(300_000)  # the writer of the note was killed
    assert rollback_to(bench.table, 5, runtime=bench.runtime).snapshots == (6, 7)
    assert bench.storage.list_files("_paimon_stream", "expiring.") == []


def test_a_tag_that_an_expiry_may_have_overlooked_is_no_target_until_the_expiry_has_ended() -> None:
    """The expiry stands still before it deletes files, and has read the tags. The tag's creator has
    not yet looked whether the snapshot stands.
    """
    case = Case.make()
    bench = case.bench
    case.expire_to(5)
    content = bench.storage.read("snapshot/snapshot-5")
    refused: list[Exception | None] = []

    class Waiting(FaultyStorage):
        def delete_all(self, paths: Sequence[str]) -> dict[str, PaimonStreamError]:
            if not refused and not bench.snapshots.exists(5):
                bench.clock.advance(300_000)
                bench.storage.write("tag/tag-new", content)
                refused.append(
                    tried(lambda: rollback_to(bench.table, "new", runtime=bench.runtime))
                )
                assert case.files() >= set(paths)
            return super().delete_all(paths)

    case.expire_to(6, Waiting(bench.storage, []))
    assert "Run expire_snapshots, then roll back again" in str(refused[0])
    assert (bench.snapshots.ids(), read_pins(bench.storage)) == ([6, 7], [])


def test_after_a_killed_expiry_a_tag_is_a_target_as_soon_as_the_next_expiry_has_finished_it() -> (
    None
):
    case = Case.make()
    bench = case.bench
    case.expire_to(4)
    fault = Fault(at=1, verb="delete", path="snapshot/snapshot-4", moment=Moment.AFTER, stop=True)
    assert isinstance(
        tried(lambda: case.expire_to(5, FaultyStorage(bench.storage, [fault]))), Killed
    )
    bench.clock.advance(300_000)
    with pytest.raises(CommitContended, match="Run expire_snapshots, then roll back again"):
        rollback_to(bench.table, "kept", runtime=bench.runtime)
    case.expire_to(5)
    assert rollback_to(bench.table, "kept", runtime=bench.runtime).snapshots == (5, 6, 7)
    assert not case.broken(bench.snapshots.get(4))


def test_a_stream_reports_a_rollback_once_and_expires_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    case = killed()
    bench = case.bench
    few = {"snapshot.num-retained.max": "2", "snapshot.num-retained.min": "1"}
    table = load_table(bench.storage, few)
    after = CountedAfterCommit(runtime=bench.runtime)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            after(table, bench.latest())
    assert [
        one.message for one in caplog.records if "a rollback to snapshot 5" in one.message
    ] != []
    assert len(caplog.records) == 1
    assert (after.failures, after.expired) == (0, 0)
    rollback_to(bench.table, 5, runtime=bench.runtime)
    after(table, bench.latest())
    assert after.expired == 3


def test_the_note_of_a_newer_release_refuses_tags_for_an_hour_only() -> None:
    case = Case.make()
    bench = case.bench
    case.expire()  # only the tag keeps snapshot 4
    note = encode_checksummed("expiry", {}).replace(b" 1 ", b" 99 ", 1)
    bench.storage.write("_paimon_stream/expiring.5", note)
    with pytest.raises(NotFound, match="an expiry is in progress or was interrupted"):
        create_tag(bench.table, "new", 4, runtime=bench.runtime)
    bench.clock.advance(3_600_000)
    create_tag(bench.table, "new", 4, runtime=bench.runtime)
    assert expire_snapshots(bench.table, 1, 1, NOTHING, runtime=bench.runtime).snapshots == (6,)


@pytest.mark.parametrize("content", ["whole", "of a newer release"])
def test_a_note_from_the_future_stops_nobody_for_ever(content: str) -> None:
    """The clock was set back since, or the note was restored from a copy."""
    case = Case.make()
    bench = case.bench
    case.expire()  # only the tag keeps snapshot 4
    bench.clock.advance(86_400_000)
    ExpiringNotes(bench.storage).write(bench.snapshots.get(6), bench.snapshots.get(7))
    if content == "of a newer release":
        note = encode_checksummed("expiry", {}).replace(b" 1 ", b" 99 ", 1)
        bench.storage.write("_paimon_stream/expiring.6", note)
    bench.clock.advance(-86_400_000)
    create_tag(bench.table, "new", 4, runtime=bench.runtime)
    assert rollback_to(bench.table, 6, runtime=bench.runtime).snapshots == (7,)


def test_notes_are_worked_off_when_changelog_has_come_to_outlive_snapshots() -> None:
    """An expiry was killed, and then the table's options were set so."""
    case = Case.make()
    bench = case.bench
    case.expire_to(5)
    fault = Fault(at=1, verb="delete", path="snapshot/snapshot-5", moment=Moment.AFTER, stop=True)
    assert isinstance(
        tried(lambda: case.expire_to(6, FaultyStorage(bench.storage, [fault]))), Killed
    )
    with pytest.raises(NotFound, match="Run expire_snapshots, then create the tag again"):
        create_tag(bench.table, "new", 4, runtime=bench.runtime)
    longer = {"changelog.num-retained.max": "50", "snapshot.num-retained.max": "20"}
    table = load_table(bench.storage, longer)
    expire_snapshots(table, runtime=bench.runtime)
    assert "_paimon_stream/expiring.5" not in case.files()
    create_tag(table, "new", 4, runtime=bench.runtime)


def full_disk(case: Case, *, first: int = 1, writes: int = 1) -> FaultyStorage:
    """A storage without space for some writes of tags, or for the others that are named."""
    faults = [
        Fault(at=at, verb="write", path="tag/", error=NoSpace)
        for at in range(first, first + writes)
    ]
    return FaultyStorage(case.bench.storage, faults)


@pytest.mark.parametrize("target", [5, 4, "kept"])
def test_on_a_full_disk_the_pin_of_a_killed_rollback_makes_room_for_that_of_the_next(
    target: int | str,
) -> None:
    case = killed()
    bench = case.bench
    report = rollback_to(
        bench.on(full_disk(case)), target, take_over=target != 5, runtime=bench.runtime
    )
    assert bench.snapshots.ids()[-1] == report.snapshot
    assert read_pins(bench.storage) == []


def test_if_the_disk_stays_full_the_killed_rollback_is_given_up_so_that_files_can_be_deleted() -> (
    None
):
    case = killed()
    bench = case.bench
    for number in range(2):  # the second time nothing is left to give up
        with pytest.raises(
            NoSpace, match="given up.*expire_snapshots" if number == 0 else "Planned"
        ):
            rollback_to(bench.on(full_disk(case, writes=2)), 5, runtime=bench.runtime)
    assert (read_pins(bench.storage), bench.snapshots.ids()) == ([], [1, 2, 3, 4, 5, 6])
    live = bench.live_names()
    assert case.expire_to(5).snapshots == (1, 2, 3, 4)
    case.audit(live)
    rollback_to(bench.table, 5, runtime=bench.runtime)
    assert bench.snapshots.ids() == [5]


def test_the_only_pin_of_an_expired_target_stays_on_a_full_disk_until_another_target_takes_over() -> (
    None
):
    case = killed()
    bench = case.bench
    for number in range(1, 6):
        bench.storage.delete(f"snapshot/snapshot-{number}")
    with pytest.raises(NoSpace):
        rollback_to(bench.on(full_disk(case)), 5, runtime=bench.runtime)
    assert len(read_pins(bench.storage)) == 1
    storage = FaultyStorage(
        bench.storage, [Fault(at=1, verb="put_if_absent", path="snapshot/", error=NoSpace)]
    )
    with pytest.raises(NoSpace):
        rollback_to(bench.on(storage), 5, runtime=bench.runtime)
    assert len(read_pins(bench.storage)) == 1
    rollback_to(bench.on(full_disk(case)), 6, take_over=True, runtime=bench.runtime)
    assert (read_pins(bench.storage), bench.snapshots.ids()) == ([], [6])


def test_without_space_for_hints_a_rollback_ends_without_them() -> None:
    case = Case.make()
    bench = case.bench
    case.expire()  # only the tag keeps snapshot 4
    faults = [
        Fault(at=at, verb="write", path="T", error=NoSpace) for at in range(1, 9)
    ]  # LATEST, EARLIEST
    rollback_to(bench.on(FaultyStorage(bench.storage, faults)), "kept", runtime=bench.runtime)
    assert (read_pins(bench.storage), bench.snapshots.ids()) == ([], [4])
    assert not bench.storage.exists("snapshot/LATEST")
    assert not bench.storage.exists("snapshot/EARLIEST")
    assert bench.snapshots.latest_id() == bench.snapshots.earliest_id() == 4


def test_a_rollback_without_space_to_restore_its_target_leaves_no_pin() -> None:
    case = Case.make()
    bench = case.bench
    case.expire()  # only the tag keeps snapshot 4
    storage = FaultyStorage(
        bench.storage, [Fault(at=1, verb="put_if_absent", path="snapshot/", error=NoSpace)]
    )
    with pytest.raises(NoSpace):
        rollback_to(bench.on(storage), "kept", runtime=bench.runtime)
    assert (read_pins(bench.storage), bench.snapshots.ids()) == ([], [6, 7])
    assert case.expire_to(7).snapshots == (6,)


def test_verify_explains_the_gap_that_a_rollback_leaves_if_another_takes_over() -> None:
    case = Case.make()
    bench = case.bench
    case.expire()  # only the tag keeps snapshot 4
    fault = Fault(at=1, verb="delete", path="snapshot/snapshot-7", moment=Moment.BEFORE, stop=True)
    storage = FaultyStorage(bench.storage, [fault])
    work = lambda: rollback_to(bench.on(storage), "kept", runtime=bench.runtime)  # noqa: E731
    assert isinstance(tried(work), Killed)
    rollback_to(bench.table, 7, take_over=True, runtime=bench.runtime)
    assert bench.snapshots.ids() == [4, 6, 7]
    (gap,) = [one for one in verify(bench.table, sample=0).findings if one.code == "snapshot-gap"]
    assert "a rollback restored snapshot 4 or 6 from a tag and was then given up" in gap.cure
    assert case.expire().snapshots == (4,)
    assert verify(bench.table, sample=0).findings == ()
