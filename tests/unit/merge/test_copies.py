"""A merge copies rows only where they do not already lie in the order of the result."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from paimon_stream.merge.rows import merge_rows
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec

SPEC = MergeSpec(table="t", engine="deduplicate", keys=("k",), lookup=False, rules={})


def piece(keys: range, sequence: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "k": np.arange(keys.start, keys.stop, keys.step),
            "v": pa.array([f"{key} of {sequence}" for key in keys], pa.string()),
            SEQUENCE: np.full(len(keys), sequence),
            KIND: np.zeros(len(keys), np.int8),
        }
    )


@pytest.mark.parametrize(
    ("older", "newer", "is_copied"),
    [
        (range(0), range(100), False),  # one file alone has these keys
        (range(50), range(50, 100), False),
        (range(100), range(100), False),  # all rows have a newer version
        (range(100), range(50, 150), True),
        (range(0, 100, 2), range(1, 100, 2), True),
    ],
)
def test_rows_that_lie_one_behind_the_other_are_not_copied(
    older: range, newer: range, is_copied: bool
) -> None:
    pieces = [piece(older, 1), piece(newer, 2)]
    merged = merge_rows(SPEC, pieces, keep_deletes=False)
    expected = dict.fromkeys(older, 1) | dict.fromkeys(newer, 2)
    assert merged.column("v").to_pylist() == [
        f"{key} of {sequence}" for key, sequence in sorted(expected.items())
    ]
    of_pieces = {batch.column("v").buffers()[2].address for batch in pieces}
    of_merged = {chunk.buffers()[2].address for chunk in merged.column("v").chunks if len(chunk)}
    assert of_merged.isdisjoint(of_pieces) == is_copied
