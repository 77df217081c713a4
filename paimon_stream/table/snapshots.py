"""Finds, reads and publishes the snapshots of a table, and handles the hints LATEST and EARLIEST
(format.md §1.3, §3).

Hints are read and written by stricter rules than R2.1 and R2.2 of semantics.md. A hint saves a
listing only if it is proven to name the newest snapshot. It is no proof that the named snapshot
exists and the next one does not, because a paused writer may have created an expired snapshot again
and pointed LATEST to it. All snapshots are listed when a run begins, when a hint is not proven, and
every 256th time.

LATEST is pointed to a snapshot only after checking that the snapshot exists and is the newest. The
exception is a committer that looks at the neighbours of its new snapshot in the same trip. If the
neighbours do not prove the hint, the committer removes it again, because Java trusts a hint without
checking.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import ClassVar, Final, cast

from paimon_stream.errors import CorruptMetadata, FormatError, StorageError
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.snapshot_json import (
    Snapshot,
    SnapshotRef,
    decode_snapshot,
    encode_snapshot,
)
from paimon_stream.runtime import Clock, Runtime, system
from paimon_stream.storage.base import PutResult, Storage, read_if_there
from paimon_stream.storage.together import AT_ONCE, tally_of
from paimon_stream.table import layout

_LOG = logging.getLogger(__name__)
_PARSE_ATTEMPTS: Final = 10
_PARSE_WAIT_SECONDS: Final = 0.2
_LATEST_ATTEMPTS: Final = 10
_HINT_ATTEMPTS: Final = 5
_LISTED_EVERY: Final = 256
"""After this many trusted hints in a row, the snapshots are listed anyway."""
_SAMPLES: Final = 8
"""How many snapshots `read_samples` reads at most."""
_REMEMBERED: Final = 1024
"""How many snapshots a store remembers by their nonces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The snapshots with ids after one id and up to another id.

    Attributes:
        snapshots: the snapshots, ascending. If some are missing, only those above the newest gap.
        complete: whether no snapshot is missing; None if that cannot be told.
    """

    snapshots: tuple[Snapshot, ...]
    complete: bool | None


@dataclass(frozen=True, slots=True)
class _KnownNewest:
    """What a `SnapshotStore` knows of the table's newest snapshot.

    Attributes:
        newest: the newest known snapshot; None before the first listing, and in an empty table.
        times: how often the newest snapshot was proven since the last listing.
        hint_first: whether the hint must be looked at before it counts again.
    """

    newest: Snapshot | None = None
    times: int = 0
    hint_first: bool = False


class SnapshotStore:
    """The snapshot files of one table. A file is read at each request, but parsed only if its bytes
    differ from those of the previous read. What the store remembers of the newest snapshot proves
    later hints.
    """

    folder: ClassVar[str] = layout.SNAPSHOT_FOLDER

    def __init__(self, storage: Storage, runtime: Runtime | None = None) -> None:
        self.storage = storage
        self.location = storage.location
        self._clock = (runtime or system()).clock
        self._reads_in_turn = tally_of(storage) is None
        self._parsed: tuple[bytes, Snapshot] | None = None
        """The bytes of the last file that was read, and what they say."""
        self._known_newest = _KnownNewest()
        self._reported: int | None = None
        """The stale hint that a warning has named."""
        self._to_sample = range(0)
        """The ids without a gap, as of the last listing, until `read_samples` has read some of
        them.
        """
        self._known: dict[int, SnapshotRef] = {}
        """By id, snapshots that were part of the table's lineage."""

    # -- which there are --------------------------------------------------------------------------
    def ids(self) -> list[int]:
        """The ids of all snapshots that exist, ascending, by listing the folder."""
        prefix = f"{self.folder}-"
        names = self.storage.list_names(self.folder, prefix)
        ids = [layout.id_in_name(name, prefix) for name in names]
        return sorted(snapshot_id for snapshot_id in ids if snapshot_id is not None)

    def path(self, snapshot_id: int) -> str:
        """The path of a snapshot's file."""
        return f"{self.folder}/{self.folder}-{snapshot_id}"

    def latest_id(self) -> int | None:
        """The id of the newest snapshot, None in an empty table. Raises what `latest` raises."""
        newest = self.latest()
        return None if newest is None else newest.id

    def latest(self) -> Snapshot | None:
        """The newest snapshot; None in an empty table. It is the snapshot that LATEST names if that
        is proven, and otherwise the one with the highest id in a listing. The first call lists the
        snapshots, and so does every 256th. While nobody else commits, the newest known snapshot is
        still the newest, and no hint is needed. Raises `CorruptMetadata`, `UnknownVersion`,
        `StorageError`.
        """
        return self._newest_if_proven() or self._listed()

    def record(self, snapshot: Snapshot, content: bytes) -> None:
        """Records a snapshot that is certainly part of the table. While the snapshot exists, it
        proves later hints. `content` is the encoded form of the snapshot, so that it need not be
        parsed again.
        """
        self._parsed = (content, snapshot)
        newest = self._known_newest.newest
        if newest is None or snapshot.id > newest.id:
            self._known_newest = replace(self._known_newest, newest=snapshot)
        self._remember(snapshot)

    def look_at_hint(self) -> None:
        """Makes the next `latest` look at the hint, because ids around the newest known one have
        changed.
        """
        self._known_newest = replace(self._known_newest, hint_first=True)

    def read_samples(self) -> None:
        """Reads a few evenly spaced snapshots of the lineage that `latest` listed last, once per
        listing. These samples can prove a rollback later (`rolled_back_to`). Raises `StorageError`.
        """
        ids = self._to_sample
        if not ids:
            return
        step = -(-len(ids) // _SAMPLES)  # rounded up, so that at most `_SAMPLES` are read
        reads = [partial(self._if_readable, snapshot_id) for snapshot_id in ids[::step]]
        for snapshot in self.storage.together(reads):
            if snapshot is not None:
                self._remember(snapshot)
        self._to_sample = range(0)

    def _if_readable(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot; None if it is missing or broken, because such a snapshot proves nothing."""
        try:
            return self.find(snapshot_id)
        except FormatError:
            return None

    def rolled_back_to(self, left: Iterable[int]) -> bool:
        """Whether the remaining snapshots prove that a missing snapshot above them was rolled back.

        Expiry removes the oldest snapshots first, so a snapshot of the lineage that still exists
        would have expired before the missing one. The snapshot that exists is identified by its
        nonce, known from an earlier read or from a tag. Its id alone proves nothing, because a
        paused writer may have created that id again. Raises `FormatError`, `StorageError`.

        Args:
            left: the ids of the remaining snapshots. They were listed after the missing snapshot
                was looked for.
        """
        present = set(left)
        known: Iterable[Snapshot | SnapshotRef] = chain(self._known.values(), self.tags())
        return any(self.stands(snapshot) for snapshot in known if snapshot.id in present)

    def _newest_if_proven(self) -> Snapshot | None:
        """The newest known snapshot, or the one that LATEST names, if that snapshot is proven to be
        the newest. None if a listing must decide.

        The proof: expiry removes the oldest snapshot first. So while a snapshot that is known to be
        part of the table exists, all later ones exist, too, and above a missing id there are none.
        """
        known = self._known_newest.newest
        if known is None or self._known_newest.times >= _LISTED_EVERY:
            return None
        if not self._known_newest.hint_first:
            newest = self._proven(known.id, known)
            if newest is not None:
                return newest
        hint = self._hint(layout.LATEST_HINT)
        if hint is None or hint < known.id:
            return None
        return self._proven(hint, known)

    def _proven(self, newest_id: int, known: Snapshot) -> Snapshot | None:
        """The snapshot with that id, if no snapshot follows it, and if the known snapshot, which is
        not above it, still exists. If the storage runs requests one after the other, the following
        snapshot is looked for first.
        """
        ids = dict.fromkeys((newest_id, known.id))
        reads = [partial(self.find, snapshot_id) for snapshot_id in ids]
        follows, *snapshots = self.storage.together([partial(self.exists, newest_id + 1), *reads])
        newest = snapshots[0]
        still_known = snapshots[-1]
        if follows or newest is None or still_known is None or still_known.nonce != known.nonce:
            return None
        self._known_newest = _KnownNewest(newest, self._known_newest.times + 1)
        self._remember(newest)
        return cast("Snapshot", newest)

    def _listed(self) -> Snapshot | None:
        hint, ids = self.storage.together([partial(self._hint, layout.LATEST_HINT), self.ids])
        for attempt in range(_LATEST_ATTEMPTS):
            # The hint may have been written after the first listing, because both requests ran at
            # the same time.
            if attempt or (hint is not None and not ids):
                ids = self.ids()
            if hint is not None and not ids:
                self._require_no_hint()
            newest = self.find(ids[-1]) if ids else None
            if newest is None and ids:
                continue  # it has expired or was rolled back since the listing
            self._known_newest = _KnownNewest(newest)
            self._to_sample = _unbroken(ids)
            if newest is not None:
                self._remember(newest)
            self._report_stale(hint, ids)
            return newest
        raise CorruptMetadata(
            f"{self._full(layout.SNAPSHOT_FOLDER)} lists {layout.snapshot_path(ids[-1])}, but it cannot be read: the "
            "storage's listing and its files disagree. Check whether something keeps deleting snapshots.",
            path=self._full(layout.snapshot_path(ids[-1])),
        )

    def _require_no_hint(self) -> None:
        """Raises `CorruptMetadata` if LATEST exists in a table without snapshots. LATEST is written
        after its snapshot and removed before it, so its snapshot is lost. A commit would begin the
        table again, without its rows.
        """
        hint = self._hint(layout.LATEST_HINT)
        if hint is not None:
            path = self._full(layout.snapshot_path(hint))
            raise CorruptMetadata(
                f"{self._full(layout.LATEST_HINT)} names snapshot {hint}, but the table has no snapshot: something "
                f"deleted {path}, and the table's rows cannot be read. Nothing was written. Restore that "
                "file from a backup, or roll the table back to a tag. If the table is to begin again without "
                "rows, remove the hint with 'paimon-stream repair-hints --yes'.",
                path=path,
                snapshot=hint,
            )

    def _report_stale(self, hint: int | None, ids: list[int]) -> None:
        """Warns once if LATEST names an old snapshot, because other engines trust it. `ids` may
        lack snapshots that were published while they were listed, so the snapshot after the hint is
        looked for.
        """
        if hint is None or hint not in ids or hint == ids[-1] or hint == self._reported:
            return
        # If the snapshot after the hint exists, other engines find the newest snapshot from the
        # hint.
        if hint + 1 in ids or self.exists(hint + 1):
            return
        self._reported = hint
        _LOG.warning(
            "%s names snapshot %d, but snapshot %d is the newest: a writer that was paused created an "
            "expired snapshot again, or a rollback was killed. Other engines may read and write the old one. "
            "The next commit here corrects it, and so does 'paimon-stream repair-hints --yes'.",
            self._full(layout.LATEST_HINT),
            hint,
            ids[-1],
        )

    def earliest_id(self) -> int | None:
        """The id of the oldest snapshot that exists; None in an empty table."""
        hint = self._hint(layout.EARLIEST_HINT)
        if hint is not None and self.exists(hint):
            return hint
        ids = self.ids()
        return ids[0] if ids else None

    # -- reading ----------------------------------------------------------------------------------
    def get(self, snapshot_id: int) -> Snapshot:
        """The snapshot with that id. Raises `CorruptMetadata` if that snapshot is missing or
        broken.
        """
        snapshot = self.find(snapshot_id)
        if snapshot is None:
            path = self._full(layout.snapshot_path(snapshot_id))
            raise CorruptMetadata(
                f"Snapshot {snapshot_id} does not exist ({path}): it expired, was rolled back, or never existed. Take "
                "one that exists, and keep snapshots longer (snapshot.time-retained) if it was needed.",
                path=path,
                snapshot=snapshot_id,
            )
        return snapshot

    def find(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot with that id, None if there is no such file. Raises `UnknownVersion`,
        `StorageError`, and `CorruptMetadata` if for 2 seconds the file does not parse or holds
        another id (`when_whole`).
        """
        path = self._full(self.path(snapshot_id))

        def look() -> Snapshot | None:
            data = self.raw(snapshot_id)
            snapshot = None if data is None else self._decoded(data, path)
            if snapshot is not None and snapshot.id != snapshot_id:
                raise CorruptMetadata(
                    f"{path} holds snapshot {snapshot.id}: the file was copied or renamed. "
                    "Restore the right one, or roll the table back to a snapshot below it.",
                    path=path,
                    snapshot=snapshot_id,
                )
            return snapshot

        return when_whole(look, self._clock)

    def raw(self, snapshot_id: int) -> bytes | None:
        """The bytes of the snapshot's file, None if there is none."""
        return read_if_there(self.storage.read, self.path(snapshot_id), MOST_JSON)

    def exists(self, snapshot_id: int) -> bool:
        """Whether the snapshot's file exists."""
        return self.storage.exists(self.path(snapshot_id))

    def stands(self, snapshot: Snapshot | SnapshotRef) -> bool:
        """Whether this very snapshot exists. Another snapshot with the same id does not count.
        Raises what `find` raises.
        """
        stored = self.find(snapshot.id)
        return stored is not None and stored.nonce == snapshot.nonce

    def walk_down(self, newest: int | Snapshot) -> Iterator[Snapshot]:
        """The snapshots from `newest`, a snapshot or an id, downwards, up to the first missing one.
        `newest` is the newest snapshot, or one that is known to be part of the table. A snapshot
        that the caller holds is not read again: an engine without a lock may have replaced its
        file, and then the walk would begin at another snapshot.
        """
        if isinstance(newest, Snapshot):
            yield newest
            from_id = newest.id - 1
        else:
            from_id = newest
        count = 1  # many callers need only a few snapshots, so the reads at once begin with one
        while from_id > 0:
            ids = range(from_id, max(0, from_id - count), -1)
            reads = [partial(self.find, snapshot_id) for snapshot_id in ids]
            for snapshot in self.storage.together(reads):
                if snapshot is None:
                    return
                self._remember(snapshot)
                yield snapshot
            from_id -= count
            count = 1 if self._reads_in_turn else min(2 * count, AT_ONCE)

    def window(self, after: int, upto: int | Snapshot) -> Window:
        """The snapshots with ids in (after, upto], read from the newest down, because expiry
        removes the oldest snapshots first. As in `walk_down`, a snapshot that the caller holds is
        not read again.
        """
        last_id = upto.id if isinstance(upto, Snapshot) else upto
        snapshots: list[Snapshot] = []
        for snapshot in self.walk_down(upto):
            if snapshot.id <= after:
                break
            snapshots.append(snapshot)
            if snapshot.id == after + 1:
                break
        complete = len(snapshots) == max(0, last_id - after)
        return Window(snapshots=tuple(reversed(snapshots)), complete=complete)

    # -- writing ----------------------------------------------------------------------------------
    def create_snapshot(self, snapshot: Snapshot, content: bytes | None = None) -> PutResult:
        """Creates the snapshot's file atomically. `content` is its encoded form, if known. EXISTS
        means that another commit, or an earlier try of this commit, was first; the nonce shows
        which. Raises `StorageError`.
        """
        return self.storage.put_if_absent(
            self.path(snapshot.id), content or encode_snapshot(snapshot)
        )

    def point_latest(self, snapshot_id: int) -> None:
        """Points LATEST to a snapshot that was just published, without any check. At the same time
        or later, the caller checks whether this snapshot is the newest, and calls `correct_latest`
        if it is not.
        """
        self.storage.write_hint(layout.LATEST_HINT, str(snapshot_id).encode())

    def forget_latest(self) -> None:
        """Removes LATEST. Without it, every engine lists the snapshots. Raises `StorageError`."""
        self.storage.delete(layout.LATEST_HINT)

    def correct_latest(self, pointed_to: int, same_table: Callable[[], bool]) -> None:
        """Points LATEST to the newest snapshot of a listing. A table that was created anew
        meanwhile may have no snapshot, and then LATEST is removed. Raises `StorageError`.

        Args:
            pointed_to: the id to which LATEST was pointed before.
            same_table: whether the table is still the one that the caller writes to.
        """
        ids = self.ids()
        if ids:
            self.write_latest_hint(ids[-1])
        elif self._hint(layout.LATEST_HINT) == pointed_to and not same_table():
            self.storage.delete(layout.LATEST_HINT)

    def write_latest_hint(self, snapshot_id: int) -> bool:
        """Points LATEST to the snapshot, unless the snapshot is gone or there is a newer one
        (semantics.md R2.2). Returns whether LATEST was written. A pause between the look and the
        write can make the hint stale. So after the write, the snapshots are looked at once more,
        and LATEST is corrected if necessary. Raises `StorageError`, which does no harm. The hint is
        not synced to the disk, but the put of the next snapshot syncs the folder. So after a
        machine stops, the hint is at most one snapshot behind, or empty. Readers can handle both
        (R2.1).
        """
        if not self.exists(snapshot_id) or self.exists(snapshot_id + 1):
            return False
        present = self._hint(layout.LATEST_HINT)
        if present is not None and present > snapshot_id and self.exists(present):
            return False
        for _ in range(_HINT_ATTEMPTS):
            self.point_latest(snapshot_id)
            if self.exists(snapshot_id) and not self.exists(snapshot_id + 1):
                break
            ids = self.ids()
            if not ids:
                break
            snapshot_id = ids[-1]
        return True

    def remove_if_equal(self, snapshot_id: int, data: bytes) -> bool:
        """Deletes the snapshot's file if it holds exactly these bytes. Returns whether the file was
        deleted. It is used only for a snapshot of this package that is outside the table's lineage
        (exactly-once.md §5).
        """
        if self.raw(snapshot_id) != data:
            return False
        self.storage.delete(layout.snapshot_path(snapshot_id))
        return True

    # -- within -----------------------------------------------------------------------------------
    def _hint(self, path: str) -> int | None:
        """The id in a hint file; None if anything is wrong with the file, because it is only a
        hint.
        """
        try:
            text = layout.read_hint(self.storage, path)
        except StorageError:
            return None
        if text is None:
            return None
        return layout.id_in_name(text.strip(), "") or None  # no snapshot has the id 0

    def _remember(self, snapshot: Snapshot) -> None:
        """Remembers a snapshot of the table's lineage. If too many snapshots are remembered, every
        second one is forgotten.
        """
        self._known[snapshot.id] = SnapshotRef.of(snapshot)
        if len(self._known) > _REMEMBERED:
            self._known = {
                snapshot_id: self._known[snapshot_id] for snapshot_id in sorted(self._known)[::2]
            }

    def tags(self) -> Iterator[Snapshot]:
        """The snapshots of all tags and pins, read one after the other. Raises `CorruptMetadata`,
        `UnknownVersion`, `StorageError`."""
        for stat in self.storage.list_files(layout.TAG_FOLDER, "tag-"):
            data = read_if_there(self.storage.read, stat.path, MOST_JSON)
            if data is not None:  # if it is gone, it was deleted since the listing
                yield decode_snapshot(data, stat.path)

    def _decoded(self, data: bytes, path: str) -> Snapshot:
        parsed = self._parsed
        if parsed is None or parsed[0] != data:
            parsed = (data, decode_snapshot(data, path))
            self._parsed = parsed  # bytes and snapshot at once, for several threads
        return parsed[1]

    def _full(self, path: str) -> str:
        return f"{self.location}/{path}"


def when_whole(look: Callable[[], Snapshot | None], clock: Clock) -> Snapshot | None:
    """The result of `look`, which reads a snapshot's file. On a storage without atomic writes, a
    file that does not parse may be half written. So `look` is repeated for 2 seconds, as Java does
    (semantics.md §2.4).
    """
    for _ in range(_PARSE_ATTEMPTS - 1):
        try:
            return look()
        except CorruptMetadata:
            clock.sleep(_PARSE_WAIT_SECONDS)
    return look()


def _unbroken(ids: list[int]) -> range:
    """The longest run of ids that has no gap and ends with the highest id; empty if there are no
    ids.
    """
    if not ids:
        return range(0)
    present = set(ids)
    lowest = ids[-1]
    while lowest - 1 in present:
        lowest -= 1
    return range(lowest, ids[-1] + 1)
