"""What became of the last batches that are known to be committed: Spark goes on after a batch only
once it was (exactly-once.md §2, §7, §8).
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
    journal, whose newest entry of an earlier batch is `last`; -1 if there is none.
    """
    if last is None or last.batch_id <= history.own_id:
        return history.own_id
    is_committed = not went_on_without(evidence, evidence.identity.user, last)
    if not is_committed and evidence.latest is not None:
        # The query may have run the batch under both names. What the table mentions was committed.
        is_committed = evidence.files_mentioned(evidence.latest, last) > 0
    return last.batch_id if is_committed else history.own_id


def which_last(evidence: Evidence, user: str, last: JournalEntry) -> Finding[LastHeld]:
    """No snapshot of this commit user of ours is left, but Spark continued after an earlier batch
    that was journalled, so it was committed above its base, the newest snapshot of its judgement.
    If a snapshot above the base is missing, it may have expired. If none is, it was rolled back or
    replaced. Where the base itself is above the latest snapshot, none counts as missing: expiry never
    takes the newest snapshot, so a rollback took both.
    """
    snapshots, latest = evidence.snapshots, evidence.latest
    noted = _which_removed(evidence, user, last)
    if noted is not None:
        return noted
    if went_on_without(evidence, user, last):
        return Finding(LastHeld.HELD)
    base = last.newest or last.base
    replaced = base is not None and is_replaced(snapshots, base, latest)
    whole = latest is None or published_after(snapshots, base, latest).complete
    others = _others_above(snapshots, latest, last, last.batch_id)
    if others and not replaced:
        return Finding(LastHeld.REPLACED, lambda refuse: refuse.journalled_lost(last, others))
    if replaced or whole:
        why = f"batch {last.batch_id} was committed, and its snapshot is gone"
        return Finding(LastHeld.ROLLED_BACK, lambda refuse: refuse.table_rolled_back(why))
    if None in (replaced, whole):
        return Finding(
            LastHeld.CANNOT_BE_KNOWN, lambda refuse: refuse.maybe_rolled_back(last.batch_id)
        )
    if not _is_mentioned(evidence, last):
        return Finding(LastHeld.UNPROVEN, lambda refuse: refuse.unproven(last))
    return Finding(LastHeld.HELD)


def which_last_above(
    evidence: Evidence, own: Snapshot, entry: JournalEntry | None, last: JournalEntry | None
) -> Finding[LastHeld]:
    """The same where our newest snapshot, `own`, stands: what was committed above it is not in the
    table. Only a note speaks of a batch after which Spark may have gone on without this user.
    """
    user, own_id = evidence.identity.user, own.commit_identifier
    previous = None if entry is None else entry.previous
    named = -1 if previous is None else previous.batch_id
    known = max(-1 if last is None else last.batch_id, named)
    if (
        last is not None
        and own_id < known
        and named < known
        and went_on_without(evidence, user, last)
    ):
        removed = _which_removed(evidence, user, last)
        if removed is not None:
            return removed
        known = named
    if own_id >= known:
        return Finding(LastHeld.NONE)
    lost = previous if previous is not None and previous.batch_id == known else None
    proven = _proven_removal(evidence, lost, last, known)
    if proven is not None:
        return Finding(LastHeld.ROLLED_BACK, lambda refuse: refuse.gone(known, proven))
    shown = None if lost is None else _which_in_its_place(evidence, lost)
    if shown is not None:
        return shown
    others = _others_above(evidence.snapshots, evidence.latest, last, known)
    if last is not None and others:
        return Finding(LastHeld.REPLACED, lambda refuse: refuse.journalled_lost(last, others))
    held = f"but the newest snapshot of this stream is {own.id} with batch {own_id}"
    why = f"batch {known} was committed, {held}"
    return Finding(LastHeld.ROLLED_BACK, lambda refuse: refuse.table_rolled_back(why))


def which_previous(
    evidence: Evidence, entry: JournalEntry | None, last: JournalEntry | None
) -> Finding[PreviousHeld]:
    """What became of the batch that an attempt names as the one before. No snapshot of ours is
    left. `last` is the newest entry of an earlier batch: if there is one, `which_last` asks the
    notes.
    """
    previous = None if entry is None else entry.previous
    if previous is None:
        return Finding(PreviousHeld.NONE)
    snapshots = evidence.snapshots
    storage, kept = snapshots.storage, snapshots.find(previous.snapshot.id)
    replaced = is_replaced(snapshots, previous.snapshot, evidence.latest)
    if kept is not None and replaced is not False:
        proven = _proven_removal(evidence, previous, last, previous.batch_id)
        if proven is not None:
            return Finding(
                PreviousHeld.ROLLED_BACK, lambda refuse: refuse.gone(previous.batch_id, proven)
            )
        value = PreviousHeld.REPLACED if replaced else PreviousHeld.CANNOT_BE_KNOWN
        return Finding(
            value,
            lambda refuse: refuse.commit_lost(previous, kept, storage, proven=replaced is True),
        )
    if last is not None:
        return Finding(PreviousHeld.HELD)
    removals = evidence.removals()
    noted = judge_notes(removals, removals.of_nonce(previous.snapshot.nonce))
    if noted.fate is Fate.EXPIRED:
        return Finding(PreviousHeld.HELD)
    is_taken = noted.fate is Fate.ROLLED_BACK
    return Finding(
        PreviousHeld.ROLLED_BACK if is_taken else PreviousHeld.CANNOT_BE_KNOWN,
        lambda refuse: refuse.gone(previous.batch_id, noted),
    )


def went_on_without(evidence: Evidence, user: str, entry: JournalEntry) -> bool:
    """Whether Spark need not have waited for the commit of this entry: a run in which its commit
    user was not has the batch, or one between it and ours, under another commit user of the query,
    on top of the entry's base, or began under that name with this very batch. The base rules out
    what that run did before this one made its attempt.
    """
    batches = range(entry.batch_id, evidence.batch.batch_id)
    mine = evidence.runs_of(user) | ({escape_user(entry.run_id)} if entry.run_id else set())
    others = [one for one in evidence.siblings if one.user != user]
    if evidence.registered is not None and evidence.identity.user != user:
        others.append(evidence.registered)
    if any(one.journal_since == entry.batch_id and mine.isdisjoint(one.runs) for one in others):
        return True
    base = 0 if entry.base is None else entry.base.id
    is_published = _is_published_without(
        evidence, {one.user for one in others}, batches, base, mine
    )
    journalled = [evidence.last_of(one) for one in others]
    runs = [
        one.run_id
        for one in journalled
        if one is not None
        and one.batch_id in batches
        and base <= (0 if one.base is None else one.base.id)
    ]
    return is_published or any(run is not None and escape_user(run) not in mine for run in runs)


def _is_published_without(
    evidence: Evidence,
    users: Collection[str],
    batches: range,
    above: int,
    own_runs: frozenset[str],
) -> bool:
    """Whether a run that is not among `own_runs` has published such batches of our query under
    these commit users, in snapshots above an id.
    """
    query_id = evidence.identity.query_id
    latest_id = 0 if evidence.latest is None or not users else evidence.latest.id
    for snapshot in evidence.snapshots.walk_down(latest_id):
        if snapshot.id <= above:
            break
        if snapshot.commit_user in users and is_of_run_without(
            snapshot, query_id, batches, lambda: own_runs
        ):
            return True
    return False


def noted_fate(evidence: Evidence, user: str, entry: JournalEntry) -> Answer:
    """What the notes of removals say of a batch that a commit user has journalled and committed. A
    live file of it outweighs them.
    """
    registers = () if user == evidence.identity.user else evidence.siblings
    given_up = (*evidence.given_up, *chain.from_iterable(one.given_up for one in registers))

    def took_this_batch(removed: Removed) -> bool:
        """Whether an earlier batch or another snapshot of this one was removed, and so all that
        followed.
        """
        batch = removed.identifier
        return (
            (removed.user == user and removed.is_of_stream)
            and (batch is not None and batch <= entry.batch_id)
            and is_of_query(removed.query, evidence.identity)
            and not is_given_up(batch, given_up)
        )

    answer = fate_of_batch(
        evidence.removals(), entry.stage_uuids, entry.attempted_millis, took_this_batch
    )
    latest = evidence.latest
    if answer.fate is not Fate.EXPIRED and latest and evidence.files_live(latest, entry):
        return Answer(fate=Fate.IN_TABLE)
    return answer


def _which_removed(evidence: Evidence, user: str, entry: JournalEntry) -> Finding[LastHeld] | None:
    """Do the notes say that a batch which a commit user had journalled was removed, or may have
    been? None if they do not.
    """
    answer = noted_fate(evidence, user, entry)
    if answer.fate not in (Fate.ROLLED_BACK, Fate.UNKNOWN):
        return None
    is_taken = answer.fate is Fate.ROLLED_BACK
    return Finding(
        LastHeld.ROLLED_BACK if is_taken else LastHeld.CANNOT_BE_KNOWN,
        lambda refuse: refuse.gone(entry.batch_id, answer),
    )


def _is_mentioned(evidence: Evidence, entry: JournalEntry) -> bool:
    """Whether the newest manifests mention a file of the batch, which proves that it was part of
    this history; also if it had no files.
    """
    has_files = any(message.new_files for message in entry.messages)
    latest = evidence.latest
    return not has_files or latest is None or evidence.files_mentioned(latest, entry) > 0


def _others_above(
    snapshots: SnapshotStore, latest: Snapshot | None, entry: JournalEntry | None, known: int
) -> list[Snapshot]:
    """The snapshots of other engines, ascending, if one of them may have replaced that of the known
    batch: the one on which the batch was made still stands, and none above it is missing. Otherwise
    none.
    """
    if latest is None or entry is None or entry.batch_id != known:
        return []
    base = entry.newest or entry.base
    if base is not None and not snapshots.stands(base):
        return []
    window = published_after(snapshots, base, latest)
    return [one for one in window.snapshots if not is_ours(one)] if window.complete else []


def _proven_removal(
    evidence: Evidence,
    lost: PreviousBatch | None,
    last: JournalEntry | None,
    batch_id: int,
) -> Answer | None:
    """A batch that was committed is not in the table. The note that proves that a rollback took its
    snapshot, that of `lost`, or its newest attempt, that of `last`; None if there is none. What a
    note proves, another engine has not replaced, whoever stands in its place, and `recommit` would
    refuse.
    """
    removals = evidence.removals()
    notes = [None if lost is None else removals.of_nonce(lost.snapshot.nonce)]
    if last is not None and last.batch_id == batch_id:
        notes.append(removals.of_uuid(last.stage_uuids[0]))
    proven = next((one for one in notes if one is not None and one.is_proven), None)
    return None if proven is None else judge_notes(removals, proven)


def _which_in_its_place(evidence: Evidence, lost: PreviousBatch) -> Finding[LastHeld] | None:
    """A batch that is known to be committed is not in the table's lineage. Why, if the batch's own
    snapshot shows the reason; else None.
    """
    snapshots, latest = evidence.snapshots, evidence.latest
    kept = snapshots.find(lost.snapshot.id)
    if kept is None or latest is None:
        return None
    if kept.nonce == lost.snapshot.nonce:
        return Finding(
            LastHeld.BESIDE_THE_LINE, lambda refuse: refuse.beside_the_line(lost, latest)
        )
    storage = snapshots.storage
    return Finding(LastHeld.REPLACED, lambda refuse: refuse.commit_lost(lost, kept, storage))
