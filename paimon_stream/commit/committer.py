"""The committer publishes the written files of a commit as one snapshot, and its compaction as
another, or nothing. The outcome is never guessed. `commit/append_compact.py` describes how two
snapshots make one commit. This module publishes each of them, in attempts.

What each step of an attempt keeps true (exactly-once.md §5; semantics.md §2):

- *base*: an attempt builds on the snapshot that is the latest one now, or was so within the last
  second. That snapshot must belong to the table for which the committer was made, and to the
  lineage that the caller judged.
- *decided?*: a commit that the same user has published since `seen` is not published again.
- *check*: the changes are computed for exactly this base. What they were computed from still holds
  (`premises.py`). Nothing has been written yet.
- *stage*: what the snapshot refers to is made, under names that were drawn before.
- *journal*: the caller records what is about to be committed, once for all attempts. The files of
  the staging are written in the same trip. The put comes after all of this.
- *put*: the only step that makes something visible. No manifest or list is deleted until the
  attempt is proven lost. Then only its metadata is deleted, and its merged manifests stay for the
  next attempt. If the snapshot is void, `confirm` removes its file first, and what a tag of it
  needs stays.
- *confirm*: what is reported as published is part of the table (`publish.py`).

The ownership law: a file may be deleted only while no attempt that refers to it can ever be
published. So if a commit fails while the outcome of a put is open, the error is a `CommitUnknown`,
and nothing is deleted. A staging that is older than half of `snapshot.time-retained` (a minute at
least, half an hour at most) is no longer put, because an orphan cleaner may have deleted its files.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

from paimon_stream import errors
from paimon_stream import options as opt
from paimon_stream.commit.append_compact import commit_append_compact
from paimon_stream.commit.attempts import Attempts, RetryBudget, ReusableMerge
from paimon_stream.commit.checks import (
    LONGEST_UNCHECKED_MILLIS,
    Checker,
    adds_old_files,
    missing_files,
)
from paimon_stream.commit.latest_hint import LatestHint
from paimon_stream.commit.metastore_partitions import MetastorePartitions
from paimon_stream.commit.plan import Base, Changes, collect
from paimon_stream.commit.publish import Landed, Lost, Placed, Publisher
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, Phase
from paimon_stream.commit.request import (
    ChangeSource,
    CommitRequest,
    Fixed,
    Nothing,
    Outcome,
    Published,
    Sight,
    Superseded,
)
from paimon_stream.commit.sequence import Numbering, Sequences
from paimon_stream.commit.stage import Stager
from paimon_stream.commit.staged import Staged
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.commit.watched_files import WatchedFiles
from paimon_stream.commit.window import check_lineage, published_since
from paimon_stream.errors import (
    CommitUnknown,
    CorruptMetadata,
    NotFound,
    PaimonStreamError,
    StorageError,
)
from paimon_stream.format.names import POSTPONE_BUCKET
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Bundle
from paimon_stream.storage.store_client import is_unproven, probe_atomic_create
from paimon_stream.storage.together import Request
from paimon_stream.table.layout import SNAPSHOT_FOLDER, NameSource, manifest_path
from paimon_stream.table.message_files import check_messages, remove_files
from paimon_stream.table.references import names_kept_beside_history
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_SWIFT_MILLIS: Final = 1000
"""A first attempt that took at most this long since it read its base is confirmed without listing
all snapshots.
"""

_SHORTEST_STAGED_MILLIS: Final = 60_000
"""A staging of at most this age may always be put, however soon snapshots expire. If an id expired
and was created again, the confirmation of the snapshot detects it.
"""

_LONGEST_STAGED_MILLIS: Final = 30 * 60_000
"""An older staging is not put any more, because an orphan cleaner may delete files that are an hour
old.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommitSettings:
    """The settings of commits in the options of a table.

    Attributes:
        retry_budget: the budget of a snapshot before its first attempt. Each half of a commit has
            a copy.
        usable_millis: the age up to which a staging may be put.
        buckets: the number of buckets.
        is_guarded: whether a storage must be proven to create files atomically.
        keeps_empty: whether appends and overwrites without changes make a snapshot.
    """

    retry_budget: RetryBudget
    usable_millis: int
    buckets: int
    is_guarded: bool
    keeps_empty: bool

    @classmethod
    def of(cls, options: opt.Options, runtime: Runtime) -> "_CommitSettings":
        """The settings of commits in these options. Raises `InvalidOption`."""
        retry_budget = RetryBudget.of(options, runtime)
        half_retained = options.value(opt.SNAPSHOT_TIME_RETAINED) // 2
        usable_millis = min(max(half_retained, _SHORTEST_STAGED_MILLIS), _LONGEST_STAGED_MILLIS)
        return cls(
            retry_budget=retry_budget,
            usable_millis=usable_millis,
            buckets=options.value(opt.BUCKET),
            is_guarded=options.value(opt.COMMIT_GUARD) != "trust",
            keeps_empty=options.value(opt.FORCE_CREATE_SNAPSHOT)
            or not options.value(opt.IGNORE_EMPTY_COMMIT),
        )


class Committer:
    """Commits to one table, one commit at a time. Between commits it remembers the manifests of its
    last snapshot, and the bucket counts and sequence numbers of the partitions that it touched, so
    that the next commit is cheap. Raises `NotFound` if there is no table.
    """

    def __init__(
        self,
        table: Table,
        runtime: Runtime | None = None,
        observer: BatchObserver = NO_OBSERVER,
        snapshots: SnapshotStore | None = None,
        digest: str | None = None,
        *,
        compacts: bool = False,
    ) -> None:
        """Prepares commits to a table.

        Args:
            table: the table.
            runtime: the clock, the ids and the random numbers. None: those of the system.
            observer: is called at the named points of a commit.
            snapshots: the caller's cache of snapshots, which the committer then shares. None: the
                committer has a cache of its own.
            digest: the digest of the table's first schema, if the caller knows it.
            compacts: whether the caller compacts the table, too.
        """
        self._storage = table.storage
        self._location = self._storage.location
        self._layout = table.layout
        self._runtime = runtime or system()
        self._observer = observer
        self._snapshots = snapshots or SnapshotStore(self._storage, self._runtime)
        self._schemas = SchemaStore(self._storage)
        self._cache = TableCache(table, self._snapshots)
        self._checker = Checker(table, self._cache, self._runtime.clock, compacts=compacts)
        self._stager = Stager(table, self._cache.manifests, self._runtime.clock)
        self._publisher = Publisher(table, self._cache, self._same_table)
        self._partitions = MetastorePartitions(table, self._runtime)
        self._settings = _CommitSettings.of(table.options, self._runtime)
        self._sequences: Sequences | None = None
        """Numbers rows with a primary key; None in a table without."""
        if table.schema.primary_keys:
            self._sequences = Sequences(table, self._cache)
        self._digest = digest or self._schemas.first_digest()
        """The digest of the first schema of the table that this committer is for."""
        self._schema_id = table.schema.id
        """The newest schema at the last look, from which the next look begins."""

    def commit(self, request: CommitRequest) -> Outcome:
        """Publishes the written files of the request as one snapshot, and after that its compaction
        as another. If the compaction fails after the first snapshot was published, no error is
        raised, and the outcome has the reason (`Published`).

        Raises:
            CommitUnknown: the commit may have been published, or a tag may have a snapshot of the
                commit that another writer has replaced. After all other errors, nothing is
                published.
            CommitConflict: the files do not fit the table.
            CommitContended: others were faster each time.
            HistoryUnknown, SharedCheckpoint, TableRolledBack, TableReplaced: the table is not as
                the caller judged it, or that is not known.
            StorageError, FormatError: something cannot be read or written.
            PaimonStreamError: what the request's source raises.
        """
        check_messages(self._layout, request.messages, self._location)
        names = NameSource(request.stage_uuid)
        collected = collect(request.messages, table_buckets=self._settings.buckets)
        if self._sequences is not None:
            # The rows of a key are merged in the order of these numbers, so the writer's numbers
            # are kept.
            request = replace(request, renumber=False)
        return commit_append_compact(
            request, collected, lambda half, source: self._publish_half(half, source, names)
        )

    def numbers(
        self,
        known: Snapshot | None = None,
        *,
        own: SnapshotRef | None = None,
        replaces: bool = False,
    ) -> Numbering | None:
        """Sequence numbers for a batch that is about to be written. None for a table without a
        primary key, and for a table whose rows get their numbers later.

        Args:
            known: the latest snapshot, as the caller has seen it. None: the latest snapshot is
                looked up.
            own: the snapshot of the caller's newest batch, if the caller knows it.
            replaces: whether the batch replaces what is in the table.

        Raises:
            CorruptMetadata, StorageError: the numbers of the table cannot be read.
        """
        if self._sequences is None or self._settings.buckets == POSTPONE_BUCKET:
            return None
        return self._sequences.next(known, own=own, replaces=replaces)

    def watch(
        self, base: Base | None, partitions: Collection[bytes], below: int | None
    ) -> tuple[Base, WatchedFiles]:
        """A base, and the files of some partitions that are live at this base (`TableCache.watch`).
        If no `base` is given, it is the last snapshot of this committer or, if there is none, the
        newest one of the table. Only files of less than `below` bytes are returned.
        """
        base = base or self._cache.base(self._cache.last or self._snapshots.latest())
        return base, self._cache.watch(base, partitions, below)

    def _publish_half(
        self, request: CommitRequest, source: ChangeSource, names: NameSource
    ) -> Outcome:
        """Publishes one snapshot. Raises the errors of `commit`."""
        if isinstance(source, Fixed) and not self._is_wanted(request, source.changes):
            return Nothing()
        retry_budget = replace(self._settings.retry_budget)  # a copy, which begins to count now
        hint = LatestHint(self._snapshots, self._same_table)
        attempts = Attempts(self._location, request, source, names, retry_budget, hint)
        try:
            outcome = self._attempt_until_decided(request, attempts)
            outcome = self._open_if_tagged(attempts, outcome)
        except BaseException as failed:
            self._cache.forget()
            if not attempts.outstanding:  # otherwise a put may still publish these files
                self._discard(names.drawn)
            if not attempts.may_be_published:
                self._partitions.withdraw()
            if isinstance(failed, PaimonStreamError) and not isinstance(failed, CommitUnknown):
                if attempts.may_be_published:  # after a lost attempt without proof, too
                    raise attempts.unknown(failed) from failed
                if self._may_be_tagged(attempts):
                    raise attempts.tagged(failed) from failed
            raise
        finally:
            names.drawn.clear()
        if isinstance(outcome, Nothing):
            self._partitions.withdraw()
        else:
            self._partitions.tell()
        return outcome

    def _is_wanted(self, request: CommitRequest, changes: Changes) -> bool:
        """Whether these changes need a snapshot (semantics.md §1.4)."""
        if (
            changes
            or request.force_snapshot
            or request.statistics is not None
            or request.merge is not None
        ):
            return True
        return self._settings.keeps_empty and request.kind in (
            CommitKind.APPEND,
            CommitKind.OVERWRITE,
        )

    def _attempt_until_decided(self, request: CommitRequest, attempts: Attempts) -> Outcome:
        """Makes attempts until one is published, or until the commit is decided in another way."""
        while True:
            attempts.count += 1
            with attempts.timed("base"):
                sight = self._look(attempts)
                check_lineage(self._snapshots, attempts, sight.latest, self._cache.last)
            self._observer.reached(Phase.BASE_READ, request.identifier)
            decided = self._decided(attempts, sight.latest)
            if decided is not None:
                return decided
            staged = self._prepare(attempts, sight)
            if isinstance(staged, Nothing):
                if attempts.may_be_published:
                    raise attempts.unknown(None)
                self._discard(attempts.names.drawn)
                return staged
            if staged is None:
                self._discard_attempt(attempts)
            else:
                outcome = self._put_and_confirm(attempts, sight, staged)
                if isinstance(outcome, Landed):
                    return self._finish(attempts, sight, staged, outcome)
                attempts.hint.correct()
                self._drop_lost(attempts, staged, outcome)
            self._observer.reached(Phase.DISCARDED, request.identifier)
            self._wait(attempts)

    # -- base, decided? ---------------------------------------------------------------------------
    def _look(self, attempts: Attempts) -> Sight:
        """The latest snapshot and schema, after a check that the table is still the one of this
        commit. The first attempt uses what the caller has seen, if that is at most a second old.
        """
        sight = attempts.request.sight
        since_millis = self._runtime.clock.now_millis()
        if sight is not None and attempts.count == 1 and self._is_swift(sight.since_millis):
            return sight
        try:
            looks: list[Request] = [
                self._same_table,
                self._snapshots.latest,
                partial(self._schemas.newest_id, self._schema_id),
            ]
            if self._settings.is_guarded and is_unproven(self._storage):
                looks.append(
                    partial(probe_atomic_create, self._storage, SNAPSHOT_FOLDER, self._runtime.ids)
                )
            same, latest, schema_id = self._storage.together(looks)[:3]
        except (NotFound, CorruptMetadata):
            if not self._same_table():
                raise attempts.table_replaced() from None
            raise
        if not same or schema_id is None:
            raise attempts.table_replaced()
        self._schema_id = schema_id
        return Sight(
            latest=cast("Snapshot | None", latest),
            schema_id=cast("int", schema_id),
            since_millis=since_millis,
        )

    def _is_swift(self, since_millis: int) -> bool:
        """Whether at most a second has passed since `since_millis`. In so short a time, nothing
        that was seen has expired. False if the clock was set back.
        """
        return 0 <= self._runtime.clock.now_millis() - since_millis <= _SWIFT_MILLIS

    def _decided(
        self, attempts: Attempts, latest: Snapshot | None
    ) -> Published | Superseded | None:
        """`Published` if an attempt that seemed lost was not lost. `Superseded` if somebody else
        has published this commit. None if the commit has not been made yet.
        """
        with attempts.timed("base"):
            for staged in tuple(attempts.unproven):
                part_of_table = self._publisher.settled(staged, latest)
                if part_of_table:
                    self._discard(attempts.names.drawn)
                    return attempts.outcome_of(staged)
                if part_of_table is False:
                    attempts.unproven.remove(staged)
            winner = published_since(self._snapshots, attempts, latest)
        attempts.seen = SnapshotRef.of_optional(latest)
        if winner is None:
            return None
        self._discard(attempts.names.drawn)
        return Superseded(snapshot=winner, is_open=attempts.may_be_published)

    def _same_table(self) -> bool:
        """Whether the table's first schema is still the one for which this committer was made."""
        try:
            return self._schemas.first_digest() == self._digest
        except NotFound:
            return False

    # -- check, stage -----------------------------------------------------------------------------
    def _prepare(self, attempts: Attempts, sight: Sight) -> Staged | Nothing | None:
        """Checks the commit and stages it on top of the latest snapshot. Returns `Nothing` if no
        snapshot is needed, and None if the latest snapshot expired meanwhile.
        """
        try:
            with attempts.timed("check"):
                base = self._cache.base(sight.latest)
                self._snapshots.read_samples()
                premises = attempts.request.premises
                if premises is not None:
                    premises.check(self._snapshots, self._cache.manifests, base, sight.schema_id)
                wanted = attempts.source.at(base)
                self._journal_old_files(attempts, wanted)
                is_wanted = self._is_wanted(attempts.request, wanted)
                if not (is_wanted or attempts.may_be_published):
                    return Nothing()
                changes = self._checker.check(attempts.request, wanted, base)
                request = self._with_sequence_numbers(attempts.request, changes, base)
            self._observer.reached(Phase.CHECKED, attempts.request.identifier)
            with attempts.timed("stage"):
                self._drop_aged_merge(attempts)
                files = Bundle(self._storage)
                staged = self._stager.stage(
                    base, changes, request, attempts, sight.schema_id, files
                )
                if staged is None:
                    return Nothing()
                after_own = base.snapshot == self._cache.last
                noting = self._partitions.note(
                    staged.snapshot, staged.changes.entries, after_own=after_own
                )
                self._journal(attempts, files.flush, *noting)
        except (NotFound, CorruptMetadata):
            if self._snapshots.latest() == sight.latest:
                raise
            # The missing file belongs to a snapshot that has expired. The next attempt builds on
            # the newest snapshot.
            return None
        if attempts.merge is None:
            attempts.merge = ReusableMerge(staged.merged, staged.since_millis)
        attempts.nonces.add(staged.snapshot.nonce)
        self._observer.reached(Phase.STAGED, attempts.request.identifier)
        return staged

    def _with_sequence_numbers(
        self, request: CommitRequest, changes: Changes, base: Base
    ) -> CommitRequest:
        """The request with the properties that keep the table's largest sequence number, after the
        check of the batch's own numbers. Raises what `Sequences.check` raises.
        """
        if self._sequences is None:
            return request
        if request.kind is not CommitKind.OVERWRITE:
            self._sequences.check(request.numbering, changes, base.snapshot)
        recorded = self._sequences.properties(changes, base)
        return replace(request, properties={**request.properties, **recorded})

    def _drop_aged_merge(self, attempts: Attempts) -> None:
        """Forgets a merge that is so old that an orphan cleaner may have taken its manifests."""
        if attempts.merge is None:
            return
        age_millis = self._runtime.clock.now_millis() - attempts.merge.since_millis
        is_usable = 0 <= age_millis <= self._settings.usable_millis
        if not is_usable:
            attempts.merge = None

    # -- journal ----------------------------------------------------------------------------------
    def _journal_old_files(self, attempts: Attempts, changes: Changes) -> None:
        """Journals before the check if the journal step may send files that the check looks for."""
        if attempts.journal_requests and adds_old_files(self._layout, self._runtime.clock, changes):
            self._journal(attempts)

    def _journal(self, attempts: Attempts, *along: Request) -> None:
        """Lets the caller record the commit (of a stream: `record` in `stream/prepared.py`), unless
        it has done so in an earlier attempt, and sends the requests `along` in the same trip. No
        snapshot may be put before.
        """
        self._storage.together([*attempts.journal_requests, *along])
        attempts.journal_requests = ()

    # -- put, confirm, hint -----------------------------------------------------------------------
    def _put_and_confirm(self, attempts: Attempts, sight: Sight, staged: Staged) -> Landed | Lost:
        """Puts the snapshot and confirms it.

        A snapshot that is lost after its put was visible for a while. An expiry may have removed
        its manifests as those of an expired snapshot. So the next attempt does not use the merged
        manifests again.
        """
        placed = self._put(attempts, staged)
        if isinstance(placed, Lost):
            if not placed.proven:
                attempts.merge = None
            return placed
        self._observer.reached(Phase.PUBLISHED, attempts.request.identifier)
        with attempts.timed("confirm"):
            confirmed = self._confirm(attempts, sight, staged, placed)
        if isinstance(confirmed, Lost):
            attempts.merge = None
        return confirmed

    def _put(self, attempts: Attempts, staged: Staged) -> Placed | Lost:
        """Puts the snapshot, unless its staging is too old."""

        def age_millis() -> int:
            return self._runtime.clock.now_millis() - staged.since_millis

        def still_usable() -> bool:
            """Whether no orphan cleaner can have taken the staged files for those of an expired
            snapshot.
            """
            return age_millis() <= self._settings.usable_millis

        attempts.aged_millis = None
        if not still_usable():
            attempts.aged_millis = age_millis()
            attempts.retry_budget.restart()
            return Lost(proven=True)  # it was never put
        with attempts.timed("publish"):
            attempts.outstanding = True
            try:
                return self._publisher.put(staged, attempts.retry_budget, still_usable)
            except (StorageError, errors.CommitContended, errors.TableReplaced):
                attempts.outstanding = False  # a definite refusal
                raise

    def _confirm(
        self, attempts: Attempts, sight: Sight, staged: Staged, placed: Placed
    ) -> Landed | Lost:
        """Proves that the snapshot is part of the table, or removes it again."""
        is_quick = self._is_swift(sight.since_millis)
        # A quick first attempt needs only a look at the neighbouring snapshots. That is not enough
        # for the first snapshot of a table. No snapshot lies below it, so nothing would prove that
        # the ids above it were never used.
        is_first = attempts.count == 1 and not placed.doubted
        swift = is_quick and is_first and staged.base.snapshot is not None
        along: tuple[Request, ...] = ()
        if swift:
            along = (partial(attempts.hint.point, staged.snapshot.id), *attempts.trim_requests)
            attempts.trim_requests = ()
        try:
            confirmed = self._publisher.confirm(
                staged,
                attempts.retry_budget,
                doubted=placed.doubted,
                swift=swift,
                along=along,
                undo=attempts.hint.retract,
            )
        except CommitUnknown:
            attempts.hint.correct()
            raise
        if isinstance(confirmed, Landed) and not is_quick:
            return self._landed_with_its_files(attempts, sight, staged)
        return confirmed

    def _landed_with_its_files(
        self, attempts: Attempts, sight: Sight, staged: Staged
    ) -> Landed | Lost:
        """Removes the snapshot again if files of this attempt were removed before its put.

        A later run may have removed them: it published the commit, and then a rollback removed the
        later run's snapshot. In that case `SharedCheckpoint` is raised. An orphan cleaner may also
        have removed the files, because the put took very long.
        """
        is_newest = attempts.request.is_newest
        snapshot_id = staged.snapshot.id
        overtaken = is_newest is not None and not is_newest()
        age = self._runtime.clock.now_millis() - sight.since_millis
        if not overtaken and 0 <= age <= LONGEST_UNCHECKED_MILLIS:
            return Landed()
        inherited = {meta.file_name for meta in staged.base.metas}
        written = [manifest_path(name) for name in sorted(staged.names - inherited)]
        missing = [path for path in written if not self._storage.exists(path)]
        missing += missing_files(self._storage, self._layout, staged.changes)
        # A writer that has built on the snapshot has read its lists. Expiry removes the lists
        # before the snapshot.
        while missing and not self._snapshots.exists(snapshot_id + 1):
            if not self._snapshots.remove_if_equal(snapshot_id, staged.content):
                break
            if not self._snapshots.exists(snapshot_id + 1):
                attempts.merge = None  # its manifests may be gone, too
                attempts.retry_budget.restart()
                if overtaken:
                    attempts.outstanding = False
                    attempts.names.drawn.clear()
                    raise attempts.removed_by_later_run(missing)
                return Lost(proven=False)  # somebody may still publish what was built on it
            # Another snapshot was built on it just now.
            self._snapshots.create_snapshot(staged.snapshot, staged.content)
        return Landed()

    def _finish(
        self, attempts: Attempts, sight: Sight, staged: Staged, landed: Landed
    ) -> Published:
        """Remembers a snapshot that is part of the table, and writes the hint for readers. A hint
        may have been written during the look at the neighbouring snapshots. The hint stays if the
        look was quick and found no newer snapshot. Otherwise the hint is corrected.
        """
        snapshot = staged.snapshot
        self._snapshots.record(snapshot, staged.content)
        published = Base(snapshot=snapshot, metas=staged.metas)
        self._cache.advance(staged.base, published, staged.changes.entries)
        self._checker.warn_of_deep_buckets(staged.changes)
        self._observer.reached(Phase.CONFIRMED, attempts.request.identifier)
        with attempts.timed("hint"):
            self._discard([name for name in attempts.names.drawn if name not in staged.names])
            if not attempts.hint.is_early:
                attempts.hint.write(snapshot.id)
            elif not (landed.newest and self._is_swift(sight.since_millis)):
                attempts.hint.correct()
            self._storage.together(attempts.trim_requests)
        self._observer.reached(Phase.HINTED, attempts.request.identifier)
        return attempts.outcome_of(staged)

    # -- lost -------------------------------------------------------------------------------------
    def _drop_lost(self, attempts: Attempts, staged: Staged, lost: Lost) -> None:
        """Removes the files to which only a lost attempt refers. If the loss is not proven, the
        files stay for good.
        """
        self._snapshots.look_at_hint()
        if lost.was_visible or not lost.proven:
            attempts.visible.append(staged)
        if lost.proven:
            if lost.was_visible:
                self._leave_to_tags(attempts)
            attempts.outstanding = False  # not before: an interrupt would delete what tags need
            self._discard_attempt(attempts)
        else:
            attempts.unproven.append(staged)
            attempts.names.drawn.clear()  # so that nobody deletes the files
            attempts.outstanding = False

    def _open_if_tagged(self, attempts: Attempts, outcome: Outcome) -> Outcome:
        """The outcome, which says that no file may be removed if the snapshot of a lost attempt may
        be published or tagged. Raises `CommitUnknown` if nothing was published.
        """
        if not (attempts.unproven or self._may_be_tagged(attempts)):
            return outcome
        if isinstance(outcome, Nothing):
            raise attempts.tagged(None)
        return replace(outcome, is_open=True)

    def _may_be_tagged(self, attempts: Attempts) -> bool:
        """Whether a tag, a long-lived changelog or another branch may have files of a lost attempt:
        by the snapshot of the attempt, or by one that others have built on it.
        """
        names = {name for staged in attempts.visible for name in staged.own_names}
        if not names:
            return False
        try:
            return bool(names_kept_beside_history(self._storage, self._runtime, sorted(names)))
        except PaimonStreamError:
            return True

    def _leave_to_tags(self, attempts: Attempts) -> None:
        """Leaves the metadata that a tag, a long-lived changelog or another branch needs, or all of
        it if one of these cannot be read. Whoever tags the snapshot after this look notices that
        it does not stand, and takes the tag back.
        """
        drawn = attempts.names.drawn
        try:
            kept = names_kept_beside_history(self._storage, self._runtime, drawn)
        except PaimonStreamError:
            kept = frozenset(drawn)
        drawn[:] = [name for name in drawn if name not in kept]

    def _discard(self, names: Iterable[str]) -> None:
        remove_files(self._storage, map(manifest_path, names))

    def _discard_attempt(self, attempts: Attempts) -> None:
        """Removes the metadata of an attempt, except the merged manifests, which the next attempt
        may use.
        """
        reusable: frozenset[str] = frozenset()
        if attempts.merge is not None:
            reusable = attempts.merge.merged.written
        self._discard([name for name in attempts.names.drawn if name not in reusable])
        attempts.names.drawn[:] = [name for name in attempts.names.drawn if name in reusable]

    def _wait(self, attempts: Attempts) -> None:
        """Waits before the next attempt. Raises an error if no further attempt is allowed."""
        retry_budget = attempts.retry_budget
        if retry_budget.exhausted:
            if attempts.unproven:
                raise attempts.unknown(None)
            if attempts.aged_millis is not None:
                raise attempts.aged(self._settings.usable_millis, opt.SNAPSHOT_TIME_RETAINED.key)
            raise attempts.contended()
        with attempts.timed("wait"):
            retry_budget.wait()
