"""What compactions of a table do with the rows that a key has had: look them up, and write a changelog
(compaction.md §6-§8)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from paimon_stream.format.entries import ManifestEntry
from paimon_stream.merge.changes import Comparison
from paimon_stream.merge.spec import FIRST_ROW, MergeSpec, looks_up
from paimon_stream.options import (
    CHANGELOG_IGNORED_COLUMNS,
    CHANGELOG_PRODUCER,
    CHANGELOG_ROW_DEDUPLICATE,
    FILE_FORMAT,
    FILE_FORMAT_PER_LEVEL,
    Options,
)

_DEDUPLICATE: Final = "deduplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderRows:
    """The rules of one table. `looks_up`: a row takes in what higher levels have of its key, as soon as it
    leaves level 0. `full`: what reaches the highest level, `top`, is compared with what was there, for the
    changelog. `logs`: what leaves level 0 is, instead."""

    spec: MergeSpec
    top: int
    looks_up: bool
    full: bool
    logs: bool
    compared: tuple[str, ...] | None
    formats: Mapping[int, str]
    format: str

    @classmethod
    def of(cls, spec: MergeSpec, options: Options, columns: Iterable[str], top: int) -> "OlderRows":
        """The rules of a table with these columns and the highest level `top`. Raises `InvalidOption`."""
        producer, ignored = options.value(CHANGELOG_PRODUCER), options.value(CHANGELOG_IGNORED_COLUMNS)
        return cls(
            spec=spec,
            top=top,
            looks_up=spec.engine == FIRST_ROW or looks_up(options),
            full=producer == "full-compaction",
            logs=producer == "lookup",
            compared=tuple(set(columns) - ignored) if options.value(CHANGELOG_ROW_DEDUPLICATE) else None,
            formats=options.value(FILE_FORMAT_PER_LEVEL),
            format=options.value(FILE_FORMAT),
        )

    def merging(self, level: int, files: Iterable[ManifestEntry]) -> Comparison | None:
        """How these files are merged onto the level, if that takes more than merging."""
        looks_up = self.looks_up and any(one.file.level == 0 for one in files)
        logs = (self.full and level == self.top) or (self.logs and looks_up)
        if not logs and not looks_up:
            return None
        known = self.top if self.full else 1
        return Comparison(
            spec=self.spec, level=level, known=known, looks_up=looks_up, logs=logs, compared=self.compared
        )

    def upgrading(self, level: int, entry: ManifestEntry) -> tuple[Comparison | None, bool]:
        """The same for a file that needs no merging, and whether it is rewritten instead of upgraded: if
        rows of higher levels may change its rows, or if its format is not that of the level (§7.3)."""
        comparison = self.merging(level, [entry])
        if comparison is None or not comparison.looks_up:
            return comparison, False
        own = self.formats.get(0, self.format) != self.formats.get(level, self.format)
        whole = self.spec.engine == _DEDUPLICATE and not self.spec.sequence_fields
        rewrites = own or (level < self.top and not whole)
        return comparison if rewrites or comparison.logs else None, rewrites
