"""What is judged, a batch of Spark, and the verdicts on it (exactly-once.md §2)."""

from dataclasses import dataclass
from typing import TypeAlias

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.table.journal import JournalEntry, PreviousBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What Spark reports about one micro-batch; None if the checkpoint does not show it.
    `offsets_hash` distinguishes plans of the same batch id. `watermark` and the time when the
    previous batch was done are epoch milliseconds.
    """

    batch_id: int
    offsets_hash: str | None = None
    watermark: int | None = None
    previous_done_millis: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Not committed: write the batch. All snapshots up to `seen` were searched for batches of this
    stream, and no later one. `newest` is the latest snapshot, None if it is `seen`, and `own` our
    newest published batch. A later batch of a run found the snapshot of `own` to stand if
    `own_stands`. `dead` is what an earlier attempt at this batch left, to be removed after
    publishing. `written_again` says why files that an earlier run prepared are not used.
    """

    seen: SnapshotRef | None
    newest: SnapshotRef | None = None
    own: PreviousBatch | None = None
    own_stands: bool = False
    dead: JournalEntry | None = None
    written_again: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Not committed, but an earlier attempt has prepared its files: commit those, if all still
    exist.
    """

    seen: SnapshotRef | None
    own: PreviousBatch | None = None
    entry: JournalEntry

    @property
    def dead(self) -> JournalEntry:
        """The earlier attempt. Its files are committed now, so only what it had staged goes."""
        return self.entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """Committed by an earlier run; `snapshot` is None if it has expired. `dead`: what other
    attempts may have left.
    """

    seen: SnapshotRef | None
    snapshot: Snapshot | None
    dead: JournalEntry | None = None


Verdict: TypeAlias = Fresh | Reuse | AlreadyCommitted
