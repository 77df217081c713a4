"""Random tables with a primary key: no compaction changes a row, whatever its engine, options and
deletes.
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import BadRowKind, InvalidData, InvalidOption, NumericOverflow
from tests.kits.compacted_stream import CompactedStream
from tests.kits.compaction import WAYS, problems
from tests.kits.keyed import commit_changes
from tests.kits.random_tables import Definition, batches, definition
from tests.kits.reading import wire_rows
from tests.kits.seeds import seeds


def rows_of(table: PaimonTable, made: Definition, snapshot: int | None = None) -> Counter[str]:
    """The rows as texts. Sums of floats depend on the order of adding, also in Java, so they are
    left out.
    """
    names = [name for name, _ in made.columns]
    floats = {
        name
        for name, type_ in made.columns
        if type_ in ("FLOAT", "DOUBLE") and name.startswith("v")
    }
    rows = wire_rows(table.to_arrow(snapshot_id=snapshot), table.schema.fields)
    return Counter(
        repr(
            [
                sorted(value, key=str)
                if name in made.unordered and isinstance(value, list)
                else value
                for name, value in zip(names, row, strict=True)
                if name not in floats
            ]
        )
        for row in rows
    )


def created(root: Path, made: Definition) -> PaimonTable | None:
    """The table; None if its options contradict each other."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = str(root / "db.db" / "t")
            return PaimonTable.create(
                path,
                made.columns,
                partition_keys=made.partition,
                primary_keys=made.keys,
                options=made.options,
            )
    except InvalidOption:
        return None


def compact_a_random_table(root: Path, seed: int) -> str:
    """Returns what happened to the table of this seed."""
    random = Random(seed)
    made = definition(random)
    if made.options["merge-engine"] == "first-row":
        return "refused"
    made.options.update(random.choice(WAYS))
    table = created(root, made)
    if table is None:
        return "refused"
    compacted = 0
    for identifier, batch in enumerate((one for _ in range(4) for one in batches(random, made)), 1):
        try:
            commit_changes(table, batch, identifier)
            before = rows_of(table, made)
        except (InvalidData, BadRowKind):
            return "not readable"
        if random.random() < 0.6:
            try:
                report = table.compact(full=random.random() < 0.15)
            except NumericOverflow:
                return "overflow"
            after = rows_of(table, made)
            assert after == before, (seed, identifier, before - after, after - before)
            compacted += report.snapshot_id is not None
    assert not [one for one in table.verify(sample=0).findings if one.severity == "error"]
    return "compacted" if compacted else "nothing to do"


@pytest.mark.parametrize("group", range(2))
def test_no_row_changes(tmp_path: Path, group: int) -> None:
    tried = [one + 500 * group for one in seeds(10, 200)]
    ends = Counter(compact_a_random_table(tmp_path / str(seed), seed) for seed in tried)
    assert ends["compacted"] >= 2, ends


def stream_into_a_random_table(root: Path, seed: int) -> str:
    """A stream that compacts behind its batches, sometimes in a new run. Returns what happened."""
    random = Random(seed)
    made = definition(random)
    if made.options["merge-engine"] == "first-row":
        return "refused"
    made.options.update({**random.choice(WAYS), "write-only": "false"})
    table = created(root, made)
    if table is None:
        return "refused"
    stream, compacted = CompactedStream(table), 0
    for batch in (one for _ in range(3) for one in batches(random, made)):
        try:
            stream.batch(batch)
            newest = table.snapshots()[-1]
            after = rows_of(table, made)
            if newest.commit_kind.value == "COMPACT":
                before = rows_of(table, made, newest.id - 1)
                assert after == before, (seed, newest.id, before - after, after - before)
                compacted += 1
        except (InvalidData, BadRowKind):
            return "not readable"
        except NumericOverflow:
            return "overflow"
        if random.random() < 0.1:
            stream.start()
    assert not problems(table)
    grouped = any("sequence-group" in one for one in made.options)
    return "nothing to do" if not compacted else "with groups" if grouped else "compacted"


def test_no_row_changes_by_the_compactions_of_a_stream(tmp_path: Path) -> None:
    ends = Counter(
        stream_into_a_random_table(tmp_path / str(seed), 7000 + seed) for seed in seeds(24, 300)
    )
    assert ends["compacted"] >= 3, ends
    assert ends["with groups"] >= 2, ends
