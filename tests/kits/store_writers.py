"""Processes that write to one table in a store at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from paimon_stream import PaimonTable, catalog
from paimon_stream.errors import (
    CommitContended,
    CommitUnknown,
    HistoryUnknown,
    ReplayError,
    SharedCheckpoint,
    Unavailable,
)
from tests.kits.forks import FORKS
from tests.kits.store_streams import RowStream

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING")]
FAR = 1_000_000
"""Between the ids of two writers."""


@dataclass
class Known:
    """A server as another process knows it: by its storage options."""

    kind: str
    given: dict[str, str]

    def options(self, proxy: object = None) -> dict[str, str]:
        """Storage options under Java Paimon's names."""
        return self.given


@dataclass
class Written:
    """What one process did. `attempts` counts the snapshots that were tried, `contended` the
    commits that were given up because others were faster each time, and begun again.
    """

    acknowledged: list[int] = field(default_factory=list)
    attempts: int = 0
    contended: int = 0
    errors: list[str] = field(default_factory=list)


class Crowd:
    """Processes that run a task each. They begin each round at the same time."""

    def __init__(self, processes: int) -> None:
        self._pool = FORKS.Pool(processes, _enter, (FORKS.Barrier(processes),))

    def run(self, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results of as many tasks as there are processes, in order."""
        return self._pool.starmap(work, tasks, chunksize=1)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()


_BARRIER: Any = None


def _enter(barrier: Any) -> None:
    global _BARRIER
    _BARRIER = barrier


def opened(location: str, options: dict[str, str]) -> PaimonTable:
    """The table at a location, or, with the options of a catalog, the table of that name."""
    if "metastore" in options:
        return catalog(options).get_table(location)
    return PaimonTable.load(location, storage_options=options)


def append(
    location: str, options: dict[str, str], first: int, writers: int, commits: int
) -> Written:
    """Appends rows, one in each commit, with several writers at once."""
    written = Written()
    opened(location, options).latest_snapshot()
    _BARRIER.wait(900)

    def write(number: int) -> None:
        table = opened(location, options)
        for turn in range(commits):
            row = FAR * number + turn
            for left in reversed(range(20)):
                try:
                    report = table.append(pa.table({"id": [row], "name": [f"n{row}"]}))
                except (
                    CommitUnknown,
                    Unavailable,
                ) as unknown:  # not acknowledged: it may be there or not
                    written.errors.append(repr(unknown))
                except CommitContended:  # nothing was published
                    written.contended += 1
                    if left:
                        continue
                    raise
                else:
                    written.acknowledged.append(row)
                    written.attempts += report.attempts
                break

    threads = [threading.Thread(target=write, args=(first + n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return written


def load_once(location: str, options: dict[str, str], loads: int, rows: int) -> list[str]:
    """Appends some loads, each under its identity, as the other processes do. Repeats a call that
    another one has disturbed. The outcomes.
    """
    table = opened(location, options)
    outcomes = []
    _BARRIER.wait(900)
    for load in range(loads):
        ids = pa.array(range(FAR * load, FAR * load + rows), pa.int64())
        for left in reversed(range(20)):
            try:
                report = table.append(
                    pa.table({"id": ids, "name": ["n"] * rows}), identity=f"load {load}"
                )
            except (HistoryUnknown, SharedCheckpoint, CommitContended) as disturbed:
                outcomes.append(type(disturbed).__name__)
                if not left:
                    raise
            else:
                outcomes.append(report.outcome)
                break
    return outcomes


def drive(
    location: str, options: dict[str, str], driver: int, next_batch: int, batches: int
) -> Any:
    """Runs a stream from a batch on, until another driver of the same checkpoint is noticed. The
    batch that the driver would run next, and the error that ended it.
    """
    stream = RowStream(Known("s3", options), None, store={}, location=location)  # type: ignore[arg-type]
    stream.next_batch, stream.runs = next_batch, 1000 * next_batch + 100 * driver
    _BARRIER.wait(900)
    try:
        for _ in range(batches):
            stream.batch(restarts=0)
    except ReplayError as noticed:
        return stream.next_batch, type(noticed).__name__
    return stream.next_batch, None
