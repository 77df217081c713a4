"""Tables that add up, by aggregation or in a partial update. The task that writes a batch, and its
commit, fail at every storage operation in turn. Each sum is then as before or as it should be, and
it is right after the batch is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import Layout
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, create_table, load_table
from tests.kits.faults import FAULTS as ALL_FAULTS
from tests.kits.faults import Fault, FaultyStorage, Killed
from tests.kits.keyed import COLUMNS, ENGINES, Change, next_number, some_changes, write_changes
from tests.kits.params import few
from tests.kits.places import following, new_storage

pytestmark = pytest.mark.store

OPTIONS = {"bucket": "2", "write-only": "true", "changelog-producer": "input"}
BATCH = 7
RUNTIME = simulated(3, SimulatedClock())


class World:
    """A table with two commits in it, the batch that comes next, and what must then be there."""

    def __init__(self, engine: str = "aggregation", bucket: str = "2") -> None:
        chosen = ENGINES[engine]
        random, model = Random(4), chosen.model()
        self.storage = new_storage()
        fields = [DataField(id=i, name=n, type=parse_type(t)) for i, (n, t) in enumerate(COLUMNS)]
        options = {**OPTIONS, **chosen.options, "bucket": bucket}
        made = create_table(
            self.storage, fields, primary_keys=["k"], options=options, runtime=RUNTIME
        )
        assert made is not None
        for number in range(2):
            changes = some_changes(random, chosen, model, 8, keys=5)
            model.take(changes)
            TableCommit(made, "old", runtime=RUNTIME).commit(
                number, self._write(made, changes).messages
            )
        self.before = model.found()
        self.changes = some_changes(random, chosen, model, 8, keys=5)
        model.take(self.changes)
        self.after = model.found()
        self.first_sequence = next_number(made)
        self.messages: tuple[CommitMessage, ...] = ()

    def prepared(self) -> World:
        """With the batch's files written."""
        self.messages = self._write(load_table(self.storage), self.changes).messages
        return self

    def _write(self, table: Table, changes: list[Change], **more: Any) -> Any:
        return write_changes(table, changes, runtime=RUNTIME, **more)

    def write(self, storage: Storage) -> tuple[CommitMessage, ...]:
        """Writes the batch's files through that storage."""
        table = load_table(self.storage)
        faulty = replace(table, storage=storage)
        return tuple(self._write(faulty, self.changes, first_sequence=self.first_sequence).messages)

    def copy(self) -> Storage:
        """The same files on a storage of their own."""
        made = new_storage()
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            waiting += [
                f"{folder}/{name}".lstrip("/") for name in self.storage.list_folders(folder)
            ]
            for stat in self.storage.list_files(folder):
                path = f"{folder}/{stat.name}".lstrip("/")
                made.put_if_absent(path, self.storage.read(path))
        return made


def rows_of(storage: Storage) -> list[str]:
    """The rows, after a compaction if rows wait for one."""
    table = PaimonTable(load_table(storage))
    if table._table.is_postponed:
        table.compact()
    return texts(table.to_arrow().to_pylist())


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def attempts(world: World, fault: dict[str, Any]) -> Iterator[tuple[Storage, FaultyStorage]]:
    """A copy of the world for each operation, and a storage on it that fails there. Ends with a run
    without a failure."""
    at, fired = 0, True
    while fired:
        at = following(at)
        copy = world.copy()
        faulty = FaultyStorage(copy, [Fault(at=at, **fault)])
        yield copy, faulty
        fired = faulty.fired
    assert at > 4


def check_changelog(storage: Storage) -> None:
    """Every changelog file of every snapshot is there."""
    table, snapshots = load_table(storage), SnapshotStore(storage, RUNTIME)
    if table.is_postponed:
        return  # only its compactions have one
    manifests, layout = ManifestStore(storage), Layout.of(table.schema, table.options)
    for snapshot in map(snapshots.get, snapshots.ids()):
        entries = [
            entry for meta in manifests.changelog(snapshot) for entry in manifests.read(meta)
        ]
        assert entries
        for entry in entries:
            storage.stat(layout.data_file(entry.partition, entry.bucket, entry.file.file_name))


class AnotherWriter:
    """Publishes once, while ours is staged: a key of its own, under the numbers that ours has."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.done = storage, False

    def reached(self, phase: Phase, identifier: int) -> None:
        if phase is Phase.STAGED and not self.done:
            self.done = True
            table = load_table(self.storage)
            messages = write_changes(table, [("+I", FOREIGN)], runtime=RUNTIME).messages
            TableCommit(table, "other", runtime=RUNTIME).commit(0, messages)


FOREIGN = {"k": 99, "v": "theirs", "n": 1, "s": 1}
FAULTS = {kind: ALL_FAULTS[kind] for kind in ("before", "after", "killed before", "killed after")}


@pytest.mark.parametrize(
    ("fault", "raced", "engine", "bucket"),
    few(
        [
            ("before", False, "aggregation", "2"),
            ("after", True, "sums in groups", "2"),
            ("killed after", False, "aggregation", "2"),
            ("killed after", False, "sums in groups", "2"),
            ("after", True, "aggregation", "-2"),
            ("killed after", False, "sums in groups", "-2"),
        ],
        lambda fault, raced, engine, bucket: (raced, bucket) in ((True, "2"), (False, "-2")),
    ),
)
def test_sums_are_right_whatever_of_a_commit_fails(
    fault: str, raced: bool, engine: str, bucket: str
) -> None:
    world = World(engine, bucket).prepared()
    for storage, faulty in attempts(world, FAULTS[fault]):
        other = AnotherWriter(storage)
        observer: BatchObserver = other if raced else NO_OBSERVER
        table, outcome = load_table(storage), None
        try:
            commit = TableCommit(
                replace(table, storage=faulty), "me", runtime=RUNTIME, observer=observer
            )
            outcome = commit.commit(BATCH, world.messages)
        except (PaimonStreamError, Killed) as failed:
            outcome = failed
        foreign = [FOREIGN] if other.done else []
        before, after = texts(world.before + foreign), texts(world.after + foreign)
        found = rows_of(storage)
        assert found in (before, after)
        if not isinstance(outcome, BaseException):
            assert found == after
        elif isinstance(outcome, PaimonStreamError) and not isinstance(outcome, CommitUnknown):
            assert found == before, f"{outcome!r} says that nothing was published"
        fresh = TableCommit(table, "me", runtime=RUNTIME)
        assert fresh.filter_and_commit({BATCH: world.messages}) == (0 if found == after else 1)
        if found != after:
            assert rows_of(storage) == after
            assert fresh.filter_and_commit({BATCH: world.messages}) == 0
        check_changelog(storage)


@pytest.mark.parametrize(
    ("fault", "bucket"),
    few(
        [("after", "2"), ("killed before", "2"), ("after", "-2")],
        lambda fault, bucket: bucket == "2",
    ),
)
def test_a_key_task_that_fails_anywhere_leaves_sums_as_they_were_and_can_be_repeated(
    fault: str, bucket: str
) -> None:
    world = World(bucket=bucket)
    there = files_of(world.storage)
    for storage, faulty in attempts(world, FAULTS[fault]):
        messages = ()
        try:
            messages = world.write(faulty)
        except PaimonStreamError:
            # Where only the answer was lost, nobody knows that the file is there.
            assert len(files_of(storage) - there) <= 1
        except Killed:
            pass
        messages = messages or world.write(storage)
        TableCommit(load_table(storage), "me", runtime=RUNTIME).commit(BATCH, messages)
        assert rows_of(storage) == texts(world.after)
        check_changelog(storage)


def files_of(storage: Storage) -> set[str]:
    found = set()
    for bucket in storage.list_folders(""):
        found |= {f"{bucket}/{stat.name}" for stat in storage.list_files(bucket)}
    return found
