"""Whether files that an earlier run prepared can be committed as they are (exactly-once.md §4).
Nothing here writes.
"""

from typing import Final

from paimon_stream.commit.plan import collect
from paimon_stream.commit.sequence import Sequences
from paimon_stream.commit.table_cache import TableCache
from paimon_stream.errors import SequenceConflict
from paimon_stream.options import BUCKET, JOURNAL, JOURNAL_REUSE
from paimon_stream.runtime import Clock
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.sequence_conflicts import prepared_numbering
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.message_files import data_files
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_HALF_ORPHAN_AGE_MILLIS: Final = 12 * 3_600_000
"""An orphan cleaner (default age 1 day) may delete older prepared files before they are
published.
"""


def obstacle_to_reuse(
    table: Table,
    evidence: Evidence,
    entry: JournalEntry,
    clock: Clock,
    *,
    overwrites: bool,
    merges: bool,
) -> str | None:
    """Why the files of the attempt must not be committed unchanged, in words. None if they may be.

    Args:
        table: the table.
        evidence: what the storage holds.
        entry: the attempt, as the judgement sees it: if rollbacks removed its base, it has their
            lowest target as its base.
        clock: tells how old the files are.
        overwrites: whether each batch replaces what is in the table.
        merges: whether each batch is merged into the rows of the table.

    Raises:
        StorageError: the storage failed.
        FormatError: a file cannot be understood.
    """
    if merges or entry.merges:
        # Whatever has become of the table since, it is not known that the files still fit its rows.
        return "a merge is always computed on the newest rows"
    obstacle = _obstacle_of_files(table, evidence, entry, clock)
    if entry.overwrites is not overwrites:
        # The query's output mode decides which rows result from the same source rows.
        obstacle = "the sink's mode has changed"
    # The attempt gets another base only if no snapshot of ours stands. Otherwise `Sequences.check`
    # finds that the base is gone.
    is_moved_to_cut = evidence.entry is not None and entry.base != evidence.entry.base
    if is_moved_to_cut and table.has_dynamic_buckets:
        obstacle = "a rollback took the snapshot whose index gave its keys their buckets"
    if obstacle is None and table.schema.primary_keys and not overwrites:
        obstacle = _conflict_of_numbers(table, evidence.snapshots, entry)
    return obstacle


def _obstacle_of_files(
    table: Table, evidence: Evidence, entry: JournalEntry, clock: Clock
) -> str | None:
    """The reason why the journalled attempt must not be committed, in words. None if it may be
    committed. The attempt must have the same data (its source offsets), table, schema and bucket
    count. The attempt must have been prepared recently, and all its files must still exist
    (exactly-once.md §4).
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
    paths = data_files(table.layout, entry.messages)
    missing = sum(not table.storage.exists(path) for path in paths)
    if missing:
        return f"{missing} of its prepared files are gone"
    return None


def _conflict_of_numbers(table: Table, snapshots: SnapshotStore, entry: JournalEntry) -> str | None:
    """The reason why the sequence numbers of the prepared files no longer hold, in words. None if
    the numbers still hold.
    """
    sequences = Sequences(table, TableCache(table, snapshots))
    written = collect(entry.messages, table_buckets=entry.total_buckets).append
    try:
        numbering = prepared_numbering(table, entry.base)
        sequences.check(numbering, written, snapshots.latest())
    except SequenceConflict as conflict:
        return conflict.message
    return None
