"""Long runs of seeded actors on one table: streams, a twin of one of them, an expirer, a wrong hint,
faults of the storage. An auditor checks the table after every step. A failing seed is in the test's name."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from paimon_stream.commit.committer import Nothing, Outcome, Published, Superseded
from paimon_stream.commit.observer import Phase
from paimon_stream.errors import CommitUnknown, HistoryUnknown, PaimonStreamError, Unavailable
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.storage.faults import Fault, FaultyStorage, Killed, Moment
from paimon_stream.table.layout import manifest_path
from tests.kits.commits import Bench
from tests.kits.seeds import seeds

pytestmark = pytest.mark.long

STEPS = 60
KEPT = 6


@dataclass
class World:
    """The table, its actors, and what is true of it."""

    seed: int
    options: dict[str, str]
    partitioned: bool = False
    depth: int = 0
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)
        self.bench = Bench(options=self.options, partitioned=self.partitioned, seed=self.seed)
        self.streams = [Stream(self, "a"), Stream(self, "b"), Stream(self, "twin")]
        self.streams[2].progress = self.streams[1].progress  # two drivers on one checkpoint
        self.streams[2].user = "b"

    def chance(self, of: int) -> bool:
        return self.source.randrange(of) == 0

    def reached(self, phase: Phase, identifier: int) -> None:
        """Between two phases of one actor, sometimes another one acts."""
        if self.depth < 3 and self.chance(6):
            self.act()

    def act(self) -> None:
        self.depth += 1
        try:
            chosen = self.source.randrange(10)
            if chosen < 7:
                self.source.choice(self.streams).act()
            elif chosen < 9:
                self.expire()
            else:
                self.lie()
        finally:
            self.depth -= 1

    def expire(self) -> None:
        ids = self.bench.snapshots.ids()
        if len(ids) > KEPT:
            self.log.append(f"expire to {ids[-KEPT]}")
            self.bench.expire(ids[-KEPT])

    def lie(self) -> None:
        """The hint is wrong in one of the ways it can be, but never a lie to readers of Java."""
        ids = self.bench.snapshots.ids()
        if ids:
            text = self.source.choice([b"", b"abc", b"0", b"-1", str(ids[0]).encode(), b"999"])
            self.bench.storage.write("snapshot/LATEST", text)

    def audit(self) -> None:
        """What must hold at every moment."""
        names = self.bench.live_names()
        assert len(names) == len(set(names)), f"listed twice: {names}"
        batches = [name.rpartition("-")[0] for name in names]
        assert len(batches) == len(set(batches)), f"two attempts at one batch are live: {names}"
        done = {f"{user}-{n}" for user in ("a", "b") for n in self.acknowledged(user)}
        assert done <= set(batches), f"acknowledged, and not in the table: {done - set(batches)}"
        ids = self.bench.snapshots.ids()
        assert ids == list(range(ids[0], ids[-1] + 1)) if ids else True
        for one in ids:
            for name in self.bench.metadata_of(one):
                self.bench.storage.stat(manifest_path(name))
        self.audit_sequences()

    def audit_sequences(self) -> None:
        if self.bench.buckets > 0:
            ranges: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
            for e in self.bench.live():
                spans = ranges.setdefault((e.partition, e.bucket), [])
                spans.append((e.file.min_sequence_number, e.file.max_sequence_number))
            for spans in ranges.values():
                spans.sort()
                assert all(a[1] < b[0] for a, b in pairwise(spans)), spans

    def acknowledged(self, user: str) -> range:
        progress = next(s.progress for s in self.streams if s.user == user)
        return range(progress.next_batch)


@dataclass
class Progress:
    """What Spark's checkpoint remembers: the batch to run next."""

    next_batch: int = 0


class Stream:
    """A driver of a stream. It judges, writes new files or takes prepared ones, commits, and starts again
    after any error."""

    def __init__(self, world: World, user: str) -> None:
        self.world = world
        self.user = user
        self.progress = Progress()
        self.attempts = 0
        self.busy = False
        self.committer: object = None
        self.label = user

    def act(self) -> None:
        if self.busy:
            return
        self.busy = True
        try:
            self.run_batch()
        finally:
            self.busy = False

    def run_batch(self) -> None:
        world, bench, batch = self.world, self.world.bench, self.progress.next_batch
        latest = bench.snapshots.latest()
        if self.is_committed(latest, batch):
            self.done(batch, "found")
            return
        self.attempts += 1
        name = f"{self.user}-{batch}-{self.label}{self.attempts}"
        messages = [bench.message(name, dt=world.source.choice("xyz"), bucket=0)]
        outcome: Outcome | BaseException
        try:
            if self.committer is None or world.chance(4):
                self.committer = bench.committer(self.storage(), world)
            request = bench.request(batch, messages, user=self.user, seen=latest, renumber=True)
            outcome = self.committer.commit(request)  # type: ignore[attr-defined]
        except (PaimonStreamError, Killed) as failed:
            outcome, self.committer = failed, None
        self.take(batch, name, outcome)

    def take(self, batch: int, name: str, outcome: Outcome | BaseException) -> None:
        live = name in self.world.bench.live_names()
        self.world.log.append(f"{self.label} {batch}: {type(outcome).__name__}, live {live}")
        match outcome:
            case Published():
                assert live
                self.done(batch, "published")
            case Superseded():
                assert not live
                self.done(batch, "superseded")
            case Nothing():
                raise AssertionError("there was something to commit")
            case CommitUnknown() | Killed():
                pass  # either; the next turn finds out
            case HistoryUnknown():
                assert not live
            case PaimonStreamError():
                assert not live, f"{outcome!r} says that nothing was published"

    def done(self, batch: int, how: str) -> None:
        self.progress.next_batch = max(self.progress.next_batch, batch + 1)

    def is_committed(self, latest: Snapshot | None, batch: int) -> bool:
        """As a ledger with a journal would find out: by a snapshot, else by the live files."""
        bench = self.world.bench
        for snapshot in bench.snapshots.walk_down(latest.id) if latest else ():
            if snapshot.commit_user == self.user:
                return snapshot.commit_identifier >= batch
        return any(name.startswith(f"{self.user}-{batch}-") for name in bench.live_names())

    def storage(self) -> FaultyStorage:
        world, source = self.world, self.world.source
        plan = []
        if world.chance(2):
            moment = source.choice(list(Moment))
            stop = world.chance(3)
            error = None if stop else Unavailable
            plan = [Fault(at=source.randrange(1, 40), moment=moment, error=error, stop=stop)]
        return FaultyStorage(world.bench.storage, plan)


WORLDS = {
    "plain": {},
    "merging": {"manifest.merge-min-count": "3"},
    "full merging": {"manifest.full-compaction-threshold-size": "4 kb"},
    "buckets": {"bucket": "2", "bucket-key": "id", "manifest.merge-min-count": "4"},
}


def run(seed: int, options: dict[str, str]) -> World:
    world = World(seed, options, partitioned=bool(seed % 2))
    for _ in range(STEPS):
        world.act()
        world.audit()
    for stream in world.streams:  # everybody gets to finish in peace
        stream.committer = world.bench.committer()
    for stream in world.streams:
        stream.act()
        world.audit()
    return world


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_streams_that_fail_anywhere_among_others_lose_and_double_nothing(
    seed: int, options: dict[str, str]
) -> None:
    world = run(seed, options)
    finished = sum(stream.progress.next_batch for stream in world.streams[:2])
    assert finished > 10, "the run must get somewhere"


def test_the_same_seed_gives_the_same_run() -> None:
    one, two = (run(5, WORLDS["merging"]) for _ in range(2))
    assert one.log == two.log
    assert [SnapshotRef.of(one.bench.snapshots.get(i)) for i in one.bench.snapshots.ids()] == [
        SnapshotRef.of(two.bench.snapshots.get(i)) for i in two.bench.snapshots.ids()
    ]
