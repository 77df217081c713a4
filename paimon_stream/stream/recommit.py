"""Commits the files of a batch again if another engine replaced its snapshot (`CommitLost`).

A rollback looks almost the same: a snapshot of ours is gone, and another one has its id. So a batch
is committed again only if everything that exactly-once.md §7 asks for holds. The batch keeps its
own user and identifier, so that a second call and the stream find it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Final, TypedDict

from paimon_stream import errors
from paimon_stream.commit.checks import missing_files
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.plan import Changes, collect
from paimon_stream.commit.request import CommitRequest, Published, Superseded
from paimon_stream.commit.sequence import Sequences
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.format.entries import FileIdentity, FileKind, ManifestFileMeta
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import (
    MARK_PREFIX,
    RECOMMITTED_MARK,
    is_ours,
    own_properties,
)
from paimon_stream.options import BUCKET
from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime, system
from paimon_stream.stream.lost_batches import (
    LIST_PREFIX,
    LostBatch,
    journalled,
    listed_batch,
    not_to_be_repeated,
)
from paimon_stream.stream.own_history import is_of_run_without
from paimon_stream.stream.sequence_conflicts import prepared_numbering
from paimon_stream.table.fate import Fate, judge_notes
from paimon_stream.table.layout import escape_user
from paimon_stream.table.lineage import has_file, published_after
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.recommit_notes import recommitting
from paimon_stream.table.register import registered_writer
from paimon_stream.table.removals import read_removals
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, check_committable

_QUERY_ID: Final = MARK_PREFIX + "query-id"
_LATEST_MILLIS: Final = 45 * 60_000
"""The longest time from a snapshot's staging to its put: half an hour, and the 15 minutes by which
stores let clocks differ.
"""
_SHOWN: Final = 5
"""How many files a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommitReport(Report):
    """A lost batch, and what was done about it.

    Attributes:
        location: where the table is.
        user: the commit user of the batch.
        batch: the id of the batch.
        files: how many files the batch had committed.
        rows: how many rows the files have.
        replaced: the id of the batch's former snapshot. A snapshot of another engine has this id
            now.
        by: the commit user of that other snapshot.
        snapshot: the id of the snapshot that has the batch now. None in a dry run, and if only
            files show that the table has the batch.
        found: whether the table had the batch before this call.
        dry_run: whether the call was not to write anything.
    """

    location: str
    user: str
    batch: int
    files: int
    rows: int
    replaced: int | None = None
    by: str | None = None
    snapshot: int | None = None
    found: bool = False
    dry_run: bool = True


def recommit(
    table: Table,
    user: str | None = None,
    batch: int | None = None,
    *,
    snapshot: int | None = None,
    delta_list: str | None = None,
    dry_run: bool = True,
    runtime: Runtime | None = None,
) -> RecommitReport:
    """Commits the files of a lost batch again. A batch is lost only if another engine's snapshot
    has replaced its own.

    Args:
        table: the table that lost the batch.
        user: the commit user of the batch. None: the user whose batch is missing.
        batch: the id of the batch. None: the earliest batch that is missing.
        snapshot: the id that the batch's snapshot had, as the message of `CommitLost` names it.
        delta_list: the delta list of that snapshot, which the message names, too.
        dry_run: only says what would be committed.
        runtime: the clock and the ids. None: those of the system.

    Raises:
        TableRolledBack: the batch was not replaced by another engine.
        PaimonStreamError: the same errors as `PaimonTable.recommit`.
    """
    check_committable(table)
    runtime = runtime or system()
    now = _TableNow.of(table, runtime)
    lost = _chosen(now, user, batch, snapshot, delta_list)
    return _commit_again(now, lost, runtime, dry_run=dry_run)


def _commit_again(
    now: "_TableNow", lost: LostBatch, runtime: Runtime, *, dry_run: bool
) -> RecommitReport:
    """Commits the lost batch again, unless the table has it, and returns the report."""
    table = now.table
    collected = collect(lost.messages, table_buckets=table.options.value(BUCKET))
    if collected.append.takes_away or collected.compact or not collected.append:
        raise not_to_be_repeated(
            table.storage, lost.user, lost.batch, "it replaced or compacted files"
        )
    files = lost.files
    report = RecommitReport(
        location=table.storage.location,
        user=lost.user,
        batch=lost.batch,
        files=len(files),
        rows=sum(file.row_count for file in files),
        dry_run=dry_run,
    )
    published = now.snapshot_of(lost)
    if published is not None:
        return dataclasses.replace(report, snapshot=published.id, found=True)
    if now.is_live(lost):
        return dataclasses.replace(report, found=True)
    replacing = _Replacement(now, lost).replacing_snapshot()
    _check_files(now, lost, collected.append)
    report = dataclasses.replace(report, replaced=int(replacing.id), by=replacing.commit_user)
    if dry_run:
        return report
    apart = nullcontext() if lost.journalled else recommitting(table.storage, runtime)
    with apart:  # from removals of orphans
        _check_files(now, lost, collected.append)
        outcome = Committer(table, runtime=runtime).commit(_request(now, lost, runtime))
        gone = missing_files(table.storage, table.layout, collected.append)
    if gone and isinstance(outcome, Published):
        raise _Errors(table.storage.location, lost).files_gone_since(gone, outcome.snapshot)
    if isinstance(outcome, Superseded):
        if outcome.snapshot.commit_identifier != lost.batch:
            raise _Errors(table.storage.location, lost).went_on(outcome.snapshot)
        return dataclasses.replace(report, snapshot=outcome.snapshot.id, found=True)
    assert isinstance(outcome, Published)  # it adds files
    return dataclasses.replace(report, snapshot=outcome.snapshot.id)


# -- is it there ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _TableNow:
    """The table as it is during one call. The methods say what the table has of a lost batch.

    Attributes:
        table: the table.
        snapshots: its snapshots.
        manifests: its manifests.
        latest: its latest snapshot.
    """

    table: Table
    snapshots: SnapshotStore
    manifests: ManifestStore
    latest: Snapshot | None

    @classmethod
    def of(cls, table: Table, runtime: Runtime) -> "_TableNow":
        """Reads the latest snapshot. Raises `CorruptMetadata`, `StorageError`."""
        snapshots = SnapshotStore(table.storage, runtime)
        return cls(
            table=table,
            snapshots=snapshots,
            manifests=ManifestStore(table.storage),
            latest=snapshots.latest(),
        )

    def snapshot_of(self, lost: LostBatch) -> Snapshot | None:
        """The snapshot that has the batch, among those since the batch's base; None if there is
        none. All batch commits share one identifier, so the nonce tells batch commits apart.
        """
        if self.latest is None:
            return None
        for snapshot in published_after(self.snapshots, lost.base, self.latest).snapshots:
            if (snapshot.commit_user, snapshot.commit_identifier) != (lost.user, lost.batch):
                continue
            if lost.batch != BATCH_IDENTIFIER:
                return snapshot
            nonces = (snapshot.nonce, own_properties(snapshot).get(RECOMMITTED_MARK))
            if lost.nonce in nonces:
                return snapshot
        return None

    def is_missing(self, lost: LostBatch) -> bool:
        """Whether all snapshots since the batch's base are there, none has the batch, and no file
        of the batch is live. Also true for a table without snapshots.
        """
        if self.latest is None:
            return True
        window = published_after(self.snapshots, lost.base, self.latest)
        return window.complete is True and self.snapshot_of(lost) is None and not self.is_live(lost)

    def is_live(self, lost: LostBatch) -> bool:
        """Whether a file of the batch is live in the latest snapshot."""
        if self.latest is None:
            return False
        names = {file.file_name for file in lost.files}
        partitions = {message.partition for message in lost.messages}
        metas = self.manifests.base_and_delta(self.latest)
        live = live_files(self.manifests, metas, self.table.partition_types, partitions)
        return any(entry.file.file_name in names for entry in live)


# -- which batch ----------------------------------------------------------------------------------
def _chosen(
    now: _TableNow, user: str | None, batch: int | None, place: int | None, nonce: str | None
) -> LostBatch:
    """The lost batch that an operator means. It is read from the journals or, if they lack it, from
    a delta list.

    Args:
        now: the state of the table now.
        user: the commit user of the batch, if the operator named it.
        batch: the id of the batch, if the operator named it.
        place: the id of the lost snapshot, if the operator named it.
        nonce: the file name of the lost snapshot's delta list, if the operator named it.

    Raises:
        InvalidOption: several streams have a batch that is missing, and no user is named.
        NotFound: no journal has the batch, and not all parameters are given.
    """
    storage = now.table.storage
    candidates = list(journalled(storage, user, batch))
    missing = [candidate for candidate in candidates if now.is_missing(candidate)]
    users = sorted({candidate.user for candidate in missing})
    if user is None and len(users) > 1:
        raise errors.InvalidOption(
            f"batches of several commit users are not in the table: {', '.join(users)}. "
            "Give the user."
        ).of_table(storage.location)
    if missing and nonce is None:
        return _at(missing[0], place)  # the earliest
    if nonce is not None:
        for candidate in candidates:
            if candidate.uuid in nonce:  # the name of a delta list contains the attempt's uuid
                return dataclasses.replace(_at(candidate, place), nonce=nonce)
    elif candidates:
        # No batch is surely missing. A restart would ask about the newest one.
        return _at(candidates[-1], place)
    if user is None or batch is None or place is None or nonce is None:
        raise _unknown_to_journals(storage.location, user, batch)
    return listed_batch(now.table, user, batch, place, nonce)


def _at(lost: LostBatch, place: int | None) -> LostBatch:
    """The lost batch, with the id of its snapshot if the operator has named that id."""
    if place is None:
        return lost
    return dataclasses.replace(lost, place=place)


def _unknown_to_journals(
    location: str, user: str | None, batch: int | None
) -> errors.PaimonStreamError:
    stream_name = "any stream" if user is None else f"commit user {user!r}"
    batch_name = "a batch" if batch is None else f"batch {batch}"
    return errors.NotFound(
        f"the journal does not know {batch_name} of {stream_name}. Give the user, the batch, "
        "the snapshot and the delta list that the message of CommitLost names, or write the "
        "rows again.",
        user=user,
        batch=batch,
    ).of_table(location)


# -- was it replaced ------------------------------------------------------------------------------
class _Replacement:
    """Whether a snapshot of another engine has replaced the snapshot of a lost batch."""

    def __init__(self, now: _TableNow, lost: LostBatch) -> None:
        self._lost = lost
        self._storage = now.table.storage
        self._snapshots = now.snapshots
        self._manifests = now.manifests
        self._latest = now.latest
        self._errors = _Errors(now.table.storage.location, lost)

    def replacing_snapshot(self) -> Snapshot:
        """The snapshot of another engine that has replaced that of the lost batch. Raises what
        `recommit` raises if there is no such snapshot, or if anything contradicts the replacement.
        """
        lost = self._lost
        window = self._since_base()
        self._check_nobody_went_on(window)
        place = lost.place or self._place(window)
        replacing = next((snapshot for snapshot in window if snapshot.id == place), None)
        if replacing is None or is_ours(replacing):
            raise self._errors.rolled_back(
                "no snapshot of another engine stands in place of its own"
            )
        self._check_not_rolled_back()
        lists = self._storage.list_files("manifest", f"{LIST_PREFIX}{lost.uuid}-")
        staged_millis = max((stat.modified_millis for stat in lists), default=None)
        if staged_millis is not None and replacing.time_millis > staged_millis + _LATEST_MILLIS:
            raise self._errors.rolled_back(f"snapshot {place} in its place was made long after it")
        return replacing

    def _since_base(self) -> tuple[Snapshot, ...]:
        """All snapshots since the one on which the batch was made, ascending. Raises
        `TableRolledBack` if that base is gone or another snapshot has its id. Raises
        `HistoryUnknown` if snapshots above the base have expired.
        """
        base = self._lost.base
        latest = self._latest
        base_id = 0 if base is None else base.id
        if latest is None or latest.id < base_id:
            raise self._errors.rolled_back(
                "the table has no snapshot as new as the one on which it was made"
            )
        if base is not None:
            base_there = self._snapshots.find(base_id)
            if base_there is not None and base_there.nonce != base.nonce:
                raise self._errors.rolled_back(
                    f"snapshot {base_id}, on which it was made, is another one now"
                )
        window = published_after(self._snapshots, base, latest)
        if not window.complete:
            raise self._errors.snapshots_gone(above=base_id)
        return window.snapshots

    def _check_nobody_went_on(self, window: tuple[Snapshot, ...]) -> None:
        """Raises `CheckpointRewound` if the user has published a later batch. Raises the same error
        if the query has published the lost batch or a later one as another user, in a run in which
        the user had no sink.
        """
        lost = self._lost
        runs_of_user = cache(self._runs_of_user)
        query_id = None
        if lost.run_id is not None:
            query_id = lost.properties.get(_QUERY_ID)
        this_and_later = range(lost.batch, BATCH_IDENTIFIER)
        for snapshot in window:
            if (
                snapshot.commit_user == lost.user
                and lost.batch < snapshot.commit_identifier < BATCH_IDENTIFIER
            ):
                raise self._errors.went_on(snapshot)
            # The sink had another name in that run, so the lost batch need not have been committed.
            if is_of_run_without(snapshot, query_id, this_and_later, runs_of_user):
                raise self._errors.written_by_another(snapshot)

    def _check_not_rolled_back(self) -> None:
        """Raises `TableRolledBack` if a note says that a rollback removed the lost batch, and
        `HistoryUnknown` if a rollback may have removed it.
        """
        removals = read_removals(self._storage)
        noted = judge_notes(removals, removals.of_uuid(self._lost.uuid))
        if noted.fate is Fate.ROLLED_BACK:
            raise self._errors.rolled_back("a rollback has removed its snapshot")
        if noted.fate is Fate.UNKNOWN:
            raise self._errors.maybe_rolled_back(noted.why)

    def _runs_of_user(self) -> frozenset[str]:
        """The runs in which the commit user has written, as far as they are known."""
        register = registered_writer(self._storage, self._lost.user)
        run = escape_user(str(self._lost.run_id))
        if register is None:
            return frozenset({run})
        return register.runs | {run}

    def _place(self, window: tuple[Snapshot, ...]) -> int:
        """The id of the lost snapshot: one more than the id of the newest snapshot on which its
        base list was built. The base list has the manifests of that newest snapshot or, where the
        commit merged manifests, their entries.
        """
        lost = self._lost
        staged: dict[str, ManifestFileMeta] = {}
        for name in self._storage.list_names("manifest", f"{LIST_PREFIX}{lost.uuid}-"):
            with suppress(errors.CorruptMetadata):
                staged.update((meta.file_name, meta) for meta in self._manifests.read_list(name))
        for snapshot in reversed(window):
            if self._is_built_on(staged, snapshot):
                return snapshot.id + 1
        if lost.base is None:
            return 1
        return lost.base.id + 1

    def _is_built_on(self, staged: Mapping[str, ManifestFileMeta], snapshot: Snapshot) -> bool:
        """Whether the manifest lists of the lost batch contain what the snapshot added. `staged`
        has the manifests of these lists, by name.
        """
        delta = self._manifests.delta(snapshot)
        if not delta:
            return False
        if all(meta.file_name in staged for meta in delta):
            return True
        added = self._first_added(delta)
        if added is None:
            return False
        # The manifests below the snapshot cannot have the file that the snapshot added.
        below = self._manifests.read_list(
            snapshot.base_manifest_list, snapshot.base_manifest_list_size
        )
        known = {meta.file_name for meta in below}
        with suppress(errors.CorruptMetadata):
            return has_file(self._manifests, staged.values(), known, added)
        return False

    def _first_added(self, manifests: Sequence[ManifestFileMeta]) -> FileIdentity | None:
        """The first file that these manifests add; None if they add none."""
        for meta in manifests:
            for entry in self._manifests.read(meta):
                if entry.kind is FileKind.ADD:
                    return entry.identity
        return None


# -- may it be committed --------------------------------------------------------------------------
def _check_files(now: _TableNow, lost: LostBatch, changes: Changes) -> None:
    """Raises `DeletedFiles` if files of the lost batch are gone, and `SequenceConflict` if other
    commits have used its sequence numbers.
    """
    table = now.table
    gone = missing_files(table.storage, table.layout, changes)
    if gone:
        raise _Errors(table.storage.location, lost).files_gone(gone)
    if table.schema.primary_keys:
        sequences = Sequences(table, TableCache(table, now.snapshots))
        numbering = prepared_numbering(table, lost.base)
        sequences.check(numbering, changes, now.latest)


def _request(now: _TableNow, lost: LostBatch, runtime: Runtime) -> CommitRequest:
    """The request that commits the lost batch again, unchanged."""
    return CommitRequest(
        user=lost.user,
        identifier=lost.batch,
        messages=lost.messages,
        properties={**lost.properties, RECOMMITTED_MARK: lost.nonce or lost.uuid},
        renumber=True,
        numbering=prepared_numbering(now.table, lost.base),
        checked=True,
        seen=SnapshotRef.of_optional(now.latest),
        stage_uuid=runtime.ids.uuid(),
    )


# -- refusals -------------------------------------------------------------------------------------
class _Facts(TypedDict):
    """The facts that each error about a lost batch carries in its context."""

    table: str
    user: str
    batch: int


@dataclass(frozen=True, slots=True)
class _Errors:
    """The errors for a lost batch of a table.

    Attributes:
        location: where the table is.
        lost: the batch.
    """

    location: str
    lost: LostBatch

    @property
    def _facts(self) -> _Facts:
        return _Facts(table=self.location, user=self.lost.user, batch=self.lost.batch)

    def went_on(self, later: Snapshot) -> errors.PaimonStreamError:
        """The error where the user has published a later batch."""
        return errors.CheckpointRewound(
            f"{self.location}: user {self.lost.user!r} has gone on to batch {later.commit_identifier} "
            f"(snapshot {later.id}), and its batches must be in order. Nothing was published. Write the rows "
            f"of batch {self.lost.batch} again.",
            **self._facts,
        )

    def written_by_another(self, later: Snapshot) -> errors.PaimonStreamError:
        """The error where the query has published the lost batch or a later one as another user."""
        return errors.CheckpointRewound(
            f"{self.location}: the query went on without user {self.lost.user!r}: it has published batch "
            f"{later.commit_identifier} as user {later.commit_user!r} (snapshot {later.id}) in a run in which "
            f"{self.lost.user!r} had no sink. So batch {self.lost.batch} of {self.lost.user!r} may never have "
            "been committed, and its rows may be in the table already. Nothing was published. Look for its rows, "
            "and write again what is missing.",
            **self._facts,
        )

    def rolled_back(self, evidence: str) -> errors.PaimonStreamError:
        """The error for a batch that no other engine has replaced. `evidence` gives the reason, and
        ends a sentence.
        """
        return errors.TableRolledBack(
            f"{self.location}: batch {self.lost.batch} of user {self.lost.user!r} was not replaced by another "
            f"engine: {evidence}. The table was rolled back, or the batch was never committed. Nothing was "
            "published. Start the query again; it commits what it had prepared, or says what is lost. If it names "
            "'recommit' again, write the rows of this batch again from the source, and let it continue.",
            **self._facts,
        )

    def maybe_rolled_back(self, doubt: str) -> errors.PaimonStreamError:
        """The error where a note may speak of the batch. The `doubt` is half a sentence."""
        return errors.HistoryUnknown(
            f"{self.location}: whether a rollback has removed batch {self.lost.batch} of user {self.lost.user!r} "
            f"is not known: {doubt}. Nothing was published. Look for its rows in the table, and write again "
            "what is missing.",
            **self._facts,
        )

    def snapshots_gone(self, *, above: int) -> errors.PaimonStreamError:
        """The error where snapshots above the id `above` have expired, and one of the expired
        snapshots may have had the batch.
        """
        return errors.HistoryUnknown(
            f"{self.location}: snapshots since {above} are gone, so whether batch {self.lost.batch} of user "
            f"{self.lost.user!r} was committed later is not known. Nothing was published. Look for its rows in "
            "the table, and write again what is missing.",
            **self._facts,
        )

    def files_gone(self, names: Sequence[str]) -> errors.PaimonStreamError:
        """The error where files of the batch were deleted."""
        shown = names[:_SHOWN]
        return errors.DeletedFiles(
            f"{self.location}: {len(names)} files of batch {self.lost.batch} of user {self.lost.user!r} "
            f"are gone: {', '.join(shown)}. Nothing was published. Write its rows again.",
            **self._facts,
            files=tuple(shown),
        )

    def files_gone_since(
        self, names: Sequence[str], published: Snapshot
    ) -> errors.PaimonStreamError:
        """The error where files were deleted while the batch was committed again. The batch is
        published, so the error is none of those that say that nothing was.
        """
        shown = names[:_SHOWN]
        return errors.NotFound(
            f"{self.location}: batch {self.lost.batch} of user {self.lost.user!r} was published again as snapshot "
            f"{published.id}, and meanwhile somebody deleted {len(names)} of its files: {', '.join(shown)}. The "
            "table cannot be read whole. Restore these files from a backup, or take them out of the table with "
            "drop_lost_files() and write their rows again.",
            **self._facts,
            snapshot=published.id,
            files=tuple(shown),
        )
