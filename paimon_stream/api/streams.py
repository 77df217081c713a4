"""How the stream of a table goes, from its newest snapshots and its checkpoint: so little is read
that it can be asked every few seconds, for many tables. Nothing is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from paimon_stream.commit.report import commit_millis
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_summary import NO_SUMMARY, BatchSummary, phases_of, previous_of
from paimon_stream.stream.register import registered_writers
from paimon_stream.table.snapshots import SnapshotStore

State = Literal["unreadable", "stuck", "contended", "silent", "well", "no stream"]
STATES: Final[tuple[State, ...]] = (
    "unreadable",
    "stuck",
    "contended",
    "silent",
    "well",
    "no stream",
)
"""What a stream can be, the worst first."""

_LOOKED_AT: Final = 12
"""How many of the newest snapshots are read: those of a stream have compactions and other writers
between them.
"""
_DEEP: Final = 500
"""How many are read where a stream is registered, and made none of these."""
_BURIED: Final = (
    "A stream is registered, and made none of the newest snapshots: it has stopped, or has no rows."
)
_LEAST_MILLIS: Final = 300_000
_MANY: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The newest stream of a table. `why` explains a `state` that is not well. Times are epoch
    milliseconds. `interval` is the usual time between its batches, and `running` the time since
    Spark planned a batch that is not done, both in milliseconds. `story` is the newest batch, and
    `previous` the commit before it (`HistoryEntry`). None, or {}, is what is not known.
    """

    location: str
    state: State
    why: str = ""
    user: str | None = None
    query_name: str | None = None
    batch: int | None = None
    snapshot: int | None = None
    last_millis: int | None = None
    interval: int | None = None
    running: int | None = None
    story: BatchSummary = NO_SUMMARY
    previous: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def rows_per_second(self) -> float | None:
        """The rows of the newest batch, over the usual time between batches."""
        return (
            self.story.rows * 1000 / self.interval
            if self.story.rows is not None and self.interval
            else None
        )

    @property
    def commit_millis(self) -> float | None:
        """The milliseconds of the commit before: all phases but judging the batch and writing its
        rows.
        """
        return commit_millis(phases_of(self.previous)) if self.previous else None


class StreamWatch:
    """Looks at one table again and again. A snapshot that was read is not read again while it is in
    the history.
    """

    def __init__(
        self,
        storage: Storage,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._storage, self._options, self._store = storage, storage_options, SnapshotStore(storage)
        self._known, self._depth = dict[int, Snapshot](), _LOOKED_AT

    def look(self, now_millis: int) -> StreamState:
        """The state now. Raises no error of this package: a table that cannot be read is in the
        state `unreadable`.
        """
        try:
            return self._look(now_millis)
        except PaimonStreamError as why:
            self._known = {}
            return StreamState(location=self._storage.location, state="unreadable", why=why.message)

    def _look(self, now: int) -> StreamState:
        where = self._storage.location
        latest = self._store.latest()
        if latest is None and not self._storage.exists("schema/schema-0"):
            return StreamState(
                location=where, state="unreadable", why="There is no table any more."
            )
        recent = [] if latest is None else self._recent(latest)
        marks = [(one, Marks.of(own_properties(one))) for one in recent]
        streams = [
            (one.commit_user, mark.query_id) for one, mark in marks if mark.query_id or mark.run_id
        ]
        own = [
            (one, mark) for one, mark in marks if [(one.commit_user, mark.query_id)] == streams[:1]
        ]
        with_rows = [one for one, _ in own if BatchSummary.of(own_properties(one)).rows is not None]
        if not own or not with_rows:
            if latest and self._depth == _LOOKED_AT and registered_writers(self._storage):
                self._depth = _DEEP
                return self._look(now)
            snapshot, millis = (None, None) if latest is None else (latest.id, latest.time_millis)
            if latest and self._depth == _DEEP:
                return StreamState(
                    location=where,
                    state="silent",
                    why=_BURIED,
                    snapshot=snapshot,
                    last_millis=millis,
                )
            return StreamState(
                location=where, state="no stream", snapshot=snapshot, last_millis=millis
            )
        newest, mark = own[0]
        gaps = sorted(late.time_millis - early.time_millis for late, early in pairwise(with_rows))
        interval = gaps[len(gaps) // 2] if gaps else None
        running = self._running(mark.checkpoint, now)
        properties = own_properties(with_rows[0])
        previous, patience = previous_of(properties), max(_LEAST_MILLIS, _MANY * (interval or 0))
        state, why = self._judged(
            running, now - newest.time_millis, previous.get("attempts", 1), patience
        )
        return StreamState(
            location=where,
            state=state,
            why=why,
            user=newest.commit_user,
            query_name=mark.query_name,
            batch=newest.commit_identifier,
            snapshot=newest.id,
            last_millis=newest.time_millis,
            interval=interval,
            running=running,
            story=BatchSummary.of(properties),
            previous=previous,
        )

    def _recent(self, latest: Snapshot) -> list[Snapshot]:
        """The newest snapshots, the newest first, down to the first that is missing."""
        found, same = {int(latest.id): latest}, self._known.get(latest.id) == latest
        for one in range(latest.id - 1, max(latest.id - self._depth, 0), -1):
            snapshot = (same and self._known.get(one)) or self._store.find(one)
            if snapshot is None:
                break
            found[one], same = (
                snapshot,
                same or self._known.get(one) == snapshot,
            )  # below, nothing was rolled back
        self._known = found
        return list(found.values())

    def _running(self, checkpoint: str | None, now: int) -> int | None:
        """How long Spark has been at a batch that is not done; None if there is none, and if that
        cannot be known.
        """
        if checkpoint is None:
            return None
        found = open_checkpoint(checkpoint, self._options)
        planned = found.planned_batch()
        if planned is None or found.done_batch() == planned:
            return None
        millis = found.planned_millis(planned)
        return None if millis is None else max(0, now - millis)

    @staticmethod
    def _judged(running: int | None, age: int, attempts: int, patience: int) -> tuple[State, str]:
        if running is not None and running > patience:
            return (
                "stuck",
                "Spark has planned a batch long ago, and it is not done: the query has stopped, or is slow.",
            )
        if attempts >= _MANY:
            return (
                "contended",
                f"The commit before was tried {attempts} times, because others were faster.",
            )
        if age > patience:
            return (
                "silent",
                "No batch for long: the source gives nothing, or the query has stopped.",
            )
        return "well", ""
