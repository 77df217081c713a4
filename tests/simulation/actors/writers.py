"""Writers that are not streams: batch writers, users of `TableCommit`, overwriters, a changer of
schemas.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc

from paimon_stream.change.delete_rows import DeleteReport, delete_rows
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CommitLost,
    DeletedFiles,
    HistoryUnknown,
    PaimonStreamError,
    SequenceConflict,
    TableRolledBack,
)
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.expire_partitions import expire_partitions
from paimon_stream.options import Options
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import is_served
from paimon_stream.table.table import Table, evolve
from tests.kits.commits import FIELDS
from tests.simulation.actors.base import TAKEN_AWAY, Actor, Work
from tests.simulation.deletes import RULE
from tests.simulation.scheduler import LONGEST_MILLIS
from tests.simulation.state import Token, Violation
from tests.simulation.vectors import marked


class Writer(Actor):
    """A writer without a journal: only their age protects its files."""

    writes = True
    expects = (CommitLost, SequenceConflict, *TAKEN_AWAY)

    @property
    def exposed(self) -> bool:
        return True

    def commit_of(self, table: Table, user: str) -> TableCommit:
        """What commits under this user, in the present process."""
        process = self.ready()
        return TableCommit(
            replace(table, storage=self.storage()), user, runtime=process.runtime, observer=self
        )

    def numbered(
        self, writer: TableCommit, table: Table, user: str, batch: int | None
    ) -> CommitMessage:
        """A new file with the next sequence numbers."""
        numbering = writer.numbers()
        dt = self.world.choices.pick(("x", "y"))
        return self.message(
            table, user, batch, dt=dt, first=0 if numbering is None else numbering.first
        )


class BatchWriter(Writer):
    """Appends rows in batch commits."""

    kind = "batch writer"

    def __post_init__(self) -> None:
        self.written: list[Token] = []

    def begin(self) -> Work:
        self.doing = "a batch commit"
        self.written.clear()
        self.ready()
        return self.work

    def work(self) -> object:
        table = self.table()
        writer = self.commit_of(table, "batch")
        numbering = writer.numbers()
        first = 0 if numbering is None else numbering.first
        dt = self.world.choices.pick(("x", "y"))
        index = None if numbering is None else numbering.index
        number = self.world.files + 1
        messages = self.messages(table, "batch", number, dt=dt, first=first, index=index)
        self.written.append(("batch", number))
        return writer.append(messages, numbering)

    def succeeded(self, result: object) -> None:
        for token in self.written:
            self.truth.acknowledge(token, self.ready())


class HastyKeeper(BatchWriter):
    """A busy table that keeps one snapshot. In one step a late put arrives, others commit twice,
    and all older snapshots expire."""

    kind = "hasty keeper"
    may_expire = True
    whole = True
    without_faults = True

    def begin(self) -> Work:
        self.doing = "two commits, and an expiry to 1 snapshot"
        self.written.clear()
        self.ready()
        while self.world.late:
            self.world.land(0)
        return self.work

    def work(self) -> object:
        super().work()
        super().work()
        return expire_snapshots(
            replace(self.table(), storage=self.expiring()),
            retain_max=1,
            retain_min=1,
            protect_streams=False,
            runtime=self.ready().runtime,
        )

    def expiring(self) -> Storage:
        """The storage of the expiry. The server of a REST catalog expires by its own files."""
        process = self.ready()
        if is_served(process.storage):
            return process.plain
        return self.storage() if self.world.locks is None else process.storage


class Committer(Writer):
    """Commits under numbers of its own, and comes back with `filter_and_commit` after a failure.
    Sometimes it aborts what it wrote, and sometimes what it has committed, which must be refused.
    """

    kind = "committer"

    def __post_init__(self) -> None:
        self.number = 0
        self.waiting: tuple[CommitMessage, ...] | None = None
        self.written_millis = 0
        self.committed: tuple[CommitMessage, ...] | None = None
        self.user = "committer"

    def begin(self) -> Work:
        self.ready()
        if self.committed is not None and self.world.choices.once_in(6):
            self.doing = "abort of what it has committed"
            return self.abort_committed
        old = self.world.millis - self.written_millis > LONGEST_MILLIS
        if self.waiting is not None and self.world.cleaned and old:
            # Nothing but their age protects these files from an orphan cleaner.
            self.number, self.waiting = self.number + 1, None
        if self.waiting is None:
            self.written_millis = self.world.millis
            self.doing = f"commit {self.number}"
            return self.first_time
        self.doing = f"commit {self.number} once more"
        return self.again

    def first_time(self) -> object:
        table = self.table()
        writer = self.commit_of(table, self.user)
        messages = (self.numbered(writer, table, self.user, self.number),)
        if self.world.choices.once_in(6):
            return writer.abort(messages)
        self.waiting = messages
        return writer.commit(self.number, messages)

    def again(self) -> object:
        assert self.waiting is not None
        return self.commit_of(self.table(), self.user).filter_and_commit(
            {self.number: self.waiting}
        )

    def abort_committed(self) -> object:
        assert self.committed is not None
        try:
            return self.commit_of(self.table(), self.user).abort(self.committed)
        except DeletedFiles:
            return None

    def succeeded(self, result: object) -> None:
        if self.waiting is not None and self.doing.startswith("commit"):
            self.world.truth.acknowledge((self.user, self.number), self.ready())
            self.committed, self.waiting = self.waiting, None
        self.number += self.doing.startswith("commit")

    def _has_reason(self, error: PaimonStreamError) -> bool:
        """What it commits once more may be in a snapshot that has expired."""
        return isinstance(error, HistoryUnknown) or super()._has_reason(error)

    def failed(self, error: PaimonStreamError) -> None:
        if isinstance(error, (DeletedFiles, HistoryUnknown, CommitLost, TableRolledBack)):
            self.number, self.waiting = self.number + 1, None


class Overwriter(Writer):
    """Replaces one partition, or the whole table. `replaced` has the partition by piece of work,
    None for the whole table. It owes its rows, and no snapshot without rows: that counts as
    published if others have removed the same files.
    """

    kind = "overwriter"
    owes = True

    def __post_init__(self) -> None:
        self.replaced: dict[Token, bytes | None] = {}
        self.written: Token | None = None

    def begin(self) -> Work | None:
        if self.world.keyed and not self.world.dynamic:
            return None
        self.doing = "an overwrite"
        self.ready()
        return self.work

    def work(self) -> object:
        table = self.table()
        dt = self.world.choices.pick(("x", "y"))
        partition = {"dt": dt} if table.schema.partition_keys else {}
        row = serialize([FIELDS[1].type], [dt]) if partition else None
        self.replaced[self.commit], self.written = row, None
        files = () if self.world.choices.once_in(3) else self.replacement(table, dt)
        return self.commit_of(table, "overwriter").overwrite(partition, files)

    def replacement(self, table: Table, dt: str) -> tuple[CommitMessage, ...]:
        """The new files. Keys that go do not keep their buckets, so no index is read."""
        numbering = self.commit_of(table, "overwriter").numbers() if self.world.dynamic else None
        number = self.world.files + 1
        self.written = "overwriter", number
        return self.messages(
            table, "overwriter", number, dt=dt, first=0 if numbering is None else numbering.first
        )

    def succeeded(self, result: object) -> None:
        if self.written is not None:
            self.truth.acknowledge(self.written, self.ready())


class PartitionExpirer(Writer):
    """Expires the partitions whose newest file is older than `age` milliseconds."""

    kind = "partition expirer"
    age = 0

    def begin(self) -> Work | None:
        if not self.world.partitioned or (self.world.keyed and not self.world.dynamic):
            return None
        process, self.age = self.ready(), self.world.choices.pick((60_000, 10_000, 240_000))
        self.doing = f"expiry of partitions older than {self.age // 1000} seconds"
        options = {
            "partition.expiration-time": f"{self.age} ms",
            "partition.expiration-strategy": "update-time",
        }

        def work() -> object:
            table = self.table()
            table = replace(table, storage=process.storage, options=Options(table.options, options))
            return expire_partitions(table, runtime=process.runtime)

        return work


class Deleter(Writer):
    """Deletes the row at one position in each file, by deletion vectors."""

    kind = "deleter"
    owes = True
    position = 0

    def __post_init__(self) -> None:
        self.planned: set[str] = set()

    def begin(self) -> Work | None:
        if not self.world.deletes:
            return None
        process, self.position = self.ready(), self.world.choices.below(3)
        self.doing = f"a deletion of row {self.position} of each file"

        self.planned.clear()
        return lambda: delete_rows(self.table, pc.field("id") >= 0, runtime=process.runtime)

    def succeeded(self, result: object) -> None:
        assert isinstance(result, DeleteReport)
        if result.snapshot_id is not None:
            self.truth.acknowledge(self.commit, self.ready())
        state = self.world.truth.there.get(result.snapshot_id or 0)
        if state is None or self.ready().upsets != self.world.truth.upsets:
            return
        for name in self.planned & state.live.keys():
            if self.position not in marked(self.world, state, state.live[name]):
                raise Violation(
                    RULE, f"{self.name}: snapshot {state.id} has row {self.position} of {name}"
                )


class SecondDeleter(Deleter):
    """Another one at the same time."""

    kind = "second deleter"


class SchemaChanger(Actor):
    """Adds a column."""

    kind = "schema changer"
    by_server = True

    def begin(self) -> Work:
        self.doing = "a new column"
        self.ready()
        return lambda: evolve(self.table(), self.with_column)

    def with_column(self, schema: TableSchema) -> TableSchema:
        new = schema.highest_field_id + 1
        column = DataField(id=new, name=f"c{new}", type=parse_type("INT"))
        return replace(
            schema, id=schema.id + 1, fields=(*schema.fields, column), highest_field_id=new
        )
