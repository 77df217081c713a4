"""The reporters, which are informed of each batch: functions, the log, and the metrics of commits.
The metrics have the names of Java Paimon's group `commit`, and names of this package (semantics.md
§14). The newest durations are kept, because their distribution is a metric, as in Java Paimon's
histograms.
"""

import logging
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from paimon_stream.commit.report import CommitReport
from paimon_stream.errors import (
    CommitConflict,
    CommitUnknown,
    IncompatibleSchema,
    InvalidData,
    NoSpace,
    ReplayError,
    SequenceConflict,
    StorageError,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.maintenance.expire import ExpireReport
from paimon_stream.reports import count, size
from paimon_stream.storage.together import KINDS

_LOG = logging.getLogger(__name__)

PARTS: Final = ("count", "min", "max", "mean", "p50", "p95", "p99")
"""The parts of a distribution. `count` counts all values that were ever added. The other parts
describe the newest values.
"""


class Histogram:
    """Keeps the newest `most_values` values (100, as in Java), so its memory is limited."""

    def __init__(self, most_values: int = 100) -> None:
        self._values: deque[float] = deque(maxlen=most_values)
        self._count = 0

    def update(self, value: float) -> None:
        """Adds a value."""
        self._values.append(value)
        self._count += 1

    def distribution(self) -> Mapping[str, float]:
        """The present distribution by part (`PARTS`). All parts are 0 if there are no values.
        Quantiles are estimated in the same way as in Apache Commons Math, which Java's histogram
        uses: at the position share · (n + 1).
        """
        values = np.array(self._values or [0.0])
        low, *shares, high = np.quantile(
            values, (0, 0.50, 0.95, 0.99, 1), method="weibull"
        ).tolist()
        return dict(
            zip(PARTS, (self._count, low, high, float(values.mean()), *shares), strict=True)
        )


_LAST: Final = {
    "lastTableFilesAdded": "files_added",
    "lastTableFilesDeleted": "files_deleted",
    "lastTableFilesAppended": "files_appended",
    "lastTableFilesCommitCompacted": "files_compacted",
    "lastChangelogFilesAppended": "changelog_files_appended",
    "lastChangelogFileCommitCompacted": "changelog_files_compacted",
    "lastDeltaRecordsAppended": "records_appended",
    "lastChangelogRecordsAppended": "changelog_records_appended",
    "lastDeltaRecordsCommitCompacted": "records_compacted",
    "lastChangelogRecordsCommitCompacted": "changelog_records_compacted",
    "lastPartitionsWritten": "partitions",
    "lastBucketsWritten": "buckets",
    "lastCompactionInputFileSize": "compaction_input_bytes",
    "lastCompactionOutputFileSize": "compaction_output_bytes",
}
"""The metrics of the newest commit, each with the field of the commit's counts that gives its
value.
"""
COUNTERS: Final = (
    "skippedBatches",
    "failedBatches",
    "storageFailures",
    "noSpaceFailures",
    "schemaFailures",
    "dataFailures",
    "replayFailures",
    "uncertainCommits",
    "lostRaces",
    "conflicts",
    "compactionConflicts",
    "sequenceConflicts",
    "orphanFilesDeleted",
    "manifestsMerged",
    "expiredSnapshots",
    "expiredFiles",
    "failedExpiries",
    "compactions",
    "failedCompactions",
    "bucketsLeftAsIs",
    "committedRows",
    "committedFiles",
    "committedBytes",
    "updatedRows",
    "deletedRows",
    "insertedRows",
)
"""The names of the metrics that only grow."""
_FAILURES: Final = {
    Exception: "failedBatches",
    StorageError: "storageFailures",
    NoSpace: "noSpaceFailures",
    IncompatibleSchema: "schemaFailures",
    InvalidData: "dataFailures",
    ReplayError: "replayFailures",
    CommitUnknown: "uncertainCommits",
    CommitConflict: "conflicts",
    SequenceConflict: "sequenceConflicts",
}
"""The counters of batches that failed. An error may count in several."""
METRICS: Final = (
    "lastCommitDuration",
    *(f"commitDuration.{part}" for part in PARTS),
    "lastCommitAttempts",
    "lastGeneratedSnapshots",
    *_LAST,
    "lastCommittedSnapshotId",
    "lastSnapshotId",
    "writeDuration",
    "lastCommitTrips",
    *(f"lastCommitRequests.{kind}" for kind in KINDS),
    *COUNTERS,
)
"""The names of all metrics. Durations are milliseconds, sizes bytes. `last…` and `writeDuration`
refer to the newest commit that made a snapshot. `commitDuration.…` describes the newest such
commits (`PARTS`). All others count since the sink was created.
"""


def snake_case(name: str) -> str:
    """The name of a metric in the form that other systems use: `lastCommitDuration` becomes
    `last_commit_duration`.
    """
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()


class CommitMetrics:
    """A reporter that keeps the metrics of one sink. Its memory is limited, and several threads may
    use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations = Histogram()
        self._last: dict[str, float] = {}
        self._counters: Counter[str] = Counter()

    def report(self, report: CommitReport) -> None:
        """Adds one batch."""
        with self._lock:
            self._counters["orphanFilesDeleted"] += report.removed_files
            if report.compact_failed is not None:
                self._counters["compactionConflicts"] += 1
            if report.outcome == "already committed":
                self._counters["skippedBatches"] += 1
            if report.outcome != "committed":
                return
            self._durations.update(report.commit_millis)
            self._counters["committedRows"] += report.rows
            self._counters["committedFiles"] += report.files
            self._counters["committedBytes"] += report.bytes
            self._counters["updatedRows"] += report.rows_updated
            self._counters["deletedRows"] += report.rows_deleted
            self._counters["insertedRows"] += report.rows_inserted
            self._counters["lostRaces"] += report.attempts - 1
            self._counters["manifestsMerged"] += report.manifests_merged
            self._last = {
                "lastCommitDuration": report.commit_millis,
                "lastCommitAttempts": report.attempts,
                "lastGeneratedSnapshots": report.snapshots,
                **{name: getattr(report.counts, field) for name, field in _LAST.items()},
                "lastCommittedSnapshotId": report.newest_snapshot_id or -1,
                "lastSnapshotId": report.newest_snapshot_id or -1,
                "writeDuration": report.phases.get("write", 0.0),
                "lastCommitTrips": report.trips,
                **{f"lastCommitRequests.{kind}": report.requests.get(kind, 0) for kind in KINDS},
            }

    def failed(self, error: BaseException) -> None:
        """Adds a failed batch."""
        with self._lock:
            for kind, counter in _FAILURES.items():
                if isinstance(error, kind):
                    self._counters[counter] += 1

    def expired(self, report: ExpireReport | None) -> None:
        """Adds an expiry after a commit. `report` is None if the expiry failed."""
        with self._lock:
            if report is None:
                self._counters["failedExpiries"] += 1
            else:
                self._counters["expiredSnapshots"] += len(report.snapshots)
                self._counters["expiredFiles"] += sum(report.files.values())

    def compacted(
        self,
        counter: str,
        count: int,
    ) -> None:
        """Adds `count` to a counter of the compactions behind batches. `counter` is one of
        `COUNTERS`.
        """
        with self._lock:
            self._counters[counter] += count

    def values(self) -> Mapping[str, float]:
        """All metrics by name (`METRICS`). A value that does not exist yet is 0, or -1 for a
        snapshot id.
        """
        with self._lock:
            durations = self._durations.distribution()
            values: dict[str, float] = dict.fromkeys(METRICS, 0)
            values.update({"lastCommittedSnapshotId": -1, "lastSnapshotId": -1})
            values.update({f"commitDuration.{part}": value for part, value in durations.items()})
            values.update(self._last)
            values.update({name: self._counters[name] for name in COUNTERS})
        return values


LOGGER_NAME: Final = "paimon_stream"

Reporter = Callable[[CommitReport], object]
"""Called once per batch after its commit, in the driver's thread that committed. It is also called
for empty batches and for batches that were replayed.
"""

_EXTRA: Final = {
    "table": "location",
    "user": "user",
    "batch": "identifier",
    "outcome": "outcome",
    "snapshot": "snapshot_id",
    "attempts": "attempts",
    "rows": "rows",
    "rows_updated": "rows_updated",
    "rows_deleted": "rows_deleted",
    "rows_inserted": "rows_inserted",
    "files": "files",
    "bytes": "bytes",
    "millis": "millis",
    "reused": "reused",
    "trips": "trips",
}
"""The attributes of a log record, each with the field of the report that gives its value."""


def report_to_all(
    reporters: Iterable[Reporter],
    report: CommitReport,
    failing: set[int],
) -> None:
    """Calls every reporter. If a reporter raises an error, the error is logged with its traceback,
    and the batch continues. The snapshot is already published, and a failure after that must not
    make the batch fail.

    Args:
        reporters: the reporters, in the order in which they are called.
        report: the report of the batch.
        failing: the ids of the reporters that raised an error at the previous batch. Their next
            failure is logged only at level DEBUG. This call updates the set.
    """
    for reporter in reporters:
        try:
            reporter(report)
            failing.discard(id(reporter))
        except Exception:  # noqa: BLE001
            level = logging.DEBUG if id(reporter) in failing else logging.WARNING
            _LOG.log(
                level,
                "%s: reporter %r failed on batch %d; the commit is not affected. It is called again next time.",
                report.location,
                reporter,
                report.identifier,
                exc_info=True,
            )
            failing.add(id(reporter))


def log_report(report: CommitReport) -> None:
    """Writes one INFO line per batch to the logger `paimon_stream`. The text is for people.
    Programs read the record's attributes, which are API: `paimon_table`, `paimon_user`,
    `paimon_batch`, `paimon_outcome`, `paimon_snapshot` (None if there is none), `paimon_attempts`,
    `paimon_rows`, `paimon_rows_updated`, `paimon_rows_deleted`, `paimon_rows_inserted` (0 without a
    merge), `paimon_files`, `paimon_bytes`, `paimon_millis` (all phases together),
    `paimon_phases` (milliseconds by phase), `paimon_reused`, and for object stores and
    HDFS `paimon_requests` (by kind) and `paimon_trips`.
    """
    logger = logging.getLogger(LOGGER_NAME)
    if logger.isEnabledFor(logging.INFO):
        extra = {f"paimon_{name}": getattr(report, field) for name, field in _EXTRA.items()}
        maps = {"paimon_phases": dict(report.phases), "paimon_requests": dict(report.requests)}
        logger.info("%s", _line(report), extra={**extra, **maps})


def _line(report: CommitReport) -> str:
    # A table's path or a commit user may contain line breaks, but a log entry must stay on one
    # line.
    return " ".join(f"{_sentence(report)}, user {report.user}".splitlines())


def _sentence(report: CommitReport) -> str:
    batch = f"batch {report.identifier}"
    if report.identifier == BATCH_IDENTIFIER:
        batch = "batch commit"
    subject = f"{report.location}: {batch}"
    if report.outcome == "empty":
        return f"{subject} is empty, no snapshot made"
    if report.outcome == "already committed" and report.snapshot_id is None:
        return f"{subject} was already committed in a snapshot since expired"
    if report.outcome == "already committed":
        return f"{subject} was already committed as snapshot {report.snapshot_id}"
    rows = count(report.rows, "row")
    reused = " (files of an earlier run)" if report.reused else ""
    files = f"{count(report.files, 'file')}{reused}"
    bytes_ = size(report.bytes, "bytes")
    attempts = count(report.attempts, "attempt")
    millis = f"{report.millis:.0f} ms{_sent(report)}"
    merged = f" ({report.merged_rows})" if report.merged_rows else ""
    return f"{subject} committed as snapshot {report.snapshot_id}: {rows} in {files}{merged}, {bytes_}, {attempts}, {millis}"


def _sent(report: CommitReport) -> str:
    """The number of requests to an object store or to HDFS, in brackets. The text is empty for
    other storages.
    """
    if not report.requests:
        return ""
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(report.requests.items()))
    return f" ({count(report.trips, 'round trip')}: {kinds})"
