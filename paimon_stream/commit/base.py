"""What one attempt of a commit builds on. A value only."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.snapshot_json import Snapshot

__all__ = ["Base"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What an attempt builds on: the latest snapshot, None in an empty table, and its manifests, base list
    before delta list."""

    snapshot: Snapshot | None
    metas: tuple[ManifestFileMeta, ...]

    @property
    def id(self) -> int:
        """The snapshot's id; 0 in an empty table."""
        return 0 if self.snapshot is None else self.snapshot.id
