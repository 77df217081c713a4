"""The commands `files`, `manifests`, `partitions` and `stats`."""

from typing import Any, Final

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
from paimon_stream.cli.output import Column, CommandAnswer, Listing, Part, json_of
from paimon_stream.cli.snapshots import COLUMNS
from paimon_stream.cli.text import iso, partition_of, partition_text, size
from paimon_stream.format.entries import ManifestFileMeta

_SNAPSHOT: Final = option("--snapshot", "Look at this snapshot instead of the newest.", type=COUNT)
_PARTITION: Final = (
    "List only partitions with these values. A column that is left out may have any value."
)

_FILES: Final[tuple[Column[TableFile], ...]] = (
    Column(
        "partition",
        lambda file: file.partition,
        for_people=lambda file: partition_text(file.partition),
    ),
    Column("bucket", lambda file: file.bucket, ident=True),
    Column("level", lambda file: file.meta.level, ident=True, wide=True),
    Column("rows", lambda file: file.row_count, number=True),
    Column("delete_rows", lambda file: file.meta.delete_row_count, number=True, extra=True),
    Column(
        "bytes",
        lambda file: file.file_size,
        "size",
        for_people=lambda file: size(file.file_size),
        number=True,
    ),
    Column("schema_id", lambda file: file.meta.schema_id, "schema", ident=True, extra=True),
    Column(
        "min_sequence_number", lambda file: file.meta.min_sequence_number, ident=True, extra=True
    ),
    Column(
        "max_sequence_number", lambda file: file.meta.max_sequence_number, ident=True, extra=True
    ),
    Column("name", lambda file: file.meta.file_name, "file", long_name=True),
    Column("path", lambda file: file.path, extra=True),
)

_MANIFESTS: Final[tuple[Column[tuple[str, ManifestFileMeta]], ...]] = (
    Column("list", lambda listed: listed[0]),
    Column("added_files", lambda listed: listed[1].num_added_files, "added", number=True),
    Column("deleted_files", lambda listed: listed[1].num_deleted_files, "deleted", number=True),
    Column("schema_id", lambda listed: listed[1].schema_id, "schema", ident=True),
    Column(
        "bytes",
        lambda listed: listed[1].file_size,
        "size",
        for_people=lambda listed: size(listed[1].file_size),
        number=True,
    ),
    Column("name", lambda listed: listed[1].file_name, "manifest", long_name=True),
)
"""A row is a pair of `manifests_of`: the list that names the manifest, and the manifest."""

_PARTITIONS: Final[tuple[Column[Partition], ...]] = (
    Column(
        "partition",
        lambda partition: partition.values,
        for_people=lambda partition: partition_text(partition.values),
    ),
    Column("path", lambda partition: partition.path, extra=True),
    Column("buckets", lambda partition: partition.buckets, number=True),
    Column("files", lambda partition: partition.files, number=True),
    Column("rows", lambda partition: partition.rows, number=True),
    Column(
        "bytes",
        lambda partition: partition.bytes,
        "size",
        for_people=lambda partition: size(partition.bytes),
        number=True,
    ),
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
    values = None if partition is None else partition_of(partition)
    rows = session.table.files(snapshot, values)[:limit]
    return session.listing("files", Listing(_FILES, rows, "There are no live files."))


@table_command(example="manifests /data/shop.db/orders", columns=_MANIFESTS, params=(_SNAPSHOT,))
def manifests(session: Session, snapshot: int | None) -> CommandAnswer:
    """Lists the manifests of a snapshot, in the order in which they apply."""
    rows = manifests_of(session.raw, snapshot)
    return session.listing("manifests", Listing(_MANIFESTS, rows, "There are no manifests."))


@table_command(
    example="partitions --json /data/shop.db/orders", columns=_PARTITIONS, params=(_SNAPSHOT,)
)
def partitions(session: Session, snapshot: int | None) -> CommandAnswer:
    """Lists the partitions of a snapshot, with their files, rows and bytes. For a table with a
    primary key, rows are counted in the files, before readers merge them by key.
    """
    rows = partitions_of(session.raw, snapshot)
    return session.listing("partitions", Listing(_PARTITIONS, rows, "There are no partitions."))


@table_command(example="stats /data/shop.db/orders", params=(_SNAPSHOT,))
def stats(session: Session, snapshot: int | None) -> CommandAnswer:
    """Shows the table in numbers: snapshots, partitions, files, rows and sizes. For a table with a
    primary key, rows are counted in the files, before readers merge them by key. It also says which
    buckets need a compaction, what a compaction would gain, and how to start it.
    """
    statistics = statistics_of(session.raw, snapshot)
    # The advice is about the table as it is now. So it does not fit an earlier snapshot.
    advice = CompactionAdvice(session) if snapshot is None else None
    pairs = _pairs_of(statistics)
    to_compact = None
    parts: list[Part] = [pairs]
    if advice is not None:
        to_compact = advice.document()
        if advice.report is not None:
            pairs.append(("to compact", advice.summary()))
        if advice.needed:
            parts += ["", *advice.parts()]
    document = session.document(**_facts_of(statistics), to_compact=to_compact)
    return CommandAnswer(document=document, parts=parts)


def _facts_of(statistics: Statistics) -> dict[str, Any]:
    """The statistics for programs."""
    facts = statistics.to_json()
    snapshot = statistics.snapshot
    facts["snapshot"] = None if snapshot is None else json_of(COLUMNS, snapshot)
    facts["snapshots"] = {
        "count": statistics.snapshots,
        "earliest": facts.pop("earliest"),
        "latest": facts.pop("latest"),
    }
    return facts


def _pairs_of(statistics: Statistics) -> list[tuple[str, object]]:
    """The statistics for people, each with its name."""
    snapshot = "none"
    if statistics.snapshot is not None:
        snapshot = f"{statistics.snapshot.id} of {iso(statistics.snapshot.time_millis)}"
    snapshots = "none"
    if statistics.snapshots:
        snapshots = f"{statistics.snapshots} ({statistics.earliest} to {statistics.latest})"
    mean = size(statistics.mean_file_bytes)
    return [
        ("snapshot", snapshot),
        ("snapshots", snapshots),
        ("tags", statistics.tags),
        ("schema", str(statistics.schema_id)),
        ("partitions", statistics.partitions),
        ("buckets", statistics.buckets),
        ("files", f"{statistics.files:,}, {size(statistics.bytes)}, {mean} on average"),
        ("rows", _rows_of(statistics)),
        ("manifests", f"{statistics.manifests:,}, {size(statistics.manifest_bytes)}"),
    ]


def _rows_of(statistics: Statistics) -> str:
    """The rows as text. In a table with a primary key these are the rows in the files, before
    readers merge them.
    """
    unmerged = " in files, before they are merged by key" if statistics.primary_keys else ""
    deletes = f", of these {statistics.delete_rows:,} deletes" if statistics.delete_rows else ""
    return f"{statistics.rows:,}{unmerged}{deletes}"
