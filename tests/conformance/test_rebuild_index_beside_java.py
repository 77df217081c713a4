"""A damaged hash index: `verify` names what is wrong, writers refuse, `rebuild_index` mends it, and
Java goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.api.table_writing import batch_commit
from paimon_stream.errors import CorruptMetadata, IndexConflict, UnsupportedFeature
from paimon_stream.format.entries import IndexManifestEntry
from paimon_stream.format.index_manifest import decode_index_manifest, encode_index_manifest
from paimon_stream.maintenance.rebuild_index import _Rebuild
from paimon_stream.table.manifests import ManifestStore
from tests.conformance.test_dynamic_buckets_beside_java import same_as_java
from tests.kits.kinds import faults
from tests.kits.params import each_once

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
TABLES = ("plain", "partitioned")


@dataclass
class Index:
    """The index of the newest snapshot of a table, which a test damages."""

    path: Path

    @property
    def snapshot(self) -> Path:
        return max(
            self.path.glob("snapshot/snapshot-*"), key=lambda one: int(one.name.partition("-")[2])
        )

    @property
    def manifest(self) -> Path:
        return self.path / "manifest" / json.loads(self.snapshot.read_text())["indexManifest"]

    @property
    def entries(self) -> list[IndexManifestEntry]:
        return list(decode_index_manifest(self.manifest.read_bytes(), "it"))

    def list(self, entries: list[IndexManifestEntry]) -> None:
        self.manifest.write_bytes(encode_index_manifest(entries, compression="zstd", level=1))

    def file(self, entry: IndexManifestEntry) -> Path:
        return self.path / "index" / entry.file.file_name

    def hashes(self, entry: IndexManifestEntry) -> np.ndarray:
        return np.frombuffer(self.file(entry).read_bytes(), ">i4")

    def put(self, entry: IndexManifestEntry, hashes: np.ndarray) -> IndexManifestEntry:
        """Writes other hashes into the file. Returns its entry."""
        self.file(entry).write_bytes(hashes.astype(">i4").tobytes())
        return replace(
            entry, file=replace(entry.file, file_size=4 * len(hashes), row_count=len(hashes))
        )


def lose_entry(index: Index) -> None:
    index.list(index.entries[1:])


def lose_all(index: Index) -> None:
    told = json.loads(index.snapshot.read_text())
    del told["indexManifest"]
    index.snapshot.write_text(json.dumps(told))


def lose_file(index: Index) -> None:
    index.file(index.entries[0]).unlink()


def cut_file(index: Index) -> None:
    file = index.file(index.entries[0])
    file.write_bytes(file.read_bytes()[:-3])


def miscount(index: Index) -> None:
    first, *others = index.entries
    index.list(
        [replace(first, file=replace(first.file, row_count=first.file.row_count + 1)), *others]
    )


def repeat(index: Index) -> None:
    first, *others = index.entries
    hashes = index.hashes(first)
    index.list([index.put(first, np.append(hashes, hashes[:1])), *others])


def forget_key(index: Index) -> None:
    first, *others = index.entries
    index.list([index.put(first, index.hashes(first)[1:]), *others])


def share(index: Index) -> None:
    entries = sorted(index.entries, key=lambda one: (one.partition, one.bucket))
    at = next(
        at for at, (one, other) in enumerate(pairwise(entries)) if one.partition == other.partition
    )
    entries[at] = index.put(
        entries[at], np.append(index.hashes(entries[at]), index.hashes(entries[at + 1])[:2])
    )
    index.list(entries)


def list_twice(index: Index) -> None:
    first, *others = index.entries
    other = replace(first, file=replace(first.file, file_name="index-again-0"))
    (index.path / "index" / "index-again-0").write_bytes(index.file(first).read_bytes())
    index.list([first, other, *others])


def lose_manifest(index: Index) -> None:
    index.manifest.unlink()


def break_manifest(index: Index) -> None:
    index.manifest.write_bytes(b"no Avro")


DAMAGES: dict[Callable[[Index], None], str] = {
    lose_entry: "hash-index-missing",
    lose_all: "hash-index-missing",
    lose_file: "index-file-missing",
    cut_file: "index-file-size",
    miscount: "index-file-count",
    repeat: "hash-index-repeats",
    forget_key: "row-not-indexed",
    share: "hash-index-shared",
    list_twice: "index-file-twice",
    lose_manifest: "index-manifest-missing",
    break_manifest: "index-manifest-broken",
}
WRITERS_SEE = [one for one in DAMAGES if one not in (repeat, forget_key, list_twice)]
"""The others are not seen by a writer, who reads neither the keys of files nor whether a hash is
there twice.
"""


def contents(path: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def errors(table: PaimonTable) -> dict[str, str]:
    """The errors that `verify` finds: the cure by the code."""
    return {
        one.code: one.cure for one in table.verify(sample=1000).findings if one.severity == "error"
    }


@pytest.mark.parametrize(
    ("damage", "name"),
    each_once(DAMAGES, TABLES, keep=lambda damage, name: (damage, name) == (share, "partitioned")),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_damaged_index_is_found_and_mended_and_both_go_on(
    golden: Golden, kinds: Any, name: str, damage: Callable[[Index], None]
) -> None:
    path, _ = golden(f"kinds/dynamic_{name}")
    rows = same_as_java(kinds, path).to_arrow()
    damage(Index(path))
    table = PaimonTable.load(str(path))
    found = errors(table)
    assert list(found) == [DAMAGES[damage]]
    assert "paimon-stream rebuild-index TABLE --yes" in found[DAMAGES[damage]]
    if damage in WRITERS_SEE:
        with pytest.raises(CorruptMetadata):
            table.append(rows)

    before, snapshot = contents(path), Index(path).snapshot.name
    shown = table.rebuild_index()
    assert contents(path) == before
    assert (shown.snapshot_id, shown.dry_run) == (None, True)
    done = table.rebuild_index(dry_run=False)
    assert (done.buckets, done.keys, done.manifest) == (shown.buckets, shown.keys, shown.manifest)
    lost = damage in (lose_manifest, break_manifest)
    assert (
        (Index(path).snapshot.name == snapshot)
        is lost
        is (done.manifest is not None)
        is (done.snapshot_id is None)
    )
    every = len({(one.partition, one.bucket) for one in Index(path).entries})
    assert len(done.buckets) == (every if lost or damage is lose_all else 1)
    assert done.checked == every
    assert table.rebuild_index(dry_run=False).buckets == ()  # now it is right

    assert faults(kinds, path) == []
    assert errors(table) == {}
    assert PaimonTable.load(str(path)).to_arrow().equals(rows)
    kinds.write_dynamic(path, [tuple(row.values()) for row in rows.to_pylist()])
    table.append(rows)
    assert faults(kinds, path) == []
    assert PaimonTable.load(str(path)).to_arrow().num_rows == rows.num_rows


def test_an_index_file_that_only_older_snapshots_have_is_a_warning(golden: Golden) -> None:
    path, _ = golden("kinds/dynamic_plain")
    lose_file(Index(path))
    table = PaimonTable.load(str(path))
    table.rebuild_index(dry_run=False)
    left = [one for one in table.verify().findings if one.severity != "info"]
    assert {(one.severity, one.code) for one in left} == {("warning", "index-file-missing")}
    assert left[0].cure.startswith("Nothing, unless you roll back to there")
    assert left[0].snapshots


def test_a_key_in_two_buckets_is_reported_and_nothing_is_written(
    golden: Golden, kinds: Any
) -> None:
    path, _ = golden("kinds/dynamic_plain")
    rows = PaimonTable.load(str(path)).to_arrow()
    lose_all(Index(path))
    kinds.write_dynamic(
        path, [tuple(row.values()) for row in rows.to_pylist()]
    )  # Java does not look
    before, table = contents(path), PaimonTable.load(str(path))
    assert table.to_arrow().num_rows > rows.num_rows
    with pytest.raises(
        CorruptMetadata, match=r"keys of partition \(\) have rows in several of the buckets \[\d+, "
    ):
        table.rebuild_index(dry_run=False)
    assert contents(path) == before
    table.overwrite(rows)  # what the message says
    assert table.rebuild_index().buckets == ()
    assert same_as_java(kinds, path).to_arrow().num_rows == rows.num_rows


def test_an_overwrite_needs_no_index_and_makes_it(golden: Golden, kinds: Any) -> None:
    path, _ = golden("kinds/dynamic_plain")
    table = PaimonTable.load(str(path))
    rows = table.to_arrow()
    lose_all(Index(path))
    table.overwrite(rows)
    assert same_as_java(kinds, path).to_arrow().num_rows == rows.num_rows


def test_deleted_keys_and_those_of_older_snapshots_of_a_lost_index_stay_in_it(
    kinds: Any, tmp_path: Path
) -> None:
    path = tmp_path / "db.db" / "t"
    kinds.create_table(
        path, [("k", "INT NOT NULL"), ("v", "INT")], primary_keys=["k"], options={"bucket": "-1"}
    )
    kinds.write_dynamic(path, [(1, 1), (2, 1)])
    kinds.write_dynamic(path, [(2, 2)], kinds=["-D"])
    kinds.compact(path)  # the newest snapshot has no row of key 2, and the same index
    table = PaimonTable.load(str(path))
    assert table.to_arrow()["k"].to_pylist() == [1]
    lose_manifest(Index(path))
    assert table.rebuild_index(dry_run=False).keys == 2
    table.rollback_to(1)
    assert faults(kinds, path) == []


@pytest.mark.parametrize("times", [1, 100])
def test_a_rebuild_starts_again_when_others_change_the_index(
    golden: Golden, kinds: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    path, _ = golden("kinds/dynamic_plain")
    table, tried = PaimonTable.load(str(path)), []
    rows, publish = table.to_arrow(), _Rebuild._publish_index_files
    lose_file(Index(path))

    def late(rebuild: _Rebuild) -> int | None:
        tried.append(rebuild.latest.id)
        if len(tried) <= times:
            PaimonTable.load(str(path)).overwrite(rows.slice(len(tried) % 5))
            lose_file(Index(path))
        return publish(rebuild)

    monkeypatch.setattr(_Rebuild, "_publish_index_files", late)
    if times > 1:
        with pytest.raises(IndexConflict):
            table.rebuild_index(dry_run=False)
        assert len(tried) == 6
    else:
        assert table.rebuild_index(dry_run=False).snapshot_id
        assert len(tried) == 2
        assert faults(kinds, path) == []
    listed = [
        decode_index_manifest(one.read_bytes(), "it")
        for one in path.glob("manifest/index-manifest-*")
    ]
    assert {one.name for one in path.glob("index/*")} <= {
        one.file.file_name for of in listed for one in of
    }


def test_a_run_looks_for_missing_indexes_once(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = golden("kinds/dynamic_partitioned")
    looked, unindexed = [], ManifestStore.unindexed
    monkeypatch.setattr(
        ManifestStore, "unindexed", lambda *given: looked.append(1) or unindexed(*given)
    )
    commit = batch_commit(PaimonTable.load(str(path))._table)
    assert commit.numbers(replaces=True).index is None
    assert looked == []
    assert commit.numbers().index == commit.numbers().index == Index(path).manifest.name
    assert looked == [1]
    lose_entry(Index(path))
    commit = batch_commit(PaimonTable.load(str(path))._table)
    for _ in range(2):
        with pytest.raises(
            CorruptMetadata, match=r"of partition dt=\d+ has files, and index-manifest-\S+ of snap"
        ):
            commit.numbers()
    commit.numbers(replaces=True)


def test_the_wrong_index_of_a_bucket_without_files_goes(golden: Golden, kinds: Any) -> None:
    path, _ = golden("kinds/dynamic_plain")
    index = Index(path)
    first = index.entries[0]
    index.list(
        [
            *index.entries,
            replace(first, bucket=99, file=replace(first.file, file_name="index-gone-0")),
        ]
    )
    table = PaimonTable.load(str(path))
    assert list(errors(table)) == ["index-file-missing"]
    done = table.rebuild_index(dry_run=False)
    assert (done.buckets, done.keys) == (("bucket-99",), 0)
    assert 99 not in {one.bucket for one in Index(path).entries}
    assert errors(table) == {}
    assert faults(kinds, path) == []


def test_a_lost_index_manifest_with_deletion_vectors_is_not_guessed(golden: Golden) -> None:
    path, _ = golden("kinds/dynamic_plain")
    schema = path / "schema" / "schema-0"
    told = json.loads(schema.read_text())
    told["options"]["deletion-vectors.enabled"] = "true"
    schema.write_text(json.dumps(told))
    lose_manifest(Index(path))
    before = contents(path)
    with pytest.raises(CorruptMetadata, match="no other file says which rows are deleted"):
        PaimonTable.load(str(path)).rebuild_index(dry_run=False)
    assert contents(path) == before
    assert "backup" in errors(PaimonTable.load(str(path)))["index-manifest-missing"]


def test_other_tables_have_no_index_to_rebuild(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), schema=[("id", "INT")])
    with pytest.raises(UnsupportedFeature, match="has no hash index"):
        table.rebuild_index()


def test_an_empty_table_has_a_right_index(tmp_path: Path) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"), schema=[("id", "INT NOT NULL")], primary_keys=["id"]
    )
    assert table.options.get("bucket", "-1") == "-1"
    assert table.rebuild_index(dry_run=False).buckets == ()


def test_the_command_shows_what_is_wrong_and_mends_it(golden: Golden) -> None:
    pytest.importorskip("click", reason="the extra cli is not installed")
    from click.testing import CliRunner

    from paimon_stream.cli.app import cli

    path, _ = golden("kinds/dynamic_plain")

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["rebuild-index", *arguments, str(path)])
        return result.exit_code, " ".join(result.stdout.split())

    buckets = len(Index(path).entries)
    right = f"The hash index is right: {buckets} buckets."
    advice = "If batches stop because of lost keys, run it with --yes: then they go on."
    assert run() == (0, f"{right} {advice}")
    assert run("--yes")[1].startswith(f"{right} From snapshot ")
    assert run() == (0, f"{right} There is nothing to do.")
    bucket = f"bucket-{Index(path).entries[0].bucket}"
    lose_file(Index(path))
    code, shown = run()
    assert code == 5
    assert shown.startswith("The hash index of 1 bucket would be rebuilt, with ")
    assert shown.endswith(f": {bucket}. Nothing was changed. Give --yes to do it.")
    code, done = run("--yes")
    assert code == 0
    assert done.endswith(f"keys, in {Index(path).snapshot.name.replace('-', ' ')}: {bucket}.")
    lose_manifest(Index(path))
    assert run()[1].startswith(
        f"The index manifest {Index(path).manifest.name} is missing or broken. The hash index"
    )
    assert json.loads(run("--json")[1])["manifest"] == Index(path).manifest.name
    assert run("--yes")[1].startswith(
        f"The index manifest {Index(path).manifest.name} is there again. The hash index"
    )
    assert run()[0] == 0
