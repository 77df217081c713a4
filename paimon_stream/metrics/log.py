"""Functions that are informed of each batch: the one way to call them, and the one that writes to the log."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from paimon_stream.commit.report import CommitReport
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.reports import count, size

LOGGER_NAME: Final = "paimon_stream"

_LOG = logging.getLogger(__name__)

Reporter = Callable[[CommitReport], object]
"""Called once per batch after its commit, in the driver's thread that committed; also for empty and replayed ones."""


def report_to_all(reporters: Iterable[Reporter], report: CommitReport) -> None:
    """Calls every reporter. If one raises, that is logged with its traceback and changes nothing: the
    snapshot is already published, and a failure after that must not fail the batch."""
    for reporter in reporters:
        try:
            reporter(report)
        except Exception:  # noqa: BLE001
            text = "%s: reporter %r failed on batch %d; the commit is not affected."
            _LOG.warning(text, report.location, reporter, report.identifier, exc_info=True)


def log_report(report: CommitReport) -> None:
    """Writes one INFO line per batch to the logger `paimon_stream`. The text is for people. Programs read the record's
    attributes, which are API: `paimon_table`, `paimon_user`, `paimon_batch`, `paimon_outcome`, `paimon_snapshot` (None
    if there is none), `paimon_attempts`, `paimon_rows`, `paimon_files`, `paimon_bytes`, `paimon_millis` (all phases
    together), `paimon_phases` (milliseconds by phase), `paimon_reused`, and for object stores `paimon_requests` (by
    kind) and `paimon_trips`."""
    logger = logging.getLogger(LOGGER_NAME)
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", _line(report), extra=_extra(report))


def _extra(report: CommitReport) -> dict[str, Any]:
    return {
        "paimon_table": report.location,
        "paimon_user": report.user,
        "paimon_batch": report.identifier,
        "paimon_outcome": report.outcome,
        "paimon_snapshot": report.snapshot_id,
        "paimon_attempts": report.attempts,
        "paimon_rows": report.rows,
        "paimon_files": report.files,
        "paimon_bytes": report.bytes,
        "paimon_millis": report.millis,
        "paimon_phases": dict(report.phases),
        "paimon_reused": report.reused,
        "paimon_requests": dict(report.requests),
        "paimon_trips": report.trips,
    }


def _line(report: CommitReport) -> str:
    batch = "batch commit" if report.identifier == BATCH_IDENTIFIER else f"batch {report.identifier}"
    start = f"{report.location}: {batch}"
    if report.outcome == "empty":
        text = f"{start} is empty, no snapshot made"
    elif report.outcome == "already committed":
        where = f"as snapshot {report.snapshot_id}"
        if report.snapshot_id is None:
            where = "in a snapshot since expired"
        text = f"{start} was already committed {where}"
    else:
        reused = " (files of an earlier run)" if report.reused else ""
        text = (
            f"{start} committed as snapshot {report.snapshot_id}: {count(report.rows, 'row')} in "
            f"{count(report.files, 'file')}{reused}, {size(report.bytes, 'bytes')}, "
            f"{count(report.attempts, 'attempt')}, {report.millis:.0f} ms{_sent(report)}"
        )
    # A table's path or a commit user may contain line breaks; a log line must stay one line.
    return " ".join(f"{text}, user {report.user}".splitlines())


def _sent(report: CommitReport) -> str:
    if not report.requests:
        return ""
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(report.requests.items()))
    return f" ({count(report.trips, 'round trip')}: {kinds})"
