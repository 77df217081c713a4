"""Changelogs that outlive their snapshots: what else may delete their files, and what lies beside
the lineage.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.snapshot_json import encode_snapshot
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.needed import ChangelogStore
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import delete_tag
from paimon_stream.options import Options
from paimon_stream.storage.branch import branch_storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.consumers import write_consumer
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table
from paimon_stream.verify.verifying import verify
from tests.kits.commits import Bench
from tests.kits.maintained import Case

LONG = {
    "changelog.num-retained.max": "50",
    "changelog.num-retained.min": "50",
    "changelog.time-retained": "10 d",
}


def kept(case: Case) -> tuple[list[int], set[str]]:
    """The long-lived changelogs, and the data files."""
    return ChangelogStore(case.bench.storage).ids(), data(case.bench)


def are_whole(case: Case) -> bool:
    """Whether all manifests of the long-lived changelogs exist."""
    store, manifests = ChangelogStore(case.bench.storage), case.bench.manifests
    metas = [meta for one in store.ids() for meta in manifests.base_and_delta(store.get(one))]
    return case.files() >= {manifest_path(meta.file_name) for meta in metas}


def data(bench: Bench) -> set[str]:
    found = (
        bench.storage.list_files("dt=a/bucket-0")
        if bench.partitioned
        else bench.storage.list_files("bucket-0")
    )
    return {one.name for one in found}


def cleaned(bench: Bench) -> int:
    bench.clock.advance(3 * 86_400_000)
    return remove_orphan_files(
        bench.table, timedelta(days=1), dry_run=False, runtime=bench.runtime
    ).count


def test_changelogs_keep_the_files_with_their_rows_until_they_expire_themselves() -> None:
    case = Case.long()
    report = case.expire()
    assert (report.snapshots, report.changelogs) == ((1, 2, 3, 4, 5), (1, 2, 3))
    assert kept(case) == ([4, 5], {"f2", "f3", "big-1", "big-3", "f4"})
    hints = [case.bench.storage.read(f"changelog/{one}") for one in ("EARLIEST", "LATEST")]
    assert hints == [b"4", b"5"]
    assert cleaned(case.bench) == 0
    delete_tag(case.bench.table, "kept", runtime=case.bench.runtime)
    assert "f2" in data(case.bench)
    assert are_whole(case)
    for number in range(10, 14):
        case.append(number)
    assert case.expire().changelogs == (4, 5, 6, 7)
    assert kept(case)[0] == [8, 9]
    assert are_whole(case)
    assert {"f2", "f3"}.isdisjoint(data(case.bench))
    assert {"f10", "f11", "big-3"} <= data(case.bench)
    for number in range(
        14, 20
    ):  # now and then a commit merges manifests that changelogs still have
        case.append(number)
        if number in (15, 16):  # the changelog of the first names a file that the second replaces
            case.compact(case.bench.live_names(), f"big-{number}")
        case.expire()
        assert are_whole(case)
        assert [
            one for one in verify(case.bench.table, sample=0).findings if one.severity == "error"
        ] == []
    assert "big-15" not in data(case.bench)
    assert cleaned(case.bench) == 0


def test_verify_finds_what_a_changelog_misses() -> None:
    case = Case.long()
    case.expire()
    bench = case.bench
    delete_tag(bench.table, "kept", runtime=bench.runtime)
    assert verify(bench.table, sample=0).checked["changelogs"] == 2
    bench.storage.delete("dt=a/bucket-0/f3")
    bench.storage.write("changelog/changelog-4", b"{")
    found = {
        (one.code, one.path)
        for one in verify(bench.table, sample=0).findings
        if one.severity == "error"
    }
    broken, missing = "changelog/changelog-4", "dt=a/bucket-0/f3"
    assert found == {("changelog-broken", broken), ("file-missing", missing)}


def test_a_tag_whose_changelogs_are_gone_goes_with_its_files() -> None:
    case = Case.long()
    for number in range(10, 14):
        case.append(number)
    case.expire()
    assert kept(case)[0] == [8, 9]
    assert "f2" in data(case.bench)
    delete_tag(case.bench.table, "kept", runtime=case.bench.runtime)
    assert "f2" not in data(case.bench)
    assert cleaned(case.bench) == 0


def test_consumers_hold_changelogs_back_and_a_dry_run_deletes_none() -> None:
    case = Case.long()
    write_consumer(case.bench.storage, "reader", 2)
    bench, options = case.bench, {"consumer.changelog-only": "true"}
    bench.table = replace(bench.table, options=Options(dict(bench.table.options), options))
    assert case.expire().changelogs == (1,)
    bench.storage.delete("consumer/consumer-reader")
    before = case.files()
    dry = expire_snapshots(bench.table, dry_run=True, runtime=bench.runtime)
    assert dry.changelogs == (2, 3)
    assert case.files() == before
    assert case.expire().files == dry.files


def test_a_rollback_to_a_tag_finds_what_expired_changelogs_left_it() -> None:
    case = Case.long()
    case.expire()
    rollback_to(case.bench.table, "kept", runtime=case.bench.runtime)
    assert kept(case)[0] == [4]
    case.append(20)
    case.append(21)
    case.expire()
    assert kept(case)[0] == [4]
    case.audit(["big-1", "f2", "f20", "f21"])


def test_a_snapshot_beside_the_lineage_neither_replaces_a_changelog_nor_takes_files_with_it() -> (
    None
):
    """A paused writer created snapshot 5 again. Its changes delete big-1, which is live."""
    case = Case.long()
    bench = case.bench
    wrong = Case.make()
    rollback_to(wrong.bench.table, 4, runtime=wrong.bench.runtime)
    wrong.compact(["big-1", "f2"], "big-9")
    stray = wrong.bench.snapshots.get(5)
    for path in wrong.files() - case.files():
        if path.startswith("manifest/"):
            bench.storage.write(path, wrong.bench.storage.read(path))
    live = bench.live_names()
    case.expire()
    delete_tag(bench.table, "kept", runtime=bench.runtime)
    right = ChangelogStore(bench.storage).find(5)
    bench.storage.write("snapshot/snapshot-5", encode_snapshot(stray))
    case.expire()
    assert ChangelogStore(bench.storage).find(5) == right
    bench.storage.write("changelog/changelog-5", encode_snapshot(stray))
    for number in range(10, 14):
        case.append(number)
    assert 5 in case.expire().changelogs
    case.audit(sorted([*live, "f10", "f11", "f12", "f13"]))


def test_a_branch_keeps_what_a_changelog_of_main_needs() -> None:
    bench = Bench()
    for number in range(3):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
        bench.clock.advance(1000)
    bench.storage.write("branch/branch-b/schema/schema-0", bench.storage.read("schema/schema-0"))
    bench.storage.write(
        "branch/branch-b/snapshot/snapshot-3", bench.storage.read("snapshot/snapshot-3")
    )
    options = {"snapshot.num-retained.min": "1", "changelog.num-retained.min": "9"}
    schema = bench.table.schema
    bench.table = replace(
        bench.table, schema=replace(schema, options={**schema.options, **options})
    )
    bench.committer().commit(bench.overwriting(4))
    expire_snapshots(bench.table, 1, 1, timedelta(0), runtime=bench.runtime)
    branch = copy.copy(bench)
    branch.storage = branch_storage(bench.storage, "b")
    branch.table = replace(bench.table, storage=branch.storage, schema=schema, options=Options({}))
    branch.snapshots = SnapshotStore(branch.storage, bench.runtime)
    branch.committer().commit(branch.request(4, [branch.compaction("f0", "f1", into="big")]))
    bench.clock.advance(1000)
    expire_snapshots(branch.table, 1, 1, timedelta(0), runtime=bench.runtime)
    assert branch.snapshots.ids() == [4]
    assert {"f0", "f1", "f2", "big"} <= data(bench)
    assert ChangelogStore(bench.storage).ids() == [1, 2, 3]


@pytest.mark.parametrize(
    "then", [{}, {**LONG, "changelog-producer": "input"}], ids=["taken back", "another producer"]
)
def test_changelogs_stay_whole_when_the_options_of_the_table_change(
    tmp_path: Path, then: dict[str, str]
) -> None:
    columns = [("id", "INT NOT NULL")]
    table = PaimonTable.create(
        str(tmp_path / "t"), columns, primary_keys=["id"], options={"bucket": "1", **LONG}
    )
    for number in range(4):
        table.append(pa.table({"id": pa.array([number], pa.int32())}))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")
    schemas = SchemaStore(LocalStorage(table.location))
    assert schemas.create(replace(schemas.latest(), id=1, options={"bucket": "1", **then}))
    table = PaimonTable.load(table.location)
    table.truncate()
    table.append(pa.table({"id": pa.array([9], pa.int32())}))
    assert table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s").snapshots == (4, 5)
    assert ChangelogStore(LocalStorage(table.location)).ids()[:3] == [1, 2, 3]
    assert [one for one in table.verify().findings if one.severity == "error"] == []


@pytest.mark.parametrize(
    "own", [{"snapshot.num-retained.max": "100"}, {"changelog-producer": "input"}]
)
def test_options_of_one_writer_take_no_changelog_away(tmp_path: Path, own: dict[str, str]) -> None:
    columns = [("id", "INT NOT NULL")]
    table = PaimonTable.create(
        str(tmp_path / "t"), columns, primary_keys=["id"], options={"bucket": "1", **LONG}
    )
    for number in range(5):
        table.append(pa.table({"id": pa.array([number], pa.int32())}))
    opened = load_table(LocalStorage(table.location), own)
    expire_snapshots(opened, retain_max=1, retain_min=1, older_than=timedelta(0))
    assert ChangelogStore(opened.storage).ids() == [1, 2, 3, 4]
    assert [one for one in table.verify().findings if one.severity == "error"] == []
