"""Java Paimon reads our committables and commit messages, and we read Java's."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.committable import ManifestCommittable
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from paimon_stream.write.task import WriteSpec, write_task

PROPERTIES = {"plain": "value", "": "empty key", "unicode": "é中😀\0end", "long": "x" * 40_000}
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


@pytest.mark.parametrize("watermark", [None, 0, -(2**63), 1_700_000_000_000])
def test_java_reads_a_committable_of_ours(java: Any, table: Path, watermark: int | None) -> None:
    messages = written(table)
    ours = ManifestCommittable(
        identifier=9, watermark=watermark, properties=PROPERTIES, messages=messages
    ).serialize()
    assert java.describe_committable(ours) == {
        "identifier": 9,
        "watermark": watermark,
        "properties": PROPERTIES,
        "messages": [one.serialize() for one in messages],
    }


@pytest.mark.parametrize("watermark", [None, 1_700_000_000_000])
def test_a_committable_of_java_is_read_in_every_field(java: Any, table: Path, watermark: int | None) -> None:
    theirs = java.prepare_commit_bytes(table, ROWS).messages
    version, data = java.serialize_committable(9, theirs, watermark, PROPERTIES)
    read = ManifestCommittable.deserialize(data, version)
    assert (read.identifier, read.watermark, dict(read.properties)) == (9, watermark, PROPERTIES)
    assert [replace(one).serialize() for one in read.messages] == [bytes(one) for one in theirs]
    again = ManifestCommittable.deserialize(read.serialize(), version)
    assert again == read


def test_java_commits_a_committable_of_ours(java: Any, table: Path) -> None:
    ours = ManifestCommittable(
        identifier=4, watermark=77, properties={"by": "us"}, messages=written(table)
    ).serialize()
    java.commit_committable(table, ours, "someone")
    (snapshot,) = java.snapshots(table)
    assert (snapshot["commitUser"], snapshot["commitIdentifier"], snapshot["watermark"]) == ("someone", 4, 77)
    assert snapshot["properties"] == {"by": "us"}
    assert sorted(map(str, java.read(table))) == sorted(map(str, ROWS))


def test_a_committable_of_java_is_committed_by_us(java: Any, table: Path) -> None:
    java.write(table, ROWS[:5], commit_identifier=1)
    theirs = java.prepare_commit_bytes(table, ROWS, commit_identifier=2).messages
    version, data = java.serialize_committable(2, theirs, 55, {"by": "java"})
    read = ManifestCommittable.deserialize(data, version)
    commit = PaimonTable.load(str(table)).new_commit("ours")
    commit.commit(read.identifier, read.messages, watermark=read.watermark, properties=read.properties)
    snapshot = java.snapshots(table)[-1]
    assert (snapshot["commitUser"], snapshot["commitIdentifier"], snapshot["watermark"]) == ("ours", 2, 55)
    assert snapshot["properties"] == {"by": "java"}
    assert sorted(map(str, java.read(table))) == sorted(map(str, ROWS[:5] + ROWS))
    numbers: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for file in java.files(table):
        where = (file["path"], file["bucket"])
        numbers.setdefault(where, []).append((file["minSequenceNumber"], file["maxSequenceNumber"]))
    for ranges in numbers.values():
        ranges.sort()
        assert all(one[1] < other[0] for one, other in pairwise(ranges))


def test_messages_of_java_for_an_unaware_table_are_committed_by_us(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "db.db" / "plain"
    java.create_table(path, SCHEMA)
    messages = java.prepare_commit_bytes(path, ROWS).messages
    read = [CommitMessage.deserialize(bytes(one), 11) for one in messages]
    PaimonTable.load(str(path)).new_commit("ours").commit(1, read)
    assert sorted(map(str, java.read(path))) == sorted(map(str, ROWS))
    assert java.filter_and_commit(path, {1: messages}, "ours") == 0
