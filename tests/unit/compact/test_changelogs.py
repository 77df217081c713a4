"""The changelog of compactions: applied row by row, it gives the table, whatever the table's engine
and options, whatever others do meanwhile, and wherever a compaction fails.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import (
    BadRowKind,
    CommitUnknown,
    InvalidData,
    InvalidOption,
    PaimonStreamError,
)
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from tests.kits.compaction import TRIGGER, WAYS, Acting, changelog, changelog_files, problems, run
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment, Operation
from tests.kits.keyed import commit_changes
from tests.kits.params import each_once, few, one_in
from tests.kits.random_tables import batches, looking_up
from tests.kits.reading import wire_rows
from tests.kits.seeds import examples, seeds

LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction"}
FIRST = {"merge-engine": "first-row", **LOOKUP}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", **LOOKUP}
LEVELS = {
    "num-sorted-run.compaction-trigger": "3",
    "num-levels": "6",
    "compaction.size-ratio": "-100",
}
LEVELS |= {"compaction.max-size-amplification-percent": "100000"}
"""Each minor compaction puts its rows on a level of their own."""


def made(tmp_path: Path, options: dict[str, str]) -> PaimonTable:
    return PaimonTable.create(
        str(tmp_path / "db.db" / "t"),
        [("k", "INT NOT NULL"), ("v", "INT")],
        primary_keys=["k"],
        options={"bucket": "1", "write-only": "true", **options},
    )


def write(table: PaimonTable, values: dict[int, int | None], kind: str = "+I") -> None:
    number = table.latest_snapshot().id if table.snapshots() else 0
    commit_changes(
        table,
        [(kind, {"k": key, "v": value}) for key, value in values.items()],
        number,
        user="writer",
    )


def applied(table: PaimonTable) -> dict[Any, list[Any]]:
    """The rows by key after all rows of the changelog. Each must fit what was there before."""
    at = [table.schema.field_names.index(name) for name in table.schema.primary_keys]
    rows: dict[Any, list[Any]] = {}
    for kind, _, row in changelog(table):
        key = tuple(row[one] for one in at)
        if kind in ("-U", "-D"):
            assert rows.pop(key) == row
        else:
            assert key not in rows
            rows[key] = row
    return rows


def in_table(table: PaimonTable) -> dict[Any, list[Any]]:
    at = [table.schema.field_names.index(name) for name in table.schema.primary_keys]
    return {
        tuple(row[one] for one in at): row
        for row in wire_rows(table.to_arrow(), table.schema.fields)
    }


def levels(table: PaimonTable) -> list[int]:
    return sorted(file.meta.level for file in table.files())


def log(table: PaimonTable, since: int) -> list[tuple[Any, ...]]:
    return [(kind, *row) for kind, _, row in changelog(table, since)]


# -- what it says
# -------------------------------------------------------------------------------------


def follow_a_random_table(root: Path, seed: int) -> str:
    """Returns what happened to the table of this seed."""
    random = Random(seed)
    made = looking_up(random, WAYS)
    made.options.pop("changelog-producer.row-deduplicate-ignore-fields", None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = PaimonTable.create(
                str(root / "db.db" / "t"),
                made.columns,
                partition_keys=made.partition,
                primary_keys=made.keys,
                options=made.options,
            )
    except InvalidOption:
        return "refused"
    # Of a file that is only upgraded, the changelog has lone rows as these merge them, and the file
    # does not; as in Java.
    exact = not any(key.endswith(("sequence-group", "distinct")) for key in made.options)
    producer, told = made.options.get("changelog-producer", "none"), 0
    for identifier, batch in enumerate((one for _ in range(4) for one in batches(random, made)), 1):
        full = random.random() < 0.3 or (producer == "full-compaction" and random.random() < 0.5)
        try:
            commit_changes(table, batch, identifier)
            if random.random() < 0.3:
                continue
            report = table.compact(full)
        except (InvalidData, BadRowKind):
            return "not readable"
        told += report.changelog_rows
        if exact and (producer == "lookup" or (producer == "full-compaction" and full)):
            assert applied(table) == in_table(table), (seed, identifier)
        assert producer == "full-compaction" or 0 not in levels(table), (seed, identifier)
    assert not [one for one in table.verify(sample=0).findings if one.severity == "error"]
    return "told" if told else "nothing"


@pytest.mark.parametrize("group", one_in(2, range(2)))
def test_it_gives_the_table(group: int, tmp_path: Path) -> None:
    tried = [one + 500 * group for one in seeds(15, 200)]
    ends = Counter(follow_a_random_table(tmp_path / str(seed), seed) for seed in tried)
    assert ends["told"] >= 3, ends


def test_older_values_are_looked_up_on_the_levels_above(tmp_path: Path) -> None:
    table = made(tmp_path, SUM | LEVELS)
    write(table, dict.fromkeys(range(3000), 1))
    table.compact()
    write(table, {7: 10, 8: 10})
    table.compact()
    assert levels(table) == [4, 5]
    write(table, {7: 100, 5000: 100})
    since = table.latest_snapshot().id
    report = table.compact()
    assert levels(table) == [3, 4, 5]
    assert log(table, since) == [("-U", 7, 11), ("+U", 7, 111), ("+I", 5000, 100)]
    assert report.changelog_rows == 3
    assert in_table(table)[7,] == [7, 111]
    assert applied(table) == in_table(table)


def test_rows_of_keys_that_are_known_are_not_written_with_first_row(tmp_path: Path) -> None:
    table = made(tmp_path, FIRST | LEVELS)
    write(table, dict.fromkeys(range(3000), 1))
    assert not table.to_arrow().num_rows
    table.compact()
    write(table, {7: 10, 5000: 10})
    write(table, {5000: 11})
    report = table.compact()
    assert (report.rows_before, report.rows_after, report.changelog_rows) == (3, 1, 1)
    write(table, {7: 12, 5000: 12})
    since = table.latest_snapshot().id
    assert table.compact().rows_after == 0
    assert not log(table, since)
    assert (in_table(table)[7,], in_table(table)[5000,]) == ([7, 1], [5000, 10])


def test_with_full_compaction_it_is_written_when_rows_reach_the_highest_level(
    tmp_path: Path,
) -> None:
    table = made(tmp_path, FULL | {"num-levels": "6"})
    write(table, {1: 1, 2: 2})
    assert table.compact(full=True).changelog_rows == 2
    assert levels(table) == [5]
    write(table, {1: 10, 3: 3})
    write(table, {2: 0}, kind="-D")
    write(table, {1: 11, 4: 4})
    write(table, {4: 4}, kind="-D")
    since = table.latest_snapshot().id
    assert table.compact(full=True).changelog_rows == 4
    assert log(table, since) == [("-U", 1, 1), ("+U", 1, 11), ("-D", 2, 2), ("+I", 3, 3)]


def test_files_above_the_highest_level_of_the_options_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path, FULL)
    write(table, {1: 1})
    table.compact(full=True)
    write(table, {1: 2})
    with pytest.raises(InvalidOption, match="Set num-levels to 6 or more"):
        table.compact(full=True, options={"num-sorted-run.compaction-trigger": "2"})


def test_a_lone_retraction_is_merged_as_java_merges_it(tmp_path: Path) -> None:
    table = made(tmp_path, SUM)
    write(table, {1: 4}, kind="-D")
    table.compact()
    assert [kind for kind, *_ in changelog(table)] == ["+I"]
    assert in_table(table) == {(1,): [1, -4]}


def test_deletes_stay_where_older_rows_are_looked_up(tmp_path: Path) -> None:
    table = made(tmp_path, LOOKUP | LEVELS)
    write(table, dict.fromkeys(range(3000), 1))
    table.compact()
    write(table, {7: 1, 9999: 1}, kind="-D")
    since = table.latest_snapshot().id
    table.compact()
    assert levels(table) == [4, 5]
    assert log(table, since) == [("-D", 7, 1)]
    write(table, {7: 2})
    since = table.latest_snapshot().id
    table.compact()
    assert log(table, since) == [("+I", 7, 2)]
    assert applied(table) == in_table(table)


@pytest.mark.parametrize(
    "options", [{}, {"changelog-producer": "none", "force-lookup": "true"}], ids=repr
)
def test_a_large_file_takes_in_what_a_level_above_those_of_the_options_has(
    options: dict[str, str], tmp_path: Path
) -> None:
    way = {name: value for name, value in LEVELS.items() if name != "num-levels"} | {TRIGGER: "5"}
    table = made(tmp_path, SUM | way | options | {"target-file-size": "1 kb"})
    write(table, dict.fromkeys(range(3000), 1))
    table.compact(full=True)
    write(table, {7: 10})
    table.compact(options={TRIGGER: "3"})
    assert set(levels(table)) == {4, 5}
    assert in_table(table)[7,] == [7, 11]
    if not options:
        assert applied(table) == in_table(table)


# -- beside others, and where it fails
# ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "moment"),
    each_once(
        [LOOKUP, FULL, FIRST, SUM], [("open_output", "bucket-"), ("put_if_absent", "snapshot/")]
    ),
)
def test_two_compactions_at_once_say_nothing_twice(
    tmp_path: Path, options: dict[str, str], moment: tuple[str, str]
) -> None:
    table = made(tmp_path, options | {"num-levels": "6"})
    write(table, dict.fromkeys(range(20), 1))
    table.compact(full=True)
    write(table, dict.fromkeys(range(10, 30), 2))

    def meanwhile() -> None:
        write(table, dict.fromkeys(range(25, 35), 3))
        table.compact(full=True)

    run(table, Acting(table, meanwhile, *moment), full=True)
    table.compact(full=True)
    assert applied(table) == in_table(table)
    named = {one.meta.file_name for one in changelog_files(table)}
    assert {path.name for path in Path(table.location).rglob("changelog-*")} == named
    assert not problems(table)


@pytest.mark.parametrize(
    ("moment", "stop"),
    few(product(Moment, [False, True]), lambda moment, stop: stop == (moment is Moment.AFTER)),
)
def test_wherever_it_fails_the_next_one_says_what_is_missing(
    tmp_path: Path, moment: Moment, stop: bool
) -> None:
    table, at = made(tmp_path, LOOKUP | LEVELS), 0
    write(table, dict.fromkeys(range(50), 1))
    table.compact()
    fired = True
    while fired:
        at += examples(5, 1)
        write(table, {at: at, 4000 + at: 2, 7: at})
        storage = FaultyStorage(
            LocalStorage(table.location), [Fault(at=at, moment=moment, stop=stop)]
        )
        logs, since = (
            {path.name for path in Path(table.location).rglob("changelog-*")},
            table.latest_snapshot().id,
        )
        raised: BaseException | None = None
        try:
            run(table, storage)
        except (PaimonStreamError, Killed) as why:
            raised = why
        fired = bool(storage.fired)
        left = {path.name for path in Path(table.location).rglob("changelog-*")} - logs
        left -= {one.meta.file_name for one in changelog_files(table, since)}
        if fired and not stop and not isinstance(raised, CommitUnknown):
            failed: Operation = storage.operations[at - 1]
            is_known = failed.verb != "delete" and not (
                moment is Moment.AFTER and "output" in failed.verb
            )
            assert not (is_known and left), (at, failed)
        table.compact()
    assert at > 15
    assert applied(table) == in_table(table)
    unnamed = {path.name for path in Path(table.location).rglob("changelog-*")}
    unnamed -= {one.meta.file_name for one in changelog_files(table)}
    assert bool(unnamed) >= stop
    for path in Path(table.location).rglob("changelog-*"):
        os.utime(path, (0, 0))
    found = {path.rpartition("/")[2] for path in table.remove_orphan_files().paths}
    assert unnamed <= found
    assert not problems(table)


def test_expiry_takes_the_changelog_of_the_snapshots_that_go(tmp_path: Path) -> None:
    table = made(tmp_path, LOOKUP)
    for number in range(3):
        write(table, {1: number})
        table.compact()
    files = sorted(Path(table.location).rglob("changelog-*"))
    assert len(files) == 3
    expire_snapshots(load_table(LocalStorage(table.location)), 1, 1, protect_streams=False)
    assert [one.exists() for one in files].count(True) == 1
    assert not problems(table)
    next(one for one in files if one.exists()).unlink()
    assert [one.code for one in problems(table)] == ["file-missing"]
