"""Every verdict on a replay, in real queries. After each, Java Paimon reads the table.

No row may be lost or doubled without an error."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from pyspark.sql import DataFrame

from paimon_stream import PaimonSink, errors
from paimon_stream.commit.report import Phase
from tests.kits.params import few
from tests.kits.spark_audit import (
    At,
    SecondDriver,
    assert_reports,
    doctor,
    expire_ours,
    failing,
    ids_of,
    java_ids,
    names_in,
    replace_table,
)
from tests.kits.spark_jobs import Job, copy_folder, forget

BUCKETED = {"bucket": "2", "bucket-key": "id"}


def outcomes(job: Job) -> list[str]:
    return [report.outcome for report in job.reports]


def continuing(option: str) -> dict[str, str]:
    return {f"paimon-stream.{option}": "continue"}


# -- replays ------------------------------------------------------------------------------------


@pytest.mark.spark35
@pytest.mark.parametrize(
    "options",
    few([{}, BUCKETED, {"paimon-stream.journal": "false"}], lambda options: options is BUCKETED),
)
def test_a_replayed_batch_is_there_once(job: Job, java: Any, options: dict[str, str]) -> None:
    own = {key: value for key, value in options.items() if key.startswith("paimon-stream.")}
    job.create(partition_keys=["day"], options={k: v for k, v in options.items() if k not in own})
    job.add_files(2)
    job.run(job.sink(options=own))
    assert job.forget_last_batch() == 1
    before = names_in(job.table)
    assert doctor(job, own) == "already committed"
    job.run(job.sink(options=own))
    assert outcomes(job) == ["committed", "committed", "already committed"]
    assert {name for name in names_in(job.table) ^ before if "claim-" not in name} == set()
    assert java_ids(java, job) == ids_of(0, 1)
    job.add_files(1)
    job.run(job.sink(options=own))
    assert java_ids(java, job) == ids_of(0, 1, 2)


@pytest.mark.full
def test_a_batch_replayed_after_others_wrote_is_there_once(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    job.run()
    java.write(job.table, [{"id": -1, "day": "x"}], commit_identifier=7)
    java.compact(job.table)
    job.forget_last_batch()
    job.run()
    assert outcomes(job)[-1] == "already committed"
    assert java_ids(java, job) == [-1, *ids_of(0, 1)]


# -- two drivers on one checkpoint --------------------------------------------------------------

BEFORE_PUBLISHING = [
    Phase.BATCH_STARTED,
    Phase.JUDGED,
    Phase.WRITTEN,
    Phase.JOURNALED,
    Phase.BASE_READ,
    Phase.STAGED,
]


@pytest.mark.parametrize(
    "phase",
    few(BEFORE_PUBLISHING, lambda phase: phase is Phase.STAGED),
    ids=[phase.value for phase in BEFORE_PUBLISHING],
)
def test_of_two_drivers_on_one_checkpoint_the_slower_one_stops(
    job: Job, java: Any, phase: Phase
) -> None:
    """The second driver has committed batch 1 by the time the first one, in its own, reaches
    `phase`.
    """
    job.create(options=BUCKETED)
    job.add_files(2)
    second = SecondDriver(job)
    observer = At(phase, 1, lambda: second.replay(1))
    error = failing(job, job.sink(observer=observer))
    assert_reports(error, errors.SharedCheckpoint, job.table, "batch 1", "second-run", "snapshot 2")
    assert java_ids(java, job) == ids_of(0, 1)
    job.add_files(1)
    job.run()
    assert outcomes(job) == ["committed", "already committed", "committed"]
    assert java_ids(java, job) == ids_of(0, 1, 2)
    live = {file["fileName"] for file in java.files(job.table)}
    assert job.data_files() == live, (
        "what the slower one wrote is removed, once its batch is known to stand"
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "phase", [Phase.BATCH_STARTED, Phase.JUDGED, Phase.STAGED], ids=lambda p: p.value
)
def test_two_drivers_that_begin_together_write_the_first_batch_once(
    job: Job, java: Any, phase: Phase
) -> None:
    job.create()
    job.add_files(1)
    sink = job.sink(observer=At(phase, 0, lambda: SecondDriver(job).replay(0)))
    if phase is Phase.BATCH_STARTED:
        job.run(sink)  # it finds the batch committed by another run, as after a restart
        assert outcomes(job) == ["already committed"]
    else:
        assert_reports(failing(job, sink), errors.SharedCheckpoint, job.table, "batch 0")
    assert java_ids(java, job) == ids_of(0)
    job.run()
    assert java_ids(java, job) == ids_of(0)


@pytest.mark.full
def test_a_second_driver_that_comes_after_publishing_finds_the_batch_committed(
    job: Job, java: Any
) -> None:
    job.create()
    job.add_files(2)
    found: list[str] = []
    at = At(Phase.PUBLISHED, 1, lambda: found.append(SecondDriver(job).replay(1)))
    job.run(job.sink(observer=at))
    assert found == ["already committed"]
    assert java_ids(java, job) == ids_of(0, 1)


# -- checkpoints copied, rewound, wiped ---------------------------------------------------------


def test_a_copied_checkpoint_may_not_write_what_its_original_wrote(job: Job, java: Any) -> None:
    job.create()
    job.add_files(1)
    job.run()
    copy = job.root / "copy"
    copy_folder(job.checkpoint, copy)
    job.add_files(1)
    job.run()
    error = failing(job, checkpoint=copy)
    assert_reports(error, errors.CheckpointRewound, job.table, "batch 1", "on-checkpoint-reset")
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
def test_a_copy_taken_while_a_batch_ran_replays_it_as_a_restart_would(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    job.run()
    job.forget_last_batch()  # offsets/1 is there and the same: this is the same batch
    copy = job.root / "copy"
    copy_folder(job.checkpoint, copy)
    job.run(checkpoint=copy)
    job.run()
    assert outcomes(job) == ["committed", "committed", "already committed", "already committed"]
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.parametrize(
    "user",
    [pytest.param(None, id="unnamed"), pytest.param("etl", id="named", marks=pytest.mark.full)],
)
def test_a_wiped_checkpoint_stops_until_an_operator_decides(
    job: Job, java: Any, user: str | None
) -> None:
    job.create()
    job.add_files(2)
    job.run(job.sink(commit_user=user))
    first = json.loads((job.checkpoint / "metadata").read_text())["id"]
    shutil.rmtree(job.checkpoint)
    for _ in range(2):  # on every restart
        error = failing(job, job.sink(commit_user=user))
        assert_reports(
            error, errors.CheckpointReset, job.table, "batch 0", first, "on-checkpoint-reset"
        )
        assert java_ids(java, job) == ids_of(0, 1)
    job.run(job.sink(commit_user=user, options=continuing("on-checkpoint-reset")))
    assert java_ids(java, job) == ids_of(0, 0, 1, 1), "as decided: the source is written again"
    job.add_files(1)
    job.run(job.sink(commit_user=user))  # the decision is needed once
    job.forget_last_batch()
    job.run(job.sink(commit_user=user))
    assert outcomes(job)[-1] == "already committed"
    assert java_ids(java, job) == ids_of(0, 0, 1, 1, 2)


@pytest.mark.full
def test_a_wiped_checkpoint_is_noticed_even_if_all_its_snapshots_expired(
    job: Job, java: Any
) -> None:
    job.create()
    job.add_files(1)
    job.run()
    expire_ours(java, job)
    shutil.rmtree(job.checkpoint)
    assert_reports(failing(job), errors.CheckpointReset, job.table)
    assert java_ids(java, job) == [-1, *ids_of(0)]


@pytest.mark.parametrize("back", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_rewound_checkpoint_stops_until_an_operator_decides(
    job: Job, java: Any, back: int
) -> None:
    job.create(options=BUCKETED)
    job.add_files(3)
    job.run()
    for _ in range(back):
        forget(job.checkpoint / "commits")
        forget(job.checkpoint / "offsets")
    first = 3 - back
    assert doctor(job) == "CheckpointRewound"
    error = failing(job)
    assert_reports(
        error, errors.CheckpointRewound, job.table, f"batch {first}", "on-checkpoint-reset"
    )
    assert java_ids(java, job) == ids_of(0, 1, 2)
    assert doctor(job, continuing("on-checkpoint-reset")) == "fresh"
    job.run(job.sink(options=continuing("on-checkpoint-reset")))
    again = list(range(first, 3))
    assert java_ids(java, job) == ids_of(0, 1, 2, *again), (
        "as decided: these batches are written again"
    )
    job.add_files(1)
    job.run()
    job.forget_last_batch()
    job.run()
    assert java_ids(java, job) == ids_of(0, 1, 2, *again, 3)


# -- our snapshots have expired -----------------------------------------------------------------


@pytest.mark.parametrize("replayed", few([True, False], bool), ids=["replay", "new batch"])
def test_with_the_journal_a_stream_goes_on_although_its_snapshots_expired(
    job: Job, java: Any, replayed: bool
) -> None:
    job.create()
    job.add_files(2)
    job.run()
    expire_ours(java, job)
    if replayed:
        job.forget_last_batch()
        assert doctor(job) == "already committed"
        job.run()
        assert outcomes(job)[-1] == "already committed"
        assert java_ids(java, job) == [-1, *ids_of(0, 1)]
    job.add_files(1)
    assert doctor(job) == "fresh"
    job.run()
    assert java_ids(java, job) == [-1, *ids_of(0, 1, 2)]


@pytest.mark.full
def test_an_expired_batch_whose_files_were_compacted_away_is_in_doubt(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    job.run()
    java.compact(job.table)
    expire_ours(java, job)
    job.forget_last_batch()
    assert doctor(job) == "HistoryUnknown"
    error = failing(job)
    assert_reports(
        error,
        errors.HistoryUnknown,
        job.table,
        "batch 1",
        "none of its files",
        "on-unknown-history",
    )
    assert java_ids(java, job) == [-1, *ids_of(0, 1)]


@pytest.mark.parametrize("replayed", few([True, False], bool), ids=["replay", "new batch"])
def test_without_the_journal_expired_snapshots_leave_doubt(
    job: Job, java: Any, replayed: bool
) -> None:
    off = {"paimon-stream.journal": "false"}
    job.create()
    job.add_files(2)
    job.run(job.sink(options=off))
    expire_ours(java, job)
    if replayed:
        job.forget_last_batch()
    else:
        job.add_files(1)
    assert doctor(job, off) == "HistoryUnknown"
    error = failing(job, job.sink(options=off))
    batch = "batch 1" if replayed else "batch 2"
    assert_reports(
        error,
        errors.HistoryUnknown,
        job.table,
        batch,
        "on-unknown-history",
        "snapshot.time-retained",
    )
    assert java_ids(java, job) == [-1, *ids_of(0, 1)]
    job.run(job.sink(options={**off, **continuing("on-unknown-history")}))
    assert java_ids(java, job) == [-1, *ids_of(0, 1, 1 if replayed else 2)], "as decided"


# -- the table was replaced ---------------------------------------------------------------------


def test_a_table_replaced_while_the_stream_was_down_stops_it(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    job.run()
    replace_table(job)
    job.add_files(1)
    error = failing(job)
    assert_reports(error, errors.TableReplaced, job.table, "batch 2", "on-table-change")
    assert java_ids(java, job) == []
    job.run(job.sink(options=continuing("on-table-change")))
    assert java_ids(java, job) == ids_of(2)
    job.add_files(1)
    job.run()  # the decision is needed once
    assert java_ids(java, job) == ids_of(2, 3)


WHILE_RUNNING = [Phase.BATCH_STARTED, Phase.JUDGED, Phase.WRITTEN, Phase.JOURNALED, Phase.STAGED]


@pytest.mark.parametrize(
    "phase",
    few(WHILE_RUNNING, lambda phase: phase is Phase.STAGED),
    ids=[phase.value for phase in WHILE_RUNNING],
)
def test_a_table_replaced_while_the_stream_runs_gets_nothing_of_it(
    job: Job, java: Any, phase: Phase
) -> None:
    job.create()
    job.add_files(2)
    error = failing(job, job.sink(observer=At(phase, 1, lambda: replace_table(job))))
    assert_reports(error, errors.TableReplaced, job.table)
    assert java_ids(java, job) == []
    assert java.snapshots(job.table) == []
    assert_reports(failing(job), errors.TableReplaced, "batch 1")  # on every restart
    assert java_ids(java, job) == []
    job.run(job.sink(options=continuing("on-table-change")))
    assert java_ids(java, job) == ids_of(1)


@pytest.mark.full
def test_an_operator_may_let_a_running_stream_follow_its_table(job: Job, java: Any) -> None:
    job.create()
    job.add_files(3)
    observer = At(Phase.BATCH_STARTED, 1, lambda: replace_table(job))
    job.run(job.sink(observer=observer, options=continuing("on-table-change")))
    assert java_ids(java, job) == ids_of(1, 2)


@pytest.mark.full
def test_a_table_that_vanishes_while_the_stream_runs_is_said_to_be_missing(job: Job) -> None:
    job.create()
    job.add_files(2)
    error = failing(
        job, job.sink(observer=At(Phase.BATCH_STARTED, 1, lambda: shutil.rmtree(job.table)))
    )
    assert_reports(error, errors.NotFound, "Batch 1", job.table)


# -- the table was rolled back ------------------------------------------------------------------


@pytest.mark.parametrize(
    "refilled",
    [
        pytest.param(False, id="shorter"),
        pytest.param(True, id="ids taken again", marks=pytest.mark.full),
    ],
)
def test_a_table_rolled_back_while_the_stream_was_down_stops_it(
    job: Job, java: Any, refilled: bool
) -> None:
    job.create(options=BUCKETED)
    job.add_files(2)
    job.run()
    java.rollback_to(job.table, 1)
    kept = ids_of(0)
    if refilled:
        java.write(job.table, [{"id": -1, "day": "x"}], commit_identifier=1)
        kept = [-1, *kept]
    job.add_files(1)
    kind = (
        errors.CommitLost if refilled else errors.TableRolledBack
    )  # or Java has replaced the snapshot
    assert_reports(failing(job), kind, job.table, "batch 2", "on-table-change")
    assert java_ids(java, job) == kept
    job.run(job.sink(options=continuing("on-table-change")))
    assert java_ids(java, job) == sorted([*kept, *ids_of(2)])
    job.add_files(1)
    job.run()
    assert java_ids(java, job) == sorted([*kept, *ids_of(2, 3)])


@pytest.mark.full
def test_a_table_rolled_back_to_before_the_stream_stops_it(job: Job, java: Any) -> None:
    job.create()
    java.write(job.table, [{"id": -1, "day": "x"}], commit_identifier=1)
    job.add_files(2)
    job.run()
    java.rollback_to(job.table, 1)
    job.add_files(1)
    assert_reports(failing(job), errors.TableRolledBack, job.table, "batch 2")
    assert java_ids(java, job) == [-1]


@pytest.mark.full
def test_the_batch_that_was_rolled_back_is_written_again_if_spark_replays_it(
    job: Job, java: Any
) -> None:
    """Nothing is lost: the one batch that the rollback removed is the one that comes again."""
    job.create()
    job.add_files(2)
    job.run()
    java.rollback_to(job.table, 1)
    job.forget_last_batch()
    job.run()
    assert outcomes(job)[-1] == "committed"
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
@pytest.mark.parametrize(
    "phase",
    [Phase.BATCH_STARTED, Phase.WRITTEN, Phase.STAGED],
    ids=["batch-started", "written", "staged"],
)
def test_a_table_rolled_back_while_the_stream_runs_stops_it(
    job: Job, java: Any, phase: Phase
) -> None:
    job.create()
    job.add_files(3)
    observer = At(phase, 2, lambda: java.rollback_to(job.table, 1))
    error = failing(job, job.sink(observer=observer))
    if phase is Phase.BATCH_STARTED or isinstance(error, errors.TableRolledBack):
        assert_reports(error, errors.TableRolledBack, job.table)
    else:
        # Its snapshot was public for a moment, on top of nothing, and somebody may have built on
        # it. What the judgement saw is the base for a second, so the same may happen while files
        # are written.
        assert_reports(
            error, errors.CommitUnknown, job.table, "commit 2", caused_by="TableRolledBack: "
        )
    assert java_ids(java, job) == ids_of(0)
    assert_reports(failing(job), errors.TableRolledBack, "batch 2")  # on every restart
    assert java_ids(java, job) == ids_of(0)


# -- several sinks ------------------------------------------------------------------------------


def both(first: Any, second: Any) -> Any:
    def write(df: DataFrame, batch_id: int) -> None:
        first(df, batch_id)
        second(df, batch_id)

    return write


@pytest.mark.full
def test_two_sinks_without_names_are_refused_on_every_restart(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    for _ in range(2):
        error = failing(job, both(job.sink(), job.sink()))
        assert_reports(error, errors.DuplicateWriter, job.table, "name=")
        assert java_ids(java, job) == ids_of(0), "the first sink wrote its batch, once"
    job.run(both(job.sink(), job.sink(name="second")))
    assert java_ids(java, job) == ids_of(0, 0, 1, 1), "each sink's rows once"


@pytest.mark.full
def test_naming_both_sinks_afterwards_does_not_double_what_the_first_one_wrote(
    job: Job, java: Any
) -> None:
    """Whose batch 0 is in the table cannot be distinguished from a new name."""
    job.create()
    job.add_files(2)
    failing(job, both(job.sink(), job.sink()))
    named = both(job.sink(name="one"), job.sink(name="two"))
    assert_reports(failing(job, named), errors.HistoryUnknown, job.table, "batch 0", "old name")
    assert java_ids(java, job) == ids_of(0)
    job.run(both(job.sink(), job.sink(name="two")))
    assert java_ids(java, job) == ids_of(0, 0, 1, 1)


@pytest.mark.parametrize("options", few([{}, BUCKETED], bool), ids=["no buckets", "buckets"])
def test_two_named_sinks_each_finish_their_own_part_of_a_batch(
    job: Job, java: Any, options: dict[str, str]
) -> None:
    """The query dies between the two sinks. The restart skips the first and writes the second."""
    job.create(options=options)
    job.add_files(2)

    def stop() -> None:
        raise OSError("power cut")

    one, two = job.sink(name="one"), job.sink(name="two", observer=At(Phase.BATCH_STARTED, 1, stop))
    assert "power cut" in str(failing(job, both(one, two)))
    assert java_ids(java, job) == ids_of(0, 0, 1)
    job.add_files(1)
    job.run(both(job.sink(name="one"), job.sink(name="two")))
    assert java_ids(java, job) == ids_of(0, 0, 1, 1, 2, 2)
    assert outcomes(job)[3:5] == ["already committed", "committed"]


@pytest.mark.full
def test_two_new_named_sinks_of_which_one_was_faster_go_on_from_the_first_batch(
    job: Job, java: Any
) -> None:
    job.create()
    job.add_files(1)

    def stop() -> None:
        raise OSError("power cut")

    two = job.sink(name="two", observer=At(Phase.BATCH_STARTED, 0, stop))
    failing(job, both(job.sink(name="one"), two))
    job.run(both(job.sink(name="one"), job.sink(name="two")))
    assert java_ids(java, job) == ids_of(0, 0)


@pytest.mark.full
def test_one_sink_on_two_queries_writes_for_both(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    sink = job.sink()
    trigger = {"availableNow": True}
    queries = [
        sink.start(job.stream(), checkpoint=str(job.root / name), trigger=trigger)
        for name in ("a", "b")
    ]
    for query in queries:
        assert query.awaitTermination(900)
    assert java_ids(java, job) == ids_of(0, 0, 1, 1)
    assert len({snapshot["commitUser"] for snapshot in java.snapshots(job.table)}) == 2


@pytest.mark.parametrize(
    "shared",
    [
        pytest.param(True, id="one sink", marks=pytest.mark.full),
        pytest.param(False, id="two sinks"),
    ],
)
def test_a_commit_user_given_to_two_queries_is_refused_for_the_second(
    job: Job, java: Any, shared: bool
) -> None:
    job.create()
    job.add_files(2)
    first = job.sink(commit_user="etl")
    second = first if shared else job.sink(commit_user="etl")
    job.run(first, checkpoint=job.root / "a")
    error = failing(job, second, checkpoint=job.root / "b")
    assert_reports(error, errors.CheckpointReset, job.table, "'etl'")
    assert java_ids(java, job) == ids_of(0, 1)
    job.add_files(1)
    job.run(first, checkpoint=job.root / "a")
    assert java_ids(java, job) == ids_of(0, 1, 2)


@pytest.mark.full
def test_a_commit_user_given_to_two_queries_at_once_writes_each_batch_once(
    job: Job, java: Any
) -> None:
    """The second query is judged while the first has not published anything yet."""
    job.create()
    job.add_files(1)
    sink = job.sink(commit_user="etl")
    inner: list[str] = []

    def other_query() -> None:
        inner.append(job.run_failing(sink, checkpoint=job.root / "b"))

    first = PaimonSink(str(job.table), commit_user="etl", observer=At(Phase.JUDGED, 0, other_query))
    job.run(first, checkpoint=job.root / "a")
    assert "CheckpointReset" in inner[0]
    assert java_ids(java, job) == ids_of(0)
