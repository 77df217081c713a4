"""Tells how the stream of a table is doing. Only the newest snapshots and the stream's checkpoint
are read, so the state can be asked for every few seconds, for many tables. Nothing is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal

from paimon_stream.commit.report import commit_millis
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import ONCE_PREFIX, Marks, own_properties
from paimon_stream.spark.checkpoint import recorded_checkpoint
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_summary import NO_SUMMARY, BatchSummary, phases_of, previous_of
from paimon_stream.table.register import RegisteredWriter, registered_writers
from paimon_stream.table.snapshots import SnapshotStore

State = Literal["unreadable", "stuck", "contended", "silent", "starting", "well", "no stream"]
STATES: Final[tuple[State, ...]] = (
    "unreadable",
    "stuck",
    "contended",
    "silent",
    "starting",
    "well",
    "no stream",
)
"""The states that a stream can have, the worst first."""

_USUAL_DEPTH: Final = 12
"""How many of the newest snapshots are read. Compactions and other writers have made some of them.
"""
_DEEP: Final = 500
"""How many of the newest snapshots are read if a stream is registered, but has made none of the
usual number.
"""
LEAST_SILENCE_MILLIS: Final = 300_000
"""A stream is not called `stuck` or `silent` before this time has passed."""
_SILENT_INTERVALS: Final = 5
"""A stream is not called `stuck` or `silent` before this many of its usual intervals have passed.
"""
_STUCK: Final = (
    "Spark planned a batch long ago that is still not done: the query has stopped, or is slow."
)
_STARTING: Final = "A stream has begun, and has committed no batch yet."
_MANY_ATTEMPTS: Final = 5
"""A stream whose newest known commit took at least this many attempts is `contended`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The newest stream of a table. A fact that is not known is None, or {}.

    Attributes:
        location: the location of the table.
        state: the state of the stream.
        why: a sentence that explains a state other than `well`; empty for `well`.
        user: the commit user of the stream.
        query_name: the name of the stream's query.
        batch: the id of the stream's newest batch.
        snapshot: the id of the stream's newest snapshot; without a stream, of the table's newest
            snapshot.
        last_millis: the time of that snapshot, in epoch milliseconds.
        interval: the usual time between the stream's batches, in milliseconds.
        running: the time since Spark planned a batch that is not done, in milliseconds.
        story: the summary of the newest batch with rows.
        previous: figures of the commit before the one of that batch (`HistoryEntry.previous`).
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
        """The rows of the newest batch, divided by the usual seconds between batches."""
        if self.story.rows is None or not self.interval:
            return None
        return self.story.rows * 1000 / self.interval

    @property
    def commit_millis(self) -> float | None:
        """The milliseconds that the previous commit took: all phases except judging the batch and
        writing its rows.
        """
        return commit_millis(phases_of(self.previous)) if self.previous else None


class StreamWatch:
    """Observes the stream of one table. A snapshot is not read again while the snapshots above it
    stand.
    """

    def __init__(
        self,
        storage: Storage,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._storage = storage
        self._options = storage_options
        self._store = SnapshotStore(storage)
        self._known: dict[int, Snapshot] = {}
        """The newest snapshots of the previous look, by id. Empty after a look that failed."""
        self._depth = _USUAL_DEPTH
        """How many snapshots a look reads. The number grows when a look finds a registered stream,
        but no batch of a stream.
        """

    def look(self, now_millis: int) -> StreamState:
        """The present state. Raises no error of this package: a table that cannot be read is in the
        state `unreadable`.
        """
        try:
            return self._look(now_millis)
        except PaimonStreamError as error:
            self._known = {}
            return self._state("unreadable", error.message)

    def _look(self, now: int) -> StreamState:
        latest = self._store.latest()
        if latest is None:
            if self._storage.exists("schema/schema-0"):
                return self._first_batch(now) or self._state("no stream")
            return self._state("unreadable", "The table no longer exists.")
        batches = _newest_stream(self._recent(latest))
        is_deep = self._depth == _DEEP
        if not batches and not is_deep and registered_streams(self._storage):
            self._depth = _DEEP
            return self._look(now)
        if not batches and is_deep:
            starting = self._first_batch(now, latest)
            if starting is not None and starting.running is not None:
                return starting
            return self._state(
                "silent",
                "A stream is registered, but made none of the newest snapshots: it has stopped, or its source has no new rows.",
                latest,
            )
        if not batches:
            return self._state("no stream", snapshot=latest)
        return self._stream_state(batches, now)

    def _state(self, state: State, why: str = "", snapshot: Snapshot | None = None) -> StreamState:
        """The state of a table without a visible stream. `snapshot` is the table's newest
        snapshot.
        """
        stream_state = StreamState(location=self._storage.location, state=state, why=why)
        if snapshot is None:
            return stream_state
        return replace(stream_state, snapshot=snapshot.id, last_millis=snapshot.time_millis)

    def _first_batch(self, now: int, latest: Snapshot | None = None) -> StreamState | None:
        """The state of a registered stream that has committed nothing. If several are registered,
        the result is about the stream whose current batch has taken the longest time. None if no
        stream is registered. `latest` is the newest snapshot of the table.
        """
        states = []
        for register in registered_streams(self._storage):
            running = self._running(register.checkpoint, now)
            is_stuck = running is not None and running > LEAST_SILENCE_MILLIS
            state: State = "stuck" if is_stuck else "starting"
            shown = self._state(state, _STUCK if is_stuck else _STARTING, latest)
            states.append(
                replace(shown, user=register.user, query_name=register.query_name, running=running)
            )
        return max(states, key=lambda state: state.running or -1, default=None)

    def _stream_state(self, snapshots: Sequence[Snapshot], now: int) -> StreamState:
        """The state of the stream with these snapshots, the newest first. At least one snapshot has
        rows.
        """
        newest = snapshots[0]
        marks = Marks.of(own_properties(newest))
        with_rows = [snapshot for snapshot in snapshots if _has_rows(snapshot)]
        gaps = sorted(late.time_millis - early.time_millis for late, early in pairwise(with_rows))
        interval = gaps[len(gaps) // 2] if gaps else None  # the median
        running = self._running(marks.checkpoint, now)
        properties = own_properties(with_rows[0])
        previous = previous_of(properties)
        state, why = _judged(
            running=running,
            age=now - newest.time_millis,
            attempts=previous.get("attempts", 1),
            limit=max(LEAST_SILENCE_MILLIS, _SILENT_INTERVALS * (interval or 0)),
        )
        return StreamState(
            location=self._storage.location,
            state=state,
            why=why,
            user=newest.commit_user,
            query_name=marks.query_name,
            batch=newest.commit_identifier,
            snapshot=newest.id,
            last_millis=newest.time_millis,
            interval=interval,
            running=running,
            story=BatchSummary.of(properties),
            previous=previous,
        )

    def _recent(self, latest: Snapshot) -> list[Snapshot]:
        """The newest snapshots, in descending order, down to the first that is missing."""
        recent: dict[int, Snapshot] = {latest.id: latest}
        # Below a snapshot that still stands, nothing was rolled back, so known snapshots are not
        # read again.
        is_as_before = self._known.get(latest.id) == latest
        for snapshot_id in range(latest.id - 1, max(latest.id - self._depth, 0), -1):
            known = self._known.get(snapshot_id)
            snapshot = known if is_as_before and known else self._store.find(snapshot_id)
            if snapshot is None:
                break
            recent[snapshot_id] = snapshot
            is_as_before = is_as_before or known == snapshot
        self._known = recent
        return list(recent.values())

    def _running(self, checkpoint: str | None, now: int) -> int | None:
        """The time for which Spark has been working on a batch that is not done, in milliseconds;
        None if there is no such batch, or if the time is not known.
        """
        if checkpoint is None:
            return None
        opened = recorded_checkpoint(checkpoint, self._options)
        planned = opened.planned_batch()
        if planned is None or opened.done_batch() == planned:
            return None
        millis = opened.planned_millis(planned)
        return None if millis is None else max(0, now - millis)


def registered_streams(storage: Storage) -> tuple[RegisteredWriter, ...]:
    """The registers of streams. While a batch write with an identity is under way, it has a
    register, too, which is left out.
    """
    registers = registered_writers(storage)
    return tuple(register for register in registers if not register.user.startswith(ONCE_PREFIX))


def _newest_stream(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots of the stream whose newest snapshot is the newest of all streams. The result is
    empty if no snapshot of that stream has rows. The parameter and the result have the newest
    snapshot first.
    """
    marked = [(snapshot, Marks.of(own_properties(snapshot))) for snapshot in snapshots]
    streams = (
        (snapshot.commit_user, marks.query_id)
        for snapshot, marks in marked
        if (marks.query_id or marks.run_id) and not snapshot.commit_user.startswith(ONCE_PREFIX)
    )
    newest = next(streams, None)
    batches = [
        snapshot for snapshot, marks in marked if (snapshot.commit_user, marks.query_id) == newest
    ]
    return batches if any(map(_has_rows, batches)) else []


def _has_rows(snapshot: Snapshot) -> bool:
    return BatchSummary.of(own_properties(snapshot)).rows is not None


def _judged(*, running: int | None, age: int, attempts: int, limit: int) -> tuple[State, str]:
    """The state of a stream, and a sentence that explains it; empty for the state `well`.

    Args:
        running: how long Spark has been working on a batch that is not done; None if there is no
            such batch.
        age: the time since the stream's newest snapshot.
        attempts: how many attempts the stream's previous commit took.
        limit: the time after which a stream is `stuck` or `silent`. All times are in milliseconds.
    """
    if running is not None and running > limit:
        return "stuck", _STUCK
    if attempts >= _MANY_ATTEMPTS:
        return (
            "contended",
            f"The previous commit took {attempts} attempts, because other writers were faster.",
        )
    if age > limit:
        return (
            "silent",
            "No batch for a long time: the source delivers nothing, or the query has stopped.",
        )
    return "well", ""
