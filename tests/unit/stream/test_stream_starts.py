"""The first batch of a run: a table that is not the one from before, and a checkpoint that comes
from another table. An operator's decision is asked for once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.errors import CommitLost, TableReplaced, TableRolledBack
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.stream.verdicts import Batch, Fresh
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import create_table
from tests.kits import steps
from tests.kits.commits import FIELDS, Bench
from tests.kits.places import emptied
from tests.kits.streams import At, PowerCut, Stream

pytestmark = pytest.mark.s3

CONTINUE = {"paimon-stream.on-table-change": "continue"}


def replaced_under_the_stream(batches: int = 3) -> Stream:
    """A stream whose table was dropped and created again while it worked on a batch, so that it has
    noted the old table's batch in the new table's folder.
    """
    stream = Stream(Bench())
    stream.batches(batches)

    def drop_and_create() -> None:
        storage = stream.bench.storage
        emptied(storage)
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
    assert [stream.bench.snapshots.get(one).commit_identifier for one in (1, 2)] == [
        4 + earlier,
        5 + earlier,
    ]


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


# -- a table that lost batches
# -------------------------------------------------------------------------


def robbed(how: str, *, noted: bool) -> Stream:
    """A stream of three batches of which the table lost some. With `noted`, a run was killed after
    it had recorded the next batch.
    """
    stream = Stream(Bench())
    bench = stream.bench
    bench.committer().commit(bench.request(1, [bench.message("java-1")], user="java"))
    stream.batches(3)
    if noted:
        stream.start(At(Phase.STAGED, stream.cut))
        with pytest.raises(PowerCut):
            stream.batch()
    if how == "replaced":
        bench.storage.delete("snapshot/snapshot-4")
        bench.committer().commit(bench.request(2, [bench.message("java-2")], user="java"))
    else:
        rollback_to(bench.table, 1 if how == "all rolled back" else 2, runtime=bench.runtime)
    with pytest.raises((TableRolledBack, CommitLost)):
        stream.batch()
    stream.start()
    with pytest.raises((TableRolledBack, CommitLost)):
        stream.batch()
    return stream


ROBBED = [
    (how, noted)
    for how in ("rolled back", "all rolled back", "replaced")
    for noted in (True, False)
]


@pytest.mark.parametrize(("how", "noted"), ROBBED)
@pytest.mark.parametrize("running", [True, False], ids=["the same run", "a new run"])
def test_lost_batches_are_asked_about_once_even_where_the_batch_that_continues_is_empty(
    how: str, noted: bool, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stream = robbed(how, noted=noted)
    stream.options = CONTINUE
    stream.start()
    stream.batch(rows=0)
    if running:
        caplog.clear()
        stream.batch(rows=0)
        assert "on-table-change" not in caplog.text
    stream.options = {}
    stream.start()
    before = len(stream.bench.live_names())
    stream.batches(2)
    assert len(stream.bench.live_names()) == before + 2


@pytest.mark.parametrize(("how", "noted"), ROBBED)
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.value)
def test_lost_batches_are_asked_about_once_even_where_the_run_that_continues_is_killed(
    phase: Phase, how: str, noted: bool
) -> None:
    stream = robbed(how, noted=noted)
    before = len(stream.bench.live_names())
    stream.options = CONTINUE
    stream.start(At(phase, stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.options = {}
    stream.start()
    stream.batches(2)
    assert len(stream.bench.live_names()) == before + 2


def test_a_running_stream_that_may_continue_after_a_loss_is_asked_about_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Stream(Bench(), options=CONTINUE)
    stream.batches(3)
    rollback_to(stream.bench.table, 2, runtime=stream.bench.runtime)
    stream.batch(rows=0)
    assert "on-table-change" in caplog.text
    caplog.clear()
    stream.batch(rows=0)
    stream.options = {}
    stream.start()
    stream.batch()
    assert "on-table-change" not in caplog.text
    assert stream.bench.live_names() == ["me-0-1", "me-1-2", "me-5-6"]


@pytest.mark.parametrize(("journal", "expired"), [("true", 1), ("false", 1), ("false", 0)])
def test_a_copy_of_a_checkpoint_stops_in_a_table_in_which_the_first_one_began_anew(
    journal: str, expired: int
) -> None:
    """The first one has attempted batch 0 there, and not the copy, which has that batch done."""
    bench = Bench()
    copy = Stream(bench, checkpoint="/ck/copy")
    copy.batch()
    emptied(bench.storage)
    bench.clock.advance(300_000)
    create_table(bench.storage, FIELDS, runtime=bench.runtime)
    first = Stream(bench, runs=10, options={"paimon-stream.journal": journal})
    first.start(At(Phase.STAGED, Stream.cut))
    with pytest.raises(PowerCut):
        first.batch()
    for number in range(2):
        bench.committer().commit(bench.request(number, [bench.message("other")], user="another"))
    bench.expire(expired)
    copy.writer = None
    with pytest.raises(TableReplaced, match="created"):
        copy.batch()
    copy.options, copy.writer = CONTINUE, None
    copy.batch(rows=0)
    copy.options, copy.writer = {}, None
    assert copy.batch().outcome == "committed"


# -- a table that is replaced while its schema grows
# ---------------------------------------------------


def test_a_table_that_is_replaced_before_its_schema_grows_is_left_as_it_is() -> None:
    stream = Stream(Bench())
    stream.start()
    assert stream.writer is not None
    judged = steps.judge(stream.writer, Batch(batch_id=0))
    assert isinstance(judged.verdict, Fresh)
    emptied(stream.bench.storage)
    create_table(stream.bench.storage, FIELDS[:1], runtime=stream.bench.runtime)
    with pytest.raises(TableReplaced, match="created again"):
        judged.evolve(grown)
    assert SchemaStore(stream.bench.storage).ids() == [0]


def test_a_table_that_is_replaced_after_its_schema_has_grown_is_reported_as_replaced() -> None:
    stream = Stream(Bench())
    stream.batch()
    assert stream.writer is not None
    batch = Batch(batch_id=1)
    judged = steps.judge(stream.writer, batch)
    assert isinstance(judged.verdict, Fresh)
    judged = judged.on(judged.evolve(grown))
    emptied(stream.bench.storage)
    create_table(stream.bench.storage, FIELDS[:1], runtime=stream.bench.runtime)
    with pytest.raises(TableReplaced):
        steps.commit(stream.writer, judged.written((stream.bench.message("me-1"),)))


def grown(schema: TableSchema) -> TableSchema:
    """The schema with one more column."""
    column = DataField(id=schema.highest_field_id + 1, name="more", type=parse_type("INT"))
    return replace(
        schema, id=schema.id + 1, fields=(*schema.fields, column), highest_field_id=column.id
    )


# -- a checkpoint that comes from another table
# --------------------------------------------------------


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
