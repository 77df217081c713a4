"""Gathers from the storage the evidence on which a batch is judged. This module writes nothing."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

from paimon_stream.commit.window import is_held
from paimon_stream.errors import FormatError
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import MAIN, branch_names, branch_of, branch_storage, whole_of
from paimon_stream.storage.together import Request
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.evidence import Evidence, JournalledBatches, OtherStreams
from paimon_stream.stream.identity import WriterIdentity, is_own
from paimon_stream.stream.verdicts import Batch
from paimon_stream.table.branch_identity import BranchIdentity, made_millis, read_identity
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.journalled import live_files_of
from paimon_stream.table.layout import user_folder
from paimon_stream.table.lineage import published_after
from paimon_stream.table.register import (
    RegisteredWriter,
    registered_writer,
    registered_writers,
    runs_with_claims,
    vouched_since,
)
from paimon_stream.table.removals import read_removals
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


def gather(
    table: Table,
    identity: WriterIdentity,
    batch: Batch,
    snapshots: SnapshotStore,
    runs: frozenset[str] | None = None,
) -> Evidence:
    """The evidence for a judgement from the storage.

    Args:
        table: the table, or a branch of it.
        identity: the stream whose batch is judged.
        batch: the batch.
        snapshots: the snapshots of the table.
        runs: the runs whose claims stood when this run began. None: the runs whose claims stand
            now.

    Raises:
        NotFound: there is no table.
        CorruptMetadata, UnknownVersion: a file cannot be understood.
        StorageError: the storage failed.
    """
    storage = table.storage
    main = whole_of(storage)
    claims = Claims(storage, identity)
    known = _look(storage, identity, batch, snapshots, claims)
    if runs is None:
        runs = claims.runs()
    return Evidence(
        identity=identity,
        batch=batch,
        schema_digest=known.schema_digest,
        made_millis=known.made_millis,
        branch=known.branch,
        snapshots=snapshots,
        latest=known.latest,
        entry=known.entry,
        last_entry=known.last_entry,
        later_entry=known.later_entry,
        entries_of_main=_entries_of_main(main, known, identity, batch.batch_id),
        left_in_main=partial(_is_left_in_main, main, snapshots, known.branch),
        registered=known.registered,
        others=_others(storage, identity, batch),
        files_live=partial(live_files_of, table),
        files_mentioned=partial(live_files_of, table, removed=True),
        removals=cache(partial(read_removals, storage)),
        claimed=claims.claimed,
        elsewhere=partial(_elsewhere, main, known.other_branches, identity, claims.run),
        runs=runs | {claims.run},
    )


def _others(storage: Storage, identity: WriterIdentity, batch: Batch) -> OtherStreams:
    """The other streams of the table. The register and the newest entry of each stream are read at
    most once.
    """
    return OtherStreams(
        registers=cache(partial(registered_writers, storage, leave_out=user_folder(identity.user))),
        journalled_by=partial(journalled_by, storage),
        last_of=cache(lambda register: last_entry_before(storage, register.user, batch.batch_id)),
        entry_of=lambda register, batch_id: Journal(storage, register.user).read(batch_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstLook:
    """What one trip to the storage shows. The attributes are those of `Evidence`, and two more.

    Attributes:
        came_from_main: whether this is a branch that was made from main.
        other_branches: the names of all branches but this one, with that of main.
    """

    schema_digest: str
    made_millis: int
    registered: RegisteredWriter | None
    entry: JournalEntry | None
    last_entry: JournalEntry | None
    later_entry: JournalEntry | None
    latest: Snapshot | None
    branch: BranchIdentity | None
    came_from_main: bool
    other_branches: list[str]


def _look(
    storage: Storage,
    identity: WriterIdentity,
    batch: Batch,
    snapshots: SnapshotStore,
    claims: Claims,
) -> _FirstLook:
    """Reads in one trip what every judgement needs. Raises what `gather` raises."""
    schemas = SchemaStore(storage)
    requests: list[Request] = [
        schemas.first_digest,
        partial(schemas.get, 0),
        claims.own,
        partial(_entries_around, storage, Journal(storage, identity.user), batch.batch_id),
        snapshots.latest,
        partial(_branch_and_time, storage),
        partial(branch_names, whole_of(storage)),  # often not needed; a second trip costs more
    ]
    digest, first_schema, registered, entries, latest, branch_and_time, branches = storage.together(
        requests
    )
    entry, last_entry, later_entry = entries
    branch, branch_made_millis = branch_and_time
    this_branch = branch_of(storage)
    return _FirstLook(
        schema_digest=digest,
        made_millis=max(first_schema.time_millis, branch_made_millis),
        registered=registered,
        entry=entry,
        last_entry=last_entry,
        later_entry=later_entry,
        latest=latest,
        branch=branch,
        # A branch without an identity was made by another engine or an older release.
        came_from_main=this_branch != MAIN and (branch is None or branch.snapshot is not None),
        other_branches=[name for name in (MAIN, *branches) if name != this_branch],
    )


def _entries_around(
    storage: Storage, journal: Journal, batch_id: int
) -> tuple[JournalEntry | None, JournalEntry | None, JournalEntry | None]:
    """The journal's entries of the batch `batch_id`, of the newest earlier batch, and of the newest
    later batch.
    """
    batches = journal.batches()
    this = batch_id if batch_id in batches else None
    earlier = max((known for known in batches if known < batch_id), default=None)
    later = max((known for known in batches if known > batch_id), default=None)
    to_read = [known for known in (this, earlier, later) if known is not None]
    entries = storage.together([partial(journal.read, known) for known in to_read])
    by_batch: dict[int | None, JournalEntry | None] = {None: None}
    by_batch.update(zip(to_read, entries, strict=True))
    return by_batch[this], by_batch[earlier], by_batch[later]


def _branch_and_time(storage: Storage) -> tuple[BranchIdentity | None, int]:
    """The identity of the branch, and when it was made (epoch milliseconds)."""
    identity = read_identity(storage)
    return identity, made_millis(storage, identity)


def _elsewhere(
    main: Storage,
    branches: Sequence[str],
    identity: WriterIdentity,
    run: str,
    written_as: RegisteredWriter | None,
    missing: range,
) -> tuple[int, str] | None:
    """The newest of some batches that this query has published or prepared in another branch, and
    the name of that branch; None if there is none.

    A branch does not count if this `run`, or a run that the register here names, has written in
    that branch, too. In that case the query has a sink for each branch. A branch that cannot be
    read shows nothing.

    Args:
        main: the table's folder.
        branches: the names of the other branches, with the name of main.
        identity: this stream.
        run: this run, as a claim names it.
        written_as: the register, in this branch, of the commit user that is looked for. None: the
            user of this stream is looked for, and has no register in this branch.
        missing: the batches that are looked for.

    Raises:
        StorageError: the storage failed.
    """
    written_here = {run}
    if written_as is not None:
        identity = replace(identity, user=written_as.user)
        written_here |= written_as.runs.difference(written_as.forwarded_runs)
    storages = [_storage_of(main, name) for name in branches]
    looks = [partial(_readable_register, storage, identity.user) for storage in storages]
    newest_of_each: list[tuple[int, str]] = []
    for name, storage, registered in zip(branches, storages, main.together(looks), strict=True):
        if (
            registered is not None
            and registered.query_id == identity.query_id
            and registered.runs.isdisjoint(written_here)
        ):
            with suppress(FormatError):
                newest = _newest_batch(storage, identity, missing.stop)
                if newest in missing:
                    newest_of_each.append((newest, name))
    return max(newest_of_each, default=None)


def _storage_of(main: Storage, branch: str) -> Storage:
    """The storage of a branch, or of main."""
    if branch == MAIN:
        return main
    return branch_storage(main, branch)


def _readable_register(storage: Storage, user: str) -> RegisteredWriter | None:
    """The register of a commit user in a branch; None if there is none that can be read."""
    with suppress(FormatError):
        return registered_writer(storage, user)
    return None


def _newest_batch(storage: Storage, identity: WriterIdentity, before: int) -> int:
    """The newest batch below the id `before` that the stream has in a branch, by its journal or its
    snapshots; -1 if there is none.
    """
    entry = last_entry_before(storage, identity.user, before)
    published = _newest_published(SnapshotStore(storage), identity, before)
    if entry is None:
        return published
    return max(published, entry.batch_id)


def _newest_published(snapshots: SnapshotStore, identity: WriterIdentity, before: int) -> int:
    """The newest batch below the id `before` that has a snapshot of the stream; -1 if there is
    none.
    """
    latest = snapshots.latest()
    if latest is None:
        return -1
    for snapshot in snapshots.walk_down(latest):
        if is_own(snapshot, identity) and snapshot.commit_identifier < before:
            return snapshot.commit_identifier
    return -1


def _entries_of_main(
    main: Storage, known: _FirstLook, identity: WriterIdentity, batch_id: int
) -> dict[str, JournalEntry]:
    """The entries that main's journals have of a batch, by commit user of the same query. They are
    read only for a branch that was made from main and in which the stream has no register.
    """
    if not known.came_from_main or known.registered is not None:
        return {}
    users = [
        register.user
        for register in registered_writers(main)
        if identity.query_id is not None and register.query_id == identity.query_id
    ]
    entries = main.together([partial(Journal(main, user).read, batch_id) for user in users])
    return {user: entry for user, entry in zip(users, entries, strict=True) if entry is not None}


def _is_left_in_main(
    main: Storage,
    snapshots: SnapshotStore,
    identity: BranchIdentity | None,
    user: str,
    entry: JournalEntry,
) -> bool:
    """Whether an attempt of main is certainly not part of a branch that was made from main. The
    question arises only if no snapshot of the attempt's batch stands in the branch. The answer is
    yes if the attempt was made on the branch point or above it. It is also yes if main's snapshots
    show that the attempt was published only above the branch point, or never. If the branch has no
    identity, its oldest snapshot serves as the branch point.

    Args:
        main: the table's folder.
        snapshots: the snapshots of the branch.
        identity: the identity of the branch, if it has one.
        user: the commit user that made the attempt.
        entry: the attempt.
    """
    if identity is None or identity.snapshot is None:
        branch_point = snapshots.earliest_id()
    else:
        branch_point = identity.snapshot.id
    base = entry.newest or entry.base
    snapshots_of_main = SnapshotStore(main)
    latest = snapshots_of_main.latest()
    if latest is None:
        return True
    if base is not None and branch_point is not None and base.id >= branch_point:
        return True
    window = published_after(snapshots_of_main, entry.base, latest)
    if not window.complete:
        return False
    if entry.base and not is_held(snapshots_of_main, entry.base, latest):
        return False
    published_ids = [
        snapshot.id
        for snapshot in window.snapshots
        if snapshot.commit_user == user
        and entry.batch_id <= snapshot.commit_identifier < BATCH_IDENTIFIER
    ]
    return all(branch_point is not None and id_ > branch_point for id_ in published_ids)


def journalled_by(storage: Storage, registered: RegisteredWriter) -> JournalledBatches:
    """What the journal of another stream shows. Raises `StorageError`."""
    batches, runs = storage.together(
        [
            Journal(storage, registered.user).batches,
            partial(runs_with_claims, storage, user_folder(registered.user)),
        ]
    )
    return JournalledBatches(
        newest=max(batches, default=None), since=vouched_since(registered, runs)
    )


def last_entry_before(storage: Storage, user: str, batch_id: int) -> JournalEntry | None:
    """The newest entry of an earlier batch in the journal of a commit user; None if there is none.
    Raises `StorageError`, `CorruptMetadata`, `UnknownVersion`.
    """
    journal = Journal(storage, user)
    earlier = [known for known in journal.batches() if known < batch_id]
    if not earlier:
        return None
    return journal.read(max(earlier))
