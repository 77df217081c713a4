"""A stream without Spark: its batches, one after the other, and the compaction behind them. The
steps of one batch are in one_batch.py.

Invariant: the files of a failed batch never get into the table by mistake, and are never removed
while they may be published. Files that its journal entry names are committed or removed by the next
run. A run that is overtaken removes files without an entry itself (publishing.py). Files without an
entry of a process that died stay until `remove_orphan_files`.

What a stream stores is described where it is written: the journal in table/journal.py, the claims
in claims.py, the register in table/register.py. Of the snapshots' properties, the marks are
described in identity.py, and the summary in batch_summary.py.
"""

from collections.abc import Mapping

from paimon_stream.change.merge_clauses import MergeWords
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_write import Replaced
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.compacting import Settled, StreamCompaction
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.merged_batch import MergeSource
from paimon_stream.stream.one_batch import Rows, one_batch
from paimon_stream.stream.run import StreamRun
from paimon_stream.stream.standing import Standing
from paimon_stream.stream.steps import SettledBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.table.journal import Journal
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


class StreamWriter:
    """One run of one stream. `standing` is all that it remembers between two batches. A batch that
    ends replaces it, and so does the compaction behind the batch. A batch that fails leaves it as
    it was.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        identity: WriterIdentity,
        options: Mapping[str, str],
        replaced: Replaced | None = None,
        merge: MergeWords | None = None,
        runtime: Runtime | None = None,
        observer: BatchObserver = NO_OBSERVER,
    ) -> None:
        """Makes the run, with stores of its own. The parameters are those of `StreamRun`."""
        runtime = runtime or system()
        self.run = StreamRun(
            storage=storage,
            identity=identity,
            options=dict(options),
            replaced=replaced,
            merge=merge,
            runtime=runtime,
            observer=observer,
            schemas=SchemaStore(storage),
            snapshots=SnapshotStore(storage, runtime),
            claims=Claims(storage, identity),
            journal=Journal(storage, identity.user),
        )
        self.standing = Standing()

    @property
    def table(self) -> Table:
        """The table, with the schema of the newest batch. Raises `ValueError` before the first
        batch.
        """
        return self.standing.known_target.table

    def write(self, batch: Batch, rows: Rows | MergeSource) -> SettledBatch:
        """Runs one batch. Raises what `one_batch` raises."""
        settled = one_batch(self.run, self.standing, batch, rows)
        self.standing = settled.standing
        return settled

    def compact(self, compaction: StreamCompaction, settled: Settled) -> None:
        """Compacts behind a batch that has just ended. Never raises an `Exception`."""
        self.standing = self.standing.behind(compaction.after_batch(settled))
