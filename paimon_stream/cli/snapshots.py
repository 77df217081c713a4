"""`snapshots`, `expire`; and of those who made them: `query`, `recommit`."""

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from paimon_stream.api.inspection import Writer, writers_of
from paimon_stream.cli.command import (
    COUNT,
    YES,
    Session,
    changed_answer,
    option,
    table_command,
    users,
)
from paimon_stream.cli.exits import BROKEN, OK
from paimon_stream.cli.output import Column, CommandAnswer, Listing, json_of, say
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count, iso, listed, moment, ranges, size
from paimon_stream.errors import FormatError
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot
from paimon_stream.format.snapshot_marks import own_properties
from paimon_stream.options import age_or_time
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.table.snapshots import SnapshotStore


def _batch(one: Snapshot) -> int | None:
    return None if one.commit_identifier == BATCH_IDENTIFIER else one.commit_identifier


def _rows(one: Snapshot) -> int | None:
    """The number of rows that were written; None if a snapshot of another engine does not show
    it.
    """
    if one.commit_kind is CommitKind.COMPACT:
        return None
    written = BatchSummary.of(own_properties(one)).rows
    return (
        one.delta_record_count
        if written is None and one.commit_kind is CommitKind.APPEND
        else written
    )


def _change(one: Snapshot) -> str:
    return f"{one.delta_record_count:+,}"


def _properties(one: Snapshot) -> str | None:
    return ", ".join(f"{key}={value}" for key, value in one.properties.items()) or None


COLUMNS: Final[tuple[Column[Snapshot], ...]] = (
    Column("id", lambda one: one.id, ident=True),
    Column("time", lambda one: iso(one.time_millis), text=lambda one: moment(one.time_millis)),
    Column("time_millis", lambda one: one.time_millis, ident=True, extra=True),
    Column("kind", lambda one: one.commit_kind.value),
    Column("user", lambda one: one.commit_user),
    Column("identifier", lambda one: one.commit_identifier, ident=True, extra=True),
    Column("batch", _batch, ident=True),
    Column("rows", _rows, number=True),
    Column("delta_records", lambda one: one.delta_record_count, "change", _change, number=True),
    Column("total_records", lambda one: one.total_record_count, "total", number=True),
    Column(
        "changelog_records",
        lambda one: one.changelog_record_count,
        "changelog",
        number=True,
        extra=True,
    ),
    Column("schema_id", lambda one: one.schema_id, "schema", ident=True),
    Column(
        "write_millis",
        lambda one: BatchSummary.of(own_properties(one)).write_millis,
        "write ms",
        number=True,
    ),
    Column(
        "watermark", lambda one: one.watermark, text=lambda one: moment(one.watermark), extra=True
    ),
    Column("statistics", lambda one: one.statistics, extra=True),
    Column("properties", lambda one: dict(one.properties), text=_properties, extra=True),
)
"""The columns of a snapshot, the same in all commands."""


def named_columns(title: str) -> tuple[Column[tuple[str, Snapshot | None]], ...]:
    """The columns of tags and branches: each has a name and a snapshot, a branch perhaps none."""

    def of(read: Callable[[Snapshot], Any]) -> Callable[[tuple[str, Snapshot | None]], Any]:
        return lambda one: None if one[1] is None else read(one[1])

    return (
        Column("name", lambda one: one[0], title),
        Column(
            "snapshot",
            of(lambda one: json_of(COLUMNS, one)),
            text=of(lambda one: one.id),
            ident=True,
        ),
        Column(
            "time",
            of(lambda one: iso(one.time_millis)),
            text=of(lambda one: moment(one.time_millis)),
        ),
        Column("rows", of(lambda one: one.total_record_count), number=True),
    )


_USER: Final = option(
    "--user", "List only what this commit user has written.", shell_complete=users
)


@table_command(
    example="snapshots --limit 5 /data/shop.db/orders",
    columns=COLUMNS,
    params=(option("--limit", "List at most this number of snapshots.", type=COUNT), _USER),
)
def snapshots(session: Session, limit: int | None, user: str | None) -> CommandAnswer:
    """Lists the snapshots, newest first: who made each and when, how many rows it wrote, by how
    much the number of rows in the table's files changed, and how long the write took. If a
    snapshot's file is damaged, its id is reported and the others are listed.
    """
    store = SnapshotStore(session.raw.storage)
    users: set[str] = set()
    found: list[Snapshot] = []
    damaged: dict[int, str] = {}
    for snapshot_id in reversed(store.ids()):
        try:
            snapshot = store.find(snapshot_id)
        except FormatError as error:
            damaged[snapshot_id] = error.message
            continue
        if snapshot is None:
            continue
        users.add(snapshot.commit_user)
        if user in (None, snapshot.commit_user):
            found.append(snapshot)
            if len(found) == limit:
                break
    for wrong in damaged.values():
        say(wrong)
    empty = "There are no snapshots." if user is None else nobody("snapshot", user, users)
    code = BROKEN if damaged else OK
    return session.listing("snapshots", Listing(COLUMNS, found, empty), code, damaged=list(damaged))


def nobody(what: str, user: str, users: Iterable[str]) -> str:
    """The answer if there is nothing of a commit user: it names the other commit users."""
    others = sorted(set(users) - {user})
    whose = f"The commit users here are {listed(others)}." if len(others) > 1 else ""
    whose = f"The only commit user here is {others[0]}." if len(others) == 1 else whose
    return f"There is no {what} of commit user {user!r}. {whose or 'Nobody has written here.'}"


_OLDER: Final = (
    'Expire only snapshots older than this, such as "36 h", 2026-11-01, 2026-11-01T12:00Z.'
)
_PROTECT: Final = "Keep the last snapshot of streams that were active within a day."


@table_command(
    example='expire --older-than "7 d" --yes /data/shop.db/orders',
    params=(
        option("--retain-max", "Keep at most this number of snapshots.", type=COUNT),
        option("--retain-min", "Keep at least this number of snapshots.", type=COUNT),
        option("--older-than", _OLDER, metavar="AGE|TIME"),
        option("--max-deletes", "Expire at most this number of snapshots now.", type=COUNT),
        option("--protect-streams/--no-protect-streams", _PROTECT, default=True),
        YES,
    ),
)
def expire(session: Session, older_than: str | None, yes: bool, **limits: Any) -> CommandAnswer:
    """Expires old snapshots, and deletes the files that only they need. For limits that are not
    given, the table's options apply. Tags, consumers and active streams keep what they need.
    Without --yes it only shows what would expire.
    """
    limits["older_than"] = None if older_than is None else _moment(older_than)
    with progress() as reporter:
        report = session.table.expire_snapshots(**limits, dry_run=not yes, progress=reporter)
    ids = report.snapshots
    if not ids:
        said = "No snapshot has to expire."
    else:
        files = ", ".join(f"{what} {number:,}" for what, number in report.files.items()) or "none"
        verb, files_verb = (
            ("expired", "deleted") if yes else ("would expire", "that would be deleted")
        )
        said = f"{count(len(ids), 'snapshot')} {verb}, {ids[0]} to {ids[-1]}; files {files_verb}: {files}."
    if report.changelogs:
        many = count(len(report.changelogs), "changelog")
        said += f" {many} that had outlived snapshots {'expired' if yes else 'would expire'}, too."
    left = (
        [f"{count(report.left, 'file')} could not be deleted and stay as orphans."]
        if report.left
        else []
    )
    if report.impossible:
        left.append(
            f"{count(report.impossible, 'file')} cannot exist by their names; verify lists them."
        )
    return changed_answer(
        report.to_json(), [said, *left], done=yes, something=bool(ids or report.changelogs)
    )


def _moment(text: str) -> dt.timedelta | dt.datetime:
    try:
        return age_or_time(text)
    except (ValueError, OverflowError):
        what = f"--older-than {text!r} is neither an age such as '36 h' nor a time such as 2026-11-01T12:00Z."
        raise click.UsageError(what) from None


# -- who made them
# --------------------------------------------------------------------------------------
def _bytes(one: Writer) -> str | None:
    return None if one.last_story.bytes is None else size(one.last_story.bytes)


def _seconds(one: Writer) -> str | None:
    millis = one.last_story.write_millis
    return None if millis is None else f"{millis / 1000:,.1f} s"


_WRITERS: Final[tuple[Column[Writer], ...]] = (
    Column("user", lambda one: one.user),
    Column("stream", lambda one: one.registered),
    Column("last_batch", lambda one: one.last_batch, ident=True),
    Column(
        "last_time",
        lambda one: iso(one.last_millis),
        "time",
        text=lambda one: moment(one.last_millis),
    ),
    Column("last_time_millis", lambda one: one.last_millis, ident=True, extra=True),
    Column("last_snapshot", lambda one: one.last_snapshot, "snapshot", ident=True),
    Column("last_rows", lambda one: one.last_story.rows, "rows", number=True),
    Column("last_bytes", lambda one: one.last_story.bytes, "size", text=_bytes, number=True),
    Column("last_files", lambda one: one.last_story.files, "files", number=True, extra=True),
    Column(
        "last_partitions",
        lambda one: one.last_story.partitions,
        "partitions",
        number=True,
        extra=True,
    ),
    Column("last_buckets", lambda one: one.last_story.buckets, "buckets", number=True, extra=True),
    Column(
        "last_write_millis",
        lambda one: one.last_story.write_millis,
        "write",
        text=_seconds,
        number=True,
    ),
    Column("batches", lambda one: one.batches, number=True),
    Column("gaps", lambda one: one.gaps, text=lambda one: ranges(one.gaps) or None),
    Column(
        "query_name",
        lambda one: one.query_name,
        "query",
        text=lambda one: one.query_name or one.query_id,
    ),
    Column("query_id", lambda one: one.query_id, extra=True),
    Column("checkpoint", lambda one: one.checkpoint),
    Column("runs", lambda one: one.runs, number=True, extra=True),
    Column("snapshots", lambda one: one.snapshots, number=True, extra=True),
    Column("first_batch", lambda one: one.first_batch, ident=True, extra=True),
    Column(
        "watermark", lambda one: one.watermark, text=lambda one: moment(one.watermark), extra=True
    ),
)


@table_command(example="query /data/shop.db/orders", columns=_WRITERS, params=(_USER,))
def query(session: Session, user: str | None) -> CommandAnswer:
    """Lists the streams and other writers that commit to the table, from the snapshots that are
    left. For each it shows the last batch with its time, its rows, the size of its files and the
    time that writing took; the gaps, which are batches without a snapshot (a batch without rows
    creates none); and the checkpoint. A stream whose snapshots have all expired is listed without
    batches.
    """
    everybody = writers_of(session.raw)
    found = [one for one in everybody if user in (None, one.user)]
    users = (one.user for one in everybody)
    empty = "Nobody has written here." if user is None else nobody("batch", user, users)
    return session.listing("writers", Listing(_WRITERS, found, empty))


@table_command(
    example="recommit --yes /data/shop.db/orders",
    params=(
        option(
            "--user", "Commit a batch of this commit user.", "commit_user", shell_complete=users
        ),
        option("--batch", "Commit this batch, not the earliest.", type=click.IntRange(min=0)),
        option("--snapshot", "The id of the lost snapshot.", type=COUNT),
        option("--delta-list", "The delta list of the lost snapshot.", metavar="NAME"),
        YES,
    ),
)
def recommit(session: Session, yes: bool, **lost: Any) -> CommandAnswer:
    """Commits the files of a batch again whose snapshot another engine replaced. The error
    CommitLost gives the whole command. Without --snapshot and --delta-list the journal of the
    stream names the files. It can be run twice: a batch that is in the table is left as it is. Then
    start the stream again. Without --yes it only shows what it would commit.
    """
    report = session.table.recommit(**lost, dry_run=not yes)
    files, rows = count(report.files, "file"), count(report.rows, "row")
    which = f"Batch {report.batch} of commit user {report.user}"
    if report.found:
        where = "" if report.snapshot is None else f", in snapshot {report.snapshot}"
        parts = [f"{which} is in the table{where}. There is nothing to do."]
        return changed_answer(report.to_json(), parts, done=yes, something=False)
    parts = [
        f"{which} was snapshot {report.replaced}. A snapshot of user {report.by} has replaced it."
    ]
    if yes:
        parts.append(f"{files} with {rows} are in the table again, in snapshot {report.snapshot}.")
    else:
        parts.append(f"{files} with {rows} would be committed again. All of them exist.")
        who = "If somebody rolled the table back with another engine within the last hour"
        parts.append(f"{who}, it can look like this. Then do not do it.")
    return changed_answer(report.to_json(), parts, done=yes, something=True)
