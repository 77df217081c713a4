"""What a committer is asked, and what it answers. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from paimon_stream.commit.plan import NO_CHANGES, Base, Changes
from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.table.manifest_merge import MergeLimits

__all__ = [
    "ChangeSource",
    "CommitRequest",
    "Fixed",
    "Nothing",
    "Outcome",
    "Published",
    "Superseded",
]


class ChangeSource(Protocol):
    """Where the changes of a snapshot come from."""

    def at(self, base: Base) -> Changes:
        """The changes that make the wanted snapshot out of this base; asked anew for every attempt.

        It writes nothing. What it raises ends the commit, with nothing published; `NotFound` and
        `CorruptMetadata` only where the base is still the latest snapshot.
        """


@dataclass(frozen=True, slots=True)
class Fixed:
    """Changes that are the same on every base."""

    changes: Changes

    def at(self, base: Base) -> Changes:
        """The changes."""
        return self.changes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One commit: what some messages say, under a user and an identifier.

    `source` gives the changes instead of what the messages have written; the messages' compaction, if they
    have one, still follows as a snapshot of its own. `kind` is the kind of the snapshot; messages that
    take rows away make an OVERWRITE of an APPEND, and a request of kind COMPACT has a compaction only.

    `seen` is the latest snapshot that the caller judged on, None for a table that was empty then: what
    was published since is searched for this very commit. `fence` is asked where that window has a gap;
    True says that nobody else can have committed this identifier. `checked` asks for the existence of
    every file and for the conflict checks 3-5 (semantics.md §1.2, §3.1), which a fresh append does not
    need. `renumber` assigns the sequence numbers of fixed-bucket files, in message order; `numbering` says,
    in a table with a primary key, where those of the messages come from, None where nobody knows.
    `stage_uuid` is part of the name of every manifest and manifest list this commit may write, in all its
    attempts.
    `watermark` is epoch milliseconds. `force_snapshot` makes a snapshot even of nothing. `statistics` is
    the name of a statistics file that is on storage already. `merge` are the limits of manifest merging
    instead of the table's; then there is a snapshot only if it changes anything or a merge was due.
    """

    user: str
    identifier: int
    messages: tuple[CommitMessage, ...] = ()
    source: ChangeSource | None = None
    kind: CommitKind = CommitKind.APPEND
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    statistics: str | None = None
    merge: MergeLimits | None = None
    renumber: bool = False
    numbering: Numbering | None = None
    checked: bool = False
    seen: SnapshotRef | None
    stage_uuid: str
    fence: Callable[[], bool] | None = None
    force_snapshot: bool = False

    @property
    def is_batch(self) -> bool:
        """Whether this is a batch commit, whose identifier all batch commits share."""
        return self.identifier == BATCH_IDENTIFIER

    @property
    def checks_conflicts(self) -> bool:
        """Whether the files it adds and removes are held against those in the table (semantics.md §2.2)."""
        return self.checked or self.kind in (CommitKind.OVERWRITE, CommitKind.COMPACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The commit is part of the table, as this snapshot. `attempts` counts all of them, the successful
    one too; `phases` are milliseconds by step, summed over the attempts.

    `compact` is the snapshot of the compaction, which is `snapshot` itself where there is no other.
    `compact_failed` says why the compaction was left out: its files stay, and belong to nobody.
    `changes` and `compact_changes` are those of the two snapshots; `manifests_merged` counts the manifests
    that were merged into others.
    """

    snapshot: Snapshot
    attempts: int
    phases: Mapping[str, float]
    compact: Snapshot | None = None
    compact_failed: PaimonStreamError | None = None
    changes: Changes = NO_CHANGES
    compact_changes: Changes = NO_CHANGES
    manifests_merged: int = 0

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot of this commit."""
        return self.compact or self.snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Nothing was published: since `seen`, somebody else has published this snapshot under the same user
    with the same or a later identifier. The caller decides what that means."""

    snapshot: Snapshot
    attempts: int
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Nothing was published: there was nothing to publish, or only a compaction in conflict with what
    others have done since, `compact_failed`."""

    compact_failed: PaimonStreamError | None = None


Outcome: TypeAlias = Published | Superseded | Nothing
