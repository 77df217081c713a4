"""What a run with several processes says while it runs: a line from time to time, and each failure.

A line has at most 80 columns. It says how many tests are done, and which folders are being tested.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any, Final

import pytest

SECONDS: Final = 15
COLUMNS: Final = 80


class Progress:
    """Takes the place of pytest's dots."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = self._said = time.monotonic()
        self._all: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._failed = 0
        self._over = False

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Each process collects the same tests."""
        first = not self._all
        self._all = Counter(map(folder_of, ids))
        if first:
            self._say(time.monotonic())

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """The test counts as it does for pytest, which prints nothing for it."""
        status = yield
        return status if self._over else (status[0], "", "")

    def pytest_sessionfinish(self) -> None:
        """The summary that pytest prints next has its words again."""
        self._over = True

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += 1
            self._write(f"FAILED {report.nodeid} ({report.when})")
        if report.when == "teardown":
            self._done[folder_of(report.nodeid)] += 1
            now = time.monotonic()
            if now - self._said >= SECONDS:
                self._say(now)

    def _say(self, now: float) -> None:
        self._said = now
        self._write(line(now - self._began, self._all, self._done, self._failed))

    def _write(self, text: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(text)


def line(
    seconds: float,
    tests: Counter[str],
    done: Counter[str],
    failed: int,
) -> str:
    """What is said after these seconds: the counts of all tests, and of those done, by folder."""
    minutes, rest = divmod(int(seconds), 60)
    running = [folder for folder in sorted(done) if done[folder] < tests[folder]]
    begun = ", ".join(f"{folder} {done[folder]}/{tests[folder]}" for folder in running)
    said = f"{minutes:3}:{rest:02}  {done.total():,} of {tests.total():,} tests"
    said += f", {failed} failed" if failed else ""
    said += f"  {begun}" if begun else ""
    return said if len(said) <= COLUMNS else said[: COLUMNS - 1] + "…"


def folder_of(test: str) -> str:
    """The folder of a test below tests/: the first only, and in unit/ the first two."""
    folders = test.partition("::")[0].removeprefix("tests/").split("/")[:-1]
    return "/".join(folders[: 2 if folders[:1] == ["unit"] else 1]) or "."


def register(config: pytest.Config) -> None:
    """Has the process that hands the tests out say how far they are, instead of a dot for each."""
    if config.getoption("numprocesses", None) and config.option.verbose == 0:
        config.pluginmanager.register(Progress(config))
