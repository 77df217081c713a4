"""Rows of append tables are deleted, updated and merged, in turns with Java's writers and compactions: Java
reads exactly the rows of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import AmbiguousMerge
from tests.kits.params import few
from tests.kits.reading import assert_rows, java_rows
from tests.kits.seeds import examples, seeds

COLUMNS = [("id", "INT"), ("p", "STRING"), ("v", "INT"), ("f", "DOUBLE"), ("c", "CHAR(3)")]
TABLES: dict[str, dict[str, str]] = {
    "rewritten": {},
    "rewritten in buckets": {"bucket": "2", "bucket-key": "id", "file.format": "orc"},
    "rewritten, avro": {"file.format": "avro"},
    "rewritten, tracked": {"row-tracking.enabled": "true"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors in buckets": {
        "deletion-vectors.enabled": "true",
        "bucket": "2",
        "bucket-key": "id",
        "file.format": "avro",
    },
    "vectors, tracked": {
        "deletion-vectors.enabled": "true",
        "row-tracking.enabled": "true",
        "file.format": "orc",
    },
}
OFTEN = {"rewritten in buckets", "vectors, tracked"}
STEPS = (
    "append",
    "java append",
    "delete",
    "delete",
    "update",
    "update",
    "move",
    "merge",
    "merge",
    "merge twice",
    "compact",
    "java compact",
    "alter",
)
PARTITIONS = "xyz"
SOME_TEXTS = (None, "", "a", "ab ", "abc")
SOME_FLOATS = (None, 0.0, float("nan"), float("inf"), 1.5)


@dataclass
class Model:
    """The rows that the table must have, by id. `wide` says that `v` became a BIGINT, and `late`
    that there is a column `w`.
    """

    dice: Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    ids: int = 0
    wide: bool = False
    late: bool = False

    def fresh(self) -> list[dict[str, Any]]:
        """New rows, which the model has from now on."""
        made = []
        for _ in range(self.dice.choice((3, 20))):
            row = {
                "id": self.ids,
                "p": self.dice.choice(PARTITIONS),
                "v": self.dice.choice((None, self.dice.randrange(100))),
                "f": self.dice.choice(SOME_FLOATS),
                "c": self.dice.choice(SOME_TEXTS),
            }
            if self.late:
                row["w"] = self.dice.choice((None, "new"))
            self.rows[self.ids] = row
            self.ids += 1
            made.append(row)
        return made

    def chosen(self) -> tuple[set[int], pc.Expression | str]:
        """A condition, and the ids of the rows that fulfil it."""
        low, part = self.dice.randrange(self.ids), self.dice.choice(PARTITIONS)
        match self.dice.randrange(4):
            case 0:
                where: pc.Expression | str = (pc.field("id") >= low) & (pc.field("p") == part)
                found = {one for one, row in self.rows.items() if one >= low and row["p"] == part}
            case 1:
                where = f"id < {low} AND v IS NULL"
                found = {one for one, row in self.rows.items() if one < low and row["v"] is None}
            case 2:
                where = "v > 50"
                found = {one for one, row in self.rows.items() if (row["v"] or 0) > 50}
            case _:
                where = pc.field("id").isin([low, low + 3])
                found = {low, low + 3} & self.rows.keys()
        return found, where


def arrow(rows: list[dict[str, Any]], table: PaimonTable) -> pa.Table:
    return pa.Table.from_pylist(rows, table.to_arrow().schema)


@pytest.mark.parametrize("name", few(TABLES, lambda name: name in OFTEN))
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_java_reads_the_rows_of_a_model_after_each_change(
    name: str, seed: int, tmp_path: Path, kinds: Any
) -> None:
    dice, path = Random(f"{seed} {name}"), tmp_path / "db.db" / "t"
    options = {"compaction.min.file-num": "2", **TABLES[name]}
    PaimonTable.create(str(path), COLUMNS, partition_keys=["p"], options=options)
    model = Model(dice)
    for number in range(examples(10, 16)):
        step = "append" if number < 2 else dice.choice(STEPS)
        table = PaimonTable.load(str(path))
        match step:
            case "append":
                table.append(arrow(model.fresh(), table))
            case "java append":
                kinds.write(path, [tuple(row.values()) for row in model.fresh()])
            case "delete":
                gone, where = model.chosen()
                assert table.delete(where).rows == len(gone)
                model.rows = {one: row for one, row in model.rows.items() if one not in gone}
            case "update" | "move":
                update(step, model, table)
            case "merge":
                merge(model, table)
            case "merge twice":
                refuse_two_rows_for_one(model, table)
            case "compact":
                table.compact(full=True)
            case "java compact" if not ("tracked" in name and options.get("file.format") == "avro"):
                kinds.compact(path)
            case "alter" if not model.wide:
                kinds.alter_table(path, ("type", "v", "BIGINT"))
                model.wide = True
            case "alter" if not model.late:
                kinds.alter_table(path, ("add", "w", "STRING"))
                model.late = True
                for row in model.rows.values():
                    row["w"] = None
        compare(kinds, path, model, (number, step))


def update(step: str, model: Model, table: PaimonTable) -> None:
    """Updates rows of the table and of the model, or moves them to another partition."""
    chosen, where = model.chosen()
    part = model.dice.choice(PARTITIONS)
    if step == "move":
        report = table.update(where, {"v": "id + 1"}, {"p": part, "f": 2.5})
        for one in chosen:
            model.rows[one] |= {"v": one + 1, "p": part, "f": 2.5}
    else:
        report = table.update(
            where, {"v": pc.field("v") + 1, "c": "CASE WHEN c = 'a' THEN 'b' END"}
        )
        for one in chosen:
            row = model.rows[one]
            value = None if row["v"] is None else row["v"] + 1
            model.rows[one] = {**row, "v": value, "c": "b" if row["c"] == "a" else None}
    assert report.rows == len(chosen)


Row = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """A clause of a merge: as it is given, and what it does with a row of the model. `row` is {} for
    a row of the source without a match, and `source` is {} for a row of the table without a match.
    A `change` that returns None deletes the row.
    """

    add: Callable[[Any], Any]
    holds: Callable[[Row, Row], bool]
    change: Callable[[Row, Row], Row | None]


def adds_source(row: Row, source: Row) -> Row:
    is_null = row["v"] is None or source["x"] is None
    return {**row, "v": None if is_null else row["v"] + source["x"], "c": "m"}


MATCHED = (
    Said(
        lambda merge: merge.when_matched_delete("source.x < 20"),
        lambda row, source: source["x"] is not None and source["x"] < 20,
        lambda row, source: None,
    ),
    Said(
        lambda merge: merge.when_matched_update(
            {"v": "source.x", "p": "source.q"}, "target.v IS NULL OR source.x > 60"
        ),
        lambda row, source: row["v"] is None or (source["x"] or 0) > 60,
        lambda row, source: {**row, "v": source["x"], "p": source["q"]},
    ),
    Said(
        lambda merge: merge.when_matched_update({"v": "target.v + source.x", "c": "'m'"}),
        lambda row, source: True,
        adds_source,
    ),
)
NOT_MATCHED = (
    Said(
        lambda merge: merge.when_not_matched_insert(
            {"id": "source.id", "p": "source.q", "v": "source.x"},
            "source.id IS NOT NULL AND source.x > 30",
        ),
        lambda row, source: (source["x"] or 0) > 30,
        lambda row, source: {"p": source["q"], "v": source["x"]},
    ),
    Said(
        lambda merge: merge.when_not_matched_insert(
            {"id": "source.id", "p": "'x'", "f": "1.5"}, "source.id IS NOT NULL"
        ),
        lambda row, source: True,
        lambda row, source: {"p": "x", "f": 1.5},
    ),
)
NOT_MATCHED_BY_SOURCE = (
    Said(
        lambda merge: merge.when_not_matched_by_source_delete("v > 80 AND target.p = 'y'"),
        lambda row, source: (row["v"] or 0) > 80 and row["p"] == "y",
        lambda row, source: None,
    ),
    Said(
        lambda merge: merge.when_not_matched_by_source_update({"v": "NULL"}, "target.v > 60"),
        lambda row, source: (row["v"] or 0) > 60,
        lambda row, source: {**row, "v": None},
    ),
)


def drawn_source(model: Model) -> dict[int, Row]:
    """Rows of a source by id: of some rows of the table, and of new ones."""
    count = min(model.dice.choice((0, 2, 30)), len(model.rows))
    ids = model.dice.sample(sorted(model.rows), count)
    ids += range(model.ids, model.ids + model.dice.choice((0, 3)))
    model.ids += 3
    return {
        one: {
            "x": model.dice.choice((None, model.dice.randrange(100))),
            "q": model.dice.choice(PARTITIONS),
        }
        for one in ids
    }


def source_table(source: dict[int, Row]) -> pa.Table:
    """The source, with a row whose id is NULL."""
    schema = pa.schema([("id", pa.int32()), ("x", pa.int32()), ("q", pa.string())])
    rows = [{"id": one, **row} for one, row in source.items()]
    return pa.Table.from_pylist([*rows, {"id": None, "x": 99, "q": "z"}], schema)


def merge(model: Model, table: PaimonTable) -> None:
    """Merges a random source by random clauses into the table and into the model."""
    dice, source = model.dice, drawn_source(model)
    chosen = [
        [said for said in clauses if dice.random() < 0.6]
        for clauses in (MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE)
    ]
    if not any(chosen):
        chosen[0] = [MATCHED[-1]]
    on: Any = dice.choice((["id"], "source.id = target.id", "source.id + 1 = target.id + 1"))
    merging = table.merge(source_table(source), on=on)
    for said in (said for clauses in chosen for said in clauses):
        merging = said.add(merging)
    report = merging.execute()
    columns = dict.fromkeys(field.name for field in table.schema.fields)
    after: dict[int, Row] = {}
    counts = [0, 0, 0]
    for one in model.rows.keys() | source.keys():
        row, given = model.rows.get(one, {}), source.get(one, {})
        clauses = chosen[0 if row and given else 1 if given else 2]
        said = next((said for said in clauses if said.holds(row, given)), None)
        changed: Row | None = row or None
        if said is not None:
            changed = said.change(row, given)
            counts[2 if not row else 1 if changed is None else 0] += 1
        if changed is not None:
            after[one] = {**columns, **changed, "id": one}
    model.rows = after
    assert [report.rows_updated, report.rows_deleted, report.rows_inserted] == counts


def refuse_two_rows_for_one(model: Model, table: PaimonTable) -> None:
    """Two rows of a source for one row of the table change nothing."""
    if not model.rows:
        return
    one = model.dice.choice(sorted(model.rows))
    source = source_table({one: {"x": 1, "q": "x"}})
    twice = pa.concat_tables([source, source])
    merging = table.merge(twice, on=["id"]).when_matched_update({"v": "source.x"})
    with pytest.raises(AmbiguousMerge, match=rf"keys of such rows: {one}\b"):
        merging.execute()


def compare(kinds: Any, path: Path, model: Model, what: object) -> None:
    """Java reads the rows of the model, and we read them as Java does. The table is whole."""
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(kinds, table))
    found = {row["id"]: row for row in kinds.read(path)}
    assert found.keys() == model.rows.keys(), what
    for one, row in model.rows.items():
        assert repr(plain(found[one])) == repr(plain(row)), what
    assert not [one for one in table.verify(sample=1000).findings if one.severity != "info"], what


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row without the padding of CHAR, which readers may show or not."""
    return {**row, "c": None if row["c"] is None else row["c"].rstrip(" ")}


@pytest.mark.parametrize("vectors", [False, True])
def test_rows_that_stay_keep_their_ids_and_updated_rows_get_new_ones(
    vectors: bool, tmp_path: Path, kinds: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    options = {"row-tracking.enabled": "true", "deletion-vectors.enabled": str(vectors).lower()}
    table = PaimonTable.create(str(path), [("id", "INT"), ("v", "INT")], options=options)
    table.append(
        pa.table({"id": pa.array(range(10), pa.int32()), "v": pa.array([0] * 10, pa.int32())})
    )
    before = {row["id"]: row["_ROW_ID"] for row in kinds.read_tracked(path)}
    table.delete("id = 3")
    table.update("id >= 8", new_values={"v": 1})
    rows = {row["id"]: row for row in kinds.read_tracked(path)}
    assert {one: rows[one]["_ROW_ID"] for one in rows if one < 8} == {
        one: number for one, number in before.items() if one < 8 and one != 3
    }
    assert sorted(rows[one]["_ROW_ID"] for one in (8, 9)) == [10, 11]
    assert {rows[one]["_SEQUENCE_NUMBER"] for one in (8, 9)} == {3}
    assert {rows[one]["_SEQUENCE_NUMBER"] for one in rows if one < 8} == {1}
    table.compact(full=True)
    assert {row["id"]: row["_ROW_ID"] for row in kinds.read_tracked(path)} == {
        one: row["_ROW_ID"] for one, row in rows.items()
    }


def test_java_appends_after_rewritten_rows_of_a_bucket_in_their_order(
    tmp_path: Path, kinds: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    table = PaimonTable.create(
        str(path), [("id", "INT"), ("v", "INT")], options={"bucket": "1", "bucket-key": "id"}
    )
    for first in (0, 5):
        ids = pa.array(range(first, first + 5), pa.int32())
        table.append(pa.table({"id": ids, "v": ids}))
    table.delete("id IN (1, 6)")
    table.update("id = 2", {"v": "v + 100"})
    kinds.write(path, [(10, 10)])
    expected = [0, 3, 4, 5, 7, 8, 9, 2, 10]
    assert [row["id"] for row in kinds.read(path)] == expected
    assert table.to_arrow()["id"].to_pylist() == expected
    numbers = sorted(
        (one["minSequenceNumber"], one["maxSequenceNumber"]) for one in kinds.files(path)
    )
    assert all(below[1] < above[0] for below, above in pairwise(numbers))
