"""Data files in external paths (table-kinds.md §3): where each goes, and that no other file is
touched.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.api.trial import try_writing
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CorruptMetadata,
    DeletedFiles,
    FormatError,
    InvalidOption,
    UnsupportedFeature,
)
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.options import Options
from paimon_stream.storage.base import Storage
from paimon_stream.storage.external import external_path
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.uri import open_folder
from paimon_stream.table.layout import ExternalPaths, Layout
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import load_table
from tests.kits.commits import data_file
from tests.kits.stores import StoreServer
from tests.kits.tables import write_rows

KEY = "data-file.external-paths"
SCHEMA = [("id", "INT"), ("p", "STRING")]
ROWS = pa.table({"id": pa.array(range(4), pa.int32()), "p": ["a", "b"] * 2})


def outside(*paths: str, strategy: str = "round-robin", **more: str) -> dict[str, str]:
    return {KEY: ",".join(paths), f"{KEY}.strategy": strategy, **more}


def created(path: object, options: dict[str, str], **how: Any) -> PaimonTable:
    return PaimonTable.create(str(path), SCHEMA, partition_keys=["p"], options=options, **how)


def with_options(table: PaimonTable, options: dict[str, str]) -> PaimonTable:
    """The table after somebody changed its options to these."""
    store = SchemaStore(LocalStorage(table.location))
    newest = store.latest()
    assert store.create(replace(newest, id=newest.id + 1, options=options)), encode_schema(newest)
    return PaimonTable.load(table.location)


def test_a_trial_says_which_external_paths_it_left_out(tmp_path: Path) -> None:
    used, unused = (tmp_path / name for name in ("used", "unused"))
    table = created(tmp_path / "t", outside(f"file:{used}"))
    table.append(ROWS)
    with_options(table, outside(f"file:{used}", f"file:{unused}"))
    trial = try_writing(load_table(open_folder(table.location)))
    assert trial.failures == ()
    assert f"file:{used}/p=a" in [external_path(folder) for folder in trial.tried]
    left_out = f"the external path file:{unused}, in which the table has no folder yet"
    assert left_out in trial.not_tried
    assert not any(f"file:{used}," in words for words in trial.not_tried)
    assert not unused.exists()


def test_paths_are_as_java_prints_them() -> None:
    given = "file:///x//y/ , file:/x,s3://b/x/,memory://m"
    paths = ExternalPaths.of(Options(outside(given)))
    assert paths is not None
    assert paths.turns == ("file:/x/y", "file:/x", "s3://b/x", "memory://m")
    assert (
        created("memory://spaces", outside(given)).options[KEY]
        == "file:///x//y/,file:/x,s3://b/x/,memory://m"
    )


def test_files_take_the_paths_in_turn_or_by_weight() -> None:
    places = [ExternalPaths(("a:/", "b:/", "c:/")).place("f", "n", turn) for turn in range(6)]
    assert places[:3] == places[3:] and len(set(places)) == 3
    options = outside(
        "a:/x", "b:/x", strategy="weight-robin", **{f"{KEY}.weights": "1000000,3000000"}
    )
    weighted = ExternalPaths.of(Options(options))
    assert weighted is not None
    found = Counter(str(external_path(weighted.place("f", "n", turn)))[0] for turn in range(4000))
    assert (found["a"], found["b"]) == (1000, 3000)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (outside("/x"), "without a scheme"),
        (
            outside("file:/x", strategy="specific-fs", **{f"{KEY}.specific-fs": "s3"}),
            "0 paths and 0 weights",
        ),
        (outside("file:/x", strategy="specific-fs"), "0 paths and 0 weights"),
        (
            outside("a:/x", "b:/x", strategy="weight-robin", **{f"{KEY}.weights": "1"}),
            "2 paths and 1 weights",
        ),
        (outside("a:/x", strategy="weight-robin", **{f"{KEY}.weights": "0"}), "at least 1"),
    ],
)
def test_paths_that_no_engine_could_use_are_refused(options: dict[str, str], shown: str) -> None:
    with pytest.raises(InvalidOption, match=shown):
        created("memory://none", options)


@pytest.mark.parametrize(
    ("options", "kind", "shown"),
    [
        (outside("cosn://host/x"), UnsupportedFeature, "'cosn' are not supported"),
        (outside("s3://bucket"), InvalidOption, "a table needs a folder"),
        (
            outside("memory://m/x", **{"index-file-in-data-file-dir": "true"}),
            UnsupportedFeature,
            "index files",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    options: dict[str, str], kind: type[Exception], shown: str, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="cannot write it"):
        table = created(tmp_path / "t", options)
    with pytest.raises(kind, match=shown) as caught:
        table.append(ROWS)
    assert table.location in str(caught.value)
    with pytest.raises(kind, match=shown):
        table.new_commit("me")
    assert [one.name for one in (tmp_path / "t").iterdir()] == ["schema"]


def lifecycle(table: PaimonTable, roots: list[Storage]) -> None:
    """Everything that writes, reads and deletes, and what is below the roots afterwards."""
    moved = pickle.loads(pickle.dumps(table._table.storage))  # as to executors
    messages = write_rows(replace(table._table, storage=moved), [{"id": 9, "p": "a"}])
    table.new_commit("me").commit(1, messages)
    for _ in range(5):
        table.append(ROWS)
    assert table.to_arrow().num_rows == 21
    assert table.verify(sample=50).findings == ()
    assert table.compact(full=True).files_before == 11
    dropped = write_rows(load_table(table._table.storage), [{"id": 9, "p": "a"}])
    assert table.new_commit("me").abort(dropped) == 1
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    stored = {stat.name for root in roots for page in root.list_below("") for stat in page}
    assert stored == {file.meta.file_name for file in table.files()}
    assert table.to_arrow().num_rows == 21
    assert table.remove_orphan_files(dry_run=False).count == 0
    assert table.verify(sample=50).findings == ()


def test_a_table_and_its_external_paths_may_lie_in_different_kinds_of_storage(
    tmp_path: Path, s3_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, options = s3_server.place()
    local, memory = f"file://{tmp_path}/o", "memory://outside/o"
    table = created(
        place,
        outside(local, memory, f"{place}-o", strategy="entropy-inject"),
        storage_options=options,
    )
    lifecycle(
        table,
        [LocalStorage(f"{tmp_path}/o"), open_folder(memory), open_folder(f"{place}-o", options)],
    )
    keys = s3_server.server
    for name, value in {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": keys.url,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    table = created(tmp_path / "t", outside(f"{place}-p"))
    lifecycle(table, [open_folder(f"{place}-p")])


def test_files_stay_in_use_when_the_options_change(tmp_path: Path) -> None:
    old, new = (f"file://{tmp_path}/{one}" for one in ("old", "new"))
    table = created(tmp_path / "t", outside(old))
    table.append(ROWS)
    table = with_options(table, outside(new))
    table.append(ROWS)
    table = with_options(table, outside(new, strategy="none"))
    table.append(ROWS)
    assert table.to_arrow().num_rows == 12
    assert Counter(Path(file.path).parents[2].name for file in table.files()) == {
        "old": 2,
        "new": 2,
        "t": 2,
    }
    table.truncate()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert not [
        one
        for name in ("old", "new", "t/p=a")
        for one in (tmp_path / name).rglob("*")
        if one.is_file()
    ]


@pytest.mark.parametrize("place", ["file:{}/victim/bucket-0/{}", "file:{}/o/../victim/bucket-0/{}"])
def test_a_file_outside_all_external_paths_is_neither_read_nor_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    """As a crafted manifest names it: a live file of another table."""
    victim = PaimonTable.create(str(tmp_path / "victim"), [("id", "INT")])
    victim.append(pa.table({"id": pa.array([1], pa.int32())}))
    theirs = victim.files()[0]
    table = PaimonTable.create(
        str(tmp_path / "t"), [("id", "INT")], options=outside(f"file://{tmp_path}/o")
    )
    (message,) = write_rows(table._table, [{"id": 7}])
    path = place.format(tmp_path, theirs.meta.file_name)
    (file,) = message.new_files
    crafted = replace(
        file, file_name=theirs.meta.file_name, file_size=theirs.meta.file_size, external_path=path
    )
    with monkeypatch.context() as patch:
        patch.setattr(Layout, "holds", lambda *_: True)
        patch.setattr(ExternalPaths, "holds", lambda *_: True)
        table.new_commit("me").commit(1, [replace(message, new_files=(crafted,))])
    table = PaimonTable.load(table.location)
    with pytest.raises(CorruptMetadata, match=r"lies outside the table.*never named it"):
        table.to_arrow()
    assert [one.code for one in table.verify().findings if one.severity == "error"] == [
        "entry-unusable"
    ]
    table.truncate()
    report = table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert report.impossible == 1
    assert victim.to_arrow().num_rows == 1


def test_files_outside_a_table_without_external_paths_are_refused_with_a_cure(
    tmp_path: Path,
) -> None:
    table = created(tmp_path / "t", outside(f"file://{tmp_path}/o"))
    table.append(ROWS)
    with pytest.raises(CorruptMetadata, match=r"data-file\.external-paths is not set"):
        with_options(table, {}).to_arrow()


def test_a_missing_file_is_found_by_the_audit_and_by_the_commit(tmp_path: Path) -> None:
    table = created(tmp_path / "t", outside(f"file://{tmp_path}/o"))
    table.append(ROWS)
    messages = write_rows(table._table, [{"id": 9, "p": "a"}])
    for one in (tmp_path / "o").rglob("data-*"):
        one.unlink()
    old = [
        replace(one, new_files=tuple(replace(file, creation_time=1) for file in one.new_files))
        for one in messages
    ]
    with pytest.raises(DeletedFiles, match=f"file:{tmp_path}/o/p=a/bucket-0/data-"):
        table.new_commit("me").commit(1, old)
    found = table.verify().findings
    assert {one.code for one in found} == {"file-missing"}
    assert all(one.path.startswith(f"file:{tmp_path}/o/p=") for one in found)


@pytest.mark.parametrize(
    "path",
    [
        "file:{}/o/p=a/bucket-0/other",
        "file:{}/o/p=b/bucket-0/f",
        "file:{}/o/p=a/bucket-1/f",
        "file:{}/o/p=a/bucket-0/sub/f",
        "file:{}/o/p=a/bucket-0/0101/0101/0101/f",
        "file:{}/elsewhere/p=a/bucket-0/f",
        "file:{}/o/../elsewhere/p=a/bucket-0/f",
        "s3://b/p=a/bucket-0/f",
        "f",
    ],
)
def test_a_message_names_no_file_outside_the_external_paths(path: str, tmp_path: Path) -> None:
    table = created(tmp_path / "t", outside(f"file://{tmp_path}/o"))
    (tmp_path / "elsewhere/p=a/bucket-0").mkdir(parents=True)
    (tmp_path / "elsewhere/p=a/bucket-0/f").write_bytes(b"another's")
    message = write_rows(table._table, [{"id": 1, "p": "a"}])[0]
    assert message.partition == serialize(
        [one.type for one in table._table.schema.partition_fields], ["a"]
    )
    hostile = replace(
        message, new_files=(replace(data_file("f"), external_path=path.format(tmp_path)),)
    )
    act: Callable[[TableCommit], Any]
    for act in (lambda it: it.commit(1, [hostile]), lambda it: it.abort([hostile])):
        with pytest.raises(FormatError, match="a commit message does not fit the table"):
            act(table.new_commit("me"))
    assert (tmp_path / "elsewhere/p=a/bucket-0/f").exists()


def test_a_branch_writes_to_the_external_paths_too(tmp_path: Path) -> None:
    table = created(tmp_path / "t", outside(f"file://{tmp_path}/o"))
    table.append(ROWS)
    table.create_branch("b")
    branch = PaimonTable.load(table.location, branch="b")
    branch.append(ROWS)
    assert branch.remove_orphan_files().count == table.remove_orphan_files().count == 0
    assert (table.to_arrow().num_rows, branch.to_arrow().num_rows) == (4, 4)
    assert len(list((tmp_path / "o").rglob("data-*"))) == 4
