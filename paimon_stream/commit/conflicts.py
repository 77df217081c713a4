"""The conflict rules: pure functions over what is in the table and what a commit would change.

Each rule either passes or raises the one `CommitConflict` it is named for; none reads storage. They are
semantics.md 3.1's checks 2-5 and 2.9's strict mode. Nothing has been written when they run, so a
conflict leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from paimon_stream.errors import BucketCountChanged, DeletedFiles, StrictModeViolated
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot

__all__ = [
    "Scene",
    "check_bucket_counts",
    "check_each_file_once",
    "check_files_exist",
    "check_not_in_table",
    "check_removed_files_are_there",
    "check_strict_mode",
]

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Who commits what where, for messages. `partition_name` renders a partition row for a person."""

    location: str
    user: str
    identifier: int
    partition_name: Callable[[bytes], str]

    def facts(self) -> dict[str, object]:
        """The context of an error."""
        return {"table": self.location, "user": self.user, "batch": self.identifier}

    def __str__(self) -> str:
        return f"{self.location}, commit {self.identifier} of user {self.user!r}"


def check_bucket_counts(
    scene: Scene, present: Mapping[bytes, int], entries: Iterable[ManifestEntry], kind: CommitKind
) -> None:
    """Check 2: all files of a partition were written for the same number of buckets.

    `present` has the count of each touched partition that has files. Counts of 0 and below (no fixed
    buckets) are skipped, and an overwrite may change the count. Raises `BucketCountChanged`.
    """
    if kind is CommitKind.OVERWRITE:
        return
    known = {partition: count for partition, count in present.items() if count > 0}
    for entry in entries:
        if entry.total_buckets <= 0:
            continue
        expected = known.setdefault(entry.partition, entry.total_buckets)
        if entry.total_buckets != expected:
            name = scene.partition_name(entry.partition)
            raise BucketCountChanged(
                f"{scene}: partition {name!r} has {expected} buckets, but the file {entry.file.file_name} "
                f"was written for {entry.total_buckets}. Nothing was published. Only an overwrite of the "
                "partition changes its bucket count: overwrite it first, or set the table's option 'bucket' "
                f"back to {expected}; then run the batch again.",
                **scene.facts(),
                partition=name,
                expected=expected,
                found=entry.total_buckets,
            )


def check_each_file_once(scene: Scene, entries: Iterable[ManifestEntry]) -> None:
    """Check 3: the commit speaks of each file once. Raises `DeletedFiles`."""
    seen: set[FileIdentity] = set()
    twice: list[FileIdentity] = []
    for entry in entries:
        if entry.identity in seen:
            twice.append(entry.identity)
        seen.add(entry.identity)
    _refuse(
        scene,
        twice,
        "appear twice in this one commit",
        "The same commit message was handed in twice; hand each in once",
    )


def check_not_in_table(
    scene: Scene, live: Collection[FileIdentity], entries: Iterable[ManifestEntry]
) -> None:
    """Check 4: no added file is in the table already. `live` are the files of the touched partitions.

    A file listed twice would be read twice, and break every later merge of manifests (semantics.md 3.5).
    Raises `DeletedFiles`.
    """
    known = [e.identity for e in entries if e.kind is FileKind.ADD and e.identity in live]
    _refuse(
        scene,
        known,
        "are in the table already",
        "These messages were committed before, under another identifier or user; do not commit them again",
    )


def check_removed_files_are_there(
    scene: Scene, live: Collection[FileIdentity], entries: Iterable[ManifestEntry]
) -> None:
    """Check 5: every removed file is in the table, or added by this commit. Raises `DeletedFiles`."""
    added: set[FileIdentity] = set()
    gone: list[FileIdentity] = []
    for entry in entries:
        if entry.kind is FileKind.ADD:
            added.add(entry.identity)
        elif entry.identity not in live and entry.identity not in added:
            gone.append(entry.identity)
    _refuse(
        scene,
        gone,
        "are to be removed, but are not in the table any more",
        "Another writer compacted or overwrote them meanwhile; run the job again on the present state",
    )


def check_files_exist(scene: Scene, missing: Collection[str]) -> None:
    """Every file that would be added is on storage; `missing` are the paths that are not (semantics.md
    1.2, R9.1). Raises `DeletedFiles`."""
    if missing:
        raise DeletedFiles(
            f"{scene}: cannot commit because {len(missing)} of its files have been deleted: "
            f"{_some(missing)}. Nothing was published. An orphan cleaner or a drop of the partition took "
            "them; run the batch again so that it writes new ones.",
            **scene.facts(),
            count=len(missing),
            files=tuple(missing)[:_SHOWN],
        )


def check_strict_mode(scene: Scene, since: Iterable[Snapshot], last_safe: int) -> None:
    """`commit.strict-mode.last-safe-snapshot` (semantics.md 2.9): no other user has compacted or
    overwritten in the snapshots `since` the last safe one. Raises `StrictModeViolated`."""
    for snapshot in since:
        rewrites = snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.OVERWRITE)
        if rewrites and snapshot.commit_user != scene.user:
            raise StrictModeViolated(
                f"{scene}: snapshot {snapshot.id} of user {snapshot.commit_user!r} is of kind "
                f"{snapshot.commit_kind.value}, and option 'commit.strict-mode.last-safe-snapshot' allows "
                f"none after snapshot {last_safe}. Nothing was published. Look at what that snapshot did, "
                f"then set the option to {snapshot.id} or later.",
                **scene.facts(),
                snapshot=snapshot.id,
                kind=snapshot.commit_kind.value,
            )


def _refuse(scene: Scene, files: Collection[FileIdentity], what: str, cure: str) -> None:
    if files:
        raise DeletedFiles(
            f"{scene}: {len(files)} of its files {what}: {_some([f.file_name for f in files])}. Nothing was "
            f"published. {cure}.",
            **scene.facts(),
            count=len(files),
            files=tuple(f.file_name for f in files)[:_SHOWN],
        )


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
