"""Java Paimon reads what batch writes with an identity wrote, and its maintenance leaves their
receipts alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import TableRolledBack

SCHEMA = [("id", "BIGINT NOT NULL"), ("dt", "STRING NOT NULL")]


def rows(*ids: int, dt: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array([dt] * len(ids))})


def read(java: Any, path: Path) -> list[tuple[int, str]]:
    return sorted((row["id"], row["dt"]) for row in java.read(path))


@pytest.mark.parametrize("keys", [(), ("id", "dt")], ids=["append", "keyed"])
def test_java_reads_each_row_once_and_keeps_receipts(
    java: Any, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    path = tmp_path / "t"
    options = {"bucket": "1", "bucket-key": "id", "write-only": "true"}
    java.create_table(path, SCHEMA, ["dt"], keys, options)
    table = PaimonTable.load(str(path))

    def load() -> list[str]:
        """All loads, as a scheduler repeats them."""
        reports = [
            table.append(rows(1, 2), identity="load 1"),
            table.append(rows(3, dt="b"), identity="load 2"),
            table.overwrite(rows(4), {"dt": "a"}, identity="correction"),
        ]
        return [report.outcome for report in reports]

    assert load() == ["committed"] * 3
    assert read(java, path) == [(3, "b"), (4, "a")]
    java.write(path, [{"id": 5, "dt": "a"}])
    java.expire_snapshots(path, 1, 1)
    assert [snapshot["id"] for snapshot in java.snapshots(path)] == [4]
    java.remove_orphans(path)
    assert load() == ["already committed"] * 3
    assert read(java, path) == [(3, "b"), (4, "a"), (5, "a")]


def test_a_rollback_by_java_is_noticed(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    java.create_table(path, SCHEMA, (), (), {"write-only": "true"})
    table = PaimonTable.load(str(path))
    table.append(rows(1), identity="load 1")
    table.append(rows(2), identity="load 2")
    java.rollback_to(path, 1)
    with pytest.raises(TableRolledBack, match="another identity"):
        table.append(rows(2), identity="load 2")
    java.write(path, [{"id": 3, "dt": "c"}])
    with pytest.raises(TableRolledBack, match="another identity"):
        table.append(rows(2), identity="load 2")
    assert table.append(rows(1), identity="load 1").outcome == "already committed"
    assert table.append(rows(2), identity="load 2 again").outcome == "committed"
    assert read(java, path) == [(1, "a"), (2, "a"), (3, "c")]
