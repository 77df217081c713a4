"""A query of one or two sinks and its keepers, for histories that are drawn at random: kills at any
storage operation, branches to which the query is pointed, names that change, writers without Spark.
The truth is read back from the rows of main and of the branch.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import HistoryUnknown, NotFound, PaimonStreamError
from paimon_stream.maintenance.branches import create_branch, delete_branch, fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.manifest_compaction import compact_manifests
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from paimon_stream.options import JOURNAL, ON_CHECKPOINT_RESET
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import MAIN, branch_names, branch_storage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from tests.histories.world import BRANCH, DOUBLED, LOST, NOT_THERE, OTHERS, Broken
from tests.kits.commits import Bench
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.steps import Messages, run_batch

FIRST: Final = "first"
SECOND: Final = "second"
_NAMES: Final = ("one", "two", "three")
_WARNED: Final = ("may have been compacted", "begins here with batch")
"""Parts of the warnings with which a stream goes on although a batch may be missing."""
_MOST_ATTEMPTS: Final = 4
_MOST_OPERATIONS: Final = 90
_HOUR_MILLIS: Final = 3_600_000
Batches = set[tuple[str, int]]


class Ends(Exception):
    """The history comes to where the pages leave an operator alone, such as a batch that he finds."""


class _Heard(logging.Handler):
    """The warnings of the package."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def _hearing() -> Iterator[list[str]]:
    package, heard = logging.getLogger("paimon_stream"), _Heard()
    before = package.level, package.propagate
    package.addHandler(heard)
    package.setLevel(logging.WARNING)
    package.propagate = False
    try:
        yield heard.texts
    finally:
        package.removeHandler(heard)
        package.level, package.propagate = before


@dataclass
class Scene:
    """`sinks` are the sinks of the query with their names, `target` is where it writes. `done` are
    the batches of each sink that the checkpoint has noted and that had rows, and `given_up` those
    that an operator has let go in main or the branch. `in_main` are those that main has ever had, and
    `gone` those that a branch alone had when it was deleted. `unjournalled` are those that a branch
    alone had when a batch without a journal was done there. `parts` are what compacted files were
    made of, and `unfinished` is a command that was killed. `trace` says what happened.
    """

    journal: bool = True
    two_sinks: bool = False
    seed: int = 0
    target: str = MAIN
    next_batch: int = 0
    runs: int = 0
    numbers: int = 0
    done_millis: int | None = None
    rows: dict[int, int] = field(default_factory=dict)
    done: Batches = field(default_factory=set)
    given_up: dict[str, Batches] = field(default_factory=lambda: defaultdict(set))
    in_main: Batches = field(default_factory=set)
    gone: Batches = field(default_factory=set)
    unjournalled: Batches = field(default_factory=set)
    parts: dict[str, list[str]] = field(default_factory=dict)
    writers: dict[str, StreamWriter] | None = None
    unfinished: tuple[str, Callable[[Storage | None], object]] | None = None
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench = Bench(seed=self.seed)
        self.sinks = {FIRST: _NAMES[0], **({SECOND: "other"} if self.two_sinks else {})}
        self.plain: dict[str, tuple[TableCommit, list[int]]] = {}

    # -- the truth --------------------------------------------------------------------------------
    def on(self, target: str, storage: Storage | None = None) -> Bench:
        """The table as main or the branch shows it, on another storage if one is given."""
        base = storage or self.bench.storage
        shown = base if target == MAIN else branch_storage(base, target)
        bench = copy.copy(self.bench)
        bench.storage, bench.table = shown, replace(self.bench.table, storage=shown)
        bench.snapshots = SnapshotStore(shown, self.bench.runtime)
        bench.manifests = ManifestStore(shown)
        return bench

    @property
    def has_branch(self) -> bool:
        """Whether there is a branch."""
        return BRANCH in branch_names(self.bench.storage)

    def live(self, target: str) -> Counter[tuple[str, int]]:
        """How often main or the branch has the rows of each batch of each sink or writer."""
        whole = [
            part
            for name in self.on(target).live_names()
            for part in self.parts.get(name, [name])
            if not part.startswith(OTHERS)
        ]
        return Counter((name.split("-")[0], int(name.split("-")[1])) for name in whole)

    def missing(self, live: Counter[tuple[str, int]]) -> Batches:
        """The earlier batches that are not in the target, and were not given up there, nor are
        `_untraced` in main.
        """
        earlier = {one for one in self.done if one[1] < self.next_batch and one[0] in self.sinks}
        lost = {one for one in earlier if not live[one]} - self.given_up[self.target]
        return lost - self._untraced() if lost and self.target == MAIN else lost

    def _untraced(self) -> Batches:
        """The batches of a branch of which nothing is left, as the page of reliability says: the
        branch was deleted, or had no journal, and their snapshots have expired there.
        """
        if not self.has_branch:
            return self.gone
        snapshots = self.on(BRANCH).snapshots
        standing = snapshots.walk_down(snapshots.latest_id() or 0)
        numbers = {one.commit_identifier for one in standing if one.commit_user != OTHERS}
        return self.gone | {one for one in self.unjournalled if one[1] not in numbers}

    def _say(self, *words: object) -> None:
        self.trace.append(" ".join(map(str, words)))

    # -- the query --------------------------------------------------------------------------------
    def batch(self, place: int, kind: int, choice: int) -> None:
        """The query runs its next batch; it may be killed at a storage operation, have no rows, or
        begin a new run. An operator lets it go on, or not.
        """
        self.rows.setdefault(self.next_batch, 0 if kind % 5 == 0 else 10)
        storage = self._killing(place)
        if storage is not None or kind % 2 == 0 or self.writers is None:
            self._start(storage)
        decisions: dict[str, str] = {}
        for _ in range(_MOST_ATTEMPTS):
            try:
                self._run(decided=bool(decisions))
            except Killed:
                self._say(f"batch {self.next_batch} in {self.target}: the run dies")
                self.writers = None
                return
            except PaimonStreamError as refused:
                self.writers = None
                self._say(f"batch {self.next_batch} in {self.target}: {type(refused).__name__}")
                if choice % 3 == 0:
                    return
                decisions |= self._decision(refused)
                self._start(decisions=decisions)
            else:
                break
        else:
            raise Ends("a batch is refused again and again")
        if decisions:
            self.writers = None  # the operator takes the options away

    def _decision(self, refused: PaimonStreamError) -> dict[str, str]:
        """What an operator sets who has looked at the table. Raises `Ends`."""
        option, live = refused.context.get("option"), self.live(self.target)
        if isinstance(refused, NotFound):
            raise Ends("the branch is gone")
        if option is None:
            return {}  # start it again
        is_there = any(live[sink, self.next_batch] for sink in self.sinks)
        may_double = isinstance(refused, HistoryUnknown) or option == ON_CHECKPOINT_RESET.key
        if is_there and may_double:
            raise Ends("he finds the rows of the batch")
        self.given_up[self.target] |= self.missing(live)
        return {str(option): "continue"}

    def _start(
        self, storage: Storage | None = None, decisions: dict[str, str] | None = None
    ) -> None:
        self.runs += 1
        options = {JOURNAL.key: str(self.journal).lower(), **(decisions or {})}
        self.writers = {
            sink: StreamWriter(
                storage=self.on(self.target, storage).storage,
                identity=WriterIdentity(
                    user=user,
                    query_id="q1",
                    run_id=f"q1-run-{self.runs}",
                    checkpoint="/ck/a",
                    token=f"token of {sink}",
                ),
                options=options,
                runtime=self.bench.runtime,
            )
            for sink, user in self.sinks.items()
        }

    def _run(self, *, decided: bool) -> None:
        number, rows = self.next_batch, self.rows[self.next_batch]
        assert self.writers is not None
        for sink, writer in self.writers.items():
            before = self.live(self.target)
            outcome = self._run_sink(sink, writer)
            self._say(
                f"batch {number} in {self.target} as {self.sinks[sink]}, {rows} rows: {outcome}"
            )
            live = self.live(self.target)
            if outcome == "already committed" and not before[sink, number]:
                raise Broken(NOT_THERE, f"batch {number} of the {sink} sink counts as committed")
            doubled = sorted(one for one, copies in live.items() if copies > 1)
            if doubled:
                raise Broken(DOUBLED, f"{doubled} in {self.target}")
            if rows and not live[sink, number]:
                raise Broken(LOST, f"batch {number} of the {sink} sink is not in {self.target}")
            missing = {one for one in self.missing(live) if one[0] == sink}
            if missing and decided:
                self.given_up[self.target] |= missing
            elif missing:
                raise Broken(LOST, f"{sorted(missing)} at batch {number} in {self.target}")
        self.done |= {(sink, number) for sink in self.writers} if rows else set()
        if self.target == BRANCH and not self.journal:
            self.unjournalled |= self.done - self.in_main
        self.next_batch += 1
        self.done_millis = self.bench.clock.now_millis()

    def _run_sink(self, sink: str, writer: StreamWriter) -> str:
        """Runs the next batch of a sink. What it warns of is given up, also where the run dies then:
        the warning is in the log, and no later run says it again.
        """
        with _hearing() as warnings:
            try:
                return self._outcome(sink, writer)
            finally:
                live = self.live(self.target)
                self.in_main |= set(live) if self.target == MAIN else set()
                if any(part in text for part in _WARNED for text in warnings):
                    self.given_up[self.target] |= {
                        one for one in self.missing(live) if one[0] == sink
                    }

    def _outcome(self, sink: str, writer: StreamWriter) -> str:
        number = self.next_batch
        batch = Batch(
            batch_id=number, offsets_hash=f"q1-{number}", previous_done_millis=self.done_millis
        )

        def written(judged: JudgedBatch) -> Messages:
            return (self._message(f"{sink}-{number}"),) if self.rows[number] else ()

        return run_batch(writer, batch, written).outcome

    def _message(self, name: str) -> Any:
        self.numbers += 1
        return self.bench.message(f"{name}-{self.numbers}")

    def _killing(self, place: int) -> Storage | None:
        """A storage on which the process dies at an operation; None in most cases."""
        if place % 4:
            return None
        moment = Moment.BEFORE if place % 8 else Moment.AFTER
        fault = Fault(at=1 + place // 8 % _MOST_OPERATIONS, moment=moment, stop=True)
        return FaultyStorage(self.bench.storage, [fault])

    def point(self, where: int) -> None:
        """The query is pointed to the branch, or to main."""
        target = BRANCH if self.has_branch and where % 2 == 0 else MAIN
        if target != self.target:
            self.writers = None
        self.target = target
        self._say("the query writes", target)

    def rename(self, which: int) -> None:
        """The first sink gets another name."""
        self.sinks[FIRST] = _NAMES[which % len(_NAMES)]
        self.writers = None
        self._say("the first sink is called", self.sinks[FIRST])

    def switch_journal(self) -> None:
        """The journal is switched off, or on again."""
        self.journal, self.writers = not self.journal, None
        self._say("the journal is", "on" if self.journal else "off")

    # -- others -----------------------------------------------------------------------------------
    def _place(self, where: int) -> str:
        return BRANCH if where % 3 == 0 and self.has_branch else MAIN

    def commit_of_others(self, where: int, count: int) -> None:
        """Another engine commits."""
        place = self._place(where)
        for _ in range(1 + count % 3):
            bench = self.on(place)
            message = self._message(OTHERS)
            bench.committer().commit(bench.request(self.numbers, [message], user=OTHERS))
        self._say(1 + count % 3, "commits of others in", place)

    def plain_writer(self, where: int, kind: int) -> None:
        """A writer without Spark commits, which lives on. It stops if it has lost a commit."""
        place = self._place(where)
        if kind % 6 == 0 or place not in self.plain:
            user = f"writer{kind}"
            self.plain[place] = (
                TableCommit(self.on(place).table, user, runtime=self.bench.runtime),
                [],
            )
        writer, mine = self.plain[place]
        try:
            writer.commit(len(mine), [self._message(f"{writer.user}-{len(mine)}")])
        except PaimonStreamError as refused:
            self._say(f"{writer.user} in {place}: {type(refused).__name__}")
            del self.plain[place]
            return
        mine.append(len(mine))
        self._say(f"{writer.user} commits in {place}")
        live = self.live(place)
        lost = [one for one in mine if not live[writer.user, one]]
        if lost:
            raise Broken(LOST, f"{writer.user} went on without {lost} in {place}")

    def expiry(self, where: int, kept: int, place: int) -> None:
        """Old snapshots expire."""
        target, keep = self._place(where), 1 if kept % 4 else 3
        if self.on(target).snapshots.latest_id() is None:
            return
        self.bench.clock.advance(_HOUR_MILLIS)

        def expire(storage: Storage | None) -> object:
            table, runtime = self.on(target, storage).table, self.bench.runtime
            return expire_snapshots(table, keep, keep, 1, protect_streams=False, runtime=runtime)

        self._command(f"expiry in {target}, {keep} stay", expire, place)

    def outage(self, where: int, count: int) -> None:
        """Other engines go on, and all that was there expires."""
        self.commit_of_others(where, count)
        self.expiry(where, 1, 1)

    def tag(self, where: int) -> None:
        """The newest snapshot gets a tag."""
        target, name = self._place(where), f"t{self.numbers}"
        self.numbers += 1

        def tag(storage: Storage | None) -> object:
            return create_tag(self.on(target, storage).table, name, runtime=self.bench.runtime)

        self._command(f"tag {name} in {target}", tag, 1)

    def untag(self, which: int) -> None:
        """A tag is deleted."""
        tags = sorted(read_tags(self.bench.storage))
        if tags:
            name = tags[which % len(tags)]
            self._command(
                f"no tag {name}", lambda storage: delete_tag(self.on(MAIN, storage).table, name), 1
            )

    def rollback(self, where: int, which: int, place: int) -> None:
        """Main or the branch is rolled back to a snapshot or tag."""
        self.end()
        target = self._place(where)
        bench = self.on(target)
        goals: list[int | str] = [*bench.snapshots.ids(), *sorted(read_tags(bench.storage)) * 3]
        if goals:
            goal = goals[which % len(goals)]
            self._command(
                f"rollback of {target} to {goal}",
                lambda storage: rollback_to(
                    self.on(target, storage).table, goal, runtime=self.bench.runtime
                ),
                place,
            )

    def branch(self, which: int, place: int) -> None:
        """A branch is made from a tag."""
        tags = sorted(read_tags(self.bench.storage))
        if self.has_branch or not tags:
            return
        name = tags[which % len(tags)]

        def create(storage: Storage | None) -> object:
            table = self.on(MAIN, storage).table
            return create_branch(table, BRANCH, name, runtime=self.bench.runtime)

        self._command(f"branch from {name}", create, place)
        self.end()
        self.given_up[BRANCH] = set(self.given_up[MAIN])

    def unbranch(self, place: int) -> None:
        """The branch is deleted."""
        if not self.has_branch:
            return
        self.gone |= self.done - self.in_main
        self._command(
            "no branch", lambda storage: delete_branch(self.on(MAIN, storage).table, BRANCH), place
        )
        self.end()
        if self.target == BRANCH:
            self.writers = None
        self.plain.pop(BRANCH, None)
        self.given_up[BRANCH] = set()

    def forward(self, place: int) -> None:
        """Main is made what the branch is."""
        self.end()
        if not self.has_branch:
            return

        def forward(storage: Storage | None) -> object:
            table = self.on(MAIN, storage).table
            return fast_forward(table, BRANCH, runtime=self.bench.runtime)

        self._command("forward to the branch", forward, place)
        self.in_main |= set(self.live(MAIN))
        self.given_up[MAIN] |= self.given_up[BRANCH]

    def compaction(self, where: int) -> None:
        """All files become one."""
        target = self._place(where)
        bench = self.on(target)
        names = bench.live_names()
        if len(names) < 2:
            return
        self.numbers += 1
        into = f"compacted-{self.numbers}"
        self.parts[into] = [part for name in names for part in self.parts.get(name, [name])]
        message = bench.compaction(*names, into=into)
        bench.committer().commit(bench.request(self.numbers, [message], user="compactor"))
        self._say("compaction in", target)

    def manifests(self, where: int) -> None:
        """The manifests are compacted, so that they mention no removed file any more."""
        target = self._place(where)

        def compact(storage: Storage | None) -> object:
            return compact_manifests(self.on(target, storage).table, runtime=self.bench.runtime)

        self._command(f"compaction of manifests in {target}", compact, 1)

    def time(self, how_long: int) -> None:
        """Time goes by."""
        seconds = (30, 400, 4000)[how_long % 3]
        self.bench.clock.advance(seconds * 1000)
        self._say(seconds, "s")

    def end(self) -> None:
        """A command that was killed is run again."""
        if self.unfinished is not None:
            (what, work), self.unfinished = self.unfinished, None
            self._command(f"{what}, again", work, 1)

    def _command(self, what: str, work: Callable[[Storage | None], object], place: int) -> None:
        """Runs a command, which may be killed. The writers are stopped then, as the pages say."""
        try:
            work(self._killing(place))
            self._say(what)
        except Killed:
            self._say(f"{what}: it dies")
            self.unfinished, self.writers = (what, work), None
        except PaimonStreamError as refused:
            self._say(f"{what}: {type(refused).__name__}")
