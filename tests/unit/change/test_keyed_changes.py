"""Deleting and updating rows of tables with a primary key: what is read, what is written, and what
others do meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.change import anew
from paimon_stream.change.anew import carry_out
from paimon_stream.change.keyed import KeyedChange, KeyedRows, Wanted
from paimon_stream.change.keyed_delete import KeyedDeletion
from paimon_stream.change.keyed_update import Assignments, KeyedUpdate
from paimon_stream.errors import (
    ChangedMeanwhile,
    CommitUnknown,
    InvalidData,
    InvalidOption,
    StorageError,
    TableRolledBack,
    UnsupportedFeature,
)
from paimon_stream.format.schema_json import encode_schema
from paimon_stream.format.types import parse_type
from paimon_stream.runtime import system
from paimon_stream.storage.base import Storage
from tests.kits.faults import FAULTS, OFTEN_FAULTS, Fault, FaultyStorage, Killed
from tests.kits.params import few
from tests.kits.places import following
from tests.kits.races import Meanwhile

_NUMBER = count()
COLUMNS = [("k", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "STRING"), ("n", "BIGINT")]
Load = Callable[[], Any]


def made(
    options: Mapping[str, str] = {}, *, batches: int = 3, partitioned: bool = False
) -> PaimonTable:
    """A table with the keys from 0, ten in each commit."""
    table = PaimonTable.create(
        f"memory://keyed-{next(_NUMBER)}/db.db/t",
        COLUMNS,
        primary_keys=["k", "p"] if partitioned else ["k"],
        partition_keys=["p"] if partitioned else [],
        options={"bucket": "2", **options},
    )
    for number in range(batches):
        table.append(rows(range(10 * number, 10 * number + 10)))
    return table


def rows(keys: Iterable[int], **values: Any) -> pa.Table:
    """Rows of these keys. `values` replace those of whole columns."""
    some = list(keys)
    columns = {
        "k": pa.array(some, pa.int32()),
        "p": pa.array(["ab"[key % 2] for key in some]),
        "v": pa.array([f"v{key}" for key in some]),
        "n": pa.array([10 * key for key in some], pa.int64()),
    }
    for name, value in values.items():
        columns[name] = pa.array([value] * len(some), columns[name].type)
    return pa.table(columns)


def deletion(table: PaimonTable, where: Any, load: Load | None = None) -> KeyedDeletion:
    return KeyedDeletion(load or table._newest, where, system())


def setting(**values: Any) -> Callable[[Any], Assignments]:
    """Sets columns to a value, or to what a function makes of the column."""

    def assign(before: pa.RecordBatch) -> pa.RecordBatch:
        for name, value in values.items():
            place = before.schema.get_field_index(name)
            field = before.schema.field(place)
            if callable(value):
                column = value(before.column(name)).cast(field.type)
            else:
                column = pa.array([value] * before.num_rows, field.type)
            before = before.set_column(place, field, column)
        return before

    return lambda _: Assignments(list(values), assign)


def update(table: PaimonTable, where: Any, load: Load | None = None, **values: Any) -> KeyedUpdate:
    return KeyedUpdate(load or table._newest, where, setting(**values), system())


def do(change: KeyedChange) -> KeyedChange:
    carry_out(change, system())
    return change


def present(table: PaimonTable) -> dict[int, tuple[str, int]]:
    return {row["k"]: (row["v"], row["n"]) for row in table.to_arrow().to_pylist()}


def data_files(table: PaimonTable) -> list[str]:
    return [
        f"bucket-{bucket}/{file.name}"
        for bucket in range(2)
        for file in table._table.storage.list_files(f"bucket-{bucket}")
    ]


def whole(table: PaimonTable) -> dict[int, tuple[str, int]]:
    """The rows of a table that `verify` finds in order."""
    assert not [one for one in table.verify().findings if one.severity != "info"]
    return present(table)


ALL = {key: (f"v{key}", 10 * key) for key in range(30)}


@pytest.mark.parametrize("options", [{}, {"bucket": "-1"}, {"sequence.field": "n"}])
@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_are_deleted_updated_and_moved_each_in_one_snapshot(
    options: dict[str, str], partitioned: bool
) -> None:
    table = made(options, partitioned=partitioned)
    first = table.latest_snapshot().id
    gone = do(deletion(table, pc.field("k") < 5))
    assert gone.changed is not None and gone.changed.deleted == 5
    do(update(table, pc.field("v") == "v7", v="new"))
    do(update(table, pc.field("k") == 9, k=90))
    wanted = {key: row for key, row in ALL.items() if key >= 5}
    wanted[7] = ("new", 70)
    wanted[90] = wanted.pop(9)
    assert whole(table) == wanted
    assert table.latest_snapshot().id == first + 3
    assert present(PaimonTable.load(table.location)) == wanted


def test_a_dry_run_writes_nothing_and_knows_the_rows_and_files() -> None:
    table = made()
    before = data_files(table)
    change = deletion(table, pc.field("k") < 15)
    _, changed = change.plan()
    assert changed is not None and changed.deleted == 15
    assert change.read is not None
    assert change.read.files_read == 4  # of three commits with two buckets
    assert data_files(table) == before


def test_a_table_deletes_by_an_expression_or_a_text_and_reports_it() -> None:
    table = made()
    dry = table.delete("k < 3 AND v <> 'v1'", dry_run=True)
    assert (dry.rows, dry.files_read, dry.snapshot_id) == (2, 2, None)
    report = table.delete("k < 3 AND v <> 'v1'")
    assert (report.rows, report.snapshot_id) == (2, 4)
    assert whole(table) == {key: row for key, row in ALL.items() if key not in (0, 2)}
    for slip in (7, None):
        with pytest.raises(InvalidOption, match=f"where is {slip}"):
            table.delete(slip)
    hidden = made({"deletion-vectors.enabled": "true", "write-only": "true"}, batches=1)
    with pytest.raises(UnsupportedFeature, match="nothing compacts it here"):
        PaimonTable.create(
            f"memory://keyed-{next(_NUMBER)}/db.db/t",
            COLUMNS,
            primary_keys=["k"],
            options={"bucket": "1", "deletion-vectors.enabled": "true"},
        ).delete("k = 1")
    assert hidden.delete("k = 1").rows == 1


def test_no_row_to_change_is_no_snapshot() -> None:
    table = made()
    assert carry_out(deletion(table, pc.field("k") > 100), system()) is None
    assert carry_out(deletion(made(batches=0), pc.field("k") == 1), system()) is None
    assert table.latest_snapshot().id == 3


HIDDEN = [
    {"deletion-vectors.enabled": "true", "write-only": "true"},
    {"merge-engine": "deduplicate", "changelog-producer": "lookup", "write-only": "true"},
]


@pytest.mark.parametrize("options", HIDDEN)
def test_rows_that_no_reader_sees_yet_are_read_and_changed(options: dict[str, str]) -> None:
    table = made(options)
    do(deletion(table, pc.field("v") == "v3"))
    do(update(table, pc.field("k") == 4, n=pc.negate))
    table.compact(full=True)
    wanted = {key: row for key, row in ALL.items() if key != 3} | {4: ("v4", -40)}
    assert whole(table) == wanted
    table.append(rows([5], v="later"))
    do(deletion(table, pc.field("v") == "later"))
    do(update(table, pc.field("v") == "v6", v="changed"))
    table.compact(full=True)
    wanted.pop(5)
    wanted[6] = ("changed", 60)
    assert whole(table) == wanted


def test_only_files_that_may_have_such_keys_are_opened() -> None:
    table = made(partitioned=True)
    change = deletion(table, (pc.field("p") == "a") & (pc.field("k") < 10))
    change.plan()
    assert change.read is not None
    assert change.read.files_read <= 2
    moved = update(table, pc.field("k") == 29, k=31)
    moved.plan()
    assert moved.read is not None
    assert moved.read.files_read <= 2


def test_a_merge_clause_about_a_partition_opens_only_files_that_may_matter() -> None:
    table = made(partitioned=True)
    source = pa.table({"k": pa.array([4], pa.int32()), "p": ["a"]})
    merge = (
        table.merge(source, on=["k", "p"])
        .when_matched_update({"v": "'new'"})
        .when_not_matched_by_source_delete("p = 'a' AND k < 10")
    )
    every = merge.execute(dry_run=True)
    assert (every.rows_updated, every.rows_deleted) == (1, 4)
    assert every.files_read <= 2
    merge.execute()
    assert whole(table) == {key: row for key, row in ALL.items() if key % 2 or key >= 10} | {
        4: ("new", 40)
    }


INPUT = {"changelog-producer": "input"}


@pytest.mark.parametrize(
    "options",
    [
        INPUT,
        {
            **INPUT,
            "merge-engine": "partial-update",
            "partial-update.remove-record-on-delete": "true",
        },
        {
            **INPUT,
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
            "aggregation.remove-record-on-delete": "true",
        },
    ],
)
def test_a_changelog_has_the_whole_rows_before_and_after(options: dict[str, str]) -> None:
    table = made(options)
    table.append(rows([1]))
    do(update(table, pc.field("k") == 1, v="new"))
    do(deletion(table, pc.field("k") == 2))
    do(update(table, pc.field("k") == 3, k=33))
    log = table.to_arrow(options={"incremental-between": "4,7", "read.changelog": "true"})
    summed = 20 if "fields.n.aggregate-function" in options else 10
    assert sorted(tuple(row.values()) for row in log.to_pylist()) == sorted(
        [
            ("-U", 1, "b", "v1", summed),
            ("+U", 1, "b", "new", summed),
            ("-D", 2, "a", "v2", 20),
            ("-D", 3, "b", "v3", 30),
            ("+I", 33, "b", "v3", 30),
        ]
    )
    wanted = {key: row for key, row in ALL.items() if key not in (2, 3)}
    wanted |= {1: ("new", summed), 33: ("v3", 30)}
    assert whole(table) == wanted


def test_what_a_table_cannot_do_is_refused_by_name() -> None:
    table = made({"merge-engine": "first-row", "write-only": "true"})
    with pytest.raises(UnsupportedFeature, match="first-row, which keeps the first row"):
        do(deletion(table, pc.field("k") == 1))
    with pytest.raises(UnsupportedFeature, match="first-row"):
        do(update(table, pc.field("k") == 1, v="x"))
    table = made({"bucket": "-2"})
    with pytest.raises(UnsupportedFeature, match="bucket = -2"):
        do(deletion(table, pc.field("k") == 1))
    table = made({"sequence.field": "n"})
    with pytest.raises(InvalidData, match="Set n so that the new row wins"):
        do(update(table, pc.field("k") == 4, n=1))
    with pytest.raises(InvalidData, match=r"a row of the table has, such as \(k = 5\)"):
        do(update(table, pc.field("k") == 4, k=5))
    assert whole(table) == ALL


def test_the_texts_of_kinds_follow_what_is_done() -> None:
    table = PaimonTable.create(
        f"memory://keyed-{next(_NUMBER)}/db.db/t",
        [("k", "INT NOT NULL"), ("kind", "STRING"), ("v", "STRING")],
        primary_keys=["k"],
        options={"bucket": "1", "rowkind.field": "kind", **INPUT},
    )
    kinds = pa.array(["+I"] * 4)
    table.append(
        pa.table({"k": pa.array(range(4), pa.int32()), "kind": kinds, "v": ["a", "b", "c", "d"]})
    )
    do(deletion(table, pc.field("k") == 1))
    do(update(table, pc.field("k") == 2, v="new"))
    assert table.to_arrow().to_pylist() == [
        {"k": 0, "kind": "+I", "v": "a"},
        {"k": 2, "kind": "+U", "v": "new"},
        {"k": 3, "kind": "+I", "v": "d"},
    ]
    with pytest.raises(UnsupportedFeature, match=r"rowkind\.field"):
        do(update(table, pc.field("k") == 0, kind="-D"))


# -- beside others --------------------------------------------------------------------------------


def loading(table: PaimonTable, storage: Storage) -> Load:
    return lambda: replace(table._newest(), storage=storage)


OTHERS: Mapping[str, Callable[[PaimonTable], object]] = {
    "a row of a key that goes": lambda table: table.append(rows([3], v="theirs")),
    "a row that fulfils the condition": lambda table: table.append(rows([77], v="v3")),
    "rows of other keys": lambda table: table.append(rows([11, 41], v="theirs")),
    "a compaction": lambda table: table.compact(full=True),
}


@pytest.mark.parametrize(
    ("options", "what"),
    few(
        [
            (options, what)
            for options in ({}, {"sequence.field": "n"}, {"bucket": "-1"})
            for what in OTHERS
        ],
        lambda options, what: (options, what) == ({}, "a row that fulfils the condition"),
    ),
)
def test_a_change_beside_others_at_each_operation_is_as_if_it_came_after_them(
    options: dict[str, str], what: str
) -> None:
    at, met = 0, True
    while met:
        at = following(at)
        table = made(options, batches=1)
        storage = Meanwhile(table._table.storage, at, lambda table=table: OTHERS[what](table))
        where = pc.field("v").isin(["v3", "v8"])
        load = loading(table, storage)
        do(update(table, where, load, v="changed"))
        met = storage.happened
        ours_came_first = present(table).get(77, ("", 0))[0] == "v3"
        wanted = {key: ALL[key] for key in range(10)}
        wanted |= {3: ("changed", 30), 8: ("changed", 80)}
        if met and what == "a row of a key that goes":
            # Ours came after theirs, where no row fulfils the condition any more, or before it.
            wanted[3] = ("theirs", 30)
        if met and what == "a row that fulfils the condition":
            wanted[77] = ("v3" if ours_came_first else "changed", 770)
        if met and what == "rows of other keys":
            wanted |= {11: ("theirs", 110), 41: ("theirs", 410)}
        assert present(table) == wanted, at
    assert at > 10
    assert whole(table) == wanted


@pytest.mark.parametrize("name", few(FAULTS, lambda name: name in OFTEN_FAULTS))
def test_a_change_that_failed_anywhere_is_done_or_not_and_leaves_no_file_behind(name: str) -> None:
    at, fired = 0, True
    while fired:
        at = following(at)
        table = made(batches=1)
        before = data_files(table)
        storage = FaultyStorage(table._table.storage, [Fault(at=at, **FAULTS[name])])
        failed: BaseException | None = None
        try:
            do(update(table, pc.field("v") == "v3", loading(table, storage), k=33))
        except (Exception, Killed) as why:  # noqa: BLE001
            failed = why
        fired = storage.fired
        moved = {key: row for key, row in ALL.items() if key < 10 and key != 3} | {33: ALL[3]}
        if present(table) == moved:
            continue
        assert failed is not None
        assert present(table) == {key: ALL[key] for key in range(10)}
        if not isinstance(failed, Killed | CommitUnknown | StorageError):
            assert data_files(table) == before
    assert at > 10
    assert whole(table) == moved


def test_a_table_that_was_created_again_meanwhile_gets_none_of_the_rows() -> None:
    table = made(batches=1)
    storage = table._table.storage

    class Late(KeyedUpdate):
        def compute(self) -> Any:
            computed = super().compute()
            if computed is not None:
                storage.clear()  # type: ignore[attr-defined]
                PaimonTable.create(
                    table.location, COLUMNS, primary_keys=["k"], options={"bucket": "2"}
                )
            return computed

    change = Late(table._newest, pc.field("k") == 3, setting(v="new"), system())
    with pytest.raises(TableRolledBack):
        carry_out(change, system())
    assert PaimonTable.load(table.location).latest_snapshot() is None


def test_rows_of_other_keys_are_no_conflict_and_nothing_is_computed_again() -> None:
    table = made()
    computed = []

    class Counted(KeyedUpdate):
        def plan(self) -> Any:
            computed.append(1)
            planned = super().plan()
            if len(computed) == 1:
                for number in range(20):
                    table.append(rows([100 + 2 * number, 13]))
            return planned

    change = Counted(table._newest, pc.field("v") == "v3", setting(v="new"), system())
    carry_out(change, system())
    assert computed == [1]
    assert whole(table)[3] == ("new", 30)


def test_a_change_beside_a_writer_that_always_commits_ends() -> None:
    """The writer takes sequence numbers of the same bucket each time that rows were written."""
    table = made({"bucket": "1"})
    written = []

    class Slow(KeyedUpdate):
        def _write(self, *arguments: Any) -> Any:
            written.append(1)
            computed = super()._write(*arguments)
            table.append(rows(range(100, 120)))
            return computed

    carry_out(Slow(table._newest, pc.field("k") == 3, setting(v="new"), system()), system())
    assert len(written) < 5
    assert whole(table)[3] == ("new", 30)


def test_others_that_always_change_the_same_rows_end_a_change_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(anew, "MOST_CONFLICTS", 3)
    table = made({"bucket": "1"}, batches=1)

    class Contended(KeyedUpdate):
        def plan(self) -> Any:
            planned = super().plan()
            table.append(rows([3]))
            return planned

    change = Contended(table._newest, pc.field("k") == 3, setting(n=1), system())
    with pytest.raises(ChangedMeanwhile, match="new files may hold rows that matter"):
        carry_out(change, system())
    assert whole(table)[3] == ("v3", 30)


def test_where_rows_are_merged_by_column_a_row_of_any_key_may_come_to_fulfil_a_condition() -> None:
    table = made({"merge-engine": "partial-update"}, batches=1)
    table.append(rows([4], n=5))
    planned = []

    class Beside(KeyedUpdate):
        def plan(self) -> Any:
            done = super().plan()
            planned.append(1)
            if len(planned) == 1:  # key 7 has its v, and this row has none
                table.append(rows([7], v=None, n=5))
            return done

    where = pc.field("v").isin(["v4", "v7"]) & (pc.field("n") == 5)
    carry_out(Beside(table._newest, where, setting(v="new"), system()), system())
    assert len(planned) == 2
    there = whole(table)
    assert (there[4], there[7]) == (("new", 5), ("new", 5))


# -- other columns --------------------------------------------------------------------------------


def with_columns(table: PaimonTable, **changes: Any) -> PaimonTable:
    """The table after another engine has altered columns. `changes` are fields of the columns."""
    schema = table._newest().schema
    fields = tuple(replace(field, **changes.get(field.name, {})) for field in schema.fields)
    altered = replace(schema, id=schema.id + 1, fields=fields)
    table._table.storage.put_if_absent(f"schema/schema-{altered.id}", encode_schema(altered))
    return PaimonTable.load(table.location)


def test_a_default_is_for_new_rows_only() -> None:
    table = made(batches=1)
    table.append(rows([3, 4], v=None))
    table = with_columns(table, v={"default_value": "default"})
    table.update("k = 3", {"n": "n + 1"})
    table.update("k = 5", new_values={"v": None})
    source = pa.table({"k": [4, 50], "p": ["a", "b"], "n": [1, 1]})
    merge = table.merge(source, on=["k"]).when_matched_update({"n": "source.n"})
    merge.when_not_matched_insert_all(except_cols=["v"]).execute()
    wanted: dict[int, Any] = {key: ALL[key] for key in range(10)}
    wanted |= {3: (None, 31), 4: (None, 1), 5: (None, 50), 50: ("default", 1)}
    assert whole(table) == wanted


def test_a_default_is_not_added_to_a_sum() -> None:
    options = {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    }
    table = with_columns(made(options, batches=1), n={"default_value": "5"})
    table.update("k = 3", new_values={"v": "new"})
    table.delete("k = 4")
    table.append(rows([4], n=1))
    assert whole(table) == {key: ALL[key] for key in range(10)} | {3: ("new", 30), 4: ("v4", 1)}


def test_a_row_that_others_write_with_newer_columns_is_no_error() -> None:
    table = made(batches=1)

    def others() -> None:
        newer = with_columns(table, n={"type": parse_type("DOUBLE")})
        newer.append(rows([33]).set_column(3, "n", pa.array([80.5])))

    change = deletion(table, "n > 80")
    wanted = change.wanted
    computed = []

    def meanwhile(of: KeyedRows) -> Wanted:
        computed.append(of.table.schema.id)
        planned = wanted(of)
        if len(computed) == 1:
            others()
        return planned

    change.wanted = meanwhile  # type: ignore[method-assign]
    do(change)
    assert computed == [0, 1]
    assert whole(PaimonTable.load(table.location)) == {key: ALL[key] for key in range(9)}


@pytest.mark.parametrize(
    "altered", [{"file.format": "orc"}, {"file.format.per.level": "5:orc"}, {}]
)
def test_keys_that_have_lost_blanks_in_orc_files_are_refused(altered: dict[str, str]) -> None:
    """A -D would go to the bucket of the key without blanks, and delete nothing."""
    columns = [("k", "CHAR(5) NOT NULL"), ("n", "INT")]
    table = PaimonTable.create(
        f"memory://keyed-{next(_NUMBER)}/db.db/t",
        columns,
        primary_keys=["k"],
        options={"bucket": "8", "file.format": "orc"},
    )
    table.append(
        pa.table({"k": [f"{one} " for one in "abcdefgh"], "n": pa.array(range(8), "int32")})
    )
    schema = table._newest().schema
    schema = replace(schema, id=1, options={"bucket": "8", **altered})
    table._table.storage.put_if_absent("schema/schema-1", encode_schema(schema))
    table = PaimonTable.load(table.location)
    with pytest.raises(UnsupportedFeature, match="the CHAR column 'k' in its primary key and ORC"):
        table.delete("n >= 0")
    with pytest.raises(UnsupportedFeature, match="the CHAR column 'k' in its primary key and ORC"):
        table.update("n = 3", {"n": "99"})
    assert table.to_arrow()["n"].to_pylist() and table.latest_snapshot().id == 1
