"""Those who take part, each with one plain piece of work. They are the actors of the simulation,
and what these would draw is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.tags import create_tag
from tests.orders.faults import DIES
from tests.orders.setting import settle
from tests.orders.stage import Stage
from tests.orders.threads import Thread
from tests.simulation.actors.base import Actor, Work
from tests.simulation.actors.histories import NAME, BranchMaker
from tests.simulation.actors.maintenance import Expirer, OrphanCleaner, Restorer, Tagger
from tests.simulation.actors.merging import MergingStream
from tests.simulation.actors.streams import Stream
from tests.simulation.actors.writers import BatchWriter, HastyKeeper, SecondDeleter


class OneLeft(Expirer):
    """An expiry of all snapshots but the newest, without regard for streams."""

    keep = 1
    protects = False

    def begin(self) -> Work:
        self.doing = f"expiry to {self.keep}"
        process = self.ready()
        return lambda: expire_snapshots(
            replace(self.table(), storage=process.storage),
            retain_max=self.keep,
            retain_min=1,
            protect_streams=self.protects,
            runtime=process.runtime,
        )


class TwoLeft(OneLeft):
    """An expiry of all snapshots but two."""

    keep = 2


class OtherDeleter(SecondDeleter):
    """Deletes another row of each file."""

    def begin(self) -> Work | None:
        work = super().begin()
        self.position, self.doing = 1, "a deletion of row 1 of each file"
        return work


class Busy(HastyKeeper):
    """Two commits and an expiry of all but the newest snapshot. Each operation is a point."""

    whole = False

    def begin(self) -> Work:
        self.doing = "two commits, and an expiry to 1 snapshot"
        self.written.clear()
        self.ready()
        return self.work


class ToTheFirst(Restorer):
    """A rollback to snapshot 1."""

    target = 1

    def begin(self) -> Work:
        work = self.to(self.target, take_over=False)
        self.world.millis -= 2000  # time stands still here
        return work


class TagOfFirst(Tagger):
    """A tag of snapshot 1."""

    def begin(self) -> Work:
        process = self.ready()
        self.doing = "tag t1 of snapshot 1"
        return lambda: create_tag(
            replace(self.table(), storage=process.storage), "t1", 1, runtime=process.runtime
        )


class TagOfNewest(Tagger):
    """A tag of the newest snapshot."""

    def begin(self) -> Work:
        process = self.ready()
        self.doing = "tag t1 of the newest snapshot"
        return lambda: create_tag(
            replace(self.table(), storage=process.storage), "t1", None, runtime=process.runtime
        )


class BranchOfTag(BranchMaker):
    """Makes a branch of tag t1."""

    def begin(self) -> Work:
        self.ready()
        self.doing = "a branch from tag t1"
        return lambda: self.make("t1")


class Cleaner(OrphanCleaner):
    """A removal of orphans older than an hour."""

    def begin(self) -> Work:
        process = self.ready()
        self.doing = "removal of orphans older than 1 h"
        return lambda: remove_orphan_files(
            replace(self.table(), storage=process.storage),
            "1 h",
            dry_run=False,
            runtime=process.runtime,
        )


# -- what happened before
# ----------------------------------------------------------------------------------


def commits(number: int) -> Callable[[Stage], None]:
    """Somebody has committed this number of batches."""

    def before(stage: Stage) -> None:
        settle(Thread(stage, BatchWriter(stage, "earlier"), number))

    return before


def batches(number: int, name: str = "stream", checkpoint: str = "a") -> Callable[[Stage], None]:
    """A stream has written this number of batches, and was stopped."""

    def before(stage: Stage) -> None:
        settle(Thread(stage, stream(stage, name, checkpoint), number))

    return before


def killed(at: str, age: int = 0) -> Callable[[Stage], None]:
    """A stream died so long ago, before the first change of a path that begins so."""

    def before(stage: Stage) -> None:
        settle(Thread(stage, stream(stage, "earlier run"), 1, {at: DIES}, tries=1))
        stage.millis += age

    return before


def does(kind: type[Actor]) -> Callable[[Stage], None]:
    """Somebody has done his work."""

    def before(stage: Stage) -> None:
        settle(Thread(stage, kind(stage, f"earlier {kind.kind}")))

    return before


def branched(stage: Stage) -> None:
    """Somebody has made a branch of a tag, and written to it."""
    does(TagOfFirst)(stage)
    stage.branches[NAME] = stage.truth.of_branch(NAME)
    does(BranchOfTag)(stage)
    writer = BatchWriter(stage, "writer of the branch")
    writer.branch = NAME
    settle(Thread(stage, writer))


def in_turn(*steps: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """One after the other."""

    def before(stage: Stage) -> None:
        for step in steps:
            step(stage)

    return before


def stream(stage: Stage, name: str = "stream", checkpoint: str = "a", **how: bool) -> Stream:
    """The next run of a stream."""
    return Stream(stage, name, stage.checkpoint(checkpoint), **how)


def merged(number: int) -> Callable[[Stage], None]:
    """Somebody has committed rows, and a stream has merged this number of batches into them."""

    def before(stage: Stage) -> None:
        commits(1)(stage)
        settle(Thread(stage, merging_stream(stage), number))

    return before


def merging_stream(stage: Stage) -> Stream:
    """The next run of a stream whose batches are merged."""
    return MergingStream(stage, MergingStream.kind, stage.checkpoint("m"))


def twins(stage: Stage) -> list[tuple[Actor, int]]:
    """Two drivers on one checkpoint."""
    stage.checkpoints["a"].shared = True
    return [(stream(stage, "stream"), 1), (stream(stage, "twin"), 1)]


def beside(
    *kinds: type[Actor], works: int = 1, run: Callable[[Stage], Stream] = stream
) -> Callable[[Stage], list[tuple[Actor, int]]]:
    """The next run of a stream, and others beside it."""

    def cast(stage: Stage) -> list[tuple[Actor, int]]:
        return [(run(stage), works), *others(*kinds)(stage)]

    return cast


def others(*kinds: type[Actor]) -> Callable[[Stage], list[tuple[Actor, int]]]:
    """Some who are no streams. Those of one kind are numbered."""

    def cast(stage: Stage) -> list[tuple[Actor, int]]:
        made: list[tuple[Actor, int]] = []
        for at, kind in enumerate(kinds):
            name = kind.kind
            names = [one.kind for one in kinds]
            if names.count(name) > 1:
                name += f" {1 + names[:at].count(name)}"
            made.append((kind(stage, name), 1))
        return made

    return cast
