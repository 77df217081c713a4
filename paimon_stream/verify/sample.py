"""Reads some data files in full, and compares their rows with the manifests. It compares the number
of rows, their partition and bucket, and the bounds and NULL counts by which readers skip files.
With a primary key, it also compares the sequence numbers.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import FormatError, InvalidData, NotFound, UnsupportedFeature
from paimon_stream.format.binary_columns import column_values
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.stats import ColumnStats, decode_stats
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.merge.spec import SEQUENCE_COLUMN
from paimon_stream.options import BUCKET_FUNCTION
from paimon_stream.read.convert import Chunk, check_evolution, convert
from paimon_stream.read.rows import BROKEN_FILE, deleted_rows, file_chunks, without_deleted
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress
from paimon_stream.table.hash_index import NO_HASHES, Hashes
from paimon_stream.table.row_ids import tracked
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import Vector, VectorIndex
from paimon_stream.verify.files import Longs
from paimon_stream.verify.findings import RESTORE, Findings
from paimon_stream.verify.manifests import CheckedTable
from paimon_stream.write.file_stats import column_bounds, merged
from paimon_stream.write.routing import assign_buckets, key_hashes


class _SampledKeys(NamedTuple):
    """A file that was read in full.

    Attributes:
        path: the path of the file.
        hashes: the hashes of its keys. It is empty unless the table has dynamic buckets.
    """

    path: str
    hashes: Hashes


Sampled: TypeAlias = dict[tuple[bytes, int], list[_SampledKeys]]
"""The files that were read in full, by partition and bucket."""


def check_sample(
    checked: CheckedTable, newest: Snapshot, live: Longs, progress: Progress
) -> Sampled:
    """Reads files that are drawn from the live candidates. Returns the files that could be read.
    Raises `StorageError`.

    Args:
        checked: the checked table, which has the candidates and collects the findings.
        newest: the newest snapshot.
        live: the hashes of the identities of the live files.
        progress: a function that is called with the number of files done.
    """
    drawn = checked.candidates.draw(live, checked.wrong_files)
    chosen: list[ManifestEntry] = []
    for manifest, identities in drawn.items():
        for entry in checked.entries(manifest, identities):
            # `entries` reads this set while it runs. So each file is chosen only once.
            identities.discard(hash(tuple(entry.identity)))
            chosen.append(entry)
    scan = _with_vectors(checked.table, newest, chosen)
    sampled: Sampled = {}
    for done, entry in enumerate(chosen):
        keys = _check_file(entry, checked, _deleted(scan, entry))
        if keys is not None:
            sampled.setdefault((entry.partition, entry.bucket), []).append(keys)
        progress("sample", done + 1, len(chosen))
    return sampled


def _with_vectors(table: Table, newest: Snapshot, files: Sequence[ManifestEntry]) -> Scan:
    """A scan that knows the deletion vectors of these files. It knows no vectors if the index of
    the snapshot is broken. Another check reports such an index.
    """
    vectors: Mapping[str, Vector] = {}
    with suppress(FormatError, NotFound, UnsupportedFeature):
        names = {entry.file.file_name for entry in files}
        vectors = VectorIndex.of(table, newest).vectors(names)
    return Scan(
        table=table, schema=table.schema, columns=(), snapshot=newest, files=(), vectors=vectors
    )


def _deleted(scan: Scan, entry: ManifestEntry) -> Positions:
    """The positions of the deleted rows of a file. The result is empty if the vector is broken.
    Another check reports such a vector.
    """
    try:
        (positions,) = deleted_rows(scan, [entry])
    except (FormatError, NotFound):
        return np.empty(0, np.int64)
    return positions


def _check_file(
    entry: ManifestEntry, checked: CheckedTable, deleted: Positions
) -> _SampledKeys | None:
    """Reads a file. `deleted` are the positions of its deleted rows. Returns None if the file could
    not be read.
    """
    table = checked.table
    findings = checked.findings
    path = table.layout.file_of(entry)
    try:
        written = SchemaStore(table.storage).get(entry.file.schema_id)
        checker = _SampledFile(
            table=table,
            entry=entry,
            path=path,
            written=written,
            findings=findings,
            deleted=deleted,
        )
        with table.storage.open_input(path) as source:
            for chunk in file_chunks(source, path, checker.fields, written):
                checker.take(chunk)
        checker.finish()
    except NotFound:
        return None  # gone since it was listed, because its snapshot expired
    except UnsupportedFeature as error:
        findings.info(
            "file-not-read", f"{path} was not read: {error}", path, "Read it with another engine."
        )
        return None
    except InvalidData as error:
        findings.error(
            "row-values",
            f"{path}: {error.message.rstrip('.')}.",
            path,
            "Repair the rows with an engine that reads them.",
        )
        return None
    except (*BROKEN_FILE, FormatError, OSError) as error:
        findings.error("file-broken", f"{path} cannot be read: {error}", path, RESTORE)
        return None
    findings.checked["sampled files"] += 1
    findings.checked["sampled rows"] += checker.rows
    return _SampledKeys(path, np.concatenate(checker.hashes))


@dataclass(slots=True, kw_only=True)
class _SampledFile:
    """A file while its rows are read.

    Attributes:
        table: the table.
        entry: the entry of the file in its manifest.
        path: where the file is.
        written: the schema that the file was written with.
        findings: the collector of findings.
        deleted: the positions of the rows that are deleted.
        rows: how many rows were read.
        nulls: how many NULLs each column has, by name.
        bounds: the smallest and the largest value of each chunk, by column.
        astray: how many rows belong to another bucket.
        hashes: the hashes of the keys, in a table with dynamic buckets.
        elsewhere: the partition columns in which some rows have other values than the partition.
        not_read: the columns that can no longer be read because their type was changed, with the
            reasons.
    """

    table: Table
    entry: ManifestEntry
    path: str
    written: TableSchema
    findings: Findings
    deleted: Positions
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
        if not self.keyed:
            return list(self.written.fields)
        return [*self.written.fields, SEQUENCE_COLUMN]

    def take(self, chunk: Chunk) -> None:
        """Adds some rows."""
        left, _ = without_deleted(chunk, self.deleted, self.rows)
        self.rows += chunk.rows
        columns = {
            column.name: convert(
                chunk.columns[column.name], column.type, column.type, chunk.leaf, column.name
            )
            for column in self.fields
            if column.name in chunk.columns
        }
        self._check_partition(columns)
        self._check_buckets(columns, chunk.rows)
        self._todays_types(left)
        for field_ in self.fields:
            column = columns.get(field_.name)
            if column is None or field_.type.is_nested:
                continue
            self.nulls[field_.name] = self.nulls.get(field_.name, 0) + column.null_count
            bounds = column_bounds(pa.chunked_array([column]), field_.type)
            if bounds is not None:
                self.bounds.setdefault(field_.name, []).append(bounds)

    def _check_partition(self, columns: dict[str, pa.Array]) -> None:
        """Notes the partition columns in which some rows have other values than the partition."""
        values = self.table.layout.partition_values(self.entry.partition)
        for field_, value in zip(self.table.schema.partition_fields, values, strict=True):
            column = columns.get(field_.name)
            if column is None:
                continue  # some engines do not write partition columns into files
            values_in_file = column_values(pc.unique(column), field_.type)
            if any(
                present != value and not (_is_nan(present) and _is_nan(value))
                for present in values_in_file
            ):
                self.elsewhere.add(field_.name)

    def _todays_types(self, chunk: Chunk) -> None:
        """Notes the columns that can no longer be read because their type was changed, with the
        reasons. Readers do not convert deleted rows, so the chunk must not have them. Raises
        `InvalidData` for values that readers cannot convert.
        """
        today = {field_.id: field_ for field_ in self.table.schema.fields}
        for field_ in self.written.fields:
            now = today.get(field_.id)
            if now is None or now.type == field_.type or field_.name not in chunk.columns:
                continue
            try:
                check_evolution(now.name, field_.type, now.type)
                convert(chunk.columns[field_.name], field_.type, now.type, chunk.leaf, now.name)
            except UnsupportedFeature as error:
                self.not_read.setdefault(now.name, error.message)

    def _check_buckets(self, columns: dict[str, pa.Array], rows: int) -> None:
        """Counts the rows that belong to another bucket. For dynamic buckets, collects the hashes
        of the keys instead, because only the index can tell their buckets.
        """
        total = self.entry.total_buckets
        keys = self.written.bucket_keys
        dynamic = self.table.has_dynamic_buckets
        has_buckets = total > 0 or dynamic
        has_keys = bool(keys) and all(name in columns for name in keys)
        if not (has_buckets and has_keys and rows):
            return
        batch = pa.RecordBatch.from_arrays([columns[name] for name in keys], names=list(keys))
        types = [self.written.field(name).type for name in keys]
        if dynamic:
            self.hashes.append(np.unique(key_hashes(batch, types)))
            return
        placed = assign_buckets(batch, types, total, self.table.options.value(BUCKET_FUNCTION))
        self.astray += int((placed != self.entry.bucket).sum())

    def finish(self) -> None:
        """Adds the findings after all rows were read."""
        file = self.entry.file
        if self.rows != file.row_count:
            self.findings.error(
                "row-count",
                f"{self.path} holds {self.rows:,} rows; its manifest says {file.row_count:,}.",
                self.path,
                RESTORE,
            )
        for name in sorted(self.elsewhere):
            self.findings.error(
                "row-partition",
                f"{self.path} holds rows of another {name} than its partition's.",
                self.path,
                "Overwrite the partitions concerned with rows of their own; readers take "
                "the partition's.",
            )
        for name, problem in self.not_read.items():
            self.findings.warning(
                "column-not-read",
                f"{self.path}: {problem}",
                self.path,
                f"Change the type of {name!r} with Java Paimon, or read and compact with an "
                "engine on the JVM.",
            )
        if self.astray:
            self.findings.error(
                "row-bucket",
                f"{self.astray:,} of {self.rows:,} rows in {self.path} belong to another bucket.",
                self.path,
                "Overwrite the partition: lookups by key and merging look for these rows "
                "elsewhere.",
            )
        self._check_statistics()
        if self.keyed:
            self._check_sequences()

    def _check_statistics(self) -> None:
        file = self.entry.file
        fields = self.written.fields
        # A file is not judged if it lacks columns or has them in another order.
        if file.write_cols is not None:
            fields = tracked(self.written).fields
            if file.write_cols != tuple(field_.name for field_ in fields):
                return
        try:
            known = decode_stats(fields, file.value_stats, file.value_stats_cols)
        except FormatError as error:
            self.findings.error(
                "statistics-of-file",
                f"The statistics of {self.path} cannot be read: {error}",
                self.path,
                RESTORE,
            )
            return
        for field_ in self.written.fields:
            stats = known.get(field_.name)
            if stats is None or field_.name not in self.nulls:
                continue
            low, high = merged(self.bounds.get(field_.name, []), field_.type)
            untrue = _contradiction(field_.type, stats, low, high, self.nulls[field_.name])
            if untrue:
                self.findings.error(
                    "statistics-of-file",
                    f"Statistics of {field_.name!r} of {self.path} {untrue}: readers may "
                    "leave it out.",
                    self.path,
                    "Overwrite the partition, or compact it, so that the file is written again.",
                )

    def _check_sequences(self) -> None:
        file = self.entry.file
        low, high = merged(self.bounds.get(SEQUENCE_COLUMN.name, []), SEQUENCE_COLUMN.type)
        if (
            low is not None
            and not file.min_sequence_number <= low <= high <= file.max_sequence_number
        ):
            self.findings.error(
                "sequence-range",
                f"{self.path} holds sequence numbers {low} to {high}; its manifest says "
                f"{file.min_sequence_number} to {file.max_sequence_number}.",
                self.path,
                "Compact the bucket with another engine; new rows may lose against old "
                "ones until then.",
            )


def _contradiction(
    type_: DataType, stats: ColumnStats, low: Any, high: Any, nulls: int
) -> str | None:
    """How the statistics of a column contradict its rows; None if they do not contradict them."""
    if stats.null_count is not None and stats.null_count != nulls:
        return f"say {stats.null_count} NULLs where there are {nulls}"
    if low is None or _is_nan(low) or _is_nan(high):
        return None
    has_min = stats.min is not None and not _is_nan(stats.min)
    if has_min and _key(type_, stats.min) > _key(type_, low):
        return f"say that nothing is below {stats.min!r}, where there is {low!r}"
    has_max = stats.max is not None and not _is_nan(stats.max)
    if has_max and _key(type_, stats.max) < _key(type_, high):
        return f"say that nothing is above {stats.max!r}, where there is {high!r}"
    return None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _key(type_: DataType, value: Any) -> Any:
    """A value in a form that sorts as in Java. Text becomes bytes. CHAR loses its trailing blanks,
    with which ORC pads it.
    """
    if not type_.is_string:
        return value
    if type_.root is TypeRoot.CHAR:
        value = value.rstrip(" ")
    return value.encode()
