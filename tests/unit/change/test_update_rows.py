"""Updating rows: where the new rows go, what others do meanwhile, and what is refused."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable, SchemaChange, catalog
from paimon_stream.change import anew
from paimon_stream.change.delete_rows import delete_rows
from paimon_stream.change.matching import MatchingRows
from paimon_stream.change.update_rows import update_rows
from paimon_stream.errors import (
    ChangedMeanwhile,
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
    NotFound,
    NullInNotNull,
    UnsupportedFeature,
    ValueTooLong,
)
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.faults import FAULTS, OFTEN_FAULTS, Fault, FaultyStorage, Killed
from tests.kits.params import few
from tests.kits.places import following
from tests.kits.races import Meanwhile

SMALL = {"compaction.min.file-num": "2"}
VECTORS = {**SMALL, "deletion-vectors.enabled": "true"}
IN_BUCKETS = {"bucket": "2", "bucket-key": "id"}
KINDS = {
    "vectors": VECTORS,
    "vectors in buckets": {**VECTORS, **IN_BUCKETS},
    "rewritten": SMALL,
    "rewritten in buckets": {**SMALL, **IN_BUCKETS},
}
COLUMNS = [("id", "INT"), ("p", "STRING"), ("n", "INT"), ("note", "VARCHAR(5)")]
_NUMBER = count()

each_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
without_buckets = pytest.mark.parametrize(
    "options", few(KINDS.values(), lambda options: "bucket" not in options), ids=KINDS
)
"""All kinds, of which those with buckets are `full`."""


def rows(ids: Iterable[int]) -> pa.Table:
    some = list(ids)
    return pa.table(
        {
            "id": pa.array(some, pa.int32()),
            "p": ["ab"[one % 2] for one in some],
            "n": pa.array([10 * one for one in some], pa.int32()),
            "note": [None] * len(some),
        },
        pa.schema(
            [("id", pa.int32()), ("p", pa.string()), ("n", pa.int32()), ("note", pa.string())]
        ),
    )


def made(options: dict[str, str], files: int = 3, **more: Any) -> PaimonTable:
    """A table with the ids from 0, ten in each commit. `n` is ten times `id`."""
    table = PaimonTable.create(
        f"memory://updates-{next(_NUMBER)}/db.db/t", COLUMNS, options=options, **more
    )
    for number in range(files):
        table.append(rows(range(10 * number, 10 * number + 10)))
    return table


def values(table: PaimonTable) -> dict[int, int]:
    """`n` by `id`, in a table that is whole and has each id once."""
    assert not [one for one in table.verify().findings if one.severity != "info"]
    return present(table)


def present(table: PaimonTable) -> dict[int, int]:
    read = table.to_arrow(columns=["id", "n"]).to_pylist()
    found = {row["id"]: row["n"] for row in read}
    assert len(found) == len(read)
    return found


def data_files(table: PaimonTable) -> set[str]:
    """The names of all data files that exist."""
    stats = [stat for some in table._table.storage.list_below("") for stat in some]
    names = {stat.path.rpartition("/")[2] for stat in stats}
    return {name for name in names if name.startswith("data-")}


def assert_no_orphans(table: PaimonTable) -> None:
    """All data files that exist belong to a snapshot."""
    snapshots = SnapshotStore(table._table.storage)
    entries = [
        entry
        for number in snapshots.ids()
        for entry in snapshot_files(table._table, snapshots.get(number))
    ]
    assert data_files(table) == {entry.file.file_name for entry in entries}


def with_storage(table: PaimonTable, storage: Any) -> Callable[[], Any]:
    return lambda: replace(table._table, storage=storage)


def once(act: Callable[[], object]) -> Callable[[str, int, int | None], None]:
    """Acts at the first report of progress: the rows were read, and nothing is published yet."""
    left = [act]

    def report(what: str, done: int, total: int | None) -> None:
        if left:
            left.pop()()

    return report


@each_kind
@pytest.mark.parametrize("partitioned", [False, True])
def test_only_the_rows_of_the_condition_get_new_values(
    options: dict[str, str], partitioned: bool
) -> None:
    table = made(options, partition_keys=["p"] if partitioned else [])
    before = table.latest_snapshot()
    expected = table.update("id >= 25", {"n": "n + 1"}, {"note": "new"}, dry_run=True)
    assert (expected.rows, expected.snapshot_id, table.latest_snapshot()) == (5, None, before)
    done = table.update("id >= 25", {"n": "n + 1"}, {"note": "new"})
    assert replace(done, snapshot_id=None, dry_run=True) == expected
    assert values(table) == {one: 10 * one + (one >= 25) for one in range(30)}
    notes = {row["id"]: row["note"] for row in table.to_arrow().to_pylist()}
    assert notes == {one: "new" if one >= 25 else None for one in range(30)}
    assert table.latest_snapshot().id == before.id + 1 == done.snapshot_id
    assert table.latest_snapshot().total_record_count == 30 + 5 * ("deletion" in str(options))
    assert present(PaimonTable.load(table.location)) == values(table)
    assert table.to_arrow(snapshot_id=before.id).num_rows == 30
    assert table.update("id > 99", {"n": "1"}).snapshot_id is None
    table.compact(full=True)
    assert values(table) == {one: 10 * one + (one >= 25) for one in range(30)}


@each_kind
def test_a_changed_partition_or_bucket_moves_the_row_in_the_same_snapshot(
    options: dict[str, str],
) -> None:
    table = made(options, partition_keys=["p"])
    before = table.latest_snapshot().id
    done = table.update(pc.field("id") < 4, {"id": pc.field("id") + 100}, {"p": "c"})
    assert done.snapshot_id == before + 1
    moved = table.to_arrow(partition={"p": "c"})
    assert sorted(moved["id"].to_pylist()) == [100, 101, 102, 103]
    assert values(table) == {
        **{one: 10 * one for one in range(4, 30)},
        **{100 + one: 10 * one for one in range(4)},
    }


@each_kind
def test_all_expressions_read_the_old_row(options: dict[str, str]) -> None:
    table = made(options, files=1)
    table.update("id = 3", {"n": "id", "id": "n"})
    assert values(table)[30] == 3


@pytest.mark.parametrize(
    ("updates", "new_values", "error", "text"),
    [
        (None, None, InvalidOption, "names a column"),
        ({"n": "1"}, {"n": 1}, InvalidOption, "both name n"),
        ({"n": 1}, None, InvalidOption, "plain values go to new_values"),
        ("n = 1", None, InvalidOption, "updates"),
        ({"x": "1"}, None, IncompatibleSchema, "no column 'x'"),
        (None, {"x": 1}, IncompatibleSchema, "no column 'x'"),
        ({"n": pc.field("x")}, None, IncompatibleSchema, "does not fit the columns"),
        ({"n": pc.field("p")}, None, IncompatibleSchema, "Column 'n'"),
        ({"n": "x + 1"}, None, InvalidOption, "names a column 'x'"),
        ({"n": "(SELECT 1)"}, None, UnsupportedFeature, "subquer"),
        ({"n": "no_such(n)"}, None, UnsupportedFeature, "(?i)no_such"),
        (None, {"n": "many"}, InvalidData, "not one of its type INT"),
        (None, {"n": 2**40}, InvalidData, "not one of its type INT"),
        (None, {"note": 2.5}, InvalidData, "not one of its type VARCHAR"),
        (None, {"note": "too long"}, ValueTooLong, "note"),
        ({"n": pc.field("n") + 2**40}, None, InvalidData, "Nothing was changed"),
        ({"n": pc.divide(pc.field("n"), pc.field("id"))}, None, InvalidData, "divide by zero"),
        ({"n": "n / 0"}, None, InvalidData, "Nothing was changed"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_changes(
    updates: Any, new_values: Any, error: type[Exception], text: str
) -> None:
    table = made(SMALL)
    there = data_files(table)
    with pytest.raises(error, match=text):
        table.update("id < 5", updates, new_values)
    assert values(table) == {one: 10 * one for one in range(30)}
    assert data_files(table) == there


@pytest.mark.parametrize(
    ("type_", "fits", "misfit"),
    [
        ("INT", 2.0, 2.5),
        (
            "TIMESTAMP(3)",
            dt.datetime(2026, 1, 1, 0, 0, 0, 1000),
            dt.datetime(2026, 1, 1, 0, 0, 0, 1),
        ),
        ("DATE", dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 5)),
        ("TIME(3)", dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4)),
    ],
)
def test_a_plain_value_is_stored_as_it_is_or_refused(type_: str, fits: Any, misfit: Any) -> None:
    table = PaimonTable.create(
        f"memory://updates-{next(_NUMBER)}/db.db/t", [("v", type_)], options=VECTORS
    )
    table.append(pa.table({"v": [None]}))
    with pytest.raises(InvalidData, match=re.escape(f"{misfit!r}, which is not one of its type")):
        table.update("v IS NULL", None, {"v": misfit})
    table.update("v IS NULL", None, {"v": fits})
    (stored,) = table.to_arrow()["v"].to_pylist()
    assert stored == (fits.date() if type_ == "DATE" else fits)


def test_null_is_refused_in_a_column_that_is_not_null() -> None:
    table = PaimonTable.create(
        f"memory://updates-{next(_NUMBER)}/db.db/t", [("id", "INT NOT NULL")], options=SMALL
    )
    table.append(pa.table({"id": pa.array([1, 2], pa.int32())}))
    with pytest.raises(NullInNotNull):
        table.update("id = 1", new_values={"id": None})
    assert table.to_arrow().to_pylist() == [{"id": 1}, {"id": 2}]


# -- others meanwhile ------------------------------------------------------------------------------
OTHERS: dict[str, Callable[[PaimonTable], object]] = {
    "append of such rows": lambda table: table.append(rows([1000])),
    "append of other rows": lambda table: table.append(rows([-1])),
    "deletion of some of the rows": lambda table: table.delete("id = 21"),
    "deletion of other rows": lambda table: table.delete("id = 3"),
    "update of the same rows": lambda table: table.update("id > 18", {"n": "n + 5"}),
    "update of other rows": lambda table: table.update("id < 5", {"n": "n + 5"}),
    "compaction": lambda table: table.compact(full=True),
    "overwrite": lambda table: table.overwrite(rows([7, 25])),
}


def expected_after(what: str, before: dict[int, int]) -> dict[int, int]:
    """The rows after what others do."""
    match what:
        case "append of such rows":
            return {**before, 1000: 10_000}
        case "append of other rows":
            return {**before, -1: -10}
        case "deletion of some of the rows":
            return {key: n for key, n in before.items() if key != 21}
        case "deletion of other rows":
            return {key: n for key, n in before.items() if key != 3}
        case "update of the same rows":
            return {key: n + 5 * (key > 18) for key, n in before.items()}
        case "update of other rows":
            return {key: n + 5 * (key < 5) for key, n in before.items()}
        case "overwrite":
            return {7: 70, 25: 250}
    return before


def updated(before: dict[int, int]) -> dict[int, int]:
    return {key: n + 1 if key >= 20 else n for key, n in before.items()}


@without_buckets
@pytest.mark.parametrize("what", OTHERS)
def test_an_update_beside_others_is_as_if_it_came_after_them(
    options: dict[str, str], what: str
) -> None:
    table = made(options)
    start = values(table)
    done = table.update("id >= 20", {"n": "n + 1"}, progress=once(lambda: OTHERS[what](table)))
    assert values(table) == updated(expected_after(what, start))
    assert done.rows == sum(key >= 20 for key in expected_after(what, start))
    assert_no_orphans(table)


@without_buckets
@pytest.mark.parametrize("what", OTHERS)
def test_a_deletion_beside_others_is_as_if_it_came_after_them(
    options: dict[str, str], what: str
) -> None:
    table = made(options)
    start = values(table)
    table.delete("id >= 20", progress=once(lambda: OTHERS[what](table)))
    assert values(table) == {key: n for key, n in expected_after(what, start).items() if key < 20}
    assert_no_orphans(table)


@pytest.mark.parametrize("options", [VECTORS, SMALL], ids=["vectors", "rewritten"])
def test_an_update_beside_others_at_each_operation_loses_nothing(options: dict[str, str]) -> None:
    for what in ("append of such rows", "compaction", "update of the same rows"):
        at, met = 0, True
        while met:
            at = following(at)
            table = made(options)
            start = present(table)
            storage = Meanwhile(
                table._table.storage, at, lambda table=table, what=what: OTHERS[what](table)
            )
            update_rows(with_storage(table, storage), "id >= 20", updates={"n": "n + 1"})  # type: ignore[arg-type]
            met = storage.happened
            before = updated(expected_after(what, start))
            after = expected_after(what, updated(start))
            assert present(table) in ((before, after) if met else (updated(start),)), (what, at)
        assert values(table) == present(table)


@pytest.mark.parametrize("name", few(FAULTS, lambda name: name in OFTEN_FAULTS))
@without_buckets
def test_an_update_that_failed_anywhere_is_done_or_not(options: dict[str, str], name: str) -> None:
    at, fired = 0, True
    while fired:
        at = following(at)
        table = made(options, files=2)
        start = present(table)
        storage = FaultyStorage(table._table.storage, [Fault(at=at, **FAULTS[name])])
        failed: BaseException | None = None
        try:
            update_rows(with_storage(table, storage), "id >= 15", updates={"n": "n + 1"})
        except (Exception, Killed) as why:  # noqa: BLE001
            failed = why
        fired = storage.fired
        done = {key: n + (key >= 15) for key, n in start.items()}
        assert present(table) == done or (failed is not None and present(table) == start)
    assert at > 10
    assert values(table) == done


@each_kind
@pytest.mark.parametrize("act", ["update", "delete", "merge"])
def test_files_that_expire_while_they_are_read_are_no_obstacle(
    options: dict[str, str], act: str
) -> None:
    table = made(options)

    def others() -> None:
        table.compact(full=True)
        table.expire_snapshots(retain_max=1, retain_min=1)

    progress = once(others)
    expected = {one: 10 * one + 1 for one in range(30)}
    if act == "update":
        table.update("id >= 0", {"n": "n + 1"}, progress=progress)
    elif act == "delete":
        table.delete("id >= 5", progress=progress)
        expected = {one: 10 * one for one in range(5)}
    else:
        source = pa.table({"id": pa.array(range(30), pa.int32())})
        merge = table.merge(source, on=["id"]).when_matched_update({"n": "target.n + 1"})
        merge.execute(progress=progress)
    assert values(table) == expected
    assert_no_orphans(table)


@each_kind
def test_a_compaction_whose_base_has_expired_is_no_obstacle(options: dict[str, str]) -> None:
    """The deletion vectors of the snapshot on which it was built are gone."""
    table = made(options)
    table.delete("id = 4")

    def others() -> None:
        table.compact(full=True)
        table.expire_snapshots(retain_max=1, retain_min=1)

    table.delete("id = 3", progress=once(others))
    assert values(table) == {one: 10 * one for one in range(30) if one not in (3, 4)}


@pytest.mark.parametrize("act", ["update", "delete", "merge"])
def test_vectors_that_are_switched_off_meanwhile_are_not_written(act: str, tmp_path: Path) -> None:
    """Java reads no deletion vectors then. Deleted rows would come back."""
    table = PaimonTable.create(str(tmp_path / "db.db" / "t"), COLUMNS, options=VECTORS)
    table.append(rows(range(10)))
    off = {"deletion-vectors.modifiable": "true", "deletion-vectors.enabled": "false"}
    changes = [SchemaChange.set_option(key, value) for key, value in off.items()]
    warehouse = catalog({"warehouse": str(tmp_path)})
    progress = once(lambda: warehouse.alter_table("db.t", changes))
    if act == "update":
        table.update("id >= 5", {"n": "n + 1"}, progress=progress)
    elif act == "delete":
        table.delete("id >= 5", progress=progress)
    else:
        source = pa.table({"id": pa.array(range(5, 10), pa.int32())})
        merge = table.merge(source, on=["id"]).when_matched_delete()
        merge.execute(progress=progress)
    expected = {one: 10 * one for one in range(5)}
    if act == "update":
        expected |= {one: 10 * one + 1 for one in range(5, 10)}
    assert values(table) == expected
    assert table.latest_snapshot().total_record_count == len(expected), "the files have no more"
    assert_no_orphans(table)


def test_a_file_that_stays_missing_ends_a_change() -> None:
    table = made(SMALL)
    (lost, *_) = sorted(data_files(table))
    table._table.storage.delete(f"bucket-0/{lost}")
    there = data_files(table)
    with pytest.raises(NotFound, match=lost):
        table.update("id >= 0", {"n": "n + 1"})
    assert data_files(table) == there


@pytest.mark.parametrize("commits", [0, 1, 3])
def test_a_row_that_a_rollback_brings_back_between_two_computations_is_found(commits: int) -> None:
    """After the rollback, others may have used the ids of snapshots again."""
    table = made(VECTORS)
    before = table.latest_snapshot().id
    table.delete("id = 25")
    loads = count(1)

    def load() -> Any:
        if next(loads) == 3:  # the second computation
            table.rollback_to(before)
            for number in range(commits):
                table.append(rows([-1 - number]))
        return table._newest()

    others = once(lambda: table.append(rows([1000])))
    delete_rows(load, "id >= 20", progress=others)
    assert values(table) == {one: 10 * one for one in range(-commits, 20)}


def test_a_second_computation_reads_and_writes_only_what_is_new() -> None:
    table = made(SMALL)
    read: list[int] = []

    def report(what: str, done: int, total: int | None) -> None:
        read.append(done)
        if len(read) == 1:
            table.append(rows([1000]))

    table.update("id >= 20", {"n": "n + 1"}, progress=report)
    assert values(table)[1000] == 10_001
    # One file by its statistics. The new one was searched while the change was published.
    assert len(read) == 1


def test_a_writer_a_second_and_a_compaction_a_minute_do_not_keep_an_update_from_ending() -> None:
    """Each operation of the storage takes long: others commit before one in three of them."""
    table = made({**VECTORS, "commit.max-retries": "30"}, partition_keys=["p"])
    operations = count()
    busy = [False]

    class Busy:
        def __getattr__(self, name: str) -> Any:
            real = getattr(table._table.storage, name)
            if not callable(real):
                return real

            def call(*given: Any) -> Any:
                number = next(operations)
                if number % 3 == 0 and number < 240 and not busy[0]:
                    busy[0] = True
                    table.append(rows([-1 - 2 * number]))  # in partition b
                    if number % 60 == 0:
                        table.compact(full=True)
                    busy[0] = False
                return real(*given)

            return call

    update_rows(with_storage(table, Busy()), "p = 'a' AND id >= 20", updates={"n": "n + 1"})
    found = values(table)
    assert {key: n for key, n in found.items() if key >= 0} == {
        one: 10 * one + (one >= 20 and one % 2 == 0) for one in range(30)
    }
    assert min(found) < -1


def test_others_that_change_the_same_rows_all_the_time_end_it_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(anew, "MOST_CONFLICTS", 3)
    table = made(SMALL)
    there = len(data_files(table))
    numbers = count(1000)
    search = MatchingRows._search

    def busy(*arguments: Any) -> None:
        table.append(rows([next(numbers)]))
        search(*arguments)

    monkeypatch.setattr(MatchingRows, "_search", busy)
    with pytest.raises(ChangedMeanwhile, match="may hold rows that matter"):
        table.update("id >= 20", {"n": "n + 1"})
    found = values(table)
    assert all(n == 10 * key for key, n in found.items())
    assert len(data_files(table)) == there + len(found) - 30


@pytest.mark.parametrize("options", [SMALL, VECTORS])
def test_an_error_of_the_progress_function_leaves_no_orphans(options: dict[str, str]) -> None:
    """The function is not called while the change is published, when files of others are searched."""
    table = made(options)
    calls = count()

    def progress(*_: object) -> None:
        if next(calls) == 0:
            table.append(rows([-5, 1000]))
        else:
            raise RuntimeError("the caller's function fails")

    with suppress(RuntimeError):
        table.update("id >= 20", {"n": "n + 1"}, progress=progress)
    assert_no_orphans(table)
