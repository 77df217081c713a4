"""What a commit would lose of an index manifest is refused by its name. A file that goes takes what
its entry had along, whoever removes it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.commit.index_changes import apply_index_changes
from paimon_stream.commit.plan import IndexChange
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.unknown_fields import UnknownField
from tests.kits.newer_fields import add_sequences_everywhere, live_entries, read

pytestmark = pytest.mark.lowest

NEW = UnknownField(("_NEW",), '["null", "int"]', b"\2\2")


def entry(name: str, bucket: int = 0) -> IndexManifestEntry:
    file = IndexFileMeta(index_type="HASH", file_name=name, file_size=4, row_count=1)
    return IndexManifestEntry(partition=b"", bucket=bucket, file=file)


NEWER = replace(entry("index-0"), unknown=(NEW,))


def applied(*changes: tuple[FileKind, IndexManifestEntry]) -> tuple[IndexManifestEntry, ...]:
    some = [IndexChange(kind=kind, entry=of) for kind, of in changes]
    return apply_index_changes([NEWER], some, bucketed=True, location="t")


def test_an_index_file_with_it_is_not_replaced() -> None:
    with pytest.raises(UnsupportedFeature, match=r"index-0 .*_NEW"):
        applied((FileKind.ADD, entry("index-1")))


def test_other_index_files_are_and_it_may_go() -> None:
    other = entry("index-1", bucket=1)
    assert applied((FileKind.ADD, other)) == (NEWER, other)
    assert applied((FileKind.DELETE, entry("index-0"))) == ()


@pytest.mark.parametrize("removed_as", ["deleted_files", "compact_before"])
@pytest.mark.parametrize("mode", ["value", "none", "row_incremental"])
def test_the_message_of_a_caller_that_removes_a_file_repeats_what_its_entry_had(
    tmp_path: Path, removed_as: str, mode: str
) -> None:
    location = tmp_path / "t"
    options = {"conflict-detection-mode": mode}
    table = PaimonTable.create(str(location), [("k", "INT")], options=options)
    for number in range(2):
        table.append(pa.table({"k": pa.array([number], pa.int32())}))
    add_sequences_everywhere(location)
    manifests = location / "manifest"
    before = set(manifests.iterdir())
    removed, _ = live_entries(location)
    message = CommitMessage(
        partition=removed.partition,
        bucket=removed.bucket,
        total_buckets=removed.total_buckets,
        **{removed_as: (removed.file.known,)},
    )
    table.new_commit("u").commit(1, [message])
    assert table.to_arrow()["k"].to_pylist() == [1]
    (path,) = (
        path
        for path in set(manifests.iterdir()) - before
        if not path.name.startswith("manifest-list")
    )
    (entry,) = read(path.read_bytes())[1]
    assert (entry["_KIND"], entry["_FILE"]["_WRITE_COLS_SEQUENCES"]) == (1, [7, 8])
