"""What all actors share: an actor has one process at a time, which does one piece of work after
another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from paimon_stream.commit.report import Phase
from paimon_stream.errors import (
    CommitContended,
    CommitUnknown,
    CorruptMetadata,
    DeletedFiles,
    HistoryUnknown,
    NotFound,
    PaimonStreamError,
    StorageError,
    TableReplaced,
    TableRolledBack,
)
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import EMPTY_ROW
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.table.table import Table, load_table
from tests.kits.commits import FIELDS, data_file
from tests.kits.faults import Killed
from tests.simulation import rules
from tests.simulation.dynamic import written
from tests.simulation.real_files import SUFFIX
from tests.simulation.real_files import written as written_file
from tests.simulation.state import Token, Violation

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.truth import Truth
    from tests.simulation.world import World

Work = Callable[[], object]

FAILURES = (CommitUnknown, StorageError)
"""What anybody gets where the storage or the network fails."""
BESIDE_OTHERS = (CommitContended, CorruptMetadata, DeletedFiles, NotFound)
"""What anybody gets where others work on the table meanwhile."""
TAKEN_AWAY = (HistoryUnknown, TableRolledBack)
"""What a writer gets if the snapshot on which it has built was taken away, or if a rollback that has
not ended leaves that open.
"""


@dataclass(eq=False)
class Actor:
    """Somebody who works on the table. `doing` describes the present piece of work."""

    world: World
    name: str
    process: Process | None = field(default=None, init=False)
    doing: str = field(default="", init=False)
    kind: ClassVar[str] = "actor"
    may_expire: ClassVar[bool] = False
    may_roll_back: ClassVar[bool] = False
    drops: ClassVar[bool] = False
    writes: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    """Whether each piece of work runs in one step: what another engine does wrongly in between is
    no matter of this package.
    """
    without_faults: ClassVar[bool] = False
    expects: ClassVar[tuple[type[PaimonStreamError], ...]] = ()
    """The errors of its work that `FAILURES` and `BESIDE_OTHERS` do not have."""
    notes: ClassVar[bool] = False
    """Whether it notes which snapshots it removes, so that their streams must stop."""
    brings: ClassVar[str] = ""
    """How the snapshots that it puts come into the table or branch, if they were in another one."""
    remembers: ClassVar[bool] = False
    """Whether a piece of work knows what stood before it began. The work of others gets an error of
    `TAKEN_AWAY` only if something was taken away since it began.
    """
    owes: bool = field(default=False, init=False)
    """Whether the snapshots of its work are known by the piece of work that made them."""
    works: int = field(default=0, init=False)
    """How many pieces of work it has begun."""
    branch: str = field(default="", init=False)
    """The branch that it works on; the table itself if it is empty."""
    by_server: ClassVar[bool] = False
    """Whether the server of a REST catalog does this work, on its own files."""

    def __post_init__(self) -> None:
        """Actors with more to remember begin here."""

    @property
    def truth(self) -> Truth:
        """What is true of the branch that it works on."""
        return self.world.branches[self.branch] if self.branch else self.world.truth

    def storage(self) -> Storage:
        """The storage of that branch, for the present process."""
        storage = self.ready().storage
        return branch_storage(storage, self.branch) if self.branch else storage

    def begin(self) -> Work | None:
        """The next piece of work, or None if there is nothing to do."""
        raise NotImplementedError

    def succeeded(self, result: object) -> None:
        """The piece of work has ended."""

    def failed(self, error: PaimonStreamError) -> None:
        """The piece of work has failed."""

    def killed(self) -> None:
        """The process has died at work."""

    @property
    def commit(self) -> Token:
        """What stands for the present piece of work among the batches."""
        return f"work of {self.name}", self.works

    def reached(self, phase: Phase, identifier: int) -> None:
        """An observer of commits: notes how far the process is."""
        if self.process is not None:
            self.process.phase = phase

    @property
    def at_work(self) -> bool:
        """Whether it is in the middle of a piece of work, and can go on."""
        return self.process is not None and self.process.alive_at_work

    @property
    def takes_away(self) -> bool:
        """Whether its work takes away what was committed, by a rollback or a drop."""
        return self.may_roll_back or self.drops

    @property
    def exposed(self) -> bool:
        """Whether nothing but their age protects the files of the present work from an orphan
        cleaner. Its page says: choose an age above the time that the longest batch takes.
        """
        return False

    # -- how work is carried out ------------------------------------------------------------------

    def ready(self) -> Process:
        """The living process of this actor, or a new one if it has none."""
        if self.process is None or self.process.dead:
            self.restart()
        assert self.process is not None
        return self.process

    def restart(self) -> Process:
        """Ends the process, and begins another one."""
        if self.process is not None:
            self.process.kill()
        self.process = self.world.spawn(self)
        return self.process

    def ended(self) -> str:
        """Takes the outcome of the work. Returns it in words."""
        process = self.process
        assert process is not None
        self.truth.writer_ended(process)
        error = process.error
        if process.dead:
            assert error is None or isinstance(error, (Killed, PaimonStreamError)), repr(error)
            self.killed()
            return "is dead"
        if error is None:
            self.succeeded(process.result)
            return "is done"
        if not isinstance(error, PaimonStreamError):
            raise error
        if not self._has_reason(error):
            raise Violation(rules.NO_REASON, f"{self.name}: {error!r}")
        self.failed(error)
        return f"gets {type(error).__name__}"

    def _has_reason(self, error: PaimonStreamError) -> bool:
        """Whether something in this schedule explains the error."""
        process = self.ready()
        if process.drops != self.truth.drops:
            return True  # the table was dropped beside it
        if isinstance(error, TableReplaced) and process.opened_another_table:
            process.kill()  # its user starts it again, as the error says
            return True
        if isinstance(error, TAKEN_AWAY) and not self.remembers:
            took = process.upsets != self.truth.upsets or self.truth.is_torn()
            return took and self._is_expected(error)
        if self._is_expected(error):
            return True
        return isinstance(error, FAILURES) and not process.began_in_peace

    def _is_expected(self, error: PaimonStreamError) -> bool:
        return isinstance(error, (*BESIDE_OTHERS, *self.expects))

    # -- files ------------------------------------------------------------------------------------

    def table(self) -> Table:
        """The table as this process finds it now."""
        return load_table(self.storage())

    def messages(
        self,
        table: Table,
        user: str,
        batch: int | None,
        *,
        dt: str = "x",
        first: int = 0,
        rows: int = 3,
        index: str | None = None,
    ) -> tuple[CommitMessage, ...]:
        """Writes a batch. Dynamic buckets are given by that index manifest, if there is one."""
        if self.world.dynamic:
            return written(self, table, user, batch, dt=dt, first=first, rows=rows, index=index)
        return (self.message(table, user, batch, dt=dt, first=first, rows=rows),)

    def message(
        self,
        table: Table,
        user: str,
        batch: int | None,
        *,
        dt: str = "x",
        first: int = 0,
        rows: int = 3,
    ) -> CommitMessage:
        """Writes a data file with some rows. `batch` is None for rows that nobody acknowledges."""
        self.world.files += 1
        name = f"{user}-{'x' if batch is None else batch}-{self.world.files}"
        partitioned, keyed = bool(table.schema.partition_keys), bool(table.schema.primary_keys)
        partition = serialize([FIELDS[1].type], [dt]) if partitioned else EMPTY_ROW
        content, file = b"rows", data_file(name, rows, first)
        if self.world.real:
            name += SUFFIX
            content, file = written_file(self.world, table, name, dt, rows, first=first)
        self.storage().write(table.layout.data_file(partition, 0, name), content)
        if self.world.compacted:
            file = replace(file, schema_id=table.schema.id)
        if self.world.partitions_expire:
            file = replace(file, creation_time=self.world.millis)
        if keyed and not self.world.real:
            keys = sorted({self.world.source.randrange(6) for _ in range(rows)})
            if self.world.vectors:
                keys = [*keys[: rows - 1], 1000 + self.world.files]
            value = self.world.source.randrange(1000)
            self.world.values[name] = dict.fromkeys(keys, value)
            low, high = (serialize([FIELDS[0].type], [one]) for one in (keys[0], keys[-1]))
            file = replace(file, min_key=low, max_key=high, row_count=len(keys))
        return CommitMessage(
            partition=partition, bucket=0, total_buckets=self.world.buckets, new_files=(file,)
        )
