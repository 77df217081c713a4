"""Rolling a table back to an earlier snapshot or tag, as Java 1.4.2 does (semantics.md §11). At every moment the table
is in a state that it had before; a killed rollback can be repeated, and a pin keeps the target (`pins.py`).
docs/architecture.md (How a rollback keeps its target) has the steps. A stream whose batches are removed stops at the
next one (`TableRolledBack`): Spark does not replay what it recorded as done."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from paimon_stream.errors import CommitContended, CorruptMetadata, NoSpace, StorageError, UnknownVersion
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot, encode_snapshot
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.needed import ChangelogStore, without_changelog
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.rollback_target import Target, find_target, pin_target, refuse_broken
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.table import layout
from paimon_stream.table.lineage import note_rolled_back
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport(Report):
    """What a rollback to `snapshot` removed. `streams` are the commit users that lost batches, each with the
    smallest identifier removed. In a dry run nothing was removed."""

    location: str
    snapshot: int
    tag: str | None = None
    snapshots: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    changelogs: tuple[int, ...] = ()
    streams: Mapping[str, int] = field(default_factory=dict, hash=False)
    dry_run: bool = False


def rollback_to(
    table: Table,
    target: int | str | Target,
    *,
    dry_run: bool = False,
    take_over: bool = False,
    runtime: Runtime | None = None,
) -> RollbackReport:
    """Rolls the table back to a snapshot (an id) or a tag (a name), as `PaimonTable.rollback_to` says, and
    raises the same errors. Nothing was changed if it refuses the target or another rollback is under way."""
    used, running = table.storage, runtime or system()
    snapshots = SnapshotStore(used, running)
    _refuse_links(used)
    found = target if isinstance(target, Target) else find_target(snapshots, target)
    run = _Rollback(used, snapshots, found.snapshot, found.by_pin)
    if dry_run:
        refuse_broken(table, snapshots, found, read_pins(used))
        run.preview()
    else:
        run.pin = pin_target(table, snapshots, found, take_over, running)
        run.execute()
    if run.streams and not dry_run:
        streams = ", ".join(f"{user!r} from batch {batch} on" for user, batch in run.streams.items())
        stop = "Streams that wrote after it stop at their next batch (TableRolledBack): %s."
        text = f"%s was rolled back to snapshot %d. {stop}"
        _LOG.warning(text, used.location, found.snapshot.id, streams)
    return RollbackReport(
        location=used.location,
        snapshot=found.snapshot.id,
        tag=target if isinstance(target, str) else None,
        snapshots=tuple(sorted(run.gone)),
        tags=tuple(sorted(run.tags)),
        changelogs=run.changelogs,
        streams=run.streams,
        dry_run=dry_run,
    )


@dataclass(slots=True)
class _Rollback:
    """One run, and what it removed. `kept` is the target, and `by_pin` says that only a pin keeps it."""

    storage: Storage
    snapshots: SnapshotStore
    kept: Snapshot
    by_pin: bool
    pin: str = ""
    gone: set[int] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)
    changelogs: tuple[int, ...] = ()
    streams: dict[str, int] = field(default_factory=dict)
    nonces: list[str] = field(default_factory=list)

    def preview(self) -> None:
        for snapshot_id in self._later():
            self._note(snapshot_id, self._readable(snapshot_id))
        self.tags.update(self._later_tags())
        self.changelogs = self._later_changelogs()

    def execute(self) -> None:
        """Removes everything that is later than the target, then the pin."""
        try:
            self._look()
        except NoSpace:  # what frees space is refused while there is a pin
            if not self.by_pin:  # else the pin alone keeps the target
                self.storage.delete(self.pin)
            raise
        self.storage.delete(layout.LATEST_HINT)
        try:
            self._remove_snapshots()
        finally:  # the run that completes this one does not find them
            note_rolled_back(self.storage, self.nonces)
        self.changelogs = self._later_changelogs()
        self._remove_changelogs()
        while later := self._later_tags():  # a tag may be created until its snapshot is gone
            for name in later:
                self._look()
                self.storage.delete(layout.tag_path(name))
            self.tags.update(later)
        self._look()
        self._write_hint(layout.LATEST_HINT, self.kept.id)
        self._look()
        ExpiringNotes(self.storage).drop(self.kept.id)  # that of an expiry which was killed
        self.storage.delete(self.pin)

    def _look(self) -> None:
        """Makes sure that the pin exists, and restores an expired target from it. EARLIEST points to it before it
        exists, so that after a kill no hint hides it, and again afterwards: an expiry may have moved the hint."""
        if not self.storage.exists(self.pin):
            gone = f"It had removed {len(self.gone)} snapshots." if self.gone else "It had removed nothing."
            cure = f"{gone} Look at the table before you roll back again."
            text = f"the rollback to snapshot {self.kept.id} stopped, because another one has taken over. {cure}"
            raise CommitContended(text, snapshot=self.kept.id).of_table(self.storage.location)
        there = self.snapshots.find(self.kept.id)
        if there is not None and there.nonce == self.kept.nonce:
            return
        self._write_hint(layout.EARLIEST_HINT, self.kept.id)
        content = encode_snapshot(without_changelog(self.kept))
        if there is None:
            self.storage.put_if_absent(layout.snapshot_path(self.kept.id), content)
        else:  # a paused writer created it again; it is not part of the table's lineage
            self.storage.write(layout.snapshot_path(self.kept.id), content)
        self._write_hint(layout.EARLIEST_HINT, self.kept.id)

    def _write_hint(self, path: str, snapshot_id: int) -> None:
        """Without space there is no hint. Then every engine lists the files instead, and the rollback can
        end, so that what frees space works again."""
        try:
            self.storage.write(path, str(snapshot_id).encode())
        except NoSpace as why:
            self.storage.delete(path)
            text = "%s: the hint %s is missing until a commit or repair_hints sets it: %s"
            _LOG.warning(text, self.storage.location, path, why)

    def _remove_snapshots(self) -> None:
        for _ in range(_ROUNDS):
            later = self._later()
            if not later:
                return
            self.storage.delete(layout.LATEST_HINT)  # a writer may have committed in the meantime
            for snapshot_id in reversed(later):
                found = self._readable(snapshot_id)
                self._look()
                self.storage.delete(layout.snapshot_path(snapshot_id))
                self._note(snapshot_id, found)
        cure = "Stop it, and roll back again. Until then nothing expires."
        text = f"could not be rolled back to snapshot {self.kept.id}: a writer keeps committing. {cure}"
        raise CommitContended(text, snapshot=self.kept.id).of_table(self.storage.location, subject=True)

    def _later(self) -> list[int]:
        return [one for one in self.snapshots.ids() if one > self.kept.id]

    def _readable(self, snapshot_id: int) -> Snapshot | None:
        """A later snapshot. None if it is gone or cannot be read; that keeps nobody from removing it."""
        try:
            return self.snapshots.find(snapshot_id)
        except (CorruptMetadata, UnknownVersion) as why:
            text = "%s: the later snapshot %d cannot be read, so the report does not name the stream that wrote it: %s"
            _LOG.warning(text, self.storage.location, snapshot_id, why)
            return None

    def _note(self, snapshot_id: int, snapshot: Snapshot | None) -> None:
        """Records a removed snapshot, and its user with the smallest identifier. Batch commits have none."""
        self.gone.add(snapshot_id)
        if snapshot is not None:
            self.nonces.append(snapshot.nonce)
        if snapshot is not None and snapshot.commit_identifier != BATCH_IDENTIFIER:
            user, batch = snapshot.commit_user, snapshot.commit_identifier
            self.streams[user] = min(batch, self.streams.get(user, batch))

    def _later_tags(self) -> list[str]:
        return [name for name, one in read_tags(self.storage).items() if one.id > self.kept.id]

    def _later_changelogs(self) -> tuple[int, ...]:
        return tuple(one for one in ChangelogStore(self.storage).ids() if one > self.kept.id)

    def _remove_changelogs(self) -> None:
        """Removes the long-lived changelogs of removed snapshots. As in Java, their LATEST hint is set first;
        it is −1 if none is left."""
        if not self.changelogs:
            return
        store = ChangelogStore(self.storage)
        left = [one for one in store.ids() if one not in self.changelogs]
        self._write_hint(f"{layout.CHANGELOG_FOLDER}/LATEST", max(left, default=-1))
        for one in reversed(self.changelogs):
            self._look()
            self.storage.delete(store.path(one))


def _refuse_links(storage: Storage) -> None:
    """Refuses a linked folder in which a rollback deletes. Its pin could not be removed either."""
    for folder in (layout.SNAPSHOT_FOLDER, layout.TAG_FOLDER, layout.CHANGELOG_FOLDER):
        if storage.is_link(folder):
            cure = "Move the folder to where the link is."
            why = "nothing is deleted through links, so the table cannot be rolled back."
            text = f"{storage.location}: the folder {folder} is a symbolic link, and {why} Nothing was changed. {cure}"
            raise StorageError(text, path=f"{storage.location}/{folder}", table=storage.location)
