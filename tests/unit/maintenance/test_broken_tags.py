"""A tag, or the pin of a rollback, that cannot be read: what is refused, what the errors advise,
and that the advice works.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from paimon_stream.api.inspection import statistics_of
from paimon_stream.errors import CommitContended, CorruptMetadata, FormatError, NotFound
from paimon_stream.maintenance.orphans import remove_orphan_files
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import create_tag, delete_tag, expire_tags, read_tags
from paimon_stream.storage.local import LocalStorage
from paimon_stream.verify.verifying import verify
from tests.kits.commits import Bench
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.maintained import Case, built, tried

BROKEN = {"empty": b"", "of another version": b'{"version": 9}', "cut": b'{"version" : 3, "id'}
WORKS: dict[str, Callable[[Case], object]] = {
    "expiry": lambda case: case.expire(),
    "rollback": lambda case: rollback_to(case.bench.table, 5, runtime=case.bench.runtime),
    "deletion of another tag": lambda case: delete_tag(
        case.bench.table, "kept", runtime=case.bench.runtime
    ),
    "orphan removal": lambda case: remove_orphan_files(
        case.bench.table, dry_run=False, runtime=case.bench.runtime
    ),
}


def with_broken_tag(content: bytes = b"") -> Case:
    """A table with a tag `kept` and a broken tag `bad`, both of snapshot 4."""
    case = Case.make()
    create_tag(case.bench.table, "bad", 4, runtime=case.bench.runtime)
    case.bench.storage.write("tag/tag-bad", content)
    return case


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_a_broken_tag_is_named_before_anything_is_changed_and_can_then_be_deleted(
    work: Callable[[Case], object], content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    case = with_broken_tag(content)
    before = case.files()
    with pytest.raises(
        FormatError, match=r"tag/tag-bad .*delete the tag 'bad' with delete_tag\(\)"
    ):
        work(case)
    assert case.files() == before
    with caplog.at_level(logging.WARNING):
        report = delete_tag(case.bench.table, "bad", runtime=case.bench.runtime)
    assert (report.found, report.unreadable, report.files, report.snapshot) == (
        True,
        True,
        {},
        None,
    )
    assert "only the file of tag 'bad' was deleted" in caplog.text
    assert case.files() == before - {"tag/tag-bad"}
    work(case)


def test_of_two_broken_tags_each_can_be_deleted() -> None:
    case = with_broken_tag()
    assert statistics_of(case.bench.table).tags == 2
    case.bench.storage.write("tag/tag-worse", b"{}")
    for name in ("bad", "worse"):
        assert delete_tag(case.bench.table, name, runtime=case.bench.runtime).unreadable
    assert set(read_tags(case.bench.storage)) == {"kept"}


def test_a_broken_tag_stays_when_tags_expire_even_if_its_time_is_over() -> None:
    case = with_broken_tag(b'{"tagCreateTime": [2001, 1, 1, 0, 0], "tagTimeRetained": 1}')
    assert expire_tags(case.bench.table, runtime=case.bench.runtime) == ()
    assert case.bench.storage.exists("tag/tag-bad")


def test_the_files_of_a_deleted_broken_tag_go_with_the_orphans() -> None:
    case = Case.make()
    bench = case.bench
    case.expire()  # only the tag keeps snapshot 4
    bench.storage.write("tag/tag-kept", b"")
    before = case.files()
    delete_tag(bench.table, "kept", runtime=bench.runtime)
    assert case.files() == before - {"tag/tag-kept"}
    bench.clock.advance(2 * 86_400_000)
    report = remove_orphan_files(bench.table, dry_run=False, runtime=bench.runtime)
    assert report.files == {
        "manifest": 4
    }  # the data file is named by a manifest of a later snapshot
    case.audit(bench.live_names())


def killed_rollback() -> Case:
    """A table with a rollback to snapshot 5 that was killed, and its pin."""
    case = Case.make()
    fault = Fault(at=1, verb="delete", path="snapshot/snapshot-6", moment=Moment.BEFORE, stop=True)
    storage = FaultyStorage(case.bench.storage, [fault])
    work = lambda: rollback_to(case.bench.on(storage), 5, runtime=case.bench.runtime)  # noqa: E731
    assert isinstance(tried(work), Killed)
    return case


def test_a_broken_tag_can_be_deleted_while_a_killed_rollback_waits() -> None:
    case = killed_rollback()
    bench = case.bench
    bench.storage.write("tag/tag-bad", b"")
    with pytest.raises(CorruptMetadata, match=r"delete the tag 'bad' with delete_tag\(\)"):
        rollback_to(bench.table, 5, runtime=bench.runtime)
    delete_tag(bench.table, "bad", runtime=bench.runtime)
    rollback_to(bench.table, 5, runtime=bench.runtime)
    assert bench.snapshots.ids() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_pin_refuses_all_that_deletes_until_a_rollback_takes_over(content: bytes) -> None:
    works = {**WORKS, "rollback to the newest": lambda case: rollback_to(case.bench.table, 6)}
    for work in works.values():
        case = killed_rollback()
        bench = case.bench
        (pin,) = read_pins(bench.storage)
        bench.storage.write(pin.path, content)
        before = case.files()
        with pytest.raises(CommitContended, match=rf"{pin.path} cannot be read.* with take_over"):
            work(case)
        assert case.files() == before
        (found,) = [one for one in verify(bench.table, sample=0).findings if one.path == pin.path][
            :1
        ]
        assert "take_over" in found.cure
        rollback_to(bench.table, 6, take_over=True, runtime=bench.runtime)
        assert (read_pins(bench.storage), bench.snapshots.ids()) == ([], [1, 2, 3, 4, 5, 6])
        if work is not works["rollback to the newest"]:
            work(case)


def test_the_command_deletes_a_broken_tag(tmp_path: object) -> None:
    storage = LocalStorage(str(tmp_path))
    for path, data in built().items():
        storage.write(path, data)
    storage.write("tag/tag-bad", b"")
    pytest.importorskip("rich", reason="needs the extra cli")
    from click.testing import CliRunner

    from paimon_stream.cli.app import cli

    run = CliRunner().invoke
    listed = run(cli, ["tag", "list", str(tmp_path)])
    assert listed.exit_code != 0
    assert "delete the tag 'bad' with `paimon-stream tag delete`" in listed.stderr
    shown = run(cli, ["tag", "delete", str(tmp_path), "bad"])
    assert "Tag bad cannot be read. Only its file would be deleted." in shown.stdout
    assert storage.exists("tag/tag-bad")
    deleted = run(cli, ["tag", "delete", "--yes", "--json", str(tmp_path), "bad"])
    assert json.loads(deleted.stdout)["unreadable"] is True
    assert run(cli, ["tag", "list", str(tmp_path)]).exit_code == 0


def with_lost_file(path: str) -> Case:
    """A table whose snapshot 4 has expired, and whose tag `kept` has lost one of its files."""
    case = Case.make()
    bench = case.bench
    case.expire()
    tag = read_tags(bench.storage)["kept"]
    lost = {"list": f"manifest/{tag.delta_manifest_list}", "data": "dt=a/bucket-0/f2"}[path]
    assert lost in case.files()
    bench.storage.delete(lost)
    return case


@pytest.mark.parametrize("path", ["list", "data"])
def test_a_rollback_to_a_tag_that_has_lost_files_is_refused_before_anything_is_changed(
    path: str,
) -> None:
    case = with_lost_file(path)
    before = case.files()
    for target in ("kept", 4):
        with pytest.raises(NotFound, match="snapshot 4 has expired and its tag has lost files"):
            rollback_to(case.bench.table, target, runtime=case.bench.runtime)
        assert case.files() == before


def test_what_a_tag_that_has_lost_files_stops_names_the_tag_and_its_deletion_helps() -> None:
    case = with_lost_file("list")
    bench = case.bench
    with pytest.raises(CorruptMetadata, match=r"tag 'kept' needs it.* delete the tag 'kept' with"):
        remove_orphan_files(bench.table, dry_run=False, runtime=bench.runtime)
    (found,) = [one for one in verify(bench.table, sample=0).findings if one.code == "list-missing"]
    assert (found.tags, "to delete them with delete_tag() helps" in found.cure) == (("kept",), True)
    assert not delete_tag(bench.table, "kept", runtime=bench.runtime).unreadable
    remove_orphan_files(bench.table, dry_run=False, runtime=bench.runtime)
    assert verify(bench.table, sample=0).healthy


@pytest.mark.parametrize("lost", ["base list", "delta list", "manifest"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_snapshot_that_cannot_be_read_is_no_target_although_it_stands(
    lost: str, dry_run: bool
) -> None:
    case = Case.make()
    bench = case.bench
    snapshot = bench.snapshots.get(5)
    gone = {
        "base list": snapshot.base_manifest_list,
        "delta list": snapshot.delta_manifest_list,
        "manifest": bench.manifests.base_and_delta(snapshot)[0].file_name,
    }
    bench.storage.delete(f"manifest/{gone[lost]}")
    before = case.files()
    with pytest.raises(NotFound, match=r"snapshot 5 cannot be read, .* Nothing was changed"):
        rollback_to(bench.table, 5, dry_run=dry_run, runtime=bench.runtime)
    assert case.files() == before


def test_a_snapshot_that_a_paused_writer_created_again_is_no_target_and_gets_no_tag() -> None:
    bench = Bench()
    for number in range(5):
        bench.committer().commit(bench.request(number, [bench.message(f"f{number}")]))
    content = bench.storage.read("snapshot/snapshot-5").replace(b'"id" : 5', b'"id" : 2')
    for number in (1, 2):
        bench.storage.delete(f"snapshot/snapshot-{number}")
    bench.storage.write("snapshot/snapshot-2", content)
    with pytest.raises(
        NotFound, match=r"snapshot 2 is not part of the table\. .* Nothing was changed"
    ):
        rollback_to(bench.table, 2, runtime=bench.runtime)
    storage = FaultyStorage(bench.storage)
    with pytest.raises(NotFound):
        rollback_to(bench.on(storage), 2, runtime=bench.runtime)
    # A pin, left by a kill, would vouch for the next try.
    assert not [one for one in storage.operations if one.verb == "write"]
    assert bench.snapshots.ids() == [2, 3, 4, 5]
    for gone in ((), (3,)):
        for number in gone:
            bench.storage.delete(f"snapshot/snapshot-{number}")
        with pytest.raises(
            NotFound, match=r"snapshot 2 is not part of the table\. .* Nothing was changed"
        ):
            create_tag(bench.table, "t", 2, runtime=bench.runtime)
    assert read_tags(bench.storage) == {}
