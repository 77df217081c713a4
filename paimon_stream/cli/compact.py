"""`compact`, and the advice of other commands to run it."""

import shlex
from typing import Any, Final

import click

from paimon_stream.cli.command import (
    OPTION,
    YES,
    Session,
    Texts,
    changed_answer,
    option,
    pairs_of,
    table_command,
)
from paimon_stream.cli.output import Column, CommandAnswer, Listing, Part
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count, partition_of, partition_text, size
from paimon_stream.compact.publish import CompactedBucket, CompactReport
from paimon_stream.errors import ConfigError, FormatError, IncompatibleSchema, StorageError
from paimon_stream.options import BUCKET

BUCKETS: Final[tuple[Column[CompactedBucket], ...]] = (
    Column("partition", lambda one: one.partition, text=lambda one: partition_text(one.partition)),
    Column("bucket", lambda one: one.bucket, number=True),
    Column("files", lambda one: one.files, number=True),
    Column("rows", lambda one: one.rows, number=True),
    Column("bytes", lambda one: one.bytes, "size", text=lambda one: size(one.bytes), number=True),
    Column("reads_before", lambda one: one.reads_before, "read now", number=True),
    Column("reads_after", lambda one: one.reads_after, "then", number=True),
)

_SORTING: Final = ("order-strategy", "order-by")
"""Options of other engines. The table refuses them by name."""

_PARTITION: Final = (
    "Compact only the partitions that have these values. Can be given several times."
)
_SHOWN: Final = 10
"""Buckets that are listed, those with most to gain first."""


@table_command(
    example="compact --partition dt=2026-11-20 --yes /data/shop.db/orders",
    params=(
        option("--full", "In fixed buckets, take all files (append: after large).", is_flag=True),
        option("--partition", _PARTITION, multiple=True, metavar="COLUMN=VALUE[,…]"),
        OPTION,
        *(
            click.Option([f"--{one}", f"--{one.replace('-', '_')}"], hidden=True)
            for one in _SORTING
        ),
        option("--dry-run", "Only show what it would do, as without --yes.", is_flag=True),
        YES,
    ),
)
def compact(
    session: Session,
    full: bool,
    partition: Texts,
    option: Texts,
    dry_run: bool,
    yes: bool,
    **sorting: str | None,
) -> CommandAnswer:
    """Rewrites small files into fewer, larger ones; in a table with a primary key, merges rows of
    one key. Rows that wait in bucket -2 get their buckets. Else what readers see stays the same,
    and streams go on meanwhile. It can be interrupted: what was published stays, and the next run
    goes on from there. Without --yes it only shows what it would rewrite.
    """
    if dry_run and yes:
        raise click.UsageError("Give --dry-run or --yes, not both.")
    options: dict[str, Any] = pairs_of(option, "--option")
    options |= {key: value for key, value in sorting.items() if value is not None}
    specs = [partition_of(one) for one in partition] or None
    with progress() as reporter:
        report = session.table.compact(full, specs, options, dry_run=not yes, progress=reporter)
    done = [one for one in report.buckets if one.skipped is None]
    skipped = [one for one in report.buckets if one.skipped is not None]
    parts: list[Part] = (
        [Listing(BUCKETS, done, "There is nothing to compact.")] if done or not skipped else []
    )
    parts += [_summary(report, done=yes)] if done else []
    parts += [
        f"{partition_text(one.partition)}, bucket {one.bucket}: {one.skipped}" for one in skipped
    ]
    return changed_answer(report.to_json(), parts, done=yes, something=bool(done))


def _summary(report: CompactReport, *, done: bool) -> str:
    found = []
    if report.files_before:
        verb, about = ("became", "") if done else ("would become", "about ")
        before = f"{count(report.files_before, 'file')} ({size(report.bytes_before)})"
        after = f"{about}{report.files_after:,}" + (
            f" ({size(report.bytes_after)})" if done else ""
        )
        found.append(f"{before} {verb} {after}")
    if report.files_upgraded:
        verb = "moved" if done else "would move"
        found.append(f"{count(report.files_upgraded, 'file')} {verb} to a higher level as they are")
    if report.changelog_rows:
        found.append(f"the changelog got {count(report.changelog_rows, 'row')}")
    return "; ".join(found) + (f", in snapshot {report.snapshot_id}." if done else ".")


class CompactionAdvice:
    """What `stats` and `doctor` say about compaction: which buckets need it, what it gains, and how
    to start it. It is from what a compaction would do now. None of it for a table that this release
    does not compact.
    """

    def __init__(self, session: Session) -> None:
        keyed = bool(session.raw.schema.primary_keys)
        try:
            self.report: CompactReport | None = session.table.compact(full=not keyed, dry_run=True)
        except (ConfigError, IncompatibleSchema, FormatError, StorageError):
            self.report = None  # the compaction is refused, or the table cannot be read
        full = not keyed and session.raw.options.value(BUCKET) > 0
        where = session.location if session.catalog_options else session.raw.location
        self.command = shlex.join(
            ["paimon-stream", "compact", *(["--full"] if full else []), "--yes", where]
        )
        given = session.catalog_options or session.storage_options
        self._same = (
            " Give it the same catalog, branch and --storage-option as here." if given else ""
        )
        self._what = "merges a key's rows of {:.1f} files" if keyed else "opens {:.1f} files"

    @property
    def needed(self) -> bool:
        """Whether there is anything to compact."""
        return self.report is not None and bool(self.report.buckets)

    def document(self) -> dict[str, Any] | None:
        """The advice for programs: the report of a dry run, and the command if there is anything to
        do.
        """
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
        worst = sorted(
            report.buckets, key=lambda one: (one.reads_after - one.reads_before, -one.bytes)
        )
        parts: list[Part] = [Listing(BUCKETS, worst[:_SHOWN], "")]
        if len(worst) > _SHOWN:
            parts.append(
                f"… and {count(len(worst) - _SHOWN, 'bucket')} more: paimon-stream compact lists them."
            )
        gain = f"There a reader {self._what.format(report.read_amplification)} where one would do."
        if worst[0].bucket < 0:
            gain = "The rows in bucket -2 wait: no reader sees them before a compaction."
        return [*parts, f"{gain} Start the compaction: {self.command}{self._same}"]
