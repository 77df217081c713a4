"""Small changes to what a snapshot says of itself, which no commit and no reader needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paimon_stream.commit import stage
from paimon_stream.table import manifests
from paimon_stream.table.snapshots import SnapshotStore
from tests.simulation import rules
from tests.simulation.bug import Patch, bug


def said(patch: Patch, name: str, change: Callable[[Any], Any]) -> None:
    """Snapshots have another value of this field."""
    real = stage.Snapshot

    def snapshot(**given: Any) -> Any:
        return real(**{**given, name: change(given[name])})

    patch.setattr(stage, "Snapshot", snapshot)


def listed(patch: Patch, name: str, change: Callable[[Any], Any]) -> None:
    """Manifest lists have another value of this field."""
    real = manifests.ManifestFileMeta

    def meta(**given: Any) -> Any:
        return real(**{**given, name: change(given[name])})

    patch.setattr(manifests, "ManifestFileMeta", meta)


@bug(
    "A snapshot counts one row more than its files have.",
    rule=rules.COUNTS,
    why="The total is not that of the entries.",
)
def the_total_count_is_too_large(patch: Patch) -> None:
    said(patch, "total_record_count", lambda rows: rows + 1)


@bug(
    "A snapshot says that it adds no rows.",
    rule=rules.COUNTS,
    why="The count is not that of the entries of its own changes.",
)
def no_rows_are_added(patch: Patch) -> None:
    said(patch, "delta_record_count", lambda rows: 0)


@bug(
    "A manifest list counts one added file more than its manifest has.",
    rule=rules.COUNTS,
    why="The count is not that of the entries.",
)
def an_added_file_too_many(patch: Patch) -> None:
    listed(patch, "num_added_files", lambda files: files + 1)


@bug(
    "A snapshot gives its base manifest list another size.",
    rule=rules.SIZES,
    why="The size is not that of the file.",
)
def the_base_list_has_one_byte(patch: Patch) -> None:
    said(patch, "base_manifest_list_size", lambda size: 1)


@bug(
    "A snapshot gives its delta manifest list another size.",
    rule=rules.SIZES,
    why="The size is not that of the file.",
)
def the_delta_list_is_cut(patch: Patch) -> None:
    said(patch, "delta_manifest_list_size", lambda size: size - 1)


@bug(
    "A manifest list gives a manifest another size.",
    rule=rules.SIZES,
    why="The size is not that of the file.",
)
def a_manifest_is_cut(patch: Patch) -> None:
    listed(patch, "file_size", lambda size: size - 1)


@bug(
    "A snapshot has the first schema, whatever the newest is.",
    "schema changer",
    rule=rules.NEWEST_SCHEMA,
    why="Another schema is newer.",
)
def the_first_schema_stays(patch: Patch) -> None:
    said(patch, "schema_id", lambda schema_id: 0)


@bug(
    "Snapshots have no properties.",
    rule=rules.MARKS,
    why="No snapshot says whose it is.",
)
def properties_are_lost(patch: Patch) -> None:
    said(patch, "properties", lambda properties: {})


@bug(
    "The marks of a batch name the batch before.",
    rule=rules.MARKS,
    why="The marks are of another batch.",
)
def the_batch_before_is_named(patch: Patch) -> None:
    def renamed(properties: Any) -> Any:
        key = "paimon-stream.batch-id"
        if key not in properties:
            return properties
        return {**properties, key: str(int(properties[key]) - 1)}

    said(patch, "properties", renamed)


@bug(
    "The bounds of the partitions in a manifest are not kept.",
    "batch writer",
    rule=rules.STATISTICS,
    why="A manifest list gives each manifest its greatest partition as the least.",
)
def the_least_partition_is_the_greatest(patch: Patch) -> None:
    listed(
        patch,
        "partition_stats",
        lambda stats: stats._replace(min_values=stats.max_values),
    )


@bug(
    "The schema of a manifest is always the first.",
    "compacting stream",
    "schema changer",
    rule=rules.STATISTICS,
    why="Its files have a newer one.",
)
def manifests_have_the_first_schema(patch: Patch) -> None:
    listed(patch, "schema_id", lambda schema_id: 0)


@bug(
    "LATEST is always one behind.",
    rule=rules.HINTS,
    why="A commit beside nobody leaves the hint behind its snapshot.",
)
def the_hint_is_one_behind(patch: Patch) -> None:
    real = SnapshotStore.point_latest
    patch.setattr(
        SnapshotStore, "point_latest", lambda self, number: real(self, max(1, number - 1))
    )
