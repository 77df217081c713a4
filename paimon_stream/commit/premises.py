"""What a change of rows was computed from, and whether that still holds: the rule of conflicts.

A deletion, an update or a merge reads the table at one snapshot, computes for seconds or hours, and
then publishes on the newest snapshot. Meanwhile others commit. The change may be published only if
it would be the same if it were computed on the newest snapshot. The rule for each snapshot of
others in between:

    what it does                                    a conflict?
    adds a file                                     if `may_hold` says that it may hold rows
    removes a file that was read                    yes
    compacts files that were read                   no, if the new files have the same rows
    compacts a file whose rows are changed          yes, because the change names its rows
    changes a deletion vector                       if it is one of `vectors`

A change of the options that switches deletion vectors off is a conflict, too.

Invariants: each snapshot above the one of the computation is looked at once, in the order of the
ids, however often the commit is tried. So a commit that others overtake again and again reads only
what is new. A snapshot that is gone before it was looked at is a conflict.

The files of a compaction take the place of the files that it replaced: a later snapshot that
removes them is a conflict, too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from paimon_stream.commit.plan import Base
from paimon_stream.errors import ChangedMeanwhile, CorruptMetadata, NotFound, first_few
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.options import DELETION_VECTORS, RECORD_EXPIRE_TIME, Options
from paimon_stream.table.lineage import published_after
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import Vector, VectorIndex, same_vectors

MayHold = Callable[[Sequence[ManifestEntry]], bool]
"""Says of the files that a snapshot of others has added whether one of them may hold rows that the
computation would have read. In doubt, the answer is True.
"""

_Bucket = tuple[bytes, int]


class Premises:
    """What a change of rows was computed from. A `CommitRequest` carries it, and each attempt of
    the commit asks `check`. One object serves one computation.

    How a change of rows uses it (`change/anew.py` publishes, and computes anew after a conflict):

    - A change of an append table gives the files that it read, the files among them whose rows it
      changes, and the deletion vectors that must stay: for an update or a rewritten file those of
      the changed files; for a merge with a not-matched clause those of all files that it read,
      because a deleted target row is no match; none for a deletion by vectors, whose new vectors
      also have the rows that others have deleted.
    - A change of a table with a primary key adds rows, and names no file. It gives the files that
      it read and no `changed`. Its `may_hold` answers for each new file whether the file may have
      rows of the condition, or keys that the computation has read or writes. Statistics of values
      do not suffice: a new row of a key replaces the old one, whatever its values are.
    """

    def __init__(
        self,
        table: Table,
        snapshot: Snapshot | None,
        *,
        read: Iterable[ManifestEntry],
        may_hold: MayHold,
        changed: Iterable[ManifestEntry] = (),
        vectors: Mapping[str, Vector | None] | None = None,
    ) -> None:
        """States the premises.

        Args:
            table: the table at the time of the computation.
            snapshot: the snapshot on which the change was computed; None for an empty table.
            read: the files that were read. Files that were left out by partition, statistics or
                keys are not among them.
            may_hold: whether files that others add may hold rows that would have been read.
            changed: the files among `read` whose rows the change deletes or replaces.
            vectors: the deletion vectors, at that snapshot, of the data files whose vectors must not
                change, by the name of the data file; None for a data file without a vector.
        """
        self.snapshot = snapshot
        self._table = table
        self._may_hold = may_hold
        self._read = {entry.identity for entry in read}
        self._changed = {entry.identity for entry in changed}
        self._vectors = dict(vectors or {})
        self._holds_at = snapshot
        """The newest snapshot at which the premises are known to hold, apart from the vectors."""
        self.broken = False
        """Whether a check has found that the change has to be computed anew."""

    @property
    def seen(self) -> SnapshotRef | None:
        """The snapshot of the computation, for `CommitRequest.seen`."""
        return SnapshotRef.of_optional(self.snapshot)

    def check(
        self,
        snapshots: SnapshotStore,
        manifests: ManifestStore,
        base: Base,
        schema_id: int | None = None,
    ) -> None:
        """Checks that a change that was computed from these premises may be published on a base,
        which continues the snapshot of the computation. `schema_id` is the newest schema; None if
        it is that of the computation.

        Raises:
            ChangedMeanwhile: the change has to be computed anew.
            StorageError: what others did cannot be read.
        """
        if base.snapshot is None:
            return
        self._check_vectors_are_read(base.snapshot, schema_id)
        if base.snapshot == self._holds_at:
            return
        seen = SnapshotRef.of_optional(self._holds_at)
        window = published_after(snapshots, seen, base.snapshot)
        if not window.complete:
            raise self._conflict("snapshots have expired before they were looked at", base.snapshot)
        for snapshot in window.snapshots:
            try:
                self._follow(snapshot, manifests)
            except (NotFound, CorruptMetadata):
                # What the newest snapshot needs is read again by the new computation.
                raise self._conflict("what others did has expired", snapshot) from None
            self._holds_at = snapshot
        self._check_vectors(base.snapshot, self._vectors)

    def _follow(self, snapshot: Snapshot, manifests: ManifestStore) -> None:
        """Looks at the snapshot that follows the one up to which the premises hold."""
        entries = [entry for meta in manifests.delta(snapshot) for entry in manifests.read(meta)]
        added = [entry for entry in entries if entry.kind is FileKind.ADD]
        removed = {entry.identity for entry in entries if entry.kind is FileKind.DELETE}
        is_compaction = snapshot.commit_kind is CommitKind.COMPACT
        if is_compaction and self._keeps_rows(entries):
            self._replace(snapshot, removed, added)
            return
        gone = removed & self._read
        if gone:
            raise self._conflict("files that were read are removed", snapshot, gone)
        if added and self._may_hold(added):
            names = [entry.identity for entry in added]
            raise self._conflict("new files may hold rows that matter", snapshot, names)

    def _replace(
        self, snapshot: Snapshot, removed: set[FileIdentity], added: Sequence[ManifestEntry]
    ) -> None:
        """Puts the files of a compaction in the place of those that it has replaced."""
        gone = removed & self._changed
        if gone:
            raise self._conflict("files whose rows are changed are compacted", snapshot, gone)
        replaced = removed & self._read
        buckets = {(identity.partition, identity.bucket) for identity in replaced}
        in_place = {entry.identity for entry in added if (entry.partition, entry.bucket) in buckets}
        self._read -= replaced
        self._read |= in_place
        names = {identity.file_name for identity in replaced} & self._vectors.keys()
        if names:
            # The vectors go with their files. So this is the last snapshot that shows a change.
            self._check_vectors(self._holds_at, {name: self._vectors.pop(name) for name in names})
            self._vectors |= {identity.file_name: None for identity in in_place}

    def _keeps_rows(self, entries: Iterable[ManifestEntry]) -> bool:
        """Whether the new files of a compaction have the same rows as the files that it removes. In
        an append table, the rows of each bucket are counted. In a table with a primary key, a
        compaction merges the rows of a key as readers do, but rows may also expire.
        """
        if self._table.schema.primary_keys:
            return not self._table.options.is_set(RECORD_EXPIRE_TIME)
        entries = tuple(entries)
        rows: defaultdict[_Bucket, int] = defaultdict(int)
        buckets: dict[str, _Bucket] = {}
        for entry in entries:
            bucket = (entry.partition, entry.bucket)
            if entry.kind is FileKind.ADD:
                rows[bucket] += entry.file.row_count
            else:
                rows[bucket] -= entry.file.row_count
                buckets[entry.file.file_name] = bucket
        index = VectorIndex.of(self._table, self._holds_at)
        for name, (_, vector) in index.vectors(buckets.keys()).items():
            if vector.cardinality is None:
                return False
            rows[buckets[name]] += vector.cardinality
        return not any(rows.values())

    def _check_vectors_are_read(self, base: Snapshot, schema_id: int | None) -> None:
        """Raises `ChangedMeanwhile` if somebody has switched deletion vectors off. Java does not
        read them then.
        """
        table = self._table
        if schema_id in (None, table.schema.id) or not table.options.value(DELETION_VECTORS):
            return
        newest = SchemaStore(table.storage).get(schema_id)
        if not Options(newest.options).value(DELETION_VECTORS):
            raise self._conflict("deletion vectors are switched off", base)

    def _check_vectors(
        self, snapshot: Snapshot | None, vectors: Mapping[str, Vector | None]
    ) -> None:
        """Raises `ChangedMeanwhile` if data files have other deletion vectors at a snapshot than
        these, which are among those that must stay.
        """
        if not vectors or snapshot is None:
            return
        now = VectorIndex.of(self._table, snapshot).vectors(vectors.keys())
        before = {name: vector for name, vector in vectors.items() if vector is not None}
        if not same_vectors(self._table, before, now):
            raise self._conflict("rows of files that were read are deleted", snapshot)

    def _conflict(
        self, reason: str, snapshot: Snapshot, files: Iterable[FileIdentity] = ()
    ) -> ChangedMeanwhile:
        """The error for something that others have done since the snapshot of the computation. The
        premises do not hold any more.
        """
        self.broken = True
        read_at = 0 if self.snapshot is None else self.snapshot.id
        names = sorted(identity.file_name for identity in files)
        named = f" ({first_few(names)})" if names else ""
        return ChangedMeanwhile(
            f"the rows were read at snapshot {read_at}, and since then {reason}{named}: snapshot "
            f"{snapshot.id} is of kind {snapshot.commit_kind.value} and of user {snapshot.commit_user!r}. Nothing was "
            "changed. Do the same again on the current state.",
            snapshot=snapshot.id,
            user=snapshot.commit_user,
            files=tuple(names),
        ).of_table(self._table.location)
