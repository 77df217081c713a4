"""Compacting tables with a primary key: the rows stay, whatever others do meanwhile and wherever it
fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import (
    CommitUnknown,
    FormatError,
    InvalidData,
    InvalidOption,
    NullInNotNull,
    PaimonStreamError,
    UnsupportedFeature,
)
from paimon_stream.format.entries import FileSource
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.compaction import Acting, data_files, live, problems, run
from tests.kits.faults import LOST_SNAPSHOT, Fault, FaultyStorage, Killed, Moment, Operation
from tests.kits.keyed import commit_changes, write_changes
from tests.kits.params import few
from tests.kits.seeds import examples

COLUMNS = [("k", "INT NOT NULL"), ("dt", "STRING NOT NULL"), ("v", "INT")]


def made(tmp_path: Path, files: int = 6, days: int = 1, **options: str) -> PaimonTable:
    table = PaimonTable.create(
        str(tmp_path / "db.db" / "t"),
        COLUMNS,
        partition_keys=["dt"],
        primary_keys=["dt", "k"],
        options={"bucket": "1", "write-only": "true", **options},
    )
    for number in range(files):
        write(table, number, days)
    return table


def write(
    table: PaimonTable, number: int, days: int = 1, kind: str = "+I", keys: Sequence[int] = ()
) -> None:
    """Each write has a key of its own, and the keys that all writes share."""
    rows = [
        (kind, {"k": key, "dt": f"d{day}", "v": number})
        for day in range(days)
        for key in (keys or (0, 1, 100 + number))
    ]
    commit_changes(
        table, rows, table.latest_snapshot().id if table.snapshots() else 0, user="writer"
    )


def rows(table: PaimonTable, **how: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(**how).to_pylist())


def levels(table: PaimonTable) -> list[int]:
    return sorted(file.meta.level for file in table.files())


# -- what it does
# -------------------------------------------------------------------------------------


def test_each_bucket_becomes_one_run_in_one_snapshot(tmp_path: Path) -> None:
    table = made(tmp_path, days=2)
    before = rows(table)
    report = table.compact()
    assert (report.files_before, report.files_after, report.files_upgraded) == (12, 2, 0)
    assert (report.rows_before, report.rows_after) == (36, 16)
    newest = table.latest_snapshot()
    assert report.snapshot_id == newest.id == 7
    assert (newest.commit_kind.value, newest.commit_identifier) == ("COMPACT", BATCH_IDENTIFIER)
    assert (newest.delta_record_count, newest.total_record_count) == (-20, 16)
    assert levels(table) == [5, 5]
    assert {file.meta.file_source for file in table.files()} == {FileSource.COMPACT}
    assert rows(table) == before
    assert table.compact(full=True).snapshot_id is None
    assert not problems(table)


def test_few_runs_are_left_alone_and_full_takes_them(tmp_path: Path) -> None:
    table = made(tmp_path, files=3)
    assert table.compact().snapshot_id is None
    assert table.compact(full=True).files_before == 3
    write(table, 9)
    assert table.compact().snapshot_id is None
    assert table.compact(full=True).files_before == 2
    assert levels(table) == [5]


def test_a_file_that_only_changes_its_level_keeps_its_name(tmp_path: Path) -> None:
    table = made(tmp_path, files=0)
    write(table, 1, keys=range(20))
    file = table.files()[0]
    plan = table.compact(full=True, dry_run=True)
    assert (plan.files_before, plan.files_after, plan.files_upgraded) == (0, 0, 1)
    report = table.compact(full=True)
    assert (report.files_before, report.files_after, report.files_upgraded) == (0, 0, 1)
    assert [(one.files, one.rows) for one in report.buckets] == [(1, 20)]
    after = table.files()[0]
    assert (after.meta.file_name, after.meta.level, after.meta.file_source) == (
        file.meta.file_name,
        5,
        0,
    )
    assert len(rows(table)) == 20
    assert not problems(table)


def test_what_the_first_pick_wrote_and_the_second_merged_is_in_no_snapshot(tmp_path: Path) -> None:
    table = made(tmp_path, files=0, **{"num-sorted-run.compaction-trigger": "2", "num-levels": "6"})
    write(table, 0, keys=range(8000))
    table.compact(full=True)
    write(table, 1, keys=range(2500))
    write(table, 2, keys=range(2500))
    table.compact()
    write(table, 3, keys=range(20))
    write(table, 4, keys=range(20))
    before, files = rows(table), data_files(table)
    assert levels(table) == [0, 0, 4, 5]
    assert table.compact(dry_run=True).files_before == 2
    report = table.compact()
    assert (report.files_before, report.files_after) == (3, 1)
    assert levels(table) == [4, 5]
    assert len(data_files(table) - files) == 1
    assert rows(table) == before


def test_deletes_stay_above_older_rows_and_go_at_the_top(tmp_path: Path) -> None:
    table = made(tmp_path, files=0, **{"num-levels": "6", "num-sorted-run.compaction-trigger": "2"})
    write(table, 0, keys=range(2000))
    table.compact(full=True)
    write(table, 1, kind="-D", keys=(1, 2, 3))
    write(table, 2, kind="-D", keys=(2, 3, 4))
    assert table.compact().files_after == 1
    assert sorted((one.meta.level, one.meta.delete_row_count) for one in table.files()) == [
        (4, 4),
        (5, 0),
    ]
    assert len(rows(table)) == 1996
    table.compact(full=True)
    assert [(one.meta.level, one.meta.row_count) for one in table.files()] == [(5, 1996)]
    write(table, 3, kind="-D", keys=range(2000))
    assert table.compact(full=True).files_after == 0
    assert (table.files(), rows(table)) == ((), [])


def test_large_results_are_rolled_in_key_order(tmp_path: Path) -> None:
    table = made(tmp_path, files=0)
    for number in range(5):
        write(table, number, keys=range(number, 40_000, 5))
    assert table.compact(full=True, options={"target-file-size": "60 kb"}).files_after > 2
    bounds = sorted((one.meta.min_key, one.meta.max_key) for one in table.files())
    assert len(bounds) == len(live(table))
    assert [row[0] for row in rows(table)] == list(range(40_000))
    assert not problems(table)


def test_each_level_has_its_format_and_compression(tmp_path: Path) -> None:
    table = made(
        tmp_path,
        **{"file.format.per.level": "0:avro,5:orc", "file.compression.per.level": "5:zlib"},
    )
    assert {Path(one.path).suffix for one in table.files()} == {".avro"}
    before = rows(table)
    table.compact()
    assert [Path(one.path).suffix for one in table.files()] == [".orc"]
    assert rows(table) == before


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry run", "run"])
def test_a_level_with_a_format_that_cannot_hold_a_column_is_refused_before_anything_is_read(
    tmp_path: Path, dry_run: bool
) -> None:
    columns = [("k", "INT NOT NULL"), ("t", "TIMESTAMP(9)")]
    options = {"bucket": "1", "write-only": "true", "file.format.per.level": "5:avro"}
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=options)
    for _ in range(6):
        table.append(
            pa.table({"k": pa.array([1], pa.int32()), "t": pa.array([1], pa.timestamp("ns"))})
        )
    for one in table.files():
        Path(table.location, one.path).unlink()
    with pytest.raises(
        UnsupportedFeature, match=r"precision 6\. Set file\.format\.per\.level to parquet"
    ):
        table.compact(dry_run=dry_run)


def test_a_null_that_a_delete_has_left_in_a_column_without_null_is_reported_with_its_cure(
    tmp_path: Path,
) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"),
        [("k", "INT NOT NULL"), ("v", "INT")],
        primary_keys=["k"],
        options={"bucket": "1", "write-only": "true", "merge-engine": "aggregation"},
    )
    for number, kind in enumerate(("+I", "+I", "-D")):
        commit_changes(table, [(kind, {"k": 1, "v": 5})], number, user="writer")
    # Another engine makes the column NOT NULL.
    schemas = tmp_path / "t" / "schema"
    schema = json.loads((schemas / "schema-0").read_text())
    schema["id"] = 1
    schema["fields"][1]["type"] = "INT NOT NULL"
    (schemas / "schema-1").write_text(json.dumps(schema))
    table = PaimonTable.load(table.location)
    with pytest.raises(
        NullInNotNull, match="Make the column nullable, then compact again"
    ) as caught:
        table.compact(full=True)
    assert "coalesce" not in str(caught.value)
    assert levels(table) == [0, 0, 0]


MANY_RUNS = """
import resource, signal, sys, tempfile
from paimon_stream.api.table import PaimonTable
table = PaimonTable.load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
try:
    table.to_arrow()
except Exception as why:
    print(type(why).__name__, str(why).replace(tempfile.gettempdir(), "TMP"))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
print(table.to_arrow().num_rows, table.compact(full=True).files_after, table.to_arrow().num_rows)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    table.to_arrow()
except Exception as why:
    print(type(why).__name__, str(why).replace(table.location, "TABLE"))
"""


@pytest.mark.full
def test_a_bucket_with_more_runs_than_a_process_may_open_files_is_read_and_compacted(
    tmp_path: Path,
) -> None:
    table = made(tmp_path, files=130)
    done = subprocess.run(
        [sys.executable, "-c", MANY_RUNS, table.location],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("NoSpace Cannot write a temporary file in TMP: ")
    assert lines[1] == "132 1 132"
    assert lines[2].startswith("Unavailable Cannot ")
    assert "too many files open. Raise its limit (ulimit -n)" in lines[2]


def test_rows_get_todays_schema(tmp_path: Path) -> None:
    table = made(tmp_path)
    folder = Path(table.location) / "schema"
    text = (
        (folder / "schema-0")
        .read_text()
        .replace('"id" : 0,\n  "fields"', '"id" : 1,\n  "fields"', 1)
    )
    (folder / "schema-1").write_text(text.replace('"type" : "INT"\n', '"type" : "BIGINT"\n'))
    table = PaimonTable.load(table.location)
    table.compact()
    assert {file.meta.schema_id for file in table.files()} == {1}
    assert table.to_arrow().schema.field("v").type == pa.int64()
    assert len(rows(table)) == 8


def test_progress_is_in_bytes_and_comes_to_its_end(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    table = made(tmp_path, days=2)
    table.compact(progress=lambda *one: seen.append(one))
    assert {what for what, _, _ in seen} == {"bytes"}
    assert seen[-1][1] == seen[-1][2] != 0
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


# -- what is refused
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lookup.remote-file.enabled": "true"}, "lookup.remote-file.enabled = true"),
        ({"chain-table.enabled": "true"}, "chain-table.enabled = true"),
        ({"clustering.incremental": "true"}, "clustering.incremental = true"),
        ({"pk-clustering-override": "true"}, "pk-clustering-override"),
        ({"sequence.snapshot-ordering": "true"}, "sequence.snapshot-ordering"),
        ({"primary-key.nullable": "true"}, "primary-key.nullable"),
        *(
            ({f"pk-{kind}.index.columns": "v"}, f"pk-{kind}.index.columns = v.* build the index")
            for kind in ("bitmap", "btree", "full-text", "multivalue", "vector")
        ),
    ],
)
def test_a_table_whose_compaction_would_do_more_is_refused(
    tmp_path: Path, options: dict[str, str], named: str
) -> None:
    table = made(tmp_path, files=0)
    schema = Path(table.location) / "schema" / "schema-0"
    for key, value in options.items():
        text = schema.read_text().replace(f'"{key}" : "1",\n', "")
        schema.write_text(text.replace('"options" : {', f'"options" : {{ "{key}" : "{value}",', 1))
    with pytest.raises(UnsupportedFeature, match=named):
        PaimonTable.load(table.location).compact()


def test_a_wrong_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"compaction\.size-ratio"):
        made(tmp_path).compact(options={"compaction.size-ratio": "little"})


def test_rows_that_the_engine_does_not_accept_stay_and_other_buckets_are_compacted(
    tmp_path: Path,
) -> None:
    removes = "partial-update.remove-record-on-delete"
    table = made(tmp_path, days=2, **{"merge-engine": "partial-update", removes: "true"})
    write(table, 9, kind="-D", keys=(0, 1))
    schema = Path(table.location) / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace(f'"{removes}"', '"unknown"'))
    with pytest.raises(InvalidData, match="partial-update"):
        PaimonTable.load(table.location).compact(full=True)
    assert levels(table) == [0] * 7 + [5]
    assert [one.partition["dt"] for one in table.files() if one.meta.level] == ["d1"]


# -- beside others
# ------------------------------------------------------------------------------------


def test_rows_that_come_meanwhile_stay_on_level_0(tmp_path: Path) -> None:
    table = made(tmp_path)
    storage = Acting(table, lambda: write(table, 7), "put_if_absent", "snapshot/")
    assert run(table, storage).snapshot_id == 8
    assert levels(table) == [0, 5]
    assert (0, "d0", 7) in rows(table)
    assert len(rows(table)) == 9
    assert not problems(table)


def test_a_delete_that_comes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    table = made(tmp_path)
    storage = Acting(table, lambda: write(table, 7, kind="-D", keys=(0, 105)), "open_output", "dt=")
    run(table, storage, full=True)
    assert [row[0] for row in rows(table)] == [1, 100, 101, 102, 103, 104]
    table.compact(full=True)
    assert [row[0] for row in rows(table)] == [1, 100, 101, 102, 103, 104]


def test_what_another_compaction_took_is_left_out_and_its_files_go(tmp_path: Path) -> None:
    table = made(tmp_path, days=2)
    before = rows(table)
    storage = Acting(
        table, lambda: table.compact(partitions=[{"dt": "d0"}]), "put_if_absent", "snapshot/"
    )
    report = run(table, storage)
    assert report.conflicts == 1
    assert [(one.partition["dt"], one.skipped) for one in report.buckets] == [("d1", None)]
    assert rows(table) == before
    named = {one.meta.file_name for s in table.snapshots() for one in table.files(s.id)}
    assert data_files(table) == named


def test_a_bucket_that_another_compaction_has_changed_is_planned_again_and_no_other(
    tmp_path: Path,
) -> None:
    """The other takes none of our files: it merges newer ones onto a level between ours."""
    table = made(
        tmp_path, files=0, days=2, **{"num-levels": "6", "num-sorted-run.compaction-trigger": "2"}
    )
    write(table, 0, 2, keys=range(2000))
    table.compact(full=True)
    write(table, 1, 2, keys=range(500))
    write(table, 2, 2, keys=range(500))
    table.compact()
    assert levels(table) == [4, 4, 5, 5]

    def meanwhile() -> None:
        for number in (3, 4):
            rows = [("+I", {"k": key, "dt": "d0", "v": number}) for key in range(40)]
            commit_changes(table, rows, number + 100, user="writer")
        table.compact(partitions=[{"dt": "d0"}], options={"num-sorted-run.compaction-trigger": "3"})
        assert levels(table) == [3, 4, 4, 5, 5]

    report = run(table, Acting(table, meanwhile, "put_if_absent", "snapshot/"), full=True)
    assert report.conflicts == 1
    assert levels(table) == [5, 5]
    found = table.to_arrow(partition={"dt": "d0"}).sort_by("k")["v"].to_pylist()
    assert found == [4] * 40 + [2] * 460 + [0] * 1500
    assert not problems(table)


def test_a_partition_that_is_dropped_meanwhile_stays_so(tmp_path: Path) -> None:
    table = made(tmp_path, days=2)
    storage = Acting(
        table, lambda: table.drop_partitions([{"dt": "d0"}]), "put_if_absent", "snapshot/"
    )
    run(table, storage)
    assert {row[1] for row in rows(table)} == {"d1"}
    assert not problems(table)


def test_files_that_only_change_their_level_survive_a_unit_that_is_given_up(tmp_path: Path) -> None:
    table = made(tmp_path, files=0, **{"target-file-size": "1 kb"})
    for number in range(6):
        write(table, number, keys=range(10 * number, 10 * number + 5))
    files = live(table)
    assert table.compact(full=True, dry_run=True).files_upgraded == 6

    class Busy(Acting):
        """Compacts the bucket before each of our snapshots."""

        def _due(self, operation: Operation) -> Fault | None:
            if operation.verb == "put_if_absent" and operation.path.startswith("snapshot/"):
                write(table, 9, keys=(0,))
                table.compact(full=True)
            return super()._due(operation)

    run(table, Busy(table, lambda: None, "", "never"), full=True)
    assert len(rows(table)) == 30
    assert not problems(table)
    assert files <= data_files(table)


def test_a_batch_that_was_numbered_before_the_compaction_is_committed_after_it(
    tmp_path: Path,
) -> None:
    """The compaction drops the newest deletes, so the largest number of the bucket falls."""
    table = made(tmp_path)
    write(table, 7, kind="-D", keys=(0, 1))
    storage = Acting(table, lambda: table.compact(full=True), "open_output", "dt=")
    batch = {
        "k": pa.array([1, 2], pa.int32()),
        "dt": ["d0", "d0"],
        "v": pa.array([77, 78], pa.int32()),
    }
    PaimonTable(replace(load_table(LocalStorage(table.location)), storage=storage)).append(
        pa.table(batch)
    )
    assert levels(table) == [0, 5]
    assert [row for row in rows(table) if row[0] < 100] == [(1, "d0", 77), (2, "d0", 78)]
    assert table.compact(full=True).snapshot_id is not None
    assert [row for row in rows(table) if row[0] < 100] == [(1, "d0", 77), (2, "d0", 78)]


@pytest.mark.parametrize("clean", ["expire", "orphans", "rollback"])
def test_a_file_that_only_changed_its_level_outlives_what_cleans_up(
    tmp_path: Path, clean: str
) -> None:
    table = made(tmp_path, files=0)
    write(table, 1, keys=range(20))
    table.compact(full=True)
    assert levels(table) == [5]
    if clean == "expire":
        expire_snapshots(load_table(LocalStorage(table.location)), 1, 1, protect_streams=False)
        assert len(table.snapshots()) == 1
    elif clean == "orphans":
        table.remove_orphan_files(dry_run=False)
    else:
        table.rollback_to(1)
        assert levels(table) == [0]
    assert len(rows(table)) == 20
    assert not problems(table)


# -- where it fails
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "stop"),
    few(product(Moment, [False, True]), lambda moment, stop: stop == (moment is Moment.AFTER)),
)
def test_wherever_it_fails_the_rows_stay(tmp_path: Path, moment: Moment, stop: bool) -> None:
    """One bucket is rewritten by two picks, the other one only changes the level of its files."""
    table = made(tmp_path, files=0, **{"num-sorted-run.compaction-trigger": "2", "num-levels": "6"})
    write(table, 0, keys=range(200))
    table.compact(full=True)
    for number in range(3):
        write(table, number, keys=range(10 * number, 60))
    write(table, 9, keys=(1000,))
    commit_changes(table, [("+I", {"k": 1, "dt": "d1", "v": 1})], 100)
    expected, place, at = rows(table), LocalStorage(table.location), 0
    while True:
        at += examples(9, 1)
        storage = FaultyStorage(place, [Fault(at=at, moment=moment, stop=stop)])
        snapshots = table.latest_snapshot().id
        before, raised = data_files(table), None
        try:
            run(table, storage, full=at % 2 == 0)
        except (PaimonStreamError, Killed) as why:
            raised = why
        if not storage.fired:
            break
        assert rows(table) == expected, at
        left = data_files(table) - before - live(table)
        failed = storage.operations[at - 1]
        is_known = failed.verb != "delete" and not (
            moment is Moment.AFTER and "output" in failed.verb
        )
        if is_known and not stop and not isinstance(raised, CommitUnknown):
            assert not left, (at, failed)
        if table.latest_snapshot().id > snapshots:
            table.rollback_to(snapshots)
            assert rows(table) == expected, at
    assert at > 15
    assert not problems(table)


def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    expected = rows(table)
    with pytest.raises(CommitUnknown):
        run(table, FaultyStorage(LocalStorage(table.location), [LOST_SNAPSHOT]))
    assert table.latest_snapshot().id == 7
    assert rows(table) == expected


def test_a_bucket_whose_level_has_keys_twice_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    table = made(tmp_path, days=2, **{"conflict-detection-mode": "none"})
    for number in (50, 51):
        change = ("+I", {"k": 1, "dt": "d0", "v": number})
        (message,) = write_changes(table._table, [change]).messages
        files = tuple(replace(one, level=5) for one in message.new_files)
        table.new_commit("other").commit(number, [replace(message, new_files=files)])
    with pytest.raises(FormatError, match=r"dt=d0/bucket-0 was not compacted: .* overlap"):
        table.compact(dry_run=True)
    with pytest.raises(FormatError, match=r"dt=d0/bucket-0 was not compacted: .* overlap"):
        table.compact()
    assert levels(table) == [0] * 6 + [5, 5, 5]


def test_a_damaged_bucket_is_named_and_the_others_are_compacted(tmp_path: Path) -> None:
    table = made(tmp_path, days=2)
    broken = next(one for one in table.files() if one.partition["dt"] == "d0")
    Path(broken.path).write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(FormatError, match=broken.meta.file_name):
        table.compact()
    assert levels(table) == [0] * 6 + [5]


class Opened(FaultyStorage):
    """Counts the data files that are open at once."""

    def __init__(self, location: str) -> None:
        super().__init__(LocalStorage(location))
        self.lock = threading.Lock()
        self.now = self.most = 0

    def open_input(self, path: str) -> Any:
        return self.counted(path) if "/data-" in path else super().open_input(path)

    @contextmanager
    def counted(self, path: str) -> Iterator[Any]:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            with super().open_input(path) as source:
                yield source
        finally:
            with self.lock:
                self.now -= 1


@pytest.mark.parametrize(("files", "buckets_at_once"), [(40, 1), (20, 2)])
def test_two_threads_together_merge_no_more_runs_than_one_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, buckets_at_once: int
) -> None:
    """Memory grows with the runs of all threads (docs/compaction.md)."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    table = made(tmp_path, files, days=2)
    storage = Opened(table.location)
    run(table, storage, full=True)
    assert files <= storage.most <= files * buckets_at_once
    assert len(live(table)) == 2
    assert not problems(table)
