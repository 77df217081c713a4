"""What streams that read an append table see of merges, beside Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql.datasource", reason="needs Spark 4")

from paimon_stream import Merge, PaimonTable
from tests.kits.merging_streams import MergingStream
from tests.spark.test_format_stream_reads import Stream

SET = Merge(on=["id"]).when_matched_update({"n": "source.n"}).when_not_matched_insert_all()
VECTORS = {"deletion-vectors.enabled": "true"}
OVERWRITES = {"streaming-read-append-overwrite": "true"}
NEW = [(2, 22), (4, 44)]
AGAIN = [(1, 1), (3, 3)]
"""The rows that stay in the file that is written again."""


def batch(*rows: tuple[int, int]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([one for one, _ in rows], pa.int32()),
            "n": pa.array([n for _, n in rows], pa.int32()),
        }
    )


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        (VECTORS, []),
        ({}, []),
        ({**VECTORS, **OVERWRITES}, NEW),
        (OVERWRITES, sorted([*NEW, *AGAIN])),
    ],
    ids=["vectors", "rewritten", "vectors, with overwrites", "rewritten, with overwrites"],
)
def test_followers_pass_over_batches_that_update_rows_or_get_rows_again(
    options: dict[str, str], seen: list[tuple[int, int]], tmp_path: Path, java: Any, caplog: Any
) -> None:
    """A batch that only inserts rows is given as any append."""
    table = PaimonTable.create(
        str(tmp_path / "db.db" / "t"), [("id", "INT"), ("n", "INT")], options=options
    )
    table.append(batch((1, 1), (2, 2), (3, 3)))
    ours = Stream(table)
    assert pairs(ours.next()) == [(1, 1), (2, 2), (3, 3)]
    stream = MergingStream(table, SET)
    stream.batch(batch((2, 22), (4, 44)))
    assert pairs(ours.next()) == seen
    stream.batch(batch((5, 55)))
    assert pairs(ours.next()) == [(5, 55)]
    changes = java.read_changes(tmp_path / "db.db" / "t", 2)
    assert {kind for kind, _ in changes} == {"+I"}
    assert pairs([row for _, row in changes]) == sorted([*seen, (5, 55)])
    said = [
        one.getMessage()
        for one in caplog.records
        if "streams that read this table" in one.getMessage()
    ]
    assert len(said) == 1
    assert ("again the rows that stay" in said[0]) == ("deletion-vectors.enabled" not in options)


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["id"], row["n"]) for row in rows)
