"""The timestamps of an ORC stripe, for all years.

Arrow reads ORC's timestamps only as nanoseconds, so it refuses a file with a timestamp in the year 9999. This
module decodes a timestamp column into microseconds or nanoseconds: run lengths in Python, values in numpy.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import FormatError, UnsupportedFeature
from paimon_stream.format.raw_bytes import ByteCursor, unzigzag
from paimon_stream.read.orc_footer import TIMESTAMP_INSTANT, OrcFooter, OrcStripe, StripeFooter
from paimon_stream.read.zones import is_utc, offsets

_PRESENT: Final = 0
_DATA: Final = 1
_SECONDARY: Final = 5
_DIRECT_V2: Final = 2
_EPOCH_2015: Final = 1_420_070_400
_WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000
_MOST_BITS: Final = 1040
_MOST_NUMBERS: Final = 512
"""The most bits or numbers that one byte of run lengths can stand for."""
_FIRST_SECOND: Final = -(2**63) // _BILLION + 1
_LAST_SECOND: Final = 2**63 // _BILLION - 1

Longs = npt.NDArray[np.int64]


def read_timestamps(
    source: Any, footer: OrcFooter, stripe: OrcStripe, stripe_footer: StripeFooter, column: int, nanoseconds: bool
) -> pa.Array:
    """A timestamp column directly below the row, in microseconds or nanoseconds, with time zone UTC if it is an
    instant. In microseconds, digits below them are dropped. Raises `FormatError`, `OverflowError` for a value that
    nanoseconds cannot hold, and `UnsupportedFeature` for the encoding of Hive 0.11."""
    if column >= len(stripe_footer.encodings) or stripe_footer.encodings[column] != _DIRECT_V2:
        raise UnsupportedFeature("its timestamps are in the encoding of Hive 0.11")
    streams = {one.kind: one for one in stripe_footer.streams if one.column == column}
    valid = None
    if _PRESENT in streams:
        valid = _bits(footer.stream(source, streams[_PRESENT]), stripe.rows)
    count = stripe.rows if valid is None else int(valid.sum())
    plain = {kind: footer.stream(source, streams[kind]) if kind in streams else b"" for kind in (_DATA, _SECONDARY)}
    seconds = decode_run_lengths(plain[_DATA], count, signed=True)
    nanos = _nanos(decode_run_lengths(plain[_SECONDARY], count, signed=False))
    instant = footer.types[column].kind == TIMESTAMP_INSTANT
    zone = "UTC" if instant else stripe_footer.time_zone
    seconds = seconds + (_EPOCH_2015 if is_utc(zone) else _base(zone))
    # The writer rounds seconds towards zero, so before 1970 a second with a fraction is one too large.
    seconds = np.where((seconds < 0) & (nanos >= _MILLION), seconds - 1, seconds)
    if not is_utc(zone):
        seconds = seconds + offsets(seconds, zone)
    if nanoseconds and bool(((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)).any()):
        raise OverflowError("nanoseconds end in 2262")
    moments = seconds * _BILLION + nanos if nanoseconds else seconds * _MILLION + nanos // 1000
    if valid is not None:
        spread = np.zeros(stripe.rows, np.int64)
        spread[valid] = moments
        moments = spread
    made = pa.array(moments, mask=None if valid is None else ~valid)
    return made.view(pa.timestamp("ns" if nanoseconds else "us", "UTC" if instant else None))


def _base(zone: str) -> int:
    """2015-01-01T00:00 in the writer's zone, in epoch seconds. Stored seconds count from there."""
    local = pa.scalar(_EPOCH_2015, pa.timestamp("s"))
    return int(pc.assume_timezone(local, zone).cast(pa.int64()).as_py())


def _nanos(values: Longs) -> Longs:
    """Nanoseconds of a second. The low three bits are the number of zeros that were cut off, minus one."""
    zeros = values & 7
    power = np.where(zeros == 0, 1, 10 ** (zeros + 1))
    return (values >> 3) * power


def _bits(data: bytes, count: int) -> npt.NDArray[np.bool_]:
    """Decodes bits from byte run lengths."""
    if count > _MOST_BITS * len(data):
        raise FormatError("a stream in it is cut off")
    parts, at, need = [], 0, (count + 7) // 8
    have = 0
    while have < need:
        if at >= len(data):
            raise FormatError("a stream in it is cut off")
        head = data[at]
        if head < 128:
            part = data[at + 1 : at + 2] * (head + 3)
            at += 2
        else:
            part = data[at + 1 : at + 1 + 256 - head]
            at += 1 + 256 - head
        if not part:
            raise FormatError("a stream in it is cut off")
        parts.append(part)
        have += len(part)
    flat = np.frombuffer(b"".join(parts)[:need], np.uint8)
    return np.unpackbits(flat)[:count].astype(bool)


def decode_run_lengths(data: bytes, count: int, *, signed: bool) -> Longs:
    """Decodes ORC's integer run lengths, version 2. Raises `FormatError`."""
    if count > _MOST_NUMBERS * len(data):
        raise FormatError("a stream in it is cut off")
    made = np.empty(count, np.int64)
    runs = _Runs(data, signed)
    filled = 0
    while filled < count:
        values = runs.next()
        taken = min(len(values), count - filled)
        made[filled : filled + taken] = values[:taken]
        filled += taken
    return made


class _Runs(ByteCursor):
    """A position in a stream of runs."""

    cut_off = "a stream in it is cut off"
    damaged = "a number in it is damaged"

    def __init__(self, data: bytes, signed: bool) -> None:
        super().__init__(data)
        self._signed = signed

    def next(self) -> Longs:
        head = self._take(1)[0]
        match head >> 6:
            case 0:
                value = int.from_bytes(self._take((head >> 3 & 7) + 1), "big")
                return np.full((head & 7) + 3, _wrapped(unzigzag(value) if self._signed else value), np.int64)
            case 1:
                values = self._packed(*self._width_and_length(head))
                return _unzigzagged(values) if self._signed else values.astype(np.int64)
            case 2:
                return self._patched(head)
            case _:
                return self._delta(head)

    def _width_and_length(self, head: int) -> tuple[int, int]:
        return _WIDTHS[head >> 1 & 31], self._length(head)

    def _length(self, head: int) -> int:
        return ((head & 1) << 8 | self._take(1)[0]) + 1

    def _packed(self, width: int, count: int) -> npt.NDArray[np.uint64]:
        """`count` numbers of `width` bits each, the highest bit first."""
        raw = np.frombuffer(self._take((width * count + 7) // 8), np.uint8)
        bits = np.unpackbits(raw)[: width * count].reshape(count, width)
        made = np.zeros(count, np.uint64)
        for column in range(width):
            made = made << np.uint64(1) | bits[:, column]
        return made

    def _patched(self, head: int) -> Longs:
        width, length = self._width_and_length(head)
        third, fourth = self._take(2)
        patch_width, gap_width = _WIDTHS[third & 31], (fourth >> 5) + 1
        size = (third >> 5) + 1
        base = int.from_bytes(self._take(size), "big")
        sign = 1 << (size * 8 - 1)
        base = -(base & ~sign) if base & sign else base
        values = self._packed(width, length)
        entry = next((one for one in _WIDTHS if one >= patch_width + gap_width), 64)
        position = 0
        for patch in self._packed(entry, fourth & 31).tolist():
            position += patch >> patch_width
            if position >= length:
                raise FormatError("a patch in it is out of place")
            values[position] |= np.uint64((patch & (1 << patch_width) - 1) << width & 2**64 - 1)
        return values.astype(np.int64) + _wrapped(base)

    def _delta(self, head: int) -> Longs:
        code = head >> 1 & 31
        length = self._length(head)
        base = self._varint()
        base = unzigzag(base) if self._signed else base
        step = unzigzag(self._varint())
        deltas = np.full(length - 1, _wrapped(step), np.int64)
        if code and length > 2:
            rest = self._packed(_WIDTHS[code], length - 2).astype(np.int64)
            deltas[1:] = -rest if step < 0 else rest
        made = np.empty(length, np.int64)
        made[0] = _wrapped(base)
        made[1:] = made[0] + np.cumsum(deltas)
        return made


def _unzigzagged(values: npt.NDArray[np.uint64]) -> Longs:
    half = (values >> np.uint64(1)).astype(np.int64)
    made: Longs = half ^ -(values & np.uint64(1)).astype(np.int64)
    return made


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
