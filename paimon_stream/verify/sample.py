"""Reads some data files in full, and compares their rows with the manifests: their number,
partition and bucket, the bounds and NULL counts by which readers skip files, and, with a primary
key, the sequence numbers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import FormatError, InvalidData, NotFound, UnsupportedFeature
from paimon_stream.format.binary_columns import column_values
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats, decode_stats
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.merge.spec import SEQUENCE_COLUMN
from paimon_stream.options import BUCKET_FUNCTION
from paimon_stream.read.convert import Chunk, check_evolution, convert
from paimon_stream.read.rows import BROKEN_FILE, file_chunks
from paimon_stream.reports import Progress
from paimon_stream.table.hash_index import NO_HASHES, Hashes
from paimon_stream.table.row_ids import tracked
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table
from paimon_stream.verify.files import Longs
from paimon_stream.verify.findings import RESTORE, Findings
from paimon_stream.verify.manifests import Shelf
from paimon_stream.write.file_stats import column_bounds, merged
from paimon_stream.write.routing import assign_buckets, key_hashes


def check_sample(shelf: Shelf, live: Longs, progress: Progress) -> None:
    """Reads up to `shelf.sample` of the live files in the shelf's pool. Raises `StorageError`."""
    chosen = list(_chosen(shelf, live))
    for done, entry in enumerate(chosen):
        _check_file(entry, shelf)
        progress("sample", done + 1, len(chosen))


def _chosen(shelf: Shelf, live: Longs) -> Iterator[ManifestEntry]:
    pool = dict(shelf.pool)
    ids = [one for one in pool if one not in shelf.suspects]
    alive = [
        one for one, lives in zip(ids, np.isin(np.array(ids, np.int64), live), strict=True) if lives
    ]
    while len(alive) > shelf.sample:
        alive.pop(shelf.rng.below(len(alive)))
    wanted: dict[str, set[int]] = {}
    for one in alive:
        wanted.setdefault(pool[one], set()).add(one)
    for path, identities in wanted.items():
        for entry in shelf.entries(path, identities):
            identities.discard(hash(tuple(entry.identity)))
            yield entry


def _check_file(entry: ManifestEntry, shelf: Shelf) -> None:
    table, found = shelf.table, shelf.found
    path = table.layout.file_of(entry)
    try:
        written = SchemaStore(table.storage).get(entry.file.schema_id)
        checker = _SampledFile(table=table, entry=entry, path=path, written=written, found=found)
        with table.storage.open_input(path) as source:
            for chunk in file_chunks(source, path, checker.fields, written):
                checker.take(chunk)
        checker.finish()
    except NotFound:
        return  # gone since it was listed, because its snapshot expired
    except UnsupportedFeature as why:
        found.info(
            "file-not-read", f"{path} was not read: {why}", path, "Read it with another engine."
        )
        return
    except InvalidData as wrong:
        text = f"{path}: {wrong.message.rstrip('.')}."
        found.error("row-values", text, path, "Repair the rows with an engine that reads them.")
        return
    except (*BROKEN_FILE, FormatError, OSError) as wrong:
        found.error("file-broken", f"{path} cannot be read: {wrong}", path, RESTORE)
        return
    found.checked["sampled files"] += 1
    found.checked["sampled rows"] += checker.rows
    shelf.sampled.setdefault((entry.partition, entry.bucket), []).append(
        (path, np.concatenate(checker.hashes))
    )


@dataclass(slots=True, kw_only=True)
class _SampledFile:
    """One file while its rows are read. `written` is the schema that it was written with."""

    table: Table
    entry: ManifestEntry
    path: str
    written: TableSchema
    found: Findings
    rows: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)
    astray: int = 0
    hashes: list[Hashes] = field(default_factory=lambda: [NO_HASHES])
    elsewhere: set[str] = field(default_factory=set)
    not_read: dict[str, str] = field(default_factory=dict)

    @property
    def keyed(self) -> bool:
        return bool(self.table.schema.primary_keys)

    @property
    def fields(self) -> list[DataField]:
        return [*self.written.fields, *((SEQUENCE_COLUMN,) if self.keyed else ())]

    def take(self, chunk: Chunk) -> None:
        self.rows += chunk.rows
        columns = {
            one.name: convert(chunk.columns[one.name], one.type, one.type, chunk.leaf, one.name)
            for one in self.fields
            if one.name in chunk.columns
        }
        self._partition(columns)
        self._bucket(columns, chunk.rows)
        self._todays_types(chunk)
        for one in self.fields:
            column = columns.get(one.name)
            if column is None or one.type.is_nested:
                continue
            self.nulls[one.name] = self.nulls.get(one.name, 0) + column.null_count
            bounds = column_bounds(pa.chunked_array([column]), one.type)
            if bounds is not None:
                self.bounds.setdefault(one.name, []).append(bounds)

    def _partition(self, columns: dict[str, pa.Array]) -> None:
        values = self.table.layout.partition_values(self.entry.partition)
        for one, value in zip(self.table.schema.partition_fields, values, strict=True):
            column = columns.get(one.name)
            if column is None:
                continue  # some engines do not write partition columns into files
            found = column_values(pc.unique(column), one.type)
            if any(other != value and not (_is_nan(other) and _is_nan(value)) for other in found):
                self.elsewhere.add(one.name)

    def _todays_types(self, chunk: Chunk) -> None:
        """Notes the columns that cannot be read since their type was changed, and why."""
        today = {one.id: one for one in self.table.schema.fields}
        for one in self.written.fields:
            now = today.get(one.id)
            if now is None or now.type == one.type or one.name not in chunk.columns:
                continue
            try:
                check_evolution(now.name, one.type, now.type)
                convert(chunk.columns[one.name], one.type, now.type, chunk.leaf, now.name)
            except UnsupportedFeature as why:
                self.not_read.setdefault(now.name, why.message)

    def _bucket(self, columns: dict[str, pa.Array], rows: int) -> None:
        total, keys = self.entry.total_buckets, self.written.bucket_keys
        dynamic = self.table.has_dynamic_buckets
        if (
            not (total > 0 or dynamic)
            or not keys
            or any(name not in columns for name in keys)
            or not rows
        ):
            return
        batch = pa.RecordBatch.from_arrays([columns[name] for name in keys], names=list(keys))
        types = [self.written.field(name).type for name in keys]
        if dynamic:
            self.hashes.append(np.unique(key_hashes(batch, types)))
            return
        placed = assign_buckets(batch, types, total, self.table.options.value(BUCKET_FUNCTION))
        self.astray += int((placed != self.entry.bucket).sum())

    def finish(self) -> None:
        file = self.entry.file
        if self.rows != file.row_count:
            text = f"{self.path} holds {self.rows:,} rows; its manifest says {file.row_count:,}."
            self.found.error("row-count", text, self.path, RESTORE)
        for name in sorted(self.elsewhere):
            text = f"{self.path} holds rows of another {name} than its partition's."
            cure = "Overwrite the partitions concerned with rows of their own; readers take the partition's."
            self.found.error("row-partition", text, self.path, cure)
        for name, why in self.not_read.items():
            cure = f"Change the type of {name!r} with Java Paimon, or read and compact with an engine on the JVM."
            self.found.warning("column-not-read", f"{self.path}: {why}", self.path, cure)
        if self.astray:
            text = f"{self.astray:,} of {self.rows:,} rows in {self.path} belong to another bucket."
            cure = (
                "Overwrite the partition: lookups by key and merging look for these rows elsewhere."
            )
            self.found.error("row-bucket", text, self.path, cure)
        self._check_statistics()
        if self.keyed:
            self._check_sequences()

    def _check_statistics(self) -> None:
        file = self.entry.file
        fields = self.written.fields
        if file.write_cols is not None:
            fields = tracked(self.written).fields
            if file.write_cols != tuple(one.name for one in fields):
                return
        try:
            known = decode_stats(fields, file.value_stats, file.value_stats_cols)
        except FormatError as wrong:
            text = f"The statistics of {self.path} cannot be read: {wrong}"
            self.found.error("statistics-of-file", text, self.path, RESTORE)
            return
        for one in self.written.fields:
            stats = known.get(one.name)
            if stats is None or one.name not in self.nulls:
                continue
            low, high = merged(self.bounds.get(one.name, []), one.type)
            untrue = _contradiction(one.type, stats, low, high, self.nulls[one.name])
            if untrue:
                text = (
                    f"Statistics of {one.name!r} of {self.path} {untrue}: readers may leave it out."
                )
                cure = "Overwrite the partition, or compact it, so that the file is written again."
                self.found.error("statistics-of-file", text, self.path, cure)

    def _check_sequences(self) -> None:
        file = self.entry.file
        low, high = merged(self.bounds.get(SEQUENCE_COLUMN.name, []), SEQUENCE_COLUMN.type)
        if (
            low is not None
            and not file.min_sequence_number <= low <= high <= file.max_sequence_number
        ):
            said = f"its manifest says {file.min_sequence_number} to {file.max_sequence_number}."
            text = f"{self.path} holds sequence numbers {low} to {high}; {said}"
            cure = "Compact the bucket with another engine; new rows may lose against old ones until then."
            self.found.error("sequence-range", text, self.path, cure)


def _contradiction(
    type_: DataType, stats: ColumnStats, low: Any, high: Any, nulls: int
) -> str | None:
    """How the statistics of a column contradict its rows; None if they do not."""
    if stats.null_count is not None and stats.null_count != nulls:
        return f"say {stats.null_count} NULLs where there are {nulls}"
    if low is None or _is_nan(low) or _is_nan(high):
        return None
    if (
        stats.min is not None
        and not _is_nan(stats.min)
        and _key(type_, stats.min) > _key(type_, low)
    ):
        return f"say that nothing is below {stats.min!r}, where there is {low!r}"
    if (
        stats.max is not None
        and not _is_nan(stats.max)
        and _key(type_, stats.max) < _key(type_, high)
    ):
        return f"say that nothing is above {stats.max!r}, where there is {high!r}"
    return None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _key(type_: DataType, value: Any) -> Any:
    """A value that sorts as in Java: text as bytes, and CHAR without the blanks that ORC pads it
    with.
    """
    if not type_.is_string:
        return value
    return (value.rstrip(" ") if type_.root is TypeRoot.CHAR else value).encode()
