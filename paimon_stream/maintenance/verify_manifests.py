"""The manifests of a table, each read once and kept as columns of numbers.

Kept per entry: the hash of its identity, ADD or DELETE, and for level-0 files of tables with a primary key
their sequence numbers. That is what the checks across manifests need; everything about a single entry is
checked while it passes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paimon_stream.errors import FormatError, NotFound, UnsupportedFeature
from paimon_stream.format.avro_records import read_records
from paimon_stream.format.entries import FileKind, ManifestFileMeta
from paimon_stream.format.manifest_avro import decode_manifest
from paimon_stream.format.manifest_schema import MANIFEST_SCHEMA
from paimon_stream.format.stats import may_contain
from paimon_stream.maintenance.findings import Findings
from paimon_stream.maintenance.verify_files import Inventory, path_hash
from paimon_stream.runtime import Rng
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.table import Table

__all__ = ["Facts", "Shelf", "Suspect"]

Longs = npt.NDArray[np.int64]
_VERSION: Final = 2
_POOL: Final = 64
_RESTORE: Final = (
    "Restore the file from a backup, or roll the table back to a snapshot or tag that does not use it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A file that is not there, or not of the size its manifest says; an error if it is live."""

    path: str
    expected: int
    found: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is kept of one manifest: identities and signs of its entries, rows added less rows deleted,
    rows added, entries by (partition, bucket count), and of level-0 files identity, bucket and sequence
    range."""

    ids: Longs
    signs: npt.NDArray[np.int8]
    net_rows: int
    added_rows: int
    totals: Mapping[tuple[bytes, int], int]
    ranges: Longs


@dataclass(slots=True, kw_only=True)
class Shelf:
    """All manifests that were read, by name; None for one that cannot be."""

    table: Table
    storage: Storage
    found: Findings
    inventory: Inventory
    schema_ids: frozenset[int]
    rng: Rng
    sample: int
    facts: dict[str, Facts | None] = field(default_factory=dict)
    suspects: dict[int, Suspect] = field(default_factory=dict)
    folders: dict[int, str] = field(default_factory=dict)
    pool: list[tuple[int, str]] = field(default_factory=list)
    _folder_of: dict[tuple[bytes, int], str] = field(default_factory=dict)

    def get(self, meta: ManifestFileMeta) -> Facts | None:
        """The facts of a manifest. What is wrong with it is found once."""
        name = meta.file_name
        if name not in self.facts:
            self.facts[name] = self._read(meta)
        return self.facts[name]

    def forget(self, but: frozenset[str]) -> None:
        """Forgets all manifests but those of these names: they are read again when they are asked for."""
        for name in self.facts.keys() - but:
            del self.facts[name]

    def _read(self, meta: ManifestFileMeta) -> Facts | None:
        path = manifest_path(meta.file_name)
        try:
            data = self.storage.read(path)
        except NotFound:
            self.found.error("manifest-missing", f"Manifest {path} does not exist.", path, _RESTORE)
            return None
        if len(data) != meta.file_size:
            text = f"Manifest {path} has {len(data)} bytes; its list says {meta.file_size}."
            self.found.error("manifest-size", text, path, _RESTORE)
        try:
            return self._facts(read_records(data, path, MANIFEST_SCHEMA, _VERSION), meta, path)
        except (FormatError, UnsupportedFeature, ValueError, TypeError, KeyError, OverflowError) as wrong:
            self.found.error("manifest-broken", f"Manifest {path} cannot be read: {wrong}", path, _RESTORE)
            return None

    def _facts(self, records: Iterable[Mapping[str, Any]], meta: ManifestFileMeta, path: str) -> Facts:
        pass_ = _Pass(self, path, keyed=bool(self.table.schema.primary_keys))
        for record in records:
            pass_.take(record)
        self.found.checked["manifests"] += 1
        self.found.checked["entries"] += len(pass_.signs)
        self._check_meta(meta, pass_, path)
        self._note_differing(pass_)
        self._sample(pass_, path)
        signs = np.frombuffer(pass_.signs, dtype=np.int8) if pass_.signs else np.empty(0, np.int8)
        ranges = np.frombuffer(pass_.ranges, dtype=np.int64) if pass_.ranges else np.empty(0, np.int64)
        return Facts(
            ids=np.frombuffer(pass_.ids, dtype=np.int64) if pass_.ids else np.empty(0, np.int64),
            signs=signs,
            net_rows=pass_.added_rows - pass_.deleted_rows,
            added_rows=pass_.added_rows,
            totals=pass_.totals,
            ranges=ranges.reshape(-1, 4),
        )

    def _check_meta(self, meta: ManifestFileMeta, seen: _Pass, path: str) -> None:
        """What a manifest list says of a manifest: readers leave out manifests by it."""
        added = sum(sign > 0 for sign in seen.signs)
        if (added, len(seen.signs) - added) != (meta.num_added_files, meta.num_deleted_files):
            text = (
                f"Manifest {path} adds {added} and deletes {len(seen.signs) - added} files; its list says "
                f"{meta.num_added_files} and {meta.num_deleted_files}."
            )
            self.found.error("manifest-counts", text, path, _RESTORE)
        types, stats = self.table.partition_types, meta.partition_stats
        outside = any(not may_contain(types, stats, one) for one in {one for one, _ in seen.totals})
        for low, high in ((meta.min_bucket, meta.max_bucket),):
            if low is not None and high is not None and seen.buckets:
                outside |= min(seen.buckets) < low or max(seen.buckets) > high
        if outside:
            text = f"Manifest {path} has entries outside of the partitions or buckets that its list gives it."
            cure = "Readers overlook those files. Run compact_manifests, which writes the bounds anew."
            self.found.error("manifest-bounds", text, path, cure)

    def _note_differing(self, seen: _Pass) -> None:
        for position in self.inventory.differing(seen.paths, seen.sizes):
            path, size, identity = seen.located(position)
            now = self.inventory.size_now(path)
            if now != size:
                self.suspects[identity] = Suspect(path=path, expected=size, found=now)

    def _sample(self, seen: _Pass, path: str) -> None:
        """Takes some files of each manifest into the pool that the sample is drawn from."""
        if not self.sample:
            return
        added = [at for at, sign in enumerate(seen.signs) if sign > 0]
        if len(added) > self.sample:
            added = [added[self.rng.below(len(added))] for _ in range(self.sample)]
        self.pool += [(seen.ids[at], path) for at in added]
        if len(self.pool) > _POOL * self.sample:
            self.pool = [self.pool[self.rng.below(len(self.pool))] for _ in range(len(self.pool) // 2)]

    def folder(self, partition: bytes, bucket: int) -> str:
        """The folder of a bucket."""
        key = (partition, bucket)
        folder = self._folder_of.get(key)
        if folder is None:
            folder = self._folder_of[key] = self.table.layout.bucket_folder(partition, bucket)
        return folder

    def names(self, ids: Iterable[int], metas: Iterable[ManifestFileMeta], *, at_least: int = 1) -> list[str]:
        """The paths of the files with these identities that occur so often in the manifests, some of them."""
        wanted = set(ids)
        occurring: Counter[Any] = Counter()
        for meta in metas:
            path = manifest_path(meta.file_name)
            try:
                entries = decode_manifest(self.storage.read(path), path)
            except (FormatError, UnsupportedFeature, NotFound):
                continue
            for entry in entries:
                if hash(tuple(entry.identity)) in wanted:
                    occurring[entry.identity] += 1
        return sorted(
            f"{self.folder(one.partition, one.bucket)}/{one.file_name}"
            for one, times in occurring.items()
            if times >= at_least
        )


@dataclass(slots=True)
class _Pass:
    """One passage over the entries of one manifest."""

    shelf: Shelf
    manifest: str
    keyed: bool
    ids: array[int] = field(default_factory=lambda: array("q"))
    signs: array[int] = field(default_factory=lambda: array("b"))
    paths: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    ranges: array[int] = field(default_factory=lambda: array("q"))
    totals: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    buckets: set[int] = field(default_factory=set)
    added_rows: int = 0
    deleted_rows: int = 0
    _where: list[tuple[str, int, int]] = field(default_factory=list)

    def take(self, record: Mapping[str, Any]) -> None:
        """One entry."""
        file = record["_FILE"]
        partition, bucket, total = record["_PARTITION"], record["_BUCKET"], record["_TOTAL_BUCKETS"]
        name, extra, rows = file["_FILE_NAME"], tuple(file["_EXTRA_FILES"]), file["_ROW_COUNT"]
        external = file.get("_EXTERNAL_PATH")
        embedded = file.get("_EMBEDDED_FILE_INDEX")
        identity = hash((partition, bucket, file["_LEVEL"], name, extra, embedded, external))
        adds = record["_KIND"] == FileKind.ADD
        self.ids.append(identity)
        self.signs.append(1 if adds else -1)
        self.totals[partition, total] += 1 if adds else -1
        self.buckets.add(bucket)
        if not adds:
            self.deleted_rows += rows
            return
        self.added_rows += rows
        if external is None:
            self._locate(identity, self.shelf.folder(partition, bucket), name, file["_FILE_SIZE"], extra)
        self._check(file, bucket, total)
        if self.keyed and file["_LEVEL"] == 0:
            group = path_hash(self.shelf.folder(partition, bucket))
            self.shelf.folders[group] = self.shelf.folder(partition, bucket)
            low, high = file["_MIN_SEQUENCE_NUMBER"], file["_MAX_SEQUENCE_NUMBER"]
            self.ranges.extend((identity, group, low, high))

    def _locate(self, identity: int, folder: str, name: str, size: int, extra: tuple[str, ...]) -> None:
        path = f"{folder}/{name}"
        self.paths.append(path_hash(path))
        self.sizes.append(size)
        self._where.append((path, size, identity))
        for other in extra:  # their sizes are not recorded: any will do
            beside = f"{folder}/{other}"
            now = self.shelf.inventory.size_now(beside)
            if now is None:
                self.shelf.suspects[identity] = Suspect(path=beside, expected=-1, found=None)

    def located(self, position: int) -> tuple[str, int, int]:
        """Path, size and identity of the file at that position of `paths`."""
        return self._where[position]

    def _check(self, file: Mapping[str, Any], bucket: int, total: int) -> None:
        found, name = self.shelf.found, file["_FILE_NAME"]
        if file["_SCHEMA_ID"] not in self.shelf.schema_ids:
            text = f"File {name} was written with schema {file['_SCHEMA_ID']}, which is missing."
            path = f"schema/schema-{file['_SCHEMA_ID']}"
            found.error("schema-missing", text, path, "Restore the schema file from a backup.")
        if total > 0 and not 0 <= bucket < total:
            text = f"File {name} in {self.manifest} is of bucket {bucket} of {total}."
            cure = "Overwrite its partition; a writer routed its rows wrongly."
            found.error("bucket-out-of-range", text, self.manifest, cure)
        deletes = file.get("_DELETE_ROW_COUNT") or 0
        low, high = file["_MIN_SEQUENCE_NUMBER"], file["_MAX_SEQUENCE_NUMBER"]
        if file["_ROW_COUNT"] < 0 or not 0 <= deletes <= file["_ROW_COUNT"] or low > high:
            text = (
                f"File {name} in {self.manifest} has {file['_ROW_COUNT']} rows, {deletes} of them deletes, "
                f"and sequence numbers {low} to {high}, which cannot be."
            )
            found.error("entry-impossible", text, self.manifest, _RESTORE)
