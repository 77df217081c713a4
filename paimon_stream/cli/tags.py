"""`tag list`, `create`, `automatic`, `delete`; `rollback`; and `branch list`, `create`, `delete`,
`fast-forward`.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

import click

from paimon_stream.cli import command
from paimon_stream.cli.command import COUNT, YES, Session, changed_answer, option, table_command
from paimon_stream.cli.output import Answer, Listing
from paimon_stream.cli.snapshots import named_columns
from paimon_stream.cli.text import count, iso
from paimon_stream.errors import NotFound
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance.tags import TagReport, find_tag
from paimon_stream.options import TAG_AUTOMATIC_CREATION
from paimon_stream.options.option import duration

_NAME = click.Argument(["name"])
_TAG = click.Argument(["name"], shell_complete=command.tags)
_BRANCH = click.Argument(["name"], shell_complete=command.branches)
_GIVE_UP: Final = (
    "Give up an interrupted rollback to another target. Make sure that it runs no more."
)
_TAKE_OVER: Final = option("--take-over", _GIVE_UP, is_flag=True)
_COLUMNS: Final = named_columns("tag")
_RETAINED: Final = 'Keep it for this long, such as "90 d". By default it is kept for ever.'


@table_command(name="list", example="tag list /data/shop.db/orders", columns=_COLUMNS)
def tag_list(session: Session) -> Answer:
    """Lists the tags, each with the snapshot that it keeps."""
    return session.listing(
        "tags", Listing(_COLUMNS, sorted(session.table.tags().items()), "There are no tags.")
    )


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
) -> Answer:
    """Keeps a snapshot under a name. Its files do not expire while the tag exists."""
    kept = None if time_retained is None else _age(time_retained)
    report = session.table.create_tag(name, snapshot, kept)
    return Answer(
        document=report.to_json(), parts=[f"Tag {name} keeps snapshot {report.snapshot}."]
    )


@table_command(name="automatic", example="tag automatic --yes /data/shop.db/orders", params=(YES,))
def tag_automatic(session: Session, yes: bool) -> Answer:
    """Creates the tags that are due by tag.automatic-creation, as commits do, and deletes automatic
    tags beyond tag.num-retained-max. Without --yes it only shows them.
    """
    report = session.table.create_automatic_tags(dry_run=not yes)
    verb = "keeps" if yes else "would keep"
    parts = [f"Tag {name} {verb} snapshot {number}." for name, number in report.created.items()]
    parts += [
        f"Tag {name} {'is' if yes else 'would be'} deleted, because it is too old."
        for name in report.deleted
    ]
    mode = session.raw.options.value(TAG_AUTOMATIC_CREATION)
    none = (
        "No tag is due."
        if mode != "none"
        else f"{TAG_AUTOMATIC_CREATION.key} is none, so no tag is due."
    )
    return changed_answer(report.to_json(), parts or [none], done=yes, something=bool(parts))


@table_command(
    name="delete", example="tag delete --yes /data/shop.db/orders month-end", params=(_TAG, YES)
)
def tag_delete(session: Session, name: str, yes: bool) -> Answer:
    """Deletes a tag, and the files that only it kept. Of a tag that cannot be read it deletes only
    the tag's own file. Without --yes it only shows the tag.
    """
    found = find_tag(session.raw.storage, name)
    if found is None:
        text = f"has no tag {name!r}. See: paimon-stream tag list."
        raise NotFound(text, tag=name).of_table(session.raw.location, subject=True)
    if not yes:
        said, snapshot = f"Tag {name} cannot be read. Only its file would be deleted. {found}", None
        if isinstance(found, Snapshot):
            said = f"Tag {name} keeps snapshot {found.id} of {iso(found.time_millis)}, and would be deleted."
            snapshot = found.id
        shown = TagReport(
            location=session.raw.location, tag=name, snapshot=snapshot, unreadable=snapshot is None
        )
        return changed_answer(
            {**shown.to_json(), "dry_run": True}, [said], done=False, something=True
        )
    report = session.table.delete_tag(name)
    deleted = ", ".join(f"{what} {number:,}" for what, number in report.files.items()) or "none"
    text = f"Tag {name} is deleted; files deleted with it: {deleted}."
    return Answer(document={**report.to_json(), "dry_run": False}, parts=[text])


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
def rollback(session: Session, target: str, is_tag: bool, take_over: bool, yes: bool) -> Answer:
    """Makes a snapshot, or the snapshot of a tag, the newest again, and removes all later snapshots
    and tags. Stop the writers first; expiry may run beside it. A stream that loses batches stops
    with TableRolledBack when it is restarted. A rollback that was interrupted is completed by the
    same command; until then nothing expires. Without --yes it only shows what would be removed.
    """
    to = int(target) if target.isascii() and target.isdigit() and not is_tag else target
    report = session.table.rollback_to(to, dry_run=not yes, take_over=take_over)
    would = "" if yes else "would be "
    parts = [f"Snapshot {report.snapshot} {would or 'is '}the newest."]
    if report.snapshots:
        gone = report.snapshots
        parts.append(f"{count(len(gone), 'snapshot')} {would}removed: {min(gone)} to {max(gone)}.")
    parts += lost_with(report.tags, report.streams, yes)
    something = bool(report.snapshots or report.tags or report.changelogs)
    return changed_answer(report.to_json(), parts, done=yes, something=something)


def lost_with(tags: Sequence[str], streams: Mapping[str, int], done: bool) -> list[str]:
    """What goes with the snapshots that a rollback or a fast forward removes."""
    removed, loses = ("removed", "loses") if done else ("would be removed", "would lose")
    parts = [f"{count(len(tags), 'tag')} {removed}: {', '.join(tags)}."] if tags else []
    return parts + [
        f"Commit user {user} {loses} its batches from {first} on."
        for user, first in streams.items()
    ]


def _age(text: str) -> dt.timedelta:
    try:
        return dt.timedelta(milliseconds=duration(text))
    except ValueError:
        raise click.UsageError(f"--time-retained {text!r} is not an age such as '90 d'.") from None


# -- branches --------------------------------------------------------------------------------------
_BRANCH_COLUMNS: Final = named_columns("branch")


@table_command(name="list", example="branch list /data/shop.db/orders", columns=_BRANCH_COLUMNS)
def branch_list(session: Session) -> Answer:
    """Lists the branches but main, each with its newest snapshot."""
    found = sorted(session.table.branches().items())
    return session.listing("branches", Listing(_BRANCH_COLUMNS, found, "There are no branches."))


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


@table_command(
    name="delete", example="branch delete --yes /data/shop.db/orders test", params=(_BRANCH, YES)
)
def branch_delete(session: Session, name: str, yes: bool) -> Answer:
    """Deletes a branch with its snapshots and tags. The files that only it needed stay until they
    are removed as orphans. Stop its writers first. A query that is pointed to main later goes on
    there without the batches that only the branch had: fast-forward to it before, if they are
    wanted. Without --yes it only says whether there is such a branch.
    """
    report = session.table.delete_branch(name, dry_run=not yes)
    if not report.found:
        text = f"has no branch {name!r}. See: paimon-stream branch list."
        raise NotFound(text, branch=name).of_table(session.raw.location, subject=True)
    parts = [f"Branch {name} {'is' if yes else 'would be'} deleted."]
    return changed_answer(report.to_json(), parts, done=yes, something=True)


@table_command(
    name="fast-forward",
    example="branch fast-forward --yes /data/shop.db/orders test",
    params=(_BRANCH, _TAKE_OVER, YES),
)
def branch_fast_forward(session: Session, name: str, take_over: bool, yes: bool) -> Answer:
    """Makes main what a branch is. Snapshots and tags that the branch does not have go. Stop the
    writers first. The same command completes one that was interrupted. Without --yes it only shows
    what would change.
    """
    report = session.table.fast_forward(name, dry_run=not yes, take_over=take_over)
    would = "" if yes else "would be "
    parts = [
        f"Snapshot {report.snapshot} of branch {name} {would or 'is '}the newest of the table."
    ]
    for what, numbers in (("removed", report.removed), ("added", report.added)):
        if numbers:
            parts.append(
                f"{count(len(numbers), 'snapshot')} {would}{what}: {min(numbers)} to {max(numbers)}."
            )
    parts += lost_with(report.tags, report.streams, yes)
    return changed_answer(
        report.to_json(), parts, done=yes, something=bool(report.added or report.removed)
    )


branch = click.Group(
    "branch",
    commands=[branch_list, branch_create, branch_delete, branch_fast_forward],
    help="Branches: histories beside main that share the files of the table.\n\n\b\nExample:\n"
    "  paimon-stream branch list /data/shop.db/orders",
)
