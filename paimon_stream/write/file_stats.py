"""Which statistics the manifest entry of a data file carries (format.md §4.5).

What the formats tell are exact statistics of each column; here they become what the options ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import ColumnStats, StatsKind, StatsMode, encode_stats, parse_mode
from paimon_stream.format.types import DataField
from paimon_stream.options import STATS_DENSE, STATS_FIRST_N, STATS_MODE, Options

__all__ = ["StatsPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsPlan:
    """Which statistics the files of a table get: a mode for each column, and whether columns without any
    are left out (`metadata.stats-dense-store`)."""

    fields: tuple[DataField, ...]
    modes: tuple[StatsMode, ...]
    dense: bool

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> StatsPlan:
        """The plan that the options ask for (format.md §4.5). Raises `InvalidOption`."""
        general = parse_mode(options.value(STATS_MODE))
        first_n = options.value(STATS_FIRST_N)
        none = parse_mode("none")
        modes = []
        for position, one in enumerate(schema.fields):
            own = options.get(f"fields.{one.name}.stats-mode")
            if own is not None:
                modes.append(parse_mode(own))
            else:
                modes.append(general if first_n < 0 or position < first_n else none)
        return cls(fields=schema.fields, modes=tuple(modes), dense=options.value(STATS_DENSE))

    @property
    def wanted(self) -> tuple[bool, ...]:
        """For each column whether it gets any statistics."""
        return tuple(mode.kind is not StatsKind.NONE for mode in self.modes)

    def describe(self, columns: Sequence[ColumnStats]) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """The statistics of a file with these columns, and the names of those they cover (None for all)."""
        kept = [mode.apply(stats) for mode, stats in zip(self.modes, columns, strict=True)]
        return encode_stats(self.fields, kept, self.dense)
