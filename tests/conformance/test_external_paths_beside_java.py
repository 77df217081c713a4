"""Tables whose data files lie in external paths: read and written in turns with Java, and cleaned
as by Java.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import Options
from paimon_stream.storage.external import external_path, shown_root
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.uri import ExternalStorage
from paimon_stream.table.layout import ExternalPaths
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import load_table
from tests.kits.reading import assert_rows, java_rows, wire_rows
from tests.kits.tables import write_rows

HERE = Path(__file__).parents[1] / "golden" / "kinds"
SCHEMA = [("id", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "STRING")]
KEYS = ["id", "p"]
TABLES: dict[str, tuple[list[str], dict[str, str]]] = {
    "round-robin": ([], {}),
    "entropy-inject": (KEYS, {"bucket": "2", "changelog-producer": "input"}),
    "weight-robin": (KEYS, {"bucket": "-1", "data-file.path-directory": "data"}),
    "specific-fs": (
        [],
        {"bucket": "2", "bucket-key": "id", "file.format": "avro", "manifest.merge-min-count": "2"},
    ),
}


@pytest.mark.parametrize("name", ["external_round_robin", "external_entropy_inject"])
def test_the_rows_and_paths_are_those_of_java(name: str) -> None:
    expected = json.loads((HERE / name / "expected.json").read_text())
    whole = LocalStorage(str(HERE / name / "db.db" / "t"))
    paths = ExternalPaths.of(Options(SchemaStore(whole).latest().options))
    assert paths is not None
    roots = tuple(map(shown_root, paths.turns))
    # Java wrote into a folder in /tmp, whose files are now beside the table.
    here = [LocalStorage(str(HERE / name / "external" / one)) for one in ("one", "two")]
    table = PaimonTable(
        load_table(ExternalStorage(whole, roots, dict(zip(roots, here, strict=True))))
    )  # type: ignore[arg-type]
    for number, rows in {**expected["snapshot_rows"], None: expected["rows"]}.items():
        found = table.to_arrow(snapshot_id=None if number is None else int(number))
        assert Counter(map(str, wire_rows(found, table.schema.fields))) == Counter(map(str, rows))
    report = table.verify(sample=100)
    assert report.findings == ()
    assert report.checked["sampled files"] == len(table.files())
    for file in table.files():
        bucket = f"p={file.partition['p']}/bucket-{file.bucket}"
        ours = {external_path(paths.place(bucket, file.meta.file_name, turn)) for turn in (0, 1)}
        assert file.path in ours, "we would have put it there"


def files_below(root: Path) -> set[str]:
    return {str(one) for one in root.rglob("*") if one.is_file()}


def create(path: Path, strategy: str, **more: str) -> PaimonTable:
    keys, options = TABLES[strategy]
    outside = path.parent / f"{path.name}-outside"
    options = {
        "data-file.external-paths": f"file://{outside}/one, file://{outside}/two/",
        "data-file.external-paths.strategy": strategy,
        "data-file.external-paths.weights": "1,3",
        "data-file.external-paths.specific-fs": "FILE",
        **options,
        **more,
    }
    return PaimonTable.create(
        str(path), SCHEMA, partition_keys=["p"], primary_keys=keys, options=options
    )


def rows(first: int, value: str) -> list[tuple[int, str, str]]:
    return [(one, "a=b"[one % 3 :], value) for one in range(first, first + 6)]


def arrow(some: list[tuple[int, str, str]]) -> pa.Table:
    ids, parts, values = zip(*some, strict=True)
    return pa.table({"id": pa.array(ids, pa.int32()), "p": parts, "v": values})


def same_as_java(java: Any, table: PaimonTable) -> int:
    """Both read the same rows, and both roots hold the files of the table and no others. Returns
    the number of rows.
    """
    found = table.to_arrow()
    assert_rows(found, table.schema.fields, java_rows(java, table))
    assert table.verify(sample=50).findings == ()
    return found.num_rows


@pytest.mark.parametrize("strategy", TABLES)
def test_in_turns_with_java_nothing_is_lost_and_nothing_stays(
    strategy: str, tmp_path: Path, java: Any, kinds: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    table = create(path, strategy)
    java_writes = kinds.write_dynamic if table.options.get("bucket") == "-1" else java.write
    outside = tmp_path / "db.db" / "t-outside"
    for step in range(4):
        if step % 2:
            java_writes(path, rows(3 * step, f"v{step}"))
        else:
            table.append(arrow(rows(3 * step, f"v{step}")))
        if step == 1:
            table.compact(full=True)
        if step == 2:
            java.compact(path)
    count = same_as_java(java, table)
    assert count == (15 if table.primary_keys else 24)
    assert not list(path.rglob("data-*")) and not list(path.rglob("changelog-*.parquet"))
    assert {one.name for one in outside.iterdir()} == {"one", "two"}
    table.compact(full=True)
    if strategy in ("round-robin", "weight-robin"):
        java.expire_snapshots(path, 1)
    else:
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert files_below(outside) == {file.path.removeprefix("file:") for file in table.files()}
    assert same_as_java(java, table) == count


@pytest.mark.parametrize("strategy", TABLES)
def test_orphans_go_from_all_external_paths_and_nothing_else_does(
    strategy: str, tmp_path: Path, java: Any
) -> None:
    """Java looks neither into folders of entropy nor into those of `data-file.path-directory`
    (tried on 1.4.2).
    """
    path, outside = tmp_path / "t", tmp_path / "t-outside"
    table = create(path, strategy, **{"write-only": "true"})
    table.append(arrow(rows(0, "x")))
    kept = {
        outside / "one" / "mine" / "notes",
        outside / "two" / "p=b" / "notes",
        outside / "data-1.parquet",
    }
    folders = sorted({one.parent for one in outside.rglob("data-*")})
    litter = {one / f"litter-{number}.parquet" for number, one in enumerate(folders)}
    for one in (*kept, *litter):
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_bytes(b"litter")
    before = files_below(outside) - set(map(str, litter))
    for file in files_below(tmp_path):
        os.utime(file, (10**9, 10**9))
    found = java.remove_orphans(path, older_than_ms=10**12 + 86_400_000, dry_run=True)
    assert table.remove_orphan_files(dry_run=True, older_than="1 h").count == len(litter)
    if strategy in ("round-robin", "specific-fs"):
        assert {one for one in found if "litter" in one} == {f"file:{one}" for one in litter}
    report = table.remove_orphan_files(dry_run=False)
    assert sorted(report.paths) == sorted(f"file:{one}" for one in litter)
    assert files_below(outside) == before
    assert same_as_java(java, table) == 6


def test_each_commits_what_the_other_wrote(tmp_path: Path, java: Any) -> None:
    path = tmp_path / "db.db" / "t"
    table = create(path, "specific-fs")
    messages = [
        one.serialize()
        for one in write_rows(load_table(LocalStorage(str(path))), wire(rows(0, "ours")))
    ]
    java.commit_messages(path, messages)
    version, theirs = java.prepare_commit_bytes(path, rows(6, "theirs"))
    commit = TableCommit(load_table(LocalStorage(str(path))), "me")
    commit.commit(1, [CommitMessage.deserialize(one, version) for one in theirs])
    assert same_as_java(java, table) == 12


def wire(some: list[tuple[int, str, str]]) -> list[Mapping[str, Any]]:
    return [dict(zip(("id", "p", "v"), one, strict=True)) for one in some]
