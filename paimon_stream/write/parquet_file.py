"""One Parquet file on its way to the storage (format.md §7.4).

The file is what Java Paimon reads: decimals as integers where they fit, timestamps in microseconds,
NOT NULL columns required, field ids in the schema. Dictionary encoding is switched on for the columns
where the first rows show that it pays: everywhere, it made files larger and writing slower.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.options import (
    FILE_COMPRESSION,
    FILE_FORMAT,
    FILE_SUFFIX_COMPRESSION,
    ZSTD_LEVEL,
    Options,
)
from paimon_stream.storage.base import Storage

__all__ = ["ParquetFile", "ParquetSettings"]

_CODECS: Final = {
    "zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "none": "none", "uncompressed": "none",
}  # fmt: skip
_LEAST_SAMPLE_ROWS: Final = 256
_MOST_SAMPLE_ROWS: Final = 4096
_DISTINCT_SHARE: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    """How the Parquet files of a table are written. `suffix` is what their names end with."""

    arrow: pa.Schema
    codec: str
    level: int | None
    suffix: str

    @classmethod
    def of(cls, arrow: pa.Schema, options: Options) -> ParquetSettings:
        """The settings that the options ask for.

        Raises `UnsupportedFeature` for other formats than Parquet, and for compressions that either side
        cannot do (format.md §7.1).
        """
        format_ = options.value(FILE_FORMAT).strip().lower()
        if format_ != "parquet":
            raise UnsupportedFeature(
                f"file.format is {format_!r}; only parquet can be written. Set file.format=parquet: readers "
                "take the format from each file, so a table may hold several.",
                option=FILE_FORMAT.key,
            )
        compression = options.value(FILE_COMPRESSION).strip().lower()
        if compression not in _CODECS:
            raise UnsupportedFeature(
                f"file.compression is {compression!r}; Parquet files are written with {', '.join(_CODECS)}.",
                option=FILE_COMPRESSION.key,
            )
        named = options.value(FILE_SUFFIX_COMPRESSION)
        return cls(
            arrow=arrow,
            codec=_CODECS[compression],
            level=options.value(ZSTD_LEVEL) if compression == "zstd" else None,
            suffix=f"{compression}.{format_}" if named else format_,
        )


class _CountingStream:
    """Passes bytes on to a storage's stream and counts them; closing is the storage's business."""

    closed = False

    def __init__(self, inner: BinaryIO) -> None:
        self.inner: BinaryIO | None = inner
        self.size = 0

    def write(self, data: Any) -> int:
        if self.inner is not None:
            self.inner.write(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing: the end of the storage's context makes all of it durable."""

    def close(self) -> None:
        """Nothing, for the same reason."""

    def detach(self) -> None:
        """From now on bytes go nowhere."""
        self.inner = None


class ParquetFile:
    """A file that is open for writing. `size` is the bytes written so far, `rows` the rows.

    The name is taken at once. Ends with `close` or `abort`; errors are the storage's.
    """

    def __init__(self, settings: ParquetSettings, storage: Storage, path: str, first: pa.Table) -> None:
        """Opens the file. `first` are rows to choose encodings by; they are not written."""
        self.path = path
        self.rows = 0
        self._footers: list[pq.FileMetaData] = []
        with ExitStack() as opened:
            self._sink = _CountingStream(opened.enter_context(storage.open_output(path)))
            self._writer = pq.ParquetWriter(
                self._sink,
                settings.arrow,
                compression=settings.codec,
                compression_level=settings.level,
                use_dictionary=_worth_a_dictionary(first),
                store_decimal_as_integer=True,
                store_schema=False,
                metadata_collector=self._footers,
            )
            self._context = opened.pop_all()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sink.size

    def write(self, rows: pa.Table) -> None:
        """Adds the rows as one row group."""
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self.rows += rows.num_rows

    def close(self) -> pq.FileMetaData:
        """Ends the file and makes it durable; its footer. Where that fails the file is removed."""
        try:
            with self._context:
                self._writer.close()
        except BaseException:
            self._forget()
            raise
        return self._footers[0]

    def abort(self, why: BaseException) -> None:
        """Gives the file up: the storage removes it (best effort). Never raises `why` itself."""
        self._forget()
        try:
            self._context.__exit__(type(why), why, why.__traceback__)
        except BaseException as again:
            if again is not why:
                raise

    def _forget(self) -> None:
        """Keeps Arrow from ending the file by itself when the writer is collected."""
        self._sink.detach()
        self._writer.is_open = False


def _worth_a_dictionary(rows: pa.Table) -> list[str]:
    """The columns with so few different values, in a sample from both ends, that a dictionary pays."""
    size = min(_MOST_SAMPLE_ROWS, max(_LEAST_SAMPLE_ROWS, rows.num_rows // 16))
    sample = pa.concat_tables([rows.slice(0, size), rows.slice(max(size, rows.num_rows - size))])
    return [
        name
        for name, column in zip(rows.column_names, sample.columns, strict=True)
        if not pa.types.is_boolean(column.type)
        and pc.count_distinct(column, mode="all").as_py() <= _DISTINCT_SHARE * len(column)
    ]
