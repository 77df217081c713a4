"""Compacting append tables: the rows stay, whatever others do meanwhile and wherever it fails."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from itertools import count, product
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.compact.job import _UnitsOfPlan, compact
from paimon_stream.compact.rewrite import Rewriter
from paimon_stream.errors import (
    CommitUnknown,
    FormatError,
    HistoryUnknown,
    IncompatibleSchema,
    InvalidOption,
    NoSpace,
    NotFound,
    NullInNotNull,
    PaimonStreamError,
    TableRolledBack,
    UnsupportedFeature,
)
from paimon_stream.format.entries import EMPTY_ROW, IndexFileMeta, IndexManifestEntry
from paimon_stream.format.index_manifest import encode_index_manifest
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.compaction import (
    SEEDS,
    Acting,
    data_files,
    failed_runs,
    live,
    loaded,
    problems,
    run,
)
from tests.kits.faults import LOST_SNAPSHOT, Fault, FaultyStorage, Moment, Operation
from tests.kits.params import few
from tests.kits.races import OncePublished
from tests.kits.seeds import examples

COLUMNS = [("id", "INT"), ("dt", "STRING")]
BUCKETS = {"bucket": "1", "bucket-key": "id"}


def made(tmp_path: Path, files: int = 6, days: int = 1, **options: str) -> PaimonTable:
    table = PaimonTable.create(
        str(tmp_path / "db.db" / "t"), COLUMNS, partition_keys=["dt"], options=options
    )
    for number in range(files):
        append(table, number, days)
    return table


def append(table: PaimonTable, number: int, days: int = 1) -> None:
    ids = pa.array(range(number * days, number * days + days), pa.int32())
    table.append(pa.table({"id": ids, "dt": [f"d{day}" for day in range(days)]}))


def ids(table: PaimonTable) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


# -- what it does
# -------------------------------------------------------------------------------------


def test_each_partition_becomes_one_file_in_one_snapshot(tmp_path: Path) -> None:
    table = made(tmp_path, files=5, days=2)
    report = table.compact()
    assert (report.files_before, report.files_after, report.rows_before, report.rows_after) == (
        10,
        2,
        10,
        10,
    )
    newest = table.latest_snapshot()
    assert report.snapshot_id == newest.id == 6
    assert newest.commit_kind.value == "COMPACT"
    assert newest.commit_identifier == BATCH_IDENTIFIER
    assert (newest.delta_record_count, newest.total_record_count) == (0, 10)
    assert ids(table) == list(range(10))
    assert [(dict(one.partition), one.files) for one in report.buckets] == [
        ({"dt": "d0"}, 5),
        ({"dt": "d1"}, 5),
    ]
    assert table.compact().snapshot_id is None
    assert not problems(table)


def calls_to_wait(table: PaimonTable) -> int:
    """How many functions of `threading` a compaction calls in the thread that waits: one or more
    for each lock that it takes.
    """
    calls = 0

    def called(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == threading.__file__

    sys.setprofile(called)
    try:
        table.compact()
    finally:
        sys.setprofile(None)
    return calls


def test_the_wait_for_each_partition_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No unit is rewritten before the result of the one before is taken."""
    turn = threading.Semaphore()
    rewrite, take = Rewriter.rewrite, _UnitsOfPlan._take

    def rewrite_in_turn(rewriter: Rewriter, unit: Any) -> Any:
        turn.acquire()
        return rewrite(rewriter, unit)

    def take_in_turn(units: _UnitsOfPlan, *result: Any) -> None:
        take(units, *result)
        turn.release()

    monkeypatch.setattr(Rewriter, "rewrite", rewrite_in_turn)
    monkeypatch.setattr(_UnitsOfPlan, "_take", take_in_turn)
    options = {"compaction.min.file-num": "2"}
    of_few, of_many = (
        calls_to_wait(made(tmp_path / str(days), 2, days, **options)) for days in (8, 64)
    )
    assert 0 < of_many <= 9 * of_few


def test_a_dry_run_writes_nothing_and_says_what_a_run_would_do(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = data_files(table)
    report = table.compact(dry_run=True)
    assert (report.dry_run, report.snapshot_id, report.files_before, report.files_after) == (
        True,
        None,
        6,
        1,
    )
    assert data_files(table) == before
    assert table.latest_snapshot().id == 6


def test_an_empty_table_and_no_partition_have_nothing_to_compact(tmp_path: Path) -> None:
    assert made(tmp_path / "a", files=0).compact().snapshot_id is None
    table = made(tmp_path / "b")
    assert table.compact(partitions=[]).snapshot_id is None
    assert table.compact(partitions=[{"dt": "other"}]).snapshot_id is None


def test_only_the_named_partitions_are_compacted(tmp_path: Path) -> None:
    table = made(tmp_path, days=3)
    report = table.compact(partitions=[{"dt": "d0"}, {"dt": "d2"}])
    assert [one.partition["dt"] for one in report.buckets] == ["d0", "d2"]
    assert len(table.files()) == 6 + 2


def test_options_are_for_one_call(tmp_path: Path) -> None:
    table = made(tmp_path, files=2)
    assert table.compact().snapshot_id is None
    assert table.compact(options={"compaction.min.file-num": "2"}).files_before == 2
    assert "compaction.min.file-num" not in table.options


def test_an_index_of_an_unknown_type_is_named_and_nothing_is_compacted(tmp_path: Path) -> None:
    table = made(tmp_path)
    root, newest = Path(table.location), table.latest_snapshot()
    index = IndexFileMeta(index_type="BTREE", file_name="index-1", file_size=1, row_count=1)
    entry = IndexManifestEntry(partition=EMPTY_ROW, bucket=0, file=index)
    (root / "manifest" / "index-manifest-1").write_bytes(
        encode_index_manifest([entry], compression="zstd", level=1)
    )
    path = root / "snapshot" / f"snapshot-{newest.id}"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "indexManifest": "index-manifest-1"})
    )
    with pytest.raises(UnsupportedFeature, match=r"index of type BTREE \(index-1\)"):
        table.compact()
    assert table.latest_snapshot().id == newest.id
    assert len(data_files(table)) == 6


def test_large_files_are_rolled_and_keep_running_numbers_in_a_bucket(tmp_path: Path) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"), [("id", "INT"), ("s", "STRING")], options=BUCKETS
    )
    for turn in range(5):
        text = [os.urandom(60).hex() for _ in range(2000)]
        table.append(
            pa.table(
                {"id": pa.array(range(turn * 2000, turn * 2000 + 2000), pa.int32()), "s": text}
            )
        )
    before = table.to_arrow()
    report = table.compact(options={"target-file-size": "300 kb"}, full=True)
    assert report.files_after > 2
    bounds = sorted(
        (one.meta.min_sequence_number, one.meta.max_sequence_number) for one in table.files()
    )
    assert bounds[0][0] == 0
    assert bounds[-1][1] == 9999
    assert all(low == high + 1 for (low, _), (_, high) in zip(bounds[1:], bounds, strict=False))
    assert table.to_arrow() == before
    append_more = pa.table({"id": pa.array([1], pa.int32()), "s": ["x"]})
    table.append(append_more)
    assert max(one.meta.min_sequence_number for one in table.files()) == 10000


def test_rows_get_todays_schema_and_a_default_is_for_new_rows_only(tmp_path: Path) -> None:
    table = made(tmp_path, files=5)
    add_column(table)
    table = PaimonTable.load(table.location)
    table.compact()
    assert {file.meta.schema_id for file in table.files()} == {1}
    assert table.to_arrow()["more"].to_pylist() == [None] * 5


def add_column(table: PaimonTable) -> None:
    """As another engine changes the schema: a new column with a default."""
    folder = Path(table.location) / "schema"
    schema = json.loads((folder / "schema-0").read_text())
    more = {"id": 2, "name": "more", "type": "STRING", "defaultValue": "new"}
    schema |= {"id": 1, "highestFieldId": 2, "fields": [*schema["fields"], more]}
    (folder / "schema-1").write_text(json.dumps(schema))


def test_rows_that_came_with_a_newer_schema_keep_what_is_new(tmp_path: Path) -> None:
    table = made(tmp_path)

    def meanwhile() -> None:
        table.compact()
        add_column(table)
        for number in range(6, 12):
            row = {"id": pa.array([number], pa.int32()), "dt": ["d0"], "more": [f"m{number}"]}
            PaimonTable.load(table.location).append(pa.table(row))

    report = run(table, Acting(table, meanwhile, "open_output", "dt="))
    assert (report.conflicts, report.snapshot_id is not None) == (1, True)
    rows = PaimonTable.load(table.location).to_arrow().sort_by("id")
    assert rows["id"].to_pylist() == list(range(12))
    assert rows["more"].to_pylist() == [None] * 6 + [f"m{number}" for number in range(6, 12)]


def test_files_of_a_schema_that_is_newer_than_the_loaded_table_wait_for_the_next_look(
    tmp_path: Path,
) -> None:
    table = made(tmp_path)
    old = load_table(LocalStorage(table.location))
    add_column(table)
    for number in range(6, 12):
        row = {"id": pa.array([number], pa.int32()), "dt": ["d0"], "more": [f"m{number}"]}
        PaimonTable.load(table.location).append(pa.table(row))
    tables = iter([old])
    report = compact(lambda: next(tables, None) or load_table(LocalStorage(table.location)))
    assert report.conflicts == 1
    rows = PaimonTable.load(table.location).to_arrow().sort_by("id")
    assert rows["more"].to_pylist()[6:] == [f"m{number}" for number in range(6, 12)]


def test_progress_is_in_bytes_and_comes_to_its_end(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    table = made(tmp_path, days=2)
    table.compact(progress=lambda *one: seen.append(one))
    size = sum(one.bytes for one in table.compact(dry_run=True).buckets)
    assert {what for what, _, _ in seen} == {"bytes"}
    assert seen[-1][1] == seen[-1][2] != size
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


# -- wrong arguments
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        (
            {"options": {"compaction.min.file-nums": "2"}},
            InvalidOption,
            "Did you mean 'compaction.min.file-num'",
        ),
        ({"options": {"bucket": "2"}}, InvalidOption, "cannot be set for one call"),
        ({"options": {"compaction.min.file-num": "few"}}, InvalidOption, "whole number"),
        ({"partitions": [{"day": "d0"}]}, IncompatibleSchema, "day"),
        ({"partitions": {"dt": "d0"}}, InvalidOption, "list of partitions"),
        ({"full": "yes"}, InvalidOption, "True or False"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_read(
    tmp_path: Path, how: dict[str, Any], error: type[PaimonStreamError], text: str
) -> None:
    table = made(tmp_path)
    with pytest.raises(error, match=text):
        table.compact(**how)
    assert table.latest_snapshot().id == 6


# -- beside others
# ------------------------------------------------------------------------------------


def test_rows_that_come_meanwhile_stay(tmp_path: Path) -> None:
    table = made(tmp_path)
    storage = Acting(table, lambda: append(table, 6), "put_if_absent", "snapshot/")
    assert run(table, storage).snapshot_id == 8
    assert ids(table) == list(range(7))
    assert len(live(table)) == 2
    assert not problems(table)


def test_what_another_compaction_took_is_left_out_and_its_files_go(tmp_path: Path) -> None:
    table = made(tmp_path, days=2)
    storage = Acting(
        table, lambda: table.compact(partitions=[{"dt": "d0"}]), "put_if_absent", "snapshot/"
    )
    report = run(table, storage)
    assert report.conflicts == 1
    assert [(one.partition["dt"], one.skipped) for one in report.buckets] == [("d1", None)]
    assert ids(table) == list(range(12))
    named = {one.meta.file_name for s in table.snapshots() for one in table.files(s.id)}
    assert data_files(table) == named


@pytest.mark.parametrize("days", [1, 2], ids=["all of it", "a part of it"])
def test_files_that_no_longer_fit_stay_for_the_tag_of_a_compaction_that_was_replaced(
    tmp_path: Path, days: int
) -> None:
    """An engine without a lock compacts the first partition at the same time, and replaces the
    snapshot of our compaction.
    """
    table = made(tmp_path, days=days)
    rival = tmp_path / "rival"
    shutil.copytree(table.location, rival)

    def tag_and_replace() -> None:
        table.create_tag("lost")
        theirs = PaimonTable.load(str(rival)).compact(partitions=[{"dt": "d0"}]).snapshot_id
        shutil.copytree(rival, table.location, dirs_exist_ok=True)
        assert theirs == table.latest_snapshot().id
        append(table, 6, days)

    storage = OncePublished(LocalStorage(table.location), tag_and_replace)
    if days == 1:
        with pytest.raises(CommitUnknown):
            run(table, storage)
    else:
        report = run(table, storage)
        assert (report.snapshot_id, report.conflicts) == (9, 1)
    assert sorted(table.to_arrow(tag="lost")["id"].to_pylist()) == list(range(6 * days))
    assert ids(table) == list(range(7 * days))
    assert not problems(table)


def test_a_partition_that_is_dropped_or_replaced_meanwhile_stays_so(tmp_path: Path) -> None:
    table = made(tmp_path, days=2)
    storage = Acting(
        table, lambda: table.drop_partitions([{"dt": "d0"}]), "put_if_absent", "snapshot/"
    )
    run(table, storage)
    assert set(table.to_arrow()["dt"].to_pylist()) == {"d1"}
    append(table, 20)
    rows = pa.table({"id": pa.array([99], pa.int32()), "dt": ["d1"]})
    for number in range(5):
        append(table, 30 + number, 2)
    before = [one for one in ids(table) if one != 99]
    storage = Acting(
        table, lambda: table.overwrite(rows, {"dt": "d1"}), "put_if_absent", "snapshot/"
    )
    run(table, storage)
    assert table.to_arrow(partition={"dt": "d1"})["id"].to_pylist() == [99]
    assert len(ids(table)) < len(before)
    assert not problems(table)


def test_files_that_an_expiry_took_after_a_foreign_compaction_are_a_conflict(
    tmp_path: Path,
) -> None:
    table = made(tmp_path)

    def meanwhile() -> None:
        table.compact()
        expire_snapshots(load_table(LocalStorage(table.location)), 1, 1, protect_streams=False)

    report = run(table, Acting(table, meanwhile, "open_input", "dt=d0/"))
    assert (report.snapshot_id, report.conflicts) == (None, 1)
    assert ids(table) == list(range(6))
    assert data_files(table) == live(table)


def test_a_rollback_meanwhile_ends_it_and_its_files_go(tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(TableRolledBack):
        run(table, Acting(table, lambda: table.rollback_to(3), "open_output", "dt="))
    assert ids(table) == [0, 1, 2]
    assert data_files(table) >= live(table)
    assert not problems(table)


def test_where_nothing_shows_what_became_of_its_base_the_error_speaks_of_a_compaction(
    tmp_path: Path,
) -> None:
    """The base is gone, and a note of removed snapshots that may name it cannot be read."""
    table = made(tmp_path)

    def meanwhile() -> None:
        append(table, 6)
        storage = LocalStorage(table.location)
        storage.write("_paimon_stream/removed.1-a.json", b"damaged")
        expire_snapshots(load_table(storage), 1, 1, protect_streams=False)

    before = data_files(table)
    with pytest.raises(HistoryUnknown) as unknown:
        run(table, Acting(table, meanwhile, "open_output", "dt="))
    message = unknown.value.message
    assert message.startswith(
        f"{table.location}: whether snapshot 6, on which the compaction was planned, "
    )
    assert "a note of removed snapshots cannot be read" in message
    assert "No row has changed" in message
    assert message.endswith("Compact again.")
    assert "query" not in message
    assert unknown.value.context["snapshot"] == 6
    assert ids(table) == list(range(7))
    assert before < data_files(table) == live(table)


def test_a_bucket_that_others_change_each_time_is_reported(tmp_path: Path) -> None:
    table = made(tmp_path, **BUCKETS)
    rows = pa.table({"id": pa.array(range(1), pa.int32()), "dt": ["d0"]})

    class Busy(Acting):
        def _due(self, operation: Operation) -> Fault | None:
            if operation.verb == "put_if_absent" and operation.path.startswith("snapshot/"):
                self._act = again
            return super()._due(operation)

    def again() -> None:
        table.overwrite(rows, {"dt": "d0"})
        for number in range(4):
            append(table, number)

    report = run(table, Busy(table, again, "put_if_absent", "snapshot/"))
    assert report.conflicts == 4
    assert report.snapshot_id is None
    assert [one.skipped for one in report.buckets] == [
        "Others have changed its files each time. Compact again later."
    ]
    assert len(ids(table)) == 5


# -- where it fails
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "stop"),
    few(product(Moment, [False, True]), lambda moment, stop: stop == (moment is Moment.AFTER)),
)
def test_wherever_it_fails_the_rows_stay(tmp_path: Path, moment: Moment, stop: bool) -> None:
    table = made(tmp_path, days=2)
    snapshots = table.latest_snapshot().id
    for at, failed, before, raised in failed_runs(table, moment, stop=stop, step=examples(7, 1)):
        assert ids(table) == list(range(12)), at
        left = data_files(table) - before - live(table)
        is_known = failed.verb != "delete" and not (
            moment is Moment.AFTER and "output" in failed.verb
        )
        if is_known and not stop and not isinstance(raised, CommitUnknown):
            assert not left, (at, failed)
        if table.latest_snapshot().id > snapshots:
            table.rollback_to(snapshots)
    assert not problems(table)


def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(CommitUnknown):
        run(table, FaultyStorage(LocalStorage(table.location), [LOST_SNAPSHOT]))
    assert table.latest_snapshot().id == 7
    assert ids(table) == list(range(6))


def test_a_damaged_file_is_named_and_the_others_are_compacted(tmp_path: Path) -> None:
    table = made(tmp_path, days=2)
    broken = next(one for one in table.files() if one.partition["dt"] == "d0")
    Path(broken.path).write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(FormatError, match=broken.meta.file_name):
        table.compact()
    assert sum(one.partition["dt"] == "d1" for one in table.files()) == 1
    assert sum(one.partition["dt"] == "d0" for one in table.files()) == 6
    Path(broken.path).unlink()
    append(table, 100, 2)
    with pytest.raises(NotFound, match=broken.meta.file_name):
        table.compact()


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    table = made(tmp_path, days=3)
    before = data_files(table)
    full = FaultyStorage(
        LocalStorage(table.location), [Fault(at=2, verb="output.close", error=NoSpace, path="d")]
    )
    with pytest.raises(NoSpace):
        run(table, full)
    assert data_files(table) == before
    assert ids(table) == list(range(18))


def test_a_thread_that_cannot_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, days=4)
    before = data_files(table)
    started, start = count(), threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if thread.name.startswith("paimon-stream-compact") and next(started) == 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with pytest.raises(RuntimeError, match="start new thread"):
        table.compact()
    assert data_files(table) == before
    assert table.latest_snapshot().id == 6


def test_a_table_whose_compaction_sorts_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path, **{"clustering.incremental": "true", "clustering.columns": "id"})
    with pytest.raises(UnsupportedFeature, match=r"clustering\.incremental = true"):
        table.compact()


def test_what_takes_long_is_published_in_parts(tmp_path: Path) -> None:
    table = made(tmp_path, days=4)
    clock = SimulatedClock()
    runtime = simulated(next(SEEDS), clock)
    is_published = threading.Event()
    outputs = count(1)

    class Slow(Acting):
        def _due(self, operation: Operation) -> Fault | None:
            if operation.verb == "open_output":
                clock.advance(7 * 60_000)
                if next(outputs) == 4:  # the last unit begins when others are published
                    assert is_published.wait(60)
            if operation.verb == "put_if_absent":
                is_published.set()
            return super()._due(operation)

    storage = Slow(table, lambda: None, "", "never")
    report = compact(lambda: loaded(table, storage), runtime=runtime)
    compactions = [one for one in table.snapshots() if one.commit_kind.value == "COMPACT"]
    assert len(compactions) > 1
    assert report.snapshot_id == compactions[-1].id == table.latest_snapshot().id
    assert report.files_before == 24
    assert ids(table) == list(range(24))


def test_null_in_a_column_that_must_not_be_null_is_named(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "INT")])
    for number in range(5):
        table.append(pa.table({"id": pa.array([None if number == 3 else number], pa.int32())}))
    path = Path(table.location) / "schema" / "schema-0"
    path.with_name("schema-1").write_text(
        path.read_text()
        .replace('"id" : 0,\n  "fields"', '"id" : 1,\n  "fields"', 1)
        .replace('"INT"', '"INT NOT NULL"')
    )
    with pytest.raises(NullInNotNull, match="id"):
        PaimonTable.load(table.location).compact()


def test_a_run_takes_its_memory_from_jemalloc_and_the_process_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if {"jemalloc", "mimalloc"} - set(pa.supported_memory_backends()):
        pytest.skip("Arrow has not both here")
    before = pa.default_memory_pool()
    try:
        pa.set_memory_pool(pa.mimalloc_memory_pool())
        for chosen, expected in ((False, "jemalloc"), (True, "mimalloc")):
            seen: set[str] = set()
            if chosen:
                monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
            else:
                monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
            table = made(tmp_path / str(chosen))
            table.compact(
                progress=lambda *_, seen=seen: seen.add(pa.default_memory_pool().backend_name)
            )
            assert seen == {expected}
            assert pa.default_memory_pool().backend_name == "mimalloc"
    finally:
        pa.set_memory_pool(before)
