"""Plans of Java for buckets with a primary key, and what ours decides beside them (compaction.md
§4, 5.1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.compact.keyed_plan import (
    KeyedThresholds,
    Pick,
    SortedRun,
    next_unit,
    pick,
    pick_full,
    runs_of,
)
from paimon_stream.compact.units import KeyedUnit
from paimon_stream.errors import FormatError
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.format.types import parse_type
from paimon_stream.merge.spec import ColumnRule, MergeSpec
from paimon_stream.options import Options
from paimon_stream.read.merged import sections
from tests.kits.commits import data_file

PLANS = json.loads((Path(__file__).parents[2] / "golden" / "compaction" / "plans.json").read_text())
TYPES = [parse_type("INT")]
SPEC = MergeSpec(table="t", engine="deduplicate", keys=("id",), rules={})
MB = 2**20


def limits(options: Mapping[str, str] | None = None, hour: int = 0) -> KeyedThresholds:
    return KeyedThresholds.of(SPEC, Options(options or {}), hour)


def entry(
    number: int, low: int, high: int, *, level: int = 0, size: int = 100, deletes: int | None = 0
) -> ManifestEntry:
    file = replace(
        data_file(f"data-{number:03}", 1, number),
        min_key=serialize(TYPES, [low]),
        max_key=serialize(TYPES, [high]),
        level=level,
        file_size=size,
        delete_row_count=deletes,
    )
    return ManifestEntry(kind=FileKind.ADD, partition=b"", bucket=0, total_buckets=1, file=file)


def planned(
    files: Sequence[ManifestEntry], spec: MergeSpec = SPEC, *, full: bool = False, **options: str
) -> KeyedUnit | None:
    given = limits({key.replace("_", "."): value for key, value in options.items()})
    return next_unit(files, spec, TYPES, given, full=full)


def number(one: ManifestEntry) -> int:
    return int(one.file.file_name[-3:])


def told(unit: KeyedUnit | None) -> tuple[list[list[int]], list[int], int]:
    """Files of each rewrite, files that only change their level, and the level."""
    assert unit is not None
    groups = [sorted(map(number, merge.files)) for merge in unit.merges if merge.writes]
    return groups, [number(one) for one in unit.upgrades], unit.level


@pytest.mark.parametrize("case", PLANS["pick"])
def test_runs_are_picked_as_java_picks_them(case: dict[str, Any]) -> None:
    given = limits({**case["options"], "compaction.force-up-level-0": str(case["force"]).lower()})
    runs = [SortedRun(level, size) for level, size in case["runs"]]
    unit = case["unit"]
    assert pick(runs, given) == (Pick(unit["runs"], unit["outputLevel"]) if unit else None)


@pytest.mark.parametrize("case", PLANS["sections"])
def test_sections_and_their_runs_are_javas(case: dict[str, Any]) -> None:
    files = [entry(place, *bounds) for place, bounds in enumerate(case["ranges"])]
    found = sections(files, TYPES)
    assert [sorted(map(number, one.files)) for one in found] == [
        sorted(one) for one in case["files_of_sections"]
    ]
    assert [len(one.runs) for one in found] == case["runs_of_sections"]


def test_runs_begin_with_the_newest_file_and_end_with_the_highest_level() -> None:
    files = [
        entry(0, 1, 5, level=5),
        entry(1, 1, 9),
        entry(2, 6, 9, level=5),
        entry(3, 1, 1, level=2),
        entry(4, 1, 1),
    ]
    assert [[number(one) for one in run.files] for run in runs_of(files, TYPES)] == [
        [4],
        [1],
        [3],
        [0, 2],
    ]


def test_files_of_one_level_must_not_overlap() -> None:
    with pytest.raises(FormatError, match=r"data-000.*data-001.*level 5"):
        runs_of([entry(0, 1, 5, level=5), entry(1, 5, 9, level=5)], TYPES)


def test_a_full_pick_takes_all_runs_but_leaves_the_highest_level_alone() -> None:
    assert pick_full([], limits()) is None
    assert pick_full([SortedRun(5, 100)], limits()) is None
    assert pick_full([SortedRun(4, 100)], limits()) == Pick(1, 5)
    assert pick_full([SortedRun(0, 1), SortedRun(5, 100)], limits()) == Pick(2, 5)
    everything = limits({"compaction.force-rewrite-all-files": "true"})
    assert pick_full([SortedRun(5, 100)], everything) == Pick(1, 5)


def test_the_off_peak_ratio_counts_in_its_hours_only() -> None:
    options = {"compaction.offpeak-ratio": "50"}
    for start, end, hours in (
        ("22", "6", {22, 23, *range(6)}),
        ("1", "3", {1, 2}),
        ("4", "4", set()),
        ("-1", "6", set()),
    ):
        given = options | {
            "compaction.offpeak.start.hour": start,
            "compaction.offpeak.end.hour": end,
        }
        assert {hour for hour in range(24) if limits(given, hour).ratio == 51} == hours


def test_an_interval_makes_every_pick_of_several_runs_a_full_one() -> None:
    given = limits({"compaction.optimization-interval": "1 h"})
    assert pick([SortedRun(0, 1), SortedRun(5, 10**9)], given) == Pick(2, 5)
    assert pick([SortedRun(0, 1)], given) is None


def test_the_highest_level_is_that_of_the_options_or_of_a_file_above() -> None:
    assert limits().top == 5
    assert limits({"num-sorted-run.compaction-trigger": "2"}).top == 2
    assert limits({"num-levels": "1"}).top == 1
    assert told(planned([entry(0, 1, 2), entry(1, 1, 2, level=7)], full=True)) == ([[0, 1]], [], 7)


def test_small_neighbours_are_rewritten_together_and_large_files_only_change_their_level() -> None:
    large = 100 * MB
    files = [
        entry(0, 0, 9),
        entry(1, 10, 19, size=large),
        entry(2, 20, 29),
        entry(3, 30, 39),
        entry(4, 35, 49, size=large),
        entry(5, 50, 59),
        entry(6, 60, 69, size=large, deletes=1),
        entry(7, 70, 79, size=large, deletes=None),
        entry(8, 80, 89, size=large, level=5),
    ]
    assert told(planned(files, full=True)) == ([[2, 3, 4, 5], [6], [7]], [0, 1], 5)
    all_of_them = planned(files, full=True, **{"compaction.force-rewrite-all-files": "true"})
    assert told(all_of_them) == ([[0], [1], [2, 3, 4, 5], [6], [7], [8]], [], 5)


def test_files_alone_on_the_highest_level_are_rewritten_one_by_one_if_all_are_asked_for() -> None:
    files = [entry(0, 0, 9, level=5), entry(1, 10, 19, level=5)]
    assert planned(files, full=True) is None
    again = planned(files, full=True, **{"compaction.force-rewrite-all-files": "true"})
    assert told(again) == ([[0], [1]], [], 5)


def test_deletes_are_dropped_only_if_nothing_older_is_left() -> None:
    new = [entry(one, 1, 9) for one in range(4)]
    above = planned(
        [*new, entry(9, 1, 9, level=5, size=10**6)], **{"num-sorted-run.compaction-trigger": "4"}
    )
    assert above is not None
    assert (above.level, above.merges[0].keep_deletes) == (4, True)
    everything = planned([*new, entry(9, 1, 9, level=5)], full=True)
    assert everything is not None
    assert not everything.merges[0].keep_deletes


def ruled(engine: str, function: str, **more: Any) -> MergeSpec:
    rule = {
        name: more.pop(name)
        for name in ("group", "ignore_retract", "distinct", "delimiter")
        if name in more
    }
    rules = {"id": ColumnRule(function="key"), "v": ColumnRule(function=function, **rule)}
    return MergeSpec(table="t", engine=engine, keys=("id",), rules=rules, **more)


@pytest.mark.parametrize(
    ("spec", "deletes", "takes_all"),
    [
        (SPEC, 1, False),
        (ruled("aggregation", "sum"), 1, False),
        (ruled("aggregation", "last_value"), None, False),
        (ruled("aggregation", "last_non_null_value"), 0, False),
        (ruled("aggregation", "last_non_null_value"), 1, True),
        (ruled("aggregation", "sum", remove_on_delete=True), 1, True),
        (ruled("aggregation", "product"), None, True),
        (ruled("aggregation", "last_value", ignore_retract=True), 1, True),
        (ruled("aggregation", "sum", ignore_retract=True), 1, False),
        (ruled("aggregation", "listagg", distinct=True), 0, False),
        (ruled("aggregation", "listagg", distinct=True, delimiter="aa"), 0, True),
        (ruled("partial-update", "non_null"), 0, False),
        (ruled("partial-update", "non_null"), None, True),
        (ruled("partial-update", "of_group", group=0), 0, False),
        (ruled("partial-update", "last_non_null_value", group=0), 0, True),
        (ruled("aggregation", "sum", sequence_fields=("v",)), 0, True),
        (
            MergeSpec(
                table="t", engine="deduplicate", keys=("id",), sequence_fields=("v",), rules={}
            ),
            1,
            False,
        ),
    ],
)
def test_all_runs_are_taken_where_a_part_could_change_rows(
    spec: MergeSpec, deletes: int | None, takes_all: bool
) -> None:
    files = [entry(one, 1, 9, deletes=deletes if one == 2 else 0) for one in range(1, 5)]
    files.append(entry(0, 1, 9, level=5, size=10**6))
    unit = planned(files, spec, **{"num-sorted-run.compaction-trigger": "4", "num-levels": "6"})
    assert unit is not None
    assert unit.level == (5 if takes_all else 4)
    assert (len(unit.files) == 5) is takes_all


@pytest.mark.parametrize(
    ("engine", "takes_all"), [("partial-update", True), ("deduplicate", False)]
)
def test_all_runs_are_taken_where_two_writers_took_the_same_numbers(
    engine: str, takes_all: bool
) -> None:
    """A merged row has the highest number of its parts, and would come after newer ones of the
    other runs.
    """
    files = [*(entry(one, 1, 9) for one in (1, 2, 4, 5)), entry(3, 1, 9, level=5, size=10**6)]
    unit = planned(
        files,
        ruled(engine, "non_null"),
        **{"num-sorted-run.compaction-trigger": "4", "num-levels": "6"},
    )
    assert unit is not None
    assert unit.level == (5 if takes_all else 4)


def test_all_runs_are_taken_where_the_sum_of_a_part_may_be_too_large() -> None:
    files = [*(entry(one, 1, 9) for one in range(1, 5)), entry(0, 1, 9, level=5, size=10**6)]
    given = replace(
        limits({"num-sorted-run.compaction-trigger": "4", "num-levels": "6"}), as_whole=True
    )
    unit = next_unit(files, ruled("aggregation", "sum"), TYPES, given, full=False)
    assert unit is not None
    assert unit.level == 5


# -- what is looked up
# --------------------------------------------------------------------------------


def rules(**options: str) -> dict[str, str]:
    return {
        "num-levels": "6",
        "num-sorted-run.compaction-trigger": "9",
        "compaction.size-ratio": "-100",
        **options,
    }


@pytest.mark.parametrize(
    ("options", "looks_up", "logs"),
    [
        ({}, None, None),
        ({"changelog-producer": "lookup"}, True, True),
        ({"force-lookup": "true"}, True, False),
        (
            {"changelog-producer": "full-compaction", "compaction.force-up-level-0": "true"},
            None,
            None,
        ),
        # Java looks nothing up here, and loses what higher levels have.
        ({"changelog-producer": "full-compaction", "force-lookup": "true"}, True, False),
    ],
)
def test_files_of_higher_levels_whose_keys_overlap_are_looked_up(
    options: dict[str, str], looks_up: bool | None, logs: bool | None
) -> None:
    new = [entry(0, 10, 20), entry(1, 15, 29), entry(2, 70, 75)]
    old = [entry(3 + place, 10 * place, 10 * place + 9, level=5) for place in range(10)]
    middle = [entry(13, 0, 12, level=4), entry(14, 60, 80, level=4)]
    unit = planned([*old, *middle, *new], **rules(**options))
    if not options:
        assert unit is None
        return
    assert unit is not None
    assert unit.level == 3
    (merge,) = unit.merges
    if looks_up is None:
        assert merge.comparison is None
        assert not any(section.looked_up for section in merge.sections)
        return
    assert merge.comparison is not None
    assert (merge.comparison.looks_up, merge.comparison.logs) == (looks_up, logs)
    found = [
        sorted(number(one) for run in section.looked_up for one in run)
        for section in merge.sections
    ]
    assert found == [[4, 5, 13], [10, 14]]
    assert all(
        section.ages[one.file.file_name] < 0
        for section in merge.sections
        for run in section.looked_up
        for one in run
    )


@pytest.mark.parametrize(
    ("spec", "options", "level", "written", "logged"),
    [
        (SPEC, {"changelog-producer": "lookup"}, 5, False, True),
        (SPEC, {"changelog-producer": "lookup"}, 3, False, True),
        (replace(SPEC, sequence_fields=("v",)), {"changelog-producer": "lookup"}, 3, True, True),
        (replace(SPEC, engine="first-row"), {}, 3, True, False),
        (replace(SPEC, engine="first-row"), {}, 5, False, False),
        (SPEC, {"force-lookup": "true"}, 3, False, False),
        (SPEC, {"force-lookup": "true", "file.format.per.level": "0:avro"}, 5, True, False),
        (SPEC, {"changelog-producer": "full-compaction"}, 5, False, True),
    ],
)
def test_a_large_file_of_level_0_is_upgraded_where_nothing_older_can_change_it(
    spec: MergeSpec, options: dict[str, str], level: int, written: bool, logged: bool
) -> None:
    files = [
        entry(0, 10, 20, size=200 * MB),
        *([entry(1, 0, 99, level=4, size=10**12)] if level == 3 else []),
    ]
    given = KeyedThresholds.of(spec, Options(rules(**options)), 0)
    unit = next_unit(files, spec, TYPES, given, full=level == 5)
    assert unit is not None
    assert unit.level == level
    assert [number(one) for one in unit.upgrades] == ([] if written else [0])
    assert [one.writes for one in unit.merges] == ([written] if written or logged else [])
    assert [one.comparison is not None and one.comparison.logs for one in unit.merges] == (
        [logged] if written or logged else []
    )
