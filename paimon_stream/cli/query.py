"""`query`."""

from __future__ import annotations

import click

from paimon_stream.api.inspection import writers_of
from paimon_stream.cli.command import Session, table_command
from paimon_stream.cli.output import Answer, Column, Listing
from paimon_stream.cli.text import iso, ranges, size

__all__ = ["query"]


@table_command(
    example="query /data/warehouse/shop.db/orders",
    params=(click.Option(["--user"], help="Only this commit user."),),
)
def query(session: Session, user: str | None) -> Answer:
    """Which streams and other writers commit here, by the snapshots that are left: the last batch of each,
    when it was, its rows, the size of its files and how long it wrote; batches without a snapshot in
    between (gaps; a batch without rows makes none); and where its checkpoint is. A stream of which every
    snapshot has expired is listed without batches."""
    found = [one for one in writers_of(session.raw) if user in (None, one.user)]
    columns = [
        Column("user"),
        Column("stream"),
        Column("last batch", number=True),
        Column("time"),
        Column("snapshot", number=True),
        Column("rows", number=True),
        Column("size", number=True),
        Column("write", number=True),
        Column("batches", number=True),
        Column("gaps"),
        Column("query"),
        Column("checkpoint"),
    ]
    rows = [
        (
            one.user,
            one.registered,
            None if one.last_batch is None else str(one.last_batch),
            iso(one.last_millis),
            None if one.last_snapshot is None else str(one.last_snapshot),
            one.last_story.rows,
            None if one.last_story.bytes is None else size(one.last_story.bytes),
            None if one.last_story.write_millis is None else f"{one.last_story.write_millis / 1000:,.1f} s",
            one.batches,
            ranges(one.gaps) or None,
            one.query_name or one.query_id,
            one.checkpoint,
        )
        for one in found
    ]
    listed = [
        {
            "user": one.user,
            "stream": one.registered,
            "query_id": one.query_id,
            "query_name": one.query_name,
            "checkpoint": one.checkpoint,
            "runs": one.runs,
            "snapshots": one.snapshots,
            "batches": one.batches,
            "first_batch": one.first_batch,
            "last_batch": one.last_batch,
            "gaps": one.gaps,
            "last_snapshot": one.last_snapshot,
            "last_time": iso(one.last_millis),
            "last_time_millis": one.last_millis,
            "watermark": one.watermark,
            "last_files": one.last_story.files,
            "last_rows": one.last_story.rows,
            "last_bytes": one.last_story.bytes,
            "last_partitions": one.last_story.partitions,
            "last_buckets": one.last_story.buckets,
            "last_write_millis": one.last_story.write_millis,
        }
        for one in found
    ]
    return Answer(
        document=session.document(writers=listed), parts=[Listing(columns, rows, "Nobody has written here.")]
    )
