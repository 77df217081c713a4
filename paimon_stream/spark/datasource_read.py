"""The batch read of `format("paimon_stream")`: one snapshot, planned on the driver (docs/reading.md, "In Spark").

A split holds the manifest entries of its files, as the bytes of commit messages. Tasks plan nothing; they read files.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from paimon_stream.errors import IncompatibleSchema, InvalidData, InvalidOption
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import FileKind, IndexManifestEntry, ManifestEntry
from paimon_stream.format.types import DataType
from paimon_stream.maintenance.ages import moment_millis
from paimon_stream.options import DATA_EVOLUTION
from paimon_stream.options.option import size
from paimon_stream.read.convert import convert, normalize
from paimon_stream.read.keyed import buckets
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import Scan, plan_scan, row_range
from paimon_stream.runtime import system
from paimon_stream.spark.datasource import divided
from paimon_stream.spark.types import same_but_nulls, spark_type
from paimon_stream.storage.uri import open_storage
from paimon_stream.table.table import load_table
from paimon_stream.table.vectors import Vector

KEYS: Final = {  # the options of a read, each with the names that Paimon has for it
    "snapshot_id": ("snapshot-id", "scan.snapshot-id"),
    "tag": ("tag", "scan.tag-name"),
    "timestamp": ("timestamp", "scan.timestamp", "scan.timestamp-millis"),
    "columns": ("columns",),
    "partition": ("partition",),
    "split_size": ("split-size", "source.split.target-size"),
}
_LEAST_BYTES: Final = 4 << 20  # of a file in a split, as `source.split.open-file-cost` in Paimon
_UTC: Final = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def schema_of(options: dict[str, str]) -> StructType:
    """The columns of the table, or those that the option `columns` names. Raises as `PaimonTable.to_arrow`."""
    scan, _ = _planned(options, filter=pc.scalar(False))
    return StructType([StructField(one.name, spark_type(one.type), one.type.nullable) for one in scan.columns])


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        scan, split_bytes = _planned(options, columns=schema.names)
        for one, wanted in zip(scan.columns, schema.fields, strict=True):
            if not same_but_nulls(spark_type(one.type), wanted.dataType):
                text = f"column {one.name!r} is {one.type}, which is no {wanted.dataType.simpleString()} in Spark."
                raise IncompatibleSchema(text, column=one.name).of_table(scan.table.location)
        self._splits = [_encoded(scan, files) for files in _packed(scan, split_bytes)]
        self._scan, self._arrow = replace(scan, files=(), vectors={}), to_arrow_schema(schema, **_UTC)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_splits": []}  # Spark sends each task its own

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition((CommitMessage.VERSION, one)) for one in self._splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:
            return  # Spark asks so if there are no splits: 4.0 in the first way, later ones in the second
        version, data = partition.value
        for batch in read_batches(_decoded(self._scan, CommitMessage.deserialize_all(data, version))):
            for array, field in zip(batch.columns, self._arrow, strict=True):
                if array.null_count and not field.nullable:
                    text = f"column {field.name!r} is NOT NULL in Spark, but holds NULL, maybe of before it was altered"
                    text += ". Read with .schema(...), without NOT NULL there."
                    raise InvalidData(text, column=field.name).of_table(self._scan.table.location)
            arrays = [
                convert(array, one.type, _micros(one.type), normalize, one.name).cast(field.type)
                for array, one, field in zip(batch.columns, self._scan.columns, self._arrow, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


reader_of: Final = _Reader
"""A reader of exactly the columns of a schema, of the snapshot that is chosen now. Raises as `PaimonTable.to_arrow`."""


def _planned(options: dict[str, str], **more: Any) -> tuple[Scan, int]:
    """The scan, and the bytes of a split. `more` is for `plan_scan`, and stronger than the options."""
    given, asked = divided(options, chain.from_iterable(KEYS.values())), dict[str, Any]()
    where = given.location
    for name, keys in KEYS.items():
        found = [key for key in keys if key in given.own]
        if len(found) > 1:
            text = f"{' and '.join(found)} mean the same. Give one of them."
            raise InvalidOption(text, option=found[1]).of_table(where)
        for text in map(given.own.__getitem__, found):
            asked[name] = int(text) if name in ("snapshot_id", "timestamp") and text.isdecimal() else text
    if "timestamp" in asked:
        asked["timestamp"] = moment_millis(asked["timestamp"], "timestamp", where, system().clock.now_millis())
    if "columns" in asked:
        asked["columns"] = [one.strip() for one in asked["columns"].split(",")]
    try:
        split_bytes = size(asked.pop("split_size", "128 mb"))
    except ValueError as why:
        raise InvalidOption(f"split-size is {why}.", option="split-size").of_table(where) from None
    return plan_scan(load_table(open_storage(where, given.storage), given.table), **{**asked, **more}), split_bytes


def _packed(scan: Scan, split_bytes: int) -> Iterator[list[ManifestEntry]]:
    """The files of each split. Files whose rows are merged or joined stay together."""
    units: Iterable[list[ManifestEntry]] = ([one] for one in scan.files)
    if scan.merge is not None:
        units = buckets(scan.files)
    elif scan.table.options.value(DATA_EVOLUTION):
        units = (list(files) for _, files in groupby(scan.files, row_range))
    held, left = list[ManifestEntry](), split_bytes
    for files in units:
        weight = sum(max(one.file.file_size, _LEAST_BYTES) for one in files)
        if held and weight > left:
            yield held
            held, left = [], split_bytes
        held, left = [*held, *files], left - weight
    if held:
        yield held


def _encoded(scan: Scan, files: Iterable[ManifestEntry]) -> bytes:
    """Each file as a message, with the place of its deletion vector."""
    messages = []
    for one in files:
        vector = scan.vectors.get(one.file.file_name)
        index = () if vector is None else (replace(vector[0].file, deletions=(vector[1],)),)
        where: dict[str, Any] = {"partition": one.partition, "bucket": one.bucket, "total_buckets": one.total_buckets}
        messages.append(CommitMessage(**where, new_files=(one.file,), new_index_files=index))
    return CommitMessage.serialize_all(messages)


def _decoded(scan: Scan, messages: Iterable[CommitMessage]) -> Scan:
    files, vectors = list[ManifestEntry](), dict[str, Vector]()
    for one in messages:
        where: dict[str, Any] = {"partition": one.partition, "bucket": one.bucket}
        total = one.total_buckets or 0
        files += [ManifestEntry(kind=FileKind.ADD, **where, total_buckets=total, file=file) for file in one.new_files]
        for index in one.new_index_files:
            vectors |= {at.data_file: (IndexManifestEntry(**where, file=index), at) for at in index.deletions or ()}
    return replace(scan, files=tuple(files), vectors=vectors)


def _micros(type_: DataType) -> DataType:
    """The type without digits beyond microseconds, which Spark does not have."""
    if type_.is_timestamp:
        return replace(type_, precision=min(type_.precision, 6))
    key, element = (None if one is None else _micros(one) for one in (type_.key, type_.element))
    members = tuple(replace(one, type=_micros(one.type)) for one in type_.fields)
    return replace(type_, key=key, element=element, fields=members)
