"""The first batch of a run: a table that is not the one from before, and a checkpoint that comes from another
table. An operator's decision is asked for once."""

from __future__ import annotations

import pytest

from paimon_stream.commit.observer import Phase
from paimon_stream.errors import TableReplaced
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.table import create_table
from tests.kits.commits import FIELDS, Bench
from tests.kits.streams import At, PowerCut, Stream

CONTINUE = {"paimon-stream.on-table-change": "continue"}


def replaced_under_the_stream(batches: int = 3) -> Stream:
    """A stream whose table was dropped and created again while it worked on a batch, so that it has noted the
    old table's batch in the new table's folder."""
    stream = Stream(Bench())
    stream.batches(batches)

    def drop_and_create() -> None:
        storage = stream.bench.storage
        assert isinstance(storage, MemoryStorage)
        storage.clear()
        stream.bench.clock.advance(5000)
        create_table(storage, FIELDS, runtime=stream.bench.runtime)

    stream.start(At(Phase.WRITTEN, drop_and_create))
    with pytest.raises(TableReplaced):
        stream.batch()
    stream.start()
    with pytest.raises(TableReplaced):
        stream.batch()
    return stream


def entries(stream: Stream) -> list[str]:
    names = (stat.name for stat in stream.bench.storage.list_files(f"_paimon_stream/{stream.user}"))
    return sorted(name for name in names if name.isdigit())


NOTED = pytest.mark.parametrize(
    "earlier", [True, False], ids=["an earlier batch is noted", "this batch is noted"]
)
PHASES = (Phase.JUDGED, Phase.WRITTEN, Phase.JOURNALED, Phase.STAGED, Phase.PUBLISHED)


@NOTED
def test_a_replaced_table_is_asked_about_once_even_where_the_batch_that_continues_is_empty(
    earlier: bool,
) -> None:
    stream = replaced_under_the_stream()
    stream.next_batch += earlier
    stream.options = CONTINUE
    stream.start()
    stream.batch(rows=0)
    assert entries(stream) == []
    stream.options = {}
    stream.start()
    stream.batches(2)
    assert [stream.bench.snapshots.get(one).commit_identifier for one in (1, 2)] == [4 + earlier, 5 + earlier]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.value)
@NOTED
def test_a_replaced_table_is_asked_about_once_even_where_the_run_that_continues_is_killed(
    phase: Phase, earlier: bool
) -> None:
    stream = replaced_under_the_stream()
    stream.next_batch += earlier
    stream.options = CONTINUE
    stream.start(At(phase, stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.options = {}
    stream.start()
    stream.batches(2)
    assert len(stream.bench.live_names()) == 2
    stream.start()
    stream.batch()
    assert len(stream.bench.live_names()) == 3


# -- a checkpoint that comes from another table --------------------------------------------------------


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "begins here" in record.message]


def moved(next_batch: int, **more: object) -> Stream:
    """A stream that begins in a table that another one has written."""
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("other")], user="other"))
    return Stream(bench, next_batch=next_batch, **more)  # type: ignore[arg-type]


def test_a_checkpoint_that_comes_from_another_table_is_reported_with_what_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = moved(6)
    stream.batch()
    (text,) = warned(caplog)
    for part in (
        stream.bench.storage.location,
        "checkpoint /ck/a",
        "batch 6",
        "batches 0 to 5",
        "another table",
    ):
        assert part in text
    stream.batch()
    stream.start()
    stream.batch()
    assert len(warned(caplog)) == 1


def test_a_stream_that_begins_with_batch_0_or_has_been_here_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = moved(0)
    stream.batches(3)
    stream.start()
    stream.batch(rows=0)
    stream.start()
    stream.batch()
    assert warned(caplog) == []


def test_a_stream_that_replaces_the_whole_table_with_each_batch_misses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    moved(6, overwrites=True).batch()
    assert warned(caplog) == []
