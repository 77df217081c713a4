"""The marks of a stream are snapshot properties. By them, a later run tells the stream's own
snapshots from those of another query with the same commit user (semantics.md R1.1, R1.5;
exactly-once.md §1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot

MARK_PREFIX: Final = "paimon-stream."
"""The prefix of the key of every property that this package writes into snapshots."""

VERSION_MARK: Final = MARK_PREFIX + "version"
"""The release that made the snapshot. It marks commits that are not of a stream."""

RECOMMITTED_MARK: Final = MARK_PREFIX + "recommitted"
"""The nonce of the lost snapshot whose files this snapshot commits again."""

NONCE_MARK: Final = MARK_PREFIX + "nonce"
"""The nonce of the snapshot that the properties were written for. Snapshots of releases up to 0.1.0
have none.
"""

BASE_MARK: Final = MARK_PREFIX + "base"
"""The nonce of the snapshot on which the snapshot was built. The first snapshot of a table has
none, and neither have snapshots of releases up to 0.1.0.
"""

ONCE_PREFIX: Final = "once:"
"""How the commit user of a batch write with an identity begins. Such a write has the marks of a
stream, but it is none that goes on.
"""


def marked(properties: Mapping[str, str], nonce: str, base: Snapshot | None) -> dict[str, str]:
    """The properties for the snapshot of this nonce, which is built on `base`. If this package has
    written any of them, they also name the nonce, because other engines copy properties to other
    snapshots (semantics.md R1.5), and the nonce of the base.
    """
    if not any(key.startswith(MARK_PREFIX) for key in properties):
        return dict(properties)
    of_snapshot = {key: value for key, value in properties.items() if key != BASE_MARK}
    of_snapshot[NONCE_MARK] = nonce
    if base is not None:
        of_snapshot[BASE_MARK] = base.nonce
    return of_snapshot


def names_as_base(snapshot: Snapshot, below: Snapshot) -> bool:
    """Whether a snapshot names `below` as the one on which it was built. Properties that were
    copied from another snapshot name nothing.
    """
    properties = snapshot.properties
    is_own_mark = properties.get(NONCE_MARK) == snapshot.nonce
    return is_own_mark and properties.get(BASE_MARK) == below.nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The marks of a snapshot. All are None if another engine made the snapshot.

    Attributes:
        query_id: the id of the streaming query, which its checkpoint keeps.
        run_id: the id of the run of that query.
        checkpoint: the location of the query's checkpoint.
        query_name: the name of the query.
        offsets_hash: a hash of the offsets of the batch.
    """

    query_id: str | None
    run_id: str | None
    checkpoint: str | None
    query_name: str | None
    offsets_hash: str | None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Marks":
        """The marks in the properties of a snapshot. The properties are those that the snapshot's
        own commit wrote (`own_properties`).
        """
        marks = {
            field.name: properties.get(MARK_PREFIX + field.name.replace("_", "-"))
            for field in fields(cls)
        }
        return cls(**marks)


def own_properties(snapshot: Snapshot) -> Mapping[str, str]:
    """The properties that a snapshot's own commit wrote. Java copies the properties of another
    snapshot when it merges all manifests, when it makes an older state the latest, and when it
    replaces manifest lists. The copied properties describe another commit, and have the nonce of
    its snapshot (semantics.md R1.5). A copy of a snapshot in a tag or a branch is the same
    snapshot. Among snapshots without a nonce, only a merge is known to have copied properties.
    """
    nonce = snapshot.properties.get(NONCE_MARK)
    if nonce is not None:
        return snapshot.properties if nonce == snapshot.nonce else {}
    return {} if _is_merge(snapshot) else snapshot.properties


def is_ours(snapshot: Snapshot) -> bool:
    """Whether a property shows that this package, and not another engine, made the snapshot. This
    package does not copy the marks of a stream when it merges manifests.
    """
    nonce = snapshot.properties.get(NONCE_MARK)
    if nonce is not None:
        return nonce == snapshot.nonce
    if _is_merge(snapshot) and Marks.of(snapshot.properties).query_id is not None:
        return False
    return any(key.startswith(MARK_PREFIX) for key in snapshot.properties)


def _is_merge(snapshot: Snapshot) -> bool:
    """Whether the snapshot is a COMPACT of a batch job. Java's merge of all manifests is such a
    snapshot.
    """
    return (
        snapshot.commit_kind is CommitKind.COMPACT
        and snapshot.commit_identifier == BATCH_IDENTIFIER
    )
