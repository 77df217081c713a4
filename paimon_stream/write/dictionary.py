"""Which columns a dictionary pays for, judged by their first rows. Everywhere, dictionaries made files
larger and writing slower."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.write.leaves import leaves

__all__ = ["worth_a_dictionary"]

_LEAST_SAMPLE_ROWS: Final = 256
_MOST_SAMPLE_ROWS: Final = 4096
_DISTINCT_SHARE: Final = 0.4


def worth_a_dictionary(rows: pa.Table) -> list[str]:
    """The columns with so few different values, in a sample from both ends, that a dictionary pays; those
    inside nested columns by their paths in Parquet files."""
    size = min(_MOST_SAMPLE_ROWS, max(_LEAST_SAMPLE_ROWS, rows.num_rows // 16))
    sample = pa.concat_tables([rows.slice(0, size), rows.slice(max(size, rows.num_rows - size))])
    return [
        path
        for name, column in zip(rows.column_names, sample.combine_chunks().columns, strict=True)
        for chunk in column.chunks
        for path, leaf in leaves(name, chunk)
        if not pa.types.is_boolean(leaf.type) and _repeats(leaf.slice(0, 2 * _MOST_SAMPLE_ROWS))
    ]


def _repeats(values: pa.Array) -> bool:
    return bool(pc.count_distinct(values, mode="all").as_py() <= _DISTINCT_SHARE * len(values))
