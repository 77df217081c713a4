"""A Python worker of Spark that runs many tasks sets its modules aside from the search for garbage,
once, and does not read the lists of Spark's own archives before each task. It imports only what it
needs.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pyspark")

from paimon_stream import PaimonTable
from paimon_stream.spark.reused_worker import CALLS, count_call, keep_archives


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


class _Knot:
    def __init__(self) -> None:
        self.self = self


def test_what_a_worker_holds_is_set_aside_in_its_second_call_and_only_then() -> None:
    worker: Counter[int] = Counter()
    before = gc.get_freeze_count()
    count_call(worker)
    assert gc.get_freeze_count() == before
    held: list[list[object]] = [[] for _ in range(5000)]
    count_call(worker)
    frozen = gc.get_freeze_count()
    assert frozen >= before + len(held)
    for _ in range(3):
        count_call(worker)
        assert gc.get_freeze_count() <= frozen


def test_no_garbage_is_set_aside_and_later_garbage_is_collected() -> None:
    worker: Counter[int] = Counter()
    count_call(worker)
    old = weakref.ref(_Knot())
    count_call(worker)
    assert old() is None
    new = weakref.ref(_Knot())
    gc.collect()
    assert new() is None


def test_each_call_of_the_data_source_counts(tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.datasource", reason="data sources in Python need pyspark 4.0")
    from paimon_stream.spark.datasource import PaimonDataSource

    table = PaimonTable.create(str(tmp_path / "t"), [("id", "BIGINT")])
    table.append(pa.table({"id": [1, 2]}))
    before = CALLS[os.getpid()]
    source = PaimonDataSource({"path": table.location})
    schema = source.schema()
    assert CALLS[os.getpid()] == before + 1
    reader = source.reader(schema)
    assert CALLS[os.getpid()] == before + 2
    (split,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(split)) == 2
    assert CALLS[os.getpid()] == before + 3


@pytest.mark.parametrize(
    "name", ["pyspark.zip", "py4j-0.10.9.7-src.zip", "spark-core_2.12-3.5.9.jar"]
)
def test_the_archives_of_spark_are_not_read_again_and_are_imported_from_as_before(
    tmp_path: Path, name: str
) -> None:
    archive = _archive(tmp_path / name)
    importers = {archive: zipimporter(archive), f"{archive}/inner": zipimporter(f"{archive}/inner")}
    keep_archives(importers)
    assert importers == {}
    assert zipimporter(archive).find_spec("one") is not None


def test_other_archives_and_folders_are_looked_at_before_each_task(tmp_path: Path) -> None:
    names = ("job.zip", "mypyspark.zip", "pyspark.zip.old", "py4j.zip", "my-spark-core_2.12.jar")
    archives = [_archive(tmp_path / name) for name in names]
    importers = {archive: zipimporter(archive) for archive in archives} | {
        "/": object(),
        "/none": None,
    }
    before = dict(importers)
    keep_archives(importers)
    assert importers == before


def _archive(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("one.py", "")
        archive.writestr("inner/__init__.py", "")
    return str(path)


def test_a_worker_that_appends_imports_nothing_for_keys_formats_and_storages_of_others() -> None:
    code = "import sys, pyarrow.parquet, paimon_stream.spark.tasks\nprint(*sys.modules, sep='\\n')"
    command = [sys.executable, "-c", code]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "paimon_stream.write.parquet_file" in imported
    assert not {
        "configparser",
        "http.client",
        "paimon_stream.merge.rows",
        "paimon_stream.storage.hdfs",
        "paimon_stream.storage.local",
        "paimon_stream.storage.memory",
        "paimon_stream.storage.object_store",
        "paimon_stream.storage.uri",
        "paimon_stream.write.avro_data",
        "paimon_stream.write.key_task",
        "paimon_stream.write.orc_file",
        "paimon_stream.write.row_kinds",
        "paimon_stream.write.shuffle_packets",
        "pyarrow.orc",
        "urllib.request",
    } & set(imported)


_WRITE = """
import sys
import pyarrow as pa
from pyspark import TaskContext
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Options
from paimon_stream.spark.tasks import ANSWER, WriteTask, pack_task
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.write.task import WriteSpec, decode_result

file, partition_keys, primary_keys, is_packed, *options = sys.argv[1:]
with pa.OSFile(file) as source:
    batches = list(pa.ipc.open_stream(source))
types = {"id": "BIGINT", "part": "INT", "text": "STRING", "code": "STRING", "total": "DECIMAL(9, 2)", "at": "TIMESTAMP(6)"}
types |= {"share": "DOUBLE", "part_share": "FLOAT"}
types |= {"tags": "ARRAY<STRING>", "labels": "MAP<STRING, INT>", "place": "ROW<zip INT>"}
schema = TableSchema(
    id=0,
    fields=tuple(
        DataField(
            id=number, name=name, type=parse_type(text).with_nullable(name not in primary_keys)
        )
        for number, (name, text) in enumerate(types.items())
    ),
    highest_field_id=len(types) - 1,
    partition_keys=tuple(partition_keys.split()),
    primary_keys=tuple(primary_keys.split()),
    options=dict(option.split("=") for option in options),
)
spec = WriteSpec(storage=MemoryStorage(), schema=schema, options=Options(schema.options))
context = TaskContext._getOrCreate()
context._partitionId = context._attemptNumber = 0
if is_packed:
    batches = list(pack_task(spec, (0, 1), batches))
[result] = WriteTask(spec=spec, attempts=1, packed=bool(is_packed))(batches)
answer = decode_result(result.column(ANSWER).to_pylist()[0])
print(sum(one.row_count for message in answer.messages for one in message.new_files))
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize(
    ("table", "written"),
    [
        (("", "", ""), 4),
        (("part", "", ""), 4),
        (("", "", "", "bucket=2", "bucket-key=id"), 4),
        (("", "id", "", "bucket=2"), 3),
        (("", "id", "", "bucket=2", "sequence.field=share"), 3),
        (("", "id", "", "bucket=2", "sequence.field=text"), 3),
        (("", "id code", "packed", "bucket=2"), 3),
    ],
)
def test_a_worker_that_writes_does_not_import_pandas(
    tmp_path: Path, table: tuple[str, ...], written: int
) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 4, 3, 4], pa.int64()),
            "part": pa.array([1, 2, 1, None], pa.int32()),
            "text": ["a", "b", None, "d"],
            "code": ["x", "y", "z", "y"],
            "total": pa.array([1, 2, 3, None], pa.decimal128(9, 2)),
            "at": pa.array([1, 2, 3, None], pa.timestamp("us")),
            "share": pa.array([0.0, -0.0, None, 1.0], pa.float64()),
            "part_share": pa.array([0.0, -1.0, None, -0.0], pa.float32()),
            "tags": pa.array([["a", "b"], [], ["c"], ["d"]], pa.list_(pa.string())),
            "labels": pa.array([[("a", 1)], [], [], []], pa.map_(pa.string(), pa.int32())),
            "place": pa.array([{"zip": 1}] * 4, pa.struct([("zip", pa.int32())])),
        }
    )
    file = tmp_path / "rows"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    command = [sys.executable, "-c", _WRITE, str(file), *table]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(written), "False"]
