"""Writes Avro data files (format.md §7.6). Each column becomes a list of the bytes of its values.
The list of a nested column is made from the lists of its parts. The bytes of a row are the bytes of
its values, one value after the other. Avro stores rows, so every value passes through Python. Other
formats do not need that.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from paimon_stream.format.avro_file import (
    SYNC_SIZE,
    AvroBlock,
    compressor,
    encode_block,
    encode_header,
    zigzag,
)
from paimon_stream.format.file_format import FileFormat, compression
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import ZSTD_LEVEL, Options
from paimon_stream.storage.base import Storage
from paimon_stream.write.file_stats import RowStats, used_elements
from paimon_stream.write.output import FileSettings, FileWriter, file_suffix

_BLOCK_BYTES: Final = 64 * 2**10
_ROWS_AT_ONCE: Final = 4096
_NAMESPACE: Final = "org.apache.paimon.avro.generated"
_NULL: Final = b"\x00"
_PRESENT: Final = b"\x02"
_END: Final = b"\x00"
_COUNT: Final = DataType(root=TypeRoot.INT)
_DECIMAL_BYTES: Final = 16
"""The bytes of a decimal in Arrow."""

_PLAIN: Final = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "bytes",
    TypeRoot.VARBINARY: "bytes",
}
# The names are swapped on purpose, because Java writes them this way.
_TIMESTAMPS: Final = {TypeRoot.TIMESTAMP: "timestamp", TypeRoot.TIMESTAMP_LTZ: "local-timestamp"}


def _record(name: str, fields: Sequence[DataField], **attributes: str) -> dict[str, Any]:
    """The Avro schema of a record."""
    members = [_member(field.name, field.type, f"{name}_{field.name}") for field in fields]
    return {"type": "record", "name": name, **attributes, "fields": members}


def _member(name: str, type_: DataType, path: str) -> dict[str, Any]:
    """The Avro schema of a record's field. `path` names the records inside it."""
    member = {"name": name, "type": _union(type_, path)}
    if type_.nullable:
        member["default"] = None
    return member


def _union(type_: DataType, path: str) -> Any:
    """The Avro schema of a type. A nullable type is a union with null."""
    schema = _schema(type_, path)
    return ["null", schema] if type_.nullable else schema


def _schema(type_: DataType, path: str) -> Any:
    """The Avro schema of the values of a type that are not NULL."""
    match type_:
        case DataType(root=TypeRoot.DECIMAL):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": type_.precision,
                "scale": type_.scale,
            }
        case DataType(root=TypeRoot.DATE):
            return {"type": "int", "logicalType": "date"}
        case DataType(root=TypeRoot.TIME):
            return {"type": "int", "logicalType": "time-millis"}
        case DataType(root=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ as root):
            unit = "millis" if type_.precision <= 3 else "micros"
            return {"type": "long", "logicalType": f"{_TIMESTAMPS[root]}-{unit}"}
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return {"type": "array", "items": _union(element, path)}
        case DataType(root=TypeRoot.MAP | TypeRoot.MULTISET):
            key, value = _entry(type_)
            if key.is_string:
                return {"type": "map", "values": _union(value, path)}
            members = [
                {"name": "key", "type": _union(key, f"{path}_key")},
                _member("value", value, f"{path}_value"),
            ]
            return {
                "type": "array",
                "items": {"type": "record", "name": path, "fields": members},
                "logicalType": "map",
            }
        case DataType(root=TypeRoot.ROW):
            return _record(path, type_.fields)
    return _PLAIN[type_.root]


def _entry(type_: DataType) -> tuple[DataType, DataType]:
    """The types of the keys and values of a MAP or MULTISET. A MULTISET is a map from values to
    counts. Java's Avro writer declares the counts as nullable.
    """
    key, value = type_.entry
    if type_.root is TypeRoot.MULTISET:
        value = _COUNT
    return key, value


def _nullable(column: pa.Array, type_: DataType) -> list[bytes]:
    """The bytes of each value. If the type is nullable, the number of the union's branch comes
    before each value.
    """
    values = _values(column, type_)
    if not type_.nullable:
        return values
    if not column.null_count:
        return [_PRESENT + value for value in values]
    return [
        _PRESENT + value if is_valid else _NULL
        for value, is_valid in zip(values, column.is_valid().to_pylist(), strict=True)
    ]


def _values(column: pa.Array, type_: DataType) -> list[bytes]:
    """The bytes of each value. The bytes for a NULL are arbitrary."""
    match type_:
        case DataType(root=TypeRoot.ARRAY, element=DataType() as element):
            return _blocks(column, _nullable(used_elements(column, column.values), element))
        case DataType(root=TypeRoot.MAP | TypeRoot.MULTISET):
            key_type, value_type = _entry(type_)
            keys_in_use = used_elements(column, column.keys)
            if key_type.is_string:  # an Avro map, whose keys are never NULL
                keys = _values(keys_in_use, key_type)
            else:
                keys = _nullable(keys_in_use, key_type)
            items = _nullable(used_elements(column, column.items), value_type)
            return _blocks(column, [key + item for key, item in zip(keys, items, strict=True)])
        case DataType(root=TypeRoot.ROW):
            members = [
                _nullable(column.field(position), member.type)
                for position, member in enumerate(type_.fields)
            ]
            return [b"".join(row) for row in zip(*members, strict=True)]
        case DataType(root=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ):
            return _each(column.view(pa.int64()), zigzag, 0)
        case DataType(root=TypeRoot.DATE | TypeRoot.TIME):
            return _each(column.view(pa.int32()), zigzag, 0)
        case DataType(root=TypeRoot.DECIMAL):
            return [_sized(digits) for digits in _decimals(column)]
        case DataType(root=TypeRoot.FLOAT):
            return _each(column, struct.Struct("<f").pack, 0.0)
        case DataType(root=TypeRoot.DOUBLE):
            return _each(column, struct.Struct("<d").pack, 0.0)
        case DataType(root=TypeRoot.BOOLEAN):
            return _each(column, _boolean, False)
    if type_.is_string or type_.is_binary:
        return _each(column.cast(pa.binary()), _sized, b"")
    return _each(column, zigzag, 0)


def _each(column: pa.Array, encode: Callable[[Any], bytes], for_null: Any) -> list[bytes]:
    """Each value, encoded. `for_null` is encoded in place of NULL."""
    return [encode(for_null if value is None else value) for value in column.to_pylist()]


def _boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _sized(data: bytes) -> bytes:
    """The bytes, preceded by their number."""
    return zigzag(len(data)) + data


def _decimals(column: pa.Array) -> list[bytes]:
    """The unscaled values in their shortest two's complement form, big endian."""
    if not len(column):
        return []
    words = memoryview(column.buffers()[1])[_DECIMAL_BYTES * column.offset :]
    values = []
    for start in range(0, _DECIMAL_BYTES * len(column), _DECIMAL_BYTES):
        unscaled = int.from_bytes(words[start : start + _DECIMAL_BYTES], "little", signed=True)
        magnitude = ~unscaled if unscaled < 0 else unscaled
        values.append(unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True))
    return values


def _blocks(column: pa.Array, elements: list[bytes]) -> list[bytes]:
    """The bytes of each list: one block with all elements if the list has any, and then the end
    mark.
    """
    if not len(column):
        return []
    bounds = column.offsets.to_pylist()
    first = bounds[0]
    blocks = []
    for start, end in pairwise(bounds):
        if end > start:
            block = b"".join(elements[start - first : end - first])
            blocks.append(zigzag(end - start) + block + _END)
        else:
            blocks.append(_END)
    return blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSettings(FileSettings):
    """How the Avro files of a table are written.

    Attributes:
        fields: the columns.
        wanted: for each column, whether it gets statistics.
        level: the level of compression, if the codec is zstd.
    """

    most_open = 64  # each of them holds less than one block in memory

    fields: tuple[DataField, ...]
    wanted: tuple[bool, ...]
    level: int

    @classmethod
    def of(cls, schema: TableSchema, options: Options, wanted: tuple[bool, ...]) -> "AvroSettings":
        """The settings that the options ask for. Raises `InvalidOption`."""
        codec = compression(options, FileFormat.AVRO)
        return cls(
            fields=schema.fields,
            wanted=wanted,
            codec=codec,
            level=options.value(ZSTD_LEVEL),
            suffix=file_suffix(options, FileFormat.AVRO, codec),
        )

    def open(
        self, storage: Storage, path: str, first: pa.Table, row_bytes: float | None
    ) -> "AvroDataFile":
        """Opens a file; see `FileSettings`."""
        return AvroDataFile(self, storage, path)


class AvroDataFile(FileWriter):
    """An Avro file that is open for writing; see `FileWriter`."""

    def __init__(self, settings: "AvroSettings", storage: Storage, path: str) -> None:
        super().__init__(storage, path)
        self._row = DataType(root=TypeRoot.ROW, fields=settings.fields)
        self.stats = RowStats([field.type for field in settings.fields], settings.wanted)
        self._codec = compressor(settings.codec, settings.level)
        self._sync = hashlib.blake2b(path.encode(), digest_size=SYNC_SIZE).digest()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        record = _record("record", settings.fields, namespace=_NAMESPACE)
        schema = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        header = encode_header(schema, self._codec.codec, self._sync)
        self.started_by(lambda stream: stream.write(header))

    def put(self, rows: pa.Table) -> None:
        """Writes the rows, in blocks of about 64 KiB. The last block is complete when the call
        ends.
        """
        for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in _values(batch.to_struct_array(), self._row):
                self._waiting.append(row)
                self._waiting_bytes += len(row)
                if self._waiting_bytes >= _BLOCK_BYTES:
                    self._write_block()
        self._write_block()

    def _write_block(self) -> None:
        if self._waiting:
            data = self._codec.compress(b"".join(self._waiting))
            self.stream.write(encode_block(AvroBlock(len(self._waiting), data), self._sync))
            self._waiting = []
            self._waiting_bytes = 0
