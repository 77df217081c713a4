"""The state of a stream as `watch` sees it: from the newest snapshots and the checkpoint, with few
requests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_stream.api.streams import STATES, StreamState, StreamWatch
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.stream.batch_summary import BatchSummary
from tests.kits.commits import Bench
from tests.kits.hadoop_files import hadoop_on
from tests.kits.places import emptied
from tests.kits.streams import Stream

MINUTE = 60_000


def stream_of(batches: int, *, every: int = MINUTE, **given: str | None) -> Stream:
    stream = Stream(Bench(), **given)  # type: ignore[arg-type]
    for _ in range(batches):
        stream.batch(rows=10)
        stream.bench.clock.advance(every)
    return stream


def looking(stream: Stream) -> Callable[[], StreamState]:
    watch = StreamWatch(stream.bench.storage)
    return lambda: watch.look(stream.bench.clock.now_millis())


def test_a_stream_that_goes_on_is_well() -> None:
    stream = stream_of(4)
    found = looking(stream)()
    assert (found.state, found.why, found.user, found.batch, found.snapshot) == (
        "well",
        "",
        "me",
        3,
        4,
    )
    assert (found.interval, found.running) == (MINUTE, None)
    assert found.story == BatchSummary(files=1, rows=10, bytes=4, partitions=1, buckets=1)
    assert found.rows_per_second == pytest.approx(10 / 60)
    assert found.previous["batch"] == 2
    phases = {
        key: one
        for key, one in found.previous.items()
        if key not in ("batch", "attempts", "judge", "write")
    }
    assert found.commit_millis == sum(phases.values())
    assert found.last_millis == stream.bench.clock.now_millis() - MINUTE


@pytest.mark.parametrize(("every", "silence"), [(1000, 5 * MINUTE), (2 * MINUTE, 10 * MINUTE)])
def test_a_stream_is_silent_after_five_intervals_and_at_least_five_minutes(
    every: int, silence: int
) -> None:
    stream = stream_of(4, every=every)
    look, clock = looking(stream), stream.bench.clock
    clock.advance(silence - every)
    assert look().state == "well"
    clock.advance(1)
    assert look().state == "silent"
    stream.batch(rows=1)
    assert look().state == "well"


def test_a_batch_that_spark_has_planned_and_not_done_is_running_and_then_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path that a stream has recorded is local, whatever Hadoop's default file system is."""
    hadoop_on(tmp_path, "hdfs://127.0.0.1:9", monkeypatch)
    stream = stream_of(3, checkpoint=str(tmp_path))
    look, now = looking(stream), stream.bench.clock.now_millis()
    for folder, last in (("offsets", 3), ("commits", 2)):
        (tmp_path / folder).mkdir()
        for number in range(last + 1):
            (tmp_path / folder / str(number)).write_text("v1\n{}\n{}")
    planned = tmp_path / "offsets/3"
    os.utime(planned, ns=((now - 4000) * 1_000_000,) * 2)
    assert (look().running, look().state) == (4000, "well")
    stream.bench.clock.advance(5 * MINUTE)
    assert (look().running, look().state) == (5 * MINUTE + 4000, "stuck")
    (tmp_path / "commits/3").write_text("v1\n{}")
    assert (look().running, look().state) == (None, "silent")


def test_tables_of_others_have_no_stream() -> None:
    bench = Bench()
    watch = StreamWatch(bench.storage)
    assert (watch.look(0).state, watch.look(0).snapshot) == ("no stream", None)
    bench.committer().commit(bench.request(0, [bench.message("a", rows=1)], user="other"))
    found = watch.look(0)
    assert (found.state, found.snapshot, found.user, found.batch) == ("no stream", 1, None, None)


def test_the_stream_is_found_below_snapshots_of_others() -> None:
    stream = stream_of(2)
    for number in range(5):
        request = stream.bench.request(
            number, [stream.bench.message(f"other-{number}", rows=1)], user="other"
        )
        stream.bench.committer().commit(request)
    assert (looking(stream)().batch, looking(stream)().snapshot) == (1, 2)


def test_a_table_that_vanishes_or_is_damaged_is_unreadable_until_it_is_whole() -> None:
    stream = stream_of(2)
    look, storage = looking(stream), stream.bench.storage
    assert look().state == "well"
    whole = storage.read("snapshot/snapshot-2")
    storage.delete("snapshot/snapshot-2")
    storage.put_if_absent("snapshot/snapshot-2", b"{")
    found = look()
    assert found.state == "unreadable"
    assert "snapshot-2" in found.why
    storage.delete("snapshot/snapshot-2")
    storage.put_if_absent("snapshot/snapshot-2", whole)
    assert look().batch == 1
    emptied(storage)
    assert (look().state, look().why) == ("unreadable", "The table no longer exists.")


def test_after_a_rollback_the_earlier_batch_is_shown() -> None:
    stream = stream_of(4)
    look = looking(stream)
    assert look().batch == 3
    rollback_to(stream.bench.table, 2, runtime=stream.bench.runtime)
    assert look().batch == 1


def test_after_a_rollback_nothing_is_remembered_of_what_it_removed() -> None:
    stream = stream_of(6)
    look, bench = looking(stream), stream.bench
    assert look().batch == 5
    rollback_to(bench.table, 1, runtime=bench.runtime)
    for number in range(6):
        request = bench.request(number, [bench.message(f"other-{number}", rows=1)], user="other")
        bench.committer().commit(request)
    assert (look().batch, look().snapshot) == (0, 1)


def test_two_sinks_of_one_query_are_two_streams() -> None:
    bench = Bench()
    streams = [Stream(bench, user=user) for user in ("me_a", "me_b")]
    for _ in range(6):
        for stream in streams:
            stream.batch(rows=10)
            bench.clock.advance(500)
        bench.clock.advance(60 * MINUTE)
    found = StreamWatch(bench.storage).look(bench.clock.now_millis() - 50 * MINUTE)
    assert (found.state, found.interval, found.user) == ("well", 60 * MINUTE + 1000, "me_b")


def test_a_stream_without_a_query_id_is_a_stream() -> None:
    stream = stream_of(3, query_id=None, checkpoint=None)
    assert (looking(stream)().state, looking(stream)().batch) == ("well", 2)


@pytest.mark.parametrize(("others", "batch"), [(13, 1), (600, None)])
def test_a_stream_below_many_snapshots_of_others_is_silent(others: int, batch: int | None) -> None:
    stream = stream_of(2)
    look, bench = looking(stream), stream.bench
    committer = bench.committer()
    for number in range(others):
        committer.commit(
            bench.request(number, [bench.message(f"other-{number}", rows=1)], user="other")
        )
    assert (look().state, look().batch) == ("silent" if batch is None else "well", batch)
    bench.clock.advance(10 * MINUTE)
    assert (look().state, look().batch) == ("silent", batch)


def test_a_look_reads_what_is_new_and_little_else() -> None:
    stream = stream_of(30)
    meter, look = stream.bench, looking(stream)
    look()
    reads: list[str] = []
    storage = meter.storage
    real = storage.read
    watch = StreamWatch(storage)
    watch.look(meter.clock.now_millis())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(storage),
            "read",
            lambda self, path, *more: (reads.append(path), real(path, *more))[1],
        )
        watch.look(meter.clock.now_millis())
        assert len(reads) <= 2
        stream.batch(rows=1)
        reads.clear()
        watch.look(meter.clock.now_millis())
        assert {path for path in reads if path.startswith("snapshot/snapshot-")} <= {
            f"snapshot/snapshot-{number}" for number in (30, 31, 32)
        }


def test_the_worst_states_come_first() -> None:
    assert STATES[0] == "unreadable"
    assert STATES[-2:] == ("well", "no stream")
