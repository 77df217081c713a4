"""The first half of the expiry of a group of snapshots. It writes the notes and changelogs, and
deletes the snapshots' own files. After that nobody can tag the snapshots, and `expire_run.py`
removes the files that only they needed.

Invariants:

- The order of the snapshots' own files matters: readers conclude from a snapshot that exists that
  all later ones exist. So these files are deleted one after the other. The look before a deletion
  is sent together with the previous deletion. A look that began more than a minute ago is repeated.
- No snapshot begins to expire while a rollback has a pin (`pins.py`), or after the newest snapshot,
  from which the range was computed, is gone.
- All notes are written before the first look at the pins. A rollback writes its pin first, and does
  not begin while a note of its target, or of a later snapshot, is younger than five minutes. So
  either the rollback sees the notes, or the look sees the pin. On a full disk there is no note. In
  that case two protections remain: the rollback restores its target before each deletion, and the
  last own file is put back.
- If a rollback to the last snapshot of a group ended just before that snapshot's own file was
  deleted, the file is put back (`_was_newest`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from paimon_stream.format.snapshot_json import Snapshot, encode_snapshot
from paimon_stream.maintenance.expiring import ExpiringNotes, Remover
from paimon_stream.maintenance.kept_files import KeptFiles
from paimon_stream.maintenance.needed import ChangelogStore
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.runtime import Clock
from paimon_stream.storage.read_ahead import ReadAhead
from paimon_stream.table.layout import CHANGELOG_FOLDER, manifest_path, snapshot_path
from paimon_stream.table.removals import read_removals
from paimon_stream.table.snapshots import SnapshotStore

_FRESH_SECONDS: Final = 60
"""How long ago a look may have begun. Far less than the five minutes of notes (`expiring.py`)."""

_READERS: Final = 4
"""How many threads read the lists of a group while its own files are deleted. In a store, where
that is one trip after another, expiry takes 1.8 times as long without them (500 snapshots, 25 ms
for each request); on a disk there is nothing to read ahead.
"""

_SMALL: Final = 1 << 16
"""The greatest size in bytes of a list that is read while the group's own files are deleted."""


class Begun(NamedTuple):
    """How the first half of a group's expiry ended.

    Attributes:
        gone_count: how many snapshots of the group are gone.
        removed: the snapshots that this run removed. Another expirer removed the others.
        stopped: whether the history changed, or a rollback is under way.
    """

    gone_count: int
    removed: list[Snapshot]
    stopped: bool = False


class _Looked(NamedTuple):
    """The result of the check before a snapshot's file is deleted.

    Attributes:
        is_history: true if no rollback is under way, and none has changed the history.
        is_there: whether the snapshot to delete exists.
        at: when the check began, by the monotonic clock, in seconds.
    """

    is_history: bool
    is_there: bool
    at: float


class OwnFiles:
    """Removes the own files of snapshots that expire, in one run."""

    def __init__(
        self,
        snapshots: SnapshotStore,
        remover: Remover,
        kept: KeptFiles,
        ahead: ReadAhead,
        lists: Mapping[str, Sequence[str]],
        clock: Clock,
        changelogs: ChangelogStore | None,
    ) -> None:
        """Prepares a run.

        Args:
            snapshots: the snapshots of the table.
            remover: deletes files and counts them.
            kept: reads the tags.
            ahead: reads the lists of the snapshots ahead.
            lists: the manifests in the lists that the run has read, by the name of the list. These
                lists are not read again.
            clock: measures how old a check is.
            changelogs: keeps the changelogs of the snapshots. None if changelogs expire with their
                snapshots.
        """
        self._snapshots = snapshots
        self._storage = snapshots.storage
        self._remover = remover
        self._notes = ExpiringNotes(self._storage)
        self._kept = kept
        self._ahead = ahead
        self._lists = lists
        self._clock = clock
        self._changelogs = changelogs

    def begin(self, group: Sequence[Snapshot], newest: Snapshot) -> Begun:
        """Removes the own files of a group's snapshots. After that nobody can tag the snapshots, so
        their tags can be read. If the result says `stopped`, nothing further may expire.

        Args:
            group: the snapshots. The last one follows the others and stays.
            newest: the newest snapshot of the history when the range was computed.

        Raises:
            StorageError: the storage fails. Each snapshot still exists, or has a note.
        """
        if self._remover.dry_run:
            for snapshot in group[:-1]:
                self._remover.remove_first("snapshot", snapshot_path(snapshot.id))
            return Begun(len(group) - 1, list(group[:-1]))
        self._storage.together([partial(self._notes.write, *pair) for pair in pairwise(group)])
        lists = [path for snapshot in group[-2::-1] for path in self._small_lists(snapshot)]
        removal = partial(self._remove_own, group, newest, lists)
        reading = partial(self._hold_all, lists)
        removal_ended, *_ = self._storage.together([removal, *[reading] * _READERS])
        gone_count, removed = removal_ended
        last = removed[-1] if removed else None
        if last is group[gone_count - 1] and not self._any_stands(group[gone_count], newest):
            gone_count -= 1
            removed.pop()
            if self._was_newest(last):
                self._storage.put_if_absent(snapshot_path(last.id), encode_snapshot(last))
        noted = gone_count if removed else self._left_to_others(group)
        self._notes.drop(*(snapshot.id for snapshot in group[noted:-1]))
        return Begun(
            gone_count, removed, gone_count < len(group) - 1 and not self._overtaken(newest)
        )

    def _any_stands(self, following: Snapshot, newest: Snapshot) -> bool:
        return self._snapshots.stands(following) or self._snapshots.stands(newest)

    def _left_to_others(self, group: Sequence[Snapshot]) -> int:
        """The number of snapshots of a group whose notes the next run may need. Another expirer has
        removed these snapshots, and may be killed before it has finished. It has finished if
        neither the following snapshot nor a note of that snapshot exists.
        """
        ids = self._snapshots.ids()
        gone_count = next(
            (place for place, snapshot in enumerate(group[:-1]) if snapshot.id in ids),
            len(group) - 1,
        )
        following = group[gone_count]
        leads_on = self._snapshots.stands(following) or self._notes.has(following.id)
        if not leads_on:
            return 0
        return gone_count

    def _keep_changelogs(self, changelogs: ChangelogStore, group: Sequence[Snapshot]) -> None:
        """Writes the changelogs of a group that expires, except those below a gap."""
        pairs = [
            (snapshot, after) for snapshot, after in pairwise(group) if after.id == snapshot.id + 1
        ]
        self._storage.together([partial(changelogs.keep, *pair) for pair in pairs])
        if pairs:
            self._storage.write(f"{CHANGELOG_FOLDER}/LATEST", str(pairs[-1][0].id).encode())

    def _remove_own(
        self, group: Sequence[Snapshot], newest: Snapshot, lists: list[str]
    ) -> tuple[int, list[Snapshot]]:
        """Removes the snapshots' own files, one after the other. Returns how many of them are gone,
        and which of them this run removed. At the end, `lists` is emptied, so that `_hold_all`
        begins no further read.
        """
        gone_count = 0
        removed = []
        try:
            looked = self._look(group[0], newest)
            if self._changelogs is not None and looked.is_history:
                self._keep_changelogs(self._changelogs, group)
            for snapshot, following in pairwise(group):
                if self._clock.monotonic() - looked.at > _FRESH_SECONDS:
                    looked = self._look(snapshot, newest)
                if not looked.is_history:
                    break
                steps: list[Callable[[], Any]] = [partial(self._look, following, newest)]
                if looked.is_there:
                    removed.append(snapshot)
                    steps.append(
                        partial(self._remover.remove_first, "snapshot", snapshot_path(snapshot.id))
                    )
                looked = self._storage.together(steps[::-1])[-1]
                gone_count += 1
        finally:
            lists.clear()
        return gone_count, removed

    def _hold_all(self, lists: list[str]) -> None:
        """Reads the lists ahead, beginning at the end of `lists`, until none is left."""
        with suppress(IndexError):
            while True:
                self._ahead.hold(lists.pop())

    def _small_lists(self, snapshot: Snapshot) -> Iterator[str]:
        """The lists of a snapshot that are read while the group's own files are deleted:
        `Cleaner.finish` needs them, and their content never changes. Large lists are left out,
        because the large lists of a group would not fit into memory together.
        """
        for name, size in snapshot.manifest_lists[:2]:
            is_small = size is not None and 0 < size <= _SMALL
            if self._ahead.helps and name not in self._lists and is_small:
                yield manifest_path(name)

    def _overtaken(self, newest: Snapshot) -> bool:
        """Whether other expirers have expired the whole range, `newest` included."""
        left = self._snapshots.ids()
        return bool(left) and left[0] > newest.id and not read_pins(self._storage)

    def _was_newest(self, last: Snapshot) -> bool:
        """Whether a rollback to `last` ended before the file of `last` was deleted. In that case
        all snapshots below `last` had expired, and the existing ones were created again by a paused
        writer. Two other cases look the same and do not count. In the first, a rollback went below
        `last`, as tags or the rollback's note show. In the second, the table was dropped and
        created again, and has younger snapshots.
        """
        ids = self._snapshots.ids()
        if not ids or ids[-1] >= last.id:
            return not ids
        self._kept.refresh_tags()
        kept = self._kept.tagged_nonces()
        below = [snapshot for snapshot in map(self._snapshots.find, ids) if snapshot is not None]
        are_expired = all(
            snapshot.nonce not in kept and snapshot.time_millis <= last.time_millis
            for snapshot in below
        )
        return are_expired and read_removals(self._storage).of_nonce(last.nonce) is None

    def _look(self, oldest: Snapshot, newest: Snapshot) -> _Looked:
        """Checks for a rollback that is under way or has changed the history, and whether `oldest`
        exists. Rollbacks remove the newest snapshot first. If `oldest` is gone, another expirer may
        have removed it.
        """
        began = self._clock.monotonic()
        pins, present, stands = self._storage.together(
            [
                partial(read_pins, self._storage),
                partial(self._snapshots.find, oldest.id),
                partial(self._snapshots.stands, newest),
            ]
        )
        is_same = present is None or present.nonce == oldest.nonce
        return _Looked(
            is_history=not pins and is_same and stands,
            is_there=present is not None,
            at=began,
        )
