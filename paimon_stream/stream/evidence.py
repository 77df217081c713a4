"""What a judgement from storage looks at: that of a run's first batch, and of a later one that its
memory does not decide. Nothing here writes, and nothing is judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.stream.identity import WriterIdentity, is_of_query
from paimon_stream.stream.verdicts import Batch
from paimon_stream.table.branch_identity import BranchIdentity
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.register import RegisteredWriter, is_newest_register, vouched_since
from paimon_stream.table.removals import Removals
from paimon_stream.table.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledBatches:
    """What the journal of a stream shows of its batches: the newest that has an entry, and the
    first from which on each that reached its commit has had one. None: there is none, or it is not
    known.
    """

    newest: int | None
    since: int | None

    def may_have(self, batch_id: int) -> bool:
        """Whether the stream may have committed the batch or a later one, as far as the journal
        shows.
        """
        return self.has(batch_id) or self.since is None or self.since > batch_id

    def has(self, batch_id: int) -> bool:
        """Whether the journal has an entry of the batch or a later one."""
        return self.newest is not None and self.newest >= batch_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What `judge_evidence` uses. `latest` is the latest snapshot, and `snapshots` has the older ones.
    `entry` is the journal's entry of this batch, `last_entry` and `later_entry` the newest ones of
    an earlier and of a later batch. `entries_of_main` are those of this batch in main, by commit
    user of the query, for a branch from main in which the stream has no register, and
    `left_in_main` says of one whether it is certain that the branch does not have it. `registered`
    is the register of this commit user, `others` those of all others, `journalled_by` what the journal
    of one of these shows, `last_of` its newest entry of an earlier batch, and `entry_of` that of a
    batch. `files_live` counts the data files of an entry's attempts that are live in a snapshot,
    and `files_mentioned` those that its manifests mention. `removals` reads the notes of removed
    snapshots; it is called only where one of ours is gone. `made_millis` is the time when the
    table, or the branch, was made, and `branch` the identity of the branch, if it has one.
    `claimed`: another sink of this run writes under a commit user. `elsewhere` is the newest of some
    batches that the query has in another branch, or in main, with the name of the branch, if it has
    no sink for each of the two. `runs` are this run and those whose claims stood when it began.
    """

    identity: WriterIdentity
    batch: Batch
    schema_digest: str
    made_millis: int
    branch: BranchIdentity | None
    snapshots: SnapshotStore
    latest: Snapshot | None
    entry: JournalEntry | None
    last_entry: JournalEntry | None
    later_entry: JournalEntry | None
    entries_of_main: Mapping[str, JournalEntry]
    left_in_main: Callable[[str, JournalEntry], bool]
    registered: RegisteredWriter | None
    others: Callable[[], tuple[RegisteredWriter, ...]]
    journalled_by: Callable[[RegisteredWriter], JournalledBatches]
    last_of: Callable[[RegisteredWriter], JournalEntry | None]
    entry_of: Callable[[RegisteredWriter, int], JournalEntry | None]
    files_live: Callable[[Snapshot, JournalEntry], int]
    files_mentioned: Callable[[Snapshot, JournalEntry], int]
    removals: Callable[[], Removals]
    claimed: Callable[[str], bool]
    elsewhere: Callable[[RegisteredWriter | None, range], tuple[int, str] | None]
    runs: frozenset[str] = frozenset()

    @property
    def seen(self) -> SnapshotRef | None:
        """The latest snapshot."""
        return None if self.latest is None else SnapshotRef.of(self.latest)

    @property
    def journal_since(self) -> int | None:
        """The first batch from which on the journal has each one that reached its commit; None if
        that is not known.
        """
        return vouched_since(self.registered, self.runs)

    @property
    def _decided(self) -> RegisteredWriter | None:
        """The register, if it is believed in what an operator has decided. One of another table or
        query says nothing of this stream.
        """
        one = self.registered
        is_believed = (
            one is not None
            and one.schema_digest == self.schema_digest
            and is_of_query(one.query_id, self.identity)
            and is_newest_register(one, self.runs)
        )
        return one if is_believed else None

    @property
    def given_up(self) -> tuple[tuple[int, int], ...]:
        """The batches that an operator has given up, as in `RegisteredWriter`."""
        return () if self._decided is None else self._decided.given_up

    @property
    def passed_over(self) -> tuple[int, SnapshotRef] | None:
        """What is written again by an operator's decision, as in `RegisteredWriter`."""
        return None if self._decided is None else self._decided.passed_over

    @property
    def knows_later(self) -> bool:
        """Whether the journal shows that no batch after this one has reached its commit."""
        since = self.journal_since
        return since is not None and since <= self.batch.batch_id + 1 and self.later_entry is None

    @property
    def has_earlier_run(self) -> bool:
        """Whether an earlier run of this stream has left traces beside the table's snapshots."""
        return any(one is not None for one in (self.registered, self.entry, self.last_entry))

    @property
    def siblings(self) -> tuple[RegisteredWriter, ...]:
        """The registers in this table of the same query under other commit users."""
        query_id = self.identity.query_id
        return tuple(
            one
            for one in self.others()
            if query_id is not None
            and one.query_id == query_id
            and one.schema_digest == self.schema_digest
        )

    def runs_of(self, user: str) -> frozenset[str]:
        """The runs in which this commit user of the query has written, as far as they are known."""
        if user != self.identity.user:
            return frozenset().union(*(one.runs for one in self.siblings if one.user == user))
        return self.runs if self.registered is None else self.runs | self.registered.runs

    @property
    def old_names(self) -> tuple[RegisteredWriter, ...]:
        """The other commit users of the query of which this sink may be a new name: they have not
        been in one run with it, and no sink of this run writes as one of them so far.
        """
        mine = self.runs_of(self.identity.user)
        apart = [one for one in self.siblings if mine.isdisjoint(one.runs)]
        return tuple(one for one in apart if not self.claimed(one.user))
