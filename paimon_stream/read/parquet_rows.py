"""Parquet files, batch by batch (format.md §7.4; for INT96 see docs/architecture.md, "Parquet files")."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paimon_stream.format.arrow_types import INT96_LAYOUT, JULIAN_EPOCH, PER_SECOND, TWELVE_BYTES
from paimon_stream.format.parquet_footer import MAGIC, TAIL, declare_twelve_bytes, footer_start
from paimon_stream.format.types import DataField, DataType, arrow_type
from paimon_stream.read.convert import Chunk, Leaf, moments, normalize, nothing_but_rows, out_of_range

_INT96: Final = "INT96"
_BATCH_BYTES: Final = 16 << 20
"""About the most bytes of a batch."""
_BUFFER: Final = 64 << 10
_RANGE: Final = 1 << 20
"""Bytes of a column that are read at a time: of a local file, and of one in a store."""
_ALONE: Final = 65_536
"""Who asks for batches of fewer rows has many files open."""
_SAMPLE: Final = 16
"""Rows that show how wide rows are if dictionaries make them small in the file."""


def read_parquet(source: Any, path: str, fields: Sequence[DataField], batch_rows: int) -> Iterator[Chunk]:
    """The columns of `fields` that the file has, by name. `fields` belong to the schema that it was written with. One
    row group is in memory at a time; of a local file, or with many files open, only some pages. Raises
    `UnsupportedFeature` for timestamps of precision 7 to 9 beyond Arrow's nanoseconds, and what Arrow raises on a
    broken file."""
    buffer = _buffered(source, len(fields), batch_rows)
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=buffer)
    leaf: Leaf = normalize
    if any(file.schema.column(i).physical_type == _INT96 for i in range(len(file.schema))):
        file = pq.ParquetFile(source, metadata=_with_twelve_bytes(source), pre_buffer=False, buffer_size=buffer)
        leaf = _with_int96(path)
    names = [one.name for one in fields if file.schema_arrow.get_field_index(one.name) >= 0]
    if not names:
        yield from nothing_but_rows(file.metadata.num_rows, batch_rows)
        return
    for number in range(file.num_row_groups):  # iterated all at once, batches would span row groups
        rows = _rows_at_once(file, number, names, batch_rows)
        for batch in file.iter_batches(rows, row_groups=[number], columns=names):
            yield Chunk(batch.num_rows, {name: batch.column(name) for name in names}, leaf)


def _buffered(source: Any, columns: int, batch_rows: int) -> int:
    """The size of the buffers of columns; 0 to read all of a row group's column at once, in one request."""
    local = isinstance(source, pa.OSFile)
    size = _BUFFER if local else _RANGE
    return size if (local or batch_rows < _ALONE) and source.size() > 2 * columns * size else 0


def _rows_at_once(file: pq.ParquetFile, number: int, names: Sequence[str], most: int) -> int:
    """How many rows of a row group make a batch, by its size, or by its first rows if a large value may repeat."""
    group = file.metadata.row_group(number)
    most = min(most, max(1, group.num_rows * _BATCH_BYTES // max(1, group.total_byte_size)))
    if min(most, group.num_rows) * group.total_byte_size <= 64 * _BATCH_BYTES:
        return most  # no value is larger than all
    for first in file.iter_batches(_SAMPLE, row_groups=[number], columns=names):
        most = min(most, max(1, first.num_rows * _BATCH_BYTES // max(1, first.nbytes)))
        break
    return most


def _with_int96(path: str) -> Leaf:
    def leaf(array: pa.Array, type_: DataType) -> pa.Array:
        if not type_.is_timestamp or not array.type.equals(TWELVE_BYTES):
            return normalize(array, type_)
        try:
            return _as_timestamps(array, arrow_type(type_).unit).view(arrow_type(type_))
        except OverflowError:
            raise out_of_range(f"A column of type {type_} in {path}", path, type=str(type_)) from None

    return leaf


def _as_timestamps(array: pa.Array, unit: str) -> pa.Array:
    """INT96 values (twelve bytes each) as timestamps in this unit, without zone. Raises what `moments` raises."""
    raw = array.buffers()[1]
    if raw is None:
        return pa.nulls(len(array), pa.timestamp(unit))
    parts = np.frombuffer(raw, INT96_LAYOUT)[array.offset : array.offset + len(array)]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    days = np.where(missing, JULIAN_EPOCH, parts["day"]).astype(np.int64) - JULIAN_EPOCH
    nanos = np.where(missing, 0, parts["nanos"])
    seconds, nanos = np.divmod(nanos, PER_SECOND["ns"])
    found = moments(days * 86_400 + seconds, nanos, unit)
    return pa.array(found, mask=missing if array.null_count else None).view(pa.timestamp(unit))


def _with_twelve_bytes(source: Any) -> pq.FileMetaData:
    """The footer of the Parquet file with its INT96 columns declared as twelve bytes. Raises `FormatError`."""
    size = source.size()
    source.seek(size - TAIL)
    start = footer_start(size, source.read(TAIL))
    source.seek(start)
    return pq.read_metadata(pa.BufferReader(MAGIC + declare_twelve_bytes(source.read(size - TAIL - start))))
