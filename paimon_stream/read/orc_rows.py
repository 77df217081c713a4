"""Reads ORC files, stripe by stripe (format.md §7.5), and decodes their timestamps.

Arrow reads ORC's timestamps only as nanoseconds, so it refuses a file with a timestamp in the year
9999. This module decodes such a column into microseconds or nanoseconds. It decodes run lengths in
   Python and values in numpy.

Arrow knows the offsets of a time zone only up to 2037, because the zone's file lists no later ones.
After 2037, Arrow applies no daylight saving time. For each later year, there is a year before 2037
whose days fall on the same weekdays. The rules of time zones depend on nothing else, so the offsets
of that year are used.

Many tables use the year 9999 for something that has no end. Without the decoding and without the
replaced years, such a table could not be read or compacted
(docs/decisions/0020-orc-in-any-year.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from paimon_stream.errors import FormatError, UnsupportedFeature
from paimon_stream.format.arrow_types import PER_SECOND
from paimon_stream.format.raw_bytes import ByteCursor, unzigzag
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.merge.merge_order import nulls
from paimon_stream.read.convert import Chunk, Leaf, Longs, moments, normalize, out_of_range
from paimon_stream.read.orc_footer import TIMESTAMP_INSTANT, OrcFooter, OrcStripe, StripeFooter

_DAY_MILLIS: Final = 86_400_000
# The range of Arrow's nanoseconds in milliseconds, reduced by two days to allow for time zones.
_FIRST_MILLIS: Final = -(2**63) // 1_000_000 + 2 * _DAY_MILLIS
_LAST_MILLIS: Final = (2**63 - 1) // 1_000_000 - 2 * _DAY_MILLIS
_PRESENT: Final = 0
_DATA: Final = 1
_SECONDARY: Final = 5
_DIRECT_V2: Final = 2
_EPOCH_2015: Final = 1_420_070_400
_WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
"""How many bits a packed number has, by its code."""
_MOST_BITS: Final = 1040
_MOST_NUMBERS: Final = 512
"""The most bits or numbers that one byte of run lengths can stand for."""
_UTC: Final = {"", "UTC", "GMT", "Z", "Etc/UTC", "Etc/GMT"}  # an unknown zone, "", counts as UTC
_DAY: Final = 86_400
_FIRST_UNKNOWN: Final = 2_114_380_800  # 2037-01-01
_MODELS: Final = range(2009, 2037)


def read_orc(
    source: Any, path: str, fields: Sequence[DataField], *, legacy_ltz: bool
) -> Iterator[Chunk]:
    """Reads those columns of `fields` that the file has, by name. One stripe is in memory at a
    time.

    Args:
        source: the opened file.
        path: its path, for errors.
        fields: the wanted columns, from the schema that the file was written with.
        legacy_ltz: the value of `orc.timestamp-ltz.legacy.type` in that schema. If set, Java stored
            the wall clock of UTC as if it were the wall clock of its own zone, which the stripe
            names. This function turns such values back into the true instants.

    Raises:
        FormatError: the file is broken. On a broken file, Arrow may raise its own errors, too.
        UnsupportedFeature: a column cannot be read.
    """
    footer = OrcFooter.read(source)
    numbers = footer.columns()
    columns = {field.name: numbers[field.name] for field in fields if field.name in numbers}
    by_hand = _read_by_hand(footer, columns, fields, path)
    by_arrow = [name for name in columns if name not in by_hand]
    chosen: list[str] | None = by_arrow
    if not by_hand and any("." in name for name in by_arrow):
        # Arrow would treat a name with a dot as a member of a struct, so all columns are read.
        chosen = None
    with_children = chain.from_iterable(map(footer.below, columns.values()))
    has_timestamps = any(map(footer.is_timestamp, with_children))
    source.seek(0)
    reader = orc.ORCFile(source)
    for number, stripe in enumerate(footer.stripes):
        arrays: dict[str, pa.Array] = {}
        zone = ""
        if by_arrow:
            batch = reader.read_stripe(number, columns=chosen)
            arrays |= {name: batch.column(name) for name in by_arrow}
        if has_timestamps:
            stripe_footer = footer.stripe_footer(source, stripe)
            zone = stripe_footer.time_zone if legacy_ltz else ""
            for name, field in by_hand.items():
                unit = "ns" if field.type.precision > 6 else "us"
                try:
                    arrays[name] = _timestamps(
                        source, footer, stripe, stripe_footer, columns[name], unit
                    )
                except OverflowError:
                    raise _beyond_arrow(path, field) from None
        yield Chunk(stripe.rows, arrays, _leaf(zone))


def _read_by_hand(
    footer: OrcFooter, columns: Mapping[str, int], fields: Sequence[DataField], path: str
) -> dict[str, DataField]:
    """The columns with timestamps that Arrow cannot read, by name. `columns` maps the names of the
    file's columns to their numbers. Raises `UnsupportedFeature` if such a timestamp is nested in a
    column.
    """
    by_hand = {
        field.name: field
        for field in fields
        if field.name in columns and _beyond_nanoseconds(footer, columns[field.name])
    }
    for name, field in by_hand.items():
        if not footer.is_timestamp(columns[name]):
            raise _beyond_arrow(path, field)
    return by_hand


def _beyond_arrow(path: str, field: DataField) -> UnsupportedFeature:
    """The error for a timestamp that neither Arrow nor this module can read."""
    return out_of_range(f"Column {field.name!r} ({field.type}) of {path}", path, column=field.name)


def _beyond_nanoseconds(footer: OrcFooter, column: int) -> bool:
    """Whether a timestamp in the column, or in a column nested in it, may be outside the range of
    nanoseconds.
    """
    for below in footer.below(column):
        if footer.is_timestamp(below):
            least, most = footer.millis.get(below, (0, 0))
            if least < _FIRST_MILLIS or most > _LAST_MILLIS:
                return True
    return False


def _leaf(zone: str) -> Leaf:
    """A function that turns columns into values. `zone` is the zone of legacy timestamps. It is
    empty if the file has none.
    """

    def leaf(array: pa.Array, type_: DataType) -> pa.Array:
        values = normalize(array, type_)
        if type_.root is TypeRoot.CHAR:
            return pc.ascii_rtrim(values, characters=" ")  # ORC pads CHAR(n) to its length
        if type_.root is TypeRoot.TIMESTAMP_LTZ and zone not in _UTC:
            return _wall_clock(values, zone).view(values.type)
        return values

    return leaf


def _timestamps(
    source: Any,
    footer: OrcFooter,
    stripe: OrcStripe,
    stripe_footer: StripeFooter,
    column: int,
    unit: str,
) -> pa.Array:
    """A timestamp column directly below the row, decoded in this unit, with the time zone UTC if it
    is an instant. Raises `FormatError`, `UnsupportedFeature` for the encoding of Hive 0.11, and
    what `moments` raises.
    """
    has_encoding = column < len(stripe_footer.encodings)
    if not has_encoding or stripe_footer.encodings[column] != _DIRECT_V2:
        raise UnsupportedFeature("its timestamps are in the encoding of Hive 0.11")
    streams = {stream.kind: stream for stream in stripe_footer.streams if stream.column == column}

    def content(kind: int) -> bytes:
        return footer.stream(source, streams[kind]) if kind in streams else b""

    valid = _bits(content(_PRESENT), stripe.rows) if _PRESENT in streams else None
    count = stripe.rows if valid is None else int(valid.sum())
    data = content(_DATA)
    secondary = content(_SECONDARY)
    seconds = _decode_run_lengths(data, count, signed=True)
    packed = _decode_run_lengths(secondary, count, signed=False)
    zeros = packed & 7  # the number of zeros that were cut off, minus one
    nanos = (packed >> 3) * np.where(zeros == 0, 1, 10 ** (zeros + 1))
    arrow_type = pa.timestamp(unit)
    zone = stripe_footer.time_zone
    if footer.types[column].kind == TIMESTAMP_INSTANT:
        arrow_type = pa.timestamp(unit, "UTC")
        zone = "UTC"
    seconds = seconds + (_EPOCH_2015 if zone in _UTC else _base(zone))
    # The writer rounds seconds towards zero. So before 1970, the second of a moment with a fraction
    # is too large by one.
    seconds = np.where((seconds < 0) & (nanos >= 1_000_000), seconds - 1, seconds)
    if zone not in _UTC:
        seconds = seconds + _offsets(seconds, zone)
    values = moments(seconds, nanos, unit)
    if valid is None:
        return pa.array(values).view(arrow_type)
    of_rows = np.zeros(stripe.rows, np.int64)
    of_rows[valid] = values
    return pa.array(of_rows, mask=~valid).view(arrow_type)


def _base(zone: str) -> int:
    """2015-01-01T00:00 in the writer's zone, in epoch seconds. Stored seconds are counted from this
    moment.
    """
    local = pa.scalar(_EPOCH_2015, pa.timestamp("s"))
    return int(pc.assume_timezone(local, zone).cast(pa.int64()).as_py())


def _bits(data: bytes, count: int) -> npt.NDArray[np.bool_]:
    """Decodes bits from byte run lengths."""
    if count > _MOST_BITS * len(data):
        raise FormatError("a stream in it is cut off")
    runs = _Runs(data, signed=False)
    plain = bytearray()
    size = (count + 7) // 8
    while len(plain) < size:
        head = runs.take(1)[0]
        if head < 128:
            plain += runs.take(1) * (head + 3)  # one byte, repeated
        else:
            plain += runs.take(256 - head)  # different bytes
    return np.unpackbits(np.frombuffer(plain[:size], np.uint8))[:count].astype(bool)


def _decode_run_lengths(data: bytes, count: int, *, signed: bool) -> Longs:
    """Decodes `count` numbers of ORC's integer run lengths, version 2. `signed` says whether they
    may be negative. Raises `FormatError`.
    """
    if count > _MOST_NUMBERS * len(data):
        raise FormatError("a stream in it is cut off")
    numbers = np.empty(count, np.int64)
    runs = _Runs(data, signed=signed)
    filled = 0
    while filled < count:
        values = runs.next()
        taken = min(len(values), count - filled)
        numbers[filled : filled + taken] = values[:taken]
        filled += taken
    return numbers


class _Runs(ByteCursor):
    """The runs of a stream of integers, one after the other."""

    cut_off = "a stream in it is cut off"
    damaged = "a number in it is damaged"

    def __init__(self, data: bytes, *, signed: bool) -> None:
        super().__init__(data)
        self._signed = signed

    def next(self) -> Longs:
        """The numbers of the next run. The first two bits of a run say of which kind it is: one
        number that repeats, packed numbers, packed numbers with patches, or numbers stored as
        differences.
        """
        head = self.take(1)[0]
        match head >> 6:
            case 0:
                value = int.from_bytes(self.take(((head >> 3) & 7) + 1), "big")
                if self._signed:
                    value = unzigzag(value)
                return np.full((head & 7) + 3, _wrapped(value), np.int64)
            case 1:
                values = self._packed(*self._width_and_length(head))
                return _unzigzagged(values) if self._signed else values.astype(np.int64)
            case 2:
                return self._patched(head)
            case _:
                return self._delta(head)

    def _width_and_length(self, head: int) -> tuple[int, int]:
        return _WIDTHS[(head >> 1) & 31], self._length(head)

    def _length(self, head: int) -> int:
        return (((head & 1) << 8) | self.take(1)[0]) + 1

    def _packed(self, width: int, count: int) -> npt.NDArray[np.uint64]:
        """Reads `count` numbers of `width` bits each, the highest bit first."""
        raw = np.frombuffer(self.take((width * count + 7) // 8), np.uint8)
        bits = np.unpackbits(raw)[: width * count].reshape(count, width)
        numbers = np.zeros(count, np.uint64)
        for place in range(width):
            numbers = (numbers << np.uint64(1)) | bits[:, place]
        return numbers

    def _patched(self, head: int) -> Longs:
        width, length = self._width_and_length(head)
        third, fourth = self.take(2)
        patch_width = _WIDTHS[third & 31]
        gap_width = (fourth >> 5) + 1
        size = (third >> 5) + 1
        base = int.from_bytes(self.take(size), "big")
        sign = 1 << (size * 8 - 1)  # the highest bit is the sign, the others are the magnitude
        if base & sign:
            base = -(base & ~sign)
        values = self._packed(width, length)
        entry_width = next((bits for bits in _WIDTHS if bits >= patch_width + gap_width), 64)
        # A patch consists of the distance from the previous patch, and of the bits that are put
        # above the bits of a packed number.
        position = 0
        for patch in self._packed(entry_width, fourth & 31).tolist():
            position += patch >> patch_width
            if position >= length:
                raise FormatError("a patch in it is out of place")
            upper_bits = patch & ((1 << patch_width) - 1)
            values[position] |= np.uint64((upper_bits << width) & (2**64 - 1))
        return values.astype(np.int64) + _wrapped(base)

    def _delta(self, head: int) -> Longs:
        code = (head >> 1) & 31
        length = self._length(head)
        base = self.varint()
        if self._signed:
            base = unzigzag(base)
        step = unzigzag(self.varint())
        # With code 0, all differences are equal. Otherwise, all differences except the first are
        # packed, and have the same sign as the first.
        deltas = np.full(length - 1, _wrapped(step), np.int64)
        if code and length > 2:
            rest = self._packed(_WIDTHS[code], length - 2).astype(np.int64)
            deltas[1:] = -rest if step < 0 else rest
        numbers = np.empty(length, np.int64)
        numbers[0] = _wrapped(base)
        numbers[1:] = numbers[0] + np.cumsum(deltas)
        return numbers


def _unzigzagged(values: npt.NDArray[np.uint64]) -> Longs:
    half = (values >> np.uint64(1)).astype(np.int64)
    signed: Longs = half ^ -(values & np.uint64(1)).astype(np.int64)
    return signed


def _wrapped(number: int) -> int:
    """The lowest 64 bits of a number, as a signed number."""
    return (number + 2**63) % 2**64 - 2**63


def _wall_clock(column: pa.Array, zone: str) -> pa.Array:
    """UTC timestamps as the zone's clocks show them, without a zone. Raises `pyarrow.ArrowInvalid`
    for a bad zone.
    """
    per_second = PER_SECOND[column.type.unit]
    numbers = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    shifted = numbers + _offsets(np.floor_divide(numbers, per_second), zone) * per_second
    return pa.array(shifted, mask=nulls(column)).view(pa.timestamp(column.type.unit))


def _offsets(seconds: Longs, zone: str) -> Longs:
    """How many seconds the zone's clocks are ahead of UTC at these epoch seconds."""
    modelled = np.where(seconds < _FIRST_UNKNOWN, seconds, _modelled(seconds))
    local = pc.local_timestamp(pa.array(modelled).view(pa.timestamp("s", zone)))
    shifted: Longs = local.view(pa.int64()).to_numpy() - modelled
    return shifted


def _modelled(seconds: Longs) -> Longs:
    """For each of these moments, the same moment in a year that Arrow knows and that has the same
    calendar.
    """
    years = seconds.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    starts = _year_starts(years)
    models = np.zeros((2, 7), np.int64)
    known = np.arange(_MODELS.start, _MODELS.stop)
    models[_kinds(known)] = _year_starts(known)
    return seconds - starts + models[_kinds(years)]


def _year_starts(years: npt.NDArray[np.int64]) -> Longs:
    return (years - 1970).astype("datetime64[Y]").astype("datetime64[s]").astype(np.int64)


def _kinds(years: npt.NDArray[np.int64]) -> tuple[Longs, Longs]:
    """Two results for each year: whether it has a leap day, and the weekday on which it begins."""
    starts = _year_starts(years)
    leap = (_year_starts(years + 1) - starts) // _DAY - 365
    return leap, (starts // _DAY) % 7
