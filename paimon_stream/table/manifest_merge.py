"""Merges small manifests in every commit, as Java does. The merge is a *full* one if the manifests
that it has to rewrite are large enough together, and otherwise a *minor* one (semantics.md §4, with
R4.2 for retries).

Invariants: the live files stay the same. A minor merge keeps the order of the entries, because
later deletes depend on it. No file is changed; only new manifests are written. A manifest that need
not change is passed on unchanged.

Manifests without deletes are joined as bytes, so that a merge does not delay a commit. Avro stores
records one after the other. So full blocks are copied as they are, smaller ones are joined to full
ones, and the list's entry for the new manifest is computed from the entries for its parts. The
records are the same as if they had been decoded and encoded again. A hundred thousand entries are
joined in a fraction of a second. To decode them would take many seconds.

On a retry nothing is merged again: `Merged.onto` puts the earlier result in the place of the
manifests that were merged, if these manifests are still next to each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from paimon_stream.format.avro_file import (
    AvroBlock,
    Compressor,
    compressor,
    decompress,
    packed_blocks_of,
)
from paimon_stream.format.entries import FileKind, ManifestEntry, ManifestFileMeta, SimpleStats
from paimon_stream.format.manifest_avro import (
    ENTRIES_PER_BLOCK,
    FULL_BLOCK,
    encode_entries,
    manifest_of_blocks,
)
from paimon_stream.format.types import DataType
from paimon_stream.options import (
    MANIFEST_FULL_COMPACTION_SIZE,
    MANIFEST_MERGE_MIN_COUNT,
    MANIFEST_TARGET_SIZE,
    Options,
)
from paimon_stream.storage.base import FileSink, Storage, read_if_there
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.table.layout import NameSource, manifest_path
from paimon_stream.table.live import merge_entries
from paimon_stream.table.manifests import EntryTally, ManifestStore, ManifestWriter
from paimon_stream.table.partition_spec import PartitionFilter

Metas = tuple[ManifestFileMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """The limits that decide when manifests are merged.

    Attributes:
        target_size: the size of a full manifest, in bytes.
        full_size: the bytes of changed manifests that trigger a full merge.
        min_count: the number of small manifests that triggers a minor merge.
    """

    target_size: int
    full_size: int
    min_count: int

    @classmethod
    def of(cls, options: Options) -> "MergeLimits":
        """The limits that the table's options set. Raises `InvalidOption`."""
        return cls(
            target_size=options.value(MANIFEST_TARGET_SIZE),
            full_size=options.value(MANIFEST_FULL_COMPACTION_SIZE),
            min_count=options.value(MANIFEST_MERGE_MIN_COUNT),
        )

    def must_change(self, meta: ManifestFileMeta) -> bool:
        """Whether a full merge always rewrites this manifest. It does if the manifest has deletes
        or is small.
        """
        return meta.num_deleted_files > 0 or meta.file_size < self.target_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The result of a merge: the manifests `before` the merge, and those `after` it."""

    before: Metas
    after: Metas

    @property
    def written(self) -> frozenset[str]:
        """The names of the manifests that the merge wrote."""
        return _file_names(self.after) - _file_names(self.before)

    @property
    def count(self) -> int:
        """How many manifests were merged into others."""
        return len(_file_names(self.before) - _file_names(self.after))

    def onto(self, present: Metas) -> Metas:
        """The present manifests of a table, with the merged manifests replaced by the result of the
        merge. If the merged manifests are no longer next to each other, the present ones are
        returned unchanged.
        """
        if self.after == self.before:
            return present
        names = [meta.file_name for meta in present]
        wanted = [meta.file_name for meta in self.before]
        for start in range(len(names) - len(wanted) + 1):
            if names[start : start + len(wanted)] == wanted:
                return (*present[:start], *self.after, *present[start + len(wanted) :])
        return present


def _file_names(metas: Metas) -> frozenset[str]:
    return frozenset(meta.file_name for meta in metas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestAccess:
    """The functions by which a merge reads and writes manifests.

    Attributes:
        read: returns the entries of a manifest.
        write: writes entries. It starts a new manifest when one has the target size, and writes no
            manifest without entries.
        join: writes the entries of manifests without deletes in the same way. These entries are
            copied, and not decoded.
        may_contain: tells whether a manifest with some partition statistics can have entries of a
            partition.
    """

    read: Callable[[ManifestFileMeta], Sequence[ManifestEntry]]
    write: Callable[[Iterable[ManifestEntry]], Metas]
    join: Callable[[Metas], Metas]
    may_contain: Callable[[SimpleStats, bytes], bool]


def merge_manifests(metas: Metas, limits: MergeLimits, access: ManifestAccess) -> Merged:
    """Merges the manifests if the limits demand it, and otherwise returns them unchanged. Raises
    what `access` raises, and `DeletedFiles` if decoded manifests list a file twice. After an error,
    the caller removes the manifests that were written.
    """
    after = full_merge(metas, limits, access)
    if after is None:
        after = minor_merge(metas, limits, access)
    return Merged(before=metas, after=after)


def minor_groups(metas: Metas, limits: MergeLimits) -> list[Metas]:
    """The groups of manifests that a minor merge joins, in order. A group of one manifest is left
    unchanged.
    """
    groups: list[Metas] = []
    open_group: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        open_group.append(meta)
        size += meta.file_size
        if size >= limits.target_size:
            groups.append(tuple(open_group))
            open_group = []
            size = 0
    if len(open_group) >= limits.min_count:
        groups.append(tuple(open_group))
    else:
        groups.extend((meta,) for meta in open_group)
    return groups


def minor_merge(metas: Metas, limits: MergeLimits, access: ManifestAccess) -> Metas:
    """Joins neighbouring manifests (semantics.md §4.1). If the ADD of a DELETE is not in the same
    group, the DELETE is kept.
    """
    result: list[ManifestFileMeta] = []
    for group in minor_groups(metas, limits):
        if len(group) == 1:
            result.extend(group)
        elif not any(meta.num_deleted_files for meta in group):
            result.extend(_joined(group, access))  # nothing can cancel out
        else:
            entries = chain.from_iterable(map(access.read, group))
            result.extend(access.write(merge_entries(entries).values()))
    return tuple(result)


def full_merge(metas: Metas, limits: MergeLimits, access: ManifestAccess) -> Metas | None:
    """Rewrites the changed manifests so that the result has no deletes (semantics.md §4.2); None if
    the limits demand no full merge.
    """
    if sum(meta.file_size for meta in metas if limits.must_change(meta)) < limits.full_size:
        return None
    deleting = chain.from_iterable(
        access.read(meta) for meta in metas if meta.num_deleted_files > 0
    )
    deleted = {entry.identity for entry in deleting if entry.kind is FileKind.DELETE}
    partitions = {identity.partition for identity in deleted}
    kept: list[ManifestFileMeta] = []
    rest: list[ManifestFileMeta] = []
    for meta in metas:
        touched = limits.must_change(meta) or any(
            access.may_contain(meta.partition_stats, partition) for partition in partitions
        )
        if touched:
            rest.append(meta)
        else:
            kept.append(meta)
    if len(rest) <= 1:
        return None
    if not any(meta.num_deleted_files for meta in rest):
        joined = _joined(tuple(rest), access)
        if joined == tuple(rest):
            return None
        return (*kept, *joined)

    def survivors() -> Iterator[ManifestEntry]:
        """The entries that are written again, with one manifest in memory at a time. Manifests that
        need not change are added to `kept`.
        """
        for meta in rest:
            entries = access.read(meta)
            live = [
                entry
                for entry in entries
                if entry.kind is FileKind.ADD and entry.identity not in deleted
            ]
            if len(live) == len(entries) and not limits.must_change(meta):
                kept.append(meta)
            else:
                yield from live

    written = access.write(survivors())  # `kept` grows meanwhile
    return (*kept, *written)


def _joined(group: Metas, access: ManifestAccess) -> Metas:
    """Joins the manifests into fewer ones. If unknown fields prevent that (`ManifestWriter.write`),
    returns the manifests unchanged. Otherwise each merge would write the same manifests again.
    """
    joined = access.join(group)
    if len(joined) < len(group):
        return joined
    return group


_PLAIN: Final = compressor("null", 0)
_SCHEMA: Final = packed_blocks_of(manifest_of_blocks((), _PLAIN), "a manifest without entries")[0]


class ManifestJoiner(ManifestWriter):
    """Joins manifests of a table without decoding them. The manifests have no deletes, because an
    ADD and its DELETE cancel out only if they are decoded.
    """

    def __init__(
        self,
        storage: Storage,
        options: Options,
        partition_types: Sequence[DataType],
        manifests: ManifestStore,
        sink: FileSink | None = None,
    ) -> None:
        """`sink` receives the written files. If it is None, they go to the storage."""
        super().__init__(storage if sink is None else sink, options, partition_types, 0)
        self._source = storage
        self._manifests = manifests

    def join(
        self, metas: Iterable[ManifestFileMeta], names: NameSource
    ) -> tuple[ManifestFileMeta, ...]:
        """Writes the entries of the manifests again, in order, under names from `names`. A new
        manifest takes the entries of whole manifests until it reaches `manifest.target-file-size`.
        A manifest is decoded if its schema is not Java's, or if its list describes it only in part.
        From the first manifest with unknown fields on, all manifests are decoded, so that they
        share a schema. Raises `CorruptMetadata`, `StorageError`.
        """
        written: list[ManifestFileMeta] = []
        blocks = _Blocks(self._codec)
        tally = EntryTally()
        has_room = False
        following = iter(metas)
        for meta in following:
            packed = self._packed(meta)
            if packed is not None:
                codec, read = packed
                tally.add_manifest(meta)
            else:  # anything unusual is decoded, or found to be corrupt
                entries = self._manifests.read(meta)
                if any(entry.file.unknown for entry in entries):
                    if has_room:
                        written.append(self._write_manifest(blocks.take(), tally, names.next()))
                    decoded = chain.from_iterable(map(self._manifests.read, following))
                    return (*written, *self.write(chain(entries, decoded), names))
                codec = _PLAIN.codec
                read = _plain_blocks(entries)
                tally.add(entries)
            blocks.add(codec, read, meta.file_name)
            has_room = blocks.size < self._target_size
            if not has_room:
                written.append(self._write_manifest(blocks.take(), tally, names.next()))
                tally = EntryTally()
        if has_room:
            written.append(self._write_manifest(blocks.take(), tally, names.next()))
        return tuple(written)

    def access(self, writer: ManifestWriter, names: NameSource) -> ManifestAccess:
        """The functions by which a merge reads and writes manifests. All new files have names from
        `names`.
        """
        return ManifestAccess(
            read=self._manifests.read,
            write=lambda entries: writer.write(entries, names),
            join=lambda metas: self.join(metas, names),
            may_contain=self._may_contain,
        )

    def _may_contain(self, stats: SimpleStats, partition: bytes) -> bool:
        return PartitionFilter(self._partition_types, rows=(partition,)).may_be_in(stats)

    def _packed(self, meta: ManifestFileMeta) -> tuple[str, Sequence[AvroBlock]] | None:
        """The codec of a manifest's blocks, and the compressed blocks. None if the manifest has
        another schema than Java's, or if its list describes it only in part.
        """
        path = manifest_path(meta.file_name)
        if self._is_described(meta):
            data = read_if_there(self._source.read, path)
            if data is not None and len(data) == meta.file_size:
                schema, codec, blocks = packed_blocks_of(data, f"{self._source.location}/{path}")
                stored = sum(block.records for block in blocks)
                if schema == _SCHEMA and stored == meta.num_added_files + meta.num_deleted_files:
                    return codec, blocks
        return None

    def _is_described(self, meta: ManifestFileMeta) -> bool:
        """Whether the list's entry for this manifest has all that the entry of a joined manifest
        needs.
        """
        stats = meta.partition_stats
        bounds = (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level)
        if None in bounds or None in stats.null_counts:
            return False
        columns = len(self._partition_types)
        arities = {int.from_bytes(row[:4], "big") for row in (stats.min_values, stats.max_values)}
        return arities == {columns} and len(stats.null_counts) == columns


def _plain_blocks(entries: Sequence[ManifestEntry]) -> list[AvroBlock]:
    """The entries in blocks that are not compressed."""
    groups = in_groups(entries, ENTRIES_PER_BLOCK)
    return [block for group in groups for block in encode_entries(group, _PLAIN)]


class _Blocks:
    """Collects entries in compressed blocks. Each block has at least a thousand entries or
    `FULL_BLOCK` bytes, except the last one.

    Attributes:
        size: the bytes of the finished blocks.
    """

    def __init__(self, compressor: Compressor) -> None:
        self.size = 0
        self._compressor = compressor
        self._closed: list[AvroBlock] = []
        self._waiting: list[bytes] = []
        self._records = 0

    def add(self, codec: str, blocks: Iterable[AvroBlock], name: str) -> None:
        """Adds the blocks of a manifest. `codec` is the compression of the blocks, and `name` is
        the name of the manifest, for messages.
        """
        can_be_copied = codec == self._compressor.codec
        for block in blocks:
            if can_be_copied and not self._records and block.records >= ENTRIES_PER_BLOCK:
                self._keep(block)
                continue
            plain = decompress(codec, block.data, name)
            if self._records and sum(map(len, self._waiting)) + len(plain) > FULL_BLOCK:
                self._close()
            self._waiting.append(plain)
            self._records += block.records
            if self._records >= ENTRIES_PER_BLOCK:
                self._close()

    def take(self) -> list[AvroBlock]:
        """Returns all blocks that were added since the last call."""
        if self._records:
            self._close()
        taken = self._closed
        self._closed = []
        self.size = 0
        return taken

    def _close(self) -> None:
        self._keep(AvroBlock(self._records, self._compressor.compress(b"".join(self._waiting))))
        self._waiting = []
        self._records = 0

    def _keep(self, block: AvroBlock) -> None:
        self._closed.append(block)
        self.size += len(block.data)
