"""`orphans`, `repair-hints`, `compact-manifests`."""

from __future__ import annotations

import click

from paimon_stream.cli.command import YES, Session, changed_answer, report_json, table_command
from paimon_stream.cli.output import Answer, Column, Listing
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count, iso, size
from paimon_stream.maintenance.hints import repair_hints as repair

__all__ = ["compact_manifests", "orphans", "repair_hints"]


@table_command(
    example='orphans --older-than "36 h" --yes /data/warehouse/shop.db/orders',
    params=(
        click.Option(
            ["--older-than"], metavar="AGE", help='Only older files; "1 d" by default, "1 h" at least.'
        ),
        click.Option(
            ["--max-paths"],
            type=click.IntRange(min=0),
            default=1000,
            show_default=True,
            help="Name at most that many files.",
        ),
        YES,
    ),
)
def orphans(session: Session, older_than: str | None, max_paths: int, yes: bool) -> Answer:
    """Finds the files that nothing refers to: no snapshot, tag, changelog, nor the journal of a stream. Shows
    them; with --yes they are deleted. A batch that takes longer to write than the age would lose files."""
    with progress() as tell:
        report = session.table.remove_orphan_files(
            older_than, dry_run=not yes, max_paths=max_paths, progress=tell
        )
    columns = [Column("kind"), Column("files", number=True), Column("size", number=True)]
    kinds = [(kind, number, size(report.sizes[kind])) for kind, number in report.files.items() if number]
    verb = "were deleted" if yes else "refer to nothing"
    parts: list[str | Listing] = [*report.paths]
    if report.count > len(report.paths):
        parts.append(f"and {report.count - len(report.paths):,} more")
    since = iso(report.cutoff_millis)
    said = f"{count(report.count, 'orphan')}, {size(report.bytes)}, {verb}; all are older than {since}."
    failed = [f"{count(report.failed, 'file')} could not be deleted."] if report.failed else []
    parts += [Listing(columns, kinds, "There are no orphans."), *([said] if report.count else []), *failed]
    return changed_answer(report_json(report.to_json()), parts, done=yes, something=report.count > 0)


@table_command(example="repair-hints --yes /data/warehouse/shop.db/orders", params=(YES,))
def repair_hints(session: Session, yes: bool) -> Answer:
    """Sets the files LATEST and EARLIEST to what the snapshots that are there say. Wrong hints harm nobody
    here, but Java may fail on them. Shows what is wrong; with --yes it is set right."""
    report = repair(session.raw, dry_run=not yes)
    wrong = {
        "snapshot/LATEST": (report.latest_before, report.latest),
        "snapshot/EARLIEST": (report.earliest_before, report.earliest),
    }
    verb = "was set" if yes else "would be set"
    said = [f"{path} is {wrong[path][0]!r}, and {verb} to {wrong[path][1]}." for path in report.repaired]
    return changed_answer(
        report_json(report.to_json()),
        said or ["The hints are right."],
        done=yes,
        something=bool(report.repaired),
    )


@table_command(example="compact-manifests /data/warehouse/shop.db/orders")
def compact_manifests(session: Session) -> Answer:
    """Merges the manifests of the newest snapshot into few, in a snapshot of its own. No row changes, and
    streams go on meanwhile."""
    with progress() as tell:
        report = session.table.compact_manifests(progress=tell)
    if report.snapshot_id is None:
        said = f"There is nothing to merge: {count(report.manifests_before, 'manifest')}."
    else:
        said = (
            f"{count(report.manifests_before, 'manifest')} ({size(report.bytes_before)}) became "
            f"{report.manifests_after:,} ({size(report.bytes_after)}), in snapshot {report.snapshot_id}."
        )
    return Answer(document=report_json(report.to_json()), parts=[said])
