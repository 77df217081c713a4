"""Commit messages that others made: no name, bucket or partition in them leads out of the table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CorruptMetadata, FormatError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import IndexFileMeta
from paimon_stream.table.journal import JournalEntry, decode_journal_entry, encode_journal_entry
from paimon_stream.table.message_files import check_messages
from tests.kits.commits import data_file
from tests.kits.names import EVIL_NAMES, IN_UTF8, Disk

DATA = (
    "new_files",
    "deleted_files",
    "changelog_files",
    "compact_before",
    "compact_after",
    "compact_changelog_files",
)
ADDED = ("new_files", "changelog_files", "compact_after", "compact_changelog_files")
INDEXES = (
    "new_index_files",
    "deleted_index_files",
    "compact_new_index_files",
    "compact_deleted_index_files",
)
ENTRANCES: dict[str, Callable[[TableCommit, CommitMessage], object]] = {
    "commit": lambda commit, message: commit.commit(7, [message]),
    "filter_and_commit": lambda commit, message: commit.filter_and_commit({7: [message]}),
    "overwrite": lambda commit, message: commit.overwrite({}, [message]),
    "overwrite dynamically": lambda commit, message: commit.overwrite(
        None, [message], dynamic=True
    ),
    "abort": lambda commit, message: commit.abort([message]),
}


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """A partitioned table with one snapshot, between folders of others, with links to them in its
    buckets.
    """
    disk = Disk(tmp_path_factory.mktemp("names"), partitioned=True)
    disk.bench.committer().commit(disk.bench.request(0, [disk.bench.message("f0", dt="a")]))
    disk.link("dt=a/bucket-0/sub")
    disk.link("index/sub")
    return disk


def good(disk: Disk) -> CommitMessage:
    return replace(disk.bench.message("waiting", dt="a"), new_files=())


def with_name(message: CommitMessage, name: str) -> Iterator[CommitMessage]:
    """The message with that name in each place that holds one."""
    for place in DATA:
        yield replace(message, **{place: (data_file(name),)})
        yield replace(message, **{place: (replace(data_file("good"), extra_files=(name,)),)})
    for place in INDEXES:
        index = IndexFileMeta(index_type="HASH", file_name=name, file_size=1, row_count=1)
        yield replace(message, **{place: (index,)})


def refuse(disk: Disk, entrance: str, messages: Iterable[CommitMessage], match: str) -> None:
    outside, inside, latest = disk.outside(), disk.inside(), disk.bench.latest()
    commit = TableCommit(disk.bench.table, "me")
    for message in messages:
        with pytest.raises(FormatError, match=match) as raised:
            ENTRANCES[entrance](commit, message)
        assert raised.value.context["table"] == disk.bench.table.location
    assert (disk.outside(), disk.inside(), disk.bench.latest()) == (outside, inside, latest)


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_name_that_no_file_can_have_is_refused_wherever_it_stands(
    disk: Disk, entrance: str
) -> None:
    for name in EVIL_NAMES:
        refuse(
            disk, entrance, with_name(good(disk), name), "cannot be the name of a file in a table"
        )


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    ("bucket", "total"),
    [(-5, None), (-1, -1), (-(2**31), 4), (4, 4), (2**31 - 1, 4), (2**31 - 1, None)],
)
def test_a_bucket_that_the_table_cannot_have_is_refused(
    disk: Disk, entrance: str, bucket: int, total: int | None
) -> None:
    message = replace(good(disk), bucket=bucket, total_buckets=total, new_files=(data_file("f1"),))
    refuse(disk, entrance, [message], f"There is no bucket {bucket}")


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    "wrong",
    [
        {"row_count": -1},
        {"row_count": 2**63 - 1},
        {"delete_row_count": 11},
        {"file_size": -1},
        {"min_sequence_number": 9, "max_sequence_number": 8},
        {"max_sequence_number": 2**63 - 1},
        {"external_path": "/elsewhere/f1"},
    ],
)
def test_a_file_that_would_make_the_table_unusable_is_refused(
    disk: Disk, entrance: str, wrong: dict[str, Any]
) -> None:
    file = replace(data_file("f1"), **wrong)
    messages = [replace(good(disk), **{place: (file,)}) for place in ADDED]
    refuse(disk, entrance, messages, "a commit message does not fit the table")


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_field_of_a_wrong_type_is_refused(disk: Disk, entrance: str) -> None:
    message = good(disk)
    wrong: tuple[dict[str, Any], ...] = (
        {"bucket": "0"},
        {"bucket": None},
        {"total_buckets": "1"},
        {"partition": None},
        {"partition": "a"},
        {"new_files": (replace(data_file("good"), row_count=None),)},  # type: ignore[arg-type]
        {"new_files": ("good",)},
    )
    messages = (replace(message, **changed) for changed in wrong)
    refuse(disk, entrance, messages, "a commit message does not fit the table")


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_partition_that_is_no_row_of_the_table_is_refused(disk: Disk, entrance: str) -> None:
    outside = struct.pack(">i", 1) + struct.pack("<qii", 0, 5, 1000)
    broken = (b"", b"\0", bytes(12), struct.pack(">i", 2) + bytes(24), outside)
    messages = [replace(good(disk), partition=one, new_files=(data_file("f1"),)) for one in broken]
    refuse(disk, entrance, messages, "a commit message does not fit the table")


@settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    partition=st.binary(max_size=60),
    bucket=st.integers(-(2**31), 2**31 - 1),
    name=st.text(max_size=300),
)
def test_whatever_passes_lies_in_a_bucket_of_the_table(
    disk: Disk, partition: bytes, bucket: int, name: str
) -> None:
    layout = disk.bench.table.layout
    for row in (partition, struct.pack(">i", 1) + partition, good(disk).partition):
        message = CommitMessage(
            partition=row, bucket=bucket, total_buckets=None, new_files=(data_file(name),)
        )
        try:
            check_messages(layout, [message], "t")
        except FormatError:
            continue
        assert layout.holds(layout.data_file(row, bucket, name))


def test_prepared_files_of_a_journal_have_names_that_a_file_can_have(
    disk: Disk, tmp_path: Path
) -> None:
    entry = JournalEntry(
        batch_id=1,
        messages=(),
        stage_uuids=("u",),
        query_id=None,
        run_id=None,
        checkpoint=None,
        query_name=None,
        offsets_hash=None,
        schema_digest="d",
        schema_id=0,
        total_buckets=-1,
        base=None,
        previous=None,
        prepared_millis=1,
    )
    for name in IN_UTF8:
        for message in with_name(good(disk), name):
            data = encode_journal_entry(replace(entry, messages=(message,)))
            with pytest.raises(CorruptMetadata, match=r"^_paimon_stream/me/1 names "):
                decode_journal_entry(data, "_paimon_stream/me/1")
