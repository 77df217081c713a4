"""What engines do on top of Paimon's core with tables that have dynamic buckets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from java_paimon import BATCH_COMMIT_IDENTIFIER, DEFAULT_USER, JavaPaimon, Row, _encode_row, _Types


class JavaKinds(JavaPaimon):
    """The JVM of a `JavaPaimon`, which can then also do what Flink and Spark do on top of Paimon's core."""

    def __init__(self, java: JavaPaimon) -> None:
        self.__dict__ = java.__dict__
        if "_kinds" not in self.__dict__:
            compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setSourceVersion(8)
            compiler.setTargetVersion(8)
            compiler.cook((Path(__file__).parent / "KindBridge.java").read_text())
            self._kinds = compiler.getClassLoader().loadClass("KindBridge").newInstance()

    def write_dynamic(
        self,
        path: str | os.PathLike,
        rows: Iterable[Row],
        commit_user: str = DEFAULT_USER,
        commit_identifier: int | None = None,
        kinds: Sequence[str] | None = None,
        overwrite: Mapping[str, str] | None = None,
        channels: int = 1,
        assigners: int = 1,
        options: Mapping[str, str] | None = None,
        before_commit: Callable[[], object] = lambda: None,
    ) -> list[int]:
        """Writes and commits rows of a table with hash dynamic buckets; returns the bucket of each row.

        As an engine with `channels` assigner tasks of which `assigners` start a partition's buckets. An overwrite
        uses the assigner that loads no index, as Spark's and Flink's do. `before_commit` is called once the index
        was read and all files are written.
        """
        table = self._table(path, options)
        identifier = BATCH_COMMIT_IDENTIFIER if commit_identifier is None else commit_identifier
        write = table.newWrite(commit_user).withIOManager(self._io_manager())
        write = write.withIgnorePreviousFiles(overwrite is not None)
        try:
            java_rows = self._java_rows(table, rows, kinds)
            simple = overwrite is not None
            buckets = self._kinds.writeHashDynamic(table, write, java_rows, commit_user, channels, assigners, simple)
            messages = write.prepareCommit(False, identifier)
        finally:
            write.close()
        before_commit()
        self._commit(table, commit_user, identifier, messages, overwrite, commit_identifier is not None, None)
        return json.loads(self._bridge.json(buckets))

    def delete_rows(self, path: str | os.PathLike, chosen: Callable[[dict[str, Any]], bool]) -> int:
        """Deletes rows of an append table by deletion vectors, as Spark's DELETE does; returns the snapshot id."""
        table = self._table(path)
        unaware = table.bucketMode().name() == "BUCKET_UNAWARE"
        found: dict[tuple[str, int], tuple[Any, dict[str, list[int]]]] = {}
        gone = {name: set(some) for one in self.index(path) for name, some in one.get("deleted", {}).items()}
        for split in table.newSnapshotReader().read().dataSplits():
            key = (self._row_hex(split.partition()), 0 if unaware else split.bucket())
            for file in split.dataFiles():
                rows = self._read_splits(table, [self._kinds.splitOf(split, file)], False)
                dead = gone.get(file.fileName(), set())
                hits = [i for i, row in enumerate(rows) if i not in dead and chosen(row)]
                if hits:
                    found.setdefault(key, (split.partition(), {}))[1][file.fileName()] = hits
        messages = [
            self._kinds.deletePositions(table, partition, bucket, unaware, positions)
            for (_, bucket), (partition, positions) in found.items()
        ]
        self._commit(table, DEFAULT_USER, BATCH_COMMIT_IDENTIFIER, messages, None, False, None)
        return self._latest_snapshot_id(path)

    def read_tracked(self, path: str | os.PathLike) -> list[dict[str, Any]]:
        """The rows with `_ROW_ID` and `_SEQUENCE_NUMBER`."""
        table, names = self._table(path), ("_ROW_ID", "_SEQUENCE_NUMBER")
        row_type = self._paimon.table.SpecialFields.rowTypeWithRowTracking(table.rowType(), True, True)
        read = table.newRead().withReadType(row_type)
        wire = json.loads(self._bridge.readRows(read, table.newScan().plan().splits(), row_type))
        types, found = self._fields_of(table), []
        for _, *values in wire:
            row = {name: type_.decode(value) for (name, type_), value in zip(types, values, strict=False)}
            found.append(row | dict(zip(names, values[len(types) :], strict=True)))
        return found

    def write_columns(
        self,
        path: str | os.PathLike,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        first_row_ids: Sequence[int],
        identifier: int,
    ) -> None:
        """Writes new values of some columns, in the order of the table's, for rows that are there, from the row id of
        each file on (data evolution)."""
        table = self._table(path)
        row_type = table.rowType().project(list(columns))
        write = table.newWrite(DEFAULT_USER).withIOManager(self._io_manager()).withWriteType(row_type)
        types = [type_ for name, type_ in self._fields_of(table) if name in columns]
        wire = [[type_.encode(value) for type_, value in zip(types, row, strict=True)] for row in rows]
        try:
            self._bridge.writeRows(write, row_type, json.dumps(wire), None)
            made = list(write.prepareCommit(False, identifier))
        finally:
            write.close()
        messages = [self._kinds.withFirstRowIds(message, list(first_row_ids)) for message in made]
        self._commit(table, DEFAULT_USER, identifier, messages, None, True, None)

    def key_hashes(self, path: str | os.PathLike, rows: Iterable[Row]) -> list[int]:
        """The hash of each row's primary key without its partition columns."""
        table = self._table(path)
        return json.loads(self._bridge.json(self._kinds.keyHashes(table, self._java_rows(table, rows, None))))

    def postponed(self, path: str | os.PathLike) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """The rows that wait in bucket -2, by partition, in the order in which a compaction takes them."""
        table = self._table(path)
        partition_type = table.schema().logicalPartitionType()
        return [
            (self._decode(partition_type, split.partition()), self._read_splits(table, [split], True))
            for split in self._postponed_files(table)
        ]

    def compact_postpone(
        self,
        path: str | os.PathLike,
        buckets: int,
        commit_user: str = DEFAULT_USER,
        commit_identifier: int | None = None,
    ) -> int:
        """Moves what waits in bucket -2 to `buckets` real buckets, as the compaction procedure does."""
        table = self._table(path)
        identifier = BATCH_COMMIT_IDENTIFIER if commit_identifier is None else commit_identifier
        splits = self._postponed_splits(table)
        real = table.copy({"bucket": "1", "write-only": "false"})
        write = real.newWrite(commit_user).withIOManager(self._io_manager())
        write.getWrite().withIgnoreNumBucketCheck(True)
        messages = [self._kinds.removed(split) for split in splits]
        try:
            for split in self._postponed_files(table):
                rows = self._read_splits(table, [split], True)
                java_rows = self._java_rows(table, [row for _, row in rows], [kind for kind, _ in rows])
                self._kinds.writeFixed(real, write, java_rows, buckets)
            for message in write.prepareCommit(True, identifier):
                messages.append(self._kinds.compacted(message, buckets))
        finally:
            write.close()
        commit_to = table.copy({"bucket": "1"})
        self._commit(commit_to, commit_user, identifier, messages, None, False, None)
        return self._latest_snapshot_id(path)

    def _postponed_splits(self, table: Any) -> list[Any]:
        return list(table.newSnapshotReader().withBucket(-2).read().dataSplits())

    def _postponed_files(self, table: Any) -> list[Any]:
        """A split for each file, oldest first: the order in which records were written."""
        found = [(split, file) for split in self._postponed_splits(table) for file in split.dataFiles()]
        found.sort(key=lambda pair: pair[1].creationTime().getMillisecond())
        return [self._kinds.splitOf(split, file) for split, file in found]

    def index(self, path: str | os.PathLike, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """The entries of the snapshot's index manifest with what is in their files, in a fixed order.

        HASH: `hashes`, sorted. DELETION_VECTORS: `deleted`, positions by data file, and `dvRanges` as written.
        """
        table = self._table(path)
        manager = table.snapshotManager()
        snapshot = manager.latestSnapshot() if snapshot_id is None else manager.snapshot(snapshot_id)
        if snapshot is None:
            return []
        entries = self._kinds.indexEntries(table, snapshot.indexManifest())
        said = json.loads(self._bridge.describeIndex(table, entries, True))
        types = _Types(said["types"])
        found = []
        for entry in said["entries"]:
            described = {**entry, "partition": types.row(entry["partitionRow"])}
            del described["indexType"], described["partitionRow"]
            found.append(described)
        return sorted(found, key=lambda e: (e["type"], str(e["partition"]), e["bucket"], e["fileName"]))

    def _java_rows(self, table: Any, rows: Iterable[Row], kinds: Sequence[str] | None) -> Any:
        fields = self._fields_of(table)
        wire = json.dumps([_encode_row(fields, row) for row in rows])
        return self._bridge.parseRows(table.rowType(), wire, None if kinds is None else json.dumps(list(kinds)))


def index_faults(java: JavaKinds, table: Path | str, snapshot_id: int | None = None) -> list[str]:
    """What is wrong with the HASH index of a snapshot: spec table-kinds.md, invariants D1 to D5."""
    faults = []
    where: dict[tuple[str, int], int] = {}
    indexed: dict[tuple[str, int], set[int]] = {}
    for entry in java.index(table, snapshot_id):
        if entry["type"] != "HASH":
            continue
        at = (json.dumps(entry["partition"], default=str), entry["bucket"])
        if at in indexed:
            faults.append(f"{at}: two index files")
        hashes = entry["hashes"]
        indexed[at] = set(hashes)
        if len(set(hashes)) != len(hashes):
            faults.append(f"{at}: a hash twice in {entry['fileName']}")
        if entry["rowCount"] != len(hashes) or entry["fileSize"] != 4 * len(hashes):
            faults.append(f"{at}: {len(hashes)} hashes, entry says {entry['rowCount']} in {entry['fileSize']} bytes")
        for one in hashes:
            other = where.setdefault((at[0], one), entry["bucket"])
            if other != entry["bucket"]:
                faults.append(f"{at[0]}: hash {one} in buckets {other} and {entry['bucket']}")
    placed = java.read_buckets(table, snapshot_id)
    hashes_of_rows = iter(java.key_hashes(table, [row for _, _, rows in placed for row in rows]))
    for partition, bucket, rows in placed:
        at = (json.dumps(partition, default=str), bucket)
        missing = set(islice(hashes_of_rows, len(rows))) - indexed.get(at, set())
        if missing:
            faults.append(f"{at}: {len(missing)} hashes of its rows are not in its index: {sorted(missing)[:3]}")
    for file in java.files(table, snapshot_id):
        if file["totalBuckets"] != -1:
            faults.append(f"{file['fileName']}: totalBuckets {file['totalBuckets']}, not -1")
    return faults
