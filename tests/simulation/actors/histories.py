"""Those who change the history of a table in ways that no writer sees: they make, delete and
forward branches, rename sinks, put the table back from a copy, set its options, and copy the marks
of a stream. Others damage what this package has noted. And outages so long that everything
expires.

Each piece of work is whole, and nothing fails: what matters is the order of these pieces.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_stream.errors import AlreadyExists, IncompatibleSchema
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    CommitKind,
    Snapshot,
    encode_snapshot,
)
from paimon_stream.maintenance.branches import create_branch, delete_branch, fast_forward
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import evolve
from tests.simulation.actors.base import Actor, Work
from tests.simulation.actors.java import JavaWriter, added
from tests.simulation.actors.maintenance import tags_of
from tests.simulation.actors.streams import Stream
from tests.simulation.actors.writers import HastyKeeper
from tests.simulation.scheduler import DAY, MINUTE
from tests.simulation.truth import BRANCH, Truth

if TYPE_CHECKING:
    from tests.simulation.world import TableCopy, World

NAME = "b"
"""The branch, which is made again under the same name."""

NOTE = re.compile(r"_paimon_stream/(removed\.|rolled-back\.json)")
"""The path of a note of removed snapshots, of the table or of a branch."""

SOON = 11 * MINUTE
"""After this a branch is made again under its name. The times of two machines may be five minutes
apart, and a stream allows for five minutes more.
"""


def streams_of(world: World) -> list[Stream]:
    return [one for one in world.actors if isinstance(one, Stream)]


def end_runs(world: World, branch: str) -> None:
    """An operator ends the runs of all streams of a branch."""
    for stream in streams_of(world):
        if stream.branch == branch and stream.process is not None:
            stream.process.kill()
            stream.killed()


class LongOutage(HastyKeeper):
    """For twenty days no stream runs. Others commit twice, and all but one snapshot expires."""

    kind = "long outage"

    def begin(self) -> Work | None:
        if self.branch and not self.world.exists(self.branch):
            return None
        for branch in ("", NAME):
            if self.branch == branch and self.world.choices.once_in(2):
                end_runs(self.world, branch)
        self.world.millis += 20 * DAY
        return super().begin()


class BranchMaker(Actor):
    """Makes a branch from a tag or an empty one, deletes it, and makes it again."""

    kind = "maker of branches"
    whole = True
    brings = BRANCH

    @property
    def truth(self) -> Truth:
        return self.world.branches[NAME]

    def begin(self) -> Work | None:
        self.world.millis += SOON
        self.ready()
        if self.world.exists(NAME):
            if not self.world.choices.once_in(3):
                return None
            if self.world.choices.once_in(2):
                end_runs(self.world, NAME)
            self.doing = "deleting the branch"
            return self.delete
        tag = self.world.choices.pick((None, *tags_of(self.world)[-2:]))
        self.doing = "an empty branch" if tag is None else f"a branch from tag {tag}"
        return lambda: self.make(tag)

    def make(self, tag: str | None) -> object:
        return create_branch(self.table(), NAME, tag, runtime=self.ready().runtime)

    def delete(self) -> object:
        report = delete_branch(self.table(), NAME)
        world = self.world
        world.branches[NAME] = world.branches[NAME].of_next_table()
        self.ready().drops = self.truth.drops
        return report


class Forwarder(Actor):
    """Makes the table what the branch is. He has stopped all writers."""

    kind = "fast forward"
    whole = True
    may_roll_back = True
    notes = True
    brings = "rollback"
    expects = (AlreadyExists, IncompatibleSchema)

    def begin(self) -> Work | None:
        if not self.world.exists(NAME) or not self.world.branches[NAME].there:
            return None
        if self.world.choices.once_in(2):
            end_runs(self.world, "")
        self.doing = "a fast forward to the branch"
        process = self.ready()
        return lambda: fast_forward(self.table(), NAME, runtime=process.runtime)


class Renamer(Actor):
    """Starts a stream again under another commit user: he has renamed its sink, or the prefix."""

    kind = "renamer"
    whole = True

    def begin(self) -> Work | None:
        stream = self.world.choices.pick(
            [one for one in streams_of(self.world) if one.names == ("",) and not one.retired]
        )
        self.doing = f"another commit user for {stream.name}"
        self.ready()
        return lambda: self.rename(stream)

    def rename(self, stream: Stream) -> None:
        if stream.process is not None:
            stream.process.kill()
        stream.killed()
        self.world.serial += 1
        stream.checkpoint.user = f"{stream.checkpoint.name}{self.world.serial}"


class Mover(Actor):
    """Points a stream of the table to the branch, once. Its checkpoint stays."""

    kind = "mover of streams"
    whole = True
    moved = False

    def begin(self) -> Work | None:
        world = self.world
        if self.moved or not world.exists(NAME):
            return None
        self.doing, self.moved = "pointing stream a to the branch", True
        self.ready()
        return lambda: world.actors[0].moved_to(NAME)  # type: ignore[attr-defined]


class CopyKeeper(Actor):
    """Keeps a copy of the table's folder, and puts the table back from it. Nothing inside can tell
    that.
    """

    kind = "keeper of copies"
    whole = True
    drops = True

    def __post_init__(self) -> None:
        self.copy: TableCopy | None = None

    def begin(self) -> Work | None:
        self.ready()
        kept = self.copy
        if kept is None or self.world.choices.once_in(2):
            self.doing = "a copy of the table"
            return self.keep
        self.doing = "putting the table back from the copy"
        return lambda: self.put_back(kept)

    def keep(self) -> None:
        self.copy = self.world.copied()

    def put_back(self, kept: TableCopy) -> None:
        for branch in ("", NAME):
            end_runs(self.world, branch)
        for stream in streams_of(self.world):
            if any(stream.answers.values()):
                # He knows what was lost, and his answers were for the table as it was.
                stream.truth.acked -= stream.before()
                stream.answers.clear()
        self.world.put_back(kept)
        process = self.ready()
        process.drops, process.upsets = self.world.truth.drops, self.world.truth.upsets
        self.copy = None


class OptionSetter(Actor):
    """Another engine stores options of this package's sinks in the table."""

    kind = "setter of options"
    whole = True

    def begin(self) -> Work:
        name, value = self.world.choices.pick(
            (
                ("paimon-stream.journal", "false"),
                ("paimon-stream.on-table-change", "continue"),
                ("paimon-stream.on-checkpoint-reset", "continue"),
            )
        )
        self.doing = f"{name}={value} in the table's schema"
        self.ready()

        def with_option(schema: TableSchema) -> TableSchema:
            return replace(schema, id=schema.id + 1, options={**schema.options, name: value})

        return lambda: evolve(self.table(), with_option, rows=False)


class Damager(Actor):
    """Cuts one or all notes of removed snapshots, or gives them the version of a newer release."""

    kind = "damager of notes"
    whole = True

    def begin(self) -> Work | None:
        choices = self.world.choices
        notes = [path for path in sorted(self.world.truth.paths) if NOTE.search(path)]
        if not notes:
            return None
        paths = [choices.pick(notes)] if choices.once_in(2) else notes
        newer = choices.once_in(2)
        self.doing = f"{'a newer form of' if newer else 'cutting'} {', '.join(paths)}"
        self.ready()
        return lambda: self.damage(paths, newer=newer)

    def damage(self, paths: list[str], *, newer: bool) -> None:
        storage = self.ready().storage
        for path in paths:
            content = storage.read(path)
            written = content.replace(b" 1 sha256:", b" 2 sha256:", 1)
            storage.write(path, written if newer else content[: len(content) // 2])


class MarkCopier(JavaWriter):
    """Another engine publishes without a lock, and replaces the newest snapshot. Its own has the
    properties of an older one, so the marks of a stream.
    """

    kind = "copier of marks"
    whole = True
    replaces = True

    def work(self) -> object:
        storage, truth = self.ready().storage, self.world.truth
        head = truth.head
        if head is None or head.id - 1 not in truth.there or head.id in truth.beside:
            return None
        below = SnapshotStore(storage, self.ready().runtime).get(head.id - 1)
        message = self.message(self.table(), "java", None)
        self.copied = below.properties
        entries = [added(message)]
        return self.commit(
            below, self.table(), entries, message.new_files[0].row_count, CommitKind.OVERWRITE
        )

    def _renamed(self, snapshot: Snapshot) -> bool:
        snapshot = replace(snapshot, properties=self.copied, commit_identifier=BATCH_IDENTIFIER)
        self.ready().storage.write(snapshot_path(snapshot.id), encode_snapshot(snapshot))
        return True
