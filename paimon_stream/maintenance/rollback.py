"""Rolls a table back to an earlier snapshot or tag, as Java 1.4.2 does (semantics.md §11).

Invariants: at every moment the table is in a state that it had before, and a killed rollback can be
repeated. During the rollback, a pin keeps the target (`pins.py`). A rollback never deletes data
files or manifests. They stay until orphan files are removed, because a paused writer may still
publish a snapshot that refers to them.

A rollback has these steps:

1. The pin is written, and the target is looked at again. The rollback does not begin while an
   expiry may be at work on the target or above (`expiring.py`).
2. The snapshots that are about to be removed are noted (`table/removals.py`), so that they do not
   seem to have expired later.
3. The hint LATEST is removed. Without LATEST, every engine lists the snapshots and takes the newest
   one, but Java trusts a hint whose snapshot has no successor (semantics.md §2.4).
4. The later snapshots are removed, the newest first. If a writer has committed meanwhile, its
   snapshots are noted and removed, too.
5. The long-lived changelogs of these snapshots are removed, and after that the later tags. A tag
   may be created until its snapshot is gone, so tags are removed after the snapshots.
6. LATEST is written. After that, the pin is removed.

Before each deletion the rollback checks whether the target and the pin still exist, in this order.
If the target has expired, it is restored. If the pin is gone, another rollback has taken over, or
the table was dropped, and this one stops. So in a table that was dropped and created again, a
rollback removes or replaces a snapshot only if it has slept between its last look and that change.

If batches of a stream are removed, the stream stops at its next batch (`TableRolledBack`), because
Spark does not run batches again that it recorded as done.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from paimon_stream import errors
from paimon_stream.commit.metastore_tags import tell_of_deleted_tags
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.snapshot_json import (
    Snapshot,
    SnapshotRef,
    decode_snapshot,
    encode_snapshot,
)
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.needed import (
    ChangelogStore,
    refuse_beside,
    refuse_missing,
    without_changelog,
)
from paimon_stream.maintenance.pins import Pin, pin_path, put_pin, read_pins, under_way
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import whole_of
from paimon_stream.table import layout
from paimon_stream.table.journalled import journalled_batches, live_files_of
from paimon_stream.table.lineage import in_lineage
from paimon_stream.table.removals import (
    FAST_FORWARD,
    ROLLBACK,
    RemovalNotes,
    Removed,
    note_restored,
    read_removals,
    streams_of,
)
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_ROUNDS: Final = 10
_WAITS: Final = 20
_WAIT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport(Report):
    """What a rollback removed, or would remove in a dry run.

    Attributes:
        location: where the table is.
        snapshot: the id of the target.
        tag: the name of the target, if it was given as a tag.
        snapshots: the ids of the removed snapshots, ascending.
        tags: the names of the removed tags.
        changelogs: the ids of the removed long-lived changelogs.
        streams: the commit users that lost batches, each with the smallest identifier removed.
        dry_run: whether nothing was removed.
    """

    location: str
    snapshot: int
    tag: str | None = None
    snapshots: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    changelogs: tuple[int, ...] = ()
    streams: Mapping[str, int] = field(default_factory=dict, hash=False)
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackTarget:
    """A snapshot to roll back to.

    Attributes:
        snapshot: the snapshot.
        kept_by: the file of the tag that keeps the snapshot, or of the pin of an interrupted
            rollback; None if the snapshot's own file exists.
        by_pin: whether `kept_by` is a pin.
        alone: whether the snapshots below the target are another history, which is removed as well.
    """

    snapshot: Snapshot
    kept_by: str | None = None
    by_pin: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """What a fast forward adds to its rollback of main.

    Attributes:
        lost: the snapshots and batches that are noted as removed, besides the later snapshots.
        removes_expired: whether main also loses the rows of snapshots that have expired.
        begin: is called as soon as the pin and the notes exist.
    """

    lost: Sequence[Removed]
    removes_expired: bool
    begin: Callable[[], None]


def rollback_to(
    table: Table,
    target: int | str | RollbackTarget,
    *,
    dry_run: bool = False,
    take_over: bool = False,
    forwarding: Forwarding | None = None,
    runtime: Runtime | None = None,
) -> RollbackReport:
    """Rolls the table back to a snapshot (an id) or a tag (a name). Raises the errors of
    `PaimonTable.rollback_to`. If the target is refused, or another rollback is under way, nothing
    is changed. Only a fast forward passes `forwarding`.
    """
    storage = table.storage
    running = runtime or system()
    snapshots = SnapshotStore(storage, running)
    _refuse_links(storage)
    chosen = target if isinstance(target, RollbackTarget) else find_target(snapshots, target)
    loss = _loss_of(table, snapshots, chosen, forwarding)
    if dry_run:
        refuse_broken(table, snapshots, chosen, read_pins(storage))
        rollback = _rollback_of(snapshots, running, chosen, loss, Pinned(path=""))
        rollback.preview()
    else:
        pinned = pin_target(table, snapshots, chosen, running, take_over=take_over)
        rollback = _rollback_of(snapshots, running, chosen, loss, pinned)
        begin = None if forwarding is None else forwarding.begin
        rollback.execute(begin)
        if rollback.tags:
            tell_of_deleted_tags(table, sorted(rollback.tags), running)
        _warn_of_streams(storage, chosen.snapshot.id, rollback.streams)
    report = RollbackReport(
        location=storage.location,
        snapshot=chosen.snapshot.id,
        snapshots=tuple(sorted(rollback.gone)),
        tags=tuple(sorted(rollback.tags)),
        changelogs=rollback.changelogs,
        streams=rollback.streams,
        dry_run=dry_run,
    )
    if isinstance(target, str):
        return replace(report, tag=target)
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """What a rollback or fast forward removes besides the snapshots above its target.

    Attributes:
        cause: the cause that the notes name (`ROLLBACK`, `FAST_FORWARD`).
        removes_expired: whether the table also loses rows of snapshots that have expired.
        expired: what is known of the batches of these snapshots.
    """

    cause: str
    removes_expired: bool
    expired: list[Removed]


def _loss_of(
    table: Table, snapshots: SnapshotStore, chosen: RollbackTarget, forwarding: Forwarding | None
) -> _Loss:
    """What a rollback to the target removes besides later snapshots. For a fast forward,
    `forwarding` says that.
    """
    removes_expired = chosen.kept_by is not None and not snapshots.stands(chosen.snapshot)
    if forwarding is not None:
        return _Loss(
            cause=FAST_FORWARD,
            removes_expired=forwarding.removes_expired,
            expired=list(forwarding.lost),
        )
    expired = list[Removed]()
    if removes_expired:
        expired = _expired_above(table, snapshots, chosen.snapshot)
    return _Loss(cause=ROLLBACK, removes_expired=removes_expired, expired=expired)


def _rollback_of(
    snapshots: SnapshotStore,
    runtime: Runtime,
    target: RollbackTarget,
    loss: _Loss,
    pinned: "Pinned",
) -> "_Rollback":
    """The run that rolls back to the target, before it has removed anything."""
    notes = RemovalNotes(
        snapshots.storage,
        runtime,
        loss.cause,
        SnapshotRef.of(target.snapshot),
        removes_expired=loss.removes_expired,
    )
    return _Rollback(
        storage=snapshots.storage,
        snapshots=snapshots,
        kept=target.snapshot,
        by_pin=target.by_pin,
        alone=target.alone or pinned.is_alone,
        notes=notes,
        expired=loss.expired,
        pinned=pinned,
    )


def _warn_of_streams(storage: Storage, target: int, streams: Mapping[str, int]) -> None:
    """Warns of the streams that lost batches, each with the smallest identifier removed."""
    if streams:
        _LOG.warning(
            "%s was rolled back to snapshot %d. Streams that wrote after it stop at their next "
            "batch (TableRolledBack): %s.",
            storage.location,
            target,
            ", ".join(f"{user!r} from batch {batch} on" for user, batch in streams.items()),
        )


@dataclass(slots=True, kw_only=True)
class _Rollback:
    """One run of a rollback, and what it has removed so far."""

    storage: Storage
    snapshots: SnapshotStore
    kept: Snapshot
    """The target."""
    by_pin: bool
    """Whether only a pin keeps the target."""
    alone: bool
    """As in `RollbackTarget`."""
    notes: RemovalNotes
    expired: list[Removed]
    """What goes besides the later snapshots: batches of streams whose snapshots have expired."""
    pinned: "Pinned"
    """The pin of this run. In a dry run there is none, and nothing looks for it."""
    gone: set[int] = field(default_factory=set)
    """The ids of the removed snapshots."""
    tags: set[str] = field(default_factory=set)
    """The names of the removed tags."""
    changelogs: tuple[int, ...] = ()
    """The ids of the removed long-lived changelogs."""
    removed: list[Removed] = field(default_factory=list)
    """What was noted as removed, each once."""

    @property
    def streams(self) -> dict[str, int]:
        """The commit users that lose batches, each with its first lost batch."""
        return streams_of(self.removed)

    def preview(self) -> None:
        """Collects, for a dry run, what the rollback would remove."""
        going = self._going()
        later = [snapshot_id for snapshot_id in going if snapshot_id > self.kept.id]
        self.gone.update(going)
        self.removed.extend([*map(Removed.of, self._readable(later)), *self.expired])
        self.tags.update(self._later_tags())
        self.changelogs = self._later_changelogs()

    def execute(self, begin: Callable[[], None] | None = None) -> None:
        """Removes everything that is later than the target, and then the file of this rollback (the
        pin). An interrupted rollback to the same target is continued. Everything is noted before
        the target is restored (`table/removals.py`), because after that a killed run no longer
        shows which snapshots had expired. `begin` is called when everything is noted, before
        anything is removed.
        """
        self._require_pin()
        going = self._going()
        announced: list[Removed] = []
        if self.pinned.completes:
            announced = self._announced_before(going)
        later = [snapshot_id for snapshot_id in going if snapshot_id > self.kept.id]
        self._note([*announced, *self.expired, *map(Removed.of, self._readable(later))])
        try:
            if begin is not None:
                begin()
            self._hold_target()
        except errors.NoSpace:  # other code that frees space is refused while there is a pin
            if not self.by_pin:  # while the target is missing, the pin alone keeps it
                self.notes.withdraw()
                self.storage.delete(self.pinned.path)
            raise
        self.storage.delete(layout.LATEST_HINT)
        self._remove_snapshots(going)
        self.notes.complete()
        if self.pinned.replaces:  # what those runs had announced, and did not remove, stays
            note_restored(self.storage, map(SnapshotRef.of, self._readable(self.snapshots.ids())))
        self.changelogs = self._later_changelogs()
        self._remove_changelogs()
        self._remove_tags()
        self._hold_target()
        self._write_hint(layout.LATEST_HINT, self.kept.id)
        self._hold_target()
        ExpiringNotes(self.storage).drop(self.kept.id)  # the note of an expiry that was killed
        self.storage.delete(self.pinned.path)

    def _require_pin(self) -> None:
        """Raises `CommitContended` if the pin is gone."""
        if not self.storage.exists(self.pinned.path):
            removed = "nothing"
            if self.gone:
                removed = f"{len(self.gone)} snapshots"
            raise errors.CommitContended(
                f"the rollback to snapshot {self.kept.id} stopped, because its pin is gone: another one "
                f"has taken over, or the table was dropped. It had removed {removed}. Look at the table "
                "before you roll back again.",
                snapshot=self.kept.id,
            ).of_table(self.storage.location)

    def _hold_target(self) -> None:
        """Makes sure that the pin exists. If the target has expired, restores it from the pin.
        EARLIEST is pointed to the target before the target exists again, so that after a kill no
        hint hides the target. After that EARLIEST is written once more, because an expiry may have
        moved it. The pin is looked for last, directly before anything is changed: who has dropped
        the table and created it again, or has taken over, may have put the snapshot that was found.
        """
        present = self.snapshots.find(self.kept.id)
        self._require_pin()
        if present is not None and present.nonce == self.kept.nonce:
            return
        self._write_hint(layout.EARLIEST_HINT, self.kept.id)
        self._require_pin()
        content = encode_snapshot(without_changelog(self.kept))
        if present is None:
            self.storage.put_if_absent(layout.snapshot_path(self.kept.id), content)
        else:  # a paused writer created it again; it is not part of the table's lineage
            self.storage.write(layout.snapshot_path(self.kept.id), content)
        self._write_hint(layout.EARLIEST_HINT, self.kept.id)

    def _write_hint(self, path: str, snapshot_id: int) -> None:
        """Writes a hint, or removes it if there is no space. Without the hint, every engine lists
        the files. So the rollback can end, and code that frees space can work again.
        """
        try:
            self.storage.write(path, str(snapshot_id).encode())
        except errors.NoSpace as error:
            self.storage.delete(path)
            _LOG.warning(
                "%s: the hint %s is missing until a commit or repair_hints sets it: %s",
                self.storage.location,
                path,
                error,
            )

    def _note(self, removed: Sequence[Removed]) -> None:
        """Notes the snapshots and batches that are about to be removed, and adds each of them once
        to the report.
        """
        self.notes.announce(removed)
        known = {loss.snapshot or loss.uuids for loss in self.removed}
        for loss in removed:
            if (loss.snapshot or loss.uuids) not in known:
                known.add(loss.snapshot or loss.uuids)
                self.removed.append(loss)

    def _announced_before(self, going: Sequence[int]) -> list[Removed]:
        """The snapshots and batches that an interrupted rollback to this target had announced.
        Either that run has removed them, or this run removes them. The pin of that rollback stood
        until this run had its own pin, so no expiry has removed anything in between.
        """
        staying = [snapshot_id for snapshot_id in self.snapshots.ids() if snapshot_id not in going]
        stays = set(map(SnapshotRef.of, self._readable(staying)))
        announced = read_removals(self.storage).unfinished(SnapshotRef.of(self.kept))
        return [loss for loss in announced if loss.snapshot not in stays]

    def _remove_snapshots(self, going: list[int]) -> None:
        """Removes the snapshots with the given ids, and those that writers commit meanwhile."""
        for _ in range(_ROUNDS):
            for snapshot_id in going:
                self._hold_target()
                self.storage.delete(layout.snapshot_path(snapshot_id))
                self.gone.add(snapshot_id)
            going = self._going()
            if not going:
                return
            self._note(list(map(Removed.of, self._readable(going))))
            self.storage.delete(layout.LATEST_HINT)  # a writer may have committed in the meantime
        raise errors.CommitContended(
            f"could not be rolled back to snapshot {self.kept.id}: a writer keeps committing. "
            "Stop it, and roll back again. Until then nothing expires.",
            snapshot=self.kept.id,
        ).of_table(self.storage.location, subject=True)

    def _going(self) -> list[int]:
        """The ids of the snapshots to remove, in the order of their removal. Snapshots above the
        target come first, the newest one at the beginning. If the snapshots below the target belong
        to another history (`alone`), they follow, the oldest first. So the newest snapshot is at
        every moment a state of the table.
        """
        ids = self.snapshots.ids()
        later = [snapshot_id for snapshot_id in reversed(ids) if snapshot_id > self.kept.id]
        if not self.alone:
            return later
        return later + [snapshot_id for snapshot_id in ids if snapshot_id < self.kept.id]

    def _readable(self, snapshot_ids: Sequence[int]) -> list[Snapshot]:
        """The snapshots among the given ids that can be read. Snapshots that cannot be read are
        removed, too.
        """
        snapshots = self.storage.together(
            [partial(self._if_readable, snapshot_id) for snapshot_id in snapshot_ids]
        )
        return [snapshot for snapshot in snapshots if snapshot is not None]

    def _if_readable(self, snapshot_id: int) -> Snapshot | None:
        try:
            return self.snapshots.find(snapshot_id)
        except (errors.CorruptMetadata, errors.UnknownVersion) as error:
            _LOG.warning(
                "%s: the later snapshot %d cannot be read, so the report does not name the stream "
                "that wrote it: %s",
                self.storage.location,
                snapshot_id,
                error,
            )
            return None

    def _remove_tags(self) -> None:
        """Removes the tags of later snapshots. The tags are listed again until none is left,
        because a tag may be created until its snapshot is gone.
        """
        while True:
            names = self._later_tags()
            if not names:
                break
            for name in names:
                self._hold_target()
                self.storage.delete(layout.tag_path(name))
            self.tags.update(names)

    def _later_tags(self) -> list[str]:
        return [
            name for name, snapshot in read_tags(self.storage).items() if snapshot.id > self.kept.id
        ]

    def _later_changelogs(self) -> tuple[int, ...]:
        return tuple(
            changelog_id
            for changelog_id in ChangelogStore(self.storage).ids()
            if changelog_id > self.kept.id
        )

    def _remove_changelogs(self) -> None:
        """Removes the long-lived changelogs of removed snapshots. As in Java, the LATEST hint of
        the changelogs is set first. Its text is −1 if no changelog is left.
        """
        if not self.changelogs:
            return
        store = ChangelogStore(self.storage)
        left = [changelog_id for changelog_id in store.ids() if changelog_id not in self.changelogs]
        self._write_hint(f"{layout.CHANGELOG_FOLDER}/LATEST", max(left, default=-1))
        for changelog_id in reversed(self.changelogs):
            self._hold_target()
            self.storage.delete(store.path(changelog_id))


def _expired_above(table: Table, snapshots: SnapshotStore, target: Snapshot) -> list[Removed]:
    """The batches that a rollback to an expired target removes, even if their own snapshots have
    expired. The newest manifests mention files of such a batch, and the target's manifests do not.
    If a compaction and a merge of manifests have hidden a batch, it is not found (exactly-once.md
    §8). If manifests of the table cannot be read, the failure is only logged, so that the table can
    be rolled back.
    """
    expired = []
    try:
        latest = snapshots.latest()
        for user, entry in journalled_batches(table.storage):
            previous = entry.previous
            if previous is not None and previous.snapshot.id > target.id:
                expired.append(Removed.of_previous(user, entry, previous))
            published = live_files_of(table, latest, entry, removed=True)
            if published and not live_files_of(table, target, entry, removed=True):
                expired.append(Removed.of_attempt(user, entry, published=True))
    except errors.FormatError as error:
        _LOG.warning(
            "%s: which batches of streams have expired above snapshot %d is not known, so a stream "
            "may not be stopped once its snapshots have expired: %s",
            table.storage.location,
            target.id,
            error,
        )
    return expired


def _refuse_links(storage: Storage) -> None:
    """Raises `StorageError` if a folder from which a rollback deletes is a symbolic link. In such a
    folder, the pin could not be removed either.
    """
    for folder in (layout.SNAPSHOT_FOLDER, layout.TAG_FOLDER, layout.CHANGELOG_FOLDER):
        if storage.is_link(folder):
            raise errors.StorageError(
                f"{storage.location}: the folder {folder} is a symbolic link, and nothing is "
                "deleted through links, so the table cannot be rolled back. Nothing was changed. "
                "Move the folder to where the link is.",
                path=f"{storage.location}/{folder}",
                table=storage.location,
            )


def find_target(snapshots: SnapshotStore, target: int | str) -> RollbackTarget:
    """The snapshot with the given id, or the snapshot of the tag with the given name. An expired
    snapshot is found by its tag, or by the pin of an interrupted rollback. Raises `NotFound`,
    `CorruptMetadata`, `StorageError`.
    """
    storage = snapshots.storage
    tags = read_tags(storage)
    if isinstance(target, str):
        if target in tags:
            return RollbackTarget(snapshot=tags[target], kept_by=layout.tag_path(target))
        raise _no_target(storage, target, f"tag {target!r}")
    snapshot_of_id = snapshots.find(target)
    if snapshot_of_id is not None:
        return RollbackTarget(snapshot=snapshot_of_id)
    for name, snapshot in tags.items():
        if snapshot.id == target:
            return RollbackTarget(snapshot=snapshot, kept_by=layout.tag_path(name))
    for pin in read_pins(storage):
        if pin.snapshot is not None and pin.snapshot.id == target:
            return RollbackTarget(snapshot=pin.snapshot, kept_by=pin.path, by_pin=True)
    raise _no_target(storage, target, f"snapshot {target}")


def _no_target(storage: Storage, target: int | str, shown: str) -> errors.NotFound:
    return errors.NotFound(
        f"has no {shown}. Nothing was changed. PaimonTable.snapshots() and tags() list the "
        "existing ones.",
        target=target,
    ).of_table(storage.location, subject=True)


class Pinned(NamedTuple):
    """The pin of one run of a rollback.

    Attributes:
        path: the file of the pin.
        completes: whether this pin has replaced the pin of an interrupted rollback to the same
            target.
        is_alone: whether the snapshots below the target belong to another history.
        replaces: whether this pin has replaced any other pins.
    """

    path: str
    completes: bool = False
    is_alone: bool = False
    replaces: bool = False


def pin_target(
    table: Table,
    snapshots: SnapshotStore,
    target: RollbackTarget,
    runtime: Runtime,
    *,
    take_over: bool,
) -> Pinned:
    """Keeps the target by a new pin, which replaces the pin of an interrupted rollback to the same
    target. After an error, nothing is changed. There is one exception: after `NoSpace`, interrupted
    rollbacks may have been given up.

    Args:
        table: the table.
        snapshots: the snapshots of the table.
        target: the snapshot that is to be kept.
        runtime: the ids for the pin's name, and the clock that waits for expiries.
        take_over: whether the pin also replaces pins of rollbacks to other targets.

    Raises:
        NotFound: the target is gone.
        CommitContended: another rollback is under way, or an expiry has not ended.
        CorruptMetadata, StorageError: the target cannot be read, or the storage fails.
    """
    storage = table.storage
    wanted = target.snapshot
    pins = read_pins(storage)
    foreign = [pin for pin in pins if not pin.keeps(wanted)]
    is_alone = target.alone or any(pin.is_alone for pin in pins if pin not in foreign)
    doing = f"that to snapshot {wanted.id} was not begun, and nothing was changed"
    if foreign and not take_over:
        raise under_way(storage, pins, doing, wanted.id)
    # This is checked before there is a pin, because a pin counts as proof that the target is part
    # of the table.
    if target.kept_by is None:
        refuse_beside(snapshots, wanted, pins)
    path = pin_path(wanted, runtime, alone=is_alone)
    try:
        pinned_millis = _put(storage, path, target, pins)
        _refuse_newer_pins(storage, {path, *(pin.path for pin in pins)}, doing)
        _look_again(table, snapshots, target, pins, pinned_millis, runtime)
    except errors.PaimonStreamError:
        _withdraw(storage, path)
        raise
    for pin in pins:
        storage.delete(pin.path)
    completes = len(foreign) < len(pins)
    return Pinned(path=path, completes=completes, is_alone=is_alone, replaces=bool(pins))


def _look_again(
    table: Table,
    snapshots: SnapshotStore,
    target: RollbackTarget,
    pins: Sequence[Pin],
    pinned_millis: int,
    runtime: Runtime,
) -> None:
    """After the pin was written, waits for expiries. Then refuses a target that is gone or broken
    in spite of the pin.

    Args:
        table: the table.
        snapshots: the snapshots of the table.
        target: the snapshot that the pin keeps.
        pins: the pins that the new pin replaces.
        pinned_millis: when the pin was written, in epoch milliseconds by the storage's clock.
        runtime: the clock that waits.
    """
    _wait_for_expiry(table.storage, target.snapshot.id, pinned_millis, runtime)
    if not pins:  # otherwise an expiry could not end what it has begun
        _refuse_half_expired(snapshots, target, pinned_millis)
    _refuse_gone(snapshots, target)
    refuse_broken(table, snapshots, target, pins)


def _refuse_newer_pins(storage: Storage, known: Collection[str], doing: str) -> None:
    """Raises `CommitContended` if there are pins that are not in `known`. `doing` says what is not
    done, for the message.
    """
    newer = [pin for pin in read_pins(storage) if pin.path not in known]
    if newer:
        raise under_way(storage, newer, doing)


def _put(storage: Storage, path: str, target: RollbackTarget, pins: Sequence[Pin]) -> int:
    """Writes the pin, and returns when it was written, in epoch milliseconds by the storage's
    clock. On a full disk, the pins that the new pin replaces are removed first to make room. If
    anything expires before the new pin exists, the following check notices it. If there is still no
    space, the interrupted rollbacks are given up, because code that frees space is refused while
    these rollbacks have pins.
    """
    try:
        return put_pin(storage, path, target.snapshot)
    except errors.NoSpace:
        if not pins or target.by_pin:  # a pin that alone keeps the target stays
            raise
        for pin in pins:
            storage.delete(pin.path)
    try:
        return put_pin(storage, path, target.snapshot)
    except errors.NoSpace as full:
        raise errors.NoSpace(
            f"{full.message} The interrupted rollback was given up, so that space can be freed: "
            "expire_snapshots, remove_orphan_files and delete_tag work again. Then roll back "
            "again.",
            **full.context,
        ) from None


def _wait_for_expiry(storage: Storage, snapshot_id: int, now_millis: int, runtime: Runtime) -> None:
    """Waits until no expiry is at work on the target or a later snapshot. No further expiry begins,
    because it sees the pin. An expiry that was killed counts for five minutes.
    """
    notes = ExpiringNotes(storage)
    expiring = notes.young_from(snapshot_id, now_millis)
    for _ in range(_WAITS):
        if expiring is None:
            return
        runtime.clock.sleep(_WAIT_SECONDS)
        expiring = notes.young_from(snapshot_id, now_millis)
    raise errors.CommitContended(
        f"snapshot {expiring} is being expired, or its expiry was interrupted within the last five "
        f"minutes, so the rollback to snapshot {snapshot_id} was not begun. Nothing was changed. "
        "Try again in a few minutes.",
        snapshot=snapshot_id,
    ).of_table(storage.location)


def _refuse_half_expired(snapshots: SnapshotStore, target: RollbackTarget, now_millis: int) -> None:
    """Refuses a target that only a tag keeps, if an expiry is at work or was ever interrupted. The
    expiry may have read the tags before this tag was made. In that case the tag's creator is about
    to remove the tag.
    """
    if target.kept_by is None or snapshots.stands(target.snapshot):
        return
    if ExpiringNotes(snapshots.storage).any_begun(snapshots, now_millis):
        target_id = target.snapshot.id
        raise errors.CommitContended(
            f"an expiry is in progress or was interrupted, and only a tag keeps snapshot {target_id}, "
            "so the rollback to it was not begun. Nothing was changed. Run expire_snapshots, then "
            "roll back again.",
            snapshot=target_id,
        ).of_table(snapshots.location)


def _refuse_gone(snapshots: SnapshotStore, target: RollbackTarget) -> None:
    """Refuses a target that has vanished since it was found."""
    storage = snapshots.storage
    wanted = target.snapshot
    if target.kept_by is None:
        if snapshots.stands(wanted):
            return
        raise errors.NotFound(
            f"snapshot {wanted.id} has expired or was replaced meanwhile. Nothing was changed. Take "
            "another target.",
            snapshot=wanted.id,
        ).of_table(storage.location)
    with suppress(errors.NotFound):
        content = storage.read(target.kept_by, MOST_JSON)
        if decode_snapshot(content, f"{storage.location}/{target.kept_by}") == wanted:
            return
    raise errors.NotFound(
        f"{target.kept_by} was deleted or replaced meanwhile. Nothing was changed. Take another "
        "target.",
        snapshot=wanted.id,
    ).of_table(storage.location)


def refuse_broken(
    table: Table, snapshots: SnapshotStore, target: RollbackTarget, pins: Sequence[Pin]
) -> None:
    """Refuses a target that cannot be read. The lists and manifests of the target must be readable.
    If the target has expired, its data files must exist as well: the creator of its tag or pin may
    have been killed before it checked that the snapshot still stood.

    Args:
        table: the table.
        snapshots: the snapshots of the table.
        target: the target of the rollback.
        pins: the pins of interrupted rollbacks. One of them may have restored the target below
            snapshots that it had not removed yet.

    Raises:
        NotFound: the target is refused.
        StorageError: the storage fails.
    """
    wanted = target.snapshot
    if target.kept_by is None:
        refuse_beside(snapshots, wanted, pins)
    elif not target.alone:
        _refuse_id_of_another(snapshots, target, pins)
    stands = target.kept_by is None or snapshots.stands(wanted)
    try:
        refuse_missing(table, wanted, data=not stands)
    except (errors.CorruptMetadata, errors.NotFound) as error:
        problem = "has expired and its tag has lost files"
        if target.by_pin:
            problem = "has expired and the pin of its interrupted rollback has lost files"
        if stands:
            problem = "cannot be read"
        raise errors.NotFound(
            f"snapshot {wanted.id} {problem}, so the table cannot be rolled back to it: {error} "
            f"Nothing was changed. {_other_target(snapshots, pins)}",
            snapshot=wanted.id,
        ).of_table(table.location) from None


def _refuse_id_of_another(
    snapshots: SnapshotStore, target: RollbackTarget, pins: Sequence[Pin]
) -> None:
    """Refuses a target whose id a later snapshot of the table has. The rollback would write over
    that snapshot, although nobody has named it. A snapshot beside the lineage, or one that cannot
    be read, is no reason. Raises `NotFound`, `StorageError`.
    """
    wanted = target.snapshot
    try:
        holder = snapshots.find(wanted.id)
        if holder is None or holder.nonce == wanted.nonce:
            return
        latest = snapshots.latest()
        is_part_of_table = latest is not None and in_lineage(snapshots, holder, latest)
    except errors.FormatError:
        return
    if is_part_of_table:
        advice = _other_target(snapshots, pins)
        if whole_of(snapshots.storage) is snapshots.storage:  # a branch has no branches
            advice += (
                " To make the table what the tag keeps, create a branch from the tag and "
                "fast-forward to it"
            )
            # While an interrupted rollback has a pin, a fast forward without this is refused.
            advice += " with take_over (--take-over)." if pins else "."
        raise errors.NotFound(
            f"the table has another snapshot {wanted.id} now, of user {holder.commit_user!r}, because "
            f"the one that {target.kept_by} keeps was rolled back or replaced. A rollback to it would "
            f"write over the other one. Nothing was changed. {advice}",
            snapshot=wanted.id,
        ).of_table(snapshots.location)


def _other_target(snapshots: SnapshotStore, pins: Sequence[Pin]) -> str:
    """A sentence that says what to do instead of a rollback to a broken target."""
    if not pins:
        return "Roll back to another target."
    if snapshots.ids():
        return "Roll back to another target with take_over (--take-over)."
    return (
        "The table is empty. When it has a snapshot, roll back to it with take_over (--take-over)."
    )


def _withdraw(storage: Storage, path: str) -> None:
    """Removes the pin of a rollback that is refused."""
    try:
        storage.delete(path)
    except errors.StorageError as error:
        _LOG.warning(
            "%s: the pin %s of a rollback that was not begun could not be removed. Roll back with "
            "take_over to remove it. %s",
            storage.location,
            path,
            error,
        )
