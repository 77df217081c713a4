"""Traces of a stream that lie beside the table: a snapshot that a late put created again after its id had
expired, and journal entries that are newer than the checkpoint."""

from __future__ import annotations

import pytest

from paimon_stream.errors import CheckpointRewound
from paimon_stream.storage.base import PutResult
from paimon_stream.storage.faults import Killed
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import snapshot_path
from tests.kits.commits import Bench
from tests.kits.streams import Stream


class LatePuts(MemoryStorage):
    """The storage of a process that dies while the put of a snapshot is on its way."""

    __slots__ = ("sent",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        object.__setattr__(self, "sent", [])

    def put_if_absent(self, path: str, data: bytes) -> PutResult:
        if path.startswith("snapshot/snapshot-"):
            self.sent.append((path, data))  # type: ignore[attr-defined]
            raise Killed
        return super().put_if_absent(path, data)


@pytest.mark.parametrize("others", [1, 2, 3])
def test_a_snapshot_that_was_created_again_below_the_oldest_is_no_commit(others: int) -> None:
    bench = Bench()
    assert isinstance(bench.storage, MemoryStorage)
    Stream(bench).batches(2)
    late = LatePuts(bench.storage.name)
    old = Stream(bench, next_batch=2, runs=10)
    old.start(storage=late)
    with pytest.raises(Killed):
        old.batch()
    for number in range(1 + others):
        bench.committer().commit(bench.request(number, [bench.message(f"other-{number}")], user="another"))
    bench.expire(3)
    [(path, data)] = late.sent  # type: ignore[attr-defined]
    assert path == snapshot_path(3)
    assert bench.storage.put_if_absent(path, data) is PutResult.CREATED

    new = Stream(bench, next_batch=2, runs=20, done_millis=bench.clock.now_millis())
    assert new.batch().outcome == "committed"
    assert [name for name in bench.live_names() if name.startswith("me-2-")] == ["me-2-1"]


def test_an_own_snapshot_that_is_the_oldest_one_still_counts() -> None:
    bench = Bench()
    Stream(bench).batches(2)
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    bench.expire(1)
    again = Stream(bench, next_batch=1, runs=10, done_millis=bench.clock.now_millis())
    assert again.batch().outcome == "already committed"


def test_a_journal_that_is_ahead_of_the_checkpoint_refuses_it_after_the_snapshots_expired() -> None:
    bench = Bench()
    Stream(bench).batches(2)
    bench.committer().commit(bench.request(0, [bench.message("other")], user="another"))
    bench.expire(2)
    restored = Stream(bench, next_batch=0, runs=10, done_millis=bench.clock.now_millis())
    with pytest.raises(CheckpointRewound, match="already prepared batch 1"):
        restored.batch()
    assert bench.live_names() == ["me-0-1", "me-1-2", "other"]
