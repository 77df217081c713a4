"""Messages that Java prepared, committed by us and by Java to copies of the same table: append
tables and tables with a primary key, compactions, changelogs, index files, deletes, statistics.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.committer import CommitRequest, Committer, Published
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.runtime import system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table

SCHEMA = [("id", "BIGINT NOT NULL"), ("dt", "STRING NOT NULL"), ("v", "DOUBLE")]
PK = ("dt", "id")
USER = "w"
OURS = {
    "paimon-stream.base",
    "paimon-stream.max-sequence",
    "paimon-stream.nonce",
    "paimon-stream.version",
}
"""The properties that only our snapshots have, the first of tables with a primary key."""

Prepare = Callable[[Any, Path, int], list[bytes]]


def rows(number: int, count: int = 6) -> list[dict[str, Any]]:
    return [{"id": n, "dt": f"d{n % 2}", "v": number + n / 2} for n in range(count)]


def written(kinds: list[str] | None = None) -> Prepare:
    def prepare(java: Any, path: Path, number: int) -> list[bytes]:
        made = rows(number)
        given = None if kinds is None else [kinds[n % len(kinds)] for n in range(len(made))]
        return list(java.prepare_commit_bytes(path, made, USER, number, kinds=given).messages)

    return prepare


def written_after_many(java: Any, path: Path, number: int) -> list[bytes]:
    """A large file, then updates of a few of its rows."""
    made = rows(number, 6 if number else 3000)
    return list(java.prepare_commit_bytes(path, made, USER, number).messages)


def compacted(java: Any, path: Path, number: int) -> list[bytes]:
    if number % 2 == 0:
        return list(java.prepare_commit_bytes(path, rows(number), USER, number).messages)
    return list(java.prepare_compact_bytes(path, True, USER, number).messages)


def replaced(java: Any, path: Path, number: int) -> list[bytes]:
    """Every second commit removes the files of the one before, as a DELETE of Spark does."""
    made = [
        CommitMessage.deserialize(one)
        for one in java.prepare_commit_bytes(path, rows(number), USER, number).messages
    ]
    if number % 2:
        old = {(e.partition, e.bucket): e for e in last_entries(path) if e.kind == 0}
        made = [replace(one, deleted_files=(old[one.partition, one.bucket].file,)) for one in made]
    return [one.serialize() for one in made]


def last_entries(path: Path) -> list[ManifestEntry]:
    _, manifests, snapshot = opened(path)
    return [entry for meta in manifests.delta(snapshot) for entry in manifests.read(meta)]


def opened(
    path: Path, snapshot_id: int | None = None
) -> tuple[SnapshotStore, ManifestStore, Snapshot]:
    table = load_table(LocalStorage(str(path)))
    snapshots = SnapshotStore(table.storage)
    found = snapshots.latest() if snapshot_id is None else snapshots.get(snapshot_id)
    assert found is not None
    return snapshots, ManifestStore(table.storage), found


KEYED = {"bucket": "2"}
COMPACTING = {**KEYED, "commit.force-compact": "true", "num-sorted-run.compaction-trigger": "2"}
LOOKUP = {**COMPACTING, "changelog-producer": "lookup"}
VECTORS = {**KEYED, "commit.force-compact": "true", "deletion-vectors.enabled": "true"}
CASES: dict[str, tuple[tuple[str, ...], dict[str, str], Prepare]] = {
    "append": ((), {"write-only": "true"}, written()),
    "append, compactions": ((), {"write-only": "true"}, compacted),
    "append, buckets, compactions": (
        (),
        {"bucket": "2", "bucket-key": "id", "write-only": "true"},
        compacted,
    ),
    "append, deletes": ((), {"write-only": "true"}, replaced),
    "keyed, write-only": (PK, {**KEYED, "write-only": "true"}, written(["+I", "-D", "+U"])),
    "keyed, compactions": (PK, {**KEYED, "write-only": "true"}, compacted),
    "keyed, input changelog": (PK, {**KEYED, "changelog-producer": "input"}, written(["+I", "-D"])),
    "keyed, compacting writer": (PK, COMPACTING, written()),
    "keyed, compacting writer with changelog": (PK, LOOKUP, written(["+I", "+I", "-D"])),
    "keyed, deletion vectors": (PK, VECTORS, written_after_many),
}
EXTRA_KINDS = {
    "append, compactions": {"COMPACT"},
    "append, buckets, compactions": {"COMPACT"},
    "append, deletes": {"OVERWRITE"},
    "keyed, compactions": {"COMPACT"},
    "keyed, compacting writer": {"COMPACT"},
    "keyed, compacting writer with changelog": {"COMPACT"},
    "keyed, deletion vectors": {"COMPACT"},
}


@pytest.mark.parametrize("case", CASES)
def test_what_java_prepared_becomes_what_java_would_have_published(
    java: Any, tmp_path: Path, case: str
) -> None:
    keys, options, prepare = CASES[case]
    mine, copy = tmp_path / "mine", tmp_path / "copy"
    always = {"manifest.merge-min-count": "3", "snapshot.ignore-empty-commit": "false"}
    java.create_table(mine, SCHEMA, ("dt",), keys, {**options, **always})
    writer = PaimonTable.load(str(mine)).new_commit(USER)
    for number in range(4):
        prepared = prepare(java, mine, number)
        if copy.exists():
            shutil.rmtree(copy)
        shutil.copytree(mine, copy)
        before = len(java.snapshots(mine))
        java.commit_messages(copy, prepared, USER, number, watermark=number)
        writer.commit(
            number, [CommitMessage.deserialize(one) for one in prepared], watermark=number
        )
        assert_same(java, mine, copy, since=before)
    snapshots = java.snapshots(mine)
    assert {one["commitKind"] for one in snapshots} == {"APPEND"} | EXTRA_KINDS.get(case, set())
    assert any("changelogManifestList" in one for one in snapshots) == ("changelog" in case)
    assert any("indexManifest" in one for one in snapshots) == ("vectors" in case)
    if not keys:
        assert len(java.read(mine)) == snapshots[-1]["totalRecordCount"]
    assert java.remove_orphans(mine, dry_run=True) == []


def assert_same(java: Any, mine: Path, copy: Path, since: int) -> None:
    made, expected = java.snapshots(mine)[since:], java.snapshots(copy)[since:]
    assert [facts(one) for one in made] == [facts(one) for one in expected]
    for one in made:
        assert metas(mine, one["id"]) == metas(copy, one["id"])
        assert entries(mine, one["id"]) == entries(copy, one["id"])
    assert by_file(java.index_files(mine)) == by_file(java.index_files(copy))
    assert by_file(java.read(mine)) == by_file(java.read(copy))


def by_file(found: list[dict[str, Any]]) -> list[str]:
    return sorted(map(str, found))


def facts(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A snapshot without the values that each writer chooses for itself. Of names, only whether
    they are there.
    """
    lists = {"baseManifestList", "deltaManifestList", "changelogManifestList", "indexManifest"}
    left_out = {"timeMillis"} | {f"{one}Size" for one in lists}
    if set(snapshot.get("properties", ())) <= OURS:
        left_out.add("properties")
    return {
        key: bool(value) if key in lists else value
        for key, value in snapshot.items()
        if key not in left_out
    }


def lists_of(path: Path, snapshot_id: int) -> dict[str, list[Any]]:
    _, manifests, snapshot = opened(path, snapshot_id)
    found = {
        "base": manifests.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        "delta": manifests.delta(snapshot),
        "changelog": ()
        if snapshot.changelog_manifest_list is None
        else manifests.read_list(
            snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
        ),
    }
    return {key: list(value) for key, value in found.items()}


def metas(path: Path, snapshot_id: int) -> dict[str, list[Any]]:
    """What the lists say of the manifests, without names and sizes of compressed bytes."""
    return {
        key: [replace(meta, file_name="", file_size=0) for meta in value]
        for key, value in lists_of(path, snapshot_id).items()
    }


def entries(path: Path, snapshot_id: int) -> dict[str, list[ManifestEntry]]:
    _, manifests, _ = opened(path, snapshot_id)
    return {
        key: [entry for meta in value for entry in manifests.read(meta)]
        for key, value in lists_of(path, snapshot_id).items()
    }


def test_each_of_us_filters_the_others_commits_of_two_snapshots(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    java.create_table(path, SCHEMA, ("dt",), PK, LOOKUP)
    prepared = {}
    for number in range(2):
        prepared[number] = list(
            java.prepare_commit_bytes(path, rows(number), USER, number).messages
        )
        decoded = {
            n: [CommitMessage.deserialize(one) for one in given] for n, given in prepared.items()
        }
        if number == 0:
            assert PaimonTable.load(str(path)).new_commit(USER).filter_and_commit(decoded) == 1
        else:
            assert java.filter_and_commit(path, prepared, USER) == 1
        assert java.filter_and_commit(path, prepared, USER) == 0
        assert PaimonTable.load(str(path)).new_commit(USER).filter_and_commit(decoded) == 0
    assert [one["commitKind"] for one in java.snapshots(path)] == ["APPEND", "COMPACT"] * 2
    assert java.last_commit_of(path, USER) == 1


def test_statistics_become_an_analyze_snapshot_and_are_inherited_as_by_java(
    java: Any, tmp_path: Path
) -> None:
    mine, copy = tmp_path / "mine", tmp_path / "copy"
    java.create_table(mine, SCHEMA, (), (), {"write-only": "true"})
    java.write(mine, rows(0), USER, 0, watermark=5)
    shutil.copytree(mine, copy)
    java.analyze(copy, 6, 600, USER)
    made_by_java = java.snapshots(copy)[-1]
    (mine / "statistics").mkdir()
    shutil.copy(copy / "statistics" / made_by_java["statistics"], mine / "statistics")

    table = load_table(LocalStorage(str(mine)))
    seen = SnapshotStore(table.storage).latest()
    assert seen is not None
    outcome = Committer(table).commit(
        CommitRequest(
            user=USER,
            identifier=BATCH_IDENTIFIER,
            kind=CommitKind.ANALYZE,
            statistics=made_by_java["statistics"],
            seen=SnapshotRef.of(seen),
            stage_uuid=system().ids.uuid(),
        )
    )
    assert isinstance(outcome, Published)
    assert_same(java, mine, copy, since=1)
    for path in (mine, copy):
        java.write(path, rows(1), USER, 1)
    TableCommit(load_table(table.storage), USER).commit(2, [])
    assert facts(java.snapshots(mine)[-1]) == facts(java.snapshots(copy)[-1])
    assert java.snapshots(mine)[-1]["statistics"] == made_by_java["statistics"]
    assert (
        json.loads((mine / "statistics" / made_by_java["statistics"]).read_text())["schemaId"] == 0
    )
