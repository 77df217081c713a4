"""What becomes of rows that tasks of `format("paimon_stream")` have written, without Spark's
processes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")

from pyspark.sql import types as st

from paimon_stream import PaimonTable, catalog, errors
from paimon_stream.commit.report import BatchObserver, Phase
from paimon_stream.compact.rewrite import KeyedRewriter
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.spark import datasource_commit as driver
from paimon_stream.spark.batch import QueryRun, Runs
from paimon_stream.spark.datasource_task import Plan, TaskAnswer
from paimon_stream.spark.identity import ObservedQuery
from paimon_stream.stream import compacting
from paimon_stream.stream.one_batch import Rows
from paimon_stream.stream.verdicts import Batch
from paimon_stream.write.task import encode_result
from tests.kits.params import few
from tests.kits.streams import At

COLUMNS = st.StructType().add("id", "long").add("v", "string")
STREAM = {"is_stream": True, "overwrite": False}
KEYED = {"primary_keys": ["id"], "options": {"bucket": "2", "paimon-stream.compact": "off"}}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    driver._RUNS.clear()


def table(root: Path, *, keyed: bool = False, **options: str) -> PaimonTable:
    given = {"bucket": "2", **options} if keyed else options
    columns = [("id", "BIGINT NOT NULL"), ("v", "STRING")]
    return PaimonTable.create(
        str(root / "t"), columns, primary_keys=["id"] if keyed else [], options=given
    )


def rows(*ids: int, v: str = "x") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


def planned(
    of: PaimonTable, columns: st.StructType = COLUMNS, *, stream: bool = True, **options: Any
) -> Plan:
    overwrite = options.pop("overwrite", False)
    given = {"path": of.location, **{key.replace("_", "-"): one for key, one in options.items()}}
    return driver.plan(columns, given, overwrite=overwrite, is_stream=stream)


def answers(
    plan: Plan, *parts: pa.RecordBatch, batch: int = 0, run: str = "r", query: str = "q"
) -> list[TaskAnswer]:
    """What the tasks of a batch answer that have these rows each."""
    user = plan.user.replace("{}", query)
    task = replace(plan.task, spec=replace(plan.task.spec, user=user))
    made = (task.answer(plan.rows(iter([part])), number, 0) for number, part in enumerate(parts))
    return [TaskAnswer(encode_result(one), plan.for_commit, query, run) for one in made]


def commit(
    of: PaimonTable, given: Sequence[TaskAnswer | None], batch: int = 0, **options: str
) -> None:
    driver.commit_batch(given, batch, {"path": of.location, **options}, **STREAM)


def ids(of: PaimonTable) -> list[int]:
    return sorted(of.to_arrow()["id"].to_pylist())


def data_files(of: PaimonTable) -> int:
    return len(list(Path(of.location).rglob("data-*")))


@pytest.mark.full
def test_rows_of_a_key_in_several_tasks_rank_by_task(tmp_path: Path, java: Any) -> None:
    made = table(tmp_path, keyed=True)
    for batch in range(2):
        plan = planned(made)
        commit(
            made,
            answers(plan, *(rows(1, 2, 1, v=f"{batch}.{n}") for n in range(3)), batch=batch),
            batch,
        )
    assert {row["v"] for row in made.to_arrow().to_pylist()} == {"1.2"}
    assert sorted(map(repr, java.read(made.location))) == sorted(
        map(repr, made.to_arrow().to_pylist())
    )
    assert made.verify().healthy
    assert made.snapshots()[-1].properties["paimon-stream.query-id"] == "q"


def test_a_batch_that_is_in_the_table_leaves_no_file_behind(tmp_path: Path) -> None:
    made = table(tmp_path)
    first, second = (planned(made) for _ in range(2))
    assert first.recent == {}
    commit(made, answers(first, rows(1)))
    assert planned(made).recent == {("paimon-stream_q", "q"): 0}
    commit(made, answers(second, rows(1), run="later"))
    assert ids(made) == [1] and data_files(made) == 1 and len(made.snapshots()) == 1
    skipped = [TaskAnswer(None, second.for_commit, "q", "last")]
    commit(made, skipped)
    assert len(made.snapshots()) == 1


def test_a_skipped_batch_that_was_rolled_back_since_is_an_error(tmp_path: Path) -> None:
    made = table(tmp_path)
    commit(made, answers(planned(made), rows(0)), 0)
    commit(made, answers(planned(made), rows(1), batch=1), 1)
    late = [TaskAnswer(None, planned(made).for_commit, "q", "later")]
    made.rollback_to(1)
    with pytest.raises(errors.TableRolledBack):
        commit(made, late, 1)


def test_tasks_write_a_batch_again_if_an_operator_may_let_it_go_on(tmp_path: Path) -> None:
    made, checkpoint = table(tmp_path), tmp_path / "checkpoint"
    options: dict[str, Any] = {
        "checkpoint": str(checkpoint),
        "paimon-stream.on-checkpoint-reset": "continue",
    }
    (checkpoint / "offsets").mkdir(parents=True)
    for run in range(2):
        (checkpoint / "offsets" / "0").write_text(f"planned {run}")
        plan = planned(made, **options)
        assert plan.recent == {}
        commit(made, answers(plan, rows(run), run=str(run)), **options)
    assert ids(made) == [0, 1]


def test_the_checkpoint_of_another_query_is_refused(tmp_path: Path) -> None:
    made, checkpoint = table(tmp_path), tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"other"}')
    with pytest.raises(errors.InvalidOption, match="which is of query other"):
        commit(made, answers(planned(made), rows(1)), checkpoint=str(checkpoint))
    assert data_files(made) == 0 and not made.snapshots()


def test_numbers_that_others_have_used_are_a_conflict_and_the_files_go(tmp_path: Path) -> None:
    made = table(tmp_path, keyed=True)
    commit(made, answers(planned(made), rows(1)))
    made.append(pa.table({"id": [1, 2], "v": ["before"] * 2}))
    late = answers(planned(made), rows(1, 2), rows(2), batch=1)
    made.append(pa.table({"id": [1, 2], "v": ["theirs"] * 2}))
    with pytest.raises(errors.SequenceConflict):
        commit(made, late, 1)
    assert data_files(made) == len(made.files())
    driver._RUNS.clear()
    commit(made, answers(planned(made), rows(1, v="mine"), batch=1, run="again"), 1)
    assert [row["v"] for row in made.to_arrow().to_pylist() if row["id"] == 1] == ["mine"]


def test_a_failed_task_takes_the_files_of_the_others_with_it(tmp_path: Path) -> None:
    made = table(tmp_path, keyed=True)
    plan = planned(made)
    few = replace(plan, task=replace(plan.task, numbers=2))
    with pytest.raises(errors.UnsupportedFeature, match="repartition"):
        commit(made, answers(few, rows(1), rows(1, 2, 3)))
    twice = answers(plan, rows(1), rows(2))
    with pytest.raises(errors.PaimonStreamError, match="more than one result"):
        commit(made, [twice[0], *twice])
    assert data_files(made) == 0 and not made.snapshots()


def test_a_table_that_was_made_anew_meanwhile_gets_nothing(tmp_path: Path) -> None:
    made = table(tmp_path)
    given = answers(planned(made), rows(1))
    (tmp_path / "t").rename(tmp_path / "old")
    made = table(tmp_path)
    with pytest.raises(errors.TableReplaced):
        commit(made, given)
    assert not made.snapshots()


def test_an_abort_removes_files_only_if_no_commit_was_tried(tmp_path: Path) -> None:
    made = table(tmp_path)
    given = answers(planned(made), rows(1), rows(2))
    options = {"path": made.location}
    driver.abort(given, options, **STREAM)
    assert data_files(made) == 2
    driver.abort([given[0], None], options, **STREAM)
    assert data_files(made) == 1
    commit(made, answers(planned(made), rows(3)))
    driver.abort([*answers(planned(made), rows(4)), None], options, **STREAM)
    driver.abort([None, None], options, **STREAM)
    assert ids(made) == [3] and data_files(made) == 2


def test_a_batch_without_a_partition_is_nothing_in_append_mode_and_an_error_in_complete_mode(
    tmp_path: Path,
) -> None:
    made = table(tmp_path)
    commit(made, [None])
    assert not made.snapshots()
    with pytest.raises(errors.IdentityUnknown):
        driver.commit_batch([None], 0, {"path": made.location}, is_stream=True, overwrite=True)


def test_a_continuous_trigger_is_refused_because_its_rows_reach_no_task(tmp_path: Path) -> None:
    made, offsets = table(tmp_path), tmp_path / "checkpoint" / "offsets"
    with pytest.raises(errors.UnsupportedFeature, match="continuous trigger"):
        commit(made, [None, None])
    offsets.mkdir(parents=True)
    for second, fails in (('{"batchWatermarkMs":0}', False), ("", True)):
        (offsets / "0").write_text(f'v1\n{second}\n{{"0":1}}')
        with pytest.raises(errors.UnsupportedFeature) if fails else nullcontext():
            commit(made, [None], checkpoint=str(offsets.parent))


def test_each_batch_of_complete_mode_is_the_whole_table(tmp_path: Path) -> None:
    made = table(tmp_path, keyed=True)
    for batch, part in enumerate([rows(1, 2), rows(2, 3), rows()]):
        given = answers(planned(made, overwrite=True), part, batch=batch)
        driver.commit_batch(given, batch, {"path": made.location}, is_stream=True, overwrite=True)
        assert ids(made) == part["id"].to_pylist()


@pytest.mark.parametrize(
    "options",
    few(
        [
            {"merge-engine": "first-row"},
            {"changelog-producer": "lookup"},
            {"changelog-producer": "input"},
            {"deletion-vectors.enabled": "true"},
            {"bucket": "-2", "write-only": "true"},
        ],
        lambda options: "changelog-producer" not in options and "bucket" not in options,
    ),
    ids=lambda one: next(iter(one)) + "-" + next(iter(one.values())),
)
def test_a_table_that_needs_its_compaction_gets_it_behind_the_batch(
    tmp_path: Path, java: Any, options: dict[str, str]
) -> None:
    made = table(tmp_path, keyed=True, **options)
    for batch in range(2):
        parts = [rows(batch, 1, v=f"{batch}.{n}") for n in range(2)]
        commit(made, answers(planned(made), *parts, batch=batch), batch)
    found = {row["id"]: row["v"] for row in java.read(made.location)}
    if "bucket" in options:
        assert found == {}
        made.compact()
        found = {row["id"]: row["v"] for row in java.read(made.location)}
    assert found == {0: "0.0", 1: "0.0"} if "merge-engine" in options else {0: "0.1", 1: "1.1"}
    assert {row["id"]: row["v"] for row in made.to_arrow().to_pylist()} == found


def test_a_compaction_gets_its_share_of_the_time_since_a_batch_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite, wait = KeyedRewriter.rewrite, compacting.wait
    is_waited_for, seconds = threading.Event(), list[float]()

    def rewrite_once_it_is_waited_for(*given: Any) -> Any:
        assert is_waited_for.wait(900), "nobody waits for the compaction"
        return rewrite(*given)

    def note_and_wait(futures: Any, left: float) -> Any:
        seconds.append(left)
        is_waited_for.set()
        return wait(futures, left)

    monkeypatch.setattr(KeyedRewriter, "rewrite", rewrite_once_it_is_waited_for)
    monkeypatch.setattr(compacting, "wait", note_and_wait)
    made = table(tmp_path, keyed=True, **{"bucket": "1", "num-sorted-run.compaction-trigger": "2"})
    commit(made, answers(planned(made), rows(1)))
    driver._RUNS.clear()  # Spark ends a process that has been idle for a minute
    file = Path(made.location) / "snapshot" / "snapshot-1"
    then = json.loads(file.read_bytes())
    file.write_text(json.dumps({**then, "timeMillis": then["timeMillis"] - 60_000}))
    commit(made, answers(planned(made), rows(1), batch=1), 1)
    assert seconds[0] > 2
    assert [one.commit_kind for one in made.snapshots()][-1] == CommitKind.COMPACT


def observed(
    of: PaimonTable,
    given: Sequence[TaskAnswer],
    batch: int,
    observer: BatchObserver,
    keep: Callable[[], object],
) -> Runs:
    """Commits a batch in a new process, whose steps are told to an observer."""
    settings, _, _ = driver.settings_of({"path": of.location}, **STREAM)
    settings = replace(settings, observer=observer)
    runs, observed = Runs(), ObservedQuery(query_id="q", run_id="r", name=None, checkpoint=None)

    def rows_of(run: QueryRun) -> Rows:
        task_rows = driver.TaskRows(
            sink=settings, answers=given, for_commit=given[0].for_commit, run=run, keep=keep
        )
        return Rows(write=task_rows.write, again=False)

    with runs.reporting_failures(of.location, batch):
        runs.run_batch(Batch(batch_id=batch), observed, settings, "paimon-stream_q", rows_of)
    return runs


def test_an_error_after_publishing_is_not_logged_as_if_nothing_were_in_the_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = table(tmp_path)
    given = answers(planned(made), rows(1))

    def fail() -> None:
        raise ValueError("the observer")

    with pytest.raises(ValueError, match="the observer"):
        observed(made, given, 0, At(Phase.PUBLISHED, fail), list)
    assert ids(made) == [1]
    (line,) = [one.getMessage() for one in caplog.records if one.name == "paimon_stream"]
    assert "Nothing of it is visible" not in line
    assert "looks for the batch in the table before it writes it" in line


def test_a_batch_does_not_fail_because_the_time_of_the_batch_before_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshot cannot be read while the compaction is told of it, and not longer."""
    made = table(tmp_path, keyed=True)
    commit(made, answers(planned(made), rows(1)))
    given = answers(planned(made), rows(2), batch=1)
    file = Path(made.location) / "snapshot" / "snapshot-1"
    whole = file.read_bytes()
    of_newer_release = json.dumps({**json.loads(whole), "version": 99})
    steps: list[str] = []

    class Breaks:
        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is Phase.JUDGED:
                file.write_text(of_newer_release)
            elif phase is Phase.WRITTEN:
                file.write_bytes(whole)

    def keep() -> None:
        steps.append(caplog.text)

    observed(made, given, 1, Breaks(), keep)
    assert ids(made) == [1, 2]
    (logged_before,) = steps
    assert "snapshot-1" in logged_before


@pytest.mark.parametrize(("write_only", "left"), [("false", [3, 4]), ("true", [1, 2, 3, 4])])
def test_batches_expire_old_snapshots_unless_other_jobs_do(
    tmp_path: Path, write_only: str, left: list[int]
) -> None:
    few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    made = table(tmp_path, **few, **{"write-only": write_only})
    for batch in range(4):
        commit(made, answers(planned(made), rows(batch), batch=batch), batch)
    assert [one.id for one in made.snapshots()] == left and ids(made) == [0, 1, 2, 3]
    (runs,) = driver._RUNS.values()
    assert runs.metrics.values()["expiredSnapshots"] == 4 - len(left)


def test_complete_results_are_refused_by_a_sink_that_upserts(tmp_path: Path) -> None:
    sink, *_ = driver.settings_of(
        {"path": table(tmp_path, keyed=True).location}, overwrite=False, is_stream=True
    )
    observed = ObservedQuery(query_id="q", output_mode="complete")
    with pytest.raises(errors.UnsupportedFeature, match=r"the sink upserts.*mode='complete'"):
        Runs().run_batch(
            Batch(batch_id=0), observed, sink, "me", lambda run: pytest.fail(repr(run))
        )


# -- batch writes
# ---------------------------------------------------------------------------------------


def batch_write(
    of: PaimonTable, plan: Plan, given: Sequence[TaskAnswer | None], **options: Any
) -> None:
    overwrite = options.pop("overwrite", False)
    named = {"path": of.location, **{key.replace("_", "-"): one for key, one in options.items()}}
    driver.commit_rows(plan, given, named, overwrite=overwrite, is_stream=False)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_batch_write_with_an_identifier_is_done_once(tmp_path: Path, overwrite: bool) -> None:
    made = table(tmp_path, keyed=True)
    options = {"commit_user": "job", "commit_identifier": "7", "overwrite": overwrite}
    for _ in range(2):
        plan = planned(made, stream=False, **options)
        batch_write(made, plan, answers(plan, rows(1), rows(2)), **options)
    assert [(one.commit_user, one.commit_identifier) for one in made.snapshots()] == [("job", 7)]
    assert ids(made) == [1, 2] and data_files(made) == 2


def test_a_batch_write_that_loses_its_numbers_leaves_no_file(tmp_path: Path) -> None:
    made = table(tmp_path, keyed=True)
    plan = planned(made, stream=False)
    given = answers(plan, rows(1))
    made.append(pa.table({"id": [1], "v": ["theirs"]}))
    with pytest.raises(errors.SequenceConflict):
        batch_write(made, plan, given)
    assert data_files(made) == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_batch_write_puts_nothing_into_a_table_that_was_made_anew(
    tmp_path: Path, overwrite: bool
) -> None:
    made = table(tmp_path)
    plan = planned(made, stream=False, overwrite=overwrite)
    given = answers(plan, rows(1))
    (tmp_path / "t").rename(tmp_path / "old")
    made = table(tmp_path)
    with pytest.raises(errors.TableReplaced):
        batch_write(made, plan, given, overwrite=overwrite)
    assert not made.snapshots()


# -- what is refused
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"commit-usr": "x"}, errors.InvalidOption, "Did you mean 'commit-user'?"),
        ({"commit-identifier": "1"}, errors.InvalidOption, "commit-identifier"),
        (
            {"paimon-stream.jurnal": "x"},
            errors.InvalidOption,
            "Did you mean 'paimon-stream.journal'?",
        ),
        ({"target-file-sise": "1 mb"}, errors.InvalidOption, "Did you mean 'target-file-size'?"),
        ({"target-file-size": "big"}, errors.InvalidOption, "target-file-size"),
        ({"paimon-stream.merge-schema": "add"}, errors.UnsupportedFeature, "PaimonSink"),
        ({"paimon-stream.shuffle": "bucket"}, errors.UnsupportedFeature, "PaimonSink"),
        ({"s3.access-key": "x"}, errors.InvalidOption, "s3.access-key"),
        ({"path": ""}, errors.InvalidOption, "TEMPORARY VIEW"),
        ({"paths": '["a", "b"]'}, errors.InvalidOption, "Name the folder of one table"),
        ({"branch": "other", "path": "a$branch_b"}, errors.InvalidOption, "branch"),
        ({"path": "/nowhere/t"}, errors.NotFound, "/nowhere/t"),
    ],
)
def test_a_mistake_in_the_options_is_named(
    tmp_path: Path, options: dict[str, str], error: type[Exception], told: str
) -> None:
    made = table(tmp_path)
    with pytest.raises(error) as caught:
        driver.plan(COLUMNS, {"path": made.location, **options}, **STREAM)
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["x", "1.5", "9" * 20, str(2**63 - 1)])
def test_a_commit_identifier_is_a_whole_number(tmp_path: Path, text: str) -> None:
    with pytest.raises(errors.InvalidOption, match="commit-identifier"):
        planned(table(tmp_path), stream=False, commit_user="job", commit_identifier=text)


def test_options_of_a_store_are_told_from_those_of_the_table() -> None:
    from paimon_stream.spark.datasource_options import divided

    given = {
        "path": "s3://bucket/t",
        "s3.access-key": "k",
        "region": "r",
        "bucket": "4",
        "commit-user": "u",
    }
    found = divided(
        {**given, "paimon-stream.store.timeout": "5 s", "checkpointlocation": "c"}, ["commit-user"]
    )
    assert found.location == "s3://bucket/t"
    assert found.own == {"commit-user": "u", "path": "s3://bucket/t", "checkpointlocation": "c"}
    assert found.table == {"bucket": "4", "paimon-stream.store.timeout": "5 s"}
    assert {"s3.access-key", "region"} <= found.storage.keys()
    assert "'k'" not in repr(found)
    with pytest.raises(errors.InvalidOption, match=r"s3\.acess-key"):
        driver.settings_of({"path": "s3://bucket/t", "s3.acess-key": "k"}, **STREAM)


def test_a_table_is_found_by_its_name_in_a_catalog_with_what_opens_it(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    from paimon_stream.spark.datasource_options import divided

    warehouse = {"warehouse": str(tmp_path)}
    locked = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c", "lock.enabled": "true"}
    for options in (warehouse, warehouse | locked):
        shop = catalog(options)
        shop.create_database("shop", ignore_if_exists=True)
        shop.create_table("shop.orders", [("id", "BIGINT")], ignore_if_exists=True)
        found = divided({"path": "shop.orders", "bucket": "1", **options}, [])
        assert found.location == shop.location("shop.orders") and found.table == {"bucket": "1"}
        assert found.storage == (options if options is not warehouse else {})
    assert divided({"path": found.location, **warehouse}, []).location == found.location
    with pytest.raises(errors.InvalidOption, match="'orders' is not the name of a table"):
        divided({"path": "orders", **warehouse}, [])


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (st.StructType().add("id", "long"), "lacks column 'v'"),
        (st.StructType().add("id", "long").add("v", "string").add("w", "long"), "'w'"),
        (st.StructType().add("id", "string").add("v", "string"), "could lose values"),
        (st.StructType().add("id", "long").add("v", "long"), "Cast the column"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_a_row_is_written(
    tmp_path: Path, columns: st.StructType, told: str
) -> None:
    with pytest.raises(errors.IncompatibleSchema) as caught:
        planned(table(tmp_path), columns)
    assert told in str(caught.value)


def test_numbers_become_wider_and_columns_that_may_lack_are_null(tmp_path: Path) -> None:
    made = table(tmp_path)
    plan = planned(
        made, st.StructType().add("ID", "integer"), **{"paimon-stream.missing-columns": "null"}
    )
    options = {"paimon-stream.missing-columns": "null"}
    commit(
        made,
        answers(plan, pa.RecordBatch.from_pydict({"ID": pa.array([5], pa.int32())})),
        **options,
    )
    assert made.to_arrow().to_pylist() == [{"id": 5, "v": None}]


def test_a_column_says_what_each_row_does(tmp_path: Path) -> None:
    made = table(tmp_path, keyed=True)
    options = {"paimon-stream.operation-column": "op"}
    columns = st.StructType().add("Op", "string").add("v", "string").add("id", "long")
    for batch, op in enumerate("cd"):
        part = pa.RecordBatch.from_pydict({"Op": [op] * 2, "v": ["x"] * 2, "id": [1, 2 + batch]})
        commit(
            made, answers(planned(made, columns, **options), part, batch=batch), batch, **options
        )
    assert ids(made) == [2]


def test_a_table_whose_keys_get_their_buckets_by_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.UnsupportedFeature, match="PaimonSink"):
        planned(table(tmp_path, keyed=True, bucket="-1"))


def test_a_stream_writes_to_a_branch_under_its_name_and_notes_what_its_checkpoint_says(
    tmp_path: Path,
) -> None:
    made = table(tmp_path)
    made.create_branch("audit")
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":7}\n{}\n')
    options = {
        "branch": "audit",
        "name": "second",
        "checkpointlocation": str(checkpoint),
        "queryname": "orders",
    }
    commit(made, answers(planned(made, **options), rows(1)), **options)
    snapshot = PaimonTable.load(made.location, branch="audit").snapshots()[-1]
    assert snapshot.commit_user == "paimon-stream_q_second" and snapshot.watermark == 7
    assert snapshot.properties["paimon-stream.checkpoint"] == str(checkpoint)
    assert snapshot.properties["paimon-stream.query-name"] == "orders"
    assert len(snapshot.properties["paimon-stream.offsets-hash"]) == 64
    assert not made.snapshots()


@pytest.mark.parametrize("known", ["", "register", "option", "decision"])
def test_a_later_batch_needs_a_checkpoint_or_a_table_that_knows_the_query(
    tmp_path: Path, known: str
) -> None:
    made, options = table(tmp_path), dict[str, str]()
    if known == "option":
        options["checkpoint"] = str(tmp_path / "checkpoint")
    elif known == "decision":
        options["paimon-stream.on-table-change"] = "continue"
    elif known:
        commit(made, answers(planned(made), rows(0)), 0)
        driver._RUNS.clear()
    given = answers(planned(made, **options), rows(1), batch=1, run="later")
    with nullcontext() if known else pytest.raises(errors.IdentityUnknown, match="checkpoint"):
        commit(made, given, 1, **options)
    assert data_files(made) == len(made.to_arrow())
    assert (ids(made)[-1:] == [1]) is bool(known)


@pytest.mark.parametrize("whose", ["q", "another"])
def test_the_checkpoint_below_the_sessions_folder_counts_if_it_is_the_querys(
    tmp_path: Path, whose: str
) -> None:
    made, folder = table(tmp_path), tmp_path / "ck" / "ticks"
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": whose}))
    options = {"queryname": "ticks"}
    given = answers(planned(made, **options), rows(1))
    commit(made, [replace(one, checkpoints=f"{tmp_path}/ck/") for one in given], **options)
    (snapshot,) = made.snapshots()
    place = str(folder) if whose == "q" else None
    assert snapshot.properties.get("paimon-stream.checkpoint") == place
