"""pypaimon, Java Paimon and we write the same tables in turns: nobody loses what another wrote."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.merge.spec import KIND
from tests.conformance.test_row_tracking_beside_java import numbered
from tests.kits.other_engines import TESTS, asked, require_engines, rows_found_by, written_by
from tests.kits.params import few
from tests.kits.seeds import examples, seeds

COLUMNS = [("id", "BIGINT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "BIGINT")]
FIELDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("p", pa.string(), nullable=False),
        pa.field("v", pa.int64()),
    ]
)
Row = tuple[int, str, int | None]
PARTITIONED = {"partition_keys": ["p"]}
KEYED = {"primary_keys": ["p", "id"], "partition_keys": ["p"]}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "append, partitioned": PARTITIONED,
    "append, fixed buckets": {**PARTITIONED, "options": {"bucket": "2", "bucket-key": "id"}},
    "keyed, fixed buckets": {**KEYED, "options": {"bucket": "2"}},
    "keyed, one partition": {"primary_keys": ["id"], "options": {"bucket": "2"}},
    "row tracking": {**PARTITIONED, "options": {"row-tracking.enabled": "true"}},
    "deletion vectors": {**PARTITIONED, "options": {"deletion-vectors.enabled": "true"}},
    "row tracking, deletion vectors": {
        **PARTITIONED,
        "options": {"row-tracking.enabled": "true", "deletion-vectors.enabled": "true"},
    },
    "keyed, dynamic buckets": {**KEYED},
}
CHOSEN = ("keyed, fixed buckets", "row tracking, deletion vectors")
STEPS = ("append", "pypaimon append", "java append", "overwrite", "pypaimon overwrite")
MAINTENANCE = ("compact", "java compact", "compact manifests", "expire", "delete")


def arrow(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(FIELDS.names, row, strict=True)) for row in rows], schema=FIELDS
    )


class Turns:
    """A table that three writers change in turns, and the rows that it must have."""

    def __init__(self, kind: str, folder: Path, java: Any) -> None:
        require_engines()
        self.kind, self.folder, self.java = kind, folder, java
        self.path = folder / "db.db" / "t"
        how = KINDS[kind]
        options = {"compaction.min.file-num": "2", **how.get("options", {})}
        PaimonTable.create(str(self.path), COLUMNS, **{**how, "options": options})
        self.keyed = "primary_keys" in how
        self.partitioned = "partition_keys" in how
        self.has_vectors = "deletion-vectors.enabled" in options
        self.wanted: list[Row] = []

    @property
    def table(self) -> PaimonTable:
        return PaimonTable.load(str(self.path))

    def append(self, who: str, rows: list[Row]) -> None:
        if who == "pypaimon":
            written_by("pypaimon", "append", self.path, self.folder, arrow(rows))
        elif who == "java" and "dynamic" in self.kind:
            self.java.write_dynamic(self.path, rows)
        elif who == "java":
            self.java.write(self.path, rows)
        else:
            self.table.append(arrow(rows))
        if self.keyed:
            newer = {row[0] for row in rows}
            self.wanted = [row for row in self.wanted if row[0] not in newer]
        self.wanted += rows

    def overwrite(self, who: str, rows: list[Row], p: str) -> None:
        """Replaces a partition, or the table that has none."""
        spec = {"p": p} if self.partitioned else {}
        if who == "pypaimon":
            written_by("pypaimon", "overwrite", self.path, self.folder, arrow(rows), spec)
        else:
            self.table.overwrite(arrow(rows), spec)
        self.wanted = [row for row in self.wanted if self.partitioned and row[1] != p] + rows

    def maintain(self, step: str, dice: Random) -> None:
        if step == "compact":
            self.table.compact(full=dice.random() < 0.5)
        elif step == "java compact":
            self.java.compact(self.path)
        elif step == "compact manifests":
            self.table.compact_manifests()
        elif step == "expire":
            self.table.expire_snapshots(retain_max=3, retain_min=1)
        else:
            rest = dice.randrange(5)
            self.delete([row for row in self.wanted if row[0] % 5 == rest])

    def delete(self, gone: list[Row]) -> None:
        if self.keyed:
            kind = pa.array([3] * len(gone), pa.int8())
            self.table.append(arrow(gone).append_column(KIND, kind))
        elif self.has_vectors:
            self.table.delete(pc.field("id").isin([row[0] for row in gone]))
        else:
            return
        self.wanted = [row for row in self.wanted if row not in gone]

    def audit(self) -> None:
        """All three find the rows, we find no fault, and rows have the ids that Java reads."""
        expected = sorted(self.wanted)
        table = self.table
        assert found(table.to_arrow()) == expected
        assert found(rows_found_by("pypaimon", self.path, self.folder)) == expected
        by_java = self.java.read(self.path)
        assert sorted(tuple(row.values()) for row in by_java) == expected
        assert not table.verify(sample=1000).findings
        if "row tracking" in self.kind:
            by_java = {
                row["id"]: (row["_ROW_ID"], row["_SEQUENCE_NUMBER"])
                for row in self.java.read_tracked(self.path)
            }
            assert numbered(self.path) == by_java


def test_pypaimon_serializes_the_vectors_of_its_messages_again(tmp_path: Path) -> None:
    again = tmp_path / "vectors.json"
    asked("pypaimon", "vectors", tmp_path, again)
    assert again.read_text() == (TESTS / "vectors" / "commit_message_v14.json").read_text()


def found(rows: pa.Table) -> list[Row]:
    return sorted(tuple(row[name] for name in FIELDS.names) for row in rows.to_pylist())


@pytest.mark.parametrize("kind", few(KINDS, CHOSEN.__contains__))
@pytest.mark.parametrize("seed", seeds(1, 8))
def test_in_turns_with_pypaimon_and_java_no_row_is_lost(
    kind: str, seed: int, tmp_path: Path, kinds: Any
) -> None:
    dice, turns, ids = Random(seed), Turns(kind, tmp_path, kinds), 0
    for number in range(examples(9, 16)):
        is_first = number < len(STEPS[:3])
        step = STEPS[number] if is_first else dice.choice((*STEPS, *MAINTENANCE))
        who, _, what = step.rpartition(" ")
        p = dice.choice("xy")
        again = dice.randrange(ids + 1) if turns.keyed else ids
        count = dice.choice((3, 40))
        rows = [(one, "xy"[one % 2], number) for one in range(again, again + count)]
        if what == "append":
            turns.append(who, rows)
        elif what == "overwrite":
            rows = [row for row in rows if row[1] == p or not turns.partitioned]
            turns.overwrite(who, rows, p)
        else:
            turns.maintain(step, dice)
        ids = max(ids, again + count)
        if number % 3 == 2:
            turns.audit()
    turns.audit()
