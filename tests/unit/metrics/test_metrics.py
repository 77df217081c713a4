"""Reporters: one line for each batch, and a failing reporter does not fail a commit."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from paimon_stream import errors
from paimon_stream.commit.plan import Changes
from paimon_stream.commit.report import CommitReport, Counts
from paimon_stream.errors import CommitUnknown, DeletedFiles, SequenceConflict
from paimon_stream.format.entries import EMPTY_ROW, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.maintenance.expire import ExpireReport
from paimon_stream.metrics.commits import (
    COUNTERS,
    LOGGER_NAME,
    METRICS,
    PARTS,
    CommitMetrics,
    Histogram,
    Reporter,
    log_report,
    report_to_all,
)
from paimon_stream.stream.batch_summary import BatchSummary
from tests.kits.commits import Bench, data_file

REPORT = CommitReport(
    location="/w/db.db/orders",
    user="paimon-stream_q1",
    identifier=7,
    outcome="committed",
    snapshot_id=12,
    attempts=2,
    rows=12_345,
    files=1,
    bytes=1_572_864,
    phases={"write": 100.25, "publish": 20.5},
)
KEYS = {
    "paimon_table",
    "paimon_user",
    "paimon_batch",
    "paimon_outcome",
    "paimon_snapshot",
    "paimon_attempts",
    "paimon_rows",
    "paimon_rows_deleted",
    "paimon_rows_inserted",
    "paimon_rows_updated",
    "paimon_files",
    "paimon_bytes",
    "paimon_millis",
    "paimon_phases",
    "paimon_reused",
    "paimon_requests",
    "paimon_trips",
}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=LOGGER_NAME)
    return caplog


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            REPORT,
            "/w/db.db/orders: batch 7 committed as snapshot 12: 12,345 rows in 1 file, 1.5 MiB, 2 attempts, "
            "121 ms, user paimon-stream_q1",
        ),
        (
            replace(REPORT, reused=True, attempts=1, rows=1, files=2, bytes=1023),
            "/w/db.db/orders: batch 7 committed as snapshot 12: 1 row in 2 files (files of an earlier run), "
            "1023 bytes, 1 attempt, 121 ms, user paimon-stream_q1",
        ),
        (
            replace(REPORT, requests={"PUT": 6, "GET": 5}, trips=4),
            "/w/db.db/orders: batch 7 committed as snapshot 12: 12,345 rows in 1 file, 1.5 MiB, 2 attempts, "
            "121 ms (4 round trips: 5 GET, 6 PUT), user paimon-stream_q1",
        ),
        (
            CommitReport(
                location="/t", user="u", identifier=3, snapshot_id=4, outcome="already committed"
            ),
            "/t: batch 3 was already committed as snapshot 4, user u",
        ),
        (
            CommitReport(
                location="/t", user="u", identifier=3, snapshot_id=None, outcome="already committed"
            ),
            "/t: batch 3 was already committed in a snapshot since expired, user u",
        ),
        (
            CommitReport(location="/t", user="u", identifier=3, outcome="empty"),
            "/t: batch 3 is empty, no snapshot made, user u",
        ),
        (
            CommitReport(location="/t", user="u", identifier=BATCH_IDENTIFIER, outcome="empty"),
            "/t: batch commit is empty, no snapshot made, user u",
        ),
    ],
)
def test_each_outcome_is_one_line(
    log: pytest.LogCaptureFixture, report: CommitReport, line: str
) -> None:
    log_report(report)
    (record,) = log.records
    assert record.getMessage() == line
    assert (record.levelno, record.name) == (logging.INFO, "paimon_stream")


def test_programs_read_stable_attributes(log: pytest.LogCaptureFixture) -> None:
    log_report(REPORT)
    (record,) = log.records
    extra = {key: value for key, value in vars(record).items() if key.startswith("paimon_")}
    assert set(extra) == KEYS
    assert extra["paimon_batch"] == 7
    assert extra["paimon_snapshot"] == 12
    assert extra["paimon_rows"] == 12_345
    assert extra["paimon_millis"] == 120.75
    assert extra["paimon_phases"] == {"write": 100.25, "publish": 20.5}


def test_a_line_break_in_a_name_does_not_break_the_line(log: pytest.LogCaptureFixture) -> None:
    log_report(replace(REPORT, user="me\nERROR forged", location="/a\r\nb"))
    assert len(log.records[0].getMessage().splitlines()) == 1


def test_percent_signs_in_names_are_harmless(log: pytest.LogCaptureFixture) -> None:
    log_report(replace(REPORT, location="/a%20b/%s"))
    assert log.records[0].getMessage().startswith("/a%20b/%s: batch 7")


def test_nothing_is_logged_when_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger=LOGGER_NAME)
    log_report(REPORT)
    assert caplog.records == []


def failing(error: BaseException) -> Reporter:
    """A reporter that raises the error."""

    def report(report: CommitReport) -> None:
        raise error

    return report


def test_a_reporter_that_raises_is_logged_and_the_others_still_hear(
    log: pytest.LogCaptureFixture,
) -> None:
    heard: list[CommitReport] = []
    report_to_all([failing(RuntimeError("no network")), heard.append], REPORT, set())
    assert heard == [REPORT]
    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert "batch 7; the commit is not affected" in record.getMessage()
    assert record.exc_info


def test_a_reporter_that_goes_on_failing_is_logged_once_until_it_works_again(
    log: pytest.LogCaptureFixture,
) -> None:
    wrong: list[Exception] = []

    def push(report: CommitReport) -> None:
        if wrong:
            raise wrong[0]

    failed: set[int] = set()
    levels = []
    for works in (False, False, True, False, False):
        wrong[:] = [] if works else [ConnectionRefusedError("away")]
        log.clear()
        report_to_all([push], REPORT, failed)
        levels.append([record.levelno for record in log.records])
    assert levels == [[logging.WARNING], [], [], [logging.WARNING], []]


def test_an_interrupt_in_a_reporter_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        report_to_all([failing(KeyboardInterrupt())], REPORT, set())


# -- the metrics of a sink
# ----------------------------------------------------------------------------


def changes(
    kind: FileKind, *rows: int, bucket: int = 0, changelog: tuple[int, ...] = ()
) -> Changes:
    def entries(kind: FileKind, rows: tuple[int, ...]) -> tuple[ManifestEntry, ...]:
        return tuple(
            ManifestEntry(
                kind=kind,
                partition=EMPTY_ROW,
                bucket=bucket,
                total_buckets=2,
                file=data_file(f"f{n}", n),
            )
            for n in rows
        )

    return Changes(entries=entries(kind, rows), changelog=entries(FileKind.ADD, changelog))


def test_a_commit_is_counted_as_java_counts_it() -> None:
    written = changes(FileKind.ADD, 10, 20, changelog=(5,))
    taken, given = changes(FileKind.DELETE, 10, 7, bucket=1), changes(FileKind.ADD, 17, bucket=1)
    compacted = replace(taken, entries=(*taken.entries, *given.entries), changelog=given.entries)
    assert Counts.of(written, compacted) == Counts(
        files_added=3,
        files_deleted=2,
        files_appended=2,
        files_compacted=3,
        changelog_files_appended=1,
        changelog_files_compacted=1,
        records_appended=30,
        records_compacted=34,
        changelog_records_appended=5,
        changelog_records_compacted=17,
        partitions=1,
        buckets=2,
        compaction_input_bytes=8,
        compaction_output_bytes=4,
    )
    overwritten = replace(written, entries=(*written.entries, *taken.entries))
    assert (Counts.of(overwritten).files_added, Counts.of(overwritten).files_deleted) == (2, 2)
    assert Counts.of() == Counts()


def test_metrics_have_javas_names_and_ours() -> None:
    metrics = CommitMetrics()
    assert set(metrics.values()) == set(METRICS)
    assert {metrics.values()[name] for name in ("lastCommittedSnapshotId", "lastSnapshotId")} == {
        -1
    }
    counts = Counts(files_added=3, records_appended=30, compaction_input_bytes=8)
    metrics.report(
        replace(REPORT, counts=counts, compact_snapshot_id=13, manifests_merged=4, removed_files=2)
    )
    values = metrics.values()
    assert set(values) == set(METRICS)
    assert values["lastCommitDuration"] == values["commitDuration.max"] == 20.5
    assert (values["writeDuration"], values["lastCommitAttempts"]) == (100.25, 2)
    assert (values["lastTableFilesAdded"], values["lastDeltaRecordsAppended"]) == (3, 30)
    assert (values["lastCompactionInputFileSize"], values["lastGeneratedSnapshots"]) == (8, 2)
    assert values["lastCommittedSnapshotId"] == values["lastSnapshotId"] == 13
    assert values["lastCommitTrips"] == values["lastCommitRequests.GET"] == 0, (
        "the local disk counts nothing"
    )
    assert (values["lostRaces"], values["manifestsMerged"], values["orphanFilesDeleted"]) == (
        1,
        4,
        2,
    )


def test_skipped_empty_and_failed_batches_leave_the_last_commit_as_it_was() -> None:
    metrics = CommitMetrics()
    metrics.report(REPORT)
    before = metrics.values()
    metrics.report(
        CommitReport(
            location="/t", user="u", identifier=3, snapshot_id=4, outcome="already committed"
        )
    )
    metrics.report(
        replace(REPORT, outcome="empty", snapshot_id=None, compact_failed="others came first")
    )
    failures = [
        CommitUnknown("?"),
        DeletedFiles("gone"),
        SequenceConflict("twice"),
        ValueError("theirs"),
    ]
    for error in failures:
        metrics.failed(error)
    changed = {name: value for name, value in metrics.values().items() if value != before[name]}
    assert changed == {
        "skippedBatches": 1,
        "compactionConflicts": 1,
        "failedBatches": 4,
        "uncertainCommits": 1,
        "conflicts": 2,
        "sequenceConflicts": 1,
    }


def test_expiry_after_commits_is_counted() -> None:
    metrics = CommitMetrics()
    metrics.expired(
        ExpireReport(location="/t", snapshots=(3, 4), files={"data files": 5, "manifests": 2})
    )
    metrics.expired(ExpireReport(location="/t"))
    metrics.expired(None)
    found = metrics.values()
    assert [found[name] for name in ("expiredSnapshots", "expiredFiles", "failedExpiries")] == [
        2,
        7,
        1,
    ]


def test_a_histogram_keeps_the_newest_values_and_estimates_quantiles_as_java() -> None:
    histogram = Histogram(most_values=100)
    assert histogram.distribution() == dict.fromkeys(PARTS, 0)
    histogram.update(5.0)
    assert histogram.distribution() == {**dict.fromkeys(PARTS, 5), "count": 1}
    for value in range(1, 201):
        histogram.update(float(value))
    found = histogram.distribution()
    assert [round(found[part], 2) for part in PARTS] == [
        201,
        101,
        200,
        150.5,
        150.5,
        195.95,
        199.99,
    ]


def test_a_table_records_a_summary_of_each_batch() -> None:
    bench = Bench(partitioned=True)
    messages = (bench.message("a", rows=3, dt="x"), bench.message("b", rows=4, dt="y", bucket=1))
    summary = BatchSummary.of_messages(messages, millis=12.6, reused=False)
    assert summary == BatchSummary(
        files=2, rows=7, bytes=8, partitions=2, buckets=2, write_millis=13
    )
    assert BatchSummary.of(summary.properties()) == summary
    assert summary.properties()["paimon-stream.write-millis"] == "13"
    assert BatchSummary.of({"paimon-stream.rows": "many", "k": "v"}) == BatchSummary()
    assert (
        BatchSummary.of({"paimon-stream.rows": "9" * 5000, "paimon-stream.files": "²"})
        == BatchSummary()
    )
    assert (
        BatchSummary.of_messages((), millis=None, reused=True).properties()["paimon-stream.reused"]
        == "1"
    )


@pytest.mark.parametrize(
    ("error", "counters"),
    [
        (errors.NoSpace("full"), {"storageFailures", "noSpaceFailures"}),
        (errors.PermissionDenied("no"), {"storageFailures"}),
        (errors.IncompatibleSchema("columns"), {"schemaFailures"}),
        (errors.NullInNotNull("rows"), {"dataFailures"}),
        (errors.CheckpointReset("new"), {"replayFailures"}),
        (errors.SequenceConflict("numbers"), {"conflicts", "sequenceConflicts"}),
        (errors.InvalidOption("option"), set()),
        (ValueError("of the batch function"), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_failure_of_a_batch_is_counted(error: Exception, counters: set[str]) -> None:
    metrics = CommitMetrics()
    metrics.failed(error)
    counted = {name for name in COUNTERS if metrics.values()[name] == 1}
    assert counted == counters | {"failedBatches"}
