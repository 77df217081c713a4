"""What the register keeps of a judgement: from where on the journal vouches, which batches an operator
has given up, and which are written again (exactly-once.md §2, §4). Nothing here writes.
"""

from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, SnapshotRef
from paimon_stream.options import JOURNAL
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.identity import is_own
from paimon_stream.stream.missing_batches import noted_batches
from paimon_stream.stream.verdicts import AlreadyCommitted, Verdict
from paimon_stream.table.lineage import newest_of
from paimon_stream.table.table import Table


def journal_since(table: Table, evidence: Evidence, verdict: Verdict, *, anew: bool) -> int | None:
    """The first batch from which on a missing journal entry proves that a batch never reached its
    commit. None while the journal is off. With `anew`, earlier entries are about to go, so they
    prove nothing. Where our newest batch stands without an entry, the journal vouches for the
    batches above it only: a rollback may take it, and then nothing but the note tells of it.
    """
    if not table.options.value(JOURNAL):
        return None
    registered = evidence.registered
    same_table = registered is not None and registered.schema_digest == evidence.schema_digest
    if same_table and evidence.journal_since is not None and not anew:
        return max(evidence.journal_since, _standing_without_entry(evidence, verdict) + 1)
    if isinstance(verdict, AlreadyCommitted) and verdict.snapshot is None:
        return None  # later batches may have been committed without a journal, and have expired
    return evidence.batch.batch_id + isinstance(verdict, AlreadyCommitted)


def _standing_without_entry(evidence: Evidence, verdict: Verdict) -> int:
    """Our newest batch up to this one, if its snapshot stands and the journal has no entry of it,
    else -1. Later batches had dropped the entry before a rollback took them, or it went with an
    operator's decision and what was written since was taken or had no rows.
    """
    if isinstance(verdict, AlreadyCommitted):
        is_shown = verdict.snapshot is None or evidence.entry is not None
        return -1 if is_shown else evidence.batch.batch_id
    own, last = verdict.own, evidence.last_entry
    if own is None or (last is not None and last.batch_id >= own.batch_id):
        return -1
    return own.batch_id


def given_up(
    evidence: Evidence,
    verdict: Verdict,
    *,
    lost: bool,
    proven: bool,
) -> tuple[tuple[int, int], ...]:
    """The batches that an operator has given up, as in `RegisteredWriter`. With `lost`, the
    operator let this batch continue although the table has lost batches: these are all between the
    newest one that the table has, also under an old name, and this one. The batch just before this
    one is none of them if the table has it under such a name: another name has lost its batches
    then. If the loss is `proven`, what lies below the first batch that a note names was not lost: its
    snapshots may have expired.
    A batch below is still in the table, so a later rollback of it stops the stream. What the
    checkpoint is going to run again is not given up any more.
    """
    batch_id = evidence.batch.batch_id
    known = tuple(
        [(first, min(last, batch_id - 1)) for first, last in evidence.given_up if first < batch_id]
    )
    if not lost or isinstance(verdict, AlreadyCommitted):
        return known
    own = -1 if verdict.own is None else verdict.own.batch_id
    under_old_names = _newest_under_old_names(evidence)
    last_lost = batch_id - 2 if batch_id - 1 in under_old_names else batch_id - 1
    kept = max([own, *(one for one in under_old_names if one <= batch_id - 2)])
    if proven and (first_taken := _first_taken(evidence, range(kept + 1, batch_id))) is not None:
        kept, last_lost = first_taken - 1, max(first_taken, last_lost)
    below = tuple([(first, min(last, kept)) for first, last in known if first <= kept])
    return (*below, (kept + 1, last_lost)) if kept + 1 <= last_lost else below


def _first_taken(evidence: Evidence, batches: range) -> int | None:
    """The first of these batches of the stream that a note surely names and that was not given up
    before; None if there is none.
    """
    noted = noted_batches(evidence, evidence.identity.user, evidence.given_up, batches)
    return min((batch_id for batch_id, removed in noted if removed.is_proven), default=None)


def passed_over(evidence: Evidence, *, reset: bool) -> tuple[int, SnapshotRef] | None:
    """What is written again by an operator's decision, as in `RegisteredWriter`. With `reset`, the
    operator let this batch continue although the table was ahead of the checkpoint, or of another
    one: then it is all that the stream has here.
    """
    batch_id, latest = evidence.batch.batch_id, evidence.latest
    if not reset or latest is None:
        return evidence.passed_over
    own = newest_of(evidence.snapshots, latest, lambda one: is_own(one, evidence.identity))[0]
    is_ahead = own is not None and own.commit_identifier >= batch_id
    return (batch_id, SnapshotRef.of(own)) if own is not None and is_ahead else None


def _newest_under_old_names(evidence: Evidence) -> tuple[int, ...]:
    """The newest batch that the table has of each other commit user of the query which may be an old
    name of this sink. One that has the batch before this one has lost nothing, so the loss was not
    its.
    """
    users = {one.user for one in evidence.old_names}
    newest: dict[str, int] = {}
    for one in evidence.snapshots.walk_down(evidence.latest or 0) if users else ():
        identifier = one.commit_identifier
        if one.commit_user in users and identifier != BATCH_IDENTIFIER:
            newest.setdefault(one.commit_user, identifier)
        if len(newest) == len(users):
            break
    return tuple(newest.values())
