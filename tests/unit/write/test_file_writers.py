"""Files of every format: they roll near the target size, and nothing is left of files that are
given up.
"""

from __future__ import annotations

import gc
import io
import json
import struct
from collections.abc import Iterator
from types import MappingProxyType

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from paimon_stream.errors import InvalidData, InvalidOption, NoSpace
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, arrow_type, parse_type
from paimon_stream.options import Options
from paimon_stream.runtime import simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.write.task import WriteSpec, write_task
from tests.kits.avro_files import read_file
from tests.kits.faults import Fault, FaultyStorage

FORMATS = ("parquet", "orc", "avro")


def spec_of(storage: Storage, columns: dict[str, str], **options: str) -> WriteSpec:
    fields = tuple(
        DataField(id=i, name=n, type=parse_type(t)) for i, (n, t) in enumerate(columns.items())
    )
    given = {key.replace("__", "."): value for key, value in options.items()}
    schema = TableSchema(
        id=0, fields=fields, highest_field_id=len(fields), options=MappingProxyType(given)
    )
    return WriteSpec(storage=storage, schema=schema, options=Options(given), runtime=simulated(3))


def numbers(rows: int) -> pa.RecordBatch:
    values = np.random.default_rng(1).integers(0, 2**40, rows)
    return pa.record_batch({"a": pa.array(values), "s": pa.array(values).cast(pa.string())})


COLUMNS = {"a": "BIGINT", "s": "STRING"}


@pytest.mark.parametrize("format_", FORMATS)
def test_files_are_rolled_near_the_target(format_: str) -> None:
    spec = spec_of(MemoryStorage(), COLUMNS, file__format=format_, **{"target-file-size": "200 kb"})
    result = write_task(spec, [numbers(20_000) for _ in range(5)])
    sizes = [file.file_size for file in result.messages[0].new_files]
    assert sum(file.row_count for file in result.messages[0].new_files) == 100_000
    assert len(sizes) > 3
    assert all(100 * 1024 < size < 320 * 1024 for size in sizes[:-1])
    for file in result.messages[0].new_files:
        assert len(spec.storage.read(f"bucket-0/{file.file_name}")) == file.file_size


def all_files(storage: Storage, folder: str = "") -> list[str]:
    found = [file.path for file in storage.list_files(folder)]
    for name in storage.list_folders(folder):
        found += all_files(storage, f"{folder}/{name}" if folder else name)
    return found


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_is_left_of_a_task_whatever_operation_fails(format_: str) -> None:
    failed = 0
    for at in range(1, 200):
        inner = MemoryStorage()
        storage = FaultyStorage(inner, [Fault(at=at, error=NoSpace)])
        spec = spec_of(storage, COLUMNS, file__format=format_, **{"target-file-size": "40 kb"})
        try:
            result = write_task(spec, [numbers(3000), numbers(3000)])
        except NoSpace:
            failed += 1
            assert all_files(inner) == []
        else:
            assert len(all_files(inner)) == len(result.messages[0].new_files)
            break
    assert failed >= 6


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_is_left_of_a_task_whose_rows_end_early(format_: str) -> None:
    spec = spec_of(MemoryStorage(), COLUMNS, file__format=format_, **{"target-file-size": "40 kb"})

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers(5000)
        raise KeyError("upstream")

    with pytest.raises(KeyError):
        write_task(spec, batches())
    gc.collect()
    assert all_files(spec.storage) == []


def test_parts_of_structs_keep_their_nulls_in_orc() -> None:
    """Arrow's writer takes the NULLs of a slice from the rows before it."""
    column = "ROW<x INT, l ARRAY<INT>>"
    spec = spec_of(
        MemoryStorage(), {"s": column}, file__format="orc", **{"target-file-size": "1 kb"}
    )
    rows = [None if i % 7 else {"x": None if i % 14 else i, "l": [i]} for i in range(3000)]
    whole = pa.record_batch({"s": pa.array(rows, arrow_type(parse_type(column)))})
    written = write_task(spec, [whole.slice(start, 300) for start in range(0, 3000, 300)]).messages[
        0
    ]
    assert len(written.new_files) > 1
    found = []
    for file in written.new_files:
        found += orc.read_table(
            io.BytesIO(spec.storage.read(f"bucket-0/{file.file_name}"))
        ).to_pylist()
    assert found == [{"s": row} for row in rows]


def test_fractions_of_seconds_before_1970_are_refused_in_orc() -> None:
    spec = spec_of(MemoryStorage(), {"a": "ARRAY<TIMESTAMP(6)>"}, file__format="orc")
    fine = pa.record_batch(
        {"a": pa.array([[-1_000_000, 1, None], None], pa.list_(pa.timestamp("us")))}
    )
    assert write_task(spec, [fine]).messages[0].new_files[0].row_count == 2
    broken = pa.record_batch({"a": pa.array([[-1, 5], [-1_500_000]], pa.list_(pa.timestamp("us")))})
    with pytest.raises(InvalidData, match="before 1970") as refused:
        write_task(
            spec_of(MemoryStorage(), {"a": "ARRAY<TIMESTAMP(6)>"}, file__format="orc"), [broken]
        )
    assert refused.value.context["count"] == 2


def test_fine_timestamps_before_1970_are_the_day_and_its_time() -> None:
    spec = spec_of(MemoryStorage(), {"a": "TIMESTAMP(9)"}, file__compression="none")
    batch = pa.record_batch({"a": pa.array([-1, -5_000_000_000], pa.timestamp("ns"))})
    (file,) = write_task(spec, [batch]).messages[0].new_files
    data = spec.storage.read(f"bucket-0/{file.file_name}")
    for nanos in (86_400 * 10**9 - 1, 86_395 * 10**9):
        assert struct.pack("<qi", nanos, 2_440_587) in data


def test_other_libraries_read_every_format() -> None:
    rows = pa.record_batch({"a": pa.array([1, None]), "s": ["x", "y"]})
    found = {}
    for format_ in FORMATS:
        spec = spec_of(MemoryStorage(), COLUMNS, file__format=format_, file__compression="snappy")
        (file,) = write_task(spec, [rows]).messages[0].new_files
        found[format_] = spec.storage.read(f"bucket-0/{file.file_name}")
    assert pq.read_table(io.BytesIO(found["parquet"])).to_pylist() == rows.to_pylist()
    assert orc.read_table(io.BytesIO(found["orc"])).to_pylist() == rows.to_pylist()
    file = read_file(found["avro"], "a file")
    schema = fastavro.parse_schema(json.loads(file.schema))
    stream = io.BytesIO(file.blocks[0].data)
    assert [fastavro.schemaless_reader(stream, schema) for _ in range(2)] == rows.to_pylist()


@pytest.mark.parametrize(
    ("format_", "option", "value"),
    [
        ("parquet", "parquet.page.size", "big"),
        ("parquet", "parquet.writer.version", "v9"),
        ("parquet", "parquet.enable.dictionary", "maybe"),
        ("orc", "orc.compression.strategy", "best"),
        ("orc", "orc.stripe.size", "-1"),
    ],
)
def test_an_option_that_cannot_be_read_is_refused_by_name(
    format_: str, option: str, value: str
) -> None:
    spec = spec_of(MemoryStorage(), COLUMNS, **{"file.format": format_, option: value})
    with pytest.raises(InvalidOption) as refused:
        write_task(spec, [numbers(1)])
    assert refused.value.context["option"] == option
