"""What became of the last batches that are known to be committed. Spark begins a batch only after
the batch before was committed (exactly-once.md §2, §7, §8).
"""

from collections.abc import Collection
from itertools import chain

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import is_ours
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import LastHeld, PreviousHeld
from paimon_stream.stream.finding import Finding
from paimon_stream.stream.given_up import is_given_up
from paimon_stream.stream.identity import is_of_query
from paimon_stream.stream.own_history import OwnHistory, is_of_run_without
from paimon_stream.table.fate import Answer, Fate, fate_of_batch, judge_notes
from paimon_stream.table.journal import JournalEntry, PreviousBatch
from paimon_stream.table.layout import escape_user
from paimon_stream.table.lineage import is_replaced, published_after
from paimon_stream.table.removals import Removed
from paimon_stream.table.snapshots import SnapshotStore


def newest_known(evidence: Evidence, history: OwnHistory, last: JournalEntry | None) -> int:
    """The newest batch that this commit user is known to have committed, by its snapshots or its
    journal; -1 if there is none. `last` is the journal's newest entry of an earlier batch.
    """
    if last is None or last.batch_id <= history.own_id:
        return history.own_id
    is_committed = not went_on_without(evidence, evidence.identity.user, last)
    if not is_committed and evidence.latest is not None:
        # The query may have run the batch under both names. A batch whose files the table mentions
        # was committed.
        is_committed = evidence.files_mentioned(evidence.latest, last) > 0
    if not is_committed:
        return history.own_id
    return last.batch_id


def which_last(evidence: Evidence, user: str, last: JournalEntry) -> Finding[LastHeld]:
    """What became of the batch of `last`, if no snapshot of the commit user `user` is left.

    Spark went on after that batch. So the batch was committed above its base, the newest snapshot
    at its judgement. If a snapshot above the base is missing, that snapshot may have had the batch
    and have expired. If none is missing, the batch was rolled back or replaced. If the base itself
    is above the latest snapshot, no snapshot counts as missing. Expiry never removes the newest
    snapshot, so a rollback removed the base and what was above it.

    Args:
        evidence: what the storage holds.
        user: the commit user that journalled the batch.
        last: the newest entry of an earlier batch in the journal of that user.
    """
    snapshots = evidence.snapshots
    latest = evidence.latest
    noted = _which_removed(evidence, user, last)
    if noted is not None:
        return noted
    if went_on_without(evidence, user, last):
        return Finding(LastHeld.HELD)
    base = last.newest or last.base
    replaced = base is not None and is_replaced(snapshots, base, latest)
    all_stand = latest is None or published_after(snapshots, base, latest).complete
    foreign = _foreign_snapshots_above(snapshots, latest, last, last.batch_id)
    if foreign and not replaced:
        return Finding(LastHeld.REPLACED, lambda refuse: refuse.journalled_lost(last, foreign))
    if replaced or all_stand:
        return Finding(
            LastHeld.ROLLED_BACK,
            lambda refuse: refuse.table_rolled_back(
                f"batch {last.batch_id} was committed, and its snapshot is gone"
            ),
        )
    if None in (replaced, all_stand):
        return Finding(
            LastHeld.CANNOT_BE_KNOWN, lambda refuse: refuse.maybe_rolled_back(last.batch_id)
        )
    if not _is_mentioned(evidence, last):
        return Finding(LastHeld.UNPROVEN, lambda refuse: refuse.unproven(last))
    return Finding(LastHeld.HELD)


def which_last_above(
    evidence: Evidence, own: Snapshot, entry: JournalEntry | None, last: JournalEntry | None
) -> Finding[LastHeld]:
    """What became of the last journalled batch, if our newest snapshot, `own`, is part of the
    table. A batch that was committed above that snapshot is not in the table. If Spark may have
    continued after a batch that this commit user did not commit, only a note can show that the
    batch was removed.

    Args:
        evidence: what the storage holds.
        own: our newest snapshot.
        entry: the journal's entry of this batch, which may name the previous batch.
        last: the newest entry of an earlier batch.
    """
    user = evidence.identity.user
    own_id = own.commit_identifier
    previous = None if entry is None else entry.previous
    previous_id = -1 if previous is None else previous.batch_id
    known = previous_id
    if last is not None and last.batch_id > previous_id:
        known = last.batch_id
        if own_id < known and went_on_without(evidence, user, last):
            removed = _which_removed(evidence, user, last)
            if removed is not None:
                return removed
            known = previous_id
    if own_id >= known:
        return Finding(LastHeld.NONE)
    lost = previous if previous_id == known else None
    proven = _proven_removal(evidence, lost, last, known)
    if proven is not None:
        return Finding(LastHeld.ROLLED_BACK, lambda refuse: refuse.gone(known, proven))
    if lost is not None:
        in_its_place = _which_in_its_place(evidence, lost)
        if in_its_place is not None:
            return in_its_place
    foreign = _foreign_snapshots_above(evidence.snapshots, evidence.latest, last, known)
    if last is not None and foreign:
        return Finding(LastHeld.REPLACED, lambda refuse: refuse.journalled_lost(last, foreign))
    return Finding(
        LastHeld.ROLLED_BACK,
        lambda refuse: refuse.table_rolled_back(
            f"batch {known} was committed, but the newest snapshot of this stream is {own.id} "
            f"with batch {own_id}"
        ),
    )


def which_previous(
    evidence: Evidence, entry: JournalEntry | None, last: JournalEntry | None
) -> Finding[PreviousHeld]:
    """What became of the batch that an attempt names as the previous one, if no snapshot of ours is
    left.

    Args:
        evidence: what the storage holds.
        entry: the attempt at this batch.
        last: the newest entry of an earlier batch. If there is one, `which_last` asks the notes.
    """
    previous = None if entry is None else entry.previous
    if previous is None:
        return Finding(PreviousHeld.NONE)
    snapshots = evidence.snapshots
    kept = snapshots.find(previous.snapshot.id)
    replaced = is_replaced(snapshots, previous.snapshot, evidence.latest)
    if kept is not None and replaced is not False:
        proven = _proven_removal(evidence, previous, last, previous.batch_id)
        if proven is not None:
            return Finding(
                PreviousHeld.ROLLED_BACK, lambda refuse: refuse.gone(previous.batch_id, proven)
            )
        if replaced:
            return Finding(
                PreviousHeld.REPLACED,
                lambda refuse: refuse.commit_lost(previous, kept, snapshots.storage),
            )
        # The snapshot is not proven to lie in the lineage. It may have been created there after
        # ours had expired.
        return Finding(
            PreviousHeld.CANNOT_BE_KNOWN,
            lambda refuse: refuse.maybe_rolled_back(previous.batch_id),
        )
    if last is not None:
        return Finding(PreviousHeld.HELD)
    removals = evidence.removals()
    noted = judge_notes(removals, removals.of_nonce(previous.snapshot.nonce))
    if noted.fate is Fate.EXPIRED:
        return Finding(PreviousHeld.HELD)
    value = PreviousHeld.CANNOT_BE_KNOWN
    if noted.fate is Fate.ROLLED_BACK:
        value = PreviousHeld.ROLLED_BACK
    return Finding(value, lambda refuse: refuse.gone(previous.batch_id, noted))


def went_on_without(evidence: Evidence, user: str, entry: JournalEntry) -> bool:
    """Whether Spark may have gone on to the next batch without committing the batch of this entry.
    That is possible in a run in which the entry's commit user did not write. Two records show such
    a run. In the first, another commit user of the query has published the entry's batch, or a
    later one before the judged batch, on the entry's base or above. In the second, another user's
    journal begins with the entry's batch. What a run did below the base, before the attempt of the
    entry was made, does not count.
    """
    batches = range(entry.batch_id, evidence.batch.batch_id)
    runs_of_user = evidence.runs_of(user)
    if entry.run_id:
        runs_of_user |= {escape_user(entry.run_id)}
    registers = [sibling for sibling in evidence.siblings if sibling.user != user]
    if evidence.registered is not None and evidence.identity.user != user:
        registers.append(evidence.registered)
    if any(
        register.journal_since == entry.batch_id and runs_of_user.isdisjoint(register.runs)
        for register in registers
    ):
        return True
    base_id = _base_id(entry)
    is_published = _is_published_without(
        evidence, {register.user for register in registers}, batches, base_id, runs_of_user
    )
    newest_entries = [evidence.others.last_of(register) for register in registers]
    runs = [
        newest.run_id
        for newest in newest_entries
        if newest is not None and newest.batch_id in batches and base_id <= _base_id(newest)
    ]
    return is_published or any(
        run is not None and escape_user(run) not in runs_of_user for run in runs
    )


def _base_id(entry: JournalEntry) -> int:
    """The id of the snapshot on which the attempt was made; 0 for the empty table."""
    return 0 if entry.base is None else entry.base.id


def _is_published_without(
    evidence: Evidence,
    users: Collection[str],
    batches: range,
    above: int,
    known_runs: frozenset[str],
) -> bool:
    """Whether a run that is not among `known_runs` has published one of the `batches` of our query
    under one of these commit users, in a snapshot above the id `above`.
    """
    query_id = evidence.identity.query_id
    if evidence.latest is None or not users:
        return False
    for snapshot in evidence.snapshots.walk_down(evidence.latest.id):
        if snapshot.id <= above:
            break
        if snapshot.commit_user in users and is_of_run_without(
            snapshot, query_id, batches, lambda: known_runs
        ):
            return True
    return False


def noted_fate(evidence: Evidence, user: str, entry: JournalEntry) -> Answer:
    """What the notes of removals say of a batch that a commit user has committed, and of which it
    has a journal entry. A live file of the batch outweighs the notes.
    """
    given_up = evidence.given_up
    if user != evidence.identity.user:
        given_up += tuple(chain.from_iterable(sibling.given_up for sibling in evidence.siblings))

    def removed_this_batch(removed: Removed) -> bool:
        """Whether a removal removed this batch. A removal takes all later snapshots, too, so its
        note may name an earlier batch.
        """
        if removed.user != user or not removed.is_of_stream:
            return False
        if not is_of_query(removed.query, evidence.identity):
            return False
        batch = removed.identifier
        if batch is None or batch > entry.batch_id:
            return False
        return not is_given_up(batch, given_up)

    answer = fate_of_batch(
        evidence.removals(), entry.stage_uuids, entry.attempted_millis, removed_this_batch
    )
    latest = evidence.latest
    if answer.fate is not Fate.EXPIRED and latest and evidence.files_live(latest, entry):
        return Answer(fate=Fate.IN_TABLE)
    return answer


def _which_removed(evidence: Evidence, user: str, entry: JournalEntry) -> Finding[LastHeld] | None:
    """What the notes of removals say of a journalled batch: it was removed, or it may have been
    removed. None if the notes say neither.
    """
    answer = noted_fate(evidence, user, entry)
    if answer.fate not in (Fate.ROLLED_BACK, Fate.UNKNOWN):
        return None
    value = LastHeld.CANNOT_BE_KNOWN
    if answer.fate is Fate.ROLLED_BACK:
        value = LastHeld.ROLLED_BACK
    return Finding(value, lambda refuse: refuse.gone(entry.batch_id, answer))


def _is_mentioned(evidence: Evidence, entry: JournalEntry) -> bool:
    """Whether the newest manifests mention a file of the batch, which proves that it was part of
    this history. True also for a batch without files, and for a table without snapshots.
    """
    has_files = any(message.new_files for message in entry.messages)
    latest = evidence.latest
    return not has_files or latest is None or evidence.files_mentioned(latest, entry) > 0


def _foreign_snapshots_above(
    snapshots: SnapshotStore, latest: Snapshot | None, entry: JournalEntry | None, known: int
) -> list[Snapshot]:
    """The snapshots of other engines, ascending, if one of them may have replaced the snapshot of
    the known batch. That is possible only while the snapshot on which the batch was made stands,
    and none above it is missing. Otherwise the list is empty.
    """
    if latest is None or entry is None or entry.batch_id != known:
        return []
    base = entry.newest or entry.base
    if base is not None and not snapshots.stands(base):
        return []
    window = published_after(snapshots, base, latest)
    if not window.complete:
        return []
    return [snapshot for snapshot in window.snapshots if not is_ours(snapshot)]


def _proven_removal(
    evidence: Evidence,
    lost: PreviousBatch | None,
    last: JournalEntry | None,
    batch_id: int,
) -> Answer | None:
    """What a note proves of a batch that was committed and is not in the table: a removal took the
    batch's snapshot (`lost`), or its newest attempt (`last`). None if no note proves a removal. A
    batch that was removed was not replaced by another engine, even if another engine's snapshot has
    the id now. So `recommit` would refuse the batch.
    """
    removals = evidence.removals()
    notes: list[Removed | None] = []
    if lost is not None:
        notes.append(removals.of_nonce(lost.snapshot.nonce))
    if last is not None and last.batch_id == batch_id:
        notes.append(removals.of_uuid(last.stage_uuids[0]))
    for note in notes:
        if note is not None and note.is_proven:
            return judge_notes(removals, note)
    return None


def _which_in_its_place(evidence: Evidence, lost: PreviousBatch) -> Finding[LastHeld] | None:
    """Why a committed batch is not in the table's lineage, if the snapshot that has its snapshot's
    id now shows the reason; otherwise None.
    """
    snapshots = evidence.snapshots
    latest = evidence.latest
    kept = snapshots.find(lost.snapshot.id)
    if kept is None or latest is None:
        return None
    if kept.nonce == lost.snapshot.nonce:
        return Finding(
            LastHeld.BESIDE_THE_LINE, lambda refuse: refuse.beside_the_line(lost, latest)
        )
    return Finding(
        LastHeld.REPLACED, lambda refuse: refuse.commit_lost(lost, kept, snapshots.storage)
    )
