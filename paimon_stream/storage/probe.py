"""Checks, at the start of a stream, that a storage creates files atomically.

Some gateways and mounts accept a conditional create and then overwrite the file. There, two commits could
take the same snapshot id, and one of them would be lost silently (semantics.md R2.3).
"""

from __future__ import annotations

from paimon_stream.errors import NotAtomic, StorageError
from paimon_stream.runtime import IdSource
from paimon_stream.storage.base import PutResult, Storage

__all__ = ["probe_atomic_create"]

_FIRST = b"first"
_SECOND = b"second"


def probe_atomic_create(storage: Storage, folder: str, ids: IdSource) -> None:
    """Creates the same new file in the folder twice. The second create must change nothing and report that.

    The file is hidden (its name begins with a dot) and is removed afterwards. Raises `NotAtomic` if the check
    fails, and what the storage raises if it cannot write.
    """
    path = f"{folder}/.probe-{ids.uuid()}" if folder else f".probe-{ids.uuid()}"
    results = []
    try:
        results = [storage.put_if_absent(path, data) for data in (_FIRST, _SECOND)]
        kept = storage.read(path)
    finally:
        _remove(storage, path)
    if results != [PutResult.CREATED, PutResult.EXISTS] or kept != _FIRST:
        raise NotAtomic(
            f"{storage.location} does not create files atomically: {path} could be created twice, so two "
            "commits could overwrite each other. Use a storage that can, or, if nobody else ever writes this "
            "table, set paimon-stream.commit.guard=trust.",
            path=path,
            location=storage.location,
        )


def _remove(storage: Storage, path: str) -> None:
    """Best effort: a hidden file that is left behind is never read."""
    try:
        storage.delete(path)
    except StorageError:
        return
