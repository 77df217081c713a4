"""What is known of a commit whose snapshot another engine replaced: its files, and how to commit them
again.

The nonce of a snapshot is the name of its delta manifest list. The list and its manifests
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
from paimon_stream.storage.location import HDFS_SCHEMES, KIND_OF, scheme_of
from paimon_stream.table.manifests import ManifestStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFacts:
    """What a lost commit had added, and how to commit it again.

    Attributes:
        files: how many files it had added. None if that is not known.
        rows: how many rows these files have. None if that is not known.
        command: the command that commits the files again.
        in_store: whether the table is in a store, so that the command needs the storage options,
            too.
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
        """The facts of a commit.

        Args:
            location: the table.
            user: the commit user.
            batch: the commit identifier.
            added: the files that it had added. None if they are not known.
            which: the options of the command that say where the files are named, if no journal
                names them.
        """
        named_by = ("--user", user, "--batch", str(batch), *which)
        files = None
        rows = None
        if added is not None:
            files = len(added)
            rows = sum(file.row_count for file in added)
        return cls(
            files=files,
            rows=rows,
            command=shlex.join(("paimon-stream", "recommit", *named_by, location)),
            in_store=scheme_of(location) in (*KIND_OF, *HDFS_SCHEMES),
        )

    @property
    def sentence(self) -> str:
        """The numbers as a sentence."""
        if self.files is None:
            return "their number is not known, because its manifests are gone."
        noun = "file" if self.files == 1 else "files"
        return f"{self.rows:,} in {self.files:,} {noun}."

    @property
    def cure(self) -> str:
        """The command, and what has to be added to it."""
        if self.in_store:
            return (
                f"{self.command} (it shows what it would do; add --yes to do it, and a --storage-option for each "
                "storage option of this writer)"
            )
        return f"{self.command} (it shows what it would do; add --yes to do it)"

    @property
    def context(self) -> dict[str, Any]:
        """The facts for programs."""
        return {"files": self.files, "rows": self.rows, "command": self.command}


def lost_facts(storage: Storage, user: str, batch: int, snapshot: SnapshotRef) -> LostFacts:
    """The facts of the commit that made this snapshot. They are for a message, so this raises
    nothing.
    """
    entries = lost_entries(ManifestStore(storage), snapshot.nonce)
    added = None
    if entries is not None:
        added = [entry.file for entry in entries if entry.kind is FileKind.ADD]
    which = ("--snapshot", str(snapshot.id), "--delta-list", snapshot.nonce)
    return LostFacts.of(storage.location, user, batch, added, which)


def lost_entries(manifests: ManifestStore, nonce: str) -> list[ManifestEntry] | None:
    """The entries of the delta of a snapshot that had this nonce; None if they cannot be read."""
    try:
        return [entry for meta in manifests.read_list(nonce) for entry in manifests.read(meta)]
    except (errors.CorruptMetadata, errors.StorageError):
        return None
