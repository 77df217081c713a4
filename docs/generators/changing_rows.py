"""Renders `docs/changing-keyed-rows.md` from the rules by which tables with a primary key merge.

python -m docs.generators.changing_rows > docs/changing-keyed-rows.md
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from docs.generators.options import rows
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.merge.changing import Operation, refusal
from paimon_stream.merge.spec import FUNCTIONS, MergeSpec
from paimon_stream.options import Options
from paimon_stream.read.scan import lowest_visible_level
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.table import table_of

__all__ = ["render"]

_START: Final = """\
# Changing rows of tables with a primary key

<!-- Generated: python -m docs.generators.changing_rows > docs/changing-keyed-rows.md -->

`PaimonTable.delete` and `PaimonTable.update` change the rows that fulfil a condition, in one snapshot. In a table with a
primary key they write newer rows, which delete or replace those that are there. No data file is rewritten.

```python
import pyarrow as pa

from paimon_stream import PaimonTable

orders = PaimonTable.create(
    "warehouse/shop.db/changed_orders",
    schema=[("id", "BIGINT NOT NULL"), ("status", "STRING"), ("amount", "DECIMAL(10, 2)")],
    primary_keys=["id"],
    options={"bucket": "2"},
)
rows = {"id": [1, 2, 3], "status": ["new", "new", "old"], "amount": [None, None, None]}
orders.append(pa.table(rows))
orders.delete("status = 'old'")
orders.update("id = 1", {"id": "id + 10"}, {"status": "moved"})
assert sorted(orders.to_arrow()["id"].to_pylist()) == [2, 11]
```

## What is done

- All committed rows are read, also those that other readers see only after a compaction. Files whose partition or
  keys cannot fulfil the condition stay closed. A condition on other columns reads all files of its partitions, because
  the newest row of a key may be in any of them. The rows that change are held in memory.
- A row is deleted by a row of kind `-D`, and updated by a whole new row. If a column of the key changes, the row with the
  old key is deleted and the row with the new key inserted, in the same snapshot. Rows may take the keys of one
  another. A new key that another row has is an error that names the key.
- A table with ORC files and a CHAR in its primary key is refused. ORC cuts blanks off the end of a CHAR, and the bucket of a row
  is that of its key with blanks.
- With `changelog-producer` = `input`, the changelog has `-U` with the whole old row and `+U` with the whole new row, and `-D`
  with the whole row. With `lookup` and `full-compaction` the next compaction writes it.
- Before anything is written, each row is merged with the row that changes it. If readers would not see the row that was
  asked for, nothing is written, and an `InvalidData` names the column and the first keys.
- If others meanwhile commit a row that fulfils the condition, or a row of a key that is changed, all is computed anew on the
  newest snapshot. Rows of other keys do not matter, and neither do compactions. Where rows are merged column by
  column (`partial-update`, `aggregation`) and the condition reads columns outside the key, each new row that may be in
  its partitions and keys counts as such a row.
- After a deletion, a row that is inserted with the same key begins anew: sums do not build on the deleted row.

A stream of changes whose keys are known is better written by an upsert ([primary keys](primary-keys.md)): it reads nothing.

## What works where

*If …* names the rows on which it works. On other rows nothing is written, and the error says why. *Insert* is what a row with
a new key needs.

"""

_COLUMNS: Final = """
## Which columns can be set

With the merge engines `aggregation` and `partial-update`, the function of a column decides. `deduplicate` lets every column be
set.
"""


class _Case(NamedTuple):
    """A kind of table.

    Attributes:
        name: the kind, as the page calls it.
        options: its options.
        condition: on which rows changes work; empty for all.
        partitioned: whether its key lacks the partition column.
    """

    name: str
    options: dict[str, str]
    condition: str = ""
    partitioned: bool = False


_PARTIAL: Final = {"merge-engine": "partial-update"}
_AGGREGATION: Final = {"merge-engine": "aggregation"}
_LOWER: Final = "a set `sequence.field` is not lower; a new key has no newer delete"
_GROUP: Final = "an ordering column of the group is not NULL, and is not set lower"
_NULLS: Final = "no value is set to NULL"

_CASES: Final = (
    _Case("deduplicate", {}),
    _Case("… with `sequence.field`", {"sequence.field": "s"}, _LOWER),
    _Case(
        "… descending",
        {"sequence.field": "s", "sequence.field.sort-order": "descending"},
        "a set `sequence.field` is not higher; a new key has no newer delete",
    ),
    _Case("… with `ignore-delete`", {"ignore-delete": "true"}),
    _Case("partial-update", _PARTIAL, _NULLS),
    _Case(
        "… with `partial-update.remove-record-on-delete`",
        {**_PARTIAL, "partial-update.remove-record-on-delete": "true"},
        _NULLS,
    ),
    _Case("… with sequence groups", {**_PARTIAL, "fields.s.sequence-group": "v"}, _GROUP),
    _Case(
        "… with `partial-update.remove-record-on-sequence-group`",
        {
            **_PARTIAL,
            "fields.s.sequence-group": "v",
            "partial-update.remove-record-on-sequence-group": "s",
        },
        _GROUP,
    ),
    _Case("aggregation", _AGGREGATION, _NULLS),
    _Case(
        "… with `aggregation.remove-record-on-delete`",
        {**_AGGREGATION, "aggregation.remove-record-on-delete": "true"},
        _NULLS,
    ),
    _Case("first-row", {"merge-engine": "first-row"}),
    _Case("… with `ignore-delete`", {"merge-engine": "first-row", "ignore-delete": "true"}),
    _Case("`changelog-producer` = `input`", {"changelog-producer": "input"}),
    _Case("`changelog-producer` = `lookup`", {"changelog-producer": "lookup"}),
    _Case("`changelog-producer` = `full-compaction`", {"changelog-producer": "full-compaction"}),
    _Case("`deletion-vectors.enabled`", {"deletion-vectors.enabled": "true"}),
    _Case("`rowkind.field`", {"rowkind.field": "v"}, "the set column is another one"),
    _Case("`bucket` = -1 (dynamic)", {"bucket": "-1"}),
    _Case("`bucket` = -1, a key without the partition", {"bucket": "-1"}, partitioned=True),
    _Case("`bucket` = -2 (postponed)", {"bucket": "-2"}),
)
_OPERATIONS: Final = (
    (Operation.DELETE, None),
    (Operation.SET, "w"),
    (Operation.MOVE, None),
    (Operation.INSERT, None),
)


def render() -> str:
    """The whole page, in Markdown."""
    reasons: list[str] = []
    body = [_line(case, reasons) for case in _CASES]
    head = (
        "table",
        "delete",
        "set a column",
        "set a key column",
        "insert",
        "seen by readers",
        "if …",
    )
    listed = "".join(f"\n{number}. The table {reason}." for number, reason in enumerate(reasons, 1))
    return "".join(
        [_START.rstrip("\n"), "\n", rows(head, body), listed, "\n", _COLUMNS, _functions()]
    )


def _schema(case: _Case) -> TableSchema:
    columns = {"p": "INT NOT NULL", "k": "INT NOT NULL", "s": "INT", "v": "STRING", "w": "STRING"}
    fields = tuple(
        DataField(id=number, name=name, type=parse_type(text))
        for number, (name, text) in enumerate(columns.items())
    )
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=len(fields),
        partition_keys=("p",) if case.partitioned else (),
        primary_keys=("k",),
        options={"bucket": "1", **case.options},
    )


def _line(case: _Case, reasons: list[str]) -> tuple[str, ...]:
    """A line of the table. New reasons for refusals are added to `reasons`."""
    schema = _schema(case)
    options = Options(schema.options)
    spec = MergeSpec.of(schema, options)
    cells = []
    for operation, column in _OPERATIONS:
        reason = refusal(schema, options, spec, operation, column)
        if reason is None:
            cells.append("yes")
            continue
        if reason not in reasons:
            reasons.append(reason)
        cells.append(f"no ({reasons.index(reason) + 1})")
    works = "yes" in cells
    return (
        case.name,
        *cells,
        _seen(schema, spec) if works else "",
        case.condition if works else "",
    )


def _seen(schema: TableSchema, spec: MergeSpec) -> str:
    """When readers see the changes."""
    table = table_of(MemoryStorage(), schema)
    try:
        check_writable(table)
    except UnsupportedFeature:
        if lowest_visible_level(table, spec):
            return "after a compaction; needs `write-only`"
        return "at once, their changelog after a compaction; needs `write-only`"
    return "at once"


def _functions() -> str:
    """The table of functions."""
    body = []
    for function in FUNCTIONS:
        type_ = {"collect": "ARRAY<INT>", "merge_map": "MAP<INT, INT>", "listagg": "STRING"}.get(
            function, "BOOLEAN" if function.startswith("bool") else "INT"
        )
        schema = _schema(_Case("", {**_AGGREGATION, "fields.f.aggregate-function": function}))
        field = DataField(id=9, name="f", type=parse_type(type_))
        schema = TableSchema(
            id=0,
            fields=(*schema.fields, field),
            highest_field_id=9,
            primary_keys=("k",),
            options=schema.options,
        )
        options = Options(schema.options)
        spec = MergeSpec.of(schema, options)
        refused = refusal(schema, options, spec, Operation.SET, "f")
        effect = "a new value replaces the old one"
        if function == "last_non_null_value":
            effect = "a new value replaces the old one; NULL does not"
        if refused is not None:
            effect = "a new value is combined with the old one"
        body.append((f"`{function}`", "yes" if refused is None else "no", effect))
    body.append(
        (
            "none, in `partial-update`",
            "yes",
            "as `last_non_null_value`; in a sequence group also NULL",
        )
    )
    return rows(("function", "can be set", "because"), body)


if __name__ == "__main__":
    sys.stdout.write(render())
