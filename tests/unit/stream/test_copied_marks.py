"""Other engines copy the properties of our snapshots into their own: Java does so when it merges
all manifests, in `rollback_to_as_latest` and in `replaceManifestList`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.table_cache import MAX_SEQUENCE, recorded_number
from paimon_stream.errors import CommitLost
from paimon_stream.format.snapshot_json import (
    BATCH_IDENTIFIER,
    CommitKind,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
from paimon_stream.format.snapshot_marks import NONCE_MARK, Marks, is_ours, own_properties
from paimon_stream.maintenance.branches import create_branch
from paimon_stream.maintenance.tags import create_tag, read_tags
from paimon_stream.storage.branch import branch_storage
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.recommit import recommit
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.commits import Bench
from tests.kits.streams import Stream

COPIES = [
    (CommitKind.OVERWRITE, BATCH_IDENTIFIER),
    (CommitKind.COMPACT, BATCH_IDENTIFIER),
    (CommitKind.APPEND, 7),
]


def replaced_with_copied_marks(bench: Bench, kind: CommitKind, identifier: int) -> Snapshot:
    """Java publishes without a condition, with the properties of the snapshot below, over the
    newest one, which it has not seen.
    """
    mine, below = bench.latest(), bench.snapshots.get(bench.latest().id - 1)
    bench.storage.delete(snapshot_path(mine.id))
    request = bench.request(identifier, [bench.message("java")], user="uuid-of-java", seen=below)
    bench.committer().commit(request)
    copied = replace(bench.latest(), commit_kind=kind, properties=below.properties)
    bench.storage.write(snapshot_path(mine.id), encode_snapshot(copied))
    return copied


@pytest.mark.parametrize(("kind", "identifier"), COPIES)
@pytest.mark.parametrize("restarted", [True, False])
def test_a_snapshot_of_another_engine_with_copied_marks_is_reported_and_the_lost_batch_comes_back(
    kind: CommitKind, identifier: int, restarted: bool
) -> None:
    bench = Bench()
    stream = Stream(bench)
    stream.batches(3)
    copied = replaced_with_copied_marks(bench, kind, identifier)
    assert not is_ours(copied)
    if restarted:
        stream.writer = None
    with pytest.raises(CommitLost, match="'uuid-of-java'"):
        stream.batch()
    report = recommit(bench.table, "me", 2, dry_run=False, runtime=bench.runtime)
    assert (report.replaced, report.by) == (3, "uuid-of-java")
    stream.writer = None
    assert stream.batch().outcome == "committed"
    assert bench.live_names() == ["java", "me-0-1", "me-1-2", "me-2-3", "me-3-4"]


@pytest.mark.parametrize(("kind", "identifier"), COPIES)
def test_copied_marks_say_nothing_of_a_batch(kind: CommitKind, identifier: int) -> None:
    bench = Bench()
    Stream(bench).batches(3)
    copied = replaced_with_copied_marks(bench, kind, identifier)
    assert own_properties(copied) == {}
    assert BatchSummary.of(own_properties(copied)) == BatchSummary()
    assert Marks.of(own_properties(copied)).query_id is None


@pytest.mark.parametrize(
    ("kind", "identifier", "ours"),
    [
        (CommitKind.APPEND, 0, True),
        (CommitKind.COMPACT, 0, True),
        (CommitKind.OVERWRITE, BATCH_IDENTIFIER, True),
        (CommitKind.COMPACT, BATCH_IDENTIFIER, False),
    ],
)
def test_marks_of_earlier_releases_which_have_no_nonce_count_as_before(
    kind: CommitKind, identifier: int, ours: bool
) -> None:
    bench = Bench()
    Stream(bench).batch()
    older = {key: one for key, one in bench.latest().properties.items() if key != NONCE_MARK}
    changed = {"commit_kind": kind, "commit_identifier": identifier}
    snapshot = replace(bench.latest(), properties=older, **changed)  # type: ignore[arg-type]
    assert is_ours(snapshot) is ours
    assert (own_properties(snapshot) == older) is ours


def test_the_copies_of_a_snapshot_in_a_tag_and_in_a_branch_are_ours() -> None:
    bench = Bench()
    Stream(bench).batches(2)
    create_tag(bench.table, "kept", runtime=bench.runtime)
    create_branch(bench.table, "dev", "kept", runtime=bench.runtime)
    of_branch = SnapshotStore(branch_storage(bench.storage, "dev"), bench.runtime).latest()
    for copy in (read_tags(bench.storage)["kept"], of_branch):
        assert copy is not None and is_ours(copy)
        assert Marks.of(own_properties(copy)).query_id == "q1"


def test_a_sequence_number_that_was_copied_is_not_taken() -> None:
    bench = Bench()
    Stream(bench).batch()
    ours = replace(bench.latest(), properties={**bench.latest().properties, MAX_SEQUENCE: "7"})
    assert recorded_number(ours) == 7
    assert recorded_number(replace(ours, delta_manifest_list="manifest-list-of-java-1")) is None


def test_every_snapshot_of_a_stream_has_its_own_nonce_and_other_properties_are_left_alone() -> None:
    bench = Bench()
    Stream(bench).batches(2)
    for number in (1, 2):
        snapshot = bench.snapshots.get(number)
        assert snapshot.properties[NONCE_MARK] == snapshot.nonce
        assert decode_snapshot(encode_snapshot(snapshot), "s") == snapshot
    bench.committer().commit(
        bench.request(9, [bench.message("a")], user="other", properties={"x": "y"})
    )
    assert bench.latest().properties == {"x": "y"}
