"""Reporters: one line per batch, and none can hurt a commit."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from paimon_stream.commit.report import CommitReport
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.metrics.base import report_to_all
from paimon_stream.metrics.log import LOGGER_NAME, LogReporter

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
    "paimon_table", "paimon_user", "paimon_batch", "paimon_outcome", "paimon_snapshot", "paimon_attempts",
    "paimon_rows", "paimon_files", "paimon_bytes", "paimon_millis", "paimon_phases", "paimon_reused",
}  # fmt: skip


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
            CommitReport.already_committed(location="/t", user="u", identifier=3, snapshot_id=4),
            "/t: batch 3 was already committed as snapshot 4, user u",
        ),
        (
            CommitReport.already_committed(location="/t", user="u", identifier=3, snapshot_id=None),
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
def test_each_outcome_is_one_line(log: pytest.LogCaptureFixture, report: CommitReport, line: str) -> None:
    LogReporter().report(report)
    (record,) = log.records
    assert record.getMessage() == line
    assert (record.levelno, record.name) == (logging.INFO, "paimon_stream")


def test_programs_read_stable_attributes(log: pytest.LogCaptureFixture) -> None:
    LogReporter().report(REPORT)
    (record,) = log.records
    extra = {key: value for key, value in vars(record).items() if key.startswith("paimon_")}
    assert set(extra) == KEYS
    assert extra["paimon_batch"] == 7
    assert extra["paimon_snapshot"] == 12
    assert extra["paimon_rows"] == 12_345
    assert extra["paimon_millis"] == 120.75
    assert extra["paimon_phases"] == {"write": 100.25, "publish": 20.5}


def test_a_line_break_in_a_name_does_not_break_the_line(log: pytest.LogCaptureFixture) -> None:
    LogReporter().report(replace(REPORT, user="me\nERROR forged", location="/a\r\nb"))
    assert len(log.records[0].getMessage().splitlines()) == 1


def test_percent_signs_in_names_are_harmless(log: pytest.LogCaptureFixture) -> None:
    LogReporter().report(replace(REPORT, location="/a%20b/%s"))
    assert log.records[0].getMessage().startswith("/a%20b/%s: batch 7")


def test_nothing_is_logged_when_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger=LOGGER_NAME)
    LogReporter().report(REPORT)
    assert caplog.records == []


class Collecting:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[CommitReport] = []

    def report(self, report: CommitReport) -> None:
        self.heard.append(report)


class Failing:
    """Raises what it is given."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def report(self, report: CommitReport) -> None:
        raise self.error


def test_a_reporter_that_raises_is_logged_and_the_others_still_hear(log: pytest.LogCaptureFixture) -> None:
    last = Collecting()
    report_to_all([Failing(RuntimeError("no network")), last], REPORT)
    assert last.heard == [REPORT]
    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert "batch 7; the commit is not affected" in record.getMessage()
    assert record.exc_info


def test_an_interrupt_in_a_reporter_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        report_to_all([Failing(KeyboardInterrupt())], REPORT)
