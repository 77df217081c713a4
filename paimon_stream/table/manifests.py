"""Reads the manifests and manifest lists of one table, and writes new ones (format.md §4)."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Final, cast

from paimon_stream.errors import CorruptMetadata, FormatError, NotFound, UnsupportedFeature
from paimon_stream.format import manifest_avro
from paimon_stream.format.avro_file import AvroBlock, compressor, corrupt
from paimon_stream.format.avro_unknown import Types, joined
from paimon_stream.format.entries import (
    HASH,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_stream.format.index_manifest import decode_index_manifest, encode_index_manifest
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.stats import partition_stats
from paimon_stream.format.types import DataType
from paimon_stream.options import MANIFEST_COMPRESSION, MANIFEST_TARGET_SIZE, ZSTD_LEVEL, Options
from paimon_stream.storage.base import FileSink, Storage
from paimon_stream.storage.read_ahead import ReadAhead, in_groups
from paimon_stream.table.layout import NameSource, manifest_path
from paimon_stream.table.partition_spec import PartitionFilter

_LIST_SIZE: Final = 1 << 14
_PARTITION: Final = attrgetter("partition")
_GONE: Final = (
    "is missing, although a snapshot names it: the snapshot expired while it was read, or something deleted "
    "files of the table. Try again; if it stays missing, roll the table back to a snapshot that is whole."
)


class ManifestStore:
    """Reads the manifests and manifest lists of one table. Nothing is cached."""

    def __init__(self, storage: Storage | ReadAhead) -> None:
        self._storage = storage

    def read_list(self, name: str, size: int | None = None) -> tuple[ManifestFileMeta, ...]:
        """The manifests that a list names, in order. `size` is the list's size in bytes, as a
        snapshot recorded it. Raises `UnknownVersion`, and `CorruptMetadata` if the list is missing,
        cut off or broken.
        """
        data, path = self._read(name, size)
        return tuple(manifest_avro.decode_manifest_list(data, path))

    def base_and_delta(self, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
        """All manifests of a snapshot, with the base list before the delta list. So a DELETE comes
        after the ADD that it cancels (semantics.md §2.3). Raises what `read_list` raises.
        """
        base = partial(
            self.read_list, snapshot.base_manifest_list, snapshot.base_manifest_list_size
        )
        base_metas, delta_metas = self._storage.together([base, partial(self.delta, snapshot)])
        return cast("tuple[ManifestFileMeta, ...]", base_metas + delta_metas)

    def delta(self, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
        """The manifests of the changes that a snapshot made itself. Raises what `read_list`
        raises.
        """
        return self.read_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)

    def changelog(self, snapshot: Snapshot) -> tuple[ManifestFileMeta, ...]:
        """The manifests of a snapshot's changelog, if it has one. Raises what `read_list`
        raises.
        """
        if snapshot.changelog_manifest_list is None:
            return ()
        return self.read_list(
            snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
        )

    def read(self, meta: ManifestFileMeta) -> list[ManifestEntry]:
        """The entries of a manifest, in order. Raises `UnknownVersion`, and `CorruptMetadata` if
        the manifest is missing, cut off or broken, or has other counts than its list records.
        """
        data, path = self._read(meta.file_name, meta.file_size)
        entries = manifest_avro.decode_manifest(data, path)
        added = [entry.kind for entry in entries].count(FileKind.ADD)
        deleted = len(entries) - added
        if added != meta.num_added_files or deleted != meta.num_deleted_files:
            raise corrupt(
                path,
                len(data),
                f"it adds {added} and deletes {deleted} files; "
                f"its manifest list says {meta.num_added_files} and {meta.num_deleted_files}",
            )
        return entries

    def read_of(self, meta: ManifestFileMeta, chosen: PartitionFilter) -> list[ManifestEntry]:
        """The entries of a manifest that belong to the chosen partitions, in order. Other entries
        are decoded as little as possible. Raises what `read` raises, but does not compare counts.
        """
        data, path = self._read(meta.file_name, meta.file_size)
        return manifest_avro.decode_manifest(
            data, path, chosen.holds, lambda block: chosen.may_be_in_block(block.data)
        )

    def entries_of(
        self, metas: Iterable[ManifestFileMeta], partitions: PartitionFilter
    ) -> Iterator[ManifestEntry]:
        """The entries of some partitions in several manifests, in order. A manifest is read only if
        its statistics allow one of the partitions. Raises what `read_of` raises.
        """
        for meta in metas:
            if partitions.may_be_in(meta.partition_stats):
                yield from self.read_of(meta, partitions)

    def index_entries(self, name: str | None) -> tuple[IndexManifestEntry, ...]:
        """The live index files of a snapshot, from its index manifest if it has one. Raises what
        `read_list` raises.
        """
        if name is None:
            return ()
        data, path = self._read(name, None)
        return decode_index_manifest(data, path)

    def unindexed(self, snapshot: Snapshot) -> list[tuple[bytes, int]]:
        """The pairs of a partition and a bucket that have files and no hash index, in a table with
        dynamic buckets. Only these two values of each manifest entry are decoded. Raises what
        `read_list` raises.
        """
        files: Counter[tuple[bytes, int]] = Counter()
        for meta in self.base_and_delta(snapshot):
            data, path = self._read(meta.file_name, meta.file_size)
            for partition, bucket, kind in manifest_avro.read_manifest(
                data, path, ("_PARTITION", "_BUCKET", "_KIND")
            ):
                if kind == FileKind.ADD:
                    files[partition, bucket] += 1
                else:
                    files[partition, bucket] -= 1
        entries = self.index_entries(snapshot.index_manifest)
        indexed = {
            (entry.partition, entry.bucket) for entry in entries if entry.file.index_type == HASH
        }
        return [
            (partition, bucket)
            for (partition, bucket), count in files.items()
            if count > 0 and bucket >= 0 and (partition, bucket) not in indexed
        ]

    def _read(self, name: str, size: int | None) -> tuple[bytes, str]:
        path = f"{self._storage.location}/{manifest_path(name)}"
        try:
            data = self._storage.read(manifest_path(name))
        except NotFound:
            raise CorruptMetadata(f"{path} {_GONE}", path=path) from None
        if size is not None and len(data) < size:
            raise corrupt(path, len(data), f"it is cut off, and should have {size} bytes")
        return data, path


def expect_manifests(
    ahead: ReadAhead, snapshots: Iterable[Snapshot], known: Container[str]
) -> None:
    """Tells `ahead` that the lists of some snapshots are read next, with all their manifests except
    those with `known` names. Each list is held in memory until it is read, so the snapshots must be
    few.
    """
    if not ahead.helps:
        return
    lists = {
        manifest_path(name): size or _LIST_SIZE
        for snapshot in snapshots
        for name, size in snapshot.manifest_lists
        if name not in known
    }
    ahead.expect(lists.items())
    manifest_sizes: dict[str, int] = {}
    for path in lists:
        data = ahead.peek(path)
        if data is None:
            continue
        with suppress(FormatError, UnsupportedFeature):  # the reader reports it
            for meta in manifest_avro.decode_manifest_list(data, path):
                if meta.file_name not in known:
                    manifest_sizes[manifest_path(meta.file_name)] = meta.file_size
    ahead.expect(manifest_sizes.items())


class ManifestWriter:
    """Writes manifests and manifest lists of one table, under names that the caller chooses. If
    writing fails, the files that were written stay. The owner of the names removes them.
    """

    def __init__(
        self, storage: FileSink, options: Options, types: Sequence[DataType], schema_id: int
    ) -> None:
        """Makes a writer.

        Args:
            storage: where the files are written.
            options: the options of the table.
            types: the types of the partition columns.
            schema_id: the id of the newest schema.
        """
        self._storage = storage
        self._partition_types = tuple(types)
        self._schema_id = schema_id
        self._compression = options.value(MANIFEST_COMPRESSION)
        self._level = options.value(ZSTD_LEVEL)
        self._codec = compressor(self._compression, self._level)
        self._header_size = len(manifest_avro.manifest_of_blocks((), self._codec))
        self._target_size = options.value(MANIFEST_TARGET_SIZE)

    def write(
        self, entries: Iterable[ManifestEntry], names: NameSource
    ) -> tuple[ManifestFileMeta, ...]:
        """Writes the entries, in order, into as many manifests as `manifest.target-file-size`
        requires; none if there are no entries. As in Java, the size is compared after each 1000
        entries, and a manifest ends where it has reached the target size. A manifest also ends
        before an entry with an unknown field that the manifest's schema lacks. Only 1000 entries
        are held at a time. Raises `StorageError`.
        """
        written: list[ManifestFileMeta] = []
        blocks: list[AvroBlock] = []
        tally = EntryTally()
        types: Types = ()

        def close() -> None:
            nonlocal blocks, tally, types
            written.append(self._write_manifest(blocks, tally, names.next(), types))
            blocks = []
            tally = EntryTally()
            types = ()

        for group in in_groups(entries, manifest_avro.ENTRIES_PER_BLOCK):
            for part, types_of_part in manifest_avro.divided(group):
                wider = joined((types, types_of_part))
                if blocks and wider != types:
                    close()
                    wider = types_of_part
                types = types_of_part if wider is None else wider
                blocks += manifest_avro.encode_entries(part, self._codec, types)
                tally.add(part)
            if self._header_size + sum(len(block.data) for block in blocks) >= self._target_size:
                close()
        if blocks:
            close()
        return tuple(written)

    def write_list(self, name: str, metas: Sequence[ManifestFileMeta]) -> int:
        """Writes a manifest list, which may be empty; returns its size in bytes. Raises
        `StorageError`.
        """
        data = manifest_avro.encode_manifest_list(
            metas, compression=self._compression, level=self._level
        )
        self._storage.write(manifest_path(name), data)
        return len(data)

    def write_index(self, name: str, entries: Sequence[IndexManifestEntry]) -> None:
        """Writes an index manifest that names all live index files. Raises `StorageError`."""
        data = encode_index_manifest(entries, compression=self._compression, level=self._level)
        self._storage.write(manifest_path(name), data)

    def _write_manifest(
        self, blocks: Sequence[AvroBlock], tally: "EntryTally", name: str, types: Types = ()
    ) -> ManifestFileMeta:
        data = manifest_avro.manifest_of_blocks(blocks, self._codec, types)
        self._storage.write(manifest_path(name), data)
        row_ids = () if tally.some_without_row_id else tally.row_ids
        stats = partition_stats(self._partition_types, tally.partitions)
        columns = zip(stats.null_counts, *tally.null_counts, strict=True)
        null_counts = tuple(map(_sum_of_known, columns))
        return ManifestFileMeta(
            file_name=name,
            file_size=len(data),
            num_added_files=tally.added,
            num_deleted_files=tally.deleted,
            partition_stats=stats._replace(null_counts=null_counts),
            schema_id=max(tally.schema_ids, default=self._schema_id),
            min_bucket=min(tally.buckets, default=None),
            max_bucket=max(tally.buckets, default=None),
            min_level=min(tally.levels, default=None),
            max_level=max(tally.levels, default=None),
            min_row_id=min(row_ids, default=None),
            max_row_id=max(row_ids, default=None),
        )


def _sum_of_known(counts: Iterable[int | None]) -> int:
    """The sum of the counts. A count that is not known counts as 0."""
    return sum(count or 0 for count in counts)


class EntryTally:
    """What a manifest list records about a manifest. It is collected while the entries of the
    manifest are written (format.md §4.2).

    Attributes:
        added: how many entries add a file.
        deleted: how many entries delete a file.
        partitions: how many entries each serialized partition row has. For a manifest that is added
            as a whole, the rows of its bounds count 0 entries.
        null_counts: the counts of NULL by partition column, for manifests that are added as a
            whole.
        schema_ids: the schemas of the files.
        buckets: the buckets of the files.
        levels: the levels of the files.
        some_without_row_id: whether any of the files has no row ids.
        row_ids: the first and the last row id of each file that has them.
    """

    def __init__(self) -> None:
        self.added = 0
        self.deleted = 0
        self.partitions: Counter[bytes] = Counter()
        self.null_counts: list[tuple[int | None, ...]] = []
        self.schema_ids: set[int] = set()
        self.buckets: set[int] = set()
        self.levels: set[int] = set()
        self.some_without_row_id = False
        self.row_ids: list[int] = []

    def add(self, entries: Sequence[ManifestEntry]) -> None:
        """Adds these entries to the tally."""
        files = [entry.file for entry in entries]
        added = [entry.kind for entry in entries].count(FileKind.ADD)
        self.added += added
        self.deleted += len(entries) - added
        self.schema_ids.update({file.schema_id for file in files})
        self.buckets.update({entry.bucket for entry in entries})
        self.levels.update({file.level for file in files})
        self.partitions.update(map(_PARTITION, entries))
        with_ids = [
            (file.first_row_id, file.row_count) for file in files if file.first_row_id is not None
        ]
        if len(with_ids) < len(files):
            self.some_without_row_id = True
        for first, rows in with_ids:
            self.row_ids += (first, first + rows - 1)

    def add_manifest(self, meta: ManifestFileMeta) -> None:
        """Adds a manifest as a whole, by what its list records about it, which must be complete.
        The bounds stay exact.
        """
        self.added += meta.num_added_files
        self.deleted += meta.num_deleted_files
        self.schema_ids.add(meta.schema_id)
        self.buckets.update(_known(meta.min_bucket, meta.max_bucket))
        self.levels.update(_known(meta.min_level, meta.max_level))
        stats = meta.partition_stats
        self.partitions.update(dict.fromkeys((stats.min_values, stats.max_values), 0))
        self.null_counts.append(stats.null_counts)
        row_ids = _known(meta.min_row_id, meta.max_row_id)
        if len(row_ids) < 2:
            self.some_without_row_id = True
        self.row_ids += row_ids


def _known(*bounds: int | None) -> list[int]:
    """The bounds that are not None. A manifest list may lack a bound."""
    return [bound for bound in bounds if bound is not None]
