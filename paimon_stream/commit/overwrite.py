"""Overwriting: replaces the live files of some partitions with new ones in one snapshot
(semantics.md §5): a *static* one those that match a spec (`{}` matches all), a *dynamic* one those
that get new files.

Invariants: the files to remove are determined anew on the base of every attempt. So an append that
was published meanwhile is replaced, too, and no file is removed that is not there. Earlier
snapshots keep the removed files.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from paimon_stream import options as opt
from paimon_stream.commit.plan import Base, Changes, IndexChange, collect, renumber
from paimon_stream.errors import InvalidOption, OutsidePartition
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.stats import RowOrder, row_order
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter, PartitionSpec, parse_partition
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)
PARTITION_EXAMPLE: Final = "{'dt': '2024-02-29'}"
"""For messages."""

_SHOWN: Final = 5
_NAMED: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """An overwrite to request: the source of its changes, its messages without ignored files, and
    whether it makes a snapshot even if nothing changes.
    """

    source: "OverwriteSource"
    messages: tuple[CommitMessage, ...]
    always: bool


class OverwriteSource:
    """The changes of one overwrite on any base: a `ChangeSource`. `gone` are the files that the
    newest attempt removes. Partitions with a file that was created at `spared` (local milliseconds)
    or later stay as they are.
    """

    def __init__(
        self,
        table: Table,
        manifests: ManifestStore,
        cleared: PartitionFilter,
        written: Changes,
        spared: int = 2**63,
    ) -> None:
        self.gone: list[ManifestEntry] = []
        self._spared = spared
        self._least_bucket = table.least_bucket
        self._manifests = manifests
        self._cleared = cleared
        self._written = written
        self._read: dict[str, list[ManifestEntry]] = {}

    def at(self, base: Base) -> Changes:
        """A DELETE for each live file of the cleared partitions, then what was written. The index
        files of those partitions are removed, too. Raises `CorruptMetadata`, `StorageError`.
        """
        live = self._live(base)
        spared = {
            entry.partition for entry in live if (entry.file.creation_time or 0) >= self._spared
        }
        dropped = (
            entry
            for entry in live
            if entry.bucket >= self._least_bucket and entry.partition not in spared
        )
        self.gone = [replace(entry, kind=FileKind.DELETE) for entry in dropped]
        known = {entry.identity for entry in self.gone}
        written = (
            e for e in self._written.entries if e.kind is FileKind.ADD or e.identity not in known
        )
        index = (one for one in self._indexes(base) if one.entry.partition not in spared)
        return replace(
            self._written, entries=(*self.gone, *written), index=(*index, *self._written.index)
        )

    def _live(self, base: Base) -> list[ManifestEntry]:
        """The live files of the cleared partitions. Manifests never change, so those that an
        earlier attempt has read are not read again.
        """
        found: dict[str, list[ManifestEntry]] = {}
        for meta in base.metas:
            if self._cleared.may_be_in(meta.partition_stats):
                known = self._read.get(meta.file_name)
                found[meta.file_name] = (
                    self._manifests.read_of(meta, self._cleared) if known is None else known
                )
        self._read = found
        deleted = {e.identity for some in found.values() for e in some if e.kind is FileKind.DELETE}
        return [
            e
            for some in found.values()
            for e in some
            if e.kind is FileKind.ADD and e.identity not in deleted
        ]

    def _indexes(self, base: Base) -> list[IndexChange]:
        entries = self._manifests.index_entries(
            None if base.snapshot is None else base.snapshot.index_manifest
        )
        return [
            IndexChange(kind=FileKind.DELETE, entry=e)
            for e in entries
            if self._cleared.holds(e.partition)
        ]


def plan_overwrite(
    table: Table,
    manifests: ManifestStore,
    messages: Iterable[CommitMessage],
    *,
    partition: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> Overwrite:
    """The overwrite that replaces files with the messages' files. It is static if a partition is
    given (`{}` means all). Otherwise `dynamic` or the table's option decides. Raises
    `InvalidOption` if a partition is given for a dynamic overwrite, `IncompatibleSchema` and
    `InvalidData` for a partition that the table cannot have, `OutsidePartition` for files outside
    it.
    """
    kept = _without_changelog(table, tuple(messages))
    collected = collect(kept, table_buckets=table.options.value(opt.BUCKET))
    written = collected.append
    if not (collected.compact.entries or collected.compact.index):
        written = upgraded(table, written)
    replaces_own = is_dynamic(table, partition, dynamic)
    if replaces_own:
        cleared = PartitionFilter(table.partition_types, rows=written.partitions)
    else:
        cleared = PartitionFilter(
            table.partition_types, specs=[static_spec(table, partition)] if partition else None
        )
        _check_inside(
            table, cleared, partition or {}, (*written.entries, *collected.compact.entries)
        )
    source = OverwriteSource(table, manifests, cleared, _numbered(table, written))
    return Overwrite(source=source, messages=kept, always=not replaces_own)


def plan_drop(
    table: Table, manifests: ManifestStore, partitions: Iterable[Mapping[str, Any]]
) -> Overwrite:
    """The overwrite that clears all partitions that match one of these specs. Raises
    `InvalidOption` if no partition is given, `IncompatibleSchema`, `InvalidData`.
    """
    given = opt.Arguments(table.location)
    specs = given.items(
        "partitions", partitions, Mapping, f"a list of partitions such as [{PARTITION_EXAMPLE}]"
    )
    if not specs or not all(specs):
        cure = f"Give a list of partitions such as [{PARTITION_EXAMPLE}]; truncate() empties the whole table."
        text = f"{list(specs)!r} names no partition to drop. Nothing was changed. {cure}"
        raise InvalidOption(text, option="partitions").of_table(table.location)
    cleared = PartitionFilter(
        table.partition_types, specs=[static_spec(table, one) for one in specs]
    )
    return Overwrite(
        source=OverwriteSource(table, manifests, cleared, Changes()), messages=(), always=True
    )


def is_dynamic(table: Table, partition: Mapping[str, Any] | None, dynamic: bool | None) -> bool:
    """Whether only partitions that get new files are replaced. Raises `InvalidOption`, also for
    wrong types.
    """
    opt.Arguments(table.location).mapping("partition", partition, PARTITION_EXAMPLE)
    dynamic = opt.Arguments(table.location).flag("dynamic", dynamic, optional=True)
    if partition is not None:
        if dynamic:
            raise InvalidOption(
                f"both a partition ({partition!r}) and dynamic=True are given. A named partition is replaced as a "
                "whole; a dynamic overwrite replaces the partitions that get rows. Leave one out.",
                option="dynamic",
            ).of_table(table.location)
        return False
    if not table.partition_types:
        return False
    return table.options.value(opt.DYNAMIC_OVERWRITE) if dynamic is None else dynamic


def static_spec(table: Table, partition: Mapping[str, Any]) -> PartitionSpec:
    """The spec with values of the partition columns' types. `partition.default-name` stands for
    NULL, also in string columns, as in Java. Raises `IncompatibleSchema`, `InvalidData`.
    """
    default_name = table.options.value(opt.PARTITION_DEFAULT_NAME)
    given = {name: None if value == default_name else value for name, value in partition.items()}
    return parse_partition(table.schema.partition_fields, given, default_name, table=table.location)


def _without_changelog(
    table: Table, messages: tuple[CommitMessage, ...]
) -> tuple[CommitMessage, ...]:
    """The messages without changelog files. An overwrite has no changelog, because readers of
    changes would see added rows but no removed ones.
    """
    ignored = [
        f.file_name for m in messages for f in (*m.changelog_files, *m.compact_changelog_files)
    ]
    if not ignored:
        return messages
    more = f" and {len(ignored) - _NAMED} more" if len(ignored) > _NAMED else ""
    text = "%s: an overwrite has no changelog; %d changelog files are left out and become orphans: %s%s."
    _LOG.warning(text, table.location, len(ignored), ", ".join(ignored[:_NAMED]), more)
    return tuple(replace(one, changelog_files=(), compact_changelog_files=()) for one in messages)


def _check_inside(
    table: Table,
    cleared: PartitionFilter,
    partition: Mapping[str, Any],
    entries: Sequence[ManifestEntry],
) -> None:
    outside = [entry for entry in entries if not cleared.holds(entry.partition)]
    if not outside:
        return
    named = sorted({table.layout.partition(entry.partition) for entry in outside})
    shown = ", ".join(named[:_SHOWN])
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    raise OutsidePartition(
        f"partition {dict(partition)!r} is to be overwritten, but {len(outside)} of the new files lie outside of it, "
        f"in {shown}{more}. Nothing was published. Leave those rows out, or overwrite without a partition "
        "(dynamic=True replaces the partitions that get rows).",
        partition=dict(partition),
        found=tuple(named[:_SHOWN]),
        count=len(outside),
    ).of_table(table.location)


def _numbered(table: Table, written: Changes) -> Changes:
    """The changes, with sequence numbers from 0 if several tasks wrote to one fixed bucket. Nothing
    stays of the bucket's old files. In a table with a primary key the files store the numbers, so
    they stay.
    """
    if table.schema.primary_keys:
        return written
    ranges: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
    for entry in written.entries:
        if entry.total_buckets > 0 and entry.kind is FileKind.ADD:
            span = (entry.file.min_sequence_number, entry.file.max_sequence_number)
            ranges.setdefault((entry.partition, entry.bucket), []).append(span)
    in_order = all(one[1] < other[0] for spans in ranges.values() for one, other in pairwise(spans))
    return written if in_order else renumber(written, {})


def upgraded(table: Table, written: Changes) -> Changes:
    """The changes with the levels of an overwrite's files (semantics.md §5.1 step 3). The files of
    each bucket whose key ranges are disjoint get the top level, in the order of their keys. Nothing
    changes if the table has no key or turns this off (`overwrite-upgrade`), or if any file already
    has a level, is in no real bucket, or is removed. Raises `FormatError` for keys that are not of
    the table's types.
    """
    keys = [table.schema.field(name).type for name in table.schema.trimmed_primary_keys]
    clustered = table.options.value(opt.PK_CLUSTERING_OVERRIDE)
    if not table.schema.primary_keys or clustered or not table.options.value(opt.OVERWRITE_UPGRADE):
        return written
    if any(e.file.level > 0 or e.bucket < 0 or e.kind is not FileKind.ADD for e in written.entries):
        return written
    top = top_level(table.options)
    if top < 1:
        return written
    buckets: defaultdict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
    for entry in written.entries:
        buckets[entry.partition, entry.bucket].append(entry)
    order = row_order(keys)
    entries = [entry for bucket in buckets.values() for entry in _bucket(bucket, order, top)]
    return replace(written, entries=tuple(entries))


def top_level(options: opt.Options) -> int:
    """The highest level of a bucket (compaction.md §4.1). Raises `InvalidOption`."""
    levels = opt.NUM_LEVELS
    return (
        options.value(levels) - 1
        if options.is_set(levels)
        else options.value(opt.COMPACTION_TRIGGER)
    )


def _bucket(entries: Sequence[ManifestEntry], order: RowOrder, top: int) -> Sequence[ManifestEntry]:
    by_key = sorted(entries, key=lambda entry: order(entry.file.min_key))
    if any(order(one.file.max_key) >= order(other.file.min_key) for one, other in pairwise(by_key)):
        return entries
    return [replace(entry, file=replace(entry.file, level=top)) for entry in by_key]
