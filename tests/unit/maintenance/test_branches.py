"""Branches: what each sees, which files stay for them, and what a kill or another command in
between leaves.
"""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.errors import (
    AlreadyExists,
    CommitContended,
    CorruptMetadata,
    InvalidOption,
    NotFound,
)
from paimon_stream.maintenance.branches import (
    create_branch,
    delete_branch,
    fast_forward,
    read_branches,
)
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from paimon_stream.runtime import SimulatedClock
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import (
    BranchStorage,
    branch_note,
    branch_storage,
    split_location,
    with_branch,
)
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.live import live_files
from paimon_stream.table.references import histories, names_in_use
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table
from tests.kits.attempts import attempts
from tests.kits.faults import FAULTS
from tests.kits.maintained import TEMPLATE, Case, built, tried
from tests.kits.params import each_once
from tests.kits.places import following
from tests.kits.races import Meanwhile

KILLS = {kind: FAULTS[kind] for kind in ("before", "killed before", "killed after")}
NOTHING = dt.timedelta(0)


def on(case: Case, name: str, storage: Storage | None = None) -> Case:
    """The same table, opened at a branch."""
    return Case.on(branch_storage(storage or case.bench.storage, name), case.bench.clock)


def made(tag: str | None = "kept", name: str = "x") -> tuple[Case, Case]:
    """A table with a branch of its tag, and the branch, which has two snapshots more."""
    case = Case.make()
    create_branch(case.bench.table, name, tag, runtime=case.bench.runtime)
    branch = on(case, name)
    for number in (200, 201):
        branch.append(number)
    return case, branch


def audit(case: Case) -> None:
    """Every snapshot and tag of main and of each branch is whole, and what is unused can be
    judged.
    """
    for one in histories(case.bench.storage):
        store = SnapshotStore(one)
        ids = store.ids()
        assert ids == list(range(ids[0], ids[-1] + 1)) if ids else True
        broken = [f"{one.location} {number}" for number in ids if case.broken(store.get(number))]
        broken += [
            f"{one.location} {name}" for name, tag in read_tags(one).items() if case.broken(tag)
        ]
        assert broken == []
    if not read_pins(case.bench.storage):
        remove_orphan_files(case.bench.table, dt.timedelta(hours=1), runtime=case.bench.runtime)


def forward(case: Case, storage: Storage | None = None, **how: bool) -> object:
    return fast_forward(case.bench.on(storage), "x", runtime=case.bench.runtime, **how)


def states_of(case: Case) -> Iterator[list[str]]:
    """The live files of each snapshot."""
    bench = case.bench
    for one in map(bench.snapshots.get, bench.snapshots.ids()):
        metas = bench.manifests.base_and_delta(one)
        yield sorted(
            e.file.file_name
            for e in live_files(bench.manifests, metas, bench.table.partition_types)
        )


# -- names and locations
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", " ", "main", "7", "a b", "a/b", "a\tb", "a$b", "a\\b", "x" * 250, "a\0"]
)
def test_names_that_no_branch_may_have_are_refused(name: str) -> None:
    case = Case.make()
    with pytest.raises(InvalidOption, match="not allowed"):
        create_branch(case.bench.table, name)
    if name.strip() not in ("", "main", "a/b"):
        with pytest.raises(InvalidOption):
            open_storage(f"memory://names/t$branch_{name}")


@pytest.mark.parametrize(
    ("location", "folder", "branch"),
    [
        ("/db.db/t$branch_x", "/db.db/t", "x"),
        ("/db.db/t$branch_x/", "/db.db/t", "x"),
        ("/db.db/t$branch_main", "/db.db/t", None),
        ("s3://b/db.db/t$branch_x", "s3://b/db.db/t", "x"),
        ("/db.db/t$branch_x/y", "/db.db/t$branch_x/y", None),
        ("/db.db/t", "/db.db/t", None),
    ],
)
def test_a_location_may_name_a_branch(location: str, folder: str, branch: str | None) -> None:
    assert split_location(location) == (folder, branch)


def test_the_branch_of_a_location_is_given_beside_it() -> None:
    assert with_branch("/db.db/t/", "x") == "/db.db/t$branch_x"
    assert with_branch("/db.db/t$branch_x", "x") == "/db.db/t$branch_x"
    assert with_branch("/db.db/t", "main") == "/db.db/t"
    assert open_storage(with_branch("file:///db.db/a%20t", "ä%")).location == "/db.db/a t$branch_ä%"
    with pytest.raises(InvalidOption, match="Give one of them"):
        with_branch("/db.db/t$branch_x", "y")
    with pytest.raises(InvalidOption, match="branch is 7"):
        with_branch("/db.db/t", 7)  # type: ignore[arg-type]


def test_a_view_of_a_branch_travels_to_executors() -> None:
    view = pickle.loads(pickle.dumps(open_storage("memory://travels/t$branch_x")))
    assert isinstance(view, BranchStorage)
    assert (view.location, view.branch) == ("memory://travels/t$branch_x", "x")


def test_a_branch_that_does_not_exist_is_an_error_that_names_the_others() -> None:
    case, _ = made()
    with pytest.raises(NotFound, match=r"has no branch 'y'.*Its branches: x"):
        load_table(branch_storage(case.bench.storage, "y"))


# -- making and deleting
# ------------------------------------------------------------------------------


def test_a_branch_has_a_history_of_its_own() -> None:
    case, branch = made()
    live = case.bench.live_names()
    tag = read_tags(case.bench.storage)["kept"]
    assert branch.bench.snapshots.ids() == [tag.id, tag.id + 1, tag.id + 2]
    assert {"f200", "f201"} <= set(branch.bench.live_names())
    assert case.bench.live_names() == live
    assert read_tags(branch.bench.storage) == {"kept": tag}
    found = read_branches(case.bench.storage)
    assert {name: one.id for name, one in found.items() if one} == {"x": tag.id + 2}
    with pytest.raises(AlreadyExists):
        create_branch(case.bench.table, "x")
    with pytest.raises(InvalidOption, match="is a branch"):
        create_branch(branch.bench.table, "y")
    audit(case)


def test_an_empty_branch_has_all_schemas_and_no_snapshot() -> None:
    case, _ = made(None, "y")
    create_branch(case.bench.table, "x")
    assert read_branches(case.bench.storage)["x"] is None
    assert (
        SchemaStore(branch_storage(case.bench.storage, "x")).ids()
        == SchemaStore(case.bench.storage).ids()
    )
    with pytest.raises(NotFound, match="has no tag 'gone'"):
        create_branch(case.bench.table, "z", "gone")
    audit(case)


@pytest.mark.parametrize("fault", KILLS.values(), ids=KILLS.keys())
@pytest.mark.parametrize("tag", [None, "kept"])
def test_a_creation_that_failed_anywhere_leaves_no_branch_or_a_whole_one(
    fault: dict[str, object], tag: str
) -> None:
    for case, storage in attempts(Case.make, fault, least=3):
        tried(
            lambda c=case, s=storage: create_branch(
                c.bench.on(s), "x", tag, runtime=c.bench.runtime
            )
        )  # type: ignore[misc]
        audit(case)
        if "x" in read_branches(case.bench.storage):
            load_table(branch_storage(case.bench.storage, "x"))
        elif case.bench.storage.exists(branch_note("x")):
            with pytest.raises(CommitContended, match="delete_branch"):
                create_branch(case.bench.table, "x", "kept" if tag is None else None)
        failed = tried(
            lambda c=case: create_branch(c.bench.table, "x", tag, runtime=c.bench.runtime)
        )  # type: ignore[misc]
        assert failed is None or isinstance(failed, AlreadyExists)
        assert SnapshotStore(branch_storage(case.bench.storage, "x")).ids() == (
            [] if tag is None else [4]
        )
        audit(case)


@pytest.mark.parametrize("fault", KILLS.values(), ids=KILLS.keys())
def test_a_deletion_that_failed_anywhere_leaves_the_branch_or_none(
    fault: dict[str, object],
) -> None:
    for case, storage in attempts(lambda: made()[0], fault, least=3):
        live = case.bench.live_names()
        tried(lambda c=case, s=storage: delete_branch(c.bench.on(s), "x"))  # type: ignore[misc]
        audit(case)
        if case.bench.storage.exists(branch_note("x")):
            with pytest.raises(NotFound, match="its creation or deletion was interrupted"):
                load_table(branch_storage(case.bench.storage, "x"))
        delete_branch(case.bench.table, "x")
        assert read_branches(case.bench.storage) == {}
        assert not [
            path for path in case.files() if path.startswith(("branch/", "_paimon_stream/branch"))
        ]
        assert case.bench.live_names() == live
        assert delete_branch(case.bench.table, "x").found is False
        create_branch(case.bench.table, "x", "kept", runtime=case.bench.runtime)
        audit(case)


def test_a_deletion_that_was_killed_anywhere_on_a_disk_stops_no_orphan_removal(
    tmp_path: Path,
) -> None:
    numbers = count()

    def make() -> Case:
        there = LocalStorage(str(tmp_path / str(next(numbers))))
        there.write_all(list(built().items()))
        case = Case.on(there, SimulatedClock(TEMPLATE.bench.clock.millis))
        create_branch(case.bench.table, "x", "kept", runtime=case.bench.runtime)
        return case

    for case, storage in attempts(make, KILLS["killed before"], least=3):
        tried(lambda c=case, s=storage: delete_branch(c.bench.on(s), "x"))  # type: ignore[misc]
        audit(case)
        delete_branch(case.bench.table, "x")
        assert case.bench.storage.list_folders("branch") == []


def test_a_branch_without_a_schema_stops_orphan_removal_until_it_is_deleted() -> None:
    case, branch = made()
    delete_branch(case.bench.table, "x")
    branch.bench.storage.write(
        "snapshot/snapshot-7", case.bench.storage.read("snapshot/snapshot-6")
    )
    with pytest.raises(CorruptMetadata, match="delete_branch"):
        remove_orphan_files(case.bench.table, dt.timedelta(hours=1), runtime=case.bench.runtime)
    assert delete_branch(case.bench.table, "x").found
    audit(case)


def test_files_of_a_deleted_branch_are_orphans() -> None:
    case, _ = made()
    delete_branch(case.bench.table, "x")
    case.bench.clock.sleep(7200)
    report = remove_orphan_files(
        case.bench.table, dt.timedelta(hours=1), dry_run=False, runtime=case.bench.runtime
    )
    assert report.files["data"] == 2
    audit(case)


def test_orphans_of_main_and_of_all_branches_are_found_from_each_branch() -> None:
    strays = [
        f"{folder}{path}"
        for folder in ("", "branch/branch-x/")
        for path in ("snapshot/.s", "_paimon_stream/.n.tmp")
    ]
    for name in (None, "x", "y"):
        case, _ = made()
        create_branch(case.bench.table, "y", runtime=case.bench.runtime)
        for path in strays:
            case.bench.storage.write(path, b"x")
        case.bench.clock.sleep(7200)
        opened = case if name is None else on(case, name)
        remove_orphan_files(
            opened.bench.table, dt.timedelta(hours=1), dry_run=False, runtime=case.bench.runtime
        )
        assert not [path for path in strays if case.bench.storage.exists(path)]
        audit(case)


# -- which files stay
# ---------------------------------------------------------------------------------


def test_no_side_deletes_files_of_the_other() -> None:
    for turn in range(4):
        case, branch = made()
        branch.compact(["big-1", "f2", "f200"], "big-200")
        live, theirs = case.bench.live_names(), branch.bench.live_names()
        steps: list[Callable[[], object]] = [
            lambda c=case: c.expire(),  # type: ignore[misc]
            lambda b=branch: b.expire_to(b.bench.snapshots.ids()[-1]),  # type: ignore[misc]
            lambda c=case: delete_tag(c.bench.table, "kept", runtime=c.bench.runtime),  # type: ignore[misc]
            lambda b=branch: delete_tag(b.bench.table, "kept", runtime=b.bench.runtime),  # type: ignore[misc]
        ]
        for step in steps[turn:] + steps[:turn]:
            step()
            audit(case)
        assert (case.bench.live_names(), branch.bench.live_names()) == (live, theirs)
        case.bench.clock.sleep(7200)
        remove_orphan_files(
            branch.bench.table, dt.timedelta(hours=1), dry_run=False, runtime=case.bench.runtime
        )
        audit(case)
        assert (case.bench.live_names(), branch.bench.live_names()) == (live, theirs)


def test_an_expiry_of_a_branch_deletes_what_only_it_used() -> None:
    case, branch = made()
    branch.compact(["f200", "f201"], "big-200")
    report = branch.expire_to(branch.bench.snapshots.ids()[-1])
    assert report.files["data"] == 2
    assert not any(path.endswith(("/f200", "/f201")) for path in case.files())
    audit(case)


def test_what_any_branch_refers_to_is_in_use_whichever_is_asked() -> None:
    case, branch = made()
    case.append(100)
    for one in (case, branch):
        found = names_in_use(one.bench.storage, one.bench.runtime, {"f100", "f200", "f999"})
        assert found == {"f100", "f200"}


def test_no_table_is_created_at_the_location_of_a_branch() -> None:
    with pytest.raises(InvalidOption, match="is a branch"):
        PaimonTable.create("memory://created/t$branch_x", [("id", "INT")])


def test_a_rollback_of_a_branch_leaves_main_as_it_is() -> None:
    case, branch = made()
    live, before = case.bench.live_names(), case.bench.snapshots.ids()
    rollback_to(branch.bench.table, "kept", runtime=branch.bench.runtime)
    assert (case.bench.live_names(), case.bench.snapshots.ids()) == (live, before)
    audit(case)


def test_a_branch_made_at_any_operation_of_what_deletes_is_whole_or_refused() -> None:
    def expire(case: Case, storage: Storage) -> None:
        case.expire(storage)

    def untag(case: Case, storage: Storage) -> None:
        case.expire()
        delete_tag(case.bench.on(storage), "kept", runtime=case.bench.runtime)

    for work in (expire, untag):
        at, met, outcomes = 0, True, set()
        while met:
            at = following(at)
            case = Case.make()

            def create(case: Case = case, outcomes: set[bool] = outcomes) -> None:
                bench = case.bench
                failed = tried(
                    lambda: create_branch(bench.table, "x", "kept", runtime=bench.runtime)
                )
                outcomes.add(failed is None)

            storage = Meanwhile(case.bench.storage, at, create)
            work(case, storage)  # type: ignore[arg-type]
            met = storage.happened
            audit(case)
            tried(lambda c=case: delete_tag(c.bench.table, "kept", runtime=c.bench.runtime))  # type: ignore[misc]
            case.expire()
            audit(case)
        assert True in outcomes


def test_what_deletes_at_any_operation_of_a_creation_leaves_a_whole_branch_or_none() -> None:
    at, met, outcomes = 0, True, set()
    while met:
        at = following(at)
        case = Case.make()
        case.expire()
        bench = case.bench
        storage = Meanwhile(
            bench.storage, at, lambda b=bench: delete_tag(b.table, "kept", runtime=b.runtime)
        )  # type: ignore[arg-type,misc]
        failed = tried(
            lambda b=bench, s=storage: create_branch(b.on(s), "x", "kept", runtime=b.runtime)
        )  # type: ignore[arg-type,misc]
        assert failed is None or isinstance(failed, NotFound)
        outcomes.add(failed is None)
        met = storage.happened
        assert ("x" in read_branches(bench.storage)) == (failed is None)
        audit(case)
    assert outcomes == {True, False}


# -- fast forward
# -------------------------------------------------------------------------------------


def test_main_becomes_what_the_branch_is() -> None:
    case, branch = made()
    theirs = branch.bench.live_names()
    create_tag(branch.bench.table, "late", runtime=branch.bench.runtime)
    before = case.files()
    planned = forward(case, dry_run=True)
    assert case.files() == before
    report = forward(case)
    assert (report.kept, report.added, report.removed) == (4, (5, 6), (5, 6, 7))  # type: ignore[attr-defined]
    assert (planned.added, planned.removed) == (report.added, report.removed)  # type: ignore[attr-defined]
    assert case.bench.live_names() == branch.bench.live_names() == theirs
    assert {"kept", "late"} == set(read_tags(case.bench.storage))
    audit(case)
    delete_branch(case.bench.table, "x")
    case.expire()
    case.bench.clock.sleep(7200)
    remove_orphan_files(
        case.bench.table, dt.timedelta(hours=1), dry_run=False, runtime=case.bench.runtime
    )
    assert case.bench.live_names() == theirs
    audit(case)


@pytest.mark.parametrize(("name", "shared"), each_once(KILLS, [True, False]))
def test_a_fast_forward_that_failed_anywhere_is_completed_by_the_next(
    name: str, shared: bool
) -> None:
    fault = KILLS[name]

    def make() -> Case:
        case, branch = made("kept" if shared else None)
        if shared:
            branch.compact(["f200", "f201"], "big-200")
        return case

    for case, storage in attempts(make, fault, least=3):
        live, theirs = case.bench.live_names(), on(case, "x").bench.live_names()
        states = {tuple(live), tuple(theirs)}
        for one in (case, on(case, "x")):
            states.update(map(tuple, states_of(one)))
        tried(lambda c=case, s=storage: forward(c, s))  # type: ignore[misc]
        audit(case)
        assert tuple(case.bench.live_names()) in states
        forward(case)
        assert case.bench.live_names() == theirs
        assert (
            SnapshotStore(case.bench.storage).latest_id()
            == SnapshotStore(on(case, "x").bench.storage).latest_id()
        )
        assert read_pins(case.bench.storage) == []
        audit(case)
        delete_branch(case.bench.table, "x")
        case.append(100)
        case.expire_to(case.bench.snapshots.ids()[-1])
        audit(case)
        assert case.bench.live_names() == sorted([*theirs, "f100"])


def test_an_expiry_of_the_branch_and_a_fast_forward_may_meet_anywhere() -> None:
    def expire(branch: Case) -> None:
        branch.expire_to(branch.bench.snapshots.ids()[-1])

    for first in ("expiry", "fast forward"):
        at, met = 0, True
        while met:
            at = following(at)
            case, branch = made()
            branch.compact(["f200", "f201"], "big-200")
            theirs = branch.bench.live_names()
            if first == "expiry":
                storage = Meanwhile(
                    case.bench.storage, at, lambda c=case: tried(lambda: forward(c))
                )  # type: ignore[arg-type,misc]
                slow = on(case, "x", storage)  # type: ignore[arg-type]
                tried(lambda s=slow: expire(s))  # type: ignore[misc]
            else:
                storage = Meanwhile(case.bench.storage, at, lambda b=branch: expire(b))  # type: ignore[arg-type,misc]
                tried(lambda c=case, s=storage: forward(c, s))  # type: ignore[arg-type,misc]
            met = storage.happened
            audit(case)
            forward(case)
            audit(case)
            assert case.bench.live_names() == theirs


def test_a_fast_forward_needs_a_branch_with_snapshots() -> None:
    case = Case.make()
    with pytest.raises(NotFound, match="has no branch 'x'"):
        forward(case)
    create_branch(case.bench.table, "x")
    with pytest.raises(NotFound, match="has no snapshot"):
        forward(case)


def test_memory_lists_no_branch_where_there_is_none() -> None:
    assert read_branches(MemoryStorage()) == {}
