"""What is judged, a batch of Spark, and the verdicts on it (exactly-once.md §2)."""

from dataclasses import dataclass
from typing import TypeAlias

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.table.journal import JournalEntry, PreviousBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What Spark reports about one micro-batch. None stands for what the checkpoint does not show.

    Attributes:
        batch_id: its id.
        offsets_hash: distinguishes plans of the same batch id.
        watermark: the watermark of the query (epoch milliseconds).
        previous_done_millis: when the newest earlier batch that the checkpoint notes as done was
            done (epoch milliseconds).
    """

    batch_id: int
    offsets_hash: str | None = None
    watermark: int | None = None
    previous_done_millis: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Not committed: write the batch.

    Attributes:
        seen: the newest snapshot that was searched for batches of this stream; None for the empty
            table.
        newest: the latest snapshot; None if it is `seen`.
        own: our newest published batch.
        own_stands: whether the judgement of a run's later batch found the snapshot of `own`
            standing.
        dead: what an earlier attempt at this batch left, to be removed after publishing.
        why_not_reused: why files that an earlier run prepared are not used, in words.
    """

    seen: SnapshotRef | None
    newest: SnapshotRef | None = None
    own: PreviousBatch | None = None
    own_stands: bool = False
    dead: JournalEntry | None = None
    why_not_reused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Not committed, but an earlier attempt has prepared its files: commit those, if all still
    exist.

    Attributes:
        seen: as in `Fresh`.
        own: our newest published batch.
        entry: the earlier attempt.
    """

    seen: SnapshotRef | None
    own: PreviousBatch | None = None
    entry: JournalEntry

    @property
    def dead(self) -> JournalEntry:
        """The earlier attempt. Its files are committed now, so only what it had staged is
        removed.
        """
        return self.entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """Committed by an earlier run.

    Attributes:
        seen: as in `Fresh`.
        snapshot: the snapshot of the batch; None if only the batch's files were found.
        dead: what other attempts may have left.
    """

    seen: SnapshotRef | None
    snapshot: Snapshot | None
    dead: JournalEntry | None = None


Verdict: TypeAlias = Fresh | Reuse | AlreadyCommitted
