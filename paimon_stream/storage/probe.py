"""Checks that a storage creates files atomically: at the start of a stream, and in a store also before a process's
first commit. Some gateways and mounts accept a conditional create and then overwrite the file. There, two commits could
take the same snapshot id, and one of them would be lost silently (semantics.md R2.3)."""

from contextlib import suppress

from paimon_stream.errors import NotAtomic, StorageError, Unavailable
from paimon_stream.runtime import IdSource
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.branch import whole_of
from paimon_stream.storage.store_client import Client, client_of
from paimon_stream.storage.store_open import StoreSettings

_FIRST = b"first"
_SECOND = b"second"
_TRIES = 5
"""In a store that has answered this process before. Each waits until the store answers."""


def probe_atomic_create(storage: Storage, folder: str, ids: IdSource) -> None:
    """Creates the same new file in the folder twice. The second create must change nothing and report that. In an
    object store, each process does so once for a bucket. The file is hidden (its name begins with a dot) and is removed
    afterwards. If the store fails for a moment, the check is made again. Raises `NotAtomic` if the check fails, and
    what the storage raises if it cannot write."""
    client = _client(storage)
    if client is not None and client.atomic:
        return
    for left in reversed(range(_TRIES)):
        try:
            _probe(storage, f"{folder}/.probe-{ids.uuid()}" if folder else f".probe-{ids.uuid()}")
            break
        except Unavailable:  # the effect of a create is unknown, so only another name shows anything
            if not left or client is None or not client.right:
                raise
    if client is not None:
        client.atomic = True


def _probe(storage: Storage, path: str) -> None:
    results = []
    try:
        results = [storage.put_if_absent(path, data) for data in (_FIRST, _SECOND)]
        kept = storage.read(path)
    finally:
        with suppress(StorageError):  # a hidden file that is left behind is never read
            storage.delete(path)
    if results != [PutResult.CREATED, PutResult.EXISTS] or kept != _FIRST:
        raise NotAtomic(
            f"{storage.location} does not create files atomically: {path} could be created twice, so two "
            "commits could overwrite each other. Use a storage that can. If nobody else ever writes this "
            "table, a PaimonSink with the option paimon-stream.commit.guard=trust may write it.",
            path=path,
            location=storage.location,
        )


def is_unproven(storage: Storage) -> bool:
    """Whether this is a store that this process has not probed yet. Streams probe a disk, too."""
    client = _client(storage)
    return client is not None and not client.atomic


def _client(storage: Storage) -> Client | None:
    settings = getattr(whole_of(storage), "settings", None)
    return client_of(settings) if isinstance(settings, StoreSettings) else None
