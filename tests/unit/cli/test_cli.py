"""The command line: every command for people and for programs, its exit codes, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("click", reason="the extra cli is not installed")
pytest.importorskip("rich", reason="the extra cli is not installed")

from click.testing import CliRunner, Result
from rich.console import Console

from docs.generators.cli import render
from paimon_stream import PaimonTable, errors
from paimon_stream.cli.app import COMMANDS, cli
from paimon_stream.cli.exits import MEANING, code_of
from paimon_stream.cli.output import CommandAnswer, Listing, show
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count, iso, jsonable, plain, ranges, size
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.runtime import system
from paimon_stream.storage.local import LocalStorage
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.table.removals import RemovalNotes, Removed
from paimon_stream.table.schema import SchemaStore
from tests.kits import waiting as kit
from tests.kits.commits import Bench
from tests.kits.params import one_in
from tests.kits.rivals import Replacing
from tests.kits.streams import Stream

ROOT = Path(__file__).parents[3]
Golden = Callable[[str], tuple[Path, dict[str, Any]]]

READING = [
    "snapshots",
    "files",
    "manifests",
    "partitions",
    "stats",
    "schema",
    "options",
    "query",
    "verify",
]
READING += ["tag list"]
CHANGING = {
    "expire": ["--retain-max", "1", "--older-than", "2100-01-01T00:00Z"],
    "tag delete": ["kept"],
    "rollback": ["2"],
    "truncate": [],
    "drop-partition": ["dt=2024-01-01,hr=0", "dt=2024-01-03"],
    "expire-partitions": ["--option", "partition.expiration-time=30 d"],
    "repair-hints": [],
    "orphans": [],
    "compact-manifests": [],
    "compact": ["--option", "compaction.min.file-num=2"],
}


def run(command: str, table: Path | str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*command.split(), str(table), *arguments])


def answer_of(command: str, table: Path | str, *arguments: str) -> dict[str, Any]:
    """The one JSON document of a command."""
    found: dict[str, Any] = json.loads(run(command, table, *arguments, "--json").stdout)
    return found


@pytest.fixture
def table(golden: Golden) -> Path:
    """A table that Java wrote, with a tag, an old orphan and a wrong hint."""
    path, _ = golden("append_partitioned")
    PaimonTable.load(str(path)).create_tag("kept", 1)
    (path / "snapshot" / "LATEST").write_text("2")
    orphan = path / "dt=2024-01-01" / "hr=0" / "bucket-0" / "data-nobodys-0.parquet"
    orphan.write_bytes(b"left by a killed task")
    os.utime(orphan, (1_700_000_000, 1_700_000_000))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()
    }


# -- reading
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_says_it_to_people_and_to_programs_and_changes_nothing(
    table: Path, command: str
) -> None:
    before = contents(table)
    human = run(command, table)
    document = answer_of(command, table)
    assert (human.exit_code, human.stderr) == (0, "")
    assert human.stdout.strip()
    assert not human.stdout.lstrip().startswith("{")
    assert document.pop("table") == str(table)
    assert document
    assert contents(table) == before


@pytest.mark.parametrize("command", READING)
def test_an_empty_table_is_no_error(tmp_path: Path, command: str) -> None:
    PaimonTable.create(str(tmp_path / "t"), schema=[("id", "INT")])
    result = run(command, tmp_path / "t")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.strip()
    assert answer_of(command, tmp_path / "t")["table"] == str(tmp_path / "t")


def test_snapshots_are_listed_newest_first_with_their_facts(table: Path) -> None:
    found = answer_of("snapshots", table)["snapshots"]
    assert [one["id"] for one in found] == [3, 2, 1]
    newest = found[0]
    assert (newest["kind"], newest["user"], newest["batch"]) == ("APPEND", "golden", 3)
    assert (newest["delta_records"], newest["total_records"]) == (12, 36)
    assert newest["time"] == iso(newest["time_millis"])
    assert len(answer_of("snapshots", table, "--limit", "2")["snapshots"]) == 2
    assert answer_of("snapshots", table, "--user", "nobody")["snapshots"] == []


def test_a_damaged_snapshot_is_named_and_the_others_are_listed(table: Path) -> None:
    (table / "snapshot" / "snapshot-2").write_bytes(b"")
    result = run("snapshots", table, "--json")
    assert result.exit_code == 4
    assert "snapshot-2" in result.stderr
    document = json.loads(result.stdout)
    assert ([one["id"] for one in document["snapshots"]], document["damaged"]) == ([3, 1], [2])


def test_files_partitions_and_stats_agree(table: Path) -> None:
    files, partitions = (
        answer_of("files", table)["files"],
        answer_of("partitions", table)["partitions"],
    )
    stats = answer_of("stats", table)
    assert len(files) == sum(one["files"] for one in partitions) == stats["files"] == 12
    assert sum(one["rows"] for one in files) == stats["rows"] == 36
    assert sum(one["bytes"] for one in files) == stats["bytes"]
    assert all(Path(one["path"]).is_file() for one in files)
    assert partitions[0]["partition"] == {"dt": "2024-01-01", "hr": 0}
    assert partitions[0]["path"] == "dt=2024-01-01/hr=0"
    assert (stats["snapshots"], stats["tags"]) == ({"count": 3, "earliest": 1, "latest": 3}, 1)
    assert len(answer_of("files", table, "--snapshot", "1")["files"]) == 3
    assert "dt=2024-01-01, hr=0" in run("partitions", table).stdout


def test_manifests_are_those_of_both_lists(table: Path) -> None:
    found = answer_of("manifests", table)["manifests"]
    assert [(one["list"], one["added_files"]) for one in found] == [
        ("base", 3),
        ("base", 6),
        ("delta", 3),
    ]
    assert all((table / "manifest" / one["name"]).stat().st_size == one["bytes"] for one in found)


def test_schemas_of_any_time_are_shown(golden: Golden) -> None:
    path, _ = golden("evolved")
    newest, first = answer_of("schema", path), answer_of("schema", path, "--id", "0")
    assert (first["id"], newest["id"], newest["ids"][0]) == (0, newest["ids"][-1], 0)
    assert first["columns"] != newest["columns"]
    assert set(first["columns"][0]) == {"id", "name", "type", "nullable", "description"}
    assert run("schema", path, "--id", "99").exit_code == 3


def test_options_are_those_that_are_set_or_all(tmp_path: Path) -> None:
    location = tmp_path / "t"
    PaimonTable.create(
        str(location), schema=[("id", "INT")], options={"file.format": "orc", "x": "y"}
    )
    own = {one["key"]: one for one in answer_of("options", location)["options"]}
    assert set(own) == {"file.format", "x"}
    assert (own["file.format"]["value"], own["file.format"]["default"]) == ("orc", "parquet")
    assert not own["x"]["known"]
    everything = {one["key"]: one for one in answer_of("options", location, "--all")["options"]}
    assert everything["bucket"]["value"] == "-1"
    assert not everything["bucket"]["set"]


def test_rows_of_a_table_with_a_primary_key_are_said_to_be_those_of_its_files(
    tmp_path: Path,
) -> None:
    location = tmp_path / "t"
    keyed = PaimonTable.create(
        str(location),
        schema=[("id", "INT"), ("v", "INT")],
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true"},
    )
    for value in (1, 2):
        keyed.append(
            pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([value], pa.int32())})
        )
    assert "2 in files, before they are merged by key" in run("stats", location).stdout
    assert answer_of("stats", location)["primary_keys"] == ["id"]


def test_an_overwrite_says_how_many_rows_it_wrote_and_by_how_many_the_table_changed(
    tmp_path: Path,
) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), schema=[("id", "INT")])
    for write in (table.append, table.overwrite):
        write(pa.table({"id": pa.array([1, 2, 3], pa.int32())}))
    newest, oldest = answer_of("snapshots", tmp_path / "t")["snapshots"]
    assert [(one["rows"], one["delta_records"]) for one in (oldest, newest)] == [(3, 3), (3, 0)]
    lines = run("snapshots", tmp_path / "t", "--columns", "kind,rows,change").stdout.splitlines()
    assert [line.split() for line in lines if "3" in line] == [
        ["OVERWRITE", "3", "+0"],
        ["APPEND", "3", "+3"],
    ]


def test_query_lists_who_writes_here(table: Path) -> None:
    marks = {
        "paimon-stream.query-id": "q1",
        "paimon-stream.run-id": "r",
        "paimon-stream.checkpoint": "/ck",
    }
    empty = {"commit.force-create-snapshot": "true"}
    location = table.parent / "streamed"
    PaimonTable.create(str(location), schema=[("id", "INT")], options=empty)
    commit = PaimonTable.load(str(location)).new_commit("etl")
    for batch in (0, 1, 4, 7):
        commit.commit(batch, [], watermark=5, properties=marks)
    assert answer_of("query", location)["writers"][0]["last_rows"] is None
    summary = BatchSummary(
        files=2, rows=1234, bytes=4096, partitions=1, buckets=1, write_millis=2500
    )
    commit.commit(8, [], properties={**marks, **summary.properties()})
    shown = run("query", location).stdout
    assert all(text in shown for text in ("1,234", "4.0 KiB", "2.5 s"))
    (one,) = answer_of("query", location)["writers"]
    names = ("files", "rows", "bytes", "partitions", "buckets", "write_millis")
    assert [one[f"last_{name}"] for name in names] == [2, 1234, 4096, 1, 1, 2500]
    assert (one["user"], one["query_id"], one["checkpoint"], one["runs"]) == ("etl", "q1", "/ck", 1)
    assert (one["first_batch"], one["last_batch"], one["gaps"]) == (0, 8, [[2, 3], [5, 6]])
    assert (one["last_snapshot"], one["batches"], one["watermark"], one["stream"]) == (
        5,
        5,
        5,
        False,
    )
    assert "2-3, 5-6" in run("query", location).stdout


def test_files_of_some_partitions_are_listed(table: Path) -> None:
    everything = answer_of("files", table)["files"]
    some = answer_of("files", table, "--partition", "dt=2024-01-01,hr=0")["files"]
    assert some == [one for one in everything if one["partition"] == {"dt": "2024-01-01", "hr": 0}]
    day = answer_of("files", table, "--partition", "dt=2024-01-01")["files"]
    assert 0 < len(some) < len(day) < len(everything)
    assert run("files", table, "--partition", "2024-01-01").exit_code == 2
    assert run("files", table, "--partition", "nope=1").exit_code == code_of(
        errors.IncompatibleSchema("no")
    )


# -- changing
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", CHANGING)
def test_what_changes_something_is_shown_first_and_done_with_yes(table: Path, command: str) -> None:
    before = contents(table)
    arguments = CHANGING[command]
    dry = run(command, table, *arguments)
    assert (dry.exit_code, dry.stderr) == (5, ""), dry.stdout
    assert "--yes" in dry.stdout
    document = answer_of(command, table, *arguments)
    assert document["dry_run"] is True
    assert contents(table) == before
    done = run(command, table, *arguments, "--yes", "--json")
    assert done.exit_code == 0, done.output
    changed = json.loads(done.stdout)
    assert changed["dry_run"] is False
    assert set(changed) == set(document)
    assert contents(table) != before
    assert run("verify", table).exit_code == 0


def test_what_has_nothing_to_do_ends_well_without_yes(tmp_path: Path) -> None:
    location = tmp_path / "t"
    PaimonTable.create(
        str(location), schema=[("id", "INT"), ("dt", "STRING")], partition_keys=["dt"]
    )
    for command, arguments in CHANGING.items():
        if command not in ("tag delete", "rollback", "drop-partition"):
            assert run(command, location, *arguments).exit_code == 0, command
    assert run("drop-partition", location, "dt=x").exit_code == 0


def test_tags_are_made_listed_and_used(table: Path) -> None:
    assert run("tag create", table, "month end", "--snapshot", "2").exit_code == 0
    assert run("tag create", table, "for-a-while", "--time-retained", "90 d").exit_code == 0
    listed = {one["name"]: one["snapshot"]["id"] for one in answer_of("tag list", table)["tags"]}
    assert listed == {"kept": 1, "month end": 2, "for-a-while": 3}
    assert run("tag create", table, "kept").exit_code == 4
    assert run("rollback", table, "kept", "--yes").exit_code == 0
    assert answer_of("stats", table)["snapshots"]["latest"] == 1


def test_a_rollback_that_takes_only_a_tag_says_so(table: Path) -> None:
    """Another engine has rolled the table back, and kept the tag of a later snapshot."""
    assert run("tag create", table, "later", "--snapshot", "3").exit_code == 0
    (table / "snapshot" / "snapshot-3").unlink()
    (table / "snapshot" / "LATEST").write_text("2")
    before = contents(table)
    planned = run("rollback", table, "2")
    assert "1 tag would be removed: later." in planned.stdout
    assert "--yes" in planned.stdout
    assert contents(table) == before
    assert "1 tag removed: later." in run("rollback", table, "2", "--yes").stdout


def test_manifests_are_merged_into_a_snapshot_of_their_own(table: Path) -> None:
    assert "3 manifests" in run("compact-manifests", table).stdout
    document = answer_of("compact-manifests", table, "--yes")
    assert (document["manifests_before"], document["manifests_after"]) == (3, 1)
    assert answer_of("snapshots", table)["snapshots"][0]["id"] == document["snapshot_id"] == 4
    assert "nothing to merge" in run("compact-manifests", table).stdout


def test_small_files_of_the_named_partitions_become_one(golden: Golden) -> None:
    path, _ = golden("compaction/append_remainder")
    shown = run("compact", path)
    assert (shown.exit_code, "11 files" in shown.stdout) == (5, True)
    assert run("compact", path, "--partition", "p=b").stdout == "There is nothing to compact.\n"
    document = answer_of("compact", path, "--partition", "p=a", "--yes")
    assert (document["files_before"], document["files_after"], document["rows_after"]) == (6, 1, 6)
    assert [one["partition"] for one in document["buckets"]] == [{"p": "a"}]
    assert answer_of("snapshots", path)["snapshots"][0]["id"] == document["snapshot_id"]
    assert run("compact", path, "--option", "bucket=2").exit_code == 1
    assert run("compact", path, "--option", "bucket").exit_code == 2


def test_a_compaction_of_a_table_with_a_primary_key_says_what_only_moves(golden: Golden) -> None:
    path, _ = golden("compaction/pk_upgrade")
    shown = run("compact", path, "--full", "--option", "target-file-size=1 kb").stdout
    assert "1 file (" in shown and "would become about" in shown
    assert "2 files would move to a higher level as they are." in shown
    done = run("compact", path, "--full", "--option", "target-file-size=1 kb", "--yes").stdout
    assert "2 files moved to a higher level as they are, in snapshot " in done
    assert run("compact", path, "--full").stdout == "There is nothing to compact.\n"


def test_stats_say_what_needs_a_compaction_what_it_gains_and_how_to_start_it(
    golden: Golden,
) -> None:
    path, _ = golden("compaction/append_remainder")
    shown = run("stats", path).stdout
    assert re.search(r"to compact +11 files \([\d.]+ KiB\) into about 2, in 2 buckets\n", shown)
    assert re.search(r"p=a +0 +6 +6 +[\d.]+ KiB +6 +1\n", shown)
    assert (
        f"opens 5.5 files where one would do. Start the compaction: paimon-stream compact --yes {path}\n"
        in shown
    )
    found = answer_of("stats", path)["to_compact"]
    assert (found["files_before"], found["files_after"], found["read_amplification"]) == (
        11,
        2,
        5.5,
    )
    assert [(one["reads_before"], one["reads_after"]) for one in found["buckets"]] == [
        (6, 1),
        (5, 1),
    ]
    assert run(*shlex.split(found["command"])[1:]).exit_code == 0
    assert answer_of("stats", path)["to_compact"]["command"] is None
    path, _ = golden("compaction/append_bucketed")
    assert f": paimon-stream compact --full --yes {path}\n" in run("stats", path).stdout
    path, _ = golden("compaction/pk_deletes")
    shown = run("stats", path).stdout
    assert "merges a key's rows of 5.0 files where one would do" in shown
    path, _ = golden("compaction/pk_upgrade")
    assert answer_of("stats", path)["to_compact"]["files_before"] == 0
    assert "to compact  nothing\n" in re.sub(" {3,}", "  ", run("stats", path).stdout)
    alter(Path(path), "chain-table.enabled", "true")
    assert answer_of("stats", path)["to_compact"] is None


def alter(path: Path, key: str, value: str) -> None:
    """Sets an option of the table, as another engine does."""
    schema = path / "schema" / "schema-0"
    known = json.loads(schema.read_text())
    schema.write_text(json.dumps({**known, "options": {**known["options"], key: value}}))


def test_rows_that_wait_are_shown_with_the_command_that_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "t"
    kit.postponed(path)
    kit.write(path, [("a", 1, "x"), ("b", 1, "x")])
    for command in ("stats", "doctor"):
        shown = run(command, path).stdout
        assert "no reader sees them before a compaction. Start the compaction: " in shown
        assert "-2" in shown
    assert "bucket-postpone" in run("files", path, "--json").stdout
    assert run("compact", path, "--yes", "--option", "postpone.default-bucket-num=3").exit_code == 0
    assert {one.total_buckets for one in kit.files(path)} == {3}
    assert "to compact  nothing" in run("stats", path).stdout


def test_the_doctor_says_what_needs_a_compaction(golden: Golden) -> None:
    path, _ = golden("compaction/append_remainder")
    shown = run("doctor", path)
    assert "To compact: 11 files" in shown.stdout
    assert f"Start the compaction: paimon-stream compact --yes {path}\n" in shown.stdout
    assert answer_of("doctor", path)["to_compact"]["files_before"] == 11
    assert run("compact", path, "--yes").exit_code == 0
    assert "To compact" not in run("doctor", path).stdout
    (Path(path) / "snapshot" / "LATEST").unlink()
    next((Path(path) / "manifest").glob("manifest-list*-1")).unlink()
    assert "To compact" not in run("doctor", path).stdout


def test_a_dry_run_of_a_compaction_can_be_asked_for(golden: Golden) -> None:
    path, _ = golden("compaction/append_remainder")
    shown = run("compact", path, "--dry-run")
    assert (shown.exit_code, "would become about 2" in shown.stdout) == (5, True)
    assert run("compact", path, "--dry-run", "--yes").exit_code == 2


@pytest.mark.parametrize(
    "given",
    [
        ["--order-strategy", "zorder"],
        ["--order_by", "k"],
        ["--option", "sort-compaction.range-strategy=SIZE"],
    ],
)
def test_a_sorting_compaction_is_refused_by_name(golden: Golden, given: list[str]) -> None:
    path, _ = golden("compaction/append_remainder")
    refused = run("compact", path, "--yes", *given)
    assert refused.exit_code == 1
    assert "a compaction that sorts rows" in refused.stderr
    assert re.search("order[-_](strategy|by)|sort-compaction.range-strategy", refused.stderr)


def test_doctor_and_verify_end_with_1_where_something_is_wrong(table: Path) -> None:
    checkpoint = table.parent / "checkpoint"
    checkpoint.mkdir()
    empty = answer_of("doctor", table, "--checkpoint", str(checkpoint))
    assert (empty["safe"], empty["streams"][0]["verdict"]) == (False, "fresh")
    (checkpoint / "metadata").write_text('{"id":"q"}')
    assert run("doctor", table, "--checkpoint", str(checkpoint)).exit_code == 0
    again = run("doctor", table, "--checkpoint", str(checkpoint), "--user", "golden", "--json")
    assert again.exit_code == 1
    (stream,) = json.loads(again.stdout)["streams"]
    assert stream["verdict"] == "CheckpointReset"
    assert (
        "What to do"
        in run("doctor", table, "--checkpoint", str(checkpoint), "--user", "golden").stdout
    )
    file = answer_of("files", table)["files"][0]["path"]
    Path(file).unlink()
    assert run("verify", table).exit_code == 1
    assert not answer_of("verify", table)["healthy"]


def test_doctor_shows_what_a_rollback_took_and_other_commit_users_of_the_query(
    table: Path,
) -> None:
    checkpoint = table.parent / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q"}')
    storage = LocalStorage(str(table))
    for user in ("paimon-stream_q_a", "paimon-stream_q_b"):
        identity = WriterIdentity(user=user, query_id="q", run_id="r", token="t")
        Claims(storage, identity).register(SchemaStore(storage).first_digest(), None)
    gone = Removed(
        snapshot=SnapshotRef(id=9, nonce="n"), user="paimon-stream_q_a", identifier=4, millis=0
    )
    notes = RemovalNotes(storage, system(), "rollback", SnapshotRef(id=2, nonce="m"))
    assert notes.announce([gone])
    notes.complete()
    given = ("--checkpoint", str(checkpoint), "--name", "a")
    shown = " ".join(run("doctor", table, *given).stdout.split())
    assert "also the query writes here as paimon-stream_q_b" in shown
    text = "A rollback to snapshot 2 has removed batch 4 of this stream (snapshot 9) at"
    assert f"Earlier: {text}" in shown
    (stream,) = answer_of("doctor", table, *given)["streams"]
    assert stream["other_users"] == ["paimon-stream_q_b"]
    assert stream["history"][0].startswith(text)


def test_doctor_without_a_stream_to_judge_is_not_safe(table: Path) -> None:
    before = contents(table)
    result = run("doctor", table)
    assert result.exit_code == 1
    assert "none was judged" in result.stdout
    answer = answer_of("doctor", table)
    assert answer.pop("to_compact")["files_before"] == 0
    assert answer.pop("trial")["failures"] == []
    assert answer == {"table": str(table), "safe": False, "streams": [], "left_behind": []}
    assert contents(table) == before


def test_doctor_names_what_killed_commands_have_left_and_the_command_that_ends_each(
    table: Path,
) -> None:
    pin = table / "tag" / "tag-paimon-stream-rollback-2-0123abcd"
    pin.parent.mkdir(exist_ok=True)
    shutil.copyfile(table / "snapshot" / "snapshot-2", pin)
    note = table / "_paimon_stream" / "expiring.1"
    note.parent.mkdir(exist_ok=True)
    note.write_text("{}")
    young = table / "_paimon_stream" / "expiring.2"  # it may be at work now
    young.write_text("{}")
    bad = table / "tag" / "tag-bad"
    bad.write_text("{}")
    now = time.time()
    for path, hours in ((pin, 3), (note, 72), (bad, -1)):
        os.utime(path, (now - hours * 3600 - 30, now - hours * 3600 - 30))
    left = answer_of("doctor", table)["left_behind"]
    assert [one.partition(")")[0] for one in left] == [
        "tag/tag-paimon-stream-rollback-2-0123abcd (3 hours old",
        "_paimon_stream/expiring.1 (3 days old",
        "tag/tag-bad (its time is in the future",
    ]
    shown = run("doctor", table).stdout
    for advice in (
        "roll back to snapshot 2 again",
        "`paimon-stream expire` finishes it",
        "delete the tag 'bad' with `paimon-stream tag delete`",
    ):
        assert advice in " ".join(shown.split())
    young.unlink()
    assert run("tag delete", table, "bad", "--yes").exit_code == 0
    assert run("rollback", table, "2", "--yes").exit_code == 0
    assert run("expire", table, "--yes").exit_code == 0
    assert answer_of("doctor", table)["left_behind"] == []


# -- what goes wrong
# ----------------------------------------------------------------------------------


def every_command() -> Iterator[tuple[str, list[str]]]:
    yield from ((command, []) for command in (*READING, "doctor"))
    yield from CHANGING.items()
    yield "tag create", ["name"]


@pytest.mark.parametrize(
    ("command", "arguments"), list(every_command()), ids=lambda given: str(given)
)
def test_a_missing_table_is_one_line_and_3(
    tmp_path: Path, command: str, arguments: list[str]
) -> None:
    result = run(command, tmp_path / "nothing", *arguments, "--json")
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith("paimon-stream: NotFound: There is no Paimon table at")
    error = json.loads(result.stdout)["error"]
    assert (error["type"], error["exit_code"]) == ("NotFound", 3)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("command", "arguments"),
    one_in(
        9,
        [
            (command, arguments)
            for command, arguments in every_command()
            if command
            not in (
                "snapshots",
                "verify",
                "schema",
                "options",
                "tag list",
                "tag delete",
                "repair-hints",
            )
        ],
    ),
    ids=lambda given: str(given),
)
def test_a_broken_table_is_one_line_and_changes_nothing(
    table: Path, command: str, arguments: list[str]
) -> None:
    for one in (2, 3):
        (table / "snapshot" / f"snapshot-{one}").write_text("{")
    before = contents(table)
    result = run(command, table, *arguments, "--json")
    if command == "doctor":
        assert result.exit_code == 1  # nobody's stream, and none was judged
    else:
        assert result.exit_code == 4, result.output
        (line,) = result.stderr.splitlines()
        assert "CorruptMetadata" in line
        assert json.loads(result.stdout)["error"]["type"] == "CorruptMetadata"
    assert contents(table) == before


def test_verify_finds_what_is_broken_instead_of_failing(table: Path) -> None:
    (table / "snapshot" / "snapshot-2").write_text("{")
    result = run("verify", table, "--json")
    assert result.exit_code == 1
    assert any(
        one["path"] == "snapshot/snapshot-2" for one in json.loads(result.stdout)["findings"]
    )


def test_the_json_of_verify_has_the_columns_of_its_listing_and_is_that_of_the_report(
    table: Path,
) -> None:
    loaded = PaimonTable.load(str(table))
    for file in loaded.files():
        Path(file.path).unlink()
    document = json.loads(run("verify", table, "--json").stdout)
    assert document["findings"][0]["snapshots"]
    report = json.loads(json.dumps(loaded.verify().to_json()))
    assert (list(document), document["findings"]) == (list(report), report["findings"])
    shown = run("verify", table, "--columns", "file,snapshots,tags").stdout.splitlines()[0]
    assert shown.split() == ["file", "snapshots", "tags"]


def test_the_json_of_orphans_has_the_columns_of_its_listing_and_is_that_of_the_report(
    table: Path,
) -> None:
    litter = table / "manifest" / "manifest-litter"
    litter.write_text("litter")
    os.utime(litter, (0, 0))
    document = json.loads(run("orphans", table, "--json").stdout)
    assert (document["files"]["manifest"], document["sizes"]["manifest"]) == (1, 6)
    report = json.loads(json.dumps(PaimonTable.load(str(table)).remove_orphan_files().to_json()))
    assert document | {"cutoff_millis": 0} == report | {"cutoff_millis": 0}
    assert list(document) == list(report)


def test_orphans_names_the_links_that_it_left(table: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (table / "index").symlink_to(tmp_path / "outside")
    assert (
        "Links and folders that Paimon did not name were left: index."
        in run("orphans", table).stdout
    )
    assert json.loads(run("orphans", table, "--json").stdout)["skipped"] == ["index"]


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may read and write everything, so the process gives up root's rights for a while."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@pytest.fixture
def open_table(table: Path) -> Iterator[Path]:
    """The table in a folder that everybody may look into."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copytree(table, Path(folder) / "t"))
        for one in Path(folder).rglob("*"):
            one.chmod(0o755)


def test_a_table_that_may_not_be_written_is_read_and_refused(open_table: Path) -> None:
    (open_table / "snapshot").chmod(0o555)
    with without_rights():
        assert run("snapshots", open_table).exit_code == 0
        refused = run("truncate", open_table, "--yes")
    assert refused.exit_code == 4
    assert "PermissionDenied" in refused.stderr


@pytest.mark.parametrize("closed", [".", "schema", "snapshot", "manifest"])
def test_a_table_that_may_not_be_read_is_one_line_and_4(open_table: Path, closed: str) -> None:
    (open_table / closed).chmod(0o000)
    with without_rights():
        refused = run("stats", open_table)
    (line,) = refused.stderr.splitlines()
    assert (refused.exit_code, refused.stdout) == (4, ""), line
    assert "PermissionDenied" in line
    assert str(open_table / closed) in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["files"],
        ["files", "t", "--snapshot", "0"],
        ["files", "t", "--snapshot", "x"],
        ["files", "t", "u"],
        ["snapshots", "t", "--nonsense"],
        ["snapshots", "t", "--storage-option", "nonsense"],
        ["expire", "t", "--older-than", "soon"],
        ["tag"],
        ["tag", "create", "t"],
        ["tag", "create", "t", "n", "--time-retained", "soon"],
        ["drop-partition", "t"],
        ["doctor", "t", "--user", "u", "--name", "n"],
    ],
)
def test_a_wrong_command_line_is_2_and_says_why(tmp_path: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, [str(tmp_path) if one == "t" else one for one in arguments])
    assert result.exit_code == 2
    assert "Usage:" in result.stderr
    assert result.stdout == ""


def test_what_the_table_refuses_is_1_or_3(table: Path) -> None:
    assert run("files", table, "--snapshot", "9").exit_code == 3
    assert run("rollback", table, "9").exit_code == 3
    assert run("tag delete", table, "nobody").exit_code == 3
    assert run("orphans", table, "--older-than", "1 min").exit_code == 1
    assert run("expire", table, "--retain-max", "1", "--retain-min", "2").exit_code == 1
    assert run("drop-partition", table, "nonsense=1").exit_code == 1
    assert run("snapshots", table, "--storage-option", "secret=hunter2").exit_code == 1
    assert "hunter2" not in run("snapshots", table, "--storage-option", "secret=hunter2").output


def test_storage_options_can_be_read_from_files(table: Path, tmp_path: Path) -> None:
    (tmp_path / "value").write_text("true\n")
    option = "paimon-stream.unsafe-single-writer"
    assert (
        run("snapshots", table, "--storage-option", f"{option}=@{tmp_path / 'value'}").exit_code
        == 0
    )
    (tmp_path / "value").write_text("hunter2")
    refused = run("snapshots", table, "--storage-option", f"s3.secret-key=@{tmp_path / 'value'}")
    assert refused.exit_code == 1
    assert "hunter2" not in refused.output
    missing = run("snapshots", table, "--storage-option", f"{option}=@{tmp_path / 'none'}")
    assert missing.exit_code == 2
    assert "FileNotFoundError" in missing.output
    doubled = run("snapshots", table, "--storage-option", f"{option}=@@x")
    assert doubled.exit_code == 1
    assert "'@x'" in doubled.output


def test_credentials_in_a_location_or_in_a_tables_options_are_not_shown(table: Path) -> None:
    answer = run("snapshots", "s3://id:hunter2@bucket/t", "--json", "--debug")
    assert answer.exit_code == 1
    assert "hunter2" not in answer.output
    schema = table / "schema" / "schema-0"
    stored = json.loads(schema.read_text())
    stored["options"]["fs.s3a.secret.key"] = "hunter2"
    schema.write_text(json.dumps(stored))
    listed = run("options", table)
    assert listed.exit_code == 0
    assert "fs.s3a.secret.key" in listed.output
    assert "hunter2" not in listed.output


@pytest.mark.parametrize("command", [name for name, _ in every_command()])
def test_a_file_is_no_table(tmp_path: Path, command: str) -> None:
    file = tmp_path / "orders"
    file.write_text("x")
    result = run(command, file, *CHANGING.get(command, ["name"] if command == "tag create" else []))
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert f"{file} is a file." in line


def test_a_warehouse_names_its_tables_once(table: Path) -> None:
    (line,) = run("stats", table.parent.parent).stderr.splitlines()
    assert line.count(str(table)) == 1
    assert (
        len(
            json.loads(run("stats", table.parent.parent, "--json").stdout)["error"]["facts"][
                "tables"
            ]
        )
        == 1
    )


def test_a_mistyped_command_names_the_near_one() -> None:
    result = CliRunner().invoke(cli, ["snapshot", "t"])
    assert result.exit_code == 2
    assert "Did you mean 'snapshots'?" in result.stderr


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    assert "Traceback" not in run("stats", tmp_path).stderr
    assert "Traceback" in run("stats", tmp_path, "--debug").stderr


def test_a_defect_is_a_line_and_a_code_of_its_own(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(LocalStorage, "list_names", broken)
    result = run("snapshots", table)
    assert result.exit_code == 70
    assert result.stderr.startswith("paimon-stream: unexpected RuntimeError: boom.")
    assert len(result.stderr.splitlines()) == 1


def test_ctrl_c_is_a_line_and_130(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStorage, "read", interrupted)
    for command in READING:
        result = run(command, table)
        assert (result.exit_code, result.stdout) == (130, ""), command
        assert result.stderr.startswith("paimon-stream: interrupted.")
        assert len(result.stderr.splitlines()) == 1


def test_every_error_has_a_code_that_is_documented() -> None:
    for name in errors.__all__:
        assert code_of(getattr(errors, name)("text")) in MEANING
    assert code_of(errors.NotFound("x", table="t")) == 3
    assert code_of(errors.NotFound("x", path="t/file")) == 4


# -- help, page, start
# --------------------------------------------------------------------------------


def test_help_lists_every_command_with_what_it_says_of_itself() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", result.stdout, re.MULTILINE), name
    for code in MEANING:
        assert re.search(rf"^ +{code}  ", result.stdout, re.MULTILINE), code


@pytest.mark.parametrize("command", [name for name, _ in every_command()])
def test_help_of_a_command_has_an_example_and_needs_no_table(command: str) -> None:
    result = CliRunner().invoke(cli, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"  paimon-stream {command} " in result.stdout
    assert "--json" in result.stdout


def test_the_page_is_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert page == render(ROOT / "tests" / "golden"), (
        "run: python -m docs.generators.cli tests/golden > docs/cli.md"
    )
    for command, _ in every_command():
        assert f"\n## `{command} TABLE" in page, command


def test_starting_costs_neither_pyspark_nor_arrow() -> None:
    code = (
        "import sys, paimon_stream.cli.app as app\n"
        "try: app.cli.main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "bad = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'fastavro'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


def test_without_the_extra_one_line_names_it() -> None:
    code = "import sys; sys.modules['click'] = None; from paimon_stream.cli import main; main(['stats', 't'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "paimon-stream: The command line needs click, which is not installed. Install paimon-stream with its "
        "extra 'cli': in a checkout of it, run pip install '.[cli]'"
    ]


def test_the_module_runs_and_a_closed_pipe_is_no_error(table: Path) -> None:
    command = [sys.executable, "-m", "paimon_stream", "files", str(table)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_ctrl_c_ends_a_running_command_with_130_and_one_line(table: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from paimon_stream.storage.local import LocalStorage\n"
        "LocalStorage.read = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "from paimon_stream.cli import main\n"
        "main(['snapshots', sys.argv[1]])"
    )
    command = [sys.executable, "-c", code, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stdout) == (130, "")
    assert len(done.stderr.splitlines()) == 1
    assert "interrupted" in done.stderr


def test_ctrl_c_ends_a_command_whose_store_accepts_and_never_answers() -> None:
    pytest.importorskip("obstore")
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = {
            "s3.endpoint": f"http://127.0.0.1:{server.getsockname()[1]}",
            "s3.access-key": "id",
            "s3.secret-key": "key",
        }
        options = [part for one in given.items() for part in ("--storage-option", "=".join(one))]
        command = [sys.executable, "-m", "paimon_stream", "snapshots", "s3://bucket/t", *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = server.accept()  # kept open: a closed one would be an answer
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=900)  # if the client gave up, it would say so
            connection.close()
    assert process.returncode == 130
    assert said == "paimon-stream: interrupted while it waited for an answer.\n"


# -- how values look
# ----------------------------------------------------------------------------------


def test_times_sizes_and_counts_for_people() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert (iso(None), iso(2**62)) == (None, None)
    assert [size(one) for one in (0, 1023, 1536, 2**31)] == ["0 B", "1023 B", "1.5 KiB", "2.0 GiB"]
    assert [count(one, "file") for one in (0, 1, 2000)] == ["0 files", "1 file", "2,000 files"]
    assert count(2, "batch") == "2 batches"
    assert ranges([(1, 1), (3, 9)]) == "1, 3-9"
    assert ranges([(n, n) for n in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
    assert [plain(one) for one in (None, True, 1234, "x")] == ["-", "yes", "1,234", "x"]
    assert jsonable({"b": b"x", "t": (1, 2)}) == {"b": "eA==", "t": [1, 2]}
    numbers = [1.5, float("nan"), float("inf"), float("-inf")]
    assert jsonable(numbers) == [1.5, "NaN", "Infinity", "-Infinity"]  # JSON has no such numbers


def test_a_batch_that_another_engine_replaced_is_committed_again_once(tmp_path: Path) -> None:
    location = tmp_path / "t"
    bench = Bench(storage=LocalStorage(str(location)))
    stream = Stream(bench, user="a user")
    stream.batches(2)
    Replacing(bench).copy_over(2, "java-1")
    stream.start()
    with pytest.raises(errors.CommitLost) as caught:
        stream.batch()
    words = shlex.split(caught.value.context["command"])
    assert words == ["paimon-stream", "recommit", "--user", "a user", "--batch", "1", str(location)]
    shown = CliRunner().invoke(cli, words[1:])
    assert shown.exit_code == 5
    for part in (
        "Batch 1 of commit user a user was snapshot 2",
        "user java",
        "1 file with 10 rows",
        "rolled the table back",
    ):
        assert part in shown.stdout
    done = answer_of("recommit", location, "--user", "a user", "--yes")
    assert (done["snapshot"], done["found"], done["replaced"], done["by"]) == (3, False, 2, "java")
    again = run("recommit", location, "--yes")
    assert (again.exit_code, "is in the table, in snapshot 3" in again.stdout) == (0, True)
    stream.batch()
    bench.audit(["a user-0-1", "a user-1-2", "a user-2-3", "java-1"])
    refused = run("recommit", location, "--user", "nobody")
    assert (refused.exit_code, "NotFound" in refused.stderr) == (3, True)


def test_a_name_cannot_move_the_cursor_of_a_terminal(tmp_path: Path) -> None:
    location = tmp_path / "t"
    options = {"commit.force-create-snapshot": "true"}
    PaimonTable.create(str(location), schema=[("id", "INT")], options=options)
    PaimonTable.load(str(location)).new_commit("me\x1b[2J[red]\nforged").commit(0, [])
    shown = run("query", location).stdout
    assert "\x1b" not in shown
    assert "[red]" in shown
    assert answer_of("query", location)["writers"][0]["user"] == "me\x1b[2J[red]\nforged"


def test_progress_is_silent_for_short_work_elsewhere_than_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress() as reporter:
        reporter("files", 1, 2)
        reporter("files", 2, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_is_a_bar_with_rate_and_time_left() -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    with progress(console) as reporter:
        for done in range(0, 1001, 250):
            reporter("[red]manifests", done, 2000)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "[red]manifests" in shown, "names are no markup"
    assert "1,000 of 2,000" in shown
    assert re.search(r"[\d,.]+( \w+)?/s", shown)
    assert re.search(r"\d:\d\d:\d\d", shown)
    assert "━" in shown


def test_nothing_to_list_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show(CommandAnswer(document={}, parts=[Listing([], [], "There is nothing.")]), as_json=False)
    assert capsys.readouterr().out.strip() == "There is nothing."


def test_golden_tables_of_all_kinds_can_be_looked_into(tmp_path: Path) -> None:
    for name in ("pk_updates", "overwritten", "expired", "partition_types", "append_compacted"):
        path = tmp_path / name
        shutil.copytree(ROOT / "tests" / "golden" / name / "db.db" / "t", path)
        for command in ("snapshots", "files", "manifests", "partitions", "stats", "query"):
            result = run(command, path, "--json")
            assert result.exit_code == 0, (name, command, result.output)
            json.loads(result.stdout)


# -- whether the table can be written -------------------------------------------------------------


@contextmanager
def mounted(folder: Path, *how: str) -> Iterator[None]:
    """Another file system, or another view of this one, at the folder."""
    if subprocess.run(["mount", *how, str(folder)], check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def judged(table: Path) -> tuple[Path, list[str]]:
    """A table, and the arguments with which its stream is safe to start."""
    checkpoint = table.parent / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q"}')
    return table, ["--checkpoint", str(checkpoint)]


def test_the_doctor_tries_to_write_and_leaves_nothing(judged: tuple[Path, list[str]]) -> None:
    table, given = judged
    before = sorted(table.rglob("*"))
    answer = answer_of("doctor", table, *given)
    assert answer["safe"] is True
    assert set(answer["trial"]["tried"]) >= {"", "snapshot", "manifest"}
    assert answer["trial"]["failures"] == []
    assert answer["trial"]["free_bytes"] > 0
    assert sorted(table.rglob("*")) == before
    shown = run("doctor", table, *given).stdout
    assert "Tried: files can be created and removed" in shown
    assert "Not tried: other machines and other users" in " ".join(shown.split())
    untried = answer_of("doctor", table, *given, "--read-only")
    assert (untried["safe"], untried["trial"]["tried"]) == (True, [])
    assert "whether files can be created and removed" in untried["trial"]["not_tried"]


def test_the_doctor_makes_no_folder_that_a_branch_lacks(judged: tuple[Path, list[str]]) -> None:
    table, given = judged
    PaimonTable.load(str(table)).create_branch("b1")
    before = sorted(table.rglob("*"))
    assert not (table / "branch" / "branch-b1" / "snapshot").exists()
    answer_of("doctor", f"{table}$branch_b1", *given)
    assert sorted(table.rglob("*")) == before


def test_a_full_disk_is_not_safe(judged: tuple[Path, list[str]]) -> None:
    table, given = judged
    whole = table.with_name("whole")
    table.rename(whole)
    table.mkdir()
    with mounted(table, "-t", "tmpfs", "-o", "size=2m", "tmpfs"):
        shutil.copytree(whole, table, dirs_exist_ok=True)
        fill(table / "fill")
        assert_not_safe(table, given, "NoSpace", "the disk is full")


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_read_only_mount_is_not_safe(judged: tuple[Path, list[str]]) -> None:
    table, given = judged
    with mounted(table, "--bind", str(table)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(table)], check=True)
        assert_not_safe(table, given, "PermissionDenied", "read-only")


@pytest.mark.parametrize("flag", ["i", "a"])
@pytest.mark.parametrize("folder", ["snapshot", "manifest", "dt=2024-01-03"])
def test_a_folder_that_nobody_may_change_is_not_safe(
    judged: tuple[Path, list[str]], folder: str, flag: str
) -> None:
    table, given = judged
    if subprocess.run(["chattr", f"+{flag}", table / folder], check=False).returncode:
        pytest.skip("setting an attribute needs root, and a file system that has it")
    try:
        assert_not_safe(table, given, "PermissionDenied", f"{table / folder}/.probe-")
    finally:
        subprocess.run(["chattr", f"-{flag}", table / folder], check=True)


def test_a_doctor_who_may_not_remove_files_leaves_one(judged: tuple[Path, list[str]]) -> None:
    table, given = judged
    folders = [table / folder for folder in ("snapshot", "manifest", "dt=2024-01-03")]
    if subprocess.run(["chattr", "+a", *folders], check=False).returncode:
        pytest.skip("setting an attribute needs root, and a file system that has it")
    try:
        assert run("doctor", table, *given).exit_code == 1
        assert len(list(table.rglob(".probe-*"))) == 1
    finally:
        subprocess.run(["chattr", "-a", *folders], check=True)


def assert_not_safe(table: Path, given: list[str], error: str, said: str) -> None:
    done = run("doctor", table, *given, "--json")
    assert done.exit_code == 1, done.output
    answer = json.loads(done.stdout)
    (stream,) = answer["streams"]
    assert (answer["safe"], stream["safe"], stream["verdict"]) == (False, False, error)
    assert said in stream["explanation"]
    assert stream["cure"].startswith("Do what the message says")
    assert "restart     not safe" in run("doctor", table, *given).stdout
