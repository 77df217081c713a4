"""What the tests of compactions share: runs with their own storage and clock, and looks at the files."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from paimon_stream import PaimonTable
from paimon_stream.compact.job import compact
from paimon_stream.compact.report import CompactReport
from paimon_stream.runtime import SimulatedClock, simulated, system
from paimon_stream.storage.faults import Fault, FaultyStorage, Operation
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table

SEEDS = count()
TRIGGER = "num-sorted-run.compaction-trigger"
WAYS: list[dict[str, str]] = [
    # Compactions take the new files alone, or all that is not much larger, or what the defaults say.
    {"compaction.size-ratio": "-100", "compaction.force-up-level-0": "true", TRIGGER: "9"},
    {"compaction.max-size-amplification-percent": "100000", TRIGGER: "2", "num-levels": "6"},
    {},
]
"""Options under which compactions take different parts of a bucket with a primary key."""


def run(table: PaimonTable, storage: Any = None, **how: Any) -> CompactReport:
    runtime = simulated(next(SEEDS), SimulatedClock(system().clock.now_millis()))
    return compact(lambda: load_table(LocalStorage(table.location)), storage=storage, runtime=runtime, **how)


def data_files(table: PaimonTable) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def live(table: PaimonTable) -> set[str]:
    return {file.meta.file_name for file in table.files()}


def problems(table: PaimonTable) -> list[Any]:
    return [one for one in table.verify().findings if one.severity != "info"]


class Acting(FaultyStorage):
    """Does something else on the table once, before the first operation that fits."""

    __slots__ = ("_act", "_path", "_verb")

    def __init__(self, table: PaimonTable, act: Callable[[], object], verb: str, path: str) -> None:
        super().__init__(LocalStorage(table.location))
        self._act: Callable[[], object] | None = act
        self._verb, self._path = verb, path

    def _due(self, operation: Operation) -> Fault | None:
        act = self._act
        if act is not None and operation.verb == self._verb and operation.path.startswith(self._path):
            self._act = None
            act()
        return super()._due(operation)
