"""The files of dead attempts, where commits have compactions, changelogs and indexes: no file is
removed that an attempt may still publish, or to which a snapshot refers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_stream.commit.report import Phase
from paimon_stream.commit.request import CommitRequest
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import DeletedFiles
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.stream.dead_attempts import (
    remove_dead_attempts,
    snapshots_of_batch,
)
from paimon_stream.table.journal import JournalEntry
from paimon_stream.table.journalled import live_files_of
from paimon_stream.table.message_files import data_files, written_files
from tests.kits.commits import Bench
from tests.kits.faults import Killed
from tests.kits.names import entry as named
from tests.kits.names import publish_as_others
from tests.unit.commit.test_publish import At, others

BATCH = 5


def whole(bench: Bench, prefix: str) -> CommitMessage:
    """A message with something in all its parts."""
    return replace(
        bench.message(f"{prefix}-new"),
        changelog_files=(bench.put(f"{prefix}-log"),),
        new_index_files=(bench.put_index(f"{prefix}-index"),),
        compact_before=(bench.put("other-0"),),
        compact_after=(bench.put(f"{prefix}-packed"),),
        compact_changelog_files=(bench.put(f"{prefix}-packed-log"),),
        compact_new_index_files=(bench.put_index(f"{prefix}-packed-index"),),
    )


def files(bench: Bench) -> set[str]:
    return {
        stat.name for folder in ("bucket-0", "index") for stat in bench.storage.list_files(folder)
    }


def everything(bench: Bench) -> set[str]:
    folders = [
        "bucket-0",
        "bucket-0/folder",
        "folder/bucket-0",
        "manifest",
        "snapshot",
        "schema",
        "_paimon_stream/me",
    ]
    return {stat.path for folder in folders for stat in bench.storage.list_files(folder)}


def entry(
    bench: Bench,
    request: CommitRequest,
    *,
    dead: CommitMessage,
    uuids: tuple[str, ...],
    judged: int = 1,
) -> JournalEntry:
    return JournalEntry(
        batch_id=BATCH,
        messages=request.messages,
        stage_uuids=uuids,
        abandoned=written_files(bench.table.layout, (dead,)),
        query_id=None,
        run_id=None,
        checkpoint=None,
        query_name=None,
        offsets_hash=None,
        schema_digest="",
        schema_id=0,
        total_buckets=-1,
        base=SnapshotRef.of(bench.snapshots.get(judged)),
        previous=None,
        prepared_millis=0,
    )


def remove(bench: Bench, journalled: JournalEntry, newest: Snapshot) -> None:
    found, complete = snapshots_of_batch(bench.snapshots, journalled, newest)
    remove_dead_attempts(bench.table, journalled, found, bench.runtime, complete=complete)


def test_all_files_of_both_halves_stay_and_only_what_a_dead_attempt_wrote_goes() -> None:
    bench = Bench()
    others(bench, 1)
    dead = whole(bench, "dead")
    request = bench.request(BATCH, [whole(bench, "mine")])
    bench.committer().commit(request)
    bench.storage.write("manifest/index-manifest-dead-0", b"staged")
    bench.storage.write("manifest/manifest-dead-0", b"staged")
    journalled = entry(bench, request, dead=dead, uuids=(request.stage_uuid, "dead"))
    present = files(bench)
    remove(bench, journalled, bench.latest())
    assert present - files(bench) == {"dead-new", "dead-log", "dead-index"}
    bench.audit(["mine-new", "mine-packed"], orphans=True)


@pytest.mark.parametrize(
    "newer", [True, False], ids=["its own entry", "the entry of a later attempt"]
)
def test_the_compaction_of_a_paused_attempt_can_still_be_published_after_the_cleaning(
    newer: bool,
) -> None:
    bench = Bench()
    others(bench, 1)
    request = bench.request(BATCH, [whole(bench, "mine")])
    later = replace(request, messages=(whole(bench, "later"),))
    own, other = (request, whole(bench, "dead")) if newer else (later, request.messages[0])
    uuids = (request.stage_uuid, "dead") if newer else ("later", request.stage_uuid)

    class CleanWhileTheCompactionIsStaged:
        staged = 0

        def reached(self, phase: Phase, identifier: int) -> None:
            self.staged += phase is Phase.STAGED
            if phase is Phase.STAGED and self.staged == 2:
                remove(bench, entry(bench, own, dead=other, uuids=uuids), bench.latest())

    bench.committer(observer=CleanWhileTheCompactionIsStaged()).commit(request)
    bench.audit(["mine-new", "mine-packed"])


@pytest.mark.parametrize(
    ("abandoned", "uuid"),
    [
        ("schema/schema-0", "dead"),
        ("snapshot/snapshot-1", "dead"),
        ("_paimon_stream/me/writer", "dead"),
        ("manifest/manifest-live", "dead"),
        ("bucket-0/folder/file", "dead"),
        ("folder/bucket-0/file", "dead"),
        ("../outside/file", "dead"),
        ("bucket-0/", "dead"),
        ("bucket-0/dead", "list"),
        ("bucket-0/dead", "../manifest-live"),
    ],
)
def test_a_tampered_entry_makes_the_clean_up_remove_only_files_of_attempts(
    abandoned: str, uuid: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    others(bench, 2)
    bench.expire(1)
    others(bench, 1, start=2)
    request = bench.request(BATCH, [bench.message("mine")])
    bench.committer().commit(request)
    for path in ("_paimon_stream/me/writer", "manifest/manifest-live", "bucket-0/folder/file"):
        bench.storage.write(path, b"kept")
    bench.storage.write("folder/bucket-0/file", b"kept")
    journalled = entry(
        bench, request, dead=bench.message("dead"), uuids=(request.stage_uuid, uuid), judged=3
    )
    present = everything(bench)
    remove(bench, replace(journalled, abandoned=(*journalled.abandoned, abandoned)), bench.latest())
    assert present - everything(bench) == {"bucket-0/dead"}
    assert (f"names {abandoned!r}" in caplog.text) == (abandoned != "bucket-0/dead")


def test_nothing_goes_where_the_first_half_has_expired() -> None:
    bench = Bench()
    others(bench, 1)
    request = bench.request(BATCH, [whole(bench, "mine")])
    bench.committer().commit(request)
    journalled = entry(
        bench, request, dead=whole(bench, "dead"), uuids=(request.stage_uuid, "dead")
    )
    bench.expire(2)
    assert snapshots_of_batch(bench.snapshots, journalled, bench.latest()) == ((), True)


def test_an_attempt_without_compaction_leaves_no_staged_metadata_when_it_was_killed_behind_the_put() -> (
    None
):
    bench = Bench()
    others(bench, 1)

    def kill() -> None:
        raise Killed

    request = bench.request(BATCH, [bench.message("mine")])
    with pytest.raises(Killed):
        bench.committer(observer=At(Phase.PUBLISHED, kill)).commit(request)
    bench.storage.write(f"manifest/manifest-{request.stage_uuid}-9", b"of a lost attempt before")
    remove(
        bench,
        entry(bench, request, dead=request.messages[0], uuids=(request.stage_uuid,)),
        bench.latest(),
    )
    bench.audit(["mine", "other-0"], orphans=True)


def test_a_file_that_a_compaction_moved_to_another_level_is_not_among_those_it_would_add() -> None:
    bench = Bench()
    moved = bench.put("live")
    message = replace(
        bench.message("new"),
        compact_before=(moved,),
        compact_after=(replace(moved, level=5), bench.put("made")),
    )
    assert data_files(bench.table.layout, (message,)) == ("bucket-0/new", "bucket-0/made")
    assert written_files(bench.table.layout, (message,)) == ("bucket-0/new",)


def test_abort_removes_what_all_parts_would_add_and_never_what_the_table_has() -> None:
    bench = Bench()
    others(bench, 1)
    commit = TableCommit(bench.table, "me", runtime=bench.runtime)
    assert commit.abort([whole(bench, "mine")]) == 6
    assert files(bench) == {"other-0"}
    published = whole(bench, "kept")
    commit.commit(1, [published])
    for part in ("changelog_files", "compact_after", "new_index_files"):
        one = replace(bench.message("fresh"), new_files=(), **{part: getattr(published, part)})
        with pytest.raises(DeletedFiles):
            commit.abort([one])


def test_live_files_are_found_beside_entries_that_have_no_path() -> None:
    bench = Bench()
    message = bench.message("ours")
    request = bench.request(BATCH, [message])
    bench.committer().commit(bench.request(1, [message], user="other"))
    found = bench.live()[0]
    latest = publish_as_others(bench, [named(FileKind.ADD, found, "../../x")])
    journalled = entry(bench, request, dead=replace(message, new_files=()), uuids=("u",))
    assert live_files_of(bench.table, latest, journalled) == 1
