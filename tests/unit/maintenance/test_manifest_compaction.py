"""Compacting manifests: what is published, what stays the same, and failures at every storage
operation.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream._version import __version__
from paimon_stream.api.inspection import writers_of
from paimon_stream.commit.request import CommitRequest
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind
from paimon_stream.format.snapshot_marks import BASE_MARK, NONCE_MARK, VERSION_MARK
from paimon_stream.maintenance.manifest_compaction import (
    ManifestCompactionReport,
    compact_manifests,
)
from paimon_stream.storage.base import Storage
from tests.kits.commits import Bench
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.places import following
from tests.kits.races import Meanwhile

NAMES = [f"live-{n}" for n in range(3)]


def grown() -> Bench:
    bench = Bench(partitioned=True)
    for number, name in enumerate(NAMES):
        bench.committer().commit(request(bench, number, name))
    return bench


def request(bench: Bench, number: int, name: str) -> CommitRequest:
    properties = {"story": str(number), "paimon-stream.rows": "10", "paimon-stream.query-id": "q"}
    message = bench.message(name, dt=f"p{number % 2}")
    return bench.request(number, [message], properties=properties, watermark=number)


def compact(bench: Bench, storage: Storage | None = None) -> ManifestCompactionReport:
    return compact_manifests(bench.on(storage), runtime=bench.runtime)


def test_all_manifests_become_one_and_the_files_stay() -> None:
    bench = grown()
    report = compact(bench)
    assert (report.manifests_before, report.manifests_after, report.snapshot_id) == (3, 1, 4)
    assert report.bytes_after < report.bytes_before
    bench.audit(NAMES, orphans=True)


def test_the_snapshot_carries_over_what_its_base_had_and_is_of_nobody() -> None:
    bench = grown()
    base = bench.latest()
    compact(bench)
    made = bench.latest()
    assert made.commit_kind is CommitKind.COMPACT
    assert made.commit_identifier == BATCH_IDENTIFIER
    assert made.commit_user not in ("me", base.commit_user)
    assert (made.delta_record_count, made.total_record_count) == (0, base.total_record_count)
    assert bench.manifests.delta(made) == ()
    assert dict(made.properties) == {
        "story": "2",
        VERSION_MARK: __version__,
        NONCE_MARK: made.nonce,
        BASE_MARK: base.nonce,
    }
    assert made.watermark == base.watermark == 2


def test_a_merge_of_manifests_by_any_engine_makes_nobody_a_writer() -> None:
    bench = grown()
    wrote = writers_of(bench.table)
    compact(bench)
    made = bench.latest()
    assert [one.last_story.rows for one in writers_of(bench.table)] == [None, 10]
    java = replace(made, id=5, commit_user="java", properties=bench.snapshots.get(3).properties)
    bench.snapshots.create_snapshot(java)  # Java copies all properties
    first, second, last = writers_of(bench.table)
    assert (first.user, first.query_id, first.last_story.rows) == ("java", None, None)
    assert (second.query_id, last) == (None, wrote[0])


def test_a_dry_run_says_what_a_run_does_and_writes_nothing() -> None:
    bench = grown()
    bench.committer().commit(bench.overwriting(8, [bench.message("new", dt="p0")], dt="p0"))
    before = {
        stat.path
        for folder in ("manifest", "snapshot")
        for stat in bench.storage.list_files(folder)
    }
    dry = compact_manifests(bench.table, runtime=bench.runtime, dry_run=True)
    assert before == {
        stat.path
        for folder in ("manifest", "snapshot")
        for stat in bench.storage.list_files(folder)
    }
    report = compact(bench)
    assert (dry.dry_run, dry.snapshot_id, report.dry_run, report.merged) == (True, None, False, 4)
    assert replace(dry, dry_run=False, snapshot_id=report.snapshot_id) == report
    again = compact_manifests(bench.table, runtime=bench.runtime, dry_run=True)
    assert (again.merged, again.bytes_after) == (0, again.bytes_before)


def test_a_second_time_there_is_nothing_to_do() -> None:
    bench = grown()
    compact(bench)
    again = compact(bench)
    assert again.snapshot_id is None
    assert again.manifests_before == again.manifests_after == 1
    assert bench.latest().id == 4


def test_an_empty_table_stays_empty() -> None:
    bench = Bench()
    assert compact(bench).snapshot_id is None
    assert bench.snapshots.ids() == []


def test_a_stream_goes_on_after_it() -> None:
    bench = grown()
    committer = bench.committer()
    compact(bench)
    committer.commit(request(bench, 3, "next"))
    bench.audit([*NAMES, "next"], orphans=True)


@pytest.mark.parametrize(
    "fault", [{"moment": Moment.BEFORE, "stop": True}, {"moment": Moment.AFTER, "stop": False}]
)
def test_it_is_whole_or_absent_wherever_it_fails(fault: dict[str, object]) -> None:
    at = 0
    fired = True
    while fired:
        at = following(at)
        bench = grown()
        storage = FaultyStorage(bench.storage, [Fault(at=at, **fault)])  # type: ignore[arg-type]
        try:
            report = compact(bench, storage)
            assert report.snapshot_id == bench.latest().id == 4
        except (PaimonStreamError, Killed):
            assert bench.latest().id in (3, 4)
        fired = storage.fired
        bench.audit(NAMES)
        compact(bench)
        bench.audit(NAMES)
        assert len(bench.metas_of(bench.latest())) == 1
    assert at > 10


def test_a_lost_race_is_made_anew_on_the_winner() -> None:
    at = 0
    happened = True
    while happened:
        at += 2
        bench = grown()

        def foreign(bench: Bench = bench) -> None:
            bench.committer().commit(request(bench, 9, "foreign"))

        watched = Meanwhile(bench.storage, at, foreign)
        report = compact(bench, watched)  # type: ignore[arg-type]
        happened = watched.happened
        bench.audit([*NAMES, *(["foreign"] if happened else [])])
        assert report.snapshot_id is not None
        below = bench.snapshots.get(report.snapshot_id - 1)
        made = bench.snapshots.get(report.snapshot_id)
        assert dict(made.properties) == {
            "story": below.properties["story"],
            VERSION_MARK: __version__,
            NONCE_MARK: made.nonce,
            BASE_MARK: below.nonce,
        }
    assert at > 20


def test_a_paused_compaction_whose_snapshot_id_has_expired_leaves_no_snapshot() -> None:
    at = 0
    happened = True
    while happened:
        at = following(at)
        bench = grown()

        def overtake(bench: Bench = bench) -> None:
            if bench.latest().id == 3:  # the compaction has not published yet
                for number in (3, 4, 5):
                    bench.committer().commit(request(bench, number, f"live-{number}"))
                bench.expire(4)

        watched = Meanwhile(bench.storage, at, overtake)
        compact(bench, watched)  # type: ignore[arg-type]
        happened = watched.happened and len(bench.live_names()) > len(NAMES)
        ids = bench.snapshots.ids()
        assert ids == list(range(ids[0], ids[-1] + 1))
        bench.audit([*NAMES, *(["live-3", "live-4", "live-5"] if happened else [])])
    assert at > 20


def test_the_report_is_ready_for_json() -> None:
    made = replace(compact(grown()), location="t").to_json()
    assert made["manifests_before"] == 3 and made["snapshot_id"] == 4
