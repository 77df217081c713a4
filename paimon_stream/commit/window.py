"""Looks at the snapshots that were published since a commit was judged. They are called the window
(seen, latest].

Invariants: a window with missing snapshots never counts as empty. A commit never builds on a table
whose `seen` snapshot was replaced, or is gone for another reason than expiry. It never builds on a
table that lost a snapshot of ours.
"""

from paimon_stream.commit.attempts import Attempts
from paimon_stream.commit.lost_facts import lost_facts
from paimon_stream.commit.request import CommitRequest
from paimon_stream.errors import CommitLost, HistoryUnknown, TableRolledBack
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.table.fate import Answer, Fate, fate_of
from paimon_stream.table.lineage import is_replaced, published_after
from paimon_stream.table.snapshots import SnapshotStore


def published_since(
    snapshots: SnapshotStore, attempts: Attempts, latest: Snapshot | None
) -> Snapshot | None:
    """The snapshot by which somebody else has published this commit meanwhile (R2.6). It is the
    oldest one above `attempts.seen` that has the request's user, and its identifier or a later one.
    None if there is no such snapshot.

    The kind of the snapshot matters: an APPEND does not show whether its compaction was published.
    Batch commits share one identifier and are not searched for.

    Raises:
        HistoryUnknown: some of these snapshots have expired, and the request's fence does not
            exclude that others published the commit.
        StorageError, CorruptMetadata: a snapshot cannot be read.
    """
    request = attempts.request
    seen = attempts.seen
    after = 0 if seen is None else seen.id
    if request.identifier == BATCH_IDENTIFIER or latest is None or latest.id == after:
        return None
    window = published_after(snapshots, seen, latest)
    for snapshot in window.snapshots:
        if (
            snapshot.commit_user == request.user
            and request.identifier <= snapshot.commit_identifier < BATCH_IDENTIFIER
            and snapshot.nonce not in attempts.nonces
            and not _is_other_half(request, snapshot)
        ):
            return snapshot
    if not window.complete and (request.fence is None or not request.fence()):
        raise HistoryUnknown(
            f"{snapshots.location}: whether commit {request.identifier} of user {request.user!r} was published "
            f"by another run is not known: snapshots between {after} and {latest.id} expired during the commit. "
            "Nothing was published now. Start the query again, and keep snapshots longer than a batch may take "
            "(snapshot.time-retained, snapshot.num-retained.min).",
            **attempts.facts(),
            snapshot=latest.id,
        )
    return None


def _is_other_half(request: CommitRequest, snapshot: Snapshot) -> bool:
    """Whether the request is the compaction that belongs to the snapshot."""
    return (
        request.kind is CommitKind.COMPACT
        and snapshot.commit_kind is not CommitKind.COMPACT
        and snapshot.commit_identifier == request.identifier
    )


def check_lineage(
    snapshots: SnapshotStore, attempts: Attempts, latest: Snapshot | None, last: Snapshot | None
) -> None:
    """Checks that `latest` continues from the snapshot that the attempts have seen. `last` is the
    last snapshot of this committer.

    Raises:
        TableRolledBack: `latest` does not continue from the snapshot that was seen.
        CommitLost: `last` is the snapshot that was seen and has rows, and another snapshot has its
            id now.
        HistoryUnknown: it cannot be known whether `latest` continues from the snapshot that was
            seen.
    """
    request = attempts.request
    seen = attempts.seen
    if seen is None or _known(snapshots, request.user, seen, latest).is_held:
        return
    # If our own last snapshot is gone and had rows, the error says that these rows are lost.
    if (
        last is not None
        and seen == SnapshotRef.of(last)
        and last.commit_kind is not CommitKind.COMPACT
    ):
        require_last(snapshots, request.user, last, latest)
    raise TableRolledBack(
        f"{snapshots.location}: snapshot {seen.id}, on which commit {request.identifier} of user {request.user!r} "
        "was judged, is gone or was replaced: the table was rolled back, or a writer that does not publish "
        "atomically replaced it. Nothing was published. Start the query again; it judges the current table.",
        **attempts.facts(),
        snapshot=seen.id,
    )


def require_last(
    snapshots: SnapshotStore, user: str, last: Snapshot | None, latest: Snapshot | None
) -> None:
    """Checks that a writer's last snapshot is part of the table, or has expired. Raises
    `CommitLost` if another snapshot has its id, `TableRolledBack` if it was rolled back, and
    `HistoryUnknown` if its fate cannot be known.
    """
    if last is None:
        return
    answer = _known(snapshots, user, SnapshotRef.of(last), latest, stood_millis=last.time_millis)
    if answer.is_held:
        return
    replaced = answer.fate is Fate.REPLACED or is_replaced(snapshots, SnapshotRef.of(last), latest)
    holder = snapshots.find(last.id) if replaced else None
    if holder is None:
        if latest is None:
            newest = "there is no snapshot"
        elif latest.id > last.id:
            newest = answer.why
        else:
            newest = f"snapshot {latest.id} is the newest"
        raise TableRolledBack(
            f"snapshot {last.id}, the last one that user {user!r} has published, is gone, and {newest}: the table was "
            "rolled back, and rows of earlier commits are not in it. Write them again. Nothing was published now. "
            "Start the query again, or call new_commit(): it judges the current table.",
            user=user,
            snapshot=last.id,
        ).of_table(snapshots.location)
    lost = lost_facts(snapshots.storage, user, last.commit_identifier, SnapshotRef.of(last))
    raise CommitLost(
        f"snapshot {last.id}, the last one that user {user!r} has published, now holds commit "
        f"{holder.commit_identifier} of user {holder.commit_user!r}: a writer that does not publish atomically replaced "
        "it, or the table was rolled back and written again. The rows of that commit are not in the table: "
        f"{lost.sentence} If it was no rollback, commit the files again: {lost.cure}. Otherwise write the rows again. "
        "Let other engines only read this table. Nothing was published now. Start the query again, or call "
        "new_commit(): it judges the current table.",
        user=user,
        batch=last.commit_identifier,
        snapshot=last.id,
        by=holder.commit_user,
        **lost.context,
    ).of_table(snapshots.location)


def is_held(snapshots: SnapshotStore, ref: SnapshotRef, latest: Snapshot | None) -> bool | None:
    """Whether the snapshot is the latest, or lies below the latest in the table's lineage. A
    snapshot that has expired meanwhile still counts. None if that cannot be told.
    """
    return fate_of(snapshots, ref, latest).is_held


def _known(
    snapshots: SnapshotStore,
    user: str,
    ref: SnapshotRef,
    latest: Snapshot | None,
    stood_millis: int | None = None,
) -> Answer:
    """What has become of a snapshot on which the user has built. Raises `HistoryUnknown` if that
    cannot be known.
    """
    answer = fate_of(snapshots, ref, latest, stood_millis=stood_millis)
    if answer.fate is not Fate.UNKNOWN:
        return answer
    raise HistoryUnknown(
        f"whether snapshot {ref.id}, on which user {user!r} has built, has expired or was rolled back is not known: "
        f"{answer.why}. Nothing was published now. Look for the rows of earlier commits in the table, and write again "
        "what is missing. Start the query again, or call new_commit(): it judges the current table.",
        user=user,
        snapshot=ref.id,
        why=answer.why,
    ).of_table(snapshots.location)
