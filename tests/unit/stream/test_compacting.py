"""The compaction behind the batches of a stream: few runs, the same rows, and never a batch that
fails or is there twice.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.api.inspection import writers_of
from paimon_stream.compact.rewrite import DaemonThreads
from paimon_stream.errors import PaimonStreamError, Unavailable, UnsupportedFeature
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.compacted_stream import CompactedStream, Held
from tests.kits.compaction import data_files, live, problems
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.keyed import Change
from tests.kits.newer_fields import add_sequences_everywhere
from tests.kits.params import few
from tests.kits.races import OncePublished
from tests.kits.seeds import examples

pytestmark = pytest.mark.lowest

COLUMNS = [("k", "INT NOT NULL"), ("dt", "STRING NOT NULL"), ("v", "INT")]


def keyed(tmp_path: Path, **options: str) -> PaimonTable:
    made = {"bucket": "1", **options}
    place = str(tmp_path / "db.db" / "t")
    return PaimonTable.create(
        place, COLUMNS, primary_keys=["dt", "k"], partition_keys=["dt"], options=made
    )


def plain(tmp_path: Path, **options: str) -> PaimonTable:
    return PaimonTable.create(str(tmp_path / "db.db" / "t"), COLUMNS, options=options)


def changes(number: int, day: str = "d0") -> list[Change]:
    """Two keys that all batches have, and one of its own."""
    return [("+I", {"k": key, "dt": day, "v": number}) for key in (0, 1, 100 + number)]


def expected(batches: int) -> list[tuple[Any, ...]]:
    return sorted(
        [
            (0, "d0", batches - 1),
            (1, "d0", batches - 1),
            *((100 + n, "d0", n) for n in range(batches)),
        ]
    )


def rows(table: PaimonTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def levels(table: PaimonTable) -> list[int]:
    return sorted(file.meta.level for file in table.files())


def compactions(table: PaimonTable) -> list[Snapshot]:
    return [one for one in table.snapshots() if one.commit_kind.value == "COMPACT"]


def run(stream: CompactedStream, batches: int) -> None:
    for _ in range(batches):
        stream.batch(changes(stream.next_batch))


# -- what it does
# -------------------------------------------------------------------------------------


def test_a_bucket_that_is_written_to_stays_at_few_runs_behind_the_batches(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table)
    for number in range(24):
        stream.batch(changes(number))
        assert len(table.files()) <= 5
    assert rows(table) == expected(24)
    made = compactions(table)
    assert len(made) >= 4
    for one in made:
        behind = next(other for other in table.snapshots() if other.id == one.id - 1)
        assert (one.commit_user, one.commit_identifier) == (
            behind.commit_user,
            behind.commit_identifier,
        )
    assert not problems(table)
    assert data_files(table) >= live(table)


def test_what_is_not_done_within_the_bound_goes_on_beside_the_next_batches(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    run(stream, 7)
    assert not compactions(table)
    assert len(pool.calls) == 1, "a bucket has one unit at a time"
    pool.go_on()
    run(stream, 1)
    (one,) = compactions(table)
    assert one.commit_identifier == 7
    assert levels(table) == [0, 0, 0, 5], "the first five became one, and three have come since"
    assert rows(table) == expected(8)
    pool.at_once = True
    run(stream, 4)
    assert rows(table) == expected(12)
    assert len(table.files()) <= 5


def test_a_batch_without_rows_publishes_what_is_done_under_the_id_of_the_last_batch_with_rows(
    tmp_path: Path,
) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    run(stream, 5)
    pool.go_on()
    assert stream.batch().outcome == "empty"
    (one,) = compactions(table)
    assert one.commit_identifier == 4
    run(stream, 1)
    assert stream.reports[-1].outcome == "committed"
    assert table.latest_snapshot().commit_identifier == 6


@pytest.mark.parametrize(
    "options",
    [
        {"paimon-stream.compact": "off"},
        {"write-only": "true"},
        {"write-only": "true", "paimon-stream.compact": "minor"},
    ],
)
def test_a_table_that_is_left_to_other_jobs_is_not_compacted(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = keyed(tmp_path)
    run(CompactedStream(table, options=options), 7)
    assert not compactions(table)


def test_append_tables_are_compacted_only_if_that_is_asked_for(tmp_path: Path) -> None:
    table = plain(tmp_path)
    stream = CompactedStream(table)
    for number in range(6):
        stream.batch([{"k": number, "dt": "d0", "v": number}])
    assert not compactions(table)
    stream.options = {"paimon-stream.compact": "minor"}
    stream.start()
    for number in range(6, 16):
        stream.batch([{"k": number, "dt": "d0", "v": number}])
    assert len(table.files()) <= 5
    assert sorted(row[0] for row in rows(table)) == list(range(16))
    assert not problems(table)


def test_deleted_rows_of_append_tables_stay_away_when_the_stream_compacts(tmp_path: Path) -> None:
    table = plain(tmp_path, **{"deletion-vectors.enabled": "true"})
    stream = CompactedStream(table, options={"paimon-stream.compact": "minor"})
    for number in range(12):
        stream.batch([{"k": number, "dt": "d0", "v": number}])
        if number % 2:
            assert table.delete(pc.field("k") == number - 1).rows == 1
    assert sorted(row[0] for row in rows(table)) == list(range(1, 12, 2))
    assert compactions(table)
    assert not problems(table)


def test_full_compactions_come_with_every_so_many_commits(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table, options={"full-compaction.delta-commits": "3"})
    run(stream, 7)
    assert [one.commit_identifier for one in compactions(table)] == [2, 5]
    assert levels(table) == [0, 5]


def test_rows_that_are_too_old_go_with_the_compactions_of_a_stream(tmp_path: Path) -> None:
    day, now = 86_400, 1_700_000_000
    old = {"record-level.expire-time": "1 d", "record-level.time-field": "v"}
    table, clock = keyed(tmp_path, **old), SimulatedClock(1000 * now)
    stream = CompactedStream(table, runtime=simulated(1, clock))
    for number in range(5):
        stream.batch(
            [("+I", {"k": number, "dt": "d0", "v": now - day + (60 if number % 2 else -60)})]
        )
    assert [row[0] for row in rows(table)] == [1, 3]
    clock.advance(120_000)
    for number in range(5, 10):
        stream.batch([("+I", {"k": number, "dt": "d0", "v": now})])
    assert [row[0] for row in rows(table)] == [5, 6, 7, 8, 9]
    assert not problems(table)


def test_an_interval_of_full_compactions_is_counted_for_each_bucket(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table, options={"compaction.optimization-interval": "1 h"})
    run(stream, 4)
    assert [one.commit_identifier for one in compactions(table)] == [1], "not at every batch"


def test_only_buckets_that_were_touched_are_looked_at(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    quiet = CompactedStream(table, options={"paimon-stream.compact": "off"}, user="other")
    for number in range(6):
        quiet.batch(changes(number, "quiet"))
    run(CompactedStream(table), 5)
    assert len([file for file in table.files() if file.partition["dt"] == "quiet"]) == 6


def test_no_batch_reads_the_manifests_of_the_table(tmp_path: Path) -> None:
    """From the second batch on, what a batch reads does not grow."""
    table = keyed(tmp_path, **{"manifest.merge-min-count": "1000"})
    storage = FaultyStorage(LocalStorage(table.location))
    stream = CompactedStream(table, storage=storage)
    reads: list[int] = []
    for number in range(30):
        before = len(storage.operations)
        stream.batch(changes(number))
        did = storage.operations[before:]
        reads.append(
            sum(one.verb == "read" and one.path.startswith("manifest/manifest-") for one in did)
        )
    assert compactions(table)
    assert max(reads[1:]) == 0


def test_a_stream_shows_the_first_rows_of_each_batch(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"merge-engine": "first-row"})
    stream = CompactedStream(table)
    for number in range(4):
        run(stream, 1)
        assert rows(table) == sorted(
            [(0, "d0", 0), (1, "d0", 0), *((100 + n, "d0", n) for n in range(number + 1))]
        )
    assert len(compactions(table)) == 4


@pytest.mark.parametrize(
    "option", [{"merge-engine": "first-row"}, {"changelog-producer": "lookup"}]
)
def test_a_stream_that_does_not_compact_refuses_tables_that_need_it(
    tmp_path: Path, option: dict[str, str]
) -> None:
    table = keyed(tmp_path, **option)
    with pytest.raises(UnsupportedFeature, match="nothing compacts it here"):
        run(CompactedStream(table, options={"paimon-stream.compact": "off"}), 1)
    assert not table.snapshots()


class Dying(Held):
    """The process dies when a unit comes."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise Killed


def test_a_stream_writes_the_changelog_of_each_batch_once(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"changelog-producer": "lookup"})
    stream = CompactedStream(table)
    run(stream, 2)
    stream.pool = Dying()
    stream.start()
    with pytest.raises(Killed):
        run(stream, 1)
    assert len(compactions(table)) == 2
    stream.pool = Held(at_once=True)
    stream.start()
    run(stream, 3)
    assert stream.reports[-3].outcome == "already committed"
    assert rows(table) == expected(5)
    made = compactions(table)
    assert [one.commit_identifier for one in made] == [0, 1, 2, 3, 4]
    assert [one.changelog_record_count for one in made] == [3, 5, 5, 5, 5]


# -- others
# -------------------------------------------------------------------------------------------


def test_what_another_compaction_took_is_given_up_and_its_files_go(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    run(stream, 5)
    pool.go_on()
    table.compact(full=True)
    before = data_files(table)
    run(stream, 1)
    assert len(compactions(table)) == 1
    assert stream.counts == {"compactionConflicts": 1}
    assert len(data_files(table)) == len(before), "one file came, and that of the unit went"
    assert rows(table) == expected(6)
    pool.at_once = True
    run(stream, 8)
    assert rows(table) == expected(14)
    assert len(table.files()) <= 5


@pytest.mark.parametrize("days", [1, 2], ids=["all of it", "a part of it"])
def test_what_no_longer_fits_stays_for_the_tag_of_a_compaction_that_was_replaced(
    tmp_path: Path, days: int
) -> None:
    """An engine without a lock compacts one partition at the same time, and replaces the snapshot
    of the stream's compaction.
    """
    table = keyed(tmp_path)
    stream = CompactedStream(table)

    def write_batch(number: int) -> None:
        stream.batch([change for day in range(days) for change in changes(number, f"d{day}")])

    def tag_and_replace() -> None:
        table.create_tag("lost")
        (Path(table.location) / "snapshot" / "snapshot-6").unlink()
        assert table.compact(partitions=[{"dt": "d0"}], full=True).snapshot_id == 6
        other = CompactedStream(table, options={"paimon-stream.compact": "off"}, user="java")
        other.batch(changes(99, "d9"))

    stream.start(storage=OncePublished(LocalStorage(table.location), tag_and_replace, 6))  # type: ignore[arg-type]
    for number in range(5):
        write_batch(number)
    assert len(compactions(table)) == days
    assert stream.counts["failedCompactions" if days == 1 else "compactionConflicts"] == 1
    of_days = [(key, f"d{day}", v) for day in range(days) for key, _, v in expected(5)]
    tagged = [tuple(row.values()) for row in table.to_arrow(tag="lost").to_pylist()]
    assert sorted(tagged) == sorted(of_days)
    assert rows(table) == sorted([*of_days, (0, "d9", 99), (1, "d9", 99), (199, "d9", 99)])
    write_batch(5)
    assert not problems(table)


def test_a_file_that_others_have_compacted_and_expired_is_no_damage(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    run(stream, 5)
    table.compact(full=True)
    expire_snapshots(load_table(LocalStorage(table.location)), 1, 1, protect_streams=False)
    pool.go_on()
    run(stream, 1)
    assert rows(table) == expected(6)


def test_another_run_that_has_begun_keeps_this_one_from_publishing(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    run(stream, 5)
    old, settled = stream.compaction, stream.settled
    assert old is not None and settled is not None
    before = data_files(table)
    pool.go_on()
    assert data_files(table) > before
    stream.start()
    stream.next_batch = 4
    assert stream.batch(changes(4)).outcome == "already committed"
    old.after_batch(replace(settled, changes=None))
    assert not compactions(table)
    assert data_files(table) == before
    run(stream, 1)
    assert rows(table) == expected(6)


# -- ends
# ---------------------------------------------------------------------------------------------


def test_a_run_that_ends_gives_up_what_is_pending_and_removes_its_files(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    run(stream, 5)
    before = data_files(table)
    pool.go_on()
    assert data_files(table) > before
    assert stream.compaction is not None
    stream.compaction.close()
    assert data_files(table) == before
    run(stream, 1)
    assert rows(table) == expected(6)


def test_a_replayed_batch_finds_its_compaction_and_is_not_compacted_again(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table)
    run(stream, 5)
    (one,) = compactions(table)
    assert one.commit_identifier == 4
    files = data_files(table)
    stream.start()
    stream.next_batch = 4
    assert stream.batch(changes(4)).outcome == "already committed"
    assert len(compactions(table)) == 1
    assert data_files(table) == files
    run(stream, 3)
    assert rows(table) == expected(8)
    assert not problems(table)


def test_a_replayed_batch_after_its_first_snapshot_has_expired_is_found(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table)
    run(stream, 5)
    expire_snapshots(load_table(LocalStorage(table.location)), 1, 1, protect_streams=False)
    assert [one.commit_kind.value for one in table.snapshots()] == ["COMPACT"]
    stream.start()
    stream.next_batch = 4
    assert stream.batch(changes(4)).outcome == "already committed"
    run(stream, 1)
    assert rows(table) == expected(6)


def test_a_compaction_that_another_engine_has_replaced_is_no_lost_batch(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table)
    run(stream, 5)
    newest = table.latest_snapshot()
    assert newest.commit_kind.value == "COMPACT"
    path = Path(table.location) / "snapshot" / f"snapshot-{newest.id}"
    path.unlink()  # as if a rename had replaced it
    other = CompactedStream(table, options={"paimon-stream.compact": "off"}, user="java")
    other.batch(changes(99, "d1"))
    assert table.latest_snapshot().id == newest.id
    run(stream, 1)
    assert rows(table) == sorted([*expected(6), (0, "d1", 99), (1, "d1", 99), (199, "d1", 99)])


@pytest.mark.parametrize(
    ("moment", "stop"),
    few(product(Moment, [False, True]), lambda moment, stop: stop == (moment is Moment.AFTER)),
)
def test_wherever_it_fails_no_batch_is_lost_or_doubled(
    tmp_path: Path, moment: Moment, stop: bool
) -> None:
    at, made = 0, keyed(tmp_path)
    run(CompactedStream(made), 4)
    while True:
        at += examples(17, 1)
        table = PaimonTable.load(str(shutil.copytree(made.location, tmp_path / str(at))))
        stream = CompactedStream(table, next_batch=4, runs=1)
        storage = FaultyStorage(
            LocalStorage(table.location), [Fault(at=at, moment=moment, stop=stop)]
        )
        stream.start(storage=storage)
        with contextlib.suppress(Killed, PaimonStreamError):
            run(stream, 1)
        fired = storage.fired
        stream.pool = Held(at_once=True)
        stream.start()
        run(stream, 6 - stream.next_batch)
        assert rows(table) == expected(6)
        assert len({(one.commit_identifier, one.commit_kind) for one in table.snapshots()}) == len(
            table.snapshots()
        )
        assert not [one for one in problems(table) if one.severity == "error"]
        if not stop:
            assert live(table) <= data_files(table)
        if not fired:
            break
    assert at > 20


def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table, runtime=simulated(1))
    run(stream, 4)
    lost = Fault(
        at=1,
        moment=Moment.AFTER,
        verb="put_if_absent",
        path="snapshot/snapshot-6",
        stop=True,
        error=Unavailable,
    )
    stream.start(storage=FaultyStorage(LocalStorage(table.location), [lost]))
    before = data_files(table)
    run(stream, 1)
    assert stream.counts["failedCompactions"] == 1
    assert stream.counts["compactionConflicts"] == 0, "nobody else was there"
    assert stream.writer is not None
    assert stream.writer.standing.conflicts == 0
    assert table.latest_snapshot().commit_kind.value == "COMPACT"
    assert len(data_files(table)) == len(before) + 2
    assert live(table) <= data_files(table)
    stream.start()
    run(stream, 3)
    assert rows(table) == expected(8)


# -- trouble
# ------------------------------------------------------------------------------------------


def test_a_damaged_bucket_rests_and_the_batches_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = keyed(tmp_path)
    stream = CompactedStream(table)
    run(stream, 4)
    next(Path(table.location).rglob("data-*")).write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING):
        run(stream, 30)
    told = [
        one
        for one in caplog.records
        if "compaction" in one.message and "behind a batch failed" in one.message
    ]
    assert 3 <= len(told) <= 5, "after 2, 4, 8 and 16 batches"
    assert "bucket-0" in told[0].message


@pytest.mark.parametrize("make", [keyed, plain])
def test_files_of_a_newer_engine_are_left_as_they_are_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[..., PaimonTable]
) -> None:
    def batch(stream: CompactedStream, number: int) -> None:
        of_keys = changes(number, f"d{number % 2}")
        stream.batch(of_keys if make is keyed else [row for _, row in of_keys])

    table = make(tmp_path, **{"compaction.min.file-num": "2"})
    before = CompactedStream(table, options={"paimon-stream.compact": "off"})
    for number in range(4):
        batch(before, number)
    add_sequences_everywhere(Path(table.location))
    newer = live(table)
    stream = CompactedStream(table, options={"paimon-stream.compact": "minor"}, user="other")
    with caplog.at_level(logging.WARNING):
        for number in range(4, 12):
            batch(stream, number)
    (told,) = caplog.records
    assert "_FILE._WRITE_COLS_SEQUENCES" in told.message and "bucketsLeftAsIs" in told.message
    assert told.message.startswith(f"{table.location}: the stream leaves files of ")
    assert newer <= live(table) and not stream.counts["failedCompactions"]
    if make is keyed:
        assert stream.counts["bucketsLeftAsIs"] == 2 and not compactions(table)
    else:
        assert stream.counts["bucketsLeftAsIs"] == 1 and compactions(table)


def test_a_bucket_that_stays_too_deep_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    with caplog.at_level(logging.WARNING):
        run(stream, 8)
        assert not caplog.records
        run(stream, 4)
    assert len(caplog.records) == 1
    assert "bucket-0 has 9 sorted runs, more than num-sorted-run.stop-trigger (8)" in caplog.text
    pool.go_on()
    pool.at_once = True
    run(stream, 2)
    assert rows(table) == expected(14)


def test_a_batch_waits_for_a_share_of_the_interval_and_no_longer(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool, options={"paimon-stream.compact.max-share": "0.25"})
    clock = stream.runtime.clock
    before = clock.monotonic()
    run(stream, 5)
    took = clock.monotonic() - before
    assert len(pool.calls) == 1, "it has waited in vain"
    assert stream.compaction is not None and stream.settled is not None
    waited = clock.monotonic()
    stream.compaction.after_batch(replace(stream.settled, changes=None))
    assert clock.monotonic() - waited < took


def test_threads_carry_out_what_comes_and_end_when_nothing_is_left() -> None:
    pool = DaemonThreads(2)
    gate = threading.Event()
    first = [pool.submit(gate.wait) for _ in range(2)]
    third, failing = pool.submit(lambda: 3), pool.submit(lambda: 1 // 0)
    given_up = pool.submit(lambda: 4)
    assert given_up.cancel()
    assert not third.done()
    gate.set()
    assert all(one.result() for one in first)
    assert third.result() == 3
    with pytest.raises(ZeroDivisionError):
        failing.result()
    assert pool.submit(lambda: 5).result() == 5


def test_what_the_writer_reports_of_its_last_batch_is_not_that_of_the_compaction(
    tmp_path: Path,
) -> None:
    table = keyed(tmp_path)
    run(CompactedStream(table), 5)
    assert table.latest_snapshot().commit_kind.value == "COMPACT"
    (writer,) = writers_of(load_table(LocalStorage(table.location)))
    assert (writer.batches, writer.snapshots, writer.last_story.rows) == (5, 6, 3)
