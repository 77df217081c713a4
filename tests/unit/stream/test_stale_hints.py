"""A LATEST that names an old snapshot, and rollbacks that are killed or that meet a paused writer:
a running stream, one that starts, and other engines all see the table's newest snapshot.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from paimon_stream.errors import TableRolledBack
from paimon_stream.format.snapshot_json import decode_snapshot, encode_snapshot
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from tests.kits.commits import Bench, java_latest
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.places import following
from tests.kits.streams import Stream


def grown(commits: int, tag_at: int | None = None, expired: int = 0) -> Stream:
    """A stream of some batches, a tag on one of its snapshots, and the oldest snapshots expired."""
    stream = Stream(Bench())
    for number in range(1, commits + 1):
        stream.batch()
        if number == tag_at:
            create_tag(stream.bench.table, "kept", runtime=stream.bench.runtime)
    for number in range(1, expired + 1):
        stream.bench.storage.delete(f"snapshot/snapshot-{number}")
    return stream


def rows(bench: Bench) -> int:
    return bench.latest().total_record_count


def created_again(stream: Stream, snapshot_id: int, content: bytes) -> None:
    """A writer of another engine, paused before its put, creates an expired snapshot again, and the
    hint.
    """
    stream.bench.storage.write(f"snapshot/snapshot-{snapshot_id}", content)
    stream.bench.storage.write("snapshot/LATEST", str(snapshot_id).encode())


def test_a_running_stream_stays_on_the_line_when_an_expired_snapshot_comes_back_with_the_hint() -> (
    None
):
    stream = grown(5)
    late = stream.bench.storage.read("snapshot/snapshot-5")
    stream.batches(15)
    for number in range(1, 11):
        stream.bench.storage.delete(f"snapshot/snapshot-{number}")
    created_again(stream, 5, late)
    stream.batches(3)
    assert stream.bench.snapshots.ids() == [5, *range(11, 24)]
    assert rows(stream.bench) == 230
    assert java_latest(stream.bench.storage) == 23


def test_a_stream_that_starts_beside_such_a_hint_goes_on() -> None:
    stream = grown(5)
    late = stream.bench.storage.read("snapshot/snapshot-5")
    stream.batches(15)
    for number in range(1, 11):
        stream.bench.storage.delete(f"snapshot/snapshot-{number}")
    created_again(stream, 5, late)
    stream.start()
    assert stream.batch().snapshot_id == 21
    assert rows(stream.bench) == 210


def test_at_every_point_where_a_rollback_to_an_expired_tag_is_killed_all_engines_see_the_newest() -> (
    None
):
    fired, at = True, 0
    while fired:
        at = following(at)
        stream = grown(12, tag_at=5, expired=7)
        bench = stream.bench
        storage = FaultyStorage(bench.storage, [Fault(at=at, moment=Moment.AFTER, stop=True)])
        with suppress(Killed):
            rollback_to(bench.on(storage), "kept", runtime=bench.runtime)
        fired = storage.fired
        ids = bench.snapshots.ids()
        assert java_latest(bench.storage) == ids[-1]
        if ids[-1] == 12:
            assert stream.batch().snapshot_id == 13  # in the run that knows snapshot 12
        else:
            with pytest.raises(TableRolledBack):
                stream.batch()
            assert bench.snapshots.ids() == ids
        rollback_to(bench.table, "kept", runtime=bench.runtime)
        assert (bench.snapshots.ids(), java_latest(bench.storage), rows(bench)) == ([5], 5, 50)
    assert at > 10


def test_a_rollback_to_a_tag_brings_back_its_snapshot_over_another_one_that_has_its_id() -> None:
    stream = grown(12, tag_at=5, expired=7)
    bench = stream.bench
    tagged = decode_snapshot(bench.storage.read("tag/tag-kept"), "tag")
    stranger = replace(tagged, delta_manifest_list="manifest-list-of-a-paused-writer-1")
    created_again(stream, 5, encode_snapshot(stranger))
    rollback_to(bench.table, "kept", runtime=bench.runtime)
    assert bench.latest() == tagged
