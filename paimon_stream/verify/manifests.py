"""The manifests of a table, each read once and kept as columns of numbers.

Merging manifests copies most of their blocks. Entries of equal blocks are decoded and checked only
once, unless one of these entries is wrong. Each entry is checked separately while its manifest is
read. For checks across manifests, some facts about each entry are kept: its kind, and the hash of
the identity of its file. For a level-0 file with a primary key, the sequence numbers are also kept.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import compress, groupby, islice
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import CorruptMetadata, FormatError, NotFound, UnsupportedFeature
from paimon_stream.format.avro_file import AvroBlock, blocks_of
from paimon_stream.format.binary_row import deserialize
from paimon_stream.format.entries import FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.manifest_avro import decode_manifest, read_manifest
from paimon_stream.format.names import shown_name, wrong_with
from paimon_stream.format.stats import may_hold, partition_bounds
from paimon_stream.runtime import Rng
from paimon_stream.storage.base import Storage
from paimon_stream.storage.external import shown
from paimon_stream.storage.read_ahead import ReadAhead
from paimon_stream.table.layout import Layout, manifest_path
from paimon_stream.table.table import Table
from paimon_stream.verify.files import Inventory, Longs
from paimon_stream.verify.findings import RESTORE, Findings

_CANDIDATES: Final = 64
"""How many candidates a sample may have for each file that is drawn."""
_AT_ONCE: Final = 4096
"""How many entries are checked together."""
_WHOLE_BLOCK: Final = 100
"""Blocks of fewer entries are written anew when manifests are merged."""
_FIELDS: Final = (
    "_PARTITION",
    "_KIND",
    "_BUCKET",
    "_TOTAL_BUCKETS",
    "_FILE._FILE_NAME",
    "_FILE._FILE_SIZE",
    "_FILE._ROW_COUNT",
    "_FILE._MIN_SEQUENCE_NUMBER",
    "_FILE._MAX_SEQUENCE_NUMBER",
    "_FILE._SCHEMA_ID",
    "_FILE._LEVEL",
    "_FILE._EXTRA_FILES",
    "_FILE._DELETE_ROW_COUNT",
    "_FILE._EMBEDDED_FILE_INDEX",
    "_FILE._EXTERNAL_PATH",
)
_PARTITION: Final = 0
_BUCKET: Final = 2
_FILE_NAME: Final = 4
_FILE_SIZE: Final = 5
_ROW_COUNT: Final = 6
_MIN_SEQUENCE_NUMBER: Final = 7
_MAX_SEQUENCE_NUMBER: Final = 8
_LEVEL: Final = 10
_EXTRA_FILES: Final = 11
_EMBEDDED_FILE_INDEX: Final = 13
_EXTERNAL_PATH: Final = 14
"""The places of these fields in `_FIELDS`, and so in a row."""

_Row: TypeAlias = tuple[Any, ...]
_BlockKey: TypeAlias = tuple[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongFile:
    """A file that is missing, or whose size differs from the size in its manifest. This is an error
    if the file is live.
    """

    path: str
    expected: int
    """The size in its manifest, in bytes; −1 for an extra file, whose size is not recorded."""
    present: int | None
    """The file's actual size, in bytes; None if it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSummary:
    """The facts that are kept about one manifest.

    Attributes:
        ids: the identities of its entries, as hashes.
        signs: 1 for each entry that adds a file, −1 for each entry that deletes one.
        net_rows: rows added minus rows deleted.
        added_rows: rows added.
        totals: files added minus files deleted, by partition and number of buckets.
        ranges: for each added level-0 file, a row with the identity, the bucket (as the hash of its
            folder), and the lowest and the highest sequence number.
    """

    ids: Longs
    signs: npt.NDArray[np.int8]
    net_rows: int
    added_rows: int
    totals: Mapping[tuple[bytes, int], int]
    ranges: Longs


@dataclass(slots=True)
class SampleCandidates:
    """The files from which the sample is drawn: some files of each manifest.

    Attributes:
        most_files: how many files are drawn at most; 0 for none.
        rng: the random numbers by which files are drawn.
    """

    most_files: int
    rng: Rng
    _files: list[tuple[int, str]] = field(default_factory=list, init=False)
    """Each is the hash of the file's identity, and the path of its manifest."""

    def add(self, ids: Sequence[int], manifest: str) -> None:
        """Adds some of the files that a manifest adds. `ids` are the hashes of their identities."""
        if len(ids) > self.most_files:
            ids = [ids[self.rng.below(len(ids))] for _ in range(self.most_files)]
        self._files += [(identity, manifest) for identity in ids]
        if len(self._files) > _CANDIDATES * self.most_files:
            self._files = [
                self._files[self.rng.below(len(self._files))] for _ in range(len(self._files) // 2)
            ]

    def draw(self, live: Longs, excluded: Container[int]) -> dict[str, set[int]]:
        """Draws from the live files that are not `excluded`. Files are given as the hashes of their
        identities. Returns the hashes of the drawn files, by the paths of their manifests.
        """
        manifests = dict(self._files)
        ids = [identity for identity in manifests if identity not in excluded]
        alive = list(compress(ids, np.isin(np.array(ids, np.int64), live)))
        while len(alive) > self.most_files:
            alive.pop(self.rng.below(len(alive)))
        drawn: dict[str, set[int]] = {}
        for identity in alive:
            drawn.setdefault(manifests[identity], set()).add(identity)
        return drawn


@dataclass(slots=True)
class BucketFolders:
    """The folders of the buckets that entries name.

    Attributes:
        layout: the layout of the table.
        by_hash: the folders whose hashes are in `ManifestSummary.ranges`.
    """

    layout: Layout
    by_hash: dict[int, str] = field(default_factory=dict, init=False)
    _known: dict[tuple[bytes, int, str | None], str] = field(default_factory=dict, init=False)
    """By partition, bucket and external folder."""
    _wrong: dict[str, str] = field(default_factory=dict, init=False)
    """What is wrong with the folders that the table cannot have."""

    def of(self, partition: bytes, bucket: int, external: str | None = None) -> str:
        """The folder of a bucket, or of a file with this external path. If the table cannot have
        this folder, the result is a description for messages.
        """
        key = (partition, bucket, external and external.rpartition("/")[0])
        folder = self._known.get(key)
        if folder is None:
            try:
                folder = self.layout.bucket_folder(partition, bucket, external)
            except FormatError as error:
                folder = f"bucket {bucket} of partition {partition.hex()}"
                self._wrong[folder] = str(error)
            self._known[key] = folder
        return folder

    def hash_of(self, partition: bytes, bucket: int) -> int:
        """The hash of the folder of a bucket. After the call, `by_hash` has this folder."""
        folder = self.of(partition, bucket)
        self.by_hash[hash(folder)] = folder
        return hash(folder)

    def wrong_with(self, row: _Row) -> str | None:
        """The reason why the table cannot have the file of an entry; None if it can have the
        file.
        """
        folder = self.of(row[_PARTITION], row[_BUCKET], row[_EXTERNAL_PATH])
        for name in (row[_FILE_NAME], *row[_EXTRA_FILES]):
            wrong = wrong_with(name)
            if wrong is not None:
                return f"{shown_name(name)} cannot be the name of a file: {wrong}."
        return self._wrong.get(folder)


@dataclass(slots=True, kw_only=True)
class CheckedTable:
    """A table that is checked: all manifests that were read, and the problems that were found in
    their entries.

    Attributes:
        table: the table.
        findings: the collector of findings. It is replaced while a root is checked that may expire.
        inventory: the files that exist.
        schema_ids: the readable schemas.
        candidates: the files from which the sample is drawn.
        summaries: the manifests by name; None for those that cannot be read.
        wrong_files: the files that are missing or have another size, by the hashes of their
            identities.
        vectors: the index files whose deletion vectors were read. Each of them is read only once.
        folders: the folders of the buckets.
        ahead: reads manifests and manifest lists before they are needed.
    """

    table: Table
    findings: Findings
    inventory: Inventory
    schema_ids: frozenset[int]
    candidates: SampleCandidates
    summaries: dict[str, ManifestSummary | None] = field(default_factory=dict, init=False)
    wrong_files: dict[int, WrongFile] = field(default_factory=dict, init=False)
    vectors: set[str] = field(default_factory=set, init=False)
    folders: BucketFolders = field(init=False)
    ahead: ReadAhead = field(init=False)
    _blocks: "dict[_BlockKey, _ReadEntries]" = field(default_factory=dict, init=False)
    """What the larger blocks without findings hold."""
    _values: dict[bytes, tuple[Any, ...]] = field(default_factory=dict, init=False)
    """The values of partitions."""

    def __post_init__(self) -> None:
        self.folders = BucketFolders(self.table.layout)
        self.ahead = ReadAhead(self.storage)

    @property
    def storage(self) -> Storage:
        """The storage of the table."""
        return self.table.storage

    def get(self, meta: ManifestFileMeta) -> ManifestSummary | None:
        """The summary of a manifest. Problems of the manifest are reported only once."""
        name = meta.file_name
        if name not in self.summaries:
            self.summaries[name] = self._read(meta)
        return self.summaries[name]

    def forget(self, kept: frozenset[str]) -> None:
        """Forgets all manifests except those with these names. They are read again when they are
        needed.
        """
        for name in self.summaries.keys() - kept:
            del self.summaries[name]

    def _read(self, meta: ManifestFileMeta) -> ManifestSummary | None:
        path = manifest_path(meta.file_name)
        try:
            data = self.ahead.read(path)
        except NotFound:
            self.findings.error(
                "manifest-missing", f"Manifest {path} does not exist.", path, RESTORE
            )
            return None
        except CorruptMetadata as error:
            self.findings.error("manifest-broken", error.message, path, RESTORE)
            return None
        if len(data) != meta.file_size:
            self.findings.error(
                "manifest-size",
                f"Manifest {path} has {len(data)} bytes; its list says {meta.file_size}.",
                path,
                RESTORE,
            )
        try:
            return self._summaries(data, meta, path)
        except (
            FormatError,
            UnsupportedFeature,
            ValueError,
            TypeError,
            KeyError,
            OverflowError,
        ) as error:
            self.findings.error(
                "manifest-broken", f"Manifest {path} cannot be read: {error}", path, RESTORE
            )
            return None

    def _summaries(self, data: bytes, meta: ManifestFileMeta, path: str) -> ManifestSummary:
        """The summary of a manifest. The findings about its entries are collected separately,
        because only blocks without findings are kept.
        """
        of_entries = Findings()
        try:
            entries = self._read_entries(data, path, of_entries)
        finally:
            self.findings.absorb(of_entries)
        self.findings.checked["manifests"] += 1
        self.findings.checked["entries"] += len(entries.signs)
        self._check_meta(meta, entries, path)
        if self.candidates.most_files:
            self.candidates.add(entries.added_files(), path)
        return ManifestSummary(
            ids=np.frombuffer(entries.ids, dtype=np.int64),
            signs=np.frombuffer(entries.signs, dtype=np.int8),
            net_rows=entries.added_rows - entries.deleted_rows,
            added_rows=entries.added_rows,
            totals=entries.totals,
            ranges=np.frombuffer(entries.ranges, dtype=np.int64).reshape(-1, 4),
        )

    def _read_entries(self, data: bytes, path: str, findings: Findings) -> "_ReadEntries":
        """The facts that are kept about the blocks of a manifest. Only blocks that no earlier
        manifest had are decoded. Problems of their entries are added to `findings`, which must be
        empty before the call.
        """
        keyed = bool(self.table.schema.primary_keys)
        schema_text, _ = blocks_of(data, path)
        schema = blake2b(schema_text.encode()).digest()
        blocks: list[_ReadEntries] = []
        fresh: dict[_BlockKey, _ReadEntries] = {}

        def is_new(block: AvroBlock) -> bool:
            block_key = (block.records, blake2b(block.data, key=schema).digest())
            known = self._blocks.get(block_key)
            if known is not None:
                blocks.append(known)
                return False
            fresh[block_key] = _ReadEntries(self, findings, path, keyed=keyed)
            blocks.append(fresh[block_key])
            return True

        # `is_new` is called for a block before its rows are read, and appends to `blocks`. So while
        # a row is read, the length of `blocks` is the number of the row's block, counted from 1.
        rows = read_manifest(data, path, _FIELDS, is_new)
        for number, rows_of_block in groupby(rows, key=lambda _: len(blocks)):
            while batch := list(islice(rows_of_block, _AT_ONCE)):
                blocks[number - 1].take(batch)
        if findings.is_empty:
            self._blocks.update(
                (key, block) for key, block in fresh.items() if len(block.ids) >= _WHOLE_BLOCK
            )
        joined = _ReadEntries(self, findings, path, keyed=keyed)
        for block in blocks:
            joined.add(block)
        return joined

    def _check_meta(self, meta: ManifestFileMeta, entries: "_ReadEntries", path: str) -> None:
        """Checks the facts about a manifest that a manifest list records. Readers rely on these
        facts to skip manifests.
        """
        added = entries.signs.count(1)
        deleted = len(entries.signs) - added
        if (added, deleted) != (meta.num_added_files, meta.num_deleted_files):
            self.findings.error(
                "manifest-counts",
                f"Manifest {path} adds {added} and deletes {deleted} files; "
                f"its list says {meta.num_added_files} and {meta.num_deleted_files}.",
                path,
                RESTORE,
            )
        partitions = {partition for partition, _ in entries.totals}
        if self._has_other_partitions(meta, partitions) or _has_other_buckets(
            meta, entries.buckets
        ):
            self.findings.error(
                "manifest-bounds",
                f"Manifest {path} has entries outside the partitions or buckets that its "
                "list gives it.",
                path,
                "Readers overlook those files. Run compact_manifests, which writes the "
                "bounds again.",
            )

    def _has_other_partitions(self, meta: ManifestFileMeta, partitions: Iterable[bytes]) -> bool:
        """Whether at least one of the partitions is outside the bounds that the manifest list
        records for the manifest.
        """
        types = self.table.partition_types
        bounds = partition_bounds(types, meta.partition_stats)
        if bounds is None:
            return False
        for partition in partitions:
            if partition not in self._values:
                self._values[partition] = tuple(deserialize(types, partition))
            if not all(map(may_hold, types, bounds, self._values[partition])):
                return True
        return False

    def entries(self, manifest: str, wanted: Container[int]) -> Iterator[ManifestEntry]:
        """The entries with these identities in the manifest with this path. There are none if the
        manifest no longer exists or cannot be read.
        """
        try:
            entries = decode_manifest(self.storage.read(manifest), manifest)
        except (FormatError, UnsupportedFeature, NotFound):
            return
        yield from (entry for entry in entries if hash(tuple(entry.identity)) in wanted)

    def names(
        self, ids: Iterable[int], metas: Iterable[ManifestFileMeta], *, at_least: int = 1
    ) -> list[str]:
        """The sorted paths of files that occur in the manifests at least `at_least` times.

        Args:
            ids: the hashes of the identities of the wanted files.
            metas: the manifests.
            at_least: how many times a file must occur; 1 for all files that occur.
        """
        wanted = set(ids)
        paths = (manifest_path(meta.file_name) for meta in metas)
        occurring = Counter(
            entry.identity for path in paths for entry in self.entries(path, wanted)
        )
        return sorted(
            f"{self.folders.of(identity.partition, identity.bucket, identity.external_path)}/{identity.file_name}"
            for identity, times in occurring.items()
            if times >= at_least
        )


def _has_other_buckets(meta: ManifestFileMeta, buckets: Collection[int]) -> bool:
    """Whether at least one of the buckets is outside the bounds that the manifest list records for
    the manifest.
    """
    if meta.min_bucket is None or meta.max_bucket is None or not buckets:
        return False
    return min(buckets) < meta.min_bucket or max(buckets) > meta.max_bucket


@dataclass(slots=True)
class _ReadEntries:
    """Collects the facts that are kept about a manifest, or about one of its blocks, while the
    entries are read.

    Attributes:
        checked: the table to which wrong files and folders are added.
        findings: the collector of findings.
        manifest: the path of the manifest.
        keyed: whether the table has a primary key.
        ids: as in `ManifestSummary`, like `signs`, `ranges`, `totals` and `added_rows`.
        buckets: all buckets.
        unusable: the identities of files that the table cannot have.
        deleted_rows: rows deleted.
    """

    checked: CheckedTable
    findings: Findings
    manifest: str
    keyed: bool
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    signs: "array[int]" = field(default_factory=lambda: array("b"))
    ranges: "array[int]" = field(default_factory=lambda: array("q"))
    totals: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    buckets: set[int] = field(default_factory=set)
    unusable: set[int] = field(default_factory=set)
    added_rows: int = 0
    deleted_rows: int = 0

    def add(self, block: "_ReadEntries") -> None:
        """Adds the facts that are kept about a block."""
        self.ids.extend(block.ids)
        self.signs.extend(block.signs)
        self.ranges.extend(block.ranges)
        self.totals.update(block.totals)
        self.buckets |= block.buckets
        self.unusable |= block.unusable
        self.added_rows += block.added_rows
        self.deleted_rows += block.deleted_rows

    def added_files(self) -> list[int]:
        """The identities of the added files that the table can have."""
        added = compress(self.ids, (sign > 0 for sign in self.signs))
        return [identity for identity in added if identity not in self.unusable]

    def take(self, rows: Sequence[_Row]) -> None:
        """Adds some entries. Each row has the values of `_FIELDS`."""
        columns = list(zip(*rows, strict=True))
        partitions, kinds, buckets, totals, names = columns[:5]  # the first five of `_FIELDS`
        counts = columns[_ROW_COUNT]
        levels = columns[_LEVEL]
        extra_names = map(tuple, columns[_EXTRA_FILES])
        embedded = columns[_EMBEDDED_FILE_INDEX]
        external = columns[_EXTERNAL_PATH]
        parts_of_identity = zip(
            partitions, buckets, levels, names, extra_names, embedded, external, strict=True
        )
        identities = list(map(hash, parts_of_identity))
        adds = [kind == FileKind.ADD for kind in kinds]
        self.ids.extend(identities)
        signs = [1 if is_add else -1 for is_add in adds]
        self.signs.extend(signs)
        self.buckets.update(buckets)
        rows_added = sum(compress(counts, adds))
        self.added_rows += rows_added
        self.deleted_rows += sum(counts) - rows_added
        problems = [self.checked.folders.wrong_with(row) for row in rows]
        added = [is_add and problem is None for is_add, problem in zip(adds, problems, strict=True)]
        deleted = [
            not is_add and problem is None for is_add, problem in zip(adds, problems, strict=True)
        ]
        # `totals` counts pairs of a partition and a bucket count.
        self.totals.update(zip(compress(partitions, added), compress(totals, added), strict=True))
        self.totals.subtract(
            zip(compress(partitions, deleted), compress(totals, deleted), strict=True)
        )
        for identity, problem in zip(identities, problems, strict=True):
            if problem is not None:  # the file has no path
                self.unusable.add(identity)
                self.findings.error(
                    "entry-unusable",
                    f"{self.manifest} has an entry of a file that the table cannot have: {problem}",
                    self.manifest,
                    "Roll the table back to the snapshot before it, and correct its "
                    "writer. Reads refuse the file.",
                )
        if any(added):
            self._take_added(list(compress(rows, added)), list(compress(identities, added)))

    def _take_added(self, rows: Sequence[_Row], identities: Sequence[int]) -> None:
        """Checks entries that add files, and keeps the sequence numbers of level-0 files."""
        self._locate(rows, identities)
        self._check(rows)
        if not self.keyed:
            return
        for row, identity in zip(rows, identities, strict=True):
            if row[_LEVEL] == 0:
                group = self.checked.folders.hash_of(row[_PARTITION], row[_BUCKET])
                low = row[_MIN_SEQUENCE_NUMBER]
                high = row[_MAX_SEQUENCE_NUMBER]
                self.ranges.extend((identity, group, low, high))

    def _locate(self, rows: Sequence[_Row], identities: Sequence[int]) -> None:
        """Checks that added files and their extra files exist, with the right sizes."""
        inventory = self.checked.inventory
        folders = [
            self.checked.folders.of(row[_PARTITION], row[_BUCKET], row[_EXTERNAL_PATH])
            for row in rows
        ]
        hashes = [
            hash(f"{folder}/{row[_FILE_NAME]}") for folder, row in zip(folders, rows, strict=True)
        ]
        sizes = [row[_FILE_SIZE] for row in rows]
        for at in inventory.differing(np.array(hashes, np.int64), np.array(sizes, np.int64)):
            path = f"{folders[at]}/{rows[at][_FILE_NAME]}"
            size = rows[at][_FILE_SIZE]
            now = inventory.size_now(path)
            if now != size:
                self.checked.wrong_files[identities[at]] = WrongFile(
                    path=shown(path), expected=size, present=now
                )
        for at, row in enumerate(rows):
            for extra_name in row[_EXTRA_FILES]:  # their sizes are not recorded: any is right
                extra_path = f"{folders[at]}/{extra_name}"
                if inventory.size_now(extra_path) is None:
                    self.checked.wrong_files[identities[at]] = WrongFile(
                        path=shown(extra_path), expected=-1, present=None
                    )

    def _check(self, rows: Sequence[_Row]) -> None:
        """Checks each entry separately for impossible values."""
        findings = self.findings
        known = self.checked.schema_ids
        for row in rows:
            _, _, bucket, total, name, _, count, low, high, schema_id, _, _, deletes, _, _ = row
            if schema_id not in known:
                path = f"schema/schema-{schema_id}"
                findings.error(
                    "schema-missing",
                    f"File {name} was written with schema {schema_id}, which is missing.",
                    path,
                    "Restore the schema file from a backup.",
                )
            if total > 0 and not 0 <= bucket < total:
                findings.error(
                    "bucket-out-of-range",
                    f"File {name} in {self.manifest} is of bucket {bucket} of {total}.",
                    self.manifest,
                    "Overwrite its partition; a writer routed its rows wrongly.",
                )
            has_wrong_deletes = deletes is not None and not 0 <= deletes <= count
            if count < 0 or low > high or has_wrong_deletes:
                findings.error(
                    "entry-impossible",
                    f"File {name} in {self.manifest} has {count} rows, {deletes or 0} of "
                    f"them deletes, and sequence numbers {low} to {high}, which cannot be.",
                    self.manifest,
                    RESTORE,
                )
