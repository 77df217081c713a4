"""Footers of Parquet files that are damaged (`tests/unit/read/test_reading.py` reads whole
ones).
"""

from __future__ import annotations

import pytest

from paimon_stream.errors import FormatError
from paimon_stream.format.parquet_footer import declare_int96, declare_twelve_bytes

A_NUMBER, FLAG, TEXT, STRUCT = b"\x35\x02", b"\x31", b"\x38\x01x", b"\x3c\x15\x06\x00"


def footer(meta_data: bytes) -> bytes:
    """One row group with one column chunk, whose third field is this. The schema has no columns."""
    chunk = meta_data + b"\x00"
    return b"\x49\x1c" + b"\x19\x1c" + chunk + b"\x00" + b"\x00"


@pytest.mark.parametrize("meta_data", [A_NUMBER, FLAG, TEXT])
def test_metadata_of_a_column_that_is_no_struct_is_a_damaged_footer(meta_data: bytes) -> None:
    for declare in (declare_twelve_bytes, lambda data: declare_int96(data, frozenset({0}))):
        with pytest.raises(FormatError, match="damaged"):
            declare(footer(meta_data))
        assert len(declare(footer(STRUCT))) > 8
