"""Parquet's INT96 timestamps, read exactly.

Arrow turns INT96 into 64 bits, and a value that does not fit becomes another date. Then it is impossible to
say whether a moment was in 1716 or in 2300, because Java writes moments before 1970 as a day and *negative*
nanoseconds. So Arrow is shown a footer that declares such columns as twelve bytes, which they are, and the
bytes are decoded here: eight bytes of nanoseconds, four of the Julian day (format.md §7.4).
"""

import io
from typing import Any, Final

import numpy as np
import pyarrow as pa

from paimon_stream.format.arrow_types import INT96_LAYOUT, JULIAN_EPOCH
from paimon_stream.format.parquet_footer import TAIL, declare_twelve_bytes, footer_start

_DAY_SECONDS: Final = 86_400
_BILLION: Final = 1_000_000_000
_FIRST_SECOND: Final = -(2**63) // _BILLION + 1
_LAST_SECOND: Final = 2**63 // _BILLION - 1


def as_timestamps(array: pa.Array, unit: str) -> pa.Array:
    """INT96 values, given as twelve bytes each, as timestamps in this unit, without time zone. Digits that
    the unit cannot hold are dropped. Raises `OverflowError` for a value that nanoseconds cannot hold."""
    raw = array.buffers()[1]
    if raw is None:
        return pa.nulls(len(array), pa.timestamp(unit))
    parts = np.frombuffer(raw, INT96_LAYOUT)[array.offset : array.offset + len(array)]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    days = np.where(missing, JULIAN_EPOCH, parts["day"]).astype(np.int64) - JULIAN_EPOCH
    nanos = np.where(missing, 0, parts["nanos"])
    seconds = days * _DAY_SECONDS + np.floor_divide(nanos, _BILLION)
    nanos = np.remainder(nanos, _BILLION)
    if unit == "ns" and bool(((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)).any()):
        raise OverflowError("nanoseconds end in 2262")
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = seconds * per_second + nanos // (_BILLION // per_second)
    return pa.array(moments, mask=missing if array.null_count else None).view(pa.timestamp(unit))


def as_twelve_bytes(source: Any) -> io.RawIOBase:
    """The Parquet file with its INT96 columns declared as twelve bytes. Raises `FormatError`."""
    size = source.size()
    source.seek(size - TAIL)
    start = footer_start(size, source.read(TAIL))
    source.seek(start)
    return _Patched(source, start, declare_twelve_bytes(source.read(size - TAIL - start)))


class _Patched(io.RawIOBase):
    """A file whose end is replaced."""

    def __init__(self, source: Any, start: int, end: bytes) -> None:
        self._source = source
        self._start = start
        self._end = end
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """The size in bytes."""
        return self._start + len(self._end)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        until = self.size() if size < 0 else min(self.size(), self._at + size)
        made = b""
        if self._at < self._start:
            self._source.seek(self._at)
            made = self._source.read(min(until, self._start) - self._at)
        if until > self._start:
            made += self._end[max(0, self._at - self._start) : until - self._start]
        self._at += len(made)
        return made
