"""Removes the files that a dead attempt at a batch left, once nobody can publish them any more.

An attempt that was killed leaves data files, and perhaps staged manifests. They may be deleted only
after reading a published snapshot of the same batch that does not refer to them. From then on every
attempt, even a paused one that wakes up, finds the batch committed (exactly-once.md §4, the
ownership law). The proof needs two things: the snapshot stands, and the next snapshot shows that no
other attempt was published (`_is_proof`).

An attempt may have been published, tagged or branched, and then rolled back. So files to which a
tag, a long-lived changelog or another branch refers stay.

The removal may be incomplete: a file that stays is an orphan. A file that is needed is never
removed.
"""

import logging
from collections.abc import Iterator, Sequence

from paimon_stream.commit.plan import collect
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import CommitKind, Snapshot
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.layout import Layout, id_in_name
from paimon_stream.table.lineage import published_after
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import remove_files, written_files
from paimon_stream.table.references import names_kept_beside_history
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)


def remove_dead_attempts(
    table: Table,
    entry: JournalEntry,
    published: Sequence[Snapshot],
    runtime: Runtime,
    *,
    complete: bool,
) -> int:
    """Removes the files of the attempts that an entry names, unless the batch's snapshots, a tag, a
    long-lived changelog or another branch reference them. Never raises: a failure leaves orphans
    and logs a warning. Even if the entry is damaged, only files with the paths of data files, index
    files and staged metadata are removed.

    Args:
        table: the table.
        entry: the journal's entry of the batch.
        published: the batch's snapshots, ascending.
        runtime: the clock and the ids.
        complete: whether the batch has all its snapshots. If not, the attempt that published the
            first one may still publish the compaction of the batch. So the staged files of that
            attempt stay, and all files that compactions made.

    Returns:
        How many files were removed.
    """
    storage = table.storage
    try:
        if not published:
            return 0
        manifests = ManifestStore(storage)
        if not _is_proof(SnapshotStore(storage, runtime), manifests, published[-1]):
            return 0
        dead_paths = _dead_paths(table, manifests, entry, published, runtime, complete=complete)
    except PaimonStreamError as error:
        _LOG.warning("%s: left the files of a dead attempt as orphans: %s", storage.location, error)
        return 0
    removed = remove_files(storage, dead_paths)
    if removed:
        _LOG.info("Removed %d files of a dead attempt at batch %d.", removed, entry.batch_id)
    return removed


def _dead_paths(
    table: Table,
    manifests: ManifestStore,
    entry: JournalEntry,
    published: Sequence[Snapshot],
    runtime: Runtime,
    *,
    complete: bool,
) -> list[str]:
    """The files of the attempts that an entry names, without the files to which something refers.

    Args:
        table: the table.
        manifests: reads the manifests of the table.
        entry: as in `remove_dead_attempts`.
        published: as in `remove_dead_attempts`.
        runtime: the clock and the ids.
        complete: as in `remove_dead_attempts`.
    """
    storage = table.storage
    layout = table.layout
    prepared = list(
        _in_layout(storage, layout, (*entry.abandoned, *written_files(layout, entry.messages)))
    )
    kept: set[str] = set()
    for snapshot in published:
        kept.update(_references(manifests, snapshot))
    staged: list[str] = []
    for uuid in entry.stage_uuids:
        has_published = any(uuid in snapshot.delta_manifest_list for snapshot in published)
        if complete or not has_published:
            staged += _staged_paths(storage, uuid)
            if entry.merges:
                staged += _index_paths(storage, uuid)
    paths = [*prepared, *staged]
    removable = {_file_name(path) for path in paths} - kept
    # An attempt may have been published and then rolled back, or replaced by another engine. Before
    # that, its snapshot or a later one may have been tagged or branched.
    kept |= names_kept_beside_history(storage, runtime, removable)
    return [path for path in paths if _file_name(path) not in kept]


def _staged_paths(storage: Storage, uuid: str) -> Iterator[str]:
    """The manifests, lists and index manifests that an attempt has staged."""
    for prefix in (f"manifest-{uuid}-", f"manifest-list-{uuid}-", f"index-manifest-{uuid}-"):
        yield from _numbered_paths(storage, "manifest", prefix)


def _index_paths(storage: Storage, uuid: str) -> Iterator[str]:
    """The files with deletion vectors that a merge has written. Those that lie beside data files
    stay as orphans.
    """
    yield from _numbered_paths(storage, "index", f"index-{uuid}-")


def _numbered_paths(storage: Storage, folder: str, prefix: str) -> Iterator[str]:
    """The files of a folder whose names are a prefix and a number."""
    for stat in storage.list_files(folder, prefix):
        if id_in_name(stat.name, prefix) is not None:
            yield stat.path


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_proof(snapshots: SnapshotStore, manifests: ManifestStore, published: Snapshot) -> bool:
    """Whether a published snapshot shows that no other attempt at its batch was published or will
    be. If the snapshot has expired or was rolled back, a paused attempt may publish again. If the
    next snapshot has none of this snapshot's manifests, another attempt with the same data files
    may have been published before, and have expired.
    """
    if not snapshots.stands(published):
        return False
    following = snapshots.find(published.id + 1)
    if following is None:
        latest = snapshots.latest()
        return latest is not None and latest.id == published.id
    inherited = manifests.read_list(following.base_manifest_list, following.base_manifest_list_size)
    names = {meta.file_name for meta in inherited}
    return any(meta.file_name in names for meta in manifests.delta(published))


def _in_layout(storage: Storage, layout: Layout, paths: Sequence[str]) -> Iterator[str]:
    """The paths that a data file or an index file of the table can have. Logs the others."""
    for path in paths:
        if layout.holds(path):
            yield path
        else:
            _LOG.warning(
                "%s: a journal entry names %r as a data file of a dead attempt, but no data file "
                "can have this path. The file was left.",
                storage.location,
                path,
            )


def snapshots_of_batch(
    snapshots: SnapshotStore, entry: JournalEntry, newest: Snapshot
) -> tuple[tuple[Snapshot, ...], bool]:
    """The snapshots of a batch, and whether the batch can have no further ones. `newest` is the
    batch's newest snapshot. If any snapshot since the judgement of the attempt has expired, none is
    returned, because the expired snapshot may have been another attempt at the batch. A COMPACT is
    the second of two snapshots, unless the batch had only a compaction. The first of the two came
    after the judgement.
    """
    base = 0 if entry.base is None else entry.base.id
    window = published_after(snapshots, entry.base, newest)
    if base >= newest.id or not window.complete:
        return (), True
    if newest.commit_kind is not CommitKind.COMPACT:
        by_this_attempt = entry.stage_uuids[0] in newest.delta_manifest_list
        compacts = collect(entry.messages, table_buckets=entry.total_buckets).compact
        return (newest,), by_this_attempt and not compacts
    of_batch = tuple(
        snapshot
        for snapshot in window.snapshots
        if snapshot.commit_user == newest.commit_user
        and snapshot.commit_identifier == newest.commit_identifier
    )
    return of_batch, True


def _references(manifests: ManifestStore, snapshot: Snapshot) -> Iterator[str]:
    """The names of all metadata files of the snapshot, and of all files that it added."""
    delta = manifests.delta(snapshot)
    changelog = manifests.changelog(snapshot)
    for meta in (*delta, *changelog):
        for entry in manifests.read(meta):
            yield from (entry.file.file_name, *entry.file.extra_files)
    yield from (name for name, _ in snapshot.manifest_lists)
    yield from (meta.file_name for meta in (*manifests.base_and_delta(snapshot), *changelog))
    if snapshot.index_manifest is not None:
        yield snapshot.index_manifest
        for index_entry in manifests.index_entries(snapshot.index_manifest):
            yield index_entry.file.file_name
