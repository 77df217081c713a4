"""A snapshot whose files are written, before it is published."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_stream.commit.plan import Base, Changes
from paimon_stream.format.entries import (
    FileIdentity,
    FileKind,
    ManifestFileMeta,
)
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.table.manifest_merge import Merged

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A snapshot that is ready to be published: its value and bytes, its base and changes, its
    manifests (base list before delta list), the names of its delta manifests, the manifests of its
    changelog, the merge in its base list, and the time at which its staging began (epoch
    milliseconds).
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
        """The files the snapshot adds."""
        return frozenset(e.identity for e in self.changes.entries if e.kind is FileKind.ADD)

    @property
    def removed(self) -> frozenset[FileIdentity]:
        """The files the snapshot removes."""
        return frozenset(e.identity for e in self.changes.entries if e.kind is FileKind.DELETE)

    @property
    def names(self) -> frozenset[str]:
        """The metadata files that the snapshot refers to, including its lists."""
        lists = (name for name, _ in self.snapshot.manifest_lists)
        metas = (meta.file_name for meta in (*self.metas, *self.changelog_metas))
        index = self.snapshot.index_manifest
        return frozenset((*metas, *lists, *(() if index is None else (index,))))
