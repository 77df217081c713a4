"""The journal entry of a batch whose files are written."""

import logging
from dataclasses import dataclass

from paimon_stream.commit.report import BatchObserver, Phase
from paimon_stream.errors import NoSpace, PaimonStreamError
from paimon_stream.options import BUCKET
from paimon_stream.runtime import Clock
from paimon_stream.stream.steps import WrittenBatch
from paimon_stream.stream.verdicts import Fresh, Reuse
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.message_files import written_files

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryWrite:
    """What a write of a journal's entry came to: its milliseconds, and whether the entry
    `may_be_there`, also after an error.
    """

    millis: float
    may_be_there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEntry:
    """The journal's entry of one batch. It is written while the batch is staged, before a snapshot
    is put. Those of earlier batches are removed when there is one. Without `wanted` nothing is
    recorded.
    """

    journal: Journal
    entry: JournalEntry
    observer: BatchObserver
    clock: Clock
    wanted: bool

    def write(self, writes: list[EntryWrite]) -> None:
        """Writes the entry, and adds to `writes` what that came to, also if it fails. Raises
        `StorageError`.
        """
        if self.wanted:
            began, may_be_there = self.clock.monotonic(), True
            try:
                self.journal.write(self.entry)
            except NoSpace:
                # It proves that nothing was recorded, and each restart would leave more files.
                may_be_there = False
                raise
            finally:
                millis = (self.clock.monotonic() - began) * 1000
                writes.append(EntryWrite(millis=millis, may_be_there=may_be_there))
        self.observer.reached(Phase.JOURNALED, self.entry.batch_id)

    def trim(self) -> None:
        """Removes the entries of earlier batches, except the last. What fails is left to the next
        batch.
        """
        if self.wanted:
            try:
                self.journal.trim(self.entry.batch_id)
            except PaimonStreamError as why:
                _LOG.warning("Could not remove old entries of the journal: %s", why)


def journal_entry(written: WrittenBatch) -> JournalEntry:
    """The journal entry of this attempt, with what it inherits from dead attempts."""
    judged, verdict = written.judged, written.verdict
    run, batch, table, dead = judged.run, judged.batch, judged.table, verdict.dead
    abandoned = () if dead is None else dead.abandoned
    if isinstance(verdict, Fresh) and dead is not None:
        abandoned += written_files(table.layout, dead.messages)
    now_millis = run.runtime.clock.now_millis()
    reused_from = verdict.entry.prepared_millis if isinstance(verdict, Reuse) else None
    base = (
        verdict.entry.base
        if isinstance(verdict, Reuse) and table.schema.primary_keys
        else verdict.seen
    )
    newest = verdict.newest if isinstance(verdict, Fresh) else verdict.seen
    # Rows that are numbered on another snapshot may be used by no run.
    numbering = written.numbering
    is_numbered_here = numbering is None or numbering.base == verdict.seen
    return JournalEntry(
        batch_id=batch.batch_id,
        messages=written.messages,
        stage_uuids=(run.runtime.ids.uuid(), *(() if dead is None else dead.stage_uuids)),
        abandoned=abandoned,
        query_id=run.identity.query_id,
        run_id=run.identity.run_id,
        checkpoint=run.identity.checkpoint,
        query_name=run.identity.query_name,
        offsets_hash=batch.offsets_hash if is_numbered_here else None,
        schema_digest=judged.target.digest,
        schema_id=table.schema.id,
        total_buckets=table.options.value(BUCKET),
        base=base,
        newest=None if newest == base else newest,
        previous=verdict.own,
        prepared_millis=now_millis if reused_from is None else reused_from,
        reused_millis=None if reused_from is None else now_millis,
        overwrites=run.overwrites,
    )
