"""What a table costs grows with its columns, not with their square: functions are called at most
twice as often for twice the columns, and those that handle all columns at once as often as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce
from itertools import count
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable, SchemaChange
from paimon_stream.table.table import alter_table
from tests.kits.calls import calls_of, grown_too_much
from tests.kits.params import each_once

_NUMBER = count()
NARROW = 100
ALL_COLUMNS = (
    "core.schema_arrow",  # Arrow converts the types of a whole Parquet file
    "acero._filter_table",  # Arrow binds a condition to a whole schema
    "arrow_types.arrow_schema",
    "schema_json.field_names",
    "schema_json.decode_schema",
)
"""Functions each of whose calls goes through all columns."""

Step = Callable[[PaimonTable, pa.Table], object]


def rows(columns: int) -> pa.Table:
    names = ["id", *(f"c{number}" for number in range(columns))]
    return pa.table({name: pa.array([1, 2, 3], pa.int32()) for name in names})


def table_of(columns: int, kind: str) -> PaimonTable:
    schema = [("id", "INT NOT NULL"), *((f"c{number}", "INT") for number in range(columns))]
    location = f"memory://wide-{next(_NUMBER)}/db.db/t"
    match kind:
        case "append":
            options = {"compaction.min.file-num": "2"}
            return PaimonTable.create(location, schema, options=options)
        case "avro":
            return PaimonTable.create(location, schema, options={"file.format": "avro"})
        case "sums":
            functions = {f"fields.c{n}.aggregate-function": "sum" for n in range(columns)}
            options = {"bucket": "1", "merge-engine": "aggregation", **functions}
        case _:
            groups = {
                f"fields.c{n}.sequence-group": f"c{n + 1},c{n + 2}"
                for n in range(0, columns - 2, 3)
            }
            options = {"bucket": "1", "merge-engine": "partial-update", **groups}
    return PaimonTable.create(location, schema, primary_keys=["id"], options=options)


def many_columns(table: PaimonTable) -> list[str]:
    return list(table.schema.field_names[::2])


STEPS: dict[str, Step] = {
    "append": lambda table, rows: table.append(rows),
    "append in another order": lambda table, rows: table.append(
        rows.select(rows.schema.names[::-1])
    ),
    "read": lambda table, _: table.to_arrow(),
    "read half": lambda table, _: table.to_arrow(columns=many_columns(table)),
    "filter": lambda table, _: table.to_arrow(columns=["c5"], filter=pc.field("c7") == 2),
    "filter on all": lambda table, _: table.to_arrow(
        filter=reduce(or_, [pc.field(name) == 2 for name in table.schema.field_names])
    ),
    "head": lambda table, _: next(iter(table.to_batches())),
    "verify": lambda table, _: table.verify(),
    "report": lambda table, _: table.report(),
    "compact": lambda table, _: table.compact(),
    "add a column": lambda table, _: alter_table(
        table._table.storage, [SchemaChange.add_column("new", "INT")]
    ),
}


def counted(step: Step, columns: int, kind: str) -> Counter[str]:
    table = table_of(columns, kind)
    for _ in range(2):
        table.append(rows(columns))
    return calls_of(lambda: step(PaimonTable.load(table.location), rows(columns)))


@pytest.mark.parametrize(("step", "kind"), each_once(STEPS, ["append", "groups", "avro", "sums"]))
def test_a_step_costs_twice_as_much_for_twice_the_columns(step: str, kind: str) -> None:
    counted(STEPS[step], 10, kind)  # what is imported or built once
    narrow = counted(STEPS[step], NARROW, kind)
    wide = counted(STEPS[step], 2 * NARROW, kind)
    assert not grown_too_much(narrow, wide, 2.1, fresh=5 * NARROW * 2)
    assert {name: wide[name] for name in ALL_COLUMNS} == {
        name: narrow[name] for name in ALL_COLUMNS
    }
