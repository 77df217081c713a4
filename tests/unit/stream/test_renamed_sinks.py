"""A query comes back under another commit user, as after a change of a sink's name or of
`commit.user-prefix`; and a query gets another sink.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.errors import CheckpointReset, HistoryUnknown, TableRolledBack
from paimon_stream.maintenance.branches import create_branch
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.options import ON_CHECKPOINT_RESET, ON_TABLE_CHANGE, ON_UNKNOWN_HISTORY
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.identity import WriterIdentity
from tests.kits.commits import Bench
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.stream.test_branch_streams import of_branch

FIRST, SECOND, THIRD = "paimon-stream_q1", "etl_q1", "raw_q1"


def identity_of(user: str) -> WriterIdentity:
    """A later run of this user."""
    return WriterIdentity(user=user, query_id="q1", run_id="q1-run-99", token="q1-sink")


def outage(bench: Bench) -> None:
    """Others write, and all that was there expires."""
    newest = bench.snapshots.latest()
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    if newest is not None:
        bench.expire(newest.id)


def killed_after_publishing(bench: Bench, batches: int, **settings: object) -> Stream:
    """A stream whose run dies before the checkpoint notes the batch that is in the table."""
    stream = Stream(bench, user=FIRST, **settings)  # type: ignore[arg-type]
    stream.batches(batches)
    stream.start(At(Phase.HINTED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.writer = None
    return stream


@pytest.mark.parametrize("batches", [0, 1, 3])
@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_renamed_sink_stops_where_its_batch_may_have_been_published_under_the_old_name(
    batches: int, journal: str
) -> None:
    bench = Bench()
    stream = killed_after_publishing(bench, batches, options={"paimon-stream.journal": journal})
    outage(bench)
    stream.user = SECOND
    for _ in range(2):
        with pytest.raises(HistoryUnknown, match="old name"):
            stream.batch()
        stream.writer = None
    stream.user = FIRST
    if journal == "true":  # else nothing is left that would show it
        assert stream.batch().outcome == "already committed"
        assert len([one for one in bench.live_names() if one.startswith(FIRST)]) == batches + 1
    stream.user, stream.writer = SECOND, None
    stream.options = {**stream.options, ON_UNKNOWN_HISTORY.key: "continue"}
    assert stream.batch().outcome == "committed"
    stream.writer, stream.options = None, {}
    assert stream.batch().outcome == "committed", "it was let in, and is known from then on"


@pytest.mark.parametrize("expired", [True, False])
def test_a_renamed_sink_goes_on_where_the_old_one_had_ended_its_last_batch(expired: bool) -> None:
    bench = Bench()
    stream = Stream(bench, user=FIRST)
    stream.batches(3)
    if expired:
        outage(bench)
    stream.user, stream.writer = SECOND, None
    assert stream.batch().outcome == "committed"


@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("journal", ["true", "false"])
@pytest.mark.parametrize("begun", [True, False])
def test_a_renamed_sink_stops_where_batches_of_its_old_name_were_rolled_back(
    begun: bool, journal: str, expired: bool
) -> None:
    """Also if a run had begun under the new name, and died before it published anything."""
    bench = Bench()
    stream = Stream(bench, user=FIRST, options={"paimon-stream.journal": journal})
    stream.batches(3)
    if begun:
        stream.user = SECOND
        stream.start(At(Phase.STAGED, Stream.cut))
        with pytest.raises(PowerCut):
            stream.batch()
    rollback_to(bench.table, 1, runtime=bench.runtime)
    if expired:
        outage(bench)
    stream.user, stream.writer = SECOND, None
    shown = not expired or journal == "true"
    known = shown or begun  # else the old name may have published this batch, too
    with pytest.raises(TableRolledBack if known else HistoryUnknown, match="committed"):
        stream.batch()
    option = ON_TABLE_CHANGE if known else ON_UNKNOWN_HISTORY
    stream.options[option.key], stream.writer = "continue", None
    assert stream.batch().outcome == "committed"
    del stream.options[option.key]
    if shown:
        stream.user, stream.writer = THIRD, None
        assert stream.batch().outcome == "committed", "this was decided under the second name"


def test_a_renamed_sink_stops_where_what_was_rolled_back_had_expired_before() -> None:
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("first")], user="another"))
    create_tag(bench.table, "t", runtime=bench.runtime)
    stream = Stream(bench, user=FIRST)
    stream.batches(2)
    for _ in range(2):
        bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
        expire_snapshots(bench.table, 1, 1, 1, protect_streams=False, runtime=bench.runtime)
        if bench.storage.exists("tag/tag-t"):
            assert rollback_to(bench.table, "t", runtime=bench.runtime).streams[FIRST] == 0
            bench.storage.delete("tag/tag-t")
    stream.user, stream.writer = SECOND, None
    with pytest.raises(TableRolledBack, match="batch 1 was committed"):
        stream.batch()


def test_a_third_sink_is_not_stopped_by_an_attempt_that_a_renamed_one_made_again() -> None:
    bench = Bench()
    stream = Stream(bench, user=FIRST)
    stream.batches(2)
    stream.start(At(Phase.STAGED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.user, stream.writer = SECOND, None
    stream.batch()
    third = Stream(bench, user=THIRD, next_batch=3, runs=5, done_millis=stream.done_millis)
    assert third.batch().outcome == "committed"


def test_a_first_batch_that_was_written_again_under_another_name_stops_no_third_one() -> None:
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("first")], user="another"))
    stream = killed_after_publishing(bench, 0)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    stream.user = SECOND
    assert stream.batch().outcome == "committed"
    stream.user, stream.writer = THIRD, None
    assert stream.batch().outcome == "committed"


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "live"])
def test_a_renamed_sink_without_rows_notices_that_batches_of_its_old_name_went(
    restarted: bool,
) -> None:
    """All that its run remembers is a snapshot of others, which has expired."""
    bench = Bench()
    stream = Stream(bench, user=FIRST)
    stream.batches(1)
    create_tag(bench.table, "t", runtime=bench.runtime)
    stream.batches(2)

    def others(commits: int) -> None:
        for _ in range(commits):
            bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
        expire_snapshots(bench.table, 1, 1, 1, protect_streams=False, runtime=bench.runtime)

    others(1)
    stream.user, stream.writer = SECOND, None
    stream.batch(rows=0)
    others(1)
    rollback_to(bench.table, "t", runtime=bench.runtime)
    bench.storage.delete("tag/tag-t")
    others(6)
    if restarted:
        stream.start()
    with pytest.raises(TableRolledBack, match=r"batch 2 was committed"):
        stream.batch()


@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("expired", [True, False])
def test_a_sink_that_was_added_does_not_hide_what_a_renamed_one_has_lost(
    expired: bool, late: int
) -> None:
    """The query got a second sink with batch 5, whose batch 5 stays where that of the first goes."""
    bench = Bench()
    old = Stream(bench, user=FIRST)
    old.batches(5)
    added = Stream(bench, user=SECOND, next_batch=5, runs=0, done_millis=old.done_millis)
    old.writer, old.runs = None, 0
    added.batch()
    old.batch()
    assert rollback_to(bench.table, 6, runtime=bench.runtime).streams == {FIRST: 5}
    if expired:
        outage(bench)
    added.writer, added.runs = None, 1
    added.batches(1 + late)
    renamed = Stream(bench, user=THIRD, next_batch=6, runs=1, done_millis=old.done_millis)
    with pytest.raises(TableRolledBack, match="batch 5 was committed"):
        renamed.batch()


def test_a_renamed_sink_is_not_stopped_by_a_clock_that_is_a_minute_behind() -> None:
    bench = Bench()
    stream = Stream(bench, user=FIRST)
    stream.batches(1)
    stream.done_millis = bench.table.schema.time_millis - 60_000
    stream.user, stream.writer = SECOND, None
    assert stream.batch().outcome == "committed"


@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("called_first", [True, False])
def test_a_running_query_gets_a_second_sink_whatever_the_order_of_calls(
    called_first: bool, expired: bool
) -> None:
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    if expired:
        outage(bench)
    first.writer = None
    second = Stream(bench, user=SECOND, next_batch=3, runs=1, done_millis=first.done_millis)
    for sink in (second, first) if called_first else (first, second):
        for _ in range(2):
            assert sink.batch().outcome == "committed"
    assert len(bench.live_names()) == 7 + expired


def test_a_table_that_was_made_after_an_empty_batch_by_another_clock_is_the_same_table() -> None:
    """The checkpoint's file system is a minute behind."""
    bench = Bench()
    stream = Stream(bench)
    stream.batch(rows=0)
    for _ in range(2):
        stream.done_millis = bench.table.schema.time_millis - 60_000
        stream.writer = None
        stream.batch(rows=0)
    assert stream.batch().outcome == "committed"


@pytest.mark.parametrize("expired", [True, False])
def test_a_batch_that_was_written_again_after_an_operators_decision_stops_no_third_name(
    expired: bool,
) -> None:
    """Each of two names began with batch 1, which the rollback took from the first of them."""
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("first")], user="another"))
    stream = Stream(bench, user=FIRST)
    stream.batches(1)
    stream.user = SECOND
    stream.start(At(Phase.HINTED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    rollback_to(bench.table, 1, runtime=bench.runtime)
    stream.user, stream.writer = THIRD, None
    with pytest.raises(TableRolledBack, match="batch 0 was committed"):
        stream.batch()
    stream.options, stream.writer = {ON_TABLE_CHANGE.key: "continue"}, None
    assert stream.batch().outcome == "committed"
    if expired:
        outage(bench)
    stream.user, stream.writer, stream.options = "last_q1", None, {}
    assert stream.batch().outcome == "committed"


@pytest.mark.parametrize("again", ["in the same run", "by a sink that goes on", "not at all"])
def test_two_sinks_that_began_with_one_batch_hide_no_loss_of_each_other(again: str) -> None:
    """The rollback takes batch 5 of one of them, which then gets another name."""
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("first")], user="another"))
    done = bench.clock.now_millis()
    kept = Stream(bench, user=SECOND, next_batch=5, done_millis=done)
    lost = Stream(bench, user=FIRST, next_batch=5, done_millis=done)
    if again == "not at all":
        kept.batch()
        lost.batch()
        rollback_to(bench.table, 2, runtime=bench.runtime)
    else:
        lost.batch()
        rollback_to(bench.table, 1, runtime=bench.runtime)
        kept.runs += again == "by a sink that goes on"
        kept.batch()
    kept.writer, kept.runs = None, 2
    renamed = Stream(bench, user=THIRD, next_batch=6, runs=2, done_millis=lost.done_millis)
    if again == "by a sink that goes on":
        kept.batch()
    with pytest.raises(TableRolledBack, match="batch 5 was committed"):
        renamed.batch()


@pytest.mark.parametrize("journal", ["true", "false"])
@pytest.mark.parametrize("rows", [0, 10])
def test_what_the_table_has_of_the_old_name_is_not_given_up(rows: int, journal: str) -> None:
    """A later rollback of it stops the renamed sink."""
    bench = Bench()
    stream = Stream(bench, user=FIRST, options={"paimon-stream.journal": journal})
    stream.batches(6)
    rollback_to(bench.table, 4, runtime=bench.runtime)
    stream.user, stream.writer = SECOND, None
    stream.options[ON_TABLE_CHANGE.key] = "continue"
    stream.batch(rows)
    register = Claims(bench.storage, identity_of(SECOND)).own()
    assert register is not None and register.given_up == ((4, 5),)
    del stream.options[ON_TABLE_CHANGE.key]
    stream.writer = None
    stream.batch(0)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    stream.writer = None
    with pytest.raises(TableRolledBack, match="was committed"):
        stream.batch()


@pytest.mark.parametrize("batches", [0, 3])
def test_only_a_checkpoint_of_another_table_is_told_to_begin_anew(
    batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(Bench(), user=FIRST)
    stream.batches(batches)
    stream.user, stream.writer, stream.next_batch = SECOND, None, 3
    assert stream.batch().outcome == "committed"
    assert ("start with a new checkpoint" in caplog.text) is (batches == 0)


def later(stream: Stream, user: str) -> Stream:
    """The query in a new run, with a sink of this name."""
    return replace(stream, user=user, writer=None, runs=stream.runs + 10)


def dies(stream: Stream, phase: Phase) -> None:
    """A run that dies at this phase of its first batch."""
    stream.start(At(phase, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.writer = None


def rolled_back_by_another_engine(bench: Bench, snapshot_id: int) -> None:
    """It leaves no note."""
    bench.storage.write("snapshot/LATEST", str(snapshot_id).encode())
    for one in bench.snapshots.ids():
        if one > snapshot_id:
            bench.storage.delete(f"snapshot/snapshot-{one}")


@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("batches", [0, 2])
def test_a_sink_that_goes_back_to_its_old_name_does_not_write_the_batch_twice(
    batches: int, expired: bool
) -> None:
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    second = later(first, SECOND)
    second.batches(batches)
    dies(second, Phase.HINTED)
    if expired:
        outage(bench)
    back = later(second, FIRST)
    for _ in range(2):
        with pytest.raises(HistoryUnknown, match="old name"):
            back.batch()
        back.writer = None
    assert later(back, SECOND).batch().outcome == "already committed"


def test_without_a_journal_a_sink_that_goes_back_to_its_old_name_writes_no_batch_twice() -> None:
    """Its register of then vouches for what it wrote under the old name alone."""
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    second = later(first, SECOND)
    second.options = {"paimon-stream.journal": "false"}
    dies(second, Phase.HINTED)
    outage(bench)
    back = later(second, FIRST)
    for _ in range(2):
        with pytest.raises(HistoryUnknown, match="old name"):
            back.batch()
        back.writer = None
    back.options = {**back.options, ON_UNKNOWN_HISTORY.key: "continue"}
    assert back.batch().outcome == "committed"


def test_what_stands_under_an_old_name_is_not_given_up_with_what_another_one_has_lost() -> None:
    """The batch just before stands. A later rollback takes it. An earlier release asked about the
    batches of each name apart.
    """
    bench = Bench()
    first = Stream(bench, user=FIRST, options={"paimon-stream.journal": "false"})
    first.batches(2)
    second = later(first, SECOND)
    second.batch()
    rollback_to(bench.table, 1, runtime=bench.runtime)
    second.options, second.writer = {**first.options, ON_TABLE_CHANGE.key: "continue"}, None
    second.batch()
    claims = Claims(bench.storage, identity_of(SECOND))
    register = claims.own()
    assert register is not None
    assert register.given_up == ((1, 2),)
    claims.register(register.schema_digest, register.journal_since, register, given_up=((2, 2),))
    third = later(second, THIRD)
    assert third.batch(0).outcome == "empty"
    register = Claims(bench.storage, identity_of(THIRD)).own()
    assert register is not None
    assert register.given_up == ((1, 2),)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    third.options, third.writer = first.options, None
    with pytest.raises(TableRolledBack, match="batch 3 was committed"):
        third.batch()


def test_what_one_rollback_took_of_two_names_is_decided_once() -> None:
    """The third name is not asked about the first name's batches again."""
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    second = later(first, SECOND)
    second.batches(2)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    second.writer = None
    with pytest.raises(TableRolledBack):
        second.batch()
    second.options, second.writer = {ON_TABLE_CHANGE.key: "continue"}, None
    second.batch()
    register = Claims(bench.storage, identity_of(SECOND)).own()
    assert register is not None
    assert register.given_up == ((1, 4),)
    third = later(second, THIRD)
    third.options = {}
    assert third.batch().outcome == "committed"
    rollback_to(bench.table, 1, runtime=bench.runtime)
    third.writer = None
    with pytest.raises(TableRolledBack, match="batch 6 was committed"):
        third.batch()


def test_what_was_given_up_under_an_old_name_does_not_make_a_later_decision_cover_more() -> None:
    """What lies between the two removals has expired. A third removal takes it."""
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("other-0")], user="another"))
    create_tag(bench.table, "begin", runtime=bench.runtime)
    first = Stream(bench, user=FIRST)
    first.batches(3)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    first.options, first.writer = {ON_TABLE_CHANGE.key: "continue"}, None
    first.batches(5)
    bench.committer().commit(bench.request(1, [bench.message("other-1")], user="another"))
    newest = bench.latest().id
    second = later(first, SECOND)
    second.options = {}
    second.batches(2)
    for snapshot_id in range(1, newest):
        bench.storage.delete(f"snapshot/snapshot-{snapshot_id}")
    rollback_to(bench.table, newest, runtime=bench.runtime)
    second.options = {ON_TABLE_CHANGE.key: "continue"}
    dies(second, Phase.JUDGED)
    register = Claims(bench.storage, identity_of(SECOND)).own()
    assert register is not None
    assert register.given_up == ((8, 9),)
    second.options = {}
    rollback_to(bench.table, "begin", runtime=bench.runtime)
    with pytest.raises(TableRolledBack, match="batch 7 was committed"):
        second.batch()


@pytest.mark.parametrize("user", [FIRST, SECOND])
def test_what_ran_again_after_a_removal_is_not_given_up_with_what_a_later_one_took(
    user: str,
) -> None:
    """What ran again has expired. A third removal takes it."""
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("other-0")], user="another"))
    create_tag(bench.table, "begin", runtime=bench.runtime)
    first = Stream(bench, user=FIRST)
    first.batches(3)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    bench.clock.sleep(3600)
    checkpoint = later(first, FIRST)
    checkpoint.next_batch = 0
    checkpoint.options = {ON_CHECKPOINT_RESET.key: "continue"}
    checkpoint.batches(8)
    bench.committer().commit(bench.request(1, [bench.message("other-1")], user="another"))
    newest = bench.latest().id
    again = later(checkpoint, user)
    again.options = {}
    again.batches(2)
    for snapshot_id in range(1, newest):
        bench.storage.delete(f"snapshot/snapshot-{snapshot_id}")
    rollback_to(bench.table, newest, runtime=bench.runtime)
    again.options = {ON_TABLE_CHANGE.key: "continue"}
    dies(again, Phase.JUDGED)
    register = Claims(bench.storage, identity_of(user)).own()
    assert register is not None
    assert register.given_up == ((0, 2), (8, 9))
    again.options = {}
    rollback_to(bench.table, "begin", runtime=bench.runtime)
    with pytest.raises((TableRolledBack, HistoryUnknown), match=r"batch 7 (was|left)"):
        again.batch()


@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_sink_that_goes_back_to_its_old_name_has_lost_what_a_rollback_took(
    journal: str, expired: bool
) -> None:
    bench = Bench()
    first = Stream(bench, user=FIRST, options={"paimon-stream.journal": journal})
    first.batches(3)
    second = later(first, SECOND)
    second.batches(3)
    rollback_to(bench.table, 4, runtime=bench.runtime)
    if expired:
        outage(bench)
    back = later(second, FIRST)
    with pytest.raises(TableRolledBack, match="batch 5 was committed"):
        back.batch()
    back = later(back, FIRST)
    back.options = {**back.options, ON_TABLE_CHANGE.key: "continue"}
    if expired and journal == "false":
        back.options[ON_UNKNOWN_HISTORY.key] = "continue"
    assert back.batch(0).outcome == "empty"
    register = Claims(bench.storage, identity_of(FIRST)).own()
    assert register is not None
    assert register.given_up == ((4, 5),)
    if not expired:
        del back.options[ON_TABLE_CHANGE.key]
        back.writer = None
        assert back.batch().outcome == "committed", "it was decided"


def test_two_sinks_stay_two_however_often_the_second_one_is_not_reached() -> None:
    """The first one often has no rows, and is called first. The runs die before the second is
    called, which has published the batch.
    """
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(2)
    second = Stream(bench, user=SECOND, next_batch=0, done_millis=first.done_millis)
    second.batches(2)
    first.batch(0)
    dies_later = replace(second, writer=second.writer)
    dies_later.batch()  # Spark has not noted it
    for run in range(2, 30):
        first.writer, first.runs, first.next_batch = None, run, 2
        assert first.batch(0).outcome == "empty"
    second.writer, second.runs = None, first.runs - 1
    assert second.batch().outcome == "already committed"
    assert first.batch().outcome == "committed"


@pytest.mark.parametrize("expired", [True, False])
def test_a_sink_whose_batches_are_few_goes_on_beside_one_with_many(expired: bool) -> None:
    bench = Bench()
    first, second = Stream(bench, user=FIRST), Stream(bench, user=SECOND)
    for run in range(6):
        first.writer = second.writer = None
        first.runs = second.runs = run
        sinks = ((first, 10 * (run == 0)), (second, 10))
        for sink, rows in sinks if run % 2 else sinks[::-1]:
            sink.batch(rows)
        if expired:
            outage(bench)
    assert first.batch().outcome == "committed"


@pytest.mark.parametrize("rows", [10, 0])
def test_what_was_prepared_before_the_sink_got_another_name_was_never_committed(rows: int) -> None:
    """Spark went on under the new name, so the batch need not be in the table under the old one."""
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    dies(first, Phase.JOURNALED)
    second = later(first, SECOND)
    second.batch(rows)
    again = later(second, SECOND)
    assert again.batch().outcome == "committed"
    assert later(again, FIRST).batch().outcome == "committed"


def test_what_was_written_in_place_of_a_prepared_batch_is_missed_under_the_old_name() -> None:
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    dies(first, Phase.JOURNALED)
    second = later(first, SECOND)
    second.batch()
    rollback_to(bench.table, 3, runtime=bench.runtime)
    with pytest.raises(TableRolledBack, match="batch 3 was committed"):
        later(second, FIRST).batch()


def test_a_sink_that_was_removed_and_is_added_again_goes_on() -> None:
    bench = Bench()
    first, second = Stream(bench, user=FIRST), Stream(bench, user=SECOND)
    for _ in range(3):
        first.batch()
        second.batch()
    first.writer = None
    dies(second, Phase.JOURNALED)
    first.runs = 8
    first.batches(2)
    first.writer, second.next_batch = None, first.next_batch
    second.runs = first.runs
    assert [one.batch().outcome for one in (first, second)] == ["committed", "committed"]


def test_a_batch_of_one_of_two_sinks_that_another_engine_took_is_missed() -> None:
    """The other one has gone on, in the same run."""
    bench = Bench()
    first, second = Stream(bench, user=FIRST), Stream(bench, user=SECOND)
    for _ in range(3):
        second.batch()
        first.batch()
    rolled_back_by_another_engine(bench, 5)
    second.writer = first.writer = None
    second.batch()
    with pytest.raises(TableRolledBack, match="batch 2 was committed"):
        first.batch()


@pytest.mark.parametrize("expired", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_what_was_decided_under_another_name_is_not_asked_again_and_a_later_loss_is(
    later: bool, expired: bool
) -> None:
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    second = replace(first, user=SECOND, writer=None, runs=first.runs + 10)
    second.options = {ON_TABLE_CHANGE.key: "continue"}
    second.batch()
    if later:
        rollback_to(bench.table, 1, runtime=bench.runtime)
    if expired:
        outage(bench)
    back = replace(second, user=FIRST, writer=None, runs=second.runs + 10, options={})
    if not later:
        assert back.batch().outcome == "committed"
        return
    with pytest.raises(TableRolledBack, match="was committed"):
        back.batch()


@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_new_sink_that_left_only_a_claim_begins(
    journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    first = Stream(bench, user=FIRST)
    first.batches(3)
    outage(bench)
    second = Stream(bench, user=SECOND, next_batch=3, done_millis=first.done_millis)
    second.options = {"paimon-stream.journal": journal}
    with monkeypatch.context() as patched:
        patched.setattr(Claims, "register", lambda *_, **__: Stream.cut())
        with pytest.raises(PowerCut):
            second.batch()
    second.writer = None
    if journal == "true":
        assert second.batch().outcome == "committed"
    else:  # nothing would show that its register was lost
        with pytest.raises(HistoryUnknown, match="no snapshot of this stream"):
            second.batch()


def test_a_sink_is_added_to_a_query_whose_checkpoint_was_let_in_after_a_reset() -> None:
    bench = Bench()
    old = Stream(bench, user="paimon-stream_q0", query_id="q0")
    old.batches(2)
    first = Stream(bench, user=FIRST)
    with pytest.raises(CheckpointReset):
        first.batch()
    first.options = {ON_CHECKPOINT_RESET.key: "continue"}
    first.writer = None
    first.batches(2)
    added = Stream(bench, user=SECOND, next_batch=2, done_millis=first.done_millis)
    assert added.batch().outcome == "committed"
    taken = Stream(bench, user=old.user, next_batch=2, done_millis=first.done_millis)
    with pytest.raises(CheckpointReset):
        taken.batch()


def test_what_another_sink_has_given_up_is_not_given_up_by_one_that_gets_a_new_name() -> None:
    """Its own batch 0 was rolled back, and that of the other one before, over which an operator let
    the stream go on. The renamed sink is judged before the other one has claimed its user.
    """
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    first, second = Stream(bench, user=FIRST), Stream(bench, user=SECOND)
    first.batch()
    second.batch()
    rollback_to(bench.table, 2, runtime=bench.runtime)
    first.start()
    first.batch(rows=0)
    second.options = {ON_TABLE_CHANGE.key: "continue"}
    second.start()
    second.batch(rows=0)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    renamed = replace(first, user=THIRD, writer=None, runs=10)
    with pytest.raises(TableRolledBack, match="batch 0 was committed"):
        renamed.batch()


@pytest.mark.parametrize("journal", ["true", "false"])
def test_a_renamed_sink_misses_what_it_wrote_in_a_branch_under_its_old_name(journal: str) -> None:
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    create_tag(bench.table, "v1", runtime=bench.runtime)
    stream = Stream(bench, user=FIRST, options={"paimon-stream.journal": journal})
    stream.batch()
    create_branch(bench.table, "x", "v1", runtime=bench.runtime)
    stream.bench, stream.writer = of_branch(bench), None
    stream.batch()
    stream.bench, stream.writer, stream.user = bench, None, SECOND
    with pytest.raises(HistoryUnknown, match="batch 1 was written in branch 'x'"):
        stream.batch()
    stream.options[ON_UNKNOWN_HISTORY.key] = "continue"
    stream.start()
    stream.batch()
    del stream.options[ON_UNKNOWN_HISTORY.key]
    stream.start()
    stream.batch()


def test_a_batch_that_a_renamed_sink_has_run_again_is_not_missed_under_the_old_name() -> None:
    """Under the old name it was published, not noted by the checkpoint, and rolled back."""
    bench = Bench()
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    stream = killed_after_publishing(bench, 0)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    stream.user = SECOND
    stream.batch()
    outage(bench)
    stream.start()
    stream.batch()
