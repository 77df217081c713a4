"""Messages become changes: nothing lost, nothing in silence, sequence numbers behind those in use."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from paimon_stream.commit.message import CommitMessage
from paimon_stream.commit.plan import collect, renumber
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.entries import EMPTY_ROW, FileKind, IndexFileMeta
from tests.commitkit import data_file


def message(*names: str, bucket: int = 0, total: int | None = 4) -> CommitMessage:
    return CommitMessage(
        partition=EMPTY_ROW,
        bucket=bucket,
        total_buckets=total,
        new_files=tuple(data_file(name) for name in names),
    )


def test_every_new_file_becomes_an_add_in_message_order() -> None:
    changes = collect([message("a", "b"), message("c", bucket=1)], table_buckets=4, location="t")
    assert [(e.file.file_name, e.bucket, e.kind) for e in changes.entries] == [
        ("a", 0, FileKind.ADD),
        ("b", 0, FileKind.ADD),
        ("c", 1, FileKind.ADD),
    ]
    assert changes.record_count == 30
    assert changes.partitions == {EMPTY_ROW}


def test_a_message_without_bucket_count_has_the_tables() -> None:
    changes = collect([message("a", total=None), message("b", total=8)], table_buckets=4, location="t")
    assert [entry.total_buckets for entry in changes.entries] == [4, 8]


def test_a_message_of_nothing_is_nothing() -> None:
    assert collect([message()], table_buckets=4, location="t").entries == ()


PARTS = [f.name for f in fields(CommitMessage) if f.name not in ("partition", "bucket", "total_buckets")]


@pytest.mark.parametrize("part", [name for name in PARTS if name != "new_files"])
def test_a_part_this_release_cannot_commit_is_refused_by_name(part: str) -> None:
    index = IndexFileMeta(index_type="HASH", file_name="i", file_size=1, row_count=1)
    content = (index,) if "index" in part else (data_file("x"),)
    with pytest.raises(UnsupportedFeature) as caught:
        collect([replace(message("a"), **{part: content})], table_buckets=4, location="t")
    assert caught.value.context["part"] == part
    assert caught.value.context["table"] == "t"


def numbers(changes: object) -> list[tuple[str, int, int]]:
    return [
        (e.file.file_name, e.file.min_sequence_number, e.file.max_sequence_number)
        for e in changes.entries  # type: ignore[attr-defined]
    ]


def test_sequence_numbers_continue_behind_those_of_the_bucket_in_message_order() -> None:
    changes = collect(
        [message("a", "b"), message("c", bucket=1), message("d")], table_buckets=4, location="t"
    )
    numbered = renumber(changes, {(EMPTY_ROW, 0): 99})
    assert numbers(numbered) == [("a", 100, 109), ("b", 110, 119), ("c", 0, 9), ("d", 120, 129)]


def test_rolled_files_of_one_writer_keep_their_lengths() -> None:
    rolled = CommitMessage(
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=4,
        new_files=(data_file("a", rows=3), data_file("b", rows=2, first=3)),
    )
    numbered = renumber(collect([rolled], table_buckets=4, location="t"), {(EMPTY_ROW, 0): 9})
    assert numbers(numbered) == [("a", 10, 12), ("b", 13, 14)]


def test_files_without_fixed_buckets_keep_their_numbers() -> None:
    changes = collect([message("a", total=-1), message("b", total=-1)], table_buckets=-1, location="t")
    assert renumber(changes, {}) == changes


def test_numbering_changes_nothing_else() -> None:
    changes = collect([message("a")], table_buckets=4, location="t")
    (entry,) = renumber(changes, {(EMPTY_ROW, 0): 5}).entries
    same = replace(entry.file, min_sequence_number=0, max_sequence_number=9)
    assert replace(entry, file=same) == changes.entries[0]
