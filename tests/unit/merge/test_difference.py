"""`Difference`: rows that come in parts have the same result as all rows at once."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.merge.rows import Difference
from paimon_stream.merge.spec import KIND, SEQUENCE, MergeSpec
from paimon_stream.options import Options
from tests.kits.seeds import seeds


def side(random: Random, keys: int) -> list[tuple[int, int, int, int]]:
    """At most one row of each key, with a value, a sequence number and a kind."""
    return [
        (key, random.randint(0, 1), random.randint(0, 1), 0)
        for key in range(keys)
        if random.random() < 0.7
    ]


def as_table(rows: Any) -> pa.Table:
    types = (pa.int32(), pa.int32(), pa.int64(), pa.int8())
    names = ("k", "v", SEQUENCE, KIND)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(
        [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)], names=names
    )


@pytest.mark.parametrize("seed", seeds(10, 100))
def test_rows_in_parts_have_the_difference_of_all_rows(seed: int) -> None:
    random = Random(seed)
    table = PaimonTable.create(
        f"memory://difference-{seed}/db.db/t",
        [("k", "INT NOT NULL"), ("v", "INT")],
        primary_keys=["k"],
        options={"bucket": "1"},
    )
    spec = MergeSpec.of(table.schema, Options({}), table=table.location)
    keys = 40
    old, new = side(random, keys), side(random, keys)
    expected = Difference(spec).changed(as_table(old), as_table(new))
    in_parts = Difference(spec)
    cuts = [0, *sorted(random.sample(range(1, keys), 6)), keys]
    parts = [
        in_parts.changed(
            *(as_table([row for row in rows if start <= row[0] < end]) for rows in (old, new))
        )
        for start, end in pairwise(cuts)
    ]
    assert pa.concat_tables(parts).to_pylist() == expected.to_pylist()
    assert set(expected["k"].to_pylist()) >= {row[0] for row in new} - {row[0] for row in old}
