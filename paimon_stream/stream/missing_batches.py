"""The earlier batches of a stream that the table lacks: what notes of removals say of these
batches, and whether they are in another branch (exactly-once.md §8).
"""

from collections.abc import Iterator

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
    """The batches after the batch `above` and before the judged one of which a missing entry in the
    journal proves nothing. From `journal_since` on, the journal is complete: without an entry, a
    batch has not reached its commit. If the journal has a batch later than the judged one, it has
    dropped the entries of earlier batches, so a missing entry proves nothing of any of them.
    """
    batch_id = evidence.batch.batch_id
    since = evidence.journal_since
    if since is None or evidence.later_entry is not None:
        return range(above + 1, batch_id)
    return range(above + 1, min(since, batch_id))


def noted_batches(
    evidence: Evidence,
    user: str,
    given_up: Ranges,
    batches: range,
) -> Iterator[tuple[int, Removed]]:
    """The batches of a commit user of this query that notes of removals name, each with its note.
    Batches that an operator has given up are left out.
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


def _noted_since(
    evidence: Evidence, user: str, given_up: Ranges, batches: range, own: Snapshot | None
) -> list[tuple[int, Removed]]:
    """The batches that `noted_batches` finds, without two kinds: batches whose snapshot still
    stands, and batches that were removed before our newest snapshot, `own`, was published.
    """
    removals = evidence.removals()
    return [
        (batch_id, removed)
        for batch_id, removed in noted_batches(evidence, user, given_up, batches)
        if not (own is not None and _is_older(removed, own, removals))
        and not _stands_still(evidence, removed)
    ]


def which_noted(
    evidence: Evidence,
    user: str,
    given_up: Ranges,
    missing: range,
    *,
    own: Snapshot | None = None,
    doubts_count: bool = True,
) -> Finding[EarlierNoted]:
    """What the notes of removals say of the batches of a commit user that the table lacks. Notes of
    batches that an operator has given up do not count, because such notes stay. Notes of a query
    that had the commit user before do not count either.

    Args:
        evidence: what the storage holds.
        user: the commit user.
        given_up: the batches that an operator has given up.
        missing: the batches that are asked about.
        own: our newest snapshot. A note of an older removal does not count, because the checkpoint
            has run the removed batch again since.
        doubts_count: whether the user has written here. If so, a note that cannot be read may name
            any batch that was not given up.
    """
    last = last_not_given_up(missing, given_up)
    if last is None:
        return Finding(EarlierNoted.NOTHING)
    removals = evidence.removals()
    noted = _noted_since(evidence, user, given_up, missing, own)
    if noted:
        newest_id, newest_note = max(noted, key=_batch_and_proof)
        answer = judge_notes(removals, newest_note)
        value = EarlierNoted.MAY_BE_REMOVED
        if answer.fate is Fate.ROLLED_BACK:
            value = EarlierNoted.REMOVED
        return Finding(value, lambda refuse: refuse.gone(newest_id, answer))
    if not doubts_count:
        return Finding(EarlierNoted.NOTHING)
    return _which_doubted(evidence, removals, own, last)


def which_written_again(
    evidence: Evidence, given_up: Ranges, own: Snapshot
) -> Finding[EarlierNoted]:
    """What the notes of removals say of the batches that were written again above our newest
    snapshot, `own`. The batch of `own` is the last of these. The table may still have the rows that
    were written first, so no batch is known to be lost.

    Args:
        evidence: what the storage holds.
        given_up: the batches that an operator has given up.
        own: our newest snapshot, over which an operator has let the checkpoint continue.
    """
    batches = range(min(own.commit_identifier + 1, evidence.batch.batch_id))
    last = last_not_given_up(batches, given_up)
    if last is None:
        return Finding(EarlierNoted.NOTHING)
    removals = evidence.removals()
    user = evidence.identity.user
    noted = [
        (batch_id, removed)
        for batch_id, removed in _noted_since(evidence, user, given_up, batches, own)
        if removed.snapshot is not None and removed.snapshot.id > own.id
    ]
    batch_id = last
    note = None
    if noted:
        batch_id, note = max(noted, key=_batch_and_proof)
    answer = judge_notes(removals, note)
    if answer.fate not in (Fate.ROLLED_BACK, Fate.UNKNOWN):
        return Finding(EarlierNoted.NOTHING)
    return Finding(
        EarlierNoted.MAY_BE_REMOVED,
        lambda refuse: refuse.lost_again(batch_id, own, answer.why),
    )


def _which_doubted(
    evidence: Evidence, removals: Removals, own: Snapshot | None, last: int
) -> Finding[EarlierNoted]:
    """Whether a batch up to `last` may have been removed although no note names a batch. That is
    possible if some notes cannot be read, or if a removal took snapshots that had expired.
    """
    doubt = judge_notes(removals, None)
    if doubt.fate is Fate.UNKNOWN:
        return Finding(
            EarlierNoted.MAY_BE_REMOVED, lambda refuse: refuse.maybe_have_had_rows(last, doubt.why)
        )
    operation = _removal_of_expired(evidence, removals, own)
    if operation is None:
        return Finding(EarlierNoted.NOTHING)
    return Finding(
        EarlierNoted.MAY_BE_REMOVED,
        lambda refuse: refuse.maybe_have_had_rows(
            last,
            f"a {operation} has also taken snapshots that had expired, and only a journal would "
            "show whose they were",
        ),
    )


def _batch_and_proof(noted: tuple[int, Removed]) -> tuple[int, bool]:
    """The key by which notes are sorted: by batch, and the proven notes of a batch after its other
    notes.
    """
    batch_id, removed = noted
    return batch_id, removed.is_proven


def _stands_still(evidence: Evidence, removed: Removed) -> bool:
    """Whether the snapshot of a note still stands. It can stand if the run that announced its
    removal was killed before it reached the snapshot. Such a run goes down from the newest snapshot
    to its target, so a snapshot that it did not reach lies above the target.
    """
    snapshot = removed.snapshot
    target = removed.target
    if removed.ended or snapshot is None or target is None or snapshot.id <= target.id:
        return False
    return evidence.snapshots.stands(snapshot)


def _removal_of_expired(evidence: Evidence, removals: Removals, own: Snapshot | None) -> str | None:
    """The name of an operation that removed expired snapshots, perhaps after the stream was last
    judged; None if there is none. If an operation is surely older than the checkpoint's last batch,
    the judgement of that batch has seen its notes.
    """
    done_millis = evidence.batch.previous_done_millis
    for removed in removals.removed:
        is_judged = done_millis is not None and is_before(removed, done_millis)
        is_older = own is not None and _is_older(removed, own, removals)
        if removed.removed_expired and not is_judged and not is_older:
            return removed.by
    return None


def _is_older(removed: Removed, own: Snapshot, removals: Removals) -> bool:
    """Whether a snapshot was surely removed before `own`, a snapshot of ours that stands, was
    published. That is certain if the removal is five minutes older than `own`. It is also certain
    if a rollback that has ended removed the snapshot, and the rollback's target is below `own`:
    nothing above the target was left, so `own` came later. If a fast forward has put `own` back,
    however, `own` may be older than the rollback. A snapshot that `recommit` published never
    counts: it does not show that the checkpoint went back.
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
    """Has the query written a batch above the id `above` in another branch, or in main, instead of
    in this branch?

    Args:
        evidence: what the storage holds.
        written_as: the register, in this branch, of the commit user in question.
        given_up: the batches that an operator has given up.
        above: the id above which batches are looked for.
    """
    last = last_not_given_up(range(above + 1, evidence.batch.batch_id), given_up)
    if last is None:
        return Finding(EarlierElsewhere.NO)
    batch_and_branch = evidence.elsewhere(written_as, range(above + 1, last + 1))
    if batch_and_branch is None:
        return Finding(EarlierElsewhere.NO)
    batch_id, branch = batch_and_branch
    return Finding(
        EarlierElsewhere.WRITTEN, lambda refuse: refuse.written_elsewhere(batch_id, branch)
    )
