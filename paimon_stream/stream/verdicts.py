"""A batch of Spark, which is judged, and the possible verdicts on it (exactly-once.md §2)."""

from dataclasses import dataclass
from typing import TypeAlias

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.table.journal import JournalEntry, PreviousBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What Spark reports about one micro-batch. A value that the checkpoint does not show is None.

    Attributes:
        batch_id: the id of the batch.
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
    """The verdict that the batch is not committed: it has to be written.

    Attributes:
        seen: the newest snapshot that was searched for batches of this stream; None for the empty
            table.
        newest: the latest snapshot; None if `seen` is the latest.
        own: our newest published batch.
        own_stands: whether the judgement of a run's later batch found the snapshot of `own`
            standing.
        dead: what an earlier attempt at this batch left, to be removed after publishing.
        why_not_reused: the reason why files that an earlier run prepared are not used.
    """

    seen: SnapshotRef | None
    newest: SnapshotRef | None = None
    own: PreviousBatch | None = None
    own_stands: bool = False
    dead: JournalEntry | None = None
    why_not_reused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """The verdict that the batch is not committed, but an earlier attempt has prepared its files.
    These files are to be committed, if all still exist.

    Attributes:
        seen: the newest snapshot that was searched for batches of this stream.
        own: our newest published batch.
        entry: the earlier attempt.
    """

    seen: SnapshotRef | None
    own: PreviousBatch | None = None
    entry: JournalEntry

    @property
    def dead(self) -> JournalEntry:
        """The journal entry of the earlier attempt. Its files are committed now, so only the
        metadata that it had staged is removed.
        """
        return self.entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """The verdict that an earlier run has committed the batch.

    Attributes:
        seen: the newest snapshot that was searched for batches of this stream.
        snapshot: the snapshot of the batch; None if only the batch's files were found.
        dead: what other attempts may have left.
    """

    seen: SnapshotRef | None
    snapshot: Snapshot | None
    dead: JournalEntry | None = None


Verdict: TypeAlias = Fresh | Reuse | AlreadyCommitted
