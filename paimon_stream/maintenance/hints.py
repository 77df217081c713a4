"""The hint files `snapshot/LATEST` and `snapshot/EARLIEST`: their repair, and what they prove
(semantics.md §2.4). Without snapshots all files look unused. So what removes files asks
`lost_history`, and deletes none in doubt.
"""

from dataclasses import dataclass
from typing import Final

from paimon_stream.reports import Report
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_names, is_served
from paimon_stream.table.layout import (
    EARLIEST_HINT,
    LATEST_HINT,
    MANIFEST_FOLDER,
    TAG_FOLDER,
    id_in_name,
    read_hint,
)
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class HintReport(Report):
    """The hints before the repair (None: no file), and the oldest and newest snapshot. `repaired`
    has the paths of the wrong hints; they were set or removed, unless it was a dry run.
    """

    location: str
    latest_before: str | None
    earliest_before: str | None
    latest: int | None
    earliest: int | None
    repaired: tuple[str, ...]
    dry_run: bool = False


def repair_hints(
    table: Table, *, dry_run: bool = False, runtime: Runtime | None = None
) -> HintReport:
    """Sets wrong hints to the ids in the listing of the snapshots; an empty table gets none. Safe
    beside writers: LATEST is never moved to a missing snapshot, and a commit meanwhile sets it
    again. Raises `StorageError`.
    """
    storage = table.storage
    snapshots = SnapshotStore(storage, runtime)
    ids = snapshots.ids()
    before = {path: read_hint(storage, path) for path in (LATEST_HINT, EARLIEST_HINT)}
    right = {LATEST_HINT: ids[-1] if ids else None, EARLIEST_HINT: ids[0] if ids else None}
    repaired = [
        path
        for path, snapshot_id in right.items()
        if before[path] != (None if snapshot_id is None else str(snapshot_id))
        and (
            path == LATEST_HINT or before[path] is not None
        )  # without EARLIEST, readers list the snapshots
    ]
    for path in () if dry_run else repaired:
        snapshot_id = right[path]
        if snapshot_id is None:
            storage.delete(path)
        elif path == EARLIEST_HINT:
            storage.write(path, str(snapshot_id).encode())
        elif not snapshots.write_latest_hint(snapshot_id):
            newest = snapshots.ids()[-1:]
            if newest:
                snapshots.write_latest_hint(newest[0])
    return HintReport(
        location=storage.location,
        latest_before=before[LATEST_HINT],
        earliest_before=before[EARLIEST_HINT],
        latest=right[LATEST_HINT],
        earliest=right[EARLIEST_HINT],
        repaired=tuple(repaired),
        dry_run=dry_run,
    )


_LOOKS: Final = 3


def lost_history(storage: Storage, *, in_doubt: bool) -> str | None:
    """The evidence that snapshots were lost, None if there is none. With `in_doubt`, this includes
    traces that a killed first commit could also have left. Raises `StorageError`.
    """
    why = None
    for _ in range(_LOOKS):  # a rollback may be at work during one look
        why = _look(storage, in_doubt)
        if why is None:
            return None
    return why


def _look(storage: Storage, in_doubt: bool) -> str | None:
    hints = {
        path: read_hint(storage, path) for path in (LATEST_HINT, EARLIEST_HINT)
    }  # before the listing
    ids = SnapshotStore(storage).ids()
    latest = hints[LATEST_HINT]
    first = hints[EARLIEST_HINT] if is_served(storage) else None
    if ids:
        if first is not None and int(first) < ids[0]:
            return f"the catalog's server shows snapshot {first}, but snapshot {ids[0]} is the oldest with a file"
        named = None if latest is None else id_in_name(latest.strip(), "")
        if named is None or named <= ids[-1]:
            return None
        return f"{LATEST_HINT} says {named}, but the newest existing snapshot is {ids[-1]}"
    for path, text in hints.items():
        if text is not None:
            return f"there is no snapshot, but {path} says {text.strip()!r}"
    if storage.list_files(TAG_FOLDER, "tag-"):
        return "there is no snapshot, but there are tags"
    if (
        in_doubt
        and not branch_names(storage)
        and storage.list_files(MANIFEST_FOLDER, "manifest-list-")
    ):
        return "there is no snapshot, but there are manifest lists"
    return None
