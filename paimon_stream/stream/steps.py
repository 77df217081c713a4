"""The values that the steps of one batch hand on: the judged, the written, the published and the
settled batch (one_batch.py). No step changes such a value.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import cast

from paimon_stream.change.anew import ComputedChange
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.request import (
    ChangeSource,
    CommitRequest,
    Nothing,
    Published,
    Sight,
    Superseded,
)
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.watched_files import WatchedFiles
from paimon_stream.errors import TableReplaced
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.storage.base import BufferedOutputs, Storage
from paimon_stream.storage.together import Meter, tally_of
from paimon_stream.stream.run import StreamRun
from paimon_stream.stream.sequence_conflicts import fresh_numbering
from paimon_stream.stream.standing import Standing, Target
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh, Reuse, Verdict
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.table import Merge, Table
from paimon_stream.table.table import evolve as evolve_table


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBatch:
    """A batch with the verdict on it.

    Attributes:
        run: the run.
        batch: the batch.
        verdict: the verdict.
        standing: how the run stands after the judgement. Its memory is still that of the previous
            batch.
        sight: what was seen of the table, so that the commit need not read it again; None if it
            must be read again.
        knows_none_later: whether the journal shows that no later batch was published.
        began_millis: when the judgement began (epoch milliseconds).
        meter: counts the requests since the judgement began.
        phases: the milliseconds that each phase has taken so far.
    """

    run: StreamRun
    batch: Batch
    verdict: Verdict
    standing: Standing
    sight: Sight | None
    knows_none_later: bool
    began_millis: int
    meter: Meter
    phases: Mapping[str, float]

    @property
    def target(self) -> Target:
        """The table that the batch was judged on."""
        return self.standing.known_target

    @property
    def table(self) -> Table:
        """The table with the schema that the batch is written in."""
        return self.target.table

    def evolve(self, merge: Merge) -> Table:
        """Publishes the schema that `merge` makes of the table's newest schema, if the two differ.
        Returns the table with that schema. If the batch then fails, the next attempt finds the new
        schema. Raises what `evolve` in `table/table.py` raises.
        """
        return evolve_table(self.table, merge, self.run.options, self.target.digest)

    def on(self, table: Table) -> "JudgedBatch":
        """The judged batch, with the table that `evolve` has returned."""
        target = self.target.with_table(self.run, table, self.target.digest)
        sight = self.sight
        if target is not self.target:
            sight = None  # it was taken with the old schema
        return replace(self, standing=replace(self.standing, target=target), sight=sight)

    def anew(self) -> "JudgedBatch":
        """The judged batch, to be written anew. Files that were prepared or written before are not
        used.
        """
        verdict = self.verdict
        if isinstance(verdict, Reuse):
            verdict = Fresh(seen=verdict.seen, own=verdict.own, dead=verdict.dead)
        return replace(self, verdict=verdict, sight=None)

    def numbers(self) -> Numbering | None:
        """Sequence numbers for rows that are about to be written. For dynamic buckets, the
        numbering also has the index manifest by which keys get their buckets, unless each batch
        replaces the whole table. None without a primary key, and for rows that get their numbers
        later. Raises `CorruptMetadata`, `StorageError`.
        """
        latest = None if self.sight is None else self.sight.latest
        verdict = self.verdict
        previous = None if isinstance(verdict, AlreadyCommitted) else verdict.own
        return fresh_numbering(
            self.table,
            self.target.committer,
            latest,
            own=None if previous is None else previous.snapshot,
            replaces=self.run.overwrites,
        )

    def buffered(self) -> BufferedOutputs | None:
        """A storage that holds files in this process until they are sent with the manifests. The
        driver uses it for rows that it writes itself to an object store or to HDFS, because
        requests take long there. None for other storages.
        """
        if tally_of(self.run.storage) is None:
            return None
        return BufferedOutputs(self.run.storage)

    def require_same_table(self, digest: str) -> None:
        """Raises `TableReplaced` if tasks that began before the judgement have written to another
        table. `digest` is that of the first schema of the table to which the tasks wrote.
        """
        if digest != self.target.digest:
            raise TableReplaced(
                "the table was dropped and created again while the rows were written. Nothing was "
                "published. If the new table should get these rows, restart the query."
            ).of_table(self.run.storage.location)

    def written(
        self,
        messages: tuple[CommitMessage, ...],
        *,
        numbering: Numbering | None = None,
        buffered: BufferedOutputs | None = None,
        phases: Mapping[str, float] | None = None,
    ) -> "WrittenBatch":
        """The batch with the files that the messages name. The parameters are the attributes of
        `WrittenBatch`.
        """
        assert not isinstance(self.verdict, AlreadyCommitted)
        return WrittenBatch(
            judged=self,
            verdict=self.verdict,
            messages=messages,
            numbering=numbering,
            buffered=buffered,
            phases=phases or {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """A batch whose data files are written, or prepared by an earlier run.

    Attributes:
        judged: the batch as it was judged.
        verdict: the verdict on the batch.
        messages: the commit messages with its files.
        numbering: the numbering of rows that this run wrote into a table with a primary key; None
            for other rows.
        buffered: files that are not sent yet.
        change: what a merge of the batch's rows does to the table. The messages then name all of
            its files, and fit only the rows from which it was computed; None without a merge, and
            if it changes nothing.
        phases: the milliseconds that judging and writing took, for the report.
    """

    judged: JudgedBatch
    verdict: Fresh | Reuse
    messages: tuple[CommitMessage, ...]
    numbering: Numbering | None
    buffered: BufferedOutputs | None
    change: ComputedChange | None = None
    phases: Mapping[str, float]

    @property
    def has_changes(self) -> bool:
        """Whether the batch changes the table: it has files, deletes rows, or replaces the table."""
        run = self.judged.run
        return bool(self.messages) or run.overwrites or self.change is not None

    def anew(self) -> JudgedBatch:
        """The batch, to be written again. The time that was used so far is added to the next
        attempt's.
        """
        return replace(self.judged.anew(), phases=self.phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBatch:
    """A batch that is in the table, or that had nothing to publish.

    Attributes:
        written: the batch, with its files.
        entry: the journal's entry of the attempt.
        outcome: the result of the commit.
        journalled: whether the entry was to be recorded (`PreparedEntry.wanted`).
        journal_millis: the milliseconds that writing the entry took.
        saw_all: whether all snapshots since the judgement were seen.
    """

    written: WrittenBatch
    entry: JournalEntry
    outcome: Published | Nothing
    journalled: bool
    journal_millis: float
    saw_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledBatch:
    """A batch that is done. A compaction may come behind it (`Standing.behind`).

    Attributes:
        run: the run.
        standing: how the run stands now.
        report: what was done.
        changes: the changes of the batch's snapshots; None if this run made none.
    """

    run: StreamRun
    standing: Standing
    report: CommitReport
    changes: Changes | None

    @property
    def batch_id(self) -> int:
        """The id of the batch."""
        return self.report.identifier

    @property
    def table(self) -> Table:
        """The table, with the schema of the batch."""
        return self.standing.known_target.table

    @property
    def has_published(self) -> bool:
        """Whether this run has published or found a batch, so that a compaction can be published
        behind it.
        """
        memory = self.standing.memory
        return memory is not None and memory.own is not None and bool(self.standing.marks)

    def watch(
        self, base: Base | None, partitions: Collection[bytes], below: int | None
    ) -> tuple[Base, WatchedFiles]:
        """See `Committer.watch`. Raises `CorruptMetadata`, `StorageError`."""
        return self.standing.known_target.committer.watch(base, partitions, below)

    def publish_compaction(self, source: ChangeSource) -> Published | None:
        """Publishes a compaction behind the last batch that this run has published or found, under
        the id and with the marks of that batch. Returns None if nothing was published: no such
        batch is known, another run has begun, or the changes no longer fit. Raises what
        `Committer.commit` raises.
        """
        run = self.run
        memory = self.standing.memory
        if memory is None or memory.own is None or not self.has_published or not run.claims.holds():
            return None
        request = CommitRequest(
            user=run.identity.user,
            identifier=memory.own.batch_id,
            source=source,
            kind=CommitKind.COMPACT,
            properties=self.standing.marks,
            seen=memory.seen,
            stage_uuid=run.runtime.ids.uuid(),
            is_newest=run.claims.holds,
        )
        outcome = self.standing.known_target.committer.commit(request)
        if isinstance(outcome, Superseded) and outcome.is_open:
            refuse = run.refusals_of(memory.own.batch_id, self.table)
            raise refuse.superseded_and_open(outcome.snapshot)
        if not isinstance(outcome, Published):
            return None
        return outcome


def for_driver(table: Table, buffered: BufferedOutputs | None) -> Table:
    """The table, as the driver uses it to write rows itself. Its files go to `buffered`, if there
    is such a storage.
    """
    if buffered is None:
        return table
    return replace(table, storage=cast("Storage", buffered))
