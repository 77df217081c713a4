"""One simulated world: a table, its actors, and the schedule that decides who acts when."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paimon_stream.format.types import DataField
from paimon_stream.runtime import Runtime, simulated
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.journal import JournalEntry, decode_journal_entry
from paimon_stream.table.table import create_table
from tests.kits.commits import FIELDS
from tests.simulation.actors.base import Actor
from tests.simulation.auditors import check_sums, last_look
from tests.simulation.catalogs import Locks
from tests.simulation.changing import FIELDS_OF_CHANGES, Change, Row
from tests.simulation.choices import Choices, Script
from tests.simulation.disk import Disk
from tests.simulation.faults import Fault, possible
from tests.simulation.metastore import Metastore
from tests.simulation.real_files import FIELDS_WITH_VALUE
from tests.simulation.scheduler import BURSTS, JUMPS, LONGEST_MILLIS, MINUTE, WAITS, Process
from tests.simulation.state import State, Token
from tests.simulation.truth import Truth
from tests.simulation.written import Written

STEPS = 60
TO_THE_END_RARELY = 3
"""Of this many schedules, one goes on until every stream has come to its end. The others end with
their last step or, if files are real, when everybody has come to rest.
"""
DEAD_WITH_LOCK = "dead-with-lock"
"""In place of a phase: a process has died with the lock of the catalog, and another one begins."""


@dataclass
class TableCopy:
    """The files of a table by folder and name, and what was true of it and of its branches."""

    folders: dict[str, Any]
    truth: Truth
    branches: dict[str, Truth]


@dataclass(eq=False)
class World:
    """A table and its actors. `log` has the steps in words, `late` the puts that are on their way.

    `careless` operators roll back and drop while writers are at work. The others stop them first,
    as docs/operations.md says. A `forgetful` one tries to commit again what he has rolled back.
    With `on_store` the table lies in an object store, with `on_hdfs` in HDFS. With `in_flight` the requests that are sent
    there together happen in any order. With `clocks_jump` the clocks of machines jump. `storm` is
    how many of the next requests fail. With `compacted`, somebody compacts data files. With
    `dynamic` buckets, the table has a hash index. With `tracked`, its rows have ids. With
    `vectors`, compactions mark rows by deletion vectors. With `deletes`, deleters do, and `asked`
    has the positions in each file whose rows they wanted to delete. `changing` is the kind of a table
    whose rows are changed, `changes` what its changers do, and `stored_rows` has the rows of the
    files that writers write there. With `real` files, `rows` has the id
    and the partition of each row of a file that a writer wrote. With `sums`, the values of a key add
    up. With `partitions_expire`,
    partitions expire by the age of their files. In a `history` nothing fails, and what the actors
    do to the table's history is whole. Once it is `at_rest`, no driver dies any more. `catalog` is
    the kind of catalog that the table is
    in. With `data_tokens`, its store is opened by a token. `written` says how metadata is read
    that the schedule has encoded itself. A schedule `to_the_end` goes on until
    every stream has come to its end.
    """

    seed: int
    script: Script | None = None
    log: list[str] = field(default_factory=list)
    late: list[tuple[Process, str, str, Callable[[], object]]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    values: dict[str, dict[int, int]] = field(default_factory=dict)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults_met: Counter[tuple[str, str]] = field(default_factory=Counter)
    millis: int = 1_700_000_000_000
    operations: int = 0
    files: int = 0
    serial: int = 0
    buckets: int = -1
    cleaned: bool = False
    landed: set[str] = field(default_factory=set)
    peaceful: bool = False
    at_rest: bool = False
    disturbed: bool = False
    asks_doctor: bool = False
    forgetful: bool = False
    careless: bool = True
    on_store: bool = False
    on_hdfs: bool = False
    in_flight: bool = False
    clocks_jump: bool = False
    storm: int = 0
    compacted: bool = False
    dynamic: bool = False
    tracked: bool = False
    vectors: bool = False
    deletes: bool = False
    asked: dict[str, set[int]] = field(default_factory=dict)
    changing: str = ""
    changes: dict[Token, Change] = field(default_factory=dict)
    stored_rows: dict[str, list[Row]] = field(default_factory=dict)
    real: bool = False
    sums: bool = False
    rows: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    partitions_expire: bool = False
    history: bool = False
    catalog: str = ""
    data_tokens: bool = False
    written: Written = Written.DECODED
    to_the_end: bool = field(init=False)
    verdict: Exception | None = None
    actors: list[Actor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._summed: State | None = None
        self.choices = Choices(self.seed, self.script)
        self.source = random.Random(f"values {self.seed}")
        drawn = random.Random(f"last look {self.seed}").randrange(TO_THE_END_RARELY)
        self.to_the_end = drawn == 0
        made = simulated(self.seed)
        self.dice, self.ids = made.rng, made.ids
        self.locks: Locks | Metastore | None = None
        self.branches: dict[str, Truth] = {}

    def now_millis(self) -> int:
        return self.millis

    def create(
        self, options: dict[str, str], *, partitioned: bool = False, keyed: bool = False
    ) -> None:
        """Creates the table."""
        kind = Disk if self.history else MemoryStorage
        self.disk = kind(clock=self)  # type: ignore[arg-type]
        self.truth = Truth(self)
        self.options, self.partitioned, self.keyed = options, partitioned, keyed
        self._create()

    def recreate(self) -> None:
        """Somebody drops the table, and creates it again."""
        self.disk.clear()
        self.branches.clear()
        self.truth = self.truth.of_next_table()
        self.millis += 5 * MINUTE  # more than the clocks of two machines differ
        self.late.clear()
        self._create()

    def _create(self) -> None:
        options, partitioned, keyed = self.options, self.partitioned, self.keyed
        keys = (("dt", "id") if partitioned else ("id",)) if keyed else ()
        self.buckets = int(options.get("bucket", "-1"))
        made = create_table(
            self.disk,
            self._fields(),
            partition_keys=("dt",) if partitioned else (),
            primary_keys=keys,
            options=options,
            runtime=Runtime(clock=self, rng=self.dice, ids=self.ids),  # type: ignore[arg-type]
        )
        assert made is not None
        self.table = made
        self.truth.paths.update(self.all_paths())

    def _fields(self) -> tuple[DataField, ...]:
        """The columns of the table."""
        if self.changing:
            return FIELDS_OF_CHANGES
        return FIELDS_WITH_VALUE if self.real and self.keyed else FIELDS

    def exists(self, branch: str) -> bool:
        """Whether there is such a branch."""
        return any(
            path.startswith(self.branches[branch].prefix + "schema/") for path in self.truth.paths
        )

    def copied(self) -> TableCopy:
        """A copy of the table's folder, and what is true of it."""
        paths = set(self.truth.paths)
        branches = {name: one.copied(paths) for name, one in self.branches.items()}
        folders = copy.deepcopy(self.disk._store.folders)
        return TableCopy(folders, self.truth.copied(paths), branches)

    def put_back(self, kept: TableCopy) -> None:
        """Puts the table's folder back as it was."""
        paths = set(kept.truth.paths)
        self.disk._store.folders = copy.deepcopy(kept.folders)
        self.truth = self.truth.put_back(kept.truth, paths)
        self.branches = {
            name: one.put_back(kept.branches[name], paths) for name, one in self.branches.items()
        }
        self.late.clear()

    def all_paths(self) -> list[str]:
        return [
            f"{folder}/{name}"
            for folder, files in self.disk._store.folders.items()
            for name in files
        ]

    def spawn(self, actor: Actor) -> Process:
        """A new process of an actor."""
        self.serial += 1
        process = Process(
            self, f"{actor.name} (process {self.serial})", actor=actor, number=self.serial
        )
        self.processes = [one for one in self.processes if not one.dead]
        self.processes.append(process)
        return process

    # -- the schedule -----------------------------------------------------------------------------

    def run(self, steps: int = STEPS) -> None:
        """Runs the schedule, then lets all actors end."""
        try:
            for _ in range(steps if self.script is None else len(self.script) - 2):
                self.choices.begin_step()
                self.step()
            last_look(self)
        finally:
            self.end()

    def step(self) -> None:
        """Lets one actor run for some operations."""
        choices = self.choices
        actor = choices.pick(self.actors)
        wait = choices.pick(WAITS)
        self.millis += wait
        if self.late and choices.once_in(4):
            self.land(choices.below(len(self.late)))
        self.turn(actor, wait)
        self.check()

    def check(self) -> None:
        """What must hold after every step."""
        self.truth.check_whole()
        for truth in (self.truth, *self.branches.values()):
            truth.check_acknowledged()
        head = self.truth.head
        if self.keyed and not self.changing and head is not None and head is not self._summed:
            check_sums(self, head)
            self._summed = head

    def journal_entry(self, path: str) -> JournalEntry | None:
        """The journal entry in a file; None for any other file."""
        if not path.rpartition("/")[2].isdigit():
            return None
        return decode_journal_entry(self.disk.read(path), path)

    def turn(self, actor: Actor, wait: int = 0) -> None:
        """One turn of one actor: from where it waits to where it stops next."""
        process, fault, said = actor.process, Fault.NONE, f"{actor.name}: "
        if process is None or not process.busy:
            if not self.careless and actor.writes and self._is_stopped():
                return
            work = actor.begin()
            if work is None:
                return
            process = actor.process
            assert process is not None
            process.begun_millis, process.began_in_peace = self.millis, self.peaceful
            process.drops, process.upsets = actor.truth.drops, actor.truth.upsets
            process.start(work)
            if actor.takes_away and not self.careless:
                self._stop_writers(actor)
            self.disturbed = self.disturbed or self._disturbs(actor)
            if self.locks is not None and self.locks.is_of_the_dead:
                self.met[DEAD_WITH_LOCK, actor.kind] += 1
            said += f"begins {actor.doing}"
        else:
            assert process.pending is not None
            if (
                self.cleaned
                and actor.exposed
                and self.millis - process.begun_millis > LONGEST_MILLIS
            ):
                process.kill()
                self.log.append(
                    f"{actor.name}: is killed, because it took too long; {actor.ended()}"
                )
                return
            verb, path = process.pending
            if not (self.peaceful or actor.without_faults) and self.choices.once_in(5):
                fault = self.choices.pick(
                    possible(
                        verb,
                        path,
                        on_store=self.on_store,
                        on_hdfs=self.on_hdfs,
                        token=self.data_tokens,
                    )
                )
            self.faults_met[verb, fault.name] += 1
            said += f"goes on with {verb} {path}" + (
                "" if fault is Fault.NONE else f", which {fault.value}"
            )
        if self.clocks_jump and not self.peaceful and self.choices.once_in(8):
            process.clock.skew = self.choices.pick(JUMPS)
            said += f" (its clock is now wrong by {process.clock.skew / 1000:g} s)"
        burst = BURSTS[0] if self.peaceful or actor.whole else self.choices.pick(BURSTS)
        for other in self.actors:
            if other is not actor and other.process is not None and other.process.phase is not None:
                self.met[other.process.phase.value, actor.kind] += 1
        self.log.append(said)
        process.resume(burst, fault)
        if self.verdict is not None:
            raise self.verdict
        if process.busy:
            self.log[-1] += f"; stops before {' '.join(process.pending or ())}"
        else:
            self.log[-1] += f"; {actor.ended()}"
        if wait:
            self.log[-1] = f"({_age(wait)} later) {self.log[-1]}"

    def _disturbs(self, actor: Actor) -> bool:
        """Whether this is a rollback or a drop beside a writer at work, or the other way round.
        operations.md says: stop the writers first.
        """
        busy = [one for one in self.actors if one is not actor and one.at_work]
        if actor.takes_away:
            return bool(self.late) or any(one.writes for one in busy)
        return actor.writes and any(one.takes_away for one in busy)

    def _stop_writers(self, operator: Actor) -> None:
        """Ends all writers, and waits until their last requests have arrived or are lost."""
        for one in self.actors:
            if one is not operator and one.writes and one.process is not None and one.at_work:
                one.process.kill()
                self.log.append(f"{one.name}: is stopped; {one.ended()}")
        self.settle_late()

    def settle_late(self) -> None:
        """Late puts arrive, or are lost."""
        while self.late:
            if self.choices.once_in(2):
                self.land(0)
            else:
                self.late.pop(0)

    def _is_stopped(self) -> bool:
        """Whether an operator has stopped the writers, and is not done."""
        return any(one.takes_away and one.at_work for one in self.actors)

    def is_refused(self, actor: Actor) -> bool:
        """Whether the store is overloaded and refuses one more request."""
        if self.peaceful or self.storm == 0 or actor.whole or actor.without_faults:
            return False
        self.storm -= 1
        return True

    def land(self, which: int) -> None:
        """A late operation takes effect, even if its process has ended."""
        process, verb, path, effect = self.late.pop(which)
        if self.cleaned and self.millis - process.begun_millis > LONGEST_MILLIS:
            return
        self.log.append(f"the late {verb} of {path} by {process.name} arrives")
        self.landed.add(getattr(process.actor, "user", ""))
        self.truth.change(process, verb, path, effect, late=True)
        if process.dead or not process.busy:
            process.actor.truth.writer_ended(process)

    def end(self) -> None:
        """Ends all processes."""
        for actor in self.actors:
            if actor.process is not None:
                actor.process.kill()


def _age(millis: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if millis >= size:
            return f"{millis / size:g} {unit}"
    return f"{millis} ms"
