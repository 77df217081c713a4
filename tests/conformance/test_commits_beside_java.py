"""Our commits beside Java's: the same metadata for the same messages, and one table shared by
both.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitLost, CommitUnknown, TableRolledBack
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.params import each_once, few

SCHEMA = [("id", "BIGINT"), ("dt", "STRING"), ("v", "DOUBLE")]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partition_keys": ["dt"]},
    "buckets": {"partition_keys": ["dt"], "options": {"bucket": "2", "bucket-key": "id"}},
}


def create(java: Any, path: Path, kind: str, **options: str) -> Path:
    given = KINDS[kind]
    merged = {**given.get("options", {}), "write-only": "true", **options}
    java.create_table(path, SCHEMA, given.get("partition_keys", ()), (), merged)
    return path


def ours(path: Path, user: str = "me") -> TableCommit:
    return TableCommit(load_table(LocalStorage(str(path))), user)


def messages(
    java: Any, path: Path, rows: list[dict[str, Any]], user: str = "w"
) -> list[CommitMessage]:
    made = java.prepare_commit_bytes(path, rows, user)
    return [CommitMessage.deserialize(data, made.version) for data in made.messages]


def rows(commit: int, partitions: int = 2) -> list[dict[str, Any]]:
    return [
        {"id": 100 * commit + n, "dt": f"d{(commit + n) % (partitions + 1)}", "v": n / 2}
        for n in range(6)
    ]


def shape(java: Any, path: Path, snapshot_id: int) -> list[dict[str, Any]]:
    """The manifests of a snapshot without what must differ: names, and sizes of compressed
    bytes.
    """
    found = java.manifests(path, snapshot_id)
    return [{k: v for k, v in one.items() if k not in ("fileName", "fileSize")} for one in found]


DIFFERENT = {"timeMillis", "baseManifestList", "deltaManifestList", "properties"}
SIZES = {"baseManifestListSize", "deltaManifestListSize"}


def facts(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in snapshot.items() if key not in DIFFERENT | SIZES}


def live(java: Any, path: Path) -> list[dict[str, Any]]:
    """The live files without what two writers choose for themselves."""
    own = {"path", "fileName", "creationTime", "fileSize"}
    found = [{k: v for k, v in one.items() if k not in own} for one in java.files(path)]
    return sorted(found, key=str)


MERGING = {
    "minor": {"manifest.merge-min-count": "4"},
    "full": {"manifest.full-compaction-threshold-size": "1 b"},
    "tiny": {"manifest.target-file-size": "1 b", "manifest.full-compaction-threshold-size": "1 b"},
}


@pytest.mark.full
def test_forty_commits_with_the_default_options_leave_the_metadata_java_leaves(
    java: Any, tmp_path: Path
) -> None:
    compare(java, tmp_path, "buckets", {}, commits=40)


@pytest.mark.parametrize(("merging", "kind"), each_once(MERGING, KINDS))
def test_merging_and_compactions_between_leave_the_metadata_java_leaves(
    java: Any, tmp_path: Path, kind: str, merging: str
) -> None:
    compare(java, tmp_path, kind, MERGING[merging], commits=13)


def compare(java: Any, folder: Path, kind: str, options: dict[str, str], commits: int) -> None:
    """Java and we make the same commits on two tables. All metadata must be the same."""
    mine, theirs = (create(java, folder / name, kind, **options) for name in ("mine", "theirs"))
    compactions = {} if kind == "buckets" else {5, 9}
    writer = ours(mine, "w")
    for number in range(commits):
        if number in compactions:  # deletes, for the merges to meet
            for path in (mine, theirs):
                java.compact(path, commit_user="c", commit_identifier=number)
            continue
        writer.commit(number, messages(java, mine, rows(number)), watermark=number * 7 % 5)
        java.write(theirs, rows(number), "w", number, watermark=number * 7 % 5)
    made, expected = java.snapshots(mine), java.snapshots(theirs)
    assert [facts(one) for one in made] == [facts(one) for one in expected]
    for one in made[-6:] if not options else made:
        assert shape(java, mine, one["id"]) == shape(java, theirs, one["id"]), one["id"]
    assert live(java, mine) == live(java, theirs)
    assert sorted(map(str, java.read(mine))) == sorted(map(str, java.read(theirs)))
    assert set(made[-1]) - {"properties"} == set(expected[-1])


@pytest.mark.parametrize("kind", few(KINDS, lambda kind: kind == "buckets"))
def test_java_and_we_take_turns_on_one_table(java: Any, tmp_path: Path, kind: str) -> None:
    path = create(java, tmp_path / "t", kind, **{"manifest.merge-min-count": "3"})
    writer, expected = ours(path), []
    for number in range(12):
        expected += rows(number)
        if number % 3 == 0:
            java.write(path, rows(number), "java", number)
        else:
            writer.commit(number, messages(java, path, rows(number)))
        if number in (4, 8):
            java.compact(path)
        if number == 9:
            assert java.expire_snapshots(path, retain_max=3) > 0
    assert sorted(map(str, java.read(path))) == sorted(map(str, expected))
    assert java.snapshots(path)[-1]["totalRecordCount"] == len(expected)
    assert java.remove_orphans(path, dry_run=True) == []
    spans: dict[str, list[tuple[int, int]]] = {}
    for one in java.files(path) if kind == "buckets" else ():
        span = (one["minSequenceNumber"], one["maxSequenceNumber"])
        spans.setdefault(f"{one['partition']} {one['bucket']}", []).append(span)
    for found in spans.values():
        found.sort()
        assert all(a[1] < b[0] for a, b in pairwise(found)), found


def test_each_finds_the_others_commits_when_it_replays(java: Any, tmp_path: Path) -> None:
    path = create(java, tmp_path / "t", "plain")
    prepared = {n: java.prepare_commit_bytes(path, rows(n), "me", n) for n in range(4)}
    decoded = {
        n: [CommitMessage.deserialize(data, made.version) for data in made.messages]
        for n, made in prepared.items()
    }
    bytes_of = {n: made.messages for n, made in prepared.items()}
    assert java.filter_and_commit(path, {0: bytes_of[0]}, "me") == 1
    assert ours(path).filter_and_commit({0: decoded[0], 1: decoded[1]}) == 1
    assert java.filter_and_commit(path, {n: bytes_of[n] for n in (0, 1, 2)}, "me") == 1
    assert ours(path).filter_and_commit(decoded) == 1
    assert java.filter_and_commit(path, bytes_of, "me") == 0
    assert ours(path).filter_and_commit(decoded) == 0
    assert java.last_commit_of(path, "me") == 3
    expected = [row for n in range(4) for row in rows(n)]
    assert sorted(map(str, java.read(path))) == sorted(map(str, expected))


def test_a_rollback_by_java_under_a_prepared_commit_is_refused_and_the_next_one_goes_on(
    java: Any, tmp_path: Path
) -> None:
    path = create(java, tmp_path / "t", "buckets")
    writer = ours(path)
    for number in range(4):
        writer.commit(number, messages(java, path, rows(number)))

    class RollBack:
        def reached(self, phase: Any, identifier: int) -> None:
            if phase.value == "base-read" and len(java.snapshots(path)) == 4:
                java.rollback_to(path, 2)
                java.write(path, rows(7), "java", 7)
                java.write(path, rows(8), "java", 8)

    beside = TableCommit(load_table(LocalStorage(str(path))), "you", observer=RollBack())
    prepared = messages(java, path, rows(9))
    with pytest.raises(CommitUnknown) as caught:
        beside.commit(9, prepared)
    assert isinstance(caught.value.__cause__, TableRolledBack)
    assert [one["commitUser"] for one in java.snapshots(path)] == ["me", "me", "java", "java"]
    assert (
        java.remove_orphans(path, dry_run=True) != []
    )  # the data files, for nobody has aborted yet
    assert beside.abort(prepared) > 0
    following = messages(java, path, rows(10))
    with pytest.raises(
        CommitLost, match=r"snapshot 4, .* 'java'"
    ):  # two of its own commits are gone
        writer.commit(10, following)
    ours(path).commit(10, following)
    expected = [row for n in (0, 1, 7, 8, 10) for row in rows(n)]
    assert sorted(map(str, java.read(path))) == sorted(map(str, expected))
    assert len(java.snapshots(path)) == 5


def test_snapshots_of_an_empty_commit_read_as_javas(java: Any, tmp_path: Path) -> None:
    mine, theirs = (
        create(java, tmp_path / name, "plain", **{"snapshot.ignore-empty-commit": "false"})
        for name in ("mine", "theirs")
    )
    writer = ours(mine, "w")
    for number in range(2):
        writer.commit(number, [])
        java.commit_messages(theirs, [], "w", number)
    assert [facts(one) for one in java.snapshots(mine)] == [
        facts(one) for one in java.snapshots(theirs)
    ]
    assert shape(java, mine, 2) == shape(java, theirs, 2) == []
    assert java.read(mine) == []
