"""What is known of a commit whose snapshot another engine replaced: its files, and how to commit them
again. The nonce of a snapshot is the name of its delta manifest list. The list and its manifests
stay on the storage when the snapshot's own file is replaced, until orphan files are removed
(exactly-once.md §7).
"""

import shlex
from dataclasses import dataclass
from typing import Any

from paimon_stream import errors
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.storage.base import Storage
from paimon_stream.storage.location import KIND_OF, scheme_of
from paimon_stream.table.manifests import ManifestStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFacts:
    """The number of files and rows that a lost commit had added, None if that is not known, and the
    command that commits the files again. In a store, it needs the storage options as well.
    """

    files: int | None
    rows: int | None
    command: str
    in_store: bool

    @classmethod
    def of(
        cls,
        location: str,
        user: str,
        batch: int,
        added: list[DataFileMeta] | None,
        which: tuple[str, ...] = (),
    ) -> "LostFacts":
        """The facts of a commit that had added these files. `which` are the options that say where
        they are named, if they are not in a journal.
        """
        return cls(
            files=None if added is None else len(added),
            rows=None if added is None else sum(one.row_count for one in added),
            command=shlex.join(
                (
                    "paimon-stream",
                    "recommit",
                    "--user",
                    user,
                    "--batch",
                    str(batch),
                    *which,
                    location,
                )
            ),
            in_store=scheme_of(location) in KIND_OF,
        )

    @property
    def sentence(self) -> str:
        """The numbers as a sentence."""
        if self.files is None:
            return "how many is not known, because its manifests are gone."
        return f"{self.rows:,} in {self.files:,} {'file' if self.files == 1 else 'files'}."

    @property
    def cure(self) -> str:
        """The command, and what has to be added to it."""
        more = (
            ", and a --storage-option for each storage option of this writer"
            if self.in_store
            else ""
        )
        return f"{self.command} (with --yes after a look at what it shows{more})"

    @property
    def context(self) -> dict[str, Any]:
        """The facts for programs."""
        return {"files": self.files, "rows": self.rows, "command": self.command}


def lost_facts(storage: Storage, user: str, batch: int, snapshot: SnapshotRef) -> LostFacts:
    """The facts of a commit that was this snapshot. They are for a message, so nothing is
    raised.
    """
    entries = lost_entries(ManifestStore(storage), snapshot.nonce)
    added = None if entries is None else [one.file for one in entries if one.kind is FileKind.ADD]
    which = ("--snapshot", str(snapshot.id), "--delta-list", snapshot.nonce)
    return LostFacts.of(storage.location, user, batch, added, which)


def lost_entries(manifests: ManifestStore, nonce: str) -> list[ManifestEntry] | None:
    """The entries of the delta of a snapshot that had this nonce; None if they cannot be read."""
    try:
        return [entry for meta in manifests.read_list(nonce) for entry in manifests.read(meta)]
    except (errors.CorruptMetadata, errors.StorageError):
        return None
