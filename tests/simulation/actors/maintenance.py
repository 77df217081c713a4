"""Those who maintain the table with this package: expiry, tags, rollback, orphans, manifests,
branches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_stream.errors import NotFound, PaimonStreamError
from paimon_stream.maintenance.automatic_tags import AutomaticTagsReport, create_automatic_tags
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.manifest_compaction import compact_manifests
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.pins import is_pin
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag
from paimon_stream.options import Options
from tests.simulation import rules
from tests.simulation.actors.base import TAKEN_AWAY, Actor, Work
from tests.simulation.state import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

TAG = "tag/tag-"
SECOND = 1000


def tags_of(world: World) -> list[str]:
    """The names of the users' tags."""
    names = (path.removeprefix(TAG) for path in sorted(world.truth.tags))
    return [name for name in names if not is_pin(name)]


class Expirer(Actor):
    kind = "expirer"
    by_server = True
    may_expire = True

    def begin(self) -> Work:
        keep = self.world.choices.pick((2, 1, 3, 5))
        protects = not self.world.choices.once_in(3)
        self.doing = f"expiry to {keep} snapshots"
        process = self.ready()
        return lambda: expire_snapshots(
            replace(self.table(), storage=process.storage),
            retain_max=keep,
            retain_min=1,
            protect_streams=protects,
            runtime=process.runtime,
        )


class Tagger(Actor):
    kind = "tagger"

    def begin(self) -> Work:
        process, tags = self.ready(), tags_of(self.world)
        if tags and self.world.choices.once_in(3):
            name = self.world.choices.pick(tags)
            self.doing = f"deleting tag {name}"
            return lambda: delete_tag(
                replace(self.table(), storage=process.storage), name, runtime=process.runtime
            )
        self.world.serial += 1
        truth, name = self.world.truth, f"t{self.world.serial}"
        ids = [one for one in sorted(truth.there) if one not in truth.beside]
        chosen = self.world.choices.pick((None, *ids[:2], *ids[-1:]))
        self.doing = f"tag {name} of snapshot {chosen or 'newest'}"
        return lambda: create_tag(
            replace(self.table(), storage=process.storage), name, chosen, runtime=process.runtime
        )


class AutomaticTagger(Actor):
    """Creates the tags that are due, and deletes the oldest ones. Each minute or two is a
    period.
    """

    kind = "automatic tagger"

    def begin(self) -> Work:
        process, most = self.ready(), self.world.choices.pick(("2", "1", "3"))
        self.doing = f"automatic tags, {most} at most"
        options = {
            "tag.automatic-creation": "process-time",
            "sink.process-time-zone": "UTC",
            "tag.creation-period-duration": "1 min",
            "tag.num-retained-max": most,
        }

        def work() -> object:
            table = self.table()
            table = replace(table, storage=process.storage, options=Options(table.options, options))
            return create_automatic_tags(table, runtime=process.runtime)

        return work

    def succeeded(self, result: object) -> None:
        assert isinstance(result, AutomaticTagsReport)
        for name in result.deleted:
            if not name.isdigit():
                raise Violation(
                    rules.USERS_TAGS, f"{self.name} deletes tag {name}, which is not automatic"
                )


class Restorer(Actor):
    """Rolls the table back."""

    kind = "rollback"
    may_roll_back = True
    notes = True
    another = False
    """Whether the error said that the target of the interrupted rollback cannot be read."""

    def begin(self) -> Work | None:
        truth = self.world.truth
        pinned = sorted(
            state.id for path, (state, _) in truth.tags.items() if is_pin(path[len(TAG) :])
        )
        standing: list[int | str] = [one for one in sorted(truth.there) if one not in truth.beside][
            -4:
        ]
        targets = standing[:-1] + tags_of(self.world)
        take_over = (
            len(set(pinned)) > 1
        )  # as the error says where one was killed while it took over
        another, self.another = self.another, False
        if pinned and another:
            targets, take_over = standing[-1:], True
        elif pinned and not self.world.choices.once_in(4):
            targets = [pinned[0]]
        elif pinned:
            take_over = True
        if not targets:
            return None
        return self.to(self.world.choices.pick(targets), take_over=take_over)

    def to(self, target: int | str, *, take_over: bool) -> Work:
        """A rollback to this target."""
        process = self.ready()
        self.doing = f"rollback to {target}" + (", taking over" if take_over else "")
        self.world.millis += 2 * SECOND  # nobody decides that within the second of a swift commit
        return lambda: rollback_to(
            replace(self.table(), storage=process.storage),
            target,
            take_over=take_over,
            runtime=process.runtime,
        )

    def failed(self, error: PaimonStreamError) -> None:
        self.another = isinstance(error, NotFound) and "take_over" in error.message


class OrphanCleaner(Actor):
    kind = "orphan cleaner"

    def begin(self) -> Work:
        process, age = self.ready(), self.world.choices.pick(("1 d", "1 h", "90 min"))
        self.doing = f"removal of orphans older than {age}"
        return lambda: remove_orphan_files(
            replace(self.table(), storage=process.storage),
            age,
            dry_run=False,
            runtime=process.runtime,
        )


class LastCleaner(OrphanCleaner):
    """Comes when everybody is at rest."""

    error: PaimonStreamError | None = None

    def failed(self, error: PaimonStreamError) -> None:
        self.error = error


class ManifestCompactor(Actor):
    kind = "manifest compactor"
    writes = True
    expects = TAKEN_AWAY

    @property
    def exposed(self) -> bool:
        return True

    def begin(self) -> Work:
        process = self.ready()
        self.doing = "compaction of manifests"
        return lambda: compact_manifests(
            replace(self.table(), storage=process.storage), runtime=process.runtime
        )
