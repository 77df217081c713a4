"""`expire`."""

import datetime as dt

import click

from paimon_stream.cli.command import YES, Session, changed_answer, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count
from paimon_stream.maintenance.ages import age_or_time

_COUNT = click.IntRange(min=1)


@table_command(
    example='expire --older-than "7 d" --yes /data/shop.db/orders',
    params=(
        click.Option(["--retain-max"], type=_COUNT, help="Keep at most this number of snapshots."),
        click.Option(["--retain-min"], type=_COUNT, help="Keep at least this number of snapshots."),
        click.Option(
            ["--older-than"],
            metavar="AGE|TIME",
            help='Expire only snapshots older than this, such as "36 h", 2026-11-01, 2026-11-01T12:00Z.',
        ),
        click.Option(["--max-deletes"], type=_COUNT, help="Expire at most this number of snapshots now."),
        click.Option(
            ["--protect-streams/--no-protect-streams"],
            default=True,
            show_default=True,
            help="Keep the last snapshot of streams that were active within a day.",
        ),
        YES,
    ),
)
def expire(
    session: Session,
    retain_max: int | None,
    retain_min: int | None,
    older_than: str | None,
    max_deletes: int | None,
    protect_streams: bool,
    yes: bool,
) -> Answer:
    """Expires old snapshots, and deletes the files that only they need. For limits that are not given, the
    table's options apply. Tags, consumers and active streams keep what they need. Without --yes it only shows
    what would expire."""
    limits = (retain_max, retain_min, None if older_than is None else _moment(older_than), max_deletes, not yes)
    with progress() as reporter:
        report = session.table.expire_snapshots(*limits, protect_streams=protect_streams, progress=reporter)
    ids = report.snapshots
    if not ids:
        said = "No snapshot has to expire."
    else:
        files = ", ".join(f"{what} {number:,}" for what, number in report.files.items()) or "none"
        verb, files_verb = ("expired", "deleted") if yes else ("would expire", "that would be deleted")
        said = f"{count(len(ids), 'snapshot')} {verb}, {ids[0]} to {ids[-1]}; files {files_verb}: {files}."
    left = [f"{count(report.left, 'file')} could not be deleted and stay as orphans."] if report.left else []
    if report.impossible:
        left.append(f"{count(report.impossible, 'file')} cannot exist by their names; verify lists them.")
    return changed_answer(report.to_json(), [said, *left], done=yes, something=bool(ids))


def _moment(text: str) -> dt.timedelta | dt.datetime:
    try:
        return age_or_time(text)
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--older-than {text!r} is neither an age such as '36 h' nor a time such as 2026-11-01T12:00Z."
        ) from None
