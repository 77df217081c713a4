"""The conflict rules are pure functions of the files in the table and the changes of a commit.

Each rule passes or raises one `CommitConflict`. No rule reads storage. The rules are checks 1-6 of
semantics.md §3.1 and the strict mode of §2.9. Checks 7 and 8 concern row ids in tables with data
evolution. Messages that would need these two checks are refused before the rules run. When the
rules run, the attempt has staged nothing, so a conflict leaves nothing behind.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from paimon_stream.commit.plan import Changes
from paimon_stream.commit.watched_files import KnownFiles, LiveFile
from paimon_stream.errors import (
    BucketCountChanged,
    DeletedFiles,
    KeyRangeOverlap,
    SchemaChanged,
    StrictModeViolated,
    first_few,
)
from paimon_stream.format.entries import FileIdentity, FileKind, IndexManifestEntry, ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot
from paimon_stream.format.stats import RowOrder

_SHOWN = 5

_Level = tuple[bytes, int, int]
"""A partition, a bucket, and a level of the bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitContext:
    """The description of a commit for messages: who commits what, to which table and on which base.

    Attributes:
        location: the table.
        user: the commit user.
        identifier: the commit identifier.
        partition_name: returns the name of a partition row, for people.
        kind: what the commit does.
        base: the snapshot that was the newest when the rules ran. None in an empty table.
    """

    location: str
    user: str
    identifier: int
    partition_name: Callable[[bytes], str]
    kind: CommitKind = CommitKind.APPEND
    base: Snapshot | None = None

    def facts(self) -> dict[str, object]:
        """The context that each error of a conflict rule has."""
        base_id = None
        if self.base is not None:
            base_id = self.base.id
        return {
            "table": self.location,
            "user": self.user,
            "batch": self.identifier,
            "commit_kind": self.kind.value,
            "base_snapshot": base_id,
        }

    @property
    def left_out(self) -> str:
        """A sentence that says what was not published. The rows of a batch may be published even if
        the batch's compaction is not (R3.2).
        """
        if self.kind is CommitKind.COMPACT:
            return "The compaction was left out"
        return "Nothing was published"

    def place(self, partition: bytes) -> str:
        """The name of a partition in messages; "the table" if there are no partitions."""
        name = self.partition_name(partition)
        if not name:
            return "the table"
        return f"partition {name!r}"

    def __str__(self) -> str:
        commit = f"commit {self.identifier}"
        if self.identifier == BATCH_IDENTIFIER:
            commit = "batch commit"
        base = self.base
        if base is None:
            return f"{self.location}, {commit} of user {self.user!r} ({self.kind.value})"
        return (
            f"{self.location}, {commit} of user {self.user!r} ({self.kind.value} on snapshot {base.id}, "
            f"{base.commit_kind.value} of user {base.commit_user!r})"
        )


def check_bucket_counts(
    context: CommitContext, present: Mapping[bytes, int], entries: Iterable[ManifestEntry]
) -> None:
    """Check 2: all files of a partition have the same bucket count. A count below 1 means that the
    file is in no fixed bucket, and is not checked. An overwrite may change the count. `present` has
    the counts of the touched partitions that have files. Raises `BucketCountChanged`.
    """
    if context.kind is CommitKind.OVERWRITE:
        return
    known = {partition: count for partition, count in present.items() if count > 0}
    for entry in entries:
        total = entry.total_buckets
        if total <= 0:
            continue
        expected = known.setdefault(entry.partition, total)
        if total != expected:
            raise BucketCountChanged(
                f"{context}: {context.place(entry.partition)} has {expected} buckets, but the file "
                f"{entry.file.file_name} was written for {entry.total_buckets}. {context.left_out}. Only an overwrite "
                "of the partition changes its bucket count: overwrite it first, or set the table's option 'bucket' "
                f"back to {expected}; then run the batch again.",
                **context.facts(),
                partition=context.partition_name(entry.partition),
                expected=expected,
                found=entry.total_buckets,
            )


def check_each_file_once(context: CommitContext, entries: Collection[ManifestEntry]) -> None:
    """Check 3: the commit names each file once. Raises `DeletedFiles`."""
    if len({entry.file.file_name for entry in entries}) == len(entries):
        return
    counts = Counter(entry.identity for entry in entries)
    names = [identity.file_name for identity, count in counts.items() if count > 1]
    if names:
        raise DeletedFiles(
            f"{context}: {len(names)} of its files appear twice in this one commit: {_listed(names)}. "
            f"{context.left_out}. A commit message was passed twice, or adds and removes the same file. Pass each "
            "message once.",
            **_file_facts(context, names),
        )


def check_schemas(
    context: CommitContext, known: Collection[int], entries: Iterable[ManifestEntry]
) -> None:
    """The table has the schema of every added file. Nobody could read a file without its schema.
    `known` are the ids of the table's schemas. Raises `SchemaChanged`.
    """
    for entry in entries:
        if entry.kind is FileKind.ADD and entry.file.schema_id not in known:
            raise SchemaChanged(
                f"{context}: the file {entry.file.file_name} was written with schema {entry.file.schema_id}, "
                f"which this table does not have; its newest is {max(known, default=None)}. "
                f"{context.left_out}. The messages belong to another table, or to this one before it was "
                "restored or created again: write the rows again to the current table.",
                **context.facts(),
                schema=entry.file.schema_id,
                file=entry.file.file_name,
            )


def check_listed_once(context: CommitContext, twice: Collection[FileIdentity]) -> None:
    """Check 4, applied to the table itself: no file is listed `twice`. Such a table returns rows
    twice, and Java fails on it from its next merge of manifests on (semantics.md §3.5). Raises
    `DeletedFiles`.
    """
    names = [identity.file_name for identity in twice]
    if names:
        raise DeletedFiles(
            f"{context}: {len(names)} files in the partitions it touches are listed twice by earlier commits, so "
            f"their rows are read twice: {_listed(names)}. {context.left_out}. An earlier commit published messages "
            "that were already in the table: verify() finds which. Roll the table back to the snapshot before it.",
            **_file_facts(context, names),
        )


def check_not_in_table(
    context: CommitContext, files: KnownFiles, entries: Iterable[ManifestEntry]
) -> None:
    """Check 4: no added file is in the table already, and none was removed from it before. `files`
    are the files of the touched partitions. A file that is listed twice would be read twice, and
    would break every later merge of manifests. A file that was removed would be hidden until its
    DELETE is merged (semantics.md §3.5). Raises `DeletedFiles`.
    """
    added = [entry.identity for entry in entries if entry.kind is FileKind.ADD]
    names = [identity.file_name for identity in added if identity in files.live]
    if names:
        raise DeletedFiles(
            f"{context}: {len(names)} of its files are in the table already: {_listed(names)}. {context.left_out}. "
            "These messages were committed before, under another identifier or user; do not commit them again.",
            **_file_facts(context, names),
        )
    names = [identity.file_name for identity in added if identity in files.removed]
    if names:
        raise DeletedFiles(
            f"{context}: {len(names)} of its files were in the table and have been compacted or overwritten since: "
            f"{_listed(names)}. {context.left_out}. These messages were committed before, under another identifier "
            "or user; do not commit them again.",
            **_file_facts(context, names),
        )


def check_removed_files_are_there(
    context: CommitContext,
    live: Collection[FileIdentity],
    entries: Iterable[ManifestEntry],
    expires: str | None = None,
) -> None:
    """Check 5: every removed file is in the table, or added by this commit.

    Args:
        context: who commits what.
        live: the live files of the touched partitions.
        entries: the entries of the commit.
        expires: the value of `partition.expiration-time`, for the message (check 5b).

    Raises:
        DeletedFiles: a file is missing.
    """
    added: set[FileIdentity] = set()
    missing: list[FileIdentity] = []
    for entry in entries:
        if entry.kind is FileKind.ADD:
            added.add(entry.identity)
        elif entry.identity not in live and entry.identity not in added:
            missing.append(entry.identity)
    if not missing:
        return
    names = [identity.file_name for identity in missing]
    touched = {identity.partition for identity in missing}
    emptied = touched - {identity.partition for identity in live}
    if expires is not None and emptied == touched:
        partitions = ", ".join(sorted(map(context.partition_name, emptied))[:_SHOWN])
        raise DeletedFiles(
            f"{context}: {len(names)} of its files are to be removed, but are no longer in the table: "
            f"{_listed(names)}. {context.left_out}. Nothing is left of their partitions ({partitions}), and the table "
            f"drops partitions after {expires} (partition.expiration-time): filter such late rows out before they are "
            "written, because otherwise this error comes back with every restart.",
            **_file_facts(context, names),
        )
    raise DeletedFiles(
        f"{context}: {len(names)} of its files are to be removed, but are no longer in the table: "
        f"{_listed(names)}. {context.left_out}. Another writer compacted or overwrote them meanwhile; run the job "
        "again on the current state.",
        **_file_facts(context, names),
    )


class _KeyRange(NamedTuple):
    """The lowest and the highest key of a file, in the order of keys."""

    lowest: Any
    highest: Any
    file_name: str


def check_key_ranges(
    context: CommitContext,
    live: Mapping[FileIdentity, LiveFile],
    entries: Sequence[ManifestEntry],
    order: RowOrder,
) -> None:
    """Check 6, for primary keys: after the commit, the files of one level of a bucket, from level 1
    up, have disjoint key ranges. Levels to which the commit adds nothing are not checked. `live`
    are the files of the touched partitions, and `order` is that of the table's keys. Raises
    `KeyRangeOverlap`, and `FormatError` for keys that are not of the table's types.
    """
    levels: defaultdict[_Level, dict[FileIdentity, tuple[bytes, bytes]]] = defaultdict(dict)
    for entry in entries:
        if entry.kind is FileKind.ADD and entry.file.level > 0:
            place = (entry.partition, entry.bucket, entry.file.level)
            levels[place][entry.identity] = (entry.file.min_key, entry.file.max_key)
    if not levels:
        return
    removed = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
    for identity, file in live.items():
        place = (identity.partition, identity.bucket, identity.level)
        if place in levels and identity not in removed:
            levels[place][identity] = (file.min_key, file.max_key)
    for (partition, bucket, level), files in levels.items():
        key_ranges = [
            _KeyRange(order(min_key), order(max_key), identity.file_name)
            for identity, (min_key, max_key) in files.items()
        ]
        key_ranges.sort(key=lambda key_range: (key_range.lowest, key_range.highest))
        for lower, upper in pairwise(key_ranges):
            if lower.highest >= upper.lowest:
                both = (lower.file_name, upper.file_name)
                raise KeyRangeOverlap(
                    f"{context}: the files {both[0]} and {both[1]} would both be in level {level} of bucket {bucket} "
                    f"of {context.place(partition)}, and their keys overlap. Readers would return old rows instead of "
                    f"new ones. {context.left_out}. Two compactions of one bucket ran at the same time: let only one "
                    "job compact the table (write-only = true for all others), and run this one again.",
                    **context.facts(),
                    partition=context.partition_name(partition),
                    bucket=bucket,
                    level=level,
                    files=both,
                )


def check_deletion_vectors(
    context: CommitContext,
    live: Collection[FileIdentity],
    vectors: Mapping[str, str],
    changes: Changes,
) -> None:
    """Check 1, for append tables without fixed buckets that have deletion vectors: a commit removes
    a data file together with its vector, and replaces only a vector that it knows. Otherwise
    deleted rows would come back. `vectors` maps each data file of the base to the index file with
    its vector. Raises `DeletedFiles`.
    """
    dropped_vectors = _vectors_of_kind(changes, FileKind.DELETE)
    added_vectors = _vectors_of_kind(changes, FileKind.ADD)
    added = {entry.file.file_name for entry in changes.entries if entry.kind is FileKind.ADD}
    removed = {entry.file.file_name for entry in changes.entries if entry.kind is FileKind.DELETE}
    present = {identity.file_name for identity in live} - removed | added
    wrong = {name for name in added_vectors if name not in present}
    for name in (*dropped_vectors, *added_vectors, *removed):
        if dropped_vectors.get(name) != vectors.get(name):
            wrong.add(name)
    if wrong:
        names = sorted(wrong)
        raise DeletedFiles(
            f"{context}: the deletion vectors of {len(names)} data files are not those that the commit was based on: "
            f"{_listed(names)}. {context.left_out}. Another job has deleted rows of these files or compacted them; run "
            "the job again on the current state.",
            **_file_facts(context, names),
        )


def _vectors_of_kind(changes: Changes, kind: FileKind) -> dict[str, str]:
    """Maps each data file to the index file with its deletion vector, for the index files that the
    changes add, or for those that they delete.
    """
    return vectors_of(change.entry for change in changes.index if change.kind is kind)


def vectors_of(entries: Iterable[IndexManifestEntry]) -> dict[str, str]:
    """Maps each data file that has a deletion vector to the index file with this vector."""
    return {
        vector.data_file: entry.file.file_name
        for entry in entries
        for vector in entry.file.deletions or ()
    }


def check_files_exist(context: CommitContext, missing: Collection[str]) -> None:
    """Checks that every added file exists. `missing` are the paths of files that do not exist
    (semantics.md §1.2, R9.1). Raises `DeletedFiles`.
    """
    if missing:
        raise DeletedFiles(
            f"{context}: cannot commit because {len(missing)} of its files have been deleted: {_listed(missing)}. "
            f"{context.left_out}. An orphan cleaner or a drop of the partition deleted them. Run the batch again, so "
            "it writes new files.",
            **_file_facts(context, missing),
        )


def check_strict_mode(
    context: CommitContext,
    since: Iterable[Snapshot],
    last_safe: int,
    adds_files: Callable[[Snapshot], bool],
) -> None:
    """`commit.strict-mode.last-safe-snapshot` (semantics.md §2.9, §5.2): no other user has
    compacted or overwritten since the last safe snapshot. If the commit is an overwrite, no other
    user has appended either, because the overwrite would delete the appended rows, too.

    Args:
        context: who commits what.
        since: the snapshots after the last safe one.
        last_safe: the id of the last safe snapshot.
        adds_files: whether the delta of a snapshot has files in real buckets.

    Raises:
        StrictModeViolated: another user has published a snapshot that the mode does not allow.
    """
    for snapshot in since:
        if snapshot.commit_user == context.user:
            continue
        kind = snapshot.commit_kind
        if kind in (CommitKind.COMPACT, CommitKind.OVERWRITE):
            deed = f"is of kind {kind.value}"
        elif (
            context.kind is CommitKind.OVERWRITE
            and kind is CommitKind.APPEND
            and adds_files(snapshot)
        ):
            deed = "has appended files, which this overwrite may delete"
        else:
            continue
        raise StrictModeViolated(
            f"{context}: snapshot {snapshot.id} of user {snapshot.commit_user!r} {deed}, and option "
            f"'commit.strict-mode.last-safe-snapshot' allows none after snapshot {last_safe}. "
            f"{context.left_out}. Look at what that snapshot did, then set the option to {snapshot.id} or later.",
            **context.facts(),
            snapshot=snapshot.id,
            kind=kind.value,
        )


def _listed(names: Collection[str]) -> str:
    """A text with the first few names, and the number of further names."""
    return first_few(sorted(names), _SHOWN)


def _file_facts(context: CommitContext, names: Collection[str]) -> dict[str, Any]:
    """The context of an error that names files."""
    return {**context.facts(), "count": len(names), "files": tuple(names)[:_SHOWN]}
