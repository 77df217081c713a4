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
    """Gives the changes of a snapshot."""

    def at(self, base: Base) -> Changes:
        """The changes that the wanted snapshot makes to this base. This is called for every
        attempt, and writes nothing. Its errors end the commit, and nothing is published. `NotFound`
        and `CorruptMetadata` do so only if the base is still the latest snapshot.
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
    """What the caller of a commit, or one of its attempts, has just seen of the table.

    Attributes:
        latest: the latest snapshot. None in an empty table.
        schema_id: the id of the newest schema.
        since_millis: when the look began, in epoch milliseconds.
    """

    latest: Snapshot | None
    schema_id: int
    since_millis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One commit: the changes of some messages, under a user and an identifier.

    Messages that remove rows turn an APPEND into an OVERWRITE. A request of kind COMPACT has only a
    compaction.

    Attributes:
        user: the commit user.
        identifier: the commit identifier.
        messages: the files that were written.
        source: gives the changes instead of the messages' written files. The compaction of the
            messages, if any, still follows as a second snapshot.
        kind: what the commit does.
        watermark: epoch milliseconds. None: the watermark of the base stays.
        properties: the properties of the snapshot.
        statistics: the name of an existing file with statistics. None: the statistics of the base
            stay.
        merge: limits of manifest merging that replace the table's. With such limits, there is a
            snapshot only if there are changes or a merge was due.
        renumber: whether files in fixed buckets get their sequence numbers now, in message order.
        numbering: how the rows got their numbers for a primary key, and at which snapshot. None if
            that is not known.
        checked: whether the commit checks that every file exists, and makes the conflict checks 3-5
            (semantics.md §1.2, §3.1). A fresh append does not need them.
        seen: the caller has searched all snapshots up to this one for this same commit. None for
            the empty table. There may be later snapshots by now: they are searched in the commit.
        sight: what the caller saw. The first attempt builds on it if it is at most a second old.
        before_put: what is done once, while the first staging is written or before it, and before
            any snapshot is put. Its errors end the commit.
        after_put: what is done while the snapshot is confirmed, or after that. It must not raise.
        stage_uuid: is part of the name of all metadata that any attempt writes.
        fence: is called if the snapshots above `seen` have a gap. True: nobody else can have
            committed this identifier.
        is_newest: is called after a slow put. False: a later run of this writer has begun, and may
            have removed what this run had staged.
        force_snapshot: whether there is a snapshot even without changes.
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
    before_put: tuple[Request, ...] = ()
    after_put: tuple[Request, ...] = ()
    stage_uuid: str
    fence: Callable[[], bool] | None = None
    is_newest: Callable[[], bool] | None = None
    force_snapshot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The commit is part of the table.

    Attributes:
        snapshot: what was written.
        attempts: how often publishing was tried.
        phases: the milliseconds of all attempts, by step.
        compact: the snapshot of the compaction, which may be `snapshot` itself. None without one.
        compact_failed: why the compaction was left out. No snapshot names its files then.
        changes: the changes of what was written.
        compact_changes: the changes of the compaction.
        manifests_merged: how many manifests were merged into others.
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
    the same user with the same or a later identifier. The caller decides what to do about that.

    Attributes:
        snapshot: the snapshot of somebody else.
        is_open: whether an attempt that was lost may still be published, or is tagged. No file of
            the request may be removed then.
    """

    snapshot: Snapshot
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Nothing was published: there was nothing to publish, or only a compaction that conflicts with
    what others have done since (`compact_failed`).
    """

    compact_failed: PaimonStreamError | None = None


Outcome: TypeAlias = Published | Superseded | Nothing
