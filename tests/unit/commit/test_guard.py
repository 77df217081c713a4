"""Another engine writes the table beside us: who is warned or refused, in which stores, and what is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from paimon_stream.commit.guard import guard_stream
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import UnsupportedTable
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    CommitKind,
    SnapshotId,
    encode_snapshot,
)
from paimon_stream.format.snapshot_marks import NONCE_MARK
from paimon_stream.table.layout import manifest_path
from tests.kits.commits import Bench
from tests.kits.streams import Stream
from tests.kits.trips import TripStorage

GUARD = "paimon-stream.commit.guard"
DAY = 86_400_000


class At(TripStorage):
    """A storage that says that it is elsewhere."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    @property
    def location(self) -> str:
        return self.place


def bench_at(place: str = "s3://bucket/db.db/t") -> Bench:
    return Bench(storage=At(place))


def java_commits(bench: Bench, name: str = "java-1") -> None:
    """Another engine commits: its snapshots have none of our properties."""
    made = bench.committer().commit(bench.request(7, [bench.message(name)], user="java"))
    assert made.snapshot.properties == {}  # type: ignore[union-attr]


def start(bench: Bench, guard: str = "probe") -> None:
    Stream(bench, user="new", query_id="new", checkpoint="/ck/new", options={GUARD: guard}).batch()


def commit(bench: Bench) -> None:
    TableCommit(bench.table, "me", runtime=bench.runtime).commit(1, [bench.message("mine")])


STORES = [
    "s3://bucket/db.db/t",
    "s3a://bucket/db.db/t",
    "oss://bucket/db.db/t",
    "gs://bucket/db.db/t",
    "abfss://box@account.dfs.core.windows.net/db.db/t",
]


@pytest.mark.parametrize("place", STORES)
def test_a_stream_is_warned_once_of_another_engine(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_at(place)
    java_commits(bench)
    stream = Stream(bench)
    stream.batches(3)
    (record,) = [one for one in caplog.records if "another engine" in one.getMessage()]
    said = record.getMessage()
    for part in (
        place,
        "user 'java' made snapshot 1",
        "CommitLost",
        "recommit",
        "strict",
        "only read",
    ):
        assert part in said
    assert ("hierarchical" in said) is place.startswith("abfss")


@pytest.mark.parametrize("release", ["this", "0.1.0"])
def test_java_that_merged_manifests_with_the_properties_of_a_stream_is_another_engine(
    release: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_at()
    start(bench)
    ours, delta = bench.latest(), "manifest-list-java-1"
    copied = dict(ours.properties)
    if release == "0.1.0":
        del copied[NONCE_MARK]
    bench.storage.write(
        manifest_path(delta), bench.storage.read(manifest_path(ours.delta_manifest_list))
    )
    merged = replace(
        ours,
        id=SnapshotId(ours.id + 1),
        delta_manifest_list=delta,
        properties=copied,
        commit_user="java",
        commit_kind=CommitKind.COMPACT,
        commit_identifier=BATCH_IDENTIFIER,
    )
    bench.storage.write(f"snapshot/snapshot-{merged.id}", encode_snapshot(merged))
    commit(bench)
    assert caplog.text.count("user 'java' made snapshot 2") == 1


def test_strict_refuses_before_anything_is_written() -> None:
    bench = bench_at()
    java_commits(bench)
    bench.committer().commit(
        bench.request(
            8, [bench.message("ours")], user="we", properties={"paimon-stream.version": "1"}
        )
    )
    with pytest.raises(
        UnsupportedTable, match=r"user 'java' made snapshot 1, 0 min ago.*Nothing"
    ) as caught:
        start(bench, "strict")
    assert (caught.value.context["user"], caught.value.context["snapshot"]) == ("java", 1)
    assert bench.snapshots.ids() == [1, 2]


@pytest.mark.parametrize("work", [start, commit], ids=["stream", "commit"])
def test_a_commit_is_warned_if_the_newest_snapshot_is_of_another_engine(
    work: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_at()
    java_commits(bench)
    work(bench)
    assert caplog.text.count("another engine writes") == 1


@pytest.mark.parametrize("guard", ["probe", "strict"])
def test_without_another_engine_nothing_is_said(
    guard: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_at()
    start(bench, guard)
    commit(bench)
    TableCommit(bench.table, "me", runtime=bench.runtime).truncate()
    Stream(bench, user="other", options={GUARD: guard}, query_id="o", checkpoint="/ck/o").batches(2)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("place", "guard", "age"),
    [
        ("/data/db.db/t", "strict", 0),
        ("memory://t", "strict", 0),
        ("s3://bucket/db.db/t", "trust", 0),
        ("s3://bucket/db.db/t", "strict", 8 * DAY),
    ],
    ids=["local", "memory", "trust", "long ago"],
)
def test_where_another_engine_does_no_harm_nothing_is_said(
    place: str, guard: str, age: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_at(place)
    java_commits(bench)
    bench.clock.advance(age)
    start(bench, guard)
    assert "another engine" not in caplog.text


def test_only_the_last_twenty_snapshots_are_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_at()
    java_commits(bench)
    stream = Stream(bench)
    stream.batches(20)
    caplog.clear()
    start(bench)
    assert "another engine" not in caplog.text


def test_it_takes_one_round_trip_however_many_snapshots_there_are() -> None:
    storage = At("s3://bucket/db.db/t")
    bench = Bench(storage=storage)
    Stream(bench).batches(25)
    with storage.counted() as trips:
        guard_stream(bench.table, bench.snapshots, 25, bench.clock)
    assert (trips.trips, trips.requests) == (1, 20)


def test_a_snapshot_that_expires_meanwhile_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_at()
    java_commits(bench)
    java_commits(bench, "java-2")
    bench.storage.delete("snapshot/snapshot-1")
    start(bench)
    assert "snapshot 2" in caplog.text


def test_java_that_copies_our_properties_when_it_merges_manifests_is_not_mistaken_for_a_writer() -> (
    None
):
    bench = bench_at()
    start(bench)
    ours = bench.latest()
    merged = replace(ours, id=SnapshotId(2), commit_user="java", commit_identifier=2**63 - 1)
    bench.storage.write("snapshot/snapshot-2", encode_snapshot(merged))
    Stream(bench, options={GUARD: "strict"}).batch()
