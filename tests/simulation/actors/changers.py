"""Those who change rows: they update, delete and merge, by the package's own reading and writing."""

from __future__ import annotations

from collections.abc import Callable

from paimon_stream.change.delete_rows import DeleteReport, delete_rows
from paimon_stream.change.merge_into import MergeReport, merge_into
from paimon_stream.change.update_rows import UpdateReport, update_rows
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from tests.simulation import rules
from tests.simulation.actors.base import TAKEN_AWAY, Work
from tests.simulation.actors.writers import Writer
from tests.simulation.changing import (
    CONDITIONS,
    Change,
    Deletion,
    Merge,
    Rows,
    Update,
    drawn_source,
)
from tests.simulation.state import Violation


class Changer(Writer):
    """Changes rows. What it reports must be what became of them: a change that is done is in the
    table once, and one that has failed is not. If it has found no row to change, there was a moment
    at which the table had none.
    """

    owes = True
    expects = TAKEN_AWAY

    def __post_init__(self) -> None:
        self.began = 0

    def begin(self) -> Work | None:
        if not self.world.changing:
            return None
        self.ready()
        change, work = self.next_change()
        self.began = len(self.truth.line)
        world, works = self.world, self.works + 1
        world.changes[f"work of {self.name}", works] = change
        return work

    def next_change(self) -> tuple[Change, Callable[[], object]]:
        """The next change, and what carries it out."""
        raise NotImplementedError

    def succeeded(self, result: object) -> None:
        assert isinstance(result, (UpdateReport, DeleteReport, MergeReport))
        process, truth = self.ready(), self.truth
        if result.snapshot_id is not None:
            truth.acknowledge(self.commit, process)
            return
        if process.drops != truth.drops or process.upsets != truth.upsets or truth.beside:
            return
        change, line = self.world.changes[self.commit], truth.line
        earlier = line[self.began - 1] if self.began else None
        for state in (earlier, *line[self.began :]):
            rows = Rows() if state is None else state.rows
            if rows is None or not change.at(self.world, rows.rows):
                return
        raise Violation(rules.CHANGED, f"{self.name} finds nothing to change: {self.doing}")

    def failed(self, error: PaimonStreamError) -> None:
        head, process = self.truth.head, self.ready()
        if isinstance(error, CommitUnknown) or head is None or process.drops != self.truth.drops:
            return
        if self.commit in head.commits:
            raise Violation(rules.CHANGED, f"{self.name} fails, and its change is there: {error!r}")


class Updater(Changer):
    """Adds a number to the values of some rows."""

    kind = "updater"

    def next_change(self) -> tuple[Change, Callable[[], object]]:
        process, where = self.ready(), self.world.choices.pick(CONDITIONS)
        number = self.works + 1
        self.doing = f"an update that adds {number} where {where.words}"
        return Update(where, number), lambda: update_rows(
            self.table,
            where.expression,
            updates={"v": f"v + {number}"},
            runtime=process.runtime,
        )


class SecondUpdater(Updater):
    """Another one at the same time."""

    kind = "second updater"


class RowDeleter(Changer):
    """Deletes some rows."""

    kind = "deleter of rows"

    def next_change(self) -> tuple[Change, Callable[[], object]]:
        process, where = self.ready(), self.world.choices.pick(CONDITIONS)
        self.doing = f"a deletion where {where.words}"
        return Deletion(where), lambda: delete_rows(
            self.table, where.expression, runtime=process.runtime
        )


class Merger(Changer):
    """Merges a few rows: some have keys that are there, and others not."""

    kind = "merger"

    def next_change(self) -> tuple[Change, Callable[[], object]]:
        process, head = self.ready(), self.truth.head
        rows = None if head is None else head.rows
        merge = Merge(drawn_source(self.world, rows, 1 + self.works % 3))
        self.doing = f"a merge of {merge.source}"
        return merge, lambda: merge_into(
            self.table, merge.table(), merge.words(self.world), runtime=process.runtime
        )


CHANGERS: tuple[type[Changer], ...] = (Updater, RowDeleter, Merger, SecondUpdater)
