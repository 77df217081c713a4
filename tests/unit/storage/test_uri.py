"""Locations as users write them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.errors import ConfigError, InvalidOption, MissingExtra, UnsupportedFeature
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.storage.object_store import ObjectStorage
from paimon_stream.storage.uri import place_of


def test_the_name_of_a_memory_is_all_up_to_the_first_slash() -> None:
    for name in ("n", "[n", "a?b"):
        assert open_storage(f"memory://{name}/x/").location == f"memory://{name}/x"
    with pytest.raises(InvalidOption, match="names no store"):
        open_storage("memory:/x")


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/db.db/t", "/data/db.db/t"),
        ("/data/db.db/t/", "/data/db.db/t"),
        ("/data/a%20b", "/data/a%20b"),
        ("/data/a?b#c", "/data/a?b#c"),
        ("/data/dt=2024-01-01T00:00", "/data/dt=2024-01-01T00:00"),
        ("file:/data/t", "/data/t"),
        ("file:///data/t", "/data/t"),
        ("FILE:///data/t", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:/data/a%20b", "/data/a b"),
        ("file:///data/a?b#c", "/data/a?b#c"),
        ("file:///data/T%C3%BCr", "/data/Tür"),
    ],
)
def test_paths_and_file_uris_are_local(location: str, path: str) -> None:
    storage = open_storage(location)
    assert isinstance(storage, LocalStorage)
    assert storage.location == path


def test_memory_uris_name_a_store_and_a_folder() -> None:
    assert open_storage("memory://test-uri/db.db/t/") == MemoryStorage("test-uri", root="db.db/t")
    nameless = MemoryStorage(root="t")
    assert open_storage(nameless.location) == nameless
    assert open_storage("memory://test-uri") == MemoryStorage("test-uri")


def test_the_unsafe_single_writer_is_a_storage_option_of_local_paths() -> None:
    assert open_storage("/t", {"paimon-stream.unsafe-single-writer": "true"}) == LocalStorage(
        "/t", unsafe_single_writer=True
    )
    assert open_storage("/t", {}) == LocalStorage("/t")
    with pytest.raises(InvalidOption, match="not true or false"):
        open_storage("/t", {"paimon-stream.unsafe-single-writer": "perhaps"})


@pytest.mark.parametrize("location", ["webhdfs://host:9870/t", "dbfs:/t", "C:\\t", "jfs:/t"])
def test_other_schemes_are_refused_naming_what_is_supported(location: str) -> None:
    with pytest.raises(
        UnsupportedFeature, match=r"a local path, .*hdfs://.*s3://.*gs://.*abfss://.*az://.*oss://"
    ):
        open_storage(location)


@pytest.mark.parametrize("scheme", ["s3", "S3A", "gs"])
def test_stores_are_opened_without_asking_them(scheme: str) -> None:
    pytest.importorskip("obstore")
    storage = open_storage(f"{scheme}://bucket/db.db/t/")
    assert isinstance(storage, ObjectStorage)
    assert storage.location == f"{scheme}://bucket/db.db/t"


def test_a_store_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match="'store'"):
        open_storage("s3://bucket/t")


@pytest.mark.parametrize(
    "location", ["", "  ", "memory://", "memory:///x", "file://host/t", "file:t", "file:", "~/t"]
)
def test_malformed_locations_are_refused(location: str) -> None:
    with pytest.raises(InvalidOption):
        open_storage(location)


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("s3://me:SECRET@bucket/t?token=SECRET#SECRET", {}),
        ("s3://bucket/t", {"s3.secret-key": "SECRET"}),
        ("s3://bucket/t", {"s3.secret": "SECRET"}),
        ("file://me:SECRET@host/t?x=SECRET", {}),
        ("/t", {"s3.secret-key": "SECRET"}),
        ("memory://x", {"token": "SECRET"}),
    ],
)
def test_errors_hold_no_secrets(location: str, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as raised:
        open_storage(location, options)
    assert "SECRET" not in str(raised.value)
    assert "SECRET" not in str(raised.value.context)


def test_a_path_object_is_a_location_and_nothing_else_is() -> None:
    assert open_storage(Path("/data/db.db/t")).location == "/data/db.db/t"
    with pytest.raises(InvalidOption, match="location is None"):
        open_storage(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("uri", [False, True])
def test_a_path_that_is_not_utf_8_is_refused_before_anything_is_made(
    tmp_path: Path, uri: bool
) -> None:
    location = (
        f"file://{tmp_path}/%FF.db/t" if uri else os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db/t")
    )
    for call in (PaimonTable.load, lambda path: PaimonTable.create(path, [("id", "INT")])):
        with pytest.raises(
            InvalidOption, match=r"udcff.* are not UTF-8: .*Rename the folder"
        ) as caught:
            call(location)
        str(caught.value).encode()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_utf_8_has_no_tables_below_it_by_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(folder)
    monkeypatch.chdir(folder)
    with pytest.raises(InvalidOption, match="not UTF-8"):
        PaimonTable.create("db.db/t", [("id", "INT")])
    assert not os.listdir(folder)


def test_folders_of_two_stores_are_two_places_and_a_folder_is_one_however_it_is_written(
    tmp_path: Path,
) -> None:
    on_minio = {"s3.endpoint": "https://minio:9000"}
    azure = "abfss://c1@acc.dfs.core.windows.net/wh"
    folders: list[list[tuple[str, dict[str, str]]]] = [
        [
            ("s3://c1/wh", {}),
            ("s3a://c1//wh/", {"s3.secret-key": "s3cr3t", "jdbc.password": "s3cr3t"}),
        ],
        [("gs://c1/wh", {}), ("gcs://c1/wh", {})],
        [("gs://c1/wh", {"gs.endpoint": "https://minio:9000"})],
        [("oss://c1/wh", {})],
        [("/c1/wh", {}), ("file:///c1/wh/", {}), ("file:/c1/./wh", {})],
        [("/c1/wh#2?3", {}), ("file:/c1/wh%232%3F3", {})],
        [
            ("s3://c1/wh", on_minio),
            ("s3n://c1/wh", {"fs.s3a.bucket.c1.endpoint": "https://user:s3cr3t@minio:9000/"}),
        ],
        [
            (azure, {}),
            (azure.replace("abfss", "wasbs").replace("dfs", "blob"), {}),
            ("az://c1/wh", {"azure.account-name": "acc", "azure.account-key": "s3cr3t"}),
        ],
        [(azure.replace("@acc", "@acc2"), {})],
    ]
    places = [{place_of(location, options) for location, options in same} for same in folders]
    assert [len(of_folder) for of_folder in places] == [1] * len(folders)
    assert len(set().union(*places)) == len(folders)
    assert "s3cr3t" not in str(places)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder")
    assert place_of(str(link), {}) == place_of(f"{tmp_path}/folder", {})
