"""What a committer is asked, and what it answers. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from paimon_stream.commit.identity import SnapshotRef
from paimon_stream.commit.message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot

__all__ = ["CommitRequest", "Nothing", "Outcome", "Published", "Superseded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One commit: the files of some messages under a user and an identifier.

    `seen` is the latest snapshot that the caller judged on, None for a table that was empty then: what
    was published since is searched for this very commit. `fence` is asked where that window has a gap;
    True says that nobody else can have committed this identifier. `checked` asks for the existence of
    every file and for the conflict checks 3-5 (semantics.md 1.2, 3.1), which a fresh append does not
    need. `renumber` assigns the sequence numbers of fixed-bucket files, in message order. `stage_uuid`
    is part of the name of every manifest and manifest list this commit may write, in all its attempts.
    `watermark` is epoch milliseconds. `force_snapshot` makes a snapshot even of nothing.
    """

    user: str
    identifier: int
    messages: tuple[CommitMessage, ...]
    kind: CommitKind = CommitKind.APPEND
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    renumber: bool = False
    checked: bool = False
    seen: SnapshotRef | None
    stage_uuid: str
    fence: Callable[[], bool] | None = None
    force_snapshot: bool = False

    @property
    def is_batch(self) -> bool:
        """Whether this is a batch commit, whose identifier all batch commits share."""
        return self.identifier == BATCH_IDENTIFIER


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The commit is part of the table, as this snapshot. `attempts` counts all of them, the successful
    one too; `phases` are milliseconds by step, summed over the attempts."""

    snapshot: Snapshot
    attempts: int
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Nothing was published: since `seen`, somebody else has published this snapshot under the same user
    with the same or a later identifier. The caller decides what that means."""

    snapshot: Snapshot
    attempts: int
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Nothing was published, because there was nothing to publish."""


Outcome: TypeAlias = Published | Superseded | Nothing
