"""The requests to the committer, and its outcomes. All classes here are values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from paimon_stream.commit.plan import NO_CHANGES, Base, Changes
from paimon_stream.commit.premises import Premises
from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.storage.together import Request
from paimon_stream.table.manifest_merge import MergeLimits


class ChangeSource(Protocol):
    """Returns the changes of a snapshot on a base."""

    def at(self, base: Base) -> Changes:
        """The changes of the new snapshot if it is built on `base`. The method is called for every
        attempt, and writes nothing. If it raises an error, the commit ends, and nothing is
        published. After `NotFound` and `CorruptMetadata`, the commit ends only if the base is still
        the latest snapshot.
        """


@dataclass(frozen=True, slots=True)
class Fixed:
    """Changes that are the same on every base."""

    changes: Changes

    def at(self, base: Base) -> Changes:
        """The changes, which do not depend on the base."""
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


class CommitJournal(Protocol):
    """Where a commit is recorded, so that a restart knows what may have been published."""

    def record(self) -> None:
        """Records what is about to be committed. Called while the first staging is written, or
        before it. It has returned before any snapshot is put. Its errors end the commit.
        """

    def trim(self) -> None:
        """Removes earlier records that the commit makes useless. Called while the snapshot is
        confirmed, or after that. It must not raise.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One commit: the changes of some messages, under a user and an identifier.

    Messages that remove rows turn an APPEND into an OVERWRITE. A request of kind COMPACT has only a
    compaction.

    Attributes:
        user: the commit user.
        identifier: the commit identifier.
        messages: the files that were written.
        source: returns the changes, in place of the messages' written files. If the messages have a
            compaction, it follows as a second snapshot.
        kind: what the commit does.
        watermark: epoch milliseconds. None: the watermark of the base stays.
        properties: the properties of the snapshot.
        statistics: the name of an existing file with statistics. None: the statistics of the base
            stay.
        merge: limits of manifest merging that replace those of the table. With such limits, there
            is a snapshot only if there are changes, or if manifests were merged.
        renumber: whether files in fixed buckets get their sequence numbers now, in message order.
        numbering: how the rows of a table with a primary key got their numbers, and at which
            snapshot. None if that is not known.
        checked: whether the commit checks that every file exists, and makes the conflict checks 3-5
            (semantics.md §1.2, §3.1). A fresh append does not need them.
        seen: the caller has searched all snapshots up to this one for this same commit. None for
            the empty table. There may be later snapshots by now: they are searched in the commit.
        sight: what the caller saw. The first attempt builds on it if it is at most a second old.
        send_files: sends the data files that the caller still holds. It is called together with
            `CommitJournal.record`. None if the files are written.
        journal: records the commit before any snapshot is put. None if nothing records it.
        stage_uuid: is part of the name of all metadata that any attempt writes.
        fence: is called if the snapshots above `seen` have a gap. True: nobody else can have
            committed this identifier.
        is_newest: is called after a slow put. False: a later run of this writer has begun, and may
            have removed what this run had staged.
        force_snapshot: whether there is a snapshot even without changes.
        premises: what the changes were computed from, which each attempt checks on its base. None
            if they depend on nothing in the table. `seen` is then the snapshot of the premises.
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
    send_files: Request | None = None
    journal: CommitJournal | None = None
    stage_uuid: str
    fence: Callable[[], bool] | None = None
    is_newest: Callable[[], bool] | None = None
    force_snapshot: bool = False
    premises: Premises | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The outcome that the commit is part of the table.

    Attributes:
        snapshot: the snapshot with the written files.
        attempts: how often publishing was tried.
        phases: the milliseconds of all attempts, by step.
        compact: the snapshot of the compaction, which may be `snapshot` itself. None without one.
        compact_failed: the reason why the compaction was left out; None if it was not. No snapshot
            names the files of a compaction that was left out.
        changes: the changes by writing.
        compact_changes: the changes by the compaction.
        manifests_merged: how many manifests were merged into others.
        is_open: as in `Superseded`. It matters for files that are not part of the snapshot.
    """

    snapshot: Snapshot
    attempts: int
    phases: Mapping[str, float]
    compact: Snapshot | None = None
    compact_failed: PaimonStreamError | None = None
    changes: Changes = NO_CHANGES
    compact_changes: Changes = NO_CHANGES
    manifests_merged: int = 0
    is_open: bool = False

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot of this commit."""
        return self.compact or self.snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """The outcome that nothing was published, because somebody else has published `snapshot` since
    `seen`. That snapshot has the same user, and the same identifier or a later one. The caller
    decides what to do.

    Attributes:
        snapshot: the snapshot of somebody else.
        is_open: whether an attempt that was lost may still be published, or a tag may have its
            snapshot. In that case, no file of the request may be removed.
    """

    snapshot: Snapshot
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """The outcome that nothing was published. There was nothing to publish, or only a compaction
    that conflicts with later commits (`compact_failed`).
    """

    compact_failed: PaimonStreamError | None = None


Outcome: TypeAlias = Published | Superseded | Nothing
