"""Every file name that something of a table refers to, for those who look for files nobody refers to.

What refers to files: the journals of streams (files that wait to be committed), and the *roots*, that is
the snapshots, tags and long-lived changelogs of the table and of all its branches.

Invariants:

- Journals are read before roots. A journal entry goes only after its batch was published, so what is no
  longer in a journal is in a root that is read after it.
- Roots are listed again until a listing shows none that has not been read whole, and none vanished in
  between. So what expires, is rolled back, tagged or committed meanwhile does not slip through.
- Whatever cannot be read raises: then nothing is known to be unused. Only what is missing because its root
  itself has gone meanwhile is passed over.
- Names are kept as 64-bit hashes, eight bytes each. Two names with one hash make a file look used that is
  not, never the reverse.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CommitContended, CorruptMetadata, NotFound
from paimon_stream.format.avro_file import read_file
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.mentions import Mentions
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot
from paimon_stream.maintenance.progress import Progress, silent
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.table.journal import Journal
from paimon_stream.table.layout import OWN_FOLDER, id_in_name, manifest_path
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.table import Table

__all__ = ["BRANCH_FOLDER", "CHANGELOG_FOLDER", "References", "branches", "name_hash"]

BRANCH_FOLDER: Final = "branch"
CHANGELOG_FOLDER: Final = "changelog"
_BRANCH_PREFIX: Final = "branch-"
_ROUNDS: Final = 20
_PARSE_ATTEMPTS: Final = 10
_PARSE_WAIT_SECONDS: Final = 0.2


def name_hash(name: str) -> int:
    """The hash of a file's bare name, valid in this process only."""
    return hash(name.encode("utf-8", "surrogatepass"))


def branches(storage: Storage) -> list[str]:
    """The folders below which snapshots lie: the table's own (`""`), and `branch/branch-<name>` of each.

    Raises `CorruptMetadata` for a branch without a schema, as Java refuses it.
    """
    found = [""]
    for name in storage.list_folders(BRANCH_FOLDER):
        if not name.startswith(_BRANCH_PREFIX):
            continue
        folder = f"{BRANCH_FOLDER}/{name}"
        schemas = storage.list_files(f"{folder}/schema", "schema-")
        if not any(id_in_name(one.name, "schema-") is not None for one in schemas):
            raise CorruptMetadata(
                f"{storage.location}/{folder} is a branch without a schema, so what it refers to is not "
                "known. Delete the branch with the engine that made it, or restore its schema.",
                path=f"{storage.location}/{folder}",
            )
        found.append(f"{folder}/")
    return found


@dataclass(slots=True)
class References:
    """The names in use in one table, read once by `read`.

    `mentions` knows which data file names are in question. `protected` are the uuids of metadata that
    journalled attempts may still publish.
    """

    table: Table
    storage: Storage
    runtime: Runtime
    mentions: Mentions
    progress: Progress = silent
    protected: set[str] = field(default_factory=set, init=False)
    roots: int = field(default=0, init=False)
    manifests: int = field(default=0, init=False)
    journals: int = field(default=0, init=False)
    _names: array[int] = field(default_factory=lambda: array("q"), init=False)
    _read: set[str] = field(default_factory=set, init=False)

    def read(self) -> npt.NDArray[np.int64]:
        """The hashes of all names in use, sorted.

        Raises `CorruptMetadata`, `UnknownVersion`, `StorageError` for what cannot be read, and
        `CommitContended` where roots come and go faster than they can be read.
        """
        self._read_journals()
        known: set[FileStat] = set()
        for _ in range(_ROUNDS):
            unread = [root for root in self._list_roots() if root not in known]
            if not unread:
                return np.unique(np.frombuffer(self._names, dtype=np.int64))
            for done, root in enumerate(unread):
                self.progress("snapshots", done, len(unread))
                if self._read_root(root):
                    known.add(root)
                    self.roots += 1
        raise CommitContended(
            f"{self.storage.location}: snapshots came and went while they were read, {_ROUNDS} times. "
            "Nothing was deleted. Try again when fewer writers are at work.",
            table=self.storage.location,
            attempts=_ROUNDS,
        )

    def _add(self, *names: str | None) -> None:
        self._names.extend([name_hash(name) for name in names if name is not None])

    # -- journals ---------------------------------------------------------------------------------

    def _read_journals(self) -> None:
        for folder in self.storage.list_folders(OWN_FOLDER):
            journal = Journal.in_folder(self.storage, f"{OWN_FOLDER}/{folder}")
            for batch in journal.batches():
                entry = journal.read(batch)
                if entry is None:
                    continue  # its batch was published since the listing
                self.journals += 1
                self._add(*(path.rpartition("/")[2] for path in entry.abandoned))
                for message in entry.messages:
                    self._add_message(message)
                self.protected.update(entry.stage_uuids)

    def _add_message(self, message: CommitMessage) -> None:
        data = (
            *message.new_files,
            *message.changelog_files,
            *message.compact_after,
            *message.compact_changelog_files,
        )
        for file in data:
            self._add(file.file_name, *file.extra_files)
        for index in (*message.new_index_files, *message.compact_new_index_files):
            self._add(index.file_name)

    # -- roots ------------------------------------------------------------------------------------

    def _list_roots(self) -> Iterator[FileStat]:
        for branch in branches(self.storage):
            for folder, prefix in (
                ("tag", "tag-"),
                ("snapshot", "snapshot-"),
                (CHANGELOG_FOLDER, "changelog-"),
            ):
                for stat in self.storage.list_files(f"{branch}{folder}", prefix):
                    if folder == "tag" or id_in_name(stat.name, prefix) is not None:
                        yield stat

    def _read_root(self, root: FileStat) -> bool:
        """Takes down what the root refers to; False if it went meanwhile."""
        snapshot = self._decoded(root)
        if snapshot is None:
            return False
        try:
            self._read_snapshot(snapshot, whole=not root.name.startswith("changelog-"))
        except CorruptMetadata:
            if self._decoded(root) == snapshot:
                raise
            return False
        return True

    def _decoded(self, root: FileStat) -> Snapshot | None:
        """The root's content, read again for a while if it is half written."""
        path = f"{self.storage.location}/{root.path}"
        for attempt in range(_PARSE_ATTEMPTS):
            try:
                return decode_snapshot(self.storage.read(root.path), path)
            except NotFound:
                return None
            except CorruptMetadata:
                if attempt == _PARSE_ATTEMPTS - 1:
                    raise
                self.runtime.clock.sleep(_PARSE_WAIT_SECONDS)
        raise AssertionError("unreachable")

    def _read_snapshot(self, snapshot: Snapshot, *, whole: bool) -> None:
        """`whole`: all of its lists must be there. A long-lived changelog keeps only those it needs."""
        store = ManifestStore(self.storage, self.table.options, self.runtime)
        lists = (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
        )
        self._add(snapshot.index_manifest, snapshot.statistics, *(name for name, _ in lists))
        for name, size in lists:
            if name is None or name in self._read or not (whole or self._has_manifest(name)):
                continue
            for meta in store.read_list(name, size):
                if meta.file_name not in self._read and (whole or self._has_manifest(meta.file_name)):
                    self._read_manifest(meta)
            self._read.add(name)
        index = snapshot.index_manifest
        if index is not None and index not in self._read and (whole or self._has_manifest(index)):
            for entry in store.index_entries(index):
                self._add(entry.file.file_name)
            self._read.add(index)

    def _read_manifest(self, meta: ManifestFileMeta) -> None:
        path = f"{self.storage.location}/{manifest_path(meta.file_name)}"
        try:
            data = self.storage.read(manifest_path(meta.file_name))
        except NotFound:
            raise CorruptMetadata(
                f"{path} is missing, although a snapshot names it. {_CURE}", path=path
            ) from None
        blocks = read_file(data, path).blocks
        held, noted = sum(block.records for block in blocks), meta.num_added_files + meta.num_deleted_files
        if held != noted:
            raise CorruptMetadata(
                f"{path} holds {held} entries; its manifest list says {noted}. {_CURE}", path=path
            )
        for block in blocks:
            self._names.extend(self.mentions.hashes(block.data))
        self._add(meta.file_name)
        self._read.add(meta.file_name)
        self.manifests += 1

    def _has_manifest(self, name: str) -> bool:
        return self.storage.exists(manifest_path(name))


_CURE: Final = (
    "Nothing was deleted. Restore the file from a backup, let expiry finish with the snapshots that use it, "
    "or roll the table back to one that does not."
)
