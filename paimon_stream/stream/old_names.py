"""Judges what the query has written under the old names of a sink. An old name is another commit
user of the query that this sink may have had before (exactly-once.md §1).
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
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.table.fate import Fate, is_before
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.layout import escape_user
from paimon_stream.table.lineage import in_lineage
from paimon_stream.table.register import RegisteredWriter
from paimon_stream.table.removals import Removals, Removed

_OF_NOTES: Final = {
    EarlierNoted.REMOVED: OldNameWrote.ROLLED_BACK,
    EarlierNoted.MAY_BE_REMOVED: OldNameWrote.MAY_HAVE_LOST,
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
    """What an old name of this sink has published or lost. `last` is the newest journal entry of an
    earlier batch of this stream in the table. `journals` says whether the stream's journal is on.
    """
    if evidence.registered is None and history.own is not None:
        return Finding(OldNameWrote.NONE)
    batch_id = evidence.batch.batch_id
    newest = newest_known(evidence, history, last)
    if newest >= batch_id:
        return Finding(OldNameWrote.NONE)
    published = _which_published(evidence, history)
    if published is not None:
        return published
    lost = None
    if newest + 1 < batch_id:  # the previous batch was not written under this name
        lost = _which_lost(evidence, history, newest)
    is_open = lost is None or lost.value is OldNameWrote.UNPROVEN
    if is_open and not journals and evidence.registered is not None and history.own is None:
        expired = _which_expired(evidence, history, JournalledBatches.may_have)
        if expired is not None:
            return expired
    if lost is None:
        return Finding(OldNameWrote.NONE)
    return lost


def _which_published(evidence: Evidence, history: OwnHistory) -> Finding[OldNameWrote] | None:
    """Has this sink published the batch under another name, or may it have done so? None if not."""
    user = evidence.identity.user
    here = "is new here" if evidence.registered is None else "has not published it"
    for old_user, snapshot in history.published_as.items():
        if not _is_other_sink(evidence, snapshot):
            return Finding(
                OldNameWrote.PUBLISHED,
                _history_unknown(
                    f"this query published batch {snapshot.commit_identifier} as commit user {old_user!r} (snapshot "
                    f"{snapshot.id}). No sink of this run writes as that user so far, and {user!r} {here}. It may be "
                    "the same sink under another name; then give it its old name back"
                ),
            )
    if history.own is not None:
        return None  # what was published since our snapshot stands above it
    if evidence.registered is None:
        return _which_expired(evidence, history, JournalledBatches.may_have)
    # The journal of the old name must have an entry. Otherwise every pause of the query would look
    # like a loss.
    return _which_expired(evidence, history, JournalledBatches.has)


def _which_expired(
    evidence: Evidence,
    history: OwnHistory,
    may_have: Callable[[JournalledBatches, int], bool],
) -> Finding[OldNameWrote] | None:
    """May this sink have published the batch under another name, in a snapshot that has expired
    since? None if not. `may_have` says whether the journal of the other name may have the batch.
    """
    user = evidence.identity.user
    here = "is new here" if evidence.registered is None else "has not published it"
    for old_name in evidence.old_names:
        if _may_have_published(evidence, history, old_name, may_have):
            return Finding(
                OldNameWrote.MAY_HAVE_PUBLISHED,
                _history_unknown(
                    f"this query wrote here as commit user {old_name.user!r}, and may have published this batch as that user "
                    f"in a snapshot that has expired. No sink of this run writes as that user so far, and "
                    f"{user!r} {here}. It may be the same sink under another name; then give it its old name back"
                ),
            )
    return None


def _history_unknown(cause: str) -> Say:
    return lambda refuse: refuse.history_unknown(cause)


def _is_other_sink(evidence: Evidence, snapshot: Snapshot) -> bool:
    """Whether the commit user of a snapshot of this query is known to be another sink: it was in
    one run with this sink, or a sink of this run writes as that user.
    """
    user = snapshot.commit_user
    run_id = Marks.of(own_properties(snapshot)).run_id
    runs = evidence.runs_of(user)
    if run_id is not None:
        runs |= {escape_user(run_id)}
    if not runs.isdisjoint(evidence.runs_of(evidence.identity.user)):
        return True
    return evidence.claimed(user)


def _may_have_published(
    evidence: Evidence,
    history: OwnHistory,
    old_name: RegisteredWriter,
    may_have: Callable[[JournalledBatches, int], bool],
) -> bool:
    """Whether the old name may have published the batch or a later one in a snapshot that has
    expired since. A snapshot that still stands is among `history.published_as`. If an earlier batch
    of that user has a snapshot in the lineage, no later batch of the user has expired: expiry takes
    the oldest snapshots first.
    """
    if history.complete:
        return False
    latest = evidence.latest
    newest = history.newest_of.get(old_name.user)
    if latest is not None and newest is not None and in_lineage(evidence.snapshots, newest, latest):
        return False
    return may_have(evidence.others.journalled_by(old_name), evidence.batch.batch_id)


def _which_lost(
    evidence: Evidence, history: OwnHistory, above: int
) -> Finding[OldNameWrote] | None:
    """The first batch that an old name has lost or may have lost. If there is no such batch, a
    finding that warns of batches whose files nothing mentions. None if there are no such batches
    either.
    """
    sayings: list[Say] = []
    for finding in _losses(evidence, history, above):
        sayings.append(finding.say)
        if finding.value is not OldNameWrote.UNPROVEN:
            return Finding(finding.value, _all_of(sayings))
    if not sayings:
        return None
    return Finding(OldNameWrote.UNPROVEN, _all_of(sayings))


def _losses(evidence: Evidence, history: OwnHistory, above: int) -> Iterator[Finding[OldNameWrote]]:
    """The batches that old names of this sink have lost or may have lost. A sink that has no batch
    in the table above the batch `above` may have had another name since then. In that case the
    batches of the other name are the sink's own, and those that were removed are lost. An old name
    is left out if another user continued its batches and has a batch in the table: the old name was
    judged when that user began. Batches that an operator has given up since were judged, too.
    """
    batch_id = evidence.batch.batch_id
    if batch_id == 0:
        return
    old_names = evidence.old_names
    if not old_names:
        return
    present = [
        sibling
        for sibling in evidence.siblings
        if sibling.user in history.newest_of or evidence.others.last_of(sibling) is not None
    ]
    for old_name in old_names:
        user = old_name.user
        given_up = given_up_as(evidence, user, old_names)
        last = evidence.others.last_of(old_name)
        newest = history.newest_of.get(user)
        newest_id = above
        if newest is not None:
            newest_id = max(above, newest.commit_identifier)
        if last is None or is_given_up(last.batch_id, given_up):
            noted = which_noted(evidence, user, given_up, range(newest_id + 1, batch_id))
            if noted.value in _OF_NOTES:
                yield Finding(_OF_NOTES[noted.value], noted.say)
        elif newest_id < last.batch_id:
            if any(
                sibling is not old_name and _continues(evidence, sibling, old_name, last)
                for sibling in present
            ):
                continue
            fate = which_last(evidence, user, last)
            if fate.value in _OF_LAST:
                yield Finding(_OF_LAST[fate.value], fate.say)
            newest_id = last.batch_id
        elsewhere = which_elsewhere(evidence, old_name, given_up, newest_id)
        if elsewhere.value is EarlierElsewhere.WRITTEN:
            yield Finding(OldNameWrote.WRITTEN_ELSEWHERE, elsewhere.say)


def _all_of(sayings: list[Say]) -> Say:
    def say_all(refuse: StreamRefusals) -> None:
        for say in sayings:
            say(refuse)

    return say_all


def _continues(
    evidence: Evidence,
    successor: RegisteredWriter,
    old_name: RegisteredWriter,
    last: JournalEntry,
) -> bool:
    """Whether another commit user of the query, the `successor`, began where the old name ended:
    with the batch of `last`, the newest entry of the old name, or with the next one. A successor
    that began with the same batch must have prepared it later than the old name. Otherwise the two
    are different sinks of the query. A batch that was removed after the successor began was not
    judged at that beginning. If both journals begin with the same batch above 0, the two are
    different sinks, with one exception. The successor's attempt was surely made after the removal,
    in a run without the old name: that run ran the whole batch again.
    """
    batch_id = last.batch_id
    since = successor.journal_since
    if old_name.journal_since is None or since not in (batch_id, batch_id + 1):
        return False
    if old_name.journal_since > since:
        return False
    began_together = old_name.journal_since == since > 0
    attempt = None
    if since == batch_id:
        attempt = evidence.others.entry_of(successor, batch_id)
    if attempt is None:  # the successor began with the next batch, or has trimmed the entry since
        fate = noted_fate(evidence, old_name.user, last).fate
        return not began_together and fate in (Fate.EXPIRED, Fate.IN_TABLE)
    if attempt.attempted_millis < last.attempted_millis:
        return False
    removals = evidence.removals()
    removed = removals.of_uuid(last.stage_uuids[0])
    if removed is None:
        return not began_together
    is_of_another_run = None not in (last.run_id, attempt.run_id) and last.run_id != attempt.run_id
    if began_together and not (is_of_another_run and _are_apart(evidence, old_name, successor)):
        return False
    return _is_made_after(removed, attempt, removals)


def _are_apart(evidence: Evidence, old_name: RegisteredWriter, successor: RegisteredWriter) -> bool:
    """Whether no known run had sinks of both commit users, and no sink of this run writes as the
    successor.
    """
    are_known = bool(old_name.runs and successor.runs)
    return (
        are_known
        and old_name.runs.isdisjoint(successor.runs)
        and not evidence.claimed(successor.user)
    )


def _is_made_after(removed: Removed, entry: JournalEntry, removals: Removals) -> bool:
    """Whether an attempt was surely made after the removal. That is certain if the attempt is five
    minutes younger. It is also certain if the attempt's base is the removal's target or above, and
    no note names the attempt: the removal has noted all that stood above its target.
    """
    if is_before(removed, entry.attempted_millis):
        return True
    base = entry.newest or entry.base
    target = removed.target
    return (
        base is not None
        and target is not None
        and base.id >= target.id
        and not any(removals.of_uuid(uuid) for uuid in entry.stage_uuids)
    )
