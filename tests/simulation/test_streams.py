"""Long runs of seeded actors on one table that two streams write: an expirer, tags and rollbacks to them that
are killed, a writer of another engine that creates an expired snapshot again and points LATEST to it,
or copies its snapshot over ours, and a user who drops the table and creates it again. The streams are
restarted and killed.

What must hold: a batch that Spark noted as done is in the table once, or its stream stops and says why; a
stream stops only if something happened to its batches. Defects that once broke this are planted here, and
the test finds them. A failing seed is in the test's name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from paimon_stream.commit import committer
from paimon_stream.commit.observer import Phase
from paimon_stream.commit.publish import Landed, Publisher
from paimon_stream.errors import (
    CommitLost,
    CommitUnknown,
    HistoryUnknown,
    PaimonStreamError,
    StorageError,
    TableReplaced,
    TableRolledBack,
)
from paimon_stream.format.snapshot_json import Snapshot, decode_snapshot, encode_snapshot
from paimon_stream.maintenance import rollback
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, read_tags
from paimon_stream.storage.faults import Fault, FaultyStorage, Killed, Moment
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream import later_batches
from paimon_stream.table.layout import LATEST_HINT, manifest_path
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import create_table
from tests.kits.commits import FIELDS, Bench, java_latest
from tests.kits.streams import Stream

pytestmark = pytest.mark.long

STEPS = 60
KEPT = 4
TABLE_CHANGES = (TableRolledBack, CommitLost, TableReplaced)


@dataclass
class Writer:
    """One stream, and what is true of it.

    `kept` are the batches that Spark noted as done and that must be in the table, `lost` those that something
    took away, `owes` the errors of which one must be raised for them, `reported` whether one was. `answer` is
    the option that an operator sets for the next start, and for that one only.
    """

    world: World
    stream: Stream
    kept: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    owes: set[type[BaseException]] = field(default_factory=set)
    reported: bool = False
    answer: str | None = None
    busy: bool = False
    judged: bool = False

    def reached(self, phase: Phase, identifier: int) -> None:
        self.judged |= phase is Phase.JUDGED
        self.world.between()

    def owe(self, *kinds: type[BaseException]) -> None:
        self.owes |= set(kinds)

    def settled(self) -> None:
        self.owes, self.lost, self.reported, self.answer = set(), set(), False, None


@dataclass
class World:
    """The table, its actors, and what is true of it: `beside` are ids of snapshots that are no part of the
    table's line, `gone` the files that something took away. `events` counts what was done to the table,
    `drops` how often it was dropped. `excused` says that a writer died or was stopped where its snapshot may
    stand on what was taken away. `often` is an actor that acts more than others.
    """

    seed: int
    options: dict[str, str] = field(default_factory=dict)
    often: str | None = None
    depth: int = 0
    events: int = 0
    drops: int = 0
    log: list[str] = field(default_factory=list)
    expired: dict[int, bytes] = field(default_factory=dict)
    beside: set[int] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    excused: bool = False

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)
        self.bench = Bench(options=self.options, seed=self.seed)
        self.writers = [
            Writer(self, Stream(self.bench, user=user, query_id=f"q-{user}", checkpoint=f"/ck/{user}"))
            for user in "ab"
        ]

    def chance(self, of: int) -> bool:
        return self.source.randrange(of) == 0

    def ids(self) -> list[int]:
        return self.bench.snapshots.ids()

    def newest(self) -> Snapshot | None:
        ids = self.ids()
        return self.bench.snapshots.get(ids[-1]) if ids else None

    def live(self) -> list[str]:
        newest = self.newest()
        return [] if newest is None else self.bench.names_of(newest)

    # -- the actors --------------------------------------------------------------------------------

    def between(self) -> None:
        """Between two phases of a stream time passes, and sometimes another actor acts."""
        self.bench.clock.advance(self.source.choice((0, 1, 400, 2000)))
        if self.depth < 2 and self.chance(8):
            self.act()

    def act(self) -> None:
        self.depth += 1
        try:
            actors = [self.write] * 20 + [self.expire] * 4 + [self.come_back, self.tag] * 3
            actors += [self.roll_back, self.roll_back, self.copy_over, self.drop]
            self.source.choice(actors + [getattr(self, self.often)] * 12 if self.often else actors)()
        finally:
            self.depth -= 1

    def write(self) -> None:
        idle = [one for one in self.writers if not one.busy]
        if idle:
            writer = self.source.choice(idle)
            writer.busy = True
            try:
                self.batch(writer)
            finally:
                writer.busy = False

    def expire(self) -> None:
        """Takes the oldest first, and overlooks what came back below EARLIEST."""
        line = [one for one in self.ids() if one not in self.beside]
        for one in line[: -1 if self.chance(4) else -KEPT]:
            self.expired[one] = self.bench.storage.read(f"snapshot/snapshot-{one}")
            self.bench.storage.delete(f"snapshot/snapshot-{one}")

    def come_back(self) -> None:
        """Another engine's writer, paused before its put, creates an expired snapshot again, and the hint."""
        ids = self.ids()
        below = [one for one in self.expired if ids and one < ids[0] - 1]
        if below:
            one = self.source.choice(below)
            self.log.append(f"{one} comes back")
            was = decode_snapshot(self.expired[one], "snapshot")  # the one that won the race for the id
            theirs = replace(was, commit_user="java", delta_manifest_list=f"late-{self.source.random()}")
            delta = self.bench.storage.read(manifest_path(was.delta_manifest_list))
            self.bench.storage.write(manifest_path(theirs.delta_manifest_list), delta)
            self.bench.storage.write(f"snapshot/snapshot-{one}", encode_snapshot(theirs))
            self.bench.storage.write(LATEST_HINT, str(one).encode())
            self.beside.add(one)

    def tag(self) -> None:
        tags = read_tags(self.bench.storage)
        if self.newest() is not None and len(tags) < 2:
            create_tag(self.bench.table, f"tag-{self.source.random()}", runtime=self.bench.runtime)

    def roll_back(self) -> None:
        """Rolls back to a tag whose snapshot may have expired. Sometimes the process dies at some
        operation."""
        tags = sorted(read_tags(self.bench.storage).items())
        if not tags:
            return
        name, kept = self.source.choice(tags)
        before, line = set(self.live()), set(self.ids()) - self.beside
        storage = self.storage(dies_in=2, within=15)
        try:
            rollback_to(self.bench.table, name, take_over=True, storage=storage, runtime=self.bench.runtime)
        except Killed:
            self.log.append(f"a rollback to {kept.id} is killed")
        else:
            self.log.append(f"rolled back to {kept.id}")
            assert self.newest() == kept
        verbs = ("write", "delete", "put_if_absent")
        changing = [one for one in storage.operations if one.verb in verbs and "tag-paimon-" not in one.path]
        ids = self.ids()
        if ids[-1] == kept.id:
            self.gone -= set(self.live())  # what the tag keeps, whatever became of its snapshot since
        if len(changing) > 1:  # the first of them has taken effect
            assert java_latest(self.bench.storage) == ids[-1], "another engine is misled"
        self.beside = self.beside & set(range(kept.id)) if ids[-1] == kept.id else self.beside
        self.beside = (self.beside | ({kept.id} - line - {ids[-1]})) & set(ids)
        self.take_away(before, TableRolledBack, CommitLost)

    def copy_over(self) -> None:
        """A writer that does not publish atomically replaces the newest snapshot by its own."""
        newest, before = self.newest(), set(self.live())
        if (
            newest is None
            or newest.commit_user == "java"
            or newest.id - 1 not in set(self.ids()) - self.beside
        ):
            return
        self.bench.storage.delete(f"snapshot/snapshot-{newest.id}")
        request = self.bench.request(0, [self.bench.message(f"java-{self.source.random()}")], user="java")
        self.bench.committer().commit(request)
        self.log.append(f"{newest.id} is replaced")
        self.take_away(before, CommitLost, TableRolledBack)

    def drop(self) -> None:
        """The table is dropped, and created again at the same place."""
        assert isinstance(self.bench.storage, MemoryStorage)
        self.bench.storage.clear()
        self.bench.clock.advance(5000)
        create_table(self.bench.storage, FIELDS, options=self.options, runtime=self.bench.runtime)
        self.log.append("dropped and created")
        self.expired, self.beside, self.gone = {}, set(), set()
        self.events += 1
        self.drops += 1
        for writer in self.writers:
            writer.settled()
            if writer.stream.next_batch:
                writer.owe(TableReplaced)
            writer.lost, writer.kept = writer.kept, set()

    def take_away(self, before: set[str], *kinds: type[BaseException]) -> None:
        """Something removed batches. The stream that wrote them must get an error."""
        self.events += 1
        live = set(self.live())
        self.gone |= before - live
        there = batches_of(live)
        for writer in self.writers:
            lost = {one for one in writer.kept if (writer.stream.user, one) not in there}
            writer.kept -= lost
            writer.lost |= lost
            if lost:
                writer.owe(*kinds)

    def give_back(self) -> None:
        """A writer that died, or does not know its outcome, may have brought back what was removed."""
        live = set(self.live())
        back, there = self.gone & live, batches_of(live)
        assert not back or self.excused, f"came back after they were taken away: {back}"
        self.gone -= back
        for writer in self.writers:
            again = {one for one in writer.lost if (writer.stream.user, one) in there}
            writer.lost -= again
            writer.kept |= again
            if again and not writer.lost:
                writer.settled()

    # -- a stream ----------------------------------------------------------------------------------

    def batch(self, writer: Writer) -> None:
        """One batch, in the present run or a new one. Its answer must be true."""
        stream, events, answer = writer.stream, self.events, writer.answer
        if stream.writer is None or answer or self.chance(5):
            stream.options = {answer: "continue"} if answer else {}
            stream.start(writer, self.storage(dies_in=3, within=60))
        batch, writer.judged = stream.next_batch, False
        lost, drops = set(writer.lost), self.drops
        owed = bool(writer.owes) and not writer.reported and self.can_know(writer)
        try:
            stream.batch()
        except (PaimonStreamError, Killed) as failed:
            stream.writer = None
            self.log.append(f"{stream.user} {batch}: {type(failed).__name__}")
            if self.drops != drops and isinstance(failed, Killed):
                self.drop()  # once more: what it published last may lie in the new table, without its files
            self.failed(writer, failed, during=self.events != events)
            return
        self.log.append(f"{stream.user} {batch}: done")
        assert not owed, f"{stream.user} went on with batch {batch} without a word of {writer.owes}"
        if answer:
            stream.writer = None  # the next start has no answer any more
        live = set(self.live())
        if (stream.user, batch) in batches_of(live):
            writer.lost -= lost
            if not writer.lost and self.drops == drops:
                writer.settled()
            writer.reported |= self.events != events  # it may have taken what happened for an expiry
            self.gone -= {name for name in live if name.startswith(f"{stream.user}-{batch}-")}
            writer.kept.add(batch)
        elif self.drops != drops:
            writer.reported = True  # the table was dropped after the batch; only this run knows it
        else:
            assert self.events != events, f"batch {batch} of {stream.user} is not in the table"
            writer.lost.add(batch)
            writer.owe(*TABLE_CHANGES)

    def can_know(self, writer: Writer) -> bool:
        """Whether any evidence of the stream is left: without a snapshot of its own, a loss
        looks like an expiry."""
        ids = set(self.ids())
        at = max(ids, default=0)
        while at in ids:
            if self.bench.snapshots.get(at).commit_user == writer.stream.user:
                return True
            at -= 1
        return writer.owes == {TableReplaced}

    def failed(self, writer: Writer, failed: BaseException, *, during: bool) -> None:
        stream, live = writer.stream, set(self.live())
        if writer.answer and writer.judged and not during:
            writer.owes.discard(TableReplaced)  # this was answered, and must not be asked again
        match failed:
            case TableRolledBack() | CommitLost() | TableReplaced():
                assert during or writer.owes, f"nothing happened to its batches: {failed}"
                writer.owe(type(failed))
                writer.reported, writer.answer = True, "paimon-stream.on-table-change"
            case HistoryUnknown() if (stream.user, stream.next_batch) in batches_of(live):
                stream.next_batch += 1  # the operator looks, and moves the source past what is there
                writer.answer = None
            case HistoryUnknown():
                writer.answer = "paimon-stream.on-unknown-history"
            case CommitUnknown() | Killed() | StorageError():
                self.excused = True
                writer.answer = writer.answer if writer.owes and writer.reported else None
            case _:
                raise failed

    def storage(self, *, dies_in: int, within: int) -> FaultyStorage:
        """The storage of a process that dies at some operation, in one of several runs."""
        if not self.chance(dies_in):
            return FaultyStorage(self.bench.storage)
        moment, at = self.source.choice(list(Moment)), self.source.randrange(1, within)
        return FaultyStorage(self.bench.storage, [Fault(at=at, moment=moment, stop=True)])

    def audit(self) -> None:
        """What must hold whenever nobody is at work."""
        self.give_back()
        self.excused = False
        names = self.live()
        assert len(names) == len(set(names)), f"listed twice: {names}"
        there = batches_of(set(names))
        assert len(there) == len([one for one in names if one[0] in "ab"]), f"one batch twice: {names}"
        for writer in self.writers:
            missing = {one for one in writer.kept if (writer.stream.user, one) not in there}
            assert not missing, f"{writer.stream.user}: {missing} are not in the table"
        ids = self.ids()
        line = [one for one in ids if one not in self.beside]
        assert line == list(range(line[0], ids[-1] + 1)) if line else not ids, f"{ids} beside {self.beside}"


def batches_of(names: set[str]) -> set[tuple[str, int]]:
    """The batches of the streams that files are of."""
    split = (name.split("-") for name in names if name[0] in "ab")
    return {(user, int(batch)) for user, batch, _ in split}


def run(seed: int, options: dict[str, str], often: str | None = None) -> World:
    world = World(seed, options, often)
    for _ in range(STEPS):
        world.act()
        world.audit()
    return world


WORLDS: dict[str, dict[str, str]] = {
    "plain": {},
    "short retention": {"snapshot.time-retained": "1 ms", "manifest.merge-min-count": "3"},
}


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("seed", range(8))
def test_streams_lose_nothing_without_a_word_whatever_others_do(seed: int, options: dict[str, str]) -> None:
    run(seed, options)


# -- planted defects -----------------------------------------------------------------------------------


def a_hint_is_believed(patch: pytest.MonkeyPatch) -> None:
    def latest(self: SnapshotStore) -> Snapshot | None:
        hint = self._hint(LATEST_HINT)
        if hint is not None and not self.exists(hint + 1) and (found := self.find(hint)) is not None:
            return found
        return self._listed()

    patch.setattr(SnapshotStore, "latest", latest)


def a_rollback_writes_the_hint_first(patch: pytest.MonkeyPatch) -> None:
    def remove_snapshots(self: rollback._Rollback) -> None:
        self.storage.write(LATEST_HINT, str(self.kept.id).encode())
        for one in reversed(self._later()):
            self.storage.delete(f"snapshot/snapshot-{one}")

    patch.setattr(rollback._Rollback, "_remove_snapshots", remove_snapshots)


def what_lies_below_is_never_a_rollback(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "_look_below", lambda self, staged: Landed())


def what_lies_below_is_always_a_rollback(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "_look_below", lambda self, staged: self._void(staged, proven=False))


def a_lost_commit_is_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(later_batches, "_is_in_lineage", lambda *given: True)


def a_staging_is_too_old_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committer, "_SHORTEST_STAGED_MILLIS", 0)


PLANTS: dict[Callable[[pytest.MonkeyPatch], None], str | None] = {
    a_hint_is_believed: None,
    a_rollback_writes_the_hint_first: "roll_back",
    what_lies_below_is_never_a_rollback: None,
    what_lies_below_is_always_a_rollback: None,
    a_lost_commit_is_followed: "copy_over",
    a_staging_is_too_old_at_once: None,
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.replace("_", " "))
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(40):
        try:
            run(seed, WORLDS["short retention"], PLANTS[plant])
        except (AssertionError, PaimonStreamError):
            return
    pytest.fail("the simulation does not see it")
