"""Small changes to the compaction of data files that the simulation must catch."""

from __future__ import annotations

from typing import Any

from paimon_stream.compact import job, planning, publish
from paimon_stream.compact.rewrite import Rewriter, Rewritten
from paimon_stream.compact.units import KeyedUnit, Unit
from paimon_stream.errors import CommitUnknown
from paimon_stream.format.snapshot_json import Snapshot
from tests.simulation import rules
from tests.simulation.bug import Patch, bug

# -- what is published
# ---------------------------------------------------------------------------------


@bug(
    "A compaction does not look whether the files of its units are still live.",
    "compactor",
    "overwriter",
    rule=rules.NO_FALSE_ALARM,
    why="The unit's files are gone, so the check of every commit refuses it, and the job fails instead of leaving the unit out.",
    seed=4,
)
def units_are_not_looked_at_again(patch: Patch) -> None:
    patch.setattr(publish, "_fits", lambda *given: True)


@bug(
    "A compaction whose files somebody else has compacted adds its new files.",
    "compactor",
    "Java compactor",
    rule=rules.ONCE,
    why="Somebody else's file already has the rows of the files that are gone.",
)
def new_files_are_added_in_any_case(patch: Patch) -> None:
    def at(self: publish.CompactionSource, base: Any) -> Any:
        made, live = self._results, self._live(base)
        gone = [one for unit in made for one in unit.deleted() if one.identity in live[bucket(one)]]
        return publish.Changes(
            entries=(*gone, *(one for unit in made for one in unit.placed(unit.files)))
        )

    bucket = publish.bucket_of
    patch.setattr(publish.CompactionSource, "at", at)


@bug(
    "A compaction commits as the next batch of the stream.",
    "compactor",
    rule=rules.NO_FALSE_ALARM,
    why="A running stream finds its next batch under its own user, and takes that for a second run of itself.",
)
def a_compaction_is_a_commit_of_the_stream(patch: Patch) -> None:
    def request(**given: Any) -> Any:
        last: Snapshot = given["source"]._planned
        following = {"user": last.commit_user, "identifier": last.commit_identifier + 1}
        return real(**{**given, **following, "properties": last.properties})

    real = publish.CommitRequest
    patch.setattr(publish, "CommitRequest", request)


@bug(
    "A compaction names its old files in no DELETE.",
    "compactor",
    rule=rules.ONCE,
    why="The rows are in the old files and in the new one.",
)
def old_files_stay(patch: Patch) -> None:
    patch.setattr(Rewritten, "deleted", lambda self: [])


@bug(
    "Nobody looks whether others have added a file among the new ones of a bucket.",
    "compactor",
    "Java writer",
    "batch writer",
    rule=rules.COMPACTED,
    why="The new file's numbers enclose the file of another, so rows of a bucket change their order.",
    seed=119,
)
def numbers_between_are_overlooked(patch: Patch) -> None:
    def fits(made: Rewritten, live: Any) -> bool:
        if isinstance(made.unit, KeyedUnit):
            return real(made, live)
        return {one.identity for one in made.unit.files} <= live.get(made.unit.bucket, {}).keys()

    real = publish._fits
    patch.setattr(publish, "_fits", fits)


@bug(
    "The rows of a fixed bucket are taken newest first.",
    "compactor",
    rule=rules.COMPACTED,
    why="The rows of a bucket change their order.",
    seed=10,
)
def rows_change_places(patch: Patch) -> None:
    real = planning._blocks
    patch.setattr(planning, "_blocks", lambda files: real(files)[::-1])


@bug(
    "A unit with files of a newer schema is rewritten with the older one.",
    "compactor",
    "schema changer",
    "batch writer",
    rule=rules.COMPACTED,
    why="The new file has an older schema than rows in it.",
    seed=14,
)
def new_columns_are_lost(patch: Patch) -> None:
    patch.setattr(Unit, "newest_schema", property(lambda self: 0))
    patch.setattr(KeyedUnit, "newest_schema", property(lambda self: 0))


# -- what is removed
# -----------------------------------------------------------------------------------


@bug(
    "The new files are removed although they may be published.",
    "compactor",
    "batch writer",
    rule=rules.WHOLE,
    why="The snapshot that refers to them may stand.",
    seed=126,
)
def new_files_go_in_doubt(patch: Patch) -> None:
    def publish_part(self: Any, rewriter: Rewriter) -> None:
        made = list(self._waiting.values())
        try:
            real(self, rewriter)
        except CommitUnknown:
            rewriter.remove(made)
            raise

    real = job._UnitsOfPlan._publish_waiting_units
    patch.setattr(job._UnitsOfPlan, "_publish_waiting_units", publish_part)


@bug(
    "The old files are removed as soon as the compaction is published.",
    "compactor",
    rule=rules.WHOLE,
    why="The snapshots before still refer to them.",
)
def old_files_go_at_once(patch: Patch) -> None:
    def publish_units(self: publish.CompactionSource, *given: Any) -> Any:
        published = real(self, *given)
        landed = [self._results[number] for number in published.positions]
        for entry in (entry for result in landed for entry in result.unit.files):
            layout = self._table.layout
            self._table.storage.delete(
                layout.data_file(entry.partition, entry.bucket, entry.file.file_name)
            )
        return published

    real = publish.CompactionSource.publish_rewritten
    patch.setattr(publish.CompactionSource, "publish_rewritten", publish_units)


@bug(
    "A file that only changes its level is removed with a unit that is given up.",
    "compactor",
    "batch writer",
    rule=rules.WHOLE,
    why="The file is no new one: the table refers to it.",
    seed=13,
)
def upgraded_files_go_with_their_unit(patch: Patch) -> None:
    patch.setattr(Rewritten, "written", property(lambda self: list(self.files)))


@bug(
    "A file that has expired after somebody replaced it counts as damage.",
    "compactor",
    "Java compactor",
    "expirer",
    rule=rules.NO_FALSE_ALARM,
    why="The job reports that a file of the table is missing, which others have replaced and expired.",
    seed=89,
)
def an_expired_file_is_damage(patch: Patch) -> None:
    patch.setattr(job._UnitsOfPlan, "_is_live", lambda *given: True)
