"""Clocks, random numbers and ids: the real ones, and those that repeat themselves."""

from __future__ import annotations

import ast
import pickle
import time
import uuid
from functools import cache
from pathlib import Path

import pytest

import paimon_stream
from paimon_stream.runtime import Runtime, SimulatedClock, simulated, system

PACKAGE = Path(paimon_stream.__file__).parent
NOT_WHERE = {
    "time": "runtime.py",
    "random": "runtime.py",
    "uuid": "runtime.py",
    "pyspark": "spark/",
    "pyarrow.fs": "storage/",
    "obstore": "storage/",
}


@cache
def imports(file: Path) -> set[str]:
    """Every module a file imports, at any level."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


@pytest.mark.parametrize("module", NOT_WHERE)
def test_only_the_right_place_imports(module: str) -> None:
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        if not place.startswith(NOT_WHERE[module]):
            named = {
                name for name in imports(file) if name == module or name.startswith(f"{module}.")
            }
            assert not named, f"{place} imports {named}"


def test_runtimes_of_one_seed_repeat_each_other() -> None:
    def draw(runtime: Runtime) -> list[object]:
        return [
            runtime.ids.uuid(),
            runtime.rng.below(1000),
            runtime.ids.uuid(),
            runtime.rng.below(7),
        ]

    assert draw(simulated(1)) == draw(simulated(1))
    assert draw(simulated(1)) != draw(simulated(2))


@pytest.mark.parametrize("runtime", [system(), simulated(3)], ids=["system", "simulated"])
def test_ids_are_random_uuids_in_lower_case(runtime: Runtime) -> None:
    ids = {runtime.ids.uuid() for _ in range(200)}
    assert len(ids) == 200
    for text in ids:
        assert str(uuid.UUID(text)) == text
        assert uuid.UUID(text).version == 4


@pytest.mark.parametrize("runtime", [system(), simulated(3)], ids=["system", "simulated"])
def test_dice_stay_below_their_bound_and_show_every_side(runtime: Runtime) -> None:
    assert {runtime.rng.below(3) for _ in range(300)} == {0, 1, 2}
    assert runtime.rng.below(1) == 0


def test_a_simulated_clock_moves_by_sleep_only_and_at_once() -> None:
    clock = SimulatedClock(millis=5000)
    assert clock.now_millis() == clock.now_millis() == clock.local_millis() == 5000
    before = time.monotonic()
    clock.sleep(3600)
    clock.advance(1)
    assert time.monotonic() - before < 1
    assert clock.now_millis() == 3_605_001
    assert clock.monotonic() == 3605.001


def test_a_simulated_runtime_takes_a_shared_clock() -> None:
    clock = SimulatedClock()
    assert simulated(1, clock).clock is clock


def test_the_system_clock_has_the_time() -> None:
    clock = system().clock
    assert abs(clock.now_millis() - time.time() * 1000) < 5000
    assert clock.monotonic() <= clock.monotonic()


def test_local_time_is_the_wall_clock_read_as_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = system().clock
    try:
        for zone, hours in (("UTC", 0), ("XXX-05:30", 5.5), ("YYY+08", -8)):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert abs(clock.local_millis() - clock.now_millis() - hours * 3_600_000) < 1000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("runtime", [system(), simulated(3)], ids=["system", "simulated"])
def test_runtimes_pickle(runtime: Runtime) -> None:
    copy = pickle.loads(pickle.dumps(runtime))
    assert uuid.UUID(copy.ids.uuid()).version == 4
    assert copy.clock.now_millis() > 0
