"""The commands `tag`, `rollback` and `branch`, with their subcommands."""

import datetime as dt
from collections.abc import Sequence
from typing import Final

import click

from paimon_stream.cli import command
from paimon_stream.cli.command import COUNT, YES, Session, changed_answer, option, table_command
from paimon_stream.cli.output import CommandAnswer, Listing
from paimon_stream.cli.snapshots import named_columns
from paimon_stream.cli.text import count, iso
from paimon_stream.errors import FormatError, NotFound
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.branches import ForwardReport
from paimon_stream.maintenance.rollback import RollbackReport
from paimon_stream.maintenance.tags import TagReport, find_tag
from paimon_stream.options import TAG_AUTOMATIC_CREATION
from paimon_stream.options.option import duration

_NAME = click.Argument(["name"])
_TAG = click.Argument(["name"], shell_complete=command.tags)
_BRANCH = click.Argument(["name"], shell_complete=command.branches)
_GIVE_UP: Final = (
    "Give up an interrupted rollback to another target. Make sure that it no longer runs."
)
_TAKE_OVER: Final = option("--take-over", _GIVE_UP, is_flag=True)
_COLUMNS: Final = named_columns("tag")
_RETAINED: Final = 'Keep it for this long, such as "90 d". By default, it is kept forever.'


@table_command(name="list", example="tag list /data/shop.db/orders", columns=_COLUMNS)
def tag_list(session: Session) -> CommandAnswer:
    """Lists the tags, each with the snapshot that it keeps."""
    rows = sorted(session.table.tags().items())
    return session.listing("tags", Listing(_COLUMNS, rows, "There are no tags."))


@table_command(
    name="create",
    example="tag create --snapshot 12 /data/shop.db/orders month-end",
    params=(
        _NAME,
        option("--snapshot", "Keep this snapshot instead of the newest.", type=COUNT),
        option("--time-retained", _RETAINED, metavar="AGE"),
    ),
)
def tag_create(
    session: Session, name: str, snapshot: int | None, time_retained: str | None
) -> CommandAnswer:
    """Keeps a snapshot under a name. The files of the snapshot do not expire while the tag
    exists.
    """
    age = None if time_retained is None else _age(time_retained)
    report = session.table.create_tag(name, snapshot, age)
    parts = [f"Tag {name} keeps snapshot {report.snapshot}."]
    return CommandAnswer(document=report.to_json(), parts=parts)


@table_command(name="automatic", example="tag automatic --yes /data/shop.db/orders", params=(YES,))
def tag_automatic(session: Session, yes: bool) -> CommandAnswer:
    """Creates the tags that are due by tag.automatic-creation, as commits do, and deletes automatic
    tags beyond tag.num-retained-max. Without --yes it only shows them.
    """
    report = session.table.create_automatic_tags(dry_run=not yes)
    keeps = "keeps" if yes else "would keep"
    deleted = "is deleted" if yes else "would be deleted"
    parts = [f"Tag {name} {keeps} snapshot {number}." for name, number in report.created.items()]
    parts += [f"Tag {name} {deleted}, because it is too old." for name in report.deleted]
    has_work = bool(parts)
    if not has_work and session.raw.options.value(TAG_AUTOMATIC_CREATION) == "none":
        parts.append(f"{TAG_AUTOMATIC_CREATION.key} is none, so no tag is due.")
    elif not has_work:
        parts.append("No tag is due.")
    return changed_answer(report.to_json(), parts, done=yes, has_work=has_work)


@table_command(
    name="delete", example="tag delete --yes /data/shop.db/orders month-end", params=(_TAG, YES)
)
def tag_delete(session: Session, name: str, yes: bool) -> CommandAnswer:
    """Deletes a tag, and the files that only this tag kept. If the tag cannot be read, only its own
    file is deleted. Without --yes, the tag is only shown.
    """
    snapshot = find_tag(session.raw.storage, name)
    if snapshot is None:
        raise NotFound(f"has no tag {name!r}. See: paimon-stream tag list.", tag=name).of_table(
            session.raw.location, subject=True
        )
    if not yes:
        return _tag_to_delete(session, name, snapshot)
    report = session.table.delete_tag(name)
    kinds = [f"{kind} {number:,}" for kind, number in report.files.items()]
    parts = [f"Tag {name} is deleted; files deleted with it: {', '.join(kinds) or 'none'}."]
    return CommandAnswer(document={**report.to_json(), "dry_run": False}, parts=parts)


def _tag_to_delete(session: Session, name: str, snapshot: Snapshot | FormatError) -> CommandAnswer:
    """What `tag delete` would do with a tag. `snapshot` is the snapshot of the tag, or the error if
    the tag cannot be read.
    """
    if isinstance(snapshot, Snapshot):
        time = iso(snapshot.time_millis)
        sentence = f"Tag {name} keeps snapshot {snapshot.id} of {time}, and would be deleted."
        report = TagReport(location=session.raw.location, tag=name, snapshot=snapshot.id)
    else:
        sentence = f"Tag {name} cannot be read. Only its file would be deleted. {snapshot}"
        report = TagReport(location=session.raw.location, tag=name, unreadable=True)
    document = {**report.to_json(), "dry_run": True}
    return changed_answer(document, [sentence], done=False, has_work=True)


tag = click.Group(
    "tag",
    commands=[tag_list, tag_create, tag_automatic, tag_delete],
    help="Tags: snapshots that are kept under a name.\n\n\b\nExample:\n  paimon-stream tag list /data/shop.db/orders",
)


@table_command(
    example="rollback --yes /data/shop.db/orders 12",
    params=(
        click.Argument(
            ["target"], metavar="SNAPSHOT|TAG", shell_complete=command.snapshots_and_tags
        ),
        option(
            "--tag",
            "Read a number as the name of a tag, not as a snapshot id.",
            "is_tag",
            is_flag=True,
        ),
        _TAKE_OVER,
        YES,
    ),
)
def rollback(
    session: Session, target: str, is_tag: bool, take_over: bool, yes: bool
) -> CommandAnswer:
    """Makes a snapshot, or the snapshot of a tag, the newest again, and removes all later snapshots
    and tags. Stop the writers first; expiry may run beside it. A stream that loses batches stops
    with TableRolledBack when it is restarted. The same command completes a rollback that was
    interrupted. Until then nothing expires. Without --yes it only shows what would be removed.
    """
    is_id = target.isascii() and target.isdigit() and not is_tag
    snapshot_or_tag = int(target) if is_id else target
    report = session.table.rollback_to(snapshot_or_tag, dry_run=not yes, take_over=take_over)
    verb = "is" if yes else "would be"
    removed = "removed" if yes else "would be removed"
    parts = [f"Snapshot {report.snapshot} {verb} the newest."]
    if report.snapshots:
        parts.append(_snapshots_changed(report.snapshots, removed))
    parts += _lost_parts(report, done=yes)
    has_work = bool(report.snapshots or report.tags or report.changelogs)
    return changed_answer(report.to_json(), parts, done=yes, has_work=has_work)


def _snapshots_changed(ids: Sequence[int], verb: str) -> str:
    return f"{count(len(ids), 'snapshot')} {verb}: {min(ids)} to {max(ids)}."


def _lost_parts(report: RollbackReport | ForwardReport, *, done: bool) -> list[str]:
    """The tags and the batches that a rollback or a fast forward removes with the snapshots."""
    removed = "removed" if done else "would be removed"
    loses = "loses" if done else "would lose"
    parts = []
    if report.tags:
        parts.append(f"{count(len(report.tags), 'tag')} {removed}: {', '.join(report.tags)}.")
    for user, first in report.streams.items():
        parts.append(f"Commit user {user} {loses} its batches from {first} on.")
    return parts


def _age(typed: str) -> dt.timedelta:
    try:
        return dt.timedelta(milliseconds=duration(typed))
    except ValueError:
        raise click.UsageError(f"--time-retained {typed!r} is not an age such as '90 d'.") from None


# -- branches --------------------------------------------------------------------------------------
_BRANCH_COLUMNS: Final = named_columns("branch")


@table_command(name="list", example="branch list /data/shop.db/orders", columns=_BRANCH_COLUMNS)
def branch_list(session: Session) -> CommandAnswer:
    """Lists the branches except main, each with its newest snapshot."""
    rows = sorted(session.table.branches().items())
    return session.listing("branches", Listing(_BRANCH_COLUMNS, rows, "There are no branches."))


@table_command(
    name="create",
    example="branch create --tag month-end /data/shop.db/orders test",
    params=(_NAME, option("--tag", "Begin with the snapshot of this tag. By default it is empty.")),
)
def branch_create(session: Session, name: str, tag: str | None) -> CommandAnswer:
    """Creates a branch. A branch has a separate history, but shares the files of the table."""
    report = session.table.create_branch(name, tag)
    sentence = f"Branch {name} is empty."
    if report.snapshot is not None:
        sentence = f"Branch {name} begins with snapshot {report.snapshot}."
    return CommandAnswer(document=report.to_json(), parts=[sentence])


@table_command(
    name="delete", example="branch delete --yes /data/shop.db/orders test", params=(_BRANCH, YES)
)
def branch_delete(session: Session, name: str, yes: bool) -> CommandAnswer:
    """Deletes a branch with its snapshots and tags. The files that only it needed stay until they
    are removed as orphans. Stop its writers first. A query of this branch that writes to main later
    does not repeat the batches that only the branch had. If you want them, fast-forward main to the
    branch first. Without --yes it only says whether there is such a branch.
    """
    report = session.table.delete_branch(name, dry_run=not yes)
    if not report.found:
        raise NotFound(
            f"has no branch {name!r}. See: paimon-stream branch list.", branch=name
        ).of_table(session.raw.location, subject=True)
    verb = "is" if yes else "would be"
    parts = [f"Branch {name} {verb} deleted."]
    return changed_answer(report.to_json(), parts, done=yes, has_work=True)


@table_command(
    name="fast-forward",
    example="branch fast-forward --yes /data/shop.db/orders test",
    params=(_BRANCH, _TAKE_OVER, YES),
)
def branch_fast_forward(session: Session, name: str, take_over: bool, yes: bool) -> CommandAnswer:
    """Makes main what a branch is. Main loses the snapshots and tags that the branch does not have.
    Stop the writers first. The same command completes a fast-forward that was interrupted. Without
    --yes it only shows what would change.
    """
    report = session.table.fast_forward(name, dry_run=not yes, take_over=take_over)
    verb = "is" if yes else "would be"
    parts = [f"Snapshot {report.snapshot} of branch {name} {verb} the newest of the table."]
    removed = "removed" if yes else "would be removed"
    added = "added" if yes else "would be added"
    if report.removed:
        parts.append(_snapshots_changed(report.removed, removed))
    if report.added:
        parts.append(_snapshots_changed(report.added, added))
    parts += _lost_parts(report, done=yes)
    has_work = bool(report.added or report.removed)
    return changed_answer(report.to_json(), parts, done=yes, has_work=has_work)


branch = click.Group(
    "branch",
    commands=[branch_list, branch_create, branch_delete, branch_fast_forward],
    help="Branches: histories beside main that share the files of the table.\n\n\b\nExample:\n"
    "  paimon-stream branch list /data/shop.db/orders",
)
