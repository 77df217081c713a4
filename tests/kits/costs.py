"""What each test costs: its seconds by phase and fixture, what it started, and how long it waited.

With the environment variable TEST_COSTS=FILE, `tests/conftest.py` has pytest write one line of JSON for
each test to that file. `make test-costs` does so and prints the tables of `tests/kits/cost_tables.py`.
Without the variable nothing here is imported.

The record of a test has these fields:

- `worker` and `test`: the process that ran it, and its name, which begins with its file.
- `began` and `wall`: when, and for how many seconds, by the clock of the system.
- `queued`: the seconds in which its thread was ready to run and had no processor. `seconds`, `phases`
  and `fixtures` are without these, so that other work on the machine changes little.
- `seconds`: those of the test; `phases`: those of setup, call and teardown.
- `fixtures`: the seconds of each fixture, without those that it asked for while it ran.
- `started`: what the test started, by kind: how often, and for how many seconds by the clock. Those of
  a server, a JVM or a session of Spark end when it is ready; those of a child when the child ends, at
  the latest with the test. Children that live at the same time count once.
- `cpu`: the seconds of processors that this process and its descendants used meanwhile.
- `waited`: the `seconds` beyond `cpu`: the test waited for a clock, a disk or a network. A process for
  which the test waits may wait for a processor, which counts here: on a busy machine this is too large.

Each process also writes one line when it knows its tests, with the `collected` tests and its `seconds`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import multiprocessing.process
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

STARTERS: Final = (
    ("java_paimon", "JavaPaimon", "__init__", "JVM of Java Paimon"),
    ("pyspark", "SparkContext", "_ensure_initialized", "JVM of Spark"),
    ("pyspark", "SparkContext", "_do_init", "session of Spark"),
    ("tests.servers._process", "Server", "__init__", "server {}"),
    ("tests.kits.hdfs", "MiniHdfs", "__init__", "JVM of an HDFS"),
    ("tests.kits.flink", "Flink", "start_jvm", "JVM of a Flink"),
    ("tests.kits.hive", "HiveMetastore", "__init__", "JVM of a Hive Metastore"),
    ("tests.servers.rest_paimon", "RestServer", "__init__", "JVM of a REST server"),
)
"""Module, class and method that start something, and its kind; `{}` is the class of the object."""

_TICK: Final = os.sysconf("SC_CLK_TCK")
_LONG: Final = 0.2
"""A test of that many seconds may have descendants that its process did not start itself."""


def register(config: pytest.Config, records: Path) -> None:
    """Has this process write records if it runs tests. The process that was started first begins
    the file.
    """
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None:
        records.write_text("")
        if config.getoption("numprocesses", None):
            return
    config.pluginmanager.register(Costs(records, worker or "main"))


class Costs:
    """The plugin of pytest that writes the records of one process of tests."""

    def __init__(
        self,
        records: Path,
        worker: str,
    ) -> None:
        # A test may change the folder.
        self._records = records.absolute()
        self._worker = worker
        self._began = time.time()
        self._starts = Starts()
        self._processors = Processors()
        self._phase_began = 0.0
        self._phases: dict[str, float] = {}
        self._fixtures: dict[str, float] = defaultdict(float)
        self._asked: list[float] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The modules that start something can be imported by now."""
        self._starts.watch()
        self._write({"collected": len(session.items), "seconds": time.time() - self._began})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Measures a test with its setup and teardown."""
        self._phases.clear()
        self._fixtures.clear()
        self._starts.begin()
        cpu, queued, began = self._processors.used(), _queued(), time.time()
        test_began = self._phase_began = _clock()
        done = yield
        seconds, wall, queued = _clock() - test_began, time.time() - began, _queued() - queued
        started = self._starts.end()
        cpu = max(0.0, self._processors.used(search=bool(started) or wall > _LONG) - cpu)
        self._write(
            {
                "test": item.nodeid,
                "began": began,
                "wall": wall,
                "queued": queued,
                "seconds": seconds,
                "phases": self._phases,
                "fixtures": self._fixtures,
                "started": started,
                "cpu": cpu,
                "waited": max(0.0, seconds - cpu),
            }
        )
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
        call: pytest.CallInfo[None],
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A phase has ended."""
        now = _clock()
        self._phases[call.when] = now - self._phase_began
        self._phase_began = now
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self,
        fixturedef: pytest.FixtureDef[Any],
    ) -> Generator[None, object, object]:
        """Measures a fixture."""
        self._asked.append(0.0)
        began = _clock()
        try:
            return (yield)
        finally:
            seconds = _clock() - began
            self._fixtures[fixturedef.argname] += seconds - self._asked.pop()
            if self._asked:
                self._asked[-1] += seconds

    def pytest_sessionfinish(self) -> None:
        """The process runs no more tests."""
        self._starts.unwatch()

    def _write(self, record: dict[str, Any]) -> None:
        """One write for one line: several processes append to the file."""
        line = json.dumps({"worker": self._worker, **record}) + "\n"
        file = os.open(self._records, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


class Starts:
    """What the running test starts. It wraps the methods that start something."""

    def __init__(self) -> None:
        self._spans: dict[str, list[list[float]]] = defaultdict(list)
        self._alive: dict[int, list[float]] = {}
        self._starting = threading.local()
        self._originals: list[tuple[type, str, Any]] = []

    def watch(self) -> None:
        """Wraps the starters that can be imported, and the starts of child processes."""
        for module, owner, method, kind in STARTERS:
            with suppress(ImportError):
                self._watch_starter(getattr(importlib.import_module(module), owner), method, kind)
        self._watch_children(subprocess.Popen, "__init__", ("wait", "poll"), "returncode")
        self._watch_children(multiprocessing.process.BaseProcess, "start", ("join",), "exitcode")

    def unwatch(self) -> None:
        """Puts back what `watch` wrapped."""
        while self._originals:
            setattr(*self._originals.pop())

    def begin(self) -> None:
        """A test begins."""
        self._spans.clear()
        self._alive.clear()

    def end(self) -> dict[str, tuple[int, float]]:
        """How often the test started something of each kind, and for how many seconds."""
        now = time.perf_counter()
        return {
            kind: (len(spans), together([(*span, now)[:2] for span in spans]))
            for kind, spans in self._spans.items()
        }

    def _replace(self, owner: type, method: str, by: Callable[..., Any]) -> None:
        original = owner.__dict__[method]
        self._originals.append((owner, method, original))
        setattr(owner, method, staticmethod(by) if isinstance(original, classmethod) else by)

    def _watch_starter(self, owner: type, method: str, kind: str) -> None:
        start = getattr(owner, method)

        @functools.wraps(start)
        def watched(*args: Any, **named: Any) -> Any:
            # pyspark asks for its JVM for each session, and starts it for the first.
            if method == "_ensure_initialized" and (
                owner._gateway is not None or named.get("gateway") is not None
            ):
                return start(*args, **named)
            # What a starter starts belongs to it.
            within = getattr(self._starting, "starter", False)
            self._starting.starter = True
            began = time.perf_counter()
            try:
                return start(*args, **named)
            finally:
                self._starting.starter = within
                if not within:
                    name = kind.format(type(args[0]).__name__ if args else "")
                    self._spans[name].append([began, time.perf_counter()])

        self._replace(owner, method, watched)

    def _watch_children(
        self,
        owner: type,
        method: str,
        waits: Sequence[str],
        ended: str,
    ) -> None:
        start = getattr(owner, method)

        @functools.wraps(start)
        def watched(child: Any, *args: Any, **named: Any) -> None:
            began = time.perf_counter()
            start(child, *args, **named)
            if not getattr(self._starting, "starter", False):
                self._alive[id(child)] = [began]
                command = named.get("args") or (args[0] if args else ())
                self._spans[kind_of(command)].append(self._alive[id(child)])

        self._replace(owner, method, watched)
        for wait in waits:
            self._replace(owner, wait, self._noting_the_end(getattr(owner, wait), ended))

    def _noting_the_end(self, wait: Callable[..., Any], ended: str) -> Callable[..., Any]:
        @functools.wraps(wait)
        def noting(child: Any, *args: Any, **named: Any) -> Any:
            done = wait(child, *args, **named)
            if id(child) in self._alive and getattr(child, ended) is not None:
                self._alive.pop(id(child)).append(time.perf_counter())
            return done

        return noting


def kind_of(command: Any) -> str:
    """The kind of a child process by its command; without one, `multiprocessing` started it."""
    if isinstance(command, str | bytes | os.PathLike):
        command = [command]
    words = [os.fsdecode(word) for word in command]
    program = Path(words[0]).name if words else "python"
    if program == "java":
        return "child JVM"
    if not program.startswith("python"):
        return f"child {program}"
    return "child Python with Spark" if "pyspark" in _code(words[1:]) else "child Python"


def _code(arguments: Sequence[str]) -> str:
    """The code that Python runs with these arguments; "" if it cannot be said."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        with suppress(OSError, ImportError, ValueError):
            if argument == "-c":
                return following
            if argument == "-m":
                module = importlib.util.find_spec(following)
                return Path(module.origin).read_text() if module and module.origin else ""
            if not argument.startswith("-"):
                return Path(argument).read_text()
    return ""


def together(spans: Iterable[Sequence[float]]) -> float:
    """The seconds that are in at least one of the spans, each from a beginning to an end."""
    seconds, until = 0.0, float("-inf")
    for began, ended in sorted(spans):
        seconds += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return seconds


class Processors:
    """The seconds of processors that this process and its descendants used.

    Those of a descendant that has ended are part of its parent's, if the parent has waited for it.
    """

    def __init__(self) -> None:
        self._descendants: list[int] = []

    def used(self, *, search: bool = False) -> float:
        """All seconds until now. Only a `search`, which takes milliseconds, finds new descendants."""
        if search:
            self._descendants = descendants(os.getpid())
        ended = os.times()
        seconds = time.process_time() + ended.children_user + ended.children_system
        for process in self._descendants:
            with suppress(OSError):
                seconds += seconds_of(process)
        return seconds


def descendants(ancestor: int) -> list[int]:
    """The processes that descend from one, as /proc has them; none where there is no /proc."""
    children = defaultdict(list)
    with suppress(OSError):
        for process in map(int, filter(str.isdecimal, os.listdir("/proc"))):
            with suppress(OSError):
                children[int(_status(process)[1])].append(process)
    family = [ancestor]
    for member in family:
        family += children[member]
    return family[1:]


def seconds_of(process: int) -> float:
    """The seconds of processors that a process used, with those of its children that have ended and
    that it has waited for. Raises `OSError` if it is gone.
    """
    return sum(map(int, _status(process)[11:15])) / _TICK


def _status(process: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: the parent is field 1, and the ticks of processors
    are fields 11 to 14: of the process in its own code and in the system, and of its ended children.
    """
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _clock() -> float:
    """Seconds in which the calling thread worked or waited, without those of `_queued`.

    The thread may lose its processor between the looks at the two clocks. Then it looks again.
    """
    while True:
        queued, now = _queued(), time.perf_counter()
        if _queued() == queued:
            return now - queued


def _queued() -> float:
    """Seconds in which the calling thread was ready to run; 0 where the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0
