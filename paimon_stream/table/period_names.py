"""The names of automatic tags. A tag is named after the period that ends with it (table-kinds.md
§10).
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final

from paimon_stream import options as opt

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_DAY: Final = {
    "with_dashes": "%Y-%m-%d",
    "without_dashes": "%Y%m%d",
    "without_dashes_and_spaces": "%Y%m%d",
}
_HOUR: Final = {
    "with_dashes": "%Y-%m-%d %H",
    "without_dashes": "%Y%m%d %H",
    "without_dashes_and_spaces": "%Y%m%d%H",
}


@dataclass(frozen=True, slots=True)
class PeriodNames:
    """How a table names its automatic tags. The times are local times that are labelled as UTC.

    Attributes:
        format: the format of names, for `strftime`.
    """

    format: str

    @classmethod
    def of(cls, options: opt.Options) -> "PeriodNames":
        """The names that the table's options ask for. Raises `InvalidOption`."""
        period = options.value(opt.TAG_CREATION_PERIOD)
        style = options.value(opt.TAG_PERIOD_FORMATTER)
        if options.is_set(opt.TAG_PERIOD_DURATION):
            return cls("%Y%m%d%H%M")
        if period == "daily":
            return cls(_DAY[style])
        if period == "two-hours":
            return cls(_HOUR["with_dashes"])  # Java ignores the formatter here
        return cls(_HOUR[style])

    def time_of(self, name: str) -> dt.datetime | None:
        """The beginning of the period that an automatic tag is named after; None for a tag that is
        not automatic.
        """
        written = name.partition(" ")[0] if self.format in _DAY.values() else name
        try:
            time = dt.datetime.strptime(written, self.format).replace(tzinfo=dt.timezone.utc)
        except ValueError:
            return None
        return time if time.strftime(self.format) == written else None


def zone_of(options: opt.Options, mode: str) -> dt.tzinfo | None:
    """The time zone in which periods begin; None for the machine's zone. `mode` says whether the
    time is a `watermark` or that of a commit. Raises `InvalidOption`.
    """
    option = opt.WATERMARK_TIME_ZONE if mode == "watermark" else opt.PROCESS_TIME_ZONE
    return options.value(option) if options.is_set(option) or option.default else None


def local_time(millis: int | None, zone: dt.tzinfo | None) -> dt.datetime | None:
    """A time as the local time of a zone, labelled as UTC (table-kinds.md §10). None without a time,
    before 1970 and after the year 9999.
    """
    try:
        if millis is None or millis < 0:
            return None
        return dt.datetime.fromtimestamp(millis / 1000, zone).replace(tzinfo=dt.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None  # beyond the year 9999: the watermark of a source that has ended
