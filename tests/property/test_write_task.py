"""Whatever the batches, partitions, buckets and limits: every row is written once, where it
belongs.
"""

from __future__ import annotations

from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_stream.format.binary_row import deserialize
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Options
from paimon_stream.runtime import simulated
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import Layout
from paimon_stream.write.routing import assign_buckets
from paimon_stream.write.task import WriteSpec, write_task
from tests.kits.seeds import examples

pytestmark = pytest.mark.lowest

STRING = parse_type("STRING")
BIGINT = parse_type("BIGINT")
FIELDS = (DataField(id=0, name="n", type=BIGINT), DataField(id=1, name="p", type=STRING))
VALUES = st.one_of(st.none(), st.sampled_from(["a", "b", "", "ü/=", "long" * 30]))
BATCHES = st.lists(st.lists(VALUES, max_size=40), max_size=8)


@settings(max_examples=examples(20, 600), deadline=None)
@given(
    data=BATCHES,
    partitioned=st.booleans(),
    buckets=st.sampled_from([-1, 1, 3]),
    target=st.sampled_from(["1 b", "600 b", "256 mb"]),
    buffer_bytes=st.sampled_from([1, 700, 2**20]),
)
def test_every_row_is_written_once_and_in_order(
    data: list[list[str | None]], partitioned: bool, buckets: int, target: str, buffer_bytes: int
) -> None:
    options = {"bucket": str(buckets), "target-file-size": target}
    if buckets > 0:
        options["bucket-key"] = "n"
    schema = TableSchema(
        id=0,
        fields=FIELDS,
        highest_field_id=1,
        partition_keys=("p",) if partitioned else (),
        options=MappingProxyType(options),
    )
    storage = MemoryStorage()
    spec = WriteSpec(
        storage=storage,
        schema=schema,
        options=Options(options),
        runtime=simulated(1),
        buffer_bytes=buffer_bytes,
    )
    expected: list[tuple[int, str | None]] = []
    batches = []
    for values in data:
        numbers = range(len(expected), len(expected) + len(values))
        expected += zip(numbers, values, strict=True)
        batches.append(
            pa.record_batch(
                {"n": pa.array(numbers, pa.int64()), "p": pa.array(values, pa.string())}
            )
        )

    result = write_task(spec, batches)

    layout = Layout.of(schema, spec.options)
    found: list[tuple[int, str | None]] = []
    for message in result.messages:
        own: list[tuple[int, str | None]] = []
        following = 0
        for file in message.new_files:
            path = layout.data_file(message.partition, message.bucket, file.file_name)
            table = pq.read_table(pa.BufferReader(storage.read(path)))
            assert table.num_rows == file.row_count > 0
            assert file.min_sequence_number == following
            following = file.max_sequence_number + 1
            own += zip(*table.to_pydict().values(), strict=True)
        assert own == sorted(own, key=lambda row: row[0])
        assert following == len(own) > 0
        if partitioned:
            assert {(value,) for _, value in own} == {deserialize([STRING], message.partition)}
        if buckets > 0:
            keys = pa.record_batch({"n": pa.array([number for number, _ in own], pa.int64())})
            assert set(assign_buckets(keys, [BIGINT], buckets).tolist()) == {message.bucket}
        found += own
    assert sorted(found, key=lambda row: row[0]) == expected
    written = [file for message in result.messages for file in message.new_files]
    assert sum(file.row_count for file in written) == len(expected)
