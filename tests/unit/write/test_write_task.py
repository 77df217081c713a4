"""A write task makes the right files, holds a bounded number of rows, and removes its files after
an error.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import paimon_stream
from paimon_stream.errors import (
    AlreadyExists,
    InvalidData,
    InvalidOption,
    NoSpace,
    NullInNotNull,
    PermissionDenied,
    StorageError,
    Unavailable,
    UnsupportedFeature,
    ValueTooLong,
)
from paimon_stream.format.entries import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Options
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.storage.base import Storage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.layout import Layout
from paimon_stream.write.output import Dictionaries, worth_a_dictionary
from paimon_stream.write.task import TaskResult, WriteSpec, write_task
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment

COLUMNS = (("id", "BIGINT NOT NULL"), ("p", "STRING"), ("x", "DOUBLE"))


def spec_of(
    storage: Storage,
    columns: Sequence[tuple[str, str]] = COLUMNS,
    partition: tuple[str, ...] = (),
    buffer_bytes: int = 2**28,
    **options: str,
) -> WriteSpec:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    schema = TableSchema(
        id=3,
        fields=tuple(
            DataField(id=i, name=n, type=parse_type(t)) for i, (n, t) in enumerate(columns)
        ),
        highest_field_id=len(columns) - 1,
        partition_keys=partition,
        options=MappingProxyType(given),
    )
    return WriteSpec(
        storage=storage,
        schema=schema,
        options=Options(given),
        runtime=simulated(5),
        buffer_bytes=buffer_bytes,
    )


def rows(start: int, count: int, partitions: int = 3) -> pa.RecordBatch:
    ids = np.arange(start, start + count)
    names = pa.array([f"p{i}" for i in range(partitions)])
    return pa.record_batch({"id": ids, "p": names.take(pa.array(ids % partitions)), "x": ids / 7})


def batches(total: int, size: int, partitions: int = 3) -> Iterator[pa.RecordBatch]:
    for start in range(0, total, size):
        yield rows(start, min(size, total - start), partitions)


def all_files(storage: Storage, folder: str = "") -> list[str]:
    found = [file.path for file in storage.list_files(folder)]
    for name in storage.list_folders(folder):
        found += all_files(storage, f"{folder}/{name}" if folder else name)
    return found


def written(spec: WriteSpec, result: TaskResult) -> dict[tuple[bytes, int], list[pa.Table]]:
    """The tables in the files, by partition and bucket, and that nothing else was written."""
    layout = Layout.of(spec.schema, spec.options)
    read: dict[tuple[bytes, int], list[pa.Table]] = {}
    paths = []
    for message in result.messages:
        for file in message.new_files:
            path = layout.data_file(message.partition, message.bucket, file.file_name)
            paths.append(path)
            data = spec.storage.read(path)
            assert len(data) == file.file_size
            read.setdefault((message.partition, message.bucket), []).append(
                pq.read_table(pa.BufferReader(data))
            )
    assert sorted(paths) == sorted(all_files(spec.storage))
    return read


def ids_of(read: dict[tuple[bytes, int], list[pa.Table]]) -> list[int]:
    return [
        i for tables in read.values() for table in tables for i in table.column("id").to_pylist()
    ]


def files_of(result: TaskResult) -> list[DataFileMeta]:
    return [file for message in result.messages for file in message.new_files]


def test_no_rows_make_no_files_and_no_messages() -> None:
    spec = spec_of(MemoryStorage())
    assert write_task(spec, []) == TaskResult(messages=())
    assert write_task(spec, [rows(0, 0)]).messages == ()
    assert all_files(spec.storage) == []


def test_a_plain_table_gets_one_file_in_bucket_0_with_all_its_facts() -> None:
    spec = spec_of(MemoryStorage())
    result = write_task(spec, batches(1000, 300))
    (message,) = result.messages
    (file,) = message.new_files
    assert (message.partition, message.bucket, message.total_buckets) == (EMPTY_ROW, 0, -1)
    assert (file.row_count, file.level, file.schema_id, file.delete_row_count) == (1000, 0, 3, 0)
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 999)
    assert (file.min_key, file.max_key, file.key_stats) == (EMPTY_ROW, EMPTY_ROW, EMPTY_STATS)
    assert file.creation_time == SimulatedClock().local_millis()
    assert file.file_name.startswith("data-") and file.file_name.endswith("-0.parquet")
    ((table,),) = written(spec, result).values()
    assert table.equals(pa.Table.from_batches(batches(1000, 300)).cast(table.schema))


def test_rows_of_partitions_and_buckets_keep_their_order() -> None:
    spec = spec_of(MemoryStorage(), partition=("p",), bucket="2", bucket_key="id")
    result = write_task(spec, batches(5000, 700))
    read = written(spec, result)
    assert len(read) == 6
    assert {message.total_buckets for message in result.messages} == {2}
    ids: list[int] = []
    for (table,) in read.values():
        own = table.column("id").to_pylist()
        assert own == sorted(own)
        assert len(set(table.column("p").to_pylist())) == 1
        ids += own
    assert sorted(ids) == list(range(5000))


def test_order_is_kept_where_mixed_batches_and_batches_of_one_group_alternate() -> None:
    spec = spec_of(MemoryStorage(), partition=("p",))
    mixed = [rows(0, 10, partitions=2), rows(10, 10, partitions=1), rows(20, 10, partitions=2)]
    read = written(spec, write_task(spec, mixed))
    ids = sorted(table.column("id").to_pylist() for (table,) in read.values())
    assert ids == [
        [0, 2, 4, 6, 8, *range(10, 20), 20, 22, 24, 26, 28],
        [1, 3, 5, 7, 9, 21, 23, 25, 27, 29],
    ]


def test_partition_columns_are_in_the_file_and_the_folder() -> None:
    spec = spec_of(MemoryStorage(), partition=("p",), data_file__path_directory="data")
    write_task(spec, [rows(0, 2, partitions=1)])
    (path,) = all_files(spec.storage)
    assert path.startswith("data/p=p0/bucket-0/data-")
    assert pq.read_table(pa.BufferReader(spec.storage.read(path))).column_names == ["id", "p", "x"]


def test_names_follow_the_options() -> None:
    spec = spec_of(
        MemoryStorage(),
        data_file__prefix="part-",
        file__suffix__include__compression="true",
        file__compression="snappy",
    )
    (file,) = files_of(write_task(spec, [rows(0, 2)]))
    assert file.file_name.startswith("part-") and file.file_name.endswith("-0.snappy.parquet")


@pytest.mark.parametrize("target", [2**15, 2**16])
@pytest.mark.parametrize("size", [1000, 15_000, 100_000])
def test_files_end_near_a_small_target(target: int, size: int) -> None:
    spec = spec_of(MemoryStorage(), target_file_size=str(target))
    result = write_task(spec, batches(100_000, size))
    files = files_of(result)
    sizes = [file.file_size for file in files]
    assert len(sizes) > 2
    assert all(abs(size - target) <= 0.15 * target for size in sizes[:-1]), sizes
    assert sizes[-1] <= 1.15 * target
    firsts = [file.min_sequence_number for file in files]
    lasts = [file.max_sequence_number for file in files]
    assert firsts == [0, *(last + 1 for last in lasts[:-1])]
    assert [file.row_count for file in files] == [
        b - a + 1 for a, b in zip(firsts, lasts, strict=True)
    ]
    ids = [
        i
        for tables in written(spec, result).values()
        for t in tables
        for i in t.column("id").to_pylist()
    ]
    assert ids == list(range(100_000))


def test_row_groups_hold_at_least_256k_rows_where_the_file_is_large() -> None:
    spec = spec_of(MemoryStorage())
    write_task(spec, batches(600_000, 10_000))
    (path,) = all_files(spec.storage)
    footer = pq.ParquetFile(pa.BufferReader(spec.storage.read(path))).metadata
    counts = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    assert sum(counts) == 600_000
    assert all(count >= 256 * 1024 for count in counts[:-1]) and len(counts) <= 3


def test_the_block_size_bounds_row_groups() -> None:
    spec = spec_of(MemoryStorage(), file__block_size="64 kb")
    write_task(spec, [rows(0, 50_000)])
    (path,) = all_files(spec.storage)
    footer = pq.ParquetFile(pa.BufferReader(spec.storage.read(path))).metadata
    assert footer.num_row_groups > 10


def test_columns_with_few_values_get_a_dictionary_and_others_do_not() -> None:
    spec = spec_of(MemoryStorage())
    write_task(spec, [rows(0, 10_000)])
    (path,) = all_files(spec.storage)
    group = pq.ParquetFile(pa.BufferReader(spec.storage.read(path))).metadata.row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, True, False]


def test_a_few_rows_decide_for_columns_that_hardly_repeat_and_more_rows_for_the_others() -> None:
    random = np.random.default_rng(5)
    count = 100_000
    table = pa.table(
        {
            "id": np.arange(count),
            "ten": random.integers(0, 10, count),
            "thousand": random.integers(0, 1_000, count),
            "many": random.integers(0, 50_000, count),
            "runs": np.arange(count) // 30,
            "null": pa.nulls(count, pa.string()),
            "seldom": pa.array([None if i % 8 else str(i) for i in range(count)]),
        }
    )
    assert worth_a_dictionary(table) == ["ten", "thousand", "runs", "null", "seldom"]


def test_a_choice_of_dictionaries_goes_for_the_next_few_files_and_is_then_made_anew() -> None:
    few = pa.table({"n": np.arange(20_000) % 10})
    many = pa.table({"n": np.arange(20_000)})
    choices = Dictionaries()
    assert choices.choose(few.slice(0, 100)) == ["n"]
    assert choices.choose(many) == [], "a few rows do not decide for other files"
    assert [choices.choose(few) for _ in range(16)] == [[]] * 15 + [["n"]]


def test_a_small_buffer_makes_more_row_groups_but_loses_nothing() -> None:
    spec = spec_of(
        MemoryStorage(), partition=("p",), bucket="4", bucket_key="id", buffer_bytes=10_000
    )
    result = write_task(spec, batches(20_000, 500))
    ids = ids_of(written(spec, result))
    assert sorted(ids) == list(range(20_000))
    assert sum(len(message.new_files) for message in result.messages) == 12


def test_many_groups_do_not_keep_many_files_open() -> None:
    storage = MemoryStorage()
    seen = _OpenFiles(storage)
    spec = spec_of(seen, partition=("p",), buffer_bytes=1)
    result = write_task(spec, batches(450, 150, partitions=75))
    ids = [
        i
        for path in all_files(storage)
        for i in pq.read_table(pa.BufferReader(storage.read(path))).column("id").to_pylist()
    ]
    assert sorted(ids) == list(range(450))
    assert seen.most <= 65
    assert len(result.messages) == 75


def test_the_last_files_of_many_partitions_are_written_together() -> None:
    spec = spec_of(_Together(MemoryStorage()), partition=("p",))
    result = write_task(spec, batches(450, 100, partitions=75))
    assert isinstance(spec.storage, _Together)
    assert spec.storage.groups == [75]
    assert sorted(ids_of(written(spec, result))) == list(range(450))


class _Together:
    """A storage that notes how many files each `write_all` gets, and has no single outputs."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.groups: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open_output(self, path: str) -> Any:
        raise AssertionError(f"{path} is written by itself")

    def write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        self.groups.append(len(files))
        self.inner.write_all(files)


class _OpenFiles:
    """A storage that counts how many of its outputs are open at once."""

    def __init__(self, inner: Storage) -> None:
        self.inner, self.now, self.most = inner, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open_output(self, path: str) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def counted() -> Iterator[Any]:
            with self.inner.open_output(path) as stream:
                self.now += 1
                self.most = max(self.most, self.now)
                yield stream
            self.now -= 1

        return counted()


def test_a_spec_pickles_and_writes_the_same() -> None:
    spec = spec_of(MemoryStorage("pickled-spec"), partition=("p",), bucket="2", bucket_key="id")
    again = pickle.loads(pickle.dumps(spec))
    assert (again.schema, dict(again.options)) == (spec.schema, dict(spec.options))
    messages = write_task(again, batches(100, 10)).messages
    assert sum(file.row_count for message in messages for file in message.new_files) == 100
    assert len(all_files(spec.storage)) == 6


# -- what goes wrong ----------------------------------------------------------------------------


def failing(after: int, error: BaseException) -> Iterator[pa.RecordBatch]:
    for i in range(after):
        yield rows(i * 1000, 1000)
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("upstream"), GeneratorExit()])
def test_a_failing_source_leaves_no_file_behind(error: BaseException) -> None:
    spec = spec_of(MemoryStorage(), partition=("p",), buffer_bytes=1, target_file_size="10 kb")
    with pytest.raises(type(error)):
        write_task(spec, failing(5, error))
    assert all_files(spec.storage) == []


def test_nulls_are_counted_over_all_rows_of_the_task() -> None:
    storage = MemoryStorage()
    columns = {"p": pa.array(["a", "b", "c"]), "x": pa.array([1.0, 2.0, 3.0])}
    batches = [
        pa.record_batch({"id": pa.array([1, None, None], pa.int64()), **columns}),
        pa.record_batch({"id": pa.array([1, 2, 3], pa.int64()), **columns}),
        pa.record_batch({"id": pa.array([None, None, None], pa.int64()), **columns}),
    ]
    with pytest.raises(NullInNotNull, match=r"NULL in 5 rows\.") as refused:
        write_task(spec_of(storage), batches)
    assert refused.value.context["count"] == 5
    assert not storage.list_files("bucket-0")


def test_text_that_is_not_utf8_is_counted_over_all_rows_and_leaves_no_file() -> None:
    storage = MemoryStorage()
    broken = pa.array([b"ok", b"\xff", None, b"\xc3"], pa.binary()).view(pa.string())
    batch = pa.record_batch({"id": [1, 2, 3, 4], "p": broken, "x": [1.0] * 4})
    with pytest.raises(InvalidData, match=r"Column 'p' of .* not UTF-8 in 4 rows\.") as refused:
        write_task(spec_of(storage), [rows(0, 10), batch, batch])
    assert refused.value.context == {"table": storage.location, "column": "p", "count": 4}
    assert all_files(storage) == []


def test_partition_values_too_long_for_a_folder_are_counted_over_all_rows_and_leave_no_file() -> (
    None
):
    spec = spec_of(MemoryStorage(), partition=("p",), buffer_bytes=1)
    batch = pa.record_batch({"id": [1, 2, 3], "p": ["a", "b" * 254, "c" * 300], "x": [1.0] * 3})
    with pytest.raises(
        ValueTooLong, match=r"Partition column 'p' .* in 4 rows that is too long"
    ) as refused:
        write_task(spec, [rows(0, 1000), batch, batch])
    assert refused.value.context["count"] == 4
    assert all_files(spec.storage) == []


def test_null_in_not_null_names_table_column_and_count_and_leaves_no_file() -> None:
    spec = spec_of(MemoryStorage("orders"), buffer_bytes=1)
    bad = pa.record_batch({"id": pa.array([1, None, None]), "p": ["a"] * 3, "x": [1.0] * 3})
    with pytest.raises(NullInNotNull) as refused:
        write_task(spec, [rows(0, 1000), bad])
    assert refused.value.context == {"table": "memory://orders", "column": "id", "count": 2}
    assert all_files(spec.storage) == []


@pytest.mark.parametrize("partitions", [3, 12])
@pytest.mark.parametrize("error", [NoSpace, PermissionDenied, Unavailable])
def test_every_storage_operation_may_fail_and_no_file_stays(
    error: type[StorageError], partitions: int
) -> None:
    at = 0
    while True:
        at += 1
        inner = MemoryStorage()
        storage = FaultyStorage(inner, [Fault(at=at, error=error)])
        spec = spec_of(storage, partition=("p",), target_file_size="8 kb")
        try:
            write_task(spec, batches(3000, 1000, partitions))
        except error:
            assert all_files(inner) == [], storage.operations
        if not storage.fired:
            break
    assert at > 12


def test_an_answer_lost_after_a_close_leaves_at_most_that_file() -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, [Fault(at=1, verb="output.close", moment=Moment.AFTER)])
    with pytest.raises(Unavailable):
        write_task(spec_of(storage), [rows(0, 10)])
    assert len(all_files(inner)) <= 1


def test_a_killed_task_deletes_nothing() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=4, stop=True)])
    with pytest.raises(Killed):
        write_task(spec_of(storage, target_file_size="8 kb"), batches(3000, 1000))


def test_a_failing_clean_up_does_not_hide_the_error() -> None:
    storage = FaultyStorage(MemoryStorage(), [Fault(at=1, verb="delete")])
    spec = spec_of(storage, target_file_size="8 kb")
    with pytest.raises(ValueError, match="upstream"):
        write_task(spec, failing(5, ValueError("upstream")))
    assert storage.fired


def in_child(code: str, *args: str) -> dict[str, Any]:
    made = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


CHILD = """
import json, os, resource, signal, sys
import numpy as np, pyarrow as pa
from paimon_stream.errors import StorageError
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.write.task import WriteSpec, write_task
schema = TableSchema(id=0, fields=(DataField(id=0, name="v", type=parse_type("DOUBLE")),), highest_field_id=0)
spec = WriteSpec(storage=LocalStorage(sys.argv[1]), schema=schema, options=Options({}))
rows = pa.record_batch({"v": np.random.default_rng(1).random(600_000)})
PREPARE
try:
    write_task(spec, [rows])
    print(json.dumps({"error": None}))
except StorageError as why:
    print(json.dumps({"error": type(why).__name__, "path": why.context["path"], "message": why.message}))
"""


def test_a_full_disk_gives_no_space_with_the_path_and_leaves_no_file(tmp_path: Path) -> None:
    prepare = "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))"
    ignore = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    found = in_child(CHILD.replace("PREPARE", f"{ignore}\n{prepare}"), str(tmp_path / "t"))
    assert found["error"] == "NoSpace"
    assert found["path"].startswith(str(tmp_path / "t" / "bucket-0"))
    assert found["path"] in found["message"]
    assert [p for p in (tmp_path / "t").rglob("*") if p.is_file()] == []


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="becoming another user needs root"
)
def test_a_read_only_folder_gives_permission_denied_with_the_path(tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents]:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
        if folder.name.startswith("pytest-of"):
            break
    found = in_child(
        CHILD.replace("PREPARE", "os.setgid(65534); os.setuid(65534)"), str(tmp_path / "t")
    )
    assert found["error"] == "PermissionDenied"
    assert found["path"].startswith(str(tmp_path / "t"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"file__format": "csv"}, UnsupportedFeature),
        ({"file__compression": "brotli"}, UnsupportedFeature),
        ({"file__compression": "zlib"}, InvalidOption),
        ({"bucket": "-2"}, UnsupportedFeature),
        ({"metadata__stats_mode": "some"}, InvalidOption),
        ({"target_file_size": "big"}, InvalidOption),
        ({"data_file__path_directory": "../out"}, InvalidOption),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    options: dict[str, str], error: type[Exception]
) -> None:
    spec = spec_of(MemoryStorage(), **options)
    with pytest.raises(error):
        write_task(spec, [rows(0, 1)])
    assert all_files(spec.storage) == []


def test_a_file_that_exists_is_never_overwritten() -> None:
    spec = spec_of(MemoryStorage())
    write_task(spec, [rows(0, 1)])
    (before,) = all_files(spec.storage)
    with pytest.raises(AlreadyExists):
        write_task(spec_of(spec.storage), [rows(5, 1)])
    assert all_files(spec.storage) == [before]


def test_a_task_imports_neither_spark_nor_pandas_nor_avro() -> None:
    # A bare package stands in for the public names, which are more than a task needs.
    code = (
        "import json, sys, types, pyarrow\n"
        "package = sys.modules['paimon_stream'] = types.ModuleType('paimon_stream')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "import paimon_stream.write.task, paimon_stream.write.task\n"
        "print(json.dumps({name.partition('.')[0]: True for name in sys.modules}))"
    )
    found = in_child(code, str(Path(paimon_stream.__file__).parent))
    assert "pyarrow" in found and not {"pyspark", "py4j", "pandas", "fastavro"} & found.keys()


def test_memory_stays_bounded_however_many_rows_come(tmp_path: Path) -> None:
    spec = spec_of(
        LocalStorage(str(tmp_path)),
        partition=("p",),
        bucket="4",
        bucket_key="id",
        buffer_bytes=2**23,
    )
    write_task(spec, batches(200_000, 20_000))
    before = pa.total_allocated_bytes()
    peak = _Peak(batches(600_000, 20_000))
    write_task(spec, peak)
    assert peak.most - before < 3 * 2**23


class _Peak:
    """Passes batches on and notes the most memory Arrow had when the next was asked for."""

    def __init__(self, inner: Iterator[pa.RecordBatch]) -> None:
        self.inner, self.most = inner, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.inner:
            self.most = max(self.most, pa.total_allocated_bytes())
            yield batch
