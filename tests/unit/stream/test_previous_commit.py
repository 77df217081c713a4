"""A snapshot says how the commit before it went, so that a table's history needs no server."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from paimon_stream.api.inspection import History
from paimon_stream.commit.report import Phase
from paimon_stream.stream.batch_summary import phases_of, previous_commit, previous_of
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench
from tests.kits.streams import At, PowerCut, Stream

PREVIOUS = "paimon-stream.previous"


def history(stream: Stream) -> History:
    store = SnapshotStore(stream.bench.storage)
    return History.of(one for one in map(store.find, store.ids()) if one is not None)


def test_a_snapshot_says_how_the_commit_before_it_went() -> None:
    stream = Stream(Bench())
    reports = [stream.batch(rows=3) for _ in range(3)]
    newest, second, first = history(stream)
    assert first.previous == {}
    for entry, report in ((second, reports[0]), (newest, reports[1])):
        assert entry.previous == {
            "batch": report.identifier,
            "attempts": 1,
            **{name: round(millis) for name, millis in report.phases.items()},
        }
    assert {"journal", "stage", "publish"} <= newest.previous.keys() or len(newest.previous) > 4


def test_a_batch_without_rows_a_new_run_and_a_repeated_batch_say_nothing() -> None:
    stream = Stream(Bench())
    stream.batches(2)
    stream.batch(rows=0)
    stream.batch(rows=1)
    assert history(stream)[0].previous == {}
    stream.start(At(Phase.CONFIRMED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch(rows=1)
    stream.start()
    assert stream.batch(rows=1).outcome == "already committed"
    stream.batch(rows=1)
    assert [entry.previous for entry in history(stream)[:2]] == [{}, {}]
    stream.batch(rows=1)
    assert history(stream)[0].previous["batch"] == 5


def test_the_text_is_bounded_and_other_texts_say_nothing() -> None:
    stream = Stream(Bench())
    text = previous_commit(stream.batch(rows=1))[PREVIOUS]
    assert text.startswith("1 batch=0 attempts=1 ")
    assert len(text) < 200
    for wrong in (
        "",
        "2 batch=1",
        "1",
        "1 batch=",
        "1 batch=x",
        "1 batch=1;x",
        "1 " + "a=1 " * 999,
        "1 a=" + "9" * 99,
    ):
        assert previous_of({PREVIOUS: wrong}) == {}
    assert previous_of({PREVIOUS: "1 batch=4 attempts=2 put=17"}) == {
        "batch": 4,
        "attempts": 2,
        "put": 17,
    }


def test_conflicts_of_compactions_are_counted_and_are_no_phase() -> None:
    report = Stream(Bench()).batch(rows=1)
    assert "conflicts" not in previous_of(previous_commit(report))
    failed = previous_commit(replace(report, compact_failed="others came first"), 2)
    found = previous_of(failed)
    assert found["conflicts"] == 3
    assert list(phases_of(found)) == list(report.phases)
    assert previous_commit(None, 2) == previous_commit(replace(report, outcome="empty"), 2) == {}
    # A reader of an earlier release takes what it does not know for a phase of a few milliseconds,
    # up to 20 of all.
    known = re.fullmatch(r"1((?: [\w-]{1,40}=\d{1,19}){1,20})", failed[PREVIOUS])
    assert known is not None and known[1].count("=") <= 14
