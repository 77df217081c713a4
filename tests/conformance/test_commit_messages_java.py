"""Java Paimon reads and commits our commit messages, and we read and commit Java's."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream._version import __version__
from paimon_stream.api.table import PaimonTable
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from paimon_stream.write.task import WriteSpec, write_task

SCHEMA = [("id", "INT"), ("dt", "STRING")]
ROWS = [{"id": n, "dt": ("a", "b c", None)[n % 3]} for n in range(30)]


@pytest.fixture
def table(java: Any, tmp_path: Path) -> Path:
    path = tmp_path / "db.db" / "t"
    options = {"bucket": "2", "bucket-key": "id", "write-only": "true"}
    java.create_table(path, SCHEMA, ["dt"], options=options)
    return path


def written(path: Path) -> tuple[CommitMessage, ...]:
    """The messages of a write task of ours."""
    loaded = load_table(LocalStorage(str(path)))
    spec = WriteSpec(storage=loaded.storage, schema=loaded.schema, options=loaded.options)
    rows = pa.RecordBatch.from_pylist(ROWS, pa.schema([("id", pa.int32()), ("dt", pa.string())]))
    return write_task(spec, [rows]).messages


def committable(identifier: int, messages: Iterable[CommitMessage]) -> bytes:
    """A ManifestCommittable of Java without a watermark and without properties (format.md §8.3)."""
    head = struct.pack(">q?ii", identifier, True, 0, CommitMessage.VERSION)
    return head + CommitMessage.serialize_all(messages)


def test_java_reads_our_messages_and_writes_them_again(java: Any, table: Path) -> None:
    messages = written(table)
    read = java.describe_committable(committable(9, messages))
    assert read["messages"] == [one.serialize() for one in messages]


def test_messages_of_java_are_read_in_every_field(java: Any, table: Path) -> None:
    theirs = [bytes(one) for one in java.prepare_commit_bytes(table, ROWS).messages]
    assert [replace(CommitMessage.deserialize(one, 11)).serialize() for one in theirs] == theirs


def test_java_commits_our_messages(java: Any, table: Path) -> None:
    java.commit_committable(table, committable(4, written(table)), "someone")
    (snapshot,) = java.snapshots(table)
    assert (snapshot["commitUser"], snapshot["commitIdentifier"]) == ("someone", 4)
    assert sorted(map(str, java.read(table))) == sorted(map(str, ROWS))


def test_messages_of_java_are_committed_by_us(java: Any, table: Path) -> None:
    java.write(table, ROWS[:5], commit_identifier=1)
    theirs = java.prepare_commit_bytes(table, ROWS, commit_identifier=2).messages
    read = [CommitMessage.deserialize(bytes(one), 11) for one in theirs]
    PaimonTable.load(str(table)).new_commit("ours").commit(
        2, read, watermark=55, properties={"by": "java"}
    )
    base, snapshot = java.snapshots(table)
    assert (snapshot["commitUser"], snapshot["commitIdentifier"], snapshot["watermark"]) == (
        "ours",
        2,
        55,
    )
    assert snapshot["properties"] == {
        "by": "java",
        "paimon-stream.version": __version__,
        "paimon-stream.nonce": snapshot["deltaManifestList"],
        "paimon-stream.base": base["deltaManifestList"],
    }
    assert sorted(map(str, java.read(table))) == sorted(map(str, ROWS[:5] + ROWS))
    numbers: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for file in java.files(table):
        where = (file["path"], file["bucket"])
        numbers.setdefault(where, []).append((file["minSequenceNumber"], file["maxSequenceNumber"]))
    for ranges in numbers.values():
        ranges.sort()
        assert all(one[1] < other[0] for one, other in pairwise(ranges))


def test_messages_of_java_for_an_unaware_table_are_committed_by_us(
    java: Any, tmp_path: Path
) -> None:
    path = tmp_path / "db.db" / "plain"
    java.create_table(path, SCHEMA)
    messages = java.prepare_commit_bytes(path, ROWS).messages
    read = [CommitMessage.deserialize(bytes(one), 11) for one in messages]
    PaimonTable.load(str(path)).new_commit("ours").commit(1, read)
    assert sorted(map(str, java.read(path))) == sorted(map(str, ROWS))
    assert java.filter_and_commit(path, {1: messages}, "ours") == 0
