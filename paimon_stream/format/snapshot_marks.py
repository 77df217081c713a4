"""The marks of a stream: snapshot properties by which a later run recognizes its own snapshots, and those of
another query that uses the same commit user (semantics.md R1.1, R1.5; exactly-once.md §1)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot

MARK_PREFIX: Final = "paimon-stream."
"""The prefix of the key of every property that this package writes into snapshots."""

VERSION_MARK: Final = MARK_PREFIX + "version"
"""The release that made the snapshot. It marks commits that are not of a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks found on a snapshot. All are None if another engine wrote it."""

    query_id: str | None
    run_id: str | None
    checkpoint: str | None
    query_name: str | None
    offsets_hash: str | None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Marks":
        """The marks among the properties of a snapshot."""
        return cls(**{one.name: properties.get(MARK_PREFIX + one.name.replace("_", "-")) for one in fields(cls)})


def own_properties(snapshot: Snapshot) -> Mapping[str, str]:
    """The properties that a snapshot's own commit wrote. When Java merges all manifests, it copies the
    properties of the snapshot before, and those describe another commit (semantics.md R1.5)."""
    merged = snapshot.commit_kind is CommitKind.COMPACT and snapshot.commit_identifier == BATCH_IDENTIFIER
    return {} if merged else snapshot.properties


def is_ours(snapshot: Snapshot) -> bool:
    """Whether a property shows that this package made the snapshot, not another engine. Java copies
    properties only when it merges manifests. This package does not copy the marks of a stream then."""
    copied = not own_properties(snapshot) and Marks.of(snapshot.properties).query_id is not None
    return not copied and any(key.startswith(MARK_PREFIX) for key in snapshot.properties)
