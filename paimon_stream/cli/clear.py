"""`truncate`, `drop-partition`, `expire-partitions`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from paimon_stream.api.preview import Cleared, preview_clearing
from paimon_stream.cli.command import YES, Session, changed_answer, pairs_of, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.partition import partition_of, partition_text
from paimon_stream.cli.text import count, size
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


@table_command(
    example="expire-partitions --yes /data/shop.db/orders",
    params=(
        click.Option(
            ["--option"],
            multiple=True,
            metavar="KEY=VALUE",
            help="Set an option of this call, such as partition.expiration-time=7d. Can be given several times.",
        ),
        YES,
    ),
)
def expire_partitions(session: Session, option: tuple[str, ...], yes: bool) -> Answer:
    """Drops the partitions that are older than the table's partition.expiration-time. Earlier snapshots keep the rows
    until they expire. Without --yes it only shows what would expire."""
    report = session.table.expire_partitions(pairs_of(option, "--option"), dry_run=not yes)
    found, files, rows = report.partitions, count(report.files, "file"), count(report.rows, "row")
    parts = [
        *_shown(found),
        f"{count(len(found), 'partition')} with {files} and {rows} {'' if yes else 'would '}expire.",
    ]
    parts += [f"{count(report.left, 'partition')} more will expire in the next calls."] if report.left else []
    return changed_answer(report.to_json(), parts, done=yes, something=bool(found))


def _shown(partitions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first of the partitions, and the number of the others."""
    more = [f"and {len(partitions) - _SHOWN:,} more partitions"] if len(partitions) > _SHOWN else []
    return [partition_text(one) for one in partitions[:_SHOWN] if one] + more


def _cleared(session: Session, preview: Cleared, clear: Callable[[], CommitReport], yes: bool) -> Answer:
    report = clear() if yes and preview.files else None
    snapshot = None if report is None else report.snapshot_id
    files = preview.files if report is None else report.counts.files_deleted
    rows = preview.rows if report is None else report.counts.records_appended
    document = session.document(
        dry_run=not yes,
        snapshot_id=snapshot,
        partitions=preview.partitions,
        files=files,
        rows=rows,
        bytes=preview.bytes,
    )
    if not preview.files:
        return changed_answer(document, ["There is nothing to clear."], done=yes, something=False)
    parts = _shown(preview.values)
    verb = "would be cleared" if snapshot is None else f"were cleared, in snapshot {snapshot}"
    parts.append(f"{count(files, 'file')} with {count(rows, 'row')} ({size(preview.bytes)}) {verb}.")
    return changed_answer(document, parts, done=yes, something=True)
