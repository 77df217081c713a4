"""`truncate`, `drop-partition` and `expire-partitions`, which clear partitions; and
`drop-lost-files`.
"""

from collections.abc import Callable, Sequence
from typing import Final

import click

from paimon_stream.cli.command import (
    OPTION,
    YES,
    Session,
    changed_answer,
    pairs_of,
    table_command,
)
from paimon_stream.cli.output import Column, CommandAnswer, Listing, Part
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count, listed, partition_of, partition_text, size
from paimon_stream.commit.overwrite import Overwrite, plan_drop, plan_overwrite
from paimon_stream.commit.plan import Base
from paimon_stream.commit.report import CommitReport
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.maintenance.lost_files import LostFile
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_value import partition_by_column
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_SHOWN: Final = 20
"""The most partitions that are named."""


@table_command(example="truncate --yes /data/shop.db/orders", params=(YES,))
def truncate(session: Session, yes: bool) -> CommandAnswer:
    """Clears the whole table in one snapshot. Earlier snapshots keep the rows until they expire.
    Without --yes it only shows what would be cleared."""
    entries = _planned(
        session.raw, lambda table, manifests: plan_overwrite(table, manifests, (), partition={})
    )
    return _cleared(session, entries, session.table.truncate, yes=yes)


@table_command(
    example="drop-partition --yes /data/shop.db/orders dt=2026-11-20,hour=0",
    params=(
        click.Argument(["partitions"], nargs=-1, required=True, metavar="COLUMN=VALUE[,…]..."),
        YES,
    ),
)
def drop_partition(session: Session, partitions: tuple[str, ...], yes: bool) -> CommandAnswer:
    """Clears all partitions that have the given values, in one snapshot. A column that is left out
    may have any value. Earlier snapshots keep the rows until they expire. Without --yes it only
    shows what would be cleared.
    """
    specs = [partition_of(typed) for typed in partitions]
    entries = _planned(session.raw, lambda table, manifests: plan_drop(table, manifests, specs))
    return _cleared(session, entries, lambda: session.table.drop_partitions(specs), yes=yes)


@table_command(example="expire-partitions --yes /data/shop.db/orders", params=(OPTION, YES))
def expire_partitions(session: Session, option: tuple[str, ...], yes: bool) -> CommandAnswer:
    """Drops the partitions that are older than the table's partition.expiration-time. Earlier
    snapshots keep the rows until they expire. Without --yes it only shows what would expire.
    """
    report = session.table.expire_partitions(pairs_of(option, "--option"), dry_run=not yes)
    sentence = "No partition has to expire."
    if report.partitions:
        verb = "expired" if yes else "would expire"
        partitions = count(len(report.partitions), "partition")
        files = count(report.files, "file")
        rows = count(report.rows, "row")
        names = listed(map(partition_text, report.partitions))
        sentence = f"{partitions} with {files} and {rows} {verb}: {names}."
    has_work = bool(report.partitions)
    return changed_answer(report.to_json(), [sentence], done=yes, has_work=has_work)


def _planned(
    table: Table, plan: Callable[[Table, ManifestStore], Overwrite]
) -> Sequence[ManifestEntry]:
    """The files that the planned command would remove. No file is written."""
    check_writable(table)
    manifests = ManifestStore(table.storage)
    source = plan(table, manifests).source
    latest = SnapshotStore(table.storage).latest()
    metas = () if latest is None else manifests.base_and_delta(latest)
    source.at(Base(snapshot=latest, metas=metas))  # this fills `gone`
    return source.gone


def _cleared(
    session: Session,
    entries: Sequence[ManifestEntry],
    clear: Callable[[], CommitReport],
    *,
    yes: bool,
) -> CommandAnswer:
    """Clears the table or its partitions if --yes is given. The answer says what was cleared, or
    what would be cleared.

    Args:
        session: the table.
        entries: the files that were planned to be cleared.
        clear: the function that clears these files.
        yes: whether --yes is given.
    """
    snapshot_id = None
    files = len(entries)
    rows = sum(entry.file.row_count for entry in entries)
    if yes and entries:
        report = clear()
        snapshot_id = report.snapshot_id
        files = report.counts.files_deleted
        rows = report.counts.records_appended
    layout = session.raw.layout
    total_bytes = sum(entry.file.file_size for entry in entries)
    partitions = sorted(
        (layout.partition(partition), partition)
        for partition in {entry.partition for entry in entries}
    )
    document = session.document(
        dry_run=not yes,
        snapshot_id=snapshot_id,
        partitions=sorted({folder for folder, _ in partitions}),
        files=files,
        rows=rows,
        bytes=total_bytes,
    )
    if not entries:
        return changed_answer(document, ["There is nothing to clear."], done=yes, has_work=False)
    values = [partition_by_column(layout, partition) for _, partition in partitions]
    parts = [partition_text(by_column) for by_column in values[:_SHOWN] if by_column]
    if len(values) > _SHOWN:
        parts.append(f"and {len(values) - _SHOWN:,} more partitions")
    verb = "would be cleared"
    if snapshot_id is not None:
        verb = f"were cleared, in snapshot {snapshot_id}"
    parts.append(f"{count(files, 'file')} with {count(rows, 'row')} ({size(total_bytes)}) {verb}.")
    return changed_answer(document, parts, done=yes, has_work=True)


def _bounds_text(lost_file: LostFile) -> str:
    """The bounds of the columns of a lost file, such as `id 1 to 99`."""
    return ", ".join(
        f"{name} {smallest} to {largest}" for name, (smallest, largest) in lost_file.bounds.items()
    )


_LOST_FILES: Final[tuple[Column[LostFile], ...]] = (
    Column(
        "partition",
        lambda lost_file: lost_file.partition,
        for_people=lambda lost_file: partition_text(lost_file.partition),
    ),
    Column("bucket", lambda lost_file: lost_file.bucket, ident=True),
    Column("rows", lambda lost_file: lost_file.rows, number=True),
    Column("created", lambda lost_file: lost_file.created, "written"),
    Column("bounds", lambda lost_file: lost_file.bounds, "with", _bounds_text, prose=True),
    Column("path", lambda lost_file: lost_file.path, "file"),
)


@table_command(
    example="drop-lost-files --yes /data/shop.db/orders", columns=_LOST_FILES, params=(YES,)
)
def drop_lost_files(session: Session, yes: bool) -> CommandAnswer:
    """Looks for all data files of the newest snapshot, and makes a new snapshot without the files
    that do not exist, so that the table can be read again. The rows of these files are lost. If you
    can, restore the files instead. Without --yes it only shows which files are lost, and what is
    known about their rows.
    """
    with progress() as reporter:
        report = session.table.drop_lost_files(dry_run=not yes, progress=reporter)
    checked = count(report.checked, "data file")
    if not report.files:
        sentence = f"No data file is lost: the newest snapshot has {checked}."
        return changed_answer(report.to_json(), [sentence], done=yes, has_work=False)
    rows = count(report.rows, "row")
    parts: list[Part] = [
        Listing(_LOST_FILES, report.files, ""),
        "",
        f"{len(report.files):,} of {checked} of the newest snapshot "
        f"{'is' if len(report.files) == 1 else 'are'} lost, with {rows}.",
    ]
    if report.snapshot_id is not None:
        parts.append(
            f"Snapshot {report.snapshot_id} is without them. Write these rows again from their "
            "source, if it still has them."
        )
    elif yes:
        parts.append("Others have dropped them meanwhile. Nothing was changed.")
    if session.raw.schema.primary_keys:
        parts.append(
            "A key whose newest row was in a lost file has its older row again, if another file "
            "has one; also a key that was deleted."
        )
    return changed_answer(report.to_json(), parts, done=yes, has_work=True)
