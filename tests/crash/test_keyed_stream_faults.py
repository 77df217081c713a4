"""A stream into a table with a primary key, while another writer writes the same key, and every
storage operation fails in turn. The row of a key is that of the newest commit, and sums count each
row once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.report import CommitReport, Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import PaimonStreamError
from paimon_stream.storage.base import Storage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.table import Table, load_table
from tests.kits.attempts import attempts
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS, Fault, FaultyStorage, Killed
from tests.kits.keyed import Change, write_changes
from tests.kits.steps import numbered, run_batch

pytestmark = [pytest.mark.store, pytest.mark.s3]

_PLACES: Final = count()


@dataclass
class Stream:
    """A table with key `id`, a stream that writes key 1 in each batch, and a stranger who writes it
    too, at a phase of the first commit that gets so far.
    """

    races_at: Phase | None = Phase.JOURNALED
    options: dict[str, str] = field(default_factory=dict)
    raced: bool = False
    writes_fail: bool = False
    runs: int = 0
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bench = Bench({"bucket": "1", **self.options}, keys=("id",))
        self.bench.storage = (
            self.bench.table.storage
        )  # it shows the external paths, if there are any
        self.stranger("before")

    @property
    def table(self) -> Table:
        return load_table(self.bench.storage)

    def stranger(self, value: str) -> None:
        commit = TableCommit(self.table, f"other-{value}", runtime=self.bench.runtime)
        numbering = commit.numbers()
        assert numbering is not None
        rows = [("+I", {"id": 1, "dt": value})]
        commit.append(self.written(rows, numbering.first), numbering)

    def written(self, rows: list[Any], first: int, storage: Storage | None = None) -> Any:
        return write_changes(
            self.bench.on(storage),
            rows,
            first_sequence=first,
            is_sorted=True,
            runtime=self.bench.runtime,
        ).messages

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is self.races_at and not self.raced:
            self.raced = True
            self.stranger("meanwhile")

    def run(self, batch_id: int, storage: Storage | None = None) -> CommitReport:
        """One batch in a run of its own."""
        self.runs += 1
        identity = WriterIdentity(
            user="me", query_id="q", run_id=f"r{self.runs}", token=f"t{self.runs}"
        )
        writer = StreamWriter(
            storage=storage or self.bench.storage,
            identity=identity,
            options={},
            runtime=self.bench.runtime,
            observer=self,
        )
        batch = Batch(batch_id=batch_id, offsets_hash=f"offsets-{batch_id}")

        def written(judged: JudgedBatch) -> WrittenBatch:
            numbering, first, _ = numbered(judged)
            self.numbers.append(first)
            changes: list[Change] = [("+I", {"id": 1, "dt": f"batch {batch_id}"})]
            made = self.written(changes, first, storage if self.writes_fail else None)
            return judged.written(made, numbering=numbering)

        return run_batch(writer, batch, written)

    def order(self) -> list[str]:
        """What was committed, oldest first, as the values of key 1."""
        snapshots = map(self.bench.snapshots.get, self.bench.snapshots.ids())
        return [
            f"batch {one.commit_identifier}"
            if one.commit_user == "me"
            else one.commit_user[len("other-") :]
            for one in snapshots
        ]

    def value(self) -> str:
        rows = PaimonTable(self.table).to_arrow().to_pylist()
        assert [row["id"] for row in rows] == [1]
        found: str = rows[0]["dt"]
        return found


def test_the_newest_commit_has_the_row_wherever_a_stream_was_killed() -> None:
    for stream, storage in attempts(Stream, FAULTS["killed after"], least=30):
        try:
            stream.run(0, storage)
        except (PaimonStreamError, Killed):
            assert stream.value() == stream.order()[-1]
        assert stream.run(0).outcome in ("committed", "already committed")
        assert stream.order().count("batch 0") == 1
        assert stream.value() == stream.order()[-1]
        assert stream.run(1).outcome == "committed"
        assert stream.value() == stream.order()[-1] == "batch 1"


def test_a_batch_is_written_again_for_each_writer_who_was_faster() -> None:
    for phase, numbers in ((Phase.JOURNALED, [1, 2]), (Phase.STAGED, [1, 2]), (None, [1])):
        stream = Stream(races_at=phase)
        stream.run(0)
        assert stream.numbers == numbers
        assert stream.value() == stream.order()[-1] == "batch 0"
        files = [file.path for file in PaimonTable(stream.table).files()]
        stored = [one.path for one in stream.bench.storage.list_files("bucket-0")]
        assert len(files) == len(stored)  # the first attempt's are removed


@pytest.mark.parametrize("races", [False, True], ids=["alone", "beside another"])
def test_prepared_files_are_used_only_where_nobody_was_faster(races: bool) -> None:
    stream = Stream(races_at=Phase.STAGED if races else None)
    storage = FaultyStorage(stream.bench.storage, [_killed_before_publishing()])
    with pytest.raises(Killed):
        stream.run(0, storage)
    report = stream.run(0)
    assert report.reused is not races
    assert stream.numbers == ([1, 2] if races else [1])
    assert stream.value() == stream.order()[-1] == "batch 0"


def _killed_before_publishing() -> Any:
    return Fault(at=1, verb="put_if_absent", path="snapshot/snapshot-2", stop=True)


def adding_up() -> Stream:
    options = {"merge-engine": "aggregation", "fields.dt.aggregate-function": "listagg"}
    return Stream(races_at=None, options=options)


def adding_up_outside() -> Stream:
    """Its data files lie in an external path."""
    stream = adding_up()
    name, how = (
        f"memory://outside-{next(_PLACES)}",
        {"data-file.external-paths.strategy": "entropy-inject"},
    )
    return Stream(
        races_at=None,
        options={**stream.options, "data-file.external-paths": f"{name}/a,{name}/b", **how},
        writes_fail=True,
    )


@pytest.mark.parametrize("make", [adding_up, adding_up_outside])
def test_what_is_added_up_is_added_once_wherever_a_stream_was_killed(
    make: Callable[[], Stream],
) -> None:
    for stream, storage in attempts(make, FAULTS["killed after"], least=30):
        with suppress(PaimonStreamError, Killed):
            stream.run(0, storage)
        stream.run(0)
        assert stream.value() == "before,batch 0"
        findings = PaimonTable(stream.table).verify(sample=10).findings
        assert [one for one in findings if one.severity != "info"] == []
    places = {operation.path.startswith("_external_path/") for operation in storage.operations}
    assert places == ({True, False} if stream.writes_fail else {False}), "the kills were there, too"
