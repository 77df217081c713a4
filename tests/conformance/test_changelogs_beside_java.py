"""What compactions look up and write to the changelog, beside Java: both compact copies of the same
table.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import BadRowKind, InvalidData
from tests.conformance.test_keyed_compaction_beside_java import read_by_both, without_sums
from tests.conformance.test_random_merging_beside_java import (
    JavaRefused,
    asked,
    counted,
    is_accepted,
    written_by_either,
)
from tests.kits.compaction import WAYS, changelog
from tests.kits.keyed import commit_changes
from tests.kits.params import each_once, few
from tests.kits.random_tables import Definition, batches, looking_up
from tests.kits.seeds import seeds


def compacted_beside(java: Any, root: Path, seed: int) -> str:
    """Java and we write to a table. Now and then both compact a copy of it, and one of the copies
    goes on. Returns what became of the table of this seed.
    """
    random = Random(seed)
    made, path, seen = looking_up(random, WAYS), root / "0" / "db.db" / "t", Counter[str]()
    if not is_accepted(java, path, made):
        return "refused"
    # Java's minor compactions of such tables may lose what a delete took away (RC5.6).
    always_full = made.options.get("changelog-producer") == "full-compaction" and made.options[
        "merge-engine"
    ] in (
        "aggregation",
        "partial-update",
    )
    try:
        for identifier, batch in enumerate(
            (one for _ in range(4) for one in batches(random, made)), 1
        ):
            written_by_either(java, path, batch, identifier, random)
            if random.random() < 0.4:
                continue
            theirs = root / str(identifier) / "db.db" / "t"
            shutil.copytree(path, theirs)
            full, since = (
                always_full or random.random() < 0.3,
                PaimonTable.load(str(path)).latest_snapshot().id,
            )
            asked(java.compact, theirs, full, "java", 1000 + identifier)
            report = PaimonTable.load(str(path)).compact(full)
            mine, other = (told(one, made, since) for one in (path, theirs))
            if levels(mine) == levels(other):
                assert mine == other, (seed, identifier, full, made)
            elif made.options.get("changelog-producer") != "full-compaction":
                assert mine[-1] == other[-1], (seed, identifier, full, made)
            assert report.changelog_rows == len(mine[-1])
            rows, read = read_by_both(java, path, made)
            assert rows == read, (seed, identifier)
            seen["changelog"] += report.changelog_rows
            seen["compacted"] += report.snapshot_id is not None
            if random.random() < 0.5:
                path = theirs
    except (JavaRefused, BadRowKind, InvalidData, pa.ArrowInvalid) as why:
        return type(why).__name__
    assert not [
        one for one in PaimonTable.load(str(path)).verify().findings if one.severity == "error"
    ]
    return (
        "changelog" if seen["changelog"] else "compacted" if seen["compacted"] else "nothing to do"
    )


def told(path: Path, made: Definition, since: int) -> tuple[Any, ...]:
    """The files by level with their rows, the rows, and the changelog since a snapshot, in its
    order.
    """
    table = PaimonTable.load(str(path))
    files = sorted(
        (one.meta.level, one.meta.row_count, one.meta.delete_row_count) for one in table.files()
    )
    log = [
        (kind, number, next(iter(counted(made, without_sums(made, [row])))))
        for kind, number, row in changelog(table, since)
    ]
    return (
        files,
        [one.changelog_record_count or 0 for one in table.snapshots() if one.id > since],
        log,
    )


def levels(found: tuple[Any, ...]) -> list[int]:
    """The levels of the files. What is merged after the first unit of a call depends on sizes in
    bytes, and those that Java and we have written differ.
    """
    return sorted({level for level, _, _ in found[0]})


@pytest.mark.parametrize("group", few(range(3), lambda group: group == 0))
def test_we_and_java_make_the_same_of_copies_of_a_table(
    group: int, tmp_path: Path, java: Any
) -> None:
    tried = [one + 1000 * group for one in seeds(10, 150)]
    ends = Counter(compacted_beside(java, tmp_path / str(seed), seed) for seed in tried)
    assert ends["changelog"] >= 2, ends


NESTED: dict[str, list[Any]] = {
    "ARRAY<STRING>": [["x", None], ["x"], [None], [], None],
    "ARRAY<DOUBLE>": [[1.0], [None], [float("nan")]],
    "ARRAY<ARRAY<INT>>": [[[1]], [[None]], [None]],
    "ARRAY<ROW<x INT, y STRING>>": [[{"x": None, "y": "a"}], [None]],
    "ROW<a DOUBLE, b ARRAY<INT>>": [
        {"a": None, "b": [1]},
        {"a": 1.0, "b": [None]},
        {"a": None, "b": None},
    ],
    "MAP<INT, ARRAY<INT>>": [{1: [1]}, {1: [None]}, {1: None}],
    "ROW<m MAP<INT, INT>>": [{"m": {1: 1}}, {"m": {1: None}}, {"m": None}],
}


@pytest.mark.parametrize(("producer", "type_"), each_once(["lookup", "full-compaction"], NESTED))
def test_rows_with_nested_values_are_equal_where_java_says_so(
    producer: str, type_: str, tmp_path: Path, java: Any
) -> None:
    ours, theirs = (tmp_path / who / "db.db" / "t" for who in ("we", "java"))
    options = {"bucket": "1", "write-only": "true", "changelog-producer": producer}
    options["changelog-producer.row-deduplicate"] = "true"
    java.create_table(ours, [("k", "INT NOT NULL"), ("v", type_)], (), ("k",), options)
    rows = [("+I", {"k": key, "v": value}) for key, value in enumerate(NESTED[type_])]
    for identifier in (1, 2):
        commit_changes(PaimonTable.load(str(ours)), rows, identifier)
        if identifier == 1:
            PaimonTable.load(str(ours)).compact(full=True)
    shutil.copytree(ours, theirs)
    java.compact(theirs, True, "java", 100)
    PaimonTable.load(str(ours)).compact(full=True)
    mine, other = (repr(changelog(PaimonTable.load(str(path)), 3)) for path in (ours, theirs))
    assert mine == other
