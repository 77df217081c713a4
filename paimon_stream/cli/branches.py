"""`branch list`, `branch create`, `branch delete`, `branch fast-forward`."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import click

from paimon_stream.cli.columns import Column, Listing, json_of
from paimon_stream.cli.command import YES, Session, changed_answer, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.snapshots import COLUMNS
from paimon_stream.cli.text import count, iso, moment
from paimon_stream.errors import NotFound
from paimon_stream.format.snapshot_json import Snapshot

_NAME: Final = click.Argument(["name"])
_Branch: TypeAlias = tuple[str, Snapshot | None]


def _of(read: Callable[[Snapshot], Any]) -> Callable[[_Branch], Any]:
    """What is shown of the newest snapshot of a branch; None if it has none."""
    return lambda one: None if one[1] is None else read(one[1])


_COLUMNS: Final[tuple[Column[_Branch], ...]] = (
    Column("name", lambda one: one[0], "branch"),
    Column("snapshot", _of(lambda one: json_of(COLUMNS, one)), text=_of(lambda one: one.id), ident=True),
    Column("time", _of(lambda one: iso(one.time_millis)), text=_of(lambda one: moment(one.time_millis))),
    Column("rows", _of(lambda one: one.total_record_count), number=True),
)


@table_command(name="list", example="branch list /data/shop.db/orders", columns=_COLUMNS)
def branch_list(session: Session) -> Answer:
    """Lists the branches but main, each with its newest snapshot."""
    found = sorted(session.table.branches().items())
    return session.listing("branches", Listing(_COLUMNS, found, "There are no branches."))


@table_command(
    name="create",
    example="branch create --tag month-end /data/shop.db/orders test",
    params=(_NAME, click.Option(["--tag"], help="Begin with the snapshot of this tag. By default it is empty.")),
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
        click.Option(
            ["--take-over"], is_flag=True, help="Give up an interrupted rollback. Make sure that it runs no more."
        ),
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
    if report.tags:
        parts.append(f"{count(len(report.tags), 'tag')} {would}removed: {', '.join(report.tags)}.")
    parts += [
        f"Commit user {user} {'loses' if yes else 'would lose'} its batches from {first} on."
        for user, first in report.streams.items()
    ]
    return changed_answer(report.to_json(), parts, done=yes, something=bool(report.added or report.removed))


branch = click.Group(
    "branch",
    commands=[branch_list, branch_create, branch_delete, branch_fast_forward],
    help="Branches: histories beside main that share the files of the table.\n\n\b\nExample:\n"
    "  paimon-stream branch list /data/shop.db/orders",
)
