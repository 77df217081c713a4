"""After a batch was judged, the register of the stream records three things: from which batch on
the journal is complete, which batches an operator has given up, and which batches are written again
(exactly-once.md §2, §4). This module only computes them.
"""

from collections.abc import Collection
from itertools import chain

from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, SnapshotRef
from paimon_stream.options import JOURNAL
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.given_up import Ranges, given_up_as, names_of_this_sink
from paimon_stream.stream.identity import is_own
from paimon_stream.stream.missing_batches import noted_batches
from paimon_stream.stream.verdicts import AlreadyCommitted, Verdict
from paimon_stream.table.fate import is_before
from paimon_stream.table.lineage import newest_of
from paimon_stream.table.table import Table


def journal_since(table: Table, evidence: Evidence, verdict: Verdict, *, anew: bool) -> int | None:
    """The batch from which on the journal is complete: a batch from this one on that has no entry
    never reached its commit. None if a missing entry proves nothing, for example while the journal
    is off.

    If the snapshot of our newest batch stands and the journal has no entry of that batch, the
    journal is complete only for later batches. A rollback may remove the snapshot. Then only the
    rollback's note shows that the batch was published.

    Args:
        table: the table, with its options.
        evidence: what the storage holds.
        verdict: the verdict on this batch.
        anew: whether an operator has decided. If so, the earlier entries are about to be removed,
            and prove nothing.
    """
    if not table.options.value(JOURNAL):
        return None
    registered = evidence.registered
    same_table = registered is not None and registered.schema_digest == evidence.schema_digest
    if same_table and evidence.journal_since is not None and not anew:
        return max(evidence.journal_since, _newest_without_entry(evidence, verdict) + 1)
    batch_id = evidence.batch.batch_id
    if not isinstance(verdict, AlreadyCommitted):
        return batch_id
    if verdict.snapshot is None:
        return None  # later batches may have been committed without a journal, and have expired
    return batch_id + 1


def _newest_without_entry(evidence: Evidence, verdict: Verdict) -> int:
    """Our newest batch up to this one, if its snapshot stands and the journal has no entry of the
    batch; otherwise -1. An entry can be missing for two reasons. Later batches dropped the entry,
    and a rollback then removed those batches. Or an operator's decision removed the entry, and each
    batch since then was removed or had no rows.
    """
    if isinstance(verdict, AlreadyCommitted):
        if verdict.snapshot is None or evidence.entry is not None:
            return -1
        return evidence.batch.batch_id
    own = verdict.own
    last = evidence.last_entry
    if own is None or (last is not None and last.batch_id >= own.batch_id):
        return -1
    return own.batch_id


def given_up(
    evidence: Evidence,
    verdict: Verdict,
    *,
    lost: bool,
    proven: bool,
) -> Ranges:
    """The batches that an operator has given up, as ranges of ids for `RegisteredWriter.given_up`.

    The lost batches lie below the judged batch, and above the newest batch that the table has under
    the stream's own name or an old name. An old name has lost nothing if the table has the previous
    batch under that name. Such a name does not count, and the previous batch is not given up. The
    batches below the lost ones are still in the table, so a later rollback of one of them stops the
    stream. Batches that the checkpoint is going to run again are no longer given up.

    Args:
        evidence: what the storage holds.
        verdict: the verdict on the judged batch.
        lost: whether the operator let the judged batch continue although the table has lost
            batches.
        proven: whether the loss is proven. If so, the batches below the first one that a note names
            were not lost: their snapshots may have expired.
    """
    batch_id = evidence.batch.batch_id
    known = _clipped(evidence.given_up, batch_id - 1)
    if not lost or isinstance(verdict, AlreadyCommitted):
        return known
    previous_id = batch_id - 1
    under_old_names = _newest_under_old_names(evidence)
    last_lost = previous_id
    if previous_id in under_old_names:
        last_lost = previous_id - 1
    kept_under_old_names = [newest for newest in under_old_names if newest < previous_id]
    last_kept = max([_own_id(evidence, verdict), *kept_under_old_names])
    ran_again: Ranges = ()
    if proven:
        taken, ran_again = _taken_and_ran_again(evidence, range(last_kept + 1, batch_id))
        if taken:
            last_kept = min(taken) - 1
            last_lost = max(min(taken), last_lost)
    below = (*_clipped(known, last_kept), *_clipped(ran_again, last_kept))
    first_lost = last_kept + 1
    if first_lost > last_lost:
        return below
    return (*below, (first_lost, last_lost))


def _clipped(given_up: Ranges, last_batch: int) -> Ranges:
    """The ranges, cut off after `last_batch`."""
    return tuple(
        [(first, min(last, last_batch)) for first, last in given_up if first <= last_batch]
    )


def _taken_and_ran_again(evidence: Evidence, batches: range) -> tuple[set[int], Ranges]:
    """Finds the batches that notes of removals certainly name as removed, and that no operator had
    given up before. A note may name a batch under an old name of the sink, too: the operator's
    answer is about the removal, and the removal took the batches of both names.

    Returns these batches, and the ranges of those that were removed before the newest entry of the
    journal was written. The operator's answer is not about such an early removal. The checkpoint
    ran these batches again, because otherwise it would have stopped before that entry. The notes of
    the early removal stay, and must not count again.
    """
    old_names = evidence.old_names
    users = [evidence.identity.user]
    users += [old_name.user for old_name in names_of_this_sink(evidence, old_names)]
    noted = chain.from_iterable(
        noted_batches(evidence, user, given_up_as(evidence, user, old_names), batches)
        for user in users
    )
    proven = [(batch_id, removed) for batch_id, removed in noted if removed.is_proven]
    last = evidence.last_entry
    taken = {
        batch_id
        for batch_id, removed in proven
        if last is None or not is_before(removed, last.attempted_millis)
    }
    noted_ids = {batch_id for batch_id, _ in proven}
    if not taken:
        return noted_ids, ()
    return taken, _as_ranges(noted_ids - taken)


def _as_ranges(batches: Collection[int]) -> Ranges:
    """The batches as ranges, ascending."""
    ranges: list[tuple[int, int]] = []
    for batch_id in sorted(batches):
        if ranges and ranges[-1][1] == batch_id - 1:
            ranges[-1] = (ranges[-1][0], batch_id)
        else:
            ranges.append((batch_id, batch_id))
    return tuple(ranges)


def passed_over(
    evidence: Evidence, verdict: Verdict, *, reset: bool, doubted: Collection[int]
) -> tuple[int, SnapshotRef] | None:
    """The batches that are written again because an operator decided so, for
    `RegisteredWriter.passed_over`.

    Args:
        evidence: what the storage holds.
        verdict: the verdict on the judged batch.
        reset: whether the operator let the judged batch continue although the table was ahead of
            the checkpoint, or was written by another one. Then everything that the stream has in
            the table is written again.
        doubted: the earlier batches that may be missing; the operator let the judged batch continue
            without them. A doubted batch that is not above our newest batch was written again above
            the snapshot of our newest batch. Nobody asks about the doubted batch again. So that
            snapshot is no longer passed over.
    """
    batch_id = evidence.batch.batch_id
    latest = evidence.latest
    if not reset or latest is None:
        own_id = _own_id(evidence, verdict)
        if any(earlier_id <= own_id for earlier_id in doubted):
            return None
        return evidence.passed_over
    newest, _ = newest_of(
        evidence.snapshots, latest, lambda snapshot: is_own(snapshot, evidence.identity)
    )
    if newest is None or newest.commit_identifier < batch_id:
        return None
    return batch_id, SnapshotRef.of(newest)


def _own_id(evidence: Evidence, verdict: Verdict) -> int:
    """The newest batch of the stream, up to the judged one, whose snapshot stands; -1 if there is
    none.
    """
    if isinstance(verdict, AlreadyCommitted):
        if verdict.snapshot is None:
            return -1
        return evidence.batch.batch_id
    if verdict.own is None:
        return -1
    return verdict.own.batch_id


def _newest_under_old_names(evidence: Evidence) -> tuple[int, ...]:
    """For each commit user that may be an old name of this sink, the newest batch that the table
    has. A name that has the batch before the judged one has lost nothing, so it does not count.
    """
    users = {register.user for register in evidence.old_names}
    if not users:
        return ()
    newest_of_users: dict[str, int] = {}
    for snapshot in evidence.snapshots.walk_down(evidence.latest or 0):
        batch_id = snapshot.commit_identifier
        if snapshot.commit_user in users and batch_id != BATCH_IDENTIFIER:
            newest_of_users.setdefault(snapshot.commit_user, batch_id)
        if len(newest_of_users) == len(users):
            break
    return tuple(newest_of_users.values())
