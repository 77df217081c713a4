"""The committer's requests and outcomes. Values only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from paimon_stream.commit.plan import NO_CHANGES, Base, Changes
from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.storage.together import Request
from paimon_stream.table.manifest_merge import MergeLimits


class ChangeSource(Protocol):
    """Where the changes of a snapshot come from."""

    def at(self, base: Base) -> Changes:
        """The changes that make the wanted snapshot of this base. Called for every attempt; writes
        nothing. Its errors end the commit with nothing published, `NotFound` and `CorruptMetadata`
        only if the base is still the latest.
        """


@dataclass(frozen=True, slots=True)
class Fixed:
    """Changes that are the same on every base."""

    changes: Changes

    def at(self, base: Base) -> Changes:
        """The changes."""
        return self.changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a caller has just seen of the table: the latest snapshot and the id of the newest
    schema. It began to look at that time (epoch milliseconds).
    """

    latest: Snapshot | None
    schema_id: int
    since_millis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One commit: the changes of some messages, under a user and an identifier.

    `source` supplies the changes instead of the messages' written files. Their compaction, if any,
    still follows as a second snapshot. Messages that remove rows turn an APPEND into an OVERWRITE;
    a request of kind COMPACT has only a compaction.

    The caller has searched all snapshots up to `seen` for this same commit, None for the empty
    table. It may be older than the latest one; those above are searched now. With `sight`, the first
    attempt builds on what the caller saw, if that was a moment ago. `beside` is done once, while the
    first staging is written and before any snapshot is put; its errors end the commit. `after` is
    done while the snapshot is confirmed, and must not raise. `fence` is called if that window has a
    gap: nobody else can have committed this identifier (True). `is_newest` is called after a slow
    put: a later run of this writer has begun and may have removed what this one had staged (False).
    `checked` asks for a check that every file exists and for the conflict checks 3-5 (semantics.md §1.2,
    §3.1), which a fresh append does not need. `renumber` assigns the sequence numbers of files in
    fixed buckets, in message order. `numbering` says at which snapshot the numbers for a primary
    key were taken, None if that is not known. `stage_uuid` is part of the name of all metadata that
    any attempt writes. `watermark` is epoch milliseconds. `force_snapshot` makes a snapshot even
    without changes, and `statistics` names an existing file. `merge` has limits of manifest merging
    that replace the table's; then there is a snapshot only if there are changes or a merge was due.
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
    sight: Sight | None = None
    beside: tuple[Request, ...] = ()
    after: tuple[Request, ...] = ()
    stage_uuid: str
    fence: Callable[[], bool] | None = None
    is_newest: Callable[[], bool] | None = None
    force_snapshot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The commit is part of the table, as this snapshot. `attempts` counts all attempts, and
    `phases` are their milliseconds by step. `compact` is the snapshot of the compaction, which may
    be `snapshot` itself. `compact_failed` says why the compaction was left out; its files belong to
    nobody. `changes` and `compact_changes` are those of the two snapshots. `manifests_merged`
    counts the manifests that were merged into others.
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
    """Nothing was published, because since `seen` somebody else has published this snapshot under
    the same user with the same or a later identifier. The caller decides what that means.
    """

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Nothing was published: there was nothing to publish, or only a compaction that conflicts with
    what others have done since (`compact_failed`).
    """

    compact_failed: PaimonStreamError | None = None


Outcome: TypeAlias = Published | Superseded | Nothing
