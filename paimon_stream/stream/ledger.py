"""The ledger: was this batch committed, may it be committed, or must an operator decide? The rows
in `judgement.py` decide that. This module walks through the rows to a verdict. The rules are in
exactly-once.md §2 and §4, and in semantics.md R1.3-R1.5. This module writes nothing.
"""

from dataclasses import replace

from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.options import JOURNAL
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import OwnStands, WindowWhole
from paimon_stream.stream.finding import walk
from paimon_stream.stream.judgement import ROWS, Outcome
from paimon_stream.stream.known_facts import Facts
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.stream.verdicts import AlreadyCommitted, Fresh, Reuse, Verdict
from paimon_stream.table.journal import JournalEntry, PreviousBatch


def judge_evidence(evidence: Evidence, refuse: StreamRefusals) -> Verdict:
    """Judges a batch from everything that the storage holds. Used for the first batch of a run, and
    for a later batch that the run's memory does not decide. Raises the `ReplayError` that says what
    cannot be proven, and which option lets an operator decide.
    """
    facts = Facts(evidence, journals=bool(refuse.options.value(JOURNAL)))
    return _verdict(walk(facts, ROWS, refuse), facts)


def _verdict(outcome: Outcome, facts: Facts) -> Verdict:
    """The verdict that follows from an outcome. If an operator lets a doubtful batch continue, no
    journal entry counts as dead, because the files that the entry names may be those of the
    published batch.
    """
    seen = facts.evidence.seen
    entry = facts.entry
    if outcome is Outcome.COMMITTED:
        snapshot = None
        if facts.ask(OwnStands) is OwnStands.THIS_BATCH:
            snapshot = facts.own
        return AlreadyCommitted(seen=seen, snapshot=snapshot, dead=entry)
    if outcome is Outcome.REUSE and entry is not None:
        return Reuse(seen=seen, own=_newest_of_ours(facts), entry=_above_cut(facts, entry))
    return Fresh(seen=seen, own=_newest_of_ours(facts))


def _newest_of_ours(facts: Facts) -> PreviousBatch | None:
    """Our newest published batch; None if it is not an earlier batch than the judged one."""
    newest = facts.own_with_rows
    if newest is None:
        return None
    return PreviousBatch(batch_id=facts.history.own_id, snapshot=SnapshotRef.of(newest))


def _above_cut(facts: Facts, entry: JournalEntry) -> JournalEntry:
    """The journal entry of the attempt. If rollbacks removed its base, the entry is returned as if
    the attempt had been prepared on the cut, the lowest target of these rollbacks.
    """
    if (
        facts.ask(OwnStands) is OwnStands.BELOW
        or facts.ask(WindowWhole) is not WindowWhole.ALL_SINCE_CUT
    ):
        return entry
    return replace(entry, base=facts.cut, newest=None)
