"""Notes of snapshots whose expiry has begun (`_paimon_stream/expiring.<id>`).

A note holds the content of the snapshot's file, and names the next snapshot. It exists until the
files that only the expiring snapshot needs are deleted. The next run finds the note of a run that
was killed, and finishes its work. `expire_run.py` has the order of the steps. The class `Remover`
deletes files and counts them by kind.

Invariants:

- A note is acted upon only if the history is still the one in which it was written: its snapshot is
  gone, the following snapshot exists with the same nonce, and no older snapshot exists. A note is
  also acted upon if the following snapshot has such a note, because snapshots expire in groups.
  Otherwise the files stay as orphans. That happens after a rollback, or if another engine has
  expired further snapshots.
- While a note is younger than five minutes, its expiry may be at work. In this time, no rollback to
  the noted snapshot or a lower one begins. A note whose time lies more than five minutes in the
  future is not young: the clock was set back, or the file is a copy.
- Nothing relies on a note. A note may be missing, because the disk was full or because the machine
  stopped before it was durable. In that case, the files of a run that was killed stay as orphans.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from paimon_stream.errors import (
    CorruptMetadata,
    PaimonStreamError,
    StorageError,
    Unavailable,
    UnknownVersion,
)
from paimon_stream.format.json_text import (
    MOST_JSON,
    encode_checksummed,
    reading_checksummed,
)
from paimon_stream.format.snapshot_json import (
    Snapshot,
    SnapshotRef,
    decode_snapshot,
    encode_snapshot,
)
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.table.layout import OWN_FOLDER, id_in_name
from paimon_stream.table.snapshots import SnapshotStore

_LOG = logging.getLogger(__name__)
_KIND: Final = "expiry"
_PREFIX: Final = "expiring."
_OLDER_PREFIX: Final = "expiring-"
"""The prefix in earlier builds. The name of a commit user's folder may also begin with it."""
_FINISHED_BY_MILLIS: Final = 3_600_000
"""How long a note of a newer release counts."""
_YOUNG_MILLIS: Final = 300_000
"""How long an expiry may be at work after its note was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenNote:
    """The file of a snapshot's note.

    Attributes:
        snapshot_id: the id of the snapshot.
        path: the file.
        millis: when the note was written, in epoch milliseconds by the clock of the storage.
    """

    snapshot_id: int
    path: str
    millis: int


class _Note(NamedTuple):
    """The content of a note.

    Attributes:
        snapshot: the snapshot that expires.
        following: the snapshot that follows it.
    """

    snapshot: Snapshot
    following: SnapshotRef


class ExpiringNotes:
    """The notes of the expiring snapshots of one table."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def write(self, oldest: Snapshot, following: Snapshot) -> None:
        """Records that the expiry of `oldest` begins. If the note cannot be written, the failure is
        logged, and the expiry goes on without a note, because files must be deleted even on a full
        disk.
        """
        body = {
            "snapshot": encode_snapshot(oldest).decode(),
            "following": SnapshotRef.of(following).node(),
        }
        try:
            self._storage.write_hint(note_path(oldest.id), encode_checksummed(_KIND, body))
        except StorageError as error:
            _LOG.warning(
                "%s: snapshot %d expires without a note, and leaves orphans if the run is killed: "
                "%s",
                self._storage.location,
                oldest.id,
                error,
            )

    def any_begun(self, snapshots: SnapshotStore, now_millis: int) -> bool:
        """Whether an expiry may be deleting files, or was interrupted while it deleted files. As
        long as a noted snapshot exists, nothing was deleted for its note. The expirer reads the
        tags only after the snapshot is gone, so it sees every tag that exists before this call. A
        note of a newer release cannot be read. Such a note counts for an hour, which is longer than
        any expiry of one snapshot takes.

        Args:
            snapshots: the snapshots of the table.
            now_millis: the time by the clock of the storage, in epoch milliseconds.

        Raises:
            StorageError: the storage fails.
        """
        for note in self.written():
            try:
                content = self._read(note.path)
                if content is not None:
                    is_gone = not snapshots.stands(content.snapshot)
                    if is_gone:
                        return True
            except UnknownVersion:
                if abs(now_millis - note.millis) < _FINISHED_BY_MILLIS:
                    return True
            except CorruptMetadata:
                return True  # in doubt; the next expiry removes this note
        return False

    def young_from(self, snapshot_id: int, now_millis: int) -> int | None:
        """The id of a snapshot, `snapshot_id` or a higher one, that may be expiring now; None if
        there is none. A snapshot counts if its note is younger than five minutes at `now_millis`,
        by the clock of the storage. Raises `StorageError`.
        """
        for note in self.written():
            if note.snapshot_id >= snapshot_id and is_young(note.millis, now_millis):
                return note.snapshot_id
        return None

    def has(self, snapshot_id: int) -> bool:
        """Whether this snapshot has a note. Raises `StorageError`."""
        return self._storage.exists(note_path(snapshot_id))

    def drop(self, *snapshot_ids: int) -> None:
        """Removes notes that nobody needs. A failure is logged, and the next expiry removes the
        notes.
        """
        for path, error in self._storage.delete_all(list(map(note_path, snapshot_ids))).items():
            _LOG.warning("%s: the note %s stays: %s", self._storage.location, path, error)

    def unfinished(self, snapshots: SnapshotStore) -> Iterator[tuple[list[Snapshot], Snapshot]]:
        """The noted snapshots whose own files are gone and whose expiry can be finished, ascending,
        in lists of consecutive snapshots. Each list comes with the snapshot that follows the list.
        Notes that can no longer be acted upon are removed. Raises `StorageError`, and
        `CorruptMetadata` for a noted snapshot that exists and cannot be read.
        """
        notes = self._notes_of_gone(snapshots)
        while notes:
            oldest, reference = notes.pop(min(notes))
            consecutive = [oldest]
            while reference.id in notes and notes[reference.id].snapshot.nonce == reference.nonce:
                next_snapshot, reference = notes.pop(reference.id)
                consecutive.append(next_snapshot)
            following = snapshots.find(reference.id)
            if following is None or following.nonce != reference.nonce:
                self._give_up_all(consecutive, f"snapshot {reference.id}, which followed, is gone")
            elif snapshots.ids()[0] < reference.id:
                self._give_up_all(consecutive, f"there are snapshots below {reference.id} again")
            else:
                yield consecutive, following

    def _notes_of_gone(self, snapshots: SnapshotStore) -> dict[int, _Note]:
        """The notes of snapshots whose own files are gone, by the ids of the snapshots."""
        notes: dict[int, _Note] = {}
        written = list(self.written())
        self._rename_older(written)
        for snapshot_id in sorted({note.snapshot_id for note in written}):
            try:
                content = self._read(note_path(snapshot_id))
            except UnknownVersion:
                continue  # a newer release wrote it and will finish it
            except CorruptMetadata as error:
                self._give_up(snapshot_id, str(error))
                continue
            # None means that another run has finished the expiry. If the snapshot stands, its
            # expiry has not begun, or the table was rolled back to the snapshot. In both cases it
            # expires like any other.
            if content is not None and not snapshots.stands(content.snapshot):
                notes[snapshot_id] = content
        return notes

    def written(self) -> Iterator[WrittenNote]:
        """All notes, also those of earlier releases. Raises `StorageError`."""
        for stat in self._storage.list_files(OWN_FOLDER, "expiring"):
            for prefix in (_PREFIX, _OLDER_PREFIX):
                snapshot_id = id_in_name(stat.name, prefix)
                if snapshot_id is not None:
                    yield WrittenNote(
                        snapshot_id=snapshot_id, path=stat.path, millis=stat.modified_millis
                    )

    def _rename_older(self, written: Sequence[WrittenNote]) -> None:
        """Renames the notes of earlier releases to the names under which this release reads and
        drops notes. On a full disk, a later run does that.
        """
        present = {note.path for note in written}
        for note in written:
            path = note_path(note.snapshot_id)
            if note.path == path:
                continue
            data = read_if_there(self._storage.read, note.path)
            # An earlier run may have copied the note, and ended before it deleted the older file.
            is_copied = path in present
            if data is not None and not is_copied:
                try:
                    self._storage.write_hint(path, data)
                except StorageError as error:
                    _LOG.warning(
                        "%s: the note %s of an earlier release waits: %s",
                        self._storage.location,
                        note.path,
                        error,
                    )
                    continue
            self._storage.delete(note.path)

    def _read(self, path: str) -> _Note | None:
        """The content of a note; None if there is no note at `path`."""
        data = read_if_there(self._storage.read, path, MOST_JSON)
        if data is None:
            return None
        advice = "Remove it; its files stay as orphans."
        with reading_checksummed(_KIND, data, path, "a note of an expiry", advice) as body:
            following = SnapshotRef.of_node(body["following"])
            snapshot = decode_snapshot(str(body["snapshot"]).encode(), path)
            return _Note(snapshot, following)

    def _give_up_all(self, snapshots: Sequence[Snapshot], problem: str) -> None:
        for snapshot in snapshots:
            self._give_up(snapshot.id, problem)

    def _give_up(self, snapshot_id: int, problem: str) -> None:
        """Removes a note that cannot be acted upon, and logs the `problem`."""
        _LOG.warning(
            "%s: the expiry of snapshot %d was cut short, and its files stay as orphans: %s. "
            "remove_orphan_files removes them.",
            self._storage.location,
            snapshot_id,
            problem,
        )
        self._storage.delete(note_path(snapshot_id))


def is_young(millis: int, now_millis: int) -> bool:
    """Whether an expiry may still be at work at `now_millis`, if its note was written at `millis`.
    Both times are in epoch milliseconds.
    """
    return abs(now_millis - millis) < _YOUNG_MILLIS


def note_path(snapshot_id: int) -> str:
    """The path of the note of a snapshot."""
    return f"{OWN_FOLDER}/{_PREFIX}{snapshot_id}"


_TOGETHER: Final = 64
"""From this many files on, several threads delete them on a disk. Other storages do so themselves."""


@dataclass(slots=True)
class Remover:
    """Deletes files of one table. A file that cannot be deleted stays as an orphan, with a warning.
    A storage that does not answer (`Unavailable`) ends the work, and the next run continues it.

    Attributes:
        storage: the storage of the table.
        dry_run: whether files are only counted.
        threads: the number of threads that delete files, if there are many.
        removed: how many files were deleted, by kind (`data`, `manifest`, …).
        left: how many files could not be deleted.
        impossible: how many files were not deleted because they cannot exist in the table.
    """

    storage: Storage
    dry_run: bool = False
    threads: int = 8
    removed: Counter[str] = field(default_factory=Counter)
    left: int = 0
    impossible: int = 0

    def remove(self, kind: str, paths: Iterable[str]) -> None:
        """Deletes the files, in any order. It is not an error if a file is missing. Raises
        `Unavailable`.
        """
        wanted = list(paths)
        if self.dry_run:
            self.removed[kind] += len(wanted)
        elif len(wanted) < _TOGETHER or self.threads < 2 or self.storage.answers_late:
            self.removed[kind] += self._delete(wanted)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                self.removed[kind] += sum(pool.map(self._delete, in_groups(wanted, _TOGETHER)))

    def pass_over(self, error: PaimonStreamError) -> None:
        """Counts a file that cannot exist in the table, because its entry has an impossible name,
        bucket or partition. Such a file is not deleted.
        """
        self.impossible += 1
        _LOG.warning("%s: passed over a file that cannot exist: %s", self.storage.location, error)

    def remove_first(self, kind: str, path: str) -> None:
        """Deletes a file that must be gone before anything else may be deleted. Raises any
        `StorageError`.
        """
        if not self.dry_run:
            self.storage.delete(path)
        self.removed[kind] += 1

    def remove_uncounted(self, path: str) -> None:
        """Deletes a file, or a folder if it is empty, without counting it in the report."""
        if not self.dry_run:
            self._delete([path])

    def _delete(self, paths: Sequence[str]) -> int:
        """Deletes the files. Returns how many of them are gone."""
        failed = self.storage.delete_all(paths)
        for path, error in failed.items():
            if isinstance(error, Unavailable):
                raise error
            self.left += 1
            _LOG.warning(
                "%s: could not delete %s, it stays as an orphan: %s",
                self.storage.location,
                path,
                error,
            )
        return len(paths) - len(failed)
