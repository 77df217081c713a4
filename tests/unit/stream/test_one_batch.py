"""One batch from its judgement to its end, whichever door its rows come by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.sequence import MOST_REWRITES
from paimon_stream.errors import CommitVetoed, SequenceConflict, TableReplaced
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.standing import Standing
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch
from paimon_stream.stream.verdicts import Batch
from tests.kits.commits import Bench
from tests.kits.steps import numbered
from tests.kits.streams import At, AtBatch, PowerCut, Stream

KEYED = {"bucket": "1", "write-only": "true"}
BATCH = Batch(batch_id=0, offsets_hash="plan")


class Overtaken:
    """Rows of a table with a key, whose numbers others use while they are written."""

    def __init__(self, times: int, *, again: bool = True) -> None:
        self.bench = Bench(options=KEYED, keys=("id",))
        self.times, self.written = times, 0
        self.rows = Rows(write=self.write, again=again)
        self.stream = Stream(self.bench)
        self.stream.start()

    def write(self, judged: JudgedBatch) -> WrittenBatch:
        numbering, first, _ = numbered(judged)
        message = self.message(f"mine-{self.written}", first)
        if self.written < self.times:
            others = self.message(f"others-{self.written}", first)
            request = self.bench.request(self.written, [others], user="you")
            self.bench.committer().commit(request)
        self.written += 1
        spent = judged.phases.get("write", 0.0) + 1
        return judged.written((message,), numbering=numbering, phases={"write": spent})

    def message(self, name: str, first: int) -> CommitMessage:
        made = self.bench.message(name)
        file = replace(made.new_files[0], min_sequence_number=first, max_sequence_number=first + 9)
        return replace(made, new_files=(file,))

    def run(self) -> None:
        assert self.stream.writer is not None
        self.report = self.stream.writer.write(BATCH, self.rows).report


def test_rows_are_written_again_on_what_others_have_committed() -> None:
    overtaken = Overtaken(times=2)
    overtaken.run()
    assert overtaken.written == 3
    assert overtaken.report.phases["write"] == 3, "all that was written takes time"
    assert overtaken.bench.latest().id == 3


def test_rows_are_not_written_again_without_end() -> None:
    overtaken = Overtaken(times=100)
    with pytest.raises(SequenceConflict):
        overtaken.run()
    assert overtaken.written == MOST_REWRITES + 1


def test_rows_that_can_be_written_once_only_end_in_the_conflict() -> None:
    overtaken = Overtaken(times=1, again=False)
    with pytest.raises(SequenceConflict):
        overtaken.run()
    assert overtaken.written == 1


def test_rows_of_a_batch_that_is_in_the_table_are_drained_and_not_written() -> None:
    stream = Stream(Bench())
    stream.batch()
    stream.start()
    assert stream.writer is not None
    told: list[str] = []
    rows = Rows(write=lambda _: pytest.fail("it is there"), drain=lambda: told.append("drained"))
    settled = stream.writer.write(replace(BATCH, offsets_hash="q1-0"), rows)
    assert (settled.report.outcome, settled.changes, told) == (
        "already committed",
        None,
        ["drained"],
    )


@pytest.mark.parametrize("phase", [Phase.JUDGED, Phase.WRITTEN, Phase.STAGED, Phase.FINISHED])
@pytest.mark.parametrize("later", [False, True])
def test_a_batch_that_fails_leaves_the_run_as_it_stood(phase: Phase, later: bool) -> None:
    stream = Stream(Bench())
    stream.start(AtBatch(int(later), At(phase, stream.cut)))
    assert stream.writer is not None
    if later:
        stream.batch()
    before = stream.writer.standing
    with pytest.raises(PowerCut):
        stream.batch()
    assert stream.writer.standing is before
    assert later or before == Standing()


def test_a_veto_leaves_neither_a_file_nor_a_memory() -> None:
    stream = Stream(Bench())
    stream.start()
    assert stream.writer is not None

    def veto(_: object) -> None:
        raise ValueError("no")

    message = stream.bench.message("mine")
    rows = Rows(write=lambda judged: judged.written((message,)), before_commit=veto)
    with pytest.raises(CommitVetoed, match="its files were removed"):
        stream.writer.write(BATCH, rows)
    assert stream.writer.standing == Standing()
    stream.bench.audit([])


def test_tasks_that_have_written_to_another_table_publish_nothing() -> None:
    stream = Stream(Bench())
    stream.start()
    assert stream.writer is not None

    def write(judged: JudgedBatch) -> WrittenBatch:
        judged.require_same_table("of a table that was here before")
        raise AssertionError

    with pytest.raises(TableReplaced, match="Nothing was published"):
        stream.writer.write(BATCH, Rows(write=write, again=False))
