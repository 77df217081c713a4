"""Gathers the evidence of a judgement from the storage. Nothing here writes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

from paimon_stream.commit.window import is_held
from paimon_stream.errors import FormatError
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import MAIN, branch_names, branch_of, branch_storage, whole_of
from paimon_stream.storage.together import Request
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.evidence import Evidence, JournalledBatches
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
    standing_runs,
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
    """Everything that a judgement from storage uses. `runs` are those whose claims stood when
    this one began; if they are not given, those that stand now. Raises `NotFound` if there is no
    table, `CorruptMetadata`, `UnknownVersion`, `StorageError`.
    """
    storage = table.storage
    schemas, journal, claims = (
        SchemaStore(storage),
        Journal(storage, identity.user),
        Claims(storage, identity),
    )

    def entries() -> list[JournalEntry | None]:
        """Those of the batch, of the newest earlier one and of the newest later one."""
        journalled, number = journal.batches(), batch.batch_id
        kinds = (number.__eq__, number.__gt__, number.__lt__)
        newest = [max(filter(wanted, journalled), default=None) for wanted in kinds]
        found = iter(
            storage.together([partial(journal.read, one) for one in newest if one is not None])
        )
        return [None if one is None else next(found) for one in newest]

    def branch_and_time() -> tuple[BranchIdentity | None, int]:
        """The identity of the branch, and when it was made."""
        identity = read_identity(storage)
        return identity, made_millis(storage, identity)

    looks: list[Request] = [
        schemas.first_digest,
        partial(schemas.get, 0),
        claims.own,
        entries,
        snapshots.latest,
        branch_and_time,
        partial(branch_names, whole_of(storage)),  # a trip of its own where it is needed costs more
    ]
    digest, first, registered, read_entries, latest, branch, names = storage.together(looks)
    entry, last_entry, later_entry = read_entries
    main = whole_of(storage)
    branches = [one for one in (MAIN, *names) if one != branch_of(storage)]
    # A branch without an identity is of another engine or of an older release.
    came_from_main = branch_of(storage) != MAIN and (
        branch[0] is None or branch[0].snapshot is not None
    )
    entries_of_main = {}
    if came_from_main and registered is None:
        entries_of_main = _entries_of_main(main, identity, batch.batch_id)
    return Evidence(
        identity=identity,
        batch=batch,
        schema_digest=digest,
        made_millis=max(first.time_millis, branch[1]),
        branch=branch[0],
        snapshots=snapshots,
        latest=latest,
        entry=entry,
        last_entry=last_entry,
        later_entry=later_entry,
        entries_of_main=entries_of_main,
        left_in_main=lambda user, entry: _is_left_in_main(
            SnapshotStore(main), snapshots, branch[0], user, entry
        ),
        registered=registered,
        others=cache(partial(registered_writers, storage, leave_out=user_folder(identity.user))),
        journalled_by=partial(journalled_by, storage),
        last_of=cache(lambda other: last_entry_before(storage, other.user, batch.batch_id)),
        entry_of=lambda other, number: Journal(storage, other.user).read(number),
        files_live=lambda snapshot, entry: live_files_of(table, snapshot, entry),
        files_mentioned=lambda snapshot, entry: live_files_of(table, snapshot, entry, removed=True),
        removals=cache(partial(read_removals, storage)),
        claimed=claims.claimed,
        elsewhere=partial(_elsewhere, main, branches, identity, claims.run),
        runs=(claims.standing() if runs is None else runs) | {claims.run},
    )


def _elsewhere(
    whole: Storage,
    branches: Sequence[str],
    identity: WriterIdentity,
    run: str,
    written_as: RegisteredWriter | None,
    missing: range,
) -> tuple[int, str] | None:
    """The newest of these batches that this query has published or prepared under a commit user in
    one of the other branches, or in main, with its name; None if there is none. The user is that of
    the register here, or this stream's. A branch counts in which neither this `run` nor one that
    the register names as written here has written: else the query has a sink for each of the two.
    What it has and cannot be read shows nothing. Raises `StorageError`.
    """
    written_here = {run}
    if written_as is not None:
        identity = replace(identity, user=written_as.user)
        written_here |= written_as.runs.difference(written_as.forwarded_runs)
    others = [whole if name == MAIN else branch_storage(whole, name) for name in branches]
    looks = [partial(_readable_register, other, identity.user) for other in others]
    newest_of_each = list[tuple[int, str]]()
    for name, other, registered in zip(branches, others, whole.together(looks), strict=True):
        if (
            registered is not None
            and registered.query_id == identity.query_id
            and registered.runs.isdisjoint(written_here)
        ):
            with suppress(FormatError):
                newest = _newest_batch(other, identity, missing.stop)
                newest_of_each += [(newest, name)] if newest in missing else []
    return max(newest_of_each, default=None)


def _readable_register(storage: Storage, user: str) -> RegisteredWriter | None:
    """The register of a commit user in a branch; None if there is none that can be read."""
    with suppress(FormatError):
        return registered_writer(storage, user)
    return None


def _newest_batch(storage: Storage, identity: WriterIdentity, before: int) -> int:
    """The newest batch before that one that the stream has in a branch, by its journal or its
    snapshots; -1 if there is none.
    """
    entry, snapshots = last_entry_before(storage, identity.user, before), SnapshotStore(storage)
    latest = snapshots.latest()
    below = () if latest is None else snapshots.walk_down(latest)
    own = (one.commit_identifier for one in below if is_own(one, identity))
    published = next((one for one in own if one < before), -1)
    return published if entry is None else max(published, entry.batch_id)


def _entries_of_main(
    main: Storage, identity: WriterIdentity, batch_id: int
) -> dict[str, JournalEntry]:
    """The journal's entries of this batch in main, by commit user of the same query."""
    users = [
        one.user
        for one in registered_writers(main)
        if identity.query_id is not None and one.query_id == identity.query_id
    ]
    entries = main.together([partial(Journal(main, user).read, batch_id) for user in users])
    return {user: entry for user, entry in zip(users, entries, strict=True) if entry is not None}


def _is_left_in_main(
    main: SnapshotStore,
    snapshots: SnapshotStore,
    identity: BranchIdentity | None,
    user: str,
    entry: JournalEntry,
) -> bool:
    """Whether it is certain that an attempt of main is not part of a branch of main in which no
    snapshot of its batch stands: it was made, or published, above the branch point, or main's
    snapshots show that it was never published. Without an identity, the oldest snapshot of the
    branch takes the place of the branch point.
    """
    came_from = None if identity is None else identity.snapshot
    point = snapshots.earliest_id() if came_from is None else came_from.id
    base, latest = entry.newest or entry.base, main.latest()
    if latest is None or (base is not None and point is not None and base.id >= point):
        return True
    window = published_after(main, entry.base, latest)
    if not window.complete or (entry.base and not is_held(main, entry.base, latest)):
        return False
    return all(
        point is not None and one.id > point
        for one in window.snapshots
        if one.commit_user == user and entry.batch_id <= one.commit_identifier < BATCH_IDENTIFIER
    )


def journalled_by(storage: Storage, registered: RegisteredWriter) -> JournalledBatches:
    """What the journal of another stream shows. Raises `StorageError`."""
    journalled, runs = storage.together(
        [
            Journal(storage, registered.user).batches,
            partial(standing_runs, storage, user_folder(registered.user)),
        ]
    )
    return JournalledBatches(
        newest=max(journalled, default=None), since=vouched_since(registered, runs)
    )


def last_entry_before(storage: Storage, user: str, batch_id: int) -> JournalEntry | None:
    """The newest entry of an earlier batch in the journal of a commit user; None if there is none.
    Raises `StorageError`, `CorruptMetadata`, `UnknownVersion`.
    """
    journal = Journal(storage, user)
    earlier = [one for one in journal.batches() if one < batch_id]
    return journal.read(max(earlier)) if earlier else None
