"""The records of what tests cost, and the tables that `make test-costs` prints of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits import costs
from tests.kits.cost_tables import WIDTH, Record, file_of, folder_of, read, tables

TESTS = """
import select, subprocess, sys
import pytest

@pytest.fixture
def inner():
    return sum(range(3_000_000))

@pytest.fixture
def outer(request):
    return request.getfixturevalue("inner")

def test_computes(outer):
    assert outer

def test_starts_two_that_wait_for_a_third_of_a_second():
    code = "import select; select.select([], [], [], 0.3)"
    both = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(2)]
    assert [child.wait() for child in both] == [0, 0]

def test_waits():
    select.select([], [], [], 0.5)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """The records of a run of `TESTS` in this process."""
    folder = tmp_path_factory.mktemp("costs")
    (folder / "test_three.py").write_text(TESTS)
    options = [f"--rootdir={folder}", "-c", os.devnull, "-q", "-p", "no:cacheprovider"]
    plugin = costs.Costs(folder / "records.jsonl", "gw0")
    started_by = subprocess.Popen.__init__
    assert pytest.main([*options, str(folder)], plugins=[plugin]) == 0
    assert subprocess.Popen.__init__ is started_by
    return read(folder / "records.jsonl")


def of_test(name: str, records: list[Record]) -> Record:
    return next(record for record in records if record.get("test", "").endswith(name))


def test_each_test_has_a_record_with_its_phases(recorded: list[Record]) -> None:
    tests = [record for record in recorded if "test" in record]

    assert [record["collected"] for record in recorded if "collected" in record] == [3]
    assert len(tests) == 3
    for test in tests:
        assert set(test["phases"]) == {"setup", "call", "teardown"}
        assert sum(test["phases"].values()) <= test["seconds"] <= test["wall"] + 0.01


def test_a_fixture_is_counted_without_those_that_it_asks_for(recorded: list[Record]) -> None:
    test = of_test("test_computes", recorded)

    assert test["fixtures"]["inner"] > 0
    assert test["fixtures"]["outer"] + test["fixtures"]["inner"] <= test["phases"]["setup"]
    assert test["cpu"] > 0.01


def test_children_that_live_at_the_same_time_count_once(recorded: list[Record]) -> None:
    test = of_test("third_of_a_second", recorded)
    times, seconds = test["started"]["child Python"]

    assert times == 2
    assert 0.3 <= seconds <= test["wall"]
    assert of_test("test_computes", recorded)["started"] == {}


def test_a_test_that_waits_for_a_clock_has_waited(recorded: list[Record]) -> None:
    test = of_test("test_waits", recorded)

    assert 0.1 <= test["waited"] <= test["seconds"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("git", "child git"),
        ([b"/usr/bin/java", b"-cp", b"x"], "child JVM"),
        ([sys.executable, "-c", "import pyspark"], "child Python with Spark"),
        ([sys.executable, "-m", "tests.crash.stream_child"], "child Python with Spark"),
        ([sys.executable, Path(costs.__file__).with_name("seeds.py")], "child Python"),
        ([sys.executable, "-m", "no.such.module"], "child Python"),
        ((), "child Python"),
    ],
)
def test_a_child_has_the_kind_of_its_command(command: object, kind: str) -> None:
    assert costs.kind_of(command) == kind


def test_seconds_in_several_spans_count_once() -> None:
    assert costs.together([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0), (1.5, 2.5)]) == 4.0


def test_the_processes_that_descend_from_one_are_found() -> None:
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'input()'])"
    before = set(costs.descendants(os.getpid()))
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "print(); " + parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        found: set[int] = set()
        while child.poll() is None and len(found) < 2:
            found = set(costs.descendants(os.getpid())) - before
        assert child.pid in found
        child.communicate(b"\n")


def record(name: str, **changed: object) -> Record:
    fields = {
        "worker": "gw0",
        "test": f"tests/{name}",
        "began": 100.0,
        "wall": 3.0,
        "queued": 1.0,
        "seconds": 2.0,
        "phases": {"setup": 0.5, "call": 1.5, "teardown": 0.0},
        "fixtures": {"table": 0.5},
        "started": {"JVM of Spark": (1, 0.25)},
        "cpu": 1.75,
        "waited": 0.25,
    }
    return {**fields, **changed}


def test_the_tables_are_by_folder_file_fixture_phase_and_what_was_started() -> None:
    records = [
        {"worker": "gw0", "collected": 2, "seconds": 1.0},
        record("unit/cli/test_a.py::test_b[x]"),
        record("crash/test_c.py::" + "d" * 200, worker="gw1", seconds=8.0, wall=9.0, waited=7.0),
    ]

    lines = list(tables(records))

    assert max(map(len, lines)) <= WIDTH
    figures = {line.split("  ")[0]: line.split()[-6:] for line in lines if not line.startswith(" ")}
    assert figures["unit/cli"] == ["2.0", "1", "0.5", "1.8", "0.2", "0.2"]
    assert figures["crash/test_c.py"] == ["8.0", "1", "0.5", "1.8", "7.0", "0.2"]
    assert figures["table"][-3:] == ["1.0", "2", "0.5"]
    assert figures["setup"][-4:] == ["1.0", "10.0%", "0", "0.0"]
    assert figures["JVM of Spark"][-4:] == ["0.5", "5.0%", "2", "2"]
    assert any("9 s  by the clock" in line for line in lines)
    assert any("7 s  were waiting that is not work (72%)" in line for line in lines)
    assert any(
        "2 s  of 1 tests in gw0, which collected for 1 s and ended 6 s early" in line
        for line in lines
    )


def test_a_run_without_tests_has_no_tables() -> None:
    assert list(tables([])) == ["No test has a record."]


def test_the_folder_of_a_unit_test_has_two_parts() -> None:
    assert folder_of(record("unit/cli/test_a.py::test_b")) == "unit/cli"
    assert folder_of(record("spark/test_a.py::test_b")) == "spark"
    assert file_of(record("spark/test_a.py::test_b")) == "spark/test_a.py"


def test_half_a_line_of_a_run_that_goes_on_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "records").write_text('{"collected": 1}\n{"collec')

    assert read(tmp_path / "records") == [{"collected": 1}]
