"""Rolling a table back to an earlier snapshot or tag, as Java 1.4.2 does (semantics.md §11).

Later snapshots, tags and long-lived changelogs are removed. Their data files and manifests stay until orphan
files are removed, because a paused writer may still publish on top of them. The hint LATEST is removed before
anything else and written last. Without it every engine lists the snapshots and takes the newest, but Java
trusts a hint whose snapshot has no successor (semantics.md §2.4). The newest snapshot is removed first, so at
every moment the table is in a state that it had before, and a killed rollback can be repeated.

A stream whose batches are removed notices that at its next batch and stops (`TableRolledBack`), because Spark
does not replay batches that it recorded as done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from paimon_stream.errors import CommitContended, NotFound
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot, encode_snapshot
from paimon_stream.maintenance.report import Report
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import EARLIEST_HINT, LATEST_HINT, id_in_name, snapshot_path, tag_path
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["RollbackReport", "rollback_to"]

_LOG = logging.getLogger(__name__)
_ROUNDS: Final = 10
_CHANGELOG: Final = "changelog"


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
    target: int | str,
    *,
    dry_run: bool = False,
    storage: Storage | None = None,
    runtime: Runtime | None = None,
) -> RollbackReport:
    """Rolls the table back to a snapshot (an id) or a tag (a name). If a tag's snapshot has expired, it is
    restored from the tag. Without `dry_run` it deletes, because the target alone decides what is removed.

    Stop the writers first. Streams that wrote removed snapshots stop with `TableRolledBack`, and a writer
    that commits in the meantime may make the rollback fail with `CommitContended`. Raises `NotFound` for a
    snapshot or tag that does not exist, `CorruptMetadata`, `StorageError`.
    """
    used = storage or table.storage
    snapshots = SnapshotStore(used, runtime)
    tags = read_tags(used)
    kept = _target(used, snapshots, tags, target)
    removed_tags = tuple(sorted(name for name, one in tags.items() if one.id > kept.id))
    later = tuple(one for one in snapshots.ids() if one > kept.id)
    changelogs = _changelogs_after(used, kept.id)
    streams = _streams(snapshots, later)
    gone = set(later)
    if not dry_run:
        used.delete(LATEST_HINT)
        _bring_back(used, snapshots, kept)
        gone = _remove_later(used, snapshots, kept)
        _remove_changelogs(used, changelogs)
        for name in removed_tags:
            used.delete(tag_path(name))
        used.write(LATEST_HINT, str(kept.id).encode())
        if streams:
            _LOG.warning(
                "%s was rolled back to snapshot %d. Streams that wrote after it stop at their next batch "
                "(TableRolledBack): %s.",
                used.location,
                kept.id,
                ", ".join(f"{user} from batch {batch} on" for user, batch in streams.items()),
            )
    return RollbackReport(
        location=used.location,
        snapshot=kept.id,
        tag=target if isinstance(target, str) else None,
        snapshots=tuple(sorted(gone)),
        tags=removed_tags,
        changelogs=changelogs,
        streams=streams,
        dry_run=dry_run,
    )


def _target(
    storage: Storage, snapshots: SnapshotStore, tags: Mapping[str, Snapshot], target: int | str
) -> Snapshot:
    if isinstance(target, str):
        found = tags.get(target)
        what = f"tag {target!r}"
    else:
        found = snapshots.find(target) or next((one for one in tags.values() if one.id == target), None)
        what = f"snapshot {target}"
    if found is None:
        raise NotFound(
            f"{storage.location} has no {what}. Nothing was changed. PaimonTable.snapshots() and tags() list "
            "the existing ones.",
            table=storage.location,
            target=target,
        )
    return found


def _streams(snapshots: SnapshotStore, ids: tuple[int, ...]) -> dict[str, int]:
    """The users who published the removed snapshots, each with its smallest identifier. Batch commits are
    left out."""
    found: dict[str, int] = {}
    for snapshot_id in ids:
        snapshot = snapshots.find(snapshot_id)
        if snapshot is not None and snapshot.commit_identifier != BATCH_IDENTIFIER:
            user, batch = snapshot.commit_user, snapshot.commit_identifier
            found[user] = min(batch, found.get(user, batch))
    return found


def _bring_back(storage: Storage, snapshots: SnapshotStore, kept: Snapshot) -> None:
    """Makes sure that the snapshot's file exists before any other is removed. EARLIEST then points to it, so
    that other expirers start there."""
    there = snapshots.find(kept.id)
    if there is not None and there.nonce == kept.nonce:
        return
    if there is None:
        storage.put_if_absent(snapshot_path(kept.id), encode_snapshot(kept))
    else:  # a paused writer created it again; it is not part of the table's lineage
        storage.write(snapshot_path(kept.id), encode_snapshot(kept))
    storage.write(EARLIEST_HINT, str(kept.id).encode())


def _remove_later(storage: Storage, snapshots: SnapshotStore, kept: Snapshot) -> set[int]:
    gone: set[int] = set()
    for _ in range(_ROUNDS):
        later = [one for one in snapshots.ids() if one > kept.id]
        if not later:
            return gone
        storage.delete(LATEST_HINT)  # a writer may have committed in the meantime
        for snapshot_id in reversed(later):
            storage.delete(snapshot_path(snapshot_id))
        gone.update(later)
    raise CommitContended(
        f"{storage.location} could not be rolled back to snapshot {kept.id}: a writer keeps committing. "
        "Stop it, and roll back again.",
        table=storage.location,
        snapshot=kept.id,
    )


def _changelogs_after(storage: Storage, snapshot_id: int) -> tuple[int, ...]:
    prefix = f"{_CHANGELOG}-"
    found = (id_in_name(stat.name, prefix) for stat in storage.list_files(_CHANGELOG, prefix))
    return tuple(sorted(one for one in found if one is not None and one > snapshot_id))


def _remove_changelogs(storage: Storage, ids: tuple[int, ...]) -> None:
    """Removes the long-lived changelogs of removed snapshots. As in Java, their LATEST hint is set first; it
    is −1 if none is left."""
    if not ids:
        return
    prefix = f"{_CHANGELOG}-"
    all_ids = [id_in_name(stat.name, prefix) for stat in storage.list_files(_CHANGELOG, prefix)]
    left = [one for one in all_ids if one is not None and one not in ids]
    storage.write(f"{_CHANGELOG}/LATEST", str(max(left, default=-1)).encode())
    for one in reversed(ids):
        storage.delete(f"{_CHANGELOG}/{prefix}{one}")
