"""Checks that a storage creates files atomically, at the start of a stream and before a process's first commit to a
store. Some gateways and mounts accept a conditional create and then overwrite the file: two commits could take the same
id, and one be lost silently (semantics.md R2.3)."""

from contextlib import suppress

from paimon_stream.errors import NotAtomic, StorageError, Unavailable
from paimon_stream.runtime import IdSource
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.branch import is_served, whole_of
from paimon_stream.storage.store_client import Client, client_of
from paimon_stream.storage.store_open import StoreSettings

_FIRST = b"first"
_SECOND = b"second"
_TRIES = 5
"""In a store that has answered this process before. Each waits until the store answers."""


def probe_atomic_create(storage: Storage, folder: str, ids: IdSource) -> None:
    """Creates a new file in the folder twice, and removes it. The second create must change nothing and report that;
    else `NotAtomic` is raised. In a store, each process does so once for a bucket. A dot hides the file. If the store
    fails for a moment, the check is made again. Also raises what the storage raises if it cannot write."""
    client = _client(storage)
    if (client is not None and client.atomic) or is_served(storage):
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
        harm = f"{path} could be created twice, so two commits could overwrite each other. Use a storage that can."
        trust = "a PaimonSink with the option paimon-stream.commit.guard=trust may write it"
        cure = f"If nobody else ever writes this table, {trust}."
        text = f"{storage.location} does not create files atomically: {harm} {cure}"
        raise NotAtomic(text, path=path, location=storage.location)


def is_unproven(storage: Storage) -> bool:
    """Whether this is a store that this process has not probed yet. Streams probe a disk, too."""
    client = _client(storage)
    return client is not None and not client.atomic and not is_served(storage)


def _client(storage: Storage) -> Client | None:
    settings = getattr(whole_of(storage), "settings", None)
    return client_of(settings) if isinstance(settings, StoreSettings) else None
