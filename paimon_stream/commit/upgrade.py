"""The levels of what an overwrite writes (semantics.md 5.1 step 3). Pure: no storage is touched.

In a table with a primary key new files come to level 0, where readers merge them with all others of the
bucket. What an overwrite writes is all there is in its buckets, so a bucket whose files share no key is
recorded at the top level, as if it had been compacted: readers then take the files as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from paimon_stream.commit.plan import Changes
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.row_order import RowOrder, row_order
from paimon_stream.options import COMPACTION_TRIGGER, NUM_LEVELS, OVERWRITE_UPGRADE
from paimon_stream.table.table import Table

__all__ = ["upgraded"]


def upgraded(table: Table, written: Changes) -> Changes:
    """The changes with the files of each bucket whose ranges of keys are disjoint at the top level, in the
    order of their keys. Nothing is changed where the table has no key or does not want it
    (`overwrite-upgrade`), and where any file has a level already, no real bucket, or is taken away.

    Raises `FormatError` for keys that are not of the table's types.
    """
    keys = [table.schema.field(name).type for name in table.schema.trimmed_primary_keys]
    clustered = table.options.get("pk-clustering-override", "false").strip().lower() == "true"
    if not table.schema.primary_keys or clustered or not table.options.value(OVERWRITE_UPGRADE):
        return written
    if any(e.file.level > 0 or e.bucket < 0 or e.kind is not FileKind.ADD for e in written.entries):
        return written
    top = _top_level(table)
    if top < 1:
        return written
    buckets: defaultdict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
    for entry in written.entries:
        buckets[entry.partition, entry.bucket].append(entry)
    order = row_order(keys)
    entries = [entry for bucket in buckets.values() for entry in _bucket(bucket, order, top)]
    return replace(written, entries=tuple(entries))


def _top_level(table: Table) -> int:
    if table.options.is_set(NUM_LEVELS):
        return table.options.value(NUM_LEVELS) - 1
    return table.options.value(COMPACTION_TRIGGER)


def _bucket(entries: Sequence[ManifestEntry], order: RowOrder, top: int) -> Sequence[ManifestEntry]:
    by_key = sorted(entries, key=lambda entry: order(entry.file.min_key))
    if any(order(one.file.max_key) >= order(other.file.min_key) for one, other in pairwise(by_key)):
        return entries
    return [replace(entry, file=replace(entry.file, level=top)) for entry in by_key]
