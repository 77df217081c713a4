"""Parquet files, batch by batch (format.md §7.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import DataField, DataType
from paimon_stream.read.convert import Chunk, normalize, nothing_but_rows

__all__ = ["read_parquet"]

_MICROS: Final = 6


_NANOS_MIN: Final = -(2**63) // 1000 + 1
_NANOS_MAX: Final = (2**63 - 1) // 1000 - 1
_INT96: Final = "INT96"


def read_parquet(source: Any, path: str, fields: Sequence[DataField], batch_rows: int) -> Iterator[Chunk]:
    """The columns that the file has of `fields`, its own schema's, by name. One row group is in memory.

    Raises `UnsupportedFeature` for timestamps of precision 7 to 9 outside of what Arrow has nanoseconds for,
    and whatever Arrow raises on a broken file.
    """
    # INT96 has no unit of its own: read as microseconds it holds any date, as nanoseconds 1677 to 2262.
    coarse = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    names = [one.name for one in fields if coarse.schema_arrow.get_field_index(one.name) >= 0]
    fine_names = [one.name for one in fields if one.name in names and _has_nanos(one.type)]
    if not names:
        yield from nothing_but_rows(coarse.metadata.num_rows, batch_rows)
        return
    if not fine_names or not _has_int96(coarse):
        for batch in coarse.iter_batches(batch_rows, columns=names):
            yield Chunk(batch.num_rows, _columns(batch, names), normalize)
        return
    fine = pq.ParquetFile(source, coerce_int96_timestamp_unit="ns", metadata=coarse.metadata)
    batches = coarse.iter_batches(batch_rows, columns=names)
    for batch, exact in zip(batches, fine.iter_batches(batch_rows, columns=fine_names), strict=True):
        columns = _columns(batch, names)
        columns |= _nanoseconds(columns, _columns(exact, fine_names), path)
        yield Chunk(batch.num_rows, columns, normalize)


def _columns(batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, pa.Array]:
    return {name: batch.column(name) for name in names}


def _has_nanos(type_: DataType) -> bool:
    inner = [one for one in (type_.key, type_.element) if one is not None]
    inner += [one.type for one in type_.fields]
    return (type_.is_timestamp and type_.precision > _MICROS) or any(map(_has_nanos, inner))


def _has_int96(file: pq.ParquetFile) -> bool:
    return any(file.schema.column(i).physical_type == _INT96 for i in range(len(file.schema)))


def _nanoseconds(
    coarse: Mapping[str, pa.Array], fine: Mapping[str, pa.Array], path: str
) -> Mapping[str, pa.Array]:
    """The columns that have nanoseconds, once it is proven that nanoseconds can hold them. Other timestamps
    in the same column come as nanoseconds, too."""
    for name, exact in fine.items():
        if not _in_range(coarse[name], exact):
            raise UnsupportedFeature(
                f"Column {name!r} of {path} holds timestamps with nanoseconds before 1677-09-21 or after "
                "2262-04-11, which Arrow cannot hold. Select other columns.",
                path=path,
                column=name,
            )
    return fine


def _in_range(coarse: pa.Array, fine: pa.Array) -> bool:
    """Whether all timestamps that differ in unit can be nanoseconds."""
    if pa.types.is_timestamp(fine.type) and fine.type.unit == "ns" and coarse.type.unit == "us":
        ends = pc.min_max(coarse.view(pa.int64())).as_py()
        return ends["min"] is None or (ends["min"] >= _NANOS_MIN and ends["max"] <= _NANOS_MAX)
    if pa.types.is_map(fine.type):
        return _in_range(coarse.keys, fine.keys) and _in_range(coarse.items, fine.items)
    if pa.types.is_list(fine.type):
        return _in_range(coarse.values, fine.values)
    if pa.types.is_struct(fine.type):
        return all(_in_range(coarse.field(i), fine.field(i)) for i in range(fine.type.num_fields))
    return True
