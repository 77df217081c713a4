"""The value for a snapshot whose files are written, before it is published."""

from dataclasses import dataclass

from paimon_stream.commit.plan import Base, Changes
from paimon_stream.format.entries import (
    FileIdentity,
    FileKind,
    ManifestFileMeta,
)
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table.manifest_merge import Merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A snapshot that is ready to be published.

    Attributes:
        snapshot: the snapshot.
        content: the bytes of the snapshot's file.
        base: the snapshot on which this one is built, with the manifests of that base.
        changes: the changes of the snapshot.
        metas: the manifests of the snapshot: those of its base list, followed by those of its delta
            list.
        delta_names: the names of the manifests in its delta list.
        changelog_metas: the manifests in its changelog list.
        merged: the manifests of the base before and after merging, for the base list.
        since_millis: when the staging began, in epoch milliseconds.
    """

    snapshot: Snapshot
    content: bytes
    base: Base
    changes: Changes
    metas: tuple[ManifestFileMeta, ...]
    delta_names: frozenset[str]
    changelog_metas: tuple[ManifestFileMeta, ...]
    merged: Merged
    since_millis: int

    @property
    def added(self) -> frozenset[FileIdentity]:
        """The files that the snapshot adds."""
        return self._identities(FileKind.ADD)

    @property
    def removed(self) -> frozenset[FileIdentity]:
        """The files that the snapshot removes."""
        return self._identities(FileKind.DELETE)

    @property
    def names(self) -> frozenset[str]:
        """The names of the metadata files to which the snapshot refers, including its lists."""
        names = {meta.file_name for meta in (*self.metas, *self.changelog_metas)}
        names.update(name for name, _ in self.snapshot.manifest_lists)
        if self.snapshot.index_manifest is not None:
            names.add(self.snapshot.index_manifest)
        return frozenset(names)

    @property
    def own_names(self) -> frozenset[str]:
        """The names of all files that this commit has written, and to which any snapshot refers
        that is this one, or was built on this one. Files that a compaction only moves to another
        level are left out.
        """
        names = {file.file_name for file in self.added} - {file.file_name for file in self.removed}
        names.update(entry.file.file_name for entry in self.changes.changelog)
        names.update(
            change.entry.file.file_name
            for change in self.changes.index
            if change.kind is FileKind.ADD
        )
        return frozenset({self.snapshot.nonce, *self.delta_names, *names})

    def _identities(self, kind: FileKind) -> frozenset[FileIdentity]:
        return frozenset(entry.identity for entry in self.changes.entries if entry.kind is kind)
