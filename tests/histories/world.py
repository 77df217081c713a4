"""One table and one query that writes to it, with what is true of its batches. Whether a batch is in
the table is read back from the table's rows, so the package has no part in the truth.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport, Phase
from paimon_stream.errors import HistoryUnknown, PaimonStreamError
from paimon_stream.maintenance.branches import create_branch
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.options import (
    JOURNAL,
    ON_CHECKPOINT_RESET,
    ON_TABLE_CHANGE,
    ON_UNKNOWN_HISTORY,
)
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.branch import branch_storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench
from tests.kits.steps import judge
from tests.kits.streams import At, PowerCut, Stream

OTHERS: Final = "others"
NAMES: Final = ("one", "two")
"""The names of the sink, which are its commit users."""
TAG: Final = "t"
BRANCH: Final = "x"
DOUBLED: Final = "doubled"
LOST: Final = "lost"
NOT_THERE: Final = "not there"
IN_VAIN: Final = "stopped in vain"
NO_END: Final = "no end"
RULES: Final[Mapping[str, str]] = {
    DOUBLED: "No batch is written that the table has.",
    LOST: "No batch is written while an earlier one is missing that nobody has given up.",
    NOT_THERE: "No batch counts as committed that the table does not have.",
    IN_VAIN: "Nobody is asked after what an outage alone explains.",
    NO_END: "A decision is asked for once.",
}
_MOST_DECISIONS: Final = 3


class Broken(Exception):
    """A rule is broken. `rule` is one of `RULES`."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class DoesNothing(Exception):
    """An event cannot happen here, or changes nothing, so a shorter history is the same."""


@dataclass(frozen=True)
class Setting:
    """What is the same in a whole history. `pace` is the time between two events, in milliseconds:
    two clocks may differ by five minutes, so what is apart by less is not known to be in order.
    """

    journal: bool = True
    pace: int = 10_000

    def __str__(self) -> str:
        return f"journal {'on' if self.journal else 'off'}, {self.pace // 1000} s between events"


ON, OFF = Setting(journal=True), Setting(journal=False)
SLOW, SLOW_OFF = Setting(pace=3_600_000), Setting(journal=False, pace=3_600_000)
"""Two events lie an hour apart, so their order is known by the clocks."""
ALL_SETTINGS = (ON, SLOW, OFF, SLOW_OFF)


@dataclass
class World:
    """A table with a snapshot of another engine, and a query that has done two batches. A tag keeps
    the first of them, and branch x was made from the tag and has a commit of another engine.

    `rows` says how many rows a batch has, `done` which batches the checkpoint has noted, and
    `given_up` those of them that an operator has let go. `again` counts, by batch, the copies that
    he has accepted.
    """

    setting: Setting = Setting()
    rows: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)
    again: Counter[int] = field(default_factory=Counter)
    others_commits: int = 0

    def __post_init__(self) -> None:
        self.bench = Bench()
        self.stream = Stream(self.bench, user=NAMES[0])
        self._copies: tuple[str, Counter[int]] = ("", Counter())
        self.others_commit()
        self.publish()
        create_tag(self.bench.table, TAG, runtime=self.bench.runtime)
        create_branch(self.bench.table, BRANCH, TAG, runtime=self.bench.runtime)
        self.others_commit(self.branch())
        self.publish()
        self.stop()

    def again_from_here(self) -> World:
        """A world of its own in the same state. No run is alive in it."""
        assert not self.is_running
        new = copy.copy(self)
        new.bench = _copied(self.bench)
        new.stream = replace(self.stream, bench=new.bench)
        new.rows, new.done, new.given_up = dict(self.rows), set(self.done), set(self.given_up)
        new.again = Counter(self.again)
        return new

    # -- the truth --------------------------------------------------------------------------------
    def copies(self) -> Counter[int]:
        """How often the table has the rows of each batch of the query."""
        newest = self.bench.latest().nonce
        if self._copies[0] != newest:
            names = [name.split("-") for name in self.bench.live_names()]
            own = [int(number) for user, number, *_ in names if user != OTHERS]
            self._copies = newest, Counter(own)
        return self._copies[1]

    def missing(self) -> set[int]:
        """The batches that the checkpoint has done, had rows, are not in the table, and were not
        given up.
        """
        copies, before = self.copies(), range(self.stream.next_batch)
        had_rows = [one for one in before if one in self.done and self.rows[one]]
        return {one for one in had_rows if not copies[one]} - self.given_up

    # -- the query --------------------------------------------------------------------------------
    def own_options(self, decisions: Mapping[str, str] | None = None) -> dict[str, str]:
        """The options of the sink, with what an operator has decided."""
        return {JOURNAL.key: str(self.setting.journal).lower(), **(decisions or {})}

    def start(
        self, observer: BatchObserver = NO_OBSERVER, decisions: Mapping[str, str] | None = None
    ) -> None:
        """Begins a new run of the query; the one before is dead."""
        self.stream.options = self.own_options(decisions)
        self.stream.start(observer)

    def stop(self) -> None:
        """The run is dead."""
        self.stream.writer = None

    @property
    def is_running(self) -> bool:
        """Whether a run is alive."""
        return self.stream.writer is not None

    def publish(self, rows: int = 10, *, dies_at: Phase | None = None) -> PaimonStreamError | None:
        """Runs the next batch, in the run that is alive or in a new one, which `dies_at` a phase.
        A batch that is run again has the rows that it had. Returns the error that refused it; then
        the run is dead. Raises `Broken`.
        """
        batch = self.stream.next_batch
        if self.rows.setdefault(batch, rows) != rows:
            raise DoesNothing
        if dies_at is not None:
            self.start(At(dies_at, Stream.cut))
        elif not self.is_running:
            self.start()
        refused = self._run(batch)
        if dies_at is not None and self.is_running:
            raise DoesNothing  # the batch was committed before, so the run had nothing to do
        return refused

    def next_batch(self) -> Batch:
        """The next batch, as Spark gives it to the sink."""
        number = self.stream.next_batch
        return Batch(
            batch_id=number,
            offsets_hash=f"{self.stream.query_id}-{number}",
            previous_done_millis=self.stream.done_millis,
        )

    def judged_alive(self) -> PaimonStreamError | None:
        """Has the next batch judged by the run that is alive, which then dies. Returns the error that
        refuses it. Raises `Broken`.
        """
        writer = self.stream.writer
        assert writer is not None
        try:
            verdict = judge(writer, self.next_batch()).verdict
        except PaimonStreamError as refused:
            return refused
        finally:
            self.stop()
        self._check(
            self.copies(), self.missing(), goes_on=not isinstance(verdict, AlreadyCommitted)
        )
        return None

    def _check(self, copies: Counter[int], missing: set[int], *, goes_on: bool) -> None:
        """Whether a verdict on the next batch was true when the table had these."""
        batch = self.stream.next_batch
        if not goes_on and not copies[batch]:
            raise Broken(NOT_THERE, f"batch {batch} counts as committed")
        if goes_on and copies[batch] > self.again[batch]:
            raise Broken(DOUBLED, f"batch {batch} is written again")
        if goes_on and missing:
            raise Broken(LOST, f"batch {batch} is written without {sorted(missing)}")

    def decide(self) -> None:
        """An operator reads why the next batch is refused, looks for its rows, and lets the query go
        on. Raises `DoesNothing` if it is not refused, or if he finds the rows; and `Broken`.
        """
        batch = self.stream.next_batch
        decisions = dict[str, str]()
        refused = self.publish(self.rows.get(batch, 10))
        if refused is None:
            raise DoesNothing
        while refused is not None:
            if len(decisions) == _MOST_DECISIONS:
                raise Broken(NO_END, str(refused))
            self._accept(refused)
            decisions[str(refused.context["option"])] = "continue"
            self.start(decisions=decisions)
            refused = self._run(batch)
        self.stop()  # the operator takes the option away

    def _accept(self, refused: PaimonStreamError) -> None:
        option, copies = refused.context.get("option"), self.copies()
        batch = self.stream.next_batch
        if option == ON_CHECKPOINT_RESET.key:
            later = {one: copies[one] for one in copies if one >= batch}
            self.again.update(later)
            return
        if option not in (ON_TABLE_CHANGE.key, ON_UNKNOWN_HISTORY.key):
            raise DoesNothing
        if isinstance(refused, HistoryUnknown) and copies[batch] > self.again[batch]:
            raise DoesNothing  # he finds the rows, and must not let it write them again
        self.given_up |= self.missing()

    def _run(self, batch: int) -> PaimonStreamError | None:
        copies, missing, rows = self.copies(), self.missing(), self.rows[batch]
        report: CommitReport | None = None
        try:
            report = self.stream.batch(rows)
        except PowerCut:
            self.stop()
        except PaimonStreamError as refused:
            self.stop()
            return refused
        self._check_done(batch, copies, missing, report)
        return None

    def _check_done(
        self, batch: int, copies: Counter[int], missing: set[int], report: CommitReport | None
    ) -> None:
        """Checks the verdict on a batch by what the table had before, and what the batch left."""
        after = self.copies()[batch]
        if report is not None:
            self.stream.next_batch = batch
        self._check(
            copies, missing, goes_on=report is None or report.outcome != "already committed"
        )
        if after > 1 + self.again[batch]:
            raise Broken(DOUBLED, f"batch {batch} is in the table {after} times")
        if report is not None:
            if self.rows[batch] and not after:
                raise Broken(LOST, f"batch {batch} is done, and not in the table")
            self.stream.next_batch = batch + 1
            self.done.add(batch)
            self.given_up.discard(batch)

    # -- others -----------------------------------------------------------------------------------
    def branch(self) -> Bench:
        """The bench of branch x."""
        branch = copy.copy(self.bench)
        branch.storage = branch_storage(self.bench.storage, BRANCH)
        branch.table = replace(self.bench.table, storage=branch.storage)
        branch.snapshots = SnapshotStore(branch.storage, self.bench.runtime)
        branch.manifests = ManifestStore(branch.storage)
        return branch

    def others_commit(self, bench: Bench | None = None) -> None:
        """Another engine commits."""
        place = bench or self.bench
        self.others_commits += 1
        name = f"{OTHERS}-{self.others_commits}"
        request = place.request(self.others_commits, [place.message(name)], user=OTHERS)
        place.committer().commit(request)

    def advance(self) -> None:
        """Time goes on."""
        self.bench.clock.advance(self.setting.pace)


def _copied(bench: Bench) -> Bench:
    """The table as it is, on a storage of its own, with a clock, dice and ids of their own that go on
    as these would.
    """
    new = copy.copy(bench)
    new.clock = SimulatedClock(bench.clock.millis)
    new.runtime = simulated(0, new.clock)
    # The dice and the ids of a simulated runtime are of one source.
    cast("Any", new.runtime.rng).source.setstate(cast("Any", bench.runtime.rng).source.getstate())
    storage = MemoryStorage(clock=new.clock)
    storage._store.folders = {
        folder: dict(files)
        for folder, files in cast("MemoryStorage", bench.storage)._store.folders.items()
    }
    new.storage, new.table = storage, replace(bench.table, storage=storage)
    new.snapshots, new.manifests = SnapshotStore(storage, new.runtime), ManifestStore(storage)
    new._metas = dict(bench._metas)
    return new
