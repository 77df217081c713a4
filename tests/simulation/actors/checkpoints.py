"""What Spark remembers of a query, and somebody who restores, wipes and copies it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paimon_stream.runtime import Clock
from paimon_stream.spark.checkpoint import Checkpoint as SparkCheckpoint
from paimon_stream.storage.memory import MemoryStorage
from tests.simulation.actors.base import Actor, Work

if TYPE_CHECKING:
    from tests.simulation.actors.streams import Stream


@dataclass
class Checkpoint:
    """The batch to run next, and when the one before it was done. `plans` are the offsets of the
    batches that Spark has planned; a batch that is planned again has others. `known_upsets` and
    `known_drops` are what the operator knows of the table's losses.

    `saved` is the newest state before somebody wiped or rewound the checkpoint, and `copies` are
    the copies of it that are alive, itself included. Then `tampered` is true. `tried` are the plans
    of those that the operator has put back since the last batch, and `restored` how often he has
    done so. `foreign` is a checkpoint of a stream of another table. `done_skew` is by how much the
    clock was wrong that gave `done_millis`.
    """

    user: str
    next_batch: int = 0
    done_millis: int | None = None
    runs: int = 0
    shared: bool = False
    known_upsets: int = 0
    known_drops: int = 0
    name: str = ""
    query: str = ""
    plans: dict[int, str] = field(default_factory=dict)
    saved: Checkpoint | None = None
    copies: list[Checkpoint] = field(default_factory=list)
    tried: list[dict[int, str]] = field(default_factory=list)
    tampered: bool = False
    restored: int = 0
    done_skew: int = 0
    foreign: bool = False

    def __post_init__(self) -> None:
        self.name = self.name or self.user
        self.query = self.query or f"query-{self.user}"
        self._fill()

    @property
    def planned(self) -> int:
        """The newest batch that was planned; -1 before the first."""
        return max(self.plans, default=-1)

    @property
    def heard_drops(self) -> int:
        """How many drops of the table the operator knows of, who is the same for all copies."""
        return max(one.known_drops for one in self.copies or [self])

    @property
    def first_batch(self) -> int:
        """The batch with which Spark begins: the newest planned one, or the next one if that is
        done. A run that is alive may have planned more in a checkpoint that was put back.
        """
        return max(self.planned, self.next_batch)

    @property
    def path(self) -> str:
        """The checkpointLocation."""
        return f"/checkpoint/{self.name}"

    def plan(self, batch: int, moment: int) -> str:
        """Plans the batch if that was not done. Returns the hash of its offsets."""
        self.plans.setdefault(batch, f"v1\n{{}}\n{self.name}-{batch}-{moment}")
        self._fill()
        return hashlib.sha256(self.plans[batch].encode()).hexdigest()

    def done(self, batch: int, millis: int) -> None:
        """Notes that Spark has recorded the batch as done."""
        self.next_batch, self.done_millis = max(self.next_batch, batch + 1), millis
        self._fill()
        self.tried.clear()
        saved = self.saved
        if saved is not None and (saved.query != self.query or self.next_batch > saved.planned):
            self.saved = None  # the table has admitted the stream as it is

    def take(self, other: Checkpoint) -> None:
        """Becomes what the other one is. What the operator knows he does not forget."""
        self.user, self.query = other.user, other.query
        self.known_drops = max(self.known_drops, other.known_drops)
        self.next_batch, self.plans, self.done_millis = (
            other.next_batch,
            dict(other.plans),
            other.done_millis,
        )
        self.done_skew = other.done_skew

    def put_back(self, *, other: bool) -> bool:
        """The operator puts the newest state back, as the errors advise. Returns whether there is a
        newer one, or with `other` another one that is as new and that he has not put back in vain.
        What he replaces he keeps: a run that was alive may have planned the newest batch in it.
        """
        group = self.copies or [self]
        lowest = self.first_batch + (not other)
        states = [
            one
            for each in group
            for one in (each.saved, each)
            if one is not None and one is not self
        ]
        found = [one for one in states if one.first_batch >= lowest and one.plans not in self.tried]
        if not found:
            return False
        newest = max(found, key=lambda one: one.first_batch)
        replaced = _copy(self)
        self.tried.append(dict(newest.plans))
        self.take(newest)
        self.restored += 1
        if newest is self.saved:
            self.saved = replaced
        return True

    def files(self, now_millis: int) -> SparkCheckpoint:
        """The folder that Spark would have."""
        storage = MemoryStorage(clock=_Stopped(self.done_millis or now_millis))
        storage.write("metadata", json.dumps({"id": self.query}).encode())
        for batch in range(max(0, self.planned - 1), self.planned + 1):
            storage.write(f"offsets/{batch}", self.plans[batch].encode())
        if self.next_batch > 0:
            storage.write(f"commits/{self.next_batch - 1}", b"v1\n{}")
        return SparkCheckpoint(root=self.path, storage=storage)

    def _fill(self) -> None:
        for batch in range(max(self.next_batch, self.planned)):
            self.plans.setdefault(batch, f"v1\n{{}}\n{self.name}-{batch}")


@dataclass(slots=True)
class _Stopped(Clock):
    millis: int

    def now_millis(self) -> int:
        return self.millis

    def local_millis(self) -> int:
        return self.millis

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


class Keeper(Actor):
    """Somebody who keeps copies of a checkpoint. He restores an old one, wipes the checkpoint, or
    starts a second query from a copy.
    """

    kind = "keeper of checkpoints"
    whole = True
    without_faults = True
    copied: Checkpoint | None = None

    def begin(self) -> Work | None:
        stream = self._stream()
        mine = stream.checkpoint
        works = [self.keep]
        if self.copied is not None and self.copied.query == mine.query and mine.saved is None:
            works.append(self.rewind)
            if not mine.copies:
                works.append(self.start_copy)
        if mine.next_batch > 0 and mine.saved is None and not mine.shared and not mine.copies:
            works += [self.wipe, self.wipe_with_new_user]
        work = self.world.choices.pick(works)
        self.doing = work.__name__.replace("_", " ")
        self.ready()
        return lambda: work(stream)

    def _stream(self) -> Stream:
        return self.world.actors[0]  # type: ignore[return-value]

    def keep(self, stream: Stream) -> None:
        self.copied = _copy(stream.checkpoint)

    def rewind(self, stream: Stream) -> None:
        assert self.copied is not None
        self._begin(stream)
        stream.checkpoint.take(self.copied)

    def start_copy(self, stream: Stream) -> None:
        assert self.copied is not None
        mine = stream.checkpoint
        copy = replace(_copy(self.copied), name="copy", runs=0, tampered=True)
        mine.tampered = True
        mine.copies = copy.copies = [mine, copy]
        self.world.actors.append(stream.copied(copy))

    def wipe(self, stream: Stream) -> None:
        self._begin(stream)
        self._wiped(stream.checkpoint, stream.checkpoint.user)

    def wipe_with_new_user(self, stream: Stream) -> None:
        self._begin(stream)
        self.world.serial += 1
        self._wiped(stream.checkpoint, f"a{self.world.serial}")

    def _begin(self, stream: Stream) -> None:
        if stream.process is not None:
            stream.process.kill()
            stream.ended()
        mine = stream.checkpoint
        mine.saved, mine.tampered = _copy(mine), True
        mine.tried.clear()
        for one in self.world.actors:
            if getattr(one, "checkpoint", None) is mine:
                vars(one)["answers"].clear()  # they were given for the checkpoint as it was

    def _wiped(self, mine: Checkpoint, user: str) -> None:
        self.world.serial += 1
        mine.user, mine.query = user, f"query-{self.world.serial}"
        mine.next_batch, mine.plans, mine.done_millis = 0, {}, None


def _copy(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, saved=None, copies=[], tried=[], plans=dict(checkpoint.plans))
