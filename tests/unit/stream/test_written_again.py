"""An operator has let a checkpoint that was put back continue over the table's later batches. What it
wrote again above them is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from paimon_stream.errors import HistoryUnknown, TableRolledBack
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.table.register import registered_writer
from tests.kits.streams import Stream
from tests.unit.stream.test_what_is_gone import CONTINUE, note_paths, stream_of

JOURNAL = pytest.mark.parametrize("journal", ["true", "false"])
REWOUND = {"paimon-stream.on-checkpoint-reset": "continue"}
KNOWN = {"paimon-stream.on-unknown-history": "continue"}


def decided(stream: Stream, decision: Mapping[str, str]) -> str:
    """How the next batch ends that an operator lets continue. Then the run is dead."""
    before = stream.options
    stream.options = {**before, **decision}
    stream.start()
    outcome = stream.batch().outcome
    stream.options, stream.writer = before, None
    return outcome


def roll_back(stream: Stream, snapshot_id: int) -> None:
    rollback_to(stream.bench.table, snapshot_id, runtime=stream.bench.runtime)


def written_again(journal: str) -> Stream:
    """A stream that was let go on with batch 2, its second snapshot, over the loss of batch 1. Then
    its checkpoint was put back, and it was let write batch 1 again.
    """
    stream = stream_of(2, options={"paimon-stream.journal": journal})
    roll_back(stream, 1)
    decided(stream, CONTINUE)
    stream.next_batch = 1
    assert decided(stream, REWOUND) == "committed"
    return stream


@JOURNAL
@pytest.mark.parametrize("next_batch", [2, 3], ids=["the next", "of the newest checkpoint"])
def test_what_was_written_again_and_taken_is_asked_about_once(
    next_batch: int, journal: str
) -> None:
    """The later batch that stands does not show that it is there. What follows has no rows, so that
    batch stays the newest one.
    """
    stream = written_again(journal)
    roll_back(stream, 2)
    stream.next_batch = next_batch
    for _ in range(2):
        stream.start()
        with pytest.raises(HistoryUnknown, match=r"rows of batch 1 from before.* snapshot 3\."):
            stream.batch()
    stream.options |= KNOWN
    stream.start()
    outcome = stream.batch(rows=0).outcome
    assert outcome == ("already committed" if next_batch == 2 else "empty")
    stream.options = {"paimon-stream.journal": journal}
    for _ in range(2):
        stream.start()
        stream.batch(rows=0)
    stream.batch()


@JOURNAL
def test_a_batch_that_the_table_may_have_is_not_given_up(journal: str) -> None:
    """A later rollback of the batch that was written first stops the stream."""
    stream = stream_of(4, options={"paimon-stream.journal": journal})
    stream.next_batch = 2
    decided(stream, REWOUND)
    roll_back(stream, 4)
    assert decided(stream, KNOWN) == "already committed"
    register = registered_writer(stream.bench.storage, stream.user)
    assert register is not None
    assert (register.given_up, register.passed_over) == ((), None)
    roll_back(stream, 2)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 3 was committed"):
        stream.batch()
    stream.next_batch = 3
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 2 was committed"):
        stream.batch()


@JOURNAL
def test_a_batch_of_another_plan_is_missed_although_its_number_is_there(journal: str) -> None:
    stream = stream_of(3, options={"paimon-stream.journal": journal})
    stream.next_batch, stream.plan = 2, "of a copy"
    assert decided(stream, REWOUND) == "committed"
    roll_back(stream, 3)
    stream.start()
    with pytest.raises(HistoryUnknown, match="rows of batch 2 from before"):
        stream.batch()


@JOURNAL
def test_what_was_written_again_twice_and_taken_is_asked_about(journal: str) -> None:
    """The second decision was about a snapshot that is gone, too."""
    stream = written_again(journal)
    stream.batch()
    stream.next_batch = 1
    assert decided(stream, REWOUND) == "committed"
    roll_back(stream, 2)
    stream.start()
    with pytest.raises(HistoryUnknown, match="rows of batch 1 from before"):
        stream.batch()


@JOURNAL
def test_what_stands_above_is_missed_by_its_own_note(journal: str) -> None:
    """The stream has gone on above the snapshot, so that is as any other."""
    stream = written_again(journal)
    stream.batches(2)
    roll_back(stream, 4)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 3 was committed"):
        stream.batch()


@JOURNAL
def test_a_note_that_cannot_be_read_is_a_doubt_about_what_was_written_again(journal: str) -> None:
    stream = written_again(journal)
    roll_back(stream, 2)
    storage = stream.bench.storage
    for path in note_paths(stream.bench):
        storage.write(path, b"damaged")
    storage.delete("_paimon_stream/rolled-back.json")
    stream.start()
    with pytest.raises(HistoryUnknown, match="cannot be read"):
        stream.batch()


@JOURNAL
def test_a_batch_that_was_written_again_without_rows_stops_nobody(journal: str) -> None:
    stream = stream_of(3, options={"paimon-stream.journal": journal})
    stream.next_batch = 1
    stream.options |= REWOUND
    stream.start()
    stream.batch(rows=0)
    stream.options = {"paimon-stream.journal": journal}
    stream.start()
    assert stream.batch().outcome == "already committed"
    stream.start()
    assert stream.batch().outcome == "committed"
