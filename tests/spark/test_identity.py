"""The identity of the query: what a batch function can find out, and its error if it cannot."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread, inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from paimon_stream.errors import IdentityUnknown, InvalidOption
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.spark.identity import ObservedQuery, commit_user, keeps_state, observe_query


@pytest.fixture(scope="module")
def source(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("identity") / "in")
    spark_session.range(4).coalesce(1).write.parquet(path)
    return path


def run(
    spark: SparkSession,
    source: str,
    checkpoint: str,
    body: Callable[[DataFrame, int], Any],
    *,
    counted: bool = False,
) -> tuple[Any, list[Any]]:
    """Runs one batch. Returns the query and what `body` returned."""
    seen: list[Any] = []
    frame = spark.readStream.schema("id long").parquet(source)
    if counted:
        frame = frame.groupBy("id").count()
    writer = frame.writeStream.foreachBatch(lambda df, n: seen.append(body(df, n)))
    writer = writer.outputMode("update" if counted else "append").queryName("the_query")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return query, seen


@pytest.mark.spark35
def test_a_batch_knows_its_query_run_name_mode_checkpoint_and_that_it_keeps_no_state(
    spark_session: SparkSession, source: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c k%20ä"

    def body(df: DataFrame, _: int) -> tuple[ObservedQuery, bool | None]:
        observed = observe_query(df, None)
        return observed, keeps_state(df, observed)

    query, ((observed, state),) = run(spark_session, source, str(checkpoint), body)
    assert (observed.query_id, observed.run_id, observed.name) == (
        str(query.id),
        str(query.runId),
        "the_query",
    )
    assert (observed.output_mode, state) == ("append", False)
    assert observed.checkpoint.root == str(checkpoint)
    assert observed.checkpoint.query_id() == str(query.id)
    assert len(observed.checkpoint.offsets_hash(0)) == 64
    assert observed.checkpoint.last_done_millis(1) > 1_600_000_000_000
    assert observed.checkpoint.has_state() is False


@pytest.mark.spark35
def test_an_aggregation_is_seen_to_keep_state_by_its_plan_and_by_its_checkpoint(
    spark_session: SparkSession, source: str, tmp_path: Path
) -> None:
    def body(df: DataFrame, _: int) -> tuple[ObservedQuery, bool | None, bool | None]:
        observed = observe_query(df, None)
        planned = keeps_state(df, replace(observed, checkpoint=None))
        df.collect()
        return observed, planned, keeps_state(df, replace(observed, query_id=None))

    cut = "spark.sql.maxPlanStringLength"
    spark_session.conf.set(cut, "60")
    try:
        _, (found,) = run(spark_session, source, str(tmp_path / "ck"), body, counted=True)
    finally:
        spark_session.conf.unset(cut)
    assert (found[0].output_mode, *found[1:]) == ("update", True, True)
    assert found[0].checkpoint.has_state() is True


@pytest.mark.full
def test_a_plain_thread_does_not_know_its_query_but_an_inheritable_one_does(
    spark_session: SparkSession, source: str, tmp_path: Path
) -> None:
    def in_thread(
        kind: type[threading.Thread], df: DataFrame, checkpoint: str | None
    ) -> ObservedQuery:
        found: list[ObservedQuery] = []
        thread = kind(target=lambda: found.append(observe_query(df, checkpoint)))
        thread.start()
        thread.join()
        return found[0]

    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()  # its thread began before the query

    def body(df: DataFrame, _: int) -> list[ObservedQuery]:
        wrapped = inheritable_thread_target(df.sparkSession)(partial(observe_query, df, None))
        return [
            in_thread(threading.Thread, df, None),
            in_thread(InheritableThread, df, None),
            in_thread(threading.Thread, df, str(tmp_path / "ck")),
            pool.submit(wrapped).result(),
        ]

    query, ((plain, inheritable, with_checkpoint, in_pool),) = run(
        spark_session, source, str(tmp_path / "ck"), body
    )
    assert plain.query_id is None
    pool.shutdown()
    assert inheritable.query_id == in_pool.query_id == str(query.id)
    assert (with_checkpoint.query_id, with_checkpoint.run_id) == (str(query.id), str(query.runId))
    with pytest.raises(
        IdentityUnknown, match=r"InheritableThread.*inheritable_thread_target.*commit_user"
    ):
        commit_user(plain, None, None, None)


@pytest.mark.full
def test_the_checkpoint_of_another_query_is_refused(
    spark_session: SparkSession, source: str, tmp_path: Path
) -> None:
    run(spark_session, source, str(tmp_path / "one"), lambda df, _: None)

    def body(df: DataFrame, _: int) -> None:
        with pytest.raises(InvalidOption, match="is of query"):
            observe_query(df, str(tmp_path / "one"))

    run(spark_session, source, str(tmp_path / "two"), body)


def test_a_checkpoint_of_another_query_is_no_checkpoint_of_this_one(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000001"}')
    context, key = spark_session.sparkContext, "sql.streaming.queryId"
    context.setLocalProperty(key, "00000000-0000-0000-0000-000000000002")
    try:
        with pytest.raises(InvalidOption, match=r"is of query 0.*1, but it is used in query 0.*2"):
            observe_query(spark_session.range(1), str(tmp_path))
    finally:
        context.setLocalProperty(key, None)


@pytest.mark.spark35
def test_a_plain_dataframe_belongs_to_no_query(spark_session: SparkSession) -> None:
    frame = spark_session.range(1)
    assert observe_query(frame, None) == ObservedQuery()
    assert keeps_state(frame, ObservedQuery()) is None


def test_the_commit_user_is_the_given_one_or_made_of_query_and_name() -> None:
    observed = ObservedQuery(query_id="q")
    assert commit_user(observed, None, None, None) == "paimon-stream_q"
    assert commit_user(observed, None, "second", None) == "paimon-stream_q_second"
    assert commit_user(observed, None, "second", "etl") == "etl_q_second"
    assert commit_user(ObservedQuery(), "mine", None, None) == "mine"


def test_a_checkpoint_is_read_as_spark_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets" / "3").write_text(
        'v1\n{"batchWatermarkMs":1500,"batchTimestampMs":9}\n{"logOffset":0}'
    )
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":0}')
    checkpoint = open_checkpoint(f"file://{tmp_path}")
    assert checkpoint.root == str(tmp_path)
    assert checkpoint.query_id() == "q"
    assert (checkpoint.watermark(3), checkpoint.watermark(4), checkpoint.watermark(5)) == (
        1500,
        None,
        None,
    )
    assert checkpoint.offsets_hash(3) != checkpoint.offsets_hash(4)
    assert checkpoint.offsets_hash(5) is None
    assert checkpoint.last_done_millis(4) is None


def test_a_batch_comes_after_the_newest_earlier_one_that_the_checkpoint_notes_as_done(
    tmp_path: Path,
) -> None:
    commits = tmp_path / "commits"
    commits.mkdir()
    for batch in (0, 2, 9):
        (commits / str(batch)).write_text("v1\n{}")
        os.utime(commits / str(batch), (1_700_000_000 + batch,) * 2)
    (commits / ".8.crc").write_text("no batch")
    checkpoint = open_checkpoint(str(tmp_path))
    assert [checkpoint.last_done_millis(batch) for batch in (0, 1, 2, 3, 5, 10)] == [
        None,
        1_700_000_000_000,
        1_700_000_000_000,
        1_700_000_002_000,
        1_700_000_002_000,
        1_700_000_009_000,
    ]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"id":7}'])
def test_a_broken_checkpoint_is_an_unknown_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metadata").write_bytes(content)
    assert open_checkpoint(str(tmp_path)).query_id() is None


def test_a_checkpoint_on_a_foreign_storage_is_an_unknown_one() -> None:
    checkpoint = open_checkpoint("hdfs://name/ck/")
    assert checkpoint.root == "hdfs://name/ck"
    assert (checkpoint.query_id(), checkpoint.has_state(), checkpoint.offsets_hash(0)) == (
        None,
        None,
        None,
    )
