"""Sequence numbers of tables with primary keys: where a batch begins, and what others may do
meanwhile.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from paimon_stream.commit.committer import Committer
from paimon_stream.commit.request import Published
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.table_cache import MAX_SEQUENCE
from paimon_stream.errors import SequenceConflict
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import SnapshotRef
from tests.kits.commits import FIELDS, Bench, data_file
from tests.kits.faults import FaultyStorage


def keyed(**options: str) -> Bench:
    return Bench({"bucket": "4", **options}, keys=("id",))


def numbered(
    bench: Bench, name: str, first: int, *, rows: int = 10, bucket: int = 0
) -> CommitMessage:
    """A message of one file whose rows have the numbers from `first` on."""
    made = bench.message(name, rows=rows, bucket=bucket)
    low, high = (serialize([FIELDS[0].type], [key]) for key in (first, first + rows - 1))
    return replace(
        made, new_files=(replace(data_file(name, rows, first), min_key=low, max_key=high),)
    )


def commit(
    bench: Bench,
    committer: Committer,
    number: int,
    message: CommitMessage,
    user: str = "me",
    **more: Any,
) -> Published:
    outcome = committer.commit(bench.request(number, [message], user=user, **more))
    assert isinstance(outcome, Published)
    return outcome


def as_java(bench: Bench, number: int, message: CommitMessage) -> None:
    """Commits as an engine that records no numbers."""
    commit(bench, bench.committer(), number, message, user="java")
    path = f"snapshot/snapshot-{bench.latest().id}"
    data = bench.storage.read(path)
    bench.storage.write(path, data.replace(f'"{MAX_SEQUENCE}"'.encode(), b'"not-recorded"'))
    assert MAX_SEQUENCE not in bench.latest().properties


def first_of(committer: Committer) -> int:
    found = committer.numbers()
    assert found is not None
    return found.first


def reads(storage: FaultyStorage, folder: str = "") -> list[str]:
    return [
        one.path for one in storage.operations if one.verb == "read" and one.path.startswith(folder)
    ]


# -- where a batch begins -------------------------------------------------------------------------


def test_a_batch_begins_above_everything_in_the_table() -> None:
    bench = keyed()
    committer = bench.committer()
    assert first_of(committer) == 0
    assert (
        commit(bench, committer, 0, numbered(bench, "a", 0)).snapshot.properties[MAX_SEQUENCE]
        == "9"
    )
    assert first_of(committer) == 10
    as_java(bench, 1, numbered(bench, "j", 90, bucket=3))
    assert first_of(committer) == 100
    assert first_of(bench.committer()) == 100
    done = commit(bench, committer, 1, numbered(bench, "b", 0, bucket=1))
    assert (
        done.snapshot.properties[MAX_SEQUENCE] == "99"
    )  # the largest of the table, not of the commit


def test_a_table_without_primary_key_has_no_such_numbers() -> None:
    bench = Bench()
    assert bench.committer().numbers() is None
    assert (
        MAX_SEQUENCE
        not in commit(bench, bench.committer(), 0, bench.message("a")).snapshot.properties
    )


def test_a_run_that_begins_reads_only_what_others_added_since_our_newest_snapshot() -> None:
    bench = keyed()
    committer = bench.committer()
    for number in range(8):
        commit(bench, committer, number, numbered(bench, f"a{number}", 10 * number))
    for number in range(2):
        as_java(bench, number, numbered(bench, f"j{number}", 80 + 10 * number))
    watched = FaultyStorage(bench.storage)
    begun = bench.committer(watched)
    assert first_of(begun) == 100
    lists = [path for path in reads(watched) if path.startswith("manifest/manifest-list-")]
    assert len(lists) == 2
    assert len(reads(watched, "manifest/")) == 4
    before = len(reads(watched, "manifest/"))
    assert first_of(begun) == 100
    commit(bench, begun, 8, numbered(bench, "b", 100))
    known = len(reads(watched, "manifest/"))
    assert first_of(begun) == 110
    assert (before, known) == (4, len(reads(watched, "manifest/")))


def test_if_no_snapshot_records_the_number_all_deltas_or_the_whole_table_are_read() -> None:
    bench = keyed()
    for number in range(4):
        as_java(bench, number, numbered(bench, f"j{number}", 100 - 10 * number))
    assert first_of(bench.committer()) == 110
    bench.expire(3)
    assert first_of(bench.committer()) == 110


def test_a_rolled_back_table_is_looked_at_anew() -> None:
    bench = keyed()
    committer = bench.committer()
    commit(bench, committer, 0, numbered(bench, "a", 0))
    commit(bench, committer, 1, numbered(bench, "b", 10))
    bench.storage.delete("snapshot/snapshot-2")
    as_java(bench, 0, numbered(bench, "j", 30))
    assert first_of(committer) == 40


def test_a_table_whose_snapshots_record_the_number_for_java_keeps_doing_so() -> None:
    bench = keyed(**{"write.sequence-number-init-mode": "snapshot"})
    done = commit(bench, bench.committer(), 0, numbered(bench, "a", 5))
    assert done.snapshot.properties["sequence.generation.max-sequence-number"] == "14"


# -- what others do meanwhile
# -------------------------------------------------------------------------


def test_numbers_that_another_writer_has_reached_in_a_bucket_of_ours_are_a_conflict() -> None:
    bench = keyed()
    committer = bench.committer()
    commit(bench, committer, 0, numbered(bench, "a", 0))
    numbering = committer.numbers()
    assert numbering is not None
    as_java(bench, 1, numbered(bench, "j", 10, rows=1))
    with pytest.raises(SequenceConflict, match="bucket 0") as caught:
        commit(bench, committer, 1, numbered(bench, "b", numbering.first), numbering=numbering)
    assert caught.value.context["snapshot"] == 2
    bench.audit(["a", "j"], orphans=True)


@pytest.mark.parametrize(
    ("theirs", "bucket"), [(5, 0), (10, 1)], ids=["numbers below ours", "another bucket"]
)
def test_what_cannot_collide_is_no_conflict(theirs: int, bucket: int) -> None:
    bench = keyed()
    committer = bench.committer()
    commit(bench, committer, 0, numbered(bench, "a", 0))
    numbering = committer.numbers()
    as_java(bench, 1, numbered(bench, "j", theirs, rows=1, bucket=bucket))
    commit(bench, committer, 1, numbered(bench, "b", 10), numbering=numbering)
    bench.audit(["a", "b", "j"])


def test_nobody_asks_where_users_order_rows() -> None:
    bench = keyed(**{"sequence.field": "dt"})
    committer = bench.committer()
    numbering = committer.numbers()
    as_java(bench, 1, numbered(bench, "j", 0))
    commit(bench, committer, 1, numbered(bench, "b", 0), numbering=numbering)
    bench.audit(["b", "j"])


def test_nobody_asks_where_numbers_may_be_shared() -> None:
    bench = keyed()
    committer = bench.committer()
    numbering = committer.numbers()
    assert numbering is not None
    as_java(bench, 1, numbered(bench, "j", 0))
    shared = replace(numbering, may_be_shared=True)
    commit(bench, committer, 1, numbered(bench, "b", 0), numbering=shared)
    bench.audit(["b", "j"])


def test_a_window_with_a_gap_is_a_conflict() -> None:
    bench = keyed()
    commit(bench, bench.committer(), 0, numbered(bench, "a", 0))
    numbered_on = SnapshotRef.of(bench.latest())
    for number in range(2):
        as_java(bench, number, numbered(bench, f"j{number}", 0, bucket=1))
    numbering = Numbering(numbered_on=numbered_on, first=10)
    bench.expire(2)
    with pytest.raises(SequenceConflict, match="later snapshots are gone"):
        commit(bench, bench.committer(), 1, numbered(bench, "b", 10), numbering=numbering)


def test_an_overwrite_does_not_mind_what_others_added() -> None:
    bench = keyed()
    committer = bench.committer()
    numbering = committer.numbers()
    as_java(bench, 1, numbered(bench, "j", 0))
    request = replace(bench.overwriting(1, [numbered(bench, "b", 0)]), numbering=numbering)
    assert isinstance(committer.commit(request), Published)
    assert bench.live_names() == ["b"]


# -- depth ----------------------------------------------------------------------------------------


def test_a_bucket_that_nobody_compacts_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for options, warned in (
        ({}, 1),
        ({"write-only": "true"}, 0),
        ({"num-sorted-run.stop-trigger": "99"}, 0),
    ):
        bench = keyed(**options)
        committer = bench.committer()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "paimon_stream"):
            for number in range(11):
                commit(bench, committer, number, numbered(bench, f"a{number}", 10 * number))
                seen = [one for one in caplog.records if "level 0" in one.getMessage()]
                assert len(seen) == (warned if number >= 8 else 0)


def test_a_program_that_writes_in_a_loop_hears_of_a_deep_bucket_once_and_when_it_has_doubled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each batch write has a committer of its own."""
    bench = keyed()
    with caplog.at_level(logging.WARNING, "paimon_stream"):
        for number in range(20):
            commit(bench, bench.committer(), number, numbered(bench, f"a{number}", 10 * number))
    heard = [text.partition(",")[0] for text in caplog.messages]
    assert heard == [
        f"{bench.table.location}: bucket 0 has {depth} files of level 0" for depth in (9, 18)
    ]
