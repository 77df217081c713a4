"""Chooses the columns for which a dictionary pays, by their first rows. Dictionaries on all columns made
files larger and writing slower."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.write.file_schema import leaf_columns

_LEAST_SAMPLE_ROWS: Final = 256
_MOST_SAMPLE_ROWS: Final = 4096
_DISTINCT_SHARE: Final = 0.4

_GLANCE_ROWS: Final = 512
"""This number of rows decides for most columns: keys and measures hardly repeat, codes have few values."""

_TELLING_ROWS: Final = 1024
_FILES_ALIKE: Final = 15
"""How many files after a sampled one use its choice: the buckets of one batch hold similar rows."""

_FEW_SHARE: Final = 0.1
_NEARLY_ALL_SHARE: Final = 0.96


class Dictionaries:
    """The choices for the files of one task. What the rows of one file show also holds for the next few."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._left = 0

    def choose(self, rows: pa.Table) -> list[str]:
        """What `worth_a_dictionary` returns, for a file that begins with these rows."""
        if self._left:
            self._left -= 1
            return self._found
        found = worth_a_dictionary(rows)
        if rows.num_rows >= _TELLING_ROWS:
            self._found, self._left = found, _FILES_ALIKE
        return found


def worth_a_dictionary(rows: pa.Table) -> list[str]:
    """The columns for which a dictionary pays, because a sample from both ends has few different values.

    A column inside a nested one is given by its path in Parquet files.
    """
    size = min(_MOST_SAMPLE_ROWS, max(_LEAST_SAMPLE_ROWS, rows.num_rows // 16))
    sample = pa.concat_tables([rows.slice(0, size), rows.slice(max(size, rows.num_rows - size))])
    return [
        path
        for name, column in zip(rows.column_names, sample.combine_chunks().columns, strict=True)
        for chunk in column.chunks
        for path, leaf in leaf_columns(name, chunk)
        if not pa.types.is_boolean(leaf.type) and _repeats(leaf.slice(0, 2 * _MOST_SAMPLE_ROWS))
    ]


def _repeats(values: pa.Array) -> bool:
    if len(values) >= 2 * _GLANCE_ROWS:
        middle = (len(values) - _GLANCE_ROWS) // 2
        share = _distinct_share(values.slice(middle, _GLANCE_ROWS))
        if not _FEW_SHARE < share < _NEARLY_ALL_SHARE:
            return share <= _FEW_SHARE
    return _distinct_share(values) <= _DISTINCT_SHARE


def _distinct_share(values: pa.Array) -> float:
    return int(pc.count_distinct(values, mode="all").as_py()) / max(1, len(values))
