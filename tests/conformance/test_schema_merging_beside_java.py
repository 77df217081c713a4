"""Schemas are merged as Java merges them, with the same columns, types and ids. Java and we read
old and new files of one table together.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import IncompatibleSchema
from paimon_stream.format.schema_json import TableSchema, decode_schema, encode_schema, reassign_ids
from paimon_stream.format.types import DataField, DataType, TypeRoot, parse_type
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.schema_change import merge_columns, wider
from paimon_stream.table.table import Merge, evolve, load_table
from tests.conformance.test_other_readers import rows_found_by
from tests.kits.seeds import MANY
from tests.kits.tables import append

TYPES = tuple(
    parse_type(text)
    for text in (
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(3, 0)",
        "DECIMAL(5, 2)",
        "DECIMAL(12, 2)",
        "DECIMAL(19, 0)",
        "DECIMAL(38, 2)",
        "CHAR(3)",
        "CHAR(5)",
        "VARCHAR(5)",
        "STRING",
        "BINARY(3)",
        "BINARY(5)",
        "VARBINARY(5)",
        "BYTES",
        "DATE",
        "TIME(0)",
        "TIME(3)",
        "TIMESTAMP(3)",
        "TIMESTAMP(6)",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    )
)
# Two values of each old type, the ends of its range where it has one.
VALUES: dict[str, tuple[Any, Any]] = {
    "TINYINT": (-128, 127),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "FLOAT": (0.5, -1.5 * 2**100),
    "DECIMAL(3, 0)": (Decimal("-999"), Decimal("7")),
    "DECIMAL(5, 2)": (Decimal("-999.99"), Decimal("0.01")),
    "DECIMAL(12, 2)": (Decimal("-9999999999.99"), Decimal("0.10")),
    "DECIMAL(19, 0)": (Decimal(10**19 - 1), Decimal(-1)),
    "CHAR(3)": ("abc", "äöü"),
    "CHAR(5)": ("abcde", "äöüxy"),
    "VARCHAR(5)": ("", "ab cd"),
    "BINARY(3)": (b"abc", b"\x00\xff\x01"),
    "BINARY(5)": (b"abcde", b"\x00\xff\x01\x02\x03"),
    "VARBINARY(5)": (b"", b"abcde"),
    "TIMESTAMP(3)": (dt.datetime(1969, 12, 31, 23, 59, 59, 0), dt.datetime(2024, 2, 29, 1, 2, 3)),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": (
        dt.datetime(1969, 12, 31, 23, 59, 59, 0, dt.timezone.utc),
        dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.timezone.utc),
    ),
}
WIDENINGS = [
    (old, new) for old, new in itertools.product(TYPES, TYPES) if wider(old, new) is not None
]


def schema_of(fields: tuple[DataField, ...]) -> TableSchema:
    numbered, highest = reassign_ids(fields)
    return TableSchema(id=0, fields=numbered, highest_field_id=highest)


def field(name: str, type_: DataType) -> DataField:
    return DataField(id=0, name=name, type=type_)


def as_json(schema: TableSchema) -> dict[str, Any]:
    node: dict[str, Any] = json.loads(encode_schema(schema))
    return node


def java_merges(
    java: Any, asked: Sequence[tuple[TableSchema, TableSchema]]
) -> list[TableSchema | None]:
    """What Java makes of each pair of a table's schema and that of rows."""
    merged = java.merge_schemas(
        [(as_json(current), as_json(columns)) for current, columns in asked]
    )
    return [
        None if one is None else decode_schema(json.dumps(one).encode(), "Java's") for one in merged
    ]


def our_merge(current: TableSchema, columns: TableSchema) -> TableSchema | None:
    try:
        return merge_columns(current, columns.fields, "widen", location="t")
    except IncompatibleSchema:
        return None


def loses(old: DataType, new: DataType) -> bool:
    """Whether Java's conversion from one type to the other can lose or change a value, or is
    impossible when it reads. It is decided by families and digits, not by our own rule.
    """
    whole = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INT: 10, TypeRoot.BIGINT: 19}
    mantissa = {TypeRoot.FLOAT: 7, TypeRoot.DOUBLE: 15}
    if new.root is TypeRoot.DECIMAL:
        return old.root in mantissa or (
            old.root in whole and new.precision - new.scale < whole[old.root]
        )
    if new.root in mantissa:
        return old.root is TypeRoot.DECIMAL or whole.get(old.root, 0) > mantissa[new.root]
    if old.is_timestamp:
        return old.root is not new.root
    # Java pads CHAR and BINARY, and finds no way to read a TIME as another.
    refused = (TypeRoot.CHAR, TypeRoot.BINARY, TypeRoot.TIME)
    return new.root in refused and old.precision != new.precision


def test_every_pair_of_types_merges_as_javas_unless_that_would_lose_values(java: Any) -> None:
    types = list(itertools.product(TYPES, TYPES))
    asked = [(schema_of((field("c", old),)), schema_of((field("c", new),))) for old, new in types]
    merged = java_merges(java, asked)
    for (old, new), (current, columns), theirs in zip(types, asked, merged, strict=True):
        ours, pair = our_merge(current, columns), f"{old} and {new}"
        if theirs is not None and theirs.fields != current.fields and loses(old, new):
            assert ours is None, pair
        else:
            assert (None if ours is None else ours.fields) == (
                None if theirs is None else theirs.fields
            ), pair


def some_type(rng: random.Random, depth: int) -> DataType:
    kind = rng.choice(("atom", "atom", "ARRAY", "MAP", "MULTISET", "ROW")) if depth else "atom"
    nullable = rng.random() < 0.7
    if kind == "atom":
        return rng.choice(TYPES).with_nullable(nullable)
    if kind == "ROW":
        return DataType(root=TypeRoot.ROW, nullable=nullable, fields=some_fields(rng, depth - 1))
    key = rng.choice(TYPES).with_nullable(False) if kind == "MAP" else None
    element = some_type(rng, depth - 1)
    return DataType(root=TypeRoot[kind], nullable=nullable, key=key, element=element)


def some_fields(rng: random.Random, depth: int) -> tuple[DataField, ...]:
    names = rng.sample("abcdef", rng.randint(1, 3))
    return tuple(
        DataField(
            id=position,
            name=name,
            type=some_type(rng, depth),
            description=rng.choice((None, None, "a note")),
        )
        for position, name in enumerate(names)
    )


def changed(rng: random.Random, type_: DataType) -> DataType:
    """Mostly the type itself, or one that it can become. Sometimes any type."""
    nullable = rng.random() < 0.7
    if not type_.is_nested:
        if rng.random() < 0.03:
            return rng.choice(TYPES)
        same_kind = [one for one in TYPES if wider(type_, one) is not None]
        return rng.choice([type_, *same_kind]).with_nullable(nullable)
    return DataType(
        root=type_.root,
        nullable=nullable,
        key=None if type_.key is None else changed(rng, type_.key).with_nullable(False),
        element=None if type_.element is None else changed(rng, type_.element),
        fields=changed_fields(rng, type_.fields, 1) if type_.root is TypeRoot.ROW else (),
    )


def changed_fields(
    rng: random.Random, fields: tuple[DataField, ...], depth: int
) -> tuple[DataField, ...]:
    kept = [field(one.name, changed(rng, one.type)) for one in fields if rng.random() < 0.8]
    names = {one.name for one in fields}
    new = [one for one in some_fields(rng, depth) if one.name not in names]
    mixed = [*kept, *new] or [fields[0]]
    rng.shuffle(mixed)
    return tuple(mixed)


def test_random_schemas_merge_to_what_java_makes_of_them_ids_included(java: Any) -> None:
    rng = random.Random(20)
    grown = refused = 0
    asked = []
    for _ in range(400):
        current = schema_of(some_fields(rng, 3))
        asked.append((current, schema_of(changed_fields(rng, current.fields, 2))))
    merged = zip(asked, java_merges(java, asked), strict=True)
    for number, ((current, columns), theirs) in enumerate(merged):
        ours = our_merge(current, columns)
        case = f"case {number}: {as_json(current)['fields']} with {as_json(columns)['fields']}"
        if ours is None:
            refused += 1
            if theirs is not None:  # then somewhere inside is a type that Java's would spoil
                assert any(spoiled(*pair) for pair in pairs(current.fields, columns.fields)), case
            continue
        assert theirs is not None, case
        grown += ours is not current
        assert (ours.fields, ours.highest_field_id, ours.id) == (
            theirs.fields,
            theirs.highest_field_id,
            theirs.id,
        ), case
    assert grown > 200 and 10 < refused < 200, (grown, refused)


def spoiled(old: DataType, new: DataType, is_key: bool) -> bool:
    return loses(old, new) or (is_key and old.with_nullable(True) != new.with_nullable(True))


def pairs(
    old: tuple[DataField, ...], new: tuple[DataField, ...]
) -> list[tuple[DataType, DataType, bool]]:
    """The types at the same place in both, and whether that is a key of a MAP or a member of a
    MULTISET.
    """
    named = {one.name: one.type for one in new}
    waiting = [(one.type, named[one.name], False) for one in old if one.name in named]
    found = []
    while waiting:
        before, after, is_key = waiting.pop()
        if before.key and after.key:
            waiting.append((before.key, after.key, True))
        if before.element and after.element:
            waiting.append((before.element, after.element, before.root is TypeRoot.MULTISET))
        found += [(before, after, is_key), *pairs(before.fields, after.fields)]
    return found


# -- old and new files together
# -----------------------------------------------------------------------


def asking(*columns: DataField) -> Merge:
    return lambda schema: merge_columns(schema, columns, "widen", location="t", time_millis=1)


def grow(path: Path, *columns: DataField) -> None:
    evolve(load_table(LocalStorage(str(path))), asking(*columns))


def require_same(path: Path, java: Any, expected: list[dict[str, Any]]) -> None:
    ours = PaimonTable.load(str(path)).to_arrow().to_pylist(maps_as_pydicts="strict")
    for who, rows in (("Java", java.read(path)), ("we", ours)):
        found = sorted(rows, key=lambda row: row["id"])
        for name in expected[0]:
            assert [row[name] for row in found] == [row[name] for row in expected], (who, name)
        assert found == expected


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_java_and_we_read_files_from_before_and_after_every_widening(
    java: Any, tmp_path: Path, format_: str
) -> None:
    path = tmp_path / "t"
    # A format reads a type at one place as at another: each pair is at one, or with many seeds at all.
    columns = {
        f"{kind}{n}": kinds
        for n, pair in enumerate(WIDENINGS)
        for at, (kind, kinds) in enumerate(places(*pair))
        if MANY or at == n % 4
    }
    java.create_table(
        path,
        [("id", "INT"), *((name, old) for name, (old, _, _) in columns.items())],
        options={"file.format": format_, "orc.timestamp-ltz.legacy.type": "false"},
    )
    rows = [
        {"id": n, **{name: values[n] for name, (_, _, values) in columns.items()}} for n in range(2)
    ]
    rows.append({"id": 2, **dict.fromkeys(columns)})
    append(path, rows, 1)
    grow(path, *(field(name, parse_type(new)) for name, (_, new, _) in columns.items()))
    now = load_table(LocalStorage(str(path))).schema
    assert [str(one.type) for one in now.fields[1:]] == [
        str(parse_type(new)) for _, new, _ in columns.values()
    ]
    later = [{**row, "id": row["id"] + 3} for row in rows]
    append(path, later, 2)
    require_same(path, java, [*rows, *later])


def places(old: DataType, new: DataType) -> list[tuple[str, tuple[str, str, list[Any]]]]:
    """The pair as a column, and inside of each kind of nested column: both types, and two
    values.
    """
    values = VALUES[str(old)]
    return [
        ("c", (f"{old}", f"{new}", [*values])),
        ("a", (f"ARRAY<{old}>", f"ARRAY<{new}>", [[one, None] for one in values])),
        (
            "v",
            (
                f"MAP<INT NOT NULL, {old}>",
                f"MAP<INT NOT NULL, {new}>",
                [{1: one} for one in values],
            ),
        ),
        ("r", (f"ROW<x {old}>", f"ROW<x {new}>", [{"x": one} for one in values])),
    ]


NESTED_OLD = "ROW<x INT, a ARRAY<INT>, m MAP<STRING NOT NULL, INT>, r ROW<x FLOAT>>"
NESTED_NEW = "ROW<new STRING, x BIGINT, a ARRAY<BIGINT>, m MAP<STRING NOT NULL, BIGINT>, r ROW<x DOUBLE, y DATE>>"


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_java_and_we_read_files_from_before_and_after_nested_changes(
    java: Any, tmp_path: Path, format_: str
) -> None:
    path = tmp_path / "t"
    java.create_table(
        path,
        [
            ("id", "INT"),
            ("r", NESTED_OLD),
            ("a", "ARRAY<ROW<x INT>>"),
            ("m", "MAP<STRING NOT NULL, ROW<x INT>>"),
        ],
        options={"file.format": format_},
    )
    inner = {"x": 1, "a": [1, None], "m": {"k": 2}, "r": {"x": 0.5}}
    append(path, [{"id": 0, "r": inner, "a": [{"x": 1}, None], "m": {"k": {"x": 2}}}], 1)
    append(path, [{"id": 1, "r": None, "a": [], "m": None}], 2)
    grow(
        path,
        field("r", parse_type(NESTED_NEW)),
        field("a", parse_type("ARRAY<ROW<y STRING, x BIGINT>>")),
        field("m", parse_type("MAP<STRING NOT NULL, ROW<y ARRAY<ROW<z INT>>, x BIGINT>>")),
        field("n", parse_type("ROW<p INT>")),
    )
    grown = {
        "x": 2**40,
        "a": [2**40],
        "m": {"k": 2**41},
        "r": {"x": 0.1, "y": dt.date(2020, 1, 1)},
        "new": "n",
    }
    new = {
        "id": 2,
        "r": grown,
        "a": [{"x": 2**40, "y": "s"}],
        "m": {"k": {"x": 1, "y": [{"z": 3}]}},
        "n": {"p": 1},
    }
    append(path, [new], 3)
    old = {
        "id": 0,
        "r": {**inner, "r": {"x": 0.5, "y": None}, "new": None},
        "a": [{"x": 1, "y": None}, None],
        "m": {"k": {"x": 2, "y": None}},
        "n": None,
    }
    require_same(path, java, [old, {"id": 1, "r": None, "a": [], "m": None, "n": None}, new])


def test_java_goes_on_with_a_schema_of_ours(java: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    java.create_table(path, [("id", "INT")])
    append(path, [{"id": 0}], 1)
    grow(path, field("id", parse_type("BIGINT")), field("r", parse_type("ROW<x INT>")))
    java.write(path, [{"id": 2**40, "r": {"x": 1}}], commit_identifier=1)
    java.alter_table(path, ("add", "late", "STRING"))
    assert (java.schema(path)["id"], java.schema(path)["highestFieldId"]) == (2, 3)
    grow(path, field("later", parse_type("DATE")))
    assert [one["schemaId"] for one in java.snapshots(path)] == [0, 1]
    assert java.schema(path)["fields"][-1] == {"id": 4, "name": "later", "type": "DATE"}
    java.compact(path)
    missing = {"late": None, "later": None}
    require_same(
        path, java, [{"id": 0, "r": None, **missing}, {"id": 2**40, "r": {"x": 1}, **missing}]
    )


def test_pypaimon_reads_files_from_before_and_after_every_widening(tmp_path: Path) -> None:
    path = tmp_path / "db.db" / "t"
    columns = {f"c{n}": pair for n, pair in enumerate(WIDENINGS)}
    PaimonTable.create(
        str(path),
        schema=[
            ("id", "INT"),
            *((name, str(old)) for name, (old, _) in columns.items()),
            ("r", "ROW<x INT>"),
        ],
    )
    values = {name: VALUES[str(old)][1] for name, (old, _) in columns.items()}
    append(path, [{"id": 0, **values, "r": {"x": 1}}], 1)
    new = [field(name, type_) for name, (_, type_) in columns.items()]
    grow(path, *new, field("r", parse_type("ROW<y STRING>")), field("new", parse_type("DATE")))
    later = {"id": 1, **values, "r": {"x": 1, "y": "y"}, "new": dt.date(2024, 2, 29)}
    append(path, [later], 2)
    rows = rows_found_by("pypaimon", path, tmp_path).sort_by("id").to_pylist()
    before, after = json.loads(json.dumps(rows, default=str))
    assert (before["r"], before["new"]) == ({"x": 1, "y": None}, None)
    assert (after["r"], after["new"]) == ({"x": 1, "y": "y"}, "2024-02-29")
    for name in columns:
        assert before[name] == after[name] is not None, (name, columns[name])
