"""The rows of a scan: one file after the other, each as batches of the wanted columns. Memory holds
only what the file format needs to return rows: a row group, a stripe, a few blocks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream.errors import (
    FormatError,
    InvalidData,
    NotFound,
    PaimonStreamError,
    UnsupportedFeature,
)
from paimon_stream.format.arrow_types import arrow_schema
from paimon_stream.format.binary_columns import value_scalar
from paimon_stream.format.deletion_vectors import Positions, deleted_positions
from paimon_stream.format.entries import DataFileMeta, ManifestEntry
from paimon_stream.format.json_text import BROKEN
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, arrow_type, parse_type
from paimon_stream.merge.rows import Changes, Comparison, without_deletes
from paimon_stream.merge.spec import FIRST_ROW, KIND_COLUMN, SEQUENCE_COLUMN, MergeSpec
from paimon_stream.options import DATA_EVOLUTION, ORC_LTZ_LEGACY, Options
from paimon_stream.read import merged as merging
from paimon_stream.read.avro_rows import read_avro
from paimon_stream.read.convert import Chunk, check_evolution, convert, nothing_but_rows
from paimon_stream.read.orc_rows import read_orc
from paimon_stream.read.parquet_rows import Chosen, read_parquet
from paimon_stream.read.predicate import Predicate
from paimon_stream.read.scan import Scan, known_of, of_partition, row_range, schemas_of
from paimon_stream.storage.os_files import translated
from paimon_stream.storage.read_ahead import OpenAhead, in_groups
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.row_ids import ROW_ID_COLUMN, fill_row_ids
from paimon_stream.table.vectors import IndexFiles

BATCH_ROWS: Final = 65_536
"""The most rows of a batch."""

_OPENED_BYTES: Final = 1 << 20
_HADOOP_SUFFIXES: Final = {"gz", "bz2", "deflate", "snappy", "lz4", "zst"}

_CURE: Final = (
    "Restore the file from a backup, or roll the table back to a snapshot that does not use it."
)
# What Arrow raises on broken files. On some of them its Python bindings raise errors of their own.
BROKEN_FILE: Final = (pa.ArrowException, *BROKEN)


def read_batches(scan: Scan, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of a scan in batches of at most `batch_rows`. Append tables are read file by file.
    Tables with a primary key are read bucket by bucket: one row per key, without deleted rows.
    Raises `InvalidData` for rows that the table's merge engine does not accept, `NotFound` for a
    missing file, `FormatError` for a broken file, `UnsupportedFeature` for a file in another format
    or with columns that cannot be converted, `CorruptMetadata`, `StorageError`.
    """
    where = scan.where
    if where is None:
        yield from _all_rows(scan, batch_rows)
        return
    also = (one for one in where.columns if one not in scan.columns)
    for batch in _all_rows(replace(scan, columns=(*scan.columns, *also)), batch_rows):
        kept = where.kept(batch, scan.table.location)
        if kept.num_rows:
            yield kept.select([one.name for one in scan.columns])


def _all_rows(scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
    if scan.merge is None:
        in_parts = scan.table.options.value(DATA_EVOLUTION)
        reader = _Reader(scan, scan.columns, None if in_parts else scan.where)
        reader.expect(scan.files)
        if in_parts:
            for _, files in groupby(scan.files, row_range):
                yield from reader.joined(list(files), batch_rows)
            return
        for entry in scan.files:
            yield from reader.file(entry, batch_rows)
        return
    for batch in _merged(scan, scan.merge, batch_rows):
        for start in range(0, batch.num_rows, batch_rows):
            yield batch.slice(start, batch_rows)


def deleted_rows(scan: Scan, files: Iterable[ManifestEntry]) -> Iterator[Positions]:
    """For each file the rows that its deletion vector marks. Raises `CorruptMetadata`,
    `NotFound`.
    """
    return map(_Reader(scan, ()).deleted, files)


Kept = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Chooses among the rows of a file."""

_POSITION: Final = DataField(id=-1, name="_POSITION_IN_FILE", type=parse_type("BIGINT NOT NULL"))


def section_batches(
    scan: Scan, wanted: Iterable[merging.Section], *, keep_deletes: bool, kept: Kept | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of these sections of one bucket, one per key, as a compaction writes them: with
    `_SEQUENCE_NUMBER` and `_VALUE_KIND` after the scan's columns, which are all of the table. With
    `keep_deletes`, also the rows that delete. `kept` chooses among the rows of each file. Raises
    what `read_batches` raises.
    """
    assert scan.merge is not None
    for section, rows_of in _with_rows(scan, wanted, kept):
        entry = section.single
        if entry is None:
            yield from merging.merged_batches(
                scan.merge, section, rows_of, keep_deletes=keep_deletes
            )
        else:
            rows = rows_of(entry, BATCH_ROWS)
            yield from rows if keep_deletes else map(without_deletes, rows)


def section_changes(
    scan: Scan,
    wanted: Iterable[merging.Section],
    how: Comparison,
    *,
    keep_deletes: bool,
    kept: Kept | None = None,
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """The same, with the changelog second in each pair. Marks rows in the scan when their section
    ends.
    """
    columns = list(range(len(scan.columns) + 2))

    def merge(pieces: Sequence[merging.Piece]) -> Changes:
        rows = (batch.select(columns) for _, batch in pieces)
        return how.merged(rows, merging.levels_of(pieces), keep_deletes=keep_deletes)

    for section, rows_of in _with_rows(scan, wanted, kept, (_POSITION,) if how.marks else ()):
        found: defaultdict[str, list[Positions]] = defaultdict(list)
        for pieces in merging.windows(how.spec, section, rows_of):
            merged, log, older = merge(pieces)
            if (
                how.marks and kept is not None
            ):  # rows that are not kept are marked, too, but not merged
                merged, log, _ = merge([(entry, kept(batch)) for entry, batch in pieces])
            yield merged, log
            start = 0
            for entry, batch in pieces if how.marks and len(older) else ():
                places = older[(older >= start) & (older < start + batch.num_rows)] - start
                found[entry.file.file_name].append(batch.columns[-1].to_numpy()[places])
                start += batch.num_rows
        files = [one for run in section.beside for one in run if one.file.file_name in found]
        for one, before in zip(files, deleted_rows(scan, files), strict=True):
            scan.marked[one.file.file_name] = np.union1d(
                before, np.concatenate(found[one.file.file_name])
            )


def _with_rows(
    scan: Scan, wanted: Iterable[merging.Section], kept: Kept | None, also: Sequence[DataField] = ()
) -> Iterator[tuple[merging.Section, merging.ReadFile]]:
    """Each section with what reads its files. As in Java, first-row tables find old rows when they
    look up.
    """
    assert scan.merge is not None
    reader = _Reader(scan, (*scan.columns, SEQUENCE_COLUMN, KIND_COLUMN, *also))
    every: set[str] = set()

    def rows_of(entry: ManifestEntry, most: int) -> Iterator[pa.RecordBatch]:
        rows = reader.file(entry, most)
        return rows if kept is None or entry.file.file_name in every else map(kept, rows)

    for section in wanted:
        reader.expect(merging.reading_order(section))
        if scan.merge.engine == FIRST_ROW or also:
            every.update(one.file.file_name for run in section.beside for one in run)
        yield section, rows_of


def _merged(scan: Scan, spec: MergeSpec, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of the buckets of a table with a primary key. Files are opened ahead."""
    names = [one.name for one in scan.columns]
    needed = tuple(map(scan.schema.field, spec.needed(names)))
    plain, with_kind = (
        _Reader(scan, (*scan.columns, *kind), scan.where) for kind in ((), (KIND_COLUMN,))
    )
    whole = _Reader(scan, (*needed, SEQUENCE_COLUMN, KIND_COLUMN))
    for group in in_groups(merging.buckets(scan.files), AT_ONCE if plain.ahead.helps else 1):
        found: list[tuple[merging.Section, _Reader]] = []
        for section in [one for files in group for one in sections_of(scan, files)]:
            entry, where = section.single, scan.where
            if (
                entry
                and where
                and not any(where.possible(known_of(scan, [entry], where, values=True)))
            ):
                continue  # these keys have no other rows
            raw = plain if entry is None or entry.file.delete_row_count == 0 else with_kind
            found.append((section, whole if entry is None else raw))
            found[-1][1].expect(merging.reading_order(section))
        for section, reader in found:
            one = section.single
            rows = (
                merging.merged_batches(spec, section, reader.file)
                if one is None
                else reader.file(one, batch_rows)
            )
            for batch in map(without_deletes, rows) if reader is with_kind else rows:
                yield batch.select(names)


def sections_of(scan: Scan, files: Sequence[ManifestEntry]) -> list[merging.Section]:
    """The sections of a bucket, whose files are in the scan's order. Raises `FormatError` for keys
    in the manifest.
    """
    assert scan.merge is not None
    try:
        return merging.sections(files, [scan.schema.field(name).type for name in scan.merge.keys])
    except FormatError as wrong:
        table = scan.table.location
        raise FormatError(
            f"the keys that a manifest gives for a file cannot be read: {wrong.message} Files of bucket "
            f"{files[0].bucket} cannot be merged without them. Read the table with an engine on the JVM, or roll it "
            "back to a snapshot without these files.",
            bucket=files[0].bucket,
        ).of_table(table) from None


class _Reader:
    def __init__(
        self, scan: Scan, columns: Sequence[DataField], where: Predicate | None = None
    ) -> None:
        """`where` reads some of these columns, and lets row groups be skipped of files whose rows
        are final.
        """
        self._scan, self._where = scan, where
        self._columns = tuple(columns)
        self._tracked = ROW_ID_COLUMN in self._columns
        self._schema = schemas_of(scan)
        self._arrow = arrow_schema(columns)
        self._partition_keys = scan.table.schema.partition_keys
        self.ahead = OpenAhead(scan.table.storage)
        self._index_files = IndexFiles(scan.table)

    def expect(self, entries: Iterable[ManifestEntry]) -> None:
        """Has these files opened ahead, as they are read next."""
        file_of = self._scan.table.layout.file_of
        self.ahead.expect((file_of(one), min(one.file.file_size, _OPENED_BYTES)) for one in entries)

    def file(self, entry: ManifestEntry, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of one file, at most `batch_rows` at once. As in Java, partition columns come
        from the manifest.
        """
        path = self._scan.table.layout.whole_path(self._scan.table.location, entry)
        written = self._schema(entry.file.schema_id)
        values = self._scan.table.layout.partition_values(entry.partition)
        partition = dict(zip(self._partition_keys, values, strict=True))
        sources = self._sources(written, partition)
        rows, deleted, chosen = 0, self.deleted(entry), self._chosen(sources, partition)
        for chunk in self._chunks(
            entry, path, written, tuple(sources.values()), batch_rows, chosen
        ):
            if chunk.skipped:
                rows += chunk.rows
                continue
            with _reading(path, self._scan):
                batch = self._fitted(chunk, sources, partition, rows)
                if self._tracked:
                    batch = fill_row_ids(batch, entry.file, rows)
            first, end = np.searchsorted(deleted, (rows, rows + chunk.rows)).tolist()
            if first < end:
                kept = np.ones(chunk.rows, bool)
                kept[deleted[first:end] - rows] = False
                batch = batch.filter(pa.array(kept))
            rows += chunk.rows
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)
        if rows != entry.file.row_count:
            text = (
                f"{path} holds {rows:,} rows; its manifest says {entry.file.row_count:,}. {_CURE}"
            )
            raise FormatError(text, path=path)

    def joined(self, files: Sequence[ManifestEntry], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows that all of these files hold. Each column comes from the first file that has it,
        and is NULL if none has it (table-kinds.md §5.3). Raises `FormatError` if it must not be
        NULL.
        """
        columns: list[list[DataField]] = [[] for _ in files]
        held = [self._held(one.file) for one in files]
        for one in self._columns:
            place = next((place for place, ids in enumerate(held) if one.id in ids), None)
            if place is None and not (one.type.nullable or one.name in self._partition_keys):
                names = ", ".join(file.file.file_name for file in files)
                text = f"column {one.name!r} is NOT NULL, but none of the files {names} has it. Write the column, or"
                raise FormatError(f"{text} select others.", column=one.name).of_table(
                    self._scan.table.location
                )
            columns[place or 0].append(one)
        parts = [
            self._of(some).file(file, batch_rows)
            for file, some in zip(files, columns, strict=True)
            if some
        ]
        batches = [next(one, None) for one in parts]
        while whole := [
            one for one in batches if one is not None
        ]:  # the files have the same number of rows
            rows = min(one.num_rows for one in whole)
            found = {name: one.column(name)[:rows] for one in whole for name in one.schema.names}
            yield pa.RecordBatch.from_arrays(
                [found[name] for name in self._arrow.names], schema=self._arrow
            )
            rest = [one.slice(rows) for one in whole]
            batches = [
                one if one.num_rows else next(part, None)
                for one, part in zip(rest, parts, strict=True)
            ]

    def _held(self, file: DataFileMeta) -> set[int]:
        """The ids of the columns in a file."""
        fields = self._schema(file.schema_id).fields
        return {one.id for one in fields if file.write_cols is None or one.name in file.write_cols}

    def _of(self, columns: Sequence[DataField]) -> "_Reader":
        """A reader of other columns, of the same scan."""
        made = copy(self)
        made._columns, made._arrow = tuple(columns), arrow_schema(columns)
        return made

    def deleted(self, entry: ManifestEntry) -> Positions:
        """The rows of the file that its deletion vector marks. Raises `CorruptMetadata`,
        `NotFound`.
        """
        if entry.file.file_name in self._scan.marked:
            return self._scan.marked[entry.file.file_name]
        vector = self._scan.vectors.get(entry.file.file_name)
        if vector is None:
            return np.empty(0, np.int64)
        index, place = vector
        path = self._index_files.path(index)
        with _reading(path, self._scan):
            data = self._index_files.read(index)
        return deleted_positions(data, place, entry.file.row_count, path)

    def _sources(self, written: TableSchema, partition: Mapping[str, Any]) -> dict[int, DataField]:
        """The columns to read from a file of that schema, by field id."""
        wanted = {one.id: one for one in self._columns if one.name not in partition}
        own = SEQUENCE_COLUMN, KIND_COLUMN, ROW_ID_COLUMN
        sources = {one.id: one for one in (*written.fields, *own) if one.id in wanted}
        for id_, one in sources.items():
            check_evolution(
                wanted[id_].name, one.type, wanted[id_].type, written.id > self._scan.schema.id
            )
        return sources

    def _chosen(self, sources: Mapping[int, DataField], partition: Mapping[str, Any]) -> Chosen:
        """Chooses row groups that may have wanted rows, by the columns that have today's type in
        the file.
        """
        where = self._where
        if where is None:
            return None
        types = {one.id: one.type.with_nullable(True) for one in sources.values()}
        same = [one for one in where.columns if types.get(one.id) == one.type.with_nullable(True)]
        return {one.name: sources[one.id] for one in same}, lambda groups: where.possible(
            (stats | of_partition(partition, rows), rows) for stats, rows in groups
        )

    def _chunks(
        self,
        entry: ManifestEntry,
        path: str,
        written: TableSchema,
        fields: Sequence[DataField],
        most: int,
        of: Chosen,
    ) -> Iterator[Chunk]:
        if not fields:
            yield from nothing_but_rows(entry.file.row_count, most)
            return
        with (
            _reading(path, self._scan),
            self.ahead.open_input(self._scan.table.layout.file_of(entry)) as source,
        ):
            yield from file_chunks(source, path, fields, written, most, of)

    def _fitted(
        self,
        chunk: Chunk,
        sources: Mapping[int, DataField],
        partition: Mapping[str, Any],
        start: int,
    ) -> pa.RecordBatch:
        columns = []
        for one in self._columns:
            source = sources.get(one.id)
            if one.name in partition:
                columns.append(pa.repeat(value_scalar(partition[one.name], one.type), chunk.rows))
            elif one is _POSITION:
                columns.append(pa.array(np.arange(start, start + chunk.rows)))
            elif source is None or source.name not in chunk.columns:
                columns.append(pa.nulls(chunk.rows, arrow_type(one.type)))
            else:
                columns.append(
                    convert(chunk.columns[source.name], source.type, one.type, chunk.leaf, one.name)
                )
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


def file_chunks(
    source: Any,
    path: str,
    fields: Sequence[DataField],
    written: TableSchema,
    most: int = BATCH_ROWS,
    of: Chosen = None,
) -> Iterator[Chunk]:
    """These columns of a file, as the file has them, one chunk at a time. `written` is the schema
    that it was written with. Raises what the reader of its format raises, and `UnsupportedFeature`
    for another format.
    """
    match _format(path):
        case "parquet":
            yield from read_parquet(source, path, fields, most, of)
        case "orc":
            yield from read_orc(
                source, path, fields, Options(written.options).value(ORC_LTZ_LEGACY)
            )
        case "avro":
            yield from read_avro(source, path, fields, most)
        case other:
            text = f"{path} is a {other!r} file; this release reads Parquet, ORC and Avro."
            raise UnsupportedFeature(f"{text} Read the table with an engine that does.", path=path)


def _format(name: str) -> str:
    """The format according to the file's name, never according to the table's options (format.md
    §1.2).
    """
    parts = name.lower().split(".")
    return parts[-2] if parts[-1] in _HADOOP_SUFFIXES and len(parts) > 2 else parts[-1]


@contextmanager
def _reading(path: str, scan: Scan) -> Iterator[None]:
    """Turns whatever goes wrong with a file into an error of this package that names the file."""
    try:
        yield
    except NotFound:
        at = "" if scan.snapshot is None else f" of snapshot {scan.snapshot.id}"
        raise NotFound(
            f"Data file {path}{at} is missing: the snapshot expired while it was read, or something deleted files of "
            "the table. Try again; if it stays missing, roll the table back to a snapshot that is whole.",
            path=path,
        ) from None
    except (FormatError, UnsupportedFeature) as wrong:
        if "path" in wrong.context or "column" in wrong.context:
            raise
        raise type(wrong)(f"{path} cannot be read: {wrong.message}. {_CURE}", path=path) from None
    except InvalidData as wrong:
        raise InvalidData(f"{path}: {wrong.pattern}.", path=path, **wrong.context) from None
    except PaimonStreamError:
        raise
    except OSError as failed:
        if failed.errno:
            raise translated(failed, path, "read") from None
        raise _broken(path, failed) from None
    except MemoryError:
        text = f"{path} cannot be read: it needs more memory than this process has. Read fewer columns, or give the"
        raise FormatError(
            f"{text} process more memory. If the file should be small: {_CURE}", path=path
        ) from None
    except BROKEN_FILE as failed:
        raise _broken(path, failed) from None


def _broken(path: str, failed: Exception) -> FormatError:
    first = (str(failed).splitlines() or [type(failed).__name__])[0]
    return FormatError(f"{path} cannot be read: {first.rstrip('.')}. {_CURE}", path=path)
