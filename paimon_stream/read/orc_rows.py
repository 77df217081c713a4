"""ORC files, stripe by stripe (format.md §7.5)."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.read.convert import Chunk, Leaf, normalize
from paimon_stream.read.orc_footer import OrcFooter, OrcStripe, StripeFooter
from paimon_stream.read.orc_timestamps import is_utc, read_timestamps, wall_clock

_DAY_MILLIS: Final = 86_400_000
# The range of Arrow's nanoseconds in milliseconds, less two days for time zones.
_FIRST_MILLIS: Final = -(2**63) // 1_000_000 + 2 * _DAY_MILLIS
_LAST_MILLIS: Final = (2**63 - 1) // 1_000_000 - 2 * _DAY_MILLIS
_MICROS: Final = 6


def read_orc(source: Any, path: str, fields: Sequence[DataField], legacy_ltz: bool) -> Iterator[Chunk]:
    """The columns of `fields` that the file has, by name. `fields` belong to the schema that the file was
    written with. One stripe is in memory at a time.

    `legacy_ltz` is `orc.timestamp-ltz.legacy.type` of that schema. With it, Java stored the wall clock of UTC
    as if it were the wall clock of its own zone, which the stripe names; here it becomes the true instant
    again. Raises `FormatError`, `UnsupportedFeature`, and whatever Arrow raises on a broken file.
    """
    footer = OrcFooter.read(source)
    columns = {one.name: footer.columns()[one.name] for one in fields if one.name in footer.columns()}
    by_hand = [name for name, column in columns.items() if _beyond_nanoseconds(footer, column)]
    types = {one.name: one.type for one in fields}
    nested = [name for name in by_hand if not footer.is_timestamp(columns[name])]
    if nested:
        raise _out_of_range(nested[0], types[nested[0]], path)
    by_arrow = [name for name in columns if name not in by_hand]
    # Arrow takes a name with a dot for a member of a struct. In that case all columns are read.
    chosen = None if not by_hand and any("." in name for name in by_arrow) else by_arrow
    has_timestamps = any(map(footer.is_timestamp, chain.from_iterable(map(footer.below, columns.values()))))
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
            for name in by_hand:
                arrays[name] = _by_hand(source, path, footer, (stripe, stripe_footer), name, types[name])
        yield Chunk(stripe.rows, arrays, _leaf(zone))


def _beyond_nanoseconds(footer: OrcFooter, column: int) -> bool:
    """Whether a timestamp in the column, or below it, may be outside the range of nanoseconds."""
    for below in footer.below(column):
        if footer.is_timestamp(below):
            least, most = footer.millis.get(below, (0, 0))
            if least < _FIRST_MILLIS or most > _LAST_MILLIS:
                return True
    return False


def _by_hand(
    source: Any, path: str, footer: OrcFooter, stripe: tuple[OrcStripe, StripeFooter], name: str, type_: DataType
) -> pa.Array:
    try:
        fine = type_.precision > _MICROS
        return read_timestamps(source, footer, *stripe, footer.columns()[name], fine)
    except OverflowError:
        raise _out_of_range(name, type_, path) from None


def _out_of_range(name: str, type_: DataType, path: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"Column {name!r} ({type_}) of {path} holds timestamps before 1677-09-21 or after 2262-04-11, which "
        "Arrow cannot hold there. Select other columns.",
        path=path,
        column=name,
    )


def _leaf(zone: str) -> Leaf:
    def leaf(array: pa.Array, type_: DataType) -> pa.Array:
        made = normalize(array, type_)
        if type_.root is TypeRoot.CHAR:
            return pc.ascii_rtrim(made, characters=" ")  # ORC pads CHAR(n) to its length
        if type_.root is TypeRoot.TIMESTAMP_LTZ and not is_utc(zone):
            return wall_clock(made, zone).view(made.type)
        return made

    return leaf
