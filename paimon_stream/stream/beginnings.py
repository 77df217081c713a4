"""Answers three questions. Did the stream begin in this table? Did the sink begin there? Is the
table as old as what the checkpoint has done? (exactly-once.md §1, §2)
"""

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import (
    IdentityShared,
    SinkNew,
    TableCreated,
    TableSame,
    UserRegistered,
)
from paimon_stream.stream.finding import Finding
from paimon_stream.stream.identity import is_of_query
from paimon_stream.stream.own_history import OwnHistory, is_of_another_query, shares_path_or_name
from paimon_stream.table.fate import CLOCKS_DIFFER_MILLIS
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.register import RegisteredWriter


def which_table(
    evidence: Evidence, entry: JournalEntry | None, last: JournalEntry | None
) -> Finding[TableSame]:
    """Is the table still the one that the stream wrote to? A stream is registered in a table after
    it was judged there. So if the table has a register of the stream, journal entries of another
    table are left over from before: an operator has let the stream continue in this table.
    """
    registered = evidence.registered
    records: tuple[RegisteredWriter | JournalEntry | None, ...] = (registered,)
    if registered is None:
        records = (entry, last)
    if all(record is None or record.schema_digest == evidence.schema_digest for record in records):
        return Finding(TableSame.SAME)
    return Finding(
        TableSame.ANOTHER,
        lambda refuse: refuse.table_replaced(
            "the table's first schema is not the one it had when this stream last wrote here"
        ),
    )


def which_registered(evidence: Evidence) -> Finding[UserRegistered]:
    """Whose register has this commit user?"""
    registered = evidence.registered
    if registered is None:
        return Finding(UserRegistered.UNREGISTERED)
    if is_of_query(registered.query_id, evidence.identity):
        return Finding(UserRegistered.OURS)
    return Finding(
        UserRegistered.ANOTHERS,
        lambda refuse: refuse.checkpoint_reset(
            registered.query_id, f"commit user {evidence.identity.user!r}"
        ),
    )


def which_shared(evidence: Evidence, history: OwnHistory) -> Finding[IdentityShared]:
    """Has another query written to the table from this stream's checkpoint path, under its query's
    name or its commit user? If another sink of the query is registered with the same path or name,
    the question was answered when that sink was admitted.
    """
    if evidence.registered is not None or history.own is not None:
        return Finding(IdentityShared.NONE)
    identity = evidence.identity
    is_judged = any(shares_path_or_name(identity, sibling) for sibling in evidence.siblings)
    snapshot = history.of_another_query
    if snapshot is not None and (snapshot.commit_user == identity.user or not is_judged):
        marks = Marks.of(own_properties(snapshot))
        return _another(marks.query_id, f"snapshot {snapshot.id}")
    if is_judged:
        return Finding(IdentityShared.NONE)
    for register in evidence.others.registers():
        if is_of_another_query(identity, register.user, register):
            return _another(register.query_id, f"commit user {register.user!r}")
    return Finding(IdentityShared.NONE)


def _another(query_id: str | None, where: str) -> Finding[IdentityShared]:
    return Finding(IdentityShared.ANOTHERS, lambda refuse: refuse.checkpoint_reset(query_id, where))


def which_created(evidence: Evidence, own: Snapshot | None) -> Finding[TableCreated]:
    """Is the table, or the branch, younger than the newest earlier batch that the checkpoint notes
    as done? If it is younger, then our register or snapshot in the table comes from a run on a copy
    of the checkpoint.

    Clocks differ by up to five minutes, so a snapshot that is not five minutes younger than the
    batch shows nothing. A table that is not five minutes younger shows nothing either, if our query
    has registered in it. If the query has not registered, there is no tolerance: a table that was
    created again within five minutes would be mistaken for the previous one.
    """
    done_millis = evidence.batch.previous_done_millis
    created_millis = evidence.made_millis
    if done_millis is None or done_millis >= created_millis:
        return Finding(TableCreated.EARLIER)
    latest_millis_of_ours = done_millis + CLOCKS_DIFFER_MILLIS
    if own is not None:
        is_ours = own.time_millis < latest_millis_of_ours
    else:
        is_ours = _knows_query(evidence) and created_millis < latest_millis_of_ours
    if is_ours:
        return Finding(TableCreated.EARLIER)
    return Finding(
        TableCreated.LATER,
        lambda refuse: refuse.created_later(done_millis=done_millis, created_millis=created_millis),
    )


def has_begun_here(evidence: Evidence, last: JournalEntry | None) -> bool:
    """Whether the checkpoint may have a batch in this very table. Without a register it has none.
    With a register, there are three cases. In the first case, the batch that the checkpoint has
    done may be that of `last`, the newest journal entry of an earlier batch. An attempt that is at
    least five minutes younger than the batch that was done shows nothing. In the second case, an
    operator let the checkpoint continue in the table with the judged batch or a later one. In the
    third case, the first batch of the journal is not known. The last two cases do not count if the
    register was written by a run on a copy of the checkpoint.
    """
    registered = evidence.registered
    if registered is None:
        return False
    done_millis = evidence.batch.previous_done_millis
    if last is not None and (
        done_millis is None or last.attempted_millis < done_millis + CLOCKS_DIFFER_MILLIS
    ):
        return True
    # An operator may have let the checkpoint continue in this table. The register has the batch at
    # which it continued.
    path = evidence.identity.checkpoint
    are_known = registered.checkpoint is not None and path is not None
    if are_known and registered.checkpoint != path:
        return False  # the register is that of a run on a copy
    since = evidence.journal_since
    return since is None or since >= evidence.batch.batch_id


def _knows_query(evidence: Evidence) -> bool:
    """Whether this query has registered in this very table, under this commit user or another."""
    registered = evidence.registered
    query_id = evidence.identity.query_id
    is_known = (
        registered is not None
        and query_id is not None
        and registered.query_id == query_id
        and registered.schema_digest == evidence.schema_digest
    )
    return is_known or bool(evidence.siblings)


def which_sink(evidence: Evidence, *, journals: bool) -> Finding[SinkNew]:
    """Has the query written this table under another commit user, and never under this sink's own?
    A sink writes its register before it commits a batch. The register may have been lost. Then the
    journal has the sink's batches or, after a rollback, a note names the sink's user.

    Args:
        evidence: what the storage holds.
        journals: whether the journal is on.
    """
    if evidence.has_earlier_run or evidence.later_entry is not None or not evidence.siblings:
        return Finding(SinkNew.NOT_NEW)
    if len(evidence.runs) == 1:
        return Finding(SinkNew.NEW)
    is_noted = any(
        removed.user == evidence.identity.user and is_of_query(removed.query, evidence.identity)
        for removed in evidence.removals().removed
    )
    if is_noted or not journals:
        return Finding(SinkNew.NOT_NEW)
    return Finding(SinkNew.NEW)
