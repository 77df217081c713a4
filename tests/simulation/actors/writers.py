"""Writers that are not streams."""

from __future__ import annotations

from paimon_stream.commit.table_commit import TableCommit
from tests.simulation.actors.base import Actor, Work


class BatchWriter(Actor):
    """Appends rows in batch commits."""

    kind = "batch writer"

    @property
    def exposed(self) -> bool:
        return True

    def begin(self) -> Work:
        process = self.ready()
        self.doing = "a batch commit"

        def work() -> object:
            table = self.table()
            writer = TableCommit(
                table, "batch", storage=process.storage, runtime=process.runtime, observer=self
            )
            numbering = writer.numbers()
            first = 0 if numbering is None else numbering.first
            return writer.append((self.message(table, "batch", None, first=first),), numbering)

        return work
