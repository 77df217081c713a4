"""How the processes of a run share the test files: by what they cost, and by what they start.

A process takes files as long as there are some. One of them begins with the files that need a session
of Spark, another one with those that need the JVM of Java Paimon, and they go on until there are no
more of these. A session costs ten seconds of processors until it is warm, so another process starts
one only where nothing else is left. The files of both wait for about a third of their time, in which
the other processes use the processors. Among equals the costliest file comes first, so all
processes end at about the same time.

`tests/costs.txt` has the seconds of the costly files. `make record-costs` writes it anew from a run
of `make test`. Files that are not in it are taken for cheap ones.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT: Final = Path(__file__).parents[2]
COSTS: Final = ROOT / "tests" / "costs.txt"
RECORDED: Final = 5.0
"""Files that take fewer seconds are not recorded."""
SECONDS_PER_TEST: Final = 0.1
"""What a test of a file without a record is taken to cost, up to `RECORDED` for all of them."""
STARTED: Final = {
    "Spark": re.compile(r"\bjob: Job\b|\bspark_session\b"),
    "Java": re.compile(r"\b(?:java|kinds|java_on_s3): "),
}
"""What a process starts once for all of its tests, and how a file names that it needs it. The first is
the dearest by far: a file that needs both is one of Spark.
"""


class Sharing(LoadFileScheduling):
    """Gives a process that is nearly idle the next file that suits it."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._recorded = read_costs()

    def _assign_work_unit(self, node: Any) -> None:
        started = {each: started_by(files) for each, files in self.assigned_work.items()}
        chosen = choose(
            {
                file: self._recorded.get(file, min(RECORDED, SECONDS_PER_TEST * len(tests)))
                for file, tests in self.workqueue.items()
            },
            own=started.pop(node, set()),
            others=set().union(*started.values()),
            processes=len(self.assigned_work),
        )
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def choose(
    costs: Mapping[str, float],
    own: Collection[str],
    others: Collection[str],
    processes: int,
) -> str:
    """The file that a process takes next.

    Args:
        costs: The seconds of each file that nobody has taken.
        own: What this process has started.
        others: What other processes have started.
        processes: How many processes share the files.
    """
    share = sum(costs.values()) / processes

    def rank(file: str) -> tuple[int, float]:
        need = needed(file)
        is_started = need is None or need in own
        if costs[file] > share / 2 and (is_started or need != "Spark"):
            # It would hold the end up if it came later.
            order = 0
        elif need is not None and is_started:
            order = 1
        elif need is not None and not own and need not in others:
            order = 2
        elif need is None:
            order = 3
        else:
            order = 5 if need == "Spark" else 4
        return order, -costs[file]

    return min(costs, key=rank)


@cache
def needed(file: str) -> str | None:
    """What a process must start for the tests of a file: a key of `STARTED`, or None. It is asked
    for each file again whenever a process takes one.
    """
    path = ROOT / file
    text = path.read_text() if path.exists() else ""
    return next((name for name, pattern in STARTED.items() if pattern.search(text)), None)


def started_by(files: Iterable[str]) -> set[str]:
    """What a process that has these files has started."""
    return {need for need in map(needed, files) if need is not None}


def read_costs() -> dict[str, float]:
    """The recorded seconds of the costly files."""
    pairs = (line.split() for line in COSTS.read_text().splitlines())
    return {file: float(seconds) for seconds, file in pairs}


class Recording:
    """Writes the costs of a run down, from pytest's own reports."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """The file has the costliest first."""
        costly = sorted(self._seconds.items(), key=lambda pair: (-round(pair[1]), pair[0]))
        COSTS.write_text(
            "".join(f"{seconds:.0f} {file}\n" for file, seconds in costly if seconds >= RECORDED)
        )


def register(config: pytest.Config) -> None:
    """With RECORD_COSTS=1, the process that hands the tests out records what they cost."""
    if os.environ.get("RECORD_COSTS") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recording())
