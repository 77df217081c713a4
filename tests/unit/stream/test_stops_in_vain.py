"""Plain kills, rollbacks and decisions after which a stream must not stop, or not once more; and
errors whose advice would lead in a circle.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CheckpointRewound, CommitLost, HistoryUnknown, TableRolledBack
from paimon_stream.maintenance.branches import create_branch, fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from tests.kits.commits import Bench, forget_removals
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.stream.test_branch_streams import of_branch

FIRST, SECOND = "paimon-stream_q1", "paimon-stream_q1_second"
CONTINUE = {"paimon-stream.on-table-change": "continue"}


def others(bench: Bench, count: int = 1) -> None:
    writer = TableCommit(bench.table, "other", runtime=bench.runtime)
    base = bench.snapshots.latest_id() or 0
    for number in range(base, base + count):
        writer.commit(number, [bench.message(f"other-{number}-{bench.runtime.ids.uuid()}")])


def another_engine(bench: Bench) -> None:
    """Another engine commits: its snapshots have none of our properties."""
    others(bench)
    path = f"snapshot/snapshot-{bench.snapshots.latest_id()}"
    node = json.loads(bench.storage.read(path))
    del node["properties"]
    bench.storage.write(path, json.dumps(node).encode())


def expire(bench: Bench, keep: int = 1) -> None:
    bench.clock.advance(3_600_000)
    expire_snapshots(bench.table, keep, keep, 1, protect_streams=False, runtime=bench.runtime)


def killed(stream: Stream, phase: Phase) -> None:
    """The next batch reaches the phase, and the checkpoint does not note it."""
    stream.start(At(phase, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.writer = None


def own_names(bench: Bench, user: str = "me") -> list[str]:
    return [name for name in bench.live_names() if name.startswith(f"{user}-")]


# -- what a rollback took was not replaced by another engine
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "live"])
@pytest.mark.parametrize("noted", [True, False])
def test_a_batch_that_a_rollback_took_is_no_lost_commit_though_another_engine_wrote_above(
    noted: bool, restarted: bool
) -> None:
    """`recommit`, which CommitLost advises, would refuse it, and say to start the query again."""
    bench = Bench()
    stream = Stream(bench)
    stream.batches(5)
    rollback_to(bench.table, 4, runtime=bench.runtime)
    if not noted:
        forget_removals(bench.storage)
    another_engine(bench)
    if restarted:
        stream.start()
    with pytest.raises(TableRolledBack if noted else CommitLost, match="batch 4"):
        stream.batch()
    stream.options = dict(CONTINUE)
    for _ in range(2):
        stream.start()
        stream.batch()
        stream.options = {}


def test_what_a_fast_forward_took_is_no_lost_commit_beside_a_prepared_batch() -> None:
    bench = Bench()
    create_branch(bench.table, "x", runtime=bench.runtime)
    branch = of_branch(bench)
    stream = Stream(bench)
    stream.batches(1)
    killed(stream, Phase.JOURNALED)
    others(branch, 3)
    fast_forward(bench.table, "x", runtime=bench.runtime)
    with pytest.raises(TableRolledBack, match=r"batch 0 was committed, and .* removed snapshot 1"):
        stream.batch()


# -- a prepared batch whose base a rollback took
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("later", [0, 1, 4])
@pytest.mark.parametrize("batches", [0, 2])
def test_a_prepared_batch_stops_no_stream_where_a_rollback_took_only_what_others_wrote(
    batches: int, later: int
) -> None:
    """The stream's own snapshots have expired. The ids may have been used again since."""
    bench = Bench()
    others(bench)
    stream = Stream(bench)
    stream.batches(batches)
    others(bench, 3)
    expire(bench, keep=3)
    killed(stream, Phase.JOURNALED)
    rollback_to(bench.table, 2 + batches, runtime=bench.runtime)
    others(bench, later)
    assert stream.batch().reused
    assert len(own_names(bench)) == batches + 1
    stream.start()
    stream.batch()


def test_a_prepared_batch_stops_no_stream_after_a_rollback_to_a_tag_below_its_base() -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batches(2)
    others(bench)
    create_tag(bench.table, "t", runtime=bench.runtime)
    others(bench)
    expire(bench)
    killed(stream, Phase.JOURNALED)
    others(bench, 3)
    expire(bench)
    assert rollback_to(bench.table, "t", runtime=bench.runtime).streams.keys() == {"other"}
    assert stream.batch().reused
    assert len(own_names(bench)) == 3


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_prepared_batch_stops_where_earlier_ones_may_have_gone_with_its_base(
    journal: str, noted: bool
) -> None:
    """A rollback to a tag below them; or one of another engine, whose depth nothing shows."""
    bench = Bench()
    others(bench)
    create_tag(bench.table, "t", runtime=bench.runtime)
    stream = Stream(bench, options={"paimon-stream.journal": journal})
    stream.batches(2)
    others(bench, 3)
    expire(bench)
    stream.options = {"paimon-stream.on-unknown-history": "continue"}
    killed(stream, Phase.JOURNALED)
    stream.options = {}
    rollback_to(bench.table, "t", runtime=bench.runtime)
    if not noted:
        forget_removals(bench.storage)
    with pytest.raises(TableRolledBack):
        stream.batch()


# -- decisions
# ----------------------------------------------------------------------------


def test_what_another_sink_of_the_query_has_does_not_narrow_what_is_given_up() -> None:
    """The sink that has lost batches is called before the other one, which has not begun then."""
    bench = Bench()
    first, second = Stream(bench, user=FIRST), Stream(bench, user=SECOND)
    for _ in range(4):
        second.batch()
        first.batch()
    assert rollback_to(bench.table, 7, runtime=bench.runtime).streams == {FIRST: 3}
    first.next_batch = 5
    first.options = dict(CONTINUE)
    for _ in range(3):
        first.start()
        first.batch(rows=0)
        first.options = {}


def rewound(bench: Bench, **given: str) -> Stream:
    """A stream whose checkpoint was put back from batch 6 to 2, and which an operator let continue
    with a batch without rows.
    """
    stream = Stream(bench, options=dict(given))
    stream.batches(6)
    stream.next_batch = 2
    stream.start()
    with pytest.raises(CheckpointRewound):
        stream.batch()
    stream.options = {**given, "paimon-stream.on-checkpoint-reset": "continue"}
    stream.start()
    stream.batch(rows=0)
    stream.options = dict(given)
    return stream


@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_rewound_checkpoint_that_was_let_in_is_not_asked_again(journal: str) -> None:
    """Its first batches have no rows, so the table's newest snapshot is that of batch 5."""
    bench = Bench()
    stream = rewound(bench, **{"paimon-stream.journal": journal})
    stream.start()
    stream.batch()
    stream.start()
    stream.batches(2)
    assert len(own_names(bench)) == 6 + 3


@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_checkpoint_that_was_let_in_stops_if_it_is_rewound_again_or_loses_batches(
    journal: str,
) -> None:
    bench = Bench()
    stream = rewound(bench, **{"paimon-stream.journal": journal})
    again = replace(stream, next_batch=1, runs=stream.runs + 10, writer=None)
    with pytest.raises(CheckpointRewound):
        again.batch()
    stream.runs = again.runs
    stream.start()
    stream.batch()
    again = replace(stream, next_batch=2, runs=stream.runs + 10, writer=None)
    with pytest.raises(CheckpointRewound):
        again.batch()
    stream.runs = again.runs
    rollback_to(bench.table, 6, runtime=bench.runtime)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 3 was committed"):
        stream.batch()


def test_after_that_decision_the_newest_checkpoint_can_be_put_back() -> None:
    """Its batch 5 had been published, and it had not noted that."""
    bench = Bench()
    stream = rewound(bench)
    newest = replace(stream, next_batch=5, runs=stream.runs + 10, writer=None)
    assert newest.batch().outcome == "already committed"
    assert newest.batch().outcome == "committed"
    assert len(own_names(bench)) == 7


def test_what_was_given_up_under_the_new_name_of_another_sink_is_not_given_up_by_this_one() -> None:
    """The run in which that was decided died before it came to this sink."""
    bench = Bench()
    first, second = Stream(bench, user=FIRST), Stream(bench, user=SECOND)
    for _ in range(4):
        first.batch()
        second.batch()
    rollback_to(bench.table, 2, runtime=bench.runtime)
    renamed = replace(first, user="etl_q1", writer=None, runs=5, options=dict(CONTINUE))
    renamed.batch(rows=0)
    second.runs = 10
    second.start()
    with pytest.raises(TableRolledBack, match="batch 3 was committed"):
        second.batch()


def test_what_had_expired_below_a_lost_batch_is_not_given_up_with_it() -> None:
    """A later rollback takes it, and nothing names it but that the rollback took what had expired."""
    bench = Bench()
    others(bench)
    create_tag(bench.table, "below", 1, runtime=bench.runtime)
    stream = Stream(bench)
    stream.batch()
    others(bench)
    stream.batch()
    rollback_to(bench.table, 3, runtime=bench.runtime)
    others(bench)
    expire(bench)  # batch 0 is in the table, and its snapshot is not
    stream.options = dict(CONTINUE)
    stream.start()
    stream.batch(rows=0)
    stream.options = {}
    stream.start()
    stream.batch(rows=0)  # the decision holds
    rollback_to(bench.table, "below", runtime=bench.runtime)
    stream.start()
    with pytest.raises(HistoryUnknown, match="snapshots that had expired"):
        stream.batch()
