"""Branches of Java's and of ours: each engine reads, writes, makes, deletes and forwards those of
the other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.maintenance.expire import expire_snapshots
from tests.kits.java_forward import forward_as_java
from tests.kits.seeds import MANY, seeds

Golden = Callable[[str], tuple[Path, dict[str, Any]]]


class Place:
    """An append table `t (k INT)` of Java's, whose branches both engines use."""

    def __init__(self, java: Any, path: Path) -> None:
        self.java, self.path = java, path

    def make(self) -> None:
        self.java.create_table(self.path, [("k", "INT")], options={"file.format": "parquet"})

    def ours(self, branch: str = "main") -> PaimonTable:
        return PaimonTable.load(str(self.path), branch=branch)

    def append(self, key: int, branch: str = "main") -> None:
        self.ours(branch).append(pa.table({"k": pa.array([key], pa.int32())}))

    def java_append(self, key: int, branch: str = "main") -> None:
        self.java.write(self.path, [(key,)], options={"branch": branch})

    def java_keys(self, branch: str = "main") -> list[int]:
        return sorted(row["k"] for row in self.java.read(self.path, options={"branch": branch}))

    def expire(self, branch: str) -> None:
        expire_snapshots(self.ours(branch)._table, 1, 1, timedelta(0))

    def same(self, wanted: dict[str, list[int]], looked_at: Collection[str]) -> None:
        """Both engines see the same branches and, in each of those that are looked at, the same
        rows, and no file is missing.
        """
        assert set(self.ours().branches()) == set(wanted) - {"main"}
        assert set(self.java._table(self.path).branchManager().branches()) == set(wanted) - {"main"}
        for branch in looked_at:
            table, keys = self.ours(branch), wanted[branch]
            assert sorted(table.to_arrow().column("k").to_pylist()) == sorted(keys), branch
            assert self.java_keys(branch) == sorted(keys), branch
            assert [one for one in table.verify().findings if one.severity == "error"] == []


@pytest.fixture
def place(java: Any, tmp_path: Path) -> Place:
    made = Place(java, tmp_path / "db.db" / "t")
    made.make()
    return made


def rows_of(table: PaimonTable) -> list[list[Any]]:
    return sorted([list(row.values()) for row in table.to_arrow().to_pylist()], key=str)


def test_the_branches_of_java_s_golden_table_are_read(golden: Golden) -> None:
    path, expected = golden("kinds/branch")
    main = PaimonTable.load(str(path))
    assert rows_of(main) == sorted(expected["rows"], key=str)
    assert set(main.branches()) == set(expected["branches"]) == {"test", "empty"}
    for name, one in expected["branches"].items():
        branch = PaimonTable.load(f"{path}$branch_{name}")
        assert rows_of(branch) == sorted(one["rows"], key=str)
        assert [snapshot.id for snapshot in branch.snapshots()] == [
            snapshot["id"] for snapshot in one["snapshots"]
        ]


def test_a_table_that_java_forwarded_is_read(golden: Golden) -> None:
    path, expected = golden("kinds/branch_forwarded")
    assert rows_of(PaimonTable.load(str(path))) == sorted(expected["rows"], key=str)
    report = PaimonTable.load(str(path)).fast_forward("b")
    assert (report.added, report.removed) == ((), (4,))  # main went on after it


def test_the_option_of_java_s_that_names_another_branch_is_refused(place: Place) -> None:
    place.java_append(1)
    place.java._table(place.path).createBranch("x")
    place.java.alter_table(place.path, ("set", "branch", "x"))
    with pytest.raises(UnsupportedFeature, match="branch = 'x'"):
        place.append(2)


def test_a_table_that_reads_another_branch_too_is_written_and_not_read(place: Place) -> None:
    place.java_append(1)
    place.java._table(place.path).createBranch("x")
    place.java.alter_table(place.path, ("set", "scan.fallback-branch", "x"))
    place.append(2)
    with pytest.raises(UnsupportedFeature, match=r"scan\.fallback-branch"):
        place.ours().to_arrow()


@pytest.mark.parametrize("start", seeds(2, 40))
def test_both_engines_go_on_with_each_other_s_branches(place: Place, start: int) -> None:
    random, wanted = Random(start), {"main": list[int]()}
    tags: dict[str, list[int]] = {}
    for step in range(30):
        branch = random.choice(list(wanted))
        java = random.random() < 0.5
        whole = place.java._table(place.path)
        match random.choice(
            ["append"] * 3 + ["tag", "create", "empty", "delete", "forward", "expire", "untag"]
        ):
            case "append":
                (place.java_append if java else place.append)(step, branch)
                wanted[branch].append(step)
            case "tag" if wanted["main"]:
                tags[f"t{step}"] = list(wanted["main"])
                whole.createTag(f"t{step}") if java else place.ours().create_tag(f"t{step}")
            case "create" if tags:
                tag = random.choice(list(tags))
                if java and tag not in {
                    t for t, s in place.ours().tags().items() if s.id in snapshots(place)
                }:
                    continue  # Java makes no branch of a tag whose snapshot has expired
                whole.createBranch(f"b{step}", tag) if java else place.ours().create_branch(
                    f"b{step}", tag
                )
                wanted[f"b{step}"] = list(tags[tag])
            case "empty":
                whole.createBranch(f"b{step}") if java else place.ours().create_branch(f"b{step}")
                wanted[f"b{step}"] = []
            case "delete" if branch != "main":
                whole.deleteBranch(branch) if java else place.ours().delete_branch(branch)
                del wanted[branch]
            case "forward" if branch != "main" and wanted[branch]:
                known = {one.nonce for one in place.ours().snapshots()}
                shared = any(one.nonce in known for one in place.ours(branch).snapshots())
                # Java leaves main's lower snapshots below others that were not built on them.
                whole.fastForward(branch) if java and shared else place.ours().fast_forward(branch)
                wanted["main"] = list(wanted[branch])
                tags = {name: keys for name, keys in tags.items() if name in place.ours().tags()}
            case "untag" if tags:
                tag = random.choice(list(tags))
                place.ours().delete_tag(tag)
                del tags[tag]
            case "expire":
                place.expire(branch)
        place.same(wanted, wanted if MANY else {branch, "main"} & set(wanted))
    place.same(wanted, wanted)


def snapshots(place: Place) -> set[int]:
    return {one.id for one in place.ours().snapshots()}


@pytest.mark.parametrize("expired", [False, True])
def test_java_s_forward_is_that_of_the_kit_and_touches_nothing_of_ours(
    place: Place, tmp_path: Path, expired: bool
) -> None:
    place.append(1)
    place.ours().create_tag("t")
    place.ours().create_branch("b", "t")
    for key in (2, 3):
        place.append(key)
        place.append(10 * key, "b")
    place.ours().create_tag("later")
    if expired:
        place.expire("b")
    own = place.path / "_paimon_stream"
    own.mkdir(exist_ok=True)
    (own / "mine").write_text("kept")
    shutil.copytree(place.path, tmp_path / "copy.db" / "t")
    place.java._table(place.path).fastForward("b")
    forward_as_java(PaimonTable.load(str(tmp_path / "copy.db" / "t"))._table.storage, "b")

    def metadata(path: Path) -> dict[str, bytes]:
        return {
            str(one.relative_to(path)): one.read_bytes()
            for folder in ("snapshot", "schema", "tag", "_paimon_stream")
            for one in (path / folder).rglob("*")
            if one.is_file() and one.name not in ("EARLIEST", "LATEST") and one.suffix != ".crc"
        }

    assert metadata(tmp_path / "copy.db" / "t") == metadata(place.path)
