"""A stream comes back, batches of it have left neither snapshot nor journal, and notes of removals
say what became of them, or cannot be read.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CheckpointRewound, HistoryUnknown, TableRolledBack
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.stream.standing import Target
from tests.kits.commits import Bench
from tests.kits.streams import Stream
from tests.unit.stream.test_what_is_gone import (
    CONTINUE,
    NO_JOURNAL,
    RESTARTED,
    note_paths,
    outage,
    stream_of,
)

GO_ON = {"paimon-stream.on-unknown-history": "continue"}
REWOUND = {"paimon-stream.on-checkpoint-reset": "continue"}


def below_others(batches: int, **given: object) -> Stream:
    """A stream whose batches stand above a commit of somebody else."""
    stream = Stream(Bench(), **given)  # type: ignore[arg-type]
    bench = stream.bench
    TableCommit(bench.table, "other", runtime=bench.runtime).commit(0, [bench.message("first")])
    stream.batches(batches)
    return stream


# -- a second rollback
# ---------------------------------------------------------------------


@RESTARTED
def test_batches_below_a_decision_that_are_rolled_back_later_stop_the_stream_after_an_outage(
    restarted: bool,
) -> None:
    """The journal vouches for the batches since the decision only."""
    stream = below_others(5, options={} if restarted else CONTINUE)
    bench = stream.bench
    rollback_to(bench.table, 4, runtime=bench.runtime)
    stream.options = CONTINUE
    if restarted:
        stream.start()
    stream.batch(rows=0)
    if not restarted:
        assert stream.writer is not None
        run = replace(stream.writer.run, options={})
        standing = replace(stream.writer.standing, target=Target.open(run))
        stream.writer.run, stream.writer.standing = run, standing
    stream.options = {}
    if restarted:
        stream.start()
    stream.batch(rows=0)
    assert rollback_to(bench.table, 1, runtime=bench.runtime).streams == {"me": 0}
    outage(bench, 8)
    stream.start()
    for _ in range(2):
        with pytest.raises(TableRolledBack, match="batch 2 was committed"):
            stream.batch()
        stream.start()
    stream.options = CONTINUE
    stream.start()
    stream.batch(rows=0)
    stream.options = {}
    stream.start()
    stream.batch()


def test_batches_from_before_a_journal_that_were_rolled_back_stop_the_stream() -> None:
    stream = below_others(5, options=NO_JOURNAL)
    bench = stream.bench
    stream.options = {}
    for _ in range(2):
        stream.start()
        stream.batch(rows=0)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    outage(bench, 8)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 4 was committed"):
        stream.batch()


# -- notes that cannot be read
# ---------------------------------------------------------------------


@pytest.mark.parametrize("newer", [True, False], ids=["newer", "half"])
@pytest.mark.parametrize("expired", [True, False])
def test_a_note_that_cannot_be_read_may_name_each_batch_that_left_nothing(
    newer: bool, expired: bool
) -> None:
    stream = below_others(5, options=NO_JOURNAL)
    bench = stream.bench
    if expired:  # the journal vouches from here on
        stream.options = {}
        stream.start()
        stream.batch(rows=0)
        stream.start()
    rollback_to(bench.table, 1 if expired else 4, runtime=bench.runtime)
    [path] = note_paths(bench)
    data = bench.storage.read(path)
    bad = data.replace(b" 1 sha256", b" 9 sha256", 1) if newer else data[: len(data) // 2]
    bench.storage.write(path, bad)
    if expired:
        outage(bench, 8)
    for _ in range(2):
        stream.start()
        with pytest.raises(HistoryUnknown, match=r"batch 4 left no snapshot .* cannot be read"):
            stream.batch()
    kept = dict(stream.options)
    stream.options = {**kept, **GO_ON}
    stream.start()
    stream.batch(rows=0)
    if expired:
        stream.options = kept
        stream.start()
    stream.batch()


def test_a_note_that_cannot_be_read_is_no_doubt_where_the_journal_vouches() -> None:
    stream = stream_of(3)
    bench = stream.bench
    bench.storage.write("_paimon_stream/removed.1-a.json", b"half")
    stream.batch(rows=0)
    stream.start()
    stream.batch()


def test_a_note_that_cannot_be_read_is_no_doubt_about_a_stream_that_comes_from_another_table() -> (
    None
):
    stream = Stream(Bench(), next_batch=5)
    stream.bench.storage.write("_paimon_stream/removed.1-a.json", b"half")
    stream.batch()


# -- a checkpoint that was put back, and a rollback
# ---------------------------------------------------------------------


def rewound_and_rolled_back() -> Stream:
    """A stream whose table was rolled back to a commit of somebody else, and whose checkpoint runs its
    second batch again. The journal has the third one, and has dropped the first.
    """
    stream = below_others(3)
    rollback_to(stream.bench.table, 1, runtime=stream.bench.runtime)
    stream.next_batch = 1
    return stream


def test_a_decision_about_a_rewound_checkpoint_is_none_about_batches_that_were_rolled_back() -> (
    None
):
    stream = rewound_and_rolled_back()
    stream.start()
    with pytest.raises(CheckpointRewound):
        stream.batch()
    stream.options = REWOUND
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 0 was committed"):
        stream.batch()


def test_what_was_given_up_with_a_rewound_checkpoint_is_not_asked_again() -> None:
    """Also where the batch that went on had no rows, and has left nothing that shows it."""
    stream = rewound_and_rolled_back()
    stream.options = REWOUND | CONTINUE
    stream.start()
    stream.batch(rows=0)
    stream.options = {}
    stream.start()
    assert stream.batch().outcome == "committed"
