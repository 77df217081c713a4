"""`truncate`, `drop-partition`, `expire-partitions`."""

from collections.abc import Callable, Sequence

import click

from paimon_stream.cli.command import OPTION, YES, Session, changed_answer, pairs_of, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.partition import partition_of, partition_text
from paimon_stream.cli.text import count, listed, size
from paimon_stream.commit.overwrite import Overwrite, plan_drop, plan_overwrite
from paimon_stream.commit.plan import Base
from paimon_stream.commit.report import CommitReport
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_SHOWN = 20


@table_command(example="truncate --yes /data/shop.db/orders", params=(YES,))
def truncate(session: Session, yes: bool) -> Answer:
    """Clears the whole table in one snapshot. Earlier snapshots keep the rows until they expire.
    Without --yes it only shows what would be cleared."""
    gone = _preview(session.raw, lambda table, manifests: plan_overwrite(table, manifests, (), partition={}))
    return _cleared(session, gone, session.table.truncate, yes)


@table_command(
    example="drop-partition --yes /data/shop.db/orders dt=2026-11-20,hour=0",
    params=(click.Argument(["partitions"], nargs=-1, required=True, metavar="COLUMN=VALUE[,…]..."), YES),
)
def drop_partition(session: Session, partitions: tuple[str, ...], yes: bool) -> Answer:
    """Clears all partitions that have the given values, in one snapshot. A column that is left out may have any value.
    Earlier snapshots keep the rows until they expire. Without --yes it only shows what would be cleared."""
    specs = [partition_of(one) for one in partitions]
    gone = _preview(session.raw, lambda table, manifests: plan_drop(table, manifests, specs))
    return _cleared(session, gone, lambda: session.table.drop_partitions(specs), yes)


@table_command(example="expire-partitions --yes /data/shop.db/orders", params=(OPTION, YES))
def expire_partitions(session: Session, option: tuple[str, ...], yes: bool) -> Answer:
    """Drops the partitions that are older than the table's partition.expiration-time. Earlier snapshots keep the rows
    until they expire. Without --yes it only shows what would expire."""
    report = session.table.expire_partitions(pairs_of(option, "--option"), dry_run=not yes)
    found, verb = report.partitions, "expired" if yes else "would expire"
    what = f"{count(len(found), 'partition')} with {count(report.files, 'file')} and {count(report.rows, 'row')} {verb}"
    text = f"{what}: {listed(map(partition_text, found))}." if found else "No partition has to expire."
    return changed_answer(report.to_json(), [text], done=yes, something=bool(found))


def _preview(table: Table, plan: Callable[[Table, ManifestStore], Overwrite]) -> Sequence[ManifestEntry]:
    """The files that the planned clearing would remove. Nothing is written."""
    check_writable(table)
    manifests = ManifestStore(table.storage)
    source, latest = plan(table, manifests).source, SnapshotStore(table.storage).latest()
    source.at(Base(snapshot=latest, metas=() if latest is None else manifests.base_and_delta(latest)))
    return source.gone


def _cleared(session: Session, gone: Sequence[ManifestEntry], clear: Callable[[], CommitReport], yes: bool) -> Answer:
    report = clear() if yes and gone else None
    snapshot = None if report is None else report.snapshot_id
    files = len(gone) if report is None else report.counts.files_deleted
    rows = sum(one.file.row_count for one in gone) if report is None else report.counts.records_appended
    layout, bytes_ = session.raw.layout, sum(one.file.file_size for one in gone)
    found = sorted((layout.partition(one), one) for one in {entry.partition for entry in gone})
    what = {"partitions": sorted({folder for folder, _ in found}), "files": files, "rows": rows, "bytes": bytes_}
    document = session.document(dry_run=not yes, snapshot_id=snapshot, **what)
    if not gone:
        return changed_answer(document, ["There is nothing to clear."], done=yes, something=False)
    values = [partition_by_column(layout, row) for _, row in found]
    parts = [partition_text(one) for one in values[:_SHOWN] if one]
    if len(values) > _SHOWN:
        parts.append(f"and {len(values) - _SHOWN:,} more partitions")
    verb = "would be cleared" if snapshot is None else f"were cleared, in snapshot {snapshot}"
    parts.append(f"{count(files, 'file')} with {count(rows, 'row')} ({size(bytes_)}) {verb}.")
    return changed_answer(document, parts, done=yes, something=True)
