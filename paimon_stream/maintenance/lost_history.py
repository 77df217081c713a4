"""Detects snapshots that vanished in another way than by expiry or rollback.

Both always leave a newest snapshot, and a hint that is not beyond it. Without its snapshots a table looks empty and all
its files look unused. So code that removes files must ask here first, and delete nothing in doubt.
"""

from typing import Final

from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import EARLIEST_HINT, LATEST_HINT, MANIFEST_FOLDER, TAG_FOLDER, id_in_name, read_hint
from paimon_stream.table.snapshots import SnapshotStore

_LOOKS: Final = 3


def lost_history(storage: Storage, *, in_doubt: bool) -> str | None:
    """The evidence that snapshots were lost, None if there is none. With `in_doubt`, this includes traces
    that a killed first commit could also have left. Raises `StorageError`."""
    why = None
    for _ in range(_LOOKS):  # a rollback may be at work during one look
        why = _look(storage, in_doubt)
        if why is None:
            return None
    return why


def _look(storage: Storage, in_doubt: bool) -> str | None:
    hints = {path: read_hint(storage, path) for path in (LATEST_HINT, EARLIEST_HINT)}  # before the listing
    ids = SnapshotStore(storage).ids()
    latest = hints[LATEST_HINT]
    if ids:
        named = None if latest is None else id_in_name(latest.strip(), "")
        if named is None or named <= ids[-1]:
            return None
        return f"{LATEST_HINT} says {named}, but the newest existing snapshot is {ids[-1]}"
    for path, text in hints.items():
        if text is not None:
            return f"there is no snapshot, but {path} says {text.strip()!r}"
    if _any(storage, TAG_FOLDER, "tag-"):
        return "there is no snapshot, but there are tags"
    if in_doubt and _any(storage, MANIFEST_FOLDER, "manifest-list-"):
        return "there is no snapshot, but there are manifest lists"
    return None


def _any(storage: Storage, folder: str, prefix: str) -> bool:
    return any(True for _ in storage.list_files(folder, prefix))
