"""Table and checkpoint were put back together: the checkpoint runs batches again that a rollback
took. And a run is killed while it takes down an operator's decision.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.errors import TableRolledBack
from paimon_stream.format.snapshot_marks import MARK_PREFIX, RECOMMITTED_MARK
from paimon_stream.maintenance.rollback import rollback_to
from tests.kits.faults import FAULTS, Fault, FaultyStorage, Killed
from tests.kits.streams import At, PowerCut
from tests.unit.stream.test_what_is_gone import CONTINUE, outage, stream_of

JOURNAL = pytest.mark.parametrize("journal", ["true", "false"])


@JOURNAL
@pytest.mark.parametrize("back_to", [2, 3])
@pytest.mark.parametrize("rows", [10, 0])
def test_batches_that_have_no_rows_any_more_are_not_taken_for_lost(
    rows: int, back_to: int, journal: str
) -> None:
    """The checkpoint went back as far as the table, or a batch further."""
    stream = stream_of(6, options={"paimon-stream.journal": journal})
    rollback_to(stream.bench.table, 3, runtime=stream.bench.runtime)
    stream.next_batch = back_to
    stream.start()
    stream.batch(rows=rows if back_to == 3 else 0)
    if back_to == 2:
        stream.batch(rows=rows)
    for _ in range(2):
        stream.batch(rows=0)
    if not rows and journal == "false":
        return  # nothing shows that the checkpoint went back
    for _ in range(2):
        stream.start()
        stream.batch(rows=0)
    stream.start()
    stream.batch()


@pytest.mark.parametrize("back_to", [2, 3])
def test_a_later_rollback_of_the_batch_to_which_the_table_was_put_back_stops_the_stream(
    back_to: int,
) -> None:
    """The journal has dropped its entry, so nothing but the note of the rollback tells of it. The
    checkpoint went back as far as the table, or a batch further.
    """
    stream = stream_of(6)
    bench = stream.bench
    rollback_to(bench.table, 3, runtime=bench.runtime)
    stream.next_batch = back_to
    stream.start()
    if back_to == 2:
        assert stream.batch().outcome == "already committed"
    stream.batch(rows=0)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    for _ in range(2):
        stream.start()
        with pytest.raises(TableRolledBack, match="batch 2 was committed"):
            stream.batch()
    stream.options = CONTINUE
    stream.start()
    stream.batch(rows=0)
    stream.options = {}
    stream.start()
    assert stream.batch().outcome == "committed"


@pytest.mark.parametrize("back_to", [2, 3])
def test_an_outage_after_table_and_checkpoint_were_put_back_stops_nobody(back_to: int) -> None:
    """The journal vouches for the batches that follow, though their first ones had no rows."""
    stream = stream_of(6)
    bench = stream.bench
    rollback_to(bench.table, 3, runtime=bench.runtime)
    stream.next_batch = back_to
    stream.start()
    for _ in range(4 - back_to):
        stream.batch(rows=0)
    outage(bench)
    stream.start()
    assert stream.batch().outcome == "committed"


@JOURNAL
def test_a_later_rollback_of_a_batch_that_was_run_again_stops_the_stream(journal: str) -> None:
    stream = stream_of(5, options={"paimon-stream.journal": journal})
    bench = stream.bench
    rollback_to(bench.table, 3, runtime=bench.runtime)
    stream.next_batch = 3
    stream.start()
    stream.batches(2)
    stream.batch(rows=0)
    rollback_to(bench.table, 4, runtime=bench.runtime)
    for _ in range(2):
        stream.start()
        with pytest.raises(TableRolledBack, match="batch 4 was committed"):
            stream.batch()


@JOURNAL
def test_a_run_that_dies_before_it_has_run_a_batch_again_leaves_what_shows_the_loss(
    journal: str,
) -> None:
    """The operator puts the newer checkpoint back after all."""
    stream = stream_of(5, options={"paimon-stream.journal": journal})
    rollback_to(stream.bench.table, 3, runtime=stream.bench.runtime)
    stream.next_batch = 3
    stream.start(At(Phase.WRITTEN, stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.next_batch = 5
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 4 was committed"):
        stream.batch()


def test_a_batch_that_was_recommitted_does_not_show_that_the_checkpoint_went_back() -> None:
    stream = stream_of(5, options={"paimon-stream.journal": "false"})
    bench = stream.bench
    rollback_to(bench.table, 3, runtime=bench.runtime)
    properties = {RECOMMITTED_MARK: "lost", MARK_PREFIX + "query-id": stream.query_id}
    again = bench.request(3, [bench.message("me-3-4")], user="me")
    bench.committer().commit(replace(again, properties=properties))
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 4 was committed"):
        stream.batch()


@pytest.mark.parametrize("entry", [3, 4])
@pytest.mark.parametrize("target", [1, 3])
def test_a_run_that_is_killed_while_it_removes_what_was_given_up_has_decided(
    target: int, entry: int
) -> None:
    stream = stream_of(5)
    bench = stream.bench
    rollback_to(bench.table, target, runtime=bench.runtime)
    stream.options = CONTINUE
    path = f"_paimon_stream/me/{entry}"
    fault = Fault(at=1, verb="delete", path=path, **FAULTS["killed before"])  # type: ignore[arg-type]
    storage = FaultyStorage(bench.storage, [fault])
    stream.start(storage=storage)  # type: ignore[arg-type]
    with pytest.raises(Killed):
        stream.batch()
    stream.options = {}
    stream.start()
    stream.batch(rows=0)
    stream.start()
    stream.batch()
