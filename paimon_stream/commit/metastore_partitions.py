"""Tells a metastore of the partitions that a commit has filled, where the table's catalog has one and
the table asks for it (`metastore.partitioned-table`; spec/catalogs.md §6.2). Where the table asks for
previews of its tags, a commit tells of the present one in the same way (`metastore_tags.py`).

Invariants: no commit fails because of the metastore. A partition that the metastore may lack is in
a note (`table/partition_notes.py`), which the next commit of this process or the next one who opens
the table by its name tells. A commit looks only at the partitions that it touches.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, cast

from paimon_stream import options as opt
from paimon_stream.commit.metastore_tags import is_previewing, previewed_folders
from paimon_stream.errors import PaimonStreamError, StorageError
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.runtime import Runtime
from paimon_stream.storage.branch import branch_names, whole_of
from paimon_stream.storage.together import Request
from paimon_stream.table.layout import Layout
from paimon_stream.table.partition_notes import (
    PartitionNote,
    encode_note,
    note_path,
    remove_notes,
)
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

_KNOWN_SECONDS: Final = 30 * 60.0
"""How long a partition counts as told, as in Java. Somebody may drop it meanwhile."""
_REST: Final = 10
"""After a failure, the metastore is left alone ten times as long as the failure took. So a
metastore that is silent delays the commits by a tenth at most.
"""

OfFolders = Callable[[Sequence[str]], None]
"""Adds the partitions in these folders to a metastore, or drops them there."""


class MetastorePartitions:
    """What one committer knows of the partitions in the metastore."""

    def __init__(self, table: Table, runtime: Runtime) -> None:
        self._table = table
        self._storage = table.storage
        self._runtime = runtime
        self._previews = is_previewing(table)
        self._add = _method_of(table, "add_partitions")
        """None for a table whose partitions are in no metastore."""
        self._told: dict[str, float] = {}
        """When the metastore was told of each folder, by the monotonic clock; the oldest first."""
        self._noted: dict[str, tuple[str, ...]] = {}
        """The folders in the notes of the commit that is under way, by the path of the note."""
        self._owed: dict[str, tuple[str, ...]] = {}
        """The folders in the notes of earlier commits, of which the metastore was not told."""
        self._rests_until = 0.0

    def note(
        self, snapshot: Snapshot, entries: Iterable[ManifestEntry], *, after_own: bool
    ) -> list[Request]:
        """Requests that write a note of the partitions that a commit fills and that are not known to
        be in the metastore. They must succeed before the commit is published.

        Args:
            snapshot: the snapshot that is to be published.
            entries: its changes.
            after_own: whether the snapshot follows the last one of this committer. If not, somebody
                else may have dropped partitions meanwhile.
        """
        if self._add is None:
            return []
        if not after_own:
            self._told.clear()
        folders = self._unknown(self._filled(snapshot, entries))
        if not folders:
            return []
        path = note_path(self._runtime.ids.uuid())
        self._noted[path] = folders
        return [partial(self._storage.write, path, encode_note(PartitionNote(folders)))]

    def _filled(self, snapshot: Snapshot, entries: Iterable[ManifestEntry]) -> Iterable[str]:
        """The folders of the partitions that a commit fills, and of the tag that it previews."""
        if self._previews:
            return previewed_folders(self._table, snapshot)
        filled = {entry.partition for entry in entries if entry.kind is FileKind.ADD}
        return (_folder(self._table.layout, row) for row in filled)

    def withdraw(self) -> None:
        """Removes the notes of a commit that has published nothing. A note that cannot be removed
        stays: a partition without rows does no harm.
        """
        paths = list(self._noted)
        self._noted.clear()
        self._remove(paths)

    def tell(self) -> None:
        """Tells the metastore of all noted partitions, once their commit is published. Warns if it
        does not take them.
        """
        if self._add is None:
            return
        self._owed |= self._noted
        self._noted.clear()
        began = self._runtime.clock.monotonic()
        if not self._owed or began < self._rests_until:
            return
        folders = sorted({folder for noted in self._owed.values() for folder in noted})
        try:
            self._add(folders)
        except PaimonStreamError as failed:
            ended = self._runtime.clock.monotonic()
            self._rests_until = ended + _REST * (ended - began)
            _LOG.warning(
                "%s: the metastore lacks %d partitions that were written, such as %s. A later commit "
                "tells it again, and so does opening the table by its name. %s",
                self._storage.location,
                len(folders),
                folders[0],
                failed,
            )
            return
        self._told |= dict.fromkeys(folders, began)
        paths = list(self._owed)
        self._owed.clear()
        self._remove(paths)

    def _unknown(self, folders: Iterable[str]) -> tuple[str, ...]:
        """Those of the folders, sorted, that are neither known to be in the metastore nor noted."""
        oldest = self._runtime.clock.monotonic() - _KNOWN_SECONDS
        while self._told and next(iter(self._told.values())) < oldest:
            del self._told[next(iter(self._told))]
        noted = {
            folder for folders_of in (self._noted | self._owed).values() for folder in folders_of
        }
        return tuple(sorted(set(folders) - self._told.keys() - noted))

    def _remove(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        try:
            remove_notes(self._storage, paths)
        except StorageError as failed:  # the next one who opens the table removes them
            _LOG.warning("%s: notes of partitions stay: %s", self._storage.location, failed)


def drop_from_metastore(table: Table, partitions: Iterable[bytes]) -> None:
    """Drops partitions that the table no longer has from its metastore, if it is told of partitions.
    In a table with branches they stay there, because a branch may have them. Warns if the metastore
    does not drop them.

    Args:
        table: the table.
        partitions: the partitions, as serialized rows.
    """
    drop = _method_of(table, "drop_partitions")
    if drop is None:
        return
    try:
        if not branch_names(whole_of(table.storage)):
            drop(sorted(_folder(table.layout, row) for row in partitions))
    except PaimonStreamError as failed:
        _LOG.warning(
            "%s: partitions that have expired stay in the metastore, without rows. Drop them there. %s",
            table.location,
            failed,
        )


def _method_of(table: Table, name: str) -> OfFolders | None:
    """The method of the table's storage that tells a metastore of partitions. None for a table
    whose partitions are in no metastore.
    """
    is_told: bool = table.options.value(opt.PARTITIONED_IN_METASTORE)
    if not ((is_told and table.partition_types) or is_previewing(table)):
        return None
    return cast("OfFolders | None", getattr(table.storage, name, None))


def _folder(layout: Layout, partition: bytes) -> str:
    """The folder of a partition, relative to the table. Raises `FormatError`."""
    return "/".join(filter(None, (layout.directory, layout.partition(partition))))
