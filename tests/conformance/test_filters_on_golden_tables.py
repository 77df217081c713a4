"""Random filters on every table that Java wrote: the rows are those that pyarrow keeps of a full read."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.api.table import PaimonTable
from tests.kits.filters import assert_same, random_filter

HERE = Path(__file__).parent.parent / "golden"
TABLES = sorted(
    str(one.parent.relative_to(HERE)) for one in HERE.glob("**/db.db/t/schema") if "external" not in str(one)
)
_FILTERS = 8


def test_there_are_tables() -> None:
    assert len(TABLES) > 50


@pytest.mark.parametrize("name", TABLES)
def test_random_filters_keep_what_a_full_read_keeps(name: str) -> None:
    table = PaimonTable.load(str(HERE / name))
    whole = table.to_arrow()
    random = Random(name)
    for _ in range(_FILTERS if whole.num_rows else 0):
        where = random_filter(random, whole)
        assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))


@pytest.mark.parametrize("case", ["all_types", "all_types_avro", "all_types_orc"])
def test_every_value_of_every_type_is_found_where_it_is_a_bound(case: str) -> None:
    table = PaimonTable.load(str(HERE / case / "db.db" / "t"))
    whole = table.to_arrow()
    for name in whole.column_names:
        column = whole[name]
        if pa.types.is_nested(column.type) or column.null_count == len(column):
            continue
        for value in (pc.min(column), pc.max(column)):
            for where in (pc.field(name) == value, pc.field(name) <= value, pc.field(name) >= value):
                assert_same(table.to_arrow(filter=where), whole.filter(where), str(where))
