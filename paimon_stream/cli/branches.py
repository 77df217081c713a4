"""`branch list`, `branch create`, `branch delete`, `branch fast-forward`."""

from typing import Final

import click

from paimon_stream.cli.columns import Listing
from paimon_stream.cli.command import YES, Session, changed_answer, option, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.snapshots import named_columns
from paimon_stream.cli.tags import lost_with
from paimon_stream.cli.text import count
from paimon_stream.errors import NotFound

_NAME: Final = click.Argument(["name"])
_COLUMNS: Final = named_columns("branch")


@table_command(name="list", example="branch list /data/shop.db/orders", columns=_COLUMNS)
def branch_list(session: Session) -> Answer:
    """Lists the branches but main, each with its newest snapshot."""
    found = sorted(session.table.branches().items())
    return session.listing("branches", Listing(_COLUMNS, found, "There are no branches."))


@table_command(
    name="create",
    example="branch create --tag month-end /data/shop.db/orders test",
    params=(_NAME, option("--tag", "Begin with the snapshot of this tag. By default it is empty.")),
)
def branch_create(session: Session, name: str, tag: str | None) -> Answer:
    """Creates a branch: a history of its own, which shares the files of the table."""
    report = session.table.create_branch(name, tag)
    what = "is empty" if report.snapshot is None else f"begins with snapshot {report.snapshot}"
    return Answer(document=report.to_json(), parts=[f"Branch {name} {what}."])


@table_command(name="delete", example="branch delete --yes /data/shop.db/orders test", params=(_NAME, YES))
def branch_delete(session: Session, name: str, yes: bool) -> Answer:
    """Deletes a branch with its snapshots and tags. The files that only it needed stay until they are removed as
    orphans. Stop its writers first. Without --yes it only says whether there is such a branch."""
    report = session.table.delete_branch(name, dry_run=not yes)
    if not report.found:
        location = session.raw.location
        text = f"{location} has no branch {name!r}. See: paimon-stream branch list."
        raise NotFound(text, table=location, branch=name)
    parts = [f"Branch {name} {'is' if yes else 'would be'} deleted."]
    return changed_answer(report.to_json(), parts, done=yes, something=True)


@table_command(
    name="fast-forward",
    example="branch fast-forward --yes /data/shop.db/orders test",
    params=(
        _NAME,
        option("--take-over", "Give up an interrupted rollback. Make sure that it runs no more.", is_flag=True),
        YES,
    ),
)
def branch_fast_forward(session: Session, name: str, take_over: bool, yes: bool) -> Answer:
    """Makes main what a branch is. Snapshots and tags that the branch does not have go. Stop the writers first. The
    same command completes one that was interrupted. Without --yes it only shows what would change."""
    report = session.table.fast_forward(name, dry_run=not yes, take_over=take_over)
    would = "" if yes else "would be "
    parts = [f"Snapshot {report.snapshot} of branch {name} {would or 'is '}the newest of the table."]
    for what, numbers in (("removed", report.removed), ("added", report.added)):
        if numbers:
            parts.append(f"{count(len(numbers), 'snapshot')} {would}{what}: {min(numbers)} to {max(numbers)}.")
    parts += lost_with(report.tags, report.streams, yes)
    return changed_answer(report.to_json(), parts, done=yes, something=bool(report.added or report.removed))


branch = click.Group(
    "branch",
    commands=[branch_list, branch_create, branch_delete, branch_fast_forward],
    help="Branches: histories beside main that share the files of the table.\n\n\b\nExample:\n"
    "  paimon-stream branch list /data/shop.db/orders",
)
