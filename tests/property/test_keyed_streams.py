"""Any stream of changes, written by our key tasks in any batches and pieces, is what a dict makes
of it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.runtime import simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.table import create_table
from paimon_stream.write.routing import Router
from tests.kits.keyed import ENGINES, Change, Engine, Model, write_changes
from tests.kits.seeds import examples
from tests.kits.tables import batch_of

pytestmark = pytest.mark.lowest

KEYS: Mapping[str, list[Any]] = {
    "INT": [-(2**31), -1, 0, 7, 256],
    "BIGINT": [-(2**63), -1, 0, 2**63 - 1],
    "STRING": ["", "a", "ab", "é", "\uffff", "\U0001f600", "x" * 40],
    "VARBINARY(20)": [b"", b"\x00", b"\x7f", b"\x80\x01"],
    "DATE": [dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "DECIMAL(20, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("99999999999999999.25")],
    "TIMESTAMP(6)": [
        dt.datetime(1969, 12, 31, 23, 59, 59, 1),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    ],
}
FORMATS = ["parquet", "parquet", "parquet", "orc", "avro"]


@dataclass(frozen=True)
class Stream:
    """A table to be, the batches of changes for it, and how they come."""

    engine: Engine
    key_types: tuple[str, ...]
    partitioned: bool
    options: Mapping[str, str]
    batches: tuple[tuple[Change, ...], ...]
    pieces: int
    buffer_bytes: int
    is_sorted: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """The primary key."""
        names = tuple(f"k{number}" for number in range(len(self.key_types)))
        return (*names, "p") if self.partitioned else names

    def model(self) -> Model:
        """A dict for it, empty."""
        return self.engine.model(keys=self.keys)

    def table(self, storage: Storage) -> PaimonTable:
        """The table, empty."""
        keys = [(f"k{number}", f"{type_} NOT NULL") for number, type_ in enumerate(self.key_types)]
        columns = [("v", "STRING"), *keys, ("n", "BIGINT"), ("s", "INT")]
        if self.partitioned:
            columns.insert(1, ("p", "STRING NOT NULL"))
        made = create_table(
            storage,
            [
                DataField(id=i, name=name, type=parse_type(type_))
                for i, (name, type_) in enumerate(columns)
            ],
            partition_keys=["p"] if self.partitioned else [],
            primary_keys=self.keys,
            options={**self.options, **self.engine.options},
        )
        assert made is not None
        return PaimonTable(made)


@st.composite
def streams(draw: st.DrawFn, rows: int = 30) -> Stream:
    engine = ENGINES[draw(st.sampled_from(sorted(ENGINES)))]
    key_types = tuple(draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2)))
    partitioned = draw(st.booleans())
    options = {
        "bucket": draw(st.sampled_from(["1", "2", "5"])),
        "file.format": draw(st.sampled_from(FORMATS)),
        "data-file.thin-mode": draw(st.sampled_from(["true", "false"])),
    }
    if options["file.format"] == "orc" and "TIMESTAMP(6)" in key_types:
        options["file.format"] = "parquet"  # ORC takes no fractions of seconds before 1970
    if len(key_types) > 1 and draw(st.booleans()):
        options["bucket-key"] = "k1"
    change = st.fixed_dictionaries(
        {
            **{
                f"k{number}": st.sampled_from(KEYS[type_]) for number, type_ in enumerate(key_types)
            },
            **({"p": st.sampled_from(["a", "b", "ü/="])} if partitioned else {}),
            "v": st.none() | st.text(max_size=3),
            "n": st.none() | st.integers(-(2**40), 2**40),
            "s": st.none() | st.integers(0, 5),
        }
    )
    kinds = st.sampled_from(engine.kinds)
    batches = draw(
        st.lists(st.lists(st.tuples(kinds, change), max_size=rows), min_size=1, max_size=4)
    )
    stream = Stream(
        engine=engine,
        key_types=key_types,
        partitioned=partitioned,
        options=options,
        batches=tuple(map(tuple, batches)),
        pieces=draw(st.sampled_from([1, 2, 7])),
        buffer_bytes=draw(st.sampled_from([1, 600, 2**20])),
        is_sorted=draw(st.booleans()),
    )
    return stream if engine.free_deletes else replace(stream, batches=tuple(only_known(stream)))


def only_known(stream: Stream) -> Iterable[tuple[Change, ...]]:
    """The batches with nothing taken back from keys that are not there."""
    there: set[tuple[Any, ...]] = set()
    for batch in stream.batches:
        made = []
        for kind, row in batch:
            key = tuple(row[name] for name in stream.keys)
            made.append((kind if key in there else "+I", row))
            there.add(key)
        yield tuple(made)


def write(stream: Stream, storage: Storage) -> tuple[PaimonTable, list[list[Mapping[str, Any]]]]:
    """The table with all batches in it, and the rows that a dict has after each snapshot."""
    table, model, runtime = stream.table(storage), stream.model(), simulated(7)
    commit = TableCommit(table._table, "ours", runtime=runtime)
    states = []
    number = 0
    for identifier, batch in enumerate(stream.batches):
        changes = list(batch)
        result = write_changes(
            table._table,
            in_task_order(table, changes) if stream.is_sorted else changes,
            pieces=stream.pieces,
            first_sequence=number,
            runtime=runtime,
            buffer_bytes=stream.buffer_bytes,
            is_sorted=stream.is_sorted,
        )
        number += len(batch)
        commit.commit(identifier, result.messages)
        model.take(changes)
        if result.messages:
            states.append(model.found())
    return table, states


def in_task_order(table: PaimonTable, changes: list[Change]) -> list[Change]:
    """As Spark sorts for a task: one partition's bucket at a time, its keys in order, rows as they
    came.
    """
    if not changes:
        return changes
    inner = table._table
    numbers = Router(inner.schema, inner.options).assign(
        batch_of(inner.schema, [row for _, row in changes])
    )
    groups = [numbers] * len(changes) if isinstance(numbers, int) else numbers.tolist()
    keys = table.schema.trimmed_primary_keys
    order = sorted(
        range(len(changes)),
        key=lambda at: (groups[at], [_ordered(changes[at][1][one]) for one in keys]),
    )
    return [changes[at] for at in order]


def _ordered(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def counted(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@settings(max_examples=examples(15, 500))
@given(streams())
def test_every_snapshot_has_the_rows_of_a_dict(stream: Stream) -> None:
    table, states = write(stream, MemoryStorage())
    assert len(table.snapshots()) == len(states)
    for snapshot, state in enumerate(states, 1):
        assert counted(table.to_arrow(snapshot).to_pylist()) == counted(state)
    if states:
        alone = table.to_arrow(columns=["n"])["n"].to_pylist()
        assert sorted(alone, key=repr) == sorted((row["n"] for row in states[-1]), key=repr)


@settings(max_examples=examples(6, 120))
@given(streams(rows=20))
def test_java_reads_them_too(
    java: Any, tmp_path_factory: pytest.TempPathFactory, stream: Stream
) -> None:
    import java_paimon

    path: Path = tmp_path_factory.mktemp("stream") / "db.db" / "t"
    table, states = write(stream, LocalStorage(str(path)))
    if states:
        schema = [(one.name, str(one.type)) for one in table.schema.fields]
        assert java_paimon.canonical(schema, java.read(path)) == java_paimon.canonical(
            schema, states[-1]
        )
