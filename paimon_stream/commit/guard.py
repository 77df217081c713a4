"""Whether another engine writes the table on a store where it may replace a snapshot of ours
(exactly-once.md §7). Nothing here writes.
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


_LATELY_MILLIS: Final = 7 * 86_400_000


_PLAIN_AZURE: Final = "an Azure account without a hierarchical namespace"


_WHERE: Final = {"s3": "this store", "gcs": "Google Cloud Storage", "azure": _PLAIN_AZURE}


def guard_stream(table: Table, snapshots: SnapshotStore, newest: int, clock: Clock) -> None:
    """Looks at the last 20 snapshots up to the id `newest`, in one trip. Logs a warning if another
    engine made one within seven days, or raises `UnsupportedTable` if `paimon-stream.commit.guard`
    is strict. Looks at nothing where other engines publish atomically. Raises what
    `SnapshotStore.find` raises.
    """
    if not _is_looked_at(table):
        return
    ids = range(newest, max(0, newest - _LOOKED_AT), -1)
    found = snapshots.storage.together([partial(snapshots.find, one) for one in ids])
    _warn_of_others(table, (one for one in found if one is not None), clock)


def guard_commit(table: Table, latest: Snapshot | None, clock: Clock) -> None:
    """Warns a writer without a stream, for which only the latest snapshot is looked at, because it
    was read anyway.
    """
    if latest is not None and _is_looked_at(table):
        _warn_of_others(table, (latest,), clock)


def _is_looked_at(table: Table) -> bool:
    alone = getattr(table.storage, "takes_lock", False) or is_served(
        table.storage
    )  # other engines cannot get between
    return (
        not alone
        and scheme_of(table.location) in KIND_OF
        and table.options.value(COMMIT_GUARD) != "trust"
    )


def _warn_of_others(table: Table, found: Iterable[Snapshot], clock: Clock) -> None:
    since = clock.now_millis() - _LATELY_MILLIS
    other = next((one for one in found if one.time_millis >= since and not is_ours(one)), None)
    if other is None:
        return
    minutes = max(0, clock.now_millis() - other.time_millis) // 60_000
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
    facts = (
        f"{table.location}: another engine writes this table: user {other.commit_user!r} made snapshot {other.id}, "
        f"{ago} ago. In {_WHERE[KIND_OF[scheme_of(table.location)]]} other engines publish without a condition, so "
        "they may replace a snapshot that was published here, and its rows are lost. Let them only read this table, or "
        "let only them write it, or name the table by its JDBC catalog, whose lock is taken here, too."
    )
    if table.options.value(COMMIT_GUARD) == "strict":
        text = f"{facts} Nothing was written, because {COMMIT_GUARD.key} = strict."
        raise errors.UnsupportedTable(
            text, table=table.location, user=other.commit_user, snapshot=other.id
        )
    cure = "A batch that is lost raises CommitLost, and 'paimon-stream recommit' commits it again."
    _LOG.warning("%s %s %s = strict refuses such a table.", facts, cure, COMMIT_GUARD.key)
