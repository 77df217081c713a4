"""`query`, `recommit`."""

from typing import Final

import click

from paimon_stream.api.inspection import Writer, writers_of
from paimon_stream.cli.columns import Column, Listing
from paimon_stream.cli.command import COUNT, YES, Session, changed_answer, option, table_command
from paimon_stream.cli.completion import users
from paimon_stream.cli.output import Answer
from paimon_stream.cli.snapshots import nobody
from paimon_stream.cli.text import count, iso, moment, ranges, size


def _bytes(one: Writer) -> str | None:
    return None if one.last_story.bytes is None else size(one.last_story.bytes)


def _seconds(one: Writer) -> str | None:
    millis = one.last_story.write_millis
    return None if millis is None else f"{millis / 1000:,.1f} s"


_COLUMNS: Final[tuple[Column[Writer], ...]] = (
    Column("user", lambda one: one.user),
    Column("stream", lambda one: one.registered),
    Column("last_batch", lambda one: one.last_batch, ident=True),
    Column("last_time", lambda one: iso(one.last_millis), "time", text=lambda one: moment(one.last_millis)),
    Column("last_time_millis", lambda one: one.last_millis, ident=True, extra=True),
    Column("last_snapshot", lambda one: one.last_snapshot, "snapshot", ident=True),
    Column("last_rows", lambda one: one.last_story.rows, "rows", number=True),
    Column("last_bytes", lambda one: one.last_story.bytes, "size", text=_bytes, number=True),
    Column("last_files", lambda one: one.last_story.files, "files", number=True, extra=True),
    Column("last_partitions", lambda one: one.last_story.partitions, "partitions", number=True, extra=True),
    Column("last_buckets", lambda one: one.last_story.buckets, "buckets", number=True, extra=True),
    Column("last_write_millis", lambda one: one.last_story.write_millis, "write", text=_seconds, number=True),
    Column("batches", lambda one: one.batches, number=True),
    Column("gaps", lambda one: one.gaps, text=lambda one: ranges(one.gaps) or None),
    Column("query_name", lambda one: one.query_name, "query", text=lambda one: one.query_name or one.query_id),
    Column("query_id", lambda one: one.query_id, extra=True),
    Column("checkpoint", lambda one: one.checkpoint),
    Column("runs", lambda one: one.runs, number=True, extra=True),
    Column("snapshots", lambda one: one.snapshots, number=True, extra=True),
    Column("first_batch", lambda one: one.first_batch, ident=True, extra=True),
    Column("watermark", lambda one: one.watermark, text=lambda one: moment(one.watermark), extra=True),
)


@table_command(
    example="query /data/shop.db/orders",
    columns=_COLUMNS,
    params=(option("--user", "Show only this commit user.", shell_complete=users),),
)
def query(session: Session, user: str | None) -> Answer:
    """Lists the streams and other writers that commit to the table, from the snapshots that are left. For
    each it shows the last batch with its time, its rows, the size of its files and the time that writing
    took; the gaps, which are batches without a snapshot (a batch without rows creates none); and the
    checkpoint. A stream whose snapshots have all expired is listed without batches."""
    everybody = writers_of(session.raw)
    found = [one for one in everybody if user in (None, one.user)]
    users = (one.user for one in everybody)
    empty = "Nobody has written here." if user is None else nobody("batch", user, users)
    return session.listing("writers", Listing(_COLUMNS, found, empty))


@table_command(
    example="recommit --yes /data/shop.db/orders",
    params=(
        option("--user", "Commit a batch of this commit user.", shell_complete=users),
        option("--batch", "Commit this batch, not the earliest.", type=click.IntRange(min=0)),
        option("--snapshot", "The id of the lost snapshot.", type=COUNT),
        option("--delta-list", "The delta list of the lost snapshot.", metavar="NAME"),
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
