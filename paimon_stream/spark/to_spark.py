"""A table as a DataFrame of Spark: by Spark's own Parquet reader where files hold rows as they are,
else in splits that Python reads in tasks (docs/reading.md, "In Spark").
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import StructField, StructType

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.options import DATA_EVOLUTION
from paimon_stream.options.option import size
from paimon_stream.read.merged import buckets
from paimon_stream.read.rows import sections_of
from paimon_stream.read.scan import Scan, schemas_of
from paimon_stream.spark.align import fold_of
from paimon_stream.spark.map_arrow import map_arrow
from paimon_stream.spark.splits import (
    SPLIT_BYTES,
    arrow_of,
    rows_of_split,
    splits_of,
    without_files,
)
from paimon_stream.spark.types import named, nullable_everywhere, spark_type
from paimon_stream.storage.branch import BranchStorage
from paimon_stream.storage.local import LocalStorage
from paimon_stream.storage.uri import ExternalStorage
from paimon_stream.table.partition_spellings import SpelledStorage

_LOG = logging.getLogger(__name__)
_GLOB: Final = re.compile(r"[{}\[\]*?\\]")
"""What Spark does not take as a part of a file's name."""

_SETTINGS: Final = {
    "recursiveFileLookup": "true",  # else columns come from the names of folders
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}


def frame_of(spark: SparkSession, scan: Scan, native: bool | None) -> DataFrame:
    """The scan as a DataFrame, whose columns may all be NULL for Spark. `native` says whether
    Spark's own reader reads; None chooses it for local files that hold rows as they are. Raises
    `UnsupportedFeature`.
    """
    groups: defaultdict[int, list[ManifestEntry]] = defaultdict(list)
    for one in scan.files:
        groups[one.file.schema_id].append(one)
    schemas = {} if native is False else {id_: schemas_of(scan)(id_) for id_ in groups}
    why = None if native is False else _why_not(scan, schemas.values())
    if native and why is not None:
        text = f"cannot be read by Spark's own reader, because {why}. Leave native out: tasks in Python then read it."
        raise UnsupportedFeature(text, option="native").of_table(scan.table.location, subject=True)
    if native is None and why is None and not isinstance(scan.table.storage, LocalStorage):
        why = "Spark may have no access to its store of its own"
    if native is False or why is not None or not scan.files:
        _LOG.debug(
            "%s is read by tasks in Python: %s", scan.table.location, why or "so it was asked"
        )
        return _by_tasks(spark, scan)
    _LOG.debug("%s is read by Spark's own reader", scan.table.location)
    return reduce(
        DataFrame.union,
        (_by_spark(spark, scan, schemas[id_], files) for id_, files in groups.items()),
    )


def _by_tasks(spark: SparkSession, scan: Scan) -> DataFrame:
    struct = nullable_everywhere(
        StructType([StructField(one.name, spark_type(one.type)) for one in scan.columns])
    )
    splits = splits_of(scan, size(SPLIT_BYTES))
    frame = spark.createDataFrame([(bytearray(one),) for one in splits], "split binary")
    task = partial(_rows, without_files(scan), arrow_of(struct))
    return map_arrow(frame.repartition(max(1, len(splits))), task, struct)


def _rows(
    scan: Scan, arrow: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from rows_of_split(scan, arrow, data, CommitMessage.VERSION)


def _by_spark(
    spark: SparkSession, scan: Scan, written: TableSchema, files: Iterable[ManifestEntry]
) -> DataFrame:
    """The rows of files of one schema."""
    sources = _sources(scan, written)
    struct = StructType(
        [StructField(old.name, spark_type(old.type)) for _, old in sources if old is not None]
    )
    reader = spark.read.format("parquet").options(**_SETTINGS).schema(struct)
    return reader.load([_path(scan, one) for one in files]).select(
        *(_column(one, old) for one, old in sources)
    )


def _column(one: DataField, old: DataField | None) -> Any:
    made = (
        functions.lit(None).cast(nullable_everywhere(spark_type(one.type)))
        if old is None
        else named(old.name)
    )
    if (
        one.type.is_float
    ):  # else Spark skips row groups by bounds that leave NaN out, and with it rows
        made = functions.nanvl(made, functions.lit(float("nan")).cast(spark_type(one.type)))
    return made.alias(one.name)


def _sources(scan: Scan, written: TableSchema) -> list[tuple[DataField, DataField | None]]:
    """Each wanted column with the column of files of that schema; None if they do not have it."""
    by_id = {one.id: one for one in written.fields}
    return [(one, by_id.get(one.id)) for one in scan.columns]


def _path(scan: Scan, one: ManifestEntry) -> str:
    path = scan.table.layout.whole_path(scan.table.location, one)
    return f"file:{path}" if path.startswith("/") else re.sub("^s3://", "s3a://", path)


def _why_not(scan: Scan, schemas: Iterable[TableSchema]) -> str | None:
    """Why Spark's own reader would not return the rows of the table; None if it would. `schemas`
    are the files'.
    """
    if isinstance(scan.table.storage, BranchStorage | ExternalStorage | SpelledStorage):
        return "it is a branch, has external paths, or is partitioned by FLOAT or DOUBLE"
    if scan.vectors:
        return "its files have deletion vectors"
    if scan.table.options.value(DATA_EVOLUTION):
        return "its files hold parts of rows"
    if scan.merge is not None:
        found = [one.single for files in buckets(scan.files) for one in sections_of(scan, files)]
        if any(one is None or one.file.delete_row_count != 0 for one in found):
            return "rows of one key have to be merged"
    if any(not one.file.file_name.endswith(".parquet") for one in scan.files):
        return "not all of its files are Parquet"
    if any(
        _GLOB.search(_path(scan, one)) or ":" in scan.table.layout.file_of(one)
        for one in scan.files
    ):
        return "Spark does not take the names of its folders as they are"
    for written in schemas:
        sources = _sources(scan, written)
        if all(old is None for _, old in sources):
            return "files have none of the columns"
        names = [fold_of(False)(one.name) for one in written.fields]
        if len(set(names)) < len(names):
            return "names of columns differ in case only"
        for one, old in sources:
            if old is not None and old.type.with_nullable(one.type.nullable) != one.type:
                return f"column {one.name!r} had another type"
            if _differs(one.type):
                return f"Spark reads the type of column {one.name!r} in another way"
    return None


def _differs(type_: DataType) -> bool:
    """Whether Spark reads values of the type otherwise: digits beyond microseconds, times of a day,
    and, where it filters, NaN in members of a struct.
    """
    parts = [*filter(None, (type_.key, type_.element)), *(one.type for one in type_.fields)]
    fine = type_.is_timestamp and type_.precision > 6
    fine |= any(one.type.is_float for one in type_.fields)
    return fine or type_.root in (TypeRoot.TIME, TypeRoot.MULTISET) or any(map(_differs, parts))
