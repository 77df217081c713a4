"""A batch that adds a column fails at every storage operation in turn, also between the new schema
and the snapshot. The next run finds the schema and writes the rows once.
"""

from __future__ import annotations

from typing import Any

import pytest

from paimon_stream.commit.report import CommitReport
from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.runtime import Runtime, simulated
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.verdicts import AlreadyCommitted, Batch, Fresh, Reuse
from paimon_stream.stream.writer import StreamWriter
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.schema_change import merge_columns
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Merge, create_table, evolve, load_table
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.places import WHOLE, following, new_storage
from tests.kits.tables import write_rows

pytestmark = [pytest.mark.store, pytest.mark.s3]

ROWS = ({"id": 1, "day": "a"}, {"id": 2, "day": "b"})


def field(name: str, text: str) -> DataField:
    return DataField(id=0, name=name, type=parse_type(text))


def asking(*columns: DataField) -> Merge:
    return lambda schema: merge_columns(schema, columns, "widen", location="t", time_millis=1)


WANTED = asking(field("id", "BIGINT"), field("day", "STRING"))


class Stream:
    """A stream of one batch, whose rows have a column that the table lacks and a wider one."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = storage or new_storage()
        self.runtime: Runtime = simulated(1)
        self.runs = 0
        assert create_table(self.storage, (field("id", "INT"),), runtime=self.runtime)

    def run(self, storage: Storage | None = None) -> CommitReport:
        """The batch, in a run of its own."""
        self.runs += 1
        writer = StreamWriter(
            storage=storage or self.storage,
            identity=WriterIdentity(
                user="me", query_id="q", run_id=f"r{self.runs}", token=f"t{self.runs}"
            ),
            options={},
            runtime=self.runtime,
        )
        batch = Batch(batch_id=0, offsets_hash="offsets")
        verdict = writer.judge(batch)
        if isinstance(verdict, AlreadyCommitted):
            return writer.already(batch, verdict)
        if isinstance(verdict, Reuse):
            return writer.commit(batch, verdict, verdict.entry.messages)
        return writer.commit(batch, verdict, write_rows(writer.evolve(WANTED), ROWS))

    @property
    def schemas(self) -> list[TableSchema]:
        store = SchemaStore(self.storage)
        return [store.get(one) for one in store.ids()]

    def require_rows_once(self) -> None:
        snapshots = SnapshotStore(self.storage, self.runtime)
        assert [snapshots.get(one).commit_identifier for one in snapshots.ids()] == [0]
        assert snapshots.get(1).schema_id == self.schemas[-1].id
        assert rows_of(self.storage) == [*ROWS]


def rows_of(storage: Storage) -> list[dict[str, Any]]:
    """The table's rows, without the columns that others added."""
    scan = plan_scan(load_table(storage), columns=["id", "day"])
    rows = [row for batch in read_batches(scan) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("moment", "stop"), [(Moment.BEFORE, True), (Moment.AFTER, True), (Moment.AFTER, False)]
)
def test_a_batch_with_a_new_column_that_failed_anywhere_can_be_repeated(
    moment: Moment, stop: bool
) -> None:
    at, fired, between = 0, True, 0
    while fired:
        at = following(at)
        stream = Stream()
        faulty = FaultyStorage(stream.storage, [Fault(at=at, moment=moment, stop=stop)])
        try:
            stream.run(faulty)
        except (PaimonStreamError, Killed):
            has_snapshot = bool(SnapshotStore(stream.storage, stream.runtime).ids())
            between += len(stream.schemas) == 2 and not has_snapshot
            assert len(stream.schemas) == 2 or not has_snapshot
        before = stream.schemas
        stream.run()
        assert [one.field_names for one in stream.schemas] == [("id",), ("id", "day")]
        assert stream.schemas[: len(before)] == before
        stream.require_rows_once()
        assert stream.run().outcome == "already committed"
        fired = faulty.fired
    assert not WHOLE or (at > 20 and between > 3)


def test_files_prepared_under_the_new_schema_are_committed_after_a_kill() -> None:
    stream = Stream()
    faulty = FaultyStorage(stream.storage, [Fault(at=1, path="snapshot/snapshot-1", stop=True)])
    with pytest.raises(Killed):
        stream.run(faulty)
    assert stream.run().reused
    stream.require_rows_once()


class Rival(MemoryStorage):
    """Somebody else adds a column just before each schema of ours."""

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        if path == "schema/schema-1":
            newest = load_table(self).schema
            if newest.id == 0:
                theirs = asking(field("other", "DATE"))(newest)
                SchemaStore(_Beneath(self)).create(theirs)  # type: ignore[arg-type]
        return super().put_if_absent(path, data)


class _Beneath:
    def __init__(self, storage: Rival) -> None:
        self._storage = storage
        self.location = storage.location

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        return MemoryStorage.put_if_absent(self._storage, path, data)


def test_a_batch_that_lost_the_race_for_the_schema_is_written_with_both_columns() -> None:
    stream = Stream(Rival())
    assert stream.run().outcome == "committed"
    assert [one.field_names for one in stream.schemas] == [
        ("id",),
        ("id", "other"),
        ("id", "other", "day"),
    ]
    assert [one.highest_field_id for one in stream.schemas] == [0, 1, 2]
    stream.require_rows_once()


def test_a_change_of_others_after_the_rows_were_written_is_what_the_snapshot_names() -> None:
    stream = Stream()
    faulty = FaultyStorage(stream.storage, [Fault(at=1, path="snapshot/snapshot-1", stop=True)])
    with pytest.raises(Killed):
        stream.run(faulty)
    evolve(load_table(stream.storage), asking(field("late", "INT")))
    stream.run()
    stream.require_rows_once()
    assert SnapshotStore(stream.storage, stream.runtime).get(1).schema_id == 2


def test_a_later_batch_of_a_run_names_the_schema_that_its_rows_have_made() -> None:
    stream = Stream()
    identity = WriterIdentity(user="me", query_id="q", run_id="r", token="t")
    writer = StreamWriter(
        storage=stream.storage, identity=identity, options={}, runtime=stream.runtime
    )
    for number, wanted in enumerate((asking(field("id", "INT")), WANTED)):
        batch = Batch(batch_id=number, offsets_hash=str(number))
        verdict = writer.judge(batch)
        assert isinstance(verdict, Fresh)
        writer.commit(batch, verdict, write_rows(writer.evolve(wanted), ROWS))
    snapshots = SnapshotStore(stream.storage, stream.runtime)
    assert [snapshots.get(one).schema_id for one in (1, 2)] == [0, 1]
