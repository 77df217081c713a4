"""Every storage operation of expiry, of tags and of a rollback fails in turn, before and after its
effect, or the process dies there. Each time the table is audited, and the next run finishes the
work. Expiry also meets a commit, another expiry and a tag at each of its operations, and a tag
meets an expiry at each of its own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from paimon_stream.errors import CorruptMetadata, NotFound
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from paimon_stream.storage.base import Storage
from tests.kits.attempts import attempts
from tests.kits.commits import Bench
from tests.kits.faults import FAULTS as ALL_FAULTS
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.maintained import Case, tried
from tests.kits.params import few
from tests.kits.places import WHOLE, following
from tests.kits.races import Meanwhile, Stopped
from tests.kits.seeds import MANY

pytestmark = pytest.mark.store

FAULTS = {kind: ALL_FAULTS[kind] for kind in ("before", "refused", "killed before", "killed after")}


def test_a_run_without_faults_leaves_only_what_is_needed() -> None:
    case = Case.make()
    live = case.bench.live_names()
    report = case.expire()
    assert report.snapshots == (1, 2, 3, 4, 5)
    assert {"data", "manifest", "manifest list", "snapshot"} <= set(report.files)
    case.audit(live)
    names = {path.rpartition("/")[2] for path in case.files()}
    assert {"f2", "big-1", "big-3", "f4"} <= names  # the tag keeps f2
    assert not {"f0", "f1", "f3"} & names
    delete_tag(case.bench.table, "kept", runtime=case.bench.runtime)
    names = {path.rpartition("/")[2] for path in case.files()}
    assert "f2" not in names
    case.audit(live)
    case.bench.audit(live, orphans=True)


def is_killed_after(fault: dict[str, object]) -> bool:
    return fault is FAULTS["killed after"]


LONG = (FAULTS["killed after"], Case.long)  # with changelogs that outlive their snapshots


@pytest.mark.parametrize(
    ("fault", "make"),
    few(
        [*((one, Case.make) for one in FAULTS.values()), LONG],
        lambda fault, make: fault is FAULTS["before"] or make == Case.long,
    ),
)
def test_expiry_that_failed_anywhere_loses_nothing_and_the_next_run_finishes_it(
    fault: dict[str, object], make: Callable[[], Case]
) -> None:
    clean = make()
    clean.expire()
    wanted = clean.files()
    for case, storage in attempts(make, fault, least=3):
        live = case.bench.live_names()
        failed = tried(lambda case=case, storage=storage: case.expire(storage))
        case.audit(live)
        again = case.expire()
        assert again.earliest == 6
        case.audit(live)
        left = case.files() - wanted
        assert case.files() >= wanted
        if fault.get("error") is None:
            assert left == set(), f"after {storage.operations[-1]} ({failed!r})"
        case.append(100)
        case.audit(sorted([*live, "f100"]))


@pytest.mark.parametrize("fault", few(FAULTS.values(), is_killed_after), ids=FAULTS.keys())
def test_deleting_a_tag_that_failed_anywhere_leaves_it_whole_or_gone(
    fault: dict[str, object],
) -> None:
    for case, storage in attempts(Case.make, fault, least=3):
        live = case.bench.live_names()
        case.expire()
        bench = case.bench
        tried(lambda b=bench, s=storage: delete_tag(b.on(s), "kept", runtime=b.runtime))
        case.audit(live)
        tried(lambda b=bench: delete_tag(b.table, "kept", runtime=b.runtime))
        assert read_tags(bench.storage) == {}
        case.audit(live)


@pytest.mark.parametrize("fault", few(FAULTS.values(), is_killed_after), ids=FAULTS.keys())
def test_a_rollback_that_failed_anywhere_is_a_table_of_the_past_and_is_repeated(
    fault: dict[str, object],
) -> None:
    for target in (4, "old"):
        at, fired = 0, True
        while fired:
            at = following(at)
            case = Case.make()
            bench = case.bench
            wanted = ["big-1", "f2"]
            create_tag(bench.table, "old", 4, runtime=bench.runtime)
            if target == "old":
                case.expire()
            storage = FaultyStorage(bench.storage, [Fault(at=at, **fault)])  # type: ignore[arg-type]
            tried(lambda b=bench, s=storage, t=target: rollback_to(b.on(s), t, runtime=b.runtime))
            fired = storage.fired
            ids = bench.snapshots.ids()
            assert not any(case.broken(bench.snapshots.get(one)) for one in ids)
            rollback_to(bench.table, target, runtime=bench.runtime)
            assert bench.snapshots.ids()[-1] == bench.snapshots.latest_id() == 4
            assert bench.storage.read("snapshot/LATEST") == b"4"
            assert bench.live_names() == wanted
            case.append(100)
            assert bench.live_names() == sorted([*wanted, "f100"])


def test_what_another_does_at_any_operation_of_an_expiry_keeps_the_table_whole() -> None:
    def commit(case: Case) -> None:
        case.append(100)

    def compact(case: Case) -> None:
        case.compact(["f4", "big-3"], "big-100")

    def expire(case: Case) -> None:
        case.expire()

    for what in (commit, compact, expire):
        at, met = 0, True
        while met:
            at = following(at)
            case = Case.make()
            live = case.bench.live_names()
            meanwhile = Meanwhile(case.bench.storage, at, lambda case=case, what=what: what(case))
            case.expire(meanwhile)  # type: ignore[arg-type]
            met = meanwhile.happened
            live = (
                {commit: sorted([*live, "f100"]), compact: ["big-1", "big-100"]}.get(what, live)
                if met
                else live
            )
            case.audit(live)
            case.expire()
            case.audit(live)
        assert at > 50


def test_what_an_expiry_does_at_any_operation_of_a_commit_keeps_the_table_whole() -> None:
    at, met = 0, True
    while met:
        at = following(at)
        case = Case.make()
        bench = case.bench
        live = sorted([*bench.live_names(), "f100"])
        message = bench.message("f100", dt="a")
        request = bench.request(100, [message], user="stream")
        storage = Meanwhile(bench.storage, at, lambda case=case: case.expire())  # type: ignore[arg-type,return-value]
        bench.committer(storage).commit(request)  # type: ignore[arg-type]
        met = storage.happened
        case.audit(live)
        case.expire()
        case.audit(live)
    assert at > 10


def tag(case: Case, name: str, snapshot: int, storage: Storage | None = None) -> bool:
    """Whether the tag was created."""
    bench = case.bench
    failed = tried(lambda: create_tag(bench.on(storage), name, snapshot, runtime=bench.runtime))
    assert failed is None or isinstance(failed, NotFound)
    return failed is None


def untag(case: Case, name: str, storage: Storage | None = None) -> None:
    delete_tag(case.bench.on(storage), name, runtime=case.bench.runtime)


def ends_well(case: Case, live: list[str], made: dict[str, bool]) -> None:
    """Each tag that was reported as created is there, no other, and all of them are whole."""
    assert {name for name in read_tags(case.bench.storage) if name != "kept"} == {
        name for name, created in made.items() if created
    }
    case.audit(live)


@pytest.mark.parametrize("snapshot", few([1, 2, 5, 6], lambda snapshot: snapshot in (2, 6)))
def test_a_tag_created_at_any_operation_of_an_expiry_is_whole_or_refused(snapshot: int) -> None:
    at, met, refused = 0, True, 0
    while met:
        at = following(at)
        case, made = Case.make(), {}
        live = case.bench.live_names()

        def create(case: Case = case, made: dict[str, bool] = made) -> None:
            made["new"] = tag(case, "new", snapshot)

        storage = Meanwhile(case.bench.storage, at, create)
        case.expire(storage)  # type: ignore[arg-type]
        met = storage.happened
        refused += not made.get("new", True)
        ends_well(case, live, made)
        case.expire()
        ends_well(case, live, made)
    assert not WHOLE or (refused > 0) == (snapshot < 6)


@pytest.mark.parametrize("snapshot", few([2, 5, 6], lambda snapshot: snapshot == 2))
def test_a_tag_is_whole_or_refused_at_each_operation_at_which_its_snapshot_expires(
    snapshot: int,
) -> None:
    at, met, outcomes = 0, True, set()
    while met:
        at = following(at)
        case = Case.make()
        live = case.bench.live_names()
        storage = Meanwhile(case.bench.storage, at, lambda case=case: case.expire())  # type: ignore[arg-type,return-value]
        made = {"new": tag(case, "new", snapshot, storage)}  # type: ignore[arg-type]
        met = storage.happened
        outcomes.add(made["new"])
        ends_well(case, live, made)
    assert not WHOLE or outcomes == ({True} if snapshot == 6 else {True, False})


def test_a_tag_is_whole_or_refused_wherever_its_creation_and_an_expiry_stop_for_each_other() -> (
    None
):
    """The expiry of snapshots 1 and 2 stops before each of its operations; then tag 2 is created up
    to each of its own, where the expiry goes on to its end.
    """
    at, met, refused = 0, True, 0
    while met:
        at = following(at if MANY or not at else at + 8)
        within, switched = 0, True
        while switched:
            within += 1
            case = Case.make()
            live, bench = case.bench.live_names(), case.bench

            def expire(storage: Storage, bench: Bench = bench) -> None:
                expire_snapshots(
                    bench.on(storage), 5, 5, dt.timedelta(0), 100, runtime=bench.runtime
                )

            expiry = Stopped(bench.storage, at, expire)
            storage = Meanwhile(bench.storage, within, expiry.finish)
            made = {"new": tag(case, "new", 2, storage)}  # type: ignore[arg-type]
            met, switched = expiry.happened, storage.happened
            expiry.finish()
            assert expiry.error is None
            refused += not made["new"]
            ends_well(case, live, made)
    assert refused > (20 if MANY else 0) or not WHOLE


@pytest.mark.parametrize("moment", Moment)
def test_an_interrupted_expiry_never_refuses_a_tag_for_ever(moment: Moment) -> None:
    """Only the tag `kept` keeps snapshot 4. The expiry of snapshot 6 is killed before or after it
    deletes the snapshot's file, and no snapshot is due afterwards.
    """
    case = Case.make()
    case.append(100)
    bench = case.bench
    case.expire_to(6)
    killing = Fault(at=1, verb="delete", path="snapshot/snapshot-6", moment=moment, stop=True)
    assert isinstance(
        tried(lambda: case.expire_to(7, FaultyStorage(bench.storage, [killing]))), Killed
    )
    live = bench.live_names()
    if moment is Moment.AFTER:
        with pytest.raises(
            NotFound, match=r"interrupted.*Run expire_snapshots, then create the tag again"
        ):
            create_tag(bench.table, "new", 4, runtime=bench.runtime)
        ends_well(case, live, {})
        assert expire_snapshots(bench.table, 10, 10, runtime=bench.runtime).snapshots == ()
    assert tag(case, "new", 4)
    ends_well(case, live, {"new": True})
    case.expire_to(7)
    ends_well(case, live, {"new": True})


def test_of_a_tag_that_is_deleted_another_can_be_made_at_any_operation_or_is_refused() -> None:
    for tags_meanwhile in (True, False):
        at, met, outcomes = 0, True, set()
        while met:
            at = following(at)
            case, made = Case.make(), {}
            live = case.bench.live_names()
            case.expire()

            def make(
                case: Case = case, made: dict[str, bool] = made, storage: Storage | None = None
            ) -> None:
                made["new"] = tag(case, "new", 4, storage)

            def delete(case: Case = case, storage: Storage | None = None) -> None:
                untag(case, "kept", storage)

            inner, outer = (make, delete) if tags_meanwhile else (delete, make)
            storage = Meanwhile(case.bench.storage, at, inner)
            outer(storage=storage)  # type: ignore[arg-type]
            met = storage.happened
            outcomes.add(made.get("new"))
            ends_well(case, live, made)
        assert not WHOLE or {True, False} <= outcomes


def test_a_commit_that_reads_a_snapshot_as_it_expires_says_so_or_succeeds() -> None:
    """Readers of old snapshots find a snapshot whole, or get an error that it is gone."""
    case = Case.make()
    bench = case.bench
    old = bench.snapshots.get(1)
    case.expire()
    with pytest.raises(CorruptMetadata, match="expired"):
        bench.manifests.base_and_delta(old)
