"""The manifests of a table, each read once and kept as columns of numbers.

Merging manifests copies most of their blocks. Entries of equal blocks are decoded and checked once,
unless something is wrong with one of them. What a single entry shows is checked while its manifest
is read. For checks across manifests the hash of its identity and ADD or DELETE are kept, and
sequence numbers of level-0 files with a primary key.
"""

from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
from paimon_stream.storage.read_ahead import ReadAhead
from paimon_stream.storage.uri import shown
from paimon_stream.table.hash_index import Hashes
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.table import Table
from paimon_stream.verify.files import Inventory, Longs
from paimon_stream.verify.findings import RESTORE, Findings

_POOL: Final = 64
_AT_ONCE: Final = 4096
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
_Row: TypeAlias = tuple[Any, ...]
_BlockKey: TypeAlias = tuple[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A file that is missing, or whose size is not that in its manifest. It is an error if the file
    is live.
    """

    path: str
    expected: int
    present: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFacts:
    """What is kept of one manifest: identities and signs of its entries, rows added minus rows
    deleted, rows added, the number of entries by (partition, bucket count), and for level-0 files
    the identity, bucket and sequence range.
    """

    ids: Longs
    signs: npt.NDArray[np.int8]
    net_rows: int
    added_rows: int
    totals: Mapping[tuple[bytes, int], int]
    ranges: Longs


@dataclass(slots=True, kw_only=True)
class Shelf:
    """All manifests that were read, by name; None for those that cannot be read. `sampled` are the
    sampled files of dynamic buckets, each with the hashes of its keys, by partition and bucket.
    `vectors` are the index files whose deletion vectors were read.
    """

    table: Table
    findings: Findings
    inventory: Inventory
    schema_ids: frozenset[int]
    rng: Rng
    sample: int
    facts: dict[str, ManifestFacts | None] = field(default_factory=dict)
    suspects: dict[int, Suspect] = field(default_factory=dict)
    folders: dict[int, str] = field(default_factory=dict)
    pool: list[tuple[int, str]] = field(default_factory=list)
    sampled: dict[tuple[bytes, int], list[tuple[str, Hashes]]] = field(default_factory=dict)
    vectors: set[str] = field(default_factory=set)
    storage: Storage = field(init=False)
    ahead: ReadAhead = field(init=False)
    _blocks: "dict[_BlockKey, _Pass]" = field(default_factory=dict)
    _values: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)
    _folder_of: dict[tuple[bytes, int, str | None], str] = field(default_factory=dict)
    _wrong_folders: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.storage = self.table.storage
        self.ahead = ReadAhead(self.storage)

    def get(self, meta: ManifestFileMeta) -> ManifestFacts | None:
        """The facts of a manifest. Its problems are reported once."""
        name = meta.file_name
        if name not in self.facts:
            self.facts[name] = self._read(meta)
        return self.facts[name]

    def forget(self, but: frozenset[str]) -> None:
        """Forgets all manifests except those with these names. They are read again when they are
        needed.
        """
        for name in self.facts.keys() - but:
            del self.facts[name]

    def _read(self, meta: ManifestFileMeta) -> ManifestFacts | None:
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
            return self._facts(data, meta, path)
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

    def _facts(self, data: bytes, meta: ManifestFileMeta, path: str) -> ManifestFacts:
        outer = self.findings
        self.findings = Findings()
        try:
            pass_ = self._passed(data, path)
        finally:
            outer.absorb(self.findings)
            self.findings = outer
        self.findings.checked["manifests"] += 1
        self.findings.checked["entries"] += len(pass_.signs)
        self._check_meta(meta, pass_, path)
        self._sample(pass_, path)
        return ManifestFacts(
            ids=np.frombuffer(pass_.ids, dtype=np.int64),
            signs=np.frombuffer(pass_.signs, dtype=np.int8),
            net_rows=pass_.added_rows - pass_.deleted_rows,
            added_rows=pass_.added_rows,
            totals=pass_.totals,
            ranges=np.frombuffer(pass_.ranges, dtype=np.int64).reshape(-1, 4),
        )

    def _passed(self, data: bytes, path: str) -> "_Pass":
        """What the blocks of a manifest hold. Only those are read that no other manifest had."""
        keyed = bool(self.table.schema.primary_keys)
        schema = blake2b(blocks_of(data, path)[0].encode()).digest()
        parts: list[_Pass] = []
        fresh: dict[_BlockKey, _Pass] = {}

        def is_new(block: AvroBlock) -> bool:
            key = block.records, blake2b(block.data, key=schema).digest()
            known = self._blocks.get(key)
            if known is None:
                fresh[key] = _Pass(self, path, keyed=keyed)
            parts.append(known or fresh[key])
            return known is None

        rows = read_manifest(data, path, _FIELDS, is_new)
        for number, of_block in groupby(rows, key=lambda _: len(parts)):
            while batch := list(islice(of_block, _AT_ONCE)):
                parts[number - 1].take(batch)
        if self.findings.is_empty:
            self._blocks.update(
                (key, block) for key, block in fresh.items() if len(block.ids) >= _WHOLE_BLOCK
            )
        joined = _Pass(self, path, keyed=keyed)
        for block in parts:
            joined.add(block)
        return joined

    def _check_meta(self, meta: ManifestFileMeta, seen: "_Pass", path: str) -> None:
        """Checks what a manifest list records about a manifest, because readers skip manifests by
        it.
        """
        added = seen.signs.count(1)
        if (added, len(seen.signs) - added) != (meta.num_added_files, meta.num_deleted_files):
            self.findings.error(
                "manifest-counts",
                f"Manifest {path} adds {added} and deletes {len(seen.signs) - added} files; "
                f"its list says {meta.num_added_files} and {meta.num_deleted_files}.",
                path,
                RESTORE,
            )
        outside = self._has_others(meta, {partition for partition, _ in seen.totals})
        if meta.min_bucket is not None and meta.max_bucket is not None and seen.buckets:
            outside |= min(seen.buckets) < meta.min_bucket or max(seen.buckets) > meta.max_bucket
        if outside:
            self.findings.error(
                "manifest-bounds",
                f"Manifest {path} has entries outside the partitions or buckets that its "
                "list gives it.",
                path,
                "Readers overlook those files. Run compact_manifests, which writes the "
                "bounds again.",
            )

    def _has_others(self, meta: ManifestFileMeta, partitions: Iterable[bytes]) -> bool:
        """Whether one of the partitions is outside the bounds that the list gives the manifest."""
        types = self.table.partition_types
        bounds = partition_bounds(types, meta.partition_stats)
        for partition in partitions if bounds is not None else ():
            row = self._values.get(partition)
            if row is None:
                row = self._values[partition] = tuple(deserialize(types, partition))
            if not all(map(may_hold, types, bounds or (), row)):
                return True
        return False

    def _sample(self, seen: "_Pass", path: str) -> None:
        """Adds some files of each manifest to the pool from which the sample is drawn."""
        if not self.sample:
            return
        added = [
            at
            for at, sign in enumerate(seen.signs)
            if sign > 0 and seen.ids[at] not in seen.unusable
        ]
        if len(added) > self.sample:
            added = [added[self.rng.below(len(added))] for _ in range(self.sample)]
        self.pool += [(seen.ids[at], path) for at in added]
        if len(self.pool) > _POOL * self.sample:
            self.pool = [
                self.pool[self.rng.below(len(self.pool))] for _ in range(len(self.pool) // 2)
            ]

    def folder(self, partition: bytes, bucket: int, external: str | None = None) -> str:
        """The folder of a bucket, or of a file with this external path; words for one that the
        table cannot have.
        """
        key = (partition, bucket, external and external.rpartition("/")[0])
        folder = self._folder_of.get(key)
        if folder is None:
            try:
                folder = self.table.layout.bucket_folder(partition, bucket, external)
            except FormatError as error:
                folder = f"bucket {bucket} of partition {partition.hex()}"
                self._wrong_folders[folder] = str(error)
            self._folder_of[key] = folder
        return folder

    def wrong_with(self, row: _Row) -> str | None:
        """Why the table cannot have the file of an entry; None if it can."""
        folder = self.folder(row[0], row[2], row[14])
        for name in (row[4], *row[11]):
            wrong = wrong_with(name)
            if wrong is not None:
                return f"{shown_name(name)} cannot be the name of a file: {wrong}."
        return self._wrong_folders.get(folder)

    def entries(self, manifest: str, wanted: Container[int]) -> Iterator[ManifestEntry]:
        """The entries with these identities in the manifest with this path; none if it is gone or
        cannot be read.
        """
        try:
            entries = decode_manifest(self.storage.read(manifest), manifest)
        except (FormatError, UnsupportedFeature, NotFound):
            return
        yield from (entry for entry in entries if hash(tuple(entry.identity)) in wanted)

    def names(
        self, ids: Iterable[int], metas: Iterable[ManifestFileMeta], *, at_least: int = 1
    ) -> list[str]:
        """The sorted paths of the files with these identities that occur `at_least` times in the
        manifests.
        """
        wanted = set(ids)
        paths = (manifest_path(meta.file_name) for meta in metas)
        occurring = Counter(
            entry.identity for path in paths for entry in self.entries(path, wanted)
        )
        return sorted(
            f"{self.folder(identity.partition, identity.bucket, identity.external_path)}/{identity.file_name}"
            for identity, times in occurring.items()
            if times >= at_least
        )


@dataclass(slots=True)
class _Pass:
    """Collects the facts of one manifest while its entries are read."""

    shelf: Shelf
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

    def add(self, block: "_Pass") -> None:
        self.ids.extend(block.ids)
        self.signs.extend(block.signs)
        self.ranges.extend(block.ranges)
        self.totals.update(block.totals)
        self.buckets |= block.buckets
        self.unusable |= block.unusable
        self.added_rows += block.added_rows
        self.deleted_rows += block.deleted_rows

    def take(self, rows: Sequence[_Row]) -> None:
        """Adds some entries: the values of `_FIELDS`."""
        columns = list(zip(*rows, strict=True))
        partitions, kinds, buckets, totals, names = columns[:5]
        counts, levels, extras, embedded, external = (columns[at] for at in (6, 10, 11, 13, 14))
        extra_names = map(tuple, extras)
        texts = zip(
            partitions, buckets, levels, names, extra_names, embedded, external, strict=True
        )
        identities = list(map(hash, texts))
        adds = [kind == FileKind.ADD for kind in kinds]
        self.ids.extend(identities)
        self.signs.extend([1 if is_add else -1 for is_add in adds])
        self.buckets.update(buckets)
        rows_added = sum(compress(counts, adds))
        self.added_rows += rows_added
        self.deleted_rows += sum(counts) - rows_added
        wrong = [self.shelf.wrong_with(row) for row in rows]
        added = [is_add and why is None for is_add, why in zip(adds, wrong, strict=True)]
        deleted = [not is_add and why is None for is_add, why in zip(adds, wrong, strict=True)]
        self.totals.update(zip(compress(partitions, added), compress(totals, added), strict=True))
        self.totals.subtract(
            zip(compress(partitions, deleted), compress(totals, deleted), strict=True)
        )
        for identity, why in zip(identities, wrong, strict=True):
            if (
                why is not None
            ):  # its name, bucket or partition is none that the table can have, so it has no path
                self.unusable.add(identity)
                self.shelf.findings.error(
                    "entry-unusable",
                    f"{self.manifest} has an entry of a file that the table cannot have: {why}",
                    self.manifest,
                    "Roll the table back to the snapshot before it, and correct its "
                    "writer. Reads refuse the file.",
                )
        if any(added):
            self._take_added(list(compress(rows, added)), list(compress(identities, added)))

    def _take_added(self, rows: Sequence[_Row], identities: Sequence[int]) -> None:
        self._locate(rows, identities)
        self._check(rows)
        if not self.keyed:
            return
        for row, identity in zip(rows, identities, strict=True):
            if row[10] == 0:
                folder = self.shelf.folder(row[0], row[2])
                group = hash(folder)
                self.shelf.folders[group] = folder
                self.ranges.extend((identity, group, row[7], row[8]))

    def _locate(self, rows: Sequence[_Row], identities: Sequence[int]) -> None:
        inventory = self.shelf.inventory
        folders = [self.shelf.folder(row[0], row[2], row[14]) for row in rows]
        hashes = [hash(f"{folder}/{row[4]}") for folder, row in zip(folders, rows, strict=True)]
        paths, sizes = (
            np.array(numbers, np.int64) for numbers in (hashes, [row[5] for row in rows])
        )
        for at in inventory.differing(paths, sizes):
            path = f"{folders[at]}/{rows[at][4]}"
            size = rows[at][5]
            now = inventory.size_now(path)
            if now != size:
                self.shelf.suspects[identities[at]] = Suspect(
                    path=shown(path), expected=size, present=now
                )
        for at, row in enumerate(rows):
            for extra_name in row[
                11
            ]:  # the sizes of extra files are not recorded, so any size is right
                extra_path = f"{folders[at]}/{extra_name}"
                if inventory.size_now(extra_path) is None:
                    self.shelf.suspects[identities[at]] = Suspect(
                        path=shown(extra_path), expected=-1, present=None
                    )

    def _check(self, rows: Sequence[_Row]) -> None:
        """Checks each entry by itself for impossible values."""
        findings = self.shelf.findings
        known = self.shelf.schema_ids
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
            if count < 0 or low > high or not (deletes is None or 0 <= deletes <= count):
                findings.error(
                    "entry-impossible",
                    f"File {name} in {self.manifest} has {count} rows, {deletes or 0} of "
                    f"them deletes, and sequence numbers {low} to {high}, which cannot be.",
                    self.manifest,
                    RESTORE,
                )
