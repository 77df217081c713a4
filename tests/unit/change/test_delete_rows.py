"""Deleting rows, by deletion vectors and by rewriting files: what it refuses, what others do meanwhile, and what fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.change import anew
from paimon_stream.change.delete_rows import delete_rows
from paimon_stream.errors import (
    ChangedMeanwhile,
    CorruptMetadata,
    DeletedFiles,
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
)
from paimon_stream.format.types import parse_type
from paimon_stream.storage.base import Storage
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.vectors import VectorIndex
from tests.kits.faults import FAULTS, OFTEN_FAULTS, Fault, FaultyStorage, Killed
from tests.kits.params import few
from tests.kits.places import following

VECTORS = {"deletion-vectors.enabled": "true", "compaction.min.file-num": "2"}
BUCKETS = {**VECTORS, "bucket": "2", "bucket-key": "id"}
PLAIN = {"compaction.min.file-num": "2"}
KINDS = {
    "vectors": VECTORS,
    "vectors in buckets": BUCKETS,
    "rewritten": PLAIN,
    "rewritten in buckets": {**PLAIN, "bucket": "2", "bucket-key": "id"},
}
_NUMBER = count()


def rows(ids: Iterable[int]) -> pa.Table:
    some = list(ids)
    return pa.table({"id": pa.array(some, pa.int32()), "p": ["ab"[one % 2] for one in some]})


def made(options: dict[str, str] = VECTORS, files: int = 3, **more: Any) -> PaimonTable:
    """A table with the ids from 0, ten in each commit."""
    table = PaimonTable.create(
        f"memory://deletes-{next(_NUMBER)}/db.db/t",
        [("id", "INT"), ("p", "STRING")],
        options=options,
        **more,
    )
    for number in range(files):
        table.append(rows(range(10 * number, 10 * number + 10)))
    return table


def present(table: PaimonTable) -> list[int]:
    return sorted(table.to_arrow(columns=["id"])["id"].to_pylist())


def ids(table: PaimonTable) -> list[int]:
    """The ids in a table that is whole."""
    assert not [one for one in table.verify().findings if one.severity != "info"]
    return present(table)


def once(act: Callable[[], object], first: int = 1) -> Callable[[str, int, int | None], None]:
    """Acts at the first report of progress."""
    left = [first]

    def report(what: str, done: int, total: int | None) -> None:
        if left[0]:
            left[0] -= 1
            act()

    return report


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_go_and_earlier_snapshots_keep_them(
    options: dict[str, str], partitioned: bool
) -> None:
    table = made(options, partition_keys=["p"] if partitioned else [])
    before = table.latest_snapshot()
    expected = table.delete(pc.field("id") >= 12, dry_run=True)
    assert (expected.rows, expected.snapshot_id, table.latest_snapshot()) == (18, None, before)
    done = table.delete(pc.field("id") >= 12)
    assert replace(done, snapshot_id=None, dry_run=True) == expected
    assert ids(table) == list(range(12))
    assert done.snapshot_id == before.id + 1
    assert table.latest_snapshot().commit_kind.value == "OVERWRITE"
    assert table.to_arrow(snapshot_id=before.id).num_rows == 30
    assert table.delete(pc.field("id") >= 12).snapshot_id is None  # they are gone already
    assert table.delete(pc.field("p") == "a").rows == 6
    assert ids(table) == [1, 3, 5, 7, 9, 11]
    table.append(rows([4]))
    table.compact(full=True)
    assert ids(table) == [1, 3, 4, 5, 7, 9, 11]
    latest = table.latest_snapshot()
    assert not [
        one
        for entry in VectorIndex.of(table._table, latest).entries
        for one in entry.file.deletions or ()
    ]
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert ids(table) == [1, 3, 4, 5, 7, 9, 11]


@pytest.mark.parametrize(
    "file_format", few(["parquet", "orc", "avro"], lambda one: one == "parquet")
)
def test_rows_that_are_deleted_are_not_looked_at(tmp_path: Path, file_format: str) -> None:
    """Neither a text that does not parse as today's type nor a division by zero is in the way."""
    table = PaimonTable.create(
        str(tmp_path / "t"),
        [("id", "INT"), ("n", "STRING")],
        options={**VECTORS, "file.format": file_format},
    )
    numbers = pa.array([0, 1, 2, 3, 4], pa.int32())
    table.append(pa.table({"id": numbers, "n": ["5", "6", "x", None, "9"]}))
    assert table.delete(pc.field("id").isin([0, 2])).rows == 2
    schemas = SchemaStore(table._table.storage)
    first = schemas.latest()
    columns = [
        replace(first.field("n"), type=parse_type("INT")) if one.name == "n" else one
        for one in first.fields
    ]
    schemas.create(replace(first, id=1, fields=tuple(columns)))
    table = PaimonTable.load(table.location)
    assert ids(table) == [1, 3, 4]
    assert table.delete(pc.field("n") > 6).rows == 1
    assert ids(table) == [1, 3]
    assert table.delete(pc.divide(pc.scalar(6), pc.field("id")) == 6).rows == 1
    assert table.to_arrow().to_pylist() == [{"id": 3, "n": None}]


def test_only_partitions_that_may_have_such_rows_are_read() -> None:
    table = made(partition_keys=["p"])
    assert table.delete((pc.field("p") == "a") & (pc.field("id") < 100)).files_read == 3
    assert table.delete(pc.field("p").is_null()).files_read == 0
    assert table.delete(pc.field("id") > 25, dry_run=True).files_read == 2  # by the statistics
    assert ids(table) == list(range(1, 30, 2))


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        (7, InvalidOption, "Give a pyarrow.compute.Expression"),
        ("id 7", InvalidOption, "where is not understood"),
        (pc.field("nothing") == 1, IncompatibleSchema, "does not fit the columns"),
        (pc.field("id") == "x", IncompatibleSchema, "does not fit the columns"),
        (pc.field("id") + 1, IncompatibleSchema, "must evaluate to bool"),
        (pc.scalar(1) / pc.field("id") == 1, InvalidData, "Nothing was changed"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(
    where: Any, error: type[Exception], text: str
) -> None:
    table = made()
    with pytest.raises(error, match=text):
        table.delete(where)
    assert ids(table) == list(range(30))


def test_an_empty_table_has_no_row_to_delete() -> None:
    empty = made(files=0)
    assert empty.delete(pc.field("id") == 1).rows == 0


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_of_two_deletes_on_the_same_files_none_is_lost(options: dict[str, str]) -> None:
    table = made(options)
    meanwhile = once(lambda: table.delete(pc.field("id").isin(list(range(0, 30, 3)))))
    table.delete(pc.field("id").isin(list(range(0, 30, 2))), progress=meanwhile)
    assert ids(table) == [one for one in range(30) if one % 2 and one % 3]


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_delete_beside_a_compaction_is_planned_again(options: dict[str, str]) -> None:
    table = made(options)
    table.delete(pc.field("id") < 15, progress=once(lambda: table.compact(full=True)))
    assert ids(table) == list(range(15, 30))


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_compaction_beside_a_delete_brings_no_row_back(options: dict[str, str]) -> None:
    table = made(options)
    table.delete(pc.field("id") == 4)
    report = table.compact(full=True, progress=once(lambda: table.delete(pc.field("id") < 12)))
    assert report.conflicts
    assert ids(table) == list(range(12, 30))


def test_a_compaction_stands_if_only_the_index_file_of_its_vectors_was_rewritten() -> None:
    """A delete in other data files of the same index file copies the vectors to a new index
    file.
    """
    table = made({**VECTORS, "target-file-size": "1 mb"})
    table.delete(pc.field("id").isin([4, 14, 24]))
    big = pa.table(
        {"id": pa.array(range(1000, 401_000), pa.int32()), "p": pa.array(["x"] * 400_000)}
    )
    table.append(big)
    table.delete(pc.field("id") == 1001)
    report = table.compact(full=True, progress=once(lambda: table.delete(pc.field("id") == 2000)))
    assert ids(table) == [one for one in range(30) if one not in (4, 14, 24)] + [
        1000,
        *range(1002, 2000),
        *range(2001, 401_000),
    ]
    assert report.snapshot_id is not None


def test_others_that_keep_replacing_the_files_end_a_delete_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = made()

    def replaced() -> None:
        table.append(rows([1]))
        table.compact(full=True, options={"compaction.small-file-ratio": "1"})

    monkeypatch.setattr(anew, "MOST_CONFLICTS", 3)
    with pytest.raises((ChangedMeanwhile, DeletedFiles), match="Nothing was changed"):
        table.delete(pc.field("id") == 1, progress=lambda *_: replaced())
    assert ids(table).count(1) > 1


def with_storage(table: PaimonTable, storage: Storage) -> Callable[[], Any]:
    return lambda: replace(table._table, storage=storage)


@pytest.mark.parametrize("name", few(FAULTS, lambda name: name in OFTEN_FAULTS))
@pytest.mark.parametrize(
    "options", few(KINDS.values(), lambda options: options in (VECTORS, PLAIN)), ids=KINDS
)
def test_a_delete_that_failed_anywhere_is_done_or_not_and_can_be_repeated(
    options: dict[str, str], name: str
) -> None:
    at, fired = 0, True
    while fired:
        at = following(at)
        table = made(options, files=2)
        table.delete(pc.field("id") == 3)
        storage = FaultyStorage(table._table.storage, [Fault(at=at, **FAULTS[name])])
        failed: BaseException | None = None
        try:
            delete_rows(with_storage(table, storage), pc.field("id") < 12)
        except (Exception, Killed) as why:  # noqa: BLE001
            failed = why
        fired = storage.fired
        left = present(table)
        assert left == list(range(12, 20)) or (
            failed is not None and left == [one for one in range(20) if one != 3]
        )
        table.delete(pc.field("id") < 12)
        assert present(table) == list(range(12, 20))
    assert at > 10
    assert ids(table) == list(range(12, 20))


def test_a_delete_beside_others_at_each_operation_loses_nothing() -> None:
    from tests.kits.races import Meanwhile

    def compaction(table: PaimonTable) -> None:
        table.compact(full=True)

    def deletion(table: PaimonTable) -> None:
        table.delete(pc.field("id") >= 20)

    def append(table: PaimonTable) -> None:
        table.append(rows([100]))

    for what, more in ((compaction, set()), (deletion, set()), (append, {100})):
        at, met = 0, True
        while met:
            at = following(at)
            table = made()
            table.delete(pc.field("id") == 13)
            storage = Meanwhile(
                table._table.storage, at, lambda table=table, what=what: what(table)
            )
            delete_rows(with_storage(table, storage), pc.field("id") < 12)  # type: ignore[arg-type]
            met = storage.happened
            wanted = ({*range(12, 30)} - {13}) | (more if met else set())
            if what is deletion and met:
                wanted -= {*range(20, 30)}
            assert present(table) == sorted(wanted), (what, at)
        assert ids(table) == sorted(wanted)


def test_a_damaged_vector_is_an_error_of_the_delete_the_compaction_and_verify() -> None:
    table = made()
    table.delete(pc.field("id") == 3)
    (entry,) = VectorIndex.of(table._table, table.latest_snapshot()).entries
    path = f"index/{entry.file.file_name}"
    data = bytearray(table._table.storage.read(path))
    data[-6] ^= 1
    table._table.storage.write(path, bytes(data))
    for act in (
        lambda: table.delete(pc.field("id") == 4),
        lambda: table.compact(full=True),
        table.to_arrow,
    ):
        with pytest.raises(CorruptMetadata, match="would come back"):
            act()
    assert [one.code for one in table.verify().findings] == ["deletion-vector-broken"]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_blanks_at_the_end_of_a_char_do_not_count(file_format: str) -> None:
    """Spark stores a CHAR with blanks up to its length, and this package as it comes."""
    conditions = {
        "c = 'a'": ["b", "ab", "!"],
        "c <=> 'a  '": ["b", "ab", "!"],
        "'a' = c": ["b", "ab", "!"],
        "c IN ('a', 'b')": ["ab", "!"],
        "c <> 'a'": ["a", "a"],
        "c > 'a'": ["a", "a", "!"],
        "c >= 'a '": ["!"],
        "c <= 'a'": ["b", "ab"],
        "c < 'a'": ["a", "a", "b", "ab"],
        "c BETWEEN 'a' AND 'a'": ["b", "ab", "!"],
        "CASE c WHEN 'a' THEN TRUE END": ["b", "ab", "!"],
    }
    for number, (condition, left) in enumerate(conditions.items()):
        table = PaimonTable.create(
            f"memory://chars-{file_format}-{number}/db.db/t",
            [("c", "CHAR(3)")],
            options={"file.format": file_format},
        )
        table.append(pa.table({"c": ["a", "a  ", "b  ", "ab ", "!  ", None]}))
        table.append(pa.table({"c": ["zzz"]}))
        before = len(table.files())
        assert before == 2
        report = table.delete(condition)
        if condition.startswith(("c = ", "c IN")):
            assert report.files_read == 1, condition
        kept = [c.rstrip() for c in table.to_arrow()["c"].to_pylist() if c not in (None, "zzz")]
        assert sorted(kept) == sorted(left), condition
