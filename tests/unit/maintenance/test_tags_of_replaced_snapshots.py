"""Tags of snapshots that a writer without a lock has replaced: what they hide from expiry and from
the deletion of a tag, and what they need themselves.
"""

from __future__ import annotations

from typing import Any

import pytest

from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.tags import create_tag, delete_tag, read_tags
from tests.kits.commits import Bench

pytestmark = pytest.mark.bare


def replaced(bench: Bench, first: int) -> None:
    """Makes room for the snapshots of a writer that replaces all from the id `first` on."""
    for snapshot_id in reversed([one for one in bench.snapshots.ids() if one >= first]):
        bench.storage.delete(f"snapshot/snapshot-{snapshot_id}")
    bench.storage.write("snapshot/LATEST", str(first - 1).encode())


def appended(bench: Bench, *names: str, user: str = "java") -> None:
    for name in names:
        bench.committer().commit(bench.request(2**63 - 1, [bench.message(name)], user=user))


def overwritten(bench: Bench, user: str = "java") -> None:
    bench.committer().commit(bench.overwriting(2**63 - 1, user=user))


def tagged(bench: Bench, name: str) -> None:
    create_tag(bench.table, name, runtime=bench.runtime)


def expired(bench: Bench, retain: int = 1) -> None:
    expire_snapshots(
        bench.table, retain_max=retain, retain_min=1, protect_streams=False, runtime=bench.runtime
    )


def check_tags(bench: Bench) -> None:
    """Each file to which a tag refers exists."""
    metadata = bench.metadata_files()
    for name, tag in read_tags(bench.storage).items():
        assert {tag.base_manifest_list, tag.delta_manifest_list} <= metadata, name
        assert {meta.file_name for meta in bench.metas_of(tag)} <= metadata, name
        for file in bench.names_of(tag):
            assert bench.storage.exists(f"bucket-0/{file}"), f"{file} of tag {name}"


def with_replaced_tags(count: int, **options: Any) -> Bench:
    """A table with a tag "below", whose files were removed by as many tagged snapshots above it,
    which another writer has replaced.
    """
    bench = Bench(options={"manifest.merge-min-count": "3", **options})
    appended(bench, "f0", "f1", user="me")
    tagged(bench, "below")
    overwritten(bench, user="me")
    tagged(bench, "replaced-0")
    for number in range(1, count):
        appended(bench, f"lost-{number}", user="me")
        tagged(bench, f"replaced-{number}")
    replaced(bench, 3)
    return bench


@pytest.mark.parametrize("count", [2, 3, 7])
def test_an_expiry_leaves_what_a_tag_below_any_number_of_replaced_ones_needs(count: int) -> None:
    bench = with_replaced_tags(count)
    appended(bench, *(f"java-{number}" for number in range(count)))
    overwritten(bench)
    for number in range(3):
        appended(bench, f"later-{number}")
        expired(bench)
    assert bench.names_of(read_tags(bench.storage)["below"]) == ["f0", "f1"]
    check_tags(bench)
    assert not bench.storage.exists("bucket-0/java-0")


@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_deletion_of_a_tag_leaves_what_one_below_any_number_of_replaced_ones_needs(
    count: int,
) -> None:
    bench = with_replaced_tags(count)
    appended(bench, *(f"java-{number}" for number in range(count + 1)))
    tagged(bench, "above")
    overwritten(bench)
    appended(bench, "last")
    expired(bench)
    delete_tag(bench.table, "above", runtime=bench.runtime)
    check_tags(bench)
    assert not bench.storage.exists("bucket-0/java-1")


def test_an_expiry_leaves_what_the_tag_of_a_snapshot_needs_that_an_overwrite_replaced() -> None:
    """The overwrite has the id of the tagged snapshot, and removes what that one has."""
    bench = Bench()
    appended(bench, "f0", "f1", user="me")
    appended(bench, "f2", user="me")
    tagged(bench, "replaced")
    replaced(bench, 3)
    overwritten(bench)
    appended(bench, "java")
    expired(bench)
    assert bench.names_of(read_tags(bench.storage)["replaced"]) == ["f0", "f1", "f2"]
    check_tags(bench)


def test_an_expiry_leaves_what_a_tag_above_needs_whose_snapshot_was_replaced() -> None:
    """Two snapshots were replaced. The lower one of those in their place removes what the upper
    one of these has.
    """
    bench = Bench()
    appended(bench, "f0", "f1", "f2", "f3", user="me")
    tagged(bench, "replaced")
    replaced(bench, 3)
    overwritten(bench)
    appended(bench, "java-0", "java-1")
    expired(bench)
    check_tags(bench)


def test_the_deletion_of_a_replaced_tag_leaves_what_was_committed_again() -> None:
    """The snapshot that has the files of the tag again is not among the nearest ones."""
    bench = Bench()
    appended(bench, "f0", user="me")
    appended(bench, "f1", user="me")
    tagged(bench, "replaced")
    replaced(bench, 2)
    appended(bench, *(f"java-{number}" for number in range(6)))
    appended(bench, "f1", user="me")
    expired(bench, retain=5)
    assert bench.snapshots.ids() == [4, 5, 6, 7, 8]
    delete_tag(bench.table, "replaced", runtime=bench.runtime)
    assert bench.storage.exists("bucket-0/f1")


def test_an_expiry_leaves_what_a_replaced_tag_needs_that_was_committed_again_above_others() -> None:
    """Between the tag and the snapshot that has its files again, there are tags without them."""
    bench = Bench()
    appended(bench, "f0", "f1", user="me")
    tagged(bench, "replaced")
    replaced(bench, 2)
    for number in range(4):
        appended(bench, f"java-{number}")
        tagged(bench, f"java-{number}")
    appended(bench, "f1", user="me")
    overwritten(bench)
    appended(bench, "last")
    expired(bench)
    check_tags(bench)


def test_the_deletion_of_a_replaced_tag_leaves_what_a_later_changelog_has() -> None:
    """The rows of the tag were committed again and overwritten, and the snapshots have expired."""
    bench = Bench(
        options={
            "changelog.num-retained.min": "20",
            "changelog.num-retained.max": "20",
            "changelog.time-retained": "10 d",
        }
    )
    appended(bench, "f0", user="me")
    appended(bench, "f1", user="me")
    tagged(bench, "replaced")
    replaced(bench, 2)
    appended(bench, *(f"java-{number}" for number in range(6)))
    appended(bench, "f1", user="me")
    overwritten(bench)
    appended(bench, "last")
    expired(bench)
    assert bench.storage.exists("changelog/changelog-8")
    delete_tag(bench.table, "replaced", runtime=bench.runtime)
    assert bench.storage.exists("bucket-0/f1")
