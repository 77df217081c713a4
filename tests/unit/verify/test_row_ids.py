"""`verify` finds rows without ids, rows with the same id, and a snapshot that would give ids out
again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from paimon_stream import PaimonTable

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


def tracked(path: Path) -> PaimonTable:
    return PaimonTable.create(str(path), ROWS.schema, options={"row-tracking.enabled": "true"})


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_sound_table_has_no_findings(tmp_path: Path) -> None:
    table = tracked(tmp_path / "t")
    assert not table.verify().findings
    for _ in range(3):
        table.append(ROWS)
    assert not table.verify().findings


def test_ids_that_were_given_out_twice_are_found(tmp_path: Path) -> None:
    table = tracked(tmp_path / "t")
    table.append(ROWS)
    change(tmp_path / "t/snapshot/snapshot-1", nextRowId=1)
    (found,) = (one for one in table.verify().findings if one.code.startswith("row-ids"))
    assert (found.code, found.path) == ("row-ids-used", "snapshot/snapshot-1")
    assert found.message == "Snapshot 1 gives new rows ids from 1 on; 2 is in use."
    PaimonTable.load(str(tmp_path / "t")).append(ROWS)
    (found,) = (one for one in table.verify().findings if one.code.startswith("row-ids"))
    assert found.code == "row-ids-twice"
    assert "from 1 on" in found.message
    change(
        tmp_path / "t/schema/schema-0",
        options={"row-tracking.enabled": "true", "data-evolution.enabled": "true"},
    )
    assert not PaimonTable.load(str(tmp_path / "t")).verify().findings, (
        "two files may hold columns of the same rows"
    )


def test_rows_from_before_row_tracking_are_found(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), ROWS.schema)
    table.append(ROWS)
    change(tmp_path / "t/schema/schema-0", options={"row-tracking.enabled": "true"})
    (found,) = PaimonTable.load(str(tmp_path / "t")).verify().findings
    assert found.code == "row-ids-missing"
    assert "no ids" in found.message
