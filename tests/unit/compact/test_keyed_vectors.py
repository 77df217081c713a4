"""Compaction of tables with a primary key and deletion vectors: readers see each key once, whatever
fails and whoever compacts at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.commit.vectors import VectorChanges
from paimon_stream.errors import CommitUnknown, InvalidOption
from paimon_stream.format.entries import IndexManifestEntry
from paimon_stream.format.index_manifest import encode_index_manifest
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.table import load_table
from paimon_stream.table.vectors import VectorIndex
from tests.kits.compaction import (
    WAYS,
    Acting,
    changelog,
    data_files,
    failed_runs,
    live,
    problems,
    run,
)
from tests.kits.faults import LOST_SNAPSHOT, FaultyStorage, Moment
from tests.kits.keyed import commit_changes
from tests.kits.params import few
from tests.kits.seeds import examples
from tests.unit.compact.test_remote import Pickling

ALONE = {
    **WAYS[0],
    "num-levels": "6",
    "deletion-vectors.enabled": "true",
    "bucket": "1",
    "write-only": "true",
}
"""Compactions take the new files alone, so what they replace is on higher levels."""
COLUMNS = [("k", "INT NOT NULL"), ("v", "INT")]


def made(tmp_path: Path, **options: str) -> PaimonTable:
    """On the highest level are the keys below 20, above it new rows of those below 10. All are
    seen.
    """
    known = {**ALONE, **options}
    table = PaimonTable.create(
        str(tmp_path / "db.db" / "t"), COLUMNS, primary_keys=["k"], options=known
    )
    write(table, range(20), 0)
    table.compact(full=True)
    write(table, range(10), 1)
    table.compact()
    assert levels(table) == [4, 5]
    assert vectors(table) == {5: 10}
    return table


def write(table: PaimonTable, keys: Iterable[int], v: int, kind: str = "+U") -> None:
    number = table.latest_snapshot().id if table.snapshots() else 0
    commit_changes(table, [(kind, {"k": key, "v": v}) for key in keys], number, user="writer")


def rows(table: PaimonTable) -> dict[int, int]:
    found = table.to_arrow().to_pylist()
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: row["v"] for row in found}


def levels(table: PaimonTable) -> list[int]:
    return sorted(file.meta.level for file in table.files())


def entries(table: PaimonTable) -> tuple[IndexManifestEntry, ...]:
    known = load_table(LocalStorage(table.location))
    return VectorIndex.of(known, table.latest_snapshot()).entries


def vectors(table: PaimonTable) -> dict[int, int | None]:
    """The number of deleted rows of each level."""
    level = {file.meta.file_name: file.meta.level for file in table.files()}
    found = [one for entry in entries(table) for one in entry.file.deletions or ()]
    return {level[one.data_file]: one.cardinality for one in found}


def index_files(table: PaimonTable) -> set[str]:
    return {path.name for path in Path(table.location, "index").iterdir()}


@pytest.mark.parametrize("elsewhere", [None, Pickling()], ids=["threads", "processes"])
@pytest.mark.parametrize("bits", ["32", "64"])
def test_what_is_replaced_or_deleted_is_marked_where_it_is(
    tmp_path: Path, elsewhere: Any, bits: str
) -> None:
    table = made(tmp_path, **{"deletion-vectors.bitmap64": str(bits == "64").lower()})
    write(table, [0, 12, 30], 2)
    write(table, [1, 13, 31], 2, "-D")
    report = run(table, elsewhere=elsewhere)
    assert (report.files_before, report.files_after) == (2, 1)
    assert levels(table) == [3, 4, 5]
    assert vectors(table) == {4: 2, 5: 12}
    kept = dict.fromkeys(range(2, 10), 1) | dict.fromkeys((10, 11, *range(14, 20)), 0)
    assert rows(table) == {**kept, 0: 2, 12: 2, 30: 2}
    write(table, range(40), 3, "-D")
    run(table, elsewhere=elsewhere)
    assert rows(table) == {}
    assert vectors(table) == {3: 3, 4: 10, 5: 20}
    run(table, full=True, elsewhere=elsewhere)
    assert not table.files()
    ((index,),) = ([one.file for one in entries(table)],)
    assert (index.file_size, index.row_count) == (1, 0)
    assert not problems(table)


def test_a_file_alone_on_the_highest_level_is_rewritten_without_its_deleted_rows(
    tmp_path: Path,
) -> None:
    table = made(tmp_path)
    table.compact(full=True)
    write(table, range(5), 2, "-D")
    table.compact()
    assert vectors(table) == {5: 5}
    report = table.compact(full=True)
    assert (report.rows_before, report.rows_after) == (20, 15)
    assert vectors(table) == {}
    assert table.compact(full=True).snapshot_id is None
    assert sorted(rows(table)) == list(range(5, 20))


def test_vectors_of_files_that_are_gone_go_with_the_next_index_file(tmp_path: Path) -> None:
    """Java 1.4.2 leaves such entries (RC9.1)."""
    table = made(tmp_path)
    (entry,) = entries(table)
    assert entry.file.deletions
    dead = replace(
        entry,
        file=replace(
            entry.file,
            deletions=(*entry.file.deletions, entry.file.deletions[0]._replace(data_file="gone")),
        ),
    )
    manifest = Path(table.location, manifest_path(table.latest_snapshot().index_manifest or ""))
    manifest.write_bytes(encode_index_manifest([dead], compression="null", level=1))
    write(table, [3], 2)
    table.compact()
    assert {
        one.data_file for entry in entries(table) for one in entry.file.deletions or ()
    } <= live(table)
    assert vectors(table) == {4: 1, 5: 10}
    assert not problems(table)


def test_a_row_that_another_compaction_marks_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    """The other takes none of our files and adds none: only the vectors change (RC9.2)."""
    table = made(tmp_path)

    def meanwhile() -> None:
        write(table, [3, 12], 2, "-D")
        table.compact()
        assert levels(table) == [4, 5]

    report = run(table, Acting(table, meanwhile, "put_if_absent", "snapshot/"), full=True)
    assert report.conflicts == 1
    assert levels(table) == [5]
    assert rows(table) == {key: int(key < 10) for key in range(20) if key not in (3, 12)}
    assert index_files(table) == {
        one.file.file_name
        for s in table.snapshots()
        for one in VectorIndex.of(load_table(LocalStorage(table.location)), s).entries
    }
    assert not problems(table)


def test_rows_that_another_compaction_replaces_meanwhile_are_there_once(tmp_path: Path) -> None:
    table = made(tmp_path)

    def meanwhile() -> None:
        write(table, [3, 12], 2)
        table.compact()
        assert levels(table) == [3, 4, 5]

    assert (
        run(table, Acting(table, meanwhile, "put_if_absent", "snapshot/"), full=True).conflicts == 1
    )
    assert rows(table) == {key: int(key < 10) for key in range(20)} | {3: 2, 12: 2}
    assert not problems(table)


def test_what_is_written_meanwhile_waits_for_the_next_compaction(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, [5], 2)
    storage = Acting(table, lambda: write(table, [5, 6], 3), "put_if_absent", "snapshot/")
    assert run(table, storage).conflicts == 0
    assert (rows(table)[5], rows(table)[6]) == (2, 1)
    table.compact()
    assert (rows(table)[5], rows(table)[6]) == (3, 3)
    assert not problems(table)


@pytest.mark.parametrize("clean", ["expire", "orphans", "rollback"])
def test_what_cleans_up_takes_the_index_files_that_were_replaced_and_no_others(
    tmp_path: Path, clean: str
) -> None:
    table = made(tmp_path)
    write(table, [5], 2)
    before, first = table.latest_snapshot().id, rows(table)
    table.compact()
    expected = rows(table)
    assert len(index_files(table)) == 2
    if clean == "expire":
        expire_snapshots(load_table(LocalStorage(table.location)), 1, 1, protect_streams=False)
        assert index_files(table) == {one.file.file_name for one in entries(table)}
    elif clean == "orphans":
        table.remove_orphan_files(dry_run=False)
        assert len(index_files(table)) == 2
    else:
        table.rollback_to(before)
        expected = first
    assert rows(table) == expected
    assert not problems(table)


@pytest.mark.parametrize(
    ("moment", "stop"),
    few(product(Moment, [False, True]), lambda moment, stop: stop == (moment is Moment.AFTER)),
)
def test_wherever_it_fails_all_is_seen_or_nothing(
    tmp_path: Path, moment: Moment, stop: bool
) -> None:
    table = made(tmp_path)
    write(table, [0, 12, 30], 2)
    write(table, [1, 13, 31], 2, "-D")
    before, newest = rows(table), table.latest_snapshot().id
    after = before | {0: 2, 12: 2, 30: 2}
    del after[1], after[13]
    ends = Counter[bool]()

    def every(one: PaimonTable) -> set[str]:
        return data_files(one) | index_files(one)

    for at, failed, files, raised in failed_runs(
        table, moment, stop=stop, step=examples(6, 1), look=every
    ):
        published = table.latest_snapshot().id > newest
        ends[published] += 1
        assert rows(table) == (after if published else before), at
        named = {one.file.file_name for one in entries(table)}
        left = every(table) - files - live(table) - named
        if not (stop or failed.verb == "delete" or isinstance(raised, CommitUnknown)):
            assert not left or (moment is Moment.AFTER and failed.path.endswith(tuple(left))), (
                at,
                failed,
            )
        if published:
            table.rollback_to(newest)
    assert ends[False] > 3
    assert ends[True]
    assert not problems(table)


def test_an_unknown_outcome_deletes_no_index_file(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, [0], 2)
    with pytest.raises(CommitUnknown):
        run(table, FaultyStorage(LocalStorage(table.location), [LOST_SNAPSHOT]))
    assert rows(table)[0] == 2
    assert not problems(table)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, 111),
        ({"merge-engine": "partial-update"}, 100),
        ({"sequence.field": "v"}, 100),
    ],
    ids=repr,
)
def test_a_row_takes_in_what_it_replaces(
    tmp_path: Path, options: dict[str, str], value: int
) -> None:
    known = {**ALONE, **options}
    table = PaimonTable.create(
        str(tmp_path / "db.db" / "t"), COLUMNS, primary_keys=["k"], options=known
    )
    for number, v in enumerate(
        (1, 100, None if options.get("merge-engine") == "partial-update" else 10)
    ):
        commit_changes(
            table, [("+I", {"k": 1, "v": v}), ("+I", {"k": 100 + number, "v": v})], number
        )
        table.compact()
    assert rows(table)[1] == value
    assert sum(one or 0 for one in vectors(table).values()) == 2
    assert not problems(table)


def test_a_row_that_has_expired_is_marked_and_not_merged(tmp_path: Path) -> None:
    """Java 1.4.2 does not mark it, and readers see its key twice (RC9.3)."""
    known = {
        **ALONE,
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "changelog-producer": "lookup",
    }
    columns = [*COLUMNS, ("t", "INT")]
    table = PaimonTable.create(
        str(tmp_path / "db.db" / "t"), columns, primary_keys=["k"], options=known
    )
    commit_changes(
        table, [("+I", {"k": 1, "v": 1, "t": 1000}), ("+I", {"k": 2, "v": 1, "t": None})], 1
    )
    table.compact()
    schema = Path(table.location, "schema", "schema-0")
    expires = '"record-level.expire-time": "1 d", "record-level.time-field": "t",'
    schema.write_text(schema.read_text().replace('"options" : {', f'"options" : {{ {expires}', 1))
    table = PaimonTable.load(table.location)
    commit_changes(
        table, [("+I", {"k": 1, "v": 10, "t": None}), ("+I", {"k": 2, "v": 10, "t": None})], 2
    )
    table.compact()
    assert rows(table) == {1: 10, 2: 11}
    assert [(kind, *row[:2]) for kind, _, row in changelog(table)] == [
        *[("+I", 1, 1), ("+I", 2, 1)],
        *[("+I", 1, 10), ("-U", 2, 1), ("+U", 2, 11)],
    ]
    assert not problems(table)


def test_a_row_that_is_too_old_on_arrival_does_not_come_beside_the_older_one(
    tmp_path: Path,
) -> None:
    """Statistics of a time in seconds and in milliseconds do not show that a row is old."""
    own = {
        "record-level.expire-time": "1 d",
        "record-level.time-field": "t",
        "target-file-size": "1 kb",
    }
    columns = [("k", "INT NOT NULL"), ("v", "STRING"), ("t", "BIGINT")]
    table = PaimonTable.create(
        str(tmp_path / "db.db" / "t"), columns, primary_keys=["k"], options=ALONE | own
    )
    commit_changes(
        table, [("+I", {"k": key, "v": f"{'old' * 5}{key}", "t": None}) for key in range(40)], 1
    )
    table.compact(full=True)
    times = {2: 5 * 10**9, 3: 10**12, 4: 5 * 10**9}
    changed = [
        {"k": key, "v": f"{'new' * 60}{key * 7919}", "t": time} for key, time in times.items()
    ]
    commit_changes(table, [("+I", row) for row in changed], 2)
    table.compact()
    assert not problems(table)


@pytest.mark.parametrize(
    "option",
    [{"merge-engine": "first-row"}, {"changelog-producer": "full-compaction"}],
    ids=["first-row", "full"],
)
def test_what_java_refuses_beside_vectors_is_refused(
    tmp_path: Path, option: dict[str, str]
) -> None:
    with pytest.raises(InvalidOption, match="does not work with"):
        PaimonTable.create(str(tmp_path / "t"), COLUMNS, primary_keys=["k"], options=ALONE | option)


def test_a_row_that_is_deleted_by_a_condition_is_gone_after_a_compaction(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = rows(table)
    assert table.delete(pc.field("k") == 1).rows == 1
    assert rows(table) == before  # readers see rows of level 0 after a compaction
    table.compact()
    assert rows(table) == {key: value for key, value in before.items() if key != 1}
    assert problems(table) == []


def test_a_forgotten_vector_is_found_by_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    write(table, [0, 12], 2)
    monkeypatch.setattr(VectorChanges, "at", lambda self, entries, gone, marked: ())
    table.compact()
    assert [one.code for one in problems(table)] == ["key-twice"]
    table.compact(full=True)
    assert rows(table) == {key: int(key < 10) for key in range(20)} | {0: 2, 12: 2}
