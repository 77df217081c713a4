"""Reads the rows of a scan, one file after the other, as batches of the wanted columns. Memory
holds only the part of a file that the format needs to return rows: a row group, a stripe, or a few
blocks. Files with overlapping keys are read side by side, so memory holds such a part of each
sorted run.
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
from paimon_stream.merge.rows import Comparison, Difference, MergedRows, without_deletes
from paimon_stream.merge.spec import (
    FIRST_ROW,
    INSERT,
    KIND,
    KIND_COLUMN,
    ROW_KIND,
    ROW_KIND_COLUMN,
    SEQUENCE_COLUMN,
    MergeSpec,
)
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
"""The most bytes of a file that are in memory when it is opened ahead."""
_HADOOP_SUFFIXES: Final = {"gz", "bz2", "deflate", "snappy", "lz4", "zst"}

_RESTORE_OR_ROLL_BACK: Final = (
    "Restore the file from a backup, or roll the table back to a snapshot that does not use it."
)
# The errors that Arrow raises on broken files. On some of them, Arrow's Python bindings raise
# errors of their own.
BROKEN_FILE: Final = (pa.ArrowException, *BROKEN)


def read_batches(scan: Scan, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of a scan in batches. Append tables are read file by file. Tables with a primary key
    are read bucket by bucket: one row per key, without deleted rows.

    Args:
        scan: the planned read.
        batch_rows: the most rows that a batch may have.

    Raises:
        InvalidData: the table's merge engine does not accept a row.
        NotFound: a file is missing.
        FormatError: a file is broken.
        UnsupportedFeature: a file has another format, or columns that cannot be converted.
        CorruptMetadata, StorageError: metadata or files cannot be read.
    """
    where = scan.where
    if where is None:
        yield from _all_rows(scan, batch_rows)
        return
    names = [column.name for column in scan.columns]
    ids = {column.id for column in scan.columns}
    only_for_filter = [column for column in where.columns if column.id not in ids]
    scan_with_filter = replace(scan, columns=(*scan.columns, *only_for_filter))
    for batch in _all_rows(scan_with_filter, batch_rows):
        kept = where.kept(batch, scan.table.location)
        if kept.num_rows:
            yield kept.select(names)


def _all_rows(scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a scan. Its condition is not applied to them."""
    shows_kinds = ROW_KIND_COLUMN in scan.columns
    if not (shows_kinds or scan.are_changes or scan.before is not None):
        yield from _rows_of_table(scan, batch_rows)
        return
    columns = tuple(column for column in scan.columns if column != ROW_KIND_COLUMN)
    if not columns:
        columns = scan.schema.fields[:1]  # batches without columns have no rows
    names = [column.name for column in scan.columns]
    scan_without_kinds = replace(scan, columns=columns)
    if scan.are_changes:
        batches = _changes(scan_without_kinds, batch_rows)
    elif scan.before is not None:
        batches = _differences(scan_without_kinds, scan.before, batch_rows)
    else:
        batches = _rows_of_table(scan_without_kinds, batch_rows)
    for batch in batches:
        if shows_kinds:
            yield _with_kinds(batch).select(names)
        elif KIND in batch.schema.names:
            yield without_deletes(batch).select(names)
        else:
            yield batch.select(names)


_KINDS: Final = ("+I", "-U", "+U", "-D")
"""The texts of row kinds, by their numbers."""


def _with_kinds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with their kinds as text. Rows without a kind count as inserts."""
    kinds = pa.repeat(pa.scalar(INSERT, pa.int8()), batch.num_rows)
    if KIND in batch.schema.names:
        kinds = batch.column(KIND)
    field = pa.field(ROW_KIND, pa.string(), False)
    return batch.append_column(field, pa.array(_KINDS).take(kinds))


def _changes(scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of files of changes, one file after the other. The rows have their kinds if the
    files hold kinds. Deletion vectors are not applied to changes.
    """
    columns = scan.columns if scan.merge is None else (*scan.columns, KIND_COLUMN)
    reader = _Reader(replace(scan, vectors={}), columns, scan.where)
    reader.expect(scan.files)
    for entry in scan.files:
        yield from reader.file(entry, batch_rows)


def _differences(scan: Scan, before: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of the scan that are not among those of `before`, with their kinds
    (streaming-reads.md §7). Both scans are merged bucket by bucket, and their rows are compared key
    by key.
    """
    assert scan.merge is not None
    names = [*(column.name for column in scan.columns), KIND]
    newer = replace(scan, columns=scan.schema.fields, where=None, before=None)
    older = replace(newer, files=before.files, vectors=before.vectors, snapshot=before.snapshot)
    older_files = merging.files_of_buckets(before.files)
    for bucket, files in merging.files_of_buckets(scan.files).items():
        difference = Difference(scan.merge)
        sides = (
            _merged_pieces(older, older_files.get(bucket, [])),
            _merged_pieces(newer, files),
        )
        for parts in merging.side_by_side(scan.merge, *sides):
            schema = next(batch.schema for part in parts for batch in part)
            old, new = (pa.Table.from_batches(part, schema) for part in parts)
            changed = difference.changed(old, new).select(names)
            yield from changed.to_batches(max_chunksize=batch_rows)


def _merged_pieces(scan: Scan, files: Sequence[ManifestEntry]) -> Iterator[merging.Piece]:
    """The merged rows of a bucket, sorted by key."""
    for rows in section_batches(scan, sections_of(scan, files), keep_deletes=False):
        yield merging.Piece(files[0], rows)


def _rows_of_table(scan: Scan, batch_rows: int) -> Iterator[pa.RecordBatch]:
    if scan.merge is None:
        in_parts = scan.table.options.value(DATA_EVOLUTION)
        if in_parts:
            reader = _Reader(scan, scan.columns)
            reader.expect(scan.files)
            for _, files in groupby(scan.files, row_range):
                yield from reader.joined(list(files), batch_rows)
            return
        reader = _Reader(scan, scan.columns, scan.where)
        reader.expect(scan.files)
        for entry in scan.files:
            yield from reader.file(entry, batch_rows)
        return
    for batch in _rows_by_key(scan, scan.merge, batch_rows):
        for start in range(0, batch.num_rows, batch_rows):
            yield batch.slice(start, batch_rows)


def deleted_rows(scan: Scan, files: Iterable[ManifestEntry]) -> Iterator[Positions]:
    """For each file, the rows that its deletion vector marks. Raises `CorruptMetadata`,
    `NotFound`.
    """
    return map(_Reader(scan, ()).deleted, files)


RowFilter = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns those rows of a file that are to be read."""

_POSITION: Final = DataField(id=-1, name="_POSITION_IN_FILE", type=parse_type("BIGINT NOT NULL"))


RowsOf = Callable[[ManifestEntry], Iterator[tuple[pa.RecordBatch, Positions]]]
"""Reads rows of a file, with their positions there."""


def rows_with_positions(scan: Scan) -> RowsOf:
    """A function that reads the rows of a file that are not deleted, with their positions in the
    file. The table is an append table, and each file has all columns. Several threads may use the
    function at once. It raises what `read_batches` raises.
    """
    columns = list(range(len(scan.columns)))
    reader = _Reader(scan, (*scan.columns, _POSITION))

    def rows_of(entry: ManifestEntry) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        for batch in reader.file(entry, BATCH_ROWS):
            yield batch.select(columns), batch.columns[-1].to_numpy()

    return rows_of


def section_batches(
    scan: Scan,
    wanted: Iterable[merging.Section],
    *,
    keep_deletes: bool,
    row_filter: RowFilter | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of some sections of one bucket, one per key, as a compaction writes them: with
    `_SEQUENCE_NUMBER` and `_VALUE_KIND` after the scan's columns. These are all columns of the
    table.

    Args:
        scan: a scan of a table with a primary key.
        wanted: the sections.
        keep_deletes: whether rows that delete a key are returned.
        row_filter: a function that chooses the rows of each file that are read; None for all rows.

    Raises:
        PaimonStreamError: what `read_batches` raises.
    """
    assert scan.merge is not None
    for section, rows_of in _with_rows(scan, wanted, row_filter):
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
    row_filter: RowFilter | None = None,
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """The rows of some sections, as `section_batches` returns them. Each part has its changelog, if
    there is one. If the comparison deletes older rows, the rows that were looked up in a section
    are added to `scan.deletions` at the end of the section.

    Args:
        scan: a scan of a table with a primary key.
        wanted: the sections.
        how: how rows are merged and compared.
        keep_deletes: whether rows that delete a key are returned.
        row_filter: a function that chooses the rows of each file that are read; None for all rows.

    Raises:
        PaimonStreamError: what `read_batches` raises.
    """
    columns = list(range(len(scan.columns) + 2))

    def merge(pieces: Sequence[merging.Piece]) -> MergedRows:
        rows = (piece.rows.select(columns) for piece in pieces)
        return how.merged(rows, merging.levels_of(pieces), keep_deletes=keep_deletes)

    for section, rows_of in _with_rows(scan, wanted, row_filter, with_position=how.deletes_older):
        deletions: defaultdict[str, list[Positions]] = defaultdict(list)
        for pieces in merging.whole_keys(how.spec, section, rows_of):
            merged, log, older = merge(pieces)
            if how.deletes_older and row_filter is not None:
                # Rows that the filter drops are deleted from older files, but they are not merged.
                merged, log, _ = merge(
                    [merging.Piece(entry, row_filter(rows)) for entry, rows in pieces]
                )
            yield merged, log
            if how.deletes_older and len(older):
                for file_name, positions in _positions_in_files(pieces, older):
                    deletions[file_name].append(positions)
        entries = [entry for entry in section.files_looked_up if entry.file.file_name in deletions]
        for entry, before in zip(entries, deleted_rows(scan, entries), strict=True):
            file_name = entry.file.file_name
            scan.deletions[file_name] = np.union1d(before, np.concatenate(deletions[file_name]))


def _positions_in_files(
    pieces: Sequence[merging.Piece], rows: Positions
) -> Iterator[tuple[str, Positions]]:
    """For each piece, the name of its file and the positions of some rows in that file. `rows` are
    the places of these rows, counted over all pieces together.
    """
    start = 0
    for piece in pieces:
        end = start + piece.rows.num_rows
        in_piece = rows[(rows >= start) & (rows < end)] - start
        positions = piece.rows.columns[-1].to_numpy()
        yield piece.entry.file.file_name, positions[in_piece]
        start = end


def _with_rows(
    scan: Scan,
    wanted: Iterable[merging.Section],
    row_filter: RowFilter | None,
    *,
    with_position: bool = False,
) -> Iterator[tuple[merging.Section, merging.ReadFile]]:
    """Each section with the function that reads its files. With `with_position`, the last column
    has each row's position in its file.

    `row_filter` does not choose among rows that a first-row table looks up, as in Java, nor among
    rows whose position is wanted.
    """
    assert scan.merge is not None
    columns = [*scan.columns, SEQUENCE_COLUMN, KIND_COLUMN]
    if with_position:
        columns.append(_POSITION)
    reader = _Reader(scan, columns)
    read_completely: set[str] = set()

    def rows_of(entry: ManifestEntry, batch_rows: int) -> Iterator[pa.RecordBatch]:
        rows = reader.file(entry, batch_rows)
        if row_filter is None or entry.file.file_name in read_completely:
            return rows
        return map(row_filter, rows)

    for section in wanted:
        reader.expect(merging.reading_order(section))
        if scan.merge.engine == FIRST_ROW or with_position:
            read_completely.update(entry.file.file_name for entry in section.files_looked_up)
        yield section, rows_of


def _rows_by_key(scan: Scan, spec: MergeSpec, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of the buckets of a table with a primary key. Files are opened before they are
    needed.

    Sections are made of the files of the scan. A file that was left out of the scan may share keys
    with them. But none of the file's keys fulfils the condition, so stale rows of these keys are
    filtered out at the end.
    """
    names = [column.name for column in scan.columns]
    needed = tuple(map(scan.schema.field, spec.needed(names)))
    without_kind = _Reader(scan, scan.columns, scan.where)
    with_kind = _Reader(scan, (*scan.columns, KIND_COLUMN), scan.where)
    for_merging = _Reader(scan, (*needed, SEQUENCE_COLUMN, KIND_COLUMN))
    buckets_at_once = AT_ONCE if without_kind.ahead.helps else 1
    for group in in_groups(merging.buckets(scan.files), buckets_at_once):
        planned: list[tuple[merging.Section, _Reader]] = []
        for section in [section for files in group for section in sections_of(scan, files)]:
            entry = section.single
            if entry is not None and not _may_have_rows(scan, entry):
                continue
            if entry is None:
                reader = for_merging
            elif entry.file.delete_row_count == 0:
                reader = without_kind
            else:
                reader = with_kind
            planned.append((section, reader))
            reader.expect(merging.reading_order(section))
        for section, reader in planned:
            entry = section.single
            if entry is None:
                rows = merging.merged_batches(spec, section, reader.file)
            else:
                rows = reader.file(entry, batch_rows)
            if reader is with_kind:
                rows = map(without_deletes, rows)
            for batch in rows:
                yield batch.select(names)


def _may_have_rows(scan: Scan, entry: ManifestEntry) -> bool:
    """Whether the only file of a section may have rows that the scan wants (see `_rows_by_key`)."""
    where = scan.where
    if where is None:
        return True
    (is_possible,) = where.possible(known_of(scan, [entry], where, values=True))
    return is_possible


def sections_of(scan: Scan, files: Sequence[ManifestEntry]) -> list[merging.Section]:
    """The sections of a bucket. The bucket's files are in the scan's order. Raises `FormatError` if
    keys in the manifest cannot be read.
    """
    assert scan.merge is not None
    try:
        return merging.sections(files, [scan.schema.field(name).type for name in scan.merge.keys])
    except FormatError as wrong:
        raise FormatError(
            f"the keys that a manifest gives for a file cannot be read: {wrong.message} Files of "
            f"bucket {files[0].bucket} cannot be merged without them. Read the table with an "
            "engine on the JVM, or roll it back to a snapshot without these files.",
            bucket=files[0].bucket,
        ).of_table(scan.table.location) from None


_NONE_DELETED: Final = np.empty(0, np.int64)


def _age(entry: ManifestEntry) -> tuple[int, str]:
    """A key that sorts files by their age. Of the files that hold the same rows, the oldest one has
    the deletion vector of these rows.
    """
    return entry.file.max_sequence_number, entry.file.file_name


def without_deleted(chunk: Chunk, deleted: Positions, start: int) -> tuple[Chunk, Positions]:
    """The rows of a chunk that are not deleted, and their positions in the file. The chunk begins
    at position `start`. Deleted rows are taken out before values are converted, because their
    values may not fit the column's type of today.
    """
    positions = np.arange(start, start + chunk.rows)
    first, end = np.searchsorted(deleted, (start, start + chunk.rows)).tolist()
    if first == end:
        return chunk, positions
    is_left = np.ones(chunk.rows, bool)
    is_left[deleted[first:end] - start] = False
    mask = pa.array(is_left)
    columns = {name: array.filter(mask) for name, array in chunk.columns.items()}
    return chunk._replace(rows=chunk.rows - (end - first), columns=columns), positions[is_left]


class _Reader:
    """Reads some columns of the files of a scan."""

    def __init__(
        self, scan: Scan, columns: Sequence[DataField], where: Predicate | None = None
    ) -> None:
        """`where` is a condition on these columns. Row groups of Parquet files that have no row
        for this condition are skipped. The condition is given only for files whose rows are not
        merged with the rows of other files: files of append tables, files that are the only one of
        a section (`_rows_by_key`), and files of changes.
        """
        self._scan = scan
        self._where = where
        self._columns = tuple(columns)
        self._tracked = ROW_ID_COLUMN in self._columns
        self._schema = schemas_of(scan)
        self._arrow = arrow_schema(columns)
        self._partition_keys = scan.table.schema.partition_keys
        self.ahead = OpenAhead(scan.table.storage)
        self._index_files = IndexFiles(scan.table)

    def expect(self, entries: Iterable[ManifestEntry]) -> None:
        """Announces files that are read next, so that they can be opened early."""
        file_of = self._scan.table.layout.file_of
        self.ahead.expect(
            (file_of(entry), min(entry.file.file_size, _OPENED_BYTES)) for entry in entries
        )

    def file(
        self, entry: ManifestEntry, batch_rows: int, deleted: Positions | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one file, in batches of at most `batch_rows` rows. As in Java, partition
        columns come from the manifest. `deleted` are the rows that are left out. If it is None, the
        rows in the file's deletion vector are left out. Raises what `read_batches` raises.
        """
        path = self._scan.table.layout.whole_path(self._scan.table.location, entry)
        written = self._schema(entry.file.schema_id)
        values = self._scan.table.layout.partition_values(entry.partition)
        partition = dict(zip(self._partition_keys, values, strict=True))
        sources = self._sources(written, partition)
        if deleted is None:
            deleted = self.deleted(entry)
        chosen = self._chosen(sources, partition)
        chunks = self._chunks(entry, path, written, tuple(sources.values()), batch_rows, chosen)
        end = 0  # the position behind the chunks so far
        for chunk in chunks:
            start_of_chunk = end
            end += chunk.rows
            if chunk.skipped:
                continue
            left, positions = without_deleted(chunk, deleted, start_of_chunk)
            if not left.rows:
                continue
            with _reading(path, self._scan):
                batch = self._fitted(left, sources, partition, positions)
                if self._tracked:
                    batch = fill_row_ids(batch, entry.file, positions)
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)
        if end != entry.file.row_count:
            raise FormatError(
                f"{path} holds {end:,} rows; its manifest says {entry.file.row_count:,}. "
                f"{_RESTORE_OR_ROLL_BACK}",
                path=path,
            )

    def joined(self, files: Sequence[ManifestEntry], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows that all of these files hold together. Each column comes from the first file
        that has it. If no file has the column, it is NULL (table-kinds.md §5.3). Raises
        `FormatError` if such a column must not be NULL.
        """
        columns_of = self._columns_by_file(files)
        deleted = self.deleted(min(files, key=_age))
        parts = [
            self._with_columns(columns).file(entry, batch_rows, deleted)
            for entry, columns in zip(files, columns_of, strict=True)
            if columns
        ]
        next_batches = [next(part, None) for part in parts]
        # The files have the same rows, and the same rows are left out of each file. So all parts
        # end at the same time.
        while batches := [batch for batch in next_batches if batch is not None]:
            rows = min(batch.num_rows for batch in batches)
            arrays = {
                name: batch.column(name)[:rows] for batch in batches for name in batch.schema.names
            }
            yield pa.RecordBatch.from_arrays(
                [arrays[name] for name in self._arrow.names], schema=self._arrow
            )
            rests = [batch.slice(rows) for batch in batches]
            next_batches = [
                rest if rest.num_rows else next(part, None)
                for rest, part in zip(rests, parts, strict=True)
            ]

    def _columns_by_file(self, files: Sequence[ManifestEntry]) -> list[list[DataField]]:
        """The columns that are read from each of these files, which hold the same rows. A column is
        read from the first file that has it. If no file has the column, it is read from the first
        file as NULLs.
        """
        columns_of: list[list[DataField]] = [[] for _ in files]
        ids_in = [self._column_ids(entry.file) for entry in files]
        for column in self._columns:
            places = [place for place, ids in enumerate(ids_in) if column.id in ids]
            may_lack = column.type.nullable or column.name in self._partition_keys
            if not places and not may_lack:
                names = ", ".join(entry.file.file_name for entry in files)
                raise FormatError(
                    f"column {column.name!r} is NOT NULL, but none of the files {names} has it. "
                    "Write the column, or select others.",
                    column=column.name,
                ).of_table(self._scan.table.location)
            chosen_place = places[0] if places else 0
            columns_of[chosen_place].append(column)
        return columns_of

    def _column_ids(self, file: DataFileMeta) -> set[int]:
        """The ids of the columns that a file has."""
        schema = self._schema(file.schema_id)
        names = schema.field_names if file.write_cols is None else file.write_cols
        return {schema.by_name[name].id for name in names if name in schema.by_name}

    def _with_columns(self, columns: Sequence[DataField]) -> "_Reader":
        """A reader of other columns. It shares everything else with this reader."""
        reader = copy(self)
        reader._columns = tuple(columns)
        reader._arrow = arrow_schema(columns)
        return reader

    def deleted(self, entry: ManifestEntry) -> Positions:
        """The rows of the file that its deletion vector marks. Raises `CorruptMetadata`,
        `NotFound`.
        """
        if entry.file.file_name in self._scan.deletions:
            return self._scan.deletions[entry.file.file_name]
        vector = self._scan.vectors.get(entry.file.file_name)
        if vector is None:
            return _NONE_DELETED
        index, place = vector
        path = self._index_files.path(index)
        with _reading(path, self._scan):
            data = self._index_files.read(index)
        return deleted_positions(data, place, entry.file.row_count, path)

    def _sources(self, written: TableSchema, partition: Mapping[str, Any]) -> dict[int, DataField]:
        """The columns that are read from a file with the schema `written`, by field id."""
        wanted = {column.id: column for column in self._columns if column.name not in partition}
        in_file = (*written.fields, SEQUENCE_COLUMN, KIND_COLUMN, ROW_ID_COLUMN)
        sources = {source.id: source for source in in_file if source.id in wanted}
        is_later = written.id > self._scan.schema.id
        for id_, source in sources.items():
            check_evolution(wanted[id_].name, source.type, wanted[id_].type, is_later)
        return sources

    def _chosen(self, sources: Mapping[int, DataField], partition: Mapping[str, Any]) -> Chosen:
        """Which row groups may have wanted rows: the columns whose statistics decide that, and the
        function that decides. A column is used only if it has today's type in the file.
        """
        where = self._where
        if where is None:
            return None
        types = {source.id: source.type.with_nullable(True) for source in sources.values()}
        columns = {
            column.name: sources[column.id]
            for column in where.columns
            if types.get(column.id) == column.type.with_nullable(True)
        }
        return columns, lambda groups: where.possible(
            (stats | of_partition(partition, rows), rows) for stats, rows in groups
        )

    def _chunks(
        self,
        entry: ManifestEntry,
        path: str,
        written: TableSchema,
        fields: Sequence[DataField],
        chunk_rows: int,
        chosen: Chosen,
    ) -> Iterator[Chunk]:
        if not fields:
            yield from nothing_but_rows(entry.file.row_count, chunk_rows)
            return
        with (
            _reading(path, self._scan),
            self.ahead.open_input(self._scan.table.layout.file_of(entry)) as source,
        ):
            yield from file_chunks(source, path, fields, written, chunk_rows, chosen)

    def _fitted(
        self,
        chunk: Chunk,
        sources: Mapping[int, DataField],
        partition: Mapping[str, Any],
        positions: Positions,
    ) -> pa.RecordBatch:
        """The chunk with the wanted columns in their types of today. `positions` are the positions
        of the chunk's rows in the file.
        """
        arrays = []
        for column in self._columns:
            name = column.name
            source = sources.get(column.id)
            if name in partition:
                array = pa.repeat(value_scalar(partition[name], column.type), chunk.rows)
            elif column is _POSITION:
                array = pa.array(positions)
            elif source is None or source.name not in chunk.columns:
                array = pa.nulls(chunk.rows, arrow_type(column.type))
            else:
                stored = chunk.columns[source.name]
                array = convert(stored, source.type, column.type, chunk.leaf, name)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def file_chunks(
    source: Any,
    path: str,
    fields: Sequence[DataField],
    written: TableSchema,
    chunk_rows: int = BATCH_ROWS,
    chosen: Chosen = None,
) -> Iterator[Chunk]:
    """Reads some columns of a file, as the file has them, one chunk at a time.

    Args:
        source: the opened file.
        path: the path of the file. The end of the name shows the file's format.
        fields: the columns.
        written: the schema that the file was written with.
        chunk_rows: the most rows that a chunk may have. For ORC, a chunk is always a stripe.
        chosen: which row groups of a Parquet file are read; None for all. The other formats are
            read completely.

    Raises:
        UnsupportedFeature: the file has another format.
        PaimonStreamError: what the reader of its format raises.
    """
    match _format(path):
        case "parquet":
            yield from read_parquet(source, path, fields, chunk_rows, chosen)
        case "orc":
            legacy_ltz = Options(written.options).value(ORC_LTZ_LEGACY)
            yield from read_orc(source, path, fields, legacy_ltz=legacy_ltz)
        case "avro":
            yield from read_avro(source, path, fields, chunk_rows)
        case unknown:
            raise UnsupportedFeature(
                f"{path} is a {unknown!r} file; this release reads Parquet, ORC and Avro. Read the "
                "table with an engine that does.",
                path=path,
            )


def _format(name: str) -> str:
    """The format of a file. Only the file's name decides it, never the table's options (format.md
    §1.2).
    """
    parts = name.lower().split(".")
    if len(parts) > 2 and parts[-1] in _HADOOP_SUFFIXES:
        return parts[-2]
    return parts[-1]


@contextmanager
def _reading(path: str, scan: Scan) -> Iterator[None]:
    """A context for reading a file. It turns every error into an error of this package that names
    the file.
    """
    try:
        yield
    except NotFound:
        of_snapshot = "" if scan.snapshot is None else f" of snapshot {scan.snapshot.id}"
        raise NotFound(
            f"Data file {path}{of_snapshot} is missing: the snapshot expired while it was read, or "
            "something deleted files of the table. Try again. If it stays missing, restore it, or "
            "roll the table back to a snapshot that is whole; drop_lost_files() makes the table "
            "whole without the rows of its lost files.",
            path=path,
        ) from None
    except (FormatError, UnsupportedFeature) as wrong:
        if "path" in wrong.context or "column" in wrong.context:
            raise
        raise type(wrong)(
            f"{path} cannot be read: {wrong.message}. {_RESTORE_OR_ROLL_BACK}", path=path
        ) from None
    except InvalidData as wrong:
        raise InvalidData(f"{path}: {wrong.pattern}.", path=path, **wrong.context) from None
    except PaimonStreamError:
        raise
    except OSError as failed:
        if failed.errno:
            raise translated(failed, path, "read") from None
        raise _broken(path, failed) from None
    except MemoryError:
        raise FormatError(
            f"{path} cannot be read: it needs more memory than this process has. Read fewer "
            "columns, or give the process more memory. If the file should be small: "
            f"{_RESTORE_OR_ROLL_BACK}",
            path=path,
        ) from None
    except BROKEN_FILE as failed:
        raise _broken(path, failed) from None


def _broken(path: str, failed: Exception) -> FormatError:
    first_line = (str(failed).splitlines() or [type(failed).__name__])[0]
    return FormatError(
        f"{path} cannot be read: {first_line.rstrip('.')}. {_RESTORE_OR_ROLL_BACK}", path=path
    )
