"""`truncate`, `drop-partition`, `expire-partitions`."""

from collections.abc import Callable

import click

from paimon_stream.api.preview import Cleared, preview_clearing
from paimon_stream.cli.command import OPTION, YES, Session, changed_answer, pairs_of, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.partition import partition_of, partition_text
from paimon_stream.cli.text import count, listed, size
from paimon_stream.commit.report import CommitReport

_SHOWN = 20


@table_command(example="truncate --yes /data/shop.db/orders", params=(YES,))
def truncate(session: Session, yes: bool) -> Answer:
    """Clears the whole table in one snapshot. Earlier snapshots keep the rows until they expire.
    Without --yes it only shows what would be cleared."""
    return _cleared(session, preview_clearing(session.raw), session.table.truncate, yes)


@table_command(
    example="drop-partition --yes /data/shop.db/orders dt=2026-11-20,hour=0",
    params=(click.Argument(["partitions"], nargs=-1, required=True, metavar="COLUMN=VALUE[,…]..."), YES),
)
def drop_partition(session: Session, partitions: tuple[str, ...], yes: bool) -> Answer:
    """Clears all partitions that have the given values, in one snapshot. A column that is left out may have any value.
    Earlier snapshots keep the rows until they expire. Without --yes it only shows what would be cleared."""
    specs = [partition_of(one) for one in partitions]
    preview = preview_clearing(session.raw, specs)
    return _cleared(session, preview, lambda: session.table.drop_partitions(specs), yes)


@table_command(example="expire-partitions --yes /data/shop.db/orders", params=(OPTION, YES))
def expire_partitions(session: Session, option: tuple[str, ...], yes: bool) -> Answer:
    """Drops the partitions that are older than the table's partition.expiration-time. Earlier snapshots keep the rows
    until they expire. Without --yes it only shows what would expire."""
    report = session.table.expire_partitions(pairs_of(option, "--option"), dry_run=not yes)
    found, verb = report.partitions, "expired" if yes else "would expire"
    what = f"{count(len(found), 'partition')} with {count(report.files, 'file')} and {count(report.rows, 'row')} {verb}"
    text = f"{what}: {listed(map(partition_text, found))}." if found else "No partition has to expire."
    return changed_answer(report.to_json(), [text], done=yes, something=bool(found))


def _cleared(session: Session, preview: Cleared, clear: Callable[[], CommitReport], yes: bool) -> Answer:
    report = clear() if yes and preview.files else None
    snapshot = None if report is None else report.snapshot_id
    files = preview.files if report is None else report.counts.files_deleted
    rows = preview.rows if report is None else report.counts.records_appended
    what = {"partitions": preview.partitions, "files": files, "rows": rows, "bytes": preview.bytes}
    document = session.document(dry_run=not yes, snapshot_id=snapshot, **what)
    if not preview.files:
        return changed_answer(document, ["There is nothing to clear."], done=yes, something=False)
    parts = [partition_text(one) for one in preview.values[:_SHOWN] if one]
    if len(preview.values) > _SHOWN:
        parts.append(f"and {len(preview.values) - _SHOWN:,} more partitions")
    verb = "would be cleared" if snapshot is None else f"were cleared, in snapshot {snapshot}"
    parts.append(f"{count(files, 'file')} with {count(rows, 'row')} ({size(preview.bytes)}) {verb}.")
    return changed_answer(document, parts, done=yes, something=True)
