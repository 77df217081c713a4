"""Each wrong input ends in an error of ours that names table, batch, column, count and cure.
Nothing of the batch is visible, and Java Paimon reads the table as before. Once the cause is
removed, the stream continues.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from paimon_stream import CommitReport, PaimonSink, PaimonTable, errors
from paimon_stream.commit.report import Phase
from tests.kits.params import few
from tests.kits.spark_audit import At, assert_reports, failing, ids_of, java_ids
from tests.kits.spark_jobs import Job

NULL = {"paimon-stream.missing-columns": "null"}
"""The batches here have two columns of WIDE's six."""

WIDE = [
    ("id", "BIGINT NOT NULL"),
    ("day", "STRING"),
    ("price", "DECIMAL(6, 2)"),
    ("at", "TIMESTAMP(6)"),
    ("seen", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("small", "SMALLINT"),
]


def from_batch(first: int, change: Callable[[DataFrame], DataFrame], sink: PaimonSink) -> Any:
    """A foreachBatch function that changes what arrives, from one batch on."""

    def write(df: DataFrame, batch_id: int) -> None:
        sink(change(df) if batch_id >= first else df, batch_id)

    return write


# -- columns ------------------------------------------------------------------------------------

UNFIT = {
    "a missing NOT NULL column": (
        lambda df: df.drop("id"),
        "'id'",
        ("lacks column 'id'", "BIGINT NOT NULL"),
    ),
    "an unknown column": (
        lambda df: df.withColumn("colour", f.lit("red")),
        "'colour'",
        ("no column 'colour'",),
    ),
    "a misspelt column": (
        lambda df: df.withColumnRenamed("day", "dya"),
        "'dya'",
        ("did you mean 'day'?",),
    ),
    "an ambiguous column": (
        lambda df: df.select("id", "day", f.col("day").alias("DAY")),
        "'DAY'",
        ("'day' and 'DAY'", "spark.sql.caseSensitive"),
    ),
    "a fraction for a whole number": (
        lambda df: df.withColumn("id", f.col("id").cast("double")),
        "'id'",
        ("'id' is double", "lose values"),
    ),
    "text for a number": (
        lambda df: df.withColumn("small", f.col("day")),
        "'small'",
        ("'small' is string", "SMALLINT"),
    ),
    "a wider whole number": (
        lambda df: df.withColumn("small", f.col("id")),
        "'small'",
        ("'small' is bigint", "SMALLINT", "lose values"),
    ),
    "more digits before the point": (
        lambda df: df.withColumn("price", f.lit("12345.67").cast("decimal(7,2)")),
        "'price'",
        ("decimal(7,2)", "DECIMAL(6, 2)", "lose values"),
    ),
    "more digits behind the point": (
        lambda df: df.withColumn("price", f.lit("1.234").cast("decimal(4,3)")),
        "'price'",
        ("decimal(4,3)", "DECIMAL(6, 2)"),
    ),
    "a moment for a wall clock time": (
        lambda df: df.withColumn("at", f.current_timestamp()),
        "'at'",
        ("'at' is timestamp,", "time zone", "cast it yourself"),
    ),
    "a wall clock time for a moment": (
        lambda df: df.withColumn("seen", f.lit("2024-01-01 00:00:00").cast("timestamp_ntz")),
        "'seen'",
        ("'seen' is timestamp_ntz", "time zone", "cast it yourself"),
    ),
    "a list for text": (
        lambda df: df.withColumn("day", f.array("day")),
        "'day'",
        ("'day' is array<string>",),
    ),
}


@pytest.mark.parametrize("case", few(UNFIT, lambda case: case == "a wider whole number"))
def test_columns_that_do_not_fit_are_refused_and_named(job: Job, java: Any, case: str) -> None:
    change, column, parts = UNFIT[case]
    job.create(WIDE)
    job.add_files(2)
    error = failing(job, from_batch(1, change, job.sink(options=NULL)))
    assert_reports(
        error,
        errors.IncompatibleSchema,
        "Batch 1",
        job.table,
        column,
        *parts,
        "Nothing was written",
    )
    assert_reports(error, errors.IncompatibleSchema, "Select, rename or cast")
    assert java_ids(java, job) == ids_of(0)
    assert len(job.data_files()) == 1


@pytest.mark.full
def test_all_reasons_are_in_one_message(job: Job) -> None:
    job.create(WIDE)
    job.add_files(1)
    change = lambda df: df.select(f.lit("x").alias("price"), f.lit(1).alias("colour"))  # noqa: E731
    error = failing(job, from_batch(0, change, job.sink(options=NULL)))
    assert_reports(error, errors.IncompatibleSchema, "'price'", "'colour'", "lacks column 'id'")


@pytest.mark.full
@pytest.mark.parametrize("sensitive", [False, True])
def test_the_case_of_column_names_counts_as_it_does_in_spark(
    job: Job, java: Any, sensitive: bool
) -> None:
    job.create()
    job.add_files(1)
    upper = from_batch(0, lambda df: df.toDF("ID", "Day"), job.sink())
    job.spark.conf.set("spark.sql.caseSensitive", str(sensitive).lower())
    try:
        if sensitive:
            assert_reports(failing(job, upper), errors.IncompatibleSchema, "no column 'ID'")
        else:
            job.run(upper)
    finally:
        job.spark.conf.unset("spark.sql.caseSensitive")
    assert java_ids(java, job) == ([] if sensitive else ids_of(0))


@pytest.mark.full
def test_what_is_narrower_fits_and_a_missing_nullable_column_is_null(job: Job, java: Any) -> None:
    job.create(WIDE)
    job.add_files(1)
    change = lambda df: df.select(  # noqa: E731
        f.col("id").cast("int"),
        f.lit(1).cast("tinyint").alias("small"),
        f.lit("1.5").cast("decimal(2,1)").alias("price"),
        f.lit("2024-02-29").cast("date").alias("at"),
    )
    job.run(from_batch(0, change, job.sink(options=NULL)))
    rows = java.read(job.table)
    assert sorted(row["id"] for row in rows) == ids_of(0)
    assert {str(row["price"]) for row in rows} == {"1.50"}
    assert {row["small"] for row in rows} == {1}
    assert {row["at"].isoformat() for row in rows} == {"2024-02-29T00:00:00"}
    assert {row["day"] for row in rows} == {None}


# -- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    few([{}, {"bucket": "2", "bucket-key": "id"}], bool),
    ids=["no buckets", "buckets"],
)
def test_null_in_a_not_null_column_is_counted(job: Job, java: Any, options: dict[str, str]) -> None:
    job.create(WIDE, options=options)
    job.add_files(2)
    holes = lambda df: df.withColumn("id", f.when(f.col("id") % 2 == 0, f.col("id")))  # noqa: E731
    error = failing(job, from_batch(1, holes, job.sink(options=NULL)))
    assert_reports(
        error, errors.NullInNotNull, "Batch 1", job.table, "'id'", "NULL in 3 rows.", "coalesce()"
    )
    assert java_ids(java, job) == ids_of(0)
    assert job.data_files() == {file["fileName"] for file in java.files(job.table)}
    job.run(from_batch(1, lambda df: df.where("id is not null"), job.sink(options=NULL)))
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
def test_what_spark_itself_cannot_compute_is_sparks_own_error(job: Job, java: Any) -> None:
    """A decimal that overflows inside the user's query never reaches the sink."""
    job.create(WIDE)
    job.add_files(2)
    overflowing = f.expr("if(id >= 6, raise_error('out of range'), 1)").cast("decimal(6,2)")
    error = failing(
        job, from_batch(1, lambda df: df.withColumn("price", overflowing), job.sink(options=NULL))
    )
    assert "out of range" in str(error)
    assert "paimon_stream.errors" not in str(error)
    assert java_ids(java, job) == ids_of(0)


# -- options ------------------------------------------------------------------------------------


def test_an_unknown_sink_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(
        errors.InvalidOption, match=r"Did you mean 'paimon-stream\.on-table-change'"
    ):
        PaimonSink("t", options={"paimon-stream.on-table-chnage": "continue"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("paimon-stream.journal", "yes"),
        ("paimon-stream.on-table-change", "ignore"),
        ("bucket", "many"),
    ],
)
def test_an_option_that_does_not_parse_is_refused_with_its_value(key: str, value: str) -> None:
    with pytest.raises(errors.InvalidOption, match=f"{key}' is '{value}'"):
        PaimonSink("t", options={key: value})


@pytest.mark.full
def test_an_unknown_table_option_is_warned_of_once_and_kept(job: Job, java: Any) -> None:
    with pytest.warns(
        UserWarning, match=r"Unknown option 'traget-file-size'\. Did you mean 'target-file-size'"
    ):
        job.create(options={"traget-file-size": "1 mb"})
    with pytest.warns(UserWarning, match="Unknown option 'bukcet'"):
        sink = job.sink(options={"bukcet": "2"})
    job.add_files(1)
    job.run(sink)
    assert java_ids(java, job) == ids_of(0)
    assert java.schema(job.table)["options"]["traget-file-size"] == "1 mb"


def test_a_sink_option_is_refused_as_a_table_option(job: Job) -> None:
    with pytest.raises(errors.InvalidOption, match="Give it to PaimonSink"):
        job.create(options={"paimon-stream.journal": "false"})


# -- tables that are not there, or not to be written ---------------------------------------------

PLAIN = [("id", "BIGINT"), ("day", "STRING")]
UNWRITABLE = {
    "local times in orc": (
        [("id", "BIGINT"), ("day", "STRING"), ("at", "TIMESTAMP(6) WITH LOCAL TIME ZONE")],
        [],
        {"file.format": "orc"},
        "orc.timestamp-ltz.legacy.type",
    ),
    "frames of videos": (PLAIN, [], {"video-frame-field": "day"}, "video-frame-field"),
}


@pytest.mark.parametrize("case", few(UNWRITABLE, lambda case: case == "frames of videos"))
def test_a_table_of_java_that_cannot_be_written_is_refused_and_stays_as_it_is(
    job: Job, java: Any, case: str
) -> None:
    columns, keys, options, message = UNWRITABLE[case]
    java.create_table(job.table, columns, primary_keys=keys, options=options)
    java.write(job.table, [{"id": -1}], commit_identifier=1)
    before = {str(path) for path in job.table.rglob("*")}
    job.add_files(1)
    with pytest.raises(errors.UnsupportedFeature, match=message) as refused:
        job.sink().start(job.stream(), checkpoint=str(job.checkpoint))
    assert str(job.table) in str(refused.value)
    assert not job.checkpoint.exists()
    assert_reports(failing(job), type(refused.value), "Batch 0", job.table, message)
    assert {str(path) for path in job.table.rglob("*")} == before
    assert java_ids(java, job) == [-1]


@pytest.mark.full
def test_a_missing_table_is_said_to_be_missing_and_nothing_is_made(job: Job) -> None:
    job.add_files(1)
    error = failing(job)
    assert_reports(error, errors.NotFound, "Batch 0", job.table, "PaimonTable.create", "schema-0")
    assert not job.table.parent.exists()
    job.create()
    job.run()
    assert job.ids() == ids_of(0)


@pytest.mark.spark35
def test_a_batch_outside_of_a_query_has_no_identity(job: Job) -> None:
    job.create()
    with pytest.raises(errors.IdentityUnknown, match="foreachBatch"):
        job.sink()(job.spark.range(1).withColumn("day", f.lit("x")), 0)
    assert job.data_files() == set()


# -- the storage --------------------------------------------------------------------------------


def _mount(*arguments: object) -> bool:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder refuses all writes. For root that needs a mount."""
    if os.geteuid() != 0:
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        try:
            yield
        finally:
            for path in folders:
                path.chmod(0o755)
        return
    if not shutil.which("mount") or not _mount("--bind", folder, folder):
        pytest.skip("a read-only folder needs a user other than root, or the right to mount")
    try:
        if not _mount("-o", "remount,bind,ro", folder):
            pytest.skip("read-only mounts are not allowed here")
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """The folder is a disk of that size."""
    folder.mkdir(parents=True)
    if not shutil.which("mount") or not _mount(
        "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder
    ):
        pytest.skip("a small disk needs the right to mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """This process cannot write a file beyond that size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.full
def test_a_read_only_folder_is_said_to_be_read_only(job: Job, java: Any) -> None:
    job.create()
    job.add_files(1)
    job.run()
    job.add_files(1)
    with read_only(job.table):
        error = failing(job)
        assert java_ids(java, job) == ids_of(0)
    reason = "the file system is read-only" if os.geteuid() == 0 else "permission denied"
    assert_reports(error, errors.PermissionDenied, "Batch 1", job.table, reason)
    job.run()
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
def test_a_file_where_a_folder_is_needed_is_named(job: Job, java: Any) -> None:
    job.create(partition_keys=["day"])
    job.add_files(2)

    def swap(df: DataFrame) -> DataFrame:
        return df.withColumn("day", f.lit("blocked"))

    obstacle = job.table / "day=blocked"
    obstacle.write_text("not a folder")
    error = failing(job, from_batch(1, swap, job.sink()))
    assert_reports(
        error, errors.AlreadyExists, "Batch 1", obstacle, "is a file, where a folder is needed"
    )
    assert java_ids(java, job) == ids_of(0)
    obstacle.unlink()
    job.run(from_batch(1, swap, job.sink()))
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
def test_a_disk_that_fills_up_while_rows_are_written_stops_the_batch_cleanly(
    job: Job, java: Any
) -> None:
    with small_disk(job.table, "1m"):
        job.create()
        job.add_files(1)
        noise = random.Random(1)
        job.write_source(
            1, pa.table({"id": range(6, 12), "day": [noise.randbytes(400_000).hex()] * 6})
        )
        different = lambda df: df.withColumn("day", f.concat("day", f.col("id").cast("string")))  # noqa: E731
        error = failing(job, from_batch(1, different, job.sink()))
        assert_reports(
            error, errors.NoSpace, "Batch 1", job.table, "the disk is full", "Free space"
        )
        assert java_ids(java, job) == ids_of(0)
        assert job.data_files() == {file["fileName"] for file in java.files(job.table)}
        assert _mount("-o", "remount,size=50m", job.table)
        job.run(from_batch(1, different, job.sink()))
        assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.parametrize(
    "phase",
    few([Phase.WRITTEN, Phase.JOURNALED, Phase.STAGED], lambda phase: phase is Phase.STAGED),
    ids=["written", "journaled", "staged"],
)
def test_a_disk_that_is_full_when_the_batch_is_committed_stops_it_cleanly(
    job: Job, java: Any, phase: Phase
) -> None:
    job.create()
    job.add_files(2)
    limit = files_of_at_most(64)

    class FullFrom:
        def reached(self, reached: Phase, identifier: int) -> None:
            if (reached, identifier) == (phase, 1):
                limit.__enter__()

    sink = job.sink(observer=FullFrom())

    def write(df: DataFrame, batch_id: int) -> None:
        try:
            sink(df, batch_id)
        finally:
            if batch_id == 1:
                limit.__exit__(None, None, None)

    error = failing(job, write)
    assert_reports(error, errors.NoSpace, "Batch 1", job.table, "Raise that limit")
    assert java_ids(java, job) == ids_of(0)
    assert [snapshot["id"] for snapshot in java.snapshots(job.table)] == [1]
    job.run()
    assert java_ids(java, job) == ids_of(0, 1)
    assert job.data_files() == {file["fileName"] for file in java.files(job.table)}


# -- broken metadata ----------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    path.write_bytes(b"\x00garbage\xff" * 20)


def remove(path: Path) -> None:
    path.unlink()


def newest(job: Job, key: str) -> Path:
    """The manifest list that the newest snapshot names under that key."""
    snapshot = max(job.load().snapshots(), key=lambda one: one.id)
    return job.table / "manifest" / getattr(snapshot, key)


def a_manifest(job: Job) -> Path:
    return next(path for path in (job.table / "manifest").iterdir() if "list" not in path.name)


def journal(job: Job, name: str) -> Path:
    (folder,) = (job.table / "_paimon_stream").iterdir()
    return folder / name


METADATA: dict[str, Callable[[Job], Path]] = {
    "snapshot": lambda job: job.table / "snapshot" / "snapshot-2",
    "base list": lambda job: newest(job, "base_manifest_list"),
    "delta list": lambda job: newest(job, "delta_manifest_list"),
    "manifest": a_manifest,
    "schema": lambda job: job.table / "schema" / "schema-0",
    "journal": lambda job: journal(job, "1"),
    "register": lambda job: journal(job, "writer"),
}
MAY_BE_MISSING = {"journal", "register", "snapshot", "schema"}


@pytest.mark.parametrize("which", few(METADATA, lambda which: which == "journal"))
def test_broken_metadata_stops_the_stream_until_it_is_restored(
    job: Job, java: Any, which: str
) -> None:
    job.create(options={"bucket": "2", "bucket-key": "id"})
    job.add_files(2)
    job.run()
    job.forget_last_batch()  # so that the journal of batch 1 is looked at
    if which not in ("journal", "snapshot"):
        job.run()
        job.add_files(1)
    batch = "1" if which in ("journal", "snapshot") else "2"
    path = METADATA[which](job)
    whole = path.read_bytes()
    for harm in (cut, garble) if which in MAY_BE_MISSING else (cut, garble, remove):
        harm(path)
        error = failing(job)
        assert_reports(error, errors.CorruptMetadata, f"atch {batch}", job.table, path.name)
        assert not [
            name for name in ("struct.error", "json.decoder", "EOFError") if name in str(error)
        ]
        path.write_bytes(whole)
        assert java_ids(java, job) == ids_of(0, 1), harm
    job.add_files(1)
    job.run()
    assert java_ids(java, job)[:12] == ids_of(0, 1)
    assert len(java_ids(java, job)) == 6 * len(list((job.root / "source").iterdir()))


@pytest.mark.full
def test_a_missing_first_schema_of_an_altered_table_is_named(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    java.alter_table(job.table, ("set", "snapshot.time-retained", "2 h"))
    first = job.table / "schema" / "schema-0"
    whole = first.read_bytes()
    observer = At(Phase.BATCH_STARTED, 1, first.unlink)
    assert_reports(
        failing(job, job.sink(observer=observer)), errors.CorruptMetadata, "Batch 1", first
    )
    first.write_bytes(whole)
    job.run()
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
def test_hints_that_are_wrong_or_missing_disturb_nobody(job: Job, java: Any) -> None:
    job.create()
    job.add_files(1)
    job.run()
    (job.table / "snapshot" / "LATEST").write_text("99")
    (job.table / "snapshot" / "EARLIEST").write_text("none")
    job.add_files(1)
    job.run()
    (job.table / "snapshot" / "LATEST").unlink()
    job.add_files(1)
    job.run()
    assert java_ids(java, job) == ids_of(0, 1, 2)


@pytest.mark.full
def test_without_its_own_memory_a_stream_learns_from_the_snapshots(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    job.run()
    shutil.rmtree(job.table / "_paimon_stream")
    job.forget_last_batch()
    job.add_files(1)
    job.run()
    assert [report.outcome for report in job.reports[2:]] == ["already committed", "committed"]
    assert java_ids(java, job) == ids_of(0, 1, 2)


@pytest.mark.full
def test_the_cure_for_a_broken_journal_doubles_nothing(job: Job, java: Any) -> None:
    """With its entry gone and its snapshots expired, the batch is in doubt, not new."""
    job.create()
    job.add_files(2)
    job.run()
    job.forget_last_batch()
    java.write(job.table, [{"id": -1, "day": "x"}], commit_identifier=1)
    java.expire_snapshots(job.table, retain_max=1)
    garble(journal(job, "1"))
    assert_reports(
        failing(job),
        errors.CorruptMetadata,
        "atch 1",
        "Move it away, and the file 'writer' beside it",
    )
    journal(job, "1").unlink()
    journal(job, "writer").unlink()
    assert_reports(failing(job), errors.HistoryUnknown, "batch 1")
    assert java_ids(java, job) == [-1, *ids_of(0, 1)]


# -- the user's own functions -------------------------------------------------------------------


@pytest.mark.full
def test_a_veto_leaves_nothing_of_its_batch_and_the_next_run_asks_again(
    job: Job, java: Any
) -> None:
    job.create()
    job.add_files(2)
    asked: list[int] = []

    def second_only(messages: Any) -> None:
        asked.append(sum(file.row_count for message in messages for file in message.new_files))
        if len(asked) == 2:
            raise ValueError("quota of the day")

    error = failing(job, job.sink(before_commit=second_only))
    cause = "ValueError: quota of the day"
    assert_reports(
        error, errors.CommitVetoed, "batch 1", job.table, "Nothing was published", caused_by=cause
    )
    assert java_ids(java, job) == ids_of(0)
    assert job.data_files() == {file["fileName"] for file in java.files(job.table)}
    job.run(job.sink(before_commit=second_only))
    assert asked == [6, 6, 6]
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
def test_a_failing_on_commit_costs_a_warning_not_a_batch(
    job: Job, java: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job.create()
    job.add_files(2)

    def broken(report: CommitReport) -> None:
        raise RuntimeError("dashboard is down")

    with caplog.at_level(logging.WARNING):
        job.run(job.sink(on_commit=broken))
    assert "dashboard is down" in caplog.text
    assert java_ids(java, job) == ids_of(0, 1)
    assert [snapshot["id"] for snapshot in java.snapshots(job.table)] == [1, 2]


@pytest.mark.full
@pytest.mark.parametrize(
    ("phase", "stop"),
    [
        (Phase.WRITTEN, KeyboardInterrupt),
        (Phase.STAGED, KeyboardInterrupt),
        (Phase.STAGED, SystemExit),
        (Phase.PUBLISHED, KeyboardInterrupt),
    ],
)
def test_an_interrupt_anywhere_in_a_batch_ends_the_query_and_a_restart_finishes_it(
    job: Job, java: Any, phase: Phase, stop: type[BaseException]
) -> None:
    job.create()
    job.add_files(2)

    def interrupt() -> None:
        raise stop

    error = failing(job, job.sink(observer=At(phase, 1, interrupt)))
    assert_reports(error, errors.WriteInterrupted, "Batch 1", job.table, stop.__name__, "restart")
    assert java_ids(java, job) == (ids_of(0, 1) if phase is Phase.PUBLISHED else ids_of(0))
    job.run()
    assert java_ids(java, job) == ids_of(0, 1)


@pytest.mark.full
def test_a_function_that_fails_around_the_sink_says_so_itself(job: Job, java: Any) -> None:
    job.create()
    job.add_files(2)
    sink = job.sink()

    def write(df: DataFrame, batch_id: int) -> None:
        sink(df, batch_id)
        if batch_id == 1:
            raise LookupError("after the sink")

    error = failing(job, write)
    assert "LookupError: after the sink" in str(error)
    assert java_ids(java, job) == ids_of(0, 1)
    job.run(sink)
    assert java_ids(java, job) == ids_of(0, 1)


def test_creating_a_table_where_one_is_says_so(job: Job) -> None:
    job.create()
    with pytest.raises(errors.AlreadyExists, match="if_not_exists"):
        job.create()
    assert isinstance(job.create(if_not_exists=True), PaimonTable)
