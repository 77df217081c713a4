"""One query that writes main and a branch: each has its own batches, whatever is killed, expires or
is forwarded.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.errors import HistoryUnknown, NotFound, PaimonStreamError, TableRolledBack
from paimon_stream.maintenance.branches import create_branch, delete_branch, fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.needed import refuse_missing
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import branch_storage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.references import journalled_names
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS, Fault, FaultyStorage, Killed
from tests.kits.places import following
from tests.kits.streams import At, PowerCut, Stream

KILLS = {kind: FAULTS[kind] for kind in ("killed before", "killed after")}


def of_branch(bench: Bench, storage: Storage | None = None) -> Bench:
    """The same table, opened at its branch x."""
    branch = copy.copy(bench)
    branch.storage = branch_storage(storage or bench.storage, "x")
    branch.table = replace(bench.table, storage=branch.storage)
    branch.snapshots = SnapshotStore(branch.storage, bench.runtime)
    branch.manifests = ManifestStore(branch.storage)
    return branch


def both() -> tuple[Stream, Stream]:
    """A stream of two batches, and the same query, which goes on in a branch, too."""
    main = Stream(Bench())
    main.batches(2)
    create_tag(main.bench.table, "t", runtime=main.bench.runtime)
    create_branch(main.bench.table, "x", "t", runtime=main.bench.runtime)
    return main, Stream(of_branch(main.bench), next_batch=2, written=100)


def outage(bench: Bench) -> None:
    """Others go on, and everything old expires."""
    for number in range(4):
        bench.committer().commit(
            bench.request(number, [bench.message(f"o-{number}")], user="another")
        )
    bench.clock.advance(3_600_000)
    expire_snapshots(bench.table, 1, 1, 1, protect_streams=False, runtime=bench.runtime)


def batches_of(stream: Stream) -> list[int]:
    """The batches whose files are live, once for each file."""
    return sorted(int(name.split("-")[1]) for name in stream.bench.live_names())


def test_one_query_writes_main_and_a_branch() -> None:
    main, branch = both()
    for _ in range(3):
        main.batch()
        branch.batch()
        main.writer = branch.writer = None  # each batch in a new run
    assert batches_of(main) == batches_of(branch) == [0, 1, 2, 3, 4]
    assert set(main.bench.live_names()) & set(branch.bench.live_names()) == {"me-0-1", "me-1-2"}
    assert main.bench.storage.list_folders("branch/branch-x/_paimon_stream") == ["me"]
    assert set(journalled_names(main.bench.storage)) == set(journalled_names(branch.bench.storage))
    assert {"me-4-5", "me-4-103"} <= set(journalled_names(main.bench.storage))


@pytest.mark.parametrize("fault", KILLS.values(), ids=KILLS.keys())
def test_a_batch_of_a_branch_that_was_killed_anywhere_is_there_once(
    fault: dict[str, object],
) -> None:
    at, fired = 0, True
    while fired:
        at = following(at)
        main, branch = both()
        storage = FaultyStorage(main.bench.storage, [Fault(at=at, **fault)])  # type: ignore[arg-type]
        branch.start(storage=branch_storage(storage, "x"))  # type: ignore[arg-type]
        try:
            branch.batch()
        except (Killed, PaimonStreamError):
            branch.start()
            branch.batch()
        fired = storage.fired
        branch.start()
        main.batch()
        for one in (main, branch):
            expire_snapshots(
                one.bench.table, 1, 1, 0, protect_streams=False, runtime=main.bench.runtime
            )
        main.batch()
        branch.batch()
        assert batches_of(main) == batches_of(branch) == [0, 1, 2, 3]
        for one in (main, branch):
            refuse_missing(one.bench.table, one.bench.latest())
    assert at > 10


@pytest.mark.parametrize("restarted", [True, False])
def test_a_stream_on_main_notices_a_fast_forward(restarted: bool) -> None:
    main, branch = both()
    main.batches(2)
    branch.batches(1)
    fast_forward(main.bench.table, "x", runtime=main.bench.runtime)
    if restarted:
        main.start()
    with pytest.raises(TableRolledBack):
        main.batch()
    branch.batch()
    assert batches_of(branch) == [0, 1, 2, 3]
    assert batches_of(main) == [0, 1, 2]


def test_a_stream_on_a_deleted_branch_stops() -> None:
    main, branch = both()
    branch.batch()
    delete_branch(main.bench.table, "x")
    with pytest.raises(NotFound, match="has no branch 'x'"):
        branch.batch()
    assert main.bench.storage.list_folders("branch") == []
    main.batch()
    assert batches_of(main) == [0, 1, 2]


@pytest.mark.parametrize("user", ["me", "renamed"])
def test_a_batch_that_came_back_with_a_branch_is_not_written_again(user: str) -> None:
    """The stream of a branch dies with its first batch published, main becomes that branch, and the
    branch is made again from main.
    """
    bench = Bench()
    create_branch(bench.table, "x", runtime=bench.runtime)
    stream = Stream(of_branch(bench))
    stream.start(At(Phase.HINTED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    other = stream.bench.committer()
    other.commit(stream.bench.request(0, [bench.message("other")], user="another"))
    expire_snapshots(stream.bench.table, 1, 1, 1, protect_streams=False, runtime=bench.runtime)
    fast_forward(bench.table, "x", runtime=bench.runtime)
    create_tag(bench.table, "t", runtime=bench.runtime)
    delete_branch(bench.table, "x")
    create_branch(bench.table, "x", "t", runtime=bench.runtime)
    stream.user, stream.writer = user, None
    if user == "me":
        assert stream.batch().outcome == "already committed"
    else:
        with pytest.raises(HistoryUnknown, match="came with the branch"):
            stream.batch()
    assert len(stream.bench.live_names()) == 2


@pytest.mark.parametrize("journal", ["true", "false"])
@pytest.mark.parametrize("expired", [True, False])
def test_a_query_that_comes_back_from_a_branch_stops_where_its_batches_are_missing(
    journal: str, expired: bool
) -> None:
    options = {"paimon-stream.journal": journal}
    stream = Stream(Bench(), options=options)
    bench = stream.bench
    stream.batches(2)
    create_tag(bench.table, "t", runtime=bench.runtime)
    create_branch(bench.table, "x", "t", runtime=bench.runtime)
    stream.bench = of_branch(bench)
    stream.start()
    stream.batch()
    stream.bench = bench
    if expired:
        outage(bench)
    for _ in range(2):
        stream.start()
        with pytest.raises(HistoryUnknown, match=r"batch 2 was written in branch 'x'|expired"):
            stream.batch()
    stream.options = {**options, "paimon-stream.on-unknown-history": "continue"}
    stream.start()
    stream.batch()
    stream.options = options
    for _ in range(2):
        stream.start()
        stream.batch(rows=0 if journal == "true" else 10)


def test_a_query_that_went_on_in_a_branch_after_a_forward_stops_in_main() -> None:
    """Main has got the branch's register, which vouches only for what was forwarded."""
    bench = Bench()
    outage(bench)
    create_tag(bench.table, "t", runtime=bench.runtime)
    create_branch(bench.table, "x", "t", runtime=bench.runtime)
    stream = Stream(of_branch(bench))
    stream.batch()
    fast_forward(bench.table, "x", runtime=bench.runtime)
    stream.batch()
    stream.bench = bench
    stream.start()
    with pytest.raises(HistoryUnknown, match=r"batch 1 was written in branch 'x'"):
        stream.batch()
    fast_forward(bench.table, "x", runtime=bench.runtime)
    stream.start()
    stream.batch()
    names = [name for name in bench.live_names() if name.startswith("me-")]
    assert [name.split("-")[1] for name in names] == ["0", "1", "2"]


@pytest.mark.parametrize("reached", [True, False])
def test_one_query_whose_batches_have_rows_for_the_branch_alone_goes_on(reached: bool) -> None:
    """Also if its function calls the sink of main only for batches that have rows for it."""
    main, branch = both()
    main.batch()
    branch.batch()
    for _ in range(3):
        main.writer = branch.writer = None  # each batch in a new run
        branch.batch()
        if reached:
            main.batch(rows=0)
        else:
            main.runs, main.next_batch = branch.runs, branch.next_batch
    main.start()
    main.batch()


def of_older_branch() -> tuple[Stream, Stream]:
    """A stream of two batches, and the same query, which goes on in a branch that has the first."""
    main = Stream(Bench())
    main.batch()
    create_tag(main.bench.table, "t", runtime=main.bench.runtime)
    create_branch(main.bench.table, "x", "t", runtime=main.bench.runtime)
    main.batch()
    branch = of_branch(main.bench)
    return main, Stream(branch, next_batch=2, written=100, runs=main.runs)


def of_branch_without_batches() -> tuple[Stream, Stream]:
    """The same, where the branch has no batch of the query, and all snapshots from the first on."""
    main = Stream(Bench())
    others = main.bench.message("o-0")
    main.bench.committer().commit(main.bench.request(0, [others], user="another"))
    create_tag(main.bench.table, "t", runtime=main.bench.runtime)
    create_branch(main.bench.table, "x", "t", runtime=main.bench.runtime)
    main.batches(2)
    branch = of_branch(main.bench)
    return main, Stream(branch, next_batch=2, written=100, runs=main.runs)


@pytest.mark.parametrize("first", ["main", "branch"])
def test_a_second_sink_that_a_query_gets_for_a_branch_goes_on(first: str) -> None:
    """Whichever of the two a batch comes to first, and whether or not the query is restarted."""
    main, branch = of_branch_without_batches()
    sinks = (main, branch) if first == "main" else (branch, main)
    main.writer = None
    for restarted in (False, True, False):
        for sink in sinks:
            sink.writer = None if restarted else sink.writer
            sink.batch()
    assert batches_of(main) == [0, *range(5)]
    assert batches_of(branch) == [0, 2, 3, 4]


def test_a_query_that_is_pointed_to_a_branch_is_told_which_branch_has_its_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is no refusal: the second sink of a query looks the same."""
    _, branch = of_branch_without_batches()
    branch.batch()
    assert "begins here with batch 2" in caplog.text
    assert "this query wrote batch 1 in branch 'main', whose rows stay there" in caplog.text


def test_a_query_that_is_pointed_to_an_older_branch_with_batches_of_it_stops() -> None:
    _, branch = of_older_branch()
    with pytest.raises(HistoryUnknown, match="batch 1"):
        branch.batch()


def test_a_query_that_is_pointed_to_a_branch_of_its_newest_snapshot_goes_on() -> None:
    """If its last batch had no rows, an operator has to say so, as the page of operations does."""
    main, branch = both()
    branch.batch()
    assert batches_of(branch) == [0, 1, 2]
    main.batch(rows=0)
    create_tag(main.bench.table, "u", runtime=main.bench.runtime)
    delete_branch(main.bench.table, "x")
    create_branch(main.bench.table, "x", "u", runtime=main.bench.runtime)
    again = Stream(of_branch(main.bench), next_batch=3, written=200, runs=main.runs)
    with pytest.raises(HistoryUnknown, match="on-unknown-history"):
        again.batch()
    again.options = {"paimon-stream.on-unknown-history": "continue"}
    again.start()
    again.batch()
    assert batches_of(again) == [0, 1, 3]


def test_what_a_deleted_branch_alone_had_is_not_missed_in_main(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line of the log names it, as that of batches without rows."""
    main, branch = both()
    branch.batch()
    delete_branch(main.bench.table, "x")
    main.next_batch, main.runs = 3, branch.runs
    main.start()
    with caplog.at_level("INFO"):
        main.batch()
    assert "the checkpoint records batch 2 as done, but no snapshot and no journal" in caplog.text
    assert batches_of(main) == [0, 1, 3]


@pytest.mark.parametrize("journal", ["true", "false"])
def test_what_has_expired_in_a_branch_is_missed_in_main_where_a_journal_shows_it(
    journal: str,
) -> None:
    main, branch = both()
    branch.options = main.options = {"paimon-stream.journal": journal}
    branch.runs = main.runs
    branch.batch()
    outage(branch.bench)
    main.next_batch, main.runs = 3, branch.runs
    main.start()
    if journal == "true":
        with pytest.raises(HistoryUnknown, match=r"batch 2 was written in branch 'x'"):
            main.batch()
    else:
        main.batch()


def test_a_sink_that_is_new_in_a_branch_is_told_what_the_branch_does_not_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    sinks = [Stream(bench, user=user) for user in ("one", "two")]
    sinks[0].batch()
    create_tag(bench.table, "t", runtime=bench.runtime)
    create_branch(bench.table, "x", "t", runtime=bench.runtime)
    sinks[1].batch()
    for sink in sinks:
        sink.bench = of_branch(bench)
        sink.start()
        sink.batch()
    assert "begins here with batch 1" in caplog.text
