"""Removing what a dead attempt at a batch left, once nobody can publish it any more.

An attempt that was killed leaves data files, and perhaps staged manifests. They may be deleted only
when a published snapshot of the same batch has been read that does not reference them: from then on
every attempt, even a paused one that wakes up, finds the batch taken (design, Exactly once, step 4; the
ownership law, style.md §6). Everything here is best effort: what stays is an orphan, never a hole.
"""

from __future__ import annotations

import logging

from paimon_stream.commit.journal import JournalEntry
from paimon_stream.commit.message import CommitMessage
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import Layout, manifest_path
from paimon_stream.table.manifests import ManifestStore

__all__ = ["data_files", "remove_dead_attempts", "remove_files"]

_LOG = logging.getLogger(__name__)


def data_files(layout: Layout, messages: tuple[CommitMessage, ...]) -> tuple[str, ...]:
    """The paths, relative to the table, of all files that the messages would add."""
    paths: list[str] = []
    for message in messages:
        for file in message.new_files:
            names = (file.file_name, *file.extra_files)
            paths.extend(layout.data_file(message.partition, message.bucket, name) for name in names)
    return tuple(paths)


def remove_files(storage: Storage, paths: tuple[str, ...]) -> int:
    """Deletes the files, going on after a failure; returns how many could be asked for."""
    removed = 0
    for path in paths:
        try:
            storage.delete(path)
            removed += 1
        except PaimonStreamError as why:
            _LOG.warning("%s: could not remove %s, it stays as an orphan: %s", storage.location, path, why)
    return removed


def remove_dead_attempts(
    storage: Storage, layout: Layout, manifests: ManifestStore, entry: JournalEntry, published: Snapshot
) -> int:
    """Removes what the attempts that `entry` names left and `published`, a snapshot of the same batch,
    does not reference; returns how many files. Never raises: a failure leaves orphans and a warning."""
    try:
        metas = manifests.base_and_delta(published)
        delta = manifests.read_list(published.delta_manifest_list, published.delta_manifest_list_size)
        live = {added.file.file_name for meta in delta for added in manifests.read(meta)}
        staged = [
            stat.path
            for uuid in entry.stage_uuids
            for prefix in (f"manifest-{uuid}-", f"manifest-list-{uuid}-")
            for stat in storage.list_files("manifest", prefix)
        ]
    except PaimonStreamError as why:
        _LOG.warning("%s: left the files of a dead attempt as orphans: %s", storage.location, why)
        return 0
    kept = {manifest_path(meta.file_name) for meta in metas}
    kept |= {manifest_path(published.base_manifest_list), manifest_path(published.delta_manifest_list)}
    prepared = (*entry.abandoned, *data_files(layout, entry.messages))
    dead = [path for path in prepared if path.rpartition("/")[2] not in live]
    return remove_files(storage, (*dead, *(path for path in staged if path not in kept)))
