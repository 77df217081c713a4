"""`verify`."""

from __future__ import annotations

import click

from paimon_stream.cli.command import Session, report_json, table_command
from paimon_stream.cli.exits import FINDINGS, OK
from paimon_stream.cli.output import Answer, Column, Listing
from paimon_stream.cli.progress import progress
from paimon_stream.maintenance.verify import DEFAULT_SAMPLE
from paimon_stream.maintenance.verify import verify as verify_table

__all__ = ["verify"]


@table_command(
    example="verify --sample 100 /data/warehouse/shop.db/orders",
    params=(
        click.Option(
            ["--sample"],
            type=click.IntRange(min=0),
            default=DEFAULT_SAMPLE,
            show_default=True,
            help="So many data files, drawn at random, are read in full.",
        ),
        click.Option(["--strict"], is_flag=True, help="Warnings, too, end with exit code 1."),
    ),
)
def verify(session: Session, sample: int, strict: bool) -> Answer:
    """Reads every snapshot, tag, list and manifest, and looks whether all they say is so: existence and size
    of every file, counts, statistics and buckets of sampled rows, identifiers, hints. Changes nothing. Exit
    code 1 where an error is found."""
    with progress() as tell:
        report = verify_table(session.raw, sample=sample, progress=tell)
    columns = [Column("severity"), Column("code"), Column("file"), Column("what"), Column("what to do")]
    rows = [(one.severity, one.code, one.path, one.message, one.cure) for one in report.findings]
    looked_at = ", ".join(f"{what} {number:,}" for what, number in report.checked.items())
    more = [f"{number:,} more of {code}." for code, number in report.omitted.items()]
    bad = not report.healthy or (strict and any(one.severity == "warning" for one in report.findings))
    return Answer(
        document=report_json(report.to_json()),
        parts=[Listing(columns, rows, "Nothing is wrong."), *more, f"Looked at: {looked_at}."],
        code=FINDINGS if bad else OK,
    )
