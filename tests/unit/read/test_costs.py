"""What a read costs grows with its work alone, in calls of functions and in memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.read.scan import plan_scan
from tests.kits.calls import calls_of, grown_too_much

ROWS = 50_000


@pytest.mark.parametrize("filter", [None, pc.field("id") == 3], ids=["all rows", "a filter"])
def test_a_plan_calls_four_times_as_much_for_four_times_the_files(
    tmp_path: Path, filter: pc.Expression | None
) -> None:
    def calls(files: int) -> Counter[str]:
        table = PaimonTable.create(
            str(tmp_path / str(files)), [("id", "INT"), ("p", "INT")], partition_keys=["p"]
        )
        ids = pa.array(range(files), pa.int32())
        table.append(pa.table({"id": ids, "p": ids}))
        assert len(table.files()) == files
        return calls_of(lambda: plan_scan(table._table, filter=filter))

    calls(10)  # what is imported or built once
    assert not grown_too_much(calls(50), calls(200), times=4.1)


def test_the_memory_of_to_batches_does_not_grow_with_the_files(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), [("id", "BIGINT"), ("text", "STRING")])

    def most_bytes() -> int:
        before = pa.total_allocated_bytes()
        most = 0
        for _ in table.to_batches():
            most = max(most, pa.total_allocated_bytes() - before)
        return most

    texts = pa.array([f"a text of some length, {number}" for number in range(ROWS)])
    rows = pa.table({"id": np.arange(ROWS), "text": texts})
    for _ in range(2):
        table.append(rows)
    of_two_files = most_bytes()
    for _ in range(10):
        table.append(rows)
    assert most_bytes() < 1.5 * of_two_files < 12 * rows.nbytes / 2
