"""The files of bucket -2, which hold rows that wait for their buckets (table-kinds.md §4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import BadRowKind, InvalidOption
from paimon_stream.format.avro_file import blocks_of
from paimon_stream.merge.spec import KIND
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.task import WriteSpec
from tests.kits import waiting as kit
from tests.kits.reading import batch_of

Golden = Callable[[str], tuple[Path, dict[str, Any]]]
NAME = re.compile(r"data--u-(.+?)-s-(\d+)-w-[0-9a-f-]{36}-(\d+)\.avro")


def content(path: Path, name: str) -> tuple[str, bytes]:
    (file,) = path.rglob(name)
    schema, blocks = blocks_of(file.read_bytes(), name)
    return schema, b"".join(block.data for block in blocks)


def test_a_file_is_that_of_java(golden: Golden) -> None:
    path, expected = golden("kinds/postpone")
    (theirs,) = kit.waiting(path)
    step = expected["steps"][-1]
    kit.write(path, step["rows"], step["kinds"], user="golden", identifier=7)
    ours = kit.waiting(path)[-1]
    assert ours.file.file_name != theirs.file.file_name
    assert (
        NAME.fullmatch(ours.file.file_name)[1]
        == NAME.fullmatch(theirs.file.file_name)[1]
        == "golden"
    )  # type: ignore[index]
    schemas, rows = zip(*(content(path, one.file.file_name) for one in (ours, theirs)), strict=True)
    assert schemas[0] == schemas[1]
    assert rows[0] == rows[1]
    alike = {"file_name": "", "file_size": 0, "creation_time": 0}
    assert replace(ours, file=replace(ours.file, **alike)) == replace(
        theirs, file=replace(theirs.file, **alike)
    )
    assert not PaimonTable.load(str(path)).verify().findings


def test_rows_wait_as_they_come_and_are_seen_by_no_reader(tmp_path: Path) -> None:
    table = kit.postponed(tmp_path / "t", **{"changelog-producer": "input", "file.format": "orc"})
    kit.write(
        tmp_path / "t",
        [("a", 3, "x"), ("a", 1, "y"), ("b", 2, "z"), ("a", 3, None)],
        ["+I", "-U", "+U", "-D"],
    )
    a, b = sorted(kit.waiting(tmp_path / "t"), key=lambda one: one.partition)
    assert (a.file.row_count, a.file.delete_row_count, b.file.row_count) == (3, 2, 1)
    assert {(one.bucket, one.total_buckets, one.file.level) for one in (a, b)} == {(-2, -2, 0)}
    assert {(one.file.min_sequence_number, one.file.max_sequence_number) for one in (a, b)} == {
        (-1, -1)
    }
    assert a.file.min_key == a.file.max_key  # of the first and the last row
    assert not list((tmp_path / "t").rglob("changelog-*")) and not list(
        (tmp_path / "t").rglob("*.orc")
    )
    assert kit.found(tmp_path / "t") == []
    assert table.latest_snapshot().total_record_count == 4  # type: ignore[union-attr]
    assert not table.verify().findings


def test_all_files_of_a_user_have_one_writer_and_rising_times_whatever_the_clocks_say(
    tmp_path: Path,
) -> None:
    kit.postponed(tmp_path / "t")
    clock = SimulatedClock()
    for identifier in range(5):
        runtime = simulated(identifier, clock)
        kit.write(
            tmp_path / "t",
            [("a", 1, "x"), ("b", 1, "x")],
            user="an-s-odd/öne" + "x" * 300,
            identifier=identifier,
            runtime=runtime,
        )
        clock = SimulatedClock(clock.now_millis() - 3_600_000)
    for partition in (b"a", b"b"):
        found = [one.file for one in kit.files(tmp_path / "t") if partition in one.partition[-8:]]
        times = [one.creation_time or 0 for one in found]
        assert len(times) == len(set(times)) == 5
        assert times == sorted(times), "in the order of the commits"
    names = [NAME.fullmatch(one.file.file_name) for one in kit.waiting(tmp_path / "t")]
    assert len({one and (one[1], one[2]) for one in names}) == 1
    assert names[0] is not None and names[0][1] == "an-S-odd__ne" + "x" * 88
    assert [
        int(one.file.file_name.split("-s-")[1].split("-")[0]) < 2**31
        for one in kit.waiting(tmp_path / "t")
    ]


def test_files_are_in_the_order_in_which_they_were_published(tmp_path: Path) -> None:
    """The batch that was written first is published last, and another attempt of it sees the other
    batch.
    """
    kit.postponed(tmp_path / "t")
    table = load_table(LocalStorage(str(tmp_path / "t")))

    class Late:
        def reached(self, phase: Phase, identifier: int) -> None:
            if phase is Phase.STAGED and len(kit.files(tmp_path / "t")) == 0:
                kit.write(tmp_path / "t", [("a", 1, "others")], user="other")

    spec = WriteSpec(storage=table.storage, schema=table.schema, options=table.options, user="me")
    messages = write_keyed_task(
        spec, [batch_of(table.schema, [("a", 1, "mine")])], first_sequence=0
    ).messages
    TableCommit(table, "me", observer=Late()).commit(1, messages)
    assert ["-u-me-" in one.file.file_name for one in kit.waiting(tmp_path / "t")] == [False, True]
    PaimonTable.load(str(tmp_path / "t")).compact()
    assert kit.found(tmp_path / "t") == [("a", 1, "mine")]


def test_large_batches_make_several_files_in_order(tmp_path: Path) -> None:
    kit.postponed(tmp_path / "t", **{"target-file-size": "10 kb"})
    kit.write(tmp_path / "t", [("a", n % 7, str(n) * 20) for n in range(9000)])
    found = kit.waiting(tmp_path / "t")
    assert len(found) > 3
    assert [int(NAME.fullmatch(one.file.file_name)[3]) for one in found] == list(range(len(found)))  # type: ignore[index]
    assert len({one.file.creation_time for one in found}) == len(found)


def test_columns_that_avro_cannot_hold_wait_in_files_of_the_table(tmp_path: Path) -> None:
    columns = [("id", "INT NOT NULL"), ("at", "TIMESTAMP(9)")]
    options = {"bucket": "-2", "file.format": "orc"}
    PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["id"], options=options)
    kit.write(tmp_path / "t", [(2, None), (1, None)])
    (one,) = kit.waiting(tmp_path / "t")
    assert one.file.file_name.endswith(".orc")
    assert one.file.value_stats_cols is None and one.file.min_sequence_number == -1


def test_what_cannot_be_written_is_refused_before(tmp_path: Path) -> None:
    kit.postponed(tmp_path / "t", **{"merge-engine": "partial-update"})
    with pytest.raises(BadRowKind, match="partial-update cannot take back"):
        kit.write(tmp_path / "t", [("a", 1, "x")], ["-D"])
    kit.postponed(tmp_path / "u", **{"file.compression": "lz4"})
    rows = pa.table({"dt": ["a"], "id": pa.array([1], pa.int32()), "v": ["x"]})
    with pytest.raises(InvalidOption, match=r"lz4.*avro"):
        PaimonTable.load(str(tmp_path / "u")).append(rows)
    for name in "tu":
        assert not list((tmp_path / name).rglob("bucket-*"))


def test_batch_writes_wait_under_their_own_user_and_overwrites_take_all(tmp_path: Path) -> None:
    table = kit.postponed(tmp_path / "t", **{"commit.user-prefix": "me"})
    rows = pa.table({"dt": ["a", "b"], "id": pa.array([1, 2], pa.int32()), "v": ["x", "y"]})
    for number in (1, 2):
        table.append(rows)
        newest = table.latest_snapshot()
        assert newest is not None
        assert (
            sum(newest.commit_user in one.file.file_name for one in kit.waiting(tmp_path / "t"))
            == 2
        )
        assert len(kit.waiting(tmp_path / "t")) == 2 * number
    table.overwrite(rows.slice(0, 1))
    assert len(kit.waiting(tmp_path / "t")) == 3
    table.overwrite(rows.slice(0, 1), dynamic=False)
    (one,) = kit.waiting(tmp_path / "t")
    assert one.bucket == -2 and one.file.level == 0
    table.truncate()
    assert not kit.files(tmp_path / "t")


def test_kinds_come_from_the_column_of_the_rows(tmp_path: Path) -> None:
    kit.postponed(tmp_path / "t", **{"ignore-delete": "true"})
    kit.write(tmp_path / "t", [("a", 1, "x"), ("a", 2, "x")], ["+I", "-D"])
    (one,) = kit.waiting(tmp_path / "t")
    assert (one.file.row_count, one.file.delete_row_count) == (1, 0)
    assert KIND in content(tmp_path / "t", one.file.file_name)[0]
