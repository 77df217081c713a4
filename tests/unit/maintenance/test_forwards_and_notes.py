"""What a fast forward or rollback that is killed, refused, given up or undone leaves: a table that
can be read, and notes by which each stream that has lost something stops, and no other one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import (
    CommitContended,
    HistoryUnknown,
    IncompatibleSchema,
    TableRolledBack,
)
from paimon_stream.format.json_text import encode_checksummed
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.maintenance.branches import create_branch, fast_forward
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, read_tags
from paimon_stream.runtime import simulated
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.claims import Claims
from paimon_stream.table.fate import Fate, fate_of
from paimon_stream.table.removals import (
    RemovalNotes,
    Removed,
    copy_removals,
    note_restored,
    read_removals,
)
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import evolve, load_table
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS, Fault, FaultyStorage, Killed
from tests.kits.places import following
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.stream.test_branch_streams import both, of_branch
from tests.unit.stream.test_stream_starts import grown
from tests.unit.stream.test_what_is_gone import apart, expire, note_paths, outage, stream_of

KILLED = pytest.mark.parametrize("kind", ["killed before", "killed after"])
NO_JOURNAL = {"paimon-stream.journal": "false"}
CONTINUE = {"paimon-stream.on-table-change": "continue"}


def with_branch(bench: Bench) -> None:
    """Makes branch x from the newest snapshot, which no tag of main keeps."""
    create_tag(bench.table, "v1", runtime=bench.runtime)
    create_branch(bench.table, "x", "v1", runtime=bench.runtime)
    bench.storage.delete("tag/tag-v1")


def forward(bench: Bench) -> None:
    fast_forward(bench.table, "x", runtime=bench.runtime)


def compact_all(bench: Bench) -> None:
    names = bench.live_names()
    into = f"big-{bench.snapshots.latest_id()}"
    bench.committer().commit(bench.request(0, [bench.compaction(*names, into=into)], user="c"))


def killed_anywhere(
    kind: str,
    make: Callable[[], tuple[Bench, Stream]],
    work: Callable[[FaultyStorage, Bench], object],
    again: Callable[[Bench], object],
) -> list[tuple[Bench, Stream, int]]:
    """The work, killed at each operation in turn, and done again to its end."""
    at, fired, cases = 0, True, []
    while fired:
        at = following(at)
        bench, stream = make()
        storage = FaultyStorage(bench.storage, [Fault(at=at, **FAULTS[kind])])  # type: ignore[arg-type]
        try:
            work(storage, bench)
        except Killed:
            assert bench.live_names()
            again(bench)
        fired = storage.fired
        cases.append((bench, stream, at))
    assert len(cases) > 10
    return cases


# -- killed
# ----------------------------------------------------------------------------


@KILLED
@pytest.mark.parametrize("cut", [None, 2])
def test_a_forward_to_what_shares_no_snapshot_may_be_killed_anywhere(
    kind: str, cut: int | None
) -> None:
    def make() -> tuple[Bench, Stream]:
        bench = Bench()
        main, _ = apart(bench, expired=True)
        if cut is not None:
            rollback_to(bench.table, cut, runtime=bench.runtime)
        return bench, main

    cases = killed_anywhere(
        kind,
        make,
        lambda storage, bench: fast_forward(bench.on(storage), "x", runtime=bench.runtime),
        forward,
    )
    for bench, main, _ in cases:
        assert bench.live_names() == of_branch(bench).live_names()
        assert bench.snapshots.ids() == of_branch(bench).snapshots.ids()
        assert read_pins(bench.storage) == []
        outage(bench)
        main.start()
        with pytest.raises(TableRolledBack):
            main.batch()


@KILLED
def test_a_rollback_to_an_expired_tag_that_was_killed_anywhere_hides_no_expired_batch(
    kind: str,
) -> None:
    def make() -> tuple[Bench, Stream]:
        bench = Bench()
        outage(bench, 2)
        create_tag(bench.table, "v1", runtime=bench.runtime)
        stream = Stream(bench)
        stream.batches(3)
        outage(bench)
        return bench, stream

    cases = killed_anywhere(
        kind,
        make,
        lambda storage, bench: rollback_to(bench.on(storage), "v1", runtime=bench.runtime),
        lambda bench: rollback_to(bench.table, "v1", runtime=bench.runtime),
    )
    for bench, stream, _ in cases:
        outage(bench, 12)
        stream.start()
        with pytest.raises(TableRolledBack, match="a rollback has "):
            stream.batch()


# -- refused
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, 3])
def test_a_refused_forward_changes_and_announces_nothing(cut: int | None) -> None:
    bench = Bench()
    main, _ = apart(bench, expired=True)
    if cut is not None:
        rollback_to(bench.table, cut, runtime=bench.runtime)
    fault = Fault(at=1, verb="delete", path="snapshot/snapshot-1", **FAULTS["killed after"])  # type: ignore[arg-type]
    storage = FaultyStorage(bench.storage, [fault])
    whole = bench.table
    bench.table = bench.on(storage)
    with pytest.raises(Killed):
        expire(bench)
    bench.table = whole
    before = {one: bench.storage.read(one) for one in paths(bench)}
    with pytest.raises(CommitContended, match="Nothing was changed"):
        forward(bench)
    assert {one: bench.storage.read(one) for one in paths(bench)} == before
    del main


def paths(bench: Bench) -> list[str]:
    folders = ("snapshot", "tag", "schema", "_paimon_stream")
    return [one.path for folder in folders for one in bench.storage.list_files(folder)]


# -- given up
# ----------------------------------------------------------------------------


@KILLED
def test_a_killed_rollback_that_is_given_up_leaves_no_doubt_about_what_stands(kind: str) -> None:
    def make() -> tuple[Bench, Stream]:
        stream = stream_of(5)
        create_tag(stream.bench.table, "all", runtime=stream.bench.runtime)
        return stream.bench, stream

    def give_up(bench: Bench) -> None:
        rollback_to(bench.table, "all", take_over=True, runtime=bench.runtime)

    cases = killed_anywhere(
        kind,
        make,
        lambda storage, bench: rollback_to(bench.on(storage), 3, runtime=bench.runtime),
        lambda bench: give_up(bench) if bench.storage.exists("tag/tag-all") else None,
    )
    for bench, stream, _ in cases:
        if bench.snapshots.latest_id() != 5:
            continue  # the rollback had come to its end, or removed the tag
        outage(bench, 1)
        compact_all(bench)
        outage(bench)
        stream.start()
        stream.batch()


# -- schemas
# ----------------------------------------------------------------------------


def paths_of(bench: Bench) -> set[str]:
    return {one.path for some in bench.storage.list_below("") for one in some}


def grown_apart(expired: bool) -> Bench:
    """Main has a second schema, with which it wrote its newest snapshot, and the branch has not. What
    the branch was made from may have `expired` there.
    """
    bench = Bench()
    TableCommit(bench.table, "w", runtime=bench.runtime).commit(0, [bench.message("w-0")])
    with_branch(bench)
    branch = of_branch(bench)
    if expired:
        outage(branch)
    else:
        branch.committer().commit(branch.request(0, [branch.message("theirs")], user="another"))
    evolve(bench.table, grown)
    bench.table = load_table(bench.storage)
    TableCommit(bench.table, "w", runtime=bench.runtime).commit(1, [bench.message("w-1")])
    assert bench.latest().schema_id == 1
    return bench


@pytest.mark.parametrize(("expired", "kind"), [(False, "killed before"), (True, "killed after")])
def test_a_killed_forward_leaves_each_snapshot_and_tag_its_schema(expired: bool, kind: str) -> None:
    def check(bench: Bench) -> None:
        schemas = set(SchemaStore(bench.storage).ids())
        snapshots = [bench.snapshots.get(one) for one in bench.snapshots.ids()]
        kept = [*snapshots, *read_tags(bench.storage).values()]
        assert {one.schema_id for one in kept} <= schemas

    def again(bench: Bench) -> None:
        check(bench)
        forward(bench)

    def make() -> tuple[Bench, Stream]:
        bench = grown_apart(expired)
        if not expired:  # else the tag would stay
            create_tag(bench.table, "mine", runtime=bench.runtime)
        return bench, Stream(bench)

    cases = killed_anywhere(
        kind,
        make,
        lambda storage, bench: fast_forward(bench.on(storage), "x", runtime=bench.runtime),
        again,
    )
    for bench, _, _ in cases:
        check(bench)
        assert SchemaStore(bench.storage).ids() == [0]
        assert bench.live_names() == of_branch(bench).live_names()


def test_a_forward_that_would_take_the_schema_of_a_tag_that_stays_is_refused() -> None:
    bench = grown_apart(expired=True)
    create_tag(bench.table, "mine", runtime=bench.runtime)
    before = paths_of(bench)
    with pytest.raises(IncompatibleSchema, match=r"tag 'mine' would stay, and needs schema 1"):
        forward(bench)
    assert paths_of(bench) == before
    bench.storage.delete("tag/tag-mine")
    forward(bench)
    assert bench.live_names() == of_branch(bench).live_names()


# -- undone
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("to", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
def test_a_rollback_that_a_forward_has_undone_stops_nobody(
    to: int, options: dict[str, str]
) -> None:
    stream = stream_of(4, options=options)
    bench = stream.bench
    known = [SnapshotRef.of(bench.snapshots.get(one)) for one in bench.snapshots.ids()]
    with_branch(bench)
    rollback_to(bench.table, to, runtime=bench.runtime)
    forward(bench)
    assert read_removals(bench.storage).removed == ()
    outage(bench, 1)
    compact_all(bench)
    outage(bench)
    latest = bench.snapshots.latest()
    assert {fate_of(bench.snapshots, one, latest).fate for one in known} == {Fate.EXPIRED}
    if not options:
        stream.start()
    stream.batch()


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
def test_what_a_forward_puts_back_does_not_hide_what_it_leaves_out(
    options: dict[str, str],
) -> None:
    """The newest snapshot of the stream lies above the rollback's target, and is older than it."""
    stream = stream_of(2, options=options)
    bench = stream.bench
    with_branch(bench)
    stream.batch()
    rollback_to(bench.table, 1, runtime=bench.runtime)
    forward(bench)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 2 was committed"):
        stream.batch()


def test_what_main_wrote_above_the_cut_is_lost_to_a_forward_back() -> None:
    stream = stream_of(4)
    bench = stream.bench
    with_branch(bench)
    rollback_to(bench.table, 3, runtime=bench.runtime)
    other = Stream(bench, user="o", query_id="qo", checkpoint="/ck/o")
    other.batches(2)
    report = fast_forward(bench.table, "x", runtime=bench.runtime)
    assert report.streams == {"o": 0}
    other.start()
    with pytest.raises(TableRolledBack):
        other.batch()
    stream.start()
    stream.batch()


def test_what_two_rollbacks_took_from_one_history_is_back_with_its_newest_snapshot() -> None:
    stream = stream_of(4)
    bench = stream.bench
    with_branch(bench)
    rollback_to(bench.table, 3, runtime=bench.runtime)
    other = Stream(bench, user="o", query_id="qo", checkpoint="/ck/o")
    other.batches(2)
    rollback_to(bench.table, 1, runtime=bench.runtime)
    forward(bench)
    assert {one.user for one in read_removals(bench.storage).removed if one.user} == {"o"}
    other.start()
    with pytest.raises(TableRolledBack):
        other.batch()
    outage(bench)
    stream.start()
    stream.batch()


def test_where_nobody_noted_the_cut_what_lies_below_the_point_is_not_certain() -> None:
    stream = stream_of(4)
    bench = stream.bench
    with_branch(bench)
    rollback_to(bench.table, 2, runtime=bench.runtime)
    for path in [*note_paths(bench), "_paimon_stream/rolled-back.json"]:
        bench.storage.delete(path)
    forward(bench)
    noted = read_removals(bench.storage).removed
    assert {one.certain for one in noted if one.snapshot is not None} == {False}


def test_of_two_histories_in_one_run_only_the_named_snapshots_are_back() -> None:
    storage, runtime = MemoryStorage(), simulated(1)
    notes = RemovalNotes(storage, runtime, "rollback", SnapshotRef(id=1, nonce="one"))
    names = {"two": 2, "five": 5, "used again": 5, "six": 6, "seven": 7}
    refs = {nonce: SnapshotRef(id=number, nonce=nonce) for nonce, number in names.items()}
    attempt = Removed(snapshot=None, uuids=("u",), user="s", identifier=1)
    notes.announce(
        [*(Removed(snapshot=one, user="s", identifier=one.id) for one in refs.values()), attempt]
    )
    notes.complete()
    note_restored(storage, [refs["six"]])
    removed = read_removals(storage)
    left = {one.snapshot.nonce for one in removed.removed if one.snapshot and one.snapshot.id}
    assert left == {"five", "used again", "seven"}
    assert removed.of_uuid("u") is not None
    assert removed.of_nonce("six") is None


@pytest.mark.parametrize("later", [False, True])
def test_a_forward_to_what_had_expired_puts_back_no_later_batch_that_had_expired(
    later: bool,
) -> None:
    """A rollback to a tag notes them all. The branch has batch 1, and with `later` batch 2, too."""
    bench = Bench()
    outage(bench, 1)
    create_tag(bench.table, "old", runtime=bench.runtime)
    stream = Stream(bench)
    stream.batches(2)
    if later:
        stream.batch()
    with_branch(bench)
    if not later:
        stream.batch()
    outage(bench)
    rollback_to(bench.table, "old", runtime=bench.runtime)
    forward(bench)
    outage(bench)
    stream.start()
    if later:
        stream.batch()
        return
    with pytest.raises(TableRolledBack, match="batch 2 was committed"):
        stream.batch()


def test_a_second_forward_to_a_branch_does_not_hide_what_had_expired_in_main() -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batch()
    with_branch(bench)
    outage(bench)
    forward(bench)
    stream.start()
    stream.batch()
    outage(bench)
    outage(of_branch(bench), 2)
    forward(bench)
    stream.start()
    with pytest.raises(TableRolledBack, match="batch 1 was committed"):
        stream.batch()


def test_the_last_batch_of_a_stream_that_a_forward_put_back_may_expire() -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batch()
    with_branch(bench)
    outage(bench)
    forward(bench)
    outage(bench)
    stream.start()
    stream.batch()


@pytest.mark.parametrize("stood", [True, False])
def test_an_attempt_is_back_with_its_own_snapshot_or_with_one_that_stood(stood: bool) -> None:
    """In notes of older releases no snapshot stood."""
    storage, runtime = MemoryStorage(), simulated(1)
    notes = RemovalNotes(storage, runtime, "fast forward", SnapshotRef(id=9, nonce="nine"))
    one, two = SnapshotRef(id=1, nonce="list-u1-1"), SnapshotRef(id=2, nonce="list-u2-1")
    attempts = [
        Removed(snapshot=None, uuids=(uuid,), user="s", identifier=number)
        for number, uuid in enumerate(["u1", "u3"])
    ]
    named = Removed(snapshot=two, user="other", identifier=7, stood=stood)
    notes.announce([*attempts, named])
    notes.complete()
    note_restored(storage, [one])
    assert [entry.uuids for entry in read_removals(storage).removed if entry.user] == [("u3",), ()]
    note_restored(storage, [two])
    left = [entry.uuids for entry in read_removals(storage).removed]
    assert left == ([] if stood else [("u3",)])


def test_of_several_entries_for_one_snapshot_the_first_counts_and_any_says_that_it_stood() -> None:
    storage, runtime = MemoryStorage(), simulated(1)
    notes = RemovalNotes(storage, runtime, "rollback", SnapshotRef(id=1, nonce="one"))
    two = SnapshotRef(id=2, nonce="two")
    notes.announce(
        [
            Removed(snapshot=two, user="s", identifier=1, certain=False),
            Removed(snapshot=two, user="s", identifier=1, stood=True),
        ]
    )
    [entry] = read_removals(storage).removed
    assert (entry.certain, entry.stood) == (False, True)


def test_a_note_that_cannot_be_read_stays_as_it_is() -> None:
    storage = MemoryStorage()
    storage.write("_paimon_stream/removed.1-a.json", b"damaged")
    odd = {"removed": 5, "restored": 7}
    storage.write("_paimon_stream/removed.2-b.json", encode_checksummed("removal", odd))
    storage.write("_paimon_stream/rolled-back.json", b"damaged")
    before = {one.path: storage.read(one.path) for one in storage.list_files("_paimon_stream")}
    note_restored(storage, [SnapshotRef(id=1, nonce="n")])
    assert before == {
        one.path: storage.read(one.path) for one in storage.list_files("_paimon_stream")
    }
    main = MemoryStorage()
    copy_removals(storage, main)
    assert len(read_removals(main).doubts) == 3


# -- streams of main and of the branch
# ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
@pytest.mark.parametrize("rows", [10, 0], ids=["full", "gaps"])
@pytest.mark.parametrize("later", [True, False])
def test_the_batches_of_a_branch_do_not_pass_for_those_of_main(
    options: dict[str, str], rows: int, later: bool
) -> None:
    """One query writes both under one commit user. Once an operator has decided, it goes on."""
    bench = Bench()
    create_branch(bench.table, "x", runtime=bench.runtime)
    main = Stream(bench, options=options)
    branch = Stream(of_branch(bench), written=100)
    for number in range(5):
        main.batch()
        branch.batch(rows=rows if number else 10)
    forward(bench)
    if later:
        outage(bench)
    main.start()
    with pytest.raises((TableRolledBack, HistoryUnknown)):
        main.batch()
    decided = {**CONTINUE, "paimon-stream.on-unknown-history": "continue"}
    main.options = {**options, **decided}
    main.start()
    main.batch()
    main.options = options
    main.start()
    main.batch()


@pytest.mark.parametrize("since", [0, 1])
@pytest.mark.parametrize("later", [True, False])
def test_the_batch_of_a_branch_does_not_pass_for_that_of_main_which_had_expired(
    since: int, later: bool
) -> None:
    """Main has lost one batch of the query, and only its journal and its manifests show that."""
    bench = Bench()
    outage(bench, 1)
    main = Stream(bench)
    main.batches(since)
    with_branch(bench)
    branch = Stream(of_branch(bench), next_batch=since, written=100)
    main.batch()
    outage(bench)
    branch.batch()
    assert "me" in fast_forward(bench.table, "x", runtime=bench.runtime).streams
    if later:
        outage(bench)
    main.start()
    with pytest.raises((TableRolledBack, HistoryUnknown)):
        main.batch()
    main.options = {**CONTINUE, "paimon-stream.on-unknown-history": "continue"}
    main.start()
    main.batch()
    main.options = {}
    main.start()
    main.batch()


@pytest.mark.parametrize("later", [True, False])
def test_a_batch_that_main_and_the_branch_share_is_not_lost_though_it_has_expired(
    later: bool,
) -> None:
    bench = Bench()
    main = Stream(bench)
    main.batches(2)
    with_branch(bench)
    outage(bench)
    branch = Stream(of_branch(bench), next_batch=2, written=100)
    branch.batch()
    outage(branch.bench)
    forward(bench)
    if later:
        outage(bench)
    main.next_batch = 3
    main.start()
    main.batch()


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
def test_what_a_rollback_took_is_not_hidden_by_the_batches_of_a_branch(
    options: dict[str, str],
) -> None:
    """The rollback takes all that main and the branch do not share, so the forward takes nothing."""
    main, branch = both()
    main.options = branch.options = options
    main.writer = None
    for _ in range(2):
        main.batch()
        branch.batch()
    bench = main.bench
    rollback_to(bench.table, 2, runtime=bench.runtime)
    assert fast_forward(bench.table, "x", runtime=bench.runtime).streams == {}
    main.start()
    with pytest.raises(TableRolledBack, match="batch 3 was committed"):
        main.batch()
    main.options = {**options, **CONTINUE}
    main.start()
    main.batch()
    main.options = options
    main.start()
    main.batch()


def test_a_killed_forward_hides_no_batch_of_main_until_it_is_completed() -> None:
    """Main's stream is started again while main is what the kill has left."""

    def make() -> tuple[Bench, Stream]:
        main, branch = both()
        for _ in range(2):
            main.batch()
            branch.batch()
        return main.bench, main

    cases = killed_anywhere(
        "killed before",
        make,
        lambda storage, bench: fast_forward(bench.on(storage), "x", runtime=bench.runtime),
        lambda bench: None,
    )
    gone_on = 0
    for bench, stream, _ in cases:
        has_all = {"me-2-3", "me-3-4"} <= set(bench.live_names())
        stream.start()
        if has_all:
            gone_on += 1
            stream.batch()
        else:
            with pytest.raises((TableRolledBack, HistoryUnknown)):
                stream.batch()
    assert 5 < gone_on < len(cases) - 5


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
@pytest.mark.parametrize("expired", [True, False])
def test_a_stream_that_has_run_its_batches_again_is_not_asked_about_them_after_a_forward(
    options: dict[str, str], expired: bool
) -> None:
    stream = stream_of(3, options=options)
    bench = stream.bench
    rollback_to(bench.table, 2, runtime=bench.runtime)
    stream.next_batch = 2
    stream.start()
    stream.batch()
    with_branch(bench)
    stream.bench = of_branch(bench)
    stream.start()
    stream.batch()
    if expired and not options:  # without a journal nothing else shows that batch 2 was run again
        outage(stream.bench)
    forward(bench)
    stream.bench = bench
    stream.start()
    stream.batch()


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
def test_a_forward_that_is_repeated_after_a_decision_asks_nothing_again(
    options: dict[str, str],
) -> None:
    """One that takes further batches of the stream does."""
    bench = Bench()
    create_branch(bench.table, "x", runtime=bench.runtime)
    main = Stream(bench, options=options)
    branch = Stream(of_branch(bench), written=100)
    for _ in range(5):
        main.batch()
        branch.batch()
    forward(bench)
    forward(bench)  # nobody has asked so far
    main.start()
    with pytest.raises(TableRolledBack):
        main.batch()
    main.options = {**options, **CONTINUE}
    main.start()
    main.batch(rows=0)
    main.options = options
    for _ in range(2):
        forward(bench)
        main.start()
        main.batch(rows=0)
    main.batch()
    branch.batches(4)
    forward(bench)
    main.start()
    with pytest.raises((TableRolledBack, HistoryUnknown)):
        main.batch()


def test_what_operators_gave_up_in_main_and_in_the_branch_stays_given_up() -> None:
    bench = Bench()
    main = Stream(bench)
    main.batches(5)
    with_branch(bench)
    branch = Stream(of_branch(bench), next_batch=5, written=100)
    rollback_to(bench.table, 3, runtime=bench.runtime)
    main.options = dict(CONTINUE)
    main.start()
    main.batch()
    branch.batches(2)
    forward(bench)
    register = Claims(bench.storage, main.writer.run.identity).own()  # type: ignore[union-attr]
    assert register is not None
    assert (3, 4) in register.given_up
    assert main.writer is not None and branch.writer is not None
    runs = {main.writer.run.claims.run, branch.writer.run.claims.run}
    assert register.runs >= runs, "so both are told from another sink that ran with one of them"


@pytest.mark.parametrize("before", [0, 1])
def test_a_batch_that_main_had_only_journalled_is_found_in_the_branch(before: int) -> None:
    bench = Bench()
    outage(bench, 1)
    stream = Stream(bench)
    stream.batches(before)
    with_branch(bench)
    outage(bench, 5)
    stream.start(At(Phase.JOURNALED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.bench = of_branch(bench)
    stream.start(At(Phase.HINTED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    outage(stream.bench, 8)
    forward(bench)
    stream.bench = bench
    stream.start()
    assert stream.batch().outcome == "already committed"
    stream.start()
    stream.batch()


@pytest.mark.parametrize("options", [{}, NO_JOURNAL], ids=["journal", "no journal"])
@pytest.mark.parametrize("older", [True, False])
def test_a_branchs_rollback_is_not_forgotten_in_main(options: dict[str, str], older: bool) -> None:
    bench = Bench()
    outage(bench, 1)
    with_branch(bench)
    stream = Stream(of_branch(bench), options=options)
    stream.batches(5)
    rollback_to(stream.bench.table, 4, runtime=bench.runtime)
    if older:
        for path in note_paths(stream.bench):
            stream.bench.storage.delete(path)
    forward(bench)
    names = set(read_removals(of_branch(bench).storage).removed)
    assert names <= set(read_removals(bench.storage).removed)
    stream.bench = bench
    if older:  # without the batches the old list names snapshots alone, which no journal names
        return
    if not options:
        outage(bench, 10)
    stream.start()
    with pytest.raises(TableRolledBack):
        stream.batch()
