"""What the tests of compactions share: runs with their own storage and clock, and looks at the
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from paimon_stream import PaimonTable
from paimon_stream.api.inspection import TableFile, table_file
from paimon_stream.compact.job import compact
from paimon_stream.compact.publish import CompactReport
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.merge.spec import KIND, SEQUENCE
from paimon_stream.options import Options
from paimon_stream.read.merged import Section
from paimon_stream.read.rows import section_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.runtime import SimulatedClock, simulated, system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.layout import Layout
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.table import Table, load_table
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment, Operation
from tests.kits.reading import wire_rows

SEEDS = count()
TRIGGER = "num-sorted-run.compaction-trigger"
WAYS: list[dict[str, str]] = [
    # Compactions take the new files alone, or all that is not much larger, or what the defaults
    # say.
    {"compaction.size-ratio": "-100", "compaction.force-up-level-0": "true", TRIGGER: "9"},
    {"compaction.max-size-amplification-percent": "100000", TRIGGER: "2", "num-levels": "6"},
    {},
]
"""Options under which compactions take different parts of a bucket with a primary key."""


def run(table: PaimonTable, storage: Any = None, **how: Any) -> CompactReport:
    runtime = simulated(next(SEEDS), SimulatedClock(system().clock.now_millis()))
    return compact(lambda: loaded(table, storage), runtime=runtime, **how)


class FailedRun(NamedTuple):
    """A compaction whose operation with the number `at` failed, what there was before, and the
    error that it raised.
    """

    at: int
    failed: Operation
    before: Any
    raised: BaseException | None


def failed_runs(
    table: PaimonTable,
    moment: Moment,
    *,
    stop: bool,
    step: int = 1,
    look: Callable[[PaimonTable], Any] | None = None,
) -> Iterator[FailedRun]:
    """A compaction for each `step`th operation of the storage, which fails there. `look` finds what
    there is before it, by default the data files. Ends with a run in which nothing failed, after
    more than 15 operations.
    """
    place, at = LocalStorage(table.location), step
    while True:
        storage, raised = FaultyStorage(place, [Fault(at=at, moment=moment, stop=stop)]), None
        before = (look or data_files)(table)
        try:
            run(table, storage)
        except (PaimonStreamError, Killed) as why:
            raised = why
        if not storage.fired:
            break
        yield FailedRun(at, storage.operations[at - 1], before, raised)
        at += step
    assert at > 15


def loaded(table: PaimonTable, storage: Any = None) -> Table:
    """The table as it is now; with a `storage`, that reads and writes there from then on."""
    now = load_table(LocalStorage(table.location))
    return now if storage is None else replace(now, storage=storage)


def data_files(table: PaimonTable) -> set[str]:
    return {path.name for path in Path(table.location).rglob("data-*")}


def live(table: PaimonTable) -> set[str]:
    return {file.meta.file_name for file in table.files()}


def problems(table: PaimonTable) -> list[Any]:
    return [one for one in table.verify().findings if one.severity != "info"]


def changelog_entries(table: PaimonTable, since: int = 0) -> list[ManifestEntry]:
    """The changelog files of the snapshots after `since`, in the order of their manifests."""
    manifests = ManifestStore(LocalStorage(table.location))
    return [
        entry
        for one in table.snapshots()
        if one.id > since and one.changelog_manifest_list
        for meta in manifests.changelog(one)
        for entry in manifests.read(meta)
    ]


def changelog_files(table: PaimonTable, since: int = 0) -> list[TableFile]:
    return [
        table_file(table.location, Layout.of(table.schema, Options(table.schema.options)), entry)
        for entry in changelog_entries(table, since)
    ]


def changelog(table: PaimonTable, since: int = 0) -> list[list[Any]]:
    """Kind, sequence number and values of the changelog's rows, in their order in the files of a
    bucket.
    """
    scan = plan_scan(load_table(LocalStorage(table.location)))
    found = []
    for entry in sorted(
        changelog_entries(table, since), key=lambda one: (one.partition, one.bucket)
    ):
        section = Section(((entry,),), {entry.file.file_name: 0})
        for batch in section_batches(scan, [section], keep_deletes=True):
            kinds = [("+I", "-U", "+U", "-D")[kind] for kind in batch.column(KIND).to_pylist()]
            numbers = batch.column(SEQUENCE).to_pylist()
            rows = wire_rows(pa.Table.from_batches([batch]), table.schema.fields)
            found += [list(one) for one in zip(kinds, numbers, rows, strict=True)]
    return found


class Acting(FaultyStorage):
    """Does something else on the table once, before the first operation that fits."""

    __slots__ = ("_act", "_path", "_verb")

    def __init__(self, table: PaimonTable, act: Callable[[], object], verb: str, path: str) -> None:
        super().__init__(LocalStorage(table.location))
        self._act: Callable[[], object] | None = act
        self._verb, self._path = verb, path

    def _due(self, operation: Operation) -> Fault | None:
        act = self._act
        if (
            act is not None
            and operation.verb == self._verb
            and operation.path.startswith(self._path)
        ):
            self._act = None
            act()
        return super()._due(operation)
