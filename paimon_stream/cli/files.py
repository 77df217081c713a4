"""`files`, `manifests`, `partitions`, `stats`."""

from __future__ import annotations

import click

from paimon_stream.api.inspection import manifests_of, partitions_of, statistics_of
from paimon_stream.cli.command import Session, pairs_of, table_command
from paimon_stream.cli.output import Answer, Column, Lines, Listing
from paimon_stream.cli.snapshots import snapshot_json
from paimon_stream.cli.text import iso, shown, size

__all__ = ["files", "manifests", "partitions", "stats"]

_SNAPSHOT = click.Option(["--snapshot"], type=click.IntRange(min=1), help="Of this snapshot, not the newest.")


@table_command(
    example="files --partition dt=2026-11-21 /data/warehouse/shop.db/orders",
    params=(
        _SNAPSHOT,
        click.Option(
            ["--partition"],
            metavar="COLUMN=VALUE[,…]",
            help="Of partitions with these values; a column that is left out may have any.",
        ),
        click.Option(["--limit"], type=click.IntRange(min=1), help="That many at most."),
    ),
)
def files(session: Session, snapshot: int | None, partition: str | None, limit: int | None) -> Answer:
    """The live data files of a snapshot, with partition, bucket, level, rows and size."""
    given = None if partition is None else pairs_of(tuple(partition.split(",")), "A partition")
    found = session.table.files(snapshot, given)[:limit]
    columns = [
        Column("partition"),
        Column("bucket", number=True),
        Column("level", number=True),
        Column("rows", number=True),
        Column("size", number=True),
        Column("file"),
    ]
    rows = [
        (
            shown(f.partition),
            str(f.bucket),
            str(f.meta.level),
            f.row_count,
            size(f.file_size),
            f.meta.file_name,
        )
        for f in found
    ]
    listed = [
        {
            "path": f.path,
            "partition": f.partition,
            "bucket": f.bucket,
            "level": f.meta.level,
            "rows": f.row_count,
            "delete_rows": f.meta.delete_row_count,
            "bytes": f.file_size,
            "schema_id": f.meta.schema_id,
            "min_sequence_number": f.meta.min_sequence_number,
            "max_sequence_number": f.meta.max_sequence_number,
        }
        for f in found
    ]
    return Answer(
        document=session.document(files=listed), parts=[Listing(columns, rows, "There are no live files.")]
    )


@table_command(example="manifests /data/warehouse/shop.db/orders", params=(_SNAPSHOT,))
def manifests(session: Session, snapshot: int | None) -> Answer:
    """The manifests of a snapshot, in the order in which they hold."""
    found = manifests_of(session.raw, snapshot)
    columns = [
        Column("list"),
        Column("added", number=True),
        Column("deleted", number=True),
        Column("schema", number=True),
        Column("size", number=True),
        Column("manifest"),
    ]
    rows = [
        (
            one.list,
            one.meta.num_added_files,
            one.meta.num_deleted_files,
            str(one.meta.schema_id),
            size(one.meta.file_size),
            one.meta.file_name,
        )
        for one in found
    ]
    listed = [
        {
            "list": one.list,
            "name": one.meta.file_name,
            "bytes": one.meta.file_size,
            "added_files": one.meta.num_added_files,
            "deleted_files": one.meta.num_deleted_files,
            "schema_id": one.meta.schema_id,
        }
        for one in found
    ]
    return Answer(
        document=session.document(manifests=listed),
        parts=[Listing(columns, rows, "There are no manifests.")],
    )


@table_command(example="partitions --json /data/warehouse/shop.db/orders", params=(_SNAPSHOT,))
def partitions(session: Session, snapshot: int | None) -> Answer:
    """The partitions of a snapshot, with their files, rows and bytes."""
    found = partitions_of(session.raw, snapshot)
    columns = [
        Column("partition"),
        Column("buckets", number=True),
        Column("files", number=True),
        Column("rows", number=True),
        Column("size", number=True),
    ]
    rows = [(shown(one.values), one.buckets, one.files, one.rows, size(one.bytes)) for one in found]
    listed = [
        {
            "partition": one.values,
            "path": one.path,
            "buckets": one.buckets,
            "files": one.files,
            "rows": one.rows,
            "bytes": one.bytes,
        }
        for one in found
    ]
    return Answer(
        document=session.document(partitions=listed),
        parts=[Listing(columns, rows, "There are no partitions.")],
    )


@table_command(example="stats /data/warehouse/shop.db/orders", params=(_SNAPSHOT,))
def stats(session: Session, snapshot: int | None) -> Answer:
    """The table in numbers: snapshots, partitions, files, rows, sizes."""
    found = statistics_of(session.raw, snapshot)
    taken = found.snapshot
    document = session.document(
        snapshot=None if taken is None else snapshot_json(taken),
        snapshots={"count": found.snapshots, "earliest": found.earliest, "latest": found.latest},
        tags=found.tags,
        schema_id=found.schema_id,
        partitions=found.partitions,
        buckets=found.buckets,
        files=found.files,
        rows=found.rows,
        delete_rows=found.delete_rows,
        bytes=found.bytes,
        mean_file_bytes=found.mean_file_bytes,
        manifests=found.manifests,
        manifest_bytes=found.manifest_bytes,
    )
    of = "none" if taken is None else f"{taken.id} of {iso(taken.time_millis)}"
    span = "none" if not found.snapshots else f"{found.snapshots} ({found.earliest} to {found.latest})"
    lines = Lines(
        [
            ("snapshot", of),
            ("snapshots", span),
            ("tags", found.tags),
            ("schema", str(found.schema_id)),
            ("partitions", found.partitions),
            ("buckets", found.buckets),
            ("files", f"{found.files:,}, {size(found.bytes)}, {size(found.mean_file_bytes)} on average"),
            (
                "rows",
                f"{found.rows:,}" + (f", of these {found.delete_rows:,} deletes" * bool(found.delete_rows)),
            ),
            ("manifests", f"{found.manifests:,}, {size(found.manifest_bytes)}"),
        ]
    )
    return Answer(document=document, parts=[lines])
