"""The ledger: was this batch committed, may it be committed, or must an operator decide?
exactly-once.md §2 and §4, and semantics.md R1.3-R1.5 have the rules. `evidence.py` judges a run's
later batches. Nothing here writes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter

from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    RECOMMITTED_MARK,
    CommitKind,
    Marks,
    Snapshot,
    SnapshotRef,
    is_ours,
    own_properties,
)
from paimon_stream.options import JOURNAL
from paimon_stream.stream.claims import duplicate_writer
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.identity import WriterIdentity, is_of_query, is_own
from paimon_stream.stream.register import RegisteredWriter
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh, Reuse, Verdict
from paimon_stream.table.fate import (
    CLOCKS_DIFFER_MILLIS,
    Answer,
    Fate,
    cut_below,
    fate_of,
    fate_of_batch,
    is_before,
    judge_notes,
)
from paimon_stream.table.journal import JournalEntry, PreviousBatch
from paimon_stream.table.layout import escape_user
from paimon_stream.table.lineage import in_lineage, is_replaced, published_after
from paimon_stream.table.removals import ROLLBACK, Removals, Removed
from paimon_stream.table.snapshots import SnapshotStore


def judge_first(evidence: Evidence, refuse: ReplayErrors) -> Verdict:
    """Judges the first batch of a run, from everything that storage holds. Raises the `ReplayError`
    that says what cannot be proven, and which option lets an operator decide.
    """
    entry, last_entry = (
        _own_entry(one, evidence.identity) for one in (evidence.entry, evidence.last_entry)
    )
    same_table = _judge_table(evidence, (entry, last_entry), refuse)
    entry, last_entry = (
        _without_given_up(_of_this_table(one, evidence), evidence.given_up)
        for one in (entry, last_entry)
    )
    latest, seen = evidence.latest, evidence.seen
    history = _search(evidence)
    is_let_in = _judge_identity(evidence, history, refuse)
    if evidence.registered is not None and evidence.registered.asks_notes:
        # The journal, or the snapshots, may be those of the branch that the table was forwarded to.
        _refuse_noted(evidence, range(evidence.batch.batch_id), refuse)
    own_id = -1 if history.own is None else history.own.commit_identifier
    if last_entry is not None and own_id < last_entry.batch_id:
        given_up = evidence.given_up_as_any
        entry, last_entry = (_without_given_up(one, given_up) for one in (entry, last_entry))
    if history.own is not None and not _is_passed_over(evidence, history.own):
        return _judge_known(evidence, history.own, entry, last_entry, refuse)
    later = _of_this_table(_own_entry(evidence.later_entry, evidence.identity), evidence)
    if later is not None:  # it was prepared after this batch had been done
        refuse.checkpoint_rewound(
            f"this stream had already prepared batch {later.batch_id} for the table"
        )
        return Fresh(seen=seen)
    if (
        latest
        and (beside := history.beside)
        and beside.commit_identifier >= evidence.batch.batch_id
    ):
        # Its id may have been created again after it had expired, or lists are missing.
        unproven = "but the next snapshot does not show that it was built on it"
        why = (
            f"snapshot {beside.id} has batch {beside.commit_identifier} of this stream, {unproven}"
        )
        return _judge_files(evidence, entry, refuse, why)
    if entry is not None:
        return _judge_entry(evidence, entry, last_entry, refuse)
    there_as = _came_with_branch(evidence)
    if there_as == evidence.identity.user:
        return AlreadyCommitted(seen=seen, snapshot=None)
    if there_as is not None:
        refuse.history_unknown(
            f"this query published this batch as commit user {there_as!r}, and its rows came with the branch, which "
            "was made from main. It may be the same sink under another name"
        )
        return Fresh(seen=seen)
    maybe_there_as = _may_have_come_with_branch(evidence)
    if maybe_there_as is not None:
        refuse.history_unknown(
            f"this query prepared this batch in main as commit user {maybe_there_as!r}, main's snapshots do not show "
            "whether it was published before this branch was made, and no manifest mentions its files, which may have "
            "been compacted"
        )
        return Fresh(seen=seen)
    if last_entry is not None:
        _judge_lost_batch(evidence, evidence.identity.user, last_entry, refuse)
    if same_table and not is_let_in:
        _judge_unknown(evidence, history, last_entry, refuse)
    return Fresh(seen=seen)


def _is_passed_over(evidence: Evidence, own: Snapshot) -> bool:
    """Whether our newest snapshot would refuse this batch, and an operator has let the checkpoint
    continue over it with an earlier batch, or this one. What has been written since stands above
    it, or was removed. A batch with the very source offsets is committed all the same: the newest
    checkpoint may have been put back after that decision.
    """
    if evidence.passed_over is None or not _is_ahead(evidence.batch, own):
        return False
    first, snapshot = evidence.passed_over
    return first <= evidence.batch.batch_id and SnapshotRef.of(own) == snapshot


def _is_ahead(batch: Batch, own: Snapshot) -> bool:
    """Whether a snapshot of ours has a later batch, or this one with other source offsets."""
    if own.commit_identifier != batch.batch_id:
        return own.commit_identifier > batch.batch_id
    theirs = Marks.of(own_properties(own)).offsets_hash
    return None not in (theirs, batch.offsets_hash) and theirs != batch.offsets_hash


def _came_with_branch(evidence: Evidence) -> str | None:
    """The commit user in whose journal of main an attempt at this batch is part of the branch: the
    query had published it in main, or in a branch to which main was forwarded, and this one was
    made from main. None if there is none.
    """
    latest = evidence.latest
    for user, entry in _own_entries_of_main(evidence):
        if latest is not None and evidence.files_mentioned(latest, entry) > 0:
            return user
    return None


def _may_have_come_with_branch(evidence: Evidence) -> str | None:
    """The commit user in whose journal of main there is an attempt at this batch of which it is not
    certain that it is not part of the branch. None if there is none.
    """
    for user, entry in _own_entries_of_main(evidence):
        if evidence.latest is not None and not evidence.left_in_main(user, entry):
            return user
    return None


def _own_entries_of_main(evidence: Evidence) -> list[tuple[str, JournalEntry]]:
    """The entries of main that this query wrote, with their commit users."""
    return [
        (user, entry)
        for user, entry in evidence.entries_of_main.items()
        if is_of_query(entry.query_id, evidence.identity)
    ]


def with_rows(snapshots: SnapshotStore, newest: Snapshot) -> Snapshot:
    """The snapshot with the rows of the batch whose newest snapshot is `newest`, or `newest` if it
    has expired. The compactions behind a batch change no row: if another engine replaces such a
    snapshot, no batch is lost.
    """
    batch = newest.commit_user, newest.commit_identifier
    below = snapshots.walk_down(newest.id - 1) if newest.commit_kind is CommitKind.COMPACT else ()
    for one in below:
        if one.commit_user != batch[0]:
            continue
        if one.commit_identifier != batch[1]:
            break
        if one.commit_kind is not CommitKind.COMPACT:
            return one
    return newest


def _own_entry(entry: JournalEntry | None, identity: WriterIdentity) -> JournalEntry | None:
    """The entry, unless another query wrote it under a commit user that was given to both."""
    return entry if entry is not None and is_of_query(entry.query_id, identity) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """What a walk down the snapshots found: our newest snapshot; whether it reached the table's
    first one; one that another incarnation of this stream published; by user, those of this batch
    or later ones that the same query published under other users, and the newest one of each user;
    and one of ours that is not known to lie in the lineage.
    """

    own: Snapshot | None
    complete: bool
    incarnation: Snapshot | None
    siblings: Mapping[str, Snapshot]
    newest_of: Mapping[str, Snapshot]
    beside: Snapshot | None = None


def _search(evidence: Evidence) -> _History:
    snapshots, latest = evidence.snapshots, evidence.latest
    incarnation = None
    lowest: Snapshot | None = None
    beside: Snapshot | None = None
    siblings: dict[str, Snapshot] = {}
    newest_of: dict[str, Snapshot] = {}
    if latest is not None:
        for snapshot in snapshots.walk_down(latest):
            if is_own(snapshot, evidence.identity):
                if not in_lineage(snapshots, snapshot, latest):
                    beside = snapshot  # all below has expired
                    break
                return _History(
                    own=snapshot,
                    complete=True,
                    incarnation=incarnation,
                    siblings=siblings,
                    newest_of=newest_of,
                )
            lowest = snapshot
            if snapshot.commit_identifier != BATCH_IDENTIFIER:
                newest_of.setdefault(snapshot.commit_user, snapshot)
            marks = Marks.of(own_properties(snapshot))
            if incarnation is None and _same_stream(evidence.identity, snapshot.commit_user, marks):
                incarnation = snapshot
            if _is_sibling(evidence, snapshot):
                siblings.setdefault(snapshot.commit_user, snapshot)
    whole = latest is None
    if latest is not None and lowest is not None and lowest.id == 1:
        whole = in_lineage(snapshots, lowest, latest) is True
    return _History(
        own=None,
        complete=whole,
        incarnation=incarnation,
        siblings=siblings,
        newest_of=newest_of,
        beside=beside,
    )


def _is_sibling(evidence: Evidence, snapshot: Snapshot) -> bool:
    """Whether our query published this batch or a later one under another commit user."""
    query_id = Marks.of(own_properties(snapshot)).query_id
    return (
        query_id is not None
        and query_id == evidence.identity.query_id
        and snapshot.commit_user != evidence.identity.user
        and evidence.batch.batch_id <= snapshot.commit_identifier < BATCH_IDENTIFIER
    )


def _same_stream(identity: WriterIdentity, user: str, other: Marks | RegisteredWriter) -> bool:
    """Whether another query has written from our checkpoint path, name or commit user."""
    if None in (other.query_id, identity.query_id) or other.query_id == identity.query_id:
        return False
    return (
        user == identity.user
        or (other.checkpoint is not None and other.checkpoint == identity.checkpoint)
        or (other.query_name is not None and other.query_name == identity.query_name)
    )


def _of_this_table(entry: JournalEntry | None, evidence: Evidence) -> JournalEntry | None:
    """The entry, unless it belongs to another table that was at this location."""
    return None if entry is None or entry.schema_digest != evidence.schema_digest else entry


def _without_given_up(
    entry: JournalEntry | None, given_up: tuple[tuple[int, int], ...]
) -> JournalEntry | None:
    """The entry, unless an operator has given its batch up, and without the batch before, if that
    was given up: the run that removes these entries may have been killed.
    """
    if entry is None or _is_given_up(entry.batch_id, given_up):
        return None
    previous = entry.previous
    if previous is not None and _is_given_up(previous.batch_id, given_up):
        return replace(entry, previous=None)
    return entry


def _judge_table(
    evidence: Evidence, entries: tuple[JournalEntry | None, ...], refuse: ReplayErrors
) -> bool:
    """Is this still the table that the stream wrote to? A stream is registered in a table after it
    was judged there. So with a register of this table, entries of another one are remains: an
    operator has let the stream continue here.
    """
    registered = evidence.registered
    noted = entries if registered is None else (registered,)
    if all(one is None or one.schema_digest == evidence.schema_digest for one in noted):
        return True
    refuse.table_replaced(
        "the table's first schema is not the one it had when this stream last wrote here"
    )
    return False


def _judge_identity(evidence: Evidence, history: _History, refuse: ReplayErrors) -> bool:
    """Does this stream continue where another checkpoint wrote, or did it have another name?
    Returns whether an operator let it continue although batches of its old name are lost.
    """
    identity, registered = evidence.identity, evidence.registered
    if registered is not None:
        known = registered.query_id is None or registered.query_id == identity.query_id
        if not known and identity.query_id is not None:
            refuse.checkpoint_reset(registered.query_id, f"commit user {identity.user!r}")
            return False
    elif history.own is not None or _judge_incarnation(evidence, history, refuse):
        return False
    newest = _newest_own(evidence, history)
    if newest >= evidence.batch.batch_id or _judge_published_as(evidence, history, refuse):
        return False
    if newest + 1 == evidence.batch.batch_id:
        return False  # the batch before was written under this name
    return _judge_renamed(evidence, history, newest, refuse)


def _newest_own(evidence: Evidence, history: _History) -> int:
    """The newest batch that this commit user is known to have committed, by its snapshots or its
    journal; -1 if there is none.
    """
    last = _of_this_table(_own_entry(evidence.last_entry, evidence.identity), evidence)
    own = -1 if history.own is None else history.own.commit_identifier
    if last is None or last.batch_id <= own:
        return own
    is_committed = not _went_on_without(evidence, evidence.identity.user, last)
    if not is_committed and evidence.latest is not None:
        # The query may have run the batch under both names. What the table mentions was committed.
        is_committed = evidence.files_mentioned(evidence.latest, last) > 0
    return last.batch_id if is_committed else own


def _judge_incarnation(evidence: Evidence, history: _History, refuse: ReplayErrors) -> bool:
    """Has another query written here from this checkpoint path, under this query's name or this
    commit user? Where another sink of this query is registered with the same path or name, that was
    judged when it was let in. Returns whether one has, and an operator let this one continue.
    """
    identity, theirs = evidence.identity, history.incarnation
    is_judged = any(
        (one.checkpoint is not None and one.checkpoint == identity.checkpoint)
        or (one.query_name is not None and one.query_name == identity.query_name)
        for one in evidence.siblings
    )
    if theirs is not None and (theirs.commit_user == identity.user or not is_judged):
        marks = Marks.of(own_properties(theirs))
        refuse.checkpoint_reset(marks.query_id, f"snapshot {theirs.id}")
        return True
    for other in () if is_judged else evidence.others():
        if _same_stream(identity, other.user, other):
            refuse.checkpoint_reset(other.query_id, f"commit user {other.user!r}")
            return True
    return False


def _judge_published_as(evidence: Evidence, history: _History, refuse: ReplayErrors) -> bool:
    """Has this sink published the batch under another name, or may it have? Returns whether it may,
    and an operator let it continue.
    """
    user = evidence.identity.user
    here = "is new here" if evidence.registered is None else "has not published it"
    for other, sibling in history.siblings.items():
        if _is_other_sink(evidence, sibling):
            continue
        refuse.history_unknown(
            f"this query published batch {sibling.commit_identifier} as commit user {other!r} (snapshot "
            f"{sibling.id}). No sink of this run writes as that user so far, and {user!r} {here}. It may be "
            "the same sink under another name; then give it its old name back"
        )
        return True
    if history.own is not None:
        return False  # what was published since stands above it
    for one in evidence.old_names:
        if _may_have_published(evidence, history, one):
            refuse.history_unknown(
                f"this query wrote here as commit user {one.user!r}, and may have published this batch as that user "
                f"in a snapshot that has expired. No sink of this run writes as that user so far, and "
                f"{user!r} {here}. It may be the same sink under another name; then give it its old name back"
            )
            return True
    return False


def _is_other_sink(evidence: Evidence, sibling: Snapshot) -> bool:
    """Whether the commit user of a snapshot of this query is known to be another sink: it was in
    one run with this one, or is in this run.
    """
    user, run = sibling.commit_user, Marks.of(own_properties(sibling)).run_id
    theirs = evidence.runs_of(user)
    if run is not None:
        theirs |= {escape_user(run)}
    return not theirs.isdisjoint(evidence.runs_of(evidence.identity.user)) or evidence.claimed(user)


def _judge_renamed(evidence: Evidence, history: _History, above: int, refuse: ReplayErrors) -> bool:
    """A sink that has no batch here above that one may have had another name since. Then the batches
    of that commit user are its own, and if they were removed, it has lost them. A user whose
    batches another one has continued, and has a batch here, was judged when that one began, as was
    what an operator has given up since. Returns whether an operator let this batch continue without
    them.
    """
    if evidence.batch.batch_id == 0:
        return False
    siblings, old = evidence.siblings, evidence.old_names
    present = [
        one
        for one in (siblings if old else ())
        if one.user in history.newest_of or evidence.last_of(one) is not None
    ]
    for one in old:
        given_up = (*evidence.given_up, *_given_up_as(one, old))
        last_entry, newest = evidence.last_of(one), history.newest_of.get(one.user)
        standing = above if newest is None else max(above, newest.commit_identifier)
        if last_entry is None or _is_given_up(last_entry.batch_id, given_up):
            missing = range(standing + 1, evidence.batch.batch_id)
            if _refuse_noted_of(evidence, one.user, given_up, missing, refuse):
                return True
        elif standing < last_entry.batch_id:
            if any(
                other is not one and _continues(evidence, other, one, last_entry)
                for other in present
            ):
                continue
            if _judge_lost_batch(evidence, one.user, last_entry, refuse):
                return True
            standing = last_entry.batch_id
        if _refuse_elsewhere(evidence, one, given_up, standing, refuse):
            return True
    return False


def _given_up_as(
    one: RegisteredWriter, old: Collection[RegisteredWriter]
) -> Iterator[tuple[int, int]]:
    """What an operator has given up of the batches of a commit user, under it or under another that
    may be a later name of it. One that was in a run with it is another sink.
    """
    for other in old:
        if other is one or other.runs.isdisjoint(one.runs):
            yield from other.given_up


def _is_given_up(batch_id: int, given_up: tuple[tuple[int, int], ...]) -> bool:
    """Whether one of the ranges, as in `RegisteredWriter`, has the batch."""
    return any(first <= batch_id <= last for first, last in given_up)


def _continues(
    evidence: Evidence, other: RegisteredWriter, one: RegisteredWriter, last_entry: JournalEntry
) -> bool:
    """Whether another commit user of the query began where `one` ended, whose newest entry this is:
    with that batch or the next one. One that began with that batch has prepared it later: else the
    two are sinks of one query. A batch that was removed after the other one began has not been
    judged then. Two that have had a journal since one batch above 0 are two sinks, unless the other
    attempt was surely made after the removal, in a run apart, which ran the whole batch again.
    """
    since, batch_id = other.journal_since, last_entry.batch_id
    if one.journal_since is None or since not in (batch_id, batch_id + 1):
        return False
    if one.journal_since > since:
        return False
    began_together = one.journal_since == since > 0
    again = evidence.entry_of(other, batch_id) if since == batch_id else None
    if again is None:  # it began with the next batch, or has trimmed that entry since
        fate = _noted(evidence, one.user, last_entry).fate
        return not began_together and fate in (Fate.EXPIRED, Fate.IN_TABLE)
    if again.attempted_millis < last_entry.attempted_millis:
        return False
    removals = evidence.removals()
    removed = removals.of_uuid(last_entry.stage_uuids[0])
    if removed is None:
        return not began_together
    is_later = not began_together or _are_apart(evidence, (one, last_entry), (other, again))
    return is_later and _is_made_after(removed, again, removals)


def _are_apart(
    evidence: Evidence,
    one: tuple[RegisteredWriter, JournalEntry],
    other: tuple[RegisteredWriter, JournalEntry],
) -> bool:
    """Whether two commit users, each with an entry of a batch, have been in no run together, as far
    as is known, and the other one is in none with ours.
    """
    (one_user, one_entry), (other_user, other_entry) = one, other
    runs, other_runs = one_user.runs, other_user.runs
    entries = one_entry.run_id, other_entry.run_id
    is_known = bool(runs and other_runs) and None not in entries
    return (
        is_known
        and runs.isdisjoint(other_runs)
        and entries[0] != entries[1]
        and not evidence.claimed(other_user.user)
    )


def _is_made_after(removed: Removed, entry: JournalEntry, removals: Removals) -> bool:
    """Whether an attempt was surely made after the removal: five minutes later, or upon its target
    or above it. What stood there before, the removal took and noted.
    """
    if is_before(removed, entry.attempted_millis):
        return True
    base, target = entry.newest or entry.base, removed.target
    return (
        base is not None
        and target is not None
        and base.id >= target.id
        and not any(removals.of_uuid(uuid) for uuid in entry.stage_uuids)
    )


def _may_have_published(evidence: Evidence, history: _History, other: RegisteredWriter) -> bool:
    """Whether another commit user of this query may have published the batch or a later one in a
    snapshot that has expired since. What still stands is among `history.siblings`. A snapshot of an
    earlier batch of that user, in the lineage, shows that none of a later one was above it. Of a
    sink that is registered under its own name, only an entry of the other's journal is a reason to
    think so, or each outage would be one.
    """
    latest, newest = evidence.latest, history.newest_of.get(other.user)
    if history.complete:
        return False
    if latest is not None and newest is not None and in_lineage(evidence.snapshots, newest, latest):
        return False
    noted, batch_id = evidence.noted_by(other), evidence.batch.batch_id
    if evidence.registered is not None:
        return noted.newest is not None and noted.newest >= batch_id
    return noted.may_have(batch_id)


def _judge_known(
    evidence: Evidence,
    own: Snapshot,
    entry: JournalEntry | None,
    last_entry: JournalEntry | None,
    refuse: ReplayErrors,
) -> Verdict:
    """Our newest snapshot exists: compares its identifier with the batch. A doubtful batch that an
    operator lets continue has no dead entry, because the files that the entry names may be those of
    the published batch.
    """
    snapshots, seen = evidence.snapshots, evidence.seen
    batch_id, marks = evidence.batch.batch_id, Marks.of(own_properties(own))
    if own.commit_identifier >= batch_id and marks.query_id is None and evidence.identity.query_id:
        refuse.checkpoint_reset(None, f"snapshot {own.id} (batch {own.commit_identifier})")
        return Fresh(seen=seen)
    if own.commit_identifier > batch_id:
        refuse.checkpoint_rewound(
            f"the table holds batch {own.commit_identifier} of this stream (snapshot {own.id})"
        )
        return Fresh(seen=seen)
    if own.commit_identifier == batch_id:
        if marks.run_id is not None and marks.run_id == evidence.identity.run_id:
            raise duplicate_writer(refuse.location, refuse.user)
        if _is_ahead(evidence.batch, own):
            refuse.checkpoint_rewound(
                f"batch {batch_id} was committed (snapshot {own.id}) with other source offsets than this checkpoint's"
            )
            return Fresh(seen=seen)
        return AlreadyCommitted(seen=seen, snapshot=own, dead=entry)
    newest = with_rows(snapshots, own)
    published = PreviousBatch(batch_id=own.commit_identifier, snapshot=SnapshotRef.of(newest))
    if _judge_created(evidence, newest, refuse):
        return Fresh(seen=seen, own=published)
    previous = None if entry is None else entry.previous
    noted = -1 if previous is None else previous.batch_id
    known = max(-1 if last_entry is None else last_entry.batch_id, noted)
    if (
        last_entry is not None
        and own.commit_identifier < known
        and noted < known
        and _went_on_without(evidence, evidence.identity.user, last_entry)
    ):
        if _refuse_removed(evidence, evidence.identity.user, last_entry, refuse):
            return Fresh(seen=seen, own=published)
        known = noted
    if own.commit_identifier < known:
        lost = previous if previous is not None and previous.batch_id == known else None
        others = _others_above(snapshots, last_entry, known)
        is_refused = _refuse_rolled_back(evidence, lost, last_entry, known, refuse) or (
            lost is not None and _judge_previous(snapshots, lost, refuse)
        )
        if not is_refused and last_entry is not None and others:
            refuse.journalled_lost(last_entry, others)
        elif not is_refused:
            held = f"but the newest snapshot of this stream is {own.id} with batch {own.commit_identifier}"
            refuse.table_rolled_back(f"batch {known} was committed, {held}")
        return Fresh(seen=seen, own=published)
    if own.commit_identifier + 1 < batch_id:
        _judge_gap(evidence, own, refuse)
    return (
        Fresh(seen=seen, own=published)
        if entry is None
        else Reuse(seen=seen, own=published, entry=entry)
    )


def _judge_gap(evidence: Evidence, own: Snapshot, refuse: ReplayErrors) -> None:
    """Batches between our newest snapshot and this batch left no snapshot. Batches without rows
    leave none. Where the journal has each batch that reached its commit, they had none. Otherwise
    they may have been removed, if a rollback has noted one of them, or if the stream is not
    registered here. All that vouches lies in the table's folder, so an older copy of that folder
    looks like batches without rows: the gap is said, and stops nothing.
    """
    batch_id = evidence.batch.batch_id
    if evidence.registered is None:
        refuse.checkpoint_ahead(own)
        return
    if _refuse_noted(evidence, _unjournalled(evidence, own.commit_identifier), refuse, own=own):
        return
    given_up = evidence.given_up
    if _refuse_elsewhere(evidence, evidence.registered, given_up, own.commit_identifier, refuse):
        return
    refuse.left_nothing(own.commit_identifier + 1, batch_id - 1)


def _refuse_elsewhere(
    evidence: Evidence,
    written_as: RegisteredWriter,
    given_up: tuple[tuple[int, int], ...],
    above: int,
    refuse: ReplayErrors,
) -> bool:
    """Has the query written a batch above that one in another branch, or in main, in place of this
    one, under the commit user of this register? Returns whether it has, and an operator let this
    batch continue all the same.
    """
    last = _last_not_given_up(range(above + 1, evidence.batch.batch_id), given_up)
    missing = range(above + 1, 0 if last is None else last + 1)
    batch_and_branch = evidence.elsewhere(written_as, missing) if missing else None
    if batch_and_branch is None:
        return False
    refuse.written_elsewhere(*batch_and_branch)
    return True


def _unjournalled(evidence: Evidence, above: int) -> range:
    """The batches `above` that one and before this one for which no journal vouches. From
    `journal_since` on none that left no entry reached its commit.
    """
    batch_id, since = evidence.batch.batch_id, evidence.journal_since
    return range(above + 1, batch_id if since is None else min(since, batch_id))


def _refuse_noted(
    evidence: Evidence, missing: range, refuse: ReplayErrors, *, own: Snapshot | None = None
) -> bool:
    """Is one of the batches that are `missing` here named by a note? A note that is older than our
    newest snapshot, `own`, does not count: the checkpoint ran that batch again. Returns whether one
    is, and an operator let this batch continue all the same.
    """
    user, is_known = evidence.identity.user, evidence.registered is not None
    return _refuse_noted_of(
        evidence, user, evidence.given_up_as_any, missing, refuse, own=own, doubts_count=is_known
    )


def _refuse_noted_of(
    evidence: Evidence,
    user: str,
    given_up: tuple[tuple[int, int], ...],
    missing: range,
    refuse: ReplayErrors,
    *,
    own: Snapshot | None = None,
    doubts_count: bool = True,
) -> bool:
    """The same of the batches of a commit user that are missing. Those that an operator has given
    up do not count, because the notes of them stay, nor do those of a query that had the commit
    user before. A note that cannot be read may name each of the others, if the user has written
    here (`doubts_count`).
    """
    last = _last_not_given_up(missing, given_up)
    if last is None:
        return False
    removals = evidence.removals()
    noted = [
        (batch_id, removed.is_proven, removed)
        for batch_id, removed in noted_batches(evidence, user, given_up, missing)
        if not (own is not None and _is_older(removed, own, removals))
        and not _stands_still(evidence, removed)
    ]
    if noted:
        last, _, newest = max(noted, key=itemgetter(0, 1))
        answer = judge_notes(removals, newest)
    else:
        answer = judge_notes(removals if doubts_count else Removals(), None)
    if answer.fate is Fate.UNKNOWN and not noted:
        refuse.maybe_have_had_rows(last, answer.why)
    elif answer.fate is not Fate.EXPIRED:
        refuse.gone(last, answer)
    elif doubts_count and (by := _took_expired(evidence, removals, own)) is not None:
        why = f"a {by} has also taken snapshots that had expired, and only a journal would show whose they were"
        refuse.maybe_have_had_rows(last, why)
        return True
    return answer.fate is not Fate.EXPIRED


def noted_batches(
    evidence: Evidence,
    user: str,
    given_up: tuple[tuple[int, int], ...],
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
            and not _is_given_up(batch_id, given_up)
        ):
            yield batch_id, removed


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


def _last_not_given_up(batches: range, given_up: tuple[tuple[int, int], ...]) -> int | None:
    """The last of the batches that no operator has given up; None if there is none."""
    last = batches.stop - 1
    for first_of_range, last_of_range in sorted(given_up, reverse=True):
        if first_of_range <= last <= last_of_range:
            last = first_of_range - 1
    return last if last in batches else None


def _others_above(
    snapshots: SnapshotStore, entry: JournalEntry | None, known: int
) -> list[Snapshot]:
    """The snapshots of other engines, ascending, if one of them may have replaced that of the known
    batch: the one on which the batch was made still stands, and none above it is missing. Otherwise
    none.
    """
    latest = snapshots.latest()
    if latest is None or entry is None or entry.batch_id != known:
        return []
    base = entry.newest or entry.base
    if base is not None and not snapshots.stands(base):
        return []
    window = published_after(snapshots, base, latest)
    return [one for one in window.snapshots if not is_ours(one)] if window.complete else []


def _refuse_rolled_back(
    evidence: Evidence,
    lost: PreviousBatch | None,
    last_entry: JournalEntry | None,
    batch_id: int,
    refuse: ReplayErrors,
) -> bool:
    """A batch that was committed is not in the table. Does a note say that a rollback took its
    snapshot, that of `lost`, or its newest attempt, that of `last_entry`? Then another engine has
    not replaced it, whoever stands in its place, and `recommit` would refuse. Returns whether one
    does, and an operator let the next batch continue all the same.
    """
    removals = evidence.removals()
    notes = [None if lost is None else removals.of_nonce(lost.snapshot.nonce)]
    if last_entry is not None and last_entry.batch_id == batch_id:
        notes.append(removals.of_uuid(last_entry.stage_uuids[0]))
    proven = next((one for one in notes if one is not None and one.is_proven), None)
    if proven is None:
        return False
    refuse.gone(batch_id, judge_notes(removals, proven))
    return True


def _judge_previous(
    snapshots: SnapshotStore, previous: PreviousBatch, refuse: ReplayErrors
) -> bool:
    """A batch that is known to be committed is not in the table's lineage. Reports why, if the
    batch's own snapshot shows the reason. Returns whether it does.
    """
    kept, latest = snapshots.find(previous.snapshot.id), snapshots.latest()
    if kept is None or latest is None:
        return False
    if kept.nonce != previous.snapshot.nonce:
        refuse.commit_lost(previous, kept, snapshots.storage)
    else:
        refuse.beside_the_line(previous, latest)
    return True


def _judge_entry(
    evidence: Evidence, entry: JournalEntry, last: JournalEntry | None, refuse: ReplayErrors
) -> Verdict:
    """No snapshot of ours is left, but the journal has an attempt at this very batch."""
    snapshots, latest, seen = evidence.snapshots, evidence.latest, evidence.seen
    previous = entry.previous
    if previous is not None:
        kept = snapshots.find(previous.snapshot.id)
        replaced = is_replaced(snapshots, previous.snapshot, latest)
        if kept is not None and replaced is not False:
            if not _refuse_rolled_back(evidence, previous, last, previous.batch_id, refuse):
                refuse.commit_lost(previous, kept, snapshots.storage, proven=replaced is True)
            return Fresh(seen=seen)
        if last is None and _judge_lost_snapshot(evidence, previous, refuse):
            return Fresh(seen=seen)
    base = 0 if entry.base is None else entry.base.id
    cut = _cut_above_ours(evidence, entry, last)
    if cut is None and base > (0 if latest is None else latest.id):
        refuse.table_rolled_back(
            f"this batch was prepared on snapshot {base}, which the table no longer has"
        )
        return Fresh(seen=seen)
    if last is not None and _judge_lost_batch(evidence, evidence.identity.user, last, refuse):
        return Fresh(seen=seen)
    if latest is not None and cut is not None and published_after(snapshots, cut, latest).complete:
        return Reuse(seen=seen, entry=replace(entry, base=cut, newest=None))
    if latest is None or _shows_all_since(snapshots, entry.base, latest):
        return Reuse(seen=seen, entry=entry)
    gone = (
        "have expired, or are those of another history, and none of its files is part of the table"
    )
    why = f"the snapshots since {base}, on which an earlier run had prepared this batch, {gone}"
    return _judge_files(evidence, entry, refuse, why)


def _cut_above_ours(
    evidence: Evidence, entry: JournalEntry, last: JournalEntry | None
) -> SnapshotRef | None:
    """Where the rollbacks ended that took the snapshot on which an attempt at this batch was made,
    if it is certain that they took none of the batches before: the newest one stands below, the
    newest manifests mention the last one that was journalled, or none had rows. The attempt itself
    was above, so whether it is in the table shows above the cut. None where the table was built on
    the attempt's base, and where any of this is not known.
    """
    base, latest, previous = entry.base, evidence.latest, entry.previous
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
        is_ours_below = not _unjournalled(evidence, -1)
    return cut if is_ours_below else None


def _shows_all_since(snapshots: SnapshotStore, base: SnapshotRef | None, latest: Snapshot) -> bool:
    """Whether all snapshots of the lineage after `base` stand. If the table was not built on `base`,
    as after a fast forward to a branch with other snapshots of these ids, those above its id are
    not all: then none of the table may be missing.
    """
    if not published_after(snapshots, base, latest).complete:
        return False
    if base is None or fate_of(snapshots, base, latest).is_held:
        return True
    return bool(published_after(snapshots, None, latest).complete)


def _judge_lost_snapshot(evidence: Evidence, previous: PreviousBatch, refuse: ReplayErrors) -> bool:
    """Only the entry of this batch names the one before it, whose snapshot is gone. Returns whether
    an operator let this batch continue although it may be missing.
    """
    removals = evidence.removals()
    answer = judge_notes(removals, removals.of_nonce(previous.snapshot.nonce))
    refuse.gone(previous.batch_id, answer)
    return answer.fate is not Fate.EXPIRED


def _judge_files(
    evidence: Evidence, entry: JournalEntry | None, refuse: ReplayErrors, why: str
) -> Verdict:
    """The snapshots do not show whether the batch was published (`why`). A live file of an attempt
    is a proof.
    """
    latest, seen = evidence.latest, evidence.seen
    if latest is not None and entry is not None and evidence.files_live(latest, entry):
        return AlreadyCommitted(seen=seen, snapshot=None, dead=entry)
    refuse.history_unknown(why)
    return Fresh(seen=seen)


def _judge_lost_batch(
    evidence: Evidence, user: str, last_entry: JournalEntry, refuse: ReplayErrors
) -> bool:
    """No snapshot of this commit user of ours is left, but Spark continued after an earlier batch
    that was journalled, so it was committed above the newest snapshot of its judgement. It has
    expired, or was rolled back if none is missing above that one. Returns whether an operator let
    the next batch continue all the same.
    """
    snapshots, latest = evidence.snapshots, evidence.latest
    if _refuse_removed(evidence, user, last_entry, refuse):
        return True
    if _went_on_without(evidence, user, last_entry):
        return False
    base = last_entry.newest or last_entry.base
    replaced = base is not None and is_replaced(snapshots, base, latest)
    whole = latest is None or published_after(snapshots, base, latest).complete
    others = _others_above(snapshots, last_entry, last_entry.batch_id)
    if others and not replaced:
        refuse.journalled_lost(last_entry, others)
    elif replaced or whole:
        refuse.table_rolled_back(
            f"batch {last_entry.batch_id} was committed, and its snapshot is gone"
        )
    elif None in (replaced, whole):
        refuse.maybe_rolled_back(last_entry.batch_id)
    else:
        if not _is_mentioned(evidence, last_entry):
            refuse.unproven(last_entry)
        return False
    return True


def _refuse_removed(
    evidence: Evidence, user: str, entry: JournalEntry, refuse: ReplayErrors
) -> bool:
    """Do the notes say that a batch which a commit user had journalled was removed, or may have
    been? Returns whether they do, and an operator let the next batch continue all the same.
    """
    answer = _noted(evidence, user, entry)
    refuse.gone(entry.batch_id, answer)
    return answer.fate in (Fate.ROLLED_BACK, Fate.UNKNOWN)


def _went_on_without(evidence: Evidence, user: str, entry: JournalEntry) -> bool:
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
    runs = _published_in(evidence, {one.user for one in others}, batches, base)
    journalled = [evidence.last_of(one) for one in others]
    runs += [
        one.run_id
        for one in journalled
        if one is not None
        and one.batch_id in batches
        and base <= (0 if one.base is None else one.base.id)
    ]
    return any(run is not None and escape_user(run) not in mine for run in runs)


def _published_in(
    evidence: Evidence, users: Collection[str], batches: range, above: int
) -> list[str | None]:
    """The runs that have published such batches of our query under these commit users, in snapshots
    above an id.
    """
    runs = []
    latest_id = 0 if evidence.latest is None or not users else evidence.latest.id
    for snapshot in evidence.snapshots.walk_down(latest_id):
        if snapshot.id <= above:
            break
        marks = Marks.of(own_properties(snapshot))
        is_ours = snapshot.commit_user in users and marks.query_id == evidence.identity.query_id
        if is_ours and snapshot.commit_identifier in batches:
            runs.append(marks.run_id)
    return runs


def _noted(evidence: Evidence, user: str, entry: JournalEntry) -> Answer:
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
            and not _is_given_up(batch, given_up)
        )

    answer = fate_of_batch(
        evidence.removals(), entry.stage_uuids, entry.attempted_millis, took_this_batch
    )
    latest = evidence.latest
    if answer.fate is not Fate.EXPIRED and latest and evidence.files_live(latest, entry):
        return Answer(fate=Fate.IN_TABLE)
    return answer


def _is_mentioned(evidence: Evidence, entry: JournalEntry) -> bool:
    """Whether the newest manifests mention a file of the batch, which proves that it was part of
    this history; also if it had no files.
    """
    has_files = any(message.new_files for message in entry.messages)
    latest = evidence.latest
    return not has_files or latest is None or evidence.files_mentioned(latest, entry) > 0


def _judge_created(evidence: Evidence, own: Snapshot | None, refuse: ReplayErrors) -> bool:
    """Is the table, or the branch, younger than the previous batch of this checkpoint? A register
    or a snapshot of ours is then that of a run on a copy of the checkpoint. Clocks differ by up to
    five minutes, so a snapshot that is not five minutes younger than the batch shows nothing; nor
    does a table that is not five minutes younger, if our query has registered in it. In a table
    that does not know the query, no tolerance holds: a table that was created again within five
    minutes would be taken for the one before. Returns whether an operator let the batch continue
    all the same.
    """
    done, created = evidence.batch.previous_done_millis, evidence.made_millis
    if done is None or done >= created:
        return False
    if own is not None:
        is_ours = own.time_millis < done + CLOCKS_DIFFER_MILLIS
    else:
        is_ours = _knows_query(evidence) and created < done + CLOCKS_DIFFER_MILLIS
    if is_ours:
        return False
    refuse.created_later(done_millis=done, created_millis=created)
    return True


def _began_here(evidence: Evidence, last: JournalEntry | None) -> bool:
    """Whether this checkpoint has a batch in this very table: it was let in with this one or a
    later one, or `last`, the newest entry of an earlier batch here, may be of the batch that the
    checkpoint has done. The register of a run on a copy of the checkpoint shows nothing, nor does
    an attempt that is five minutes younger than the batch that was done.
    """
    registered, since = evidence.registered, evidence.journal_since
    if registered is None:
        return False
    done, path = evidence.batch.previous_done_millis, evidence.identity.checkpoint
    if last is not None and (done is None or last.attempted_millis < done + CLOCKS_DIFFER_MILLIS):
        return True
    # An operator may have let it continue in this table. The register has the batch of then.
    is_of_copy = None not in (registered.checkpoint, path) and registered.checkpoint != path
    return not is_of_copy and (since is None or since >= evidence.batch.batch_id)


def _knows_query(evidence: Evidence) -> bool:
    """Whether this query has registered in this very table, under this commit user or another."""
    registered, query_id = evidence.registered, evidence.identity.query_id
    is_known = (
        registered is not None
        and query_id is not None
        and registered.query_id == query_id
        and registered.schema_digest == evidence.schema_digest
    )
    return is_known or bool(evidence.siblings)


def _is_new_sink(evidence: Evidence, refuse: ReplayErrors) -> bool:
    """Whether the query has written this table under another commit user, and never under this one:
    a sink leaves its register before it commits a batch. The claim of an earlier run shows only
    that one has begun. But its register may have been lost: then the journal has its batches, or,
    after a rollback, a note names it.
    """
    if evidence.has_earlier_run or evidence.later_entry is not None or not evidence.siblings:
        return False
    if len(evidence.runs) == 1:
        return True
    is_noted = any(
        one.user == evidence.identity.user and is_of_query(one.query, evidence.identity)
        for one in evidence.removals().removed
    )
    return bool(refuse.options.value(JOURNAL)) and not is_noted


def _judge_unknown(
    evidence: Evidence, history: _History, last: JournalEntry | None, refuse: ReplayErrors
) -> None:
    """No snapshot of ours and no attempt at this batch. Is that a proof that it was never
    committed? `last` is the newest entry of an earlier batch in this table's journal.
    """
    batch_id, since = evidence.batch.batch_id, evidence.journal_since
    if evidence.registered is None and batch_id == 0:
        return  # a stream that begins
    if _is_new_sink(evidence, refuse):
        return  # a sink that a query got, which had written here before
    if not _began_here(evidence, last) and _judge_created(evidence, None, refuse):
        return
    # The journal shows nothing of the batches before `since`: a note may. Where it has an earlier
    # batch, that was compared with the notes.
    if batch_id > 0 and last is None:
        _refuse_noted(evidence, _unjournalled(evidence, -1), refuse, own=history.own)
    newest, registered = -1 if last is None else last.batch_id, evidence.registered
    if registered is not None:
        _refuse_elsewhere(evidence, registered, evidence.given_up, newest, refuse)
    # That an operator lets it continue without earlier batches does not show that this one is new.
    if since is not None and batch_id >= since:
        return  # every batch that reached its commit was journalled first
    if not history.complete:
        refuse.history_unknown(
            "no snapshot of this stream or journal of this batch is left, and older ones expired"
        )
