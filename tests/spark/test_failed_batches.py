"""What a user sees of a batch that fails: one line in the log, and the exception on the sink."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql import DataFrame

from paimon_stream import PaimonSink, errors
from tests.kits.params import few
from tests.kits.spark_jobs import Job


@pytest.mark.spark35
def test_a_failed_batch_leaves_one_error_line_and_its_exception(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.create([("id", "BIGINT"), ("day", "STRING NOT NULL")])
    job.add_files(2)
    sink = job.sink()
    assert sink.last_error is None

    def write(frame: DataFrame, batch_id: int) -> None:
        sink(frame.selectExpr("id", "if(id = 7, null, day) day"), batch_id)

    with caplog.at_level(logging.ERROR):
        job.run_failing(write)
    ours = [one for one in caplog.records if one.name.startswith("paimon_stream")]
    assert [one.name for one in ours] == ["paimon_stream"]
    assert [one.name for one in caplog.records if one.name.startswith("py4j")] == []
    line = ours[0].getMessage()
    for part in ("NullInNotNull: Batch 1", str(job.table), "'day'"):
        assert line.count(part) == 1
    assert "\n" not in line
    assert isinstance(sink.last_error, errors.NullInNotNull)
    assert sink.last_error.context["batch"] == 1
    job.run(sink)
    assert sink.last_error is None


@pytest.mark.spark35
def test_what_is_not_ours_is_named_with_table_and_batch(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.create()
    job.add_files(1)

    sink = job.sink()
    with caplog.at_level(logging.ERROR):
        job.run_failing(
            sink, frame=job.stream().selectExpr("id", "string(raise_error('the user')) day")
        )
    (line,) = [one.getMessage() for one in caplog.records if one.name == "paimon_stream"]
    assert f": Batch 0 of {job.table} failed in Spark" in line
    assert sink.last_error is not None and line.startswith(type(sink.last_error).__name__)


@pytest.mark.parametrize("batch_id", [-1, None, True, 1.0, "0", 2**63 - 1, 2**63])
def test_a_batch_id_that_spark_never_gives_is_refused(job: Job, batch_id: Any) -> None:
    job.create()
    with pytest.raises(errors.InvalidOption, match="batch id"):
        PaimonSink(str(job.table), commit_user="me")(job.spark.range(1), batch_id)
    assert not job.load().snapshots()


@pytest.mark.parametrize("wrong", [{"before_commit": "x"}, {"on_commit": 5}])
def test_what_cannot_be_called_is_refused_when_the_sink_is_made(
    job: Job, wrong: dict[str, Any]
) -> None:
    with pytest.raises(
        errors.InvalidOption, match=f"{next(iter(wrong))} is .*Give a function, or leave it out"
    ):
        PaimonSink(str(job.table), **wrong)


@pytest.mark.parametrize("wrong", few([123, None, b"/t"], lambda wrong: wrong == 123))
def test_a_location_that_is_no_text_is_refused_when_the_sink_is_made(wrong: Any) -> None:
    with pytest.raises(errors.InvalidOption, match="location"):
        PaimonSink(wrong)
