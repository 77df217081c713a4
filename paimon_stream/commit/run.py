"""One snapshot under way: what the attempts at it have in common, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paimon_stream.commit.plan import NO_CHANGES
from paimon_stream.commit.request import ChangeSource, CommitRequest, Published
from paimon_stream.commit.retry import Patience, RetryPolicy
from paimon_stream.commit.stage import Names, Staged
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.runtime import Runtime
from paimon_stream.table.manifest_merge import Merged

__all__ = ["Run"]


class Run:
    """What one commit of one snapshot remembers from attempt to attempt. Mutable, and of one thread.

    `seen` is the latest snapshot that was searched; `begun_millis` is when the attempt read its base;
    `merged` the merge of an earlier attempt; `nonces` are those of all attempts; `outstanding` says that the
    outcome of a put is open; `unproven` are attempts that were lost without a proof.
    """

    def __init__(
        self,
        request: CommitRequest,
        source: ChangeSource,
        names: Names,
        policy: RetryPolicy,
        runtime: Runtime,
    ) -> None:
        self.request = request
        self.source = source
        self.patience = Patience(policy, runtime)
        self.names = names
        self.seen = request.seen
        self.attempts = 0
        self.begun_millis = 0
        self.merged: Merged | None = None
        self.nonces: set[str] = set()
        self.outstanding = False
        self.unproven: list[Staged] = []
        self.phases: dict[str, float] = {}
        self._clock = runtime.clock

    @property
    def open(self) -> bool:
        """Whether an attempt may be part of the table, or may still become part of it."""
        return self.outstanding or bool(self.unproven)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the time spent inside to the phase."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            spent = (self._clock.monotonic() - began) * 1000
            self.phases[phase] = self.phases.get(phase, 0.0) + spent

    def published(self, staged: Staged) -> Published:
        """The outcome, where this attempt is part of the table."""
        snapshot = staged.snapshot
        compacts = snapshot.commit_kind is CommitKind.COMPACT
        return Published(
            snapshot=snapshot,
            attempts=self.attempts,
            phases=self.phases,
            compact=snapshot if compacts else None,
            changes=NO_CHANGES if compacts else staged.changes,
            compact_changes=staged.changes if compacts else NO_CHANGES,
            manifests_merged=staged.merged.count,
        )
