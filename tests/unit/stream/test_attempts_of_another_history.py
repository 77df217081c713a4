"""A query wrote main and a branch, and comes back to one of them: the attempt that main's journal
has, or the rows that came with the branch, belong to the other history.
"""

from __future__ import annotations

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import HistoryUnknown
from paimon_stream.maintenance.branches import create_branch, fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.manifest_compaction import compact_manifests
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from tests.kits.commits import Bench
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.stream.test_branch_streams import of_branch

GO_ON = {"paimon-stream.on-unknown-history": "continue"}


def others(bench: Bench, count: int) -> None:
    base = bench.snapshots.latest_id() or 0
    writer = TableCommit(bench.table, "other", runtime=bench.runtime)
    for number in range(base, base + count):
        writer.commit(number, [bench.message(f"other-{number}-{bench.runtime.ids.uuid()}")])


def expire(bench: Bench, keep: int = 1) -> None:
    bench.clock.advance(3_600_000)
    expire_snapshots(bench.table, keep, keep, 1, protect_streams=False, runtime=bench.runtime)


def branch_of(bench: Bench) -> Bench:
    """A branch from a tag on main's newest snapshot."""
    create_tag(bench.table, "t", runtime=bench.runtime)
    create_branch(bench.table, "x", "t", runtime=bench.runtime)
    return of_branch(bench)


def killed(stream: Stream, phase: Phase) -> None:
    """The next batch reaches the phase, and the checkpoint does not note it."""
    stream.start(At(phase, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.writer = None


def live_batches(bench: Bench) -> list[str]:
    return sorted(
        "-".join(name.split("-")[:2]) for name in bench.live_names() if name.startswith("me-")
    )


@pytest.mark.parametrize("batches", [0, 1])
def test_an_attempt_in_main_is_not_taken_for_unpublished_once_main_has_become_the_branch(
    batches: int,
) -> None:
    bench = Bench()
    others(bench, 1)
    stream = Stream(bench)
    stream.batches(batches)
    branch = branch_of(bench)
    others(bench, 5)
    killed(stream, Phase.JOURNALED)
    path = f"_paimon_stream/me/{batches}"
    attempt = bench.storage.read(path)
    stream.bench = branch
    killed(stream, Phase.HINTED)
    assert live_batches(branch)[-1] == f"me-{batches}"
    others(branch, 8)
    for name in ("tag/tag-t", "branch/branch-x/tag/tag-t"):
        bench.storage.delete(name)
    expire(branch, keep=4)
    fast_forward(bench.table, "x", runtime=bench.runtime)
    bench.storage.write(path, attempt)  # whatever the fast forward has copied
    stream.bench = bench
    with pytest.raises(HistoryUnknown, match="another history"):
        stream.batch()
    assert len(set(live_batches(bench))) == len(live_batches(bench)) == batches + 1


def test_an_attempt_on_a_snapshot_that_was_rolled_back_is_used_where_nothing_has_expired() -> None:
    bench = Bench()
    others(bench, 3)
    stream = Stream(bench)
    killed(stream, Phase.JOURNALED)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    others(bench, 3)
    assert stream.batch().reused
    assert live_batches(bench) == ["me-0"]


# -- rows that came with a branch
# ----------------------------------------------------------------------


@pytest.mark.parametrize("has_identity", [True, False], ids=["ours", "another engine's"])
@pytest.mark.parametrize("compacted", [True, False])
def test_a_first_batch_that_came_with_a_branch_is_not_written_again(
    compacted: bool, has_identity: bool
) -> None:
    bench = Bench()
    stream = Stream(bench)
    killed(stream, Phase.HINTED)
    others(bench, 3)
    if compacted:
        compacted_file = bench.compaction("me-0-1", into="compacted")
        bench.committer().commit(bench.request(0, [compacted_file], user="c"))
        compact_manifests(bench.table, runtime=bench.runtime)
    expire(bench)
    stream.bench = branch_of(bench)
    if not has_identity:
        bench.storage.delete("branch/branch-x/_paimon_stream/identity.json")
    if not compacted:
        assert stream.batch().outcome == "already committed"
        return
    for _ in range(2):
        with pytest.raises(HistoryUnknown, match="prepared this batch in main"):
            stream.batch()
        stream.writer = None
    stream.options = GO_ON
    stream.batch()
    stream.options, stream.writer = {}, None
    stream.batch()


@pytest.mark.parametrize("has_identity", [True, False], ids=["ours", "another engine's"])
@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("beside", [0, 3])
def test_a_batch_that_main_published_above_the_branch_point_or_never_is_fresh_in_a_branch(
    beside: int, published: bool, has_identity: bool
) -> None:
    bench = Bench()
    others(bench, 2)
    expire(bench)
    stream = Stream(bench)
    if published:
        branch = branch_of(bench)
        others(bench, beside)
    killed(stream, Phase.HINTED if published else Phase.JOURNALED)
    others(bench, beside)
    if not published:
        branch = branch_of(bench)
    elif beside:
        expire(bench)
    if not has_identity:
        bench.storage.delete("branch/branch-x/_paimon_stream/identity.json")
    stream.bench = branch
    assert stream.batch().outcome == "committed"
