"""Wall clocks of time zones, for any year.

Arrow knows the offsets of a zone only up to 2037, as far as the zone's file lists them; after that it has no
daylight saving time. Years repeat: for each later year there is a year before 2037 with the same days on the
same weekdays, and the rules of time zones depend on nothing else.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_UTC: Final = {"", "UTC", "GMT", "Z", "Etc/UTC", "Etc/GMT"}
_DAY: Final = 86_400
_FIRST_UNKNOWN: Final = 2_114_380_800  # 2037-01-01
_MODELS: Final = range(2009, 2037)

Longs = npt.NDArray[np.int64]


def is_utc(zone: str) -> bool:
    """Whether the zone's name means UTC. An unknown zone, "", counts as UTC."""
    return zone in _UTC


def wall_clock(moments: pa.Array, zone: str) -> pa.Array:
    """Timestamps with time zone UTC, as the zone's clocks show them, in the same unit, without a zone. Raises
    `pyarrow.ArrowInvalid` for an unknown zone."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[moments.type.unit]
    numbers = moments.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    shifted = numbers + offsets(np.floor_divide(numbers, per_second), zone) * per_second
    mask = moments.is_null().to_numpy(zero_copy_only=False) if moments.null_count else None
    return pa.array(shifted, mask=mask).view(pa.timestamp(moments.type.unit))


def offsets(seconds: Longs, zone: str) -> Longs:
    """How many seconds the zone's clocks are ahead of UTC at these epoch seconds."""
    modelled = np.where(seconds < _FIRST_UNKNOWN, seconds, _modelled(seconds))
    local = pc.local_timestamp(pa.array(modelled).view(pa.timestamp("s", zone)))
    shifted: Longs = local.view(pa.int64()).to_numpy() - modelled
    return shifted


def _modelled(seconds: Longs) -> Longs:
    """The same moment in a year that Arrow knows and that has the same calendar."""
    years = seconds.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    starts = _year_starts(years)
    models = np.zeros((2, 7), np.int64)
    known = np.arange(_MODELS.start, _MODELS.stop)
    models[_kinds(known)] = _year_starts(known)
    made: Longs = seconds - starts + models[_kinds(years)]
    return made


def _year_starts(years: npt.NDArray[np.int64]) -> Longs:
    """The epoch seconds of 1 January of each year."""
    starts: Longs = (years - 1970).astype("datetime64[Y]").astype("datetime64[s]").astype(np.int64)
    return starts


def _kinds(years: npt.NDArray[np.int64]) -> tuple[Longs, Longs]:
    """Whether each year has a leap day, and the weekday it begins on."""
    starts = _year_starts(years)
    leap = (_year_starts(years + 1) - starts) // _DAY - 365
    return leap, (starts // _DAY) % 7
