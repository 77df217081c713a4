"""A Python worker of Spark that runs many tasks sets its modules aside from the search for garbage,
once, and does not read the lists of Spark's own archives before each task.
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


def test_a_worker_that_appends_imports_nothing_for_keys_other_formats_and_requests() -> None:
    code = "import sys, pyarrow.parquet, paimon_stream.spark.tasks\nprint(*sys.modules, sep='\\n')"
    command = [sys.executable, "-c", code]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "paimon_stream.write.parquet_file" in imported
    assert not {
        "configparser",
        "http.client",
        "paimon_stream.merge.rows",
        "paimon_stream.write.avro_data",
        "paimon_stream.write.key_task",
        "paimon_stream.write.orc_file",
        "paimon_stream.write.row_kinds",
        "paimon_stream.write.shuffle_packets",
        "pyarrow.orc",
        "urllib.request",
    } & set(imported)
