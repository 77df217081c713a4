"""How the simulated compactions rewrite rows. No simulated data file holds any: a file stands for
the rows that its writer meant. A compacted file stands for *pieces*, one of each file whose rows it
has.

Only the reading of rows, the writing of rows and the pool of threads are doubles. What is read,
written and removed are operations of the storage, and everything else is the code of the package.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_stream.change import matching
from paimon_stream.change import rewriting as changed_files
from paimon_stream.change.matching import _matching_rows as matching_rows
from paimon_stream.compact import job, rewrite
from paimon_stream.compact.rewrite import BucketWriter, Rewritten
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.deletion_vectors import Positions
from paimon_stream.format.entries import DataFileMeta, FileSource, ManifestEntry
from paimon_stream.merge.rows import Comparison
from paimon_stream.merge.spec import KIND_COLUMN, SEQUENCE_COLUMN
from paimon_stream.read import rows as reading
from paimon_stream.read.merged import Section
from paimon_stream.read.rows import deleted_rows
from paimon_stream.read.scan import Scan
from paimon_stream.stream import compacting
from paimon_stream.write.file_stats import file_schema
from paimon_stream.write.key_value import KeyValueSettings, KeyValueWriter
from tests.kits.commits import FIELDS, data_file
from tests.kits.doubles import in_their_places
from tests.simulation.real_files import check_rewritten

if TYPE_CHECKING:
    from tests.simulation.world import World

AT_ONCE = 2
"""How many units a simulated pool has in hand."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a file holds of the rows of `file`, which a writer has written. In a table with keys
    these are the `values` by key that no newer row in the file has replaced, all with one sequence
    `number`.
    """

    file: str
    rows: int
    number: int
    values: dict[int, int]


def pieces_of(world: World, entry: ManifestEntry) -> tuple[Piece, ...]:
    """The pieces of a live file."""
    file = entry.file
    found = world.truth.archive.pieces.get(file.file_name)
    if found is not None:
        return found
    values = world.values.get(file.file_name, {})
    return (Piece(file.file_name, file.row_count, file.max_sequence_number, values),)


def keys_of(world: World, entry: ManifestEntry) -> list[int]:
    """The keys of a file, by the positions of their rows."""
    return sorted(key for piece in pieces_of(world, entry) for key in piece.values)


def unmarked(world: World, entry: ManifestEntry, marked: Positions) -> tuple[Piece, ...]:
    """The pieces of a file without the rows that are marked."""
    keys = keys_of(world, entry)
    gone = {keys[at] for at in marked.tolist()}
    kept = (
        {key: one.values[key] for key in one.values if key not in gone}
        for one in pieces_of(world, entry)
    )
    return tuple(
        replace(one, values=values)
        for one, values in zip(pieces_of(world, entry), kept, strict=True)
    )


def merged(given: Iterable[Piece]) -> list[Piece]:
    """The pieces with one value for each key, that with the highest number. Of equal ones the first
    wins.
    """
    pieces = list(given)
    newest: dict[int, int] = {}
    for at, one in enumerate(pieces):
        for key in one.values:
            if key not in newest or pieces[newest[key]].number < one.number:
                newest[key] = at
    return [
        replace(one, values={key: value for key, value in one.values.items() if newest[key] == at})
        for at, one in enumerate(pieces)
    ]


def rewritten(world: World, given: Iterable[Piece]) -> list[Piece]:
    """The pieces in a new file. Where values add up, a file has what all of them add."""
    return list(given) if world.sums else merged(given)


def compacted(world: World, pieces: Sequence[Piece], *, schema_id: int) -> DataFileMeta:
    """A new file with these pieces, which is still to be written."""
    world.files += 1
    name = f"compacted-x-{world.files}"
    world.truth.archive.pieces[name] = tuple(pieces)
    file = replace(
        data_file(name, sum(one.rows for one in pieces)),
        file_size=4 * len(pieces),
        file_source=FileSource.COMPACT,
        schema_id=schema_id,
    )
    if not world.keyed:
        return file
    keys = sorted(key for one in pieces for key in one.values)
    numbers = [one.number for one in pieces if one.values]
    low, high = (serialize([FIELDS[0].type], [one]) for one in (keys[0], keys[-1]))
    return replace(
        file.numbered(min(numbers), max(numbers)), min_key=low, max_key=high, row_count=len(keys)
    )


# -- reading and writing
# ------------------------------------------------------------------------------


class Writer:
    """In place of `BucketWriter` and `KeyValueWriter`. It takes the pieces whose rows it is
    given.
    """

    def __init__(self, settings: Any, storage: Any, runtime: object, folder: str) -> None:
        plain = settings.file if isinstance(settings, KeyValueSettings) else settings
        self._schema_id: int = plain.schema_id
        self._storage, self._folder = storage, folder
        self._rows = 0
        self._done: list[DataFileMeta] = []
        self._taken: list[Piece] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._taken += self._storage.given
        self._storage.given = ()

    add_rows = add

    def close(self) -> tuple[DataFileMeta, ...]:
        world = self._storage.world
        files = [self._taken] if self._taken else []
        if not world.keyed and len(self._taken) > 1 and world.choices.once_in(2):
            at = 1 + world.choices.below(len(self._taken) - 1)
            files = [self._taken[:at], self._taken[at:]]
        for pieces in files:
            file = compacted(world, pieces, schema_id=self._schema_id)
            self._storage.write(f"{self._folder}/{file.file_name}", b"rows")
            self._done.append(file)
        assert sum(one.row_count for one in self._done) == self._rows
        return tuple(self._done)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(f"{self._folder}/{one.file_name}" for one in self._done)

    def abort(self, why: BaseException) -> tuple[str, ...]:
        return self.paths


class RealWriter(KeyValueWriter):
    """Writes real files, and notes the pieces whose rows they have. Their content must be that of
    the pieces.
    """

    def __init__(self, settings: Any, storage: Any, runtime: Any, folder: str) -> None:
        super().__init__(settings, storage, runtime, folder)
        self._source = storage
        self._taken: list[Piece] = []

    def add_rows(self, rows: pa.Table | pa.RecordBatch) -> None:
        super().add_rows(rows)
        self._taken += self._source.given
        self._source.given = ()

    def close(self) -> tuple[DataFileMeta, ...]:
        files = super().close()
        world: World = self._source.world
        for file, path in zip(files, self.paths, strict=True):
            world.truth.archive.pieces[file.file_name] = tuple(self._taken)
            check_rewritten(world, path, self._taken)
        assert len(files) <= 1, "the rows of a bucket are few"
        return files


def append_writer(settings: Any, storage: Any, runtime: Any, folder: str) -> Writer | BucketWriter:
    """In place of `BucketWriter`."""
    if storage.world.changing:
        return BucketWriter(settings, storage, runtime, folder)
    return Writer(settings, storage, runtime, folder)


def keyed_writer(settings: Any, storage: Any, runtime: Any, folder: str) -> Writer | KeyValueWriter:
    """In place of `KeyValueWriter`."""
    if storage.world.changing:
        return KeyValueWriter(settings, storage, runtime, folder)
    kind = RealWriter if storage.world.real else Writer
    return kind(settings, storage, runtime, folder)


def read_batches(scan: Scan) -> Iterator[pa.RecordBatch]:
    """In place of the reading of append tables."""
    if scan.table.storage.world.changing:  # type: ignore[attr-defined]
        yield from reading.read_batches(scan)
        return
    for entry in scan.files:
        for one in _read(scan, entry):
            scan.table.storage.given = (one,)  # type: ignore[attr-defined]
            yield _batch(scan, one.rows)


def section_batches(
    scan: Scan,
    wanted: Iterable[Section],
    *,
    keep_deletes: bool,
    row_filter: Callable[..., Any] | None = None,
) -> Iterator[pa.RecordBatch]:
    """In place of the merging of rows with keys. There are no deletes, and no rows that are too
    old. Rows of real files are read and merged by the package.
    """
    assert row_filter is None
    world: World = scan.table.storage.world  # type: ignore[attr-defined]
    if world.changing:
        yield from reading.section_batches(scan, wanted, keep_deletes=keep_deletes)
        return
    for section in wanted:
        files = sorted(section.files, key=lambda one: section.ages[one.file.file_name])
        if world.real:
            pieces = [piece for entry in files for piece in pieces_of(world, entry)]
            scan.table.storage.given = rewritten(world, pieces)  # type: ignore[attr-defined]
            yield from reading.section_batches(scan, [section], keep_deletes=keep_deletes)
            continue
        pieces = merged([piece for entry in files for piece in _read(scan, entry)])
        scan.table.storage.given = pieces  # type: ignore[attr-defined]
        yield _batch(scan, sum(len(one.values) for one in pieces))


def section_changes(
    scan: Scan,
    wanted: Iterable[Section],
    how: Comparison,
    *,
    keep_deletes: bool,
    row_filter: Callable[..., Any] | None = None,
) -> Iterator[tuple[pa.Table, None]]:
    """In place of the merging of rows with what higher levels have of their keys."""
    world: World = scan.table.storage.world  # type: ignore[attr-defined]
    for section in wanted:
        files = sorted(section.files, key=lambda one: section.ages[one.file.file_name])
        pieces = merged([piece for entry in files for piece in _read(scan, entry)])
        keys = {key for one in pieces for key in one.values}
        for entry in (one for run in section.looked_up for one in run):
            _read(scan, entry)
            found = [at for at, key in enumerate(keys_of(world, entry)) if key in keys]
            (before,) = deleted_rows(scan, [entry])
            if how.deletes_older and found:
                scan.deletions[entry.file.file_name] = np.union1d(before, found)
        scan.table.storage.given = pieces  # type: ignore[attr-defined]
        yield pa.Table.from_batches([_batch(scan, len(keys))]), None


def found_rows(scan: Scan, predicate: Any, rows_of: Any, entry: ManifestEntry) -> Positions:
    """In place of the search for rows to delete: the position that the deleter means, unless its
    row is deleted already.
    """
    storage: Any = scan.table.storage
    if storage.world.changing:
        return matching_rows(scan, predicate, rows_of, entry)
    storage.read(scan.table.layout.file_of(entry))
    deleter, name = storage._process.actor, entry.file.file_name
    deleter.planned.add(name)
    storage.world.asked.setdefault(name, set()).add(deleter.position)
    (old,) = deleted_rows(scan, [entry])
    return np.setdiff1d(np.array([deleter.position], np.int64), old)


def _read(scan: Scan, entry: ManifestEntry) -> tuple[Piece, ...]:
    """The pieces of a file, without rows that are marked."""
    table = scan.table
    table.storage.read(table.layout.data_file(entry.partition, entry.bucket, entry.file.file_name))
    world: World = table.storage.world  # type: ignore[attr-defined]
    if not world.vectors:
        return pieces_of(world, entry)
    (marked,) = deleted_rows(scan, [entry])
    return unmarked(world, entry, marked)


def _batch(scan: Scan, rows: int) -> pa.RecordBatch:
    """A batch with so many rows that say nothing."""
    fields = list(file_schema(replace(scan.schema, fields=scan.columns)))
    if scan.merge is not None:
        fields += list(file_schema(replace(scan.schema, fields=(SEQUENCE_COLUMN, KIND_COLUMN))))
    columns = [
        pa.nulls(rows, one.type)
        if one.nullable
        else pa.array([("" if pa.types.is_string(one.type) else 0)] * rows, one.type)
        for one in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


# -- threads
# ------------------------------------------------------------------------------------------


class Task(Future[Rewritten]):
    """A unit in the pool."""

    def __init__(self, work: Callable[[], Rewritten]) -> None:
        super().__init__()
        self._work = work

    def add_done_callback(self, fn: Callable[[Future[Rewritten]], object]) -> None:
        """Also tells a queue which tasks it may have."""
        queue = getattr(fn, "__self__", None)
        if isinstance(queue, Finished):
            queue.tasks.append(self)
        super().add_done_callback(fn)

    def carry_out(self) -> None:
        """Rewrites the unit. What ends the process ends everything."""
        try:
            self.set_result(self._work())
        except Exception as why:  # noqa: BLE001  whoever asks for the result judges it
            self.set_exception(why)


class Finished:
    """In place of the queue of units that are ready. If none is, some are rewritten when somebody waits."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self._ready: deque[Task] = deque()

    def put(self, task: Task) -> None:
        self.tasks.remove(task)
        self._ready.append(task)

    def get(self, timeout: float) -> Task:
        if not self._ready:
            for task in self.tasks[:AT_ONCE]:
                task.carry_out()
        return self.get_nowait()

    def get_nowait(self) -> Task:
        if not self._ready:
            raise Empty
        return self._ready.popleft()


class Pool:
    """In place of a pool of threads. Units are rewritten when somebody waits for them."""

    def __init__(self, threads: int, *, thread_name_prefix: str) -> None:
        self._tasks: list[Task] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *given: object) -> None:
        self.shutdown()

    def submit(self, work: Callable[..., Rewritten], *given: object) -> Task:
        self._tasks.append(Task(partial(work, *given)))
        return self._tasks[-1]

    def map(self, work: Callable[..., Any], given: Iterable[Any]) -> Iterator[Any]:
        return map(work, given)

    def shutdown(self, *, cancel_futures: bool = True) -> None:
        for one in self._tasks:
            one.cancel()


class TaskBeside(Task):
    """A unit in a pool that works beside a stream. It may end whenever somebody looks at it."""

    def __init__(self, work: Callable[[], Rewritten], world: World) -> None:
        super().__init__(work)
        self._world = world

    def done(self) -> bool:
        if not super().done() and self._world.choices.once_in(2):
            self.carry_out()
        return super().done()

    def carry_out(self) -> None:
        if self.set_running_or_notify_cancel():
            super().carry_out()


class PoolBeside(Executor):
    """In place of the threads beside a stream."""

    def __init__(self, world: World) -> None:
        self._world = world

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        return TaskBeside(partial(fn, *given, **named), self._world)


class Waited(NamedTuple):
    """What `wait` returns."""

    done: set[Task]


def wait(running: Iterable[Task], timeout: float, when: str) -> Waited:
    """In place of the waiting for a thread: some units are rewritten, and one is ready."""
    tasks = list(running)
    if not any(one.done() for one in tasks):
        for one in tasks[:AT_ONCE]:
            one.carry_out()
    return Waited({next(one for one in tasks if one.done())})


DOUBLES: tuple[tuple[Any, str, object], ...] = (
    (job, "ThreadPoolExecutor", Pool),
    (job, "SimpleQueue", Finished),
    (compacting, "wait", wait),
    (rewrite, "BucketWriter", append_writer),
    (rewrite, "read_batches", read_batches),
    (rewrite, "KeyValueWriter", keyed_writer),
    (rewrite, "section_batches", section_batches),
    (rewrite, "section_changes", section_changes),
    (matching, "ThreadPoolExecutor", Pool),
    (changed_files, "ThreadPoolExecutor", Pool),
    (matching, "_matching_rows", found_rows),
)


@contextmanager
def rewriting() -> Iterator[None]:
    """The doubles take the places of what they stand for."""
    with in_their_places(DOUBLES):
        yield
