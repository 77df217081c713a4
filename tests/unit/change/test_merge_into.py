"""Merging into append tables: what becomes of rows and files, and what others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.api.merging import TableMerge
from paimon_stream.change.anew import carry_out
from paimon_stream.change.merge_into import merge_into, merge_of
from paimon_stream.change.update_rows import update_rows
from paimon_stream.errors import (
    AmbiguousMerge,
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
    NullInNotNull,
    UnsupportedFeature,
)
from paimon_stream.runtime import system
from tests.unit.change.test_update_rows import (
    KINDS,
    assert_no_orphans,
    data_files,
    each_kind,
    made,
    once,
    rows,
    values,
    with_storage,
)


class OpenedFiles:
    """A storage that notes which data files are opened for reading."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.opened: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def open_input(self, path: str) -> Any:
        if "data-" in path:
            self.opened.add(path)
        return self._storage.open_input(path)


def changes(**columns: list[Any]) -> pa.Table:
    types = {"id": pa.int32(), "n": pa.int32()}
    return pa.table({name: pa.array(each, types.get(name)) for name, each in columns.items()})


def upsert(table: PaimonTable, ids: Iterable[int], add: int = 1) -> TableMerge:
    """A merge that adds to the `n` of these ids, and inserts those that the table lacks."""
    ids = list(ids)
    source = changes(id=ids, n=[add] * len(ids))
    return (
        table.merge(source, on=["id"])
        .when_matched_update({"n": "target.n + source.n"})
        .when_not_matched_insert({"id": "source.id", "n": "source.n", "p": "'a'"})
    )


@each_kind
@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_are_updated_deleted_and_inserted_in_one_snapshot(
    options: dict[str, str], partitioned: bool
) -> None:
    table = made(options, partition_keys=["p"] if partitioned else [])
    before = table.latest_snapshot()
    source = changes(id=[3, 4, 15, 40], n=[1, None, 1, 7], p=["a", "a", "b", "b"])
    merge = (
        table.merge(source, on=["id"])
        .when_matched_delete("source.n IS NULL")
        .when_matched_update({"n": "target.n + source.n", "p": "source.p"})
        .when_not_matched_insert_all(except_cols=["note"])
    )
    tried = merge.execute(dry_run=True)
    assert table.latest_snapshot() == before and tried.snapshot_id is None and tried.dry_run
    done = merge.execute()
    assert (done.rows_updated, done.rows_deleted, done.rows_inserted) == (2, 1, 1)
    assert (tried.rows_updated, tried.rows_deleted, tried.rows_inserted) == (2, 1, 1)
    assert done.source_rows == 4 and done.files == tried.files >= 2
    expected = {one: 10 * one for one in range(30) if one != 4} | {3: 31, 15: 151, 40: 7}
    assert values(table) == expected
    assert table.latest_snapshot().id == before.id + 1 == done.snapshot_id
    assert {row["id"]: row["p"] for row in table.to_arrow().to_pylist()}[3] == "a"
    assert table.to_arrow(snapshot_id=before.id).num_rows == 30
    table.compact(full=True)
    assert values(table) == expected


@each_kind
def test_a_merge_that_changes_nothing_publishes_nothing(options: dict[str, str]) -> None:
    table = made(options)
    before = table.latest_snapshot()
    merge = table.merge(changes(id=[99], n=[1]), on=["id"]).when_matched_delete()
    report = merge.execute()
    assert report.snapshot_id is None and report.rows_deleted == 0
    assert table.latest_snapshot() == before
    assert_no_orphans(table)


def test_a_merge_into_an_empty_table_appends() -> None:
    table = made({}, files=0)
    assert upsert(table, [1, 2]).execute().rows_inserted == 2
    assert values(table) == {1: 1, 2: 1}
    assert table.latest_snapshot().commit_kind.value == "APPEND"


def test_only_files_that_may_have_a_key_are_read() -> None:
    table = made({}, files=5)
    report = upsert(table, [23, 24]).execute(dry_run=True)
    assert (report.rows_updated, report.files_read) == (2, 1)
    many = upsert(table, range(20, 400)).execute(dry_run=True)
    assert (many.rows_updated, many.files_read) == (30, 3)
    wide = table.merge(pa.table({"id": [23, 2**40]}), on=["id"]).when_matched_delete()
    assert wide.execute(dry_run=True).files_read == 1
    for predicate, files in (
        ("id = 1", 2),
        ("id = 1 AND 6 / n > 0", 2),
        ("id + 1 = 2", 5),
        (None, 5),
    ):
        alone = table.merge(changes(id=[23]), on=["id"])
        alone.when_not_matched_by_source_delete(predicate)
        assert alone.execute(dry_run=True).files_read == files, predicate


@each_kind
def test_a_clause_about_partitions_opens_the_files_of_these_and_of_the_keys(
    options: dict[str, str],
) -> None:
    table = made(options, partition_keys=["p"])
    in_b = {one: 10 * one for one in range(30) if one % 2}
    source = changes(id=[4, 40], n=[7, 7], p=["a", "a"])
    merge = (
        table.merge(source, on=["p", "id"])
        .when_matched_update({"n": "source.n"})
        .when_not_matched_insert_all(except_cols=["note"])
        .when_not_matched_by_source_delete("p = 'a' AND id < 10")
    )
    storage = OpenedFiles(table._table.storage)
    report = merge_into(with_storage(table, storage), source, merge._words)
    assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (1, 4, 1)
    assert storage.opened and all(path.startswith("p=a/") for path in storage.opened)
    in_a = {one: 10 * one for one in range(10, 30, 2)} | {4: 7, 40: 7}
    assert values(table) == in_a | in_b


def merged_by_a_stream(table: PaimonTable, storage: Any) -> None:
    source = changes(id=[23], n=[1])
    carry_out(
        merge_of(with_storage(table, storage), source, upsert(table, [23])._words, system()),
        system(),
    )


UPDATES: dict[str, Callable[[PaimonTable, Any], object]] = {
    "update": lambda table, storage: update_rows(
        with_storage(table, storage), "id = 23", updates={"n": "n + 1"}
    ),
    "merge": lambda table, storage: merge_into(
        with_storage(table, storage), changes(id=[23], n=[1]), upsert(table, [23])._words
    ),
    "merge of a stream": merged_by_a_stream,
}


@each_kind
@pytest.mark.parametrize("what", UPDATES)
def test_only_the_file_with_the_row_is_opened_and_replaced(
    options: dict[str, str], what: str
) -> None:
    """Each commit has its own range of ids."""
    table = made(options, files=5)
    before = data_files(table)
    storage = OpenedFiles(table._table.storage)
    UPDATES[what](table, storage)
    opened = {path for path in storage.opened if path.rpartition("/")[2] in before}
    assert 1 <= len(opened) <= 1 + ("bucket" in options), opened
    new_files = data_files(table) - before
    has_vectors = "deletion-vectors.enabled" in options
    assert len(new_files) == (1 if has_vectors else 2)
    assert values(table) == {one: 10 * one for one in range(50)} | {23: 231}


OTHERS: dict[str, tuple[Callable[[PaimonTable], object], dict[int, int]]] = {
    "appends other keys": (lambda table: table.append(rows([50])), {50: 500}),
    "appends a key that would be inserted": (lambda table: table.append(rows([40])), {40: 401}),
    "deletes a row that would be updated": (lambda table: table.delete("id = 3"), {3: 1}),
    "deletes another row of such a file": (lambda table: table.delete("id = 5"), {}),
    "updates a row that would be updated": (
        lambda table: table.update("id = 3", {"n": "1000"}),
        {3: 1001},
    ),
    "compacts": (lambda table: table.compact(full=True), {}),
    "overwrites": (lambda table: table.overwrite(rows([3])), {3: 31, 15: 1, 40: 1}),
    "merges the same": (
        lambda table: upsert(table, [3, 15, 40]).execute(),
        {3: 32, 15: 152, 40: 2},
    ),
}


@each_kind
@pytest.mark.parametrize("what", OTHERS)
def test_what_others_do_meanwhile_is_taken_into_account(options: dict[str, str], what: str) -> None:
    """As if the merge had begun after them."""
    table = made(options)
    act, changed = OTHERS[what]
    upsert(table, [3, 15, 40]).execute(progress=once(lambda: act(table)))
    expected = {one: 10 * one for one in range(30)} | {3: 31, 15: 151, 40: 1}
    if what == "overwrites":
        expected = {}
    if what == "deletes another row of such a file":
        del expected[5]
    assert values(table) == expected | changed
    assert_no_orphans(table)


def test_a_row_that_was_deleted_before_its_file_was_compacted_is_no_match() -> None:
    """The compaction leaves no vector that tells of the deletion."""
    table = made(KINDS["vectors"])

    def others() -> None:
        table.delete("id = 3")
        table.compact(full=True)

    merge = table.merge(changes(id=[3, 40], n=[1, 1]), on=["id"])
    merge = merge.when_not_matched_insert({"id": "source.id", "n": "source.n"})
    assert merge.execute(progress=once(others)).rows_inserted == 2
    assert values(table) == {one: 10 * one for one in range(30)} | {3: 1, 40: 1}
    assert_no_orphans(table)


@each_kind
def test_a_row_that_others_append_is_one_without_a_match(options: dict[str, str]) -> None:
    table = made(options)
    source = changes(id=list(range(29)))
    merge = table.merge(source, on=["id"]).when_not_matched_by_source_delete()
    merge.execute(progress=once(lambda: table.append(rows([50]))))
    assert values(table) == {one: 10 * one for one in range(29)}


def test_commits_to_other_keys_do_not_make_it_begin_anew() -> None:
    table = made(KINDS["vectors"])
    seen: list[int] = []

    def others(what: str, done: int, total: int | None) -> None:
        seen.append(done)
        table.append(rows([100 + len(seen)]))

    upsert(table, [3, 15, 40]).execute(progress=others)
    assert len(seen) == 2, "each of the files that may have a key was read once"
    assert values(table)[3] == 31


def test_the_source_comes_in_every_form_that_append_takes() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    source = changes(id=[3, 40], n=[1, 1])
    forms = {
        "table": source,
        "batch": source.to_batches()[0],
        "reader": pa.RecordBatchReader.from_batches(source.schema, source.to_batches()),
        "pandas": pandas.DataFrame({"id": [3, 40], "n": [1, 1]}),
        "polars": polars.DataFrame({"id": [3, 40], "n": [1, 1]}),
    }
    for name, form in forms.items():
        table = made({})
        merge = table.merge(form, on=["id"]).when_matched_update({"n": "target.n + source.n"})
        merge.when_not_matched_insert({"id": "source.id", "n": "source.n"})
        assert merge.execute(dry_run=True).rows_updated == 1, name
        merge.execute()
        assert values(table) == {one: 10 * one for one in range(30)} | {3: 31, 40: 1}, name


def test_a_reader_is_read_once_when_others_commit_meanwhile() -> None:
    table = made(KINDS["vectors"])
    source = changes(id=[3, 40], n=[1, 1])
    reader = pa.RecordBatchReader.from_batches(source.schema, source.to_batches())
    merge = table.merge(reader, on=["id"]).when_matched_update({"n": "source.n"})
    merge.execute(progress=once(lambda: table.delete("id = 3")))
    merge.when_not_matched_insert({"id": "source.id", "n": "source.n"}).execute()
    assert values(table)[3] == 1


@each_kind
def test_an_error_leaves_table_and_storage_as_they_were(options: dict[str, str]) -> None:
    table = made(options)
    before = table.latest_snapshot()
    several = changes(id=[3, 15, 15], n=[1, 1, 1])
    cases: list[tuple[TableMerge, type[Exception], str]] = [
        (
            table.merge(several, on=["id"]).when_matched_update({"n": "source.n"}),
            AmbiguousMerge,
            "keys of such rows: 15",
        ),
        (
            table.merge(changes(id=[3, 20]), on=["id"]).when_matched_update(
                {"n": "target.n / (target.id - 20)"}
            ),
            InvalidData,
            "cannot be computed for a row: divide by zero",
        ),
        (
            table.merge(changes(id=[3, 99]), on=["id"])
            .when_matched_update({"n": "1"})
            .when_not_matched_insert({"note": "'too long for it'", "id": "source.id"}),
            InvalidData,
            "note",
        ),
    ]
    for merge, error, message in cases:
        with pytest.raises(error, match=message) as refused:
            merge.execute()
        assert table.location in str(refused.value)
    assert table.latest_snapshot() == before
    assert_no_orphans(table)


def test_null_in_a_column_that_forbids_it_and_defaults() -> None:
    columns = [("id", "INT NOT NULL"), ("v", "STRING")]
    table = PaimonTable.create("memory://merges-1/db.db/t", columns)
    table.append(pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]}))
    merge = table.merge(pa.table({"id": [None, 1]}), on=["id"])
    with pytest.raises(NullInNotNull, match="'id'"):
        merge.when_not_matched_insert({"id": "source.id"}).execute()


def test_what_cannot_be_merged_is_refused_by_name() -> None:
    source = pa.table({"id": [1], "v": ["a"]})
    evolving = PaimonTable.create(
        "memory://merges-2/db.db/t",
        [("id", "INT"), ("v", "STRING")],
        options={"data-evolution.enabled": "true", "row-tracking.enabled": "true"},
    )
    with pytest.raises(UnsupportedFeature, match=r"data-evolution\.enabled = true"):
        evolving.merge(source, on=["id"]).when_matched_delete().execute()
    table = made({})
    with pytest.raises(InvalidOption, match="the merge has no clause") as refused:
        table.merge(source, on=["id"]).execute()
    assert table.location in str(refused.value)
    with pytest.raises(IncompatibleSchema, match=r"not as list\."):
        table.merge([1], on=["id"]).when_matched_delete().execute()  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=r"updates is \{\}"):
        table.merge(source, on=["id"]).when_matched_update({})
    with pytest.raises(InvalidOption, match="Give a list of names"):
        table.merge(source, on=["id"]).when_matched_update_all(except_cols="v")
    unknown = table.merge(rows([1]), on=["id"]).when_matched_update_all(except_cols=["nte"])
    with pytest.raises(InvalidOption, match="except_cols has 'nte', which is no column"):
        unknown.execute()
    with pytest.raises(InvalidOption, match="dry_run is 1"):
        table.merge(source, on=["id"]).when_matched_delete().execute(dry_run=1)  # type: ignore[arg-type]
    same = table.merge(source, on=["id"], source_alias="t", target_alias="t").when_matched_delete()
    with pytest.raises(InvalidOption, match="Give two different words"):
        same.execute()


def delta_table(**columns: list[Any]) -> PaimonTable:
    delta_table.count += 1  # type: ignore[attr-defined]
    where = f"memory://merged-delta-{delta_table.count}/db.db/t"  # type: ignore[attr-defined]
    types = [(name, "STRING" if name in ("data", "op") else "BIGINT") for name in columns]
    table = PaimonTable.create(where, types, options=KINDS["vectors"])
    table.append(pa.table(columns))
    return table


delta_table.count = 0  # type: ignore[attr-defined]


def present(table: PaimonTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def test_logs_are_deduplicated_as_in_deltas_documentation() -> None:
    logs = delta_table(id=[1, 2], day=[1, 9])
    new = pa.table({"id": [2, 3, 1], "day": [9, 9, 9]})
    on = "logs.id = new.id AND logs.day > 2"
    merge = logs.merge(new, on=on, source_alias="new", target_alias="logs")
    merge.when_not_matched_insert_all("new.day > 2").execute()
    assert present(logs) == [(1, 1), (1, 9), (2, 9), (3, 9)]


def test_a_slowly_changing_dimension_is_kept_as_in_deltas_documentation() -> None:
    customers = delta_table(id=[1, 2], data=["old", "same"], current=[1, 1], until=[None, None])
    updates = pa.table({"merge_id": [1, None], "id": [1, 1], "data": ["new", "new"]})
    merge = customers.merge(
        updates, on="customers.id = s.merge_id", source_alias="s", target_alias="customers"
    )
    merge.when_matched_update(
        {"current": "0", "until": "7"}, "customers.current = 1 AND customers.data <> s.data"
    )
    merge.when_not_matched_insert({"id": "s.id", "data": "s.data", "current": "1"}).execute()
    assert sorted(present(customers), key=repr) == sorted(
        [(1, "old", 0, 7), (1, "new", 1, None), (2, "same", 1, None)], key=repr
    )


def test_change_data_is_applied_as_in_deltas_documentation() -> None:
    target = delta_table(key=[1, 2, 3], value=[1, 2, 3])
    feed = pa.table(
        {"key": [1, 2, 4, 5], "value": [10, None, 40, None], "deleted": [False, True, False, True]}
    )
    merge = target.merge(feed, on="s.key = t.key", source_alias="s", target_alias="t")
    merge.when_matched_delete("s.deleted = true").when_matched_update({"value": "s.value"})
    merge.when_not_matched_insert({"key": "s.key", "value": "s.value"}, "s.deleted = false")
    report = merge.execute()
    assert present(target) == [(1, 10), (3, 3), (4, 40)]
    assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (1, 1, 1)


def test_a_table_is_made_equal_to_the_source_as_in_deltas_documentation() -> None:
    target = delta_table(key=[1, 2, 3], value=[1, 2, 3])
    source = pa.table({"key": [2, 4], "value": [20, 40]})
    merge = target.merge(source, on=["key"]).when_matched_update_all()
    merge.when_not_matched_insert_all().when_not_matched_by_source_delete().execute()
    assert present(target) == [(2, 20), (4, 40)]


# -- tables with a primary key --------------------------------------------------------------------
KEYED = {"bucket": "2", "compaction.min.file-num": "2"}


def keyed(**options: str) -> PaimonTable:
    """Ids from 0 to 29, in three commits. `n` is ten times `id`."""
    delta_table.count += 1  # type: ignore[attr-defined]
    table = PaimonTable.create(
        f"memory://merged-keys-{delta_table.count}/db.db/t",  # type: ignore[attr-defined]
        [("id", "INT NOT NULL"), ("n", "INT"), ("note", "STRING")],
        primary_keys=["id"],
        options={**KEYED, **options},
    )
    for first in (0, 10, 20):
        ids = list(range(first, first + 10))
        table.append(changes(id=ids, n=[10 * one for one in ids], note=[None] * 10))
    return table


def keyed_merge(table: PaimonTable) -> TableMerge:
    source = changes(id=[3, 4, 40], n=[1, None, 7], note=["new", None, "late"])
    merge = table.merge(source, on=["id"]).when_matched_delete("source.n IS NULL")
    return merge.when_matched_update_all().when_not_matched_insert_all()


def test_rows_of_keys_are_updated_deleted_and_inserted() -> None:
    table = keyed(**{"changelog-producer": "input"})
    before = table.latest_snapshot()
    tried = keyed_merge(table).execute(dry_run=True)
    assert table.latest_snapshot() == before
    done = keyed_merge(table).execute()
    for report in (tried, done):
        assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (1, 1, 1)
    expected = {one: 10 * one for one in range(30) if one != 4} | {3: 1, 40: 7}
    assert values(table) == expected
    assert table.latest_snapshot().id == before.id + 1 == done.snapshot_id
    table.compact(full=True)
    assert values(table) == expected


@pytest.mark.parametrize(
    ("others", "changed"),
    [
        (lambda table: table.append(changes(id=[3], n=[9], note=["x"])), {}),
        (lambda table: table.append(changes(id=[40], n=[9], note=["x"])), {}),
        (lambda table: table.append(changes(id=[50], n=[9], note=["x"])), {50: 9}),
        (lambda table: table.delete("id = 3"), {}),
        (lambda table: table.compact(full=True), {}),
    ],
)
def test_what_others_do_to_keys_meanwhile_is_taken_into_account(
    others: Callable[[PaimonTable], object], changed: dict[int, int]
) -> None:
    table = keyed()
    keyed_merge(table).execute(progress=once(lambda: others(table)))
    expected = {one: 10 * one for one in range(30) if one != 4} | {3: 1, 40: 7}
    assert values(table) == expected | changed


@pytest.mark.parametrize(
    ("on", "others", "changed"),
    [
        (["id"], lambda table: table.delete("id = 3"), {}),
        (["n"], lambda table: table.update("id = 3", {"n": "n + 1"}), {3: 31}),
    ],
)
def test_a_source_row_is_inserted_if_others_take_its_match_away_meanwhile(
    on: list[str], others: Callable[[PaimonTable], object], changed: dict[int, int]
) -> None:
    table = keyed()
    source = changes(id=[3 if on == ["id"] else 33, 40], n=[30, 7], note=["new", "late"])
    merge = table.merge(source, on=on).when_matched_update({"n": "1"}, "target.note IS NOT NULL")
    merge.when_not_matched_insert_all().execute(progress=once(lambda: others(table)))
    inserted = dict(zip(source["id"].to_pylist(), source["n"].to_pylist(), strict=True))
    assert values(table) == {one: 10 * one for one in range(30)} | inserted | changed


def test_many_keys_are_merged_beside_a_writer_of_keys_between_them() -> None:
    """More keys than are listed in a condition, so a range of keys is read."""
    table = keyed()
    table.append(changes(id=list(range(30, 1000, 2)), n=[1] * 485, note=[None] * 485))
    seen: list[int] = []

    def others(what: str, done: int, total: int | None) -> None:
        seen.append(done)
        key = 31 + 2 * len(seen)
        table.append(changes(id=[key], n=[5], note=["theirs"]))

    source = changes(id=list(range(0, 1000, 2)), n=[2] * 500, note=["ours"] * 500)
    merge = table.merge(source, on=["id"]).when_matched_update_all()
    merge.when_not_matched_by_source_delete("target.n = 99").execute(progress=others)
    assert len(seen) == 1
    assert (values(table)[33], values(table)[998]) == (5, 2)


def test_a_key_that_is_no_number_stays_where_no_row_can_be_deleted() -> None:
    table = PaimonTable.create(
        "memory://merged-keys-nan/db.db/t",
        [("id", "DOUBLE NOT NULL"), ("n", "INT")],
        primary_keys=["id"],
        options={**KEYED, "merge-engine": "partial-update"},
    )
    source = pa.table({"id": [float("nan")], "n": pa.array([1], pa.int32())})
    for _ in range(2):
        merge = table.merge(source, on=["id"]).when_matched_update_all()
        merge.when_not_matched_insert_all().execute()
    assert table.to_arrow()["n"].to_pylist() == [1]


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_a_key_with_other_blanks_at_its_end_stays_as_it_is_stored(engine: str) -> None:
    """It is equal to that of the source. If it moved, partial-update would refuse the merge."""
    table = PaimonTable.create(
        f"memory://merged-keys-char-{engine}/db.db/t",
        [("k", "CHAR(5) NOT NULL"), ("n", "INT")],
        primary_keys=["k"],
        options={**KEYED, "merge-engine": engine},
    )
    table.append(pa.table({"k": ["ab", "c    "], "n": pa.array([1, 2], pa.int32())}))
    source = pa.table({"k": ["ab   ", "c", "d"], "n": pa.array([50, 60, 70], pa.int32())})
    merge = table.merge(source, on=["k"]).when_matched_update_all().when_not_matched_insert_all()
    report = merge.execute()
    assert (report.rows_updated, report.rows_inserted) == (2, 1)
    rows = table.to_arrow().to_pylist()
    found = {row["k"].rstrip(): row["n"] for row in rows}
    assert found == {"ab": 50, "c": 60, "d": 70} and len(rows) == 3


def test_rows_of_keys_without_a_match_are_changed_and_keys_are_moved() -> None:
    table = keyed()
    merge = table.merge(changes(id=list(range(3, 30))), on=["id"])
    merge.when_not_matched_by_source_update({"id": "id + 100"}, "id > 0")
    merge.when_not_matched_by_source_delete().execute()
    ids = [*range(3, 30), 101, 102]
    assert values(table) == {one: 10 * (one % 100) for one in ids}


def test_what_a_merge_engine_would_not_do_is_refused_before_anything_is_written() -> None:
    table = keyed(**{"merge-engine": "partial-update"})
    before = table.latest_snapshot()
    with pytest.raises(UnsupportedFeature, match=r"docs/changing-keyed-rows\.md says what works"):
        keyed_merge(table).execute()
    source = changes(id=[3, 40], n=[1, 7])
    merge = table.merge(source, on=["id"]).when_matched_update({"n": "source.n"})
    merge.when_not_matched_insert({"id": "source.id", "n": "source.n"})
    assert table.latest_snapshot() == before
    merge.execute()
    assert values(table) == {one: 10 * one for one in range(30)} | {3: 1, 40: 7}
