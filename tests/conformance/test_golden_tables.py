"""Tables that Java wrote: everything we read of their metadata is what Java says it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.inspection import TableFile
from paimon_stream.api.table import PaimonTable
from paimon_stream.format.entries import FileSource, SimpleStats
from paimon_stream.format.snapshot_json import decode_snapshot, encode_snapshot
from paimon_stream.format.stats import decode_stats
from paimon_stream.format.types import DataField, DataType, TypeRoot, parse_type
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.layout import NameSource
from paimon_stream.table.live import live_files, merge_entries
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from paimon_stream.table.snapshots import SnapshotStore

pytestmark = pytest.mark.lowest

HERE = Path(__file__).parent.parent / "golden"
CASES = sorted(folder.name for folder in HERE.iterdir() if (folder / "expected.json").is_file())
Golden = Callable[[str], tuple[Path, dict[str, Any]]]


def plain(type_: DataType, value: Any) -> Any:
    """An internal value as the golden tables write it."""
    match type_.root, value:
        case _, None:
            return None
        case TypeRoot.DECIMAL, Decimal():
            return format(value, "f")
        case TypeRoot.DATE, int():
            return _date(value)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ, int():
            seconds, nanos = divmod(value, 1_000_000_000)
            return f"{_instant(seconds)[:-4]}.{nanos:09d}"
        case TypeRoot.TIME, int():
            return _instant(0, value).partition("T")[2]
        case TypeRoot.BINARY | TypeRoot.VARBINARY, bytes():
            return value.hex()
        case TypeRoot.FLOAT | TypeRoot.DOUBLE, float() if value != value or abs(value) == float(
            "inf"
        ):
            return str(value)
    return value


def _date(days: int) -> str:
    return str((datetime(1970, 1, 1) + timedelta(days=days)).date())


def _instant(seconds: int, millis: int = 0) -> str:
    moment = datetime(1970, 1, 1) + timedelta(seconds=seconds, milliseconds=millis)
    return moment.isoformat(timespec="milliseconds")


def comparable(value: Any) -> Any:
    """Numbers that JSON does not know, NaN among them, which equals nothing, as one text."""
    return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(str(value), value)


def stats_of(
    fields: tuple[DataField, ...], stats: SimpleStats, columns: Any = None
) -> dict[str, Any]:
    types = {one.name: one.type for one in fields}
    return {
        name: {
            "min": plain(types[name], one.min),
            "max": plain(types[name], one.max),
            "nullCount": one.null_count,
        }
        for name, one in decode_stats(fields, stats, columns).items()
    }


def test_the_bytes_of_a_snapshot_are_those_of_java() -> None:
    files = sorted(HERE.glob("*/db.db/*/snapshot/snapshot-*"))
    assert len(files) >= 100
    for file in files:
        assert encode_snapshot(decode_snapshot(file.read_bytes(), str(file))) == file.read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_schema_and_snapshots_are_read(case: str, golden: Golden) -> None:
    path, expected = golden(case)
    table = PaimonTable.load(str(path))
    created = expected["created"]
    assert [[one.name, str(one.type)] for one in table.schema.fields] == [
        [name, str(type_)] for name, type_ in _canonical(expected["schema"])
    ]
    assert list(table.partition_keys) == created["partition_keys"]
    assert list(table.primary_keys) == created["primary_keys"]
    assert dict(table.options).items() >= created["options"].items()
    snapshots = table.snapshots()
    assert [one.id for one in snapshots] == [one["id"] for one in expected["snapshots"]]
    for ours, java in zip(snapshots, expected["snapshots"], strict=True):
        assert ours.commit_user == java["commitUser"]
        assert ours.commit_identifier == java["commitIdentifier"]
        assert ours.commit_kind.value == java["commitKind"]
        assert ours.delta_manifest_list == java["deltaManifestList"]
        assert ours.base_manifest_list_size == java["baseManifestListSize"]
        assert ours.total_record_count == java["totalRecordCount"]
        assert ours.delta_record_count == java["deltaRecordCount"]
    newest = table.latest_snapshot()
    assert newest == snapshots[-1]
    store = SnapshotStore(LocalStorage(str(path)))
    assert (store.earliest_id(), store.latest_id()) == (snapshots[0].id, snapshots[-1].id)


def _canonical(schema: list[list[str]]) -> list[tuple[str, DataType]]:
    return [(name, parse_type(text)) for name, text in schema]


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_read_in_order_with_what_is_said_of_them(case: str, golden: Golden) -> None:
    path, expected = golden(case)
    table = PaimonTable.load(str(path))
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    store = ManifestStore(LocalStorage(str(path)))
    metas = store.base_and_delta(snapshot)
    assert [one.file_name for one in metas] == [one["fileName"] for one in expected["manifests"]]
    partition_fields = table.schema.partition_fields
    for meta, java in zip(metas, expected["manifests"], strict=True):
        assert (meta.file_size, meta.num_added_files, meta.num_deleted_files, meta.schema_id) == (
            java["fileSize"],
            java["numAddedFiles"],
            java["numDeletedFiles"],
            java["schemaId"],
        )
        assert (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level) == (
            java["minBucket"],
            java["maxBucket"],
            java["minLevel"],
            java["maxLevel"],
        )
        ours = stats_of(partition_fields, meta.partition_stats)
        assert ours == java["partitionStats"]


@pytest.mark.parametrize("case", CASES)
def test_live_files_are_those_of_java_in_every_field(case: str, golden: Golden) -> None:
    path, expected = golden(case)
    table = PaimonTable.load(str(path))
    ours = {(Path(one.path).parent, one.meta.file_name): one for one in table.files()}
    assert len(ours) == len(expected["files"])
    for java in expected["files"]:
        file = ours[path / java["path"], java["fileName"]]
        assert Path(file.path).is_file()
        compare(table, file, java)


def as_text(value: Any) -> str:
    """Python's dates and times, and those of the golden tables, as one text."""
    if isinstance(value, Decimal):
        return format(value, "f")
    text = value.isoformat() if isinstance(value, (date, time)) else str(value)
    text = text.removesuffix("+00:00")
    return text.rstrip("0").removesuffix(".") if ":" in text and "." in text else text


def compare(table: PaimonTable, file: TableFile, java: dict[str, Any]) -> None:
    meta = file.meta
    assert {name: as_text(value) for name, value in file.partition.items()} == {
        name: as_text(value) for name, value in java["partition"].items()
    }
    assert (file.bucket, file.row_count, file.file_size) == (
        java["bucket"],
        java["rowCount"],
        java["fileSize"],
    )
    assert (meta.min_sequence_number, meta.max_sequence_number) == (
        java["minSequenceNumber"],
        java["maxSequenceNumber"],
    )
    assert (meta.schema_id, meta.level, meta.delete_row_count) == (
        java["schemaId"],
        java["level"],
        java["deleteRowCount"],
    )
    assert meta.file_source is not None and FileSource(meta.file_source).name == java["fileSource"]
    assert (None if meta.value_stats_cols is None else list(meta.value_stats_cols)) == java[
        "valueStatsCols"
    ]
    assert (list(meta.extra_files), meta.external_path, meta.first_row_id) == (
        java["extraFiles"],
        java["externalPath"],
        java["firstRowId"],
    )
    assert meta.creation_time is not None
    created = datetime(1970, 1, 1) + timedelta(milliseconds=meta.creation_time)
    assert created == datetime.fromisoformat(java["creationTime"].ljust(23, "0"))
    fields = next(one for one in table.schemas() if one.id == meta.schema_id).fields
    stats = stats_of(fields, meta.value_stats, meta.value_stats_cols)
    assert set(stats) == set(java["valueStats"])
    for name, one in stats.items():
        theirs = java["valueStats"][name]
        assert [comparable(one[key]) for key in one] == [comparable(theirs[key]) for key in one], (
            name
        )


@pytest.mark.parametrize("case", CASES)
def test_the_files_of_older_snapshots_hold_their_rows(case: str, golden: Golden) -> None:
    path, expected = golden(case)
    table = PaimonTable.load(str(path))
    if table.primary_keys:
        assert len(table.files()) == len(expected["files"])  # rows are merged when they are read
        return
    for snapshot_id, rows in expected.get("snapshot_rows", {}).items():
        assert sum(file.row_count for file in table.files(int(snapshot_id))) == len(rows)
    assert sum(file.row_count for file in table.files()) == len(expected["rows"])


@pytest.mark.parametrize("case", CASES)
def test_replay_in_order_agrees_with_the_readers(case: str, golden: Golden) -> None:
    path, _ = golden(case)
    table = PaimonTable.load(str(path))
    store = ManifestStore(LocalStorage(str(path)))
    types = [one.type for one in table.schema.partition_fields]
    for snapshot in table.snapshots():
        metas = store.base_and_delta(snapshot)
        live = live_files(store, metas, types)
        replayed = merge_entries(entry for meta in metas for entry in store.read(meta))
        assert list(replayed.values()) == live
        for partition in {entry.partition for entry in live}:
            mine = [entry for entry in live if entry.partition == partition]
            assert live_files(store, metas, types, [partition]) == mine


@pytest.mark.parametrize("case", CASES)
def test_manifests_written_again_say_the_same_of_themselves(case: str, golden: Golden) -> None:
    path, _ = golden(case)
    table = PaimonTable.load(str(path))
    storage = LocalStorage(str(path))
    store = ManifestStore(storage)
    types = [one.type for one in table.schema.partition_fields]
    writer = ManifestWriter(storage, Options({}), types, table.schema.id)
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    for meta in store.base_and_delta(snapshot):
        (ours,) = writer.write(store.read(meta), NameSource(f"again-{meta.file_name}"))
        assert store.read(ours) == store.read(meta)
        for name in ("num_added_files", "num_deleted_files", "schema_id", "partition_stats"):
            assert getattr(ours, name) == getattr(meta, name), name
        for name in ("bucket", "level", "row_id"):
            for end in ("min", "max"):
                assert getattr(ours, f"{end}_{name}") == getattr(meta, f"{end}_{name}"), name
