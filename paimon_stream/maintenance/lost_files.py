"""Drops lost data files from a table, so that the table can be read again. One new snapshot no
longer has these files.

    the newest snapshot ──► files that do not exist, asked twice ──► publish, on what is live then

Invariants: a file counts as lost only if the listing of its folder lacks it, and the storage says
of its path that there is no file. A storage that does not answer ends in an error. If all files of
the table are missing, or all in one of its external paths or in one folder behind a symbolic link,
a disk may not be mounted. In that case nothing is dropped. Earlier snapshots keep their entries, so
a file that is put back can be read in these snapshots.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.commit.vectors import VectorChanges
from paimon_stream.errors import FormatError, NotFound, UnsupportedFeature
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import decode_stats
from paimon_stream.options import DATA_EVOLUTION
from paimon_stream.reports import Progress, Report, iso, silent
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.external import external_path, shown, split_root
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.storage.together import AT_ONCE
from paimon_stream.table.live import live_files, snapshot_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.partition_value import partition_by_column, python_value
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, check_table_kind
from paimon_stream.table.vectors import VectorIndex

_MOST_COLUMNS: Final = 8
"""The report gives the bounds of at most this number of columns of a file, those that come
first.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFile(Report):
    """A live data file that does not exist, and what its manifest says of its rows.

    Attributes:
        path: the path of the file, relative to the table, or the full path if the file lies outside
            the table.
        partition: the values of the file's partition, by column.
        bucket: the bucket of the file.
        level: the level of the file in the merge tree.
        rows: how many rows the file had, including rows that deletion vectors delete.
        bytes: the size of the file.
        created: when the file was written, in the local time of the writer, as ISO 8601; None if
            that is not known.
        bounds: the smallest and the largest value of some columns, by column. These are the columns
            of the key or, without a key, the first columns. Texts may be cut.
    """

    path: str
    partition: Mapping[str, Any] = field(hash=False)
    bucket: int
    level: int
    rows: int
    bytes: int
    created: str | None
    bounds: Mapping[str, tuple[Any, Any]] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostFilesReport(Report):
    """What was dropped, or would be dropped in a dry run.

    Attributes:
        location: where the table is.
        snapshot_id: the snapshot without the files; None if no file is lost, and in a dry run.
        dry_run: whether nothing was written.
        checked: how many live files the newest snapshot had.
        rows: how many rows the lost files had.
        files: the lost files.
    """

    location: str
    snapshot_id: int | None = None
    dry_run: bool
    checked: int = 0
    rows: int = 0
    files: tuple[LostFile, ...] = ()


def drop_lost_files(
    table: Table,
    *,
    dry_run: bool = True,
    progress: Progress = silent,
    runtime: Runtime | None = None,
) -> LostFilesReport:
    """Drops the lost files of a table. Raises the errors of `PaimonTable.drop_lost_files`."""
    check_table_kind(table)
    running = runtime or system()
    latest = SnapshotStore(table.storage, running).latest()
    entries = snapshot_files(table, latest)
    lost = _lost(table, entries, progress)
    lost_files = {entry.identity for entry in lost}
    present = [entry for entry in entries if entry.identity not in lost_files]
    _refuse_if_unmounted(table, present, lost)
    _refuse_if_linked(table, present, lost)
    report = LostFilesReport(
        location=table.location,
        dry_run=dry_run,
        checked=len(entries),
        rows=sum(entry.file.row_count for entry in lost),
        files=_described(table, lost),
    )
    if not lost:
        return report
    if table.options.value(DATA_EVOLUTION):
        raise UnsupportedFeature(
            f"has lost {len(lost)} of its {len(entries)} data files, and {DATA_EVOLUTION.key} = "
            "true: other files may have more columns of the same rows, so they cannot be dropped "
            "one by one. Nothing was changed. Overwrite the partitions of these files, or roll the "
            "table back to a snapshot that is whole.",
            files=tuple(file.path for file in report.files),
        ).of_table(table.location, subject=True)
    if dry_run:
        return report
    return replace(report, snapshot_id=_publish_without_files(table, lost, running))


def _lost(
    table: Table, entries: Sequence[ManifestEntry], progress: Progress
) -> list[ManifestEntry]:
    """The entries of lost files. The listing of the folder lacks such a file, and a request for its
    path finds no file.
    """
    storage = table.storage
    by_folder: defaultdict[str, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        by_folder[_folder_of(table, entry)].append(entry)
    unlisted: list[ManifestEntry] = []
    folders_done = 0
    for folders in in_groups(by_folder, AT_ONCE):
        listings = storage.together([partial(storage.list_names, folder) for folder in folders])
        for folder, names in zip(folders, listings, strict=True):
            listed = set(names)
            unlisted += [entry for entry in by_folder[folder] if entry.file.file_name not in listed]
        folders_done += len(folders)
        progress("folders", folders_done, len(by_folder))
    lost: list[ManifestEntry] = []
    for group in in_groups(unlisted, AT_ONCE):
        paths = [table.layout.file_of(entry) for entry in group]
        exist = storage.together([partial(storage.exists, path) for path in paths])
        lost += [entry for entry, exists in zip(group, exist, strict=True) if not exists]
    return lost


def _refuse_if_unmounted(
    table: Table, present: Sequence[ManifestEntry], lost: Sequence[ManifestEntry]
) -> None:
    """Raises `NotFound` if all files of the table, or of one of its external paths, are lost."""
    roots_of_lost = {_root_of(table, entry) for entry in lost}
    for root in sorted(roots_of_lost - {_root_of(table, entry) for entry in present}):
        where = external_path(root) or table.location
        raise NotFound(
            f"has live data files in {where}, and none of them exists. Nothing was changed. Check "
            "that it is mounted, and that this is the right place. If the files are really lost, "
            "drop their partitions, or truncate the table.",
            path=where,
        ).of_table(table.location, subject=True)


def _refuse_if_linked(
    table: Table, present: Sequence[ManifestEntry], lost: Sequence[ManifestEntry]
) -> None:
    """Raises `NotFound` if a lost file is a symbolic link, or if it lies in a folder behind a
    symbolic link in which no file exists.
    """
    folders_with_files = {_folder_of(table, entry) for entry in present}
    for entry in lost:
        path = table.layout.file_of(entry)
        folder = _folder_of(table, entry)
        if not table.storage.is_link(path):
            continue
        if folder in folders_with_files and table.storage.is_link(folder):
            continue
        raise NotFound(
            f"has a live data file behind a symbolic link, {shown(path)}, and nothing is there. "
            "Nothing was changed. Check that the disk to which the link leads is mounted. If its "
            "files are really lost, remove the link.",
            path=shown(path),
        ).of_table(table.location, subject=True)


def _folder_of(table: Table, entry: ManifestEntry) -> str:
    return table.layout.file_of(entry).rpartition("/")[0]


def _root_of(table: Table, entry: ManifestEntry) -> str:
    root, _ = split_root(table.layout.file_of(entry))
    return root


def _described(table: Table, lost: Sequence[ManifestEntry]) -> tuple[LostFile, ...]:
    """The lost files, as the manifests describe them, in the order of their paths."""
    schemas = SchemaStore(table.storage)
    schema_ids = {entry.file.schema_id for entry in lost}
    schema_of = {schema_id: _schema(table, schemas, schema_id) for schema_id in schema_ids}
    files = []
    for entry in lost:
        path = table.layout.file_of(entry)
        file = entry.file
        created = iso(file.creation_time)
        if created is not None:
            created = created.removesuffix("Z")
        files.append(
            LostFile(
                path=external_path(path) or path,
                partition=partition_by_column(table.layout, entry.partition),
                bucket=entry.bucket,
                level=file.level,
                rows=file.row_count,
                bytes=file.file_size,
                created=created,
                bounds=_bounds(file, schema_of[file.schema_id]),
            )
        )
    return tuple(sorted(files, key=lambda lost_file: lost_file.path))


def _schema(table: Table, schemas: SchemaStore, schema_id: int) -> TableSchema | None:
    """The schema with which files were written; None if the schema is gone, too."""
    if schema_id == table.schema.id:
        return table.schema
    try:
        return schemas.get(schema_id)
    except NotFound:
        return None


def _bounds(file: DataFileMeta, schema: TableSchema | None) -> dict[str, tuple[Any, Any]]:
    """The smallest and the largest value of each column of the key or, without a key, of the first
    columns.
    """
    if schema is None:
        return {}
    types = {column.name: column.type for column in schema.fields}
    try:
        if schema.primary_keys:
            key = [schema.field(name) for name in schema.trimmed_primary_keys]
            stats = decode_stats(key, file.key_stats)
        else:
            stats = decode_stats(schema.fields, file.value_stats, file.value_stats_cols)
    except FormatError:
        return {}
    bounds = {}
    for name, known in stats.items():
        if name not in schema.partition_keys and known.min is not None:
            smallest = python_value(types[name], known.min)
            bounds[name] = (smallest, python_value(types[name], known.max))
    return dict(list(bounds.items())[:_MOST_COLUMNS])


class _DropSource:
    """The changes that drop lost files on any base: a `ChangeSource`."""

    def __init__(self, table: Table, lost: Sequence[ManifestEntry], uuid: str) -> None:
        self.vectors = VectorChanges(table, uuid)
        self._table = table
        self._lost = {entry.identity for entry in lost}
        self._partitions = {entry.partition for entry in lost}

    def at(self, base: Base) -> Changes:
        """A DELETE for each lost file that is still live, and the removal of its deletion vector.
        Another writer may have dropped a lost file meanwhile. Raises `CorruptMetadata`,
        `StorageError`.
        """
        types = self._table.partition_types
        touched = PartitionFilter(types, rows=self._partitions)
        live = live_files(ManifestStore(self._table.storage), base.metas, types, touched)
        dropped = [entry for entry in live if entry.identity in self._lost]
        index = VectorIndex.of(self._table, base.snapshot)
        without_vector = {
            (entry.partition, entry.bucket, entry.file.file_name) for entry in dropped
        }
        return Changes(
            entries=tuple(replace(entry, kind=FileKind.DELETE) for entry in dropped),
            index=self.vectors.at(index.entries, without_vector),
        )


def _publish_without_files(
    table: Table, lost: Sequence[ManifestEntry], runtime: Runtime
) -> int | None:
    """Publishes the table without the files. Returns the id of the snapshot; None if others have
    dropped all of them meanwhile. Raises the errors of `TableCommit.clear`.
    """
    source = _DropSource(table, lost, runtime.ids.uuid())
    with source.vectors.owned():
        return TableCommit(table, "", runtime=runtime).clear(source).snapshot_id
