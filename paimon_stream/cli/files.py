"""`files`, `manifests`, `partitions`, `stats`."""

from typing import Final

from paimon_stream.api.inspection import (
    Partition,
    Statistics,
    TableFile,
    manifests_of,
    partitions_of,
    statistics_of,
)
from paimon_stream.cli.command import COUNT, Session, option, table_command
from paimon_stream.cli.compact import CompactionAdvice
from paimon_stream.cli.output import Column, CommandAnswer, Listing, json_of
from paimon_stream.cli.snapshots import COLUMNS
from paimon_stream.cli.text import iso, partition_of, partition_text, size
from paimon_stream.format.entries import ManifestFileMeta

_SNAPSHOT: Final = option("--snapshot", "Look at this snapshot instead of the newest.", type=COUNT)
_PARTITION: Final = (
    "List only partitions with these values. A column that is left out may have any value."
)

_FILES: Final[tuple[Column[TableFile], ...]] = (
    Column("partition", lambda one: one.partition, text=lambda one: partition_text(one.partition)),
    Column("bucket", lambda one: one.bucket, ident=True),
    Column("level", lambda one: one.meta.level, ident=True),
    Column("rows", lambda one: one.row_count, number=True),
    Column("delete_rows", lambda one: one.meta.delete_row_count, number=True, extra=True),
    Column(
        "bytes",
        lambda one: one.file_size,
        "size",
        text=lambda one: size(one.file_size),
        number=True,
    ),
    Column("schema_id", lambda one: one.meta.schema_id, "schema", ident=True, extra=True),
    Column("min_sequence_number", lambda one: one.meta.min_sequence_number, ident=True, extra=True),
    Column("max_sequence_number", lambda one: one.meta.max_sequence_number, ident=True, extra=True),
    Column("name", lambda one: one.meta.file_name, "file"),
    Column("path", lambda one: one.path, extra=True),
)

_MANIFESTS: Final[tuple[Column[tuple[str, ManifestFileMeta]], ...]] = (
    Column("list", lambda one: one[0]),
    Column("added_files", lambda one: one[1].num_added_files, "added", number=True),
    Column("deleted_files", lambda one: one[1].num_deleted_files, "deleted", number=True),
    Column("schema_id", lambda one: one[1].schema_id, "schema", ident=True),
    Column(
        "bytes",
        lambda one: one[1].file_size,
        "size",
        text=lambda one: size(one[1].file_size),
        number=True,
    ),
    Column("name", lambda one: one[1].file_name, "manifest"),
)

_PARTITIONS: Final[tuple[Column[Partition], ...]] = (
    Column("partition", lambda one: one.values, text=lambda one: partition_text(one.values)),
    Column("path", lambda one: one.path, extra=True),
    Column("buckets", lambda one: one.buckets, number=True),
    Column("files", lambda one: one.files, number=True),
    Column("rows", lambda one: one.rows, number=True),
    Column("bytes", lambda one: one.bytes, "size", text=lambda one: size(one.bytes), number=True),
)


@table_command(
    example="files --partition dt=2026-11-21 /data/shop.db/orders",
    columns=_FILES,
    params=(
        _SNAPSHOT,
        option("--partition", _PARTITION, metavar="COLUMN=VALUE[,…]"),
        option("--limit", "List at most this number of files.", type=COUNT),
    ),
)
def files(
    session: Session, snapshot: int | None, partition: str | None, limit: int | None
) -> CommandAnswer:
    """Lists the live data files of a snapshot, with partition, bucket, level, rows and size."""
    given = None if partition is None else partition_of(partition)
    found = session.table.files(snapshot, given)[:limit]
    return session.listing("files", Listing(_FILES, found, "There are no live files."))


@table_command(example="manifests /data/shop.db/orders", columns=_MANIFESTS, params=(_SNAPSHOT,))
def manifests(session: Session, snapshot: int | None) -> CommandAnswer:
    """Lists the manifests of a snapshot, in the order in which they apply."""
    found = manifests_of(session.raw, snapshot)
    return session.listing("manifests", Listing(_MANIFESTS, found, "There are no manifests."))


@table_command(
    example="partitions --json /data/shop.db/orders", columns=_PARTITIONS, params=(_SNAPSHOT,)
)
def partitions(session: Session, snapshot: int | None) -> CommandAnswer:
    """Lists the partitions of a snapshot, with their files, rows and bytes. For a table with a
    primary key, rows are counted in the files, before readers merge them by key.
    """
    found = partitions_of(session.raw, snapshot)
    return session.listing("partitions", Listing(_PARTITIONS, found, "There are no partitions."))


@table_command(example="stats /data/shop.db/orders", params=(_SNAPSHOT,))
def stats(session: Session, snapshot: int | None) -> CommandAnswer:
    """Shows the table in numbers: snapshots, partitions, files, rows and sizes. For a table with a
    primary key, rows are counted in the files, before readers merge them by key. It also says which
    buckets need a compaction, what it would gain, and how to start it.
    """
    found = statistics_of(session.raw, snapshot)
    taken = found.snapshot
    advice = CompactionAdvice(session) if snapshot is None else None
    facts = {
        key: value for key, value in found.to_json().items() if key not in ("earliest", "latest")
    }
    facts["snapshot"] = None if taken is None else json_of(COLUMNS, taken)
    facts["snapshots"] = {
        "count": found.snapshots,
        "earliest": found.earliest,
        "latest": found.latest,
    }
    document = session.document(**facts, to_compact=None if advice is None else advice.document())
    lines: list[tuple[str, object]] = [
        ("snapshot", "none" if taken is None else f"{taken.id} of {iso(taken.time_millis)}"),
        (
            "snapshots",
            f"{found.snapshots} ({found.earliest} to {found.latest})"
            if found.snapshots
            else "none",
        ),
        ("tags", found.tags),
        ("schema", str(found.schema_id)),
        ("partitions", found.partitions),
        ("buckets", found.buckets),
        (
            "files",
            f"{found.files:,}, {size(found.bytes)}, {size(found.mean_file_bytes)} on average",
        ),
        ("rows", _rows_of(found)),
        ("manifests", f"{found.manifests:,}, {size(found.manifest_bytes)}"),
        *([] if advice is None or advice.report is None else [("to compact", advice.summary())]),
    ]
    more = [] if advice is None else advice.parts()
    return CommandAnswer(document=document, parts=[lines, *([""] if more else []), *more])


def _rows_of(found: Statistics) -> str:
    """The rows as text. With a primary key these are the rows in the files, before readers merge
    them.
    """
    deletes = f", of these {found.delete_rows:,} deletes" if found.delete_rows else ""
    return f"{found.rows:,}{' in files, before they are merged by key' if found.primary_keys else ''}{deletes}"
