"""Writes Avro data files to the storage (format.md §7.6)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from paimon_stream.format.avro_file import AvroBlock, compressor, encode_block, encode_header
from paimon_stream.format.file_format import FileFormat, compression
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats
from paimon_stream.format.types import DataField
from paimon_stream.options import ZSTD_LEVEL, Options
from paimon_stream.storage.base import Storage
from paimon_stream.write.avro_values import avro_schema, encode_rows
from paimon_stream.write.file_stats import RowStats
from paimon_stream.write.output import FileSettings, FileWriter, file_suffix

_BLOCK_BYTES: Final = 64 * 2**10
_ROWS_AT_ONCE: Final = 4096
_SYNC_SIZE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSettings(FileSettings):
    """How the Avro files of a table are written. `wanted` says which columns get statistics."""

    most_open = 64  # each of them holds less than one block in memory

    fields: tuple[DataField, ...]
    wanted: tuple[bool, ...]
    level: int

    @classmethod
    def of(cls, schema: TableSchema, options: Options, wanted: tuple[bool, ...]) -> "AvroSettings":
        """The settings that follow from the options. Raises `InvalidOption`."""
        codec = compression(options, FileFormat.AVRO)
        return cls(
            fields=schema.fields,
            wanted=wanted,
            codec=codec,
            level=options.value(ZSTD_LEVEL),
            suffix=file_suffix(options, FileFormat.AVRO, codec),
        )

    def open(self, storage: Storage, path: str, first: pa.Table, row_bytes: float | None) -> "AvroDataFile":
        """Opens a file; see `FileSettings`."""
        return AvroDataFile(self, storage, path)


class AvroDataFile(FileWriter):
    """An Avro file that is open for writing; see `FileWriter`."""

    def __init__(self, settings: "AvroSettings", storage: Storage, path: str) -> None:
        """Opens the file and writes its header."""
        super().__init__(storage, path)
        self._fields = settings.fields
        self._stats = RowStats([one.type for one in settings.fields], settings.wanted)
        self._codec = compressor(settings.codec, settings.level)
        self._sync = hashlib.blake2b(path.encode(), digest_size=_SYNC_SIZE).digest()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        schema = json.dumps(avro_schema(settings.fields), ensure_ascii=False, separators=(",", ":")).encode()
        header = encode_header(schema, self._codec.codec, self._sync)
        self.started_by(lambda stream: stream.write(header))

    def write(self, rows: pa.Table) -> None:
        """Adds the rows, in blocks of about 64 KiB."""
        for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in encode_rows(batch, self._fields):
                self._waiting.append(row)
                self._waiting_bytes += len(row)
                if self._waiting_bytes >= _BLOCK_BYTES:
                    self._write_block()
        self._write_block()
        self._stats.add(rows)
        self.rows += rows.num_rows

    def _write_block(self) -> None:
        if self._waiting:
            data = self._codec.compress(b"".join(self._waiting))
            with self.checked():
                self.stream.write(encode_block(AvroBlock(len(self._waiting), data), self._sync))
            self._waiting, self._waiting_bytes = [], 0

    def end(self) -> None:
        """Does nothing: each `write` ends with a whole block."""

    def columns(self) -> Sequence[ColumnStats]:
        """The statistics of the file's rows."""
        return self._stats.columns()

    def forget(self) -> None:
        """Does nothing: only `write` writes."""
