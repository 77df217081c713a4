"""Live files, and the replay of entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from paimon_stream.errors import DeletedFiles
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry, ManifestFileMeta
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotId, encode_snapshot
from paimon_stream.format.types import parse_type
from paimon_stream.options import Options
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import NameSource, snapshot_path
from paimon_stream.table.live import live_files, merge_entries
from paimon_stream.table.manifests import ManifestStore, ManifestWriter
from tests.kits.faults import FaultyStorage

TYPES = (parse_type("STRING"),)
A, B, C = (serialize(TYPES, (name,)) for name in "abc")


def add(
    name: str, partition: bytes = A, bucket: int = 0, last: int = 9, total: int = 4, **file: Any
) -> ManifestEntry:
    return ManifestEntry(
        kind=FileKind.ADD,
        partition=partition,
        bucket=bucket,
        total_buckets=total,
        file=DataFileMeta(
            file_name=name,
            file_size=1,
            row_count=10,
            min_sequence_number=0,
            max_sequence_number=last,
            schema_id=0,
            creation_time=0,
            **file,
        ),
    )


def delete(entry: ManifestEntry) -> ManifestEntry:
    return replace(entry, kind=FileKind.DELETE)


@dataclass
class History:
    """Commits to a table in memory, each a list of entries, and a log of the manifests that are
    read.
    """

    storage: FaultyStorage = field(default_factory=lambda: FaultyStorage(MemoryStorage()))
    snapshots: list[Snapshot] = field(default_factory=list)
    metas: list[ManifestFileMeta] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = ManifestStore(self.storage)
        self.names = NameSource("u")

    def commit(
        self, entries: Sequence[ManifestEntry], kind: CommitKind = CommitKind.APPEND
    ) -> Snapshot:
        write = ManifestWriter(self.storage, Options({}), TYPES, 0)
        base, delta = self.names.next("manifest-list"), self.names.next("manifest-list")
        write.write_list(base, self.metas)
        new = write.write(entries, self.names)
        write.write_list(delta, new)
        self.metas += new
        snapshot = Snapshot(
            id=SnapshotId(len(self.snapshots) + 1),
            schema_id=0,
            base_manifest_list=base,
            delta_manifest_list=delta,
            commit_user="u",
            commit_identifier=0,
            commit_kind=kind,
            time_millis=0,
            total_record_count=0,
            delta_record_count=0,
        )
        self.snapshots.append(snapshot)
        self.storage.write(snapshot_path(snapshot.id), encode_snapshot(snapshot))
        return snapshot

    def reads(self) -> int:
        return sum(operation.verb == "read" for operation in self.storage.operations)


# -- replay ---------------------------------------------------------------------------------------


def test_an_add_and_its_delete_cancel_out() -> None:
    one, two = add("1"), add("2")
    assert list(merge_entries([one, two, delete(one)]).values()) == [two]


def test_a_delete_without_its_add_stays_and_so_does_the_order() -> None:
    one, two, three = add("1"), add("2"), add("3")
    assert list(merge_entries([delete(three), one, two, delete(one)]).values()) == [
        delete(three),
        two,
    ]
    assert list(merge_entries([delete(one), delete(one)]).values()) == [delete(one)]


@pytest.mark.parametrize("before", [FileKind.ADD, FileKind.DELETE])
def test_a_file_that_is_added_again_is_refused(before: FileKind) -> None:
    one = add("data-1.parquet")
    with pytest.raises(DeletedFiles, match=r"data-1\.parquet .*committed twice") as caught:
        merge_entries([replace(one, kind=before), one])
    assert caught.value.context["file"] == "data-1.parquet"


def test_the_same_name_elsewhere_is_another_file() -> None:
    files = [
        add("x"),
        add("x", B),
        add("x", bucket=1),
        add("x", level=1),
        add("x", extra_files=("i",)),
    ]
    assert len(merge_entries(files)) == len(files)


# -- live files -----------------------------------------------------------------------------------


def test_live_files_are_the_adds_that_no_delete_names_in_any_order() -> None:
    history = History()
    one, two, three = add("1"), add("2", B), add("3", B)
    history.commit([delete(three), one])
    history.commit([two, three])
    history.commit([delete(one)])
    assert live_files(history.store, history.metas, TYPES) == [two]


def test_asked_for_partitions_only_their_manifests_are_read() -> None:
    history = History()
    history.commit([add("1", A)])
    history.commit([add("2", C)])
    history.commit([add("3", A), add("4", C)])
    before = history.reads()
    assert [e.file.file_name for e in live_files(history.store, history.metas, TYPES, [B, A])] == [
        "1",
        "3",
    ]
    assert history.reads() - before == 2
    assert live_files(history.store, history.metas, TYPES, []) == []
