"""The judgements of a run. The first is from storage alone: it gathers the evidence, and decides
whether prepared files can be used. That of a later batch is from the memory of the run and one or
two snapshot files. The sink acts on a judgement; the doctor only reports it. Nothing here writes.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from paimon_stream.commit.lineage import is_held
from paimon_stream.commit.plan import collect
from paimon_stream.commit.sequence import Numbering, Sequences
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.errors import FormatError, PaimonStreamError, SequenceConflict
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    Marks,
    Snapshot,
    SnapshotRef,
    own_properties,
)
from paimon_stream.options import BUCKET, JOURNAL, JOURNAL_REUSE
from paimon_stream.runtime import Clock, Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import MAIN, branch_names, branch_of, branch_storage, whole_of
from paimon_stream.storage.together import Request
from paimon_stream.stream.claims import (
    Claims,
    RegisteredWriter,
    WriterIdentity,
    duplicate_writer,
    is_own,
    registered_writer,
    registered_writers,
    standing_runs,
)
from paimon_stream.stream.ledger import (
    AlreadyCommitted,
    Batch,
    Evidence,
    Fresh,
    NotedBatches,
    Reuse,
    Verdict,
    judge_first,
    noted_batches,
    vouched_since,
)
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.table.branch_identity import BranchIdentity, made_millis, read_identity
from paimon_stream.table.fate import Fate, fate_of
from paimon_stream.table.journal import Journal, JournalEntry, PreviousBatch
from paimon_stream.table.journalled import live_files_of
from paimon_stream.table.layout import user_folder
from paimon_stream.table.lineage import newest_of, published_after
from paimon_stream.table.message_files import data_files
from paimon_stream.table.removals import Removed, read_removals
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_HALF_ORPHAN_AGE_MILLIS: Final = 12 * 3_600_000
"""An orphan cleaner (default age 1 day) may delete older prepared files before they are
published.
"""


def gather(
    table: Table,
    identity: WriterIdentity,
    batch: Batch,
    snapshots: SnapshotStore,
    runs: frozenset[str] | None = None,
) -> Evidence:
    """Everything that the first judgement of a run uses. `runs` are those whose claims stood when
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
        noted, number = journal.batches(), batch.batch_id
        kinds = (number.__eq__, number.__gt__, number.__lt__)
        newest = [max(filter(wanted, noted), default=None) for wanted in kinds]
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
    digest, first, registered, noted_entries, latest, branch, names = storage.together(looks)
    entry, last_entry, later_entry = noted_entries
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
        noted_by=partial(noted_by, storage),
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


def noted_by(storage: Storage, registered: RegisteredWriter) -> NotedBatches:
    """What the journal of another stream shows. Raises `StorageError`."""
    noted, runs = storage.together(
        [
            Journal(storage, registered.user).batches,
            partial(standing_runs, storage, registered.user),
        ]
    )
    return NotedBatches(newest=max(noted, default=None), since=vouched_since(registered, runs))


def last_entry_before(storage: Storage, user: str, batch_id: int) -> JournalEntry | None:
    """The newest entry of an earlier batch in the journal of a commit user; None if there is none.
    Raises `StorageError`, `CorruptMetadata`, `UnknownVersion`.
    """
    journal = Journal(storage, user)
    earlier = [one for one in journal.batches() if one < batch_id]
    return journal.read(max(earlier)) if earlier else None


def judge(
    table: Table, evidence: Evidence, refuse: ReplayErrors, runtime: Runtime, *, overwrites: bool
) -> Verdict:
    """Judges the batch, and decides whether files that an earlier run prepared can be committed
    unchanged. `overwrites` says that each batch replaces the whole table. Raises a `ReplayError` if
    exactly-once cannot be proven, `StorageError`, `FormatError`.
    """
    verdict = judge_first(evidence, refuse)
    if isinstance(verdict, Reuse):
        why_not = _why_not_reusable(table, evidence, verdict.entry, runtime.clock)
        if verdict.entry.overwrites is not overwrites:
            # The query's output mode decides which rows result from the same source rows.
            why_not = "the sink's mode has changed"
        is_base_gone = evidence.entry is not None and verdict.entry.base != evidence.entry.base
        if is_base_gone and table.has_dynamic_buckets:
            why_not = "a rollback took the snapshot whose index gave its keys their buckets"
        if not why_not and table.schema.primary_keys and not overwrites:
            why_not = _why_numbers_are_taken(table, evidence.snapshots, verdict.entry)
        if why_not and live_files_of(table, evidence.latest, verdict.entry, removed=True):
            # A writer that does not publish atomically has replaced its snapshot below newer ones,
            # which had the rows.
            return AlreadyCommitted(seen=verdict.seen, snapshot=None, dead=verdict.entry)
        if why_not:
            return Fresh(
                seen=verdict.seen, own=verdict.own, dead=verdict.entry, written_again=why_not
            )
    return verdict


def journal_since(table: Table, evidence: Evidence, verdict: Verdict, *, anew: bool) -> int | None:
    """The first batch from which on a missing journal entry proves that a batch never reached its
    commit. None while the journal is off. With `anew`, earlier entries are about to go, so they
    prove nothing.
    """
    if not table.options.value(JOURNAL):
        return None
    registered = evidence.registered
    same_table = registered is not None and registered.schema_digest == evidence.schema_digest
    if same_table and evidence.journal_since is not None and not anew:
        return evidence.journal_since
    if isinstance(verdict, AlreadyCommitted) and verdict.snapshot is None:
        return None  # later batches may have been committed without a journal, and have expired
    return evidence.batch.batch_id + isinstance(verdict, AlreadyCommitted)


def given_up(
    evidence: Evidence,
    verdict: Verdict,
    *,
    lost: bool,
    proven: bool,
) -> tuple[tuple[int, int], ...]:
    """The batches that an operator has given up, as in `RegisteredWriter`. With `lost`, the
    operator let this batch continue although the table has lost batches: these are all between the
    newest one that the table has, also under an old name, and this one. If the loss is `proven`,
    what lies below the first batch that a note names was not lost: its snapshots may have expired.
    A batch below is still in the table, so a later rollback of it stops the stream. What the
    checkpoint is going to run again is not given up any more.
    """
    batch_id = evidence.batch.batch_id
    known = tuple(
        [(first, min(last, batch_id - 1)) for first, last in evidence.given_up if first < batch_id]
    )
    if not lost or isinstance(verdict, AlreadyCommitted):
        return known
    own = -1 if verdict.own is None else verdict.own.batch_id
    kept = max(own, _kept_under_old_names(evidence))
    if proven and (first_taken := _first_taken(evidence, range(kept + 1, batch_id))) is not None:
        kept = first_taken - 1
    below = tuple([(first, min(last, kept)) for first, last in known if first <= kept])
    return (*below, (kept + 1, batch_id - 1)) if kept + 1 < batch_id else below


def _first_taken(evidence: Evidence, batches: range) -> int | None:
    """The first of these batches of the stream that a note surely names and that was not given up
    before; None if there is none.
    """
    noted = noted_batches(evidence, evidence.identity.user, evidence.given_up, batches)
    return min((batch_id for batch_id, removed in noted if removed.is_proven), default=None)


def passed_over(evidence: Evidence, *, reset: bool) -> tuple[int, SnapshotRef] | None:
    """What is written again by an operator's decision, as in `RegisteredWriter`. With `reset`, the
    operator let this batch continue although the table was ahead of the checkpoint, or of another
    one: then it is all that the stream has here.
    """
    batch_id, latest = evidence.batch.batch_id, evidence.latest
    if not reset or latest is None:
        return evidence.passed_over
    own = newest_of(evidence.snapshots, latest, lambda one: is_own(one, evidence.identity))[0]
    is_ahead = own is not None and own.commit_identifier >= batch_id
    return (batch_id, SnapshotRef.of(own)) if own is not None and is_ahead else None


def _kept_under_old_names(evidence: Evidence) -> int:
    """The newest batch of the query that the table has under another commit user which may be an
    old name of this sink; -1 if there is none. One that has the batch before this one has lost
    nothing, so the loss was not its.
    """
    users = {one.user for one in evidence.old_names}
    newest: dict[str, int] = {}
    for one in evidence.snapshots.walk_down(evidence.latest or 0) if users else ():
        identifier = one.commit_identifier
        if one.commit_user in users and identifier != BATCH_IDENTIFIER:
            newest.setdefault(one.commit_user, identifier)
        if len(newest) == len(users):
            break
    return max((one for one in newest.values() if one + 1 < evidence.batch.batch_id), default=-1)


def _why_not_reusable(
    table: Table, evidence: Evidence, entry: JournalEntry, clock: Clock
) -> str | None:
    """Why the journalled attempt must not be committed, in words. None if it may be committed. The
    batch must have the same data (its source offsets), table, schema and bucket count. It must have
    been prepared recently, and every file must still exist (exactly-once.md §4).
    """
    if not (table.options.value(JOURNAL) and table.options.value(JOURNAL_REUSE)):
        return "the journal's reuse is off"
    if entry.offsets_hash is None or entry.offsets_hash != evidence.batch.offsets_hash:
        return "its source offsets cannot be compared with those the files were prepared for"
    if (entry.schema_digest, entry.schema_id) != (evidence.schema_digest, table.schema.id):
        return "the table's schema changed since its files were prepared"
    if entry.total_buckets != table.options.value(BUCKET):
        return "the table's bucket count changed since its files were prepared"
    if clock.now_millis() - entry.prepared_millis > _HALF_ORPHAN_AGE_MILLIS:
        return "its prepared files are so old that an orphan cleaner may take them"
    missing = sum(
        not table.storage.exists(path) for path in data_files(table.layout, entry.messages)
    )
    return f"{missing} of its prepared files are gone" if missing else None


def _why_numbers_are_taken(
    table: Table, snapshots: SnapshotStore, entry: JournalEntry
) -> str | None:
    """Why the sequence numbers of the prepared files no longer hold, in words. None if they still
    hold.
    """
    sequences = Sequences(table, TableCache(table, snapshots))
    written = collect(entry.messages, table_buckets=entry.total_buckets).append
    try:
        sequences.check(Numbering(base=entry.base), written, snapshots.latest())
    except SequenceConflict as why:
        return why.message
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run remembers between batches: the last batch that it finished, the last batch of its
    stream that became a snapshot, and the snapshot up to which it knows who published what. The
    snapshot of that last batch stood at `own_stood_millis` (epoch milliseconds), None if there is
    none. With `has_expired`, the last batch had been committed, and its snapshot has expired: later
    batches may have been, too.
    """

    batch_id: int
    own: PreviousBatch | None
    seen: SnapshotRef | None
    own_stood_millis: int | None = None
    has_expired: bool = False


def judge_next(
    snapshots: SnapshotStore,
    memory: Memory,
    refuse: ReplayErrors,
    *,
    latest: Snapshot | None,
    follows: bool = False,
) -> Fresh | None:
    """Judges a later batch of a run on the latest snapshot. The batch must be new, our last
    snapshot must still be in the lineage, and nobody else may have published the batch since the
    run last looked. Also raises `CommitLost`. None if the memory no longer fits the table or says
    nothing of later batches, so that storage must decide. If snapshots since the run last looked
    have expired, storage must decide, too, while an earlier run may be at this batch (`follows`).
    Otherwise `seen` stays where it was, and the commit checks the fence. A run that `follows`
    others and has nothing of its own could not miss what the table has lost of them, so storage
    decides, too, once what it has seen is gone.
    """
    batch_id = refuse.batch_id
    if batch_id <= memory.batch_id:
        raise duplicate_writer(refuse.location, refuse.user)
    if memory.has_expired:
        return None
    fate = _fate_of_own(snapshots, memory, latest, refuse)
    if fate is None or not _has_seen(snapshots, memory, latest):
        return None
    if follows and memory.own is None and not _still_sees(snapshots, memory.seen, latest):
        return None
    seen, newest = None if latest is None else SnapshotRef.of(latest), None
    after = 0 if memory.seen is None else memory.seen.id
    if latest is not None and latest.id > after:
        window = published_after(snapshots, memory.seen, latest)
        for snapshot in window.snapshots:
            identifier = snapshot.commit_identifier
            if snapshot.commit_user == refuse.user and batch_id <= identifier < BATCH_IDENTIFIER:
                raise refuse.shared_checkpoint(snapshot)
        if not window.complete:
            if follows:
                return None
            seen, newest = memory.seen, seen
    return Fresh(seen=seen, newest=newest, own=memory.own, own_stands=fate is Fate.IN_TABLE)


def require_absent(
    snapshots: SnapshotStore, identity: WriterIdentity, refuse: ReplayErrors
) -> None:
    """Raises `SharedCheckpoint` if a run of this stream has the batch or a later one in the table's
    lineage.
    """
    latest = snapshots.latest()
    found = latest and newest_of(snapshots, latest, lambda one: is_own(one, identity))[0]
    if found and found.commit_identifier >= refuse.batch_id:
        raise refuse.shared_checkpoint(found)


def superseded(
    snapshot: Snapshot, identity: WriterIdentity, refuse: ReplayErrors
) -> PaimonStreamError:
    """The error for a batch that somebody else published as this snapshot after it was judged."""
    run_id = Marks.of(own_properties(snapshot)).run_id
    if run_id is not None and run_id == identity.run_id:
        return duplicate_writer(refuse.location, refuse.user)
    return refuse.shared_checkpoint(snapshot)


def _has_seen(snapshots: SnapshotStore, memory: Memory, latest: Snapshot | None) -> bool:
    """Whether the newest snapshot that the run has seen is part of the table's lineage, or has
    expired.
    """
    own, seen = memory.own, memory.seen
    if seen is None or (own is not None and seen == own.snapshot):
        return True
    return is_held(snapshots, seen, latest) is True


def _still_sees(
    snapshots: SnapshotStore, seen: SnapshotRef | None, latest: Snapshot | None
) -> bool:
    """Whether the newest snapshot that a run has seen stands, so that nothing below it was taken
    away.
    """
    if seen is None or (latest is not None and SnapshotRef.of(latest) == seen):
        return True
    return snapshots.stands(seen)


def _fate_of_own(
    snapshots: SnapshotStore, memory: Memory, latest: Snapshot | None, refuse: ReplayErrors
) -> Fate | None:
    """Whether our last snapshot is part of the table's lineage, or has expired, as it is without
    one. None where storage must judge, because a note says that it was removed, or may have been,
    and a file of the batch may still show that the batch is there, or because an operator has
    decided to continue. Raises if our last one is not part of it.
    """
    own = memory.own
    if own is None:
        return Fate.EXPIRED

    def took_it(removed: Removed) -> bool:
        """Whether an earlier batch of this stream was removed, and so all that followed."""
        batch = removed.identifier
        is_ours = removed.user == refuse.user and removed.is_of_stream
        return is_ours and batch is not None and batch <= own.batch_id

    stood_millis = memory.own_stood_millis
    answer = fate_of(snapshots, own.snapshot, latest, stood_millis=stood_millis, took_it=took_it)
    newest = 0 if latest is None else latest.id
    if answer.is_held:
        return answer.fate
    if answer.fate is Fate.REPLACED:
        kept = snapshots.find(own.snapshot.id)
        if kept is not None:
            refuse.commit_lost(own, kept, snapshots.storage)
    elif newest <= own.snapshot.id:
        refuse.table_rolled_back(
            f"snapshot {own.snapshot.id}, the last one of this stream (batch {own.batch_id}), is gone, and "
            + (f"snapshot {newest} is the newest one" if newest else "the table has no snapshot")
        )
    elif not refuse.options.value(JOURNAL):  # storage has nothing of the batch
        refuse.gone(own.batch_id, answer)
    return None
