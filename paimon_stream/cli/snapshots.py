"""`snapshots`."""

from __future__ import annotations

from typing import Any

import click

from paimon_stream.cli.command import Session, table_command
from paimon_stream.cli.exits import BROKEN, OK
from paimon_stream.cli.output import Answer, Column, Listing, say
from paimon_stream.cli.text import iso
from paimon_stream.errors import FormatError
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.stream.story import Story
from paimon_stream.table.snapshots import SnapshotStore

__all__ = ["snapshot_json", "snapshots"]


@table_command(
    example="snapshots --limit 5 /data/warehouse/shop.db/orders",
    params=(
        click.Option(["--limit"], type=click.IntRange(min=1), help="That many at most."),
        click.Option(["--user"], help="Only those of this commit user."),
    ),
)
def snapshots(session: Session, limit: int | None, user: str | None) -> Answer:
    """The snapshots, newest first: who made each, when, how many rows it added, how long it took. One whose
    file is damaged is named, and the others are listed."""
    found, damaged = _newest_first(session, limit, user)
    for error in damaged.values():
        say(error)
    columns = [
        Column("id", number=True),
        Column("time"),
        Column("kind"),
        Column("user"),
        Column("batch", number=True),
        Column("rows", number=True),
        Column("total", number=True),
        Column("schema", number=True),
        Column("write ms", number=True),
    ]
    rows = [
        (
            str(one.id),
            iso(one.time_millis),
            one.commit_kind.value,
            one.commit_user,
            None if one.commit_identifier == BATCH_IDENTIFIER else str(one.commit_identifier),
            one.delta_record_count,
            one.total_record_count,
            str(one.schema_id),
            Story.of(one.properties).write_millis,
        )
        for one in found
    ]
    return Answer(
        document=session.document(snapshots=[snapshot_json(one) for one in found], damaged=list(damaged)),
        parts=[Listing(columns, rows, "There are no snapshots.")],
        code=BROKEN if damaged else OK,
    )


def _newest_first(
    session: Session, limit: int | None, user: str | None
) -> tuple[list[Snapshot], dict[int, str]]:
    """The snapshots, and by its id what is wrong with each that cannot be read."""
    store = SnapshotStore(session.raw.storage)
    found: list[Snapshot] = []
    damaged: dict[int, str] = {}
    for snapshot_id in reversed(store.ids()):
        try:
            snapshot = store.find(snapshot_id)
        except FormatError as error:
            damaged[snapshot_id] = error.message
            continue
        if snapshot is not None and user in (None, snapshot.commit_user):
            found.append(snapshot)
            if len(found) == limit:
                break
    return found, damaged


def snapshot_json(one: Snapshot) -> dict[str, Any]:
    """A snapshot as all commands give it."""
    return {
        "id": one.id,
        "time": iso(one.time_millis),
        "time_millis": one.time_millis,
        "kind": one.commit_kind.value,
        "user": one.commit_user,
        "identifier": one.commit_identifier,
        "batch": None if one.commit_identifier == BATCH_IDENTIFIER else one.commit_identifier,
        "schema_id": one.schema_id,
        "delta_records": one.delta_record_count,
        "total_records": one.total_record_count,
        "changelog_records": one.changelog_record_count,
        "watermark": one.watermark,
        "statistics": one.statistics,
        "properties": dict(one.properties),
    }
