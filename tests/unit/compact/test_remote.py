"""Units that other processes rewrite: the table becomes the same, and what is left over belongs to
nobody.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.compact.job import compact
from paimon_stream.compact.remote import UnitTask
from paimon_stream.compact.units import Unit
from paimon_stream.errors import NoSpace, NotFound, WriteInterrupted
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.runtime import system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.compaction import TRIGGER, WAYS, changelog, data_files, live, problems, run
from tests.kits.keyed import commit_changes
from tests.kits.params import each_once


class Pickling:
    """Another process, as far as it can be seen: tasks and answers travel as bytes."""

    def __init__(
        self, before: Callable[[int], object] = lambda number: None, twice: bool = False
    ) -> None:
        self.tasks = 0
        self.cancelled = False
        self._before, self._twice = before, twice
        self._lock = threading.Lock()

    def at_once(self, units: Sequence[Unit]) -> int:
        return 2

    def run(self, task: UnitTask) -> CommitMessage:
        with self._lock:
            self.tasks += 1
            number = self.tasks
        self._before(number)
        sent = pickle.dumps(task)
        if self._twice:
            pickle.loads(sent)()
        return CommitMessage.deserialize(pickle.loads(sent)().serialize())

    def cancel(self) -> None:
        self.cancelled = True


def append_table(path: Path, days: int = 3, **options: str) -> PaimonTable:
    table = PaimonTable.create(
        str(path), [("id", "INT"), ("dt", "STRING")], partition_keys=["dt"], options=options
    )
    for number in range(6):
        ids = pa.array(range(number * days, number * days + days), pa.int32())
        table.append(pa.table({"id": ids, "dt": [f"d{day}" for day in range(days)]}))
    return table


def keyed_table(path: Path, **options: str) -> PaimonTable:
    options = {"bucket": "2", "write-only": "true", **options}
    columns = [("k", "INT NOT NULL"), ("dt", "STRING NOT NULL"), ("v", "INT"), ("at", "BIGINT")]
    table = PaimonTable.create(
        str(path), columns, partition_keys=["dt"], primary_keys=["dt", "k"], options=options
    )
    now = system().clock.now_millis()
    for number in range(8):
        rows = [
            (
                "-D" if (number + key) % 5 == 4 else "+I",
                {"k": key, "dt": f"d{day}", "v": number, "at": now - key * 10**6},
            )
            for day in range(2)
            for key in (*range(10), 100 + number)
        ]
        commit_changes(
            table, rows, table.latest_snapshot().id if table.snapshots() else 0, user="writer"
        )
    return table


def shape(table: PaimonTable) -> list[Any]:
    """What all files hold, without their names."""
    return sorted(
        (
            one.partition["dt"],
            one.bucket,
            one.meta.level,
            one.row_count,
            one.meta.delete_row_count,
            one.meta.min_sequence_number,
            one.meta.max_sequence_number,
            one.meta.min_key,
            one.meta.file_source,
        )
        for one in table.files()
    )


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"bucket": "2", "bucket-key": "id", "compaction.min.file-num": "2"}]
)
def test_append_tables_become_what_threads_make_of_them(
    tmp_path: Path, full: bool, options: dict[str, str]
) -> None:
    here, there = append_table(tmp_path / "a", **options), append_table(tmp_path / "b", **options)
    mine, theirs = run(here, full=full), run(there, full=full, elsewhere=Pickling())
    assert shape(there) == shape(here)
    assert sorted(there.to_arrow()["id"].to_pylist()) == list(range(18))
    assert (theirs.files_before, theirs.files_after, theirs.rows_after) == (
        mine.files_before,
        mine.files_after,
        mine.rows_after,
    )
    assert theirs.files_before
    assert not problems(there)
    assert data_files(there) >= live(there)


def test_deleted_rows_stay_away_whoever_rewrites_their_files(tmp_path: Path) -> None:
    for name, elsewhere in (("a", None), ("b", Pickling())):
        table = append_table(tmp_path / name, **{"deletion-vectors.enabled": "true"})
        table.delete(pc.field("id").isin([1, 4, 7, 10, 16]))
        kept = table.to_arrow()
        assert run(table, elsewhere=elsewhere).files_before
        assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(kept["id"].to_pylist())
        assert not problems(table)


@pytest.mark.parametrize(
    ("full", "way"),
    each_once(
        [False, True],
        [
            *WAYS,
            {"record-level.expire-time": "4500 s", "record-level.time-field": "at"},
            {"changelog-producer": "lookup"},
            {"changelog-producer": "full-compaction", "changelog-producer.row-deduplicate": "true"},
            {"merge-engine": "first-row", "changelog-producer": "lookup", "ignore-delete": "true"},
        ],
    ),
)
def test_keyed_tables_become_what_threads_make_of_them(
    tmp_path: Path, full: bool, way: dict[str, str]
) -> None:
    made = []
    for name, elsewhere in (("a", None), ("b", Pickling())):
        table = keyed_table(tmp_path / name, **way)
        reports = [run(table, full=full, elsewhere=elsewhere) for _ in range(2)]
        rows = sorted(tuple(row.values())[:3] for row in table.to_arrow().to_pylist())
        counted = [
            (one.files_before, one.files_after, one.files_upgraded, one.rows_after)
            for one in reports
        ]
        said = sorted((kind, *row[:3]) for kind, _, row in changelog(table))
        made.append((shape(table), rows, counted, said))
        assert bool(said) == ("changelog-producer" in way)
        assert not problems(table)
        assert reports[0].snapshot_id
    assert made[0] == made[1]


def test_an_upgrade_is_no_new_file(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "t", **{TRIGGER: "2"})
    run(table, full=True)
    commit_changes(
        table,
        [("+I", {"k": 5000, "dt": "d0", "v": 1, "at": 1})],
        table.latest_snapshot().id,
        user="writer",
    )
    options = {"target-file-size": "1 b"}
    done = table.compact(full=True, options=options, dry_run=True)
    assert done.files_upgraded
    before = data_files(table)
    report = run_with(table, options, Pickling())
    assert report.files_upgraded == done.files_upgraded
    assert live(table) <= data_files(table)
    assert before <= data_files(table)


def run_with(table: PaimonTable, options: dict[str, str], elsewhere: Any) -> Any:
    return compact(
        lambda: load_table(LocalStorage(table.location), options), full=True, elsewhere=elsewhere
    )


def test_a_task_that_runs_twice_leaves_orphans_and_no_row_twice(tmp_path: Path) -> None:
    table = append_table(tmp_path / "t")
    report = run_with(table, {}, Pickling(twice=True))
    assert (report.files_before, report.files_after) == (18, 3)
    assert len(data_files(table)) == 18 + 6
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(18))


def test_a_unit_that_is_given_up_is_named_and_the_others_are_published(tmp_path: Path) -> None:
    def lost(number: int) -> None:
        if number == 2:
            raise WriteInterrupted("Spark gave up the task.")

    table = append_table(tmp_path / "t")
    with pytest.raises(WriteInterrupted, match=r"dt=d\d/bucket-0 was not compacted: Spark gave up"):
        run(table, elsewhere=Pickling(lost))
    assert len(table.files()) == 6 + 2
    assert table.compact().files_before == 6


def test_a_missing_file_there_is_a_missing_file_here(tmp_path: Path) -> None:
    table = append_table(tmp_path / "t")
    (Path(table.location) / table.files()[0].path).unlink()
    with pytest.raises(NotFound, match="is missing"):
        run(table, elsewhere=Pickling())
    assert len(table.files()) == 6 + 2


@pytest.mark.parametrize("error", [NoSpace("full"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_cancels_and_leaves_nothing_visible(
    tmp_path: Path, error: BaseException
) -> None:
    def failing(number: int) -> None:
        if number == 3:
            raise error

    table, elsewhere = append_table(tmp_path / "t", days=6), Pickling(failing)
    before = live(table)
    with pytest.raises(type(error)):
        run(table, elsewhere=elsewhere)
    assert elsewhere.cancelled
    assert live(table) == before
    assert data_files(table) == before
