"""What a commit publishes: counts, inheritance, sequence numbers, options, cost, errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest

from paimon_stream.commit.attempts import RetryBudget
from paimon_stream.commit.committer import Nothing, Outcome, Published
from paimon_stream.commit.report import Phase
from paimon_stream.errors import (
    BucketCountChanged,
    CommitContended,
    CommitUnknown,
    CorruptMetadata,
    DeletedFiles,
    HistoryUnknown,
    InvalidOption,
    NoSpace,
    NotFound,
    PermissionDenied,
    StrictModeViolated,
)
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, encode_snapshot
from paimon_stream.maintenance.hints import repair_hints
from paimon_stream.options import Options
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.table import load_table
from tests.kits.commits import Bench, data_file
from tests.kits.faults import Fault, FaultyStorage

FIXED = {"bucket": "4", "bucket-key": "id"}


def commit(bench: Bench, identifier: int, *names: str, **more: object) -> Snapshot:
    messages = [bench.message(name) for name in names]
    outcome = bench.committer().commit(bench.request(identifier, messages, **more))  # type: ignore[arg-type]
    return snapshot_of(outcome)


def snapshot_of(outcome: Outcome) -> Snapshot:
    assert isinstance(outcome, Published)
    return outcome.snapshot


def rewrite(bench: Bench, snapshot: Snapshot, **changes: object) -> None:
    """Puts other values into a published snapshot, as other engines write them."""
    changed = replace(snapshot, **changes)
    bench.storage.write(f"snapshot/snapshot-{snapshot.id}", encode_snapshot(changed))


# -- the snapshot
# --------------------------------------------------------------------------------------


def test_the_first_snapshot_has_id_one_and_every_field_java_writes() -> None:
    bench = Bench()
    snapshot = commit(bench, 0, "a", properties={"paimon-stream.batch-id": "0"}, watermark=5)
    stored = json.loads(bench.storage.read("snapshot/snapshot-1"))
    assert list(stored) == [
        "version",
        "id",
        "schemaId",
        "baseManifestList",
        "baseManifestListSize",
        "deltaManifestList",
        "deltaManifestListSize",
        "commitUser",
        "commitIdentifier",
        "commitKind",
        "timeMillis",
        "totalRecordCount",
        "deltaRecordCount",
        "watermark",
        "properties",
        "nextRowId",
    ]
    assert (stored["id"], stored["commitKind"], stored["nextRowId"]) == (1, "APPEND", 0)
    assert stored["properties"] == {
        "paimon-stream.batch-id": "0",
        "paimon-stream.nonce": stored["deltaManifestList"],
    }
    assert snapshot == bench.latest()
    assert bench.storage.read("snapshot/LATEST") == b"1"


def test_counts_add_up_over_commits() -> None:
    bench = Bench()
    one = commit(bench, 0, "a", "b")
    two = commit(bench, 1, "c")
    assert (one.delta_record_count, one.total_record_count) == (20, 20)
    assert (two.delta_record_count, two.total_record_count) == (10, 30)


def test_sizes_of_manifest_lists_are_exact() -> None:
    bench = Bench()
    snapshot = commit(bench, 0, "a")
    for name, size in (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ):
        assert bench.storage.stat(f"manifest/{name}").size == size


def test_the_watermark_never_goes_back() -> None:
    bench = Bench()
    marks = [
        commit(bench, n, f"f{n}", watermark=w).watermark for n, w in enumerate([100, 50, None, 200])
    ]
    assert marks == [100, 100, 100, 200]


def test_without_any_watermark_there_is_none() -> None:
    bench = Bench()
    assert commit(bench, 0, "a").watermark is None


def test_index_manifest_and_next_row_id_are_carried_over_and_properties_are_not() -> None:
    bench = Bench()
    rewrite(
        bench,
        commit(bench, 0, "a"),
        index_manifest="index-x",
        next_row_id=17,
        properties={"k": "v"},
    )
    following = commit(bench, 1, "b")
    assert following.index_manifest == "index-x"
    assert following.next_row_id == 17
    assert dict(following.properties) == {}


def test_a_base_without_sizes_and_row_ids_is_built_upon() -> None:
    bench = Bench()
    rewrite(
        bench,
        commit(bench, 0, "a"),
        base_manifest_list_size=None,
        delta_manifest_list_size=None,
        next_row_id=None,
    )
    assert commit(bench, 1, "b").next_row_id == 0
    bench.audit(["a", "b"])


def test_the_schema_id_is_the_newest_one_at_the_commit_not_that_of_the_files() -> None:
    bench = Bench()
    committer = bench.committer()
    bench.storage.write("schema/schema-1", encode_schema(replace(bench.table.schema, id=1)))
    snapshot = snapshot_of(committer.commit(bench.request(0, [bench.message("a")])))
    assert snapshot.schema_id == 1
    assert bench.live()[0].file.schema_id == 0


def test_statistics_are_carried_over_while_they_are_of_the_newest_schema() -> None:
    bench = Bench()
    bench.storage.write("statistics/stat-1", b'{"snapshotId": 1, "schemaId": 0}')
    rewrite(bench, commit(bench, 0, "a"), statistics="stat-1")
    assert commit(bench, 1, "b").statistics == "stat-1"
    bench.storage.write("schema/schema-1", encode_schema(replace(bench.table.schema, id=1)))
    assert commit(bench, 2, "c").statistics is None


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}"])
def test_statistics_that_cannot_be_read_are_dropped(content: bytes | None) -> None:
    bench = Bench()
    if content is not None:
        bench.storage.write("statistics/stat-1", content)
    rewrite(bench, commit(bench, 0, "a"), statistics="stat-1")
    assert commit(bench, 1, "b").statistics is None


# -- empty commits
# -------------------------------------------------------------------------------------


def test_nothing_to_commit_makes_no_snapshot() -> None:
    bench = Bench()
    assert bench.committer().commit(bench.request(0)) == Nothing()
    assert bench.snapshots.ids() == []


@pytest.mark.parametrize(
    "options", [{"snapshot.ignore-empty-commit": "false"}, {"commit.force-create-snapshot": "true"}]
)
def test_table_options_ask_for_snapshots_of_nothing(options: dict[str, str]) -> None:
    bench = Bench(options=options)
    snapshot = snapshot_of(bench.committer().commit(bench.request(0)))
    assert (snapshot.delta_record_count, snapshot.commit_kind) == (0, CommitKind.APPEND)


def test_a_forced_snapshot_of_nothing_carries_the_table_on() -> None:
    bench = Bench()
    commit(bench, 0, "a")
    snapshot = commit(bench, 1, force_snapshot=True)
    assert (snapshot.id, snapshot.delta_record_count, snapshot.total_record_count) == (2, 0, 10)
    commit(bench, 2, "b")
    bench.audit(["a", "b"], orphans=True)


# -- sequence numbers and buckets
# ----------------------------------------------------------------------


def sequences(bench: Bench) -> dict[str, tuple[int, int]]:
    return {
        e.file.file_name: (e.file.min_sequence_number, e.file.max_sequence_number)
        for e in bench.live()
    }


def test_numbers_continue_per_bucket_over_commits_of_several_writers() -> None:
    bench = Bench(options=FIXED)
    mine, theirs = bench.committer(), bench.committer()
    for number, committer in enumerate((mine, theirs, mine, mine, theirs)):
        messages = [bench.message(f"f{number}"), bench.message(f"g{number}", bucket=number % 2 + 1)]
        committer.commit(bench.request(number, messages, user=f"u{number}", renumber=True))
    found = sequences(bench)
    assert [found[f"f{n}"] for n in range(5)] == [(0, 9), (10, 19), (20, 29), (30, 39), (40, 49)]
    assert [found[f"g{n}"] for n in range(5)] == [(0, 9), (0, 9), (10, 19), (10, 19), (20, 29)]


def test_numbers_are_given_anew_after_a_lost_race() -> None:
    bench = Bench(options=FIXED)

    @dataclass
    class Race:
        lost: list[int] = field(default_factory=list)

        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is Phase.STAGED and not self.lost:
                self.lost.append(identifier)
                request = bench.request(3, [bench.message("other")], user="you", renumber=True)
                bench.committer().commit(request)

    outcome = bench.committer(observer=Race()).commit(
        bench.request(0, [bench.message("mine")], renumber=True)
    )
    assert snapshot_of(outcome).id == 2
    assert sequences(bench) == {"other": (0, 9), "mine": (10, 19)}


def test_without_renumbering_files_keep_their_numbers() -> None:
    bench = Bench(options=FIXED)
    commit(bench, 0, "a")
    commit(bench, 1, "b")
    assert sequences(bench) == {"a": (0, 9), "b": (0, 9)}


def test_another_bucket_count_is_refused_by_a_committer_that_knows_the_partition_and_by_a_new_one() -> (
    None
):
    bench = Bench(options=FIXED)
    knows = bench.committer()
    knows.commit(bench.request(0, [bench.message("a")]))
    for number, committer in enumerate((knows, bench.committer())):
        name = f"wrong-{number}"
        with pytest.raises(BucketCountChanged) as caught:
            committer.commit(bench.request(1, [bench.message(name, total=8)]))
        assert (caught.value.context["expected"], caught.value.context["found"]) == (4, 8)
    bench.audit(["a"], orphans=True)


def test_a_bucket_count_that_others_changed_by_an_overwrite_is_seen() -> None:
    bench = Bench(options=FIXED)
    committer = bench.committer()
    committer.commit(bench.request(0, [bench.message("a")]))
    # Another engine overwrites the partition with eight buckets: an empty base list, and its own
    # delta.
    commit(bench, 1, "b")
    other = bench.latest()
    bench.committer()
    empty = bench.snapshots.get(1).base_manifest_list
    message = bench.message("rescaled", total=8)
    with pytest.raises(BucketCountChanged):
        bench.committer().commit(bench.request(2, [message]))
    rewrite(
        bench,
        other,
        base_manifest_list=empty,
        base_manifest_list_size=None,
        delta_manifest_list=empty,
        delta_manifest_list_size=None,
        commit_kind=CommitKind.OVERWRITE,
    )
    assert isinstance(committer.commit(bench.request(2, [message])), Published)


# -- checked commits
# -----------------------------------------------------------------------------------


def test_a_checked_commit_refuses_files_that_are_gone() -> None:
    bench = Bench()
    message = bench.message("a")
    bench.storage.delete("bucket-0/a")
    with pytest.raises(DeletedFiles, match="bucket-0/a"):
        bench.committer().commit(bench.request(0, [message], checked=True))
    assert bench.snapshots.ids() == []
    assert bench.metadata_files() == set()


def test_a_checked_commit_looks_for_extra_files_too() -> None:
    bench = Bench()
    message = bench.message("a")
    with_index = replace(message, new_files=(replace(data_file("a"), extra_files=("a.index",)),))
    with pytest.raises(DeletedFiles, match=r"bucket-0/a\.index"):
        bench.committer().commit(bench.request(0, [with_index], checked=True))


def test_a_checked_commit_refuses_files_that_are_in_the_table() -> None:
    bench = Bench(partitioned=True)
    message = bench.message("a", dt="x")
    bench.committer().commit(bench.request(0, [message]))
    with pytest.raises(DeletedFiles, match="in the table already"):
        bench.committer().commit(bench.request(1, [message], user="you", checked=True))
    bench.audit(["a"], orphans=True)


def test_the_same_file_twice_in_one_commit_is_refused_even_unchecked() -> None:
    bench = Bench()
    message = bench.message("a")
    with pytest.raises(DeletedFiles, match="twice"):
        bench.committer().commit(bench.request(0, [message, message]))


def test_conflict_detection_none_keeps_the_existence_and_bucket_checks_only() -> None:
    bench = Bench(options={**FIXED, "conflict-detection-mode": "none"})
    message = bench.message("a")
    bench.committer().commit(bench.request(0, [message]))
    with pytest.raises(BucketCountChanged):
        bench.committer().commit(bench.request(1, [bench.message("b", total=8)]))
    bench.committer().commit(bench.request(1, [message], checked=True))
    assert bench.live_names() == ["a", "a"]


# -- strict mode
# ---------------------------------------------------------------------------------------


def foreign(bench: Bench, kind: CommitKind) -> None:
    commit(bench, 50, f"foreign-{kind.value}", user="you")
    rewrite(bench, bench.latest(), commit_kind=kind)


def test_strict_mode_refuses_after_a_foreign_compaction() -> None:
    bench = Bench(options={"commit.strict-mode.last-safe-snapshot": "1"})
    commit(bench, 0, "a")
    foreign(bench, CommitKind.COMPACT)
    with pytest.raises(StrictModeViolated) as caught:
        commit(bench, 1, "b")
    assert caught.value.context["snapshot"] == 2


def test_strict_mode_minus_one_starts_at_the_first_commit_and_moves_on() -> None:
    bench = Bench(options={"commit.strict-mode.last-safe-snapshot": "-1"})
    foreign(bench, CommitKind.OVERWRITE)
    committer = bench.committer()
    committer.commit(bench.request(0, [bench.message("a")]))
    foreign(bench, CommitKind.APPEND)
    committer.commit(bench.request(1, [bench.message("b")]))
    foreign(bench, CommitKind.COMPACT)
    with pytest.raises(StrictModeViolated):
        committer.commit(bench.request(2, [bench.message("c")]))


def test_strict_mode_cannot_check_what_has_expired() -> None:
    bench = Bench(options={"commit.strict-mode.last-safe-snapshot": "0"})
    for number in range(3):
        commit(bench, number, f"f{number}")
    bench.expire(2)
    with pytest.raises(HistoryUnknown, match="last-safe-snapshot"):
        commit(bench, 3, "d")


# -- retries
# -------------------------------------------------------------------------------------------


class AlwaysBeaten(FaultyStorage):
    """A storage on which another writer publishes just before each of our puts."""

    def __init__(self, bench: Bench, times: int = 10**9) -> None:
        super().__init__(bench.storage)
        self.bench, self.left, self.count = bench, times, 0

    __slots__ = ("bench", "count", "left")

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        if self.left:
            self.left -= 1
            self.count += 1
            commit(self.bench, 100 + self.count, f"o{self.count}", user="you")
        return super().put_if_absent(path, data)


def test_retries_end_after_commit_max_retries_with_nothing_published_and_nothing_left() -> None:
    bench = Bench(options={"commit.max-retries": "3"})
    beaten = AlwaysBeaten(bench)
    with pytest.raises(CommitContended) as caught:
        bench.committer(beaten).commit(bench.request(0, [bench.message("mine")]))
    assert caught.value.context["attempts"] == beaten.count == 4
    bench.audit(["o1", "o2", "o3", "o4"], orphans=True)


def test_retries_end_after_commit_timeout() -> None:
    bench = Bench(options={"commit.timeout": "100 ms", "commit.max-retries": "1000"})
    with pytest.raises(CommitContended):
        bench.committer(AlwaysBeaten(bench)).commit(bench.request(0, [bench.message("mine")]))
    assert bench.clock.millis - SimulatedClock().millis < 1000


def test_ten_retries_are_the_default() -> None:
    bench = Bench()
    outcome = bench.committer(AlwaysBeaten(bench, 10)).commit(
        bench.request(0, [bench.message("mine")])
    )
    assert isinstance(outcome, Published)
    assert outcome.attempts == 11
    assert bench.live_names().count("mine") == 1
    assert bench.orphans() == set()


def test_waits_double_up_to_the_longest_with_a_fifth_of_jitter() -> None:
    clock = SimulatedClock()
    options = Options({"commit.min-retry-wait": "10 ms", "commit.max-retry-wait": "1 s"})
    retry_budget = RetryBudget.of(options, simulated(1, clock))
    waits = []
    for _ in range(9):
        before = clock.millis
        retry_budget.wait()
        waits.append(clock.millis - before)
    for wait, least in zip(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000], strict=True):
        assert least <= wait < least * 1.2 + 1


def test_a_broken_retry_option_is_refused_when_the_committer_is_made() -> None:
    bench = Bench()
    options = Options(bench.table.schema.options, {"commit.max-retries": "often"})
    with pytest.raises(InvalidOption, match=r"commit\.max-retries"):
        type(bench.committer())(replace(bench.table, options=options))


@dataclass
class Pause:
    """Lets time pass once everything is staged, the first few times."""

    bench: Bench
    times: int
    millis: int = 1_900_000

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.STAGED and self.times:
            self.times -= 1
            self.bench.clock.advance(self.millis)


def test_a_staging_older_than_half_of_the_retained_time_is_made_anew() -> None:
    bench = Bench()
    outcome = bench.committer(observer=Pause(bench, 1)).commit(
        bench.request(0, [bench.message("a")])
    )
    assert isinstance(outcome, Published)
    assert outcome.attempts == 2
    bench.audit(["a"], orphans=True)


@pytest.mark.parametrize(
    ("retained", "millis"), [("1 ms", 50_000), ("1 s", 50_000), ("10 min", 200_000)]
)
def test_a_commit_works_however_soon_snapshots_expire(retained: str, millis: int) -> None:
    bench = Bench(options={"snapshot.time-retained": retained})
    committer = bench.committer(observer=Pause(bench, 10**6, millis))
    for number in range(3):
        outcome = committer.commit(bench.request(number, [bench.message(f"f{number}")]))
        assert isinstance(outcome, Published) and outcome.attempts == 1
    bench.audit(["f0", "f1", "f2"], orphans=True)


@pytest.mark.parametrize(
    ("retained", "millis", "limit"), [("1 ms", 61_000, 60_000), ("10 min", 301_000, 300_000)]
)
def test_a_staging_that_always_ages_is_given_up_with_the_option_that_sets_its_limit(
    retained: str, millis: int, limit: int
) -> None:
    bench = Bench(options={"snapshot.time-retained": retained})
    with pytest.raises(CommitContended) as caught:
        bench.committer(observer=Pause(bench, 10**6, millis)).commit(
            bench.request(0, [bench.message("a")])
        )
    assert caught.value.context["option"] == "snapshot.time-retained"
    assert f"took {millis} ms" in str(caught.value) and f"within {limit} ms" in str(caught.value)
    assert "other writers" not in str(caught.value)
    assert bench.metadata_files() == set()


# -- the base
# --------------------------------------------------------------------------------------------


def test_a_base_that_expires_while_it_is_read_is_exchanged_for_the_newest() -> None:
    bench = Bench()
    for number in range(2):
        commit(bench, number, f"f{number}")

    @dataclass
    class Expire:
        done: bool = False

        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is Phase.BASE_READ and not self.done:
                self.done = True
                for number in range(2, 5):
                    commit(bench, number, f"f{number}")
                bench.expire(4)

    committer = bench.committer(observer=Expire())
    outcome = committer.commit(
        bench.request(9, [bench.message("mine")], user="you", fence=lambda: True)
    )
    assert isinstance(outcome, Published)
    assert outcome.attempts == 2
    bench.audit(["mine", *(f"f{n}" for n in range(5))])


def test_what_expires_between_two_attempts_was_looked_at_by_the_first() -> None:
    bench = Bench()

    @dataclass
    class Busy:
        staged: int = 0

        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is not Phase.STAGED or self.staged == 2:
                return
            self.staged += 1
            commit(bench, self.staged, f"o{self.staged}", user="you")
            if self.staged == 2:
                commit(bench, 3, "o3", user="you")
                bench.expire(1)

    outcome = bench.committer(observer=Busy()).commit(bench.request(0, [bench.message("mine")]))
    assert isinstance(outcome, Published)
    assert (outcome.snapshot.id, outcome.attempts) == (4, 3)
    bench.audit(["mine", "o1", "o2", "o3"])


@pytest.mark.parametrize("anew", [2, 3])
def test_our_last_snapshot_made_anew_by_others_is_read_again(anew: int) -> None:
    bench = Bench(options=FIXED)
    committer = bench.committer()
    for number in range(3):
        committer.commit(bench.request(number, [bench.message(f"f{number}")], renumber=True))
    for number in (3, 2):
        bench.storage.delete(f"snapshot/snapshot-{number}")
    bench.storage.write("snapshot/LATEST", b"1")
    other = bench.committer()
    for number in range(anew):
        request = bench.request(
            number, [bench.message(f"o{number}", rows=1)], user="you", renumber=True
        )
        other.commit(request)
    committer.commit(bench.request(5, [bench.message("mine")], renumber=True))
    bench.audit(["f0", "mine", *(f"o{n}" for n in range(anew))])
    assert sequences(bench)["mine"] == (10 + anew, 19 + anew)


def test_after_others_only_their_own_manifests_are_read() -> None:
    bench = Bench(options=FIXED)
    storage = FaultyStorage(bench.storage)
    committer = bench.committer(storage)
    for number in range(9):
        committer.commit(bench.request(number, [bench.message(f"f{number}")], renumber=True))
    for number in range(2):
        bench.committer().commit(
            bench.request(number, [bench.message(f"o{number}")], user="you", renumber=True)
        )
    committer.commit(bench.request(9, [bench.message("mine")], renumber=True))
    read = [path for verb, path in storage.operations if verb == "read" and "/manifest-" in path]
    assert len([path for path in read if "-list-" not in path]) == 2
    assert sequences(bench)["mine"] == (110, 119)


def test_a_manifest_list_that_is_gone_from_the_newest_snapshot_is_corruption() -> None:
    bench = Bench()
    bench.storage.delete(f"manifest/{commit(bench, 0, 'a').delta_manifest_list}")
    with pytest.raises(CorruptMetadata):
        commit(bench, 1, "b")
    assert bench.snapshots.ids() == [1]


def test_on_top_of_our_own_snapshot_no_manifest_is_read() -> None:
    for options in ({}, FIXED):
        bench = Bench(options=options)
        storage = FaultyStorage(bench.storage)
        committer = bench.committer(storage)
        for number in range(20):
            committer.commit(bench.request(number, [bench.message(f"f{number}")], renumber=True))
        reads = [
            path
            for verb, path in storage.operations
            if verb == "read" and path.startswith("manifest/")
        ]
        assert reads == []


def test_a_commit_on_top_of_our_own_snapshot_costs_so_many_operations() -> None:
    bench = Bench(options=FIXED)
    storage = FaultyStorage(bench.storage)
    committer = bench.committer(storage)
    for number in range(3):
        before = len(storage.operations)
        committer.commit(bench.request(number, [bench.message(f"f{number}")], renumber=True))
    verbs = [verb for verb, _ in storage.operations[before:]]
    assert (verbs.count("write"), verbs.count("put_if_absent"), verbs.count("list_files")) == (
        4,
        1,
        0,
    )
    assert len(verbs) <= 14


# -- failures
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NoSpace, PermissionDenied])
def test_a_storage_that_refuses_the_put_leaves_nothing(error: type[Exception]) -> None:
    bench = Bench()
    storage = FaultyStorage(bench.storage, [Fault(at=1, verb="put_if_absent", error=error)])
    with pytest.raises(error):
        bench.committer(storage).commit(bench.request(0, [bench.message("a")]))
    assert bench.metadata_files() == set()
    assert bench.storage.stat("bucket-0/a").size == 4


def test_an_interrupt_before_the_put_cleans_up_and_one_after_it_does_not() -> None:
    @dataclass
    class Interrupt:
        at: Phase

        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is self.at:
                raise KeyboardInterrupt

    for at, left in ((Phase.STAGED, 0), (Phase.PUBLISHED, 3)):
        bench = Bench()
        with pytest.raises(KeyboardInterrupt):
            bench.committer(observer=Interrupt(at)).commit(bench.request(0, [bench.message("a")]))
        assert len(bench.metadata_files()) == left
        bench.audit(["a"] if left else [])


def test_a_hint_that_cannot_be_written_does_not_fail_the_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    storage = FaultyStorage(bench.storage, [Fault(at=1, verb="write", path="LATEST")])
    outcome = bench.committer(storage).commit(bench.request(0, [bench.message("a")]))
    assert isinstance(outcome, Published)
    assert "LATEST hint" in caplog.text


def test_a_hint_written_too_late_is_put_right_at_once() -> None:
    bench = Bench()

    class Slow(FaultyStorage):
        """Before the hint is written, others commit and expire the snapshot it points to."""

        def write(self, path: str, data: bytes) -> None:
            if path == "snapshot/LATEST" and bench.snapshots.ids() == [1]:
                for number in range(3):
                    commit(bench, number, f"o{number}", user="you")
                bench.expire(3)
            super().write(path, data)

    outcome = bench.committer(Slow(bench.storage)).commit(bench.request(0, [bench.message("mine")]))
    assert isinstance(outcome, Published)
    assert bench.snapshots.ids() == [4]
    assert bench.storage.read("snapshot/LATEST") == b"4"


def test_a_failed_commit_does_not_mislead_the_next_one_of_the_same_committer() -> None:
    bench = Bench(options=FIXED)
    storage = FaultyStorage(bench.storage, [Fault(at=2, verb="put_if_absent", error=NoSpace)])
    committer = bench.committer(storage)
    committer.commit(bench.request(0, [bench.message("a")], renumber=True))
    with pytest.raises(NoSpace):
        committer.commit(bench.request(1, [bench.message("b")], renumber=True))
    committer.commit(bench.request(1, [bench.message("c")], renumber=True))
    assert sequences(bench) == {"a": (0, 9), "c": (10, 19)}
    bench.audit(["a", "c"], orphans=True)


def test_without_a_table_there_is_no_committer() -> None:
    with pytest.raises(NotFound):
        load_table(MemoryStorage())
    bench = Bench()
    bench.storage.clear()  # type: ignore[attr-defined]
    with pytest.raises(NotFound):
        bench.committer()


def test_errors_name_table_user_and_batch() -> None:
    bench = Bench(options={"commit.max-retries": "0"})
    with pytest.raises(CommitContended) as caught:
        bench.committer(AlwaysBeaten(bench)).commit(bench.request(7, [bench.message("mine")]))
    assert caught.value.context["table"] == bench.storage.location
    assert (caught.value.context["user"], caught.value.context["batch"]) == ("me", 7)
    unknown = FaultyStorage(
        bench.storage, [Fault(at=n, verb="put_if_absent") for n in range(1, 20)]
    )
    with pytest.raises(CommitUnknown) as open_end:
        bench.committer(unknown).commit(bench.request(8, [bench.message("mine-8")]))
    assert (open_end.value.context["user"], open_end.value.context["batch"]) == ("me", 8)


def test_a_table_whose_only_snapshot_was_deleted_is_not_begun_again_without_its_rows() -> None:
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("first")]))
    content = bench.storage.read("snapshot/snapshot-1")
    bench.storage.delete("snapshot/snapshot-1")
    request = bench.request(1, [bench.message("second")], seen=None)
    with pytest.raises(
        CorruptMetadata, match=r"LATEST names snapshot 1, but the table has no snapshot"
    ):
        bench.committer().commit(request)
    assert bench.snapshots.ids() == []
    bench.storage.write("snapshot/snapshot-1", content)
    bench.committer().commit(bench.request(1, [bench.message("second")]))
    bench.audit(["first", "second"])
    for path in ("snapshot/snapshot-1", "snapshot/snapshot-2"):
        bench.storage.delete(path)
    repair_hints(bench.table, runtime=bench.runtime)
    bench.committer().commit(bench.request(2, [bench.message("third")]))
    bench.audit(["third"])
