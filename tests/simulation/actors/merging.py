"""A stream whose batches are merged into the rows of the table."""

from __future__ import annotations

from paimon_stream.change.merge_clauses import MergeWords
from paimon_stream.stream.merged_batch import MergeSource
from tests.simulation.actors.base import Work
from tests.simulation.actors.streams import Stream
from tests.simulation.changing import Merge, drawn_source
from tests.simulation.state import Token, stream_of


class MergingStream(Stream):
    """A stream with a merge. A batch that is run again has the same rows, and takes effect once, on
    the rows of the snapshot on which it is published.
    """

    kind = "merging stream"

    @property
    def merge(self) -> MergeWords:
        return Merge(()).words(self.world)

    @property
    def commit(self) -> Token:
        """The present batch: no name of its files says of which batch they are."""
        return stream_of(self.user), self.at

    def begin(self) -> Work | None:
        work = super().begin()
        self.owes = work in (self.batch, self.examined_batch)
        return work

    def rows_of_batch(self, user: str) -> MergeSource:
        merge = Merge(())
        if self.has_rows:
            merge = self._planned()
        return MergeSource(read=merge.table, drain=lambda: None)

    def _planned(self) -> Merge:
        """The rows of the present batch, which stay what they were when it was planned."""
        known = self.world.changes.get(self.commit)
        if isinstance(known, Merge):
            return known
        head = self.truth.head
        rows = None if head is None else head.rows
        merge = Merge(drawn_source(self.world, rows, 1 + self.at % 3))
        self.world.changes[self.commit] = merge
        return merge
