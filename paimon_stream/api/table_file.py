"""One live data file of a table, as `PaimonTable.files` returns it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paimon_stream.format.entries import DataFileMeta, ManifestEntry
from paimon_stream.table.layout import Layout
from paimon_stream.table.partition_value import partition_by_column


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A live data file: the partition's values by column, the bucket, the complete path, and the manifest's
    metadata (sizes in bytes)."""

    partition: Mapping[str, Any]
    bucket: int
    path: str
    meta: DataFileMeta

    @property
    def row_count(self) -> int:
        """Rows in the file."""
        return self.meta.row_count

    @property
    def file_size(self) -> int:
        """Bytes of the file."""
        return self.meta.file_size


def table_file(location: str, layout: Layout, entry: ManifestEntry) -> TableFile:
    """The file that a manifest entry of the table at `location` describes. Raises `FormatError`."""
    file = entry.file
    return TableFile(
        partition=partition_by_column(layout, entry.partition),
        bucket=entry.bucket,
        path=file.external_path or f"{location}/{layout.data_file(entry.partition, entry.bucket, file.file_name)}",
        meta=file,
    )
