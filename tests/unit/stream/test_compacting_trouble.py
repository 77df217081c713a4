"""What is due to a stream's compaction stays due, whatever fails, and its files are removed by
nobody else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from paimon_stream.compact.rewrite import DaemonThreads
from paimon_stream.errors import PaimonStreamError, Unavailable, UnsupportedFeature
from paimon_stream.runtime import simulated
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream import compacting
from tests.kits.compacted_stream import CompactedStream, Held
from tests.kits.compaction import data_files, live
from tests.kits.faults import Fault, FaultyStorage, Moment
from tests.kits.places import following
from tests.unit.stream.test_compacting import changes, expected, keyed, rows, run

pytestmark = pytest.mark.lowest

FULL = {"changelog-producer": "full-compaction"}


class Failing(Held):
    """A pool in which the next `fails` units fail."""

    fails = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self.fails:
            return super().submit(fn, *args, **kwargs)
        self.fails -= 1
        failed: Future[Any] = Future()
        failed.set_exception(Unavailable("planned"))
        return failed


class Closing(Held):
    """A pool during whose next call another thread closes the compaction."""

    stream: CompactedStream | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        stream, self.stream = self.stream, None
        if stream is not None and stream.compaction is not None:
            other = threading.Thread(target=stream.compaction.close)
            other.start()
            other.join()
        return super().submit(fn, *args, **kwargs)


def levels_of(table: PaimonTable, day: str) -> list[int]:
    return sorted(file.meta.level for file in table.files() if file.partition["dt"] == day)


# -- files
# --------------------------------------------------------------------------------------------


def test_a_fork_that_ends_removes_no_file_of_its_parent(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    run(stream, 5)
    pool.go_on()
    child = os.fork()
    if not child:
        try:
            compacting._close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    run(stream, 1)
    assert live(table) <= data_files(table)
    assert rows(table) == expected(6)


def test_a_run_that_is_closed_while_it_plans_publishes_no_file_that_was_removed(
    tmp_path: Path,
) -> None:
    table, pool = keyed(tmp_path), Closing()
    stream = CompactedStream(table, pool=pool)
    run(stream, 5)
    pool.go_on()
    other = CompactedStream(table, options={"paimon-stream.compact": "off"}, user="other")
    for number in range(5):
        other.batch(changes(number, "d1"))
    pool.stream = stream
    stream.batch(changes(5, "d1"))
    assert live(table) <= data_files(table)
    assert len(rows(table)) == 7 + 8


# -- what stays due
# -----------------------------------------------------------------------------------


def test_a_restart_whose_first_batch_has_no_rows_gives_nothing_up(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"merge-engine": "first-row"})
    stream = CompactedStream(table)
    run(stream, 2)
    stream.options = {"write-only": "true"}
    stream.start()
    run(stream, 1)
    stream.options = {}
    stream.start()
    assert stream.batch().outcome == "empty"
    run(stream, 1)
    assert [row[0] for row in rows(table)] == [0, 1, 100, 101, 102, 104]
    assert stream.counts["compactionConflicts"] == 0


def test_a_read_that_fails_once_keeps_no_bucket_invisible(tmp_path: Path) -> None:
    at = behind = 0
    while True:
        at = following(at)
        table = keyed(tmp_path / str(at), **{"merge-engine": "first-row"})
        stream = CompactedStream(table)
        run(stream, 2)
        fault = Fault(at=at, moment=Moment.BEFORE, verb="read", error=Unavailable)
        storage = FaultyStorage(LocalStorage(table.location), [fault])
        stream.start(storage=storage)
        try:
            stream.batch(changes(2, "d1"))
        except PaimonStreamError:
            continue
        if not storage.fired:
            break
        behind += 1
        for number in range(3, 7):
            stream.batch(changes(number, "d2"))
        assert (102, "d1", 2) in rows(table), at
    assert behind > 2


def test_an_unknown_outcome_that_was_not_published_is_tried_again(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"merge-engine": "first-row"})
    stream = CompactedStream(table, runtime=simulated(1))
    run(stream, 2)
    outage = Fault(
        at=1,
        moment=Moment.BEFORE,
        verb="put_if_absent",
        path="snapshot/snapshot-6",
        stop=True,
        error=Unavailable,
    )
    storage = FaultyStorage(LocalStorage(table.location), [outage])
    stream.start(storage=storage)
    stream.batch(changes(2, "d1"))
    assert storage.stopped
    assert (102, "d1", 2) not in rows(table)
    storage._record.stopped = None  # it has passed
    for number in range(3, 7):
        stream.batch(changes(number, "d2"))
    assert (102, "d1", 2) in rows(table)


def test_a_full_compaction_that_failed_is_tried_again_in_full(tmp_path: Path) -> None:
    table, pool = keyed(tmp_path, **FULL), Failing(at_once=True)
    stream = CompactedStream(table, pool=pool)
    run(stream, 2)
    pool.fails = 1
    run(stream, 1)
    assert levels_of(table, "d0") == [0, 5]
    for number in range(3, 7):
        stream.batch(changes(number, "d1"))
    assert levels_of(table, "d0") == [5]


@pytest.mark.parametrize("rows_at_turn", [True, False])
def test_the_turn_of_full_compactions_takes_all_that_was_touched_since_the_last(
    tmp_path: Path, rows_at_turn: bool
) -> None:
    table = keyed(tmp_path, **FULL, **{"full-compaction.delta-commits": "3"})
    stream = CompactedStream(table)
    stream.batch(changes(0, "d0"))
    stream.batch(changes(1, "d1"))
    stream.batch(changes(2, "d1") if rows_at_turn else ())
    assert (levels_of(table, "d0"), levels_of(table, "d1")) == ([5], [5])


def test_a_new_run_knows_what_waits_for_the_turn_of_full_compactions(tmp_path: Path) -> None:
    table = keyed(tmp_path, **FULL, **{"full-compaction.delta-commits": "3"})
    stream = CompactedStream(table)
    stream.batch(changes(0, "d0"))
    stream.start()
    stream.batch(changes(1, "d1"))
    stream.batch(changes(2, "d1"))
    assert levels_of(table, "d0") == [5]


# -- refusals, threads
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", [{"merge-engine": "first-row"}, {"deletion-vectors.enabled": "true"}]
)
def test_a_table_that_needs_a_compaction_and_cannot_be_compacted_is_refused(
    tmp_path: Path, option: dict[str, str]
) -> None:
    table = keyed(tmp_path, **option, **{"lookup.remote-file.enabled": "true"})
    with pytest.raises(UnsupportedFeature, match="Set 'write-only' to 'true'"):
        run(CompactedStream(table), 1)
    assert not table.snapshots()


def test_a_thread_that_could_not_begin_leaves_its_place_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def begins_not(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = DaemonThreads(1)
    with monkeypatch.context() as now:
        now.setattr(threading.Thread, "start", begins_not)
        with pytest.raises(RuntimeError):
            pool.submit(lambda: 1)
    assert pool.submit(lambda: 2).result(timeout=900) == 2
