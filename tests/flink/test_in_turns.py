"""This package and Flink write, compact and alter one table in turns. After each step both read the
same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from tests.kits.beside_flink import Shared
from tests.kits.flink import Flink
from tests.kits.params import few


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        options: its options.
        keys: its primary key.
        partitions: its partition keys.
        updates: whether Flink's UPDATE can change it.
        deletes: whether both engines can delete its rows.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    updates: bool = False
    deletes: bool = False


def keyed(
    *,
    keys: tuple[str, ...] = ("id",),
    partitions: tuple[str, ...] = (),
    updates: bool = True,
    deletes: bool = True,
    **options: str,
) -> Kind:
    """A kind with a primary key. Underscores in the names of options stand for - and ."""
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return Kind({"bucket": "2", **named}, keys, partitions, updates, deletes)


LEFT: Final = {"write_only": "true"}
"""Whoever writes leaves the compaction to others."""
KINDS: Final[dict[str, Kind]] = {
    "append": Kind(),
    "append_orc": Kind({"file.format": "orc"}),
    "append_avro": Kind({"file.format": "avro"}),
    "append_buckets": Kind({"bucket": "2", "bucket-key": "id"}, partitions=("s",)),
    "append_vectors": Kind({"deletion-vectors.enabled": "true"}),
    "append_tracked": Kind({"row-tracking.enabled": "true"}),
    "keyed": keyed(),
    "keyed_orc": keyed(file__format="orc"),
    "keyed_partitioned": keyed(keys=("id", "s"), partitions=("s",)),
    "keyed_dynamic": keyed(bucket="-1", dynamic_bucket__target_row_num="10"),
    "keyed_vectors": keyed(deletion_vectors__enabled="true", **LEFT),
    "keyed_input": keyed(changelog_producer="input"),
    "keyed_lookup": keyed(changelog_producer="lookup", **LEFT),
    "keyed_full": keyed(changelog_producer="full-compaction", **LEFT),
    "sums": keyed(
        updates=False,
        deletes=False,
        merge_engine="aggregation",
        fields__v__aggregate_function="sum",
    ),
    "partial": keyed(deletes=False, merge_engine="partial-update"),
    "first_row": keyed(updates=False, deletes=False, merge_engine="first-row", **LEFT),
    "sequenced": keyed(sequence__field="v"),
    "postponed": keyed(bucket="-2", **LEFT),
}


class Turns:
    """A table of a kind, and the ids that it should have. Of some kinds, rows are read only once
    they are compacted; both engines agree on that.
    """

    def __init__(self, flink: Flink, name: str) -> None:
        self.kind = KINDS[name]
        self.flink = flink
        self.shared = Shared(flink, name, self.kind.keys, self.kind.partitions, self.kind.options)
        self.expected: list[int] = []

    def adds(self, *ids: int) -> None:
        self.expected += [key for key in ids if not (self.kind.keys and key in self.expected)]

    def ours(self, ids: range, v: int) -> None:
        """We append rows."""
        self.shared.append(ids, v)
        self.adds(*ids)

    def flinks(self, *rows: str) -> None:
        """Flink inserts rows, which are texts in SQL. Each begins with its id."""
        values = ", ".join(f"({row})" for row in rows)
        self.flink.sql(f"INSERT INTO {self.shared.name} VALUES {values}")
        self.adds(*(int(row.split(",")[0]) for row in rows))

    def without(self, *ids: int) -> None:
        self.expected = [key for key in self.expected if key not in ids]

    def agree(self) -> None:
        assert self.shared.ours() == self.shared.flinks()


@pytest.mark.parametrize(
    "name", few(KINDS, {"append", "keyed_dynamic", "keyed_lookup"}.__contains__)
)
def test_both_go_on_with_what_the_other_has_written(flink: Flink, name: str) -> None:
    turns = Turns(flink, name)
    both_write(turns)
    both_compact(turns)
    both_change_rows(turns)
    flink_adds_a_column(turns)
    turns.shared.table.compact(full=True)
    turns.agree()
    assert sorted(turns.shared.ids().elements()) == sorted(turns.expected)
    assert turns.shared.codes() == set()


def both_write(turns: Turns) -> None:
    turns.ours(range(40), 0)
    turns.ours(range(20, 60), 1000)
    if turns.kind.deletes:
        turns.shared.append(range(5), 2000, kind="-D")
        turns.without(*range(5))
    turns.agree()
    turns.flinks(
        "50, CAST(7 AS INT), 'p2'", "100, CAST(8 AS INT), 'p1'", "101, CAST(NULL AS INT), 'p2'"
    )
    turns.agree()
    turns.ours(range(95, 105), 3000)
    turns.agree()


def both_compact(turns: Turns) -> None:
    turns.flink.sql(
        f"CALL sys.compact(`table` => '{turns.shared.name}', options => 'write-only=false')"
    )
    turns.agree()
    turns.ours(range(10), 4000)
    turns.shared.table.compact(full=True)
    turns.agree()


def both_change_rows(turns: Turns) -> None:
    name = turns.shared.name
    if turns.kind.updates:
        turns.flink.sql(f"UPDATE {name} SET v = 5 WHERE id = 100")
        turns.agree()
    if turns.kind.deletes:
        turns.flink.sql(f"DELETE FROM {name} WHERE id = 101")
        turns.without(101)
        turns.agree()
        turns.shared.append(range(7, 10), 4000, kind="-D")
        turns.without(*range(7, 10))
    turns.ours(range(200, 210), 1)


def flink_adds_a_column(turns: Turns) -> None:
    name = turns.shared.name
    turns.flink.sql(f"CALL sys.create_tag(`table` => '{name}', tag => 'before')")
    rows = turns.shared.ours()
    turns.flink.sql(f"ALTER TABLE {name} ADD (x BIGINT)")
    turns.flinks("300, CAST(1 AS INT), 'p0', CAST(9 AS BIGINT)")
    turns.agree()
    turns.ours(range(300, 304), 6)
    turns.agree()
    tagged = turns.shared.table.to_arrow(tag="before").to_pylist()
    assert {tuple(row.values()) for row in tagged} == set(rows)
