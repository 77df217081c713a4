"""The changelog of a snapshot expires with it, although a tag or a branch keeps its rows."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta

import pytest

from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CorruptMetadata
from paimon_stream.format.snapshot_json import Snapshot, encode_snapshot
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.orphans import OrphanReport, remove_orphan_files
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag
from paimon_stream.storage.branch import branch_storage
from paimon_stream.table.layout import manifest_path
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.verify.verifying import verify
from tests.kits.commits import Bench


def a_table() -> tuple[Bench, Snapshot]:
    """A table with four snapshots with changelogs, and the second of them."""
    bench = Bench(keys=("id",), options={"bucket": "1"})
    for number in range(4):
        message = replace(bench.message(f"f{number}"), changelog_files=(bench.put(f"c{number}"),))
        bench.committer().commit(bench.request(number, [message]))
        bench.clock.advance(1000)
    return bench, bench.snapshots.get(2)


def tagged(bench: Bench, snapshot: Snapshot) -> None:
    create_tag(bench.table, "kept", snapshot.id, runtime=bench.runtime)


def branched(bench: Bench, snapshot: Snapshot) -> None:
    for path in ("snapshot/snapshot-2", "tag/tag-b"):
        bench.storage.write(f"branch/branch-b/{path}", encode_snapshot(snapshot))
    bench.storage.write("branch/branch-b/schema/schema-0", bench.storage.read("schema/schema-0"))


def cleaned(bench: Bench) -> OrphanReport:
    bench.clock.advance(3 * 86_400_000)
    return remove_orphan_files(bench.table, timedelta(days=1), dry_run=False, runtime=bench.runtime)


def expired(bench: Bench) -> None:
    expire_snapshots(bench.table, 1, 1, timedelta(0), runtime=bench.runtime)


@pytest.mark.parametrize("keep", [tagged, branched])
def test_an_expired_changelog_stops_neither_orphans_nor_abort_nor_verify(keep) -> None:  # type: ignore[no-untyped-def]
    bench, second = a_table()
    keep(bench, second)
    expired(bench)
    assert not bench.storage.exists(manifest_path(str(second.changelog_manifest_list)))
    assert bench.names_of(second) == ["f0", "f1"]
    assert cleaned(bench).count == 0
    aborted = bench.message("never-committed")
    TableCommit(bench.table, "me", runtime=bench.runtime).abort([aborted])
    assert not bench.storage.exists("bucket-0/never-committed")
    codes = {one.code for one in verify(bench.table, sample=0).findings}
    assert not {
        code for code in codes if "list" in code or "manifest" in code or "changelog" in code
    }


def test_a_snapshot_restored_from_its_tag_needs_no_changelog() -> None:
    bench, second = a_table()
    tagged(bench, second)
    expired(bench)
    rollback_to(bench.table, "kept", runtime=bench.runtime)
    report = cleaned(bench)
    assert {"f0", "f1"}.isdisjoint(path.rpartition("/")[2] for path in report.paths)
    assert bench.live_names() == ["f0", "f1"]


def test_a_missing_changelog_of_a_snapshot_is_still_in_doubt() -> None:
    bench, second = a_table()
    bench.storage.delete(manifest_path(str(second.changelog_manifest_list)))
    with pytest.raises(CorruptMetadata, match="manifest-list"):
        cleaned(bench)


def test_an_expiry_of_a_branch_keeps_the_changelog_that_main_has() -> None:
    bench, second = a_table()
    branched(bench, second)
    branch = copy.copy(bench)
    branch.storage = branch_storage(bench.storage, "b")
    branch.table = replace(bench.table, storage=branch.storage)
    branch.snapshots = SnapshotStore(branch.storage, bench.runtime)
    for number in (10, 11):
        message = replace(bench.message(f"f{number}"), changelog_files=(bench.put(f"c{number}"),))
        branch.committer().commit(branch.request(number, [message]))
        bench.clock.advance(1000)
    expired(branch)
    assert branch.snapshots.ids() == [4]
    there = {one.name for one in bench.storage.list_files("bucket-0")}
    assert {"c0", "c1", "c2", "c3", "c11"} <= there and "c10" not in there
    assert bench.storage.exists(manifest_path(str(second.changelog_manifest_list)))
    assert [one for one in verify(bench.table, sample=0).findings if one.severity == "error"] == []
