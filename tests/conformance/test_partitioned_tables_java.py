"""Rows appended to partitioned tables are in the folders and under the partition rows that Java
Paimon uses, and no value leads out of the table's folder.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidOption
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.live import live_files
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table
from tests.kits.params import each_once
from tests.kits.tables import append

UTC = dt.timezone.utc
GOLDEN = ["partition_strings", "partition_times", "partition_types", "partition_types_named"]
OF_ONE_RUN = ("fileName", "fileSize", "creationTime")


def folders(path: Path) -> list[str]:
    """The folders that hold data files."""
    return sorted({str(file.parent.relative_to(path)) for file in path.rglob("bucket-*/data-*")})


def partition_rows(path: Path) -> list[tuple[str, int, int]]:
    """The partition row, bucket and rows of every live file."""
    table = load_table(LocalStorage(str(path)))
    store = ManifestStore(table.storage)
    latest = SnapshotStore(table.storage).latest()
    assert latest is not None
    entries = live_files(store, store.base_and_delta(latest), table.partition_types)
    return sorted((entry.partition.hex(), entry.bucket, entry.file.row_count) for entry in entries)


def facts(files: list[dict[str, Any]]) -> list[str]:
    """The metadata of files, without what differs from run to run. Without buckets, Java begins to
    number again with every writer, but not at 0 if it has many writers and begins to buffer.
    """
    kept = []
    for file in files:
        first = file["minSequenceNumber"]
        moved = {"minSequenceNumber": 0, "maxSequenceNumber": file["maxSequenceNumber"] - first}
        kept.append(
            {key: value for key, value in {**file, **moved}.items() if key not in OF_ONE_RUN}
        )
    return sorted(map(str, kept))


def ranges(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in one.items() if k not in ("fileName", "fileSize")} for one in manifests
    ]


def assert_twins(java: Any, ours: Path, theirs: Path) -> None:
    assert folders(ours) == folders(theirs)
    assert partition_rows(ours) == partition_rows(theirs)
    assert facts(java.files(ours)) == facts(java.files(theirs))
    assert str(ranges(java.manifests(ours))) == str(ranges(java.manifests(theirs)))


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_tables_are_appended_to_as_java_does(
    java: Any, golden: Callable[[str], tuple[Path, dict[str, Any]]], tmp_path: Path, case: str
) -> None:
    import java_paimon

    theirs, expected = golden(case)
    ours = Path(shutil.copytree(theirs, tmp_path / "ours"))
    rows = java_paimon.decode_rows(expected["schema"], expected["rows"])
    append(ours, rows, identifier=50)
    java.write(theirs, rows, commit_identifier=50)
    assert_twins(java, ours, theirs)
    assert folders(ours) == sorted({file["path"] for file in expected["files"]})
    schema = expected["schema"]
    assert java_paimon.canonical(schema, java.read(ours)) == java_paimon.canonical(
        schema, rows + rows
    )


PARTITIONS: dict[str, list[Any]] = {
    "STRING": [
        "a",
        "",
        "  ",
        None,
        "ü 漢字 😀",
        "x=y/z",
        "%41",
        "\u00a0",
        "__DEFAULT_PARTITION__",
        "none",
    ],
    "VARCHAR(5)": ["a", "", None, "é"],
    "CHAR(3)": ["a", "abc", None],
    "BOOLEAN": [True, False, None],
    "SMALLINT": [-5, 7, None],
    "FLOAT": [1.5, 100.0, 1e10, -0.0, 0.0, float("nan"), None],
    "DECIMAL(20, 5)": [Decimal("1.5"), Decimal(0), None],
    "DATE": [dt.date(2024, 2, 29), dt.date(1969, 12, 31), None],
    "TIME(3)": [dt.time(12, 34, 56, 789_000), dt.time(0), None],
    "TIMESTAMP(0)": [dt.datetime(2024, 2, 29, 12, 34), None],
    "TIMESTAMP(3)": [dt.datetime(2024, 2, 29, 12, 34, 56, 789_000), None],
    "TIMESTAMP(6)": [dt.datetime(2024, 2, 29, 12, 34, 56, 789_123), dt.datetime(1970, 1, 1), None],
    "TIMESTAMP(9)": ["2024-02-29T12:34:56.123456789", None],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [dt.datetime(2024, 2, 29, 12, 34, 56, 789_123, UTC), None],
}
OPTIONS: dict[str, dict[str, str]] = {
    "legacy": {},
    "named": {"partition.legacy-name": "false", "partition.default-name": "no value: ü"},
    "elsewhere": {"partition.default-name": "none", "data-file.path-directory": "data/files"},
}


@pytest.mark.parametrize(("text", "naming"), each_once(PARTITIONS, OPTIONS))
def test_partitions_of_every_type_are_where_java_puts_them(
    java: Any, tmp_path: Path, text: str, naming: str
) -> None:
    options = OPTIONS[naming]
    if "LOCAL" in text and "partition.legacy-name" in options:
        pytest.skip("refused: the folder would depend on the writer's time zone")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    rows = [{"id": number, "p": value} for number, value in enumerate(PARTITIONS[text])]
    for path in (ours, theirs):
        java.create_table(path, [("id", "INT"), ("p", text)], ["p"], options=options)
    append(ours, rows)
    java.write(theirs, rows, commit_identifier=1)
    assert_twins(java, ours, theirs)


def test_several_partition_keys_nest_in_key_order_whatever_the_column_order(
    java: Any, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    schema = [("b", "STRING"), ("id", "INT"), ("a/=", "INT"), ("ü", "BOOLEAN")]
    rows = [{"b": "x", "id": 1, "a/=": 2, "ü": True}, {"b": None, "id": 2, "a/=": None, "ü": None}]
    for path in (ours, theirs):
        java.create_table(path, schema, ["ü", "a/=", "b"])
    append(ours, rows)
    java.write(theirs, rows, commit_identifier=1)
    assert_twins(java, ours, theirs)
    assert "ü=true/a%2F%3D=2/b=x/bucket-0" in folders(ours)


EVIL = [
    "..",
    ".",
    "../../../etc",
    "/",
    "/etc/passwd",
    "a/../../b",
    "\0",
    "a\0b",
    "\\",
    "..\\..\\x",
    "C:\\x",
    "%2e%2e",
    "..%2F",
    "\n",
    "~",
    "$HOME",
    "*",
    "?",
    "file:///x",
    "bucket-0",
    "p=..",
]


def test_no_value_leaves_the_folder_of_the_table(java: Any, tmp_path: Path) -> None:
    root = tmp_path / "root"
    table = root / "a" / "b" / "t"
    PaimonTable.create(
        str(table),
        schema=[("id", "INT"), ("p", "STRING"), ("q", "STRING")],
        partition_keys=["p", "q"],
    )
    rows = [{"id": n, "p": value, "q": EVIL[-n]} for n, value in enumerate(EVIL)]
    append(table, rows)
    assert [path for path in root.rglob("*") if path.is_file() and table not in path.parents] == []
    written = folders(table)
    assert len(written) == len(EVIL)
    assert all(folder.count("/") == 2 and folder.startswith("p=") for folder in written)
    assert sorted(java.read(table), key=itemgetter("id")) == rows


@pytest.mark.parametrize("name", ["..", "../../x", "/x", "a\\b", "."])
def test_no_default_name_leaves_the_folder_of_the_table(
    java: Any, tmp_path: Path, name: str
) -> None:
    root = tmp_path / "root"
    table = root / "a" / "b" / "t"
    PaimonTable.create(
        str(table),
        schema=[("id", "INT"), ("p", "STRING")],
        partition_keys=["p"],
        options={"partition.default-name": name},
    )
    append(table, [{"id": 1, "p": None}])
    assert [path for path in root.rglob("*") if path.is_file() and table not in path.parents] == []
    assert java.read(table) == [{"id": 1, "p": None}]


@pytest.mark.parametrize("folder", ["../x", "a/../../x", "/abs", "..", "a\0b", "a//../../x"])
def test_a_data_folder_outside_of_the_table_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(InvalidOption, match=r"data-file\.path-directory"):
        PaimonTable.create(
            str(tmp_path / "t"),
            schema=[("id", "INT")],
            options={"data-file.path-directory": folder},
        )
    assert not (tmp_path / "t" / "schema").exists()
