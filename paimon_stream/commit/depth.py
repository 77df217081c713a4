"""Buckets that nobody compacts: said once, before readers grow slow (semantics.md §6.6)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from paimon_stream.format.entries import ManifestEntry
from paimon_stream.options import COMPACTION_TRIGGER, STOP_TRIGGER, WRITE_ONLY
from paimon_stream.table.live import BucketIndex
from paimon_stream.table.table import Table

__all__ = ["DepthWarning"]

_LOG = logging.getLogger(__name__)
_MORE_THAN_TRIGGER: Final = 3


class DepthWarning:
    """Warns once of a bucket with more files of level 0 than Java would let it have. Looks only at what the
    commit knows already."""

    def __init__(self, location: str, most: int) -> None:
        self._location = location
        self._most = most
        self._said = False

    @classmethod
    def of(cls, table: Table) -> DepthWarning | None:
        """That of a table; None for one without primary key, and where another job compacts."""
        options = table.options
        if not table.schema.primary_keys or options.value(WRITE_ONLY):
            return None
        most = (
            options.value(STOP_TRIGGER)
            if options.is_set(STOP_TRIGGER)
            else options.value(COMPACTION_TRIGGER) + _MORE_THAN_TRIGGER
        )
        return cls(table.location, most)

    def look(self, index: BucketIndex, entries: Iterable[ManifestEntry]) -> None:
        """Looks at the buckets that these entries, just published, have touched."""
        if self._said:
            return
        for entry in entries:
            depth = index.depth(entry.partition, entry.bucket)
            if depth > self._most:
                self._said = True
                _LOG.warning(
                    "%s: bucket %d has %d files of level 0, more than num-sorted-run.stop-trigger (%d): "
                    "every reader merges them all. Have a job that compacts, and set write-only = true.",
                    self._location,
                    entry.bucket,
                    depth,
                    self._most,
                )
                return
