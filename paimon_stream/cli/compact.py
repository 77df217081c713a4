"""The command `compact`, and the advice of other commands to run it."""

import shlex
from typing import Any, Final

import click

from paimon_stream.catalogs.metastore import metastore_of
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
    Column(
        "partition",
        lambda bucket: bucket.partition,
        for_people=lambda bucket: partition_text(bucket.partition),
    ),
    Column("bucket", lambda bucket: bucket.bucket, number=True),
    Column("files", lambda bucket: bucket.files, number=True),
    Column("rows", lambda bucket: bucket.rows, number=True),
    Column(
        "bytes",
        lambda bucket: bucket.bytes,
        "size",
        for_people=lambda bucket: size(bucket.bytes),
        number=True,
    ),
    Column("reads_before", lambda bucket: bucket.reads_before, "read now", number=True),
    Column("reads_after", lambda bucket: bucket.reads_after, "then", number=True),
)

_SORTING: Final = (
    click.Option(["--order-strategy", "--order_strategy"], hidden=True),
    click.Option(["--order-by", "--order_by"], hidden=True),
)
"""Options of other engines. The table refuses them by name."""

_PARTITION: Final = (
    "Compact only the partitions that have these values. Can be given several times."
)
_SHOWN: Final = 10
"""The most buckets that are listed. The buckets with most to gain come first."""


@table_command(
    example="compact --partition dt=2026-11-20 --yes /data/shop.db/orders",
    params=(
        option("--full", "In fixed buckets, take all files (append: after large).", is_flag=True),
        option("--partition", _PARTITION, multiple=True, metavar="COLUMN=VALUE[,…]"),
        OPTION,
        *_SORTING,
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
    order_strategy: str | None,
    order_by: str | None,
) -> CommandAnswer:
    """Rewrites small files into fewer, larger ones. In a table with a primary key, it merges rows
    of one key. Rows that wait in bucket -2 get their buckets. Otherwise, readers see no change.
    Streams continue while it runs. It can be interrupted: what was published stays, and the next
    run continues from there. Without --yes it only shows what it would rewrite.
    """
    if dry_run and yes:
        raise click.UsageError("Give --dry-run or --yes, not both.")
    options = pairs_of(option, "--option")
    if order_strategy is not None:
        options["order_strategy"] = order_strategy
    if order_by is not None:
        options["order_by"] = order_by
    specs = [partition_of(typed) for typed in partition] or None
    with progress() as reporter:
        report = session.table.compact(full, specs, options, dry_run=not yes, progress=reporter)
    compacted = report.compacted
    skipped = [bucket for bucket in report.buckets if bucket.skipped is not None]
    parts: list[Part] = []
    if compacted or not skipped:
        parts.append(Listing(BUCKETS, compacted, "There is nothing to compact."))
    if compacted:
        parts.append(_summary(report, done=yes))
    for bucket in skipped:
        parts.append(
            f"{partition_text(bucket.partition)}, bucket {bucket.bucket}: {bucket.skipped}"
        )
    return changed_answer(report.to_json(), parts, done=yes, has_work=bool(compacted))


def _summary(report: CompactReport, *, done: bool) -> str:
    """What the compaction has done, or would do, in one sentence."""
    clauses = []
    if report.files_before:
        before = f"{count(report.files_before, 'file')} ({size(report.bytes_before)})"
        if done:
            after = f"{report.files_after:,} ({size(report.bytes_after)})"
            clauses.append(f"{before} became {after}")
        else:
            clauses.append(f"{before} would become about {report.files_after:,}")
    if report.files_upgraded:
        verb = "moved" if done else "would move"
        files = count(report.files_upgraded, "file")
        clauses.append(f"{files} {verb} to a higher level as they are")
    if report.changelog_rows:
        clauses.append(f"the changelog got {count(report.changelog_rows, 'row')}")
    where = f", in snapshot {report.snapshot_id}" if done else ""
    return f"{'; '.join(clauses)}{where}."


def _words_for(session: Session) -> list[str]:
    """The words of a command line that name the table: the text that was typed, if it is a name in
    a catalog; otherwise the table's folder. If only the catalog can open the table, these words are
    the catalog and the name.
    """
    context = click.get_current_context(silent=True)
    params = {} if context is None else context.params
    if session.catalog_options and params.get("location") == session.location:
        return [session.location]
    if metastore_of(session.catalog_options) == "filesystem":
        return [session.raw.location]
    name = params.get("catalog_name")
    database, table = session.identifier
    return [*(["--catalog", name] if name else []), f"{database}.{table}"]


class CompactionAdvice:
    """The advice that `stats` and `doctor` give about compaction: which buckets need it, what it
    gains, and how to start it. The advice comes from a dry run of a compaction. There is no advice
    for a table that this release does not compact.

    Attributes:
        report: the report of the dry run; None if the compaction is refused or the table cannot be
            read.
        command: the command line that starts the compaction.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._has_key = bool(session.raw.schema.primary_keys)
        self.report = self._dry_run()
        self.command = self._command()

    def _dry_run(self) -> CompactReport | None:
        try:
            return self._session.table.compact(full=not self._has_key, dry_run=True)
        except (ConfigError, IncompatibleSchema, FormatError, StorageError):
            return None

    def _command(self) -> str:
        session = self._session
        is_full = not self._has_key and session.raw.options.value(BUCKET) > 0
        full = ["--full"] if is_full else []
        return shlex.join(["paimon-stream", "compact", *full, "--yes", *_words_for(session)])

    @property
    def needed(self) -> bool:
        """Whether there is anything to compact."""
        return self.report is not None and bool(self.report.compacted)

    def document(self) -> dict[str, Any] | None:
        """The advice for programs: the report of the dry run, and the command if there is anything
        to compact. None if there is no report.
        """
        if self.report is None:
            return None
        return {**self.report.to_json(), "command": self.command if self.needed else None}

    def summary(self) -> str:
        """What a compaction would gain, in one line."""
        report = self.report
        if report is None or not report.compacted:
            return "nothing"
        before = count(report.files_before + report.files_upgraded, "file")
        after = report.files_after + report.files_upgraded
        total_bytes = sum(bucket.bytes for bucket in report.compacted)
        buckets = count(len(report.compacted), "bucket")
        return f"{before} ({size(total_bytes)}) into about {after:,}, in {buckets}"

    def parts(self) -> list[Part]:
        """The buckets that gain most from a compaction, and the command. Empty if no compaction is
        needed.
        """
        report = self.report
        if report is None or not report.compacted:
            return []
        worst = sorted(
            report.compacted,
            key=lambda bucket: (bucket.reads_after - bucket.reads_before, -bucket.bytes),
        )
        parts: list[Part] = [Listing(BUCKETS, worst[:_SHOWN], "")]
        if len(worst) > _SHOWN:
            more = count(len(worst) - _SHOWN, "bucket")
            parts.append(f"… and {more} more: paimon-stream compact lists them.")
        files = f"{report.read_amplification:.1f} files"
        if worst[0].bucket < 0:
            gain = "The rows in bucket -2 wait: no reader sees them before a compaction."
        elif self._has_key:
            gain = f"There a reader merges a key's rows of {files} where one would do."
        else:
            gain = f"There a reader opens {files} where one would do."
        advice = f"{gain} Start the compaction: {self.command}"
        if self._session.catalog_options or self._session.storage_options:
            advice += " Give it the same catalog, branch and --storage-option as here."
        return [*parts, advice]
