"""Which snapshots are part of the lineage, and what the proof reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef, encode_snapshot
from paimon_stream.format.snapshot_marks import BASE_MARK, VERSION_MARK, names_as_base
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.lineage import Descent, in_lineage, published_after
from paimon_stream.table.snapshots import SnapshotStore, Window
from tests.kits.commits import Bench
from tests.kits.faults import FaultyStorage


def table_of(commits: int, foreign: Collection[int] = ()) -> Bench:
    """A table with that many snapshots. Those with the `foreign` ids are like another engine's:
    they have no properties.
    """
    bench = Bench()
    committer = bench.committer()
    for snapshot_id in range(1, commits + 1):
        properties = {} if snapshot_id in foreign else {VERSION_MARK: "1"}
        message = bench.message(f"file-{snapshot_id}")
        committer.commit(bench.request(snapshot_id, [message], properties=properties))
    return bench


def manifests_read_below(bench: Bench) -> int:
    """Walks down the whole lineage. Returns how many files in `manifest/` the proof has read."""
    storage = FaultyStorage(bench.storage)
    latest = bench.latest()
    descent = Descent(SnapshotStore(storage, bench.runtime), latest)
    assert [snapshot.id for snapshot in descent] == list(range(latest.id, 0, -1))
    before = len(storage.operations)
    assert descent.ends_in_lineage()
    after = storage.operations[before:]
    assert {path.partition("/")[0] for _, path in after} <= {"manifest", "snapshot"}
    return sum(path.startswith("manifest/") for _, path in storage.operations)


@pytest.mark.parametrize("commits", [1, 40, 160])
def test_the_proof_reads_no_manifest_where_each_snapshot_names_its_base(commits: int) -> None:
    assert manifests_read_below(table_of(commits)) == 0


def test_each_step_of_another_engine_takes_two_manifest_lists() -> None:
    alone = manifests_read_below(table_of(160, foreign={100}))
    # Where there are several, the two ends are looked at first. None of these merged manifests.
    assert (alone, manifests_read_below(table_of(160, foreign={65, 100, 140}))) == (2, 2 + 3 * 2)


def test_the_window_of_all_snapshots_takes_no_manifest_where_each_names_its_base() -> None:
    bench = table_of(40)
    storage = FaultyStorage(bench.storage)
    window = published_after(SnapshotStore(storage, bench.runtime), None, bench.latest())
    assert (len(window.snapshots), window.complete) == (40, True)
    assert [path for _, path in storage.operations if path.startswith("manifest/")] == []


def put_beside(bench: Bench, *snapshot_ids: int) -> None:
    """Puts snapshots of another history of the table, which name their bases, in the place of
    these. All below has expired.
    """
    sleeper = table_of(max(snapshot_ids))
    for snapshot_id in range(1, max(snapshot_ids) + 1):
        bench.storage.delete(snapshot_path(snapshot_id))
    for path in sleeper.storage.list_files("manifest"):
        bench.storage.write(path.path, sleeper.storage.read(path.path))
    for snapshot_id in snapshot_ids:
        path = snapshot_path(snapshot_id)
        bench.storage.write(path, sleeper.storage.read(path))
    bench.snapshots = SnapshotStore(bench.storage, bench.runtime)


def test_what_names_its_base_beside_the_lineage_is_not_part_of_it() -> None:
    bench = Bench(seed=1)
    committer = bench.committer()
    for identifier in range(6):
        message = bench.message(f"other-{identifier}")
        request = bench.request(identifier, [message], properties={VERSION_MARK: "1"})
        committer.commit(request)
    seen = SnapshotRef.of(bench.snapshots.get(2))
    put_beside(bench, 3, 4)
    snapshots = bench.snapshots
    latest = bench.latest()
    below = snapshots.get(3)
    assert names_as_base(snapshots.get(4), below), "the sleeper built one on the other"
    assert in_lineage(snapshots, below, latest) is False
    descent = Descent(snapshots, latest)
    assert [snapshot.id for snapshot in descent] == [6, 5, 4, 3], "nothing raises a doubt"
    assert descent.ends_in_lineage() is False
    part_of_table = (snapshots.get(5), latest)
    window = published_after(snapshots, seen, latest)
    assert window == Window(snapshots=part_of_table, complete=False)


def changed(snapshot: Snapshot, **values: object) -> Snapshot:
    return replace(snapshot, **values)  # type: ignore[arg-type]


def test_a_name_that_another_engine_has_copied_proves_nothing() -> None:
    bench = table_of(2)
    below = bench.snapshots.get(1)
    latest = bench.latest()
    assert latest.properties[BASE_MARK] == below.nonce
    assert names_as_base(latest, below)
    copied = changed(latest, delta_manifest_list="manifest-list-of-java-1")
    assert not names_as_base(copied, below)
    older = {key: value for key, value in latest.properties.items() if key == BASE_MARK}
    assert not names_as_base(changed(latest, properties=older), below)


def test_the_first_snapshot_names_no_base_even_if_the_request_has_one() -> None:
    bench = Bench()
    properties = {VERSION_MARK: "1", BASE_MARK: "manifest-list-of-a-lost-snapshot-1"}
    bench.committer().commit(bench.request(0, [bench.message("a")], properties=properties))
    assert BASE_MARK not in bench.latest().properties
    assert encode_snapshot(bench.latest()) == bench.snapshots.raw(1)
