"""`recommit`."""

import click

from paimon_stream.cli.command import YES, Session, changed_answer, table_command
from paimon_stream.cli.completion import users
from paimon_stream.cli.output import Answer
from paimon_stream.cli.text import count


@table_command(
    example="recommit --yes /data/shop.db/orders",
    params=(
        click.Option(["--user"], shell_complete=users, help="Commit a batch of this commit user."),
        click.Option(["--batch"], type=click.IntRange(min=0), help="Commit this batch, not the earliest."),
        click.Option(["--snapshot"], type=click.IntRange(min=1), help="The id of the lost snapshot."),
        click.Option(["--delta-list"], metavar="NAME", help="The delta list of the lost snapshot."),
        YES,
    ),
)
def recommit(
    session: Session, user: str | None, batch: int | None, snapshot: int | None, delta_list: str | None, yes: bool
) -> Answer:
    """Commits the files of a batch again whose snapshot another engine replaced. The error CommitLost gives
    the whole command. Without --snapshot and --delta-list the journal of the stream names the files. It can
    be run twice: a batch that is in the table is left as it is. Then start the stream again. Without --yes it
    only shows what it would commit."""
    report = session.table.recommit(user, batch, snapshot=snapshot, delta_list=delta_list, dry_run=not yes)
    files, rows = count(report.files, "file"), count(report.rows, "row")
    which = f"Batch {report.batch} of commit user {report.user}"
    if report.found:
        where = "" if report.snapshot is None else f", in snapshot {report.snapshot}"
        parts = [f"{which} is in the table{where}. There is nothing to do."]
        return changed_answer(report.to_json(), parts, done=yes, something=False)
    parts = [f"{which} was snapshot {report.replaced}. A snapshot of user {report.by} has replaced it."]
    if yes:
        parts.append(f"{files} with {rows} are in the table again, in snapshot {report.snapshot}.")
    else:
        parts.append(f"{files} with {rows} would be committed again. All of them exist.")
        parts.append(
            "If somebody rolled the table back with another engine within the last hour, it can look like "
            "this. Then do not do it."
        )
    return changed_answer(report.to_json(), parts, done=yes, something=True)
