"""Another engine at work on the table, as Java behaves: it believes LATEST, it checks and then
renames, and it points LATEST to its snapshot without looking.

Whatever else it does to the table takes one step: what it does wrongly in between is no matter of
this package.
"""

from __future__ import annotations

from dataclasses import replace

from paimon_stream.commit.plan import Changes, with_row_ids
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitContended
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    CommitKind,
    Snapshot,
    SnapshotId,
    encode_snapshot,
)
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.branch import is_served
from paimon_stream.table.layout import (
    LATEST_HINT,
    NameSource,
    manifest_path,
    schema_path,
    snapshot_path,
    tag_path,
)
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table
from tests.kits.commits import java_latest
from tests.simulation.actors.base import Actor, Work
from tests.simulation.catalogs import under_java_lock

TRIES = 3


class JavaCommitter(Actor):
    """Commits as Java does."""

    replaces = False
    """Whether its rename replaces a snapshot that appeared after it had checked."""

    def newest(self) -> Snapshot | None:
        """The newest snapshot as Java finds it. None if there is none, or if it has just
        vanished.
        """
        storage = self.ready().storage
        latest_id = java_latest(storage)
        return SnapshotStore(storage, self.ready().runtime).find(latest_id) if latest_id else None

    def commit(
        self,
        latest: Snapshot | None,
        table: Table,
        entries: list[ManifestEntry],
        rows: int,
        kind: CommitKind,
    ) -> Snapshot | None:
        """One attempt to publish these changes, which add so many rows. None if another commit was
        faster.
        """
        storage = self.ready().storage
        names = NameSource(self.world.ids.uuid())
        store = ManifestStore(storage)
        writer = ManifestWriter(storage, table.options, table.partition_types, table.schema.id)
        base, next_row_id = () if latest is None else store.base_and_delta(latest), None
        if self.world.tracked:
            first, id_ = (0, 1) if latest is None else (latest.next_row_id or 0, latest.id + 1)
            changes, next_row_id = with_row_ids(Changes(entries=tuple(entries)), first, id_)
            entries = list(changes.entries)
        delta = writer.write(entries, names)
        lists = names.next("manifest-list"), names.next("manifest-list")
        sizes = writer.write_list(lists[0], base), writer.write_list(lists[1], delta)
        snapshot = self._snapshot(latest, table, lists, sizes, rows, kind)
        snapshot = replace(snapshot, next_row_id=next_row_id)
        if self._renamed(snapshot):
            storage.write(LATEST_HINT, str(snapshot.id).encode())
            return snapshot
        for name in (*lists, *(one.file_name for one in delta)):
            storage.delete(manifest_path(name))
        return None

    def _snapshot(
        self,
        latest: Snapshot | None,
        table: Table,
        lists: tuple[str, str],
        sizes: tuple[int, int],
        rows: int,
        kind: CommitKind,
    ) -> Snapshot:
        return Snapshot(
            id=SnapshotId(1 if latest is None else latest.id + 1),
            schema_id=table.schema.id,
            base_manifest_list=lists[0],
            base_manifest_list_size=sizes[0],
            delta_manifest_list=lists[1],
            delta_manifest_list_size=sizes[1],
            commit_user=self.world.ids.uuid(),
            commit_identifier=BATCH_IDENTIFIER,
            commit_kind=kind,
            time_millis=self.ready().clock.now_millis(),
            total_record_count=(latest.total_record_count if latest else 0) + rows,
            delta_record_count=rows,
            index_manifest=None if latest is None else latest.index_manifest,
        )

    def _renamed(self, snapshot: Snapshot) -> bool:
        process, path = self.ready(), snapshot_path(snapshot.id)
        storage = process.storage if self.world.locks is None else process.plain
        with under_java_lock(process):
            if storage.exists(path):
                return False
            if self.replaces:
                storage.write(path, encode_snapshot(snapshot))
                return True
            if storage.put_if_absent(path, encode_snapshot(snapshot)) is PutResult.CREATED:
                return True
            if not is_served(process.storage):
                return False
            there = SnapshotStore(storage, process.runtime).find(
                snapshot.id
            )  # the server may have had it before
            return there is not None and there.nonce == snapshot.nonce


def added(message: CommitMessage) -> ManifestEntry:
    """The change that adds the only file of a message."""
    (file,) = message.new_files
    return ManifestEntry(
        kind=FileKind.ADD,
        partition=message.partition,
        bucket=message.bucket,
        total_buckets=message.total_buckets,
        file=file,
    )


class JavaWriter(JavaCommitter):
    kind = "Java writer"
    writes = True

    @property
    def exposed(self) -> bool:
        return True

    def begin(self) -> Work | None:
        if self.world.table.schema.primary_keys:
            return None
        self.doing = "a commit of Java's"
        self.ready()
        return self.work

    def work(self) -> object:
        storage, table = self.ready().storage, self.table()
        message = self.message(table, "java", None)
        for _ in range(TRIES):
            latest_id = java_latest(storage)
            latest = (
                SnapshotStore(storage, self.ready().runtime).find(latest_id) if latest_id else None
            )
            if latest_id is not None and latest is None:
                continue
            rows = message.new_files[0].row_count
            snapshot = self.commit(latest, table, [added(message)], rows, CommitKind.APPEND)
            if snapshot is not None:
                return snapshot
        raise CommitContended("Java gives up")


class JavaWithoutLock(JavaWriter):
    """On a store whose rename replaces, and without a lock."""

    kind = "Java writer without a lock"
    replaces = True


class JavaUnderLock(JavaWithoutLock):
    """The same, under the lock of a JDBC or Hive catalog."""

    kind = "Java writer under the lock"


class JavaKeeper(Actor):
    """Java's expiry, rollback and tags, each in one step."""

    kind = "Java keeper"
    by_server = True
    may_expire = True
    may_roll_back = True
    whole = True

    @property
    def takes_away(self) -> bool:
        """Whether it rolls the table back this time."""
        return self.doing.startswith("roll_back")

    def begin(self) -> Work:
        work = self.world.choices.pick((self.expire, self.tag, self.roll_back))
        self.doing = f"{work.__name__} of Java's"
        self.ready()
        return work

    def expire(self) -> object:
        process = self.ready()
        return expire_snapshots(
            replace(self.table(), storage=process.storage),
            retain_max=3,
            retain_min=1,
            protect_streams=False,
            runtime=process.runtime,
        )

    def tag(self) -> None:
        head = self.world.truth.head
        if head is not None:
            self.world.serial += 1
            name = f"java{self.world.serial}"
            self.ready().storage.write(tag_path(name), encode_snapshot(head.snapshot))

    def roll_back(self) -> None:
        storage, truth = self.ready().storage, self.world.truth
        line = [one for one in sorted(truth.there) if one not in truth.beside]
        if len(line) < 3:
            return
        target = line[-2]
        storage.write(LATEST_HINT, str(target).encode())
        for one in sorted(truth.there, reverse=True):
            if one > target:
                storage.delete(snapshot_path(one))
        for path, (state, _) in sorted(truth.tags.items()):
            if state.id > target:
                storage.delete(path)


class JavaOverwriter(Actor):
    """Java replaces the rows of a table, in one step. It looks for conflicts as this package
    does.
    """

    kind = "Java overwriter"
    writes = True
    whole = True

    def begin(self) -> Work | None:
        self.doing = "an overwrite of Java's"
        self.ready()
        return None if self.world.keyed else self.work

    def work(self) -> object:
        process, table = self.ready(), self.table()
        writer = TableCommit(
            replace(table, storage=process.storage), "java", runtime=process.runtime
        )
        return writer.overwrite({}, (self.message(table, "java", None),))


class Brancher(Actor):
    """Makes a branch of the newest snapshot, and deletes it again."""

    kind = "brancher"
    whole = True

    def begin(self) -> Work:
        self.ready()
        branches = sorted(self.world.truth.branches)
        self.doing = "deleting a branch" if branches else "a branch"
        return self.delete if branches else self.make

    def make(self) -> None:
        head, storage = self.world.truth.head, self.ready().storage
        if head is None or head.files - self.world.truth.paths:
            return
        self.world.serial += 1
        folder = f"branch/branch-b{self.world.serial}"
        storage.write(f"{folder}/{schema_path(0)}", storage.read(schema_path(0)))
        storage.write(f"{folder}/{snapshot_path(head.id)}", encode_snapshot(replace(head.snapshot)))

    def delete(self) -> None:
        storage = self.ready().storage
        for path in sorted(self.world.truth.paths):
            if path.startswith("branch/"):
                storage.delete(path)
