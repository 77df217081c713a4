"""A table as a DataFrame of Spark. Spark's own Parquet reader reads the files that hold rows in
their final form. Python tasks read all other files, in splits (docs/reading.md, "In Spark").
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import BinaryType, StructField, StructType

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, DataType, TypeRoot
from paimon_stream.merge.spec import ROW_KIND_COLUMN
from paimon_stream.options import DATA_EVOLUTION
from paimon_stream.options.option import size
from paimon_stream.read.merged import buckets
from paimon_stream.read.rows import sections_of
from paimon_stream.read.scan import Scan, schemas_of
from paimon_stream.spark.align import fold_of
from paimon_stream.spark.identity import NOT_AS_KNOWN
from paimon_stream.spark.map_arrow import map_arrow
from paimon_stream.spark.reused_worker import prepare_worker
from paimon_stream.spark.splits import (
    SPLIT_BYTES,
    arrow_of,
    rows_of_split,
    split_bytes_for,
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
"""The characters that Spark does not take as part of a file's name."""

_SPLIT: Final = StructType([StructField("split", BinaryType())])
"""The columns of a DataFrame of splits."""

_SETTINGS: Final = {
    "recursiveFileLookup": "true",  # otherwise Spark adds columns from the names of folders
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}


def frame_of(spark: SparkSession, scan: Scan, native: bool | None) -> DataFrame:
    """The scan as a DataFrame. For Spark, all its columns may be NULL.

    Args:
        spark: the session.
        scan: the planned read.
        native: whether Spark's own reader reads the files. None: it reads local files that hold
            rows in their final form.

    Raises:
        UnsupportedFeature: Spark's own reader was asked for, and would not return the right rows.
    """
    if native is False:
        _LOG.debug("%s is read by tasks in Python, as native=False demands", scan.table.location)
        return _by_tasks(spark, scan)
    files_by_schema: defaultdict[int, list[ManifestEntry]] = defaultdict(list)
    for entry in scan.files:
        files_by_schema[entry.file.schema_id].append(entry)
    schemas = {id_: schemas_of(scan)(id_) for id_ in files_by_schema}
    obstacle = _obstacle_to_spark(scan, schemas.values())
    if native and obstacle is not None:
        raise UnsupportedFeature(
            f"cannot be read by Spark's own reader, because {obstacle}. Leave native out: tasks in "
            "Python then read it.",
            option="native",
        ).of_table(scan.table.location, subject=True)
    if native is None and obstacle is None and not isinstance(scan.table.storage, LocalStorage):
        obstacle = "Spark may have no access to its store of its own"
    if obstacle is not None or not scan.files:
        _LOG.debug(
            "%s is read by tasks in Python: %s", scan.table.location, obstacle or "so it was asked"
        )
        return _by_tasks(spark, scan)
    _LOG.debug("%s is read by Spark's own reader", scan.table.location)
    return reduce(
        DataFrame.union,
        (_by_spark(spark, scan, schemas[id_], files) for id_, files in files_by_schema.items()),
    )


def _by_tasks(spark: SparkSession, scan: Scan) -> DataFrame:
    struct = nullable_everywhere(
        StructType([StructField(field.name, spark_type(field.type)) for field in scan.columns])
    )
    frame = one_partition_each(spark, splits_for(spark, scan))
    task = partial(_rows, without_files(scan), arrow_of(struct))
    return map_arrow(frame, task, struct)


def splits_for(spark: SparkSession, scan: Scan) -> list[bytes]:
    """The splits of the scan. On Spark Connect, the number of the cluster's cores is not known."""
    if not hasattr(spark, "_jsparkSession"):
        return splits_of(scan, size(SPLIT_BYTES))
    return splits_of(scan, split_bytes_for(scan, int(spark.sparkContext.defaultParallelism)))


def one_partition_each(spark: SparkSession, splits: Sequence[bytes]) -> DataFrame:
    """The splits as rows, each in a partition of its own.

    `createDataFrame` passes rows through tasks in Python, and a shuffle would have to spread them
    afterwards. So the partitions are made directly, by the calls that `createDataFrame` makes after
    those tasks. If Spark has changed them, and on Spark Connect, `createDataFrame` is used.
    """
    rows = [(bytearray(split),) for split in splits]
    partitions = max(1, len(rows))
    if hasattr(spark, "_jsparkSession"):
        try:
            jvm: Any = spark._jvm
            pickled = spark.sparkContext.parallelize(rows, partitions)._jrdd
            java_rows = jvm.SerDeUtil.toJavaArray(jvm.SerDeUtil.pythonToJava(pickled, True))
            session: Any = spark._jsparkSession
            java_frame = session.applySchemaToPythonRDD(java_rows.rdd(), _SPLIT.json())
            return DataFrame(java_frame, spark)
        except NOT_AS_KNOWN:
            _LOG.debug("Spark makes no partitions of splits as known.", exc_info=True)
    return spark.createDataFrame(rows, _SPLIT).repartition(partitions)


def _rows(
    scan: Scan, arrow: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from rows_of_split(scan, arrow, data, CommitMessage.VERSION)


def _by_spark(
    spark: SparkSession, scan: Scan, written: TableSchema, files: Iterable[ManifestEntry]
) -> DataFrame:
    """The rows of some files that have the same schema."""
    sources = _sources(scan, written)
    struct = StructType(
        [
            StructField(source.name, spark_type(source.type))
            for _, source in sources
            if source is not None
        ]
    )
    reader = spark.read.format("parquet").options(**_SETTINGS).schema(struct)
    return reader.load([_path(scan, entry) for entry in files]).select(
        *(_column(field, source) for field, source in sources)
    )


def _column(field: DataField, source: DataField | None) -> Any:
    type_ = spark_type(field.type)
    if source is None:
        column = functions.lit(None).cast(nullable_everywhere(type_))
    else:
        column = named(source.name)
    if field.type.is_float:
        # Without this expression, Spark skips row groups by their bounds. The bounds leave NaN out,
        # so rows with NaN would be lost.
        column = functions.nanvl(column, functions.lit(float("nan")).cast(type_))
    return column.alias(field.name)


def _sources(scan: Scan, written: TableSchema) -> list[tuple[DataField, DataField | None]]:
    """Each column of the scan, with the matching column of files that have the schema `written`;
    None if these files lack it.
    """
    by_id = {field.id: field for field in written.fields}
    return [(field, by_id.get(field.id)) for field in scan.columns]


def _path(scan: Scan, entry: ManifestEntry) -> str:
    path = scan.table.layout.whole_path(scan.table.location, entry)
    return f"file:{path}" if path.startswith("/") else re.sub("^s3://", "s3a://", path)


def _obstacle_to_spark(scan: Scan, schemas: Iterable[TableSchema]) -> str | None:
    """The reason why Spark's own reader would not return the rows of the table, as a clause; None
    if it would return them. `schemas` are the schemas of the files.
    """
    if isinstance(scan.table.storage, BranchStorage | ExternalStorage | SpelledStorage):
        return "it is a branch, has external paths, or is partitioned by FLOAT or DOUBLE"
    if scan.are_changes or scan.before is not None or ROW_KIND_COLUMN in scan.columns:
        return "what has changed is read"
    if scan.vectors:
        return "its files have deletion vectors"
    if scan.table.options.value(DATA_EVOLUTION):
        return "its files hold parts of rows"
    if scan.merge is not None and _merges_rows(scan):
        return "rows of one key have to be merged"
    if any(not entry.file.file_name.endswith(".parquet") for entry in scan.files):
        return "not all of its files are Parquet"
    if any(
        _GLOB.search(_path(scan, entry)) or ":" in scan.table.layout.file_of(entry)
        for entry in scan.files
    ):
        return "Spark does not take the names of its folders as they are"
    for written in schemas:
        obstacle = _obstacle_of_schema(scan, written)
        if obstacle is not None:
            return obstacle
    return None


def _merges_rows(scan: Scan) -> bool:
    """Whether the rows of a table with a primary key must be merged, because some files do not hold
    rows in their final form.
    """
    for files in buckets(scan.files):
        for section in sections_of(scan, files):
            entry = section.single
            if entry is None or entry.file.delete_row_count != 0:
                return True
    return False


def _obstacle_of_schema(scan: Scan, written: TableSchema) -> str | None:
    """The reason why Spark's own reader cannot read files of the schema `written`; None if it
    can.
    """
    sources = _sources(scan, written)
    if all(source is None for _, source in sources):
        return "files have none of the columns"
    fold = fold_of(case_sensitive=False)
    if len({fold(field.name) for field in written.fields}) < len(written.fields):
        return "names of columns differ in case only"
    for field, source in sources:
        if source is not None and source.type.with_nullable(field.type.nullable) != field.type:
            return f"column {field.name!r} had another type"
        if _spark_reads_differently(field.type):
            return f"Spark's own reader and Paimon differ on values of the type of column {field.name!r}"
    return None


def _spark_reads_differently(type_: DataType) -> bool:
    """Whether Spark reads values of the type differently from this package. It does so for digits
    beyond microseconds, for times of a day, and for NaN in members of a struct when it filters.
    """
    if type_.is_timestamp and type_.precision > 6:
        return True
    if type_.root in (TypeRoot.TIME, TypeRoot.MULTISET):
        return True
    if any(member.type.is_float for member in type_.fields):
        return True
    parts = [*filter(None, (type_.key, type_.element)), *(member.type for member in type_.fields)]
    return any(map(_spark_reads_differently, parts))
