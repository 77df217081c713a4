"""How many rows per second each engine and aggregate function merges in memory, compared with
deduplicate.

    python benchmarks/merge_engines.py                        # 1 million rows of 300,000 keys
    python benchmarks/merge_engines.py --hot                  # the same rows, half of them of one key
    python benchmarks/merge_engines.py --only product,collect --rows 200000

Rows of random keys come in the order of their sequence numbers. One in ten is NULL in the column
that is folded. If a line says `retracts`, one row in five is a -D. Each line folds one column.
`ratio` is its time divided by that of deduplicate. Each line is run `--times` times, and the
fastest wall clock time counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, arrow_type, parse_type
from paimon_stream.merge.rows import merge_rows
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.options import Options

TYPES = {
    "b": "BOOLEAN",
    "l": "BIGINT",
    "d": "DOUBLE",
    "c": "DECIMAL(20, 2)",
    "s": "STRING",
    "a": "ARRAY<INT>",
    "m": "MAP<STRING, INT>",
}
AGGREGATION = {"merge-engine": "aggregation"}
GROUPS = {"merge-engine": "partial-update", "fields.g.sequence-group": "v"}
FUNCTIONS = (
    ("last_value", "s", True),
    ("last_non_null_value", "s", True),
    ("first_value", "s", False),
    ("first_non_null_value", "s", False),
    ("max", "l", False),
    ("min", "s", False),
    ("bool_and", "b", False),
    ("sum", "l", True),
    ("sum", "d", True),
    ("sum", "c", True),
    ("sum, overflowing", "c", True),
    ("product", "l", True),
    ("product", "d", True),
    ("product", "c", True),
    ("listagg", "s", False),
    ("listagg distinct", "s", False),
    ("collect", "a", True),
    ("collect distinct", "a", True),
    ("merge_map", "m", True),
)
"""The function, the column's type, and whether the function can retract values."""


def cases() -> Iterator[tuple[str, dict[str, str], str, bool]]:
    """The name, the options, the type of the column `v`, and whether there are -D rows."""
    yield "deduplicate", {}, "s", False
    for engine in (AGGREGATION, GROUPS):
        within = "" if engine is AGGREGATION else ", in a group"
        for name, type_, retractable in FUNCTIONS:
            options = engine | {"fields.v.aggregate-function": name.split()[0].strip(",")}
            if name.endswith("distinct"):
                options["fields.v.distinct"] = "true"
            for deletes in (False, True) if retractable else (False,):
                text = f"{name} of {TYPES[type_]}{within}{', retracts' if deletes else ''}"
                yield text, options, type_ if "overflow" not in name else "huge", deletes
    yield "partial-update", {"merge-engine": "partial-update"}, "s", False
    yield "partial-update, in a group", GROUPS, "s", False
    yield "partial-update, in a group, retracts", GROUPS, "s", True
    removing = GROUPS | {"partial-update.remove-record-on-sequence-group": "g"}
    yield "partial-update, removed by a group", removing, "s", True


def column_of(type_: str, rows: int, random: np.random.Generator) -> pa.Array:
    """Random values. One in ten is NULL."""
    null = pa.array(random.random(rows) < 0.1)
    made = _values(type_, rows, random)
    at = pa.array(np.arange(rows))
    return made.take(pa.array(at.to_numpy(), mask=null.to_numpy(zero_copy_only=False)))


def _values(type_: str, rows: int, random: np.random.Generator) -> pa.Array:
    small = random.integers(1, 50, rows)
    match type_:
        case "b":
            return pa.array(small > 25)
        case "l":
            return pa.array(small)
        case "d":
            return pa.array(random.random(rows))
        case "c":
            return (
                pa.array(np.where(small > 25, 2, 1))
                .cast(pa.decimal128(19, 0))
                .cast(pa.decimal128(20, 2))
            )
        case "huge":
            words = np.stack([random.integers(2**62, 2**63 - 1, rows), np.full(rows, 2)], 1)
            return pa.Array.from_buffers(
                pa.decimal128(20, 2), rows, [None, pa.py_buffer(words.tobytes())]
            )
        case "s":
            return pa.array(small).cast(pa.string())
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * 2)
    twice = np.stack([small, small + 50], 1).ravel()
    if type_ == "a":
        return pa.ListArray.from_arrays(offsets, pa.array(twice, pa.int32()))
    return pa.MapArray.from_arrays(
        offsets, pa.array(twice).cast(pa.string()), pa.array(twice, pa.int32())
    )


def rows_of(type_: str, rows: int, keys: int, *, hot: bool, deletes: bool) -> pa.Table:
    """Random rows. The first row of a key never retracts."""
    random = np.random.default_rng(7)
    ids = random.integers(0, keys, rows)
    if hot:
        ids[random.random(rows) < 0.5] = 0
    kinds = np.where(random.random(rows) < (0.2 if deletes else 0), 3, 0).astype(np.int8)
    kinds[np.unique(ids, return_index=True)[1]] = 0
    values = column_of(type_, rows, random)
    text = TYPES["c" if type_ == "huge" else type_]
    return pa.table(
        {
            "id": ids,
            "g": random.integers(0, 1000, rows),
            "v": values.cast(arrow_type(parse_type(text))),
            "_SEQUENCE_NUMBER": np.arange(rows),
            "_VALUE_KIND": kinds,
        }
    )


def spec_of(options: dict[str, str], type_: str) -> MergeSpec:
    """The spec of a table with a key, an ordering column and one more column."""
    types = {"id": "BIGINT NOT NULL", "g": "BIGINT", "v": TYPES["c" if type_ == "huge" else type_]}
    fields = tuple(
        DataField(id=i, name=name, type=parse_type(text))
        for i, (name, text) in enumerate(types.items())
    )
    schema = TableSchema(
        id=0, fields=fields, highest_field_id=9, primary_keys=("id",), options=options
    )
    return MergeSpec.of(schema, Options(options))


def main() -> None:
    """Runs once, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--hot", action="store_true", help="half of the rows have one key")
    parser.add_argument(
        "--only", default="", help="parts of the wanted lines' names, separated by commas"
    )
    given = parser.parse_args()
    print(f"{'':58} {'rows/s':>12} {'us/row':>8} {'ratio':>7}")
    first = 0.0
    for name, options, type_, deletes in cases():
        if first and not any(part in name for part in given.only.split(",")):
            continue
        spec = spec_of(options, type_)
        table = rows_of(type_, given.rows, given.keys, hot=given.hot, deletes=deletes)
        found = []
        for _ in range(given.times):
            start = time.perf_counter()
            merge_rows(spec, table, keep_deletes=True)
            found.append(time.perf_counter() - start)
        first = first or min(found)
        each = min(found) / given.rows
        print(
            f"{name:58} {1 / each:12,.0f} {each * 1e6:8.2f} {min(found) / first:6.1f}x", flush=True
        )


if __name__ == "__main__":
    main()
