"""`verify`, and what repairs and cleans: `orphans`, `repair-hints`, `compact-manifests`,
`rebuild-index`.
"""

from typing import Final

import click

from paimon_stream.cli.command import YES, Session, changed_answer, option, table_command
from paimon_stream.cli.exits import FINDINGS, OK
from paimon_stream.cli.output import Column, CommandAnswer, Listing, Part, json_of
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count, in_commands, iso, listed, ranges, size
from paimon_stream.maintenance.hints import repair_hints as repair
from paimon_stream.verify.findings import Finding
from paimon_stream.verify.verifying import DEFAULT_SAMPLE
from paimon_stream.verify.verifying import verify as verify_table

_KINDS: Final[tuple[Column[tuple[str, int, int]], ...]] = (
    Column("kind", lambda one: one[0]),
    Column("files", lambda one: one[1], number=True),
    Column("sizes", lambda one: one[2], "size", text=lambda one: size(one[2]), number=True),
)

_FINDINGS: Final[tuple[Column[Finding], ...]] = (
    Column("severity", lambda one: one.severity),
    Column("code", lambda one: one.code),
    Column("path", lambda one: one.path, "file"),
    Column(
        "message",
        lambda one: one.message,
        "what",
        text=lambda one: in_commands(one.message),
        prose=True,
    ),
    Column(
        "cure",
        lambda one: one.cure,
        "what to do",
        text=lambda one: in_commands(one.cure),
        prose=True,
    ),
    Column(
        "snapshots",
        lambda one: one.snapshots,
        text=lambda one: ranges(one.snapshots) or None,
        extra=True,
    ),
    Column("tags", lambda one: one.tags, text=lambda one: listed(one.tags) or None, extra=True),
)
_SAMPLE: Final = "Read this number of data files in full, drawn at random."


@table_command(
    example="verify --sample 100 /data/shop.db/orders",
    columns=_FINDINGS,
    params=(
        option("--sample", _SAMPLE, type=click.IntRange(min=0), default=DEFAULT_SAMPLE),
        option("--strict", "End with exit code 1 for warnings, too.", is_flag=True),
    ),
)
def verify(session: Session, sample: int, strict: bool) -> CommandAnswer:
    """Reads every snapshot, tag, manifest list and manifest. Checks that every file exists and has
    the recorded size, and checks the counts, the statistics and buckets of sampled rows, the
    identifiers and the hints. Changes nothing. Ends with exit code 1 if it finds an error.
    """
    with progress() as reporter:
        report = verify_table(session.raw, sample=sample, progress=reporter)
    looked_at = ", ".join(f"{what} {number:,}" for what, number in report.checked.items())
    more = [f"{number:,} more of {code}." for code, number in report.omitted.items()]
    bad = not report.healthy or (
        strict and any(one.severity == "warning" for one in report.findings)
    )
    return CommandAnswer(
        document={
            **report.to_json(),
            "findings": [json_of(_FINDINGS, one) for one in report.findings],
        },
        parts=[
            Listing(_FINDINGS, report.findings, "Nothing is wrong."),
            *more,
            f"Looked at: {looked_at}.",
        ],
        code=FINDINGS if bad else OK,
    )


@table_command(
    example='orphans --older-than "36 h" --yes /data/shop.db/orders',
    params=(
        option(
            "--older-than",
            'Only files older than this: default "1 d", minimum "1 h".',
            metavar="AGE",
        ),
        option(
            "--max-paths",
            "Name at most this number of files.",
            type=click.IntRange(min=0),
            default=1000,
        ),
        YES,
    ),
)
def orphans(session: Session, older_than: str | None, max_paths: int, yes: bool) -> CommandAnswer:
    """Finds the files that nothing refers to: no snapshot, tag, changelog or journal of a stream.
    With --yes they are deleted, without it they are only shown. Choose an age above the time that
    your longest batch takes, because nothing refers to its files before it is committed.
    """
    with progress() as reporter:
        report = session.table.remove_orphan_files(
            older_than, dry_run=not yes, max_paths=max_paths, progress=reporter
        )
    kinds = [(kind, number, report.sizes[kind]) for kind, number in report.files.items()]
    verb = "were deleted" if yes else "would be deleted"
    parts: list[Part] = [*report.paths]
    if report.count > len(report.paths):
        parts.append(f"and {report.count - len(report.paths):,} more")
    since = iso(report.cutoff_millis)
    said = f"{count(report.count, 'orphan')}, {size(report.bytes)}, {verb}; all are older than {since}."
    failed = [f"{count(report.failed, 'file')} could not be deleted."] if report.failed else []
    if report.skipped:
        failed.append(
            f"Links and folders that Paimon did not name were left: {listed(report.skipped)}."
        )
    parts += [
        Listing(_KINDS, kinds, "There are no orphans."),
        *([said] if report.count else []),
        *failed,
    ]
    return changed_answer(report.to_json(), parts, done=yes, something=report.count > 0)


@table_command(example="repair-hints --yes /data/shop.db/orders", params=(YES,))
def repair_hints(session: Session, yes: bool) -> CommandAnswer:
    """Sets the files LATEST and EARLIEST to the newest and the oldest snapshot that exist. This
    package works with wrong hints, but Java may fail on them. Without --yes it only shows what is
    wrong.
    """
    report = repair(session.raw, dry_run=not yes)
    before = {"snapshot/LATEST": report.latest_before, "snapshot/EARLIEST": report.earliest_before}
    right = {"snapshot/LATEST": report.latest, "snapshot/EARLIEST": report.earliest}
    verb = "was set" if yes else "would be set"
    said = [f"{path} is {before[path]!r}, and {verb} to {right[path]}." for path in report.repaired]
    return changed_answer(
        report.to_json(),
        said or ["The hints are right."],
        done=yes,
        something=bool(report.repaired),
    )


@table_command(example="compact-manifests --yes /data/shop.db/orders", params=(YES,))
def compact_manifests(session: Session, yes: bool) -> CommandAnswer:
    """Merges the manifests of the newest snapshot into fewer ones, in a new snapshot. No row
    changes, and streams continue meanwhile. Without --yes it only shows how many manifests would be
    merged.
    """
    with progress() as reporter:
        report = session.table.compact_manifests(dry_run=not yes, progress=reporter)
    if not report.merged:
        said = f"There is nothing to merge: {count(report.manifests_before, 'manifest')}."
    else:
        verb = "became" if yes else "would become"
        where = f", in snapshot {report.snapshot_id}" if yes else ""
        before = f"{count(report.manifests_before, 'manifest')} ({size(report.bytes_before)})"
        said = f"{before} {verb} {report.manifests_after:,} ({size(report.bytes_after)}){where}."
    return changed_answer(report.to_json(), [said], done=yes, something=report.merged > 0)


@table_command(example="rebuild-index --yes /data/shop.db/orders", params=(YES,))
def rebuild_index(session: Session, yes: bool) -> CommandAnswer:
    """Compares the hash index of a table with dynamic buckets with the keys of all files, and makes
    what is wrong anew, in a new snapshot. No row changes. Stop the writers of other engines first.
    Without --yes it only shows which buckets have a wrong index.
    """
    with progress() as reporter:
        report = session.table.rebuild_index(dry_run=not yes, progress=reporter)
    buckets, keys = count(len(report.buckets), "bucket"), count(report.keys, "key")
    parts = []
    if report.manifest is not None:
        parts.append(
            f"The index manifest {report.manifest} {'is there again' if yes else 'is missing or broken'}."
        )
    if report.buckets:
        where = "" if report.snapshot_id is None else f", in snapshot {report.snapshot_id}"
        verb = "was" if yes else "would be"
        parts.append(
            f"The hash index of {buckets} {verb} made anew, with {keys}{where}: {listed(report.buckets)}."
        )
    if not parts:
        parts.append(
            f"The hash index is right: {count(report.checked, 'bucket')}. There is nothing to do."
        )
    return changed_answer(
        report.to_json(), parts, done=yes, something=bool(report.buckets or report.manifest)
    )
