"""The target of a rollback: finding it, and keeping it by a pin before anything is removed (`pins.py`)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paimon_stream.errors import CommitContended, CorruptMetadata, NoSpace, NotFound, PaimonStreamError, StorageError
from paimon_stream.format.json_text import MOST_JSON
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot
from paimon_stream.maintenance.expiring import ExpiringNotes
from paimon_stream.maintenance.needed import refuse_beside, refuse_missing
from paimon_stream.maintenance.pins import Pin, pin_path, put_pin, read_pins, under_way
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import tag_path
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
_WAITS: Final = 20
_WAIT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A snapshot to roll back to. `kept_by` is the file of the tag that keeps it, or of the pin of an
    interrupted rollback (`by_pin`); None if the snapshot's own file exists."""

    snapshot: Snapshot
    kept_by: str | None = None
    by_pin: bool = False


def find_target(snapshots: SnapshotStore, target: int | str) -> Target:
    """The snapshot with that id, or that of the tag with that name. A snapshot that has expired is found by
    its tag, or by the pin of an interrupted rollback. Raises `NotFound`, `CorruptMetadata`, `StorageError`."""
    storage = snapshots.storage
    tags = read_tags(storage)
    if isinstance(target, str):
        if target in tags:
            return Target(snapshot=tags[target], kept_by=tag_path(target))
        what = f"tag {target!r}"
    else:
        standing = snapshots.find(target)
        if standing is not None:
            return Target(snapshot=standing)
        for name, one in tags.items():
            if one.id == target:
                return Target(snapshot=one, kept_by=tag_path(name))
        for pin in read_pins(storage):
            if pin.snapshot is not None and pin.snapshot.id == target:
                return Target(snapshot=pin.snapshot, kept_by=pin.path, by_pin=True)
        what = f"snapshot {target}"
    text = f"has no {what}. Nothing was changed. PaimonTable.snapshots() and tags() list the existing ones."
    raise NotFound(text, target=target).of_table(storage.location, subject=True)


def pin_target(table: Table, snapshots: SnapshotStore, target: Target, take_over: bool, runtime: Runtime) -> str:
    """Keeps the target by a new pin, which replaces that of an interrupted rollback to the same target. Returns the
    pin's file. Raises `NotFound` if the target is gone, `CommitContended` if another rollback is under way or an expiry
    has not ended, `CorruptMetadata`, `StorageError`. Then nothing was changed, except that interrupted rollbacks may
    have been given up (`NoSpace`)."""
    storage, wanted = table.storage, target.snapshot
    pins = read_pins(storage)
    foreign = [one for one in pins if one.snapshot is None or one.snapshot.nonce != wanted.nonce]
    doing = f"that to snapshot {wanted.id} was not begun, and nothing was changed"
    if foreign and not take_over:
        raise under_way(storage, pins, doing, wanted.id)
    if target.kept_by is None:
        refuse_beside(snapshots, wanted, pins)  # before there is a pin, which proves that it is none
    path = pin_path(wanted, runtime)
    try:
        made = _put(storage, path, target, pins)
        known = {path, *(one.path for one in pins)}
        beside = [one for one in read_pins(storage) if one.path not in known]
        if beside:
            raise under_way(storage, beside, doing)
        _wait_for_expiry(storage, wanted.id, made, runtime)
        if not pins:  # else an expiry could not end what it has begun
            _refuse_half_expired(snapshots, target, made)
        _refuse_gone(snapshots, target)
        refuse_broken(table, snapshots, target, pins)
    except PaimonStreamError:
        _withdraw(storage, path)
        raise
    for one in pins:
        storage.delete(one.path)
    return path


def _put(storage: Storage, path: str, target: Target, pins: Sequence[Pin]) -> int:
    """Writes the pin, and returns when. On a full disk the pins that it replaces make room for it. What then
    expires before the new pin exists is noticed by the look after that. If there is still no space, the
    interrupted rollbacks are given up, because what frees space is refused while they have pins."""
    try:
        return put_pin(storage, path, target.snapshot)
    except NoSpace:
        if not pins or target.by_pin:  # a pin that alone keeps the target stays
            raise
        for one in pins:
            storage.delete(one.path)
    try:
        return put_pin(storage, path, target.snapshot)
    except NoSpace as full:
        cure = "expire_snapshots, remove_orphan_files and delete_tag work again. Then roll back again."
        text = f"{full.message} The interrupted rollback was given up, so that space can be freed: {cure}"
        raise NoSpace(text, **full.context) from None


def _wait_for_expiry(storage: Storage, snapshot_id: int, now_millis: int, runtime: Runtime) -> None:
    """Waits until no expiry is at work on the target or a later snapshot. It begins no further one, because
    it sees the pin. One that was killed counts for five minutes."""
    notes = ExpiringNotes(storage)
    expiring = notes.youngest_from(snapshot_id, now_millis)
    for _ in range(_WAITS):
        if expiring is None:
            return
        runtime.clock.sleep(_WAIT_SECONDS)
        expiring = notes.youngest_from(snapshot_id, now_millis)
    why = f"snapshot {expiring} is being expired, or its expiry was interrupted within the last five minutes"
    refused = f"the rollback to snapshot {snapshot_id} was not begun. Nothing was changed. Try again in a few minutes."
    raise CommitContended(f"{why}, so {refused}", snapshot=snapshot_id).of_table(storage.location)


def _refuse_half_expired(snapshots: SnapshotStore, target: Target, now_millis: int) -> None:
    """Refuses a target that only a tag keeps while an expiry is at work or was interrupted, however long ago.
    It may have read the tags before this one was made, and then the tag's creator is about to remove it."""
    if target.kept_by is None or snapshots.stands(target.snapshot):
        return
    if ExpiringNotes(snapshots.storage).any_begun(snapshots, now_millis):
        kept, cure = target.snapshot.id, "Nothing was changed. Run expire_snapshots, then roll back again."
        why = f"an expiry is in progress or was interrupted, and only a tag keeps snapshot {kept}"
        text = f"{why}, so the rollback to it was not begun. {cure}"
        raise CommitContended(text, snapshot=kept).of_table(snapshots.location)


def _refuse_gone(snapshots: SnapshotStore, target: Target) -> None:
    storage, wanted = snapshots.storage, target.snapshot
    if target.kept_by is None:
        if snapshots.stands(wanted):
            return
        what = f"snapshot {wanted.id} has expired or was replaced"
    else:
        try:
            found = decode_snapshot(storage.read(target.kept_by, MOST_JSON), f"{storage.location}/{target.kept_by}")
            if found == wanted:
                return
        except NotFound:
            pass
        what = f"{target.kept_by} was deleted or replaced"
    text = f"{what} meanwhile. Nothing was changed. Take another target."
    raise NotFound(text, snapshot=wanted.id).of_table(storage.location)


def refuse_broken(table: Table, snapshots: SnapshotStore, target: Target, pins: Sequence[Pin]) -> None:
    """Refuses a target that nobody could read. Of a snapshot that stands, the lists and manifests are read. Of an
    expired one the data files must exist as well: whoever made its tag or pin may have been killed before he had looked
    again whether the snapshot stands. `pins` are those of interrupted rollbacks: one of them may have restored the
    target below snapshots that it had not removed yet. Raises `NotFound`, `StorageError`."""
    wanted = target.snapshot
    if target.kept_by is None:
        refuse_beside(snapshots, wanted, pins)
    stands = target.kept_by is None or snapshots.stands(wanted)
    keeper = "the pin of its interrupted rollback" if target.by_pin else "its tag"
    why_not = "cannot be read" if stands else f"has expired and {keeper} has lost files"
    try:
        refuse_missing(table, wanted, data=not stands)
    except (CorruptMetadata, NotFound) as why:
        cure = f"Roll back to another target{' with take_over (--take-over)' if pins else ''}."
        if pins and not snapshots.ids():
            cure = "The table is empty. When it has a snapshot, roll back to it with take_over (--take-over)."
        refused = f"the table cannot be rolled back to it: {why} Nothing was changed. {cure}"
        text = f"snapshot {wanted.id} {why_not}, so {refused}"
        raise NotFound(text, snapshot=wanted.id).of_table(table.location) from None


def _withdraw(storage: Storage, path: str) -> None:
    try:
        storage.delete(path)
    except StorageError as why:
        cure = "Roll back with take_over to remove it. %s"
        text = f"%s: the pin %s of a rollback that was not begun could not be removed. {cure}"
        _LOG.warning(text, storage.location, path, why)
