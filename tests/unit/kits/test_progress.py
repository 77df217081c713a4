"""What a run says while it runs."""

from __future__ import annotations

from collections import Counter

from tests.kits.progress import COLUMNS, folder_of, line


def test_a_line_has_the_time_the_counts_and_the_folders_that_run() -> None:
    tests = Counter({"unit/commit": 20, "crash": 1200, "spark": 3})
    done = Counter({"unit/commit": 5, "spark": 3})
    assert line(75, tests, done, 0) == "  1:15  8 of 1,223 tests  unit/commit 5/20"
    assert line(75, tests, done, 2) == "  1:15  8 of 1,223 tests, 2 failed  unit/commit 5/20"


def test_a_line_fits_into_80_columns() -> None:
    tests = Counter({f"unit/folder{number}": 2 for number in range(30)})
    done = Counter(dict.fromkeys(tests, 1))
    assert len(line(0, tests, done, 0)) == COLUMNS


def test_the_folder_of_a_unit_test_has_two_names() -> None:
    assert folder_of("tests/unit/commit/test_plan.py::test_x[a/b]") == "unit/commit"
    assert folder_of("tests/spark/test_sink.py::test_x") == "spark"
