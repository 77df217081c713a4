"""Warns of table options that ask committers for work which this package does not do, and of credentials
that somebody stored in the table. The warning comes once, when a stream or a batch write begins, so that
nobody waits for tags or metadata that never come.

`write-only` leaves tags and the expiry of partitions to other jobs, so there is no warning of these if it is on.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from paimon_stream.options import (
    COMMIT_CALLBACKS,
    EXPLICIT_CAST,
    ICEBERG_STORAGE,
    PARTITION_EXPIRATION_TIME,
    TAG_AUTOMATIC_CREATION,
    WRITE_ONLY,
    Option,
    Options,
    is_secret,
)
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)


_ALWAYS: Final[Mapping[Option[Any], str]] = {
    COMMIT_CALLBACKS: "they are Java classes, and are not called",
    ICEBERG_STORAGE: "no Iceberg metadata is written",
    EXPLICIT_CAST: "columns are only widened, never cast to a narrower type",
}
_OF_MAINTENANCE: Final[Mapping[Option[Any], str]] = {
    TAG_AUTOMATIC_CREATION: "no tag is made",
    PARTITION_EXPIRATION_TIME: "no partition expires",
}


def warn_of_work_left(table: Table) -> None:
    """Logs one line that names the options and what does not happen, and one that names the credentials. Logs
    nothing if there are no such options."""
    left = [*_left(table.options, _ALWAYS)]
    if not table.options.value(WRITE_ONLY):
        left += _left(table.options, _OF_MAINTENANCE)
    if left:
        text = "%s has options that this package does not act upon: %s. Have a job of Paimon's do it."
        _LOG.warning(text, table.location, "; ".join(left))
    secrets = [key for key in table.schema.options if is_secret(key)]
    if secrets:
        _LOG.warning(
            "%s has credentials among its options, where every reader of its folder sees them: %s. Remove "
            "them by Paimon's ALTER TABLE ... RESET, and give the store a new key.",
            table.location,
            ", ".join(secrets),
        )


def _left(options: Options, known: Mapping[Option[Any], str]) -> list[str]:
    return [f"{one.key} = {options[one.key]} ({what})" for one, what in known.items() if options.differs(one)]
