"""Collects what is known of a commit whose snapshot another engine replaced: its files, and how to
commit these files again.

The nonce of a snapshot is the name of its delta manifest list. The list and its manifests stay on
the storage when the snapshot's own file is replaced, until orphan files are removed
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
    """The number of files and rows of a lost commit, and the command that commits them again.

    Attributes:
        files: how many files the commit had added. None if that is not known.
        rows: how many rows these files have. None if that is not known.
        command: the command that commits the files again.
        in_store: whether the table is in an object store or in HDFS. If so, the command also needs
            the storage options.
        merges: whether the commit had merged rows into those that the table had then. Its files fit
            no other rows, so they are not committed again.
    """

    files: int | None
    rows: int | None
    command: str
    in_store: bool
    merges: bool = False

    @classmethod
    def of(
        cls,
        location: str,
        user: str,
        batch: int,
        added: list[DataFileMeta] | None,
        which: tuple[str, ...] = (),
    ) -> "LostFacts":
        """The facts of a lost commit.

        Args:
            location: the table.
            user: the commit user.
            batch: the commit identifier.
            added: the files that the commit had added. None if they are not known.
            which: further options of the command. They say where the files are named if no journal
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
        """A sentence with the numbers of rows and files."""
        if self.files is None:
            return "their number is not known, because its manifests are gone."
        noun = "file" if self.files == 1 else "files"
        return f"{self.rows:,} in {self.files:,} {noun}."

    @property
    def cure(self) -> str:
        """The command that commits the files again, and the options that have to be added to it."""
        if self.in_store:
            return (
                f"{self.command} (it shows what it would do; add --yes to do it, and a --storage-option for each "
                "storage option of this writer)"
            )
        return f"{self.command} (it shows what it would do; add --yes to do it)"

    @property
    def context(self) -> dict[str, Any]:
        """The facts as values, for the context of an error."""
        command = None if self.merges else self.command
        return {"files": self.files, "rows": self.rows, "command": command}


def lost_facts(storage: Storage, user: str, batch: int, snapshot: SnapshotRef) -> LostFacts:
    """The facts of the commit that made the snapshot. They are for a message, so no error is
    raised.
    """
    entries = lost_entries(ManifestStore(storage), snapshot.nonce)
    added = None
    if entries is not None:
        added = [entry.file for entry in entries if entry.kind is FileKind.ADD]
    which = ("--snapshot", str(snapshot.id), "--delta-list", snapshot.nonce)
    return LostFacts.of(storage.location, user, batch, added, which)


def lost_entries(manifests: ManifestStore, nonce: str) -> list[ManifestEntry] | None:
    """The delta entries of a snapshot that had the nonce `nonce`; None if they cannot be read."""
    try:
        return [entry for meta in manifests.read_list(nonce) for entry in manifests.read(meta)]
    except (errors.CorruptMetadata, errors.StorageError):
        return None
