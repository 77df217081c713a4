"""Files of which manifests say what this release does not know are not compacted, and the report
says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from tests.kits.newer_fields import add_sequences

FIELD = "_FILE._WRITE_COLS_SEQUENCES"
COMPACTED_EARLY = {"bucket": "1", "num-sorted-run.compaction-trigger": "2"}


def with_one_newer_file(location: Path, newer: int = 0, **definition: Any) -> PaimonTable:
    """A table of five commits. The entry of the file of commit `newer` has an unknown field."""
    columns = [("k", "INT NOT NULL"), ("v", "STRING")]
    table = PaimonTable.create(str(location), columns, **definition)
    for number in range(5):
        older = set((location / "manifest").glob("manifest-*-0"))
        rows = [{"k": k, "v": f"{number}"} for k in range(3)]
        table.append(pa.Table.from_pylist(rows, table.to_arrow().schema))
        if number == newer:
            for path in set((location / "manifest").glob("manifest-*-0")) - older:
                if not path.name.startswith("manifest-list"):
                    path.write_bytes(add_sequences(path.read_bytes()))
    return table


@pytest.mark.parametrize("dry_run", [True, False])
def test_without_buckets_the_other_files_are_compacted(tmp_path: Path, dry_run: bool) -> None:
    table = with_one_newer_file(tmp_path / "t", options={"compaction.min.file-num": "2"})
    rows = table.to_arrow().sort_by([("k", "ascending"), ("v", "ascending")])
    report = table.compact(dry_run=dry_run)
    assert (report.files_before, report.rows_before) == (4, 12)
    (done, skipped) = report.buckets
    assert done.skipped is None and done.files == 4
    assert skipped.files == 1 and skipped.skipped is not None and FIELD in skipped.skipped
    assert table.to_arrow().sort_by([("k", "ascending"), ("v", "ascending")]).equals(rows)


@pytest.mark.parametrize(
    "definition",
    [
        {"options": {"bucket": "1", "bucket-key": "k"}},
        {"options": {"bucket": "1"}, "primary_keys": ["k"]},
        {"options": {"bucket": "-2"}, "primary_keys": ["k"]},
    ],
    ids=["append", "keyed", "postponed"],
)
def test_in_buckets_none_of_the_files_with_it_is(
    tmp_path: Path, definition: dict[str, Any]
) -> None:
    table = with_one_newer_file(tmp_path / "t", **definition)
    before = table.latest_snapshot
    report = table.compact(full=True)
    (skipped,) = report.buckets
    assert skipped.skipped is not None and FIELD in skipped.skipped
    assert report.snapshot_id is None and table.latest_snapshot == before


def test_a_skipped_bucket_is_not_among_those_that_a_compaction_helps(tmp_path: Path) -> None:
    table = with_one_newer_file(tmp_path / "t", options={"bucket": "1"}, primary_keys=["k"])
    report = table.compact(full=True, dry_run=True)
    assert len(report.buckets) == 1
    assert report.compacted == ()
    assert report.read_amplification == 1.0


@pytest.mark.parametrize("command", ["stats", "doctor"])
def test_no_command_advises_to_compact_what_is_skipped(tmp_path: Path, command: str) -> None:
    app = pytest.importorskip("paimon_stream.cli.app", reason="the extra cli is not installed")
    testing = pytest.importorskip("click.testing", reason="the extra cli is not installed")
    table = with_one_newer_file(tmp_path / "t", options=COMPACTED_EARLY, primary_keys=["k"])
    shown = testing.CliRunner().invoke(app.cli, [command, table.location, "--json"])
    to_compact = json.loads(shown.stdout)["to_compact"]
    assert len(to_compact["buckets"]) == 1
    assert to_compact["command"] is None
    text = testing.CliRunner().invoke(app.cli, [command, table.location]).output
    assert "Start the compaction" not in text
    assert "To compact" not in text


def test_the_page_of_a_report_has_no_bar_for_what_is_skipped(tmp_path: Path) -> None:
    table = with_one_newer_file(tmp_path / "t", options=COMPACTED_EARLY, primary_keys=["k"])
    sections = table.report().tables[table.location].sections
    (amplification,) = [section for section in sections if section.title == "Read amplification"]
    assert list(amplification.rows) == []
    assert amplification.about.endswith("Nothing needs a compaction.")


def test_manifests_that_an_unknown_field_divides_are_merged_once(tmp_path: Path) -> None:
    location = tmp_path / "t"
    table = with_one_newer_file(location, newer=2)
    merged = table.compact_manifests()
    assert (merged.snapshot_id, merged.manifests_before, merged.manifests_after) == (6, 5, 2)
    assert table.compact_manifests(dry_run=True).merged == 0
    files_before = sorted((location / "manifest").iterdir())
    assert table.compact_manifests().snapshot_id is None
    assert sorted((location / "manifest").iterdir()) == files_before
    assert table.to_arrow().num_rows == 15


def test_a_file_that_goes_takes_its_field_along(tmp_path: Path) -> None:
    table = with_one_newer_file(tmp_path / "t")
    table.truncate()
    table.compact_manifests()
    assert table.to_arrow().num_rows == 0
    assert table.compact().buckets == ()
