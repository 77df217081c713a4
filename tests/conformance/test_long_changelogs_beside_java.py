"""Changelogs that outlive their snapshots: we and Java expire copies of one table, and each goes on
with a copy of the other's.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.kits.params import few

COLUMNS = [("id", "INT NOT NULL"), ("p", "INT NOT NULL"), ("v", "STRING")]
KEPT = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "2",
    "changelog.num-retained.min": "1",
    "changelog.num-retained.max": "6",
}


def rows(number: int) -> list[dict[str, Any]]:
    return [{"id": one, "p": one % 2, "v": f"v{number}"} for one in range(number, number + 4)]


def grow(java: Any, table: Path, keyed: bool, since: int) -> None:
    """Four commits, each with its compaction behind it, and a tag."""
    for number in range(since, since + 4):
        java.write(table, rows(number), "w", number)
        if keyed:
            java.compact(table, commit_user="w", commit_identifier=number)
        if number in (2, 7):
            java.create_tag(table, f"t{number}", PaimonTable.load(str(table)).latest_snapshot().id)


def files(table: Path) -> dict[str, Any]:
    """All files but our own; of snapshots, changelogs and hints also what they say."""
    found = {one.relative_to(table).as_posix(): one for one in table.rglob("*") if one.is_file()}
    said = ("changelog/", "snapshot/", "tag/")
    return {
        name: json.loads(one.read_text()) if name.startswith(said) else None
        for name, one in found.items()
        if not name.startswith("_paimon_stream/") and not one.name.endswith(".crc")
    }


@pytest.mark.parametrize(
    "producer", few(["none", "lookup", "append"], lambda producer: producer != "none")
)
def test_both_engines_keep_the_same_files_and_go_on_with_what_the_other_left(
    java: Any, tmp_path: Path, producer: str
) -> None:
    ours, theirs, keyed = tmp_path / "a/t", tmp_path / "b/t", producer != "append"
    keys = ["id", "p"] if keyed else []
    options = {"bucket": "1", "bucket-key": "id", "write-only": "true", **KEPT}
    if producer not in ("none", "append"):
        options["changelog-producer"] = producer
    java.create_table(ours, COLUMNS, partition_keys=["p"], primary_keys=keys, options=options)
    for since in (1, 5):
        grow(java, ours, keyed, since)
        shutil.rmtree(theirs, ignore_errors=True)
        shutil.copytree(ours, theirs)
        report = PaimonTable.load(str(ours)).expire_snapshots()
        java.expire_by_options(theirs)
        assert files(ours) == files(theirs)
        assert report.snapshots
        assert any(name.startswith("changelog/changelog-") for name in files(ours))
        assert report.changelogs or not keyed
        assert [
            one for one in PaimonTable.load(str(ours)).verify().findings if one.severity == "error"
        ] == []
        assert java.remove_orphans(ours, dry_run=True) == []
        first = min(
            int(name.rpartition("-")[2])
            for name in files(ours)
            if name.startswith("changelog/changelog-")
        )
        changes = java.read_changes(ours, first)
        assert changes == java.read_changes(theirs, first)
        assert len(changes) > 4
        ours, theirs = theirs, ours
