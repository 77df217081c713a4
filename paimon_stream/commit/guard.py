"""Checks whether another engine writes the table on a store where it may replace a snapshot of ours
(exactly-once.md §7). This module writes nothing.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from paimon_stream import errors
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import is_ours
from paimon_stream.options import COMMIT_GUARD
from paimon_stream.runtime import Clock
from paimon_stream.storage.branch import is_served
from paimon_stream.storage.location import KIND_OF, scheme_of
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

_LOOKED_AT: Final = 20
"""How many snapshots a stream looks at."""

_LATELY_MILLIS: Final = 7 * 86_400_000
"""A snapshot that is older than this does not count."""

_STORE_NAMES: Final = {
    "s3": "this store",
    "gcs": "Google Cloud Storage",
    "azure": "an Azure account without a hierarchical namespace",
}


def guard_stream(table: Table, snapshots: SnapshotStore, newest: int, clock: Clock) -> None:
    """Reads the last 20 snapshots up to the id `newest`, in one trip. If another engine made one of
    them within seven days, logs a warning, or raises `UnsupportedTable` if
    `paimon-stream.commit.guard` is strict. If other engines publish atomically, nothing is read.
    Raises what `SnapshotStore.find` raises.
    """
    if not _is_looked_at(table):
        return
    ids = range(newest, max(0, newest - _LOOKED_AT), -1)
    newest_snapshots = snapshots.storage.together([partial(snapshots.find, id_) for id_ in ids])
    present = [snapshot for snapshot in newest_snapshots if snapshot is not None]
    _warn_of_others(table, present, clock)


def guard_commit(table: Table, latest: Snapshot | None, clock: Clock) -> None:
    """Checks, for a writer that is no stream, what `guard_stream` checks. Only the latest snapshot
    is looked at, which the writer has read anyway. Raises `UnsupportedTable`.
    """
    if latest is not None and _is_looked_at(table):
        _warn_of_others(table, (latest,), clock)


def _is_looked_at(table: Table) -> bool:
    """Whether another engine may replace a snapshot of this table. False, too, if the option
    `paimon-stream.commit.guard` is `trust`.
    """
    # With a lock or a server, no other engine can replace a snapshot.
    is_exclusive = getattr(table.storage, "takes_lock", False) or is_served(table.storage)
    return (
        not is_exclusive
        and scheme_of(table.location) in KIND_OF
        and table.options.value(COMMIT_GUARD) != "trust"
    )


def _warn_of_others(table: Table, snapshots: Iterable[Snapshot], clock: Clock) -> None:
    """Logs a warning or raises `UnsupportedTable` if another engine made one of these snapshots
    lately.
    """
    since = clock.now_millis() - _LATELY_MILLIS
    recent = (snapshot for snapshot in snapshots if snapshot.time_millis >= since)
    foreign = next((snapshot for snapshot in recent if not is_ours(snapshot)), None)
    if foreign is None:
        return
    minutes = max(0, clock.now_millis() - foreign.time_millis) // 60_000
    ago = f"{minutes} min"
    if minutes >= 120:
        ago = f"{minutes // 60} h"
    facts = (
        f"{table.location}: another engine writes this table: user {foreign.commit_user!r} made snapshot {foreign.id}, "
        f"{ago} ago. In {_STORE_NAMES[KIND_OF[scheme_of(table.location)]]} other engines publish without a condition, so "
        "they may replace a snapshot that was published here, and its rows are lost. Let the other engines only read "
        "this table, or let only them write it, or open the table by its name in a Hive or JDBC catalog, whose lock is "
        "taken here, too."
    )
    if table.options.value(COMMIT_GUARD) == "strict":
        raise errors.UnsupportedTable(
            f"{facts} Nothing was written, because {COMMIT_GUARD.key} = strict.",
            table=table.location,
            user=foreign.commit_user,
            snapshot=foreign.id,
        )
    _LOG.warning(
        "%s A batch that is lost raises CommitLost, and 'paimon-stream recommit' commits it again. "
        "%s = strict refuses such a table.",
        facts,
        COMMIT_GUARD.key,
    )
