"""Joins manifests as bytes: the same records, far faster (docs/architecture.md, "The cost of a commit")."""

from collections.abc import Iterable, Sequence
from typing import Final

from paimon_stream.errors import NotFound
from paimon_stream.format.avro_file import AvroBlock, Compressor, compressor, decompress, packed_blocks_of
from paimon_stream.format.entries import ManifestFileMeta
from paimon_stream.format.manifest_avro import ENTRIES_PER_BLOCK, FULL_BLOCK, encode_entries, manifest_of_blocks
from paimon_stream.format.types import DataType
from paimon_stream.options import Options
from paimon_stream.storage.base import Storage
from paimon_stream.storage.bundle import FileSink
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.table.layout import NameSource, manifest_path
from paimon_stream.table.manifest_merge import ManifestAccess
from paimon_stream.table.manifests import ManifestStore, ManifestWriter, Tally
from paimon_stream.table.partition_spec import PartitionFilter

_PLAIN: Final = compressor("null", 0)
_SCHEMA: Final = packed_blocks_of(manifest_of_blocks((), _PLAIN), "a manifest without entries")[0]


class ManifestJoiner(ManifestWriter):
    """Joins manifests of a table that have no deletes: an ADD and a DELETE would not cancel out without decoding."""

    def __init__(
        self,
        storage: Storage,
        options: Options,
        partition_types: Sequence[DataType],
        manifests: ManifestStore,
        sink: FileSink | None = None,
    ) -> None:
        """`sink` receives the written files; without one, the storage does."""
        super().__init__(storage if sink is None else sink, options, partition_types, 0)
        self._source = storage
        self._manifests = manifests

    def join(self, metas: Iterable[ManifestFileMeta], names: NameSource) -> tuple[ManifestFileMeta, ...]:
        """Writes the entries of these manifests again, in order, under names of `names`. A new manifest ends with the
        first joined one at which it reaches `manifest.target-file-size`. Those with another schema than Java's, or
        which their list describes only in part, are decoded. Raises `CorruptMetadata`, `StorageError`."""
        written: list[ManifestFileMeta] = []
        blocks, tally = _Blocks(self._codec), Tally()
        waits = False
        for meta in metas:
            blocks.add(*self._read(meta, tally), meta.file_name)
            waits = blocks.size < self._target_size
            if not waits:
                written.append(self._write_one(blocks.take(), tally, names.next()))
                tally = Tally()
        if waits:
            written.append(self._write_one(blocks.take(), tally, names.next()))
        return tuple(written)

    def access(self, writer: ManifestWriter, names: NameSource) -> ManifestAccess:
        """How a merge reads and writes manifests. The writer's files, too, have names from `names`."""
        return ManifestAccess(
            read=self._manifests.read,
            write=lambda entries: writer.write(entries, names),
            join=lambda joined: self.join(joined, names),
            may_contain=lambda stats, one: PartitionFilter(self._partition_types, rows=(one,)).may_be_in(stats),
        )

    def _read(self, meta: ManifestFileMeta, tally: Tally) -> tuple[str, Sequence[AvroBlock]]:
        """The codec of a manifest's blocks, and the blocks, compressed by it. The tally takes in the manifest."""
        path = manifest_path(meta.file_name)
        if self._is_described(meta):
            try:
                data = self._source.read(path)
            except NotFound:
                data = b""
            if len(data) == meta.file_size:
                schema, codec, blocks = packed_blocks_of(data, f"{self._source.location}/{path}")
                stored = sum(block.records for block in blocks)
                if schema == _SCHEMA and stored == meta.num_added_files + meta.num_deleted_files:
                    tally.add_manifest(meta)
                    return codec, blocks
        # Anything unusual is decoded, or found to be corrupt.
        entries = self._manifests.read(meta)
        tally.add(entries)
        groups = in_groups(entries, ENTRIES_PER_BLOCK)
        return _PLAIN.codec, [block for some in groups for block in encode_entries(some, _PLAIN)]

    def _is_described(self, meta: ManifestFileMeta) -> bool:
        """Whether the list's entry for this manifest is complete enough to describe a manifest joined from it."""
        stats, width = meta.partition_stats, len(self._partition_types)
        known = (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level, *stats.null_counts)
        arities = {int.from_bytes(row[:4], "big") for row in (stats.min_values, stats.max_values)}
        return None not in known and arities == {width} and len(stats.null_counts) == width


class _Blocks:
    """Compressed blocks of at least a thousand entries or `FULL_BLOCK` bytes each, except the last one."""

    def __init__(self, compressor: Compressor) -> None:
        self.size = 0
        self._compressor = compressor
        self._made: list[AvroBlock] = []
        self._waiting: list[bytes] = []
        self._records = 0

    def add(self, codec: str, blocks: Iterable[AvroBlock], name: str) -> None:
        """Adds the blocks of a manifest. `codec` is their compression, `name` the manifest's name."""
        same = codec == self._compressor.codec
        for block in blocks:
            if same and not self._records and block.records >= ENTRIES_PER_BLOCK:
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
        if self._records:
            self._close()
        taken, self._made, self.size = self._made, [], 0
        return taken

    def _close(self) -> None:
        self._keep(AvroBlock(self._records, self._compressor.compress(b"".join(self._waiting))))
        self._waiting, self._records = [], 0

    def _keep(self, block: AvroBlock) -> None:
        self._made.append(block)
        self.size += len(block.data)
