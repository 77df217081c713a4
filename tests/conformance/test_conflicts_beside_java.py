"""Two commits that conflict, made by Java and Java, by Java and us, and by us and Java: the
verdict, the snapshots, the files and the rows are the same.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.commit.committer import CommitRequest, Committer
from paimon_stream.commit.overwrite import plan_overwrite
from paimon_stream.errors import (
    BucketCountChanged,
    CommitConflict,
    DeletedFiles,
    KeyRangeOverlap,
    StrictModeViolated,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, SnapshotRef
from paimon_stream.runtime import system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table


@dataclass(frozen=True)
class Act:
    """One commit of prepared messages, ours or Java's: blind, as a replay, or as a partition's
    overwrite.
    """

    messages: list[bytes]
    user: str
    replay: bool = False
    replaces: dict[str, str] | None = None


Prepare = Callable[[Any, Path], list[Act]]


def rows(first: int, partitions: int = 2) -> list[dict[str, Any]]:
    return [{"id": first + n, "dt": f"d{n % partitions}", "v": n / 2} for n in range(4)]


def table(java: Any, path: Path, primary_keys: tuple[str, ...] = (), **options: str) -> None:
    schema = [("id", "BIGINT NOT NULL"), ("dt", "STRING NOT NULL"), ("v", "DOUBLE")]
    java.create_table(path, schema, ["dt"], primary_keys, {"write-only": "true", **options})


GROWN: dict[frozenset[tuple[str, str]], Path] = {}
"""Tables by their options, made once. The tests get copies."""


def grown(java: Any, path: Path, **options: str) -> None:
    """An append table with two files in each of two partitions."""
    key = frozenset(options.items())
    if key not in GROWN:
        GROWN[key] = Path(tempfile.mkdtemp(dir=path.parents[1])) / "t"
        table(java, GROWN[key], **options)
        for number in range(2):
            java.write(GROWN[key], rows(10 * number), "base", number)
    shutil.copytree(GROWN[key], path)


def append(java: Any, path: Path, first: int = 100, user: str = "w", **more: Any) -> Act:
    return Act(list(java.prepare_commit_bytes(path, rows(first), user, 7).messages), user, **more)


def overwrite(java: Any, path: Path, first: int = 200, user: str = "o") -> Act:
    made = java.prepare_commit_bytes(path, rows(first, 1), user, 7, overwrite=True)
    return Act(list(made.messages), user, replaces={"dt": "d0"})


def compact(java: Any, path: Path, user: str = "c") -> Act:
    return Act(list(java.prepare_compact_bytes(path, True, user).messages), user)


def two_compactions(java: Any, path: Path) -> list[Act]:
    grown(java, path)
    return [compact(java, path), compact(java, path, "c2")]


def compaction_after_overwrite(java: Any, path: Path) -> list[Act]:
    grown(java, path)
    late = compact(java, path)
    return [overwrite(java, path), late]


def overwrite_after_compaction(java: Any, path: Path) -> list[Act]:
    return list(reversed(compaction_after_overwrite(java, path)))


def append_after_overwrite(java: Any, path: Path) -> list[Act]:
    grown(java, path)
    return [overwrite(java, path), append(java, path)]


def overwrite_after_append(java: Any, path: Path) -> list[Act]:
    return list(reversed(append_after_overwrite(java, path)))


def two_overwrites(java: Any, path: Path) -> list[Act]:
    grown(java, path)
    return [overwrite(java, path), overwrite(java, path, 300, "o2")]


def replay_under_another_name(java: Any, path: Path) -> list[Act]:
    grown(java, path)
    first = append(java, path)
    return [first, Act(first.messages, "x", replay=True)]


def duplicates_discarded(java: Any, path: Path) -> list[Act]:
    table(java, path, **{"commit.discard-duplicate-files": "true"})
    java.write(path, rows(0), "base", 0)
    first = append(java, path)
    return [first, Act(first.messages, "x")]


def append_after_rescale(java: Any, path: Path) -> list[Act]:
    grown(java, path, bucket="2", **{"bucket-key": "id"})
    late = append(java, path, replay=True)
    java.alter_table(path, ("set", "bucket", "3"))
    return [overwrite(java, path), late]


def compactions_with_overlapping_keys(java: Any, path: Path) -> list[Act]:
    for one in (path, path.with_name("beside")):
        table(java, one, ("dt", "id"), bucket="1")
    ranges = [[{"id": n, "dt": "d0", "v": 0.5} for n in span] for span in (range(9), range(5, 15))]
    java.write(path, ranges[0], "base", 0)
    first = compact(java, path)
    second = java.prepare_commit_bytes(path.with_name("beside"), ranges[1], "base", 1)
    java.commit_messages(path.with_name("beside"), second.messages, "base", 1)
    late = compact(java, path.with_name("beside"), "c2")
    shutil.copytree(path.with_name("beside") / "dt=d0", path / "dt=d0", dirs_exist_ok=True)
    java.commit_messages(path, second.messages, "base", 1)
    return [first, late]


def strict_mode(java: Any, path: Path) -> list[Act]:
    grown(java, path, **{"commit.strict-mode.last-safe-snapshot": "2"})
    return [compact(java, path), append(java, path)]


RACES: dict[Prepare, type[CommitConflict] | None] = {
    two_compactions: DeletedFiles,
    compaction_after_overwrite: DeletedFiles,
    overwrite_after_compaction: None,
    append_after_overwrite: None,
    overwrite_after_append: None,
    two_overwrites: None,
    replay_under_another_name: DeletedFiles,
    duplicates_discarded: None,
    append_after_rescale: BucketCountChanged,
    compactions_with_overlapping_keys: KeyRangeOverlap,
    strict_mode: StrictModeViolated,
}


def by_java(java: Any, path: Path, act: Act) -> bool:
    """Whether Java takes it."""
    from py4j.protocol import Py4JJavaError

    try:
        if act.replay:
            java.filter_and_commit(path, {7: act.messages}, act.user)
        else:
            java.commit_messages(path, act.messages, act.user, overwrite=act.replaces)
    except Py4JJavaError as refused:
        text = str(refused.java_exception)
        assert any(phrase in text for phrase in ("onflict", "Total buckets", "Giving up")), text
        return False
    return True


def by_us(java: Any, path: Path, act: Act) -> CommitConflict | None:
    """Why we do not take it."""
    made = load_table(LocalStorage(str(path)))
    messages = tuple(CommitMessage.deserialize(data, 11) for data in act.messages)
    latest = SnapshotStore(made.storage).latest()
    request = CommitRequest(
        user=act.user,
        identifier=7 if act.replay else BATCH_IDENTIFIER,
        messages=messages,
        checked=act.replay,
        seen=None if latest is None else SnapshotRef.of(latest),
        stage_uuid=system().ids.uuid(),
    )
    if act.replaces is not None:
        plan = plan_overwrite(made, ManifestStore(made.storage), messages, partition=act.replaces)
        from dataclasses import replace

        request = replace(
            request, messages=plan.messages, source=plan.source, kind=CommitKind.OVERWRITE
        )
    try:
        outcome = Committer(made).commit(request)
    except CommitConflict as conflict:
        return conflict
    failed = getattr(outcome, "compact_failed", None)
    assert failed is None or isinstance(failed, CommitConflict)
    return failed


OWN = {
    "timeMillis",
    "baseManifestList",
    "deltaManifestList",
    "baseManifestListSize",
    "deltaManifestListSize",
}


def state(java: Any, path: Path) -> dict[str, Any]:
    files = [
        (one["partition"], one["bucket"], one["level"], one["fileName"], one["rowCount"])
        for one in java.files(path)
    ]
    return {
        "snapshots": [
            {k: v for k, v in one.items() if k not in OWN} for one in java.snapshots(path)
        ],
        "files": sorted(map(str, files)),
        "rows": sorted(map(str, java.read(path))),
    }


@pytest.mark.parametrize("prepare", RACES, ids=lambda one: one.__name__.replace("_", " "))
def test_java_and_we_give_the_same_verdict_and_leave_the_same_table(
    java: Any, tmp_path: Path, prepare: Prepare
) -> None:
    first, second = prepare(java, tmp_path / "t")
    conflict = RACES[prepare]
    alone, before, after = (tmp_path / name for name in ("alone", "before", "after"))
    for copy in (alone, before, after):
        shutil.copytree(tmp_path / "t", copy)
    assert by_java(java, alone, first)
    assert by_java(java, alone, second) is (conflict is None)
    expected = state(java, alone)
    assert by_java(java, before, first)
    refused = by_us(java, before, second)
    assert (None if refused is None else type(refused)) is conflict, refused
    assert state(java, before) == expected
    assert by_us(java, after, first) is None
    assert by_java(java, after, second) is (conflict is None)
    assert state(java, after) == expected
