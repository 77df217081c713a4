"""The identity of a branch: when it was made, and from which snapshot (exactly-once.md §8).

The file `_paimon_stream/identity.json` in the branch's folder is written once, while the branch is
made, and is deleted with the branch. So a stream that comes back can tell a branch that was deleted
and made again from the branch that it wrote to. A fast forward uses the identity to tell which
snapshots main and the branch share. A branch of another engine, or of an older release, has no
identity.
"""

from dataclasses import dataclass
from typing import Final

from paimon_stream.format.json_text import (
    MOST_JSON,
    encode_checksummed,
    integer,
    reading_checksummed,
)
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage, read_if_there
from paimon_stream.storage.branch import MAIN, branch_of
from paimon_stream.table.layout import OWN_FOLDER, schema_path

_PATH: Final = f"{OWN_FOLDER}/identity.json"
"""No commit user has a folder with a dot in its name (`layout.escape_user`)."""

_KIND: Final = "branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchIdentity:
    """The identity of one branch.

    Attributes:
        token: a text that is different for every branch.
        made_millis: when the branch was made, in epoch milliseconds.
        snapshot: the snapshot of main from which the branch was made; None for a branch that began
            empty.
    """

    token: str
    made_millis: int
    snapshot: SnapshotRef | None


def write_identity(branch: Storage, snapshot: SnapshotRef | None, runtime: Runtime) -> None:
    """Gives a branch that is being made its identity. If an interrupted creation has already
    written an identity, that one stays. Raises `StorageError`.
    """
    origin = None if snapshot is None else snapshot.node()
    body = {
        "token": runtime.ids.uuid(),
        "madeMillis": runtime.clock.now_millis(),
        "snapshot": origin,
    }
    branch.put_if_absent(_PATH, encode_checksummed(_KIND, body))


def read_identity(storage: Storage) -> BranchIdentity | None:
    """The identity of the branch that the storage shows; None for main, and for a branch without an
    identity. Raises `CorruptMetadata`, `UnknownVersion`, `StorageError`.
    """
    if branch_of(storage) == MAIN:
        return None
    data = read_if_there(storage.read, _PATH, MOST_JSON)
    if data is None:
        return None
    with reading_checksummed(
        _KIND,
        data,
        _PATH,
        "the identity of a branch",
        "Restore it from a backup, or look for the rows of the branch's streams and move it away.",
    ) as body:
        return BranchIdentity(
            token=str(body["token"]),
            made_millis=integer(body["madeMillis"]),
            snapshot=SnapshotRef.of_optional_node(body["snapshot"]),
        )


def made_millis(storage: Storage, identity: BranchIdentity | None) -> int:
    """When the branch that the storage shows was made, in epoch milliseconds; 0 for main. For a
    branch without an identity, this is the time when the first schema was copied into it, by the
    clock of the storage. Raises `StorageError`, and `NotFound` if there is no branch.
    """
    if branch_of(storage) == MAIN:
        return 0
    if identity is not None:
        return identity.made_millis
    return storage.stat(schema_path(0)).modified_millis
