"""The commands `snapshots` and `expire`, which are about snapshots, and the commands `query` and
`recommit`, which are about writers.
"""

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

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
from paimon_stream.cli.text import count, iso, listed, minute, moment, ranges, size
from paimon_stream.errors import FormatError
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    CommitKind,
    Snapshot,
)
from paimon_stream.format.snapshot_marks import own_properties
from paimon_stream.maintenance.expire import ExpireReport
from paimon_stream.options import age_or_time
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.table.snapshots import SnapshotStore


def _batch(snapshot: Snapshot) -> int | None:
    return None if snapshot.commit_identifier == BATCH_IDENTIFIER else snapshot.commit_identifier


def _rows(snapshot: Snapshot) -> int | None:
    """The number of rows that were written; None if a snapshot of another engine does not show
    it.
    """
    if snapshot.commit_kind is CommitKind.COMPACT:
        return None
    written = BatchSummary.of(own_properties(snapshot)).rows
    if written is None and snapshot.commit_kind is CommitKind.APPEND:
        return snapshot.delta_record_count
    return written


_LETTERS: Final = {
    CommitKind.APPEND: "A",
    CommitKind.COMPACT: "C",
    CommitKind.OVERWRITE: "O",
    CommitKind.ANALYZE: "S",
}
"""The kinds of snapshots in a narrow table. ANALYZE adds statistics."""


def _change(snapshot: Snapshot) -> str:
    return f"{snapshot.delta_record_count:+,}"


def _properties(snapshot: Snapshot) -> str | None:
    return ", ".join(f"{key}={value}" for key, value in snapshot.properties.items()) or None


COLUMNS: Final[tuple[Column[Snapshot], ...]] = (
    Column("id", lambda snapshot: snapshot.id, ident=True),
    Column(
        "time",
        lambda snapshot: iso(snapshot.time_millis),
        for_people=lambda snapshot: moment(snapshot.time_millis),
        short=lambda snapshot: minute(snapshot.time_millis),
    ),
    Column("time_millis", lambda snapshot: snapshot.time_millis, ident=True, extra=True),
    Column(
        "kind",
        lambda snapshot: snapshot.commit_kind.value,
        short=lambda snapshot: _LETTERS[snapshot.commit_kind],
    ),
    Column("user", lambda snapshot: snapshot.commit_user, long_name=True),
    Column("identifier", lambda snapshot: snapshot.commit_identifier, ident=True, extra=True),
    Column("batch", _batch, ident=True),
    Column("rows", _rows, number=True),
    Column(
        "delta_records",
        lambda snapshot: snapshot.delta_record_count,
        "change",
        _change,
        number=True,
        wide=True,
    ),
    Column("total_records", lambda snapshot: snapshot.total_record_count, "total", number=True),
    Column(
        "changelog_records",
        lambda snapshot: snapshot.changelog_record_count,
        "changelog",
        number=True,
        extra=True,
    ),
    Column("schema_id", lambda snapshot: snapshot.schema_id, "schema", ident=True, wide=True),
    Column(
        "write_millis",
        lambda snapshot: BatchSummary.of(own_properties(snapshot)).write_millis,
        "write ms",
        number=True,
        wide=True,
    ),
    Column(
        "watermark",
        lambda snapshot: snapshot.watermark,
        for_people=lambda snapshot: moment(snapshot.watermark),
        extra=True,
    ),
    Column("statistics", lambda snapshot: snapshot.statistics, extra=True),
    Column(
        "properties", lambda snapshot: dict(snapshot.properties), for_people=_properties, extra=True
    ),
)
"""The columns of a snapshot, the same in all commands."""


NamedSnapshot: TypeAlias = "tuple[str, Snapshot | None]"
"""The name of a tag or branch, with its snapshot. A branch may have none."""


def _of_snapshot(read: Callable[[Snapshot], Any]) -> Callable[[NamedSnapshot], Any]:
    """A function that applies `read` to the snapshot under a name. Its result is None if there is
    no snapshot.
    """

    def read_if_any(named: NamedSnapshot) -> Any:
        _, snapshot = named
        return None if snapshot is None else read(snapshot)

    return read_if_any


def named_columns(title: str) -> tuple[Column[NamedSnapshot], ...]:
    """The columns of tags or branches. `title` is the title of the column with their names."""
    return (
        Column("name", lambda named: named[0], title, long_name=True),
        Column(
            "snapshot",
            _of_snapshot(lambda snapshot: json_of(COLUMNS, snapshot)),
            for_people=_of_snapshot(lambda snapshot: snapshot.id),
            ident=True,
        ),
        Column(
            "time",
            _of_snapshot(lambda snapshot: iso(snapshot.time_millis)),
            for_people=_of_snapshot(lambda snapshot: moment(snapshot.time_millis)),
            short=_of_snapshot(lambda snapshot: minute(snapshot.time_millis)),
        ),
        Column("rows", _of_snapshot(lambda snapshot: snapshot.total_record_count), number=True),
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
    much the number of rows in the table's files changed, and how long the write took. A narrow
    terminal shows the kind as a letter: A for APPEND, C for COMPACT, O for OVERWRITE, and S for
    ANALYZE, which adds statistics. If a snapshot's file is damaged, its id is reported and the others are listed.
    """
    store = SnapshotStore(session.raw.storage)
    users: set[str] = set()
    rows: list[Snapshot] = []
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
            rows.append(snapshot)
            if len(rows) == limit:
                break
    for message in damaged.values():
        say(message)
    empty = "There are no snapshots." if user is None else _nothing_of("snapshot", user, users)
    code = BROKEN if damaged else OK
    return session.listing("snapshots", Listing(COLUMNS, rows, empty), code, damaged=list(damaged))


def _nothing_of(thing: str, user: str, users: Iterable[str]) -> str:
    """The sentence for a commit user that has no `thing`. The sentence names the commit users that
    have one.
    """
    others = sorted(set(users) - {user})
    advice = "Nobody has written here."
    if len(others) == 1:
        advice = f"The only commit user here is {others[0]}."
    elif others:
        advice = f"The commit users here are {listed(others)}."
    return f"There is no {thing} of commit user {user!r}. {advice}"


_OLDER: Final = (
    'Expire only snapshots older than this, such as "36 h", 2026-11-01, 2026-11-01T12:00Z.'
)
_PROTECT: Final = "Keep the last snapshot of streams with a journal that were active within a day."


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
def expire(
    session: Session,
    retain_max: int | None,
    retain_min: int | None,
    older_than: str | None,
    max_deletes: int | None,
    protect_streams: bool,
    yes: bool,
) -> CommandAnswer:
    """Expires old snapshots, and deletes the files that only they need. For limits that are not
    given, the table's options apply. Tags, consumers and active streams keep what they need.
    Without --yes it only shows what would expire.
    """
    since = None if older_than is None else _moment(older_than)
    with progress() as reporter:
        report = session.table.expire_snapshots(
            retain_max,
            retain_min,
            since,
            max_deletes,
            dry_run=not yes,
            protect_streams=protect_streams,
            progress=reporter,
        )
    has_work = bool(report.snapshots or report.changelogs)
    parts = _expiry_parts(report, done=yes)
    return changed_answer(report.to_json(), parts, done=yes, has_work=has_work)


def _expiry_parts(report: ExpireReport, *, done: bool) -> list[str]:
    """What an expiry has done, or would do."""
    verb = "expired" if done else "would expire"
    summary = "No snapshot has to expire."
    if report.snapshots:
        many = count(len(report.snapshots), "snapshot")
        ids = f"{report.snapshots[0]} to {report.snapshots[-1]}"
        kinds = [f"{kind} {number:,}" for kind, number in report.files.items()]
        files_verb = "deleted" if done else "that would be deleted"
        summary = f"{many} {verb}, {ids}; files {files_verb}: {', '.join(kinds) or 'none'}."
    if report.changelogs:
        many = count(len(report.changelogs), "changelog")
        summary += f" {many} that had outlived snapshots {verb}, too."
    parts = [summary]
    if report.left:
        parts.append(f"{count(report.left, 'file')} could not be deleted and stay as orphans.")
    if report.impossible:
        parts.append(
            f"{count(report.impossible, 'file')} cannot exist by their names; verify lists them."
        )
    return parts


def _moment(typed: str) -> dt.timedelta | dt.datetime:
    try:
        return age_or_time(typed)
    except (ValueError, OverflowError):
        raise click.UsageError(
            f"--older-than {typed!r} is neither an age such as '36 h' nor a time such as 2026-11-01T12:00Z."
        ) from None


# -- the writers ----------------------------------------------------------------------------------
def _bytes(writer: Writer) -> str | None:
    return None if writer.last_story.bytes is None else size(writer.last_story.bytes)


def _seconds(writer: Writer) -> str | None:
    millis = writer.last_story.write_millis
    return None if millis is None else f"{millis / 1000:,.1f} s"


_WRITERS: Final[tuple[Column[Writer], ...]] = (
    Column("user", lambda writer: writer.user, long_name=True),
    Column("stream", lambda writer: writer.registered),
    Column("last_batch", lambda writer: writer.last_batch, ident=True),
    Column(
        "last_time",
        lambda writer: iso(writer.last_millis),
        "time",
        for_people=lambda writer: moment(writer.last_millis),
        short=lambda writer: minute(writer.last_millis),
    ),
    Column("last_time_millis", lambda writer: writer.last_millis, ident=True, extra=True),
    Column("last_snapshot", lambda writer: writer.last_snapshot, "snapshot", ident=True, wide=True),
    Column("last_rows", lambda writer: writer.last_story.rows, "rows", number=True, wide=True),
    Column(
        "last_bytes",
        lambda writer: writer.last_story.bytes,
        "size",
        for_people=_bytes,
        number=True,
        wide=True,
    ),
    Column("last_files", lambda writer: writer.last_story.files, "files", number=True, extra=True),
    Column(
        "last_partitions",
        lambda writer: writer.last_story.partitions,
        "partitions",
        number=True,
        extra=True,
    ),
    Column(
        "last_buckets", lambda writer: writer.last_story.buckets, "buckets", number=True, extra=True
    ),
    Column(
        "last_write_millis",
        lambda writer: writer.last_story.write_millis,
        "write",
        for_people=_seconds,
        number=True,
        wide=True,
    ),
    Column("batches", lambda writer: writer.batches, number=True, wide=True),
    Column(
        "gaps", lambda writer: writer.gaps, for_people=lambda writer: ranges(writer.gaps) or None
    ),
    Column(
        "query_name",
        lambda writer: writer.query_name,
        "query",
        for_people=lambda writer: writer.query_name or writer.query_id,
        long_name=True,
    ),
    Column("query_id", lambda writer: writer.query_id, extra=True),
    Column("checkpoint", lambda writer: writer.checkpoint, long_name=True, wide=True),
    Column("runs", lambda writer: writer.runs, number=True, extra=True),
    Column("snapshots", lambda writer: writer.snapshots, number=True, extra=True),
    Column("first_batch", lambda writer: writer.first_batch, ident=True, extra=True),
    Column(
        "watermark",
        lambda writer: writer.watermark,
        for_people=lambda writer: moment(writer.watermark),
        extra=True,
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
    writers = writers_of(session.raw)
    rows = [writer for writer in writers if user in (None, writer.user)]
    empty = "Nobody has written here."
    if user is not None:
        empty = _nothing_of("batch", user, (writer.user for writer in writers))
    return session.listing("writers", Listing(_WRITERS, rows, empty))


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
def recommit(
    session: Session,
    commit_user: str | None,
    batch: int | None,
    snapshot: int | None,
    delta_list: str | None,
    yes: bool,
) -> CommandAnswer:
    """Commits the files of a batch again if another engine replaced the snapshot of the batch. The
    error CommitLost contains the complete command. Without --snapshot and --delta-list, the journal
    of the stream names the files. The command can be run twice: a batch that is in the table is
    left as it is. Start the stream again afterwards. Without --yes it only shows what it would
    commit.
    """
    report = session.table.recommit(
        commit_user, batch, snapshot=snapshot, delta_list=delta_list, dry_run=not yes
    )
    files = count(report.files, "file")
    rows = count(report.rows, "row")
    which = f"Batch {report.batch} of commit user {report.user}"
    if report.found:
        where = "" if report.snapshot is None else f", in snapshot {report.snapshot}"
        parts = [f"{which} is in the table{where}. There is nothing to do."]
        return changed_answer(report.to_json(), parts, done=yes, has_work=False)
    parts = [
        f"{which} was snapshot {report.replaced}. A snapshot of user {report.by} has replaced it."
    ]
    if yes:
        parts.append(f"{files} with {rows} are in the table again, in snapshot {report.snapshot}.")
    else:
        parts.append(f"{files} with {rows} would be committed again. All of them exist.")
        parts.append(
            "If another engine rolled the table back within the last hour, the table looks the same. "
            "In that case, do not commit the batch again."
        )
    return changed_answer(report.to_json(), parts, done=yes, has_work=True)
