"""What `stats` and `doctor` say about compaction: which buckets need it, what it gains, and how to start it."""

import shlex
from typing import Any, Final

from paimon_stream.cli.columns import Listing
from paimon_stream.cli.command import Session
from paimon_stream.cli.compact import BUCKETS
from paimon_stream.cli.output import Part
from paimon_stream.cli.text import count, size
from paimon_stream.compact.report import CompactReport
from paimon_stream.errors import ConfigError, FormatError, IncompatibleSchema, StorageError
from paimon_stream.options import BUCKET

_SHOWN: Final = 10
"""Buckets that are listed, those with most to gain first."""


class CompactionAdvice:
    """The advice for one table, from what a compaction would do now. None of it for a table that this release
    does not compact."""

    def __init__(self, session: Session) -> None:
        keyed = bool(session.raw.schema.primary_keys)
        try:
            self.report: CompactReport | None = session.table.compact(full=not keyed, dry_run=True)
        except (ConfigError, IncompatibleSchema, FormatError, StorageError):
            self.report = None  # the compaction is refused, or the table cannot be read
        full = not keyed and session.raw.options.value(BUCKET) > 0
        words = ["paimon-stream", "compact", *(["--full"] if full else []), "--yes", session.raw.location]
        self.command = shlex.join(words)
        self._same = " Give it the same --storage-option as here." if session.storage_options else ""
        self._what = "merges a key's rows of {:.1f} files" if keyed else "opens {:.1f} files"

    @property
    def needed(self) -> bool:
        """Whether there is anything to compact."""
        return self.report is not None and bool(self.report.buckets)

    def document(self) -> dict[str, Any] | None:
        """The advice for programs: the report of a dry run, and the command if there is anything to do."""
        command = self.command if self.needed else None
        return None if self.report is None else {**self.report.to_json(), "command": command}

    def summary(self) -> str:
        """What a compaction would gain, in one line."""
        report = self.report
        if report is None or not report.buckets:
            return "nothing"
        moved, bytes_ = report.files_upgraded, sum(one.bytes for one in report.buckets)
        taken, left = count(report.files_before + moved, "file"), report.files_after + moved
        return f"{taken} ({size(bytes_)}) into about {left:,}, in {count(len(report.buckets), 'bucket')}"

    def parts(self) -> list[Part]:
        """The buckets with most to gain, and the command. Nothing if nothing is needed."""
        report = self.report
        if report is None or not report.buckets:
            return []
        worst = sorted(report.buckets, key=lambda one: (one.reads_after - one.reads_before, -one.bytes))
        parts: list[Part] = [Listing(BUCKETS, worst[:_SHOWN], "")]
        if len(worst) > _SHOWN:
            parts.append(f"… and {count(len(worst) - _SHOWN, 'bucket')} more: paimon-stream compact lists them.")
        gain = f"There a reader {self._what.format(report.read_amplification)} where one would do."
        if worst[0].bucket < 0:
            gain = "The rows in bucket -2 wait: no reader sees them before a compaction."
        return [*parts, f"{gain} Start the compaction: {self.command}{self._same}"]
