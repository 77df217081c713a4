"""The first judgement of a run, from storage alone: gathers the evidence, judges, and decides whether prepared files
can be used. The sink acts on the judgement; the doctor only reports it. Nothing here writes."""

from collections.abc import Callable
from functools import partial
from typing import Final

from paimon_stream.commit.plan import collect
from paimon_stream.commit.sequence import Numbering, Sequences
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.errors import SequenceConflict
from paimon_stream.format.journal_entry import JournalEntry
from paimon_stream.options import BUCKET, JOURNAL, JOURNAL_REUSE
from paimon_stream.runtime import Clock, Runtime
from paimon_stream.stream.claims import Claims, registered_writers
from paimon_stream.stream.dead_attempts import live_files_of
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.ledger import AlreadyCommitted, Batch, Evidence, Fresh, Reuse, Verdict, judge_first
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.table.journal import Journal
from paimon_stream.table.layout import user_folder
from paimon_stream.table.message_files import data_files
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_HALF_ORPHAN_AGE_MILLIS: Final = 12 * 3_600_000
"""An orphan cleaner (default age 1 day) may delete older prepared files before they are published."""


def gather(
    table: Table,
    identity: WriterIdentity,
    batch: Batch,
    *,
    snapshots: SnapshotStore,
    claimed: Callable[[str], bool] | None = None,
    runs: frozenset[str] | None = None,
) -> Evidence:
    """Everything that the first judgement of a run uses. `claimed` replaces the claims of
    this run. `runs` are those whose claims stood when this one began; if they are not given, those that stand now.
    Raises `NotFound` if there is no table, `CorruptMetadata`, `UnknownVersion`, `StorageError`."""
    storage = table.storage
    schemas, journal, claims = (SchemaStore(storage), Journal(storage, identity.user), Claims(storage, identity))

    def entries() -> list[JournalEntry | None]:
        """Those of the batch, of the newest earlier one and of the newest later one."""
        noted, number = journal.batches(), batch.batch_id
        kinds = (number.__eq__, number.__gt__, number.__lt__)
        newest = [max(filter(wanted, noted), default=None) for wanted in kinds]
        found = iter(storage.together([partial(journal.read, one) for one in newest if one is not None]))
        return [None if one is None else next(found) for one in newest]

    digest, first, registered, (entry, last_entry, later_entry), latest = storage.together(
        [schemas.first_digest, partial(schemas.get, 0), claims.own, entries, snapshots.latest]
    )
    return Evidence(
        identity=identity,
        batch=batch,
        schema_digest=digest,
        schema_created_millis=first.time_millis,
        snapshots=snapshots,
        latest=latest,
        entry=entry,
        last_entry=last_entry,
        later_entry=later_entry,
        registered=registered,
        others=partial(registered_writers, storage, leave_out=user_folder(identity.user)),
        files_live=lambda snapshot, entry: live_files_of(table, snapshot, entry),
        claimed=claimed or claims.claimed,
        runs=(claims.standing() if runs is None else runs) | {claims.run},
    )


def judge(
    table: Table, evidence: Evidence, refuse: ReplayErrors, runtime: Runtime, *, overwrites: bool = False
) -> Verdict:
    """Judges the batch, and decides whether files that an earlier run prepared can be committed unchanged. `overwrites`
    says that each batch replaces the whole table. Raises a `ReplayError` if exactly-once cannot be proven,
    `StorageError`, `FormatError`."""
    verdict = judge_first(evidence, refuse)
    if isinstance(verdict, Reuse):
        why_not = _why_not_reusable(table, evidence, verdict.entry, runtime.clock)
        if verdict.entry.overwrites is not overwrites:
            # The query's output mode decides which rows result from the same source rows.
            why_not = "the sink's mode has changed"
        if not why_not and table.schema.primary_keys and not overwrites:
            why_not = _why_numbers_are_taken(table, evidence.snapshots, verdict.entry)
        if why_not and live_files_of(table, evidence.latest, verdict.entry, removed=True):
            # A writer that does not publish atomically has replaced its snapshot below newer ones, which had the rows.
            return AlreadyCommitted(seen=verdict.seen, snapshot=None, dead=verdict.entry)
        if why_not:
            return Fresh(seen=verdict.seen, own=verdict.own, dead=verdict.entry, written_again=why_not)
    return verdict


def journal_since(table: Table, evidence: Evidence, verdict: Verdict, *, anew: bool) -> int | None:
    """The first batch from which on a missing journal entry proves that a batch never reached its commit.
    None while the journal is off. With `anew`, earlier entries are about to go, so they prove nothing."""
    if not table.options.value(JOURNAL):
        return None
    registered = evidence.registered
    same_table = registered is not None and registered.schema_digest == evidence.schema_digest
    if same_table and evidence.journal_since is not None and not anew:
        return evidence.journal_since
    if isinstance(verdict, AlreadyCommitted) and verdict.snapshot is None:
        return None  # later batches may have been committed without a journal, and have expired
    return evidence.batch.batch_id + isinstance(verdict, AlreadyCommitted)


def _why_not_reusable(table: Table, evidence: Evidence, entry: JournalEntry, clock: Clock) -> str | None:
    """Why the journalled attempt must not be committed, in words. None if it may be committed. The batch must have the
    same data (its source offsets), table, schema and bucket count. It must have been prepared recently, and every file
    must still exist (exactly-once.md §4)."""
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
    missing = sum(not table.storage.exists(path) for path in data_files(table.layout, entry.messages))
    return f"{missing} of its prepared files are gone" if missing else None


def _why_numbers_are_taken(table: Table, snapshots: SnapshotStore, entry: JournalEntry) -> str | None:
    """Why the sequence numbers of the prepared files no longer hold, in words. None if they still hold."""
    sequences = Sequences(table, TableCache(table, snapshots))
    written = collect(entry.messages, table_buckets=entry.total_buckets).append
    try:
        sequences.check(Numbering(base=entry.base), written, snapshots.latest())
    except SequenceConflict as why:
        return why.message
    return None
