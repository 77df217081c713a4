"""Publishes one commit as one snapshot or two. The first has the files that were written, and the
second has those that were compacted, if there are any (semantics.md §1.4, §2.2, §7.3).

Two snapshots of a commit have the same user, identifier, watermark and properties. Invariants: the
COMPACT is published only after its own APPEND. If another run published the APPEND, that run also
publishes the COMPACT. Once the APPEND is part of the table, the rows are committed. So no failure
of the compaction fails the commit (R3.2). No snapshot names the files of a failed compaction, and
they wait for an orphan cleaner.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from paimon_stream.commit.plan import Changes, CollectedChanges
from paimon_stream.commit.request import (
    ChangeSource,
    CommitRequest,
    Fixed,
    Nothing,
    Outcome,
    Published,
    Superseded,
)
from paimon_stream.errors import CommitConflict, PaimonStreamError, SharedCheckpoint
from paimon_stream.format.snapshot_json import CommitKind, SnapshotRef

_LOG = logging.getLogger(__name__)

PublishHalf = Callable[[CommitRequest, ChangeSource], Outcome]
"""Publishes one snapshot of the request's kind."""


def commit_append_compact(
    request: CommitRequest, collected: CollectedChanges, publish_half: PublishHalf
) -> Outcome:
    """Publishes what was written, then the compaction. Every commit goes through this function: an
    ordinary batch has nothing compacted, and the compaction behind a stream's batches has a source
    of changes in its request, which is published as the first half.

    Args:
        request: the commit.
        collected: its changes.
        publish_half: publishes one snapshot.

    Returns:
        The outcome. If the commit is only a compaction, and it conflicts with other commits, the
        outcome says so, and nothing is raised.

    Raises:
        PaimonStreamError: what `publish_half` raises for what was written, or for a compaction
            alone.
    """
    written = _publish_written_half(request, collected, publish_half)
    if isinstance(written, Superseded) or not collected.compact:
        return written
    if isinstance(written, Nothing):
        try:
            return publish_half(_compaction(request), Fixed(collected.compact))
        except CommitConflict as conflict:
            _warn(request, conflict)
            return Nothing(compact_failed=conflict)
    return _publish_compact_half(request, written, collected.compact, publish_half)


def _publish_written_half(
    request: CommitRequest, collected: CollectedChanges, publish_half: PublishHalf
) -> Outcome:
    if request.source is not None:
        return publish_half(request, request.source)
    if request.kind is CommitKind.COMPACT and not collected.append and collected.compact:
        return Nothing()
    kind = request.kind
    if kind is CommitKind.APPEND and collected.append.takes_away:
        kind = CommitKind.OVERWRITE
    # A compaction, like a commit that replaces files, relies on the sequence numbers that the
    # writer assigned.
    renumber = request.renumber and kind is CommitKind.APPEND and not collected.compact
    return publish_half(replace(request, kind=kind, renumber=renumber), Fixed(collected.append))


def _publish_compact_half(
    request: CommitRequest, written: Published, changes: Changes, publish_half: PublishHalf
) -> Published:
    seen = SnapshotRef.of(written.snapshot)
    compaction = replace(_compaction(request), seen=seen, sight=None, send_files=None, journal=None)
    try:
        outcome = publish_half(compaction, Fixed(changes))
    except PaimonStreamError as failed:
        _warn(request, failed)
        return replace(written, compact_failed=failed)
    if isinstance(outcome, Published):
        phases = {**written.phases, "compact": sum(outcome.phases.values())}
        return replace(
            written,
            compact=outcome.snapshot,
            compact_changes=outcome.compact_changes,
            manifests_merged=written.manifests_merged + outcome.manifests_merged,
            phases=phases,
        )
    if isinstance(outcome, Superseded):
        first = outcome.snapshot
        duplicate = SharedCheckpoint(
            f"Snapshot {first.id} of the same commit user, identifier {first.commit_identifier}, came first.",
            user=request.user,
            snapshot=first.id,
        )
        _warn(request, duplicate)
        return replace(written, compact_failed=duplicate)
    return written


def _compaction(request: CommitRequest) -> CommitRequest:
    return replace(
        request,
        kind=CommitKind.COMPACT,
        source=None,
        renumber=False,
        force_snapshot=False,
        statistics=None,
        merge=None,
    )


def _warn(request: CommitRequest, failed: PaimonStreamError) -> None:
    _LOG.warning(
        "The compaction of commit %d of user %r was left out. "
        "The rows are not affected, and its files wait for the orphan cleaner: %s",
        request.identifier,
        request.user,
        failed,
    )
