"""The round trips and requests of a stream's batches, as an object store has them
(docs/stores.md).
"""

from __future__ import annotations

import pytest

from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.stream.last_snapshot import protect_last_snapshot
from paimon_stream.stream.steps import for_driver
from paimon_stream.stream.verdicts import Batch, Fresh
from paimon_stream.table.layout import snapshot_path
from tests.kits import steps
from tests.kits.commits import Bench
from tests.kits.streams import Stream
from tests.kits.trips import Trips, TripStorage
from tests.unit.commit.test_guard import At

STEADY = {
    "append": Stream(Bench()),
    "append without a journal": Stream(Bench(), options={"paimon-stream.journal": "false"}),
    "keyed": Stream(Bench(options={"bucket": "1", "write-only": "true"}, keys=("id",))),
    "buckets": Stream(Bench(options={"bucket": "1", "bucket-key": "id"})),
}


def counted(stream: Stream, storage: TripStorage, after: AfterCommit | None = None) -> Trips:
    """One batch with what follows its commit. The kit's data files are not counted: tasks write
    them.
    """
    with storage.counted() as found:
        if stream.writer is None:
            stream.start(storage=storage)
        stream.batch()
        assert stream.writer is not None
        newest = stream.writer.standing.newest
        assert newest is not None
        if after is not None:
            after(stream.writer.table, newest)
    return found


def written(stream: Stream, storage: TripStorage, wait_minutes: int = 0) -> Trips:
    """One batch of two files that the driver writes, and then waits before it commits them."""
    if stream.writer is None:
        stream.start(storage=storage)
    writer, bench = stream.writer, stream.bench
    assert writer is not None
    batch = Batch(batch_id=stream.next_batch, offsets_hash=f"{stream.next_batch}")
    stream.next_batch += 1
    messages = tuple(bench.message(f"d-{batch.batch_id}-{n}") for n in range(2))
    with storage.counted() as found:
        judged = steps.judge(writer, batch)
        assert isinstance(judged.verdict, Fresh)
        buffered = judged.buffered()
        target = for_driver(judged.table, buffered).storage
        for message in messages:
            path = bench.table.layout.data_file(
                message.partition, message.bucket, message.new_files[0].file_name
            )
            bench.storage.delete(path)
            with target.open_output(path) as out:
                out.write(b"data")
        bench.clock.advance(wait_minutes * 60_000)
        report = steps.commit(writer, judged.written(messages, buffered=buffered))
    assert (report.trips, report.requests) == (found.trips, found.kinds)
    return found


def test_what_the_driver_writes_goes_with_the_manifests() -> None:
    stream = Stream(Bench())
    storage = TripStorage(stream.bench.storage)
    for _ in range(2):
        written(stream, storage)
    found = written(stream, storage)
    assert (found.trips, found.requests) == (4, 19), str(found)
    assert [one.trip for one in found.sent if one.path.startswith("bucket-0")] == [2, 2]
    stream.bench.audit([f"d-{batch}-{n}" for batch in range(3) for n in range(2)])


def test_what_the_driver_wrote_long_before_the_commit_is_committed() -> None:
    """The look for files that an orphan cleaner may have removed does not miss those that are still
    held.
    """
    stream = Stream(Bench())
    storage = TripStorage(stream.bench.storage)
    for wait_minutes in (0, 31, 25 * 60):
        written(stream, storage, wait_minutes)
    stream.bench.audit([f"d-{batch}-{n}" for batch in range(3) for n in range(2)])


@pytest.mark.parametrize("what", STEADY)
def test_a_steady_batch_takes_four_trips_however_many_snapshots_there_are(what: str) -> None:
    stream = STEADY[what]
    storage, after = (
        TripStorage(stream.bench.storage),
        AfterCommit(protect=protect_last_snapshot, runtime=stream.bench.runtime),
    )
    for _ in range(3):
        counted(stream, storage, after)
    found = [counted(stream, storage, after) for _ in range(12)]
    assert {one.trips for one in found} == {4}, str(found[0])
    assert {one.requests for one in found} == {found[0].requests}
    assert found[0].requests <= 17, str(found[0])
    assert found[0].kinds["LIST"] == 0


def test_a_batch_after_another_writer_s_commit_takes_few_more() -> None:
    stream = Stream(Bench())
    storage = TripStorage(stream.bench.storage)
    for _ in range(3):
        counted(stream, storage)
    stream.bench.committer().commit(
        stream.bench.request(0, [stream.bench.message("o")], user="you")
    )
    found = counted(stream, storage)
    assert found.trips <= 13, str(found)
    assert found.kinds["LIST"] == 0
    assert counted(stream, storage).trips <= 5, "it looks once more, in case the other goes on"
    assert counted(stream, storage).trips == 4


def first_batch(stream: Stream, storage: TripStorage) -> tuple[Trips, Trips]:
    """What the judgement of a run's first batch sends, and its commit."""
    stream.start(storage=storage)
    writer = stream.writer
    assert writer is not None
    batch = Batch(batch_id=stream.next_batch, offsets_hash=f"{stream.query_id}-{stream.next_batch}")
    with storage.counted() as of_judgement:
        judged = steps.judge(writer, batch)
    assert isinstance(judged.verdict, Fresh)
    message = stream.bench.message(f"first-{batch.batch_id}")
    with storage.counted() as of_commit:
        steps.commit(writer, judged.written((message,)))
    stream.next_batch += 1
    return of_judgement, of_commit


@pytest.mark.parametrize("journal", ["true", "false"])
def test_the_first_judgement_of_a_run_is_bounded(journal: str) -> None:
    stream = Stream(Bench(), options={"paimon-stream.journal": journal})
    storage = TripStorage(stream.bench.storage)
    judged, committed = first_batch(stream, storage)
    assert judged.trips <= 8, str(judged)
    assert committed.trips <= 12, str(
        committed
    )  # nothing below a first snapshot proves that it is one
    for grown in (0, 12, 12):
        for _ in range(grown):
            counted(stream, storage)
        judged, committed = first_batch(stream, storage)
        assert judged.trips <= 8, str(judged)
        assert judged.requests <= 22, str(judged)
        assert committed.trips <= 7, str(committed)
        assert committed.requests <= 24, str(committed)


@pytest.mark.parametrize(("others", "most"), [(0, 9), (1, 10), (3, 10)])
def test_the_look_for_other_names_after_batches_without_rows_is_bounded(
    others: int, most: int
) -> None:
    bench = Bench()
    storage = TripStorage(bench.storage)
    sinks = [Stream(bench, user=f"sink-{number}") for number in range(others + 1)]
    for sink in sinks:
        sink.start(storage=storage)
        sink.batches(2)
        sink.batch(0)
        sink.runs = 1
    judged, _ = first_batch(sinks[-1], storage)
    assert judged.trips <= most, str(judged)


def test_the_look_for_other_engines_takes_no_trip_of_its_own() -> None:
    storage = At("s3://bucket/db.db/t")
    stream = Stream(Bench(storage=storage))
    for _ in range(3):
        stream.batches(2)
        judged, _ = first_batch(stream, storage)
        assert judged.trips <= 8, str(judged)


def test_a_run_that_begins_below_many_snapshots_of_others_reads_them_together() -> None:
    stream = Stream(Bench())
    storage = TripStorage(stream.bench.storage)
    counted(stream, storage)
    committer = stream.bench.committer()
    for number in range(40):
        committer.commit(
            stream.bench.request(number, [stream.bench.message(f"o{number}")], user="you")
        )
    judged, _ = first_batch(stream, storage)
    # 8 of them prove that nothing lies beside the lineage: these snapshots name no base.
    assert judged.trips <= 24, str(judged)


@pytest.mark.parametrize("count", [40, 160])
def test_a_run_that_begins_below_many_snapshots_of_this_package_reads_each_once_and_no_manifest(
    count: int,
) -> None:
    stream = Stream(Bench())
    storage = TripStorage(stream.bench.storage)
    others = Stream(stream.bench, user="you", query_id="q2", checkpoint="/ck/b")
    others.batches(count)
    judged, _ = first_batch(stream, storage)
    read = [sent.path for sent in judged.sent if sent.kind == "GET"]
    of_snapshots = [path for path in read if path.startswith("snapshot/snapshot-")]
    assert sorted(of_snapshots) == sorted(map(snapshot_path, range(1, count + 1)))
    assert [path for path in read if path.startswith("manifest/")] == []
