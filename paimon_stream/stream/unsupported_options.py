"""Options of a table that ask committers for work which this package does not do. Said once, when a stream
or a batch write begins, so that nobody waits for tags or metadata that never come.

What `write-only` leaves to other jobs anyway is not told where it is on: tags, and partitions that expire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from paimon_stream.options import WRITE_ONLY, Options
from paimon_stream.table.table import Table

__all__ = ["warn_of_work_left"]

_LOG = logging.getLogger(__name__)


def _is_set(value: str) -> bool:
    return bool(value)


def _other_than(off: str) -> Callable[[str], bool]:
    return lambda value: value not in ("", off)


def _is_true(value: str) -> bool:
    return value == "true"


_ALWAYS: Final = {
    "commit.callbacks": (_is_set, "they are Java classes, and are not called"),
    "metadata.iceberg.storage": (_other_than("disabled"), "no Iceberg metadata is written"),
    "write.merge-schema.explicit-cast": (_is_true, "columns are only widened, never cast to less"),
}
_OF_MAINTENANCE: Final = {
    "tag.automatic-creation": (_other_than("none"), "no tag is made"),
    "partition.expiration-time": (_is_set, "no partition expires"),
}


def warn_of_work_left(table: Table) -> None:
    """One log line that names the options and what does not happen; none where there are no such options."""
    left = [*_left(table.options, _ALWAYS)]
    if not table.options.value(WRITE_ONLY):
        left += _left(table.options, _OF_MAINTENANCE)
    if left:
        _LOG.warning(
            "%s has options that this package does not act upon: %s. Have a job of Paimon's do it.",
            table.location,
            "; ".join(left),
        )


def _left(options: Options, known: dict[str, tuple[Callable[[str], bool], str]]) -> list[str]:
    return [
        f"{key} = {options.get(key, '')} ({what})"
        for key, (asks, what) in known.items()
        if asks(options.get(key, "").strip().lower())
    ]
