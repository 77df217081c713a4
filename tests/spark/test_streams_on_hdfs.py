"""Spark's streams with the table and the checkpoint on one HDFS: a torn stream goes on, the doctor says so
before, and `format("paimon_stream")` writes and reads.
"""

from __future__ import annotations

from typing import Any

import pytest

import paimon_stream
from paimon_stream import PaimonSink, PaimonTable
from paimon_stream.cli import main
from paimon_stream.storage.uri import open_folder
from tests.kits.hdfs import MiniHdfs
from tests.kits.spark_jobs import COLUMNS, ROWS_PER_FILE, TIMEOUT_SECONDS, Job

pytestmark = pytest.mark.hdfs


def doctor(*arguments: str) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    return int(ended.value.code or 0)


def test_a_torn_stream_goes_on_and_the_doctor_says_so_before(
    job: Job, hdfs_server: MiniHdfs, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its newest batch is in the table, and not in Spark's commit log."""
    location, options = hdfs_server.place()
    checkpoint, _ = hdfs_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    sink = PaimonSink(location, storage_options=options, on_commit=job.reports.append)
    job.add_files(2)
    job.run(sink, checkpoint=checkpoint)  # type: ignore[arg-type]
    torn = open_folder(checkpoint, options)
    torn.delete("commits/1")
    torn.delete("commits/.1.crc")

    assert doctor("--checkpoint", checkpoint, location) == 0
    said = capsys.readouterr().out
    assert "batch 1" in said and checkpoint in said
    assert doctor(location) == 0

    job.add_files(1)
    job.run(sink, checkpoint=checkpoint)  # type: ignore[arg-type]
    assert [report.identifier for report in job.reports] == [0, 1, 1, 2]
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(3 * ROWS_PER_FILE))
    assert [snapshot.commit_identifier for snapshot in table.snapshots()] == [0, 1, 2]
    assert table.verify().healthy


def test_a_checkpoint_without_a_scheme_is_read_where_spark_keeps_it(
    job: Job,
    hdfs_server: MiniHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Spark's default file system is HDFS. The doctor has no session, and reads Hadoop's files."""
    location, _ = hdfs_server.place()
    whole, _ = hdfs_server.place()
    checkpoint = whole.removeprefix(hdfs_server.url)
    PaimonTable.create(location, COLUMNS)
    job.add_files(1)
    rows = job.spark.readStream.schema(job.schema).parquet(f"file://{job.root}/source")
    job.spark.conf.set("fs.defaultFS", hdfs_server.url)
    try:
        sink = PaimonSink(location, checkpoint=checkpoint)
        run(rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint), None)
    finally:
        job.spark.conf.unset("fs.defaultFS")
    assert open_folder(whole, {}).exists("commits/0")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs_server.conf))
    for arguments in ((location,), ("--checkpoint", checkpoint, location)):
        assert doctor(*arguments) == 0
        said = capsys.readouterr().out
        assert whole in said and "Batch 1 is not in the table" in said, said


def test_the_data_source_writes_a_stream_and_reads_batches_and_streams(
    job: Job, hdfs_server: MiniHdfs
) -> None:
    pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")
    paimon_stream.register(job.spark)
    location, options = hdfs_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options)
    job.add_files(2)
    for _ in range(2):
        writer = job.stream().writeStream.format("paimon_stream")
        run(writer.option("checkpointLocation", hdfs_server.place()[0]), location)
    written = sorted([*range(2 * ROWS_PER_FILE)] * 2)
    assert sorted(table.to_arrow()["id"].to_pylist()) == written
    rows = job.spark.read.format("paimon_stream").load(location)
    assert sorted(row.id for row in rows.select("id").collect()) == written

    seen = job.spark.readStream.format("paimon_stream").load(location)
    run(seen.writeStream.format("memory").queryName("seen_on_hdfs"), None)
    assert sorted(row.id for row in job.spark.table("seen_on_hdfs").collect()) == written


def run(writer: Any, location: str | None) -> None:
    """Runs a query to its end."""
    query = writer.trigger(availableNow=True).start(*[location] if location else [])
    try:
        assert query.awaitTermination(TIMEOUT_SECONDS), "the query hangs"
    finally:
        query.stop()
