"""The command `verify`, and the commands that clean and repair: `orphans`, `repair-hints`,
`compact-manifests` and `rebuild-index`.
"""

from typing import Final, NamedTuple

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


class _FileKind(NamedTuple):
    """The number of orphans of one kind, and their total bytes."""

    name: str
    files: int
    bytes: int


_KINDS: Final[tuple[Column[_FileKind], ...]] = (
    Column("kind", lambda kind: kind.name),
    Column("files", lambda kind: kind.files, number=True),
    Column("sizes", lambda kind: kind.bytes, "size", lambda kind: size(kind.bytes), number=True),
)

_FINDINGS: Final[tuple[Column[Finding], ...]] = (
    Column("severity", lambda finding: finding.severity),
    Column("code", lambda finding: finding.code),
    Column("path", lambda finding: finding.path, "file"),
    Column(
        "message",
        lambda finding: finding.message,
        "what",
        for_people=lambda finding: in_commands(finding.message),
        prose=True,
    ),
    Column(
        "cure",
        lambda finding: finding.cure,
        "what to do",
        for_people=lambda finding: in_commands(finding.cure),
        prose=True,
    ),
    Column(
        "snapshots",
        lambda finding: finding.snapshots,
        for_people=lambda finding: ranges(finding.snapshots) or None,
        extra=True,
    ),
    Column(
        "tags",
        lambda finding: finding.tags,
        for_people=lambda finding: listed(finding.tags) or None,
        extra=True,
    ),
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
    the recorded size. Also checks the counts, the statistics and buckets of sampled rows, the
    identifiers and the hints. It changes nothing. The exit code is 1 if it finds an error.
    """
    with progress() as reporter:
        report = verify_table(session.raw, sample=sample, progress=reporter)
    findings = report.findings
    has_warnings = any(finding.severity == "warning" for finding in findings)
    is_bad = not report.healthy or (strict and has_warnings)
    parts: list[Part] = [Listing(_FINDINGS, findings, "Nothing is wrong.")]
    parts += [f"{number:,} more of {code}." for code, number in report.omitted.items()]
    looked_at = ", ".join(f"{thing} {number:,}" for thing, number in report.checked.items())
    parts.append(f"Looked at: {looked_at}.")
    listed_findings = [json_of(_FINDINGS, finding) for finding in findings]
    document = {**report.to_json(), "findings": listed_findings}
    code = FINDINGS if is_bad else OK
    return CommandAnswer(document=document, parts=parts, code=code)


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
    With --yes, these files are deleted. Without it, they are only shown. Choose an age above the
    time that your longest batch takes, because nothing refers to the files of a batch before it is
    committed.
    """
    with progress() as reporter:
        report = session.table.remove_orphan_files(
            older_than, dry_run=not yes, max_paths=max_paths, progress=reporter
        )
    kinds = [_FileKind(kind, files, report.sizes[kind]) for kind, files in report.files.items()]
    parts: list[Part] = [*report.paths]
    if report.count > len(report.paths):
        parts.append(f"and {report.count - len(report.paths):,} more")
    parts.append(Listing(_KINDS, kinds, "There are no orphans."))
    if report.count:
        verb = "were deleted" if yes else "would be deleted"
        since = iso(report.cutoff_millis)
        parts.append(
            f"{count(report.count, 'orphan')}, {size(report.bytes)}, {verb}; all are older than {since}."
        )
    if report.failed:
        parts.append(f"{count(report.failed, 'file')} could not be deleted.")
    if report.skipped:
        parts.append(
            f"Links and folders that Paimon did not name were left: {listed(report.skipped)}."
        )
    return changed_answer(report.to_json(), parts, done=yes, has_work=report.count > 0)


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
    parts = [
        f"{path} is {before[path]!r}, and {verb} to {right[path]}." for path in report.repaired
    ]
    if not parts:
        parts.append("The hints are right.")
    return changed_answer(report.to_json(), parts, done=yes, has_work=bool(report.repaired))


@table_command(example="compact-manifests --yes /data/shop.db/orders", params=(YES,))
def compact_manifests(session: Session, yes: bool) -> CommandAnswer:
    """Merges the manifests of the newest snapshot into fewer manifests, in a new snapshot. No row
    changes, and streams continue meanwhile. Without --yes it only shows how many manifests would be
    merged.
    """
    with progress() as reporter:
        report = session.table.compact_manifests(dry_run=not yes, progress=reporter)
    manifests = count(report.manifests_before, "manifest")
    summary = f"There is nothing to merge: {manifests}."
    if report.merged:
        verb = "became" if yes else "would become"
        where = f", in snapshot {report.snapshot_id}" if yes else ""
        before = f"{manifests} ({size(report.bytes_before)})"
        after = f"{report.manifests_after:,} ({size(report.bytes_after)})"
        summary = f"{before} {verb} {after}{where}."
    return changed_answer(report.to_json(), [summary], done=yes, has_work=report.merged > 0)


@table_command(example="rebuild-index --yes /data/shop.db/orders", params=(YES,))
def rebuild_index(session: Session, yes: bool) -> CommandAnswer:
    """Compares the hash index of a table with dynamic buckets to the keys of all files. Rebuilds
    the parts that are wrong, in a new snapshot. No row changes. Stop the writers of other engines
    first. Without --yes it only shows which buckets have a wrong index.
    """
    with progress() as reporter:
        report = session.table.rebuild_index(dry_run=not yes, progress=reporter)
    parts = []
    if report.manifest is not None:
        state = "is there again" if yes else "is missing or broken"
        parts.append(f"The index manifest {report.manifest} {state}.")
    if report.buckets:
        buckets = count(len(report.buckets), "bucket")
        keys = count(report.keys, "key")
        where = "" if report.snapshot_id is None else f", in snapshot {report.snapshot_id}"
        verb = "was" if yes else "would be"
        parts.append(
            f"The hash index of {buckets} {verb} rebuilt, with {keys}{where}: {listed(report.buckets)}."
        )
    if not parts:
        rest = "There is nothing to do."
        if report.snapshot_id is not None:
            rest = f"From snapshot {report.snapshot_id} on, writers look for keys that others lose."
        elif report.is_behind_others:
            rest = "If batches stop because of lost keys, run it with --yes: then they go on."
        parts.append(f"The hash index is right: {count(report.checked, 'bucket')}. {rest}")
    has_work = bool(report.buckets or report.manifest)
    return changed_answer(report.to_json(), parts, done=yes, has_work=has_work)
