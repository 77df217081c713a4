"""`delete`."""

import click

from paimon_stream.cli.command import YES, Session, changed_answer, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count
from paimon_stream.cli.where import condition_of

_WHERE = click.Option(
    ["--where"],
    required=True,
    metavar="CONDITION",
    help="Such as \"amount >= 10 AND region = 'north' AND note IS NULL\".",
)


@table_command(
    example="delete --yes --where \"id = 7 AND dt = '2026-11-20'\" /data/shop.db/events", params=(_WHERE, YES)
)
def delete(session: Session, where: str, yes: bool) -> Answer:
    """Deletes the rows of an append table that fulfil a condition, in one snapshot, by deletion vectors. Earlier
    snapshots keep the rows until they expire. Without --yes it only counts the rows."""
    condition = condition_of(where, session.raw.schema)
    with progress() as reporter:
        report = session.table.delete(condition, dry_run=not yes, progress=reporter)
    rows, files = count(report.rows, "row"), count(report.files, "file")
    verb = "would be deleted" if report.snapshot_id is None else f"were deleted, in snapshot {report.snapshot_id}"
    text = f"{rows} of {files} {verb}." if report.rows else "No row fulfils the condition."
    return changed_answer(report.to_json(), [text], done=yes, something=bool(report.rows))
