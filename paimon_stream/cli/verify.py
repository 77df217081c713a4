"""`verify`."""

from typing import Final

import click

from paimon_stream.cli.columns import Column, Listing, json_of
from paimon_stream.cli.command import Session, table_command
from paimon_stream.cli.exits import FINDINGS, OK
from paimon_stream.cli.output import Answer
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import in_commands, listed, ranges
from paimon_stream.maintenance.findings import Finding
from paimon_stream.maintenance.verify import DEFAULT_SAMPLE
from paimon_stream.maintenance.verify import verify as verify_table

_COLUMNS: Final[tuple[Column[Finding], ...]] = (
    Column("severity", lambda one: one.severity),
    Column("code", lambda one: one.code),
    Column("path", lambda one: one.path, "file"),
    Column("message", lambda one: one.message, "what", text=lambda one: in_commands(one.message), prose=True),
    Column("cure", lambda one: one.cure, "what to do", text=lambda one: in_commands(one.cure), prose=True),
    Column("snapshots", lambda one: one.snapshots, text=lambda one: ranges(one.snapshots) or None, extra=True),
    Column("tags", lambda one: one.tags, text=lambda one: listed(one.tags) or None, extra=True),
)


@table_command(
    example="verify --sample 100 /data/shop.db/orders",
    columns=_COLUMNS,
    params=(
        click.Option(
            ["--sample"],
            type=click.IntRange(min=0),
            default=DEFAULT_SAMPLE,
            show_default=True,
            help="Read this number of data files in full, drawn at random.",
        ),
        click.Option(["--strict"], is_flag=True, help="End with exit code 1 for warnings, too."),
    ),
)
def verify(session: Session, sample: int, strict: bool) -> Answer:
    """Reads every snapshot, tag, manifest list and manifest. Checks that every file exists and has the
    recorded size, and checks the counts, the statistics and buckets of sampled rows, the identifiers and the
    hints. Changes nothing. Ends with exit code 1 if it finds an error."""
    with progress() as reporter:
        report = verify_table(session.raw, sample=sample, progress=reporter)
    looked_at = ", ".join(f"{what} {number:,}" for what, number in report.checked.items())
    more = [f"{number:,} more of {code}." for code, number in report.omitted.items()]
    bad = not report.healthy or (strict and any(one.severity == "warning" for one in report.findings))
    return Answer(
        document={**report.to_json(), "findings": [json_of(_COLUMNS, one) for one in report.findings]},
        parts=[Listing(_COLUMNS, report.findings, "Nothing is wrong."), *more, f"Looked at: {looked_at}."],
        code=FINDINGS if bad else OK,
    )
