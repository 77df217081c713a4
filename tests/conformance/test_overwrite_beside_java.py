"""Overwrites beside Java's: Java and we commit the same files to two copies of a table, and the
snapshots, manifests and rows are the same. We also take the steps of tables that Java wrote.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import OutsidePartition
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.conformance.test_commits_beside_java import (
    KINDS,
    SCHEMA,
    create,
    facts,
    live,
    rows,
    shape,
)
from tests.kits.params import each_once
from tests.kits.tables import write_rows

PK = ("dt", "id")
GOLDEN = Path(__file__).parent.parent / "golden"


class Pair:
    """One table twice: Java commits to `theirs`, we to `mine`, the same messages of the same files.
    `OURS` is what only our snapshots have.
    """

    OURS: tuple[str, ...] = ("properties",)

    def __init__(self, java: Any, folder: Path, kind: str, **options: str) -> None:
        self.java = java
        self.theirs = create(java, folder / "theirs", kind, **options)
        self.mine = folder / "mine"
        self._copy_files()

    def _copy_files(self) -> None:
        def metadata(folder: str, names: list[str]) -> list[str]:
            new = self.mine.exists() and folder == str(self.theirs)
            return [name for name in names if new and name in ("snapshot", "manifest", "schema")]

        shutil.copytree(self.theirs, self.mine, ignore=metadata, dirs_exist_ok=True)

    def messages(
        self, some: Sequence[Mapping[str, Any]], overwrite: bool = True
    ) -> list[CommitMessage]:
        made = self.java.prepare_commit_bytes(self.theirs, list(some), "w", overwrite=overwrite)
        self._copy_files()
        return [CommitMessage.deserialize(data, made.version) for data in made.messages]

    def append(self, identifier: int, some: Sequence[Mapping[str, Any]]) -> None:
        messages = self.messages(some, overwrite=False)
        self.java.commit_messages(
            self.theirs, [one.serialize() for one in messages], "w", identifier
        )
        self.commit.commit(identifier, messages)

    def overwrite(
        self,
        identifier: int,
        messages: Sequence[CommitMessage],
        spec: Mapping[str, str] | None,
        watermark: int | None = None,
    ) -> None:
        """Dynamic where no spec is given."""
        self._java_overwrite(identifier, messages, spec, watermark)
        self.commit.overwrite(
            spec, messages, identifier, dynamic=True if spec is None else None, watermark=watermark
        )

    def _java_overwrite(
        self,
        identifier: int,
        messages: Sequence[CommitMessage],
        spec: Mapping[str, str] | None,
        watermark: int | None = None,
    ) -> None:
        table = self.java._table(
            self.theirs, {"dynamic-partition-overwrite": "true" if spec is None else "false"}
        )
        decoded = [self.java._deserialize(one.serialize(), None) for one in messages]
        self.java._commit(table, "w", identifier, decoded, spec or {}, True, watermark)

    @property
    def commit(self) -> TableCommit:
        return TableCommit(load_table(LocalStorage(str(self.mine))), "w")

    def check(self, users: bool = True) -> list[dict[str, Any]]:
        """Checks that all metadata is the same. Returns our snapshots."""
        java, mine, theirs = self.java, self.mine, self.theirs
        made, expected = java.snapshots(mine), java.snapshots(theirs)
        left_out = (*self.OURS, *(() if users else ("commitUser",)))
        assert [_without(facts(one), left_out) for one in made] == [
            _without(facts(one), left_out) for one in expected
        ]
        for one in made:
            assert shape(java, mine, one["id"]) == shape(java, theirs, one["id"]), one["id"]
        names = [sorted(file["fileName"] for file in java.files(path)) for path in (mine, theirs)]
        assert names[0] == names[1]
        assert live(java, mine) == live(java, theirs)
        assert sorted(map(str, java.read(mine))) == sorted(map(str, java.read(theirs)))
        return made  # type: ignore[no-any-return]


class KeyedPair(Pair):
    """One table with a primary key, twice."""

    def __init__(self, java: Any, folder: Path, **options: str) -> None:
        self.java, self.theirs, self.mine = java, folder / "theirs", folder / "mine"
        given = {"bucket": "1", "write-only": "true", **options}
        java.create_table(self.theirs, SCHEMA, ["dt"], PK, given)
        self._copy_files()

    def both(self, *parts: Sequence[Mapping[str, Any]]) -> list[CommitMessage]:
        """Messages with a file of each part in each partition."""
        made: dict[bytes, CommitMessage] = {}
        for message in (one for some in parts for one in self.messages(some)):
            known = made.setdefault(message.partition, replace(message, new_files=()))
            made[message.partition] = replace(
                known, new_files=(*known.new_files, *message.new_files)
            )
        return list(made.values())

    def levels(self) -> list[tuple[str, int]]:
        found = PaimonTable.load(str(self.mine)).files()
        return sorted((one.partition["dt"], one.meta.level) for one in found)


def _without(one: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if key not in keys}


def of(day: str, first: int, count: int = 3) -> list[dict[str, Any]]:
    return [{"id": first + n, "dt": day, "v": n / 2} for n in range(count)]


MERGING = {"default": {}, "merging": {"manifest.merge-min-count": "3"}}


@pytest.mark.parametrize(("merging", "kind"), each_once(MERGING, KINDS))
def test_overwrites_of_all_forms_leave_the_metadata_java_leaves(
    java: Any, tmp_path: Path, kind: str, merging: str
) -> None:
    pair = Pair(java, tmp_path, kind, **MERGING[merging])
    parts = kind != "plain"
    pair.append(0, rows(0))
    pair.append(1, rows(1))
    pair.overwrite(2, pair.messages([*of("d1", 1000), *of("new", 2000)]), None, watermark=7)
    pair.overwrite(3, pair.messages(of("d0", 3000)), {"dt": "d0"} if parts else {})
    pair.overwrite(4, [], {"dt": "d2"} if parts else {})
    pair.overwrite(5, [], None)  # of a partitioned table: nothing at all
    pair.append(6, rows(6))
    pair.overwrite(7, pair.messages([*rows(7), *of("d9", 7000)]), {})
    pair.overwrite(8, [], {})
    pair.overwrite(9, [], {})
    pair.append(10, rows(10))
    made = pair.check()
    assert [one["commitIdentifier"] for one in made] == [
        n for n in range(11) if not parts or n != 5
    ]
    assert made[-2]["deltaRecordCount"] == 0
    assert PaimonTable.load(str(pair.mine)).to_arrow(snapshot_id=2).num_rows == 12
    assert java.read(pair.mine, snapshot_id=2)


def test_a_message_with_a_compaction_makes_an_overwrite_and_a_compaction(
    java: Any, tmp_path: Path
) -> None:
    pair = Pair(java, tmp_path, "partitioned")
    pair.append(0, rows(0))
    first, second, both = (pair.messages(of("d1", n, 2))[0] for n in (10, 20, 30))
    message = replace(
        first,
        new_files=(*first.new_files, *second.new_files),
        compact_before=(*first.new_files, *second.new_files),
        compact_after=both.new_files,
    )
    pair.overwrite(1, [message], None)
    made = pair.check()
    assert [one["commitKind"] for one in made] == ["APPEND", "OVERWRITE", "COMPACT"]


def test_files_outside_of_the_partition_are_refused_by_both(java: Any, tmp_path: Path) -> None:
    pair = Pair(java, tmp_path, "partitioned")
    pair.append(0, rows(0))
    messages = pair.messages([*of("d0", 1), *of("d1", 2)])
    with pytest.raises(Exception, match="does not belong to this partition"):
        pair._java_overwrite(1, messages, {"dt": "d0"})
    with pytest.raises(OutsidePartition):
        pair.commit.overwrite({"dt": "d0"}, messages, 1)
    assert len(pair.check()) == 1


@pytest.mark.parametrize(
    ("options", "top"),
    [
        pytest.param({}, 5, id="default"),
        pytest.param({"num-levels": "3"}, 2, id="num-levels"),
        pytest.param({"num-sorted-run.compaction-trigger": "3"}, 3, id="trigger"),
        pytest.param({"overwrite-upgrade": "false"}, 0, id="off"),
    ],
)
def test_files_of_a_bucket_that_share_no_key_come_to_the_top_level(
    java: Any, tmp_path: Path, options: dict[str, str], top: int
) -> None:
    pair = KeyedPair(java, tmp_path, **options)
    pair.append(0, [*of("a", 0), *of("b", 0)])
    apart, shared = [of("a", 20), of("a", 0), of("a", 10)], [of("b", 0), of("b", 2)]
    pair.overwrite(1, pair.both(*apart, *shared), None)
    assert pair.levels() == [("a", top)] * 3 + [("b", 0)] * 2
    pair.append(2, of("a", 1, 1))
    pair.overwrite(3, pair.both(of("b", 5)), {"dt": "b"})
    assert [level for dt, level in pair.levels() if dt == "b"] == [top]
    made = pair.check()
    assert [one["commitKind"] for one in made] == ["APPEND", "OVERWRITE", "APPEND", "OVERWRITE"]
    java.compact(pair.mine, True, "j", 1)
    assert len(java.read(pair.mine)) == 9 + 3


def test_truncating_and_dropping_partitions_are_as_javas(java: Any, tmp_path: Path) -> None:
    pair = Pair(java, tmp_path, "partitioned")

    def batch_commit() -> Any:
        return java._paimon.table.sink.BatchWriteBuilderImpl(java._table(pair.theirs)).newCommit()

    for number in range(2):
        pair.append(number, rows(number))
    specs = java._jvm.java.util.ArrayList()
    for day in ("d1", "d2", "nowhere"):
        spec = java._jvm.java.util.HashMap()
        spec.put("dt", day)
        specs.add(spec)
    batch_commit().truncatePartitions(specs)
    table = PaimonTable.load(str(pair.mine))
    table.drop_partitions([{"dt": "d1"}, {"dt": "d2"}, {"dt": "nowhere"}])
    pair.check(users=False)
    batch_commit().truncateTable()
    table.truncate()
    made = pair.check(users=False)
    assert [one["commitIdentifier"] for one in made[-2:]] == [2**63 - 1] * 2
    assert len({one["commitUser"] for one in made}) == 3
    assert java.read(pair.mine) == []


@pytest.mark.parametrize("name", ["overwritten", "overwritten_whole"])
def test_the_steps_of_a_table_that_java_overwrote_end_where_java_ended(
    name: str, tmp_path: Path
) -> None:
    expected = json.loads((GOLDEN / name / "expected.json").read_text())
    created = expected["created"]
    path = tmp_path / "db.db" / "t"
    table = PaimonTable.create(
        str(path),
        schema=[tuple(one) for one in created["schema"]],
        partition_keys=created["partition_keys"],
        options=created["options"],
    )
    names = [column for column, _ in created["schema"]]
    commit = TableCommit(load_table(LocalStorage(str(path))), "golden")
    for step in expected["steps"]:
        given = [dict(zip(names, row, strict=True)) for row in step["rows"]]
        messages = write_rows(load_table(LocalStorage(str(path))), given) if given else ()
        if step["op"] == "write":
            commit.commit(step["identifier"], messages)
            continue
        dynamic = step["dynamic"]
        commit.overwrite(
            None if dynamic else step["partition"],
            messages,
            step["identifier"],
            dynamic=dynamic or None,
        )
    found = table.to_arrow(columns=names).to_pylist()
    assert sorted(map(str, found)) == sorted(
        str(dict(zip(names, row, strict=True))) for row in expected["rows"]
    )
    keys = (
        "id",
        "commitUser",
        "commitIdentifier",
        "commitKind",
        "deltaRecordCount",
        "totalRecordCount",
    )
    made = [
        json.loads((path / f"snapshot/snapshot-{one.id}").read_text()) for one in table.snapshots()
    ]
    assert [{key: one[key] for key in keys} for one in made] == [
        {key: one[key] for key in keys} for one in expected["snapshots"]
    ]


def test_java_goes_on_with_a_golden_table_that_we_overwrote(java: Any, golden: Any) -> None:
    path, _ = golden("overwritten")
    table = PaimonTable.load(str(path))
    before = sorted(map(str, java.read(path)))
    newest = table.latest_snapshot()
    assert newest is not None
    some = table.to_arrow(partition={"dt": "a"})
    table.overwrite(some, {"dt": "a"})
    table.overwrite(some.slice(0, 1), dynamic=True)
    table.drop_partitions([{"hr": 1}])
    assert sorted(map(str, java.read(path))) == sorted(map(str, table.to_arrow().to_pylist()))
    assert sorted(map(str, java.read(path, snapshot_id=newest.id))) == before
    java.write(path, [{"id": 1, "dt": "z", "hr": 1, "v": 1}], "j", 1, overwrite={"dt": "z"})
    assert table.to_arrow(partition={"dt": "z"}).num_rows == 1
    assert java.expire_snapshots(path, retain_max=1) > 0
    assert sorted(map(str, java.read(path))) == sorted(map(str, table.to_arrow().to_pylist()))
