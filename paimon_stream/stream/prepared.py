"""A batch whose files are written: its journal entry, and its request to the committer."""

import logging
from collections.abc import Callable
from dataclasses import replace

from paimon_stream.commit.observer import BatchObserver, Phase
from paimon_stream.commit.overwrite import plan_overwrite
from paimon_stream.commit.request import CommitRequest, Judged
from paimon_stream.commit.sequence import Numbering
from paimon_stream.errors import CommitVetoed, NoSpace, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.journal_entry import JournalEntry
from paimon_stream.format.snapshot_json import CommitKind
from paimon_stream.options import BUCKET, FORCE_CREATE_SNAPSHOT, IGNORE_EMPTY_COMMIT
from paimon_stream.runtime import Runtime
from paimon_stream.storage.together import Request
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.evidence import Batch
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.ledger import Fresh, Reuse
from paimon_stream.table.journal import Journal
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import written_files
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)


class Note:
    """The journal's entry of one batch. It is written while the batch is staged, before a snapshot is put.
    Those of earlier batches are removed when there is one. Without `wanted` nothing is recorded."""

    def __init__(
        self, journal: Journal, entry: JournalEntry, observer: BatchObserver, runtime: Runtime, *, wanted: bool
    ) -> None:
        self._journal = journal
        self._entry = entry
        self._observer = observer
        self._clock = runtime.clock
        self._wanted = wanted
        self.may_be_there = False
        self.millis = 0.0

    def write(self) -> None:
        """Writes the entry. Raises `StorageError`."""
        if self._wanted:
            began, self.may_be_there = self._clock.monotonic(), True
            try:
                self._journal.write(self._entry)
            except NoSpace:  # it proves that nothing was recorded, and each restart would leave more files
                self.may_be_there = False
                raise
            finally:
                self.millis = (self._clock.monotonic() - began) * 1000
        self._observer.reached(Phase.JOURNALED, self._entry.batch_id)

    def trim(self) -> None:
        """Removes the entries of earlier batches, except the last. What fails is left to the next batch."""
        if self._wanted:
            try:
                self._journal.trim(self._entry.batch_id)
            except PaimonStreamError as why:
                _LOG.warning("Could not remove old entries of the journal: %s", why)


def journal_entry(
    batch: Batch,
    verdict: Fresh | Reuse,
    messages: tuple[CommitMessage, ...],
    *,
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
    reused_from = verdict.entry.prepared_millis if isinstance(verdict, Reuse) else None
    base = verdict.entry.base if isinstance(verdict, Reuse) and _keyed(table) else verdict.seen
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
        prepared_millis=reused_from or runtime.clock.now_millis(),
        overwrites=overwrites,
    )


def commit_request(
    batch: Batch,
    verdict: Fresh | Reuse,
    entry: JournalEntry,
    *,
    identity: WriterIdentity,
    table: Table,
    numbering: Numbering | None,
    summary: BatchSummary,
    fence: Callable[[], bool],
    is_newest: Callable[[], bool],
    judged: Judged | None,
    beside: tuple[Request, ...],
    after: tuple[Request, ...],
) -> CommitRequest:
    """The request to the committer: one snapshot with the batch's files and the marks of its stream.

    `numbering` is the numbering of rows that were just written. For prepared files, the journal stores only
    the snapshot on which they were judged, which is not later than the one on which they were numbered.
    """
    options = table.options
    if isinstance(verdict, Reuse) and _keyed(table):
        numbering = Numbering(base=verdict.entry.base)
    return CommitRequest(
        user=identity.user,
        identifier=batch.batch_id,
        messages=entry.messages,
        watermark=batch.watermark,
        properties={**summary.properties(), **identity.properties(batch.batch_id, batch.offsets_hash)},
        renumber=True,
        numbering=numbering,
        checked=isinstance(verdict, Reuse),
        seen=verdict.seen,
        judged=judged,
        beside=beside,
        after=after,
        stage_uuid=entry.stage_uuids[0],
        fence=fence,
        is_newest=is_newest,
        force_snapshot=options.value(FORCE_CREATE_SNAPSHOT) or not options.value(IGNORE_EMPTY_COMMIT),
    )


def replacing_all(request: CommitRequest, table: Table, manifests: ManifestStore) -> CommitRequest:
    """The request, changed so that its files replace the whole table."""
    planned = plan_overwrite(table, manifests, request.messages, partition={})
    return replace(
        request,
        messages=planned.messages,
        source=planned.source,
        kind=CommitKind.OVERWRITE,
        renumber=False,
        force_snapshot=planned.always,
    )


def veto_error(veto: Exception, location: str, batch_id: int, *, removed: bool) -> CommitVetoed:
    """The error for a batch that `before_commit` refused. `removed` says that its files are gone."""
    left = "its files were removed" if removed else "the files an earlier run had prepared stay for the next one"
    return CommitVetoed(
        f"{location}, batch {batch_id}: before_commit raised {veto!r}. Nothing was published, and {left}. "
        "The batch comes again when the query is restarted.",
        table=location,
        batch=batch_id,
    )


def _keyed(table: Table) -> bool:
    return bool(table.schema.primary_keys)
