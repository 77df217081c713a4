"""Merges the files of one unit of a table with a primary key (compaction.md §5, RC5.7).

One call may carry out two picks. The second is planned on what the first has made. Files that the first has
written and the second has merged again are removed, and are in no snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from paimon_stream.compact.keyed_plan import KeyedThresholds, next_unit
from paimon_stream.compact.rewrite import Rewriter, Rewritten
from paimon_stream.compact.units import KeyedUnit, Unit, size_of
from paimon_stream.format.entries import FileIdentity, FileSource, ManifestEntry
from paimon_stream.read.keyed import Section
from paimon_stream.read.rows import section_batches
from paimon_stream.read.scan import Scan
from paimon_stream.reports import Progress
from paimon_stream.runtime import Runtime
from paimon_stream.write.key_value import KeyValueSettings, KeyValueWriter

_PICKS: Final = 2


class KeyedRewriter(Rewriter):
    """Carries out units of tables with primary keys."""

    def __init__(
        self, scan: Scan, runtime: Runtime, progress: Progress, units: Sequence[KeyedUnit], limits: KeyedThresholds
    ) -> None:
        """Raises `ConfigError`s."""
        super().__init__(scan, runtime, progress, units)
        assert scan.merge is not None
        self._spec, self._limits = scan.merge, limits
        self._types = [scan.schema.field(name).type for name in scan.merge.keys]
        self._of_levels: dict[int, KeyValueSettings] = {}
        for one in units:
            self._settings_of(one.level)

    def rewrite(self, unit: Unit) -> Rewritten:
        """Carries out the unit, then what is due in its bucket after that. See `Rewriter.rewrite`."""
        assert isinstance(unit, KeyedUnit)
        live = {one.identity: one for one in unit.in_bucket}
        written: list[str] = []
        try:
            self._carry_out(unit, live, written, share=1)
            for _ in range(_PICKS - 1):
                step = next_unit(list(live.values()), self._spec, self._types, self._limits, full=False)
                if step is not None:
                    self._carry_out(step, live, written, share=0)
        except BaseException:
            self._remove(written)
            raise
        old = {one.identity for one in unit.in_bucket}
        files = tuple(one.file for identity, one in live.items() if identity not in old)
        replaced = tuple(one for one in unit.in_bucket if one.identity not in live)
        kept = {one.file_name for one in files}
        self._remove(path for path in written if path.rpartition("/")[2] not in kept)
        upgrades = tuple(one for one in replaced if one.file.file_name in kept)
        return Rewritten(replace(unit, files=replaced, upgrades=upgrades), files)

    def _carry_out(
        self, unit: KeyedUnit, live: dict[FileIdentity, ManifestEntry], written: list[str], *, share: int
    ) -> None:
        """Carries out one pick, which changes the live files. Adds the paths of new files to `written`. With
        `share` 0, the progress does not count its bytes."""
        made = [replace(one, file=replace(one.file, level=unit.level)) for one in unit.upgrades]
        self._report(share * size_of(unit.upgrades))
        for group in unit.rewrites:
            made += self._merged(unit, group, written, share)
        for one in unit.files:
            del live[one.identity]
        live.update((one.identity, one) for one in made)

    def _settings_of(self, level: int) -> KeyValueSettings:
        if level not in self._of_levels:  # two threads make equal ones
            table = self._scan.table
            made = KeyValueSettings.of(self._scan.schema, table.options, table.location, level=level)
            self._of_levels[level] = made
        return self._of_levels[level]

    def _merged(self, unit: KeyedUnit, group: Sequence[Section], written: list[str], share: int) -> list[ManifestEntry]:
        """The new files of one group of sections."""
        files = [one for section in group for one in section.files]
        first, rows = files[0], sum(one.file.row_count for one in files)
        settings = self._settings_of(unit.level)
        folder = self._layout.bucket_folder(first.partition, first.bucket)
        writer = KeyValueWriter(settings, self._storage, self._runtime, folder)
        try:
            expiry = self._limits.expiry
            kept = None if expiry is None else expiry.fresh
            batches = section_batches(self._scan, group, keep_deletes=unit.keep_deletes, kept=kept)
            for batch in self._watched(batches, share * size_of(files), rows):
                for one in settings.stored(batch).to_batches():
                    writer.add(one)
                    writer.write_due()
            made = writer.close()
        except BaseException as why:
            self._remove(writer.abort(why))
            raise
        written += (f"{folder}/{one.file_name}" for one in made)
        compacted = (replace(one, level=unit.level, file_source=FileSource.COMPACT) for one in made)
        return [replace(first, file=one) for one in compacted]
