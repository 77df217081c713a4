"""The conflict rules: pure functions of what is in the table and what a commit would change.

Each rule passes or raises one `CommitConflict`. None reads storage. The rules are checks 1-6 of
semantics.md §3.1 and the strict mode of §2.9. Checks 7 and 8 concern row ids, and tables with row
ids are refused before anything is written. When the rules run, nothing has been written, so a
conflict leaves nothing behind.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paimon_stream.commit.plan import Changes
from paimon_stream.commit.watched_files import KnownFiles, LiveFile
from paimon_stream.errors import (
    BucketCountChanged,
    DeletedFiles,
    KeyRangeOverlap,
    SchemaChanged,
    StrictModeViolated,
)
from paimon_stream.format.entries import FileIdentity, FileKind, IndexManifestEntry, ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot
from paimon_stream.format.stats import RowOrder

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitContext:
    """Who commits what to which table and on which base, for messages. `partition_name` renders a
    partition row for people. `base` is the snapshot that was the newest when the rules ran.
    """

    location: str
    user: str
    identifier: int
    partition_name: Callable[[bytes], str]
    kind: CommitKind = CommitKind.APPEND
    base: Snapshot | None = None

    def facts(self) -> dict[str, object]:
        """The context of an error."""
        base = None if self.base is None else self.base.id
        known = {"table": self.location, "user": self.user, "batch": self.identifier}
        return {**known, "commit_kind": self.kind.value, "base_snapshot": base}

    @property
    def left_out(self) -> str:
        """Says what was not published. The rows of a batch may be published although its compaction
        is not (R3.2).
        """
        return (
            "The compaction was left out"
            if self.kind is CommitKind.COMPACT
            else "Nothing was published"
        )

    def place(self, partition: bytes) -> str:
        """The partition, or the table if it has no partitions."""
        name = self.partition_name(partition)
        return f"partition {name!r}" if name else "the table"

    def __str__(self) -> str:
        which = (
            "batch commit" if self.identifier == BATCH_IDENTIFIER else f"commit {self.identifier}"
        )
        onto = ""
        if self.base is not None:
            base = self.base
            onto = f" on snapshot {base.id}, {base.commit_kind.value} of user {base.commit_user!r}"
        return f"{self.location}, {which} of user {self.user!r} ({self.kind.value}{onto})"


def check_bucket_counts(
    context: CommitContext, present: Mapping[bytes, int], entries: Iterable[ManifestEntry]
) -> None:
    """Check 2: a partition's files have one number of buckets, but for counts below 1 (no fixed
    buckets) and overwrites, which may change it. `present` has that of touched partitions with
    files. Raises `BucketCountChanged`.
    """
    known = {partition: count for partition, count in present.items() if count > 0}
    for entry in () if context.kind is CommitKind.OVERWRITE else entries:
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
    twice = [
        one for one, count in Counter(entry.identity for entry in entries).items() if count > 1
    ]
    cure = "A commit message was passed twice, or adds and removes the same file. Pass each message once"
    _refuse(context, twice, "of its files appear twice in this one commit", cure)


def check_schemas(
    context: CommitContext, known: Collection[int], entries: Iterable[ManifestEntry]
) -> None:
    """The table has the schema of every added file; without it nobody could read the file. Raises
    `SchemaChanged`.
    """
    for entry in entries:
        if entry.kind is FileKind.ADD and entry.file.schema_id not in known:
            text = (
                f"{context}: the file {entry.file.file_name} was written with schema {entry.file.schema_id}, "
                f"which this table does not have; its newest is {max(known, default=None)}. "
                f"{context.left_out}. The messages belong to another table, or to this one before it was "
                "restored or created again: write the rows again to the current table."
            )
            raise SchemaChanged(
                text, **context.facts(), schema=entry.file.schema_id, file=entry.file.file_name
            )


def check_listed_once(context: CommitContext, twice: Collection[FileIdentity]) -> None:
    """Check 4, applied to the table itself: no file is listed `twice`. Such a table returns rows
    twice, and Java fails on it from its next merge of manifests on (semantics.md §3.5). Raises
    `DeletedFiles`.
    """
    what = "files in the partitions it touches are listed twice by earlier commits, so their rows are read twice"
    back = "Roll the table back to the snapshot before it"
    cure = f"An earlier commit published messages that were already in the table: verify() finds which. {back}"
    _refuse(context, twice, what, cure)


def check_not_in_table(
    context: CommitContext, files: KnownFiles, entries: Iterable[ManifestEntry]
) -> None:
    """Check 4: no added file is already in the table, or was there and has been removed. `files`
    are those of the touched partitions. A file listed twice would be read twice and break every
    later merge of manifests; a removed one would be hidden until its DELETE is merged (semantics.md
    §3.5). Raises `DeletedFiles`.
    """
    added = [entry.identity for entry in entries if entry.kind is FileKind.ADD]
    cure = "These messages were committed before, under another identifier or user; do not commit them again"
    _refuse(
        context,
        [one for one in added if one in files.live],
        "of its files are in the table already",
        cure,
    )
    what = "of its files were in the table and have been compacted or overwritten since"
    _refuse(context, [one for one in added if one in files.removed], what, cure)


def check_removed_files_are_there(
    context: CommitContext,
    live: Collection[FileIdentity],
    entries: Iterable[ManifestEntry],
    expires: str | None = None,
) -> None:
    """Check 5: every removed file is in the table, or added by this commit. `live` are all files of
    the touched partitions; `expires` is `partition.expiration-time`, for the cure (check 5b).
    Raises `DeletedFiles`.
    """
    added: set[FileIdentity] = set()
    gone: list[FileIdentity] = []
    for entry in entries:
        if entry.kind is FileKind.ADD:
            added.add(entry.identity)
        elif entry.identity not in live and entry.identity not in added:
            gone.append(entry.identity)
    cure = "Another writer compacted or overwrote them meanwhile; run the job again on the current state"
    emptied = {one.partition for one in gone} - {one.partition for one in live}
    if expires is not None and emptied and emptied == {one.partition for one in gone}:
        names = ", ".join(sorted(map(context.partition_name, emptied))[:_SHOWN])
        cure = (
            f"Nothing is left of their partitions ({names}), and the table drops partitions after "
            f"{expires} (partition.expiration-time): filter such late rows out before they are written, "
            "because otherwise this error comes back with every restart"
        )
    _refuse(
        context, gone, "of its files are to be removed, but are not in the table any more", cure
    )


def check_key_ranges(
    context: CommitContext,
    live: Mapping[FileIdentity, LiveFile],
    entries: Sequence[ManifestEntry],
    order: RowOrder,
) -> None:
    """Check 6, for primary keys: after the commit, the files of one level of a bucket, from level 1
    up, have disjoint key ranges. Levels to which the commit adds nothing are not checked. Raises
    `KeyRangeOverlap`, `FormatError` for keys that are not of the table's types.
    """
    levels: defaultdict[tuple[bytes, int, int], dict[FileIdentity, tuple[bytes, bytes]]] = (
        defaultdict(dict)
    )
    for entry in entries:
        if entry.kind is FileKind.ADD and entry.file.level > 0:
            where = (entry.partition, entry.bucket, entry.file.level)
            levels[where][entry.identity] = (entry.file.min_key, entry.file.max_key)
    if not levels:
        return
    removed = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
    for identity, file in live.items():
        where = (identity.partition, identity.bucket, identity.level)
        if where in levels and identity not in removed:
            levels[where][identity] = (file.min_key, file.max_key)
    for (partition, bucket, level), files in levels.items():
        found = ((order(low), order(high), identity) for identity, (low, high) in files.items())
        ranges = sorted(found, key=lambda one: one[:2])
        for lower, upper in pairwise(ranges):
            if lower[1] >= upper[0]:
                both = lower[2].file_name, upper[2].file_name
                raise KeyRangeOverlap(
                    f"{context}: the files {both[0]} and {both[1]} would both be in level {level} of bucket {bucket} "
                    f"of {context.place(partition)}, and their keys overlap. Readers would take old rows for new ones. "
                    f"{context.left_out}. Two compactions of one bucket ran at the same time: let only one job compact "
                    "the table (write-only = true for all others), and run this one again.",
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
    a data file together with its vector, and replaces only a vector that it knows; otherwise
    deleted rows would come back. `vectors` maps each data file of the base to the index file with
    its vector. Raises `DeletedFiles`.
    """
    kinds = FileKind.DELETE, FileKind.ADD
    dropped, made = (
        vectors_of(one.entry for one in changes.index if one.kind is kind) for kind in kinds
    )
    added = {entry.file.file_name for entry in changes.entries if entry.kind is FileKind.ADD}
    removed = {entry.file.file_name for entry in changes.entries if entry.kind is FileKind.DELETE}
    present = {identity.file_name for identity in live} - removed | added
    wrong = {name for name in made if name not in present}
    wrong |= {
        name for name in (*dropped, *made, *removed) if dropped.get(name) != vectors.get(name)
    }
    if wrong:
        what = f"the deletion vectors of {len(wrong)} data files are not those that the commit was based on"
        cure = "Another job has deleted rows of these files or compacted them; run the job again on the current state"
        raise _deleted(context, sorted(wrong), what, cure)


def vectors_of(entries: Iterable[IndexManifestEntry]) -> dict[str, str]:
    """Each data file that has a deletion vector in these index files, with that index file."""
    return {
        one.data_file: entry.file.file_name
        for entry in entries
        for one in entry.file.deletions or ()
    }


def check_files_exist(context: CommitContext, missing: Collection[str]) -> None:
    """Every added file exists. `missing` are the paths that do not (semantics.md §1.2, R9.1).
    Raises `DeletedFiles`.
    """
    if missing:
        what = f"cannot commit because {len(missing)} of its files have been deleted"
        cure = "An orphan cleaner or a drop of the partition deleted them. Run the batch again, so it writes new files"
        raise _deleted(context, missing, what, cure)


def check_strict_mode(
    context: CommitContext,
    since: Iterable[Snapshot],
    last_safe: int,
    adds_files: Callable[[Snapshot], bool],
) -> None:
    """`commit.strict-mode.last-safe-snapshot` (semantics.md §2.9, §5.2): no other user has
    compacted or overwritten in the snapshots `since` the last safe one. Nor has one appended if
    this is an overwrite, because it would delete those rows, too. `adds_files` says whether a
    snapshot's delta has files in real buckets. Raises `StrictModeViolated`.
    """
    for snapshot in since:
        kind, overwrites = snapshot.commit_kind, context.kind is CommitKind.OVERWRITE
        if snapshot.commit_user == context.user:
            continue
        if kind in (CommitKind.COMPACT, CommitKind.OVERWRITE):
            what = f"is of kind {kind.value}"
        elif overwrites and kind is CommitKind.APPEND and adds_files(snapshot):
            what = "has appended files, which this overwrite may delete"
        else:
            continue
        text = (
            f"{context}: snapshot {snapshot.id} of user {snapshot.commit_user!r} {what}, and option "
            f"'commit.strict-mode.last-safe-snapshot' allows none after snapshot {last_safe}. "
            f"{context.left_out}. Look at what that snapshot did, then set the option to {snapshot.id} or later."
        )
        raise StrictModeViolated(text, **context.facts(), snapshot=snapshot.id, kind=kind.value)


def _refuse(context: CommitContext, files: Collection[FileIdentity], what: str, cure: str) -> None:
    if files:
        raise _deleted(context, [one.file_name for one in files], f"{len(files)} {what}", cure)


def _deleted(context: CommitContext, names: Collection[str], what: str, cure: str) -> DeletedFiles:
    some = ", ".join(sorted(names)[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    text = f"{context}: {what}: {some}{more}. {context.left_out}. {cure}."
    return DeletedFiles(text, **context.facts(), count=len(names), files=tuple(names)[:_SHOWN])
