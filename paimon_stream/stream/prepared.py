"""The journal entry of a batch whose files are written."""

import logging
from dataclasses import dataclass, field

from paimon_stream.commit.report import BatchObserver, Phase
from paimon_stream.errors import NoSpace, PaimonStreamError
from paimon_stream.options import BUCKET
from paimon_stream.runtime import Clock
from paimon_stream.stream.steps import WrittenBatch
from paimon_stream.stream.verdicts import Fresh, Reuse
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.message_files import written_files
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryWrite:
    """How one write of a journal's entry ended.

    Attributes:
        millis: the milliseconds that the write took.
        may_be_there: whether the entry may be there, also after an error.
    """

    millis: float
    may_be_there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEntry:
    """The journal's entry of one batch: a `CommitJournal`. It is written before a snapshot is put,
    at the latest while the batch is staged. Once there is a snapshot, the entries of earlier
    batches are removed, except the newest.

    Attributes:
        journal: the journal of the stream.
        entry: the entry.
        observer: hears when it is written.
        clock: measures how long that takes.
        wanted: whether it is recorded at all.
        writes: how each write of the entry ended, also if the commit raised.
    """

    journal: Journal
    entry: JournalEntry
    observer: BatchObserver
    clock: Clock
    wanted: bool
    writes: list[EntryWrite] = field(default_factory=list, init=False)

    @property
    def may_be_there(self) -> bool:
        """Whether the journal may name the files of the batch."""
        return any(write.may_be_there for write in self.writes)

    @property
    def millis(self) -> float:
        """The milliseconds that writing the entry took."""
        return sum(write.millis for write in self.writes)

    def record(self) -> None:
        """Writes the entry, and adds the result to `writes`, even if the write fails. Raises
        `StorageError`.
        """
        if self.wanted:
            began = self.clock.monotonic()
            may_be_there = True
            try:
                self.journal.write(self.entry)
            except NoSpace:
                # The error proves that nothing was recorded. If the batch went on without an entry,
                # each restart would leave more files.
                may_be_there = False
                raise
            finally:
                millis = (self.clock.monotonic() - began) * 1000
                self.writes.append(EntryWrite(millis=millis, may_be_there=may_be_there))
        self.observer.reached(Phase.JOURNALED, self.entry.batch_id)

    def trim(self) -> None:
        """Removes the entries of earlier batches, except the newest. If that fails, the next batch
        tries again.
        """
        if self.wanted:
            try:
                self.journal.trim(self.entry.batch_id)
            except PaimonStreamError as error:
                _LOG.warning("Could not remove old entries of the journal: %s", error)


def journal_entry(written: WrittenBatch) -> JournalEntry:
    """The journal entry of a batch whose files are written. It also names what dead attempts at the
    batch have left.
    """
    judged = written.judged
    verdict = written.verdict
    run = judged.run
    table = judged.table
    dead_uuids: tuple[str, ...] = ()
    if verdict.dead is not None:
        dead_uuids = verdict.dead.stage_uuids
    now_millis = run.runtime.clock.now_millis()
    prepared_millis = now_millis
    reused_millis = None
    base = verdict.seen
    if isinstance(verdict, Reuse):
        newest = verdict.seen
        prepared_millis = verdict.entry.prepared_millis
        reused_millis = now_millis
        if table.schema.primary_keys:
            base = verdict.entry.base
    else:
        newest = verdict.newest
    newer = None if newest == base else newest
    # Other runs may use the rows only if they were numbered on the snapshot of the judgement. They
    # never use the files of a merge; releases that know no merges compare the offsets.
    numbering = written.numbering
    offsets_hash = None
    is_usable = numbering is None or numbering.numbered_on == verdict.seen
    if is_usable and not run.merges:
        offsets_hash = judged.batch.offsets_hash
    return JournalEntry(
        batch_id=judged.batch.batch_id,
        messages=written.messages,
        stage_uuids=(_uuid_of(written), *dead_uuids),
        abandoned=_abandoned(verdict, table),
        query_id=run.identity.query_id,
        run_id=run.identity.run_id,
        checkpoint=run.identity.checkpoint,
        query_name=run.identity.query_name,
        offsets_hash=offsets_hash,
        schema_digest=judged.target.digest,
        schema_id=table.schema.id,
        total_buckets=table.options.value(BUCKET),
        base=base,
        newest=newer,
        previous=verdict.own,
        prepared_millis=prepared_millis,
        reused_millis=reused_millis,
        overwrites=run.overwrites,
        merges=run.merges,
    )


def _uuid_of(written: WrittenBatch) -> str:
    """The uuid in the names of the metadata of this attempt. A merge has drawn it already."""
    if written.change is not None:
        return written.change.uuid
    return written.judged.run.runtime.ids.uuid()


def _abandoned(verdict: Fresh | Reuse, table: Table) -> tuple[str, ...]:
    """The files that dead attempts at the batch left, and that the new attempt does not use."""
    dead = verdict.dead
    if dead is None:
        return ()
    if isinstance(verdict, Fresh):
        return (*dead.abandoned, *written_files(table.layout, dead.messages))
    return dead.abandoned
