"""Random tables with a primary key that Java and we write and compact in turns, and whose rows we
delete, update and merge: after each change, Java reads exactly the rows of a model, and the changelog.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import InvalidData, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from tests.conformance.test_random_merging_beside_java import JavaRefused, asked, is_accepted
from tests.kits.keyed import commit_changes
from tests.kits.params import few
from tests.kits.random_tables import TYPES, Definition, batches, definition, looking_up
from tests.kits.seeds import seeds

Row = dict[str, Any]
Key = tuple[Any, ...]


def drawn(random: Random) -> Definition:
    """A random table of any engine, some with deletion vectors, a changelog or a lookup."""
    made = looking_up(random, [{}]) if random.random() < 0.3 else definition(random)
    options = made.options
    options["write-only"] = "true"
    options.pop("rowkind.field", None)
    has_vectors = options["merge-engine"] != "first-row" and random.random() < 0.25
    if has_vectors and options.get("changelog-producer") != "full-compaction":
        options["deletion-vectors.enabled"] = "true"
    return made


class Turns:
    """One table, with what Java has read of it last."""

    def __init__(self, java: Any, path: Path, made: Definition, random: Random) -> None:
        self.java = java
        self.path = path
        self.made = made
        self.random = random
        self.rows: dict[Key, Row] = {}
        self.changed = 0
        """How many changes were made."""
        options = made.options
        self.hides = (
            options.get("deletion-vectors.enabled") == "true"
            or options["merge-engine"] == "first-row"
        )
        self.logs = options.get("changelog-producer", "none")

    @property
    def table(self) -> PaimonTable:
        return PaimonTable.load(str(self.path))

    @property
    def schema(self) -> TableSchema:
        return self.table.schema

    def key(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in self.made.keys)

    def compact(self) -> None:
        asked(self.java.compact, self.path, True)

    def read(self) -> dict[Key, Row]:
        """What Java reads, after a compaction where only that shows rows and changes."""
        if self.hides or self.logs in ("lookup", "full-compaction"):
            self.compact()
        return {self.key(row): row for row in asked(self.java.read, self.path)}

    def texts(self, rows: Mapping[Key, Row]) -> list[str]:
        import java_paimon

        fields = [(field.name, str(field.type)) for field in self.schema.fields]
        unordered = self.made.unordered
        plain = [
            {
                name: sorted(value, key=str) if name in unordered and value else value
                for name, value in row.items()
            }
            for row in rows.values()
        ]
        texts = java_paimon.canonical(fields, plain)
        if self.made.options.get("file.format") == "orc":
            texts = [text.replace("-0.0", "0.0") for text in texts]
        return texts

    # -- turns ------------------------------------------------------------------------------------
    def write(self, batch: list[Any], identifier: int) -> None:
        names = self.schema.field_names
        batch = [(kind, {**dict.fromkeys(names), **row}) for kind, row in batch]
        try:
            if self.random.random() < 0.5:
                commit_changes(self.table, batch, identifier)
            else:
                kinds, rows = zip(*batch, strict=True)
                asked(self.java.write, self.path, list(rows), "java", identifier, kinds=list(kinds))
        except (JavaRefused, InvalidData):
            return

    def others(self) -> None:
        """Something that is no change of ours: a compaction of either, or a new column."""
        draw = self.random.random()
        if draw < 0.3:
            self.compact()
        elif draw < 0.5:
            with suppress(InvalidData):  # a sum that its column cannot have
                self.table.compact(full=True)
        elif draw < 0.6 and "extra" not in self.schema.field_names:
            asked(self.java.alter_table, self.path, ("add", "extra", "INT"))

    def where(self) -> tuple[str, set[Key]]:
        """A condition, and the keys of the rows that fulfil it."""
        name = self.random.choice(["k", "k", *self.schema.field_names])
        if name == "k":
            bound = self.random.randint(0, 5)
            return f"k <= {bound}", {key for key, row in self.rows.items() if row["k"] <= bound}
        is_null = {key for key, row in self.rows.items() if row[name] is None}
        if self.random.random() < 0.5:
            return f"`{name}` IS NULL", is_null
        return f"`{name}` IS NOT NULL", self.rows.keys() - is_null

    def delete(self) -> dict[Key, Row]:
        """Deletes some rows. Returns the rows that are left."""
        where, keys = self.where()
        assert self.table.delete(where).rows == len(keys)
        return {key: row for key, row in self.rows.items() if key not in keys}

    def update(self) -> dict[Key, Row]:
        """Sets some columns of some rows. Returns all rows."""
        where, keys = self.where()
        types = dict(self.made.columns)
        names = [name for name in types if name not in self.made.keys]
        chosen = self.random.sample(names, self.random.randint(1, min(2, len(names))))
        values = {name: self.value(types[name]) for name in chosen}
        arrow = {name: arrow_value(value) for name, value in values.items()}
        assert self.table.update(where, new_values=arrow).rows == len(keys)
        return {key: row | values if key in keys else row for key, row in self.rows.items()}

    def move(self) -> dict[Key, Row]:
        """Gives a row another key. Returns all rows."""
        row = self.random.choice(list(self.rows.values()))
        k = self.random.randint(0, 9)
        where = " AND ".join(f"{name} = {row[name]}" for name in self.made.keys)
        moved = row | {"k": k}
        taken = self.key(moved) in self.rows.keys() - {self.key(row)}
        if taken:
            with pytest.raises((InvalidData, UnsupportedFeature)):
                self.table.update(where, {"k": str(k)})
            return self.rows
        self.table.update(where, {"k": str(k)})
        rest = {key: other for key, other in self.rows.items() if key != self.key(row)}
        return {**rest, self.key(moved): moved}

    def merge(self) -> dict[Key, Row]:
        """Merges a source whose rows have keys of the table and other keys. Returns all rows."""
        keys = self.random.sample(list(self.rows), self.random.randint(0, min(3, len(self.rows))))
        source = {key: dict(zip(self.made.keys, key, strict=True)) for key in keys}
        draw = self.random.choice(list(self.rows.values()) or [dict.fromkeys(self.made.keys, 1)])
        new = {name: draw[name] for name in self.made.keys} | {"k": self.random.randint(10, 19)}
        if self.key(new) not in self.rows:
            source[self.key(new)] = new
        types = dict(self.made.columns)
        names = [name for name in types if name not in self.made.keys]
        names = self.random.sample(names, self.random.randint(1, min(2, len(names))))
        for row in source.values():
            row |= {name: self.value(types[name]) for name in names}
        return self.merged_by(source, names)

    def merged_by(self, source: dict[Key, Row], names: list[str]) -> dict[Key, Row]:
        """Merges a source by random clauses. `names` are its columns that are no keys."""
        schema = self.table.to_arrow().schema
        fields = [schema.field(name) for name in (*self.made.keys, *names)]
        rows = [{name: arrow_value(row[name]) for name in row} for row in source.values()]
        table = pa.Table.from_pylist(rows, pa.schema(fields))
        table = table.append_column(
            "goes", pa.array([row["k"] % 2 == 0 for row in source.values()])
        )
        merging = self.table.merge(table, on=list(self.made.keys))
        wanted = dict(self.rows)
        if self.random.random() < 0.3:
            merging = merging.when_matched_delete("source.goes")
            for key in source.keys() & self.rows.keys():
                if source[key]["k"] % 2 == 0:
                    del wanted[key]
        merging = merging.when_matched_update({name: f"source.`{name}`" for name in names})
        for key in source.keys() & wanted.keys():
            wanted[key] = wanted[key] | source[key]
        if self.random.random() < 0.6:
            inserted = {name: f"source.`{name}`" for name in (*self.made.keys, *names)}
            merging = merging.when_not_matched_insert(inserted)
            nothing = dict.fromkeys(self.schema.field_names)
            for key in source.keys() - self.rows.keys():
                wanted[key] = nothing | source[key]
        if self.random.random() < 0.2:
            merging = merging.when_not_matched_by_source_delete("target.k > 3")
            for key in self.rows.keys() - source.keys():
                if self.rows[key]["k"] > 3:
                    del wanted[key]
        merging.execute()
        return wanted

    def value(self, type_: str) -> Any:
        if self.random.random() < 0.2:
            return None
        value = TYPES[type_][1](self.random) if type_ in TYPES else None
        return value + 0.0 if isinstance(value, float) else value

    def change(self) -> None:
        """Makes one change, and compares what Java reads with the model."""
        before = asked(self.java.snapshots, self.path)[-1]["id"]
        act = self.random.choice([self.delete, self.update, self.move, self.merge, self.merge])
        if not self.rows:
            act = self.random.choice([self.delete, self.merge])
        try:
            wanted = act()
            self.changed += wanted != self.rows
        except (InvalidData, UnsupportedFeature):
            wanted = self.rows
            assert asked(self.java.snapshots, self.path)[-1]["id"] == before
        try:
            now = self.read()
        except JavaRefused as why:
            pytest.fail(f"Java could read the rows before {act.__name__}: {why}")
        assert self.texts(now) == self.texts(wanted), act.__name__
        ours = self.table.to_arrow()
        assert ours.num_rows == len(wanted)
        if self.logs != "none":
            self.check_changelog(before, wanted)
        self.rows = now

    def check_changelog(self, before: int, wanted: dict[Key, Row]) -> None:
        """Java's changelog since a snapshot makes the rows of now of those of then. Each -U and -D
        has the whole old row.
        """
        held = dict(self.rows)
        for kind, row in asked(self.java.read_changes, self.path, before + 1):
            key = self.key(row)
            if kind in ("-U", "-D"):
                assert self.texts({key: held.pop(key)}) == self.texts({key: row}), kind
            else:
                held[key] = row
        assert self.texts(held) == self.texts(wanted)


def arrow_value(value: Any) -> Any:
    """A value of a table's column as Arrow takes it."""
    return list(value.items()) if isinstance(value, dict) else value


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_java_reads_the_rows_of_the_model_after_each_change(
    seed: int, tmp_path: Path, java: Any
) -> None:
    random = Random(f"changes {seed}")
    changed = 0
    while not changed:
        made = drawn(random)
        path = tmp_path / "db.db" / f"t{random.random()}"
        if not is_accepted(java, path, made):
            continue
        turns = Turns(java, path, made, random)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                take_turns(turns)
            except JavaRefused:
                continue  # rows that came before cannot be merged by anybody
        changed = turns.changed


def take_turns(turns: Turns) -> None:
    """Some writes, each followed by what others do and by changes of ours."""
    for identifier, batch in enumerate(batches(turns.random, turns.made), 1):
        turns.write(batch, identifier)
        if not asked(turns.java.snapshots, turns.path):
            continue
        turns.others()
        turns.rows = turns.read()
        for _ in range(2):
            turns.change()


REMOVED = {
    "deduplicate": {},
    "partial-update": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "sequence group": {
        "merge-engine": "partial-update",
        "fields.o.sequence-group": "n,v",
        "fields.n.aggregate-function": "sum",
        "partial-update.remove-record-on-sequence-group": "o",
    },
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
    "dynamic buckets": {"bucket": "-1"},
}


@pytest.mark.parametrize(
    "kind", few(REMOVED, lambda kind: kind in ("aggregation", "sequence group"))
)
def test_a_row_that_java_inserts_after_our_delete_begins_anew(
    kind: str, tmp_path: Path, java: Any
) -> None:
    path = tmp_path / "db.db" / "t"
    columns = [("k", "INT NOT NULL"), ("o", "INT"), ("v", "STRING"), ("n", "BIGINT")]
    java.create_table(
        path, columns, [], ["k"], {"bucket": "1", "write-only": "true", **REMOVED[kind]}
    )
    old = [{"k": k, "o": 1, "v": f"v{k}", "n": k} for k in range(4)]
    table = PaimonTable.load(str(path))
    commit_changes(table, [("+I", row) for row in old], 1) if kind != "dynamic buckets" else (
        table.append(pa.Table.from_pylist(old, table.to_arrow().schema))
    )
    assert table.delete("n >= 2").rows == 2
    assert sorted(row["k"] for row in java.read(path)) == [0, 1]
    assert table.update("k = 1", {"k": "7"}).rows == 1
    new = [{"k": 2, "o": 2, "v": None, "n": 100}, {"k": 1, "o": 2, "v": None, "n": None}]
    if kind == "dynamic buckets":
        table.append(pa.Table.from_pylist(new, table.to_arrow().schema))
    else:
        java.write(path, new, "java", 1)
    wanted = [old[0], new[1], new[0], old[1] | {"k": 7}]
    assert sorted(java.read(path), key=lambda row: row["k"]) == wanted
    java.compact(path, True)
    assert sorted(java.read(path), key=lambda row: row["k"]) == wanted
