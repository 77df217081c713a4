"""The check after publishing: which snapshots are part of the table, and which are not.

A writer is paused between staging and the put, or between the put and the check, while others
change the table. Then it continues. Each test is one change that may have happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from paimon_stream.commit.committer import (
    CommitRequest,
    Committer,
    Nothing,
    Outcome,
    Published,
    Superseded,
)
from paimon_stream.commit.report import Phase
from paimon_stream.errors import (
    CommitContended,
    CommitUnknown,
    HistoryUnknown,
    TableReplaced,
    TableRolledBack,
    Unavailable,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import EMPTY_ROW
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef, encode_snapshot
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.storage.base import PutResult
from paimon_stream.table.lineage import (
    Descent,
    carries_on,
    in_lineage,
    is_replaced,
    newest_of,
    published_after,
)
from paimon_stream.table.references import read_tag
from paimon_stream.table.snapshots import SnapshotStore, Window
from paimon_stream.table.table import create_table, load_table
from tests.kits.commits import FIELDS, Bench
from tests.kits.faults import Fault, FaultyStorage, Moment


@dataclass
class At:
    """Does something when a phase is reached for the first time."""

    phase: Phase
    action: Callable[[], object]
    done: bool = False
    phases: list[Phase] = field(default_factory=list)

    def reached(self, phase: Phase, identifier: int) -> None:
        self.phases.append(phase)
        if phase is self.phase and not self.done:
            self.done = True
            self.action()


def others(bench: Bench, count: int, start: int = 0) -> None:
    """Other writers commit."""
    for number in range(start, start + count):
        message = bench.message(f"other-{number}", dt="b", bucket=0)
        bench.committer().commit(bench.request(number, [message], user="other"))


def rollback(bench: Bench, to: int) -> None:
    """As Java rolls back: first the hint, then the snapshots from the newest down."""
    bench.storage.write("snapshot/LATEST", str(to).encode())
    for snapshot_id in reversed(bench.snapshots.ids()):
        if snapshot_id > to:
            bench.storage.delete(f"snapshot/snapshot-{snapshot_id}")


def paused(
    bench: Bench, phase: Phase, action: Callable[[], object], **more: object
) -> tuple[Outcome, At, CommitRequest]:
    observer = At(phase, action)
    request = bench.request(0, [bench.message("mine", dt="a")], **more)  # type: ignore[arg-type]
    return bench.committer(observer=observer).commit(request), observer, request


def trusted() -> bool:
    return True


# -- how closely it is looked
# --------------------------------------------------------------------------


def listings(storage: FaultyStorage) -> int:
    return sum(verb == "list_files" and path == "snapshot" for verb, path in storage.operations)


def test_a_swift_commit_lists_no_snapshots_and_every_so_often_one_does_all_the_same() -> None:
    bench = Bench()
    others(bench, 1)
    storage = FaultyStorage(bench.storage)
    committer, listed = bench.committer(storage), []
    for number in range(300):
        before = listings(storage)
        committer.commit(bench.request(number, [bench.message(f"f{number}")]))
        listed.append(listings(storage) - before)
    assert listed[0] == 1  # the committer is new
    assert listed[1:255] == [0] * 254
    assert sum(listed[255:]) == 1


def test_a_commit_that_took_its_time_is_no_part_of_a_table_whose_snapshots_lie_elsewhere() -> None:
    bench = Bench(options={"commit.max-retries": "1"})
    others(bench, 1)

    def meanwhile() -> None:
        """Somebody rolls the table back, and a snapshot that was built on what went is
        published.
        """
        others(bench, 3, start=1)
        late = bench.storage.read("snapshot/snapshot-4")
        rollback(bench, 1)
        bench.storage.write("snapshot/snapshot-4", late)
        bench.clock.sleep(2)

    with pytest.raises(CommitContended):
        paused(bench, Phase.STAGED, meanwhile)
    assert bench.snapshots.ids() == [1, 4]


def created_again_below(bench: Bench) -> None:
    """Others publish snapshots 3 and 4, and all below 4 expires. A writer that slept since snapshot
    1 was the newest, and does not look, publishes 2 and 3.
    """
    others(bench, 2, start=1)
    newest = bench.storage.read("snapshot/snapshot-4")
    rollback(bench, 1)
    bench.clock.sleep(1)
    others(bench, 2, start=10)
    bench.storage.write("snapshot/snapshot-4", newest)
    bench.storage.delete("snapshot/snapshot-1")


def test_a_slow_commit_is_not_lost_because_a_sleeper_published_its_id_and_the_next_again() -> None:
    bench = Bench()
    others(bench, 1)
    outcome, _, _ = paused(bench, Phase.PUBLISHED, lambda: created_again_below(bench))
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (2, 1)
    bench.audit(["other-0", "mine", "other-1", "other-2"])


def test_what_a_sleeper_published_below_an_expiry_is_no_part_of_the_lineage() -> None:
    bench = Bench()
    others(bench, 1)
    first = bench.latest()
    others(bench, 1, start=1)
    second = bench.latest()
    created_again_below(bench)
    snapshots = bench.snapshots
    latest = snapshots.get(4)
    again = [snapshots.get(snapshot_id) for snapshot_id in (2, 3)]
    assert [in_lineage(snapshots, snapshot, latest) for snapshot in (*again, latest)] == [
        *(False, False, True),
    ]
    assert carries_on(snapshots, again[0], latest), "the next one was built on it"
    assert list(Descent(snapshots, latest)) == [latest]
    assert is_replaced(snapshots, SnapshotRef.of(second), latest) is False
    seen = SnapshotRef.of(first)
    assert published_after(snapshots, seen, latest) == Window(snapshots=(latest,), complete=False)
    found, since = newest_of(snapshots, latest, lambda snapshot: snapshot.nonce == again[0].nonce)
    assert (found, since) == (None, 4)


# -- lost races
# ----------------------------------------------------------------------------------------


def test_a_lost_race_is_tried_again_on_the_newest_snapshot_and_leaves_nothing() -> None:
    bench = Bench()
    outcome, observer, _ = paused(bench, Phase.STAGED, lambda: others(bench, 3))
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (4, 2)
    assert observer.phases.count(Phase.DISCARDED) == 1
    bench.audit(["mine", "other-0", "other-1", "other-2"])


def test_the_phases_come_in_their_order() -> None:
    bench = Bench()
    _, observer, _ = paused(bench, Phase.STAGED, lambda: others(bench, 1))
    attempt = [Phase.BASE_READ, Phase.CHECKED, Phase.STAGED]
    assert observer.phases == [
        *attempt,
        Phase.DISCARDED,
        *attempt,
        Phase.PUBLISHED,
        Phase.CONFIRMED,
        Phase.HINTED,
    ]


def test_a_merge_of_manifests_is_used_again_by_the_next_attempt() -> None:
    bench = Bench(options={"manifest.merge-min-count": "2"})
    others(bench, 3)
    observer = At(Phase.STAGED, lambda: others(bench, 1, start=3))
    request = bench.request(0, [bench.message("mine")])
    outcome = bench.committer(observer=observer).commit(request)
    assert isinstance(outcome, Published)
    assert outcome.attempts == 2
    # What the other writer merged meanwhile no longer holds what our merge was made from, so
    # nothing is merged at all; its own merge stays.
    made_by_us = {name for name in bench.metadata_of(5) if request.stage_uuid in name}
    assert made_by_us == {f"manifest-{request.stage_uuid}-2"} | {
        name for name in made_by_us if "list" in name
    }
    bench.audit(["mine", *(f"other-{n}" for n in range(4))], orphans=True)


def test_a_merge_of_manifests_that_still_lie_side_by_side_is_put_in_their_place() -> None:
    bench = Bench(options={"manifest.merge-min-count": "3"})
    others(
        bench, 3
    )  # three manifests: we merge them, and so would the next writer with the same options
    lazy = load_table(bench.storage, {"manifest.merge-min-count": "99"})
    raced = Committer(lazy, runtime=bench.runtime)
    message = bench.message("other-3")
    observer = At(Phase.STAGED, lambda: raced.commit(bench.request(3, [message], user="other")))
    storage = FaultyStorage(bench.storage)
    request = bench.request(0, [bench.message("mine")])
    outcome = bench.committer(storage, observer).commit(request)
    assert isinstance(outcome, Published)
    names = [meta.file_name for meta in bench.metas_of(outcome.snapshot)]
    assert names[0] == f"manifest-{request.stage_uuid}-0", "the merge of the first attempt"
    assert len(names) == 3
    read = [
        path for verb, path in storage.operations if verb == "read" and "manifest/manifest-" in path
    ]
    assert len([path for path in read if "list" not in path]) == 3, "nothing is read for it again"
    bench.audit(["mine", *(f"other-{n}" for n in range(4))], orphans=True)


# -- above K
# -------------------------------------------------------------------------------------------


def test_others_building_on_our_snapshot_before_we_look_leave_it_published() -> None:
    bench = Bench()
    outcome, _, _ = paused(bench, Phase.PUBLISHED, lambda: others(bench, 3))
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (1, 1)
    bench.audit(["mine", "other-0", "other-1", "other-2"])


def test_our_manifest_merged_by_who_came_next_is_found_by_our_files() -> None:
    bench = Bench(options={"manifest.merge-min-count": "1"})
    others(bench, 1)
    outcome, _, _ = paused(bench, Phase.PUBLISHED, lambda: others(bench, 2, start=1))
    assert isinstance(outcome, Published)
    assert outcome.snapshot.id == 2
    following = bench.snapshots.get(3)
    names = {m.file_name for m in bench.manifests.read_list(following.base_manifest_list)}
    delta = {m.file_name for m in bench.manifests.delta(outcome.snapshot)}
    assert not names & delta, "the follower has merged our manifest away"
    bench.audit(["mine", "other-0", "other-1", "other-2"])


def test_an_expired_id_created_again_is_void_and_the_commit_is_made_on_the_newest() -> None:
    bench = Bench()
    others(bench, 2)

    def go_on() -> None:
        others(bench, 4, start=2)
        bench.expire(4)

    outcome, _, _ = paused(bench, Phase.STAGED, go_on, fence=trusted)
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (7, 2)
    assert bench.snapshots.ids() == [5, 6, 7]
    bench.audit(["mine", *(f"other-{n}" for n in range(6))])


def test_a_batch_commit_needs_no_window() -> None:
    bench = Bench()
    others(bench, 2)

    def go_on() -> None:
        others(bench, 4, start=2)
        bench.expire(4)

    observer = At(Phase.STAGED, go_on)
    request = bench.request(2**63 - 1, [bench.message("mine")])
    outcome = bench.committer(observer=observer).commit(request)
    assert isinstance(outcome, Published)
    assert outcome.snapshot.id == 7


def test_without_a_fence_a_window_that_expired_stops_the_commit() -> None:
    bench = Bench()
    others(bench, 2)

    def go_on() -> None:
        others(bench, 4, start=2)
        bench.expire(4)

    with pytest.raises(HistoryUnknown) as caught:
        paused(bench, Phase.STAGED, go_on)
    assert caught.value.context["batch"] == 0
    bench.audit([f"other-{n}" for n in range(6)])


def test_our_snapshot_that_expired_before_we_looked_is_published_because_its_files_are_live() -> (
    None
):
    bench = Bench()
    others(bench, 1)

    def go_on() -> None:
        others(bench, 4, start=1)
        bench.expire(4)

    outcome, _, _ = paused(bench, Phase.PUBLISHED, go_on)
    assert isinstance(outcome, Published)
    assert outcome.snapshot.id == 2
    bench.audit(["mine", *(f"other-{n}" for n in range(5))])


def test_our_snapshot_that_vanished_without_a_trace_is_unknown_and_nothing_is_deleted() -> None:
    bench = Bench()
    others(bench, 1)

    def go_on() -> None:
        bench.storage.delete("snapshot/snapshot-2")

    with pytest.raises(CommitUnknown) as caught:
        paused(bench, Phase.PUBLISHED, go_on)
    assert caught.value.context["snapshot"] == 2
    assert len(bench.orphans()) == 3


def test_a_follower_whose_base_lacks_our_files_makes_ours_void() -> None:
    bench = Bench()
    others(bench, 1)

    def go_on() -> None:
        # A writer that was built on another snapshot 2, which ours has replaced in its absence.
        ours = bench.storage.read("snapshot/snapshot-2")
        bench.storage.delete("snapshot/snapshot-2")
        others(bench, 2, start=1)
        bench.storage.write("snapshot/snapshot-2", ours)

    outcome, _, _ = paused(bench, Phase.PUBLISHED, go_on, fence=trusted)
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (4, 2)
    assert bench.snapshots.ids() == [1, 3, 4]
    assert bench.live_names() == ["mine", "other-0", "other-1", "other-2"]


# -- none above K
# --------------------------------------------------------------------------------------


def test_a_base_that_expired_right_after_the_put_does_no_harm() -> None:
    bench = Bench()
    others(bench, 3)
    outcome, _, _ = paused(bench, Phase.PUBLISHED, lambda: bench.expire(3))
    assert isinstance(outcome, Published)
    assert outcome.snapshot.id == 4
    assert bench.snapshots.ids() == [4]
    bench.audit(["mine", "other-0", "other-1", "other-2"])


def test_a_snapshot_on_a_base_that_was_rolled_back_is_void_and_removed() -> None:
    bench = Bench()
    others(bench, 3)
    with pytest.raises(
        CommitUnknown
    ) as caught:  # somebody may have built on it before it was removed
        paused(bench, Phase.STAGED, lambda: rollback(bench, 1))
    assert isinstance(caught.value.__cause__, TableRolledBack)
    assert bench.snapshots.ids() == [1]
    bench.audit(["other-0"])


def test_a_rollback_between_put_and_check_makes_the_snapshot_void() -> None:
    bench = Bench()
    others(bench, 3)

    def go_on() -> None:
        bench.storage.delete("snapshot/snapshot-3")
        bench.storage.delete("snapshot/snapshot-2")
        bench.storage.write("snapshot/LATEST", b"1")

    with pytest.raises(
        CommitUnknown
    ):  # what became of the void one is only seen from the next snapshot on
        paused(bench, Phase.PUBLISHED, go_on)
    assert bench.snapshots.ids() == [1]
    assert bench.live_names() == ["other-0"]


def test_a_base_that_was_rolled_back_and_made_anew_makes_the_snapshot_void() -> None:
    bench = Bench()
    others(bench, 3)

    def go_on() -> None:
        rollback(bench, 2)
        others(bench, 1, start=7)

    with pytest.raises(CommitUnknown) as caught:
        paused(bench, Phase.STAGED, go_on)
    assert isinstance(caught.value.__cause__, TableRolledBack)
    assert bench.live_names() == ["other-0", "other-1", "other-7"]


def test_a_base_made_anew_right_after_the_put_makes_the_snapshot_void() -> None:
    bench = Bench()
    others(bench, 3)

    def go_on() -> None:
        ours = bench.storage.read("snapshot/snapshot-4")
        rollback(bench, 2)
        others(bench, 1, start=7)
        bench.storage.write("snapshot/snapshot-4", ours)

    with pytest.raises(CommitUnknown) as caught:
        paused(bench, Phase.PUBLISHED, go_on)
    assert isinstance(caught.value.__cause__, TableRolledBack)
    assert bench.live_names() == ["other-0", "other-1", "other-7"]


def test_a_snapshot_below_that_may_be_a_dead_writer_s_leaves_it_open_and_in_place() -> None:
    bench = Bench()
    others(bench, 8)
    left = bench.storage.read("snapshot/snapshot-2")
    bench.expire(5)
    bench.storage.write("snapshot/snapshot-2", left)  # outside of the lineage 6, 7, 8
    with pytest.raises(CommitUnknown, match=r"snapshot 8, .* rolled back to snapshot 2"):
        paused(bench, Phase.PUBLISHED, lambda: forget(bench, 6, 7, 8))
    assert bench.snapshots.ids() == [2, 9]
    assert bench.live_names().count("mine") == 1
    assert bench.metadata_of(9) <= bench.metadata_files()


def test_a_base_that_another_writer_created_again_after_it_expired_does_no_harm() -> None:
    bench = Bench()
    others(bench, 3)
    stranger = replace(
        bench.snapshots.get(3), delta_manifest_list="manifest-list-of-a-paused-writer-1"
    )

    def expire_all_and_come_back() -> None:
        forget(bench, 1, 2, 3)
        bench.storage.write("snapshot/snapshot-3", encode_snapshot(stranger))

    with pytest.raises(CommitUnknown):
        paused(bench, Phase.PUBLISHED, expire_all_and_come_back)
    assert bench.snapshots.ids() == [3, 4]
    assert bench.live_names() == ["mine", "other-0", "other-1", "other-2"]


# -- rollbacks under a paused writer
# -------------------------------------------------------------------


def tagged(bench: Bench, commits: int, tag_at: int, expired: int) -> None:
    """Commits of others, a tag on one of them, and the oldest snapshots expired."""
    for number in range(commits):
        others(bench, 1, start=number)
        if number + 1 == tag_at:
            create_tag(bench.table, "kept", runtime=bench.runtime)
    forget(bench, *range(1, expired + 1))


@pytest.mark.parametrize("phase", [Phase.STAGED, Phase.PUBLISHED])
@pytest.mark.parametrize("seconds", [0, 5])
def test_a_rollback_to_an_expired_tag_is_not_undone_by_a_writer_that_was_paused(
    phase: Phase, seconds: int
) -> None:
    bench = Bench()
    tagged(bench, 12, tag_at=3, expired=7)

    def roll_back() -> None:
        ours = bench.storage.read("snapshot/snapshot-13") if phase is Phase.PUBLISHED else b""
        rollback_to(bench.table, "kept", runtime=bench.runtime)
        bench.clock.sleep(seconds)
        if ours:  # it was put just after the rollback had listed the snapshots for the last time
            bench.storage.write("snapshot/snapshot-13", ours)

    with pytest.raises(
        CommitUnknown
    ) as caught:  # somebody may have built on it before it was removed
        paused(bench, phase, roll_back)
    assert isinstance(caught.value.__cause__, TableRolledBack)
    assert bench.snapshots.ids() == [3]
    bench.audit([f"other-{number}" for number in range(3)])


def test_a_rollback_to_a_tag_that_was_deleted_since_is_not_guessed() -> None:
    bench = Bench()
    tagged(bench, 12, tag_at=3, expired=7)

    def roll_back() -> None:
        rollback_to(bench.table, "kept", runtime=bench.runtime)
        bench.storage.delete("tag/tag-kept")

    with pytest.raises(
        CommitUnknown, match="nothing shows whether it expired or the table was rolled back"
    ):
        paused(bench, Phase.STAGED, roll_back)
    assert bench.snapshots.ids() == [3, 13]
    assert bench.metadata_of(13) <= bench.metadata_files()


def test_a_rollback_far_back_is_proven_although_the_oldest_snapshots_have_expired_since() -> None:
    bench = Bench()
    others(bench, 40)

    def expire_and_roll_back() -> None:
        forget(bench, *range(1, 21))
        rollback(bench, 30)

    with pytest.raises(CommitUnknown) as caught:
        paused(bench, Phase.STAGED, expire_and_roll_back)
    assert isinstance(caught.value.__cause__, TableRolledBack)
    assert bench.snapshots.ids() == list(range(21, 31))


def test_a_rollback_to_a_snapshot_of_this_run_is_proven_without_another_listing() -> None:
    bench = Bench()
    committer_storage = FaultyStorage(bench.storage)
    observer = At(Phase.HINTED, lambda: None)
    committer = bench.committer(committer_storage, observer)
    for number in range(20):
        committer.commit(bench.request(number, [bench.message(f"mine-{number}")]))
    forget(bench, *range(1, 12))
    observer.phase, observer.done, observer.action = (
        Phase.STAGED,
        False,
        lambda: rollback(bench, 15),
    )
    with pytest.raises(CommitUnknown):
        committer.commit(bench.request(20, [bench.message("mine-20")]))
    assert bench.snapshots.ids() == [12, 13, 14, 15]


def forget(bench: Bench, *ids: int) -> None:
    for one in ids:
        bench.storage.delete(f"snapshot/snapshot-{one}")


def test_a_snapshot_replaced_by_a_writer_without_atomic_publish_is_lost_and_made_again() -> None:
    bench = Bench()
    others(bench, 1)

    def clobber() -> None:
        ours = bench.storage.read("snapshot/snapshot-2")
        bench.storage.delete("snapshot/snapshot-2")
        others(bench, 1, start=1)
        assert bench.storage.read("snapshot/snapshot-2") != ours

    outcome, _, _ = paused(bench, Phase.PUBLISHED, clobber)
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (3, 2)
    bench.audit(["mine", "other-0", "other-1"])


@pytest.mark.parametrize("is_broken", [False, True], ids=["readable", "beside a broken tag"])
def test_metadata_of_a_replaced_snapshot_stays_as_long_as_a_tag_refers_to_it(
    is_broken: bool,
) -> None:
    bench = Bench()
    others(bench, 1)

    def tag_and_replace() -> None:
        """Another writer replaces our snapshot, and builds on its own."""
        create_tag(bench.table, "ours", 2, runtime=bench.runtime)
        if is_broken:
            bench.storage.write("tag/tag-broken", b"{")
        bench.storage.delete("snapshot/snapshot-2")
        others(bench, 2, start=1)

    outcome, _, _ = paused(bench, Phase.PUBLISHED, tag_and_replace)
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (4, 2)
    tagged = read_tag(bench.storage, "tag/tag-ours")
    assert tagged is not None
    assert bench.names_of(tagged) == ["mine", "other-0"]
    bench.audit(["mine", "other-0", "other-1", "other-2"])


def test_a_commit_that_is_interrupted_while_it_looks_at_tags_leaves_them_their_metadata() -> None:
    bench = Bench()
    others(bench, 1)
    interrupt = Fault(at=1, verb="list_files", path="tag", error=KeyboardInterrupt)
    storage = FaultyStorage(bench.storage, [interrupt])

    def tag_and_replace() -> None:
        create_tag(bench.table, "ours", 2, runtime=bench.runtime)
        bench.storage.delete("snapshot/snapshot-2")
        others(bench, 2, start=1)

    request = bench.request(0, [bench.message("mine")])
    with pytest.raises(KeyboardInterrupt):
        bench.committer(storage, At(Phase.PUBLISHED, tag_and_replace)).commit(request)
    assert storage.fired
    tagged = read_tag(bench.storage, "tag/tag-ours")
    assert tagged is not None
    assert bench.names_of(tagged) == ["mine", "other-0"]


def test_a_replaced_snapshot_on_which_somebody_had_built_counts_as_published() -> None:
    bench = Bench()
    others(bench, 1)

    def die() -> None:
        raise KeyboardInterrupt

    def build_and_clobber() -> None:
        """One writer publishes snapshot 3 on ours and checks nothing more. Then another writer
        replaces ours.
        """
        foreign = bench.committer(observer=At(Phase.PUBLISHED, die))
        with pytest.raises(KeyboardInterrupt):
            foreign.commit(bench.request(1, [bench.message("other-1")], user="other"))
        ours = bench.snapshots.get(2)
        third = Snapshot(
            **{
                name: getattr(ours, name)
                for name in ours.__slots__
                if name not in ("delta_manifest_list", "commit_user")
            },
            commit_user="third",
            delta_manifest_list=bench.snapshots.get(1).delta_manifest_list,
        )
        bench.storage.write("snapshot/snapshot-2", encode_snapshot(third))

    outcome, _, _ = paused(bench, Phase.PUBLISHED, build_and_clobber)
    assert isinstance(outcome, Published)
    assert bench.live_names().count("mine") == 1


def test_a_replaced_snapshot_that_somebody_builds_on_later_is_found_by_the_next_attempt() -> None:
    bench = Bench()
    others(bench, 1)
    held: list[bytes] = []

    def die() -> None:
        raise KeyboardInterrupt

    def replace_ours() -> None:
        """A slow writer has staged snapshot 3 on ours. Meanwhile another one replaces ours."""
        foreign = bench.committer(observer=At(Phase.PUBLISHED, die))
        with pytest.raises(KeyboardInterrupt):
            foreign.commit(bench.request(1, [bench.message("other-1")], user="other"))
        held.append(bench.storage.read("snapshot/snapshot-3"))
        forget(bench, 2, 3)
        bench.committer().commit(bench.request(0, [bench.message("third")], user="third"))

    class Watch(At):
        def reached(self, phase: Phase, identifier: int) -> None:
            super().reached(phase, identifier)
            if phase is Phase.DISCARDED:
                bench.storage.write("snapshot/snapshot-3", held.pop())

    outcome = bench.committer(observer=Watch(Phase.PUBLISHED, replace_ours)).commit(
        bench.request(0, [bench.message("mine")])
    )
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (2, 2)
    assert bench.snapshots.ids() == [1, 2, 3]
    assert bench.live_names() == ["mine", "other-0", "other-1"]


# -- the storage's answers
# -----------------------------------------------------------------------------


def test_a_put_that_took_effect_without_an_answer_and_was_built_upon_is_not_made_twice() -> None:
    bench = Bench()
    others(bench, 1)
    storage = FaultyStorage(bench.storage, [Fault(at=1, verb="put_if_absent", moment=Moment.AFTER)])
    outcome = bench.committer(storage).commit(bench.request(0, [bench.message("mine")]))
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (2, 1)
    bench.audit(["mine", "other-0"], orphans=True)


def test_a_put_without_an_answer_that_somebody_else_preceded_is_made_again() -> None:
    bench = Bench()
    storage = FaultyStorage(
        bench.storage, [Fault(at=1, verb="put_if_absent", moment=Moment.BEFORE)]
    )
    observer = At(Phase.STAGED, lambda: others(bench, 1))
    outcome = bench.committer(storage, observer).commit(bench.request(0, [bench.message("mine")]))
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (2, 2)
    bench.audit(["mine", "other-0"])


@pytest.mark.parametrize("expired", [2, 4])
def test_a_put_without_an_answer_that_is_repeated_after_an_expiry_leaves_no_snapshot_behind(
    expired: int,
) -> None:
    bench = Bench()
    others(bench, 1)

    class Late(FaultyStorage):
        """The answer of the put gets lost. Meanwhile others commit, and the snapshot expires."""

        def put_if_absent(self, path: str, data: bytes) -> PutResult:
            try:
                return super().put_if_absent(path, data)
            except Unavailable:
                others(bench, 4, start=1)
                bench.expire(expired)
                raise

    storage = Late(bench.storage, [Fault(at=1, verb="put_if_absent", moment=Moment.AFTER)])
    outcome = bench.committer(storage).commit(bench.request(0, [bench.message("mine")]))
    assert isinstance(outcome, Published)
    assert outcome.snapshot.id == 2
    assert bench.snapshots.ids() == list(range(expired + 1, 7))
    bench.audit(["mine", *(f"other-{number}" for number in range(5))])


# -- somebody else did it
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("identifier", [5, 6])
def test_the_same_user_with_this_identifier_or_a_later_one_supersedes_the_commit(
    identifier: int,
) -> None:
    bench = Bench()
    seen = bench.snapshots.latest()
    twin = bench.request(identifier, [bench.message("twin")])
    assert isinstance(bench.committer().commit(twin), Published)
    outcome = bench.committer().commit(bench.request(5, [bench.message("mine")], seen=seen))
    assert isinstance(outcome, Superseded)
    assert outcome.snapshot == bench.latest()
    bench.audit(["twin"], orphans=True)


def test_a_commit_superseded_between_staging_and_put_publishes_nothing_and_leaves_nothing() -> None:
    bench = Bench()

    def twin() -> None:
        bench.committer().commit(bench.request(0, [bench.message("twin")], seen=None))

    outcome, _, _ = paused(bench, Phase.STAGED, twin, seen=None)
    assert isinstance(outcome, Superseded)
    assert not outcome.is_open
    bench.audit(["twin"], orphans=True)


def test_a_commit_superseded_by_who_replaced_its_snapshot_is_open() -> None:
    """Somebody may still build on the replaced snapshot."""
    bench = Bench()
    others(bench, 1)

    def replace_ours() -> None:
        bench.storage.delete("snapshot/snapshot-2")
        bench.committer().commit(bench.request(0, [bench.message("twin")]))

    outcome, _, _ = paused(bench, Phase.PUBLISHED, replace_ours)
    assert isinstance(outcome, Superseded)
    assert outcome.is_open


def test_an_earlier_identifier_or_another_user_supersedes_nothing() -> None:
    bench = Bench()
    bench.committer().commit(bench.request(4, [bench.message("earlier")]))
    bench.committer().commit(bench.request(5, [bench.message("other")], user="you"))
    outcome = bench.committer().commit(bench.request(5, [bench.message("mine")], seen=None))
    assert isinstance(outcome, Published)
    bench.audit(["earlier", "mine", "other"], orphans=True)


def test_a_batch_commit_of_the_same_user_supersedes_nothing() -> None:
    bench = Bench()
    batch = 2**63 - 1
    bench.committer().commit(bench.request(batch, [bench.message("batch-1")]))
    again = bench.committer().commit(bench.request(batch, [bench.message("batch-2")], seen=None))
    assert isinstance(again, Published)
    outcome = bench.committer().commit(bench.request(5, [bench.message("mine")], seen=None))
    assert isinstance(outcome, Published)
    bench.audit(["batch-1", "batch-2", "mine"], orphans=True)


# -- the table itself
# ----------------------------------------------------------------------------------


def drop_and_create(bench: Bench, later_millis: int = 5000) -> None:
    bench.storage.clear()  # type: ignore[attr-defined]
    bench.clock.advance(later_millis)
    assert create_table(bench.storage, FIELDS, runtime=bench.runtime) is not None


@pytest.mark.parametrize("phase", [Phase.BASE_READ, Phase.STAGED, Phase.PUBLISHED])
def test_a_table_that_was_dropped_and_created_again_gets_nothing(phase: Phase) -> None:
    bench = Bench()
    others(bench, 2)
    with pytest.raises((TableReplaced, CommitUnknown)):
        paused(bench, phase, lambda: drop_and_create(bench))
    assert bench.snapshots.ids() == []


def test_a_table_that_was_dropped_right_after_the_put_and_created_again_gets_no_hint() -> None:
    bench = Bench()
    others(bench, 2)
    with pytest.raises(TableReplaced):
        paused(bench, Phase.PUBLISHED, lambda: drop_and_create(bench, 500))
    assert SnapshotStore(bench.storage).latest() is None, "the new table can be read"


def test_a_replaced_table_is_noticed_before_anything_is_written() -> None:
    bench = Bench()
    others(bench, 2)
    committer = bench.committer()
    request = bench.request(0, [bench.message("mine")])
    drop_and_create(bench)
    with pytest.raises(TableReplaced, match="Start the query again"):
        committer.commit(request)
    assert bench.metadata_files() == set()


def test_a_table_that_went_back_behind_what_was_judged_is_refused() -> None:
    bench = Bench()
    others(bench, 3)
    request = bench.request(0, [bench.message("mine")])
    rollback(bench, 1)
    with pytest.raises(TableRolledBack):
        bench.committer().commit(request)


def test_a_judged_snapshot_that_was_made_anew_is_refused() -> None:
    bench = Bench()
    others(bench, 3)
    request = bench.request(0, [bench.message("mine")])
    rollback(bench, 2)
    others(bench, 4, start=5)
    with pytest.raises(TableRolledBack):
        bench.committer().commit(request)


def test_nothing_to_commit_touches_nothing() -> None:
    bench = Bench()
    storage = FaultyStorage(bench.storage)
    committer = bench.committer(storage)
    before = len(storage.operations)
    assert isinstance(committer.commit(bench.request(0)), Nothing)
    assert len(storage.operations) == before


def test_a_new_index_file_that_the_next_snapshot_lacks_does_not_count_as_published() -> None:
    """Somebody slept before the put of a commit without data files. Others published its id and the
    next one, with index files of their own, and the former expired. So the put succeeds, below a
    snapshot that was not built on it: rows that it was to delete stay.
    """
    bench = Bench()
    others(bench, 1)

    def indexed(name: str) -> CommitMessage:
        return CommitMessage(
            partition=EMPTY_ROW,
            bucket=0,
            total_buckets=-1,
            new_index_files=(bench.put_index(name),),
        )

    def meanwhile() -> None:
        for number in (1, 2):
            request = bench.request(number, [indexed(f"rival-{number}")], user="other")
            bench.committer().commit(request)
        bench.expire(2)

    request = bench.request(0, [indexed("mine")])
    with pytest.raises(CommitUnknown, match="snapshot 3 has another index"):
        bench.committer(observer=At(Phase.STAGED, meanwhile)).commit(request)
    assert [one.file.file_name for one in bench.indexes()] == ["rival-1", "rival-2"]
