"""Writes commit messages of version 14 as pypaimon serializes them, which Java 1.4.2 cannot do.

.venv-readers/bin/python tests/oracle/pypaimon_messages.py > tests/vectors/commit_message_v14.json

The values are fixed, so the same release of pypaimon writes the same bytes each time.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import sys
from typing import Any

from pypaimon.data.timestamp import Timestamp
from pypaimon.globalindex.global_index_meta import GlobalIndexMeta
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage
from pypaimon.write.commit_message_serializer import VERSION, serialize_commit_message

MOMENT = dt.datetime(2024, 2, 29, 1, 2, 3, 4000)
DAY = [DataField(0, "dt", AtomicType("STRING"))]
KEY = [DataField(1, "k", AtomicType("BIGINT"))]
COLUMNS = [*KEY, DataField(2, "s", AtomicType("STRING"))]


def row(fields: list[DataField], *values: Any) -> GenericRow:
    return GenericRow(list(values), fields)


def data_file(name: str, **more: Any) -> DataFileMeta:
    values: dict[str, Any] = {
        "file_name": name,
        "file_size": 1234,
        "row_count": 3,
        "min_key": row([]),
        "max_key": row([]),
        "key_stats": SimpleStats.empty_stats(),
        "value_stats": SimpleStats(
            row(COLUMNS, 1, "a"), row(COLUMNS, 3, "a text longer than a slot"), [0, 2]
        ),
        "min_sequence_number": 0,
        "max_sequence_number": 2,
        "schema_id": 0,
        "level": 0,
        "extra_files": [],
        "creation_time": Timestamp.from_local_date_time(MOMENT),
        "delete_row_count": 0,
        "file_source": 0,
    }
    return DataFileMeta(**{**values, **more})


def keyed_file(name: str, low: int, high: int, **more: Any) -> DataFileMeta:
    smallest = row(KEY, low)
    largest = row(KEY, high)
    keys = SimpleStats(smallest, largest, [0])
    return data_file(name, min_key=smallest, max_key=largest, key_stats=keys, **more)


def index(kind: int, bucket: int, **values: Any) -> IndexManifestEntry:
    file = IndexFileMeta(**values)
    return IndexManifestEntry(kind=kind, partition=row([]), bucket=bucket, index_file=file)


def global_index(name: str, *values: Any) -> IndexManifestEntry:
    return index(
        0,
        0,
        index_type="btree",
        file_name=name,
        file_size=77,
        row_count=10,
        global_index_meta=GlobalIndexMeta(*values),
    )


def vectors_of(name: str, *ranges: tuple[str, int, int, int | None]) -> dict[str, Any]:
    return {
        "index_type": "DELETION_VECTORS",
        "file_name": name,
        "file_size": 64,
        "row_count": len(ranges),
        "dv_ranges": {values[0]: DeletionVectorMeta(*values) for values in ranges},
    }


def messages() -> dict[str, tuple[CommitMessage, list[DataField]]]:
    """The messages by their labels, each with the columns of its partition."""
    plain = CommitMessage(partition=(), bucket=0, new_files=[data_file("data-1-0.parquet")])
    whole = data_file(
        "data-2-0.parquet",
        extra_files=["i.index", "a longer name.index"],
        delete_row_count=None,
        embedded_index=b"embedded index",
        file_source=None,
        value_stats_cols=["k", "s"],
        external_path="s3://elsewhere/t/data-2-0.parquet",
        first_row_id=40,
        write_cols=["k", "a column with a long name"],
    )
    compaction = CommitMessage(
        partition=("d1",),
        bucket=1,
        total_buckets=2,
        new_files=[keyed_file("data-3-0.parquet", -1, 2, delete_row_count=1)],
        changelog_files=[keyed_file("changelog-3-0.parquet", 1, 2)],
        compact_before=[keyed_file("data-3-0.parquet", -1, 2, delete_row_count=1)],
        compact_after=[keyed_file("data-3-1.parquet", 1, 2, level=5, file_source=1)],
        compact_changelog_files=[keyed_file("changelog-3-1.parquet", 1, 2, level=5)],
        compact_index_adds=[index(0, 1, **vectors_of("index-3", ("data-3-1.parquet", 1, 22, 2)))],
        compact_index_deletes=[index(1, 1, **vectors_of("index-2", ("data-2-0.parquet", 1, 9, 1)))],
    )
    indexes = CommitMessage(
        partition=(),
        bucket=0,
        new_files=[],
        deleted_files=[data_file("data-1-0.parquet", first_row_id=0)],
        index_adds=[
            index(0, 0, index_type="HASH", file_name="index-4", file_size=8, row_count=2),
            index(0, 0, **vectors_of("index-5", ("a", 1, 22, None), ("data-2.parquet", 27, 20, 3))),
            global_index("index-6", 0, 9, 1, [2, 3], b"meta", b"source metadata"),
            global_index("index-7", 0, 9, 1),
        ],
        index_deletes=[
            index(
                1,
                0,
                index_type="HASH",
                file_name="index-1",
                file_size=4,
                row_count=1,
                external_path="s3://elsewhere/t/index/index-1",
            )
        ],
    )
    sequences = data_file("data-8-0.parquet", first_row_id=0, write_cols_sequences=[7, 8])
    return {
        "empty": (CommitMessage(partition=(), bucket=-1, new_files=[]), []),
        "plain": (plain, []),
        "every field": (CommitMessage(partition=("d",), bucket=0, new_files=[whole]), DAY),
        "null partition": (
            CommitMessage(partition=(None,), bucket=0, total_buckets=-1, new_files=[]),
            DAY,
        ),
        "compaction": (compaction, DAY),
        "indexes": (indexes, []),
        "check from snapshot": (
            CommitMessage(
                partition=(),
                bucket=0,
                new_files=[data_file("data-9-0.parquet", first_row_id=0)],
                check_from_snapshot=2**40,
            ),
            [],
        ),
        "column sequences": (
            CommitMessage(partition=(), bucket=0, new_files=[sequences]),
            [],
        ),
    }


def described_file(file: DataFileMeta) -> dict[str, Any]:
    """A data file in the words of the vectors of Java."""
    created = file.creation_time
    assert created is not None
    return {
        "file_name": file.file_name,
        "file_size": file.file_size,
        "row_count": file.row_count,
        "min_key": GenericRowSerializer.to_bytes(file.min_key).hex(),
        "max_key": GenericRowSerializer.to_bytes(file.max_key).hex(),
        "key_stats": described_stats(file.key_stats),
        "value_stats": described_stats(file.value_stats),
        "min_seq": file.min_sequence_number,
        "max_seq": file.max_sequence_number,
        "schema_id": file.schema_id,
        "level": file.level,
        "extra_files": file.extra_files,
        "creation_time_ms": created.get_millisecond(),
        "delete_row_count": file.delete_row_count,
        "embedded_index": None if file.embedded_index is None else file.embedded_index.hex(),
        "file_source": file.file_source,
        "value_stats_cols": file.value_stats_cols,
        "external_path": file.external_path,
        "first_row_id": file.first_row_id,
        "write_cols": file.write_cols,
    }


def described_stats(stats: SimpleStats) -> dict[str, Any]:
    return {
        "min": GenericRowSerializer.to_bytes(stats.min_values).hex(),
        "max": GenericRowSerializer.to_bytes(stats.max_values).hex(),
        "null_counts": stats.null_counts,
    }


def described_index(entry: IndexManifestEntry) -> dict[str, Any]:
    file = entry.index_file
    ranges = file.dv_ranges
    meta = file.global_index_meta
    return {
        "index_type": file.index_type,
        "file_name": file.file_name,
        "file_size": file.file_size,
        "row_count": file.row_count,
        "dv_ranges": None
        if ranges is None
        else [
            [one.data_file_name, one.offset, one.length, one.cardinality] for one in ranges.values()
        ],
        "external_path": file.external_path,
        "global_index": None
        if meta is None
        else [
            meta.row_range_start,
            meta.row_range_end,
            meta.index_field_id,
            meta.extra_field_ids,
            None if meta.index_meta is None else meta.index_meta.hex(),
            None if meta.source_meta is None else meta.source_meta.hex(),
        ],
    }


def described(message: CommitMessage, partition: list[DataField]) -> dict[str, Any]:
    """A message in the words of the vectors of Java."""
    return {
        "partition": GenericRowSerializer.to_bytes(row(partition, *message.partition)).hex(),
        "bucket": message.bucket,
        "total_buckets": message.total_buckets,
        "data_increment": {
            "new_files": list(map(described_file, message.new_files)),
            "deleted_files": list(map(described_file, message.deleted_files)),
            "changelog_files": list(map(described_file, message.changelog_files)),
            "new_index_files": list(map(described_index, message.index_adds)),
            "deleted_index_files": list(map(described_index, message.index_deletes)),
        },
        "compact_increment": {
            "compact_before": list(map(described_file, message.compact_before)),
            "compact_after": list(map(described_file, message.compact_after)),
            "changelog_files": list(map(described_file, message.compact_changelog_files)),
            "new_index_files": list(map(described_index, message.compact_index_adds)),
            "deleted_index_files": list(map(described_index, message.compact_index_deletes)),
        },
        "check_from_snapshot": message.check_from_snapshot,
    }


def vectors() -> dict[str, Any]:
    release = importlib.metadata.version("pypaimon")
    return {
        "_meta": {
            "produced_by": f"pypaimon {release}: python tests/oracle/pypaimon_messages.py",
            "message_version": VERSION,
        },
        "vectors": [
            {
                "label": label,
                "version": VERSION,
                "hex": serialize_commit_message(message, partition).hex(),
                "expected": described(message, partition),
            }
            for label, (message, partition) in messages().items()
        ],
    }


def text() -> str:
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
