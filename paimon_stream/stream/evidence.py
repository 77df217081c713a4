"""The evidence on which a batch is judged from the storage. The first batch of a run is judged so,
and each later batch that the run's memory does not decide. This module judges nothing and writes
nothing.
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
    """What the journal of a stream shows of its batches.

    Attributes:
        newest: the newest batch that has an entry; None if no batch has an entry.
        since: the batch from which on the journal is complete: each later batch, and this one, has
            had an entry if it reached its commit. None if no such batch is known.
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
class OtherStreams:
    """What the table records of the streams that write under other commit users. Each attribute is
    a function that reads the storage.

    Attributes:
        registers: the registers of the other streams.
        journalled_by: what the journal of a register's commit user shows.
        last_of: the newest entry in the journal of a register's commit user that is of a batch
            before the judged one; None if there is none.
        entry_of: the entry of a batch in the journal of a register's commit user; None if there is
            none.
    """

    registers: Callable[[], tuple[RegisteredWriter, ...]]
    journalled_by: Callable[[RegisteredWriter], JournalledBatches]
    last_of: Callable[[RegisteredWriter], JournalEntry | None]
    entry_of: Callable[[RegisteredWriter, int], JournalEntry | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence that `judge_evidence` uses. An attribute that is a function reads the storage
    when it is called.

    Attributes:
        identity: the stream.
        batch: the batch that is judged.
        schema_digest: the digest of the table's first schema.
        made_millis: when the table, or the branch, was made (epoch milliseconds).
        branch: the identity of the branch, if it has one.
        snapshots: the snapshots of the table.
        latest: the latest snapshot.
        entry: the journal's entry of the judged batch.
        last_entry: the journal's newest entry of an earlier batch.
        later_entry: the journal's newest entry of a later batch.
        entries_of_main: the entries of the judged batch in main's journals, by commit user of the
            query. Only for a branch from main in which the stream has no register.
        left_in_main: whether the attempt of an entry of main, made by a commit user, is certainly
            not part of the branch.
        registered: the register of this commit user.
        others: the other streams of the table.
        files_live: how many data files of an entry's attempts are live in a snapshot.
        files_mentioned: how many data files of an entry's attempts the manifests of a snapshot
            mention.
        removals: the notes of removed snapshots.
        claimed: whether another sink of this run writes under a commit user.
        elsewhere: finds the newest of some batches that the query has in another branch or in main,
            with the name of that branch. None if there is none, or if the query has one sink here
            and another there. The first argument is the register of the commit user in question;
            None if this stream's user has no register.
        runs: this run and those whose claims stood when it began.
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
    others: OtherStreams
    files_live: Callable[[Snapshot, JournalEntry], int]
    files_mentioned: Callable[[Snapshot, JournalEntry], int]
    removals: Callable[[], Removals]
    claimed: Callable[[str], bool]
    elsewhere: Callable[[RegisteredWriter | None, range], tuple[int, str] | None]
    runs: frozenset[str] = frozenset()

    @property
    def seen(self) -> SnapshotRef | None:
        """The latest snapshot."""
        return SnapshotRef.of_optional(self.latest)

    @property
    def journal_since(self) -> int | None:
        """The batch with which the complete part of the journal begins: the journal has this batch
        and each later one, if they reached their commit. None if that batch is not known.
        """
        return vouched_since(self.registered, self.runs)

    @property
    def _decided(self) -> RegisteredWriter | None:
        """The register, if the operator's decisions that the register records are about this
        stream. None if the register is that of another table or query, or is older than a later run
        of the stream.
        """
        register = self.registered
        if (
            register is not None
            and register.schema_digest == self.schema_digest
            and is_of_query(register.query_id, self.identity)
            and is_newest_register(register, self.runs)
        ):
            return register
        return None

    @property
    def given_up(self) -> tuple[tuple[int, int], ...]:
        """The batches that an operator has given up, as ranges of ids."""
        decided = self._decided
        if decided is None:
            return ()
        return decided.given_up

    @property
    def passed_over(self) -> tuple[int, SnapshotRef] | None:
        """What is written again because an operator decided so: the first such batch, and the
        newest snapshot of the stream at that time.
        """
        decided = self._decided
        if decided is None:
            return None
        return decided.passed_over

    @property
    def knows_none_later(self) -> bool:
        """Whether the journal shows that no batch after the judged one has reached its commit."""
        since = self.journal_since
        return since is not None and since <= self.batch.batch_id + 1 and self.later_entry is None

    @property
    def has_earlier_run(self) -> bool:
        """Whether an earlier run of this stream has left traces besides the table's snapshots."""
        traces = (self.registered, self.entry, self.last_entry)
        return any(trace is not None for trace in traces)

    @property
    def siblings(self) -> tuple[RegisteredWriter, ...]:
        """The registers in this table of the same query under other commit users."""
        query_id = self.identity.query_id
        return tuple(
            register
            for register in self.others.registers()
            if query_id is not None
            and register.query_id == query_id
            and register.schema_digest == self.schema_digest
        )

    def runs_of(self, user: str) -> frozenset[str]:
        """The runs in which this commit user of the query has written, as far as they are known."""
        if user != self.identity.user:
            siblings = (sibling for sibling in self.siblings if sibling.user == user)
            return frozenset().union(*(sibling.runs for sibling in siblings))
        if self.registered is None:
            return self.runs
        return self.runs | self.registered.runs

    @property
    def old_names(self) -> tuple[RegisteredWriter, ...]:
        """The other commit users of the query that may be old names of this sink. No earlier run
        had both such a user and this sink, and no sink of this run has written as such a user so
        far.
        """
        runs = self.runs_of(self.identity.user)
        apart = [sibling for sibling in self.siblings if runs.isdisjoint(sibling.runs)]
        return tuple(sibling for sibling in apart if not self.claimed(sibling.user))
