"""Expiry, tags and rollback beside Java: what both leave of two copies of one table that Java wrote."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.errors import NotFound
from paimon_stream.maintenance.consumers import consumers, write_consumer
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.hints import repair_hints
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, expire_tags, read_tags
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import Table, load_table

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
NOW = dt.timedelta(0)
SCHEMA = [("id", "BIGINT NOT NULL"), ("dt", "STRING NOT NULL"), ("v", "STRING")]


def files(table: Path) -> dict[str, bytes | int]:
    """Everything in a table's folder: hints with their content, other files with their size, and empty
    folders."""
    found: dict[str, bytes | int] = {}
    for path in sorted(table.rglob("*")):
        name = str(path.relative_to(table))
        if path.name.endswith(".crc"):
            continue
        if path.is_dir():
            if not any(path.iterdir()):
                found[f"{name}/"] = 0
        else:
            hint = path.name in ("EARLIEST", "LATEST")
            found[name] = path.read_bytes() if hint else path.stat().st_size
    return found


def copies(table: Path) -> tuple[Path, Path]:
    """Two copies of a table, for Java and for us."""
    pair = []
    for who in ("java", "ours"):
        copy = table.parents[1] / f"{who}-{table.name}" / "db.db" / "t"
        shutil.copytree(table, copy)
        pair.append(copy)
    return pair[0], pair[1]


def load(path: Path) -> Table:
    return load_table(LocalStorage(str(path)))


def rows(java: Any, path: Path, snapshot: int | None = None) -> list[str]:
    return sorted(json.dumps(row, default=str) for row in java.read(path, snapshot))


@pytest.fixture(scope="module")
def busy(java: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tables with everything that expiry has to look at; each test works on copies."""
    root = tmp_path_factory.mktemp("busy")
    made = {
        "keyed": _keyed(java, root / "keyed" / "db.db" / "t"),
        "vectors": _vectors(java, root / "vectors" / "db.db" / "t"),
        "overwritten": _overwritten(java, root / "overwritten" / "db.db" / "t"),
    }
    return made


def _keyed(java: Any, path: Path) -> Path:
    """Compactions with files that only change their level, changelog files, statistics."""
    options = {"bucket": "2", "changelog-producer": "input", "snapshot.num-retained.max": "100"}
    java.create_table(path, SCHEMA, ["dt"], ["id", "dt"], {**options, "manifest.merge-min-count": "4"})
    for batch in range(8):
        days = ("a", "b") if batch % 2 else ("a",)
        java.write(path, [row(n, batch, day) for n in range(3) for day in days], commit_identifier=batch)
        if batch in (2, 5):
            java.compact(path)
        if batch in (3, 6):
            java.analyze(path, rows=10 * batch, size=100)
    return path


def _vectors(java: Any, path: Path) -> Path:
    """Index files: deletion vectors, which each compaction replaces."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "snapshot.num-retained.max": "100"}
    java.create_table(path, SCHEMA, [], ["id"], options)
    for batch in range(6):
        java.write(path, [row(n, batch, "a") for n in range(batch % 3, 40)], commit_identifier=batch)
        java.compact(path, full=batch % 3 == 2)
    return path


def _overwritten(java: Any, path: Path) -> Path:
    """Partitions that are replaced as a whole, so that folders become empty."""
    options = {"snapshot.num-retained.max": "100", "snapshot.clean-empty-directories": "true"}
    java.create_table(path, SCHEMA, ["dt", "v"], [], options)
    for batch in range(4):
        values = [{"id": batch, "dt": day, "v": f"v{batch % 2}"} for day in ("a", "b")]
        java.write(path, values, commit_identifier=batch)
    java.write(path, [{"id": 9, "dt": "a", "v": "v7"}], overwrite={"dt": "a"}, options=STATIC)
    java.write(path, [{"id": 9, "dt": "b", "v": "v7"}], overwrite={}, options=STATIC)
    java.write(path, [{"id": 10, "dt": "b", "v": "v7"}], commit_identifier=7)
    return path


STATIC = {"dynamic-partition-overwrite": "false"}


def row(number: int, batch: int, day: str) -> dict[str, Any]:
    return {"id": number, "dt": day, "v": f"{batch}-{number}"}


def goes_on(java: Any, path: Path, latest: int) -> None:
    """Java writes, compacts and expires a table that we have worked on."""
    schema = json.loads((path / "schema" / "schema-0").read_text())
    filler = {field["name"]: None for field in schema["fields"]}
    filler |= {"id": 1000, "dt": "z", "v": "v7"}
    before = len(java.read(path))
    assert java.write(path, [filler], commit_identifier=1000) > latest
    java.compact(path)  # only then readers see it, in a table with deletion vectors
    java.expire_snapshots(path, retain_max=1)
    assert len(java.read(path)) == before + 1


@pytest.mark.parametrize("name", ["keyed", "vectors", "overwritten"])
@pytest.mark.parametrize("keep", [1, 3])
def test_expiry_leaves_exactly_the_files_that_java_leaves(
    java: Any, busy: dict[str, Path], tmp_path: Path, name: str, keep: int
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for copy in (theirs, ours):
        shutil.copytree(busy[name], copy)
    before = rows(java, ours)
    gone = java.expire_snapshots(theirs, retain_max=keep)
    report = expire_snapshots(load(ours), keep, 1, NOW, 10_000)
    assert len(report.snapshots) == gone > 5
    assert files(ours) == files(theirs)
    assert rows(java, ours) == before
    if keep == 1:
        goes_on(java, ours, report.latest or 0)


@pytest.mark.parametrize("name", ["keyed", "vectors", "overwritten"])
def test_tags_keep_their_files_and_give_them_up_as_with_java(
    java: Any, busy: dict[str, Path], tmp_path: Path, name: str
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for copy in (theirs, ours):
        shutil.copytree(busy[name], copy)
    for tag, snapshot in (("one", 2), ("two", 4), ("twice", 4), ("three", 6)):
        java.create_tag(theirs, tag, snapshot)
        create_tag(load(ours), tag, snapshot)
    assert files(ours) == files(theirs)
    was = {tag: rows(java, ours, snapshot) for tag, snapshot in (("one", 2), ("two", 4), ("three", 6))}
    java.expire_snapshots(theirs, retain_max=1)
    expire_snapshots(load(ours), 1, 1, NOW, 10_000)
    assert files(ours) == files(theirs)
    for tag, expected in was.items():
        found = java.read(ours, options={"scan.tag-name": tag})
        assert sorted(json.dumps(one, default=str) for one in found) == expected
    for tag in ("two", "one", "twice", "three"):
        java.delete_tag(theirs, tag)
        assert delete_tag(load(ours), tag).found
        assert files(ours) == files(theirs), tag
    assert not delete_tag(load(ours), "two").found


def test_a_tag_with_a_time_is_read_by_java_and_expires_with_both(
    java: Any, busy: dict[str, Path], tmp_path: Path
) -> None:
    ours = tmp_path / "ours"
    shutil.copytree(busy["overwritten"], ours)
    create_tag(load(ours), "long", 1, dt.timedelta(days=2, milliseconds=7))
    create_tag(load(ours), "ever", 1)
    java.create_tag(ours, "short", 1, retained_ms=1)
    assert java.tags(ours) == {"long": (1, 172_800_007), "ever": (1, None), "short": (1, 1)}
    assert [report.tag for report in expire_tags(load(ours))] == ["short"]
    assert java.tags(ours) == {"long": (1, 172_800_007), "ever": (1, None)}


@pytest.mark.parametrize("target", [3, "four"])
def test_a_rollback_leaves_exactly_the_files_that_java_leaves(
    java: Any, busy: dict[str, Path], tmp_path: Path, target: int | str
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for copy in (theirs, ours):
        shutil.copytree(busy["overwritten"], copy)
        for tag, snapshot in (("two", 2), ("four", 4), ("five", 5)):
            java.create_tag(copy, tag, snapshot)
    if isinstance(target, str):
        java.rollback_to_tag(theirs, target)
    else:
        java.rollback_to(theirs, target)
    report = rollback_to(load(ours), target)
    assert files(ours) == files(theirs)
    assert report.snapshots == tuple(range(report.snapshot + 1, 8))
    assert rows(java, ours) == rows(java, theirs)
    goes_on(java, ours, report.snapshot)


def test_a_rollback_to_the_tag_of_an_expired_snapshot_brings_it_back_as_java_does(
    java: Any, busy: dict[str, Path], tmp_path: Path
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for copy in (theirs, ours):
        shutil.copytree(busy["overwritten"], copy)
        java.create_tag(copy, "two", 2)
        java.expire_snapshots(copy, retain_max=2)
    java.rollback_to_tag(theirs, "two")
    rollback_to(load(ours), "two")
    assert files(ours) == files(theirs)
    assert rows(java, ours) == rows(java, theirs)
    goes_on(java, ours, 2)
    with pytest.raises(NotFound):
        rollback_to(load(ours), 77)


def test_consumers_hold_back_expiry_on_both_sides(
    java: Any, busy: dict[str, Path], tmp_path: Path
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for copy in (theirs, ours):
        shutil.copytree(busy["overwritten"], copy)
    java.set_consumer(theirs, "reader", 3)
    write_consumer(LocalStorage(str(ours)), "reader", 3)
    assert files(ours) == files(theirs)
    assert java.consumers(ours) == consumers(LocalStorage(str(theirs))) == {"reader": 3}
    assert java.expire_snapshots(theirs, retain_max=1) == 2
    assert expire_snapshots(load(ours), 1, 1, NOW).snapshots == (1, 2)
    assert files(ours) == files(theirs)


def test_a_latest_hint_on_which_java_fails_is_repaired(
    java: Any, busy: dict[str, Path], tmp_path: Path
) -> None:
    ours = tmp_path / "ours"
    shutil.copytree(busy["overwritten"], ours)
    expected = rows(java, ours)
    for wrong in ("999", "abc", ""):
        (ours / "snapshot" / "LATEST").write_text(wrong)
        assert repair_hints(load(ours)).repaired == ("snapshot/LATEST",)
        assert rows(java, ours) == expected
    assert repair_hints(load(ours)).repaired == ()


@pytest.mark.parametrize(
    "name", ["many_commits", "pk_updates", "append_compacted", "overwritten", "overwritten_pk", "expired"]
)
def test_golden_tables_expire_as_with_java(java: Any, golden: Golden, name: str) -> None:
    table, _ = golden(name)
    theirs, ours = copies(table)
    before = rows(java, ours)
    gone = java.expire_snapshots(theirs, retain_max=1)
    report = expire_snapshots(load(ours), 1, 1, NOW, 10_000)
    assert len(report.snapshots) == gone
    assert files(ours) == files(theirs)
    assert rows(java, ours) == before
    assert read_tags(LocalStorage(str(ours))) == {}
