"""Small changes to the maintenance of tables that the simulation must catch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from paimon_stream.commit import checks
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.overwrite import OverwriteSource
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.maintenance import expire, orphans, rollback, tags
from paimon_stream.maintenance.automatic_tags import TagNames
from paimon_stream.maintenance.expire_run import Cleaner
from paimon_stream.maintenance.kept_files import KeptFiles
from paimon_stream.maintenance.needed import OtherBranches
from paimon_stream.maintenance.own_files import OwnFiles
from paimon_stream.stream import reuse
from paimon_stream.table import references
from paimon_stream.table.references import NameSet, References
from paimon_stream.table.snapshots import SnapshotStore
from tests.simulation import rules
from tests.simulation.bug import Patch, bug

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

# -- expiry
# --------------------------------------------------------------------------------------------


@bug(
    "An expiry takes what a rollback has removed for what another expiry took.",
    rule=rules.STAYS,
    why="An expiry goes on beside a rollback and takes the newest snapshot.",
    seed=20261123000134,
    newcomers=True,
)
def what_is_gone_has_expired(patch: Patch) -> None:
    real = OwnFiles._look

    def look(self: OwnFiles, *given: Any) -> Any:
        found = real(self, *given)
        return found if found.is_there else found._replace(is_history=True)

    patch.setattr(OwnFiles, "_look", look)


@bug(
    "Expiry takes the newest of the old snapshots first.",
    "expirer",
    rule=rules.CONTINUOUS,
    why="Ids below the deleted one still stand.",
)
def expiry_from_the_wrong_end(patch: Patch) -> None:
    def groups(*given: Any) -> Any:
        found = [pair for group in real(*given) for pair in pairwise(group)]
        return map(list, reversed(found))

    real = expire._groups
    patch.setattr(expire, "_groups", groups)


@bug(
    "Expiry overlooks tags.",
    "expirer",
    "tagger",
    rule=rules.WHOLE,
    why="A tag refers to the files that go.",
)
def expiry_overlooks_tags(patch: Patch) -> None:
    patch.setattr(KeptFiles, "_tags_by_path", lambda self: {})


def ask_only_nearest(patch: Patch, count: int) -> None:
    """Of the tags below the snapshot that stays, only those with the `count` nearest ids are asked."""
    following_ids: list[int] = []
    finish, all_tags = Cleaner.finish, KeptFiles._tags_by_path

    def finish_group(
        self: Cleaner, gone: Sequence[Snapshot], following: Snapshot, **options: Any
    ) -> None:
        following_ids.append(following.id)
        finish(self, gone, following, **options)
        following_ids.clear()

    def nearest(self: KeptFiles) -> dict[str, Snapshot]:
        tags = all_tags(self)
        ids = sorted({tag.id for tag in tags.values() if tag.id < following_ids[-1]})[-count:]
        return {path: tag for path, tag in tags.items() if tag.id in ids}

    patch.setattr(Cleaner, "finish", finish_group)
    patch.setattr(KeptFiles, "_tags_by_path", nearest)


@bug(
    "Of the tags below, an expiry asks only those with the nearest id.",
    "batch writer",
    "tagger",
    "overwriter",
    "Java writer without a lock",
    "hasty keeper",
    rule=rules.WHOLE,
    why="The nearest tag is of a snapshot that had removed the files of the tag below it, and was replaced.",
    within=1,
    newcomers=True,
    script=[
        *([0], [], [2], [3], [5, 0, 0, 20], [5, 0, 0, 18], [5, 0, 0, 16], [4], [3], [5], [4], [6]),
    ],
)
def only_the_nearest_tag_is_asked(patch: Patch) -> None:
    ask_only_nearest(patch, 1)


@bug(
    "Of the tags below, an expiry asks only those with the two nearest ids.",
    "batch writer",
    "tagger",
    "overwriter",
    "Java writer without a lock",
    "hasty keeper",
    rule=rules.WHOLE,
    why="Both are of snapshots that had removed the files of the tag below them, and were replaced.",
    within=1,
    newcomers=True,
    script=[
        *([0], [], [2], [3], [5, 0, 0, 20], [5, 0, 0, 18], [5, 0, 0, 16], [4], [3], [5]),
        *([5, 0, 20], [5, 0, 0, 18], [5, 0, 0, 16], [4], [3], [5], [4], [6]),
    ],
)
def only_the_two_nearest_tags_are_asked(patch: Patch) -> None:
    ask_only_nearest(patch, 2)


@bug(
    "Of the tags with one id, an expiry asks one.",
    "history",
    "long outage",
    "tagger",
    "maker of branches",
    "mover of streams",
    "copier of marks",
    "batch writer",
    rule=rules.WHOLE,
    why="A snapshot was tagged, replaced, and tagged again.",
    seed=23780,
    within=1,
    newcomers=True,
    script=[[3], [], [0], [0], [0], [7], [10], [7], [6]],
)
def one_tag_of_an_id_is_enough(patch: Patch) -> None:
    all_tags = KeptFiles._tags_by_path

    def first_of_each_id(self: KeptFiles) -> dict[str, Snapshot]:
        first = {tag.id: path for path, tag in reversed(all_tags(self).items())}
        return {path: tag for path, tag in all_tags(self).items() if path in first.values()}

    patch.setattr(KeptFiles, "_tags_by_path", first_of_each_id)


@bug(
    "Expiry overlooks branches.",
    "expirer",
    "brancher",
    rule=rules.WHOLE,
    why="A branch refers to the files that go.",
    seed=1,
)
def expiry_overlooks_branches(patch: Patch) -> None:
    patch.setattr(OtherBranches, "look", lambda *given: None)


@bug(
    "Expiry deletes metadata that the next snapshot uses.",
    "expirer",
    rule=rules.WHOLE,
    why="The next snapshot refers to the manifests that go.",
)
def expiry_keeps_nothing(patch: Patch) -> None:
    patch.setattr(KeptFiles, "names_kept", lambda *given: frozenset())


@bug(
    "An expiry that met a rollback leaves the newest deleted where an expired id was created again.",
    "expirer",
    "rollback",
    "batch writer",
    rule=rules.STAYS,
    why="The expiry does not put the newest snapshot back.",
    within=1,
    newcomers=True,
    script=[
        [*[0] * 27, 1],
        *([0], [0], [3, 0, 0, 8], [3, 0, 4, 6], [0], [0], [0], [0], [0]),
        *([2, 0, 0, 0, 0, 0, 8], [2, 0, 0, 0, 8], [2, 0, 0, 0, 8], [4, 12, 0, 0, 0, 1]),
    ],
)
def an_id_created_again_passes_for_the_newest(patch: Patch) -> None:
    patch.setattr(OwnFiles, "_was_newest", lambda self, last: not self._snapshots.ids())


# -- rollback and tags
# ---------------------------------------------------------------------------------


@bug(
    "A rollback does not look again whether its target stands.",
    "expirer",
    "rollback",
    "tagger",
    rule=rules.WHOLE,
    why="Files of the target were deleted meanwhile.",
    seed=15,
)
def a_rollback_does_not_look_again(patch: Patch) -> None:
    patch.setattr(rollback, "_refuse_gone", lambda *given: None)
    patch.setattr(rollback, "_wait_for_expiry", lambda *given: None)
    patch.setattr(rollback, "refuse_broken", lambda *given: None)
    patch.setattr(rollback, "refuse_broken", lambda *given: None)


@bug(
    "A tag is not taken back if its snapshot has expired meanwhile.",
    "expirer",
    "tagger",
    rule=rules.WHOLE,
    why="Files of the tagged snapshot were deleted meanwhile.",
    seed=1,
)
def a_tag_without_a_second_look(patch: Patch) -> None:
    patch.setattr(tags, "_why_not_whole", lambda *given: None)


@bug(
    "A partition expires although others have just written to it.",
    "partition expirer",
    "batch writer",
    "stream b",
    rule=rules.YOUNG_FILES,
    why="A file that has just been written goes with its partition.",
    seed=4,
)
def written_partitions_expire(patch: Patch) -> None:
    def at(self: OverwriteSource, *given: Any) -> Any:
        self._spared_since_millis = 2**63
        return real(self, *given)

    real = OverwriteSource.at
    patch.setattr(OverwriteSource, "at", at)


@bug(
    "Any tag may go for a newer automatic one.",
    "automatic tagger",
    "tagger",
    "batch writer",
    rule=rules.USERS_TAGS,
    why="A user's tag counts as an old automatic one.",
)
def all_tags_are_automatic(patch: Patch) -> None:
    real = TagNames.time_of
    patch.setattr(TagNames, "time_of", lambda self, name: real(self, name) or EPOCH)


@bug(
    "The files of a deleted tag go although snapshots need them.",
    "tagger",
    "overwriter",
    rule=rules.WHOLE,
    why="Snapshots refer to the files that go.",
    seed=6,
)
def a_deleted_tag_takes_all(patch: Patch) -> None:
    patch.setattr(tags, "_roots_beside", lambda *given: tags._Roots([], []))
    patch.setattr(KeptFiles, "live_names_of_tags", lambda self: NameSet())

    class Gone(SnapshotStore):
        def stands(self, snapshot: object) -> bool:
            return False

    patch.setattr(tags, "SnapshotStore", Gone)


@bug(
    "Nobody looks again before the files of a deleted tag go.",
    "tagger",
    "rollback",
    "expirer",
    rule=rules.WHOLE,
    why="A rollback has made the tag's snapshot the newest meanwhile.",
    within=1,
    newcomers=True,
    script=[
        *(
            [],
            [0],
            [],
            [],
            [],
            [4, 0, 0, 1],
            [2],
            [3, 0, 1, 0, 12],
            [4, 0, 2, 0, 12],
            [4, 0, 0, 22],
        ),
        *([3, 0, 4, 2], [3]),
    ],
)
def a_deleted_tag_is_not_looked_after(patch: Patch) -> None:
    patch.setattr(Cleaner, "_is_wanted", lambda *given: False)


@bug(
    "A rollback believes a tag that an expiry may have overlooked.",
    rule=rules.WHOLE,
    why="An expiry had not seen the tag, and deleted its files.",
    seed=1174,
)
def a_rollback_believes_any_tag(patch: Patch) -> None:
    patch.setattr(rollback, "_refuse_half_expired", lambda *given: None)


@bug(
    "A rollback does not wait for an expiry, and leaves no pin.",
    "expirer",
    "rollback",
    rule=rules.ACKNOWLEDGED,
    why="A writer does not see that a rollback is under way, and reports a snapshot that lies above its target.",
)
def a_rollback_without_a_pin(patch: Patch) -> None:
    patch.setattr(rollback, "pin_target", lambda *given, **options: rollback.Pinned("tag/tag-none"))
    patch.setattr(rollback._Rollback, "_require_pin", lambda self: None)
    patch.setattr(rollback._Rollback, "_hold_target", lambda self: None)


@bug(
    "A rollback to a tag does not look who has the tag's id now.",
    "rollback",
    "tagger",
    "batch writer",
    rule=rules.NOT_REPLACED,
    why="A rollback dies before it removes the tag of a snapshot that it has removed. A stream uses the id again, and a rollback to the tag takes over.",
    seed=127,
    newcomers=True,
)
def a_rollback_writes_over_who_has_the_id_of_its_tag(patch: Patch) -> None:
    patch.setattr(rollback, "_refuse_id_of_another", lambda *given: None)


# -- orphans
# -------------------------------------------------------------------------------------------


@bug(
    "Orphan removal overlooks journals.",
    "orphan cleaner",
    rule=rules.WHOLE,
    why="A restarted run publishes the journalled files, which are gone.",
    seed=9,
)
def orphans_overlook_journals(patch: Patch) -> None:
    patch.setattr(References, "_read_journals", lambda self: None)
    patch.setattr(checks, "missing_files", lambda *given, **when: [])
    patch.setattr(reuse, "_obstacle_of_files", lambda *given: None)


@bug(
    "Orphan removal takes files of any age.",
    "orphan cleaner",
    rule=rules.WHOLE,
    why="The files of a commit under way go before it is published.",
    seed=11,
)
def orphans_of_any_age(patch: Patch) -> None:
    patch.setattr(orphans, "_age", lambda *given: -1)


@bug(
    "Orphan removal overlooks tags.",
    "orphan cleaner",
    "tagger",
    "expirer",
    "overwriter",
    rule=rules.WHOLE,
    why="A tag refers to the files that go.",
    seed=1,
)
def orphans_overlook_tags(patch: Patch) -> None:
    patch.setattr(references, "_ROOTS", tuple(one for one in references._ROOTS if one[0] != "tag"))


@bug(
    "Orphan removal overlooks snapshots other than the newest.",
    "orphan cleaner",
    "overwriter",
    rule=rules.WHOLE,
    why="Older snapshots refer to the files that go.",
)
def orphans_know_one_snapshot(patch: Patch) -> None:
    def roots(storage: Any) -> Any:
        found = [one for one in real(storage) if one.folder == "snapshot"]
        return found[-1:]

    real = references.list_roots
    patch.setattr(references, "list_roots", roots)


@bug(
    "A snapshot that is no part of the table is tagged, and its maker does not look at tags.",
    "batch writer",
    "tagger",
    "hasty keeper",
    rule=rules.WHOLE,
    why="Its maker removes the snapshot with its files.",
    within=1,
    newcomers=True,
    script=[[0], [], [2, 0, 0, 8], [0], [3, 0, 0, 1, 16], [4], [2, 0, 0, 8], [3], [2]],
)
def a_stray_snapshot_is_tagged(patch: Patch) -> None:
    patch.setattr(Committer, "_leave_to_tags", lambda self, attempts: None)
    patch.setattr(tags, "refuse_beside", lambda *given: None)
