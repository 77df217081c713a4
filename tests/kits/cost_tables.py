"""The tables of `make test-costs`: where the seconds of the tests went, from the records of `costs.py`.

    python -m tests.kits.cost_tables FILE

The seconds are those of all processes of tests together: two processes have 120 in a minute. They are
without those in which a test's thread was ready to run and had no processor; see `costs.py`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

WIDTH: Final = 100
COLUMN: Final = 10
FILES: Final = 40
FIXTURES: Final = 25
TESTS: Final = 40

Record = Mapping[str, Any]


def read(records: Path) -> list[Record]:
    """The records of a file. A run that is not over may have written half a line, which is left out."""
    return [json.loads(line) for line in records.read_text().rpartition("\n")[0].splitlines()]


def tables(records: Sequence[Record]) -> Iterator[str]:
    """The lines of all tables, none wider than `WIDTH`."""
    tests = [record for record in records if "test" in record]
    if not tests:
        yield "No test has a record."
        return
    collected = {
        record["worker"]: float(record["seconds"]) for record in records if "collected" in record
    }
    yield from _sums(tests, collected)
    yield from _phases(tests)
    yield from _started(tests)
    yield from _groups("folder", folder_of, tests)
    yield from _groups("file", file_of, tests, FILES)
    yield from _fixtures(tests)
    yield from _longest_tests(tests)


def file_of(test: Record) -> str:
    """The file of a test, below tests/."""
    return str(test["test"]).partition("::")[0].removeprefix("tests/")


def folder_of(test: Record) -> str:
    """The folder of a test, below tests/: the first part of its path, in unit/ the first two."""
    parts = file_of(test).split("/")[:-1]
    return "/".join(parts[: 2 if parts[:1] == ["unit"] else 1]) or "."


def _sums(tests: Sequence[Record], collected: Mapping[str, float]) -> Iterator[str]:
    workers = sorted({test["worker"] for test in tests})
    began = min(test["began"] for test in tests)
    ended = max(_end(test) for test in tests)
    seconds = _sum(tests, "seconds")
    waited = _sum(tests, "waited")
    yield f"{len(tests):,} tests in {len(workers)} processes"
    yield f"{ended - began:10,.0f} s  by the clock, from the first test to the end of the last"
    yield f"{seconds:10,.0f} s  of the tests, of which"
    yield f"{waited:10,.0f} s  were waiting that is not work ({waited / (seconds or 1):.0%})"
    yield f"{_sum(tests, 'cpu'):10,.0f} s  of processors, of the processes and their descendants"
    yield f"{_sum(tests, 'queued'):10,.0f} s  ready to run without a processor, in no other figure here"
    for worker in workers:
        its_tests = [test for test in tests if test["worker"] == worker]
        idle = ended - max(_end(test) for test in its_tests)
        yield (
            f"{_sum(its_tests, 'seconds'):10,.0f} s  of {len(its_tests):,} tests in {worker}, which collected "
            f"for {collected.get(worker, 0.0):.0f} s and ended {idle:.0f} s early"
        )


def _phases(tests: Sequence[Record]) -> Iterator[str]:
    yield from _heading("phase", "seconds", "share", "over 1 s", "theirs")
    for phase in ("setup", "call", "teardown"):
        each = [float(test["phases"].get(phase, 0.0)) for test in tests]
        long = [seconds for seconds in each if seconds > 1]
        yield _line(phase, sum(each), _share(sum(each), tests), len(long), float(sum(long)))


def _started(tests: Sequence[Record]) -> Iterator[str]:
    yield from _heading("started", "seconds", "share", "times", "tests")
    spent: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for test in tests:
        for kind, (times, seconds) in test["started"].items():
            spent[kind].append((times, seconds))
    totals = {kind: sum(seconds for _, seconds in each) for kind, each in spent.items()}
    for kind in _by_seconds(totals):
        times = sum(times for times, _ in spent[kind])
        yield _line(kind, totals[kind], _share(totals[kind], tests), times, len(spent[kind]))


def _groups(
    title: str,
    group_of: Callable[[Record], str],
    tests: Sequence[Record],
    most: int = sys.maxsize,
) -> Iterator[str]:
    yield from _heading(title, "seconds", "tests", "setup", "cpu", "waited", "started")
    groups: dict[str, list[Record]] = defaultdict(list)
    for test in tests:
        groups[group_of(test)].append(test)
    names = _by_seconds({name: _sum(group, "seconds") for name, group in groups.items()})
    for name in names[:most]:
        yield _line(name, *_figures(groups[name]))
    if rest := names[most:]:
        yield _line(
            f"{len(rest)} others", *_figures([test for name in rest for test in groups[name]])
        )


def _figures(tests: Sequence[Record]) -> Iterator[float]:
    yield _sum(tests, "seconds")
    yield len(tests)
    yield float(sum(test["phases"].get("setup", 0.0) for test in tests))
    yield _sum(tests, "cpu")
    yield _sum(tests, "waited")
    yield float(sum(map(_starting, tests)))


def _fixtures(tests: Sequence[Record]) -> Iterator[str]:
    yield from _heading("fixture, without those it asks for", "seconds", "tests", "longest")
    spent: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        for name, seconds in test["fixtures"].items():
            spent[name].append(seconds)
    for name in _by_seconds({name: sum(each) for name, each in spent.items()})[:FIXTURES]:
        yield _line(name, sum(spent[name]), len(spent[name]), max(spent[name]))


def _longest_tests(tests: Sequence[Record]) -> Iterator[str]:
    yield from _heading("test", "seconds", "cpu", "waited", "started")
    for test in sorted(tests, key=lambda test: -test["seconds"])[:TESTS]:
        figures = (test["seconds"], test["cpu"], test["waited"], _starting(test))
        yield _line(test["test"].removeprefix("tests/"), *figures)


def _starting(test: Record) -> float:
    return float(sum(seconds for _, seconds in test["started"].values()))


def _end(test: Record) -> float:
    return float(test["began"] + test["wall"])


def _sum(tests: Iterable[Record], field: str) -> float:
    return float(sum(test[field] for test in tests))


def _share(seconds: float, tests: Iterable[Record]) -> str:
    return f"{seconds / (_sum(tests, 'seconds') or 1):.1%}"


def _by_seconds(seconds: Mapping[str, float]) -> list[str]:
    return sorted(seconds, key=lambda name: (-seconds[name], name))


def _heading(title: str, *columns: str) -> Iterator[str]:
    yield ""
    yield _line(title, *columns)
    yield "-" * WIDTH


def _line(name: str, *columns: str | float) -> str:
    """Seconds have a digit after the point, counts have none. A long name keeps its end."""
    texts = [column if isinstance(column, str) else _number(column) for column in columns]
    room = WIDTH - COLUMN * len(texts)
    name = name if len(name) < room else f"…{name[2 - room :]}"
    return f"{name:<{room}}" + "".join(f"{text:>{COLUMN}}" for text in texts)


def _number(figure: float) -> str:
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:,.1f}"


if __name__ == "__main__":
    print("\n".join(tables(read(Path(sys.argv[1])))))
