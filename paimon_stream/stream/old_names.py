"""What the query has, or had, under another commit user that may be an old name of this sink
(exactly-once.md §1).
"""

from collections.abc import Callable, Iterator
from typing import Final

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.stream.evidence import Evidence, JournalledBatches
from paimon_stream.stream.facts import EarlierElsewhere, EarlierNoted, LastHeld, OldNameWrote
from paimon_stream.stream.finding import Finding, Say
from paimon_stream.stream.given_up import given_up_as, is_given_up
from paimon_stream.stream.last_batch import newest_known, noted_fate, which_last
from paimon_stream.stream.missing_batches import which_elsewhere, which_noted
from paimon_stream.stream.own_history import OwnHistory
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.table.fate import Fate, is_before
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.layout import escape_user
from paimon_stream.table.lineage import in_lineage
from paimon_stream.table.register import RegisteredWriter
from paimon_stream.table.removals import Removals, Removed

_OF_NOTES: Final = {
    EarlierNoted.TAKEN: OldNameWrote.ROLLED_BACK,
    EarlierNoted.MAY_BE_TAKEN: OldNameWrote.MAY_HAVE_LOST,
}
_OF_LAST: Final = {
    LastHeld.UNPROVEN: OldNameWrote.UNPROVEN,
    LastHeld.ROLLED_BACK: OldNameWrote.ROLLED_BACK,
    LastHeld.REPLACED: OldNameWrote.REPLACED,
    LastHeld.CANNOT_BE_KNOWN: OldNameWrote.MAY_HAVE_LOST,
}


def which_old_name(
    evidence: Evidence, history: OwnHistory, last: JournalEntry | None, *, journals: bool
) -> Finding[OldNameWrote]:
    """What an old name of this sink has, or has lost. `last` is the newest entry of an earlier batch
    of this stream in this table, and `journals` is whether the stream's journal is on.
    """
    if evidence.registered is None and history.own is not None:
        return Finding(OldNameWrote.NONE)
    newest, batch_id = newest_known(evidence, history, last), evidence.batch.batch_id
    if newest >= batch_id:
        return Finding(OldNameWrote.NONE)
    published = _which_published(evidence, history)
    if published is not None:
        return published
    # If the batch before was written under this name, nothing is lost.
    lost = None if newest + 1 == batch_id else _which_lost(evidence, history, newest)
    is_open = lost is None or lost.value is OldNameWrote.UNPROVEN
    if is_open and not journals and evidence.registered is not None and history.own is None:
        lost = _which_expired(evidence, history, JournalledBatches.may_have) or lost
    return lost or Finding(OldNameWrote.NONE)


def _which_published(evidence: Evidence, history: OwnHistory) -> Finding[OldNameWrote] | None:
    """Has this sink published the batch under another name, or may it have?"""
    user = evidence.identity.user
    here = "is new here" if evidence.registered is None else "has not published it"
    for other, sibling in history.siblings.items():
        if _is_other_sink(evidence, sibling):
            continue
        why = (
            f"this query published batch {sibling.commit_identifier} as commit user {other!r} (snapshot "
            f"{sibling.id}). No sink of this run writes as that user so far, and {user!r} {here}. It may be "
            "the same sink under another name; then give it its old name back"
        )
        return Finding(OldNameWrote.PUBLISHED, _unknown(why))
    if history.own is not None:
        return None  # what was published since stands above it
    if evidence.registered is None:
        return _which_expired(evidence, history, JournalledBatches.may_have)
    # Without an entry, each outage would be a reason to think so.
    return _which_expired(evidence, history, JournalledBatches.has)


def _which_expired(
    evidence: Evidence,
    history: OwnHistory,
    may_have: Callable[[JournalledBatches, int], bool],
) -> Finding[OldNameWrote] | None:
    """May this sink have published the batch under another name in a snapshot that has expired since,
    as far as the journal of that name may have it?
    """
    user = evidence.identity.user
    here = "is new here" if evidence.registered is None else "has not published it"
    for one in evidence.old_names:
        if _may_have_published(evidence, history, one, may_have):
            why = (
                f"this query wrote here as commit user {one.user!r}, and may have published this batch as that user "
                f"in a snapshot that has expired. No sink of this run writes as that user so far, and "
                f"{user!r} {here}. It may be the same sink under another name; then give it its old name back"
            )
            return Finding(OldNameWrote.MAY_HAVE_PUBLISHED, _unknown(why))
    return None


def _unknown(why: str) -> Say:
    return lambda refuse: refuse.history_unknown(why)


def _is_other_sink(evidence: Evidence, sibling: Snapshot) -> bool:
    """Whether the commit user of a snapshot of this query is known to be another sink: it was in
    one run with this one, or is in this run.
    """
    user, run = sibling.commit_user, Marks.of(own_properties(sibling)).run_id
    theirs = evidence.runs_of(user)
    if run is not None:
        theirs |= {escape_user(run)}
    return not theirs.isdisjoint(evidence.runs_of(evidence.identity.user)) or evidence.claimed(user)


def _may_have_published(
    evidence: Evidence,
    history: OwnHistory,
    other: RegisteredWriter,
    may_have: Callable[[JournalledBatches, int], bool],
) -> bool:
    """Whether another commit user of this query may have published the batch or a later one in a
    snapshot that has expired since. What still stands is among `history.siblings`. A snapshot of an
    earlier batch of that user, in the lineage, shows that none of a later one was above it.
    """
    latest, newest = evidence.latest, history.newest_of.get(other.user)
    if history.complete:
        return False
    if latest is not None and newest is not None and in_lineage(evidence.snapshots, newest, latest):
        return False
    return may_have(evidence.journalled_by(other), evidence.batch.batch_id)


def _which_lost(
    evidence: Evidence, history: OwnHistory, above: int
) -> Finding[OldNameWrote] | None:
    """The first batch that an old name has lost, or of which that is open; or remarks on those whose
    files nothing mentions. None if there is nothing to say.
    """
    said: list[Say] = []
    for finding in _losses(evidence, history, above):
        said.append(finding.say)
        if finding.value is not OldNameWrote.UNPROVEN:
            return Finding(finding.value, _all_of(said))
    return Finding(OldNameWrote.UNPROVEN, _all_of(said)) if said else None


def _losses(evidence: Evidence, history: OwnHistory, above: int) -> Iterator[Finding[OldNameWrote]]:
    """A sink that has no batch here above that one may have had another name since. Then the batches
    of that commit user are its own, and if they were removed, it has lost them. A user whose
    batches another one has continued, and has a batch here, was judged when that one began, as was
    what an operator has given up since.
    """
    batch_id = evidence.batch.batch_id
    old = evidence.old_names if batch_id > 0 else ()
    present = [
        one
        for one in (evidence.siblings if old else ())
        if one.user in history.newest_of or evidence.last_of(one) is not None
    ]
    for one in old:
        given_up = given_up_as(evidence, one.user, old)
        last, newest = evidence.last_of(one), history.newest_of.get(one.user)
        standing = above if newest is None else max(above, newest.commit_identifier)
        if last is None or is_given_up(last.batch_id, given_up):
            noted = which_noted(evidence, one.user, given_up, range(standing + 1, batch_id))
            if noted.value in _OF_NOTES:
                yield Finding(_OF_NOTES[noted.value], noted.say)
        elif standing < last.batch_id:
            if any(
                other is not one and _continues(evidence, other, one, last) for other in present
            ):
                continue
            fate = which_last(evidence, one.user, last)
            if fate.value in _OF_LAST:
                yield Finding(_OF_LAST[fate.value], fate.say)
            standing = last.batch_id
        elsewhere = which_elsewhere(evidence, one, given_up, standing)
        if elsewhere.value is EarlierElsewhere.WRITTEN:
            yield Finding(OldNameWrote.WRITTEN_ELSEWHERE, elsewhere.say)


def _all_of(said: list[Say]) -> Say:
    def say(refuse: ReplayErrors) -> None:
        for one in said:
            one(refuse)

    return say


def _continues(
    evidence: Evidence, other: RegisteredWriter, one: RegisteredWriter, last: JournalEntry
) -> bool:
    """Whether another commit user of the query began where `one` ended, whose newest entry is
    `last`: with that batch or the next one. One that began with that batch has prepared it later:
    else the two are sinks of one query. A batch that was removed after the other one began has not
    been judged then. Two that have had a journal since one batch above 0 are two sinks, unless the
    other attempt was surely made after the removal, in a run apart, which ran the whole batch again.
    """
    since, batch_id = other.journal_since, last.batch_id
    if one.journal_since is None or since not in (batch_id, batch_id + 1):
        return False
    if one.journal_since > since:
        return False
    began_together = one.journal_since == since > 0
    again = evidence.entry_of(other, batch_id) if since == batch_id else None
    if again is None:  # it began with the next batch, or has trimmed that entry since
        fate = noted_fate(evidence, one.user, last).fate
        return not began_together and fate in (Fate.EXPIRED, Fate.IN_TABLE)
    if again.attempted_millis < last.attempted_millis:
        return False
    removals = evidence.removals()
    removed = removals.of_uuid(last.stage_uuids[0])
    if removed is None:
        return not began_together
    is_later = not began_together or _are_apart(evidence, (one, last), (other, again))
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
