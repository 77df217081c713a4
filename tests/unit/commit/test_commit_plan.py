"""Messages become changes: nothing is lost or left out without an error, and sequence numbers are
above those in use.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from paimon_stream.commit.plan import CollectedChanges, collect, renumber
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import EMPTY_ROW, FileKind, IndexFileMeta
from tests.kits.commits import data_file


def message(*names: str, bucket: int = 0, total: int | None = 4) -> CommitMessage:
    return CommitMessage(
        partition=EMPTY_ROW,
        bucket=bucket,
        total_buckets=total,
        new_files=tuple(data_file(name) for name in names),
    )


def test_every_new_file_becomes_an_add_in_message_order() -> None:
    changes = collect([message("a", "b"), message("c", bucket=1)], table_buckets=4).append
    assert [(e.file.file_name, e.bucket, e.kind) for e in changes.entries] == [
        ("a", 0, FileKind.ADD),
        ("b", 0, FileKind.ADD),
        ("c", 1, FileKind.ADD),
    ]
    assert changes.record_count == 30
    assert changes.partitions == {EMPTY_ROW}


def test_a_message_without_bucket_count_has_the_tables() -> None:
    changes = collect([message("a", total=None), message("b", total=8)], table_buckets=4).append
    assert [entry.total_buckets for entry in changes.entries] == [4, 8]


def test_a_message_of_nothing_is_nothing() -> None:
    assert collect([message()], table_buckets=4) == CollectedChanges()


PARTS = [f.name for f in fields(CommitMessage) if f.default == ()]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_a_message_becomes_one_change_of_its_half(part: str) -> None:
    index = IndexFileMeta(index_type="HASH", file_name="i", file_size=1, row_count=1)
    content = (index,) if "index" in part else (data_file("x"),)
    collected = collect([replace(message(), **{part: content})], table_buckets=4)
    part_of_it, other = (collected.compact, collected.append)[:: 1 if "compact" in part else -1]
    assert part_of_it
    assert not other
    kind = FileKind.DELETE if "deleted" in part or part == "compact_before" else FileKind.ADD
    if "index" in part:
        (change,) = part_of_it.index
        assert (change.kind, change.entry.file, change.entry.bucket) == (kind, index, 0)
    else:
        (entry,) = part_of_it.changelog if "changelog" in part else part_of_it.entries
        assert (entry.kind, entry.file, entry.total_buckets) == (kind, data_file("x"), 4)
    assert part_of_it.changelog_record_count == (10 if "changelog" in part else 0)
    assert part_of_it.takes_away == (kind is FileKind.DELETE and "index" not in part)


def test_a_compaction_removes_before_it_adds_and_messages_keep_their_order() -> None:
    first = replace(message("a"), compact_before=(data_file("a"),), compact_after=(data_file("b"),))
    second = replace(
        message(bucket=1), compact_before=(data_file("c"),), compact_after=(data_file("d"),)
    )
    compact = collect([first, second], table_buckets=4).compact
    assert [(e.file.file_name, e.kind.name) for e in compact.entries] == [
        ("a", "DELETE"),
        ("b", "ADD"),
        ("c", "DELETE"),
        ("d", "ADD"),
    ]
    assert compact.record_count == 0


def test_a_change_of_deletion_vectors_takes_rows_away() -> None:
    vectors = IndexFileMeta(index_type="DELETION_VECTORS", file_name="i", file_size=1, row_count=1)
    assert collect(
        [replace(message(), new_index_files=(vectors,))], table_buckets=4
    ).append.takes_away


def numbers(changes: object) -> list[tuple[str, int, int]]:
    return [
        (e.file.file_name, e.file.min_sequence_number, e.file.max_sequence_number)
        for e in changes.entries  # type: ignore[attr-defined]
    ]


def test_sequence_numbers_continue_behind_those_of_the_bucket_in_message_order() -> None:
    changes = collect(
        [message("a", "b"), message("c", bucket=1), message("d")], table_buckets=4
    ).append
    numbered = renumber(changes, {(EMPTY_ROW, 0): 99})
    assert numbers(numbered) == [("a", 100, 109), ("b", 110, 119), ("c", 0, 9), ("d", 120, 129)]


def test_rolled_files_of_one_writer_keep_their_lengths() -> None:
    rolled = CommitMessage(
        partition=EMPTY_ROW,
        bucket=0,
        total_buckets=4,
        new_files=(data_file("a", rows=3), data_file("b", rows=2, first=3)),
    )
    numbered = renumber(collect([rolled], table_buckets=4).append, {(EMPTY_ROW, 0): 9})
    assert numbers(numbered) == [("a", 10, 12), ("b", 13, 14)]


def test_files_without_fixed_buckets_keep_their_numbers() -> None:
    changes = collect([message("a", total=-1), message("b", total=-1)], table_buckets=-1).append
    assert renumber(changes, {}) == changes


def test_numbering_changes_nothing_else() -> None:
    changes = collect([message("a")], table_buckets=4).append
    (entry,) = renumber(changes, {(EMPTY_ROW, 0): 5}).entries
    same = replace(entry.file, min_sequence_number=0, max_sequence_number=9)
    assert replace(entry, file=same) == changes.entries[0]
