"""Plans of Java, and what ours decides where Java leaves it open (compaction.md §2.1, §3.1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.compact.planning import Thresholds, Unit, plan_append
from paimon_stream.errors import InvalidOption
from paimon_stream.format.entries import FileKind, ManifestEntry
from paimon_stream.options import Options
from tests.kits.commits import data_file

PLANS = json.loads((Path(__file__).parents[2] / "golden" / "compaction" / "plans.json").read_text())


def entry(
    number: int, size: int, *, buckets: int = -1, first: int | None = None, rows: int = 1
) -> ManifestEntry:
    first = number * rows if first is None else first
    file = replace(data_file(f"data-{number:03}", rows, first), file_size=size)
    return ManifestEntry(
        kind=FileKind.ADD, partition=b"", bucket=0, total_buckets=buckets, file=file
    )


def limits(**options: str) -> Thresholds:
    return Thresholds.of(Options({key.replace("_", "."): value for key, value in options.items()}))


def given(case: dict[str, Any]) -> Thresholds:
    more = {"source.split.open-file-cost": str(case["open_cost"])} if "open_cost" in case else {}
    least = str(case["min_file_num"])
    return Thresholds.of(
        Options({"target-file-size": str(case["target"]), "compaction.min.file-num": least, **more})
    )


def numbers(units: Sequence[Unit]) -> list[list[int]]:
    return [[int(one.file.file_name[-3:]) for one in unit.files] for unit in units]


@pytest.mark.parametrize("case", PLANS["append"])
def test_files_without_buckets_are_packed_as_java_packs_them(case: dict[str, Any]) -> None:
    files = [entry(number, size) for number, size in enumerate(case["sizes"])]
    units = plan_append(files, given(case), full=False)
    assert [sorted(one.file.file_size for one in unit.files) for unit in units] == [
        sorted(one) for one in case["tasks"]
    ]


@pytest.mark.parametrize("case", PLANS["bucketed"])
def test_neighbours_in_a_bucket_are_chosen_as_java_chooses_them(case: dict[str, Any]) -> None:
    files = [entry(number, size, buckets=2) for number, size in enumerate(case["sizes"])]
    units = plan_append(reversed(files), given(case), full=case["full"])
    assert numbers(units) == ([case["unit"]] if case["unit"] else [])


def test_a_plan_depends_on_its_input_only_and_reads_in_the_order_of_writing() -> None:
    for sizes in ([1000] * 7, range(1000, 300, -100), [300, 100, 700, 200, 500, 400, 600]):
        files = [entry(number, size) for number, size in enumerate(sizes)]
        units = plan_append(reversed(files), limits(), full=False)
        assert numbers(units) == [[0, 1, 2, 3, 4, 5, 6]]


def test_files_that_overlap_in_a_bucket_are_taken_together_or_not_at_all() -> None:
    files = [
        entry(n, 1000, buckets=1, first=first, rows=10)
        for n, first in enumerate((0, 10, 20, 30, 35))
    ]
    assert numbers(plan_append(files, limits(), full=False)) == [[0, 1, 2, 3, 4]]
    files.insert(3, entry(5, 1000, buckets=1, first=29, rows=1))
    least = Thresholds.of(Options({"compaction.min.file-num": "4"}))
    assert numbers(plan_append(files[:5], least, full=False)) == [[0, 1, 2, 5, 3]]
    many = [
        entry(n, 1000, buckets=1, first=first, rows=10)
        for n, first in enumerate((0, 5, 12, 20, 25, 31))
    ]
    assert numbers(plan_append(many, least, full=False)) == [[0, 1, 2, 3, 4, 5]]


def test_partitions_and_buckets_are_planned_apart() -> None:
    files = [entry(number, 1000) for number in range(4)]
    other = [replace(one, partition=b"p") for one in files]
    assert plan_append([*files, *other], limits(), full=True) == []


def test_a_share_of_the_target_says_which_files_are_small() -> None:
    files = [entry(number, 60) for number in range(5)]
    options = {"target-file-size": "100 b", "source.split.open-file-cost": "0 b"}
    assert len(plan_append(files, Thresholds.of(Options(options)), full=False)) == 1
    options["compaction.small-file-ratio"] = "0.6"
    assert plan_append(files, Thresholds.of(Options(options)), full=False) == []


def test_one_plan_takes_no_more_files_than_the_limit() -> None:
    files = [entry(0, 2**30), *(entry(number, 1000) for number in range(1, 9))]
    least = Thresholds.of(Options({"compaction.file-num-limit": "6"}))
    assert numbers(plan_append(files, least, full=False)) == [[1, 2, 3, 4, 5, 6]]


def test_a_unit_has_two_files_at_least() -> None:
    least = Thresholds.of(Options({"compaction.min.file-num": "1"}))
    assert plan_append([entry(0, 1000)], least, full=False) == []
    assert plan_append([entry(0, 1000, buckets=1)], least, full=False) == []


@pytest.mark.parametrize("value", ["0", "1.5", "many", "nan"])
def test_a_wrong_share_is_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="small-file-ratio"):
        Thresholds.of(Options({"compaction.small-file-ratio": value}))
