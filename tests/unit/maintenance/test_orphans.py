"""Orphans: which files are deleted, which never are, and when orphan removal refuses to work."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from paimon_stream.commit.checks import LONGEST_UNCHECKED_MILLIS
from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CommitContended,
    CorruptMetadata,
    DeletedFiles,
    InvalidOption,
    NoSpace,
    PaimonStreamError,
    PermissionDenied,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import encode_snapshot
from paimon_stream.maintenance.branches import create_branch
from paimon_stream.maintenance.orphans import LEAST_AGE, OrphanReport, remove_orphan_files
from paimon_stream.runtime import Runtime, SimulatedClock, simulated
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.journal import Journal, JournalEntry
from tests.kits.commits import Bench, data_file
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.places import following
from tests.kits.races import Meanwhile
from tests.kits.streams import At, Stream

DAY = 24 * 3_600_000
UUID = "0dd4ab1c-93c5-4e11-b25c-e479a52e19c8"
LITTER = (
    "bucket-0/litter.parquet",
    "manifest/manifest-litter-0",
    "manifest/.manifest-x-0.1234.tmp",
    "index/index-litter-0",
    "statistics/stat-litter-0",
    "snapshot/.snapshot-9.1234.tmp",
    "changelog/.changelog-9.1234.tmp",
    "_paimon_stream/clock.1234",
    "_paimon_stream/clock-1234",
    "_paimon_stream/me/.7.1234.tmp",
    f".marker.{UUID}.tmp",
    f"schema/.schema-1.{UUID}.tmp",
    f"tag/.tag-x.{UUID}.tmp",
    f"consumer/.{UUID}.tmp",
)
FOREIGN = (
    "schema/.schema-1.1234.tmp",
    f"schema/schema-1.{UUID}.tmp",
    f"mine/.data.{UUID}.tmp",
    "schema/notes",
    "tag/notes",
    "consumer/consumer-x",
    "service/primary-key-lookup",
    "mine/data.parquet",
    "README",
    "_paimon_stream/me/claim-1",
    "_paimon_stream/notes",
    "dt=1/bucket-0/not-a-partition-of-this-table",
)


@dataclass
class Scene:
    """A table whose files are as old as the simulated clock says."""

    options: dict[str, str] = field(default_factory=dict)
    partitioned: bool = False
    hour: int = 0

    def __post_init__(self) -> None:
        self.clock = SimulatedClock()
        self.runtime: Runtime = simulated(3, self.clock)
        self.storage = MemoryStorage(clock=self.clock)
        self.bench = Bench(options=self.options, partitioned=self.partitioned, storage=self.storage)

    def commit(self, *names: str, user: str = "me", storage: Storage | None = None) -> None:
        messages = [self.bench.message(name, dt="a") for name in names]
        number = len(self.bench.snapshots.ids())
        self.bench.committer(storage).commit(self.bench.request(number, messages, user=user))

    def litter(self, *paths: str) -> None:
        for path in paths:
            self.storage.write(path, b"litter")

    def wait(self, millis: int = 2 * DAY) -> None:
        self.clock.advance(millis)

    def clean(self, storage: Storage | None = None, **more: object) -> OrphanReport:
        more = {"dry_run": False, **more}
        return remove_orphan_files(
            self.bench.on(storage),
            runtime=self.runtime,
            **more,  # type: ignore[arg-type]
        )

    def all_files(self) -> set[str]:
        """Every file there is, hidden ones too."""
        found: set[str] = set()
        folders = [""]
        while folders:
            folder = folders.pop()
            folders += [f"{folder}/{one}".lstrip("/") for one in self.storage.list_folders(folder)]
            for prefix in ("", "."):
                found |= {stat.path for stat in self.storage.list_files(folder, prefix)}
        return found


def grown(**how: object) -> Scene:
    scene = Scene(**how)  # type: ignore[arg-type]
    for number in range(4):
        scene.commit(f"live-{number}")
    return scene


def test_litter_of_every_kind_goes_and_everything_else_stays() -> None:
    scene = grown()
    create_branch(scene.bench.table, "b")
    kept = scene.all_files()
    of_branch = f"branch/branch-b/tag/.tag-x.{UUID}.tmp"
    scene.litter(*LITTER, of_branch, *FOREIGN)
    scene.wait()
    report = scene.clean()
    assert set(report.paths) == {*LITTER, of_branch}
    assert scene.all_files() == kept | set(FOREIGN)
    kinds = {
        "data": 1,
        "manifest": 2,
        "index": 1,
        "statistics": 1,
        "snapshot": 1,
        "changelog": 1,
        "stream": 3,
        "temporary": 5,
    }
    assert dict(report.files) == kinds
    assert report.bytes == 6 * (len(LITTER) + 1)
    assert report.failed == 0
    scene.bench.audit([f"live-{n}" for n in range(4)], orphans=True)


def test_a_file_directly_in_a_partition_does_not_make_its_folder_a_skipped_one() -> None:
    scene = grown(partitioned=True)
    for path in ("dt=x/_SUCCESS", "dt=x/bucket-01/notes"):
        scene.storage.write(path, b"mine")
    scene.clock.advance(2 * DAY)
    report = remove_orphan_files(scene.bench.table, dry_run=False, runtime=scene.runtime)
    assert (report.count, report.skipped) == (0, ("dt=x/bucket-01",))


def test_a_dry_run_reports_the_same_and_deletes_nothing() -> None:
    scene = grown()
    scene.litter(*LITTER)
    scene.wait()
    before = scene.all_files()
    dry = remove_orphan_files(scene.bench.table, runtime=scene.runtime)
    assert scene.all_files() == before
    assert dry.dry_run
    wet = scene.clean()
    assert (dry.paths, dry.files, dry.sizes) == (wet.paths, wet.files, wet.sizes)
    assert scene.clean().count == 0


def test_a_file_younger_than_the_age_stays() -> None:
    scene = grown()
    scene.litter("bucket-0/old")
    scene.wait(DAY // 2)
    scene.litter("bucket-0/young")
    scene.wait(DAY // 2 + 1)
    assert scene.clean().paths == ("bucket-0/old",)
    assert scene.clean(older_than="1 h").paths == ("bucket-0/young",)


@pytest.mark.parametrize("age", [timedelta(minutes=59), timedelta(0), "59 min", "soon"])
def test_an_age_below_an_hour_is_refused(age: object) -> None:
    scene = grown()
    scene.litter(*LITTER)
    scene.wait()
    before = scene.all_files()
    with pytest.raises(InvalidOption):
        scene.clean(older_than=age)
    assert scene.all_files() == before


def test_a_storage_whose_clock_is_behind_counts_its_own_time() -> None:
    scene = grown()
    scene.litter("bucket-0/litter")
    scene.wait(DAY // 2)
    ahead = SimulatedClock(scene.clock.millis + 2 * DAY)
    report = remove_orphan_files(scene.bench.table, dry_run=False, runtime=simulated(1, ahead))
    assert report.count == 0
    assert report.cutoff_millis == scene.clock.millis - DAY


def test_on_a_full_disk_files_of_a_day_go_without_the_storages_clock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = grown()
    scene.litter("bucket-0/old")
    scene.wait(DAY)
    scene.litter("bucket-0/young")
    scene.wait(DAY // 2)
    full = FaultyStorage(scene.storage, [Fault(at=1, verb="write", path="clock.", error=NoSpace)])
    assert scene.clean(full, older_than=timedelta(hours=2)).paths == ("bucket-0/old",)
    assert "Files younger than a day stay" in caplog.text
    assert scene.clean(older_than=timedelta(hours=2)).paths == ("bucket-0/young",)


def test_a_clock_file_that_cannot_be_removed_does_not_stop_the_cleaner() -> None:
    scene = grown()
    scene.litter("bucket-0/old")
    scene.wait()
    stuck = FaultyStorage(
        scene.storage, [Fault(at=1, verb="delete", path="clock.", error=PermissionDenied)]
    )
    assert scene.clean(stuck).paths == ("bucket-0/old",)


def test_folders_that_were_emptied_go_with_their_partition(tmp_path: Path) -> None:
    scene = grown(partitioned=True)
    scene.litter("dt=gone/bucket-0/litter", "dt=a/bucket-1/litter")
    disk, seconds = LocalStorage(str(tmp_path)), scene.clock.now_millis() / 1000
    for path in scene.all_files():
        disk.write(path, scene.storage.read(path))
        os.utime(tmp_path / path, (seconds, seconds))
    scene.wait()
    report = scene.clean(disk)
    assert set(report.paths) == {"dt=gone/bucket-0/litter", "dt=a/bucket-1/litter"}
    assert report.folders == 3


def test_the_paths_are_bounded_and_the_counts_are_not() -> None:
    scene = grown()
    scene.litter(*(f"bucket-0/litter-{n}" for n in range(20)))
    scene.wait()
    report = scene.clean(max_paths=5)
    assert (len(report.paths), report.count) == (5, 20)
    assert report.to_json()["paths_cut"] is True


def test_names_of_every_beginning_and_length_are_found_in_manifests() -> None:
    scene = Scene()
    names = [f"{chr(97 + n % 26)}{n}-{'x' * (n * 7 % 180)}" for n in range(120)] + [
        "aaaaaaaa",
        "aaaaaaaaa",
        "ä-ß",
    ]
    scene.commit(*names)
    scene.litter("bucket-0/xlive", "bucket-0/aaaaaaa")
    scene.wait()
    assert set(scene.clean().paths) == {"bucket-0/xlive", "bucket-0/aaaaaaa"}
    scene.bench.audit(names)


# -- what refers to files -------------------------------------------------------------------------


def test_files_of_tags_branches_and_long_lived_changelogs_stay() -> None:
    scene = grown()
    first = scene.bench.snapshots.get(1)
    scene.storage.write("tag/tag-v1", encode_snapshot(first))
    scene.storage.write("branch/branch-b/schema/schema-0", scene.storage.read("schema/schema-0"))
    scene.storage.write(
        "branch/branch-b/snapshot/snapshot-1", encode_snapshot(scene.bench.snapshots.get(2))
    )
    scene.storage.write("changelog/changelog-3", encode_snapshot(scene.bench.snapshots.get(3)))
    for number in (1, 2, 3):
        scene.storage.delete(f"snapshot/snapshot-{number}")
    before = scene.all_files()
    scene.wait()
    assert scene.clean().count == 0
    assert scene.all_files() == before
    scene.storage.delete("tag/tag-v1")
    assert {path.partition("/")[0] for path in scene.clean().paths} == {"manifest"}


def entry(scene: Scene, *names: str, abandoned: tuple[str, ...] = ()) -> JournalEntry:
    return JournalEntry(
        batch_id=7,
        messages=tuple(scene.bench.message(name, dt="a") for name in names),
        stage_uuids=("0815",),
        abandoned=abandoned,
        query_id="q",
        run_id="r",
        checkpoint=None,
        query_name=None,
        offsets_hash="h",
        schema_digest="d",
        schema_id=0,
        total_buckets=-1,
        base=None,
        previous=None,
        prepared_millis=0,
    )


def test_what_a_journal_names_stays_however_old_until_the_entry_goes() -> None:
    scene = grown()
    scene.litter("bucket-0/given-up", "manifest/manifest-0815-0", "manifest/manifest-list-0815-1")
    journal = Journal(scene.storage, "me")
    journal.write(entry(scene, "prepared", abandoned=("bucket-0/given-up",)))
    scene.wait(30 * DAY)
    assert scene.clean().count == 0
    journal.remove(7)
    assert set(scene.clean().paths) == {
        "bucket-0/given-up",
        "bucket-0/prepared",
        "manifest/manifest-0815-0",
        "manifest/manifest-list-0815-1",
    }


# -- refusals -------------------------------------------------------------------------------------


def broken_snapshot(scene: Scene) -> None:
    scene.storage.write("snapshot/snapshot-2", b"{")


def broken_tag(scene: Scene) -> None:
    scene.storage.write("tag/tag-x", b"")


def broken_changelog(scene: Scene) -> None:
    scene.storage.write("changelog/changelog-1", b"nothing")


def branch_without_schema(scene: Scene) -> None:
    scene.storage.write("branch/branch-b/snapshot/snapshot-1", b"")


def missing_list(scene: Scene) -> None:
    scene.storage.delete(f"manifest/{scene.bench.snapshots.get(2).base_manifest_list}")


def missing_manifest(scene: Scene) -> None:
    metas = scene.bench.manifests.delta(scene.bench.snapshots.get(3))
    scene.storage.delete(f"manifest/{metas[0].file_name}")


def cut_manifest(scene: Scene) -> None:
    metas = scene.bench.manifests.delta(scene.bench.snapshots.get(3))
    path = f"manifest/{metas[0].file_name}"
    scene.storage.write(path, scene.storage.read(path)[:-7])


def empty_manifest(scene: Scene) -> None:
    path = f"manifest/{scene.bench.latest().delta_manifest_list}"
    metas = scene.bench.manifests.delta(scene.bench.latest())
    scene.storage.write(f"manifest/{metas[0].file_name}", scene.storage.read(path)[:0])


def broken_journal(scene: Scene) -> None:
    scene.storage.write("_paimon_stream/me/7", b"paimon-stream journal 1 sha256:0\n{}\n")


REFUSED = [
    broken_snapshot,
    broken_tag,
    broken_changelog,
    branch_without_schema,
    missing_list,
    missing_manifest,
    cut_manifest,
    empty_manifest,
    broken_journal,
]


@pytest.mark.parametrize("damage", REFUSED)
def test_nothing_is_deleted_where_anything_cannot_be_read(damage: Callable[[Scene], None]) -> None:
    scene = grown()
    scene.litter(*LITTER)
    damage(scene)
    scene.wait()
    before = scene.all_files()
    with pytest.raises(CorruptMetadata):
        scene.clean()
    assert scene.all_files() == before


# -- others at work -------------------------------------------------------------------------------


def expire_all_but_the_newest(scene: Scene) -> None:
    """One more commit that merges all manifests, then everything older expires."""
    scene.commit("newest")
    scene.bench.expire(scene.bench.latest().id - 1)


def commit_the_prepared_files(scene: Scene) -> None:
    """A journalled batch is committed, and two more after it, so that its entry is removed. Then
    all snapshots but the last expire.
    """
    journal = Journal(scene.storage, "me")
    prepared = journal.read(7)
    assert prepared is not None
    bench = scene.bench
    bench.committer().commit(bench.request(7, prepared.messages))
    journal.remove(7)
    scene.commit("next")
    bench.expire(bench.latest().id - 1)


def tag_and_expire(scene: Scene) -> None:
    scene.storage.write("tag/tag-now", encode_snapshot(scene.bench.snapshots.get(2)))
    for number in (1, 2):
        scene.storage.delete(f"snapshot/snapshot-{number}")


def roll_back(scene: Scene) -> None:
    for number in (4, 3):
        scene.storage.delete(f"snapshot/snapshot-{number}")
    scene.commit("after-the-rollback")


@pytest.mark.parametrize(
    "what", [expire_all_but_the_newest, commit_the_prepared_files, tag_and_expire, roll_back]
)
def test_no_live_file_goes_whenever_others_commit_expire_tag_or_roll_back(
    what: Callable[[Scene], None],
) -> None:
    at = 0
    happened = True
    while happened:
        at = following(at)
        scene = grown(options={"manifest.merge-min-count": "2"})
        Journal(scene.storage, "me").write(entry(scene, "prepared"))
        scene.litter("bucket-0/litter")
        scene.wait()

        def meanwhile(scene: Scene = scene) -> None:
            what(scene)

        watched = Meanwhile(scene.storage, at, meanwhile)
        scene.clean(watched)  # type: ignore[arg-type]
        happened = watched.happened
        live = scene.bench.live_names()
        scene.bench.audit(live)
        assert "bucket-0/litter" not in scene.all_files()
        for name in scene.storage.list_files("tag"):
            for meta in scene.bench.metas_of(scene.bench.snapshots.get(3)):
                scene.bench.manifests.read(meta)
            assert name
    assert at > 20


FAULTS = [{"moment": Moment.BEFORE, "stop": False}, {"moment": Moment.AFTER, "stop": True}]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cleaner_that_fails_or_dies_anywhere_leaves_the_table_whole(
    fault: dict[str, object],
) -> None:
    at = 0
    fired = True
    while fired:
        at = following(at)
        scene = grown(options={"manifest.merge-min-count": "2"})
        journal = Journal(scene.storage, "me")
        journal.write(entry(scene, "prepared"))
        kept = scene.all_files()
        scene.litter(*LITTER)
        scene.wait()
        storage = FaultyStorage(scene.storage, [Fault(at=at, **fault)])  # type: ignore[arg-type]
        try:
            report = scene.clean(storage)
            assert report.failed <= 1
        except (PaimonStreamError, Killed):
            pass
        fired = storage.fired
        scene.bench.audit([f"live-{n}" for n in range(4)])
        assert kept <= scene.all_files()
        scene.wait()
        scene.clean()
        assert scene.all_files() == kept
    assert at > 20


def test_a_file_written_again_while_the_cleaner_works_is_looked_at_again() -> None:
    scene = grown()
    scene.litter("bucket-0/litter")
    scene.wait()

    class Rewritten(MemoryStorage):
        """Between the second listing and the delete."""

        def stat(self, path: str) -> FileStat:
            if path == "bucket-0/litter":
                scene.storage.write(path, b"new")
            return scene.storage.stat(path)

    storage = Rewritten(scene.storage.name)
    assert scene.clean(storage).count == 0
    assert scene.storage.read("bucket-0/litter") == b"new"


def test_a_table_that_never_holds_still_is_given_up() -> None:
    scene = grown()
    scene.litter("bucket-0/litter")
    scene.wait()

    class Restless(MemoryStorage):
        """A new tag whenever tags are listed."""

        def list_files(self, folder: str, prefix: str = "") -> list[FileStat]:
            if folder == "tag":
                scene.storage.write(
                    f"tag/tag-{scene.runtime.ids.uuid()}", scene.storage.read("snapshot/snapshot-1")
                )
            return scene.storage.list_files(folder, prefix)

    with pytest.raises(CommitContended):
        scene.clean(Restless(scene.storage.name))
    assert scene.storage.read("bucket-0/litter") == b"litter"


def test_messages_with_changelog_and_compacted_files_are_protected() -> None:
    scene = grown()
    made = [scene.bench.message(name) for name in ("one", "two", "three")]
    message = CommitMessage(
        partition=made[0].partition,
        bucket=0,
        total_buckets=-1,
        changelog_files=made[0].new_files,
        compact_after=made[1].new_files,
        compact_changelog_files=made[2].new_files,
    )
    Journal(scene.storage, "me").write(replace(entry(scene), messages=(message,)))
    scene.wait()
    assert scene.clean().count == 0


@pytest.mark.parametrize(
    "lose",
    [
        lambda scene: [
            scene.storage.delete(f"snapshot/snapshot-{n}") for n in scene.bench.snapshots.ids()
        ],
        lambda scene: [
            scene.storage.delete(one.path) for one in scene.storage.list_files("snapshot")
        ],
        lambda scene: scene.storage.delete(f"snapshot/snapshot-{scene.bench.snapshots.ids()[-1]}"),
    ],
    ids=["all snapshots", "the folder", "the newest snapshot"],
)
def test_nothing_is_deleted_where_snapshots_are_lost(lose: Callable[[Scene], object]) -> None:
    scene = grown()
    scene.wait()
    lose(scene)
    left = scene.all_files()
    for dry_run in (True, False):
        with pytest.raises(CorruptMetadata, match="Snapshots seem to be lost"):
            scene.clean(dry_run=dry_run)
    assert {one for one in scene.all_files() if "clock." not in one} == left


# -- slow writers
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["commit", "append", "overwrite", "stream"])
def test_a_commit_of_files_that_an_orphan_run_has_deleted_publishes_nothing(way: str) -> None:
    scene = grown()
    slow = scene.bench.message("slow", dt="a")
    scene.wait()
    assert scene.clean().paths == ("bucket-0/slow",)
    committing = TableCommit(scene.bench.table, "me", runtime=scene.runtime)
    of_stream = scene.bench.committer(runtime=scene.runtime)
    publish: dict[str, Callable[[], object]] = {
        "commit": lambda: committing.commit(7, [slow]),
        "append": lambda: committing.append((slow,), None),
        "overwrite": lambda: committing.overwrite({}, [slow]),
        "stream": lambda: of_stream.commit(scene.bench.request(7, [slow], user="a stream")),
    }
    with pytest.raises(DeletedFiles, match="1 of its files have been deleted: bucket-0/slow"):
        publish[way]()
    assert scene.bench.snapshots.ids() == [1, 2, 3, 4]
    scene.bench.audit([f"live-{n}" for n in range(4)], orphans=True)


def test_a_slow_batch_of_a_stream_is_refused_before_it_is_published_and_then_written_again() -> (
    None
):
    scene = grown()
    scene.bench.clock, scene.bench.runtime = scene.clock, scene.runtime

    def two_days_pass() -> None:
        scene.wait()
        assert scene.clean().paths == ("bucket-0/stream-0-1",)

    stream = Stream(scene.bench, user="stream")
    stream.start(At(Phase.WRITTEN, two_days_pass))
    with pytest.raises(DeletedFiles, match="have been deleted: bucket-0/stream-0-1"):
        stream.batch()
    stream.start()
    assert stream.batch().outcome == "committed"
    scene.bench.audit([*(f"live-{n}" for n in range(4)), "stream-0-2"], orphans=True)


def test_files_count_as_old_long_before_an_orphan_run_may_delete_them() -> None:
    staged = timedelta(minutes=30)  # the longest time between the check and the snapshot
    assert timedelta(milliseconds=LONGEST_UNCHECKED_MILLIS) + staged == LEAST_AGE


@pytest.mark.parametrize(("minutes", "checked"), [(0, False), (30, False), (31, True), (-60, True)])
def test_only_files_that_may_be_old_are_looked_for(minutes: int, checked: bool) -> None:
    scene = grown()
    messages = [scene.bench.message(name, dt="a") for name in ("one", "two")]
    scene.wait(minutes * 60_000)
    fresh = replace(data_file("fresh"), creation_time=scene.clock.local_millis())
    messages.append(replace(scene.bench.message("fresh", dt="a"), new_files=(fresh,)))
    storage = FaultyStorage(scene.storage)
    committer = scene.bench.committer(storage, runtime=scene.runtime)
    committer.commit(scene.bench.request(9, messages))
    looked_for = [path for verb, path in storage.operations if verb == "stat" and "bucket" in path]
    assert looked_for == (["bucket-0/one", "bucket-0/two"] if checked else [])


def test_a_commit_that_stands_still_for_hours_at_any_operation_leaves_a_table_that_can_be_read() -> (
    None
):
    outcomes = set()
    for at in range(1, 60):
        scene = grown()
        message = scene.bench.message("slow")
        file = scene.bench.table.layout.data_file(message.partition, 0, "slow")

        def clean(scene: Scene = scene, file: str = file) -> None:
            scene.wait(13 * 3_600_000)
            scene.bench.clock.advance(13 * 3_600_000)
            scene.storage.write(
                file, b"data"
            )  # as if it were young: only the commit's own metadata is old
            scene.clean(older_than="1 h")

        beside = Meanwhile(scene.storage, at, clean)
        request = scene.bench.request(9, [message])
        try:
            scene.bench.committer(cast(Storage, beside)).commit(request)
            outcomes.add("committed")
        except PaimonStreamError as failed:
            outcomes.add(type(failed).__name__)
        if not beside.happened:
            break
        live = [name for name in scene.bench.live_names() if name == "slow"]
        scene.bench.audit([*(f"live-{number}" for number in range(4)), *live])
    assert outcomes == {"committed"}
