"""What the snapshots show of an attempt at this batch that an earlier run had prepared
(exactly-once.md §4). Such an attempt matters if no snapshot of ours is left, apart from one over
which an operator let the checkpoint continue.
"""

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import BaseHeld, FilesLive, WindowWhole
from paimon_stream.stream.finding import Finding
from paimon_stream.stream.missing_batches import unjournalled
from paimon_stream.table.fate import cut_below, fate_of
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.lineage import published_after
from paimon_stream.table.snapshots import SnapshotStore


def which_base(
    evidence: Evidence, entry: JournalEntry | None, cut: SnapshotRef | None
) -> Finding[BaseHeld]:
    """What became of the snapshot on which an attempt was prepared. `cut` is what `cut_above_ours`
    returned.
    """
    if entry is None or entry.base is None:
        return Finding(BaseHeld.NONE)
    if cut is not None:
        return Finding(BaseHeld.CUT)
    base_id = entry.base.id
    latest_id = 0 if evidence.latest is None else evidence.latest.id
    if base_id <= latest_id:
        return Finding(BaseHeld.NOT_ABOVE)
    return Finding(
        BaseHeld.ROLLED_BACK,
        lambda refuse: refuse.table_rolled_back(
            f"this batch was prepared on snapshot {base_id}, which the table no longer has"
        ),
    )


def which_window(
    evidence: Evidence, entry: JournalEntry | None, cut: SnapshotRef | None
) -> Finding[WindowWhole]:
    """Are all snapshots still there in which the attempt may have been published? `cut` is the
    result of `cut_above_ours`.
    """
    if entry is None:
        return Finding(WindowWhole.NONE)
    snapshots = evidence.snapshots
    latest = evidence.latest
    if latest is not None and cut is not None and published_after(snapshots, cut, latest).complete:
        return Finding(WindowWhole.ALL_SINCE_CUT)
    if latest is None or _shows_all_since(snapshots, entry.base, latest):
        return Finding(WindowWhole.ALL_SINCE_BASE)
    base_id = 0 if entry.base is None else entry.base.id
    return Finding(
        WindowWhole.MISSING,
        lambda refuse: refuse.history_unknown(
            f"the snapshots since {base_id}, on which an earlier run had prepared this batch, "
            "have expired, or are those of another history, and none of its files is part of the "
            "table"
        ),
    )


def which_live(evidence: Evidence, entry: JournalEntry | None) -> Finding[FilesLive]:
    """Is a file of an attempt live in the latest snapshot?"""
    latest = evidence.latest
    is_live = latest is not None and entry is not None and evidence.files_live(latest, entry) > 0
    if is_live:
        return Finding(FilesLive.LIVE)
    return Finding(FilesLive.NONE)


def cut_above_ours(
    evidence: Evidence, entry: JournalEntry, last: JournalEntry | None
) -> SnapshotRef | None:
    """The cut, the lowest target of the rollbacks that removed the base of an attempt at this
    batch, if they certainly removed no earlier batch of ours. That is certain if the previous
    batch's snapshot is not above the cut. Without a previous batch, the newest manifests must
    mention the last journalled batch. Without that one, the journal must be complete for all
    earlier batches. The attempt lay above the cut, so the snapshots above the cut show whether the
    attempt is in the table.

    Args:
        evidence: what the storage holds.
        entry: the attempt.
        last: the newest entry of an earlier batch.

    Returns:
        The cut. None where the table was built on the attempt's base, and where any of these
        conditions is not known to hold.
    """
    base = entry.base
    latest = evidence.latest
    previous = entry.previous
    if base is None or latest is None or fate_of(evidence.snapshots, base, latest).is_held:
        return None
    cut = cut_below(
        evidence.snapshots,
        evidence.removals(),
        base,
        latest,
        stood_millis=entry.attempted_millis,
    )
    if cut is None:
        return None
    if previous is not None:
        is_ours_below = previous.snapshot.id <= cut.id
    elif last is not None:
        is_ours_below = evidence.files_mentioned(latest, last) > 0
    else:
        is_ours_below = not unjournalled(evidence, -1)
    if not is_ours_below:
        return None
    return cut


def _shows_all_since(snapshots: SnapshotStore, base: SnapshotRef | None, latest: Snapshot) -> bool:
    """Whether all snapshots of the lineage after `base` stand. After a fast forward, for example,
    the table may not be built on `base`, because the branch has other snapshots under the same ids.
    In that case all snapshots of the table must stand, not only those above the id of `base`.
    """
    if not published_after(snapshots, base, latest).complete:
        return False
    if base is None or fate_of(snapshots, base, latest).is_held:
        return True
    return bool(published_after(snapshots, None, latest).complete)
