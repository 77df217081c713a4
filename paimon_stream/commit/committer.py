"""The committer: a commit becomes one snapshot for each of its halves, or none, and which of them is never
guessed. `commit/halves.py` says how two snapshots make one commit; here is how each is made:

    base ──► decided? ──► check ──► stage ──► put ──► confirm ──► hint
     ▲                                         │         │
     └────────────── discard, wait ◄──── lost ─┴─────────┘

What each step keeps true (design, Exactly once, step 5; semantics.md §2):

- *base*: an attempt builds on the snapshot that is the latest now, of the table it was made for, in the
  lineage that the caller judged.
- *decided?*: nothing is published that the same user has published since `seen`; an attempt of our own
  that turns out to have succeeded ends the commit as published.
- *check*: the changes are those wanted on this very base. Nothing has been written yet, so a conflict
  leaves nothing behind.
- *stage*: only new files are written, under names drawn before.
- *put*: the one step that makes something visible, atomically. From here on nothing is deleted until the
  attempt is proven lost.
- *confirm*: what is reported as published is part of the table.
- *discard*: of a lost attempt only its own metadata goes, never data; its merge of manifests stays for
  the next attempt.
- *hint*: helps readers; its failure fails nothing.

The ownership law: a file may be deleted only while no attempt that references it can ever be published.
So every failure while the outcome of a put is open is a `CommitUnknown`, and deletes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from paimon_stream.commit.base import Base
from paimon_stream.commit.checks import Checker
from paimon_stream.commit.halves import commit_halves
from paimon_stream.commit.observer import NO_OBSERVER, BatchObserver, Phase
from paimon_stream.commit.plan import Changes, collect
from paimon_stream.commit.publish import Landed, Lost, Publisher
from paimon_stream.commit.request import (
    ChangeSource,
    CommitRequest,
    Fixed,
    Nothing,
    Outcome,
    Published,
    Superseded,
)
from paimon_stream.commit.retry import RetryPolicy
from paimon_stream.commit.run import Run
from paimon_stream.commit.sequence import Numbering, Sequences
from paimon_stream.commit.stage import Names, Staged, Stager, discard
from paimon_stream.commit.traces import Traces
from paimon_stream.commit.window import published_since, require_lineage
from paimon_stream.errors import (
    CommitContended,
    CommitUnknown,
    CorruptMetadata,
    NotFound,
    PaimonStreamError,
    StorageError,
    TableReplaced,
)
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.options import BUCKET, FORCE_CREATE_SNAPSHOT, IGNORE_EMPTY_COMMIT, SNAPSHOT_TIME_RETAINED
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

__all__ = ["CommitRequest", "Committer", "Nothing", "Outcome", "Published", "Superseded"]

_LOG = logging.getLogger(__name__)

_SWIFT_MILLIS: Final = 1000
"""A first attempt that took no longer from reading its base is confirmed without listing all snapshots."""

_LISTED_EVERY: Final = 256
"""After so many commits the snapshots are listed all the same, to see how far expiry has come."""

_LONGEST_STAGED_MILLIS: Final = 30 * 60_000
"""What was staged longer ago is not put any more: an orphan cleaner may take what is an hour old."""


class Committer:
    """Commits to one table, one commit at a time.

    Between commits it keeps what makes the next one cheap: the manifests of its last snapshot, and the
    bucket counts and sequence numbers of the partitions it touched. Raises `NotFound` where there is no
    table.
    """

    def __init__(
        self,
        table: Table,
        storage: Storage | None = None,
        runtime: Runtime | None = None,
        observer: BatchObserver = NO_OBSERVER,
    ) -> None:
        self._storage = storage or table.storage
        self._location = self._storage.location
        self._runtime = runtime or system()
        self._observer = observer
        self._snapshots = SnapshotStore(self._storage, self._runtime)
        self._schemas = SchemaStore(self._storage)
        self._manifests = ManifestStore(self._storage, table.options, self._runtime)
        self._checker = Checker(table, self._storage, self._snapshots, self._manifests)
        self._stager = Stager(table, self._storage, self._manifests, self._schemas, self._runtime.clock)
        traces = Traces(self._manifests, self._checker.live)
        self._publisher = Publisher(self._location, self._snapshots, traces, self._same_table)
        options = table.options
        self._policy = RetryPolicy.of(options)
        self._usable_millis = min(options.value(SNAPSHOT_TIME_RETAINED) // 2, _LONGEST_STAGED_MILLIS)
        self._table_buckets = options.value(BUCKET)
        self._sequences = (
            Sequences(table, self._snapshots, self._manifests) if table.schema.primary_keys else None
        )
        self._keeps_empty = options.value(FORCE_CREATE_SNAPSHOT) or not options.value(IGNORE_EMPTY_COMMIT)
        self._digest = self._schemas.first_digest()
        self._own: Base | None = None
        self._floor: int | None = None
        self._unlisted = 0

    def commit(self, request: CommitRequest) -> Outcome:
        """Publishes the request: its written half as one snapshot, then its compact half as another.

        Raises, with nothing published: `CommitConflict` (the files do not fit the table), `CommitContended`
        (others were always faster), `HistoryUnknown`, `TableRolledBack`, `TableReplaced`, `StorageError`,
        `FormatError`, and what the request's source raises. Raises `CommitUnknown` where it may be
        published. A compact half that fails after the other was published raises nothing; see `Published`.
        """
        names = Names(request.stage_uuid)
        halves = collect(request.messages, table_buckets=self._table_buckets)
        if self._sequences is not None:
            # The numbers are part of what a merge decides by: those of the writer stand.
            request = replace(request, renumber=False)
        return commit_halves(request, halves, lambda half, source: self._publish_one(half, source, names))

    def numbers(self) -> Numbering | None:
        """Sequence numbers for a batch that is about to be written; None for a table without primary key.

        Raises `CorruptMetadata`, `StorageError`.
        """
        return None if self._sequences is None else self._sequences.next()

    def _publish_one(self, request: CommitRequest, source: ChangeSource, names: Names) -> Outcome:
        """Publishes one snapshot. Raises as `commit`."""
        if isinstance(source, Fixed) and not self._is_wanted(request, source.changes):
            return Nothing()
        run = Run(request, source, names, self._policy, self._runtime)
        try:
            return self._attempt_until_decided(request, run)
        except BaseException as failed:
            self._own = self._floor = None
            self._checker.forget()
            if self._sequences is not None:
                self._sequences.forget()
            if not run.outstanding:
                discard(self._storage, run.names.drawn)
            if run.open and isinstance(failed, PaimonStreamError) and not isinstance(failed, CommitUnknown):
                raise self._unknown(run, failed) from failed
            raise
        finally:
            names.drawn.clear()

    def _is_wanted(self, request: CommitRequest, changes: Changes) -> bool:
        """Whether there is to be a snapshot of these changes (semantics.md 1.4)."""
        if changes or request.force_snapshot or request.statistics is not None or request.merge is not None:
            return True
        return self._keeps_empty and request.kind in (CommitKind.APPEND, CommitKind.OVERWRITE)

    def _attempt_until_decided(self, request: CommitRequest, run: Run) -> Outcome:
        while True:
            run.attempts += 1
            latest = self._read_base(run)
            decided = self._decided(run, latest)
            if decided is not None:
                return decided
            staged = self._prepare(run, latest)
            if isinstance(staged, Nothing):
                if run.open:
                    raise self._unknown(run, None)
                discard(self._storage, run.names.drawn)
                return staged
            if staged is None:
                self._discard_attempt(run)
            else:
                outcome = self._publish(run, staged)
                if isinstance(outcome, Landed):
                    return self._finish(run, staged, outcome)
                self._give_back(run, staged, outcome)
            self._observer.reached(Phase.DISCARDED, request.identifier)
            self._wait(run)

    # -- base, decided? ---------------------------------------------------------------------------

    def _read_base(self, run: Run) -> Snapshot | None:
        """The latest snapshot, of the table and in the lineage that this commit is for."""
        with run.timed("base"):
            run.begun_millis = self._runtime.clock.now_millis()
            if not self._same_table():
                raise self._table_replaced(run)
            latest = self._snapshots.latest()
            require_lineage(self._location, self._snapshots, run.request, run.seen, latest)
        self._observer.reached(Phase.BASE_READ, run.request.identifier)
        return latest

    def _decided(self, run: Run, latest: Snapshot | None) -> Published | Superseded | None:
        """Published, if an attempt that seemed lost was not; Superseded, if somebody else has published
        this commit; None, if it is still to be made."""
        with run.timed("base"):
            for staged in tuple(run.unproven):
                part_of_table = self._publisher.settled(staged, latest)
                if part_of_table:
                    discard(self._storage, run.names.drawn)
                    return run.published(staged)
                if part_of_table is False:
                    run.unproven.remove(staged)
            other = published_since(
                self._location, self._snapshots, run.request, run.seen, latest, run.nonces
            )
        run.seen = None if latest is None else SnapshotRef.of(latest)
        if other is None:
            return None
        discard(self._storage, run.names.drawn)
        return Superseded(snapshot=other, attempts=run.attempts, phases=run.phases)

    def _same_table(self) -> bool:
        """Whether the table's first schema is still the one this committer was made for."""
        try:
            return self._schemas.first_digest() == self._digest
        except NotFound:
            return False

    # -- check, stage -----------------------------------------------------------------------------

    def _prepare(self, run: Run, latest: Snapshot | None) -> Staged | Nothing | None:
        """Checks and stages on top of `latest`; None if that expired meanwhile."""
        try:
            with run.timed("check"):
                base = self._base(latest)
                self._note_floor(base)
                changes = run.source.at(base)
                if not run.open and not self._is_wanted(run.request, changes):
                    return Nothing()
                request = run.request
                changes = self._checker.check(request, changes, base)
                if self._sequences is not None:
                    if request.kind is not CommitKind.OVERWRITE:
                        self._sequences.check(request.numbering, changes, base.snapshot)
                    told = self._sequences.properties(changes, base)
                    request = replace(request, properties={**request.properties, **told})
            self._observer.reached(Phase.CHECKED, run.request.identifier)
            with run.timed("stage"):
                staged = self._stager.stage(base, changes, request, run.names, run.merged)
        except (NotFound, CorruptMetadata):
            if self._snapshots.latest() == latest:
                raise
            return None  # what is missing belongs to a snapshot that has expired: build on the newest
        if staged is None:
            return Nothing()
        run.merged = staged.merged
        run.nonces.add(staged.snapshot.nonce)
        self._observer.reached(Phase.STAGED, run.request.identifier)
        return staged

    def _base(self, latest: Snapshot | None) -> Base:
        """The base with its manifests; those of our own last snapshot are known without reading."""
        if latest is None:
            return Base(snapshot=None, metas=())
        if self._own is not None and self._own.snapshot == latest:
            return self._own
        return Base(snapshot=latest, metas=self._manifests.base_and_delta(latest))

    def _note_floor(self, base: Base) -> None:
        """Remembers the lowest id of the unbroken run of snapshots that ends with the base. What lies below
        it never counts as part of the lineage when a snapshot is confirmed."""
        if self._floor is None or self._floor > base.id:
            present, floor = set(self._snapshots.ids()), base.id
            while floor - 1 in present:
                floor -= 1
            self._floor = floor

    # -- put, confirm, hint -----------------------------------------------------------------------

    def _publish(self, run: Run, staged: Staged) -> Landed | Lost:
        def still_usable() -> bool:
            """Whether no orphan cleaner can take the staging for what an expired snapshot left."""
            return self._runtime.clock.now_millis() - staged.since_millis <= self._usable_millis

        if not still_usable():
            run.patience.restart()
            return Lost(proven=True)  # it was never put
        with run.timed("publish"):
            run.outstanding = True
            try:
                placed = self._publisher.put(staged, run.patience, still_usable)
            except StorageError:
                run.outstanding = False  # a definite refusal
                raise
        if isinstance(placed, Lost):
            return placed
        self._observer.reached(Phase.PUBLISHED, run.request.identifier)
        with run.timed("confirm"):
            return self._publisher.confirm(
                staged,
                run.patience,
                self._floor or staged.base.id,
                doubted=placed.doubted,
                swift=self._is_swift(run),
            )

    def _is_swift(self, run: Run) -> bool:
        """Whether so little time has passed that a look at the neighbours is enough."""
        self._unlisted = (self._unlisted + 1) % _LISTED_EVERY
        passed = self._runtime.clock.now_millis() - run.begun_millis
        return run.attempts == 1 and self._unlisted > 0 and 0 <= passed <= _SWIFT_MILLIS

    def _finish(self, run: Run, staged: Staged, landed: Landed) -> Published:
        """The snapshot is part of the table: remembers it, and points readers to it."""
        snapshot = staged.snapshot
        self._own = Base(snapshot=snapshot, metas=staged.metas)
        self._snapshots.note(snapshot)
        self._floor = landed.floor
        self._checker.advance(snapshot, staged.base, staged.changes)
        if self._sequences is not None:
            self._sequences.advance(snapshot, staged.changes, staged.base)
        self._observer.reached(Phase.CONFIRMED, run.request.identifier)
        with run.timed("hint"):
            discard(self._storage, [name for name in run.names.drawn if name not in staged.names])
            try:
                self._snapshots.write_latest_hint(snapshot.id)
            except PaimonStreamError as why:
                _LOG.warning("%s: could not write the LATEST hint: %s", self._location, why)
        self._observer.reached(Phase.HINTED, run.request.identifier)
        return run.published(staged)

    # -- lost -------------------------------------------------------------------------------------

    def _give_back(self, run: Run, staged: Staged, lost: Lost) -> None:
        """Removes what only a lost attempt refers to, or leaves it for ever where a doubt is left."""
        run.outstanding = False
        if lost.proven:
            self._discard_attempt(run)
        else:
            run.unproven.append(staged)
            run.names.drawn.clear()

    def _discard_attempt(self, run: Run) -> None:
        reusable = frozenset() if run.merged is None else run.merged.written
        discard(self._storage, [name for name in run.names.drawn if name not in reusable])
        run.names.drawn[:] = [name for name in run.names.drawn if name in reusable]

    def _wait(self, run: Run) -> None:
        patience = run.patience
        if patience.exhausted:
            if run.unproven:
                raise self._unknown(run, None)
            raise self._contended(run)
        with run.timed("wait"):
            patience.wait()

    # -- errors -----------------------------------------------------------------------------------

    def _facts(self, run: Run) -> dict[str, object]:
        return {"table": self._location, "user": run.request.user, "batch": run.request.identifier}

    def _contended(self, run: Run) -> CommitContended:
        return CommitContended(
            f"{self._location}: commit {run.request.identifier} of user {run.request.user!r} was given up "
            f"after {run.patience.elapsed_millis:.0f} ms and {run.attempts} attempts: other writers were "
            "faster each time, or this one was paused. Nothing was published, and it is safe to try again. "
            "With many writers raise 'commit.max-retries' or 'commit.timeout', or let fewer of them commit.",
            **self._facts(run),
            attempts=run.attempts,
        )

    def _unknown(self, run: Run, failed: PaimonStreamError | None) -> CommitUnknown:
        cause = "" if failed is None else f" (then it failed with {type(failed).__name__})"
        return CommitUnknown(
            f"{self._location}: whether commit {run.request.identifier} of user {run.request.user!r} was "
            f"published is not known{cause}. Nothing was deleted. Start the query again: it looks for the "
            "commit before it writes anything; who calls commit() himself calls filter_and_commit() with the "
            "same messages.",
            **self._facts(run),
            attempts=run.attempts,
        )

    def _table_replaced(self, run: Run) -> TableReplaced:
        return TableReplaced(
            f"{self._location}: the table was dropped, or dropped and created again, while commit "
            f"{run.request.identifier} of user {run.request.user!r} was under way. Nothing was published. "
            "Start with a new checkpoint to write everything again.",
            **self._facts(run),
        )
