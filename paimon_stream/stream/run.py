"""One run of one stream: which stream it is, which table it writes, and what it works with
(exactly-once.md §1).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_stream.change.merge_clauses import MergeWords
from paimon_stream.commit.report import BatchObserver
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_write import Replaced
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.stream.verdicts import Batch
from paimon_stream.table.journal import Journal
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRun:
    """What stays the same from a run's first batch to its last.

    Attributes:
        storage: the table's folder.
        identity: who the stream is.
        options: the options of the sink, which override the table's.
        replaced: what each batch replaces; None if its rows are appended or merged.
        merge: how the rows of each batch are merged into those of the table; None if they are not.
        runtime: the clock and the ids.
        observer: is told which phases a batch has reached.
        schemas: the schemas in that folder.
        snapshots: the snapshots in that folder.
        claims: the claims of this run in that folder.
        journal: the journal of this stream in that folder.
    """

    storage: Storage
    identity: WriterIdentity
    options: Mapping[str, str]
    replaced: Replaced | None
    merge: MergeWords | None
    runtime: Runtime
    observer: BatchObserver
    schemas: SchemaStore
    snapshots: SnapshotStore
    claims: Claims
    journal: Journal

    @property
    def overwrites(self) -> bool:
        """Whether each batch replaces what is in the table. A batch without rows clears the named
        partitions or the whole table, if it replaces these.
        """
        return self.replaced is not None

    @property
    def merges(self) -> bool:
        """Whether each batch is merged into the rows of the table."""
        return self.merge is not None

    def refusals(self, batch: Batch, table: Table) -> StreamRefusals:
        """The errors by which this batch may be refused. The table's options say what an operator
        has decided.
        """
        return self.refusals_of(batch.batch_id, table)

    def refusals_of(self, batch_id: int, table: Table) -> StreamRefusals:
        """As `refusals`, for the batch with this id."""
        return StreamRefusals(
            location=self.storage.location,
            user=self.identity.user,
            batch_id=batch_id,
            options=table.options,
        )
