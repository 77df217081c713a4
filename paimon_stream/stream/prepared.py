"""The journal entry of a batch whose files are written."""

import logging
from dataclasses import dataclass

from paimon_stream.commit.report import BatchObserver, Phase
from paimon_stream.errors import NoSpace, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import BUCKET
from paimon_stream.runtime import Clock, Runtime
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.verdicts import Batch, Fresh, Reuse
from paimon_stream.table.journal import Journal, JournalEntry
from paimon_stream.table.message_files import written_files
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Note:
    """The journal's entry of one batch. It is written while the batch is staged, before a snapshot
    is put. Those of earlier batches are removed when there is one. Without `wanted` nothing is
    recorded.
    """

    journal: Journal
    entry: JournalEntry
    observer: BatchObserver
    clock: Clock
    wanted: bool
    may_be_there: bool = False
    millis: float = 0.0

    def write(self) -> None:
        """Writes the entry. Raises `StorageError`."""
        if self.wanted:
            began, self.may_be_there = self.clock.monotonic(), True
            try:
                self.journal.write(self.entry)
            except (
                NoSpace
            ):  # it proves that nothing was recorded, and each restart would leave more files
                self.may_be_there = False
                raise
            finally:
                self.millis = (self.clock.monotonic() - began) * 1000
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


def journal_entry(
    batch: Batch,
    verdict: Fresh | Reuse,
    messages: tuple[CommitMessage, ...],
    identity: WriterIdentity,
    table: Table,
    schema_digest: str,
    overwrites: bool,
    runtime: Runtime,
) -> JournalEntry:
    """The journal entry of this attempt, with what it inherits from dead attempts."""
    dead = verdict.dead
    abandoned = () if dead is None else dead.abandoned
    if isinstance(verdict, Fresh) and dead is not None:
        abandoned += written_files(table.layout, dead.messages)
    now_millis = runtime.clock.now_millis()
    reused_from = verdict.entry.prepared_millis if isinstance(verdict, Reuse) else None
    base = (
        verdict.entry.base
        if isinstance(verdict, Reuse) and table.schema.primary_keys
        else verdict.seen
    )
    newest = verdict.newest if isinstance(verdict, Fresh) else verdict.seen
    return JournalEntry(
        batch_id=batch.batch_id,
        messages=messages,
        stage_uuids=(runtime.ids.uuid(), *(() if dead is None else dead.stage_uuids)),
        abandoned=abandoned,
        query_id=identity.query_id,
        run_id=identity.run_id,
        checkpoint=identity.checkpoint,
        query_name=identity.query_name,
        offsets_hash=batch.offsets_hash,
        schema_digest=schema_digest,
        schema_id=table.schema.id,
        total_buckets=table.options.value(BUCKET),
        base=base,
        newest=None if newest == base else newest,
        previous=verdict.own,
        prepared_millis=now_millis if reused_from is None else reused_from,
        reused_millis=None if reused_from is None else now_millis,
        overwrites=overwrites,
    )
