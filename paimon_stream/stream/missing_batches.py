"""The earlier batches that are missing here: what notes of removals say of them, and whether they
are in another branch (exactly-once.md §8).
"""

from collections.abc import Iterator
from operator import itemgetter

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import RECOMMITTED_MARK
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import EarlierElsewhere, EarlierNoted
from paimon_stream.stream.finding import Finding
from paimon_stream.stream.given_up import Ranges, is_given_up, last_not_given_up
from paimon_stream.stream.identity import is_of_query
from paimon_stream.table.fate import Fate, is_before, judge_notes
from paimon_stream.table.register import RegisteredWriter
from paimon_stream.table.removals import ROLLBACK, Removals, Removed


def unjournalled(evidence: Evidence, above: int) -> range:
    """The batches `above` that one and before this one for which no journal vouches. From
    `journal_since` on none that left no entry reached its commit. Where the journal has a later
    batch, it has dropped the entries of those before, so it vouches for none of them.
    """
    batch_id, since = evidence.batch.batch_id, evidence.journal_since
    if evidence.later_entry is not None:
        since = None
    return range(above + 1, batch_id if since is None else min(since, batch_id))


def noted_batches(
    evidence: Evidence,
    user: str,
    given_up: Ranges,
    batches: range,
) -> Iterator[tuple[int, Removed]]:
    """The batches of a commit user of this query that notes of removals name, each with its note,
    less those that an operator has given up.
    """
    for removed in evidence.removals().removed:
        batch_id = removed.identifier
        if (
            removed.user == user
            and is_of_query(removed.query, evidence.identity)
            and batch_id is not None
            and removed.is_of_stream
            and batch_id in batches
            and not is_given_up(batch_id, given_up)
        ):
            yield batch_id, removed


def which_noted(
    evidence: Evidence,
    user: str,
    given_up: Ranges,
    missing: range,
    *,
    own: Snapshot | None = None,
    doubts_count: bool = True,
) -> Finding[EarlierNoted]:
    """What the notes say of the batches of a commit user that are `missing` here. A note that is
    older than our newest snapshot, `own`, does not count: the checkpoint ran that batch again.
    Those that an operator has given up do not count, because the notes of them stay, nor do those
    of a query that had the commit user before. A note that cannot be read may name each of the
    others, if the user has written here (`doubts_count`).
    """
    last = last_not_given_up(missing, given_up)
    if last is None:
        return Finding(EarlierNoted.NOTHING)
    removals = evidence.removals()
    noted = [
        (batch_id, removed.is_proven, removed)
        for batch_id, removed in noted_batches(evidence, user, given_up, missing)
        if not (own is not None and _is_older(removed, own, removals))
        and not _stands_still(evidence, removed)
    ]
    if noted:
        newest_id, _, newest = max(noted, key=itemgetter(0, 1))
        answer = judge_notes(removals, newest)
        value = EarlierNoted.TAKEN if answer.fate is Fate.ROLLED_BACK else EarlierNoted.MAY_BE_TAKEN
        return Finding(value, lambda refuse: refuse.gone(newest_id, answer))
    if not doubts_count:
        return Finding(EarlierNoted.NOTHING)
    doubt = judge_notes(removals, None)
    why = doubt.why
    if doubt.fate is not Fate.UNKNOWN:
        by = _took_expired(evidence, removals, own)
        if by is None:
            return Finding(EarlierNoted.NOTHING)
        why = f"a {by} has also taken snapshots that had expired, and only a journal would show whose they were"
    return Finding(EarlierNoted.MAY_BE_TAKEN, lambda refuse: refuse.maybe_have_had_rows(last, why))


def _stands_still(evidence: Evidence, removed: Removed) -> bool:
    """Whether a run that did not end has announced this, and not reached it: it lies above the
    target, from which the newest one goes first.
    """
    snapshot, target = removed.snapshot, removed.target
    if removed.ended or snapshot is None or target is None or snapshot.id <= target.id:
        return False
    return evidence.snapshots.stands(snapshot)


def _took_expired(evidence: Evidence, removals: Removals, own: Snapshot | None) -> str | None:
    """What has taken snapshots that had expired, and may have done so since the stream was last
    judged; None if nothing has. The checkpoint's last batch was judged after what is surely older.
    """
    done = evidence.batch.previous_done_millis
    for one in removals.removed:
        is_judged = done is not None and is_before(one, done)
        is_older = own is not None and _is_older(one, own, removals)
        if one.took_expired and not is_judged and not is_older:
            return one.by
    return None


def _is_older(removed: Removed, own: Snapshot, removals: Removals) -> bool:
    """Whether this was surely removed before a batch of ours was published, which stands: by five
    minutes, or by a rollback that had removed all above its target. But what that took, too, and a
    fast forward has put back, was published before. What `recommit` published does not show that
    the checkpoint went back.
    """
    if RECOMMITTED_MARK in own.properties:
        return False
    target = removed.target
    is_above = target is not None and target.id < own.id
    removed_all = removed.is_proven and removed.by == ROLLBACK
    is_new = own.nonce not in removals.restored
    return (removed_all and is_above and is_new) or is_before(removed, own.time_millis)


def which_elsewhere(
    evidence: Evidence, written_as: RegisteredWriter, given_up: Ranges, above: int
) -> Finding[EarlierElsewhere]:
    """Has the query written a batch above that one in another branch, or in main, in place of this
    one, under the commit user of this register?
    """
    last = last_not_given_up(range(above + 1, evidence.batch.batch_id), given_up)
    missing = range(above + 1, 0 if last is None else last + 1)
    batch_and_branch = evidence.elsewhere(written_as, missing) if missing else None
    if batch_and_branch is None:
        return Finding(EarlierElsewhere.NO)
    batch_id, branch = batch_and_branch
    return Finding(
        EarlierElsewhere.WRITTEN, lambda refuse: refuse.written_elsewhere(batch_id, branch)
    )
