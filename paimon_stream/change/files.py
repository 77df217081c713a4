"""The files that a change of an append table marks, replaces and adds, on any base.

Invariants: a row that others have deleted stays deleted. The new vector of a file also has the
positions of the vector that the table has at the time of publishing. A file that is replaced loses
its vector. If a file is gone, the change is computed anew, so no row is deleted by a position that
means another row.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paimon_stream.commit.conflicts import CommitContext, check_bucket_counts
from paimon_stream.commit.plan import Base, Changes, collect, renumber
from paimon_stream.commit.vectors import DataFile, Deletions, VectorChanges
from paimon_stream.errors import DeletedFiles, first_few
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.options import BUCKET
from paimon_stream.read.rows import deleted_rows
from paimon_stream.read.scan import Scan
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from paimon_stream.table.table import Table
from paimon_stream.table.vectors import VectorIndex

_LiveFiles = Mapping[DataFile, ManifestEntry]


class FileChanges:
    """What a change does to the files of an append table: a `ChangeSource`.

    Attributes:
        vectors: the index files that were written.
    """

    def __init__(
        self,
        table: Table,
        uuid: str,
        *,
        marked: Deletions | None = None,
        replaced: Mapping[DataFile, tuple[DataFileMeta, ...]] | None = None,
        messages: tuple[CommitMessage, ...] = (),
    ) -> None:
        """States the changes.

        Args:
            table: the table.
            uuid: the part that all names of new index files contain.
            marked: the rows that are deleted by deletion vectors, by data file.
            replaced: for each data file that is removed, the files that take its place.
            messages: the files that are added.
        """
        self.vectors = VectorChanges(table, uuid)
        self._table = table
        self._marked = marked or {}
        self._replaced = replaced or {}
        self._messages = messages

    def at(self, base: Base) -> Changes:
        """The changes on a base. A faulty writer may have left vectors of files that are gone;
        these vectors are removed. Raises `CorruptMetadata`, `StorageError`, `BucketCountChanged`,
        and `DeletedFiles` if a file that is marked or replaced is not live any more.
        """
        table = self._table
        collected = collect(self._messages, table_buckets=table.options.value(BUCKET))
        added = collected.append
        named = self._marked.keys() | self._replaced.keys()
        touched = {partition for partition, _, _ in named} | added.partitions
        types = table.partition_types
        files = live_files(
            ManifestStore(table.storage), base.metas, types, PartitionFilter(types, rows=touched)
        )
        live = {(entry.partition, entry.bucket, entry.file.file_name): entry for entry in files}
        gone = named - live.keys()
        if gone:
            names = sorted(name for *_, name in gone)
            raise DeletedFiles(
                f"other writers have replaced {len(gone)} of the {len(named)} data files whose rows were to be "
                f"changed: {first_few(names)}. Nothing was changed. Do the same again later.",
                files=tuple(names),
            ).of_table(table.location)
        self._check_buckets(base, live, added)
        index = VectorIndex.of(table, base.snapshot)
        with_vectors = {
            (entry.partition, entry.bucket, vector.data_file)
            for entry in index.entries
            for vector in entry.file.deletions or ()
        }
        stale = {file for file in with_vectors - live.keys() if file[0] in touched}
        marked = self._marked_at(base, index, live)
        return Changes(
            entries=(*self._in_place(live), *_above(live, added).entries),
            index=self.vectors.at(index.entries, stale | self._replaced.keys(), marked),
        )

    def _check_buckets(self, base: Base, live: _LiveFiles, added: Changes) -> None:
        """Raises `BucketCountChanged` if rows are added to a partition with another bucket count.
        The files that take the place of others keep the count of those.
        """
        table = self._table
        context = CommitContext(
            location=table.location,
            user="",
            identifier=BATCH_IDENTIFIER,
            partition_name=table.layout.partition,
            base=base.snapshot,
        )
        present = {entry.partition: entry.total_buckets for entry in live.values()}
        check_bucket_counts(context, present, added.entries)

    def _marked_at(
        self, base: Base, index: VectorIndex, live: _LiveFiles
    ) -> dict[DataFile, Positions]:
        """All deleted positions of the files whose rows are marked."""
        scan = Scan(
            table=self._table,
            schema=self._table.schema,
            columns=(),
            snapshot=base.snapshot,
            files=(),
            vectors=index.vectors({name for *_, name in self._marked}),
        )
        before = deleted_rows(scan, map(live.__getitem__, self._marked))
        return {
            file: np.union1d(new, old)
            for (file, new), old in zip(self._marked.items(), before, strict=True)
        }

    def _in_place(self, live: _LiveFiles) -> list[ManifestEntry]:
        """A DELETE for each replaced file, then the files that take their places."""
        deletes = [replace(live[file], kind=FileKind.DELETE) for file in self._replaced]
        adds = [
            replace(live[file], file=new)
            for file, new_files in self._replaced.items()
            for new in new_files
        ]
        return [*deletes, *adds]


def _above(live: _LiveFiles, added: Changes) -> Changes:
    """The added files, whose rows follow all rows of their fixed buckets."""
    highest: dict[tuple[bytes, int], int] = {}
    for entry in live.values():
        bucket = (entry.partition, entry.bucket)
        highest[bucket] = max(entry.file.max_sequence_number, highest.get(bucket, -1))
    return renumber(added, highest)
