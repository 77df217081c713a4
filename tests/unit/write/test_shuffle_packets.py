"""Shuffle packets give back all rows in their order, and the rows of a bucket at one shuffle
key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_stream.errors import NullInNotNull, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.table import create_table
from paimon_stream.write import shuffle_packets
from paimon_stream.write.arrow_batches import RowTooWide
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.routing import Router
from paimon_stream.write.shuffle_packets import pack, unpack
from paimon_stream.write.task import WriteSpec

KEYS = (7, 3, 11)
TYPES = {"id": "BIGINT NOT NULL", "p": "STRING NOT NULL", "n": "INT", "s": "STRING"}


def spec_of() -> WriteSpec:
    fields = [
        DataField(id=at, name=name, type=parse_type(text))
        for at, (name, text) in enumerate(TYPES.items())
    ]
    table = create_table(
        MemoryStorage(),
        fields,
        partition_keys=("p",),
        primary_keys=("p", "id"),
        options={"bucket": "5"},
    )
    assert table is not None
    return WriteSpec(storage=table.storage, schema=table.schema, options=table.options)


def rows(count: int, seed: int = 0) -> pa.RecordBatch:
    random = Random(seed)
    ids = [random.randrange(1000) for _ in range(count)]
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "p": [random.choice("abc") for _ in ids],
            "n": pa.array(range(count), pa.int32()),
            "s": [random.choice([None, "", "x" * random.randrange(60)]) for _ in ids],
        }
    )


def of_shuffle_key(
    packed: Sequence[pa.RecordBatch], key: int, size: int
) -> Iterator[pa.RecordBatch]:
    """What Spark brings to one task: the records of one shuffle key, this number of them at
    once.
    """
    table = pa.Table.from_batches(packed)
    mine = table.filter(pc.equal(table.column("shuffle_key"), key)).sort_by("number")
    whole = mine.combine_chunks().to_batches()
    return (batch.slice(at, size) for batch in whole for at in range(0, batch.num_rows, size))


@pytest.mark.parametrize("held", [1, 1 << 13, 1 << 30])
@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_rows_come_out_as_they_went_in(
    monkeypatch: pytest.MonkeyPatch, held: int, size: int
) -> None:
    monkeypatch.setattr(shuffle_packets, "_HELD_BYTES", held)
    monkeypatch.setattr(shuffle_packets, "PIECE_BYTES", 1000)
    spec, whole = spec_of(), rows(700)
    parts = [whole.slice(at, 90) for at in range(0, 700, 90)]
    packed = list(pack(spec, [whole.slice(0, 0), *parts], shuffle_keys=KEYS, task=4))
    assert {task for batch in packed for task in batch.column("task").to_pylist()} == {4}
    router, seen, buckets = Router(spec.schema, spec.options), [], []
    for key in KEYS:
        found = list(unpack(of_shuffle_key(packed, key, size)))
        numbers = [number for batch in found for number in batch.column("n").to_pylist()]
        assert numbers == sorted(numbers)
        seen += [row for batch in found for row in batch.to_pylist()]
        groups = [router.assign(batch) for batch in found]
        buckets.append(
            {int(one) for group in groups for one in ([group] if isinstance(group, int) else group)}
        )
    assert sorted(seen, key=lambda row: row["n"]) == whole.to_pylist()
    assert sum(map(len, buckets)) == len(set().union(*buckets)) == len(router.groups) == 15
    assert all(buckets)


def test_no_rows_make_no_packets() -> None:
    assert list(pack(spec_of(), [rows(0)], shuffle_keys=KEYS, task=0)) == []
    assert list(unpack([])) == []


def test_rows_with_wrong_keys_reach_the_writing_task_unchanged() -> None:
    spec, good = spec_of(), rows(50)
    bad = good.set_column(0, "id", pa.array([None, *range(49)], pa.int64()))
    packed = list(pack(spec, [good, bad], shuffle_keys=KEYS, task=0))
    came = [list(unpack(of_shuffle_key(packed, key, 10_000))) for key in KEYS]
    assert sum(batch.num_rows for batches in came for batch in batches) == 100
    with pytest.raises(NullInNotNull, match="id"):
        write_keyed_task(spec, came[0], first_sequence=0)


def test_a_packet_without_its_end_is_an_error() -> None:
    packed = list(pack(spec_of(), [rows(2000)], shuffle_keys=KEYS[:1], task=0))
    cut = packed[0].slice(0, packed[0].num_rows - 1)
    with pytest.raises(PaimonStreamError, match="did not arrive completely"):
        list(unpack([cut]))


@pytest.mark.parametrize("held", [1, 1 << 30])
def test_a_row_that_was_too_wide_is_known_to_the_task_that_writes(
    monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(shuffle_packets, "_HELD_BYTES", held)

    def refused() -> Iterator[pa.RecordBatch]:
        yield rows(50)
        raise RowTooWide

    packed = list(pack(spec_of(), refused(), shuffle_keys=KEYS, task=2))
    assert {task for batch in packed for task in batch.column("task").to_pylist()} == {2}
    with pytest.raises(RowTooWide):
        list(unpack(of_shuffle_key(packed, KEYS[0], 10_000)))


def test_packets_in_another_order_are_an_error() -> None:
    packed = next(pack(spec_of(), [rows(2000)], shuffle_keys=KEYS[:1], task=0))
    moved = packed.take(pa.array([1, 0, *range(2, packed.num_rows)]))
    with pytest.raises(PaimonStreamError, match="did not arrive completely"):
        list(unpack([moved]))


def file_of(size: int) -> DataFileMeta:
    return DataFileMeta(
        file_name="f",
        file_size=size,
        row_count=1,
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        creation_time=0,
    )


def messages(*files: Sequence[int]) -> tuple[CommitMessage, ...]:
    """One for each bucket, with files of these sizes."""
    return tuple(
        CommitMessage(
            partition=bytes(12),
            bucket=bucket,
            total_buckets=len(files),
            new_files=tuple(file_of(size) for size in sizes),
        )
        for bucket, sizes in enumerate(files)
    )
