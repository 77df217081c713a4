"""Expiry, what keeps it from deleting, and what a committer does after its commit."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.commit.request import CommitRequest
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    AlreadyExists,
    CommitContended,
    InvalidOption,
    NoSpace,
    NotFound,
    PaimonStreamError,
)
from paimon_stream.format.snapshot_json import SnapshotId, SnapshotRef, encode_snapshot
from paimon_stream.maintenance.expire import (
    ExpireReport,
    Retention,
    expire_snapshots,
    expiry_is_due,
)
from paimon_stream.maintenance.hints import repair_hints
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import (
    create_tag,
    delete_tag,
    expire_tags,
    read_tags,
    tagged_until,
)
from paimon_stream.options import Options
from paimon_stream.runtime import SimulatedClock
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.consumers import consumers, write_consumer
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.layout import OWN_FOLDER, snapshot_path
from paimon_stream.table.references import NameSet
from tests.kits.commits import Bench, forget_removals
from tests.kits.expiries import CountedAfterCommit
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment, Operation
from tests.kits.maintained import paths, tried
from tests.kits.places import WHOLE, following, new_storage
from tests.kits.races import Meanwhile
from tests.kits.seeds import MANY

HOUR = 3_600_000


def grown(commits: int, storage: MemoryStorage | None = None, **options: str) -> Bench:
    """A table of this number of snapshots, one each second. The last was made a second ago."""
    bench = Bench(
        options={key.replace("_", "-"): value for key, value in options.items()},
        storage=storage or new_storage(),
    )
    for number in range(commits):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
        bench.clock.advance(1000)
    return bench


def aged(commits: int) -> tuple[Bench, SimulatedClock]:
    """A table on a storage whose clock the test sets."""
    clock = SimulatedClock()
    return grown(commits, MemoryStorage(clock=clock)), clock


def expire(
    bench: Bench, *given: int, storage: Storage | None = None, **more: object
) -> ExpireReport:
    return expire_snapshots(bench.on(storage), *given, runtime=bench.runtime, **more)  # type: ignore[arg-type]


def is_due(bench: Bench) -> bool:
    oldest = bench.snapshots.get(bench.snapshots.ids()[0])
    return expiry_is_due(bench.table, bench.snapshots, bench.runtime, oldest, None)


def test_what_late_puts_replaced_beside_the_lineage_stays() -> None:
    """Two writers died at their puts. These arrive after the ids have expired, and nobody removes
    them.
    """
    bench = grown(1)

    def late_after(request: CommitRequest, *appended: int) -> tuple[str, bytes]:
        path = f"snapshot/snapshot-{bench.latest().id + 1}"
        dying = FaultyStorage(
            bench.storage, [Fault(at=1, verb="put_if_absent", moment=Moment.AFTER, stop=True)]
        )
        with pytest.raises(Killed):
            bench.committer(dying).commit(request)
        content = bench.storage.read(path)
        bench.storage.delete(path)  # it was still on its way
        for number in appended:
            bench.committer().commit(
                bench.request(number, [bench.message(f"f{number}")], user="other")
            )
        return path, content

    first = late_after(bench.request(10, [bench.message("late")], user="one"), 1, 2)
    second = late_after(bench.overwriting(11, [bench.message("new")], user="two"), 3, 4)
    bench.clock.advance(10_000)
    expire(bench, 1, 1, older_than="1 s")
    assert bench.snapshots.ids() == [5]
    for path, content in (first, second):
        bench.storage.put_if_absent(path, content)
    bench.committer().commit(bench.request(5, [bench.message("f5")], user="other"))
    assert bench.snapshots.ids() == [2, 4, 5, 6]
    bench.clock.advance(10_000)
    expire(bench, 1, 1, older_than="1 s")
    assert bench.snapshots.ids() == [6]
    bench.audit([f"f{number}" for number in range(6)])


def with_options(bench: Bench, **options: str) -> Bench:
    table = bench.table
    overrides = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    bench.table = replace(table, options=Options(dict(table.options), overrides))
    return bench


def test_without_arguments_the_options_of_the_table_hold() -> None:
    bench = grown(15)
    assert expire(bench).snapshots == ()
    assert not is_due(bench)
    bench.clock.advance(HOUR)
    assert is_due(bench)
    assert expire(bench).snapshots == (1, 2, 3, 4, 5)
    assert bench.storage.read("snapshot/EARLIEST") == b"6"
    assert not is_due(bench)
    bench.audit([f"f{number}" for number in range(15)], orphans=True)


def test_at_most_so_many_stay_however_young() -> None:
    bench = grown(15)
    assert expire(bench, 12).snapshots == (1, 2, 3)


def test_no_more_than_the_limit_go_at_once() -> None:
    bench = grown(8)
    assert expire(bench, 1, 1, 0, 3).snapshots == (1, 2, 3)
    assert expire(bench, 1, 1, 0, 3).snapshots == (4, 5, 6)


def test_an_age_and_a_moment_mean_the_same() -> None:
    for when in (
        dt.timedelta(seconds=5),
        1_700_000_005_000,
        dt.datetime.fromtimestamp(1_700_000_005),
    ):
        bench = grown(10)
        assert expire(bench, 9, 1, when).snapshots == (1, 2, 3, 4, 5)


def test_contradictions_and_zeros_are_refused() -> None:
    bench = grown(2)
    with pytest.raises(InvalidOption, match="at least 3"):
        expire(bench, 2, 3)
    for given in ((0,), (5, 0), (5, 1, None, 0)):
        with pytest.raises(InvalidOption, match="at least 1"):
            expire(bench, *given)  # type: ignore[arg-type]
    assert Retention.of(Options({}), 0, "t", retain_max=3).least == 3


def test_a_dry_run_says_what_a_run_does_and_does_nothing() -> None:
    bench = grown(9)
    before = bench.metadata_files()
    dry = expire(bench, 2, dry_run=True)
    assert bench.metadata_files() == before
    assert len(bench.snapshots.ids()) == 9
    done = expire(bench, 2)
    assert (dry.snapshots, dry.files) == (done.snapshots, done.files)
    assert json.loads(json.dumps(done.to_json()))["snapshots"] == list(range(1, 8))


def test_an_empty_table_has_nothing_to_expire() -> None:
    bench = grown(0)
    assert expire(bench).snapshots == ()


def test_consumers_hold_back_expiry_unless_they_read_changelog_only() -> None:
    bench = grown(9)
    write_consumer(bench.storage, "reader", 4)
    assert expire(bench, 1).snapshots == (1, 2, 3)
    bench.storage.write("consumer/consumer-odd", b"{}")
    assert consumers(bench.storage) == {"reader": 4, "odd": 0}
    assert expire(bench, 1).snapshots == ()
    bench.storage.delete("consumer/consumer-odd")
    with_options(bench, consumer_changelog__only="true")
    assert expire(bench, 1).snapshots == ()
    with_options(bench, changelog_num__retained_min="2", snapshot_num__retained_min="1")
    assert expire(bench, 1).snapshots == (4, 5, 6, 7, 8)


def entry(bench: Bench, base: int | None, prepared_millis: int) -> JournalEntry:
    return JournalEntry(
        batch_id=3,
        messages=(),
        stage_uuids=("u",),
        query_id=None,
        run_id=None,
        checkpoint=None,
        query_name=None,
        offsets_hash=None,
        schema_digest="",
        schema_id=0,
        total_buckets=-1,
        base=None if base is None else SnapshotRef.of(bench.snapshots.get(base)),
        previous=None,
        prepared_millis=prepared_millis,
    )


def test_the_last_snapshots_of_a_stream_stay_for_a_day() -> None:
    bench = grown(9)
    Journal(bench.storage, "other").write(entry(bench, 5, bench.clock.now_millis()))
    assert expire(bench, 1).snapshots == (1, 2, 3, 4)
    bench.clock.advance(25 * HOUR)
    assert expire(bench, 1).snapshots == (5, 6, 7, 8)


def test_a_caller_may_expire_what_streams_hold() -> None:
    bench = grown(9)
    Journal(bench.storage, "other").write(entry(bench, None, bench.clock.now_millis()))
    assert expire(bench, 1).snapshots == ()
    assert len(expire(bench, 1, protect_streams=False).snapshots) == 8


def test_a_journalled_file_and_a_branch_keep_what_they_refer_to() -> None:
    bench = grown(3)
    compaction = bench.compaction("f0", "f1", into="big")
    bench.committer().commit(bench.request(9, [compaction]))
    bench.storage.write(
        "branch/branch-b/snapshot/snapshot-2", bench.storage.read("snapshot/snapshot-2")
    )
    journalled = replace(entry(bench, 1, 0), messages=(bench.message("f0"),))
    Journal(bench.storage, "dead").write(journalled)
    held = bench.metadata_of(2)
    expire(bench, 1)
    assert held <= bench.metadata_files()
    for name in ("f0", "f1", "big", "f2"):
        bench.storage.stat(f"bucket-0/{name}")


class Beside(FaultyStorage):
    """Calls `what` whenever the folders of journals are listed."""

    __slots__ = ("what",)

    def _due(self, operation: Operation) -> Fault | None:
        if operation.verb == "list_folders" and operation.path == OWN_FOLDER:
            self.what()
        return super()._due(operation)


def test_the_expiry_of_a_table_never_waits_for_that_of_another() -> None:
    """A process may have many streams, each with a thread that expires snapshots. One store may
    hang.
    """
    ended = []

    def of_another() -> None:
        beside = threading.Thread(target=expire, args=(compacted(), 1))
        beside.start()
        beside.join(900)
        ended.append(not beside.is_alive())

    def compacted() -> Bench:
        bench = grown(3)
        bench.committer().commit(bench.request(9, [bench.compaction("f0", "f1", into="big")]))
        return bench

    slow = compacted()
    storage = Beside(slow.storage)
    storage.what = of_another
    assert expire(slow, 1, storage=storage).snapshots == (1, 2, 3)
    assert ended == [True, True], "once for the streams, once for their files"


def test_a_branch_that_is_made_during_an_expiry_keeps_what_it_refers_to() -> None:
    at, met, kept = 0, True, 0
    while met:
        at = following(at)
        bench = grown(4)
        bench.committer().commit(bench.request(9, [bench.compaction("f0", "f1", into="big")]))
        held = bench.metadata_of(3)

        def branch(bench: Bench = bench) -> None:
            if bench.snapshots.exists(3):
                path = "branch/branch-b/snapshot/snapshot-3"
                bench.storage.write(path, bench.storage.read("snapshot/snapshot-3"))

        storage = Meanwhile(bench.storage, at, branch)
        assert expire(bench, 1, storage=storage).snapshots == (1, 2, 3, 4)
        if bench.storage.list_folders("branch"):
            kept += 1
            assert held <= bench.metadata_files()
            for name in ("f0", "f1", "f2"):
                bench.storage.stat(f"bucket-0/{name}")
        met = storage.happened
    assert kept > (10 if WHOLE else 2)


def test_a_commit_expires_what_is_due_and_never_fails_by_it() -> None:
    bench = grown(15)
    bench.clock.advance(HOUR)
    after = CountedAfterCommit(runtime=bench.runtime)
    commit = TableCommit(bench.table, "me", runtime=bench.runtime, after_commit=after)
    commit.commit(50, [bench.message("f50")])
    assert (after.expired, after.failures) == (6, 0)
    assert bench.snapshots.ids()[0] == 7
    bench.clock.advance(HOUR)
    broken = FaultyStorage(bench.storage, [Fault(at=1, verb="delete")])
    commit = TableCommit(
        bench.table,
        "me",
        runtime=bench.runtime,
        after_commit=lambda table, newest: after(replace(table, storage=broken), newest),
    )
    commit.commit(51, [bench.message("f51")])
    assert (after.expired, after.failures) == (6, 1)
    commit.commit(52, [bench.message("f52")])
    assert after.failures == 1
    assert bench.snapshots.ids()[0] == 9


def test_a_tag_whose_name_is_not_utf8_expires_after_a_commit() -> None:
    bench = grown(15)
    create_tag(bench.table, "cafe", 1, dt.timedelta(minutes=30), runtime=bench.runtime)
    bench.storage.write("tag/tag-caf\udce9", bench.storage.read("tag/tag-cafe"))  # a JVM in Latin-1
    bench.storage.delete("tag/tag-cafe")
    bench.clock.advance(HOUR)
    after = CountedAfterCommit(runtime=bench.runtime)
    after(bench.table, bench.latest())
    assert (after.failures, read_tags(bench.storage)) == (0, {})
    assert after.expired == 5


def test_snapshots_expire_after_a_commit_even_if_a_tag_cannot_be_deleted() -> None:
    bench = grown(15)
    create_tag(bench.table, "over", 1, dt.timedelta(minutes=30), runtime=bench.runtime)
    bench.clock.advance(HOUR)
    after = CountedAfterCommit(runtime=bench.runtime)
    broken = FaultyStorage(bench.storage, [Fault(at=1, verb="delete", path="tag/tag-over")])
    after(replace(bench.table, storage=broken), bench.latest())
    assert (after.failures, after.expired) == (1, 5)


def test_a_batch_without_a_snapshot_expires_as_well() -> None:
    bench = grown(15)
    reports: list[ExpireReport | None] = []
    after = CountedAfterCommit(runtime=bench.runtime, on_expiry=reports.append)
    after.after_nothing(bench.table)
    assert reports == []
    bench.clock.advance(HOUR)
    after(bench.table, bench.latest())
    commit = TableCommit(bench.table, "you", runtime=bench.runtime)
    for number in range(3):
        commit.commit(number, [bench.message(f"y{number}")])
    after.after_nothing(bench.table)
    assert [None if one is None else one.snapshots for one in reports] == [
        (1, 2, 3, 4, 5),
        (6, 7, 8),
    ]
    assert (after.expired, after.failures) == (8, 0)
    for number in range(3, 6):
        commit.commit(number, [bench.message(f"y{number}")])
    broken = FaultyStorage(bench.storage, [Fault(at=1, verb="delete")])
    after.after_nothing(replace(bench.table, storage=broken))
    assert (after.failures, reports[-1]) == (1, None)
    after.after_nothing(with_options(bench, write__only="true").table)
    assert after.expired == 8


def test_snapshots_are_not_listed_after_each_commit_of_a_table_in_which_nothing_expired() -> None:
    bench = grown(15)
    watched = FaultyStorage(bench.storage)
    table = replace(bench.table, storage=watched)
    after = CountedAfterCommit(runtime=bench.runtime)
    for _ in range(3):
        after(table, bench.latest())
    assert [one.path for one in watched.operations if one.verb.startswith("list")] == ["snapshot"]
    bench.clock.advance(HOUR)
    after(table, bench.latest())
    assert after.expired == 5


def test_a_write_only_committer_expires_nothing() -> None:
    bench = with_options(grown(15), write__only="true")
    bench.clock.advance(HOUR)
    after = CountedAfterCommit(runtime=bench.runtime)
    after(bench.table, bench.latest())
    assert after.expired == 0
    assert len(bench.snapshots.ids()) == 15


def test_the_stream_s_last_snapshot_may_be_kept_by_a_consumer() -> None:
    bench = grown(3)
    option = {"paimon-stream.protect-last-snapshot": "consumer"}
    bench.table = replace(bench.table, options=Options(dict(bench.table.options), option))
    CountedAfterCommit(runtime=bench.runtime)(bench.table, bench.latest())
    assert consumers(bench.storage) == {"me": 3}


def test_a_tag_has_a_name_a_snapshot_and_no_twin() -> None:
    bench = grown(2)
    for name in ("", " ", "a/b", "../../x", "a\0b", "x" * 252, "\ud800"):
        with pytest.raises(InvalidOption):
            create_tag(bench.table, name, runtime=bench.runtime)
    assert create_tag(bench.table, "t", runtime=bench.runtime).snapshot == 2
    with pytest.raises(AlreadyExists, match="'t'"):
        create_tag(bench.table, "t", 1, runtime=bench.runtime)
    with pytest.raises(NotFound, match="77"):
        create_tag(bench.table, "u", 77, runtime=bench.runtime)
    with pytest.raises(NotFound):
        create_tag(grown(0).table, "u")
    assert not delete_tag(bench.table, "none").found


def test_a_snapshot_without_lists_gets_no_tag() -> None:
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("a")]))
    bench.storage.delete(f"manifest/{bench.latest().delta_manifest_list}")
    with pytest.raises(NotFound, match=r"Snapshot 1 .* cannot be read: .* Nothing was tagged"):
        create_tag(bench.table, "t", runtime=bench.runtime)
    assert read_tags(bench.storage) == {}


@pytest.mark.parametrize(
    ("tagged", "again"),
    [(1, 2), (3, 2), (1, 4)],
    ids=["tag below", "tag above", "tag below, and one of its id"],
)
def test_the_expiry_of_a_snapshot_beside_the_lineage_leaves_what_a_tag_needs(
    tagged: int, again: int
) -> None:
    """A paused writer created a snapshot again. It has the first manifest, and so has the tag, but
    not the second tag, of snapshot 4, in which the manifests were merged.
    """
    bench = Bench(options={"manifest.merge-min-count": "3"})
    for number in range(6):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    first = bench.manifests.base_and_delta(bench.snapshots.get(1))[0].file_name
    assert first in bench.metadata_of(3)
    assert first not in bench.metadata_of(4)
    stale = bench.snapshots.get(min(again, 3))
    lists = {
        name: f"{name}-beside" for name in (stale.base_manifest_list, stale.delta_manifest_list)
    }
    copies = {new: bench.storage.read(f"manifest/{old}") for old, new in lists.items()}
    beside = replace(
        stale,
        id=SnapshotId(again),
        base_manifest_list=lists[stale.base_manifest_list],
        delta_manifest_list=lists[stale.delta_manifest_list],
    )
    for snapshot_id in (tagged, 4):
        create_tag(bench.table, f"t{snapshot_id}", snapshot_id, runtime=bench.runtime)
    expire_snapshots(
        bench.table, retain_max=2, retain_min=1, protect_streams=False, runtime=bench.runtime
    )
    assert bench.snapshots.ids() == [5, 6]
    for name, content in copies.items():
        bench.storage.write(f"manifest/{name}", content)
    bench.storage.write(snapshot_path(again), encode_snapshot(beside))
    bench.storage.write("snapshot/EARLIEST", str(again).encode())
    expire_snapshots(
        bench.table, retain_max=2, retain_min=1, protect_streams=False, runtime=bench.runtime
    )
    assert bench.snapshots.ids() == [5, 6]
    for tag in read_tags(bench.storage).values():
        assert {
            one.file_name for one in bench.manifests.base_and_delta(tag)
        } <= bench.metadata_files()


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_two_tags_of_one_id_keep_the_files_of_both(names: str) -> None:
    """A writer that does not publish atomically replaced the snapshot between the two tags."""
    bench = Bench(options={"manifest.merge-min-count": "3"})
    for number in range(2):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    create_tag(bench.table, names[0], 2, runtime=bench.runtime)
    bench.storage.delete("snapshot/snapshot-2")
    bench.storage.write("snapshot/LATEST", b"1")
    bench.committer().commit(bench.request(0, [bench.message("again")], user="another"))
    create_tag(bench.table, names[1], 2, runtime=bench.runtime)
    for number in range(2, 5):
        bench.committer().commit(
            bench.request(number, [bench.message(f"f{number}")], user="another")
        )
        expire_snapshots(
            bench.table, retain_max=1, retain_min=1, protect_streams=False, runtime=bench.runtime
        )
    tags = read_tags(bench.storage).values()
    assert len({tag.nonce for tag in tags}) == 2
    for tag in tags:
        manifests = {meta.file_name for meta in bench.manifests.base_and_delta(tag)}
        assert manifests <= bench.metadata_files()


@pytest.mark.parametrize("between", [0, 1], ids=["next below", "one between"])
def test_the_tag_of_a_replaced_snapshot_hides_from_no_expiry_what_the_tag_below_needs(
    between: int,
) -> None:
    """The replaced snapshot had removed all files, and merged the manifests. The one in its place
    did neither.
    """
    bench = Bench(options={"manifest.merge-min-count": "3"})
    for number in range(2):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    create_tag(bench.table, "below", runtime=bench.runtime)
    for number in range(between):
        bench.committer().commit(bench.request(number, [bench.message(f"between-{number}")]))
    bench.committer().commit(bench.overwriting(2, user="replaced"))
    create_tag(bench.table, "replaced", runtime=bench.runtime)
    bench.storage.delete(f"snapshot/snapshot-{3 + between}")
    bench.storage.write("snapshot/LATEST", f"{2 + between}".encode())
    bench.committer().commit(bench.request(0, [bench.message("java")], user="java"))
    bench.committer().commit(bench.overwriting(1, user="java"))
    for number in range(2, 5):
        bench.committer().commit(bench.request(number, [bench.message(f"j{number}")], user="java"))
        expire_snapshots(
            bench.table, retain_max=1, retain_min=1, protect_streams=False, runtime=bench.runtime
        )
    below = read_tags(bench.storage)["below"]
    manifests = {meta.file_name for meta in bench.manifests.base_and_delta(below)}
    assert manifests <= bench.metadata_files()
    assert bench.names_of(below) == ["f0", "f1"]
    for name in ("f0", "f1"):
        assert bench.storage.exists(f"bucket-0/{name}")
    assert not bench.storage.exists("bucket-0/java")


def test_deleting_a_tag_beside_a_snapshot_that_was_created_again_leaves_what_later_ones_need() -> (
    None
):
    """The snapshot above the tag's lies beside the lineage, and has none of the files."""
    bench = Bench()
    for number in range(6):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    nothing = bench.storage.read(f"manifest/{bench.snapshots.get(1).base_manifest_list}")
    beside = replace(
        bench.snapshots.get(3),
        base_manifest_list="list-0",
        base_manifest_list_size=len(nothing),
        delta_manifest_list="list-1",
        delta_manifest_list_size=len(nothing),
    )
    create_tag(bench.table, "t", 2, runtime=bench.runtime)
    expire_snapshots(
        bench.table, retain_max=2, retain_min=1, protect_streams=False, runtime=bench.runtime
    )
    for name in ("list-0", "list-1"):
        bench.storage.write(f"manifest/{name}", nothing)
    bench.storage.write("snapshot/snapshot-3", encode_snapshot(beside))
    delete_tag(bench.table, "t", runtime=bench.runtime)
    assert bench.live_names() == [f"f{number}" for number in range(6)]
    for name in bench.live_names():
        assert bench.storage.exists(f"bucket-0/{name}")


def test_two_tags_of_an_id_that_was_replaced_twice_do_not_hide_the_tag_below_from_a_deletion() -> (
    None
):
    """Neither has a file, and the deleted tag above has those of the tag below."""
    bench = Bench()
    for number in range(2):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    create_tag(bench.table, "below", runtime=bench.runtime)
    for name in ("once", "twice"):
        bench.committer().commit(bench.overwriting(2, user=name))
        create_tag(bench.table, name, runtime=bench.runtime)
        bench.storage.delete("snapshot/snapshot-3")
        bench.storage.write("snapshot/LATEST", b"2")
    for number in range(2):
        message = bench.message(f"java-{number}")
        bench.committer().commit(bench.request(number, [message], user="java"))
    create_tag(bench.table, "above", runtime=bench.runtime)
    bench.committer().commit(bench.overwriting(2, user="java"))
    bench.committer().commit(bench.request(3, [bench.message("last")], user="java"))
    expire_snapshots(
        bench.table, retain_max=1, retain_min=1, protect_streams=False, runtime=bench.runtime
    )
    assert sorted(tag.id for tag in read_tags(bench.storage).values()) == [2, 3, 3, 4]
    delete_tag(bench.table, "above", runtime=bench.runtime)
    for name in bench.names_of(read_tags(bench.storage)["below"]):
        assert bench.storage.exists(f"bucket-0/{name}")
    assert not bench.storage.exists("bucket-0/java-1")


def test_tags_expire_when_their_time_is_over() -> None:
    bench = with_options(grown(2), tag_default__time__retained="1 h")
    create_tag(bench.table, "default", runtime=bench.runtime)
    create_tag(bench.table, "long", time_retained=dt.timedelta(hours=2), runtime=bench.runtime)
    bench.clock.advance(HOUR + 1000)
    assert [one.tag for one in expire_tags(bench.table, runtime=bench.runtime)] == ["default"]
    assert tagged_until(
        b'{"tagCreateTime": [2026, 1, 2, 3, 4], "tagTimeRetained": 60.5}'
    ) == dt.datetime(2026, 1, 2, 3, 5, 0, 500_000, dt.timezone.utc)
    assert tagged_until(b"{}") is None
    assert tagged_until(b'{"tagCreateTime": "x", "tagTimeRetained": 1}') is None


def test_an_expired_snapshot_that_a_tag_keeps_can_be_tagged_again() -> None:
    bench = grown(9)
    create_tag(bench.table, "one", 2, runtime=bench.runtime)
    expire(bench, 1)
    create_tag(bench.table, "two", 2, runtime=bench.runtime)
    delete_tag(bench.table, "one", runtime=bench.runtime)
    assert bench.storage.read("tag/tag-two")


def test_a_rollback_reports_whose_batches_are_lost() -> None:
    bench = grown(5)
    dry = rollback_to(bench.table, 2, dry_run=True)
    assert bench.latest().id == 5
    report = rollback_to(bench.table, 2)
    assert report.streams == dry.streams == {"me": 2}
    assert report.snapshots == dry.snapshots == (3, 4, 5)
    assert json.loads(json.dumps(report.to_json()))["snapshots"] == [3, 4, 5]
    bench.audit(["f0", "f1"])
    with pytest.raises(NotFound, match="'none'"):
        rollback_to(bench.table, "none")


def test_long_lived_changelogs_go_with_their_snapshots() -> None:
    bench = grown(3)
    for one in (1, 2, 3):
        bench.storage.write(f"changelog/changelog-{one}", b"{}")
    assert rollback_to(bench.table, 2).changelogs == (3,)
    assert bench.storage.read("changelog/LATEST") == b"2"
    assert len(bench.storage.list_files("changelog", "changelog-")) == 2


@pytest.mark.parametrize(
    ("latest", "earliest"), [(b"999", b"1"), (b"", b"x"), (b"1", b"0"), (b"-1", b"5")]
)
def test_wrong_hints_are_repaired(latest: bytes, earliest: bytes) -> None:
    bench = grown(6)
    expire(bench, 3)
    bench.storage.write("snapshot/LATEST", latest)
    bench.storage.write("snapshot/EARLIEST", earliest)
    assert repair_hints(bench.table, dry_run=True).repaired == (
        "snapshot/LATEST",
        "snapshot/EARLIEST",
    )
    assert bench.storage.read("snapshot/LATEST") == latest
    report = repair_hints(bench.table)
    assert (report.latest, report.earliest) == (6, 4)
    assert bench.storage.read("snapshot/LATEST") == b"6"
    assert bench.storage.read("snapshot/EARLIEST") == b"4"
    assert repair_hints(bench.table).repaired == ()


def test_hints_of_an_empty_table_are_removed() -> None:
    bench = grown(0)
    bench.storage.write("snapshot/LATEST", b"4")
    assert repair_hints(bench.table).repaired == ("snapshot/LATEST",)
    assert bench.storage.list_files("snapshot") == []


def test_a_name_set_never_forgets() -> None:
    names = NameSet()
    for start in range(0, 200_000, 50_000):
        names.add(f"data-{number}" for number in range(start, start + 50_000))
    assert all(f"data-{number}" in names for number in range(0, 200_000, 997))
    assert "data-200000" not in names
    assert "x" not in NameSet()


def test_without_consumers_nothing_is_held_back() -> None:
    assert consumers(MemoryStorage()) == {}


def test_ages_and_times_are_taken_as_text_by_every_call() -> None:
    bench = grown(9)
    bench.clock.advance(HOUR)
    made = dt.datetime.fromtimestamp(bench.snapshots.get(3).time_millis / 1000, dt.timezone.utc)
    for when in ("1 h", "60 min", dt.timedelta(hours=1)):
        assert expire(bench, 9, 1, older_than=when, dry_run=True).snapshots == tuple(range(1, 9))
    for when in (made.isoformat(), made.replace(tzinfo=None).isoformat(), made):
        assert expire(bench, 9, 1, older_than=when, dry_run=True).snapshots == (1, 2)
    create_tag(bench.table, "text", time_retained="90 d", runtime=bench.runtime)
    create_tag(bench.table, "same", time_retained=dt.timedelta(days=90), runtime=bench.runtime)
    until = [tagged_until(bench.storage.read(f"tag/tag-{name}")) for name in ("text", "same")]
    assert until[0] == until[1] is not None


def test_what_is_no_age_is_refused_and_the_table_named() -> None:
    bench = grown(2)
    where = bench.storage.location
    for given in ("soon", "7 moons", 1.5, True):
        with pytest.raises(InvalidOption, match=f"{where}: older_than is .* not an age or a time"):
            expire(bench, older_than=given)
        with pytest.raises(InvalidOption, match=f"{where}: time_retained is .* not an age"):
            create_tag(bench.table, "t", time_retained=given, runtime=bench.runtime)  # type: ignore[arg-type]
    for negative in (
        "-1 d",
        dt.timedelta(microseconds=-1),
    ):  # the tag would be over before it is made
        with pytest.raises(InvalidOption, match=r"time_retained is .* not an age"):
            create_tag(bench.table, "t", time_retained=negative, runtime=bench.runtime)
    assert bench.storage.list_files("tag") == []


def test_errors_of_tags_and_expiry_name_the_table() -> None:
    bench = grown(2)
    refused = [
        lambda: create_tag(bench.table, "a/b", runtime=bench.runtime),
        lambda: delete_tag(bench.table, " ", runtime=bench.runtime),
        lambda: create_tag(bench.table, "t", 77, runtime=bench.runtime),
        lambda: expire(bench, 0),
        lambda: expire(bench, 3, 5),
    ]
    for call in refused:
        with pytest.raises(PaimonStreamError) as raised:
            call()
        assert bench.storage.location in raised.value.message
        assert raised.value.context["table"] == bench.storage.location


def killed(bench: Bench) -> None:
    """An expiry that died after its first delete, that of snapshot 1."""
    fault = Fault(at=1, verb="delete", moment=Moment.AFTER, stop=True)
    with pytest.raises(Killed):
        expire(bench, 1, storage=FaultyStorage(bench.storage, [fault]))
    assert bench.storage.exists("_paimon_stream/expiring.1")


def test_an_expiry_that_was_killed_is_not_finished_in_another_history(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(bench: Bench) -> None:
        bench.storage.write("_paimon_stream/expiring.1", b"half a no")

    def followed_by_another(bench: Bench) -> None:
        other = replace(bench.snapshots.get(2), delta_manifest_list="manifest-list-other")
        bench.storage.write("snapshot/snapshot-2", encode_snapshot(other))

    def followed_by_none(bench: Bench) -> None:
        bench.storage.delete("snapshot/snapshot-2")
        bench.storage.delete("_paimon_stream/expiring.2")

    for change in (broken, followed_by_another, followed_by_none):
        bench = grown(4)
        held = bench.metadata_of(1)
        killed(bench)
        change(bench)
        caplog.clear()
        expire(bench, 9, 9)
        assert "expiry of snapshot 1 was cut short" in caplog.text
        assert not bench.storage.exists("_paimon_stream/expiring.1")
        assert held <= bench.metadata_files()


def test_an_expiry_that_was_killed_before_it_deleted_lists_leaves_no_data_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Their manifests are gone, and before these the data files went. So nobody is warned."""
    bench = Bench(options={"manifest.merge-min-count": "2"}, storage=new_storage())
    for number in range(4):
        name = f"f{number}"
        bench.committer().commit(bench.request(number, [bench.message(name)]))
        message = bench.compaction(*bench.live_names(), into=f"big-{number}")
        bench.committer().commit(bench.request(number, [message], user="compaction"))
        bench.clock.advance(1000)
    fault = Fault(at=1, verb="delete", path="manifest/manifest-list", stop=True)
    with pytest.raises(Killed):
        expire(bench, 1, storage=FaultyStorage(bench.storage, [fault]))
    expire(bench, 1)
    assert "orphans" not in caplog.text
    bench.audit(["big-3"], orphans=True)


def test_an_expiry_that_another_one_overtakes_has_met_no_rollback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at, met = 0, True
    while met:
        at = following(at)
        bench = grown(4)

        def overtake(bench: Bench = bench) -> None:
            bench.committer().commit(bench.request(4, [bench.message("f4")]))
            bench.clock.advance(1000)
            expire(bench, 1)

        storage = Meanwhile(bench.storage, at, overtake)
        assert expire(bench, 1, storage=storage).complete, at
        assert "rollback" not in caplog.text, at
        bench.audit([f"f{number}" for number in range(4 + storage.happened)], orphans=True)
        met = storage.happened


class FromTheNotesOn(Meanwhile):
    """Counts operations from the first note on that is written."""

    noted = False

    def __getattr__(self, name: str) -> object:
        self.noted |= name == "write_hint"
        return super().__getattr__(name) if self.noted else getattr(self.inner, name)


@pytest.mark.parametrize("newer", [0, 1, 2])
def test_what_an_expiry_that_was_killed_left_is_found_although_another_one_has_met_it(
    newer: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It was killed when it had removed the snapshots that the other one was about to remove."""
    at, met = 0, True
    while met:
        at = following(at)
        bench = grown(4)

        def be_killed(bench: Bench = bench) -> None:
            for number in range(4, 4 + newer):
                bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
                bench.clock.advance(1000)
            fault = Fault(at=1, verb="delete", path="manifest/", stop=True)
            with suppress(Killed):
                expire(bench, 1, storage=FaultyStorage(bench.storage, [fault]))

        storage = FromTheNotesOn(bench.storage, at, be_killed)
        expire(bench, 1, storage=storage)
        expire(bench, 1)
        assert "orphans" not in caplog.text, at
        bench.audit([f"f{number}" for number in range(len(bench.live()))], orphans=True)
        assert not bench.storage.list_files(OWN_FOLDER, "expiring"), at
        met = storage.happened


def test_an_expiry_that_stood_still_leaves_the_target_of_a_rollback() -> None:
    """The rollback takes the expiry for one that was killed. Nothing is left of the snapshots
    above.
    """
    at, met = 0, True
    while met:
        at = following(at)
        clock = SimulatedClock()
        bench = grown(5, MemoryStorage(clock=clock))

        def roll_back(bench: Bench = bench, clock: SimulatedClock = clock) -> None:
            clock.advance(600_000)
            bench.clock.advance(600_000)
            rollback_to(bench.table, min(bench.snapshots.ids()), runtime=bench.runtime)

        storage = Meanwhile(bench.storage, at, roll_back)
        expire(bench, 1, storage=storage)
        left = bench.snapshots.ids()
        assert len(left) == 1, at
        bench.audit([f"f{number}" for number in range(left[0])])
        met = storage.happened


@pytest.mark.parametrize("again", [1, 2, 3] if MANY else [2])
def test_an_expiry_that_stood_still_puts_back_what_a_rollback_kept_beside_an_id_created_again(
    again: int,
) -> None:
    """A paused writer has created an expired id again. It is below the target, and no part of the
    table.
    """
    at, met, meetings = 0, True, 0
    while met:
        at += 1 if MANY else 2
        bench, clock = aged(6)
        late = bench.storage.read(snapshot_path(again))

        def roll_back(
            bench: Bench = bench, clock: SimulatedClock = clock, late: bytes = late
        ) -> None:
            ids = bench.snapshots.ids()
            if ids[0] > again:
                bench.storage.put_if_absent(snapshot_path(again), late)
                clock.advance(600_000)
                bench.clock.advance(600_000)
                rollback_to(bench.table, ids[0], runtime=bench.runtime)

        storage = Meanwhile(bench.storage, at, roll_back)
        expire(bench, 1, storage=storage)
        met = storage.happened
        ids = bench.snapshots.ids()
        if ids[-1] < 6:
            meetings += 1
            assert ids[0] == again, at
            assert len(ids) == 2, at
        assert bench.live_names() == [f"f{number}" for number in range(ids[-1])]
    assert meetings > 10


@pytest.mark.parametrize("commits", [0, 2])
@pytest.mark.parametrize("noted", [True, False], ids=["noted", "of an engine that notes nothing"])
def test_an_expiry_that_stood_still_brings_nothing_back_that_a_rollback_to_a_tag_took(
    commits: int, noted: bool
) -> None:
    at, met, meetings = 0, True, 0
    while met:
        at += 1 if MANY else 4
        bench, clock = aged(7)
        create_tag(bench.table, "old", 2, runtime=bench.runtime)
        expire(bench, 3)

        def roll_back(bench: Bench = bench, clock: SimulatedClock = clock) -> None:
            clock.advance(600_000)
            bench.clock.advance(600_000)
            if isinstance(
                tried(lambda: rollback_to(bench.table, "old", runtime=bench.runtime)),
                CommitContended,
            ):
                return  # it sees that the expiry has begun to delete
            if not noted:
                forget_removals(bench.storage)
            for number in range(commits):
                bench.committer().commit(bench.request(20 + number, [bench.message(f"n{number}")]))

        storage = Meanwhile(bench.storage, at, roll_back)
        expire(bench, 1, storage=storage)
        met = storage.happened
        left = bench.snapshots.latest_id() or 0
        meetings += left < 7
        assert left == (7 if left == 7 else 2 + commits), at
        bench.audit(
            [f"f{n}" for n in range(7)]
            if left == 7
            else ["f0", "f1", *(f"n{n}" for n in range(commits))]
        )
    assert meetings > 1


def test_an_expiry_that_stood_still_puts_nothing_into_a_table_that_was_created_again() -> None:
    at, met = 40, True
    while met:
        at += 1 if MANY else 5
        bench = aged(6)[0]

        def create_again(bench: Bench = bench) -> None:
            for path in paths(bench.storage):
                if not path.startswith("schema/"):
                    bench.storage.delete(path)
            bench.clock.advance(600_000)
            bench.committer().commit(bench.request(20, [bench.message("new")]))

        storage = Meanwhile(bench.storage, at, create_again)
        tried(lambda: expire(bench, 1, storage=storage))  # noqa: B023
        met = storage.happened
        assert bench.snapshots.ids() == ([1] if met else [6]), at


def test_an_expiry_goes_on_without_a_note_where_none_can_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = grown(4)
    full = [Fault(at=n, verb="write", path="expiring", error=NoSpace) for n in range(1, 4)]
    assert expire(bench, 1, storage=FaultyStorage(bench.storage, full)).snapshots == (1, 2, 3)
    assert "expires without a note" in caplog.text
    bench.audit([f"f{number}" for number in range(4)], orphans=True)


_ENDS_AT_ONCE = """
import sys, threading
import pyarrow as pa
from paimon_stream import PaimonTable
from paimon_stream.api import table_writing

class Late(table_writing.AfterCommit):
    def _work(self, *args):
        threading.main_thread().join()
        super()._work(*args)

table_writing.AfterCommit = Late
table = PaimonTable.load(sys.argv[1])
table.append(pa.table({"id": pa.array([1], pa.int64())}))
"""


def test_a_process_that_commits_once_and_ends_lets_its_expiry_end(tmp_path: Path) -> None:
    """Otherwise a table to which such processes write would keep every snapshot."""
    options = {f"snapshot.num-retained.{one}": "1" for one in ("min", "max")}
    options["snapshot.expire.execution-mode"] = "async"
    table = PaimonTable.create(str(tmp_path / "db.db" / "t"), [("id", "BIGINT")], options=options)
    table.append(pa.table({"id": pa.array([0], pa.int64())}))
    subprocess.run([sys.executable, "-c", _ENDS_AT_ONCE, table.location], check=True, timeout=900)
    assert [one.id for one in table.snapshots()] == [2]
