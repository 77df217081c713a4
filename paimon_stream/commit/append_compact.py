"""One commit, two snapshots: first what was written, then what was compacted (semantics.md §1.4,
§2.2, §7.3).

Both have the same user, identifier, watermark and properties. Invariants: the COMPACT snapshot is
published only after its own APPEND. If another run published the APPEND, the COMPACT is left to
that run. Once the APPEND is part of the table, the rows are committed, so no failure of the
compaction fails the commit (R3.2). The files of a failed compaction belong to nobody, and wait for
an orphan cleaner.
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

PublishOne = Callable[[CommitRequest, ChangeSource], Outcome]
"""Publishes one snapshot of the request's kind."""


def commit_append_compact(
    request: CommitRequest, collected: CollectedChanges, publish: PublishOne
) -> Outcome:
    """Publishes what was written, then the compaction. Raises what `publish` raises for the former.
    If there is only a compaction and it conflicts with what others did, this is only reported.
    """
    written = _publish_written(request, collected, publish)
    if isinstance(written, Superseded) or not collected.compact:
        return written
    if isinstance(written, Nothing):
        try:
            return publish(_compaction(request), Fixed(collected.compact))
        except CommitConflict as conflict:
            _warn(request, conflict)
            return Nothing(compact_failed=conflict)
    return _publish_compaction(request, written, collected.compact, publish)


def _publish_written(
    request: CommitRequest, collected: CollectedChanges, publish: PublishOne
) -> Outcome:
    if request.source is not None:
        return publish(request, request.source)
    if request.kind is CommitKind.COMPACT and not collected.append and collected.compact:
        return Nothing()
    kind = request.kind
    if kind is CommitKind.APPEND and collected.append.takes_away:
        kind = CommitKind.OVERWRITE
    # A compaction, and a commit that replaces files, relies on the numbers that the writer
    # assigned.
    renumber = request.renumber and kind is CommitKind.APPEND and not collected.compact
    return publish(replace(request, kind=kind, renumber=renumber), Fixed(collected.append))


def _publish_compaction(
    request: CommitRequest, written: Published, changes: Changes, publish: PublishOne
) -> Published:
    seen = SnapshotRef.of(written.snapshot)
    compaction = replace(_compaction(request), seen=seen, sight=None, beside=(), after=())
    try:
        made = publish(compaction, Fixed(changes))
    except PaimonStreamError as failed:
        _warn(request, failed)
        return replace(written, compact_failed=failed)
    if isinstance(made, Published):
        phases = {**written.phases, "compact": sum(made.phases.values())}
        merged, taken = written.manifests_merged + made.manifests_merged, made.compact_changes
        return replace(
            written,
            compact=made.snapshot,
            compact_changes=taken,
            manifests_merged=merged,
            phases=phases,
        )
    if isinstance(made, Superseded):
        there = made.snapshot
        text = f"Snapshot {there.id} of the same commit user, identifier {there.commit_identifier}, came first."
        other = SharedCheckpoint(text, user=request.user, snapshot=there.id)
        _warn(request, other)
        return replace(written, compact_failed=other)
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
    cure = "The rows are not affected, and its files wait for the orphan cleaner: %s"
    text = f"The compaction of commit %d of user %r was left out. {cure}"
    _LOG.warning(text, request.identifier, request.user, failed)
