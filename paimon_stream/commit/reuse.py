"""Whether the files that a killed run had prepared may be committed as they are."""

from __future__ import annotations

from typing import Final

from paimon_stream.errors import NotFound
from paimon_stream.format.journal_entry import JournalEntry
from paimon_stream.options import BUCKET, JOURNAL, JOURNAL_REUSE
from paimon_stream.runtime import Clock
from paimon_stream.storage.base import Storage
from paimon_stream.table.message_files import data_files
from paimon_stream.table.table import Table

__all__ = ["why_not_reusable"]

_HALF_ORPHAN_AGE_MILLIS: Final = 12 * 3_600_000
"""Older prepared files may be taken by an orphan cleaner (default age 1 day) before they are public."""


def why_not_reusable(
    storage: Storage,
    table: Table,
    schema_digest: str,
    offsets_hash: str | None,
    clock: Clock,
    entry: JournalEntry,
) -> str | None:
    """What no longer holds of the journalled attempt, in words; None if it may be committed.

    The batch must be the same data (its source offsets), for the same table, schema and bucket count,
    prepared lately, and every file must still be there (design, Exactly once, step 4).
    """
    if not (table.options.value(JOURNAL) and table.options.value(JOURNAL_REUSE)):
        return "the journal's reuse is off"
    if entry.offsets_hash is None or entry.offsets_hash != offsets_hash:
        return "its source offsets cannot be compared with those the files were prepared for"
    if (entry.schema_digest, entry.schema_id) != (schema_digest, table.schema.id):
        return "the table's schema changed since its files were prepared"
    if entry.total_buckets != table.options.value(BUCKET):
        return "the table's bucket count changed since its files were prepared"
    if clock.now_millis() - entry.prepared_millis > _HALF_ORPHAN_AGE_MILLIS:
        return "its prepared files are so old that an orphan cleaner may take them"
    missing = sum(not _exists(storage, path) for path in data_files(table.layout, entry.messages))
    return f"{missing} of its prepared files are gone" if missing else None


def _exists(storage: Storage, path: str) -> bool:
    try:
        storage.stat(path)
    except NotFound:
        return False
    return True
