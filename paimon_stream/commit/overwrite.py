"""Overwrites a table: one snapshot replaces the live files of some partitions with new ones
(semantics.md §5). A *static* overwrite replaces the partitions that match a spec (`{}` matches
all). A *dynamic* overwrite replaces the partitions that get new files.

Invariants: each attempt determines on its base which files it removes. So an append that was
published meanwhile is replaced, too, and every file that is removed was there. Earlier snapshots
keep the removed files.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from paimon_stream import options as opt
from paimon_stream.commit.plan import Base, Changes, IndexChange, collect, renumber
from paimon_stream.errors import InvalidOption, OutsidePartition, first_few
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
    """An overwrite that is planned and can be requested.

    Attributes:
        source: the source of the overwrite's changes.
        messages: the commit messages, without files that an overwrite leaves out.
        always: whether there is a snapshot even if nothing changes.
    """

    source: "OverwriteSource"
    messages: tuple[CommitMessage, ...]
    always: bool


class OverwriteSource:
    """The changes of one overwrite on any base: a `ChangeSource`.

    Attributes:
        gone: the files that the newest attempt removes.
    """

    def __init__(
        self,
        table: Table,
        manifests: ManifestStore,
        cleared: PartitionFilter,
        written: Changes,
        spared_since_millis: int = 2**63,
    ) -> None:
        """Prepares an overwrite.

        Args:
            table: the table.
            manifests: reads the table's manifests.
            cleared: the partitions that are cleared.
            written: the changes that take the place of the cleared files.
            spared_since_millis: a partition stays as it is if one of its files was created at this
                time (local milliseconds) or later.
        """
        self.gone: list[ManifestEntry] = []
        self._spared_since_millis = spared_since_millis
        self._least_bucket = table.least_bucket
        self._manifests = manifests
        self._cleared = cleared
        self._written = written
        self._read: dict[str, list[ManifestEntry]] = {}

    def at(self, base: Base) -> Changes:
        """A DELETE for each live file that is replaced, followed by the written entries, without
        those that delete the same files. Files of spared partitions and of postponed rows are not
        replaced. The index files of the cleared partitions that are not spared are removed, too.
        Raises `CorruptMetadata`, `StorageError`.
        """
        live = self._live(base)
        spared = {
            entry.partition
            for entry in live
            if (entry.file.creation_time or 0) >= self._spared_since_millis
        }
        dropped = (
            entry
            for entry in live
            if entry.bucket >= self._least_bucket and entry.partition not in spared
        )
        self.gone = [replace(entry, kind=FileKind.DELETE) for entry in dropped]
        removed = {entry.identity for entry in self.gone}
        written = (
            entry
            for entry in self._written.entries
            if entry.kind is FileKind.ADD or entry.identity not in removed
        )
        index = (change for change in self._indexes(base) if change.entry.partition not in spared)
        return replace(
            self._written, entries=(*self.gone, *written), index=(*index, *self._written.index)
        )

    def _live(self, base: Base) -> list[ManifestEntry]:
        """The live files of the cleared partitions. Manifests never change, so a manifest that an
        earlier attempt has read is not read again.
        """
        by_manifest: dict[str, list[ManifestEntry]] = {}
        for meta in base.metas:
            if self._cleared.may_be_in(meta.partition_stats):
                entries = self._read.get(meta.file_name)
                if entries is None:
                    entries = self._manifests.read_of(meta, self._cleared)
                by_manifest[meta.file_name] = entries
        self._read = by_manifest
        read = [entry for entries in by_manifest.values() for entry in entries]
        deleted = {entry.identity for entry in read if entry.kind is FileKind.DELETE}
        return [
            entry for entry in read if entry.kind is FileKind.ADD and entry.identity not in deleted
        ]

    def _indexes(self, base: Base) -> list[IndexChange]:
        """A DELETE for each index file of the cleared partitions."""
        return [
            IndexChange(kind=FileKind.DELETE, entry=entry)
            for entry in self._manifests.index_entries(base.index_manifest)
            if self._cleared.holds(entry.partition)
        ]


def plan_overwrite(
    table: Table,
    manifests: ManifestStore,
    messages: Iterable[CommitMessage],
    *,
    partition: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> Overwrite:
    """Plans the overwrite that replaces live files by the files of the messages.

    Args:
        table: the table.
        manifests: reads the table's manifests.
        messages: the new files.
        partition: the spec of a static overwrite. `{}` matches all partitions. None: no partition
            is given.
        dynamic: whether the overwrite is dynamic if no partition is given. None: the table's option
            decides.

    Raises:
        InvalidOption: a partition is given for a dynamic overwrite.
        IncompatibleSchema, InvalidData: the table cannot have such a partition.
        OutsidePartition: a file is outside the partition.
        FormatError: the keys of a file do not have the table's types.
    """
    without_changelog = _without_changelog(table, tuple(messages))
    collected = collect(without_changelog, table_buckets=table.options.value(opt.BUCKET))
    written = collected.append
    if not (collected.compact.entries or collected.compact.index):
        written = upgraded(table, written)
    only_written = is_dynamic(table, partition, dynamic)
    if only_written:
        cleared = PartitionFilter(table.partition_types, rows=written.partitions)
    else:
        specs = None
        if partition:
            specs = [static_spec(table, partition)]
        cleared = PartitionFilter(table.partition_types, specs=specs)
        _check_inside(
            table, cleared, partition or {}, (*written.entries, *collected.compact.entries)
        )
    source = OverwriteSource(table, manifests, cleared, _numbered(table, written))
    return Overwrite(source=source, messages=without_changelog, always=not only_written)


def plan_drop(
    table: Table, manifests: ManifestStore, partitions: Iterable[Mapping[str, Any]]
) -> Overwrite:
    """Plans the overwrite that clears all partitions that match one of the specs. Raises
    `IncompatibleSchema`, `InvalidData`, and `InvalidOption` if no partition is given.
    """
    arguments = opt.Arguments(table.location)
    specs = arguments.items(
        "partitions", partitions, Mapping, f"a list of partitions such as [{PARTITION_EXAMPLE}]"
    )
    if not specs or not all(specs):
        raise InvalidOption(
            f"{list(specs)!r} names no partition to drop. Nothing was changed. Give a list of partitions such as "
            f"[{PARTITION_EXAMPLE}]; truncate() empties the whole table.",
            option="partitions",
        ).of_table(table.location)
    typed_specs = [static_spec(table, spec) for spec in specs]
    cleared = PartitionFilter(table.partition_types, specs=typed_specs)
    source = OverwriteSource(table, manifests, cleared, Changes())
    return Overwrite(source=source, messages=(), always=True)


def is_dynamic(table: Table, partition: Mapping[str, Any] | None, dynamic: bool | None) -> bool:
    """Whether only partitions that get new files are replaced. Raises `InvalidOption`, also for
    wrong types.
    """
    # The call only checks the mapping.
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
    if dynamic is None:
        return table.options.value(opt.DYNAMIC_OVERWRITE)
    return dynamic


def static_spec(table: Table, partition: Mapping[str, Any]) -> PartitionSpec:
    """The spec of a static overwrite. Its values have the types of the partition columns.
    `partition.default-name` stands for NULL, also in string columns, as in Java. Raises
    `IncompatibleSchema`, `InvalidData`.
    """
    default_name = table.options.value(opt.PARTITION_DEFAULT_NAME)
    values = dict(partition)
    for name, value in partition.items():
        if value == default_name:
            values[name] = None
    return parse_partition(
        table.schema.partition_fields, values, default_name, table=table.location
    )


def _without_changelog(
    table: Table, messages: tuple[CommitMessage, ...]
) -> tuple[CommitMessage, ...]:
    """The messages without changelog files. An overwrite has no changelog, because readers of
    changes would see the added rows but not the removed rows.
    """
    ignored: list[str] = []
    for message in messages:
        ignored += (file.file_name for file in message.changelog_files)
        ignored += (file.file_name for file in message.compact_changelog_files)
    if not ignored:
        return messages
    _LOG.warning(
        "%s: an overwrite has no changelog; %d changelog files are left out and become orphans: %s.",
        table.location,
        len(ignored),
        first_few(ignored, _NAMED),
    )
    return tuple(
        replace(message, changelog_files=(), compact_changelog_files=()) for message in messages
    )


def _check_inside(
    table: Table,
    cleared: PartitionFilter,
    partition: Mapping[str, Any],
    entries: Sequence[ManifestEntry],
) -> None:
    """Raises `OutsidePartition` if an entry is not in a cleared partition. `partition` is the spec,
    for the message.
    """
    outside = [entry for entry in entries if not cleared.holds(entry.partition)]
    if not outside:
        return
    named = sorted({table.layout.partition(entry.partition) for entry in outside})
    raise OutsidePartition(
        f"partition {dict(partition)!r} is to be overwritten, but {len(outside)} of the new files lie outside of it, "
        f"in {first_few(named, _SHOWN)}. Nothing was published. Leave those rows out, or overwrite without a partition "
        "(dynamic=True replaces the partitions that get rows).",
        partition=dict(partition),
        found=tuple(named[:_SHOWN]),
        count=len(outside),
    ).of_table(table.location)


def _numbered(table: Table, written: Changes) -> Changes:
    """The changes, with sequence numbers from 0 if several tasks wrote to one fixed bucket. No old
    file of the bucket stays, so all numbers are free. In a table with a primary key, the rows in
    the files have their numbers, so these do not change.
    """
    if table.schema.primary_keys:
        return written
    ranges: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
    for entry in written.entries:
        if entry.total_buckets > 0 and entry.kind is FileKind.ADD:
            span = (entry.file.min_sequence_number, entry.file.max_sequence_number)
            ranges.setdefault((entry.partition, entry.bucket), []).append(span)
    in_order = all(
        lower[1] < upper[0] for spans in ranges.values() for lower, upper in pairwise(spans)
    )
    if in_order:
        return written
    return renumber(written, {})


def upgraded(table: Table, written: Changes) -> Changes:
    """The changes of an overwrite, with the final levels of its files (semantics.md §5.1 step 3).
    The files of each bucket whose key ranges are disjoint get the top level, in the order of their
    keys. The changes stay as they are if the table has no key or the option `overwrite-upgrade` is
    off. They also stay if any file already has a level, is in no real bucket, or is removed. Raises
    `FormatError` if keys do not have the table's types.
    """
    if not table.schema.primary_keys or not table.options.value(opt.OVERWRITE_UPGRADE):
        return written
    if table.options.value(opt.PK_CLUSTERING_OVERRIDE):
        return written  # its levels are not sorted by key
    if not all(map(_is_new_in_a_bucket, written.entries)):
        return written
    top = top_level(table.options)
    if top < 1:
        return written
    keys = [table.schema.field(name).type for name in table.schema.trimmed_primary_keys]
    buckets: defaultdict[tuple[bytes, int], list[ManifestEntry]] = defaultdict(list)
    for entry in written.entries:
        buckets[entry.partition, entry.bucket].append(entry)
    order = row_order(keys)
    entries = [entry for bucket in buckets.values() for entry in _on_top(bucket, order, top)]
    return replace(written, entries=tuple(entries))


def _is_new_in_a_bucket(entry: ManifestEntry) -> bool:
    """Whether the entry adds a file to level 0 of a real bucket, which is numbered from 0 up."""
    return entry.kind is FileKind.ADD and entry.bucket >= 0 and entry.file.level <= 0


def top_level(options: opt.Options) -> int:
    """The highest level of a bucket (compaction.md §4.1). Raises `InvalidOption`."""
    if options.is_set(opt.NUM_LEVELS):
        return options.value(opt.NUM_LEVELS) - 1
    return options.value(opt.COMPACTION_TRIGGER)


def _on_top(entries: Sequence[ManifestEntry], order: RowOrder, top: int) -> Sequence[ManifestEntry]:
    """The files of a bucket on the level `top`, in the order of their keys. If their keys overlap,
    the files stay as they are.
    """
    by_key = sorted(entries, key=lambda entry: order(entry.file.min_key))
    if any(
        order(lower.file.max_key) >= order(upper.file.min_key) for lower, upper in pairwise(by_key)
    ):
        return entries
    return [replace(entry, file=replace(entry.file, level=top)) for entry in by_key]
