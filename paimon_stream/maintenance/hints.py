"""Repairs the hint files `snapshot/LATEST` and `snapshot/EARLIEST`, and tells from them whether
snapshots were lost (semantics.md §2.4). If all snapshots are lost, every file looks unused. Code
that removes files therefore asks `lost_history`, and deletes nothing when in doubt.
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
    """What was repaired, or would be repaired in a dry run.

    Attributes:
        location: where the table is.
        latest_before: the text of LATEST before the repair; None without the file.
        earliest_before: the text of EARLIEST before the repair; None without the file.
        latest: the id of the newest snapshot.
        earliest: the id of the oldest snapshot.
        repaired: the paths of the wrong hints, which were set or removed.
        dry_run: whether nothing was changed.
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
    """Sets wrong hints to the ids in the listing of the snapshots. An empty table gets no hints.
    Writers may work at the same time: LATEST is never moved to a missing snapshot, and a commit
    sets it again. A missing EARLIEST is not wrong, because readers then list the snapshots. Raises
    `StorageError`.
    """
    storage = table.storage
    snapshots = SnapshotStore(storage, runtime)
    ids = snapshots.ids()
    before = {path: read_hint(storage, path) for path in (LATEST_HINT, EARLIEST_HINT)}
    right: dict[str, int | None] = {LATEST_HINT: None, EARLIEST_HINT: None}
    if ids:
        right = {LATEST_HINT: ids[-1], EARLIEST_HINT: ids[0]}
    repaired = []
    for path, snapshot_id in right.items():
        if path == EARLIEST_HINT and before[path] is None:
            continue  # readers list the snapshots instead
        right_text = None if snapshot_id is None else str(snapshot_id)
        if before[path] != right_text:
            repaired.append(path)
    if not dry_run:
        for path in repaired:
            _set_hint(snapshots, path, right[path])
    return HintReport(
        location=storage.location,
        latest_before=before[LATEST_HINT],
        earliest_before=before[EARLIEST_HINT],
        latest=right[LATEST_HINT],
        earliest=right[EARLIEST_HINT],
        repaired=tuple(repaired),
        dry_run=dry_run,
    )


def _set_hint(snapshots: SnapshotStore, path: str, snapshot_id: int | None) -> None:
    """Makes the hint at `path` name a snapshot, or removes the hint if the id is None."""
    if snapshot_id is None:
        snapshots.storage.delete(path)
    elif path == EARLIEST_HINT:
        snapshots.storage.write(path, str(snapshot_id).encode())
    elif not snapshots.write_latest_hint(snapshot_id):
        newest = snapshots.ids()[-1:]
        if newest:
            snapshots.write_latest_hint(newest[0])


_LOOKS: Final = 3


def lost_history(storage: Storage, *, in_doubt: bool) -> str | None:
    """The evidence that snapshots were lost; None if there is no evidence. If `in_doubt` is set,
    manifest lists are evidence, too, although a killed first commit could have left them. Raises
    `StorageError`.
    """
    evidence = None
    for _ in range(_LOOKS):  # a rollback may be at work during one look
        evidence = _evidence_of_loss(storage, in_doubt=in_doubt)
        if evidence is None:
            return None
    return evidence


def _evidence_of_loss(storage: Storage, *, in_doubt: bool) -> str | None:
    # The hints are read before the listing. Otherwise a snapshot that is committed in between would
    # look lost.
    hints = {path: read_hint(storage, path) for path in (LATEST_HINT, EARLIEST_HINT)}
    ids = SnapshotStore(storage).ids()
    latest = hints[LATEST_HINT]
    served = hints[EARLIEST_HINT] if is_served(storage) else None
    if ids:
        if served is not None and int(served) < ids[0]:
            return (
                f"the catalog's server shows snapshot {served}, but snapshot {ids[0]} is the "
                "oldest with a file"
            )
        named = None if latest is None else id_in_name(latest.strip(), "")
        if named is None or named <= ids[-1]:
            return None
        return f"{LATEST_HINT} says {named}, but the newest existing snapshot is {ids[-1]}"
    for path, hint in hints.items():
        if hint is not None:
            return f"there is no snapshot, but {path} says {hint.strip()!r}"
    if storage.list_files(TAG_FOLDER, "tag-"):
        return "there is no snapshot, but there are tags"
    if (
        in_doubt
        and not branch_names(storage)
        and storage.list_files(MANIFEST_FOLDER, "manifest-list-")
    ):
        return "there is no snapshot, but there are manifest lists"
    return None
