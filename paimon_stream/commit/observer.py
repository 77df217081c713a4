"""Named points of a batch. Tests stop, interleave or kill a writer exactly at such a point."""

from enum import Enum
from typing import Protocol, runtime_checkable


class Phase(Enum):
    """The points, in the order in which a batch reaches them. DISCARDED comes after a lost race, before the
    next attempt's BASE_READ."""

    BATCH_STARTED = "batch-started"
    JUDGED = "judged"
    WRITTEN = "written"
    BASE_READ = "base-read"
    CHECKED = "checked"
    JOURNALED = "journaled"
    STAGED = "staged"
    PUBLISHED = "published"
    DISCARDED = "discarded"
    CONFIRMED = "confirmed"
    HINTED = "hinted"
    FINISHED = "finished"


@runtime_checkable
class BatchObserver(Protocol):
    """Called at each point, in the working thread. `identifier` is the batch's commit identifier."""

    def reached(self, phase: Phase, identifier: int) -> None:
        """May block, raise or kill the process."""


class _NoObserver:
    def reached(self, phase: Phase, identifier: int) -> None:
        return None


NO_OBSERVER: BatchObserver = _NoObserver()
"""The observer of production: does nothing."""
